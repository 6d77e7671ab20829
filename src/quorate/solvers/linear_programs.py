"""Linear programs over weights: the largest z'q with D q <= c, q >= 0 and sum q = 1, by HiGHS, and what proves it.

    z'q <= c'y + max_i (z - D'y)_i      for every y >= 0 and every such q

The bound is computed anew from the multipliers y, so that it holds whatever HiGHS says. HiGHS meets its conditions to
1e-10 in units of the losses' spread; where value and bound differ by more than rounding, the program is solved again for
what is left, z - D'y, in units of that difference, and the multipliers are added up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quorate.arrays import Array
from quorate.solvers.client_sets import scaled, unscaled
from quorate.solvers.projections import EPS

OPTIONS = {"presolve": False, "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
CLOSE = 1e-14  # of bound - value, relative to the numbers added up
FINER = 3  # further programs at most


class _Proved(NamedTuple):
    q: Array
    y: Array
    bound: float
    size: float  # of the numbers the bound is the sum of


def _solve(z: Array, D: Array, c: Array) -> Any:
    from scipy.optimize import linprog

    return linprog(-z, D, c, np.ones((1, len(z))), np.ones(1), options=OPTIONS)


def excess(D: Array, c: Array) -> float:
    """The least s >= 0 with D q <= c + s for some weights q."""
    from scipy.optimize import linprog

    cost = np.append(np.zeros(D.shape[1]), 1.0)
    rows, sums = np.column_stack([D, -np.ones(len(c))]), np.append(np.ones(D.shape[1]), 0.0)[None]
    return float(linprog(cost, rows, c, sums, np.ones(1), options=OPTIONS).fun)


def largest_in_polyhedron(losses: Array, D: Array, c: Array) -> tuple[Array, float] | None:
    """A maximiser of losses'q and an upper bound; D (m, N), c (m,). None where there are no such weights.

    Raises
    ------
    ArithmeticError
        where HiGHS ends without an answer
    """
    of = scaled(losses)
    best, y, z, unit = None, np.zeros(len(c)), of.z, 1.0
    for _ in range(1 + FINER):
        found = _solve(z / unit, D, c)
        if found.status == 2 and best is None:
            return None
        if found.status != 0:
            if best is not None:
                break
            raise ArithmeticError(f"HiGHS gave no worst case of the polyhedron: {found.message} Scale the rows of D.")
        y = np.maximum(y - unit * found.ineqlin.marginals, 0.0)
        new = _proved(of.z, _inside(found.x, D, c), y, D, c)
        best = new if best is None else _better(of.z, best, new)
        gap = best.bound - float(of.z @ best.q)
        if gap <= CLOSE * best.size:
            break
        z, y = of.z - D.T @ best.y, best.y
        z, unit = z - z.max(), max(gap, EPS)
    if best is None:
        return None
    return best.q, unscaled(of, best.bound, best.size)


def _proved(z: Array, q: Array, y: Array, D: Array, c: Array) -> _Proved:
    over, paid = z - D.T @ y, float(c @ y)
    return _Proved(q, y, paid + float(over.max()), 1.0 + float(np.abs(c) @ y) + float(np.abs(D).max(1) @ y))


def _better(z: Array, one: _Proved, two: _Proved) -> _Proved:
    """The larger value and the smaller bound of two."""
    q = one.q if z @ one.q >= z @ two.q else two.q
    return (one if one.bound <= two.bound else two)._replace(q=q)


def _inside(q: Array, D: Array, c: Array) -> Array:
    """q made nonnegative and summing to one; moved onto the rows it meets where it misses them by more than rounding."""
    q = np.maximum(q, 0.0)
    q = q / q.sum()
    slack = c - D @ q
    if slack.size == 0 or slack.min() >= -CLOSE:
        return q
    on, held = np.abs(slack) <= 1e-8, q > 0
    rows = np.vstack([D[on][:, held], np.ones(int(held.sum()))])
    moved = q.copy()
    moved[held] += np.linalg.lstsq(rows, np.append(slack[on], 0.0), rcond=1e-12)[0]
    better = moved.min() >= 0 and float((c - D @ moved).min()) > float(slack.min())
    return moved if better else q
