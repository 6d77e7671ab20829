"""The masks of a round: words of the key stream, added and subtracted modulo 2^64."""

from __future__ import annotations

import hashlib

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
