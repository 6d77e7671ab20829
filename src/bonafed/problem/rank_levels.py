"""Risks by rank over the rows of all clients: as thresholds in the model, and by cuts.

Mixtures of superquantiles have one threshold each,

    R(l) = a_0 mean(l) + sum_k a_k min over eta_k of  eta_k + sum_i max(l_i - eta_k, 0) / (n t_k)

over the n losses of all rows, with a >= 0 of sum one and tails 0 < t_1 < ... < t_K < 1: everything
that such a risk needs of the rows is a sum over them. It is dual to weights 0 <= q_ik <= cap_k =
a_k / (n t_k) with sum_i q_ik = a_k, of which row i has a_0 / n + sum_k q_ik.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import xlogy

from bonafed.arrays import Array, Block, dense, shape_of
from bonafed.codec import Form
from bonafed.names import NAMED, load
from bonafed.problem.client_means import row_shares
from bonafed.problem.constraints.constraint import Point, Stack
from bonafed.problem.losses import Loss, has_log_link, value_and_gradient
from bonafed.problem.predictors.affine import Linear, Softmax, pullback
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import Maximum, Spectral, TopK
from bonafed.problem.risks.weight_sets import Mean, Superquantile
from bonafed.rounds import Max, Sum, record
from bonafed.solvers.rank import proxes
from bonafed.solvers.rank.cut_weights import cut_weights
from bonafed.solvers.rank.threshold_barrier import central

STEPS = Superquantile | TopK | Maximum  # of one level, whatever the number of rows
MOST = 24  # levels of a Spectral


def few_levels(risk: object) -> bool:
    """Whether a risk is a mixture of few superquantiles."""
    if isinstance(risk, Spectral):
        return risk.convex and int((np.diff(risk.sigma) > 0).sum()) <= MOST
    return isinstance(risk, STEPS)


class Levels(NamedTuple):
    """The levels of a risk over n rows."""

    shares: Array  # (K,) a_k
    tails: Array  # (K,) t_k
    mean: float  # a_0

    def caps(self, n: int) -> Array:
        """(K,) the most that one row weighs at every level."""
        return self.shares / (n * self.tails)


def levels(risk: object, n: int) -> Levels:
    """The levels of a risk over n rows; ``TypeError`` for a risk of another kind."""
    if isinstance(risk, Superquantile):
        tail = max(float(risk.tail), 1 / n)
    elif isinstance(risk, TopK | Maximum):
        tail = (risk.k if isinstance(risk, TopK) else 1) / n
    elif isinstance(risk, Spectral) and few_levels(risk):
        rises = np.flatnonzero(np.diff(risk.sigma) > 0)
        rows = n - 1 - rises  # of the tail of every level
        return Levels(np.diff(risk.sigma)[rises] * rows, rows / n, float(risk.sigma[0] * n))
    else:
        raise TypeError(f"the levels of {risk!r} are not known.")
    if tail >= 1:
        return Levels(np.zeros(0), np.zeros(0), 1.0)
    return Levels(np.ones(1), np.array([tail]), 0.0)


class Rows:
    """The losses of all rows of a block at a model, one after another, and their derivatives.

    Attributes
    ----------
    loss, slope, curvature : (R,) of the R rows that are not padding
    share : (R,) or (1,) the weights of the rows in all sums
    """

    def __init__(self, problem: Problem, w: Array, block: Block) -> None:
        self._predictor = problem.predictor
        self._block, self._real = block, block.share > 0
        prediction, self._back = pullback(problem.predictor, w, block)
        loss = problem.loss
        values = [f(prediction, block.y) for f in (loss.value, loss.gradient, loss.curvature)]
        self.loss, self.slope, self.curvature = (value[self._real] for value in values)
        self._w = w

        self.share = np.ones(1)  # what every row counts

    def spread(self, values: Array) -> Array:
        """Values (R,) in the block's shape (n, m), 0 on padding."""
        if values.size == self._real.size:
            return values.reshape(self._real.shape)
        out = np.zeros(self._real.shape)
        out[self._real] = values
        return out

    def kept(self, values: Array) -> Array:
        """The entries (R, K) of values (n, m', K), m' >= m, that belong to rows."""
        n, m, K = *self._real.shape, values.shape[2]
        mine = values[:, :m]
        return mine.reshape(n * m, K) if len(self.loss) == n * m else mine[self._real]

    def keep(self, values: Array, longest: int) -> Array:
        """The inverse: (n, longest, K) of values (R, K)."""
        n, m = self._real.shape
        if len(values) == n * longest:
            return values.reshape(n, longest, values.shape[1])
        out = np.zeros((n, longest, values.shape[1]))
        out[:, :m][self._real] = values
        return out

    def gradient(self, weights: Array) -> Array:
        """(1, D) the sum of weights_i times the gradient of row i's loss."""
        return self._back(self.spread(weights * self.slope)).sum(0, keepdims=True)

    def gradients(self, weights: Array) -> Array:
        """(1, K, D) the same for weights (R, K), level by level."""
        X, model, K = self._block.X, self._predictor, weights.shape[1]
        if isinstance(model, Linear) and isinstance(X, np.ndarray):  # in one pass over the rows
            rows = X.reshape(-1, X.shape[-1])
            slopes = self.keep(weights * self.slope[:, None], X.shape[1]).reshape(len(rows), K)
            each = slopes.T @ rows
            each = np.column_stack([each, slopes.sum(0)]) if model.intercept else each
        else:
            each = np.array([self.gradient(one)[0] for one in weights.T])
        return each.reshape(1, K, len(self._w))

    def hessian(self, first: Array, second: Array) -> Array:
        """(1, D, D) the sum of first_i times the outer product of row i's gradient with itself, and
        of second_i times its Hessian.
        """
        rows = first * self.slope**2 + second * self.curvature
        return self._predictor.gram(self.spread(rows), self._block)[None]

    def along(self, step: Array) -> Array:
        """(R,) the change of every row's loss along a step in the model, to first order."""
        return self.slope * self._predictor.forward(step, self._block)[self._real]

    def by_client(self, values: Array) -> Array:
        """(n,) the sums of values (R,) over every client's rows."""
        return self.spread(values).sum(1)


# Losses that are maxima of linear pieces, as functions of t, minus the margin or the residual:
#
#     l(t) = offset + slope t + sum_k jump_k max(t - knot_k, 0)
#
# so their mean is that of losses with thresholds, at the knots. The barrier of
# ``solvers/rank/threshold_barrier.py`` makes them smooth, and the slopes of that smooth loss are
# slopes of pieces or between them.


class Kinks(NamedTuple):
    """A convex function of one number by its linear pieces, from left to right."""

    slopes: Array  # (K + 1,) ascending
    heights: Array  # (K + 1,) of the pieces at t = 0

    @property
    def jumps(self) -> Array:
        """(K,) of the slope at the knots."""
        return np.diff(self.slopes)

    @property
    def knots(self) -> Array:
        """(K,) where the pieces meet."""
        return -np.diff(self.heights) / self.jumps


def kinks_of(loss: Loss) -> Kinks:
    """The pieces of a loss that are somewhere the largest; ``ValueError`` where it has none."""
    if loss.pieces is None:
        raise ValueError(f"{type(loss).__name__} has no linear pieces.")
    kept: list[tuple[float, float]] = []
    sign = -1.0 if loss.targets == "sign" else 1.0
    for slope, height in sorted((sign * slope, height) for slope, height in loss.pieces):
        if kept and kept[-1][0] == slope:
            kept.pop()  # parallel and lower
        # a piece that is nowhere above both of its neighbours
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (slope - kept[-2][0]) < (
            height - kept[-2][1]
        ) * (kept[-1][0] - kept[-2][0]):
            kept.pop()
        kept.append((slope, height))
    return Kinks(*np.array(kept, float).T)


def has_kinks(problem: Problem) -> bool:
    """Whether risks are means of losses with linear pieces, of linear predictions."""
    plain = isinstance(problem.predictor, Linear) and isinstance(problem.over_samples, Mean)
    return plain and problem.over_rows is None and getattr(problem.loss, "pieces", None) is not None


def turned(loss: Loss, y: Array) -> Array:
    """The derivative of t in the prediction."""
    return -y if loss.targets == "sign" else np.ones_like(y)


@dataclass(frozen=True)
class Softened:
    """The slopes of a loss with linear pieces as a barrier smooths it."""

    loss: Loss
    barrier: float

    def gradient(self, prediction: Array, y: Array) -> Array:
        weight, _ = self._central(prediction, y)
        return turned(self.loss, y) * (kinks_of(self.loss).slopes[0] + weight)

    def curvature(self, prediction: Array, y: Array) -> Array:
        return self._central(prediction, y)[1]

    def _central(self, prediction: Array, y: Array) -> tuple[Array, Array]:
        of = kinks_of(self.loss)
        at = coordinate(self.loss, prediction, y)[..., None] - of.knots
        here = central(at, of.jumps, self.barrier)
        return here.weight.sum(-1), here.rate.sum(-1)


def coordinate(loss: Loss, prediction: Array, y: Array) -> Array:
    """t: minus the margin, or the residual."""
    return -y * prediction if loss.targets == "sign" else prediction - y


class Coordinates(Rows):
    """The numbers t of the rows in the place of their losses; they count as in the clients' means,
    times weights (n,) of the clients.
    """

    def __init__(self, problem: Problem, w: Array, block: Block, weights: Array) -> None:
        self._predictor, self._block, self._real = problem.predictor, block, block.share > 0
        prediction, self._back = pullback(problem.predictor, w, block)
        real, self._w = self._real, w
        self.loss = coordinate(problem.loss, prediction, block.y)[real]
        self.slope, self.curvature = turned(problem.loss, block.y)[real], np.zeros(1)
        self.share = (weights[:, None] * row_shares(problem, block))[real]


# The method of multipliers on the rows' weights at the thresholds: from centres a it takes
#
#     q_ik = argmax { q x - mu / (2 cap_k) (q - a_ik)^2 : 0 <= q <= cap_k },   x = l_i(w) - eta_k
#
# and these are the next centres. So models, thresholds and penalties of all its steps say what
# every row weighs at the end.


def multiplied(centre: Array, x: Array, caps: Array, penalty: float) -> Array:
    """The weights q of rows at distances x (R, K) above thresholds."""
    return np.clip(centre + caps * (x / penalty), 0.0, caps)


def followed(
    problem: Problem, block: Block, caps: Array, first: Array, path: tuple[Array, Array, Array]
) -> Array:
    """The weights (R, K) of the rows at the end of a path (models, thresholds, penalties) from
    ``first`` (K,), for the losses or, of a mean, the numbers t.
    """
    real, of = block.share > 0, problem.loss
    weight = np.broadcast_to(first, (int(real.sum()), len(first)))
    for w, thresholds, penalty in zip(*path, strict=True):
        prediction = problem.predictor.forward(w, block)
        height = of.value if problem.over_rows is not None else partial(coordinate, of)
        x = height(prediction, block.y)[real][:, None] - thresholds
        weight = multiplied(weight, x, caps, float(penalty))
    return weight


# Risks by rank over the rows of all clients as means of rows: thresholds join the model.
#
#     R(l) = min over eta of  mean over all rows i of  T(l_i, eta)
#     T(l, eta) = a_0 l + sum_k a_k (eta_k + max(l - eta_k, 0) / t_k)
#
# of the levels of ``rank_levels``. T is convex in (model, eta) where the loss is convex: so methods
# of cuts, and proofs by cuts, take the mean of T for the losses, a row having eta beside its
# prediction. At the best eta, quantiles of the losses, the mean is the risk.


@dataclass(frozen=True)
class WithThresholds:
    """A linear predictor, and K thresholds that every row has as further predictions; they are the
    last numbers of w.
    """

    model: Linear | Softmax
    count: int  # K
    convex: ClassVar[bool] = True

    @property
    def intercept(self) -> int:
        """How many last entries of w are free."""
        return self.model.intercept + self.count

    @property
    def outputs(self) -> tuple[float, float]:
        """Those of the model."""
        return self.model.outputs

    def dimension(self, n_features: int) -> int:
        return self.model.dimension(n_features) + self.count

    def split(self, w: Array) -> tuple[Array, Array]:
        """The coefficients, and what is free."""
        inner = self.model.split(w[..., : -self.count])[0]
        return inner, w[..., inner.shape[-1] :]

    def forward(self, w: Array, block: Block) -> Array:
        """(n, m, C + K), C = 1 for one prediction a row."""
        inner = self.model.forward(w[..., : -self.count], block)
        inner = inner if inner.ndim == 3 else inner[:, :, None]
        at = np.broadcast_to(w[..., None, -self.count :], (*inner.shape[:2], self.count))
        return np.concatenate([inner, at], 2)

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        inner, at = s[..., : -self.count], s[..., -self.count :]
        inner = inner if isinstance(self.model, Softmax) else inner[..., 0]
        gradient = self.model.backward(w[..., : -self.count], inner, block)
        return np.concatenate([gradient, at.sum(1)], 1)

    def units(self, sizes: Array) -> Array:
        inner = self.model.units(sizes)
        return np.concatenate([inner, np.ones((*inner.shape[:-1], self.count))], -1)


@dataclass(eq=False)
class AboveThresholds:
    """T of a loss, for predictions with thresholds behind them."""

    loss: Loss
    of: Levels
    smooth: ClassVar[bool] = False
    pieces: ClassVar[None] = None
    lipschitz: ClassVar[float] = float("inf")

    def __post_init__(self) -> None:
        self.targets, self.log_link = self.loss.targets, has_log_link(self.loss)
        self.floor = self.loss.floor  # which T is never below: t_k <= 1

    def value(self, prediction: Array, y: Array) -> Array:
        return self.value_and_gradient(prediction, y)[0]

    def gradient(self, prediction: Array, y: Array) -> Array:
        return self.value_and_gradient(prediction, y)[1]

    def value_and_gradient(self, prediction: Array, y: Array) -> tuple[Array, Array]:
        """(n, m) and (n, m, C + K)."""
        K, (shares, tails, mean) = len(self.of.shares), self.of
        inner, at = prediction[..., :-K], prediction[..., -K:]
        several = self.loss.targets == "class"
        loss, slope = value_and_gradient(self.loss, inner if several else inner[..., 0], y)
        over = loss[..., None] - at
        weights = np.where(over > 0, shares / tails, 0.0)
        value = mean * loss + at @ shares + (weights * over).sum(-1)
        slope = slope if several else slope[..., None]
        rate = (mean + weights.sum(-1))[..., None]
        return value, np.concatenate([rate * slope, shares - weights], -1)

    def curvature(self, prediction: Array, y: Array) -> Array:
        return np.zeros_like(prediction)


@dataclass(frozen=True, eq=False)
class OfModel(Stack):
    """Constraints of the model in front of the thresholds, which they do not depend on."""

    problem: Problem | None = None  # without thresholds
    count: int = 0  # K

    def seen(self, point: Point) -> Point:
        """The point without its thresholds."""
        assert self.problem is not None
        return Point(self.problem, point.w[..., : -self.count], point.block)

    def values(self, point: Point) -> Array:
        return super().values(self.seen(point))

    def jacobian(self, point: Point) -> Array:
        return self._with_zeros(super().jacobian(self.seen(point)))

    def split(self, point: Point, multipliers: Array) -> tuple[Array | None, Array, Array]:
        rows, gradients, constants = super().split(self.seen(point), multipliers)
        return rows, self._with_zeros(gradients), constants

    def magnitudes(self, point: Point, multipliers: Array) -> Array:
        return self._with_zeros(super().magnitudes(self.seen(point), multipliers))

    def _with_zeros(self, gradients: Array) -> Array:
        return np.concatenate([gradients, np.zeros((*gradients.shape[:-1], self.count))], -1)


def lifted(problem: Problem) -> Problem:
    """The concrete problem with thresholds in its model in the place of ``over_rows``; the problem
    itself where it has none.
    """
    if problem.over_rows is None:
        return problem
    of = levels_of(problem)
    if not len(of.shares):  # the mean of all rows
        return replace(problem, over_rows=None)
    count, stack = len(of.shares), problem.constraint
    stacks = problem.local_constraint, stack.coupled, stack.held
    local, coupled, held = (OfModel(each.parts, problem, count) for each in stacks)
    loss, predictor = AboveThresholds(problem.loss, of), WithThresholds(problem.predictor, count)
    limits = {"local_constraint": local, "constraint": replace(stack, coupled=coupled, held=held)}
    return replace(problem, loss=loss, predictor=predictor, over_rows=None, **limits)


def levels_of(problem: Problem) -> Levels:
    """The levels of a concrete problem, whose tails are those of its number of rows."""
    sigma = getattr(problem.over_rows, "sigma", None)
    return levels(problem.over_rows, 2**62 if sigma is None else len(sigma))


def highest(problem: Problem, value: float) -> float:
    """What no best threshold is above where the objective is at most ``value``: losses are >= 0,
    and so are thresholds; the k-th is below its superquantile, whose share is a_k.
    """
    return value / float(problem.loss.of.shares.min())  # type: ignore[attr-defined]


# Cuts of any convex risk by rank over the rows of all clients: tables of ranks, and a bundle.
#
#     R(l) = max over row weights f in the permutahedron of sigma of  sum_i f_i l_i
#
# Rows are counted above thresholds. The rows of one bin get the mean of sigma over the bin's ranks:
# these weights are in the permutahedron, whatever the bins, and with at most one row a bin they are
# those by rank. So F(v) >= sum_i f_i l_i(v) + h(v) for every model v, and a table of thresholds and
# weights lets every client compute its part of that sum, its gradient and its Hessian.
#
#     L = sum_g rate_g ( sum_{i in g} l_i' l_i'^T - (sum l_i')(sum l_i')^T / n_g )
#
# over some ten groups g of neighbouring ranks, rate = d sigma / d l, is the curvature that changes
# of the ranks add to the Hessian of the cut, as if there were a row at every loss. Newton steps
# with both come as near to the optimum as single swaps of ranks matter; then L is left out, and
# mixtures of the cuts resolve these.

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
    return Ranged(*(np.array([float(x)]) for x in (len(loss), loss.max(), -loss.min(), len(w))))


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
    hessian, spread = rows.hessian(none, weights), rows.hessian(ask.rates[group], none)
    first = (rows.loss @ weights)[None], rows.gradient(weights)
    return Sliced(*first, hessian, spread, rows.gradients(members))


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
                rates[g] = (self.weights[high] - self.weights[low]) / reach if reach > 0 else 0.0
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
    ranks = up.spread - (up.middles.T * (asked.rates / np.maximum(members, 1.0))) @ up.middles
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
    return Mixed(-x @ steps, float(x @ value) + penalty - float(x @ Q @ x) / 2, mixture)


def ridge_of(problem: Problem, w: Array) -> Array:
    """The second derivatives of the regulariser, (D,), beside its kinks."""
    ridge, penalised = np.zeros_like(w), len(problem.predictor.split(w)[0])
    ridge[:penalised] = getattr(problem.regulariser, "strong_convexity", 0.0)
    return ridge


# Rank coordinates of one client's rows, for rank-based methods and their certificate.
#
#     minimise over w:  Omega(t(w)) + h(w),   Omega(t) = sum_i sigma_i l(t_[i]),   t(w) = D w - b
#
# l increases in t. Margin losses: D = -diag(y) X, b = 0 (Xiao, Ge, Jiang, Yan, (9)). Losses of
# |prediction - y|: D = X, b = y, and l is even: its size orders the rows. An intercept is a last
# column of D.
#
# Convex Omega (sigma nondecreasing): for every multiplier alpha of t = Dw - b, weak duality gives
#
#     Omega(t(w)) >= alpha't(w) - Omega*(alpha) = <D'alpha, w> - alpha'b - Omega*(alpha)
#
# an affine minorant of Omega over all models; ``bonafed.problem.lower_bounds`` turns it into a
# bound on the optimum.
#
# Conjugates of the losses in the prediction:  l*(s) = sup_p  s p - l(p, y),  for gradients s in
# their domain.


def kernel_of(loss: Loss) -> proxes.Kernel:
    """The loss as a function of its rank coordinate.

    Raises
    ------
    TypeError
        for losses without a ``rank_kernel``: ``Quantile`` and ``Poisson`` (their two sides differ,
        so |residual| does not order the losses) and ``Multinomial`` (several predictions a row)
    """
    kernel = getattr(loss, "rank_kernel", None)
    if kernel is None:
        classes = [load("loss", name) for name in NAMED["loss"]]
        known = [cls.__name__ for cls in classes if hasattr(cls, "rank_kernel")]
        raise TypeError(
            f"{type(loss).__name__} is not an increasing function of one rank coordinate (the"
            f" margin, or |residual|): rank methods take {', '.join(known[:-1])} or {known[-1]}."
        )
    return kernel


def has_rank_coordinate(loss: Loss) -> bool:
    """Whether ``kernel_of`` knows the loss."""
    return getattr(loss, "rank_kernel", None) is not None


def knot_of(kernel: proxes.Kernel, level: float) -> float:
    """The largest rank coordinate whose loss is at most ``level``; -inf where every loss is
    larger.
    """
    if level < 0:
        return -np.inf
    if kernel.kind == proxes.LOGISTIC:
        return float(np.log(np.expm1(level))) if level > 0 else -np.inf
    if kernel.kind == proxes.EXPONENTIAL:
        return float(np.log(level)) if level > 0 else -np.inf
    if kernel.kind == proxes.PLUS:
        return kernel.knot + level
    bend = kernel.width**2 / 2
    straight = kernel.width + (level - bend) / kernel.width
    return kernel.knot + (np.sqrt(2 * level) if level <= bend else straight)


@dataclass(frozen=True, eq=False)
class RankRows:
    """t(w) = sign * prediction(w) - shift for the n rows of one client, and its transpose."""

    X: "Array | csr_array"  # (n, d)
    sign: Array  # (n,)
    shift: Array  # (n,)
    intercept: bool

    @property
    def dimension(self) -> int:
        """D, of the model."""
        return shape_of(self.X)[1] + self.intercept

    def forward(self, w: Array) -> Array:
        """D w - b, (n,)."""
        return self.gradient(w) - self.shift

    def gradient(self, w: Array) -> Array:
        """D w, (n,)."""
        return self.sign * (self.X @ w[:-1] + w[-1] if self.intercept else self.X @ w)

    def backward(self, alpha: Array) -> Array:
        """D'alpha, (D,)."""
        signed = self.sign * alpha
        gradient = self.X.T @ signed
        return np.append(gradient, signed.sum()) if self.intercept else gradient

    def matrix(self) -> Array:
        """D itself, dense (n, D)."""
        D = self.sign[:, None] * dense(self.X)
        return np.hstack([D, self.sign[:, None]]) if self.intercept else D


def rank_rows(problem: Problem, block: Block) -> RankRows:
    """The rows of a block of one client."""
    if len(block.names) != 1:
        raise ValueError(
            f"rank methods need all rows in one place, got {len(block.names)} clients: use"
            " fed.pooled()."
        )
    if not isinstance(problem.predictor, Linear):
        raise TypeError(
            f"rank methods need the predictor Linear, got {type(problem.predictor).__name__}."
        )
    X = block.X[0] if isinstance(block.X, np.ndarray) else block.X
    y = block.y[0]
    if np.ptp(block.share[0]) > 1e-12 * block.share[0].max():
        raise ValueError(
            "rank methods rank rows one by one and take no sample weights: repeat rows instead."
        )
    sign, shift = (-y, np.zeros_like(y)) if problem.loss.targets == "sign" else (np.ones_like(y), y)
    return RankRows(X, sign, shift, problem.predictor.intercept)


def rank_weights(problem: Problem, n: int) -> Array:
    """sigma (n,), ascending, of the risk over samples."""
    risk = problem.over_samples
    return np.full(n, 1 / n) if isinstance(risk, Mean) else risk.rank_weights(n)


def plus_minus(sigma: Array) -> tuple[Array, Array]:
    """(plus, minus), both (n,), nonnegative and nondecreasing, with plus - minus = sigma (n,).

    The cumulative rises and falls of sigma, so that a sum by rank is a difference of two convex
    ones, as small as can be: sum_i sigma_i z_[i] = sum_i plus_i z_[i] - sum_i minus_i z_[i].
    Nondecreasing sigma: minus = 0.
    """
    minus = np.cumsum(np.maximum(-np.diff(sigma, prepend=0.0), 0.0))
    return sigma + minus, minus


def is_provable(problem: Problem) -> bool:
    """Whether multipliers of the rows can prove a bound: a convex problem whose regulariser has a
    conjugate.
    """
    return problem.convex and hasattr(problem.regulariser, "conjugate")


def row_minorant(problem: Problem, alpha: Array, block: Block) -> tuple[float, Array]:
    """(constant, gradient) of an affine minorant of Omega(t(w)), whatever alpha (n,) is; constant
    -inf if none.
    """
    rows, kernel = rank_rows(problem, block), kernel_of(problem.loss)
    alpha = alpha if kernel.even else np.maximum(alpha, 0.0)
    theta, conjugate = proxes.rank_conjugate(alpha, rank_weights(problem, len(alpha)), kernel)
    alpha = theta * alpha
    if rows.intercept:
        alpha, conjugate = _balanced(problem, rows, alpha, conjugate)
    constant = -conjugate - float(alpha @ rows.shift)
    size = abs(conjugate) + float(np.abs(alpha) @ np.abs(rows.shift))
    return constant - 16 * np.finfo(float).eps * size, rows.backward(alpha)


def _balanced(problem: Problem, rows: RankRows, alpha: Array, value: float) -> tuple[Array, float]:
    """Multipliers whose gradient in the free intercept is 0: those of the heavier sign are reduced
    by one factor.

    Any gradient left there would cost the bound that gradient times the largest intercept an
    optimum may have. Smaller multipliers stay in the domain of Omega*.
    """
    pull = rows.sign * alpha
    up, down = float(pull[pull > 0].sum()), -float(pull[pull < 0].sum())
    if up == down or min(up, down) <= 0:
        return alpha, value
    heavier = pull > 0 if up > down else pull < 0
    balanced = np.where(heavier, alpha * (min(up, down) / max(up, down)), alpha)
    for _ in range(3):  # what rounding leaves
        left = float((rows.sign * balanced).sum())
        k = int(np.argmax(np.abs(balanced)))
        balanced[k] -= rows.sign[k] * left
    sigma = rank_weights(problem, len(balanced))
    theta, value = proxes.rank_conjugate(balanced, sigma, kernel_of(problem.loss))
    return theta * balanced, value


def rank_value(problem: Problem, t: Array) -> float:
    """Omega(t), t (n,) the rank coordinates of the rows."""
    losses = proxes.losses_of(t, kernel_of(problem.loss))
    risk = problem.over_samples
    if isinstance(risk, Mean):
        return float(losses.mean())
    if hasattr(risk, "rank_weights"):
        return float(np.sort(losses) @ risk.rank_weights(len(t)))
    return risk.value(losses)


def has_conjugate(loss: Loss) -> bool:
    """Whether ``loss_conjugate`` knows the loss."""
    return has_log_link(loss) or loss.pieces is not None or has_rank_coordinate(loss)


def clipped_gradients(loss: Loss, gradient: Array, y: Array) -> Array:
    """The nearest gradients at which the conjugate is finite."""
    top = loss.lipschitz
    if has_log_link(loss):
        return np.maximum(gradient, -y)
    if loss.pieces is not None:
        sign, slopes = turned(loss, y), kinks_of(loss).slopes
        return sign * np.clip(sign * gradient, slopes[0], slopes[-1])
    if loss.targets == "sign":
        return -y * np.clip(-y * gradient, 0.0, top)
    return np.clip(gradient, -top, top)


def loss_conjugate(loss: Loss, gradient: Array, y: Array) -> Array:
    """l*(gradient), elementwise; inf outside the domain. Of losses that ``has_conjugate`` knows."""
    if has_log_link(loss):  # exp(p) - y p - (y - y log y)
        rate = gradient + y
        value = xlogy(rate, np.maximum(rate, 1e-300)) - rate + y - xlogy(y, y)
        return np.where(rate >= 0, value, np.inf)
    if loss.pieces is not None:  # linear between the slopes of the pieces
        slope, (slopes, heights) = turned(loss, y) * gradient, kinks_of(loss)
        value = np.interp(slope, slopes, -heights, left=np.inf, right=np.inf)
        return value if loss.targets == "sign" else value + gradient * y
    kernel = kernel_of(loss)
    if kernel.even:  # l(|p - y|)
        return proxes.conjugates_of(np.abs(gradient), kernel) + gradient * y
    return proxes.conjugates_of(-y * gradient, kernel)  # l(-y p), y = -1 or 1
