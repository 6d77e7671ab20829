"""exp and log(1 + x) in arithmetic only, so that compiled loops handle several entries at once.

    exp(x) = 2^k exp(r)          k the integer nearest to x / log 2, |r| <= log(2) / 2: twelve terms
    log(1 + x) = k log 2 + log(1 + f)
            1 + x = 2^k (1 + f), 1 + f in [1 / sqrt 2, sqrt 2): a series in f / (2 + f)

Callers compile it into their loops without leave to reorder sums: k comes from rounding in the last
bits of a large number, which reordering loses.
"""

import numpy as np
from numba import njit


@njit(inline="always")
def exp64(x):
    """exp of a double in [-708, 700] to 3 ulp, exactly 1 at 0, NaN at NaN.

    Beyond that range the result means nothing.
    """
    # adding 1.5 * 2^52 puts the nearest integer into the last bits
    shifted = x * 1.4426950408889634 + 6755399441055744.0
    k = shifted - 6755399441055744.0
    r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10
    tail = r * (
        1 / 5040
        + r
        * (1 / 40320 + r * (1 / 362880 + r * (1 / 3628800 + r * (1 / 39916800 + r / 479001600))))
    )
    p = 1.0 + r * (
        1.0 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24 + r * (1 / 120 + r * (1 / 720 + tail)))))
    )
    return p * np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)


@njit(inline="always")
def log1p64(x):
    """log(1 + x) of a double x >= 0 to 1 ulp; NaN at NaN and infinity."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u  # by rounding 1 + x
    # the second constant is 1 / sqrt 2
    bits = np.float64(u).view(np.int64) + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
    f = np.int64((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD).view(np.float64) - 1.0
    k = np.int64((bits >> 52) - 1023 + 0x4338000000000000).view(np.float64) - 6755399441055744.0
    s, half = f / (2.0 + f), 0.5 * f * f
    z = s * s
    tail = 1.818357216161805012e-01 + z * (1.531383769920937332e-01 + z * 1.479819860511658591e-01)
    tail = 3.999999999940941908e-01 + z * (
        2.857142874366239149e-01 + z * (2.222219843214978396e-01 + z * tail)
    )
    tail = z * (6.666666666666735130e-01 + z * tail)
    return k * 6.93147180369123816490e-01 - (
        (half - (s * (half + tail) + (k * 1.90821492927058770002e-10 + lost))) - f
    )
