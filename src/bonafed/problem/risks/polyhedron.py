"""The worst client weights that keep linear inequalities.

    R(z) = max { q'z : D q <= c,  q >= 0,  sum q = 1 }

Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-EASE),
their polyhedron kept within the simplex. Worst cases are linear programs (HiGHS), bounds are
computed from their multipliers. A concrete set keeps the vertices it met last, so that losses that
change slowly need no new program; no answer depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.risk import Matrix, Names, Sizes, by_name, entries, numbers
from bonafed.problem.risks.weight_set import WeightSet
from bonafed.solvers.sets.linear_programs import excess, largest_in_polyhedron
from bonafed.solvers.sets.vertices import Met


class _Scaled(NamedTuple):
    """D and c with rows divided by the largest entry of D, and what was met."""

    D: Array
    c: Array
    met: Met | None


@dataclass(frozen=True, eq=False)
class Polyhedron(WeightSet):
    """Client weights q with D q <= c.

    Parameters
    ----------
    D : (m, N), one column per client, or a mapping from client name to a column (m,)
    c : (m,)

    Raises
    ------
    ValueError
        shapes that do not match, numbers that are not finite; by ``at`` or at the first use, where
        no weights keep all inequalities

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Polyhedron(D=[[0.0, 0.0, 1.0]], c=[0.5])  # at most half on the third
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.0, 0.5, 0.5]
    """

    phrase: ClassVar[str] = "weights p with D p <= c, {c:#row}"
    D: Matrix | Mapping[Any, Sequence[float] | Array]
    c: Sequence[float] | Array

    def __post_init__(self) -> None:
        c = numbers(self.c, "c")
        if c.ndim != 1:
            raise ValueError(
                f"c must be a vector, one number for each row of D, got shape {c.shape}."
            )
        by_column = isinstance(self.D, Mapping)
        _matrix(np.transpose(numbers(entries(self.D), "D")) if by_column else self.D, c)

    def at(self, sizes: Sizes, names: Names = None) -> Polyhedron:
        by_column = isinstance(self.D, Mapping)
        D = np.transpose(numbers(by_name(self.D, names, "D"), "D")) if by_column else self.D
        c = numbers(self.c, "c")
        matrix = _matrix(D, c)
        concrete = replace(self, D=matrix, c=c)
        for array in (matrix, c):  # what is kept of them must stay true
            array.setflags(write=False)
        vars(concrete)["_kept"] = concrete.scaled(len(sizes))._replace(met=Met())
        concrete.worst(np.zeros(len(sizes)))
        return concrete

    def __getstate__(self) -> dict[str, Any]:
        """Its fields: copies and files have met nothing."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _largest(self, losses: Array) -> tuple[Array, float]:
        D, c, met = self.scaled(len(losses))
        answer = largest_in_polyhedron(losses, D, c, met)
        if answer is None:
            raise ValueError(_empty(D, c))
        return answer

    def _nearest(self, v: Array) -> Array:
        from bonafed.solvers.sets.polyhedron_projection import project_polyhedron

        D, c, met = self.scaled(len(v))
        q = project_polyhedron(v, D, c, met)
        if q is None:
            raise ValueError(_empty(D, c))
        return q

    def _holds(self, weights: Array, tol: float) -> bool:
        """Rows count in units of their largest entry."""
        D, c, _ = self.scaled(len(weights))
        return float((D @ weights - c).max(initial=-np.inf)) <= tol

    def scaled(self, n: int) -> _Scaled:
        """D and c of n clients in their scale; raises ``ValueError`` where they do not fit."""
        if isinstance(self.D, Mapping):
            raise ValueError(
                "D by client name needs the clients' names: call risk.at(sizes, names) first."
            )
        kept = vars(self).get("_kept")
        if kept is not None and kept.D.shape[1] == n:
            return kept
        c = numbers(self.c, "c")
        D = _matrix(self.D, c)
        if D.shape[1] != n:
            raise ValueError(
                f"D must have one column per client, {n} of them, got shape {D.shape}."
            )
        scale = np.abs(D).max(1)
        scale = np.where(scale > 0, scale, 1.0)
        return _Scaled(D / scale[:, None], c / scale, None)


def _empty(D: Array, c: Array) -> str:
    return (
        f"the set is empty: all weights of the {D.shape[1]} clients exceed a row of D q <= c,"
        f" the best by {excess(D, c):.6g} (rows divided by their largest entry). Raise c."
    )


def _matrix(D: object, c: Array) -> Array:
    matrix = numbers(D, "D")
    if matrix.ndim != 2 or matrix.shape[0] != len(c) or matrix.shape[1] == 0:
        raise ValueError(
            f"D must be a matrix with {len(c)} rows, one for each entry of c, got shape"
            f" {matrix.shape}."
        )
    return matrix
