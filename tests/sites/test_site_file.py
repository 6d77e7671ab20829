"""A site.toml: the first one, and what is read from it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.config.toml_file import ConfigError, validated
from bonafed.sites.policy import Policy
from bonafed.sites.site_file import SiteFile, first_site, read_site

LEAST = '[site]\nname = "north"\n[data]\npath = "rows.csv"\n'
printable = st.characters(categories=["L", "N", "P", "S"])
names = st.text(printable, min_size=1, max_size=64)


@given(name=names, path=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_the_first_site_has_the_defaults_whatever_it_is_called(name: str, path: str) -> None:
    if not path.strip():
        return
    site, raw = validated(SiteFile, first_site(name, path), "site.toml")
    assert site.policy == Policy()
    assert (site.site.name, site.data.path) == (name, path)
    assert {*raw["policy"]} <= {*Policy.model_fields}


def test_the_first_site_says_every_key_and_every_example_of_it_is_valid() -> None:
    text = first_site("north", "rows.csv")
    assert all(len(line) <= 100 for line in text.splitlines())
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    stated = "\n".join(line for line in lines if line[:1] == "[" or " = " in line[:40])
    stated = stated.replace("`", "")
    kept = [line for line in stated.splitlines() if "; " not in line and ": " not in line]
    site, raw = validated(SiteFile, "\n".join(kept), "site.toml")
    assert {*raw["policy"]} == {*Policy.model_fields}
    assert {*raw["site"]} == {"name", "state", "log", "key"}
    assert site.policy.constraint[0].words() == (
        "mean predictions for the groups of sex at most 0.1 apart (scores) at every client"
    )


def test_paths_start_at_the_folder_of_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "north"
    folder.mkdir()
    (folder / "site.toml").write_text(LEAST.replace("[data]", 'key = "../north.key"\n[data]'))
    for place in ("north", Path("north"), folder / "site.toml"):
        site = read_site(place)
        monkeypatch.chdir("/")
        assert site.rows == folder / "rows.csv"
        assert site.log == folder / "audit.jsonl"
        assert site.state == folder / "state"
        assert site.key == folder / "../north.key"
        assert site.path == folder / "site.toml"
        monkeypatch.chdir(tmp_path)
    (folder / "site.toml").write_text(LEAST)
    assert read_site(folder).key is None


def test_the_table_is_read_as_the_site_says(tmp_path: Path) -> None:
    from bonafed.sites.rows import read_rows

    more = 'encoding = "latin-1"\ndelimiter = ";"\ndecimal = ","\nmissing = ["k.A."]\n'
    (tmp_path / "site.toml").write_text(LEAST + more + 'exclude = ["note"]\ncategorical = ["k"]\n')
    (tmp_path / "rows.csv").write_bytes(
        "ort;x;note;k\nKöln;1,5;a;01\nk.A.;2,5;b;1\n".encode("latin-1")
    )
    table = read_rows(read_site(tmp_path))
    assert {name: column.tolist() for name, column in table.items()} == {
        "ort": ["Köln", None],
        "x": [1.5, 2.5],
        "k": ["01", "1"],
    }


WRONG = {
    "no TOML": ("[site", "is not TOML"),
    "nothing": ("", "[site] is missing"),
    "no name": ("[site]\n[data]\npath = 'x'\n", "line 1, site: `name` is missing"),
    "no table": (LEAST.replace("[data]", "[dat]"), "did you mean 'data'"),
    "no path": (LEAST.replace("path", "paths"), "did you mean 'path'"),
    "an empty name": (LEAST.replace('"north"', '""'), "1 to 64 printable characters"),
    "a name of two lines": (LEAST.replace('"north"', '"a\\nb"'), "1 to 64 printable"),
    "a name with a space": (LEAST.replace('"north"', '" a"'), "no space at its ends"),
    "a long name": (LEAST.replace("north", "n" * 65), "1 to 64 printable characters"),
    "a path of nothing": (LEAST.replace("rows.csv", " "), "allowed: a path"),
    "a path with a NUL": (LEAST.replace("rows.csv", "a\\u0000"), "allowed: a path"),
    "a delimiter of two": (LEAST + "delimiter = ';;'\n", "data.delimiter: got ';;'"),
    "an encoding": (LEAST + "encoding = 'utf8'\n", "data.encoding: got 'utf8'"),
    "a decimal sign": (LEAST + "decimal = ';'\n", "data.decimal: got ';'"),
    "a key of the run": (LEAST + "target = 'sick'\n", "unknown key"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_with_file_and_line(case: str, tmp_path: Path) -> None:
    text, needed = WRONG[case]
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        read_site(tmp_path)
    assert needed in str(error.value)
    assert "site.toml" in str(error.value)


def test_a_site_that_is_not_there_is_told_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write one with `bonafed site policy`"):
        read_site(tmp_path)
    with pytest.raises(ConfigError, match="there is no site"):
        read_site(tmp_path / "nowhere")
    (tmp_path / "site.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        read_site(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_file_that_others_may_change_and_a_key_that_they_may_read_are_told(
    tmp_path: Path,
) -> None:
    (tmp_path / "site.toml").write_text(LEAST.replace("[data]", 'key = "site.key"\n[data]'))
    (tmp_path / "site.toml").chmod(0o644)
    assert read_site(tmp_path).exposed() == []
    (tmp_path / "site.key").write_text("secret")
    (tmp_path / "site.key").chmod(0o600)
    assert read_site(tmp_path).exposed() == []
    (tmp_path / "site.key").chmod(0o640)
    (tmp_path / "site.toml").chmod(0o666)
    toml, key = read_site(tmp_path).exposed()
    assert "can be changed by every user: chmod o-w" in toml
    assert "can be read by others: chmod 600" in key
