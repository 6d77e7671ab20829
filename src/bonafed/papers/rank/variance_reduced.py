"""Steps of variance-reduced stochastic gradients on scalar losses, one row a step, O(d) each.

    w <- prox_{rate h}( w - rate (gain_j (s_j(w) - s_j) x_j + mean) ),     s_j(w) = sign_j l'(t_j),
    t_j = sign_j <x_j, w> - shift_j

s_j and ``mean`` belong to a checkpoint; h = l1 ||w||_1 + l2 ||w||^2 / 2 on lower <= w <= upper, a
last intercept free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

# numba's cache checks this file only: touch it after a change in the module below
from bonafed.extending import Array, Kernel, gradient_at


class Shrink(NamedTuple):
    """h: its l1 and l2 strengths and bounds (d,); ``intercept`` frees the last entry of h."""

    l1: float
    l2: float
    lower: Array
    upper: Array
    intercept: bool


@njit(cache=True)
def _steps(
    w,
    rows,
    sign,
    shift,
    gain,
    old,
    mean,
    rate,
    kind,
    knot,
    width,
    even,
    l1,
    l2,
    lower,
    upper,
    intercept,
):
    d, soft, shrink = rows.shape[1], rate * l1, 1.0 / (1.0 + rate * l2)
    for j in range(len(rows)):
        prediction = w[d] if intercept else 0.0
        for k in range(d):
            prediction += rows[j, k] * w[k]
        t = sign[j] * prediction - shift[j]
        if even:
            gradient = 0.0 if t == 0.0 else np.sign(t) * gradient_at(kind, knot, width, abs(t))
        else:
            gradient = gradient_at(kind, knot, width, t)
        pull = gain[j] * (sign[j] * gradient - old[j])
        for k in range(d):
            v = w[k] - rate * (pull * rows[j, k] + mean[k])
            v = shrink * (max(v - soft, 0.0) + min(v + soft, 0.0))
            w[k] = min(max(v, lower[k]), upper[k])
        if intercept:
            w[d] -= rate * (pull + mean[d])


def reduced_steps(
    w: Array,
    rows: Array,
    sign: Array,
    shift: Array,
    gain: Array,
    old: Array,
    mean: Array,
    rate: float,
    kernel: Kernel,
    shrink: Shrink,
) -> Array:
    """The model after one variance-reduced step for each row, in order.

    Parameters
    ----------
    w : (D,) D = d, or d + 1 with an intercept
    rows : (N, d); sign, shift : (N,) of their rank coordinates
    gain : (N,) weight of the row over the probability that it is drawn
    old : (N,) gradients in the prediction at the checkpoint; mean : (D,) the weighted gradient
        there
    rate : > 0
    """
    w = w.copy()
    h = (float(shrink.l1), float(shrink.l2), shrink.lower, shrink.upper, bool(shrink.intercept))
    _steps(w, rows, sign, shift, gain, old, mean, float(rate), *kernel, *h)
    return w
