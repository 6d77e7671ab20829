"""Models seen as flat vectors: the prediction of every row and its transpose, for a block of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from quorate.arrays import Array, Block


class Predictor(Protocol):
    """A model f_w, with w a flat float64 vector (D,), or (n, D) for one model per client of the block."""

    def dimension(self, n_features: int) -> int:
        """D."""
        ...

    def forward(self, w: Array, block: Block) -> Array:
        """Predictions (n, m), or (n, m, C)."""
        ...

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        """``sum_i s_i d f_w(x_i) / dw`` as (n, D) for s of the predictions' shape."""
        ...


@dataclass(frozen=True)
class Linear:
    """<w, x>, or <w, x> + b with ``intercept=True``: then b is the last entry of w, free of norms and regularisers."""

    intercept: bool = False

    def dimension(self, n_features: int) -> int:
        return n_features + self.intercept

    def split(self, w: Array) -> tuple[Array, Array | float]:
        """Coefficients and intercept (0 without one)."""
        return (w[..., :-1], w[..., -1]) if self.intercept else (w, 0.0)

    def forward(self, w: Array, block: Block) -> Array:
        coefficients, b = self.split(w)
        return block.forward(coefficients) + np.asarray(b)[..., None]

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        slope = block.backward(s)
        return np.concatenate([slope, s.sum(1, keepdims=True)], 1) if self.intercept else slope

    def units(self, sizes: Array) -> Array:
        """The size (D,) of what each entry of w multiplies, for features of sizes (d,)."""
        return np.append(sizes, 1.0) if self.intercept else sizes

    def gram(self, s: Array, block: Block) -> Array:
        """``sum_i s_i x_i x_i'`` over the whole block as (D, D), with x_i extended by 1 for an intercept."""
        square = block.gram(s)
        if not self.intercept:
            return square
        edge = block.backward(s).sum(0)
        return np.block([[square, edge[:, None]], [edge[None, :], np.array([[s.sum()]])]])

    def grams(self, s: Array, block: Block) -> Array:
        """``X_i' diag(s_i) X_i`` of every client, (n, D, D), with rows extended by 1 for an intercept."""
        square = block.grams(s)
        if not self.intercept:
            return square
        edge = block.backward(s)[:, :, None]
        return np.block([[square, edge], [edge.transpose(0, 2, 1), s.sum(1)[:, None, None]]])


@dataclass(frozen=True)
class Softmax:
    """<w_c, x> for every class c; w is the (d, C) matrix of coefficients, row by row: C numbers a feature.

    For an intercept of every class give the data a feature of ones; its coefficients are regularised as all others.

    Parameters
    ----------
    classes : C; None: the number of classes of the data, set by ``problem.at(fed)``
    """

    classes: int | None = None
    intercept: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.classes is not None and self.classes < 2:
            raise ValueError(f"classes must be >= 2, got {self.classes}. For numbers use Linear().")

    def dimension(self, n_features: int) -> int:
        if self.classes is None:
            raise ValueError(
                "Softmax() knows its classes from the data: use problem.at(fed), or give Softmax(classes)."
            )
        return n_features * self.classes

    def split(self, w: Array) -> tuple[Array, float]:
        """Coefficients, and no intercept."""
        return w, 0.0

    def forward(self, w: Array, block: Block) -> Array:
        matrix = w.reshape(*w.shape[:-1], block.n_features, -1)
        if not isinstance(block.X, np.ndarray):
            return np.asarray(block.X @ matrix.reshape(matrix.shape[-2:]))[None]
        return np.matmul(block.X, matrix)

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        if not isinstance(block.X, np.ndarray):
            return np.asarray(block.X.T @ s[0]).reshape(1, -1)
        return np.matmul(block.X.transpose(0, 2, 1), s).reshape(len(s), -1)

    def units(self, sizes: Array) -> Array:
        """The size (D,) of what each entry of w multiplies, for features of sizes (d,)."""
        return np.repeat(sizes, self.dimension(1))
