"""The worst weighting that keeps linear inequalities.

    R(z) = max { q'z : D q <= c,  q >= 0,  sum q = 1 }

Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-EASE), their polyhedron
kept within the simplex. Worst cases are linear programs (HiGHS), bounds are computed from their multipliers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.problem.risks.given import by_name, numbers
from quorate.problem.risks.risk import Worst, prox_by_moreau, vector
from quorate.solvers.linear_programs import excess, largest_in_polyhedron


@dataclass(frozen=True, eq=False)
class Polyhedron:
    """Client weights q with D q <= c.

    Parameters
    ----------
    D : (m, N), one column per client, or a mapping from client name to a column (m,)
    c : (m,)

    Raises
    ------
    ValueError
        shapes that do not match, numbers that are not finite; by ``at`` or at the first use, where no weights keep all
        inequalities
    """

    D: Any
    c: Any

    def __post_init__(self) -> None:
        c = numbers(self.c, "c")
        if c.ndim != 1:
            raise ValueError(f"c must be a vector, one number for each row of D, got shape {c.shape}.")
        if not isinstance(self.D, Mapping):
            _matrix(self.D, c)

    def at(self, sizes: Sequence[int] | Array, names: Sequence[str] | None = None) -> Polyhedron:
        given = isinstance(self.D, Mapping)
        D = np.transpose(numbers(by_name(self.D, names, "D"), "D")) if given else self.D
        c = numbers(self.c, "c")
        concrete = replace(self, D=_matrix(D, c), c=c)
        concrete.worst(np.zeros(len(sizes)))
        return concrete

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, None, "losses")
        D, c = self._rows(len(losses))
        found = largest_in_polyhedron(losses, D, c)
        if found is None:
            raise ValueError(_empty(D, c))
        q, bound = found
        value = float(q @ losses)
        return Worst(value, q, max(bound, value))

    def project(self, v: Array) -> Array:
        from quorate.solvers.polyhedron_projection import project_polyhedron

        v = vector(v, None, "v")
        D, c = self._rows(len(v))
        q = project_polyhedron(v, D, c)
        if q is None:
            raise ValueError(_empty(D, c))
        return q

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        """Rows count in units of their largest entry."""
        weights = vector(weights, None, "weights")
        D, c = self._rows(len(weights))
        over = float((D @ weights - c).max(initial=-np.inf))
        return bool(weights.min() >= -tol and abs(weights.sum() - 1) <= tol and over <= tol)

    def _rows(self, n: int) -> tuple[Array, Array]:
        """D and c with rows divided by the largest entry of D."""
        if isinstance(self.D, Mapping):
            raise ValueError("D by client name needs the clients' names: call risk.at(sizes, names) first.")
        c = numbers(self.c, "c")
        D = _matrix(self.D, c)
        if D.shape[1] != n:
            raise ValueError(f"D must have one column per client, {n} of them, got shape {D.shape}.")
        scale = np.abs(D).max(1)
        scale = np.where(scale > 0, scale, 1.0)
        return D / scale[:, None], c / scale


def _empty(D: Array, c: Array) -> str:
    return (
        f"the set is empty: every weighting of the {D.shape[1]} clients exceeds a row of D q <= c, the best by "
        f"{excess(D, c):.6g} (rows divided by their largest entry). Raise c."
    )


def _matrix(D: Any, c: Array) -> Array:
    D = numbers(D, "D")
    if D.ndim != 2 or D.shape[0] != len(c) or D.shape[1] == 0:
        raise ValueError(f"D must be a matrix with {len(c)} rows, one for each entry of c, got shape {D.shape}.")
    return D
