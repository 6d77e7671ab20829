"""Weights of classes: every row counts by the weight of its class, beside its own.

    balanced: v_c = n / (C n_c), n_c the rows of class c over all clients (a sum of their counts)

So do clients: the prior "size" is their rows' weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.problem.metadata import Metadata

Balance = Literal["balanced"] | Mapping[Any, float]


def checked(stated: object) -> None:
    """Raise ``ValueError`` for what is neither None, "balanced" nor a mapping by class."""
    if stated is None or isinstance(stated, Mapping) or stated == "balanced":
        return
    raise ValueError(
        f"class_weight must be None, 'balanced' or a mapping by class, got {stated!r}."
    )


def weighted(fed: Federation, values: ArrayLike, factors: Array) -> Federation:
    """The federation with weights of rows, times those of their classes.

    ``values`` (C,) are the targets that stand for the classes, ascending, ``factors`` (C,) the
    weights of the classes.
    """
    codes = [np.searchsorted(values, y) for y in fed.y]
    weights = fed.sample_weight or tuple(np.ones(len(y)) for y in fed.y)
    each = zip(codes, weights, strict=True)
    return fed._with(sample_weight=tuple(factors[code] * v for code, v in each))


def class_counts(fed: Federation, values: ArrayLike) -> Array:
    """(C,) the weight of the rows of every class over all clients; ``values`` as of `weighted`."""
    weights = fed.sample_weight or tuple(np.ones(len(y)) for y in fed.y)
    pairs = zip(fed.y, weights, strict=True)
    counts = [np.bincount(np.searchsorted(values, y), v, np.size(values)) for y, v in pairs]
    return np.sum(counts, 0, float)


def masses(fed: Federation | Metadata) -> Array:
    """(N,) the weight of every client's rows together."""
    if isinstance(fed, Metadata):
        return fed.masses
    if fed.sample_weight is None:
        return fed.sizes.astype(float)
    return np.array([float(v.sum()) for v in fed.sample_weight])


def class_factors(stated: Balance, classes: list[Any], counts: Array) -> Array:
    """(C,) the weight of every class; a mapping has 1 for those that it does not name."""
    checked(stated)
    if not isinstance(stated, Mapping):
        return counts.sum() / (len(counts) * np.maximum(counts, 1e-300))
    names = [str(label) for label in classes]  # a configuration has keys of text
    if odd := [label for label in stated if str(label) not in names]:
        raise ValueError(f"class_weight has {odd[0]!r}, which is not a class: {classes[:10]}.")
    named = {str(label): value for label, value in stated.items()}
    factors = np.array([named.get(name, 1.0) for name in names], float)
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ValueError(
            f"class_weight must be finite and > 0, got {dict(stated)}: leave out rows of a class"
            " that is not to count."
        )
    return factors
