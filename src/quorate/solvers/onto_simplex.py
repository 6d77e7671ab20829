"""Projections onto the simplex, compiled: asynchronous servers project at every answer."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from quorate.solvers.signatures import given


@njit([types.float64[::1](given(1), types.float64)], cache=True)
def onto_simplex(v, total):
    """max(v - g, 0) with the sum total > 0, for finite v; g by Newton on a convex piecewise linear function.

    After Michelot, *A finite algorithm for finding the projection of a point onto the canonical simplex of R^n*; the
    largest entry alone says g >= -total. Entries at or below the level are dropped for good.
    """
    active, count, top = np.empty(len(v)), 0, v.max()
    for x in v:  # whether an entry stays is hard to foresee: counted, not branched upon, it is quicker
        active[count] = x - top
        count += x - top > -total
    while True:
        level = (active[:count].sum() - total) / count
        kept = 0
        for k in range(count):
            active[kept] = active[k]
            kept += active[k] > level
        if kept == count:
            break
        count = kept
    q = np.empty(len(v))
    for k in range(len(v)):
        q[k] = max(v[k] - top - level, 0.0)
    return q
