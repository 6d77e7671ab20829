"""Functions of ``bonafed.functional`` that check their input themselves."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import bonafed as bf
from bonafed.functional import pava

MARGIN = [bf.Hinge(), bf.SmoothHinge(), bf.Logistic(), bf.Exponential()]
RESIDUAL = [bf.Squared(), bf.Absolute(), bf.Huber(0.5), bf.EpsilonInsensitive(0.2)]


def objective(loss, z, m, weights, rho):
    """By the loss object itself: at a target of -1 a margin loss rises with the prediction."""
    target = -1.0 if loss.targets == "sign" else 0.0
    losses = np.sort(loss.value(z, np.full(z.shape, target)), axis=-1)
    return losses @ weights + rho / 2 * ((z - m) ** 2).sum(-1)


@pytest.mark.parametrize("loss", MARGIN + RESIDUAL, ids=str)
@pytest.mark.parametrize(
    "weights", [[0, 0, 0, 0.2, 0.8], [0.1, 0.3, 0, 0.4, 0.2], [0.2] * 5], ids=str
)
def test_pava_is_a_global_minimiser(loss, weights):
    rng = np.random.default_rng(1)
    weights = np.array(weights)
    for rho in (0.05, 0.5, 5.0):
        m = rng.standard_normal(5)
        before = m.copy()
        z = pava(m, weights, rho, loss)
        least = objective(loss, z, m, weights, rho)
        near, far = (
            z + 0.03 * rng.standard_normal((20000, 5)),
            m + 3 * rng.standard_normal((20000, 5)),
        )
        moved = np.concatenate([near, far, z[None] + 1e-4 * np.eye(5), z[None] - 1e-4 * np.eye(5)])
        assert (objective(loss, moved, m, weights, rho) >= least - 1e-12).all()
        assert_array_equal(m, before)


def test_pava_by_hand():
    tail = np.array([0, 0, 0.5, 0.5])
    assert_allclose(
        pava(np.array([0.5, 3.0, -2.0, 0.0]), tail, 1.0, bf.Hinge()), [0.0, 2.5, -2.0, 0.0]
    )
    # 0.3 - 1 would pass 0, which has no weight: both move by 1/2 from their mean
    assert_allclose(
        pava(np.array([0.3, 0.0]), np.array([0.0, 1.0]), 1.0, bf.Hinge()), [-0.35, -0.35]
    )
    assert_allclose(
        pava(np.array([-3.0, 0.5]), np.array([0.0, 1.0]), 1.0, bf.Squared()), [-1.5, 0.5]
    )


@pytest.mark.parametrize("loss", MARGIN, ids=str)
def test_decreasing_is_the_same_step_in_margins(loss):
    rng = np.random.default_rng(2)
    m, weights = rng.standard_normal(30), np.sort(rng.random(30))
    z = pava(m, weights, 0.3, loss, decreasing=True)
    assert_array_equal(z, -pava(-m, weights, 0.3, loss))
    least = np.sort(loss.value(z, np.ones(30))) @ weights + 0.15 * ((z - m) ** 2).sum()
    for _ in range(200):
        other = z + 0.05 * rng.standard_normal(30)
        assert (
            np.sort(loss.value(other, np.ones(30))) @ weights + 0.15 * ((other - m) ** 2).sum()
            >= least
        )


def test_pava_takes_the_weights_of_a_risk():
    m = np.random.default_rng(3).standard_normal(50)
    z = pava(m, bf.Superquantile(tail=0.3).rank_weights(50), 0.01, bf.Logistic())
    # the rest stays, or is pooled
    assert_array_equal(np.sort(z)[:30], np.sort(np.minimum(m, np.sort(z)[30]))[:30])


def test_pava_refuses():
    m, weights = np.zeros(3), np.ones(3)
    for bad, text in (
        ({"m": np.zeros((3, 1))}, "one weight for each rank"),
        ({"weights": np.ones(2)}, "one weight for each rank"),
        ({"m": np.array([0, np.nan, 1])}, "finite"),
        ({"m": np.array([0, np.inf, 1])}, "finite"),
        ({"weights": np.array([0, -0.1, 1])}, ">= 0, got -0.1"),
        ({"rho": 0.0}, "rho must be a positive number, got 0"),
        ({"rho": np.nan}, "rho must be"),
    ):
        with pytest.raises(ValueError, match=text):
            pava(**({"m": m, "weights": weights, "rho": 1.0, "loss": bf.Hinge()} | bad))
    with pytest.raises(TypeError, match="Quantile"):
        pava(m, weights, 1.0, bf.Quantile(0.3))
    assert pava(np.zeros(0), np.zeros(0), 1.0, bf.Hinge()).shape == (0,)
