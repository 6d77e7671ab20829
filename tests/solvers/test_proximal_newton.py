"""Proximal Newton against Clarabel; its distance is a bound on the true one; its cap is no
success.
"""

import math

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from bonafed.problem.regularisers import L1, L2, Bounds, ElasticNet, Zero
from bonafed.solvers.smooth.proximal_newton import Smooth, _accelerated, minimise, model_minimum

PENALTIES = [
    (Zero(), lambda w: 0.0),
    (L1(0.3), lambda w: 0.3 * cp.norm1(w)),
    (L2(0.5), lambda w: 0.25 * cp.sum_squares(w)),
    (ElasticNet(0.2, 0.3), lambda w: 0.2 * cp.norm1(w) + 0.15 * cp.sum_squares(w)),
    (Bounds(-0.4, np.array([0.1, 0.5, np.inf, 2.0, 0.2, 0.0, 0.3, 1.0])), None),
]


def quadratic(seed, d=8, condition=1e4):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((d, d)))[0]
    H = (Q * np.geomspace(1 / condition, 1, d)) @ Q.T
    return (H + H.T) / 2, 0.7 * rng.standard_normal(d)


def logistic(seed, m=40, d=8):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, d)) * np.geomspace(0.3, 3, d)
    sign = np.where(rng.random(m) < 0.5, -1.0, 1.0)

    def g(w):
        t = sign * (X @ w)
        p = 1 / (1 + np.exp(t))
        gradient = -(X.T @ (sign * p)) / m + 1e-3 * w
        value = np.logaddexp(0, -t).mean() + 5e-4 * w @ w
        return Smooth(value, gradient, lambda: (X.T * (p * (1 - p) / m)) @ X + 1e-3 * np.eye(d))

    return g, X, sign


@pytest.mark.parametrize(("h", "curve"), PENALTIES)
@pytest.mark.parametrize("seed", range(4))
def test_models_are_minimised(h, curve, seed):
    H, gradient = quadratic(seed, condition=1e2)
    w0 = np.full(8, 0.05) if not isinstance(h, Bounds) else h.prox(np.full(8, 0.05), 1.0)
    v, s = model_minimum(gradient, H, h.prox, w0)
    w = cp.Variable(8)
    model = gradient @ (w - w0) + cp.quad_form(w - w0, cp.psd_wrap(H)) / 2
    asked = (
        [] if curve else [w >= h.lower, w[np.isfinite(h.upper)] <= h.upper[np.isfinite(h.upper)]]
    )
    cp.Problem(cp.Minimize(model + (curve(w) if curve else 0.0)), asked).solve(
        solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
    )
    assert_allclose(v, w.value, atol=1e-5)
    assert np.abs(gradient + H @ (v - w0) + s).max() <= 1e-11
    again, t = _accelerated(gradient, H, h.prox, w0)
    assert_allclose(again, v, atol=1e-6)
    assert np.abs(gradient + H @ (again - w0) + t).max() <= 1e-6


@pytest.mark.parametrize(("h", "curve"), PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_minima_against_clarabel(h, curve, seed):
    g, X, sign = logistic(seed)
    found = minimise(g, h.value, h.prox, np.zeros(8), 1e-9)
    assert found.reached
    assert found.distance <= 1e-9
    w = cp.Variable(8)
    f = cp.sum(cp.logistic(cp.multiply(-sign, X @ w))) / len(sign) + 5e-4 * cp.sum_squares(w)
    asked = (
        [] if curve else [w >= h.lower, w[np.isfinite(h.upper)] <= h.upper[np.isfinite(h.upper)]]
    )
    value = cp.Problem(cp.Minimize(f + (curve(w) if curve else 0.0)), asked).solve(
        solver="CLARABEL"
    )
    assert_allclose(found.smooth.value + h.value(found.w), value, rtol=1e-7)


@pytest.mark.parametrize(("h", "curve"), PENALTIES)
def test_the_distance_is_of_a_subgradient_at_the_point(h, curve):
    g, _, _ = logistic(5)
    for cap in range(1, 8):
        found = minimise(g, h.value, h.prox, np.zeros(8), 0.0, cap)
        assert found.reached == (found.distance == 0)
        if found.distance < math.inf:
            assert_allclose(
                found.distance,
                np.abs(g(found.w).gradient + found.subgradient).max(),
                rtol=1e-6,
                atol=1e-15,
            )
            for step in (0.1, 1.0, 10.0):  # s in dh(w) exactly where w = prox(w + t s)
                assert_allclose(
                    h.prox(found.w + step * found.subgradient, step), found.w, atol=1e-12
                )


def test_ill_conditioned_quadratics_take_one_step():
    H, gradient = quadratic(3, condition=1e8)
    found = minimise(
        lambda w: Smooth(float(gradient @ w + w @ H @ w / 2), gradient + H @ w, lambda: H),
        Zero().value,
        Zero().prox,
        np.zeros(8),
        1e-7,
    )
    assert found.reached
    assert found.evaluations <= 4
    assert_allclose(H @ found.w, -gradient, atol=1e-7)


def test_saddles_are_left():
    def g(w):  # (w_0^2 - 1)^2 / 4 + w_1^2 / 2, with a saddle at 0
        return Smooth(
            (w[0] ** 2 - 1) ** 2 / 4 + w[1] ** 2 / 2,
            np.array([w[0] ** 3 - w[0], w[1]]),
            lambda: np.diag([3 * w[0] ** 2 - 1, 1.0]),
        )

    found = minimise(g, Zero().value, Zero().prox, np.array([1e-3, 1.0]), 1e-10)
    assert found.reached
    assert_allclose(found.w, [1.0, 0.0], atol=1e-9)
