"""Projections onto the simplex, compiled: an asynchronous server projects at every answer."""

import numpy as np
from numba import njit, types

from bonafed.solvers.kernels.signatures import doubles

ROUNDED = 2e-15  # of the sum, which counts as exact


@njit([types.float64[::1](doubles(1), types.float64)], cache=True)
def onto_simplex(v, total):
    """max(v - g, 0) with the sum total > 0, for finite v.

    g is the root of a convex piecewise linear function, by Newton's method.

    After Michelot, *A finite algorithm for finding the projection of a point onto the canonical
    simplex of R^n*; the largest entry by itself says g >= -total. Entries at or below the level are
    dropped for good.
    """
    # loops instead of max and sum, whose messages about axes take seconds to compile
    active, count, top = np.empty(len(v)), 0, v[0]
    for x in v:
        top = max(top, x)
    # whether an entry stays is hard to predict, so counting is quicker than branching
    for x in v:
        active[count] = x - top
        count += x - top > -total
    while True:
        level, kept = 0.0, 0
        for k in range(count):
            level += active[k]
        level = (level - total) / count
        for k in range(count):
            active[kept] = active[k]
            kept += active[k] > level
        if kept == count:
            break
        count = kept
    # the rounding of a sum of many entries moves the level, and all of them with it
    q, share = np.empty(len(v)), 1.0
    for _ in range(3):
        reached, count = 0.0, 0
        for k in range(len(v)):
            q[k] = max(v[k] - top - level, 0.0)
            reached += q[k]
            count += q[k] > 0.0
        share = total / reached
        if abs(share - 1.0) <= ROUNDED:
            return q
        level += (reached - total) / count
    return q * share
