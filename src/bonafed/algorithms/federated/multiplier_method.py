"""The method of multipliers on the client weights: the synchronous reference for smooth losses.

    minimise over w:  max { p'F(w) : p in Q } + h(w),        F = (F_1, ..., F_N)

Outer iteration k keeps a centre p_k of the weights and s_k of the regulariser's gradient. The inner
problem

    minimise over w:  max_{p in Q} p'F(w) - mu/2 ||p - p_k||^2  +  max_s s'w - h*(s) - nu/2 ||s -
    s_k||^2

is smooth: its maximisers are p = Proj_Q(p_k + F(w)/mu) and, by Moreau, s = (v - prox_{nu h}(v)) /
nu with v = nu s_k + w; its gradient is sum_i p_i F_i'(w) + s. L-BFGS at the server minimises it,
with one round of all clients for each evaluation; then p_{k+1} = p, s_{k+1} = s. These are proximal
point steps on the dual (Rockafellar, *Augmented Lagrangians and applications of the proximal point
algorithm in convex programming*): they converge for any positive mu and nu, and end with a proven
gap. A smooth h (none, L2) is not smoothed.

The server learns every client's risk and gradient at the models that it evaluates.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms.federated.linearisation import (
    Linearise,
    Linearised,
    bound_at,
    duals_at,
    linear,
    linearise,
    take_part,
)
from bonafed.algorithms.method import Ids, Next, known
from bonafed.algorithms.requirements import (
    CONVEX_PROX,
    MEAN_OF_ROWS,
    PROJECTION,
    SMOOTH,
    Requirements,
)
from bonafed.arrays import Array
from bonafed.codec import Counter, Extended, Form
from bonafed.problem.conic_form import member
from bonafed.problem.lower_bounds import Survey, Surveyed
from bonafed.problem.plausible import Claims, surveys
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2, Zero
from bonafed.rounds import Done, Round, Stop, record
from bonafed.solvers.smooth.stepwise import QuasiNewton, begin, observe, restart

INNER = 0.1  # an inner problem is solved to this share of what new centres may bring
SLOW, SHRINK = 0.7, 0.1  # mu and nu fall to SHRINK where that falls to no less than SLOW
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
    seen: Surveyed | None


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
        for losses that are not smooth, risks over samples other than the mean, regularisers that
        are not convex

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
    requirements: ClassVar[Requirements] = Requirements(
        over_samples=MEAN_OF_ROWS, over_clients=PROJECTION, loss=SMOOTH, regulariser=CONVEX_PROX
    )

    def __post_init__(self) -> None:
        base.check_positive(self, "mu")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Survey: take_part, Linearise: self._answering(linearise)}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Surveyed: self.begin, Linearised: self.improve}

    @property
    def claims(self) -> Claims:
        return {**surveys(self._problem), **linear(self._problem)}

    def server_start(self, n_clients: int) -> tuple[MultiplierState, Round]:
        prior, none = member(self._problem, n_clients), np.zeros(0)
        nowhere = none, math.inf, np.zeros(n_clients), -math.inf, none
        penalties = -1.0, 0.0, math.inf, math.inf
        counts = 0, 0, math.inf, 0, 0
        state = MultiplierState(
            *nowhere, prior, prior, none, none, *penalties, begin(none), *counts, None
        )
        return state, Round(Survey(prior))

    def begin(
        self, state: MultiplierState, ids: Ids, seen: Surveyed
    ) -> tuple[MultiplierState, Round]:
        w = base.with_start(self._problem, self.start, len(seen.square))
        size = np.size(self._coefficients(w))
        state = replace(state, w=w, point=w, gradient=np.zeros(size), inner=begin(w), seen=seen)
        return state, Round(Linearise(w))

    def improve(self, state: MultiplierState, ids: Ids, up: Linearised) -> Next[MultiplierState]:
        state = replace(state, rounds=state.rounds + 1)
        if len(state.shown):
            state = replace(self._judge(state, state.shown, up), shown=np.zeros(0))
        else:
            state = self._advance(state, up)
        if (stop := self._stop(state)) is not None:
            return state, Done(stop)
        return state, Round(Linearise(state.shown if len(state.shown) else state.inner.trial))

    def report(self, state: MultiplierState) -> dict:
        return base.gap_report(state.value, state.bound, state.risks) | {"outer": state.outer}

    def answer(
        self, state: MultiplierState, concluded: base.Concluded | None = None
    ) -> base.Answer:
        """The model, and the weighted gradients that prove its bound."""
        return base.Answer(state.w, duals_at(self._problem, state.point, state.weights))

    # -- the server's steps ------------------------------------------------------------------------

    def _advance(self, state: MultiplierState, up: Linearised) -> MultiplierState:
        """The state after one evaluation of the inner problem, or at the start of the next one."""
        if not (np.isfinite(up.risk).all() and np.isfinite(up.gradient).all()):  # a step too far
            if math.isinf(state.inner.value):
                return replace(state, failures=TRIES)
            state = replace(state, inner=observe(state.inner, math.inf, state.inner.gradient))
            state = replace(state, spent=state.spent + 1)
            return self._stuck(state) if state.inner.failed else state
        if state.mu < 0:
            # penalties in units of the problem: squared gradients, and 1, over the curvature
            curvature = self._curvature(state)
            mu, smooth = self.mu, isinstance(self._problem.regulariser, Zero | L2)
            if mu is None:
                spread = float(((up.gradient - up.gradient.mean(0)) ** 2).sum(1).max())
                least = max(1e-3 * float(np.ptp(up.risk)), 1e-9 * float(np.abs(up.risk).max()))
                mu = max(spread / curvature, least, 1e-300)
            state = replace(state, mu=mu, nu=0.0 if smooth else 1 / curvature)
        w, p = state.inner.trial, self._weights(state, up.risk)
        inner = observe(state.inner, *self._smoothed(state, w, up, p))
        state = replace(state, inner=inner, spent=state.spent + 1)
        if inner.failed:
            return self._stuck(state)
        if not inner.accepted:
            return state
        state = replace(self._judge(state, w, up, p), worth=self._worth(state, w, up, p))
        return self._outer(state, w, up, p) if self._solved(state, w, up, p) else state

    def _stuck(self, state: MultiplierState) -> MultiplierState:
        """The state after a search that rounding ended, with new centres at the best point."""
        gap = state.value - state.bound
        score = gap if math.isfinite(gap) else state.value
        failures = 1 if score < state.mark - 1e-12 * abs(state.value) else state.failures + 1
        return replace(state, inner=begin(state.inner.w), failures=failures, mark=score, spent=0)

    def _curvature(self, state: MultiplierState) -> float:
        """A bound on the curvature of affine models' risks at zero, from the features' squares."""
        loss = self._problem.loss
        near = np.linspace(-2, 2, 17)
        if loss.targets == "class":
            rows = 0.5
        else:
            rows = max(float(loss.curvature(near, 0 * near + y).max()) for y in (-1, 1))
        return max(rows * float(known(state.seen).square.sum()), 1e-12)

    def _weights(self, state: MultiplierState, risks: Array) -> Array:
        """The weights p = Proj_Q(p_k + F/mu); a constant added to all risks changes nothing."""
        return self._problem.over_clients.project(state.centre + (risks - risks.max()) / state.mu)

    def _coefficients(self, w: Array) -> Array:
        return self._problem.predictor.split(w)[0]

    def _regular(self, state: MultiplierState, coefficients: Array) -> tuple[float, Array, Array]:
        """The smoothed h, its gradient s, and the model z = prox_{nu h}(v) at which h is taken."""
        h = self._problem.regulariser
        if state.nu == 0:
            strength = h.strong_convexity  # Zero or L2
            return float(h.value(coefficients)), strength * coefficients, coefficients
        v = coefficients + state.nu * state.gradient
        z = h.prox(v, state.nu)
        s = (v - z) / state.nu
        return float(h.value(z) + state.nu / 2 * (s @ s - state.gradient @ state.gradient)), s, z

    def _smoothed(
        self, state: MultiplierState, w: Array, up: Linearised, p: Array
    ) -> tuple[float, Array]:
        """The inner problem's objective and gradient at w."""
        coefficients = self._coefficients(w)
        h, s, _ = self._regular(state, coefficients)
        gap, gradient = p - state.centre, p @ up.gradient
        gradient[: s.size] += s
        return float(p @ up.risk) - state.mu / 2 * float(gap @ gap) + h, gradient

    def _judge(
        self, state: MultiplierState, w: Array, up: Linearised, p: Array | None = None
    ) -> MultiplierState:
        """The state with the best model so far and, for client weights ``p``, the best bound."""
        problem = self._problem
        value = float(problem.over_clients.worst(up.risk).value) + problem.penalty(w)
        known = min(value, state.value)
        # else z, which has what h asks for: zeros, bounds
        if value < state.value and (p is None or state.nu == 0):
            state = replace(state, w=w, value=value, risks=up.risk)
        if p is None:
            return state
        bound = bound_at(problem, w, known, float(p @ up.risk), p @ up.gradient, p, state.seen)
        return replace(state, bound=bound, point=w, weights=p) if bound > state.bound else state

    def _worth(self, state: MultiplierState, w: Array, up: Linearised, p: Array) -> float:
        """The decrease that further centres may bring at w."""
        coefficients = self._coefficients(w)
        _, s, z = self._regular(state, coefficients)
        lag = float(self._problem.over_clients.worst(up.risk).value) - float(p @ up.risk)
        return lag + float(np.linalg.norm(s) * np.linalg.norm(z - coefficients))

    def _solved(self, state: MultiplierState, w: Array, up: Linearised, p: Array) -> bool:
        """Whether the inner problem is solved as accurately as its centres deserve."""
        lag, close = state.worth, self._progress(state).allowed() / 4
        if state.failures and state.spent == 1:  # the point where a search failed
            return True
        # with nu, z is still to be seen
        enough = INNER * lag if lag > close else close if state.nu else -math.inf
        return self._left(state, w, up, p) <= enough

    def _left(self, state: MultiplierState, w: Array, up: Linearised, p: Array) -> float:
        """The tolerance of the inner problem, from what (p, s) prove or the expected decrease."""
        problem, risk, coefficients = (self._problem, float(p @ up.risk), self._coefficients(w))
        _, s, z = self._regular(state, coefficients)
        known = min(
            state.value, float(problem.over_clients.worst(up.risk).value) + problem.penalty(w)
        )
        bound = bound_at(problem, w, known, risk, p @ up.gradient, p, state.seen)
        left = risk + float(problem.regulariser.value(z)) + float(s @ (coefficients - z)) - bound
        return left if math.isfinite(left) else _first_order(state.inner)

    def _outer(self, state: MultiplierState, w: Array, up: Linearised, p: Array) -> MultiplierState:
        """The state with new centres, and with a smaller mu where the old ones were slow."""
        lag = state.worth
        _, s, z = self._regular(state, self._coefficients(w))
        slow = lag > SLOW * state.lag
        mu, nu = (state.mu * SHRINK, state.nu * SHRINK) if slow else (state.mu, state.nu)
        shown = np.concatenate([z, w[z.size :]]) if state.nu else np.zeros(0)
        state = replace(state, outer=state.outer + 1, centre=p, gradient=s, mu=mu, nu=nu, lag=lag)
        state = replace(state, shown=shown, spent=0)
        again = self._smoothed(state, w, up, self._weights(state, up.risk))
        return replace(state, inner=restart(state.inner, *again, keep=not slow))

    def _progress(self, state: MultiplierState) -> base.Progress:
        tols, counts = (self.tol, self.atol), (state.rounds, self.max_rounds)
        return base.Progress(
            state.value, state.bound, *tols, *counts, state.failures, TRIES, least=base.TINY
        )

    def _stop(self, state: MultiplierState) -> Stop | None:
        progress, known = self._progress(state), not len(state.shown)
        if (
            progress.stop in (None, Stop.STALLED)
            and known
            and state.inner.accepted
            and math.isfinite(state.value)
            and math.isinf(state.bound)
            and _first_order(state.inner) + state.worth <= progress.allowed()
        ):
            return Stop.UNPROVEN  # no decrease is expected
        return progress.stop


def _first_order(inner: QuasiNewton) -> float:
    """The decrease that the gradient allows within a distance of ||w||.

    It says about how far w is from a minimum where no bound is proved.
    """
    size, gradient = float(np.linalg.norm(inner.w)), float(np.linalg.norm(inner.gradient))
    return abs(inner.value) if size == 0 and gradient > 0 else gradient * size
