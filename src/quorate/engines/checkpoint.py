"""A run's state after a round, in one file, through the one codec.

A checkpoint belongs to (data, algorithm, seed): it is refused when one of them differs. It is
written to a file beside the old one, which it then replaces in one step, so that a crash while
writing leaves the old one intact.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quorate.codec import renamed
from quorate.engines.federated_data import FederatedData
from quorate.rounds import CodecError, Done, Round, decode, encode, join, members, record

T = TypeVar("T")
Traffic = Mapping[tuple[str, str], tuple[int, int]]  # (message, "down" | "up") -> (count, bytes)


@dataclass(frozen=True, eq=False)
class Memories:
    """Each client's memory, kept in the groups in which it was computed."""

    place: tuple[tuple[int, int] | None, ...]  # client -> (group, position in it)
    groups: Mapping[int, tuple[NDArray[np.intp], Any]]

    @classmethod
    def none(cls, n_clients: int) -> Memories:
        return cls((None,) * n_clients, {})

    def has(self, i: int) -> bool:
        return self.place[i] is not None

    def of(self, index: NDArray[np.intp]) -> Any:
        """The memory of these clients, clients leading."""
        at = [self.place[i] for i in index]
        group, parts = at[0], list[Any]()
        if group is not None and np.array_equal(self.groups[group[0]][0], index):
            return self.groups[group[0]][1]
        for place in at:
            assert place is not None
            parts.append(members(self.groups[place[0]][1], slice(place[1], place[1] + 1)))
        return join(parts)

    def updated(self, new: Sequence[tuple[NDArray[np.intp], Any]]) -> Memories:
        """With the memories of some clients replaced; groups nobody is left in are dropped."""
        place, start = list(self.place), max(self.groups, default=-1) + 1
        for number, (index, _) in enumerate(new, start):
            for position, i in enumerate(index.tolist()):
                place[i] = number, position
        used = {at[0] for at in place if at is not None}
        groups = dict(self.groups) | dict(enumerate(new, start))
        return Memories(
            tuple(place), {number: group for number, group in groups.items() if number in used}
        )

    def stored(self) -> tuple[tuple[NDArray[np.intp], Any], ...]:
        """The groups, without the rows that newer groups replaced."""
        kept = []
        for number, (index, memory) in self.groups.items():
            rows_ = np.flatnonzero(
                [self.place[i] == (number, p) for p, i in enumerate(index.tolist())]
            )
            kept.append(
                (index, memory)
                if rows_.size == index.size
                else (index[rows_], members(memory, rows_))
            )
        return tuple(kept)


@dataclass(frozen=True, eq=False)
class Progress:
    """A run after its last finished round."""

    round: int
    state: Any
    ask: Round | Done
    memories: Memories
    turns: NDArray[np.int64]
    traffic: Traffic


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read or belongs to another run."""


@record
class Checkpoint:
    """All that a run needs to go on as if it had not stopped."""

    algorithm: str
    clients: tuple[str, ...]
    digests: tuple[str, ...]
    seed: int
    round: int
    state: Any
    ask: Round | Done
    # (clients, their memory with clients leading)
    memories: tuple[tuple[NDArray[np.intp], Any], ...]
    turns: NDArray[np.int64]  # (N,) messages each client has received
    traffic: tuple[tuple[str, str, int, int], ...]  # message, direction, count, bytes
    history: Any  # rows, see packed
    active: Any  # (distinct sets of clients, which of them answered in each round)


def save(path: Path, value: Any) -> None:
    """Write a record in one step: either the old file stands or the new one."""
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(encode(value))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    if os.name != "posix":
        return  # elsewhere a folder cannot be synchronised
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(path: Path, kind: type[T] = Checkpoint) -> T:
    """The checkpoint in a file, of an engine that writes ``kind``.

    Raises
    ------
    CheckpointError : no file, or one that is damaged, foreign, or of another version.
    """
    try:
        found = decode(path.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(
            f"no checkpoint at {path}: nothing to resume. Run with resume=False"
        ) from None
    except CodecError as error:
        raise CheckpointError(
            f"the checkpoint {path} cannot be read: {error}. Restore it from a copy, or run with"
            " resume=False"
        ) from error
    if type(found) is not kind:
        if type(found).__name__.endswith("Checkpoint"):
            raise CheckpointError(
                f"{path} holds a checkpoint of another kind of engine: resume it with that one"
            )
        raise CheckpointError(
            f"{path} holds a {type(found).__name__}, no checkpoint: give the path of a checkpoint"
        )
    return found


@dataclass(frozen=True)
class RunFile:
    """The file of a run's checkpoints, and what says that a checkpoint is of this run.

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
        algorithm: str,
        federation: FederatedData,
        seed: int,
    ) -> RunFile:
        """For the run of a described algorithm on this data; raises where there is no folder."""
        path = None if checkpoint is None else Path(checkpoint)
        if path and not path.parent.is_dir():
            raise FileNotFoundError(
                f"no folder {path.parent} for the checkpoint {path.name}: create it first"
            )
        digests = tuple(federation.digests()) if path else ()
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

    def load(self, kind: type[T]) -> T:
        """The checkpoint, of an engine that writes ``kind``."""
        assert self.path is not None, "a run without a file cannot be resumed"
        return load(self.path, kind)

    def check(self, found: Checkpoint) -> None:
        """Refuse a checkpoint of other data, another algorithm or another seed."""
        again = "Resume with what the checkpoint was written with, or run with resume=False"
        if found.clients != self.clients:
            odd = sorted(set(found.clients) ^ set(self.clients)) or ["(same names, other order)"]
            raise CheckpointError(
                f"the checkpoint is of other clients; not in both: {_listed(odd)}. {again}"
            )
        pairs = zip(self.clients, found.digests, self.digests, strict=True)
        if changed := [name for name, old, new in pairs if old != new]:
            raise CheckpointError(
                f"the data of {_listed(changed)} differ from those of the checkpoint. {again}"
            )
        if _timeless(found.algorithm) != _timeless(self.algorithm):
            raise CheckpointError(
                f"the checkpoint is of {_difference(found.algorithm, self.algorithm)}. {again}"
            )
        if found.seed != self.seed:
            raise CheckpointError(
                f"the checkpoint is of seed {found.seed}, got seed {self.seed}. {again}"
            )


def _timeless(description: str) -> str:
    """A description without the modules of quorate, which move, and with the words of today."""
    return renamed(re.sub(r"\bquorate\.(?:[a-z_]\w*\.)+", "", description))


def _difference(old: str, new: str) -> str:
    """Both, from shortly before where they part."""
    parted = next(
        (k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    at = max(parted - 40, 0)
    return f"{'…' * bool(at)}{old[at : at + 160]}, got {'…' * bool(at)}{new[at : at + 160]}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def describe(value: Any) -> str:
    """What an algorithm is, as text that is the same in every process: class names, fields, digests
    of arrays.
    """
    # pointers: not the same in every process
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return f"array{list(value.shape)}:{describe(value.ravel().tolist())}"
    if isinstance(value, np.ndarray):
        digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        return f"array{list(value.shape)}:{value.dtype}:{digest}"
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if hasattr(value, "described") and not isinstance(value, type):  # what its fields cannot say
        return value.described()
    if isinstance(value, functools.partial):
        return f"partial({', '.join(map(describe, (value.func, value.args, value.keywords)))})"
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, str | int | float | complex | bytes | np.generic | None):
        return repr(value)
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{describe(key)}: {describe(part)}" for key, part in value.items())
            + "}"
        )
    if isinstance(value, list | tuple | range):
        return f"({', '.join(map(describe, value))})"
    if isinstance(value, set | frozenset):
        return f"set({', '.join(sorted(map(describe, value)))})"
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: getattr(value, field.name)
            for field in dataclasses.fields(value)
            if field.init
        }
    else:
        fields = dict(sorted(getattr(value, "__dict__", {}).items()))
    parts = ", ".join(f"{name}={describe(part)}" for name, part in fields.items())
    return f"{type(value).__name__}({parts})"


def packed(history: Sequence[Mapping[str, Any]]) -> Any:
    """Rows as columns where every row has the same keys and kinds: small and quick to write at any
    length.
    """
    if not history or any(row.keys() != history[0].keys() for row in history):
        return tuple(map(dict, history))
    return {key: _column([row[key] for row in history]) for key in history[0]}


def _column(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    return np.asarray(values) if kinds in ({int}, {float}, {bool}) else tuple(values)


def unpacked(history: Any) -> list[dict[str, Any]]:
    """The rows again."""
    if isinstance(history, tuple):
        return list(history)
    columns = [
        column.tolist() if isinstance(column, np.ndarray) else column for column in history.values()
    ]
    return [dict(zip(history, row, strict=True)) for row in zip(*columns, strict=True)]
