"""A federated interior point method: rounds of sums of gradients, Hessians and Jacobians.

    minimise  R(f_1(w), ..., f_N(w)) + h(w)  subject to  c_0(w) <= 0,  sum_i c~_i(w) <= 0,
            c_i(w) <= 0 for every i

(5) of He, Peng, Sun, *Federated learning with convex global and local constraints*, solved by
primal-dual Newton steps at the server (``solvers/smooth/primal_dual.py``) for models of up to some
hundred coefficients: tens of rounds where their ADMM needs thousands. A step that is refused costs
a round like any other. h is smooth (L2), or an L1 or a box, which become linear inequalities that
the server adds, as does R (``client_risk.py``).

In a round the server learns the *sums* over all clients of values, gradients and Hessians, but
every single client's constraint values c_i(w) and their gradients; ``ProximalAL`` reveals a point
u~_i and a number of every client. Without local constraints only sums are revealed; where R is not
a mean, so are every client's f_i and gradient. The server keeps all multipliers.

Where Newton's method fails (many refused steps in a row, or diverging multipliers) the same rounds
minimise the largest violation t instead. An optimum t > 0, with multipliers y >= 0 of sum 1, proves
that no model is feasible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated.interior_point import program as of
from bonafed.algorithms.federated.interior_point.program import (
    RISK_WITH_ROWS,
    Expanded,
    Scale,
    averaged,
)
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Counter, Extended, Form
from bonafed.problem.claims import Claim
from bonafed.problem.client_means import client_gradients, client_values, hessians
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.multipliers import Multipliers, no_multipliers, weighting
from bonafed.problem.plausible import Claims, of_lagrangian, of_limits, of_risk
from bonafed.problem.problem import Problem
from bonafed.rounds import Done, Each, Round, Stop, record
from bonafed.solvers.smooth import primal_dual as newton

HALVINGS = 3  # refused steps in a row before the Hessian is regularised further
MEMORY = 4  # accepted points whose largest residual a new one has to beat
# an objective this far below 0, in units of its gradient at the start, is called unbounded
FALLEN = 1e10
# curvature added where only violations are minimised: most directions do not matter to them
FLAT = 1e-6
MET = 1e-7  # largest violation, as stated, of a model that is called optimal whatever the tolerance
PATIENCE = 12  # rounds without a better residual before the method is called stuck


@record
class Expand:
    """Ask for values, gradients and curvature at ``w`` of weight * f + <multipliers, c>."""

    w: Annotated[Array, Form("D")]
    weight: float  # 1, or 0 where a feasible point is sought
    prior: Annotated[Each, Form("N")]  # q_i
    local: Annotated[Each, Form("N, p")]
    shared: Annotated[Array, Form("p_c")]


@record
class InteriorState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]  # the last accepted model, or the first
    nearest: Annotated[Array, Form("D")]  # the accepted model with the smallest violation
    n_clients: Annotated[int, Form(most="N")]
    # the largest of every client's constraints
    client_violation: Annotated[Array, Form("N", infinite=True, nan=True)]
    least: Extended = math.inf  # the violation of ``nearest``
    program: newton.Program | None = None  # at w
    at: newton.Iterate | None = None
    trial: newton.Iterate | None = None  # the point at which the clients are asked
    by: newton.Iterate | None = None  # the step that leads to it
    length: tuple[float, float] = (1.0, 1.0)  # primal, dual part of it
    mu: float = 1.0  # the barrier parameter of the step
    nu: float = 1.0  # penalty of the merit function
    delta: float = 0.0  # regularisation of the Hessian
    refused: Counter = 0
    scale: Scale | None = None
    # residuals of the last accepted points: they need not fall at every step
    recent: tuple[Extended, ...] = ()
    best: Extended = math.inf  # smallest residual so far
    since: Counter = 0  # rounds since then
    phase: int = 2  # 2: the problem; 1: the smallest violation
    value: Annotated[float, Form(infinite=True, nan=True)] = math.nan  # objective at w
    violation: Extended = math.inf
    residual: Extended = math.inf
    duals: Multipliers | None = None
    rounds: Annotated[int, Form(rounds=0)] = 0
    steps: int = 0


@dataclass(frozen=True)
class InteriorPoint(base.Method):
    """A second-order method for smooth problems with constraints and small models: the reference.

    Parameters
    ----------
    tol : stop when all scaled residuals are below it, and the complementarity gap below it relative
        to the objective
    atol : or the gap below it absolutely
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default; it need not be feasible

    Raises
    ------
    ValueError
        for losses that are not smooth, regularisers other than Zero, L2, L1, ElasticNet, Bounds,
        constraints without second derivatives

    Notes
    -----
    A round sends D numbers down and D (D + 1) up per client (the Hessian is not packed), p (D + 1)
    for p constraints.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.InteriorPoint())
    >>> bool(solution.certificate.relative_gap < 1e-6)
    True
    """

    tol: float = 1e-9
    atol: float = 0.0
    max_rounds: int = 100
    start: Array | None = None
    problem: Problem | None = None
    stateless: ClassVar[bool] = True
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        constraint=needs.TWICE_DIFFERENTIABLE,
        predictor=needs.AFFINE,
        over_samples=needs.MEAN_OF_ROWS,
        over_clients=RISK_WITH_ROWS,
        loss=needs.SMOOTH_SCALAR,
        regulariser=needs.CONIC,
    )

    def __post_init__(self) -> None:
        base.check_end(self, "tol", "atol")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Expand: self.expand}

    def expand(self, memory: None, ask: Expand, data: Block, rng: Streams) -> tuple[None, Expanded]:
        problem = self._problem
        w = (
            ask.w
            if len(ask.w)
            else base.within_bounds(problem, np.zeros(problem.predictor.dimension(data.n_features)))
        )
        at = Point(problem, w, data)
        local, coupled = problem.local_constraint, problem.constraint.coupled
        n, weight = len(data.names), ask.weight * ask.prior
        terms = [(local, ask.local), (coupled, np.tile(ask.shared, (n, 1)))]
        mean = averaged(problem.over_clients)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long is refused for it
            return memory, Expanded(
                value=ask.prior * client_values(at),
                gradient=ask.prior[:, None] * client_gradients(at),
                hessian=hessians(at, weight, terms, together=True),
                risk=None if mean else client_values(at),
                risk_gradient=None if mean else client_gradients(at),
                local=local.values(at),
                local_jacobian=local.jacobian(at),
                shared=coupled.values(at),
                shared_jacobian=coupled.jacobian(at),
            )

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Expanded: self.improve}

    @property
    def claims(self) -> Claims:
        return {Expanded: self._said}

    def _said(self, who: int, ask: Expand, up: Expanded) -> Iterator[Claim]:
        """What an answer claims."""
        problem, q, D = self._problem, float(ask.prior[0]), up.gradient.shape[1]
        w = ask.w if len(ask.w) else base.within_bounds(problem, np.zeros(D))
        risk, slope = up.risk, up.risk_gradient
        if q > 0 and risk is None:
            risk, slope = up.value / q, up.gradient / q
        if risk is not None:
            yield from of_risk(problem, w, risk, slope)
        yield from of_limits(problem, w, "local", None, up.local, up.local_jacobian)
        yield from of_limits(problem, w, "shared", None, up.shared, up.shared_jacobian)
        yield from of_lagrangian(problem, w, up.hessian)

    def server_start(self, n_clients: int) -> tuple[InteriorState, Round]:
        none = base.start_or_empty(self.start)
        state = InteriorState(none, none, n_clients, np.full(n_clients, math.nan))
        return state, self._ask(state, none, no_multipliers(self._problem, n_clients))

    def _ask(self, state: InteriorState, w: Array, mu: Multipliers) -> Round:
        q = mu.weights if mu.weights is not None else weighting(self._problem, mu, state.n_clients)
        return Round(Expand(w, float(state.phase == 2), q, mu.local, mu.shared))

    def _asking(
        self, state: InteriorState, w: Array, mu: Multipliers
    ) -> tuple[InteriorState, Round | Done]:
        return base.unless_capped(state, self._ask(state, w, mu), state.rounds, self.max_rounds)

    def improve(
        self, state: InteriorState, ids: Sequence[int], up: Expanded
    ) -> tuple[InteriorState, Round | Done]:
        state = replace(state, rounds=state.rounds + 1)
        asked = state.w if state.trial is None else _model(state, state.trial)
        w = asked if len(asked) else base.within_bounds(self._problem, np.zeros_like(up.gradient))
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = of.pieces(self._problem, w, up)
            if state.trial is None:
                return self._begin(state, w, up, pieces)
            p = self._program(state, state.trial, up, pieces)
        if self._refused(state, p):
            return self._shorter(state)
        return self._advance(state, p, state.trial, up, pieces)

    def _program(
        self, state: InteriorState, at: newton.Iterate, up: Expanded, pieces: of.Pieces
    ) -> newton.Program:
        scale, phase, cone = (
            base.known(state.scale),
            state.phase,
            float(at.z[-1]) if len(at.z) else 0.0,
        )
        mu = of.multipliers(self._problem, at, pieces, scale, phase, state.n_clients)
        return of.program(self._problem, at.x, up, pieces, scale, phase, mu, cone)

    def _begin(
        self, state: InteriorState, w: Array, up: Expanded, pieces: of.Pieces
    ) -> tuple[InteriorState, Round | Done]:
        """Set slacks and multipliers at a first model of this phase."""
        box = base.within_bounds(self._problem, w)
        if (box != w).any():
            state = replace(state, w=box)
            return self._asking(state, box, self._first(state, len(box)))
        scale = state.scale or of.scale_of(self._problem, up, pieces)
        state = replace(
            state, scale=scale, recent=(), best=math.inf, since=0, delta=0.0, refused=0, nu=1.0
        )
        x = of.start_of(self._problem, w, state.phase, pieces, scale, up.risk)
        p = of.program(self._problem, x, up, pieces, scale, state.phase, self._first(state, len(w)))
        if not of.finite(p):
            raise ArithmeticError(
                "values at the first model are not finite: rescale the features, or give start=."
            )
        at = newton.first(p, x)
        if state.phase == 1:
            at = replace(at, z=np.full(len(at.z), 1 / len(pieces.c)))
        return self._advance(state, p, at, up, pieces)

    def _first(self, state: InteriorState, D: int) -> Multipliers:
        """The multipliers of the first request of a phase: none, or equal ones of sum one."""
        if state.phase == 2 or state.scale is None:
            return no_multipliers(self._problem, state.n_clients)
        shape, none = of.layout(self._problem, state.n_clients, D), np.zeros(0)
        equal = newton.Iterate(none, none, np.full(2 * len(shape.c), 1 / len(shape.c)), none)
        return of.multipliers(self._problem, equal, shape, state.scale, 1, state.n_clients)

    def _refused(self, state: InteriorState, p: newton.Program) -> bool:
        """Whether the trial neither lowers the merit function nor the residuals."""
        old, at = base.known(state.program), base.known(state.at)
        by, trial = base.known(state.by), base.known(state.trial)
        if not of.finite(p):
            return True
        before = newton.merit(old, at.s, state.mu, state.nu)
        gradient = newton.merit_gradient(old, at, by, state.mu, state.nu)
        after = newton.merit(p, trial.s, state.mu, state.nu)
        if gradient < 0 and after <= before + 1e-4 * state.length[0] * gradient + 1e-13 * abs(
            before
        ):
            return False
        return newton.residuals(p, trial).worst > 0.95 * max(state.recent)

    def _shorter(self, state: InteriorState) -> tuple[InteriorState, Round | Done]:
        """Try half the step; after many of these a step with a regularised Hessian."""
        at, by, p = base.known(state.at), base.known(state.by), base.known(state.program)
        state = replace(state, refused=state.refused + 1, since=state.since + 1)
        if state.refused % HALVINGS == 0:
            size = max(
                float(np.abs(np.diag(p.hessian)).max(initial=0.0)),
                float(np.abs(p.gradient).max(initial=0.0)),
            )
            return self._step(replace(state, delta=max(100 * state.delta, 1e-3 * size)))
        length = state.length[0] / 2, state.length[1] / 2
        return self._try(replace(state, length=length, trial=newton.moved(at, by, *length)))

    def _advance(
        self,
        state: InteriorState,
        p: newton.Program,
        at: newton.Iterate,
        up: Expanded,
        pieces: of.Pieces,
    ) -> tuple[InteriorState, Round | Done]:
        """Accept a point, and stop or step on."""
        problem, w = self._problem, _model(state, at)
        left = newton.residuals(p, at)
        better, broken = left.worst < 0.9 * state.best, of.violation(pieces)
        nearer = not broken > 0.99 * state.least
        state = replace(
            state,
            w=w,
            nearest=w if nearer else state.nearest,
            least=min(broken, state.least),
            program=p,
            at=at,
            refused=0,
            delta=state.delta / 10 if state.delta > 1e-10 else 0.0,
            recent=(*state.recent[1 - MEMORY :], left.worst),
            best=min(state.best, left.worst),
            since=0 if better else state.since + 1,
            value=(float(up.value) if up.risk is None else problem.over_clients.value(up.risk))
            + problem.penalty(w),
            violation=broken,
            client_violation=of.by_client(problem, up),
            residual=left.worst,
            steps=state.steps + 1,
        )
        settled, scale = of.settled(p, at, state.phase), base.known(state.scale)
        duals = of.multipliers(problem, settled, pieces, scale, state.phase, state.n_clients)
        state = replace(state, duals=duals)
        return self._phase_one(state, at, left) if state.phase == 1 else self._step(state)

    def _phase_one(
        self, state: InteriorState, at: newton.Iterate, left: newton.Residuals
    ) -> tuple[InteriorState, Round | Done]:
        """Return to the problem at a strictly feasible model, or end with a proof of none."""
        t = float(at.x[-1])
        if t < -1e-6 and state.violation == 0.0:
            return self._again(replace(state, phase=2))
        if left.worst > 1e-10:
            return self._step(state)
        return state, self._nothing_inside(t)

    def _nothing_inside(self, t: float) -> Done:
        """The end where the smallest violation t (scaled) is not below 0: at 0 the limits can be
        met, on their boundary only, where this method stops.
        """
        return Done(Stop.INFEASIBLE if t > 1e-8 else Stop.STALLED)

    def _again(self, state: InteriorState) -> tuple[InteriorState, Round | Done]:
        """Begin a phase at the model that violates least."""
        state = replace(state, w=state.nearest, trial=None, at=None, program=None)
        return self._asking(state, state.w, self._first(state, len(state.w)))

    def _step(self, state: InteriorState) -> tuple[InteriorState, Round | Done]:
        """Take the next direction, unless the residuals are small or do not fall any more."""
        p, at = base.known(state.program), base.known(state.at)
        way = newton.direction(p, at, max(state.delta, FLAT if state.phase == 1 else 0.0))
        left = newton.residuals(p, at)
        if state.phase == 2 and self._reached(state, way, left):
            return state, Done(Stop.OPTIMAL)
        if (
            state.phase == 2
            and p.value < -FALLEN
            and left.primal <= 1e-6
            and newton.recedes(p, at.x)
        ):
            return state, Done(Stop.UNBOUNDED)
        largest = float(np.abs(np.concatenate([at.z, at.lam])).max(initial=0.0))
        if state.since > PATIENCE or largest > 1e13:
            return self._stuck(state, left)
        nu = max(
            state.nu,
            1.5
            * float(
                np.abs(np.concatenate([at.z + way.step.z, at.lam + way.step.lam])).max(initial=0)
            ),
        )
        length = newton.steps(at, way.step)
        trial = newton.moved(at, way.step, *length)
        return self._try(
            replace(
                state,
                by=way.step,
                mu=way.mu,
                nu=nu,
                delta=max(state.delta, 0.0),
                length=length,
                trial=trial,
            )
        )

    def _reached(self, state: InteriorState, way: newton.Direction, left: newton.Residuals) -> bool:
        """Whether the second-order duality gap is within the tolerance and the limits are met."""
        p, at, scale = base.known(state.program), base.known(state.at), base.known(state.scale)
        dual = p.gradient + p.J.T @ at.z + p.E.T @ at.lam
        gap = float(at.s @ at.z) + abs(float(dual @ way.step.x))
        near = base.Progress(p.value, -math.inf, self.tol, self.atol / scale.objective)
        met = left.primal <= self.tol and state.violation <= max(
            MET, 1e-14 * float(scale.rows.max(initial=0.0))
        )
        return met and gap <= max(near.allowed(), 1e-14) and left.dual <= 10 * self.tol

    def _stuck(
        self, state: InteriorState, left: newton.Residuals
    ) -> tuple[InteriorState, Round | Done]:
        tol = 1e-6
        # whether it proves that, others check
        if state.phase == 1 and state.at is not None and state.at.x[-1] > tol:
            return state, self._nothing_inside(float(state.at.x[-1]))
        if state.phase == 1 or left.primal <= tol or not self._problem.constrained:
            return state, Done(Stop.STALLED)
        return self._again(replace(state, phase=1))

    def _try(self, state: InteriorState) -> tuple[InteriorState, Round | Done]:
        problem, trial, n = self._problem, base.known(state.trial), state.n_clients
        shape = of.layout(problem, n, len(state.w))
        mu = of.multipliers(problem, trial, shape, base.known(state.scale), state.phase, n)
        return self._asking(state, _model(state, trial), mu)

    def report(self, state: InteriorState) -> dict:
        """``objective`` and ``violation`` of the last accepted model; ``residual`` is scaled."""
        return {
            "objective": state.value,
            "violation": state.violation,
            "worst_violation": float(state.client_violation.max()),
            "mean_violation": float(state.client_violation.mean()),
            "residual": state.residual,
            "phase": state.phase,
            "steps": state.steps,
        }

    def answer(self, state: InteriorState, concluded: base.Concluded | None = None) -> base.Answer:
        """The model and the multipliers."""
        w = state.w
        if state.at is not None and state.scale is not None:
            units, n_clients = state.scale.units, state.n_clients
            w = of.rounded(self._problem, state.at, units, state.phase, n_clients)
        return base.Answer(w, multipliers=state.duals)


def _model(state: InteriorState, at: newton.Iterate) -> Array:
    units = base.known(state.scale).units
    return at.x[: len(units)] * units
