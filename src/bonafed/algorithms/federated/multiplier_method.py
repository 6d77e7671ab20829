"""The method of multipliers on the client weights: the synchronous reference for smooth losses.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F = (F_1, ..., F_N)

Outer iteration k keeps a centre p_k of the weights and s_k of the regulariser's gradient. The inner
problem

    minimise over w:  max_{p in Q} p'F(w) - mu/2 ||p - p_k||^2  +  max_s s'w - h*(s) - nu/2 ||s -
    s_k||^2

is smooth: its maximisers are p = Proj_Q(p_k + F(w)/mu) and, by Moreau, s = (v - prox_{nu h}(v)) /
nu with v = nu s_k + w; its gradient is sum_i p_i F_i'(w) + s. L-BFGS at the server minimises it,
with one round of all clients for each evaluation; then p_{k+1} = p, s_{k+1} = s. It takes its
steps, and nu, in units of the columns (`units_of`), so that their units matter little. These are
proximal point steps on the dual (Rockafellar, *Augmented Lagrangians and applications of the
proximal point algorithm in convex programming*): they converge for any positive mu and nu, and end
with a proven gap. A smooth h (none, L2) is not smoothed. A Wasserstein ball of one radius whose
worst case is a norm of the model is a part of h (`conic_form.without_ball`).

The server learns every client's risk and gradient at the models that it evaluates.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated import linearisation as lines
from bonafed.algorithms.federated.linearisation import Linearise, Linearised
from bonafed.algorithms.method import Concluded, Ids, Next
from bonafed.arrays import Array, Block
from bonafed.codec import Counter, Extended, Form
from bonafed.problem.conic_form import is_equal_penalty, member, sample_radii, without_ball
from bonafed.problem.lower_bounds import NOTHING, Survey, Surveyed
from bonafed.problem.plausible import Claims, surveys
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2, Zero, separable
from bonafed.problem.risks.weight_sets import Mean, Sum
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Done, Round, Stop, record
from bonafed.solvers.smooth.stepwise import QuasiNewton, begin, observe, restart

INNER = 0.1  # an inner problem is solved to this share of what new centres may bring
SLOW, SHRINK = 0.7, 0.1  # mu and nu fall to SHRINK where that falls to no less than SLOW
MARGIN = 0.5  # of the tolerance: certificates are charged for rounding, the bound here is not
FIRST = 0.1  # the first penalties, in units of the problem
TRIES = 4  # searches that end without a step while nothing improves


@record
class MultiplierState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]  # best model so far
    value: Extended  # its objective
    risks: Annotated[Array, Form("N")]  # its clients' risks
    bound: Extended  # best proven lower bound, -inf without one
    point: Annotated[Array, Form("D")]  # whose gradients prove it
    weights: Annotated[Array, Form("N")]  # the client weights of that proof
    centre: Annotated[Array, Form("N")]  # p_k
    gradient: Annotated[Array, Form("D|D - 1")]  # s_k
    # (D,) prox_{nu h}(v), which is asked about next; empty: the inner problem's trial is
    shown: Annotated[Array, Form("D|0")]
    mu: Extended  # < 0 before the first risks
    nu: Extended  # 0: h is smooth
    # what further centres may bring: max_Q p'F - p'F, and the length of s times that of w - z
    worth: Extended
    lag: Extended  # the same at the end of the last inner problem
    inner: QuasiNewton
    outer: Counter
    failures: Counter  # searches that ended without a step while nothing improved
    mark: Extended  # the gap, or else the value, when the last one did
    spent: Counter  # rounds of this inner problem
    rounds: Annotated[int, Form(rounds=-1)]
    units: Annotated[Array, Form("D")]  # of the steps
    seen: Surveyed | None


State = MultiplierState


MEAN_OR_NORM = needs.Need(
    "mean, ball of one radius without label moves",
    "needs over_samples = Mean(), or a WassersteinBall with one radius, no support and"
    " label_cost=inf, whose worst case is a norm of the model",
    lambda p, s: needs.MEAN_OF_ROWS.holds(p, s) or is_equal_penalty(p),
)


def mean_linearised(problem: Problem, ask: Linearise, data: Block) -> Linearised:
    """Mean loss and its gradient of every client of the block, without a ball over the samples."""
    cut = problem.cut(ask.w, data, np.zeros(len(data.index)))
    return Linearised(cut.base, cut.gradient)


@dataclass(frozen=True)
class MultiplierMethod(base.Method):
    """The synchronous reference for smooth losses, any set of weights and any convex regulariser.

    The set needs a projection, the regulariser a prox.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol max(|value|, |bound|)); where nothing
        proves a bound (h without curvature, models that are not convex) when no decrease of that
        size is expected (``Stop.UNPROVEN``)
    max_rounds : a cap; a run that meets it is never called optimal
    mu : first penalty of the weights; None: from the first risks and gradients. It falls while the
        weights are slow
    start : first model, by default that of the problem

    Raises
    ------
    ValueError
        for losses that are not smooth, risks over samples other than the mean or a Wasserstein ball
        of one radius, regularisers that are not convex

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.MultiplierMethod())
    >>> bool(solution.certificate.relative_gap < 1e-6)
    True
    """

    tol: float = 1e-9
    atol: float = 0.0
    max_rounds: int = 5000
    mu: float | None = None
    start: Array | None = None
    problem: Problem | None = None
    stateless: ClassVar[bool] = True
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        over_samples=MEAN_OR_NORM,
        over_clients=needs.PROJECTION,
        loss=needs.SMOOTH,
        regulariser=needs.CONVEX_PROX,
    )

    def __post_init__(self) -> None:
        base.check_positive(self, "mu")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Survey: lines.take_part, Linearise: self._answering(mean_linearised)}

    # -- server ------------------------------------------------------------------------------------

    @cached_property
    def _mean(self) -> Problem:
        """The problem as a mean over the samples with a regulariser."""
        problem = self.concrete
        if not isinstance(problem.over_samples, WassersteinBall):
            return problem
        return without_ball(problem, member(problem, len(np.asarray(problem.over_samples.radius))))

    @property
    def on_server(self) -> dict:
        return {Surveyed: self.begin, Linearised: self.improve}

    @property
    def claims(self) -> Claims:
        return {**surveys(self.concrete), **lines.linear(self._mean)}

    def server_start(self, n_clients: int) -> tuple[State, Round]:
        prior, none = member(self.concrete, n_clients), np.zeros(0)
        nowhere = none, math.inf, np.zeros(n_clients), -math.inf, none, prior, prior, none, none
        penalties, counts = (-1.0, 0.0, math.inf, math.inf), (0, 0, math.inf, 0, 0)
        return State(*nowhere, *penalties, begin(none), *counts, none, None), Round(Survey(prior))

    def begin(self, state: State, ids: Ids, seen: Surveyed) -> Next[State]:
        w = base.with_start(self.concrete, self.start, len(seen.square))
        size = np.size(self.concrete.predictor.split(w)[0])
        units = self._units(seen, size)
        state = replace(state, w=w, point=w, gradient=np.zeros(size), units=units, seen=seen)
        state = replace(state, inner=begin(w * units))
        return state, Round(Linearise(w))

    def improve(self, state: State, ids: Ids, up: Linearised) -> Next[State]:
        state = replace(state, rounds=state.rounds + 1)
        if len(state.shown):
            state = replace(self._judge(state, state.shown, up), shown=np.zeros(0))
        else:
            state = self._advance(state, up)
        if (stop := self._stop(state)) is not None:
            return state, Done(stop)
        return state, Round(Linearise(state.shown if len(state.shown) else self._at(state)))

    def report(self, state: State) -> dict:
        problem, w, risks = self.concrete, state.w, state.risks
        if isinstance(problem.over_samples, WassersteinBall) and len(w):
            own = np.asarray(problem.predictor.split(w)[0])
            norm = problem.loss.lipschitz * float(problem.over_samples.dual_norm(own))
            risks = risks + sample_radii(problem, len(risks)) * norm
        return base.gap_report(state.value, state.bound, risks) | {"outer": state.outer}

    def answer(self, state: State, concluded: Concluded | None = None) -> base.Answer:
        """The model, and the weighted gradients that prove its bound."""
        return base.Answer(state.w, lines.duals_at(self.concrete, state.point, state.weights))

    # -- the server's steps ------------------------------------------------------------------------

    def _advance(self, state: State, up: Linearised) -> State:
        """The state after one evaluation of the inner problem, or at the start of the next one."""
        if not (np.isfinite(up.risk).all() and np.isfinite(up.gradient).all()):  # a step too far
            if math.isinf(state.inner.value):
                return replace(state, failures=TRIES)
            state = replace(state, inner=observe(state.inner, math.inf, state.inner.gradient))
            state = replace(state, spent=state.spent + 1)
            return self._stuck(state) if state.inner.failed else state
        if state.mu < 0:
            # in units of the problem, squared gradients, and 1, over the curvature of one
            # coefficient: what they add to it is then of its size
            curvature, mu = self._curvature(), self.mu
            fixed = isinstance(self.concrete.over_clients, Mean | Sum)
            if mu is None:
                apart = (up.gradient - up.gradient.mean(0)) / state.units
                spread = FIRST * float((apart**2).sum(1).max())
                least = max(1e-3 * float(np.ptp(up.risk)), 1e-9 * float(np.abs(up.risk).max()))
                mu = max(spread / curvature, least, 1e-300)
            smooth = isinstance(self._mean.regulariser, Zero | L2)
            nu = 0.0 if smooth else (1.0 if fixed else FIRST) / curvature
            state = replace(state, mu=mu, nu=nu)
        w, p = self._at(state), self._weights(state, up.risk)
        inner = observe(state.inner, *self._smoothed(state, w, up, p))
        state = replace(state, inner=inner, spent=state.spent + 1)
        if inner.failed:
            return self._stuck(state)
        if not inner.accepted:
            return state
        _, s, _, away = self._regular(state, w)
        # what further centres may bring at w
        lag = float(self.concrete.over_clients.worst(up.risk).value) - float(p @ up.risk)
        units = state.units[: s.size]
        worth = lag + float(np.linalg.norm(s / units) * np.linalg.norm(away * units))
        state = replace(self._judge(state, w, up, p), worth=worth)
        return self._outer(state, w, up, p) if self._solved(state, w, up, p) else state

    def _stuck(self, state: State) -> State:
        """The state after a search that rounding ended, with new centres at the best point."""
        gap = state.value - state.bound
        score = gap if math.isfinite(gap) else state.value
        failures = 1 if score < state.mark - 1e-12 * abs(state.value) else state.failures + 1
        return replace(state, inner=begin(state.inner.w), failures=failures, mark=score, spent=0)

    def _curvature(self) -> float:
        """The most that affine models' risks at zero bend along a coefficient, in the units of the
        steps.
        """
        loss, near = self.concrete.loss, np.linspace(-2, 2, 17)
        if loss.targets == "class":
            return 0.5
        rows = max(float(loss.curvature(near, 0 * near + y).max()) for y in (-1, 1))
        return max(rows, 1e-12)

    def _units(self, seen: Surveyed, size: int) -> Array:
        """(D,) in which the steps of the model's numbers are taken: those of the columns, and of
        what h bends along each of ``size`` coefficients.
        """
        units = lines.units_of(self.concrete, seen.square)
        own = units[:size]
        own[:] = np.sqrt(own**2 + self.concrete.regulariser.strong_convexity / self._curvature())
        return units

    def _at(self, state: State) -> Array:
        """The inner problem's next model."""
        return state.inner.trial / state.units

    def _weights(self, state: State, risks: Array) -> Array:
        """The weights p = Proj_Q(p_k + F/mu); a constant added to all risks changes nothing."""
        return self.concrete.over_clients.project(state.centre + (risks - risks.max()) / state.mu)

    def _regular(self, state: State, w: Array) -> tuple[float, Array, Array, Array]:
        """The smoothed h at w, its gradient s, the model z = prox_{nu h}(v) at which h is taken,
        and how far that is from w's coefficients.
        """
        h, own = self._mean.regulariser, self.concrete.predictor.split(w)[0]
        if state.nu == 0:
            return float(h.value(own)), h.strong_convexity * own, own, 0 * own  # Zero or L2
        nu = self._smoothing(state)
        v = own + nu * state.gradient
        z = h.prox(v, nu)
        s = (v - z) / nu
        value = float(h.value(z) + (nu / 2 * (s * s - state.gradient**2)).sum())
        return value, s, z, z - own

    def _smoothing(self, state: State) -> Array | float:
        """The nu of every coefficient, in its units, or one for all, in their mean."""
        squares = state.units[: state.gradient.size] ** 2
        return state.nu / (squares if separable(self._mean.regulariser) else float(squares.mean()))

    def _smoothed(self, state: State, w: Array, up: Linearised, p: Array) -> tuple[float, Array]:
        """The inner problem's objective at w, and its gradient in units of the columns."""
        h, s, _, _ = self._regular(state, w)
        gap, gradient = p - state.centre, p @ up.gradient
        gradient[: s.size] += s
        value = float(p @ up.risk) - state.mu / 2 * float(gap @ gap) + h
        return value, gradient / state.units

    def _objective(self, w: Array, risks: Array) -> float:
        return float(self.concrete.over_clients.worst(risks).value) + self._mean.penalty(w)

    def _judge(self, state: State, w: Array, up: Linearised, p: Array | None = None) -> State:
        """The state with the best model so far and, for client weights ``p``, the best bound."""
        value = self._objective(w, up.risk)
        known = min(value, state.value)
        # else z, which has what h asks for: zeros, bounds
        if value < state.value and (p is None or state.nu == 0):
            state = replace(state, w=w, value=value, risks=up.risk)
        if p is None:
            return state
        bound = self._bound(state, w, up, p, known)
        return replace(state, bound=bound, point=w, weights=p) if bound > state.bound else state

    def _bound(self, state: State, w: Array, up: Linearised, p: Array, known: float) -> float:
        proof = float(p @ up.risk), p @ up.gradient, p, state.seen
        return lines.bound_at(self.concrete, w, known, *proof, mean=True)

    def _solved(self, state: State, w: Array, up: Linearised, p: Array) -> bool:
        """Whether the inner problem is solved as accurately as its centres deserve, by what (p, s)
        prove or the expected decrease.
        """
        lag, close = state.worth, self._progress(state).allowed() / 4
        if state.failures and state.spent == 1:  # the point where a search failed
            return True
        # with nu, z is still to be seen
        enough = INNER * lag if lag > close else close if state.nu else -math.inf
        _, s, z, away = self._regular(state, w)
        bound = self._bound(state, w, up, p, min(state.value, self._objective(w, up.risk)))
        h = float(self._mean.regulariser.value(z))
        left = float(p @ up.risk) + h - float(s @ away) - bound
        return (left if math.isfinite(left) else _first_order(state.inner)) <= enough

    def _outer(self, state: State, w: Array, up: Linearised, p: Array) -> State:
        """The state with new centres, and with a smaller mu where the old ones were slow."""
        lag = state.worth
        _, s, z, _ = self._regular(state, w)
        slow = lag > SLOW * state.lag
        mu, nu = (state.mu * SHRINK, state.nu * SHRINK) if slow else (state.mu, state.nu)
        shown = np.concatenate([z, w[z.size :]]) if state.nu else np.zeros(0)
        state = replace(state, outer=state.outer + 1, centre=p, gradient=s, mu=mu, nu=nu, lag=lag)
        state = replace(state, shown=shown, spent=0)
        again = self._smoothed(state, w, up, self._weights(state, up.risk))
        return replace(state, inner=restart(state.inner, *again, keep=not slow))

    def _progress(self, state: State) -> base.Progress:
        nothing = state.value <= NOTHING and self.concrete.loss.targets != "quadratic"
        bound = max(state.bound, 0.0) if nothing else state.bound  # no loss is negative
        tols, counts = (self.tol, self.atol), (state.rounds, self.max_rounds, state.failures, TRIES)
        progress = base.Progress(state.value, bound, *tols, *counts, least=base.TINY)
        return replace(progress, margin=MARGIN)

    def _stop(self, state: State) -> Stop | None:
        progress = self._progress(state)
        unproved = math.isfinite(state.value) and math.isinf(state.bound)
        still = unproved and state.inner.accepted and not len(state.shown)
        still = still and progress.stop in (None, Stop.STALLED)
        if still and _first_order(state.inner) + state.worth <= progress.allowed():
            return Stop.UNPROVEN  # no decrease is expected
        return progress.stop


def _first_order(inner: QuasiNewton) -> float:
    """The decrease that the gradient allows within a distance of ||w||.

    It says about how far w is from a minimum where no bound is proved.
    """
    size, gradient = float(np.linalg.norm(inner.w)), float(np.linalg.norm(inner.gradient))
    return abs(inner.value) if size == 0 and gradient > 0 else gradient * size
