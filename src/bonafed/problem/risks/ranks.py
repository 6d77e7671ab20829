"""Risks that weigh losses by their rank: what they share.

    R(z) = sum_i sigma_i z_[i],    z_[1] <= ... <= z_[n],    sigma_i = S(i / n) - S((i - 1) / n)

sigma_1 belongs to the SMALLEST loss; S is the cumulative spectrum on [0, 1], S(0) = 0, S(1) = 1,
and the differences are exact, so that tails and quantiles that end within a rank get its fraction.
Source: Xiao and others, *A unified framework for rank-based loss minimization*, (2), (3); after
Acerbi, *Spectral measures of risk*. Where sigma ascends, R is the support function of the
permutahedron of sigma, conv {sigma in any order}, and convex; else it is not.

    prox_R(v): v sorted ascending, then  min_{z_1 <= ... <= z_n}  sum_i sigma_i z_i + (z_i - v_i)^2
    / 2

is the isotonic regression of v - sigma (``solvers/rank/pava.py``), for ascending sigma and for any
other: R is the same for any order of its arguments, so that a minimiser is sorted as v is. A loss
that falls with its argument (a margin, say) ranks its arguments the other way round: their weights
are ``risk.rank_weights(n)[::-1]``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.parameters import Parameters
from bonafed.problem.risks.risk import Names, Sizes, Worst, nonnegative, prox_by_moreau, vector
from bonafed.solvers.sets.projections import EPS


class RankRisk(Protocol):
    """A risk that weighs single losses by their rank."""

    @property
    def convex(self) -> bool: ...

    def rank_weights(self, n: int) -> Array: ...


@runtime_checkable
class TwoSided(Protocol):
    """A risk with a reference: losses below it and above it have separate rank weights."""

    @property
    def convex(self) -> bool: ...

    def rank_weights_below(self, n: int) -> Array: ...

    def rank_weights_above(self, n: int) -> Array: ...


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
    shared = (
        sigma
        if len(starts) == len(losses)
        else np.repeat(np.add.reduceat(sigma, starts) / counts, counts)
    )
    weights = np.empty_like(sigma)
    weights[order] = shared
    return weights


def project_permutahedron(v: Array, sigma: Array) -> Array:
    """The point of conv {sigma in any order} nearest to v; both (n,), sigma ascending.

    v - prox_R(v): within a pool of the isotonic regression of v - sigma, the mean of sigma plus
    what v has above its mean there. Neighbours further apart than sigma_n - sigma_1 are never
    pooled, so larger gaps can be cut to that: the result is as exact at v of 1e9 as at v of 1.
    """
    from bonafed.solvers.rank.pava import LINEAR, Kernel, rank_prox

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
    from bonafed.solvers.rank.pava import LINEAR, Kernel, rank_prox

    return rank_prox(v, nonnegative(step) * sigma, 1.0, Kernel(LINEAR)).z


def prox_two_sided(below: Array, above: Array, reference: float, v: Array, step: float) -> Array:
    """The same for a risk with the weights below (n,) up to the reference and those above (n,)
    beyond it.
    """
    from bonafed.solvers.rank.pava import LINEAR, Kernel, prospect_prox

    step = nonnegative(step)
    return prospect_prox(v, step * below, step * above, reference, 1.0, Kernel(LINEAR))


def in_permutahedron(weights: Array, sigma: Array, tol: float) -> bool:
    """Whether weights (n,) are a mean of orders of sigma: the k smallest never weigh less than
    sigma's k smallest.
    """
    behind = np.cumsum(sigma) - np.cumsum(np.sort(weights))
    return bool(behind.max() <= tol and abs(behind[-1]) <= tol)


def by_rank(risk: object) -> bool:
    """Whether a risk weighs single losses by rank: one sequence of weights, or one on either side
    of a reference.
    """
    return hasattr(risk, "rank_weights") or hasattr(risk, "rank_weights_below")


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
        return worst_by_rank(self.rank_weights(len(losses)), losses)

    def project(self, v: Array) -> Array:
        v = vector(v, "v")
        return project_permutahedron(v, self.rank_weights(len(v)))

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        weights = vector(weights, "weights")
        return in_permutahedron(weights, self.rank_weights(len(weights)), tol)


class NonconvexByRank(ByRank):
    """A ``ByRank`` whose rank weights fall somewhere: no set of weights, so neither worst case nor
    projection.
    """

    convex = False

    def prox(self, v: Array, step: float) -> Array:
        """argmin_z step R(z) + ||z - v||^2 / 2, exact though R is not convex."""
        v = vector(v, "v")
        return prox_by_rank(self.rank_weights(len(v)), v, step)


def worst_by_rank(sigma: Array, losses: Array) -> Worst:
    """The worst order of an ascending sigma: its own."""
    losses = vector(losses, "losses")
    weights = weights_by_rank(sigma, losses)
    value = float(weights @ losses)
    return Worst(value, weights, value + 32 * EPS * float(weights @ np.abs(losses)))


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
