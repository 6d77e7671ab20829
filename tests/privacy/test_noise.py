"""Noise: its distribution, its accuracy, where it comes from; and what a budget may be."""

from __future__ import annotations

import math
from fractions import Fraction

import numba
import numpy as np
import pytest
from scipy import stats

from quorate.privacy import mechanisms as noise
from quorate.privacy.budget import Budget
from quorate.privacy.mechanisms import GAUSSIAN, LAPLACE, MEAN_SIZE, fill, secure, uniforms

KINDS = {
    "gaussian": (GAUSSIAN, stats.norm(), 1.0, 3.0),
    "laplace": (LAPLACE, stats.laplace(), 2.0, 6.0),
}
N = 400_000


def made(source: str, kind: int, size: int, key: int = 7) -> np.ndarray:
    if source == "secure":
        return secure(b"secret %d" % key, b"question", kind, size)
    out = np.empty(size)
    fill(np.uint64(key), kind, out)
    return out


@pytest.mark.parametrize("source", ["fill", "secure"])
@pytest.mark.parametrize("name", KINDS)
def test_the_numbers_have_their_distribution(source, name):
    kind, law, variance, kurtosis = KINDS[name]
    x = made(source, kind, N)
    assert stats.kstest(x, law.cdf).pvalue > 1e-3
    assert abs(x.mean()) < 5 * math.sqrt(variance / N)
    assert x.var() == pytest.approx(variance, rel=5 * math.sqrt((kurtosis - 1) / N))
    assert np.abs(x).mean() == pytest.approx(MEAN_SIZE[kind], rel=5 / math.sqrt(N))
    assert abs(stats.skew(x)) < 0.1
    for share in (1e-2, 1e-3, 1e-4):  # both tails, in standard deviations of a binomial
        for beyond in (x > law.isf(share), x < law.ppf(share)):
            assert abs(beyond.sum() - N * share) < 5 * math.sqrt(N * share)


@pytest.mark.parametrize("source", ["fill", "secure"])
@pytest.mark.parametrize("name", KINDS)
def test_entries_pairs_and_keys_are_independent(source, name):
    kind = KINDS[name][0]
    x, y = made(source, kind, 100_000, 1), made(source, kind, 100_000, 2)
    half = len(x) // 2
    pairs = [(x, y), (x[:half], x[half:]), (x[:-1], x[1:]), (x[:-2], x[2:]), (x[:-1], y[1:])]
    for a, b in pairs:
        assert abs(stats.spearmanr(a, b).statistic) < 5 / math.sqrt(len(a))
        assert abs(stats.spearmanr(a**2, b**2).statistic) < 5 / math.sqrt(len(a))
        table = np.histogram2d(stats.rankdata(a), stats.rankdata(b), bins=10)[0]
        assert stats.chi2_contingency(table).pvalue > 1e-4
    assert len(np.unique(x)) > 0.9999 * len(x)
    assert not np.isin(x, y).mean() > 1e-3


@pytest.mark.parametrize("name", KINDS)
def test_first_entries_of_neighbouring_keys_are_independent(name):
    """Keys that differ in one bit or by one, where a weak mixing would show."""
    kind, law, *_ = KINDS[name]
    for keys in (np.arange(20_000), np.arange(20_000) << 40, 1 << (np.arange(20_000) % 63)):
        keys = np.unique(keys)
        x = np.array([made("fill", kind, 3, int(key)) for key in keys])
        for column in x.T:
            assert stats.kstest(column, law.cdf).pvalue > 1e-3
            if len(keys) > 1000:
                assert abs(stats.spearmanr(column[:-1], column[1:]).statistic) < 5 / math.sqrt(
                    len(keys)
                )


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 31, 1000, 1001])
def test_every_entry_is_made_whatever_the_size(name, size):
    kind, law, *_ = KINDS[name]
    out = np.full(size + 2, np.nan)
    fill(np.uint64(3), kind, out[1:-1])
    assert np.isnan(out[[0, -1]]).all()
    assert np.isfinite(out[1:-1]).all()
    assert len(np.unique(out[1:-1])) == size
    entries = np.array([made("fill", kind, size, key) for key in range(2000)])
    for j in {0, size // 2, size - 1}:  # the middle of odd sizes has a pair of its own
        assert stats.kstest(entries[:, j], law.cdf).pvalue > 1e-3
    assert np.isfinite(made("secure", kind, size)).all()
    assert made("secure", kind, size).shape == (size,)


def test_no_entries_are_none():
    for kind in (GAUSSIAN, LAPLACE):
        assert made("secure", kind, 0).shape == (0,)


@pytest.mark.parametrize("name", KINDS)
def test_the_same_key_makes_the_same_numbers_in_any_thread(name):
    kind = KINDS[name][0]

    @numba.njit(parallel=True)
    def several(out):
        for i in numba.prange(len(out)):
            fill(np.uint64(i), kind, out[i])

    out = np.empty((8, 501))
    for threads in {1, numba.config.NUMBA_NUM_THREADS}:
        before = numba.get_num_threads()
        numba.set_num_threads(threads)
        try:
            several(out)
        finally:
            numba.set_num_threads(before)
        for i, row in enumerate(out):
            assert row.tobytes() == made("fill", kind, 501, i).tobytes()


def test_single_precision_is_double_precision_rounded():
    for kind in (GAUSSIAN, LAPLACE):
        short = np.empty(1001, np.float32)
        fill(np.uint64(5), kind, short)
        np.testing.assert_allclose(short, made("fill", kind, 1001, 5), rtol=3e-7, atol=1e-12)


def test_logarithm_and_turn_are_as_accurate_as_they_say():
    log = numba.njit(lambda x, halvings: noise._log(x, halvings))
    turn = numba.njit(lambda t: noise._cos_sin(t))
    rng = np.random.default_rng(0)
    for x in [
        *(2.0 ** rng.uniform(-33, 1, 3000)),
        1.0,
        1 - 2**-33,
        2**-33,
        math.sqrt(2),
        math.nextafter(1, 0),
    ]:
        for halvings in (0, 32, 33):
            found = log(x * 2.0**halvings, halvings)
            assert abs(found - math.log(x)) <= 2e-15 * max(1.0, abs(math.log(x)))
    for t in [
        *rng.uniform(-math.pi / 2, math.pi / 2, 3000),
        -math.pi / 2,
        0.0,
        1e-9,
        math.pi / 4,
        math.pi / 2,
    ]:
        c, s = turn(t)
        assert abs(c - math.cos(t)) < 1e-12
        assert abs(s - math.sin(t)) < 1e-12


def words(key: int, count: int) -> list[int]:
    """SplittableRandom of whole numbers: counts a step apart, each mixed."""
    full = 2**64

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % full
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % full
        return z ^ (z >> 31)

    step = mix((key + 0x9E3779B97F4A7C15) % full) | 1
    return [mix((key + j * step) % full) for j in range(count)]


@pytest.mark.parametrize("size", [1, 8, 31, noise.PART, noise.PART + 5, 3 * noise.PART - 1])
@pytest.mark.parametrize("key", [0, 12345, 2**64 - 3])
def test_numbers_are_the_formulas_of_the_counted_words(size, key):
    half, pairs = noise.PART // 2, words(key, size)
    gaussian, laplace = np.empty(size), np.empty(size)
    fill(np.uint64(key), GAUSSIAN, gaussian)
    fill(np.uint64(key), LAPLACE, laplace)
    for start in range(0, size, noise.PART):
        n = min(noise.PART, size - start)
        for j in range(-(-n // 2)):
            word = pairs[start // noise.PART * half + j]
            high, low = word >> 32, word & (2**32 - 1)
            r = math.sqrt(-2 * math.log((high + 0.5) / 2**32))
            angle = math.pi * ((low % 2**31 + 0.5) / 2**31 - 0.5)
            both = [(-1) ** (low >> 31) * r * math.cos(angle), r * math.sin(angle)]
            pieces = [(bits >> 31, (bits % 2**31 + 0.5) / 2**31) for bits in (high, low)]
            other = [(-1) ** (sign + 1) * math.log(u) for sign, u in pieces]
            for k, at in enumerate(range(start + j, start + n, -(-n // 2))):
                assert gaussian[at] == pytest.approx(both[k], rel=1e-10, abs=1e-10)
                assert laplace[at] == pytest.approx(other[k], rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_are_added_as_the_whole(name, dtype):
    kind, size = KINDS[name][0], 2 * noise.PART + 77
    before = np.random.default_rng(1).standard_normal(size).astype(dtype)
    out = before.copy()
    for first in range(0, size, noise.PART):
        noise.add(np.uint64(9), kind, 0.25, out[first : first + noise.PART], first)
    expected = before + 0.25 * made("fill", kind, size, 9)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-6 if dtype == np.float32 else 1e-15)


# -- secure
# --------------------------------------------------------------------------------------------------


def test_secure_numbers_belong_to_the_secret_and_the_question():
    uses = [
        (b"a", b"", 0),
        (b"b", b"", 0),
        (b"", b"a", 0),
        (b"a", b"b", 0),
        (b"ab", b"", 0),
        (b"a", b"", 1),
    ]
    uses += [
        (b"a" * 32, bytes(8), 0),
        (b"a" * 32, bytes(7) + b"\1", 0),
        (b"a" * 32, bytes(7), 0),
        (b"a 0 1 ", b"", 0),
    ]
    numbers = [secure(*use, 50) for use in uses] + [secure(b"a", b"", 0, 51)[:50]]
    for i, x in enumerate(numbers):
        for y in numbers[:i]:
            assert not np.isin(x, y).any()
    for use, x in zip(uses, numbers, strict=False):
        assert secure(*use, 50).tobytes() == x.tobytes()


def test_uniform_words_stay_inside_the_interval_exactly():
    """The largest one rounds to no 1, whose logarithms would be 0 and -inf."""
    for word in (0, 1, 2**12 - 1, 2**12, 2**63, 2**64 - 1):
        u = float(uniforms(np.array([word], np.uint64))[0])
        assert 0 < u < 1
        assert Fraction(u) == Fraction(2 * (word >> 12) + 1, 2**53)


# -- budgets
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [0, -1.0, -0.0, math.nan, math.inf, -math.inf, True, "1", None, 1j, [1.0]]
)
def test_an_epsilon_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="epsilon"):
        Budget(bad, 1e-6)


@pytest.mark.parametrize(
    "bad", [0, 1, 0.0, 1.0, -1e-6, 1.5, math.nan, math.inf, True, False, "1e-6", None]
)
def test_a_delta_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match="delta"):
        Budget(1.0, bad)


@pytest.mark.parametrize("bad", ["", "add", "replace-one", None, 1, ["replace"], True])
def test_an_unknown_adjacency_is_refused(bad):
    with pytest.raises(ValueError, match="adjacency must be one of add-remove, replace"):
        Budget(1.0, 1e-6, bad)


@pytest.mark.parametrize(
    "bad", [0, -3, 1.5, math.nan, math.inf, True, "6", [6], {"a": 0}, {"a": 2.5}, {"a": "6"}]
)
def test_sizes_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="sizes must be whole numbers"):
        Budget(1.0, 1e-6, sizes=bad)


def test_declared_sizes_stand_for_the_true_ones():
    clients, true = ("a", "b"), (5, 7)
    assert Budget(1, 1e-6).sizes_of(clients, true) == true
    assert Budget(1.0, 1e-6, sizes=np.int64(9)).sizes_of(clients, true) == (9, 9)
    assert Budget(np.float32(1), 1e-6, sizes={"b": 4, "a": 6.0, "c": 1}).sizes_of(
        clients, true
    ) == (6, 4)
    with pytest.raises(ValueError, match="no entry for b"):
        Budget(1.0, 1e-6, sizes={"a": 6}).sizes_of(clients, true)
    assert (Budget(1.0, 1e-6).spread, Budget(1.0, 1e-6, "replace").spread) == (1.0, 2.0)
