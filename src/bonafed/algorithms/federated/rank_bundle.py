"""A second-order bundle for any convex risk by rank over the rows of all clients together.

A step takes two rounds: one counts rows above thresholds, which gives the ranks, the other cuts the
risk by the row weights of these ranks (``problem/rank_cuts.py``). No row's loss or weight leaves
its client. Where bins hold rows of different weights, a round more counts again within them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.arrays import Array
from bonafed.codec import Counter, Extended, Form
from bonafed.problem import rank_cuts
from bonafed.problem.plausible import Claims
from bonafed.problem.problem import Problem
from bonafed.problem.rank_claims import ranks
from bonafed.rounds import Done, Round, Stop, record

GOOD = 0.1  # of what the model predicts, that a step has to reach
WITHIN = 0.5  # of the tolerance at which a run ends
BLUR = 0.3  # of the tolerance, that ranks within bins may change at a trial
BLURRED = 0.1  # or, of the decrease that the model predicts
COUNTS = 3  # at a trial, at most
PATIENCE = 12  # steps without a smaller gap


@record
class RankBundleState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]
    rows: Annotated[float, Form()] = 0.0  # of all clients
    counted: rank_cuts.Slice | None = None  # the table at the trial
    members: Annotated[Array, Form("G + 1")] | None = None  # rows of every group
    excess: float = 0.0  # of the risk over its cut there, at most
    trial: rank_cuts.Tally | None = None
    counts: Counter = 0  # at the trial
    best: rank_cuts.Best | None = None
    cuts: rank_cuts.RankCuts | None = None
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
class RankBundle(base.Method):
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

    tol: float = 1e-9
    atol: float = 0.0
    max_rounds: int = 200
    start: Array | None = None
    problem: Problem | None = None
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        over_rows=needs.CONVEX_RANKS,
        predictor=needs.AFFINE,
        loss=needs.SMOOTH_SCALAR,
        regulariser=needs.SMOOTH_REGULARISER,
        rows=needs.EQUAL_ROWS,
    )

    def __post_init__(self) -> None:
        base.check_end(self, "tol", "atol")

    @property
    def on_client(self) -> dict:
        return {ask: self._at_client(answer) for ask, answer in rank_cuts.CLIENT.items()}

    @property
    def on_server(self) -> dict:
        return {
            rank_cuts.Ranged: self.open,
            rank_cuts.Tallied: self.cut,
            rank_cuts.Sliced: self.improve,
        }

    @property
    def claims(self) -> Claims:
        return ranks(self._problem)

    def server_start(self, n_clients: int) -> tuple[RankBundleState, Round]:
        w = base.start_or_empty(self.start)
        return RankBundleState(w), Round(rank_cuts.Range(w))

    def open(
        self, state: RankBundleState, ids: Sequence[int], up: rank_cuts.Ranged
    ) -> tuple[RankBundleState, Round | Done]:
        """Count the rows at the first model."""
        w = state.w if len(state.w) else np.zeros(int(up.width))
        low, high, n = -float(up.smallest), float(up.largest), int(up.rows)
        trial = rank_cuts.Tally(w, rank_cuts.spread_edges(low, high, None, n))
        state = replace(state, w=w, rows=float(n), trial=trial, rounds=1)
        return base.unless_capped(state, Round(trial), state.rounds, self.max_rounds)

    def cut(
        self, state: RankBundleState, ids: Sequence[int], up: rank_cuts.Tallied
    ) -> tuple[RankBundleState, Round | Done]:
        """Ask for the cut by the ranks at the trial."""
        trial = base.known(state.trial)
        counted = rank_cuts.table(self._sigma(state), trial.edges, up)
        state = replace(state, counts=state.counts + 1)
        sharp = max(BLUR * self.tol * counted.size, BLURRED * state.predicted)
        blurred = float(counted.excess.sum()) > sharp
        if blurred and state.counts < COUNTS:
            edges = rank_cuts.spread_edges(
                counted.low, counted.high, counted, int(state.rows), again=True
            )
            trial = replace(trial, edges=edges)
            state = replace(state, trial=trial, rounds=state.rounds + 1)
            return base.unless_capped(state, Round(trial), state.rounds, self.max_rounds)
        borders, rates, members = counted.groups
        ask = rank_cuts.Slice(trial.w, trial.edges, counted.weights, borders, rates)
        excess = float(counted.excess.sum())
        state = replace(state, counted=ask, members=members, excess=excess, rounds=state.rounds + 1)
        edges = rank_cuts.spread_edges(counted.low, counted.high, counted, int(state.rows))
        state = replace(state, trial=replace(trial, edges=edges), counts=0)
        return base.unless_capped(state, Round(ask), state.rounds, self.max_rounds)

    def improve(
        self, state: RankBundleState, ids: Sequence[int], up: rank_cuts.Sliced
    ) -> tuple[RankBundleState, Round | Done]:
        """Keep the cut, and try the minimiser of the model."""
        asked, problem = base.known(state.counted), self._problem
        ridge = rank_cuts.ridge_of(problem, state.w)
        objective = float(up.value) + state.excess + problem.penalty(asked.w)
        state = replace(state, rounds=state.rounds + 1, steps=state.steps + 1)
        if not (math.isfinite(objective) and np.isfinite(up.hessian).all()):
            return state, Done(Stop.OPTIMAL if self._progress(state).within() else Stop.STALLED)
        good = state.best is None or state.value - objective >= GOOD * state.predicted
        better = objective < state.value
        if better:
            best = rank_cuts.as_best(asked, base.known(state.members), up, objective)
            state = replace(state, best=best, w=asked.w, value=objective)
        best, cuts = base.known(state.best), rank_cuts.with_cut(state.cuts, asked, up)
        share = state.share if good else rank_cuts.SHARPER * state.share
        penalty = problem.penalty(best.w)
        bound = rank_cuts.mixed(best, cuts, ridge, penalty, 0.0).bound
        gap = state.value - bound
        state = replace(
            state,
            cuts=cuts,
            share=share,
            bound=bound,
            failures=0 if better else state.failures + 1,
            least=min(gap, state.least),
            since=0 if gap < 0.9 * state.least else state.since + 1,
        )
        if (stop := self._progress(state).stop) is not None:
            return state, Done(stop)
        step = rank_cuts.mixed(best, cuts, ridge, penalty, share)
        trial = replace(base.known(state.trial), w=best.w + step.step)
        state = replace(state, trial=trial, predicted=state.value - step.bound)
        return base.unless_capped(state, Round(trial), state.rounds, self.max_rounds)

    def _progress(self, state: RankBundleState) -> base.Progress:
        tols, since = (self.tol, self.atol), (state.since, PATIENCE + 1)
        return base.Progress(state.value, state.bound, *tols, 0, math.inf, *since, WITHIN)

    def _sigma(self, state: RankBundleState) -> Array:
        return self._problem.over_rows.rank_weights(int(state.rows))

    def report(self, state: RankBundleState) -> dict:
        """``value``: the objective of the best model, or a little above; ``residual``: by how much
        the bundle's model is below it, which proves nothing on the way.
        """
        return {"value": state.value, "residual": state.value - state.bound}

    def answer(
        self, state: RankBundleState, concluded: base.Concluded | None = None
    ) -> base.Answer:
        """The best model; its certificate needs nothing else."""
        return base.Answer(state.w)
