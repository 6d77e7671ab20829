"""Convex sets of weights: what follows from their worst case and their projection, and what balls
round a prior share.

value = q'z and weights = q at the worst q,    prox_{tR}(v) = v - t proj_Q(v / t)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from bonafed.arrays import Array
from bonafed.parameters import Parameters
from bonafed.problem.risks.risk import (
    Names,
    Prior,
    Sizes,
    Worst,
    number,
    prior_for,
    prox_by_moreau,
    resolve_prior,
    vector,
)


class WeightSet(Parameters, ABC):
    """A closed convex set of weights. A subclass defines ``at`` and the three methods with an
    underscore, whose arguments are checked vectors.
    """

    @abstractmethod
    def at(self, sizes: Sizes, names: Names = None) -> Self: ...

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """A maximiser q of losses'q over the set, and a number that no member exceeds."""
        raise NotImplementedError

    def _nearest(self, v: Array) -> Array:
        """The member nearest to v."""
        raise NotImplementedError

    def _holds(self, weights: Array, tol: float) -> bool:
        """Whether weights keep what the set asks beside the simplex, within ``tol``."""
        raise NotImplementedError

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        return attained(losses, *self._largest(losses))

    def project(self, v: Array) -> Array:
        return self._nearest(vector(v, "v"))

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        """Whether weights within ``tol`` of these, client by client, are in the set."""
        weights = vector(weights, "weights")
        return self._holds(weights, tol) and on_simplex(weights, tol)

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)


class Centred(WeightSet):
    """A set with a prior, which ``at`` makes an array."""

    prior: Prior

    def at(self, sizes: Sizes, names: Names = None) -> Self:
        stated: Any = self
        return replace(stated, prior=resolve_prior(self.prior, sizes, names))

    def _centre(self, v: Array) -> Array:
        """The prior, for as many clients as v has entries."""
        return prior_for(self.prior, len(v))


@dataclass(frozen=True)
class PriorBall(Centred):
    """Weights within a radius of a prior; a subclass says what is measured."""

    radius: float
    prior: Prior = "uniform"

    RADIUS: ClassVar[str]  # what a radius is

    def __post_init__(self) -> None:
        number(
            self.radius,
            "radius",
            f"It is {self.RADIUS}: for the mean use 0, for all client weights Simplex().",
        )


def on_simplex(weights: Array, tol: float) -> bool:
    """Whether weights are >= 0 and sum to one, within ``tol``."""
    return bool(weights.min() >= -tol and abs(weights.sum() - 1) <= tol)


def attained(losses: Array, q: Array, bound: float) -> Worst:
    """The worst case that q attains; a bound that rounding put below it is raised to it."""
    value = float(q @ losses)
    return Worst(value, q, max(bound, value))
