"""The audit log of a site: what was asked, what was answered, what was refused.

The log is an SQLite file with a row for every message in and out. A row is a line of JSON, which
has its number, the hash of the line before it and, at its end, its own hash

    h_k = SHA-256 of line k up to its hash, which includes h_{k-1},

so that a line that is changed, removed, inserted or moved is found and named. A small file beside
the log, the head record, has the number and the hash of the last line, so that lines cut off at the
end are found as well.

A line reaches the disk before the head record counts it, and before an answer leaves. SQLite's
write-ahead log undoes what a crash left half written; the head record shows where the end of the
write-ahead log was lost, which SQLite takes for such a crash.

What the log cannot show: who may write both files can write all of it anew. So a site should sign
`AuditLog.head`, or send it with what it signs: against a copy elsewhere such a log is found.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bonafed.codec import FIELDS
from bonafed.rounds import marks
from bonafed.sites.policy import Refusal
from bonafed.storage import OWN, Lock, sync_folder
from bonafed.text import short

FORMAT = "bonafed audit log 1"
BEGUN, MESSAGE, NOTE = "begun", "message", "note"
ENDING = re.compile(rb'(.*),"hash":"([0-9a-f]{64})"\}', re.DOTALL)
HEAD = re.compile(r'\{"number":(?=[ \d]{15},) *(\d+),"hash":"([0-9a-f]{64})"\}\n?')
CHANGED = "it was changed: its bytes are not those that were written"
NAME, TEXT = 200, 2_000  # characters of names and of texts that others wrote
BUSY = 30.0  # seconds in which another process may let go of the log
EXPORT = ".jsonl"  # the ending of an exported log: its lines, and its head record as the last one


class AuditError(RuntimeError):
    """A log that cannot be gone on with: it was changed, cut or removed, or is another site's."""


class Content(NamedTuple):
    """What one field of a message holds.

    Attributes
    ----------
    numbers, texts : how many
    how : "sum", "max" or "each" of an answer; "each", "version" or "all" of a question
    """

    numbers: int
    texts: int
    how: str


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Attributes
    ----------
    number : from 1
    at : when, in UTC, such as "2026-11-23T10:04:11.123Z"
    event : "begun", the first line; "message"; or "note"
    way : "in" or "out" of a message
    who : who sent the message, or to whom it went
    kind : the class of the message, "" where it could not be read; the format, in the first line
    experiment, seq : to which it belongs, and which of its messages it is
    size : bytes
    masked : whether nobody can read this site's numbers before those of other sites are added
    fields : what the message holds
    refused : pairs of a rule that refused it and the reason
    text : of a note; the name of the site, in the first line
    """

    number: int
    at: str
    event: str
    way: str = ""
    who: str = ""
    kind: str = ""
    experiment: str = ""
    seq: int | None = None
    size: int = 0
    masked: bool = False
    fields: Mapping[str, Content] = field(default_factory=dict)
    refused: Sequence[tuple[str, str]] = ()
    text: str = ""


class Fault(NamedTuple):
    """What is wrong with a log, and with which of its lines, counted from 1."""

    line: int
    text: str


class Head(NamedTuple):
    """The last line of a log: its number and its hash."""

    number: int = 0
    hash: str = ""


def contents(message: object) -> dict[str, Content]:
    """How many numbers and texts each field of a message holds, and who sees them; fields that
    hold nothing are left out.
    """
    counted = {}
    for name, how in marks(type(message)):
        numbers, texts = _counts(getattr(message, name))
        if numbers or texts:
            counted[name] = Content(numbers, texts, how)
    return counted


def _counts(value: object) -> tuple[int, int]:
    """The numbers and the texts in what a record may hold."""
    if isinstance(value, np.ndarray):
        return value.size, 0
    if isinstance(value, str | enum.Enum):
        return 0, 1
    if type(value) in FIELDS:
        value = [getattr(value, name) for name in FIELDS[type(value)]]
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, tuple | list):
        each = [_counts(part) for part in value]
        return sum(n for n, _ in each), sum(t for _, t in each)
    return int(value is not None), 0


# ------------------------------------------------------------------------------------------ writing


class AuditLog:
    """The log of one site. Several processes may write it, one after the other.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from bonafed.sites.audit import AuditLog, read_log
    >>> log = AuditLog.open(Path(mkdtemp()) / "audit.db", "north")
    >>> entry = log.write("in", "alliance", "Evaluate", size=412)
    >>> entries, faults = read_log(log.path)
    >>> [entry.event for entry in entries], faults
    (['begun', 'message'], [])
    >>> log.close()
    """

    def __init__(self, path: Path, site: str) -> None:
        self.path, self.site = path, site
        self._mine = threading.Lock()
        self._file: tuple[sqlite3.Connection, os.stat_result] | None = None

    @classmethod
    def open(cls, path: Path, site: str) -> AuditLog:
        """The log at a path, which is begun where there is none; its folder has to exist.

        Raises
        ------
        AuditError
            where the log is that of another site, or was changed, cut or removed
        TimeoutError
            where another process has been opening it for half a minute
        """
        log, head = cls(path, site), Lock(head_path(path))
        with head.alone("another process has been opening the audit log"):
            journal = path.with_name(path.name + "-wal")  # of a log that is gone
            if not (path.exists() or head.text() or journal.exists()):
                _begin(path, site)
            with log._end() as (file, end):
                first = _read(*file.execute("SELECT line FROM lines ORDER BY number").fetchone())
            if not head.text():
                log._count(end)
        owner = None if first is None else first.entry.text
        if owner != site:
            log.close()
            raise AuditError(
                f"the log {path.name} begins as that of site {owner!r}, and this site is {site!r}:"
                " give site.log another path, or correct site.name."
            )
        return log

    @property
    def head(self) -> Head:
        """The last line that is counted, to be signed or kept elsewhere."""
        return _head(_head_text(self.path)) or Head()

    def write(
        self,
        way: str,
        who: str,
        kind: str,
        *,
        experiment: str = "",
        seq: int | None = None,
        size: int = 0,
        masked: bool = False,
        fields: Mapping[str, Content] | None = None,
        refusals: Iterable[Refusal] = (),
        sync: bool = True,
    ) -> Entry:
        """Add a line about a message; it has reached the disk when this returns.

        Parameters
        ----------
        way : "in" of a message that was received, "out" of one that is about to be sent
        who : who sent it, or to whom it goes
        kind : its class; "" where it could not be read
        experiment, seq, size, masked : as of `Entry`
        fields : what it holds, see `contents`
        refusals : why it was not answered
        sync : False where the line may reach the disk with a later one, such as a question with
            its answer
        """
        if way not in ("in", "out"):
            raise ValueError(f"way must be 'in' or 'out', got {way!r}.")
        message = Entry(
            number=0,
            at="",
            event=MESSAGE,
            way=way,
            who=short(who, NAME),
            kind=short(kind, NAME),
            experiment=short(experiment, NAME),
            seq=seq if seq is not None and 0 <= seq < 2**63 else None,
            size=size,
            masked=masked,
            fields={short(name, NAME): content for name, content in (fields or {}).items()},
            refused=tuple((short(r.rule, NAME), short(r.text, TEXT)) for r in refusals),
        )
        return self._add(message, sync)

    def note(self, text: str) -> Entry:
        """Add a line about something else, such as the digest of the policy now in force."""
        return self._add(Entry(0, "", NOTE, text=short(text, TEXT)))

    def last_note(self, begins: str) -> str:
        """The last note that begins with some words; empty where there is none."""
        find = "SELECT line FROM lines WHERE instr(line, ?) ORDER BY number DESC"
        with self._end() as (file, _):
            lines = [_read(*row) for row in file.execute(find, (f'"text":"{begins}'.encode(),))]
        notes = (line.entry.text for line in lines if line and line.entry.event == NOTE)
        return next(notes, "")

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        if self._file is not None:
            self._file[0].close()
        self._file = None

    __del__ = close

    def _add(self, entry: Entry, sync: bool = True) -> Entry:
        with self._end(sync) as (file, end):
            entry, last = _insert(file, entry, end)
        if sync:  # never count what a crash may lose
            self._count(last)
        return entry

    def _count(self, last: Head) -> None:
        # an older record counts too few lines, which does no harm; all records have one length, so
        # that none of two processes cuts off the other's
        text = f'{{"number":{last.number:>15},"hash":"{last.hash}"}}\n'
        with _said(self.path):
            Lock(head_path(self.path)).write(text, sync=False)

    @contextmanager
    def _end(self, sync: bool = True) -> Iterator[tuple[sqlite3.Connection, Head]]:
        """The file, which nobody else writes meanwhile, and its last line."""
        with self._mine, _said(self.path):
            file = self._connected()
            file.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            with file:
                file.execute("BEGIN IMMEDIATE")
                yield file, _last(self.path, file)

    def _connected(self) -> sqlite3.Connection:
        """The file that is at the path now."""
        at = self.path.stat()
        if self._file is None or not os.path.samestat(at, self._file[1]):
            self.close()
            self._file = _connect(self.path), at
        return self._file[0]


def head_path(path: Path) -> Path:
    """Where the head record of a log is."""
    return path.with_name(path.name + ".head")


def _head_text(path: Path) -> str:
    return Lock(head_path(path)).text()


def _head(text: str) -> Head | None:
    parts = HEAD.fullmatch(text)
    return parts and Head(int(parts[1]), parts[2])


def _connect(path: Path) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=rw"  # which makes no file
    return sqlite3.connect(uri, BUSY, uri=True, isolation_level=None, check_same_thread=False)


def _begin(path: Path, site: str) -> None:
    """Write a log of one line, in one step."""
    new = path.with_name(path.name + ".tmp")
    new.unlink(missing_ok=True)
    new.touch(OWN)
    with closing(_connect(new)) as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, line BLOB NOT NULL)")
        _insert(file, Entry(0, "", BEGUN, kind=FORMAT, text=site), Head())
    os.replace(new, path)
    sync_folder(path.parent)


def _insert(file: sqlite3.Connection, entry: Entry, end: Head) -> tuple[Entry, Head]:
    """The entry as it stands in the log, after the line ``end``, and the head of the log then."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    entry = replace(entry, number=end.number + 1, at=at)
    line, hash_ = _written(entry, end.hash)
    file.execute("INSERT INTO lines VALUES (?, ?)", (entry.number, line))
    return entry, Head(entry.number, hash_)


def _last(path: Path, file: sqlite3.Connection) -> Head:
    """The last line, where those from the one that is counted last are as they were written."""
    text = _head_text(path)
    before = max((_head(text) or Head()).number - 1, 0)
    find = "SELECT line FROM lines WHERE number > ? ORDER BY number"
    _, faults, last = checked((line for (line,) in file.execute(find, (before,))), text, before)
    if faults or last is None:
        raise _broken(path, f"line {faults[0].line}: {faults[0].text}")
    return last


def _broken(path: Path, what: object) -> AuditError:
    return AuditError(
        f"the audit log {path} cannot be written ({what}), so that no answer leaves this site: free"
        " its disk, or end the process that holds the log; where it was changed, see `bonafed site"
        f" log`, and restore its files {path.name}*, or move all of them away and keep them, so"
        " that a new log begins."
    )


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Errors of SQLite and of the disk as those of the log."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise _broken(path, error) from error


# -------------------------------------------------------------------------------------------- lines


def _written(entry: Entry, before: str) -> tuple[bytes, str]:
    """The line of an entry after the line with the hash ``before``, and its own hash."""
    kept = {key: value for key, value in vars(entry).items() if value or (key, value) == ("seq", 0)}
    body = json.dumps({**kept, "before": before}, separators=(",", ":")).encode()[:-1]
    hash_ = hashlib.sha256(body).hexdigest()
    return body + f',"hash":"{hash_}"}}'.encode(), hash_


class _Line(NamedTuple):
    """A line whose bytes are those that were written."""

    entry: Entry
    before: str  # the hash of the line before it
    hash: str

    @property
    def head(self) -> Head:
        """The line as the last one of a log."""
        return Head(self.entry.number, self.hash)


def _read(line: object) -> _Line | None:
    """What a line says; None where its bytes are not those that were written, or are no entry."""
    if not isinstance(line, bytes):
        return None
    parts = ENDING.fullmatch(line)
    if parts is None or hashlib.sha256(parts[1]).hexdigest() != parts[2].decode():
        return None
    try:
        row = json.loads(line)
        before, hash_ = row.pop("before"), row.pop("hash")
        row["fields"] = {name: Content(*each) for name, each in row.get("fields", {}).items()}
        row["refused"] = tuple((rule, reason) for rule, reason in row.get("refused", ()))
        entry = Entry(**row)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    sound = _is_sound(entry) and isinstance(before, str)
    return _Line(entry, before, hash_) if sound else None


def _is_sound(entry: Entry) -> bool:
    """Whether every part of an entry has its type."""
    texts = (entry.at, entry.event, entry.way, entry.who, entry.kind, entry.experiment, entry.text)
    counts = (entry.number, entry.size, 0 if entry.seq is None else entry.seq)
    counts += tuple(n for content in entry.fields.values() for n in content[:2])
    texts += tuple(content.how for content in entry.fields.values())
    texts += tuple(part for pair in entry.refused for part in pair)
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(count) is int and count >= 0 for count in counts)
        and isinstance(entry.masked, bool)
        and entry.event in (BEGUN, MESSAGE, NOTE)
        and entry.way in ("in", "out", "")
    )


# ------------------------------------------------------------------------------------------ reading


def read_log(path: Path) -> tuple[list[Entry], list[Fault]]:
    """All entries of a log whose bytes are as they were written, and what is wrong with it: lines
    that were changed, removed, inserted or moved, and an end that was cut off.

    Raises
    ------
    FileNotFoundError, AuditError : as of `lines_of`
    """
    return checked(*lines_of(path))[:2]


def lines_of(path: Path) -> tuple[list[object], str]:
    """The lines of a log, or of an exported one, as they stand there, and its head record; an error
    stands for the lines that it hides.

    Raises
    ------
    FileNotFoundError : there is neither a log nor a head record
    AuditError : there is no log in the file, or it cannot be opened
    """
    if path.suffix == EXPORT:
        *written, last = path.read_bytes().removesuffix(b"\n").split(b"\n")
        return [*written], last.decode(errors="replace")
    text, lines = _head_text(path), list[object]()
    if not path.exists():
        if not text:
            raise FileNotFoundError(f"there is no log {path}.")
        return ["the log is gone, and its head record is not"], text
    try:
        with closing(_connect(path)) as file:
            lines.extend(line for (line,) in file.execute("SELECT line FROM lines ORDER BY number"))
    except sqlite3.OperationalError as error:
        raise AuditError(f"the audit log {path} cannot be read: {error}.") from error
    except sqlite3.DatabaseError as error:
        lines.append(f"it cannot be read: {error}")
    return lines, text


def checked(
    lines: Iterable[object], head_text: str, before: int = 0
) -> tuple[list[Entry], list[Fault], Head | None]:
    """The entries after so many lines, what is wrong with the lines as of `read_log`, and the last
    one; None where it cannot be read.
    """
    head, last, place = _head(head_text) or Head(), Head(before), before
    entries, faults = list[Entry](), list[Fault]()
    for place, data in enumerate(lines, before + 1):
        line = _read(data)
        if wrong := _wrong(line, last, head):
            faults.append(Fault(place, data if isinstance(data, str) else wrong))
        if line is not None:
            entries.append(line.entry)
        last = None if line is None else line.head
    if not head.number and (head_text or place != 1):
        text = f"the head record is {'damaged' if head_text else 'gone'}, so nothing shows whether"
        faults.append(Fault(place + 1, f"{text} the end was cut off"))
    elif last is not None and last.number < head.number:
        text = f"the end was cut off: {head.number} lines were written"
        faults.append(Fault(place + 1, text))
    return entries, faults, last


def _wrong(line: _Line | None, last: Head | None, head: Head) -> str:
    """What is wrong with a line after the line ``last``, None where that one cannot be read; empty
    where nothing is.
    """
    if line is None:
        return CHANGED
    number = line.entry.number
    ahead = 0 if last is None else number - last.number - 1
    if ahead > 0:
        lines = f"{ahead} line{'s' * (ahead > 1)} before it {'are' if ahead > 1 else 'is'}"
        return f"{lines} missing: it is number {number}"
    if ahead < 0:
        return f"it was inserted or moved: it is number {number}"
    if last is not None and last.hash and line.before != last.hash:
        return "it does not follow the line before it: one of the two was replaced"
    if number == 1 and (line.entry.event != BEGUN or line.entry.kind != FORMAT):
        return "it does not name the site and the format, as the first line does"
    if number == head.number and line.hash != head.hash:
        return "it is not the line that the head record counted last"
    return ""
