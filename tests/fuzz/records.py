"""Mutations of records: one value of a decoded record becomes another one, and the record is
encoded with a valid digest again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bonafed.codec import FIELDS

Path = tuple[Any, ...]  # of names, positions and keys


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """All values in a record that hold no others, with the way to each."""
    if type(value) in FIELDS:
        parts = [(name, getattr(value, name)) for name in FIELDS[type(value)]]
    elif type(value) is tuple:
        parts = list(enumerate(value))
    elif type(value) is dict:
        parts = list(value.items())
    else:
        yield path, value
        return
    for key, part in parts:
        yield from leaves(part, (*path, key))


def at(value: Any, path: Path) -> Any:
    """The part at the end of the way."""
    for key in path:
        value = getattr(value, key) if type(value) in FIELDS else value[key]
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """The record with another value at the end of the way."""
    if not path:
        return new
    key, *rest = path
    part = put(at(value, (key,)), tuple(rest), new)
    if type(value) in FIELDS:
        return replace(value, **{key: part})
    if type(value) is tuple:
        return (*value[:key], part, *value[key + 1 :])
    return {**value, key: part}


# ---- mutations of one value; None where it has none of this sort


def _entry(new: Callable[[np.random.Generator], Any]) -> Callable[[Any, Any], Any]:
    def change(value: Any, rng: np.random.Generator) -> Any:
        if type(value) is float:
            return float(new(rng))
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size:
            value = value.copy()
            value.flat[rng.integers(value.size)] = new(rng)
            return value
        return None

    return change


def _negative(value: Any, rng: np.random.Generator) -> Any:
    if type(value) is int:
        return -1 - value
    if isinstance(value, np.ndarray) and value.dtype.kind == "i" and value.size:
        value = value.copy()
        value.flat[rng.integers(value.size)] = -2
        return value
    return None


def _beyond(value: Any, rng: np.random.Generator) -> Any:
    """A whole number far above all that there are."""
    if type(value) is int:
        return value + 10**6
    if isinstance(value, np.ndarray) and value.dtype.kind == "i" and value.size:
        value = value.copy()
        value.flat[rng.integers(value.size)] = 10**6
        return value
    return None


def _shape(value: Any, rng: np.random.Generator) -> Any:
    if not isinstance(value, np.ndarray):
        return None
    longer = np.concatenate([value.ravel(), value.ravel()[:1], np.zeros(1, value.dtype)])
    shorter = value[:-1] if value.ndim and len(value) else longer
    others = [
        longer,
        shorter,
        value[None],
        value.ravel()[:1],
        value.T if value.ndim > 1 else longer,
    ]
    others = [other for other in others if other.shape != value.shape]
    return others[rng.integers(len(others))]


def _kind(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, np.ndarray):
        kinds = [np.float32, np.int64, np.complex128, np.bool_, np.float64]
        kinds = [kind for kind in kinds if value.dtype != kind]
        with np.errstate(all="ignore"):
            return value.astype(kinds[rng.integers(len(kinds))])
    others = ["text", None, (), {"a": 1}, True, np.zeros(2)]
    others = [other for other in others if type(other) is not type(value)]
    return others[rng.integers(len(others))]


MUTATIONS: dict[str, Callable[[Any, np.random.Generator], Any]] = {
    "nan": _entry(lambda rng: math.nan),
    "infinite": _entry(lambda rng: [math.inf, -math.inf][rng.integers(2)]),
    "negative": _negative,
    "beyond": _beyond,
    "shape": _shape,
    "kind": _kind,
}


def mutated(record: Any, rng: np.random.Generator, sort: str = "") -> tuple[str, Any]:
    """(what was changed, the record with one value changed)."""
    known = list(leaves(record))
    while True:
        path, value = known[rng.integers(len(known))]
        name = sort or list(MUTATIONS)[rng.integers(len(MUTATIONS))]
        new = MUTATIONS[name](value, rng)
        if new is not None:
            return f"{'.'.join(map(str, path))}: {name}", put(record, path, new)
