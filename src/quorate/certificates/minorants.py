"""Minorants of convex Lagrangians, by Fenchel's inequality row by row: what ``constrained`` proves bounds with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.problem.clients import client_slopes, row_shares
from quorate.problem.conjugates import clipped_slopes, loss_conjugate
from quorate.problem.constraints.constraint import Point, added
from quorate.problem.losses import Quadratic
from quorate.problem.ranked import has_rank_coordinate
from quorate.problem.regularisers import L2, Bounds, ElasticNet

FAINT = 1e-6  # rows count at least this much in the size of what cancels, also where their slopes all but vanish


def minorant(at: Point, prior: Array | None, terms: Sequence[Any], shift: Array) -> tuple[Array, Array, Array, Array]:
    """Of sum_i prior_i f_i + <multipliers, c>: constants (n,), slopes (n, D), and the sizes of what each is a sum of.

    The slopes of the row losses are those at w, shifted along the linear map of ``shift`` and kept in their domain.
    """
    problem, block = at.problem, at.block
    n, D = at.models.shape
    rows: Array | None = None
    slopes, constants = np.zeros((n, D)), np.zeros(n)
    size, spread = np.zeros((n, D)), np.zeros(n)
    moved = Point(problem, at.w + shift, block) if shift.any() else at  # where what is not of rows is tangent
    for constraints, multipliers in terms:
        row, slope, constant = constraints.split(moved, multipliers)
        rows, slopes, constants = added(rows, row), slopes + slope, constants + constant
        each, weight = constraints.values(at), np.abs(multipliers)
        size = size + np.einsum("np,npd->nd", weight, np.abs(constraints.jacobian(at)))
        spread = spread + (weight * (np.abs(each) + np.abs(np.nan_to_num(constraints.limits(block))))).sum(1)
    spread = spread + (size * np.maximum(np.abs(at.models), np.abs(moved.models))).sum(1)
    if isinstance(problem.loss, Quadratic):
        if prior is not None:
            slope = prior[:, None] * client_slopes(moved)
            square = prior * (moved.models * moved.prediction).sum(1) / 2
            size = size + prior[:, None] * (np.abs(moved.prediction) + np.abs(block.y))
            return constants - square, slopes + slope, size, spread + np.abs(square)
        return constants, slopes, size, spread
    if prior is not None:
        rows = added(rows, prior[:, None] * row_shares(problem, block))
    if rows is None or not (problem.loss.smooth and has_rank_coordinate(problem.loss)):
        return constants, slopes, size, spread
    loss, y = problem.loss, block.y
    slope = loss.slope(at.prediction, y) + loss.curvature(at.prediction, y) * problem.predictor.forward(shift, block)
    slope = clipped_slopes(loss, slope, y)
    conjugate = np.where(rows > 0, rows * loss_conjugate(loss, slope, y), 0.0)
    back = problem.predictor.backward
    absolute = back(at.w, rows * (np.abs(slope) + FAINT), replace(block, X=abs(block.X)))
    constants, spread = constants - conjugate.sum(1), spread + np.abs(conjugate).sum(1)
    return constants, slopes + back(at.w, rows * slope, block), size + absolute, spread


def locked(at: Point, prior: Array, terms: Sequence[Any], shift: Array) -> Array:
    """The Hessian of rows whose slopes the shift has led to the end of their domain, in the Lagrangian, (1, D, D)."""
    problem, block = at.problem, at.block
    if isinstance(problem.loss, Quadratic) or not shift.any() or not has_rank_coordinate(problem.loss):
        return np.zeros((1, at.w.shape[-1], at.w.shape[-1]))
    loss, y = problem.loss, block.y
    rows: Array | None = prior[:, None] * row_shares(problem, block)
    for constraints, multipliers in terms:
        rows = added(rows, constraints.split(at, multipliers)[0])
    assert rows is not None
    curvature = loss.curvature(at.prediction, y)
    slope = loss.slope(at.prediction, y) + curvature * problem.predictor.forward(shift, block)
    ended = clipped_slopes(loss, slope, y) != slope
    return problem.predictor.gram(rows * curvature * ended, block)[None]


def in_domain(h: Any, s: Array) -> Array:
    """A point of the domain of h* near s."""
    if math.isfinite(h.conjugate(s)):
        return s
    if isinstance(h, Bounds):
        return np.clip(s, np.where(np.isfinite(h.lower), -np.inf, 0.0), np.where(np.isfinite(h.upper), np.inf, 0.0))
    s = s - h.prox(s, 1.0)  # by Moreau's identity the prox of h*, and where h* is an indicator the projection
    inner = ((1 - shrink) * s for shrink in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-10))  # rounding leaves it outside
    return next((near for near in inner if math.isfinite(h.conjugate(near))), s)


def ridge(h: Any) -> float:
    """The curvature of a regulariser, the same in all coefficients."""
    return h.strength if isinstance(h, L2) else h.l2 if isinstance(h, ElasticNet) else 0.0


def pseudosolve(matrix: Array, right: Array) -> Array:
    """The pseudoinverse, in units of the diagonal's root, of a positive semidefinite matrix times a vector."""
    if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
        return np.zeros_like(right)
    root = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    units = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2 * np.outer(units, units))
    keep = values > 1e-14 * max(float(values[-1]), 1e-300)
    return units * (vectors[:, keep] @ ((vectors[:, keep].T @ (units * right)) / values[keep]))
