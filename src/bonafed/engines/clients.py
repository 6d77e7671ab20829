"""Who answers the server's messages: rows in this process, or sites behind a transport.

The loop knows no more of the clients than this: it sends a message, asks for the answers of those
who are due, and says when the round is finished. `Flight` keeps what is on its way in either case,
so that requests are checked and bytes are counted alike.

All clients in this process who answer in one round step together where their messages, memories and
rows are of one kind; otherwise they step in groups of one kind each.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed import rounds
from bonafed.arrays import Block, stream
from bonafed.client_names import texts
from bonafed.codec import decode, encode, encoded_size
from bonafed.engines.batching import Blocks, Memories, Rows, form
from bonafed.engines.checkpoint import Stored
from bonafed.engines.engine import ClientError, check_request
from bonafed.engines.run_record import RunRecord
from bonafed.rounds import Algorithm, Combiner, Conclude, Round, marks, rows

Ids = NDArray[np.int64]
Marks = NDArray[np.int32]  # of very many clients, or slots, whole numbers take half the memory
Kept = Blocks | Rows
Folded = tuple[Sequence[int], Any, int | Ids]
NOBODY = np.full(1, -1)  # in the place of clients that are none


class Answers(NamedTuple):
    """The clients' answers of a round that is not yet finished."""

    ids: Sequence[int]  # ascending
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
        self._last: tuple[Sequence[int] | None, Ids] = (None, np.empty(0, np.int64))

    # ---- messages to them

    def send(self, ask: Round, round_: int) -> "tuple[Ids, Kind]":
        """Put a message on its way; refuse a request that cannot be carried out."""
        flight = self.flight
        known = None if (key := flight.key(ask.message)) is None else flight.alike.get(key)
        if known is None:
            check_request(self.algorithm, ask, flight.n, flight.count)
            known = flight.new(key, ask.message)
        to, least = self._positions(ask), ask.wait_for
        most = flight.count + len(to)
        possible = most and (least is None or 1 <= least <= most)
        if not possible or not flight.send(known, ask.message, to, round_):
            self._refuse(ask, round_)
        return to, known

    def _positions(self, ask: Round) -> Ids:
        """The clients that are asked; -1 for what is not a whole number: NumPy would round it."""
        if ask.to is None:
            return self.flight.everybody
        if ask.to is self._last[0]:
            return self._last[1]
        to = np.array(ask.to)
        return to.astype(np.int64, copy=False) if to.dtype.kind == "i" or not len(to) else NOBODY

    def _refuse(self, ask: Round, round_: int) -> NoReturn:
        """Raise the error that says why a request cannot be carried out."""
        flight = self.flight
        check_request(self.algorithm, ask, flight.n, flight.count)
        to = range(flight.n) if ask.to is None else ask.to
        if not all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in to):
            needs = f"the clients' positions, whole numbers in 0..{flight.n - 1}"
            raise TypeError(f"Round.to needs {needs}, got {ask.to}")
        for i in to:
            if (last := flight.since[i]) >= 0:
                raise ValueError(
                    f"client {self.names[i]} is asked in round {round_ + 1} and has not answered"
                    f" the message of round {last + 1}: ask those who answered, to=tuple(ids),"
                    " or wait for all (wait_for=None)"
                )
        most = flight.count + len(to)
        raise ValueError(f"Round.wait_for must be in 1..{most}, got {ask.wait_for}")

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
            size = encoded_size(rounds.members(upload, slice(0, 1)))
            kept.answer_bytes[ids] += size
            up += len(ids) * size
        kept.exchanged[1] += ask
        record.count(Conclude, "down", n, n * ask)
        record.count(kind, "up", n, up)
        combined = rounds.combine(kind, parts)
        record.tell(combined, n)
        return combined

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

    def each(self) -> Sequence[Any]:
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
        self, algorithm: Algorithm, rows: Kept, clients: Sequence[Any], seed: int, wire=False
    ) -> None:
        self.rows, self.example, self.wire = rows, rows.example, wire
        super().__init__(algorithm, texts(clients), rows.example.n_features)
        self.on_client, self.seed = algorithm.on_client, seed
        self.memories = Memories(len(self.names))
        self._sizes: dict[Any, int] = {}  # bytes of one client's upload, by its form

    # ---- answers from them

    def answers(self, due: Ids, round_: int, advice: str) -> Answers:
        """The answers of the clients who are due, as they step here."""
        ids = self.rows.arranged(due)
        oldest, alike = self.flight.together(ids, self.memories.place, self.rows.sort)
        groups = [ids] if alike and len(ids) <= self.rows.together else self._groups(ids)
        memories = list[tuple[Ids, Any]]()

        def stepped() -> Iterator[Any]:
            """What each group uploads; their new memories are added to ``memories``."""
            # who all step together do so again and again
            whole = sum(map(len, groups)) == self.flight.n
            for group in groups:
                try:
                    memory, upload = self._step(group, self.flight.message(group), whole)
                except Exception as error:
                    failing = [i for i in group.tolist() if self._raises(np.array([i]))]
                    names = tuple(self.names[i] for i in failing or group.tolist())
                    message = self.flight.kind_of(group[0]).message
                    raise ClientError.of(names, message, round_ + 1, error, advice) from error
                memories.append((group, memory))
                yield upload

        uploads = stepped()
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
        # the clients of a kind one after the other, the kinds in the order of their first clients
        marks = np.stack([flight.kind[flight.slots[ids]], place, self.rows.sort[ids]])
        order = np.lexsort(marks)
        new = np.logical_or.reduce([np.diff(mark[order]) != 0 for mark in marks])
        ends = 1 + np.flatnonzero(new)
        firsts = np.argsort(order[np.append(0, ends)])
        parted = np.split(ids[order], ends)
        groups = (parted[k] for k in firsts.tolist())
        return [group[k : k + size] for group in groups for k in range(0, len(group), size)]

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
        new = rounds.settled(self.algorithm.client_start(block.part(np.flatnonzero(~old))))
        if not old.any():
            return new
        order = np.argsort(np.argsort(old, kind="stable"))
        return rounds.members(rounds.join([new, self.memories.of(ids[old])]), order)

    def _raises(self, one: Ids) -> bool:
        try:
            self._step(one, self.flight.message(one))
        except Exception:
            return True
        return False

    # what the server receives: (clients, combined answers, bytes from each client)

    def _alone(self, ids: Ids, upload: Any) -> Folded:
        """Of one group; an upload that is laid out as one before which was in order, and combined
        as it was, is so as well.
        """
        laid = (len(ids), *_laid(upload)) if self.rows.ordered else None
        if laid and (size := self._sizes.get(laid)):
            return rounds.listed(ids), upload, size
        fold = Combiner(type(upload))
        fold.add(ids, upload)
        order, combined = fold.result()
        size = self._size(fold, upload)
        if laid and all(getattr(combined, k) is getattr(upload, k) for k, _ in fold.fields):
            self._sizes[laid] = size
        return order, combined, size

    def _folded(self, groups: list[Ids], uploads: Iterator[Any]) -> Folded:
        """Of several groups; sums are added up as the groups answer."""
        fold, sizes = None, list[int]()
        for group, upload in zip(groups, uploads, strict=True):
            fold = fold or Combiner(type(upload), sum(map(len, groups)))
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
            size = self._sizes[form] = encoded_size(rounds.members(upload, slice(0, 1)))
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

    def each(self) -> Sequence[Any]:
        """The memory of every client by itself, None before its first message."""
        return self.memories.each()


def _laid(upload: object) -> list[Any]:
    """The class, shapes and kinds of an upload: all that ``Combiner`` checks."""
    laid: list[Any] = [type(upload)]
    for value in vars(upload).values():
        array = type(value) is np.ndarray
        laid.append((value.dtype, value.shape, value.flags.c_contiguous) if array else type(value))
    return laid


# Messages in flight, stored in arrays: a slot for each message that a client is still to answer.
#
# Messages of one class, of equal shapes and with equal other fields are *alike*: clients who answer
# them can step together. The ``Version`` fields of all messages of one shape are the rows of one
# array, at their slots, so that the versions of some clients are gathered by one ``take``. An
# ``Each`` field has a row for each client, who has one message at most. Once all clients have
# answered a message, its slot is free for another one.


class Store:
    """The arrays of all messages of one class and shape."""

    def __init__(self, message: object, n: int) -> None:
        self.n = n
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
        every = {k for k, _ in self.each}  # whose arrays are made when some clients are sent them
        shapes = ((k, shape, kind) for k, shape, kind in self.shapes if k not in every)
        self.arrays: dict[int, Any] = {k: np.empty(shape, kind) for k, shape, kind in shapes}
        # whether the rows of Each fields are no arrays of the server's, and may be written to
        self.writable = True

    def put(self, message: object, slot: int, to: Ids, whole: bool, donated: bool) -> None:
        """Store the message that these clients are sent.

        ``whole`` says that it has a row for every client of the federation.
        """
        arrays = self.arrays
        for k, name in self.versions:
            while slot >= len(arrays[k]):
                arrays[k] = np.concatenate([arrays[k], np.empty_like(arrays[k])])
            arrays[k][slot] = getattr(message, name)
        # to all: as it is where it will not change
        if self.each and whole and len(to) == self.n:
            keep, self.writable = rounds.copied if donated else rounds.settled, donated
            arrays.update({k: keep(getattr(message, name)) for k, name in self.each})
        elif self.each:
            for k, shape, kind in self.shapes:
                if k not in arrays:
                    arrays[k] = np.empty(shape, kind)
            if not self.writable:
                arrays.update({k: arrays[k].copy() for k, _ in self.each})
                self.writable = True
            for k, name in self.each:
                arrays[k][to] = getattr(message, name)[to] if whole else getattr(message, name)

    def rows(self, ids: Ids, slots: Marks) -> list[tuple[int, NDArray[Any]]]:
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
        self.since = np.full(n, -1, np.int32)
        self.slots = np.zeros(n, np.int32)  # by client: that of its message
        # by slot: clients still to answer, number of the kind
        self.left, self.kind = np.zeros((2, n + 1), np.int32)
        # a stack of free slots, and how many there are
        self.free = np.append(np.arange(n, -1, -1), n + 1).astype(np.int32)
        # by client: answers, bytes from and to it
        self.turns, self.exchanged = np.zeros(n, np.int64), np.zeros((2, n), np.int64)
        self.kinds: dict[int, Kind] = {}  # by number
        self.alike: dict[Any, Kind] = {}  # by all that is equal
        self.stores: dict[Any, Store] = {}  # by class and shapes
        self.numbered, self.many = 0, 16
        self.finished = np.zeros(n, np.int32)  # room for the numbers of answered single messages
        self.nothing: tuple[Ids, int, Kind | None] = (self.everybody[:0], 0, None)
        self.latest = self.nothing  # message of this round

    @property
    def answer_bytes(self) -> NDArray[np.int64]:
        """(N,) bytes from each client."""
        return self.exchanged[0]

    @property
    def message_bytes(self) -> NDArray[np.int64]:
        """(N,) bytes to each client."""
        return self.exchanged[1]

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
            elif how == "each" and type(value) is np.ndarray:
                if whole and value.shape[:1] != (self.n,):
                    return None
                parts.append((value.dtype, value.shape[1:]))
            elif how == "all" and isinstance(value, int | float | str):
                parts.append(form(value))
            else:
                return None
        return tuple(parts)

    def new(self, key: tuple[Any, ...] | None, message: object, size: int = 0) -> Kind:
        """The kind of a message that is like none before."""
        if len(self.alike) + len(self.stores) > self.many:
            # forget all kinds of which no message is in flight
            flying = set(self.kind[self.left > 0].tolist())
            self.kinds = {number: self.kinds[number] for number in flying}
            self.alike = {k: kind for k, kind in self.alike.items() if kind.number in flying}
            used = {id(kind.store) for kind in self.kinds.values()}
            self.stores = {s: store for s, store in self.stores.items() if id(store) in used}
            self.many = 16 + 2 * (len(self.alike) + len(self.stores))
        fields, shape = list[Any](), list[Any]([type(message)])
        for name, how in marks(type(message)):
            value, rows_ = getattr(message, name), how in ("version", "each")
            keep = rounds.copied if self.donated else rounds.settled
            fields.append(None if rows_ else keep(value))
            known = rows_ and value is not None
            laid: Any = known and (value.dtype, value.shape[how == "each" :])  # pyright: ignore
            shape.append(laid)
        if (store := self.stores.get(tuple(shape))) is None:
            store = self.stores[tuple(shape)] = Store(message, self.n)
        self.numbered += 1
        size = size or encoded_size(rows(message, [0]))
        number = -self.numbered if key is None else self.numbered
        kind = Kind(number, type(message), store, fields, size)
        self.kinds[kind.number] = kind
        if key is not None:
            self.alike[key] = kind
        return kind

    # ---- messages

    def send(self, kind: Kind, message: object, to: Ids, round_: int, whole: bool = True) -> bool:
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

    def together(self, ids: Ids, place: Marks, sort: Marks) -> tuple[int, bool]:
        """The round of the oldest message of these clients, and whether all of them can step
        together.
        """
        return together(ids, self.since, self.slots, self.kind, place, sort)

    def kind_of(self, i: int) -> Kind:
        """The kind of the message that client i is to answer."""
        return self.kinds[self.kind.item(self.slots.item(i))]

    def message(self, ids: Ids) -> Any:
        """The messages of these clients, which are alike, as one message: ``Each`` and ``Version``
        fields have a row for every client.
        """
        kind = self.kind_of(ids[0])
        fields = kind.fields.copy()
        for k, value in kind.store.rows(ids, self.slots.take(ids)):
            fields[k] = value
        return kind.message(*fields)

    def answered(self, ids: Ids, size: int) -> None:
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
        alike &= kinds[slots[i]] == kinds[slots[first]]
        alike &= place[i] == place[first] and sort[i] == sort[first]
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
