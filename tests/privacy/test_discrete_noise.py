"""Discrete Gaussian and Laplace numbers: tables, decisions and the numbers against exact laws."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from bonafed.privacy import discrete_noise as module
from bonafed.privacy import keystream
from bonafed.privacy.discrete_noise import (
    MARGIN,
    PART,
    STEPS,
    Sampler,
    Tables,
    add,
    discrete_noise,
    draw,
    finish,
    sampler,
)

N = 200_000
SMALL = [Fraction(1, 2), 1, 3, 5, 20]
LARGE = [100, 1000, 3 * 10**5 + Fraction(1, 3), 2**17 * 40, 2**24 * 40, 2**40]
ALL = [(kind, scale) for kind in ("gaussian", "laplace") for scale in [*SMALL, *LARGE]]
COLUMN, REST = 54, 40  # how far a proposal's column and threshold are shifted


def key(number: int = 0) -> bytes:
    return number.to_bytes(32, "big")


def parameter(kind: str, scale: Fraction | int) -> Fraction:
    return Fraction(scale) ** 2 if kind == "gaussian" else Fraction(scale)


def made(kind: str, scale: Fraction | int, size: int = N, number: int = 0) -> np.ndarray:
    return discrete_noise(kind, parameter(kind, scale), key(number), size)


def fields(tables: Tables) -> tuple[np.ndarray, ...]:
    """Of all columns: threshold, ``quick`` of both steps, and the step beyond the threshold."""
    columns, most = tables.columns, (1 << module._QUICK) - 1
    quick = columns >> module._OWN & most, columns >> module._STEP & most
    return columns >> (module._OWN + module._QUICK), *quick, columns & (STEPS - 1)


def slow(noise: Sampler, part: int, j: int, index: int, size: int) -> tuple[list[int], int]:
    """The numbers j to size of a part and the word behind them, word by word and in integers."""
    numbers = []
    while j + len(numbers) < size:
        number = noise.decided(key(), part, index)
        numbers, index = numbers + [number] * (number is not None), index + 1
    return numbers, index


def density(kind: str, scale: Fraction | int, y: int) -> Decimal:
    """g(y) to 90 digits, by another library."""
    x = Fraction(y) / scale if kind == "laplace" else Fraction(y) ** 2 / (2 * Fraction(scale) ** 2)
    with localcontext(prec=90):
        return (-Decimal(x.numerator) / Decimal(x.denominator)).exp()


def exact(kind: str, scale: Fraction | int) -> tuple[np.ndarray, np.ndarray]:
    """The integers that have a noticeable probability, and these."""
    last = math.ceil((9 if kind == "gaussian" else 40) * scale)
    x = np.arange(-last, last + 1)
    half = np.array([float(density(kind, scale, y)) for y in range(last + 1)])
    return x, half[abs(x)] / (2 * half.sum() - 1)


def beyond(kind: str, scale: Fraction | int, x: np.ndarray) -> np.ndarray:
    """P(X > x) at integers x. The Gaussian's is that of real numbers, for large scales."""
    if kind == "gaussian":
        return stats.norm.sf((x + 0.5) / float(scale))
    q = math.exp(-1 / scale)
    high = np.exp(-(np.maximum(x, 0) + 1) / float(scale)) / (1 + q)
    low = np.exp(-np.maximum(-x, 0) / float(scale)) / (1 + q)
    return np.where(x >= 0, high, 1 - low)


def same_law(seen: np.ndarray, probability: np.ndarray) -> float:
    """The p value of Pearson's test; cells of fewer than 10 expected are taken together."""
    expected = probability * seen.sum()
    often = expected >= 10
    seen = np.append(seen[often], seen[~often].sum())
    expected = np.append(expected[often], expected[~often].sum())
    if expected[-1] < 10:
        seen, expected = seen[:-1], expected[:-1] * seen[:-1].sum() / expected[:-1].sum()
    return stats.chisquare(seen, expected, sum_check=False).pvalue


# ------------------------------------------------------------------------------------ the numbers


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", SMALL)
def test_every_integer_is_as_frequent_as_it_should_be(kind, scale):
    x, probability = exact(kind, scale)
    numbers = made(kind, scale)
    assert abs(numbers).max() <= x[-1]
    seen = np.bincount(numbers - x[0], minlength=len(x))
    assert same_law(seen, probability) > 1e-3
    for value in (-1, 0, 1):  # a wrong treatment of 0 would show here
        test = stats.binomtest(int(seen[value - x[0]]), N, probability[value - x[0]])
        assert test.pvalue > 1e-3


@pytest.mark.parametrize(("kind", "scale"), [(k, s) for k, s in ALL if s >= 100])
def test_cells_tails_and_low_bits_at_large_scales(kind, scale):
    numbers = made(kind, scale)
    edges = np.round(np.linspace(-6, 6, 121) * float(scale)).astype(np.int64)
    probability = -np.diff(np.r_[1, beyond(kind, scale, edges), 0])
    seen = np.diff(np.r_[0, np.searchsorted(np.sort(numbers), edges, "right"), N])
    assert same_law(seen, probability) > 1e-3
    for far in (3, 4, 8):  # in scales: 0.3 % to 6e-15 of the Gaussian's numbers
        x = np.array(int(far * scale))
        share = 2 * float(beyond(kind, scale, x))
        assert stats.binomtest(int((abs(numbers) > x).sum()), N, share).pvalue > 1e-3
    low = np.bincount(numbers % 16, minlength=16)
    assert stats.chisquare(low).pvalue > 1e-3


@pytest.mark.parametrize("scale", [10**3, 10**4, 10**5, 10**6])
def test_the_variance_lies_within_exact_limits(scale):
    """A sum of squares of real Gaussians is chi-squared; the discrete ones differ by exp(-19 s^2).

    The sum of |x| / t of real Laplace numbers has a gamma law; the discrete one's mean differs by
    less than 1 / (6 t^2), far below the limits' width.
    """
    squares = (made("gaussian", scale) / scale) ** 2
    sizes = abs(made("laplace", scale)) / scale
    for total, law in [(squares.sum(), stats.chi2(N)), (sizes.sum(), stats.gamma(N))]:
        assert law.ppf(1e-3) < total < law.isf(1e-3)


@pytest.mark.parametrize(("kind", "scale"), ALL)
def test_both_signs_are_alike(kind, scale):
    numbers = made(kind, scale)
    above, below = int((numbers > 0).sum()), int((numbers < 0).sum())
    assert stats.binomtest(above, above + below).pvalue > 1e-3
    both = np.sort(abs(numbers[numbers > 0])), np.sort(abs(numbers[numbers < 0]))
    assert stats.ks_2samp(*both).pvalue > 1e-3


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [5, 1000])
def test_numbers_keys_and_parts_are_independent(kind, scale):
    x, y = made(kind, scale), made(kind, scale, number=1)
    for a, b in [(x, y), (x[:-1], x[1:]), (x[:-PART], x[PART:]), (x[:-1], y[1:])]:
        for power in (1, 2):
            both = stats.pearsonr(a.astype(float) ** power, b.astype(float) ** power)
            assert abs(both.statistic) < 4 / math.sqrt(len(a))


def test_a_change_of_one_bit_of_the_key_changes_everything():
    numbers = made("gaussian", 2**20, 100)
    for bit in range(256):
        other = discrete_noise("gaussian", 2**40, key(1 << bit), 100)
        assert (other == numbers).sum() <= 1


# ------------------------------------------------------------------- where, by whom, how many


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, PART - 1, PART, PART + 1])
def test_shorter_noise_is_the_start_of_longer_and_the_same_again(size):
    whole = made("gaussian", 50, 3 * PART)
    np.testing.assert_array_equal(made("gaussian", 50, size), whole[:size])
    np.testing.assert_array_equal(made("gaussian", 50, 3 * PART), whole)
    assert whole.dtype == np.int64


def test_parts_are_added_in_any_order_and_in_threads():
    size = 5 * PART + 17
    noise, words = sampler("laplace", 40), keystream.key_words(key(3))
    start = np.arange(size)
    out = start.copy()

    def one(first: int) -> None:
        piece = out[first : first + 2 * PART]
        finish(noise, key(3), first, piece, add(noise.tables, words, first, piece))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, reversed(range(0, size, 2 * PART))))
    np.testing.assert_array_equal(out - start, discrete_noise("laplace", 40, key(3), size))


def test_noise_that_starts_within_a_part_is_refused():
    noise, words = sampler("laplace", 40), keystream.key_words(key())
    for first in (1, PART - 1, -PART):
        with pytest.raises(ValueError, match="multiple of PART"):
            add(noise.tables, words, first, np.zeros(10, np.int64))


# -------------------------------------------------------------------- how proposals are decided


@pytest.mark.parametrize(("kind", "scale"), ALL)
@pytest.mark.parametrize("margin", [1e-4, 2.0])
def test_numbers_do_not_depend_on_how_proposals_are_decided(kind, scale, margin):
    """With a margin of 2, integers in Python decide every proposal, and no double does."""
    size = 600 if margin == 2 else 3000  # more than one batch of words
    noise, words = sampler(kind, parameter(kind, scale)), keystream.key_words(key())
    columns = noise.tables.columns & ~(((1 << 2 * module._QUICK) - 1) << module._STEP)
    columns.flags.writeable = False
    careful = replace(noise, tables=noise.tables._replace(columns=columns, margin=margin))
    out = np.zeros(size, np.int64)
    left = add(careful.tables, words, 0, out)
    if margin == 2:
        assert left[0, 0] == 0
        assert left[0, 1] == 0
    finish(careful, key(), 0, out, left)
    np.testing.assert_array_equal(out, made(kind, scale, size))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [Fraction(1, 2), 20, 70, 1000, 2**30, 2**40])
def test_numbers_and_words_are_those_of_a_slow_restatement(kind, scale):
    """At any place in a part, over more than one tile of words where the part is long."""
    noise, words = sampler(kind, parameter(kind, scale)), keystream.key_words(key())
    for part, j, index, size in [(0, 0, 0, 1), (0, 0, 0, 1301), (3, 7, 1021, 300), (9, 5, 8, 261)]:
        out = np.arange(size)
        left = draw(noise.tables, words, part, out, j, index)
        assert left[0] == size  # no proposal within the margin occurs here
        numbers, behind = slow(noise, part, j, index, size)
        assert left[1] == behind
        assert (out - np.arange(size)).tolist() == [0] * j + numbers


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [20, 1000, 2**40])
def test_doubles_decide_no_proposal_of_the_last_step(kind, scale):
    """They are rare, so the tables are changed: each second column has only the last step."""
    noise, words = sampler(kind, parameter(kind, scale)), keystream.key_words(key())
    columns = noise.tables.columns.copy()
    columns[1::2] = STEPS - 1
    columns.flags.writeable = False
    stream = keystream.words(key(), 0, 1000) >> np.uint64(COLUMN)
    where = np.flatnonzero(stream % np.uint64(2))
    out, index = np.zeros(2000, np.int64), 0
    for word in where[:300].tolist():
        _, index = draw(noise.tables._replace(columns=columns), words, 0, out, 0, index)
        assert index == word
        index += 1


@pytest.mark.parametrize(("kind", "scale"), ALL)
def test_doubles_stay_well_within_the_margin(kind, scale):
    """The bound is 2^-46, at the places where the error is largest; the margin is 2^-40."""
    noise = sampler(kind, parameter(kind, scale))
    tables, width = noise.tables, 1 << noise.tables.shift
    rng = np.random.default_rng(0)
    for k in [0, 1, 2, STEPS // 2, STEPS - 3, STEPS - 2, *rng.integers(0, STEPS - 1, 40).tolist()]:
        for place in {0, width // 2, width - 1, int(rng.integers(width))}:
            y = k * width + place
            share = 2 if y == 0 and width == 1 else 1
            true = density(kind, scale, y) * noise.scale / (share * noise.heights[k])
            double = module._right.py_func(tables.ratio[k], tables.slope[k], tables.curve, place)
            assert abs(Decimal(float(double)) - true) < Decimal(2.0**-46)
            assert tables.margin == MARGIN == 2.0**-40


@pytest.mark.parametrize(("kind", "scale"), ALL)
def test_tables_are_exact(kind, scale):
    noise = sampler(kind, parameter(kind, scale))
    tables, width = noise.tables, 1 << noise.tables.shift
    assert sum(noise.heights) == STEPS << 14
    # Walker's alias method gives every step its height, without rounding
    mass = np.zeros(STEPS, np.int64)
    threshold, own, beyond, other = fields(tables)
    np.testing.assert_array_equal(beyond, own[other])
    np.add.at(mass, np.arange(STEPS), threshold)
    np.add.at(mass, other, (1 << 14) - threshold)
    assert mass.tolist() == list(noise.heights)
    one = 1 << min(REST - 1 - tables.shift, module._QUICK)
    waste = 0.0
    for k, (height, quick) in enumerate(zip(noise.heights, own.tolist(), strict=True)):
        share = 2 if k == 0 and width == 1 else 1
        first, last = (
            noise.scale * density(kind, scale, y) / share for y in (k * width, (k + 1) * width - 1)
        )
        if k == STEPS - 1:  # and all that are stacked on it
            assert quick == 0
            ratio = density(kind, scale, STEPS * width) / density(kind, scale, k * width)
            assert height >= first / (1 - ratio)
        else:
            assert height >= first
            assert quick <= one * last / height
        waste += float(height - (first + last) / 2)
    assert waste < 0.025 * (STEPS << 14)  # so few proposals are refused, roughly


def test_enclosures_enclose_and_are_narrow():
    for x in (
        Fraction(0),
        Fraction(1, 10**9),
        Fraction(1, 2),
        Fraction(1),
        Fraction(355, 7),
        10**6,
    ):
        for bits in (64, 160, 500):
            low, high = module._exponential(Fraction(x), bits)
            with localcontext(prec=1000, Emin=-(10**9)):
                true = (-Decimal(Fraction(x).numerator) / Fraction(x).denominator).exp() * 2**bits
                assert low <= true <= high
            assert high - low <= 2


def aimed(
    monkeypatch, noise: Sampler, step: int, place: int, sign: int, u: int, words: int
) -> None:
    """Let every proposal have this step, place, sign and U = u / 2^(bits + 64 words)."""
    bits, threshold, column = REST - 1 - noise.tables.shift, 0, step
    thresholds, _, _, other = fields(noise.tables)
    if thresholds[step] == 0:  # this column has nothing of its own step
        column, threshold = int(np.flatnonzero(other == step)[0]), (1 << 14) - 1
    rest = sign << (REST - 1) | place << bits | u >> (64 * words)
    stream = [column << COLUMN | threshold << REST | rest]
    stream += [(u >> (64 * i)) % 2**64 for i in reversed(range(words))]
    monkeypatch.setattr(keystream, "words", lambda key, first, count, at: [stream[at >> 48]])


@pytest.mark.parametrize(
    ("kind", "scale"), [("gaussian", 1000), ("laplace", 1000), ("laplace", 20)]
)
def test_the_last_step_is_open(monkeypatch, kind, scale):
    """Numbers beyond all steps are too rare to wait for: once in 1e15 or 1e8."""
    noise = sampler(kind, parameter(kind, scale))
    width, k = 1 << noise.tables.shift, STEPS - 1
    bits = REST - 1 - noise.tables.shift + 192
    for place in {0, width - 1}:
        total = Decimal(0)
        for i in range(12):
            y = (k + i) * width + place
            with localcontext(prec=90):
                share = density(kind, scale, y) * noise.scale / noise.heights[k]
                inside, total = int((total + share / 2) * 2**bits), total + share
                end = int(total * 2**bits)
            for sign in (1, -1):
                for u, number in [(inside, y), (end - 256, y), (end + 256, y + width)]:
                    aimed(monkeypatch, noise, k, place, int(sign < 0), u, 3)
                    assert noise.decided(key(), 0, 0) == sign * number
        aimed(monkeypatch, noise, k, place, 0, 2**bits - 1, 3)  # above all of them
        assert noise.decided(key(), 0, 0) is None


@pytest.mark.parametrize(("kind", "scale"), [("gaussian", 1000), ("laplace", 2**30)])
def test_many_words_decide_what_few_do_not(monkeypatch, kind, scale):
    """U agrees with the right side in its first 200 bits and is then a little below or above."""
    noise = sampler(kind, parameter(kind, scale))
    width, bits = 1 << noise.tables.shift, REST - 1 - noise.tables.shift
    for k, place in [(0, 1), (3, width - 1), (500, width // 2), (STEPS - 2, 1)]:
        y = k * width + place
        low, high = noise.enclosed(y, 400)
        assert high - low <= 2 * noise.scale
        first = (low << (bits + 256)) // (noise.heights[k] << 400)
        for nudge, number in [(-(2**50), y), (2**50, None)]:
            aimed(monkeypatch, noise, k, place, 0, first + nudge, 4)
            assert noise.decided(key(), 0, 0) == number


def test_minus_zero_is_refused_where_zero_has_both_signs(monkeypatch):
    noise = sampler("gaussian", 10**6)
    for sign, number in [(0, 0), (1, None)]:
        aimed(monkeypatch, noise, 0, 0, sign, 0, 0)
        assert noise.decided(key(), 0, 0) == number


# ----------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_a_parameter_that_is_no_exact_number_is_refused_even_when_its_equal_was_given(kind):
    of_numpy = np.int64(parameter(kind, 5))
    np.testing.assert_array_equal(discrete_noise(kind, of_numpy, key(), 9), made(kind, 5, 9))
    for equal in (25, 1):
        discrete_noise(kind, equal, key(), 1)
    for wrong in (25.0, np.float64(25), Decimal(25), True, "25", None, math.nan, math.inf):
        with pytest.raises(TypeError, match=r"must be an int or a fractions.Fraction, got"):
            discrete_noise(kind, wrong, key(), 1)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_scales_out_of_range_are_refused(kind):
    power = 2 if kind == "gaussian" else 1
    tiny = Fraction(1, 10**30)
    for scale in (Fraction(1, 2) ** power, Fraction(2**40) ** power):
        assert len(discrete_noise(kind, scale, key(), 1)) == 1
    for wrong in (
        0,
        -1,
        -(2**40),
        tiny,
        Fraction(1, 2) ** power - tiny,
        2 ** (40 * power) + tiny,
        10**5000,
    ):
        with pytest.raises(ValueError, match=r"must lie between .* got .* Choose"):
            discrete_noise(kind, wrong, key(), 1)


def test_other_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="'gaussian' or 'laplace', got 'cauchy'"):
        discrete_noise("cauchy", 25, key(), 1)
    with pytest.raises(ValueError, match="size must be at least 0, got -1"):
        discrete_noise("gaussian", 25, key(), -1)
    with pytest.raises(ValueError, match="32 bytes, got 16"):
        discrete_noise("gaussian", 25, bytes(16), 1)
    with pytest.raises(TypeError, match="32 bytes, got str"):
        discrete_noise("gaussian", 25, "0" * 32, 1)


def test_tables_are_kept_and_cannot_be_changed():
    noise = sampler("gaussian", 36)
    assert sampler("gaussian", Fraction(36)) is noise
    assert sampler("laplace", 36) is not noise
    for table in noise.tables[:3]:
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 0
