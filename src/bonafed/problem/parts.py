"""A client's risk as a sum of convex functions, each of which can be cut by itself.

    R_s(w) = min over l >= floor(w) of   radius_s l + sum_p f_sp(w, l)

A mean over rows is the sum of the means over groups of rows, and over a Wasserstein ball the groups
of a client share its transport multiplier l. A cut of every group follows their maximum closer than
one cut of the sum: a method of cutting planes needs fewer rounds, and the server sees sums of fewer
rows. Where the loss is smooth, and flips of labels add a term that is piecewise linear, the mean
loss of all rows is a separate part (the first), which a gradient and a Hessian describe better
than cuts; the flips' parts follow. What cannot be parted is one part, the first: ``problem.cut``.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from bonafed.arrays import Array, Block, Index, by_row
from bonafed.codec import Form
from bonafed.problem import rank_levels
from bonafed.problem.client_means import row_curvatures, row_shares
from bonafed.problem.conic_form import member, multiplier_floor
from bonafed.problem.constraints.constraint import Point, Stack, most_added, several
from bonafed.problem.constraints.group_means import Coupled, Global
from bonafed.problem.losses import SmoothHinge, value_and_gradient
from bonafed.problem.lower_bounds import Surveyed, survey
from bonafed.problem.predictors.affine import Linear, is_affine
from bonafed.problem.problem import Problem, takes_multipliers
from bonafed.problem.rank_levels import WithThresholds, levels_of
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import Mean
from bonafed.problem.wasserstein.ball import Cut, Near, RowTerms, WassersteinBall, free_space_terms
from bonafed.rounds import Each, Sum, record

CORRECTIONS = 20  # of slopes that are to add up to a number, at most
LONGEST_SUM = 128  # rows that are added up at once where rounding is charged for
MOST_GROUPS = 100_000  # of a client's rows
STILL = WassersteinBall(0.0)  # all mass stays where it is
Rows = slice | Index  # of a group
Parted = Annotated[Array, Form("3")]  # ``Parts`` in a message or a file


class Parts(NamedTuple):
    """How every client's risk is parted.

    Attributes
    ----------
    groups : of rows, at most
    least_rows : of a group; a client of fewer rows than two groups need is one group
    smooth : 1 where the mean loss of all rows is a separate part, before those of the groups
    """

    groups: int
    least_rows: int
    smooth: int

    def count(self, problem: Problem) -> int:
        """P, the number of parts of every client."""
        return 1 + (self.groups if may_flip(problem) else 0) if self.smooth else self.groups


WHOLE = Parts(1, 1, 0)


def stored(parts: Parts) -> Array:
    """As an array (3,), which messages and files hold."""
    return np.asarray(parts, float)


def parts_of(array: Array | None) -> Parts:
    """Of the array of a message or a file; None means whole risks.

    Raises
    ------
    ValueError
        where the numbers of the array are not those of ``Parts``
    """
    if array is None:
        return WHOLE
    array = np.asarray(array)
    whole = array.shape == (3,) and (array == np.floor(array)).all()
    if not whole or not (array >= (1, 1, 0)).all() or array[0] > MOST_GROUPS or array[2] > 1:
        raise ValueError(
            f"parts must be three whole numbers, of groups (1 to {MOST_GROUPS}), of rows (>= 1) and"
            f" 0 or 1, got {array!r}."
        )
    return Parts(*(int(number) for number in array))


@record
class PartedCut:
    """f_sp(v, l) >= base_p + <gradient_p, v - w> + gradient_level_p (l - level) for every part p
    of every client, with equality at (w, level).
    """

    base: Each  # (n, P)
    level: Each  # (n,) the best l at w
    gradient: Each  # (n, P, D)
    gradient_level: Each  # (n, P)


def may_flip(problem: Problem) -> bool:
    """Whether worst distributions flip labels."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall) or problem.loss.targets != "sign":
        return False
    return math.isfinite(ball.label_cost) and any(ball.radii())


def is_parted(problem: Problem) -> bool:
    """Whether the risk is a sum over rows: a mean, or a worst case on all of R^n."""
    ball, model = problem.over_samples, problem.predictor
    model = model.model if isinstance(model, WithThresholds) else model
    of_rows = isinstance(model, Linear) and problem.loss.targets in ("sign", "real")
    if isinstance(ball, WassersteinBall):
        return of_rows and (ball.support is None or not any(ball.radii()))
    return of_rows and isinstance(ball, Mean)


def has_even_slopes(problem: Problem) -> bool:
    """Whether the slope of the loss changes gradually, and is nowhere 0 for all but a few rows."""
    return bool(problem.loss.smooth) and not isinstance(problem.loss, SmoothHinge)


def has_smooth_part(problem: Problem) -> bool:
    """Whether the mean loss is smooth, and what flips of labels add is piecewise linear."""
    flat = not may_flip(problem) or getattr(problem.loss, "flips_linearly", False)
    return is_parted(problem) and problem.loss.smooth and flat


def parted_cut(
    problem: Problem, w: Array, block: Block, parts: Parts, radius: Array | None = None
) -> PartedCut:
    """The cuts of all parts of every client of the block, at the model w (D,) and the transport
    multipliers that are best for the ball's radii, or for ``radius`` (n,).
    """
    if parts.count(problem) == 1 or not is_parted(problem):
        return _first_part(problem.cut(w, block, radius), parts.count(problem))
    radius = problem.radii(block) if radius is None else radius
    terms, share = _terms(problem, w, block, radius), row_shares(problem, block)
    ball: Any = problem.over_samples
    values, gradients = terms.flip, terms.flip_gradient
    if not parts.smooth:
        values, gradients = terms.loss + values, terms.gradient + gradients
    spent = terms.spent(share, getattr(ball, "label_cost", math.inf))
    groups = _groups(share, parts)
    base = _sums(share * values, groups, parts)
    level = -_sums(spent, groups, parts) if spent.any() else np.zeros_like(base)
    gradient = _gradients(problem.predictor, block, by_row(share, gradients), groups, parts)
    if parts.smooth:
        mean = (share * terms.loss).sum(1)[:, None]
        slope = problem.predictor.backward(w, share * terms.gradient, block)[:, None]
        base, gradient = np.hstack([mean, base]), np.concatenate([slope, gradient], 1)
        level = np.hstack([np.zeros_like(mean), level])
    return PartedCut(base, terms.level, gradient, level)


def parted_limits(constraints: Stack, point: Point, parts: Parts) -> tuple[Array, Array]:
    """Cuts of every part of convex constraints at the model: values (n, p, P) and gradients (n, p,
    P, D).

    What is a mean of the problem's loss is parted by groups of the rows that it is over; all else
    is in the first part.
    """
    seen, block = constraints.seen(point), point.block
    (n, D), size, loss = point.models.shape, constraints.size, seen.problem.loss
    if parts.groups == 1:
        return constraints.values(point)[:, :, None], constraints.jacobian(point)[:, :, None]
    values, gradients = np.zeros((n, size, parts.groups)), np.zeros((n, size, parts.groups, D))
    for k, (weights, rest, constant) in enumerate(_by_rows(constraints, point)):
        values[:, k, 0] = constant + rest @ point.w
        gradients[:, k, 0] = rest
        if weights is not None:
            groups = _groups(weights, parts)
            height, slope = value_and_gradient(loss, seen.prediction, block.y)
            values[:, k] += _sums(weights * height, groups, parts)
            sums = _gradients(seen.problem.predictor, block, weights * slope, groups, parts)
            gradients[:, k, :, : sums.shape[-1]] += sums
    return values, gradients


def _by_rows(constraints: Stack, point: Point) -> Iterator[tuple[Array | None, Array, Array]]:
    """Every constraint as weights of the rows' losses, and an affine rest."""
    for one in np.eye(constraints.size):
        yield constraints.split(point, np.tile(one, (len(point.block.names), 1)))


def _first_part(cut: Cut, parts: int) -> PartedCut:
    """With all of the risk in the first part, and nothing in the others."""
    if parts == 1:
        base, gradient, fee = (v[:, None] for v in (cut.base, cut.gradient, cut.gradient_level))
        return PartedCut(base, cut.level, gradient, fee)
    more = ((0, 0), (0, parts - 1))
    gradient = np.pad(cut.gradient[:, None], (*more, (0, 0)))
    base, fee = (np.pad(v[:, None], more) for v in (cut.base, cut.gradient_level))
    return PartedCut(base, cut.level, gradient, fee)


def _terms(problem: Problem, w: Array, block: Block, radius: Array) -> RowTerms:
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall):
        ball, radius = STILL, np.zeros_like(radius)
    return free_space_terms(Near(w, block, problem.loss, problem.predictor, ball, radius))


def _groups(weights: Array, parts: Parts) -> list[list[Rows]]:
    """The groups of each client's rows that have a weight (n, m): the j-th of them belongs to group
    j mod their number, so that none has fewer than ``least_rows`` that count.
    """
    if weights.all():
        return [_groups_of(np.arange(weights.shape[1]), parts)] * len(weights)
    return [_groups_of(np.flatnonzero(row), parts) for row in weights]


def _groups_of(rows: Index, parts: Parts) -> list[Rows]:
    count, size = max(1, min(len(rows) // parts.least_rows, parts.groups)), len(rows)
    first = size == 0 or rows[-1] == size - 1  # nothing but padding is left out
    return [slice(g, size, count) if first else rows[g::count] for g in range(count)]


def of_rows(problem: Problem, values: Array, block: Block, parts: Parts) -> Array:
    """What each row (n, m) is multiplied by where its parts are by ``values`` (n, P), at most."""
    if values.shape[1] == 1:
        return np.broadcast_to(values, block.y.shape)
    first = values[:, :1] if parts.smooth else 0.0
    mine = np.zeros(block.y.shape)
    for i, groups in enumerate(_groups(row_shares(problem, block), parts)):
        for value, rows in zip(values[i, -parts.groups :], groups, strict=False):
            mine[i, rows] = value
    return np.maximum(mine, first)


def _sums(values: Array, groups: list[list[Rows]], parts: Parts) -> Array:
    """Sums of (n, m) over every group, (n, groups)."""
    out = np.zeros((len(values), parts.groups))
    for i, mine in enumerate(groups):
        # as ``sum`` does, which has two layers of Python over it
        out[i, : len(mine)] = [np.add.reduce(values[i, rows]) for rows in mine]
    return out


def _gradients(
    predictor: Any, block: Block, s: Array, groups: list[list[Rows]], parts: Parts
) -> Array:
    """``predictor.backward`` of the rows of every group, (n, groups, D)."""
    if isinstance(predictor, WithThresholds):
        model = _gradients(predictor.model, block, s[:, :, 0], groups, parts)
        at = [_sums(each, groups, parts) for each in np.moveaxis(s[:, :, 1:], 2, 0)]
        return np.concatenate([model, np.stack(at, 2)], 2)
    from scipy.sparse import csr_array

    out = np.zeros((len(s), parts.groups, predictor.dimension(block.n_features)))
    for i, mine in enumerate(groups):
        if isinstance(block.X, np.ndarray):
            for g, rows in enumerate(mine):
                out[i, g, : block.n_features] = s[i, rows] @ block.X[i, rows]
        else:
            group = np.zeros(s.shape[1], np.intp)  # rows of no group count nothing
            for g, rows in enumerate(mine):
                group[rows] = g
            # (G, m) with s_j at (g, j) for the rows j of group g
            at, shape = (group, np.arange(s.shape[1])), (len(mine), s.shape[1])
            sums: Any = csr_array((s[i], at), shape=shape) @ block.rows(i)
            out[i, : len(mine), : block.n_features] = sums.toarray()
    if predictor.intercept:
        out[:, :, -1] = _sums(s, groups, parts)
    return out


class Minorants(NamedTuple):
    """Affine minorants constant_s + <gradient_s, w> of weights_s times the mean loss of every
    client, with the most that rounding may have added to each number.
    """

    constant: Array  # (n,)
    gradient: Array  # (n, D)
    spread: Array  # (n,)
    size: Array  # (n, D), or (1, D) of the sum


def has_shifted_slopes(problem: Problem) -> bool:
    """Whether ``shifted_minorants`` is for the problem: it has conjugates of a smooth loss."""
    return has_smooth_part(problem) and rank_levels.has_rank_coordinate(problem.loss)


def shifted_minorants(
    problem: Problem,
    pair: Array,
    weights: Array,
    block: Block,
    barrier: Array | None = None,
    clients: int = 0,
) -> Minorants:
    """Minorants of the mean losses by Fenchel's inequality row by row, l(p) >= s p - l*(s).

    s_i is the slope of row i as it is to first order at the model pair[1] (D,) when it and its
    derivative are known at pair[0]: so the gradients add up to g + H (pair[1] - pair[0]), which a
    step of Newton's method balances exactly, and the value at pair[1] is missed by the fourth order
    of the step only. Slopes outside the domain of l* are moved to its end. A ``barrier`` (1,) makes
    losses with linear pieces smooth; then pair[1] is the step from pair[0]. What rounding may add
    is that of a sum over so many ``clients``.
    """
    (start, end), loss, y = pair, problem.loss, block.y
    curve = _curve(problem, barrier)
    prediction = problem.predictor.forward(start, block)
    change = problem.predictor.forward(end, block)
    if barrier is None:
        change = change - prediction
    bend = curve.curvature(prediction, y)
    slope = curve.gradient(prediction, y) + bend * change
    share = weights[:, None] * row_shares(problem, block)
    if barrier is not None and problem.predictor.intercept:
        slope = _adding_up(loss, y, slope, share, bend)
    slope = rank_levels.clipped_gradients(loss, slope, y)
    return _by_slopes(problem, slope, weights, share, block, barrier is not None, clients)


def followed_minorants(
    problem: Problem,
    models: Array,
    penalties: Array,
    weights: Array,
    block: Block,
    clients: int = 0,
) -> Minorants:
    """Minorants of mean losses with linear pieces, like those of ``shifted_minorants``: the slopes
    are those at the end of a path (``rank_levels.followed``), whose thresholds are the knots.
    """
    of, slope = rank_levels.kinks_of(problem.loss), np.zeros(block.y.shape)
    knots = np.broadcast_to(of.knots, (len(models), len(of.knots)))
    path = models, knots, penalties
    weight = rank_levels.followed(problem, block, of.jumps, of.jumps / 2, path)
    slope[block.share > 0] = of.slopes[0] + weight.sum(1)
    slope = rank_levels.turned(problem.loss, block.y) * slope
    slope = rank_levels.clipped_gradients(problem.loss, slope, block.y)
    share = weights[:, None] * row_shares(problem, block)
    return _by_slopes(problem, slope, weights, share, block, True, clients)


def _by_slopes(
    problem: Problem,
    slope: Array,
    weights: Array,
    share: Array,
    block: Block,
    kinks: bool,
    clients: int,
) -> Minorants:
    """The minorants by slopes in the domain of l*, of rows with these shares of the sum."""
    loss, y = problem.loss, block.y
    conjugate = np.where(share > 0, rank_levels.loss_conjugate(loss, slope, y), 0.0)
    rows = min(LONGEST_SUM, y.shape[1]) + y.shape[1] // LONGEST_SUM + clients
    steep, s, d = weights * np.sqrt(block.mean(slope**2)), share * slope, block.n_features
    # ``predictor.backward`` as a sum of sums of few rows, whose rounding is so much smaller
    gradient = np.zeros((len(s), problem.predictor.dimension(d)))
    for first in range(0, s.shape[1], LONGEST_SUM):
        here = slice(first, first + LONGEST_SUM)
        if isinstance(block.X, np.ndarray):
            gradient[:, :d] += np.matmul(s[:, None, here], block.X[:, here])[:, 0]
        else:
            for i, mine in enumerate(s):
                gradient[i, :d] += block.rows(i)[here].T @ mine[here]
    if problem.predictor.intercept:
        gradient[:, -1] = s.sum(1)
    terms = np.abs(conjugate)
    if kinks and loss.targets != "sign":  # whose two terms may cancel
        terms = terms + np.abs(slope * y)
    spread = unit_of_sums(pairwise(y.shape[1]) + clients) * most_added(np.abs(share), terms)
    size = rounding_of_gradients(problem.predictor, block, steep, rows)
    return Minorants(-(share * conjugate).sum(1), gradient, spread, size)


def _adding_up(loss: Any, y: Array, slope: Array, share: Array, bend: Array) -> Array:
    """Slopes in the domain of l* whose sums, times ``share``, are what they were for every client,
    so that nothing is left in an intercept: rows near a kink take what others lose at its end.
    """
    wanted, far = (share * slope).sum(1), 4 * loss.lipschitz
    for _ in range(CORRECTIONS):
        slope = rank_levels.clipped_gradients(loss, slope, y)
        missing = wanted - (share * slope).sum(1)
        if np.abs(missing).max() <= 1e-16 * np.abs(share).sum():
            break
        end = slope + far * np.sign(missing)[:, None]
        free = np.where(rank_levels.clipped_gradients(loss, end, y) != slope, bend, 0.0)
        total = (share * free).sum(1)
        step = np.divide(missing, total, out=np.zeros_like(total), where=total > 0)
        slope = slope + step[:, None] * free
    return slope


def _curve(problem: Problem, barrier: Array | None) -> Any:
    """The loss whose slopes are moved."""
    return (
        problem.loss if barrier is None else rank_levels.Softened(problem.loss, float(barrier[0]))
    )


def least_rows(problem: Problem, block: Block, parts: Parts) -> int:
    """How many rows the smallest group has of those that a risk is over, or a constraint that is
    parted; where all rows are ranked, of those above a threshold at average losses.
    """
    point = Point(problem, np.zeros(problem.predictor.dimension(block.n_features)), block)
    stacks = problem.local_constraint, problem.constraint.coupled
    each = [weights for stack in stacks for weights, _, _ in _by_rows(stack, point)]
    groups = [mine for w in each if w is not None for mine in _groups(w, parts) if len(mine) > 1]
    groups += _groups(block.share, parts)
    whole = np.arange(block.y.shape[1])
    rows = min(len(whole[rows]) for mine in groups for rows in mine)
    if problem.over_rows is None:
        return rows
    return max(int(rows * levels_of(problem).tails.min(initial=1.0) * (1 + 1e-9)), 1)


def rows_of_a_sum(block: Block, parts: Parts) -> int:
    """How many rows a sum over a group of a client's rows has at most: those of the longest group
    of all rows, or twice as many as a group needs where fewer rows count.
    """
    if parts.groups == 1:
        return block.y.shape[1]
    longest = max(-(-block.y.shape[1] // len(mine)) for mine in _groups(block.share, parts))
    return min(max(longest, 2 * parts.least_rows), block.y.shape[1])


def rounding_of_gradients(predictor: Any, block: Block, steep: Array, rows: int) -> Array:
    """The most that rounding adds to sums over rows of slopes times features, (n, D), where so many
    rows are added up in a row; of sparse rows to the sum over the clients, (1, D).

    ``steep`` (n,) are root mean squares of the slopes: by Cauchy and Schwarz the absolute terms of
    a feature sum to at most that times its own.
    """
    ones = unit_of_sums(pairwise(block.y.shape[1]))
    if isinstance(block.X, np.ndarray):
        features = block.squares()
    else:  # for whose few entries a number for each client and feature would be many
        n = len(steep)  # by Cauchy and Schwarz once more; the feature of an intercept has mean 1
        features, steep = block.square_sum(np.full(n, 1 / n)), np.sqrt([n * (steep @ steep)])
    np.sqrt(features, out=features)
    features *= unit_of_sums(rows) / ones
    return (steep[:, None] * ones) * predictor.units(features)  # which may be its own array


def unit_of_sums(terms: int) -> float:
    """A sum of so many products is off by at most so much times its absolute terms."""
    return (terms + 8) * float(np.finfo(float).eps) / 2


def pairwise(terms: int) -> int:
    """How many additions a term takes part in where NumPy adds up so many in pairs."""
    return 16 + math.ceil(math.log2(max(terms, 2)))


# The slopes of rows: how much each row weighs in the sums over rows that leave a client.
#
#     F_s'(w) = sum_j s_j dp_j/dw,   s_j = v_j l'(p_j, y_j)       F_s''(w) = sum_j h_j x_j x_j'
#
# p_j are the predictions of rows with the weights v_j. A sum whose slopes are those of few rows
# tells these rows.


class Sums(NamedTuple):
    """Sums over rows that leave a client: one over all rows, or one over each group of them.

    Attributes
    ----------
    rows : (m,), or (m, C) of C predictions a row, the slopes
    unit : the largest weight of a row in them
    group : (m,) whose sum a row is in, -1 for none; None: all are in one sum
    """

    rows: Array
    unit: float
    group: Index | None = None


def gradient_sums(problem: Problem, w: Array, block: Block, parts: Parts = WHOLE) -> list[Sums]:
    """The slopes of the risk's gradient at the model, of one client, as `parted_cut` sends it."""
    shares = row_shares(problem, block)
    if not is_parted(problem):
        prediction = problem.predictor.forward(w, block)
        losses, slopes = value_and_gradient(problem.loss, prediction, block.y)
        return [_weighed(problem.row_weights(losses, block)[0], slopes[0])]
    # the slopes of losses, and of what flips of labels add to them
    terms = _terms(problem, w, block, problem.radii(block))
    own, flips = terms.gradient[0], terms.flip_gradient[0]
    if parts.count(problem) == 1:
        return [_weighed(shares[0], own + flips)]
    group = groups_of(shares, parts)
    if parts.smooth:
        return [_weighed(shares[0], own), _weighed(shares[0], flips, group)]
    return [_weighed(shares[0], own + flips, group)]


def limit_sums(problem: Problem, w: Array, block: Block, parts: Parts = WHOLE) -> list[list[Sums]]:
    """The slopes of every constraint's gradient at the model, those of the client's own and those
    of sums over all clients, as `parted_limits` sends them.
    """
    point = Point(problem, w, block)
    both = list[list[Sums]]()
    for stack in (problem.local_constraint, problem.constraint.coupled):
        both.append([])
        for part in stack.parts:
            one = getattr(part, "one", part)  # of a sum over all clients: the client's own
            measure, weights = getattr(one, "measure", None), getattr(one, "weights", None)
            if measure is None or weights is None:  # about the model alone
                both[-1] += [NOTHING] * len(part.equality)
                continue
            slopes = measure.gradient(point.prediction, block.y)[0]
            for row in weights(block)[0][0]:
                group = groups_of(row[None], parts) if parts.groups > 1 else None
                both[-1].append(_weighed(row, slopes, group))
    return both


def curvature_sums(problem: Problem, w: Array, block: Block) -> list[Sums]:
    """The curvatures of the rows in the Hessians of risk and constraints at the model."""
    point, shares = Point(problem, w, block), row_shares(problem, block)[0]
    sums = [_weighed(shares, problem.loss.curvature(point.prediction, block.y)[0])]
    for stack in (problem.local_constraint, problem.constraint.coupled):
        for one in np.eye(stack.size):
            rows, _ = stack.curvature(point, one[None])
            sums.append(NOTHING if rows is None else _weighed(np.ones_like(rows[0]), rows[0]))
    return sums


def metric_sums(problem: Problem, w: Array, block: Block, evenly: bool) -> list[Sums]:
    """The second derivatives of the rows in the `curvature` of the mean loss at the model."""
    curvatures = row_curvatures(Point(problem, w, block), evenly)[0]
    return [_weighed(row_shares(problem, block)[0], curvatures)]


def shifted_sums(
    problem: Problem, start: Array, change: Array, block: Block, barrier: Array | None = None
) -> list[Sums]:
    """The slopes at the model ``start`` (D,), moved to first order along ``change`` (D,), as
    minorants of smooth losses, and of those that a barrier smooths, have them.
    """
    slopes = _moved(problem, start, change, block, barrier)[1]
    return [_weighed(each, slopes[0]) for each in _weights_of_losses(problem, start, block)]


def locked_sums(problem: Problem, start: Array, change: Array, block: Block) -> list[Sums]:
    """The curvatures of the rows whose slopes `shifted_sums` has cut off, and of the others."""
    reached, cut_off, bend = _moved(problem, start, change, block)
    locked = (reached != cut_off)[0]
    every = _weights_of_losses(problem, start, block)
    return [_weighed(each, bend[0] * part) for each in every for part in (locked, ~locked)]


def _moved(
    problem: Problem, start: Array, move: Array, block: Block, barrier: Array | None = None
) -> tuple[Array, Array, Array]:
    """The slopes as they are moved, the same inside their domain, and the curvatures."""
    loss, curve, y = problem.loss, _curve(problem, barrier), block.y
    prediction = problem.predictor.forward(start, block)
    slope, bend = curve.gradient(prediction, y), curve.curvature(prediction, y)
    if not rank_levels.has_conjugate(loss):
        return slope, slope, bend
    slope = slope + bend * problem.predictor.forward(move, block)
    return slope, rank_levels.clipped_gradients(loss, slope, y), bend


def _weights_of_losses(problem: Problem, w: Array, block: Block) -> list[Array]:
    """(m,) the weights of the rows' losses in the mean, and in every constraint on them."""
    weights, point = [row_shares(problem, block)[0]], Point(problem, w, block)
    for stack in (problem.local_constraint, problem.constraint.coupled):
        each = (rows for rows, _, _ in _by_rows(stack, point))
        weights += [rows[0] for rows in each if rows is not None]
    return weights


def size_sums(block: Block) -> list[Sums]:
    """The weights of the rows in the mean squares of the features."""
    return [_weighed(block.share[0], np.ones_like(block.share[0]))]


def combined(terms: Sequence[tuple[Array, Sums]]) -> list[Sums]:
    """The slopes of one sum that combines others, each by multipliers (P,) of its groups."""
    rows: Any = 0.0
    unit = 0.0
    for multipliers, one in terms:
        if multipliers.any() and one.unit:
            index: Any = 0 if one.group is None else one.group
            rows = rows + by_row(np.append(multipliers, 0.0)[index], one.rows)
            unit += float(np.abs(multipliers).max()) * one.unit
    return [Sums(rows, unit)] if unit else []


def groups_of(weights: Array, parts: Parts) -> Index:
    """(m,) the group of each row of one client with weights (1, m); -1 of none."""
    group = np.full(weights.shape[1], -1)
    for g, rows in enumerate(_groups(weights, parts)[0]):
        group[rows] = g
    return group


def _weighed(weights: Array, slopes: Array, group: Index | None = None) -> Sums:
    return Sums(by_row(weights, slopes), float(np.abs(weights).max(initial=0.0)), group)


NOTHING = Sums(np.zeros(0), 0.0)  # of no row


# ---------------------------------------------------------------------------- what jumps


def jumping(problem: Problem, masked: bool) -> str:
    """In words what lets a row's slope jump or set in as the model moves, so that two answers may
    differ by one row, or the change of its slope, so that combinations do; "" where nothing does.
    ``masked``: the answers are added up over many clients, which hides the latter.
    """
    loss, ball = problem.loss, problem.over_samples
    if not loss.smooth:
        return f"the slope of the loss {type(loss).__name__} jumps"
    if not has_even_slopes(problem):
        return f"the slope of the loss {type(loss).__name__} is 0 for all but few rows"
    if not masked and not getattr(loss, "bends_evenly", True):
        return f"the second derivative of the loss {type(loss).__name__} jumps"
    if problem.over_rows is not None or by_rank(ball):
        return "the weight of a row jumps with the rank of its loss"
    if may_flip(problem):
        return "the worst distribution flips labels of single rows, as label_cost is finite"
    if isinstance(ball, WassersteinBall) and ball.support is not None and any(ball.radii()):
        return "the worst distribution on a support moves single rows by jumps"
    return ""


# What a server that receives sums over the clients only may ask of a problem, and its answers.
#
#     sum_s q_s F_s(w), its gradient and its second derivative,   q in Q
#
# with one weighting q for all clients. F_s is the mean loss of client s. One client's part
# in such a sum stays hidden only where
#
# 1. the weights are in Q, and two of them at least are 1 / (2 N) of the whole: where one client has
#    nearly all the weight, the sum is its own answer;
# 2. no row changes an answer by a jump: where the slope of a loss jumps, the difference of two sums
#    is often one row. So slopes have to be continuous, and second derivatives are only sent where
#    they are;
# 3. worst distributions flip no labels and stop at no end of a support, which are jumps as well.
# Then
#    R_s(w) = F_s(w) + radius_s max(Lip ||w||_*, floor), and the server knows all but F_s.
#
# Each client checks what depends on the message, the first point.

SECOND_ORDER = 500  # numbers of a model up to which second derivatives are sent
INSIDE = 1e-6  # how far from Q weights may be, by rounding


# ---- whether a problem can be asked so


def moves_evenly(problem: Problem) -> bool:
    """Whether the risk over samples is the mean loss and a multiple of ||w||_*."""
    ball = problem.over_samples
    if not isinstance(ball, WassersteinBall):
        return isinstance(ball, Mean)
    still = problem.loss.targets == "real" or math.isinf(ball.label_cost)
    return still and ball.support is None and problem.joint_cuts


def limits_no_rows(problem: Problem) -> bool:
    """Whether all constraints, stated or concrete, are those of the server itself, so that clients
    tell no number of them, and the objective is one of all methods.
    """
    local, held = problem.local_constraint, problem.constraint
    if isinstance(held, Global):
        none = not (local.size or held.coupled.size)
    else:
        together = any(isinstance(part, Coupled) for part in several(held, "constraint"))
        none = not (several(local, "local_constraint") or together)
    return none and not takes_multipliers(problem)


def has_sums(problem: Problem) -> bool:
    """Whether value and bound of a problem follow from such sums and the clients' risks."""
    plain = is_affine(problem.predictor) and limits_no_rows(problem)
    even = has_even_slopes(problem) and moves_evenly(problem)
    return plain and even and problem.over_rows is None and hasattr(problem.over_clients, "project")


def largest_share(problem: Problem, n_clients: int) -> float:
    """The largest share of the weight that Q can give to one client."""
    most = max(float(problem.over_clients.value(one)) for one in np.eye(n_clients))
    return most / float(np.sum(member(problem, n_clients)))


def share_allowed(n_clients: int) -> float:
    """The share of one client up to which, whatever the others', another has 1 / (2 N)."""
    return (n_clients + 1) / (2 * n_clients)


def check_weights(problem: Problem, weights: Array, clients: int | None) -> None:
    """Raise ``ValueError`` unless a sum with these weights (N,) hides every client; ``clients``:
    how many have agreed, so that none are invented.
    """
    n, total = len(weights), float(np.sum(weights))
    if clients is not None and n != clients:
        raise ValueError(
            f"weights must be those of the {clients} clients, got {n}: nothing was answered. Ask"
            " with the weights of all that have agreed."
        )
    known = n >= 2 and np.isfinite(weights).all()
    if not known or not problem.over_clients.contains(weights, INSIDE):
        raise ValueError(
            "a sum over clients needs weights of the problem's set, got others: nothing was"
            " answered. Ask with the worst weights of the risks."
        )
    if np.sort(weights)[-2] < (1 - INSIDE) * total / (2 * n):
        raise ValueError(
            f"a sum over {n} clients needs two weights of 1/{2 * n} at least, got one client with"
            " nearly all: nothing was answered. Use a smaller radius, or Mean()."
        )


# ---- the server's part of a risk


def least_multiplier(problem: Problem, w: Array) -> float:
    """The transport multiplier max(Lip ||w||_*, floor) at a model."""
    ball, (steep, floor) = problem.over_samples, multiplier_floor(problem)
    if not isinstance(ball, WassersteinBall) or not any(ball.radii()):
        return 0.0
    return max(steep * float(ball.dual_norm(problem.predictor.split(w)[0])), floor)


def moves_targets(problem: Problem, w: Array) -> bool:
    """Whether worst distributions move targets: where that changes predictions no less than moves
    of features do.
    """
    ball, (steep, floor) = problem.over_samples, multiplier_floor(problem)
    if not isinstance(ball, WassersteinBall) or floor == 0:
        return False
    return floor >= steep * float(ball.dual_norm(problem.predictor.split(w)[0]))


# ---- clients


@record
class SurveySums:
    """Ask for sizes of rows and features, as ``Survey`` does."""

    prior: Annotated[Array, Form("N")]  # the weights of all clients


@record
class SurveyedSums:
    """The answer: sums only."""

    plus: Annotated[Sum, Form("")]  # as in ``Surveyed``
    minus: Annotated[Sum, Form("")]
    reach: Annotated[Sum, Form("")]  # the square of the largest ||x||_2
    target: Annotated[Sum, Form("")]  # the square of the largest |y|
    square: Annotated[Sum, Form("features")]

    @property
    def seen(self) -> Surveyed:
        """What is known by it: of the largest lengths the root of their sum of squares, which is
        no smaller.
        """
        far, high = np.sqrt(self.reach), np.sqrt(self.target)
        return Surveyed(self.plus, self.minus, far, high, self.square)


def survey_sums(problem: Problem, ask: SurveySums, data: Block, total: int | None) -> SurveyedSums:
    """The answer to ``SurveySums`` of every client of the block."""
    check_weights(problem, ask.prior, total)
    own = survey(data, ask.prior[data.index])
    return SurveyedSums(own.plus, own.minus, own.reach**2, own.target**2, own.square)


def sends_curvature(problem: Problem, dimension: int) -> bool:
    """Whether clients send second derivatives, for models of so many numbers."""
    even = getattr(problem.loss, "bends_evenly", False) and has_smooth_part(problem)
    return even and dimension <= SECOND_ORDER
