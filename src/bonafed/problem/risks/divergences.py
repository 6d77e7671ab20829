"""The worst client weights within a divergence of a prior.

    R(z) = max { q'z : D(q, prior) <= radius,  q >= 0,  sum q = 1 }

    KL                 sum_j q_j log(q_j / prior_j)
    chi-square         sum_j (q_j - prior_j)^2 / prior_j
    total variation    sum_j |q_j - prior_j| / 2

radius = 0 is ``Mean(prior)``. Under KL and chi-square clients of prior 0 keep weight 0, and a
radius of -log(smallest prior), or 1 / (smallest prior) - 1, is the maximum over clients of positive
prior.

KL: R(z) = min over s > 0 (radius + log sum_j prior_j exp(s z_j)) / s, and the maximiser is the
prior tilted by exp(s z). So a client of small prior never gets none, and a large loss raises a
small prior by a large factor: this set is not protection against clients one does not trust
(``CDNorm`` is). Hu and Hong, *Kullback-Leibler divergence constrained distributionally robust
optimization*.

Chi-square: where no weight meets 0 this is the mean and a share of the standard deviation of the
losses under the prior, prior'z + sqrt(radius) std(z). Duchi and Namkoong, *Variance-based
regularization with convex objectives*.

Total variation: radius is the mass that may move, 1 is ``Simplex()``; the same set as
``LpBall(2 radius, p=1)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.weight_set import PriorBall
from bonafed.solvers.sets.ellipsoids import largest_in_ellipsoid, off_ellipsoid, project_ellipsoid
from bonafed.solvers.sets.kl_ball import divergence, largest_in_entropy_ball, project_entropy_ball
from bonafed.solvers.sets.projections import largest_over_lp_ball, project_lp_ball


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


@dataclass(frozen=True)
class TotalVariationBall(PriorBall):
    """Client weights of which at most the mass ``radius`` is elsewhere than in the prior.

    Parameters
    ----------
    radius : number >= 0; 0 is the mean, 1 or more the maximum over clients
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

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
    >>> risk = bf.TotalVariationBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.233, 0.333, 0.433]
    """

    phrase: ClassVar[str] = (
        "weights within a total variation of {radius} from the {prior:given} prior"
    )
    RADIUS: ClassVar[str] = "a share of the weight"

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Mass moves from the smallest losses to the largest; equal losses give and take alike."""
        return largest_over_lp_ball(losses, self._centre(losses), 2.0 * self.radius, 1.0)

    def _nearest(self, v: Array) -> Array:
        return project_lp_ball(v, self._centre(v), 2.0 * self.radius, 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        moved = float(np.abs(weights - self._centre(weights)).sum()) / 2
        return moved <= self.radius + tol
