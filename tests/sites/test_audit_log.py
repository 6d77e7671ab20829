"""The audit log: what is written is read again, and what is changed is found and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.algorithms.federated.bundle.bundle import Evaluate
from bonafed.algorithms.federated.bundle.server import Evaluated
from bonafed.engines.run_record import Content, contents
from bonafed.rounds import Outcome, Stop
from bonafed.sites.audit import AuditError, AuditLog, Entry, Fault, Head, head_path, read_log
from bonafed.sites.policy import Refusal
from bonafed.storage import Lock

LINES = 7  # of the log that is changed


def written(folder: Path, lines: int = LINES) -> AuditLog:
    """A log of so many lines, the first of which names the site."""
    log = AuditLog.open(folder / "audit.jsonl", "north")
    for k in range(lines - 1):
        way = ("in", "out")[k % 2]
        fields = {"w": Content(31, 0, "all")} if way == "in" else {"base": Content(1, 0, "each")}
        log.write(way, "alliance", "Evaluate", experiment="e", seq=k, size=400 + k, fields=fields)
    return log


with TemporaryDirectory() as _folder:
    _log = written(Path(_folder))
    DATA, HEAD = _log.path.read_bytes(), head_path(_log.path).read_bytes()
ROWS = DATA.splitlines(keepends=True)
SOUND = [1, 2, 3, 4, 5, 6, 7]


def faults_of(data: bytes, head: bytes | None = HEAD) -> tuple[list[Entry], list[Fault]]:
    """What is read of a log with these bytes."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        path.write_bytes(data)
        if head is not None:
            head_path(path).write_bytes(head)
        return read_log(path)


def line_of(byte: int) -> int:
    """The line, counted from 1, that a byte of the log belongs to."""
    return DATA.count(b"\n", 0, byte) + 1


# ------------------------------------------------------------------------------- what is written


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    log = AuditLog.open(tmp_path / "audit.jsonl", "north")
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
    for path in (log.path, head_path(log.path)):
        assert path.stat().st_mode & 0o777 == 0o600


def test_every_line_has_the_hash_of_the_line_before() -> None:
    rows = [json.loads(row) for row in ROWS]
    assert [row["before"] for row in rows] == ["", *(row["hash"] for row in rows[:-1])]
    assert len({row["hash"] for row in rows}) == LINES
    number, hash_, size = HEAD.decode().split()
    assert (int(number), hash_, int(size)) == (LINES, rows[-1]["hash"], len(DATA))


def test_the_head_is_that_of_the_last_line(tmp_path: Path) -> None:
    log = written(tmp_path)
    last = json.loads(log.path.read_bytes().splitlines()[-1])
    assert log.head == Head(LINES, last["hash"], log.path.stat().st_size)
    log.note("more")
    assert log.head.number == LINES + 1


def test_a_log_goes_on_where_another_process_has_left_it(tmp_path: Path) -> None:
    log = written(tmp_path)
    other = AuditLog.open(log.path, "north")
    other.note("other")
    log.note("this")
    entries, faults = read_log(log.path)
    assert ([entry.text for entry in entries[-2:]], faults) == (["other", "this"], [])


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans()), max_size=12))
def test_lines_of_two_writers_are_one_chain_whether_they_are_counted_at_once(
    writes: list[tuple[int, bool]],
) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
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
    log = AuditLog.open(tmp_path / "audit.jsonl", "north")
    odd = "x" * 10**6
    refusals = [Refusal(odd, odd, odd)]
    log.write("in", odd, odd, experiment=odd, seq=-5, fields={odd: Content(1, 0, odd[:9])})
    log.write("in", "\ud800\x00", "\u202e", seq=10**5000, refusals=refusals)
    assert log.path.stat().st_size < 10_000
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
    log = AuditLog.open(tmp_path / "audit.jsonl", "north")
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
log = AuditLog.open(Path({str(tmp_path)!r}) / "audit.jsonl", "north")
for k in range(20):
    log.write("in", "alliance", "Evaluate", seq=k, sync=k % 2 == 0)
"""
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    entries, faults = read_log(tmp_path / "audit.jsonl")
    assert (len(entries), faults) == (41, [])


def test_a_writer_that_never_ends_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(tmp_path)
    other, alone = Lock(head_path(log.path)), Lock.alone
    monkeypatch.setattr(Lock, "alone", lambda self, busy: alone(self, busy, 0.05))
    assert other.take()
    with pytest.raises(TimeoutError, match=r"has been writing into the audit log for 0\.05 s"):
        log.note("x")
    other.free()
    assert log.note("x").number == LINES + 1


# ------------------------------------------------------------------------------- what is changed


def test_an_untouched_log_has_no_fault() -> None:
    entries, faults = faults_of(DATA)
    assert ([entry.number for entry in entries], faults) == (SOUND, [])


@given(byte=st.integers(0, len(DATA) - 1), bit=st.integers(0, 7))
def test_a_byte_that_is_changed_is_found_and_its_line_is_named(byte: int, bit: int) -> None:
    data = bytearray(DATA)
    data[byte] ^= 1 << bit
    _, faults = faults_of(bytes(data))
    assert faults
    assert faults[0].line == line_of(byte)
    assert not faults[0].crash


# A line break that is inserted beside another, or removed with what follows it, may be that of
# either line: then the second one is named.
@given(byte=st.integers(0, len(DATA)), value=st.binary(min_size=1, max_size=5))
def test_bytes_that_are_inserted_are_found_and_their_line_is_named(byte: int, value: bytes) -> None:
    _, faults = faults_of(DATA[:byte] + value + DATA[byte:])
    assert faults
    assert faults[0].line - line_of(byte) in ((0, 1) if value[:1] == b"\n" else (0,))
    assert byte == len(DATA) or not faults[0].crash


@given(start=st.integers(0, len(DATA) - 1), length=st.integers(1, 300))
def test_bytes_that_are_removed_are_found_and_their_line_is_named(start: int, length: int) -> None:
    _, faults = faults_of(DATA[:start] + DATA[start + length :])
    assert faults
    assert faults[0].line - line_of(start) in ((0, 1) if DATA[start] == 10 else (0,))
    assert not faults[0].crash


@given(byte=st.integers(0, len(HEAD) - 1), bit=st.integers(0, 7))
def test_a_byte_of_the_head_record_that_is_changed_is_found(byte: int, bit: int) -> None:
    head = bytearray(HEAD)
    head[byte] ^= 1 << bit
    entries, faults = faults_of(DATA, bytes(head))
    assert [fault for fault in faults if not fault.crash]
    assert [entry.number for entry in entries] == SOUND


@given(row=st.integers(0, LINES - 1))
def test_a_line_that_is_removed_is_missed_where_it_stood(row: int) -> None:
    _, faults = faults_of(b"".join(ROWS[:row] + ROWS[row + 1 :]))
    assert faults[0].line == row + 1
    text = "the end was cut off: 7 lines were written" if row == LINES - 1 else "1 line before it"
    assert any(text in fault.text for fault in faults if fault.line == row + 1)


@given(keep=st.integers(0, LINES - 1))
def test_an_end_that_is_cut_off_is_found(keep: int) -> None:
    _, faults = faults_of(b"".join(ROWS[:keep]))
    assert faults == [(keep + 1, "the end was cut off: 7 lines were written", False)]


@given(row=st.integers(0, LINES - 1), place=st.integers(0, LINES))
def test_a_line_that_is_repeated_is_found_where_it_stands(row: int, place: int) -> None:
    rows = [*ROWS[:place], ROWS[row], *ROWS[place:]]
    _, faults = faults_of(b"".join(rows))
    # before itself it is where it belongs, and then the second one is not
    assert faults[0].line == (place + 2 if place == row else place + 1)
    assert not faults[0].crash
    assert ("inserted or moved" in faults[0].text) == (place >= row)


@given(one=st.integers(0, LINES - 1), other=st.integers(0, LINES - 1))
def test_lines_that_are_swapped_are_found(one: int, other: int) -> None:
    rows = [*ROWS]
    rows[one], rows[other] = rows[other], rows[one]
    _, faults = faults_of(b"".join(rows))
    assert bool(faults) == (one != other)
    if faults:
        assert faults[0].line == min(one, other) + 1


def replaced(row: int, change: Callable[[dict], object]) -> bytes:
    """The log with one line changed, and the hash of that line made anew."""
    import hashlib

    value = json.loads(ROWS[row])
    change(value)
    del value["hash"]
    body = json.dumps(value, separators=(",", ":")).encode()[:-1]
    line = body + b',"hash":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'
    return b"".join([*ROWS[:row], line, *ROWS[row + 1 :]])


@given(row=st.integers(1, LINES - 1))
def test_a_line_that_is_replaced_with_its_hash_is_found_beside_it(row: int) -> None:
    _, faults = faults_of(replaced(row, lambda value: value.update(bytes=1)))
    assert [fault.line for fault in faults] == [min(row + 2, LINES)]
    assert "replaced" in faults[0].text or "head record" in faults[0].text


ODD = {
    "no number": lambda value: value.pop("line"),
    "a number that is text": lambda value: value.update(line="2"),
    "a way": lambda value: value.update(way="up"),
    "an event": lambda value: value.update(event="x"),
    "negative bytes": lambda value: value.update(bytes=-1),
    "fields": lambda value: value.update(fields=3),
    "a field": lambda value: value.update(fields={"w": [1, 2]}),
    "counts": lambda value: value.update(fields={"w": ["1", 0, "all"]}),
    "refusals": lambda value: value.update(refused=[["a"]]),
    "texts": lambda value: value.update(who=["a"]),
    "masked": lambda value: value.update(masked="no"),
    "before": lambda value: value.update(before=None),
}


@pytest.mark.parametrize("case", ODD)
def test_a_line_of_another_form_is_found_though_its_hash_is_right(case: str) -> None:
    _, faults = faults_of(replaced(3, ODD[case]))
    assert faults[0].line == 4


def test_a_first_line_that_does_not_name_the_format_is_found() -> None:
    _, faults = faults_of(replaced(0, lambda value: value.update(kind="another log 1")))
    assert faults[0] == (
        1,
        "it does not name the site and the format, as the first line does",
        False,
    )


def test_a_log_or_a_head_record_that_is_gone_is_told(tmp_path: Path) -> None:
    _, faults = faults_of(DATA, None)
    assert [fault.line for fault in faults] == [LINES]
    assert "head record is gone" in faults[0].text
    log = written(tmp_path)
    log.path.unlink()
    entries, faults = read_log(log.path)
    assert (entries, [fault.line for fault in faults]) == ([], [1])
    head_path(log.path).unlink()
    with pytest.raises(FileNotFoundError):
        read_log(log.path)


def broken_writes(folder: Path, data: bytes, head: bytes | None) -> str:
    """What a writer says of a log with these bytes, which it leaves as they are."""
    path = folder / "audit.jsonl"
    path.write_bytes(data)
    head_path(path).unlink(missing_ok=True)
    if head is not None:
        head_path(path).write_bytes(head)
    with pytest.raises(AuditError) as error:
        AuditLog(path, "north").note("x")
    assert path.read_bytes() == data
    assert not read_log(path)[1][0].crash
    return str(error.value)


def test_a_log_that_was_changed_at_its_end_is_not_gone_on_with(tmp_path: Path) -> None:
    counted = b"".join(ROWS[:-2])
    head = f"5 {json.loads(ROWS[4])['hash']} {len(counted)}\n".encode()
    for data, record, needed in (
        (DATA[:-1], HEAD, "1 bytes at its end are gone"),
        (b"", HEAD, f"{len(DATA)} bytes at its end are gone"),
        (DATA, None, "its head record is gone"),
        (DATA, b"x" + HEAD, "head record is damaged"),
        (counted + ROWS[6], head, "line 6 was changed"),
        (counted + b"x\n" + ROWS[5], head, "line 6 was changed"),
        (b"x\n", b"", "its first line was changed"),
    ):
        assert needed in broken_writes(tmp_path, data, record)
        assert "move both away and keep them" in broken_writes(tmp_path, data, record)


def test_a_log_that_is_gone_does_not_begin_anew_by_itself(tmp_path: Path) -> None:
    log = written(tmp_path)
    log.path.unlink()
    with pytest.raises(AuditError, match="the log is gone"):
        log.note("x")
    assert not log.path.exists()
    head_path(log.path).unlink()
    assert AuditLog.open(log.path, "north").head.number == 1


# ------------------------------------------------------------------------------------- crashes


@given(length=st.integers(0, len(ROWS[-1])))
def test_a_crash_while_a_line_is_written_leaves_what_goes_on(length: int) -> None:
    kept, torn = b"".join(ROWS[:-1]), ROWS[-1][:length]
    head = f"6 {json.loads(ROWS[-2])['hash']} {len(kept)}\n".encode()
    _, faults = faults_of(kept + torn, head)
    whole = length in (0, len(ROWS[-1]))
    assert [(fault.line, fault.crash) for fault in faults] == ([] if whole else [(LINES, True)])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        path.write_bytes(kept + torn)
        head_path(path).write_bytes(head)
        AuditLog.open(path, "north").note("and on")
        entries, faults = read_log(path)
    assert faults == []
    events = ["torn"] if not whole else ["message"] if length else []
    assert [entry.event for entry in entries[6:]] == [*events, "note"]
    if not whole:
        assert f"{length} bytes" in entries[6].text


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
    log = written(tmp_path, 1)
    head_path(log.path).write_bytes(b"")
    assert read_log(log.path)[1] == []
    assert log.note("x").number == 2
    assert read_log(log.path)[1] == []


def test_a_line_is_on_the_disk_before_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, order = written(tmp_path), []
    sync, write = os.fsync, Lock.write
    monkeypatch.setattr("os.fsync", lambda file: (order.append("sync"), sync(file)))

    def counted(self: Lock, text: str, *, sync: bool = True) -> None:
        order.append("count")
        write(self, text, sync=sync)

    monkeypatch.setattr(Lock, "write", counted)
    log.note("x")
    assert order == ["sync", "count"]
    order.clear()
    log.write("in", "alliance", "Evaluate", sync=False)
    assert order == []


def test_a_full_disk_leaves_a_log_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(tmp_path)

    def full(path: Path, data: bytes, *, sync: bool = True) -> None:
        with path.open("ab") as file:
            file.write(data[:40])
        raise OSError(28, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("bonafed.sites.audit.append", full)
        with pytest.raises(OSError, match="No space left"):
            log.note("lost")
    assert [fault.crash for fault in read_log(log.path)[1]] == [True]
    assert log.note("kept").number == LINES + 2
    entries, faults = read_log(log.path)
    assert ([entry.event for entry in entries[-2:]], faults) == (["torn", "note"], [])
