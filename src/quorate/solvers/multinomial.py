"""The multinomial logistic loss of clients by a softmax model, and its slope, in one pass over the rows.

    log sum_c exp(p_c) - p_y  =  log(1 + sum_{c != y} exp(p_c - p_y))
    exp(p_c) / sum_b exp(p_b) for c != y,  and minus the sum of these for c = y

so neither a small loss nor the slope of a row that is predicted well cancels. For models of few coefficients:
predictions, losses and slopes of a tile of rows while they are at hand, and nothing else is called.
A client's numbers come from its own rows up to the last that counts, in tiles of one size: they are the same, bit for
bit, whichever clients share its block.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from quorate.solvers.exponential import exp64, log1p64
from quorate.solvers.signatures import RISKS_AND_SLOPES, given
from quorate.solvers.thin_products import multiply_narrow

TILE = 96  # rows
LANES = 8  # columns come in multiples
FAR = 700.0  # a prediction so far above that of the row's class is served apart, or its exponential would overflow
ENDS = 1e304  # just below exp(FAR)


@njit(cache=True, error_model="numpy")
def _residuals(S, E, rows, y, weights, i, first, count, classes, risk, left):
    """In S predictions become weighted slopes; returns the risk with their losses, and what rounding lost.

    Exponentials lie class by class in E, so that sums over classes are sums of vectors.
    """
    wide = S.shape[1]
    for r in range(count):
        own = S[r, int(y[i, first + r])]
        rows[2, r] = weights[i, first + r]
        for c in range(classes):
            E[c * count + r] = S[r, c] - own
    _exponentials(E, count * classes)
    for r in range(count):
        E[int(y[i, first + r]) * count + r] = 0.0
        rows[0, r] = 0.0
    for c in range(classes):
        for r in range(count):
            rows[0, r] += E[c * count + r]
    _logarithms(rows, count)
    for r in range(count):
        own, weight, loss, share = int(y[i, first + r]), rows[2, r], rows[1, r], rows[3, r]
        if weight == 0.0:
            for c in range(wide):
                S[r, c] = 0.0
            continue
        if rows[0, r] < ENDS:
            for c in range(classes):
                S[r, c] = share * E[c * count + r]
            S[r, own] = -rows[0, r] * share
        else:
            loss = _far(S, r, own, weight, classes)
        more = weight * loss
        total = risk + more  # the sum, and what it lost
        left += (risk - total) + more if risk >= more else (more - total) + risk
        risk = total
    return risk, left


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _exponentials(v, count):
    """exp of the first entries, in place; 0 below -708, and of FAR beyond it."""
    for j in range(count):
        x = v[j]
        inside = -708.0 if x < -708.0 else x
        inside = FAR if inside > FAR else inside
        e = exp64(inside)
        v[j] = 0.0 if x < -708.0 else e


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _logarithms(rows, count):
    """Of the others' exponentials and the weight of every row: its loss, and the factor of its exponentials."""
    others, losses, weights, shares = rows[0], rows[1], rows[2], rows[3]
    for r in range(count):
        losses[r] = log1p64(others[r])
        shares[r] = weights[r] / (1.0 + others[r])


@njit(cache=True, error_model="numpy")
def _far(S, r, own, weight, classes):
    """The loss of row r by its largest prediction, for any predictions; its weighted slope in their place."""
    top = S[r, 0]
    for c in range(1, classes):
        top = max(top, S[r, c])
    total, ahead = 0.0, top - S[r, own]
    for c in range(classes):
        S[r, c] = np.exp(S[r, c] - top)
        total += S[r, c]
    others = 0.0
    for c in range(classes):
        S[r, c] *= weight / total
        others += S[r, c] if c != own else 0.0
    S[r, own] = -others
    return np.log(total) + ahead


@njit([RISKS_AND_SLOPES(given(3), given(2), given(2), given(2), types.int64)], cache=True, error_model="numpy")
def risks_and_slopes(X, y, weights, w, classes):
    """sum_r weights_r loss_r of every client, (n,), and its slope (n, D).

    Parameters
    ----------
    X, y, weights : (n, m, d), (n, m), (n, m), X contiguous; rows of weight 0 have no part in it
    w : (n, D), or (1, D) for all clients: the (d, C) matrix of coefficients, row by row
    """
    n, m, d = X.shape
    wide = -(-classes // LANES) * LANES
    S, E = np.empty((min(m, TILE), wide)), np.empty(min(m, TILE) * classes)
    Z, G, rows = np.zeros((d, wide)), np.empty((d, wide)), np.empty((4, TILE))
    risks, slopes = np.zeros(n), np.empty((n, d * classes))
    for i in range(n):
        if i < len(w):
            for k in range(d):
                for c in range(classes):
                    Z[k, c] = w[i, k * classes + c]
        used = m
        while used > 0 and weights[i, used - 1] == 0.0:
            used -= 1
        left = 0.0
        for first in range(0, used, TILE):
            count = min(TILE, used - first)
            start = (i * m + first) * d
            multiply_narrow(X, start, d, 1, Z, S, (count, d, wide), True)
            risks[i], left = _residuals(S, E, rows, y, weights, i, first, count, classes, risks[i], left)
            multiply_narrow(X, start, 1, d, S, G, (d, count, wide), first == 0)
        risks[i] += left if np.isfinite(left) else 0.0
        for k in range(d):
            for c in range(classes):
                if used == 0:  # what is not finite stays so
                    G[k, c] = 0.0 * Z[k, c]
                    risks[i] += G[k, c]
                slopes[i, k * classes + c] = G[k, c]
    return risks, slopes
