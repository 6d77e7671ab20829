"""Exact discrete Gaussian and discrete Laplace numbers from a secret key.

The discrete Gaussian of variance parameter sigma^2 has, for every integer x,

    P(x) proportional to exp(-x^2 / (2 sigma^2)),

and the discrete Laplace of scale t has exp(-|x| / t) (Canonne, Kamath, Steinke 2020). Privacy that
is proved for these distributions holds on a computer only if the sampler has them exactly. This one
has, if the words of the key stream are uniform and independent.

**Rejection from a staircase.** Let g(y) be the density above for y >= 0, without its constant. It
falls. The integers y >= 0 are cut into 1,024 steps of width B = 2^b; step k has a whole height e_k
>= c max g over its integers, for a whole number c, and the heights sum to 2^24. One word of 64 bits
is one proposal,

    10 bits  a column      } step k with probability e_k / 2^24, exactly: Walker's alias method
    14 bits  a threshold   } with integer thresholds
     1 bit   the sign
     b bits  the place in the step, so y = k B + place
    39 - b   the first bits of a uniform number U,

and y is accepted where U < c g(y) / e_k. Each sign of y has the same chance; 0 would have both, so
-0 is refused (for B = 1, where that would be often, g(0) is halved instead). The last step is open:
with g_i = c g(y + i B) / e_k, the number is y + i B where g_0 + ... + g_(i-1) <= U < g_0 + ... +
g_i, and its height is at least c times the sum of all those g.

**The comparison** is the only place where irrational numbers occur. Integers (``quick``) that are
proved to be low enough for a whole step decide most proposals. Otherwise the right side is computed
in doubles to within a proved ``MARGIN`` (see there); a proposal within the margin has more bits of
U, from a separate stream, and one that 53 more bits do not decide is decided in Python, by
integers that enclose the exponential and as many bits as that takes. Every proposal of the last
step is decided there. So which proposal is accepted depends on the words only, never on the
margin, the rounding of a machine or a mathematical library: the same key gives the same numbers
everywhere. Reading more or fewer bits of U moves no other word.

Time is not hidden: it depends on how many proposals are refused and on which entries of tables are
in the processor's cache.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Rational
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.privacy import keystream
from bonafed.privacy.keystream import BATCH, BLOCK

Kind = Literal["gaussian", "laplace"]
Integers = NDArray[np.int64]

# every so many numbers start a stream of their own, so parts are made in any order and in threads
PART = 4096

SMALLEST, LARGEST = Fraction(1, 2), Fraction(2**40)  # the scale: sigma or t
STEPS = 1024
_THRESHOLD = 14
_ONE = 1 << _THRESHOLD  # what a column of the alias method holds
_REST = 64 - 10 - _THRESHOLD  # bits of a proposal below its column and threshold
_LAST = STEPS - 1
# All that a proposal looks up for its column is one number of 63 bits, from the lowest: the step
# beyond the threshold (10 bits), that step's ``quick`` (19), that of the column's own step (19) and
# the threshold (15).
_STEP, _QUICK = 10, 19
_OWN = _QUICK + _STEP
_TILE = 4 * BATCH  # words that are decoded together, in the fastest cache
# A part's stream has its number; word i of the stream that lies m times so far off continues, for
# the m-th time, the number U of the proposal at word i.
_FURTHER = 1 << 48
_BITS = 160  # of the enclosures from which the tables are made

# All closed steps together reach at least so many scales, and less than twice as many if B > 1.
_REACH = {"gaussian": 8, "laplace": 20}
# In the last step, g falls by a factor of at most exp(-x) from y to y + B, where x = 20 / 1024 for
# Laplace and (2 k + 1) B^2 / (2 sigma^2) >= 2047 (8 / 1024)^2 / 2 > 1 / 17 for the Gaussian; so the
# sum of all g from one on is at most 1 / (1 - exp(-x)) <= 1 + 1 / x <= 53 times that one.
_TAIL = 53

# More than the error of c g(y) / e_k in doubles, which is below 2^-46. It is ratio[k] exp(-d) with
# d = place (slope[k] + place curve). Gaussian: B > 1 means B < sigma / 64, so d < 2045 B^2 / (2
# sigma^2) < 1 / 4; Laplace: d < B / t < 40 / 1024; and B = 1 means d = 0. So the series of exp(-d)
# is cut after d^10 with an error below (1 / 4)^11 / 11! < 2^-47. All else are fewer than 60
# roundings of numbers of at most 1, by at most 2^-53 each. The 53 further bits of U are rounded
# once more. Nothing but sums and products of doubles is used. A compiler that fuses them leaves out
# roundings.
MARGIN = 2.0**-40


class Tables(NamedTuple):
    """What compiled code needs to draw one kind of noise."""

    columns: Integers  # see _STEP
    ratio: NDArray[np.float64]  # of a step: c g / e_k at its first integer
    slope: NDArray[np.float64]
    curve: float
    shift: int  # b
    margin: float


@dataclass(frozen=True, eq=False)
class Sampler:
    """One kind of noise with one parameter, ready to draw: ``sampler`` makes it."""

    kind: Kind
    parameter: Fraction
    scale: int  # c
    heights: tuple[int, ...]
    tables: Tables

    def enclosed(self, y: int, bits: int) -> tuple[int, int]:
        """Integers around 2^bits c g(y)."""
        low, high = _exponential(_exponent(self.kind, self.parameter, y), bits)
        if y == 0 and self.tables.shift == 0:
            low, high = low // 2, -(-high // 2)
        return self.scale * low, self.scale * high

    def decided(self, key: bytes, part: int, index: int) -> int | None:
        """The number of the proposal at a word of a part's stream, None where it is refused."""
        word = int(keystream.words(key, index, 1, part)[0])
        shift, column, bits = self.tables.shift, word >> 54, _REST - 1 - self.tables.shift
        entry = int(self.tables.columns[column])
        step = column if (word >> _REST) % _ONE < entry >> (_OWN + _QUICK) else entry % STEPS
        sign, first = word >> (_REST - 1) & 1, (step << shift) + (word >> bits) % (1 << shift)
        u, times, height = word % (1 << bits), 0, self.heights[step]
        y, low, high = first, 0, 0  # the sum of g up to y lies between low and high
        fine = bits + 64
        while True:
            at_y = self.enclosed(y, fine)
            low, high = low + at_y[0], high + at_y[1]
            if (u + 1) * height << (fine - bits) <= low:
                if y == 0 and sign and shift:
                    return None
                return -y if sign else y
            if u * height << (fine - bits) < high:  # the bits of U at hand do not decide
                times, bits = times + 1, bits + 64
                u = u << 64 | int(keystream.words(key, index, 1, part + times * _FURTHER)[0])
                y, low, high, fine = first, 0, 0, bits + 64
                continue
            if step < _LAST:
                return None
            y += 1 << shift
            if u * height << (fine - bits) >= high + _TAIL * self.enclosed(y, fine)[1]:
                return None


def discrete_noise(kind: Kind, parameter: int | Fraction, key: bytes, size: int) -> Integers:
    """Independent exact discrete Gaussian or discrete Laplace numbers (size,).

    Parameters
    ----------
    kind
        "gaussian" for P(x) proportional to exp(-x^2 / (2 sigma^2)) on the integers, "laplace" for
        exp(-|x| / t).
    parameter
        The Gaussian's sigma^2 or the Laplace's t, an integer or a fraction. A float is refused: it
        is seldom the number that was meant. sigma and t lie between 0.5 and 2^40.
    key
        32 secret random bytes. A key serves one call only: the same key gives the same numbers, and
        shorter noise is the start of longer.
    size
        How many numbers.

    Returns
    -------
    Integers
        The numbers, which have the distribution exactly if the key stream of ChaCha20 is uniform.

    Raises
    ------
    TypeError
        If the parameter is neither an integer nor a fraction, or the key is not of type bytes.
    ValueError
        If the kind is unknown, the scale is out of its range, the key has not 32 bytes or the size
        is negative.

    Notes
    -----
    The discrete Gaussian is that of Canonne, Kamath and Steinke (2020), "The discrete Gaussian for
    differential privacy"; the sampler is another, see the head of this module.
    """
    if size < 0:
        raise ValueError(f"size must be at least 0, got {size}.")
    out = np.zeros(size, np.int64)
    add_noise(kind, parameter, key, out)
    return out


def add_noise(kind: Kind, parameter: int | Fraction, key: bytes, out: Integers) -> None:
    """Add to out (n,) the numbers that ``discrete_noise`` returns."""
    made, words = sampler(kind, parameter), keystream.key_words(key)
    finish(made, key, 0, out, add(made.tables, words, 0, out))


@lru_cache(maxsize=64, typed=True)  # fractions are slow to make and to compare
def sampler(kind: Kind, parameter: int | Fraction) -> Sampler:
    """The tables of one kind of noise, kept for further calls; see ``discrete_noise``."""
    if kind not in _REACH:
        raise ValueError(f"kind must be 'gaussian' or 'laplace', got {kind!r}.")
    name, power = ("sigma^2", 2) if kind == "gaussian" else ("t", 1)
    if isinstance(parameter, bool) or not isinstance(parameter, Rational):
        raise TypeError(
            f"{name} must be an int or a fractions.Fraction, got {parameter!r}. "
            f"Write the number that is meant, such as Fraction(5, 2) or Fraction('2.5')."
        )
    exact = Fraction(int(parameter.numerator), int(parameter.denominator))  # of NumPy's integers
    if not SMALLEST**power <= exact <= LARGEST**power:
        given = f"{float(exact):.6g}" if abs(exact) < 2**1000 else "a far larger number"
        raise ValueError(
            f"{name} must lie between {SMALLEST**power} and 2^{40 * power}, got {given}. "
            "Choose another unit for the integers to which the noise is added."
        )
    return _prepared(kind, exact)


def finish(made: Sampler, key: bytes, first: int, out: Integers, left: Integers) -> None:
    """Add the numbers that ``add`` left out, given what it returned; it is rarely any."""
    if left[:, 0].sum() == len(out):
        return
    words = keystream.key_words(key)
    for i in np.flatnonzero(left[:, 0] < np.minimum(PART, len(out) - PART * np.arange(len(left)))):
        part, numbers = first // PART + int(i), out[PART * i : PART * (i + 1)]
        j, index = int(left[i, 0]), int(left[i, 1])
        while j < len(numbers):
            if (number := made.decided(key, part, index)) is not None:
                numbers[j] += number
                j += 1
            j, index = draw(made.tables, words, part, numbers, j, index + 1)


@njit(cache=True, nogil=True)
def add(tables, key, first, out):
    """Add noise to out (n,) of int64, which starts at entry ``first``, a multiple of PART, of all.

    ``key`` is what ``keystream.key_words`` returns. Returns, of every part of PART entries, how
    many of its numbers were added, and the word at which ``finish`` goes on if they are not all.
    """
    if first < 0 or first % PART:
        raise ValueError("first must be a multiple of PART: parts have their own streams.")
    none = np.int64(0)  # a literal would compile ``draw`` twice
    parts = (len(out) + PART - 1) // PART
    left = np.empty((parts, 2), np.int64)
    for i in range(parts):
        numbers = out[PART * i : PART * (i + 1)]
        left[i, 0], left[i, 1] = draw(tables, key, first // PART + i, numbers, none, none)
    return left


@njit(cache=True, nogil=True, error_model="numpy")
def draw(tables, key, part, out, j, index):
    """Add the numbers j, j + 1, ... of a part to out, from word ``index`` of its stream on.

    Returns the next number and word. If the number is not len(out), that word is a proposal that
    doubles do not decide.

    The proposals of a tile of words are decoded before a number is taken. Nearly all are accepted,
    so the numbers between two that are not are added by vector instructions.
    """
    shift, margin = tables.shift, tables.margin
    unit = 1.0 / np.float64(1 << np.int64(_REST - 1 - shift))  # exact
    words, size, at = np.empty(_TILE, np.uint64), 0, 0
    numbers = np.empty(_TILE, np.int64)
    stops, gaps, stop = np.empty(2 * _TILE, np.int64), np.empty(_TILE), 0
    further, start = np.empty(BATCH, np.uint64), -BATCH
    while j < len(out):
        if at == size:  # the next word is made
            index += at
            at = index % BLOCK
            index -= at
            size = BATCH * min(_TILE // BATCH, (len(out) - j + BATCH - 1) // BATCH)
            keystream.fill(key, np.uint64(part), np.uint64(index // BLOCK), words[:size])
            _propose(tables, words[:size], numbers, stops, gaps)
            stop = 0
            while stops[stop] < at:
                stop += 1
        run = min(stops[stop] - at, len(out) - j)
        sums, terms = out[j : j + run], numbers[at : at + run]
        for i in range(run):
            sums[i] += terms[i]
        at, j = at + run, j + run
        if at == size or j == len(out):
            continue
        gap = gaps[stop]
        if gap < margin:
            if abs(numbers[at]) >> shift == _LAST:
                return j, index + at
            if not start <= index + at < start + BATCH:
                start = index + at // BATCH * BATCH
                stream = np.uint64(part + _FURTHER)
                keystream.fill(key, stream, np.uint64(start // BLOCK), further)
            word = further[index + at - start]
            gap += unit * (2.0**-53 * np.float64(np.int64(word >> np.uint64(11))))
            if -margin < gap < margin:
                return j, index + at
            if gap < margin:
                out[j] += numbers[at]
                j += 1
        at, stop = at + 1, stop + 1
    return j, index + at


@njit(cache=True, nogil=True, error_model="numpy")
def _propose(tables, words, numbers, stops, gaps):
    """Write the number that each word proposes, and list the proposals that doubles do not accept.

    ``stops`` (2 _TILE,) are their places, with len(words) behind the last; ``gaps`` say how far U
    is above the right side: infinitely for -0, and 0 in the last step, which doubles never decide.

    The look-ups have a separate loop because compilers make no vector instructions of a loop
    with look-ups. The loops behind make their lists without branches: a processor would often guess
    these wrong, which takes longer than the work that they save.
    """
    columns, ratio, slope, curve, shift, margin = tables
    shift, bits = np.int64(shift), np.int64(_REST - 1 - shift)
    places, firsts, whole = (1 << shift) - 1, (1 << bits) - 1, np.int64(shift == 0)
    unit, cut = 1.0 / np.float64(1 << bits), max(0, bits - _QUICK)
    doubtful = np.empty(len(words), np.uint8)
    for i in range(len(words)):
        numbers[i] = columns[words[i] >> np.uint64(_REST + _THRESHOLD)]
    for i in range(len(words)):
        column, rest = np.int64(words[i] >> np.uint64(_REST + _THRESHOLD)), np.int64(words[i])
        entry = numbers[i]
        own = (rest >> _REST) & (_ONE - 1) < entry >> (_OWN + _QUICK)
        k = column if own else entry & _LAST
        quick = (entry >> _OWN if own else entry >> _STEP) & ((1 << _QUICK) - 1)
        y, sign = (k << shift) + ((rest >> bits) & places), (rest >> (_REST - 1)) & 1
        numbers[i] = (y ^ -sign) + sign
        minus = np.uint8((y | (1 - sign) | whole) == 0)  # -0
        doubtful[i] = np.uint8((rest & firsts) >> cut >= quick) | minus + minus
    eights, found, count, kept = doubtful.view(np.uint64), 0, 0, 0
    some = stops[_TILE:]  # eights with a doubtful proposal
    for i in range(len(eights)):
        some[found] = 8 * i
        found += np.int64(eights[i] != 0)
    for n in range(found):
        for i in range(some[n], some[n] + 8):
            stops[count] = i
            count += np.int64(doubtful[i] != 0)
    for n in range(count):
        i = stops[n]
        y, u = abs(numbers[i]), np.int64(words[i]) & firsts
        k = y >> shift
        gap = u * unit - _right(ratio[k], slope[k], curve, y & places)
        if doubtful[i] > 1:
            gap = np.inf
        if k == _LAST:
            gap = 0.0
        stops[kept], gaps[kept] = i, gap
        kept += np.int64(gap + unit > -margin)
    stops[kept] = len(words)


@njit(inline="always")
def _right(ratio, slope, curve, place):
    """c g(y) / e_k in doubles, see MARGIN."""
    d = place * (slope + place * curve)
    series = 1.0
    for i in range(10, 0, -1):
        series = 1.0 - d * (1.0 / i) * series
    return ratio * series


@lru_cache(maxsize=64)
def _prepared(kind: Kind, parameter: Fraction) -> Sampler:
    """The tables, in integers: they are the same on every machine."""
    power = 2 if kind == "gaussian" else 1
    shift, reach = 0, _REACH[kind] ** power * parameter
    while (STEPS << shift) ** power < reach:
        shift += 1
    width = 1 << shift

    # g(k B) for k = 0 .. STEPS: g((k + 1) B) / g(k B) is g(B), the Gaussian's g(B)^(2 k + 1)
    factor = base = _exponential(_exponent(kind, parameter, width), _BITS)
    g = [(1 << _BITS, 1 << _BITS)]
    for _ in range(STEPS):
        g.append(_product(g[-1], factor))
        if kind == "gaussian":
            factor = _product(_product(factor, base), base)
    after = g[:STEPS] if shift == 0 else g[1:]  # at most g of a step's last integer
    if shift == 0:
        g[0] = after[0] = (1 << (_BITS - 1), 1 << (_BITS - 1))

    upper = [high for _, high in g[:_LAST]] + [_TAIL * g[_LAST][1]]
    scale = ((STEPS * _ONE - STEPS) << _BITS) // sum(upper)
    heights = [-(-scale * high >> _BITS) for high in upper]
    heights[0] += STEPS * _ONE - sum(heights)

    bits = min(_REST - 1 - shift, _QUICK)
    lows = ((low, e) for (low, _), e in zip(after, heights, strict=True))
    quick = [min((scale * low << bits) // (e << _BITS), (1 << _QUICK) - 1) for low, e in lows]
    quick[_LAST] = 0  # so that each of its proposals is decided in Python
    columns = [
        ((threshold << _QUICK | own) << _QUICK | quick[other]) << _STEP | other
        for own, (threshold, other) in zip(quick, _aliases(heights), strict=True)
    ]
    ratio = [scale * low / (e << _BITS) for (low, _), e in zip(g, heights, strict=False)]
    slope, curve = [float(1 / parameter)] * STEPS, 0.0
    if kind == "gaussian":
        curve = float(1 / (2 * parameter))
        slope = [float(k * width / parameter) for k in range(STEPS)]
    arrays = np.array(columns, np.int64), np.array(ratio), np.array(slope)
    for array in arrays:  # nobody can change what all who draw this noise share
        array.flags.writeable = False
    return Sampler(kind, parameter, scale, tuple(heights), Tables(*arrays, curve, shift, MARGIN))


def _aliases(heights: list[int]) -> list[tuple[int, int]]:
    """The threshold of every column and the step beyond it, whose column is another.

    It is Walker's alias method (1977) for integer heights that sum to STEPS 2^14: nothing is
    rounded.
    """
    threshold, other, left = [_ONE] * STEPS, list(range(STEPS)), list(heights)
    small = [k for k in range(STEPS) if left[k] < _ONE]
    large = [k for k in range(STEPS) if left[k] >= _ONE]
    while small:
        poor, rich = small.pop(), large[-1]
        threshold[poor], other[poor] = left[poor], rich
        left[rich] -= _ONE - left[poor]
        if left[rich] < _ONE:
            small.append(large.pop())
    return list(zip(threshold, other, strict=True))


def _exponent(kind: Kind, parameter: Fraction, y: int) -> Fraction:
    """-log g(y)."""
    return y * y / (2 * parameter) if kind == "gaussian" else y / parameter


def _exponential(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers around 2^bits exp(-x), x >= 0.

    x is halved until it is at most 1 / 2, exp of that is enclosed by its series, and 1 / exp is
    squared as often; every step rounds the lower end down and the upper end up.
    """
    halvings = (2 * x.numerator // x.denominator).bit_length()
    fine = bits + halvings + 32
    low = (x.numerator << fine) // (x.denominator << halvings)
    low_term = high_term = low_sum = high_sum = 1 << fine
    i = 0
    while high_term > 1:
        i += 1
        low_term = low_term * low // (i << fine)
        high_term = -(-high_term * (low + 1) // (i << fine))
        low_sum, high_sum = low_sum + low_term, high_sum + high_term
    high_sum += high_term  # the terms at least halve, so all that follow are at most the last
    inverse = (1 << 2 * fine) // high_sum, -(-(1 << 2 * fine) // low_sum)
    for _ in range(halvings):
        inverse = inverse[0] ** 2 >> fine, -(-(inverse[1] ** 2) >> fine)
    return inverse[0] >> (fine - bits), -(-inverse[1] >> (fine - bits))


def _product(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """The product of two enclosures of _BITS bits."""
    return a[0] * b[0] >> _BITS, -(-a[1] * b[1] >> _BITS)
