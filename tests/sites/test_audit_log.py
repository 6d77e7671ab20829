"""The audit log: what is written is read again, and what is changed is found and named."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.algorithms.federated.bundle.bundle import Evaluate, Evaluated
from bonafed.rounds import Outcome, Stop
from bonafed.sites.audit import (
    AuditError,
    AuditLog,
    Content,
    Entry,
    Fault,
    Head,
    contents,
    head_path,
    lines_of,
    read_log,
)
from bonafed.sites.policy import Refusal
from bonafed.storage import Lock

LINES = 7  # of the log that is changed


def written(folder: Path, lines: int = LINES) -> AuditLog:
    """A log of so many lines, the first of which names the site."""
    log = AuditLog.open(folder / "audit.db", "north")
    for k in range(lines - 1):
        way = ("in", "out")[k % 2]
        fields = {"w": Content(31, 0, "all")} if way == "in" else {"base": Content(1, 0, "each")}
        log.write(way, "alliance", "Evaluate", experiment="e", seq=k, size=400 + k, fields=fields)
    return log


def rows_of(path: Path) -> list[bytes]:
    """The lines of a log as they stand in it."""
    return [line for line in lines_of(path)[0] if isinstance(line, bytes)]


with TemporaryDirectory() as _folder:
    _log = written(Path(_folder))
    _log.close()
    ROWS, FILE, HEAD = rows_of(_log.path), _log.path.read_bytes(), head_path(_log.path).read_bytes()
DATA = b"".join(row + b"\n" for row in ROWS)  # an exported log
SOUND = [1, 2, 3, 4, 5, 6, 7]


def faults_of(data: bytes) -> tuple[list[Entry], list[Fault]]:
    """What is read of an exported log with these bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        path.write_bytes(data)
        return read_log(path)


def stored(folder: Path, rows: Sequence[object], head: bytes | None = HEAD) -> Path:
    """A log with these lines and this head record."""
    path = folder / "audit.db"
    for file in (path, head_path(path)):
        file.unlink(missing_ok=True)
    path.write_bytes(FILE)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA synchronous = OFF")
        file.execute("DELETE FROM lines")
        file.executemany("INSERT INTO lines VALUES (?, ?)", enumerate(rows, 1))
    if head is not None:
        head_path(path).write_bytes(head)
    return path


def faults_in(rows: Sequence[object], head: bytes | None = HEAD) -> list[Fault]:
    """What is wrong with a log with these lines and this head record."""
    with TemporaryDirectory() as folder:
        return read_log(stored(Path(folder), rows, head))[1]


def head_of(row: bytes) -> bytes:
    """The head record of a log that ends with a line."""
    value = json.loads(row)
    return f'{{"number":{value["number"]:>15},"hash":"{value["hash"]}"}}\n'.encode()


def line_of(byte: int) -> int:
    """The line, counted from 1, that a byte of the exported log belongs to."""
    return DATA.count(b"\n", 0, byte) + 1


# ------------------------------------------------------------------------------- what is written


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.db", "north")
    refusal = Refusal("minimum_rows", "minimum_rows: 7 rows, 10 are needed.", "minimum_rows: few.")
    entries = [
        log.write("in", "alliance", "Evaluate", experiment="e1", seq=0, size=12),
        log.write("in", "müller\n", "", size=3, refusals=[refusal]),
        log.write("out", "alliance", "Evaluated", fields={"g": Content(5, 1, "sum")}, masked=True),
        log.note("policy 0a0a"),
    ]
    again, faults = read_log(log.path)
    assert faults == []
    assert again[1:] == entries
    assert (again[0].event, again[0].text) == ("begun", "north")
    assert [entry.number for entry in again] == [1, 2, 3, 4, 5]
    assert all(entry.at.endswith("Z") and len(entry.at) == 24 for entry in again)
    assert again[2].refused == (("minimum_rows", refusal.text),)
    assert again[2].who == "müller\n"


def test_the_log_and_its_head_record_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = written(tmp_path)
    finally:
        os.umask(before)
    files = [*tmp_path.iterdir()]
    assert {log.path, head_path(log.path)} < {*files}
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600


def test_every_line_has_the_hash_of_the_line_before() -> None:
    rows = [json.loads(row) for row in ROWS]
    assert [row["before"] for row in rows] == ["", *(row["hash"] for row in rows[:-1])]
    assert len({row["hash"] for row in rows}) == LINES
    assert head_of(ROWS[-1]) == HEAD


def test_the_head_is_that_of_the_last_line(tmp_path: Path) -> None:
    log = written(tmp_path)
    assert log.head == Head(LINES, json.loads(rows_of(log.path)[-1])["hash"])
    log.note("more")
    assert log.head.number == LINES + 1


def test_a_log_goes_on_where_another_process_has_left_it(tmp_path: Path) -> None:
    log = written(tmp_path)
    other = AuditLog.open(log.path, "north")
    other.note("other")
    log.note("this")
    entries, faults = read_log(log.path)
    assert ([entry.text for entry in entries[-2:]], faults) == (["other", "this"], [])


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12))
def test_lines_of_two_writers_are_one_chain_whether_they_are_counted_at_once(
    writes: list[tuple[int, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.db"
        logs = [AuditLog.open(path, "north"), AuditLog.open(path, "north")]
        for k, (who, sync) in enumerate(writes):
            logs[who].write("in", f"writer {who}", "Evaluate", seq=k, sync=sync)
        entries, faults = read_log(path)
        assert faults == []
        assert [entry.seq for entry in entries[1:]] == [*range(len(writes))]


def test_a_log_of_another_site_is_refused(tmp_path: Path) -> None:
    log = written(tmp_path)
    with pytest.raises(AuditError, match="that of site 'north', and this site is 'south'"):
        AuditLog.open(log.path, "south")


def test_what_others_wrote_cannot_fill_the_log(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.db", "north")
    odd = "x" * 10**6
    refusals = [Refusal(odd, odd, odd)]
    log.write("in", odd, odd, experiment=odd, seq=-5, fields={odd: Content(1, 0, odd[:9])})
    log.write("in", "\ud800\x00", "\u202e", seq=10**5000, refusals=refusals)
    assert sum(map(len, rows_of(log.path))) < 10_000
    entries, faults = read_log(log.path)
    assert faults == []
    assert [entry.seq for entry in entries[1:]] == [None, None]
    assert entries[2].who == "\ud800\x00"
    with pytest.raises(ValueError, match="'in' or 'out'"):
        log.write("up", "a", "b")


def test_fields_are_counted_with_who_sees_them() -> None:
    one = np.zeros(1)
    cuts = np.zeros((1, 2))
    answer = Evaluated(cuts, one, np.zeros((1, 2, 31)), cuts, np.zeros((1, 31, 31)))
    assert contents(answer) == {
        "base": (2, 0, "each"),
        "level": (1, 0, "each"),
        "gradient": (62, 0, "each"),
        "gradient_level": (2, 0, "each"),
        "curvature": (961, 0, "sum"),
    }
    assert contents(Evaluate(np.zeros(4), np.ones(3))) == {
        "w": (4, 0, "all"),
        "parts": (3, 0, "all"),
        "bend": (0, 1, "all"),
    }
    assert contents(Outcome(Stop.OPTIMAL, "text")) == {"stop": (0, 1, "all"), "text": (0, 1, "all")}
    value = {"a": (1.0, True, None, "b"), "c": np.zeros((2, 3))}
    nested = Evaluate(value, np.ones(3))  # type: ignore[arg-type]
    assert contents(nested)["w"] == (8, 3, "all")


def test_several_threads_write_one_after_the_other(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.db", "north")
    threads = [threading.Thread(target=lambda: [log.note("x") for _ in range(10)]) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries, faults = read_log(log.path)
    assert (len(entries), faults) == (31, [])


def test_several_processes_write_one_after_the_other(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from bonafed.sites.audit import AuditLog
log = AuditLog.open(Path({str(tmp_path)!r}) / "audit.db", "north")
for k in range(20):
    log.write("in", "alliance", "Evaluate", seq=k, sync=k % 2 == 0)
"""
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(120) for process in processes] == [0, 0]
    entries, faults = read_log(tmp_path / "audit.db")
    assert (len(entries), faults) == (41, [])


def test_a_writer_that_never_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path)
    log.close()
    monkeypatch.setattr("bonafed.sites.audit.BUSY", 0.05)
    with closing(sqlite3.connect(log.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AuditError, match=r"database is locked.* no answer leaves this site"):
            log.note("x")
    assert log.note("x").number == LINES + 1


# ------------------------------------------------------------------------------- what is changed


def test_an_untouched_log_has_no_fault(tmp_path: Path) -> None:
    for read in (faults_of(DATA + HEAD), read_log(stored(tmp_path, ROWS))):
        assert ([entry.number for entry in read[0]], read[1]) == (SOUND, [])


@given(byte=st.integers(0, len(DATA) - 1), bit=st.integers(0, 7))
def test_a_byte_that_is_changed_is_found_and_its_line_is_named(byte: int, bit: int) -> None:
    data = bytearray(DATA + HEAD)
    data[byte] ^= 1 << bit
    _, faults = faults_of(bytes(data))
    assert faults
    assert faults[0].line == line_of(byte)


@given(byte=st.integers(0, len(DATA)), value=st.binary(min_size=1, max_size=5))
def test_bytes_that_are_inserted_are_found_and_their_line_is_named(byte: int, value: bytes) -> None:
    _, faults = faults_of(DATA[:byte] + value + DATA[byte:] + HEAD)
    assert faults
    # a line break beside another may be that of either line
    assert faults[0].line - line_of(byte) in ((0, 1) if value[:1] == b"\n" else (0,))


@given(start=st.integers(0, len(DATA) - 1), length=st.integers(1, 300))
def test_bytes_that_are_removed_are_found_and_their_line_is_named(start: int, length: int) -> None:
    _, faults = faults_of(DATA[:start] + (DATA + HEAD)[start + length :])
    assert faults
    assert faults[0].line - line_of(start) in ((0, 1) if DATA[start] == 10 else (0,))


@given(byte=st.integers(0, len(HEAD) - 1), bit=st.integers(0, 7))
def test_a_byte_of_the_head_record_that_is_changed_is_found(byte: int, bit: int) -> None:
    head = bytearray(HEAD)
    head[byte] ^= 1 << bit
    assert faults_in(ROWS, bytes(head))
    assert byte == len(HEAD) - 1 or faults_of(DATA + bytes(head))[1]


def read_or_told(path: Path) -> list[Entry] | None:
    """The entries of a log; None where it is told that it is not as it was written."""
    try:
        entries, faults = read_log(path)
    except AuditError:
        return None
    return None if faults else entries


@settings(max_examples=60)
@given(byte=st.integers(0, len(FILE) - 1), bit=st.integers(0, 7))
def test_a_byte_of_the_file_that_is_changed_is_found_or_is_of_no_line(byte: int, bit: int) -> None:
    data = bytearray(FILE)
    data[byte] ^= 1 << bit
    with TemporaryDirectory() as folder:
        path = stored(Path(folder), ROWS)
        before = read_log(path)[0]
        path.write_bytes(data)
        assert read_or_told(path) in (None, before)
        try:  # and the writer goes on, or says that it does not
            with closing(AuditLog.open(path, "north")) as log:
                log.note("and on")
        except AuditError:
            return
        assert read_or_told(path) is None or len(read_log(path)[0]) == LINES + 1


@settings(max_examples=30)
@given(size=st.integers(0, len(FILE) - 1))
def test_a_file_that_was_cut_off_is_told(size: int) -> None:
    with TemporaryDirectory() as folder:
        path = stored(Path(folder), ROWS)
        path.write_bytes(FILE[:size])
        assert read_or_told(path) is None
        with pytest.raises(AuditError):
            AuditLog.open(path, "north")
        assert path.read_bytes() == FILE[:size]


@given(row=st.integers(0, LINES - 1))
def test_a_line_that_is_removed_is_missed_where_it_stood(row: int) -> None:
    faults = faults_in(ROWS[:row] + ROWS[row + 1 :])
    assert faults[0].line == row + 1
    text = "the end was cut off: 7 lines were written" if row == LINES - 1 else "1 line before it"
    assert any(text in fault.text for fault in faults if fault.line == row + 1)


@given(keep=st.integers(0, LINES - 1))
def test_an_end_that_is_cut_off_is_found(keep: int) -> None:
    assert faults_in(ROWS[:keep]) == [(keep + 1, "the end was cut off: 7 lines were written")]


@given(row=st.integers(0, LINES - 1), place=st.integers(0, LINES))
def test_a_line_that_is_repeated_is_found_where_it_stands(row: int, place: int) -> None:
    faults = faults_in([*ROWS[:place], ROWS[row], *ROWS[place:]])
    # before itself it is where it belongs, and then the second one is not
    assert faults[0].line == (place + 2 if place == row else place + 1)
    assert ("inserted or moved" in faults[0].text) == (place >= row)


@given(one=st.integers(0, LINES - 1), other=st.integers(0, LINES - 1))
def test_lines_that_are_swapped_are_found(one: int, other: int) -> None:
    rows = [*ROWS]
    rows[one], rows[other] = rows[other], rows[one]
    faults = faults_in(rows)
    assert bool(faults) == (one != other)
    if faults:
        assert faults[0].line == min(one, other) + 1


@pytest.mark.parametrize("value", [7, 0.5, "text", b""])
def test_a_row_that_holds_no_line_is_found(value: object) -> None:
    assert faults_in([*ROWS[:3], value, *ROWS[4:]])[0].line == 4


def replaced(row: int, change: Callable[[dict], object]) -> list[bytes]:
    """The log with one line changed, and the hash of that line made anew."""
    value = json.loads(ROWS[row])
    change(value)
    del value["hash"]
    body = json.dumps(value, separators=(",", ":")).encode()[:-1]
    line = body + b',"hash":"' + hashlib.sha256(body).hexdigest().encode() + b'"}'
    return [*ROWS[:row], line, *ROWS[row + 1 :]]


@given(row=st.integers(1, LINES - 1))
def test_a_line_that_is_replaced_with_its_hash_is_found_beside_it(row: int) -> None:
    faults = faults_in(replaced(row, lambda value: value.update(size=1)))
    assert [fault.line for fault in faults] == [min(row + 2, LINES)]
    assert "replaced" in faults[0].text or "head record" in faults[0].text


ODD = {
    "no number": lambda value: value.pop("number"),
    "a number that is text": lambda value: value.update(number="2"),
    "a way": lambda value: value.update(way="up"),
    "an event": lambda value: value.update(event="x"),
    "negative bytes": lambda value: value.update(size=-1),
    "fields": lambda value: value.update(fields=3),
    "a field": lambda value: value.update(fields={"w": [1, 2]}),
    "counts": lambda value: value.update(fields={"w": ["1", 0, "all"]}),
    "refusals": lambda value: value.update(refused=[["a"]]),
    "texts": lambda value: value.update(who=["a"]),
    "masked": lambda value: value.update(masked="no"),
    "before": lambda value: value.update(before=None),
    "another key": lambda value: value.update(other=1),
}


@pytest.mark.parametrize("case", ODD)
def test_a_line_of_another_form_is_found_though_its_hash_is_right(case: str) -> None:
    assert faults_in(replaced(3, ODD[case]))[0].line == 4


def test_a_first_line_that_does_not_name_the_format_is_found() -> None:
    faults = faults_in(replaced(0, lambda value: value.update(kind="another log 1")))
    assert faults[0] == (1, "it does not name the site and the format, as the first line does")


def test_a_log_or_a_head_record_that_is_gone_is_told(tmp_path: Path) -> None:
    faults = faults_in(ROWS, None)
    assert [fault.line for fault in faults] == [LINES + 1]
    assert "head record is gone" in faults[0].text
    log = written(tmp_path)
    log.close()
    log.path.unlink()
    entries, faults = read_log(log.path)
    assert (entries, [fault.line for fault in faults][:1]) == ([], [1])
    head_path(log.path).unlink()
    with pytest.raises(FileNotFoundError):
        read_log(log.path)


@pytest.mark.parametrize("rows", [(), ("CREATE TABLE lines (other INTEGER)",)])
def test_a_file_that_is_no_log_is_told_and_is_left_as_it_is(
    tmp_path: Path, rows: tuple[str, ...]
) -> None:
    path = tmp_path / "audit.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for row in ("CREATE TABLE mine (number INTEGER)", *rows):
            file.execute(row)
    before = path.read_bytes()
    with pytest.raises(AuditError, match=r"cannot be read: no such (table|column)"):
        read_log(path)
    with pytest.raises(AuditError, match="no such"):
        AuditLog.open(path, "north")
    assert path.read_bytes() == before


def broken_writes(path: Path) -> str:
    """What a writer says of a log, which it leaves as it is."""
    before = rows_of(path)
    with closing(AuditLog(path, "north")) as log, pytest.raises(AuditError) as error:
        log.note("x")
    assert rows_of(path) == before
    assert "move all of them away and keep them" in str(error.value)
    return str(error.value)


def test_a_log_that_was_changed_at_its_end_is_not_gone_on_with(tmp_path: Path) -> None:
    for rows, record, needed in (
        (ROWS[:-1], HEAD, "line 7: the end was cut off"),
        ([], HEAD, "line 7: the end was cut off"),
        ([*ROWS[:-1], ROWS[-1][:-1]], HEAD, "line 7: it was changed"),
        (replaced(6, lambda value: value.update(size=1)), HEAD, "line 7: it is not the line"),
        (ROWS, None, "the head record is gone"),
        (ROWS, b"x" + HEAD, "the head record is damaged"),
        ([*ROWS[:5], ROWS[6]], head_of(ROWS[4]), "line 6: 1 line before it is missing"),
        ([*ROWS[:5], b"x", ROWS[6]], head_of(ROWS[4]), "line 6: it was changed"),
        ([b"x"], None, "line 1: it was changed"),
        ([], None, "the head record is gone"),
    ):
        assert needed in broken_writes(stored(tmp_path, rows, record))


def test_a_log_that_is_gone_does_not_begin_anew_by_itself(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.path.unlink()
    with pytest.raises(AuditError, match="No such file"):
        log.note("x")
    with pytest.raises(AuditError, match="No such file"):
        AuditLog.open(log.path, "north")
    assert not log.path.exists()
    log.close()
    head_path(log.path).unlink()
    with pytest.raises(AuditError, match="No such file"):  # while the lines of a crash are there
        AuditLog.open(log.path, "north")
    log.path.with_name("audit.db-wal").unlink()
    assert AuditLog.open(log.path, "north").head.number == 1


def test_a_log_that_was_put_back_is_gone_on_with(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.close()
    copy = shutil.copy(log.path, tmp_path / "copy")
    log.note("x")
    log.close()
    os.replace(copy, log.path)
    with pytest.raises(AuditError, match="line 8: the end was cut off"):
        log.note("y")


# ------------------------------------------------------------------------------------- crashes

WRITER = """
from pathlib import Path
from bonafed.sites.audit import AuditLog
log = AuditLog.open(Path({folder!r}) / "audit.db", "north")
for k in range(10**6):
    log.write("in", "alliance", "Evaluate", seq=k, sync=False)
    log.write("out", "alliance", "Evaluate", seq=k)
    print(k, flush=True)
"""


def test_what_was_said_to_be_written_outlives_kills(tmp_path: Path) -> None:
    least = 1
    for answers in (1, 7, 30):
        code = WRITER.format(folder=str(tmp_path))
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(answers):
            process.stdout.readline()
        process.kill()
        said = answers + len(process.communicate()[0].splitlines())
        least += 2 * said
        entries, faults = read_log(tmp_path / "audit.db")
        assert faults == []
        assert least <= len(entries) <= least + 2
        least = len(entries)


def left(log: AuditLog, folder: Path) -> Path:
    """The files of a log as a process leaves them that dies now."""
    for file in log.path.parent.glob("audit.db*"):
        shutil.copy(file, folder)
    return folder / log.path.name


@settings(max_examples=30)
@given(start=st.integers(0, 8_000), length=st.integers(1, 8_000))
def test_an_end_that_the_files_of_sqlite_have_lost_is_found(start: int, length: int) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        log = written(Path(one))
        path = left(log, Path(other))
        journal = path.with_name("audit.db-wal")
        data = journal.read_bytes()
        start %= len(data)
        journal.write_bytes(data[:start] + bytes(min(length, len(data) - start)))
        assert read_or_told(path) in (None, read_log(log.path)[0])


def test_a_question_that_a_crash_has_lost_with_the_power_is_no_fault(tmp_path: Path) -> None:
    log, folder = written(tmp_path), tmp_path / "left"
    folder.mkdir()
    path = left(log, folder)
    log.write("in", "alliance", "Evaluate", sync=False)
    shutil.copy(head_path(log.path), head_path(path))
    assert read_log(path)[1] == []
    assert AuditLog.open(path, "north").note("x").number == LINES + 1


def test_lines_that_the_head_record_does_not_count_yet_are_no_fault_and_are_kept(
    tmp_path: Path,
) -> None:
    log = written(tmp_path)
    for k in range(3):
        log.write("in", "alliance", "Evaluate", seq=k, sync=False)
    assert log.head.number == LINES
    assert read_log(log.path)[1] == []
    assert log.write("out", "alliance", "Evaluated").number == LINES + 4
    assert log.head.number == LINES + 4
    entries, faults = read_log(log.path)
    assert ([entry.seq for entry in entries[-4:]], faults) == ([0, 1, 2, None], [])


def test_a_crash_before_the_first_head_record_is_gone_on_from(tmp_path: Path) -> None:
    for head in (None, b""):
        path = stored(tmp_path, ROWS[:1], head)
        assert read_log(path)[1] == []
        with closing(AuditLog.open(path, "north")) as log:
            assert log.note("x").number == 2
        assert read_log(path)[1] == []


def test_a_line_is_on_the_disk_before_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, order, write = written(tmp_path), list[str](), Lock.write

    def counted(self: Lock, text: str, *, sync: bool = True) -> None:
        order.append("count")
        write(self, text, sync=sync)

    monkeypatch.setattr(Lock, "write", counted)
    assert log._file is not None
    log._file[0].set_trace_callback(lambda text: order.append(" ".join(text.split()[:4])))
    log.note("x")
    assert order[:2] == ["PRAGMA synchronous = FULL", "BEGIN IMMEDIATE"]
    assert order[-2:] == ["COMMIT", "count"]
    order.clear()
    log.write("in", "alliance", "Evaluate", sync=False)
    assert "count" not in order


def test_a_full_disk_leaves_a_log_that_goes_on(tmp_path: Path) -> None:
    log = written(tmp_path)
    assert log._file is not None
    log._file[0].execute("PRAGMA max_page_count = 1")
    with pytest.raises(AuditError, match=r"database or disk is full.* no answer leaves this site"):
        log.write("in", "a", "b", refusals=[Refusal("x", "x" * 2_000, "x")] * 9)
    log._file[0].execute("PRAGMA max_page_count = 1000000")
    assert log.note("kept").number == LINES + 1
    assert read_log(log.path)[1] == []


def test_the_last_note_that_begins_so_is_found(tmp_path: Path) -> None:
    log = written(tmp_path)
    for text in ("charge 1", "charge 2", "other", '"text":"charge 3'):
        log.note(text)
    log.write("in", "charge 4", "charge 5", fields={"text": Content(1, 0, "charge 6")})
    assert (log.last_note("charge "), log.last_note("none")) == ("charge 2", "")
