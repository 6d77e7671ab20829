"""What commands print and write for people: on any terminal or none, to pipes whose reader has gone
and disks that are full, with hostile names, and when they are interrupted.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import unicodedata
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import small_run

import bonafed.report.terminal as bonafed_terminal
from bonafed import NoPrivacyWarning
from bonafed.report import output
from bonafed.report.output import deliver, guarded
from bonafed.report.pages import as_json, draw, markdown, render
from bonafed.report.tables import NAME, escaped, printable, sentence, short
from bonafed.runs.folder import read_run
from bonafed.runs.model_file import harmless
from bonafed.runs.sections.section import Run
from bonafed.runs.work import Work
from bonafed.signals import ENDING, interrupts, listening
from bonafed.text import plain

Call = Callable[..., int]
Capture = pytest.CaptureFixture[str]

FORGED = "bonafed: verified"
HOSTILE = (
    f"Nörd\n{FORGED}",
    "\x1b[31mred\u202e\x9b2J\u2066\u200b:skull:",
    "| `x` | <b>[a](http://b.c)\r\u2028" + "S" * 10_000,
)
TEXT = small_run.CONFIG.replace('compare_with = ["afl", "erm"]', "html = false").replace(
    'shifted = ["South"]\ndrift = { scale = 1.2, noise = 0.2 }\n', ""
)
CLASSES = {"yes": "=cmd()", "no": "-ñ"}


def hostile_table() -> str:
    text = small_run.table(clinics=HOSTILE)
    for before, after in CLASSES.items():
        text = text.replace(f",{before}\n", f",{after}\n")
    return text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run whose clients and classes have hostile names, with its report."""
    folder = tmp_path_factory.mktemp("hostile")
    text = TEXT.replace("html = false", 'compare_with = ["erm"]')
    return small_run.small_run(folder, draw=True, data=hostile_table(), text=text)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with a configuration and a table of hostile names."""
    small_run.write_config(tmp_path, TEXT, hostile_table())
    return tmp_path


def started(folder: Path, *arguments: object, shell: str = "", **more: str) -> subprocess.Popen:
    """A command in a process of its own; ``shell`` redirects its streams, and ``more`` is in its
    environment.
    """
    command = [sys.executable, "-m", "bonafed.cli", *map(str, arguments)]
    if shell:
        command = ["bash", "-c", f'exec "$@" {shell}', "bonafed", *command]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )


def read_until(process: subprocess.Popen, words: bytes) -> bytes:
    assert process.stdout is not None
    said = b""
    while words not in said:
        more = os.read(process.stdout.fileno(), 4096)
        assert more, said
        said += more
    return said


def is_plain(text: str) -> bool:
    """Whether a terminal prints every sign of every line as it is."""
    return all(c == "\n" or c.isprintable() for c in text)


def folders(out: Path) -> list[Path]:
    return sorted(out.iterdir())


# ------------------------------------------------------------------------- processes of their own


def test_any_encoding_a_gone_reader_and_sigterm_lose_nothing(hostile: Path) -> None:
    ascii_alone = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    with started(hostile, "run", "clinics.toml", "--verbose", **ascii_alone) as first:
        said = read_until(first, b"round 1:")
        first.send_signal(signal.SIGTERM)
        _, told = first.communicate(timeout=900)
    assert said.isascii()
    assert b"N?rd" in said
    assert first.returncode == 143, told
    assert b"interrupted; what is finished is kept; go on with: bonafed run --resume" in told
    (partial,) = folders(hostile / "runs")
    with started(hostile, "run", "--resume", partial, PYTHONIOENCODING="latin-1") as second:
        assert second.stdout is not None
        assert second.stderr is not None
        second.stdout.close()  # nobody ever reads
        told = second.stderr.read()
        assert second.wait() == 0
    lost = b"bonafed: standard output is lost (Broken pipe): nothing more is shown"
    assert told == lost + b", and the run goes on\n"
    (done,) = folders(hostile / "runs")
    with started(hostile, "verify", done, PYTHONIOENCODING="cp1252") as third:
        said, told = third.communicate(timeout=900)
    assert (third.returncode, told) == (0, b"")
    assert said.decode("cp1252").splitlines()[-1] == "verified"


@pytest.mark.parametrize("shell", ["<&- >&- 2>&-", ">/dev/full"])
def test_a_run_without_streams_or_on_a_full_disk_is_finished(hostile: Path, shell: str) -> None:
    process = started(hostile, "run", "clinics.toml", shell=shell)
    _, told = process.communicate(timeout=900)
    assert process.returncode == 0
    lost = "bonafed: standard output is lost (No space left on device): nothing more is shown, and"
    assert told.decode() == (f"{lost} the run goes on\n" if "full" in shell else "")
    (done,) = folders(hostile / "runs")
    read_run(done)


def test_ctrl_c_before_the_folder_exists_says_that_nothing_was_kept(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "slow.toml")
    process = started(tmp_path, "run", "slow.toml")
    with open(tmp_path / "slow.toml", "w"):  # opens when the command reads it
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=900)
    assert told == b"bonafed: interrupted; nothing was kept\n"
    assert process.returncode == 130
    assert not (tmp_path / "runs").exists()


# --------------------------------------------------------------------- streams, in this process


@contextlib.contextmanager
def stdout(file: int, encoding: str = "utf-8") -> Iterator[None]:
    """Standard output is an open file of the system."""
    with open(file, "w", encoding=encoding) as opened, contextlib.redirect_stdout(opened):
        yield


def unread() -> int:
    """The end of a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full() -> int:
    return os.open("/dev/full", os.O_WRONLY)


DOCUMENTS = (
    ("predict", "RUN", "TABLE"),
    ("report", "RUN", "--format", "md"),
    ("report", "RUN", "--format", "json"),
    ("compare", "RUN", "RUN"),
    ("compare", "RUN", "RUN", "--format", "md"),
    ("data",),
)


@pytest.mark.parametrize("words", DOCUMENTS, ids=" ".join)
def test_a_document_that_is_not_read_or_does_not_fit_is_told_by_the_status(
    bonafed: Call, run: Run, capsys: Capture, words: tuple[str, ...]
) -> None:
    names = {"RUN": str(run.path), "TABLE": str(run.path.parent.parent / "clinics.csv")}
    arguments = [names.get(word, word) for word in words]
    with stdout(unread()):
        assert bonafed(*arguments) == 141
    assert capsys.readouterr().err == ""
    with stdout(full()):
        assert bonafed(*arguments) == 2
    told = capsys.readouterr().err
    assert told == "bonafed: standard output is lost (No space left on device)\n"


def test_verify_keeps_its_status_where_nothing_is_shown(
    bonafed: Call, run: Run, capsys: Capture, tmp_path: Path
) -> None:
    with stdout(unread()):
        assert bonafed("verify", run.path, "--without-data") == 0
    with stdout(full()):
        assert bonafed("verify", tmp_path) == 2
    assert "not a complete run" in capsys.readouterr().err


def test_a_private_run_that_nobody_reads_keeps_the_model_that_was_paid_for(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    text = small_run.PRIVATE.replace('compare_with = ["erm"]', "html = false")
    small_run.write_config(tmp_path, text)
    with stdout(unread()):
        assert bonafed("run", "clinics.toml") == 0
    assert "nothing more is shown, and the run goes on" in capsys.readouterr().err
    (done,) = folders(tmp_path / "runs")
    assert len(read_run(done).w)


@pytest.mark.parametrize(
    ("columns", "term"), [(1, "xterm"), (10, "xterm"), (80, "dumb"), (80, ""), (80, "xterm")]
)
def test_terminals_narrow_plain_and_absent(
    bonafed: Call, hostile: Path, monkeypatch: pytest.MonkeyPatch, columns: int, term: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", term)
    ours, theirs = pty.openpty()
    said = bytearray()
    reader = threading.Thread(target=drain, args=(ours, said))
    reader.start()
    with stdout(theirs):
        assert bonafed("run", "clinics.toml", "--quick") == 0
    reader.join(10)
    os.close(ours)
    text = said.decode().replace("\r\n", "\n")
    assert ("\x1b[?25l" in text) is (columns == 80 and term == "xterm")  # redraws
    assert ("\x1b" in text) is (term == "xterm")
    assert "\x1b[31m" not in text
    assert FORGED not in [line.strip() for line in text.split("\n")]
    assert max(map(len, text.split("\n"))) < 500


def drain(file: int, into: bytearray) -> None:
    """Read a terminal until its other end is closed."""
    with contextlib.suppress(OSError):
        while more := os.read(file, 65536):
            into += more


def test_progress_that_fails_is_switched_off_with_one_line(
    bonafed: Call, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run.write_config(tmp_path, TEXT)

    def fail(*arguments: object) -> tuple[str, ...]:
        raise ZeroDivisionError("no\nscreen")

    monkeypatch.setattr(bonafed_terminal, "cells", fail)
    assert bonafed("run", "clinics.toml", "--quick") == 0
    told = capsys.readouterr().err
    assert told == (
        "bonafed: progress cannot be shown (ZeroDivisionError: no screen); the run goes on\n"
    )
    assert len(folders(tmp_path / "runs")) == 1


def test_what_goes_on_for_long_is_said_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said, third = list[str](), threading.Event()

    def note(text: str) -> None:
        said.append(text)
        if len(said) > 2:
            third.set()

    monkeypatch.setattr(output, "note", note)
    with output.going_on("reading", every=1e-3):
        assert third.wait(60)
    n = len(said)
    assert all(re.fullmatch(r"reading: \d+ s so far", text) for text in said)
    with output.going_on("reading"):
        pass
    assert len(said) == n  # of what is soon done nothing is said, nor after it


def test_warnings_of_others_are_not_shown_and_ours_are_lines(capsys: Capture) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with guarded():
            warnings.warn("\x1b[31mno privacy\n", NoPrivacyWarning, stacklevel=1)
            warnings.warn("old", DeprecationWarning, stacklevel=1)
            np.float64(1e308) * np.array([10.0])
    assert capsys.readouterr().err == "bonafed: warning: \ufffd[31mno privacy \n"


# ---------------------------------------------------------------------------------------- names


def test_hostile_names_never_break_a_line(bonafed: Call, run: Run, capsys: Capture) -> None:
    table = run.path.parent.parent / "clinics.csv"
    for arguments, status in (
        (("verify", run.path), 0),
        (("compare", run.path, run.path), 0),
        (("report", run.path, "--client", HOSTILE[0]), 0),
        (("report", run.path, "--client", "x" * 5000), 2),
        (("report", f"a\n{FORGED}\x1b[2J"), 2),
        (("predict", run.path, table, "--unknown", f"a\n{FORGED}"), 2),
        (("predict", run.path, table, "--out", f"a\n{FORGED}"), 0),
        (("report", run.path, "--format", "md", "--out", f"a\n{FORGED}\n"), 0),
        (("init", table, "--out", f"a\n{FORGED}\n.toml"), 0),
        (("run", f"a\n{FORGED}\u2028.toml"), 2),
        ((f"a\n{FORGED}\u2066",), 2),
    ):
        capsys.readouterr()
        assert bonafed(*arguments) == status, arguments
        text = "\n".join(capsys.readouterr())
        assert is_plain(text)
        lines = [line.removeprefix("bonafed: ").strip() for line in text.split("\n")]
        assert lines.count("verified") == (arguments[0] == "verify"), text
        assert max(map(len, lines)) < 2_500


def test_hostile_keys_of_a_configuration_forge_no_line(
    bonafed: Call, tmp_path: Path, capsys: Capture
) -> None:
    keys = '"a\\nverified" = 1\n"b\\u001b\\u202e" = 2\n[data]\nname = 3\n'
    (tmp_path / "q.toml").write_text(keys)
    assert bonafed("run", "q.toml") == 2
    told = capsys.readouterr().err
    assert is_plain(told)
    assert all(line.startswith("bonafed: q.toml, ") for line in told.splitlines())


def test_reports_escape_names_and_json_has_them_whole(run: Run) -> None:
    text = markdown(run)
    assert is_plain(text)
    assert "<b>" not in text.replace("\\<b\\>", "")
    assert not re.search(r"(?<!\\)\]\(", text)
    assert "http://" not in text
    rows = [line for line in text.split("\n") if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in rows if "Nörd" in line} <= {
        line.count("|") for line in rows if line.startswith("| :--")
    }
    for page in render(run).values():
        assert is_plain(page)
        assert "<b>[a]" not in page
    whole = as_json(run)
    assert is_plain(whole)
    assert [row["client"] for row in json.loads(whole)["clients"]] == [*map(plain, HOSTILE)]


@pytest.mark.parametrize(
    ("text", "escape"),
    [
        ("# a", "\\# a"),
        ("1. a", "1\\. a"),
        ("- a", "\\- a"),
        ("-1.5", "-1.5"),
        ("a|`b`", "a\\|\\`b\\`"),
        ("&#x202e;", "\\&\\#x202e;".replace("\\#", "#")),
        ("https://a.b", "https\\://a.b"),
        ("www.a.b", "www\\.a.b"),
        ("$x$", "\\$x\\$"),
        ("a\n\nb", "a b"),
    ],
)
def test_markdown_has_no_markup_of_names(text: str, escape: str) -> None:
    assert escaped(text) == escape


def test_every_sign_that_is_no_letter_of_a_line_is_replaced() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    for sign in every:
        (kept,) = printable(sign)
        assert kept == sign or kept in " \ufffd"
        assert unicodedata.category(kept) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    assert printable("Zoë–東京 العربية") == "Zoë–東京 العربية"


def test_long_names_lose_their_middle() -> None:
    assert short("Saint-Elizabeth-of-Hungary", 11) == "Saint…ngary"
    assert short("North", 5) == "North"
    assert len(sentence("x" * 10_000)) == 200
    assert len(sentence(", ".join(f"client {k}" for k in range(1_000)))) == 2_000
    assert len(sentence("no client " + "y " * 5_000)) <= 2_000


def test_long_names_are_short_in_tables_and_whole_in_json(
    bonafed: Call, run: Run, capsys: Capture
) -> None:
    assert bonafed("report", run.path, "--format", "md") == 0
    for line in capsys.readouterr().out.split("\n"):
        if line.startswith("| "):
            assert "S" * NAME not in line
    assert bonafed("report", run.path, "--format", "json") == 0
    assert "S" * 10_000 in capsys.readouterr().out


def test_json_is_exact_and_predictions_are_whole_in_every_encoding(
    bonafed: Call, run: Run, tmp_path: Path
) -> None:
    table = run.path.parent.parent / "clinics.csv"
    for encoding in ("ascii", "latin-1", "cp1252"):
        file = os.open(tmp_path / "said", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        with stdout(file, encoding):
            assert bonafed("report", run.path, "--format", "json") == 0
        result = json.loads((tmp_path / "said").read_text(encoding))
        assert [row["client"] for row in result["clients"]] == [*map(plain, HOSTILE)]
        file = os.open(tmp_path / "said", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        with stdout(file, encoding):
            assert bonafed("predict", run.path, table) == 0
        rows = list(csv.DictReader(io.StringIO((tmp_path / "said").read_text(encoding))))
        odd = "'-\\xf1" if encoding == "ascii" else "'-ñ"
        assert {row["prediction"] for row in rows} == {"'=cmd()", odd}


# -------------------------------------------------------------------------------------- documents


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-cmd", "'-cmd"),
        ("+cmd", "'+cmd"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("＝1", "'＝1"),
        ("－1", "'－1"),
        ("＋1", "'＋1"),
        ("＠a", "'＠a"),
        ("'=1", "''=1"),
        ("-1.5", "-1.5"),
        ("+2e-3", "+2e-3"),
        ("-1_0", "'-1_0"),
        ("-1-1", "'-1-1"),
        ("yes", "yes"),
        ("'yes", "'yes"),
        ("", ""),
        (-0.5, -0.5),
        (True, True),
    ],
)
def test_cells_that_spreadsheets_run_have_an_apostrophe_and_numbers_do_not(
    cell: object, written: object
) -> None:
    assert harmless(cell) == written
    if isinstance(cell, str) and isinstance(written, str) and written.startswith("'"):
        back = written[1:] if written.lstrip("'")[:1] in (*"=+-@\t\r＝＋－＠",) else written
        assert back == cell


def test_predictions_in_a_file_are_utf_8_and_harmless(
    bonafed: Call, run: Run, tmp_path: Path
) -> None:
    table = run.path.parent.parent / "clinics.csv"
    assert bonafed("predict", run.path, table, "--out", "p.csv") == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text("utf-8"))))
    assert {row["prediction"] for row in rows} == {"'=cmd()", "'-ñ"}
    assert any(float(row["score"]) < 0 for row in rows)


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process gets longer than ``size`` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    # Python 3.11 keeps the compiled code of a module that it could write in part only, and every
    # later process fails on it
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = kept


def test_an_old_file_is_never_half_replaced(tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("old")
    old.chmod(0o640)
    with files_up_to(1000):
        with pytest.raises(OSError, match=r"old\.csv' could not be written: .*; the old file st"):
            deliver("x" * 100_000, old)
        with pytest.raises(OSError, match=r"new\.csv' could not be written: File too large$"):
            deliver("x" * 100_000, tmp_path / "new.csv")
    with pytest.raises(OSError, match=r"/dev/full' could not be written: the disk is full"):
        deliver("x", Path("/dev/full"))
    assert [path.name for path in folders(tmp_path)] == ["old.csv"]
    assert old.read_text() == "old"
    deliver("new", old)
    assert old.read_text() == "new"
    assert old.stat().st_mode & 0o777 == 0o640


def test_a_disk_that_is_full_at_the_report_is_named_and_what_is_finished_is_kept(
    bonafed: Call, run: Run, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``run`` has compiled what a run calls: no compiled code is written to this disk."""
    small_run.write_config(tmp_path, TEXT.replace("html = false", ""))
    monkeypatch.setattr("bonafed.runs.work.ROOM", 1_000)
    monkeypatch.setattr("bonafed.report.pages.draw", draw)  # figures make the report long
    with files_up_to(60_000):
        assert bonafed("run", "clinics.toml") == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "what is finished is kept; go on with: bonafed run --resume" in first
    assert "File too large" in second
    assert "report.html" in second
    assert bonafed("run", *first.split("bonafed run ")[1].split()) == 0
    (done,) = folders(tmp_path / "runs")
    assert (done / "report.html").is_file()


def test_a_link_that_is_named_is_followed_and_stays_a_link(
    bonafed: Call, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "r.md").write_text("old")
    (tmp_path / "r.md").symlink_to("far/r.md")
    (tmp_path / "q.toml").symlink_to("far/q.toml")  # which is not there yet
    assert bonafed("report", run.path, "--format", "md", "--out", "r.md", "--force") == 0
    assert bonafed("init", "--dataset", "hospitals", "--out", "q.toml") == 0
    assert (tmp_path / "r.md").is_symlink()
    assert (tmp_path / "far" / "r.md").read_text().startswith("# ")
    assert (tmp_path / "far" / "q.toml").read_text().count("[data]") == 1
    assert len(folders(tmp_path / "far")) == 2


# ---------------------------------------------------------------------------------------- signals


def strike(number: int) -> None:
    """Send this process a signal; its handler runs at once."""
    os.kill(os.getpid(), number)
    time.sleep(5)


def test_all_signals_that_end_a_process_interrupt_but_those_it_ignores() -> None:
    before = {number: signal.getsignal(number) for number in ENDING}
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with listening():
            assert [number for number in ENDING if interrupts(number)] == [
                signal.SIGINT,
                signal.SIGTERM,
            ]
            with pytest.raises(KeyboardInterrupt):
                strike(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, kept)
    assert before == {number: signal.getsignal(number) for number in ENDING}


def test_a_signal_in_a_callback_that_can_raise_nothing_is_not_lost(capsys: Capture) -> None:
    class Thing:
        pass

    things = [Thing()]
    callback = weakref.ref(things[0], lambda _: os.kill(os.getpid(), signal.SIGHUP))

    def end() -> None:
        things.clear()
        time.sleep(5)

    with listening(), pytest.raises(KeyboardInterrupt):
        end()
    assert callback() is None
    assert capsys.readouterr().err == ""


def test_a_second_signal_does_not_interrupt_the_answer_to_the_first(
    bonafed: Call, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run.write_config(tmp_path, TEXT)
    before = Work.advice.fget

    def advice(work: Work) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        return before(work)

    with monkeypatch.context() as patch:
        patch.setattr("bonafed.runs.pipeline.evaluate", lambda *_: strike(signal.SIGINT))
        patch.setattr(Work, "advice", property(advice))
        assert bonafed("run", "clinics.toml", "--quick") == 130
    assert "go on with: bonafed run --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "place", "kept"),
    [
        (signal.SIGTERM, "bonafed.runs.pipeline.prepare", "nothing was kept"),
        (signal.SIGINT, "bonafed.runs.pipeline.evaluate", "go on with: bonafed run --resume"),
        (signal.SIGHUP, "bonafed.report.pages.figures", "go on with: bonafed run --resume"),
        (signal.SIGTERM, "bonafed.report.terminal._print", "the run is finished: runs/"),
    ],
)
def test_a_signal_at_any_stage_says_what_was_kept(
    bonafed: Call,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    place: str,
    kept: str,
) -> None:
    small_run.write_config(tmp_path, TEXT.replace("html = false", ""))

    with monkeypatch.context() as patch:
        patch.setattr(place, lambda *_, **__: strike(number))
        assert bonafed("run", "clinics.toml", "--quick") == 128 + number
    told = capsys.readouterr().err
    assert told.startswith("bonafed: interrupted; ")
    assert kept in told
    if "resume" in kept:
        assert bonafed("run", *told.split("bonafed run ")[1].split()) == 0
    assert not [*tmp_path.glob("runs/*" if "nothing" in kept else "runs/*.partial")]
