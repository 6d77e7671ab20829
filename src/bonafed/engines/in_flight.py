"""Messages in flight, stored in arrays: a slot for each message that a client is still to answer.

Messages of one class, of equal shapes and with equal other fields are *alike*: clients who answer
them can step together. The ``Version`` fields of all messages of one shape are the rows of one
array, at their slots, so that the versions of some clients are gathered by one ``take``. An
``Each`` field has a row for each client, who has one message at most. Once all clients have
answered a message, its slot is free for another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.engines.batching import form
from bonafed.rounds import copied, encoded_size, marks, rows, settled

Clients = NDArray[np.int64]


class Store:
    """The arrays of all messages of one class and shape."""

    def __init__(self, message: object, n: int) -> None:
        self.versions: list[tuple[int, str]] = []  # position and name of the fields
        self.each: list[tuple[int, str]] = []
        self.shapes: list[tuple[int, tuple[int, ...], Any]] = []  # position, shape, dtype
        for k, (name, how) in enumerate(marks(type(message))):
            if (value := getattr(message, name)) is not None and how in ("version", "each"):
                shape = (1, *value.shape) if how == "version" else (n, *value.shape[1:])
                self.shapes.append((k, shape, value.dtype))
                (self.versions if how == "version" else self.each).append((k, name))
        self.empty()

    def empty(self) -> None:
        """Forget all messages."""
        self.arrays: dict[int, NDArray[Any]] = {
            k: np.empty(shape, kind) for k, shape, kind in self.shapes
        }  # (slots or N, ...)
        # whether the rows of Each fields are no arrays of the server's, and may be written to
        self.writable = True

    def put(self, message: object, slot: int, to: Clients, whole: bool, donated: bool) -> None:
        """Store the message that these clients are sent.

        ``whole`` says that it has a row for every client of the federation.
        """
        arrays = self.arrays
        for k, name in self.versions:
            while slot >= len(arrays[k]):
                arrays[k] = np.concatenate([arrays[k], np.empty_like(arrays[k])])
            arrays[k][slot] = getattr(message, name)
        # to all: as it is where it will not change
        if self.each and whole and len(to) == len(arrays[self.each[0][0]]):
            keep, self.writable = copied if donated else settled, donated
            arrays.update({k: keep(getattr(message, name)) for k, name in self.each})
        elif self.each:
            if not self.writable:
                arrays.update({k: arrays[k].copy() for k, _ in self.each})
                self.writable = True
            for k, name in self.each:
                arrays[k][to] = getattr(message, name)[to] if whole else getattr(message, name)

    def rows(self, ids: Clients, slots: NDArray[np.int64]) -> list[tuple[int, NDArray[Any]]]:
        """The messages of these clients: a row for each, by position of the field."""
        n, arrays = len(ids), self.arrays
        each = [(k, arrays[k].take(ids, 0)) for k, _ in self.each] if self.each else []
        # one message: its row is seen n times
        if n > 1 and slots[0] == slots[-1] and (slots == slots[0]).all():
            one = [(k, arrays[k][slots[0]].copy()) for k, _ in self.versions]
            return each + [(k, np.broadcast_to(value, (n, *value.shape))) for k, value in one]
        return each + [(k, arrays[k].take(slots, 0)) for k, _ in self.versions]


class Kind(NamedTuple):
    """A kind of messages that are alike."""

    number: int  # negative: a single message, which has other arrays or parts than rows
    message: type
    store: Store
    fields: list[Any]  # those that are equal in all
    size: int  # bytes to each client


class Flight:
    """The messages in flight, and the bytes that every client has exchanged."""

    def __init__(self, n: int, donated: bool) -> None:
        self.n, self.donated, self.count = n, donated, 0
        self.everybody = np.arange(n)
        # by client: the finished rounds when it was asked, -1: not in flight
        self.since = np.full(n, -1, np.int64)
        self.slots = np.zeros(n, np.int64)  # by client: that of its message
        # by slot: clients still to answer, number of the kind
        self.left, self.kind = np.zeros((2, n + 1), np.int64)
        # a stack of free slots, and how many there are
        self.free = np.append(np.arange(n, -1, -1), n + 1)
        # by client: answers, bytes from and to it
        self.turns, self.answer_bytes, self.message_bytes = np.zeros((3, n), np.int64)
        self.kinds: dict[int, Kind] = {}  # by number
        self.alike: dict[Any, Kind] = {}  # by all that is equal
        self.stores: dict[Any, Store] = {}  # by class and shapes
        self.numbered, self.many = 0, 16
        self.finished = np.zeros(n, np.int64)  # room for the numbers of answered single messages
        self.nothing: tuple[Clients, int, Kind | None] = (self.everybody[:0], 0, None)
        self.latest = self.nothing  # message of this round

    # ---- kinds

    def key(self, message: object, whole: bool = True) -> tuple[Any, ...] | None:
        """All that is equal in messages that are alike.

        It is None for a message that is like no other, or that cannot be sent.
        """
        parts: list[Any] = [type(message)]
        for name, how in marks(type(message)):
            value = getattr(message, name)
            if value is None:
                parts.append(None)
            elif how == "version" and type(value) is np.ndarray:
                parts.append((value.dtype, value.shape))
            elif (
                how == "each"
                and type(value) is np.ndarray
                and not (whole and value.shape[:1] != (self.n,))
            ):
                parts.append((value.dtype, value.shape[1:]))
            elif how == "all" and isinstance(value, int | float | str):
                parts.append(form(value))
            else:
                return None
        return tuple(parts)

    def new(self, key: tuple[Any, ...] | None, message: object, size: int = 0) -> Kind:
        """The kind of a message that is like none before."""
        if len(self.alike) + len(self.stores) > self.many:
            self._forget()
        fields, shape = list[Any](), list[Any]([type(message)])
        for name, how in marks(type(message)):
            value, rows_ = getattr(message, name), how in ("version", "each")
            fields.append(None if rows_ else copied(value) if self.donated else settled(value))
            shape.append(
                (value.dtype, value.shape[how == "each" :]) if rows_ and value is not None else None
            )
        if (store := self.stores.get(tuple(shape))) is None:
            store = self.stores[tuple(shape)] = Store(message, self.n)
        self.numbered += 1
        size = size or encoded_size(rows(message, [0]))
        kind = Kind(
            -self.numbered if key is None else self.numbered, type(message), store, fields, size
        )
        self.kinds[kind.number] = kind
        if key is not None:
            self.alike[key] = kind
        return kind

    def _forget(self) -> None:
        """Forget all kinds of which no message is in flight."""
        self.kinds = {
            number: self.kinds[number] for number in set(self.kind[self.left > 0].tolist())
        }
        self.alike = {key: kind for key, kind in self.alike.items() if kind.number in self.kinds}
        used = {id(kind.store) for kind in self.kinds.values()}
        self.stores = {shape: store for shape, store in self.stores.items() if id(store) in used}
        self.many = 16 + 2 * (len(self.alike) + len(self.stores))

    # ---- messages

    def send(
        self, kind: Kind, message: object, to: Clients, round_: int, whole: bool = True
    ) -> bool:
        """Send a message to these clients.

        Where one of them is unknown, named twice or in flight, nothing is sent and the result is
        False.
        """
        tables = self.since, self.slots, self.message_bytes, self.left, self.kind, self.free
        if (slot := asked(to, round_, kind.size, kind.number, *tables)) < 0:
            return False
        if not self.count:
            for store in self.stores.values():
                if store is not kind.store:
                    store.empty()  # nobody is to answer its messages
        kind.store.put(message, slot, to, whole, self.donated)
        self.count += len(to)
        self.latest = to, slot, kind
        return True

    def undo(self) -> None:
        """Take this round's message back."""
        to, slot, kind = self.latest
        if kind is not None:
            unasked(to, slot, kind.size, self.since, self.message_bytes, self.left, self.free)
            self.count -= len(to)
        self.latest = self.nothing

    def together(self, ids: Clients, place: Clients, sort: Clients) -> tuple[int, bool]:
        """The round of the oldest message of these clients, and whether all of them can step
        together.
        """
        return together(ids, self.since, self.slots, self.kind, place, sort)

    def kind_of(self, i: int) -> Kind:
        """The kind of the message that client i is to answer."""
        return self.kinds[self.kind.item(self.slots.item(i))]

    def message(self, ids: Clients) -> Any:
        """The messages of these clients, which are alike, as one message: ``Each`` and ``Version``
        fields have a row for every client.
        """
        kind = self.kind_of(ids[0])
        fields = kind.fields.copy()
        for k, value in kind.store.rows(ids, self.slots.take(ids)):
            fields[k] = value
        return kind.message(*fields)

    def answered(self, ids: Clients, size: int) -> None:
        """Note the answers of these clients, of so many bytes each, which end the round."""
        self.count, self.latest = self.count - len(ids), self.nothing
        tables = self.since, self.slots, self.left, self.kind, self.free
        ended = settle(ids, size, self.answer_bytes, self.turns, *tables, self.finished)
        for number in self.finished[:ended].tolist():
            del self.kinds[number]

    # ---- the checkpoint

    def stored(self) -> tuple[tuple[tuple[Any, int, int], ...], NDArray[np.int64]]:
        """The messages in flight for a checkpoint: (message with the rows of the clients who are to
        answer it, its round, bytes) for every slot; and (N,) the number of each client's message.
        """
        in_flight = self.since >= 0
        messages, which = [], np.full(self.n, -1, np.int64)
        for number, slot in enumerate(np.unique(self.slots[in_flight]).tolist()):
            ids = np.flatnonzero(in_flight & (self.slots == slot))
            kind, which[ids] = self.kind_of(ids[0]), number
            fields = kind.fields.copy()
            for k, _ in kind.store.versions:
                fields[k] = kind.store.arrays[k][slot]
            for k, _ in kind.store.each:
                fields[k] = kind.store.arrays[k][ids]
            messages.append((kind.message(*fields), int(self.since[ids[0]]), kind.size))
        return tuple(messages), which

    def restore(self, messages: Iterable[tuple[Any, int, int]], which: NDArray[np.int64]) -> None:
        """Send the messages of a checkpoint again; the counts of bytes stay as they are."""
        message_bytes = self.message_bytes.copy()
        for number, (message, round_, size) in enumerate(messages):
            key = self.key(message, whole=False)
            kind = None if key is None else self.alike.get(key)
            kind = kind or self.new(key, message, size)
            self.send(kind, message, np.flatnonzero(which == number), round_, whole=False)
        self.message_bytes[:] = message_bytes
        self.latest = self.nothing


# ---- the tables of ``Flight``: which client was sent which message, and the bytes of every client.
# ``free[:free[-1]]`` is a stack of slots in which no message is.


@njit(cache=True)
def asked(to, now, size, kind, since, slots, message_bytes, left, kinds, free):
    """Note a message of ``size`` bytes to each of these clients and return its slot.

    Where one of them may not be asked, nothing changes and the result is -1.
    """
    slot = free[free[-1] - 1]
    for p in range(len(to)):
        i = to[p]
        if i < 0 or i >= len(since) or since[i] >= 0:
            for q in range(p):
                since[to[q]] = -1
                message_bytes[to[q]] -= size
            return -1
        since[i] = now
        slots[i] = slot
        message_bytes[i] += size
    if len(to) > 0:
        left[slot] = len(to)
        kinds[slot] = kind
        free[-1] -= 1
    return slot


@njit(cache=True)
def unasked(to, slot, size, since, message_bytes, left, free):
    """Take back the latest message, which is in this slot."""
    for p in range(len(to)):
        since[to[p]] = -1
        message_bytes[to[p]] -= size
    if len(to) > 0:
        left[slot] = 0
        free[-1] += 1


@njit(cache=True)
def together(ids, since, slots, kinds, place, sort):
    """(round of the oldest message, whether all are of one kind of message, of memory and of
    rows).
    """
    first, oldest, alike = ids[0], since[ids[0]], True
    for p in range(1, len(ids)):
        i = ids[p]
        oldest = min(oldest, since[i])
        alike &= (
            kinds[slots[i]] == kinds[slots[first]]
            and place[i] == place[first]
            and sort[i] == sort[first]
        )
    return oldest, alike


@njit(cache=True)
def settle(ids, size, answer_bytes, turns, since, slots, left, kinds, free, finished):
    """Note an answer of ``size`` bytes from each of these clients.

    The numbers of the single messages that are answered now are written to ``finished``; the result
    is how many these are.
    """
    ended = 0
    for p in range(len(ids)):
        i = ids[p]
        slot = slots[i]
        answer_bytes[i] += size
        turns[i] += 1
        since[i] = -1
        left[slot] -= 1
        if left[slot] == 0:
            free[free[-1]] = slot
            free[-1] += 1
            if kinds[slot] < 0:
                finished[ended] = kinds[slot]
                ended += 1
    return ended
