"""What a constraint offers: c(w) <= 0 or c(w) = 0 on one owner's rows, with Jacobian and curvature.

A constraint as a user states it, such as ``NeymanPearson(label=1, level=0.2)``, has ``at(problem,
data)``, which checks it against the data and returns its concrete form: numbers only, the same for
every client of the federation. Several are one ``Stack``. Everything here is for a block of n
clients; p is the number of constraints, D that of the model.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block, by_row
from bonafed.problem.metadata import Metadata

T = TypeVar("T")
Objective = Any  # a `Problem`, whose loss, predictor and risk over samples constraints read
# every row counts at least this much in the size of the terms that cancel, even where its gradient
# almost vanishes
FAINT = 1e-6
VOID = -1.0  # the value of a constraint that a client does not have: met, and flat


@dataclass(frozen=True, eq=False)
class Point:
    """A model, or one per client, on a block's rows; the predictions are computed once, when first
    needed.

    Attributes
    ----------
    problem : concrete
    w : (D,) or (n, D)
    block : n clients' rows
    """

    problem: Objective
    w: Array
    block: Block

    @cached_property
    def prediction(self) -> Array:
        """(n, m)."""
        return self.problem.predictor.forward(self.w, self.block)

    @cached_property
    def models(self) -> Array:
        """(n, D)."""
        return np.broadcast_to(self.w, (len(self.block.names), self.w.shape[-1]))


class Stated(Protocol):
    """A constraint as a user states it."""

    # The same with levels, labels and columns as arrays; raises ``ValueError`` where they do not
    # fit the data.
    def at(self, problem: Objective, data: Metadata) -> Concrete: ...


@runtime_checkable
class Concrete(Protocol):
    """p constraints c(w) <= 0, or c(w) = 0 where ``equality``."""

    # (p,).
    @property
    def equality(self) -> NDArray[np.bool_]: ...

    # What each of them bounds.
    @property
    def words(self) -> tuple[str, ...]: ...

    # Every inequality convex, every equality affine.
    @property
    def convex(self) -> bool: ...

    # Every one of them.
    @property
    def affine(self) -> bool: ...

    # c (n, p); ``VOID`` where a client does not have the constraint.
    def values(self, point: Point) -> Array: ...

    # (n, p, D).
    def jacobian(self, point: Point) -> Array: ...

    # sum_k multipliers_k c_k'' as weights (n, m) of the rows' x x', and as matrices (n, D, D);
    # None: zero.
    def curvature(self, point: Point, multipliers: Array) -> tuple[Array | None, Array | None]: ...

    # A minorant of sum_k multipliers_k c_k, where these are convex, with equality at the
    # ``point``: weights (n, m) of the rows' losses (None: none), gradients (n, D) and constants
    # (n,) of an affine rest.
    def split(self, point: Point, multipliers: Array) -> tuple[Array | None, Array, Array]: ...

    # (n, D) the sizes of the terms that the gradient of sum_k multipliers_k c_k adds up.
    def magnitudes(self, point: Point, multipliers: Array) -> Array: ...

    # (n, p) the level asked, so that ``values + limits`` is what is measured; NaN where the
    # client has none.
    def limits(self, block: Block) -> Array: ...

    # (N, p) whether a client has the constraint, as far as is known without its rows.
    def held_by(self, data: Metadata) -> NDArray[np.bool_]: ...


# what a slot of a problem holds
Slot = Stated | list[Stated] | tuple[Stated, ...] | None


@dataclass(frozen=True, eq=False)
class Stack:
    """Several concrete constraints, one after the other; none is a Stack of p = 0."""

    parts: tuple[Concrete, ...] = ()

    @property
    def size(self) -> int:
        """p."""
        return sum(len(part.equality) for part in self.parts)

    @cached_property
    def equality(self) -> NDArray[np.bool_]:
        """(p,)."""
        return np.concatenate([np.zeros(0, bool), *[part.equality for part in self.parts]])

    @property
    def words(self) -> tuple[str, ...]:
        """(p,) what each bounds."""
        return tuple(word for part in self.parts for word in part.words)

    @property
    def convex(self) -> bool:
        """Whether every part is."""
        return all(part.convex for part in self.parts)

    @property
    def affine(self) -> bool:
        """Whether every part is."""
        return all(part.affine for part in self.parts)

    def seen(self, point: Point) -> Point:
        """The point as the constraints read it."""
        return point

    def values(self, point: Point) -> Array:
        """c (n, p)."""
        n = len(point.block.names)
        return np.concatenate([np.zeros((n, 0)), *[part.values(point) for part in self.parts]], 1)

    def jacobian(self, point: Point) -> Array:
        """(n, p, D)."""
        n, D = point.models.shape
        parts = [part.jacobian(point) for part in self.parts]
        return np.concatenate([np.zeros((n, 0, D)), *parts], 1)

    def curvature(self, point: Point, multipliers: Array) -> tuple[Array | None, Array | None]:
        """As of a single constraint, for multipliers (n, p)."""
        rows = matrices = None
        for part, mine in self._by_part(multipliers):
            row, matrix = part.curvature(point, mine)
            rows, matrices = added(rows, row), added(matrices, matrix)
        return rows, matrices

    def split(self, point: Point, multipliers: Array) -> tuple[Array | None, Array, Array]:
        """As of a single constraint, for multipliers (n, p)."""
        rows: Array | None = None
        gradients, constants = np.zeros(point.models.shape), np.zeros(len(multipliers))
        for part, mine in self._by_part(multipliers):
            row, gradient, constant = part.split(point, mine)
            gradients, constants = gradients + gradient, constants + constant
            rows = added(rows, row)
        return rows, gradients, constants

    def magnitudes(self, point: Point, multipliers: Array) -> Array:
        """As of a single constraint, for multipliers (n, p)."""
        each = (part.magnitudes(point, mine) for part, mine in self._by_part(multipliers))
        return sum(each, start=np.zeros(point.models.shape))

    def by_curvature(self, multipliers: Array) -> tuple[tuple[Stack, Array], tuple[Stack, Array]]:
        """The parts with second derivatives and those without, with their multipliers (n, p)."""
        both: Any = []
        for curved in (True, False):
            pairs = [*self._by_part(multipliers)]
            kind = [p for p in pairs if (getattr(p[0], "hessian", p[0]) is not None) is curved]
            mine = [np.zeros((len(multipliers), 0)), *(mu for _, mu in kind)]
            both.append((Stack(tuple(part for part, _ in kind)), np.concatenate(mine, 1)))
        return tuple(both)

    def _by_part(self, multipliers: Array) -> Iterator[tuple[Concrete, Array]]:
        start = 0
        for part in self.parts:
            yield part, multipliers[:, start : start + len(part.equality)]
            start += len(part.equality)

    def limits(self, block: Block) -> Array:
        """(n, p)."""
        none = np.zeros((len(block.names), 0))
        return np.concatenate([none, *[part.limits(block) for part in self.parts]], 1)


def excess(constraints: Stack, values: Array) -> float:
    """The largest of c, |c| for equalities, and 0."""
    return float(np.where(constraints.equality, np.abs(values), values).max(initial=0.0))


def magnitudes(constraints: Any, point: Point, multipliers: Array) -> Array:
    """(n, D) the sizes of the terms of a gradient whose Jacobian is not a sum itself: a method."""
    return np.einsum("np,npd->nd", np.abs(multipliers), np.abs(constraints.jacobian(point)))


def magnitudes_of_rows(point: Point, rows: Array, gradient: Array) -> Array:
    """(n, D) at least the sizes of the terms of sum_j rows_j gradient_j x_j.

    Added to a sum, the sizes themselves would tell the rows whose terms are positive.
    """
    squared = replace(point.block, X=point.block.X * point.block.X)
    weights = by_row(np.abs(rows), np.ones_like(gradient))
    features = np.abs(point.problem.predictor.backward(point.w, weights, squared))
    steep = np.abs(gradient) + FAINT
    if gradient.ndim == 3:
        steep = np.sqrt((steep**2).sum(2))
    return root_of_squares(np.abs(rows), steep)[:, None] * np.sqrt(features)


def most_added(weights: Array, values: Array) -> Array:
    """(n,) at least sum_j weights_j |values_j|, by Cauchy and Schwarz; no weight is below 0."""
    return np.sqrt(weights.sum(1)) * root_of_squares(weights, values)


def root_of_squares(weights: Array, values: Array) -> Array:
    """(n,) (sum_j weights_j values_j^2)^(1/2)."""
    top = np.abs(values).max(1, initial=0.0)
    unit = np.where(top > 0, top, 1.0)
    return unit * np.sqrt((weights * (values / unit[:, None]) ** 2).sum(1))


def added(total: Array | None, more: Array | None) -> Array | None:
    """The sum, where None is zero."""
    return more if total is None else total if more is None else total + more


def stack(stated: Stack | Slot, problem: Objective, data: Metadata, slot: str) -> Stack:
    """The concrete stack of what a slot of the problem holds: None, a constraint, or several in a
    sequence.
    """
    if isinstance(stated, Stack):
        return stated
    return Stack(tuple(one.at(problem, data) for one in several(stated, slot)))


def several(stated: Slot, slot: str) -> tuple[Stated, ...]:
    """What a slot holds, as a sequence of constraints."""
    whole = isinstance(stated, tuple | list)
    parts: Any = tuple(stated) if whole else () if stated is None else (stated,)
    for part in parts:
        if isinstance(part, type) or not hasattr(part, "at"):
            raise TypeError(
                f"{slot} must be a constraint or a sequence of them, such as NeymanPearson(label=1,"
                f" level=0.2), LossGap('sex', 0.1) or LinearInequality(C, d), got {part!r}."
            )
    return parts


def is_convex(constraint: object) -> bool:
    """Whether a constraint, or every one of a sequence, as stated or concrete, is convex."""
    parts = constraint if isinstance(constraint, tuple | list) else (constraint,)
    return all(getattr(part, "convex", True) for part in parts)


_KNOWN: weakref.WeakKeyDictionary[Block, dict[Hashable, Any]] = weakref.WeakKeyDictionary()


def once(block: Block, key: Hashable, make: Callable[[], T]) -> T:
    """``make()``, kept as long as the block: for what depends on an owner's rows only and costs
    more than a step.
    """
    known = _KNOWN.setdefault(block, {})
    if key not in known:
        known[key] = make()
    return known[key]
