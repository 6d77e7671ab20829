"""A client's sum of clipped gradients of a torch module, whose rows are passed one by one.

The gradient g_i of a row is rounded to whole numbers,

    k_i = round(min(1, C / ||g_i||) g_i steps / C),

and ||k_i|| <= steps is checked in integers, so that rounding is inside the sensitivity, as in
``integer_gradient``. The sum of the k_i is exact in any order.

Libraries choose their instructions by the shape of a product: in a batch, the last bits of a row's
gradient change with the number of rows beside it, so that one record more would move the others'
k_i. Every row therefore has a separate pass, always of the same shape, and k_i is a function of
the row, the model, the machine and its libraries only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.federated.private.integer_gradient import shortened
from bonafed.algorithms.federated.private.mechanism import Grid, Mechanism
from bonafed.arrays import Array, Block
from bonafed.problem.problem import Problem


def whole_sum(
    problem: Problem,
    clip: float,
    grid: Grid,
    v: Array,
    data: Block,
    i: int,
    at: NDArray[np.intp] | None = None,
) -> NDArray[np.int64]:
    """The integer sum (D,) of the gradients of client i's rows, or of those ``at`` some positions,
    at the model v, in grid steps.
    """
    total = np.zeros(len(v), np.int64)
    for g in _gradients(problem, v, data, i, at):
        total += rounded(g, clip, grid)
    return grid.held(total)


def real_sum(problem: Problem, mechanism: Mechanism, v: Array, data: Block, i: int) -> Array:
    """The sum in doubles, for runs that guarantee nothing."""
    total = np.zeros(len(v))
    for g in _gradients(problem, v, data, i):
        long = float(np.linalg.norm(g, mechanism.norm))
        total += g * (mechanism.clip / long) if long > mechanism.clip else g
    return total


def rounded(g: Array, clip: float, grid: Grid) -> NDArray[np.int64]:
    """A row's gradient (D,) on the grid, of norm at most ``steps``.

    One with numbers that are not finite counts for nothing.
    """
    top = float(np.abs(g).max(initial=0.0))
    if not 0 < top < np.inf:
        return np.zeros(len(g), np.int64)
    g = g / top  # so that no square overflows
    long, steps = float(np.linalg.norm(g, grid.norm)), grid.steps
    with np.errstate(over="ignore"):
        factor = min(np.float64(top) / clip * steps, steps / long)
    size = np.ones(1, np.int64)
    return shortened(np.rint(g * factor)[None], size, grid)[0].astype(np.int64)


def _gradients(
    problem: Problem, v: Array, data: Block, i: int, at: NDArray[np.intp] | None = None
) -> Iterator[Array]:
    """The gradients (D,) of client i's rows at the model v, one by one."""
    module: Any = problem.predictor
    m = int((data.share[i] > 0).sum())
    X = data.X[i, :m] if isinstance(data.X, np.ndarray) else data.X[:m].toarray()
    y = data.y[i, :m]
    if at is not None:
        X, y = X[at], y[at]

    def slope(prediction: Array, row: int) -> Array:
        """The loss's gradient in the predictions (1, K) of a row."""
        several = problem.loss.targets == "class"
        given = prediction if several else prediction[:, 0]
        with np.errstate(all="ignore"):
            return problem.loss.gradient(given, y[row : row + 1])

    return module.row_gradients(v, X, slope)
