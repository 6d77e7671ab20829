"""The client's compiled arithmetic of the private ADMM: clipped gradients, and step (8) or (9).

The kernels pass over the rows once, in tiles that stay in the cache: two products, softmax and
clipping. Only z and lambda of a client are kept at the model's length; the gradient lives while its
client is served, and noise is added a part at a time. Arrays are copied entry by entry, since
assignments to slices take seconds to compile.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import config, njit
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.privacy import mechanisms as noise
from quorate.solvers.kernels import thin_products
from quorate.solvers.kernels.exponential import exp64

L1, L2 = 1, 2
PROX, LINF, BALL = 0, 1, 2  # what keeps z^{t+1} near z^t

# libraries of linear algebra do products of fewer multiplications without copying
SMALL = 1_000_000
LEAST, MOST, FEW = 64, 1024, 96  # rows of a tile; FEW where no library is used
# clients are summed in so many groups; the number is fixed, so that threads do not change the sums
GROUPS = 8
ALONE = 10_000_000  # fewer multiplications are done before several threads have started
WIDE = 16  # columns that a library likes in multiples
THIN = thin_products.SUITED  # whether products of few columns use ``thin_products``

# Sums may go in any order, products and sums in one instruction, without signed zeros; infinities
# and NaN stay what they are.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(inline="always")
def _exp32(x):
    """exp of a float32 <= 0 to 2 ulp, in arithmetic alone so that loops vectorise.

    Below -87 it is exp(-87).
    """
    x = np.float32(-87.0) if x < np.float32(-87.0) else x
    # adding 1.5 * 2^23 puts the nearest integer into the last bits
    shifted = x * np.float32(1.44269504) + np.float32(12582912.0)
    k = shifted - np.float32(12582912.0)
    r = (x - k * np.float32(0.693359375)) - k * np.float32(-2.12194440e-4)
    p = np.float32(1 / 720) * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(1 / 2)
    p = p * r + np.float32(1.0)
    p = p * r + np.float32(1.0)
    return p * np.int32((np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23)).view(
        np.float32
    )


@njit(cache=True, fastmath={"contract"}, error_model="numpy")
def _exponentials(v):
    """exp of every entry, in place; sums stay as written, which the rounding above relies on."""
    if v.itemsize == 4:
        for j in range(len(v)):
            v[j] = _exp32(v[j])
    else:
        for j in range(len(v)):
            v[j] = exp64(-708.0 if v[j] < -708.0 else v[j])  # NaN stays


@njit(cache=True)
def _rounded(K, multiple):
    """The columns for K classes, a multiple; 0 where too many would be spare."""
    wide = -(-K // multiple) * multiple
    return wide if 8 * wide <= 9 * K else 0


@njit(cache=True)
def _tile(d, K, size):
    """(rows of a tile, columns of its scores, whether to use ``thin_products``).

    ``size`` is the bytes of a number.
    """
    wide = _rounded(K, thin_products.columns(size))
    if THIN and wide > 0:
        return FEW, wide, True
    few = SMALL // (d * K)
    return (few, K, False) if few >= LEAST else (MOST, max(K, _rounded(K, WIDE)), False)


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _residuals(S, K, y, factor, length, clip, norm):
    """Replace the first K columns of S, scores, by the clipped h - e_y times the factor.

    Returns the largest norm before clipping.
    """
    m, wide = S.shape
    for r in range(m):
        top = S[r, 0]
        for k in range(1, K):
            top = S[r, k] if S[r, k] > top else top
        for k in range(K, wide):
            S[r, k] = top
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
        # a row with a norm that is not finite counts as nothing: otherwise it would reveal itself
        if not long < np.inf:
            for k in range(wide):
                S[r, k] = 0
            continue
        largest = max(largest, long)
        shrink = S.dtype.type(factor[r] * (clip / long if long > clip else 1.0))
        for k in range(K):
            S[r, k] *= shrink
    return largest


@njit(cache=True)
def _thin(X, y, Z, factor, length, clip, norm, rooms):
    """``_gradient`` without copies of X or Z.

    Scores take more columns from Z than it has, which belong to the next row.
    """
    K = Z.shape[1]
    scores, last, G, _ = rooms
    for k in range(K):  # Z[-1] has no next row
        last[0, k] = Z[-1, k]
    largest, T = 0.0, len(scores)
    for start in range(0, len(y), T):
        here = slice(start, min(start + T, len(y)))
        x, S = X[here], scores[: here.stop - start]
        thin_products.multiply(x[:, :-1], Z[:-1], S, True)
        thin_products.multiply(x[:, -1:], last, S, False)
        largest = max(largest, _residuals(S, K, y[here], factor[here], length[here], clip, norm))
        thin_products.multiply(x.T, S, G, start == 0)
    return largest


@njit(cache=True)
def _library(X, y, Z, factor, length, clip, norm, rooms):
    """``_gradient`` with the products of a library of linear algebra."""
    K = Z.shape[1]
    scores, wider, G, turned = rooms
    if scores.shape[1] > K:
        for j in range(len(Z)):
            for k in range(K):
                wider[j, k] = Z[j, k]
        Z = wider
    largest, T = 0.0, len(scores)
    for start in range(0, len(y), T):
        here = slice(start, min(start + T, len(y)))
        S = scores[: here.stop - start]
        np.dot(X[here], Z, S)
        largest = max(largest, _residuals(S, K, y[here], factor[here], length[here], clip, norm))
        np.dot(S.T, X[here], turned)
        if start == 0:
            for j in range(len(G)):
                for k in range(G.shape[1]):
                    G[j, k] = turned[k, j]
        else:
            for j in range(len(G)):
                for k in range(G.shape[1]):
                    G[j, k] += turned[k, j]
    return largest


@njit(cache=True)
def _gradient(X, y, Z, factor, length, clip, norm, rooms):
    """The sum of the rows' clipped gradients, into the first K columns of the third room (d, ...).

    Returns the largest norm before clipping.
    """
    d, K = Z.shape
    if len(y) == 0:
        rooms[2][:] = 0
    if _tile(d, K, Z.itemsize)[2]:
        return _thin(X, y, Z, factor, length, clip, norm, rooms)
    return _library(X, y, Z, factor, length, clip, norm, rooms)


@njit(cache=True)
def _rooms(m, Z):
    """The working arrays of ``_gradient``, made once for many calls.

    They are the scores of a tile, Z with more columns or its last row, and two gradients.
    """
    d, K = Z.shape
    T, wide, thin = _tile(d, K, Z.itemsize)
    copied = 1 if thin else d if wide > K else 0
    scores, more = np.empty((max(1, min(m, T)), wide), Z.dtype), np.zeros((copied, wide), Z.dtype)
    return scores, more, np.empty((d, wide), Z.dtype), np.empty((wide, 0 if thin else d), Z.dtype)


@njit(cache=True)
def softmax_gradient(X, y, Z, factor, length, clip, norm, G):
    """Set G (d, K) to the sum of the rows' gradients x (h - e_y)', each clipped to ``clip``.

    Row i is ``factor[i]`` x_i, of norm ``length[i]``. Returns the largest norm of a gradient before
    clipping.
    """
    rooms = _rooms(len(y), Z)
    largest = _gradient(X, y, Z, factor, length, clip, norm, rooms)
    for j in range(len(G)):
        for k in range(G.shape[1]):
            G[j, k] = rooms[2][j, k]
    return largest


@njit(cache=True, fastmath=_FAST, error_model="numpy")
# Of more than 15 branches, because splitting it could change the compiler's vector sums.
def towards(w, z, dual, rho, near, reach, lower, upper, new):
    """Step (8) or (9) of one client: ``new`` holds f_p' + xi_p and becomes z^{t+1}.

    It adds no noise to z^{t+1}.

    near : PROX, where reach is 1 / eta; LINF or BALL, where it is the radius delta of (6b)
    lower, upper : the set W, or without entries
    """
    number = z.dtype.type
    pull = number(reach if near == PROX else 0.0)
    penalty, radius = number(rho), number(reach)
    over = number(1.0) / (penalty + pull)
    for j in range(len(w)):
        new[j] = (penalty * w[j] + dual[j] - new[j]) * over
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
    for j in range(len(lower)):
        v = lower[j] if new[j] < lower[j] else new[j]
        new[j] = upper[j] if v > upper[j] else v


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def update_multipliers(w, z, dual, rho, next_rho, new_dual, to):
    """Write (4c) into ``new_dual`` and add z^{t+1} - lambda^{t+1} / rho^{t+1} to ``to``.

    Returns sum |w - z^{t+1}|.
    """
    penalty, over = w.dtype.type(rho), 1.0 / next_rho
    gap = 0.0
    for j in range(len(w)):
        away = w[j] - z[j]
        multiplier = dual[j] + penalty * away
        new_dual[j] = multiplier
        gap += abs(away)
        to[j] += z[j] - over * multiplier
    return gap


def softmax_round(
    X: Array,
    y: NDArray[np.int32],
    rows: NDArray[np.int64],
    w: Array,
    z: Array,
    *rest: Any,
) -> tuple[Array, Array]:
    """One round of all clients of a block: gradients, noise, steps and their sum in one sweep.

    ``rest`` are the arguments of ``_serve`` from ``dual`` on; its last two are to be filled.

    Returns
    -------
    gap : (n,) sum |w - z^{t+1}| of every client
    shifted : (1, D) the sum of z^{t+1} - lambda^{t+1} / rho^{t+1}
    """
    n, D = z.shape
    groups = min(n, GROUPS)
    gap, sums = np.empty(n), np.zeros((groups, D))

    def serve(group: int) -> None:
        _serve(group, groups, gap, sums[group], X, y, rows, w, z, *rest)

    threads = min(groups, config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]
    if threads == 1 or D * int(rows.sum()) < ALONE:
        for group in range(groups):
            serve(group)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(serve, range(groups)))
    return gap, sums.sum(0, keepdims=True)


@njit(cache=True, nogil=True)
def _serve(
    group,
    groups,
    gap,
    to,
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
    """Serve every ``groups``-th client from number ``group`` on.

    output : noise is added to z^{t+1} instead of the objective
    new, new_dual : (n, D), to be filled; the caller makes them because NumPy asks for large pages,
        which this compiler does not
    """
    n, D = z.shape
    d, K = X.shape[2], D // X.shape[2]
    rooms = _rooms(X.shape[1], z[0].reshape(d, K))
    for i in range(group, n, groups):
        m, Z = rows[i], z[i].reshape(d, K)
        _gradient(X[i, :m], y[i, :m], Z, factor[i, :m], length[i, :m], clip, norm, rooms)
        noised = keys[i], kind, scale[i], output
        client = w, z[i], dual[i], rho, near, reach, lower, upper
        gap[i] = _step(rooms[2], K, weight[i], noised, client, new[i], next_rho, new_dual[i], to)


@njit(cache=True)
def _step(G, K, weight, noised, client, new, next_rho, new_dual, to):
    """Noise, ``towards`` and the multipliers' update, a part of the model at a time.

    So the part stays in the cache.
    """
    key, kind, scale, output = noised
    w, z, dual, rho, near, reach, lower, upper = client
    size = len(w) if near == BALL and reach < np.inf else noise.PART
    of_step = scale / (rho + (reach if near == PROX else 0.0))
    gap = 0.0
    for first in range(0, len(w), size):
        a = slice(first, min(first + size, len(w)))
        v = new[a]
        _weighted(G, K, first, weight, v)
        if scale > 0 and not output:
            noise.add(key, kind, scale, v, first)
        towards(w[a], z[a], dual[a], rho, near, reach, lower[a], upper[a], v)
        if scale > 0 and output:
            noise.add(key, kind, of_step, v, first)
        gap += update_multipliers(w[a], v, dual[a], rho, next_rho, new_dual[a], to[a])
    return gap


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _weighted(G, K, first, weight, to):
    """Write the entries from ``first`` on of the first K columns of G, times the weight.

    Spare entries are written over by the next call.
    """
    number = to.dtype.type(weight)
    for j in range(first // K, -(-(first + len(to)) // K)):
        left = max(first - j * K, 0)
        at = j * K + left - first
        source = G[j, left : left + len(to) - at]
        target = to[at : at + len(source)]
        for k in range(len(source)):
            target[k] = number * source[k]
