"""Probabilities from scores: the sigmoid that `bonafed.problem.calibration` fits by sums."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PLAIN
from scipy.optimize import minimize
from sklearn.calibration import _sigmoid_calibration

import bonafed as bf
from bonafed.problem import calibration
from bonafed.problem.calibration import calibrated, fit_sigmoid

rng = np.random.default_rng(0)
SCORE = rng.standard_normal(300)
POSITIVE = rng.random(300) < 1 / (1 + np.exp(-(2 * SCORE - 1)))
ONES = np.ones(300)


def a_federation(n: int = 240, seed: int = 0) -> bf.Federation:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.where(X @ [2.0, -1.0, 0.0] - 1 + rng.logistic(size=n) > 0, "ill", "fine")
    return bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], n // 3))


def test_the_sigmoid_is_that_of_platt_as_scikit_learn_fits_it() -> None:
    found = fit_sigmoid(SCORE, POSITIVE, ONES)
    slope, offset = _sigmoid_calibration(SCORE, POSITIVE.astype(int))
    assert [found.slope, found.offset] == pytest.approx([-slope, -offset], rel=1e-4)


def test_the_sigmoid_minimises_its_log_loss_to_rounding() -> None:
    weight = rng.integers(1, 4, 300).astype(float)
    found = fit_sigmoid(5 + 1e3 * SCORE, POSITIVE, weight)
    plus, minus = weight[POSITIVE].sum(), weight[~POSITIVE].sum()
    target = np.where(POSITIVE, (plus + 1) / (plus + 2), 1 / (minus + 2))
    odds = found.slope * (5 + 1e3 * SCORE) + found.offset
    off = weight * (found.probability(5 + 1e3 * SCORE) - target)
    assert [off.sum(), off @ SCORE] == pytest.approx([0, 0], abs=1e-8)
    best = minimize(
        lambda v: weight @ (np.logaddexp(0, v[0] * SCORE + v[1]) - target * (v[0] * SCORE + v[1])),
        [1, 0],
    )
    assert weight @ (np.logaddexp(0, odds) - target * odds) == pytest.approx(best.fun, rel=1e-9)


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0, 30.0])
def test_rounding_makes_no_fit_long(slope: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that rises by its last digit refused Newton's last step: 3,900 sums were taken."""
    sums, taken = calibration._sums, []
    monkeypatch.setattr(calibration, "_sums", lambda *a: taken.append(a) or sums(*a))
    for seed in range(20):
        rng = np.random.default_rng(seed)
        score = 1 + 3 * rng.standard_normal(100)
        fit_sigmoid(score, rng.random(100) < 1 / (1 + np.exp(-slope * score)), np.ones(100))
    assert len(taken) <= 20 * 2 * 12


def test_a_weight_of_two_is_a_row_given_twice() -> None:
    weight = rng.integers(1, 3, 300)
    twice = np.repeat(np.arange(300), weight)
    one = fit_sigmoid(SCORE, POSITIVE, weight.astype(float))
    other = fit_sigmoid(SCORE[twice], POSITIVE[twice], np.ones(len(twice)))
    assert [one.slope, one.offset] == pytest.approx([other.slope, other.offset], rel=1e-9)


def test_separable_scores_have_a_finite_sigmoid() -> None:
    found = fit_sigmoid(SCORE, SCORE > 0, ONES)
    assert 1 < found.slope < 1e3
    assert found.probability(SCORE[SCORE > 0]).min() > 0.5


@pytest.mark.parametrize("score", [np.zeros(300), np.full(300, 1e9), -SCORE])
def test_scores_that_say_nothing_have_the_base_rate(score: np.ndarray) -> None:
    found = fit_sigmoid(score, POSITIVE, ONES)
    assert found.slope == 0
    assert float(found.probability(0.0)) == pytest.approx(POSITIVE.mean(), abs=2 / 300)


@pytest.mark.parametrize(
    "problem",
    [
        bf.Problem(bf.Hinge(), PLAIN, regulariser=bf.L2(1e-2)),
        bf.Problem(
            bf.Logistic(), PLAIN, over_samples=bf.WassersteinBall(0.1, 1.0), regulariser=bf.L2(1e-2)
        ),
        bf.Problem(bf.Logistic(), PLAIN, constraint=bf.Coupled(bf.NeymanPearson("ill", 0.4))),
        bf.Problem(bf.Logistic(), PLAIN, over_rows=bf.Superquantile(0.3), regulariser=bf.L2(1e-2)),
    ],
    ids=["hinge", "flips", "constrained", "ranks of all rows"],
)
def test_a_solution_is_calibrated_to_the_rows(problem: bf.Problem) -> None:
    fed = a_federation()
    solution = bf.solve(problem, fed)
    p = solution.calibration.probability(np.concatenate(fed.X) @ solution.w)
    assert p.mean() == pytest.approx((np.concatenate(fed.y) == "ill").mean(), abs=0.01)


def test_the_offset_is_zero_unless_that_is_refuted() -> None:
    refuted = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        score = rng.standard_normal(100)
        positive = rng.random(100) < 1 / (1 + np.exp(-2 * score))
        refuted += fit_sigmoid(score, positive, np.ones(100)).offset != 0
    assert refuted <= 20  # 5 % of 200, and three standard errors


def test_scores_of_the_logistic_loss_stay_as_they_are() -> None:
    fed = a_federation()
    ball = bf.WassersteinBall(0.01, np.inf)
    for problem in (
        bf.Problem(bf.Logistic(), PLAIN),
        bf.Problem(bf.Logistic(), PLAIN, over_samples=ball),
    ):
        assert calibrated(problem, fed, np.zeros(3)) == bf.Sigmoid(1.0, 0.0)


def test_regression_several_classes_and_private_runs_have_none() -> None:
    fed = a_federation()
    real = fed.with_targets([(y == "ill").astype(float) for y in fed.y])
    assert bf.solve(bf.Problem(bf.Huber(), PLAIN, regulariser=bf.L2(0.1)), real).calibration is None
    private = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.1), privacy=bf.Budget(1.0, 1e-6))
    assert calibrated(private, fed, np.zeros(3)) is None
