"""The nearest weights that keep linear inequalities: argmin { ||q - v|| : D q <= c, q >= 0, sum q = 1 }.

Given which inequalities hold with equality there, q and multipliers (y of the rows, g of the sum) solve equations,

    q_F = (v - D'y - g)_F,   D_T q = c_T,   sum q = 1;    F: q > 0,  T: rows that are met

and prove themselves: all slacks, y, and (D'y + g - v) outside F are >= 0. What fails changes sides, a few times. The
first guess of F and T is from the nearest point of the simplex, the second from an interior point method (Clarabel);
where both do not settle, or v is so far away that its differences lose digits, ``nearest_point`` goes by linear
programs.

The nearest point is the only one, and where all of q_F, slacks, y and differences are > 0 with room to spare, so are F
and T: then the answer is the same from wherever they were found, and those of the last projection are tried first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quorate.arrays import Array
from quorate.solvers.conic import Model, Status
from quorate.solvers.linear_programs import largest_in_polyhedron
from quorate.solvers.nearest_point import nearest_point
from quorate.solvers.projections import project_simplex
from quorate.solvers.vertices import Mask, Met

FAR = 1e3  # a spread of v from which single vertices matter
CHANGES = 20
ROUNDING = 1e-14
ROOM = 1e-9  # from which q, slacks, y and differences are no rounding
STEEP = 1e6  # of the matrix of the equations, largest singular value to the smallest, beyond which F and T are not sure


class _Settled(NamedTuple):
    q: Array
    sides: tuple[Mask, Mask]
    sure: bool


def project_polyhedron(v: Array, D: Array, c: Array, met: Met | None = None) -> Array | None:
    """The nearest point of the set, None where it is empty; rows of D of largest entry one, or zero.

    ``met`` is of this D and c from earlier calls; it saves work and changes no answer.
    """
    v, met = v - v.max(), Met() if met is None else met
    far = bool(v.min() < -FAR)
    q = None if far else _polished(v, D, c, met)
    if q is not None or largest_in_polyhedron(np.zeros_like(v), D, c) is None:
        return q
    q = nearest_point(v, lambda z: _vertex(z, D, c, met))
    settled = None if far else _settled(v, D, c, (q > ROOM, c - D @ q <= ROOM))
    return settled.q if settled is not None and settled.sure else q


def _vertex(z: Array, D: Array, c: Array, met: Met) -> Array:
    found = largest_in_polyhedron(z, D, c, met)
    if found is None:
        raise ArithmeticError(
            "HiGHS found weights with D q <= c once, and none again: the set is nearly empty. Raise c."
        )
    return found[0]


def _polished(v: Array, D: Array, c: Array, before: Met) -> Array | None:
    """The nearest point exact to rounding, or None."""
    found = None
    for start in (lambda: before.sides, lambda: _simple(v, D, c), lambda: _guess(v, D, c)):
        found = _settled(v, D, c, start())
        if found is not None and found.sure:
            before.sides = found.sides
            break
    return None if found is None else found.q


def _simple(v: Array, D: Array, c: Array) -> tuple[Mask, Mask]:
    """(F, rows that are exceeded) at the nearest weights of all."""
    q = project_simplex(v)
    return q > 0, c - D @ q < 0


def _settled(v: Array, D: Array, c: Array, start: tuple[Mask, Mask] | None) -> _Settled | None:
    """What these sides lead to, with all signs right; None where they do not settle."""
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
            sure = at.steep <= STEEP and _least(at.q[free], -left[~free], y[met], short[~met]) >= room
            return None if q is None else _Settled(q, (free, met), sure)
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


class _On(NamedTuple):
    """q nearest to v with equalities, y of all rows, v - D'y - g, and how far from dependent the equalities are."""

    q: Array
    y: Array
    left: Array
    steep: float


def _on(v: Array, D: Array, c: Array, free: Mask, met: Mask) -> _On:
    A = np.vstack([D[met], np.ones(len(v))])
    of_free, b = A[:, free], np.append(c[met], 1.0)
    price, _, _, values = np.linalg.lstsq(of_free @ of_free.T, of_free @ v[free] - b, rcond=None)
    left = v - A.T @ price
    q = np.where(free, left, 0.0)
    q[free] += np.linalg.lstsq(of_free, b - of_free @ q[free], rcond=None)[0]  # what rounding left of the equalities
    y = np.zeros(len(c))
    y[met] = price[:-1]
    return _On(q, y, left, float(values[0] / values[-1]) if values[-1] > 0 else np.inf)


def _least(*parts: Array) -> float:
    return min(float(part.min(initial=np.inf)) for part in parts)
