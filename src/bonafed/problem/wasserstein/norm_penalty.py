"""A Wasserstein ball whose worst case is a norm of the model, as a regulariser.

On all of R^n, where labels do not move, a convex Lipschitz loss has

    R_s(w) = mean_i loss(<w, x_i>, y_i) + radius_s Lip ||w||_*

(Shafieezadeh-Abadeh, Kuhn, Mohajerin Esfahani, *Regularization via mass transportation*, 2019). So
the worst case is the mean over the rows plus a function of the model and of declared numbers only,
and anyone who minimises a mean with a regulariser minimises it.

*Proof.* A plan that moves row i by D_i with E ||D|| <= r gains at most L |<w, D>| <= L ||w||_*
||D|| a unit of mass, which shows <=. For >= let w != 0, ||v|| = 1 and <w, v> = ||w||_*. The slopes
of a convex function whose Lipschitz constant is L come as near to L as one likes in one of its two
tails: for every e > 0 there are a sign and a number c with loss(p + sign t, y) - loss(p, y) >= (L -
e) t - c for all t >= 0, p = <w, x_i> + b. Move the share q of one row by sign (r / q) v: that costs
r, and gains at least (L - e) r ||w||_* - q c. Let q go to 0, then e.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.arrays import DUAL, Array, norm
from bonafed.parameters import Parameters
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, ElasticNet, Regulariser, Zero
from bonafed.problem.risks.weight_sets import Mean
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
