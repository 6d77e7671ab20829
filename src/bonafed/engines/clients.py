"""Who answers the server's messages: rows in this process, or sites behind a transport.

The loop knows no more of the clients than this: it sends a message, asks for the answers of those
who are due, and says when the round is finished. `Flight` keeps what is on its way in either case,
so that requests are checked and bytes are counted alike.

All clients in this process who answer in one round step together where their messages, memories and
rows are of one kind; otherwise they step in groups of one kind each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Block, stream
from bonafed.engines.batching import Blocks, Memories, Rows
from bonafed.engines.checkpoint import Stored
from bonafed.engines.engine import ClientError, check_request
from bonafed.engines.in_flight import Flight, Kind
from bonafed.engines.run_record import RunRecord
from bonafed.rounds import (
    Algorithm,
    Combiner,
    Conclude,
    Round,
    combine,
    decode,
    encode,
    encoded_size,
    join,
    members,
    settled,
)

Ids = NDArray[np.int64]


class Answers(NamedTuple):
    """The clients' answers of a round that is not yet finished."""

    ids: tuple[int, ...]  # ascending
    combined: Any  # what the server receives
    sizes: int | Ids  # bytes from each client, one number where they are equal
    staleness: int  # rounds since the oldest message was sent
    memories: list[tuple[Ids, Any]]  # of the clients after this round, where they are here

    @property
    def size(self) -> int:
        """The bytes of all."""
        sizes = self.sizes
        return len(self.ids) * sizes if isinstance(sizes, int) else int(sizes.sum())


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
        self.flight = Flight(len(names), algorithm.mutates_state)
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
        """The clients that are asked; -1 for what is not a whole number: NumPy would round it."""
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
        sizes, flight = answers.sizes, self.flight
        flight.answered(due, sizes if isinstance(sizes, int) else 0)
        if not isinstance(sizes, int):
            flight.answer_bytes[np.array(answers.ids)] += sizes

    def undo(self) -> None:
        """Go back to the last finished round."""
        self.flight.undo()

    def conclusions(self, record: RunRecord) -> Any:
        """What all clients keep that belongs to the answer, counted in the record."""
        parts, kept = self._conclusions(), self.flight
        kind, n, ask, up = type(parts[0][1]), len(self.names), encoded_size(Conclude()), 0
        for ids, upload in parts:
            size = encoded_size(members(upload, slice(0, 1)))
            kept.answer_bytes[ids] += size
            up += len(ids) * size
        kept.message_bytes += ask
        record.count(Conclude, "down", n, n * ask)
        record.count(kind, "up", n, up)
        return combine(kind, parts)

    def _conclusions(self) -> Sequence[tuple[Any, Any]]:
        """What all clients keep that belongs to the answer, each part with its clients."""
        raise NotImplementedError

    # ---- their memories, where they are in this process

    def begin(self) -> None:
        """Let the clients of a private run draw the keys of their noise, which can so be kept
        before any answer.
        """

    def stored(self) -> Stored:
        """For a checkpoint of all parties together; empty where each client keeps its own."""
        return ()

    def restore(self, memories: Stored) -> None:
        """Set the memories to those in a checkpoint."""

    def each(self) -> tuple[Any, ...]:
        """The memory of every client by itself; empty where each client keeps its own."""
        return ()


class LocalClients(Clients):
    """All clients of a run in this process.

    Attributes
    ----------
    rows : their data
    memories : the memory of each client between two messages
    wire : whether messages and answers pass through bytes
    """

    def __init__(
        self,
        algorithm: Algorithm,
        rows: Blocks | Rows,
        clients: Sequence[Any],
        seed: int,
        wire: bool = False,
    ) -> None:
        self.rows, self.example, self.wire = rows, rows.example, wire
        super().__init__(algorithm, tuple(map(str, clients)), rows.example.n_features)
        self.on_client, self.seed = algorithm.on_client, seed
        self.memories = Memories(len(self.names))
        self._sizes: dict[Any, int] = {}  # bytes of one client's upload, by its form

    # ---- answers from them

    def answers(self, due: Ids, round_: int, advice: str) -> Answers:
        """The answers of the clients who are due; nothing is changed yet.

        ``advice`` is the end of the error that names the clients whose step raised.
        """
        ids = self.rows.arranged(due)
        oldest, alike = self.flight.together(ids, self.memories.place, self.rows.sort)
        groups = [ids] if alike and len(ids) <= self.rows.together else self._groups(ids)
        memories = list[tuple[Ids, Any]]()
        uploads = self._uploads(groups, memories, round_, advice)
        if len(groups) == 1:
            order, combined, sizes = self._alone(ids, next(uploads))
        else:
            order, combined, sizes = self._folded(groups, uploads)
        self._last = order, ids
        return Answers(order, combined, sizes, round_ - oldest, memories)

    def finish(self, due: Ids, answers: Answers) -> None:
        """Finish the round: these clients have answered, and their new memories are stored."""
        for group, memory in answers.memories:
            self.memories.put(group, memory)
        super().finish(due, answers)

    def _groups(self, ids: Ids) -> list[Ids]:
        """The groups of clients who step together: of one kind of message, of memory and of rows,
        each in their order; in fixed blocks also those who have no memory yet.
        """
        flight, size, place = self.flight, self.rows.together, self.memories.place[ids]
        if size == 1:
            return [ids[k : k + 1] for k in range(len(ids))]
        if self.rows.fixed:
            place[place < 0] = place.max()
        parted: dict[Any, list[int]] = {}
        marks = zip(flight.kind[flight.slots[ids]], place, self.rows.sort[ids], strict=True)
        for i, mark in zip(ids.tolist(), marks, strict=True):
            parted.setdefault(mark, []).append(i)
        return [
            np.array(group[k : k + size])
            for group in parted.values()
            for k in range(0, len(group), size)
        ]

    def _uploads(
        self, groups: list[Ids], memories: list[tuple[Ids, Any]], round_: int, advice: str
    ) -> Iterator[Any]:
        """What each group uploads; their new memories are added to ``memories``."""
        # who all step together do so again and again
        whole = sum(map(len, groups)) == self.flight.n
        for group in groups:
            try:
                memory, upload = self._step(group, self.flight.message(group), whole)
            except Exception as error:
                raise self._client_error(group, error, round_, advice) from error
            memories.append((group, memory))
            yield upload

    def _step(self, ids: Ids, message: Any, whole: bool = False) -> tuple[Any, Any]:
        """(memory, upload) of clients who step together."""
        block, turns = self.rows.block(ids, whole), self.flight.turns.take(ids)
        message = decode(encode(message)) if self.wire else message
        streams = lambda p: stream(self.seed, block.names[p], int(turns[p]))  # noqa: E731
        step = self.on_client[type(message)]
        memory, upload = step(self._memory(ids, block), message, block, streams)
        return memory, decode(encode(upload)) if self.wire else upload

    def _memory(self, ids: Ids, block: Block) -> Any:
        """The memory of clients who step together; those who have none yet start."""
        if self.memories.common is not None:
            return self.memories.of(ids)
        old = self.memories.place[ids] >= 0
        if old.all():
            return self.memories.of(ids)
        new = settled(self.algorithm.client_start(block.part(np.flatnonzero(~old))))
        if not old.any():
            return new
        order = np.argsort(np.argsort(old, kind="stable"))
        return members(join([new, self.memories.of(ids[old])]), order)

    def _client_error(self, ids: Ids, error: Exception, round_: int, advice: str) -> ClientError:
        """The error that names those of a group whose step raises."""
        failing = [i for i in ids.tolist() if self._raises(np.array([i]))] or ids.tolist()
        names = tuple(self.names[i] for i in failing)
        message = self.flight.kind_of(ids[0]).message
        return ClientError.of(names, message, round_ + 1, error, advice)

    def _raises(self, one: Ids) -> bool:
        try:
            self._step(one, self.flight.message(one))
        except Exception:
            return True
        return False

    # ---- what the server receives: (clients, combined answers, bytes from each client)

    def _alone(self, ids: Ids, upload: Any) -> tuple[tuple[int, ...], Any, int | Ids]:
        """Of one group; an upload that is laid out as one before which was in order, and combined
        as it was, is so as well.
        """
        laid = (len(ids), *_laid(upload)) if self.rows.ordered else None
        if laid and (size := self._sizes.get(laid)):
            return tuple(ids.tolist()), upload, size
        fold = Combiner(type(upload))
        fold.add(ids, upload)
        order, combined = fold.result()
        size = self._size(fold, upload)
        if laid and all(getattr(combined, k) is getattr(upload, k) for k, _ in fold.fields):
            self._sizes[laid] = size
        return order, combined, size

    def _folded(
        self, groups: list[Ids], uploads: Iterator[Any]
    ) -> tuple[tuple[int, ...], Any, int | Ids]:
        """Of several groups; sums are added up as the groups answer."""
        fold, sizes = None, list[int]()
        for group, upload in zip(groups, uploads, strict=True):
            fold = fold or Combiner(type(upload))
            fold.add(group, upload)
            if not sizes or any(how == "parcel" for _, how in fold.fields):
                sizes.append(self._size(fold, upload))
        assert fold is not None
        if len(set(sizes)) == 1:
            return *fold.result(), sizes[0]
        each = np.repeat(sizes, [*map(len, groups)])
        return *fold.result(), each[np.argsort(np.concatenate(groups))]

    def _size(self, fold: Combiner, upload: Any) -> int:
        """The bytes of one client's part of an upload."""
        widths = [getattr(upload, name).shape[1] for name, how in fold.fields if how == "parcel"]
        form = (fold.upload_class, *fold.forms, *widths)
        if (size := self._sizes.get(form)) is None:
            self._sizes = {} if len(self._sizes) > 1000 else self._sizes
            size = self._sizes[form] = encoded_size(members(upload, slice(0, 1)))
        return size

    def _conclusions(self) -> list[tuple[Ids, Any]]:
        groups = self._groups(self.rows.arranged(self.flight.everybody))
        return [(ids, self._step(ids, Conclude())[1]) for ids in groups]

    # ---- their memories

    def begin(self) -> None:
        """Let the clients of a private run draw the keys of their noise."""
        if self.algorithm.private:
            for ids in self._groups(self.rows.arranged(self.flight.everybody)):
                self.memories.put(ids, self._memory(ids, self.rows.block(ids)))

    def stored(self) -> Stored:
        """The memories of all clients by their forms."""
        return self.memories.stored()

    def restore(self, memories: Stored) -> None:
        """Set the memories to those in a checkpoint."""
        for ids, memory in memories:
            self.memories.put(ids, memory)

    def each(self) -> tuple[Any, ...]:
        """The memory of every client by itself, None before its first message."""
        return self.memories.each()


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
