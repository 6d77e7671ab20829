"""Products with the sparse columns of a matrix that also has dense ones.

The rows have few entries each, and they are stored as the compressed rows of sparse matrices:
``values[starts[r]:starts[r + 1]]`` are those of row r, in ``columns`` of the whole matrix.
"""

from __future__ import annotations

from numba import njit, types

from quorate.solvers.kernels.signatures import doubles

places = types.Array(types.intp, 1, "C", readonly=True)
ROWS = places, places, doubles(1)


@njit(types.void(*ROWS, doubles(1), types.float64[::1]), cache=True)
def add_times(starts, columns, values, x, out):
    """Add the rows times x to ``out`` (m,)."""
    for r in range(len(starts) - 1):
        for k in range(starts[r], starts[r + 1]):
            out[r] += values[k] * x[columns[k]]


@njit(types.void(*ROWS, doubles(1), types.float64[::1]), cache=True)
def add_back(starts, columns, values, z, out):
    """Add the sum of the rows, times z (m,), to ``out`` (n,)."""
    for r in range(len(starts) - 1):
        for k in range(starts[r], starts[r + 1]):
            out[columns[k]] += values[k] * z[r]


@njit(types.void(doubles(2), *ROWS, doubles(1), types.float64[:, ::1]), cache=True)
def add_gram(full, starts, columns, values, weight, lower):
    """Add what the sparse columns have of M' diag(weight)^2 M to its lower half (n, n), where M has
    the dense columns ``full`` (m, d) first.
    """
    d = full.shape[1]
    for r in range(len(weight)):
        square = weight[r] * weight[r]
        for k in range(starts[r], starts[r + 1]):
            a, column = square * values[k], columns[k]
            for j in range(d):
                lower[column, j] += a * full[r, j]
            for m in range(starts[r], starts[r + 1]):
                if columns[m] <= column:
                    lower[column, columns[m]] += a * values[m]
