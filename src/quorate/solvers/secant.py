"""Lines of risks at their models and secant curvatures, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from quorate.solvers.signatures import given


@njit(
    [(given(1), given(2), given(2), given(2), given(2), given(1))],
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
