"""Lines 7 and 8 of Algorithm 2 around (19), compiled, for arrays of n clients.

He, Peng, Sun, *Federated learning with convex global and local constraints*; equation numbers are
theirs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from bonafed.arrays import Array


class Stepped(NamedTuple):
    """The result of a round at n clients, with D' = D + p_c numbers in a copy."""

    value: Array  # (n,) q_i f_i(w)
    violation: Array  # (n,) of c_i(w)
    excess: Array  # (n,) the same over the constraints' sizes
    residual: Array  # (n,) (22)
    tangent: Array  # (n,) that of the Lagrangian at z_i, at w
    primal: Array  # (n,) ||z_i - w||^2
    shared: Array  # (n, p_c) c~_i(w)
    estimate: Array  # (n, p + p_c) [mu_i + beta c_i(z_i)]_+
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
            points[i, h, j] = w[i, j] - dual[i, j] / rho[i]
            start[i, j] = rho[i] * (w[i, j] - mix[h] * points[i, h, j])
        for k in range(h):
            for j in range(D):
                points[i, k, j] = history[i, old + k, j]
                start[i, j] -= rho[i] * mix[k] * points[i, k, j]
    return points, start


@njit(cache=True, fastmath=FAST)
def moved(w, new, start, rho, sigma, anchor, history, most, D, lagrangian, numbers):
    """Steps (20) and (21), and the products and tangents that the server receives.

    D numbers of each belong to the model. ``lagrangian`` is its value at the new points, and the
    gradient of q_i f_i + <y_i, c_i> there is what (19) leaves, -lambda_i - sigma (z_i - z_i^k).
    """
    n, size = w.shape
    h = min(history.shape[1], most - 1)
    first, drift, inner = history.shape[1] - h, np.empty((n, h + 1, size)), np.zeros((n, h + 1))
    dual, shifted = np.empty((n, size)), np.empty((n, size))
    for i in range(n):
        away, primal, tangent = drift[i, h], 0.0, lagrangian[i]
        for j in range(size):
            away[j] = new[i, j] - w[i, j]
            dual[i, j] = start[i, j] + rho[i] * away[j]  # (20)
            shifted[i, j] = new[i, j] + dual[i, j] / rho[i]  # (21)
            primal += away[j] ** 2
            tangent += (dual[i, j] + sigma * (new[i, j] - anchor[i, j])) * away[j]
        numbers[0, i], numbers[1, i] = tangent, primal
        for k in range(h):
            for j in range(size):  # not as an array, which takes seconds to compile
                drift[i, k, j] = history[i, first + k, j]
        for k in range(h + 1):
            product = 0.0
            for j in range(D):
                product += drift[i, k, j] * away[j]
            inner[i, k] = rho[i] * product
    return dual, shifted, drift, inner
