"""Statements: problems and algorithms as bytes that are the same at every site, and their digest.

A statement holds the public classes of bonafed of which a user makes a problem or an algorithm, and
the values of all their fields, also of those that are as by default. Anyone who reads one builds
these classes and no others, by calling their constructors, whose checks apply. Nothing that runs
code is part of a statement: neither functions nor torch modules, nor classes of other modules; no
field holds the path of a file.

One meaning has one form, so that two statements are equal where their digests are:

- The classes are known by their public names, their fields stand in alphabetical order.
- A list is a tuple, and mappings are sorted by their keys: first bool, float, int, str, then by
  value. What a class makes of a mapping, such as the rows of ``Sign``, is in this order at every
  site; a server solves the statement that it sends, ``stated(statement_bytes(problem), Problem)``.
- Numbers of NumPy are Python's: ``np.float64(0.1)`` is 0.1. 1, 1.0 and True differ, and so do 0.0
  and -0.0. Infinities are numbers; NaN is refused. Whole numbers have at most 64 bits.
- Arrays have entries, of one kind of numbers or booleans, little-endian in C order; their kind and
  their shape count.
- Fields that a class names in ``unstated`` are left out: the problem of an algorithm, which is
  stated beside it, and the ledger file of a budget, which every owner chooses.

The bytes are those of ``codec`` without a record in them. The digest is SHA-256 of the bytes, cut
to 160 bits: nobody can make two statements with one digest.
"""

import hashlib
import inspect
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from bonafed.codec import FIELDS, CodecError, decode, encode, home
from bonafed.names import listed_places, of_place
from bonafed.parameters import in_words, parameters, setters, takes
from bonafed.text import LINE, printable, short, shown

T = TypeVar("T")
FORMAT = "bonafed statement 1"
MOST = 2**22  # bytes of a statement, unless its reader allows more
DEEPEST = 16  # classes, tuples and mappings inside each other
# NumPy gives every text of an array the room of the longest one: 130 MB are the most
ENTRIES = 2**16  # of a tuple or a mapping
LONGEST = 500  # characters of a text
LISTED = 100  # entries that are listed one by one

# where the public classes stand of which problems and algorithms are made ...
PARTS = ("bonafed.problem.", "bonafed.algorithms.", "bonafed.papers.", "bonafed.privacy.budget:")
# ... and those among them that hold code of a user
WITH_CODE = {
    "TorchPredictor": "use Linear(), Softmax() or MLP(hidden)",
    "OwnSet": "state the set as Polyhedron(D, c), Ellipsoid(shape, radius) or another set",
    "Constraint": "use a constraint of bonafed, such as LinearInequality(C, d)",
    "TorchConstraint": "use a constraint of bonafed, such as LinearInequality(C, d)",
}


def statement_bytes(value: object, *, allowed: Collection[type] = ()) -> bytes:
    """A problem or an algorithm as bytes: the same for the same meaning, wherever they are made.

    Parameters
    ----------
    value : as a user states it, not the concrete one of a solution or of a run
    allowed : classes of your own that may be part of it, frozen dataclasses that are installed at
        every site

    Raises
    ------
    CodecError
        for what cannot be stated, such as a function, with what to do instead
    """
    known = tuple(allowed)
    data = _encoded(value, known)
    # what its readers would refuse is refused here already
    _built(data, type(value), known, len(data))
    return data


def stated(data: bytes, kind: type[T], *, allowed: Collection[type] = (), most: int = MOST) -> T:
    """The problem or the algorithm that ``statement_bytes`` wrote.

    Only modules of bonafed are imported, those of the classes in the statement, and only
    constructors of such classes are called. To hold a statement to a digest, compare
    ``digest(data)`` first.

    Parameters
    ----------
    kind : the class that it must be of, such as ``Problem`` or ``Method``
    allowed : classes of your own that may be part of it
    most : the most bytes

    Raises
    ------
    CodecError
        for anything else: foreign or damaged bytes, other classes, values that a class refuses
    """
    return _built(data, kind, tuple(allowed), most)


def digest(value: object, *, allowed: Collection[type] = ()) -> str:
    """The digest of a problem or an algorithm, forty hexadecimal digits in groups of four.

    It is the same on every machine, and another one for another meaning. ``value`` may also be the
    bytes of a statement, which are not read.

    Raises
    ------
    CodecError
        for what cannot be stated
    """
    data = value if isinstance(value, bytes) else statement_bytes(value, allowed=allowed)
    digits = hashlib.sha256(data).hexdigest()[:40]
    return "-".join(digits[at : at + 4] for at in range(0, 40, 4))


def lines(value: object, *, allowed: Collection[type] = ()) -> list[str]:
    """What a problem or an algorithm says, for people who are to agree to it: its digest, then one
    line for every class, with what it is, and one for every field.
    """
    known = tuple(allowed)
    data = statement_bytes(value, allowed=allowed)
    built = _built(data, type(value), known, len(data))
    return [f"digest: {digest(data)}", *_described("", built, known, "statement")]


# ------------------------------------------------------------------------------------ the classes


@cache
def _places() -> dict[str, str]:
    """The places of the classes that statements may hold, by their public names."""
    places = (place for place in listed_places() if place.startswith(PARTS))
    names = {place.partition(":")[2]: place for place in places}
    return {name: place for name, place in names.items() if name not in WITH_CODE}


Classes = tuple[type, ...]  # of the user's, which a statement may hold beside those of bonafed


def _class_of(name: object, where: str, allowed: Classes) -> type:
    """The class of a name, its module imported where it is one of bonafed's."""
    place = _places().get(name) if isinstance(name, str) else None
    cls: Any = None if place is None else of_place(place)
    if _is_part(cls) and cls.__name__ == name:
        return cls
    for cls in [cls for cls in allowed if is_dataclass(cls) and home(cls) == name]:
        return cls
    text = "is not a class that a statement may hold: it needs the public classes of problems and"
    text += " algorithms of bonafed. Update bonafed, or refuse the statement"
    raise CodecError(f"{where} is to be a {shown(name)}, which {text}")


def _name_of(cls: type, where: str, allowed: Classes) -> str:
    """The name of a class; ``CodecError`` with what to do for one that is not stated."""
    name = cls.__name__
    place = f"{cls.__module__}:{name}"
    if _places().get(name) == place and _is_part(cls):
        return name
    if cls in allowed and is_dataclass(cls):
        return home(cls)
    if place in listed_places() and name in WITH_CODE:
        why = f"holds code of yours, and no code travels to a site: {WITH_CODE[name]}"
    elif cls.__module__.startswith("bonafed."):
        why = "is not part of a statement: state the problem and the algorithm as you give them"
        why += " to solve, not as a run or a solution has them"
    else:
        why = "is not a class of bonafed, and no code travels to a site: give numbers, texts,"
        why += " tuples, mappings or classes of bonafed in its place, or have every site"
        why += " install the class, a frozen dataclass, and allow it"
    raise CodecError(f"{where} cannot be stated: {name} {why}")


def _is_part(cls: Any) -> bool:
    """Whether a public name is that of a class with fields, and of no message."""
    return isinstance(cls, type) and is_dataclass(cls) and cls not in FIELDS


def _stated_fields(cls: Any) -> list[str]:
    """The fields of a class that are part of a statement."""
    unstated = getattr(cls, "unstated", ())
    return sorted(field.name for field in fields(cls) if field.init and field.name not in unstated)


# ---------------------------------------------------------------------------------------- writing


def _encoded(value: object, known: Classes) -> bytes:
    return encode({"what": FORMAT, "value": _packed(value, type(value).__name__, known, 0)})


def _packed(value: Any, where: str, known: Classes, depth: int) -> Any:
    """The value as the codec takes it; what is not a number, text or array begins with a tag."""
    _check_size(value, depth, where)
    if type(value) in (list, tuple, range):
        parts = [_packed(part, f"{where}[{k}]", known, depth + 1) for k, part in enumerate(value)]
        return ("tuple", *parts)
    if isinstance(value, Mapping):
        keys = [(_key(key, where), key) for key in value]
        keys.sort(key=lambda pair: (type(pair[0]).__name__, pair[0]))
        parts = [(k, _packed(value[key], f"{where}[{k!r}]", known, depth + 1)) for k, key in keys]
        return ("map", *parts)
    if is_dataclass(value) and not isinstance(value, type):
        name = _name_of(type(value), where, known)
        held = {field: getattr(value, field) for field in _stated_fields(value)}
        kept = {k: _packed(part, f"{where}.{k}", known, depth + 1) for k, part in held.items()}
        return ("object", name, kept)
    return _plain(value, where, known)


def _check_size(value: object, depth: int, where: str) -> None:
    """Raise for more entries or levels than any problem has."""
    if depth > DEEPEST:
        deep = f"more than {DEEPEST} levels deep, deeper than any problem"
        raise CodecError(f"{short(where, 60)} is {deep}")
    if isinstance(value, Sequence | Mapping) and len(value) > ENTRIES and type(value) is not str:
        text = f"{where} has {len(value):,} entries, and can have at most {ENTRIES:,}"
        raise CodecError(f"{text}: give an array where they are numbers")


def _key(key: object, where: str) -> bool | int | float | str:
    """A key of a mapping in its one form."""
    plain = _plain(key, f"a key of {where}", None)
    if not isinstance(plain, bool | int | float | str):
        must = "text, a number or a truth value"
        raise CodecError(f"a key of {where} must be {must}, got {shown(key)}")
    return plain


def _plain(value: Any, where: str, known: Classes | None) -> Any:
    """A number, a text or an array in its one form; ``CodecError`` for anything else."""
    if isinstance(value, np.bool_ | np.integer | np.float64 | np.str_):
        value = value.item()
    if value is None or type(value) is bool:
        return value
    wrong = ""
    if type(value) is int:
        if not -(2**63) <= value < 2**64:
            wrong = "has more than 64 bits: give a smaller number"
    elif type(value) is float:
        if math.isnan(value):
            wrong = "is NaN, which is not a number to agree on: give a number or None"
    elif type(value) is str:
        if len(value) > LONGEST:
            wrong = f"has {len(value):,} characters, and can have at most {LONGEST}: shorten it"
        elif any("\ud800" <= letter <= "\udfff" for letter in value):
            wrong = "is not valid Unicode text: give it another name"
    elif type(value) is np.ndarray:
        if value.dtype.kind not in "biuf":
            wrong = f"is an array of {value.dtype}: give a tuple of texts, or numbers"
        elif not value.size:
            wrong = f"is an array of shape {value.shape} without entries: leave it out"
        elif value.dtype.kind == "f" and np.isnan(value).any():
            wrong = "holds NaN, which is not a number to agree on: give numbers"
    else:
        wrong = _wrong_kind(value, where, known)
    if wrong:
        raise CodecError(f"{where} {wrong}")
    return value


def _wrong_kind(value: object, where: str, known: Classes | None) -> str:
    """Why a value that is not a number, text or array cannot be stated."""
    if isinstance(value, os.PathLike):
        return "is the path of a file, which is every owner's own affair: leave it out"
    if isinstance(value, type):
        return f"is the class {value.__name__}: give a value, such as {value.__name__}(...)"
    if callable(value) and hasattr(value, "__qualname__"):
        do = "give numbers or classes of bonafed in its place"
        return f"is a function, and no code travels to a site: {do}"
    if isinstance(value, np.generic):
        return f"is a NumPy {type(value).__name__}: give float(value)"
    if known is not None and not isinstance(value, set | frozenset | bytes | bytearray | complex):
        _name_of(type(value), where, known)
    return f"is a {type(value).__name__}: give a tuple, a mapping, numbers or texts"


# ---------------------------------------------------------------------------------------- reading


def _built(data: bytes, kind: type[T], known: Classes, most: int) -> T:
    """The value of a statement; raises unless these are the very bytes that it is written as."""
    if len(data) > most:
        text = f"the statement has {len(data):,} bytes, and at most {most:,} are read"
        raise CodecError(f"{text}: refuse it, or allow more")
    try:
        top = decode(data, records=False)
    except CodecError as error:  # its text may hold parts of the bytes
        raise CodecError(short(printable(str(error)), 500)) from error
    if type(top) is not dict or set(top) != {"what", "value"} or top["what"] != FORMAT:
        by = "a statement is written by statement_bytes"
        raise CodecError(f"these bytes are not {FORMAT!r}: {by}")
    with np.errstate(all="ignore"):
        value = _unpacked(top["value"], kind.__name__, known, 0)
    if not isinstance(value, kind):
        needs = f"needs to be of a {kind.__name__}"
        raise CodecError(f"the statement is of a {type(value).__name__}, and {needs}")
    if _encoded(value, known) != data:
        text = "the statement is not in the one form that its meaning has, so that its digest says"
        why = "it was not written by statement_bytes of this version of bonafed"
        raise CodecError(f"{text} nothing: {why}, or a class changes the values of its fields")
    return value


def _unpacked(tree: Any, where: str, known: Classes, depth: int) -> Any:
    """The inverse of ``_packed``."""
    _check_size(tree, depth, where)
    if not isinstance(tree, tuple):
        return _plain(tree, where, None)
    match tree:
        case ("tuple", *parts):
            each = enumerate(parts)
            return tuple([_unpacked(p, f"{where}[{k}]", known, depth + 1) for k, p in each])
        case ("map", *pairs) if all(type(pair) is tuple and len(pair) == 2 for pair in pairs):
            places = [(key, part, f"{where}[{shown(key)}]") for key, part in pairs]
            return {_key(k, where): _unpacked(p, at, known, depth + 1) for k, p, at in places}
        case ("object", name, dict(kept)):
            return _object(_class_of(name, where, known), kept, where, known, depth)
    raise CodecError(f"{where} is nothing that a statement may hold: {shown(tree)}")


def _object(cls: type, kept: dict[str, Any], where: str, known: Classes, depth: int) -> object:
    """The value of a class from its packed fields."""
    wanted = _stated_fields(cls)
    if sorted(kept) != wanted:
        why = f"{where}: {cls.__name__} has the fields {shown(sorted(kept))} in the statement and"
        raise CodecError(f"{why} {wanted} here: both sides need the same version of bonafed")
    called, values = setters(cls), {}
    for name in wanted:
        part = _unpacked(kept[name], f"{where}.{name}", known, depth + 1)
        if not takes(kind := parameters(cls)[called[name]].type, part):
            raise CodecError(f"{where}.{name} must be {in_words(kind)}, got {shown(part)}")
        values[called[name]] = part
    try:
        return cls(**values)
    except Exception as error:  # of values that nobody has checked before
        text = short(printable(" ".join(str(error).split())), 500) or type(error).__name__
        raise CodecError(f"{where}: {cls.__name__} does not take its fields: {text}") from error


# --------------------------------------------------------------------------------------- in words


def _described(indent: str, value: Any, known: Classes, name: str) -> list[str]:
    """The lines of one value, the first with its name."""
    more = f"{indent}  "
    if is_dataclass(value):
        cls: Any = type(value)
        about = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].replace("`", "").split())
        first = short(printable(f"{indent}{name}: {_name_of(cls, name, known)}. {about}"), LINE)
        kept = _stated_fields(cls)
        inner = [(f.name, getattr(value, f.name)) for f in fields(cls) if f.name in kept]
    elif isinstance(value, dict) or (isinstance(value, tuple) and not _is_short(value)):
        first = f"{indent}{name}: {len(value):,} entries"
        pairs = value.items() if isinstance(value, dict) else enumerate(value, 1)
        inner = [(shown(key), part) for key, part in pairs]
    else:
        return [f"{indent}{name}: {_in_words(value)}"]
    after = [f"{more}and {len(inner) - LISTED:,} more"] if len(inner) > LISTED else []
    parts = [line for key, part in inner[:LISTED] for line in _described(more, part, known, key)]
    return [first, *parts, *after]


def _is_short(values: tuple[Any, ...]) -> bool:
    """Whether values stand on one line: few numbers and short texts."""
    plain = all(part is None or isinstance(part, bool | int | float | str) for part in values)
    return plain and len(repr(values)) <= 100


def _in_words(value: Any) -> str:
    if not isinstance(value, np.ndarray) or value.size <= 8:
        return shown(value, LINE)
    kind = "truth values" if value.dtype == bool else "numbers"
    size = " x ".join(map(str, value.shape))
    return f"{size} {kind} from {value.min()} to {value.max()}"
