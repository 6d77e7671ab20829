"""Worst cases and projections over an ellipsoid with any axes around a point c of the simplex.

    Q = {q >= 0, sum q = 1, (q - c)' P (q - c) <= r},      P = S^-1, S positive definite, r >= 0

    largest(z):  max_{q in Q} z'q  =  min over g and y >= z - g of  g + c'y + sqrt(r y'S y)
            (any g, y: a bound)
    nearest(x):     argmin_{q in Q} ||q - x||

Once it is known where q = 0, both are explicit in d = q - c: on the rest P d = t (z - g) for the
largest, where the squared norm of d is affine in t^2, and d + k P d = x - c + g for the nearest,
with one scalar root in k after an eigendecomposition. The zeros of q come from an active set
method: entries below 0 join, entries whose multiplier is negative leave, until all signs are right.
It starts from no zeros, then from the solution of a conic program. Where neither settles, that
solution is moved into Q. The bound holds in every case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import Index, Model
from bonafed.solvers.sets import divergence_balls
from bonafed.solvers.sets.projections import EPS, at_prior, project_simplex, scaled

Flags = NDArray[np.bool_]
SIGN = 1e-12  # relative size of a number below which its sign says nothing


class Axes(NamedTuple):
    """The shape S in its unit, its inverse P, and W with P = W'W; ``axes`` computes them."""

    S: Array
    P: Array
    W: Array
    unit: float  # S times this is the user's shape

    def norm(self, d: Array) -> float:
        """sqrt(d'P d) in this unit."""
        return float(np.linalg.norm(self.W @ d))


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


def off_axes(d: Array, axes: Axes, radius: float) -> float:
    """How far c + d lies outside the ellipsoid, entry by entry at most; 0 inside.

    The distance is to the boundary point on the segment from c + d to c.
    """
    return divergence_balls.off_ball(d, axes.norm(d), math.sqrt(radius) * math.sqrt(axes.unit))


def largest_in_axes(z: Array, prior: Array, axes: Axes, radius: float) -> tuple[Array, float]:
    """A maximiser of z'q over Q, and an upper bound that holds by duality, rounding included.

    All arrays are (N,).
    """
    scale = scaled(z)
    size = math.sqrt(radius) * math.sqrt(axes.unit)
    if size <= divergence_balls.NONE or scale.spread == 0:
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
    free = project_simplex(x)
    size = math.sqrt(radius) * math.sqrt(axes.unit)
    if size <= divergence_balls.NONE or len(x) == 1:
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
    return _inside(prior, q - prior if point is None else point.d, axes, size)


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
        yield _inside(prior, point.d, axes, size), point.y, point.g
    model = Model()
    d, level, cone = _move(model, prior, axes, size)
    model.linear(d, -z)
    solution = model.solve().checked("the largest loss over an ellipsoid")
    q, y = prior + solution.x[d], -axes.W.T @ solution.z[cone][1:]
    g = -float(solution.z[level][0])
    point = _settle(face, q > 1e-7, prior)
    if point is not None:
        yield _inside(prior, point.d, axes, size), point.y, point.g
    yield _inside(prior, q - prior, axes, size), y, g


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
        square = max(
            rest + float(part @ (values * part)) + 2 * float(part @ pull), divergence_balls.TINY
        )
        gradient = values * part + pull
        across = float(share @ (ones * gradient)) ** 2 / float(share @ ones**2)
        fall = float(share @ gradient**2) - across
        return 1 - size / math.sqrt(square), -size * max(fall, 0.0) / square**1.5

    # with base the nearest point of the face, ||d - base||_P <= sqrt(trace S) ||aim - base|| / k
    far = math.sqrt(float(axes.S.trace()) / (size**2 - axes.norm(pair[0]) ** 2))
    most = far * (float(np.linalg.norm(aim)) + 2) * (1 + 1e-6)
    k = divergence_balls.newton_root(
        excess, divergence_balls.FAR * most, most, most / 2, divergence_balls.CLOSE
    )
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


def _inside(prior: Array, d: Array, axes: Axes, size: float) -> Array:
    """prior + d, back inside the simplex and the ellipsoid after rounding."""
    q = np.maximum(prior + d, 0.0)
    q = q / q.sum()
    norm = axes.norm(q - prior)
    return np.maximum(prior + (q - prior) * (size / norm), 0.0) if norm > size else q
