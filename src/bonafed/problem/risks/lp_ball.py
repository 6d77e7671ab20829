"""The worst client weights within an lp-ball round a prior.

    R(z) = max { q'z : q >= 0, sum q = 1, ||q - prior||_p <= radius }

Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*, (3) with the dual (4); p is
theirs (the norm on the weights), ``radius`` their theta. radius = 0 is ``Mean(prior)``, a radius >=
2 (any p) is ``Simplex()``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bonafed.arrays import Array
from bonafed.problem.risks.risk import Prior, number
from bonafed.problem.risks.weight_set import Centred
from bonafed.solvers.sets.projections import (
    dual_exponent,
    largest_over_lp_ball,
    lp_norm,
    project_lp_ball,
)


@dataclass(frozen=True)
class LpBall(Centred):
    """Client weights within ``radius`` of a prior, in the lp-norm.

    Parameters
    ----------
    radius : number >= 0, in units of the weights; 0 is the mean, large the maximum over clients
    p : in [1, inf]. 1: half the radius is the mass that may move; inf: the most any single weight
        may change
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite, p < 1; a prior that is not a probability vector (by ``at`` or at
        the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.LpBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.272, 0.318, 0.41]
    """

    phrase: ClassVar[str] = "weights within {radius} of the {prior:given} prior, l{p} norm"
    radius: float
    p: float = 2.0
    prior: Prior = "uniform"

    def __post_init__(self) -> None:
        number(self.radius, "radius", "For the mean use 0, for all client weights Simplex().")
        dual_exponent(self.p)

    def _largest(self, losses: Array) -> tuple[Array, float]:
        return largest_over_lp_ball(losses, self._centre(losses), self.radius, self.p)

    def _nearest(self, v: Array) -> Array:
        return project_lp_ball(v, self._centre(v), self.radius, self.p)

    def _holds(self, weights: Array, tol: float) -> bool:
        off = lp_norm(weights - self._centre(weights), self.p)
        return bool(off <= self.radius + tol)
