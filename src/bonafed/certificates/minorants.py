"""Affine minorants of convex Lagrangians, by Fenchel's inequality row by row.

``certificates.constrained`` proves its bounds with them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.client_means import client_gradients, curvatures, row_shares
from bonafed.problem.constraints.constraint import (
    Point,
    Stack,
    added,
    magnitudes_of_rows,
    most_added,
)
from bonafed.problem.losses import Quadratic
from bonafed.problem.rank_coordinates import clipped_gradients, has_conjugate, loss_conjugate
from bonafed.problem.regularisers import L2, Bounds, ElasticNet, Regulariser, SupportsConjugate

UNIT = float(np.finfo(float).eps) / 2  # the relative error of one operation


class AffineMinorant(NamedTuple):
    """constant + <gradient, w> for each of n clients, as it was computed.

    A sum of k terms is off by at most k UNIT times the sum of their sizes, up to second order, and
    a product of k numbers by k UNIT times its size.
    """

    constant: Array  # (n,)
    gradient: Array  # (n, D)
    size: Array  # (n, D) at least the sizes of the terms of the gradient
    spread: Array  # (n,) and of those of the constant
    terms: Array  # (n,) how many terms an entry of the gradient has at most


def minorant(
    point: Point, prior: Array | None, terms: Sequence[Any], shift: Array
) -> AffineMinorant:
    """An affine minorant of sum_i prior_i f_i + <multipliers, c> for every client.

    The gradients of the row losses are those at w, shifted along the linear map of ``shift`` and
    clipped to their domain.
    """
    problem, block = point.problem, point.block
    n, D = point.models.shape
    rows: Array | None = None
    gradients, constants = np.zeros((n, D)), np.zeros(n)
    size, spread, count = np.zeros((n, D)), np.zeros(n), np.zeros(n)
    # the point of tangency of all parts but the row losses, and those without second derivatives,
    # whose gradients at another point nobody knows before
    moved = Point(problem, point.w + shift, block) if shift.any() else point
    for constraints, multipliers in terms:
        kinds = zip((moved, point), constraints.by_curvature(multipliers), strict=True)
        for at, (part, mine) in kinds:
            row, gradient, constant = part.split(at, mine)
            rows = added(rows, row)
            gradients, constants = gradients + gradient, constants + constant
        each, weight = constraints.values(point), np.abs(multipliers)
        size = size + constraints.magnitudes(point, weight)
        count = count + constraints.size
        limits = np.abs(np.nan_to_num(constraints.limits(block)))
        spread = spread + (weight * (np.abs(each) + limits)).sum(1)
    spread = spread + (size * np.maximum(np.abs(point.models), np.abs(moved.models))).sum(1)
    if isinstance(problem.loss, Quadratic):
        if prior is not None:
            gradient = prior[:, None] * client_gradients(moved)
            square = prior * (moved.models * moved.prediction).sum(1) / 2
            sizes = np.abs(moved.models)[:, :, None]
            products = np.matmul(np.abs(np.asarray(block.X)), sizes)[:, :, 0]
            size = size + prior[:, None] * (products + np.abs(block.y))
            spread = spread + prior * (np.abs(moved.models) * products).sum(1)
            return AffineMinorant(constants - square, gradients + gradient, size, spread, count)
        return AffineMinorant(constants, gradients, size, spread, count)
    if prior is not None:
        rows = added(rows, prior[:, None] * row_shares(problem, block))
    if rows is None or not (problem.loss.smooth and has_conjugate(problem.loss)):
        return AffineMinorant(constants, gradients, size, spread, count)
    loss, y = problem.loss, block.y
    change = loss.curvature(point.prediction, y) * problem.predictor.forward(shift, block)
    gradient = clipped_gradients(loss, loss.gradient(point.prediction, y) + change, y)
    conjugate = np.where(rows > 0, loss_conjugate(loss, gradient, y), 0.0)
    return AffineMinorant(
        constants - (rows * conjugate).sum(1),
        gradients + problem.predictor.backward(point.w, rows * gradient, block),
        size + magnitudes_of_rows(point, rows, gradient),
        spread + most_added(np.abs(rows), conjugate),
        count + (rows != 0).sum(1),
    )


def curved(terms: Sequence[tuple[Stack, Array]]) -> list[tuple[Stack, Array]]:
    """The constraints with second derivatives, with their multipliers."""
    return [constraints.by_curvature(multipliers)[0] for constraints, multipliers in terms]


def locked(point: Point, prior: Array, terms: Sequence[Any], shift: Array) -> Array:
    """The Hessian, (1, D, D), of the rows whose gradients reached the end of their domain.

    The shift led them there; it is their part of the Hessian of the Lagrangian.
    """
    rows = _locked_rows(point, prior, terms, shift)
    if rows is None:
        return np.zeros((1, point.w.shape[-1], point.w.shape[-1]))
    return point.problem.predictor.gram(rows, point.block)[None]


def _locked_rows(point: Point, prior: Array, terms: Sequence[Any], shift: Array) -> Array | None:
    """The curvature (n, m) of those rows; None: zero."""
    problem, block = point.problem, point.block
    if isinstance(problem.loss, Quadratic) or not shift.any() or not has_conjugate(problem.loss):
        return None
    loss, y = problem.loss, block.y
    rows: Array | None = prior[:, None] * row_shares(problem, block)
    for constraints, multipliers in terms:
        rows = added(rows, constraints.split(point, multipliers)[0])
    assert rows is not None
    curvature = loss.curvature(point.prediction, y)
    change = curvature * problem.predictor.forward(shift, block)
    gradient = loss.gradient(point.prediction, y) + change
    return rows * curvature * (clipped_gradients(loss, gradient, y) != gradient)


def hessian_product(
    point: Point, prior: Array | None, terms: Sequence[Any], shift: Array, direction: Array
) -> Array:
    """The Hessian of a client's part of the Lagrangian, without the rows of `locked`, times a
    direction, (n, D).
    """
    problem, block = point.problem, point.block
    rows, matrices = curvatures(point, prior, curved(terms))
    total = np.zeros(point.models.shape)
    if rows is not None:
        ended = None if prior is None else _locked_rows(point, prior, terms, shift)
        rows = rows if ended is None else rows - ended
        along = problem.predictor.forward(direction, block)
        total = problem.predictor.backward(point.w, rows * along, block)
    return total if matrices is None else total + matrices @ direction


def hessian_diagonal(point: Point, prior: Array | None, terms: Sequence[Any]) -> Array:
    """The diagonal (n, D) of the Hessian of a client's part of the Lagrangian."""
    problem, block = point.problem, point.block
    rows, matrices = curvatures(point, prior, curved(terms))
    total = np.zeros(point.models.shape)
    if rows is not None:
        squares = replace(block, X=block.X * block.X)
        total = problem.predictor.backward(point.w, rows, squares)
    return total if matrices is None else total + np.einsum("ndd->nd", matrices)


def in_domain(h: SupportsConjugate, s: Array) -> Array:
    """A point of the domain of h* near s."""
    if math.isfinite(h.conjugate(s)):
        return s
    if isinstance(h, Bounds):
        return h.pushes(s)
    # by Moreau's identity this is the prox of h*, and where h* is an indicator the projection
    s = s - h.prox(s, 1.0)
    # rounding may leave it just outside
    inner = ((1 - shrink) * s for shrink in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-10))
    return next((near for near in inner if math.isfinite(h.conjugate(near))), s)


def ridge(h: Regulariser) -> float:
    """The curvature of a regulariser, the same in all coefficients."""
    return h.strength if isinstance(h, L2) else h.l2 if isinstance(h, ElasticNet) else 0.0


def pseudosolve(matrix: Array, right: Array) -> Array:
    """The pseudoinverse of a positive semidefinite matrix times a vector.

    It is taken in units of the root of the diagonal.
    """
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        return np.zeros_like(right)
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    units = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2 * np.outer(units, units))
    keep = values > 1e-14 * max(float(values[-1]), 1e-300)
    return units * (vectors[:, keep] @ ((vectors[:, keep].T @ (units * right)) / values[keep]))
