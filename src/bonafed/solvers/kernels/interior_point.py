"""The compiled parts of the interior point in ``solvers/conic/dense.py``, whose symbols these are.

The matrix M has dense columns first, ``full`` (m, d); the other entries of row r are
``values[starts[r]:starts[r + 1]]`` in the columns ``columns``. Rows before ``ends[0]`` are
half-lines, and those from ``ends[k]`` to ``ends[k + 1]`` are one second-order cone. On a half-line
the scaling W is ``size[r]``; on a cone it is size (2 v v' - J), with one size for all of its rows.
Every direction of a step takes two calls, ``right_side`` and ``changes``: in small programs calls
take as long as the work.

What other kernels call has its types stated, so that it is compiled once: the first run on a
machine waits for it.
"""

import math

from numba import njit, types

from bonafed.solvers.kernels.signatures import doubles

FAST = {"reassoc", "contract", "nsz"}

places = types.Array(types.intp, 1, "C", readonly=True)
vector, matrix = types.float64[::1], types.float64[:, ::1]
ROWS = doubles(2), places, places, doubles(1)
SCALING = places, doubles(1), doubles(1)


@njit(types.void(*ROWS, doubles(1), vector), cache=True, fastmath=FAST)
def forward(full, starts, columns, values, x, out):
    """Write M x."""
    for r in range(len(out)):
        total = 0.0
        for j in range(full.shape[1]):
            total += full[r, j] * x[j]
        for k in range(starts[r], starts[r + 1]):
            total += values[k] * x[columns[k]]
        out[r] = total


@njit(types.void(*ROWS, doubles(1), vector), cache=True, fastmath=FAST)
def back(full, starts, columns, values, z, out):
    """Write M'z."""
    for j in range(len(out)):
        out[j] = 0.0
    for r in range(len(z)):
        for j in range(full.shape[1]):
            out[j] += z[r] * full[r, j]
        for k in range(starts[r], starts[r + 1]):
            out[columns[k]] += z[r] * values[k]


@njit(types.void(*ROWS, doubles(1), matrix), cache=True)
def add_gram(full, starts, columns, values, weight, lower):
    """Add what the sparse columns have of M' diag(weight)^2 M to its lower half (n, n)."""
    for r in range(len(weight)):
        square = weight[r] * weight[r]
        for k in range(starts[r] if square > 0 else starts[r + 1], starts[r + 1]):
            a, column = square * values[k], columns[k]
            for j in range(full.shape[1]):
                lower[column, j] += a * full[r, j]
            for m in range(starts[r], starts[r + 1]):
                if columns[m] <= column:
                    lower[column, columns[m]] += a * values[m]


cube = types.float64[:, :, ::1]


@njit(types.void(*ROWS, doubles(1), places, places, cube, cube), cache=True)
def add_blocks(full, starts, columns, values, weight, block, place, A, B):
    """Add to A (n, b, b) and B (n, b, d) what M' diag(weight)^2 M has for the numbers of blocks:
    sparse column d + i is number ``place[i]`` of block ``block[i]``.
    """
    d = full.shape[1]
    for r in range(len(weight)):
        square = weight[r] * weight[r]
        for k in range(starts[r] if square > 0 else starts[r + 1], starts[r + 1]):
            i = columns[k] - d
            n, a, p = block[i], square * values[k], place[i]
            for j in range(d):
                B[n, p, j] += a * full[r, j]
            for m in range(starts[r], starts[r + 1]):
                A[n, p, place[columns[m] - d]] += a * values[m]


@njit(types.boolean(cube, cube), cache=True, error_model="numpy")
def factor_blocks(A, B):
    """Write the Cholesky factors L of the blocks A into their lower halves, and L^-1 B into B;
    False where a block has none.
    """
    for n in range(len(A)):
        for i in range(A.shape[1]):
            for j in range(i + 1):
                total = A[n, i, j]
                for m in range(j):
                    total -= A[n, i, m] * A[n, j, m]
                if j < i:
                    A[n, i, j] = total / A[n, j, j]
                elif total > 0:
                    A[n, i, i] = math.sqrt(total)
                else:
                    return False
            for m in range(i):
                for j in range(B.shape[2]):
                    B[n, i, j] -= A[n, i, m] * B[n, m, j]
            for j in range(B.shape[2]):
                B[n, i, j] /= A[n, i, i]
    return True


@njit(types.void(cube, matrix, types.boolean), cache=True, error_model="numpy")
def solve_blocks(A, v, turned):
    """Overwrite v by L^-1 v, and by L'^-1 v where ``turned``, of every block's factor."""
    size = A.shape[1]
    for n in range(len(A)):
        for k in range(size):
            i = size - 1 - k if turned else k
            for m in range(i + 1, size) if turned else range(i):
                v[n, i] -= (A[n, m, i] if turned else A[n, i, m]) * v[n, m]
            v[n, i] /= A[n, i, i]


FIVE = types.UniTuple(types.float64, 5)(doubles(2), *[doubles(1)] * 5, vector, vector)


@njit(FIVE, cache=True, fastmath=FAST)
def residuals(P, q, c, x, s, z, dual, primal):
    """Turn M'z into P x + q - M'z, and M x into M x + c - s. Return their largest entries, <s, z>,
    the objective at x, and how far it is from that at z by the residuals too. P is that of the
    first numbers, and that of the others is 0.
    """
    steep = short = gap = value = apart = 0.0
    for j in range(len(x)):
        curved = 0.0
        for i in range(len(P) if j < len(P) else 0):
            curved += P[j, i] * x[i]
        dual[j] = curved + q[j] - dual[j]
        value += (q[j] + 0.5 * curved) * x[j]
        apart += x[j] * dual[j]
        size = abs(dual[j])
        steep = size if size > steep else steep
    for r in range(len(s)):
        primal[r] += c[r] - s[r]
        gap += s[r] * z[r]
        apart += z[r] * primal[r]
        size = abs(primal[r])
        short = size if size > short else short
    return steep, short, gap, value, abs(gap + apart)


@njit(types.float64(places, *[doubles(1)] * 2, *[vector] * 2), cache=True, error_model="numpy")
def scaling(ends, s, z, size, v):
    """Write W of s and z, and return the largest t with s - t e and z - t e in K."""
    depth = math.inf
    for r in range(ends[0]):
        depth = min(depth, s[r], z[r])
        size[r] = math.sqrt(s[r] / z[r])
    for k in range(len(ends) - 1):
        a, b = ends[k], ends[k + 1]
        wide = tall = across = 0.0
        for r in range(a + 1, b):
            wide += s[r] * s[r]
            tall += z[r] * z[r]
            across += s[r] * z[r]
        wide, tall = math.sqrt(wide), math.sqrt(tall)
        depth = min(depth, s[a] - wide, z[a] - tall)
        one = math.sqrt((s[a] - wide) * (s[a] + wide))  # roots of the determinants
        two = math.sqrt((z[a] - tall) * (z[a] + tall))
        twice = math.sqrt(2 + 2 * (s[a] / one * (z[a] / two) + across / one / two))
        v[a] = math.sqrt((1 + (s[a] / one + z[a] / two) / twice) / 2)
        for r in range(a, b):
            size[r] = math.sqrt(one / two)
            if r > a:
                v[r] = (s[r] / one - z[r] / two) / twice / (2 * v[a])
    return depth


@njit(types.void(*SCALING, types.float64, doubles(1), vector), cache=True, error_model="numpy")
def scaled(ends, size, v, turn, u, out):
    """Write W u where ``turn`` is 1, and W^-1 u where it is -1; it may overwrite u."""
    for r in range(ends[0]):
        out[r] = u[r] * size[r] if turn > 0 else u[r] / size[r]
    for k in range(len(ends) - 1):
        a, b = ends[k], ends[k + 1]
        across = 0.0
        for r in range(a + 1, b):
            across += v[r] * u[r]
        across = 2 * (v[a] * u[a] + turn * across)
        factor = size[a] if turn > 0 else 1 / size[a]
        out[a] = factor * (across * v[a] - u[a])
        for r in range(a + 1, b):
            out[r] = factor * (turn * across * v[r] + u[r])


@njit(types.void(*ROWS, *SCALING, *[doubles(1)] * 3, *[vector] * 2), cache=True, fastmath=FAST)
def right_side(full, starts, columns, values, ends, size, v, target, residual, dual, work, out):
    """Write M' W^-1 (target - residual) - dual."""
    for r in range(len(work)):
        work[r] = target[r] - residual[r]
    scaled(ends, size, v, -1.0, work, work)
    back(full, starts, columns, values, work, out)
    for j in range(len(out)):
        out[j] -= dual[j]


@njit(types.void(*ROWS, *SCALING, *[doubles(1)] * 3, *[vector] * 2), cache=True, fastmath=FAST)
def changes(full, starts, columns, values, ends, size, v, dx, residual, target, ds, dz):
    """Write W^-1 of the slacks' change, M dx and the residual, and W of the multipliers', which
    have the target as their sum.
    """
    forward(full, starts, columns, values, dx, ds)
    scaled(ends, size, v, -1.0, ds, ds)
    for r in range(len(ds)):
        ds[r] += residual[r]
        dz[r] = target[r] - ds[r]


QUOTIENT = types.void(places, doubles(1), *[types.float64] * 2, *[doubles(1)] * 2, vector)


@njit(QUOTIENT, cache=True, error_model="numpy")
def quotient(ends, u, mu, share, v, w, out):
    """Write the x with u o x = mu e - share v o w, for u inside K: o is elementwise on half-lines,
    and (<u, x>, u_0 x_1 + x_0 u_1) on a second-order cone.
    """
    for r in range(ends[0]):
        out[r] = (mu - share * v[r] * w[r]) / u[r]
    for k in range(len(ends) - 1):
        a, b = ends[k], ends[k + 1]
        inner, tail, across = v[a] * w[a], 0.0, 0.0
        for r in range(a + 1, b):
            inner += v[r] * w[r]
            tail += u[r] * u[r]
            out[r] = -share * (v[a] * w[r] + w[a] * v[r])
            across += u[r] * out[r]
        tail = math.sqrt(tail)
        first = (u[a] * (mu - share * inner) - across) / ((u[a] - tail) * (u[a] + tail))
        out[a] = first
        for r in range(a + 1, b):
            out[r] = (out[r] - first * u[r]) / u[a]


@njit(types.float64(places, doubles(1), doubles(1)), cache=True, error_model="numpy")
def longest(ends, u, step):
    """The largest t <= 1 with u + t step in K, for u inside."""
    steepest = 1.0
    for r in range(ends[0]):
        slope = -step[r] / u[r]
        steepest = slope if slope > steepest else steepest
    t = 1.0 / steepest
    for k in range(len(ends) - 1):
        a = ends[k]
        wide = away = across = 0.0
        for r in range(a + 1, ends[k + 1]):
            wide += u[r] * u[r]
            away += step[r] * step[r]
            across += u[r] * step[r]
        wide, away = math.sqrt(wide), math.sqrt(away)
        # det(u + t step) = left + 2 t middle + t^2 square
        left, square = (u[a] - wide) * (u[a] + wide), (step[a] - away) * (step[a] + away)
        middle = u[a] * step[a] - across
        root = middle * middle - square * left
        if (square < 0 or middle < 0) and root >= 0:  # else along a direction of the cone
            slope = math.sqrt(root) - middle
            if left < t * slope:
                t = left / slope
    return t if t > 0 else 0.0
