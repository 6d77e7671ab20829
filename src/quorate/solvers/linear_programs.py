"""Linear programs over weights: the largest z'q with D q <= c, q >= 0 and sum q = 1, by HiGHS, and what proves it.

    z'q <= c'y + max_i (z - D'y)_i      for every y >= 0 and every such q

The bound is computed anew from the multipliers y, so that it holds whatever HiGHS says. HiGHS meets its conditions to
1e-10 in units of the losses' spread; where value and bound differ by more than rounding, the program is solved again
with what its multipliers leave, a millionth as large, as its costs: z - D'y of q and -y of the slack c - D q.

Where the maximiser is the only one, and clearly so, the answer is written from its vertex (``vertices``), which is
tried before HiGHS where vertices are kept: the answer is the same with and without.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quorate.arrays import Array
from quorate.solvers.client_sets import scaled, unscaled
from quorate.solvers.vertices import Best, Met, is_crowded, widened

OPTIONS = {"presolve": False, "primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
CLOSE = 1e-14  # of bound - value, relative to the numbers added up
FINER = 3  # further programs at most
UNIT = 1e-6  # of their costs


class _Proved(NamedTuple):
    q: Array
    y: Array
    bound: float
    size: float  # of the numbers the bound is the sum of


def _solve(z: Array, D: Array, c: Array) -> Any:
    from scipy.optimize import linprog

    return linprog(-z, D, c, np.ones((1, len(z))), np.ones(1), options=OPTIONS)


def _solve_finer(z: Array, D: Array, c: Array, y: Array) -> Any:
    """The same program written with its slack and the costs that y leaves."""
    from scipy.optimize import linprog

    m, n = D.shape
    left = z - D.T @ y
    cost = np.append(left.max() - left, y) / UNIT
    rows = np.vstack([np.hstack([D, np.eye(m)]), np.append(np.ones(n), np.zeros(m))])
    return linprog(cost, A_eq=rows, b_eq=np.append(c, 1.0), options=OPTIONS)


def excess(D: Array, c: Array) -> float:
    """The least s >= 0 with D q <= c + s for some weights q."""
    from scipy.optimize import linprog

    cost = np.append(np.zeros(D.shape[1]), 1.0)
    rows, sums = np.column_stack([D, -np.ones(len(c))]), np.append(np.ones(D.shape[1]), 0.0)[None]
    return float(linprog(cost, rows, c, sums, np.ones(1), options=OPTIONS).fun)


def largest_in_polyhedron(losses: Array, D: Array, c: Array, met: Met | None = None) -> tuple[Array, float] | None:
    """A maximiser of losses'q and an upper bound; D (m, N), c (m,), rows of largest entry one or zero.

    ``met`` are vertices of this D and c from earlier calls; they save programs and change no answer. None where there
    are no such weights.

    Raises
    ------
    ArithmeticError
        where HiGHS ends without an answer
    """
    of = scaled(losses)
    met = Met() if met is None else met
    sure = met.best(of.z, D, c)
    if sure is None:
        found = _solve(of.z, D, c)
        if found.status == 2:
            return None
        if found.status != 0:
            raise ArithmeticError(f"HiGHS gave no worst case of the polyhedron: {found.message} Scale the rows of D.")
        sure = _only(of.z, found.x, D, c, met)
    if sure is None:
        first = _proved(of.z, _inside(found.x, D, c), np.maximum(-found.ineqlin.marginals, 0.0), D, c)
        best = _refined(of.z, first, D, c)
        sure = (_only(of.z, best.q, D, c, met) if best is not first else None) or best
    return sure.q, unscaled(of, sure.bound, sure.size)


def _only(z: Array, q: Array, D: Array, c: Array, met: Met) -> Best | None:
    """The answer where q is near the only maximiser."""
    if not is_crowded(q, D, c):
        return met.near(z, q, D, c)
    found = _solve(z, D, widened(c))
    return met.near(z, found.x, D, c, wider=True) if found.status == 0 else None


def _refined(z: Array, best: _Proved, D: Array, c: Array) -> _Proved:
    """Solved again with what the multipliers leave, until value and bound meet."""
    for _ in range(FINER):
        if best.bound - float(z @ best.q) <= CLOSE * best.size:
            break
        found = _solve_finer(z, D, c, best.y)
        if found.status != 0:
            break
        y = np.maximum(best.y - UNIT * found.eqlin.marginals[:-1], 0.0)
        best = _better(z, best, _proved(z, _inside(found.x[: len(z)], D, c), y, D, c))
    return best


def _proved(z: Array, q: Array, y: Array, D: Array, c: Array) -> _Proved:
    over, paid = z - D.T @ y, float(c @ y)
    return _Proved(q, y, paid + float(over.max()), 1.0 + float(np.abs(c) @ y) + float(np.abs(D).max(1) @ y))


def _better(z: Array, one: _Proved, two: _Proved) -> _Proved:
    """The larger value and the smaller bound of two."""
    q = one.q if z @ one.q >= z @ two.q else two.q
    return (one if one.bound <= two.bound else two)._replace(q=q)


def _inside(q: Array, D: Array, c: Array) -> Array:
    """q made nonnegative and summing to one; moved onto the rows it meets where it misses them by more."""
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
