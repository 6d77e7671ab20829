"""Each client alone and the even mixture, against their own optimality conditions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN, SOFTMAX, federation

import bonafed as bf
from bonafed.papers.aspire.workers import client_risks, clients_alone, mixture


def test_every_client_has_its_own_optimum_and_all_are_judged_by_all():
    fed = federation(0, 4)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(0.05))
    alone = clients_alone(problem, fed)
    assert alone.risks.shape == (4, 4)
    for j, solution in enumerate(alone.solutions):
        X, y = fed.rows(j)
        gradient = (
            -(X * (y / (1 + np.exp(y * (X @ solution.w))))[:, None]).mean(0) + 0.05 * solution.w
        )
        assert_allclose(gradient, 0.0, atol=1e-4)
        for i in range(4):
            X, y = fed.rows(i)
            assert_allclose(
                alone.risks[j, i], np.log1p(np.exp(-y * (X @ solution.w))).mean(), rtol=1e-12
            )
    assert alone.best == np.argmin(alone.risks.max(1))
    robust = bf.solve(problem, fed, algorithm=bf.MultiplierMethod()).w
    concrete, rows = problem.at(fed)
    assert client_risks(concrete, robust, rows).max() < alone.risks.max(1).min()


def test_the_mixture_ignores_sizes_and_the_set():
    fed = federation(1, 4)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(0.05))
    w = mixture(problem, fed).w
    gradients = [
        -(X * (y / (1 + np.exp(y * (X @ w))))[:, None]).mean(0)
        for X, y in zip(fed.X, fed.y, strict=True)
    ]
    assert_allclose(np.mean(gradients, 0) + 0.05 * w, 0.0, atol=1e-4)


def test_clients_of_one_class_and_held_out_rows():
    rng = np.random.default_rng(2)
    X = [rng.normal(size=(20, 4)) + 3 * np.eye(4)[j] for j in range(3)]
    fed = bf.Federation(["a", "b", "c"], X, [np.full(20, name) for name in ("x", "y", "z")])
    train, test = fed.split(0.4, seed=0)
    problem = bf.Problem(
        bf.Multinomial(), SOFTMAX, over_clients=bf.Simplex(), regulariser=bf.L2(0.01)
    )
    alone = clients_alone(problem, train, judge=test)
    assert (np.diag(alone.risks) < np.log(3) / 2).all()
    assert (alone.risks[~np.eye(3, dtype=bool)] > 0.9).all()
    assert [len(solution.w) for solution in alone.solutions] == [12] * 3


def test_radii_by_client_and_another_algorithm():
    fed = federation(3, 3)
    ball = bf.WassersteinBall({"c0": 0.0, "c1": 0.05, "c2": 0.5}, 0.5, "l2")
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=ball, over_clients=bf.LpBall(0.1), regulariser=bf.L2(0.01)
    )
    alone = clients_alone(problem, fed, tol=1e-5)
    for j, radius in enumerate((0.0, 0.05, 0.5)):
        own = bf.Problem(
            bf.Hinge(),
            PLAIN,
            over_samples=bf.WassersteinBall(radius, 0.5, "l2"),
            regulariser=bf.L2(0.01),
        )
        expected = bf.solve(own, fed.restrict([f"c{j}"]), tol=1e-5).certificate.value
        assert_allclose(alone.solutions[j].certificate.value, expected, rtol=2e-5)
    slow = clients_alone(
        bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1)),
        fed,
        algorithm=bf.AFL(),
        max_rounds=3,
    )
    assert {solution.rounds for solution in slow.solutions} == {4}


def test_unknown_options_are_refused():
    with pytest.raises(TypeError):
        mixture(bf.Problem(bf.Logistic(), PLAIN), federation(4), steps=3)
