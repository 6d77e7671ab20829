"""The largest loss  R(z) = max_{q >= 0, sum q = 1} q'z = max_i z_i  (agnostic federated learning
over clients).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bonafed.arrays import Array, compact
from bonafed.problem.risks.risk import Names, Sizes, Worst, vector
from bonafed.problem.risks.weight_set import WeightSet


@dataclass(frozen=True)
class Simplex(WeightSet):
    """The maximum of the losses; equal maxima share the weight equally.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Simplex()
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.0, 0.0, 1.0]
    """

    phrase: ClassVar[str] = "any weights"

    def at(self, sizes: Sizes, names: Names = None) -> Simplex:
        return self

    def _largest(self, losses: Array) -> tuple[Array, float]:
        value = losses.max()
        largest = losses == value
        return largest / largest.sum(), float(value)

    def worst(self, losses: Array) -> Worst:
        weights, value = self._largest(vector(losses, "losses"))
        return Worst(value, weights, value)

    def _nearest(self, v: Array) -> Array:
        from bonafed.solvers.sets.simplex_kernel import onto_simplex

        return onto_simplex(compact(v), 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        return True
