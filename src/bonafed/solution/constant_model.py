"""The best constant model: zero coefficients, and the intercept that is best under the stated risk.

    minimise over b:  R( F_1(0, b), ..., F_N(0, b) )

A constant model sees targets only, and of two classes only their shares: each client's share of
positive rows (its targets, for a regression) is all that is read here. The slope of the objective
at b is sum_s q_s F_s'(b) at the worst weights q of b. Halving the interval in which it changes its
sign finds b to the last digits, and q as a mixture of the worst weights on either side. Every other
step goes to where the tangents at the ends meet, which is soon a kink of losses that have some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.data.federation import Federation
from bonafed.problem.losses import Quadratic, has_log_link
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import Near, WassersteinBall, free_space

STEPS = 80  # at most
FARTHEST = 60.0  # of an intercept: beyond it no loss of classes or counts falls in double precision


@dataclass(frozen=True)
class Constant:
    """The best constant model, and what proves that no other is better."""

    intercept: float
    value: float  # R(F(0, b)); regularisers of the coefficients are 0 there
    losses: Array  # (N,) F_s(0, b)
    weights: Array  # (N,) worst client weights, of slope 0 where there is an intercept


def has_constant(problem: Problem) -> bool:
    """Whether the models of a problem contain constants of one number a row."""
    return isinstance(problem.predictor, Linear) and not isinstance(problem.loss, Quadratic)


def best_constant(problem: Problem, fed: Federation) -> Constant:
    """The best constant of a concrete problem and its data (see `Problem.at`); where all rows are
    ranked together they are those of one client.
    """
    if problem.over_rows is not None:
        one = replace(problem, over_rows=None, over_samples=problem.over_rows, over_clients=Mean())
        return best_constant(one, fed.pooled())
    table = targets_alone(problem, fed)

    def at(b: float) -> tuple[float, Array, Array, Array]:
        risks, slopes = np.zeros((2, fed.n_clients))
        for block in table:
            risks[block.index], slopes[block.index] = _risks(problem, b, block)
        q = np.asarray(problem.over_clients.weights(risks), float)
        return float(q @ slopes), q, risks, slopes

    if not problem.predictor.intercept:
        _, q, risks, _ = at(0.0)
        return Constant(0.0, float(problem.over_clients.value(risks)), risks, q)
    low, high = _interval(problem, table)
    left, right = at(low), at(high)
    for k in range(STEPS):
        middle = (low + high) / 2
        if left[0] >= 0 or right[0] <= 0 or not low < middle < high:
            break
        met = _meeting(low, high, left, right)
        if met in (low, high):  # a kink
            break
        if k % 2 and low < met < high:  # beyond them by rounding alone
            middle = met
        here = at(middle)
        low, high, left, right = (
            (low, middle, left, here) if here[0] >= 0 else (middle, high, here, right)
        )
    return _between(problem, low, high, left, right)


def _meeting(low: float, high: float, left: tuple, right: tuple) -> float:
    """Where the tangents at the ends meet; the end itself where that is one but for rounding."""
    falls, rises = -left[0], right[0]
    lower = float(left[1] @ left[2] - right[1] @ right[2])  # the right end than the left one
    met = low + (lower + rises * (high - low)) / max(falls + rises, 1e-300)
    seen = min(falls, rises) * (high - low) > 1e-12 * abs(float(left[1] @ left[2]))
    for end in (low, high):  # else what is seen is rounding
        if seen and abs(met - end) <= 1e-15 * max(abs(low), abs(high)):
            return end
    return met


def _between(problem: Problem, low: float, high: float, left: tuple, right: tuple) -> Constant:
    """The better end, and weights mixed so that their slope is 0."""
    values = [float(problem.over_clients.value(end[2])) for end in (left, right)]
    b, end = (low, left) if values[0] <= values[1] else (high, right)
    down, up = max(-left[0], 0.0), max(right[0], 0.0)
    share = up / (up + down) if up + down > 0 else 0.5
    q = share * left[1] + (1 - share) * right[1]
    return Constant(b, min(values), end[2], q)


def targets_alone(problem: Problem, fed: Federation) -> list[Block]:
    """The clients without features; of two classes one row a class, with its share."""
    n = fed.n_clients
    if problem.loss.targets == "sign" and not by_rank(problem.over_samples):
        plus = np.array([fed.share(i) @ (fed.rows(i)[1] > 0) for i in range(n)])
        y = np.broadcast_to(np.array([-1.0, 1.0]), (n, 2))
        share = np.stack([1 - plus, plus], 1)
        return [Block(np.zeros((n, 2, 1)), y, share, np.arange(n), fed.clients)]
    X = tuple(np.zeros((len(y), 1)) for y in fed.y)
    return fed._with(X=X, columns=None, linear=None, feature_names=("",)).blocks()


def _interval(problem: Problem, table: Sequence[Block]) -> tuple[float, float]:
    """Where the best intercept lies."""
    if problem.loss.targets == "sign":
        return -FARTHEST, FARTHEST
    rows = np.concatenate([block.y[block.share > 0] for block in table])
    if has_log_link(problem.loss):
        return -FARTHEST, float(np.log1p(rows.max()))
    return float(rows.min()) - 1e-9, float(rows.max()) + 1e-9


def _risks(problem: Problem, b: float, block: Block) -> tuple[Array, Array]:
    """F_s(0, b) and its slope in b of every client of a block without features."""
    ball, radius = problem.over_samples, problem.radii(block)
    if isinstance(ball, WassersteinBall) and radius.any():
        free, w = replace(ball, support=None), np.array([0.0, b])
        cut = free_space(Near(w, block, problem.loss, Linear(True), free, radius))
        return cut.base + radius * cut.level, cut.gradient[:, -1]
    prediction = np.full(block.y.shape, b)
    losses = problem.loss.value(prediction, block.y)
    weights = problem.row_weights(losses, block)
    slopes = problem.loss.gradient(prediction, block.y)
    return (weights * losses).sum(1), (weights * slopes).sum(1)
