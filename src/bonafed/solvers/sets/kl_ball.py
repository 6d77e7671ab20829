"""Worst cases and projections over a Kullback-Leibler ball around a point c of the simplex.

    Q = {q >= 0, sum q = 1, sum_i q_i log(q_i / c_i) <= r},      r >= 0;  c_i = 0 forces q_i = 0

    largest(z)  q = c exp(s z) / Z,  Z = sum c exp(s z);
            s is the root of KL(s) = s <q, z> - log Z = r,
                    and for every s > 0  max z'q <= (r + log Z) / s.
                            KL(s) rises to -log c(argmax z): where r is
                    at least that, q is c conditioned on the argmax
    nearest(x)  q + k log(q / c) = x + g
            with multipliers g of sum q = 1 and k >= 0 of the ball, so that
                    q = k W((x + g) / k + log(c / k)),  W(y) + log W(y) = y;  the divergence falls
                    as k grows

The projection needs two nested scalar roots, the maximum one. No function here changes its
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.solvers.sets.projections import EPS, at_prior, project_simplex, top_and_spread

TINY = 1e-300
NOISE = 64 * EPS
FAR = 1e-30  # a multiplier so small that it counts as 0
NONE = 1e-40  # a ball of this radius is its centre
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
    return (
        np.where(small, x * x * np.polyval(EXCESS, np.where(small, x, 0.0)), whole)
        if small.any()
        else whole
    )


def largest_in_entropy_ball(z: Array, prior: Array, radius: float) -> tuple[Array, float]:
    """A maximiser of z'q over Q, and an upper bound that holds by duality, rounding included.

    All arrays are (N,).
    """
    inside = prior > 0
    if not inside.all():
        part, bound = largest_in_entropy_ball(z[inside], prior[inside], radius)
        return _spread(part, inside), bound
    top, spread = top_and_spread(z)
    if radius <= NONE or spread == 0:
        return at_prior(z, prior, math.sqrt(radius / 2) * spread)  # by Pinsker's inequality
    z = (z - top) / spread
    at_top = z == 0
    share, rest = float(prior[at_top].sum()), float(prior[~at_top].sum())
    most = math.log1p(rest / share)  # the divergence of the prior given the argmax
    if radius >= most:
        return np.where(at_top, prior / share, 0.0), top + 32 * EPS * abs(top)
    q, log_mass, s = _tilted(z, prior, radius, most, rest / share)
    level = (radius + log_mass) / s
    return q, top + spread * level + 32 * EPS * (abs(top) + spread * (1 + abs(level)))


def _tilted(
    z: Array, prior: Array, radius: float, most: float, odds: float
) -> tuple[Array, float, float]:
    """q ~ prior exp(s z) with divergence ``radius`` below its limit ``most``, with log Z and s.

    z runs from -1 to 0.
    """

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
    return q, log_mass, s


def newton_root(
    f: Callable[[float], tuple[float, float]], lo: float, hi: float, start: float, close: float
) -> float:
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
    if radius <= NONE or len(x) == 1:
        return prior.copy()
    if divergence(free, prior) <= radius:
        return free
    return _Nearest(x - x.max(), prior, radius).solve()


class _Nearest:
    """The projection's nested roots: the level g inside, the ball's multiplier k outside."""

    def __init__(self, z: Array, prior: Array, radius: float) -> None:
        self.z, self.prior, self.radius, self.log_prior = z, prior, radius, np.log(prior)
        self.lo, self.hi = float((prior - z).min()), float((prior - z).max())
        self.at = self.level = self.gradient = math.nan  # the last k with its g and dg/dk

    def solve(self) -> Array:
        # |log(q / c)| <= e = (spread + 1) / k, and then KL <= e^2 / 8
        most = (float(np.ptp(self.z)) + 1) / math.sqrt(8 * self.radius) * (1 + 1e-6)
        k = newton_root(self._excess, FAR * most, most, most / 2, CLOSE)
        q, ratio = self._answer(k)
        q = self.prior * np.exp(ratio) if k >= 1 else q
        return q / q.sum()

    def _excess(self, k: float) -> tuple[float, float]:
        """1 - sqrt(radius / divergence), nearly affine in k everywhere, and its derivative."""
        q, ratio = self._answer(k)
        size = max(float(self.prior @ _excess(ratio)), TINY)
        share = q / (q + k)
        self.gradient = float(share @ ratio) / float(share.sum())
        root = math.sqrt(self.radius / size)
        return 1 - root, -root * float(share @ (ratio - self.gradient) ** 2) / (2 * size)

    def _answer(self, k: float) -> tuple[Array, Array]:
        """q for the multiplier k, and log(q / prior)."""
        from scipy.special import wrightomega

        shift = self.log_prior - math.log(k)

        def excess(g: float) -> tuple[float, float]:
            w = wrightomega((self.z + g) / k + shift)
            mass = max(k * float(w.sum()), TINY)
            return -math.log(mass), -float((w / (1 + w)).sum()) / mass

        start = self.level + self.gradient * (k - self.at)
        start = start if math.isfinite(start) else 0.5 * (self.lo + self.hi)
        g = newton_root(excess, self.lo, self.hi, start, max(CLOSE * min(1.0, k), NOISE))
        self.at, self.level = k, g
        q = k * wrightomega((self.z + g) / k + shift)
        ratio = (self.z + g - q) / k if k >= 1 else np.log(np.maximum(q, TINY)) - self.log_prior
        return q, np.maximum(ratio, -750.0)


def _spread(part: Array, inside: NDArray[np.bool_]) -> Array:
    q = np.zeros(len(inside))
    q[inside] = part
    return q
