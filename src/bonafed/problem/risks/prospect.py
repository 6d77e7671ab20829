"""Human-aligned weights and the weights of cumulative prospect theory: the extremes count more than
the middle.

    human-aligned   w(t) = (3 - 3b) / (a^2 - a + 1) (3 t^2 - 2 (a + 1) t + a) + 1
    prospect        sigma_i = o_-(i/n) - o_-((i-1)/n)            where z_[i] <= B                (4)
                    sigma_i = o_+((n-i+1)/n) - o_+((n-i)/n)      where z_[i] >  B
                    o_+(p) = p^g / (p^g + (1-p)^g)^(1/g),        o_- with d for g                (5)

Xiao and others, *A unified framework for rank-based loss minimization*; equation numbers are
theirs. After Leqi, Prasad and Ravikumar, *On human-aligned risk minimization*, and Tversky and
Kahneman, *Advances in prospect theory*.

Deviation: the paper sets sigma_i = w(i/n), of the order n times too large; here sigma_i is the
integral of w over [(i-1)/n, i/n], S(t) = (3 - 3b) / (a^2 - a + 1) t (t - 1) (t - a) + t, as in its
(3), so that the weights sum to one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.parameters import Parameters
from bonafed.problem.risks.ranks import NonconvexByRank, prox_two_sided, two_sided, weights_by_rank
from bonafed.problem.risks.risk import Names, Sizes, vector


@dataclass(frozen=True)
class HumanAligned(NonconvexByRank):
    """Ranks weighed by a parabola that is least near t = (a + 1) / 3, and b there (for a in [-1,
    2], b <= 1).

    Parameters
    ----------
    a : where the S-shaped cumulative weight crosses the diagonal, usually in (0, 1)
    b : the least weight, in units of the mean's; 1 is the mean. Too far from 1, weights would be
        negative

    Raises
    ------
    ValueError
        for a, b whose weights are negative somewhere on [0, 1]

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.HumanAligned(a=0.4, b=0.3).value(losses)), 4)
    2.6199
    """

    phrase: ClassVar[str] = "a = {a}, b = {b}"
    a: float
    b: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.a) and math.isfinite(self.b)):
            raise ValueError(
                f"a and b must be finite, got a = {self.a}, b = {self.b}. A usual choice is a=0.4,"
                " b=0.3."
            )
        a, top = self.a, (self.a + 1) / 3
        ends = [3 * t * t - 2 * (a + 1) * t + a for t in (0.0, 1.0, min(max(top, 0.0), 1.0))]
        third = (a * a - a + 1) / 3
        least, most = 1 + third / min(ends), 1 + third / max(ends)
        if not least - 1e-12 <= self.b <= most * (1 + 1e-12):
            raise ValueError(
                f"the weights of a = {self.a}, b = {self.b} are negative somewhere. For this a use"
                f" b from {max(least, 0.0):.6g} to {most:.6g}; b = 1 is the mean."
            )

    def rank_weights(self, n: int) -> Array:
        bend, a = (3 - 3 * self.b) / (self.a**2 - self.a + 1), self.a
        hi, lo = np.arange(1, n + 1) / n, np.arange(n) / n
        # S(hi) - S(lo) divided by hi - lo = 1/n, so that nothing cancels
        gradient = hi * hi + hi * lo + lo * lo - (a + 1) * (hi + lo) + a
        return np.maximum((bend * gradient + 1) / n, 0.0)


@dataclass(frozen=True)
class ProspectTheory(Parameters):
    """Losses up to a reference weigh as gains do, those above it as losses do, in cumulative
    prospect theory.

    The weights of all ranks need not sum to one. At a loss equal to the reference the risk jumps;
    its value is the lower-semicontinuous one: of losses equal to it, so many take the weights below
    as weighs least.

    Parameters
    ----------
    gamma : the curvature of the weights above the reference, in [0.28, 1]; below, the cumulative
        weight would fall
    delta : that of the weights up to it; gamma = delta = 1 is the mean
    reference : in units of the loss, B in (4). (The paper compares z = -y <w, x> itself, whose
        logistic loss at -5 is the default)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.ProspectTheory(reference=2.0).value(losses)), 4)
    2.0468
    """

    gamma: float = 0.61
    delta: float = 0.69
    reference: float = math.log1p(math.exp(-5))
    convex: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("gamma", "delta"):
            if not 0.28 <= getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} must be in [0.28, 1], got {getattr(self, name)}: below it the"
                    " cumulative weight would fall, above it the extremes would count less. Usual"
                    " values are gamma=0.61, delta=0.69."
                )
        if not math.isfinite(self.reference):
            raise ValueError(
                f"reference must be a finite loss, got {self.reference}. For no reference use"
                " Mean()."
            )

    def at(self, sizes: Sizes, names: Names = None) -> ProspectTheory:
        return self

    def rank_weights_below(self, n: int) -> Array:
        """(n,) weights of ranks whose loss is at most the reference, ascending ranks."""
        return np.diff(_cumulative(np.arange(n + 1) / n, self.delta))

    def rank_weights_above(self, n: int) -> Array:
        """(n,) weights of ranks whose loss is above the reference, ascending ranks."""
        return np.diff(_cumulative(np.arange(n + 1) / n, self.gamma))[::-1].copy()

    def value(self, losses: Array) -> float:
        losses = vector(losses, "losses")
        return float(self.weights(losses) @ losses)

    def weights(self, losses: Array) -> Array:
        """The weights in the order of the losses (n,); equal losses share theirs equally."""
        losses = vector(losses, "losses")
        return weights_by_rank(two_sided(*self._both(len(losses)), self.reference, losses), losses)

    def prox(self, v: Array, step: float) -> Array:
        """argmin_z step R(z) + ||z - v||^2 / 2, exact though R is neither convex nor continuous."""
        v = vector(v, "v")
        return prox_two_sided(*self._both(len(v)), self.reference, v, step)

    def _both(self, n: int) -> tuple[Array, Array]:
        return self.rank_weights_below(n), self.rank_weights_above(n)


def _cumulative(p: Array, power: float) -> Array:
    """(5): o(p), from 0 to 1."""
    return p**power / (p**power + (1 - p) ** power) ** (1 / power)
