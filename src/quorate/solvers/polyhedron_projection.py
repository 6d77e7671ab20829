"""The nearest weights that keep linear inequalities: argmin { ||q - v|| : D q <= c, q >= 0, sum q = 1 }.

An interior point method (Clarabel) tells which inequalities hold with equality there. Given these, q and multipliers
(y of the rows, g of the sum) solve linear equations,

    q_F = (v - D'y - g)_F,   D_T q = c_T,   sum q = 1;    F: q > 0,  T: rows that are met

and prove themselves: all slacks, y, and (D'y + g - v) outside F are >= 0. What fails changes sides, a few times; where
that does not settle, or v is so far away that its differences lose digits, ``nearest_point`` goes by linear programs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.solvers.conic import Model, Status
from quorate.solvers.linear_programs import largest_in_polyhedron
from quorate.solvers.nearest_point import nearest_point

FAR = 1e3  # a spread of v from which single vertices matter
CHANGES = 20
ROUNDING = 1e-14

Mask = NDArray[np.bool_]


def project_polyhedron(v: Array, D: Array, c: Array) -> Array | None:
    """The nearest point of the set, None where it is empty; rows of D of largest entry one, or zero."""
    v = v - v.max()
    q = None if v.min() < -FAR else _polished(v, D, c)
    if q is not None or largest_in_polyhedron(np.zeros_like(v), D, c) is None:
        return q
    return nearest_point(v, lambda z: _vertex(z, D, c))


def _vertex(z: Array, D: Array, c: Array) -> Array:
    found = largest_in_polyhedron(z, D, c)
    if found is None:
        raise ArithmeticError(
            "HiGHS found weights with D q <= c once, and none again: the set is nearly empty. Raise c."
        )
    return found[0]


def _polished(v: Array, D: Array, c: Array) -> Array | None:
    """The nearest point exact to rounding, or None."""
    guess = _guess(v, D, c)
    if guess is None:
        return None
    free, met = guess
    for _ in range(CHANGES):
        q, y, left = _on(v, D, c, free, met)
        short, size = c - D @ q, max(1.0, float(np.abs(y).max(initial=0.0)))
        wrong_free, wrong_out = free & (q < -ROUNDING), ~free & (left > ROUNDING * size)
        wrong_met, wrong_slack = met & (y < -ROUNDING * size), ~met & (short < -ROUNDING)
        if not (wrong_free.any() or wrong_out.any() or wrong_met.any() or wrong_slack.any()):
            return _clean(q, D, c)
        free, met = free ^ (wrong_free | wrong_out), met ^ (wrong_met | wrong_slack)
    return None


def _clean(q: Array, D: Array, c: Array) -> Array | None:
    q = np.maximum(q, 0.0)
    q = q / q.sum()
    return q if float((D @ q - c).max(initial=0.0)) <= 10 * ROUNDING else None


def _guess(v: Array, D: Array, c: Array) -> tuple[Mask, Mask] | None:
    """(entries that are positive, rows that are met), by which of slack and multiplier is the larger."""
    model = Model()
    q = model.variable(len(v))
    model.quadratic(q, 1.0)
    model.linear(q, -v)
    model.zero([(q, np.ones((1, len(v)))), -1.0])
    positive = model.nonneg([(q, 1.0)])
    rows = model.nonneg([(q, -D), c]) if len(c) else slice(0, 0)
    found = model.solve(1e-10)
    if found.status not in (Status.SOLVED, Status.ALMOST_SOLVED):
        return None
    near = found.x[q]
    return near > found.z[positive], c - D @ near < found.z[rows]


def _on(v: Array, D: Array, c: Array, free: Mask, met: Mask) -> tuple[Array, Array, Array]:
    """q nearest to v with these equalities, y of all rows, and v - D'y - g."""
    A = np.vstack([D[met], np.ones(len(v))])
    of_free, b = A[:, free], np.append(c[met], 1.0)
    price = np.linalg.lstsq(of_free @ of_free.T, of_free @ v[free] - b, rcond=None)[0]
    left = v - A.T @ price
    q = np.where(free, left, 0.0)
    q[free] += np.linalg.lstsq(of_free, b - of_free @ q[free], rcond=None)[0]  # what rounding left of the equalities
    y = np.zeros(len(c))
    y[met] = price[:-1]
    return q, y, left
