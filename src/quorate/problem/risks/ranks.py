"""Risks that weigh losses by their rank: what they share.

    R(z) = sum_i sigma_i z_[i],    z_[1] <= ... <= z_[n],    sigma_i = S(i / n) - S((i - 1) / n)

sigma_1 belongs to the SMALLEST loss; S is the cumulative spectrum on [0, 1], S(0) = 0, S(1) = 1, and the differences
are exact, so that tails and quantiles that end within a rank get its fraction. Source: Xiao and others, *A unified
framework for rank-based loss minimization*, (2), (3); after Acerbi, *Spectral measures of risk*. Where sigma ascends, R
is the support function of the permutahedron of sigma, conv {sigma in any order}, and convex; else it is not.

    prox_R(v): v sorted ascending, then  min_{z_1 <= ... <= z_n}  sum_i sigma_i z_i + (z_i - v_i)^2 / 2

is the isotonic regression of v - sigma, for ascending sigma and for any other: R depends on the order of its arguments
alone, so that a minimiser is sorted as v is. A loss that falls with its argument (a margin, say) ranks its arguments
the other way round: their weights are ``risk.rank_weights(n)[::-1]``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.problem.risks.risk import Worst, prox_by_moreau, vector
from quorate.solvers.projections import EPS


def order_of(losses: Array) -> NDArray[np.intp]:
    """The positions of the losses in ascending order; equal ones as they come."""
    return np.argsort(losses, kind="stable")


def weights_by_rank(sigma: Array, losses: Array) -> Array:
    """sigma (n,) in the order of the losses (n,); equal losses share the weights of their ranks equally."""
    order = order_of(losses)
    ascending = losses[order]
    starts = np.flatnonzero(np.append(True, ascending[1:] > ascending[:-1]))
    counts = np.diff(np.append(starts, len(losses)))
    shared = sigma if len(starts) == len(losses) else np.repeat(np.add.reduceat(sigma, starts) / counts, counts)
    weights = np.empty_like(sigma)
    weights[order] = shared
    return weights


def project_permutahedron(v: Array, sigma: Array) -> Array:
    """The point of conv {sigma in any order} nearest to v; both (n,), sigma ascending.

    v - prox_R(v): within a pool of the isotonic regression of v - sigma, the mean of sigma plus what v has above its
    mean there. Neighbours further apart than sigma_n - sigma_1 are never pooled, so larger gaps can be cut to that: the
    result is as exact at v of 1e9 as at v of 1.
    """
    order = order_of(v)
    with np.errstate(over="ignore"):
        gaps = np.minimum(np.diff(v[order]), sigma[-1] - sigma[0])
    near = np.concatenate([[0.0], np.cumsum(gaps)])
    starts = _pools(near - sigma)
    counts = np.diff(np.append(starts, len(v)))
    above = near - np.repeat(near[starts], counts)  # from the first of the pool: exact for pools of one
    rest = np.add.reduceat(sigma - above, starts) / counts
    q = np.empty_like(sigma)
    q[order] = np.maximum(above + np.repeat(rest, counts), 0.0)
    return q


def prox_by_rank(sigma: Array, v: Array, step: float) -> Array:
    """argmin_z step R(z) + ||z - v||^2 / 2 for any sigma (n,); exact, and unique where the sorted v are distinct."""
    if not 0 <= step < math.inf:
        raise ValueError(f"step must be a number >= 0, got {step}. Use a positive step size.")
    order = order_of(v)
    z = np.empty_like(v)
    z[order] = isotonic(v[order] - step * sigma)
    return z


def isotonic(v: Array) -> Array:
    """argmin_{z_1 <= ... <= z_n} ||z - v||^2."""
    return _regression(v).x if len(v) else v


def _pools(v: Array) -> NDArray[np.intp]:
    """Where the pools of the isotonic regression of v start."""
    return np.asarray(_regression(v).blocks[:-1], np.intp)


def _regression(v: Array) -> Any:
    from scipy.optimize import isotonic_regression

    return isotonic_regression(v)


def in_permutahedron(weights: Array, sigma: Array, tol: float) -> bool:
    """Whether weights (n,) are a mean of orders of sigma: the k smallest never weigh less than sigma's k smallest."""
    behind = np.cumsum(sigma) - np.cumsum(np.sort(weights))
    return bool(behind.max() <= tol and abs(behind[-1]) <= tol)


def enough(n: int, needed: int, what: str) -> None:
    """Raise ``ValueError`` unless there are as many losses as a risk counts."""
    if n < needed:
        raise ValueError(
            f"{what} needs {needed} losses or more, got {n}: count fewer, or state a share, as Superquantile(0.1) and "
            "ValueAtRisk(0.9) do."
        )


class ByRank(ABC):
    """A risk that is stated by ``rank_weights`` alone; no final class overrides what is here."""

    @abstractmethod
    def rank_weights(self, n: int) -> Array:
        """sigma (n,), sigma_1 for the smallest of n losses; nonnegative, summing to one."""

    def at(self, sizes: Sequence[int] | Array, names: Sequence[str] | None = None) -> Any:
        """Itself: ranks depend on no prior; raises ``ValueError`` where there are too few losses."""
        self.rank_weights(len(sizes))
        return self

    def value(self, losses: Array) -> float:
        losses = vector(losses, None, "losses")
        return float(weights_by_rank(self.rank_weights(len(losses)), losses) @ losses)

    def weights(self, losses: Array) -> Array:
        """The rank weights in the order of the losses (n,); equal losses share theirs equally."""
        losses = vector(losses, None, "losses")
        return weights_by_rank(self.rank_weights(len(losses)), losses)


class ConvexByRank(ByRank):
    """A ``ByRank`` whose rank weights ascend for every n: the worst of all orders of sigma."""

    convex: ClassVar[bool] = True

    def worst(self, losses: Array) -> Worst:
        return worst_by_rank(self.rank_weights(len(losses)), losses)

    def project(self, v: Array) -> Array:
        v = vector(v, None, "v")
        return project_permutahedron(v, self.rank_weights(len(v)))

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        weights = vector(weights, None, "weights")
        return in_permutahedron(weights, self.rank_weights(len(weights)), tol)


class NonconvexByRank(ByRank):
    """A ``ByRank`` whose rank weights fall somewhere: no set of weights, so neither worst case nor projection."""

    convex: ClassVar[bool] = False

    def prox(self, v: Array, step: float) -> Array:
        """argmin_z step R(z) + ||z - v||^2 / 2, exact though R is not convex."""
        v = vector(v, None, "v")
        return prox_by_rank(self.rank_weights(len(v)), v, step)


def worst_by_rank(sigma: Array, losses: Array) -> Worst:
    """The worst order of an ascending sigma: its own."""
    losses = vector(losses, None, "losses")
    weights = weights_by_rank(sigma, losses)
    value = float(weights @ losses)
    return Worst(value, weights, value + 32 * EPS * float(weights @ np.abs(losses)))


# -- two sets of weights, one on either side of a reference -----------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """The first ``at`` of n sorted numbers carry the weights below, the others those above."""

    at: int
    weights: Array  # (n,) ascending ranks


def cheapest_split(ascending: Array, below: Array, above: Array, reference: float) -> Split:
    """Losses below and above the reference by their side; those at it by the split that weighs least.

    That is the lower-semicontinuous value: the least limit of values of losses near these.
    """
    first, last = (int(np.searchsorted(ascending, reference, side)) for side in ("left", "right"))
    extra = np.concatenate([[0.0], np.cumsum(reference * (below[first:last] - above[first:last]))])
    at = first + int(np.argmin(extra))
    return Split(at, np.concatenate([below[:at], above[at:]]))


def prox_two_sided(v: Array, below: Array, above: Array, reference: float) -> Array:
    """argmin_z of the two-sided risk + ||z - v||^2 / 2, (n,): the best of the n + 1 splits, each solved exactly.

    With j numbers at or below the reference: z_1 <= ... <= z_j <= reference <= z_{j+1} <= ... <= z_n, two isotonic
    regressions, clipped.
    """
    order = order_of(v)
    ascending = v[order]
    cost = prefix_costs(ascending, below, reference)
    cost = cost + prefix_costs(-ascending[::-1], -above[::-1], -reference)[::-1]
    j = int(np.argmin(cost))
    z = np.empty_like(v)
    z[order[:j]] = np.minimum(isotonic(ascending[:j] - below[:j]), reference)
    z[order[j:]] = np.maximum(isotonic(ascending[j:] - above[j:]), reference)
    return z


def prefix_costs(v: Array, weights: Array, top: float) -> Array:
    """min_{z_1 <= ... <= z_j <= top} sum_{i <= j} weights_i z_i + (z_i - v_i)^2 / 2, for j = 0..n; v ascending.

    Pools on a stack: the cost of a pool is that of its common z, and a shorter prefix is an earlier stack.
    """
    costs, stack = np.zeros(len(v) + 1), []
    for i, (mean, weight) in enumerate(zip(v.tolist(), weights.tolist(), strict=True)):
        count, scatter = 1, 0.0  # of the pool; scatter is the sum of squares about its mean
        while stack and stack[-1][1] - stack[-1][3] / stack[-1][0] >= mean - weight / count:
            n, other, inside, w, _ = stack.pop()
            apart, total = mean - other, count + n
            scatter += inside + apart * apart * count * n / total
            mean, weight, count = other + apart * count / total, weight + w, total
        z = min(mean - weight / count, top)
        own = weight * z + (count * (z - mean) ** 2 + scatter) / 2
        costs[i + 1] = own + (stack[-1][4] if stack else 0.0)
        stack.append((count, mean, scatter, weight, costs[i + 1]))
    return costs
