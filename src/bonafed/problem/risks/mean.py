"""The weighted mean  R(z) = sum_i q_i z_i  (its set of weights is the single point q), and the
plain sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from bonafed.arrays import Array, Label
from bonafed.client_names import ClientName, by_position
from bonafed.problem.risks.risk import (
    Names,
    Prior,
    Sizes,
    Worst,
    vector,
)
from bonafed.problem.risks.weight_set import Centred, WeightSet
from bonafed.solvers.sets.projections import EPS

R = TypeVar("R")


@dataclass(frozen=True)
class Mean(Centred):
    """The mean of the losses.

    Parameters
    ----------
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name
    label : over samples, the class whose rows are the only ones averaged, as in Neyman-Pearson
        classification; a client without such rows has the mean 0. None: all rows

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Mean().value(losses)), 4)
    2.3333
    """

    prior: Prior = "uniform"
    label: Label | None = None
    code: float | None = None  # of the label, once ``problem.at(fed)`` has seen the classes

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        q = self._nearest(losses)
        value = float(q @ losses)
        return Worst(value, q, value + 32 * EPS * float(q @ np.abs(losses)))

    def weights(self, losses: Array) -> Array:
        return self.project(losses)

    def _nearest(self, v: Array) -> Array:
        return self._centre(v).copy()

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        return bool(np.abs(weights - self.project(weights)).max() <= tol)


def among(risk: R, names: Sequence[ClientName], declared: object) -> R:
    """A mean with weights by name, of these clients only and scaled; of ``declared`` clients some
    may have no rows.
    """
    if not (isinstance(risk, Mean) and isinstance(declared, Mapping)):
        return risk
    prior = risk.prior
    if not isinstance(prior, Mapping) or not (
        {*map(str, names)} < {*map(str, prior)} == {*map(str, declared)}
    ):
        return risk
    weights = [float(q) for q in by_position(prior, names, "prior", others=True).values()]
    total = sum(weights)
    return replace(risk, prior=np.array(weights) / total) if total > 0 else risk


@dataclass(frozen=True)
class Sum(WeightSet):
    """The sum of the losses, for problems stated without 1/N; its only weights are ones.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Sum().value(losses)), 4)
    7.0
    """

    def at(self, sizes: Sizes, names: Names = None) -> Sum:
        return self

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        value = float(losses.sum())
        return Worst(value, np.ones_like(losses), value + 32 * EPS * float(np.abs(losses).sum()))

    def _nearest(self, v: Array) -> Array:
        return np.ones_like(v)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        return bool(np.abs(vector(weights, "weights") - 1.0).max() <= tol)
