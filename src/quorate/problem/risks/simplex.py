"""The largest loss  R(z) = max_{q >= 0, sum q = 1} q'z = max_i z_i  (agnostic federated learning
over clients).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from quorate.arrays import Array, compact
from quorate.client_names import ClientName
from quorate.problem.risks.risk import Worst, prox_by_moreau, vector


@dataclass(frozen=True)
class Simplex:
    """The maximum of the losses; equal maxima share the weight equally."""

    phrase: ClassVar[str] = "any weights"

    def at(
        self, sizes: Sequence[int] | Array, names: Sequence[ClientName] | None = None
    ) -> Simplex:
        return self

    def value(self, losses: Array) -> float:
        return float(vector(losses, None, "losses").max())

    def weights(self, losses: Array) -> Array:
        losses = vector(losses, None, "losses")
        largest = losses == losses.max()
        return largest / largest.sum()

    def worst(self, losses: Array) -> Worst:
        value = self.value(losses)
        return Worst(value, self.weights(losses), value)

    def project(self, v: Array) -> Array:
        from quorate.solvers.sets.simplex_kernel import onto_simplex

        return onto_simplex(compact(vector(v, None, "v")), 1.0)

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        weights = vector(weights, None, "weights")
        return bool(weights.min() >= -tol and abs(weights.sum() - 1) <= tol)
