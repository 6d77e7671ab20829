"""Probabilities from the scores of a classifier of two classes: a sigmoid, fitted by sums.

    P(y = 1 | score s) = 1 / (1 + exp(-(slope s + offset)))

minimise over slope >= 0 and offset:  - sum_i v_i (t_i log p_i + (1 - t_i) log(1 - p_i))

v_i is the weight of row i, and t_i Platt's target, (n_+ + 1) / (n_+ + 2) for a row of the positive
class and 1 / (n_- + 2) for one of the other: so slope and offset stay finite where the rows are
separable. The offset is 0 unless that is refuted (a likelihood ratio test at 5 %): then the more
probable class is the one that the sign of the score predicts. Platt, *Probabilistic outputs for
support vector machines*; the steps are those of Lin, Lin, Weng, *A note on Platt's probabilistic
outputs for support vector machines*. Every step needs a few sums over the rows of all clients, and
no row.

A score is the log odds already where `has_log_odds` says so; then the sigmoid has slope 1 and
offset 0.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from bonafed.arrays import Array, joined
from bonafed.data.federation import Federation
from bonafed.problem.losses import Logistic
from bonafed.problem.problem import Problem
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import WassersteinBall

STEPS, HALVINGS = 100, 30
BY_CHANCE = 3.84  # twice the gain in log likelihood by an offset that is 0: exceeded in 5 %
ROUNDING = 1e-14  # relative: a value that rises by no more does not refuse a step of Newton
FLAT = 1e-12  # relative: the gradient of a fitted sigmoid, and the spread of equal scores
ROWS = 2**15  # that sums are made of at a time
EQUAL = 1e-6  # spread of scores that only a solver's accuracy parts: no loss differs by more


@dataclass(frozen=True)
class Sigmoid:
    """P(y = 1 | score s) = 1 / (1 + exp(-(slope s + offset))).

    Parameters
    ----------
    slope : >= 0, so that a larger score never means a smaller probability
    offset : the log odds at score 0; where it is not 0 the class that is more probable can be
        another one than the class that the sign of the score predicts

    Examples
    --------
    >>> import bonafed as bf
    >>> float(bf.Sigmoid(slope=2.0, offset=0.0).probability(0.0))
    0.5
    """

    slope: float = 1.0
    offset: float = 0.0

    def probability(self, score: Array | float) -> Array:
        """P(y = 1) of scores of any shape."""
        return expit(self.slope * np.asarray(score, float) + self.offset)

    def both(self, score: Array) -> Array:
        """(n, 2): P(y = -1) and P(y = 1) of scores (n,), each to full relative precision."""
        other = replace(self, offset=-self.offset).probability(-score)
        return np.column_stack([other, self.probability(score)])


def calibrated(
    problem: Problem, fed: Federation, w: Array, *, always: bool = False
) -> Sigmoid | None:
    """The sigmoid that makes probabilities of the scores of the model w.

    None of a private run, whose rows are not asked again, of anything but two classes, and of a
    model that is not finite.

    Parameters
    ----------
    problem, fed : the user's, or what ``problem.at(fed)`` makes of them
    always : fit one even where scores are log odds, as for a model of rows with other weights
    """
    if problem.loss.targets != "sign" or problem.privacy is not None or not np.isfinite(w).all():
        return None
    if has_log_odds(problem) and not always:
        return Sigmoid()
    plain = problem if problem.class_weight is None else replace(problem, class_weight=None)
    concrete, data = plain.at(fed)
    score, positive = concrete.predictions(w, data), joined(data.y) > 0
    weights = data.sample_weight
    weight = np.ones(len(score)) if weights is None else joined(weights)
    return fit_sigmoid(score, positive, weight)


def has_log_odds(problem: Problem) -> bool:
    """Whether the scores of the best model are log odds: the loss is logistic, all rows of a client
    count alike whatever their class or rank, no label flips, and no constraint moves the model.

    A regulariser, and a Wasserstein ball that moves features only, shrink scores on purpose: a
    sigmoid fitted to the rows of the training would undo that.
    """
    rows = problem.over_samples
    if isinstance(rows, WassersteinBall):
        alike = rows.support is None and (math.isinf(rows.label_cost) or not any(rows.radii()))
    else:
        alike = isinstance(rows, Mean) and rows.label is None
    alike = alike and problem.class_weight is None and problem.over_rows is None
    return isinstance(problem.loss, Logistic) and alike and not problem.constrained


def fit_sigmoid(score: Array, positive: NDArray[np.bool_], weight: Array) -> Sigmoid:
    """The sigmoid of scores (n,), of whether each row is positive (n,), and of their weights (n,).

    Where all scores are equal, but for what a solver leaves, or larger ones do not mean more
    positives, its slope is 0.
    """
    plus, minus = float(weight[positive].sum()), float(weight[~positive].sum())
    target = np.where(positive, (plus + 1) / (plus + 2), 1 / (minus + 2))
    total = plus + minus
    mean = float(weight @ score) / total
    spread = math.sqrt(float(weight @ (score - mean) ** 2) / total)
    base = Sigmoid(0.0, math.log((weight @ target) / (weight @ (1 - target))))
    if spread <= max(FLAT * abs(mean), EQUAL):
        return base
    rows = np.column_stack([(score - mean) / spread, np.ones_like(score)])
    (slope, offset), least = _fitted(np.array([0.0, base.offset]), rows, target, weight)
    if slope <= 0:
        return base
    size = math.hypot(spread, mean)
    near = np.array([slope * size / spread])
    (through,), least_through = _fitted(near, score[:, None] / size, target, weight)
    if through > 0 and 2 * (least_through - least) <= BY_CHANCE:
        return Sigmoid(float(through) / size, 0.0)
    return Sigmoid(float(slope) / spread, float(offset - slope * mean / spread))


def _fitted(at: Array, rows: Array, target: Array, weight: Array) -> tuple[Array, float]:
    """The best coefficients (k,) of rows (n, k), and the least value, by Newton's method."""
    total = float(weight.sum())
    value, gradient, hessian = _sums(at, rows, target, weight)
    for _ in range(STEPS):
        if np.abs(gradient).max() <= FLAT * total:
            break
        step = np.linalg.solve(hessian + FLAT * total * np.eye(len(at)), -gradient)
        for halving in range(HALVINGS):
            there = at + step / 2**halving
            found = _sums(there, rows, target, weight)
            enough = value + 1e-4 / 2**halving * float(gradient @ step)
            if found[0] <= enough + ROUNDING * value:
                break
        else:  # no step improves: rounding
            break
        at, (value, gradient, hessian) = there, found
    return at, value


def _sums(at: Array, rows: Array, target: Array, weight: Array) -> tuple[float, Array, Array]:
    """Value, gradient (k,) and Hessian (k, k): sums over rows, so over clients."""
    if len(rows) > ROWS:  # of few at a time, whose numbers take memory
        parts = (slice(k, k + ROWS) for k in range(0, len(rows), ROWS))
        sums = [_sums(at, rows[part], target[part], weight[part]) for part in parts]
        values, gradients, hessians = zip(*sums, strict=True)
        return sum(values), np.sum(gradients, 0), np.sum(hessians, 0)
    odds = rows @ at
    tail = np.exp(-np.abs(odds))  # one exponential for the value and both derivatives
    p = np.where(odds > 0, 1.0, tail) / (1 + tail)
    value = weight @ (np.maximum(odds, 0.0) + np.log1p(tail) - target * odds)
    return float(value), (weight * (p - target)) @ rows, (rows.T * (weight * p * (1 - p))) @ rows
