"""Answers computed before they are due, together with those that are: a step of many clients costs each one less.

What a client answers is settled when it is asked. It is computed ahead where its bits do not depend on who shares its
block (``rounds.independent``), after a first answer: a run is then the same whether it was interrupted, is repeated
from its log, or computes nothing ahead. Memories are written when answers are computed; what they were before is kept
until the answers are taken, for checkpoints and for the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.codec import FIELDS
from quorate.engines.batches import Memories, Rows, form
from quorate.engines.flight import Flight
from quorate.engines.ledger import company
from quorate.rounds import encoded_size, marks, members

TOGETHER, KEPT = 4, 8  # blocks that step as one, and whose answers are kept at most

Clients = NDArray[np.int64]
NOBODY = np.empty(0, np.int64)


class Ahead:
    """The answers that are computed and not yet taken.

    Parameters
    ----------
    step : clients of one kind -> (memory before or None, memory, upload)
    """

    def __init__(self, flight: Flight, memories: Memories, rows: Rows, step: Callable[[Clients], tuple[Any, ...]]):
        self.flight, self.memories, self.rows, self.step = flight, memories, rows, step
        self.row = np.full(flight.n, -1, np.int64)  # by client: where its answer is, -1: it is not computed
        most = KEPT * rows.together
        self.free, self.left = np.arange(most), most  # a stack of free rows, and how many there are
        self.form: Any = None  # of what is kept
        self.upload: type = object
        self.size = 0  # bytes of one client's answer
        self.uploads: list[NDArray[Any]] = []  # (rows, ...) by field
        self.before: list[NDArray[Any]] = []  # (rows, ...) by field of a memory
        self.taken, self.serves = NOBODY, True  # since the last settle; whether it has been of use so far

    def answers(self, due: Clients, coming: Clients) -> Any:
        """The combined upload of these clients, in ascending order and of one kind; None: not to be had this way.

        ``coming``: who is likely to be due next, the first ones soonest.
        """
        if not self.serves:
            return None
        found = np.empty(min(TOGETHER * self.rows.together, self.left), np.int64)
        books = self.row, self.flight.since, self.flight.slots, self.flight.kind, self.memories.place, self.rows.sort
        if (n := company(due, coming, *books, found)) < 0:
            return None
        if n and not self._computed(found[:n]):
            return None
        at, self.taken = self.row.take(due), due
        return self.upload(*[array.take(at, 0) for array in self.uploads])

    def _computed(self, group: Clients) -> bool:
        """Computes the answers of these clients; False, and nothing kept, where that fails or they cannot be kept."""
        try:
            before, memory, upload = self.step(group)
            self.serves = self._fits(before, memory, upload, len(group))
        except Exception:  # who of them raised does so again when it is due; until then nothing is tried in vain
            self.serves = False
        if not self.serves:
            self.row[group] = -1
            return False
        at = self.free[self.left - len(group) : self.left]
        for kept, value in ((self.uploads, upload), (self.before, before)):
            for array, name in zip(kept, FIELDS[type(value)], strict=True):
                array[at] = getattr(value, name)
        self.row[group], self.left = at, self.left - len(group)
        self.memories.put(group, memory)  # last: if it fails halfway, what was before is known
        return True

    def _fits(self, before: Any, memory: Any, upload: Any, n: int) -> bool:
        """Whether rows of arrays are all there is to uploads and memories, of one form for all clients."""
        if self.memories.common is None or form(memory) != form(before):
            return False
        if (found := (form(before), form(upload))) == self.form:
            return all(len(value) == n for value in vars(upload).values())
        values = [*vars(before).values(), *vars(upload).values()] if type(before) in FIELDS else [None]
        if self.left < len(self.free):
            return False
        each = type(upload) in FIELDS and all(how == "each" for _, how in marks(type(upload)))
        if not each or any(type(value) is not np.ndarray or value.shape[:1] != (n,) for value in values):
            return False
        self.form, self.upload, most = found, type(upload), len(self.free)
        self.size = encoded_size(members(upload, slice(0, 1)))
        self.uploads, self.before = [
            [np.empty((most, *array.shape[1:]), array.dtype) for array in vars(value).values()]
            for value in (upload, before)
        ]
        return True

    def settle(self) -> None:
        """The round is finished: what was taken is gone."""
        n = len(self.taken)
        self.free[self.left : self.left + n], self.left = self.row.take(self.taken), self.left + n
        self.row[self.taken], self.taken = -1, NOBODY

    def undo(self) -> None:
        """As after the round before."""
        self.taken = NOBODY

    def drop(self) -> None:
        """Nothing is computed ahead: memories are as before."""
        if self.left < len(self.free):
            ready = np.flatnonzero(self.row >= 0)
            self.memories.put(ready, self._before(ready))
            self.row[ready], self.left, self.taken = -1, len(self.free), NOBODY
            self.free = np.arange(self.left)

    def stored(self) -> Any:
        """The memories of all clients as if nothing were computed ahead."""
        if self.left == len(self.free):
            return self.memories.stored()
        ready = np.flatnonzero(self.row >= 0)
        now = self.memories.of(ready)
        self.memories.put(ready, self._before(ready))
        found = self.memories.stored()
        self.memories.put(ready, now)
        return found

    def _before(self, ids: Clients) -> Any:
        assert self.memories.common is not None, "the memories of all have one form, or nothing is kept"
        return self.memories.common[0](*[array.take(self.row.take(ids), 0) for array in self.before])
