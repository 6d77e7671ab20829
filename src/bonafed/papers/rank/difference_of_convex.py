"""DCA: a spectral risk as a difference of two convex ones, one of them linearised; a comparator.

    Omega = Omega_plus - Omega_minus,    sigma = plus - minus, both nondecreasing
    v = a subgradient of Omega_minus at w;    w <- argmin_u  Omega_plus(u) + h(u) - <v, u>

An outer step never raises the objective, since Omega_minus lies above its linearisation. The inner
program is solved roughly by ``inner`` steps u <- prox_{rate h}(u - rate (subgradient - v)), and the
best u is taken. For v equal losses are ranked at random: sharing their weights would cancel
subgradients where all losses are equal, as at w = 0.

Hu, Ying, Wang and Lyu, *Sum of ranked range loss for supervised learning*, for the difference of
two averages of top losses; this version takes any rank weights. It deviates from their code:
subgradients by rank replace its threshold variables, the intercept is that of the model, and the
best objective is selected, not the best validation accuracy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Streams
from bonafed.papers.rank import stochastic as common


@dataclass(frozen=True)
class DCA(ext.PooledMethod):
    """Difference-of-convex steps on pooled rows; one round is one outer step.

    The defaults are those of the paper.

    Parameters
    ----------
    learning_rate : of the inner steps
    inner : inner steps of a round, each a pass over all rows
    tol, atol : stop when a gap of max(atol, tol max(|value|, |bound|)) is proven (convex problems)
    max_rounds : a cap on outer steps; a step that changes nothing ends the run too
    start : first model, zeros by default; where all losses are equal there, zeros are often
        critical: then give another

    Raises
    ------
    ValueError
        for a Wasserstein ball over samples, ``ProspectTheory`` (its weights change at a reference,
        so that it is not a difference of two sums by rank), more than one client, or settings out
        of range
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
    >>> solution = bf.solve(problem, fed.pooled(), algorithm=bf.DCA(inner=500, max_rounds=2))
    >>> bool(solution.certificate.relative_gap < 1e-2)
    True
    """

    learning_rate: float = 0.01
    inner: int = 2000
    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 10
    start: Array | None = None
    problem: bf.Problem | None = None
    requirements: ClassVar[ext.Requirements] = ext.Requirements(
        clients=ext.ONE_CLIENT, predictor=ext.AFFINE, over_samples=ext.ONE_SPECTRUM
    )

    def __post_init__(self) -> None:
        ext.check_positive(self, "learning_rate", remedy="0.01 is usual.")
        ext.check_least(self, "inner", "max_rounds")

    def client_start(self, data: Block) -> common.Descent:
        first = ext.with_start(self._problem, self.start, data.n_features)
        return common.started(first, self.learning_rate)

    def advance(
        self, memory: common.Descent, ask: ext.Advance, data: Block, rng: Streams
    ) -> tuple[common.Descent, ext.Advanced]:
        """Take one outer step."""
        problem, before = self._problem, memory.w[0]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                memory = common.judged(
                    problem, memory, self._inner(problem, data, before, rng(0)), data
                )
        except common.DivergedError as error:
            raise common.DivergedError(
                f"{error}: DCA diverges at learning rate {self.learning_rate:g}. Give a smaller"
                " one, or bring the features to unit size."
            ) from None
        memory = replace(memory, steps=memory.steps + self.inner)
        if ext.is_provable(problem):
            memory = common.proof(problem, memory, ask.turn, data)
        still = ext.EXHAUSTED if ask.turn > 0 and np.array_equal(memory.w[0], before) else 0.0
        return replace(memory, point=None), common.standing(memory, still)

    def _inner(
        self, problem: bf.Problem, data: Block, w: Array, generator: np.random.Generator
    ) -> Array:
        """The best of ``inner`` steps on Omega_plus + h - <v, .> from w, w itself included."""
        plus, minus = _laws(problem, data)
        linear = (
            _subgradient(problem, data, w, minus, generator)[1] if minus.any() else np.zeros_like(w)
        )
        best, least, u = w, math.inf, w
        for left in range(self.inner, -1, -1):
            risk, gradient = _subgradient(problem, data, u, plus)
            value = risk + problem.penalty(u) - float(linear @ u)
            if value < least:
                best, least = u, value
            if left:
                u = common.descend(problem, u, gradient - linear, self.learning_rate)
        return best


def _laws(problem: bf.Problem, data: Block) -> tuple[Array, Array]:
    """The parts (plus, minus) of the rank weights; without ranks, the rows' shares and zeros."""
    if ext.by_rank(problem.over_samples):
        return ext.plus_minus(problem.over_samples.rank_weights(data.y.shape[1]))
    return data.share[0], np.zeros(data.y.shape[1])


def _subgradient(
    problem: bf.Problem,
    data: Block,
    w: Array,
    sigma: Array,
    generator: np.random.Generator | None = None,
) -> tuple[float, Array]:
    """sum_i sigma_i loss_[i](w) and a subgradient of it; without ranks sigma stays with its rows.

    Equal losses share their weights, or with a generator are put in a random order.
    """
    prediction = problem.predictor.forward(w, data)
    losses = common.finite(problem.loss.value(prediction, data.y))
    if generator is not None:
        weights = np.empty_like(sigma)
        weights[np.lexsort((generator.random(len(sigma)), losses[0]))] = sigma
    else:
        weights = (
            ext.weights_by_rank(sigma, losses[0]) if ext.by_rank(problem.over_samples) else sigma
        )
    gradients = ext.by_row(weights[None], problem.loss.gradient(prediction, data.y))
    return float(weights @ losses[0]), problem.predictor.backward(w, gradients, data)[0]
