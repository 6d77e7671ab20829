"""What sums over the clients can be, where the answers that were added up are masked: the claims of
a sum, of which some client sent a wrong part, and nobody can say which one.

With weights q >= 0 that add up to T, and F_s the mean losses of the clients' rows,

    F_q = sum_s q_s F_s    is convex,    0 <= F_q(w) <= T max L,    F_q(0) = T L(0),
    ||F_q'(w)|| <= T max |L'| r,    0 <= F_q'',    trace F_q'' <= T max L'' r^2,

where r^2 is the sum of the squares of the longest rows. Where the clients tell F_s(w) in the clear,
the sum is sum_s q_s F_s(w), and no tangent of any F_q lies above such sums elsewhere.

Sums travel as multiples of a step. ``slack`` is what its rounding adds at most: numbers that are
not far larger are held to their signs only.
"""

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.problem import plausible
from bonafed.problem.claims import (
    RELATIVE,
    AllRows,
    Claim,
    Features,
    Known,
    Number,
    Tangent,
    Told,
    Whole,
)
from bonafed.problem.conic_form import sample_radii
from bonafed.problem.lower_bounds import Surveyed
from bonafed.problem.problem import Problem
from bonafed.problem.rank_cuts import Ranged, Sliced, Tallied
from bonafed.problem.secure_sums import SurveyedSums, SurveySums, least_multiplier
from bonafed.rounds import record

FINE = 1e10  # times what rounding adds: numbers as large are held to all of the above
WEIGHTINGS = 12  # of which values and slopes are remembered
SUM = "weighted mean loss of all clients"


class SizesOfAll(NamedTuple):
    """The largest lengths of rows, each as the root of a sum of squares."""

    seen: Surveyed

    def held(self, told: Told) -> tuple[Told, str]:
        words = "" if told.seen is None else plausible.differs(told.seen, self.seen)
        return replace(told, seen=self.seen), words


class EachLoss(NamedTuple):
    """The mean losses (N,) of the clients at a model."""

    at: Array  # (D,)
    value: Array  # (N,)
    rounding: float

    def held(self, told: Told) -> tuple[Told, str]:
        key = ("each", len(self.at))
        told, words = Tangent(key, "mean loss", self.at, self.value, None, self.rounding).held(told)
        for of in [of for of, _ in told.touched if of[:2] == ("sum", len(self.at))]:
            mean = np.array([np.array(of[2:]) @ self.value])
            told, odd = Tangent(of, SUM, self.at, mean, None, self.rounding).held(told)
            words = words or odd
        return told, words


class WeightedLoss(NamedTuple):
    """The weighted mean loss of all clients and its slope at a model."""

    weights: Array  # (N,)
    at: Array  # (D,)
    value: float
    slope: Array  # (D,)

    def held(self, told: Told) -> tuple[Told, str]:
        key = ("sum", len(self.at), *self.weights.tolist())
        each = told.known(("each", len(self.at)))
        older = [of for of, _ in told.touched if of[0] == "sum" and of != key][: 1 - WEIGHTINGS]
        told = replace(told, touched=tuple(pair for pair in told.touched if pair[0] not in older))
        if each is not None and told.known(key) is None:
            for at, value, rounding in zip(each.at, each.value, each.rounding, strict=True):
                mean = np.array([self.weights @ value])
                told, _ = Tangent(key, SUM, at, mean, None, float(rounding)).held(told)
        return Tangent(key, SUM, self.at, np.array([self.value]), self.slope[None]).held(told)


def of_survey_sums(
    problem: Problem, ask: SurveySums, up: SurveyedSums, slack: float
) -> Iterator[Claim]:
    """Those of the sizes of all clients' rows."""
    total, room = float(np.sum(ask.prior)), slack / RELATIVE
    shares = np.array([up.plus, up.minus])
    yield Number("a share of all rows", shares, 0.0, total, room)
    signs = problem.loss.targets == "sign"
    yield Number("shares of all rows", shares.sum(), total * signs, total, 2 * room)
    yield Number("a sum of squared lengths", np.array([up.reach, up.target]), 0.0, scale=room)
    yield Features(np.array([up.square.shape[-1]]))
    yield Number("a mean square", up.square, 0.0, scale=room)
    most, terms = total * float(up.reach), up.square.size + total
    yield Number("a sum of mean squares", up.square.sum(), 0.0, most, terms * room)
    plus, minus, square = up.plus / total, up.minus / total, up.square / total
    yield SizesOfAll(Surveyed(plus, minus, np.sqrt(up.reach), np.sqrt(up.target), square))


def own_losses(problem: Problem, w: Array, risks: Array) -> tuple[Array, float]:
    """The clients' mean losses (N,) by their risks, which their Wasserstein balls add to, and what
    rounding leaves of them, relative.
    """
    losses = risks - sample_radii(problem, len(risks)) * least_multiplier(problem, w)
    size = float(np.abs(risks).max()) / max(float(np.abs(losses).max()), 1e-300)
    return losses, 100 * plausible.ROUNDING * size


def of_each_risk(problem: Problem, w: Array, risks: Array) -> Iterator[Claim]:
    """Those of the clients' risks (N,), which they tell in the clear."""
    losses, rounding = own_losses(problem, w, risks)
    yield Number("a mean loss", losses, 0.0, scale=np.abs(risks))
    yield EachLoss(w, losses, rounding)


def of_weighted_sum(
    problem: Problem,
    w: Array,
    weights: Array,
    value: Array,
    slope: Array,
    curvature: Array | None,
    slack: float,
) -> Iterator[Claim]:
    """Those of sum_s weights_s F_s at a model, its slope (D,) and its second derivative (D, D)."""
    total = float(weights.sum())
    mean, room = float(value) / total, slack / total / RELATIVE
    yield Number(f"a {SUM}", mean, 0.0, scale=room)
    if not w.any() and (zero := plausible.zero_loss(problem)) is not None:
        yield Number(f"a {SUM} at the model 0", mean, zero, zero, room)
    least = min(mean * total, float(np.abs(slope).max(initial=0.0)))
    if least <= FINE * slack * (1 + float(np.abs(w).sum())):
        return
    yield plausible.Reached(problem, w, mean, slope[None] / total)
    if plausible.is_convex(problem):
        yield WeightedLoss(weights / total, w, mean, slope / total)
        if curvature is not None:
            yield plausible.Bent(problem, w, curvature / total, np.inf)


def of_combined_sums(
    problem: Problem, w: Array, weights: Array, risks: Array, up: Any, slack: float
) -> Iterator[Claim]:
    """Those of a minorant of sum_s weights_s F_s, from cuts that were combined, where the clients
    have these risks.
    """
    losses, rounding = own_losses(problem, w, risks)
    most, there = float(weights @ losses), float(up.constant + up.gradient @ w)
    size = abs(float(up.constant)) + float(np.abs(up.gradient) @ np.abs(w)) + abs(most)
    room = slack * (1 + float(np.abs(w).sum())) / RELATIVE + size * (1 + rounding / RELATIVE)
    yield Number("a number 'spread'", up.spread, 0.0, scale=slack / RELATIVE)
    yield Number("a number 'size'", up.size, 0.0, scale=slack / RELATIVE)
    yield Number("a bound on all mean losses", there, -np.inf, most, room)


# What no rows can answer where the rows of all clients are ranked together: the claims of counts
# and sums over a client's rows.
#
# With n rows of losses l_i >= 0: n min l <= sum l <= n max l, the sum of losses is convex in the
# model, and the number of rows above a threshold is whole, at most n and falls with the threshold.
# A cut by row weights f is at another model v at most sum_i f_(i) l_(i)(v), both in ascending order
# (the rearrangement inequality), of which tables of f and of the losses at v tell upper ends.

TABLES = 24  # tables and cuts that are remembered


class Counts(NamedTuple):
    """How many rows have a loss above each threshold."""

    edges: Array  # (..., M)
    counts: Array  # (..., M)

    def held(self, told: Told) -> tuple[Told, str]:
        if self.counts.shape != self.edges.shape:
            words = f"{self.counts.size} numbers of rows, where {self.edges.size} were asked for"
            return told, words
        order = np.argsort(self.edges, axis=-1, kind="stable")
        falls = np.diff(np.take_along_axis(self.counts, order, -1), axis=-1) <= 0
        if not falls.all():
            return told, "more rows above a larger threshold"
        most = np.inf if told.rows is None else told.rows
        whole = Whole("a number of rows", self.counts), Number("a number", self.counts, 0.0, most)
        return told, next(filter(None, (claim.held(told)[1] for claim in whole)), "")


@record
class Binned:
    """How many rows have losses between thresholds at a model; ``high`` is the largest loss."""

    w: Array  # (D,), zeros where it is empty
    edges: Array  # (M,), ascending
    above: Array  # (M,) rows above each
    high: float
    rows: Array = field(default_factory=lambda: np.zeros(0))  # (M + 1,) of every bin

    @property
    def ends(self) -> Array:
        """(M + 1,) what no loss of a bin is above."""
        return np.minimum(np.append(self.edges, self.high), self.high)

    def held(self, told: Told) -> tuple[Told, str]:
        if told.rows is None or (self.edges[1:] < self.edges[:-1]).any():
            return told, ""
        rows = -np.diff(np.concatenate([[told.rows], self.above, [0.0]]))
        told = replace(told, ranked=(*told.ranked, replace(self, rows=rows))[-TABLES:])
        cuts = [cut for cut in told.ranked if isinstance(cut, RankCut)]
        return told, next(filter(None, (cut.above(told.ranked[-1]) for cut in cuts)), "")


@record
class RankCut:
    """A cut of the rows' losses at a model by weights that are read off tables."""

    w: Array  # (D,)
    value: float
    slope: Array  # (D,)
    tables: tuple[tuple[Array, Array], ...]  # points (D,) and the weights (M + 1,) of their bins
    weighed: tuple[tuple[Array, Array], ...] = ()  # of every table weights, and rows that have them

    def held(self, told: Told) -> tuple[Told, str]:
        known = [table for table in told.ranked if isinstance(table, Binned)]
        weighed = []
        for point, weights in self.tables:
            at = [table for table in known if np.array_equal(table.w, point)]
            fits = [table for table in at if len(table.rows) <= len(weights)]
            if not fits:  # a table that nobody remembers
                return told, ""
            weighed.append((weights[: len(fits[-1].rows)], fits[-1].rows))
        cut = replace(self, tables=(), weighed=tuple(weighed))
        words = next(filter(None, (cut.above(table) for table in known)), "")
        return replace(told, ranked=(*told.ranked, cut)[-TABLES:]), words

    def above(self, table: Binned) -> str:
        """Whether the cut is above all that its weights can make of the losses in a table."""
        most = sum(_largest(*one, table.ends, table.rows) for one in self.weighed)
        step = table.w - self.w
        here, size = self.value + float(self.slope @ step), float(np.abs(self.slope) @ np.abs(step))
        if here - most <= RELATIVE * (abs(self.value) + size + most):
            return ""
        return f"a cut of {here:.6g} of what its own counts of rows show to be at most {most:.6g}"


def _largest(weights: Array, of: Array, ends: Array, rows: Array) -> float:
    """The largest sum of weights times numbers, each for so many rows."""
    one, other = np.argsort(weights, kind="stable"), np.argsort(ends, kind="stable")
    first, second = np.cumsum(of[one]), np.cumsum(rows[other])
    at = np.unique(np.concatenate([[0.0], first, second]))
    at = at[at <= min(first[-1], second[-1])]
    middle = (at[1:] + at[:-1]) / 2
    heavy = weights[one][np.searchsorted(first, middle)]
    large = ends[other][np.searchsorted(second, middle)]
    return float((heavy * large) @ np.diff(at))


def of_losses(
    problem: Problem, w: Array, rows: float, total: Any, largest: Any, smallest: Any = None
) -> Iterator[Claim]:
    """Those of the losses of so many rows at a model, zeros where it is empty."""
    total, largest = float(np.sum(total)), float(np.sum(largest))
    least = 0.0 if smallest is None else -float(np.sum(smallest))
    zero = plausible.zero_loss(problem) if not np.any(w) else None
    if smallest is not None:
        yield Number("a smallest loss", least, zero or 0.0, largest if zero is None else zero)
    yield Number("a largest loss", largest, zero or 0.0, np.inf if zero is None else zero)
    yield Number("a sum of losses", total, rows * least, rows * largest)
    if len(w):
        yield from of_sum(problem, w, total, None, rows)


def of_sum(
    problem: Problem, w: Array, total: Any, slope: Array | None, rows: float | None = None
) -> Iterator[Claim]:
    """Those of the sum of the losses of all rows at a model, and of its slope."""
    key, total = ("sum", len(w)), np.reshape(np.asarray(total, float), 1)
    yield Number("a sum of losses", total)
    if rows is not None and (zero := plausible.zero_loss(problem)) is not None:
        yield Known(key, len(w), rows * zero)
    yield Tangent(key, "sum of losses", w, total, None if slope is None else slope.reshape(1, -1))


def of_range(problem: Problem, w: Array, up: Any) -> Iterator[Claim]:
    """Those of the range of losses."""
    zero = plausible.zero_loss(problem) if not np.any(w) else None
    low, high = -float(up.smallest[0]), float(up.largest[0])
    yield Number("a smallest loss", low, zero or 0.0, high if zero is None else zero)
    if zero is not None:
        yield Number("a largest loss", high, zero, zero)


def ranks(problem: Problem) -> plausible.Claims:
    """The claims of the uploads of cuts by rank."""

    def ranged(who: int, ask: Any, up: Ranged) -> Iterator[Claim]:
        yield AllRows(float(up.rows[0]))
        yield from of_range(problem, ask.w, up)
        yield Whole("a number of coefficients", up.width)

    def tallied(who: int, ask: Any, up: Tallied) -> Iterator[Claim]:
        yield from of_range(problem, ask.w, up)
        yield Counts(ask.edges, up.above[0])
        beyond = ask.edges >= float(up.largest[0])
        yield Number("a number of rows above the largest loss", up.above[0][beyond], 0.0, 0.0)
        yield Binned(ask.w, ask.edges, up.above[0], float(up.largest[0]))

    def sliced(who: int, ask: Any, up: Sliced) -> Iterator[Claim]:
        yield Number("a weighted sum of losses", up.value)
        yield RankCut(ask.w, float(up.value[0]), up.gradient[0], ((ask.w, ask.weights),))
        yield from plausible.of_lagrangian(problem, ask.w, up.hessian)
        yield from plausible.of_lagrangian(problem, ask.w, up.spread)

    return {Ranged: ranged, Tallied: tallied, Sliced: sliced}
