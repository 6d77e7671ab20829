"""The clients' logistic loss of a linear model and its gradient, in one pass over the rows.

    log(1 + exp(-m)),   -y / (1 + exp(m)),   m = y (<w, x> + b)

Both use exp(-|m|) only, so neither cancels. The kernel computes the predictions of a tile of rows,
their losses several rows at a time, and the gradient from the same rows while these are in the
cache. A client's numbers come from its rows up to the last that counts, in tiles of one size, so
they are the same, bit for bit, whichever clients share its block.
"""

import numpy as np
from numba import njit, types

from bonafed.arrays import INNER
from bonafed.solvers.kernels.exponential import exp64, log1p64
from bonafed.solvers.kernels.signatures import doubles

TILE = 64  # rows


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy", **INNER)
def _dot(X, w, i, r, model, d):
    """<w, x> plus the intercept, summed in an order that depends on d only."""
    total = 0.0
    for k in range(d):
        total += X[i, r, k] * w[model, k]
    return total + w[model, d] if w.shape[1] > d else total


@njit(cache=True, fastmath={"contract"}, error_model="numpy", **INNER)
def _add(X, factor, i, r, d, gradient):
    for k in range(d):
        gradient[i, k] += factor * X[i, r, k]


@njit(cache=True, fastmath={"contract"}, error_model="numpy", **INNER)
def _terms(predictions, losses, y, weights, i, first, count):
    """Weighted losses of predictions; their weighted gradients replace the predictions."""
    for r in range(count):
        label, weight = y[i, first + r], weights[i, first + r]
        margin = label * predictions[r]
        size = abs(margin)
        tail = exp64(-size if size < 708.0 else -708.0)
        tail = 0.0 if size > 708.0 else tail
        tail = tail if size == size else size
        losses[r] = weight * (log1p64(tail) + (0.0 if margin > 0.0 else size))
        predictions[r] = -label * weight * (tail if margin > 0.0 else 1.0) / (1.0 + tail)


def risks_and_gradients(X, y, weights, w):
    """sum_r weights_r loss_r of every client, (n,), and its gradient (n, D).

    Parameters
    ----------
    X, y, weights : (n, m, d), (n, m), (n, m); rows of weight 0 have no part in it
    w : (n, D), or (1, D) for all clients: d coefficients, and the intercept where D = d + 1
    """
    risks, gradient = np.zeros(len(X)), np.zeros((len(X), w.shape[1]))
    _write(X, y, weights, w, np.empty(TILE), np.empty(TILE), risks, gradient)
    return risks, gradient


ROOM = *[types.float64[::1]] * 3, types.float64[:, ::1]


@njit(types.void(doubles(3), *[doubles(2)] * 3, *ROOM), cache=True, error_model="numpy")
def _write(X, y, weights, w, losses, gradients, risks, gradient):
    """Add to risks and gradient, which are 0, by room for the losses and gradients of a tile."""
    n, m, d = X.shape
    D = w.shape[1]
    for i in range(n):
        model = i if len(w) > 1 else 0
        used = m
        while used > 0 and weights[i, used - 1] == 0.0:
            used -= 1
        left = 0.0
        for first in range(0, used, TILE):
            count = min(TILE, used - first)
            for r in range(count):
                gradients[r] = _dot(X, w, i, first + r, model, d)
            _terms(gradients, losses, y, weights, i, first, count)
            for r in range(count):
                if weights[i, first + r] == 0.0:
                    continue
                _add(X, gradients[r], i, first + r, d, gradient)
                if d < D:
                    gradient[i, d] += gradients[r]
                total = risks[i] + losses[r]  # compensated: ``back`` is what the sum lost
                larger, smaller = risks[i], losses[r]
                if not risks[i] >= losses[r]:
                    larger, smaller = losses[r], risks[i]
                left, risks[i] = left + ((larger - total) + smaller), total
        risks[i] += left if np.isfinite(left) else 0.0
        if used == 0:  # a client without rows passes on NaN and inf
            for k in range(D):
                gradient[i, k] = 0.0 * w[model, k]
                risks[i] += gradient[i, k]
