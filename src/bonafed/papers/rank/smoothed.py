"""Spectral (rank-based) risks by ADMM with a smoothed regulariser.

    minimise over w, z:  Omega(z) + M(w)  subject to  z = D w - b,
            M(w) = min_u g(u) + ||u - w||^2 / (2 gamma)  (7)

Section 4 of Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*: Algorithm
1 with the Moreau envelope M in place of g. M has the gradient (w - prox_g(w)) / gamma, which is a
gradient of g at w~ = prox_g(w) (8); so the answer is w~, and its residuals are those of the steps
(Proposition 2). gamma shrinks with the iterations: ``Smoothing()`` is their schedule. The w-step is
exact: where g is separable, the prox of M is one of g,

    prox_{s M}(v) = v + s / (s + gamma) (prox_{(s + gamma) g}(v) - v)

in which no number is divided by gamma. Iterations, penalties and the proven gap are those of
``RankADMM``; smoothing relaxes the convergence proof's assumption on the multipliers, and does not
make iterations faster.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Streams
from bonafed.papers.rank import stochastic as common


@dataclass(frozen=True)
class Smoothing(ext.Checked):
    """gamma_k = max(start factor^k, least), with the paper's defaults.

    ``Smoothing(g, 1, g)`` never changes.

    Parameters
    ----------
    start : gamma_0 > 0
    factor : in (0, 1]
    least : > 0; the optimum moves by at most least / 2 times the squared gradient of g

    Examples
    --------
    >>> import bonafed as bf
    >>> gamma = bf.Smoothing(start=1e-3, factor=0.5, least=1e-4)
    >>> [gamma.at(k) for k in range(5)]
    [0.001, 0.0005, 0.00025, 0.000125, 0.0001]
    """

    start: float = 1e-5
    factor: float = 0.9
    least: float = 1e-9

    def __post_init__(self) -> None:
        if not (0 < self.start < math.inf and 0 < self.factor <= 1 and 0 < self.least < math.inf):
            raise ValueError(
                f"Smoothing needs start > 0, factor in (0, 1] and least > 0, got {self.start},"
                f" {self.factor} and {self.least}. Without smoothing use RankADMM()."
            )

    def at(self, k: int) -> float:
        """The parameter gamma_k."""
        return max(self.start * self.factor**k, self.least)


@dataclass(frozen=True)
class SmoothedRankADMM(ext.RankMethod):
    """Algorithm 1 with the Moreau envelope of the regulariser, on pooled rows.

    Parameters
    ----------
    smoothing : schedule of gamma
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)) is proven (convex
        problems)
    max_rounds : a cap on rounds of ``check`` iterations
    penalty : schedule of rho; None is ``Balanced()``, or ``Growing(limit=10 / n)`` for problems
        that are not convex
    r : weight of the proximal term r / 2 ||w - w_k||^2, >= 0
    relaxation : in [1, 1.9]; 1 is the algorithm as printed, and what problems that are not convex
        use
    check : iterations between two evaluations of the gap
    tol_residual : both relative residuals at which the iterations end where no bound exists
    start : first model, zeros by default

    Raises
    ------
    ValueError
        more than one client, sample weights, parameters out of range, or smoothing.start > 1 / (3
        c) for a regulariser of weak convexity c, whose envelope then need not be smooth
    TypeError
        losses without a rank coordinate (``Quantile``, ``Multinomial``), predictors other than
        ``Linear``

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> solution = bf.solve(problem, fed.pooled(), algorithm=bf.SmoothedRankADMM())
    >>> bool(solution.certificate.relative_gap < 1e-5)
    True
    """

    advised: ClassVar[int] = 2
    smoothing: Smoothing = Smoothing()
    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 500
    penalty: ext.Penalty | None = None
    r: float = 0.0
    relaxation: float = 1.6
    check: int = 10
    tol_residual: float = 1e-6
    start: Array | None = None
    problem: bf.Problem | None = None

    def __post_init__(self) -> None:
        self.check_settings()

    def check_problem(self, problem: bf.Problem, fed: bf.Federation | None) -> None:
        """Raise ``ValueError`` where gamma is too large for the regulariser's envelope."""
        c = problem.regulariser.weak_convexity
        if 3 * c * self.smoothing.start > 1:
            raise ValueError(
                f"the envelope of {problem.regulariser!r} needs gamma <= 1 / (3 c) ="
                f" {1 / (3 * c):g}, got smoothing.start = {self.smoothing.start:g}: give a smaller"
                " one."
            )

    # -- the client --------------------------------------------------------------------------------

    def client_start(self, data: Block) -> ext.IterateMemory:
        task = ext.RankTask.of(self.concrete, data)
        w = self.first_model(task, data)
        it = ext.first(task, self._penalty(task), w)
        value, none = task.objective(w, it.t), np.zeros_like(it.t)
        parts: tuple[Any, ...] = (*it, w, value, -math.inf, none, it.t)
        return ext.closed(ext.IterateMemory(*parts))

    def advance(
        self, memory: ext.IterateMemory, ask: ext.Advance, data: Block, rng: Streams
    ) -> tuple[ext.IterateMemory, ext.Advanced]:
        """Take ``check`` iterations, then evaluate the gap or the residuals."""
        task, now = ext.RankTask.of(self.concrete, data), ext.opened(memory)
        it, alpha = ext.iterate_of(now), now.rows
        for _ in range(self.check):
            gamma, relaxation = self.smoothing.at(it.k), self.relaxation if task.convex else 1.0
            it, alpha = ext.iterate(task, self._penalty(task), it, self.r, relaxation, gamma)
        residual = max(it.primal, it.change)
        finished = ext.EXHAUSTED if residual <= 1e-14 else 0.0
        if math.isinf(now.bound) and residual <= self.tol_residual:
            finished = ext.STATIONARY
        last = finished > 0 or ask.turn + 1 >= self.max_rounds
        now, w = replace(now, **it._asdict()), task.prox(it.w, self.smoothing.at(it.k - 1))
        value = task.objective(w)
        # the best w~ is kept, and of a problem that is not convex the last one
        if value < now.value or (last and not task.convex):
            now = replace(now, best=w, value=np.asarray(value))
            if not task.convex:
                now = replace(now, rows=-it.dual, split=it.z)
        bound = ext.proven(task.problem, data, alpha, float(now.value))
        if task.convex and (bound > now.bound or math.isinf(now.bound)):
            now = replace(now, bound=np.asarray(bound), rows=alpha, split=it.z)
        best, value, bound = task.design.outward(now.best), float(now.value), float(now.bound)
        return ext.closed(now), ext.advanced(best, value, bound, it.k, residual, finished)

    def _penalty(self, task: ext.RankTask) -> ext.Penalty:
        if self.penalty is not None:
            return self.penalty
        return bf.Balanced() if task.convex else bf.Growing(limit=10 / len(task.design.rows.sign))


# DCA: a spectral risk as a difference of two convex ones, one of them linearised; a comparator.
#
#     Omega = Omega_plus - Omega_minus,    sigma = plus - minus, both nondecreasing
#     v = a subgradient of Omega_minus at w;    w <- argmin_u  Omega_plus(u) + h(u) - <v, u>
#
# An outer step never raises the objective, since Omega_minus lies above its linearisation. The
# inner program is solved roughly by ``inner`` steps u <- prox_{rate h}(u - rate (subgradient - v)),
# and the best u is taken. For v equal losses are ranked at random: sharing their weights would
# cancel subgradients where all losses are equal, as at w = 0.
#
# Hu, Ying, Wang and Lyu, *Sum of ranked range loss for supervised learning*, for the difference of
# two averages of top losses; this version takes any rank weights. It deviates from their code:
# subgradients by rank replace its threshold variables, the intercept is that of the model, and the
# best objective is selected, not the best validation accuracy.


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
    advised: ClassVar[int] = 2
    requirements: ClassVar = ext.Requirements(
        clients=ext.ONE_CLIENT, predictor=ext.AFFINE, over_samples=ext.ONE_SPECTRUM
    )

    def __post_init__(self) -> None:
        ext.check_positive(self, "learning_rate", remedy="0.01 is usual.")
        ext.check_least(self, "inner", "max_rounds")

    def client_start(self, data: Block) -> common.Descent:
        first = ext.with_start(self.concrete, self.start, data.n_features)
        return common.started(first, self.learning_rate)

    def advance(
        self, memory: common.Descent, ask: ext.Advance, data: Block, rng: Streams
    ) -> tuple[common.Descent, ext.Advanced]:
        """Take one outer step."""
        problem, before = self.concrete, memory.w[0]
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                best = self._inner(data, before, rng(0))
                memory = common.judged(problem, memory, best, data)
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

    def _inner(self, data: Block, w: Array, generator: np.random.Generator) -> Array:
        """The best of ``inner`` steps on Omega_plus + h - <v, .> from w, w itself included."""
        # without ranks, the rows' shares
        problem, plus, minus = self.concrete, data.share[0], np.zeros(data.y.shape[1])
        if ext.by_rank(problem.over_samples):
            plus, minus = ext.plus_minus(problem.over_samples.rank_weights(len(minus)))
        linear = np.zeros_like(w)
        if minus.any():
            linear = self._subgradient(data, w, minus, generator)[1]
        best, least, u = w, math.inf, w
        for left in range(self.inner, -1, -1):
            risk, gradient = self._subgradient(data, u, plus)
            value = risk + problem.penalty(u) - float(linear @ u)
            if value < least:
                best, least = u, value
            if left:
                u = common.descend(problem, u, gradient - linear, self.learning_rate)
        return best

    def _subgradient(
        self, data: Block, w: Array, sigma: Array, generator: np.random.Generator | None = None
    ) -> tuple[float, Array]:
        """sum_i sigma_i loss_[i](w) and a subgradient of it.

        Without ranks sigma stays with its rows. Equal losses share their weights, or with a
        generator are put in a random order.
        """
        problem = self.concrete
        prediction = problem.predictor.forward(w, data)
        losses = common.finite(problem.loss.value(prediction, data.y))
        weights = sigma
        if generator is not None:
            weights = np.empty_like(sigma)
            weights[np.lexsort((generator.random(len(sigma)), losses[0]))] = sigma
        elif ext.by_rank(problem.over_samples):
            weights = ext.weights_by_rank(sigma, losses[0])
        gradients = ext.by_row(weights[None], problem.loss.gradient(prediction, data.y))
        return float(weights @ losses[0]), problem.predictor.backward(w, gradients, data)[0]
