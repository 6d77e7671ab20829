"""Rows centred and scaled by public numbers, and each divided by its own length.

A row's image depends on that row and on public numbers only, so that one record still moves one
row. All rows then count alike where gradients are clipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array


def unit_rows(X: Any, centre: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> Any:
    """The rows (x - centre) / scale, each divided by its Euclidean norm; a row of zeros stays.

    Parameters
    ----------
    X : (m, d) array or sparse matrix; sparse rows take the centre 0 only, else all cells are full
    centre, scale : a number or (d,) numbers, public; scale > 0

    Raises
    ------
    ValueError
        for a scale that is not positive, numbers that are not finite, and sparse rows with a centre
    """
    centre, scale = np.asarray(centre, float), np.asarray(scale, float)
    if not (np.isfinite(centre).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError("centre and scale must be finite numbers, and scale > 0.")
    if isinstance(X, np.ndarray):
        # in one order of memory, so that sums over a row do not depend on how many rows there are
        moved = np.ascontiguousarray((X - centre) / scale)
        top = np.abs(moved).max(axis=1, initial=0.0, keepdims=True)
        moved = moved / np.where(top > 0, top, 1.0)  # squares of long rows would overflow
        return moved / _or_one(np.sqrt((moved**2).sum(axis=1, keepdims=True)))
    if centre.any():
        raise ValueError(
            "sparse rows cannot be centred, which fills all their cells: declare ranges around 0,"
            " such as (-1, 1), or give a dense array."
        )
    from scipy.sparse import csr_array

    moved = csr_array(X.multiply(1 / np.broadcast_to(scale, (1, X.shape[1]))))
    top = _or_one(abs(moved).max(axis=1).toarray().reshape(-1, 1))
    moved = csr_array(moved.multiply(1 / top))
    norm = np.sqrt(np.asarray(moved.multiply(moved).sum(axis=1)).reshape(-1, 1))
    return csr_array(moved.multiply(1 / _or_one(norm)))


def _or_one(length: Array) -> Array:
    return np.where(length > 0, length, 1.0)


def middles(ranges: tuple[ArrayLike, ArrayLike], d: int) -> tuple[Array, Array]:
    """The middle and half the width, (d,) each, of declared ranges (low, high).

    Raises
    ------
    ValueError
        for ranges that are not a pair of numbers or of (d,) numbers, low < high
    """
    wrong = ValueError(
        "ranges must be a pair (low, high) with low < high, of two finite numbers or of two lists"
        f" of {d} numbers, one for each feature, got {ranges!r}."
    )
    try:
        low, high = (np.broadcast_to(np.asarray(end, float), (d,)) for end in ranges)
    except (TypeError, ValueError) as error:
        raise wrong from error
    with np.errstate(over="ignore", invalid="ignore"):
        half = (high - low) / 2
    if not (np.isfinite(low).all() and np.isfinite(half).all() and (half > 0).all()):
        raise wrong
    return low + half, half
