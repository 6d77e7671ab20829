"""The proximal augmented Lagrangian method, whose clients keep their data and constraints.

    minimise  sum_i q_i f_i(w) + h(w)  subject to  c_0(w) <= 0,  sum_i c~_i(w) <= 0,
            c_i(w) <= 0 for every client i

Algorithm 1 (outer: multipliers) with Algorithm 2 (inner: inexact ADMM) of He, Peng, Sun, *Federated
learning with convex global and local constraints*; equation numbers are theirs. A round is one
exchange with all clients: ``Refine`` is one iteration of Algorithm 2; ``Settle`` is lines 6-8 of
Algorithm 1 and line 1 of Algorithm 2, whose u~_i the server needs before its first step.
``ProximalAL.paper()`` is the method as printed. The defaults differ in five ways:

* copies and multipliers of consensus go on from one subproblem to the next, and start at u_i = w^0,
  lambda_i = 0;
* coefficients count in units of one over their columns' root mean squares, constraints in units of
  their gradients' sizes at the first model, and rho_i = a m_i, m_i the rows of client i: a run is
  the same whatever the units of features and constraints;
* a and beta are of the objective's curvature, and a follows the residuals of consensus at first;
* the points from which (19) starts are mixed by Anderson's acceleration, for which the server
  receives sums only;
* the run ends by a lower bound that every round yields (``_gap``), relative to the objective.

``client.py`` lists what is sent and who sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from quorate.algorithms.federated.proximal_al import client
from quorate.algorithms.federated.proximal_al import outcomes as words
from quorate.algorithms.federated.proximal_al.merit import own_sizes, raised
from quorate.algorithms.federated.proximal_al.messages import (
    Refine,
    Refined,
    Scan,
    Scanned,
    Settle,
    Settled,
)
from quorate.algorithms.federated.proximal_al.server import (
    Server,
    mixed,
    no_past,
    remembered,
    units,
)
from quorate.algorithms.federated.proximal_al.state import ProximalState, relative_pair, started
from quorate.algorithms.method import Answer, Concluded, Method, known
from quorate.algorithms.requirements import (
    AFFINE,
    ANY,
    AVERAGE,
    CONIC_AT_SERVER,
    MEAN_OF_ROWS,
    SMOOTH_SCALAR,
    Requirements,
)
from quorate.algorithms.settings import check_end, check_finite, check_positive, check_whole
from quorate.arrays import Array, is_number
from quorate.problem.constraints.constraint import excess
from quorate.problem.multipliers import Multipliers
from quorate.problem.problem import Problem
from quorate.rounds import Conclude, Done, Outcome, Round

# beta over the objective's curvature, first for convex constraints, then for others
STIFF, FIRM = 1e6, 300.0
# rho over the curvature of one client where constraints are not convex; it is not balanced there
TIGHT = 16.0
# the default tolerances assume that the model ends this near the optimum, relative to its size; the
# certificate decides
NEAR = 0.1
EVERY = 5  # rounds between two changes of rho
BALANCED = 60  # rounds in which rho may change after beta did
LONG = 100  # rounds after which a subproblem ends in any case where there is a lower bound
MET = 1e-7  # largest violation, in units of the constraints, of a model that is called optimal
# of the tolerance, at which a run ends: the certificate's bound charges otherwise for what is left
SURE = 0.25
FALL, GENTLE = 0.02, 0.2  # tau_{k+1} / tau_k, where there is a lower bound and where there is none
SLOW = 0.3  # violation of an outer iteration over that before it, above which beta grows
GROWTH = 5.0


@dataclass(frozen=True)
class ProximalAL(Method):
    """Constrained problems of any size, also with nonsmooth h or constraints that are not convex.

    Parameters
    ----------
    beta : penalty of the augmented Lagrangian; default from the curvature at the first model, and
        growing where constraints are not convex and the violation falls slowly
    rho : penalty of consensus; default from the curvature, and balanced at first
    s_bar, q : tau_k = s_bar / (k + 1)^2 and eps_{t+1} = q^t; default: relative tolerances, and the
        end by a lower bound
    scaled : count columns and constraints in their own units, with rho_i in proportion to client
        i's rows; False: as they are stated, with one rho
    memory : points mixed by the acceleration; 0 is Algorithm 2. Not used where constraints are not
        convex
    restart : every subproblem starts at u_i = w^k, lambda_i = -P_i'(w^k) (Algorithm 2, line 1);
        else where the last ended
    tol : of the gap relative to the objective; with ``s_bar`` eps_1 = eps_2 of (11)
    atol : or of the gap absolutely
    max_rounds : a cap on all rounds; a run that meets it is never called optimal
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for settings out of range; losses that are not smooth, regularisers that are not convex;
        with constraints at the server regularisers other than Zero, L1, L2, ElasticNet, Bounds

    Notes
    -----
    A round sends D + 6 numbers down and 2 D + 20 up per client. Where no feasible model exists the
    changes of the multipliers tend to a proof of it, which is then returned as the multipliers.

    Examples
    --------
    >>> import quorate as qr
    >>> from quorate.data import load
    >>> fed = load.hospitals()
    >>> problem = qr.Problem(qr.Logistic(), regulariser=qr.L2(0.1))
    >>> solution = qr.solve(problem, fed, algorithm=qr.ProximalAL())
    >>> bool(solution.certificate.relative_gap < 1e-4)
    True
    """

    beta: float | None = None
    rho: float | None = None
    s_bar: float | None = None
    q: float | None = None
    scaled: bool = True
    memory: int = 10
    restart: bool = False
    tol: float = 1e-4
    atol: float = 0.0
    max_rounds: int = 3000
    start: Array | None = None
    problem: Problem | None = None
    requirements: ClassVar[Requirements] = Requirements(
        constraint=ANY,
        predictor=AFFINE,
        over_samples=MEAN_OF_ROWS,
        over_clients=AVERAGE,
        loss=SMOOTH_SCALAR,
        regulariser=CONIC_AT_SERVER,
    )

    def __post_init__(self) -> None:
        check_positive(self, "beta", "rho", "s_bar")
        if self.q is not None and not (is_number(self.q) and 0 < self.q < 1):
            raise ValueError(
                f"q must be in (0, 1), got {self.q!r}: local problems are solved to q^t. Leave it"
                " out for the default."
            )
        check_whole(self, "memory", least=0, meaning=": 0 is the iteration without acceleration")
        if self.start is not None and not np.isfinite(np.asarray(self.start, float)).all():
            raise ValueError("start must be finite numbers, one for each coefficient.")
        check_end(self, "tol", "atol")
        check_finite(self, "tol", "atol")

    @classmethod
    def paper(
        cls,
        beta: float = 300.0,
        rho: float = 0.01,
        s_bar: float = 1e-3,
        q: float = 0.9,
        tol: float = 1e-3,
        **settings: object,
    ) -> ProximalAL:
        """The method as printed, with the settings of its section 5.1: one rho, as data are stated.

        The paper does not state q; 0.9 is in the authors' code. Section 5.2: ``paper(10, 1e8)``,
        where 0.1 is the authors' rho; E.2: ``paper(10, 1, s_bar=0.1)``.
        """
        options: dict[str, Any] = {"memory": 0, "restart": True, "scaled": False} | settings
        return cls(beta=beta, rho=rho, s_bar=s_bar, q=q, tol=tol, **options)

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {
            Scan: self._at_client(client.scan),
            Settle: self._at_client(client.settle),
            Refine: self._at_client(client.refine),
            Conclude: self._at_client(client.conclude),
        }

    # -- server: Algorithm 1 -----------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Scanned: self.settle_first, Settled: self.begin, Refined: self.improve}

    def server_start(self, n_clients: int) -> tuple[ProximalState, Round]:
        problem = self._problem
        glob, D = (
            problem.constraint,
            problem.predictor.dimension(problem.constraint.block.n_features),
        )
        w = np.zeros(D) if self.start is None else np.asarray(self.start, float)
        slack, held, coupled = (
            np.zeros((n_clients, glob.coupled.size)),
            np.zeros(glob.held.size),
            glob.coupled.size,
        )
        state = started(w, slack, held, np.zeros(coupled), self.beta or 1.0, self.rho or 1.0)
        if self.scaled:
            return state, Round(Scan(problem.over_clients.project(np.zeros(n_clients))))
        return state, self._begin_subproblem(state, state.beta, first=True)

    def settle_first(
        self, state: ProximalState, ids: Sequence[int], up: Scanned
    ) -> tuple[ProximalState, Round]:
        """Set the units of the columns and the shares of rho, and begin the first subproblem."""
        problem = self._problem
        columns = units(problem.regulariser, up.square, bool(problem.predictor.intercept))
        w = state.w / columns
        state = replace(
            state,
            columns=columns,
            share=up.rows / up.rows.mean(),
            w=w,
            anchor=w,
            shifted=len(up.rows) * w,
            rounds=state.rounds + 1,
        )
        return state, self._begin_subproblem(state, state.beta, first=True)

    def _begin_subproblem(self, state: ProximalState, old: float, first: bool = False) -> Round:
        """The request that ends a subproblem with the penalty ``old`` and begins the next one."""
        prior = self._problem.over_clients.project(np.zeros(len(state.share)))
        return Round(
            Settle(
                state.w,
                state.slack,
                state.unit,
                prior=prior if first else None,
                share=state.share if first else None,
                columns=state.columns if first else None,
                scaled=self.scaled,
                beta=old,
                next_beta=state.beta,
                sigma=self._server(state).sigma,
                rho=state.rho,
                restart=self.restart,
                at_copies=self._bounded,
            )
        )

    def begin(
        self, state: ProximalState, ids: Sequence[int], up: Settled
    ) -> tuple[ProximalState, Round | Done]:
        """Carry out line 9, and lines 2-3 of the next iteration."""
        state = replace(state, rounds=state.rounds + 1, inner=0)
        if up.steep is not None:
            state = self._scaled(state, up)
        else:
            state = self._tested(state, up)
            stop = self._stopped(state, up)
            if stop is not None:
                return state, Done(stop)
        if up.shifted is not None:
            state = replace(state, shifted=up.shifted, slack_shifted=up.slack)
        state = replace(
            state, anchor=state.w, slack_anchor=state.slack, tau=self._tau(state), fresh=1
        )
        return self._ask(state)

    def _scaled(self, state: ProximalState, up: Settled) -> ProximalState:
        """The state with beta, rho and the unit of s from the sizes at the first model."""
        assert up.steep is not None
        assert up.curvature is not None
        assert up.gradient is not None
        n, curvature = len(state.share), max(float(up.curvature), 0.0) or 1.0
        convex, server = client.convex_of(self._problem), self._server(state)
        if self.scaled:
            size = own_sizes(server.jacobian(state.w)[None], server.constraints(state.w)[None])[0]
            state = replace(state, size=size, unit=np.sqrt(up.steep / n))
        return replace(
            state,
            beta=self.beta or (STIFF if convex else FIRM) * curvature,
            rho=self.rho or (1.0 if convex else TIGHT) * curvature / n,
            scale=float(up.gradient) or 1.0,
        )

    def _tau(self, state: ProximalState) -> float:
        """The tolerance tau_k: as printed, or falling to half of what (11) asks."""
        if self.s_bar is not None:
            return self.s_bar / (state.outer + 1) ** 2  # line 2
        first = 0.1 * state.scale
        if self._bounded:
            return first * FALL**state.outer
        return max(0.5 * self._goal(state), first * GENTLE**state.outer)

    def _goal(self, state: ProximalState) -> float:
        """The tolerance eps_1 of (11): the user's, or one of ``tol`` of the objective at most."""
        if self.s_bar is not None:
            return self.tol
        size = NEAR * float(np.abs(state.w).sum())
        if not (size > 0 and math.isfinite(state.value)):
            return self.tol * state.scale
        allowed = max(self.atol, self.tol * abs(state.value)) / size
        return min(max(2 * allowed, 1e-4 * self.tol * state.scale), self.tol * state.scale)

    def _tested(self, state: ProximalState, up: Settled) -> ProximalState:
        """The state after a test whether the multipliers' changes prove that no model is feasible.

        The proof is to first order near w.
        """
        server, violation = self._server(state), state.excess
        y = raised(state.change, self._problem.constraint.held.equality)
        c = server.constraints(state.w)
        push, bite = up.push + y @ server.jacobian(state.w), float(up.bite) + float(y @ c)
        stuck = state.stuck + 1 if violation > max(0.9 * state.before, self.tol) else 0
        far = 10 * float(np.abs(push).max(initial=0.0)) * (1 + float(np.abs(state.w).sum()))
        product = float(up.product) + float(np.abs(state.multiplier * c).sum())
        infeasible = stuck > 2 and bite > far and client.convex_of(self._problem)
        return replace(state, before=violation, stuck=stuck, infeasible=infeasible, product=product)

    def _stopped(self, state: ProximalState, up: Settled) -> Outcome | None:
        """The outcome by (11), by a proof of infeasibility, or at the cap; None to go on."""
        if state.infeasible:
            return words.infeasible(state, up.change)
        goal = self._goal(state)
        moved = float(np.abs(state.w - state.anchor).max(initial=0.0))
        change = max(
            float(np.abs(part).max(initial=0.0))
            for part in (up.change, state.change, state.total_change)
        )
        still = moved / state.beta + state.tau <= goal and change <= state.beta * self.tol  # (11)
        allowed = max(self.atol, self.tol * abs(state.value))
        if still and not self._bounded and (self.s_bar is not None or state.product <= allowed):
            return words.optimal(self._problem, state, goal, change / state.beta)
        return self._capped(state, goal) if state.rounds >= self.max_rounds else None

    def _capped(self, state: ProximalState, goal: float) -> Outcome:
        measured = self.beta is None and self.rho is None
        return words.capped(state, goal, self.max_rounds, self.tol, measured)

    # -- server: Algorithm 2 -----------------------------------------------------------------------

    def _ask(self, state: ProximalState) -> tuple[ProximalState, Round]:
        """Solve (18), and ask the clients for the next iteration."""
        old, old_slack = state.w, state.slack
        server = self._server(state)
        w, exact = server.step(state.shifted, old)
        slack = server.slacks(state.slack_shifted, state.slack_anchor, state.total)
        if not np.isfinite(w).all():
            raise ArithmeticError(
                "the model is not finite any more: rescale the features, or give a larger rho."
            )
        past, mix = state.past, np.ones(1)
        if self._accelerated and not state.fresh:
            past, mix = mixed(past, w - old, slack - old_slack, state.share, self.memory)
        else:
            past = no_past(len(w), slack.shape)
        state = replace(state, w=w, slack=slack, exact=exact, past=past, fresh=0)
        room = state.tau - self._server_residual(state)
        tol = self._local_tol(state)
        return state, Round(
            Refine(w, slack, state.unit, state.beta, server.sigma, state.rho, tol, room, mix)
        )

    def improve(
        self, state: ProximalState, ids: Sequence[int], up: Refined
    ) -> tuple[ProximalState, Round | Done]:
        """Carry out line 10: the next iteration of Algorithm 2, or its end."""
        n, gap, off = len(state.share), *self._gap(state, up)
        state = replace(
            state,
            shifted=up.shifted,
            slack_shifted=up.slack,
            gap=gap,
            residual=off if self._bounded else self._server_residual(state) + float(up.residual),
            pair=relative_pair(up, state, n),
            value=float(up.value) + self._problem.penalty(state.columns * state.w),
            violation=up.violation,
            global_violation=self._global_violation(state, up.shared, stated=True),
            excess=max(float(up.excess), self._global_violation(state, up.shared, stated=False)),
            rounds=state.rounds + 1,
            inner=state.inner + 1,
            since=state.since + 1,
            settled=state.settled + 1,
        )
        allowed = SURE * max(self.atol, self.tol * abs(state.value))
        if self._bounded and state.excess <= MET and state.gap <= allowed:
            return state, Done(words.bounded(state))
        enough = state.residual <= state.tau and (self.s_bar is not None or state.inner > 1)  # (23)
        if enough or (self._bounded and state.inner >= LONG):
            return self._settle(state)
        if state.rounds >= self.max_rounds:
            return state, Done(self._capped(state, self._goal(state)))
        past = remembered(state.past, up.drift, up.slack_drift, up.inner)
        return self._ask(self._balanced(replace(state, past=past), up))

    def _gap(self, state: ProximalState, up: Refined) -> tuple[float, float]:
        """The gap by weak duality, and the residuals of the subproblem.

        The tangents of ``up`` and those of the server's parts at w, of h too, add up to

            L(w', s')  >=  L(w, s) - gap0 + <r, (w', s') - (w, s)>      for every (w', s')

        with r the sum of their gradients, which the messages show by the optimality conditions of
        (18) and (19). It is charged for all models as near w as 0 is: a gap that the certificate
        proves without this is smaller, unless the optimum is farther away.
        """
        server, share = self._server(state), state.share[:, None]
        step, prox = state.w - state.anchor, state.slack - state.slack_anchor
        r = state.rho * (state.shifted - up.shifted + up.drift) - step / state.beta
        slack = share * state.rho * (state.slack_shifted - up.slack + up.slack_drift)
        slack = slack - server.sigma * (2 * prox + up.slack_drift)
        apart = float(up.primal)  # sum_i share_i ||u_i - w||^2
        error = server.sigma * math.sqrt(len(share) * apart / share.min())  # sum_i (u_i - w)
        tol = server.tol * len(share) * math.sqrt(len(r))
        error += tol * float(up.unsolved) + state.exact * math.sqrt(len(r))
        held, total = self._next_multipliers(state)
        lagrangian = float(up.tangent) + float(held @ server.constraints(state.w))
        lagrangian += float(total @ state.slack.sum(0))
        far = math.sqrt(float(state.w @ state.w)) + math.sqrt(apart)
        wide = float(np.linalg.norm(state.slack)) + math.sqrt(apart)
        charge = (float(np.linalg.norm(r)) + error) * far + float(np.linalg.norm(slack)) * wide
        largest = max(float(np.abs(part).max(initial=0.0)) for part in (r, slack))
        off = largest + state.rho * math.sqrt(len(share) * apart)
        return float(up.value) - lagrangian + charge, off

    def _server_residual(self, state: ProximalState) -> float:
        """The term that (23) adds to the clients' residuals.

        It is eps_{t+1} as printed, or the size of what (18) left.
        """
        return self.q**state.inner if self.q is not None else state.exact

    def _settle(self, state: ProximalState) -> tuple[ProximalState, Round]:
        """Carry out lines 5-6 of Algorithm 1."""
        held, total = self._next_multipliers(state)
        slow = (
            self.beta is None
            and not self._bounded
            and state.excess > max(SLOW * state.before, self.tol)
            and math.isfinite(state.before)
        )
        beta = GROWTH * state.beta if slow else state.beta
        old = state.beta
        state = replace(
            state,
            multiplier=held,
            change=held - state.multiplier,
            total=total,
            total_change=total - state.total,
            beta=beta,
            settled=0 if slow else state.settled,
            outer=state.outer + 1,
            inner=0,
        )
        return state, self._begin_subproblem(state, old)

    def _balanced(self, state: ProximalState, up: Refined) -> ProximalState:
        """The state with rho balanced by the root of primal over dual residual, in early rounds."""
        fixed = self.rho is not None or not client.convex_of(self._problem)
        if fixed or state.settled > BALANCED or state.since < EVERY:
            return state
        primal, dual = state.pair
        if not (primal > 0 and dual > 0):
            return state
        factor = min(max(math.sqrt(primal / dual), 0.2), 5.0)
        if max(factor, 1 / factor) < 2:
            return state
        copies, slacks = len(state.share) * state.w + up.drift, state.slack + up.slack_drift
        return replace(
            state,
            rho=state.rho * factor,
            shifted=copies + (state.shifted - copies) / factor,  # u + lambda / rho, (21)
            slack_shifted=slacks + (state.slack_shifted - slacks) / factor,
            past=no_past(len(copies), slacks.shape),
            fresh=1,
            since=0,
        )

    # -- what all of it needs ----------------------------------------------------------------------

    def _server(self, state: ProximalState) -> Server:
        own = state.columns, state.size, state.share, state.beta, state.rho
        return Server(self._problem, *own, state.anchor, state.multiplier, self._local_tol(state))

    def _local_tol(self, state: ProximalState) -> float:
        """The tolerance eps_{t+1}: q^t as printed, else far below what (23) requires."""
        if self.q is not None:
            return max(self.q**state.inner, 1e-12 * state.scale)
        least = max(1e-14 * state.scale, 1e-16 * state.beta)
        return max(1e-3 * min(state.tau, self._goal(state)) / len(state.share), least)

    @property
    def _accelerated(self) -> bool:
        return self.memory > 0 and client.convex_of(self._problem)

    @property
    def _bounded(self) -> bool:
        """Whether the run ends by its lower bound: not as printed, and where there is one."""
        return self.s_bar is None and client.convex_of(self._problem)

    def _global_violation(self, state: ProximalState, shared: Array, stated: bool) -> float:
        glob, c = self._problem.constraint, self._server(state).constraints(state.w)
        held = excess(glob.held, c * state.size if stated else c)
        return max(held, excess(glob.coupled, shared if stated else shared / state.unit))

    @property
    def exact(self) -> tuple[str, ...]:
        return ("objective", "violation")

    def report(self, state: ProximalState) -> dict:
        """Numbers to plot; ``violation`` is the largest violation of all constraints.

        It is 0 where all are met; ``mean_violation`` is the mean over the clients.
        """
        positive = np.maximum(state.violation, 0.0)
        return {
            "objective": state.value,
            "violation": float(np.fmax(positive.max(), state.global_violation)),
            "worst_client": int(np.argmax(state.violation)),
            "worst_violation": float(state.violation.max()),
            "mean_violation": float(positive.mean()),
            "outer": state.outer,
            "inner": state.inner,
            "primal": state.pair[0],
            "dual": state.pair[1],
            "residual": state.residual,
            "gap": state.gap,
            "tau": state.tau,
            "beta": state.beta,
            "rho": state.rho,
        }

    def answer(self, state: ProximalState, concluded: Concluded | None = None) -> Answer:
        """The model; with what the clients concluded also their multipliers and copies of it."""
        w = state.columns * state.w
        if concluded is None:
            return Answer(w)
        multipliers = self._multipliers(state, concluded)
        return Answer(w, multipliers=multipliers, copies=concluded.copies)

    def _multipliers(self, state: ProximalState, concluded: Concluded) -> Multipliers:
        """The multipliers of the last model, or the changes that prove that none is feasible."""
        if state.infeasible:
            held, total, local = state.change, state.total_change, concluded.changes
        else:
            held, total, local = state.multiplier, state.total, concluded.multipliers
            if state.inner:  # not just settled
                held, total = self._next_multipliers(state)
        return Multipliers(held / state.size, total / state.unit, known(local))

    def _next_multipliers(self, state: ProximalState) -> tuple[Array, Array]:
        """Algorithm 1, line 6: the multipliers of the server's constraints and of the sums."""
        server, y = self._server(state), state.total + state.beta * state.slack.sum(0)
        held = server.multipliers(server.constraints(state.w))
        return held, raised(y, self._problem.constraint.coupled.equality)
