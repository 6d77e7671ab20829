"""Projections onto the simplex, compiled: asynchronous servers project at every answer."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def onto_simplex(v, total):
    """v becomes max(v - g, 0) with the sum total, for max v = 0; g by Newton on a convex piecewise linear function.

    After Michelot, *A finite algorithm for finding the projection of a point onto the canonical simplex of R^n*; the
    largest entry alone says g >= -total. Entries at or below the level are dropped for good.
    """
    active, count = np.empty(len(v)), 0
    for x in v:
        if x > -total:
            active[count] = x
            count += 1
    while True:
        level = (active[:count].sum() - total) / count
        kept = 0
        for k in range(count):
            if active[k] > level:
                active[kept] = active[k]
                kept += 1
        if kept == count:
            break
        count = kept
    for k in range(len(v)):
        v[k] = max(v[k] - level, 0.0)
    return v
