"""Values of bonafed as bytes and back, through the codec of the wire: no code is stored or run.

A value of a class that `names.py` lists, or of one in ``MORE``, is stored as the place of its class
and its fields, and made again by calling the class, whose checks then apply. What holds Python code
(a function, a torch module, an object of a class of the user's) is stored as a description only.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bonafed.codec import FIELDS, CodecError, decode, encode
from bonafed.data.schema import Schema
from bonafed.names import listed_places, of_place
from bonafed.privacy.accounting import Release
from bonafed.solution.predictions import Inputs
from bonafed.storage import write_whole
from bonafed.text import shown

FORMAT = "bonafed solution 1"
MORE = {f"{cls.__module__}:{cls.__name__}": cls for cls in (Inputs, Release)}


class HoldsCodeError(Exception):
    """A value holds Python code, which no file holds."""


@dataclass(frozen=True)
class Absent:
    """In the place of a value that a file does not hold, and what it is."""

    description: str


def packed(value: Any) -> Any:
    """The value as the codec takes it.

    Raises
    ------
    HoldsCodeError : where it, or a part of it, is code
    """
    if value is None or type(value) in (bool, int, str, float) or type(value) in FIELDS:
        return value
    if isinstance(value, enum.Enum | np.generic):
        return value
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biufc" else ("texts", *map(packed, value.tolist()))
    if type(value) in (list, tuple):
        return (type(value).__name__, *map(packed, value))
    if isinstance(value, list):
        return ("list", *map(packed, value))
    if isinstance(value, Mapping):
        return ("map", *((packed(key), packed(part)) for key, part in value.items()))
    if isinstance(value, Absent):
        return ("absent", value.description)
    if isinstance(value, os.PathLike):
        return ("path", os.fspath(value))
    if isinstance(value, Schema):
        return ("schema", packed(value.to_dict()))
    place = f"{type(value).__module__}:{type(value).__qualname__}"
    if not is_dataclass(value) or not (place in MORE or place in listed_places()):
        raise HoldsCodeError
    kept = {f.name: packed(getattr(value, f.name)) for f in fields(value) if f.init}
    return ("object", place, kept)


def described(value: Any) -> Any:
    """The value packed, or what it is where it is code."""
    try:
        return packed(value)
    except HoldsCodeError:
        return packed(Absent(shown(value)))


def unpacked(value: Any) -> Any:
    """The inverse of `packed`; raises ``ValueError`` or ``TypeError`` for what it never makes."""
    if not isinstance(value, tuple):
        if isinstance(value, dict):
            raise ValueError("a mapping outside an object")
        return value
    tag, *parts = value
    if tag == "object":
        place, kept = parts
        cls = MORE.get(place) or of_place(place)
        known = [f for f in fields(cls) if f.init]
        wanted = {f.name for f in known}
        if {*kept} != wanted:
            raise ValueError(f"{cls.__name__} has the fields {sorted(wanted)}")
        # by place: one class calls its parameter otherwise than its field
        return cls(*(unpacked(kept[f.name]) for f in known))
    if tag == "map":
        return {unpacked(key): unpacked(part) for key, part in parts}
    return MAKERS[tag](map(unpacked, parts))


MAKERS: dict[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "texts": lambda parts: np.array([*parts]),
    "absent": lambda parts: Absent(*parts),
    "schema": lambda parts: Schema.from_dict(*parts),
    "path": lambda parts: Path(*parts),
}


def store(path: str | os.PathLike[str], values: Mapping[str, Any]) -> None:
    """Write packed values to a file, in one step."""
    write_whole(Path(path), encode({"what": FORMAT, **values}))


def stored(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The packed values in a file.

    Raises
    ------
    ValueError : a damaged file, or one that holds something else
    OSError : a file that cannot be read
    """
    if Path(path).is_dir():
        raise ValueError(
            f"{path} is a folder: a solution is a file that solution.save(path) wrote. The model of"
            " a run's folder predicts by `bonafed predict`."
        )
    try:
        values = decode(Path(path).read_bytes())
    except CodecError as error:
        raise ValueError(
            f"{path} is not a solution that solution.save(path) wrote, or it was changed since:"
            f" {error}"
        ) from error
    if not isinstance(values, dict) or values.get("what") != FORMAT:
        held = shown(values.get("what")) if isinstance(values, dict) else type(values).__name__
        raise ValueError(
            f"{path} holds no {FORMAT!r}, but {held}: give a file that solution.save(path) wrote."
        )
    return values
