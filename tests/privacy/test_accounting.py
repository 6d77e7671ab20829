"""Totals against independent computations: closed forms, exact sums over binomials, quadrature;
noise from totals.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from bonafed.privacy.accounting import (
    Release,
    accounts,
    gaussian_delta,
    gaussian_epsilon,
    noise_for,
    renyi_epsilon,
    total_epsilon,
)
from bonafed.privacy.budget import Budget, BudgetSpentError

DELTAS = st.sampled_from([1e-12, 1e-9, 1e-6, 1e-3, 0.1])
releases = st.builds(
    Release,
    st.sampled_from(["gaussian", "laplace"]),
    st.floats(0.0, 4.0).map(lambda x: 10**x),
    st.integers(1, 300),
)


def delta_of_randomised_response(one: float, count: int, epsilon: float) -> float:
    """max over events of P - exp(epsilon) P', summed over the number of lies in rationals (Kairouz
    et al. 2015).
    """
    e, bound = Fraction(math.exp(one)), Fraction(math.exp(epsilon))
    total = sum(
        max(math.comb(count, i) * (e ** (count - i) - bound * e**i), Fraction(0))
        for i in range(count + 1)
    )
    return float(total / (1 + e) ** count)


def delta_of_many(levels: list[tuple[float, int]], mu: float, epsilon: float) -> float:
    """The same of several sizes and a Gaussian: enumeration of lies, quadrature over the Gaussian's
    loss.
    """
    ranges = [range(count + 1) for _, count in levels]
    total = 0.0
    for lies in itertools.product(*ranges):
        loss, share = 0.0, 1.0
        for (one, count), k in zip(levels, lies, strict=True):
            loss += (count - 2 * k) * one
            share *= stats.binom.pmf(k, count, 1 / (1 + math.exp(one)))
        if mu == 0:
            total += share * max(-math.expm1(epsilon - loss), 0.0)
            continue

        # The loss of the Gaussian is N(mu^2 / 2, mu^2).
        def integrand(x: float, left: float = epsilon - loss) -> float:
            return (
                -math.expm1(left - mu * mu / 2 - mu * x)
                * math.exp(-x * x / 2)
                / math.sqrt(2 * math.pi)
            )

        start = (epsilon - loss) / mu - mu / 2
        if start < 12:
            total += (
                share
                * integrate.quad(integrand, max(start, -12.0), 12.0, epsabs=1e-16, epsrel=1e-10)[0]
            )
    return total


def epsilon_where(delta_of, delta: float) -> float:
    if delta_of(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_of(high) > delta:
        high *= 2
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("mu", [1e-4, 0.02, 0.3, 1.0, 5.0, 40.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-2])
def test_a_gaussian_release_costs_what_quadrature_says(mu, delta):
    truth = (
        epsilon_where(lambda epsilon: delta_of_many([], mu, epsilon), delta) if mu < 30 else None
    )
    found = total_epsilon([Release("gaussian", 1 / mu)], delta)
    exact = gaussian_epsilon([Release("gaussian", 1 / mu)], delta)
    assert exact is not None
    if truth is not None:
        assert exact == pytest.approx(truth, rel=1e-6, abs=1e-12)
    assert exact <= found <= 1.01 * exact + 1e-12


@given(
    st.lists(st.tuples(st.floats(0.3, 1e4), st.integers(1, 10**6)), min_size=1, max_size=4), DELTAS
)
@settings(max_examples=20, deadline=None)
def test_gaussian_releases_cost_the_closed_form_of_one(parts, delta):
    mu = math.sqrt(sum(count / noise**2 for noise, count in parts))
    assume(1e-4 < mu < 40)
    found = total_epsilon([Release("gaussian", noise, count) for noise, count in parts], delta)
    exact = epsilon_where(lambda epsilon: gaussian_delta(mu, epsilon), delta)
    assert exact * (1 - 1e-9) <= found <= 1.01 * exact + 1e-9


@pytest.mark.parametrize(
    ("one", "count"), [(0.01, 40), (0.05, 100), (0.3, 7), (0.3, 80), (1.0, 40), (3.0, 5), (9.0, 1)]
)
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.1])
def test_laplace_releases_cost_what_the_worst_pure_mechanism_does(one, count, delta):
    truth = epsilon_where(lambda epsilon: delta_of_randomised_response(one, count, epsilon), delta)
    found = total_epsilon([Release("laplace", 1 / one, count)], delta)
    assert truth * (1 - 1e-9) <= found <= 1.01 * truth + 1e-9
    assert found <= one * count * (1 + 1e-8)  # never more than basic composition


@pytest.mark.parametrize(
    ("levels", "mu"),
    [
        ([(0.3, 12)], 0.7),
        ([(0.02, 30)], 0.05),
        ([(1.5, 3)], 0.1),
        ([(0.1, 9), (0.37, 5)], 0.0),
        ([(0.1, 6), (0.37, 4)], 0.4),
        ([(1e-4, 20), (0.8, 4)], 0.0),
        ([(1e-3, 3), (2.0, 2)], 1.0),
    ],
)
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_mixed_releases_cost_what_enumeration_says(levels, mu, delta):
    truth = epsilon_where(lambda epsilon: delta_of_many(levels, mu, epsilon), delta)
    given_ = [Release("laplace", 1 / one, count) for one, count in levels]
    given_ += [Release("gaussian", 2 / mu, 4)] if mu else []
    found = total_epsilon(given_, delta)
    assert truth * (1 - 1e-6) <= found <= 1.01 * truth + 1e-9


@pytest.mark.parametrize(
    ("one", "count", "total"),
    [
        (0.01, 20_000, 7.3),
        (0.01, 10**6, 97),
        (0.05, 100, 2.2),
        (0.05, 2000, 12.6),
        (0.05, 20_000, 58),
        (0.1, 20_000, 166),
    ],
)
def test_published_settings_cost_what_they_were_measured_to(one, count, total):
    digits = 0.06 if total < 20 else 0.6
    assert total_epsilon([Release("laplace", 1 / one, count)], 1e-6) == pytest.approx(
        total, abs=digits
    )


@given(st.lists(releases, max_size=4), releases, DELTAS)
@settings(max_examples=20, deadline=None)
def test_more_answers_cost_more_and_more_noise_or_delta_less(given_, extra, delta):
    total = total_epsilon([*given_, extra], delta)
    slack = 2e-3 * total + 1e-9  # of the grid
    assert total_epsilon(given_, delta) <= total + slack
    assert (
        total_epsilon([*given_, Release(extra.mechanism, extra.noise, extra.count + 1)], delta)
        >= total - slack
    )
    assert (
        total_epsilon([*given_, Release(extra.mechanism, 2 * extra.noise, extra.count)], delta)
        <= total + slack
    )
    assert total_epsilon([*given_, extra], 5 * delta) <= total + slack


@given(st.lists(releases, max_size=4), DELTAS, st.randoms(use_true_random=False))
@settings(max_examples=20, deadline=None)
def test_order_and_splitting_change_nothing(given_, delta, random):
    parts = [
        Release(r.mechanism, r.noise, k)
        for r in given_
        for k in (r.count - r.count // 3, r.count // 3)
    ]
    random.shuffle(parts)
    nothing = [Release("gaussian", math.inf, 7), Release("laplace", 3.0, 0)]
    assert total_epsilon([*parts, *nothing], delta) == total_epsilon(given_, delta)


@given(
    st.floats(-3, 3).map(lambda x: 10**x),
    st.sampled_from([1e-12, 1e-6, 1e-3, 0.5]),
    st.floats(0, 6).map(lambda x: int(10**x)),
    st.sampled_from(["gaussian", "laplace"]),
    st.lists(releases, max_size=3),
)
# on the grid half a percent above the formula
@example(10**2.75, 1e-12, 1, "laplace", [Release("laplace", 1.0, 98)])
@example(10**2.859375, 1e-6, 1, "gaussian", [])  # masses that cannot be divided by
# one release of a nearly certain loss, too wide for the grid of the others
@example(10**2.1875, 1e-12, 1, "laplace", [Release("laplace", 10**0.375, 129)])
@settings(max_examples=50, deadline=None)
def test_noise_for_a_budget_never_overspends_and_hardly_wastes(
    epsilon, delta, rounds, mechanism, spent
):
    budget, before = Budget(epsilon, delta), total_epsilon(spent, delta)
    if before >= 0.999 * epsilon:
        with pytest.raises(BudgetSpentError, match="is spent"):
            noise_for(budget, rounds, mechanism, spent)
        return
    assume(before < 0.99 * epsilon)
    noise = noise_for(budget, rounds, mechanism, spent)
    total = total_epsilon([*spent, Release(mechanism, noise, rounds)], delta)
    step = 3e-3 if delta == 0.5 else 0.0  # of the grid, there large beside epsilon
    assert 0.99 * epsilon - step <= total <= epsilon


def test_losses_that_are_nearly_certain_add_up():
    """Each is the largest with probability 1 - e^-30 or more, on the grid and beyond it."""
    for one, count in itertools.product((30.0, 49.0, 60.0), (1, 10, 1000)):
        total = total_epsilon([Release("laplace", 1 / one, count)], 1e-6)
        assert total == pytest.approx(one * count, rel=1e-2)
    others = [Release("laplace", 1.0, 50)]
    both = total_epsilon([*others, Release("laplace", 1 / 60)], 1e-6)
    assert both == pytest.approx(60 + total_epsilon(others, 1e-6), rel=1e-2)


def test_a_sliver_of_a_budget_is_used_or_refused():
    spent = [Release("laplace", 30.0, 50), Release("gaussian", 50.0, 9)]
    before = total_epsilon(spent, 1e-6)
    for share in (1e-2, 2e-3, 5e-4, 1e-5, 0.0):
        budget = Budget(before * (1 + share), 1e-6)
        for mechanism in ("gaussian", "laplace"):
            try:
                noise = noise_for(budget, 10, mechanism, spent)
            except BudgetSpentError:
                assert share <= 2e-3
            else:
                assert share >= 1e-3
                assert (
                    total_epsilon([*spent, Release(mechanism, noise, 10)], 1e-6) <= budget.epsilon
                )


def test_what_is_not_a_release_or_beyond_the_accountant_is_refused():
    for bad in (
        {"noise": 0.0},
        {"noise": -1.0},
        {"noise": math.nan},
        {"count": -1},
        {"count": 1.5},
        {"count": True},
        {"mechanism": "exponential"},
    ):
        with pytest.raises(ValueError, match="must be"):
            Release(**{"mechanism": "gaussian", "noise": 1.0} | bad)
    for delta in (0.0, 1e-13, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            total_epsilon([Release("gaussian", 1.0)], delta)
    with pytest.raises(ValueError, match="cannot be accounted"):
        noise_for(Budget(1.0, 1e-20), 10)
    with pytest.raises(ValueError, match="rounds"):
        noise_for(Budget(1.0, 1e-6), 0)


def test_an_answer_almost_without_noise_costs_more_than_any_budget():
    assert total_epsilon([Release("gaussian", 1e-4)], 1e-6) > 1e7
    assert total_epsilon([Release("gaussian", 1e-200)], 1e-6) == math.inf
    assert total_epsilon([Release("laplace", 1e-4)], 1e-6) >= 0.99e4


@given(st.lists(releases, min_size=1, max_size=3), st.sampled_from([1e-9, 1e-6, 1e-3]))
@settings(max_examples=10, deadline=None)
def test_the_other_accounts_agree_as_they_should(given_, delta):
    found = accounts(given_, delta)
    total = found["pld"]
    assert total is not None
    assert found["rdp"] is not None
    if all(r.mechanism == "gaussian" for r in given_):
        assert found["gaussian"] == pytest.approx(total, rel=0.01)
        assert found["rdp"] >= found["gaussian"] * (1 - 1e-9)
        assert found["basic"] is None
    else:
        assert found["gaussian"] is None
    if all(r.mechanism == "laplace" for r in given_):
        assert found["basic"] == pytest.approx(sum(r.count / r.noise for r in given_))
        assert total <= found["basic"] * (1 + 2e-3)


def test_renyi_divergences_bound_laplace_vectors_too():
    """Of a shift over several entries of one l1 norm: below that of one entry, so the account holds
    for vectors.
    """
    rng = np.random.default_rng(0)
    for _ in range(20):
        shift, order = rng.dirichlet(np.ones(5)) * 2, float(rng.uniform(1.1, 30))

        def divergence(t: float, a: float = order) -> float:
            return math.log(
                a / (2 * a - 1) * math.exp((a - 1) * t) + (a - 1) / (2 * a - 1) * math.exp(-a * t)
            ) / (a - 1)

        assert sum(map(divergence, shift)) <= divergence(2.0) * (1 + 1e-12)
    assert renyi_epsilon([Release("laplace", 0.5)], 1e-6) == pytest.approx(2.0, rel=0.01)
