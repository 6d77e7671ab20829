"""Records, and the one codec for the wire and for checkpoints.

    encode(record) = magic, version, lengths | JSON header | raw little-endian arrays, C order |
    blake2b digest

The header holds everything but the arrays' bytes: class names, field names, numbers, dtypes and
shapes. A class is known by its home, the module and the name that it is defined under, so that two
classes of one name in two modules disturb nobody. Only classes registered by ``record`` and
``named`` are built by ``decode``; it imports no module, and executes nothing that is in the bytes.
"""

import dataclasses
import enum
import hashlib
import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, dataclass_transform

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
FIELDS: dict[type, tuple[str, ...]] = {}  # record class -> its fields
_CLASSES: dict[str, type] = {}  # home -> record class or enumeration
_HOMES: dict[type, str] = {}  # the other way round, with classes that a reload has replaced


def home(cls: type) -> str:
    """The module and name of a class, such as ``.rounds:Round`` (in bonafed) or ``mine:State``."""
    module = cls.__module__
    inside = module.startswith(_PACKAGE + ".")
    return f"{module[len(_PACKAGE) :] if inside else module}:{cls.__qualname__}"


def named(cls: type[T]) -> type[T]:
    """Let members of an enumeration (or records of a class) travel under the home of the class."""
    _HOMES[cls] = home(cls)
    _CLASSES[_HOMES[cls]] = cls  # a module that is loaded again replaces its classes
    return cls


@dataclass_transform(frozen_default=True, eq_default=False)
def record(cls: type[T]) -> type[T]:
    """A frozen dataclass that can travel and be stored: a message, an upload, a state or a client's
    memory.

    Its fields hold arrays, numbers, strings, booleans, None, enumeration members (of ``named``
    enumerations), other records, or tuples and string-keyed dicts of these.
    """
    made: Any = named(dataclass(frozen=True, eq=False)(cls))
    FIELDS[made] = tuple(field.name for field in dataclasses.fields(made))
    return made


@dataclass(frozen=True)
class Form:
    """What a field of a record may hold beside what its type says: ``Annotated[Array, Form("D")]``.

    Engines hold a checkpoint to it before they resume from it. An array without a form may have any
    shape and any finite numbers; a number without one is finite, and not negative where it is
    whole.

    Parameters
    ----------
    shape : names of the axes, such as "K, D". Axes of one name are equally long in all records of
        a checkpoint; N is the number of clients, n that of the clients in a memory. An axis may be
        a sum ("D + N * p") or have alternatives ("D|0"); "..." stands for any further axes, and a
        number has none ("")
    infinite, nan : whether infinities and NaN are allowed
    least : the least whole number
    most : the name of what whole numbers do not exceed: an axis, or "rounds", those finished
    below : the name of the axis in which the whole numbers are positions
    rounds : where the field counts finished rounds: the number minus those that are finished
    """

    shape: str | None = None
    infinite: bool = False
    nan: bool = False
    least: int = 0
    most: str | None = None
    below: str | None = None
    rounds: int | None = None


Extended = Annotated[float, Form(infinite=True)]  # a number that may be infinite, and not NaN
Counter = Annotated[int, Form(most="rounds")]  # of rounds of some sort


def changed(value: T, /, **fields: object) -> T:
    """The record with other values in these fields: ``dataclasses.replace`` where every microsecond
    counts.
    """
    other = object.__new__(type(value))
    other.__dict__.update(value.__dict__, **fields)
    return other


def mapped(value: object, change: Callable[[NDArray[Any]], Any]) -> Any:
    """The value with every array in it changed by ``change``."""
    if isinstance(value, np.ndarray):
        return change(value)
    if (fields := FIELDS.get(type(value))) is not None:
        build: Callable[..., object] = type(value)
        held = [getattr(value, name) for name in fields]
        return build(*[change(p) if type(p) is np.ndarray else mapped(p, change) for p in held])
    if type(value) is tuple:
        return tuple([mapped(part, change) for part in value])
    if type(value) is dict:
        return {key: mapped(part, change) for key, part in value.items()}
    return value


_PACKAGE = __name__.partition(".")[0]
_PREFIX = struct.Struct("<4sHxxIQ")  # magic, version, bytes of the header, bytes of the whole
_MAGIC, _VERSION, _DIGEST = b"BFM\x89", 1, 16
# what reading a header that encode did not write raises
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, ArithmeticError)
_MALFORMED += (struct.error,)
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode
_PLAIN = frozenset((type(None), bool, int, str))  # what JSON has as it is
_LITTLE = [np.dtype(code).newbyteorder("<") for code in "?bhilqBHILQefdFD"]
_DTYPES = {dtype.str: dtype for dtype in _LITTLE}


class CodecError(ValueError):
    """The bytes are not a record that ``encode`` wrote, or a value cannot travel."""


def encode(value: object) -> bytes:
    """A record as bytes: prefix, JSON header, raw little-endian arrays in C order, blake2b digest.

    Exact for numbers of any kind: ``decode(encode(r))`` has the same bits (arrays are then
    C-contiguous and little-endian). The digest protects against damage, not against an adversary
    who can compute it too.

    Raises
    ------
    CodecError : a field holds something that ``record`` does not allow.
    """
    parts = _parts(value)
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return b"".join((*parts, digest.digest()))


def fingerprint(value: object) -> str:
    """The SHA-256 digest of a record, as hexadecimal digits; equal records have the same one."""
    return hashlib.sha256(b"".join(_parts(value))).hexdigest()


def _parts(value: object) -> list[Any]:
    """What ``encode`` puts before the digest; arrays are not copied."""
    arrays: list[NDArray[Any]] = []
    header = _JSON(_pack(value, arrays)).encode()
    total = _PREFIX.size + len(header) + sum(a.nbytes for a in arrays) + _DIGEST
    prefix = _PREFIX.pack(_MAGIC, _VERSION, len(header), total)
    return [prefix, header, *[np.ascontiguousarray(a).reshape(-1).data for a in arrays]]


def encoded_size(value: object) -> int:
    """``len(encode(value))`` without copying an array."""
    arrays: list[NDArray[Any]] = []
    return _PREFIX.size + len(_JSON(_pack(value, arrays))) + sum(a.nbytes for a in arrays) + _DIGEST


def _pack(value: object, arrays: list[NDArray[Any]]) -> Any:
    """The value as JSON, its arrays appended to ``arrays``. A list always begins with a tag that
    says what it stands for.
    """
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        code = array.dtype.newbyteorder("<").str
        if code not in _DTYPES:
            can = "numbers and booleans up to 64 bits can"
            raise CodecError(f"an array of dtype {array.dtype} cannot travel: {can}")
        arrays.append(array.astype(_DTYPES[code], copy=False))  # little-endian
        return ["s", code] if isinstance(value, np.generic) else ["a", code, *array.shape]
    if (fields := FIELDS.get(kind)) is not None:
        return ["r", _HOMES[kind], {name: _field(value, name, arrays) for name in fields}]
    if kind in _PLAIN:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else ["x", struct.pack(">d", value).hex()]
    if type(value) is tuple:
        return ["t", *[_pack(part, arrays) for part in value]]
    if type(value) is dict and {str}.issuperset(map(type, value)):
        return {key: _pack(part, arrays) for key, part in value.items()}
    if isinstance(value, enum.Enum) and kind in _HOMES:
        return ["e", _HOMES[kind], value.name]
    text = f"a {kind.__qualname__} cannot travel. Records hold arrays, numbers, strings, booleans,"
    text += " None, members of @named enumerations, @record classes, tuples and string-keyed dicts"
    raise CodecError(text)


def _field(owner: object, name: str, arrays: list[NDArray[Any]]) -> Any:
    try:
        return _pack(getattr(owner, name), arrays)
    except CodecError as error:
        raise CodecError(f"{type(owner).__name__}.{name}: {error}") from None


def decode(data: bytes, *, records: bool = True, header: int | None = None) -> Any:
    """The record in ``data``, its arrays writable and independent of ``data``. Nothing in ``data``
    is run as code.

    Parameters
    ----------
    records : whether records and members of enumerations may be in ``data``; otherwise it may hold
        numbers, texts, arrays, tuples and dicts only
    header : bytes that the header may have, which grows most when it is read; None: any number

    Raises
    ------
    CodecError : bytes that are foreign, cut short, damaged, or of a newer version; an unknown
        record class, or one whose fields differ here.
    """
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        need = f"they need to start with {_MAGIC!r}, as encode writes"
        raise CodecError(f"these {len(data)} bytes are not a record: {need}")
    _, version, length, total = _PREFIX.unpack_from(data)
    if version != _VERSION:
        reads = f"this bonafed reads version {_VERSION}: update bonafed"
        raise CodecError(f"the record is of version {version}; {reads}")
    if header is not None and length > header:
        raise CodecError(f"the record's header has {length} bytes, and at most {header} are read")
    if len(data) != total:
        why = "it was cut short or run together; resend it"
        raise CodecError(f"the record has {len(data)} bytes and needs {total}: {why}")
    if hashlib.blake2b(data[:-_DIGEST], digest_size=_DIGEST).digest() != data[-_DIGEST:]:
        do = "it was damaged on the way; resend or restore it"
        raise CodecError(f"the record's digest does not match its bytes: {do}")
    try:
        reader = _Reader(data, _PREFIX.size + length, records)
        value = reader.unpack(json.loads(data[_PREFIX.size : reader.at]))
    except CodecError:
        raise
    except _MALFORMED as error:
        text = f"the record's header is malformed ({error}): it was not written by encode"
        raise CodecError(text) from error
    if reader.at != total - _DIGEST:
        raise CodecError("the record's arrays do not fill it: it was not written by encode")
    return value


class _Reader:
    def __init__(self, data: bytes, at: int, records: bool) -> None:
        self.data, self.at, self.records = data, at, records

    def array(self, code: str, shape: Sequence[int]) -> NDArray[Any]:
        dtype, count = _DTYPES[code], math.prod(shape)
        start, self.at = self.at, self.at + count * dtype.itemsize
        if min(shape, default=0) < 0 or self.at > len(self.data) - _DIGEST:
            raise ValueError(f"no room for an array of shape {list(shape)}")
        return np.frombuffer(self.data, dtype, count, start).reshape(shape).copy()

    def unpack(self, value: object) -> Any:
        if type(value) is dict:
            return {key: self.unpack(part) for key, part in value.items()}
        if type(value) is not list:
            return value
        tag, *rest = value
        if tag == "a":
            return self.array(rest[0], rest[1:])
        if tag == "r" and self.records:
            return self.record(*rest)
        if tag == "t":
            return tuple([self.unpack(part) for part in rest])
        if tag == "s":
            return self.array(rest[0], ())[()]
        if tag == "x":
            return struct.unpack(">d", bytes.fromhex(rest[0]))[0]
        if tag == "e" and self.records:
            return _class_of(rest[0], enumeration=True)[rest[1]]
        raise ValueError(f"tag {tag!r}")

    def record(self, name: str, fields: dict[str, Any]) -> Any:
        cls = _class_of(name)
        if (there := sorted(fields)) != (here := sorted(FIELDS[cls])):
            text = f"{name} has the fields {there} in the bytes and {here} here"
            raise CodecError(f"{text}: both sides need the same version of its module")
        return cls(**{key: self.unpack(part) for key, part in fields.items()})


def _class_of(name: str, *, enumeration: bool = False) -> Any:
    """The record class, or the enumeration, of this home."""
    known = _CLASSES.get(name)
    if known is not None and (issubclass(known, enum.Enum) if enumeration else known in FIELDS):
        return known
    kind = "enumeration" if enumeration else "record class"
    do = "import the module that defines it, or update bonafed"
    raise CodecError(f"no {kind} {name!r} here: {do}")
