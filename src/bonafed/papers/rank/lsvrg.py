"""LSVRG: variance-reduced stochastic gradients of spectral (rank-based) risks: a comparator.

    checkpoint w', q = its rank weights, g = sum_i q_i gradient loss_i(w')
    w <- prox_{rate h}( w - rate (q_i / p_i (gradient loss_i(w) - gradient loss_i(w')) + g) ),
            i drawn with p_i

p_i = 1 / n ("uniform") or p_i = q_i / sum q ("not uniform"). The checkpoint moves to w at the end
of an epoch of ``epoch_length`` steps. In expectation a step is a gradient step of sum_i q_i loss_i
+ h: q follows the ranks only at checkpoints. Mehta, Roulet, Pillutla, Liu and Harchaoui,
*Stochastic optimization for spectral risk measures*, with the prox step in place of the gradient of
h.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block
from bonafed.papers.rank import stochastic as common
from bonafed.papers.rank.stochastic import RankedPoint
from bonafed.papers.rank.variance_reduced import Shrink, reduced_steps

CHUNK = 1024  # rows gathered at a time


@dataclass(frozen=True)
class LSVRG(common.EpochMethod):
    """Variance-reduced gradient steps on pooled rows; one round is one epoch.

    Parameters
    ----------
    learning_rate : of every step; None: the rates of ``grid`` are tried in the first round and the
        best one kept
    uniform : rows are drawn alike; False: in proportion to their rank weights
    epoch_length : steps between two checkpoints
    grid : learning rates; None is the grid of Xiao and others, {1e-2, 1e-3, 1e-4, 1 / n, 1 / (n d)}
    trial_epochs : epochs of every rate of the grid. The published figures rest on full runs of
        every rate: that is ``tuned(algorithm, problem, fed, rounds=2000)`` of
        ``bonafed.papers.rank.stochastic``
    tol, atol : stop when a gap of max(atol, tol max(|value|, |bound|)) is proven (convex problems)
    max_rounds : a cap on epochs
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for a Wasserstein ball over samples, more than one client, or settings out of range
    DivergedError
        where the model stops being finite

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> solution = bf.solve(problem, fed.pooled(), algorithm=bf.LSVRG(max_rounds=5))
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """

    learning_rate: float | None = None
    uniform: bool = True
    epoch_length: int = 100
    grid: Sequence[float] | None = None
    trial_epochs: int = 20
    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 2000
    start: Array | None = None
    problem: bf.Problem | None = None

    def __post_init__(self) -> None:
        ext.check_least(self, "epoch_length", meaning=": it is a number of steps")
        self.check_settings()

    def epoch(
        self, data: Block, walk: common.Descent, generator: np.random.Generator
    ) -> tuple[Array, int]:
        """The model after ``epoch_length`` steps from the checkpoint w, and their number."""
        problem, w, rate = self._problem, walk.w[0], float(walk.rate[0])
        point = walk.point
        assert point is not None
        drawn, gain = self._draw(point.weights[0], generator)
        fast = scalar_form(problem, data.n_features)
        for at in range(0, len(drawn), CHUNK):
            rows, part = drawn[at : at + CHUNK], gain[at : at + CHUNK]
            if fast is None:
                w = slow_steps(problem, data, w, rows, part, point, rate)
            else:
                w = _fast_steps(problem, data, w, rows, part, point, rate, *fast)
        return w, len(drawn)

    def _draw(
        self, weights: Array, generator: np.random.Generator
    ) -> tuple[NDArray[np.intp], Array]:
        """The rows of an epoch's steps, and their weights over their probabilities."""
        n, total = len(weights), float(weights.sum())
        if self.uniform:
            drawn = generator.integers(n, size=self.epoch_length)
            return drawn, n * weights[drawn]
        drawn = generator.choice(n, size=self.epoch_length, p=weights / total)
        return drawn, np.full(self.epoch_length, total)


def scalar_form(problem: bf.Problem, n_features: int) -> tuple[ext.Kernel, Shrink] | None:
    """Loss and regulariser as the compiled steps take them; None where they have no such form."""
    try:
        kernel = ext.kernel_of(problem.loss)
        l1, l2, lower, upper = ext.regulariser_parts(problem.regulariser)
    except (TypeError, ValueError):
        return None
    if not isinstance(problem.predictor, bf.Linear):
        return None
    low, high = (
        np.broadcast_to(np.asarray(edge, float), n_features).copy() for edge in (lower, upper)
    )
    return kernel, Shrink(l1, l2, low, high, problem.predictor.intercept)


def _fast_steps(
    problem: bf.Problem,
    data: Block,
    w: Array,
    rows: NDArray[np.intp],
    gain: Array,
    point: RankedPoint,
    rate: float,
    kernel: ext.Kernel,
    shrink: Shrink,
) -> Array:
    X = data.X[0][rows] if isinstance(data.X, np.ndarray) else data.X[rows].toarray()
    y, margin = data.y[0][rows], problem.loss.targets == "sign"
    sign, shift = (-y, np.zeros_like(y)) if margin else (np.ones_like(y), y)
    return reduced_steps(
        w,
        X,
        sign,
        shift,
        gain,
        point.gradients[0][rows],
        point.gradient[0].copy(),
        rate,
        kernel,
        shrink,
    )


def slow_steps(
    problem: bf.Problem,
    data: Block,
    w: Array,
    rows: NDArray[np.intp],
    gain: Array,
    point: RankedPoint,
    rate: float,
) -> Array:
    """The steps of an epoch for any loss, predictor and regulariser with a prox."""
    for j, weight in zip(rows, gain, strict=True):
        row = common.take(data, np.array([j]))
        gradient = problem.loss.gradient(problem.predictor.forward(w, row), row.y)
        pull = problem.predictor.backward(
            w, weight * (gradient - point.gradients[:, j : j + 1]), row
        )[0]
        w = common.descend(problem, w, pull + point.gradient[0], rate)
    return w
