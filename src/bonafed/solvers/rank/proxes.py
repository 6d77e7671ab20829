"""Convex increasing losses of one number, and proximal steps of risks that rank them."""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import xlog1py, xlogy

from bonafed.arrays import Array
from bonafed.solvers.kernels.exponential import exp64

# Convex increasing losses of one number t, a row's rank coordinate, with proxes and conjugates.
#
#     LINEAR       t                                             EXPONENTIAL  exp(t)
#     PLUS         max(0, t - knot)                              LOGISTIC     log(1 + exp(t))
#     RAMP         0, (t - knot)^2 / 2, then gradient ``width`` from t = knot + width on
#
#     prox_{c l}(m) = argmin_v  c l(v) + (v - m)^2 / 2              l*(s) = sup_t  s t - l(t)
#
# Proxes are closed forms, or Halley and Newton iterations that cannot cycle. With ``even`` the loss
# is l(|t|), of residuals.


# NumPy's integers: numba would compile a callee again for every Python integer that is constant
LINEAR, PLUS, RAMP, LOGISTIC, EXPONENTIAL = np.arange(5)


class Kernel(NamedTuple):
    """A loss of the rank coordinate t, or with ``even`` of |t| and knot >= 0."""

    kind: int | np.integer
    knot: float = 0.0
    width: float = 1.0
    even: bool = False

    @property
    def curve(self) -> tuple[int, float, float]:
        """(kind, knot, width), the arguments of compiled functions."""
        return int(self.kind), float(self.knot), float(self.width)


def plain(v: Array) -> Array:
    """v as contiguous, writable float64; a copy only where it is not.

    So one compilation serves every caller.
    """
    return np.require(v, np.float64, ["C", "W"])


@njit(cache=True, error_model="numpy")
def loss_at(kind, knot, width, t):
    """l(t)."""
    if kind == LINEAR:
        return t
    if kind == PLUS:
        return max(0.0, t - knot)
    if kind == RAMP:
        s = min(max(t - knot, 0.0), width)
        return s * (t - knot) - s * s / 2 if s > 0.0 else 0.0
    if kind == LOGISTIC:
        return max(t, 0.0) + math.log1p(math.exp(-abs(t)))
    return math.exp(t)


@njit(cache=True, error_model="numpy")
def gradient_at(kind, knot, width, t):
    """The largest gradient l'(t)."""
    if kind == LINEAR:
        return 1.0
    if kind == PLUS:
        return 1.0 if t >= knot else 0.0
    if kind == RAMP:
        return min(max(t - knot, 0.0), width)
    if kind == LOGISTIC:
        e = math.exp(-abs(t))
        return (1.0 if t >= 0 else e) / (1.0 + e)
    return math.exp(t)


@njit(cache=True, error_model="numpy")
def prox_at(kind, knot, width, c, m):
    """argmin_v  c l(v) + (v - m)^2 / 2, for c >= 0; -inf where c = inf leaves no minimiser."""
    if kind == LINEAR:
        return m - c
    if kind == PLUS:
        return max(m - c, min(m, knot))
    if kind == RAMP:
        if m <= knot:
            return m
        v = (m + c * knot) / (1.0 + c) if math.isfinite(c) else knot
        return v if v <= knot + width else m - c * width
    if c == 0.0 or math.isinf(c):
        return m if c == 0.0 else -math.inf
    shift, u = _start(kind, c, m)
    for k in range(100):
        step = _step(kind, c, shift, u, 1.0 if k < ROUNDS else 0.0)
        u = _inside(kind, c, shift, u - step)
        if abs(step) <= SMALL:
            break
    return _finish(kind, c, m, u)


# The prox of LOGISTIC and EXPONENTIAL is found from one number u, a root of an increasing function
# without inflection:  LOGISTIC     u + p = c exp(-u) / (1 + exp(-u)), u >= 0 (concave): v = -u with
# p = m where c / 2 > m, otherwise v = u with p = c - m, so that nothing large cancels in either
# EXPONENTIAL  exp(u) + u = L := m + log c (convex): v = u - log c  Halley steps, cubic: past a step
# of 5e-6 the error is below 1e-16. Should 20 of them not do, Newton steps follow, which are
# monotone once they have crossed to the side where the tangent does not overshoot. (A bracketed
# Newton iteration with bisection as its safeguard can cycle here for c >= 100.) Division without
# Python's check for zero (error_model) is what lets the compiler take several entries at a time.
ROUNDS, SMALL, SPAN = 20, 5e-6, 256


@njit(inline="always")
def _rough_log(x):
    """log x within 0.06 for x > 0, from the bits of x."""
    return (np.float64(x).view(np.int64) * 2.0**-52 - 1022.9570) * 0.6931471805599453


@njit(cache=True, error_model="numpy")
def _start(kind, c, m):
    """(shift, u): p or L, and a start near the root."""
    if kind == LOGISTIC:
        p = m if c / 2 > m else c - m
        size = _rough_log(c)
        return p, _inside(kind, c, p, size - _rough_log(max(size + p, 1.0)))
    L = m + math.log(c)
    return L, _rough_log(L) if L > 1.0 else min(L, 0.6 * (L - 1.0))


@njit(cache=True, error_model="numpy")
def _step(kind, c, shift, u, bend):
    """Halley's step where bend = 1, Newton's where it is 0."""
    if kind == LOGISTIC:
        e = exp64(-min(u, 708.0))
        w = 1.0 / (1.0 + e)
        h = e * w
        f, q = (u + shift) - c * h, c * h * w
        d, curvature = 1.0 + q, -q * (1.0 - e) * w
    else:
        e = exp64(min(max(u, -708.0), 700.0))
        f, d, curvature = e + (u - shift), 1.0 + e, e
    return 2 * f * d / max(2 * d * d - bend * f * curvature, d * d)


@njit(inline="always")
def _inside(kind, c, shift, u):
    return min(max(u, 0.0, -shift), c / 2 - shift) if kind == LOGISTIC else u


@njit(cache=True, error_model="numpy")
def _finish(kind, c, m, u):
    if kind == LOGISTIC:
        return -u if c / 2 > m else u
    return u - math.log(c) if m + math.log(c) > 1.0 else m - exp64(max(u, -708.0))


def _round_of(kind: Any) -> Any:
    """A loop of one kind: of both kinds the compiler would handle one entry at a time."""

    @njit(cache=True, error_model="numpy")
    def one_round(c, shift, u, last, k):
        """Take a Halley step of those of the first k entries that still move; returns how many."""
        moving = 0
        for i in range(k):
            step = _step(kind, c[i], shift[i], u[i], 1.0) if last[i] > SMALL else 0.0
            u[i] = _inside(kind, c[i], shift[i], u[i] - step)
            last[i] = abs(step)
            moving += last[i] > SMALL
        return moving

    return one_round


_logistic_round, _exponential_round = map(_round_of, (LOGISTIC, EXPONENTIAL))


@njit(cache=True, error_model="numpy")
def _side_by_side(kind, m, sigma, inverse, z):
    """z_i = prox_at(c_i, m_i) with the same bits, for a few hundred entries at a time.

    All their steps run side by side.
    """
    c, shift, u, last = np.empty(SPAN), np.empty(SPAN), np.empty(SPAN), np.empty(SPAN)
    for low in range(0, len(m), SPAN):
        k, some = min(SPAN, len(m) - low), False
        for i in range(k):
            c[i], last[i] = sigma[low + i] * inverse, 1.0
            some |= c[i] > 0.0
        if not some:
            for i in range(low, low + k):
                z[i] = m[i]
            continue
        for i in range(k):
            shift[i], u[i] = _start(kind, c[i], m[low + i])
        for _ in range(ROUNDS):
            if kind == LOGISTIC:
                moving = _logistic_round(c, shift, u, last, k)
            else:
                moving = _exponential_round(c, shift, u, last, k)
            if moving == 0:
                break
        for i in range(k):
            if last[i] <= SMALL and 0.0 < c[i] < math.inf:
                z[low + i] = _finish(kind, c[i], m[low + i], u[i])
            else:
                z[low + i] = prox_at(kind, 0.0, 1.0, c[i], m[low + i])


@njit(cache=True, error_model="numpy")
def prox_each(kind, knot, width, m, sigma, inverse, z):
    """Write prox_at of every m_i with c_i = sigma_i * inverse into z (n,).

    A compiled function that returns an array is called from Python or from compiled code, never
    from both: numba's cache can load it twice and then return it through the copy that Python does
    not know ("descr is NULL").
    """
    if kind >= LOGISTIC:
        _side_by_side(kind, m, sigma, inverse, z)
    elif kind == PLUS:  # written out, so that the commonest loop uses vector instructions
        for i in range(len(m)):
            z[i] = max(m[i] - sigma[i] * inverse, min(m[i], knot))
    else:
        for i in range(len(m)):
            z[i] = prox_at(kind, knot, width, sigma[i] * inverse, m[i])


def prox_gradients_at(kernel: Kernel, c: Array, m: Array, v: Array) -> Array:
    """d prox / d m at m, v = prox: 0 where z stays at the kink, 1 / (1 + c l''(v)) elsewhere."""
    kind, knot, width = kernel.curve
    if kind == PLUS:
        return np.where((m > knot) & (m - c < knot), 0.0, 1.0)
    if kind == RAMP:
        return np.where((knot < v) & (v < knot + width), 1.0 / (1.0 + c), 1.0)
    if kind == LOGISTIC:
        e = np.exp(-np.abs(v))
        return 1.0 / (1.0 + c * e / (1.0 + e) ** 2)
    return 1.0 / (1.0 + c * np.exp(v)) if kind == EXPONENTIAL else np.ones(len(m))


def losses_of(t: Array, kernel: Kernel) -> Array:
    """l of every entry, (n,)."""
    t, (kind, knot, width) = np.abs(t) if kernel.even else t, kernel.curve
    if kind == LINEAR:
        return t.astype(float)
    if kind == PLUS:
        return np.maximum(0.0, t - knot)
    if kind == RAMP:
        s = np.clip(t - knot, 0.0, width)
        return s * (t - knot) - s * s / 2
    if kind == LOGISTIC:
        return np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t)))
    with np.errstate(over="ignore"):
        return np.exp(t)


@njit(cache=True)
def _gradients(t, kind, knot, width, even):
    out = np.empty_like(t)
    for i in range(len(t)):
        slope = gradient_at(kind, knot, width, abs(t[i]) if even else t[i])
        out[i] = slope if not even else math.copysign(slope, t[i]) if t[i] != 0.0 else 0.0
    return out


def gradients_of(t: Array, kernel: Kernel) -> Array:
    """A gradient of l (of l(|t|) for even losses) at every entry, (n,)."""
    return _gradients(t, *kernel)


def conjugates_of(s: Array, kernel: Kernel) -> Array:
    """l*(s) of every entry of s >= 0, any shape; inf beyond the largest gradient."""
    kind, knot, width = kernel.curve
    if kind == LINEAR:
        return np.where(s == 1.0, 0.0, np.inf)
    if kind == PLUS:
        return np.where(s <= 1.0, s * knot, np.inf)
    if kind == RAMP:
        return np.where(s <= width, s * knot + s * s / 2, np.inf)
    if kind == LOGISTIC:
        inside = np.minimum(s, 1.0)
        return np.where(s <= 1.0, xlogy(inside, inside) + xlog1py(1.0 - inside, -inside), np.inf)
    return xlogy(s, s) - s


# Rank-based proximal steps in one forward pass of the pool adjacent violators algorithm (PAVA).
#
#     minimise over z:  sum_i sigma_i l(z_[i]) + rho / 2 ||z - m||^2
#             z_[1] <= ... <= z_[n], l convex increasing
#
# Sorting m turns it into a chain (Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss
# minimization*, (10)). A block of equal z is the prox of l at the block's mean of m with step c =
# (its sum of sigma) / (rho size). One pass over the sorted m keeps a stack of blocks in order: it
# takes O(n) proxes and is exact for any weights sigma >= 0, monotone or not.
#
# With ``even`` the loss is l(|t|), of residuals: then |m| is sorted and signs pass through. The
# weights of prospect theory change at a reference B: one weight sequence for z <= B, another above;
# ``split_chain`` computes the best of all splits in two passes.


FEW = 4096  # entries whose sort is not worth compiling anything


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


@njit(cache=True, error_model="numpy")
def chain(m, sigma, rho, kind, knot, width, z, start, stop):
    """Write the minimiser for sorted m into z (n,); of its pooled blocks the first and the last
    entry go into start and stop (n,), and their number is returned.

    First every entry is a block, then one pass visits what is out of order: the block there takes
    in its neighbours, left and right, while they are out of order with it. The stack holds pooled
    blocks only; an entry outside them is a block of one.
    """
    n, inverse, most = len(m), 1.0 / rho, 0
    prox_each(kind, knot, width, m, sigma, inverse, z)
    for i in range(1, n):
        most += z[i] < z[i - 1]
    weight, total = np.empty(most), np.empty(most)
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
    for b in range(top + 1):
        v = z[stop[b] - 1]
        for i in range(start[b], stop[b]):
            z[i] = v
    return top + 1


@njit(inline="always")  # so that the sign is known to the compiler
def _costs(m, sigma, rho, kind, knot, width, at, sign):
    """cost[j]: for the sign 1 the least cost of the first j entries of the chain with z <= at.

    For the sign -1 it is that of the last j entries with z >= at. Squares are taken about the means
    of blocks: otherwise far entries would drown the differences between splits.
    """
    n = len(m)
    start, cost = np.empty(n, np.intp), np.empty(n + 1)
    weight, mean, value = np.empty(n), np.empty(n), np.empty(n)  # of a block: sign * z
    scatter = np.empty(n)  # of a block: its sum of squares about its mean
    cost[0], top = 0.0, -1
    for i in range(n):
        row = i if sign > 0.0 else n - 1 - i
        first, k, s, t, square = i, 1, sigma[row], m[row], 0.0
        v = min(sign * prox_at(kind, knot, width, s / rho, t), sign * at)
        while top >= 0 and value[top] > v:
            more, apart = first - start[top], mean[top] - t
            first, k, s = start[top], k + more, s + weight[top]
            t += apart * more / k
            square = square + scatter[top] + apart * apart * (k - more) * more / k
            top -= 1
            v = min(sign * prox_at(kind, knot, width, s / (rho * k), t), sign * at)
        top += 1
        start[top], weight[top], mean[top], scatter[top], value[top] = first, s, t, square, v
        v *= sign
        far = rho / 2 * (k * (v - t) ** 2 + square)
        cost[i + 1] = cost[first] + s * loss_at(kind, knot, width, v) + far
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
    z, start, stop = np.empty(n), np.empty(n, np.intp), np.empty(n, np.intp)
    chain(m[j:], above[j:], rho, kind, knot, width, z[j:], start, stop)
    chain(m[:j], below[:j], rho, kind, knot, width, z[:j], start, stop)
    for i in range(n):
        z[i] = min(z[i], at) if i < j else max(z[i], at)
    return z


# ---- what the problem calls ----------------------------------------------------------------------


def ascending(m: Array) -> NDArray[np.intp]:
    """The order that sorts m, equal entries by position: the same on every machine.

    Of many, one sort of 64-bit keys (the leading bits of the number, then its position) and a pass
    that puts neighbours which differ in the last bits only in order; half the time of an argsort.
    """
    if len(m) < FEW:
        return np.argsort(m, kind="stable")
    keys = _keys(m.view(np.uint64))
    keys.sort()
    order = keys.view(np.intp)
    # else very many entries differ in the last bits only
    return order if _positions(m, keys, order) else np.argsort(m, kind="stable")


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
    # equal weights are the mean: no ranks needed
    if sigma.size and sigma[0] == sigma[-1] and (sigma == sigma[0]).all():
        z = np.empty_like(size)
        prox_each(*kernel.curve, size, sigma, 1 / float(rho), z)
        return RankProx(_signed(z, m, kernel), np.arange(len(m)), none, none)
    order = ascending(size)
    z, (start, stop) = np.empty_like(size), np.empty((2, len(size)), np.intp)
    pooled = chain(size[order], sigma, float(rho), *kernel.curve, z, start, stop)
    placed = np.empty_like(z)
    placed[order] = z
    return RankProx(_signed(placed, m, kernel), order, start[:pooled].copy(), stop[:pooled].copy())


def prospect_prox(
    m: Array, below: Array, above: Array, at: float, rho: float, kernel: Kernel
) -> Array:
    """The same with weights ``below`` for entries <= ``at`` and ``above`` for those beyond.

    ``at`` is in the rank coordinate.
    """
    size, weights = _size(m, kernel), (plain(below), plain(above))
    order, z = ascending(size), np.empty_like(size)
    z[order] = split_chain(size[order], *weights, float(at), float(rho), *kernel.curve)
    return _signed(z, m, kernel)


def _size(m: Array, kernel: Kernel) -> Array:
    """The numbers that the losses increase with: m, or |m| for even losses."""
    return np.abs(plain(m)) if kernel.even else plain(m)


def _signed(z: Array, m: Array, kernel: Kernel) -> Array:
    return np.copysign(z, m) if kernel.even else z


def pooled_ratios(alpha: Array, sigma: Array) -> Array:
    """Isotonic regression of alpha_i / sigma_i with weights sigma_i, for alpha and sigma >= 0 that
    are sorted.

    This is q'* alpha_i / q_i of the best q in the permutahedron of sigma; inf where all has mass
    but no weight. Entries without weight, the first ones, join the first that has some where they
    have mass.
    """
    from scipy.optimize import isotonic_regression  # every process would import it

    free = int(np.searchsorted(sigma, 0.0, side="right"))
    if free == len(sigma):
        return np.where(alpha > 0.0, np.inf, 0.0)
    mass, joined = float(alpha[:free].sum()), alpha[free:].copy()
    joined[0] += mass
    with np.errstate(over="ignore"):
        edges = isotonic_regression(joined / sigma[free:], weights=sigma[free:]).blocks
    # equal sums make ratios that are exactly 1
    blocks = np.add.reduceat(joined, edges[:-1]) / np.add.reduceat(sigma[free:], edges[:-1])
    ratio = np.repeat(blocks, np.diff(edges))
    return np.concatenate([np.full(free, ratio[0] if mass > 0.0 else 0.0), ratio])


def rank_conjugate(alpha: Array, sigma: Array, kernel: Kernel) -> tuple[float, float]:
    """(theta, Omega*(theta alpha)) of Omega(z) = sum_i sigma_i l(z_[i]), sigma nondecreasing.

    theta in [0, 1] is the largest factor that brings alpha into the domain of Omega* (1 up to
    rounding for the multipliers of an ADMM). For even losses only |alpha| counts; for the others
    negative entries count as 0, since Omega* is infinite there: use max(alpha, 0).

    Omega(z) = max over q in the permutahedron of sigma of sum q_i l(z_i), so Omega*(alpha) is the
    least sum q_i l*(alpha_i / q_i): constant ratios on the blocks of an isotonic regression.
    """
    size = np.sort(np.abs(alpha) if kernel.even else np.maximum(alpha, 0.0))
    kind, _, width = kernel.curve
    steepest = width if kind == RAMP else math.inf if kind == EXPONENTIAL else 1.0
    ratio = pooled_ratios(size, sigma)
    largest = float(ratio[-1])
    theta = 0.0 if math.isinf(largest) else min(1.0, steepest / max(largest, 1e-300))
    counts = sigma > 0.0
    # rounding must not carry the steepest block over its limit again
    gradients = np.minimum(theta * ratio[counts], steepest)
    return theta, float(sigma[counts] @ conjugates_of(gradients, kernel))


def prox_gradients(m: Array, sigma: Array, rho: float, kernel: Kernel, prox: RankProx) -> Array:
    """By rank (n,), the derivative p of each block's value in the block's mean of m.

    So an element of the generalised Jacobian of ``rank_prox`` is block diagonal: p / k 1 1' for
    every block of k ranks (for even losses between the signs of m).
    """
    m, z = (_size(v, kernel)[prox.order] for v in (m, prox.z))
    c = sigma / rho
    gradient = prox_gradients_at(kernel, c, m, z)
    if len(prox.start):
        k = prox.stop - prox.start
        edges = np.column_stack([prox.start, prox.stop]).ravel()
        edges = edges[:-1] if edges[-1] == len(m) else edges
        step, mean = (np.add.reduceat(v, edges)[::2] / k for v in (c, m))
        of_blocks = prox_gradients_at(kernel, step, mean, z[prox.start])
        inside = np.repeat(prox.start - np.cumsum(k) + k, k) + np.arange(k.sum())
        gradient[inside] = np.repeat(of_blocks, k)
    return gradient
