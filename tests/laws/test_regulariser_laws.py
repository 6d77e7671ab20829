"""What every regulariser must satisfy: prox, conjugate, convexity constants and radius mean what
they say.
"""

import math

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from bonafed.functional import prox
from bonafed.problem.regularisers import (
    L1,
    L2,
    MCP,
    SCAD,
    Ball,
    Bounds,
    ElasticNet,
    GroupL2,
    Regulariser,
    SupportsConjugate,
    Zero,
)
from examples import REGULARISERS

LAW = settings(deadline=None, max_examples=30)
vectors = st.lists(st.integers(-4, 4).map(float) | st.floats(-8, 8), min_size=4, max_size=4).map(
    np.array
)
steps = st.sampled_from([0.1, 1.0, 1.5, 4.0])
GRID = np.linspace(-10, 10, 401)
CONVEX = [h for h in REGULARISERS if isinstance(h, SupportsConjugate)]
each = pytest.mark.parametrize("h", REGULARISERS, ids=str)
each_convex = pytest.mark.parametrize("h", CONVEX, ids=str)


@each
@LAW
@given(v=vectors, step=steps)
def test_prox_is_a_global_minimiser(h, v, step):
    """Against every grid point in every coordinate: a separable minimiser cannot be improved in one
    coordinate.
    """
    before = v.copy()
    best = prox(h, v, step)
    assert_array_equal(v, before)
    total = step * h.value(best) + ((best - v) ** 2).sum() / 2
    for j in range(4):
        for x in GRID[::8]:
            other = best.copy()
            other[j] = x
            assert total <= step * h.value(other) + ((other - v) ** 2).sum() / 2 + 1e-12
    assert_allclose(h.prox(v, np.full(4, step)), best, rtol=0, atol=0)


@each
@LAW
@given(a=vectors, b=vectors, t=st.floats(0, 1))
def test_convexity_constants(h, a, b, t):
    """h + r/2 ||.||^2 is convex for r = weak_convexity - strong_convexity."""
    if not math.isfinite(h.value(a) + h.value(b)):
        return
    curve = h.weak_convexity - h.strong_convexity

    def lifted(w):
        return h.value(w) + curve / 2 * (w @ w)

    assert lifted(t * a + (1 - t) * b) <= t * lifted(a) + (1 - t) * lifted(b) + 1e-11


@pytest.mark.parametrize("h", [MCP(0.8, 1.5), SCAD(0.8, 2.5)], ids=str)
def test_weak_convexity_is_tight(h):
    """With 0.99 of the constant a midpoint inequality fails somewhere on the curved part."""
    a, b = np.array([0.85 * 1.2]), np.array([0.85 * 1.2 + 0.1])
    curve = 0.99 * h.weak_convexity
    lifted = [h.value(w) + curve / 2 * (w @ w) for w in (a, (a + b) / 2, b)]
    assert lifted[1] > (lifted[0] + lifted[2]) / 2


@each_convex
@LAW
@given(w=vectors, v=vectors)
def test_fenchel_young(h, w, v):
    assert h.value(w) + h.conjugate(v) >= w @ v - 1e-11
    # equality at v in the subdifferential of h at w, which the prox gives: w = prox_h(w + v)
    near = h.prox(v, 1.0)
    gradient = v - near
    if math.isfinite(h.conjugate(gradient)):  # L1's gradient may leave its ball by rounding
        assert_allclose(h.value(near) + h.conjugate(gradient), near @ gradient, rtol=0, atol=1e-10)
    else:
        assert_allclose(
            h.conjugate(gradient * (1 - 1e-14)) + h.value(near), near @ gradient, rtol=0, atol=1e-10
        )


@each
@LAW
@given(w=vectors)
def test_domain_radius_holds(h, w):
    value = h.value(w)
    assert isinstance(h, Regulariser)
    assert not math.isfinite(value) or np.linalg.norm(w) <= h.domain_radius(value, 4) * (1 + 1e-12)


def test_domain_radius_is_tight():
    for h in (L1(0.7), L2(0.4), ElasticNet(0.3, 0.5), ElasticNet(0.0, 0.5), ElasticNet(0.3, 0.0)):
        assert h.domain_radius(h.value(np.array([0.0, -2.5])), 2) == pytest.approx(2.5, rel=1e-14)
    assert Bounds(-1.0, 2.0).domain_radius(0.0, 9) == 6.0
    assert Ball(2.0).domain_radius(0.0, 9) == 2.0
    assert Ball(2.0, 1.0).domain_radius(0.0, 9) == 5.0
    assert (
        Zero().domain_radius(1.0, 3)
        == L1(0.0).domain_radius(1.0, 3)
        == ElasticNet(0, 0).domain_radius(1.0, 3)
        == math.inf
    )


def test_prox_against_a_conic_solver():
    v, step = np.array([2.0, -0.1, 0.7, -3.0]), 0.8
    w = cp.Variable(4)
    models = {
        L1(0.7): 0.7 * cp.norm1(w),
        L2(0.4): 0.2 * cp.sum_squares(w),
        ElasticNet(0.3, 0.5): 0.3 * cp.norm1(w) + 0.25 * cp.sum_squares(w),
    }
    for h, model in models.items():
        cp.Problem(cp.Minimize(step * model + cp.sum_squares(w - v) / 2)).solve(solver=cp.CLARABEL)
        assert_allclose(h.prox(v, step), w.value, rtol=0, atol=1e-5)
    centre = np.array([1.0, 0.0, -1.0, 0.5])
    inside = [cp.norm2(w - centre) <= 1.5]
    cp.Problem(cp.Minimize(cp.sum_squares(w - v)), inside).solve(solver=cp.CLARABEL)
    assert_allclose(Ball(1.5, centre).prox(v, step), w.value, rtol=0, atol=1e-5)


@LAW
@given(v=vectors, radius=st.floats(1e-12, 1e12), centre=vectors | st.sampled_from([0.0, 1.0, -1e9]))
def test_the_projection_onto_a_ball_lies_in_it(v, radius, centre):
    """Whatever the rounding: a model outside would have an infinite objective."""
    if radius > 1e-13 * np.abs(centre).max():
        assert Ball(radius, centre).value(Ball(radius, centre).prox(v, 1.0)) == 0.0


@LAW
@given(v=vectors, steps=st.lists(st.floats(1e-6, 1e6), min_size=4, max_size=4))
def test_lengths_have_a_prox_with_a_step_for_each_entry(v, steps):
    """(v - w) / steps is a subgradient of h at w."""
    step, groups = np.array(steps), np.array([0, 1, 0, 1])
    h = GroupL2(0.4, (0, 1, 0, 1))
    w = h.prox(v, step)
    push, weight = (v - w) / step, 0.4 * math.sqrt(2)
    for g in (0, 1):
        mine, length = groups == g, np.linalg.norm(w[groups == g])
        if length == 0:
            assert np.linalg.norm(push[mine]) <= weight * (1 + 1e-12)
        else:  # v - w is what its digits leave of v
            rounding = 1e-12 + 1e-15 * np.abs(v[mine]).max() / step[mine]
            off = np.abs(push[mine] - weight * w[mine] / length)
            assert (off <= rounding * weight + 1e-14 * np.abs(v[mine]) / step[mine]).all()
    ball = Ball(0.5, np.array([1.0, 0.0, -1.0, 0.5]))
    w = ball.prox(v, step)
    assert ball.value(w) == 0.0
    if ball.value(v) == 0:
        assert_array_equal(w, v)
    # no other point of the ball is nearer, but for rounding
    others = np.random.default_rng(0).standard_normal((50, 4))
    others = ball.centre + 0.5 * others / np.linalg.norm(others, axis=1, keepdims=True)
    terms = (w - v) / step * (others - w)
    assert (terms.sum(1) >= -1e-9 * np.abs(terms).sum(1)).all()


def test_limits_of_the_concave_penalties():
    v = np.linspace(-5, 5, 21)
    for h in (MCP(0.8, 1e9), SCAD(0.8, 1e9)):
        assert_allclose(h.prox(v, 1.0), L1(0.8).prox(v, 1.0), atol=1e-7)
        assert_allclose(h.value(v), L1(0.8).value(v), rtol=1e-8)
    # no bias on large entries
    assert_array_equal(MCP(0.8, 1.5).prox(np.array([10.0]), 1.0), [10.0])
    assert_array_equal(SCAD(0.8, 3.7).prox(np.array([10.0]), 1.0), [10.0])
    assert MCP(0.0, 1.5).weak_convexity == SCAD(0.0).weak_convexity == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: L1(-1.0), "strength must be a number >= 0, got -1.0"),
        (lambda: L2(math.nan), "strength must be a number >= 0, got nan"),
        (lambda: ElasticNet(-0.1, 1.0), "l1 must be a number >= 0"),
        (lambda: ElasticNet(0.1, math.inf), "l2 must be a number >= 0"),
        (lambda: MCP(1.0, 0.0), "gamma must be a number > 0, got 0.0"),
        (lambda: SCAD(1.0, 2.0), "a must be a number > 2, got 2.0"),
        (lambda: Ball(0.0), "radius must be a number > 0, got 0.0"),
        (lambda: Ball(math.inf), "radius must be a number > 0, got inf"),
        (lambda: Ball(1.0, math.nan), "centre must be a finite number, or one for each"),
        (lambda: Bounds(1.0, 0.0), "lower <= upper"),
        (lambda: Bounds(math.nan, 0.0), "lower <= upper"),
    ],
)
def test_bad_parameters_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
