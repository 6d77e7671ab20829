"""What every loss says of itself: its gradient, curvature, convexity, Lipschitz constant, pieces
and floor.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mean_poisson_deviance

from bonafed.problem.losses import (
    Absolute,
    EpsilonInsensitive,
    Exponential,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Poisson,
    Quantile,
    SmoothHinge,
    Squared,
    growth,
    has_log_link,
)

LOSSES = [
    Hinge(),
    SmoothHinge(),
    Logistic(),
    Exponential(),
    Squared(),
    Poisson(),
    Absolute(),
    Huber(),
    Huber(1e-3),
    EpsilonInsensitive(0.0),
    EpsilonInsensitive(0.5),
    Quantile(0.05),
    Quantile(0.5),
    Quantile(0.9),
]
each = pytest.mark.parametrize("loss", LOSSES, ids=repr)
GRID = np.linspace(-4.0, 4.0, 401)  # margins or residuals


def points(loss):
    """Predictions and targets: for labels both signs, for numbers and counts several, so that t
    runs over the grid.
    """
    if loss.targets == "sign":
        return np.concatenate([GRID, -GRID]), np.concatenate([np.ones(401), -np.ones(401)])
    if has_log_link(loss):
        y = np.repeat([0.0, 0.5, 20.0], 401)
        return np.tile(GRID, 3), y
    y = np.repeat([-1.5, 0.0, 20.0], 401)
    return np.tile(GRID, 3) + y, y


def kinks(loss):
    """Where the gradient (or, for smooth losses, the curvature) jumps, in t."""
    bends = {
        SmoothHinge: [0.0, 1.0],
        Huber: [-getattr(loss, "threshold", 0), getattr(loss, "threshold", 0)],
    }
    pieces = loss.pieces or ()
    return [
        *bends.get(type(loss), []),
        *((e - b) / (a - c) for a, b in pieces for c, e in pieces if a != c),
    ]


@each
def test_is_a_loss(loss):
    assert isinstance(loss, Loss)
    assert loss.targets in ("sign", "real")


@each
def test_gradient_and_curvature_are_derivatives(loss):
    prediction, y = points(loss)
    t = y * prediction if loss.targets == "sign" else prediction - y
    clear = np.all([np.abs(t - k) > 1e-4 for k in kinks(loss)] or [np.ones_like(t, bool)], axis=0)
    p, y, h = prediction[clear], y[clear], 1e-5
    scale = 1.0 + np.abs(loss.value(p, y))
    gradient = (loss.value(p + h, y) - loss.value(p - h, y)) / (2 * h)
    # h^2 and 1e-15 * 20 / h
    np.testing.assert_allclose(loss.gradient(p, y) / scale, gradient / scale, atol=1e-8)
    curvature = (loss.gradient(p + h, y) - loss.gradient(p - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.curvature(p, y) / scale, curvature / scale, atol=1e-8)


@pytest.mark.parametrize("loss", [Logistic(), Exponential(), Squared()], ids=repr)
def test_gradient_is_the_complex_step_derivative(loss):
    formula = {Logistic: lambda t: np.log(1 + np.exp(-t)), Exponential: lambda t: np.exp(-t)}.get(
        type(loss)
    )
    prediction, y = points(loss)
    z = prediction + 1e-30j
    value = formula(y * z) if formula else (z - y) ** 2 / 2
    np.testing.assert_allclose(loss.value(prediction, y), value.real, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(
        loss.gradient(prediction, y), value.imag / 1e-30, rtol=1e-13, atol=1e-15
    )


@each
@settings(deadline=None, max_examples=60)
@given(
    a=st.floats(-50, 50),
    b=st.floats(-50, 50),
    target=st.sampled_from([-1.0, 1.0, 0.0, 7.25]),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
)
def test_convex_with_gradients_below_and_lipschitz(loss, a, b, target, scale):
    if loss.targets == "sign":
        target = math.copysign(1.0, target)
    if has_log_link(loss):
        target = max(target, 0.0)
    if not isinstance(loss, Exponential | Poisson):
        a, b = a * scale, b * scale
    p, q, y = np.array([a]), np.array([b]), np.array([target])
    here, there, gradient = loss.value(p, y), loss.value(q, y), loss.gradient(p, y)
    room = 1e-12 * (1 + np.abs(here) + np.abs(there) + np.abs(gradient) * (abs(a) + abs(b)))
    assert np.isfinite([here, there, gradient]).all()
    assert (here >= 0).all()
    assert (there >= here + gradient * (q - p) - room).all()
    assert (np.abs(gradient) <= loss.lipschitz).all()
    if math.isfinite(loss.lipschitz):
        assert (np.abs(there - here) <= loss.lipschitz * abs(b - a) + room).all()


@each
def test_the_lipschitz_constant_is_tight(loss):
    far = np.array([-1e6, 1e6]) if math.isfinite(loss.lipschitz) else np.array([-600.0, 600.0])
    steepest = max(np.abs(loss.gradient(far, np.full(2, sign))).max() for sign in (-1.0, 1.0))
    if math.isfinite(loss.lipschitz):
        assert steepest == pytest.approx(loss.lipschitz, rel=1e-12)
    else:
        assert steepest > 100


@each
def test_pieces_are_the_loss_or_absent(loss):
    prediction, y = points(loss)
    t = y * prediction if loss.targets == "sign" else prediction - y
    if loss.pieces is None:
        assert (loss.curvature(prediction, y) > 0).any()
        return
    value = np.max([a * t + b for a, b in loss.pieces], axis=0)
    np.testing.assert_allclose(loss.value(prediction, y), value, atol=1e-14)
    assert max(abs(a) for a, _ in loss.pieces) == loss.lipschitz


@each
def test_the_floor_is_below(loss):
    prediction, y = points(loss)
    a, b = loss.floor
    assert a > 0
    assert (loss.value(prediction, y) >= a * growth(loss, prediction, y) - b - 1e-15).all()


@each
def test_smooth_is_said_where_the_gradient_is_continuous(loss):
    prediction, y = points(loss)
    jump = np.abs(loss.gradient(prediction + 1e-9, y) - loss.gradient(prediction - 1e-9, y)).max()
    assert (jump < 1e-5) == loss.smooth  # the grid holds every kink of the losses that have one


@pytest.mark.parametrize("loss", [Hinge(), SmoothHinge(), Logistic(), Exponential()], ids=repr)
def test_margin_losses_depend_on_the_margin_only(loss):
    p = GRID
    np.testing.assert_array_equal(loss.value(p, np.ones_like(p)), loss.value(-p, -np.ones_like(p)))
    np.testing.assert_array_equal(
        loss.gradient(p, np.ones_like(p)), -loss.gradient(-p, -np.ones_like(p))
    )


def test_limits():
    u = GRID
    y = np.zeros_like(u)
    np.testing.assert_allclose(EpsilonInsensitive(0.0).value(u, y), Absolute().value(u, y))
    np.testing.assert_allclose(2 * Quantile(0.5).value(u, y), Absolute().value(u, y))
    np.testing.assert_allclose(Huber(1e9).value(u, y), Squared().value(u, y))
    np.testing.assert_allclose(Huber(1e-6).value(u, y) / 1e-6, Absolute().value(u, y), atol=1e-6)
    assert Logistic().value(np.array([-800.0, 800.0]), np.ones(2)).tolist() == [800.0, 0.0]
    # of all numbers the level-quantile has the least pinball loss
    sample = np.random.default_rng(0).normal(size=999)
    total = [Quantile(0.9).value(np.full(999, q), sample).mean() for q in np.sort(sample)]
    assert abs(int(np.argmin(total)) - 899) <= 1


def test_the_loss_of_counts_is_half_their_deviance():
    y = np.arange(0.0, 40.0, 2.5)
    for rate in (1e-3, 0.7, 3.0, 50.0):
        p = np.full_like(y, math.log(rate))
        deviance = [mean_poisson_deviance([count], [rate]) for count in y]
        np.testing.assert_allclose(Poisson().value(p, y), np.array(deviance) / 2, rtol=1e-12)
    best = Poisson().value(np.log(y[1:]), y[1:])
    np.testing.assert_allclose(best, 0.0, atol=1e-13)
    far = Poisson().value(np.array([1e3, -1e3, 1e3]), np.array([0.0, 0.0, 5.0]))
    assert far.tolist() == [math.inf, 0.0, math.inf]  # without a warning


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Huber(0.0), "positive"),
        (lambda: Huber(math.inf), "positive"),
        (lambda: EpsilonInsensitive(-0.1), ">= 0"),
        (lambda: Quantile(0.0), r"\(0, 1\)"),
        (lambda: Quantile(1.0), r"\(0, 1\)"),
        (lambda: Quantile(math.nan), r"\(0, 1\)"),
    ],
)
def test_impossible_parameters_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
