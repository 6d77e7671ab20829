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

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Streams, record


@dataclass(frozen=True)
class Smoothing:
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


@record
class SmoothedMemory(ext.IterateMemory):
    """The client's memory in ``SmoothedRankADMM``, whose best model is a w~."""


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

    def client_start(self, data: Block) -> SmoothedMemory:
        task = ext.RankTask.of(self._problem, data)
        w = self._first_model(task, data)
        it = ext.first(task, self._penalty(task), w)
        none = np.zeros_like(it.t)
        value: Any = task.objective(w, it.t)
        bound: Any = -np.inf
        numbers: tuple[Any, ...] = tuple(it)
        return ext.closed(
            SmoothedMemory(*numbers, best=w, value=value, bound=bound, rows=none, split=it.t)
        )

    def advance(
        self, memory: SmoothedMemory, ask: ext.Advance, data: Block, rng: Streams
    ) -> tuple[SmoothedMemory, ext.Advanced]:
        """Take ``check`` iterations, then evaluate the gap or the residuals."""
        task, now = ext.RankTask.of(self._problem, data), ext.opened(memory)
        it, alpha = ext.iterate_of(now), now.rows
        for _ in range(self.check):
            gamma, relaxation = self.smoothing.at(it.k), self.relaxation if task.convex else 1.0
            it, alpha = ext.iterate(task, self._penalty(task), it, self.r, relaxation, gamma)
        residual = max(it.primal, it.change)
        finished = ext.EXHAUSTED if residual <= 1e-14 else 0.0
        if math.isinf(now.bound) and residual <= self.tol_residual:
            finished = ext.STATIONARY
        last = finished > 0 or ask.turn + 1 >= self.max_rounds
        now = self._judged(
            task, replace(now, **it._asdict()), it, alpha, data, last and not task.convex
        )
        best, value, bound = task.design.outward(now.best), float(now.value), float(now.bound)
        return ext.closed(now), ext.advanced(
            best, value, bound, it.k, residual=residual, finished=finished
        )

    def _judged(
        self,
        task: ext.RankTask,
        now: SmoothedMemory,
        it: ext.Iterate,
        alpha: Array,
        data: Block,
        last: bool,
    ) -> SmoothedMemory:
        """The memory with the best w~ and bound; with ``last`` its w~ is the last one."""
        w = task.prox(it.w, self.smoothing.at(it.k - 1))
        value = task.objective(w)
        if value < now.value or last:
            now = replace(now, best=w, value=np.asarray(value))
            if not task.convex:
                now = replace(now, rows=-it.dual, split=it.z)
        bound = ext.proven(task.problem, data, alpha, float(now.value))
        if task.convex and (bound > now.bound or math.isinf(now.bound)):
            now = replace(now, bound=np.asarray(bound), rows=alpha, split=it.z)
        return now

    def _penalty(self, task: ext.RankTask) -> ext.Penalty:
        default = (
            bf.Balanced() if task.convex else bf.Growing(limit=10 / len(task.design.rows.sign))
        )
        return default if self.penalty is None else self.penalty
