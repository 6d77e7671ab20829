"""The worst weighting of N numbers over a set Q, as part of a conic program.

    phi(z) = max { <q, z> : q in Q }

    Ball  Q = {q in the simplex: ||q - prior||_p <= radius}; the dual form of Bai, Wong, Qiao and
    Ho, (4):
            min over eta >= 0, g   prior'(z + eta) + radius ||z + g e + eta||_{p*},   1/p + 1/p* = 1
    Tails  phi(z) = sum_k share_k max { <q, z> : q in the simplex, q <= caps_k }; Rockafellar and
    Uryasev's form:
            min over t_k           sum_k share_k (t_k + <caps_k, max(z - t_k, 0)>)

    Sorted  Q = conv {sigma in any order}, sigma ascending; z goes through a sorting network of
            relaxed comparators: min <sigma, z^T>,  (a, b) -> (lo, hi):  hi >= a,  hi >= b,  lo + hi
            = a + b (Goemans, *Smallest compact formulation for the permutahedron*: the dual of his
            description of Q)

Curved sets around a prior are in ``curved_weight_sets``, polytopes in ``polyhedral_weight_sets``;
``Members`` is for sets of which only a maximiser is known.

Ascending weights of a spectral risk are also tails: sigma = sum_i (sigma_i - sigma_{i-1}) (0, ...,
0, 1, ..., 1), so that sum_i sigma_i z_[i] = sum_i (sigma_i - sigma_{i-1}) m (mean of the m = n - i
+ 1 largest): one tail for each jump. Few jumps make the smaller program as tails, many as a
network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import ConicSolution, Index, Model
from bonafed.solvers.sets.projections import dual_exponent

Reader = Callable[[ConicSolution], Array]  # reads the worst weighting q (N,) off the duals


class Weighting(Protocol):
    """A set Q of weightings in conic form."""

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective of ``model``, in linear costs only."""
        ...


@dataclass(frozen=True)
class Ball:
    """The weightings within ``radius`` of ``prior`` in the p-norm.

    Radius 0 is the prior only, inf the whole simplex.
    """

    prior: Array  # (N,)
    radius: float
    p: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the dual of eta >= 0."""
        if self.radius == 0:
            model.linear(z, self.prior)
            return lambda solution: np.array(self.prior)
        if math.isinf(self.radius):
            top = model.variable()
            model.linear(top, 1.0)
            handle = model.nonneg([(top, 1.0), (z, -1.0)])
            return lambda solution: solution.z[handle]
        eta = model.variable(len(z))
        model.linear(eta, self.prior)
        handle = model.nonneg([(eta, 1.0)])
        self._add(model, z, (eta, 1.0))
        return lambda solution: solution.z[handle]

    def add_larger(self, model: Model, z: Index) -> None:
        """Add phi(z) to the objective, for z that nothing bounds from above: z + eta is then such
        numbers z itself.
        """
        if 0 < self.radius < math.inf:
            self._add(model, z)
        else:
            self.add(model, z)

    def _add(self, model: Model, z: Index, *eta: tuple[Index, float]) -> None:
        gamma, size = model.variable(), model.variable()
        model.linear(z, self.prior)
        model.linear(size, self.radius)
        rows = [(z, 1.0), (gamma, np.ones(len(z))), *eta]
        model.norm_at_most(rows, [(size, 1.0)], dual_exponent(self.p))


@dataclass(frozen=True)
class Tails:
    """A mixture of means of the largest numbers, with weights ``share`` (K,) >= 0.

    The weights within tail k are at most ``caps`` k.
    """

    share: Array  # (K,)
    caps: Array  # (K, N), each row with a sum >= 1

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the sum of the duals of t_k + slack >= z."""
        fixed, handles = np.zeros(len(z)), []
        for share, caps in zip(self.share, self.caps, strict=True):
            if caps.sum() <= 1 + 1e-15 * len(z):  # the caps are the weights
                fixed += share * caps
                continue
            t = model.variable()
            model.linear(t, share)
            rows = [(t, 1.0), (z, -1.0)]
            if caps.min() < 1:  # otherwise the tail is the largest number, which t bounds
                slack = model.positive(share * caps)
                rows.append((slack, 1.0))
            handles.append(model.nonneg(rows))
        model.linear(z, fixed)
        return lambda solution: fixed + sum(solution.z[handle] for handle in handles)


@dataclass(frozen=True)
class Sorted:
    """The convex hull of all orders of ``sigma`` (N,), which is ascending: a permutahedron."""

    sigma: Array

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the dual of z^0 >= z."""
        start = model.variable(len(z))
        handle = model.nonneg([(start, 1.0), (z, -1.0)])
        wires = start.copy()  # where each number is now; a model keeps its own copy of indices
        for first, second in comparators(len(z)):
            a, b = wires[first], wires[second]
            lo, hi = model.variable(len(first)), model.variable(len(first))
            model.nonneg([(hi, 1.0), (a, -1.0)])
            model.nonneg([(hi, 1.0), (b, -1.0)])
            model.zero([(lo, 1.0), (hi, 1.0), (a, -1.0), (b, -1.0)])
            wires[first], wires[second] = lo, hi
        model.linear(wires, self.sigma)
        return lambda solution: solution.z[handle]


@dataclass(frozen=True, eq=False)
class Members:
    """The convex hull of some weightings of a set of which only a maximiser is known.

    Its phi is a lower bound, exact once the hull has grown enough: the program is solved over
    these, the maximiser at its z is added, and so on until that is no larger (Kelley's cutting
    planes for phi).
    """

    known: Array  # (K, N) weightings of Q
    maximiser: Callable[[Array], Array]  # z (N,) -> a weighting of Q with the largest <q, z>

    def add(self, model: Model, z: Index) -> Reader:
        """Add the largest of <q_k, z> to the objective; the duals are the weights of the q_k."""
        top = model.variable()
        model.linear(top, 1.0)
        handle = model.nonneg([(top, np.ones(len(self.known))), (z, -self.known)])
        return lambda solution: solution.z[handle] @ self.known

    def grown(self, z: Array, slack: float) -> Members | None:
        """With the worst weighting at z added; None where that gains at most ``slack``."""
        q = self.maximiser(z)
        if float(q @ z) <= float((self.known @ z).max()) + slack:
            return None
        return Members(np.vstack([self.known, q]), self.maximiser)


def of_ranks(sigma: Array) -> Tails | Sorted:
    """Ascending weights by rank (N,) as tails or a sorting network, whichever is smaller.

    Jumps of rounding size do not count.
    """
    n = len(sigma)
    jump = np.diff(sigma, prepend=0.0)
    at = np.flatnonzero(jump > 1e-15 * sigma[-1])
    if len(at) * n > 2 * sum(len(first) for first, _ in comparators(n)) + n:
        return Sorted(sigma)
    largest = n - at  # how many numbers the tail averages
    return Tails(jump[at] * largest, np.repeat(1.0 / largest[:, None], n, 1))


def comparators(n: int) -> list[tuple[Index, Index]]:
    """Batcher's odd-even merge sort of n numbers, as layers of independent comparisons.

    Each layer holds pairs (lower wire, upper wire).
    """
    layers, p = [], 1
    while p < n:
        k = p
        while k >= 1:
            wire = np.concatenate(
                [np.arange(j, min(j + k, n - k)) for j in range(k % p, n - k, 2 * k)]
            )
            wire = wire[wire // (2 * p) == (wire + k) // (2 * p)]
            layers.append((wire, wire + k))
            k //= 2
        p *= 2
    return layers
