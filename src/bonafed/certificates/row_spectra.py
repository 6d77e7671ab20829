"""The value and a proven lower bound of any convex risk by rank of the rows of all clients, from
(problem, data, w) only.

    value = sum_i sigma_i l_[i](w) + h(w)
    bound = min over v of  sum_i f_i (l_i(w') + <l_i'(w'), v - w'>) + h(v)  <=  optimum

for any f in the permutahedron of sigma and any w'. The rounds first count rows above ever closer
thresholds, until the ranks of rows within one bin change the value by no more than rounding: that
much is added to it. Then a bundle (``problem/rank_cuts.py``) looks near the model for a mixture of
row weights that balances the gradient. Every table of weights is in the permutahedron, and so is
every mixture of tables: wrong steps and mixtures only weaken the bound.

Each client keeps its rows. The server receives every client's mean loss and share of the weights,
and otherwise sums and maxima over all clients: the numbers of rows whose loss is above thresholds
are the distribution of the losses of all rows.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.certificates.certificate import Certificate, certificate, outside
from bonafed.certificates.duality import certify_concrete, run_all
from bonafed.certificates.row_ranks import (
    Look,
    Looked,
    RankCertification,
    RankProof,
    RowRounds,
    looked,
)
from bonafed.data.federation import Federation
from bonafed.engines.engine import Engine, Run
from bonafed.problem import rank_cuts
from bonafed.problem.claims import Claim, Number
from bonafed.problem.lower_bounds import Duals, Survey, Surveyed, answer_survey, without_dual
from bonafed.problem.metadata import Metadata
from bonafed.problem.plausible import Claims, of_lagrangian, surveys
from bonafed.problem.problem import Problem, checked_model
from bonafed.problem.rank_levels import Rows, few_levels, lifted
from bonafed.problem.requirements import check_affine
from bonafed.problem.sum_claims import RankCut, ranks
from bonafed.rounds import Done, Each, Round, Stop, Sum, record

COUNTS = 6  # counts at the model, and
AGAIN = 2  # at other models of the bundle
BLUR = 1e-13  # of the value, that ranks within bins may change at the model
SHARP = 1e-11  # and elsewhere
EXACT = 1e-10  # a relative gap that nothing needs to improve
STEPS = 30  # of the bundle, at most
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
    trial: rank_cuts.Tally | None = None
    counts: int = 0  # at the trial
    asked: rank_cuts.Slice | None = None
    members: Array | None = None
    excess: float = 0.0
    tables: tuple[rank_cuts.Slice, ...] = ()
    best: rank_cuts.Best | None = None
    cuts: rank_cuts.RankCuts | None = None
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


Next = tuple[SpectrumProof, Round | Done]


@dataclass(frozen=True)
class SpectrumCertification(RowRounds):
    """The rounds of the certificate of a model by cuts."""

    first: ClassVar[type] = SpectrumProof

    @property
    def on_client(self) -> dict:
        mine = {Survey: answer_survey, Look: looked, **rank_cuts.CLIENT, MixTables: mixture}
        return {ask: self._answering(answer) for ask, answer in mine.items()}

    @property
    def on_server(self) -> dict:
        began = {Surveyed: self.seen, Looked: self.looked, rank_cuts.Tallied: self.cut}
        return {**began, rank_cuts.Sliced: self.improve, Mixture: self.bound}

    @property
    def claims(self) -> Claims:
        known = {**surveys(self._problem), **ranks(self._problem)}
        return {**known, Looked: self.said, Mixture: self._mixed}

    def _mixed(self, who: int, ask: MixTables, up: Mixture) -> Iterator[Claim]:
        """What weighted sums claim."""
        for what in (up.value, up.slopes, up.share):
            yield Number("a weighted sum of losses", what)
        tables = tuple(zip(ask.points, ask.weights, strict=True))
        yield RankCut(ask.w, float(up.value[0]), up.gradient[0], tables)
        yield from of_lagrangian(self._problem, ask.w, up.hessian)

    def looked(self, state: SpectrumProof, ids: Sequence[int], up: Looked) -> Next:
        edges = rank_cuts.spread_edges(-float(up.smallest), float(up.largest), None, self._n)
        trial = rank_cuts.Tally(self.w, edges)
        return replace(state, looked=up, trial=trial), Round(trial)

    def cut(self, state: SpectrumProof, ids: Sequence[int], up: rank_cuts.Tallied) -> Next:
        """Count again while bins hold rows of different weights, then cut."""
        trial = state.trial
        assert trial is not None
        counted = rank_cuts.table(self._problem.over_rows.rank_weights(self._n), trial.edges, up)
        excess, counts = float(counted.excess.sum()), state.counts + 1
        blur, most = (SHARP, AGAIN) if state.tables else (BLUR, COUNTS)
        if excess > blur * counted.size and counts < most:
            trial = rank_cuts.Tally(trial.w, self._edges(counted, again=True))
            return replace(state, trial=trial, counts=counts), Round(trial)
        borders, rates, members = counted.groups
        ask = rank_cuts.Slice(trial.w, trial.edges, counted.weights, borders, rates)
        state = replace(state, asked=ask, members=members, excess=excess, counts=0)
        return replace(state, trial=rank_cuts.Tally(trial.w, self._edges(counted))), Round(ask)

    def _edges(self, counted: rank_cuts.Table, again: bool = False) -> Array:
        return rank_cuts.spread_edges(counted.low, counted.high, counted, self._n, again)

    def improve(self, state: SpectrumProof, ids: Sequence[int], up: rank_cuts.Sliced) -> Next:
        """Keep the cut and look near the best model, or cut the mixture found."""
        asked, members, problem = state.asked, state.members, self._problem
        assert asked is not None
        assert members is not None
        assert state.trial is not None
        last = state.trial.edges
        objective = float(up.value) + state.excess + problem.penalty(asked.w)
        before = state.best
        good = before is None or before.objective - objective >= 0.1 * state.predicted
        if before is None:
            state = replace(state, value=objective)
        best = before
        if best is None or objective < best.objective:
            best = rank_cuts.as_best(asked, members, up, objective)
        cuts = rank_cuts.with_cut(state.cuts, asked, up)
        share, tables = (
            state.share if good else rank_cuts.SHARPER * state.share,
            (*state.tables, asked),
        )
        state = replace(state, best=best, cuts=cuts, tables=tables, share=share)
        ridge, penalty = self._ridge, problem.penalty(best.w)
        now = rank_cuts.mixed(best, cuts, ridge, penalty, 0.0)
        gap = (best.objective - now.bound) / max(abs(best.objective), 1e-300)
        since = 0 if gap < 0.9 * state.least else state.since + 1
        state = replace(state, least=min(gap, state.least), since=since)
        step = rank_cuts.mixed(best, cuts, ridge, penalty, state.share)
        wanted = gap > EXACT and since <= PATIENCE and len(state.tables) < STEPS
        if wanted and np.isfinite(step.step).all():
            trial = rank_cuts.Tally(best.w + step.step, last)
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

    def bound(self, state: SpectrumProof, ids: Sequence[int], up: Mixture) -> Next:
        """The bound of the mixture's cut, and a Newton step with its weights."""
        mix = state.mix
        assert mix is not None
        value, slopes = float(up.value), float(up.slopes)
        proven, left = self._proven(state, mix.w, value, up.gradient, slopes)
        better = state.bound is None or proven > state.bound
        if better:
            state = replace(state, bound=proven, stationarity=left, weights=up.share)
        gap = (state.value - proven) / max(abs(state.value), 1e-300)
        state = replace(state, mixes=state.mixes + 1)
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
        return rank_cuts.ridge_of(self._problem, self.w)


def mixture(problem: Problem, ask: MixTables, data: Block) -> Mixture:
    """The cut of a mixture of tables, of every client of the block."""
    rows = Rows(problem, ask.w, data)
    f = np.zeros(len(rows.loss))
    for point, edges, weights in zip(ask.points, ask.edges, ask.weights, strict=True):
        f += weights[np.searchsorted(edges, Rows(problem, point, data).loss)]
    hessian, slopes = rows.hessian(np.zeros(len(f)), f), (np.abs(rows.slope) @ f)[None]
    return Mixture((rows.loss @ f)[None], rows.gradient(f), hessian, slopes, rows.by_client(f))


def certify_ranks(
    problem: Problem,
    fed: Federation | Metadata,
    w: Array,
    duals: Duals | None = None,
    engine: Engine | None = None,
) -> tuple[Certificate, list[Run]]:
    """The certificate of a model where all rows are ranked together, and the runs of its rounds.

    Parameters
    ----------
    problem, fed : the user's
    w : (D,) the model
    duals : of cuts in model and thresholds (``problem.thresholds``), which may prove more than the
        model only does
    engine : where the clients are; by default this process
    """
    check_affine(problem, "a certificate of ranks over all rows")
    concrete, data = problem.at(fed)
    w = checked_model(w, concrete.predictor.dimension(data.n_features))
    kind = RankCertification if few_levels(concrete.over_rows) else SpectrumCertification
    rounds = kind(w, np.asarray(fed.sizes, float), concrete)
    run = run_all(rounds, data, engine)
    state: RankProof | SpectrumProof = run.state
    assert state.looked is not None
    value, weights = state.value, state.weights
    bound = state.bound if state.bound is not None and math.isfinite(state.bound) else None
    bound = None if without_dual(concrete) else bound
    stationarity, runs = state.stationarity, [run]
    best = state.high if isinstance(state, RankProof) else None
    if best is not None and (duals is not None or not math.isfinite(value)):
        there = np.append(w, best)  # at the best thresholds the mean is the risk
        cuts, rounds = certify_concrete(lifted(concrete), data, there, duals, engine)
        runs.append(rounds)
        if not math.isfinite(value):
            value, weights = cuts.value, cuts.weights
        if cuts.bound is not None and (bound is None or cuts.bound > bound):
            bound, stationarity = cuts.bound, cuts.stationarity
    assert weights is not None
    loss, feasibility = state.looked.loss, outside(concrete, concrete.predictor.split(w)[0])
    more = {"feasibility": feasibility, "stationarity": stationarity}
    return certificate(value, bound, weights, loss, loss, **more), runs
