"""The worst weighting of N numbers as part of a conic program.

    phi(z) = max { <q, z> : q in Q }

    Ball    Q = {q in the simplex: ||q - prior||_p <= radius}; the dual form of Bai, Wong, Qiao and Ho, (4):
            min over eta >= 0, g   prior'(z + eta) + radius ||z + g e + eta||_{p*},      1/p + 1/p* = 1
    Tails   phi(z) = sum_k share_k max { <q, z> : q in the simplex, q <= caps_k }; Rockafellar and Uryasev's form:
            min over t_k           sum_k share_k (t_k + <caps_k, max(z - t_k, 0)>)

Weights by rank that ascend are tails: sigma = sum_i (sigma_i - sigma_{i-1}) (0, ..., 0, 1, ..., 1), so that
sum_i sigma_i z_[i] = sum_i (sigma_i - sigma_{i-1}) m (mean of the m = n - i + 1 largest): one tail for each jump.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quorate.arrays import Array
from quorate.solvers.conic import ConicSolution, Index, Model

Reader = Callable[[ConicSolution], Array]  # of the worst weighting q (N,) from the duals


@dataclass(frozen=True)
class Ball:
    """All weightings within ``radius`` of ``prior`` in the p-norm; 0 is the prior alone, inf the whole simplex."""

    prior: Array  # (N,)
    radius: float
    p: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; the dual of eta >= 0 is q."""
        if self.radius == 0:
            model.linear(z, self.prior)
            return lambda solution: np.array(self.prior)
        if math.isinf(self.radius):
            top = model.variable()
            model.linear(top, 1.0)
            handle = model.nonneg([(top, 1.0), (z, -1.0)])
            return lambda solution: solution.z[handle]
        eta, gamma, size = model.variable(len(z)), model.variable(), model.variable()
        model.linear(z, self.prior)
        model.linear(eta, self.prior)
        model.linear(size, self.radius)
        handle = model.nonneg([(eta, 1.0)])
        conjugate = math.inf if self.p == 1 else 1.0 if self.p == math.inf else self.p / (self.p - 1)
        model.norm_at_most([(z, 1.0), (gamma, np.ones(len(z))), (eta, 1.0)], [(size, 1.0)], conjugate)
        return lambda solution: solution.z[handle]


@dataclass(frozen=True)
class Tails:
    """A mixture of means of the largest numbers: ``share`` (K,) >= 0 of tails whose weights are at most ``caps``."""

    share: Array  # (K,)
    caps: Array  # (K, N), each row with a sum >= 1

    @classmethod
    def of_ranks(cls, sigma: Array) -> Tails:
        """Ascending weights by rank (N,); jumps of rounding size are left out."""
        jump = np.diff(sigma, prepend=0.0)
        at = np.flatnonzero(jump > 1e-15 * sigma[-1])
        largest = len(sigma) - at  # how many numbers the tail averages
        return cls(jump[at] * largest, np.repeat(1.0 / largest[:, None], len(sigma), 1))

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; the duals of t_k + slack >= z add up to q."""
        fixed, handles = np.zeros(len(z)), []
        for share, caps in zip(self.share, self.caps, strict=True):
            if caps.sum() <= 1 + 1e-15 * len(z):  # no choice
                fixed += share * caps
                continue
            t = model.variable()
            model.linear(t, share)
            rows = [(t, 1.0), (z, -1.0)]
            if caps.min() < 1:  # else the largest: nothing may exceed t
                slack = model.variable(len(z))
                model.linear(slack, share * caps)
                model.nonneg([(slack, 1.0)])
                rows.append((slack, 1.0))
            handles.append(model.nonneg(rows))
        model.linear(z, fixed)
        return lambda solution: fixed + sum(solution.z[handle] for handle in handles)


Weighting = Ball | Tails
