"""The superquantile, or conditional value at risk: the mean of the worst share ``tail`` of the
losses.

    R(z) = max { q'z : q in the simplex, q <= prior / tail } = min_t  t + sum_i prior_i max(z_i - t,
    0) / tail

Rockafellar and Uryasev, *Optimization of conditional value-at-risk*. tail = 1 is ``Mean(prior)``,
and tail -> 0 is the maximum of the losses of positive prior, reached at the smallest of these
priors. With equal priors the spectrum is 1 / tail on (1 - tail, 1]: by ascending rank, sigma_{n-j}
= min(max(n tail - j, 0), 1) / (n tail).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.risk import Prior, prior_for
from bonafed.problem.risks.weight_set import Centred
from bonafed.solvers.sets.projections import EPS, largest_under_caps, project_under_caps


@dataclass(frozen=True)
class Superquantile(Centred):
    """The mean of the worst losses.

    Parameters
    ----------
    tail : share of the losses averaged, the largest ones, in (0, 1]; 1 is the mean, -> 0 the
        maximum. Where the share ends within a loss, that loss counts with its fraction
    prior : over clients: "uniform", "size" (in proportion to the clients' rows), weights (N,) that
        sum to one, or a mapping by name. Over samples: "uniform" only

    Raises
    ------
    ValueError
        tail outside (0, 1]; a prior that is not a probability vector (by ``at`` or at the first
        use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> (
    ...     float(bf.Superquantile(tail=1 / 3).value(losses)),
    ...     float(bf.Superquantile(tail=2 / 3).value(losses)),
    ... )
    (4.0, 3.0)
    """

    phrase: ClassVar[str] = "mean of the largest {tail:%}"
    tail: float
    prior: Prior = "uniform"
    convex = True

    def __post_init__(self) -> None:
        if not 0 < self.tail <= 1:
            raise ValueError(
                f"tail must be in (0, 1], got {self.tail}: it is the share of the largest losses"
                " that is averaged. For the mean use 1, for the maximum Maximum()."
            )

    def caps(self, n: int) -> Array:
        """prior / tail, (n,): the most that each of n losses may weigh."""
        return prior_for(self.prior, n) / self.tail

    def rank_weights(self, n: int) -> Array:
        """sigma (n,), ascending ranks; ``ValueError`` for a prior that weighs losses
        differently.
        """
        if not isinstance(self.prior, str) or self.prior != "uniform":
            prior = prior_for(self.prior, n)
            if np.ptp(prior) > 8 * EPS:
                raise ValueError(
                    f"rank weights need the prior 'uniform', got {self.prior!r}: a loss that counts"
                    " more than another has no weight by rank only. Over samples repeat rows"
                    " instead."
                )
        mass = n * self.tail
        mass = float(round(mass)) if abs(mass - round(mass)) <= 4 * EPS * mass else mass
        return np.clip(mass - np.arange(n, dtype=float)[::-1], 0.0, 1.0) / mass

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share in proportion to their priors."""
        return largest_under_caps(losses, self.caps(len(losses)))

    def _nearest(self, v: Array) -> Array:
        return project_under_caps(v, self.caps(len(v)))

    def _holds(self, weights: Array, tol: float) -> bool:
        return float((weights - self.caps(len(weights))).max()) <= tol
