"""Custom constraints: a function that returns values and Jacobian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from bonafed.arrays import Array, Block
from bonafed.parameters import Checked
from bonafed.problem.constraints.constraint import Objective, Point, magnitudes
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.torch_module import imported_torch


@dataclass(frozen=True, eq=False)
class Constraint(Checked):
    """c(w) <= 0 (or = 0) on one owner's rows, by a function.

    Parameters
    ----------
    value_and_jacobian : function (w (D,), X (m, d), y (m,)) -> (values (p,), jacobian (p, D)); y is
        coded as the loss needs it (-1 and +1 for two classes)
    size : p
    equality : c(w) = 0 instead; then c should be affine
    convex : whether every c_k is convex; claimed by you, and all that a lower bound stands on
    hessian : function (w, X, y, multipliers (p,)) -> (D, D), sum_k multipliers_k c_k''; None:
        unknown, and ``InteriorPoint`` cannot be used. For affine constraints use
        ``LinearInequality``
    words : what each bounds, for the report

    Raises
    ------
    ValueError
        at the first evaluation, where the function returns other shapes or numbers that are not
        finite

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> def norm(w, X, y):  # |w|^2 <= 0.1, and its gradient
    ...     return np.array([w @ w - 0.1]), 2 * w[None]
    ...
    >>> def curvature(w, X, y, multipliers):
    ...     return 2 * multipliers[0] * np.eye(len(w))
    ...
    >>> ball = bf.Constraint(norm, convex=True, hessian=curvature)
    >>> problem = bf.Problem(bf.Logistic(), bf.Linear(fit_intercept=False), local_constraint=ball)
    >>> w = bf.solve(problem, fed).w
    >>> bool(w @ w <= 0.1 + 1e-6)
    True
    """

    value_and_jacobian: Callable[..., tuple[ArrayLike, ArrayLike]]
    size: int = 1
    equality: bool = False
    convex: bool = False
    hessian: Callable[..., ArrayLike] | None = None
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be a whole number >= 1, got {self.size}.")
        if self.words and len(self.words) != self.size:
            raise ValueError(f"words must be {self.size} texts, got {len(self.words)}.")

    def at(self, problem: Objective, data: Metadata) -> FunctionConstraint:
        words = self.words or [f"custom constraint {k + 1}" for k in range(self.size)]
        equal = np.full(self.size, self.equality)
        functions = self.value_and_jacobian, self.hessian
        return FunctionConstraint(*functions, equal, self.convex, tuple(words))


@dataclass(frozen=True, eq=False)
class FunctionConstraint:
    """The concrete form of ``Constraint``."""

    function: Callable[..., tuple[ArrayLike, ArrayLike]]
    hessian: Callable[..., ArrayLike] | None
    equality: NDArray[np.bool_]
    convex: bool
    words: tuple[str, ...]
    affine = False
    magnitudes = magnitudes
    # the last point with its values and Jacobians: several methods ask for them
    last: list[tuple[Point, Array, Array]] = field(default_factory=list, repr=False, init=False)

    def held_by(self, data: Metadata) -> NDArray[np.bool_]:
        """(N, p) that every client has it."""
        return np.ones((data.n_clients, len(self.equality)), bool)

    def _all(self, point: Point) -> tuple[Array, Array]:
        if not self.last or self.last[0][0] is not point:
            pairs = [self._one(w, *rows_of(point.block, i)) for i, w in enumerate(point.models)]
            values, jacobians = zip(*pairs, strict=True)
            self.last[:] = [(point, np.stack(values), np.stack(jacobians))]
        return self.last[0][1:]

    def _one(self, w: Array, X: Array | csr_array, y: Array) -> tuple[Array, Array]:
        pair = self.function(w.copy(), X, y)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                "the constraint's function must return (values, jacobian), got"
                f" {type(pair).__name__}."
            )
        value = np.atleast_1d(np.asarray(pair[0], float))
        jacobian = np.atleast_2d(np.asarray(pair[1], float))
        p = len(self.equality)
        if value.shape != (p,) or jacobian.shape != (p, len(w)):
            raise ValueError(
                f"the constraint's function must return values ({p},) and a Jacobian ({p},"
                f" {len(w)}), got {value.shape} and {jacobian.shape}: mend it, or give its size."
            )
        if not (np.isfinite(value).all() and np.isfinite(jacobian).all()):
            raise ValueError(
                f"the constraint's function returned numbers that are not finite at w = {w[:5]}..."
            )
        return value, jacobian

    def values(self, point: Point) -> Array:
        return self._all(point)[0]

    def jacobian(self, point: Point) -> Array:
        return self._all(point)[1]

    def curvature(self, point: Point, multipliers: Array) -> tuple[Array | None, Array | None]:
        if self.hessian is None:
            raise ValueError(
                "a Constraint without `hessian` has no second derivatives, which are needed here:"
                " give hessian=..."
            )
        matrices = []
        for i, (w, mu) in enumerate(zip(point.models, multipliers, strict=True)):
            found = self.hessian(w.copy(), *rows_of(point.block, i), mu.copy())
            matrix, D = np.asarray(found, float), len(w)
            if matrix.shape != (D, D) or not np.isfinite(matrix).all():
                raise ValueError(
                    f"the constraint's hessian must return finite numbers ({D}, {D}), got"
                    f" shape {matrix.shape}: sum_k multipliers_k c_k'' is one matrix for all p"
                    " constraints together."
                )
            matrices.append((matrix + matrix.T) / 2)
        return None, np.stack(matrices)

    def split(self, point: Point, multipliers: Array) -> tuple[Array | None, Array, Array]:
        value, jacobian = self._all(point)
        gradients = np.einsum("np,npd->nd", multipliers, jacobian)
        return None, gradients, (multipliers * value).sum(1) - (gradients * point.models).sum(1)

    def limits(self, block: Block) -> Array:
        return np.zeros((len(block.names), len(self.equality)))


def rows_of(block: Block, i: int) -> tuple[Array | csr_array, Array]:
    """(X_i, y_i) without padding and rows of weight 0, as copies."""
    rows = block.share[i] > 0
    return block.rows(i)[rows], block.y[i][rows]


# Constraints by a function written in PyTorch: Jacobian and second derivatives by automatic
# differentiation.
#
# Torch is imported only once a constraint is made: ``pip install '.[torch]'``.


@dataclass(frozen=True, eq=False)
class TorchConstraint(Checked):
    """c(w) <= 0 (or = 0) on one owner's rows, by a function of torch tensors.

    Parameters
    ----------
    function : (w (D,), X (m, d), y (m,)) -> (p,), or a number where p = 1; float64 tensors on the
        CPU, y coded as the loss needs it (-1 and +1 for two classes), sparse rows made dense. It
        must be twice differentiable in w and made
        of torch operations on w throughout: what passes through NumPy or ``.detach()`` has no
        derivative
    size : p
    equality : c(w) = 0 instead; then c should be affine
    convex : whether every c_k is convex; claimed by you, and all that a lower bound stands on
    words : what each bounds, for the report

    Raises
    ------
    ImportError
        without torch
    ValueError
        at the first evaluation, where the function returns another shape, numbers that are not
        finite, or what does not depend on w by torch operations

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> from importlib.util import find_spec
    >>> if find_spec("torch"):
    ...     ball = bf.TorchConstraint(lambda w, X, y: w @ w - 0.1, convex=True)
    ...     problem = bf.Problem(bf.Logistic(), local_constraint=ball)
    ...     assert bf.solve(problem, fed).constraints[0]["met"]
    """

    function: Callable[..., Any]
    size: int = 1
    equality: bool = False
    convex: bool = False
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _torch()
        self._constraint()

    def _constraint(self) -> Constraint:
        stated = self.size, self.equality, self.convex, self._second, self.words
        return Constraint(self._first, *stated)

    def at(self, problem: Objective, data: Metadata) -> FunctionConstraint:
        return self._constraint().at(problem, data)

    def _first(self, w: Array, X: Array | csr_array, y: Array) -> tuple[Array, Array]:
        """Values and Jacobian, one backward pass for each of them."""
        grad, (model, values) = _torch().autograd.grad, self._values(w, X, y)
        each = [grad(value, model, retain_graph=True, allow_unused=True)[0] for value in values]
        jacobian = [np.zeros(len(w)) if gradient is None else gradient.numpy() for gradient in each]
        return values.detach().numpy().copy(), np.stack(jacobian)

    def _second(self, w: Array, X: Array | csr_array, y: Array, multipliers: Array) -> Array:
        """sum_k multipliers_k c_k'', row by row."""
        torch = _torch()
        model, values = self._values(w, X, y)
        total = (torch.from_numpy(multipliers.copy()) * values).sum()
        (gradient,) = torch.autograd.grad(total, model, create_graph=True, allow_unused=True)
        rows = np.zeros((len(w), len(w)))
        if gradient is not None and gradient.requires_grad:  # else affine in w
            for j, entry in enumerate(gradient):
                (row,) = torch.autograd.grad(entry, model, retain_graph=True, allow_unused=True)
                rows[j] = 0.0 if row is None else row.numpy()
        return rows

    def _values(self, w: Array, X: Array | csr_array, y: Array) -> tuple[Any, Any]:
        """The model as a tensor that takes derivatives, and the p values."""
        torch = _torch()
        model = torch.from_numpy(np.array(w, float)).requires_grad_(True)
        rows = torch.from_numpy(np.array(X if isinstance(X, np.ndarray) else X.toarray(), float))
        with torch.enable_grad():
            values = self.function(model, rows, torch.from_numpy(np.array(y, float)))
        if not isinstance(values, torch.Tensor) or not values.requires_grad:
            tensor = isinstance(values, torch.Tensor)
            raise ValueError(
                "the torch function must return a tensor made of torch operations on w, got"
                f" {'a tensor without gradient' if tensor else type(values).__name__}:"
                " NumPy functions, .item(), .numpy() and .detach() lose the derivative."
            )
        if values.dtype != torch.float64:
            raise ValueError(
                f"the torch function must compute in float64, got {values.dtype}: leave out"
                " conversions."
            )
        return model, values.reshape(1) if values.ndim == 0 else values


def _torch() -> Any:
    return imported_torch("TorchConstraint", "give Constraint(value_and_jacobian)")
