"""The compiled parts of the interior point in ``solvers/conic/dense.py``, whose symbols these are.

The matrix M has dense columns first, ``full`` (m, d); the other entries of row r are
``values[starts[r]:starts[r + 1]]`` in the columns ``columns``. Rows before ``ends[0]`` are
half-lines, and those from ``ends[k]`` to ``ends[k + 1]`` are one second-order cone.

What other kernels call has its types stated, so that it is compiled once: the first run on a
machine waits for it.
"""

from __future__ import annotations

import math

from numba import njit, types

from quorate.solvers.kernels.signatures import doubles

FAST = {"reassoc", "contract", "nsz"}

places = types.Array(types.intp, 1, "C", readonly=True)
vector, matrix = types.float64[::1], types.float64[:, ::1]
ROWS = doubles(2), places, places, doubles(1)


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
        for k in range(starts[r], starts[r + 1]):
            a, column = square * values[k], columns[k]
            for j in range(full.shape[1]):
                lower[column, j] += a * full[r, j]
            for m in range(starts[r], starts[r + 1]):
                if columns[m] <= column:
                    lower[column, columns[m]] += a * values[m]


@njit(
    types.UniTuple(types.float64, 5)(*ROWS, doubles(2), *[doubles(1)] * 5, vector, vector),
    cache=True,
    fastmath=FAST,
)
def residuals(full, starts, columns, values, P, q, c, x, s, z, dual, primal):
    """Write P x + q - M'z and M x + c - s; their largest entries, <s, z>, the objective at x, and
    how far it is from that at z by the residuals too. An empty P is 0.
    """
    back(full, starts, columns, values, z, dual)
    forward(full, starts, columns, values, x, primal)
    steep = short = gap = value = apart = 0.0
    for j in range(len(x)):
        curved = 0.0
        for i in range(len(P)):
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
