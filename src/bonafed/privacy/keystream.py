"""The key stream of ChaCha20: words that nobody without the key can tell from random ones.

The block function is that of RFC 8439, section 2.3 (Nir, Langley 2018). As in the cipher's first
form (Bernstein 2008), the state's last four words are a counter of 64 bits and the number of a
stream of 64 bits, where the RFC has 32 bits and a nonce of 96; the first 256 GiB are the same. So
every key has 2^64 streams, no two of which share a block, and any word of any stream is made
without those before it.

The function reads no table and has no branch, so its time does not depend on the key.

Poisson sampling takes each row independently, with one probability, by a secret coin. Whether a row
is taken must not be known, and must not depend on which other rows there are: then a row that takes
part seldom is protected by less noise (docs/private.md, "Sampling").
"""

import math
from fractions import Fraction

import numpy as np
from numba import njit
from numpy.typing import NDArray

KEY_BYTES = 32
BLOCK = 8  # words of 64 bits that one call of the block function makes
LANES = 32  # blocks made at once: loops over them become vector instructions of any width
BATCH = BLOCK * LANES

_HALF = np.uint64(32)
_CONSTANTS = np.frombuffer(b"expand 32-byte k", "<u4").astype(np.uint32)


def key_words(key: bytes) -> NDArray[np.uint32]:
    """The eight words of a key of 32 bytes; anything else is refused."""
    if not isinstance(key, bytes):
        raise TypeError(
            f"a key must be {KEY_BYTES} bytes, got {type(key).__name__}. "
            f"Draw one with secrets.token_bytes({KEY_BYTES})."
        )
    if len(key) != KEY_BYTES:  # the message must not show a part of a key
        raise ValueError(
            f"a key must have {KEY_BYTES} bytes, got {len(key)}. "
            f"Draw one with secrets.token_bytes({KEY_BYTES})."
        )
    return np.frombuffer(key, "<u4").astype(np.uint32)


def words(key: bytes, first: int, count: int, stream: int = 0) -> NDArray[np.uint64]:
    """``count`` words (count,) of a stream of the key, from word ``first`` on.

    Their bytes, the lowest first, are those of the RFC. ``first`` is at most 2^67 - count.
    """
    block, skipped = divmod(first, BLOCK)
    out = np.empty(-(-(skipped + count) // BATCH) * BATCH, np.uint64)
    fill(key_words(key), np.uint64(stream), np.uint64(block), out)
    return out[skipped : skipped + count]


@njit(inline="always")
def _rotated(x, left):
    return np.uint32(np.uint32(x << np.uint32(left)) | np.uint32(x >> np.uint32(32 - left)))


@njit(inline="always")
def _quarter(a, b, c, d):
    """The quarter round; sums are cut to 32 bits."""
    a = np.uint32(a + b)
    d = _rotated(np.uint32(d ^ a), 16)
    c = np.uint32(c + d)
    b = _rotated(np.uint32(b ^ c), 12)
    a = np.uint32(a + b)
    d = _rotated(np.uint32(d ^ a), 8)
    c = np.uint32(c + d)
    b = _rotated(np.uint32(b ^ c), 7)
    return a, b, c, d


@njit(cache=True, nogil=True)
def _rounds(x):
    """Ten double rounds of every lane of the states x (16 LANES,), word by word.

    One array of one axis, because a compiler that sees several looks at run time whether they
    overlap, which takes as long as the rounds.
    """
    for _ in range(10):
        for j in range(LANES):
            a0, a1, a2, a3 = x[j], x[LANES + j], x[2 * LANES + j], x[3 * LANES + j]
            b0, b1, b2, b3 = x[4 * LANES + j], x[5 * LANES + j], x[6 * LANES + j], x[7 * LANES + j]
            c0, c1 = x[8 * LANES + j], x[9 * LANES + j]
            c2, c3 = x[10 * LANES + j], x[11 * LANES + j]
            d0, d1 = x[12 * LANES + j], x[13 * LANES + j]
            d2, d3 = x[14 * LANES + j], x[15 * LANES + j]
            a0, b0, c0, d0 = _quarter(a0, b0, c0, d0)
            a1, b1, c1, d1 = _quarter(a1, b1, c1, d1)
            a2, b2, c2, d2 = _quarter(a2, b2, c2, d2)
            a3, b3, c3, d3 = _quarter(a3, b3, c3, d3)
            a0, b1, c2, d3 = _quarter(a0, b1, c2, d3)
            a1, b2, c3, d0 = _quarter(a1, b2, c3, d0)
            a2, b3, c0, d1 = _quarter(a2, b3, c0, d1)
            a3, b0, c1, d2 = _quarter(a3, b0, c1, d2)
            x[j], x[LANES + j], x[2 * LANES + j], x[3 * LANES + j] = a0, a1, a2, a3
            x[4 * LANES + j], x[5 * LANES + j], x[6 * LANES + j], x[7 * LANES + j] = b0, b1, b2, b3
            x[8 * LANES + j], x[9 * LANES + j] = c0, c1
            x[10 * LANES + j], x[11 * LANES + j] = c2, c3
            x[12 * LANES + j], x[13 * LANES + j] = d0, d1
            x[14 * LANES + j], x[15 * LANES + j] = d2, d3


@njit(cache=True, nogil=True)
def fill(key, stream, block, out):
    """Write words of a stream into out (n,), n a multiple of BATCH, from block ``block`` on.

    ``key`` (8,) is what ``key_words`` returns; ``stream`` and ``block`` are uint64.
    """
    _fill(key, stream, block, out, np.empty(16 * LANES, np.uint32), np.zeros(16, np.uint32))


@njit(cache=True, nogil=True)
def _fill(key, stream, block, out, x, start):
    """The same beside space for the states and for the first state."""
    lanes = len(x) // 16  # LANES, which compilers must not know: they turn the loops inside out
    for i in range(4):
        start[i] = _CONSTANTS[i]
    for i in range(8):
        start[4 + i] = key[i]
    start[14], start[15] = np.uint32(stream), np.uint32(stream >> _HALF)
    for at in range(0, len(out), BATCH):
        first = block + np.uint64(at // BLOCK)
        for i in range(16):
            word = start[i]
            for j in range(lanes):
                x[i * LANES + j] = word
        _count(x, first)
        _rounds(x)
        for i in range(16):
            word = start[i]
            for j in range(lanes):
                x[i * LANES + j] += word
        _count(x, first)
        _turn(x, out[at : at + BATCH])


@njit(cache=True, nogil=True)
def _count(x, first):
    """Add to every lane of the states its block's number, ``first`` in lane 0."""
    for j in range(LANES):
        counter = first + np.uint64(j)
        x[12 * LANES + j] += np.uint32(counter)
        x[13 * LANES + j] += np.uint32(counter >> _HALF)


@njit(cache=True, nogil=True)
def _turn(x, out):
    """Write the states x into out (BATCH,), block after block."""
    for i in range(BLOCK):
        for j in range(LANES):
            high = np.uint64(x[(2 * i + 1) * LANES + j]) << _HALF
            out[BLOCK * j + i] = np.uint64(x[2 * i * LANES + j]) | high


def taken(key: bytes, rows: int, probability: float) -> NDArray[np.intp]:
    """The positions of the rows that are taken, in their order.

    Row i is taken where the i-th word of the key stream, of 64 bits, is below probability 2^64, cut
    to a whole number. So its probability is exactly a multiple of 2^-64, and no more than the one
    that is accounted for.

    Examples
    --------
    >>> from bonafed.privacy.keystream import taken
    >>> len(taken(bytes(32), 10_000, 0.1))
    974
    """
    if probability >= 1:
        return np.arange(rows)
    below = math.floor(Fraction(probability) * 2**64)
    return np.flatnonzero(words(key, 0, rows) < np.uint64(below))
