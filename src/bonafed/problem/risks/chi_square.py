"""The worst client weights within a chi-square divergence of a prior.

    R(z) = max { q'z : sum_j (q_j - prior_j)^2 / prior_j <= radius,  q >= 0,  sum q = 1 }

Where no weight meets 0 this is the mean and a share of the standard deviation of the losses under
the prior, prior'z + sqrt(radius) std(z): Duchi and Namkoong, *Variance-based regularization with
convex objectives*. Clients of prior 0 keep weight 0. radius = 0 is ``Mean(prior)``, 1 / (smallest
prior) - 1 or more the maximum over clients of positive prior.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.weight_set import PriorBall
from bonafed.solvers.sets.ellipsoids import largest_in_ellipsoid, off_ellipsoid, project_ellipsoid


@dataclass(frozen=True)
class ChiSquareBall(PriorBall):
    """Client weights of which the chi-square divergence from a prior is at most ``radius``.

    Parameters
    ----------
    radius : number >= 0, the mean square of weight / prior - 1 under the prior; 0 is the mean, N -
        1 with a uniform prior the maximum over clients
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name; a client of prior 0 has weight 0

    Raises
    ------
    ValueError
        radius < 0 or not finite; a prior that is not a probability vector (by ``at`` or at the
        first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.ChiSquareBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.221, 0.305, 0.474]
    """

    phrase: ClassVar[str] = (
        "weights within a chi-square distance of {radius} from the {prior:given} prior"
    )
    RADIUS: ClassVar[str] = "a divergence"

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share in proportion to their priors."""
        prior, q = self._centre(losses), np.zeros(len(losses))
        inside = prior > 0
        p = prior[inside]
        q[inside], bound = largest_in_ellipsoid(losses[inside], p, p, float(self.radius))
        return q, bound

    def _nearest(self, v: Array) -> Array:
        prior, q = self._centre(v), np.zeros(len(v))
        inside = prior > 0
        p = prior[inside]
        q[inside] = project_ellipsoid(v[inside], p, p, float(self.radius))
        return q

    def _holds(self, weights: Array, tol: float) -> bool:
        prior = self._centre(weights)
        inside = prior > 0
        off = off_ellipsoid((weights - prior)[inside], prior[inside], float(self.radius))
        outside = float(np.abs(weights[~inside]).max(initial=0.0))
        return bool(max(off, outside) <= tol)
