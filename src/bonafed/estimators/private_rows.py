"""Rows of a private classifier with declared ranges: centred at a noisy mean, and of length 1.

    z = (x - middle) / half,      row = (z - mu, 0.15 sqrt(d)) / its length

so that all rows count alike where gradients are clipped. The last entry is the intercept's: as it
is divided by the same length, every linear rule in x is one in these rows, and nothing is lost.

mu comes from one answer before all others, the clients' noisy sums of u = (z, k) / its length with
k = sqrt(d) / 2. Their mean is (a, b), and k a / b is a mean of the z in which shorter rows weigh
more. It is charged, see `Centring`; where noise exceeds it, it is shortened to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.sparse import csr_array, hstack

from bonafed.algorithms.federated.private.mechanism import ClientSizes
from bonafed.algorithms.federated.private_sgd import PrivateSGD
from bonafed.arrays import Array, shape_of
from bonafed.data.unit_rows import unit_rows
from bonafed.estimators.rows import Matrix
from bonafed.privacy.accounting import Release, noise_for, total_epsilon
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.problem.problem import Problem

SHARE = 0.1  # of the budget, for the mean: of 1 / noise^2, which is what adds up
# the entries beside z, over sqrt(d): beside rows that are not centred yet, and centred ones
BEFORE, AFTER = 0.5, 0.15


@dataclass(frozen=True)
class UnitRows:
    """How rows are made, of public and of charged numbers only.

    Attributes
    ----------
    middle, half : (d,) of the declared ranges
    mean : (d,) of the rows so scaled, noisy; zeros where they are not centred
    one : whether there is an entry for the intercept
    """

    middle: Array
    half: Array
    mean: Array
    one: bool

    def __call__(self, X: Matrix) -> Matrix:
        """(n, d + one) rows of length 1."""
        centre = self.middle + self.half * self.mean
        if not self.one:
            return unit_rows(X, centre, self.half)
        return _with(X, centre, self.half, AFTER)

    def asked(self, X: Matrix) -> Matrix:
        """(n, d + 1) the rows u whose mean tells mu."""
        return _with(X, self.middle, self.half, BEFORE)

    def centred(self, found: Array, noise: float) -> Self:
        """The same around mu, of the noisy mean (d + 1,) of the rows u, with noise of that standard
        deviation in every entry.

        The mean of the last entries is between two public numbers where rows keep the ranges.
        """
        a, b = found[:-1], float(np.clip(found[-1], BEFORE / math.hypot(1, BEFORE), 1.0))
        size = float(a @ a)
        kept = max(0.0, 1 - len(a) * noise**2 / size) if size > 0 else 0.0  # as James and Stein
        mean = kept * BEFORE * math.sqrt(len(a)) / b * a
        return replace(self, mean=np.clip(mean, -1.0, 1.0))


def _with(X: Matrix, centre: Array, half: Array, more: float) -> Matrix:
    """The rows (X - centre) / half with one more entry, each divided by its own length."""
    n, d = shape_of(X)
    last = np.full((n, 1), more * math.sqrt(d))
    if not isinstance(X, np.ndarray):
        middle, scale = np.append(centre, 0.0), np.append(half, 1.0)
        return unit_rows(csr_array(hstack([X, last])), middle, scale)
    moved = np.ascontiguousarray((X - centre) / half)
    return unit_rows(np.hstack([moved, last]))


@dataclass(frozen=True)
class Centring(PrivateSGD):
    """The one answer that tells the mean: its noise takes `SHARE` of what the fit may spend.

    ``share`` is the budget of the fit where that is a part of a ledger's; the fit is refused before
    this answer where the ledger does not pay for all of it.
    """

    share: Budget | None = None

    def planned(self, problem: Problem, fed: ClientSizes, spent: Sequence[Release] = ()) -> Self:
        if self.share is None:
            method = super().planned(problem, fed, spent)
        else:
            method = super().planned(replace(problem, privacy=self.share), fed)
            method = replace(method, problem=problem)
        plan, budget = method._plan, problem.privacy
        if self.share is not None and budget is not None:
            whole = (*spent, Release(self.mechanism, plan.multiplier))
            if total_epsilon(whole, budget.delta) > budget.epsilon:
                noise_for(budget, 1, self.mechanism, spent)  # which may say that all is spent
                before = total_epsilon(spent, budget.delta)
                raise BudgetSpentError(
                    f"the fit would spend {self.share.epsilon:g}, and {before:.4g} of"
                    f" {budget.epsilon:g} is spent already: nothing was touched. Spend less, or"
                    " state a larger budget."
                )
        return replace(method, plan=replace(plan, multiplier=plan.multiplier / math.sqrt(SHARE)))
