"""Checkpoints: the state of a run after a round, in one file, written by the one codec. That of a
private run has a second file (`bonafed.engines.client_part`).

A checkpoint belongs to (data, algorithm, seed): it is refused when one of them differs. It is
written to a file beside the old one, which it then replaces in one step, so that a crash while
writing leaves the old one intact.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bonafed.codec import Form
from bonafed.engines.federated_data import Known
from bonafed.engines.run_record import Events, Sets
from bonafed.rounds import CodecError, Done, Round, decode, encode, record
from bonafed.storage import OWN, read_in_turns, write_in_turns, write_whole

T = TypeVar("T")
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


def save_in_turns(path: Path, value: object, number: int) -> None:
    """Write a record where every round counts in microseconds: it outlives the process, and not
    the machine's power. ``number``: how many records the process has written before this one.
    """
    write_in_turns(path, number, encode(value), anew=number == 0, sync=False)


def load(path: Path, kind: type[T]) -> T:
    """The checkpoint in a file, which an engine wrote as a record of this class.

    Raises
    ------
    CheckpointError : no file, or one that is damaged, foreign, or of another version.
    """
    try:
        value = decode(read_in_turns(path) or path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"no checkpoint at {path}: nothing to resume. Begin a new run (resume=False)"
        ) from None
    except CodecError as error:
        raise CheckpointError(
            f"the checkpoint {path} cannot be read: {error}. Restore it from a copy, or begin a"
            " new run (resume=False)"
        ) from error
    if type(value) is not kind:
        raise CheckpointError(
            f"{path} holds a {type(value).__name__}, no checkpoint: give the path of a checkpoint"
        )
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
    def of(
        cls,
        checkpoint: str | os.PathLike[str] | None,
        run: Sequence[object],
        federation: Known,
        seed: int,
    ) -> RunFile:
        """The file for a run of an algorithm, and what else it depends on, on these data; raises
        where there is no folder.
        """
        path = None if checkpoint is None else Path(checkpoint)
        if path and not path.parent.is_dir():
            raise FileNotFoundError(
                f"no folder {path.parent} for the checkpoint {path.name}: create it first"
            )
        # most runs are not kept, and both take longer than a round
        digests = tuple(federation.digests()) if path else ()
        algorithm = " on ".join(map(describe, run)) if path else ""
        return cls(path, algorithm, tuple(map(str, federation.clients)), digests, seed)

    @property
    def run(self) -> dict[str, Any]:
        """The fields of a ``Checkpoint`` that say which run it is of."""
        return {name: getattr(self, name) for name in ("algorithm", "clients", "digests", "seed")}

    def advice(self, engine: str) -> str:
        """How to go on with the run; ``engine``: one that would keep it."""
        if self.path is None:
            return f"nothing was saved: to resume a run give {engine}"
        return f"the last finished round is in {self.path}: go on from it with resume=True"

    def load(self) -> Checkpoint:
        """The checkpoint in the file."""
        assert self.path is not None, "a run without a file cannot be resumed"
        return load(self.path, Checkpoint)

    def check(self, kept: Checkpoint) -> None:
        """Refuse a checkpoint of other data, another algorithm or another seed."""
        again = (
            "Resume with what the checkpoint was written with, or begin a new run (resume=False)"
        )
        if kept.clients != self.clients:
            raise CheckpointError(
                f"the checkpoint is of {other_clients(kept.clients, self.clients)}. {again}"
            )
        pairs = zip(self.clients, kept.digests, self.digests, strict=True)
        if changed := [name for name, old, new in pairs if old != new]:
            raise CheckpointError(
                f"the data of {_listed(changed)} differ from those of the checkpoint. {again}"
            )
        if kept.algorithm != self.algorithm:
            raise CheckpointError(
                f"the checkpoint is of {_difference(kept.algorithm, self.algorithm)}. {again}"
            )
        if kept.seed != self.seed:
            raise CheckpointError(
                f"the checkpoint is of seed {kept.seed}, got seed {self.seed}. {again}"
            )


def _difference(old: str, new: str) -> str:
    """Both descriptions, from shortly before the first difference."""
    parted = next(
        (k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    start = max(parted - 40, 0)
    dots, part = "…" * bool(start), slice(start, start + 160)
    return f"{dots}{old[part]}, got {dots}{new[part]}"


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
        return _array_described(value)
    if isinstance(value, os.PathLike):  # where a file lies is no part of a run
        return PATH
    described = getattr(value, "described", None)  # of values that their fields do not describe
    if described is not None and not isinstance(value, type):
        return described()
    if isinstance(value, functools.partial):
        return f"partial({_listed_parts((value.func, value.args, value.keywords))})"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, str | int | float | complex | bytes | np.generic | None):
        return repr(value)
    if isinstance(value, Mapping):
        pairs = (f"{describe(key)}: {describe(part)}" for key, part in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple | range):
        return f"({_listed_parts(value)})"
    if isinstance(value, set | frozenset):
        return f"set({', '.join(sorted(map(describe, value)))})"
    parts = ", ".join(f"{name}={describe(part)}" for name, part in _fields_of(value).items())
    return f"{type(value).__name__}({parts})"


def _listed_parts(parts: Iterable[object]) -> str:
    return ", ".join(map(describe, parts))


def _array_described(array: NDArray[Any]) -> str:
    """Shape, kind and digest of an array; its entries where these are Python objects, whose bytes
    are pointers.
    """
    if array.dtype.hasobject:
        return f"array{list(array.shape)}:{describe(array.ravel().tolist())}"
    digest = hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=8).hexdigest()
    return f"array{list(array.shape)}:{array.dtype}:{digest}"


def _fields_of(value: object) -> dict[str, Any]:
    """The fields with which a dataclass is made, or the attributes of any other object."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: getattr(value, name) for name in names}
    return dict(sorted(getattr(value, "__dict__", {}).items()))


def packed(history: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as columns where every row has the same keys and kinds, which is small and quick to
    write at any length.
    """
    if not history or any(row.keys() != history[0].keys() for row in history):
        return tuple(map(dict, history))
    return {key: _column([row[key] for row in history]) for key in history[0]}


def _column(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    return np.asarray(values) if kinds in ({int}, {float}, {bool}) else tuple(values)


def unpacked(history: tuple[dict[str, Any], ...] | dict[str, Any]) -> list[dict[str, Any]]:
    """The rows from which ``packed`` made these columns."""
    if isinstance(history, tuple):
        return list(history)
    columns = [
        column.tolist() if isinstance(column, np.ndarray) else column for column in history.values()
    ]
    if len(lengths := {len(column) for column in columns}) > 1:
        raise ValueError(f"the columns of the history have {sorted(lengths)} rows")
    return [dict(zip(history, row, strict=True)) for row in zip(*columns, strict=True)]
