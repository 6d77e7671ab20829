"""Lines of risks at their models and secant curvatures, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit, types


def _given(ndim: int) -> types.Array:
    return types.Array(types.float64, ndim, "C", readonly=True)


# One code for arrays that may be written and those that may not: equal numbers give equal bits.
@njit(
    [(_given(1), _given(2), _given(2), _given(2), _given(2), _given(1))],
    cache=True,
    fastmath={"reassoc", "contract", "nsz"},
)
def lines_and_curvatures(risk, slope, w, old_slope, old_w, before):
    """b = F(w) - <g, w>, (n,), and ||g - g'|| / ||w - w'||; where w is the old one what was known before.

    Parameters
    ----------
    risk, before : (n,) F(w), and the curvatures known before
    slope, w, old_slope, old_w : (n, D) g, w, g' and w'
    """
    level, curvature = risk.copy(), before.copy()
    for i in range(len(risk)):
        step = change = 0.0
        for k in range(w.shape[1]):
            level[i] -= slope[i, k] * w[i, k]
            step += (w[i, k] - old_w[i, k]) ** 2
            change += (slope[i, k] - old_slope[i, k]) ** 2
        if step > 0:
            curvature[i] = np.sqrt(change / step)
    return level, curvature
