"""The method of multipliers on the client weights: the synchronous reference for smooth losses.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F = (F_1, ..., F_N)

Outer iteration k keeps a centre p_k of the weights. The inner problem

    minimise over w:  max_{p in Q} p'F(w) - mu/2 ||p - p_k||^2  +  h(w)

is smooth but for h: its maximiser is p = Proj_Q(p_k + F(w)/mu), and the gradient of the first part
sum_i p_i F_i'(w). L-BFGS at the server minimises it, with one round of all clients for each
evaluation; then p_{k+1} = p. Where h is not smooth (it is without one and for L2), each step ends
in a prox of h in the metric of L-BFGS, at the cost of no round. Steps are taken in units of the
columns (`units_of`), so that their units matter little. These are proximal point steps on the dual
(Rockafellar, *Augmented Lagrangians and applications of the proximal point algorithm in convex
programming*): they converge for any positive mu, and end with a proven gap. A Wasserstein ball of
one radius whose worst case is a norm of the model is a part of h (`conic_form.without_ball`).

The server learns every client's risk and gradient at the models that it evaluates; where Q is one
point the sum of the gradients is enough. With ``metric="hessian"`` it learns the sum of their
second derivatives at a few models too, L L', and L-BFGS goes on over L'w.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated import linearisation as lines
from bonafed.algorithms.federated.interior_point import averaged
from bonafed.algorithms.federated.linearisation import Linearise, Linearised, Weighted
from bonafed.algorithms.method import Concluded, Ids, Next
from bonafed.arrays import Array, Block, by_row
from bonafed.codec import Counter, Extended, Form
from bonafed.problem.client_means import hessians, row_shares
from bonafed.problem.conic_form import is_equal_penalty, member, sample_radii, without_ball
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.losses import Squared, value_and_gradient
from bonafed.problem.lower_bounds import NOTHING, Survey, Surveyed
from bonafed.problem.plausible import Claims, surveys
from bonafed.problem.predictors.affine import pullback
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2, Zero, separable
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Done, Round, Stop, record
from bonafed.solvers.smooth.stepwise import Kink, QuasiNewton, begin, observe, restart

INNER = 0.3  # an inner problem is solved to this share of what new centres may bring
SLOW, SHRINK = 0.7, 0.1  # mu falls to SHRINK where that falls to no less than SLOW
MARGIN = 0.5  # of the tolerance: certificates are charged for rounding, the bound here is not
IDLE = 1e3  # mu in the largest risk, from which on weights move by a thousandth at most
# every other step of the centre is up to FAR as long, where the last one left STEADY of what it may
# bring, or more
STEADY, FAR = 0.3, 3.0
FIRST = 0.1  # the first penalty, in units of the problem
TRIES = 4  # searches that end without a step while nothing improves
PATIENT = 16  # rounds before second derivatives, at least


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
    mu: Extended  # < 0 before the first risks
    stride: Extended  # of the last step of the centre, in proximal point steps
    worth: Extended  # what further centres may bring: max_Q p'F - p'F
    lag: Extended  # the same at the end of the last inner problem
    inner: QuasiNewton
    outer: Counter
    failures: Counter  # searches that ended without a step while nothing improved
    mark: Extended  # the gap, or else the value, when the last one did
    spent: Counter  # rounds of this inner problem
    rounds: Annotated[int, Form(rounds=-1)]
    units: Annotated[Array, Form("D")]  # of the steps
    seen: Surveyed | None
    # L, where second derivatives L L' stand for the units; and the round that brought them
    root: Annotated[Array, Form("D, D")] | None = None
    bent: Counter = 0


State = MultiplierState


MEAN_OR_NORM = needs.Need(
    "mean, ball of one radius without label moves",
    "needs over_samples = Mean(), or a WassersteinBall with one radius, no support and"
    " label_cost=inf, whose worst case is a norm of the model",
    lambda p, s: needs.MEAN_OF_ROWS.holds(p, s) or is_equal_penalty(p),
)


def mean_linearised(problem: Problem, ask: Linearise, data: Block) -> Linearised | Weighted:
    """Mean loss and its gradient of every client of the block, without a ball over the samples."""
    weights, bend = ask.weights, None
    if ask.bend is not None:
        bend = hessians(Point(problem, ask.w, data), ask.bend, (), together=True)
    if weights is not None and not isinstance(data.X, np.ndarray):
        # with no gradient of each client, which would take longer than its few entries
        prediction, back = pullback(problem.predictor, ask.w, data.joined)
        prediction = prediction.reshape(data.y.shape + prediction.shape[2:])
        losses, slopes = value_and_gradient(problem.loss, prediction, data.y)
        share = row_shares(problem, data)
        slopes = by_row(weights[:, None] * share, slopes)
        slope = back(slopes.reshape(1, -1, *slopes.shape[2:]))
        return Weighted((share * losses).sum(1), slope, bend)
    cut = problem.cut(ask.w, data, np.zeros(len(data.index)))
    if weights is None:
        return Linearised(cut.base, cut.gradient, bend)
    return Weighted(cut.base, (weights @ cut.gradient)[None], bend)


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
    metric : of the steps, "units": those of the columns; "hessian": where h is smooth, rows have a
        prediction of one number, and a run takes longer, second derivatives are asked for too, a
        D x D sum now and then, so that columns that are alike slow no step down
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
    metric: Literal["units", "hessian"] = "units"
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
        return {Surveyed: self.begin, Linearised: self.improve, Weighted: self.improve}

    @property
    def claims(self) -> Claims:
        what = "risk" if self._mean is self.concrete else "loss"  # to which a ball adds
        return {**surveys(self.concrete), **lines.asked(self._mean, what)}

    def server_start(self, n_clients: int) -> tuple[State, Round]:
        prior, none = member(self.concrete, n_clients), np.zeros(0)
        nowhere = none, math.inf, np.zeros(n_clients), -math.inf, none, prior, prior
        penalty, counts = (-1.0, 1.0, math.inf, math.inf), (0, 0, math.inf, 0, 0)
        return State(*nowhere, *penalty, begin(none), *counts, none, None), Round(Survey(prior))

    def begin(self, state: State, ids: Ids, seen: Surveyed) -> Next[State]:
        w = base.with_start(self.concrete, self.start, len(seen.square))
        if math.isinf(self._mean.penalty(w)):  # where no step can begin
            w = self._mean.prox(w, 1.0)
        units = self._units(seen, np.size(self.concrete.predictor.split(w)[0]))
        inner = begin(w * units if self._smooth else w)
        state = replace(state, w=w, point=w, units=units, seen=seen, inner=inner)
        return state, self._ask(state, w)

    def _ask(self, state: State, w: Array) -> Round:
        weights, bend = state.centre if self._fixed else None, None
        if self._bends(state):  # a long step of the centre may leave Q
            bend = np.maximum(state.centre, 0.0)
        return Round(Linearise(w, weights, bend))

    def _bends(self, state: State) -> bool:
        """Whether second derivatives are due: they cost about as much as D / 48 rounds, and where
        columns are alike spare hundreds of them. Those of squares are the same everywhere.
        """
        problem, D = self.concrete, len(state.units)
        known = problem.loss.targets != "class" and hasattr(problem.predictor, "gram")
        if self.metric != "hessian" or not (known and self._smooth):
            return False
        if isinstance(problem.loss, Squared):
            return not state.bent and state.rounds >= D // 48
        # where a search has failed the metric may be that of a place far away
        failed = state.failures > 0 and state.spent == 0 and state.bent < state.rounds
        late = state.rounds >= max(PATIENT, D // 12) + 2 * state.bent
        return late or (failed and state.root is not None)

    def improve(self, state: State, ids: Ids, up: Linearised | Weighted) -> Next[State]:
        asked = self._bends(state)
        state = self._advance(replace(state, rounds=state.rounds + 1), up)
        if asked and up.curvature is not None:
            state = self._turned(state, up.curvature)
        if (stop := self._stop(state)) is not None:
            return state, Done(stop)
        return state, self._ask(state, self._at(state))

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

    def _advance(self, state: State, up: Linearised | Weighted) -> State:
        """The state after one evaluation of the inner problem, or at the start of the next one."""
        if not (np.isfinite(up.risk).all() and np.isfinite(up.gradient).all()):  # a step too far
            if math.isinf(state.inner.value):
                return replace(state, failures=TRIES)
            inner = observe(state.inner, math.inf, state.inner.gradient, self._kink(state))
            state = replace(state, inner=inner, spent=state.spent + 1)
            return self._stuck(state) if state.inner.failed else state
        if state.mu < 0:
            # in units of the problem, squared gradients over the curvature of one coefficient: what
            # the weights add to it is then of its size
            mu = 1.0 if self._fixed else self.mu
            if mu is None:
                middle, few = up.gradient.mean(0), range(0, len(up.gradient), 1024)
                apart = ((up.gradient[k : k + 1024] - middle) / state.units for k in few)
                spread = FIRST * max(float((part**2).sum(1).max()) for part in apart)
                least = max(1e-3 * float(np.ptp(up.risk)), 1e-9 * float(np.abs(up.risk).max()))
                mu = max(spread / self._curvature(), least, 1e-300)
            state = replace(state, mu=mu)
        w, p = self._at(state), self._weights(state, up.risk)
        inner = observe(state.inner, *self._inner(state, w, up, p), self._kink(state))
        state = replace(state, inner=inner, spent=state.spent + 1)
        if not inner.accepted:
            return self._stuck(state) if inner.failed else state
        worst, mean = float(self.concrete.over_clients.worst(up.risk).value), float(p @ up.risk)
        penalty, state = self._mean.penalty(w), replace(state, worth=worst - mean)
        if worst + penalty < state.value:
            state = replace(state, w=w, value=worst + penalty, risks=up.risk)
        proof = mean, self._whole(up, p), p, state.seen
        bound = lines.bound_at(self.concrete, w, state.value, *proof, mean=True)
        if bound > state.bound:
            state = replace(state, bound=bound, point=w, weights=p)
        if self._solved(state, mean + penalty - bound):
            return self._outer(state, w, up, p)
        return self._stuck(state) if inner.failed else state

    def _turned(self, state: State, H: Array) -> State:
        """The state with steps in the metric of second derivatives, in place of the pairs'."""
        state, inner = replace(state, bent=state.rounds), state.inner
        if not math.isfinite(inner.value):
            return state
        w, gradient = self._model(state, inner.w), inner.gradient
        gradient = gradient * state.units if state.root is None else state.root @ gradient
        root = lines.root_of(H, self._ridge, np.size(self._mean.predictor.split(w)[0]))
        if root is None:
            return state
        return replace(state, root=root, inner=lines.in_metric(inner, root, w, gradient))

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
        own, h = units[:size], self._mean.regulariser
        own[:] = np.sqrt(own**2 + self.concrete.regulariser.strong_convexity / self._curvature())
        if not (self._smooth or separable(h)):  # whose prox takes one step for all
            own[:] = np.sqrt((own**2).mean())
        return units

    def _at(self, state: State) -> Array:
        """The inner problem's next model; beside a kink, which may ask for zeros or bounds, it is
        what the prox gave.
        """
        return self._model(state, state.inner.trial)

    def _model(self, state: State, v: Array) -> Array:
        """The model at a point of the steps."""
        if state.root is not None:
            return lines.over_root(state.root, v, turned=True)
        return v / state.units if self._smooth else v

    def _along(self, state: State, gradient: Array) -> Array:
        """The gradient of the model's numbers as one of the point of the steps."""
        if state.root is not None:
            return lines.over_root(state.root, gradient)
        return gradient / state.units

    @cached_property
    def _ridge(self) -> float:
        return self._mean.regulariser.strong_convexity  # Zero or L2

    def _weights(self, state: State, risks: Array) -> Array:
        """The weights p = Proj_Q(p_k + F/mu); a constant added to all risks changes nothing."""
        return self.concrete.over_clients.project(state.centre + (risks - risks.max()) / state.mu)

    @cached_property
    def _fixed(self) -> bool:
        """Whether Q is one point, whatever the risks are."""
        return averaged(self.concrete.over_clients)

    def _whole(self, up: Linearised | Weighted, p: Array) -> Array:
        """sum_i p_i F_i'(w)."""
        return up.gradient if isinstance(up, Weighted) else p @ up.gradient

    @cached_property
    def _smooth(self) -> bool:
        return isinstance(self._mean.regulariser, Zero | L2)

    def _kink(self, state: State) -> Kink | None:
        """h, where it is not smooth."""
        if self._smooth:
            return None
        problem, each = self._mean, separable(self._mean.regulariser)

        def prox(v: Array, metric: Array) -> Array:
            return problem.prox(v, 1 / metric if each else float(1 / metric[0]))

        return Kink(problem.penalty, prox, state.units)

    def _inner(
        self, state: State, w: Array, up: Linearised | Weighted, p: Array
    ) -> tuple[float, Array]:
        """The inner problem's objective at w, and the gradient of what is smooth, in the units of
        the steps.
        """
        gap, gradient = p - state.centre, self._whole(up, p)
        value = float(p @ up.risk) - state.mu / 2 * float(gap @ gap) + self._mean.penalty(w)
        if not self._smooth:
            return value, gradient
        own, gradient = self._mean.predictor.split(w)[0], gradient.copy()
        gradient[: own.size] += self._ridge * own
        return value, self._along(state, gradient)

    def _solved(self, state: State, left: float) -> bool:
        """Whether the inner problem is solved as accurately as its centre deserves: ``left`` is
        what its weights prove, or else the expected decrease.
        """
        lag, close = state.worth, self._progress(state).allowed() / 4
        if state.failures and state.spent == 1:  # the point where a search failed
            return True
        enough = INNER * lag if lag > close else -math.inf
        return (left if math.isfinite(left) else self._first_order(state)) <= enough

    def _outer(self, state: State, w: Array, up: Linearised | Weighted, p: Array) -> State:
        """The state with a new centre, and with a smaller mu where the old one was slow."""
        slow, stride = state.worth > SLOW * state.lag, 1.0
        if state.stride == 1 and not slow and state.worth > STEADY * state.lag:
            stride = min(1 / (1 - state.worth / state.lag), FAR)  # to where such steps end
        centre = p + (stride - 1) * (p - state.centre)
        mu = state.mu
        if slow:  # after a far start it may be so large that rounding ends all searches before
            mu = min(mu * SHRINK, max(IDLE * float(np.abs(up.risk).max()), 1e-300))
        state = replace(
            state,
            outer=state.outer + 1,
            centre=centre,
            mu=mu,
            lag=state.worth,
            spent=0,
            stride=stride,
        )
        again = self._inner(state, w, up, self._weights(state, up.risk))
        inner = restart(state.inner, *again, self._kink(state), keep=not slow)
        return replace(state, inner=inner)

    def _progress(self, state: State) -> base.Progress:
        nothing = state.value <= NOTHING and self.concrete.loss.targets != "quadratic"
        bound = max(state.bound, 0.0) if nothing else state.bound  # no loss is negative
        tols, counts = (self.tol, self.atol), (state.rounds, self.max_rounds, state.failures, TRIES)
        progress = base.Progress(state.value, bound, *tols, *counts, least=base.TINY)
        return replace(progress, margin=MARGIN)

    def _stop(self, state: State) -> Stop | None:
        progress = self._progress(state)
        unproved = math.isfinite(state.value) and math.isinf(state.bound)
        still = unproved and state.inner.accepted and progress.stop in (None, Stop.STALLED)
        if still and self._first_order(state) + state.worth <= progress.allowed():
            return Stop.UNPROVEN  # no decrease is expected
        return progress.stop

    def _first_order(self, state: State) -> float:
        """The decrease that the gradient allows within a distance of ||w||.

        It says about how far w is from a minimum where no bound is proved.
        """
        inner, units = state.inner, 1.0 if self._smooth else state.units
        size, gradient = np.linalg.norm(inner.w * units), float(np.linalg.norm(inner.gradient))
        if not self._smooth:  # that of the model, as far as the next line goes
            far = float(np.linalg.norm(inner.direction * units))
            gradient = abs(inner.low[2]) / far if far > 0 else 0.0
        return abs(inner.value) if size == 0 and gradient > 0 else gradient * float(size)
