"""Shamir's sharing of secrets: any t of the shares give the secret, fewer tell nothing about it.

A secret is a row of ``LIMBS`` uniform elements of the field of the prime p = 2^31 - 1. Each is the
value at 0 of a polynomial of degree t - 1 whose other coefficients are uniform, and the share of
the holder x = 1, 2, ... is the value at x (Shamir 1979). t values fix the polynomial; for any t - 1
values, each secret has exactly one polynomial that goes through them, so all are equally likely.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.privacy import keystream

PRIME = 2**31 - 1
LIMBS = 8  # 248 bits
MOST = 2**20  # holders: a partial reduction then keeps every intermediate below 2^63

_P, _BITS = np.uint64(PRIME), np.uint64(31)


def elements(key: bytes, stream: int, count: int) -> NDArray[np.uint64]:
    """Uniform elements of the field (count,) from a stream of the key.

    A word gives two numbers of 31 bits, of which p itself is left out: so no element is more likely
    than another.
    """
    drawn = count // 2 + 8
    while True:
        halves = keystream.words(key, 0, drawn, stream).astype("<u8").view("<u4") & PRIME
        found = halves[halves != PRIME]
        if len(found) >= count:
            return found[:count].astype(np.uint64)
        drawn *= 2


def as_key(secret: NDArray[np.uint64]) -> bytes:
    """The key of 32 bytes that a secret stands for."""
    return hashlib.sha256(b"bonafed secure sum: key\0" + secret.astype("<u4").tobytes()).digest()


@njit(cache=True, nogil=True)
def _reduced(x):
    """A number below p that is congruent to x; x is below 2^63."""
    x = (x & _P) + (x >> _BITS)
    x = (x & _P) + (x >> _BITS)
    return x - _P if x >= _P else x


@njit(cache=True, nogil=True)
def shares(coefficients, n):
    """The shares (n, k) of k secrets, holder x = 1, ..., n in row x - 1.

    ``coefficients`` (t, k) uint64 are uniform elements; row 0 is the secrets.
    """
    t, k = coefficients.shape
    out = np.empty((n, k), np.uint64)
    for i in range(n):
        row, x = out[i], np.uint64(i + 1)
        row[:] = coefficients[t - 1]
        for j in range(t - 2, -1, -1):  # Horner; a row stays below 2^33, times x below 2^54
            for a in range(k):
                v = row[a] * x + coefficients[j, a]
                row[a] = (v & _P) + (v >> _BITS)
        for a in range(k):
            row[a] = _reduced(row[a])
    return out


@njit(cache=True, nogil=True)
def weights(points):
    """Lagrange's weights at 0 (t,) of distinct holders (t,) uint64, numbers from 1 on."""
    t = len(points)
    out = np.empty(t, np.uint64)
    for i in range(t):
        above, below = np.uint64(1), np.uint64(1)
        for j in range(t):
            if j != i:
                above = _reduced(above * points[j])
                below = _reduced(below * _reduced(points[j] + _P - points[i]))
        inverse, power = np.uint64(1), PRIME - 2  # Fermat: below^(p - 2)
        while power:
            if power & 1:
                inverse = _reduced(inverse * below)
            below, power = _reduced(below * below), power >> 1
        out[i] = _reduced(above * inverse)
    return out


def secrets_of(points: NDArray[np.uint64], held: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The secrets (m, LIMBS) from the shares (t, m, LIMBS) of t distinct holders (t,).

    Fewer shares than the secrets' threshold give numbers that have nothing to do with them.
    """
    total = np.zeros(held.shape[1:], np.uint64)
    for weight, share in zip(weights(points), held, strict=True):
        total += weight * share % _P  # at most MOST terms below 2^31
    return total % _P
