"""The client's arithmetic of the private ADMM, compiled: clipped gradients of softmax regression, and step (8) or (9).

Rows are passed once, in tiles that stay in the cache: two products, softmax and clipping. Of a client only z and lambda
are as long as the model and stay; gradient and noise live while it is served.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from quorate.privacy.noise import fill

L1, L2 = 1, 2
TILE = 128
PROX, LINF, BALL = 0, 1, 2  # what keeps z^{t+1} near z^t


@njit(cache=True)
def _softmax(row, factor):
    """Probabilities of factor * row in its place."""
    top = row[0]
    for k in range(1, len(row)):
        top = max(top, row[k])
    total = row.dtype.type(0.0)
    for k in range(len(row)):
        row[k] = math.exp(factor * (row[k] - top))
        total += row[k]
    for k in range(len(row)):
        row[k] /= total


@njit(cache=True)
def softmax_gradient(X, y, Z, factor, length, clip, norm, G):
    """G (d, K) is set to the sum of the rows' gradients x (h - e_y)', each clipped to ``clip``.

    Row i is ``factor[i]`` x_i, of norm ``length[i]``. Returns the largest norm of a gradient before clipping.
    """
    G[:] = 0.0
    largest = 0.0
    for start in range(0, len(y), TILE):
        stop = min(start + TILE, len(y))
        rows = X[start:stop]
        S = np.dot(rows, Z)
        for r in range(stop - start):
            own = S[r]
            _softmax(own, factor[start + r])
            own[y[start + r]] -= 1.0
            size = 0.0
            for k in range(len(own)):
                size += abs(own[k]) if norm == L1 else own[k] * own[k]
            size = length[start + r] * (size if norm == L1 else math.sqrt(size))
            largest = max(largest, size)
            shrink = factor[start + r] * (clip / size if size > clip else 1.0)
            for k in range(len(own)):
                own[k] *= shrink
        G += np.dot(rows.T, S)
    return largest


@njit(cache=True)
def step(w, z, dual, g, xi, scale, output, rho, near, reach, lower, upper, new, new_dual):
    """(8) or (9) and (4c) of one client; g is the gradient of f_p, ``scale`` that of the noise xi.

    near : PROX: ``reach`` is 1 / eta; LINF, BALL: the radius delta of (6b)
    output : the noise goes to z^{t+1} instead of the objective
    Returns sum |w - z^{t+1}|.
    """
    pull = reach if near == PROX else 0.0
    curve = rho + pull
    inside = 0.0 if output else scale
    size = 0.0
    for j in range(len(w)):
        new[j] = (rho * w[j] + dual[j] - (g[j] + inside * xi[j]) + pull * z[j]) / curve
        if near == LINF:
            new[j] = min(max(new[j], z[j] - reach), z[j] + reach)
        size += (new[j] - z[j]) ** 2
    shorter = reach / math.sqrt(size) if near == BALL and size > reach * reach else 1.0
    after = scale / curve if output else 0.0
    gap = 0.0
    for j in range(len(w)):
        v = z[j] + shorter * (new[j] - z[j])
        v = min(max(v, lower), upper) + after * xi[j]
        new[j] = v
        new_dual[j] = dual[j] + rho * (w[j] - v)  # (4c)
        gap += abs(w[j] - v)
    return gap


@njit(cache=True, parallel=True)
def softmax_round(
    X,
    y,
    rows,
    w,
    z,
    dual,
    factor,
    length,
    clip,
    norm,
    weight,
    keys,
    kind,
    scale,
    output,
    rho,
    near,
    reach,
    lower,
    upper,
):
    """One round of all clients of a block; as ``softmax_gradient`` and ``step`` one after the other."""
    n, D = z.shape
    d, K = X.shape[2], D // X.shape[2]
    new, new_dual, gap, noise = np.empty_like(z), np.empty_like(z), np.empty(n), np.empty(n)
    for i in prange(n):
        m = rows[i]
        G = np.empty((d, K), z.dtype)
        softmax_gradient(X[i, :m], y[i, :m], z[i].reshape(d, K), factor[i, :m], length[i, :m], clip, norm, G)
        g, xi = G.reshape(D), np.zeros(D)
        if scale[i] > 0:
            fill(keys[i], kind, xi)
        for j in range(D):
            g[j] *= weight[i]
        own = w, z[i], dual[i], g, xi, scale[i]
        gap[i] = step(*own, output, rho, near, reach, lower, upper, new[i], new_dual[i])
        noise[i] = scale[i] * np.abs(xi).mean()
    return new, new_dual, gap, noise


@njit(cache=True, parallel=True)
def summed(z, dual, rho):
    """(1, D): sum of z_p - lambda_p / rho over the clients, in their order, of double precision."""
    n, D = z.shape
    out = np.empty((1, D))
    for j in prange(D):
        total = 0.0
        for i in range(n):
            total += z[i, j] - dual[i, j] / rho
        out[0, j] = total
    return out
