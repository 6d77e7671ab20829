"""Noise of a given scale, regenerated rather than stored.

Two sources. ``fill`` makes standard Gaussian or Laplace numbers from a counter and a key, in one vectorised loop: fast
and the same for any number of threads, for simulations; whoever knows the key can subtract it, and its 32-bit uniforms
end the tails at 6.8 (Gaussian) and 22 (Laplace). ``secure`` makes them from a secret key through SHAKE-256, a
cryptographic function: for owners who answer a server.

The promises of privacy are proved for real numbers. Doubles are none: the last bits of one such number can tell what
was added to it (Mironov 2012). ``secure`` adds four Gaussians of a quarter of the variance each, for Laplace two
products of two Gaussians (Holohan, Braghin 2021), so that many draws lead to one sum; that is a defence and no proof.
Neither source is an exact sampler, and timing is not hidden.
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
MEAN_SIZE = (math.sqrt(2 / math.pi), 1.0)  # of the absolute value of one number, by kind

_FAST = {"reassoc", "contract", "arcp", "nsz"}
_STEP, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_FRACTION, _ONE = np.int64(0x000FFFFFFFFFFFFF), np.int64(0x3FF0000000000000)


@njit(inline="always")
def mixed(z):
    """A bijection of 64-bit words that leaves no pattern (the finaliser of SplitMix64, Steele et al. 2014)."""
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


@njit(inline="always")
def _log(x):
    """Natural logarithm of a normal positive double, to 2e-15: no call, so that loops vectorise."""
    bits = np.float64(x).view(np.int64)
    exponent = ((bits >> 52) & 2047) - 1023
    m = np.int64((bits & _FRACTION) | _ONE).view(np.float64)
    large = m > 1.4142135623730951
    m = 0.5 * m if large else m
    exponent = exponent + 1 if large else exponent
    s = (m - 1.0) / (m + 1.0)
    q = s * s
    p = 2.0 / 17
    p = p * q + 2.0 / 15
    p = p * q + 2.0 / 13
    p = p * q + 2.0 / 11
    p = p * q + 2.0 / 9
    p = p * q + 2.0 / 7
    p = p * q + 2.0 / 5
    p = p * q + 2.0 / 3
    return s * (p * q + 2.0) + exponent * 0.6931471805599453


@njit(inline="always")
def _cos_sin(u):
    """cos and sin of 2 pi u for |u| <= 1/2, to 1e-11."""
    k = np.rint(4.0 * u)
    r = (u - 0.25 * k) * 6.283185307179586
    q = r * r
    s = r * (1 + q * (-1 / 6 + q * (1 / 120 + q * (-1 / 5040 + q * (1 / 362880 + q * (-1 / 39916800))))))
    c = 1 + q * (-1 / 2 + q * (1 / 24 + q * (-1 / 720 + q * (1 / 40320 + q * (-1 / 3628800 + q / 479001600)))))
    quarter = np.int64(k) & 3
    odd = (quarter & 1) == 1
    a, b = (s if odd else c), (c if odd else s)
    return (-a if quarter == 1 or quarter == 2 else a), (-b if quarter >= 2 else b)


@njit(inline="always")
def _uniforms(key, step, j):
    """Two numbers, in (0, 1) and in (-1/2, 1/2), of 32 bits each; ``step`` is odd."""
    h = mixed(key + np.uint64(j) * step)
    u = (np.float64(np.int64(h >> _HALF)) + 0.5) * 2.3283064365386963e-10
    return u, (np.float64(np.int64(h & _LOW)) + 0.5) * 2.3283064365386963e-10 - 0.5


@njit(inline="always")
def _gaussian_pair(u, v):
    """N(0, 1) twice (Box and Muller)."""
    r = math.sqrt(-2.0 * _log(u))
    c, s = _cos_sin(v)
    return r * c, r * s


@njit(inline="always")
def _laplace_pair(u, v):
    """Laplace of scale 1 twice."""
    u = u - 0.5
    x, y = _log(1.0 - 2.0 * abs(u)), _log(1.0 - 2.0 * abs(v))
    return (x if u < 0 else -x), (y if v < 0 else -y)


@njit(cache=True, fastmath=_FAST, error_model="numpy")
def fill(key, kind, out):
    """Standard numbers into out (D,); entry j and entry j + ceil(D / 2) are a pair."""
    half = (len(out) + 1) // 2
    last = np.empty(2)
    step = mixed(key + _STEP) | np.uint64(1)  # the key's own, as in SplittableRandom: two keys never count alike
    low, high = out[:half], out[half:]
    if kind == GAUSSIAN:
        for j in range(len(high)):
            u, v = _uniforms(key, step, j)
            low[j], high[j] = _gaussian_pair(u, v)
        u, v = _uniforms(key, step, half - 1)
        last[0], last[1] = _gaussian_pair(u, v)
    else:
        for j in range(len(high)):
            u, v = _uniforms(key, step, j)
            low[j], high[j] = _laplace_pair(u, v)
        u, v = _uniforms(key, step, half - 1)
        last[0], last[1] = _laplace_pair(u, v)
    low[half - 1] = last[0]


def secure(secret: bytes, about: bytes, kind: int, size: int) -> Array:
    """Standard numbers (size,) that only who has the secret can make; ``about``: what makes this use the only one."""
    head = b"quorate noise %d %d %d " % (kind, size, len(secret))
    u = uniforms(np.frombuffer(hashlib.shake_256(head + secret + about).digest(32 * size), "<u8"))
    first, turn = -np.log(u[: 2 * size]), u[2 * size :]
    if kind == LAPLACE:  # the sum of two products of two Gaussians
        return (first * np.cos(np.pi * turn)).reshape(2, size).sum(0)
    r, angle = np.sqrt(2.0 * first), 2.0 * np.pi * turn
    return np.concatenate([r * np.cos(angle), r * np.sin(angle)]).reshape(4, size).sum(0) / 2.0


def uniforms(words: NDArray[np.uint64]) -> Array:
    """Numbers in (0, 1) from words, 52 bits each: with one more the half could round up to 1."""
    return ((words >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
