"""What every engine is asked for and returns, and what it refuses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.engines.event_log import Log
from quorate.engines.federated_data import FederatedData
from quorate.rounds import Algorithm, Outcome, Round, visibility

Watch = Callable[[dict[str, Any], Any], None]  # called with a row of the history and the state


class Engine(Protocol):
    """What carries the messages of an algorithm to the clients and their answers to the server."""

    def run(
        self,
        algorithm: Algorithm,
        federation: FederatedData,
        *,
        seed: int = 0,
        watch: Sequence[Watch] = (),
        resume: bool = False,
        max_rounds: int | None = None,
    ) -> Run:
        """Run an algorithm until it is done."""
        ...

    def aside(self) -> Engine:
        """The engine of runs beside the main one, such as a certificate's."""
        ...


class EventSettings(Protocol):
    """The settings that all engines share in which clients answer at different times."""

    @property
    def block_size(self) -> int:
        """Clients that step together at most."""
        ...

    @property
    def keep_rows(self) -> int:
        """Rounds for each row of the history."""
        ...

    @property
    def checkpoint(self) -> str | os.PathLike[str] | None:
        """The file to keep the run in."""
        ...

    @property
    def every(self) -> int:
        """Rounds between two writes of the checkpoint."""
        ...


class ClientError(RuntimeError):
    """A client's step raised; ``clients`` names it, ``round`` counts from 1."""

    def __init__(self, text: str, clients: tuple[str, ...], round_: int) -> None:
        super().__init__(text)
        self.clients, self.round = clients, round_


@dataclass(frozen=True, eq=False)
class Run:
    """What a run leaves.

    Attributes
    ----------
    state : the server's last state
    outcome : why it ended, and what to do about it
    history : one row a round: round (from 1), seconds (wall, of this round), bytes_up, bytes_down,
        and what the algorithm reports
    messages : one row for each message type and direction: message, direction, count, bytes
    rounds : finished rounds
    active : for each round the clients that answered
    memories : for each client its memory (arrays with a leading axis of 1), None before its first
        message
    exchanged : (2, N) bytes from and to each client, where the engine counts them
    log : of an asynchronous engine, what ``Replay`` needs
    """

    state: Any
    outcome: Outcome
    history: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    rounds: int
    active: Sequence[tuple[int, ...]]
    memories: tuple[Any, ...]
    exchanged: NDArray[np.int64] | None = None
    log: Log | None = None

    def by_client(self, n_clients: int) -> NDArray[np.int64]:
        """(2, N) bytes from and to each client; in a round without delays all that answer exchange
        equal sizes.
        """
        if self.exchanged is not None:
            return self.exchanged
        total = np.zeros((2, n_clients), np.int64)
        for row, ids in zip(self.history, self.active, strict=True):
            total[:, list(ids)] += np.array([[row["bytes_up"]], [row["bytes_down"]]]) // len(ids)
        return total


def refused(algorithm: Algorithm, ask: Round, n: int, flying: int = 0) -> None:
    """Refuse a request that no engine can carry out; ``flying``: clients still to answer earlier
    messages.
    """
    handler(algorithm.on_client, type(ask.message), algorithm)
    to = range(n) if ask.to is None else ask.to
    if (
        not len(to) + flying
        or len(set(to)) != len(to)
        or min(to, default=0) < 0
        or max(to, default=0) >= n
    ):
        raise ValueError(f"Round.to needs different clients in 0..{n - 1}, got {ask.to}")
    for name, how in visibility(type(ask.message)).items():
        value = getattr(ask.message, name)
        if how == "version" and not isinstance(value, np.ndarray | None):
            raise TypeError(
                f"{type(ask.message).__name__}.{name} needs an array, got a {type(value).__name__}"
            )
        if how == "each" and value is not None and np.shape(value)[:1] != (n,):
            raise ValueError(
                f"{type(ask.message).__name__}.{name} needs one row for each of the {n} clients "
                f"(whoever is asked), got shape {np.shape(value)}"
            )


def handler(handlers: Mapping[type, Any], kind: type, algorithm: Algorithm) -> Any:
    """The function for a message or an upload."""
    if kind in handlers:
        return handlers[kind]
    known = ", ".join(sorted(each.__name__ for each in handlers))
    raise TypeError(
        f"{type(algorithm).__name__} has no function for {kind.__name__}; it has {known}"
    )


def plain(value: Any) -> Any:
    """A number as a Python number."""
    return (
        value.item()
        if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0
        else value
    )
