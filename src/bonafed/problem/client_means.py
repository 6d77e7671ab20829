"""f_i(w), the mean loss of every client of a block, with gradient and Hessian, and the shape of
per-client settings.

For methods that use second derivatives or local steps: the samples' risk is the mean, of all rows
or of one class.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from bonafed.arrays import Array, Block, compact
from bonafed.problem.constraints.constraint import Objective, Point, Stack, added
from bonafed.problem.losses import Logistic, Multinomial, Quadratic, check_numbers_of_classes
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.wasserstein.ball import Cut

Terms = Sequence[tuple[Stack, Array]]  # constraints with their multipliers (n, p)


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
    slopes = row_shares(problem, block) * problem.loss.gradient(point.prediction, block.y)
    return problem.predictor.backward(point.w, slopes, block)


def row_curvatures(point: Point, evenly: bool = False) -> Array:
    """(n, m) the second derivatives of the rows' losses by their predictions; ``evenly``: where
    these jump, so that two sums may differ by few rows, the largest that there is.
    """
    loss, prediction = point.problem.loss, point.prediction
    if evenly and not getattr(loss, "bends_evenly", False):
        return np.full_like(prediction, getattr(loss, "steepest_curvature", 1.0))
    return loss.curvature(prediction, point.block.y)


def curvatures(
    point: Point, weights: Array | None, terms: Terms, evenly: bool = False
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
    point: Point, weights: Array | None, terms: Terms, together: bool, evenly: bool = False
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
    total: Array | None = None
    if rows is not None and together:
        total = problem.predictor.gram(rows, block)[None]
    elif rows is not None:
        total = problem.predictor.grams(rows, block)
    if matrices is not None:
        total = added(total, matrices.sum(0, keepdims=True) if together else matrices)
    return np.zeros((1 if together else n, D, D)) if total is None else total


def hessian_diagonals(point: Point, weights: Array | None, terms: Terms) -> Array:
    """The diagonals (n, D) of ``hessians``, at the cost of a gradient."""
    rows, matrices = curvatures(point, weights, terms)
    total = np.zeros(point.models.shape)
    if rows is not None:
        squared = replace(point.block, X=point.block.X * point.block.X)
        total += point.problem.predictor.backward(point.w, rows, squared)
    if matrices is not None:
        total += np.einsum("ndd->nd", matrices)
    return total


# Mean losses of clients and their gradients by one compiled pass over the rows: of linear and small
# softmax models.
#
# A library of linear algebra is called twice for every client, and NumPy a dozen times for the
# block: with some twenty rows a client that is most of the time of a gradient step.

# Entries of the matrix of a softmax model with its columns filled up to eights. Beyond some 4,000
# with AVX-512 and some 2,500 with AVX2 the libraries are up to a fifth quicker where clients have
# 20 rows; with thousands of rows they never are (measured). What decides may not depend on the
# rows: a client's numbers would then depend on which clients share its block. A linear model of
# 3,000 coefficients still is a fifth quicker here: its rows are read once, not twice.
MOST = 2400


def in_one_pass(problem: Objective, w: Array, block: Block) -> Cut | None:
    """``problem.cut`` at w, (D,) or (n, D), where the samples' risk is the mean.

    None where it is not, where this is not the way, or where w is wrong.
    """
    # subclasses may mean something else by theirs
    pair = type(problem.loss), type(problem.predictor)
    if pair not in _PASSES or not _suits(w, block.X) or by_rank(problem.over_samples):
        return None
    both = _PASSES[pair](problem, w if w.ndim > 1 else w[None], block)
    if both is None:
        return None
    risks, gradients = both
    zero = np.zeros(len(block.index))
    return Cut(risks, zero, gradients, zero)


def _suits(w: Array, X: "Array | csr_array") -> bool:
    if not isinstance(X, np.ndarray) or X.dtype != np.float64 or w.dtype != np.float64:
        return False
    return X.flags.c_contiguous and X.flags.aligned and (w.ndim == 1 or w.shape[:-1] == X.shape[:1])


def _softmax(problem: Objective, w: Array, block: Block) -> tuple[Array, Array] | None:
    classes = problem.predictor.classes or w.shape[1] // block.n_features
    if classes * block.n_features != w.shape[1] or block.n_features * -(-classes // 8) * 8 > MOST:
        return None
    from bonafed.solvers.kernels.multinomial import risks_and_gradients

    check_numbers_of_classes(block.y, classes)
    rows = block.X, compact(block.y), compact(row_shares(problem, block))
    return risks_and_gradients(*rows, compact(w), classes)


def _linear(problem: Objective, w: Array, block: Block) -> tuple[Array, Array] | None:
    if w.shape[1] != problem.predictor.dimension(block.n_features):
        return None
    from bonafed.solvers.kernels.logistic import risks_and_gradients

    rows = block.X, compact(block.y), compact(row_shares(problem, block))
    return risks_and_gradients(*rows, compact(w))


_PASSES = {(Multinomial, Softmax): _softmax, (Logistic, Linear): _linear}
