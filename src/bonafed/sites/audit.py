"""The audit log of a site: what was asked, what was answered, what was refused.

The log is a file of JSON lines, one for every message in and out. Every line has its number, the
hash of the line before it and, at its end, its own hash

    h_k = SHA-256 of line k up to its hash, which includes h_{k-1},

so that a line that is changed, removed, inserted or moved is found and named. A small file beside
the log, the head record, has the number and the hash of the last line and the size of the log, so
that lines cut off at the end are found as well. It is also the lock of those who write.

A line reaches the disk before the head record counts it. A crash in between leaves whole lines that
are not counted yet, which the next writer counts, and perhaps a part of one: a torn line. Nobody
was told that a torn line was written. The next writer cuts it off, and says so in a separate line;
until then `read_log` names it.

What the log cannot show: who may write both files can write all of it anew. So a site should sign
`AuditLog.head`, or send it with what it signs: against a copy elsewhere such a log is found.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bonafed.engines.run_record import Content
from bonafed.sites.policy import Refusal
from bonafed.storage import OWN, Lock, append, cut, write_whole
from bonafed.text import short

FORMAT = "bonafed audit log 1"
KEYS = {"number": "line", "size": "bytes"}  # of a line, where they are not those of `Entry`
BEGUN, MESSAGE, NOTE, TORN = "begun", "message", "note", "torn"
EVENTS = (BEGUN, MESSAGE, NOTE, TORN)
ENDING = re.compile(rb'(.*),"hash":"([0-9a-f]{64})"\}', re.DOTALL)
HEAD = re.compile(r"(\d{1,15}) ([0-9a-f]{64}) (\d{1,18})\n")
CHANGED = "it was changed: its bytes are not those that were written"
NAME, TEXT = 200, 2_000  # characters of names and of texts that others wrote


class AuditError(RuntimeError):
    """A log that cannot be gone on with: it was changed, cut or removed, or is another site's."""


@dataclass(frozen=True)
class Entry:
    """One line of the log.

    Attributes
    ----------
    number : from 1
    at : when, in UTC, such as "2026-11-23T10:04:11.123Z"
    event : "begun", the first line; "message"; "note"; or "torn", about a line that was cut short
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
    """What is wrong with a log, and with which of its lines, counted from 1.

    ``crash``: a process that died while it wrote explains it, and nobody need have touched the
    file.
    """

    line: int
    text: str
    crash: bool = False


class Head(NamedTuple):
    """The last line of a log: its number, its hash, and the size of the log up to it."""

    number: int = 0
    hash: str = ""
    size: int = 0


# ------------------------------------------------------------------------------------------ writing


class AuditLog:
    """The log of one site. Several processes may write it, one after the other.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from bonafed.sites.audit import AuditLog, read_log
    >>> log = AuditLog.open(Path(mkdtemp()) / "audit.jsonl", "north")
    >>> entry = log.write("in", "alliance", "Evaluate", size=412)
    >>> entries, faults = read_log(log.path)
    >>> [entry.event for entry in entries], faults
    (['begun', 'message'], [])
    """

    def __init__(self, path: Path, site: str) -> None:
        self.path, self.site = path, site
        self._lock = Lock(head_path(path))
        self._ahead: tuple[str, Head] | None = None  # a head record, and this writer's line beyond

    @classmethod
    def open(cls, path: Path, site: str) -> "AuditLog":
        """The log at a path, which is begun where there is none; its folder has to exist.

        Raises
        ------
        AuditError
            where the log is that of another site, or was changed, cut or removed
        TimeoutError
            where another process has been writing for half a minute
        """
        log = cls(path, site)
        with log._alone():
            log._end()
            begun = _read(next(_lines(path))[0])
        owner = begun.entry.text if begun is not None and begun.entry.event == BEGUN else None
        if owner != site:
            text = f"the log {path.name} begins as that of site {owner!r}, and this site is"
            do = "give site.log another path, or correct site.name."
            raise AuditError(f"{text} {site!r}: {do}")
        return log

    @property
    def head(self) -> Head:
        """The last line that is counted, to be signed or kept elsewhere."""
        return _head(self._lock.text()) or Head()

    def write(
        self,
        way: str,
        who: str,
        kind: str,
        *,
        fields: Mapping[str, Content] | None = None,
        refusals: Iterable[Refusal] = (),
        sync: bool = True,
        **about: Any,
    ) -> Entry:
        """Add a line about a message; it has reached the disk when this returns.

        Parameters
        ----------
        way : "in" of a message that was received, "out" of one that is about to be sent
        who : who sent it, or to whom it goes
        kind : its class; "" where it could not be read
        fields : what it holds, see `bonafed.engines.run_record.contents`
        refusals : why it was not answered
        sync : False where the line may reach the disk with a later one, such as a question with
            its answer
        about : experiment, seq, size and masked, as of `Entry`
        """
        if way not in ("in", "out"):
            raise ValueError(f"way must be 'in' or 'out', got {way!r}.")
        if (seq := about.get("seq")) is not None and not 0 <= seq < 2**63:
            about["seq"] = None
        if "experiment" in about:
            about["experiment"] = short(about["experiment"], NAME)
        held = {short(name, NAME): content for name, content in (fields or {}).items()}
        refused = tuple((short(r.rule, NAME), short(r.text, TEXT)) for r in refusals)
        told = MESSAGE, way, short(who, NAME), short(kind, NAME)
        return self._add(Entry(0, "", *told, fields=held, refused=refused, **about), sync)

    def note(self, text: str) -> Entry:
        """Add a line about something else, such as the digest of the policy now in force."""
        return self._add(Entry(0, "", NOTE, text=short(text, TEXT)))

    def _add(self, entry: Entry, sync: bool = True) -> Entry:
        with self._alone():
            return self._append(entry, self._end(), sync)

    def _append(self, entry: Entry, end: Head, sync: bool = True) -> Entry:
        """Write a line after the last one, and count it."""
        entry = replace(entry, number=end.number + 1, at=_now())
        line, hash_ = _written(entry, end.hash)
        append(self.path, line, sync=sync)
        last = Head(entry.number, hash_, end.size + len(line))
        if sync:  # never count what a crash may lose
            self._count(last)
        self._ahead = None if sync else (self._lock.text(), last)
        return entry

    def _alone(self) -> AbstractContextManager[None]:
        return self._lock.alone("another process has been writing into the audit log")

    def _count(self, end: Head) -> None:
        # a record that is older than the log counts too few of its lines, which does no harm
        self._lock.write(f"{end.number} {end.hash} {end.size}\n", sync=False)

    def _end(self) -> Head:
        """The last line; a log is begun, and what a crash has left is put right, first."""
        text = self._lock.text()
        head = _head(text)
        if not self.path.exists() and not text:
            first = Entry(1, _now(), BEGUN, kind=FORMAT, text=self.site)
            write_whole(self.path, _written(first, "")[0], OWN)
        if not self.path.exists() or (text and head is None):
            raise AuditError(_broken(self.path, "the log is gone", "its head record is damaged"))
        head, size = head or Head(), self.path.stat().st_size
        if self._ahead is not None and (text, size) == (self._ahead[0], self._ahead[1].size):
            return self._ahead[1]
        if size < head.size:
            raise AuditError(_broken(self.path, f"{head.size - size} bytes at its end are gone"))
        return head if size == head.size else self._recovered(head)

    def _recovered(self, head: Head) -> Head:
        """The last line of a log that goes on beyond what is counted."""
        end, torn = head, None
        for bytes_, is_whole in _lines(self.path, head.size):
            line = _read(bytes_) if is_whole else None
            if line is None and torn is None:
                torn = bytes_
                continue
            if (
                line is None
                or torn is not None
                or (line.entry.number, line.before) != (end.number + 1, end.hash)
            ):
                raise AuditError(_broken(self.path, f"line {end.number + 1} was changed"))
            end = Head(end.number + 1, line.hash, end.size + len(bytes_) + 1)
        if end.number > 1 and not head.number:
            raise AuditError(_broken(self.path, "its head record is gone"))
        if not end.number:
            raise AuditError(_broken(self.path, "its first line was changed"))
        if not head.number:
            self._count(end)
        if torn is None:
            return end
        cut(self.path, end.size)
        text = f"{len(torn)} bytes that a process had written when it ended were not a whole line"
        self._append(Entry(0, "", TORN, text=text), end)
        return self.head


def head_path(path: Path) -> Path:
    """Where the head record of a log is."""
    return path.with_name(path.name + ".head")


def _broken(path: Path, *what: str) -> str:
    return (
        f"the audit log {path} cannot be gone on with: {' or '.join(what)}. See `bonafed site log`;"
        f" restore the log and {head_path(path).name}, or move both away and keep them, so that a"
        " new log begins."
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -------------------------------------------------------------------------------------------- lines


def _written(entry: Entry, before: str) -> tuple[bytes, str]:
    """The line of an entry after the line with the hash ``before``, and its own hash."""
    row = {KEYS.get(field.name, field.name): getattr(entry, field.name) for field in fields(entry)}
    kept = {key: value for key, value in row.items() if value or (key == "seq" and value == 0)}
    body = json.dumps({**kept, "before": before}, separators=(",", ":")).encode()[:-1]
    hash_ = hashlib.sha256(body).hexdigest()
    return body + f',"hash":"{hash_}"}}\n'.encode(), hash_


class _Line(NamedTuple):
    """A line whose bytes are those that were written."""

    entry: Entry
    before: str  # the hash of the line before it
    hash: str


def _read(line: bytes) -> _Line | None:
    """What a line says; None where its bytes were changed, or are not an entry."""
    parts = ENDING.fullmatch(line)
    if parts is None or hashlib.sha256(parts[1]).hexdigest() != parts[2].decode():
        return None
    try:
        row = json.loads(line)
        keys = {field.name: KEYS.get(field.name, field.name) for field in fields(Entry)}
        entry = Entry(**{name: row[key] for name, key in keys.items() if key in row})
        held = {name: Content(*content) for name, content in entry.fields.items()}
        refused = tuple((rule, reason) for rule, reason in entry.refused)
        entry, before = replace(entry, fields=held, refused=refused), row["before"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    sound = _is_sound(entry) and isinstance(before, str)
    return _Line(entry, before, parts[2].decode()) if sound else None


def _is_sound(entry: Entry) -> bool:
    """Whether every part of an entry has its type."""
    held = [*entry.fields.values()]
    texts = [entry.at, entry.event, entry.way, entry.who, entry.kind, entry.experiment, entry.text]
    texts += [content.how for content in held] + [part for pair in entry.refused for part in pair]
    counts = [entry.number, entry.size, 0 if entry.seq is None else entry.seq]
    counts += [count for content in held for count in content[:2]]
    plain = all(isinstance(text, str) for text in texts) and isinstance(entry.masked, bool)
    whole = all(type(count) is int and count >= 0 for count in counts)
    return plain and whole and entry.event in EVENTS and entry.way in ("in", "out", "")


def _lines(path: Path, start: int = 0) -> Iterator[tuple[bytes, bool]]:
    """The lines of a file from a byte on, without line breaks, and whether each has one."""
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            yield line.removesuffix(b"\n"), line.endswith(b"\n")


def _head(text: str) -> Head | None:
    parts = HEAD.fullmatch(text)
    return parts and Head(int(parts[1]), parts[2], int(parts[3]))


# ------------------------------------------------------------------------------------------ reading


def read_log(path: Path) -> tuple[list[Entry], list[Fault]]:
    """All entries of a log whose bytes are as they were written, and what is wrong with it: lines
    that were changed, removed, inserted or moved, and an end that was cut off.

    Raises
    ------
    FileNotFoundError : there is neither a log nor a head record
    """
    head_text = Lock(head_path(path)).text()
    try:
        reader = _Reader(_head(head_text) or Head())
        for line, is_whole in _lines(path):
            reader.take(line, is_whole)
    except FileNotFoundError:
        if not head_text:
            raise
        return [], [Fault(1, f"the log is gone, and its head record {head_path(path).name} is not")]
    reader.finish(head_text)
    return reader.entries, sorted(reader.faults)


class _Reader:
    """Reads a log line by line, and keeps what it has to compare with the lines that follow."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.entries: list[Entry] = []
        self.faults: list[Fault] = []
        self.line = self.size = 0  # lines and bytes so far
        self.last: Head | None = Head()  # the last line; None where its bytes cannot be trusted
        self.counted: Head | None = None  # the line that the head record is about
        self.torn: int | None = None  # a line that is not counted and not whole

    def take(self, bytes_: bytes, is_whole: bool) -> None:
        """Read the next line."""
        self.line, start = self.line + 1, self.size
        self.size += len(bytes_) + is_whole
        line = _read(bytes_) if is_whole else None
        if line is None:
            self.last = None
            if start >= self.head.size and self.head.number and self.torn is None:
                self.torn = self.line
            else:
                self._say(CHANGED if is_whole else "its end was cut off")
            return
        if self.torn is not None:  # a torn line is the last one
            self._say(CHANGED, self.torn)
            self.torn = None
        # it comes after the line before it
        entry = line.entry
        if self.line == 1 and (entry.event != BEGUN or entry.kind != FORMAT):
            self._say("it does not name the site and the format, as the first line does")
        ahead = 0 if self.last is None else entry.number - self.last.number - 1
        if ahead > 0:
            lines = f"{ahead} line{'s' * (ahead > 1)} before it {'are' if ahead > 1 else 'is'}"
            self._say(f"{lines} missing: it is number {entry.number}")
        elif ahead < 0:
            self._say(f"it was inserted or moved: it is number {entry.number}")
        elif self.last is not None and line.before != self.last.hash:
            self._say("it does not follow the line before it: one of the two was replaced")
        self.entries.append(line.entry)
        self.last = Head(line.entry.number, line.hash, self.size)
        if line.entry.number == self.head.number:
            self.counted = self.last

    def finish(self, head_text: str) -> None:
        """Compare the end with the head record; a crash leaves lines that it does not count."""
        head, last = self.head, self.last
        if self.torn is not None:
            text = "it is torn: a process ended while it wrote it; the next process cuts it off"
            self._say(text, self.torn, crash=True)
        if not head.number:
            if head_text or self.line != 1:
                state = "damaged" if head_text else "gone"
                text = f"the head record is {state}, so nothing shows whether the end was cut off"
                self._say(text, self.line)
        elif last is not None and last.number < head.number:
            self._say(f"the end was cut off: {head.number} lines were written", self.line + 1)
        else:  # whether the line that was counted last is another one now
            counted = self.counted
            other = counted is not None and counted.hash != head.hash
            if other or (counted != head and all(fault.crash for fault in self.faults)):
                self._say("it is not the line that the head record counted last", head.number)

    def _say(self, text: str, line: int | None = None, crash: bool = False) -> None:
        line = self.line if line is None else line
        self.faults.append(Fault(line, text, crash))
