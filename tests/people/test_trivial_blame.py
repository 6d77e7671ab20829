"""What is said to make a model trivial."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from met import met

import bonafed as bf
from bonafed.solution import blame, trivial
from bonafed.solution.solve import fit
from bonafed.solution.thresholds import radius_threshold
from bonafed.solvers.conic.builder import Model

N = 200
MODEL = bf.Linear(True)


@cache
def fed() -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    y = np.where(X[:, 0] + rng.normal(size=N) > 0, 1, -1)
    return bf.Federation.from_arrays(X, y, np.repeat([*"abcd"], N // 4))


@cache
def uneven() -> bf.Federation:
    X, y = fed().pooled().rows(0)
    return bf.Federation.from_arrays(X, y, np.repeat([*"abcd"], [20, 30, 50, 100]))


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


NEAR = "a radius of .99999 r*"


@met(
    "C",
    f"{NEAR}, whose model equals the optimum to 1e-10",
    "'the optimal one is not [trivial]: the run stopped before it was done'",
    "the radius is to blame; no run is said to be unfinished that is proved to be done",
)
@met(
    "C",
    "a radius of .999 r*",
    "'the optimal one is not [trivial]: the run stopped before it was done'",
    "the radius is to blame",
    NEAR,
)
@met(
    "C",
    "radii of r* and of r* less a ten-millionth of it",
    "the radius is to blame, with two numbers of which one is not larger than r*",
    "the radius is to blame",
    NEAR,
)
@met(
    "C",
    "a radius of .99999 r* where a clinic is larger, and where the clients' weights are free",
    "'the optimal one is not [trivial]: the run stopped before it was done'",
    "the radius is to blame",
    NEAR,
)
@pytest.mark.parametrize("share", [0.999, 0.99999, 1 - 1e-7, 1 - 1e-12, 1.0])
def test_a_proved_optimum_is_not_called_unfinished(share: float) -> None:
    ball = bf.WassersteinBall(1.0)
    limit = radius_threshold(bf.Problem(bf.Logistic(), MODEL, over_samples=ball), fed()).value
    found = why(over_samples=bf.WassersteinBall(share * limit))
    assert found.parameter == "radius"
    assert "not" not in found.text
    if share == 0.99999:
        for clients in (bf.Mean("size"), bf.Simplex()):
            other = bf.Problem(bf.Logistic(), MODEL, over_samples=ball, over_clients=clients)
            there = bf.WassersteinBall(share * radius_threshold(other, uneven()).value)
            found = why(uneven(), over_samples=there, over_clients=clients)
            assert found.parameter == "radius"
            assert "not" not in found.text


HALF = "a plain mean that is not solved"


@met(
    "C",
    f"{HALF}, or only half",
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
    "a fit that a cap ends at its first round, of features that say much",
    "'Raise max_rounds, or lower tol' beside 'raise max_rounds or tol' of the outcome",
    "a better model is known, and the outcome says what to do; nothing is blamed",
    HALF,
)
def test_a_fit_that_a_cap_ended_is_not_blamed_on_a_parameter() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = bf.Problem(bf.Logistic(), MODEL, regulariser=bf.L2(1e-3))
        solution = bf.solve(problem, fed(), algorithm=bf.FedAvg(step_size=1e-9), max_rounds=1)
    found = solution.trivial
    assert found is not None
    assert found.parameter is None
    assert "a better one is known" in found.text


RANKED = bf.RankADMM(max_rounds=5, polish=False)
VAR = "ValueAtRisk(.9) on pooled rows"
UNPROVED: dict[str, tuple[dict[str, Any], Any]] = {
    "ValueAtRisk": ({"over_samples": bf.ValueAtRisk(0.9)}, RANKED),
    "SCAD": ({"regulariser": bf.SCAD(5.0)}, None),
    "MCP": ({"regulariser": bf.MCP(0.6)}, None),
    "SCAD, ranked": ({"regulariser": bf.SCAD(0.6)}, RANKED),
    "MLP": ({"predictor": bf.MLP((2,)), "regulariser": bf.L2(50.0)}, None),
}


@met(
    "C",
    f"{VAR}: a solve that is not convex, and ends unproven at 0",
    "'under ValueAtRisk(level=0.9) of the losses of rows no coefficient lowers the objective'",
    "nothing proves that no model is better; ValueAtRisk is named as what it may be",
)
@met(
    "C",
    "SCAD(5), SCAD(.6) and MCP(.6), solved to rest at 0",
    "'at strength 5 of SCAD no coefficient lowers the objective'",
    "nothing proves that no model is better",
    VAR,
)
@met(
    "C",
    "a network under L2(50) that predicts one class",
    "'Which parameter is to blame was not found: it may be so at strength 50 of L2'",
    "and: nothing proves that no model is better",
    VAR,
)
@met(
    "C",
    "problems that are not convex, whose plain mean is never compared with a bound",
    "a parameter was blamed, or the features",
    "neither",
    HALF,
)
@pytest.mark.parametrize("name", UNPROVED)
def test_no_parameter_is_blamed_where_nothing_is_proved(name: str) -> None:
    slots, method = UNPROVED[name]
    problem = bf.Problem(**{"loss": bf.Logistic(), "predictor": MODEL} | slots)
    data = fed() if method is None else fed().pooled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = bf.solve(problem, data, algorithm=method, max_rounds=5)
    assert solution.outcome.stop is not bf.Stop.OPTIMAL
    found = solution.trivial
    assert found is not None
    assert found.parameter is None
    assert "nothing proves that none is better" in found.text
    assert "no coefficient lowers" not in found.text


@met(
    "C",
    "rows that all have a copy of the other class",
    "the features say little or nothing, rightly, of a solve with a gap up to 1 %",
    "the same, where the steps of the plain mean came to rest",
    HALF,
)
def test_features_without_signal_are_said() -> None:
    rng = np.random.default_rng(1)
    X, y = np.repeat(rng.normal(size=(N, 3)), 2, 0), np.tile([-1, 1], N)
    data = bf.Federation.from_arrays(X, y, np.repeat([*"abcd"], N // 2))
    found = why(data, regulariser=bf.L2(10.0))
    assert "say little or nothing about the target" in found.text


LARGE = "a trivial hinge of 20,000 rows"


@met(
    "C",
    f"{LARGE} and 20 features",
    "the search takes 8.2 CPU s after a fit of .05 s",
    "a sample of 1,000 rows is asked, no problem is solved, and the text says so",
)
@met(
    "C",
    "8,000 rows under L1(5) and under L2(1e9) with a hinge loss",
    ".46 s and .54 s beside .03 s and .09 s",
    "a sample of half of the rows, and no solve",
    LARGE,
)
@met(
    "C",
    "8,000 rows under the absolute loss with radius 5; labels that may flip",
    "programs over the rows: .69 s beside .03 s for the labels",
    "no program over rows is solved beside a fit",
    LARGE,
)
@met(
    "C",
    "a tail of .05 of 8,000 rows",
    "a linear program over all rows, for tail*",
    "no program over rows; `tail_threshold` computes it",
    LARGE,
)
def test_a_large_table_is_asked_by_a_sample(monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8_000, 5))
    y = np.where(X[:, 0] + rng.normal(size=8_000) > 1.5, 1, -1)
    data = bf.Federation.from_arrays(X, y, np.arange(8_000) % 4)
    target = X[:, 0] + rng.normal(size=8_000)
    real = bf.Federation.from_arrays(X, target, np.arange(8_000) % 4)
    flips = bf.WassersteinBall(0.5, label_cost=0.5)
    cases: list[tuple[Any, str, dict[str, Any]]] = [
        (data, "radius", {"over_samples": bf.WassersteinBall(5.0)}),
        (data, "strength", {"loss": bf.Hinge(), "regulariser": bf.L1(5.0)}),
        (data, "strength", {"loss": bf.Hinge(), "regulariser": bf.L2(1e9)}),
        (real, "radius", {"loss": bf.Absolute(), "over_samples": bf.WassersteinBall(5.0)}),
        (data, "radius", {"over_samples": flips}),
        (data.pooled(), "tail", {"over_samples": bf.Superquantile(0.05)}),
    ]
    monkeypatch.setattr(Model, "solve", None)  # of programs
    for one, parameter, slots in cases:
        problem = bf.Problem(**{"loss": bf.Logistic(), "predictor": MODEL} | slots)
        w = np.zeros(6)
        w[-1] = trivial.best_constant(*problem.at(one)).intercept
        value = problem.objective(w, one)
        proof = replace(bf.certify(problem, one, w), bound=value, gap=0.0)
        found = blame.triviality(problem, one, w, proof)
        assert found is not None
        assert found.parameter == parameter
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
