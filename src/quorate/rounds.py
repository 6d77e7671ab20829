"""A federated algorithm as pairs of pure functions, one pair per message type; no engine is known here.

    on_client[Message](memory, message, data, rng) -> (memory, upload)        at the owner of the data
    on_server[Upload](state, ids, combined)        -> (state, Round | Done)   at the server

Who sees what stands in the types. An upload's field is ``Sum`` or ``Max`` (the server receives the combination over the
clients that answered, never a single client's number) or ``Each`` (one row per client). A message's ``Each`` field has
one row per client of the federation and reaches each client as its own row; every other field reaches all of them.
``encode`` and ``decode`` are the one codec of the wire and of checkpoints.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
import struct
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar, dataclass_transform, get_type_hints, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, Block, Streams

Sum = Annotated[Array, "sum"]
Max = Annotated[Array, "max"]
Each = Annotated[Array, "each"]

T = TypeVar("T")
_NAMED: dict[str, type] = {}  # name on the wire -> record class or enumeration
_FIELDS: dict[type, tuple[str, ...]] = {}  # record class -> its fields


def named(cls: type[T]) -> type[T]:
    """Give an enumeration (or a record) its class name as its name on the wire."""
    known = _NAMED.get(cls.__name__, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):  # equal: the module was reloaded
        raise TypeError(
            f"two records are called {cls.__name__}: {known.__module__}.{known.__qualname__} and "
            f"{cls.__module__}.{cls.__qualname__}; the class name is the name on the wire. Rename one of them."
        )
    _NAMED[cls.__name__] = cls
    return cls


@dataclass_transform(frozen_default=True, eq_default=False)
def record(cls: type[T]) -> type[T]:
    """A frozen dataclass that can travel and be stored: a message, an upload, a state or a client's memory.

    Its fields hold arrays, numbers, strings, booleans, None, enumeration members (of ``named`` enumerations), other
    records, or tuples and string-keyed dicts of these. The class name is its name on the wire, so it must be unique.

    Raises
    ------
    TypeError : a class of the same name exists in another place.
    """
    cls = named(dataclass(frozen=True, eq=False)(cls))
    _FIELDS[cls] = tuple(f.name for f in dataclasses.fields(cls))  # pyright: ignore[reportArgumentType]
    return cls


def visibility(cls: type) -> dict[str, str]:
    """``{field: "sum" | "max" | "each" | "all"}``: what the types of a message or an upload disclose."""
    return dict(_visibility(cls))


@functools.cache
def _visibility(cls: type) -> tuple[tuple[str, str], ...]:
    if cls not in _FIELDS:
        raise TypeError(f"{cls.__qualname__} is not a record: decorate it with @record")
    hints = get_type_hints(cls, include_extras=True)
    return tuple((name, _mark(hints[name]) or "all") for name in _FIELDS[cls])


def _mark(hint: Any) -> str | None:
    """The mark in an annotation, also inside ``Sum | None``."""
    marks = [m for m in getattr(hint, "__metadata__", ()) if m in ("sum", "max", "each")]
    return next(filter(None, [*marks, *map(_mark, typing.get_args(hint))]), None)


@named
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


# ---- messages, uploads and memories by client --------------------------------------------------------------------


def rows(message: Any, index: Sequence[int] | NDArray[np.intp]) -> Any:
    """The message as the clients ``index`` receive it: their rows of every ``Each`` field, the rest unchanged."""
    own = {name: getattr(message, name) for name, how in _visibility(type(message)) if how == "each"}
    kept = {name: value[np.asarray(index)] for name, value in own.items() if value is not None}
    return dataclasses.replace(message, **kept) if kept else message


class Combiner:
    """Folds the uploads of one round as they are added; ``result`` is what the server receives.

    A field of an upload has a leading axis of the clients ``ids``; a ``Sum`` or ``Max`` field may instead have length 1
    there when the client function has combined the block itself. Floating-point sums depend on the order of ``add``:
    an engine adds in an order that does not depend on arrival (see ``combine``).
    """

    def __init__(self, upload_class: type) -> None:
        self.upload_class = upload_class
        self.ids: list[NDArray[np.intp]] = []
        self.form: dict[str, tuple[Any, ...]] = {}  # field -> (dtype, shape of one client's part), or () for None
        self.folded: dict[str, Any] = {}  # Sum, Max: the combination so far; Each: a list of parts
        if hidden := [name for name, how in _visibility(upload_class) if how == "all"]:
            raise TypeError(f"{upload_class.__name__}.{hidden[0]} does not say who sees it: annotate Sum, Max or Each")

    def add(self, ids: Sequence[int] | NDArray[np.intp], upload: Any) -> None:
        """Fold in the upload of the clients ``ids``."""
        if type(upload) is not self.upload_class:
            raise TypeError(f"clients answered with {type(upload).__name__} and with {self.upload_class.__name__}")
        for name, how in _visibility(self.upload_class):
            value = getattr(upload, name)
            form = () if value is None else self._part(name, how, value, len(ids))
            if self.form.setdefault(name, form) != form:
                raise ValueError(
                    f"{self.upload_class.__name__}.{name} is {form or None} at client {ids[0]} and "
                    f"{self.form[name] or None} at the clients before: all must agree"
                )
            if value is not None:
                self.folded[name] = _FOLD[how](self.folded.get(name), value)
        self.ids.append(np.asarray(ids, dtype=np.intp))

    def _part(self, name: str, how: str, value: Any, n: int) -> tuple[Any, ...]:
        if (
            isinstance(value, np.ndarray)
            and value.ndim
            and (value.shape[0] == n or (how != "each" and len(value) == 1))
        ):
            return value.dtype, *value.shape[1:]
        given = f"shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        raise ValueError(
            f"{self.upload_class.__name__}.{name} needs a leading axis of the {n} client(s) of the block, got {given}"
        )

    def result(self) -> tuple[tuple[int, ...], Any]:
        """The ids in ascending order and the combined upload (``Each`` fields in the same order)."""
        ids = np.concatenate(self.ids) if self.ids else np.empty(0, np.intp)
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        if not ids.size or (ids[1:] == ids[:-1]).any():
            raise ValueError(f"each client answers once in a round, got answers of {ids.tolist()}")
        fields = {n: np.concatenate(v)[order] if isinstance(v, list) else settled(v) for n, v in self.folded.items()}
        return tuple(ids.tolist()), self.upload_class(**(dict.fromkeys(self.form) | fields))


_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda total, value: value.sum(0) if total is None else _into(np.add, total, value.sum(0)),
    "max": lambda total, value: value.max(0) if total is None else _into(np.maximum, total, value.max(0)),
    "each": lambda parts, value: [value] if parts is None else (parts.append(value), parts)[1],
}


def _into(operation: np.ufunc, total: Any, value: Any) -> Any:
    return operation(total, value, out=total) if isinstance(total, np.ndarray) else operation(total, value)


def combine(upload_class: type, parts: Iterable[tuple[Sequence[int], Any]]) -> Any:
    """One upload from many: Sum and Max fields over all clients, Each fields stacked by ascending id.

    Parts are folded in the order of their smallest id, whatever their order of arrival.
    """
    fold = Combiner(upload_class)
    for ids, upload in sorted(parts, key=lambda part: min(part[0])):
        fold.add(ids, upload)
    return fold.result()[1]


def _mapped(value: Any, change: Callable[[NDArray[Any]], Any]) -> Any:
    """The value with every array in it changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if (fields := _FIELDS.get(type(value))) is not None:
        return type(value)(*[_mapped(getattr(value, name), change) for name in fields])
    if type(value) is tuple:
        return tuple([_mapped(part, change) for part in value])
    return {key: _mapped(part, change) for key, part in value.items()} if type(value) is dict else value


def settled(value: Any) -> Any:
    """The value with C-contiguous arrays, as it would be after encode and decode.

    Rounding in BLAS depends on memory layout, so engines settle what they keep: else a resumed run could differ.
    """
    return _mapped(value, lambda array: np.asarray(array, order="C"))


def members(memory: Any, positions: Any) -> Any:
    """The memory of some clients of a block; every array in a memory has a leading axis of clients."""
    return _mapped(memory, lambda array: array[positions])


def join(memories: Sequence[Any]) -> Any:
    """The memory of a block from those of its parts: arrays are stacked, everything else must be the same in all."""
    first, *others = memories
    if not others:
        return first
    if any(type(other) is not type(first) for other in others):
        raise ValueError(
            f"memories to join hold {', '.join(sorted({type(m).__name__ for m in memories}))} in one place"
        )
    if isinstance(first, np.ndarray):
        return np.concatenate(memories)
    if (fields := _FIELDS.get(type(first))) is not None:
        return type(first)(*[join([getattr(memory, name) for memory in memories]) for name in fields])
    if type(first) is tuple and all(len(other) == len(first) for other in others):
        return tuple(join(parts) for parts in zip(*memories, strict=True))
    if type(first) is dict and all(other.keys() == first.keys() for other in others):
        return {key: join([memory[key] for memory in memories]) for key in first}
    if any(other is not first and other != first for other in others):
        raise ValueError(f"clients' memories differ in {first!r}: keep what differs in an array, clients leading")
    return first


# ---- codec -------------------------------------------------------------------------------------------------------

_PREFIX = struct.Struct("<4sHxxIQ")  # magic, version, bytes of the header, bytes of the whole
_MAGIC, _VERSION, _DIGEST = b"QRM\x89", 1, 16
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode
_DTYPES = {np.dtype(code).newbyteorder("<").str: np.dtype(code).newbyteorder("<") for code in "?bhilqBHILQefdFD"}


class CodecError(ValueError):
    """Bytes that are no record of ours, or a value that cannot travel."""


def encode(value: Any) -> bytes:
    """A record as bytes: prefix, JSON header, raw little-endian arrays in C order, blake2b digest.

    Exact for numbers of any kind: ``decode(encode(r))`` has the same bits (arrays are then C-contiguous and
    little-endian). The digest protects against damage, not against an adversary who can compute it too.

    Raises
    ------
    CodecError : a field holds something else than ``record`` allows.
    """
    arrays: list[NDArray[Any]] = []
    header = _JSON(_pack(value, arrays)).encode()
    total = _PREFIX.size + len(header) + sum(a.nbytes for a in arrays) + _DIGEST
    body = b"".join((_PREFIX.pack(_MAGIC, _VERSION, len(header), total), header, *[a.tobytes() for a in arrays]))
    return body + hashlib.blake2b(body, digest_size=_DIGEST).digest()


def encoded_size(value: Any) -> int:
    """``len(encode(value))`` without copying an array."""
    arrays: list[NDArray[Any]] = []
    return _PREFIX.size + len(_JSON(_pack(value, arrays))) + sum(a.nbytes for a in arrays) + _DIGEST


def _pack(value: Any, arrays: list[NDArray[Any]]) -> Any:
    """The value as JSON; a list is always tagged with what it stands for, arrays are set aside in order."""
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        code = array.dtype.newbyteorder("<").str
        if code not in _DTYPES:
            raise CodecError(f"an array of dtype {array.dtype} cannot travel: numbers and booleans up to 64 bits can")
        arrays.append(array.astype(_DTYPES[code], copy=False))
        return ["a", code, *array.shape] if kind is np.ndarray else ["s", code]
    if (fields := _FIELDS.get(kind)) is not None:
        return ["r", kind.__name__, {name: _pack(getattr(value, name), arrays) for name in fields}]
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        return value if math.isfinite(value) else ["x", struct.pack(">d", value).hex()]
    if kind is tuple:
        return ["t", *[_pack(part, arrays) for part in value]]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _pack(part, arrays) for key, part in value.items()}
    if isinstance(value, enum.Enum) and kind.__name__ in _NAMED:
        return ["e", kind.__name__, value.name]
    raise CodecError(
        f"a {kind.__qualname__} cannot travel. Records hold arrays, numbers, strings, booleans, None, members of "
        "@named enumerations, @record classes, tuples and string-keyed dicts"
    )


def decode(data: bytes) -> Any:
    """The record in ``data``, its arrays writable and independent of ``data``. Runs no code found in ``data``.

    Raises
    ------
    CodecError : bytes that are foreign, cut short, damaged, or of a newer version; an unknown record class, or one
        whose fields differ here.
    """
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        raise CodecError(
            f"these {len(data)} bytes are not a record: they need to start with {_MAGIC!r}, as encode writes"
        )
    _, version, length, total = _PREFIX.unpack_from(data)
    if version != _VERSION:
        raise CodecError(f"the record is of version {version}; this quorate reads version {_VERSION}: update quorate")
    if len(data) != total:
        raise CodecError(
            f"the record has {len(data)} bytes and needs {total}: it was cut short or run together; resend it"
        )
    if hashlib.blake2b(data[:-_DIGEST], digest_size=_DIGEST).digest() != data[-_DIGEST:]:
        raise CodecError(
            "the record's digest does not match its bytes: it was damaged on the way; resend or restore it"
        )
    try:
        header = json.loads(data[_PREFIX.size : _PREFIX.size + length])
        reader = _Reader(data, _PREFIX.size + length)
        value = reader.unpack(header)
    except CodecError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise CodecError(f"the record's header is malformed ({error}): it was not written by encode") from error
    if reader.at != total - _DIGEST:
        raise CodecError("the record's arrays do not fill it: it was not written by encode")
    return value


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def array(self, code: str, shape: Sequence[int]) -> NDArray[Any]:
        dtype, count = _DTYPES[code], math.prod(shape)
        start, self.at = self.at, self.at + count * dtype.itemsize
        if min(shape, default=0) < 0 or self.at > len(self.data) - _DIGEST:
            raise ValueError(f"no room for an array of shape {list(shape)}")
        return np.frombuffer(self.data, dtype, count, start).reshape(shape).copy()

    def unpack(self, value: Any) -> Any:
        if type(value) is dict:
            return {key: self.unpack(part) for key, part in value.items()}
        if type(value) is not list:
            return value
        tag, *rest = value
        if tag == "a":
            return self.array(rest[0], rest[1:])
        if tag == "r":
            return self.record(*rest)
        if tag == "t":
            return tuple([self.unpack(part) for part in rest])
        if tag == "s":
            return self.array(rest[0], ())[()]
        if tag == "x":
            return struct.unpack(">d", bytes.fromhex(rest[0]))[0]
        if tag == "e" and issubclass(_NAMED[rest[0]], enum.Enum):
            return _NAMED[rest[0]][rest[1]]
        raise ValueError(f"tag {tag!r}")

    def record(self, name: str, fields: dict[str, Any]) -> Any:
        cls = _NAMED.get(name)
        if cls not in _FIELDS:
            raise CodecError(f"no record class {name!r} here: import the module that defines it, or update quorate")
        if set(fields) != set(_FIELDS[cls]):
            raise CodecError(
                f"{name} has the fields {sorted(fields)} in the bytes and {sorted(_FIELDS[cls])} here: "
                "both sides need the same version of its module"
            )
        return cls(**{key: self.unpack(part) for key, part in fields.items()})
