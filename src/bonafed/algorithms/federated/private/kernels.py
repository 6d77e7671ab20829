"""A client's sum of clipped gradients of a softmax model, compiled, in floating point.

The kernels pass over the rows once, in tiles that stay in the cache: two products, softmax and
clipping. Arrays are copied entry by entry, since assignments to slices take seconds to compile.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bonafed.solvers.kernels.exponential import exp64

L1, L2 = 1, 2

# libraries of linear algebra do products of fewer multiplications without copying
SMALL = 1_000_000
LEAST, MOST = 64, 1024  # rows of a tile
WIDE = 16  # columns that a library likes in multiples

# Sums may go in any order, products and sums in one instruction, without signed zeros; infinities
# and NaN stay what they are.
FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(inline="always")
def _exp32(x):
    """exp of a float32 <= 0 to 2 ulp, in arithmetic only so that loops vectorise.

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
def exponentials(v):
    """exp of every entry, in place; sums stay as written, which the rounding above relies on."""
    if v.itemsize == 4:
        for j in range(len(v)):
            v[j] = _exp32(v[j])
    else:
        for j in range(len(v)):
            v[j] = exp64(-708.0 if v[j] < -708.0 else v[j])  # NaN stays


@njit(cache=True)
def _tile(d, K):
    """(rows of a tile, columns of its scores)."""
    few = SMALL // (d * K)
    wide = -(-K // WIDE) * WIDE
    return (few, K) if few >= LEAST else (MOST, wide if 8 * wide <= 9 * K else K)


@njit(cache=True, fastmath=FAST, error_model="numpy")
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
    exponentials(S.reshape(m * wide))
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
def softmax_gradient(X, y, Z, factor, length, clip, norm, G):
    """Set G (d, K) to the sum of the rows' gradients x (h - e_y)', each clipped to ``clip``.

    Row i is ``factor[i]`` x_i, of norm ``length[i]``. Returns the largest norm of a gradient before
    clipping.
    """
    d, K = Z.shape
    T, wide = _tile(d, K)
    wider, turned = np.zeros((d, wide), Z.dtype), np.empty((wide, d), Z.dtype)
    scores = np.empty((min(T, len(y)), wide), Z.dtype)
    for j in range(d):
        for k in range(K):
            wider[j, k], G[j, k] = Z[j, k], 0
    largest = 0.0
    for start in range(0, len(y), T):
        here = slice(start, min(start + T, len(y)))
        S = scores[: here.stop - start]
        np.dot(X[here], wider, S)
        largest = max(largest, _residuals(S, K, y[here], factor[here], length[here], clip, norm))
        np.dot(S.T, X[here], turned)
        for j in range(d):
            for k in range(K):
                G[j, k] += turned[k, j]
    return largest
