"""The projection onto weights under linear inequalities: {D q <= c, q >= 0, sum q = 1}.

    argmin { ||q - v|| : D q <= c, q >= 0, sum q = 1 }

Once it is known which inequalities hold with equality, q and the multipliers (y of the rows, g of
the sum) solve equations,

    q_F = (v - D'y - g)_F,   D_T q = c_T,   sum q = 1;    F: q > 0,  T: rows that are met

and prove themselves: all slacks, y, and (D'y + g - v) outside F are >= 0. Indices that fail change
sides, a few times. The first guess of F and T comes from the nearest point of the simplex, the
second from an interior point method (Clarabel). Where neither settles, or v is so far away that its
differences lose digits, ``nearest_point`` solves the problem by linear programs.

The nearest point is unique, and where all of q_F, slacks, y and differences are clearly positive so
are F and T. Then the answer does not depend on where they came from, and those of the last
projection are tried first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import Model, Status
from bonafed.solvers.sets.linear_programs import largest_in_polyhedron
from bonafed.solvers.sets.nearest_point import nearest_point
from bonafed.solvers.sets.projections import project_simplex
from bonafed.solvers.sets.vertices import Mask, Met

FAR = 1e3  # a spread of v from which single vertices matter
CHANGES = 20
ROUNDING = 1e-14
ROOM = 1e-9  # q, slacks, y and differences above this are clearly positive
# F and T are not sure where the equations' matrix has a larger condition number
STEEP = 1e6


class _Settled(NamedTuple):
    """The nearest point with its sides (F, T), and whether these are beyond doubt."""

    q: Array
    sides: tuple[Mask, Mask]
    sure: bool


def project_polyhedron(v: Array, D: Array, c: Array, met: Met | None = None) -> Array | None:
    """The nearest point of the set, None where it is empty.

    Every row of D has a largest entry of one, or is zero. ``met`` is of this D and c from earlier
    calls; it saves work and changes no answer.
    """
    v, met = v - v.max(), met or Met()
    far = bool(v.min() < -FAR)
    q = None if far else _polished(v, D, c, met)
    if q is not None or largest_in_polyhedron(np.zeros_like(v), D, c) is None:
        return q
    q = nearest_point(v, lambda z: _vertex(z, D, c, met))
    settled = None if far else _settled(v, D, c, (q > ROOM, c - D @ q <= ROOM))
    return settled.q if settled is not None and settled.sure else q


def _vertex(z: Array, D: Array, c: Array, met: Met) -> Array:
    best = largest_in_polyhedron(z, D, c, met)
    if best is None:
        raise ArithmeticError(
            "HiGHS returned weights with D q <= c once and none the next time: the set is nearly"
            " empty. Raise c."
        )
    return best[0]


def _polished(v: Array, D: Array, c: Array, before: Met) -> Array | None:
    """The nearest point, exact to rounding, or None where no guess of the sides settles."""
    settled = None
    for start in (lambda: before.sides, lambda: _simple(v, D, c), lambda: _guess(v, D, c)):
        settled = _settled(v, D, c, start())
        if settled is not None and settled.sure:
            before.sides = settled.sides
            break
    return None if settled is None else settled.q


def _simple(v: Array, D: Array, c: Array) -> tuple[Mask, Mask]:
    """(F, rows that are exceeded) at the nearest point of the simplex."""
    q = project_simplex(v)
    return q > 0, c - D @ q < 0


def _settled(v: Array, D: Array, c: Array, start: tuple[Mask, Mask] | None) -> _Settled | None:
    """The nearest point that these sides lead to; None where they do not settle."""
    if start is None:
        return None
    free, met = start
    for _ in range(CHANGES):
        at = _on(v, D, c, free, met)
        q, y, left = at.q, at.y, at.left
        short, size = c - D @ q, max(1.0, float(np.abs(y).max(initial=0.0)))
        wrong_free, wrong_out = free & (q < -ROUNDING), ~free & (left > ROUNDING * size)
        wrong_met, wrong_slack = met & (y < -ROUNDING * size), ~met & (short < -ROUNDING)
        if not (wrong_free.any() or wrong_out.any() or wrong_met.any() or wrong_slack.any()):
            q, room = _clean(q, D, c), ROOM * size
            numbers = np.concatenate([at.q[free], -left[~free], y[met], short[~met]])
            sure = at.steep <= STEEP and float(numbers.min()) >= room
            return None if q is None else _Settled(q, (free, met), sure)
        free, met = free ^ (wrong_free | wrong_out), met ^ (wrong_met | wrong_slack)
    return None


def _clean(q: Array, D: Array, c: Array) -> Array | None:
    q = np.maximum(q, 0.0)
    q = q / q.sum()
    return q if float((D @ q - c).max(initial=0.0)) <= 10 * ROUNDING else None


def _guess(v: Array, D: Array, c: Array) -> tuple[Mask, Mask] | None:
    """The sides (positive entries, rows that are met) at a solution of the interior point method.

    An entry is on the side whose slack or multiplier is the larger of the two.
    """
    model = Model()
    q = model.variable(len(v))
    model.quadratic(q, 1.0)
    model.linear(q, -v)
    model.zero([(q, np.ones((1, len(v)))), -1.0])
    positive = model.nonneg([(q, 1.0)])
    rows = model.nonneg([(q, -D), c]) if len(c) else slice(0, 0)
    solution = model.solve(1e-10)
    if solution.status not in (Status.SOLVED, Status.ALMOST_SOLVED):
        return None
    near = solution.x[q]
    return near > solution.z[positive], c - D @ near < solution.z[rows]


class _On(NamedTuple):
    """The point nearest to v under equalities.

    It holds q, y of all rows, v - D'y - g, and the condition number of the equalities.
    """

    q: Array
    y: Array
    left: Array
    steep: float


def _on(v: Array, D: Array, c: Array, free: Mask, met: Mask) -> _On:
    A = np.vstack([D[met], np.ones(len(v))])
    of_free, b = A[:, free], np.append(c[met], 1.0)
    multiplier, _, _, values = np.linalg.lstsq(
        of_free @ of_free.T, of_free @ v[free] - b, rcond=None
    )
    left = v - A.T @ multiplier
    q = np.where(free, left, 0.0)
    # correct the equalities for rounding
    q[free] += np.linalg.lstsq(of_free, b - of_free @ q[free], rcond=None)[0]
    y = np.zeros(len(c))
    y[met] = multiplier[:-1]
    return _On(q, y, left, float(values[0] / values[-1]) if values[-1] > 0 else np.inf)
