"""Each client alone and the even mixture, against their own optimality conditions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN, SOFTMAX, federation

import bonafed as bf
from bonafed.papers.aspire import ind, mix_even

PROBLEM = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(0.05))


def gradient(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of the mean logistic loss of a client's rows."""
    return -(X * (y / (1 + np.exp(y * (X @ w))))[:, None]).mean(0)


def test_every_client_has_its_own_optimum():
    fed = federation(0, 4)
    alone = ind(PROBLEM, fed, tol=1e-8)
    assert list(alone) == list(fed.clients)
    for j, solution in enumerate(alone.values()):
        own = gradient(*fed.rows(j), solution.w) + 0.05 * solution.w
        assert_allclose(own, 0.0, atol=1e-4)


def test_the_mixture_ignores_sizes_and_the_set():
    fed = federation(1, 4)
    w = mix_even(PROBLEM, fed, tol=1e-8).w
    gradients = [gradient(*fed.rows(j), w) for j in range(4)]
    assert_allclose(np.mean(gradients, 0) + 0.05 * w, 0.0, atol=1e-4)


def test_a_client_of_one_class_has_the_model_of_all_classes():
    rng = np.random.default_rng(2)
    X = tuple(rng.normal(size=(20, 4)) + 3 * np.eye(4)[j] for j in range(3))
    y = tuple(np.full(20, name) for name in ("x", "y", "z"))
    fed = bf.Federation(("a", "b", "c"), X, y)
    alone = ind(bf.Problem(bf.Multinomial(), SOFTMAX, regulariser=bf.L2(0.01)), fed)
    assert [len(solution.w) for solution in alone.values()] == [12] * 3


def test_every_client_has_its_own_radius():
    fed, radii = federation(3, 3), {"c0": 0.0, "c1": 0.05, "c2": 0.5}
    problem = bf.Problem(
        bf.Hinge(),
        PLAIN,
        over_samples=bf.WassersteinBall(radii, 0.5, "l2"),
        over_clients=bf.LpBall(0.1),
        regulariser=bf.L2(0.01),
    )
    alone = ind(problem, fed, tol=1e-5)
    for name, radius in radii.items():
        ball = bf.WassersteinBall(radius, 0.5, "l2")
        own = bf.Problem(bf.Hinge(), PLAIN, over_samples=ball, regulariser=bf.L2(0.01))
        expected = bf.solve(own, fed.restrict([name]), tol=1e-5).certificate.value
        assert_allclose(alone[name].certificate.value, expected, rtol=2e-5)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError):
        mix_even(PROBLEM, federation(4), steps=3)
