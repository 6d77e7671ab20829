"""The slopes of rows: how much each row weighs in the sums over rows that leave a client.

    F_s'(w) = sum_j s_j dp_j/dw,   s_j = v_j l'(p_j, y_j)       F_s''(w) = sum_j h_j x_j x_j'

p_j are the predictions of rows with the weights v_j. A sum whose slopes are those of few rows tells
these rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block
from bonafed.problem.client_means import row_curvatures, row_shares
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.losses import value_and_gradient
from bonafed.problem.parts import WHOLE, Parts, _by_rows, _groups, _terms, is_parted, may_flip
from bonafed.problem.problem import Problem
from bonafed.problem.rank_coordinates import clipped_gradients, has_conjugate
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.secure_sums import has_even_slopes
from bonafed.problem.wasserstein.ball import WassersteinBall

Index = NDArray[np.intp]


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
        return [_sums(problem.row_weights(losses, block)[0], slopes[0])]
    # the slopes of losses, and of what flips of labels add to them
    if may_flip(problem):
        terms = _terms(problem, w, block, problem.radii(block))
        own, flips = terms.gradient[0], terms.flip_gradient[0]
    else:
        prediction = problem.predictor.forward(w, block)
        own = problem.loss.gradient(prediction, block.y)[0]
        flips = np.zeros(len(block.y[0]))
    if parts.count(problem) == 1:
        return [_sums(shares[0], own + flips)]
    group = groups_of(shares, parts)
    if parts.smooth:
        return [_sums(shares[0], own), _sums(shares[0], flips, group)]
    return [_sums(shares[0], own + flips, group)]


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
                both[-1].append(_sums(row, slopes, group))
    return both


def curvature_sums(problem: Problem, w: Array, block: Block) -> list[Sums]:
    """The curvatures of the rows in the Hessians of risk and constraints at the model."""
    point, shares = Point(problem, w, block), row_shares(problem, block)[0]
    sums = [_sums(shares, problem.loss.curvature(point.prediction, block.y)[0])]
    for stack in (problem.local_constraint, problem.constraint.coupled):
        for one in np.eye(stack.size):
            rows, _ = stack.curvature(point, one[None])
            sums.append(NOTHING if rows is None else _sums(np.ones_like(rows[0]), rows[0]))
    return sums


def metric_sums(problem: Problem, w: Array, block: Block, evenly: bool) -> list[Sums]:
    """The second derivatives of the rows in the `curvature` of the mean loss at the model."""
    return [
        _sums(row_shares(problem, block)[0], row_curvatures(Point(problem, w, block), evenly)[0])
    ]


def shifted_sums(problem: Problem, start: Array, change: Array, block: Block) -> list[Sums]:
    """The slopes at the model ``start`` (D,), moved to first order along ``change`` (D,), as
    minorants of smooth losses have them.
    """
    slopes = _moved(problem, start, change, block)[1]
    return [_sums(each, slopes[0]) for each in _weights_of_losses(problem, start, block)]


def locked_sums(problem: Problem, start: Array, change: Array, block: Block) -> list[Sums]:
    """The curvatures of the rows whose slopes `shifted_sums` has cut off, and of the others."""
    reached, cut_off, bend = _moved(problem, start, change, block)
    locked = (reached != cut_off)[0]
    every = _weights_of_losses(problem, start, block)
    return [_sums(each, bend[0] * part) for each in every for part in (locked, ~locked)]


def _moved(
    problem: Problem, start: Array, change: Array, block: Block
) -> tuple[Array, Array, Array]:
    """The slopes as they are moved, the same inside their domain, and the curvatures."""
    loss, y = problem.loss, block.y
    prediction = problem.predictor.forward(start, block)
    slope, bend = loss.gradient(prediction, y), loss.curvature(prediction, y)
    if not has_conjugate(loss):
        return slope, slope, bend
    slope = slope + bend * problem.predictor.forward(change, block)
    return slope, clipped_gradients(loss, slope, y), bend


def _weights_of_losses(problem: Problem, w: Array, block: Block) -> list[Array]:
    """(m,) the weights of the rows' losses in the mean, and in every constraint on them."""
    weights, point = [row_shares(problem, block)[0]], Point(problem, w, block)
    for stack in (problem.local_constraint, problem.constraint.coupled):
        each = (rows for rows, _, _ in _by_rows(stack, point))
        weights += [rows[0] for rows in each if rows is not None]
    return weights


def size_sums(block: Block) -> list[Sums]:
    """The weights of the rows in the mean squares of the features."""
    return [_sums(block.share[0], np.ones_like(block.share[0]))]


def combined(terms: Sequence[tuple[Array, Sums]]) -> list[Sums]:
    """The slopes of one sum that combines others, each by multipliers (P,) of its groups."""
    rows: Any = 0.0
    unit = 0.0
    for multipliers, one in terms:
        if multipliers.any() and one.unit:
            index: Any = 0 if one.group is None else one.group
            rows = rows + _times(np.append(multipliers, 0.0)[index], one.rows)
            unit += float(np.abs(multipliers).max()) * one.unit
    return [Sums(rows, unit)] if unit else []


def groups_of(weights: Array, parts: Parts) -> Index:
    """(m,) the group of each row of one client with weights (1, m); -1 of none."""
    group = np.full(weights.shape[1], -1)
    for g, rows in enumerate(_groups(weights, parts)[0]):
        group[rows] = g
    return group


def _sums(weights: Array, slopes: Array, group: Index | None = None) -> Sums:
    return Sums(_times(weights, slopes), float(np.abs(weights).max(initial=0.0)), group)


def _times(weights: Array, slopes: Array) -> Array:
    return weights * slopes if slopes.ndim == 1 else weights[..., None] * slopes


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
