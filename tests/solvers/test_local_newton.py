"""Batched Newton, L-BFGS and proximal Newton against closed forms and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from bonafed.solvers.smooth.newton import lbfgs, newton
from bonafed.solvers.smooth.proximal_newton import Smooth, minimise
from bonafed.solvers.smooth.stepwise import mixing


def logistic(n, m, D, seed=0, stiff=100.0):
    """n regularised logistic losses with a squared positive part, which has kinks in its second
    derivative.
    """
    rng = np.random.default_rng(seed)
    X, a = rng.standard_normal((n, m, D)), rng.standard_normal((n, D))

    def function(v):
        z = np.einsum("nmd,nd->nm", X, v)
        over = np.maximum((a * v).sum(1) + 0.5, 0.0)
        value = np.logaddexp(0, z).mean(1) + stiff / 2 * over**2 + 0.05 * (v**2).sum(1)
        p = 1 / (1 + np.exp(-z))
        return value, np.einsum("nmd,nm->nd", X, p) / m + (stiff * over)[:, None] * a + 0.1 * v

    def hessian(v):
        z = np.einsum("nmd,nd->nm", X, v)
        p = 1 / (1 + np.exp(-z))
        over = ((a * v).sum(1) + 0.5 > 0) * stiff
        H = np.einsum("nmd,nm,nme->nde", X, p * (1 - p) / m, X)
        return H + over[:, None, None] * a[:, :, None] * a[:, None, :] + 0.1 * np.eye(D)

    return function, hessian


def alone(function, n, i, v):
    """Function i of n at v (D,)."""
    values, gradients = function(np.tile(v, (n, 1)))
    return float(values[i]), gradients[i]


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_minimisers_are_those_of_scipy(solver):
    n, D = 4, 6
    function, hessian = logistic(n, 30, D)
    start = np.random.default_rng(1).standard_normal((n, D))
    given = start.copy()
    found = (
        newton(function, hessian, start, 1e-10)
        if solver == "newton"
        else lbfgs(function, start, 1e-10)
    )
    assert (start == given).all()
    assert found.residual.max() <= 1e-10
    np.testing.assert_allclose(np.abs(function(found.v)[1]).max(1), found.residual, rtol=1e-6)
    for i in range(n):
        reference = minimize(
            lambda v, i=i: alone(function, n, i, v),
            start[i],
            jac=True,
            method="BFGS",
            options={"gtol": 1e-9},
        )
        np.testing.assert_allclose(found.v[i], reference.x, atol=1e-7)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_each_ends_where_it_ends_alone(solver):
    n, D = 5, 4
    function, hessian = logistic(n, 20, D, seed=3)
    # one of them nearly there
    start = np.random.default_rng(2).standard_normal((n, D)) * np.arange(n)[:, None]
    together = (
        newton(function, hessian, start, 1e-9)
        if solver == "newton"
        else lbfgs(function, start, 1e-9)
    )
    for i in range(n):
        others = np.zeros((n, D))
        others[i] = start[i]
        found = (
            newton(function, hessian, others, 1e-9)
            if solver == "newton"
            else lbfgs(function, others, 1e-9)
        )
        np.testing.assert_allclose(found.v[i], together.v[i], rtol=1e-12, atol=1e-13)
        assert found.iterations[i] == together.iterations[i]


def test_newton_solves_a_quadratic_in_one_step_and_starts_at_the_solution_without_one():
    A, b = np.diag([1.0, 1e6, 3.0])[None], np.array([[1.0, -2.0, 4.0]])
    found = newton(
        lambda v: ((v @ A[0] * v).sum(1) / 2 - (b * v).sum(1), v @ A[0] - b),
        lambda v: A,
        np.zeros((1, 3)),
        1e-9,
    )
    np.testing.assert_allclose(found.v, b / np.diag(A[0]), rtol=1e-12)
    assert found.iterations.tolist() == [1]
    again = newton(
        lambda v: ((v @ A[0] * v).sum(1) / 2 - (b * v).sum(1), v @ A[0] - b),
        lambda v: A,
        found.v,
        1e-9,
    )
    assert again.iterations.tolist() == [0]


def test_newton_leaves_a_saddle_where_the_function_is_not_convex():
    def function(v):  # (x^2 - 1)^2 + y^2: a saddle at 0
        x, y = v[:, 0], v[:, 1]
        return (x**2 - 1) ** 2 + y**2, np.stack([4 * x * (x**2 - 1), 2 * y], 1)

    def hessian(v):
        H = np.zeros((len(v), 2, 2))
        H[:, 0, 0], H[:, 1, 1] = 12 * v[:, 0] ** 2 - 4, 2
        return H

    found = newton(function, hessian, np.array([[0.1, 1.0], [-0.1, 2.0]]), 1e-10, convex=False)
    np.testing.assert_allclose(found.v, [[1, 0], [-1, 0]], atol=1e-9)


def test_the_cap_ends_a_search_and_the_residual_says_so():
    function, hessian = logistic(2, 20, 4)
    found = newton(function, hessian, np.full((2, 4), 3.0), 1e-12, cap=1)
    assert (found.residual > 1e-12).all()
    np.testing.assert_array_equal(found.residual, np.abs(function(found.v)[1]).max(1))


def test_values_that_are_not_finite_raise():
    with pytest.raises(ArithmeticError, match="not finite"):
        newton(lambda v: (v.sum(1), v * np.nan), lambda v: np.eye(2)[None], np.ones((1, 2)), 1e-9)


@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_proximal_newton_finds_the_kinks(l1):
    rng = np.random.default_rng(5)
    B, centre = rng.standard_normal((3, 8)), rng.standard_normal(8)
    H = 1e3 * B.T @ B + np.eye(8)
    upper = 0.4

    def prox(v, t):
        return np.minimum(np.sign(v) * np.maximum(np.abs(v) - t * l1, 0.0), upper)

    def penalty(v):
        return l1 * np.abs(v).sum() if (v <= upper).all() else np.inf

    def smooth(v):
        away = H @ (v - centre)
        return Smooth(float((v - centre) @ away) / 2, away, lambda: H)

    found = minimise(smooth, penalty, prox, np.zeros(8), 1e-9)
    assert found.reached
    v = found.w
    plus = minimize(  # v = a - b, a, b >= 0
        lambda x: (x[:8] - x[8:] - centre) @ H @ (x[:8] - x[8:] - centre) / 2 + l1 * x.sum(),
        np.full(16, 0.1),
        jac=lambda x: (
            np.concatenate([H @ (x[:8] - x[8:] - centre), -H @ (x[:8] - x[8:] - centre)]) + l1
        ),
        bounds=[(0, upper)] * 8 + [(0, None)] * 8,
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-9, "maxiter": 20000, "maxfun": 50000},
    ).x
    value = [
        (x - centre) @ H @ (x - centre) / 2 + penalty(x)
        for x in (v, np.minimum(plus[:8] - plus[8:], upper))
    ]
    assert value[0] <= value[1] + 1e-8 * abs(value[1])
    assert (v == upper).any() or (v == 0).any()


def test_mixing_minimises_the_mixed_residual():
    r = np.random.default_rng(0).standard_normal((4, 9))
    mix = mixing(r @ r.T, 0.0)
    assert abs(mix.sum() - 1) < 1e-12
    free = np.linalg.lstsq((r[1:] - r[:1]).T, -r[0], rcond=None)[0]
    np.testing.assert_allclose(mix @ r, r[0] + free @ (r[1:] - r[:1]), atol=1e-10)
    assert mixing(np.ones((1, 1))).tolist() == [1.0]
    assert mixing(np.full((3, 3), np.nan)).tolist() == [0.0, 0.0, 1.0]
    assert mixing(np.ones((3, 3))).tolist() == [0.0, 0.0, 1.0]  # no change of the residuals


def test_mixing_does_not_reach_far_beyond_points_that_hardly_differ():
    rng = np.random.default_rng(5)
    r = 1.0 + 1e-4 * rng.normal(size=(6, 40))
    for regularise in (0.0, 1e-10):
        mix = mixing(r @ r.T, regularise)
        assert np.abs(mix).sum() <= 30.0
        np.testing.assert_allclose(mix.sum(), 1.0)
    assert np.abs(mixing(r @ r.T, most=np.inf)).sum() > 30.0
