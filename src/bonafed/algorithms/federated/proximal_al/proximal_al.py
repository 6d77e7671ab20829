"""The proximal augmented Lagrangian method, whose clients keep their data and constraints.

    minimise  sum_i q_i f_i(w) + h(w)  subject to  c_0(w) <= 0,  sum_i c~_i(w) <= 0,
            c_i(w) <= 0 for every client i

Algorithm 1 (outer: multipliers) with Algorithm 2 (inner: inexact ADMM) of He, Peng, Sun, *Federated
learning with convex global and local constraints*; equation numbers are theirs. A round is one
exchange with all clients: ``Refine`` is one iteration of Algorithm 2; ``Settle`` is lines 6-8 of
Algorithm 1 and line 1 of Algorithm 2, whose u~_i the server needs before its first step.
``papers.constrained.proximal_al`` is the method as printed. The defaults differ in four ways:

* copies and multipliers of consensus go on from one subproblem to the next, and start at u_i = w^0,
  lambda_i = 0;
* columns, constraints and slack variables are counted in their own units, so that a run does not
  depend on theirs; rho_i goes by the clients' weights;
* the points from which (19) starts are mixed by Anderson's acceleration, for which the server
  receives sums only;
* a subproblem also ends after half the rounds so far, so that units and multipliers follow the
  model, and the run where tangents at the clients' copies bound the gap.

``client.py`` lists what is sent and who sees it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated.proximal_al import client
from bonafed.algorithms.federated.proximal_al import server as half
from bonafed.algorithms.federated.proximal_al.client import ProximalState, Refine, Refined
from bonafed.algorithms.method import Ids, Next
from bonafed.arrays import Array, is_number
from bonafed.problem.claims import Claim, Number
from bonafed.problem.constraints.constraint import excess
from bonafed.problem.losses import Quadratic
from bonafed.problem.lower_bounds import Multipliers
from bonafed.problem.plausible import Claims
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import separable
from bonafed.rounds import Conclude, Done, Round, Stop

STIFF, FIRM = 1e5, 300.0  # beta, in units, for convex constraints, and for others
TIGHT = 16.0  # sum rho_i, in units, where constraints are not convex; else 1
FADING = 0.1  # curvature over that before it, below which units do not grow further at once
ALIKE = 0.3  # change of the units' logarithms up to which they are kept
SOON = 10  # rounds of the first subproblems
LATE = 30  # of one where only violations are too large, or constraints seem in conflict
# largest violation, over the sizes of the constraint and of the model, of one that is optimal
MET = 5e-8
# the value of an optimal model is below its bound, as violations allow, by at most this part of it
BELOW = 3e-7
# a model is infeasible to first order up to so many times its size: three times, or at once
CLOSE, FAR = 10.0, 1e7
# the default tolerances assume that the model ends this near the optimum, relative to its size; the
# certificate decides
NEAR = 0.1
FALL = 0.2  # tau_{k+1} / tau_k
SLOW = 0.3  # violation of an outer iteration over that before it, above which beta grows
GROWTH = 5.0


@dataclass(frozen=True)
class ProximalAL(base.Method):
    """Constrained problems of any size, also with nonsmooth h or constraints that are not convex.

    Parameters
    ----------
    beta : penalty of the augmented Lagrangian, over the constraints' squared gradients; default
        1e5, and growing where the violation falls slowly
    rho : sum of the penalties of consensus, rho_i in proportion to the clients' weights; default 1
    s_bar, q : tau_k = s_bar / (k + 1)^2 and eps_{t+1} = q^t; default: relative tolerances
    scaled : every column is counted in units of 1 / root of the objective's curvature, which are
        renewed with the multipliers, and every constraint in units of its gradient there; else beta
        and rho are those of the paper, for all constraints and clients alike
    memory : points mixed by the acceleration; 0 is Algorithm 2. Not used where constraints are not
        convex
    restart : every subproblem starts at u_i = w^k, lambda_i = -P_i'(w^k) (Algorithm 2, line 1);
        else where the last ended
    tol : of the gap relative to the objective, by the bound of the run's own tangents, where
        constraints are convex; of the violation where they are not; with ``s_bar`` eps_1 = eps_2 of
        (11)
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
    A round sends D + 6 numbers down and 2 D + 20 up per client, the end of a subproblem 2 D more.
    Where no feasible model exists the
    changes of the multipliers tend to a proof of it, which is then returned as the multipliers.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.ProximalAL())
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
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        constraint=needs.ANY,
        predictor=needs.AFFINE,
        over_samples=needs.MEAN_OF_ROWS,
        over_clients=needs.AVERAGE,
        loss=needs.SMOOTH_SCALAR,
        regulariser=needs.CONIC_AT_SERVER,
    )

    def __post_init__(self) -> None:
        base.check_positive(self, "beta", "rho", "s_bar")
        if self.q is not None and not (is_number(self.q) and 0 < self.q < 1):
            raise ValueError(
                f"q must be in (0, 1), got {self.q!r}: local problems are solved to q^t. Leave it"
                " out for the default."
            )
        iteration = ": 0 is the iteration without acceleration"
        base.check_whole(self, "memory", least=0, meaning=iteration)
        if self.start is not None and not np.isfinite(np.asarray(self.start, float)).all():
            raise ValueError("start must be finite numbers, one for each coefficient.")
        base.check_end(self, "tol", "atol")
        base.check_finite(self, "tol", "atol")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        more = {Refine: client.refine, Conclude: client.conclude}
        steps = {message: self.client_step(step) for message, step in more.items()}
        return {client.Settle: self.client_step(client.settle, self.scaled), **steps}

    # -- server: Algorithm 1 -----------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {client.Settled: self.begin, Refined: self.improve}

    @property
    def claims(self) -> Claims:
        return {client.Settled: self._settled, Refined: self._said}

    def _settled(self, who: int, ask: client.Settle, up: client.Settled) -> Iterator[Claim]:
        """What the sizes of an answer claim."""
        yield Number("a change of a multiplier", up.change)
        yield Number("a sum of sizes", up.product)
        for squares in (up.gradient, up.steep):
            yield Number("a square", 0.0 if squares is None else squares)

    def _said(self, who: int, ask: Refine, up: Refined) -> Iterator[Claim]:
        """What the sizes of an answer claim."""
        if not isinstance(self.concrete.loss, Quadratic):
            yield Number("a mean loss", up.value)
        for what in (up.residual, up.violation, up.excess, up.primal, up.unsolved):
            yield Number("a residual", what)

    def server_start(self, n_clients: int) -> tuple[ProximalState, Round]:
        problem, glob = self.concrete, self.concrete.constraint
        D = problem.predictor.dimension(glob.block.n_features)
        w = np.zeros(D) if self.start is None else np.asarray(self.start, float)
        prior = problem.over_clients.project(np.zeros(n_clients))
        convex = client.convex_of(problem)
        beta = self.beta or (1.0 if not self.scaled else STIFF if convex else FIRM)
        rho = self.rho or (1.0 if convex or not self.scaled else TIGHT)
        shares = np.maximum(prior, 0.1 * prior.mean())
        shares = shares / shares.sum() if self.scaled else np.ones(len(prior))
        state = client.started(w, glob.held.size, glob.coupled.size, beta, rho * shares)
        return state, self._begin_subproblem(state, state.beta, prior)

    def _begin_subproblem(self, state: ProximalState, old: float, prior: Array | None) -> Round:
        """The request that ends a subproblem with the penalty ``old`` and begins the next one."""
        parts = state.w, state.slack, prior, old, state.beta, self._server(state).sigma, state.rho
        return Round(client.Settle(*parts, self.restart))

    def begin(self, state: ProximalState, ids: Ids, up: client.Settled) -> Next[ProximalState]:
        """Carry out line 9, and lines 2-3 of the next iteration."""
        state = replace(state, rounds=state.rounds + 1, inner=0)
        if up.gradient is None:
            state = self._tested(state, up)
            if (stop := self._stopped(state, up)) is not None:
                return state, Done(stop)
        if up.shifted is not None:
            copies = float(state.rho.sum()) * state.w
            state = replace(state, shifted=up.shifted, slack_shifted=up.slack, copies=copies)
        if self.scaled:
            state = self._measured(state, up)
        if up.gradient is not None:
            own = state.units[: len(state.w)]
            scale = math.sqrt(len(state.rho) * float((up.gradient * own**2).max(initial=0.0)))
            state = replace(state, scale=scale or 1.0)
        fresh, tau = int(state.renewed or not self.scaled), self._tau(state)
        state = replace(state, anchor=state.w, slack_anchor=state.slack, tau=tau, fresh=fresh)
        return self._ask(state)

    def _measured(self, state: ProximalState, up: client.Settled) -> ProximalState:
        """The state in units in which the curvature is 1 in every coefficient.

        The gradients of coupled constraints and the slack variables have the same size in them.
        """
        D, problem = len(state.w), self.concrete
        curvature = np.maximum(base.known(up.curvature), 0.0)
        if up.gradient is None:
            curvature = np.maximum(curvature, FADING / state.units[:D] ** 2)
        curvature = np.where(curvature > 0, curvature, curvature.max(initial=0.0) or 1.0)
        d = len(problem.predictor.split(state.w)[0])
        if d and not separable(problem.regulariser):
            curvature[:d] = curvature[:d].mean()
        own = 1 / np.sqrt(curvature)
        slack = np.sqrt((base.known(up.steep) * own**2).sum(1) / len(state.rho))
        units = np.concatenate([own, np.where(slack > 0, slack, 1.0)])
        if up.gradient is None and np.abs(np.log(units / state.units)).max(initial=0.0) < ALIKE:
            return state
        state = client.in_units(state, units)
        if up.gradient is None:
            return state
        c, J = self._server(state).held(state.w)
        return replace(state, first_sizes=np.concatenate([half.sizes(J, c), units[D:]]))

    def _tau(self, state: ProximalState) -> float:
        """The tolerance tau_k: as printed, or falling to half of what (11) asks."""
        if self.s_bar is not None:
            return self.s_bar / (state.outer + 1) ** 2  # line 2
        return max(0.5 * self._goal(state), 0.1 * state.scale * FALL**state.outer)

    def _goal(self, state: ProximalState) -> float:
        """The tolerance eps_1 of (11): the user's, or one of ``tol`` of the objective at most."""
        if self.s_bar is not None:
            return self.tol
        size, most = NEAR * float(np.abs(state.w).sum()), self.tol * state.scale
        if not (size > 0 and math.isfinite(state.value)):
            return most
        return min(max(2 * self._allowed(state) / size, 1e-4 * self.tol * state.scale), most)

    def _tested(self, state: ProximalState, up: client.Settled) -> ProximalState:
        """The state after a test whether the multipliers' changes prove that no model is feasible.

        The proof is to first order near w.
        """
        y = half.raised(state.change, self.concrete.constraint.held.equality)
        c, J = self._server(state).held(state.w)
        product = float(up.product) + float(np.abs(state.multiplier * c).sum())
        push, bite = up.push + y @ J, float(up.bite) + float(y @ c)
        far = float(np.abs(push).max(initial=0.0)) * (1 + float(np.abs(state.w).sum()))
        met, before = self._met, state.excess if state.solved else state.before
        proof = bite > CLOSE * far and state.excess > met and client.convex_of(self.concrete)
        stuck = state.stuck + state.solved if proof else 0
        infeasible = proof and (stuck > 2 or bite > FAR * far)
        state = replace(state, product=product, before=before)
        return replace(state, conflict=proof, stuck=stuck, infeasible=infeasible)

    def _stopped(self, state: ProximalState, up: client.Settled) -> Stop | None:
        """The end by (11), by a proof of infeasibility, or at the cap; None to go on."""
        if state.infeasible:
            return Stop.INFEASIBLE
        goal, size = self._goal(state), self._size(state) if self.scaled else 1.0
        moved = float(np.abs(state.w - state.anchor).max(initial=0.0))
        changes = np.concatenate([state.change, state.total_change])
        parts = up.change, np.abs(changes) * state.first_sizes
        change = max(float(part.max(initial=0.0)) for part in parts)
        still = moved / state.beta + state.tau <= goal and change <= state.beta * self.tol * size
        still = still and (self.s_bar is not None or state.product <= self._allowed(state))
        if still and not self._bounded:  # (11)
            return Stop.OPTIMAL if client.convex_of(self.concrete) else Stop.UNPROVEN
        return Stop.MAX_ROUNDS if state.rounds >= self.max_rounds else None

    def _allowed(self, state: ProximalState) -> float:
        """The gap at which a model is optimal."""
        return base.Progress(state.value, -math.inf, self.tol, self.atol).allowed()

    # -- server: Algorithm 2 -----------------------------------------------------------------------

    def _ask(self, state: ProximalState) -> tuple[ProximalState, Round]:
        """Solve (18), and ask the clients for the next iteration."""
        server = self._server(state)
        w, exact = server.step(state.shifted, state.w)
        slack = server.slacks(state.slack_shifted, state.slack_anchor, state.total)
        base.check_model(w, "a larger rho")
        past, mix = half.no_past(len(w), slack.shape), np.ones(1)
        if self.memory > 0 and client.convex_of(self.concrete) and not state.fresh:
            step = w - state.w, slack - state.slack
            past, mix = half.mixed(state.past, *step, state.rho, self.memory)
        units = state.units if state.renewed else None
        state = replace(state, w=w, slack=slack, exact=exact, past=past, fresh=0, renewed=False)
        numbers = self._local_tol(state), state.tau - self._server_residual(state), mix
        return state, Round(Refine(w, slack, units, state.beta, server.sigma, state.rho, *numbers))

    def improve(self, state: ProximalState, ids: Ids, up: Refined) -> Next[ProximalState]:
        """Carry out line 10: the next iteration of Algorithm 2, or its end."""
        before, n = state, len(state.violation)
        size = math.sqrt(n * float(state.w @ state.w) + float((state.slack**2).sum()))
        primal = math.sqrt(float(up.primal))
        copies = float(state.rho.sum()) * state.w + up.drift
        slacks, residual = state.slack + up.slack_drift, float(up.residual)
        value = float(up.value) + self.concrete.penalty(self._model(state))
        glob = self.concrete.constraint
        held = excess(glob.held, self._server(state).held(state.w)[0])
        broken = max(held, excess(glob.coupled, up.shared))
        residual += self._server_residual(state)
        state = replace(state, shifted=up.shifted, slack_shifted=up.slack, copies=copies)
        state = replace(state, slack_copies=slacks, residual=residual, value=value)
        state = replace(state, primal=primal / size if size else primal)
        state = replace(state, violation=up.violation, global_violation=broken)
        state = replace(state, rounds=state.rounds + 1, inner=state.inner + 1)
        above, charge = self._gap(before, state, up)
        state = replace(state, excess=self._excess(state, up), gap=abs(above) + charge)
        met = state.excess <= MET and above >= -BELOW * abs(state.value)
        near = self._bounded and state.gap <= self._allowed(state)
        if near and met:
            return state, Done(Stop.OPTIMAL)
        solved = state.residual <= state.tau and (self.s_bar is not None or state.inner > 1)  # (23)
        most = LATE if near or state.conflict else max(SOON, (state.rounds - 1) // 2)
        ended = state.inner >= most
        if state.rounds >= self.max_rounds:
            return state, Done(Stop.MAX_ROUNDS)
        state = replace(state, past=half.remembered(state.past, up.drift, up.slack_drift, up.inner))
        if solved or (self._bounded and ended):
            return self._settle(replace(state, solved=solved))
        return self._ask(state)

    @property
    def _bounded(self) -> bool:
        """Whether tangents bound the optimum, and a bound may end the run."""
        return self.scaled and self.s_bar is None and client.convex_of(self.concrete)

    @property
    def _met(self) -> float:
        """The largest violation of a model that meets the constraints."""
        return MET if self._bounded else self.tol

    def _gap(self, before: ProximalState, state: ProximalState, up: Refined) -> tuple[float, float]:
        """The objective above a bound on it, and how much less that is at other models.

        The Lagrangian is at least the sum of its tangents: at u_i those of the clients, at w those
        of h and P_0. Their gradients add up to ``left``, which the iteration makes 0; it is charged
        for all models whose distance from this one is at most its size.
        """
        server, w, s = self._server(state), state.w, state.slack
        unit, sigma, rho = state.units[len(w) :], server.sigma, state.rho[:, None]
        held, shared = self._next_multipliers(state)
        extra = float(held @ server.held(w)[0]) + float(shared @ (unit * s).sum(0))
        # of h and P_0 by (18), and of the clients: -lambda_i - sigma (z_i - z_i^k)
        left = before.shifted - float(state.rho.sum()) * w - sigma * (w - state.anchor)
        left = left - (state.shifted - state.copies) - len(rho) * sigma * (w - state.anchor)
        slack_left = rho * (before.slack_shifted - s) - sigma * (s - state.slack_anchor)
        slack_left = slack_left - rho * (state.slack_shifted - state.slack_copies)
        slack_left = slack_left - sigma * (state.slack_copies - state.slack_anchor)
        gap = float(up.value) - float(up.tangent) - extra
        return gap, math.hypot(*left, *slack_left.ravel()) * self._size(state)

    def _size(self, state: ProximalState) -> float:
        """The size of the model in units, and at least that of a step as long as the value is."""
        size = math.hypot(*state.w, *state.slack.ravel())
        return max(size, math.sqrt(2 * abs(state.value))) if math.isfinite(state.value) else size

    def _excess(self, state: ProximalState, up: Refined) -> float:
        """The largest violation over the constraint's size, as a part of the model's size."""
        glob = self.concrete.constraint
        c, J = self._server(state).held(state.w)
        unit = state.units[len(state.w) :] * len(state.rho)
        held, shared = c / half.sizes(J, c), up.shared / unit
        largest = max(float(up.excess), excess(glob.held, held), excess(glob.coupled, shared))
        return largest / (self._size(state) or 1.0) if self.scaled else largest

    def _server_residual(self, state: ProximalState) -> float:
        """The term that (23) adds to the clients' residuals.

        It is eps_{t+1} as printed, or the size of what (18) left.
        """
        return self.q**state.inner if self.q is not None else state.exact

    def _settle(self, state: ProximalState) -> tuple[ProximalState, Round]:
        """Carry out lines 5-6 of Algorithm 1."""
        held, total = self._next_multipliers(state)
        slow = math.isfinite(state.before) and state.excess > max(SLOW * state.before, self._met)
        slow = slow and self.beta is None and state.solved
        old, beta = state.beta, GROWTH * state.beta if slow else state.beta
        state = replace(state, change=held - state.multiplier, total_change=total - state.total)
        state = replace(state, outer=state.outer + 1, multiplier=held, total=total, beta=beta)
        state = replace(state, inner=0)
        return state, self._begin_subproblem(state, old, None)

    # -- what all of it needs ----------------------------------------------------------------------

    def _server(self, state: ProximalState) -> half.Server:
        parts = state.units, state.beta, state.first_sizes, state.rho, state.anchor
        return half.Server(self.concrete, *parts, state.multiplier, self._local_tol(state))

    @staticmethod
    def _model(state: ProximalState) -> Array:
        return state.w * state.units[: len(state.w)]

    def _local_tol(self, state: ProximalState) -> float:
        """The tolerance eps_{t+1}: q^t as printed, else far below what (23) requires."""
        if self.q is not None:
            return max(self.q**state.inner, 1e-12 * state.scale)
        least = 1e-3 * min(state.tau, self._goal(state)) / len(state.violation)
        return max(least, 1e-14 * state.scale)

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
            "gap": state.gap if self._bounded else math.nan,
            "primal": state.primal,
            "residual": state.residual,
            "tau": state.tau,
            "beta": state.beta,
            "rho": float(state.rho.sum()),
        }

    def answer(self, state: ProximalState, concluded: base.Concluded | None = None) -> base.Answer:
        """The model; with what the clients concluded also their multipliers and copies of it."""
        if concluded is None:
            return base.Answer(self._model(state))
        local, server = concluded.multipliers, (state.multiplier, state.total)
        if state.infeasible:  # the changes prove it
            local, server = concluded.changes, (state.change, state.total_change)
        elif state.inner:  # else just settled
            server = self._next_multipliers(state)
        multipliers = Multipliers(*server, base.known(local))
        return base.Answer(self._model(state), multipliers=multipliers, copies=concluded.copies)

    def _next_multipliers(self, state: ProximalState) -> tuple[Array, Array]:
        """Algorithm 1, line 6: the multipliers of the server's constraints and of the sums."""
        server, unit = self._server(state), state.units[len(state.w) :]
        y = state.total + server.shared_betas * (unit * state.slack).sum(0)
        c = server.held(state.w)[0]
        return server.multipliers(c), half.raised(y, self.concrete.constraint.coupled.equality)
