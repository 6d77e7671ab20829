"""A second-order method for means of losses with linear pieces, over rows that stay where they are.

    minimise over w:  sum_i c_i l(t_i(w)) + h(w)
                      l(t) = offset + slope t + sum_k jump_k max(t - knot_k, 0)

t_i is the margin or the residual of a row and c_i its share of the mean. So the knots are the
thresholds of the interior point method of ``rank_rows``, fixed, and t_i stands for the loss: the
same Newton steps, of the same sums over rows.

The rows' weights q_ik, which prove a bound, stay with the clients. At the end the steps aim at one
barrier parameter nu, that of a gap within the tolerance, which brings the model to the point where
the barrier's own slopes phi'(t_i - knot_k; nu), moved to first order along a Newton step, balance
the gradient. The model, this step and nu then say what every row weighs (``shifted_minorants``):
the proof is asked for by these, in the run and in the certificate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.federated.rank_rows import (
    FREE,
    BeginRanks,
    BegunRanks,
    ExpandedRanks,
    Move,
    Open,
    Place,
    RankInteriorPoint,
    RankState,
    expanded,
    moved,
    newton_step,
    rows_at,
)
from bonafed.algorithms.method import Ids, Next
from bonafed.arrays import Array, Block
from bonafed.codec import Extended, Form
from bonafed.problem.claims import AllRows, Claim, Number
from bonafed.problem.conic_form import member
from bonafed.problem.lower_bounds import NOTHING, Duals
from bonafed.problem.parts import shifted_minorants
from bonafed.problem.plausible import Claims, of_means, of_weighted
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import kinks_of, ridge_of
from bonafed.rounds import Done, Each, Round, Sum, record
from bonafed.solvers.rank.threshold_barrier import central

SHARE = 0.6  # of the gap that is allowed, which the last barrier parameter costs
READY = 1.2  # a gap in units of that, from which a proof is tried
PROVED = 0.9  # of the tolerance at which a run ends: its bound is that of the certificate
SURE = 1e3  # times as large as a model, or as the objective, is a free number that bounds cover
WIDE = 2.0  # slacks at the start, in units of the mean distance from a knot


@record
class Recentre:
    """Ask for the sums at a place where slacks and weights are those of the central path."""

    at: Place
    barrier: float
    weights: Annotated[Each, Form("N")]


@record
class Bound:
    """Ask for the minorant of the mean losses of a model and a step from it, see ``Duals``."""

    pair: Annotated[Array, Form("2, D")]
    barrier: Annotated[Array, Form("1")]
    weights: Annotated[Each, Form("N")]


@record
class Bounded:
    """Sums over all clients of their minorants, times their weights."""

    constant: Sum  # (n,)
    gradient: Sum  # (n, D)


@record
class KinkState(RankState):
    """The server's memory between rounds; ``move`` waits while a proof is tried."""

    proving: Recentre | None = None
    asked: Bound | None = None  # the last bound that was asked for
    proven: Extended = -np.inf  # the best bound of a pair
    pair: Bound | None = None  # which proves it


@dataclass(frozen=True)
class KinkInteriorPoint(RankInteriorPoint):
    """A second-order method for the mean of a loss with linear pieces (hinge, quantile, absolute),
    over rows that stay where they are.

    Parameters
    ----------
    tol, atol : stop when value - bound <= max(atol, tol |value|) is proven
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for losses without linear pieces, regularisers other than Zero and L2, risks other than
        means

    Notes
    -----
    For many more rows than coefficients: a round takes about n D^2 operations for n rows, and D^2 +
    6 D numbers from every client, sums over its rows. Some 15 to 30 rounds prove a relative gap of
    1e-6.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.KinkInteriorPoint())
    >>> bool(solution.certificate.relative_gap < 1e-6)
    True
    """

    tol: float = 1e-6
    patience: ClassVar[int] = 12
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        predictor=needs.LINEAR,
        over_samples=needs.MEAN_OF_ROWS,
        over_clients=needs.AVERAGE,
        loss=needs.WITH_KINKS,
        regulariser=needs.SMOOTH_REGULARISER,
    )

    @property
    def on_client(self) -> dict:
        stateless = {Recentre: self._answering(recentred), Bound: self._answering(bounded)}
        return {**super().on_client, **stateless}

    @property
    def on_server(self) -> dict:
        return {**super().on_server, Bounded: self.prove}

    @property
    def claims(self) -> Claims:
        return {**super().claims, Bounded: self._bounded}

    def _begun(self, who: int, ask: BeginRanks, up: BegunRanks) -> Iterator[Claim]:
        rows = float(up.rows[0])
        yield AllRows(rows)
        yield Number("its number of rows", up.longest, rows, rows)
        yield from of_coordinates(base.known(ask.weights), up)

    def _said(self, who: int, ask: Open | Move | Recentre, up: ExpandedRanks) -> Iterator[Claim]:
        for what, value in (("a margin or residual", up.above), ("a weight", up.weight)):
            yield Number(f"a sum of {what}", value)
        yield Number("a sum of curvatures", np.diagonal(up.hessian[0]))
        at = moved(ask) if isinstance(ask, Move) else ask.at
        total, gradient = float(np.sum(base.known(ask.weights))), up.gradient[0]
        w = at.w if len(at.w) else np.zeros(len(gradient))
        slope = at.plain * gradient + up.gradients[0].sum(0)
        yield from of_pieces(self.concrete, w, at, total, up, slope)

    def _bounded(self, who: int, ask: Bound, up: Bounded) -> Iterator[Claim]:
        yield from of_means(self.concrete, float(np.sum(ask.weights)), up.constant, up.gradient)

    def server_start(self, n_clients: int) -> tuple[KinkState, Round]:
        w, weights = base.start_or_empty(self.start), member(self.concrete, n_clients)
        return KinkState(w, rows=float(weights.sum()), weights=weights), Round(
            BeginRanks(w, weights)
        )

    def open(self, state: KinkState, ids: Ids, up: BegunRanks) -> Next[KinkState]:
        """Slacks as large as the mean distance from a knot."""
        of = kinks_of(self.concrete.loss)
        distance = float(up.loss) / state.rows + float(np.abs(of.knots).mean())
        at = Place(state.w, of.knots, of.jumps, float(of.slopes[0]))
        barrier = of.jumps * WIDE * max(distance, float(np.finfo(float).tiny)) / 4
        ask = Open(at, barrier, int(up.longest), state.weights)
        return self._asking(replace(state, at=at, rounds=1), ask)

    def improve(self, state: KinkState, ids: Ids, up: ExpandedRanks) -> Next[KinkState]:
        """Take a Newton step, or ask for the bound of the pair that a step leads to."""
        ask = state.proving
        if ask is None:
            return super().improve(state, ids, up)
        state = replace(state, proving=None, rounds=state.rounds + 1)
        at = ask.at
        ridge = ridge_of(self.concrete, at.w)
        gradient = up.gradients.sum(0) + at.plain * up.gradient + ridge * at.w
        matrix = up.hessian + np.diag(ridge)
        step = newton_step(matrix, gradient)
        step = step + newton_step(matrix, gradient + matrix @ step)  # what is left costs bounds
        if not np.isfinite(step).all():
            return self._resumed(state)
        pair = np.stack([at.w, step])
        bound = Bound(pair, np.array([ask.barrier]), ask.weights)
        return self._asking(replace(state, asked=bound), bound)

    def prove(self, state: KinkState, ids: Ids, up: Bounded) -> Next[KinkState]:
        """End where the bound of the pair is within the tolerance."""
        state = replace(state, rounds=state.rounds + 1)
        ridge, gradient = ridge_of(self.concrete, state.w), np.asarray(up.gradient)
        bound = float(up.constant) - _fenchel(gradient, state.w, ridge, state.value, SURE)
        if bound > state.proven:
            state = replace(state, proven=bound, pair=state.asked)
        if (stop := self._progress(state).stop) is not None:
            return state, Done(stop)
        return self._resumed(state)

    def _resumed(self, state: KinkState) -> Next[KinkState]:
        return self._asking(state, base.known(state.move))

    def _go_on(
        self, state: KinkState, up: ExpandedRanks, barrier: float, gap: float
    ) -> Next[KinkState]:
        allowed = SHARE * self._progress(state).allowed()
        at = base.known(state.at)
        least = allowed / max(state.rows * len(at.caps), 1e-300)
        state, turn = super()._go_on(state, up, max(barrier, least), gap)
        if isinstance(turn, Done) or not 0 < gap <= READY * allowed:
            return state, turn
        ask = Recentre(at, least, base.known(state.weights))
        return self._asking(replace(state, proving=ask), ask)

    def _progress(self, state: KinkState) -> base.Progress:
        proven = state.value if state.value <= NOTHING else state.proven
        ends = state.since, self.patience + 1
        numbers = state.value, proven, self.tol, self.atol
        return base.Progress(*numbers, 0, np.inf, *ends, PROVED)

    def _gap(self, at: Place, up: ExpandedRanks, n: float) -> tuple[float, float]:
        """The value of a place, and what it exceeds the bound of its weights by."""
        of, ridge = kinks_of(self.concrete.loss), ridge_of(self.concrete, at.w)
        plain = at.plain * float(up.loss) + n * float(of.heights[0])
        value = plain + float(at.caps @ up.above) + self.concrete.penalty(at.w)
        dual = plain + float(up.weighted.sum() - at.thresholds @ up.weight)
        gradient = up.gradients.sum(0) + at.plain * up.gradient
        dual -= float(gradient @ at.w) + _fenchel(gradient, at.w, ridge)
        return value, value - dual

    def _direction(self, state: RankState, up: ExpandedRanks, barrier: float) -> Array:
        at = base.known(state.at)
        K, ridge = len(at.caps), ridge_of(self.concrete, at.w)
        residual = up.gradients.sum(0) + at.plain * up.gradient + ridge * at.w
        residual = residual + up.shift[K:] + barrier * up.centring[K:]
        return np.append(np.zeros(K), newton_step(up.hessian + np.diag(ridge), residual))

    def answer(self, state: Any, concluded: base.Concluded | None = None) -> base.Answer:
        """The model, and the pair that proves the bound."""
        if (of := state.pair) is None:
            return base.Answer(state.w)
        D, N = len(state.w), len(of.weights)
        none = np.zeros((0, D)), np.zeros((0, N))
        return base.Answer(state.w, Duals(of.weights, *none, pair=of.pair, barrier=of.barrier))


def _fenchel(
    gradient: Array, w: Array, ridge: Array, near: float = FREE, far: float = 1.0
) -> float:
    """The most that -<gradient, v> - h(v) is over models v; where h is 0, over those up to ``far``
    times as large as w, or ``near``.
    """
    curved = ridge > 0
    most = float((gradient[curved] ** 2 / (2 * ridge[curved])).sum())
    return most + far * float(np.abs(gradient[~curved]) @ (near + np.abs(w[~curved])))


def of_coordinates(weights: Array, up: BegunRanks) -> Iterator[Claim]:
    """What the sizes of margins or residuals claim."""
    yield Number("a largest margin or residual", up.largest)
    most = float(np.sum(weights)) * float(up.largest[0])
    yield Number("a mean of margins or residuals", up.loss, 0.0, most)


def of_pieces(
    problem: Problem, w: Array, at: Place, total: float, up: Any, slope: Array
) -> Iterator[Claim]:
    """What a client of weight ``total`` claims: its risk at the model w, and the minorant with the
    gradient ``slope`` that its rows' weights make of it.
    """
    constant = total * float(kinks_of(problem.loss).heights[0]) + at.plain * float(up.loss[0])
    lifted = float(at.caps @ up.above[0])
    risk = constant + lifted
    if -1e-13 * (abs(constant) + abs(lifted)) <= risk < 0:  # what is left of them by rounding
        risk = 0.0
    yield from of_weighted(problem, w, np.array([risk]) / max(total, 1e-300), None, total)
    constant += float(up.weighted[0].sum() - at.thresholds @ up.weight[0] - slope @ w)
    yield from of_means(problem, total, np.array([constant]), slope)


# -- steps of the clients --------------------------------------------------------------------------


def recentred(problem: Problem, ask: Recentre, data: Block) -> ExpandedRanks:
    """The sums at the model, on the central path."""
    rows = rows_at(problem, ask.at.w, data, ask.weights)
    there = central(rows.loss[:, None] - ask.at.thresholds, ask.at.caps, ask.barrier)
    return expanded(rows, ask.at, there.slack, there.weight)


def bounded(problem: Problem, ask: Bound, data: Block) -> Bounded:
    """The minorant of every client."""
    of = shifted_minorants(problem, ask.pair, ask.weights, data, ask.barrier)
    return Bounded(of.constant, of.gradient)
