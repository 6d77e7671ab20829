"""A client's curvature matrix in integers, and what private intervals need beside it.

A row's matrix is c x x', c the second derivative of its loss. Its numbers

    v = (S x_j^2 c,  sqrt(2) S x_j x_k c, j < k),     ||v||_2 = S c ||x||^2,

are rounded to integers, whose norm is then checked in integers to be at most ``steps``: rounding is
inside the sensitivity, as that of gradients is (`integer_gradient`). The root of two makes the l2
norm of the upper triangle that of the whole matrix. Rows whose matrix is longer are shortened. A
row's numbers depend on that row and the model only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms.federated.private.float_gradient import Rows
from bonafed.algorithms.federated.private.integer_gradient import (
    MANY,
    STEEP,
    WHOLE,
    IntegerRows,
    product,
)
from bonafed.algorithms.federated.private.mechanism import Grid, Mechanism
from bonafed.arrays import Array, Block
from bonafed.problem.constraints.constraint import once
from bonafed.problem.problem import Problem

ROOT = math.sqrt(2.0)
LONG = 1 + 1e-9  # rows of the bound's length, but for rounding, are not shortened


def entries(dimension: int) -> int:
    """How many numbers a symmetric matrix has."""
    return dimension * (dimension + 1) // 2


def unpacked(numbers: Array, dimension: int) -> Array:
    """The symmetric matrix (D, D) of its upper triangle, whose entries off the diagonal stand times
    the root of two.
    """
    upper = np.zeros((dimension, dimension))
    upper[np.triu_indices(dimension)] = numbers
    diagonal = np.diag(np.diag(upper))
    return diagonal + (upper - diagonal + (upper - diagonal).T) / ROOT


def packed(matrix: Array) -> Array:
    """The inverse of `unpacked`."""
    scaled = ROOT * matrix
    np.fill_diagonal(scaled, np.diag(matrix))
    return scaled[np.triu_indices(len(matrix))]


@dataclass(frozen=True)
class Caps:
    """The public bounds on what one row counts for.

    Attributes
    ----------
    gradient : its norm
    matrix : c ||x||^2
    square : of its squared residual; None where none are counted
    """

    gradient: float
    matrix: float
    square: float | None


def integer_matrix(
    problem: Problem, cap: float, grid: Grid, rows: IntegerRows, v: Array
) -> NDArray[np.int64]:
    """The sum of the rows' curvature matrices at the model v, (D (D + 1) / 2,) in steps of a grid
    where the cap on a row's matrix is ``grid.steps``.
    """
    total = np.zeros(entries(rows.U.shape[1]), np.int64)
    for here, U, S in _tiles(rows, v):
        with np.errstate(all="ignore"):  # whatever rows and model are, no row counts for more
            c = np.asarray(problem.loss.curvature(S, rows.y[here]), float)
            c = np.clip(np.nan_to_num(c, nan=0.0, posinf=STEEP, neginf=0.0), 0.0, STEEP)
            most = np.minimum(c * rows.length[here] ** 2 / cap, 1.0)
            factor = np.where(rows.length[here] > 0, most * grid.steps / rows.size[here], 0.0)
        _add_matrices(U, factor, grid.steps, total)
    return grid.held(total)


def integer_counts(
    problem: Problem,
    grid: Grid,
    caps: Caps,
    rows: IntegerRows,
    shortened: NDArray[np.bool_],
    v: Array,
) -> NDArray[np.int64]:
    """The rows that some bound shortens, and before it, where squares are counted, the sum of the
    squared residuals, in steps of the grid.
    """
    squares = caps.square is not None
    whole = math.isqrt(grid.steps**2 // (1 + squares))
    total = np.zeros(1 + squares, np.int64)
    for here, _, S in _tiles(rows, v):
        length, y = rows.length[here], rows.y[here]
        with np.errstate(all="ignore"):
            r = np.abs(np.asarray(problem.loss.gradient(S, y), float))
            r = np.clip(np.nan_to_num(r, nan=STEEP, posinf=STEEP), 0.0, STEEP)
            c = np.nan_to_num(problem.loss.curvature(S, y), nan=0.0, posinf=STEEP)
            over = shortened[here] | (r * length > caps.gradient * LONG)
            over |= c * length**2 > caps.matrix * LONG
            if caps.square is not None:
                over |= r * r > caps.square
                square = np.rint(np.minimum(r * r / caps.square, 1.0) * whole)
                total[0] += np.where(length > 0, square, 0.0).astype(np.int64).sum()
        total[-1] += whole * int((over & (length > 0)).sum())
    return grid.held(total)


def shortened_rows(mechanism: Mechanism, data: Block, i: int) -> NDArray[np.bool_]:
    """Which rows of client i are longer than the bound, as long as those of `IntegerRows`."""

    def made() -> NDArray[np.bool_]:
        m = int((data.share[i] > 0).sum())
        X = np.asarray(data.X)[i, :m] if isinstance(data.X, np.ndarray) else data.X[:m].toarray()
        with np.errstate(all="ignore"):
            long = ~(np.linalg.norm(np.asarray(X, float), axis=1) <= mechanism.bound * LONG)
        return np.append(long, np.zeros(-m % WHOLE, bool))

    return once(data, ("shortened rows", i, mechanism.bound), made)


def float_matrix(problem: Problem, mechanism: Mechanism, data: Block, i: int, v: Array) -> Array:
    """The sum of client i's curvature matrices (D, D), without noise and grid."""
    rows = Rows.of(problem, mechanism, data)
    m = int(rows.count[i])
    X = np.asarray(data.X)[i, :m] if isinstance(data.X, np.ndarray) else data.X[:m].toarray()
    X = np.asarray(X, float) * rows.factor[i, :m, None]
    X = np.column_stack([X, np.ones(m)]) if problem.predictor.intercept else X
    c = np.asarray(problem.loss.curvature(X @ v, data.y[i, :m]), float)
    return (X * c[:, None]).T @ X


def _tiles(rows: IntegerRows, v: Array) -> Iterator[tuple[slice, Array, Array]]:
    """(which rows, their directions, their predictions) of all rows, a part at a time."""
    m, D = rows.U.shape
    count = max(1, MANY // (D * WHOLE)) * WHOLE
    Z = np.asarray(v, float).reshape(D, 1)
    for first in range(0, m, count):
        here = slice(first, min(first + count, m))
        U = rows.U[here] if isinstance(rows.U, np.ndarray) else rows.U[here].toarray()
        U = np.ascontiguousarray(U, float)
        with np.errstate(all="ignore"):
            S = product(U, Z)[:, 0] * (rows.length[here] / rows.grid.direction)
        yield here, U, S


@njit(cache=True, nogil=True, error_model="numpy")
def _add_matrices(U, factor, steps, total):
    """Add to total the integer upper triangles of factor[i] U[i]' U[i]."""
    m, D = U.shape
    row, limit = np.empty(len(total)), np.int64(steps) * np.int64(steps)
    for i in range(m):
        f, at, square = factor[i], 0, np.int64(0)
        if not f > 0:
            continue
        for j in range(D):
            for k in range(j, D):
                entry = f * U[i, j] * U[i, k]
                entry = np.rint(entry if j == k else entry * ROOT)
                row[at] = entry
                square += np.int64(entry) * np.int64(entry)
                at += 1
        while square > limit:
            shrink = 0.999999 * math.sqrt(limit / np.float64(square))
            square = np.int64(0)
            for at in range(len(row)):
                row[at] = np.trunc(row[at] * shrink)
                square += np.int64(row[at]) * np.int64(row[at])
        for at in range(len(row)):
            total[at] += np.int64(row[at])
