"""Conic forms of sets of weightings against CVXPY over the set itself: value, dual value and the
worst weighting.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from bonafed.solvers.conic.builder import Model
from bonafed.solvers.conic.weight_sets import Ball, Sorted, Tails, Weighting, comparators, of_ranks

TOL = 1e-7  # both solvers stop at 1e-8 or less, on numbers of order one


def check(
    weighting: Weighting, losses: np.ndarray, q: cp.Variable, constraints: list
) -> np.ndarray:
    model = Model()
    z = model.variable(len(losses))
    model.zero([(z, 1.0), -losses])
    read = weighting.add(model, z)
    solution = model.solve().checked("test")
    expected = cp.Problem(cp.Maximize(losses @ q), constraints).solve(solver="CLARABEL")
    weights = read(solution)
    assert_allclose([solution.value, solution.dual_value], expected, atol=TOL)
    assert_allclose([weights.sum(), weights @ losses], [1.0, expected], atol=1e-6)
    assert weights.min() >= -TOL
    return weights


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.4, math.inf])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_ball(p, radius):
    rng = np.random.default_rng(int(10 * radius) if math.isfinite(radius) else 7)
    losses, prior = rng.standard_normal(5), rng.dirichlet(np.ones(5))
    q = cp.Variable(5, nonneg=True)
    constraints = [cp.sum(q) == 1] + (
        [cp.norm(q - prior, p) <= radius] if math.isfinite(radius) else []
    )
    check(Ball(prior, radius, p), losses, q, constraints)


@pytest.mark.parametrize("tail", [1.0, 0.45, 0.2, 0.01])
def test_one_tail(tail):
    rng = np.random.default_rng(3)
    losses, prior = rng.standard_normal(5), rng.dirichlet(np.ones(5))
    q = cp.Variable(5, nonneg=True)
    weights = check(
        Tails(np.ones(1), prior[None] / tail), losses, q, [cp.sum(q) == 1, q <= prior / tail]
    )
    assert (weights <= prior / tail + TOL).all()


SIGMAS = {
    "mean": [0.2, 0.2, 0.2, 0.2, 0.2],
    "maximum": [0.0, 0.0, 0.0, 0.0, 1.0],
    "steps": [0.0, 0.1, 0.1, 0.4, 0.4],
    "rising": [0.02, 0.08, 0.15, 0.3, 0.45],
}


@pytest.mark.parametrize("digits", [0, 8], ids=["ties", "distinct"])
@pytest.mark.parametrize("sigma", SIGMAS.values(), ids=SIGMAS)
@pytest.mark.parametrize("form", [Sorted, of_ranks])
def test_ascending_weights_by_rank(form, sigma, digits):
    losses, sigma = np.round(np.random.default_rng(8).standard_normal(5), digits), np.array(sigma)
    # doubly stochastic matrices: all means of orders of sigma
    order = cp.Variable((5, 5), nonneg=True)
    constraints = [cp.sum(order, axis=0) == 1, cp.sum(order, axis=1) == 1]
    weights = check(form(sigma), losses, order @ sigma, constraints)
    assert_allclose(np.sort(losses) @ sigma, weights @ losses, atol=1e-6)


def test_few_jumps_are_tails_and_many_a_network():
    assert isinstance(of_ranks(np.repeat([0.0, 0.1], [30, 10])), Tails)
    rising = np.arange(40.0) / np.arange(40.0).sum()
    assert isinstance(of_ranks(rising), Sorted)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 100])
def test_the_network_sorts(n):
    z = np.random.default_rng(n).permutation(n)
    for first, second in comparators(n):
        assert len({*first, *second}) == 2 * len(first)
        z[first], z[second] = np.minimum(z[first], z[second]), np.maximum(z[first], z[second])
    assert (z == np.arange(n)).all()
