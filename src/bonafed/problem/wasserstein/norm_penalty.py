"""A Wasserstein ball whose worst case is a norm of the model, as a regulariser.

On all of R^n, where labels do not move, a convex Lipschitz loss has

    R_s(w) = mean_i loss(<w, x_i>, y_i) + radius_s Lip ||w||_*

(Shafieezadeh-Abadeh, Kuhn, Mohajerin Esfahani, *Regularization via mass transportation*, 2019). So
the worst case is the mean over the rows plus a function of the model and of declared numbers only,
and anyone who minimises a mean with a regulariser minimises it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.arrays import DUAL, Array, norm
from bonafed.parameters import Parameters
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, ElasticNet, Regulariser, Zero
from bonafed.problem.risks.mean import Mean
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solvers.sets.projections import project_lp_unit_ball, soft_threshold


@dataclass(frozen=True)
class NormPenalty(Parameters):
    """h(w) + price ||w||_kind, for h = Zero, L1, L2 or ElasticNet (with "l1" only if it has l1)."""

    regulariser: Any
    price: float
    kind: str
    weak_convexity = 0.0

    @property
    def strong_convexity(self) -> float:
        return self.regulariser.strong_convexity

    def value(self, w: Array) -> float:
        return self.regulariser.value(w) + self.price * float(norm(w, self.kind))

    def prox(self, v: Array, step: float | Array) -> Array:
        """Of the norm first, then of h: the two commute where both are norms and squares."""
        price = np.asarray(step) * self.price
        if self.kind == "l1":
            near = soft_threshold(v, price)
        elif self.price == 0:
            near = v
        elif self.kind == "l2":
            length = float(np.linalg.norm(v))
            near = v * max(1 - float(price) / length, 0.0) if length > 0 else v
        else:
            near = v - float(price) * project_lp_unit_ball(v / float(price), 1.0)
        return self.regulariser.prox(near, step)

    def domain_radius(self, level: float, size: int) -> float:
        least = {"l1": 1.0, "l2": 1.0, "linf": 1 / math.sqrt(size)}[self.kind] * self.price
        alone = max(level, 0.0) / least if least > 0 else math.inf
        return min(alone, self.regulariser.domain_radius(level, size))


def is_norm_penalty(problem: Problem) -> bool:
    """Whether the problem's worst case is a norm, and its prox with h is known.

    Of several classes it is the largest norm of a difference, of classes that clients have.
    """
    ball, h = problem.over_samples, problem.regulariser
    if not isinstance(ball, WassersteinBall) or ball.is_auto:
        return False
    plain = ball.support is None and math.isinf(ball.label_cost) and problem.joint_cuts
    known = isinstance(h, Zero | L2) or (isinstance(h, L1 | ElasticNet) and DUAL[ball.norm] == "l1")
    return plain and known and math.isfinite(problem.loss.lipschitz)


def without_ball(problem: Problem, weights: Array) -> Problem:
    """The same objective as a mean with a regulariser, for these weights (N,) of the clients."""
    ball, h = problem.over_samples, problem.regulariser
    if not isinstance(ball, WassersteinBall):
        return problem
    price = problem.loss.lipschitz * float(weights @ sample_radii(problem, len(weights)))
    penalty: Regulariser = NormPenalty(h, price, DUAL[ball.norm])
    return replace(problem, over_samples=Mean(), regulariser=penalty)
