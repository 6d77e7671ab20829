"""What `quorate.solve` picks where no algorithm is named, and a whole solve on a simulated
clock.
"""

from dataclasses import replace

import numpy as np
import pytest

import quorate as qr
from quorate.data.declared_schema import declared_schema
from quorate.engines.event_log import Log
from quorate.rounds import Stop
from quorate.solution.default import default_algorithm

CLOCK = qr.VirtualClock(qr.Constant(1.0))
REPLAY = qr.Replay(Log((), 0, 64, np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int64)))


@pytest.fixture(scope="module")
def fed() -> qr.Federation:
    """Four clients, two features and a column of ones, labels that depend on the client."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.standard_normal((80, 2)), np.ones(80)])
    groups = np.repeat(["north", "east", "south", "west"], 20)
    y = np.where(
        X @ [1.0, -1.0, 0.3] + 0.5 * (groups == "east") + rng.standard_normal(80) > 0, "ill", "fine"
    )
    return qr.Federation.from_arrays(X, y, groups)


LOGISTIC = qr.Problem(qr.Logistic(), over_clients=qr.Simplex(), regulariser=qr.L2(0.01))


@pytest.mark.parametrize(
    ("problem", "engine", "expected"),
    [
        (LOGISTIC, None, qr.Bundle),
        (LOGISTIC, qr.InProcess("bytes"), qr.Bundle),
        (LOGISTIC, CLOCK, qr.AsyncBundle),
        (qr.Problem(qr.Hinge(), regulariser=qr.L2(0.01)), CLOCK, qr.AsyncBundle),
        (qr.Problem(qr.Logistic(), over_samples=qr.WassersteinBall(0.1)), CLOCK, qr.AsyncBundle),
        (qr.Problem(qr.Logistic(), qr.MLP((3,))), None, qr.AsyncDRO),
        (qr.Problem(qr.Logistic(), qr.MLP((3,)), over_clients=qr.KLBall(0.1)), CLOCK, qr.AsyncDRO),
        (qr.Problem(qr.Logistic(), regulariser=qr.MCP(0.01)), None, qr.AsyncDRO),
        (qr.Problem(qr.Squared(), regulariser=qr.L2(0.01)), REPLAY, qr.AsyncBundle),
        (qr.Problem(qr.Logistic(), regulariser=qr.GroupL2(0.01, (0, 0, 1))), None, qr.Bundle),
        (qr.Problem(qr.Hinge(), regulariser=qr.Ball(1.0)), None, qr.Bundle),
        (qr.Problem(qr.Hinge(), over_rows=qr.Superquantile(0.3)), None, qr.Bundle),
        # what the first choices refuse, another method takes
        (qr.Problem(qr.Hinge(), qr.MLP((3,))), None, qr.AFL),
        (qr.Problem(qr.Logistic(), over_samples=qr.Median()), None, qr.AFL),
    ],
)
def test_what_is_picked(fed, problem, engine, expected):
    target = fed if problem.loss.targets == "sign" else fed.with_targets([np.arange(20.0)] * 4)
    assert type(default_algorithm(*problem.at(target), engine)) is expected


def test_what_no_method_takes_says_what_would_be_taken(fed):
    problem = qr.Problem(qr.Hinge(), privacy=qr.Budget(1.0, 1e-5))
    with pytest.raises(ValueError, match=r"use loss=Logistic\(\), which PrivateSGD\(\) takes"):
        qr.solve(problem, fed)


def test_private_problems_take_gradient_descent_with_the_length_that_a_schema_declares(fed):
    private = qr.Problem(qr.Logistic(), privacy=qr.Budget(1.0, 1e-5))
    chosen = default_algorithm(*private.at(fed))
    assert (type(chosen), chosen.bound) == (qr.PrivateSGD, None)
    for unit in (False, True):
        schema = declared_schema(["a", "b", "c"], {}, "y", ["fine", "ill"], unit=unit)
        made = replace(fed, schema=schema, feature_names=("a", "b", "c"))
        assert default_algorithm(*private.at(made)).bound == (1.0 if unit else None)


def test_few_features_of_many_unit_rows_take_newton_steps():
    """By the number of rows, features, clients and the budget, never by the rows themselves."""
    schema = declared_schema(["a", "b", "c"], {}, "y", ["fine", "ill"], unit=True)

    def chosen(rows: int, clients: int, epsilon: float, view: str = "answers", **parts):
        X = np.zeros((rows * clients, 3))
        y = np.resize([-1, 1], len(X))
        made = qr.Federation.from_arrays(X, y, np.repeat([*map(str, range(clients))], rows))
        made = replace(made, schema=schema, feature_names=("a", "b", "c"))
        problem = qr.Problem(
            parts.get("loss", qr.Logistic()),
            parts.get("predictor", qr.Linear(True)),
            over_clients=qr.Mean("size"),
            privacy=qr.Budget(epsilon, 1e-5, view=view),
        )
        return type(default_algorithm(*problem.at(made)))

    assert chosen(1000, 2, 1.0) is qr.PrivateNewton
    assert chosen(1000, 2, 1.0, view="sum") is qr.PrivateSGD
    assert chosen(40, 2, 1.0) is qr.PrivateSGD  # fewer rows
    assert chosen(40, 2, 20.0) is qr.PrivateNewton  # a larger total
    assert chosen(1, 2000, 1.0) is qr.PrivateSGD  # the same rows at more clients, who all add noise
    several = {"loss": qr.Multinomial(), "predictor": qr.Softmax(2)}
    assert chosen(1000, 2, 1.0, **several) is qr.PrivateSGD


def test_a_solve_on_the_clock_has_all_that_a_solve_has(fed):
    clock = qr.VirtualClock(stragglers={"east": 10.0}, wait=qr.First(2))
    solution = qr.solve(LOGISTIC, fed, engine=clock, seed=3)
    best = qr.solve(LOGISTIC, fed, algorithm=qr.MultiplierMethod(), tol=1e-10).certificate.value
    proof = solution.certificate
    assert solution.outcome.stop is Stop.OPTIMAL
    assert 0 <= proof.gap <= 1e-3 * proof.value * (1 + 1e-9)
    assert best <= proof.value <= best * (1 + 1e-3)
    assert proof.value == pytest.approx(LOGISTIC.objective(solution.w, fed), rel=1e-12)
    assert [row["client"] for row in solution.clients] == list(fed.clients)
    assert sum(row["weight"] for row in solution.clients) == pytest.approx(1)
    times = [row["time"] for row in solution.history]
    assert times == sorted(times)
    assert len(times) == solution.rounds
    answers = {
        row["message"]: row["count"] for row in solution.messages if row["direction"] == "up"
    }
    assert answers["EvaluatedAt"] == sum(row["answered"] for row in solution.history)
    for way in ("up", "down"):  # what the clients sent and received is what was counted
        total = sum(row["bytes"] for row in solution.messages if row["direction"] == way)
        assert sum(row[f"bytes_{way}"] for row in solution.clients) == total
    again = qr.solve(LOGISTIC, fed, engine=clock, seed=3)
    np.testing.assert_array_equal(again.w, solution.w)
    assert again.history == solution.history


def test_a_claim_of_the_clock_is_judged_by_the_certificate(fed, monkeypatch):
    """A method that stops too early and calls that proven is not called optimal."""
    monkeypatch.setattr(qr.AsyncBundle, "_allowed", lambda self, state, value=0.0: 1e9)
    solution = qr.solve(LOGISTIC, fed, engine=CLOCK)
    assert solution.outcome.stop is Stop.UNPROVEN
    assert "Recomputed" in solution.outcome.text


def test_a_time_that_runs_out_is_no_optimum(fed):
    solution = qr.solve(LOGISTIC, fed, engine=qr.VirtualClock(max_time=3.0))
    assert solution.outcome.stop is Stop.MAX_ROUNDS
    assert "max_time" in solution.outcome.text
    assert solution.certificate.gap > 0
