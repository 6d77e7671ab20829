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
PROX, LINF, BALL = 0, 1, 2  # what keeps z^{t+1} near z^t

SMALL = 1_000_000  # multiplications of a product that libraries of linear algebra do without copying
LEAST, MOST = 64, 1024  # rows of a tile
GROUPS = 8  # of clients, each with its own sum: fixed, so that the number of threads changes nothing
WIDE = 16  # columns that products like in multiples
PART = 2048  # entries of the model at a time

# Sums in any order, products and sums in one instruction, no signed zeros; infinities and NaN stay what they are.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(inline="always")
def _exp32(x):
    """exp of a float32 <= 0 to 2 ulp, in arithmetic alone so that loops vectorise; of less than -87 as of -87."""
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    shifted = x * np.float32(1.44269504) + np.float32(12582912.0)  # 1.5 * 2^23: the nearest integer in the last bits
    k = shifted - np.float32(12582912.0)
    r = (x - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
    p = np.float32(1 / 720) * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(1 / 2)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    return p * np.int32((np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(inline="always")
def _exp64(x):
    """The same of a double, of less than -708 as of -708."""
    x = -708.0 if x < -708.0 else x
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # 1.5 * 2^52
    k = shifted - 6755399441055744.0
    r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10
    tail = r * (1 / 5040 + r * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r / 479001600)))))
    p = 1.0 + r * (1.0 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + tail))))))
    return p * np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _exponentials(v):
    """exp of every entry, in place; sums as written, without which the rounding above is lost."""
    if v.itemsize == 4:
        for j in range(len(v)):
            v[j] = _exp32(v[j])
    else:
        for j in range(len(v)):
            v[j] = _exp64(v[j])


@njit(cache=True)
def _tile(m, d, K):
    """(rows of a tile, columns of its scores) of a client with m rows; spare columns make products faster."""
    few = SMALL // (d * K)
    if few >= LEAST:
        return max(1, min(m, few)), K
    wide = -(-K // WIDE) * WIDE
    return max(1, min(m, MOST)), wide if 8 * wide <= 9 * K else K


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _residuals(S, K, y, factor, length, clip, norm):
    """The first K columns of S, scores, become the clipped h - e_y, times the factor; the largest norm before."""
    m, wide = S.shape
    for r in range(m):
        top = S[r, 0]
        for k in range(1, K):
            top = S[r, k] if S[r, k] > top else top
        for k in range(wide):
            S[r, k] = factor[r] * (S[r, k] - top)
    _exponentials(S.reshape(m * wide))
    largest = 0.0
    for r in range(m):
        total = S[r, 0]
        for k in range(1, K):
            total += S[r, k]
        share = 1 / total
        for k in range(K):
            S[r, k] *= share
        S[r, y[r]] -= 1
        size = S.dtype.type(0)
        for k in range(K):
            size += abs(S[r, k]) if norm == L1 else S[r, k] * S[r, k]
        long = length[r] * (size if norm == L1 else math.sqrt(size))
        if not long < np.inf:  # beyond all numbers, NaN included: the row counts as nothing, or it would tell of itself
            S[r] = 0
            continue
        largest = max(largest, long)
        shrink = S.dtype.type(factor[r] * (clip / long if long > clip else 1.0))
        for k in range(K):
            S[r, k] *= shrink
    return largest


@njit(cache=True)
def _gradient(X, y, Z, factor, length, clip, norm, weight, buffers, g):
    """The sum of the rows' clipped gradients times the weight, into g (d, K)."""
    d, K = Z.shape
    scores, wider, turned, more = buffers
    T, wide = _tile(len(y), d, K)
    if wide > K:
        wider[:, :K] = Z
        Z = wider
    largest, G, H = 0.0, turned.reshape(wide, d), more.reshape(wide, d)
    if len(y) == 0:
        G[:] = 0
    for start in range(0, len(y), T):
        here = slice(start, min(start + T, len(y)))
        S = scores[: (here.stop - start) * wide].reshape(here.stop - start, wide)
        np.dot(X[here], Z, S)
        largest = max(largest, _residuals(S, K, y[here], factor[here], length[here], clip, norm))
        np.dot(S.T, X[here], H if start else G)
        if start:
            G += H
    for j in range(d):
        for k in range(K):
            g[j, k] = weight * G[k, j]
    return largest


@njit(cache=True)
def _buffers(m, Z):
    """Room for the scores of a tile, for a wider Z, and for two gradients, which serve client after client."""
    d, K = Z.shape
    T, wide = _tile(m, d, K)
    scores, wider = np.empty(T * wide, Z.dtype), np.zeros((d, wide if wide > K else 0), Z.dtype)
    return scores, wider, np.empty(d * wide, Z.dtype), np.empty(d * wide, Z.dtype)


@njit(cache=True)
def softmax_gradient(X, y, Z, factor, length, clip, norm, G):
    """G (d, K) is set to the sum of the rows' gradients x (h - e_y)', each clipped to ``clip``.

    Row i is ``factor[i]`` x_i, of norm ``length[i]``. Returns the largest norm of a gradient before clipping.
    """
    return _gradient(X, y, Z, factor, length, clip, norm, Z.dtype.type(1.0), _buffers(len(y), Z), G)


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def step(w, z, dual, g, xi, scale, output, rho, near, reach, lower, upper, new, new_dual):
    """(8) or (9) and (4c) of one client; g is the gradient of f_p, ``scale`` that of the noise xi.

    near : PROX: ``reach`` is 1 / eta; LINF, BALL: the radius delta of (6b)
    lower, upper : W
    output : the noise goes to z^{t+1} instead of the objective
    Returns sum |w - z^{t+1}|.
    """
    number = z.dtype.type
    pull = number(reach if near == PROX else 0.0)
    penalty, radius = number(rho), number(reach)
    over = number(1.0) / (penalty + pull)
    inside = number(0.0 if output else scale)
    after = over * number(scale if output else 0.0)
    for j in range(len(w)):
        new[j] = (penalty * w[j] + dual[j] - (g[j] + inside * xi[j])) * over
    if pull > 0:
        for j in range(len(w)):
            new[j] += over * pull * z[j]
    if near == LINF and reach < np.inf:
        for j in range(len(w)):
            a, b = z[j] - radius, z[j] + radius
            v = a if new[j] < a else new[j]
            new[j] = b if v > b else v
    if near == BALL and reach < np.inf:
        size = 0.0
        for j in range(len(w)):
            size += (new[j] - z[j]) ** 2
        shorter = number(reach / math.sqrt(size) if size > reach * reach else 1.0)
        for j in range(len(w)):
            new[j] = z[j] + shorter * (new[j] - z[j])
    for j in range(len(w)):  # loops over few arrays each, or the compiler takes one entry at a time
        v = lower[j] if new[j] < lower[j] else new[j]
        new[j] = upper[j] if v > upper[j] else v
    gap = 0.0
    for j in range(len(w)):
        v = new[j] + after * xi[j]
        new[j] = v
        new_dual[j] = dual[j] + penalty * (w[j] - v)  # (4c)
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
    next_rho,
    near,
    reach,
    lower,
    upper,
    new,
    new_dual,
):
    """One round of all clients of a block: ``softmax_gradient``, ``step`` and their sum in one sweep.

    new, new_dual : (n, D), to be filled; NumPy asks for large pages, where there are some, this compiler does not
    """
    n, D = z.shape
    d, K = X.shape[2], D // X.shape[2]
    gap = np.empty(n)
    groups = min(n, GROUPS)
    sums = np.zeros((groups, D))
    part = D if near == BALL and reach < np.inf else PART
    for group in prange(groups):
        buffers = _buffers(X.shape[1], z[0].reshape(d, K))
        g, xi = np.empty(D, z.dtype), np.zeros(D, z.dtype)
        for i in range(group, n, groups):
            m, Z = rows[i], z[i].reshape(d, K)
            own = X[i, :m], y[i, :m], Z, factor[i, :m], length[i, :m], clip, norm
            _gradient(*own, z.dtype.type(weight[i]), buffers, g.reshape(d, K))
            if scale[i] > 0:
                fill(keys[i], kind, xi)
            given = w, z[i], dual[i], g, xi, scale[i], output, rho, near, reach, lower, upper
            gap[i] = _steps(given, part, new[i], new_dual[i], next_rho, sums[group])
    return gap, _total(sums)


@njit(cache=True)
def _steps(given, part, new, new_dual, next_rho, to):
    """``step`` and its share of the sum, a part at a time, so that what is at hand stays in the cache."""
    w, z, dual, g, xi, scale, output, rho, near, reach, lower, upper = given
    gap = 0.0
    for first in range(0, len(w), part):
        a = slice(first, min(first + part, len(w)))
        own = w[a], z[a], dual[a], g[a], xi[a], scale, output, rho, near, reach, lower[a], upper[a]
        gap += step(*own, new[a], new_dual[a])
        _add(new[a], new_dual[a], next_rho, to[a])
    return gap


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _add(z, dual, rho, to):
    over = 1.0 / rho
    for j in range(len(to)):
        to[j] += z[j] - over * dual[j]


@njit(cache=True)
def _total(sums):
    out = np.zeros((1, sums.shape[1]))
    for group in range(len(sums)):
        out[0] += sums[group]
    return out
