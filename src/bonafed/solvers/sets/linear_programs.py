"""Linear programs over weights by HiGHS: max z'q with D q <= c, q >= 0 and sum q = 1, proved.

    z'q <= c'y + max_i (z - D'y)_i      for every y >= 0 and every such q

The bound is computed anew from the multipliers y, so it holds whatever HiGHS returns. HiGHS meets
its conditions to 1e-10 in units of the losses' spread. Where value and bound differ by more than
rounding, the program is solved again with the reduced costs (z - D'y for q and -y for the slack
c - D q), which are about a millionth as large.

Where the maximiser is clearly unique, the answer is computed from its vertex (``vertices``). Where
vertices of earlier calls are kept they are tried before HiGHS; the answer is the same either way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.sets.box_and_cd_norm import scaled, unscaled
from bonafed.solvers.sets.vertices import Best, Met, is_crowded, widened

OPTIONS = {
    "presolve": False,
    "primal_feasibility_tolerance": 1e-10,
    "dual_feasibility_tolerance": 1e-10,
}
CLOSE = 1e-14  # of bound - value, relative to the numbers added up
FINER = 3  # further programs at most
UNIT = 1e-6  # of their costs


class _Proved(NamedTuple):
    """Weights q, multipliers y of the rows, and the upper bound that y proves."""

    q: Array
    y: Array
    bound: float
    size: float  # of the numbers that the bound is the sum of


def _solve(z: Array, D: Array, c: Array) -> Any:
    from scipy.optimize import linprog

    return linprog(-z, D, c, np.ones((1, len(z))), np.ones(1), options=OPTIONS)


def _solve_finer(z: Array, D: Array, c: Array, y: Array) -> Any:
    """The same program, written with its slack and the reduced costs that y leaves."""
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


def largest_in_polyhedron(
    losses: Array, D: Array, c: Array, met: Met | None = None
) -> tuple[Array, float] | None:
    """A maximiser of losses'q over the polyhedron, and an upper bound; None where it is empty.

    D is (m, N) and c (m,); every row of D has a largest entry of one, or is zero.

    ``met`` holds vertices of this D and c from earlier calls; they save programs and change no
    answer.

    Raises
    ------
    ArithmeticError
        where HiGHS ends without an answer
    """
    scale = scaled(losses)
    met = met or Met()
    proof = met.best(scale.z, D, c)
    if proof is None:
        program = _solve(scale.z, D, c)
        if program.status == 2:
            return None
        if program.status != 0:
            raise ArithmeticError(
                "HiGHS gave no worst case of the polyhedron: "
                f"{program.message} Scale the rows of D."
            )
        proof = _only(scale.z, program.x, D, c, met)
    if proof is None:
        first = _proved(
            scale.z, _inside(program.x, D, c), np.maximum(-program.ineqlin.marginals, 0.0), D, c
        )
        best = _refined(scale.z, first, D, c)
        proof = (_only(scale.z, best.q, D, c, met) if best is not first else None) or best
    return proof.q, unscaled(scale, proof.bound, proof.size)


def _only(z: Array, q: Array, D: Array, c: Array, met: Met) -> Best | None:
    """The proved answer where q is near a unique maximiser, else None."""
    if not is_crowded(q, D, c):
        return met.near(z, q, D, c)
    program = _solve(z, D, widened(c))
    return met.near(z, program.x, D, c, wider=True) if program.status == 0 else None


def _refined(z: Array, best: _Proved, D: Array, c: Array) -> _Proved:
    """The solution solved again with its reduced costs, until value and bound meet."""
    for _ in range(FINER):
        if best.bound - float(z @ best.q) <= CLOSE * best.size:
            break
        program = _solve_finer(z, D, c, best.y)
        if program.status != 0:
            break
        y = np.maximum(best.y - UNIT * program.eqlin.marginals[:-1], 0.0)
        best = _better(z, best, _proved(z, _inside(program.x[: len(z)], D, c), y, D, c))
    return best


def _proved(z: Array, q: Array, y: Array, D: Array, c: Array) -> _Proved:
    over, paid = z - D.T @ y, float(c @ y)
    return _Proved(
        q, y, paid + float(over.max()), 1.0 + float(np.abs(c) @ y) + float(np.abs(D).max(1) @ y)
    )


def _better(z: Array, one: _Proved, two: _Proved) -> _Proved:
    """The larger value and the smaller bound of two solutions."""
    q = one.q if z @ one.q >= z @ two.q else two.q
    return (one if one.bound <= two.bound else two)._replace(q=q)


def _inside(q: Array, D: Array, c: Array) -> Array:
    """q made nonnegative with sum one, and moved onto the rows that it misses."""
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
