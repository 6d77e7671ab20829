"""The worst client weights within a distance in total variation of a prior.

    R(z) = max { q'z : sum_j |q_j - prior_j| / 2 <= radius,  q >= 0,  sum q = 1 }

radius is the mass that may move: 0 is ``Mean(prior)``, 1 is ``Simplex()``; the same set as
``LpBall(2 radius, p=1)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.weight_set import PriorBall
from bonafed.solvers.sets.projections import largest_over_lp_ball, project_lp_ball


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
