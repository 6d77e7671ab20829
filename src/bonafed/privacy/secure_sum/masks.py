"""The masks of a round: words of the key stream, added and subtracted modulo 2^64.

Numbers of 128 bits, as pairs of words: the lower word first, two's complement, modulo 2^128.

A double travels as a multiple of 2^-63. That is finer than any double of order one, and leaves room
up to 2^62, so that nobody has to choose a step.
"""

from __future__ import annotations

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
def add(total, keys, signs):
    """Add to total (D,) uint64 the streams 0 of the keys (m, 8), or subtract: signs (m,) +1, -1."""
    stream = np.empty(_TILE, np.uint64)
    for at in range(0, len(total), _TILE):
        part = total[at : at + _TILE]
        size = -(-len(part) // keystream.BATCH) * keystream.BATCH
        for i in range(len(keys)):
            keystream.fill(keys[i], np.uint64(0), np.uint64(at // keystream.BLOCK), stream[:size])
            if signs[i] > 0:
                for j in range(len(part)):
                    part[j] += stream[j]
            elif signs[i] < 0:
                for j in range(len(part)):
                    part[j] -= stream[j]


# Numbers of 128 bits, as pairs of words: the lower word first, two's complement, modulo 2^128.

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
    shifted = np.stack([(units & 1).astype(np.uint64) << np.uint64(BITS), _bits(units >> 1)], 1)
    return added(shifted.ravel(), of_whole(rest))


def of_whole(values: NDArray[np.int64]) -> Words:
    """The words (2 D,) of whole numbers."""
    flat = values.ravel()
    return np.stack([_bits(flat), _bits(-(flat < 0).astype(np.int64))], 1).ravel()


def numbers_of(words: Words) -> NDArray[np.float64]:
    """The real numbers that words stand for."""
    return np.ldexp(_doubles(words), -BITS)


def _doubles(words: Words) -> NDArray[np.float64]:
    low, high = words[::2].copy(), words[1::2].view(np.int64).copy()
    negative = high < 0
    low[negative] = np.uint64(0) - low[negative]
    high[negative] = ~high[negative] + (low[negative] == 0)
    size = np.ldexp(high.astype(float), 64) + low.astype(float)
    return np.where(negative, -size, size)


def _bits(values: NDArray[np.int64]) -> Words:
    return values.astype(np.uint64)


def added(one: Words, other: Words) -> Words:
    """The sums of numbers, carries included."""
    total = one + other
    total[1::2] += total[::2] < one[::2]
    return total


@njit(cache=True, nogil=True)
def add_wide(total, keys, signs):
    """Add to the numbers in total (2 D,) those of the streams 0 of the keys (m, 8), or subtract:
    signs (m,) +1, -1.
    """
    stream = np.empty(_TILE, np.uint64)
    one, none = np.uint64(1), np.uint64(0)
    for at in range(0, len(total), _TILE):
        part = total[at : at + _TILE]
        size = -(-len(part) // keystream.BATCH) * keystream.BATCH
        for i in range(len(keys)):
            keystream.fill(keys[i], np.uint64(0), np.uint64(at // keystream.BLOCK), stream[:size])
            if signs[i] > 0:
                for j in range(0, len(part), 2):
                    low = part[j] + stream[j]
                    part[j + 1] += stream[j + 1] + (one if low < part[j] else none)
                    part[j] = low
            elif signs[i] < 0:
                for j in range(0, len(part), 2):
                    low = part[j] - stream[j]
                    part[j + 1] -= stream[j + 1] + (one if low > part[j] else none)
                    part[j] = low
