"""A client's sum of clipped gradients in floating point, for runs that guarantee nothing.

These are runs without privacy, and those with the paper's own mechanisms. Answers that keep a
budget take their gradient from ``integer_gradient``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.federated.private import kernels
from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.arrays import Array, Block, unwritable, writable
from bonafed.problem.constraints.constraint import once
from bonafed.problem.losses import Multinomial
from bonafed.problem.problem import Problem


def precision(data: Block) -> np.dtype:
    """The type of a client's model: single precision where its rows are."""
    kind = data.X.dtype
    return kind if kind == np.float32 else np.dtype(float)


# larger gradients, also infinite ones, count as this large; by the bytes of a number
STEEP = {4: 1e30, 8: 1e100}


@dataclass(frozen=True, eq=False)
class Rows:
    """The numbers of a block's rows that the mechanism needs, computed once."""

    count: NDArray[np.int64]  # (n,) rows
    codes: NDArray[np.int32] | None  # (n, m) classes, where the compiled pass applies
    factor: Array  # (n, m) shortens a row to the bound
    length: Array  # (n, m) the norm of the shortened row, an intercept's 1 included

    @classmethod
    def of(cls, problem: Problem, mechanism: Mechanism, data: Block) -> Rows:
        key = "rows of private ADMM", mechanism.norm, mechanism.bound, problem.predictor.intercept
        return once(data, key, lambda: cls._computed(problem, mechanism, data))

    @classmethod
    def _computed(cls, problem: Problem, mechanism: Mechanism, data: Block) -> Rows:
        X, one = data.X, float(problem.predictor.intercept)
        if not isinstance(X, np.ndarray):
            length = (
                abs(X).sum(-1) if mechanism.norm == kernels.L1 else np.sqrt(X.multiply(X).sum(-1))
            )
        elif mechanism.norm == kernels.L1:
            length = np.stack([np.abs(rows).sum(-1, dtype=float) for rows in X])
        else:
            length = np.sqrt(np.einsum("nmd,nmd->nm", X, X, dtype=float))
        length = np.asarray(length, float)
        length = length.reshape(data.y.shape)
        with np.errstate(divide="ignore"):
            factor = np.minimum(1.0, mechanism.bound / length)
        length = (
            factor * np.where(length > 0, length, 0.0) if np.isfinite(mechanism.bound) else length
        )
        length = length + one if mechanism.norm == kernels.L1 else np.hypot(length, one)
        fused = isinstance(problem.loss, Multinomial) and isinstance(X, np.ndarray)
        codes = data.y.astype(np.int32) if fused else None
        dtype = precision(data)
        return cls((data.share > 0).sum(1), codes, factor.astype(dtype), length.astype(dtype))

    def value_and_gradient(
        self, problem: Problem, v: Array, data: Block, i: int
    ) -> tuple[float, Array]:
        """A client's sum of losses and its gradient, with rows shortened and nothing clipped."""
        block, m = data.part(np.array([i])), self.count[i]
        prediction = self._predicted(problem, v, block, i)
        alive = np.arange(block.y.shape[1]) < m
        gradient = problem.loss.gradient(prediction, block.y)
        gradient = np.where(_wide(alive, gradient), gradient, 0.0)
        value = float(np.where(alive, problem.loss.value(prediction, block.y), 0.0).sum())
        return value, self._back(problem, v, gradient, block, i)

    def gradient(
        self, problem: Problem, mechanism: Mechanism, v: Array, data: Block, i: int
    ) -> tuple[Array, float]:
        """The sum of client i's clipped gradients (D,), and the largest norm before clipping."""
        block, m = data.part(np.array([i])), self.count[i]
        if self.codes is not None:
            Z = writable(v).reshape(block.n_features, -1)
            G = np.empty_like(Z)
            client_rows = (
                unwritable(np.asarray(block.X))[0, :m],
                self.codes[i, :m],
                Z,
                self.factor[i, :m],
                self.length[i, :m],
            )
            largest = kernels.softmax_gradient(*client_rows, mechanism.clip, mechanism.norm, G)
            return G.reshape(-1), largest
        # whatever the rows and the model are, no row counts for more than clip
        with np.errstate(all="ignore"):
            gradient = problem.loss.gradient(self._predicted(problem, v, block, i), block.y)
            gradient = np.where(
                _wide(np.arange(block.y.shape[1]) < m, gradient), np.asarray(gradient, float), 0.0
            )
            if mechanism.clip < np.inf:
                most = STEEP[self.length.itemsize]
                gradient = np.clip(np.nan_to_num(gradient, posinf=most, neginf=-most), -most, most)
            flat = gradient.reshape(block.y.shape[1], -1)
            size = (
                np.abs(flat).sum(1) if mechanism.norm == kernels.L1 else np.sqrt((flat**2).sum(1))
            )
            size = size * self.length[i]
            shrink = np.where(size > mechanism.clip, mechanism.clip / size, 1.0)
            gradient = (gradient * _wide(shrink, gradient)).astype(self.length.dtype)
            return self._back(problem, v, gradient, block, i), float(size.max(initial=0.0))

    def _predicted(self, problem: Problem, v: Array, block: Block, i: int) -> Array:
        prediction = problem.predictor.forward(v[None], block)
        if not (self.factor[i] < 1).any():
            return prediction
        b = np.asarray(problem.predictor.split(v)[1])
        return b + _wide(self.factor[i], prediction) * (prediction - b)

    def _back(self, problem: Problem, v: Array, gradient: Array, block: Block, i: int) -> Array:
        """The gradients times the shortened rows, summed; an intercept's 1 is not shortened."""
        total = problem.predictor.backward(
            v[None], gradient * _wide(self.factor[i], gradient), block
        )[0]
        if problem.predictor.intercept:
            total[-1] = gradient.sum()
        return total


def _wide(rows: Array, values: Array) -> Array:
    """(m,) as (1, m), or as (1, m, 1) for several numbers a row."""
    return rows.reshape(1, -1, *(1,) * (values.ndim - 2))
