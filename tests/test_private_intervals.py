"""Intervals of private models: how often they hold the truth, their formula where the matrix has no
noise, and when they are refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from private_cases import planned
from scipy.stats import binom, norm

import bonafed as bf
from bonafed.data.federation import Federation
from bonafed.engines.inprocess import InProcess
from bonafed.solution import intervals
from bonafed.solution.solve import fit

ROWS, TRUTH, BOUND = 3000, np.array([0.6, 0.0, 0.2]), math.sqrt(2)
LOSSES = {  # with the declared bound on a residual
    "logistic": (bf.Logistic(), None),
    "linear": (bf.Squared(), 1.4),
    "Poisson": (bf.Poisson(), 5.0),  # of counts whose expectations lie between 0.7 and 2.2
}


def drawn(kind: str, seed: int, n: int = ROWS) -> Federation:
    rng = np.random.default_rng([seed, n])
    X = rng.uniform(-1, 1, (n, 2))
    score = X @ TRUTH[:2] + TRUTH[2]
    y = {
        "logistic": lambda: np.where(score + rng.logistic(size=n) > 0, 1, -1),
        "linear": lambda: score + 0.3 * rng.normal(size=n),
        "Poisson": lambda: rng.poisson(np.exp(score)),
    }[kind]()
    return Federation.from_arrays(X, y, np.arange(n) % 3)


def posed(kind: str, clip: float | None = None) -> tuple[bf.Problem, bf.PrivateNewton]:
    loss, residual = LOSSES[kind]
    mean, budget = bf.Mean("size"), bf.Budget(2.0, 1e-6)
    problem = bf.Problem(loss, bf.Linear(fit_intercept=True), over_clients=mean, privacy=budget)
    if clip is None and residual is not None:
        clip = residual * math.sqrt(3)
    return problem, bf.PrivateNewton(
        max_rounds=5, bound=BOUND, clip=clip, inference=True, noise="simulation"
    )


def solved(kind: str, clip: float | None = None) -> bf.Solution:
    problem, method = posed(kind, clip)
    return fit(problem, drawn(kind, 0, 6000), algorithm=method)


@pytest.fixture(scope="module")
def some() -> dict[str, bf.Solution]:
    return {kind: solved(kind) for kind in LOSSES}


@pytest.mark.parametrize("kind", LOSSES)
def test_they_hold_the_truth_as_often_as_they_say(kind: str, some: dict[str, bf.Solution]) -> None:
    """In 60 runs on new rows with new noise; those of linear and Poisson models, most of whose
    variance is noise, hold it far less often without the noise.
    """
    times, level = 60, 0.8
    problem, method = posed(kind)
    held, naive, z = np.zeros(3, int), np.zeros(3, int), norm.ppf((1 + level) / 2)
    for seed in range(times):
        run, fed = planned(method, problem, drawn(kind, seed))
        answer = run.answer(InProcess().run(run, fed, seed=seed).state)
        s = replace(some[kind], w=answer.w, moments=answer.moments)
        found = bf.private_intervals(s, level)
        held += (found.low <= TRUTH) & (found.high >= TRUTH)
        alone = z * found.error * np.sqrt(1 - found.noise)
        naive += np.abs(found.estimate - TRUTH) <= alone
    # each of nine counts lies within with a probability of 0.9999
    low, high = binom.ppf(5e-5, times, level), binom.ppf(1 - 5e-5, times, level)
    assert ((low <= held) & (held <= high)).all(), held
    if kind != "logistic":
        assert naive.sum() < held.sum() - 20


def test_without_noise_in_the_matrix_they_are_the_sandwich(some: dict[str, bf.Solution]) -> None:
    for kind, s in some.items():
        moments = replace(s.moments, matrix_noise=0.0, square_noise=0.0)
        found = bf.private_intervals(replace(s, moments=moments), 0.9)
        inverse = np.linalg.inv(moments.matrix)
        phi = (moments.square - moments.spread) / (1 - 3 / 6000) if kind == "linear" else 1.0
        noise = moments.gradient_noise**2 * inverse @ inverse
        V = phi * inverse / 6000 + noise
        np.testing.assert_allclose(found.error, np.sqrt(np.diag(V)), rtol=1e-9)
        np.testing.assert_allclose(found.noise, np.diag(noise) / np.diag(V), rtol=1e-9)
        np.testing.assert_allclose(found.high - found.estimate, 1.6449 * found.error, rtol=1e-3)
        np.testing.assert_array_equal(found.estimate, s.w)


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_declared_sizes_need_not_be_true(times: float, tmp_path: Path) -> None:
    """Where there is hardly any noise the errors are those of least squares on the same rows."""
    problem, method = posed("linear")
    budget = bf.Budget(1000.0, 1e-6, sizes=round(2000 * times))
    fed = drawn("linear", 0, 6000)
    s = bf.solve(replace(problem, privacy=budget), fed, algorithm=method)
    s.save(tmp_path / "model")
    X = np.column_stack([np.concatenate(fed.X), np.ones(6000)])
    y = np.concatenate(fed.y)
    residuals = y - X @ np.linalg.lstsq(X, y)[0]
    V = residuals @ residuals / (6000 - 3) * np.linalg.inv(X.T @ X)
    for each in (s, s.public(), bf.load(tmp_path / "model")):
        found = bf.private_intervals(each)
        np.testing.assert_allclose(found.error, np.sqrt(np.diag(V)), rtol=0.03)


def test_without_an_intercept_declared_sizes_are_refused() -> None:
    """Nothing tells how many residuals there are; logistic and Poisson models do not ask."""
    problem, method = posed("linear")
    fed, plain = (
        drawn("linear", 0, 6000),
        replace(problem, predictor=bf.Linear(fit_intercept=False)),
    )
    declared = replace(plain, privacy=bf.Budget(2.0, 1e-6, sizes=2000))
    with pytest.raises(ValueError, match="an intercept or no declared sizes"):
        bf.solve(declared, fed, algorithm=method)
    bf.private_intervals(bf.solve(plain, fed, algorithm=method))
    logistic = replace(declared, loss=bf.Logistic())
    bf.private_intervals(bf.solve(logistic, drawn("logistic", 0, 6000), algorithm=method))


def test_released_numbers_are_near_those_of_the_rows(some: dict[str, bf.Solution]) -> None:
    """The curvature, the variance of the residuals, and no row that is shortened."""
    s, fed = some["linear"], drawn("linear", 0, 6000)
    m = s.moments
    X = np.column_stack([np.concatenate(fed.X), np.ones(6000)])
    y = np.concatenate(fed.y)
    assert np.abs(m.matrix - X.T @ X / 6000).max() < 5 * m.matrix_noise
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    assert abs(m.square - m.spread - np.mean((y - X @ best) ** 2)) < 5 * m.square_noise + 1e-3
    assert abs(m.over) < 5 * m.over_noise
    assert np.abs(s.w - best).max() < 5 * m.gradient_noise * 3


def test_the_public_part_and_its_file_are_enough(
    some: dict[str, bf.Solution], tmp_path: Path
) -> None:
    s = some["logistic"]
    s.save(tmp_path / "model")
    tables = [
        bf.private_intervals(each).table() for each in (s, s.public(), bf.load(tmp_path / "model"))
    ]
    assert tables[0] == tables[1] == tables[2]
    assert [row["coefficient"] for row in tables[0]][-1] == "intercept"


def test_shortened_rows_are_found() -> None:
    """A clip at two standard deviations of the residuals shortens rows."""
    with pytest.warns(RuntimeWarning, match="of the rows are shortened by clip or bound"):
        bf.private_intervals(solved("linear", clip=0.68 * math.sqrt(3)))
    with pytest.raises(ValueError, match="of the rows are shortened by clip or bound, which"):
        bf.private_intervals(solved("linear", clip=0.4 * math.sqrt(3)))


def test_intervals_that_would_not_hold_are_refused(some: dict[str, bf.Solution]) -> None:
    s = some["linear"]
    odd: dict[str, tuple[dict[str, Any], str]] = {
        "matrix": ({"matrix_noise": 1.0}, "noise hides the curvature"),
        "squares": ({"square_noise": 1.0}, "noise hides the variance of the residuals"),
    }
    for changes, words in odd.values():
        with pytest.raises(ValueError, match=words):
            bf.private_intervals(replace(s, moments=replace(s.moments, **changes)))
    with pytest.raises(ValueError, match="level must be a number between 0 and 1"):
        bf.private_intervals(s, 95)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no released numbers for intervals"):
        bf.private_intervals(replace(s, moments=None))
    unequal = replace(s.problem, over_clients=bf.Mean("uniform"))
    fed = drawn("linear", 0)
    fed = fed._pick([(0, slice(None)), (1, slice(10))])
    method = bf.PrivateNewton(bound=BOUND, clip=2.0, inference=True)
    with pytest.raises(ValueError, match="rows that count alike at all clients"):
        bf.solve(unequal, fed, algorithm=method)


@pytest.mark.parametrize("sizes", [None, {"a": 100}])
def test_a_number_of_rows_that_noise_hides_gives_no_interval(sizes):
    """Of 100 declared rows and 3 coefficients: the intercept's entry says how many there are."""
    problem = bf.Problem(bf.Squared(), bf.Linear(True), privacy=bf.Budget(1.0, 1e-6, sizes=sizes))
    moments: Any = SimpleNamespace(rows=100)
    A = np.stack([np.eye(3), np.diag([1, 1, 0.5]), np.diag([1, 1, 0.02])])
    if sizes is None:  # the true number
        np.testing.assert_allclose(intervals._residual_freedom(problem, moments, A), 0.97)
        return
    found = intervals._residual_freedom(problem, moments, A[:2])
    np.testing.assert_allclose(found, [0.97, 0.47])
    with pytest.raises(ValueError, match="noise hides the number of rows"):
        intervals._residual_freedom(problem, moments, A)
