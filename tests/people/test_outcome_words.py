"""Sentences of outcomes and warnings that are bound to what was proven."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run
from met import met
from sklearn.exceptions import ConvergenceWarning

import bonafed as bf
from bonafed.algorithms.alternatives import known_methods
from bonafed.config.config import parse_config
from bonafed.report.pages import markdown
from bonafed.rounds import Done, Stop
from bonafed.runs.pipeline import dry_run
from bonafed.runs.verification import verify_run
from bonafed.solution import outcome
from bonafed.solution import plan as solving

N = 200
GROUPS = np.repeat([*"abcd"], N // 4)
PLAIN = bf.Problem(bf.Logistic(), bf.Linear(True))


@cache
def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    return X, np.where(X[:, 0] + rng.normal(size=N) > 0, 1, -1)


def solved(X: Any, y: Any, problem: Any = PLAIN, **how: Any) -> tuple[bf.Solution, list[Any]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = bf.solve(problem, bf.Federation.from_arrays(X, y, GROUPS[: len(y)]), **how)
    return solution, [w for w in caught if issubclass(w.category, bf.UnprovenWarning)]


def rare() -> tuple[Any, Any]:
    """A feature that 10 rows have, all of the class 1."""
    (X, y), flag = rows(), np.arange(N) % 20 == 0
    return np.column_stack([X, flag]).astype(float), np.where(flag, 1, y)


# ------------------------------------------------------------------------------------ gaps in words


class Early(bf.Bundle):
    """A bundle that stops as soon as it has a bound, and says how."""

    end = Stop.STALLED

    def improve(self, state: Any, ids: Any, up: Any) -> Any:
        state, ask = super().improve(state, ids, up)
        return state, Done(self.end) if np.isfinite(state.bound) else ask


class Sure(Early):
    end = Stop.OPTIMAL


class Doubting(Early):
    end = Stop.UNPROVEN


SMALL = bf.Problem(
    bf.Squared(), bf.Linear(True), over_clients=bf.Simplex(), regulariser=bf.L2(1e-6)
)


@met(
    "C",
    "a run that stalls, of a small objective",
    "'proven gap 1.80e-04, relative 2.73e-01': what tolerances are about stood last",
    "the relative gap stands first, then the absolute one, as in every other outcome",
)
@met(
    "C",
    "a method that says OPTIMAL or UNPROVEN at the same gap",
    "the same stop, no warning from solve",
    "UNPROVEN for both, with the same words and a warning",
    "a run that stalls, of a small objective",
)
@met(
    "C",
    "a target of size 1e-4, whose best objective is 1e-9, and a target that a line fits exactly",
    "'proven gap 1.13e-11, relative 9.54e-03'; 'proven gap 1.43e-08, relative 2.79e-02'",
    "the relative gap stands first",
    "a run that stalls, of a small objective",
)
@met(
    "C",
    "a target of size 1e4, whose objective is large, stalled and at a cap of 3 rounds",
    "'proven gap 1.02e+03, relative 2.16e-03'; 'proven gap 2.81e+06, relative 1.00e+00'",
    "the relative gap stands first, also at a cap",
    "a run that stalls, of a small objective",
)
def test_the_relative_gap_stands_first_at_any_size() -> None:
    X, y = rows()
    slots: dict[str, Any] = {"over_clients": bf.Simplex(), "regulariser": bf.L2(1e-6)}
    capped = bf.Bundle(metric="identity", cuts=1, max_rounds=3)
    stalled = Early(metric="identity", cuts=1)
    for target, loss in (
        *((1e-4 * X[:, 0] + 5e-5 * y, bf.Squared()), (X[:, 0], bf.Absolute())),
        (1e4 * X[:, 0] + 1e3 * y, bf.Squared()),
    ):
        for method in (stalled, capped):
            problem = bf.Problem(loss, bf.Linear(True), **slots)
            solution, said = solved(X, target, problem, algorithm=method)
            proof = solution.certificate
            words = f"relative gap {proof.relative_gap:.2e} (absolute {proof.gap:.2e})"
            assert words in solution.outcome.text
            assert len(said) == 1


@pytest.mark.parametrize("method", [Early, Sure, Doubting])
def test_the_relative_gap_stands_first_whatever_a_method_says(method: Any) -> None:
    X, y = rows()
    target = 0.01 * X[:, 0] + 0.005 * y
    solution, said = solved(X, target, SMALL, algorithm=method(metric="identity", cuts=1))
    proof = solution.certificate
    words = f"relative gap {proof.relative_gap:.2e} (absolute {proof.gap:.2e})"
    assert words in solution.outcome.text
    assert solution.outcome.stop is not Stop.OPTIMAL
    assert "known cuts" not in solution.outcome.text
    assert [str(w.message) for w in said] == [solution.outcome.text]


@met(
    "C",
    "UNPROVEN at a gap of 14 %",
    "no warning from solve, nor from an estimator",
    "UnprovenWarning with the words of the outcome; from an estimator it is a ConvergenceWarning",
)
@pytest.mark.parametrize("model", [bf.RobustClassifier(), bf.AgnosticClassifier()])
def test_estimators_warn_of_an_unproven_model(model: Any) -> None:
    X, y = rows()
    model.set_params(algorithm=Doubting(metric="identity", cuts=1))
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y, groups=GROUPS)
    assert caught[0].category is not ConvergenceWarning
    assert issubclass(caught[0].category, bf.UnprovenWarning)
    assert caught[0].filename == __file__


@met(
    "C",
    "a cap at which the gap is within the tolerance already",
    "'raise max_rounds or tol', and a ConvergenceWarning of an estimator",
    "it says that the model is optimal within tol, and nothing warns",
    "UNPROVEN at a gap of 14 %",
)
def test_a_capped_run_within_its_tolerance_is_not_blamed() -> None:
    X, y = rows()
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), regulariser=bf.L2(0.1))
    solution, said = solved(X, y, problem, algorithm=bf.ADLPMM(max_rounds=30, tol=1e-2))
    assert solution.outcome.stop is Stop.MAX_ROUNDS
    assert solution.certificate.relative_gap <= 1e-2
    assert "optimal within tol" in solution.outcome.text
    assert "raise" not in solution.outcome.text
    assert not said


@pytest.mark.parametrize("tol", [1e-15, 1e-18])
@met(
    "C",
    "tol = 1e-15, which no float reaches, with L2(1e-3)",
    "OPTIMAL: 'relative gap 5.02e-13 proven (tol 1e-15)'; STALLED without a warning at 1e-18",
    "not optimal, with a warning: the gap is larger than tol",
    "UNPROVEN at a gap of 14 %",
)
def test_a_tolerance_below_all_gaps_is_not_said_to_be_met(tol: float) -> None:
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(1e-3))
    solution, warned = solved(*rows(), problem, tol=tol)
    gap = solution.certificate.relative_gap
    assert gap is not None
    within = gap <= 2 * tol
    assert within == (not warned) == ("optimal within" in solution.outcome.text)
    assert (solution.outcome.stop is Stop.OPTIMAL) <= within


@met(
    "C",
    "FedAvg, whose local steps leave it at a gap of 4 %",
    "'lower tol, or add a regulariser', where there is one; no warning",
    "a method that proves its gap is named, and a warning",
    "UNPROVEN at a gap of 14 %",
)
def test_advice_is_what_helps() -> None:
    X, y = rows()
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), regulariser=bf.L2(0.1))
    solution, said = solved(X, y, problem, algorithm=bf.FedAvg())
    assert solution.outcome.stop is Stop.UNPROVEN
    assert "use Bundle()" in solution.outcome.text
    assert "regulariser" not in solution.outcome.text
    assert said
    assert not solved(X, y, problem, algorithm=bf.Bundle())[1]


@met(
    "C",
    "a path of radii whose solves are capped",
    "rows that say 'max_rounds', no warning",
    "one UnprovenWarning that names the radii",
    "UNPROVEN at a gap of 14 %",
)
def test_a_path_warns_of_what_it_did_not_prove() -> None:
    X, y = rows()
    fed = bf.Federation.from_arrays(X, y, GROUPS)
    ball = bf.WassersteinBall(radius=0.1)
    problem = bf.Problem(bf.Logistic(), over_samples=ball, regulariser=bf.L2(1e-3))
    with pytest.warns(bf.UnprovenWarning, match=r"2 of 2 models .* \[0\.05, 0\.1\]") as caught:
        path = bf.radius_path(problem, fed, radii=[0.05, 0.1], max_rounds=2)
    assert len(caught) == 1
    assert {row["outcome"] for row in path} == {"max_rounds"}


# -------------------------------------------------------------------------------- separated classes

METHODS = [
    *(bf.Bundle(), bf.AsyncBundle(), bf.InteriorPoint(), bf.MultiplierMethod(), bf.ProximalAL()),
    *(bf.FedAvg(), bf.AFL(max_rounds=300), bf.AsyncDRO(), bf.DoubleLoop(max_rounds=300)),
]


@met(
    "C",
    "separated classes without a penalty",
    "RankADMM and ProximalAL say OPTIMAL, others 'lower tol' or 'raise max_rounds', coefficients"
    " reach 640, no note",
    "every method says that the classes are separated and no model is the best one, and warns",
)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_separated_classes_are_said(method: Any) -> None:
    X, _ = rows()
    X, y = X[:60], np.where(X[:60, 0] + 0.3 * X[:60, 1] > 0, 1, -1)
    solution, said = solved(X, y, algorithm=method)
    assert solution.certificate.separated == 1
    assert solution.outcome.stop is not Stop.OPTIMAL
    assert "separated: a combination of the features tells all rows" in solution.outcome.text
    assert said


@met(
    "C",
    "quasi-complete separation: a rare feature all of whose rows have one class",
    "OPTIMAL by InteriorPoint, an odds ratio of 4e8",
    "5.0% of the rows are said to be separated, by every method",
    "separated classes without a penalty",
)
@pytest.mark.parametrize("method", METHODS[:6], ids=lambda method: type(method).__name__)
def test_a_feature_of_one_class_is_said(method: Any) -> None:
    solution, said = solved(*rare(), algorithm=method)
    assert solution.certificate.separated == 0.05
    assert "tells 5.0% of the rows" in solution.outcome.text
    assert said


@met(
    "C",
    "three classes of which one feature tells one",
    "'no bound is proved: add a regulariser', coefficients of 1,300",
    "the separation is said",
    "separated classes without a penalty",
)
def test_a_class_of_several_that_is_apart_is_said() -> None:
    X, y = rows()
    three = np.where(X[:, 1] > 0.8, 2, (y > 0).astype(int))
    problem = bf.Problem(bf.Multinomial(), bf.Softmax())
    solution, said = solved(X, three, problem, algorithm=bf.MultiplierMethod())
    assert 0 < solution.certificate.separated <= 1
    assert "separated" in solution.outcome.text
    assert said
    mixed = np.random.default_rng(1).integers(3, size=N)
    assert solved(X, mixed, problem)[0].certificate.separated is None


@met(
    "C",
    "one client whose rows are separated, among others",
    "nothing of a separation, rightly: the model of all is finite",
    "nothing of the model of all; of a model of that client's rows only it is said",
    "separated classes without a penalty",
)
def test_a_client_that_is_separated_alone() -> None:
    X, y = rows()
    y = np.where(np.arange(N) < N // 4, np.where(X[:, 0] > 0, 1, -1), y)
    fed = bf.Federation.from_arrays(X, y, GROUPS)
    together, _ = solved(X, y)
    alone = bf.solve(PLAIN, fed.restrict("a"))
    assert together.certificate.separated is None
    assert alone.certificate.separated == 1


@met(
    "C",
    "separated classes with a penalty, bounds, a radius or a limit",
    "nothing, rightly",
    "nothing: there a best model exists",
    "separated classes without a penalty",
)
@pytest.mark.parametrize(
    "more",
    [
        {"regulariser": bf.L2(1e-3)},
        {"regulariser": bf.L1(1e-3)},
        {"regulariser": bf.Bounds(-5.0, 5.0)},
        {"over_samples": bf.WassersteinBall(0.01)},
        {"constraint": bf.LinearInequality(np.array([[0.0, 0.0, 0.0, 1.0, 0.0]]), 2.0)},
    ],
)
def test_a_model_that_something_bounds_is_not_called_separated(more: dict[str, Any]) -> None:
    X, y = rare()
    solution, _ = solved(X, y, bf.Problem(bf.Logistic(), bf.Linear(True), **more))
    assert solution.certificate.separated is None
    assert "separated" not in solution.outcome.text


def test_separation_is_invariant_to_units_copies_and_zero_rows() -> None:
    X, y = rare()
    for scale in (1e-6, 1e6):
        odd = np.column_stack([X * [1.0, scale, 1.0, 1 / scale], X[:, 0], np.zeros(N)])
        assert solved(odd, y, algorithm=bf.InteriorPoint())[0].certificate.separated == 0.05
    weights = np.where(np.arange(N) % 20 == 0, 0.0, 1.0)
    fed = bf.Federation.from_arrays(X, y, GROUPS, sample_weight=weights)
    assert bf.solve(PLAIN, fed).certificate.separated is None


# ------------------------------------------------------------------ where nothing bounds an optimum


@met(
    "C",
    "no regulariser and no bound, classes that overlap",
    "'no bound is proved', nothing else",
    "no model up to 1,000 times as large is better by more than 8e-12, and nothing warns",
)
@met(
    "C",
    "the worst of four clients without a penalty",
    "'no bound is proved: add a regulariser such as L2(1e-3)', nothing else",
    "no model up to 1,000 times as large is better by more than 5e-12 of the worst loss",
    "no regulariser and no bound, classes that overlap",
)
def test_a_proof_over_a_stated_region_of_the_worst_client() -> None:
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), over_clients=bf.Simplex())
    solution, said = solved(*rows(), problem, algorithm=bf.Bundle())
    assert solution.certificate.bound is None
    assert solution.certificate.nearby is not None
    assert "up to 1,000 times as large" in solution.outcome.text
    assert not said


@pytest.mark.parametrize("method", [bf.Bundle(), bf.MultiplierMethod(), bf.AsyncBundle()])
def test_a_proof_over_a_stated_region(method: Any) -> None:
    X, y = rows()
    solution, said = solved(X, y, algorithm=method)
    proof = solution.certificate
    assert proof.bound is proof.gap is None
    assert 0 <= proof.value - proof.nearby <= 1e-3 * proof.value
    assert "up to 1,000 times as large" in solution.outcome.text
    assert "no bound is proved" in solution.outcome.text
    assert not said
    best = bf.solve(PLAIN, bf.Federation.from_arrays(X, y, GROUPS), algorithm=bf.InteriorPoint())
    assert proof.nearby <= best.certificate.value
    again = bf.certify(solution.problem, bf.Federation.from_arrays(X, y, GROUPS), solution.w)
    assert again.nearby == pytest.approx(proof.nearby, rel=1e-9)


@met(
    "C",
    "hinge, absolute and quantile loss without a penalty",
    "'no bound is proved', nothing else, and a warning",
    "no model up to 1,000 times as large is better by more than 5e-9, and nothing warns",
    "no regulariser and no bound, classes that overlap",
)
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Absolute(), bf.Quantile(0.3)], ids=repr)
@pytest.mark.parametrize("over_clients", [bf.Mean(), bf.Simplex()], ids=repr)
def test_a_region_is_stated_for_losses_with_kinks(loss: Any, over_clients: Any) -> None:
    X, y = rows()
    target = y if isinstance(loss, bf.Hinge) else X[:, 0] + 0.1 * np.sin(7 * X).sum(1)
    problem = bf.Problem(loss, over_clients=over_clients)
    solution, said = solved(X, target, problem)
    proof = solution.certificate
    assert proof.bound is None
    assert not said
    assert "optimal within tol among these" in solution.outcome.text
    best, _ = solved(X, target, replace(problem, regulariser=bf.L2(1e-9)))
    assert best.certificate.bound - 1e-6 <= proof.nearby <= best.certificate.value


@met(
    "C",
    "least squares without a penalty, by a method that stopped early",
    "'no bound is proved'",
    "by how much a model up to 1,000 times as large may be better, and a warning",
    "no regulariser and no bound, classes that overlap",
)
def test_the_region_says_how_far_an_early_model_is() -> None:
    X, y = rows()
    problem = bf.Problem(bf.Squared(), bf.Linear(True))
    solution, said = solved(X, X[:, 0] + 0.1 * y, problem, algorithm=bf.FedAvg(max_rounds=2))
    best, _ = solved(X, X[:, 0] + 0.1 * y, problem, algorithm=bf.InteriorPoint())
    proof = solution.certificate
    assert proof.nearby <= best.certificate.value <= proof.value
    assert f"more than {proof.value - proof.nearby:.2e}" in solution.outcome.text
    assert said


@met(
    "C",
    "the zero model, and a hinge, without a penalty",
    "'no bound is proved'",
    "still so: a thousand times 0 is 0, and no region is stated where nothing is proved over it",
    "no regulariser and no bound, classes that overlap",
)
def test_no_region_is_stated_round_zero() -> None:
    X, y = rows()
    fed = bf.Federation.from_arrays(X, y, GROUPS)
    assert bf.certify(PLAIN, fed, np.zeros(4)).nearby is None


def test_no_better_model_lies_within_the_region() -> None:
    X, y = rows()
    fed = bf.Federation.from_arrays(X, y, GROUPS)
    rng = np.random.default_rng(0)
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), over_clients=bf.Simplex())
    for _ in range(10):
        w = rng.normal(size=4)
        proof = bf.certify(problem, fed, w)
        if proof.nearby is not None:
            best = bf.solve(problem, fed, start=w)
            assert proof.nearby <= best.certificate.value + 1e-12


# ------------------------------------------------------------------- names, advice, one round only


@met(
    "C",
    "FedProx(.1), at a cap and at rest",
    "'FedAvg stopped at max_rounds = 5'; 'FedAvg came to rest'",
    "it is called FedProx",
)
@met(
    "C", "FedAvg(), and FedAvg against false uploads", "FedAvg", "FedAvg, as before", "FedProx(.1)"
)
@met(
    "C",
    "a method of a paper, by its module's name",
    "a class of a user's own in a module '.papers.' was taken for one",
    "what is for comparison with a paper is declared by the class",
    "FedProx(.1)",
)
def test_a_method_is_called_by_its_name() -> None:
    X, y = rows()
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), regulariser=bf.L2(0.1))
    pulled, plain = bf.FedProx(0.1), bf.FedAvg(aggregate=bf.CoordinateMedian())
    for method, name in ((pulled, "FedProx"), (plain, "FedAvg"), (bf.FedAvg(), "FedAvg")):
        for cap in (3, 500):
            assert (
                solved(X, y, problem, algorithm=method, max_rounds=cap)[0].outcome.text[:7]
                == (f"{name} "[:7])
            )
    for cls in known_methods():
        places = ("", ".comparators.", ".papers.")
        assert cls.advised == max(k for k in (0, 1, 2) if places[k] in cls.__module__)


@met("C", "a run that is done after one round", "'proven after 1 rounds'", "'proven after 1 round'")
@met(
    "C",
    "one round at a cap, of a run whose site refuses, of a private run",
    "'after 1 rounds', 'all 1 rounds'",
    "'after 1 round'",
    "a run that is done after one round",
)
@met(
    "C", "none and several rounds", "'2 rounds'", "as before", "a run that is done after one round"
)
def test_one_round_is_one() -> None:
    X, y = rows()
    fed = bf.Federation.from_arrays(X, y, ["all"] * N)
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), regulariser=bf.L2(0.1))
    solution = bf.solve(problem, fed, algorithm=bf.RankADMM(tol=10.0))
    concrete, _ = problem.at(fed)
    for stop in Stop:
        end = outcome.Ended(stop, 1, solving.plan(problem, fed, algorithm=bf.FedAvg()).method)
        said = outcome.stated(end, concrete, solution.certificate).text
        assert "1 rounds" not in said
        again = outcome.stated(replace(end, rounds=2), concrete, solution.certificate).text
        assert said.replace("1 round", "") == again.replace("2 rounds", "")
    assert "1 rounds" not in outcome.budget_used(1).text


TIGHT = "NeymanPearson(level=1e-9), which hardly a model meets"


@met(
    "C",
    TIGHT,
    "'raise tol' in one warning, 'Raise max_rounds, or lower tol' in the next; no level",
    "the limits of 1e-9 are named: raise them; no other advice",
)
@met(
    "C",
    "NeymanPearson(level=1e-9) by Bundle at a cap",
    "'raise max_rounds or tol', then 'lower tol'",
    "the limits are named: raise them",
    TIGHT,
)
@met(
    "C",
    "a limit of 1e-9 for all clients together",
    "'raise tol', then 'Raise max_rounds, or lower tol'",
    "the limit is named: raise it",
    TIGHT,
)
@met(
    "C",
    "a limit of .001, which a model meets and is solved",
    "'Raise the level' of a model at chance",
    "the same",
    TIGHT,
)
def test_a_limit_that_hardly_a_model_meets_is_named() -> None:
    X, y = rows()
    fed, tight = bf.Federation.from_arrays(X, y, GROUPS), bf.NeymanPearson(1, 1e-9)
    each = bf.Problem(bf.Logistic(), bf.Linear(True), local_constraint=tight)
    together = bf.Problem(bf.Logistic(), bf.Linear(True), constraint=bf.Coupled(tight))
    for problem, method in ((each, None), (each, bf.Bundle(max_rounds=20)), (together, None)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = bf.solve(problem, fed, algorithm=method)
        text = solution.outcome.text
        assert "limit 1e-09" in text
        assert "Raise them" in text
        assert not any("lower tol" in str(w.message) for w in caught)
        assert not any("raise tol" in str(w.message) for w in caught)
    loose = bf.NeymanPearson(1, 1e-3)
    solution, _ = solved(X, y, bf.Problem(bf.Logistic(), bf.Linear(True), local_constraint=loose))
    assert solution.outcome.stop is Stop.OPTIMAL
    assert solution.trivial is not None
    assert "Raise the level" in solution.trivial.text


# ----------------------------------------------------------------------------------------- dry runs


@met(
    "C",
    "a dry run of a private run where 93 % of the rows have one class",
    "'the accuracy with this noise is 0.72 on average', of invented separable rows, whatever the"
    " share of the classes",
    "no accuracy is foretold; the share of the commoner class is named as what to compare with",
)
@met(
    "C",
    "a dry run of `private_admm`",
    "'the accuracy with this noise is 0.70 on average'",
    "no accuracy is foretold",
    "a dry run of a private run",
)
@met(
    "C",
    "a dry run at epsilon .1",
    "'the accuracy with this noise is 0.59 on average (0.44 to 0.93)'",
    "no accuracy is foretold",
    "a dry run of a private run",
)
@met(
    "C",
    "a dry run of clinics of 3 and 2 rows",
    "'the accuracy with this noise is 0.60 on average'",
    "no accuracy is foretold",
    "a dry run of a private run",
)
@pytest.mark.parametrize(
    "text",
    [
        *(small_run.PRIVATE, small_run.PRIVATE_ADMM),
        small_run.PRIVATE.replace("epsilon = 3.0", "epsilon = 0.1"),
        small_run.PRIVATE.replace("East = 15, North = 14", "East = 3, North = 2"),
    ],
)
def test_a_dry_run_promises_no_accuracy(text: str) -> None:
    said = dry_run(parse_config(text))
    (line,) = (line for line in said if line.startswith("accuracy:"))
    assert "not foretold" in line
    assert not any("invented" in each for each in said)


# -------------------------------------------------------------------------------------- run folders

FREE = (
    '[data]\npath = "clinics.csv"\nclient = "clinic"\ntarget = "sick"\ntest = 0.4\n'
    '[problem]\nloss = "logistic"\nstrength = 0.0\n[clients]\nrisk = "mean"\n'
    '[report]\ncompare_with = ["erm"]\nhtml = false\n'
)


@met(
    "C",
    "a run of `bonafed run` without a penalty, of classes that are separated",
    "the report calls exponentials of the coefficients factors of the odds",
    "a warning, no word of odds, and `verify` finds the separation again",
    "separated classes without a penalty",
)
@pytest.mark.parametrize("apart", [True, False])
def test_a_run_says_it_and_it_is_verified(apart: bool, tmp_path: Path) -> None:
    head, *lines = small_run.table(rows=40).splitlines()
    if apart:  # by age
        cells = [line.split(",") for line in lines]
        lines = [",".join([*c[:-1], "yes" if float(c[1]) > 0.5 else "no"]) for c in cells]
    run = small_run.small_run(tmp_path, data="\n".join([head, *lines]) + "\n", text=FREE)
    proof, text = run.result["certificate"], run.result["outcome"]["text"]
    page = markdown(run)
    assert (proof["separated"] is not None) == apart == ("separated" in text)
    assert (proof["nearby"] is not None) or apart
    assert apart != ("factor of the odds" in page)
    assert (text in page) or not apart
    assert [check for check in verify_run(run.path) if check.ok is False] == []


@met(
    "C",
    "tol=1e-15, below what rounding lets a proof be",
    "'lower tol'",
    "the tolerance to accept the model with, which does",
    "UNPROVEN at a gap of 14 %",
)
def test_nobody_is_told_to_lower_a_tolerance_that_rounding_ends() -> None:
    X, y = rows()
    problem = replace(PLAIN, regulariser=bf.L2(1e-3))
    solution, _ = solved(X, y, problem, tol=1e-15)
    assert solution.outcome.stop is Stop.UNPROVEN
    assert "lower tol" not in solution.outcome.text
    assert "accept it with atol or tol" in solution.outcome.text
    again, said = solved(X, y, problem, tol=2 * solution.certificate.relative_gap)
    assert again.outcome.stop is Stop.OPTIMAL
    assert not said


@met(
    "C",
    "FedAvg over clients that differ, at rest",
    "'lower tol, or use Bundle()': a tolerance of 1e-12 leaves the same gap",
    "another method, and nothing about tol",
    "UNPROVEN at a gap of 14 %",
)
@met(
    "C",
    "Bundle(tol=0), stalled at a gap of 2e-13",
    "'bring the features to similar sizes', which they have",
    "the tolerance to accept the model with",
    "a run that stalls",
)
def test_advice_is_only_what_helps() -> None:
    X, y = rows()
    problem = replace(PLAIN, regulariser=bf.L2(1e-3))
    text = solved(X, y, problem, algorithm=bf.FedAvg(max_rounds=3000))[0].outcome.text
    assert "lower tol" not in text
    assert "use Bundle()" in text
    text = solved(X, y, problem, tol=0.0)[0].outcome.text
    assert "sizes" not in text
    assert "accept it with atol or tol" in text


@met(
    "C",
    "a superquantile under which a constant is best: coefficients of 1e-10",
    "'the model is constant', and probabilities of .994 and .037",
    "the share of the class for everybody",
    "separated classes without a penalty",
)
@met(
    "C",
    "Sign({'age': 1}) in the table of constraints, and a limit that is missed by 1e-5",
    "'coefficient of age >= 0: measured -0.0157, met'; '-1, limit -1' is not met",
    "minus the coefficient is measured against 0; by how much a limit is missed",
    "separated classes without a penalty",
)
def test_what_only_a_solver_leaves_parts_nobody() -> None:
    X, y = rows()
    fed = bf.Federation.from_arrays(X, y, GROUPS).pooled()
    problem = bf.Problem(bf.Logistic(), over_samples=bf.Superquantile(0.1), regulariser=bf.L2(1e4))
    p = bf.solve(problem, fed).predict_proba(X)[:, 1]
    assert np.ptp(p) < 1e-3
    assert abs(p.mean() - np.mean(y > 0)) < 0.05
    signs = replace(PLAIN, constraint=bf.Sign({"x0": 1}), regulariser=bf.L2(1e-2))
    (row,) = bf.solve(signs, bf.Federation.from_arrays(X, y, GROUPS)).constraints
    assert row["constraint"] == "minus the coefficient of x0 <= 0"
    assert row["measured"] < 0 == row["limit"]
    assert str(row["limit"]) == "0.0"
