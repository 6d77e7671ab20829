"""The number of rounds in the words of an outcome is that of the run, whatever the method."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest

import bonafed as bf
from bonafed.algorithms.alternatives import instead, takes
from bonafed.algorithms.requirements import Setting
from bonafed.solution.outcome import Ended, refuted, stated
from bonafed.solution.solve import fit

CAP = 3
LOOSE = {"tol": 1e-3, "max_rounds": 400}


def table() -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] + rng.normal(size=60) > 0, "ill", "well")
    return bf.Federation.from_arrays(X, y, np.arange(60) % 3)


MEAN = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
BALL = bf.Problem(bf.Hinge(), over_samples=bf.WassersteinBall(0.05), regulariser=bf.L2(0.1))
LIMIT = bf.Problem(
    bf.Logistic(), local_constraint=bf.NeymanPearson("ill", 0.6), regulariser=bf.L2(0.1)
)
CASES = [
    (bf.AFL, MEAN),
    (bf.ASPIRE, MEAN),
    (bf.AsyncDRO, MEAN),
    (bf.Bundle, BALL),
    (bf.DoubleLoop, BALL),
    (bf.EpigraphADMM, MEAN),
    (bf.ADLPMM, MEAN),
    (bf.FedAvg, MEAN),
    (bf.MultiplierMethod, MEAN),
    (bf.InteriorPoint, LIMIT),
    (bf.ProximalAL, LIMIT),
    (bf.PrivateADMM, MEAN),
]


def named(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+) rounds", text)]


@pytest.mark.parametrize(
    ("method", "problem"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
@pytest.mark.parametrize("engine", [None, bf.VirtualClock(stragglers={0: 5.0})])
def test_an_outcome_names_the_rounds_that_there_were(method, problem, engine) -> None:
    for settings in (LOOSE, {"max_rounds": CAP}):
        known = {name: settings[name] for name in settings if hasattr(method(), name)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            solution = fit(problem, table(), algorithm=method(), engine=engine, **known)
        text, rounds = solution.outcome.text, solution.rounds
        assert set(named(text)) <= {rounds}, text
        if settings is not LOOSE and solution.outcome.stop is bf.Stop.MAX_ROUNDS:
            assert named(text) == [rounds] or rounds == CAP


@pytest.mark.parametrize("cap", [2, 7])
def test_drfa_counts_two_rounds_an_iteration(cap) -> None:
    problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    solution = fit(problem, table(), algorithm=bf.DRFA(max_rounds=cap))
    assert named(solution.outcome.text) == [solution.rounds]


def test_a_run_states_the_rounds_beyond_its_cap_and_those_until_its_time() -> None:
    solution = fit(MEAN, table(), algorithm=bf.Bundle(max_rounds=CAP))
    concrete = MEAN.at(table())[0]
    for time in (None, 12.0):
        end = Ended(bf.Stop.MAX_ROUNDS, solution.rounds, bf.Bundle(max_rounds=CAP), time)
        text = stated(end, concrete, solution.certificate).text
        assert named(text) == [solution.rounds] == [CAP + 1]
        assert ("raise max_time" in text) == (time is not None)


def test_at_a_cap_of_iterations_no_rounding_is_to_blame() -> None:
    method = bf.RankADMM(max_iterations=20, tol_residual=1e-9, finish=False)
    solution = fit(bf.Problem(bf.Logistic()), table().pooled(), algorithm=method)
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert "RankADMM stopped at max_iterations = 20;" in solution.outcome.text
    assert "rounding" not in solution.outcome.text
    ended = Ended(solution.outcome.stop, solution.rounds, method)
    assert "raise max_iterations or tol" in solution.outcome.text
    assert refuted(ended, solution.certificate) == ""
    assert "before max_rounds" in refuted(replace(ended, rounds=1), solution.certificate)


@pytest.mark.parametrize("method", [bf.Bundle, bf.AsyncDRO, bf.AFL, bf.MultiplierMethod])
def test_a_gap_stands_beside_a_tolerance_as_what_that_is_relative_to(method) -> None:
    solution = fit(MEAN, table(), algorithm=method(), tol=1e-2)
    found = re.search(
        r"relative gap (\S+) \(absolute (\S+)\) proven .*\(tol 0.01\)", solution.outcome.text
    )
    assert found is not None, solution.outcome.text
    relative, gap = map(float, found.groups())
    assert relative == pytest.approx(gap / solution.certificate.value, rel=0.05)


def test_with_nothing_inside_the_limits_an_advice_names_only_what_takes_the_problem() -> None:
    for risk, taken in ((bf.Mean(), True), (bf.Simplex(), False)):
        problem, _ = replace(LIMIT, over_clients=risk).at(table())
        other = instead(problem, 3, "proximal_al")
        assert (other == "ProximalAL()") is taken
        solution = fit(problem, table(), algorithm=bf.Bundle(), max_rounds=1)
        ended = Ended(bf.Stop.STALLED, 9, bf.InteriorPoint())
        broken = [row | {"value": 1.0, "violation": 1.0} for row in solution.constraints]
        limits = table().clients, solution.duals, broken
        text = stated(ended, problem, solution.certificate, *limits).text
        assert "relax a limit, or give another start" in text
        assert ("or use ProximalAL()" in text) is taken
        assert takes(bf.ProximalAL, problem, Setting(3)) is taken
