"""Torch modules as flat vectors: predictions and gradients of a block of clients by automatic
differentiation.

    w = (parameters of two dimensions and more, row by row; then all others),
            prediction = module(w; X)

each group in the module's order. Norms and regularisers see the first group, the weights; the
others (biases, scales of normalisation) are free, as the intercept of ``Linear`` is. Frozen
parameters (``requires_grad=False``) and buffers are constants. One model per client is one batched
pass (``torch.func``), one client at a time where the module allows none.

Only this file imports torch: ``pip install '.[torch]'``.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.problem.constraints.constraint import once
from bonafed.problem.predictors.affine import OfClasses, check_count
from bonafed.text import install

if TYPE_CHECKING:
    import torch  # pyright: ignore[reportMissingImports]


@dataclass(frozen=True, eq=False, repr=False)
class TorchPredictor(OfClasses):
    """A torch module that makes one number of every row, or one for every class.

    Parameters
    ----------
    module : ``torch.nn.Module`` from rows (m, d) to (m,), (m, 1) or (m, C); each row by itself, so
        it is used in
        evaluation mode: dropout is off, batch normalisation has the statistics it came with. It is
        copied; its own parameters are the first model. It computes in their type:
        ``module.double()`` for float64, which tolerances below 1e-6 need. Images: begin with
        ``torch.nn.Unflatten(1, (1, 28, 28))``. Sparse rows are made dense
    device : such as "cpu" or "cuda"; None: the GPU where there is one
    classes : C, set by ``problem.at(fed)``

    Raises
    ------
    ImportError
        without torch
    TypeError
        for what is not a module
    ValueError
        for a module without parameters to fit, of several types, or that has not seen its inputs
        yet (lazy); in ``problem.at(fed)`` for predictions of another shape, or that do not depend
        on w by torch operations

    Examples
    --------
    >>> import bonafed as bf
    >>> from importlib.util import find_spec
    >>> if find_spec("torch"):
    ...     import torch
    ...
    ...     assert bf.TorchPredictor(torch.nn.Linear(3, 1)).dimension(3) == 4
    """

    module: Any
    device: str | None = None
    classes: int | None = None
    convex: ClassVar[bool] = False
    # (name, shape, size) in the order of w
    _parts: tuple[tuple[str, Any, int], ...] = field(init=False)
    _free: int = field(init=False)
    _start: Array = field(init=False)
    _digest: str = field(init=False)

    def __post_init__(self) -> None:
        torch = _torch()
        check_count(self.classes)
        if not isinstance(self.module, torch.nn.Module):
            raise TypeError(f"module must be a torch.nn.Module, got {self.module!r}.")
        place = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        fitted = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        _check_parameters(fitted)
        ordered = sorted(fitted, key=lambda pair: pair[1].ndim <= 1)  # stable
        start = [p.detach().cpu().double().reshape(-1).numpy() for _, p in ordered]
        values = {
            "device": place,
            "module": copy.deepcopy(self.module).to(place).eval(),
            "_parts": tuple((name, p.shape, p.numel()) for name, p in ordered),
            "_free": sum(p.numel() for _, p in ordered if p.ndim <= 1),
            "_start": np.concatenate(start),
            "_digest": _digest(self.module),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"TorchPredictor({type(self.module).__name__} of {len(self._start)} parameters)"

    def described(self) -> str:
        """Class, structure and values of the module as text that is the same in every process and
        on every device.
        """
        return f"TorchPredictor({self._digest}, classes={self.classes})"

    # -- sizes
    # ----------------------------------------------------------------------------------------------

    @property
    def intercept(self) -> int:
        """How many of the last entries of w are free."""
        return self._free

    def sized(self, n_features: int, classes: int | None) -> TorchPredictor:
        output, torch = self._probe(n_features), _torch()
        allowed = [(2,), (2, 1)] if classes is None else [(2, classes)]
        tensor = isinstance(output, torch.Tensor)
        fixed = tensor and not output.requires_grad
        if not tensor or fixed or tuple(output.shape) not in allowed:
            shape = f"shape {tuple(output.shape)}" if tensor else type(output).__name__
            raise ValueError(
                f"the module must predict {' or '.join(map(str, allowed))} numbers for 2 rows of"
                f" {n_features} features and"
                f" {'one number a row' if classes is None else f'{classes} classes'}, by torch"
                f" operations on its parameters, got {shape}{' without a derivative' * fixed}:"
                " change its last layer"
                f"{', or use the loss Multinomial() for several classes' * (classes is None)}."
            )
        other = copy.copy(self)  # the module itself is shared: nothing writes to it
        object.__setattr__(other, "classes", classes)
        return other

    def _probe(self, n_features: int) -> Any:
        """What the module makes of two rows of zeros."""
        try:
            start = self._tensor(self._start).requires_grad_(True)
            return self._call(start, self._tensor(np.zeros((2, n_features))))
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ValueError(
                f"the module does not take rows of {n_features} features: {text}"
            ) from error

    def dimension(self, n_features: int) -> int:
        return len(self._start)

    def split(self, w: Array) -> tuple[Array, Array]:
        """Parameters of two dimensions and more, and all others."""
        return w[..., : w.shape[-1] - self._free], w[..., w.shape[-1] - self._free :]

    def units(self, sizes: Array) -> Array:
        """The size (..., D) of what each entry of w multiplies, for features of sizes (..., d): not
        known of a module, 1.
        """
        return np.ones((*sizes.shape[:-1], len(self._start)))

    def start(self, n_features: int) -> Array:
        """The module's own parameters, (D,)."""
        return self._start.copy()

    def trained(self, w: Array) -> Any:
        """A copy of the module with the parameters w (D,), on the CPU."""
        w = np.asarray(w, float)
        if w.shape != self._start.shape or not np.isfinite(w).all():
            raise ValueError(f"w must be {len(self._start)} finite numbers, got shape {w.shape}.")
        module, torch = copy.deepcopy(self.module).cpu(), _torch()
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self._named(torch.from_numpy(w.copy())).items():
                parameters[name].copy_(value)
        return module

    # -- predictions
    # ----------------------------------------------------------------------------------------------

    def forward(self, w: Array, block: Block) -> Array:
        with _torch().no_grad():
            return self._numbers(self._predictions(self._tensor(w), self._rows(block)))

    def backward(self, w: Array, s: Array, block: Block) -> Array:
        return self.pullback(w, block)[1](s)

    def pullback(self, w: Array, block: Block) -> tuple[Array, Callable[[Array], Array]]:
        """Predictions, and s -> ``backward(w, s, block)`` through the graph that they left."""
        torch, rows, n = _torch(), self._rows(block), len(block.y)
        with torch.enable_grad():
            models = self._tensor(w).expand(n, -1).requires_grad_(True)
            prediction = self._predictions(models, rows)

        def back(s: Array) -> Array:
            push = self._tensor(s).reshape(prediction.shape)
            (gradient,) = torch.autograd.grad(prediction, models, push, retain_graph=True)
            return gradient.cpu().double().numpy()

        return self._numbers(prediction), back

    def row_gradients(
        self, w: Array, X: Array, slope: Callable[[Array, int], Array]
    ) -> Iterator[Array]:
        """The gradient (D,) of the loss of every row of X (m, d), from a pass over that row only.

        ``slope`` gives the loss's gradient in the predictions (1, K) of row i. All passes have one
        shape and run on the CPU, so that a row's gradient depends on no other row.
        """
        torch, module = _torch(), self.trained(w)
        named = dict(module.named_parameters())
        fitted = [named[name] for name, _, _ in self._parts]
        for i, values in enumerate(X):
            row = torch.tensor(values[None], dtype=self._dtype)  # in memory of its own, aligned
            with torch.enable_grad():
                prediction = module(row).reshape(1, -1)
            push = slope(self._numbers(prediction), i)
            push = torch.tensor(push, dtype=self._dtype).reshape(prediction.shape)
            unused = {"allow_unused": True, "materialize_grads": True}
            parts = torch.autograd.grad(prediction, fitted, push, **unused)
            yield np.concatenate([part.double().numpy().reshape(-1) for part in parts])

    def check_rows_apart(self) -> None:
        """Raise ``ValueError`` for a module that mixes rows, or keeps something of them."""
        torch = _torch()
        for name, part in self.module.named_modules():
            mixes = isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
            if mixes or getattr(part, "track_running_stats", False):
                raise ValueError(
                    f"the module's {name} ({type(part).__name__}) computes means over rows, so that"
                    " one record would move the gradients of others and stay in its statistics:"
                    " use GroupNorm or LayerNorm, which see one row, in a private model."
                )

    def _predictions(self, w: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(n, m) or (n, m, C) of rows (n, m, d) with w (D,), or (n, D); client i's depend on w[i]
        only.
        """
        n, m, _ = rows.shape
        if w.ndim == 1:
            return self._shaped(self._call(w, rows.reshape(n * m, -1)), n, m)
        if n == 1:
            return self._shaped(self._call(w[0], rows[0]), n, m)
        torch = _torch()
        try:
            predictions = torch.func.vmap(self._call)(w, rows)
        except (RuntimeError, NotImplementedError):  # not batched over its parameters
            predictions = torch.stack([self._call(*pair) for pair in zip(w, rows, strict=True)])
        return self._shaped(predictions, n, m)

    def _shaped(self, prediction: torch.Tensor, n: int, m: int) -> torch.Tensor:
        single = self.classes is None and prediction.numel() == n * m
        return prediction.reshape(n, m) if single else prediction.reshape(n, m, -1)

    def _call(self, w: torch.Tensor, rows: torch.Tensor) -> Any:
        """The module with the parameters w (D,)."""
        return _torch().func.functional_call(self.module, self._named(w), (rows,))

    def _named(self, w: torch.Tensor) -> dict[str, torch.Tensor]:
        """Parameters by name, views of w (D,)."""
        named, start = {}, 0
        for name, shape, size in self._parts:
            named[name] = w[start : start + size].reshape(shape)
            start += size
        return named

    def _rows(self, block: Block) -> torch.Tensor:
        """X (n, m, d) on the device, kept as long as the block."""
        torch, X = _torch(), block.X
        double = self.device == "cpu" and self._dtype == torch.float64
        if double and isinstance(X, np.ndarray) and X.flags.writeable:
            return torch.from_numpy(X)  # the rows themselves, which nothing writes to
        rows = X if isinstance(X, np.ndarray) else X.toarray().reshape(*block.y.shape, -1)
        key = "torch rows", self.device, str(self._dtype)
        return once(block, key, lambda: self._tensor(rows))

    def _tensor(self, values: Array) -> torch.Tensor:
        """A copy of the numbers in the module's type, on its device."""
        return _torch().tensor(np.asarray(values, float), dtype=self._dtype, device=self.device)

    @property
    def _dtype(self) -> Any:
        return next(p.dtype for p in self.module.parameters() if p.requires_grad)

    @staticmethod
    def _numbers(prediction: torch.Tensor) -> Array:
        return prediction.detach().cpu().double().numpy()


def _check_parameters(fitted: list[tuple[str, torch.nn.Parameter]]) -> None:
    """Raise ``ValueError`` unless there are parameters, all known and of one type."""
    torch = _torch()
    lazy = [name for name, p in fitted if torch.nn.parameter.is_lazy(p)]
    if lazy:
        raise ValueError(
            f"the module's {lazy[0]} has no shape yet: call the module once on rows of the data's"
            " features."
        )
    if not fitted:
        raise ValueError("the module needs parameters to fit: it has none with requires_grad=True.")
    types = {p.dtype for _, p in fitted}
    if len(types) != 1 or not types <= {torch.float32, torch.float64}:
        raise ValueError(
            "the module's parameters must be all float32 or all float64, got "
            f"{', '.join(sorted(map(str, types)))}: call module.float() or module.double()."
        )
    if not all(torch.isfinite(p).all() for _, p in fitted):
        raise ValueError("the module's parameters must be finite: they are the first model.")


def _digest(module: torch.nn.Module) -> str:
    """Class, structure, and every parameter and buffer, frozen or not."""
    name = f"{type(module).__module__}.{type(module).__qualname__} {module!r}"
    seen = hashlib.blake2b(name.encode(), digest_size=8)
    for name, value in (*module.named_parameters(), *module.named_buffers()):
        seen.update(f"{name} {tuple(value.shape)} {value.dtype} {value.requires_grad}".encode())
        flat = value.detach().cpu().contiguous().reshape(-1)
        seen.update(flat.view(_torch().uint8).numpy().tobytes())
    return f"{type(module).__name__}:{seen.hexdigest()}"


def imported_torch(name: str, instead: str) -> Any:
    """The library, which only files that need it import; ``ImportError`` without it."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        do = f"{install('torch')}. Without it {instead}."
        raise ImportError(f"{name} needs PyTorch: {do}") from error
    return torch


def _torch() -> Any:
    return imported_torch("TorchPredictor", "use MLP(hidden)")
