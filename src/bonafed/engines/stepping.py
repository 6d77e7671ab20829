"""The clients of an asynchronous run: their rows, their memories, the messages that they are still
to answer, and the step that answers them.

All clients who answer in one round step together where their messages, memories and rows are of one
kind; otherwise they step in groups of one kind each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bonafed.arrays import Block, stream
from bonafed.engines.batching import Memories, Rows
from bonafed.engines.checkpoint import Stored
from bonafed.engines.clients import Answers, Clients, Ids
from bonafed.engines.engine import ClientError
from bonafed.engines.federated_data import FederatedData
from bonafed.rounds import (
    Algorithm,
    Combiner,
    Conclude,
    encoded_size,
    members,
    settled,
)


class LocalClients(Clients):
    """All clients of a run that an engine simulates in this process.

    Attributes
    ----------
    rows : their data
    memories : the memory of each client between two messages
    """

    def __init__(
        self, algorithm: Algorithm, federation: FederatedData, block_size: int, seed: int
    ) -> None:
        self.rows = Rows(federation, block_size)
        self.example = self.rows.alone[0]
        super().__init__(algorithm, tuple(map(str, federation.clients)), self.example.n_features)
        self.on_client, self.seed = algorithm.on_client, seed
        self.memories = Memories(len(self.names))
        self._sizes: dict[Any, int] = {}  # bytes of one client's upload, by its form

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
        super().finish(due, answers)

    def stored(self) -> Stored:
        """The memories of all clients by their forms."""
        return self.memories.stored()

    def restore(self, memories: Stored) -> None:
        """Set the memories to those in a checkpoint."""
        for ids, memory in memories:
            self.memories.put(ids, memory)

    def each(self) -> tuple[Any, ...]:
        """The memory of every client alone, None before its first message."""
        return self.memories.each()

    def _conclusions(self) -> list[Any]:
        return [self._conclusion(i) for i in range(len(self.names))]

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
        widths = [getattr(first, name).shape[1] for name, how in fold.fields if how == "parcel"]
        form = (fold.upload_class, *fold.forms, *widths)
        if (size := self._sizes.get(form)) is None:
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
