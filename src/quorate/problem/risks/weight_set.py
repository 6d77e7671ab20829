"""Convex sets of weights: what their worst case and their projection imply, and what balls round a
prior share.

value = q'z and weights = q at the worst q,    prox_{tR}(v) = v - t proj_Q(v / t)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from quorate.arrays import Array
from quorate.client_names import ClientName
from quorate.problem.risks.inputs import number
from quorate.problem.risks.risk import (
    Prior,
    Worst,
    prior_for,
    prox_by_moreau,
    resolve_prior,
    vector,
)


class WeightSet(ABC):
    """A set that is stated by worst case, projection and membership; no final class overrides what
    is here.
    """

    @abstractmethod
    def at(
        self, sizes: Sequence[int] | Array, names: Sequence[ClientName] | None = None
    ) -> Self: ...

    @abstractmethod
    def worst(self, losses: Array) -> Worst: ...

    @abstractmethod
    def project(self, v: Array) -> Array: ...

    @abstractmethod
    def contains(self, weights: Array, tol: float = 1e-9) -> bool: ...

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)


@dataclass(frozen=True)
class PriorBall(WeightSet):
    """Weights within a radius of a prior; a final class says what is measured and solves for given
    priors.
    """

    radius: float
    prior: Prior = "uniform"

    RADIUS: ClassVar[str]  # what a radius is

    def __post_init__(self) -> None:
        number(
            self.radius,
            "radius",
            f"It is {self.RADIUS}: for the mean use 0, for all weightings Simplex().",
        )

    def at(self, sizes: Sequence[int] | Array, names: Sequence[ClientName] | None = None) -> Self:
        return replace(self, prior=resolve_prior(self.prior, sizes, names))

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, None, "losses")
        return attained(losses, *self._largest(losses, prior_for(self.prior, len(losses))))

    def project(self, v: Array) -> Array:
        v = vector(v, None, "v")
        return self._nearest(v, prior_for(self.prior, len(v)))

    @abstractmethod
    def _largest(self, losses: Array, prior: Array) -> tuple[Array, float]:
        """A maximiser of losses'q and an upper bound."""

    @abstractmethod
    def _nearest(self, v: Array, prior: Array) -> Array: ...


def attained(losses: Array, q: Array, bound: float) -> Worst:
    """The worst case that q attains; a bound that rounding put below it is raised to it."""
    value = float(q @ losses)
    return Worst(value, q, max(bound, value))
