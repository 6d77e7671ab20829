"""Scalar losses and their proxes: residuals in 60 digits, a bracketing root finder, duality,
extremes.
"""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
import rank_oracles as slow
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq

from bonafed.solvers.rank.proxes import (
    EXPONENTIAL,
    LINEAR,
    LOGISTIC,
    PLUS,
    RAMP,
    Kernel,
    conjugates_of,
    gradient_at,
    loss_at,
    losses_of,
    prox_at,
    prox_each,
    prox_gradients_at,
)

EPS = 2.0**-52
STEPS = st.floats(1e-3, 1e6)
POINTS = st.floats(-1e3, 1e3)


def parts(kernel):
    return kernel.kind, kernel.knot, kernel.width


def off(kind, c, m, v):
    """How far v is from the root of f(v) = c l'(v) + v - m: |f(v)| / f'(v), computed in 60
    digits.
    """
    with localcontext() as context:
        context.prec = 60
        c, m, v = Decimal(c), Decimal(m), Decimal(v)
        if kind == LOGISTIC:
            s = 1 / (1 + (-v).exp()) if v > 0 else v.exp() / (1 + v.exp())
            bend = s * (1 - s)
        else:
            s = bend = v.exp()
        return float(abs(c * s + v - m) / (1 + c * bend))


@settings(max_examples=400, deadline=None)
@given(c=STEPS, m=POINTS)
@example(c=1e6, m=0.0)
@example(c=1e6, m=5e5)
@example(c=100.0, m=50.0)
@example(c=1e-3, m=1e3)
@example(c=1e6, m=1e3)
@example(c=1e6, m=-1e3)
def test_iterated_proxes_are_right_to_rounding(c, m):
    for kind in (LOGISTIC, EXPONENTIAL):
        v = prox_at(kind, 0.0, 1.0, c, m)
        assert off(kind, c, m, v) <= 4 * EPS * max(1.0, abs(v), abs(m)), (kind, v)


@pytest.mark.parametrize("kind", [LOGISTIC, EXPONENTIAL])
def test_iterated_proxes_on_a_grid(kind):
    """Nothing cycles, whatever the step: every power of ten, on both sides and at c / 2, where the
    sides meet.
    """
    for c in 10.0 ** np.arange(-300, 290):
        for m in (
            0.0,
            c / 2,
            c,
            -c,
            *10.0 ** np.arange(-12.0, 10.0, 3),
            *-(10.0 ** np.arange(-12.0, 10.0, 3)),
        ):
            if abs(m) > 1e9:
                continue
            v = prox_at(kind, 0.0, 1.0, c, m)
            assert off(kind, c, m, v) <= 4 * EPS * max(1.0, abs(v), abs(m), abs(math.log(c))), (
                c,
                m,
                v,
            )


@pytest.mark.parametrize("kernel", slow.KERNELS, ids=slow.name)
def test_proxes_against_a_bracketing_root_finder(kernel):
    rng = np.random.default_rng(3)
    for c, m in zip(
        10 ** rng.uniform(-3, 6, 150),
        rng.choice([1, 30, 1e3], 150) * rng.uniform(-1, 1, 150),
        strict=True,
    ):
        v = prox_at(*parts(kernel), c, m)
        f = lambda x, c=c, m=m: float(c * slow.gradient(kernel, np.array(x)) + x - m)  # noqa: E731
        low = min(m, 0.0, kernel.knot) - c * max(1.0, kernel.width) - 1.0
        root = brentq(f, low, m + 1.0, xtol=1e-13, rtol=4 * EPS)
        assert_allclose(v, root, rtol=1e-11, atol=1e-11 * max(1.0, abs(m)))


@pytest.mark.parametrize("kernel", slow.KERNELS + slow.EVEN, ids=slow.name)
@settings(max_examples=60, deadline=None)
@given(c=st.one_of(st.just(0.0), STEPS), m=POINTS, step=st.floats(0, 10))
def test_proxes_do_not_expand_and_rise(kernel, c, m, step):
    v, w = prox_at(*parts(kernel), c, m), prox_at(*parts(kernel), c, m + step)
    room = 16 * EPS * max(1.0, abs(m), abs(v))
    assert v - room <= w <= v + (m + step - m) + room + 16 * EPS * abs(w)
    assert v <= m + room
    if c == 0:
        assert v == m


def test_extremes():
    for kernel in slow.KERNELS:
        assert prox_at(*parts(kernel), 0.0, 1e9) == 1e9
        assert prox_at(*parts(kernel), 1e300, 0.0) <= 0.0
    assert prox_at(PLUS, -1.0, 1.0, math.inf, 3.0) == -1.0
    assert prox_at(RAMP, -1.0, 1.0, math.inf, 3.0) == -1.0
    assert prox_at(RAMP, 0.0, math.inf, 3.0, 8.0) == 2.0
    for kind in (LINEAR, LOGISTIC, EXPONENTIAL):  # c l has no minimiser there
        assert prox_at(kind, 0.0, 1.0, math.inf, 3.0) == -math.inf
    v = prox_at(EXPONENTIAL, 0.0, 1.0, 1e-5, 1e9)
    assert_allclose(1e-5 * math.exp(v) + v, 1e9, rtol=1e-13)


@pytest.mark.parametrize("kernel", slow.KERNELS, ids=slow.name)
@pytest.mark.parametrize("n", [1, 7, 255, 256, 257, 1000])
def test_side_by_side_is_the_same_bits_as_alone(kernel, n):
    rng = np.random.default_rng(n)
    m, sigma = 10 * rng.standard_normal(n), 10 ** rng.uniform(-3, 4, n) * (rng.random(n) < 0.7)
    alone = [prox_at(*parts(kernel), c, v) for c, v in zip(sigma * 0.5, m, strict=True)]
    z = np.empty(n)
    prox_each(*parts(kernel), m, sigma, 0.5, z)
    assert_array_equal(z, alone)
    prox_each(*parts(kernel), m, 0 * sigma, 0.5, z)
    assert_array_equal(z, m)


@pytest.mark.parametrize("kernel", slow.KERNELS + slow.EVEN, ids=slow.name)
def test_losses_gradients_and_conjugates(kernel):
    t = np.concatenate(
        [np.linspace(-6, 6, 241), [-800.0, kernel.knot, kernel.knot + min(kernel.width, 9.0)]]
    )
    assert_allclose(losses_of(t, kernel), slow.loss(kernel, t), rtol=1e-14, atol=1e-300)
    for x in np.linspace(-6.001, 6.002, 40):
        low, high = (loss_at(*parts(kernel), x + d) for d in (-1e-6, 1e-6))
        assert_allclose(gradient_at(*parts(kernel), x), (high - low) / 2e-6, rtol=1e-6, atol=1e-8)
        s = gradient_at(*parts(kernel), x)
        touch = s * x - loss_at(*parts(kernel), x)
        # Fenchel-Young, with equality
        assert_allclose(conjugates_of(np.array([s]), kernel), touch, rtol=1e-10, atol=1e-12)
    for s in (0.0, 0.2, 0.9, 1.0):
        assert conjugates_of(np.array([s]), kernel) >= (s * t - slow.loss(kernel, t)).max() - 1e-12
    steepest = (
        kernel.width if kernel.kind == RAMP else math.inf if kernel.kind == EXPONENTIAL else 1.0
    )
    if steepest < math.inf:
        assert conjugates_of(np.array([steepest * 1.001]), kernel) == math.inf


@pytest.mark.parametrize("kernel", slow.KERNELS, ids=slow.name)
def test_gradients_of_proxes(kernel):
    rng = np.random.default_rng(5)
    c, m = 10 ** rng.uniform(-2, 2, 40), 5 * rng.standard_normal(40)
    low, v, high = (
        np.array([prox_at(*parts(kernel), a, x + d) for a, x in zip(c, m, strict=True)])
        for d in (-1e-6, 0.0, 1e-6)
    )
    slope = prox_gradients_at(kernel, c, m, v)
    assert_allclose(slope, (high - low) / 2e-6, rtol=1e-4, atol=1e-8)


def test_a_kernel_is_plain():
    assert Kernel(LOGISTIC) == (LOGISTIC, 0.0, 1.0, False)
