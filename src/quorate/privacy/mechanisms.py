"""Gaussian and Laplace noise that is generated again from a key rather than stored.

There are two sources. ``fill`` makes standard Gaussian or Laplace numbers from a counter and a key
in one vectorised loop. It is fast, gives the same numbers for any number of threads and is meant
for simulations: anyone who knows the key can subtract the noise, and its 32-bit uniforms end the
tails at 6.8 (Gaussian) and 22 (Laplace). ``secure`` makes them from a secret key through the
cryptographic function SHAKE-256, for clients that answer a real server.

The privacy guarantees are proved for real numbers. Computers add doubles, whose last bits can
reveal the number below the noise (Mironov 2012). ``secure`` adds four Gaussians of a quarter of the
variance each, for Laplace two products of two Gaussians (Holohan, Braghin 2021), so that many draws
lead to one sum; that is a defence and no proof. Neither source is an exact sampler, and timing is
not hidden.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from quorate.arrays import Array

GAUSSIAN, LAPLACE = 0, 1
KINDS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}
MEAN_SIZE = (math.sqrt(2 / math.pi), 1.0)  # the mean absolute value of one number, by kind

# noise is paired within parts of this length, so a part alone has the same numbers as in an array
PART = 2048

# no flag that reorders operations: the order would depend on what a loop is compiled into
_FAST = {"contract", "nsz"}
_STEP, _FIRST, _SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
_HALF, _SIGN, _UNSIGNED = np.uint64(32), np.uint64(1 << 63), np.uint64(0x7FFFFFFF)
# the bits of a fraction, and those of the square root of 1/2
_FRACTION, _ROOT = np.int64(0x000FFFFFFFFFFFFF), np.int64(0x3FE6A09E667F3BCD)
_TURN, _START = math.pi * 2.0**-31, math.pi * (2.0**-32 - 0.5)


@njit(inline="always")
def mixed(z):
    """A bijection of 64-bit words that leaves no pattern: the finaliser of SplitMix64.

    See Steele et al. 2014.
    """
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@njit(inline="always")
def _log(x, halvings):
    """The logarithm of a normal positive double over 2^halvings, to 2e-15.

    It calls no function, so loops over it vectorise.

    The polynomial is 2 artanh(s) / s, interpolated at Chebyshev's points for x / 2^k in (sqrt(1/2),
    sqrt(2)).
    """
    bits = np.float64(x).view(np.int64) - (_ROOT + (np.int64(halvings) << 52))
    m = np.int64((bits & _FRACTION) + _ROOT).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    p = 0.16837659970680488293
    p = p * q + 0.18121934431215214114
    p = p * q + 0.22223434547517906665
    p = p * q + 0.28571416021107671580
    p = p * q + 0.40000000061741615195
    p = p * q + 0.66666666666552918001
    p = p * q + 2.0000000000000003418
    return s * p + (bits >> 52) * 0.6931471805599453


@njit(inline="always")
def _cos_sin(t):
    """cos and sin of |t| <= pi / 2, to 1e-12; the polynomials are made as above."""
    q = t * t
    s = 1.5411219746648898534e-10
    s = s * q - 2.5030268188822791275e-8
    s = s * q + 2.7556952912858048419e-6
    s = s * q - 1.9841266683130672732e-4
    s = s * q + 8.3333333203583484769e-3
    s = s * q - 0.16666666666466671588
    s = s * q + 0.99999999999994965081
    c = 1.9907506103760227874e-9
    c = c * q - 2.7524670425081664120e-7
    c = c * q + 2.4801039928008271823e-5
    c = c * q - 1.3888884170789054048e-3
    c = c * q + 4.1666666472851793788e-2
    c = c * q - 0.49999999997012749680
    c = c * q + 0.99999999999924796270
    return c, t * s


@njit(inline="always")
def _signed(x, word):
    """x with the sign changed where the word's highest bit is set."""
    return np.uint64(np.float64(x).view(np.uint64) ^ (word & _SIGN)).view(np.float64)


@njit(inline="always")
def _gaussian_pair(word):
    """Two N(0, 1) numbers by the Box-Muller transform.

    The high half of the word is the radius; the low half a sign and an angle of half a turn.
    """
    odd = np.float64(np.int64((word >> np.uint64(31)) | np.uint64(1)))
    r = math.sqrt(-2.0 * _log(odd, 33))
    c, s = _cos_sin(np.float64(np.int64(word & _UNSIGNED)) * _TURN + _START)
    return r * _signed(c, word << _HALF), r * s


@njit(inline="always")
def _exponential(bits):
    """An exponential number of mean 1 from 31 bits, the middle of whose interval is the uniform."""
    return -_log(np.float64(np.int64((bits << np.uint64(1)) | np.uint64(1))), 32)


@njit(inline="always")
def _laplace_pair(word):
    """Two Laplace numbers of scale 1, each from half a word: a sign and 31 bits."""
    high, low = word >> _HALF, word << _HALF
    return _signed(_exponential(high & _UNSIGNED), word), _signed(
        _exponential(word & _UNSIGNED), low
    )


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _add_gaussian(count, step, scale, low, high):
    for j in range(len(high)):
        a, b = _gaussian_pair(mixed(count))
        low[j] += scale * a
        high[j] += scale * b
        count += step
    if len(low) > len(high):
        low[-1] += scale * _gaussian_pair(mixed(count))[0]


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def _add_laplace(count, step, scale, low, high):
    for j in range(len(high)):
        a, b = _laplace_pair(mixed(count))
        low[j] += scale * a
        high[j] += scale * b
        count += step
    if len(low) > len(high):
        low[-1] += scale * _laplace_pair(mixed(count))[0]


@njit(cache=True)
def add(key, kind, scale, out, first):
    """Add standard numbers times the scale to out (n,), which starts at entry ``first`` of all.

    ``first`` is a multiple of PART.

    In every PART of n entries, entry j and entry j + ceil(n / 2) are a pair. No two pairs of a key
    have one count.
    """
    # the step depends on the key, as in SplittableRandom: two keys never count alike
    step = mixed(key + _STEP) | np.uint64(1)
    for start in range(0, len(out), PART):
        part = out[start : start + PART]
        half = (len(part) + 1) // 2
        count = key + np.uint64((first + start) // 2) * step
        if kind == GAUSSIAN:
            _add_gaussian(count, step, scale, part[:half], part[half:])
        else:
            _add_laplace(count, step, scale, part[:half], part[half:])


@njit(cache=True)
def fill(key, kind, out):
    """Write standard numbers into out (D,)."""
    out[:] = 0
    add(key, kind, 1.0, out, 0)


def secure(secret: bytes, about: bytes, kind: int, size: int) -> Array:
    """Standard numbers (size,) that only a holder of the secret can make.

    ``about`` identifies this use and must never repeat.
    """
    head = b"quorate noise %d %d %d " % (kind, size, len(secret))
    u = uniforms(np.frombuffer(hashlib.shake_256(head + secret + about).digest(32 * size), "<u8"))
    first, turn = -np.log(u[: 2 * size]), u[2 * size :]
    if kind == LAPLACE:  # the sum of two products of two Gaussians
        return (first * np.cos(np.pi * turn)).reshape(2, size).sum(0)
    r, angle = np.sqrt(2.0 * first), 2.0 * np.pi * turn
    return np.concatenate([r * np.cos(angle), r * np.sin(angle)]).reshape(4, size).sum(0) / 2.0


def uniforms(words: NDArray[np.uint64]) -> Array:
    """Numbers in (0, 1) from 52 bits of each word; with one more bit they could round up to 1."""
    return ((words >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
