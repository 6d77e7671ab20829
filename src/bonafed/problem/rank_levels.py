"""Risks by rank that are mixtures of superquantiles, with one threshold each.

    R(l) = a_0 mean(l) + sum_k a_k min over eta_k of  eta_k + sum_i max(l_i - eta_k, 0) / (n t_k)

over the n losses of all rows, with a >= 0 of sum one and tails 0 < t_1 < ... < t_K < 1: everything
that such a risk needs of the rows is a sum over them. It is dual to weights 0 <= q_ik <= cap_k =
a_k / (n t_k) with sum_i q_ik = a_k, of which row i has a_0 / n + sum_k q_ik.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.problem.predictors.affine import pullback
from bonafed.problem.problem import Problem
from bonafed.problem.risks.spectral import Maximum, Spectral, TopK
from bonafed.problem.risks.superquantile import Superquantile

STEPS = Superquantile | TopK | Maximum  # of one level, whatever the number of rows
MOST = 24  # levels of a Spectral


def few_levels(risk: object) -> bool:
    """Whether a risk is a mixture of few superquantiles."""
    if isinstance(risk, Spectral):
        return risk.convex and int((np.diff(risk.sigma) > 0).sum()) <= MOST
    return isinstance(risk, STEPS)


class Levels(NamedTuple):
    """The levels of a risk over n rows."""

    shares: Array  # (K,) a_k
    tails: Array  # (K,) t_k
    mean: float  # a_0

    def caps(self, n: int) -> Array:
        """(K,) the most that one row weighs at every level."""
        return self.shares / (n * self.tails)


def levels(risk: object, n: int) -> Levels:
    """The levels of a risk over n rows; ``TypeError`` for a risk of another kind."""
    if isinstance(risk, Superquantile):
        tail = max(float(risk.tail), 1 / n)
    elif isinstance(risk, TopK | Maximum):
        tail = (risk.k if isinstance(risk, TopK) else 1) / n
    elif isinstance(risk, Spectral) and few_levels(risk):
        rises = np.flatnonzero(np.diff(risk.sigma) > 0)
        rows = n - 1 - rises  # of the tail of every level
        return Levels(np.diff(risk.sigma)[rises] * rows, rows / n, float(risk.sigma[0] * n))
    else:
        raise TypeError(f"the levels of {risk!r} are not known.")
    if tail >= 1:
        return Levels(np.zeros(0), np.zeros(0), 1.0)
    return Levels(np.ones(1), np.array([tail]), 0.0)


class Rows:
    """The losses of all rows of a block at a model, one after another, and their derivatives.

    Attributes
    ----------
    loss, slope, curvature : (R,) of the R rows that are not padding
    """

    def __init__(self, problem: Problem, w: Array, block: Block) -> None:
        self._predictor = problem.predictor
        self._block, self._real = block, block.share > 0
        prediction, self._back = pullback(problem.predictor, w, block)
        values = [
            f(prediction, block.y)
            for f in (problem.loss.value, problem.loss.gradient, problem.loss.curvature)
        ]
        self.loss, self.slope, self.curvature = (value[self._real] for value in values)
        self._w = w

    def spread(self, values: Array) -> Array:
        """Values (R,) in the block's shape (n, m), 0 on padding."""
        out = np.zeros(self._real.shape)
        out[self._real] = values
        return out

    def kept(self, values: Array) -> Array:
        """The entries (R, K) of values (n, m', K), m' >= m, that belong to rows."""
        return values[:, : self._real.shape[1]][self._real]

    def keep(self, values: Array, longest: int) -> Array:
        """The inverse: (n, longest, K) of values (R, K)."""
        n, m = self._real.shape
        out = np.zeros((n, longest, values.shape[1]))
        out[:, :m][self._real] = values
        return out

    def gradient(self, weights: Array) -> Array:
        """(1, D) the sum of weights_i times the gradient of row i's loss."""
        return self._back(self.spread(weights * self.slope)).sum(0, keepdims=True)

    def gradients(self, weights: Array) -> Array:
        """(1, K, D) the same for weights (R, K), level by level."""
        return np.array([self.gradient(one)[0] for one in weights.T]).reshape(
            1, weights.shape[1], len(self._w)
        )

    def hessian(self, first: Array, second: Array) -> Array:
        """(1, D, D) the sum of first_i times the outer product of row i's gradient with itself, and
        of second_i times its Hessian.
        """
        rows = first * self.slope**2 + second * self.curvature
        return self._predictor.gram(self.spread(rows), self._block)[None]

    def along(self, step: Array) -> Array:
        """(R,) the change of every row's loss along a step in the model, to first order."""
        change = self._predictor.forward(step, self._block)[self._real]
        return self.slope * change

    def by_client(self, values: Array) -> Array:
        """(n,) the sums of values (R,) over every client's rows."""
        return self.spread(values).sum(1)
