"""Limited-memory BFGS as a state that waits for values: it calls no function itself.

    minimise phi(w):  ``state.trial`` is the next point at which phi and its gradient are wanted;
    ``observe`` goes on.

So phi may be evaluated elsewhere, and a run can be stored between any two evaluations. Directions
come from the two-loop recursion (Nocedal and Wright, *Numerical optimization*, Algorithm 7.4).
Steps meet the weak Wolfe conditions or, near the minimum, where differences of values are rounding,
the approximate ones (Hager and Zhang, *A new conjugate gradient method with guaranteed descent*).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import numpy as np

from bonafed.arrays import Array
from bonafed.codec import Counter, Extended, Form, record

MEMORY = 30  # pairs kept
DECREASE, FLATTER = 1e-4, 0.9  # of the Wolfe conditions
ROUNDING = 1e-12  # relative differences of values below this are rounding
SEARCH = 40  # evaluations of a line search at most


@record
class QuasiNewton:
    """The state of the minimisation."""

    w: Annotated[Array, Form("D")]  # the best point, where the line starts
    value: Extended  # phi(w), inf before the first evaluation
    gradient: Annotated[Array, Form("D")]  # phi'(w)
    direction: Annotated[Array, Form("D")]
    step: Extended  # trial = w + step direction
    # lower end of the search: step, value, gradient along the line
    low: tuple[Extended, Extended, Extended]
    high: Extended  # its upper end, inf before there is one
    tried: Counter  # evaluations on this line
    moves: Annotated[Array, Form("k, D")]  # w_{i+1} - w_i, the newest last
    changes: Annotated[Array, Form("k, D")]  # phi'(w_{i+1}) - phi'(w_i)
    accepted: bool  # the last trial is w
    # no step along the negative gradient decreases phi: w is a minimum up to rounding, or phi is
    # not smooth
    failed: bool

    @property
    def trial(self) -> Array:
        """The next point to evaluate."""
        return self.w + self.step * self.direction


def begin(w: Array) -> QuasiNewton:
    """The state before the first evaluation, which is at w."""
    zero, none = np.zeros_like(w), np.zeros((0, len(w)))
    return QuasiNewton(
        w, math.inf, zero, zero, 1.0, (0.0, math.inf, 0.0), math.inf, 0, none, none, False, False
    )


def restart(state: QuasiNewton, value: float, gradient: Array, *, keep: bool = True) -> QuasiNewton:
    """Go on from the same point with another function.

    ``keep`` keeps the curvature pairs, where the functions are alike.
    """
    state = state if keep else _without_pairs(state)
    return _line(replace(state, value=value, gradient=gradient, failed=False))


def _without_pairs(state: QuasiNewton) -> QuasiNewton:
    none = state.moves[:0]
    return replace(state, moves=none, changes=none)


def observe(state: QuasiNewton, value: float, gradient: Array) -> QuasiNewton:
    """The next state, from phi and its gradient at ``state.trial``."""
    if math.isinf(state.value):
        return _line(replace(state, value=value, gradient=gradient, accepted=True))
    step, start = state.step, float(state.direction @ state.gradient)
    along = float(state.direction @ gradient) if math.isfinite(value) else math.nan
    if not _decreased(state, value, along, start):
        return _search(state, value, along, replace(state, high=step, accepted=False))
    if along < FLATTER * start:
        low = step, value, along
        return _search(state, value, along, replace(state, low=low, accepted=False))
    return _accept(state, value, gradient)


def _decreased(state: QuasiNewton, value: float, along: float, start: float) -> bool:
    if not math.isfinite(value):
        return False
    plain = value <= state.value + DECREASE * state.step * start
    return plain or (
        value <= state.value + ROUNDING * abs(state.value) and along <= (2 * DECREASE - 1) * start
    )


def _accept(state: QuasiNewton, value: float, gradient: Array) -> QuasiNewton:
    move, change = state.step * state.direction, gradient - state.gradient
    moves, changes = state.moves, state.changes
    if move @ change > 1e-14 * np.linalg.norm(move) * np.linalg.norm(change):
        moves = np.concatenate([moves[1 - MEMORY :], move[None]])
        changes = np.concatenate([changes[1 - MEMORY :], change[None]])
    new = replace(
        state,
        w=state.trial,
        value=value,
        gradient=gradient,
        moves=moves,
        changes=changes,
        accepted=True,
    )
    return _line(new)


def _line(state: QuasiNewton) -> QuasiNewton:
    """The state at the start of a new line search from w."""
    direction = -_inverse(state.moves, state.changes, state.gradient)
    if len(state.moves) and not direction @ state.gradient < 0:
        return _line(_without_pairs(state))
    size = float(np.linalg.norm(state.gradient))
    step = 1.0 if len(state.moves) or size == 0 else 1 / max(size, 1.0)
    low = 0.0, state.value, float(direction @ state.gradient)
    nowhere = bool(np.linalg.norm(direction) <= np.finfo(float).eps * np.linalg.norm(state.w))
    return replace(
        state, direction=direction, step=step, low=low, high=math.inf, tried=0, failed=nowhere
    )


def _search(old: QuasiNewton, value: float, along: float, state: QuasiNewton) -> QuasiNewton:
    """The next step between the ends of the search, or beyond the lower one."""
    step, low, high = old.step, state.low[0], state.high
    if state.tried + 1 >= SEARCH or (math.isfinite(high) and high - low <= 1e-14 * high):
        if len(state.moves):
            return _line(_without_pairs(state))
        return replace(state, failed=True, step=0.0)
    if math.isinf(high):
        past, _, before = old.low
        guess = step - along * (step - past) / (along - before) if along > before else math.inf
        return replace(state, step=min(max(guess, 2 * step), 10 * step), tried=state.tried + 1)
    other = (step, value, along) if state.high == step else (high, math.nan, math.nan)
    guess, width = _cubic(state.low, other), high - low
    guess = guess if math.isfinite(guess) else low + width / 2
    return replace(
        state, step=min(max(guess, low + 0.1 * width), high - 0.1 * width), tried=state.tried + 1
    )


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


def _inverse(moves: Array, changes: Array, v: Array) -> Array:
    """The inverse of the Hessian that the pairs describe, times v."""
    if not len(moves):
        return v
    products, shares = np.einsum("kd,kd->k", moves, changes), np.zeros(len(moves))
    for k in range(len(moves) - 1, -1, -1):
        shares[k] = moves[k] @ v / products[k]
        v = v - shares[k] * changes[k]
    v = v * (products[-1] / (changes[-1] @ changes[-1]))
    for k in range(len(moves)):
        v = v + (shares[k] - changes[k] @ v / products[k]) * moves[k]
    return v
