"""Second-order methods for convex risks by rank over the rows of all clients, which stay there."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.method import Ids, Next
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Counter, Extended, Form
from bonafed.problem import rank_levels
from bonafed.problem.claims import AllRows, Claim, Number
from bonafed.problem.losses import Huber
from bonafed.problem.plausible import Claims, of_lagrangian, of_losses, of_sum, ranks
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import (
    Coordinates,
    Levels,
    Ranged,
    Rows,
    Sliced,
    Tallied,
    levels,
    ridge_of,
)
from bonafed.rounds import Done, Each, Max, Round, Stop, Sum, record
from bonafed.solvers.rank.threshold_barrier import central, rate

# A federated interior point method for few superquantiles of the rows of all clients together.
#
#     minimise over w, eta:  sum_k a_k eta_k + sum_ik cap_k u_ik + a_0 mean(l(w)) + h(w)
#     subject to  u_ik >= l_i(w) - eta_k,  u_ik >= 0        with multipliers q_ik and cap_k - q_ik
#
# (``problem/rank_levels.py``): i runs over the rows of all clients, k over few thresholds. The
# steps are primal-dual Newton steps, one a round. Every row's slack u_ik and weight q_ik stay with
# its client, which moves them by itself; a row that a step would take to its bound goes less far
# than the others, so that no round is spent on the longest step of all. Nor is one spent on
# Mehrotra's predictor: the barrier parameter falls by the square of what the last step left of the
# complementarity, and a step is halved after one that raised it. What travels are sums over the
# rows of all clients: values, gradients, second derivatives.
#
# The run ends by the gap between the value and the dual bound of the weights q, scaled to be
# feasible, which are sums as well.

OPENING = 1.4  # slacks at the start, in units of the largest loss
FIRST = 0.5  # length of the first step, and of one after a step that raised the complementarity
CENTRE = 0.1, 0.5  # aim of a step, in units of the complementarity: of the first, and the largest
NEAR = 0.9  # of the way to its bound that a row goes at most
KEPT = 0.5  # of its slack above the threshold that a row keeps where its loss bends up
STRAIGHT = 0.8  # the same of margins and residuals, which are linear in the model
FREE = 0.01  # beside its size, what a coefficient without regulariser may be off the best one
RIDGE = 1e-15  # of the Newton matrix, in units of its diagonal
WITHIN = 0.5  # of the tolerance at which a run ends: its bound is not yet that of the certificate
PATIENCE = 6  # Newton steps without a smaller gap or complementarity


@record
class BeginRanks:
    """Ask for the losses at a first model, zeros where ``w`` is empty."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Each, Form("N")] | None = None  # of the clients, where they are averaged


@record
class BegunRanks:
    """The number of rows, of all and of the largest client, and their losses."""

    rows: Sum  # (1,)
    longest: Max  # (1,)
    loss: Sum  # (1,)
    largest: Max  # (1,)


@record
class Place:
    """A model with the thresholds of the losses, and what a row weighs at most at each of them."""

    w: Annotated[Array, Form("D")]
    thresholds: Annotated[Array, Form("K")]
    caps: Annotated[Array, Form("K")]
    plain: float  # what a row weighs beside, a_0 / n


@record
class Open:
    """Ask every client to set slacks and weights on the central path, and to expand there."""

    at: Place
    barrier: Annotated[Array, Form("K")]
    longest: int  # rows of the largest client
    weights: Annotated[Each, Form("N")] | None = None


@record
class ExpandedRanks:
    """Sums over all rows at a place: what a Newton step and the run's bound are made of."""

    loss: Sum  # (1,) l_i
    above: Sum  # (1, K) max(l_i - eta_k, 0)
    weight: Sum  # (1, K) q_ik
    product: Sum  # (1,) q (u - x) + (cap - q) u, x = l_i - eta_k
    weighted: Sum  # (1, K) q_ik l_i
    gradient: Sum  # (1, D) l_i'
    gradients: Sum  # (1, K, D) q_ik l_i'
    hessian: Sum  # (1, D, D) of the Newton system in the model
    cross: Sum  # (1, K, D) and between thresholds and model
    rate: Sum  # (1, K) and in the thresholds
    shift: Sum  # (1, K + D) its right side, aiming at a barrier parameter of 0
    centring: Sum  # (1, K + D) and of one unit of the barrier parameter


@record
class Move:
    """Ask every client to move slacks and weights, and to expand where the step leads."""

    at: Place
    step: Annotated[Array, Form("K + D")]
    barrier: float
    length: float
    weights: Annotated[Each, Form("N")] | None = None


@record
class RowState:
    """A client's memory, with zeros for rows that it does not have."""

    slack: Annotated[Array, Form("n, rows, K")]
    weight: Annotated[Array, Form("n, rows, K")]


@record
class RankState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]
    at: Place | None = None
    rows: Annotated[float, Form()] = 0.0  # of all clients
    move: Move | None = None  # the step that the clients are asked to take
    value: Extended = math.inf  # an upper bound of the objective at w
    bound: Extended = -math.inf  # the best lower bound of the run
    least: Extended = math.inf  # the smallest gap so far
    since: Counter = 0  # Newton steps since then
    product: Extended = math.inf  # the complementarity
    length: float = FIRST  # of the next step
    rounds: Annotated[int, Form(rounds=0)] = 0
    steps: Counter = 0
    weights: Annotated[Array, Form("N")] | None = None  # of the clients, where they are averaged


@dataclass(frozen=True)
class _RankMethod(base.Method):
    """What both methods share: the run ends by its gap, or after steps without a smaller one."""

    tol: float = 1e-9
    atol: float = 0.0
    max_rounds: int = 200
    start: Array | None = None
    problem: Problem | None = None
    patience: ClassVar[int]

    def __post_init__(self) -> None:
        base.check_end(self, "tol", "atol")

    def _progress(self, state: Any) -> base.Progress:
        tols, since = (self.tol, self.atol), (state.since, self.patience + 1)
        return base.Progress(state.value, state.bound, *tols, 0, math.inf, *since, WITHIN)

    def _overflown(self, state: Any) -> Done:
        """The end where numbers are not finite any more."""
        return Done(Stop.OPTIMAL if self._progress(state).within() else Stop.STALLED)

    def _asking(self, state: Any, message: object) -> Next[Any]:
        return base.unless_capped(state, Round(message), state.rounds, self.max_rounds)

    def answer(self, state: Any, concluded: base.Concluded | None = None) -> base.Answer:
        """The best model; its certificate needs nothing else."""
        return base.Answer(state.w)


@dataclass(frozen=True)
class RankInteriorPoint(_RankMethod):
    """A second-order method for a superquantile of the rows of all clients together, which stay
    where they are.

    Parameters
    ----------
    tol : stop when the relative gap is below it
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for losses that are not smooth, risks other than Superquantile, TopK, Maximum and a Spectral
        of at most 24 steps, regularisers other than Zero and L2

    Notes
    -----
    For up to some hundred coefficients: a round takes about D^2 + 5 D numbers from every client.
    Beside the number of rows of the largest client and the largest loss at the start, the server
    needs sums over the rows of all clients only.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> tail = bf.Superquantile(0.1)  # the worst tenth of all patients
    >>> problem = bf.Problem(bf.Logistic(), over_rows=tail, regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.RankInteriorPoint())
    >>> bool(solution.certificate.relative_gap < 1e-6)
    True
    """

    patience: ClassVar[int] = PATIENCE
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        over_rows=needs.FEW_LEVELS,
        predictor=needs.AFFINE,
        loss=needs.SMOOTH_SCALAR,
        regulariser=needs.SMOOTH_REGULARISER,
        rows=needs.EQUAL_ROWS,
    )

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        steps = {Open: self.client_step(set_out), Move: self.client_step(move)}
        return {BeginRanks: self._answering(begin), **steps}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {BegunRanks: self.open, ExpandedRanks: self.improve}

    @property
    def claims(self) -> Claims:
        return {BegunRanks: self._begun, ExpandedRanks: self._said}

    def _begun(self, who: int, ask: BeginRanks, up: BegunRanks) -> Iterator[Claim]:
        """What a first answer claims."""
        rows = float(up.rows[0])
        yield AllRows(rows)
        yield Number("its number of rows", up.longest, rows, rows)
        yield from of_losses(self.concrete, ask.w, rows, up.loss, up.largest)

    def _said(self, who: int, ask: Open | Move, up: ExpandedRanks) -> Iterator[Claim]:
        """What an answer claims."""
        w = (ask.at if isinstance(ask, Open) else moved(ask)).w
        w = w if len(w) else np.zeros(up.gradient.shape[1])
        yield from of_sum(self.concrete, w, up.loss, up.gradient[0])
        for what, value in (("a loss", up.above), ("a weight", up.weight), ("a loss", up.weighted)):
            yield Number(f"a sum of {what}", value)
        yield from of_lagrangian(self.concrete, w, up.hessian)

    def server_start(self, n_clients: int) -> tuple[RankState, Round]:
        w = base.start_or_empty(self.start)
        return RankState(w), Round(BeginRanks(w))

    def open(self, state: RankState, ids: Ids, up: BegunRanks) -> Next[RankState]:
        """Thresholds on both sides of the mean loss, at which all rows are centred if they are
        alike.
        """
        n, mean = float(up.rows), float(up.loss) / float(up.rows)
        of = self._levels(n)
        size = OPENING * max(float(up.largest), np.finfo(float).tiny)
        caps, spread = of.caps(int(n)), size * (2 * of.tails - 1)
        at = Place(state.w, mean - spread, caps, of.mean / n)
        state = replace(state, at=at, rows=n, rounds=1)
        barrier = of.tails * (1 - of.tails) * caps * size
        return self._asking(state, Open(at, barrier, int(up.longest)))

    def improve(self, state: Any, ids: Ids, up: ExpandedRanks) -> Next[Any]:
        """Bound the optimum, and take a Newton step."""
        at = base.known(state.at) if state.move is None else moved(base.known(state.move))
        if not len(at.w):
            at = replace(at, w=np.zeros(len(up.gradient)))
        state = replace(state, rounds=state.rounds + 1)
        value, gap = self._gap(at, up, state.rows)
        product = float(up.product)
        if not np.isfinite([value, gap, product]).all():
            return state, self._overflown(state)
        left = product / max(state.product, 1e-300)  # 0 at first
        better = gap < 0.9 * state.least or left < 0.9
        length = FIRST if state.move is None or left > 1 else min(1.0, 2 * state.length)
        since = 0 if better else state.since + 1
        aim = CENTRE[0] if state.move is None else min(left**2, CENTRE[1])
        state = replace(state, at=at, w=at.w, value=value, product=product, since=since)
        state = replace(state, bound=max(state.bound, value - gap), length=length)
        state = replace(state, least=min(gap, state.least))
        if (stop := self._progress(state).stop) is not None:
            return state, Done(stop)
        barrier = aim * product / max(2 * state.rows * len(at.caps), 1)
        return self._go_on(state, up, barrier, gap)

    def _go_on(self, state: Any, up: ExpandedRanks, barrier: float, gap: float) -> Next[Any]:
        """Take the Newton step that aims at a barrier parameter."""
        step = self._direction(state, up, barrier)
        if not np.isfinite(step).all():
            return state, self._overflown(state)
        ask = Move(base.known(state.at), step, barrier, state.length, state.weights)
        return self._asking(replace(state, move=ask, steps=state.steps + 1), ask)

    def _levels(self, n: float) -> Levels:
        return levels(self.concrete.over_rows, int(n))

    def _gap(self, at: Place, up: ExpandedRanks, n: float) -> tuple[float, float]:
        """The value of a place, and what it exceeds the bound of its weights by."""
        of, ridge = self._levels(n), ridge_of(self.concrete, at.w)
        plain, shares = at.plain, of.shares
        value = float(shares @ at.thresholds + at.caps @ up.above + plain * up.loss)
        # weights that sum to the share of every level: q scaled down, or cap - q
        room = np.maximum(n * at.caps - up.weight, 1e-300)
        less = np.minimum(shares / np.maximum(up.weight, 1e-300), 1.0)
        more = np.maximum(shares - up.weight, 0.0) / room
        q, rest = less - more, more * at.caps
        dual = q @ up.weighted + (rest.sum() + plain) * up.loss
        gradient = q @ up.gradients + (rest.sum() + plain) * up.gradient + ridge * at.w
        curved = ridge > 0
        gap = value - float(dual) + float((gradient[curved] ** 2 / (2 * ridge[curved])).sum())
        gap += float(np.abs(gradient[~curved]) @ (FREE + np.abs(at.w[~curved])))
        return value + self.concrete.penalty(at.w), gap

    def _direction(self, state: RankState, up: ExpandedRanks, barrier: float) -> Array:
        """The Newton step (K + D), thresholds first, that aims at this barrier parameter."""
        at = base.known(state.at)
        K, ridge = len(at.caps), ridge_of(self.concrete, at.w)
        matrix = np.zeros((K + len(at.w),) * 2)
        matrix[:K, :K] = np.diag(up.rate)
        matrix[:K, K:], matrix[K:, :K] = -up.cross, -up.cross.T
        matrix[K:, K:] = up.hessian + np.diag(ridge)
        # of the Lagrangian in thresholds and model
        thresholds = self._levels(state.rows).shares - up.weight
        model = up.gradients.sum(0) + at.plain * up.gradient + ridge * at.w
        residual = np.concatenate([thresholds, model]) + up.shift + barrier * up.centring
        return newton_step(matrix, residual)

    def report(self, state: RankState) -> dict:
        """``value``: the objective of the last model, or a little above; ``bound`` of the run."""
        return {"value": state.value, "bound": state.bound, "gap": state.value - state.bound}


def newton_step(matrix: Array, residual: Array) -> Array:
    """Minus matrix^-1 residual, in units of the diagonal; the matrix is positive semidefinite."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    size = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(size, size)
    scaled.ravel()[:: len(size) + 1] += RIDGE
    try:
        factor = cho_factor(scaled, check_finite=False)
        return -cho_solve(factor, residual / size, check_finite=False) / size
    except (LinAlgError, ValueError):  # by rounding
        return -np.linalg.solve(scaled, residual / size) / size


# -- steps of the clients --------------------------------------------------------------------------


def rows_at(problem: Problem, w: Array, data: Block, weights: Array | None) -> Rows:
    """The rows at a model, zeros where it is empty."""
    w = w if len(w) else np.zeros(problem.predictor.dimension(data.n_features))
    if weights is not None:
        return Coordinates(problem, w, data, weights)
    rows = Rows(problem, w, data)
    if isinstance(problem.loss, Huber):
        # beyond its threshold it does not bend, and Newton's steps had no end: the parabola above
        # it that touches it there has the curvature slope / residual
        flat = rows.curvature == 0
        residual = rows.loss[flat] / problem.loss.threshold + problem.loss.threshold / 2
        rows.curvature[flat] = problem.loss.threshold / residual
    return rows


def begin(problem: Problem, ask: BeginRanks, data: Block) -> BegunRanks:
    """How many rows there are, and their losses."""
    rows, many = rows_at(problem, ask.w, data, ask.weights), (data.share > 0).sum(1)
    size = rows.loss if ask.weights is None else np.abs(rows.loss)
    numbers = len(size), many.max(), (rows.share * size).sum(), size.max()
    return BegunRanks(*(np.array([float(x)]) for x in numbers))


def set_out(
    problem: Problem, memory: RowState | None, ask: Open, data: Block, rng: Streams
) -> tuple[RowState, ExpandedRanks]:
    """Slacks and weights on the central path."""
    rows = rows_at(problem, ask.at.w, data, ask.weights)
    start = central(rows.loss[:, None] - ask.at.thresholds, ask.at.caps, ask.barrier)
    kept = RowState(rows.keep(start.slack, ask.longest), rows.keep(start.weight, ask.longest))
    return kept, expanded(rows, ask.at, start.slack, start.weight)


def expanded(rows: Rows, at: Place, slack: Array, weight: Array) -> ExpandedRanks:
    """The sums of ``ExpandedRanks`` over the rows (R,), with slacks and weights (R, K)."""
    x, share = rows.loss[:, None] - at.thresholds, rows.share[:, None]
    over, rest = _room(x, at.caps, slack, weight)
    h = share * rate(weight, rest, over, slack)
    counted, K = share * weight, len(at.caps)
    shift, centring = h * x, h * (1 / weight - 1 / rest)
    beside = share * np.ones((len(x), 1)), shift.sum(1)[:, None], centring.sum(1)[:, None]
    sums = rows.gradients(np.hstack([counted, h, *beside]))
    return ExpandedRanks(
        loss=(rows.share * rows.loss).sum()[None],
        above=(share * np.maximum(x, 0.0)).sum(0)[None],
        weight=counted.sum(0)[None],
        product=(share * (weight * over + rest * slack)).sum()[None],
        weighted=(rows.loss @ counted)[None],
        gradient=sums[:, -3],
        gradients=sums[:, :K],
        hessian=rows.hessian(h.sum(1), counted.sum(1) + rows.share * at.plain),
        cross=sums[:, K : 2 * K],
        rate=h.sum(0)[None],
        # what they add, beside x = l - eta, to the equations of eta and model
        shift=np.concatenate([-shift.sum(0)[None], sums[:, -2]], 1),
        centring=np.concatenate([-centring.sum(0)[None], sums[:, -1]], 1),
    )


def _room(x: Array, caps: Array, slack: Array, weight: Array) -> tuple[Array, Array]:
    """u - x and cap - q, which are > 0 although rounding may take all of them."""
    least = np.finfo(float).tiny + 1e-17 * (np.abs(x) + slack)
    return np.maximum(slack - x, least), np.maximum(caps - weight, 1e-17 * caps)


def move(
    problem: Problem, memory: RowState | None, ask: Move, data: Block, rng: Streams
) -> tuple[RowState, ExpandedRanks]:
    """Every row's slack and weight a step on, no further than almost to their bounds."""
    if memory is None:
        raise ValueError("a step was asked for before slacks and weights were set out.")
    rows, at, longest = rows_at(problem, ask.at.w, data, ask.weights), ask.at, memory.slack.shape[1]
    slack, weight = rows.kept(memory.slack), rows.kept(memory.weight)
    over, rest = _room(rows.loss[:, None] - at.thresholds, at.caps, slack, weight)
    above, below = ask.barrier / weight - over, ask.barrier / rest - slack
    K = len(at.caps)
    dx = rows.along(ask.step[K:])[:, None] - ask.step[:K]
    dq = rate(weight, rest, over, slack) * (dx + above - below)
    du = below + slack / rest * dq
    dv = du - dx
    slacks, weights = (
        np.minimum(ask.length, NEAR / np.maximum(inverse, 1e-300))
        for inverse in (np.maximum(-du / slack, -dv / over), np.maximum(-dq / weight, dq / rest))
    )
    there = moved(ask)
    rows = rows_at(problem, there.w, data, ask.weights)
    x = rows.loss[:, None] - there.thresholds
    slack, over = slack + slacks * du, over + slacks * dv
    # a part of what the linear step would leave above the threshold is kept: a loss bends up, and
    # margins and residuals go further than slacks that are near their bound
    kept = (
        STRAIGHT * over
        if ask.weights is not None
        else KEPT * np.minimum(over, np.maximum(slack, x))
    )
    slack = np.maximum(slack, x + kept)
    weight = weight + weights * dq
    memory = RowState(rows.keep(slack, longest), rows.keep(weight, longest))
    return memory, expanded(rows, there, slack, weight)


def moved(ask: Move) -> Place:
    """Where a step leads."""
    K, length = len(ask.at.caps), ask.length
    thresholds = ask.at.thresholds + length * ask.step[:K]
    return replace(ask.at, w=ask.at.w + length * ask.step[K:], thresholds=thresholds)


# A second-order bundle for any convex risk by rank over the rows of all clients together.
#
# A step takes two rounds: one counts rows above thresholds, which gives the ranks, the other cuts
# the risk by the row weights of these ranks (``problem/rank_levels.py``). No row's loss or weight
# leaves its client. Where bins hold rows of different weights, a round more counts again within
# them.

GOOD = 0.1  # of what the model predicts, that a step has to reach
BLUR = 0.3  # of the tolerance, that ranks within bins may change at a trial
BLURRED = 0.1  # or, of the decrease that the model predicts
COUNTS = 3  # at a trial, at most
STILL = 12  # steps without a smaller gap


@record
class RankBundleState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]
    rows: Annotated[float, Form()] = 0.0  # of all clients
    counted: rank_levels.Slice | None = None  # the table at the trial
    members: Annotated[Array, Form("G + 1")] | None = None  # rows of every group
    excess: float = 0.0  # of the risk over its cut there, at most
    trial: rank_levels.Tally | None = None
    counts: Counter = 0  # at the trial
    best: rank_levels.Best | None = None
    cuts: rank_levels.RankCuts | None = None
    predicted: Extended = 0.0  # decrease
    share: float = 1.0  # of the curvature by ranks
    failures: Counter = 0  # steps since a better model
    value: Extended = math.inf
    bound: Extended = -math.inf
    least: Extended = math.inf
    since: Counter = 0
    rounds: Annotated[int, Form(rounds=0)] = 0
    steps: Counter = 0


@dataclass(frozen=True)
class RankBundle(_RankMethod):
    """A second-order bundle for convex risks by rank of the rows of all clients together, which
    stay where they are.

    Parameters
    ----------
    tol : stop when the relative gap of the model is below it
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default

    Raises
    ------
    ValueError
        for losses that are not smooth, risks over rows that are not convex, regularisers other than
        Zero and L2

    Notes
    -----
    For spectra that rise smoothly, as those of Extremile and ExponentialSpectral. The counts are
    the distribution of the losses of all rows together, at every model of the run.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_rows=bf.Extremile(2.0), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.RankBundle())
    >>> bool(solution.certificate.relative_gap < 1e-6)
    True
    """

    patience: ClassVar[int] = STILL
    requirements: ClassVar[needs.Requirements] = replace(
        RankInteriorPoint.requirements, over_rows=needs.CONVEX_RANKS
    )

    @property
    def on_client(self) -> dict:
        return {ask: self._answering(answer) for ask, answer in rank_levels.CLIENT.items()}

    @property
    def on_server(self) -> dict:
        return {Ranged: self.open, Tallied: self.cut, Sliced: self.improve}

    @property
    def claims(self) -> Claims:
        return ranks(self.concrete)

    def server_start(self, n_clients: int) -> tuple[RankBundleState, Round]:
        w = base.start_or_empty(self.start)
        return RankBundleState(w), Round(rank_levels.Range(w))

    def open(self, state: RankBundleState, ids: Ids, up: Ranged) -> Next[RankBundleState]:
        """Count the rows at the first model."""
        w = state.w if len(state.w) else np.zeros(int(up.width))
        low, high, n = -float(up.smallest), float(up.largest), int(up.rows)
        trial = rank_levels.Tally(w, rank_levels.spread_edges(low, high, None, n))
        state = replace(state, w=w, rows=float(n), trial=trial, rounds=1)
        return self._asking(state, trial)

    def cut(self, state: RankBundleState, ids: Ids, up: Tallied) -> Next[RankBundleState]:
        """Ask for the cut by the ranks at the trial."""
        trial, n = base.known(state.trial), int(state.rows)
        counted = rank_levels.table(self.concrete.over_rows.rank_weights(n), trial.edges, up)
        state = replace(state, counts=state.counts + 1, rounds=state.rounds + 1)
        sharp = max(BLUR * self.tol * counted.size, BLURRED * state.predicted)
        excess, found = float(counted.excess.sum()), (counted.low, counted.high, counted, n)
        if excess > sharp and state.counts < COUNTS:
            trial = replace(trial, edges=rank_levels.spread_edges(*found, again=True))
            return self._asking(replace(state, trial=trial), trial)
        borders, rates, members = counted.groups
        ask = rank_levels.Slice(trial.w, trial.edges, counted.weights, borders, rates)
        trial = replace(trial, edges=rank_levels.spread_edges(*found))
        state = replace(state, counted=ask, members=members, excess=excess, trial=trial, counts=0)
        return self._asking(state, ask)

    def improve(self, state: RankBundleState, ids: Ids, up: Sliced) -> Next[RankBundleState]:
        """Keep the cut, and try the minimiser of the model."""
        asked, problem = base.known(state.counted), self.concrete
        ridge = rank_levels.ridge_of(problem, state.w)
        objective = float(up.value) + state.excess + problem.penalty(asked.w)
        state = replace(state, rounds=state.rounds + 1, steps=state.steps + 1)
        if not (math.isfinite(objective) and np.isfinite(up.hessian).all()):
            return state, self._overflown(state)
        good = state.best is None or state.value - objective >= GOOD * state.predicted
        better = objective < state.value
        if better:
            best = rank_levels.as_best(asked, base.known(state.members), up, objective)
            state = replace(state, best=best, w=asked.w, value=objective)
        best, cuts = base.known(state.best), rank_levels.with_cut(state.cuts, asked, up)
        share = state.share if good else rank_levels.SHARPER * state.share
        penalty = problem.penalty(best.w)
        bound = rank_levels.mixed(best, cuts, ridge, penalty, 0.0).bound
        gap = state.value - bound
        failures = 0 if better else state.failures + 1
        since = 0 if gap < 0.9 * state.least else state.since + 1
        state = replace(state, cuts=cuts, share=share, bound=bound, failures=failures)
        state = replace(state, since=since, least=min(gap, state.least))
        if (stop := self._progress(state).stop) is not None:
            return state, Done(stop)
        step = rank_levels.mixed(best, cuts, ridge, penalty, share)
        trial = replace(base.known(state.trial), w=best.w + step.step)
        state = replace(state, trial=trial, predicted=state.value - step.bound)
        return self._asking(state, trial)

    def report(self, state: RankBundleState) -> dict:
        """``value``: the objective of the best model, or a little above; ``residual``: by how much
        the bundle's model is below it, which proves nothing on the way.
        """
        return {"value": state.value, "residual": state.value - state.bound}
