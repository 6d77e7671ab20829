"""Algorithm 1 of Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*.

    L_rho(w, z; lambda) = Omega(z) + <lambda, z - t> + rho / 2 ||z - t||^2 + g(w),    t = D w - b

Line numbers are theirs. Beyond the box: over-relaxation, and rho may change with every iteration.
With gamma > 0 the w-step has the Moreau envelope of g in place of g: their section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bonafed.algorithms.pooled.rank.penalties import Penalty, Progress
from bonafed.algorithms.pooled.rank.subproblems import RankTask
from bonafed.arrays import Array


class Iterate(NamedTuple):
    """The iterate of the algorithm, from which the next iteration starts."""

    w: Array  # (D,)
    t: Array  # (n,) D w - b
    z: Array  # (n,)
    dual: Array  # (n,) lambda
    rho: float
    patience: float  # the schedule's memory
    k: int
    primal: float  # ||z - t||, relative to z and t
    change: float  # rho ||D (w - w_before)||, relative to lambda


def first(task: RankTask, penalty: Penalty, w: Array) -> Iterate:
    """The start at a model: z = D w - b and no multipliers."""
    t = task.rank_coordinates(w)
    return Iterate(w, t, t, np.zeros_like(t), penalty.first(len(t)), 0.0, 0, 1.0, 1.0)


def iterate(
    task: RankTask, penalty: Penalty, at: Iterate, r: float, relaxation: float, gamma: float = 0.0
) -> tuple[Iterate, Array]:
    """The next iterate, and the multipliers rho (m - z) of its z-step, a subgradient of Omega."""
    m = at.t - at.dual / at.rho
    z = task.z_step(m, at.rho)  # line 2
    ahead = relaxation * z + (1 - relaxation) * at.t  # z itself with relaxation = 1
    target = ahead + task.design.rows.shift + at.dual / at.rho
    w = task.w_step(target, at.rho, at.w, r, _accuracy(at), gamma)  # line 3
    t = task.rank_coordinates(w)
    dual = at.dual + at.rho * (ahead - t)  # line 4
    gap = float(np.linalg.norm(z - t))
    primal = gap / max(float(np.linalg.norm(z)), float(np.linalg.norm(t)), 1e-300)
    change = at.rho * float(np.linalg.norm(t - at.t)) / max(float(np.linalg.norm(dual)), 1e-300)
    rho, patience = penalty.after(Progress(at.k + 1, at.rho, primal, change, gap, at.patience))
    return Iterate(w, t, z, dual, rho, patience, at.k + 1, primal, change), at.rho * (m - z)


def _accuracy(at: Iterate) -> float:
    """The accuracy of an iterative w-step, in units of its gradient: well below the residuals."""
    return max(
        1e-3 * min(at.primal, at.change, 1.0) * float(np.abs(at.dual).max(initial=0.0)), 1e-14
    )
