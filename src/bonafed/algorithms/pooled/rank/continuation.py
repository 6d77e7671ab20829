"""Rank weights that are not monotone: continuation in rho, difference-of-convex polish, starts.

A small rho that grows slowly lets the early iterations see a smoothed problem; it decides which
minimum is met. The polish writes sigma = sigma_plus - sigma_minus with both nondecreasing, replaces
Omega_minus by its tangent at w_k

    w_{k+1} = argmin  Omega_plus(D w - b) + g(w) - <v, w>,  v = D'(q * l'(t_k)),
            q in the set of sigma_minus

(Phan 2016; Hu, Ying, Wang, Lyu 2020), solves this convex problem accurately, and goes on along the
step while the objective falls (Aragon Artacho, Vuong 2020): it never rises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bonafed.algorithms.pooled.rank.penalties import Balanced, ByResidual, Growing, Penalty
from bonafed.algorithms.pooled.rank.subproblems import RankTask
from bonafed.arrays import Array
from bonafed.problem.rank_coordinates import plus_minus
from bonafed.solvers.rank.proxes import ascending, gradients_of
from bonafed.solvers.rank.semismooth_newton import NEWTON_STEPS as STEPS
from bonafed.solvers.rank.semismooth_newton import Point, outer_step

ACCURATE = 1e-6  # relative decrease below which the polish ends
MOST = 100  # its steps at most


@dataclass(frozen=True)
class Start:
    """A schedule and a first model: the method's, plus ``spread`` times standard normal numbers.

    Without a schedule the polish begins at the first model itself.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.RankedRange(500, 0), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(starts=(bf.Start(bf.Growing()), bf.Start(None, spread=1.0)))
    >>> len(bf.solve(problem, fed.pooled(), algorithm=method).tries)
    2
    """

    penalty: Penalty | None
    spread: float = 0.0


RANGE_STARTS = (
    *(Start(Growing(2e-7, 1.01), spread) for spread in (0.0, 1.0, 10.0)),
    *(Start(Growing(2e-7, 1.02), spread) for spread in (0.0, 1.0)),
    *(Start(Growing(2e-6, 1.01), spread) for spread in (0.0, 0.1, 1.0)),
    *(Start(Growing(1e-5, 1.02), spread) for spread in (0.0, 0.1, 1.0, 1.0)),
    *(Start(Growing(1e-4, 1.02), spread) for spread in (0.0, 1.0, 1.0)),
)
POLISHED_STARTS = tuple(Start(None, spread) for spread in (0.3, 1.0, 3.0, 0.3, 1.0, 3.0))
SMALL = 4000  # numbers in D up to which a polish from any model is quick
PROSPECT_STARTS = (
    Start(ByResidual(1e-4, 1.02, 1.07)),
    Start(Growing(1e-5, 1.02)),
    Start(ByResidual(1e-4, 1.01, 1.02), spread=0.1),
    Start(ByResidual(1e-4, 1.01, 1.02), spread=1.0),
)
WEAK_STARTS = (Start(Balanced()), Start(Growing(1e-5, 1.02)), Start(Balanced(), spread=1.0))


def starts_of(starts: tuple[Start, ...] | None, task: RankTask) -> tuple[Start, ...]:
    """The user's starts, or the built-in ones where they are None."""
    if starts is not None:
        return starts
    if getattr(task.problem.over_samples, "convex", True):
        return WEAK_STARTS
    if task.sigma is None:
        return PROSPECT_STARTS
    if task.separable is None:
        return RANGE_STARTS[::4]  # without a polish every start is long
    return RANGE_STARTS + (POLISHED_STARTS if task.design.D.size <= SMALL else ())


class Polished(NamedTuple):
    """A model after a step of the polish, and the multipliers of its convex problem."""

    w: Array
    value: float
    rows: Array  # alpha_plus - the tangent's gradient: minus lambda
    split: Array  # z
    steps: int


def polish(task: RankTask, w: Array, further: bool = True) -> Polished | None:
    """One accurate step from w; None where the convex problem has no Newton form.

    It has none for prospect weights and an unknown g.

    Without ``further`` the model is the convex problem's solution, so that rows and split belong to
    it.
    """
    if task.sigma is None:
        return None
    plus, minus = plus_minus(task.sigma)
    t = task.rank_coordinates(w)
    tangent = _tangent(task, minus, t)
    inner = replace(task, sigma=plus, tilt=tangent @ task.design.D, _cache={})
    if inner.system is None:
        return None
    at, steps = _solved(inner, Point(w, t, _tangent(task, plus, t)), plus)
    model = Polished(at.w, task.objective(at.w), at.alpha - tangent, at.z, steps)
    step, length = at.w - w, 1.0
    while further and length < 1e6:
        beyond = model.w + length * step
        if not (lower := task.objective(beyond)) < model.value:
            break
        model, length = model._replace(w=beyond, value=lower), 2 * length
    return model


def _solved(inner: RankTask, at: Point, plus: Array) -> tuple[Point, int]:
    """The solution of the convex problem of a step, and the Newton steps it took."""
    system, steps, last = inner.system, 0, np.inf
    assert system is not None
    length = max(float(np.linalg.norm(at.w)), 1e-3) / max(
        float(np.linalg.norm(at.alpha @ system.D)), 1e-300
    )
    for k in range(30):
        new, newton = outer_step(system, at, length, 0.1 / (1 + k))
        steps += newton
        if newton >= STEPS:  # unfinished
            length /= 4
            continue
        at, length = new, length * (4.0 if newton <= 20 else 1.0)
        value = float(np.sort(inner.losses(inner.rank_coordinates(at.w))) @ plus) + system.h.value(
            at.w
        )
        if last - value <= 1e-11 * max(abs(value), 1e-300) and k > 3:
            break
        last = value
    return at, steps


def _tangent(task: RankTask, sigma: Array, t: Array) -> Array:
    """q * l'(t) with sigma in the order of the losses.

    It is a subgradient of its Omega at t where sigma is nondecreasing.
    """
    size = np.abs(t) if task.kernel.even else t
    q = np.empty_like(sigma)
    q[ascending(size)] = sigma
    return q * gradients_of(t, task.kernel)
