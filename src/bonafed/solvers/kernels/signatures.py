"""Array types for compiled functions that accept writable and read-only arrays alike.

Without a stated type numba compiles a second version for read-only arrays, and its last bits can
differ.
"""

from numba import types


def doubles(axes: int) -> types.Array:
    """The type of an input array of doubles in C order."""
    return types.Array(types.float64, axes, "C", readonly=True)


RISKS_AND_GRADIENTS = types.Tuple((types.float64[::1], types.float64[:, ::1]))  # (n,) and (n, D)
