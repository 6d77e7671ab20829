"""Worst cases and projections over balls round a point c of the simplex that a divergence measures:
Kullback-Leibler, chi-square as an axis-aligned ellipsoid, and ellipsoids with any axes.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import Index, Model
from bonafed.solvers.sets.projections import EPS, Falling, Worst, at_prior, project_simplex, scaled

# Worst cases and projections over a Kullback-Leibler ball around a point c of the simplex.
#
#     Q = {q >= 0, sum q = 1, sum_i q_i log(q_i / c_i) <= r},      r >= 0;  c_i = 0 forces q_i = 0
#
#     largest(z)  q = c exp(s z) / Z,  Z = sum c exp(s z);
#             s is the root of KL(s) = s <q, z> - log Z = r,
#                     and for every s > 0  max z'q <= (r + log Z) / s.
#                             KL(s) rises to -log c(argmax z): where r is
#                     at least that, q is c conditioned on the argmax
#     nearest(x)  q + k log(q / c) = x + g
#             with multipliers g of sum q = 1 and k >= 0 of the ball, so that
#                     q = k W((x + g) / k + log(c / k)),  W(y) + log W(y) = y;  the divergence falls
#                     as k grows
#
# The projection needs two nested scalar roots, the maximum one. No function here changes its
# arguments.


TINY = 1e-300
NOISE = 64 * EPS
FAR = 1e-30  # a multiplier so small that it counts as 0
A_POINT = 1e-40  # a ball of this radius is its centre
CLOSE = 1e-9  # from here one Newton step ends at rounding
# the coefficients (k - 1) / k! of the series below, in falling powers
EXCESS = np.array([1 / 5760, 1 / 840, 1 / 144, 1 / 30, 1 / 8, 1 / 3, 1 / 2])


def divergence(q: Array, prior: Array) -> float:
    """The Kullback-Leibler divergence sum q log(q / prior) - q + prior >= 0; inf off the prior.

    It is accurate to a relative error even where q is close to the prior.
    """
    inside = prior > 0
    if not inside.all():
        return math.inf if q[~inside].any() else divergence(q[inside], prior[inside])
    with np.errstate(divide="ignore"):
        ratio = np.log1p((q - prior) / prior)
    return float(prior @ _excess(np.maximum(ratio, -750.0)))


def _excess(x: Array) -> Array:
    """x e^x - e^x + 1, by its power series where the terms cancel."""
    small = np.abs(x) < 0.03
    if small.all():
        return x * x * np.polyval(EXCESS, x)
    whole = x * np.exp(x) - np.expm1(x)
    return np.where(small, x * x * np.polyval(EXCESS, np.where(small, x, 0.0)), whole)


def largest_in_entropy_ball(z: Array, prior: Array, radius: float) -> Worst:
    """A maximiser of z'q over Q, and an upper bound that holds by duality, rounding included.

    All arrays are (N,).
    """
    inside = prior > 0
    if not inside.all():
        part, bound = largest_in_entropy_ball(z[inside], prior[inside], radius)
        return _spread(part, inside), bound
    scale = scaled(z)
    if radius <= A_POINT or scale.spread == 0:
        return at_prior(z, prior, math.sqrt(radius / 2) * scale.spread)  # by Pinsker's inequality
    at_top = scale.z == 0
    share, rest = float(prior[at_top].sum()), float(prior[~at_top].sum())
    most = math.log1p(rest / share)  # the divergence of the prior given the argmax
    if radius >= most:
        return np.where(at_top, prior / share, 0.0), scale.bound(0.0)
    # q ~ prior exp(s z) with divergence ``radius`` below its limit ``most``; z runs from -1 to 0
    z, odds = scale.z, rest / share

    def excess(log_s: float) -> tuple[float, float]:
        s = math.exp(log_s)
        q, _, size = _tilt(z, prior, s)
        bend = s * s * float(q @ (z - float(q @ z)) ** 2)
        left = most - size
        if size <= radius or 2 * radius < most or left <= 0:
            return math.log(radius / max(size, TINY)), -bend / max(size, TINY)
        # towards the limit log(left) is nearly affine in s: Newton in s
        value = math.log(left / (most - radius))
        step = math.log1p(value * left / bend) if -bend < value * left else 0.0
        return value, -value / step if step < 0 else -bend / left

    # KL(s) <= s^2 / 8 below; above, most - KL(s) <= odds (1 + t) e^-t with t = s gap and 1 + t <= 2
    # e^(t/2)
    gap = -float(z[z < 0].max())
    lo = 0.5 * math.log(8 * radius) - 1e-6
    hi = max(math.log(2 * max(math.log(2 * odds / (most - radius)), 1.0) / gap), lo + 1.0)
    deviation = math.sqrt(float(prior @ (z - float(prior @ z)) ** 2))
    start = 0.5 * math.log(2 * radius) - math.log(max(deviation, TINY))
    s = math.exp(newton_root(excess, lo, hi, start, CLOSE))
    q, log_mass, _ = _tilt(z, prior, s)
    level = (radius + log_mass) / s
    return q, scale.bound(level, 1 + abs(level))


def newton_root(f: Falling, lo: float, hi: float, start: float, close: float) -> float:
    """The root in [lo, hi] of a decreasing smooth f that gives (value, gradient).

    Newton's method inside the bracket, bisection where |f| did not halve; where |f| <= ``close``
    one last step of Newton's ends at rounding.
    """
    x, before = min(max(start, lo), hi), math.inf
    for _ in range(300):
        value, gradient = f(x)
        lo, hi = (x, hi) if value > 0 else (lo, x)
        new = x - value / gradient if gradient < 0 else math.nan
        if abs(value) <= close or (abs(value) <= 1e-3 and abs(new - x) <= 2 * EPS * abs(x)):
            return min(max(new, lo), hi) if gradient < 0 else x
        if hi - lo <= 4 * EPS * max(abs(lo), abs(hi)):
            break
        good = lo < new < hi and abs(value) <= 0.5 * before
        x, before = (new if good else _middle(lo, hi)), abs(value)
    return x


def _middle(lo: float, hi: float) -> float:
    """The middle of a bracket; the geometric mean where it spans several magnitudes."""
    return math.sqrt(lo) * math.sqrt(hi) if 0 < 100 * lo < hi else lo + (hi - lo) / 2


def _tilt(z: Array, prior: Array, s: float) -> tuple[Array, float, float]:
    """q = prior exp(s z) / Z, log Z and the divergence."""
    if s < 0.1:
        log_mass = math.log1p(float(prior @ np.expm1(s * z)))
        x = s * z - log_mass
        return prior * np.exp(x), log_mass, float(prior @ _excess(x))
    q = prior * np.exp(s * z)
    mass = float(q.sum())
    q /= mass
    log_mass, gain = math.log(mass), s * float(q @ z)
    if gain - log_mass > 1e-4 * abs(gain):
        return q, log_mass, gain - log_mass
    # gain and log_mass nearly cancel
    return q, log_mass, float(prior @ _excess(np.maximum(s * z - log_mass, -750.0)))


def project_entropy_ball(x: Array, prior: Array, radius: float) -> Array:
    """The nearest point of Q; arrays (N,)."""
    inside = prior > 0
    if not inside.all():
        return _spread(project_entropy_ball(x[inside], prior[inside], radius), inside)
    free = project_simplex(x)
    if radius <= A_POINT or len(x) == 1:
        return prior.copy()
    if divergence(free, prior) <= radius:
        return free
    return _nearest(x - x.max(), prior, radius)


def _nearest(z: Array, prior: Array, radius: float) -> Array:
    """The projection by nested roots: the level g inside, the ball's multiplier k outside."""
    from scipy.special import wrightomega

    log_prior = np.log(prior)
    lo, hi = float((prior - z).min()), float((prior - z).max())
    at = level = slope = math.nan  # the last k with its g and dg/dk

    def answer(k: float) -> tuple[Array, Array]:
        """The weights q for the multiplier k, and log(q / prior)."""
        nonlocal at, level
        shift = log_prior - math.log(k)

        def excess(g: float) -> tuple[float, float]:
            w = wrightomega((z + g) / k + shift)
            mass = max(k * float(w.sum()), TINY)
            return -math.log(mass), -float((w / (1 + w)).sum()) / mass

        start = level + slope * (k - at)
        start = start if math.isfinite(start) else 0.5 * (lo + hi)
        g = newton_root(excess, lo, hi, start, max(CLOSE * min(1.0, k), NOISE))
        at, level = k, g
        q = k * wrightomega((z + g) / k + shift)
        ratio = (z + g - q) / k if k >= 1 else np.log(np.maximum(q, TINY)) - log_prior
        return q, np.maximum(ratio, -750.0)

    def excess(k: float) -> tuple[float, float]:
        """1 - sqrt(radius / divergence), nearly affine in k everywhere, and its derivative."""
        nonlocal slope
        q, ratio = answer(k)
        size, share = max(float(prior @ _excess(ratio)), TINY), q / (q + k)
        slope = float(share @ ratio) / float(share.sum())
        root = math.sqrt(radius / size)
        return 1 - root, -root * float(share @ (ratio - slope) ** 2) / (2 * size)

    # |log(q / c)| <= e = (spread + 1) / k, and then KL <= e^2 / 8
    most = (float(np.ptp(z)) + 1) / math.sqrt(8 * radius) * (1 + 1e-6)
    k = newton_root(excess, FAR * most, most, most / 2, CLOSE)
    q, ratio = answer(k)
    q = prior * np.exp(ratio) if k >= 1 else q
    return q / q.sum()


def _spread(part: Array, inside: NDArray[np.bool_]) -> Array:
    q = np.zeros(len(inside))
    q[inside] = part
    return q


# Worst cases and projections over an axis-aligned ellipsoid around a point c of the simplex.
#
#     Q = {q >= 0, sum q = 1, sum_i (q_i - c_i)^2 / s_i <= r},     s > 0, r >= 0
#
#     largest(z):  max_{q in Q} z'q  =  min over g and y >= z - g of  g + c'y + sqrt(r sum s y^2)
#             (any g, y: a bound)
#     nearest(x):     argmin_{q in Q} ||q - x||
#
# With d = q - c, the maximiser is d = max(t s (z - g), -c). Entries that reach zero stay there as t
# grows, and while the positive entries are fixed sum d^2 / s is affine in t^2, so the iteration is
# finite. The nearest point for the ellipsoid's multiplier k >= 0 is d = max(s (x + g - c) / (s +
# k), -c), where g is the root of a convex piecewise linear function and k that of a smooth
# decreasing one. s = 1 gives the ball of the 2-norm, s = c the chi-square ball (restrict to the
# support of c first).

NONE = 1e-20  # an ellipsoid of this size is its centre


def length(v: Array) -> float:
    """||v||_2 without overflow or underflow."""
    top = float(np.abs(v).max(initial=0.0))
    return top * math.sqrt(float(((v / top) ** 2).sum())) if 0 < top < math.inf else top


class Axes(NamedTuple):
    """The shape S in its unit, its inverse P, and W with P = W'W; ``axes`` computes them."""

    S: Array
    P: Array
    W: Array
    unit: float  # S times this is the user's shape

    def norm(self, d: Array) -> float:
        """sqrt(d'P d) in this unit."""
        return float(np.linalg.norm(self.W @ d))


def off_ellipsoid(d: Array, shape: Array | Axes, radius: float) -> float:
    """How far c + d lies outside the ellipsoid, entry by entry at most; 0 inside.

    The distance is to the boundary point on the segment from c + d to c.
    """
    if isinstance(shape, Axes):
        norm, size = shape.norm(d), math.sqrt(radius) * math.sqrt(shape.unit)
    else:
        norm, size = length(d / np.sqrt(shape)), math.sqrt(radius)
    return (1 - size / norm) * float(np.abs(d).max()) if norm > size else 0.0


def largest_in_ellipsoid(z: Array, prior: Array, shape: Array, radius: float) -> Worst:
    """A maximiser of z'q over Q, and an upper bound that holds by duality, rounding included.

    All arrays are (N,). Of several maximisers it is the one nearest to the prior in the ellipsoid's
    norm.
    """
    scale, unit = scaled(z), float(shape.max())
    size, shape = math.sqrt(radius) * math.sqrt(unit), shape / unit
    if size <= NONE or scale.spread == 0:
        return at_prior(z, prior, size * math.sqrt(float(shape.sum())) * scale.spread)
    # entries within any rounding of the largest count as equal to it
    z, root = np.where(scale.z > -1e-100, 0.0, scale.z), np.sqrt(shape)
    at_top = z == 0
    room = np.where(at_top, shape, 0.0)
    corner = np.where(at_top, float(prior[~at_top].sum()) * (room / room.sum()), -prior)
    if length(corner / root) <= size:
        return _inside(prior, corner, shape, 1.0), scale.bound(0.0)
    d, level, y = _arc(z, prior, shape, size)
    linear, ball = float(prior @ y), size * length(y * root)
    q = _inside(prior, d, shape, size / length(d / root))
    return q, scale.bound(level + linear + ball, abs(level) + float(prior @ np.abs(y)) + ball)


def _arc(z: Array, prior: Array, shape: Array, size: float) -> tuple[Array, float, Array]:
    """The move d of norm ``size``, the level g and the dual y.

    Newton's method in t^2, started from the left, ends after finitely many steps.
    """
    root, active = np.sqrt(shape), np.arange(len(z))
    step = size / length(root * _centred(z, shape)[1])
    removed = outside = 0.0  # sum and squared norm of the prior where q is zero
    while True:
        while True:
            ca, sa = prior[active], shape[active]
            mass = float(sa.sum())
            mean, za = _centred(z[active], sa)
            lost = removed / mass
            kept = ca + sa * (step * za + lost) > 0
            if kept.all():
                break
            out = active[~kept]
            removed += float(prior[out].sum())
            outside += length(prior[out] / root[out]) ** 2
            active = active[kept]
        variance = float(sa @ za**2)
        room = size**2 - outside - mass * lost**2
        new = math.sqrt(max(room, 0.0)) / math.sqrt(variance) if variance > 0 else step
        if not step * (1 + 4 * EPS) < new < math.inf:
            break
        step = new
    d = -prior
    d[active] = sa * (step * za + lost)
    level = float(mean - lost / step)
    with np.errstate(over="ignore"):
        most = np.divide(prior, shape * step, out=np.full(len(z), np.inf), where=shape * step > 0)
    return d, level, np.maximum(z - level, -most)


def project_ellipsoid(x: Array, prior: Array, shape: Array, radius: float) -> Array:
    """The nearest point of Q; arrays (N,)."""
    free, unit = project_simplex(x), float(shape.max())
    size, shape = math.sqrt(radius) * math.sqrt(unit), shape / unit
    root = np.sqrt(shape)
    if size <= NONE or len(x) == 1:
        return prior.copy()
    if length((free - prior) / root) <= size:
        return free
    z = (x - x.max()) - prior
    mean, centred = _centred(z, shape)
    most = length(root * centred) / size * (1 + 1e-6)  # ||d|| <= ||z - mean|| / k, for any mean
    level = [-mean]

    def answer(k: float) -> tuple[Array, Array]:
        share = shape / (shape + k)
        d, level[0] = _level(z, prior, share, level[0])
        return d, share

    # 1 - size / ||d|| is nearly affine in k, close to the root as well as far from it
    def excess(k: float) -> tuple[float, float]:
        d, share = answer(k)
        free, norm = d > -prior, max(length(d / root), TINY)
        weight = np.where(free, 1 / (shape + k), 0.0)
        pull = (float(weight @ (d / root / norm) ** 2), float(weight @ d) / norm)
        fall = pull[0] - pull[1] ** 2 / max(float(share[free].sum()), TINY)
        return 1 - size / norm, -size * max(fall, 0.0) / norm

    d = answer(newton_root(excess, FAR * most, most, most / 2, CLOSE))[0]
    return _inside(prior, d, shape, size / length(d / root))


def _level(z: Array, prior: Array, share: Array, start: float) -> Worst:
    """d = max(share (z + g), -prior) with sum 0, and its level g.

    g is found by Newton's method on a convex increasing piecewise linear function.
    """
    g = start
    for _ in range(200):
        d = np.maximum(share * (z + g), -prior)
        gradient = float(share[d > -prior].sum())
        if gradient == 0:  # every entry of q is 0: go to where the first one leaves it
            g = float((-prior / share - z).min()) + 1 / float(share.sum())
            continue
        new = g - float(d.sum()) / gradient
        if abs(new - g) <= 4 * EPS * abs(g):
            break
        g = new
    excess = float(d.sum()) / max(gradient, TINY)
    return np.maximum(d - np.where(d > -prior, share, 0.0) * excess, -prior), g


def _centred(z: Array, weight: Array) -> tuple[float, Array]:
    """The weighted mean of z, and z minus it.

    The mean is subtracted twice, so that entries of large weight near the mean keep their digits.
    """
    mean = float(weight @ z) / float(weight.sum())
    z = z - mean
    return mean, z - float(weight @ z) / float(weight.sum())


def _inside(prior: Array, d: Array, shape: Array, factor: float) -> Array:
    """prior + d, moved back into the ellipsoid and the simplex after rounding.

    What the sum misses is distributed in proportion to the shape.
    """
    q = np.maximum(prior + d * min(1.0, factor), 0.0)
    room = np.where(q > 0, shape, 0.0)
    return np.maximum(q + room * ((1 - float(q.sum())) / float(room.sum())), 0.0)


# Worst cases and projections over an ellipsoid with any axes around a point c of the simplex.
#
#     Q = {q >= 0, sum q = 1, (q - c)' P (q - c) <= r},      P = S^-1, S positive definite, r >= 0
#
#     largest(z):  max_{q in Q} z'q  =  min over g and y >= z - g of  g + c'y + sqrt(r y'S y)
#             (any g, y: a bound)
#     nearest(x):     argmin_{q in Q} ||q - x||
#
# Once it is known where q = 0, both are explicit in d = q - c: on the rest P d = t (z - g) for the
# largest, where the squared norm of d is affine in t^2, and d + k P d = x - c + g for the nearest,
# with one scalar root in k after an eigendecomposition. The zeros of q come from an active set
# method: entries below 0 join, entries whose multiplier is negative leave, until all signs are
# right. It starts from no zeros, then from the solution of a conic program. Where neither settles,
# that solution is moved into Q. The bound holds in every case.

Flags = NDArray[np.bool_]
SIGN = 1e-12  # relative size of a number below which its sign says nothing


class Point(NamedTuple):
    """A candidate d = q - c on a face: the multipliers of q >= 0, their scale, and a dual point.

    ``scale`` is the size of the numbers that each multiplier is the difference of.
    """

    d: Array
    multiplier: Array
    scale: Array
    y: Array
    g: float


Face = Callable[[Flags], Point | None]  # of where q > 0; None where Q has no point there


def axes(shape: Array) -> Axes:
    """The factors of a symmetric positive definite matrix; ``LinAlgError`` where it is not."""
    from scipy.linalg import solve_triangular

    unit = float(np.abs(shape).max())
    S = (shape + shape.T) / (2 * unit)
    W = solve_triangular(np.linalg.cholesky(S), np.eye(len(S)), lower=True)
    return Axes(S, W.T @ W, W, unit)


def largest_in_axes(z: Array, prior: Array, axes: Axes, radius: float) -> Worst:
    """A maximiser of z'q over Q, and an upper bound that holds by duality, rounding included.

    All arrays are (N,).
    """
    scale, size = scaled(z), math.sqrt(radius) * math.sqrt(axes.unit)
    if size <= NONE or scale.spread == 0:
        return at_prior(z, prior, size * math.sqrt(float(axes.S.trace())) * scale.spread)
    z = np.where(scale.z > -1e-100, 0.0, scale.z)
    corner = _corner(z == 0, prior, axes)
    if axes.norm(corner - prior) <= size:
        return corner, scale.bound(0.0)
    best, value, bound = prior, float(prior @ z), math.inf
    for q, y, g in _candidates(z, prior, axes, size):
        y = np.maximum(y, z - g)
        linear, ball = float(prior @ y), size * math.sqrt(float(y @ axes.S @ y))
        rounding = 32 * EPS * (abs(g) + float(prior @ np.abs(y)) + ball)
        bound = min(bound, g + linear + ball + rounding)
        if float(q @ z) > value:
            best, value = q, float(q @ z)
        if bound - value <= 1e-13 * (1 + abs(g) + ball):
            break
    return best, scale.bound(bound, 1.0)


def project_axes(x: Array, prior: Array, axes: Axes, radius: float) -> Array:
    """The nearest point of Q; arrays (N,)."""
    free, size = project_simplex(x), math.sqrt(radius) * math.sqrt(axes.unit)
    if size <= NONE or len(x) == 1:
        return prior.copy()
    if axes.norm(free - prior) <= size:
        return free
    aim, q = (x - x.max()) - prior, prior

    def face(positive: Flags) -> Point | None:
        return _nearest_on(positive, aim, prior, axes, size)

    point = _settle(face, np.ones(len(x), bool), prior)
    if point is None:
        model, unit = Model(), max(1.0, float(np.abs(aim).max()))
        d = _move(model, prior, axes, size)[0]
        model.quadratic(d, 1 / unit)
        model.linear(d, -aim / unit)
        q = prior + model.solve().checked("the projection on an ellipsoid").x[d]
        point = _settle(face, q > 1e-7, prior)
    return _inside_axes(prior, q - prior if point is None else point.d, axes, size)


# -- where q is zero -------------------------------------------------------------------------------


def _settle(face: Face, positive: Flags, prior: Array, always: Flags | None = None) -> Point | None:
    """The point with all signs right, from a guess of where q > 0; None where the guesses cycle."""
    tried = set()
    while positive.any() and positive.tobytes() not in tried:
        tried.add(positive.tobytes())
        point = face(positive)
        if point is None:
            return None
        below = positive & (prior + point.d < -SIGN * np.abs(point.d).max())
        back = ~positive & (point.multiplier < -SIGN * point.scale)
        if always is not None:
            back &= ~always
        if not below.any() and not back.any():
            return point
        positive = (positive & ~below) | back
    return None


def _candidates(
    z: Array, prior: Array, axes: Axes, size: float
) -> Iterator[tuple[Array, Array, float]]:
    """Members of Q, each with a dual point, the cheapest first."""

    def face(positive: Flags) -> Point | None:
        # d = base + t w: base is the point of the face nearest to c, w the direction along it in
        # which z grows fastest
        pair = _base(positive, z, prior, axes)
        if pair is None:
            return None
        base, w = pair
        bend, room = axes.norm(w), size**2 - axes.norm(base) ** 2
        if room <= 0 or bend == 0:
            return None
        t = math.sqrt(room) / bend
        y = axes.P @ (base / t + w)
        g = float((z - y)[positive].mean())
        scale = np.abs(y) + np.abs(z) + abs(g)
        return Point(base + t * w, y - (z - g), scale, np.where(positive, z - g, y), g)

    point = _settle(face, np.ones(len(z), bool), prior)
    if point is not None:
        yield _inside_axes(prior, point.d, axes, size), point.y, point.g
    model = Model()
    d, level, cone = _move(model, prior, axes, size)
    model.linear(d, -z)
    solution = model.solve().checked("the largest loss over an ellipsoid")
    q, y = prior + solution.x[d], -axes.W.T @ solution.z[cone][1:]
    g = -float(solution.z[level][0])
    point = _settle(face, q > 1e-7, prior)
    if point is not None:
        yield _inside_axes(prior, point.d, axes, size), point.y, point.g
    yield _inside_axes(prior, q - prior, axes, size), y, g


def _base(positive: Flags, z: Array, prior: Array, axes: Axes) -> tuple[Array, Array] | None:
    from scipy.linalg import cho_factor, cho_solve

    base, w = np.where(positive, 0.0, -prior), np.zeros(len(z))
    right = np.stack([-(axes.P @ base)[positive], np.ones(int(positive.sum())), z[positive]], 1)
    solved = axes.S @ right if positive.all() else None
    try:
        if solved is None:
            solved = cho_solve(cho_factor(axes.P[np.ix_(positive, positive)]), right)
    except np.linalg.LinAlgError:
        return None
    start, ones, along = solved.T
    ones = ones / float(ones.sum())
    base[positive] = start - (float(base.sum()) + float(start.sum())) * ones
    w[positive] = along - float(along.sum()) * ones
    return base, w


def _corner(at_top: Flags, prior: Array, axes: Axes) -> Array:
    """The nearest point to c, in the ellipsoid's norm, with all weight on the largest losses."""
    if at_top.sum() == 1:
        return at_top.astype(float)

    def face(positive: Flags) -> Point | None:
        pair = _base(positive, np.zeros(len(prior)), prior, axes)
        if pair is None:
            return None
        pull = axes.P @ pair[0]
        level = float(pull[positive].mean())
        return Point(pair[0], pull - level, np.abs(pull) + abs(level), pull, level)

    point, q = _settle(face, at_top, prior, ~at_top), prior
    if point is None:
        model = Model()
        d, t = model.variable(len(prior)), model.variable()
        model.linear(t, 1.0)
        model.zero([(d, np.ones((1, len(d))))])
        model.zero([(d[~at_top], 1.0), prior[~at_top]])
        model.nonneg([(d[at_top], 1.0), prior[at_top]])
        model.soc([(t, 1.0)], [(d, axes.W)])
        q = prior + model.solve().checked("the largest losses in an ellipsoid").x[d]
        point = _settle(face, at_top & (q > 1e-7), prior, ~at_top)
    q = q if point is None else prior + point.d
    q = np.where(at_top, np.maximum(q, 0.0), 0.0)
    return q / q.sum()


def _nearest_on(positive: Flags, aim: Array, prior: Array, axes: Axes, size: float) -> Point | None:
    """The nearest point on a face: d + k P d = aim + g in the eigenvectors of P, k from ||d||."""
    pair = _base(positive, aim, prior, axes)
    if pair is None or axes.norm(pair[0]) >= size:
        return None
    d = np.where(positive, 0.0, -prior)
    values, vectors = np.linalg.eigh(axes.P[np.ix_(positive, positive)])
    goal, pull = vectors.T @ aim[positive], vectors.T @ (axes.P @ d)[positive]
    ones, total, rest = vectors.sum(0), float(d.sum()), axes.norm(d) ** 2

    def answer(k: float) -> tuple[Array, Array, float]:
        share = 1 / (1 + k * values)
        part = share * (goal - k * pull)
        g = -(total + float(ones @ part)) / float(share @ ones**2)
        return part + g * share * ones, share, g

    # 1 - size / ||d|| is nearly affine in k, close to the root as well as far from it
    def excess(k: float) -> tuple[float, float]:
        part, share, _ = answer(k)
        square = max(rest + float(part @ (values * part)) + 2 * float(part @ pull), TINY)
        gradient = values * part + pull
        across = float(share @ (ones * gradient)) ** 2 / float(share @ ones**2)
        fall = float(share @ gradient**2) - across
        return 1 - size / math.sqrt(square), -size * max(fall, 0.0) / square**1.5

    # with base the nearest point of the face, ||d - base||_P <= sqrt(trace S) ||aim - base|| / k
    far = math.sqrt(float(axes.S.trace()) / (size**2 - axes.norm(pair[0]) ** 2))
    most = far * (float(np.linalg.norm(aim)) + 2) * (1 + 1e-6)
    k = newton_root(excess, FAR * most, most, most / 2, CLOSE)
    part, _, g = answer(k)
    d[positive] = vectors @ part
    pull = k * (axes.P @ d)
    return Point(d, d + pull - aim - g, np.abs(d) + np.abs(pull) + np.abs(aim) + abs(g), aim, g)


def _move(model: Model, prior: Array, axes: Axes, size: float) -> tuple[Index, slice, slice]:
    """Add a move d from the prior within Q; also returns the duals of its sum and its norm."""
    d = model.variable(len(prior))
    level = model.zero([(d, np.ones((1, len(d))))])
    model.nonneg([(d, 1.0), prior])
    return d, level, model.soc([np.array([size])], [(d, axes.W)])


def _inside_axes(prior: Array, d: Array, axes: Axes, size: float) -> Array:
    """prior + d, back inside the simplex and the ellipsoid after rounding."""
    q = np.maximum(prior + d, 0.0)
    q = q / q.sum()
    norm = axes.norm(q - prior)
    return np.maximum(prior + (q - prior) * (size / norm), 0.0) if norm > size else q
