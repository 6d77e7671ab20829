"""Lines 7 and 8 of Algorithm 2 around (19), compiled, for arrays of n clients.

He, Peng, Sun, *Federated learning with convex global and local constraints*; equation numbers are
theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from quorate.arrays import Array


class Stepped(NamedTuple):
    """The result of a round at n clients, with D' = D + p_c numbers in a copy."""

    value: Array  # (n,) q_i f_i(w)
    violation: Array  # (n,) of c_i(w)
    residual: Array  # (n,) (22)
    primal: Array  # (n,) ||z_i - w||^2
    moved: Array  # (n,) ||z_i - z_i^t||^2
    pull: Array  # (n,) ||lambda_i||^2
    shared: Array  # (n, p_c) c~_i(w)
    estimate: Array  # (n, p + p_c) [mu_i + beta c_i(w)]_+
    z: Array  # (n, D')
    gradient: Array  # (n, D) q_i f_i'(u_i); of quadratic functions alone
    dual: Array  # (n, D') lambda_i
    shifted: Array  # (n, D') (21)
    points: Array  # (n, h, D')
    drift: Array  # (n, h + 1, D')
    inner: Array  # (n, h + 1)
    unsolved: Array  # (n,) gradient of (19), over its tolerance


FAST = {"reassoc", "contract", "nsz"}  # sums in any order


@njit(cache=True, fastmath=FAST)
def residual_of(gradient, w, old, dual, rho):
    """(22) of one client, with OLD u and OLD lambda."""
    largest = 0.0
    for j in range(len(w)):
        largest = max(largest, abs(gradient[j] + dual[j] - rho * (w[j] - old[j])))
    return largest


@njit(cache=True, fastmath=FAST)
def set_out(w, dual, history, mix, rho):
    """The last points w - lambda_i / rho, and lambda_i of their mixture.

    With mix = [1.] that is lambda_i^t.
    """
    n, D = w.shape
    h = min(history.shape[1], len(mix) - 1)
    old, points, start = history.shape[1] - h, np.empty((n, h + 1, D)), np.empty((n, D))
    for i in range(n):
        for j in range(D):
            points[i, h, j] = w[i, j] - dual[i, j] / rho
            start[i, j] = rho * (w[i, j] - mix[h] * points[i, h, j])
        for k in range(h):
            for j in range(D):
                points[i, k, j] = history[i, old + k, j]
                start[i, j] -= rho * mix[k] * points[i, k, j]
    return points, start


@njit(cache=True, fastmath=FAST)
def moved(w, old, new, start, rho, history, most, D, dual, shifted, squares):
    """Steps (20) and (21), and the sums of squares and of products that the server receives.

    D numbers of each belong to the model.
    """
    n, size = w.shape
    h = min(history.shape[1], most - 1)
    first, drift, inner = history.shape[1] - h, np.empty((n, h + 1, size)), np.zeros((n, h + 1))
    for i in range(n):
        away, primal, step, pull = drift[i, h], 0.0, 0.0, 0.0
        for j in range(size):
            away[j] = new[i, j] - w[i, j]
            dual[i, j] = start[i, j] + rho * away[j]  # (20)
            shifted[i, j] = new[i, j] + dual[i, j] / rho  # (21)
            primal += away[j] ** 2
            step += (new[i, j] - old[i, j]) ** 2
            pull += dual[i, j] ** 2
        squares[0, i], squares[1, i], squares[2, i] = primal, step, pull
        for k in range(h):
            for j in range(size):  # not as an array, which takes seconds to compile
                drift[i, k, j] = history[i, first + k, j]
        for k in range(h + 1):
            product = 0.0
            for j in range(D):
                product += drift[i, k, j] * away[j]
            inner[i, k] = product
    return drift, inner
