"""The clients' multinomial logistic loss of a softmax model and its gradient, in one pass.

    log sum_c exp(p_c) - p_y  =  log(1 + sum_{c != y} exp(p_c - p_y))
    exp(p_c) / sum_b exp(p_b) for c != y,  and minus the sum of these for c = y

so neither a small loss nor the gradient of a row that is predicted well cancels. The kernel is made
for models of few coefficients: it computes predictions, losses and gradients of a tile of rows
while these are in the cache, and calls no library. A client's numbers come from its rows up to the
last that counts, in tiles of one size, so they are the same, bit for bit, whichever clients share
its block.
"""

import numpy as np
from numba import njit, types

from bonafed.solvers.kernels.exponential import exp64, log1p64
from bonafed.solvers.kernels.signatures import RISKS_AND_GRADIENTS, doubles
from bonafed.solvers.kernels.thin_products import multiply

TILE = 96  # rows
LANES = 8  # columns come in multiples
# a prediction further above that of the row's class has its own branch: its exponential overflows
FAR = 700.0
ENDS = 1e304  # just below exp(FAR)


@njit(cache=True, error_model="numpy")
def _residuals(S, E, rows, y, weights, i, first, count, classes, risk, left):
    """Replace predictions in S by weighted gradients; returns the risk and what rounding lost.

    Exponentials lie class by class in E, so that sums over classes are sums of vectors.
    """
    wide = S.shape[1]
    for r in range(count):
        right = S[r, int(y[i, first + r])]
        rows[2, r] = weights[i, first + r]
        for c in range(classes):
            E[c * count + r] = S[r, c] - right
    _exponentials(E, count * classes)
    for r in range(count):
        E[int(y[i, first + r]) * count + r] = 0.0
        rows[0, r] = 0.0
    for c in range(classes):
        for r in range(count):
            rows[0, r] += E[c * count + r]
    _logarithms(rows, count)
    for r in range(count):
        label, weight, loss, share = int(y[i, first + r]), rows[2, r], rows[1, r], rows[3, r]
        if weight == 0.0:
            for c in range(wide):
                S[r, c] = 0.0
            continue
        if rows[0, r] < ENDS:
            for c in range(classes):
                S[r, c] = share * E[c * count + r]
            S[r, label] = -rows[0, r] * share
        else:
            loss = _far(S, r, label, weight, classes)
        more = weight * loss
        total = risk + more  # compensated: ``left`` is what the sum lost
        left += (risk - total) + more if risk >= more else (more - total) + risk
        risk = total
    return risk, left


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _exponentials(v, count):
    """exp of the first entries, in place: 0 below -708, and exp(FAR) beyond FAR."""
    for j in range(count):
        x = v[j]
        inside = -708.0 if x < -708.0 else x
        inside = FAR if inside > FAR else inside
        e = exp64(inside)
        v[j] = 0.0 if x < -708.0 else e


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _logarithms(rows, count):
    """The loss of every row and the factor of its exponentials.

    ``rows`` holds the sum of the other classes' exponentials, losses, weights and factors.
    """
    others, losses, weights, shares = rows[0], rows[1], rows[2], rows[3]
    for r in range(count):
        losses[r] = log1p64(others[r])
        shares[r] = weights[r] / (1.0 + others[r])


@njit(cache=True, error_model="numpy")
def _far(S, r, label, weight, classes):
    """The loss of row r by its largest prediction, for any size; gradients replace predictions."""
    top = S[r, 0]
    for c in range(1, classes):
        top = max(top, S[r, c])
    total, ahead = 0.0, top - S[r, label]
    for c in range(classes):
        S[r, c] = np.exp(S[r, c] - top)
        total += S[r, c]
    others = 0.0
    for c in range(classes):
        S[r, c] *= weight / total
        others += S[r, c] if c != label else 0.0
    S[r, label] = -others
    return np.log(total) + ahead


ROWS = doubles(3), doubles(2), doubles(2), doubles(2), types.int64


@njit([RISKS_AND_GRADIENTS(*ROWS)], cache=True, error_model="numpy")
def risks_and_gradients(X, y, weights, w, classes):
    """sum_r weights_r loss_r of every client, (n,), and its gradient (n, D).

    Parameters
    ----------
    X, y, weights : (n, m, d), (n, m), (n, m), X contiguous; rows of weight 0 have no part in it
    w : (n, D), or (1, D) for all clients: the (d, C) matrix of coefficients, row by row
    """
    n, m, d = X.shape
    wide = -(-classes // LANES) * LANES
    S, E = np.empty((min(m, TILE), wide)), np.empty(min(m, TILE) * classes)
    Z, G, rows = np.zeros((d, wide)), np.empty((d, wide)), np.empty((4, TILE))
    risks, gradients = np.zeros(n), np.empty((n, d * classes))
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
            multiply(X, start, d, 1, Z, S, (count, d, wide), True)
            risks[i], left = _residuals(
                S, E, rows, y, weights, i, first, count, classes, risks[i], left
            )
            multiply(X, start, 1, d, S, G, (d, count, wide), first == 0)
        risks[i] += left if np.isfinite(left) else 0.0
        for k in range(d):
            for c in range(classes):
                if used == 0:  # a client without rows passes on NaN and inf
                    G[k, c] = 0.0 * Z[k, c]
                    risks[i] += G[k, c]
                gradients[i, k * classes + c] = G[k, c]
    return risks, gradients
