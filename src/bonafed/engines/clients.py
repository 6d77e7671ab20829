"""Who answers the server's messages: rows in this process, or sites behind a transport.

The loop of an asynchronous engine knows no more of the clients than this: it sends a message, asks
for the answers of those who are due, and says when the round is finished. `Flight` keeps what is on
its way in either case, so that requests are checked and bytes are counted alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Block
from bonafed.engines.checkpoint import Stored
from bonafed.engines.engine import check_request
from bonafed.engines.in_flight import Flight, Kind
from bonafed.engines.run_record import RunRecord
from bonafed.rounds import Algorithm, Conclude, Round, combine, encoded_size

Ids = NDArray[np.int64]


class Answers(NamedTuple):
    """The clients' answers of a round that is not yet finished."""

    ids: tuple[int, ...]  # ascending
    combined: Any  # what the server receives
    size: int  # bytes from each client
    staleness: int  # rounds since the oldest message was sent
    memories: list[tuple[Ids, Any]]  # of the clients after this round, where they are here


class Clients:
    """The base of who answers.

    Attributes
    ----------
    names : of the clients
    n_features : of their rows
    example : the rows of one of them, where they are in this process
    flight : the messages that they are still to answer
    """

    example: Block | None = None

    def __init__(self, algorithm: Algorithm, names: tuple[str, ...], n_features: int) -> None:
        self.algorithm, self.names, self.n_features = algorithm, names, n_features
        self.flight = Flight(len(names), algorithm.donates)
        # who answered last, as a tuple and as an array: they are often asked next
        self._last: tuple[tuple[int, ...] | None, Ids] = (None, np.empty(0, np.int64))

    # ---- messages to them

    def send(self, ask: Round, round_: int) -> tuple[Ids, Kind]:
        """Put a message on its way; refuse a request that cannot be carried out."""
        flight = self.flight
        known = None if (key := flight.key(ask.message)) is None else flight.alike.get(key)
        if known is None:
            check_request(self.algorithm, ask, flight.n, flight.count)
            known = flight.new(key, ask.message)
        to, least = self._positions(ask), ask.wait_for
        most = flight.count + len(to)
        if not most or (least is not None and not 1 <= least <= most):
            self._refuse(ask, round_)
        if not flight.send(known, ask.message, to, round_):
            self._refuse(ask, round_)
        return to, known

    def _positions(self, ask: Round) -> Ids:
        """The clients that are asked; -1 for what is no whole number: NumPy would round it."""
        if ask.to is None:
            return self.flight.everybody
        if ask.to is self._last[0]:
            return self._last[1]
        to = np.array(ask.to)
        if to.dtype == np.int64:
            return to
        return to.astype(np.int64) if to.dtype.kind == "i" or not len(to) else np.full(1, -1)

    def _refuse(self, ask: Round, round_: int) -> NoReturn:
        """Raise the error that says why a request cannot be carried out."""
        flight = self.flight
        check_request(self.algorithm, ask, flight.n, flight.count)
        to = range(flight.n) if ask.to is None else ask.to
        if not all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in to):
            raise TypeError(
                f"Round.to needs the clients' positions, whole numbers in 0..{flight.n - 1}, got"
                f" {ask.to}"
            )
        for i in to:
            if (last := flight.since[i]) >= 0:
                raise ValueError(
                    f"client {self.names[i]} is asked in round {round_ + 1} and has not answered"
                    f" the message of round {last + 1}: ask those who answered, to=tuple(ids), or"
                    " wait for all (wait_for=None)"
                )
        raise ValueError(
            f"Round.wait_for must be in 1..{flight.count + len(to)}, got {ask.wait_for}"
        )

    # ---- answers from them

    def answers(self, due: Ids, round_: int, advice: str) -> Answers:
        """The answers of the clients who are due; nothing is changed yet.

        ``advice`` is the end of the error that names the clients whose step raised.
        """
        raise NotImplementedError

    def finish(self, due: Ids, answers: Answers) -> None:
        """Finish the round: these clients have answered."""
        self.flight.answered(due, answers.size)

    def undo(self) -> None:
        """Go back to the last finished round."""
        self.flight.undo()

    def conclusions(self, record: RunRecord) -> Any:
        """What all clients keep that belongs to the answer, counted in the record."""
        parts = [([i], upload) for i, upload in enumerate(self._conclusions())]
        n, flight, kind, ask = len(parts), self.flight, type(parts[0][1]), encoded_size(Conclude())
        sizes = np.array([encoded_size(upload) for _, upload in parts])
        flight.answer_bytes += sizes
        flight.message_bytes += ask
        record.count(Conclude, "down", n, n * ask)
        record.count(kind, "up", n, int(sizes.sum()))
        return combine(kind, parts)

    def _conclusions(self) -> Sequence[Any]:
        """What every client keeps that belongs to the answer, in their order."""
        raise NotImplementedError

    # ---- their memories, where they are in this process

    def stored(self) -> Stored:
        """For a checkpoint of all parties together; empty where each client keeps its own."""
        return ()

    def restore(self, memories: Stored) -> None:
        """Set the memories to those in a checkpoint."""

    def each(self) -> tuple[Any, ...]:
        """The memory of every client alone; empty where each client keeps its own."""
        return ()
