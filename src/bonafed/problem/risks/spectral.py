"""Spectral risks: losses weighed by rank, larger ones never less, so that R is convex.

    R(z) = sum_i sigma_i z_[i],  sigma_i = S(i / n) - S((i - 1) / n),
            S the integral of an ascending spectrum

    extremile              S(t) = t^r                           r = 1 the mean, r -> inf the maximum
    exponential spectral  S(t) = (e^(rho t) - 1) / (e^rho - 1)
            rho -> 0 the mean, rho -> inf the maximum
    maximum                S(t) = 1 at t = 1 only
    top k                the mean of the k largest                 k = n the mean, k = 1 the maximum

and any weights. Acerbi, *Spectral measures of risk*; Daouia, Gijbels and Stupfler,
*Extremiles*; Cotter and Dowd, *Extreme spectral risk measures*; Fan, Lyu, Ying and Hu, *Learning
with average top-k loss*. Over clients each is the worst over the permutahedron of sigma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array
from bonafed.problem.risks.ranks import (
    ByRank,
    ConvexByRank,
    enough,
    in_permutahedron,
    project_permutahedron,
    prox_by_rank,
    worst_by_rank,
)
from bonafed.problem.risks.risk import Worst, prox_by_moreau, vector
from bonafed.solvers.sets.projections import EPS


@dataclass(frozen=True, eq=False)
class Spectral(ByRank):
    """Any weights by rank.

    Parameters
    ----------
    weights : (n,) nonnegative, summing to one, the first for the smallest loss. Where they ascend
        the risk is convex; others are for methods that take nonconvex risks over samples

    Raises
    ------
    ValueError
        weights that are negative, not finite, or off a sum of one by more than 1e-9; a number of
        losses other than n; ``worst``, ``project`` and ``contains`` where the weights do not ascend

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Spectral([0.2, 0.3, 0.5]).value(losses)), 4)
    2.8
    """

    sigma: Array

    def __init__(
        self, weights: ArrayLike
    ) -> None:  # an attribute ``weights`` would hide the method
        sigma = vector(weights, "weights")
        if sigma.min() < 0:
            raise ValueError(
                f"weights must be >= 0, got {sigma.min():g}. A rank that shall not count gets"
                " weight 0."
            )
        if abs(sigma.sum() - 1) > 1e-9:
            raise ValueError(
                f"weights must sum to one, got {sigma.sum():.12g}: divide them by their sum."
            )
        # weights that were divided before keep their bits, so that copies are equal
        total = float(sigma.sum())
        sigma = sigma / (total if abs(total - 1) > len(sigma) * EPS else 1.0)
        sigma.setflags(write=False)
        object.__setattr__(self, "sigma", sigma)

    @property
    def convex(self) -> bool:
        """Whether larger losses never weigh less."""
        return bool((np.diff(self.sigma) >= 0).all())

    def rank_weights(self, n: int) -> Array:
        if n != len(self.sigma):
            raise ValueError(
                f"Spectral holds weights for {len(self.sigma)} losses, got {n}: give one weight for"
                " each loss, or a risk for any number, such as Superquantile(0.1)."
            )
        return self.sigma.copy()

    def worst(self, losses: Array) -> Worst:
        return worst_by_rank(self._ascending(len(losses)), losses)

    def project(self, v: Array) -> Array:
        return project_permutahedron(vector(v, "v"), self._ascending(len(v)))

    def prox(self, v: Array, step: float) -> Array:
        if self.convex:
            return prox_by_moreau(self, v, step)
        return prox_by_rank(self.rank_weights(len(v)), vector(v, "v"), step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        return in_permutahedron(vector(weights, "weights"), self._ascending(len(weights)), tol)

    def _ascending(self, n: int) -> Array:
        if not self.convex:
            raise ValueError(
                "the weights of this Spectral fall from rank"
                f" {int(np.argmin(np.diff(self.sigma))) + 1} to the next, so that it is not convex"
                " and has no worst case over a set of weights. Use weights that ascend, or value,"
                " weights and prox only."
            )
        return self.rank_weights(n)


@dataclass(frozen=True)
class Extremile(ConvexByRank):
    """The mean of the largest of r independent draws of a loss, for integer r; between them for
    others.

    Parameters
    ----------
    r : number >= 1; 1 is the mean, -> inf the maximum

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Extremile(r=2.0).value(losses)), 4)
    3.0
    """

    phrase: ClassVar[str] = "r = {r}"
    r: float

    def __post_init__(self) -> None:
        if not 1 <= self.r < math.inf:
            raise ValueError(
                f"r must be a number >= 1, got {self.r}: below it small losses would weigh most. "
                "For the mean use 1, for the maximum Maximum()."
            )

    def rank_weights(self, n: int) -> Array:
        i = np.arange(2, n + 1)  # (i/n)^r - ((i-1)/n)^r without cancellation
        drop = np.append(-1.0, np.expm1(self.r * np.log1p(-1.0 / i)))
        return _ascending(-drop * (np.arange(1, n + 1) / n) ** self.r)


@dataclass(frozen=True)
class ExponentialSpectral(ConvexByRank):
    """Weights that grow exponentially with the rank, by e^rho from the smallest loss to the
    largest.

    Parameters
    ----------
    rho : number > 0, the growth; -> 0 is the mean, -> inf the maximum

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.ExponentialSpectral(rho=1.0).value(losses)), 4)
    2.6666
    """

    phrase: ClassVar[str] = "rho = {rho}"
    rho: float

    def __post_init__(self) -> None:
        if not 0 < self.rho < math.inf:
            raise ValueError(f"rho must be a number > 0, got {self.rho}. For the mean use Mean().")

    def rank_weights(self, n: int) -> Array:
        share = math.expm1(-self.rho / n) / math.expm1(-self.rho)
        return _ascending(share * np.exp(-self.rho * (np.arange(n)[::-1] / n)))


@dataclass(frozen=True)
class Maximum(ConvexByRank):
    """The largest loss; over clients the same as ``Simplex()``.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Maximum().value(losses)), 4)
    4.0
    """

    def rank_weights(self, n: int) -> Array:
        return np.append(np.zeros(n - 1), 1.0)


@dataclass(frozen=True)
class TopK(ConvexByRank):
    """The mean of the k largest losses.

    Parameters
    ----------
    k : number of losses, an integer >= 1; 1 is the maximum, all of them the mean. For a share use
        ``Superquantile``

    Raises
    ------
    ValueError
        k < 1, or at the first use k above the number of losses

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.TopK(k=2).value(losses)), 4)
    3.0
    """

    phrase: ClassVar[str] = "mean of the {k} largest"
    k: int

    def __post_init__(self) -> None:
        if self.k < 1 or self.k != int(self.k):
            raise ValueError(
                f"k must be an integer >= 1, got {self.k}. For a share use Superquantile(tail)."
            )

    def rank_weights(self, n: int) -> Array:
        enough(n, self.k, f"{self}")
        return np.append(np.zeros(n - self.k), np.full(self.k, 1.0 / self.k))


def _ascending(sigma: Array) -> Array:
    """sigma without the falls that rounding leaves: at r = 1 all weights are 1/n up to rounding."""
    return np.maximum.accumulate(sigma)
