"""Whether the parts of a checkpoint fit each other: rounds the history, answers turns and traffic,
memories the clients, and the state its algorithm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from bonafed.arrays import Block
from bonafed.codec import FIELDS
from bonafed.engines.checkpoint import Checkpoint
from bonafed.engines.engine import check_request, reported
from bonafed.rounds import Algorithm, Round

Row: TypeAlias = Mapping[str, Any]
Bytes: TypeAlias = tuple[int, int]  # from and to the clients


def check_run(
    kept: Checkpoint, algorithm: Algorithm, block: Block | None, n: int, everybody: bool, asked: int
) -> None:
    """Raise where the parts of a checkpoint contradict each other or the algorithm.

    ``block`` holds the rows of some clients, None where every client keeps its memory itself.
    ``everybody``: whether the clients have memories
    before they are asked. ``asked``: how many are still to answer.
    """
    first, _ = algorithm.server_start(n)
    if type(kept.state) is not type(first):
        raise ValueError(
            f"state is a {type(kept.state).__name__}, and must be a {type(first).__name__}"
        )
    if block is not None:
        _check_memories(kept, n, everybody)
        _check_kinds(kept, algorithm, block)
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
            raise ValueError(
                f"traffic has {total} messages {way}, and the clients' turns make {answers}"
            )
    if isinstance(kept.ask, Round):
        check_request(algorithm, kept.ask, n, asked)


def _check_kinds(kept: Checkpoint, algorithm: Algorithm, block: Block) -> None:
    """Raise where memories are not of the kind with which the clients of the block start."""
    # a private client draws the key of its noise when it starts
    start = None if algorithm.private else algorithm.client_start(block)
    for _, memory in kept.memories:
        other = type(memory) not in FIELDS if start is None else type(memory) is not type(start)
        if memory is not start and other:
            raise ValueError(f"a client's memory is a {type(memory).__name__}")


def _check_memories(kept: Checkpoint, n: int, everybody: bool) -> None:
    ids = [i for index, _ in kept.memories for i in index.tolist()]
    if len(set(ids)) < len(ids) or not set(ids) <= set(range(n)):
        raise ValueError(f"memories are of clients {sorted(ids)[:9]}: each of 0..{n - 1} has one")
    must = set(range(n)) if everybody else set(np.flatnonzero(kept.turns).tolist())
    if set(ids) != must:
        odd = sorted(set(ids) ^ must)
        raise ValueError(f"memories and turns do not fit each other: clients {odd[:9]}")


def traffic(kept: Checkpoint, way: str) -> tuple[int, int]:
    """Messages in one direction and their bytes."""
    listed = [(count, size) for _, known, count, size in kept.traffic if known == way]
    return sum(count for count, _ in listed), sum(size for _, size in listed)


COUNTED = ("round", "bytes_up", "bytes_down", "answered", "staleness")  # of a row, by the engine
TIMED = ("seconds", "time")


def check_rows(
    rows: Sequence[Row], kept: Checkpoint, algorithm: Algorithm, more: Bytes = (0, 0)
) -> None:
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
    if rows and last == kept.round:
        _check_report(rows[-1], numbers)


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
            possible = key in numbers and (
                type(value) is type(numbers[key]) or value is None or numbers[key] is None
            )
        if not possible:
            raise ValueError(f"the history has {key} = {value!r:.40} in round {row['round']}")
    if not numbers.keys() <= row.keys():
        raise ValueError(f"the history lacks numbers that are reported in round {row['round']}")
    if row.get("time", when) < when:
        raise ValueError(f"the history goes back in time in round {row['round']}")
    return row.get("time", when)


def _check_report(row: Row, numbers: Row) -> None:
    """Raise where a row of the last round is not what the algorithm reports of its state."""
    for name, value in numbers.items():
        old = row[name]
        same = old == value or (
            isinstance(value, float)
            and isinstance(old, float)
            # another processor may round otherwise
            and np.isclose(old, value, rtol=1e-6, atol=1e-12, equal_nan=True)
        )
        if not same:
            raise ValueError(f"the history ends with {name} = {old}, and the state has {value}")
