"""The worst weighting within a distance in total variation of a prior.

    R(z) = max { q'z : sum_j |q_j - prior_j| / 2 <= radius,  q >= 0,  sum q = 1 }

radius is the mass that may move: 0 is ``Mean(prior)``, 1 is ``Simplex()``; the same set as ``LpBall(2 radius, p=1)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quorate.arrays import Array
from quorate.problem.risks.given import number
from quorate.problem.risks.risk import Prior, Worst, prior_for, prox_by_moreau, resolve_prior, vector
from quorate.solvers.projections import largest_over_lp_ball, project_lp_ball


@dataclass(frozen=True)
class TotalVariationBall:
    """Client weights of which at most the mass ``radius`` is elsewhere than in the prior.

    Parameters
    ----------
    radius : number >= 0; 0 is the mean, 1 or more the maximum over clients
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite; a prior that is no probability vector (by ``at`` or at the first use)
    """

    radius: float
    prior: Prior = "uniform"

    def __post_init__(self) -> None:
        number(self.radius, "radius", "It is a share of the weight: for the mean use 0, for all weightings Simplex().")

    def at(self, sizes: Sequence[int] | Array, names: Sequence[str] | None = None) -> TotalVariationBall:
        return replace(self, prior=resolve_prior(self.prior, sizes, names))

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def worst(self, losses: Array) -> Worst:
        """Mass moves from the smallest losses to the largest; equal losses give and take alike."""
        losses = vector(losses, None, "losses")
        q, bound = largest_over_lp_ball(losses, prior_for(self.prior, len(losses)), 2.0 * self.radius, 1.0)
        value = float(q @ losses)
        return Worst(value, q, max(bound, value))

    def project(self, v: Array) -> Array:
        v = vector(v, None, "v")
        return project_lp_ball(v, prior_for(self.prior, len(v)), 2.0 * self.radius, 1.0)

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        weights = vector(weights, None, "weights")
        moved = float(np.abs(weights - prior_for(self.prior, len(weights))).sum()) / 2
        return bool(weights.min() >= -tol and abs(weights.sum() - 1) <= tol and moved <= self.radius + tol)
