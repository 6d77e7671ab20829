"""An interior point for small dense quadratic programs over half-lines and second-order cones.

    minimise over x:  <q, x> + x'P x / 2    subject to    s = M x + c in K

K is a product of half-lines and cones {(t, v): t >= ||v||_2}; z in K are the multipliers of s. This
is Mehrotra's predictor-corrector method in the scaling of Nesterov and Todd (Vandenberghe, *The
CVXOPT linear and quadratic cone program solvers*, 2010, sections 5 to 7): W z = W^-1 s = point, and
a step solves

    (P + M' W^-2 M) dx = right side

by a Cholesky factor in coordinates whose diagonal is one, refined twice. The master problems of
bundle methods have many rows, all of them dense in the model: where the model has hundreds of
coefficients, a solver of sparse programs needs several times as long. The columns that most rows do
not touch stay sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, shape_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

DENSE = 0.2  # columns with a larger share of entries are kept dense,
SMALL = 2e6  # and all columns of n where the rows times n^2 are fewer: products of no sparse ones
RIDGES = (1e-15, 1e-13, 1e-11, 1e-9)  # relative to a diagonal of one, the first that factors
START, START_GAP = 1.0, 1e-2  # of every slack, and of slack times multiplier
NEAR_BOUNDARY = 0.995  # of the longest step


@dataclass(frozen=True)
class Cones:
    """K: the rows that are half-lines, and the rows of every second-order cone."""

    lines: NDArray[np.bool_]  # (m,)
    orders: tuple[slice, ...]

    @property
    def degree(self) -> int:
        """The degree of the barrier of K: what <s, z> is divided by."""
        return int(self.lines.sum()) + len(self.orders)

    def identity(self) -> Array:
        """e, the unit of the cones' product."""
        e = self.lines.astype(float)
        for rows in self.orders:
            e[rows.start] = 1.0
        return e

    def depth(self, u: Array) -> float:
        """The largest t with u - t e in K."""
        least = float(u[self.lines].min(initial=np.inf))
        for rows in self.orders:
            least = min(least, float(u[rows.start] - np.linalg.norm(u[rows][1:])))
        return least

    def inside(self, u: Array, least: float) -> Array:
        """u with every cone's part moved along e until its depth is at least so much."""
        out = np.where(self.lines, np.maximum(u, least), u)
        for rows in self.orders:
            depth = u[rows.start] - float(np.linalg.norm(u[rows][1:]))
            out[rows.start] += max(least - depth, 0.0)
        return out

    def product(self, u: Array, v: Array) -> Array:
        """u o v: elementwise on half-lines, (<u, v>, u_0 v_1 + v_0 u_1) on a second-order cone."""
        out = u * v
        for rows in self.orders:
            a, b = u[rows], v[rows]
            out[rows] = a[0] * b + b[0] * a
            out[rows.start] = a @ b
        return out

    def quotient(self, u: Array, v: Array) -> Array:
        """The x with u o x = v, for u inside K."""
        out = np.divide(v, u, out=np.zeros_like(v), where=self.lines)
        for rows in self.orders:
            a, b = u[rows], v[rows]
            det = (a[0] - np.linalg.norm(a[1:])) * (a[0] + np.linalg.norm(a[1:]))
            first = (a[0] * b[0] - a[1:] @ b[1:]) / det
            out[rows] = (b - first * a) / a[0]
            out[rows.start] = first
        return out

    def longest(self, u: Array, step: Array) -> float:
        """The largest t <= 1 with u + t step in K, for u inside."""
        change = np.divide(step, u, out=np.zeros_like(u), where=self.lines)
        t = 1 / max(1.0, -float(change.min(initial=0.0)))
        for rows in self.orders:
            a, b = u[rows], step[rows]
            square = (b[0] - np.linalg.norm(b[1:])) * (b[0] + np.linalg.norm(b[1:]))
            middle = a[0] * b[0] - a[1:] @ b[1:]
            left = (a[0] - np.linalg.norm(a[1:])) * (a[0] + np.linalg.norm(a[1:]))
            root = middle * middle - square * left
            if square >= 0 and middle >= 0:  # along a direction of the cone
                continue
            if root >= 0:
                away = -middle + np.sqrt(root)
                t = min(t, left / away) if away > 0 else t
        return max(t, 0.0)


class _Scaling:
    """W of s and z, symmetric, with W z = W^-1 s."""

    def __init__(self, cones: Cones, s: Array, z: Array) -> None:
        self.cones = cones
        self.line = np.ones(len(s))
        lines = cones.lines
        self.line[lines] = np.sqrt(s[lines] / z[lines])
        self.orders: list[tuple[slice, float, Array]] = []
        for rows in cones.orders:
            a, b = _length(s[rows]), _length(z[rows])
            u, v = s[rows] / a, z[rows] / b
            half = np.sqrt((1 + u @ v) / 2)
            middle = (u + _reflected(v)) / (2 * half)
            middle[0] += 1
            self.orders.append((rows, float(np.sqrt(a / b)), middle / np.sqrt(2 * middle[0])))

    def times(self, u: Array) -> Array:
        """W u."""
        out = self.line * u
        for rows, size, v in self.orders:
            out[rows] = size * (2 * v * (v @ u[rows]) - _reflected(u[rows]))
        return out

    def back(self, u: Array) -> Array:
        """W^-1 u."""
        out = u / self.line
        for rows, size, v in self.orders:
            out[rows] = self._inverse(u[rows], size, v)
        return out

    @staticmethod
    def _inverse(u: Array, size: float, v: Array) -> Array:
        """W^-1 of one second-order cone, of a vector or the columns of a matrix."""
        w = _reflected(v)
        return (2 * np.multiply.outer(w, w @ u) - _reflected(u)) / size

    def gram(self, rows: _Rows) -> Array:
        """M' W^-2 M, its upper half."""
        H = rows.gram(np.where(self.cones.lines, self.line**-2.0, 0.0))
        for (_, size, v), (columns, part) in zip(self.orders, rows.orders, strict=True):
            H[columns[:, None], columns] += _squared(self._inverse(part, size, v))
        return H


def _length(u: Array) -> float:
    """sqrt(u_0^2 - ||u_1||^2)."""
    tail = float(np.linalg.norm(u[1:]))
    return float(np.sqrt(max((u[0] - tail) * (u[0] + tail), 1e-300)))


def _reflected(u: Array) -> Array:
    """(u_0, -u_1)."""
    out = -u
    out[0] = u[0]
    return out


class _Rows:
    """M with its dense and its sparse columns apart, the dense ones first."""

    def __init__(self, M: csr_array, cones: Cones) -> None:
        height, width = shape_of(M)
        counts = np.bincount(M.indices, minlength=width)
        full = counts > (DENSE * height if height * width**2 > SMALL else -1)
        self.order = np.argsort(~full, kind="stable")
        self.n_dense = int(full.sum())
        columns: Any = M.tocsc()[:, self.order]
        self.full = np.ascontiguousarray(columns[:, : self.n_dense].toarray())
        self.rest = columns[:, self.n_dense :].tocsr()
        self.rest_T = self.rest.T.tocsr()
        self.weighted_T = self.rest_T.copy()
        self.orders: list[tuple[NDArray[np.intp], Array]] = []  # columns in use, and their entries
        by_row = columns.tocsr()
        for rows in cones.orders:
            part = by_row[rows].toarray()
            used = np.flatnonzero(part.any(0))
            self.orders.append((used, part[:, used]))

    def forward(self, x: Array) -> Array:
        """M x, x in the order of the columns here."""
        out = self.full @ x[: self.n_dense]
        return out + self.rest @ x[self.n_dense :] if self.rest.nnz else out

    def back(self, z: Array) -> Array:
        """M' z."""
        out = z @ self.full
        return np.concatenate([out, self.rest_T @ z]) if self.n_dense < len(self.order) else out

    def gram(self, weight: Array) -> Array:
        """M' diag(weight) M, its upper half."""
        d, n = self.n_dense, len(self.order)
        corner = _squared(self.full * np.sqrt(weight)[:, None])
        if d == n:
            return corner
        H = np.zeros((n, n), order="F")
        H[:d, :d] = corner
        self.weighted_T.data = self.rest_T.data * weight[self.rest_T.indices]
        H[:d, d:] = (self.weighted_T @ self.full).T
        H[d:, d:] = (self.weighted_T @ self.rest).toarray()
        return H


@dataclass(frozen=True)
class Solved:
    """The best point of a run, its multipliers, how far it is from optimal, and the iterations."""

    x: Array
    z: Array
    error: float  # the largest relative residual or gap
    iterations: int


def solve_dense(
    P: Array, q: Array, M: csr_array, c: Array, cones: Cones, tol: float, cap: int = 60
) -> Solved | None:
    """Solve the program; None where no step could be computed.

    Parameters
    ----------
    P : (n, n) symmetric and positive semidefinite
    q, M, c : (n,), (m, n) and (m,)
    tol : of the gap relative to max(1, |objective|), and of both residuals relative to max(1, size)
    cap : the most iterations; the best point so far is returned
    """
    size = np.ones(len(c))  # half-lines in units of their largest coefficient
    largest = np.asarray(abs(M).max(axis=1).todense()).ravel()
    lines = cones.lines & (largest > 0)
    size[lines] = largest[lines]
    M = M.multiply(1 / size[:, None]).tocsr()
    c = c / size
    rows = _Rows(M, cones)
    order = rows.order
    P, q = P[np.ix_(order, order)], q[order]
    e, degree = cones.identity(), max(cones.degree, 1)
    # the point x = 0, from which x is counted, with every cone's slack at least START
    x, s = np.zeros(len(q)), cones.inside(c, START)
    z = cones.quotient(s, START_GAP * e)
    best: Solved | None = None
    scales = [max(1.0, float(np.abs(v).max(initial=0.0))) for v in (q, c)]
    for k in range(cap):
        Px = P @ x
        dual, primal = Px + q - rows.back(z), rows.forward(x) + c - s
        gap, value = float(s @ z), float(q @ x + x @ Px / 2)
        apart = abs(gap + float(x @ dual + z @ primal))  # the objectives; residuals count by z
        errors = (
            max(gap, apart) / max(1.0, abs(value)),
            float(np.abs(dual).max(initial=0.0)) / scales[0],
            float(np.abs(primal).max(initial=0.0)) / scales[1],
        )
        if not np.isfinite(errors).all():
            break
        error = max(errors)
        if best is None or error < best.error:
            best = Solved(x, z, error, k)
        if error <= tol or (k > 8 and (error > 1e4 * best.error or k > best.iterations + 8)):
            break
        if cones.depth(s) <= 0 or cones.depth(z) <= 0:
            break
        step = _step(P, rows, cones, s, z, dual, primal, e, degree)
        if step is None:
            break
        x, s, z = x + step[0], s + step[1], z + step[2]
    if best is None:
        return None
    natural = np.empty_like(best.x)
    natural[order] = best.x
    return Solved(natural, best.z / size, best.error, best.iterations)


def _step(
    P: Array,
    rows: _Rows,
    cones: Cones,
    s: Array,
    z: Array,
    dual: Array,
    primal: Array,
    e: Array,
    degree: int,
) -> tuple[Array, Array, Array] | None:
    """The change of x, s and z in one iteration."""
    W = _Scaling(cones, s, z)
    point = W.times(z)
    H = W.gram(rows)
    H += P
    factor = _factor(H)
    if factor is None:
        return None

    def solve(target: Array) -> tuple[Array, Array, Array]:  # W dz + W^-1 ds = target
        fixed = W.back(W.back(-primal) + target)
        dx = factor(-dual + rows.back(fixed))
        change = rows.forward(dx)
        return dx, change + primal, fixed - W.back(W.back(change))

    _, ds, dz = solve(-point)
    a = min(cones.longest(s, ds), cones.longest(z, dz))
    mu = float(s @ z) / degree
    sigma = (1 - a) ** 3
    second = cones.product(W.back(ds), W.times(dz))
    # the whole correction is that of a whole step: after a short one it can turn in a cycle
    dx, ds, dz = solve(cones.quotient(point, sigma * mu * e - a * second) - point)
    a, b = (NEAR_BOUNDARY * cones.longest(u, step) for u, step in ((s, ds), (z, dz)))
    if P.any():
        a = b = min(a, b)
    return a * dx, a * ds, b * dz


def _factor(H: Array) -> Any:
    """A function that solves H x = b, by H's upper half; None where H has no Cholesky factor."""
    blas, lapack = _compiled()
    size = 1 / np.sqrt(np.maximum(np.diag(H), 1e-300))
    scaled = H
    scaled *= size[:, None]
    scaled *= size
    if not np.isfinite(scaled).all():
        return None
    factor: Any = None
    for ridge in RIDGES:
        shifted = scaled.copy(order="F")
        shifted.flat[:: len(H) + 1] += ridge
        factor, failed = lapack.dpotrf(shifted, clean=0, overwrite_a=1)
        if not failed:
            break
    else:
        return None

    def solve(b: Array) -> Array:
        b = size * b
        x = lapack.dpotrs(factor, b)[0]
        for _ in range(2):
            x = x + lapack.dpotrs(factor, b - blas.dsymv(1.0, scaled, x))[0]
        return size * x

    return solve


def _squared(A: Array) -> Array:
    """A'A at half the work of a product of two matrices: its upper half, and zeros."""
    if not A.size:
        return np.zeros((A.shape[1], A.shape[1]), order="F")
    return _compiled()[0].dsyrk(1.0, A.T, trans=0)  # A.T is in the order of columns already


def _compiled() -> tuple[Any, Any]:
    """SciPy's BLAS and LAPACK, whose functions have no types."""
    from scipy.linalg import blas, lapack

    return blas, lapack


def cones_of(height: int, orders: Sequence[slice]) -> Cones:
    """K of so many rows, all of them half-lines but for those of the second-order cones."""
    lines = np.ones(height, bool)
    for rows in orders:
        lines[rows] = False
    return Cones(lines, tuple(orders))
