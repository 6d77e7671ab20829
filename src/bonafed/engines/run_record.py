"""The record of a run beside its last state: traffic, history, and who answered when."""

import enum
import os
from array import array
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.codec import FIELDS, Form
from bonafed.engines.checkpoint_schema import Fields
from bonafed.rounds import CodecError, Outcome, decode, encode, marks, record
from bonafed.storage import write_whole
from bonafed.text import in_words

# ---- who answered when


def check_answers(
    answered: NDArray[np.int32], times: Array, ends: NDArray[np.int64], n_clients: int
) -> NDArray[np.intp]:
    """How often each client has answered; raises where the columns of a log contradict each
    other.
    """
    last = int(ends[-1]) if ends.size else 0
    if last != answered.size or (np.diff(ends, prepend=0) < 1).any():
        raise ValueError(f"its rounds end with {last} answers, of {answered.size} that it has")
    if (np.diff(times, prepend=0.0) < 0).any():
        raise ValueError("its answers are not in the order of their times")
    return np.bincount(answered, minlength=n_clients)


@record
class Events:
    """The events of a run so far, as in its log."""

    answered: Annotated[NDArray[np.int32], Form("answers", below="N")]
    times: Annotated[Array, Form("answers")]
    ends: Annotated[NDArray[np.int64], Form("rounds")]

    def active(self) -> list[tuple[int, ...]]:
        """The clients that answered in each round, ascending."""
        return [tuple(np.sort(ids).tolist()) for ids in np.split(self.answered, self.ends)[:-1]]

    def turns(self, n_clients: int) -> NDArray[np.int64]:
        """How often each client has answered; raises where the columns contradict each other."""
        return check_answers(self.answered, self.times, self.ends, n_clients)


@record
class Sets:
    """Who answered in each round of a run in which all who are asked answer at once: the distinct
    sets of clients, and the number of that of each round.
    """

    sets: tuple[NDArray[np.int64], ...]
    ends: Annotated[NDArray[np.int64], Form("rounds")]

    def active(self) -> list[tuple[int, ...]]:
        """The clients that answered in each round, one tuple for many rounds."""
        known = [tuple(ids.tolist()) for ids in self.sets]
        return [known[k] for k in self.ends.tolist()]

    def turns(self, n_clients: int) -> NDArray[np.int64]:
        """How often each client has answered; raises where no clients are such a set."""
        whole = all(ids.dtype == np.int64 for ids in self.sets)
        if not whole or not all(ids.size and (np.diff(ids) > 0).all() for ids in self.sets):
            raise ValueError("the clients that answered are not sets of clients")
        answered = [i for ids in self.active() for i in ids]
        return np.bincount(np.array(answered, np.int64), minlength=n_clients)


class Recorder:
    """The growing list of a run's events: 12 bytes per answer, 8 per round."""

    def __init__(self, kept: Events | None = None) -> None:
        before = (kept.answered, kept.times, kept.ends) if kept else ([], [], [])
        self.answered, self.times, self.ends = map(array, "idq", map(list, before))

    def add(self, ids: NDArray[np.int64], times: Array) -> None:
        """Add the answers of one round, in the order of arrival."""
        self.answered.extend(ids.tolist())
        self.times.extend(times.tolist())
        self.ends.append(len(self.answered))

    def stored(self) -> Events:
        """The events so far, for a checkpoint."""
        answered, times = np.array(self.answered, np.int32), np.array(self.times, np.float64)
        return Events(answered, times, np.array(self.ends, np.int64))


class SetRecorder:
    """The growing list of who answered where all who are asked answer at once."""

    def __init__(self, kept: Sets | None = None) -> None:
        sets, ends = (kept.sets, kept.ends.tolist()) if kept else ((), [])
        self.known = {_digest(ids): k for k, ids in enumerate(sets)}
        self.sets, self.ends = [*sets], array("q", ends)

    def add(self, ids: NDArray[np.int64], times: Array) -> None:
        """Add the answers of one round, in ascending order."""
        if (number := self.known.get(key := _digest(ids))) is None:
            number = self.known[key] = len(self.sets)
            self.sets.append(ids)
        self.ends.append(number)

    def stored(self) -> Sets:
        """The sets so far, for a checkpoint."""
        return Sets(tuple(self.sets), np.array(self.ends, np.int64))


def _digest(ids: NDArray[np.int64]) -> bytes:
    return blake2b(ids.data, digest_size=16).digest()


def recording(at_once: bool, kept: Any = None) -> Recorder | SetRecorder:
    """The list of events of a run, which goes on from those that are kept."""
    return SetRecorder(kept) if at_once else Recorder(kept)


# ---- counts


class Content(NamedTuple):
    """What one field of a message holds.

    Attributes
    ----------
    numbers, texts : how many
    how : "sum", "max", "each" or "parcel" of an answer; "each", "version" or "all" of a question
    """

    numbers: int
    texts: int
    how: str


def contents(message: object, n: int = 1) -> dict[str, Content]:
    """How many numbers and texts each field of a message holds, and who sees them; fields that
    hold nothing are left out. ``n``: of answers combined over so many clients, all that these sent.
    """
    counted = {}
    for name, how in marks(type(message)):
        numbers, texts = _counts(getattr(message, name))
        if numbers or texts:
            counted[name] = Content(numbers * (n if how in ("sum", "max") else 1), texts, how)
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


Row = dict[str, Any]  # of a history


class Counts(NamedTuple):
    """The counts of one round, or of all rounds since the last row of the history."""

    bytes_up: int = 0
    bytes_down: int = 0
    answered: int = 0
    staleness: int = 0  # the most rounds by which a message was old

    def joined(self, more: "Counts") -> "Counts":
        """The counts of both together."""
        up, down, answered = (a + b for a, b in zip(self[:3], more[:3], strict=True))
        return Counts(up, down, answered, max(self.staleness, more.staleness))

    def row(self, round_: int, time: float, at_once: bool, report: Mapping[str, Any]) -> Row:
        """A row of the history with these counts; ``report`` is what the algorithm reports.

        ``time`` is that of the last answer or, where all answer ``at_once``, the seconds that the
        round took.
        """
        timed = {"time": time, "answered": self.answered, "staleness": self.staleness}
        begun: Row = {"round": round_} | ({"seconds": time} if at_once else timed)
        return begun | {"bytes_up": self.bytes_up, "bytes_down": self.bytes_down} | {**report}


class RunRecord:
    """The record of a run, which grows with every finished round.

    Attributes
    ----------
    traffic : (message, "down" or "up") -> messages and bytes so far
    answered : (message, field, how it is read) -> the numbers in it that all clients sent
    history : the rows that are kept
    events : who answered when
    since_row : the counts since the last of these rows
    """

    def __init__(self, events: Recorder | SetRecorder) -> None:
        self.traffic: dict[tuple[str, str], list[int]] = {}
        self.answered: dict[tuple[str, str, str], int] = {}
        self.history: list[dict[str, Any]] = []
        self.events = events
        self.since_row = Counts()

    def count(self, kind: type, way: str, messages: int, size: int) -> None:
        """Count messages or uploads of one class, with their bytes in all."""
        counted = self.traffic.setdefault((kind.__name__, way), [0, 0])
        counted[0] += messages
        counted[1] += size

    def tell(self, answers: object, n: int) -> None:
        """Count the numbers in the answers of so many clients, which are combined."""
        kind = type(answers).__name__
        for name, held in contents(answers, n).items():
            key = kind, name, held.how
            self.answered[key] = self.answered.get(key, 0) + held.numbers

    def messages(self) -> list[Row]:
        """The messages of the run by class and direction, of answers with what they held."""
        rows: list[Row] = []
        for (message, way), (count, size) in self.traffic.items():
            row = {"message": message, "direction": way, "count": count, "bytes": size}
            said = [(*key[1:], n) for key, n in self.answered.items() if key[0] == message]
            held = {name: {"how": how, "numbers": n} for name, how, n in said}
            rows.append(row | ({"held": held} if way == "up" else {}))
        return rows


# The log of who answered when, from which a run is repeated whose order of events came from
# outside the algorithm.


@record
class Log:
    """The events of a run; ``Replay(log)`` repeats it.

    The answers of round k (from 1) are those from ``ends[k - 2]`` (0 for the first) to ``ends[k -
    1]``.

    Attributes
    ----------
    clients : the clients' names
    seed : the seed of the run
    block_size : clients that stepped together at most; 1: one by one, as on a network
    answered : (answers,) clients' positions in the order of arrival
    times : (answers,) seconds at which they arrived
    ends : (rounds,) answers by the end of each round
    crashed : (name, seconds) of those who never answer again
    outcome : why the run ended, where the engine ended it

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> log = bf.solve(problem, fed, engine=bf.VirtualClock(max_time=20.0)).log
    >>> log.clients == tuple(fed.clients)
    True
    """

    clients: tuple[str, ...]
    seed: Annotated[int, Form(least=-(2**63))]
    block_size: Annotated[int, Form(least=1)]
    answered: Annotated[NDArray[np.int32], Form("answers", below="N")]
    times: Annotated[Array, Form("answers")]
    ends: Annotated[NDArray[np.int64], Form("rounds")]
    crashed: tuple[tuple[str, float], ...] = ()
    outcome: Outcome | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the log to a file, in one step."""
        with in_words(path):
            write_whole(Path(path), encode(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Log":
        """The log in a file.

        Raises
        ------
        ValueError : a damaged file, or one that holds something else
        """
        try:
            with in_words(path):
                log = decode(Path(path).read_bytes())
        except CodecError as error:
            raise ValueError(f"the log {path} cannot be read: {error}") from error
        if type(log) is not Log:
            text = f"{path} holds a {type(log).__name__}, no log: give a file that Log.save wrote."
            raise ValueError(text)
        try:
            Fields(len(log.clients), len(log.ends)).check(log, Log, "the log")
            check_answers(log.answered, log.times, log.ends, len(log.clients))
        except (ValueError, TypeError) as error:
            raise ValueError(f"the log {path} holds what no run can have: {error}") from error
        return log
