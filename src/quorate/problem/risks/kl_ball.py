"""The worst weighting within a Kullback-Leibler divergence of a prior.

    R(z) = max { q'z : sum_j q_j log(q_j / prior_j) <= radius,  q >= 0,  sum q = 1 }
         = min over s > 0   (radius + log sum_j prior_j exp(s z_j)) / s

The maximiser is the prior tilted by exp(s z), so that a client of small prior never gets none, and a large loss raises
a small prior by a large factor: this set is no protection against clients one does not trust (``CDNorm`` is). Clients
of prior 0 keep weight 0. radius = 0 is ``Mean(prior)``, -log(smallest prior) or more the maximum over clients of
positive prior. Hu and Hong, *Kullback-Leibler divergence constrained distributionally robust optimization*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quorate.arrays import Array
from quorate.problem.risks.given import number
from quorate.problem.risks.risk import Prior, Worst, prior_for, prox_by_moreau, resolve_prior, vector
from quorate.solvers.entropy_ball import divergence, largest_in_entropy_ball, project_entropy_ball


@dataclass(frozen=True)
class KLBall:
    """Client weights of which the divergence from a prior is at most ``radius``.

    Parameters
    ----------
    radius : number >= 0, in nats; 0 is the mean, log N with a uniform prior the maximum over clients
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or a mapping by name;
        a client of prior 0 has weight 0

    Raises
    ------
    ValueError
        radius < 0 or not finite; a prior that is no probability vector (by ``at`` or at the first use)
    """

    radius: float
    prior: Prior = "uniform"

    def __post_init__(self) -> None:
        number(self.radius, "radius", "It is a divergence: for the mean use 0, for all weightings Simplex().")

    def at(self, sizes: Sequence[int] | Array, names: Sequence[str] | None = None) -> KLBall:
        return replace(self, prior=resolve_prior(self.prior, sizes, names))

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def worst(self, losses: Array) -> Worst:
        """Equal losses share in proportion to their priors."""
        losses = vector(losses, None, "losses")
        q, bound = largest_in_entropy_ball(losses, prior_for(self.prior, len(losses)), float(self.radius))
        value = float(q @ losses)
        return Worst(value, q, max(bound, value))

    def project(self, v: Array) -> Array:
        v = vector(v, None, "v")
        return project_entropy_ball(v, prior_for(self.prior, len(v)), float(self.radius))

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        """Whether weights within ``tol`` of these, client by client, are in the set."""
        weights = vector(weights, None, "weights")
        prior = prior_for(self.prior, len(weights))
        q = np.where(prior > 0, np.maximum(weights, 0.0), 0.0)
        size = divergence(q, prior)  # convex: the share radius / size of the way from the prior is in the set
        off = (1 - self.radius / size) * float(np.abs(q - prior).max()) if size > self.radius else 0.0
        return bool(abs(weights.sum() - 1) <= tol and np.abs(weights - q).max() <= tol and off <= tol)
