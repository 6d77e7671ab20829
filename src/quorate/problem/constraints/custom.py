"""Constraints by a function of one's own: values and Jacobian by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, Block
from quorate.problem.constraints.constraint import Point


@dataclass(frozen=True, eq=False)
class Constraint:
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
    """

    value_and_jacobian: Callable[..., Any]
    size: int = 1
    equality: bool = False
    convex: bool = False
    hessian: Callable[..., Any] | None = None
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not callable(self.value_and_jacobian) or not isinstance(self.size, int) or self.size < 1:
            raise ValueError(
                "Constraint needs a function and a whole size >= 1, got"
                f" {self.value_and_jacobian!r}, {self.size}."
            )
        if self.words and len(self.words) != self.size:
            raise ValueError(f"words must be {self.size} texts, got {len(self.words)}.")

    def at(self, problem: Any, fed: Any) -> OwnFunction:
        words = self.words or tuple(f"own constraint {k + 1}" for k in range(self.size))
        return OwnFunction(
            self.value_and_jacobian,
            self.hessian,
            np.full(self.size, self.equality),
            self.convex,
            tuple(words),
        )


@dataclass(frozen=True, eq=False)
class OwnFunction:
    """The concrete form of ``Constraint``."""

    function: Callable[..., Any]
    hessian: Callable[..., Any] | None
    equality: NDArray[np.bool_]
    convex: bool
    words: tuple[str, ...]
    affine: ClassVar[bool] = False
    # the last point: several verbs ask
    at_last: dict[int, Any] = field(default_factory=dict, repr=False, init=False)

    def _all(self, at: Point) -> tuple[Array, Array]:
        known = self.at_last.get(id(at))
        if known is None or known[0] is not at:
            found = [self._one(w, *own_rows(at.block, i)) for i, w in enumerate(at.models)]
            known = (at, np.stack([v for v, _ in found]), np.stack([J for _, J in found]))
            self.at_last.clear()
            self.at_last[id(at)] = known
        return known[1], known[2]

    def _one(self, w: Array, X: Any, y: Array) -> tuple[Array, Array]:
        found = self.function(w.copy(), X, y)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError(
                "the constraint's function must return (values, jacobian), got"
                f" {type(found).__name__}."
            )
        value, jacobian = found
        value, jacobian = (
            np.atleast_1d(np.asarray(value, float)),
            np.atleast_2d(np.asarray(jacobian, float)),
        )
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

    def values(self, at: Point) -> Array:
        return self._all(at)[0]

    def jacobian(self, at: Point) -> Array:
        return self._all(at)[1]

    def curvature(self, at: Point, multipliers: Array) -> tuple[Array | None, Array | None]:
        if self.hessian is None:
            raise ValueError(
                "a Constraint without `hessian` has no second derivatives: use ProximalAL(), or"
                " give hessian=..."
            )
        pairs = zip(at.models, multipliers, strict=True)
        return None, np.stack(
            [self._bend(w, m, *own_rows(at.block, i)) for i, (w, m) in enumerate(pairs)]
        )

    def _bend(self, w: Array, multipliers: Array, X: Any, y: Array) -> Array:
        assert self.hessian is not None
        found = np.asarray(self.hessian(w.copy(), X, y, multipliers.copy()), float)
        if found.shape != (len(w), len(w)) or not np.isfinite(found).all():
            raise ValueError(
                f"the constraint's hessian must return finite numbers ({len(w)}, {len(w)}), got"
                f" shape {found.shape}: sum_k multipliers_k c_k'' is one matrix for all p"
                " constraints together."
            )
        return (found + found.T) / 2

    def split(self, at: Point, multipliers: Array) -> tuple[Array | None, Array, Array]:
        value, jacobian = self._all(at)
        gradients = np.einsum("np,npd->nd", multipliers, jacobian)
        return None, gradients, (multipliers * value).sum(1) - (gradients * at.models).sum(1)

    def limits(self, block: Block) -> Array:
        return np.zeros((len(block.names), len(self.equality)))


def own_rows(block: Block, i: int) -> tuple[Any, Array]:
    """(X_i, y_i) without padding and rows of weight 0, as copies."""
    rows = block.share[i] > 0
    if not isinstance(block.X, np.ndarray):
        return (
            (block.X.copy(), block.y[0].copy()) if rows.all() else (block.X[rows], block.y[0][rows])
        )
    return block.X[i][rows], block.y[i][rows]
