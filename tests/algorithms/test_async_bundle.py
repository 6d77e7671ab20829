"""AsyncBundle: proven gaps on raw tables and with clients that are late, down or gone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from toy import federation

import bonafed as bf
from bonafed.algorithms.federated.bundle.async_bundle import AsyncBundleState
from bonafed.rounds import Stop
from bonafed.solution.plan import configure

FED = federation((20, 35, 12, 28, 9), 4)
RIDGE = bf.L2(1e-2)
SLOW = {FED.clients[1]: 10.0}
LOSSES = {
    "logistic": bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=RIDGE),
    "hinge": bf.Problem(bf.Hinge(), over_clients=bf.Simplex(), regulariser=RIDGE),
    "logistic in a ball": bf.Problem(
        bf.Logistic(),
        over_samples=bf.WassersteinBall(0.05, 0.5),
        over_clients=bf.LpBall(0.2, 2),
        regulariser=RIDGE,
    ),
    "absolute loss": bf.Problem(
        bf.Absolute(), over_clients=bf.Superquantile(0.4), regulariser=RIDGE
    ),
    "several classes": bf.Problem(bf.Multinomial(), over_clients=bf.Simplex(), regulariser=RIDGE),
    "ball of models": bf.Problem(
        bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.Ball(1.0)
    ),
    "groups": bf.Problem(
        bf.Hinge(), over_clients=bf.Simplex(), regulariser=bf.GroupL2(0.01, (0, 0, 1, 1))
    ),
    "tail of every client": bf.Problem(
        bf.Logistic(), over_samples=bf.Superquantile(0.3), regulariser=RIDGE
    ),
    "bounds": bf.Problem(
        bf.SmoothHinge(), over_clients=bf.KLBall(0.1), regulariser=bf.Bounds(-0.3, 0.3)
    ),
}


def clock(wait: int = 1, **settings) -> bf.VirtualClock:
    return bf.VirtualClock(wait=bf.First(wait), **settings)


def raw_tables() -> dict[str, bf.Federation]:
    """Two tables as they come, whose columns have sizes of 1e-3 to 1e3, in ten unlike parts."""
    tables = {}
    for name, load in (("wdbc", load_breast_cancer), ("digits", load_digits)):
        X, y = load(return_X_y=True)
        y = np.where(y % 2 == 0, 1, -1)
        noise = np.random.default_rng(0).normal(size=len(X)) * X[:, 2].std()
        rank = np.argsort(np.argsort(X[:, 2] + noise))
        tables[name] = bf.Federation.from_arrays(X, y, rank * 10 // len(X))
    return tables


@pytest.mark.parametrize("wait", [1, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_any_convex_problem_is_proved(name: str, wait: int) -> None:
    problem, fed = LOSSES[name], FED
    if problem.loss.targets == "real":
        rng = np.random.default_rng(1)
        fed = FED.with_targets([rng.standard_normal(n) for n in FED.sizes])
    solution = bf.solve(problem, fed, algorithm=bf.AsyncBundle(), engine=clock(wait))
    best = bf.solve(problem, fed, algorithm=bf.Bundle(), tol=1e-7).certificate
    assert solution.outcome.stop is Stop.OPTIMAL
    assert solution.certificate.relative_gap <= 1e-3
    assert best.bound <= solution.certificate.value <= best.value * (1 + 1e-3)


@pytest.mark.parametrize("name", ["wdbc", "digits"])
def test_raw_tables_with_a_straggler_take_less_time_than_to_wait_for_it(name: str) -> None:
    fed, problem = raw_tables()[name], LOSSES["logistic"]
    engine = clock(stragglers={fed.clients[3]: 10.0})
    runs = [
        bf.solve(problem, fed, algorithm=method, engine=engine)
        for method in (bf.AsyncBundle(tol=1e-3), bf.Bundle(tol=1e-3))
    ]
    assert all(run.certificate.relative_gap <= 1e-3 for run in runs)
    ours, theirs = (run.history[-1]["time"] for run in runs)
    assert ours <= theirs


HEAVY = FED.clients[int(np.argmax(bf.solve(LOSSES["logistic"], FED).duals.weights))]
MISSING = {
    "down at the start": {"crashes": {FED.clients[0]: 0.0}},
    "the heaviest is down at the start": {"crashes": {HEAVY: 0.0}},
    "the heaviest crashes": {"crashes": {HEAVY: 5.0}},
    "half of them go": {"crashes": dict.fromkeys(FED.clients[::2], 5.0)},
    "a thousand times slower": {"stragglers": {HEAVY: 1000.0}, "max_time": 200.0},
}


@pytest.mark.parametrize("case", MISSING)
def test_a_model_with_a_stated_gap_whoever_is_missing(case: str) -> None:
    problem = LOSSES["logistic"]
    solution = bf.solve(problem, FED, algorithm=bf.AsyncBundle(), engine=clock(**MISSING[case]))
    known = solution.certificate
    assert solution.outcome.stop in (Stop.STALLED, Stop.MAX_ROUNDS, Stop.OPTIMAL)
    assert math.isfinite(known.relative_gap)
    best = bf.solve(problem, FED, algorithm=bf.Bundle(), tol=1e-7).certificate
    assert known.bound <= best.value
    assert known.value < problem.objective(np.zeros(len(solution.w)), FED)
    if "down" not in case and "slower" not in case:  # its cuts are kept
        assert known.value <= best.value * 1.1


def test_the_best_among_those_who_are_there_is_found() -> None:
    """Who is down from the start has no say: the others' worst case is minimised."""
    away, problem = FED.clients[0], LOSSES["logistic"]
    rest = FED.restrict([name for name in FED.clients if name != away])
    solution = bf.solve(problem, FED, algorithm=bf.AsyncBundle(), engine=clock(crashes={away: 0.0}))
    best = bf.solve(problem, rest).certificate
    assert solution.outcome.stop is Stop.STALLED
    assert "crashed" in solution.outcome.text
    value = problem.objective(solution.w, rest)
    assert best.bound <= value <= best.value * (1 + 1e-3)


@pytest.mark.parametrize("name", ["logistic", "hinge", "logistic in a ball"])
def test_every_bound_of_a_run_is_below_the_optimum(name: str) -> None:
    """Also those that are proved while some have not answered."""
    problem = LOSSES[name]
    best = bf.solve(problem, FED, algorithm=bf.Bundle(), tol=1e-8).certificate.value
    bounds = []

    def watch(row: dict, state: AsyncBundleState) -> None:
        bounds.append((state.bound, int(state.known.sum())))

    engine = clock(stragglers=SLOW)
    bf.solve(problem, FED, algorithm=bf.AsyncBundle(tol=1e-6), engine=engine, watch=[watch])
    assert max(bound for bound, _ in bounds) <= best * (1 + 1e-8)
    assert any(bound > 0 and there < 5 for bound, there in bounds)


@pytest.mark.parametrize("seed", range(3))
def test_steps_that_were_too_long_are_taken_back(seed: int) -> None:
    """Beyond its threshold Huber's loss does not bend: from there second-order models of noisy rows
    step further and further away.
    """
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(int(rng.integers(3, 12)), 3)) for _ in range(6)]
    y = [x @ [2.0, -2.0, 1.0] + 3 * rng.standard_normal(len(x)) for x in X]
    fed = bf.Federation(range(6), X, y)
    problem = bf.Problem(bf.Huber(0.3), over_samples=bf.WassersteinBall(0.05, 2.0, "l1"))
    found = bf.solve(
        problem, fed, algorithm=bf.AsyncBundle(max_rounds=600), engine=bf.VirtualClock()
    )
    assert found.outcome.stop is Stop.OPTIMAL
    assert found.certificate.value == pytest.approx(bf.solve(problem, fed).certificate.value, 1e-3)


def test_without_a_regulariser_it_stops_unproven() -> None:
    problem = replace(LOSSES["logistic"], regulariser=bf.Zero())
    solution = bf.solve(problem, FED, algorithm=bf.AsyncBundle(), engine=clock())
    assert solution.outcome.stop is Stop.UNPROVEN
    best = bf.solve(problem, FED, algorithm=bf.MultiplierMethod(), tol=1e-9).certificate.value
    assert solution.certificate.value <= best * (1 + 1e-3)


def test_answers_that_are_not_finite_end_the_run_in_words() -> None:
    problem, fed = LOSSES["logistic"].at(FED)
    method = configure(bf.AsyncBundle(), problem, fed, None, None, None, None)
    state, first = method.server_start(5)
    ask = replace(first.message, prior=np.full(1, 0.2))
    _, answer = method.on_client[type(ask)](None, ask, fed.block(0), None)
    with pytest.raises(ArithmeticError, match="not finite: rescale the features"):
        method.renew(state, [0], replace(answer, base=np.full_like(answer.base, np.inf)))


def test_a_cap_is_never_optimal() -> None:
    solution = bf.solve(
        LOSSES["hinge"], FED, algorithm=bf.AsyncBundle(), engine=clock(), max_rounds=7
    )
    assert solution.outcome.stop is Stop.MAX_ROUNDS
    assert solution.certificate.gap > 0


def test_no_second_derivatives_of_large_models_are_sent() -> None:
    """Neither of models of more than 500 numbers, nor where so many clients' would fill memory."""
    problem, fed = LOSSES["logistic"].at(FED)
    method = configure(bf.AsyncBundle(), problem, fed, None, None, None, None)
    _, first = method.server_start(5)
    assert first.message.second_order == 500
    _, many = method.server_start(100_000)
    assert many.message.second_order == 14
    ask = replace(first.message, prior=np.full(1, 0.2))
    _, answer = method.on_client[type(ask)](None, ask, fed.block(0), None)
    assert answer.curvature.shape == (1, 5, 5)
    _, answer = method.on_client[type(ask)](None, replace(ask, second_order=4), fed.block(0), None)
    assert answer.curvature is None
    assert answer.base.shape == (1, 6)  # groups of rows instead
