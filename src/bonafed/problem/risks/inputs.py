"""Settings of risks over clients, checked and made arrays in the federation's order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bonafed.arrays import Array, has_truths, is_number
from bonafed.client_names import by_position
from bonafed.problem.risks.risk import Names

PerClient = float | Sequence[float] | Array | Mapping[Any, float]
Matrix = Sequence[Sequence[float]] | Array


def entries(value: object) -> object:
    """The numbers of a mapping by client name, without the names; anything else as it is."""
    return [*value.values()] if isinstance(value, Mapping) else value


def number(value: object, name: str, hint: str) -> float:
    """``value`` as a finite number >= 0."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number >= 0, got {value!r}. {hint}")
    return float(value)


def by_name(value: object, names: Names, name: str) -> object:
    """``value``; a mapping by client name becomes a list in the clients' order."""
    if not isinstance(value, Mapping):
        return value
    if names is None:
        raise ValueError(
            f"{name} by client name needs exactly one entry for each client, got {list(value)} for"
            " clients that have no names here: call at(sizes, names) first."
        )
    return list(by_position(value, names, name).values())


def numbers(value: object, name: str) -> Array:
    """``value`` as an array of finite numbers; text and truth values are none."""
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.empty(0, object)
    if array.dtype.kind not in "fiu" or has_truths(value):
        raise ValueError(f"{name} must be numbers, got {value!r}.")
    array = array.astype(float)
    if not np.isfinite(array).all():
        raise ValueError(
            f"{name} must be finite, got {array[~np.isfinite(array)][0]}. Give a number for each"
            " client."
        )
    return array


def check_prior(risk: object) -> None:
    """Raise ``ValueError`` for a prior that is none, no matter who the clients are."""
    prior = getattr(risk, "prior", "uniform")
    if isinstance(prior, str):
        if prior not in ("uniform", "size"):
            raise ValueError(
                f"prior must be 'uniform', 'size' or weights by client, got {prior!r}."
            )
    elif prior is not None and (numbers(entries(prior), "prior") < 0).any():
        raise ValueError(f"prior must be >= 0, got {prior!r}. A client may have weight 0.")


def per_client(value: PerClient, n: int, names: Names, name: str) -> Array:
    """One number for all, n numbers or a mapping by client name, as n numbers."""
    array = numbers(by_name(value, names, name), name)
    if array.shape not in ((), (n,)):
        raise ValueError(
            f"{name} must be a number or {n} numbers, one per client, got shape {array.shape}."
        )
    return np.broadcast_to(array, (n,)).copy()
