"""Worst cases and projections over an axis-aligned ellipsoid around a point c of the simplex.

    Q = {q >= 0, sum q = 1, sum_i (q_i - c_i)^2 / s_i <= r},     s > 0, r >= 0

    largest(z):  max_{q in Q} z'q  =  min over g and y >= z - g of  g + c'y + sqrt(r sum s y^2)
            (any g, y: a bound)
    nearest(x):     argmin_{q in Q} ||q - x||

With d = q - c, the maximiser is d = max(t s (z - g), -c). Entries that reach zero stay there as t
grows, and while the positive entries are fixed sum d^2 / s is affine in t^2, so the iteration is
finite. The nearest point for the ellipsoid's multiplier k >= 0 is
d = max(s (x + g - c) / (s + k), -c), where g is the root of a convex piecewise linear function and
k that of a smooth decreasing one. s = 1 gives the ball of the 2-norm, s = c the chi-square ball
(restrict to the support of c first).
"""

from __future__ import annotations

import math

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.sets.kl_ball import CLOSE, FAR, TINY, newton_root
from bonafed.solvers.sets.projections import EPS, at_prior, project_simplex, top_and_spread

NONE = 1e-20  # an ellipsoid of this size is its centre


def length(v: Array) -> float:
    """||v||_2 without overflow or underflow."""
    top = float(np.abs(v).max(initial=0.0))
    return top * math.sqrt(float(((v / top) ** 2).sum())) if 0 < top < math.inf else top


def in_units(z: Array, top: float, spread: float) -> Array:
    """z scaled to [-1, 0]; entries within any rounding of the largest count as equal to it."""
    z = (z - top) / spread
    return np.where(z > -1e-100, 0.0, z)


def off_ellipsoid(d: Array, shape: Array, radius: float) -> float:
    """How far c + d lies outside the ellipsoid, entry by entry at most; 0 inside.

    The distance is to the boundary point on the segment from c + d to c.
    """
    return off_ball(d, length(d / np.sqrt(shape)), math.sqrt(radius))


def off_ball(d: Array, norm: float, size: float) -> float:
    """How far d, which has this norm, is from the ball of a size, entry by entry at most."""
    return (1 - size / norm) * float(np.abs(d).max()) if norm > size else 0.0


def largest_in_ellipsoid(
    z: Array, prior: Array, shape: Array, radius: float
) -> tuple[Array, float]:
    """A maximiser of z'q over Q, and an upper bound that holds by duality, rounding included.

    All arrays are (N,). Of several maximisers it is the one nearest to the prior in the ellipsoid's
    norm.
    """
    top, spread = top_and_spread(z)
    unit = float(shape.max())
    size, shape = math.sqrt(radius) * math.sqrt(unit), shape / unit
    if size <= NONE or spread == 0:
        return at_prior(z, prior, size * math.sqrt(float(shape.sum())) * spread)
    z, root = in_units(z, top, spread), np.sqrt(shape)
    at_top = z == 0
    room = np.where(at_top, shape, 0.0)
    corner = np.where(at_top, float(prior[~at_top].sum()) * (room / room.sum()), -prior)
    if length(corner / root) <= size:
        return _inside(prior, corner, shape, 1.0), top + 32 * EPS * abs(top)
    d, level, y = _arc(z, prior, shape, size)
    linear, ball = float(prior @ y), size * length(y * root)
    rounding = 32 * EPS * (abs(top) + spread * (abs(level) + float(prior @ np.abs(y)) + ball))
    q = _inside(prior, d, shape, size / length(d / root))
    return q, top + spread * (level + linear + ball) + rounding


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
    free = project_simplex(x)
    unit = float(shape.max())
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


def _level(z: Array, prior: Array, share: Array, start: float) -> tuple[Array, float]:
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
