"""Iterations that wait for numbers which somebody else computes: L-BFGS for values and gradients,
conjugate gradients for products, Anderson's acceleration for inner products.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.codec import Counter, Extended, Form, record

# Limited-memory BFGS as a state that waits for values: it calls no function itself.
#
#     minimise phi(w):  ``state.trial`` is the next point at which phi and its gradient are wanted;
#     ``observe`` goes on.
#
# So phi may be evaluated elsewhere, and a run can be stored between any two evaluations. Directions
# come from the two-loop recursion (Nocedal and Wright, *Numerical optimization*, Algorithm 7.4).
# Steps meet the weak Wolfe conditions or, near the minimum, where differences of values are
# rounding, the approximate ones (Hager and Zhang, *A new conjugate gradient method with guaranteed
# descent*).
#
# With a convex h that is not smooth, but has a prox, it minimises phi + h. The direction then leads
# to the minimum of
#
#     <phi'(w), z - w> + <z - w, B (z - w)> / 2 + h(z)    over z,
#
# B the matrix of the pairs, and steps along it have to decrease phi + h (Lee, Sun, Saunders,
# *Proximal Newton-type methods for minimizing composite functions*). With B = metric - W'MW (Byrd,
# Nocedal, Schnabel, *Representations of quasi-Newton matrices*) that z is a prox of h in the metric
# for the right MW(z - w), a few numbers, whose fixed point Anderson's acceleration finds.


MEMORY = 30  # pairs kept
FEWER = 10  # pairs kept beside h: their number squared times D operations are spent on each line
INSIDE, SOLVED = 25, 0.03  # proxes on each line at most; its fixed point is met to this share
DECREASE, FLATTER = 1e-4, 0.9  # of the Wolfe conditions
ROUNDING = 1e-12  # relative differences of values below this are rounding
SEARCH = 40  # evaluations of a line search at most


# w_{i+1} - w_i and phi'(w_{i+1}) - phi'(w_i), both divided so that their product is 1; apart, so
# that a step copies none of the others
Pair = tuple[Annotated[Array, Form("Q")], Annotated[Array, Form("Q")]]


@record
class QuasiNewton:
    """The state of the minimisation."""

    w: Annotated[Array, Form("Q")]  # the best point, where the line starts
    value: Extended  # phi(w), inf before the first evaluation
    gradient: Annotated[Array, Form("Q")]  # phi'(w)
    direction: Annotated[Array, Form("Q")]
    step: Extended  # trial = w + step direction
    # lower end of the search: step, value, gradient along the line
    low: tuple[Extended, Extended, Extended]
    high: Extended  # its upper end, inf before there is one
    tried: Counter  # evaluations on this line
    # step 1 leads there, exactly; empty: nothing asks for that
    there: Annotated[Array, Form("Q|0")]
    pairs: tuple[Pair, ...]  # the newest last
    accepted: bool  # the last trial is w
    # no step along the negative gradient decreases phi: w is a minimum up to rounding, or phi is
    # not smooth
    failed: bool

    @property
    def trial(self) -> Array:
        """The next point to evaluate."""
        if self.step == 1 and len(self.there):
            return self.there
        return self.w + self.step * self.direction


class Kink(NamedTuple):
    """A convex function h that is not smooth."""

    value: Callable[[Array], float]
    # (v, metric (D,)) -> argmin_z h(z) + sum_j metric_j (z - v)_j^2 / 2
    prox: Callable[[Array, Array], Array]
    units: Array  # (D,) in which steps are taken


def begin(w: Array) -> QuasiNewton:
    """The state before the first evaluation, which is at w."""
    zero, line = np.zeros_like(w), (1.0, (0.0, math.inf, 0.0), math.inf, 0, np.zeros(0))
    return QuasiNewton(w, math.inf, zero, zero, *line, (), False, False)


def restart(
    state: QuasiNewton,
    value: float,
    gradient: Array,
    kink: Kink | None = None,
    *,
    keep: bool = True,
) -> QuasiNewton:
    """Go on from the same point with another function.

    ``keep`` keeps the curvature pairs, where the functions are alike.
    """
    state = state if keep else replace(state, pairs=())
    return _line(replace(state, value=value, gradient=gradient, failed=False), kink)


def observe(
    state: QuasiNewton, value: float, gradient: Array, kink: Kink | None = None
) -> QuasiNewton:
    """The next state, from phi and its gradient at ``state.trial``; beside a kink ``value`` is that
    of phi + h.
    """
    if math.isinf(state.value):
        return _line(replace(state, value=value, gradient=gradient, accepted=True), kink)
    step, start, along = state.step, float(state.direction @ state.gradient), math.nan
    if math.isfinite(value) and kink is None:
        along = float(state.direction @ gradient)
    elif kink is not None:  # beside which the lower end stays at 0; h has its chord's slope
        start = state.low[2]
        along = start + float(state.direction @ (gradient - state.gradient))
    falls = value <= state.value + DECREASE * step * start
    level = value <= state.value + ROUNDING * abs(state.value)
    decreased = falls or (level and along <= (2 * DECREASE - 1) * start)
    if not (math.isfinite(value) and decreased):
        return _search(state, value, along, replace(state, high=step, accepted=False), kink)
    if kink is None and along < FLATTER * start:
        low = step, value, along
        return _search(state, value, along, replace(state, low=low, accepted=False))
    move, change = state.step * state.direction, gradient - state.gradient
    pairs, product = state.pairs, float(move @ change)
    if product > 1e-14 * np.linalg.norm(move) * np.linalg.norm(change):
        kept, root = 1 - (MEMORY if kink is None else FEWER), math.sqrt(product)
        pairs = (*pairs[kept:], (move / root, change / root))
    there = {"w": state.trial, "value": value, "gradient": gradient}
    return _line(replace(state, **there, accepted=True, pairs=pairs), kink)


def _line(state: QuasiNewton, kink: Kink | None = None) -> QuasiNewton:
    """The state at the start of a new line search from w."""
    w, gradient, units, size = state.w, state.gradient, 1.0, float(np.linalg.norm(state.gradient))
    if kink is None:
        direction, there = _inverse(state.pairs, -gradient), w[:0]
        slope = float(direction @ gradient)
        step = 1.0 if state.pairs or size == 0 else 1 / max(size, 1.0)
    else:
        there, curved = _proximal(state, kink)
        direction, step, units, before = there - w, 1.0, kink.units, kink.value(w)
        slope = float(direction @ gradient) + kink.value(there) - before
        # what the prox promises, where the difference is rounding
        slope = slope if abs(slope) > ROUNDING * abs(state.value) else -curved
    if state.pairs and not slope < 0:
        return _line(replace(state, pairs=()), kink)
    moved, length = np.linalg.norm(direction * units), np.linalg.norm(w * units)
    nowhere = bool(moved <= np.finfo(float).eps * length) or not slope < 0
    line = {"direction": direction, "step": step, "low": (0.0, state.value, slope), "there": there}
    return replace(state, **line, high=math.inf, tried=0, failed=nowhere)


def _proximal(state: QuasiNewton, kink: Kink) -> tuple[Array, float]:
    """The minimum z of the model of phi, as the pairs have it, and h; and (z - w)'B(z - w)."""
    w, gradient, squares = state.w, state.gradient, kink.units**2
    if not (k := len(state.pairs)):
        metric = max(float(np.linalg.norm(gradient / kink.units)), 1.0) * squares
        there = kink.prox(w - gradient / metric, metric)
        return there, float(((there - w) ** 2) @ metric)
    S, Y = (np.array(part) for part in zip(*state.pairs, strict=True))
    metric = float(Y[-1] / squares @ Y[-1]) * squares
    before, scaled = np.tril(S @ Y.T, -1), S * np.sqrt(metric)
    square = scaled @ scaled.T
    square += 1e-14 * float(square.trace()) * np.eye(k)  # where moves depend on one another
    middle = np.linalg.inv(np.block([[square, before], [before.T, -np.eye(k)]]))
    shift, images, residuals = np.zeros(2 * k), list[Array](), list[Array]()
    for _ in range(INSIDE):
        there = kink.prox(w + (shift[:k] @ S) + (shift[k:] @ Y - gradient) / metric, metric)
        move = there - w
        products = np.concatenate([S @ (metric * move), Y @ move])
        images.append(middle @ products)
        residuals.append(images[-1] - shift)
        if np.linalg.norm(residuals[-1]) <= SOLVED * np.linalg.norm(images[-1]):
            break
        rows = np.array(residuals)
        shift = mixing(rows @ rows.T) @ np.array(images)
    return there, float(move**2 @ metric - products @ images[-1])


def _search(
    old: QuasiNewton, value: float, along: float, state: QuasiNewton, kink: Kink | None = None
) -> QuasiNewton:
    """The next step between the ends of the search, or beyond the lower one."""
    step, low, high = old.step, state.low[0], state.high
    if state.tried + 1 >= SEARCH or (math.isfinite(high) and high - low <= 1e-14 * high):
        if state.pairs:
            return _line(replace(state, pairs=()), kink)
        return replace(state, failed=True, step=0.0)
    if math.isinf(high):
        past, _, before = old.low
        guess = step - along * (step - past) / (along - before) if along > before else math.inf
        return replace(state, step=min(max(guess, 2 * step), 10 * step), tried=state.tried + 1)
    other = (step, value, along) if state.high == step else (high, math.nan, math.nan)
    guess, width = _cubic(state.low, other), high - low
    guess = guess if math.isfinite(guess) else low + width / 2
    inside = min(max(guess, low + 0.1 * width), high - 0.1 * width)
    return replace(state, step=inside, tried=state.tried + 1)


def _cubic(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """The minimiser of the cubic through two values with gradients; NaN where there is none."""
    (a, fa, sa), (b, fb, sb) = one, other
    theta = sa + sb - 3 * (fa - fb) / (a - b)
    inside = theta * theta - sa * sb
    if not inside >= 0:
        return math.nan
    root = math.copysign(math.sqrt(inside), b - a)
    below = sb - sa + 2 * root
    return b - (b - a) * (sb + root - theta) / below if below else math.nan


def _inverse(pairs: tuple[Pair, ...], v: Array) -> Array:
    """The inverse of the Hessian that the pairs describe, times v, which is overwritten."""
    if not pairs:
        return v
    shares, spare = list[float](), np.empty_like(v)
    for move, change in reversed(pairs):
        shares.append(float(move @ v))
        v -= np.multiply(change, shares[-1], out=spare)
    newest = pairs[-1][1]
    v /= newest @ newest
    for move, change in pairs:
        v += np.multiply(move, shares.pop() - float(change @ v), out=spare)
    return v


# The method of conjugate gradients for A x = b, one product with A at a time.
#
# A is symmetric and positive semidefinite, and somebody else multiplies by it: clients, who add up
# their parts of the product. Preconditioned by the diagonal of A.

TOL = 1e-8  # of the residual, relative to its start, in the norm of the inverse diagonal
FLAT = 1e-14  # a direction has no curvature below this share of the diagonal's


@record
class ConjugateGradients:
    """The solution so far, and the direction whose product with A comes next."""

    x: Array
    residual: Array  # b - A x
    direction: Array
    diagonal: Array  # of A
    energy: float  # of the residual
    first: float  # of b
    ended: bool = False


def started(right: Array, diagonal: Array) -> ConjugateGradients:
    """x = 0; entries without curvature stay there."""
    direction = _preconditioned(right, diagonal)
    energy = float(right @ direction)
    zero, ended = np.zeros_like(right), not (np.isfinite(energy) and energy > 0)
    return ConjugateGradients(zero, right, direction, diagonal, energy, energy, ended)


def stepped(state: ConjugateGradients, product: Array) -> ConjugateGradients:
    """The next iterate, by the product of A with the direction."""
    p, curvature = state.direction, float(state.direction @ product)
    if not curvature > FLAT * float(p * p @ state.diagonal):
        return replace(state, ended=True)
    step = state.energy / curvature
    residual = state.residual - step * product
    scaled = _preconditioned(residual, state.diagonal)
    energy = float(residual @ scaled)
    x, direction = state.x + step * p, scaled + energy / state.energy * p
    ended = not energy > TOL**2 * state.first
    return ConjugateGradients(x, residual, direction, state.diagonal, energy, state.first, ended)


def _preconditioned(v: Array, diagonal: Array) -> Array:
    return np.divide(v, diagonal, out=np.zeros_like(v), where=diagonal > 0)


# Anderson's acceleration of a fixed point iteration, from inner products of its residuals only.
#
#     next point = sum_j mix_j g_j,  mix = argmin { ||sum_j mix_j r_j||^2 : sum mix = 1 },
#             r_j = g_j - v_j
#
# g_j is the image of the point v_j. Fu, Zhang, Boyd, *Anderson accelerated Douglas-Rachford
# splitting* (type II). The clients that hold parts of v need to reveal only their sums of <r_j,
# r_k>.


def mixing(gram: Array, regularise: float = 1e-10, most: float = 30.0) -> Array:
    """The weights of the last h images.

    Parameters
    ----------
    gram : (h, h) inner products of the residuals, the newest last
    regularise : relative to the squared size of the residuals' changes
    most : the weights' sizes add up to at most this, else the system is regularised further: points
        that hardly differ say little about where to go, and far beyond them the map may behave
        differently

    Returns
    -------
    (h,) weights, sum 1; the newest only where the system is not finite
    """
    h, plain = len(gram), np.eye(len(gram))[-1]
    if h < 2:
        return plain
    change = np.diff(np.eye(h), axis=0)  # r_{j+1} - r_j
    normal = change @ gram @ change.T
    size = float(np.trace(normal))
    if not (np.isfinite(normal).all() and size > 0):
        return plain
    while regularise < 1e6:
        gamma = np.linalg.solve(normal + regularise * size * np.eye(h - 1), change @ gram[:, -1])
        mix = plain - gamma @ change
        if np.isfinite(mix).all() and np.abs(mix).sum() <= most:
            return mix
        regularise = max(100 * regularise, 1e-14)
    return plain
