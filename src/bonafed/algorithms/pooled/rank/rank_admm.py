"""Spectral (rank-based) risks by ADMM with exact steps, then Newton steps where these are faster.

    minimise over w, z:  Omega(z) + g(w)  subject to  z = D w - b,
            Omega(z) = sum_i sigma_i l(z_[i])  (9)

Algorithm 1 of Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization* is
in ``iteration``. Its z-step is one exact pass of PAVA, its w-step one product with a cached
eigendecomposition (l2, none), coordinate descent (l1) or proximal gradient steps. This file has the
damped balancing of rho, the proven gap, and the change to proximal Newton steps
(``solvers.rank.semismooth_newton``) once the gap falls too slowly. Nonconvex problems go to
``multistart``.

The client that holds the rows does all the work; the server receives model, value, bound and
residual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.algorithms.method import Answer, Concluded, check_least
from bonafed.algorithms.pooled import single_client
from bonafed.algorithms.pooled.rank.iteration import (
    ADMM,
    NEWTON,
    Exploration,
    RankMemory,
    RankMethod,
    Start,
    continued,
    first,
    iterate,
    iterate_of,
    number,
    relative_gap,
    size,
    starts_of,
)
from bonafed.algorithms.pooled.rank.subproblems import Balanced, Penalty, RankTask
from bonafed.arrays import Array, Block, Streams
from bonafed.problem.problem import Problem
from bonafed.solvers.rank.scalar_losses import PLUS
from bonafed.solvers.rank.semismooth_newton import NEWTON_STEPS as STEPS
from bonafed.solvers.rank.semismooth_newton import Point, outer_step

LONGEST = 1e5  # of a proximal step beside ||w|| / ||D'alpha||: beyond, only rounding grows
NEWTON_STEPS = 50  # that a finish takes about
MANY = 10  # rows that count for every coefficient
FASTER = 8  # floating-point operations of matrix products, beside those of matrix-vector products


@dataclass(frozen=True)
class RankADMM(RankMethod):
    """The default for the rows of one client under a rank risk.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)) is proven (convex
        problems)
    max_rounds : a cap; a round is ``check`` iterations, one outer step of Newton's method or one
        step of the polish
    penalty : schedule of rho; None is ``Balanced()``, and that of each start where the risk is not
        convex
    r : weight of the proximal term r / 2 ||w - w_k||^2, >= 0
    relaxation : in [1, 1.9]; 1 is Algorithm 1 as printed, and what problems that are not convex use
    check : iterations between two evaluations of the gap
    finish : go over to Newton steps when the gap falls too slowly (convex problems)
    tol_residual : where no bound exists: both relative residuals at which the iterations end
    max_iterations : of one start, where no bound exists
    starts : tried in turn where the risk is not convex, the best kept; None is a built-in list
    polish : difference-of-convex steps after every start
    start : first model, zeros by default

    Raises
    ------
    ValueError
        more than one client, sample weights, parameters out of range
    TypeError
        losses without a rank coordinate (``Quantile``, ``Multinomial``), predictors other than
        ``Linear``

    Notes
    -----
    ``solution.tries`` has one row for every start of a problem that is not convex. Where no polish
    applies (prospect weights, MCP, SCAD) the model may end up to 1e-6, relative, above the best
    start's, so that its multipliers are its own. Memory is that of the dense matrix and of min(n,
    D)^2 numbers.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> solution = bf.solve(problem, fed.pooled(), algorithm=bf.RankADMM())
    >>> bool(solution.certificate.relative_gap < 1e-5)
    True
    """

    tol: float = 1e-6
    atol: float = 0.0
    max_rounds: int = 2000
    penalty: Penalty | None = None
    r: float = 0.0
    relaxation: float = 1.6
    check: int = 10
    finish: bool = True
    tol_residual: float = 1e-6
    max_iterations: int = 3000
    starts: tuple[Start, ...] | None = None
    polish: bool = True
    start: Array | None = None
    problem: Problem | None = None

    def __post_init__(self) -> None:
        self.check_settings()
        check_least(self, "max_iterations")
        if self.starts is not None and not self.starts:
            raise ValueError(f"starts must be None or one Start or more, got {self.starts!r}.")

    def answer(self, state: single_client.OwnerState, concluded: Concluded | None = None) -> Answer:
        """The answer of ``RankMethod``, with one row for every start of a nonconvex problem."""
        answer = super().answer(state, concluded)
        if concluded is None or concluded.starts is None:
            return answer
        return answer._replace(tries=_starts(concluded.starts[0].tolist()))

    # -- the client --------------------------------------------------------------------------------

    def client_start(self, data: Block) -> RankMemory:
        task = RankTask.of(self._problem, data)
        w = self._first_model(task, data)
        it = first(task, self._penalty(task), w)
        value = task.objective(w, it.t)
        S = 1 if task.convex else len(starts_of(self.starts, task))
        zero = np.zeros(())
        return single_client.closed(
            RankMemory(
                *map(np.asarray, it),
                best=w,
                value=number(value),
                bound=number(-math.inf),
                rows=np.zeros_like(it.t),
                split=it.t,
                stage=zero,
                step=zero,
                gaps=np.full(4, np.inf),
                idle=zero,
                outer=zero,
                wait=zero,
                steps=zero,
                start=zero,
                own=w,
                found=number(math.inf),
                polished=zero,
                table=np.full((S, 3), np.nan),
            )
        )

    def advance(
        self, memory: RankMemory, ask: single_client.Advance, data: Block, rng: Streams
    ) -> tuple[RankMemory, single_client.Advanced]:
        task, now = RankTask.of(self._problem, data), single_client.opened(memory)
        if not task.convex:
            w = self._first_model(task, data)
            now, finished = Exploration(self, task, w, rng).step(now)
        elif now.stage == NEWTON:
            now, finished = self._newton(task, now, data)
        else:
            now, finished = self._descend(task, now, data)
        residual = max(float(now.primal), float(now.change))
        best, value, bound = task.design.outward(now.best), float(now.value), float(now.bound)
        return single_client.closed(now), single_client.advanced(
            best, value, bound, int(now.steps), residual=residual, finished=finished
        )

    # -- convex problems ---------------------------------------------------------------------------

    def _descend(self, task: RankTask, now: RankMemory, data: Block) -> tuple[RankMemory, float]:
        """Take ``check`` iterations of Algorithm 1, then evaluate the gap."""
        it, alpha = iterate_of(now), now.rows
        for _ in range(self.check):
            it, alpha = iterate(task, self._penalty(task), it, self.r, self.relaxation)
        now = _judged(task, continued(now, it, self.check), it.w, it.t, alpha, it.z, data)
        now = replace(now, gaps=np.append(now.gaps[1:], relative_gap(now)))
        if math.isinf(now.bound) and max(it.primal, it.change) <= self.tol_residual:
            return now, single_client.STATIONARY
        if self.finish and self._slow(now, task) and task.system is not None:
            spread = float(np.einsum("ij,ij->", task.design.D, task.design.D)) / len(it.t)
            step = 10.0 / (it.rho * max(spread, 1e-300))
            new = {"stage": NEWTON, "idle": 0, "outer": 0, "step": step}
            return (
                replace(now, dual=-alpha, **{name: number(value) for name, value in new.items()}),
                0.0,
            )
        if max(it.primal, it.change) <= 1e-14:
            return now, single_client.EXHAUSTED
        return now, single_client.CAPPED if math.isinf(
            now.bound
        ) and it.k >= self.max_iterations else 0.0

    def _slow(self, now: RankMemory, task: RankTask) -> bool:
        """Whether, at the rate of the last rounds, the gap needs longer than Newton steps would.

        Kinks of many more rows than coefficients change with every Newton step: there the
        iterations stay the faster.
        """
        n, D = task.design.D.shape
        if task.sigma is None or (
            task.kernel.kind == PLUS and np.count_nonzero(task.sigma) > MANY * D
        ):
            return False
        if now.k < now.wait:
            return False
        old, new = float(now.gaps[0]), float(now.gaps[-1])
        if not math.isfinite(old):
            return bool(now.k >= 20 * self.check)
        size = min(n, D)
        steps = NEWTON_STEPS * (
            4 + (0.3 * n * D * size + size**3 / 3) / (4 * n * D + 2 * size**2) / FASTER
        )
        rate = math.log(max(old, 1e-300) / max(new, 1e-300)) / (3 * self.check)
        return math.log(max(new, 1e-300) / max(self.tol, 1e-16)) > steps * max(rate, 0.0)

    def _newton(self, task: RankTask, now: RankMemory, data: Block) -> tuple[RankMemory, float]:
        """Take a proximal point step by semismooth Newton, a longer one while they are cheap."""
        system, old = task.system, now
        assert system is not None
        start = Point(now.w, now.z, -now.dual)
        at, newton = outer_step(system, start, float(now.step), 0.1 / (1 + float(now.outer)))
        now = replace(now, outer=now.outer + 1, steps=now.steps + newton)
        if newton >= STEPS:  # unfinished: nothing is kept
            return replace(now, stage=number(ADMM), wait=4 * now.k, gaps=np.full(4, np.inf)), 0.0
        t = task.rank_coordinates(at.w)
        now = replace(now, w=at.w, t=t, z=at.z, dual=-at.alpha)
        now = _judged(task, now, at.w, t, at.alpha, at.z, data)
        longest = LONGEST * max(size(at.w), 1e-3) / max(size(at.alpha @ system.D), 1e-100)
        factor = 4.0 if newton <= 20 else 1.0
        better = now.value < old.value - 1e-15 * abs(
            old.value
        ) or now.bound > old.bound + 1e-15 * abs(now.value)
        unit = max(
            size(t),
            1e-3 * (size(task.design.rows.shift) if task.kernel.even else math.sqrt(len(t))),
            1e-300,
        )
        now = replace(
            now,
            step=number(min(float(now.step) * factor, longest)),
            idle=number(0 if better else now.idle + 1),
            primal=number(size(at.z - t) / unit),
            change=number(size(t - old.t) / unit),
        )
        if now.idle < 6:
            return now, 0.0
        return now, (
            single_client.STATIONARY
            if math.isinf(now.bound) and now.primal <= self.tol_residual
            else single_client.EXHAUSTED
        )

    def _penalty(self, task: RankTask) -> Penalty:
        if self.penalty is not None:
            return self.penalty
        return Balanced() if task.convex else starts_of(self.starts, task)[0].penalty or Balanced()


def _judged(
    task: RankTask, now: RankMemory, w: Array, t: Array, alpha: Array, z: Array, data: Block
) -> RankMemory:
    """The memory with the best model and the best bound so far, and the bound's multipliers."""
    value = task.objective(w, t)
    if value < now.value:
        now = replace(now, best=w, value=number(value))
    bound = single_client.proven(task.problem, data, alpha, float(now.value))
    if bound > now.bound or math.isinf(now.bound):
        now = replace(now, bound=number(bound), rows=alpha, split=z)
    return now


def _starts(table: list[list[float]]) -> list[dict[str, Any]]:
    """One row per start: its objective, iterations, and steps of the polish."""
    return [
        {"start": k, "objective": value, "iterations": int(count), "polish": int(polished)}
        for k, (count, value, polished) in enumerate(table)
        if not math.isnan(value)
    ]
