"""The arithmetic of the secure sum: masks, numbers of 128 bits, shares of secrets.

The masks of a round are words of the key stream, added and subtracted modulo 2^64. Numbers of 128
bits are pairs of words: the lower word first, two's complement, modulo 2^128. A double travels as a
multiple of 2^-63. That is finer than any double of order one, and leaves room up to 2^62, so that
nobody has to choose a step.

Of Shamir's shares of a secret any t give it, and fewer tell nothing about it. A secret is a row of
``LIMBS`` uniform elements of the field of the prime p = 2^31 - 1. Each is the value at 0 of a
polynomial of degree t - 1 whose other coefficients are uniform, and the share of the holder x = 1,
2, ... is the value at x (Shamir 1979). t values fix the polynomial; for any t - 1 values, each
secret has exactly one polynomial that goes through them, so all are equally likely.
"""

import hashlib

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from bonafed.privacy import keystream

_TILE = 4 * keystream.BATCH  # words of all masks that are handled together, in the fastest cache


def key_rows(keys: bytes) -> NDArray[np.uint32]:
    """Keys of 32 bytes, one after the other, as the rows (m, 8) that the kernels take."""
    return np.frombuffer(keys, "<u4").astype(np.uint32).reshape(-1, 8)


@njit(cache=True, nogil=True)
def of_round(roots, number):
    """The keys (m, 8) of round ``number``: of each root (m, 8) the first words of that stream.

    The key stream is a pseudorandom function of the stream's number. So the keys of some rounds
    tell nothing about those of others, nor about the roots.
    """
    half, word = np.uint64(32), np.empty(keystream.BATCH, np.uint64)
    out = np.empty(roots.shape, np.uint32)
    for i in range(len(roots)):
        keystream.fill(roots[i], number, np.uint64(0), word)
        for j in range(4):
            out[i, 2 * j] = np.uint32(word[j])
            out[i, 2 * j + 1] = np.uint32(word[j] >> half)
    return out


def bound(keys: NDArray[np.uint32], about: bytes) -> NDArray[np.uint32]:
    """Keys (m, 8) made of these and of what a round is about: the masks of two clients cancel only
    where both were told the same.

    Each of the four words of its digest makes new keys of those before, by the same function.
    """
    for word in np.frombuffer(hashlib.sha256(about).digest(), "<u8"):
        keys = of_round(keys, word)
    return keys


@njit(cache=True, nogil=True)
def add(total, keys, signs, wide=False):
    """Add to total (D,) uint64 the streams 0 of the keys (m, 8), or subtract: signs (m,) +1, -1;
    ``wide`` says that pairs of words, the lower one first, are numbers of 128 bits.
    """
    stream = np.empty(_TILE, np.uint64)
    for at in range(0, len(total), _TILE):
        part = total[at : at + _TILE]
        size = -(-len(part) // keystream.BATCH) * keystream.BATCH
        for i in range(len(keys)):
            keystream.fill(keys[i], np.uint64(0), np.uint64(at // keystream.BLOCK), stream[:size])
            if wide:
                _add_pairs(part, stream, signs[i])
            elif signs[i] > 0:
                part += stream[: len(part)]
            elif signs[i] < 0:
                part -= stream[: len(part)]


@njit(cache=True, nogil=True)
def _add_pairs(part, stream, sign):
    """The same of one tile, carries included."""
    one, none = np.uint64(1), np.uint64(0)
    for j in range(0, len(part), 2):
        if sign > 0:
            low = part[j] + stream[j]
            part[j + 1] += stream[j + 1] + (one if low < part[j] else none)
            part[j] = low
        elif sign < 0:
            low = part[j] - stream[j]
            part[j + 1] -= stream[j + 1] + (one if low > part[j] else none)
            part[j] = low


Words = NDArray[np.uint64]
BITS = 63  # behind the point
LARGEST = 2.0**62  # of a sum, so that none overflows


def of_numbers(values: ArrayLike, clients: int) -> Words:
    """The words (2 D,) of real numbers, to the nearest multiple of 2^-63.

    Raises
    ------
    ValueError : a number that is not finite or beyond 2^62 / N; nothing is clamped
    """
    given, bound = np.asarray(values, float).ravel(), LARGEST / clients
    if not (inside := np.abs(given) <= bound).all():  # not of NaN
        raise ValueError(
            f"{np.sum(~inside)} of {given.size} numbers are not within the bound: the first is"
            f" {float(given[~inside][0])!r}, and at most {bound:.3g} in absolute value is allowed."
        )
    whole = np.rint(given)
    rest = np.rint((given - whole) * 2.0**BITS).astype(np.int64)  # of at most 2^62
    units = whole.astype(np.int64)
    odd = (units & 1).astype(np.uint64) << np.uint64(BITS)
    return added(np.stack([odd, (units >> 1).astype(np.uint64)], 1).ravel(), of_whole(rest))


def of_whole(values: NDArray[np.int64]) -> Words:
    """The words (2 D,) of whole numbers."""
    flat = values.ravel()
    return np.stack([flat, -(flat < 0).astype(np.int64)], 1).astype(np.uint64).ravel()


def numbers(words: Words) -> NDArray[np.float64]:
    """The real numbers that words stand for."""
    low, high = words[::2].copy(), words[1::2].view(np.int64).copy()
    negative = high < 0
    low[negative] = np.uint64(0) - low[negative]
    high[negative] = ~high[negative] + (low[negative] == 0)
    size = np.ldexp(high.astype(float), 64) + low.astype(float)
    return np.ldexp(np.where(negative, -size, size), -BITS)


def added(one: Words, other: Words) -> Words:
    """The sums of numbers, carries included."""
    total = one + other
    total[1::2] += total[::2] < one[::2]
    return total


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
