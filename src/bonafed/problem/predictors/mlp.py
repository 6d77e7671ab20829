"""A multilayer perceptron as a flat vector.

    a_0 = x,  a_k = phi( W_k a_(k-1) + b_k )  for k = 1, ..., K,  prediction = W_(K+1) a_K + b_(K+1)

w holds W_1, W_2, ..., each (outputs, inputs) row by row, and after them b_1, b_2, ...: in each
group the order of the parameters of a torch module of ``Linear`` layers. Norms and regularisers see
the weights W; the b are free, as the intercept of ``Linear`` is. The gradient is backpropagation:

    d_(K+1) = s,   d_k = W_(k+1)' d_(k+1) * phi'_k,   dW_k = sum_i d_k a_(k-1)',    db_k = sum_i d_k

phi' is a function of the activation: tanh 1 - a^2, relu 1{a > 0} (0 at the kink), softplus 1 -
exp(-a). Predictions are not affine in w, so that no lower bound on an optimum can be proved.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from scipy.sparse import csr_array

from bonafed.arrays import Array, Block, shape_of, stream
from bonafed.problem.predictors.affine import OfClasses, check_count


def _softplus(z: Array, out: Array) -> Array:
    rest = np.log1p(np.exp(-np.abs(z)))
    return np.add(np.maximum(z, 0.0, out=out), rest, out=out)


ACTIVATIONS: dict[str, tuple[Callable[..., Array], Callable[[Array, Array], Array]]] = {
    # phi(z, out=), and gradient * phi' from a = phi(z)
    "tanh": (np.tanh, lambda gradient, a: gradient - gradient * a * a),
    "relu": (lambda z, out: np.maximum(z, 0.0, out=out), lambda gradient, a: gradient * (a > 0.0)),
    "softplus": (_softplus, lambda gradient, a: gradient * -np.expm1(-a)),
}


@dataclass(frozen=True)
class MLP(OfClasses):
    """A multilayer perceptron with intercepts in every layer: one number a row, or one for every
    class.

    Parameters
    ----------
    hidden : units of each hidden layer; () is an affine model
    activation : "tanh", "relu" or "softplus"
    classes : C for the loss ``Multinomial()``; None: as many as the data have there, one number for
        every other loss
    seed : of the first model: weights uniform with variance 2 / (inputs + outputs) (Glorot and
        Bengio), with "relu" normal with variance 2 / inputs in the hidden layers (He and others);
        intercepts 0

    Raises
    ------
    ValueError
        for settings out of range

    Examples
    --------
    >>> import bonafed as bf
    >>> bf.MLP(hidden=(8,)).dimension(3)  # 3 x 8 + 8, then 8 + 1
    41
    """

    hidden: Sequence[int] = (16,)
    activation: Literal["tanh", "relu", "softplus"] = "tanh"
    classes: int | None = None
    seed: int = 0
    convex: ClassVar[bool] = False
    phrase: ClassVar[str] = "neural networks (hidden layers of {hidden:*} units, {activation})"

    def __post_init__(self) -> None:
        if not all(size >= 1 for size in self.hidden):
            raise ValueError(
                "hidden must be whole numbers >= 1, one for each hidden layer, got"
                f" {self.hidden!r}."
            )
        check_count(self.classes)
        if self.seed < 0:
            raise ValueError(f"seed must be a whole number >= 0, got {self.seed!r}.")
        # the same model, whichever sequence states it
        object.__setattr__(self, "hidden", tuple(int(size) for size in self.hidden))

    # -- sizes
    # ----------------------------------------------------------------------------------------------

    @property
    def intercept(self) -> int:
        """How many of the last entries of w are free."""
        return sum(self.hidden) + (self.classes or 1)

    def dimension(self, n_features: int) -> int:
        return sum(out * into for out, into in self._shapes(n_features)) + self.intercept

    def split(self, w: Array) -> tuple[Array, Array]:
        """Weights and intercepts."""
        return w[..., : w.shape[-1] - self.intercept], w[..., w.shape[-1] - self.intercept :]

    def units(self, sizes: Array) -> Array:
        """The size (..., D) of what each entry of w multiplies, for features of sizes (..., d): 1
        behind an activation.
        """
        first, *others = self._shapes(sizes.shape[-1])
        rest = sum(out * into for out, into in others) + self.intercept
        return np.concatenate([np.tile(sizes, first[0]), np.ones((*sizes.shape[:-1], rest))], -1)

    def start(self, n_features: int) -> Array:
        """The first model, (D,): the same for the same seed and sizes."""
        rng, shapes, parts = stream(self.seed, "first model", 0), self._shapes(n_features), []
        for k, (out, into) in enumerate(shapes):
            if self.activation == "relu" and k < len(shapes) - 1:
                parts.append(rng.normal(scale=math.sqrt(2 / into), size=out * into))
            else:
                edge = math.sqrt(6 / (into + out))
                parts.append(rng.uniform(-edge, edge, size=out * into))
        return np.concatenate([*parts, np.zeros(self.intercept)])

    def _shapes(self, n_features: int) -> list[tuple[int, int]]:
        """(outputs, inputs) of every layer."""
        sizes = [n_features, *self.hidden, self.classes or 1]
        return list(zip(sizes[1:], sizes[:-1], strict=True))

    def layers(self, w: Array, n_features: int) -> list[tuple[Array, Array]]:
        """(W (..., outputs, inputs), b (..., outputs)) of every layer, views of w (..., D)."""
        weights, intercepts = self.split(w)
        layers, start, row = [], 0, 0
        for out, into in self._shapes(n_features):
            matrix = weights[..., start : start + out * into].reshape(*w.shape[:-1], out, into)
            layers.append((matrix, intercepts[..., row : row + out]))
            start, row = start + out * into, row + out
        return layers

    # -- predictions
    # ----------------------------------------------------------------------------------------------

    def forward(self, w: Array, block: Block) -> Array:
        return self.pullback(w, block)[0]

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        return self.pullback(w, block)[1](s)

    def pullback(self, w: Array, block: Block) -> tuple[Array, Callable[[Array], Array]]:
        """Predictions, and s -> ``backward(w, s, block)`` from the activations that they went
        through.
        """
        w = np.asarray(w, float)
        # a problem that has not seen its data: as many outputs as w has room for
        last = (self.hidden[-1] if self.hidden else block.n_features) + 1
        more, rest = divmod(w.shape[-1] - self.dimension(block.n_features), last)
        if rest or more < 0 or (more and self.classes is not None):
            raise self._misfit(w.shape[-1], block.n_features)
        if more:
            return replace(self, classes=more + 1).pullback(w, block)
        n, m = block.y.shape
        phi, _ = ACTIVATIONS[self.activation]
        layers = self.layers(w, block.n_features)
        seen: list[Array | csr_array] = [_rows(block, shared=w.ndim == 1)]
        for k, (matrix, intercept) in enumerate(layers):
            z = _product(seen[-1], matrix)
            z += intercept if w.ndim == 1 else intercept[:, None, :]
            # in place: memory is what takes time here
            seen.append(phi(z, out=z) if k < len(layers) - 1 else z)
        prediction = np.asarray(seen[-1]).reshape(n, m, -1)
        prediction = prediction if self.classes else prediction[:, :, 0]
        return prediction, lambda s: self._back(s, layers, seen, block.y.shape)

    def _misfit(self, size: int, n_features: int) -> ValueError:
        needed = self.dimension(n_features)
        return ValueError(
            f"w must have {needed} entries for {n_features} features and {self!r}, got {size}."
        )

    def _back(self, s: Array, layers: list, seen: list, shape: tuple[int, ...]) -> Array:
        """The gradient (n, D) of <s, prediction> of every client."""
        n, m = shape
        through = ACTIVATIONS[self.activation][1]
        gradient = np.ascontiguousarray(s, float).reshape(np.asarray(seen[-1]).shape)
        weights, intercepts = [], []
        for k in reversed(range(len(layers))):
            weights.append(_outer(gradient, seen[k], n, m).reshape(n, -1))
            intercepts.append(gradient.reshape(n, m, -1).sum(1))
            if k:
                gradient = through(np.matmul(gradient, layers[k][0]), np.asarray(seen[k]))
        return np.concatenate([*reversed(weights), *reversed(intercepts)], 1)


def _rows(block: Block, shared: bool) -> "Array | csr_array":
    """Rows under one another where the model is shared, (n m, d), for one large product; else (n,
    m, d); or sparse and apart by client, (n m, n d).
    """
    if not isinstance(block.X, np.ndarray):
        return block.apart
    return block.X.reshape(-1, block.X.shape[-1]) if shared else block.X


def _product(rows: "Array | csr_array", matrix: Array) -> Array:
    """``rows W'`` for W (outputs, inputs), or (n, outputs, inputs)."""
    if isinstance(rows, np.ndarray):
        return np.matmul(rows, matrix.swapaxes(-1, -2))
    outputs, inputs = matrix.shape[-2:]
    each = np.broadcast_to(matrix, (shape_of(rows)[1] // inputs, outputs, inputs))
    product = np.asarray(rows @ each.transpose(0, 2, 1).reshape(-1, outputs))
    return product if matrix.ndim == 2 else product.reshape(len(matrix), -1, outputs)


def _outer(gradient: Array, rows: "Array | csr_array", n: int, m: int) -> Array:
    """``sum_i gradient_i row_i'`` of every client, (n, outputs, inputs)."""
    if isinstance(rows, np.ndarray):
        return np.matmul(gradient.reshape(n, m, -1).transpose(0, 2, 1), rows.reshape(n, m, -1))
    product = np.asarray(rows.T @ gradient.reshape(n * m, -1))
    return product.reshape(n, -1, product.shape[1]).transpose(0, 2, 1)
