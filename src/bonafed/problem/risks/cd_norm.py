"""The worst client weights near a prior, with a cap on each and a budget for all: the CD-norm.

    R(z) = max { q'z : |q_j - prior_j| <= bounds_j,  sum_j |q_j - prior_j| / bounds_j <= budget,  q
    >= 0,  sum q = 1 }

Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-EASE),
(18), where bounds are their p tilde and budget is their Gamma, with q >= 0 that (17) leaves out;
with unequal bounds one sort does not solve it (``solvers/sets/box_and_cd_norm.py``). budget = 0, or
bounds = 0, is ``Mean(prior)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.risk import (
    Names,
    PerClient,
    Prior,
    Sizes,
    entries,
    number,
    numbers,
    per_client,
    prior_for,
    resolve_prior,
)
from bonafed.problem.risks.weight_set import WeightSet
from bonafed.solvers.sets.box_and_cd_norm import cd_norm_usage, largest_in_cd_norm, project_cd_norm


@dataclass(frozen=True, eq=False)
class CDNorm(WeightSet):
    """Client weights that leave a prior by at most their bounds, and by few of these bounds
    together.

    Parameters
    ----------
    budget : number >= 0, how many clients may be at their bounds at once (halves count half); 0 is
        the mean, the number of clients or more leaves only the bounds
    bounds : how far each weight may be from its prior, >= 0: one number, one per client (N,), or a
        mapping by client name; 0 fixes the weight at the prior, so that a client of small prior and
        bound cannot become the worst case
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        a negative budget or bound; a prior that is not a probability vector (by ``at`` or at the
        first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.CDNorm(budget=1.0, bounds=0.2)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.233, 0.333, 0.433]
    """

    phrase: ClassVar[str] = (
        "weights at most {bounds} from the {prior:given} prior, {budget:#client} at that end"
    )
    budget: float
    bounds: PerClient
    prior: Prior = "uniform"

    def __post_init__(self) -> None:
        number(self.budget, "budget", "It counts clients at their bounds; for the mean use 0.")
        _nonnegative(numbers(entries(self.bounds), "bounds"))

    def at(self, sizes: Sizes, names: Names = None) -> CDNorm:
        bounds = _nonnegative(per_client(self.bounds, len(sizes), names, "bounds"))
        return replace(self, bounds=bounds, prior=resolve_prior(self.prior, sizes, names))

    def _largest(self, losses: Array) -> tuple[Array, float]:
        return largest_in_cd_norm(losses, *self._centre(len(losses)), float(self.budget))

    def _nearest(self, v: Array) -> Array:
        return project_cd_norm(v, *self._centre(len(v)), float(self.budget))

    def _holds(self, weights: Array, tol: float) -> bool:
        prior, bounds = self._centre(len(weights))
        off = np.maximum(np.abs(weights - prior) - tol, 0.0)
        most = self.budget * (1 + 1e-12)
        return bool((off <= bounds).all()) and cd_norm_usage(off, bounds) <= most

    def _centre(self, n: int) -> tuple[Array, Array]:
        return prior_for(self.prior, n), _nonnegative(per_client(self.bounds, n, None, "bounds"))


def _nonnegative(bounds: Array) -> Array:
    if (bounds < 0).any():
        raise ValueError(
            f"bounds must be >= 0, got {bounds.min():g}: 0 fixes a weight at its prior."
        )
    return bounds
