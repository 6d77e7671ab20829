"""The worst weighting within a chi-square divergence of a prior.

    R(z) = max { q'z : sum_j (q_j - prior_j)^2 / prior_j <= radius,  q >= 0,  sum q = 1 }

Where no weight meets 0 this is the mean and a share of the standard deviation of the losses under the prior,
prior'z + sqrt(radius) std(z): Duchi and Namkoong, *Variance-based regularization with convex objectives*. Clients of
prior 0 keep weight 0. radius = 0 is ``Mean(prior)``, 1 / (smallest prior) - 1 or more the maximum over clients of
positive prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.problem.risks.given import number
from quorate.problem.risks.risk import Prior, Worst, prior_for, prox_by_moreau, resolve_prior, vector
from quorate.solvers.ellipsoids import largest_in_ellipsoid, off_ellipsoid, project_ellipsoid


@dataclass(frozen=True)
class ChiSquareBall:
    """Client weights of which the chi-square divergence from a prior is at most ``radius``.

    Parameters
    ----------
    radius : number >= 0, the mean square of weight / prior - 1 under the prior; 0 is the mean, N - 1 with a uniform
        prior the maximum over clients
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

    def at(self, sizes: Sequence[int] | Array, names: Sequence[str] | None = None) -> ChiSquareBall:
        return replace(self, prior=resolve_prior(self.prior, sizes, names))

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def worst(self, losses: Array) -> Worst:
        """Equal losses share in proportion to their priors."""
        losses = vector(losses, None, "losses")
        inside, prior = self._support(len(losses))
        q, bound = np.zeros(len(losses)), 0.0
        q[inside], bound = largest_in_ellipsoid(losses[inside], prior, prior, float(self.radius))
        value = float(q @ losses)
        return Worst(value, q, max(bound, value))

    def project(self, v: Array) -> Array:
        v = vector(v, None, "v")
        inside, prior = self._support(len(v))
        q = np.zeros(len(v))
        q[inside] = project_ellipsoid(v[inside], prior, prior, float(self.radius))
        return q

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        """Whether weights within ``tol`` of these, client by client, are in the set."""
        weights = vector(weights, None, "weights")
        inside, prior = self._support(len(weights))
        off = off_ellipsoid(weights[inside] - prior, prior, float(self.radius))
        outside = float(np.abs(weights[~inside]).max(initial=0.0))
        return bool(weights.min() >= -tol and abs(weights.sum() - 1) <= tol and max(off, outside) <= tol)

    def _support(self, n: int) -> tuple[NDArray[np.bool_], Array]:
        """Where the prior is positive, and the prior there."""
        prior = prior_for(self.prior, n)
        return prior > 0, prior[prior > 0]
