"""Every experiment of the room at tiny settings, on made tables."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import bonafed as bf
from bonafed.data import load
from bonafed.data.tables import Table
from bonafed.papers.rank import experiments, rank_admm
from bonafed.papers.rank.experiments import Effort, Task
from bonafed.reproduction.experiments import papers

PRINTED = papers()["rank"].experiments
SIZES = {"svmguide1": (60, 4), "advertisements": (60, 6), "monks_3": (220, 6)}
SIZES |= {"australian": (200, 5), "phoneme": (3000, 3), "titanic": (1100, 3), "splice": (1000, 4)}
TINY = {"trials", "sets"}


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch):
    for name, (n, d) in SIZES.items():
        X = np.random.default_rng(d).normal(size=(n, d))
        y = (X[:, 0] > 0.3).astype(int)  # more rows of class 0
        arrays = load.Arrays(X, y, tuple(f"x{k}" for k in range(d)))
        monkeypatch.setattr(load, name, lambda arrays=arrays: arrays)
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.normal(size=80),
        "race": rng.choice(["White", "Black"], 80).astype(object),
    }
    columns["income"] = np.where(columns["age"] > 0, ">50K", "<=50K").astype(object)
    tabular = load.Tabular(Table(columns), "income", load.Recipe())
    monkeypatch.setattr(load, "adult", lambda: tabular)
    quick = partial(bf.RankADMM, max_rounds=2, starts=(bf.Start(bf.Growing(2e-7, 1.5)),))
    monkeypatch.setattr(bf, "RankADMM", quick)  # ours; the paper's words set both
    monkeypatch.setattr(experiments, "SIZES", {"1": (60, 8), "2": (60, 8)})
    yield
    experiments.rate_of.cache_clear()
    experiments.warm_up.cache_clear()


def rows_of(key: str) -> dict[tuple[str, str, str], float]:
    """The rows of one trial, far below the quick settings."""
    one = PRINTED[key]
    settings: dict[str, Any] = {k: v for k, v in one.quick.items() if k not in TINY}
    small = {"epochs": 2, "tuning": 1, "inner": 3, "most": 30, "limit": 0.02, "tol": 1e-3}
    settings |= {k: v for k, v in small.items() if k in settings}
    if "sets" in one.quick:
        settings["sets"] = 2
    if one.data:
        settings["data"] = list(one.data)
    if key == "figure-3":
        settings["made"] = ["60 x 4"]
    rows = list(experiments.RUN[key](0, **settings))
    assert all(math.isfinite(row.value) for row in rows if row.x is not None)
    return {row[:3]: row.value for row in rows}


@pytest.mark.parametrize("key", PRINTED)
def test_an_experiment_yields_what_the_paper_prints(key: str):
    found, one = rows_of(key), PRINTED[key]
    cases = {case for case, *_ in found}
    for number in one.numbers:
        if number.case in cases:
            assert (number.case, number.figure, number.method) in found
    assert cases & {number.case for number in one.numbers} or one.absent or not one.numbers
    for claim in one.claims:
        case = next(iter(cases)) if claim.case == "*" else claim.case
        for method in (claim.method, *claim.than):
            assert (case, claim.figure, method) in found
    for own in one.own:
        assert {(case, own.figure, own.own) for case in cases} <= found.keys()


def test_a_constant_model_has_next_to_no_loss_on_a_ranked_range():
    printed = {(n.case, n.method): float(n.value) for n in PRINTED["table-4"].numbers}
    for loss, least in (("logistic", 0.0033379), ("hinge", 5e-5)):
        task = Task("monks_3", risk="AoRR", loss=loss)
        fed = task.rows(0).fed
        _, value = experiments.constant(task.problem(fed), fed)
        assert value == pytest.approx(least, rel=1e-4)
        closed = math.log1p(math.exp(-4.8)) + 5e-5 * 4.8**2 if loss == "logistic" else 5e-5
        assert value <= closed * (1 + 1e-5)
    assert printed["Monks, hinge", "ADMM"] > 100 * 5e-5


def test_the_tables_have_the_numbers_of_the_paper():
    assert experiments.SIZES is not None
    for (name, loss), (k, m) in experiments.RANGES.items():
        risk: Any = Task(name, "AoRR", loss).problem(experiments.owned(np.eye(2), np.ones(2)))
        assert (risk.over_samples.k, risk.over_samples.m) == (k, m)
    drawn: Any = Task("1", "AoRR").problem(experiments.owned(np.eye(7), np.ones(7)))
    assert (drawn.over_samples.k, drawn.over_samples.m) == (5, 2)  # floor(0.8 n), ceil(0.2 n)
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for number in PRINTED["table-7"].numbers:
        setting, rate = number.case.split(", rate ")
        at = best.setdefault((setting, number.method), (math.inf, ""))
        best[setting, number.method] = min(at, (float(number.value), rate))
    for (loss, penalty), rates in experiments.RATES.items():
        for name, rate in zip(experiments.STOCHASTIC, rates, strict=True):
            label = "1/N" if rate is None else f"{rate:g}"
            assert best[f"{loss}, {penalty}", name][1] == label


def test_a_run_keeps_its_least_objective_and_ends_at_its_limit():
    task = Task("1", "ERM")
    fed = task.rows(0).fed
    problem = task.problem(fed)
    run = experiments.followed(problem, fed, rank_admm())
    assert run.values[-1] == pytest.approx(problem.objective(run.w, fed), rel=1e-12)
    assert (np.diff(run.values) <= 0).all()
    endless = task.method("SGD", fed, Effort(epochs=10**9, tuning=1))
    assert experiments.followed(problem, fed, endless, 0.05).seconds[-1] < 5
