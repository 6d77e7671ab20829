"""Tangents of risks at their models, and secant curvatures, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from quorate.solvers.kernels.signatures import doubles


@njit(
    [(doubles(1), *[doubles(2)] * 5, doubles(1))],
    cache=True,
    fastmath={"reassoc", "contract", "nsz"},
)
def lines_and_curvatures(risk, gradient, w, old_gradient, old_w, units, before):
    """b = F(w) - <g, w> of every client, (n,), and the curvature ||(g - g') / u|| / ||u (w - w')||.

    Where w equals the old one the curvature of before is kept.

    Parameters
    ----------
    risk, before : (n,) F(w), and the curvatures known before
    gradient, w, old_gradient, old_w, units : (n, D) g, w, g', w' and u
    """
    level, curvature = risk.copy(), before.copy()
    for i in range(len(risk)):
        step = change = 0.0
        for k in range(w.shape[1]):
            level[i] -= gradient[i, k] * w[i, k]
            step += (units[i, k] * (w[i, k] - old_w[i, k])) ** 2
            change += ((gradient[i, k] - old_gradient[i, k]) / units[i, k]) ** 2
        if step > 0:
            curvature[i] = np.sqrt(change / step)
    return level, curvature
