"""The words of an outcome are made in one place, from the certificate."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from problems import PLAIN

import bonafed as bf
from bonafed.problem.lower_bounds import Multipliers
from bonafed.problem.predictors.affine import is_affine
from bonafed.rounds import Stop
from bonafed.solution.outcome import Ended, stated
from bonafed.solution.plan import plan
from bonafed.solution.solve import Finished, conclude, run
from examples import ALGORITHMS, federation

SOURCE = Path(bf.__file__).parent
HOME = "solution/outcome.py"
OF_ENGINES = "engines/endings.py"  # what an engine reports of a run that it has ended
STATED = {name: example for name, example in ALGORITHMS.items() if example.stated}


def worded(tree: ast.Module) -> list[int]:
    """The lines that put words into an outcome. ``Done`` takes no words at all."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "bonafed.rounds"
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree) if "Outcome" in imported else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Outcome":
            text = node.args[1:] + [each.value for each in node.keywords if each.arg == "text"]
            found += [node.lineno for each in text if ast.unparse(each) != "''"]
    return found


def test_only_one_file_and_one_of_the_engines_put_words_into_an_outcome() -> None:
    places = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if "Outcome(" in (source := path.read_text()) and worded(ast.parse(source))
    }
    assert places == {HOME, OF_ENGINES}


@cache
def solved(name: str) -> tuple[Finished, bf.Solution]:
    problem, algorithm = STATED[name].stated
    raw = federation((20, 35, 12, 28, 9), 4)
    fed = raw.pooled() if STATED[name].federation.n_clients == 1 else raw
    with np.errstate(all="ignore"):
        finished = run(plan(problem, fed, algorithm=algorithm, max_rounds=4))
        return finished, conclude(finished)


def again(name: str, stop: Stop, **numbers: object) -> bf.Outcome:
    """What is stated of a run with this stop, with other numbers in its certificate."""
    finished, solution = solved(name)
    ended = Ended(stop, solution.rounds, finished.plan.method)
    certificate = replace(solution.certificate, **numbers)
    limits = ()
    if isinstance(solution.duals, Multipliers):
        limits = finished.plan.data.clients, solution.duals, solution.constraints
    return stated(ended, finished.plan.concrete, certificate, *limits)


@pytest.mark.parametrize("name", STATED)
def test_an_outcome_says_what_follows_from_its_stop_and_its_certificate(name: str) -> None:
    _, solution = solved(name)
    same = again(name, solution.outcome.stop)
    assert (same.stop, same.text) == (solution.outcome.stop, solution.outcome.text)


@pytest.mark.parametrize("name", STATED)
def test_no_stop_of_a_method_makes_an_optimum_without_a_proof(name: str) -> None:
    unproved = {"bound": None, "gap": None, "relative_gap": None, "infeasible": None}
    finished, solution = solved(name)
    gap = "atol" in vars(finished.plan.method)
    for stop in Stop:
        outcome = again(name, stop, **unproved)
        assert outcome.stop is not Stop.INFEASIBLE
        if gap or not is_affine(finished.plan.concrete.predictor):
            assert outcome.stop is not Stop.OPTIMAL
        assert outcome.text.endswith(".")
        if not solution.constraints:
            same = again(name, outcome.stop, **unproved)
            assert (same.stop, same.text) == (outcome.stop, outcome.text)


class Boasting(bf.Bundle):
    """A bundle that holds the first model with a bound for optimal."""

    def improve(self, state, ids, up):
        state, ask = super().improve(state, ids, up)
        return state, bf.rounds.Done(Stop.OPTIMAL) if np.isfinite(state.bound) else ask


def test_a_claim_that_the_data_do_not_bear_out_is_not_repeated() -> None:
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(1e-2))
    method = Boasting(metric="identity", cuts=1)
    finished = run(plan(problem, federation((20, 35), 4), algorithm=method))
    outcome = conclude(finished).outcome
    assert outcome.stop is Stop.UNPROVEN
    assert "proven relative gap" in outcome.text
    assert "lower tol" in outcome.text
