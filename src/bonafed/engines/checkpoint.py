"""Checkpoints: the state of a run after a round, in one file, written by the one codec. That of a
private run has a second file, with what its clients keep.

A checkpoint belongs to (data, algorithm, seed): it is refused when one of them differs. It is
written to a file beside the old one, which it then replaces in one step, so that a crash while
writing leaves the old one intact.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Block
from bonafed.client_names import texts
from bonafed.codec import FIELDS, Form, mapped
from bonafed.engines.batching import Known
from bonafed.engines.checkpoint_schema import Fields, hints_of
from bonafed.engines.engine import check_request, reported
from bonafed.engines.run_record import Events, Sets
from bonafed.rounds import Algorithm, CodecError, Done, Round, Stop, decode, encode, record
from bonafed.storage import OWN, read_in_turns, write_whole

T = TypeVar("T")
Place = str | os.PathLike[str] | None
PATH = "a path"  # how every path is described
Stored = tuple[tuple[NDArray[np.intp], Any], ...]  # (clients, their memory with clients leading)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read or belongs to another run."""


@record
class Checkpoint:
    """The checkpoint of a run between two rounds: all that it needs to go on as if it had not
    stopped.
    """

    algorithm: str
    clients: tuple[str, ...]
    digests: tuple[str, ...]
    seed: Annotated[int, Form(least=-(2**63))]
    round: int
    state: Any
    ask: Round | Done
    memories: Stored
    mark: str  # of the clients' file that has the memories, or ""
    turns: Annotated[NDArray[np.int64], Form("N")]  # messages each client has answered
    traffic: tuple[tuple[str, str, int, int], ...]  # message, direction, count, bytes
    answered: tuple[tuple[str, str, str, int], ...]  # answer, field, how it is read, numbers
    history: Any  # rows, see packed
    source: Any  # of the times at which clients answer
    # those in flight: message for who is to answer, its round, bytes
    messages: tuple[tuple[Any, int, int], ...]
    # the number of each client's message in flight, or -1
    asked: Annotated[NDArray[np.int64], Form("N", least=-1)]
    exchanged: Annotated[NDArray[np.int64], Form("2, N")]  # bytes from and to each client
    late: tuple[int, ...]  # the Counts since the last row of the history
    events: Events | Sets  # who answered in each round


def save(path: Path, value: object, *, secret: bool = False) -> None:
    """Write a record in one step, so that there is either the old file or the new one; nobody but
    the owner may read it. ``secret``: what the old one held is overwritten.
    """
    write_whole(path, encode(value), OWN, destroy_old=secret)


def load(path: Path, kind: type[T]) -> T:
    """The checkpoint in a file, which an engine wrote as a record of this class.

    Raises
    ------
    CheckpointError : no file, or one that is damaged, foreign, or of another version.
    """
    try:
        value = decode(read_in_turns(path) or path.read_bytes())
    except FileNotFoundError:
        text = f"no checkpoint at {path}: nothing to resume. Begin a new run (resume=False)"
        raise CheckpointError(text) from None
    except CodecError as error:
        raise CheckpointError(
            f"the checkpoint {path} cannot be read: {error}. Restore it from a copy, or begin a"
            " new run (resume=False)"
        ) from error
    if type(value) is not kind:
        why = f"{path} holds a {type(value).__name__}, no checkpoint: give the path of a checkpoint"
        raise CheckpointError(why)
    return value


@dataclass(frozen=True)
class RunFile:
    """The file of a run's checkpoints, and the facts by which a checkpoint is known as this run's.

    ``path`` is None for a run that is not kept.
    """

    path: Path | None
    algorithm: str
    clients: tuple[str, ...]
    digests: tuple[str, ...]
    seed: int

    @classmethod
    def of(cls, place: Place, run: Sequence[object], federation: Known, seed: int) -> "RunFile":
        """The file for a run of an algorithm, and what else it depends on, on these data; raises
        where there is no folder.
        """
        path = None if place is None else Path(place)
        if path and not path.parent.is_dir():
            text = f"no folder {path.parent} for the checkpoint {path.name}: create it first"
            raise FileNotFoundError(text)
        if path and path.is_dir():
            raise IsADirectoryError(f"the checkpoint {path} is a folder: name a file in it")
        # most runs are not kept, and both take longer than a round
        digests = tuple(federation.digests()) if path else ()
        algorithm = " on ".join(map(describe, run)) if path else ""
        return cls(path, algorithm, texts(federation.clients), digests, seed)

    @property
    def run(self) -> tuple[str, tuple[str, ...], tuple[str, ...], int]:
        """The first fields of a ``Checkpoint``, which say which run it is of."""
        return self.algorithm, self.clients, self.digests, self.seed

    def load(self) -> Checkpoint:
        """The checkpoint in the file."""
        assert self.path is not None, "a run without a file cannot be resumed"
        return load(self.path, Checkpoint)

    def check(self, kept: Checkpoint) -> None:
        """Refuse a checkpoint of other data, another algorithm or another seed."""
        pairs = zip(self.clients, kept.digests, self.digests, strict=False)
        changed = [name for name, old, new in pairs if old != new]
        if kept.clients != self.clients:
            wrong = f"the checkpoint is of {other_clients(kept.clients, self.clients)}"
        elif changed:
            wrong = f"the data of {_listed(changed)} differ from those of the checkpoint"
        elif (old := kept.algorithm) != (new := self.algorithm):
            # both from shortly before the first difference
            pairs = enumerate(zip(old, new, strict=False))
            parted = next((k for k, (a, b) in pairs if a != b), min(len(old), len(new)))
            start = max(parted - 40, 0)
            dots, part = "…" * bool(start), slice(start, start + 160)
            wrong = f"the checkpoint is of {dots}{old[part]}, got {dots}{new[part]}"
        elif kept.seed != self.seed:
            wrong = f"the checkpoint is of seed {kept.seed}, got seed {self.seed}"
        else:
            return
        again = "Resume with what the checkpoint was written with"
        raise CheckpointError(f"{wrong}. {again}, or begin a new run (resume=False)")


def other_clients(one: Sequence[str], other: Sequence[str]) -> str:
    """The end of an error where two lists of clients differ."""
    odd = sorted(set(one) ^ set(other)) or ["(same names, other order)"]
    return f"other clients; not in both: {_listed(odd)}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def describe(value: object) -> str:
    """A description of an algorithm that is the same in every process: class names, fields, digests
    of arrays.
    """
    if isinstance(value, np.ndarray):
        shape = [*value.shape]
        if value.dtype.hasobject:  # its bytes are pointers
            return f"array{shape}:{describe(value.ravel().tolist())}"
        data = np.ascontiguousarray(value).tobytes()
        return f"array{shape}:{value.dtype}:{hashlib.blake2b(data, digest_size=8).hexdigest()}"
    if isinstance(value, os.PathLike):  # where a file lies is no part of a run
        return PATH
    described = getattr(value, "described", None)  # of values that their fields do not describe
    if described is not None and not isinstance(value, type):
        return described()
    if isinstance(value, functools.partial):
        return f"partial{describe((value.func, value.args, value.keywords))}"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, str | int | float | complex | bytes | np.generic | None):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{describe(key)}: {describe(part)}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple | range):
        return f"({', '.join(map(describe, value))})"
    if isinstance(value, set | frozenset):
        return f"set({', '.join(sorted(map(describe, value)))})"
    if dataclasses.is_dataclass(value):  # the fields with which it is made
        names = [field.name for field in dataclasses.fields(value) if field.init]
    else:
        names = sorted(getattr(value, "__dict__", {}))
    parts = ", ".join(f"{name}={describe(getattr(value, name))}" for name in names)
    return f"{type(value).__name__}({parts})"


def packed(history: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as columns where every row has the same keys and kinds, which is small and quick to
    write at any length.
    """
    if not history or any(row.keys() != history[0].keys() for row in history):
        return tuple(map(dict, history))
    columns = {key: [row[key] for row in history] for key in history[0]}
    kinds = {int}, {float}, {bool}
    plain = {key: {*map(type, values)} in kinds for key, values in columns.items()}
    return {key: np.asarray(v) if plain[key] else tuple(v) for key, v in columns.items()}


def unpacked(history: tuple[dict[str, Any], ...] | dict[str, Any]) -> list[dict[str, Any]]:
    """The rows from which ``packed`` made these columns."""
    if isinstance(history, tuple):
        return list(history)
    columns = [c.tolist() if isinstance(c, np.ndarray) else c for c in history.values()]
    if len(lengths := {len(column) for column in columns}) > 1:
        raise ValueError(f"the columns of the history have {sorted(lengths)} rows")
    return [dict(zip(history, row, strict=True)) for row in zip(*columns, strict=True)]


# The checkpoint of a private run, in two files: the server's part and the clients'.
#
#     PATH            what the server knows: its state, its next question, the history
#     PATH.clients    the memories of the clients, with the keys of their noise
#
# Anyone who has the keys can subtract the noise, so they never stand in the server's file. Nobody
# but the owner may read the clients' file, and what it held before is overwritten. It is written
# before the server's file, and holds two generations of memories: after the round that the server's
# file is about to have, and after the one that it still has. So a process may die between the two:
# either way the memories of the server's round are there. A mark tells that both files are of one
# run.
#
# Once all answers are given nobody needs the keys: zeros are written over them, and the memories
# stay, so that a run that is finished can be read again.

ENDING = ".clients"
BEGIN = "or begin a new run (resume=False)"


@record
class Generation:
    """The memories of all clients after a round."""

    round: int
    memories: Stored


@record
class ClientsCheckpoint:
    """The clients' part of a private run's checkpoint."""

    mark: str
    generations: tuple[Generation, ...]  # the newest first


class PartedFile:
    """Writes and reads both files of a private run's checkpoint.

    Attributes
    ----------
    server, clients : the two files
    mark : of the run
    last : the generation that the server's file belongs to, once it is written
    """

    def __init__(self, path: Path) -> None:
        self.server, self.clients = path, path.with_name(path.name + ENDING)
        self.mark = secrets.token_hex(16)
        self.last: Generation | None = None

    def save(self, kept: Checkpoint) -> None:
        """Write a checkpoint: first the clients' part, then the server's."""
        now = Generation(kept.round, kept.memories)
        before = () if self.last is None or self.last.round == now.round else (self.last,)
        save(self.clients, ClientsCheckpoint(self.mark, (now, *before)), secret=True)
        save(self.server, replace(kept, memories=(), mark=self.mark), secret=True)
        self.last = now

    def destroy_keys(self) -> None:
        """Overwrite the keys of a run whose answers are all given."""
        if self.last is None:
            return
        memories = tuple((index, without_key(memory)) for index, memory in self.last.memories)
        self.last = replace(self.last, memories=memories)
        save(self.clients, ClientsCheckpoint(self.mark, (self.last,)), secret=True)

    def joined(self, kept: Checkpoint) -> Checkpoint:
        """The checkpoint whose server's part is ``kept``, with the memories of that round.

        Raises
        ------
        CheckpointError : no clients' file, or one that does not belong to the server's
        """
        if not self.clients.is_file():
            text = f"{self.clients.name} is missing beside the checkpoint: it has the memories of"
            text += f" the clients and the keys of their noise. Restore it, {BEGIN}"
            raise CheckpointError(text)
        part = load(self.clients, ClientsCheckpoint)
        fitting = [each for each in part.generations if each.round == kept.round]
        if part.mark != kept.mark or not fitting:
            other = "another run" if part.mark != kept.mark else "other rounds"
            raise CheckpointError(
                f"{self.clients.name} is of {other} than {self.server.name}: restore both files"
                f" from one copy, {BEGIN}"
            )
        self.mark, self.last = kept.mark, fitting[0]
        return replace(kept, memories=fitting[0].memories)


def without_key(memory: Any) -> Any:
    """A client's memory with zeros in the place of the keys of its noise and of its masks, where it
    has some.
    """
    if hasattr(memory, "own"):
        memory = replace(memory, own=without_key(memory.own))
    if not hasattr(memory, "secret"):
        return memory
    return replace(memory, secret=np.zeros_like(memory.secret))


# Whether the parts of a checkpoint fit each other: rounds the history, answers turns and traffic,
# memories the clients, and the state its algorithm.


@contextlib.contextmanager
def refusing(path: Path | None) -> Iterator[None]:
    """Whatever is wrong with the checkpoint in the file ends as a ``CheckpointError``."""
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        fault = str(error).rstrip(".")
        if type(error) is not ValueError:  # one that Python raised
            fault = f"its parts do not fit together ({type(error).__name__}: {fault})"
        text = f"the checkpoint {path} holds what no run can have: {' '.join(fault.split())}."
        text += " Restore it from a copy, or begin a new run (resume=False)"
        raise CheckpointError(text) from error


Row: TypeAlias = Mapping[str, Any]
Bytes: TypeAlias = tuple[int, int]  # from and to the clients


def check_run(kept: Checkpoint, algorithm: Algorithm, block: Block | None, n: int) -> None:
    """Raise where the parts of a checkpoint contradict each other or the algorithm.

    ``block`` holds the rows of some clients, None where every client keeps its memory itself.
    """
    asked = int((kept.asked >= 0).sum())  # those who are still to answer
    first, _ = algorithm.server_start(n)
    if (kind := type(kept.state)) is not type(first):
        raise ValueError(f"state is a {kind.__name__}, and must be a {type(first).__name__}")
    if block is not None:
        ids = [i for index, _ in kept.memories for i in index.tolist()]
        if len(set(ids)) < len(ids) or not set(ids) <= set(range(n)):
            text = f"memories are of clients {sorted(ids)[:9]}: each of 0..{n - 1} has one"
            raise ValueError(text)
        must = set(range(n)) if algorithm.private else set(np.flatnonzero(kept.turns).tolist())
        if odd := sorted(set(ids) ^ must):
            raise ValueError(f"memories and turns do not fit each other: clients {odd[:9]}")
        # a private client draws the key of its noise when it starts
        start = None if algorithm.private else algorithm.client_start(block)
        for memory in [memory for _, memory in kept.memories if memory is not start]:
            kind = type(memory)
            if kind not in FIELDS if start is None else kind is not type(start):
                raise ValueError(f"a client's memory is a {kind.__name__}")
    elif kept.memories:
        raise ValueError("it has memories of clients, who keep theirs themselves")
    names = [(message, way) for message, way, *_ in kept.traffic]
    known = {"down": algorithm.on_client, "up": algorithm.on_server}
    for message, way in names:
        if message not in {each.__name__ for each in known.get(way, ())}:
            raise ValueError(f"traffic has {message!r} {way!r}, which the algorithm does not send")
    if len(set(names)) < len(names):
        raise ValueError("traffic lists one kind of message twice")
    for way, count in (("up", 0), ("down", asked)):
        total, answers = traffic(kept, way)[0], int(kept.turns.sum()) + count
        if total != answers:
            text = f"traffic has {total} messages {way}, and the clients' turns make {answers}"
            raise ValueError(text)
    if isinstance(kept.ask, Round):
        check_request(algorithm, kept.ask, n, asked)


def check_fields(kept: Checkpoint, fields: Fields) -> None:
    """Raise where a field of a checkpoint holds what its type and its form do not allow."""
    if isinstance(kept.ask, Done) and kept.ask.outcome.stop is Stop.STALLED:
        fields.finite = False  # the run has diverged, and does not go on
    for name, hint in hints_of(Checkpoint).items():
        if name not in ("memories", "messages"):
            fields.check(getattr(kept, name), hint, name)
    for number, (ids, memory) in enumerate(kept.memories):
        where, fields.axes["n"] = f"memories[{number}]", len(ids)
        fields.check(ids, Annotated[NDArray[np.intp], Form("n", below="N")], where)
        fields.check(memory, Any, where)

        def leading(array: NDArray[Any], n: int = len(ids), where: str = where) -> NDArray[Any]:
            """Raise where an array in the memory of n clients has no row for each of them."""
            if array.shape[:1] != (n,):
                raise ValueError(f"{where} has an array of shape {array.shape} for {n} clients")
            return array

        mapped(memory, leading)


def traffic(kept: Checkpoint, way: str) -> tuple[int, int]:
    """Messages in one direction and their bytes."""
    listed = [(count, size) for _, known, count, size in kept.traffic if known == way]
    return sum(count for count, _ in listed), sum(size for _, size in listed)


COUNTED = ("round", "bytes_up", "bytes_down", "answered", "staleness")  # of a row, by the engine
TIMED = ("seconds", "time")


def check_rows(rows: Sequence[Row], kept: Checkpoint, algorithm: Algorithm, more: Bytes) -> None:
    """Raise where the history contradicts the traffic or the state; ``more``: bytes up and down
    since its last row.
    """
    numbers = reported(algorithm, kept.state) if rows else {}
    last, when = 0, 0.0
    for row in rows:
        if type(row["round"]) is not int or not last < row["round"] <= kept.round:
            raise ValueError(f"the history goes on from round {last} to round {row['round']}")
        last, when = row["round"], _check_row(row, numbers, when)
    for way, later in zip(("up", "down"), more, strict=True):
        total = sum(row[f"bytes_{way}"] for row in rows) + later
        if total != traffic(kept, way)[1]:
            raise ValueError(f"the history has {total} bytes {way}, and traffic another number")
    for name, value in numbers.items() if rows and last == kept.round else ():
        # what the algorithm reports of its state; another processor may round otherwise
        old, floats = rows[-1][name], isinstance(value, float) and isinstance(rows[-1][name], float)
        close = floats and np.isclose(old, value, rtol=1e-6, atol=1e-12, equal_nan=True)
        if not close and old != value:
            raise ValueError(f"the history ends with {name} = {old}, and the state has {value}")


def _check_row(row: Row, numbers: Row, when: float) -> float:
    """The time of a row; raises where the row has other columns or other kinds of numbers than the
    engine and the algorithm report, or comes before ``when``.
    """
    for key, value in row.items():
        counted, timed = key in COUNTED, key in TIMED
        if counted or timed:
            possible = type(value) is (int if counted else float) and 0 <= value < math.inf
            possible &= key != "staleness" or value <= row["round"]
        else:
            kinds = {type(value), type(numbers.get(key))}
            possible = key in numbers and (len(kinds) == 1 or type(None) in kinds)
        if not possible:
            raise ValueError(f"the history has {key} = {value!r:.40} in round {row['round']}")
    if not numbers.keys() <= row.keys():
        raise ValueError(f"the history lacks numbers that are reported in round {row['round']}")
    if row.get("time", when) < when:
        raise ValueError(f"the history goes back in time in round {row['round']}")
    return row.get("time", when)
