"""Certificates are true whatever the duals are: a wrong dual weakens the bound and never falsifies
it.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import CASES, PLAIN, federation

import bonafed as bf
from bonafed.certificates.duality import certify_concrete
from bonafed.problem.lower_bounds import Minorant, Region, lower_bound

BOUNDED = [case for case in CASES if case.bounded][::4]
KINDS = {
    "linf-regularised": bf.Problem(
        bf.Hinge(), bf.Linear(True), over_clients=bf.Simplex(), regulariser=bf.L1(0.05)
    ),
    "elastic": bf.Problem(
        bf.Logistic(),
        PLAIN,
        over_samples=bf.WassersteinBall(0.05, 2.0, "linf"),
        over_clients=bf.LpBall(0.2, 1.0),
        regulariser=bf.ElasticNet(0.02, 0.05),
    ),
    "bounds": bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall({"c0": 0.0, "c1": 0.1, "c2": 0.2}, 2.0, "l2"),
        over_clients=bf.LpBall(0.2, 3.0),
        regulariser=bf.Bounds(-0.2, 0.3),
    ),
    "mean": bf.Problem(
        bf.Huber(1.0), bf.Linear(True), over_clients=bf.Mean("size"), regulariser=bf.L2(0.1)
    ),
    "sizes": bf.Problem(
        bf.Absolute(),
        bf.Linear(True),
        over_samples=bf.WassersteinBall(0.1, 3.0),
        over_clients=bf.LpBall(0.1, 2, "size"),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_bound_is_tight_at_the_optimum(name):
    problem = KINDS[name]
    fed = federation(21, targets=problem.loss.targets)
    solution, central = bf.solve(problem, fed), bf.CentralConic().solve(problem, fed)
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.certificate.value == pytest.approx(central.value, rel=1e-6)
    assert solution.certificate.bound <= central.value * (1 + 1e-8)
    assert solution.certificate.feasibility <= 1e-9


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("seed", range(5))
def test_a_gradient_on_the_boundary_of_what_balances_it_loses_nothing(norm, seed):
    """As at an optimum without zeros: g = -v - s where v is as long and all of s as large as can
    be. Alternating projections from a v of the ball leave 1e-5 of it.
    """
    rng = np.random.default_rng(seed)
    w, radius, strength = rng.normal(size=6), 0.05, 0.02
    of_length = {  # the subgradients of the dual norm
        "l1": np.where(np.abs(w) == np.abs(w).max(), np.sign(w), 0.0),
        "l2": w / np.linalg.norm(w),
        "linf": np.sign(w),
    }[norm]
    gradient = -radius * of_length - strength * np.sign(w)
    problem = bf.Problem(
        bf.Absolute(),
        PLAIN,
        over_samples=bf.WassersteinBall(radius, np.inf, norm),
        regulariser=bf.L1(strength),
    )
    minorant = Minorant(1.0, gradient, np.zeros(1), np.ones(1))
    bound, left = lower_bound(problem, minorant, Region(10.0, 10.0, 10.0, 1.0))
    assert left <= 1e-16
    assert bound == pytest.approx(1.0, abs=1e-14)


@cache
def optimum_of(place: int) -> float:
    case = BOUNDED[place]
    return bf.CentralConic().solve(case.problem, case.fed).value


@pytest.mark.parametrize("case", BOUNDED, ids=lambda c: c.name)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=5, deadline=None)
def test_any_duals_give_a_bound_below_the_optimum(case, seed):
    rng = np.random.default_rng(seed)
    D = case.problem.predictor.dimension(case.fed.n_features)
    K = int(rng.integers(1, 5))
    duals = bf.Duals(
        np.zeros(3), rng.normal(size=(K, D)) * rng.choice([0.01, 1, 10]), rng.random((K, 3))
    )
    w = rng.normal(size=D)
    certificate = bf.certify(case.problem, case.fed, w, duals)
    optimum = optimum_of(BOUNDED.index(case))
    assert certificate.value >= optimum * (1 - 1e-8)
    assert certificate.bound is None or certificate.bound <= optimum * (1 + 1e-8)
    assert certificate.gap is None or certificate.gap >= 0


@pytest.mark.parametrize("name", ["elastic", "mean"])
def test_spoiled_multipliers_of_an_optimum_prove_nothing_above_it(name):
    """Random ones are far from a proof: here a sum that is too large, and a negative multiplier of
    a cut that is low at the optimum, would each lift the bound above it, were they taken as given.
    """
    problem = KINDS[name]
    fed = federation(21, targets=problem.loss.targets)
    solution, central = bf.solve(problem, fed), bf.CentralConic().solve(problem, fed)
    weights = solution.certificate.weights
    far = solution.w + np.random.default_rng(0).normal(size=len(solution.w))
    points = np.stack([solution.w, far])
    for at_optimum, beside in ((1.0, 0.0), (1.01, 0.0), (0.99, 0.0), (1.001, -0.001)):
        multipliers = np.stack([at_optimum * weights, beside * weights])
        duals = bf.Duals(weights, points, multipliers)
        bound = bf.certify(problem, fed, solution.w, duals).bound
        assert bound is not None
        assert bound <= central.value * (1 + 1e-8)
        if at_optimum == 1:
            assert bound >= central.value * (1 - 1e-4)


def test_the_bound_is_recomputed_from_the_data():
    case = BOUNDED[0]
    solution = bf.solve(case.problem, case.fed)
    other = federation(99)
    there = bf.certify(case.problem, other, solution.w, solution.duals)
    central = bf.CentralConic().solve(case.problem, other)
    assert there.value >= central.value * (1 - 1e-9)
    assert there.bound is None or there.bound <= central.value * (1 + 1e-8)


def test_duals_survive_storage_bit_for_bit():
    from bonafed.rounds import decode, encode

    case = BOUNDED[1]
    solution = bf.solve(case.problem, case.fed)
    again = bf.certify(case.problem, case.fed, solution.w, decode(encode(solution.duals)))
    assert again.numbers() == solution.certificate.numbers()


@pytest.mark.parametrize("spoil", ["w", "points", "multipliers", "length"])
def test_spoiled_numbers_are_refused(spoil):
    case = BOUNDED[0]
    solution = bf.solve(case.problem, case.fed, max_rounds=4)
    w, duals = solution.w.copy(), solution.duals
    if spoil == "w":
        w[0] = np.nan
    elif spoil == "length":
        w = w[:-1]
    else:
        array = getattr(duals, spoil).copy()
        array.flat[0] = np.inf
        duals = replace(duals, **{spoil: array})
    with pytest.raises(ValueError, match="finite"):
        bf.certify(case.problem, case.fed, w, duals)


def test_without_duals_only_the_value_is_stated():
    case = BOUNDED[0]
    certificate = bf.certify(
        case.problem, case.fed, np.zeros(case.problem.predictor.dimension(8)), None
    )
    assert certificate.bound is None
    assert certificate.gap is None
    assert certificate.value == pytest.approx(
        case.problem.objective(np.zeros(9), case.fed), rel=1e-12
    )


def test_nothing_is_claimed_where_nothing_bounds_the_optimum():
    fed = federation(31)
    solution = bf.solve(bf.Problem(bf.Hinge(), PLAIN, over_clients=bf.LpBall(0.1)), fed)
    assert solution.certificate.bound is None
    assert any("No lower bound" in note for note in solution.notes)


@pytest.mark.parametrize("size", [1e9, 1e11, 1e13])
@pytest.mark.parametrize("loss", [bf.Absolute(), bf.Quantile(0.5), bf.Huber(0.5)])
def test_cuts_far_away_prove_nothing_above_the_optimum(loss, size):
    """The constant of a cut is then a difference of two numbers of that size, and where the cuts of
    two opposite models balance, the bound would be their rounding.
    """
    fed = federation(4, targets="real")
    rng = np.random.default_rng(int(np.log10(size)))
    fed = fed.with_targets([1e-9 * rng.normal(size=len(x)) for x in fed.X])
    problem = bf.Problem(loss, PLAIN, over_samples=bf.Mean(), regulariser=bf.L2(1e-3))
    optimum = problem.objective(np.zeros(fed.n_features), fed)  # and the best is no larger
    for _ in range(10):
        away = size * rng.normal(size=fed.n_features)
        points, multipliers = np.stack([away, -away]), np.full((2, fed.n_clients), 0.5)
        planted = bf.certify(
            problem, fed, np.zeros(fed.n_features), bf.Duals(np.zeros(3), points, multipliers)
        )
        assert planted.bound is not None
        assert planted.bound <= optimum


def test_what_rounding_adds_to_a_sum_over_many_clients_is_charged():
    """4,000 gradients of half a unit in the last place of a first one leave their sum as it was."""
    small = 0.49 * np.finfo(float).eps
    y = np.array([1.0, *[small] * 4000])
    fed = bf.Federation.from_arrays(np.ones((len(y), 2)), y, np.arange(len(y)))
    problem = bf.Problem(bf.Squared(), PLAIN, over_clients=bf.Sum(), regulariser=bf.L2(1.0))
    zero, ones = np.zeros(2), np.ones(len(y))
    duals = bf.Duals(ones, zero[None], ones[None])
    run = certify_concrete(*problem.at(fed), zero, duals)[1]
    told, scale = run.state.first, problem.loss.gradient(zero, np.ones(2))[0]
    lost = abs(Fraction(float(told.gradient[0])) - sum(map(Fraction, scale * y), Fraction(0)))
    assert 100 * np.finfo(float).eps < lost <= told.size[0]
