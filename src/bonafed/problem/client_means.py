"""f_i(w), the mean loss of every client of a block, with gradient and Hessian, and the shape of
per-client settings.

For methods that use second derivatives or local steps: the samples' risk is the mean, of all rows
or of one class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.problem.constraints.constraint import Objective, Point, Stack, added
from bonafed.problem.losses import Quadratic


def row_shares(problem: Objective, block: Block) -> Array:
    """(n, m) weights of the rows in the client's mean: of all rows, or of those of
    ``Mean(label=...)``; sum 1 or 0.
    """
    code = getattr(problem.over_samples, "code", None)
    if code is None:
        return block.share
    inside = np.where(block.y == code, block.share, 0.0)
    mass = inside.sum(1, keepdims=True)
    return np.divide(inside, mass, out=np.zeros_like(inside), where=mass > 0)


def client_values(point: Point) -> Array:
    """f_i(w), (n,)."""
    problem, block = point.problem, point.block
    if isinstance(problem.loss, Quadratic):
        return (point.models * (point.prediction / 2 + block.y)).sum(1)
    return (row_shares(problem, block) * problem.loss.value(point.prediction, block.y)).sum(1)


def client_gradients(point: Point) -> Array:
    """f_i'(w), (n, D)."""
    problem, block = point.problem, point.block
    if isinstance(problem.loss, Quadratic):
        return point.prediction + block.y
    return problem.predictor.backward(
        point.w,
        row_shares(problem, block) * problem.loss.gradient(point.prediction, block.y),
        block,
    )


def row_curvatures(point: Point, evenly: bool = False) -> Array:
    """(n, m) the second derivatives of the rows' losses by their predictions; ``evenly``: where
    these jump, so that two sums may differ by few rows, the largest that there is.
    """
    loss, prediction = point.problem.loss, point.prediction
    if evenly and not getattr(loss, "bends_evenly", False):
        return np.full_like(prediction, getattr(loss, "steepest_curvature", 1.0))
    return loss.curvature(prediction, point.block.y)


def curvatures(
    point: Point,
    weights: Array | None,
    terms: Sequence[tuple[Stack, Array]],
    evenly: bool = False,
) -> tuple[Array | None, Array | None]:
    """The matrices of `hessians` as weights (n, m) of the rows' x x', and as matrices (n, D, D) of
    what is not a sum over rows; None: zero.
    """
    problem, block = point.problem, point.block
    rows: Array | None = None
    matrices: Array | None = None
    if weights is not None and isinstance(problem.loss, Quadratic):
        matrices = weights[:, None, None] * np.asarray(block.X)
    elif weights is not None:
        rows = weights[:, None] * row_shares(problem, block) * row_curvatures(point, evenly)
    for constraints, multipliers in terms:
        row, matrix = constraints.curvature(point, multipliers)
        rows, matrices = added(rows, row), added(matrices, matrix)
    return rows, matrices


def hessians(
    point: Point,
    weights: Array | None,
    terms: Sequence[tuple[Stack, Array]],
    together: bool,
    evenly: bool = False,
) -> Array:
    """weights_i f_i'' + sum of the stacks' multipliers_ik c_ik'', (n, D, D), or added up over the
    block (1, D, D).

    Parameters
    ----------
    weights : (n,), or None: without the objective
    terms : stacks of constraints with their multipliers (n, p)
    evenly : as of `row_curvatures`
    """
    problem, block = point.problem, point.block
    rows, matrices = curvatures(point, weights, terms, evenly)
    n, D = point.models.shape
    total = np.zeros((1 if together else n, D, D))
    if rows is not None:
        total += (
            problem.predictor.gram(rows, block)[None]
            if together
            else problem.predictor.grams(rows, block)
        )
    if matrices is not None:
        total += matrices.sum(0, keepdims=True) if together else matrices
    return total


def hessian_diagonals(point: Point, weights: Array, terms: Sequence[tuple[Stack, Array]]) -> Array:
    """The diagonals (n, D) of ``hessians``, at the cost of a gradient."""
    rows, matrices = curvatures(point, weights, terms)
    total = np.zeros(point.models.shape)
    if rows is not None:
        squared = replace(point.block, X=point.block.X * point.block.X)
        total += point.problem.predictor.backward(point.w, rows, squared)
    if matrices is not None:
        total += np.einsum("ndd->nd", matrices)
    return total
