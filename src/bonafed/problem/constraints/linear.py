"""Constraints on the model only: C w + d = 0 and C w + d <= 0, signs, order and weighted sums of
coefficients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block, is_number
from bonafed.parameters import Checked
from bonafed.problem.constraints.constraint import VOID, Objective, Point, magnitudes, once
from bonafed.problem.metadata import Metadata

Coefficients = Sequence[float] | Sequence[Sequence[float]] | Array
Offsets = float | Sequence[float] | Array


@dataclass(frozen=True, eq=False)
class OnModel:
    """C w + d <= 0 or = 0, with C (p, D), d (p,), or each client's own ``block.linear`` where C is
    None.
    """

    C: Array | None
    d: Array | None
    equality: NDArray[np.bool_]
    words: tuple[str, ...]
    free: int = 0  # last entries of w that a client's own C has no columns for: an intercept
    convex = True
    affine = True
    magnitudes = magnitudes

    def held_by(self, data: Metadata) -> NDArray[np.bool_]:
        """(N, p) whether a client has the row."""
        held = np.ones((data.n_clients, len(self.equality)), bool)
        if self.C is None:
            assert data.linear is not None
            held[:] = False
            for row, mine in zip(held, data.linear, strict=True):
                row[: len(mine)] = mine
        return held

    def _rows_of(self, block: Block) -> tuple[Array, Array, NDArray[np.bool_]]:
        """(n, p, D), (n, p), and (n, p) whether the client has the row: one of zeros fills up."""
        return once(block, self, lambda: self._padded(block))

    def _padded(self, block: Block) -> tuple[Array, Array, NDArray[np.bool_]]:
        n, p = len(block.names), len(self.equality)
        if self.C is not None and self.d is not None:
            C, d = np.broadcast_to(self.C, (n, *self.C.shape)), np.broadcast_to(self.d, (n, p))
            return C, d, np.ones((n, p), bool)
        assert block.linear is not None
        matrix, offset = block.linear
        k, columns = matrix.shape[1:]
        C, d = np.zeros((n, p, columns + self.free)), np.zeros((n, p))
        C[:, :k, :columns], d[:, :k] = matrix, offset
        return C, d, C.any(2) | (d != 0)

    def values(self, point: Point) -> Array:
        C, d, has = self._rows_of(point.block)
        value = np.matmul(C, point.models[:, :, None])[:, :, 0] + d
        return np.where(has, value, np.where(self.equality, 0.0, VOID))

    def jacobian(self, point: Point) -> Array:
        shape = len(point.block.names), len(self.equality), point.w.shape[-1]
        return np.broadcast_to(self._rows_of(point.block)[0], shape)

    def curvature(self, point: Point, multipliers: Array) -> tuple[Array | None, Array | None]:
        return None, None

    def split(self, point: Point, multipliers: Array) -> tuple[Array | None, Array, Array]:
        C, d, has = self._rows_of(point.block)
        constants = (multipliers * np.where(has, d, np.where(self.equality, 0.0, VOID))).sum(1)
        return None, np.einsum("np,npd->nd", multipliers, C), constants

    def limits(self, block: Block) -> Array:
        _, d, has = self._rows_of(block)
        return np.where(has, -d, math.nan)


@dataclass(frozen=True, eq=False)
class LinearConstraint(Checked):
    """A linear constraint on the model: of one C and d, or of every client's own.

    Parameters
    ----------
    C, d : (k, D) and (k,) that all know, the same for every client; None: every client's own, of
        ``Federation(linear=...)``, which say nothing of an intercept
    """

    C: Coefficients | None = None
    d: Offsets | None = None
    of_model: ClassVar[bool] = True
    equality: ClassVar[bool]

    def __post_init__(self) -> None:
        _numbers(self.C, self.d, type(self).__name__)

    def at(self, problem: Objective, data: Metadata) -> OnModel:
        name, sign = type(self).__name__, "=" if self.equality else "<="
        if self.C is None:
            if data.linear is None:
                raise ValueError(
                    f"{name}() reads every client's own C and d, and the federation has none: give"
                    " Federation(linear=...), Federation.from_quadratics(A, b, C, d), or"
                    f" {name}(C, d)."
                )
            if problem.loss.targets == "class":
                raise ValueError(
                    f"{name}() reads C with one column for each feature, and each has a coefficient"
                    f" for each class: give {name}(C, d) with a column for every coefficient."
                )
            k, free = max(map(len, data.linear)), int(problem.predictor.dimension(0))
            words = tuple(f"row {i + 1} of the client's C w + d {sign} 0" for i in range(k))
            return OnModel(None, None, np.full(k, self.equality), words, free)
        C, d = _numbers(self.C, self.d, name)
        p, D = len(C), problem.predictor.dimension(data.n_features)
        d = np.broadcast_to(d, (p,)) if d.shape == (1,) else d
        if C.shape != (p, D) or d.shape != (p,):
            raise ValueError(
                f"{name} needs finite C and d of shapes (k, {D}) and (k,), got {C.shape} and"
                f" {d.shape}."
            )
        words = tuple(f"row {i + 1} of C w + d {sign} 0" for i in range(p))
        return OnModel(C, d, np.full(p, self.equality), words)


@dataclass(frozen=True, eq=False)
class LinearEquality(LinearConstraint):
    """C w + d = 0; parameters as of `LinearConstraint`.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     constraint=bf.LinearEquality(C=np.eye(31)[[0]], d=[-1.0]),
    ...     regulariser=bf.L2(0.1),
    ... )
    >>> w = bf.solve(problem, fed).w
    >>> bool(abs(w[0] - 1) < 1e-6)
    True
    """

    phrase: ClassVar[str] = "C w + d = 0"
    equality: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class LinearInequality(LinearConstraint):
    """C w + d <= 0; parameters as of `LinearConstraint`.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     constraint=bf.LinearInequality(C=np.eye(31)[:1], d=[0.0]),
    ...     regulariser=bf.L2(0.1),
    ... )
    >>> w = bf.solve(problem, fed).w
    >>> bool(w[0] <= 1e-6)
    True
    """

    phrase: ClassVar[str] = "C w + d <= 0"
    equality: ClassVar[bool] = False


def _numbers(C: Coefficients | None, d: Offsets | None, name: str) -> tuple[Array, Array]:
    """C as a matrix and d as a vector of finite numbers; without C empty ones."""
    if C is None:
        if d is not None:
            raise ValueError(
                f"{name} got d without C: give both, or neither to read every client's own."
            )
        return np.empty((0, 0)), np.empty(0)
    try:
        rows = np.atleast_2d(np.asarray(C, float))
        offsets = np.atleast_1d(np.asarray(0.0 if d is None else d, float))
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} needs C and d of numbers, C a list of rows, one row for each constraint, got"
            f" {C!r}, {d!r}."
        ) from None
    if not (np.isfinite(rows).all() and np.isfinite(offsets).all()):
        raise ValueError(f"{name} needs finite C and d, got {C!r}, {d!r}.")
    return rows, offsets


class ByFeature(Checked):
    """The base of inequalities between coefficients, which are stated by the names of features."""

    of_model: ClassVar[bool] = True

    def _at(
        self, entries: Sequence[Any], d: float, words: Iterable[str], problem: Objective, data: Any
    ) -> OnModel:
        """C w + d <= 0, with rows of C from coefficients by name; one prediction a row only."""
        name, known = type(self).__name__, data.feature_names
        if problem.loss.targets == "class":
            raise ValueError(
                f"{name} says nothing where a feature has a coefficient for each class: a number"
                " may be added to all of them. Give LinearInequality(C, d) on their differences."
            )
        C = np.zeros((len(entries), problem.predictor.dimension(data.n_features)))
        for row, entry in zip(C, entries, strict=True):
            for feature, coefficient in entry.items():
                if feature not in known:
                    raise ValueError(
                        f"{name}: no feature {feature!r}. Features: {', '.join(known[:20])}."
                    )
                row[known.index(feature)] = coefficient
        return OnModel(C, np.full(len(C), d), np.zeros(len(C), bool), tuple(words))


@dataclass(frozen=True)
class Sign(ByFeature):
    """Signs of coefficients: a linear model that is monotone in these features.

    Parameters
    ----------
    of : mapping from feature name to +1 (never falls with it) or -1 (never rises)

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), constraint=bf.Sign({"mean radius": -1}), regulariser=bf.L2(0.1)
    ... )
    >>> w = bf.solve(problem, fed).w
    >>> bool(w[0] <= 1e-6)
    True
    """

    phrase: ClassVar[str] = "given signs of the coefficients of {of:*}"
    of: Mapping[str, Literal[1, -1]]

    def __post_init__(self) -> None:
        signs = [*self.of.values()] if isinstance(self.of, Mapping) else []
        if not signs or any(s not in (-1, 1) for s in signs):
            raise ValueError(f"Sign needs a mapping of feature names to +1 or -1, got {self.of!r}.")

    def at(self, problem: Objective, data: Metadata) -> OnModel:
        rows = [{name: -float(sign)} for name, sign in self.of.items()]
        minus = {1: "minus the ", -1: ""}  # as it is measured
        words = (f"{minus[sign]}coefficient of {name} <= 0" for name, sign in self.of.items())
        return self._at(rows, 0.0, words, problem, data)


@dataclass(frozen=True)
class Monotone(ByFeature):
    """Coefficients in ascending order: w_first <= w_second <= ..., such as of the levels of an
    ordered category.

    Parameters
    ----------
    features : names, two or more, smallest coefficient first

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     constraint=bf.Monotone(["mean radius", "mean texture", "mean area"]),
    ...     regulariser=bf.L2(0.1),
    ... )
    >>> w = bf.solve(problem, fed).w
    >>> names = list(fed.feature_names)
    >>> chosen = [w[names.index(f"mean {name}")] for name in ("radius", "texture", "area")]
    >>> bool(np.all(np.diff(chosen) >= -1e-6))
    True
    """

    phrase: ClassVar[str] = "coefficients in ascending order: {features:*}"
    features: Sequence[str]

    def __post_init__(self) -> None:
        if not 2 <= len(self.features) == len(set(self.features)):
            raise ValueError(
                f"Monotone needs features, two or more distinct names, got {self.features!r}."
            )

    def at(self, problem: Objective, data: Metadata) -> OnModel:
        pairs = [*itertools.pairwise(self.features)]
        rows, words = [{a: 1.0, b: -1.0} for a, b in pairs], (f"{a} <= {b}" for a, b in pairs)
        return self._at(rows, 0.0, words, problem, data)


@dataclass(frozen=True)
class CostLimit(ByFeature):
    """sum_j cost_j w_j <= limit.

    Parameters
    ----------
    costs : mapping from feature name to a cost per unit of its coefficient
    limit : in the same unit

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     constraint=bf.CostLimit({"mean radius": 1.0, "mean texture": 1.0}, limit=0.1),
    ...     regulariser=bf.L2(0.1),
    ... )
    >>> w = bf.solve(problem, fed).w
    >>> bool(w[:2].sum() <= 0.1 + 1e-6)
    True
    """

    phrase: ClassVar[str] = "cost of the coefficients at most {limit}"
    costs: Mapping[str, float]
    limit: float

    def __post_init__(self) -> None:
        costs = [*self.costs.values()] if isinstance(self.costs, Mapping) else []
        if not costs or not all(is_number(v) and math.isfinite(v) for v in (*costs, self.limit)):
            raise ValueError(
                f"CostLimit needs finite costs by feature name and a finite limit, got {self!r}."
            )

    def at(self, problem: Objective, data: Metadata) -> OnModel:
        costs = {name: float(cost) for name, cost in self.costs.items()}
        return self._at([costs], -float(self.limit), ["cost of the coefficients"], problem, data)
