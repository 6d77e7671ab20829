"""Constraints by a function written in PyTorch: Jacobian and second derivatives by automatic
differentiation.

Torch is imported only once a constraint is made: ``pip install '.[torch]'``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.constraints.custom import Constraint, FunctionConstraint
from bonafed.text import install

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from bonafed.problem.constraints.constraint import Objective
    from bonafed.problem.metadata import Metadata


@dataclass(frozen=True, eq=False)
class TorchConstraint:
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
        return Constraint(
            self._first, self.size, self.equality, self.convex, self._second, self.words
        )

    def at(self, problem: Objective, data: Metadata) -> FunctionConstraint:
        return self._constraint().at(problem, data)

    def _first(self, w: Array, X: Array | csr_array, y: Array) -> tuple[Array, Array]:
        """Values and Jacobian, one backward pass for each of them."""
        torch = _torch()
        model, values = self._values(w, X, y)
        each = [
            torch.autograd.grad(value, model, retain_graph=True, allow_unused=True)[0]
            for value in values
        ]
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
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            f"TorchConstraint needs PyTorch: {install('torch')}. Without it give"
            " Constraint(value_and_jacobian)."
        ) from error
    return torch
