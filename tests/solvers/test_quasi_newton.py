"""L-BFGS as a state: minima of SciPy's test functions and quadratics, stored between evaluations,
hopeless searches.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import rosen, rosen_der

from bonafed.codec import decode, encode
from bonafed.problem.regularisers import L1, Ball, Bounds, ElasticNet, GroupL2, NormPenalty, Zero
from bonafed.solvers.smooth.stepwise import FEWER, MEMORY, Kink, begin, observe, restart


def minimise(phi, w, most=500, stored=False, small=1e-10):
    state = begin(w)
    for k in range(most):
        state = observe(state, *phi(state.trial))
        if stored:
            state = decode(encode(state))
        if state.failed or np.linalg.norm(state.gradient) < small:
            return state, k + 1
    return state, most


def quadratic(condition, n=30, seed=0):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    A, b = Q @ np.diag(np.geomspace(1, condition, n)) @ Q.T, rng.normal(size=n)
    return (lambda w: (w @ A @ w / 2 - b @ w, A @ w - b)), np.linalg.solve(A, b)


def test_rosenbrock():
    for n in (2, 10):
        state, count = minimise(lambda w: (rosen(w), rosen_der(w)), np.full(n, -1.2))
        assert_allclose(state.w, 1.0, rtol=1e-8)
        assert count < 150


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_quadratics_whatever_their_units(condition, scale):
    phi, solution = quadratic(condition)

    def scaled(w):
        value, gradient = phi(w)
        return scale * value, scale * gradient

    state, _ = minimise(scaled, np.zeros(30), most=1500, small=1e-9 * scale)
    assert_allclose(state.w, solution, atol=1e-7 * condition**0.5)


def test_storing_the_state_between_evaluations_changes_nothing():
    phi, _ = quadratic(1e3)
    one, count = minimise(phi, np.zeros(30))
    two, same = minimise(phi, np.zeros(30), stored=True)
    assert count == same
    assert_array_equal(one.w, two.w)
    assert len(one.pairs) <= MEMORY


KINKS = (
    L1(0.2),
    ElasticNet(0.2, 0.1),
    Bounds(-0.05, 0.02),
    Ball(0.3),
    GroupL2(0.2, tuple(np.arange(30) // 5)),
    *(NormPenalty(Zero(), 0.5, kind) for kind in ("l1", "l2", "linf")),
)


@pytest.mark.parametrize("h", KINKS, ids=repr)
@pytest.mark.parametrize("condition", [1.0, 1e3])
@pytest.mark.parametrize("units", [0.0, 3.0])
def test_kinks_end_where_a_proximal_step_stays(h, condition, units):
    """The minimum is a fixed point of the prox, every point asked about has a finite h, no accepted
    one is higher, and storing the state changes nothing.
    """
    scales = 10.0 ** np.random.default_rng(1).uniform(-units, units, 30)
    phi, _ = quadratic(condition)

    def scaled(w):
        value, gradient = phi(w * scales)
        return value, gradient * scales

    kink = Kink(h.value, lambda v, metric: h.prox(v, 1 / metric), scales)
    state, values, still = begin(np.zeros(30)), [], 0.0
    for _ in range(500):
        assert h.value(state.trial) < np.inf
        value, gradient = scaled(state.trial)
        state = observe(state, value + h.value(state.trial), gradient, kink)
        assert_array_equal(decode(encode(state)).trial, state.trial)
        if state.accepted:
            values.append(state.value)
            metric = condition * scales**2
            near = kink.prox(state.w - state.gradient / metric, metric)
            still = np.linalg.norm((near - state.w) * scales)
        if state.failed or still < 1e-9:
            break
    assert still < 1e-7
    assert len(state.pairs) <= FEWER
    assert (np.diff(values) <= 1e-11 * np.abs(values[1:])).all()


def test_every_accepted_point_is_lower_and_meets_the_curvature_condition():
    state, phi = begin(np.full(6, -1.2)), lambda w: (rosen(w), rosen_der(w))
    last = np.inf
    for _ in range(60):
        old = state
        state = observe(state, *phi(state.trial))
        if state.accepted and np.isfinite(old.value):
            assert state.value < last
            assert old.direction @ state.gradient >= 0.9 * (old.direction @ old.gradient) - 1e-12
        if state.accepted:
            last = state.value
            assert_array_equal(state.w, old.trial)
            assert state.direction @ state.gradient < 0


def test_values_that_are_not_finite_shorten_the_step():
    def phi(w):  # finite below 1 only, its minimum at 1 - 1e-3
        return (
            (-np.log(1 - w[0]) - 1000 * w[0], np.array([1 / (1 - w[0]) - 1000]))
            if w[0] < 1
            else (np.inf, w)
        )

    state, _ = minimise(phi, np.zeros(1))
    assert_allclose(state.w, 1 - 1e-3, rtol=1e-9)


def test_a_kink_and_a_minimum_to_rounding_end_the_search():
    state, count = minimise(lambda w: (abs(w[0] - 0.3), np.sign(w - 0.3)), np.ones(1), most=400)
    assert state.failed or abs(state.w[0] - 0.3) < 1e-9
    phi, solution = quadratic(10.0)
    state, count = minimise(phi, np.zeros(30), most=400, small=0.0)
    assert state.failed
    assert count < 400
    assert_allclose(state.w, solution, atol=1e-6)


def test_restart_goes_on_with_another_function_from_the_same_point():
    phi, _ = quadratic(50.0)
    state, _ = minimise(phi, np.zeros(30), most=10)
    other, solution = quadratic(50.0, seed=1)
    for keep in (True, False):
        again = restart(state, *other(state.w), keep=keep)
        assert_array_equal(again.w, state.w)
        assert (len(again.pairs) > 0) == keep
        for _ in range(200):
            again = observe(again, *other(again.trial))
        assert_allclose(again.w, solution, atol=1e-6)
