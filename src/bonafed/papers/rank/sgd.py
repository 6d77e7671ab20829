"""Stochastic subgradients of spectral (rank-based) risks: a comparator.

    w <- prox_{rate h}( w - rate sum_{i in B} q_i gradient loss_i(w) ),
            q the rank weights within the minibatch B

An epoch runs through minibatches of a random permutation of the rows, its remainder left out. Ranks
within a minibatch are not ranks among all rows, so that the steps are biased and w settles near an
optimum, not at it. Mehta, Roulet, Pillutla, Liu and Harchaoui, *Stochastic optimization for
spectral risk measures*, with the prox step in place of the gradient of h. Deviation from the code
of Xiao and others: weights of a minibatch integrate the spectrum at its own size, and margin losses
keep labels -1 and +1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block
from bonafed.papers.rank import stochastic as common


@dataclass(frozen=True)
class SGD(common.EpochMethod):
    """Minibatch subgradient steps on pooled rows; one round is one epoch.

    Parameters
    ----------
    learning_rate : of every step; None: the rates of ``grid`` are tried in the first round and the
        best one kept
    batch : rows of a minibatch; all of them where there are fewer
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
    >>> solution = bf.solve(problem, fed.pooled(), algorithm=bf.SGD(max_rounds=20))
    >>> bool(solution.certificate.relative_gap < 0.1)
    True
    """

    learning_rate: float | None = None
    batch: int = 64
    grid: Sequence[float] | None = None
    trial_epochs: int = 20
    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 2000
    start: Array | None = None
    problem: bf.Problem | None = None

    def __post_init__(self) -> None:
        ext.check_least(self, "batch", meaning=": it is the number of rows of a minibatch")
        self.check_settings()

    def epoch(
        self, data: Block, walk: common.Descent, generator: np.random.Generator
    ) -> tuple[Array, int]:
        """The model after one step for each minibatch, and their number."""
        problem, n, w, rate = self._problem, data.y.shape[1], walk.w[0], float(walk.rate[0])
        size = min(self.batch, n)
        weigh, order = common.sampled_weights(problem, data, size), generator.permutation(n)
        for k in range(n // size):
            rows = order[k * size : (k + 1) * size]
            batch = common.take(data, rows)
            prediction = problem.predictor.forward(w, batch)
            losses = common.finite(problem.loss.value(prediction, batch.y))
            gradients = ext.by_row(
                weigh(losses[0], rows)[None], problem.loss.gradient(prediction, batch.y)
            )
            w = common.descend(problem, w, problem.predictor.backward(w, gradients, batch)[0], rate)
        return w, n // size
