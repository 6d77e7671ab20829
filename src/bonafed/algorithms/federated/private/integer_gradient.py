"""A client's sum of clipped gradients in integers, which is exact in any order of the rows.

The gradient of a row is the outer product of the row and of the loss's gradient r in the row's
predictions. Both factors are rounded,

    u = round(A x / ||x||),     q = round(r ||x|| steps / (A clip)),     g = clip / steps u q',

and ||u|| ||q|| <= steps is checked in integers, so that rounding is inside the sensitivity. A row's
u and q depend on that row and the model only, never on the rows around it: its predictions are
sums in one order wherever the row lies, and transcendental functions meet rows in whole tiles, of
which no part is computed in another way.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.algorithms.federated.private import mechanism as mechanisms
from bonafed.algorithms.federated.private.mechanism import L1, SINGLE, Grid, Mechanism, Whole
from bonafed.arrays import Array, Block
from bonafed.problem.constraints.constraint import once
from bonafed.problem.losses import Loss, Multinomial
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.solvers.kernels import thin_products

TILE = 96  # rows, whose numbers stay in the cache
TILES = (2**31 - 1) // (TILE * SINGLE)  # whose sum 32 bits hold exactly
WHOLE = 16  # a client's rows are a multiple of it, so that vectors have no other end
LANES = 16  # columns of a product in 32 bits, of which eight are enough in doubles
MOST_16 = 2**15 - 1  # the largest of 16 bits; times a row's direction, summed, far below 2^31
MANY = 2**18  # entries of a tile in double precision
MOST = 2**24  # sparse rows whose sum double precision holds exactly: 2^24 FINE < 2^53
STEEP = 1e100  # larger gradients, also infinite ones, count as this large
LEAST = 1e-30  # entries of a model that are all smaller count as zeros
# Shorter rows, and residuals in single (their squares) or double precision, count for nothing: the
# factors that bring them onto the grid may be no numbers.
SHORT, FLAT, FLAT_SQUARE = 1e-300, 1e-150, 1e-30


def in_single_precision(problem: Problem, kind: str, features: int) -> bool:
    """Whether ``Mechanism.single`` applies: where the compiled softmax pass does, and the rows'
    directions on its coarse grid still tell so many features apart.
    """
    coarse = isinstance(problem.loss, Multinomial) and is_affine(problem.predictor)
    return coarse and kind == "gaussian" and features <= 2**12


@dataclass(frozen=True, eq=False)
class IntegerRows:
    """A client's rows as directions on the grid and lengths, computed once.

    Attributes
    ----------
    U : (m, d) integers, of 16 bits on a coarse grid and as floats on others, or CSR of floats; an
        intercept's 1 is the last column. Rows of zeros make m a multiple of WHOLE
    y : (m,) targets
    length : (m,) ||x|| after it is shortened to the bound; 0 for rows that are not finite, or
        shorter than SHORT
    size : (m,) ||u||^2, for l1 ||u||
    grid : of the client's sum
    """

    U: Any
    y: NDArray[Any]
    length: Array
    size: Whole
    grid: Grid

    @classmethod
    def of(cls, problem: Problem, mechanism: Mechanism, data: Block, i: int) -> Self:
        """Those of client i of a block."""
        intercept, grid = int(problem.predictor.intercept), mechanism.grid(int(data.index[i]))
        key = "integer rows", i, mechanism.bound, grid.norm, grid.direction, intercept
        rows = once(data, key, lambda: cls._rounded(mechanism.bound, data, i, intercept, grid))
        return rows if rows.grid == grid else replace(rows, grid=grid)  # the clip may move

    @classmethod
    def _rounded(cls, bound: float, data: Block, i: int, intercept: int, grid: Grid) -> Self:
        from scipy.sparse import csr_array, hstack

        m, d = int((data.share[i] > 0).sum()), data.n_features
        thin: Any = None if isinstance(data.X, np.ndarray) else csr_array(data.X[:m])
        starts = np.arange(m + 1) * d if thin is None else thin.indptr.astype(np.int64)
        rows = np.asarray(data.X)[i, :m] if thin is None else thin.data
        values = np.ascontiguousarray(rows, np.float64).reshape(-1)
        length, size = np.zeros(m), np.zeros(m, np.int64)
        short = thin is None and grid.direction <= MOST_16
        u = np.empty(len(values), np.int16 if short else np.float32)
        ones = np.empty((m, intercept), u.dtype)
        settings = grid.norm, bound, intercept, grid.direction
        _directions(values, starts, *settings, u, ones, length, size)
        if thin is None:
            U = np.concatenate([u.reshape(m, d), ones], 1)
        else:
            U = csr_array((u.astype(float), thin.indices, thin.indptr), shape=(m, d))
            U = hstack([U, csr_array(ones.astype(float))]) if intercept else U
        return cls(U, data.y[i, :m], length, size, grid)._padded()

    def of_rows(self, at: NDArray[np.intp]) -> Self:
        """Those of the rows at some positions only."""
        rows = {"U": self.U[at], "y": self.y[at], "length": self.length[at], "size": self.size[at]}
        return replace(self, **rows)._padded()

    def _padded(self) -> Self:
        """With rows of zeros, which have some target, so that the loss can be evaluated."""
        from scipy.sparse import csr_array, vstack

        (m, D), U = self.U.shape, self.U
        spare = -m % WHOLE
        if isinstance(U, np.ndarray):
            U = np.concatenate([U, np.zeros((spare, D), U.dtype)]) if spare else U
        else:
            U = csr_array(vstack([U, csr_array((spare, D))]))
        y = np.resize(self.y, m + spare) if m else self.y
        length, size = np.pad(self.length, (0, spare)), np.pad(self.size, (0, spare))
        return replace(self, U=U, y=y, length=length, size=size)

    def gradient(self, problem: Problem, mechanism: Mechanism, v: Array) -> Whole:
        """The integer sum (D,) of the rows' gradients at the model v, in steps of the grid."""
        return self.counted(problem, mechanism, v)[0]

    def counted(self, problem: Problem, mechanism: Mechanism, v: Array) -> tuple[Whole, int]:
        """The same, and how many more rows' gradients are not longer than the clip than are."""
        Z = v.reshape(self.U.shape[1], -1)
        if mechanism.single and isinstance(self.U, np.ndarray):
            with np.errstate(over="ignore"):  # rows of predictions beyond all numbers count for 0
                single = np.ascontiguousarray(Z, np.float32)
            rows = self.U, self.y.astype(np.int32), single, self.length, self.size
            total = np.empty(Z.shape, np.int64)
            settings = mechanism.clip, self.grid.steps, self.grid.direction
            more = int(_softmax_sum(*rows, *settings, total))
        else:
            total, more = self._summed(problem.loss, mechanism, Z.astype(float))
        return self.grid.held(total).reshape(-1), more

    def _summed(self, loss: Loss, mechanism: Mechanism, Z: Array) -> tuple[Whole, int]:
        (m, d), K = self.U.shape, Z.shape[1]
        grid, thin = self.grid, not isinstance(self.U, np.ndarray)
        count = MOST if thin else max(1, MANY // (d * WHOLE)) * WHOLE
        total, more = np.zeros(Z.shape, np.int64), 0
        for first in range(0, m, count):
            here = slice(first, min(first + count, m))
            U = self.U[here] if thin else self.U[here].astype(float)
            length = self.length[here]
            with np.errstate(all="ignore"):  # whatever rows and model are, no row counts for more
                S = U @ Z if thin else product(U, Z)
                S *= (length / grid.direction)[:, None]
                r = loss.gradient(S if loss.targets == "class" else S[:, 0], self.y[here])
                r = np.clip(np.nan_to_num(r, posinf=STEEP, neginf=-STEEP), -STEEP, STEEP)
            r = r.reshape(-1, K)
            # the residuals on the grid, so short that no row's gradient exceeds its steps
            norm = np.abs(r).sum(1) if grid.norm == L1 else np.sqrt((r * r).sum(1))
            with np.errstate(all="ignore"):
                most = np.where(norm > FLAT, np.minimum(length / mechanism.clip, 1 / norm), 0.0)
            q = np.rint(r * (most * (grid.steps / grid.direction))[:, None])
            q = shortened(q, self.size[here], grid)
            total += (U.T @ q).astype(np.int64)  # of integers below 2^53: exact in any order
            if mechanism.counts:
                norm = length * np.sqrt((r * r).sum(1))
                more += int(np.where(norm <= mechanism.clip, 1, -1)[length > 0].sum())
        return total, more


def product(U: Array, Z: Array) -> Array:
    """U Z, every entry a sum in the order of the columns of U, whatever the number of rows."""
    (m, d), K = U.shape, Z.shape[1]
    wide = -(-K // 8) * 8
    B, S = np.zeros((d, wide)), np.empty((m, wide))
    B[:, :K] = Z
    thin_products.multiply(U.reshape(-1), 0, d, 1, B, S, (m, d, wide), True)
    return S[:, :K].copy()


def shortened(q: Array, size: Whole, grid: Grid) -> Array:
    """Whole numbers q (m, K), in place, so short that no row's gradient exceeds ``grid.steps``.

    ``size`` (m,) is what the square of a row's q counts, for l1 its norm.
    """
    manhattan, steps = grid.norm == L1, grid.steps
    limit = steps if manhattan else steps * steps
    while True:
        whole = q.astype(np.int64)
        long = size * (np.abs(whole) if manhattan else whole * whole).sum(1)
        over = long > limit
        if not over.any():
            return q
        ratio = limit / long[over]
        q[over] = np.trunc(q[over] * (0.999999 * (ratio if manhattan else np.sqrt(ratio)))[:, None])


@njit(cache=True, error_model="numpy")
def _directions(values, starts, norm, bound, one, grid, u, ones, length, size):
    """Fill the last four: the numbers of ``IntegerRows`` of the rows values[starts[i] :
    starts[i + 1]].
    """
    for i in range(len(starts) - 1):
        top, total = 0.0, 0.0
        for j in range(starts[i], starts[i + 1]):
            a = abs(values[j])
            top = a if a > top or not a < np.inf else top
        for j in range(starts[i], starts[i + 1]):
            a = abs(values[j]) / top if top > 0 else 0.0
            total += a if norm == L1 else a * a
        long = top * (total if norm == L1 else math.sqrt(total))
        factor = bound / long if long > bound else 1.0
        short = factor * long if long > bound else long
        whole = short + one if norm == L1 else math.hypot(short, one)
        if not SHORT < whole < np.inf:
            whole, factor = 0.0, 0.0
        over = grid / whole if whole > 0 else 0.0
        counted = np.int64(0)
        for j in range(starts[i], starts[i + 1]):
            # a quotient first, because the product of the factors alone may overflow
            entry = np.rint(over * (factor * values[j])) if whole > 0 else 0.0
            u[j] = entry
            counted += np.int64(abs(entry) if norm == L1 else entry * entry)
        if one:
            entry = np.rint(over)
            ones[i, 0] = entry
            counted += np.int64(entry if norm == L1 else entry * entry)
        length[i], size[i] = whole, counted


@njit(cache=True, error_model="numpy")
def _softmax_residuals(S, y, length, size, clip, steps, grid):
    """Replace S (K, m), the rows' u'Z, by the integers q; m is a multiple of WHOLE.

    Returns how many more rows' gradients are not longer than the clip than are. Classes are added
    in their order, many rows at once.
    """
    more = 0
    K, m = S.shape
    zero, one, limit = S.dtype.type(0.0), S.dtype.type(1.0), steps * steps
    factor, sums = np.empty(m, S.dtype), np.empty(m, S.dtype)
    for i in range(m):
        factor[i], sums[i] = length[i] / grid, S[0, i]
    for k in range(1, K):
        for i in range(m):
            sums[i] = S[k, i] if S[k, i] > sums[i] else sums[i]
    for k in range(K):
        for i in range(m):
            S[k, i] = factor[i] * (S[k, i] - sums[i])
    mechanisms.exponentials(S.reshape(K * m))
    for i in range(m):
        sums[i] = zero
    for k in range(K):
        for i in range(m):
            sums[i] += S[k, i]
    for i in range(m):
        factor[i], sums[i] = one / sums[i], zero
    for k in range(K):
        for i in range(m):
            S[k, i] *= factor[i]
    for i in range(m):
        S[y[i], i] -= one
    for k in range(K):
        for i in range(m):
            sums[i] += S[k, i] * S[k, i]
    for i in range(m):
        long = length[i] * math.sqrt(sums[i])
        # a row whose predictions are not finite counts for nothing
        finite = long < np.inf and sums[i] > FLAT_SQUARE
        if length[i] > 0:
            more += 1 if long <= clip else -1
        most = length[i] * (clip / long if long > clip else 1.0)
        factor[i] = most * steps / (clip * grid) if finite else 0.0
        sums[i] = zero
    for k in range(K):
        for i in range(m):
            S[k, i] = np.rint(S[k, i] * factor[i]) if factor[i] > zero else zero
            sums[i] += S[k, i] * S[k, i]  # integers below 2^24: exact
    for i in range(m):
        while size[i] * np.int64(sums[i]) > limit:
            shrink = S.dtype.type(0.999 * math.sqrt(limit / (size[i] * np.float64(sums[i]))))
            sums[i] = zero
            for k in range(K):
                S[k, i] = np.trunc(S[k, i] * shrink)
                sums[i] += S[k, i] * S[k, i]
    return more


@njit(inline="always")
def _pair(one, two):
    """Two numbers of 16 bits, as ``thin_products`` takes them."""
    return np.uint16(np.int32(one)) | np.int32(two) << 16


# Rows as arguments of their own, because the compiler makes vectors of them


@njit(cache=True)
def _copied(row, to):
    for j in range(len(row)):
        to[j] = row[j]


@njit(cache=True)
def _paired(one, two, to):
    for j in range(len(one)):
        to[j] = _pair(one[j], two[j])


@njit(cache=True)
def _raised(top, row):
    for k in range(len(row)):
        size = abs(row[k])
        top[k] = size if size > top[k] or size != size else top[k]  # NaN stays


@njit(cache=True)
def _rounded_pair(one, two, over, to):
    for k in range(len(over)):
        to[k] = _pair(np.rint(over[k] * one[k]), np.rint(over[k] * two[k]))


@njit(cache=True)
def _rounded_model(Z, W):
    """Round every class of the model Z (d, K) to multiples of its largest entry over 2^15 - 1.

    W (d' / 2, K') has the whole numbers in pairs of features; what they multiply is returned, (K,),
    NaN for a class of which an entry is not finite.
    """
    d, K = Z.shape
    top, none = np.zeros(K, Z.dtype), np.zeros(K, Z.dtype)
    most = Z.dtype.type(MOST_16)
    for j in range(d):
        _raised(top, Z[j])
    over, unit = np.empty(K, Z.dtype), np.empty(K, Z.dtype)
    for k in range(K):
        over[k] = most / top[k] if LEAST < top[k] < np.inf else 0.0
        unit[k] = top[k] / most if top[k] < np.inf else np.nan
    for j in range(0, d, 2):
        _rounded_pair(Z[j], Z[j + 1] if j + 1 < d else none, over, W[j // 2])
    return unit


@njit(cache=True, nogil=True)
def _softmax_sum(U, y, Z, length, size, clip, steps, grid, total):
    """Write the sum of the integer gradients of softmax rows to total (d, K).

    Both products are of pairs of 16-bit numbers: the model's entries are rounded, each class by
    itself, which moves a prediction far less than noise has moved the model. Returns what
    ``_softmax_residuals`` does.
    """
    more = 0
    d, K = Z.shape
    wide, half = -(-K // LANES) * LANES, (d + 1) // 2
    W, S = np.zeros((half, wide), np.int32), np.empty((TILE, wide), np.int32)
    R, T = np.zeros((TILE, 2 * half), np.int16), np.empty(TILE * K, Z.dtype)
    P, Q = np.empty((TILE // 2, d), np.int32), np.zeros((TILE // 2, wide), np.int32)
    G, along, across = np.empty((d, wide), np.int32), R.view(np.int32).reshape(-1), P.reshape(-1)
    unit = _rounded_model(Z, W)
    for first in range(0, max(len(U), 1), TILE):
        here = slice(first, min(first + TILE, len(U)))
        m = here.stop - first
        for i in range(m):
            _copied(U[first + i], R[i, :d])
        for i in range(m // 2):
            _paired(U[first + 2 * i], U[first + 2 * i + 1], P[i])
        q = T[: K * m].reshape(K, m)
        thin_products.multiply(along, 0, half, 1, W, S, (m, half, wide), True)
        for k in range(K):
            for i in range(m):
                q[k, i] = unit[k] * Z.dtype.type(S[i, k])
        more += _softmax_residuals(q, y[here], length[here], size[here], clip, steps, grid)
        for k in range(K):
            for i in range(m // 2):
                Q[i, k] = _pair(q[k, 2 * i], q[k, 2 * i + 1])
        tile = first // TILE
        thin_products.multiply(across, 0, 1, d, Q, G, (d, m // 2, wide), tile % TILES == 0)
        if (tile + 1) % TILES == 0 or here.stop == len(U):
            for j in range(d):
                for k in range(K):
                    total[j, k] = G[j, k] + (total[j, k] if tile >= TILES else 0)
    return more
