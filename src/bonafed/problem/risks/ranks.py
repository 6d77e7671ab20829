"""Risks that weigh losses by their rank: what they share.

    R(z) = sum_i sigma_i z_[i],    z_[1] <= ... <= z_[n],    sigma_i = S(i / n) - S((i - 1) / n)

sigma_1 belongs to the SMALLEST loss; S is the cumulative spectrum on [0, 1], S(0) = 0, S(1) = 1,
and the differences are exact, so that tails and quantiles that end within a rank get its fraction.
Source: Xiao and others, *A unified framework for rank-based loss minimization*, (2), (3); after
Acerbi, *Spectral measures of risk*. Where sigma ascends, R is the support function of the
permutahedron of sigma, conv {sigma in any order}, and convex; else it is not.

    prox_R(v): v sorted ascending, then  min_{z_1 <= ... <= z_n}  sum_i sigma_i z_i + (z_i - v_i)^2
    / 2

is the isotonic regression of v - sigma (``solvers/rank/proxes.py``), for ascending sigma and for
any other: R is the same for any order of its arguments, so that a minimiser is sorted as v is. A
loss that falls with its argument (a margin, say) ranks its arguments the other way round: their
weights are ``risk.rank_weights(n)[::-1]``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.parameters import Parameters
from bonafed.problem.risks.risk import Names, Sizes, Worst, nonnegative, prox_by_moreau, vector
from bonafed.solvers.rank.proxes import LINEAR, Kernel, prospect_prox, rank_prox
from bonafed.solvers.sets.projections import EPS


def two_sides(risk: object) -> bool:
    """Whether a risk has a reference, below and above which ranks have separate weights."""
    return hasattr(risk, "rank_weights_below")


def order_of(losses: Array) -> NDArray[np.intp]:
    """The positions of the losses in ascending order; equal ones as they come."""
    return np.argsort(losses, kind="stable")


def weights_by_rank(sigma: Array, losses: Array) -> Array:
    """sigma (n,) in the order of the losses (n,); equal losses share the weights of their ranks
    equally.
    """
    order = order_of(losses)
    ascending = losses[order]
    starts = np.flatnonzero(np.append(True, ascending[1:] > ascending[:-1]))
    counts = np.diff(np.append(starts, len(losses)))
    shared = sigma
    if len(starts) < len(losses):
        shared = np.repeat(np.add.reduceat(sigma, starts) / counts, counts)
    weights = np.empty_like(sigma)
    weights[order] = shared
    return weights


def project_permutahedron(v: Array, sigma: Array) -> Array:
    """The point of conv {sigma in any order} nearest to v; both (n,), sigma ascending.

    v - prox_R(v): within a pool of the isotonic regression of v - sigma, the mean of sigma plus
    what v has above its mean there. Neighbours further apart than sigma_n - sigma_1 are never
    pooled, so larger gaps can be cut to that: the result is as exact at v of 1e9 as at v of 1.
    """
    order = order_of(v)
    with np.errstate(over="ignore"):
        gaps = np.minimum(np.diff(v[order]), sigma[-1] - sigma[0])
    near = np.concatenate([[0.0], np.cumsum(gaps)])
    pools = rank_prox(near, sigma, 1.0, Kernel(LINEAR))
    ascending = sigma.copy()
    for start, stop in zip(pools.start, pools.stop, strict=True):
        above = near[start:stop] - near[start]
        ascending[start:stop] = np.maximum(above + (sigma[start:stop] - above).mean(), 0.0)
    q = np.empty_like(sigma)
    q[order] = ascending
    return q


def prox_by_rank(sigma: Array, v: Array, step: float) -> Array:
    """argmin_z step R(z) + ||z - v||^2 / 2 for any sigma (n,); exact, and unique where the v are
    distinct.
    """
    return rank_prox(v, nonnegative(step) * sigma, 1.0, Kernel(LINEAR)).z


def by_rank(risk: object) -> bool:
    """Whether a risk weighs single losses by rank: one sequence of weights, or one on either side
    of a reference.
    """
    return hasattr(risk, "rank_weights") or two_sides(risk)


def enough(n: int, needed: int, what: str) -> None:
    """Raise ``ValueError`` unless there are as many losses as a risk counts."""
    if n < needed:
        raise ValueError(
            f"{what} needs {needed} losses or more, got {n}: count fewer, or state a share, as"
            " Superquantile(0.1) and ValueAtRisk(0.9) do."
        )


class ByRank(Parameters, ABC):
    """A risk that is stated by ``rank_weights`` only; no final class overrides what is here."""

    @abstractmethod
    def rank_weights(self, n: int) -> Array:
        """sigma (n,), sigma_1 for the smallest of n losses; nonnegative, summing to one."""

    def at(self, sizes: Sizes, names: Names = None) -> Self:
        """Itself: ranks depend on no prior; raises ``ValueError`` where there are too few
        losses.
        """
        self.rank_weights(len(sizes))
        return self

    def value(self, losses: Array) -> float:
        losses = vector(losses, "losses")
        return float(weights_by_rank(self.rank_weights(len(losses)), losses) @ losses)

    def weights(self, losses: Array) -> Array:
        """The rank weights in the order of the losses (n,); equal losses share theirs equally."""
        losses = vector(losses, "losses")
        return weights_by_rank(self.rank_weights(len(losses)), losses)


class ConvexByRank(ByRank):
    """A ``ByRank`` whose rank weights ascend for every n: the worst of all orders of sigma."""

    convex = True

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        weights = weights_by_rank(self._ascending(len(losses)), losses)
        value = float(weights @ losses)
        return Worst(value, weights, value + 32 * EPS * float(weights @ np.abs(losses)))

    def project(self, v: Array) -> Array:
        v = vector(v, "v")
        return project_permutahedron(v, self._ascending(len(v)))

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        """Whether weights are a mean of orders of sigma: the k smallest never weigh less than
        sigma's k smallest.
        """
        weights = vector(weights, "weights")
        behind = np.cumsum(self._ascending(len(weights))) - np.cumsum(np.sort(weights))
        return bool(behind.max() <= tol and abs(behind[-1]) <= tol)

    def _ascending(self, n: int) -> Array:
        """sigma (n,), which ascends."""
        return self.rank_weights(n)


class NonconvexByRank(ByRank):
    """A ``ByRank`` whose rank weights fall somewhere: no set of weights, so neither worst case nor
    projection.
    """

    convex = False

    def prox(self, v: Array, step: float) -> Array:
        """argmin_z step R(z) + ||z - v||^2 / 2, exact though R is not convex."""
        v = vector(v, "v")
        return prox_by_rank(self.rank_weights(len(v)), v, step)


# -- two sets of weights, one on either side of a reference
# -----------------------------------------------------------


def two_sided(below: Array, above: Array, reference: float, losses: Array) -> Array:
    """(n,) weights by rank: ``below`` under the reference, ``above`` beyond; at it the split that
    weighs least.

    So the value is the lower-semicontinuous one, the least limit of the values of losses near
    these.
    """
    under, upto = int((losses < reference).sum()), int((losses <= reference).sum())
    more = np.concatenate([[0.0], np.cumsum(reference * (below - above)[under:upto])])
    at = under + int(np.argmin(more))
    return np.concatenate([below[:at], above[at:]])


# Spectral risks: losses weighed by rank, larger ones never less, so that R is convex.
#
#     R(z) = sum_i sigma_i z_[i],  sigma_i = S(i / n) - S((i - 1) / n),
#             S the integral of an ascending spectrum
#
#   extremile              S(t) = t^r                           r = 1 the mean, r -> inf the maximum
#     exponential spectral  S(t) = (e^(rho t) - 1) / (e^rho - 1)
#             rho -> 0 the mean, rho -> inf the maximum
#     maximum                S(t) = 1 at t = 1 only
#   top k                the mean of the k largest                 k = n the mean, k = 1 the maximum
#
# and any weights. Acerbi, *Spectral measures of risk*; Daouia, Gijbels and Stupfler, *Extremiles*;
# Cotter and Dowd, *Extreme spectral risk measures*; Fan, Lyu, Ying and Hu, *Learning with average
# top-k loss*. Over clients each is the worst over the permutahedron of sigma.


@dataclass(frozen=True, eq=False)
class Spectral(ConvexByRank):
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

    def __init__(self, weights: Sequence[float] | Array) -> None:
        sigma = vector(weights, "weights")  # an attribute ``weights`` would hide the method
        if sigma.min() < 0:
            raise ValueError(
                f"weights must be >= 0, got {sigma.min():g}. A rank that shall not count gets"
                " weight 0."
            )
        if abs(sigma.sum() - 1) > 1e-9:
            raise ValueError(
                f"weights must sum to one, got {sigma.sum():.12g}: divide by their sum."
            )
        # weights that were divided before keep their bits, so that copies are equal
        total = float(sigma.sum())
        sigma = sigma / (total if abs(total - 1) > len(sigma) * EPS else 1.0)
        sigma.setflags(write=False)
        object.__setattr__(self, "sigma", sigma)

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether larger losses never weigh less."""
        return bool((np.diff(self.sigma) >= 0).all())

    def rank_weights(self, n: int) -> Array:
        if n != len(self.sigma):
            raise ValueError(
                f"Spectral holds weights for {len(self.sigma)} losses, got {n}: give one weight for"
                " each loss, or a risk for any number, such as Superquantile(0.1)."
            )
        return self.sigma.copy()

    def prox(self, v: Array, step: float) -> Array:
        if self.convex:
            return prox_by_moreau(self, v, step)
        return prox_by_rank(self.rank_weights(len(v)), vector(v, "v"), step)

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
        # (i/n)^r - ((i-1)/n)^r without cancellation
        drop = np.append(-1.0, np.expm1(self.r * np.log1p(-1.0 / np.arange(2, n + 1))))
        # without the falls that rounding leaves: at r = 1 all weights are 1/n up to rounding
        return np.maximum.accumulate(-drop * (np.arange(1, n + 1) / n) ** self.r)


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
        return np.maximum.accumulate(share * np.exp(-self.rho * (np.arange(n)[::-1] / n)))


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


# Ranges of ranks: robust to outliers, and not convex.
#
#     R(z) = (z_[m+1] + ... + z_[k]) / (k - m),    z_[1] <= ... <= z_[n],    0 <= m < k <= n
#
# the average of a ranked range, (6) of Xiao and others, *A unified framework for rank-based loss
# minimization*, who count from the smallest loss; Hu, Ying, Wang and Lyu, *Sum of ranked range loss
# for supervised learning*, count from the largest. The two are different risks, so the order has a
# name. The median and the value at risk are single ranks.


@dataclass(frozen=True)
class RankedRange(NonconvexByRank):
    """The mean of the (m+1)-th to k-th loss.

    Parameters
    ----------
    k, m : integers, 0 <= m < k: the last rank that counts, and how many are left out before the
        first
    order : "ascending" counts from the smallest loss (the n - k largest are left out as outliers),
        "descending" from the largest (the m largest are). m = 0 descending is ``TopK(k)``, which is
        convex and can be certified

    Raises
    ------
    ValueError
        for other k, m or order, and at the first use for k above the number of losses

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> float(bf.RankedRange(k=2, m=0).value(losses))  # without the largest
    1.5
    """

    phrase: ClassVar[str] = "mean of ranks above {m} up to {k}, in {order} order"
    k: int
    m: int
    order: Literal["ascending", "descending"] = "ascending"

    def __post_init__(self) -> None:
        if not 0 <= self.m < self.k or self.k != int(self.k) or self.m != int(self.m):
            raise ValueError(
                f"k and m must be integers with 0 <= m < k, got k = {self.k}, m = {self.m}: the"
                " losses of ranks m + 1 to k are averaged."
            )

    def rank_weights(self, n: int) -> Array:
        enough(n, self.k, f"{self}")
        sigma = np.zeros(n)
        sigma[self.m : self.k] = 1.0 / (self.k - self.m)
        return sigma if self.order == "ascending" else sigma[::-1].copy()


@dataclass(frozen=True)
class Median(NonconvexByRank):
    """The middle loss; of an even number the mean of the two in the middle.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Median().value(losses)), 4)
    2.0
    """

    def rank_weights(self, n: int) -> Array:
        sigma = np.zeros(n)
        sigma[[(n - 1) // 2, n // 2]] = 1.0 if n % 2 else 0.5
        return sigma


@dataclass(frozen=True)
class ValueAtRisk(NonconvexByRank):
    """The loss that a share ``level`` of all losses does not exceed: the smallest u with F(u) >=
    level.

    Parameters
    ----------
    level : in (0, 1]; 1 is the maximum (``Maximum()`` is convex and can be certified). The mean of
        the losses beyond it is ``Superquantile(tail=1 - level)``, its nearest convex relative

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.ValueAtRisk(level=0.5).value(losses)), 4)
    2.0
    """

    phrase: ClassVar[str] = "{level} quantile"
    level: float

    def __post_init__(self) -> None:
        if not 0 < self.level <= 1:
            raise ValueError(
                f"level must be in (0, 1], got {self.level}: it is the share of losses that are not"
                " exceeded, such as 0.95. For the smallest loss use RankedRange(1, 0)."
            )

    def rank_weights(self, n: int) -> Array:
        rank = math.ceil(n * self.level * (1 - 4 * EPS))  # a product such as 10 * 0.7 may round up
        sigma = np.zeros(n)
        sigma[max(rank, 1) - 1] = 1.0
        return sigma


# Human-aligned weights and the weights of cumulative prospect theory: the extremes count more than
# the middle.
#
#     human-aligned   w(t) = (3 - 3b) / (a^2 - a + 1) (3 t^2 - 2 (a + 1) t + a) + 1
#   prospect        sigma_i = o_-(i/n) - o_-((i-1)/n)            where z_[i] <= B                (4)
#                     sigma_i = o_+((n-i+1)/n) - o_+((n-i)/n)      where z_[i] >  B
#                   o_+(p) = p^g / (p^g + (1-p)^g)^(1/g),        o_- with d for g                (5)
#
# Xiao and others, *A unified framework for rank-based loss minimization*; equation numbers are
# theirs. After Leqi, Prasad and Ravikumar, *On human-aligned risk minimization*, and Tversky and
# Kahneman, *Advances in prospect theory*.
#
# Deviation: the paper sets sigma_i = w(i/n), of the order n times too large; here sigma_i is the
# integral of w over [(i-1)/n, i/n], S(t) = (3 - 3b) / (a^2 - a + 1) t (t - 1) (t - a) + t, as in
# its (3), so that the weights sum to one.


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

    def at(self, sizes: Sizes, names: Names = None) -> "ProspectTheory":
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
        below, above = (nonnegative(step) * sigma for sigma in self._both(len(v)))
        return prospect_prox(v, below, above, self.reference, 1.0, Kernel(LINEAR))

    def _both(self, n: int) -> tuple[Array, Array]:
        return self.rank_weights_below(n), self.rank_weights_above(n)


def _cumulative(p: Array, power: float) -> Array:
    """(5): o(p), from 0 to 1."""
    return p**power / (p**power + (1 - p) ** power) ** (1 / power)
