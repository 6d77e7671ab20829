"""Bounds from right guesses: never below the worst mechanism, and as often right as they say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit, ndtr
from scipy.stats import binom

from bonafed.privacy import bounds


def worst(m: int, right: int, epsilon: float, delta: float) -> float:
    """The largest P(W >= right) of any (epsilon, delta)-private mechanism that guesses all of m
    coins, by a linear program over its guesses given the coins.
    """
    coins = list(itertools.product((0, 1), repeat=m))
    n = len(coins)
    pairs = [
        (s, t) for s in range(n) for t in range(n) if np.sum(np.not_equal(coins[s], coins[t])) == 1
    ]
    # unknowns: P(y | s), then how far P(y | s) is above e^epsilon P(y | t) for every pair
    size = n * n + len(pairs) * n
    gain, above, total = np.zeros(size), [], []
    for s, y in itertools.product(range(n), repeat=2):
        gain[s * n + y] = -float(np.sum(np.equal(coins[s], coins[y])) >= right) / n
    for k, (s, t) in enumerate(pairs):
        for y in range(n):
            row = np.zeros(size)
            row[s * n + y], row[t * n + y] = 1.0, -math.exp(epsilon)
            row[n * n + k * n + y] = -1.0
            above.append((row, 0.0))
        row = np.zeros(size)
        row[n * n + k * n : n * n + (k + 1) * n] = 1.0
        above.append((row, delta))
    for s in range(n):
        row = np.zeros(size)
        row[s * n : (s + 1) * n] = 1.0
        total.append(row)
    rows, limits = zip(*above, strict=True)
    found = linprog(gain, np.array(rows), limits, np.array(total), np.ones(n))
    assert found.success
    return -found.fun


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.05), (0.5, 0.0), (0.5, 0.02), (2.0, 0.1)])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_no_private_mechanism_guesses_more_often_than_the_bound(m, epsilon, delta):
    for right in range(m + 1):
        most, bound = worst(m, right, epsilon, delta), bounds.chance(right, m, m, epsilon, delta)
        assert most <= bound + 1e-9
        if not delta or m == 1:  # randomised response, and one coin, reach it
            assert most == pytest.approx(bound, abs=1e-7)


def published(right: int, r: int, m: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 of Steinke, Nasr, Jagielski: beta + 2 m delta max_i P(v > B >= v - i) / i."""
    share = expit(epsilon)
    i = np.arange(1, right + 1)
    below = binom.cdf(right - 1, r, share) - binom.cdf(right - 1 - i, r, share)
    return float(binom.sf(right - 1, r, share) + 2 * m * delta * (below / i).max())


@pytest.mark.parametrize(("m", "r"), [(50, 20), (1000, 80), (5000, 5000)])
def test_where_it_decides_the_bound_is_below_the_published_one(m, r):
    compared = 0
    for right in np.unique(np.linspace(r // 2 + 1, r, 60).astype(int)):
        for epsilon in (0.01, 0.1, 0.3, 1.0, 3.0):
            beta = bounds.chance(int(right), r, m, epsilon, 0.0)
            if 1e-4 < beta < 0.3:
                ours = bounds.chance(int(right), r, m, epsilon, 1e-5) - beta
                theirs = published(int(right), r, m, epsilon, 1e-5) - beta
                assert 0 < ours < 0.8 * theirs
                compared += 1
    assert compared > 5


@pytest.mark.parametrize("delta", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize(("m", "r", "epsilon"), [(60, 60, 1.0), (400, 50, 0.5), (400, 400, 0.2)])
def test_epsilon_is_overstated_as_rarely_as_promised(m, r, epsilon, delta):
    """Exactly, for three private mechanisms: randomised response that shows each record with
    probability delta, or all of them, or neither.
    """
    right = np.arange(r + 1)
    least = np.array([bounds.least_epsilon(int(v), r, m, delta, 0.95) for v in right])
    assert (np.diff(least) >= -1e-7).all()
    over, share = least > epsilon, expit(epsilon)
    each = float(binom.pmf(right, r, share + (1 - share) * delta) @ over)
    all_ = (1 - delta) * float(binom.pmf(right, r, share) @ over) + delta
    for wrong in (each, all_, float(binom.pmf(right, r, share) @ over)):
        assert wrong <= 0.05
    # where every guess is right, unless the deltas of all canaries together may explain that
    assert least[-1] > epsilon or m * delta / r > 0.05


@pytest.mark.parametrize("mu", [0.0, 0.24, 0.5, 2.0])
@pytest.mark.parametrize("m", [20, 500, 5000])
def test_mu_is_overstated_as_rarely_as_promised(m, mu):
    """Exactly, for guesses by the sign of Gaussian numbers; and hardly more rarely."""
    right = np.arange(m + 1)
    over = np.array([bounds.least_mu(int(v), m, 0.95) for v in right]) > mu
    wrong = float(binom.pmf(right, m, ndtr(mu / 2)) @ over)
    assert wrong <= 0.05
    assert wrong > 0.025 or m == 20


def test_how_many_guesses_pay():
    """Few of many canaries where delta is small, and the expected bound is larger than with all."""
    for m, mu, delta in ((10_000, 0.24, 1e-6), (2000, 0.24, 1e-6), (2000, 0.39, 1e-3)):
        r = bounds.how_many(m, mu, delta, 0.95)
        assert 20 < r < m / 3
        cut = float(
            np.interp(
                -r / m, -(ndtr(mu / 2 - bounds.CUTS) + ndtr(-mu / 2 - bounds.CUTS)), bounds.CUTS
            )
        )
        few = round(m * float(ndtr(mu / 2 - cut)))
        everything = round(m * float(ndtr(mu / 2)))
        assert bounds.least_epsilon(few, r, m, delta, 0.95) > bounds.least_epsilon(
            everything, m, m, delta, 0.95
        )
    assert bounds.how_many(50, 50.0, 1e-6, 0.95) == 50  # nothing is uncertain
