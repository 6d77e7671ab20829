"""Rank weights that are not monotone: continuation in rho, difference-of-convex polish, several starts.

A small rho that grows slowly lets the early iterations see a smoothed problem; it decides which minimum is met. The
polish writes sigma = sigma_plus - sigma_minus with both nondecreasing, replaces Omega_minus by its tangent at w_k

    w_{k+1} = argmin  Omega_plus(D w - b) + g(w) - <v, w>,      v = D'(q * l'(t_k)),   q in the set of sigma_minus

(Phan 2016; Hu, Ying, Wang, Lyu 2020) and solves this convex problem accurately: the objective never rises.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from quorate.algorithms.pooled.penalties import Balanced, ByResidual, Growing, Penalty
from quorate.algorithms.pooled.rank_task import RankTask
from quorate.arrays import Array
from quorate.problem.ranked import plus_minus
from quorate.solvers.monotone import slopes_of
from quorate.solvers.pava import ascending
from quorate.solvers.rank_newton import Point, outer_step

ACCURATE = 1e-9  # relative decrease below which the polish ends


@dataclass(frozen=True)
class Start:
    """A schedule and a first model: the method's own, or with ``spread`` > 0 one about as far from it, at random."""

    penalty: Penalty
    spread: float = 0.0


RANGE_STARTS = (
    Start(Growing(2e-7, 1.02)),
    Start(Growing(2e-7, 1.01)),
    Start(Growing(2e-5, 1.02)),
    Start(Growing(2e-8, 1.01)),
    Start(Growing(2e-6, 1.02), spread=0.1),
    Start(Growing(2e-6, 1.02), spread=1.0),
)
PROSPECT_STARTS = (
    Start(ByResidual(1e-4, 1.02, 1.07)),
    Start(Growing(1e-5, 1.02)),
    Start(ByResidual(1e-4, 1.01, 1.02), spread=0.1),
    Start(ByResidual(1e-4, 1.01, 1.02), spread=1.0),
)
WEAK_STARTS = (Start(Balanced()), Start(Growing(1e-5, 1.02)), Start(Balanced(), spread=1.0))


class Polished(NamedTuple):
    """A model after a step of the polish, with what proves its stationarity."""

    w: Array
    value: float
    rows: Array  # alpha_plus - the tangent's slope: minus lambda
    split: Array  # z
    steps: int


def polish(task: RankTask, w: Array, value: float) -> Polished | None:
    """One accurate step; None where the inner problem has no Newton form (prospect weights, unknown g)."""
    if task.sigma is None:
        return None
    plus, minus = plus_minus(task.sigma)
    t = task.rank_coordinates(w)
    tangent = _tangent(task, minus, t)
    inner = replace(task, sigma=plus, tilt=task.design.rows.backward(tangent), _cache={})
    system = inner.system
    if system is None:
        return None
    at = Point(w, t, _tangent(task, plus, t))
    step = max(float(np.linalg.norm(w)), 1e-3) / max(float(np.linalg.norm(at.alpha @ system.D)), 1e-300)
    best, steps = Polished(w, value, at.alpha - tangent, t, 0), 0
    last = np.inf
    for k in range(30):
        at, newton = outer_step(system, at, step, 0.1 / (1 + k))
        steps += newton
        step *= 4.0 if newton <= 20 else 1.0
        now = task.rank_coordinates(at.w)
        goal = float(np.sort(task.losses(now)) @ plus) + system.h.value(at.w)
        found = task.objective(at.w, now)
        if found <= best.value:
            best = Polished(at.w, found, at.alpha - tangent, at.z, steps)
        if last - goal <= 1e-11 * max(abs(goal), 1e-300) and k > 3:
            break
        last = goal
    return best._replace(steps=steps)


def _tangent(task: RankTask, sigma: Array, t: Array) -> Array:
    """q * l'(t) with sigma in the order of the losses: a subgradient of its Omega at t where sigma is nondecreasing."""
    size = np.abs(t) if task.kernel.even else t
    q = np.empty_like(sigma)
    q[ascending(size)] = sigma
    return q * slopes_of(t, task.kernel)
