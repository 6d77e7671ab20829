"""The proofs of "Computer arithmetic" in docs/private-proofs.md, by brute force on integers.

The discrete distributions are written out and convolved, so that the totals of compositions and of
vectors are exact to the rounding of doubles; the lemma is evaluated with 60 digits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from bonafed.privacy.accounting import Release, gaussian_delta, total_epsilon

Array = np.ndarray
mp: Any = mpmath.mp
DELTAS = (1e-3, 1e-6)
MOVES = {  # of the entries of a vector
    "one step": (1,),
    "several steps": (5,),
    "three entries": (1, 2, 2),
    "many entries": (1,) * 9,
}


def convolved(losses: Sequence[Array]) -> Array:
    """The probabilities of the sum of independent whole numbers, each given from its lowest on."""
    return functools.reduce(np.convolve, losses)


def least_epsilon(delta_of: Callable[[float], float], delta: float) -> float:
    """The epsilon at which delta_of, which falls, reaches delta; from below."""
    low, high = 0.0, 1.0
    while delta_of(high) > delta:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return low


def discrete_gaussian(sigma: float, step: int = 1) -> Array:
    """P(step X = -20 sigma step, ..., 20 sigma step) of N_Z(sigma^2)."""
    n = np.arange(-math.ceil(20 * sigma), math.ceil(20 * sigma) + 1)
    p = np.exp(-(n**2) / (2 * sigma**2))
    wide = np.zeros(step * (len(n) - 1) + 1)
    wide[::step] = p / p.sum()
    return wide


def gaussian_brute(sigma: float, moves: Sequence[int], rounds: int) -> Callable[[float], float]:
    """delta(epsilon) of ``rounds`` answers whose entries move by whole numbers.

    The privacy loss is affine in sum_i moves_i X_i, so the distribution of that sum and the same
    moved by its mean are a pair of distributions that is as far apart as the answers are.
    """
    sums = convolved([discrete_gaussian(sigma, move) for move in moves] * rounds)
    gap = np.zeros(rounds * sum(move**2 for move in moves))
    one, other = np.append(sums, gap), np.append(gap, sums)
    return lambda epsilon: float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("sigma", [5, 8, 20])
@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("rounds", [1, 4])
def test_the_total_of_the_discrete_gaussian_is_never_below_brute_force(sigma, moves, rounds):
    brute = gaussian_brute(sigma, moves, rounds)
    far = math.hypot(*moves)
    few = 1.01 if sigma >= 20 else 1.01 * sigma**2 / (sigma**2 - 4)
    for delta in DELTAS:
        truth = least_epsilon(brute, delta)
        found = total_epsilon([Release("gaussian", math.sqrt(sigma**2 - 4) / far, rounds)], delta)
        assert truth < found < few * truth


@pytest.mark.parametrize(("sigma", "move", "rounds"), [(5, 1, 4), (8, 5, 1), (20, 3, 16)])
def test_brute_force_is_what_dp_accounting_says_of_the_discrete_gaussian(sigma, move, rounds):
    other = pld.from_discrete_gaussian_mechanism(sigma, move, value_discretization_interval=1e-3)
    brute = gaussian_brute(sigma, (move,), rounds)
    for delta in DELTAS:
        truth = least_epsilon(brute, delta)
        # the interval of the grid is an epsilon that is added to every round
        found = other.self_compose(rounds).get_epsilon_for_delta(delta)
        assert truth * (1 - 1e-9) <= found <= truth * 1.001 + rounds * 1e-3


@pytest.mark.parametrize(("sigma", "excess"), [(5, 0.03), (8, 0.01), (12, 0.005), (20, 0.0015)])
def test_without_the_four_that_is_added_the_total_would_be_too_small(sigma, excess):
    """At some epsilon with a delta above 1e-6; with it, at none."""
    brute = gaussian_brute(sigma, (1,), 1)
    epsilons = np.linspace(0, 6 / sigma, 2000)
    truth = np.array([brute(epsilon) for epsilon in epsilons])
    seen = truth > 1e-6
    plain, safe = (
        np.asarray(gaussian_delta(1 / math.sqrt(sigma**2 - less), epsilons)) for less in (0, 4)
    )
    assert (truth / plain)[seen].max() > 1 + excess
    assert (truth[seen] < safe[seen]).all()


# ---- the lemma


def beta(v: Any) -> Any:
    """How far, relatively, the sum of a Gaussian of variance v over whole numbers varies."""
    return 2 * mp.nsum(lambda k: mp.exp(-2 * mp.pi**2 * v * k**2), [1, mp.inf])


def theta(y: Any, v: Any) -> Any:
    """The sum over whole numbers n of exp(-(n - y)^2 / (2 v))."""
    near, reach = int(mp.nint(y)), math.ceil(mp.sqrt(280 * v))
    return mp.fsum(mp.exp(-((n - y) ** 2) / (2 * v)) for n in range(near - reach, near + reach + 1))


@pytest.mark.parametrize("v", ["0.25", "1", "4"])
def test_the_sum_over_whole_numbers_lies_within_its_bound_and_reaches_it(v):
    with mp.workdps(60):
        v = mp.mpf(v)
        away = [abs(theta(mp.mpf(k) / 16, v) / mp.sqrt(2 * mp.pi * v) - 1) for k in range(16)]
        assert max(away) <= beta(v) * (1 + mp.mpf(10) ** -15)
        assert max(away) >= beta(v) * (1 - mp.mpf(10) ** -15)  # at y = 0


@pytest.mark.parametrize(
    ("variance", "v", "part"),
    [("25", "4", 0), ("7", "4", 0), ("4.1", "4", 0.1), ("2", "0.25", 0), ("0.35", "0.25", 0.1)],
)
def test_the_discrete_gaussian_is_nearly_a_continuous_one_made_whole(variance, v, part):
    """P(N = n) / P(X = n) of the lemma, also with less than 4, where the bound is no tiny number.

    With little of the continuous Gaussian they differ by at least a part of the bound. The
    trapezoidal rule integrates functions like these to all digits.
    """
    with mp.workdps(60):
        variance, v, step = mp.mpf(variance), mp.mpf(v), mp.mpf(1) / 16
        rest, bound = variance - v, beta(v)
        over = [theta(k * step, v) for k in range(16)]
        total = theta(mp.mpf(0), variance)
        ratios = []
        for n in (0, 1, 2, 9, 30):
            centre = int(n * rest / variance / step)  # where most of the integrand is
            reach = int(mp.sqrt(280 * v) / step)
            made = step * mp.fsum(
                mp.exp(-((k * step) ** 2) / (2 * rest) - (n - k * step) ** 2 / (2 * v))
                / over[k % 16]
                for k in range(centre - reach, centre + reach + 1)
            )
            made /= mp.sqrt(2 * mp.pi * rest)
            ratios.append(made * total / mp.exp(-(n**2) / (2 * variance)))
        assert 1 / (1 + bound) <= min(ratios)
        assert max(ratios) <= (1 + bound) / (1 - bound)
        assert max(abs(ratio - 1) for ratio in ratios) > part * bound


def test_the_numbers_of_the_page():
    with mp.workdps(60):
        eta = 2 * beta(mp.mpf(4)) / (1 - beta(mp.mpf(4)))
        assert 2.04e-34 < eta < 2.1e-34
        assert 2 * 10**10 * eta < 4.2e-24
        # of sums, with 25 as the least variance of one client, and of 1,000 clients
        near = beta(mp.mpf(25) / 2)
        assert near < 1.5e-107
        assert 1000 * 2 * near < 3e-104


# ---- sums of several clients' noise


@pytest.mark.parametrize("clients", [2, 3, 10])
@pytest.mark.parametrize("sigma", [5, 8])
@pytest.mark.parametrize("move", [1, 7])
def test_the_total_of_a_sum_of_discrete_gaussians_is_never_below_brute_force(clients, sigma, move):
    summed, gap = convolved([discrete_gaussian(sigma)] * clients), np.zeros(move)
    one, other = np.append(summed, gap), np.append(gap, summed)
    variance = clients * sigma**2

    def brute(epsilon: float) -> float:
        return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())

    for delta in DELTAS:
        truth = least_epsilon(brute, delta)
        found = total_epsilon([Release("gaussian", math.sqrt(variance - 4) / move)], delta)
        assert truth < found < 1.01 * variance / (variance - 4) * truth


@pytest.mark.parametrize(
    ("clients", "v", "part"),
    [(2, "0.25", 0.3), (2, "1", 0.05), (2, "4", 0), (5, "0.25", 0), (5, "1", 0)],
)
def test_a_sum_of_discrete_gaussians_is_nearly_one_within_the_bound_of_the_page(clients, v, part):
    """P(sum = m) over the density of the sum's variance, also where the bound is no tiny number."""
    with mp.workdps(60):
        v = mp.mpf(v)
        reach = math.ceil(mp.sqrt(280 * v))
        terms = [mp.exp(-(mp.mpf(n) ** 2) / (2 * v)) for n in range(-reach, reach + 1)]
        one = np.array([term / mp.fsum(terms) for term in terms], dtype=object)
        summed, middle = convolved([one] * clients), clients * reach
        low, high = 1 / (1 + beta(v)) ** clients, mp.mpf(1)
        for j in range(1, clients):
            away = beta(j * v / (j + 1))
            low, high = low * (1 - away), high * (1 + away)
        total = clients * v
        ratios = [
            summed[middle + m] * mp.sqrt(2 * mp.pi * total) / mp.exp(-mp.mpf(m * m) / (2 * total))
            for m in range(4)
        ]
        assert low <= min(ratios)
        assert max(ratios) <= high
        assert max(ratios) - min(ratios) >= part * (high - low)


# ---- Laplace


def laplace_losses(t: float, move: int) -> Array:
    """The probabilities of t times the privacy loss, -move, -move + 1, ..., of a moved entry."""
    reach = math.ceil(60 * t) + move
    n = np.arange(-reach, reach + 1)
    p = math.tanh(1 / (2 * t)) * np.exp(-abs(n) / t)
    return np.bincount(abs(n - move) - abs(n) + move, p, 2 * move + 1)


def laplace_brute(t: float, moves: Sequence[int], rounds: int) -> Callable[[float], float]:
    shares = convolved([laplace_losses(t, move) for move in moves] * rounds)
    most = rounds * sum(moves)
    losses = np.arange(-most, most + 1) / t
    return lambda epsilon: float((shares * np.maximum(-np.expm1(epsilon - losses), 0)).sum())


@pytest.mark.parametrize("t", [5, 12, 40])
@pytest.mark.parametrize("moves", MOVES.values(), ids=MOVES)
@pytest.mark.parametrize("rounds", [1, 16])
def test_the_total_of_the_discrete_laplace_is_never_below_brute_force(t, moves, rounds):
    brute, noise = laplace_brute(t, moves, rounds), t / sum(moves)
    for delta in DELTAS:
        truth = least_epsilon(brute, delta)
        found = total_epsilon([Release("laplace", noise, rounds)], delta)
        assert truth * (1 - 1e-9) <= found
        if moves == (1,):  # it is randomised response
            assert found <= 1.01 * truth + 1e-9


def test_the_total_of_the_continuous_laplace_would_be_too_small():
    t, rounds = 5, 16
    continuous = pld.from_laplace_mechanism(t, value_discretization_interval=1e-4)
    brute = laplace_brute(t, (1,), rounds)
    for delta in DELTAS:
        found = continuous.self_compose(rounds).get_epsilon_for_delta(delta)
        assert found < 0.99 * least_epsilon(brute, delta)


@pytest.mark.parametrize("t", [2.5, 20.0])
@pytest.mark.parametrize("alpha", [1.1, 2.0, 32.0])
@pytest.mark.parametrize("move", [1, 6])
def test_the_renyi_divergence_of_the_discrete_laplace_is_the_formula_of_the_page(t, alpha, move):
    n = np.arange(-math.ceil(60 * t), math.ceil(60 * t) + move + 1)
    logs = -alpha * abs(n) / t - (1 - alpha) * abs(n - move) / t
    truth = math.log(math.tanh(1 / (2 * t)) * np.exp(logs).sum())

    def formula(kappa: float) -> float:
        near, far = math.exp((alpha - 1) * move / t), math.exp(-alpha * move / t)
        return math.log((1 + kappa) / 2 * near + (1 - kappa) / 2 * far)

    discrete = formula(math.tanh(1 / (2 * t)) / math.tanh((2 * alpha - 1) / (2 * t)))
    continuous = formula(1 / (2 * alpha - 1))
    assert discrete == pytest.approx(truth, rel=1e-9)
    assert 0 < discrete - continuous <= alpha * (alpha - 1) / (3 * t**2)
