"""The tables and figures of the paper, small, on made data in place of the papers' files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bonafed as bf
from bonafed.data import load
from bonafed.papers.aspire import experiments, sets
from bonafed.papers.aspire import workers as kit
from bonafed.papers.reproduction import Row
from bonafed.reproduction.experiments import papers

PAPER = papers()["aspire"].experiments
SMALL: dict[str, Any] = {"rows": 12, "hidden": [3], "seconds": 30.0}


def images(part: str, pixels: int = 784) -> load.Arrays:
    """Ten classes that their first pixels tell, with noise."""
    rng, each = np.random.default_rng(len(part)), 15
    y = np.repeat(np.arange(10), each)
    X = 0.1 * rng.random((len(y), pixels))
    X[np.arange(len(y)), y] += 0.5
    return load.Arrays(X, y, tuple(map(str, range(pixels))))


def people(part: str = "train") -> bf.Federation:
    """Four people who do seven things."""
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(1, 8), 8)
    X = rng.standard_normal((len(y), 5)) + np.eye(8, 5)[y]
    return bf.Federation.from_arrays(X, y, np.repeat(list("abcd"), 14), classes=np.arange(1, 8))


def writers(part: str) -> bf.Federation:
    X, y, _ = images(part, 20)
    order = np.random.default_rng(0).permutation(len(y))
    return bf.Federation.from_arrays(X[order], y[order], np.arange(len(y)) // 10)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "fashion_mnist", images)
    monkeypatch.setattr(load, "scma", people)
    monkeypatch.setattr(load, "qmnist", writers)


# made data are easy: their own settings
SETTINGS: dict[str, dict[str, Any]] = {
    "table-2": {"clients": 8, "instances": 5},
    "table-4": {"clients": 4, "seconds": 20.0, "gap": 1e-2},
    "table-5": SMALL,
    "table-6": SMALL | {"malicious": 1, "suspicion": 0.01},
    "figure-1": {"tol": 0.9, "inequalities": [1, 5], "sizes": [4, 8]},
    "figure-2": {"tol": 0.1, "inequalities": [1, 5], "sizes": [4, 8]},
    "figure-5": {"rows": 12, "end": 600.0, "late": [200.0, 400.0], "points": 6},
    **dict.fromkeys(("figure-6", "figure-7"), SMALL | {"budgets": [0.0, 1.0]}),
    **dict.fromkeys(
        ("figure-8", "figure-9"), SMALL | {"factor": 3.0, "points": 5, "bundle_answers": 8}
    ),
    **dict.fromkeys(("figure-10", "figure-11"), SMALL | {"factor": 3.0, "points": 5}),
    "figure-12": {
        **{"workers": 6, "rows": 20, "slow": 1, "seconds": 60.0, "points": 4, "first": 2}
    },
}


def trial(key: str, seed: int = 0) -> list[Row]:
    one = PAPER[key]
    data = {"data": list(one.data)} if one.data else {}
    return list(one.run(seed, **data, **SETTINGS[key]))


@pytest.mark.parametrize("key", PAPER)
def test_every_number_and_claim_of_the_paper_has_rows(key: str) -> None:
    one = PAPER[key]
    assert SETTINGS[key].keys() | {"trials"} == {*one.full}
    rows = trial(key)
    table = {row[:3] for row in rows if row.x is None}
    assert len([row for row in rows if row.x is None]) == len(table)
    for number in one.numbers:
        if number.case not in one.absent:
            assert (number.case, number.figure, number.method) in table
    compared = {(f, m) for _, f, m in table}
    for claim in one.claims:
        for name in (claim.method, *claim.than):
            assert (claim.figure, name) in compared
            assert claim.case == "*" or (claim.case, claim.figure, name) in table
    for own in one.own:
        assert {(own.figure, own.method), (own.figure, own.own)} <= compared
    assert all(math.isfinite(row.value) for row in rows if row.figure.endswith("at the end"))


@pytest.mark.parametrize("key", [key for key in PAPER if key.startswith("figure")])
def test_every_panel_of_a_figure_has_curves(key: str) -> None:
    from matplotlib.figure import Figure

    from bonafed.papers.reproduction import Curve

    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for case, figure, method, value, x in trial(key):
        points.setdefault((case, figure, method), []).append((math.nan if x is None else x, value))
    curves = {k: Curve(*np.array([(x, v, v, v) for x, v in rows]).T) for k, rows in points.items()}
    canvas, draw = Figure(), PAPER[key].draw
    assert draw is not None
    draw(canvas, curves)
    assert canvas.axes
    assert all(axis.lines for axis in canvas.axes)


def test_a_trial_is_repeated_by_its_seed() -> None:
    def timeless(rows: list[Row]) -> Iterator[Row]:
        return (row for row in rows if "CPU" not in row.figure)

    assert list(map(str, timeless(trial("figure-9")))) == list(
        map(str, timeless(trial("figure-9")))
    )
    assert list(timeless(trial("figure-9", 1))) != list(timeless(trial("figure-9")))


# ---- sets


@pytest.mark.parametrize("seed", range(3))
def test_the_program_of_every_set_has_the_value_of_its_oracle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for name, risk in sets.every_set(7, seed).items():
        losses = rng.exponential(size=7)
        program, exact = sets.as_program(risk, losses), risk.worst(losses).value
        assert np.isclose(program, exact, rtol=1e-6), name
        assert exact > risk.worst(np.zeros(7)).value + 1e-3 + float(losses.min()), name


def test_parameters_are_those_of_the_table() -> None:
    found = {name: sets.parameters(risk) for name, risk in sets.every_set(9, 0).items()}
    assert found.pop("box") == 2 * 9
    assert found.pop("polyhedron") == sets.LINES * (9 + 1)
    assert set(found.values()) == {1}


def test_one_sort_is_right_for_equal_bounds_and_not_for_others() -> None:
    """Three workers: the largest p~_j f_j is not the largest loss."""
    losses, prior = np.array([1.0, 2.0, 3.0]), np.full(3, 1 / 3)
    equal = bf.CDNorm(2.0, np.full(3, 0.1), prior)
    assert np.isclose(sets.by_one_sort(equal, losses), equal.worst(losses).value)
    assert np.isclose(equal.worst(losses).value, 2.0 + 0.1 * (3 - 1))
    uneven, losses = bf.CDNorm(3.0, np.array([0.3, 0.3, 0.1]), prior), np.array([0.0, 2.0, 3.0])
    # the first worker gives 0.3: by p~_j f_j all to the second, at best 0.1 of it to the third
    assert np.isclose(sets.by_one_sort(uneven, losses), 5 / 3 + 0.3 * 2)
    assert np.isclose(uneven.worst(losses).value, 5 / 3 + 0.2 * 2 + 0.1 * 3)


def test_operations_by_hand() -> None:
    found = sets.operations(np.array([2.0]), m=1, tol=math.exp(-1))
    assert np.isclose(found["CD-norm"], 2 * math.log(2))
    assert np.isclose(found["ellipsoid"], math.sqrt(2) * 2 * (4 + 1 + 4))
    assert np.isclose(found["polyhedron"], 3**1.5 * 4)
    assert np.isclose(found["KL divergence"], 2**3.5)
    assert np.isclose(found["Wasserstein-1"], 7**1.5 * 36)


# ---- workers


def test_a_run_is_judged_by_hand() -> None:
    """Cross-entropy by class and the ridge, in plain NumPy."""
    workers = kit.fashion_mnist(0, 10, ())
    run = kit.follow(workers, bf.AFL(tol=0.0, max_rounds=20), bf.Simplex(), 30.0, 0, points=3)
    assert workers.fed.names == ("class 0", "class 2", "class 6")
    assert workers.test is not None
    W = run.w.reshape(785, 3)
    losses, right = [], []
    for k, (X, held) in enumerate(zip(workers.fed.X, workers.test.X, strict=True)):
        scores = X @ W[:-1] + W[-1]
        losses.append((np.log(np.exp(scores).sum(1)) - scores[:, k]).mean())
        right.append((np.argmax(held @ W[:-1] + W[-1], 1) == k).mean())
    np.testing.assert_allclose(run.last.losses, losses, rtol=1e-10)
    np.testing.assert_allclose(run.last.accuracies, right)
    penalty = workers.problem.regulariser.value(W[:-1].ravel())
    assert np.isclose(run.last.value, max(losses) + penalty)
    times = [seen.time for seen in run.points]
    assert times == sorted(times)
    assert times[-1] <= 30


def test_malicious_workers_have_the_trigger_and_the_target() -> None:
    honest = kit.fashion_mnist(0, 10, ())
    both = experiments.attacked(honest, "fashion_mnist", 2, 0)
    assert both.fed.names[3:] == ("malicious 0", "malicious 1")
    for X, y in zip(both.fed.X[3:], both.fed.y[3:], strict=True):
        assert (X[:, list(experiments.PIXELS)] == 1.0).all()
        assert (y == 0).all()
    w = np.zeros((785, 3))
    w[experiments.PIXELS[0], 0], w[-1, 1] = 10.0, 1.0  # only the trigger's pixel tells
    assert experiments.success(both, w.ravel(), "fashion_mnist") == 1.0
    w[experiments.PIXELS[0], 0] = 0.0
    assert experiments.success(both, w.ravel(), "fashion_mnist") == 0.0


def test_workers_of_a_thousand_are_dealt_in_the_order_of_writers() -> None:
    workers = kit.qmnist(0, 6, 20, 2)
    assert workers.fed.sizes.tolist() == [20] * 6
    assert len(workers.slow) == 2
    together = np.concatenate(list(workers.fed.X))
    assert np.array_equal(together, np.concatenate(list(writers("train").X))[:120])
