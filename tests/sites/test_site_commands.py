"""The commands of a data owner: `bonafed site policy`, `check` and `log`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bonafed.sites.audit import AuditLog, Content, head_path
from bonafed.sites.policy import Policy
from bonafed.sites.site_file import read_site

Call = Callable[..., int]
Capture = pytest.CaptureFixture[str]
ROWS = "age,sex,sick\n" + "".join(f"{30 + k},{'fm'[k % 2]},{k % 3 == 0}\n" for k in range(30))


def answered(folder: Path) -> Path:
    """A site's log of a question and its answer."""
    log = AuditLog.open(folder / "audit.jsonl", folder.name)
    log.write("in", "alliance", "Evaluate", seq=0, size=9, fields={"w": Content(3, 0, "all")})
    fields = {"gradient": Content(3, 0, "sum")}
    log.write("out", "alliance", "Evaluated", seq=0, size=9, fields=fields)
    return log.path


def one_line(told: str) -> None:
    assert len(told.splitlines()) == 1
    assert told.startswith("bonafed: ")
    assert "Traceback" not in told


def test_from_a_table_to_a_policy_that_it_keeps(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    assert bonafed("site", "policy", "north") == 0
    assert "wrote north/site.toml; next: read it, and bonafed site check" in capsys.readouterr().out
    site = read_site(tmp_path / "north")
    assert (site.site.name, site.data.path, site.policy) == ("north", "rows.csv", Policy())
    assert (tmp_path / "north" / "site.toml").stat().st_mode & 0o022 == 0
    (tmp_path / "north" / "rows.csv").write_text(ROWS)
    assert bonafed("site", "check", "north") == 0
    said = capsys.readouterr().out
    for part in (
        "site north: 30 rows in ",
        "'age': numbers",
        "'sex': 2 levels, the smallest of 15 rows",
        "may have 3 parameters at most",
        "the rows keep the policy of the site",
    ):
        assert part in said


def test_a_policy_is_written_once_and_then_said(
    bonafed: Call, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "clinic"
    folder.mkdir()
    (folder / "patients.csv").write_text(ROWS)
    monkeypatch.chdir(folder)
    assert bonafed("site", "policy", "--name", "St. Mary") == 0
    site = read_site(folder)
    assert (site.site.name, site.data.path) == ("St. Mary", "patients.csv")
    text = (folder / "site.toml").read_text().replace("minimum_rows = 10", "minimum_rows = 25")
    (folder / "site.toml").write_text(text)
    capsys.readouterr()
    assert bonafed("site", "policy") == 0
    said = capsys.readouterr().out
    assert "minimum_rows: a run needs 25 rows of this site or more" in said
    assert f"digest of this policy: {read_site(folder).policy.digest()}" in said
    assert (folder / "site.toml").read_text() == text
    assert bonafed("site", "policy", "--name", "other") == 2
    told = capsys.readouterr().err
    one_line(told)
    assert "--name and --data are for a new one" in told
    assert (folder / "site.toml").read_text() == text


def test_rows_that_break_the_policy_are_one_line_each_and_status_two(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    assert bonafed("site", "policy", ".", "--data", "few.csv") == 0
    (tmp_path / "few.csv").write_text("name,sex\nann,f\nbob,m\neve,f\n")
    capsys.readouterr()
    assert bonafed("site", "check") == 2
    said = capsys.readouterr()
    assert "3 rows" in said.out
    assert "keep the policy" not in said.out
    lines = said.err.splitlines()
    assert all(line.startswith("bonafed: minimum_") for line in lines)
    assert [line.split()[1] for line in lines] == [
        "minimum_rows:",
        "minimum_level_rows:",
        "minimum_level_rows:",
    ]
    assert "ann" not in said.out + said.err


UNREADY = {
    "no key": (
        "site.key",
        None,
        "no private key 'north/site.key': make one with `bonafed site key`",
    ),
    "another key": ("site.key", "mine", "'north/site.key' holds no private key"),
    "a cut secret": ("site.secret", "short", "the secret north/site.secret has 5 bytes"),
    "a changed log": ("audit.jsonl", "{}\n", "cannot be gone on with"),
}


@pytest.mark.parametrize("case", UNREADY)
def test_a_site_that_could_not_answer_is_told_though_its_rows_keep_the_policy(
    bonafed: Call, tmp_path: Path, capsys: Capture, case: str
) -> None:
    name, text, needed = UNREADY[case]
    bonafed("site", "policy", "north")
    folder = tmp_path / "north"
    (folder / "rows.csv").write_text(ROWS)
    toml = (folder / "site.toml").read_text().replace('# key = "site.key"', 'key = "site.key"')
    (folder / "site.toml").write_text(toml)
    before = {*folder.iterdir()} if text is None else set()
    assert text is None or bonafed("site", "key", "north") == 0
    if text is not None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    capsys.readouterr()
    assert bonafed("site", "check", "north") == 2
    said = capsys.readouterr()
    assert needed in said.err.replace(f"{tmp_path}/", "")
    one_line(said.err)
    assert "keep the policy" not in said.out
    assert text is not None or {*folder.iterdir()} == before  # nothing is made


def test_a_log_is_told_in_words_and_is_whole(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    bonafed("site", "policy", "north")
    path = answered(tmp_path / "north")
    capsys.readouterr()
    assert bonafed("site", "log", "north", "--long") == 0
    said = capsys.readouterr().out.splitlines()
    assert "the log of site north begins" in said[0]
    assert "received from server alliance: model (3 numbers), the same for all sites" in said[1]
    assert "uses only the sum over the sites; this version sends them to the server" in said[2]
    assert said[3].startswith("answers that left: 1 (0 refusals); in all 3 numbers")
    assert said[4] == "3 lines, and none was changed, removed, inserted or moved"
    assert bonafed("site", "log", "north", "--verify") == 0
    assert capsys.readouterr().out.splitlines() == said[4:]
    assert bonafed("site", "log", path, "--verify") == 0  # a copy, without a site


def test_a_log_that_was_changed_is_status_one_with_its_line(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    bonafed("site", "policy", "north")
    path = answered(tmp_path / "north")
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"Evaluate"', b'"Evaluatf"'))
    capsys.readouterr()
    for option in ([], ["--verify"]):
        assert bonafed("site", "log", "north", *option) == 1
        said = capsys.readouterr().out
        assert "line 2: it was changed: its bytes are not those that were written" in said
        assert said.rstrip().endswith("was CHANGED after it was written")
    path.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    assert bonafed("site", "log", "north") == 1
    assert "line 3: the end was cut off: 3 lines were written" in capsys.readouterr().out


def test_a_torn_line_is_told_and_is_no_change(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    bonafed("site", "policy", "north")
    path = answered(tmp_path / "north")
    with path.open("ab") as file:
        file.write(b'{"line":4,"at"')
    capsys.readouterr()
    assert bonafed("site", "log", "north", "--verify") == 0
    assert "line 4: it is torn: a process ended while it wrote it" in capsys.readouterr().out


def test_a_log_of_another_site_is_told(bonafed: Call, tmp_path: Path, capsys: Capture) -> None:
    bonafed("site", "policy", "north")
    bonafed("site", "policy", "south")
    log = answered(tmp_path / "south")
    for path in (log, head_path(log)):
        path.rename(tmp_path / "north" / path.name)
    capsys.readouterr()
    assert bonafed("site", "log", "north", "--verify") == 1
    assert "line 1: the log is that of site 'south', not of 'north'" in capsys.readouterr().out


WRONG = {
    "no site": (["site", "check", "x"], "there is no site 'x'"),
    "no site to log": (["site", "log", "x"], "there is no site 'x'"),
    "no table": (["site", "check", "north"], "rows.csv"),
    "no log": (["site", "log", "north"], "there is no log"),
    "a bad site": (["site", "check", "bad"], "line 6, policy.minimum_row: unknown key"),
    "a bad site in words": (["site", "policy", "bad"], "did you mean 'minimum_rows'?"),
    "a name of two lines": (["site", "policy", "new", "--name", "a\nb"], "printable characters"),
    "a command that is none": (["site", "chek"], "No such command 'chek'"),
    "an option that is none": (["site", "log", "--fast"], "--fast"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_one_line_and_status_two(
    bonafed: Call, tmp_path: Path, capsys: Capture, case: str
) -> None:
    bonafed("site", "policy", "north")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "site.toml").write_text(
        '[site]\nname = "a"\n[data]\npath = "b"\n[policy]\nminimum_row = 1\n'
    )
    capsys.readouterr()
    arguments, needed = WRONG[case]
    assert bonafed(*arguments) == 2
    told = capsys.readouterr().err
    assert needed in told
    one_line(told)
    assert not (tmp_path / "new").exists()


def test_the_group_alone_shows_its_commands(bonafed: Call, capsys: Capture) -> None:
    assert bonafed("site") == 2
    told = capsys.readouterr().err
    assert told.startswith("Usage: ")
    assert all(name in told for name in ("policy", "check", "log"))
