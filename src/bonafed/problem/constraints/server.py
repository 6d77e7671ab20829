"""What the slot ``constraint`` becomes: constraints on the server's own data, and sums over the
clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.problem.constraints.constraint import (
    Objective,
    Point,
    Slot,
    Stack,
    Stated,
    several,
    stack,
)
from bonafed.problem.constraints.coupled import Coupled

if TYPE_CHECKING:
    from bonafed.problem.metadata import Metadata


@dataclass(frozen=True, eq=False)
class Global:
    """c_0(w) <= 0 on the server's data, and sum_i c_i(w) <= 0 over all clients.

    Attributes
    ----------
    held : p_0 constraints
    block : the server's rows; a row of zeros where it holds none and c_0 is about the model only
    coupled : p_c constraints, of which every client adds its part
    """

    held: Stack = field(default_factory=Stack)
    block: Block | None = None
    coupled: Stack = field(default_factory=Stack)

    def point(self, problem: Objective, w: Array) -> Point:
        """The model on the server's rows."""
        assert self.block is not None
        return Point(problem, w, self.block)

    @property
    def convex(self) -> bool:
        """Whether all are."""
        return self.held.convex and self.coupled.convex


def shared(
    stated: Global | Slot,
    problem: Objective,
    data: Metadata,
    server: tuple[Metadata, Block] | None,
) -> Global:
    """The concrete form of the slot ``constraint``; ``server`` is what the server itself holds."""
    if isinstance(stated, Global):
        return stated
    parts = several(stated, "constraint")
    together = tuple(one.at(problem, data) for one in parts if isinstance(one, Coupled))
    held = tuple(one for one in parts if not isinstance(one, Coupled))
    if server is None:
        _check_without_rows(held)
        concrete, block = stack(held, problem, data, "constraint"), _empty(data.n_features)
    else:
        concrete, block = stack(held, problem, server[0], "constraint"), server[1]
    for word, limit in zip(concrete.words, concrete.limits(block)[0], strict=True):
        if np.isnan(limit):
            raise ValueError(
                f"constraint: the server has no rows for the {word}: leave it out, or give such"
                " rows."
            )
    return Global(concrete, block, Stack(together))


def _check_without_rows(constraints: Sequence[Stated]) -> None:
    """Raise ``ValueError`` for a constraint that needs data of the server, where it has none."""
    if not all(getattr(one, "of_model", False) for one in constraints):
        raise ValueError(
            "constraint is for the server's own data, and the federation has none: give"
            " Federation(..., server=(X0, y0)), put the constraint into local_constraint (every"
            " client's own rows), or into Coupled (all clients' rows)."
        )
    if any(getattr(one, "C", 0) is None for one in constraints):
        raise ValueError(
            "constraint=LinearEquality() or LinearInequality() reads the server's own C and d, and"
            " there are none: give Federation.from_quadratics(A, b, C, d) or (C, d) here, or put it"
            " into local_constraint for the clients'."
        )


def _empty(d: int) -> Block:
    one = np.zeros((1, 1))
    return Block(np.zeros((1, 1, d)), one, one + 1.0, np.zeros(1, np.intp), ("server",))
