"""Tables and figures of He, Peng, Sun: encodings, partitions, optima by other means."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import bonafed as bf
from bonafed.data import load
from bonafed.papers.constrained import data, experiments, optima
from bonafed.papers.reproduction import Row
from bonafed.reproduction import experiments as frame

REAL = pytest.mark.skipif(
    not os.environ.get("BONAFED_DATA"), reason="BONAFED_DATA names no data directory"
)
RNG = np.random.default_rng(3)
SHAPES = {
    "breast-cancer-wisc": ((444, 239), 19, 19),
    "monks-1": ((278, 278), 18, 12),
    "adult-a": ((24720, 7841), 20, 20),
}
LOADERS = ["breast_cancer_wisconsin", "monks_1", "adult"]


def generated(n: int = 400, d: int = 4, seed: int = 0) -> data.Encoded:
    """Two classes that overlap, with a column of ones, and groups that the first feature tells."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, d - 1)), np.ones(n)])
    y = (X[:, 0] - X[:, 1] + rng.normal(size=n) > 0.5).astype(int)
    group = np.where(X[:, 0] + rng.normal(size=n) > 0, "a", "b")
    return data.Encoded(X, y, tuple(f"x{k}" for k in range(d)), group)


# ---- encodings and partitions


@REAL
@pytest.mark.parametrize("name", data.DATA)
def test_encodings_are_as_stated(name: str) -> None:
    found = data.DATA[name]()
    classes, d, rank = SHAPES[name]
    assert tuple(np.bincount(found.y)) == classes
    assert found.X.shape == (sum(classes), d) == (len(found.y), len(found.names))
    assert np.linalg.matrix_rank(found.X) == rank
    assert (found.X[:, -1] == 1).all()
    numbers = found.X[:, [k for k, values in enumerate(found.X.T) if len(np.unique(values)) > 2]]
    squares = name == "breast-cancer-wisc"
    # squares of standardised features have the mean 1, minus 1
    assert np.abs(numbers.mean(0)).max(initial=0) < 1e-9
    assert np.abs(numbers[:, : 9 if squares else None].std(0) - 1).max(initial=0) < 1e-9


def test_equal_shares_of_every_class() -> None:
    y = np.repeat([0, 1], [103, 41])
    for n in (1, 5, 10, 20):
        counts = np.array(
            [np.bincount(data.stratified(y, n, seed=2)[y == c], minlength=n) for c in (0, 1)]
        )
        assert (np.ptp(counts, axis=1) <= 1).all()
    assert (data.stratified(y, 5, 2) == data.stratified(y, 5, 2)).all()
    assert (data.stratified(y, 5, 2) != data.stratified(y, 5, 3)).any()


def test_rows_of_the_server_are_nobodys_else() -> None:
    fed = data.with_server(generated(3256), 5, seed=1)
    assert fed.n_clients == 5
    assert fed.sizes.sum() == 2265
    assert fed.server is not None
    assert len(fed.server.y[0]) == 565
    own, held = (np.concatenate(parts)[:, 0] for parts in (fed.X, fed.server.X))
    assert not np.isin(held, own).any()
    with pytest.raises(ValueError, match="needs groups"):
        data.with_server(generated()._replace(group=None), 5)


# ---- optima by other means


def test_the_reference_is_the_optimum_of_a_conic_solver() -> None:
    found = generated()
    fed = data.federation(found, data.stratified(found.y, 3))
    best = optima.solve(optima.neyman_pearson(fed, 0.4))
    w, objective, constraints = cp.Variable(4), [], []
    for X, y in zip(fed.X, fed.y, strict=True):
        loss = cp.logistic(cp.multiply(np.where(y == 1, -1.0, 1.0), X @ w))
        objective.append(cp.sum(loss[y == 0]) / (y == 0).sum() / 3)
        constraints.append(cp.sum(loss[y == 1]) / (y == 1).sum() <= 0.4)
    value: Any = cp.Problem(cp.Minimize(sum(objective)), constraints).solve(solver=cp.CLARABEL)
    assert abs(best.value / value - 1) <= 1e-6
    assert best.residual <= 1e-12
    assert best.violation <= 1e-12


def test_derivatives_of_the_reference() -> None:
    program = optima.loss_gaps(data.with_server(generated(400), 2), 0.05)
    w, mu, h = RNG.normal(size=4), RNG.random(len(program.B)), 1e-6 * np.eye(4)
    gradient = [(program.value(w + e) - program.value(w - e)) / 2e-6 for e in h]
    jacobian = np.array([(program.slack(w + e) - program.slack(w - e)) / 2e-6 for e in h]).T
    assert np.allclose(program.gradient(w), gradient, atol=1e-8)
    assert np.allclose(program.slack_jacobian(w), jacobian, atol=1e-8)

    def lagrangian(v: np.ndarray) -> np.ndarray:
        return program.gradient(v) - mu @ program.slack_jacobian(v)

    hessian = [(lagrangian(w + e) - lagrangian(w - e)) / 2e-6 for e in h]
    assert np.allclose(program.hessian(w, mu), hessian, atol=1e-7)


def test_the_reference_measures_what_the_problems_state() -> None:
    found, w = generated(), RNG.normal(size=4)
    fed = data.federation(found, data.stratified(found.y, 3))
    held = data.with_server(found, 2)
    for program, problem, rows in (
        (optima.neyman_pearson(fed, 0.4), experiments.neyman_pearson(0.4), fed),
        (optima.loss_gaps(held, 0.1), experiments.fairness(0.1), held),
    ):
        assert math.isclose(program.value(w), problem.objective(w, rows), rel_tol=1e-12)
        assert math.isclose(program.risks(w).mean(), program.value(w), rel_tol=1e-12)
        assert math.isclose(program.violation(w), problem.violation(w, rows), rel_tol=1e-9)
        assert program.violation(w) > 0.01


# ---- tables and figures


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small made tables in place of those that the experiments load."""
    rng = np.random.default_rng(5)

    def numbers(low: int, high: int, d: int) -> load.Arrays:
        X = rng.integers(low, high, (240, d)).astype(float)
        y = (X[:, 0] - X[:, 1] + 2 * rng.normal(size=240) > 0.5).astype(np.int64)
        return load.Arrays(X, y, tuple(f"x{k}" for k in range(d)))

    chosen = {name: rng.choice([*kept, "other"], 900) for name, kept in data.VALUES.items()}
    first = rng.normal(size=900)
    columns = {name: rng.normal(size=900) for name in data.NUMBERS} | chosen | {"age": first}
    columns["income"] = np.where(first + rng.normal(size=900) > 1, ">50K", "<=50K")
    columns["sex"] = np.where(first + rng.normal(size=900) > 0, "Male", "Female")
    wisconsin, monks = numbers(1, 11, 3), numbers(1, 4, 3)
    monkeypatch.setattr(load, "breast_cancer_wisconsin", lambda: wisconsin)
    monkeypatch.setattr(load, "monks_1", lambda: monks)
    monkeypatch.setattr(load, "adult", lambda part: SimpleNamespace(table=columns))


def by_key(rows: Iterable[Row]) -> dict[tuple[str, str, str], float]:
    return {row[:3]: row.value for row in rows if row.x is None}


def has_what_is_stated(key: str, found: dict[tuple[str, str, str], float]) -> None:
    """Every printed number of the cases, and every method of the claims and of ours."""
    one = frame.experiment(f"constrained/{key}")
    cases = {case for case, *_ in found}
    stated = {(n.case, n.figure, n.method) for n in one.numbers if n.case in cases}
    assert stated <= {*found}
    for case in cases:
        for claim in one.claims:
            assert {(case, claim.figure, name) for name in (claim.method, *claim.than)} <= {*found}
        for own in one.own:
            assert {(case, own.figure, own.method), (case, own.figure, own.own)} <= {*found}


@pytest.mark.usefixtures("small")
def test_table_1() -> None:
    found = by_key(
        experiments.table_1(
            0, data=LOADERS, clients=[1, 2], max_rounds=dict.fromkeys(data.DATA, 30), every=3
        )
    )
    has_what_is_stated("table-1", found)
    assert {case for case, *_ in found} == {
        f"{name}, n = {n}" for name in data.DATA for n in (1, 2)
    }
    for case in {case for case, *_ in found}:
        assert found[case, "distance to the optimum", "InteriorPoint"] <= 1e-6
        assert found[case, "feasibility violation", "InteriorPoint"] <= 1e-6
        assert found[case, "largest loss of class 1", "InteriorPoint"] <= 0.2 + 1e-6
        central, ours = (found[case, "objective", name] for name in ("cProx-AL", "Algorithm 1"))
        difference = found[case, "relative difference", "Algorithm 1"]
        assert math.isclose(difference, abs(ours - central) / central, rel_tol=1e-12)
        assert found[case, "distance to the optimum", "cProx-AL"] <= 0.2


@pytest.mark.usefixtures("small")
def test_a_run_that_ends_at_its_cap_has_not_got_there() -> None:
    found = by_key(
        experiments.table_1(0, data=["monks_1"], clients=[2], max_rounds={"monks-1": 5}, every=1)
    )
    assert math.isnan(found["monks-1, n = 2", "rounds", "Algorithm 1"])
    assert found["monks-1, n = 2", "rounds", "InteriorPoint"] > 5
    assert {case for case, *_ in found} == {"monks-1, n = 2"}


def test_an_interrupted_solve_ends_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(algorithm: Any, state: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(bf.ProximalAL, "report", interrupted)
    rows = experiments.table_4(0, shapes=[100], clients=[1], max_rounds=50)
    with pytest.raises(KeyboardInterrupt):
        list(rows)


@pytest.mark.usefixtures("small")
def test_table_2() -> None:
    found = by_key(experiments.table_2(0, data=["adult"], clients=[2], max_rounds=20, every=1))
    has_what_is_stated("table-2", found)
    assert found["n = 2", "distance to the optimum", "InteriorPoint"] <= 1e-6
    assert found["n = 2", "largest loss disparity", "InteriorPoint"] <= 0.1 + 1e-6
    # 20 rounds of gradients of size 1 over 1e8
    fed, program = experiments._with_server(2, 0, 1)
    start = program.value(experiments._start(fed.n_features, 0))
    assert math.isclose(found["n = 2", "objective", "Algorithm 1"], start, rel_tol=1e-5)
    assert found["n = 2", "objective", "Algorithm 1, rho = 0.1"] < 0.9 * start


def test_table_4() -> None:
    found = by_key(experiments.table_4(0, shapes=[100], clients=[1], max_rounds=500))
    has_what_is_stated("table-4", found)
    case = "n = 1, d = 100"
    for method in ("Algorithm 1", "cProx-AL"):
        assert found[case, "feasibility violation", method] <= 1e-3
        assert found[case, "distance to the optimum", method] <= 5e-3
    assert found[case, "distance to the optimum", "InteriorPoint"] <= 1e-12
    assert found[case, "rounds", "Algorithm 1"] > 10 * found[case, "rounds", "InteriorPoint"]


@pytest.mark.usefixtures("small")
def test_figures_follow_the_outer_iterations() -> None:
    rows = [
        *experiments.figure_1(0, data=LOADERS, clients=2, max_rounds=60, every=3),
        *experiments.figure_2(0, data=["adult"], clients=2, max_rounds=250, every=1),
    ]
    curves: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.x is not None:
            curves.setdefault(row[:3], []).append(row)
    assert {case for case, *_ in curves} == {*data.DATA, "adult-b"}
    for case, figure, method in curves:
        if not figure.endswith("mean") or method == "optimum":
            continue
        least, mean, largest = (
            [row.value for row in curves[case, figure.replace("mean", which), method]]
            for which in ("least", "mean", "largest")
        )
        assert all(a <= b <= c for a, b, c in zip(least, mean, largest, strict=True))
        assert [row.x for row in curves[case, figure, method]] == [*range(len(mean))]
        assert by_key(rows)[case, "outer iterations", method] == len(mean) - 1
    assert len(curves["adult-b", "server", "Algorithm 1, rho = 0.1"]) > 1


def test_what_is_measured_is_what_solve_reaches() -> None:
    found = generated()
    fed = data.federation(found, data.stratified(found.y, 3))
    problem, program = experiments.neyman_pearson(0.4), optima.neyman_pearson(fed, 0.4)
    solution = bf.solve(problem, fed)
    assert math.isclose(program.value(solution.w), solution.certificate.value, rel_tol=1e-12)
    assert abs(optima.solve(program).value / program.value(solution.w) - 1) <= 1e-6
