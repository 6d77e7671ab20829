"""Products with symmetric matrices of which one triangle is stored, row after row without gaps.

A product with a matrix that does not fit the cache takes as long as reading it. Reading half of it,
in the order of memory, takes half the time.
"""

import numpy as np
from numba import njit

from bonafed.arrays import Array


def packed(matrix: Array) -> Array:
    """(D (D + 1) / 2,): the lower triangle of a symmetric matrix (D, D), row by row."""
    return matrix[np.tril_indices(len(matrix))]


@njit(cache=True, fastmath={"reassoc", "contract", "nsz"})
def times(matrix, x, y):
    """Set y (D,) to a packed matrix times x (D,); all three have one type."""
    D, k, zero = len(x), 0, x.dtype.type(0.0)
    y[:] = zero
    for r in range(0, D - 1, 2):  # two rows at a time, so that y is read and written half as often
        first, second = matrix[k : k + r], matrix[k + r + 1 : k + 2 * r + 1]
        a, b = x[r], x[r + 1]
        s = t = zero
        for j in range(r):
            s += first[j] * x[j]
            t += second[j] * x[j]
            y[j] += a * first[j] + b * second[j]
        across = matrix[k + 2 * r + 1]
        y[r] = s + matrix[k + r] * a + across * b
        y[r + 1] = t + across * a + matrix[k + 2 * r + 2] * b
        k += 2 * r + 3
    if D % 2:
        last, s = matrix[k:], zero
        for j in range(D - 1):
            s += last[j] * x[j]
            y[j] += x[D - 1] * last[j]
        y[D - 1] = s + last[D - 1] * x[D - 1]
