"""What is said to make a model trivial."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest
from met import met

import bonafed as bf
from bonafed.solution import blame
from bonafed.solution.solve import fit
from bonafed.solution.thresholds import radius_threshold

N = 200
MODEL = bf.Linear(True)


@cache
def fed() -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    y = np.where(X[:, 0] + rng.normal(size=N) > 0, 1, -1)
    return bf.Federation.from_arrays(X, y, np.repeat([*"abcd"], N // 4))


def why(data: Any = None, **slots: Any) -> bf.Triviality:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bf.solve(bf.Problem(bf.Logistic(), MODEL, **slots), data or fed()).trivial
    assert found is not None
    return found


@met(
    "C",
    "L2(1e9) over clients in LpBall(0)",
    "'max_rounds': the run stopped before it was done",
    "the strength of L2 is to blame",
)
@met(
    "C",
    "L2(1e9) beside a tail of 1, a simplex, a radius of .001, or nothing else",
    "'max_rounds' in all of them",
    "the strength of L2 is to blame",
    "L2(1e9) over clients in LpBall(0)",
)
@pytest.mark.parametrize(
    "beside",
    [
        {"over_clients": bf.LpBall(0.0)},
        {"over_clients": bf.LpBall(0.1)},
        {"over_clients": bf.Superquantile(1.0)},
        {"over_clients": bf.Simplex()},
        {"over_samples": bf.WassersteinBall(1e-3)},
        {},
    ],
)
def test_a_strength_that_is_to_blame_is_blamed(beside: dict[str, Any]) -> None:
    found = why(regulariser=bf.L2(1e9), **beside)
    assert (found.parameter, found.value) == ("strength", 1e9)


@met(
    "C",
    "L2(1e9) under a limit of 5 that no model comes near",
    "the limit: 'under NeymanPearson with level 5 no coefficient lowers the objective'",
    "the strength of L2 is to blame",
    "L2(1e9) over clients in LpBall(0)",
)
def test_an_idle_limit_is_not_blamed() -> None:
    limit = bf.NeymanPearson(1.0, 5.0)
    assert why(regulariser=bf.L2(1e9), local_constraint=limit).parameter == "strength"


@met(
    "C",
    "bounds of 1e-9, a ball of 1e-9",
    "'max_rounds': the run stopped before it was done; the ball was blamed rightly",
    "the bounds and the ball are to blame",
    "L2(1e9) over clients in LpBall(0)",
)
@pytest.mark.parametrize("h", [bf.Bounds(-1e-9, 1e-9), bf.Ball(1e-9)])
def test_tight_sets_are_blamed(h: Any) -> None:
    assert why(regulariser=h).parameter == "regulariser"


@met(
    "C",
    "a radius of .99999 r*, whose model equals the optimum to 1e-10",
    "'the optimal one is not [trivial]: the run stopped before it was done'",
    "the radius is to blame; no run is said to be unfinished that is proved to be done",
)
@pytest.mark.parametrize("share", [0.999, 0.99999, 1 - 1e-7, 1 - 1e-12, 1.0])
def test_a_proved_optimum_is_not_called_unfinished(share: float) -> None:
    ball = bf.WassersteinBall(1.0)
    limit = radius_threshold(bf.Problem(bf.Logistic(), MODEL, over_samples=ball), fed()).value
    found = why(over_samples=bf.WassersteinBall(share * limit))
    assert found.parameter == "radius"
    assert "not" not in found.text


@met(
    "C",
    "a plain mean that is not solved, or only half",
    "'the features say little or nothing about the target', which tell the classes well, or the"
    " strength is blamed without any proof",
    "nothing is said of the features; what is to blame was not found",
)
@pytest.mark.parametrize("steps", [0, 1])
def test_nothing_is_said_from_a_model_that_was_not_found(steps: int, monkeypatch: Any) -> None:
    problem = bf.Problem(bf.Hinge(), MODEL, regulariser=bf.L2(1000.0))
    solution = fit(problem, fed())
    monkeypatch.setattr(blame, "STEPS", steps)
    found = blame.triviality(problem, fed(), solution.w, solution.certificate)
    assert found is not None
    assert "say little" not in found.text
    assert "Which parameter is to blame was not found" in found.text


@met(
    "C",
    "a trivial hinge of 20,000 rows and 20 features",
    "the search takes 8.2 CPU s after a fit of .05 s",
    "a sample of 1,000 rows is asked, and the text says so",
)
def test_a_large_table_is_asked_by_a_sample() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8_000, 5))
    y = np.where(X[:, 0] + rng.normal(size=8_000) > 1.5, 1, -1)
    data = bf.Federation.from_arrays(X, y, np.arange(8_000) % 4)
    found = why(data, over_samples=bf.WassersteinBall(5.0))
    assert found.parameter == "radius"
    assert "of the 8,000 rows" in found.text


CONSTANT = "a target that is 5 in all rows trained on"
SAID = "'the features say little or nothing about the target. Look for other features'"


@met("C", CONSTANT, SAID, "the target has one value in all rows: name another one")
@met(
    "C",
    "the same with the squared loss",
    f"'worse than the constant', and {SAID}",
    "the same",
    CONSTANT,
)
@met("C", "classes that are declared, and rows of one of them", SAID, "the same", CONSTANT)
@met("C", "one row of 200 is another number", "no such warning", "as before", CONSTANT)
def test_a_constant_target_is_named_and_no_feature_is_blamed() -> None:
    X, clients = fed().pooled().rows(0)[0], np.repeat([*"abcd"], N // 4)
    fives = np.full(N, 5.0)
    for loss, y, classes in (
        (bf.Huber(1.0), fives, None),
        (bf.Squared(), fives, None),
        (bf.Logistic(), np.full(N, "yes"), ("no", "yes")),
    ):
        data = bf.Federation.from_arrays(X, y, clients, classes=classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = bf.solve(bf.Problem(loss, MODEL), data).trivial
        assert found is not None
        assert f"the target is {y[0]} in all {N} rows trained on" in found.text
        assert "features" not in found.text
        assert "Name another target" in found.text
    fives[3] = 6.0
    data = bf.Federation.from_arrays(X, fives, clients)
    found = bf.solve(bf.Problem(bf.Huber(1.0), MODEL), data).trivial
    assert found is None or "in all" not in found.text
