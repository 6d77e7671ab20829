"""What `bonafed.solve` picks where no algorithm is named, and a whole solve on a simulated
clock.
"""

from dataclasses import replace

import numpy as np
import pytest

import bonafed as bf
from bonafed.algorithms.method import Progress
from bonafed.algorithms.requirements import Setting
from bonafed.data.schema import declared_schema
from bonafed.engines.run_record import Log
from bonafed.rounds import Stop
from bonafed.solution.plan import choose, default_algorithm

CLOCK = bf.VirtualClock(bf.Constant(1.0))
REPLAY = bf.Replay(Log((), 0, 64, np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int64)))


@pytest.fixture(scope="module")
def fed() -> bf.Federation:
    """Four clients, two features and a column of ones, labels that depend on the client."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.standard_normal((80, 2)), np.ones(80)])
    groups = np.repeat(["north", "east", "south", "west"], 20)
    y = np.where(
        X @ [1.0, -1.0, 0.3] + 0.5 * (groups == "east") + rng.standard_normal(80) > 0, "ill", "fine"
    )
    return bf.Federation.from_arrays(X, y, groups)


LOGISTIC = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.01))


@pytest.mark.parametrize(
    ("problem", "engine", "expected"),
    [
        (LOGISTIC, None, bf.Bundle),
        (LOGISTIC, bf.InProcess("bytes"), bf.Bundle),
        (LOGISTIC, CLOCK, bf.AsyncBundle),
        (bf.Problem(bf.Hinge(), regulariser=bf.L2(0.01)), CLOCK, bf.AsyncBundle),
        (bf.Problem(bf.Logistic(), over_samples=bf.WassersteinBall(0.1)), CLOCK, bf.AsyncBundle),
        (bf.Problem(bf.Logistic(), bf.MLP((3,))), None, bf.AsyncDRO),
        (bf.Problem(bf.Logistic(), bf.MLP((3,)), over_clients=bf.KLBall(0.1)), CLOCK, bf.AsyncDRO),
        (bf.Problem(bf.Logistic(), regulariser=bf.MCP(0.01)), None, bf.AsyncDRO),
        (bf.Problem(bf.Squared(), regulariser=bf.L2(0.01)), REPLAY, bf.AsyncBundle),
        (bf.Problem(bf.Logistic(), regulariser=bf.GroupL2(0.01, (0, 0, 1))), None, bf.Bundle),
        (bf.Problem(bf.Hinge(), regulariser=bf.Ball(1.0)), None, bf.Bundle),
        (bf.Problem(bf.Hinge(), over_rows=bf.Superquantile(0.3)), None, bf.Bundle),
        # what the first choices refuse, another method takes
        (bf.Problem(bf.Hinge(), bf.MLP((3,))), None, bf.AFL),
        (bf.Problem(bf.Logistic(), over_samples=bf.Median()), None, bf.AFL),
    ],
)
def test_what_is_picked(fed, problem, engine, expected):
    target = fed if problem.loss.targets == "sign" else fed.with_targets([np.arange(20.0)] * 4)
    assert type(default_algorithm(*problem.at(target), engine)) is expected


def test_what_no_method_takes_says_what_would_be_taken(fed):
    problem = bf.Problem(bf.Hinge(), privacy=bf.Budget(1.0, 1e-5))
    with pytest.raises(ValueError, match=r"use loss=Logistic\(\), which PrivateSGD\(\) takes"):
        bf.solve(problem, fed)


def test_private_problems_take_gradient_descent_with_the_length_that_a_schema_declares(fed):
    private = bf.Problem(bf.Logistic(), privacy=bf.Budget(1.0, 1e-5))
    chosen = default_algorithm(*private.at(fed))
    assert (type(chosen), chosen.bound) == (bf.PrivateSGD, None)
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
        made = bf.Federation.from_arrays(X, y, np.repeat([*map(str, range(clients))], rows))
        made = replace(made, schema=schema, feature_names=("a", "b", "c"))
        problem = bf.Problem(
            parts.get("loss", bf.Logistic()),
            parts.get("predictor", bf.Linear(True)),
            over_clients=bf.Mean("size"),
            privacy=bf.Budget(epsilon, 1e-5, view=view),
        )
        return type(default_algorithm(*problem.at(made)))

    assert chosen(1000, 2, 1.0) is bf.PrivateNewton
    assert chosen(1000, 2, 1.0, view="sum") is bf.PrivateSGD
    assert chosen(40, 2, 1.0) is bf.PrivateSGD  # fewer rows
    assert chosen(40, 2, 20.0) is bf.PrivateNewton  # a larger total
    assert chosen(1, 2000, 1.0) is bf.PrivateSGD  # the same rows at more clients, who all add noise
    several = {"loss": bf.Multinomial(), "predictor": bf.Softmax(2)}
    assert chosen(1000, 2, 1.0, **several) is bf.PrivateSGD


def test_a_solve_on_the_clock_has_all_that_a_solve_has(fed):
    clock = bf.VirtualClock(stragglers={"east": 10.0}, wait=bf.First(2))
    solution = bf.solve(LOGISTIC, fed, engine=clock, seed=3)
    best = bf.solve(LOGISTIC, fed, algorithm=bf.MultiplierMethod(), tol=1e-10).certificate.value
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
    again = bf.solve(LOGISTIC, fed, engine=clock, seed=3)
    np.testing.assert_array_equal(again.w, solution.w)
    assert again.history == solution.history


def test_a_claim_of_the_clock_is_judged_by_the_certificate(fed, monkeypatch):
    """A method that stops too early and calls that proven is not called optimal."""
    monkeypatch.setattr(Progress, "allowed", lambda self, margin=1.0: 1e9)
    solution = bf.solve(LOGISTIC, fed, engine=CLOCK)
    assert solution.outcome.stop is Stop.UNPROVEN
    assert "use Bundle()" in solution.outcome.text


def test_a_time_that_runs_out_is_no_optimum(fed):
    solution = bf.solve(LOGISTIC, fed, engine=bf.VirtualClock(max_time=3.0))
    assert solution.outcome.stop is Stop.MAX_ROUNDS
    assert "max_time" in solution.outcome.text
    assert solution.certificate.gap > 0


@pytest.mark.parametrize(
    ("rows", "coefficients", "parts", "expected"),
    [
        (2_000, 40, {}, bf.Bundle),
        (5_000, 40, {}, bf.MultiplierMethod),
        (5_000, 40, {"over_clients": bf.Simplex()}, bf.Bundle),
        (5_000, 40, {"over_clients": bf.Superquantile(0.3)}, bf.Bundle),
        (5_000, 40, {"over_clients": bf.KLBall(0.1)}, bf.MultiplierMethod),
        (5_000, 40, {"over_clients": bf.LpBall(0.1)}, bf.MultiplierMethod),
        (5_000, 40, {"regulariser": bf.L1(0.1)}, bf.Bundle),
        (5_000, 40, {"over_samples": bf.WassersteinBall(0.1)}, bf.Bundle),
        (2_000, 100, {"over_samples": bf.WassersteinBall(0.1)}, bf.Bundle),
        (5_000, 40, {"over_samples": bf.WassersteinBall(0.1, label_cost=1.0)}, bf.Bundle),
        (500, 250, {"over_clients": bf.Simplex()}, bf.MultiplierMethod),
        (300, 250, {"regulariser": bf.L2(0.1)}, bf.MultiplierMethod),
        (300, 250, {"regulariser": bf.L1(0.1)}, bf.Bundle),
        (500, 250, {"over_samples": bf.WassersteinBall(0.1)}, bf.Bundle),
        (500, 250, {"over_samples": bf.WassersteinBall(0.1, norm="l2")}, bf.Bundle),
        (5_000, 250, {"over_samples": bf.WassersteinBall(0.1)}, bf.Bundle),
        (500, 250, {"over_samples": bf.WassersteinBall(0.1, label_cost=1.0)}, bf.Bundle),
        (20, 600, {"regulariser": bf.ElasticNet(0.1, 0.1)}, bf.Bundle),
        (20, 1_600, {"regulariser": bf.ElasticNet(0.1, 0.1)}, bf.MultiplierMethod),
        (500, 250, {"loss": bf.Hinge(), "regulariser": bf.L1(0.1)}, bf.Bundle),
    ],
)
def test_many_rounds_of_gradients_where_second_derivatives_cost_more(
    rows, coefficients, parts, expected
):
    """A second derivative costs rows times coefficients squared, a gradient their product."""
    y = np.resize([-1, 1], rows)
    made = bf.Federation.from_arrays(np.zeros((rows, coefficients)), y, np.arange(rows) % 4)
    problem = bf.Problem(**({"loss": bf.Logistic(), "predictor": bf.Linear()} | parts))
    assert type(default_algorithm(*problem.at(made))) is expected


@pytest.mark.parametrize(
    ("rows", "coefficients", "parts", "rounds", "tol"),
    [
        (2_000, 40, {"regulariser": bf.L1(0.1)}, 0, 0.0),
        (5_000, 40, {"regulariser": bf.L1(0.1)}, 20, 0.0),
        (500, 250, {"regulariser": bf.L1(0.1)}, 50, 0.0),
        (5_000, 250, {"over_samples": bf.WassersteinBall(0.1)}, 50, 0.0),
        (500, 250, {"over_samples": bf.WassersteinBall(0.1)}, 0, 0.0),
        (500, 1_400, {"over_samples": bf.WassersteinBall(0.1)}, 175, 0.5),
        (500, 1_400, {"over_samples": bf.WassersteinBall(0.1, label_cost=1.0)}, 0, 0.0),
        (500, 1_400, {"loss": bf.Hinge(), "regulariser": bf.L1(0.1)}, 0, 0.0),
    ],
)
def test_rounds_of_gradients_come_before_second_derivatives_beside_a_kink(
    rows, coefficients, parts, rounds, tol
):
    y = np.resize([-1, 1], rows)
    made = bf.Federation.from_arrays(np.zeros((rows, coefficients)), y, np.arange(rows) % 4)
    problem = bf.Problem(**({"loss": bf.Logistic(), "predictor": bf.Linear()} | parts))
    if rows == 5_000 and coefficients == 40:  # the first cuts of very many clients prove more
        crowd = bf.Federation.from_arrays(np.zeros((rows, coefficients)), y, np.arange(rows) % 1001)
        assert default_algorithm(*problem.at(crowd)) == bf.Bundle()
    most = bf.Bundle.max_rounds + rounds
    expected = bf.Bundle(gradient_rounds=rounds, gradient_tol=tol, max_rounds=most)
    assert default_algorithm(*problem.at(made)) == expected


@pytest.mark.parametrize(
    ("rows", "coefficients", "parts", "expected"),
    [
        (1_000, 20, {}, bf.RankADMM),
        (10_000, 20, {}, bf.MultiplierMethod),
        (100_000, 20, {"loss": bf.Squared()}, bf.MultiplierMethod),
        (700, 600, {}, bf.RankADMM),
        (800, 600, {}, bf.MultiplierMethod),
        (10_000, 20, {"regulariser": bf.L1(0.1)}, bf.RankADMM),
        (10_000, 20, {"over_samples": bf.Superquantile(0.1)}, bf.RankADMM),
    ],
)
def test_one_client_has_the_admm_on_small_tables_and_where_its_rows_are_ranked(
    rows, coefficients, parts, expected
):
    problem = bf.Problem(**({"loss": bf.Logistic(), "regulariser": bf.L2(0.01)} | parts))
    assert type(choose(problem, Setting(1, rows=rows), coefficients)) is expected


@pytest.mark.parametrize(
    ("clients", "rows", "coefficients", "expected"),
    [
        (1, 1_000, 10, bf.KinkInteriorPoint),
        (1, 20_000, 200, bf.KinkInteriorPoint),
        (10, 20_000, 200, bf.KinkInteriorPoint),
        (1, 1_000, 500, bf.RankADMM),  # an iteration costs n D there, and a step here n D^2
        (1, 5_000, 1_000, bf.RankADMM),
        (1, 10_000, 1_000, bf.KinkInteriorPoint),
        (10, 1_000, 500, bf.KinkInteriorPoint),
        (10, 5_000, 10, bf.KinkInteriorPoint),
        # the cost of a round is that of its passes over the rows
        (1, 10_000, 20, bf.RowMultiplierMethod),
        (10, 100_000, 10, bf.RowMultiplierMethod),
        (1, 100_000, 50, bf.RowMultiplierMethod),
        (10, 100_000, 3_000, bf.RowMultiplierMethod),
    ],
)
@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Absolute(), bf.Quantile(0.9)])
def test_means_of_losses_with_kinks_go_by_rows_and_coefficients(
    clients, rows, coefficients, expected, loss
):
    problem = bf.Problem(loss, regulariser=bf.L2(0.01))
    chosen = choose(problem, Setting(clients, rows=rows), coefficients)
    if expected is bf.RankADMM and isinstance(loss, bf.Quantile):
        expected = bf.KinkInteriorPoint  # the two sides of a residual differ
    assert type(chosen) is expected


@pytest.mark.parametrize(
    ("clients", "expected"), [(9_000, bf.Bundle), (60_000, bf.MultiplierMethod)]
)
def test_programs_of_very_many_clients_are_no_default(clients, expected):
    ball = bf.WassersteinBall(0.01)
    problem = bf.Problem(bf.Logistic(), over_clients=bf.LpBall(0.1), over_samples=ball)
    fed = bf.Federation.from_arrays(np.zeros((4, 3)), [-1, 1, -1, 1], range(4))
    concrete = replace(problem.at(fed)[0], over_clients=bf.Simplex())
    assert type(choose(concrete, Setting(clients, rows=2 * clients), 3)) is expected


def test_at_sites_means_of_losses_with_kinks_are_the_bundles():
    problem = bf.Problem(bf.Hinge(), regulariser=bf.L2(0.01))
    assert type(choose(problem, Setting(3), 10)) is bf.Bundle  # rows are not known


def test_a_sum_and_other_regularisers_of_kinks_have_a_default():
    setting = Setting(3, rows=1_000)
    summed = bf.Problem(bf.Hinge(), over_clients=bf.Sum(), regulariser=bf.L2(0.01))
    assert type(choose(summed, setting, 10)) is bf.KinkInteriorPoint
    sparse = bf.Problem(bf.Hinge(), regulariser=bf.L1(0.01))
    assert type(choose(sparse, setting, 10)) is bf.Bundle


@pytest.mark.parametrize(
    ("clients", "rows", "coefficients", "expected"),
    [
        (10, 1_000, 20, bf.RankInteriorPoint),
        (10, 10_000, 20, bf.RowMultiplierMethod),
        (10, 300, 300, bf.RowMultiplierMethod),
        (1_000, 2_000, 10, bf.RowMultiplierMethod),
        (10, 0, 20, bf.RankInteriorPoint),  # at sites, where the number of rows is not known
        (10, 0, 300, bf.RowMultiplierMethod),
    ],
)
def test_ranked_rows_go_by_the_size_of_the_table(clients, rows, coefficients, expected):
    tail, setting = bf.Superquantile(0.1), Setting(clients, rows=rows)
    problem = bf.Problem(bf.Logistic(), over_rows=tail, regulariser=bf.L2(0.01))
    assert type(choose(problem, setting, coefficients)) is expected
    several = replace(problem, regulariser=bf.Zero())
    assert type(choose(several, setting, coefficients)) is bf.RankInteriorPoint
