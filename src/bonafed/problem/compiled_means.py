"""Mean losses of clients and their gradients by one compiled pass over the rows: of linear and
small softmax models.

A library of linear algebra is called twice for every client, and NumPy a dozen times for the block:
with some twenty rows a client that is most of the time of a gradient step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from bonafed.arrays import Array, Block, compact
from bonafed.problem.client_means import row_shares
from bonafed.problem.constraints.constraint import Objective
from bonafed.problem.losses import Logistic, Multinomial, check_numbers_of_classes
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.wasserstein.ball import Cut

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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


def _plain(X: Array | csr_array) -> TypeGuard[Array]:
    return (
        isinstance(X, np.ndarray)
        and X.dtype == np.float64
        and X.flags.c_contiguous
        and X.flags.aligned
    )


def _suits(w: Array, X: Array | csr_array) -> bool:
    return _plain(X) and w.dtype == np.float64 and (w.ndim == 1 or w.shape[:-1] == X.shape[:1])


def _too_many(classes: int, block: Block) -> bool:
    return block.n_features * -(-classes // 8) * 8 > MOST


def _softmax(problem: Objective, w: Array, block: Block) -> tuple[Array, Array] | None:
    classes = problem.predictor.classes or w.shape[1] // block.n_features
    if classes * block.n_features != w.shape[1] or _too_many(classes, block):
        return None
    from bonafed.solvers.kernels.multinomial import risks_and_gradients

    check_numbers_of_classes(block.y, classes)
    return risks_and_gradients(
        block.X, compact(block.y), compact(row_shares(problem, block)), compact(w), classes
    )


def _linear(problem: Objective, w: Array, block: Block) -> tuple[Array, Array] | None:
    if w.shape[1] != problem.predictor.dimension(block.n_features):
        return None
    from bonafed.solvers.kernels.logistic import risks_and_gradients

    return risks_and_gradients(
        block.X, compact(block.y), compact(row_shares(problem, block)), compact(w)
    )


_PASSES = {(Multinomial, Softmax): _softmax, (Logistic, Linear): _linear}
