"""Risks by rank that are mixtures of superquantiles, with one threshold each.

    R(l) = a_0 mean(l) + sum_k a_k min over eta_k of  eta_k + sum_i max(l_i - eta_k, 0) / (n t_k)

over the n losses of all rows, with a >= 0 of sum one and tails 0 < t_1 < ... < t_K < 1: everything
that such a risk needs of the rows is a sum over them. It is dual to weights 0 <= q_ik <= cap_k =
a_k / (n t_k) with sum_i q_ik = a_k, of which row i has a_0 / n + sum_k q_ik.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.problem.constraints.constraint import Point, Stack
from bonafed.problem.losses import Loss, value_and_gradient
from bonafed.problem.predictors.affine import Linear, Softmax, pullback
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import Maximum, Spectral, TopK
from bonafed.problem.risks.weight_sets import Superquantile

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
        loss = problem.loss
        values = [f(prediction, block.y) for f in (loss.value, loss.gradient, loss.curvature)]
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
        each = np.array([self.gradient(one)[0] for one in weights.T])
        return each.reshape(1, weights.shape[1], len(self._w))

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


# Risks by rank over the rows of all clients as means of rows: thresholds join the model.
#
#     R(l) = min over eta of  mean over all rows i of  T(l_i, eta)
#     T(l, eta) = a_0 l + sum_k a_k (eta_k + max(l - eta_k, 0) / t_k)
#
# of the levels of ``rank_levels``. T is convex in (model, eta) where the loss is convex: so methods
# of cuts, and proofs by cuts, take the mean of T for the losses, a row having eta beside its
# prediction. At the best eta, quantiles of the losses, the mean is the risk.


@dataclass(frozen=True)
class WithThresholds:
    """A linear predictor, and K thresholds that every row has as further predictions; they are the
    last numbers of w.
    """

    model: Linear | Softmax
    count: int  # K
    convex: ClassVar[bool] = True

    @property
    def intercept(self) -> int:
        """How many last entries of w are free."""
        return self.model.intercept + self.count

    @property
    def outputs(self) -> tuple[float, float]:
        """Those of the model."""
        return self.model.outputs

    def dimension(self, n_features: int) -> int:
        return self.model.dimension(n_features) + self.count

    def split(self, w: Array) -> tuple[Array, Array]:
        """The coefficients, and what is free."""
        inner = self.model.split(w[..., : -self.count])[0]
        return inner, w[..., inner.shape[-1] :]

    def forward(self, w: Array, block: Block) -> Array:
        """(n, m, C + K), C = 1 for one prediction a row."""
        inner = self.model.forward(w[..., : -self.count], block)
        inner = inner if inner.ndim == 3 else inner[:, :, None]
        shape = (*inner.shape[:2], self.count)
        at = np.broadcast_to(w[..., None, -self.count :], shape)
        return np.concatenate([inner, at], 2)

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        inner, at = s[..., : -self.count], s[..., -self.count :]
        inner = inner if isinstance(self.model, Softmax) else inner[..., 0]
        gradient = self.model.backward(w[..., : -self.count], inner, block)
        return np.concatenate([gradient, at.sum(1)], 1)

    def units(self, sizes: Array) -> Array:
        inner = self.model.units(sizes)
        return np.concatenate([inner, np.ones((*inner.shape[:-1], self.count))], -1)


@dataclass(frozen=True, eq=False)
class AboveThresholds:
    """T of a loss, for predictions with thresholds behind them."""

    loss: Loss
    of: Levels
    smooth: ClassVar[bool] = False
    pieces: ClassVar[None] = None
    lipschitz: ClassVar[float] = float("inf")

    @property
    def targets(self) -> str:
        """Those of the loss."""
        return self.loss.targets

    @property
    def floor(self) -> tuple[float, float]:
        """That of the loss, which T is never below: t_k <= 1."""
        return self.loss.floor

    @property
    def log_link(self) -> bool:
        """As the loss has it."""
        return getattr(self.loss, "log_link", False)

    def value(self, prediction: Array, y: Array) -> Array:
        return self.value_and_gradient(prediction, y)[0]

    def gradient(self, prediction: Array, y: Array) -> Array:
        return self.value_and_gradient(prediction, y)[1]

    def value_and_gradient(self, prediction: Array, y: Array) -> tuple[Array, Array]:
        """(n, m) and (n, m, C + K)."""
        K, (shares, tails, mean) = len(self.of.shares), self.of
        inner, at = prediction[..., :-K], prediction[..., -K:]
        several = self.loss.targets == "class"
        loss, slope = value_and_gradient(self.loss, inner if several else inner[..., 0], y)
        over = loss[..., None] - at
        weights = np.where(over > 0, shares / tails, 0.0)
        value = mean * loss + at @ shares + (weights * over).sum(-1)
        slope = slope if several else slope[..., None]
        rate = (mean + weights.sum(-1))[..., None]
        return value, np.concatenate([rate * slope, shares - weights], -1)

    def curvature(self, prediction: Array, y: Array) -> Array:
        return np.zeros_like(prediction)


@dataclass(frozen=True, eq=False)
class OfModel(Stack):
    """Constraints of the model in front of the thresholds, which they do not depend on."""

    problem: Problem | None = None  # without thresholds
    count: int = 0  # K

    def seen(self, point: Point) -> Point:
        """The point without its thresholds."""
        assert self.problem is not None
        return Point(self.problem, point.w[..., : -self.count], point.block)

    def values(self, point: Point) -> Array:
        return super().values(self.seen(point))

    def jacobian(self, point: Point) -> Array:
        return self._with_zeros(super().jacobian(self.seen(point)))

    def split(self, point: Point, multipliers: Array) -> tuple[Array | None, Array, Array]:
        rows, gradients, constants = super().split(self.seen(point), multipliers)
        return rows, self._with_zeros(gradients), constants

    def magnitudes(self, point: Point, multipliers: Array) -> Array:
        return self._with_zeros(super().magnitudes(self.seen(point), multipliers))

    def _with_zeros(self, gradients: Array) -> Array:
        zeros = np.zeros((*gradients.shape[:-1], self.count))
        return np.concatenate([gradients, zeros], -1)


def lifted(problem: Problem) -> Problem:
    """The concrete problem with thresholds in its model in the place of ``over_rows``; the problem
    itself where it has none.
    """
    if problem.over_rows is None:
        return problem
    of = levels_of(problem)
    if not len(of.shares):  # the mean of all rows
        return replace(problem, over_rows=None)
    count, stack = len(of.shares), problem.constraint
    stacks = problem.local_constraint, stack.coupled, stack.held
    local, coupled, held = (OfModel(each.parts, problem, count) for each in stacks)
    loss, predictor = AboveThresholds(problem.loss, of), WithThresholds(problem.predictor, count)
    limits = {"local_constraint": local, "constraint": replace(stack, coupled=coupled, held=held)}
    return replace(problem, loss=loss, predictor=predictor, over_rows=None, **limits)


def levels_of(problem: Problem) -> Levels:
    """The levels of a concrete problem, whose tails are those of its number of rows."""
    sigma = getattr(problem.over_rows, "sigma", None)
    return levels(problem.over_rows, 2**62 if sigma is None else len(sigma))


def highest(problem: Problem, value: float) -> float:
    """What no best threshold is above where the objective is at most ``value``: losses are >= 0,
    and so are thresholds; the k-th is below its superquantile, whose share is a_k.
    """
    return value / float(problem.loss.of.shares.min())  # type: ignore[attr-defined]
