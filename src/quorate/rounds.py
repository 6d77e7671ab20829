"""A federated algorithm as pairs of pure functions, one pair per message type; no engine is known here.

    on_client[Message](memory, message, data, rng) -> (memory, upload)        at the owner of the data
    on_server[Upload](state, ids, combined)        -> (state, Round | Done)   at the server

Who sees what stands in the types. An upload's field is ``Sum`` or ``Max`` (the server receives the combination over the
clients that answered, never a single client's number) or ``Each`` (one row per client). A message's ``Each`` field
reaches each client as its own row; every other field reaches all of them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, dataclass_transform, get_type_hints, runtime_checkable

import numpy as np

from quorate.arrays import Array, Block, Streams

Sum = Annotated[Array, "sum"]
Max = Annotated[Array, "max"]
Each = Annotated[Array, "each"]


@dataclass_transform(frozen_default=True, eq_default=False)
def record(cls: type) -> type:
    """A frozen dataclass that can travel and be stored: a message, an upload, a state or a client's memory.

    Its fields hold arrays, numbers, strings, booleans, None, enumeration members, other records, or tuples and
    string-keyed dicts of these. The class name is its name on the wire, so it must be unique.
    """
    raise NotImplementedError


def visibility(cls: type) -> dict[str, str]:
    """``{field: "sum" | "max" | "each" | "all"}``: what the types of a message or an upload disclose."""
    raise NotImplementedError


class Stop(enum.Enum):
    """Why a run ended."""

    OPTIMAL = "optimal"  # gap or residual within tolerance
    MAX_ROUNDS = "max_rounds"  # the cap was met first: never called converged
    STALLED = "stalled"  # no further progress within rounding
    INTERRUPTED = "interrupted"  # by the user; can be resumed
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"


@record
class Outcome:
    """Why the run ended, and in words what to do about it."""

    stop: Stop
    text: str


@record
class Round:
    """The server's next request: ``message`` to the clients ``to`` (None: all), going on after ``wait_for`` answers."""

    message: Any
    to: tuple[int, ...] | None = None
    wait_for: int | None = None


@record
class Done:
    """The server needs no further round."""

    outcome: Outcome


@runtime_checkable
class Algorithm(Protocol):
    """What an engine runs."""

    on_client: Mapping[type, Callable[[Any, Any, Block, Streams], tuple[Any, Any]]]
    on_server: Mapping[type, Callable[[Any, Sequence[int], Any], tuple[Any, Round | Done]]]

    def client_start(self, data: Block) -> Any:
        """The memory of the block's clients before the first message (leading axis: clients), or None."""
        ...

    def server_start(self, n_clients: int) -> tuple[Any, Round]:
        """The server's first state and request."""
        ...

    def report(self, state: Any) -> dict[str, float]:
        """Numbers a person would plot, after each round; the engine adds round, seconds and bytes."""
        ...
