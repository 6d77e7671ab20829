"""The worst client weights within a Kullback-Leibler divergence of a prior.

    R(z) = max { q'z : sum_j q_j log(q_j / prior_j) <= radius,  q >= 0,  sum q = 1 }
         = min over s > 0   (radius + log sum_j prior_j exp(s z_j)) / s

The maximiser is the prior tilted by exp(s z), so that a client of small prior never gets none, and
a large loss raises a small prior by a large factor: this set is not protection against clients one
does not trust (``CDNorm`` is). Clients of prior 0 keep weight 0. radius = 0 is ``Mean(prior)``,
-log(smallest prior) or more the maximum over clients of positive prior. Hu and Hong,
*Kullback-Leibler divergence constrained distributionally robust optimization*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.weight_set import PriorBall
from bonafed.solvers.sets.kl_ball import divergence, largest_in_entropy_ball, project_entropy_ball


@dataclass(frozen=True)
class KLBall(PriorBall):
    """Client weights of which the divergence from a prior is at most ``radius``.

    Parameters
    ----------
    radius : number >= 0, in nats; 0 is the mean, log N with a uniform prior the maximum over
        clients
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
    >>> risk = bf.KLBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.188, 0.268, 0.544]
    """

    phrase: ClassVar[str] = (
        "weights within a KL divergence of {radius} from the {prior:given} prior"
    )
    RADIUS: ClassVar[str] = "a divergence"

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share in proportion to their priors."""
        return largest_in_entropy_ball(losses, self._centre(losses), float(self.radius))

    def _nearest(self, v: Array) -> Array:
        return project_entropy_ball(v, self._centre(v), float(self.radius))

    def _holds(self, weights: Array, tol: float) -> bool:
        prior = self._centre(weights)
        q = np.where(prior > 0, np.maximum(weights, 0.0), 0.0)
        # convex: the share radius / size of the way from the prior is in the set
        size = divergence(q, prior)
        off = (
            (1 - self.radius / size) * float(np.abs(q - prior).max()) if size > self.radius else 0.0
        )
        return bool(np.abs(weights - q).max() <= tol and off <= tol)
