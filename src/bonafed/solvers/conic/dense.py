"""An interior point for small dense quadratic programs over half-lines and second-order cones.

    minimise over x:  <q, x> + x'P x / 2    subject to    s = M x + c in K

K is a product of half-lines and cones {(t, v): t >= ||v||_2}; z in K are the multipliers of s. This
is Mehrotra's predictor-corrector method in the scaling of Nesterov and Todd (Vandenberghe, *The
CVXOPT linear and quadratic cone program solvers*, 2010, sections 5 to 7): W z = W^-1 s = point, and
a step solves

    (P + M' W^-2 M) dx = right side

by a Cholesky factor, the second of two refined. The master
problems of bundle methods have many rows, all of them dense in the model: where the model has
hundreds of coefficients, a solver of sparse programs needs several times as long. The columns that
most rows do not touch stay sparse.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bonafed.arrays import Array, Entries, Index
from bonafed.solvers.kernels import interior_point as compiled

DENSE = 0.2  # columns with a larger share of entries are kept dense
RIDGES = (1e-15, 1e-13, 1e-11, 1e-9)  # relative to the diagonal, the first that factors
# the least slack where a run begins, and slack times multiplier: anywhere, and near the solution
FAR, NEAR = (0.1, 0.01), (0.02, 0.002)
# of the longest step: after a predictor of length 0, and of length 1
NEAR_BOUNDARY, NEARER = 0.9, 0.995
SHORT = 0.1  # a step
ITERATIONS = 60  # at most; the best point so far is returned
Orders = Sequence[slice]


@dataclass(frozen=True)
class Cones:
    """K: the first rows are half-lines, and the others those of second-order cones."""

    ends: Index  # of the half-lines, and of every cone

    @property
    def lines(self) -> int:
        """How many rows are half-lines."""
        return int(self.ends[0])

    @cached_property
    def orders(self) -> tuple[slice, ...]:
        """The rows of every second-order cone."""
        return tuple(slice(*pair) for pair in pairwise(self.ends.tolist()))

    def inside(self, u: Array, least: float) -> Array:
        """u with every cone's part moved along e until its depth is at least so much."""
        out = u.copy()
        np.maximum(out[: self.lines], least, out=out[: self.lines])
        for rows in self.orders:
            depth = u[rows.start] - math.sqrt(u[rows][1:] @ u[rows][1:])
            out[rows.start] += max(least - depth, 0.0)
        return out

    def inverse(self, u: Array) -> Array:
        """The x with u o x = e, for u inside K."""
        out = np.empty_like(u)
        np.divide(1.0, u[: self.lines], out=out[: self.lines])
        for rows in self.orders:
            a = u[rows]
            tail = math.sqrt(a[1:] @ a[1:])
            out[rows] = _reflected(a) / ((a[0] - tail) * (a[0] + tail))
        return out


class _Scaling:
    """W of s and z, symmetric, with W z = W^-1 s.

    On a second-order cone it is size (2 v v' - J), and its inverse (2 (Jv) (Jv)' - J) / size, J =
    diag(1, -1, ..., -1).
    """

    def __init__(self, cones: Cones, s: Array, z: Array) -> None:
        self.cones, self.size, self.v = cones, np.empty_like(s), np.empty_like(s)
        # how far both are from the boundary; W is theirs only where they are inside
        self.depth: float = compiled.scaling(cones.ends, s, z, self.size, self.v)
        self.parts = cones.ends, self.size, self.v

    def times(self, u: Array, turn: float = 1.0) -> Array:
        """W u, and W^-1 u where ``turn`` is -1."""
        out = np.empty_like(u)
        compiled.scaled(*self.parts, turn, u, out)
        return out


class _Rows:
    """M with its dense and its sparse columns apart, the dense ones first."""

    def __init__(self, entries: Entries, width: int, height: int) -> None:
        row, column, value = entries
        full = np.bincount(column, minlength=width) > DENSE * height
        self.order = np.argsort(~full, kind="stable")  # of the columns
        n_dense = int(full.sum())
        column = _inverse(self.order)[column]
        dense = column < n_dense
        self.full = summed((row[dense], column[dense], value[dense]), (height, n_dense))
        row, column, value = row[~dense], column[~dense], value[~dense]
        by_row = np.argsort(row, kind="stable")
        starts = np.searchsorted(row[by_row], np.arange(height + 1))
        self.parts = self.full, starts, column[by_row], value[by_row]

    def forward(self, x: Array) -> Array:
        """M x, x in the order of the columns here."""
        out = np.empty(len(self.full))
        compiled.forward(*self.parts, x, out)
        return out

    def back(self, z: Array) -> Array:
        """M' z."""
        return self._back(*self.parts, z)

    def _back(self, full: Array, starts: Index, columns: Index, values: Array, z: Array) -> Array:
        out = np.empty(len(self.order))
        compiled.back(full, starts, columns, values, z, out)
        return out

    def gram(self, W: _Scaling) -> Array:
        """M' W^-2 M, its lower half: W^-2 is (I + w g' + g w') / size^2 on a second-order cone, w =
        Jv and g = 2 ||w||^2 w - 2 v.
        """
        blas, _ = _compiled()
        weight, n, d = 1 / W.size, len(self.order), self.full.shape[1]
        H = np.zeros((n, n))
        if d:  # a product with itself, at half the work of one of two matrices
            H[:d, :d] = blas.dsyrk(1.0, (self.full * weight[:, None]).T, trans=0).T
        compiled.add_gram(*self.parts, weight, H)
        full, starts, columns, values = self.parts
        for at in W.cones.orders:
            v, mine = W.v[at], (full[at], starts[at.start : at.stop + 1], columns, values)
            w = _reflected(v)
            pair = w, 2 * (w @ w) * w - 2 * v
            change = (self._back(*mine, u * weight[at]) for u in pair)
            H = blas.dsyr2(1.0, *change, a=H.T, overwrite_a=1).T
        return H


class Solved(NamedTuple):
    """The best point of a run, its multipliers, how far it is from optimal, and the iterations."""

    x: Array
    z: Array
    error: float  # the largest relative residual or gap
    iterations: int


def solve_dense(
    P: Array, q: Array, entries: Entries, c: Array, orders: Orders, tol: float, near: bool = False
) -> Solved | None:
    """Solve the program; None where no step could be computed.

    Parameters
    ----------
    P : (n, n) symmetric and positive semidefinite
    q, c : (n,) and (m,)
    entries : rows, columns and values of M (m, n); those of one place add up
    orders : the rows of every second-order cone; all others are half-lines
    tol : of the gap relative to max(1, |objective|), and of both residuals relative to max(1, size)
    near : whether x = 0 is near the solution, such as the solution of a program like this one
    """
    # half-lines first, and every row in units of its largest coefficient
    row, column, value = entries
    lines, size = np.ones(len(c), bool), np.zeros(len(c))
    by_row = np.argsort(row, kind="stable")  # ``np.maximum.at`` takes ten times as long
    count = np.bincount(row, minlength=len(c))
    first = np.cumsum(count) - count
    size[count > 0] = np.maximum.reduceat(np.abs(value[by_row]), first[count > 0])
    for cone in orders:
        lines[cone] = False
    size[~lines | (size == 0)] = 1.0
    behind = [np.arange(cone.start, cone.stop) for cone in orders]
    place = np.concatenate([np.flatnonzero(lines), *behind])
    cones = Cones(np.cumsum([int(lines.sum()), *map(len, behind)]))
    entries = _inverse(place)[row], column, value / size[row]
    c, size = (c / size)[place], size[place]
    rows = _Rows(entries, len(q), len(c))
    order = rows.order
    P, q = P[np.ix_(order, order)] if P.any() else P[:0], q[order]
    degree = max(cones.lines + len(cones.orders), 1)  # of the barrier of K
    least, mu = NEAR if near else FAR
    x, s = np.zeros(len(q)), cones.inside(c, least)  # x is counted from the point where it begins
    z = mu * cones.inverse(s)
    best: Solved | None = None
    scales = [max(1.0, float(np.abs(v).max(initial=0.0))) for v in (q, c)]
    for k in range(ITERATIONS):
        dual, primal = rows.back(z), rows.forward(x)
        steep, short, gap, height, apart = compiled.residuals(P, q, c, x, s, z, dual, primal)
        errors = max(gap, apart) / max(1.0, abs(height)), steep / scales[0], short / scales[1]
        error = max(errors)
        if not math.isfinite(sum(errors)):
            break
        if best is None or error < best.error:
            best = Solved(x, z, error, k)
        if error <= tol or (k > 8 and (error > 1e4 * best.error or k > best.iterations + 8)):
            break
        step = _step(P, rows, _Scaling(cones, s, z), z, dual, primal, gap / degree)
        if step is None:
            break
        x, s, z = x + step[0], s + step[1], z + step[2]
    if best is None:
        return None
    natural, multipliers = np.empty_like(best.x), np.empty_like(best.z)
    natural[order] = best.x
    multipliers[place] = best.z / size
    return Solved(natural, multipliers, best.error, best.iterations)


def summed(entries: Entries, shape: tuple[int, int]) -> Array:
    """The matrix of these entries, which add up."""
    row, column, value = entries
    sums = np.bincount(row * shape[1] + column, value, shape[0] * shape[1])
    return sums.reshape(shape).astype(float, copy=False)  # of no entries it has integers


def _inverse(order: Index) -> Index:
    """Where every number of a permutation stands in it."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return place


def _step(
    P: Array, rows: _Rows, W: _Scaling, z: Array, dual: Array, primal: Array, mu: float
) -> tuple[Array, Array, Array] | None:
    """The change of x, s and z in one iteration; None where there is none."""
    if not W.depth > 0:
        return None
    point, residual, ends = W.times(z), W.times(primal, -1.0), W.cones.ends
    H = rows.gram(W)
    if len(P):
        H += P
    solve = _factor(H)
    if solve is None:
        return None

    def direction(target: Array, refined: bool) -> tuple[Array, Array, Array]:
        """dx, W^-1 ds, and W dz = target - W^-1 ds."""
        right, ds, dz = np.empty_like(dual), np.empty_like(z), np.empty_like(z)
        compiled.right_side(*rows.parts, *W.parts, target, residual, dual, ds, right)
        dx = solve(right, refined)
        compiled.changes(*rows.parts, *W.parts, dx, residual, target, ds, dz)
        return dx, ds, dz

    _, ds, dz = direction(-point, refined=False)
    a = min(compiled.longest(ends, point, ds), compiled.longest(ends, point, dz))
    # the whole correction is that of a whole step: after a short one it can turn in a cycle
    second, target = a if a < SHORT else 1.0, np.empty_like(point)
    compiled.quotient(ends, point, (1 - a) ** 3 * mu, second, ds, dz, target)
    dx, ds, dz = direction(target - point, refined=True)
    share = NEAR_BOUNDARY + (NEARER - NEAR_BOUNDARY) * a
    a, b = (share * compiled.longest(ends, point, step) for step in (ds, dz))
    if len(P):  # a curved program has one length for both
        a = b = min(a, b)
    return a * dx, a * W.times(ds), b * W.times(dz, -1.0)


def _factor(H: Array) -> Callable[[Array, bool], Array] | None:
    """A function that solves H x = b, by H's lower half, and refines x once if asked to; None where
    H has no Cholesky factor.
    """
    blas, lapack = _compiled()
    for ridge in RIDGES:
        shifted = H.copy()
        diagonal = shifted.ravel()[:: len(H) + 1]
        np.maximum(diagonal * (1 + ridge), 1e-300, out=diagonal)
        factor, failed = lapack.dpotrf(shifted.T, clean=0, overwrite_a=1)
        if not failed:
            break
    else:
        return None

    def solve(b: Array, refined: bool) -> Array:
        x = lapack.dpotrs(factor, b)[0]
        if refined:
            x += lapack.dpotrs(factor, b - blas.dsymv(1.0, H.T, x))[0]
        return x

    return solve


def _reflected(u: Array) -> Array:
    """(u_0, -u_1)."""
    out = -u
    out[0] = u[0]
    return out


@cache
def _compiled() -> tuple[Any, Any]:
    """SciPy's BLAS and LAPACK, whose functions have no types."""
    from scipy.linalg import blas, lapack

    return blas, lapack
