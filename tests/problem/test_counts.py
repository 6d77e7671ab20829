"""Counts: the model of Poisson regression, what it predicts, and which counts and methods are
refused.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import small_run
from numpy.testing import assert_allclose
from sklearn.linear_model import PoissonRegressor

import bonafed as bf
from bonafed.runs.prediction import predict_table
from bonafed.runs.verification import passed, verify_run
from bonafed.solution.trivial import best_constant

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (600, 2))
Y = rng.poisson(np.exp(X @ [0.8, -0.5] + 0.3))
SITES = np.arange(600) % 3
FED = bf.Federation.from_arrays(X, Y, SITES)
PROBLEM = bf.Problem(bf.Poisson(), over_clients=bf.Mean("size"), regulariser=bf.L2(0.01))


def test_the_model_is_that_of_scikit_learn_and_predicts_expected_counts() -> None:
    other = PoissonRegressor(alpha=0.01, tol=1e-12).fit(X, Y)
    solution = bf.solve(PROBLEM, FED, tol=1e-9)
    assert_allclose(solution.w, [*other.coef_, other.intercept_], atol=1e-4)
    assert_allclose(solution.predict(X), other.predict(X), rtol=1e-4)
    whole = solution.evaluate(FED)[-1]
    assert whole["mae"] == pytest.approx(np.abs(other.predict(X) - Y).mean(), rel=1e-4)
    assert solution.score(X, Y) == pytest.approx(whole["r2"], rel=1e-12)


def test_the_best_constant_is_the_logarithm_of_the_mean() -> None:
    best = best_constant(*PROBLEM.at(FED))
    assert best.intercept == pytest.approx(np.log(Y.mean()), abs=1e-9)
    none = bf.Federation.from_arrays(X, 0 * Y, SITES)
    assert best_constant(*PROBLEM.at(none)).value < 1e-20


def test_targets_that_are_no_counts_are_refused() -> None:
    bad = bf.Federation.from_arrays(X, np.where(np.arange(600) == 4, -2.0, Y), SITES)
    with pytest.raises(
        ValueError, match=r"Poisson needs counts, numbers >= 0, .* \[-2\.0\] in row 1 .*Squared\(\)"
    ):
        bf.solve(PROBLEM, bad)
    private = bf.Problem(bf.Poisson(), privacy=bf.Budget(2.0, 1e-6))
    with pytest.raises(ValueError, match="Poisson needs counts") as refused:
        private.at(bad)
    assert "-2.0" not in str(refused.value)


def test_methods_of_the_residual_refuse() -> None:
    for method, words in (
        (bf.EpigraphADMM(), "a loss of the margin or the residual, got Poisson"),
        (bf.RankADMM(), "one rank coordinate of a row"),
    ):
        fed = FED if isinstance(method, bf.EpigraphADMM) else FED.pooled()
        with pytest.raises(ValueError, match=words):
            bf.solve(PROBLEM, fed, algorithm=method)
    with pytest.raises(ValueError, match=r"RobustRegressor needs a loss of the residual, got Poi"):
        bf.RobustRegressor(loss=bf.Poisson()).fit(X, Y, groups=SITES)
    with pytest.raises(ValueError, match=r"Poisson is not Lipschitz, so its worst case .* infinit"):
        bf.Problem(bf.Poisson(), over_samples=bf.WassersteinBall(0.1))


def test_a_run_of_counts_is_verified_and_predicts_them(tmp_path: Path) -> None:
    head, *lines = small_run.table().splitlines()
    cells = [line.rpartition(",")[0] for line in lines]
    data = "\n".join([head, *(f"{line},{k % 4}" for k, line in enumerate(cells))])
    text = small_run.MIXED.replace('"logistic"', '"poisson"')
    run = small_run.small_run(tmp_path, draw=True, data=data + "\n", text=text)
    assert passed(verify_run(run.path))
    predicted = np.array(predict_table(run.path, tmp_path / "clinics.csv")["prediction"], float)
    assert (predicted > 0).all()
    assert abs(predicted.mean() - 1.5) < 0.5


@pytest.mark.parametrize("y", [0.2, 0.5, 1.0, 1.5, 40.0])
def test_the_least_loss_is_zero_where_the_expected_count_is_the_target(y):
    at = np.log(y) + np.array([-1e-3, 0.0, 1e-3])
    below, here, above = bf.Poisson().value(at, np.full(3, y))
    assert here == pytest.approx(0.0, abs=1e-12)
    assert min(below, above) > 1e-8 * y
