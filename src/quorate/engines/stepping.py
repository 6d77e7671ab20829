"""The clients of an asynchronous run: their rows, their memories, the messages that they are still
to answer, and the step that answers them.

All clients who answer in one round step together where their messages, memories and rows are of one
kind; otherwise they step in groups of one kind each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Block, stream
from quorate.engines.batching import Memories, Rows
from quorate.engines.engine import ClientError, check_request
from quorate.engines.federated_data import FederatedData
from quorate.engines.in_flight import Flight, Kind
from quorate.engines.run_record import RunRecord
from quorate.rounds import (
    Algorithm,
    Combiner,
    Conclude,
    Round,
    combine,
    encoded_size,
    members,
    settled,
)

Ids = NDArray[np.int64]


class Answers(NamedTuple):
    """The clients' answers of a round that is not yet finished."""

    ids: tuple[int, ...]  # ascending
    combined: Any  # what the server receives
    size: int  # bytes from each client
    staleness: int  # rounds since the oldest message was sent
    memories: list[tuple[Ids, Any]]  # of the clients after this round


class Clients:
    """All clients of a run that an engine simulates.

    Attributes
    ----------
    rows : their data
    memories : the memory of each client between two messages
    flight : the messages that they are still to answer
    """

    def __init__(
        self, algorithm: Algorithm, federation: FederatedData, block_size: int, seed: int
    ) -> None:
        self.algorithm, self.on_client, self.seed = algorithm, algorithm.on_client, seed
        self.names = tuple(map(str, federation.clients))
        self.rows, self.memories = Rows(federation, block_size), Memories(len(self.names))
        self.flight = Flight(len(self.names), algorithm.donates)
        # who answered last, as a tuple and as an array: they are often asked next
        self._last: tuple[tuple[int, ...] | None, Ids] = (None, np.empty(0, np.int64))
        self._sizes: dict[Any, int] = {}  # bytes of one client's upload, by its form

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
        ids, oldest, alike = self.flight.together(due, self.memories.place, self.rows.sort)
        groups = [ids] if alike and len(ids) <= self.rows.together else self._groups(ids)
        whole = len(ids) == self.flight.n  # who all step together do so again and again
        memories, uploads = list[tuple[Ids, Any]](), list[Any]()
        for group in groups:
            try:
                memory, upload = self._step(group, self.rows.kept(group) if whole else None)
            except Exception as error:
                raise self._client_error(group, error, round_, advice) from error
            memories.append((group, memory))
            uploads.append(upload)
        order, combined, size = self._combined(groups, uploads)
        self._last = order, ids
        return Answers(order, combined, size, round_ - oldest, memories)

    def finish(self, due: Ids, answers: Answers) -> None:
        """Finish the round: these clients have answered, and their new memories are stored."""
        for group, memory in answers.memories:
            self.memories.put(group, memory)
        self.flight.answered(due, answers.size)

    def conclusions(self, record: RunRecord) -> Any:
        """What all clients keep that belongs to the answer, counted in the record."""
        n, flight = self.flight.n, self.flight
        parts = [([i], self._conclusion(i)) for i in range(n)]
        kind, ask = type(parts[0][1]), encoded_size(Conclude())
        sizes = np.array([encoded_size(upload) for _, upload in parts])
        flight.answer_bytes += sizes
        flight.message_bytes += ask
        record.count(Conclude, "down", n, n * ask)
        record.count(kind, "up", n, int(sizes.sum()))
        return combine(kind, parts)

    def _conclusion(self, i: int) -> Any:
        """What one client keeps that belongs to the answer."""
        memory, block = self.memories.of(np.array([i])), self.rows.alone[i]
        turn = int(self.flight.turns[i])
        streams = lambda p: stream(self.seed, block.names[p], turn)  # noqa: E731
        return self.on_client[Conclude](memory, Conclude(), block, streams)[1]

    def _groups(self, ids: Ids) -> list[Ids]:
        """The groups of clients who step together: of one kind of message, of memory and of rows,
        each in ascending order.
        """
        flight, parted, size = self.flight, dict[Any, list[int]](), self.rows.together
        marks = zip(
            flight.kind[flight.slots[ids]],
            self.memories.place[ids],
            self.rows.sort[ids],
            strict=True,
        )
        for i, mark in zip(ids.tolist(), marks, strict=True):
            parted.setdefault(mark, []).append(i)
        return [
            np.array(group[k : k + size])
            for group in parted.values()
            for k in range(0, len(group), size)
        ]

    def _step(self, ids: Ids, block: Block | None = None) -> tuple[Any, Any]:
        """(memory, upload) of clients who step together."""
        block = self.rows.block(ids) if block is None else block
        message, turns = self.flight.message(ids), self.flight.turns
        begun = self.memories.place[ids[0]] >= 0
        memory = self.memories.of(ids) if begun else settled(self.algorithm.client_start(block))
        step = self.on_client[type(message)]
        return step(
            memory,
            message,
            block,
            lambda p: stream(self.seed, block.names[p], int(turns[ids[p]])),
        )

    def _client_error(self, ids: Ids, error: Exception, round_: int, advice: str) -> ClientError:
        """The error that names those of a group whose step raises."""
        failing = [i for i in ids if self._raises(i)] or ids
        names = tuple(self.names[i] for i in failing)
        message = self.flight.kind_of(ids[0]).message
        return ClientError.of(names, message, round_ + 1, error, advice)

    def _raises(self, i: int) -> bool:
        try:
            self._step(np.array([i]))
        except Exception:
            return True
        return False

    def _combined(
        self, groups: list[Ids], uploads: Sequence[Any]
    ) -> tuple[tuple[int, ...], Any, int]:
        """(clients, what the server receives, bytes from each client)."""
        first, ids = uploads[0], groups[0]
        if len(groups) == 1 and (size := self._sizes.get(known := (len(ids), *_laid(first)))):
            return tuple(ids.tolist()), first, size
        fold = Combiner(type(first))
        for group, upload in zip(groups, uploads, strict=True):
            fold.add(group, upload)
        order, combined = fold.result()
        if (size := self._sizes.get(form := (fold.upload_class, *fold.forms))) is None:
            self._sizes = {} if len(self._sizes) > 1000 else self._sizes
            size = self._sizes[form] = encoded_size(members(first, slice(0, 1)))
        if len(groups) == 1 and all(
            getattr(combined, name) is getattr(first, name) for name, _ in fold.fields
        ):
            # what is laid out like this is in order, and combined as it is
            self._sizes[known] = size
        return order, combined, size


def _laid(upload: object) -> list[Any]:
    """The class, shapes and kinds of an upload: all that ``Combiner`` checks."""
    parts = [
        (
            (value.dtype, value.shape, value.flags.c_contiguous)
            if type(value) is np.ndarray
            else type(value)
        )
        for value in vars(upload).values()
    ]
    return [type(upload), *parts]
