"""Constraints that couple the clients:  sum_i c_i(w) <= 0,  (3) of He, Peng, Sun, *Federated
learning with convex global and local constraints*; algorithms that work client by client split them
by slack variables, (4).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Block
from bonafed.problem.constraints import constraint as constraints
from bonafed.problem.constraints.group_means import OnRows
from bonafed.problem.risks.risk import Prior, resolve_prior

if TYPE_CHECKING:
    from bonafed.problem.metadata import Metadata


@dataclass(frozen=True)
class Coupled:
    """One constraint over all clients together, for the slot ``constraint``.

    Parameters
    ----------
    constraint : on rows, such as ``NeymanPearson(1, 0.2)``
    prior : "rows": the constraint on all rows as if one client had them (every group's mean is over
        all its rows). "uniform", "size", weights (N,) or a mapping by client name: the weighted
        mean of the constraints of those clients that have rows for them

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> parity = bf.Coupled(
    ...     bf.DemographicParity("sex", level=0.05)
    ... )  # over both clients together
    >>> problem = bf.Problem(bf.Logistic(), constraint=parity, regulariser=bf.L2(0.01))
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    constraint: constraints.Stated
    prior: Prior | Literal["rows"] = "rows"

    @property
    def convex(self) -> bool:
        """Whether it bounds a convex set of models."""
        return constraints.is_convex(self.constraint)

    def at(self, problem: constraints.Objective, data: Metadata) -> Shared:
        inner = constraints.several(self.constraint, "Coupled")
        if len(inner) != 1 or isinstance(inner[0], Coupled):
            raise TypeError(
                "Coupled takes one constraint, such as NeymanPearson(1, 0.2), got"
                f" {self.constraint!r}."
            )
        one = inner[0].at(problem, data)
        if isinstance(self.prior, str) and self.prior == "rows":
            if not isinstance(one, OnRows):
                raise ValueError(
                    "Coupled(..., prior='rows') is for constraints on rows: for others give"
                    " prior='uniform'."
                )
            if np.ptp(one.level, 0).any():
                raise ValueError(
                    "Coupled(..., prior='rows') has one level for all clients: give one number."
                )
            total = one.masses(data).sum(0)
            if (total <= 0).any():
                raise ValueError(
                    "Coupled: a group has no rows at any client, so its mean is undefined. Check"
                    " label and column."
                )
            whole = replace(one, total=total, sizes=data.masses)
            return Shared(whole, np.ones((data.n_clients, len(one.equality))))
        prior = resolve_prior(self.prior, data.sizes.astype(float), data.clients)
        weight = one.held_by(data) * prior[:, None]
        if not weight.any(0).all():
            raise ValueError(
                "Coupled: no client with a weight has rows for it. Check label, column and prior."
            )
        return Shared(one, weight / weight.sum(0))  # the mean over the clients that have it


@dataclass(eq=False)
class Shared:
    """The concrete form: client i adds scale_i c_i(w) to each of the p sums."""

    one: constraints.Concrete
    scale: Array  # (N, p)

    def __post_init__(self) -> None:
        one = self.one
        self.equality, self.convex, self.affine = one.equality, one.convex, one.affine
        self.words = tuple(f"{word}, all clients together" for word in one.words)
        # None where the constraint has no second derivatives
        self.hessian: object = getattr(one, "hessian", one)

    def held_by(self, data: Metadata) -> NDArray[np.bool_]:
        """(N, p) whether a client adds to the sums."""
        return self.one.held_by(data) & (self.scale > 0)

    def _scale(self, block: Block) -> Array:
        """(n, p); 0 for what a client does not have."""
        return self.scale[block.index] * ~np.isnan(self.one.limits(block))

    def values(self, point: constraints.Point) -> Array:
        return self.one.values(point) * self._scale(point.block)

    def jacobian(self, point: constraints.Point) -> Array:
        return self.one.jacobian(point) * self._scale(point.block)[:, :, None]

    def curvature(
        self, point: constraints.Point, multipliers: Array
    ) -> tuple[Array | None, Array | None]:
        return self.one.curvature(point, multipliers * self._scale(point.block))

    def split(
        self, point: constraints.Point, multipliers: Array
    ) -> tuple[Array | None, Array, Array]:
        return self.one.split(point, multipliers * self._scale(point.block))

    def magnitudes(self, point: constraints.Point, multipliers: Array) -> Array:
        return self.one.magnitudes(point, multipliers * self._scale(point.block))

    def limits(self, block: Block) -> Array:
        return np.nan_to_num(self.one.limits(block)) * self._scale(block)


# What the slot ``constraint`` becomes: constraints on the server's own data, and sums over the
# clients.


@dataclass(frozen=True, eq=False)
class Global:
    """c_0(w) <= 0 on the server's data, and sum_i c_i(w) <= 0 over all clients.

    Attributes
    ----------
    held : p_0 constraints
    block : the server's rows; a row of zeros where it holds none and c_0 is about the model only
    coupled : p_c constraints, of which every client adds its part
    """

    held: constraints.Stack = field(default_factory=constraints.Stack)
    block: Block | None = None
    coupled: constraints.Stack = field(default_factory=constraints.Stack)

    def point(self, problem: constraints.Objective, w: Array) -> constraints.Point:
        """The model on the server's rows."""
        assert self.block is not None
        return constraints.Point(problem, w, self.block)

    @property
    def convex(self) -> bool:
        """Whether all are."""
        return self.held.convex and self.coupled.convex


def shared(
    stated: Global | constraints.Slot,
    problem: constraints.Objective,
    data: Metadata,
    server: tuple[Metadata, Block] | None,
) -> Global:
    """The concrete form of the slot ``constraint``; ``server`` is what the server itself holds."""
    if isinstance(stated, Global):
        return stated
    parts = constraints.several(stated, "constraint")
    together = tuple(one.at(problem, data) for one in parts if isinstance(one, Coupled))
    held = tuple(one for one in parts if not isinstance(one, Coupled))
    if server is None:
        if not all(getattr(one, "of_model", False) for one in held):
            raise ValueError(
                "constraint is for the server's own data, and the federation has none: give"
                " Federation(..., server=(X0, y0)), put the constraint into local_constraint (every"
                " client's own rows), or into Coupled (all clients' rows)."
            )
        if any(getattr(one, "C", 0) is None for one in held):
            raise ValueError(
                "constraint=LinearEquality() or LinearInequality() reads the server's own C and d,"
                " and there are none: give Federation.from_quadratics(A, b, C, d) or (C, d) here,"
                " or put it into local_constraint for the clients'."
            )
        concrete, one = constraints.stack(held, problem, data, "constraint"), np.zeros((1, 1))
        rows = np.zeros((1, 1, data.n_features)), one, one + 1.0
        block = Block(*rows, np.zeros(1, np.intp), ("server",))
    else:
        concrete, block = constraints.stack(held, problem, server[0], "constraint"), server[1]
    for word, limit in zip(concrete.words, concrete.limits(block)[0], strict=True):
        if np.isnan(limit):
            raise ValueError(
                f"constraint: the server has no rows for the {word}: leave it out, or give such"
                " rows."
            )
    return Global(concrete, block, constraints.Stack(together))
