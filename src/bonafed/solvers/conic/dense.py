"""An interior point for quadratic programs over half-lines and second-order cones: small ones, and
those of many clients.

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

With many clients most numbers belong to one client each, and meet those of others in few rows:

    P + M' W^-2 M = [C, B'; B, A] + U S U',   A of small blocks on the diagonal

The few columns of U are those of rows and cones over all clients. The blocks are factored first,
and [C, U'; U, -S^-1] without what they take of it last, which is as small as what all share.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bonafed.arrays import Array, Curves, Entries, Index
from bonafed.solvers.kernels import interior_point as compiled

DENSE = 0.2  # columns with a larger share of entries are kept dense
LONG = 64  # rows with more entries in the other columns are kept dense too
RIDGES = (1e-15, 1e-13, 1e-11, 1e-9)  # relative to the diagonal, the first that factors
# the least slack where a run begins, and slack times multiplier: anywhere, and near the solution
FAR, NEAR = (0.1, 0.01), (0.02, 0.002)
APART = 30.0  # times as far from that as multipliers begin, where likely ones are known
# of the longest step: after a predictor of length 0, and of length 1
NEAR_BOUNDARY, NEARER = 0.9, 0.995
SHORT = 0.1  # a step
REFINED = 2  # times that a step is, which is computed by blocks
ITERATIONS = 60  # at most; the best point so far is returned
Orders = Sequence[slice]
# a program is one of many clients where it has so many numbers of theirs, each in at most so many
# rows; so many numbers a client has at most, and so many columns U
MANY, SHARED, WIDEST, LIFTED = 200, 32, 8, 60


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
        self.shared = width  # the first columns, which P may touch
        n_dense = int(full.sum())
        column = _inverse(self.order)[column]
        dense = column < n_dense
        self.full = summed((row[dense], column[dense], value[dense]), (height, n_dense))
        row, column, value = row[~dense], column[~dense], value[~dense]
        by_row = np.argsort(row, kind="stable")
        starts = np.searchsorted(row[by_row], np.arange(height + 1))
        self.parts = self.full, starts, column[by_row], value[by_row]
        self.long = np.flatnonzero(np.diff(starts) > LONG)
        rows = [self.row(r) for r in self.long.tolist()]
        self.rows = np.stack(rows) if rows else np.zeros((0, width))

    def row(self, r: int) -> Array:
        """Row r of M."""
        full, starts, columns, values = self.parts
        out, at = np.zeros(len(self.order)), slice(starts[r], starts[r + 1])
        out[: full.shape[1]] = full[r]
        np.add.at(out, columns[at], values[at])
        return out

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

    def gram(self, W: _Scaling, H: Array) -> Array:
        """M' W^-2 M added to the lower half of H, which is overwritten: W^-2 is (I + w g' + g w') /
        size^2 on a second-order cone, w = Jv and g = 2 ||w||^2 w - 2 v.
        """
        blas, _ = _compiled()
        weight, d = 1 / W.size, self.full.shape[1]
        if len(self.long):  # products with themselves, at half the work of those of two matrices
            rows = (self.rows * weight[self.long, None]).T
            H = blas.dsyrk(1.0, rows, beta=1.0, c=H.T, trans=0, overwrite_c=1).T
            weight[self.long] = 0.0
        if d:
            H[:d, :d] += blas.dsyrk(1.0, (self.full * weight[:, None]).T, trans=0).T
        compiled.add_gram(*self.parts, weight, H)
        for at in W.cones.orders:
            H = blas.dsyr2(1.0, *self.pair(W, at), a=H.T, overwrite_a=1).T
        return H

    def pair(self, W: _Scaling, at: slice) -> tuple[Array, Array]:
        """The two vectors of a cone in ``gram``."""
        full, starts, columns, values = self.parts
        v, mine = W.v[at], (full[at], starts[at.start : at.stop + 1], columns, values)
        w = _reflected(v)
        first, second = (self._back(*mine, u / W.size[at]) for u in (w, 2 * (w @ w) * w - 2 * v))
        return first, second

    def factor(self, P: Array, W: _Scaling) -> Callable[[Array, bool], Array] | None:
        """A function that solves (P + M' W^-2 M) x = b, and refines x once if asked to; None where
        there is no Cholesky factor.
        """
        H = self.spare[0]
        H[: len(P), : len(P)] = P
        H[len(P) :] = 0.0
        return _factor(self.gram(W, H), self.spare[1])

    @cached_property
    def spare(self) -> Array:
        """Two matrices that every step overwrites: fresh memory takes as long as the work on it."""
        return np.empty((2, len(self.order), len(self.order)))


class _Clients(_Rows):
    """M where most columns are in blocks, which few rows join: those of clients."""

    def __init__(self, entries: Entries, blocks: Index, joining: Index, height: int) -> None:
        """``blocks`` are those of the columns, -1 of the shared ones; ``joining`` those rows."""
        row, column, value = entries
        self.order = np.argsort(blocks, kind="stable")
        k = self.shared = int((blocks < 0).sum())
        column, self.block = _inverse(self.order)[column], blocks[self.order][k:]
        at = np.arange(len(self.block))
        self.place = at - np.searchsorted(self.block, self.block)
        self.shape = int(self.block.max()) + 1, int(self.place.max()) + 1
        shared = column < k
        self.full = summed((row[shared], column[shared], value[shared]), (height, k))
        row, column, value = row[~shared], column[~shared], value[~shared]
        by_row = np.argsort(row, kind="stable")
        starts = np.searchsorted(row[by_row], np.arange(height + 1))
        self.parts = self.full, starts, column[by_row], value[by_row]
        self.joining = joining

    def factor(self, P: Array, W: _Scaling) -> Callable[[Array, bool], Array] | None:
        """As of ``_Rows``; x is refined by products with M."""
        from scipy.linalg import lu_factor, lu_solve

        blas, _ = _compiled()
        weight, k, (n, b) = 1 / W.size, self.shared, self.shape
        rows = [weight[r] * self.row(r) for r in self.joining.tolist()]
        pairs = [u for at in W.cones.orders for u in self.pair(W, at)]
        weight[self.joining] = 0.0
        width, filled = k + len(rows) + len(pairs), (self.block, self.place)
        A, B, C = np.zeros((n, b, b)), np.zeros((n, b, width)), np.zeros((width, width))
        C[:k, :k] = blas.dsyrk(1.0, (self.full * weight[:, None]).T, trans=0)
        C[: len(P), : len(P)] += np.triu(P)
        for i, u in enumerate([*rows, *pairs], k):
            C[:k, i], B[self.block, self.place, i] = u[:k], u[k:]
        paired = np.arange(k + len(rows), width)
        C[range(k, k + len(rows)), range(k, k + len(rows))] = C[paired[::2], paired[1::2]] = -1.0
        C += np.triu(C, 1).T
        compiled.add_blocks(*self.parts, weight, self.block, self.place, A, B)
        empty = np.ones((n, b))
        empty[filled] = 0.0
        for ridge in RIDGES:
            L, Y = A.copy(), B.copy()
            diagonal = np.einsum("nii->ni", L)
            diagonal *= 1 + ridge
            diagonal += empty
            if compiled.factor_blocks(L, Y):
                break
        else:
            return None
        flat = Y.reshape(n * b, width)
        rest = C - flat.T @ flat
        unit = np.ones(width)
        for _ in range(3):  # rows and columns of one size
            unit /= np.sqrt(np.maximum(np.abs(rest * unit * unit[:, None]).max(0), 1e-300))
        rest *= unit * unit[:, None]
        if not np.isfinite(rest).all():
            return None
        lu = lu_factor(rest, check_finite=False)

        def once(v: Array) -> Array:
            own, first, x = np.zeros((n, b)), np.zeros(width), np.empty_like(v)
            own[filled], first[:k] = v[k:], v[:k]
            compiled.solve_blocks(L, own, False)
            first -= flat.T @ own.ravel()
            first = unit * lu_solve(lu, unit * first, check_finite=False)
            own -= (flat @ first).reshape(n, b)
            compiled.solve_blocks(L, own, True)
            x[:k], x[k:] = first[:k], own[filled]
            return x

        def solve(v: Array, refined: bool) -> Array:
            x = once(v)
            for _ in range(REFINED if refined else 0):
                left = v - self.back(W.times(W.times(self.forward(x), -1.0), -1.0))
                left[: len(P)] -= P @ x[: len(P)]
                x = x + once(left)
            return x

        return solve


def blocks_of(
    entries: Entries, width: int, height: int, curved: Index, orders: Orders
) -> tuple[Index, Index] | None:
    """The block of every column, -1 of those that all share, and the rows that join blocks; None
    where the program is not one of many clients. ``curved`` are the columns of P.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    row, column, _ = entries
    own = np.bincount(column, minlength=width) <= SHARED
    own[curved] = False
    if own.sum() < MANY:
        return None
    mine = own[column]
    for cone in orders:  # a cone over few of them, such as that of a norm
        inside = mine & (row >= cone.start) & (row < cone.stop)
        if inside.sum() <= SHARED:
            own[column[inside]] = False
    mine = own[column]
    joins = np.bincount(row[mine], minlength=height) > WIDEST
    lifted = int(joins.sum()) + 2 * len(orders)
    mine &= ~joins[row]
    links = row[mine], height + column[mine]
    graph = csr_array((np.ones(mine.sum(), bool), links), shape=(height + width,) * 2)
    label = connected_components(graph, directed=False)[1][height:]
    blocks = np.full(width, -1)
    own &= np.bincount(column[mine], minlength=width) > 0
    if own.sum() < MANY or lifted > LIFTED:
        return None
    blocks[own] = np.unique(label[own], return_inverse=True)[1]
    if np.bincount(blocks[own]).max() > WIDEST:
        return None
    return blocks, np.flatnonzero(joins)


class Solved(NamedTuple):
    """The best point of a run, its multipliers, how far it is from optimal, and the iterations."""

    x: Array
    z: Array
    error: float  # the largest relative residual or gap
    iterations: int


def solve_dense(
    curves: Curves,
    q: Array,
    entries: Entries,
    c: Array,
    orders: Orders,
    tol: float,
    near: Array | None = None,
    clients: tuple[Index, Index] | None = None,
) -> Solved | None:
    """Solve the program; None where no step could be computed.

    Parameters
    ----------
    curves : the parts of P, positive semidefinite
    q, c : (n,) and (m,)
    entries : rows, columns and values of M (m, n); those of one place add up
    orders : the rows of every second-order cone; all others are half-lines
    tol : of the gap relative to max(1, |objective|), and of both residuals relative to max(1, size)
    near : given where x = 0 is near the solution, such as the solution of a program like this one:
        likely multipliers z (m,), NaN where nothing is known of them
    clients : `blocks_of` a program of many clients
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
    if clients is None:
        rows = _Rows(entries, len(q), len(c))
    else:
        rows = _Clients(entries, clients[0], _inverse(place)[clients[1]], len(c))
    order = rows.order
    P, q = _curvature(curves, order, rows.shared), q[order]
    degree = max(cones.lines + len(cones.orders), 1)  # of the barrier of K
    least, mu = FAR if near is None else NEAR
    x, s = np.zeros(len(q)), cones.inside(c, least)  # x is counted from the point where it begins
    z = mu * cones.inverse(s)
    if near is not None:
        lines = z[: cones.lines]
        likely = (near[place] * size)[: cones.lines]
        np.clip(likely, lines / APART, lines * APART, out=lines, where=~np.isnan(likely))
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


def _curvature(curves: Curves, order: Index, size: int) -> Array:
    """P of the first columns in an order, which has no others; empty where it is 0."""
    if not any(values.any() for _, values in curves):
        return np.zeros((0, 0))
    place, P = _inverse(order), np.zeros((size, size))
    for index, values in curves:
        at = place[index]
        if values.ndim < 2:
            np.add.at(P, (at, at), values)
        elif len(at) and (np.diff(at) == 1).all():  # which is ten times as fast
            P[at[0] : at[-1] + 1, at[0] : at[-1] + 1] += values
        else:
            P[np.ix_(at, at)] += values
    return P


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
    solve = rows.factor(P, W)
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


def _factor(H: Array, shifted: Array) -> Callable[[Array, bool], Array] | None:
    """A function that solves H x = b, by H's lower half, and refines x once if asked to; None where
    H has no Cholesky factor. The factor overwrites ``shifted``.
    """
    blas, lapack = _compiled()
    for ridge in RIDGES:
        shifted[...] = H
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
