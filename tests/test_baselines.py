"""Each client alone and the even mixture, against their own optimality conditions."""

import numpy as np
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
    alone = ind(PROBLEM, fed)
    assert list(alone) == list(fed.clients)
    for j, solution in enumerate(alone.values()):
        own = gradient(*fed.rows(j), solution.w) + 0.05 * solution.w
        assert_allclose(own, 0.0, atol=1e-3)


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
