"""Arrays that compiled code is stated for, whether they may be written or not.

Left to itself numba compiles a second code for arrays that may not be written, and its last bits can differ.
"""

from __future__ import annotations

from numba import types


def given(axes: int) -> types.Array:
    """An input of doubles in C order."""
    return types.Array(types.float64, axes, "C", readonly=True)


RISKS_AND_SLOPES = types.Tuple((types.float64[::1], types.float64[:, ::1]))  # (n,) and (n, D)
