"""Rank-based proximal steps in one forward pass of the pool adjacent violators algorithm (PAVA).

    minimise over z:  sum_i sigma_i l(z_[i]) + rho / 2 ||z - m||^2          z_[1] <= ... <= z_[n], l convex increasing

Sorting m turns it into a chain (Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*, (10)); a
block of equal z is the prox of l at the block's mean of m with step c = (its sum of sigma) / (rho size). One pass over
the sorted m keeps a stack of blocks in order: O(n) proxes, exact, for any weights sigma >= 0, monotone or not.

``even``: the loss is l(|t|), of residuals: then signs pass through and |m| is sorted. Prospect weights change at a
reference B: one weight sequence for z <= B, another above; ``split_chain`` finds the best of all splits in two passes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.solvers.monotone import (  # numba's cache sees this file alone: touch it after a change over there
    EXPONENTIAL,
    LINEAR,
    LOGISTIC,
    PLUS,
    RAMP,
    Kernel,
    conjugate_at,
    loss_at,
    losses_of,
    prox_at,
    prox_slope_at,
)

__all__ = [
    "EXPONENTIAL",
    "LINEAR",
    "LOGISTIC",
    "PLUS",
    "RAMP",
    "Kernel",
    "RankProx",
    "ascending",
    "losses_of",
    "prospect_prox",
    "prox_slopes",
    "rank_conjugate",
    "rank_prox",
]


class RankProx(NamedTuple):
    """The minimiser z (n,), the order of m, and the blocks of two and more ranks that move together.

    ``start``, ``stop`` (B,): ranks start_b <= rank < stop_b share one value; every other rank stands alone.
    """

    z: Array
    order: NDArray[np.intp]
    start: NDArray[np.intp]
    stop: NDArray[np.intp]


# ---- chains ------------------------------------------------------------------------------------------------------


@njit(cache=True)
def _alone(m, order, sigma, inverse, kind, knot, width):
    z = np.empty(len(order))
    if kind == PLUS:  # written out: no call in the commonest loop
        for i in range(len(order)):
            mi = m[order[i]]
            low, step = mi if mi < knot else knot, mi - sigma[i] * inverse
            z[i] = step if step > low else low
        return z
    for i in range(len(order)):
        mi = m[order[i]]
        z[i] = prox_at(kind, knot, width, sigma[i] * inverse, mi) if sigma[i] > 0.0 else mi
    return z


@njit(cache=True)
def chain(m, order, sigma, rho, kind, knot, width):
    """(z, start, stop) by rank, for an order that sorts m: the minimiser and its pooled blocks.

    First every entry alone, then one pass over what is out of order. The stack holds pooled blocks only; an entry that
    is not the last of one is a block of its own.
    """
    n, inverse, most = len(order), 1.0 / rho, 0
    z = _alone(m, order, sigma, inverse, kind, knot, width)
    for i in range(1, n):
        most += z[i] < z[i - 1]
    start, stop, weight, total = np.empty(most, np.intp), np.empty(most, np.intp), np.empty(most), np.empty(most)
    top = -1
    for i in range(1, n if most else 0):
        if z[i] >= z[i - 1]:
            continue
        at, s, t, v = i, sigma[i], m[order[i]], z[i]
        while at > 0 and z[at - 1] > v:
            if top >= 0 and stop[top] == at:
                at, s, t = start[top], s + weight[top], t + total[top]
                top -= 1
            else:
                at -= 1
                s, t = s + sigma[at], t + m[order[at]]
            k = i + 1 - at
            v = prox_at(kind, knot, width, s * inverse / k, t / k)
        top += 1
        start[top], stop[top], weight[top], total[top] = at, i + 1, s, t
        z[i] = v
    for b in range(top + 1):
        z[start[b] : stop[b]] = z[stop[b] - 1]
    return z, start[: top + 1], stop[: top + 1]


@njit(cache=True)
def apart(m, sigma, rho, kind, knot, width):
    """The minimiser for equal weights ``sigma``: every entry alone, no order needed."""
    z = np.empty_like(m)
    for i in range(len(m)):
        z[i] = prox_at(kind, knot, width, sigma / rho, m[i])
    return z


@njit(cache=True)
def _prefix_costs(m, sigma, rho, kind, knot, width, cap):
    """cost[j]: the least cost of the first j entries of the chain with z <= cap.

    Squares are taken about the means of blocks: far entries would drown what the splits differ by.
    """
    n = len(m)
    start, weight, mean, value, cost = np.empty(n, np.intp), np.empty(n), np.empty(n), np.empty(n), np.empty(n + 1)
    scatter = np.empty(n)  # of a block: its sum of squares about its mean
    cost[0], top = 0.0, -1
    for i in range(n):
        at, k, s, t, square = i, 1, sigma[i], m[i], 0.0
        v = min(prox_at(kind, knot, width, s / rho, t), cap)
        while top >= 0 and value[top] > v:
            more, apart = at - start[top], mean[top] - t
            at, k, s = start[top], k + more, s + weight[top]
            t, square = t + apart * more / k, square + scatter[top] + apart * apart * (k - more) * more / k
            top -= 1
            v = min(prox_at(kind, knot, width, s / (rho * k), t), cap)
        top += 1
        start[top], weight[top], mean[top], scatter[top], value[top] = at, s, t, square, v
        cost[i + 1] = cost[at] + s * loss_at(kind, knot, width, v) + rho / 2 * (k * (v - t) ** 2 + square)
    return cost


@njit(cache=True)
def _suffix_costs(m, sigma, rho, kind, knot, width, floor):
    """cost[j]: the least cost of the entries from j on with z >= floor."""
    n = len(m)
    end, weight, mean, value, cost = np.empty(n, np.intp), np.empty(n), np.empty(n), np.empty(n), np.empty(n + 1)
    scatter = np.empty(n)
    cost[n], top = 0.0, -1
    for i in range(n - 1, -1, -1):
        to, k, s, t, square = i + 1, 1, sigma[i], m[i], 0.0
        v = max(prox_at(kind, knot, width, s / rho, t), floor)
        while top >= 0 and value[top] < v:
            more, apart = end[top] - to, mean[top] - t
            to, k, s = end[top], k + more, s + weight[top]
            t, square = t + apart * more / k, square + scatter[top] + apart * apart * (k - more) * more / k
            top -= 1
            v = max(prox_at(kind, knot, width, s / (rho * k), t), floor)
        top += 1
        end[top], weight[top], mean[top], scatter[top], value[top] = to, s, t, square, v
        cost[i] = cost[to] + s * loss_at(kind, knot, width, v) + rho / 2 * (k * (v - t) ** 2 + square)
    return cost


@njit(cache=True)
def split_chain(m, below, above, at, rho, kind, knot, width):
    """z for weights ``below`` on z <= at, ``above`` beyond: the exact minimum over all splits, the lowest on ties.

    At z = at both pieces are closed, so the smaller of the two weights counts: the lower-semicontinuous value.
    """
    left = _prefix_costs(m, below, rho, kind, knot, width, at)
    right = _suffix_costs(m, above, rho, kind, knot, width, at)
    j = np.argmin(left + right)
    z = np.empty(len(m))
    ranks = np.arange(len(m))
    z[:j] = np.minimum(chain(m, ranks[:j], below[:j], rho, kind, knot, width)[0], at)
    z[j:] = np.maximum(chain(m, ranks[j:], above[j:], rho, kind, knot, width)[0], at)
    return z


# ---- what the problem calls --------------------------------------------------------------------------------------


def ascending(m: Array) -> NDArray[np.intp]:
    """The order that sorts m, equal entries by position: the same on every machine.

    One sort of 64-bit keys (the leading bits of the number, then its position) and a pass that puts neighbours which
    differ in the last bits only in order; half the time of an argsort.
    """
    order = _keys(m)
    order.sort()
    return _positions(m, order)


@njit(cache=True)
def _low(n):
    """A mask of the bits that hold a position."""
    return np.uint64(2 ** math.ceil(math.log2(max(n, 2))) - 1)


@njit(cache=True)
def _keys(m):
    low, bits, sign = _low(len(m)), m.view(np.uint64), np.uint64(1) << np.uint64(63)
    keys = np.empty(len(m), np.uint64)
    for i in range(len(m)):
        b = bits[i] if bits[i] != sign else np.uint64(0)  # -0.0 and 0.0 are equal
        keys[i] = ((b ^ (sign | (np.uint64(0) - (b >> np.uint64(63))))) & ~low) | np.uint64(i)
    return keys


@njit(cache=True)
def _positions(m, keys):
    """The order, written over the sorted keys."""
    n, low, order = len(m), _low(len(m)), keys.view(np.intp)
    i = 0
    while i < n:
        key, j = keys[i], i + 1
        order[i] = np.intp(key & low)
        while j < n and (keys[j] ^ key) <= low:
            order[j] = np.intp(keys[j] & low)
            j += 1
        if j - i > 1:
            run = order[i:j].copy()  # by position already
            order[i:j] = run[np.argsort(m[run], kind="mergesort")]
        i = j
    return order


def rank_prox(m: Array, sigma: Array, rho: float, kernel: Kernel) -> RankProx:
    """argmin_z  sum_i sigma_i l(z_[i]) + rho / 2 ||z - m||^2.

    Parameters
    ----------
    m : (n,)
    sigma : (n,) weights >= 0 in ascending order: sigma_1 goes with the smallest loss
    rho : > 0
    kernel : the loss
    """
    kind, knot, width, even = kernel
    size, none = np.abs(m) if even else m, np.zeros(0, np.intp)
    if sigma.size and sigma[0] == sigma[-1] and (sigma == sigma[0]).all():  # the mean: no ranks
        z = apart(size, sigma[0], rho, kind, knot, width)
        return RankProx(np.copysign(z, m) if even else z, np.arange(len(m)), none, none)
    order = ascending(size)
    sorted_z, start, stop = chain(size, order, sigma, rho, kind, knot, width)
    return RankProx(_unsorted(m, order, sorted_z, even), order, start, stop)


def prospect_prox(m: Array, below: Array, above: Array, at: float, rho: float, kernel: Kernel) -> Array:
    """The same minimiser with weights ``below`` for entries <= ``at`` (in the rank coordinate), ``above`` beyond."""
    kind, knot, width, even = kernel
    size = np.abs(m) if even else m
    order = ascending(size)
    return _unsorted(m, order, split_chain(size[order], below, above, at, rho, kind, knot, width), even)


def _unsorted(m: Array, order: NDArray[np.intp], sorted_z: Array, even: bool) -> Array:
    z = np.empty_like(sorted_z)
    z[order] = sorted_z
    return np.copysign(z, m) if even else z


@njit(cache=True)
def pooled_ratios(alpha, sigma):
    """Isotonic regression of alpha_i / sigma_i with weights sigma_i (0 allowed): nondecreasing block ratios.

    For sorted alpha >= 0 this is q'* alpha_i / q_i of the best q in the permutahedron of sigma; inf where a block has
    mass but no weight.
    """
    n = len(alpha)
    start, weight, total = np.empty(n + 1, np.intp), np.empty(n), np.empty(n)
    top = -1
    for i in range(n):
        at, s, t = i, sigma[i], alpha[i]
        while top >= 0 and total[top] * s >= t * weight[top] and (weight[top] > 0.0 or total[top] > 0.0 or t == 0.0):
            at, s, t = start[top], s + weight[top], t + total[top]
            top -= 1
        top += 1
        start[top], weight[top], total[top] = at, s, t
    ratio = np.empty(n)
    start[top + 1] = n
    for b in range(top + 1):
        r = total[b] / weight[b] if weight[b] > 0.0 else (math.inf if total[b] > 0.0 else 0.0)
        for i in range(start[b], start[b + 1]):
            ratio[i] = r
    return ratio


@njit(cache=True)
def _conjugate(alpha, sigma, kind, knot, width):
    ratio = pooled_ratios(alpha, sigma)
    total = 0.0
    for i in range(len(ratio)):
        if sigma[i] > 0.0:
            total += sigma[i] * conjugate_at(kind, knot, width, ratio[i])
        elif ratio[i] > 0.0 and math.isinf(ratio[i]):
            return math.inf, math.inf
    return total, ratio[-1]


def rank_conjugate(alpha: Array, sigma: Array, kernel: Kernel) -> tuple[float, float]:
    """(theta, Omega*(theta alpha)) of Omega(z) = sum_i sigma_i l(z_[i]), sigma nondecreasing.

    theta in (0, 1] is the largest factor that brings alpha into the domain of Omega* (1 up to rounding for the
    multipliers of an ADMM); for even losses only |alpha| counts.

    Omega(z) = max over q in the permutahedron of sigma of sum q_i l(z_i), so Omega*(alpha) is the least
    sum q_i l*(alpha_i / q_i): constant ratios on the blocks of an isotonic regression.
    """
    kind, knot, width, even = kernel
    size = np.sort(np.abs(alpha) if even else np.maximum(alpha, 0.0))
    limit = {LINEAR: 1.0, PLUS: 1.0, RAMP: width, LOGISTIC: 1.0, EXPONENTIAL: math.inf}[kind]
    steepest = float(pooled_ratios(size, sigma)[-1]) if len(size) else 0.0
    theta = 1.0 if steepest <= limit else limit / steepest * (1 - 1e-15)
    value, _ = _conjugate(size * theta, sigma, kind, knot, width)
    if math.isinf(value) and theta < 1:  # rounding put the largest ratio a hair above its limit again
        theta *= 1 - 1e-12
        value, _ = _conjugate(size * theta, sigma, kind, knot, width)
    return theta, value


@njit(cache=True)
def _prox_slopes(m, sigma, start, stop, z, rho, kind, knot, width):
    slope = np.empty(len(m))
    for i in range(len(m)):
        slope[i] = prox_slope_at(kind, knot, width, sigma[i] / rho, m[i], z[i])
    for b in range(len(start)):
        i, j = start[b], stop[b]
        slope[i:j] = prox_slope_at(kind, knot, width, sigma[i:j].sum() / (rho * (j - i)), m[i:j].mean(), z[i])
    return slope


def prox_slopes(m: Array, sigma: Array, rho: float, kernel: Kernel, found: RankProx) -> Array:
    """(n,) by rank, the derivative p of the value of its block in the block's mean of m.

    So an element of the generalised Jacobian of ``rank_prox`` is block diagonal: p / k 1 1' for every block of k ranks
    (for even losses between the signs of m).
    """
    size, z = ((np.abs(v) if kernel.even else v)[found.order] for v in (m, found.z))
    return _prox_slopes(size, sigma, found.start, found.stop, z, rho, kernel.kind, kernel.knot, kernel.width)
