"""A federated algorithm as pairs of pure functions, one pair per message type; no engine is known
here.

    on_client[Message](memory, message, data, rng) -> (memory, upload)      at the owner of the data
    on_server[Upload](state, ids, combined)        -> (state, Round | Done)   at the server

Who sees what stands in the types. An upload's field is ``Sum`` or ``Max`` (the server receives the
combination over the clients that answered, never a single client's number) or ``Each`` (one row per
client). A message's ``Each`` field has one row per client of the federation and reaches each client
as its own row; every other field reaches all of them. An upload's ``Parcel`` is bytes that the
server reads of each client, as many as that client has to say. ``encode`` and ``decode``
(``bonafed.codec``) are the one codec of the wire and of checkpoints.

Asynchronous rounds. A client is *in flight* from the message until its answer. A round that waits
for fewer than all (``Round.wait_for``) goes on while others are in flight: their answers reach a
later call of ``on_server``, whose ``ids`` are those that answer now. How many answer, who and when,
and how old answers may be is the engine's affair. The clients of one block may so have been sent
different versions of a message: a ``Version`` field is one array at the server, ``w: Version  #
(D,)``, and ``(n, D)`` at the clients, row i what client i of the block was sent. A client step for
such a message is written for one model per client. Every engine hands it over in this shape.
"""

import enum
import functools
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_type_hints, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block, Streams
from bonafed.codec import (  # noqa: F401  some for those who import them from here
    FIELDS,
    CodecError,
    Form,
    changed,
    decode,
    encode,
    encoded_size,
    fingerprint,
    mapped,
    named,
    record,
)

Sum = Annotated[Array, "sum"]
Max = Annotated[Array, "max"]
Each = Annotated[Array, "each"]
Version = Annotated[Array, "version"]  # of messages alone
# of uploads alone: (n, W), zeros at the end mean nothing
Parcel = Annotated[NDArray[np.uint8], "parcel"]
MARKS = "sum", "max", "each", "version", "parcel"
LARGEST = 1e150  # a number whose square is finite
TINY = 1e-80  # a number whose cube, times what rows have, is far from the least number there is

Value = TypeVar("Value")  # whatever a record can hold


def visibility(cls: type) -> dict[str, str]:
    """What the types of a message or an upload disclose: ``{field: mark}``, one of ``MARKS`` or
    "all".
    """
    return dict(marks(cls))


@functools.cache
def marks(cls: type) -> tuple[tuple[str, str], ...]:
    """The pairs of ``visibility``."""
    if cls not in FIELDS:
        raise TypeError(f"{cls.__qualname__} is not a record: decorate it with @record")
    return tuple((name, next((n for n in said if n in MARKS), "all")) for name, said in _noted(cls))


def _noted(cls: type) -> list[tuple[str, list[Any]]]:
    """What the annotation of every field says beside its type."""
    hints = get_type_hints(cls, include_extras=True)
    return [(name, _notes(hints[name])) for name in FIELDS.get(cls, ())]


def _notes(hint: object) -> list[Any]:
    """What an annotation says beside the type, also inside ``Sum | None``."""
    inside = [note for part in typing.get_args(hint) for note in _notes(part)]
    return [*getattr(hint, "__metadata__", ()), *inside]


@named
class Stop(enum.Enum):
    """Why a run ended.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> bf.solve(problem, fed).outcome.stop is bf.Stop.OPTIMAL
    True
    >>> " ".join(stop.value for stop in bf.Stop)
    'optimal unproven max_rounds stalled refused impossible interrupted infeasible unbounded'
    """

    OPTIMAL = "optimal"  # gap or residual within tolerance
    # no further decrease is in sight, but no bound is provable: it may not be the optimum
    UNPROVEN = "unproven"
    MAX_ROUNDS = "max_rounds"  # the cap was met first: never called converged
    STALLED = "stalled"  # no further progress within rounding
    REFUSED = "refused"  # a site answers no further question, by its rules
    IMPOSSIBLE = "impossible"  # a site has answered what no rows answer
    INTERRUPTED = "interrupted"  # by the user; can be resumed
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"


@record
class Outcome:
    """Why the run ended, and in words what to do about it.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> outcome = bf.solve(problem, fed, max_rounds=2).outcome
    >>> outcome.stop.value, "stopped at max_rounds = 2" in outcome.text
    ('max_rounds', True)
    """

    stop: Stop
    text: str


@record
class Round:
    """The server's next request: ``message`` to the clients ``to`` (None: all).

    ``wait_for`` is the least number of answers, to this or to earlier messages, with which the
    server can go on; None waits for the answers of all in flight (a synchronous round). Anyone who
    is still in flight must not be asked again.
    """

    message: Any
    to: tuple[int, ...] | None = None
    wait_for: int | None = None


@record
class Done:
    """The server needs no further round, and why. What there is to say of it in words follows from
    the certificate: the method says none.
    """

    stop: Stop

    @property
    def outcome(self) -> Outcome:
        """Of the run, before there is a certificate."""
        return Outcome(self.stop, "")


@record
class Conclude:
    """The server's last question, after the last round: what the clients keep that belongs to the
    answer, such as their copies of the model.

    An algorithm whose ``on_client`` has a step for it is asked once a run has ended and every
    client has taken part. It is not a round, and memories do not change.
    """


Next = tuple[Any, Round | Done]  # the server's state and request


@runtime_checkable
class Algorithm(Protocol):
    """The base of everything that an engine runs.

    ``mutates_state`` allows ``on_server`` to overwrite the arrays of the state that it receives: a
    table with a row per client need not be copied for every answer. Messages may share arrays with
    the state all the same. ``private`` asks for the memories of all clients before the first
    message, since they hold the keys of their noise. ``stateless``: clients keep nothing between
    two messages, so that one whose disk is lost goes on as if nothing had happened. ``held_out``:
    it is about the rows that clients hold out, and not about those that they train on.
    ``readable``: the fields of answers, "Class.field", that a server reads of every client under a
    secure sum as well, with what they may tell.
    """

    mutates_state: ClassVar[bool] = False
    private: ClassVar[bool] = False
    stateless: ClassVar[bool] = False
    held_out: ClassVar[bool] = False
    readable: ClassVar[Mapping[str, str]] = {}

    @property
    def on_client(self) -> Mapping[type, Callable[[Any, Any, Block, Streams], tuple[Any, Any]]]:
        """The steps of the clients, by message."""
        ...

    @property
    def on_server(self) -> Mapping[type, Callable[[Any, Sequence[int], Any], Next]]:
        """The steps of the server, by upload."""
        ...

    def client_start(self, data: Block) -> Any:
        """The memory of the block's clients before the first message (leading axis: clients), or
        None.
        """
        return None

    def server_start(self, n_clients: int) -> tuple[Any, Round]:
        """The server's first state and request."""
        ...

    def for_clients(self) -> "Algorithm":
        """The algorithm as clients elsewhere are told it, without what only the server needs."""
        return self

    def at_client(self, problem: Any, data: Any) -> "Algorithm":
        """What clients were told, with their problem and what is known of all clients' data."""
        return self

    def grid(self, upload_class: type) -> Mapping[str, float]:
        """For ``Sum`` fields of an upload that hold whole multiples of a public step: that step, a
        power of two. A secure sum carries them without changing a bit.
        """
        return {}

    def quorum(self, asked: int) -> int:
        """The least number of clients whose answers the server needs of so many that were asked,
        where the others have dropped out of the round for good; all of them unless it says so.
        """
        return asked

    def doubts(self, told: Any, who: int, message: Any, upload: Any) -> tuple[Any, str]:
        """What is remembered of one client's answers, and what of this answer no rows say, in words
        that follow "it answered with"; "" where there is nothing.

        ``told`` is what was remembered before it, None at first, ``who`` the client's position, and
        ``message`` its own.
        An engine asks for it where answers come from elsewhere, before it combines them.
        """
        return told, unreal(upload, self.grid(type(upload)))

    def doubts_of_sum(self, told: Any, message: Any, sums: Any, slack: float) -> tuple[Any, str]:
        """The same of an upload whose ``Sum`` fields are sums over the clients, to ``slack`` by the
        rounding of a secure sum, and whose other fields are those of every client.
        """
        return told, unreal(sums, self.grid(type(sums)))

    def report(self, state: Any) -> dict[str, float]:
        """Numbers a person would plot, after each round; the engine adds round, seconds and
        bytes.
        """
        return {}

    def gradients(self, message: Any) -> float:
        """How many gradients of its rows a client computes to answer, for engines that simulate
        time.
        """
        return 1.0


def unannounced(algorithm: Algorithm) -> list[str]:
    """The fields of an algorithm's answers, "Class.field", that a secure sum does not hide and that
    the algorithm does not announce as ``readable``.
    """
    marked = [(kind, *pair) for kind in algorithm.on_server for pair in marks(kind)]
    fields = [f"{kind.__name__}.{name}" for kind, name, how in marked if how != "sum"]
    concludes = ["Concluded"] if Conclude in algorithm.on_client else []
    return [*(field for field in fields if field not in algorithm.readable), *concludes]


# ---- what no rows answer ------------------------------------------------------------------------


def unreal(upload: object, grid: Mapping[str, float], overflows: bool = False) -> str:
    """Which numbers of an upload no finite rows lead to, in words; "" for none.

    NaN and infinities are such numbers, unless a field's form allows them (`bonafed.codec.Form`) or
    sums may be too large for floats (``overflows``), and so are numbers whose squares are infinite
    and those of a ``grid`` that are not multiples of its step.
    """
    for name, form in _forms(type(upload)):
        value = getattr(upload, name)
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or not value.size:
            continue
        if not overflows and not float(np.abs(value).max()) <= LARGEST:
            real = value[~(np.isnan(value) & form.nan) & ~(np.isinf(value) & form.infinite)]
            if not np.isfinite(real).all():
                return f"numbers that are not finite, in {name!r}"
            if not float(np.abs(real).max(initial=0.0)) <= LARGEST:
                return f"numbers larger than {LARGEST:g}, in {name!r}"
        if name in grid and not np.array_equal(value % grid[name], np.zeros_like(value)):
            return f"numbers that are not multiples of {grid[name]:g}, in {name!r}"
    return ""


@functools.cache
def _forms(cls: type) -> tuple[tuple[str, Form], ...]:
    """The form of every field of an upload."""
    noted = ((name, (n for n in notes if isinstance(n, Form))) for name, notes in _noted(cls))
    return tuple((name, next(forms, Form())) for name, forms in noted)


# ---- messages, uploads and memories by client ----------------------------------------------------


def copied(value: Value) -> Value:
    """A copy of the value, with C-contiguous arrays."""
    return mapped(value, lambda array: array.copy(order="C"))


def rows(message: Value, index: Sequence[int] | NDArray[np.intp]) -> Value:
    """The message as the clients ``index`` receive it: their rows of ``Each`` fields, a row for
    each of ``Version``.

    The rows of a ``Version`` field are one array seen n times (read-only); the other fields are
    unchanged.
    """
    kept, n = {}, len(index)
    for name, how in marks(type(message)):
        value = getattr(message, name)
        if how == "each" and value is not None:
            kept[name] = value[np.asarray(index)]
        elif how == "version" and value is not None:
            kept[name] = np.broadcast_to(value, (n, *value.shape))
    return changed(message, **kept) if kept else message


def listed(ids: NDArray[np.int64]) -> Sequence[int]:
    """Ascending positions as a sequence: a range where they are all of so many, else a tuple."""
    if len(ids) and ids[0] == 0 and ids[-1] == len(ids) - 1:
        return range(len(ids))
    return tuple(ids.tolist())


class Combiner:
    """Folds the uploads of one round as they are added; ``result`` is what the server receives.

    A field of an upload has a leading axis of the clients ``ids``; a ``Sum`` or ``Max`` field may
    instead have length 1 there when the client function has combined the block itself.
    Floating-point sums depend on the order of ``add``: an engine adds in an order that does not
    depend on arrival (see ``combine``). ``total`` is how many clients are added, where it is known:
    the rows of ``Each`` fields are then written where they stay.
    """

    def __init__(self, upload_class: type, total: int = 0) -> None:
        self.upload_class, self.fields = upload_class, marks(upload_class)
        self.total, self.added = total, 0
        self.ids: list[NDArray[np.intp]] = []
        # of each field (dtype, shape of one client's part), or () for None
        self.forms: list[tuple[Any, ...]] = []
        # of each field; Sum, Max: the combination so far; Each: a list of parts, or rows of a total
        self.folded: list[Any] = []
        if hidden := [name for name, how in self.fields if how not in _FOLD]:
            text = f"{upload_class.__name__}.{hidden[0]} does not say who sees it: annotate Sum,"
            raise TypeError(f"{text} Max, Each or Parcel")

    def add(self, ids: Sequence[int] | NDArray[np.intp], upload: object) -> None:
        """Fold in the upload of the clients ``ids``."""
        if type(upload) is not self.upload_class:
            names = f"{type(upload).__name__} and with {self.upload_class.__name__}"
            raise TypeError(f"clients answered with {names}")
        n, first = len(ids), not self.ids
        for k, (name, how) in enumerate(self.fields):
            value = getattr(upload, name)
            form = () if value is None else self._form(name, how, value, n)
            if first:
                self.forms.append(form)
                if how == "each" and isinstance(value, np.ndarray) and n < self.total:
                    self.folded.append(np.empty((self.total, *value.shape[1:]), value.dtype))
                    self.folded[k][:n] = value
                    continue
                self.folded.append(None if value is None else _FOLD[how](None, value))
            elif form != self.forms[k]:
                text = f"{self.upload_class.__name__}.{name} is {form or None} at client {ids[0]}"
                text += f" and {self.forms[k] or None} at the clients before: all must agree"
                raise ValueError(text)
            elif how == "each" and isinstance(self.folded[k], np.ndarray):
                self.folded[k][self.added : self.added + n] = value
            elif value is not None:
                # an algorithm reports what is not finite, in words of its own
                with np.errstate(over="ignore", invalid="ignore"):
                    self.folded[k] = _FOLD[how](self.folded[k], value)
        self.ids.append(np.asarray(ids, dtype=np.intp))
        self.added += n

    def _form(self, name: str, how: str, value: object, n: int) -> tuple[Any, ...]:
        actual = type(value).__name__
        if isinstance(value, np.ndarray):
            if how == "parcel" and value.dtype == np.uint8 and value.shape[:-1] == (n,):
                return (value.dtype,)
            if value.shape[:1] == (n,) or (value.shape[:1] == (1,) and how in ("sum", "max")):
                return value.dtype, *value.shape[1:]
            actual = f"shape {value.shape}"
        need = f"needs a leading axis of the {n} client(s) of the block, got {actual}"
        raise ValueError(f"{self.upload_class.__name__}.{name} {need}")

    def result(self) -> tuple[Sequence[int], Any]:
        """The ids in ascending order and the combined upload (``Each`` fields in the same
        order).
        """
        ids = np.concatenate(self.ids) if self.ids else np.empty(0, np.intp)
        order: Any = None if (np.diff(ids) > 0).all() else np.argsort(ids, kind="stable")
        ids = ids if order is None else ids[order]
        if not len(ids) or (np.diff(ids) == 0).any():
            raise ValueError(f"each client answers once in a round, got answers of {ids.tolist()}")
        fields = []
        for value, (_, how) in zip(self.folded, self.fields, strict=True):
            if how == "each" and isinstance(value, np.ndarray):
                value = value[: self.added] if order is None else value[order]
            # Each: the rows of those of one part that are in order are not copied
            if type(value) is list:
                value = equally_wide(value) if how == "parcel" else value
                value = value[0] if len(value) == 1 else np.concatenate(value)
                value = value if order is None else value[order]
            fields.append(value if value is None or value.flags.c_contiguous else settled(value))
        return listed(ids), self.upload_class(*fields)


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda total, value: _into(np.add, total, value),
    "max": lambda total, value: _into(np.maximum, total, value),
    "each": lambda parts, value: [value] if parts is None else (parts.append(value), parts)[1],
}
_FOLD["parcel"] = _FOLD["each"]


def equally_wide(parcels: Sequence[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """Arrays of parcels with zeros at the ends of the shorter ones."""
    widest = max(part.shape[1] for part in parcels)
    pads = [((0, 0), (0, widest - part.shape[1])) for part in parcels]
    return [np.pad(p, pad) if pad[1][1] else p for p, pad in zip(parcels, pads, strict=True)]


def _into(operation: np.ufunc, total: Any, value: NDArray[Any]) -> Any:
    """The combination with those of a block, of which a matrix that stands alone is not copied: it
    may be as large as all rows.
    """
    # a number for each coefficient is copied, since a client may write into its array again
    alone = len(value) == 1 and value.ndim > 2 and value.dtype.kind == "f"
    value = value[0] if alone else operation.reduce(value, 0)
    # what is part of an upload stays as it is
    out = total if isinstance(total, np.ndarray) and total.base is None else None
    return value if total is None else operation(total, value, out=out)


def combine(upload_class: type, parts: Iterable[tuple[Sequence[int], Any]]) -> Any:
    """One upload from many: Sum and Max fields over all clients, Each fields stacked by ascending
    id.

    Parts are folded in the order of their smallest id, whatever their order of arrival.
    """
    fold = Combiner(upload_class)
    for ids, upload in sorted(parts, key=lambda part: min(part[0])):
        fold.add(ids, upload)
    return fold.result()[1]


def settled(value: Value) -> Value:
    """The value with C-contiguous arrays, as it would be after encode and decode.

    Rounding in BLAS depends on memory layout, so engines settle what they keep: else a resumed run
    could differ.
    """
    return value if _contiguous(value) else mapped(value, lambda a: np.asarray(a, order="C"))


def without_tiny(message: Any) -> Any:
    """The message with 0 for all numbers below ``TINY``.

    Rows that are weighed by the least numbers there are would each be rounded to 0 or a few of
    these: an answer would then be a sum over those rows only whose slopes exceed a threshold.
    """
    numbers = {name: getattr(message, name) for name in FIELDS[type(message)]}
    floats = {name: 0.0 for name, v in numbers.items() if type(v) is float and 0 < abs(v) < TINY}
    message = changed(message, **floats) if floats else message
    tiny = lambda a: (a != 0) & (np.abs(a) < TINY) & (a.dtype.kind == "f")  # noqa: E731
    if not any(tiny(array).any() for array in arrays_of(message)):
        return message
    return mapped(message, lambda a: np.where(tiny(a), 0.0, a) if a.dtype.kind == "f" else a)


def _contiguous(value: object) -> bool:
    """Whether every array in the value is C-contiguous."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return value.flags.c_contiguous
    if kind in _SCALAR:
        return True
    held = value.__dict__ if kind in FIELDS else value
    parts = held.values() if isinstance(held, dict) else held if isinstance(held, tuple) else ()
    # a list is quicker
    return all([type(part) in _SCALAR or _contiguous(part) for part in parts])  # noqa: C419


_SCALAR = {int, float, bool, str, type(None)}


def members(memory: Value, positions: slice | NDArray[np.intp]) -> Value:
    """The memory of some clients of a block; every array in a memory has a leading axis of
    clients.
    """
    return mapped(memory, lambda array: array[positions])


def join(memories: Sequence[Any]) -> Any:
    """The memory of a block from those of its parts: arrays are stacked, everything else must be
    the same in all.
    """
    first, *others = memories
    if not others:
        return first
    if len(kinds := {*map(type, memories)}) > 1:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"memories to join hold {names} in one place")
    if isinstance(first, np.ndarray):
        return np.concatenate(memories)
    parts = [part for memory in memories if (part := _parts(memory)) is not None]
    if parts and all(part.keys() == parts[0].keys() for part in parts):
        whole = {key: join([part[key] for part in parts]) for key in parts[0]}
        if type(first) is tuple:
            return tuple(whole.values())
        return whole if type(first) is dict else type(first)(**whole)
    if any(other is not first and other != first for other in others):
        do = "keep what differs in an array, clients leading"
        raise ValueError(f"clients' memories differ in {first!r}: {do}")
    return first


def _parts(memory: object) -> dict[Any, Any] | None:
    """The parts of a record, a tuple or a dict by name, position or key; None of anything else."""
    if type(memory) in FIELDS:
        return {name: getattr(memory, name) for name in FIELDS[type(memory)]}
    if type(memory) is tuple:
        return dict(enumerate(memory))
    return memory if type(memory) is dict else None


def arrays_of(upload: object) -> list[NDArray[Any]]:
    """The arrays of a message or an upload."""
    if isinstance(upload, np.ndarray):
        return [upload]
    fields = FIELDS.get(type(upload), ())
    return [array for name in fields for array in arrays_of(getattr(upload, name))]
