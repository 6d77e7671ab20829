"""Models seen as flat vectors: the prediction of every row and its transpose, for a block of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from quorate.arrays import Array, Block


class Predictor(Protocol):
    """A model f_w, with w a flat float64 vector (D,), or (n, D) for one model per client of the block."""

    def dimension(self, n_features: int) -> int:
        """D."""
        ...

    def forward(self, w: Array, block: Block) -> Array:
        """Predictions (n, m)."""
        ...

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        """``sum_i s_i d f_w(x_i) / dw`` as (n, D) for s (n, m)."""
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

    def gram(self, s: Array, block: Block) -> Array:
        """``sum_i s_i x_i x_i'`` over the whole block as (D, D), with x_i extended by 1 for an intercept."""
        square = block.gram(s)
        if not self.intercept:
            return square
        edge = block.backward(s).sum(0)
        return np.block([[square, edge[:, None]], [edge[None, :], np.array([[s.sum()]])]])
