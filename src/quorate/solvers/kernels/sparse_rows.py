"""Products of a matrix with itself where most of its columns are sparse and the others dense."""

from __future__ import annotations

from numba import njit, types

from quorate.solvers.kernels.signatures import doubles

places = types.Array(types.intp, 1, "C", readonly=True)


@njit(
    types.void(doubles(2), places, places, doubles(1), doubles(1), types.float64[:, ::1]),
    cache=True,
)
def add_gram(full, starts, columns, values, weight, lower):
    """Add what the sparse columns have of M' diag(weight)^2 M to its lower half (n, n).

    M has the dense columns ``full`` (m, d) first; ``values[starts[r]:starts[r + 1]]`` are the other
    entries of row r, in ``columns`` of M.
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
