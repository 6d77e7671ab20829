"""Projections and oracles of lp-balls against a conic solver, a closed form or a proof, small and
large.
"""

import math
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bonafed.solvers.sets.projections import (
    clip_to_sum,
    decreasing_root,
    dual_exponent,
    largest_over_lp_ball,
    lp_norm,
    project_lp_ball,
    project_lp_unit_ball,
    project_simplex,
)

POWERS = [1, 1.05, 1.5, 2, 3.7, 20.0, math.inf]


def conic_norm(v, p):
    return cp.norm(v, p) if p in (1, 2, math.inf) else cp.pnorm(v, p, approx=False)


# the power cones of other p defeat the solver
@pytest.mark.parametrize("p", [1, 1.5, 2, 3.7, math.inf])
def test_against_a_conic_solver(p):
    rng = np.random.default_rng(7)
    for turn in range(12):
        n = int(rng.integers(2, 7))
        prior, radius = rng.dirichlet(np.full(n, 0.7)), float(rng.choice([0.05, 0.3, 0.8]))
        z = np.round(rng.standard_normal(n), 1 if turn % 2 else 8)
        q = cp.Variable(n)
        ball = [q >= 0, cp.sum(q) == 1, conic_norm(q - prior, p) <= radius]
        best = cp.Problem(cp.Maximize(z @ q), ball).solve(solver=cp.CLARABEL)
        assert_allclose(z @ largest_over_lp_ball(z, prior, radius, p)[0], best, rtol=0, atol=1e-6)
        cp.Problem(cp.Minimize(cp.sum_squares(q - z)), ball).solve(solver=cp.CLARABEL)
        # Clarabel stops at 1e-8 in the objective, so within about its root in q
        assert_allclose(project_lp_ball(z, prior, radius, p), q.value, rtol=0, atol=2e-4)
        d = cp.Variable(n)
        cp.Problem(cp.Minimize(cp.sum_squares(d - 2 * z)), [conic_norm(d, p) <= 1]).solve(
            solver=cp.CLARABEL
        )
        assert_allclose(project_lp_unit_ball(2 * z, p), d.value, rtol=0, atol=2e-4)


@pytest.mark.parametrize("p", POWERS)
@settings(deadline=None, max_examples=25)
@given(
    v=st.lists(st.integers(-3, 3).map(float) | st.floats(-3, 3), min_size=1, max_size=6),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
)
def test_unit_ball_is_nearest(p, v, scale):
    v = np.array(v) * scale
    before = v.copy()
    d = project_lp_unit_ball(v, p)
    assert lp_norm(d, p) <= 1 + 1e-14
    assert_array_equal(v, before)
    # nearest <=> (v - d)'d is the support function ||v - d||_p* of the ball
    rest = v - d
    assert lp_norm(rest, dual_exponent(p)) - rest @ d <= 1e-13 * max(1.0, np.abs(v).max()) * len(v)


@pytest.mark.parametrize("p", POWERS)
def test_hard_inputs_are_proved_optimal(p):
    """Tiny radii, zero and tiny priors, near ties, offsets: duality proves each within rounding."""
    rng = np.random.default_rng(8)
    for turn in range(60):
        n = int(rng.integers(1, 12))
        prior = rng.dirichlet(np.full(n, rng.choice([0.1, 1.0, 10.0])))
        radius = 10 ** rng.uniform(-9, 0.4)
        z = rng.standard_normal(n)
        z = (
            z,
            np.round(z),
            np.exp(10 * z),
            1 + 1e-9 * z,
            np.round(z) + 1e-14 * z,
            z + 1e9 * (z > 0),
        )[turn % 6]
        q, bound = largest_over_lp_ball(z, prior, radius, p)
        size = np.abs(z).max()
        assert -1e-14 * size <= bound - q @ z <= 1e-11 * radius * np.ptp(z) + 5e-14 * size
        assert lp_norm(q - prior, p) <= radius + 1e-15
        near = project_lp_ball(z, prior, radius, p)
        rest = (z - near) - (z - near).max()
        assert largest_over_lp_ball(rest, prior, radius, p)[1] - rest @ near <= 1e-11 * max(
            1.0, np.abs(rest).max()
        )


@pytest.mark.parametrize("p", [1, 2, math.inf])
def test_a_hundred_thousand_clients(p):
    rng = np.random.default_rng(9)
    prior, z = rng.dirichlet(np.ones(100_000)), rng.lognormal(size=100_000)
    q, bound = largest_over_lp_ball(z, prior, 0.003, p)
    assert 0 <= bound - q @ z <= 1e-12 * z.max()
    near = project_lp_ball(z / 1000, prior, 0.003, p)
    assert abs(near.sum() - 1) <= 1e-14
    rest = z / 1000 - near
    assert largest_over_lp_ball(rest, prior, 0.003, p)[1] - rest @ near <= 1e-12


def test_closed_forms():
    assert_allclose(project_simplex(np.array([0.6, 0.6, -1.0])), [0.5, 0.5, 0.0], rtol=1e-15)
    assert_allclose(project_simplex(np.array([5.0, 1.0]), total=8.0), [6.0, 2.0], rtol=1e-15)
    assert_allclose(project_simplex(np.array([1, 1, 1])), np.full(3, 1 / 3), rtol=1e-15)
    assert_allclose(project_lp_unit_ball(np.array([3.0, -4.0]), 2), [0.6, -0.8], rtol=1e-15)
    assert_allclose(project_lp_unit_ball(np.array([3.0, -2.5]), 1), [0.75, -0.25], rtol=1e-15)
    uniform = np.full(4, 0.25)
    z = np.array([4.0, 3.0, 2.0, 1.0])
    assert_allclose(
        largest_over_lp_ball(z, uniform, 0.2, 1)[0], [0.35, 0.25, 0.25, 0.15], rtol=1e-15
    )
    assert_allclose(
        largest_over_lp_ball(z, uniform, 0.2, math.inf)[0], [0.45, 0.45, 0.05, 0.05], rtol=1e-14
    )
    centred = (z - 2.5) / np.linalg.norm(z - 2.5)
    assert_allclose(
        largest_over_lp_ball(z, uniform, 0.2, 2)[0], uniform + 0.2 * centred, rtol=1e-14
    )


def test_norms_do_not_overflow():
    assert lp_norm(np.array([3e200, 4e200]), 2) == pytest.approx(5e200)
    assert lp_norm(np.array([3e-200, 4e-200]), 2) == pytest.approx(5e-200)
    assert [dual_exponent(p) for p in (1, 2, 4, math.inf)] == [math.inf, 2, 4 / 3, 1]


def test_root_in_a_kinked_and_in_a_steep_function():
    lo, hi = decreasing_root(
        lambda x: (max(1 - 3 * x, 0.1 - x / 4), -3.0 if x < 0.327 else -0.25), -5, 5
    )
    assert lo <= 0.4 * (1 + 1e-15)
    assert hi - lo <= 1e-14
    lo, hi = decreasing_root(
        lambda x: (-math.copysign(abs(x - 0.3) ** 0.1, x - 0.3), -math.inf), 0.0, 1.0
    )
    assert lo <= 0.3 <= hi
    assert hi - lo <= 1e-14


@pytest.mark.parametrize(
    "bad", [np.array([1.0, math.nan]), np.array([math.inf]), np.array([]), np.ones((2, 2))]
)
def test_bad_vectors_are_refused(bad):
    for call in (
        project_simplex,
        lambda v: project_lp_unit_ball(v, 2),
        lambda v: project_lp_ball(v, v, 0.1, 2),
    ):
        with pytest.raises(ValueError, match="vector of finite numbers"):
            call(bad)


@pytest.mark.parametrize("scale", [1e10, 1e20, 1e30, 1e100, 1e300])
def test_points_of_any_size_between_limits_sum_to_the_total(scale):
    rng = np.random.default_rng(1)
    lower, upper = np.array([0.1, 0.0, 0.05, 0.0]), np.array([0.3, 0.5, 0.4, 0.6])
    for v in (*rng.normal(size=(5, 4)), 0.6 + 1e-16 * np.arange(4.0), np.ones(4)):
        q = clip_to_sum(v * scale, lower, upper, 1.0)
        assert abs(q.sum() - 1) <= 1e-14
        assert (q >= lower).all()
        assert (q <= upper).all()
        inner = (q > lower + 1e-12) & (q < upper - 1e-12)
        order = np.argsort(-v)  # all below a client that may still take more are at their least
        for j, i in pairwise(order):
            assert v[j] * scale - v[i] * scale <= 1 or not inner[j] or q[i] <= lower[i] + 1e-12


@pytest.mark.parametrize("n", [1000, 100_000])
def test_weights_of_many_clients_sum_to_one_after_rounding(n: int) -> None:
    """Also the multipliers of a program, in which every client has a little of what counts as 0."""
    rng, prior = np.random.default_rng(n), np.full(n, 1 / n)
    near = 3e-14 * rng.random(n)
    near[:10] = 0.1 + 1 / n + 1e-13
    near[9] = 1 - near[:9].sum()
    for v in (near, rng.random(n), 2 * rng.random(n) / n, rng.normal(size=n)):
        onto = [project_lp_ball(v, prior, 0.1, p) for p in (1.0, 2.0, math.inf)]
        for q in (project_simplex(v), *onto):
            assert q.min() >= 0
            assert abs(q.sum() - 1) <= 1e-13
