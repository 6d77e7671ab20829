"""Cuts of any convex risk by rank over the rows of all clients: tables of ranks, and a bundle.

    R(l) = max over row weights f in the permutahedron of sigma of  sum_i f_i l_i

Rows are counted above thresholds. The rows of one bin get the mean of sigma over the bin's ranks:
these weights are in the permutahedron, whatever the bins, and with at most one row a bin they are
those by rank. So F(v) >= sum_i f_i l_i(v) + h(v) for every model v, and a table of thresholds and
weights lets every client compute its part of that sum, its gradient and its Hessian.

    L = sum_g rate_g ( sum_{i in g} l_i' l_i'^T - (sum l_i')(sum l_i')^T / n_g )

over some ten groups g of neighbouring ranks, rate = d sigma / d l, is the curvature that changes of
the ranks add to the Hessian of the cut, as if there were a row at every loss. Newton steps with
both come as near to the optimum as single swaps of ranks matter; then L is left out, and mixtures
of the cuts resolve these.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.codec import Form
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import Rows
from bonafed.problem.regularisers import regulariser_parts
from bonafed.rounds import Max, Sum, record
from bonafed.solvers.rank.cut_weights import cut_weights

EDGES = 8192, 16384  # thresholds of a table: at least, and at most
GROUPS = 16  # of neighbouring ranks
BEYOND = 2.0 ** np.arange(-6, 8)  # thresholds outside of the last range, in units of its length
NEAR = 0.01  # of the objective that the second-order part of a cut may be, for it to be carried on
SHARPER = 0.1  # of L that stays after a step that disappoints


@record
class Range:
    """Ask for the range of the losses at a first model, zeros where ``w`` is empty."""

    w: Annotated[Array, Form("D")]


@record
class Ranged:
    """The number of rows, and the range of their losses."""

    rows: Sum  # (1,)
    largest: Max  # (1,)
    smallest: Max  # (1,) minus the smallest loss
    width: Max  # (1,) coefficients


@record
class Tally:
    """Ask how many rows have a loss above each of these thresholds."""

    w: Annotated[Array, Form("D")]
    edges: Annotated[Array, Form("L")]


@record
class Tallied:
    """The numbers of rows, and the range of their losses."""

    above: Sum  # (1, L)
    largest: Max  # (1,)
    smallest: Max  # (1,) minus the smallest loss


@record
class Slice:
    """Ask for a cut by row weights that are read off a table of losses."""

    w: Annotated[Array, Form("D")]
    edges: Annotated[Array, Form("M")]
    weights: Annotated[Array, Form("M + 1")]
    borders: Annotated[Array, Form("G")]  # between groups of ranks
    rates: Annotated[Array, Form("G + 1")]


@record
class Sliced:
    """Sums over all rows."""

    value: Sum  # (1,) f_i l_i
    gradient: Sum  # (1, D)
    hessian: Sum  # (1, D, D)
    spread: Sum  # (1, D, D) rate_i times the outer product of l_i' with itself
    middles: Sum  # (1, G + 1, D) l_i' of every group


def ranged(problem: Problem, ask: Range, data: Block) -> Ranged:
    """The number of rows, and the range of their losses."""
    w = ask.w if len(ask.w) else np.zeros(problem.predictor.dimension(data.n_features))
    loss = Rows(problem, w, data).loss
    ends = len(loss), loss.max(), -loss.min(), len(w)
    return Ranged(*(np.array([float(x)]) for x in ends))


def tallied(problem: Problem, ask: Tally, data: Block) -> Tallied:
    """The numbers of rows above thresholds."""
    ordered = np.sort(Rows(problem, ask.w, data).loss)
    above = len(ordered) - np.searchsorted(ordered, ask.edges, side="right")
    return Tallied(above[None].astype(float), ordered[-1:], -ordered[:1])


def sliced(problem: Problem, ask: Slice, data: Block) -> Sliced:
    """The cut of the rows."""
    rows = Rows(problem, ask.w, data)
    weights = ask.weights[np.searchsorted(ask.edges, rows.loss)]
    group = np.searchsorted(ask.borders, rows.loss)
    none, members = np.zeros(len(weights)), np.eye(len(ask.rates))[group]
    return Sliced(
        value=(rows.loss @ weights)[None],
        gradient=rows.gradient(weights),
        hessian=rows.hessian(none, weights),
        spread=rows.hessian(ask.rates[group], none),
        middles=rows.gradients(members),
    )


CLIENT = {Range: ranged, Tally: tallied, Slice: sliced}


class Table(NamedTuple):
    """Bins between thresholds, with the numbers of rows and their weights."""

    edges: Array  # (M,)
    ranks: Array  # (M + 2,) rows below the end of every bin, from 0 to n
    weights: Array  # (M + 1,)
    low: float  # the smallest loss
    high: float  # and the largest
    excess: Array  # (M + 1,) the most that the rows of a bin weigh more when ranked by themselves

    @property
    def size(self) -> float:
        """The risk of the losses, as far as the table tells."""
        ends = np.clip(np.concatenate([[self.low], self.edges, [self.high]]), self.low, self.high)
        return float(self.weights * np.diff(self.ranks) @ (ends[1:] + ends[:-1]) / 2)

    @property
    def groups(self) -> tuple[Array, Array, Array]:
        """The borders (G,) of groups of neighbouring ranks, their rates and numbers of rows
        (G + 1,).
        """
        n = self.ranks[-1]
        at = np.unique(np.searchsorted(self.ranks[1:-1], np.arange(1, GROUPS) * n / GROUPS))
        at = at[at < len(self.edges)]
        rates, rows = np.zeros(len(at) + 1), np.zeros(len(at) + 1)
        ends = zip(np.append(0, at + 1), np.append(at, len(self.edges)), strict=True)
        for g, (first, last) in enumerate(ends):
            inside = first + np.flatnonzero(np.diff(self.ranks[first : last + 2]) > 0)
            if len(inside):
                rows[g] = self.ranks[last + 1] - self.ranks[first]
            if len(inside) > 1:
                low, high = inside[0], inside[-1]
                reach = self.edges[high - 1] - self.edges[low]
                rise = self.weights[high] - self.weights[low]
                rates[g] = rise / reach if reach > 0 else 0.0
        return self.edges[at], rates, rows


def table(sigma: Array, edges: Array, up: Tallied) -> Table:
    """The table of counts above the edges, for rank weights sigma (n,).

    sum sigma_i l_i over the c rows of a bin is at most the mean of sigma times sum l_i, and a
    quarter of c times the range of sigma times that of the losses (Grüss' inequality).
    """
    n, above = len(sigma), up.above
    low, high = -float(up.smallest), float(up.largest)
    ranks = np.concatenate([[0.0], n - above, [float(n)]]).astype(int)
    total = np.concatenate([[0.0], np.cumsum(sigma)])
    rows = np.diff(ranks)
    ends = np.clip(np.concatenate([[low], edges, [high]]), low, high)
    first, last = np.minimum(ranks[:-1], n - 1), np.maximum(ranks[1:] - 1, 0)
    excess = np.where(rows > 1, rows * (sigma[last] - sigma[first]) * np.diff(ends) / 4, 0.0)
    return Table(edges, ranks, np.diff(total[ranks]) / np.maximum(rows, 1), low, high, excess)


def spread_edges(low: float, high: float, last: Table | None, n: int, again: bool = False) -> Array:
    """Thresholds for a next count: half of them as the losses of the last one lay; ``again`` at the
    same model, the bins are halved that are not exact.
    """
    many = min(max(4 * n, EDGES[0]), EDGES[1]) // 2
    reach = max(high - low, 1e-12 * max(abs(high), 1e-300))
    if last is None:
        edges: list[Any] = [low + reach * np.linspace(0.0, 1.0, 2 * many)]
    else:
        ends = np.clip(np.concatenate([[low], last.edges, [high]]), low, high)
        filled = np.flatnonzero(np.diff(last.ranks) > 0)
        borders = np.unique(np.concatenate([filled - 1, filled]))
        edges = [last.edges[borders[(borders >= 0) & (borders < len(last.edges))]]]
    if last is not None and again:
        size = np.sqrt(last.excess)
        pieces = (2 * many * size / size.sum()).astype(int)
        bins = np.flatnonzero(pieces)
        edges += [np.linspace(ends[b], ends[b + 1], pieces[b] + 2)[1:-1] for b in bins]
        return np.unique(np.concatenate(edges))
    if last is not None:
        middle = (ends[filled] + ends[filled + 1]) / 2
        rank = (last.ranks[filled] + last.ranks[filled + 1]) / 2
        edges.append(np.interp(np.linspace(0, n, many), rank, middle))
    edges += [low - reach * BEYOND, high + reach * BEYOND]
    return np.unique(np.concatenate(edges))


@record
class RankCuts:
    """The cuts of a run, at their models."""

    w: Annotated[Array, Form("J, D")]
    value: Annotated[Array, Form("J")]
    gradient: Annotated[Array, Form("J, D")]


@record
class Best:
    """The best model, and curvatures there."""

    w: Annotated[Array, Form("D")]
    objective: float
    value: float  # of its cut
    hessian: Annotated[Array, Form("D, D")]  # of its cut
    ranks: Annotated[Array, Form("D, D")]  # L


def with_cut(cuts: RankCuts | None, asked: Slice, up: Sliced) -> RankCuts:
    """The cuts and one more."""
    if cuts is None:
        return RankCuts(asked.w[None], np.array([float(up.value)]), up.gradient[None])
    w, gradient = np.vstack([cuts.w, asked.w]), np.vstack([cuts.gradient, up.gradient])
    return RankCuts(w, np.append(cuts.value, up.value), gradient)


def as_best(asked: Slice, members: Array, up: Sliced, objective: float) -> Best:
    """The place of a cut, whose groups have ``members`` rows."""
    scale = asked.rates / np.maximum(members, 1.0)
    ranks = up.spread - (up.middles.T * scale) @ up.middles
    return Best(asked.w, objective, float(up.value), up.hessian, ranks)


class Mixed(NamedTuple):
    """The minimiser of the model, a mixture of cuts with h and curvature, and its bound."""

    step: Array
    bound: float
    mixture: Array  # (J,)


def mixed(best: Best, cuts: RankCuts, ridge: Array, penalty: float, share: float) -> Mixed:
    """Minimise the largest cut + h + curvature from the best model; ``share`` of L counts."""
    away = best.w - cuts.w
    turned = away @ best.hessian
    square = (away * turned).sum(1)
    near = square <= NEAR * max(best.objective, 1e-300)
    value = cuts.value + (cuts.gradient * away).sum(1) + np.where(near, square / 2, 0.0)
    gradient = cuts.gradient + turned * near[:, None] + ridge * best.w
    # no cut is above the risk: one that is was carried on too far
    kept = value <= best.value * (1 + 1e-13)
    value, gradient = value[kept], gradient[kept]
    matrix = best.hessian + share * best.ranks + np.diag(ridge)
    size = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / size / size[:, None] + 1e-14 * np.eye(len(size))
    steps = np.linalg.solve(scaled, (gradient / size).T).T / size  # (J, D)
    Q = gradient @ steps.T
    x = cut_weights((Q + Q.T) / 2, value.max() - value)
    mixture = np.zeros(len(kept))
    mixture[kept] = x
    bound = float(x @ value) + penalty - float(x @ Q @ x) / 2
    return Mixed(-x @ steps, bound, mixture)


def ridge_of(problem: Problem, w: Array) -> Array:
    """The second derivatives of the regulariser, (D,)."""
    coefficients = problem.predictor.split(w)[0]
    ridge = np.zeros_like(w)
    ridge[: len(coefficients)] = regulariser_parts(problem.regulariser)[1]
    return ridge
