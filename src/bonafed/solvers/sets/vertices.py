"""Vertices of {q : D q <= c, q >= 0, sum q = 1} that are proved optimal without a linear program.

A vertex is a set F of positive weights and a set T of rows that hold with equality, one fewer, and
with K = [D_TF; 1'] these are

    K q_F = (c_T, 1),    K'(y_T, g) = z_F,    left = z - D_T'y_T - g

It is the only maximiser of z'q where y_T > 0 and left < 0 outside F, and no other (F, T) describes
it where q_F and the slack of the other rows are positive. Where all of these hold with room to
spare (``ROOM``), at most one pair (F, T) satisfies them, wherever the search began. The result is
computed from that pair, D, c and z only, so it does not depend on earlier calls. A degenerate
vertex, where more rows meet than it needs, has several pairs; the one that counts belongs to the
best vertex of the slightly wider set D q <= c + SHIFT u, u fixed. Losses with several maximisers
are never answered from here: they go to HiGHS, as if there had been no earlier calls.

``Met`` keeps the latest vertices. From the one that is best for new losses, steps of the primal
simplex method lead to the next: none or a few while losses change slowly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.solvers.sets.box_and_cd_norm import EPS

# the least clearly positive weight, slack, y or reduced cost; losses have a spread of one, and rows
# a largest entry of one
ROOM = 1e-5
NEAR = 1e-6  # an entry of HiGHS's answer below this counts as 0
SHIFT = 1e-4
WIDER = SHIFT / 100  # the room of weights and slacks in the wider set
NOTHING = 1e-12  # weights and slacks below this are 0 up to rounding
# vertices are refused where a row of K^-1 has a larger sum, so that rounding stays far below ROOM
STEEP = 1e3
LARGE = 150  # and where they have more rows, since a factor of K is dense
STEPS = 40
KEPT = 8

Mask = NDArray[np.bool_]


class Vertex(NamedTuple):
    """One pair (F, T) with K^-1, and its weights and slacks in the set and in the wider one."""

    free: NDArray[np.intp]  # F, ascending
    met: NDArray[np.intp]  # T, ascending
    inverse: Array
    rows: Array  # D_T
    q: Array  # (2, |F|)
    slack: Array  # (2, m), inf for T


class Best(NamedTuple):
    """A maximiser of z'q and an upper bound of it."""

    q: Array
    bound: float
    size: float  # of the numbers that the bound is the sum of


class Met:
    """The latest vertices of one D and c, the newest first, and (F, T) of the last projection."""

    def __init__(self) -> None:
        self.vertices: tuple[Vertex, ...] = ()
        self.sides: tuple[Mask, Mask] | None = None

    def best(self, z: Array, D: Array, c: Array) -> Best | None:
        """The unique maximiser of z'q, None where these vertices do not lead to it."""
        if not self.vertices:
            return None
        start = self.vertices[int(np.argmax([z[v.free] @ v.q[0] for v in self.vertices]))]
        return self._kept(z, _climbed(z, start, D, c, 0) or _climbed(z, start, D, c, 1), c)

    def near(self, z: Array, q: Array, D: Array, c: Array, wider: bool = False) -> Best | None:
        """The unique maximiser of z'q near q, an answer of HiGHS; None where there is none."""
        least = WIDER / 10 if wider else NEAR
        slack = (widened(c) if wider else c) - D @ q
        start = _vertex(np.flatnonzero(q > least), np.flatnonzero(slack <= least), D, c)
        return None if start is None else self._kept(z, _climbed(z, start, D, c, int(wider)), c)

    def _kept(self, z: Array, at: Vertex | None, c: Array) -> Best | None:
        best = None if at is None else _proved(z, at, c)
        if at is not None and best is not None:
            self.vertices = (at, *(v for v in self.vertices if v is not at))[:KEPT]
        return best


def widened(c: Array) -> Array:
    """c + SHIFT u, with u in [1, 2] in no simple relation."""
    return c + SHIFT * (1 + np.sqrt(2 + np.arange(len(c))) % 1)


def is_crowded(q: Array, D: Array, c: Array) -> bool:
    """Whether q, an answer of HiGHS, is degenerate: more rows meet there than a vertex needs."""
    return int((q > NEAR).sum()) <= int((c - D @ q <= NEAR).sum())


def _vertex(free: NDArray[np.intp], met: NDArray[np.intp], D: Array, c: Array) -> Vertex | None:
    if len(free) != len(met) + 1 or len(met) > LARGE:
        return None
    rows, both = D[met], np.array([c, widened(c)])
    K, b = (
        np.vstack([rows[:, free], np.ones(len(free))]),
        np.append(both[:, met], np.ones((2, 1)), 1).T,
    )
    try:
        inverse = np.asarray(np.linalg.inv(K), float)
    except np.linalg.LinAlgError:
        return None
    if not np.abs(inverse).sum(1).max() <= STEEP:
        return None
    q = inverse @ b
    q += inverse @ (b - K @ q)
    slack = both - (D[:, free] @ q).T
    slack[:, met] = np.inf
    return Vertex(free, met, inverse, rows, q.T, slack)


def _multipliers(z: Array, at: Vertex) -> tuple[Array, Array, float]:
    """The multipliers y of T, z - D_T'y, and the level g."""
    multiplier = z[at.free] @ at.inverse
    multiplier += (z[at.free] - multiplier[:-1] @ at.rows[:, at.free] - multiplier[-1]) @ at.inverse
    return multiplier[:-1], z - multiplier[:-1] @ at.rows, float(multiplier[-1])


def _climbed(z: Array, at: Vertex | None, D: Array, c: Array, side: int) -> Vertex | None:
    """The vertex that is clearly the best, along the steepest edges of a set.

    ``side`` 0 is the set itself, 1 the wider one. None where no vertex is clearly the best.
    """
    for _ in range(STEPS):
        if (
            at is None
            or min(at.q[side].min(), at.slack[side].min(initial=np.inf)) < (ROOM, WIDER)[side]
        ):
            return None
        y, left, g = _multipliers(z, at)
        gain = left - g
        gain[at.free] = -np.inf
        if max(gain.max(), -y.min(initial=np.inf)) <= -ROOM:
            here = np.append(at.q[0], at.slack[0])
            return at if ((here >= ROOM) | (np.abs(here) <= NOTHING)).all() else None
        at = _neighbour(at, gain, y, D, c, side)
    return None


def _proved(z: Array, at: Vertex, c: Array) -> Best | None:
    y, left, _ = _multipliers(z, at)
    q, c = np.zeros(len(z)), c[at.met]
    q[at.free] = np.where(at.q[0] >= ROOM, at.q[0], 0.0)
    bound, size = float(c @ y) + float(left.max()), 1.0 + float(np.abs(c) @ y + y.sum())
    return Best(q, bound, size) if bound - float(z @ q) <= 64 * EPS * size else None


def _neighbour(at: Vertex, gain: Array, y: Array, D: Array, c: Array, side: int) -> Vertex | None:
    """The other end of the steepest edge; None where no edge rises."""
    j, i = int(gain.argmax()), int(y.argmin()) if len(y) else -1
    enters = i < 0 or gain[j] >= -y[i]
    if (gain[j] if enters else -y[i]) <= NOTHING:
        return None
    change = -at.inverse @ np.append(at.rows[:, j], 1.0) if enters else -at.inverse[:, i]
    drop = D[:, at.free] @ change + (D[:, j] if enters else 0.0)
    steps = np.full(len(change) + len(drop), np.inf)
    falls, room = np.append(-change, drop), np.append(at.q[side], at.slack[side])
    np.divide(room, falls, out=steps, where=falls > 1e-9)
    first = int(steps.argmin())
    free, met = (np.append(at.free, j), at.met) if enters else (at.free, np.delete(at.met, i))
    if first < len(change):
        free = np.delete(free, first)
    else:
        met = np.append(met, first - len(change))
    return _vertex(np.sort(free), np.sort(met), D, c)
