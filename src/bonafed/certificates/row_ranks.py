"""The value and a proven lower bound of a superquantile of the rows of all clients, from (problem,
data, w) only.

    value = min over eta of  sum_k a_k eta_k + sum_ik cap_k max(l_i(w) - eta_k, 0) + a_0 mean + h(w)
    bound = min over v of  sum_i f_i (l_i(w') + <l_i'(w'), v - w'>) + h(v)  <=  optimum

for any row weights f that are feasible (``problem/rank_levels.py``) and any w'. The rounds first
count rows above ever closer thresholds, which gives eta. A row that is not within a narrow width of
a threshold weighs 0 or cap there. The weights of those within are not a function of their losses
only; they are found by Newton steps on the ramp

    q_ik(w', eta') = cap_k t_k + cap_k (l_i(w') - eta'_k) / width,  clipped to [0, cap_k]

until they balance the gradients of all rows. A step is K + D numbers, which the server computes
from sums and every client applies to its rows: no row's weight travels, and none has to be kept.
The weights are scaled to their sums, so that a wrong step can only weaken the bound, never falsify
it. Widths are tried from narrow to wide until one succeeds; the best bound counts.

Each client keeps its rows. The server receives every client's mean loss and share of the weights,
and otherwise only sums and maxima over all clients, among them the numbers of rows whose loss is
above thresholds.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.certificates.certificate import Certificate, certificate, outside
from bonafed.certificates.duality import certify_concrete, run_all
from bonafed.engines.engine import Engine, Run
from bonafed.problem import plausible, rank_levels
from bonafed.problem.centring import centred_proof
from bonafed.problem.claims import AllRows, Claim, Number
from bonafed.problem.lower_bounds import (
    Duals,
    Minorant,
    Survey,
    Surveyed,
    answer_survey,
    lower_bound,
    region,
    without_dual,
)
from bonafed.problem.metadata import Data
from bonafed.problem.problem import Problem, check_affine, checked_model
from bonafed.problem.rank_levels import Levels, Rows, few_levels, levels, levels_of, lifted
from bonafed.rounds import Done, Each, Max, Next, Round, Stop, Sum, record

EDGES = 512  # thresholds of a round that counts
COUNTS = 5  # such rounds: thresholds are then known to 1e-13 of the range of the losses
# of the ramps, in units of the mean loss, as they are tried
WIDTHS = 1e-9, 1e-7, 1e-5, 1e-3
MET = 4.0  # a relative gap in units of the width, at which no other width is tried
EXACT = 1e-10  # a relative gap that nothing needs to improve
STEPS, LOST = 20, 10  # Newton steps at one width, at most, and while the gap is not below 1


@record
class Look:
    """Ask for the losses at ``w``."""

    w: Array  # (D,)


@record
class Looked:
    """The range of the losses of all rows, their sum, and every client's mean loss."""

    largest: Max  # (n,) loss
    smallest: Max  # (n,) minus the smallest loss
    total: Sum  # (n,)
    loss: Each  # (n,)


@record
class Count:
    """Ask how many rows have a loss above each of these thresholds."""

    w: Array  # (D,)
    edges: Array  # (K, M)


@record
class Counted:
    """The number of rows above every threshold."""

    above: Sum  # (1, K, M)


@record
class WeighRows:
    """Ask for the row weights on the ramp, and how they change."""

    w: Array  # (D,)
    thresholds: Array  # (K,)
    caps: Array  # (K,)
    centres: Array  # (K,) the weight on a threshold, cap_k t_k
    plain: float  # a_0 / n
    width: float


@record
class WeighedRows:
    """Sums over all rows."""

    above: Sum  # (1, K) max(l_i - eta_k, 0)
    gradient: Sum  # (1, K + D) of the Lagrangian, thresholds first, without h
    hessian: Sum  # (1, K + D, K + D)


@record
class StepRows:
    """Ask for the cut of the row weights that a Newton step from ``at`` leads to."""

    at: WeighRows
    step: Array  # (K + D,)


@record
class FollowRows:
    """Ask for the cut of the row weights at the end of a path, see ``Duals``."""

    w: Array  # (D,)
    best: Array  # (L,) thresholds of the losses at w
    caps: Array  # (L,)
    first: Array  # (L,) what every row weighs at the start of the path
    path: Array  # (J, D)
    thresholds: Array  # (J, L)
    penalties: Array  # (J,)


@record
class SteppedRows:
    """Sums over all rows, of values and gradients at the model to which the step leads."""

    weight: Sum  # (1, K) of the row weights
    weighted: Sum  # (1, K) losses, times the row weights
    loss: Sum  # (1,) losses
    gradients: Sum  # (1, K, D) times the row weights
    gradient: Sum  # (1, D)
    slopes: Sum  # (1, K) sizes of the losses' slopes, times the row weights
    slope: Sum  # (1,)
    share: Each  # (n, K) the row weights of every client
    above: Sum  # (1, K) max(l_i - eta_k, 0) at w, of a path; else 0


@record
class RankProof:
    """The server's state during certification."""

    seen: Surveyed | None = None
    looked: Looked | None = None
    low: Array | None = None  # (K,) thresholds above which there are at least n t_k rows
    high: Array | None = None  # and fewer
    counts: int = 0
    at: WeighRows | None = None
    width: int = -1  # position of the width that is tried
    steps: int = 0  # Newton steps with it
    last: float = math.inf  # relative gap of the last of them
    value: float = math.inf
    bound: float | None = None
    stationarity: float | None = None
    step: Array | None = None
    weights: Array | None = None  # (N,) of the clients, of the best bound


@dataclass(frozen=True)
class RowRounds(plausible.AboutRows):
    """What the rounds of both certificates by ranks share: they begin with the rows' sizes and the
    losses at the model, and the bound is that of an affine minorant, less what rounding can add.

    ``sizes`` (N,) are the clients' numbers of rows.
    """

    w: Array
    sizes: Any = None
    problem: Problem | None = None

    stateless: ClassVar[bool] = True
    first: ClassVar[type]  # of the server's states

    def for_clients(self) -> Self:
        """The rounds only: the model comes with the messages, and a zero stands for it."""
        return type(self)(np.zeros(1))

    def said(self, who: int, ask: Look, up: Looked) -> Iterator[Claim]:
        """What losses claim, the number of rows being that of the introduction."""
        rows = float(self.sizes[who])
        yield AllRows(rows)
        sums = up.total, up.largest, up.smallest
        yield from plausible.of_losses(self.concrete, ask.w, rows, *sums)
        yield Number("a mean loss", up.loss, up.total / rows, up.total / rows)

    def server_start(self, n_clients: int) -> tuple[Any, Round]:
        return self.first(), Round(Survey(self.sizes / self.sizes.sum()))

    def seen(self, state: Any, ids: Sequence[int], up: Surveyed) -> tuple[Any, Round]:
        return replace(state, seen=up), Round(Look(self.w))

    def _proven(
        self, state: Any, there: Array, value: float, gradient: Array, slopes: float
    ) -> tuple[float, float]:
        """The bound of a cut at the model ``there``, and its stationarity.

        Rounding adds at most as much to the constant as the sizes of its terms sum to, values and
        slopes times predictions: ``slopes`` is the sum of theirs.
        """
        coefficients, intercept = self.concrete.predictor.split(there)
        longest = float(state.seen.reach) * float(np.linalg.norm(coefficients))
        size = value + slopes * (longest + float(np.abs(intercept).sum()))
        constant = value - float(gradient @ there)
        constant -= (self._n + len(there)) * np.finfo(float).eps * size
        if not (math.isfinite(constant) and np.isfinite(gradient).all()):
            return -math.inf, math.inf
        shares = self.sizes / self._n
        minorant = Minorant(constant, gradient, np.zeros(len(shares)), shares)
        where = region(self.concrete, state.value, len(coefficients), state.seen)
        return lower_bound(self.concrete, minorant, where)

    @property
    def _n(self) -> int:
        return int(self.sizes.sum())


@dataclass(frozen=True)
class RankCertification(RowRounds):
    """The rounds of the certificate of a model by thresholds.

    Where it is not ``bounded``, no bound is looked for: the rounds end with the value, the best
    thresholds and the clients' shares of the row weights.
    """

    bounded: bool = True
    steps: tuple[Array, Array, Array] | None = None  # of ``Duals``, which prove the bound
    first: ClassVar[type] = RankProof

    @property
    def on_client(self) -> dict:
        mine = {Survey: answer_survey, Look: looked, Count: counted, WeighRows: weighed}
        mine |= {StepRows: stepped, FollowRows: followed}
        return {ask: self._answering(answer) for ask, answer in mine.items()}

    @property
    def on_server(self) -> dict:
        began = {Surveyed: self.seen, Looked: self.looked, Counted: self.narrow}
        return {**began, WeighedRows: self.shift, SteppedRows: self.bound}

    @property
    def claims(self) -> plausible.Claims:
        return {
            **plausible.surveys(self.concrete),
            Looked: self.said,
            Counted: lambda who, ask, up: [plausible.Counts(ask.edges, up.above[0], ask.w)],
            WeighedRows: lambda who, ask, up: [Number("a sum of losses", up.above)],
            SteppedRows: self._stepped,
        }

    def _stepped(self, who: int, ask: StepRows | FollowRows, up: SteppedRows) -> Iterator[Claim]:
        """What weighted sums claim."""
        w = ask.at.w + ask.step[len(ask.at.caps) :] if isinstance(ask, StepRows) else ask.path[-1]
        yield from plausible.of_sum(self.concrete, w, up.loss, up.gradient[0])
        for what in (up.weight, up.weighted, up.slopes, up.slope, up.share, up.above):
            yield Number("a sum of weights", what)

    def looked(self, state: Any, ids: Sequence[int], up: Looked) -> Next:
        K = len(self._levels.tails)
        low, high = np.full(K, -float(up.smallest)), np.full(K, float(up.largest))
        return self._narrower(replace(state, looked=up, low=low, high=high))

    def narrow(self, state: Any, ids: Sequence[int], up: Counted) -> Next:
        """Keep the two thresholds of every level between which the number of rows is met."""
        edges = _edges(state.low, state.high)
        over = (up.above >= self._levels.tails[:, None] * self._n).sum(1)  # edges that are too low
        padded = np.column_stack([state.low, edges, state.high])
        level = np.arange(len(over))
        low, high = padded[level, over], padded[level, over + 1]
        return self._narrower(replace(state, low=low, high=high, counts=state.counts + 1))

    def _narrower(self, state: Any) -> Next:
        known = state.high - state.low <= 1e-14 * np.maximum(np.abs(state.low), np.abs(state.high))
        if state.counts < COUNTS and not known.all():
            return state, Round(Count(self.w, _edges(state.low, state.high)))
        if self.concrete.loss.targets == "class":  # of which rows have no slopes of one number
            return state, Done(Stop.OPTIMAL)
        if self.steps is None:
            return self._wider(state)
        caps = self._levels.caps(self._n)
        ask = FollowRows(self.w, state.high, caps, caps * self._levels.tails, *self.steps)
        return state, Round(ask)

    def _wider(self, state: Any) -> tuple[RankProof, Round]:
        """Begin with the next width, at the model itself."""
        of, n, width = self._levels, self._n, state.width + 1
        caps, size = of.caps(n), WIDTHS[width] * float(state.looked.total) / n
        at = WeighRows(self.w, state.high, caps, caps * of.tails, of.mean / n, max(size, 1e-300))
        return replace(state, at=at, width=width, steps=0, last=math.inf), Round(at)

    def shift(self, state: Any, ids: Sequence[int], up: WeighedRows) -> Next:
        """The value, and the Newton step that balances the gradients."""
        at, of = state.at, self._levels
        if not state.steps:
            value = of.shares @ at.thresholds + at.caps @ up.above + at.plain * state.looked.total
            state = replace(state, value=float(value) + self.concrete.penalty(self.w))
        K, coefficients = len(at.caps), self.concrete.predictor.split(at.w)[0]
        gradient, matrix = up.gradient.copy(), up.hessian.copy()
        gradient[:K] += of.shares
        inside = slice(K, K + len(coefficients))
        ridge = getattr(self.concrete.regulariser, "strength", 0.0)
        gradient[inside] += ridge * coefficients
        matrix[inside, inside] += ridge * np.eye(len(coefficients))
        curved = np.diag(matrix) > 1e-300  # what no row bends stays where it is
        size = np.where(curved, np.sqrt(np.where(curved, np.diag(matrix), 1.0)), 1.0)
        scaled = matrix / size / size[:, None] + 1e-15 * np.eye(len(size))
        gradient = np.where(curved, gradient / size, 0.0)
        step = -np.linalg.lstsq(scaled, gradient, rcond=None)[0] / size
        return replace(state, step=step), Round(StepRows(at, step))

    def bound(self, state: Any, ids: Sequence[int], up: SteppedRows) -> Next:
        """The bound of one step, and the next one."""
        at, step, of, n = state.at, state.step, self._levels, self._n
        caps, plain = of.caps(n), of.mean / n
        there = at.w + step[len(caps) :] if self.steps is None else self.steps[0][-1]
        if self.steps is not None:
            value = float(of.shares @ state.high + caps @ up.above + plain * state.looked.total)
            state = replace(state, value=value + self.concrete.penalty(self.w))
        less = np.minimum(of.shares / np.maximum(up.weight, 1e-300), 1.0)
        more = np.maximum(of.shares - up.weight, 0.0) / np.maximum(n * caps - up.weight, 1e-300)
        scale, rest = less - more, more @ caps + plain  # f_i = scale q_i + rest
        gradient = scale @ up.gradients + rest * up.gradient
        value = float(scale @ up.weighted + rest * up.loss)
        slopes = float(scale @ up.slopes + rest * up.slope)
        proven, left = self._proven(state, there, value, gradient, slopes)
        if state.bound is None or proven > state.bound:
            weights = up.share @ scale + rest * self.sizes
            state = replace(state, bound=proven, stationarity=left, weights=weights)
        gap = (state.value - proven) / max(abs(state.value), 1e-300)
        if self.steps is not None:
            return state, Done(Stop.OPTIMAL)
        # step on while the gap falls, and try wider ramps until one succeeds
        falls = (gap < 0.9 * state.last or gap >= 1.0) and math.isfinite(gap)
        smooth = self.concrete.loss.smooth  # else cuts prove the bound, see ``certify_ranks``
        most = STEPS if gap < 1.0 else LOST
        if self.bounded and gap > EXACT and falls and smooth and state.steps < most:
            at = replace(at, w=there, thresholds=at.thresholds + step[: len(caps)])
            return replace(state, at=at, steps=state.steps + 1, last=gap), Round(at)
        met = min(gap, state.last) <= MET * WIDTHS[state.width]
        if met or not self.bounded or not smooth or state.width + 1 == len(WIDTHS):
            return state, Done(Stop.OPTIMAL)
        return self._wider(state)

    @property
    def _levels(self) -> Levels:
        return levels(self.concrete.over_rows, self._n)


# -- clients


def looked(problem: Problem, ask: Look, data: Block) -> Looked:
    """The losses of every client's rows."""
    rows = Rows(problem, ask.w, data)
    spread, real = rows.spread(rows.loss), data.share > 0
    highest, lowest = (np.where(real, each, -np.inf).max(1) for each in (spread, -spread))
    total = spread.sum(1)
    return Looked(highest, lowest, total, total / real.sum(1))


def counted(problem: Problem, ask: Count, data: Block) -> Counted:
    """The numbers of rows above thresholds."""
    ordered = np.sort(Rows(problem, ask.w, data).loss)
    above = len(ordered) - np.searchsorted(ordered, ask.edges, side="right")
    return Counted(above[None].astype(float))


def weighed(problem: Problem, ask: WeighRows, data: Block) -> WeighedRows:
    """The row weights on the ramp."""
    rows = Rows(problem, ask.w, data)
    weight, rate = _ramp(rows, ask)
    total = weight.sum(1) + ask.plain
    gradient = np.concatenate([-weight.sum(0)[None], rows.gradient(total)], 1)
    cross = -rows.gradients(rate)[0]
    model = rows.hessian(rate.sum(1), total)[0]
    hessian = np.block([[np.diag(rate.sum(0)), cross], [cross.T, model]])
    above = np.maximum(rows.loss[:, None] - ask.thresholds, 0.0).sum(0)
    return WeighedRows(above[None], gradient, hessian[None])


def stepped(problem: Problem, ask: StepRows, data: Block) -> SteppedRows:
    """The cut of the row weights after a step."""
    at, K = ask.at, len(ask.at.caps)
    rows = Rows(problem, at.w, data)
    weight, rate = _ramp(rows, at)
    change = rows.along(ask.step[K:])[:, None] - ask.step[:K]
    weight = np.clip(weight + rate * change, 0.0, at.caps)
    there = Rows(problem, at.w + ask.step[K:], data)
    return _cut(there, weight, np.zeros((1, K)))


def followed(problem: Problem, ask: FollowRows, data: Block) -> SteppedRows:
    """The cut of the row weights at the end of a path."""
    path = ask.path, ask.thresholds, ask.penalties
    weight = rank_levels.followed(problem, data, ask.caps, ask.first, path)
    above = np.maximum(Rows(problem, ask.w, data).loss[:, None] - ask.best, 0.0).sum(0)[None]
    return _cut(Rows(problem, ask.path[-1], data), weight, above)


def _cut(rows: Rows, weight: Array, above: Array) -> SteppedRows:
    """The cut of row weights (R, K) at the model of the rows."""
    K = weight.shape[1]
    values = weight.sum(0)[None], (rows.loss @ weight)[None], rows.loss.sum()[None]
    gradients = rows.gradients(weight), rows.gradient(np.ones(len(rows.loss)))
    slopes = (np.abs(rows.slope) @ weight)[None], np.abs(rows.slope).sum()[None]
    mine = [rows.by_client(one) for one in weight.T]
    share = np.stack(mine, 1) if K else np.zeros((len(rows.by_client(rows.loss)), 0))
    return SteppedRows(*values, *gradients, *slopes, share, above)


def _ramp(rows: Rows, at: WeighRows) -> tuple[Array, Array]:
    """The weights (R, K) of the rows, and their changes with the losses."""
    weight = at.centres + at.caps * (rows.loss[:, None] - at.thresholds) / at.width
    inside = (weight > 0) & (weight < at.caps)
    return np.clip(weight, 0.0, at.caps), np.where(inside, at.caps / at.width, 0.0)


def _edges(low: Array, high: Array) -> Array:
    """(K, EDGES) thresholds inside (low, high)."""
    return low[:, None] + (high - low)[:, None] * (np.arange(1, EDGES + 1) / (EDGES + 1))


# The value and a proven lower bound of any convex risk by rank of the rows of all clients, from
# (problem, data, w) only.
#
#     value = sum_i sigma_i l_[i](w) + h(w)
#     bound = min over v of  sum_i f_i (l_i(w') + <l_i'(w'), v - w'>) + h(v)  <=  optimum
#
# for any f in the permutahedron of sigma and any w'. The rounds first count rows above ever closer
# thresholds, until the ranks of rows within one bin change the value by no more than rounding: that
# much is added to it. Then a bundle (``problem/rank_levels.py``) looks near the model for a mixture
# of row weights that balances the gradient. Every table of weights is in the permutahedron, and so
# is every mixture of tables: wrong steps and mixtures only weaken the bound.
#
# Each client keeps its rows. The server receives every client's mean loss and share of the weights,
# and otherwise sums and maxima over all clients: the numbers of rows whose loss is above thresholds
# are the distribution of the losses of all rows.

TABLES_COUNTED = 6  # counts at the model, and
AGAIN = 2  # at other models of the bundle
BLUR = 1e-13  # of the value, that ranks within bins may change at the model
SHARP = 1e-11  # and elsewhere
CUTS = 30  # of the bundle, at most
PATIENCE = 8  # steps without a smaller gap
REFINED = 4  # models at which the mixture is cut, at most
LEAST = 1e-9  # of a mixture, that a table has to have


@record
class MixTables:
    """Ask for the cut at ``w`` of a mixture of row weights, read off tables at other models."""

    w: Array  # (D,)
    points: Array  # (J, D)
    edges: Array  # (J, M)
    weights: Array  # (J, M + 1), times the mixture


@record
class Mixture:
    """Sums over all rows, with the mixture's row weights f_i."""

    value: Sum  # (1,) f_i l_i
    gradient: Sum  # (1, D)
    hessian: Sum  # (1, D, D)
    slopes: Sum  # (1,) f_i |l_i'|
    share: Each  # (n,) the row weights of every client


@record
class SpectrumProof:
    """The server's state during certification."""

    seen: Surveyed | None = None
    looked: Looked | None = None
    trial: rank_levels.Tally | None = None
    counts: int = 0  # at the trial
    asked: rank_levels.Slice | None = None
    members: Array | None = None
    excess: float = 0.0
    tables: tuple[rank_levels.Slice, ...] = ()
    best: rank_levels.Best | None = None
    cuts: rank_levels.RankCuts | None = None
    predicted: float = 0.0
    share: float = 1.0
    least: float = math.inf
    since: int = 0
    value: float = math.inf  # of the model
    mix: MixTables | None = None
    mixes: int = 0
    bound: float | None = None
    stationarity: float | None = None
    weights: Array | None = None  # (N,) of the clients, of the best bound


@dataclass(frozen=True)
class SpectrumCertification(RowRounds):
    """The rounds of the certificate of a model by cuts."""

    first: ClassVar[type] = SpectrumProof

    @property
    def on_client(self) -> dict:
        mine = {Survey: answer_survey, Look: looked, **rank_levels.CLIENT, MixTables: mixture}
        return {ask: self._answering(answer) for ask, answer in mine.items()}

    @property
    def on_server(self) -> dict:
        began = {Surveyed: self.seen, Looked: self.looked, rank_levels.Tallied: self.cut}
        return {**began, rank_levels.Sliced: self.improve, Mixture: self.bound}

    @property
    def claims(self) -> plausible.Claims:
        known = {**plausible.surveys(self.concrete), **plausible.ranks(self.concrete)}
        return {**known, Looked: self.said, Mixture: self._mixed}

    def _mixed(self, who: int, ask: MixTables, up: Mixture) -> Iterator[Claim]:
        """What weighted sums claim."""
        for what in (up.value, up.slopes, up.share):
            yield Number("a weighted sum of losses", what)
        tables = tuple(zip(ask.points, ask.weights, strict=True))
        yield plausible.RankCut(ask.w, float(up.value[0]), up.gradient[0], tables)
        yield from plausible.of_lagrangian(self.concrete, ask.w, up.hessian)

    def looked(self, state: Any, ids: Sequence[int], up: Looked) -> Next:
        edges = rank_levels.spread_edges(-float(up.smallest), float(up.largest), None, self._n)
        trial = rank_levels.Tally(self.w, edges)
        return replace(state, looked=up, trial=trial), Round(trial)

    def cut(self, state: Any, ids: Sequence[int], up: rank_levels.Tallied) -> Next:
        """Count again while bins hold rows of different weights, then cut."""
        trial = state.trial
        counted = rank_levels.table(self.concrete.over_rows.rank_weights(self._n), trial.edges, up)
        excess, counts = float(counted.excess.sum()), state.counts + 1
        blur, most = (SHARP, AGAIN) if state.tables else (BLUR, TABLES_COUNTED)
        if excess > blur * counted.size and counts < most:
            trial = rank_levels.Tally(trial.w, self._edges(counted, again=True))
            return replace(state, trial=trial, counts=counts), Round(trial)
        borders, rates, members = counted.groups
        ask = rank_levels.Slice(trial.w, trial.edges, counted.weights, borders, rates)
        state = replace(state, asked=ask, members=members, excess=excess, counts=0)
        return replace(state, trial=rank_levels.Tally(trial.w, self._edges(counted))), Round(ask)

    def _edges(self, counted: rank_levels.Table, again: bool = False) -> Array:
        return rank_levels.spread_edges(counted.low, counted.high, counted, self._n, again)

    def improve(self, state: Any, ids: Sequence[int], up: rank_levels.Sliced) -> Next:
        """Keep the cut and look near the best model, or cut the mixture found."""
        asked, last, problem = state.asked, state.trial.edges, self.concrete
        objective = float(up.value) + state.excess + problem.penalty(asked.w)
        best, value = state.best, objective if state.best is None else state.value
        good = best is None or best.objective - objective >= 0.1 * state.predicted
        if best is None or objective < best.objective:
            best = rank_levels.as_best(asked, state.members, up, objective)
        cuts = rank_levels.with_cut(state.cuts, asked, up)
        share = state.share if good else rank_levels.SHARPER * state.share
        tables = (*state.tables, asked)
        state = replace(state, best=best, cuts=cuts, tables=tables, share=share, value=value)
        ridge, penalty = self._ridge, problem.penalty(best.w)
        now = rank_levels.mixed(best, cuts, ridge, penalty, 0.0)
        gap = (best.objective - now.bound) / max(abs(best.objective), 1e-300)
        since = 0 if gap < 0.9 * state.least else state.since + 1
        state = replace(state, least=min(gap, state.least), since=since)
        step = rank_levels.mixed(best, cuts, ridge, penalty, state.share)
        wanted = gap > EXACT and since <= PATIENCE and len(state.tables) < CUTS
        if wanted and np.isfinite(step.step).all():
            trial = rank_levels.Tally(best.w + step.step, last)
            state = replace(state, trial=trial, predicted=best.objective - step.bound)
            return state, Round(trial)
        # ask for a mixture of tables, thresholds filled up with the largest number
        w = best.w + now.step
        used = [(one, x) for one, x in zip(state.tables, now.mixture, strict=True) if x > LEAST]
        total, longest = sum(x for _, x in used), max(len(one.edges) for one, _ in used)
        edges = np.full((len(used), longest), np.finfo(float).max)
        weights = np.zeros((len(used), longest + 1))
        for j, (one, x) in enumerate(used):
            edges[j, : len(one.edges)] = one.edges
            weights[j, : len(one.weights)] = one.weights * (x / total)
            weights[j, len(one.weights) :] = one.weights[-1] * (x / total)
        ask = MixTables(w, np.array([one.w for one, _ in used]), edges, weights)
        return replace(state, mix=ask), Round(ask)

    def bound(self, state: Any, ids: Sequence[int], up: Mixture) -> Next:
        """The bound of the mixture's cut, and a Newton step with its weights."""
        mix = state.mix
        value, slopes = float(up.value), float(up.slopes)
        proven, left = self._proven(state, mix.w, value, up.gradient, slopes)
        better = state.bound is None or proven > state.bound
        state = replace(state, mixes=state.mixes + 1)
        if better:
            state = replace(state, bound=proven, stationarity=left, weights=up.share)
        gap = (state.value - proven) / max(abs(state.value), 1e-300)
        if gap <= EXACT or not better or state.mixes >= REFINED:
            return state, Done(Stop.OPTIMAL)
        matrix = up.hessian + np.diag(self._ridge)
        size = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
        scaled = matrix / size / size[:, None] + 1e-14 * np.eye(len(size))
        gradient = up.gradient + self._ridge * mix.w
        ask = replace(mix, w=mix.w - np.linalg.solve(scaled, gradient / size) / size)
        return replace(state, mix=ask), Round(ask)

    @property
    def _ridge(self) -> Array:
        return rank_levels.ridge_of(self.concrete, self.w)


def mixture(problem: Problem, ask: MixTables, data: Block) -> Mixture:
    """The cut of a mixture of tables, of every client of the block."""
    rows = Rows(problem, ask.w, data)
    f = np.zeros(len(rows.loss))
    for point, edges, weights in zip(ask.points, ask.edges, ask.weights, strict=True):
        f += weights[np.searchsorted(edges, Rows(problem, point, data).loss)]
    hessian, slopes = rows.hessian(np.zeros(len(f)), f), (np.abs(rows.slope) @ f)[None]
    return Mixture((rows.loss @ f)[None], rows.gradient(f), hessian, slopes, rows.by_client(f))


def certify_ranks(
    problem: Problem, fed: Data, w: Array, duals: Duals | None = None, engine: Engine | None = None
) -> tuple[Certificate, list[Run]]:
    """The certificate of a model where all rows are ranked together, and the runs of its rounds.

    Parameters
    ----------
    problem, fed : the user's
    w : (D,) the model
    duals : of cuts in model and thresholds (`lifted`), which may prove more than the
        model only does
    engine : where the clients are; by default this process
    """
    check_affine(problem, "a certificate of ranks over all rows")
    _, fed, w, duals = centred_proof(problem, fed, np.asarray(w, float), duals)
    concrete, data = problem.at(fed)
    w = checked_model(w, concrete.predictor.dimension(data.n_features))
    kind = RankCertification if few_levels(concrete.over_rows) else SpectrumCertification
    rounds: Any = kind(w, np.asarray(fed.sizes, float), concrete)
    if duals is not None and duals.path is not None:
        count = len(levels_of(concrete).shares) if kind is RankCertification else None
        rounds, duals = replace(rounds, steps=duals.steps(len(w), count)), None
    run = run_all(rounds, data, engine)
    state: RankProof | SpectrumProof = run.state
    assert state.looked is not None
    value, weights = state.value, state.weights
    bound = state.bound if state.bound is not None and math.isfinite(state.bound) else None
    bound = None if without_dual(concrete) else bound
    stationarity, runs = state.stationarity, [run]
    best = state.high if isinstance(state, RankProof) else None
    if best is not None and (duals is not None or not math.isfinite(value)):
        # at the best thresholds the mean is the risk
        cuts, rounds = certify_concrete(lifted(concrete), data, np.append(w, best), duals, engine)
        runs.append(rounds)
        if not math.isfinite(value):
            value, weights = cuts.value, cuts.weights
        if cuts.bound is not None and (bound is None or cuts.bound > bound):
            bound, stationarity = cuts.bound, cuts.stationarity
    assert weights is not None
    loss, feasibility = state.looked.loss, outside(concrete, concrete.predictor.split(w)[0])
    more = {"feasibility": feasibility, "stationarity": stationarity}
    return certificate(value, bound, weights, loss, loss, **more), runs
