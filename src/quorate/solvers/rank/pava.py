"""Rank-based proximal steps in one forward pass of the pool adjacent violators algorithm (PAVA).

    minimise over z:  sum_i sigma_i l(z_[i]) + rho / 2 ||z - m||^2
            z_[1] <= ... <= z_[n], l convex increasing

Sorting m turns it into a chain (Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss
minimization*, (10)). A block of equal z is the prox of l at the block's mean of m with step c =
(its sum of sigma) / (rho size). One pass over the sorted m keeps a stack of blocks in order: it
takes O(n) proxes and is exact for any weights sigma >= 0, monotone or not.

With ``even`` the loss is l(|t|), of residuals: then |m| is sorted and signs pass through. The
weights of prospect theory change at a reference B: one weight sequence for z <= B, another above;
``split_chain`` computes the best of all splits in two passes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from quorate.arrays import Array

# numba's cache checks this file only: touch it after a change in the module below
from quorate.solvers.rank.scalar_losses import (
    EXPONENTIAL,
    LINEAR,
    LOGISTIC,
    PLUS,
    RAMP,
    Kernel,
    conjugate_at,
    gradient_at,
    loss_at,
    losses_of,
    plain,
    prox_at,
    prox_each,
    prox_gradient_at,
    proxes,
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
    "prox_gradients",
    "rank_conjugate",
    "rank_prox",
]


class RankProx(NamedTuple):
    """The minimiser z (n,), the order of m, and the blocks of two or more ranks that are pooled.

    ``start``, ``stop`` (B,): ranks start_b <= rank < stop_b share one value; every other rank
    stands alone.
    """

    z: Array
    order: NDArray[np.intp]
    start: NDArray[np.intp]
    stop: NDArray[np.intp]


# ---- chains --------------------------------------------------------------------------------------


@njit(inline="always")
def _beyond(kind, knot, width, c, k, total, at, side):
    """Whether the value of a block of k entries lies beyond ``at``.

    Below it for side = -1, above it for side = 1.

    The sign of the one-sided derivative at ``at`` decides, without a prox or a division.
    """
    if kind == PLUS:
        gradient = 1.0 if at > knot or (side > 0 and at == knot) else 0.0
    else:
        gradient = gradient_at(kind, knot, width, at)
    return side * (c * gradient + (k * at - total)) < 0.0


@njit(inline="always")
def _level(z, start, stop):
    """Give every entry of a block the value of the block's last one."""
    for b in range(len(start)):
        v = z[stop[b] - 1]
        for i in range(start[b], stop[b]):
            z[i] = v


@njit(cache=True, error_model="numpy")
def chain(m, sigma, rho, kind, knot, width):
    """(z, start, stop) for sorted m: the minimiser and its pooled blocks.

    First every entry is a block, then one pass visits what is out of order: the block there takes
    in its neighbours, left and right, while they are out of order with it. The stack holds pooled
    blocks only; an entry outside them is a block of one.
    """
    n, inverse, most = len(m), 1.0 / rho, 0
    z = prox_each(kind, knot, width, m, sigma, inverse)
    for i in range(1, n):
        most += z[i] < z[i - 1]
    start, stop, weight, total = (
        np.empty(most, np.intp),
        np.empty(most, np.intp),
        np.empty(most),
        np.empty(most),
    )
    top, i = -1, 1
    while i < n and most:
        if z[i] >= z[i - 1]:
            i += 1
            continue
        at, end, c, t, grown = i, i + 1, sigma[i] * inverse, m[i], True
        while grown:
            grown = False
            while at > 0 and (
                end - at == 1 or _beyond(kind, knot, width, c, end - at, t, z[at - 1], -1.0)
            ):
                if top >= 0 and stop[top] == at:
                    at, c, t = start[top], c + weight[top], t + total[top]
                    top -= 1
                else:
                    at -= 1
                    c, t = c + sigma[at] * inverse, t + m[at]
                grown = True
            while end < n and _beyond(kind, knot, width, c, end - at, t, z[end], 1.0):
                c, t, end, grown = c + sigma[end] * inverse, t + m[end], end + 1, True
        top += 1
        start[top], stop[top], weight[top], total[top] = at, end, c, t
        v = prox_at(kind, knot, width, c / (end - at), t / (end - at))
        z[end - 1] = max(v, z[at - 1]) if at > 0 else v
        i = end
    _level(z, start[: top + 1], stop[: top + 1])
    return z, start[: top + 1], stop[: top + 1]


@njit(cache=True)
def _ranked(m, order, sigma, rho, kind, knot, width):
    """``chain`` for an order that sorts m, with z in the order of m."""
    x = np.empty_like(m)
    for i in range(len(m)):
        x[i] = m[order[i]]
    z, start, stop = chain(x, sigma, rho, kind, knot, width)
    for i in range(len(m)):
        x[order[i]] = z[i]
    return x, start, stop


@njit(inline="always")  # so that the sign is known to the compiler
def _costs(m, sigma, rho, kind, knot, width, at, sign):
    """cost[j]: for the sign 1 the least cost of the first j entries of the chain with z <= at.

    For the sign -1 it is that of the last j entries with z >= at. Squares are taken about the means
    of blocks: otherwise far entries would drown the differences between splits.
    """
    n = len(m)
    start, weight, mean, value, cost = (
        np.empty(n, np.intp),
        np.empty(n),
        np.empty(n),
        np.empty(n),  # of a block: sign * z
        np.empty(n + 1),
    )
    scatter = np.empty(n)  # of a block: its sum of squares about its mean
    cost[0], top = 0.0, -1
    for i in range(n):
        row = i if sign > 0.0 else n - 1 - i
        first, k, s, t, square = i, 1, sigma[row], m[row], 0.0
        v = min(sign * prox_at(kind, knot, width, s / rho, t), sign * at)
        while top >= 0 and value[top] > v:
            more, apart = first - start[top], mean[top] - t
            first, k, s = start[top], k + more, s + weight[top]
            t, square = (
                t + apart * more / k,
                square + scatter[top] + apart * apart * (k - more) * more / k,
            )
            top -= 1
            v = min(sign * prox_at(kind, knot, width, s / (rho * k), t), sign * at)
        top += 1
        start[top], weight[top], mean[top], scatter[top], value[top] = first, s, t, square, v
        v *= sign
        cost[i + 1] = (
            cost[first] + s * loss_at(kind, knot, width, v) + rho / 2 * (k * (v - t) ** 2 + square)
        )
    return cost


@njit(cache=True)
def split_chain(m, below, above, at, rho, kind, knot, width):
    """z for weights ``below`` on z <= at and ``above`` beyond: the exact minimum over all splits.

    Of several best splits it is the lowest.

    At z = at both pieces are closed, so the smaller of the two weights counts, which is the
    lower-semicontinuous value.
    """
    n, j = len(m), 0
    left = _costs(m, below, rho, kind, knot, width, at, 1.0)
    right = _costs(m, above, rho, kind, knot, width, at, -1.0)
    for i in range(1, n + 1):
        j = i if left[i] + right[n - i] < left[j] + right[n - j] else j
    z, high = np.empty(len(m)), chain(m[j:], above[j:], rho, kind, knot, width)[0]
    low = chain(m[:j], below[:j], rho, kind, knot, width)[0]
    for i in range(len(m)):
        z[i] = min(low[i], at) if i < j else max(high[i - j], at)
    return z


# ---- what the problem calls ----------------------------------------------------------------------


def ascending(m: Array) -> NDArray[np.intp]:
    """The order that sorts m, equal entries by position: the same on every machine.

    One sort of 64-bit keys (the leading bits of the number, then its position) and a pass that puts
    neighbours which differ in the last bits only in order; half the time of an argsort.
    """
    keys = _keys(m.view(np.uint64))
    keys.sort()
    order = keys.view(np.intp)
    if _positions(m, keys, order):
        return order
    return np.argsort(m, kind="stable")  # very many entries differ in the last bits only


@njit(inline="always")
def _low(n):
    """A mask of the bits that hold a position."""
    return np.uint64(2 ** math.ceil(math.log2(max(n, 2))) - 1)


@njit(cache=True)
def _keys(bits):
    low, sign = _low(len(bits)), np.uint64(1) << np.uint64(63)
    keys = np.empty(len(bits), np.uint64)
    for i in range(len(bits)):
        b = bits[i] if bits[i] != sign else np.uint64(0)  # -0.0 and 0.0 are equal
        keys[i] = ((b ^ (sign | (np.uint64(0) - (b >> np.uint64(63))))) & ~low) | np.uint64(i)
    return keys


@njit(cache=True)
def _positions(m, keys, order):
    """Write the order over the sorted keys, whose memory it shares; False where that takes too
    many exchanges.
    """
    n, low, moves = len(m), _low(len(m)), 0
    before = np.uint64(0) if n == 0 else ~keys[0]
    for i in range(n):
        key = keys[i]
        at, j = np.intp(key & low), i
        # equal in the leading bits; equal numbers are in the order of positions already
        if (key ^ before) <= low:
            while j > 0 and m[order[j - 1]] > m[at]:
                order[j] = order[j - 1]
                j -= 1
            moves += i - j
            if moves > 8 * n:
                return False
        order[j], before = at, key
    return True


def rank_prox(m: Array, sigma: Array, rho: float, kernel: Kernel) -> RankProx:
    """The prox of a spectral risk: argmin_z  sum_i sigma_i l(z_[i]) + rho / 2 ||z - m||^2.

    Parameters
    ----------
    m : (n,)
    sigma : (n,) weights >= 0 in ascending order: sigma_1 goes with the smallest loss
    rho : > 0
    kernel : the loss
    """
    size, sigma, none = _size(m, kernel), plain(sigma), np.zeros(0, np.intp)
    if (
        sigma.size and sigma[0] == sigma[-1] and (sigma == sigma[0]).all()
    ):  # equal weights are the mean: no ranks needed
        z = proxes(*kernel.curve, size, sigma, 1 / float(rho))
        return RankProx(_signed(z, m, kernel), np.arange(len(m)), none, none)
    order = ascending(size)
    z, start, stop = _ranked(size, order, sigma, float(rho), *kernel.curve)
    return RankProx(_signed(z, m, kernel), order, start, stop)


def prospect_prox(
    m: Array, below: Array, above: Array, at: float, rho: float, kernel: Kernel
) -> Array:
    """The same with weights ``below`` for entries <= ``at`` and ``above`` for those beyond.

    ``at`` is in the rank coordinate.
    """
    size = _size(m, kernel)
    order, z = ascending(size), np.empty_like(size)
    z[order] = split_chain(
        size[order], plain(below), plain(above), float(at), float(rho), *kernel.curve
    )
    return _signed(z, m, kernel)


def _size(m: Array, kernel: Kernel) -> Array:
    """The numbers that the losses increase with: m, or |m| for even losses."""
    return np.abs(plain(m)) if kernel.even else plain(m)


def _signed(z: Array, m: Array, kernel: Kernel) -> Array:
    return np.copysign(z, m) if kernel.even else z


@njit(cache=True)
def pooled_ratios(alpha, sigma):
    """Isotonic regression of alpha_i / sigma_i with weights sigma_i (0 allowed).

    Returns the nondecreasing ratios of its blocks.

    For sorted alpha >= 0 this is q'* alpha_i / q_i of the best q in the permutahedron of sigma; inf
    where a block has mass but no weight.
    """
    n = len(alpha)
    start, weight, total = np.empty(n + 1, np.intp), np.empty(n), np.empty(n)
    top = -1
    for i in range(n):
        at, s, t = i, sigma[i], alpha[i]
        while (
            top >= 0
            and total[top] * s >= t * weight[top]
            and (weight[top] > 0.0 or total[top] > 0.0 or t == 0.0)
        ):
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
def _conjugate(alpha, sigma, kind, knot, width, steepest):
    """(theta, Omega*(theta alpha)) for sorted alpha >= 0 and the steepest gradient of the loss."""
    ratio = pooled_ratios(alpha, sigma)
    theta, total = (
        (0.0 if math.isinf(ratio[-1]) else min(1.0, steepest / max(ratio[-1], 1e-300))),
        0.0,
    )
    for i in range(len(ratio)):
        if (
            sigma[i] > 0.0
        ):  # min, because rounding must not carry the steepest block over its limit again
            total += sigma[i] * conjugate_at(kind, knot, width, min(theta * ratio[i], steepest))
    return theta, total


def rank_conjugate(alpha: Array, sigma: Array, kernel: Kernel) -> tuple[float, float]:
    """(theta, Omega*(theta alpha)) of Omega(z) = sum_i sigma_i l(z_[i]), sigma nondecreasing.

    theta in [0, 1] is the largest factor that brings alpha into the domain of Omega* (1 up to
    rounding for the multipliers of an ADMM). For even losses only |alpha| counts; for the others
    negative entries count as 0, since Omega* is infinite there: use max(alpha, 0).

    Omega(z) = max over q in the permutahedron of sigma of sum q_i l(z_i), so Omega*(alpha) is the
    least sum q_i l*(alpha_i / q_i): constant ratios on the blocks of an isotonic regression.
    """
    size = np.sort(np.abs(alpha) if kernel.even else np.maximum(alpha, 0.0))
    steepest = {RAMP: float(kernel.width), EXPONENTIAL: math.inf}.get(kernel.kind, 1.0)
    return _conjugate(size, plain(sigma), *kernel.curve, steepest)


@njit(cache=True)
def _prox_gradients(m, sigma, start, stop, z, rho, kind, knot, width):
    gradient = np.empty(len(m))
    for i in range(len(m)):
        gradient[i] = prox_gradient_at(kind, knot, width, sigma[i] / rho, m[i], z[i])
    for b in range(len(start)):
        i, k, c, t = start[b], stop[b] - start[b], 0.0, 0.0
        for j in range(i, i + k):
            c, t = c + sigma[j] / rho, t + m[j]
        p = prox_gradient_at(kind, knot, width, c / k, t / k, z[i])
        for j in range(i, i + k):
            gradient[j] = p
    return gradient


def prox_gradients(m: Array, sigma: Array, rho: float, kernel: Kernel, prox: RankProx) -> Array:
    """By rank (n,), the derivative p of each block's value in the block's mean of m.

    So an element of the generalised Jacobian of ``rank_prox`` is block diagonal: p / k 1 1' for
    every block of k ranks (for even losses between the signs of m).
    """
    size, z = (_size(v, kernel)[prox.order] for v in (m, prox.z))
    return _prox_gradients(size, plain(sigma), prox.start, prox.stop, z, float(rho), *kernel.curve)
