"""Private models in an l2 ball, and within a Wasserstein ball whose worst case is a norm: equal to
conic programs where nothing is noised, within the budget where it is, refused with reasons where no
proof is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import bonafed as bf
from bonafed.problem.regularisers import NormPenalty

BUDGET = bf.Budget(epsilon=1.0, delta=1e-6)


def federation() -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 4))
    y = np.where(X @ [1, -1, 0.5, 0] + 0.3 * rng.normal(size=300) > 0, 1.0, -1.0)
    return bf.Federation.from_arrays(X, y, rng.choice(["a", "b", "c"], 300))


FED = federation()
METHODS: list[Any] = [
    bf.PrivateSGD(max_rounds=600, length=2400.0),
    bf.PrivateADMM(max_rounds=600, rho=0.2),
]
each_method = pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)


@each_method
@pytest.mark.parametrize("centre", [0.0, np.array([0.5, 0.0, 0.0, 1.0])], ids=["0", "moved"])
def test_without_noise_a_model_in_a_ball_is_that_of_a_conic_program(method, centre):
    ball = bf.Ball(0.7, centre)
    problem = bf.Problem(bf.Logistic(), over_clients=bf.Mean("size"), regulariser=ball)
    found = bf.solve(problem, FED, algorithm=method)
    X, y, w, b = np.concatenate(FED.X), np.concatenate(FED.y), cp.Variable(4), cp.Variable()
    loss = cp.sum(cp.logistic(-cp.multiply(y, X @ w + b))) / len(y)
    cp.Problem(cp.Minimize(loss), [cp.norm2(w - centre) <= 0.7]).solve(solver=cp.CLARABEL)
    assert_allclose(found.w, [*w.value, b.value], atol=2e-5)
    assert ball.value(found.w[:4]) == 0.0
    assert np.linalg.norm(found.w[:4] - centre) == pytest.approx(0.7, rel=1e-12)


@pytest.mark.parametrize("kind", ["l1", "l2", "linf"])
@pytest.mark.parametrize("h", [bf.Zero(), bf.L2(0.4)], ids=str)
@pytest.mark.parametrize("step", [0.8, np.array([0.3, 5.0, 1.0, 0.8])], ids=["one", "each"])
def test_the_prox_of_a_norm_penalty_is_that_of_a_conic_program(kind, h, step):
    v, w = np.array([2.0, -0.1, 0.7, -3.0]), cp.Variable(4)
    penalty = NormPenalty(h, 0.9, kind)
    size = cp.norm(w, {"l1": 1, "l2": 2, "linf": "inf"}[kind])
    model = 0.9 * size + getattr(h, "strength", 0) / 2 * cp.sum_squares(w)
    away = cp.sum(cp.multiply(0.5 / np.broadcast_to(step, 4), cp.square(w - v)))
    least = cp.Problem(cp.Minimize(model + away)).solve(solver=cp.CLARABEL)
    near = penalty.prox(v, step)
    assert penalty.value(near) + (0.5 / step * (near - v) ** 2).sum() <= least + 1e-12
    assert_allclose(near, w.value, atol=3e-5)
    assert penalty.value(near) == pytest.approx(model.value, abs=1e-5)
    assert np.linalg.norm(near) <= penalty.domain_radius(penalty.value(near), 4) * (1 + 1e-15)
    assert_allclose(penalty.prox(1e-3 * v, step), 0, atol=1e-15)


@each_method
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_without_noise_the_worst_case_is_that_of_the_bundle_method(method, norm):
    ball = bf.WassersteinBall(np.array([0.05, 0.1, 0.2]), norm=norm)
    problem = bf.Problem(bf.Logistic(), over_samples=ball, regulariser=bf.L2(0.01))
    best = bf.solve(problem, FED, algorithm=bf.Bundle(tol=1e-9, max_rounds=2000))
    found = bf.solve(problem, FED, algorithm=method)
    assert found.certificate.value == pytest.approx(best.certificate.value, abs=1e-8)


def test_a_private_worst_case_costs_what_a_mean_costs():
    """The ball adds a public function of the model, so that the noise is that of the mean."""
    ball = bf.WassersteinBall(0.2, norm="linf")
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.01), privacy=BUDGET)
    plain, robust = (
        bf.solve(one, FED, algorithm=bf.PrivateADMM(max_rounds=20))
        for one in (problem, replace(problem, over_samples=ball))
    )
    assert robust.ledger.epsilon == plain.ledger.epsilon <= 1
    assert robust.ledger.guarantee
    assert robust.ledger.table() == plain.ledger.table()
    # a price far above every gradient: the penalty decides, whatever the noise
    heavy = replace(problem, over_samples=bf.WassersteinBall(1e6, norm="linf"))
    assert not bf.solve(heavy, FED, algorithm=bf.PrivateADMM(max_rounds=20)).w[:4].any()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"over_samples": bf.WassersteinBall(0.1, label_cost=1.0)}, "label_cost=inf beside"),
        (
            {"over_samples": bf.WassersteinBall(0.1), "regulariser": bf.Ball(1.0)},
            "beside the regulariser Zero",
        ),
        ({"over_samples": bf.WassersteinBall("auto")}, "would tell about them without being"),
        ({"over_clients": bf.LpBall(0.1, 2)}, "weights that follow the clients' losses"),
        (
            {"local_constraint": bf.NeymanPearson(1.0, 0.6)},
            "their values and multipliers follow from rows",
        ),
    ],
)
def test_what_has_no_proof_is_refused_with_the_reason(more, message):
    with pytest.raises(ValueError, match=message):
        bf.solve(bf.Problem(bf.Logistic(), privacy=BUDGET, **more), FED)
