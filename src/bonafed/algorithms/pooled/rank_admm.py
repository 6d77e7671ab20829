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

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from bonafed.algorithms.method import Answer, Concluded, check_least, with_start
from bonafed.algorithms.pooled import single_client
from bonafed.algorithms.pooled.rank_subproblems import (
    RANK_REQUIREMENTS,
    Balanced,
    ByResidual,
    Growing,
    Penalty,
    Progress,
    RankTask,
)
from bonafed.algorithms.pooled.single_client import EXHAUSTED, STATIONARY, OwnerState, PooledMethod
from bonafed.algorithms.requirements import Requirements
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Form
from bonafed.parameters import Checked
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import plus_minus
from bonafed.rounds import Conclude, record
from bonafed.solvers.rank.proxes import PLUS, ascending, gradients_of
from bonafed.solvers.rank.semismooth_newton import NEWTON_STEPS as STEPS
from bonafed.solvers.rank.semismooth_newton import Point, outer_step

# Algorithm 1 of Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*, the
# client's memory in it, and the base of the methods that use it.
#
#     L_rho(w, z; lambda) = Omega(z) + <lambda, z - t> + rho / 2 ||z - t||^2 + g(w),    t = D w - b
#
# Line numbers are theirs. Beyond the box: over-relaxation, and rho may change with every iteration.
# With gamma > 0 the w-step has the Moreau envelope of g in place of g: their section 4.


class Iterate(NamedTuple):
    """The iterate of the algorithm, from which the next iteration starts."""

    w: Array  # (D,)
    t: Array  # (n,) D w - b
    z: Array  # (n,)
    dual: Array  # (n,) lambda
    rho: float
    patience: float  # the schedule's memory
    k: int
    primal: float  # ||z - t||, relative to z and t
    change: float  # rho ||D (w - w_before)||, relative to lambda


def first(task: RankTask, penalty: Penalty, w: Array) -> Iterate:
    """The start at a model: z = D w - b and no multipliers."""
    t = task.rank_coordinates(w)
    return Iterate(w, t, t, np.zeros_like(t), penalty.first(len(t)), 0.0, 0, 1.0, 1.0)


def iterate(
    task: RankTask, penalty: Penalty, at: Iterate, r: float, relaxation: float, gamma: float = 0.0
) -> tuple[Iterate, Array]:
    """The next iterate, and the multipliers rho (m - z) of its z-step, a subgradient of Omega."""
    m = at.t - at.dual / at.rho
    z = task.z_step(m, at.rho)  # line 2
    ahead = relaxation * z + (1 - relaxation) * at.t  # z itself with relaxation = 1
    target = ahead + task.design.rows.shift + at.dual / at.rho
    w = task.w_step(target, at.rho, at.w, r, _accuracy(at), gamma)  # line 3
    t = task.rank_coordinates(w)
    dual = at.dual + at.rho * (ahead - t)  # line 4
    gap = float(np.linalg.norm(z - t))
    primal = gap / max(float(np.linalg.norm(z)), float(np.linalg.norm(t)), 1e-300)
    change = at.rho * float(np.linalg.norm(t - at.t)) / max(float(np.linalg.norm(dual)), 1e-300)
    rho, patience = penalty.after(Progress(at.k + 1, at.rho, primal, change, gap, at.patience))
    return Iterate(w, t, z, dual, rho, patience, at.k + 1, primal, change), at.rho * (m - z)


def _accuracy(at: Iterate) -> float:
    """The accuracy of an iterative w-step, in units of its gradient: well below the residuals."""
    largest = float(np.abs(at.dual).max(initial=0.0))
    return max(1e-3 * min(at.primal, at.change, 1.0) * largest, 1e-14)


ADMM, NEWTON, POLISH, CLOSING = 0.0, 1.0, 2.0, 3.0  # stages


@record
class IterateMemory:
    """The client's memory in both ADMMs; every array has a leading axis for the one client."""

    w: Annotated[Array, Form("n, D")]  # the iterate: see ``Iterate``
    t: Annotated[Array, Form("n, rows")]
    z: Annotated[Array, Form("n, rows")]
    dual: Annotated[Array, Form("n, rows")]
    rho: Annotated[Array, Form("n")]
    patience: Annotated[Array, Form("n")]
    k: Annotated[Array, Form("n")]  # iterations of this start
    primal: Annotated[Array, Form("n", infinite=True, nan=True)]
    change: Annotated[Array, Form("n", infinite=True, nan=True)]
    best: Annotated[Array, Form("n, D")]  # the model of least objective
    value: Annotated[Array, Form("n", infinite=True)]
    bound: Annotated[Array, Form("n", infinite=True)]
    # multipliers: of the best bound, or beside the best model where there is none
    rows: Annotated[Array, Form("n, rows")]
    split: Annotated[Array, Form("n, rows")]  # z beside them


@record
class RankMemory(IterateMemory):
    """The client's memory in ``RankADMM``."""

    stage: Annotated[Array, Form("n")]
    step: Annotated[Array, Form("n", infinite=True)]  # length of the next proximal step
    gaps: Annotated[Array, Form("n, 4", infinite=True)]  # relative gaps of the last rounds
    idle: Annotated[Array, Form("n")]  # rounds without progress
    outer: Annotated[Array, Form("n")]  # Newton's outer steps so far
    # iterations before which Newton steps are not tried again
    wait: Annotated[Array, Form("n", infinite=True)]
    steps: Annotated[Array, Form("n")]  # iterations in all
    start: Annotated[Array, Form("n")]  # number of the start
    own: Annotated[Array, Form("n, D")]  # the best model of this start
    found: Annotated[Array, Form("n", infinite=True)]  # its objective
    polished: Annotated[Array, Form("n")]  # steps of the polish of this start
    # of every start: iterations, objective, steps of the polish
    table: Annotated[Array, Form("n, S, 3", infinite=True, nan=True)]


def size(v: Array) -> float:
    """The norm ||v||_2."""
    return float(np.linalg.norm(v))


def iterate_of(now: IterateMemory) -> Iterate:
    """The iterate of Algorithm 1 in a memory."""
    rho, patience, primal, change = map(float, (now.rho, now.patience, now.primal, now.change))
    return Iterate(now.w, now.t, now.z, now.dual, rho, patience, int(now.k), primal, change)


def continued(now: RankMemory, it: Iterate, steps: int) -> RankMemory:
    """The memory after these iterations."""
    return replace(now, steps=now.steps + steps, **it._asdict())


def kept(now: RankMemory, w: Array, value: float, rows: Array, split: Array) -> RankMemory:
    """The memory with the best models of this start and of all starts."""
    if value < now.found:
        now = replace(now, own=w, found=value)
    return replace(now, best=w, value=value, rows=rows, split=split) if value <= now.value else now


class RankMethod(PooledMethod):
    """The base of ``RankADMM`` and ``SmoothedRankADMM``."""

    requirements: ClassVar[Requirements] = RANK_REQUIREMENTS
    penalty: Penalty | None
    r: float
    relaxation: float
    check: int
    start: Array | None

    def check_settings(self) -> None:
        """Raise ``ValueError`` for settings out of range."""
        check_least(self, "r", least=0)
        if not 1 <= self.relaxation <= 1.9:
            raise ValueError(f"relaxation must be in [1, 1.9], got {self.relaxation!r}.")
        check_least(self, "check")
        if self.check != int(self.check):
            raise ValueError(f"check must be a whole number, got {self.check!r}.")
        if self.penalty is not None and not hasattr(self.penalty, "after"):
            raise ValueError(
                f"penalty must be a schedule such as Growing(1e-5, 1.2), got {self.penalty!r}."
            )

    @property
    def on_client(self) -> dict:
        return super().on_client | {Conclude: self.conclude}

    def conclude(
        self, memory: Any, ask: Conclude, data: Block, rng: Streams
    ) -> tuple[Any, Concluded]:
        """Send the multipliers of the rows and z, of which the certificate is made, and of a
        nonconvex problem the starts.
        """
        starts = getattr(memory, "table", None)
        return memory, Concluded(rows=memory.rows, split=memory.split, starts=starts)

    def answer(self, state: OwnerState, concluded: Concluded | None = None) -> Answer:
        """The model, and once the client has concluded the multipliers of its rows with z beside
        them.
        """
        if concluded is None or concluded.rows is None or concluded.split is None:
            return Answer(state.w)
        return Answer(state.w, row_duals=(concluded.rows[0], concluded.split[0]))

    def first_model(self, task: RankTask, data: Block) -> Array:
        """The user's first model or the problem's, for the centred features of the task."""
        return task.design.inward(with_start(self.concrete, self.start, data.n_features))


# Rank weights that are not monotone: continuation in rho, difference-of-convex polish, starts.
#
# A small rho that grows slowly lets the early iterations see a smoothed problem; it decides which
# minimum is met. The polish writes sigma = sigma_plus - sigma_minus with both nondecreasing,
# replaces Omega_minus by its tangent at w_k
#
#     w_{k+1} = argmin  Omega_plus(D w - b) + g(w) - <v, w>,  v = D'(q * l'(t_k)),
#             q in the set of sigma_minus
#
# (Phan 2016; Hu, Ying, Wang, Lyu 2020), solves this convex problem accurately, and goes on along
# the step while the objective falls (Aragon Artacho, Vuong 2020): it never rises.

ACCURATE = 1e-6  # relative decrease below which the polish ends
MOST = 100  # its steps at most


@dataclass(frozen=True)
class Start(Checked):
    """A schedule and a first model: the method's, plus ``spread`` times standard normal numbers.

    Without a schedule the polish begins at the first model itself.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.RankedRange(500, 0), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(starts=(bf.Start(bf.Growing()), bf.Start(None, spread=1.0)))
    >>> len(bf.solve(problem, fed.pooled(), algorithm=method).tries)
    2
    """

    penalty: Penalty | None
    spread: float = 0.0


RANGE_STARTS = (
    *(Start(Growing(2e-7, 1.01), spread) for spread in (0.0, 1.0, 10.0)),
    *(Start(Growing(2e-7, 1.02), spread) for spread in (0.0, 1.0)),
    *(Start(Growing(2e-6, 1.01), spread) for spread in (0.0, 0.1, 1.0)),
    *(Start(Growing(1e-5, 1.02), spread) for spread in (0.0, 0.1, 1.0, 1.0)),
    *(Start(Growing(1e-4, 1.02), spread) for spread in (0.0, 1.0, 1.0)),
)
POLISHED_STARTS = tuple(Start(None, spread) for spread in (0.3, 1.0, 3.0, 0.3, 1.0, 3.0))
SMALL = 4000  # numbers in D up to which a polish from any model is quick
PROSPECT_STARTS = (
    Start(ByResidual(1e-4, 1.02, 1.07)),
    Start(Growing(1e-5, 1.02)),
    Start(ByResidual(1e-4, 1.01, 1.02), spread=0.1),
    Start(ByResidual(1e-4, 1.01, 1.02), spread=1.0),
)
WEAK_STARTS = (Start(Balanced()), Start(Growing(1e-5, 1.02)), Start(Balanced(), spread=1.0))


def starts_of(starts: tuple[Start, ...] | None, task: RankTask) -> tuple[Start, ...]:
    """The user's starts, or the built-in ones where they are None."""
    if starts is not None:
        return starts
    if getattr(task.problem.over_samples, "convex", True):
        return WEAK_STARTS
    if task.sigma is None:
        return PROSPECT_STARTS
    if task.separable is None:
        return RANGE_STARTS[::4]  # without a polish every start is long
    return RANGE_STARTS + (POLISHED_STARTS if task.design.D.size <= SMALL else ())


class Polished(NamedTuple):
    """A model after a step of the polish, and the multipliers of its convex problem."""

    w: Array
    value: float
    rows: Array  # alpha_plus - the tangent's gradient: minus lambda
    split: Array  # z
    steps: int


def polish(task: RankTask, w: Array, further: bool = True) -> Polished | None:
    """One accurate step from w; None where the convex problem has no Newton form.

    It has none for prospect weights and an unknown g.

    Without ``further`` the model is the convex problem's solution, so that rows and split belong to
    it.
    """
    if task.sigma is None:
        return None
    plus, minus = plus_minus(task.sigma)
    t = task.rank_coordinates(w)
    tangent = _tangent(task, minus, t)
    inner = replace(task, sigma=plus, tilt=tangent @ task.design.D)
    if inner.system is None:
        return None
    at, steps = _solved(inner, Point(w, t, _tangent(task, plus, t)), plus)
    model = Polished(at.w, task.objective(at.w), at.alpha - tangent, at.z, steps)
    step, length = at.w - w, 1.0
    while further and length < 1e6:
        beyond = model.w + length * step
        if not (lower := task.objective(beyond)) < model.value:
            break
        model, length = model._replace(w=beyond, value=lower), 2 * length
    return model


def _solved(inner: RankTask, at: Point, plus: Array) -> tuple[Point, int]:
    """The solution of the convex problem of a step, and the Newton steps it took."""
    system, steps, last = inner.system, 0, np.inf
    assert system is not None
    length = max(size(at.w), 1e-3) / max(size(at.alpha @ system.D), 1e-300)
    for k in range(30):
        new, newton = outer_step(system, at, length, 0.1 / (1 + k))
        steps += newton
        if newton >= STEPS:  # unfinished
            length /= 4
            continue
        at, length = new, length * (4.0 if newton <= 20 else 1.0)
        losses = np.sort(inner.losses(inner.rank_coordinates(at.w)))
        value = float(losses @ plus) + system.h.value(at.w)
        if last - value <= 1e-11 * max(abs(value), 1e-300) and k > 3:
            break
        last = value
    return at, steps


def _tangent(task: RankTask, sigma: Array, t: Array) -> Array:
    """q * l'(t) with sigma in the order of the losses.

    It is a subgradient of its Omega at t where sigma is nondecreasing.
    """
    q = np.empty_like(sigma)
    q[ascending(np.abs(t) if task.kernel.even else t)] = sigma
    return q * gradients_of(t, task.kernel)


# Nonconvex problems in ``RankADMM``: starts one after the other, their polish, and the end.
#
# Every start runs Algorithm 1 while rho grows, until z and D w - b are one; the polish of
# ``rank_starts`` takes over where it applies. The best model of all starts ends with plain steps of
# the polish, or, where there is none, with iterations at a constant rho, so that the multipliers
# handed to the certificate are its own.

CLOSING_STEPS = 20
SETTLING = (3.0, 10.0, 30.0)  # constant rho, times n
SPLIT = 1e-5  # relative ||z - t|| at which a start goes over to its polish
SLACK = 1e-6  # relative, of an objective whose multipliers have settled
HOPE = 20  # steps like the last one


@dataclass(frozen=True)
class Exploration:
    """A round of ``RankADMM`` on a problem that is not convex, which tries several starts.

    ``method`` is the ``RankADMM``; starts without spread begin at ``first_model``.
    """

    method: Any
    task: RankTask
    first_model: Array
    rng: Streams

    def step(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take iterations of one start, or a step of its polish; the best model is stored."""
        if now.stage == POLISH:
            return self._polish(now)
        if now.stage == CLOSING:
            return self._close(now)
        if self.starts[int(now.start)].penalty is None and self._polishable:
            value = self.task.objective(now.w)
            plain = kept(now, now.w, value, self.task.subgradient(now.t), now.t)
            return replace(plain, stage=POLISH), 0.0
        penalty, it = self._penalty(int(now.start)), iterate_of(now)
        for _ in range(5):
            for _ in range(self.method.check):
                it, _ = iterate(self.task, penalty, it, self.method.r, 1.0)
            value = self.task.objective(it.w, it.t)
            now = kept(continued(now, it, self.method.check), it.w, value, -it.dual, it.z)
        residual = it.primal if self._polishable else max(it.primal, it.change)
        met = residual <= (SPLIT if self._polishable else self.method.tol_residual)
        if not met and it.k < self.method.max_iterations:
            return now, 0.0
        if self._polishable:
            return replace(now, stage=POLISH, w=now.own), 0.0
        return self._next(now)

    def _polish(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take a difference-of-convex step; the start ends when it gains nothing more."""
        model, before = polish(self.task, now.w), float(now.found)
        if model is None:
            return self._next(now)
        now = replace(now, steps=now.steps + model.steps, polished=now.polished + 1)
        if model.value < before:
            now = kept(replace(now, w=model.w), model.w, model.value, model.rows, model.split)
        gain = before - model.value
        # another start is further ahead than this one can come
        hopeless = model.value - float(now.value) > HOPE * gain
        done = gain <= ACCURATE * abs(before) or hopeless or now.polished >= MOST
        return self._next(now) if done else (now, 0.0)

    def _close(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take a plain step of the polish from the best model, or ``_settle``.

        So the multipliers and z belong to that model.
        """
        if not self._polishable:
            return self._settle(now)
        model, before = polish(self.task, now.best, further=False), float(now.value)
        now = replace(now, polished=now.polished + 1)
        if model is None or model.value > before + 1e-12 * abs(before):
            return now, STATIONARY
        off = size(model.split - self.task.rank_coordinates(model.w))
        off /= max(size(model.split), 1e-300)
        moved = size(model.w - now.best) / max(size(model.w), 1e-300)
        now = replace(now, best=model.w, value=model.value, rows=model.rows, split=model.split)
        now = replace(now, primal=off, change=moved)
        done = before - model.value <= 1e-12 * abs(before) or now.polished >= CLOSING_STEPS
        return now, STATIONARY if done else 0.0

    def _settle(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Take iterations at a constant rho, during which the multipliers settle."""
        w, n = now.best, len(now.t)
        penalty = Growing(SETTLING[int(now.polished)] / n, 1.0)
        it = first(self.task, penalty, w)
        start = self.task.subgradient(it.t)
        if now.polished == 0:  # until something better is found
            now = replace(now, rows=start, split=it.t, primal=0.0, change=math.inf)
        it = it._replace(dual=-start)
        for _ in range(50 * self.method.check):
            it, _ = iterate(self.task, penalty, it, self.method.r, 1.0)
        value, residual = self.task.objective(it.w, it.t), max(it.primal, it.change)
        better = residual < max(float(now.primal), float(now.change))
        if value <= now.value + SLACK * abs(now.value) and better:
            now = replace(now, best=it.w, value=value, rows=-it.dual, split=it.z)
            now = replace(now, primal=it.primal, change=it.change)
        now = replace(now, polished=now.polished + 1, steps=now.steps + 50 * self.method.check)
        if now.polished < len(SETTLING):
            return now, 0.0
        return now, STATIONARY if math.isfinite(float(now.change)) else EXHAUSTED

    @property
    def _polishable(self) -> bool:
        task = self.task
        return self.method.polish and task.sigma is not None and task.separable is not None

    def _next(self, now: RankMemory) -> tuple[RankMemory, float]:
        """Write this start's line of the table and begin the next start."""
        at, table = int(now.start), now.table.copy()
        table[at] = float(now.k), float(now.found), float(now.polished)
        now = replace(now, table=table, start=at + 1, found=math.inf, polished=0)
        if at + 1 >= len(self.starts):
            return replace(now, stage=CLOSING), 0.0
        w = self.first_model
        if self.starts[at + 1].spread:
            w = w + self.starts[at + 1].spread * self.rng(0).standard_normal(len(w))
        now = replace(now, stage=ADMM)
        return continued(now, first(self.task, self._penalty(at + 1), w), 0), 0.0

    def _penalty(self, at: int) -> Penalty:
        return self.method.penalty or self.starts[at].penalty or Balanced()

    @property
    def starts(self) -> tuple[Start, ...]:
        """The method's, or the built-in ones for this kind of problem."""
        return starts_of(self.method.starts, self.task)


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
        tries = [
            {"start": k, "objective": value, "iterations": int(count), "polish": int(polished)}
            for k, (count, value, polished) in enumerate(concluded.starts[0].tolist())
            if not math.isnan(value)
        ]
        return answer._replace(tries=tries)

    # -- the client --------------------------------------------------------------------------------

    def client_start(self, data: Block) -> RankMemory:
        task = RankTask.of(self.concrete, data)
        w = self.first_model(task, data)
        it = first(task, self._penalty(task), w)
        value = task.objective(w, it.t)
        S = 1 if task.convex else len(starts_of(self.starts, task))
        counts = "stage", "step", "idle", "outer", "wait", "steps", "start", "polished"
        parts: dict[str, Any] = it._asdict() | dict.fromkeys(counts, 0.0)
        parts |= {"best": w, "own": w, "value": value, "bound": -math.inf, "found": math.inf}
        parts |= {"rows": np.zeros_like(it.t), "split": it.t, "gaps": np.full(4, np.inf)}
        return single_client.closed(RankMemory(**parts, table=np.full((S, 3), np.nan)))

    def advance(
        self, memory: RankMemory, ask: single_client.Advance, data: Block, rng: Streams
    ) -> tuple[RankMemory, single_client.Advanced]:
        task, now = RankTask.of(self.concrete, data), single_client.opened(memory)
        if not task.convex:
            now, finished = Exploration(self, task, self.first_model(task, data), rng).step(now)
        elif now.stage == NEWTON:
            now, finished = self._newton(task, now, data)
        else:
            now, finished = self._descend(task, now, data)
        numbers = float(now.value), float(now.bound), int(now.steps)
        residual = max(float(now.primal), float(now.change))
        best = task.design.outward(now.best)
        return single_client.closed(now), single_client.advanced(best, *numbers, residual, finished)

    # -- convex problems ---------------------------------------------------------------------------

    def _descend(self, task: RankTask, now: RankMemory, data: Block) -> tuple[RankMemory, float]:
        """Take ``check`` iterations of Algorithm 1, then evaluate the gap."""
        it, alpha = iterate_of(now), now.rows
        for _ in range(self.check):
            it, alpha = iterate(task, self._penalty(task), it, self.r, self.relaxation)
        now = _judged(task, continued(now, it, self.check), alpha, data)
        value, bound = float(now.value), float(now.bound)
        gap = (value - bound) / max(abs(value), abs(bound), 1e-12)  # inf where no bound is proved
        now = replace(now, gaps=np.append(now.gaps[1:], gap))
        if math.isinf(now.bound) and max(it.primal, it.change) <= self.tol_residual:
            return now, single_client.STATIONARY
        if self.finish and self._slow(now, task) and task.system is not None:
            spread = float(np.einsum("ij,ij->", task.design.D, task.design.D)) / len(it.t)
            step = 10.0 / (it.rho * max(spread, 1e-300))
            now = replace(now, dual=-alpha, stage=NEWTON, idle=0, outer=0, step=step)
            return now, 0.0
        if max(it.primal, it.change) <= 1e-14:
            return now, single_client.EXHAUSTED
        capped = math.isinf(now.bound) and it.k >= self.max_iterations
        return now, single_client.CAPPED if capped else 0.0

    def _slow(self, now: RankMemory, task: RankTask) -> bool:
        """Whether, at the rate of the last rounds, the gap needs longer than Newton steps would.

        Kinks of many more rows than coefficients change with every Newton step: there the
        iterations stay the faster.
        """
        n, D = task.design.D.shape
        if task.sigma is None or now.k < now.wait:
            return False
        if task.kernel.kind == PLUS and np.count_nonzero(task.sigma) > MANY * D:
            return False
        old, new, size = float(now.gaps[0]), float(now.gaps[-1]), min(n, D)
        if not math.isfinite(old):
            return bool(now.k >= 20 * self.check)
        work = 0.3 * n * D * size + size**3 / 3
        steps = NEWTON_STEPS * (4 + work / (4 * n * D + 2 * size**2) / FASTER)
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
            return replace(now, stage=ADMM, wait=4 * now.k, gaps=np.full(4, np.inf)), 0.0
        t = task.rank_coordinates(at.w)
        now = replace(now, w=at.w, t=t, z=at.z, dual=-at.alpha)
        now = _judged(task, now, at.alpha, data)
        longest = LONGEST * max(size(at.w), 1e-3) / max(size(at.alpha @ system.D), 1e-100)
        factor = 4.0 if newton <= 20 else 1.0
        lower = now.value < old.value - 1e-15 * abs(old.value)
        better = lower or now.bound > old.bound + 1e-15 * abs(now.value)
        least = size(task.design.rows.shift) if task.kernel.even else math.sqrt(len(t))
        unit = max(size(t), 1e-3 * least, 1e-300)
        now = replace(now, step=min(float(now.step) * factor, longest))
        now = replace(now, idle=0 if better else now.idle + 1)
        now = replace(now, primal=size(at.z - t) / unit, change=size(t - old.t) / unit)
        if now.idle < 6:
            return now, 0.0
        done = math.isinf(now.bound) and now.primal <= self.tol_residual
        return now, single_client.STATIONARY if done else single_client.EXHAUSTED

    def _penalty(self, task: RankTask) -> Penalty:
        if self.penalty is not None:
            return self.penalty
        return Balanced() if task.convex else starts_of(self.starts, task)[0].penalty or Balanced()


def _judged(task: RankTask, now: RankMemory, alpha: Array, data: Block) -> RankMemory:
    """The memory with the best model and the best bound so far, and the bound's multipliers."""
    value = task.objective(now.w, now.t)
    if value < now.value:
        now = replace(now, best=now.w, value=value)
    bound = single_client.proven(task.problem, data, alpha, float(now.value))
    if bound > now.bound or math.isinf(now.bound):
        now = replace(now, bound=bound, rows=alpha, split=now.z)
    return now
