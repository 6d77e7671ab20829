"""Worst cases and projections over the simplex and over lp-balls around a point c of it.

    Q = {q >= 0, sum q = 1, ||q - c||_p <= r},      p in [1, inf], r >= 0

    largest(z):  max_{q in Q} z'q  =  min over g and y >= z - g of  g + c'y + r ||y||_{p*}
            (any g, y: a bound)
    nearest(x):     argmin_{q in Q} ||q - x||

Both are written in d = q - c. With multipliers g (of sum d = 0) and k >= 0 (of the ball), optimal d
satisfy

    e d_i + k sign(d_i) (|d_i| / r)^(p-1) = z_i - g,  or d_i = -c_i if that is larger;
            e = 0 largest, e = 1 nearest

so p = 1 and p = inf need a greedy fill or a clipping level, p = 2 a point of the arc
Proj_simplex(c + s z), and every other p two nested scalar roots, whose relative accuracy in q falls
to about eps / (p - 1) as p goes to 1 (the bound holds all the same). ``total`` is the sum that the
entries must have. No function here changes its arguments.
"""

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bonafed.arrays import Array, compact

EPS = float(np.finfo(float).eps)
Falling = Callable[[float], tuple[float, float]]  # a decreasing function: value and gradient
Worst = tuple[Array, float]  # weights of largest z'q, and an upper bound


def dual_exponent(p: float) -> float:
    """p* with 1/p + 1/p* = 1, for p in [1, inf]."""
    if not p >= 1:
        raise ValueError(
            f"p must be in [1, inf], got {p}: below 1 it is not a norm. Use 1, 2 or float('inf')."
        )
    return math.inf if p == 1 else 1.0 if math.isinf(p) else p / (p - 1)


def lp_norm(v: Array, p: float) -> float:
    """``||v||_p`` of a vector, without overflow or underflow."""
    top = float(np.abs(v).max(initial=0.0))
    if top == 0 or math.isinf(p):
        return top
    if p == 1:
        return float(np.abs(v).sum())
    return top * float(((np.abs(v) / top) ** p).sum()) ** (1 / p)


def soft_threshold(v: Array, level: float | Array) -> Array:
    """sign(v) max(|v| - level, 0), the prox of level * ||.||_1."""
    return np.sign(v) * np.maximum(np.abs(v) - level, 0.0)


def project_simplex(v: Array, total: float = 1.0) -> Array:
    """The nearest point of {q >= 0, sum q = total}, total > 0: q = max(v - g, 0)."""
    from bonafed.solvers.sets.simplex_kernel import onto_simplex

    return onto_simplex(compact(_finite(v)), float(total))


def project_under_caps(v: Array, caps: Array) -> Array:
    """The nearest point of {0 <= q <= caps, sum q = 1}; caps (N,) >= 0 with a sum >= 1."""
    least = np.zeros_like(caps)
    return caps.copy() if caps.sum() <= 1 else clip_to_sum(_finite(v), least, caps, 1.0)


def largest_under_caps(z: Array, caps: Array) -> Worst:
    """A maximiser of z'q over {0 <= q <= caps, sum q = 1}, and an upper bound.

    The bound is t + caps'max(z - t, 0), which holds for any t. The largest entries are filled
    first; equal ones share in proportion to their caps.
    """
    q, level = fill(_finite(z), caps, 1.0)
    over = float(caps @ np.maximum(z - level, 0.0))
    return q, level + over + 32 * EPS * (abs(level) + over)


def project_lp_unit_ball(v: Array, p: float) -> Array:
    """The nearest point of {||d||_p <= 1}, p in [1, inf]; entries keep their signs."""
    dual_exponent(p)
    if lp_norm(_finite(v), p) <= 1:
        return v.astype(float)
    if p == 1:
        return np.sign(v) * project_simplex(np.abs(v))
    if math.isinf(p):
        return np.clip(v, -1.0, 1.0)
    if p == 2:
        return v / lp_norm(v, 2)
    response = lambda multiplier: _response(v, multiplier, 1.0, p, 1.0)[0]  # noqa: E731
    largest = float(np.abs(v).max()) * v.size
    d = response(_multiplier(lambda multiplier: lp_norm(response(multiplier), p), 1.0, largest))
    return d / max(lp_norm(d, p), 1.0)


def project_lp_ball(x: Array, prior: Array, radius: float, p: float) -> Array:
    """The nearest point of Q round ``prior`` (N,), a point of the simplex."""
    free = project_simplex(x)
    if radius == 0:
        return prior.copy()
    if lp_norm(free - prior, p) <= radius:
        return free
    if math.isinf(p):
        return clip_to_sum(x, np.maximum(prior - radius, 0.0), prior + radius, 1.0)
    z = (x - x.max()) - prior
    z = z - z.max()
    if p == 1:  # half the radius is received above one level, half is given below another
        received = project_simplex(z, radius / 2)
        return prior + received - clip_to_sum(-z, np.zeros_like(z), prior, radius / 2)
    d = _arc(z, prior, radius)[0] if p == 2 else _nested(z, prior, radius, p, 1.0)[0]
    return _finish(prior, d, radius, p)


def largest_over_lp_ball(z: Array, prior: Array, radius: float, p: float) -> Worst:
    """A maximiser of z'q over Q, and an upper bound that holds by duality, rounding included.

    Ties are shared, so equal entries of z get equal treatment. The arrays are (N,).
    """
    if radius == 0:
        return at_prior(_finite(z), prior)
    scale = scaled(_finite(z))
    if scale.spread == 0:
        return at_prior(z, prior)
    z = scale.z
    at_top = z == 0
    # all weight on the largest entries
    corner = np.where(at_top, (1 - prior[at_top].sum()) / at_top.sum(), -prior)
    if lp_norm(corner, p) <= radius:
        return np.maximum(prior + corner, 0.0), scale.bound(0.0)
    if p == 1:
        # move radius / 2 from the smallest entries to the largest; the dual has z.max = g + k and
        # marginal donor = g - k
        moved, donor = fill(-z, np.where(at_top, 0.0, prior), radius / 2)
        d = np.where(at_top, moved.sum() / at_top.sum(), -moved)
        level, y = -donor / 2, np.maximum(z + donor / 2, -donor / 2)
    elif math.isinf(p):
        # fill from max(c - r, 0) up to c + r, the largest entries first; g is the marginal entry
        low = np.maximum(prior - radius, 0.0)
        gained, level = fill(z, prior + radius - low, float((prior - low).sum()))
        y = z - level
        d, y = low - prior + gained, np.where((y < 0) & (prior <= radius), 0.0, y)
    elif p == 2:
        d, level, y = _arc(z, prior, radius, sys.float_info.max)
    else:
        d, level, y = _nested(z, prior, radius, p, 0.0)
    linear, ball = float(prior @ y), radius * lp_norm(y, dual_exponent(p))
    size = abs(level) + float(prior @ np.abs(y)) + ball
    return _finish(prior, d, radius, p), scale.bound(level + linear + ball, size)


class Scaled(NamedTuple):
    """Losses written as top + spread * z with z in [-1, 0]."""

    top: float
    spread: float
    z: Array

    def bound(self, value: float, size: float = 0.0) -> float:
        """The bound on q'losses that follows from one on q'z, rounding included.

        ``size`` is the size of the numbers that were added up.
        """
        return self.top + self.spread * value + 32 * EPS * (abs(self.top) + self.spread * size)


def scaled(losses: Array) -> Scaled:
    """Losses relative to the largest; ``ValueError`` where their differences overflow."""
    top = float(losses.max())
    spread = top - float(losses.min())
    if math.isinf(spread):
        raise ValueError(
            "losses must differ by less than the largest floating-point number. Rescale them."
        )
    return Scaled(top, spread, (losses - top) / spread if spread > 0 else np.zeros_like(losses))


def at_prior(losses: Array, prior: Array, far: float = 0.0) -> Worst:
    """The prior as the maximiser, and its bound: other members gain at most ``far``."""
    top = float(losses.max())
    mean = float(prior @ (losses - top))
    return prior.copy(), top + mean * (1 - 32 * EPS) + 32 * EPS * abs(top) + far


def fill(score: Array, room: Array, amount: float) -> Worst:
    """Fill ``room`` with ``amount``, the highest scores first; returns it and the marginal score.

    Ties share in proportion to their room.
    """
    level = marginal(score, room, amount)
    above, tied = score > level, score == level
    left = amount - float(room[above].sum())
    return room * (above + tied * fraction(left, float(room[tied].sum()))), level


def marginal(score: Array, room: Array, amount: float) -> float:
    """The score at which ``amount`` is used up when the highest scores are filled first."""
    order = np.argsort(-score, kind="stable")
    place = int(np.searchsorted(np.cumsum(room[order]), amount))
    return float(score[order[min(place, len(order) - 1)]])


def fraction(amount: float, room: float) -> float:
    """amount / room within [0, 1]; 0 where there is no room."""
    return min(max(amount, 0.0) / room, 1.0) if room > 0 else 0.0


def clip_to_sum(v: Array, lower: Array, upper: Array, total: float) -> Array:
    """clip(v - g, lower, upper) with sum ``total``; sum lower <= total <= sum upper."""

    def excess(g: float) -> tuple[float, float]:
        moved = v - g
        inside = float(((moved > lower) & (moved < upper)).sum())
        return float(np.clip(moved, lower, upper).sum()) - total, -inside

    # repeated around the level: entries near it are then exact whatever their scale
    for turn in range(40):
        ends = float((v - upper).min()), float((v - lower).max())
        level = decreasing_root(excess, *ends, flat=2 * EPS * total)[0]
        v = v - level
        if turn and abs(level) <= 1:
            break
    return np.clip(v, lower, upper)


Move = tuple[Array, float, Array]  # d, the level g and the dual y


def _arc(z: Array, prior: Array, radius: float, longest: float = 1.0) -> Move:
    """The solution for p = 2, d = Proj_simplex(c + s z) - c with ||d|| = r or s = longest.

    It returns d, the level g and the dual y = max(z - g, -c / s).

    Entries that reach zero stay there as s grows, and ||d||^2 is concave in s^2, linear while the
    same entries are positive: Newton in s^2 from the left, with the positive entries of the step
    before, ends after finitely many steps.
    """
    step, active = min(radius / lp_norm(z - z.mean(), 2), longest), np.arange(len(z))
    removed = outside = 0.0  # sum and sum of squares of the prior where q is zero
    while True:
        while True:
            za, ca = z[active], prior[active]
            mean, lost = za.mean(), removed / len(active)
            kept = ca + (step * (za - mean) + lost) > 0
            if kept.all():
                break
            removed += float(ca[~kept].sum())
            outside += float((ca[~kept] ** 2).sum())
            active = active[kept]
        slope = lp_norm(za - mean, 2)  # scaled: squares of differences may underflow
        room = math.sqrt(max(radius**2 - outside - len(active) * lost**2, 0.0))
        new = min(room / slope, longest) if slope > 0 else step
        if not new > step * (1 + 4 * EPS):
            break
        step = new
    d = -prior
    d[active] = step * (za - mean) + lost
    level = float(mean - lost / step)
    return d, level, np.maximum(z - level, -prior / step)


def _nested(z: Array, prior: Array, radius: float, p: float, e: float) -> Move:
    """d, g and the dual y for every other p, by two roots: g inside, the multiplier k outside."""
    start = [float(z.mean())]

    def shift(multiplier: float) -> Worst:
        def excess(g: float) -> tuple[float, float]:
            d, gradient = _response(z - g, multiplier, radius, p, e)
            inside = d > -prior
            return float(np.where(inside, d, -prior).sum()), -float(gradient[inside].sum())

        ends = decreasing_root(excess, float(z.min()), float(z.max()), start[0], EPS * radius)
        # for large p, d can jump between neighbouring g: mix the two sides so that sum d = 0
        both = (_response(z - g, multiplier, radius, p, e)[0] for g in ends)
        above, below = (np.maximum(d, -prior) for d in both)
        start[0] = ends[0]
        return balanced(above, below), ends[0]

    multiplier = _multiplier(lambda k: lp_norm(shift(k)[0], p), radius, float(np.ptp(z)) * len(z))
    d, g = shift(multiplier)
    with np.errstate(over="ignore"):
        return d, g, np.maximum(z - g, -multiplier * (prior / radius) ** (p - 1))


def balanced(above: Array, below: Array) -> Array:
    """The mixture of two vectors, of sums >= 0 and <= 0, whose sum is 0."""
    over, under = float(above.sum()), float(below.sum())
    share = fraction(over, over - under)
    return (1 - share) * above + share * below


def _response(t: Array, price: float, radius: float, p: float, e: float) -> tuple[Array, Array]:
    """d with e d + price sign(d) (|d|/radius)^(p-1) = t, and its derivative in t.

    |d| is cut at 4 where e = 0.
    """
    size, k = np.abs(t), 1 / (p - 1)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        if e == 0:
            d = np.minimum(radius * (size / price) ** k, 4.0)
            gradient = d * k / size
        elif p >= 2:  # convex in d: Newton from the right is monotone
            d = np.minimum(size, radius * (size / price) ** k)
            bend = lambda d: 1 + price / k / radius * (d / radius) ** (p - 2)  # noqa: E731
            d = _newton(lambda d: d + price * (d / radius) ** (p - 1) - size, bend, d)
            gradient = 1 / bend(d)
        else:  # convex in u = (d / radius)^(p-1)
            u = np.minimum(size / price, (size / radius) ** (p - 1))
            bend = lambda u: radius * k * u ** (k - 1) + price  # noqa: E731
            u = _newton(lambda u: radius * u**k + price * u - size, bend, u)
            d, gradient = radius * u**k, radius * k * u ** (k - 1) / bend(u)
    return np.copysign(d, t), np.where(gradient < 1e200, gradient, 0.0 if e else 1e200)


def _newton(f: Callable[[Array], Array], slope: Callable[[Array], Array], x: Array) -> Array:
    """Newton's method entry by entry for convex increasing functions, from the right."""
    for _ in range(100):
        new = np.minimum(np.maximum(x - f(x) / slope(x), 0.0), x)
        if (x - new <= 4 * EPS * x).all():
            return new
        x = new
    return x


def _multiplier(size: Callable[[float], float], radius: float, largest: float) -> float:
    """k with size(k) = radius, size decreasing; 1e-30 of ``largest`` if even there it is below."""
    from scipy.optimize import brentq

    excess = lambda log: math.log(max(size(math.exp(log)), 1e-300) / radius)  # noqa: E731
    hi = math.log(largest) + 1.0
    # small multipliers are slow to evaluate: go no further than needed
    for fall in (2.0, 4.0, 8.0, 16.0, 32.0, 69.0):
        lo = math.log(largest) - fall
        if excess(lo) > 0:
            break
        hi = lo
    else:
        return math.exp(lo)
    root: Any = brentq(excess, lo, hi, xtol=1e-15, rtol=4 * np.finfo(float).eps, maxiter=200)
    return math.exp(root)


def decreasing_root(
    f: Falling, lo: float, hi: float, start: float | None = None, flat: float = 0.0
) -> tuple[float, float]:
    """An interval of a few rounding errors that holds the root of a decreasing f.

    It is returned as its ends (f >= 0, f <= 0).

    f gives (value, gradient); a value within ``flat`` of 0 is a root. Newton kept inside a bracket
    [lo, hi]: exact after finitely many steps where f is piecewise linear, which a derivative-free
    method is not.
    """
    x = lo + (hi - lo) / 2 if start is None else min(max(start, lo), hi)
    width = hi - lo
    for turn in range(1, 2000):
        value, gradient = f(x)
        if abs(value) <= flat:
            return x, x
        lo, hi = (x, hi) if value > 0 else (lo, x)
        near = 4 * EPS * abs(x)
        if hi - lo <= 2 * near:
            break
        step = -value / gradient if -math.inf < gradient < 0 else math.nan
        if abs(step) < near:  # Newton has arrived on this side: step just across
            step = math.copysign(near, value)
        if turn % 4 == 0:  # bisect when four steps did not halve the bracket
            step, width = (step if hi - lo <= width / 2 else math.nan), hi - lo
        x = x + step if lo < x + step < hi else _middle(lo, hi)
    return lo, hi


def _middle(lo: float, hi: float) -> float:
    """The middle of a bracket; the geometric mean where it spans magnitudes of one sign."""
    if lo * hi > 0 and not 0.01 < lo / hi < 100:
        return math.copysign(math.sqrt(abs(lo)) * math.sqrt(abs(hi)), lo)
    return lo + (hi - lo) / 2


def _finish(prior: Array, d: Array, radius: float, p: float) -> Array:
    """prior + d, back inside the ball and the simplex after rounding."""
    q = np.maximum(prior + d * min(1.0, radius / lp_norm(d, p)), 0.0)
    return q / q.sum()


def _finite(v: Array) -> Array:
    if v.ndim != 1 or v.size == 0 or not np.isfinite(v).all():
        raise ValueError(
            "a non-empty vector of finite numbers is needed. Look for NaN or overflow where it was"
            " computed."
        )
    return v


# The projection onto a convex set of which only a linear maximiser is known.
#
#     argmin_{q in Q} ||q - v||,     maximise(g) -> a point of Q of largest g'q
#
# Wolfe, *Finding the nearest point in a polytope*: the point is kept as a mix of a few points of Q,
# its corral. A point that is larger in the direction v - q joins; the nearest point of their affine
# hull is next, and where it is outside their convex hull the corral loses members until it is not.
# For a polytope this ends after finitely many steps, and for any set q stays in Q whatever the
# rounding, and the last maximiser bounds how much nearer any point of Q can be:
#
#     ||m - v||^2 >= ||q - v||^2 - 2 (v - q)'(m - q)    for all m in Q

TOL = 1e-14  # of max (v - q)'(m - q), relative to the largest entry of v - q
CORRALS = 10_000  # at most
ENOUGH = 1e-9  # what is still an answer where no step helps any more


def nearest_point(v: Array, maximise: Callable[[Array], Array]) -> Array:
    """The point of Q nearest to v.

    Raises
    ------
    ArithmeticError
        where (v - q)'(m - q), for the best m in Q, is not below 1e-9 of the largest |v - q| when no
        step helps
    """
    v = v - v.max()  # weights sum to one
    corral = maximise(v)[None]
    mix, q, gap, size = np.ones(1), corral[0], np.inf, 1.0
    for _ in range(CORRALS):
        g = (v - q) - (v - q).max()
        new, size = maximise(g), max(1.0, float(np.abs(g).max()))
        gap = float(g @ (new - q))
        if gap <= TOL * size or (corral == new).all(1).any():
            break
        corral, mix = _shrunk(v, np.concatenate([corral, new[None]]), np.append(mix, 0.0))
        step = mix @ corral - q
        if not 2 * float(g @ step) > float(step @ step):  # no nearer
            break
        q = q + step
    if not abs(gap) <= ENOUGH * size:  # a negative gap: q exceeds the maximiser
        raise ArithmeticError(
            f"the nearest point is known to {abs(gap) / size:.1e} only, needed {ENOUGH:g}: the"
            " maximiser is not exact, or the set is too curved for a mix of points. Give the set a"
            " method `project`."
        )
    return q


def _shrunk(v: Array, corral: Array, mix: Array) -> tuple[Array, Array]:
    """The nearest point of the affine hull of those members whose convex hull contains it."""
    from scipy.linalg import lstsq

    while len(mix) > 1:
        edges = (corral[1:] - corral[0]).T
        solved: Any = lstsq(edges, v - corral[0], lapack_driver="gelsy", check_finite=False)
        rest = solved[0]
        best = np.append(1.0 - rest.sum(), rest)
        if (best > 0).all():
            return corral, best
        falling = best <= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(falling & (mix > best), mix / (mix - best), np.inf)
        steps[falling & (mix <= 0)] = 0.0
        step = min(float(steps.min()), 1.0)
        mix = mix + step * (best - mix)
        kept = (steps > step) & (mix > 0)
        corral, mix = corral[kept], mix[kept] / mix[kept].sum()
    return corral, mix
