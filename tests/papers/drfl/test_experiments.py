"""The experiments of the first paper at tiny settings, and the models that its grid shares."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn import model_selection

import bonafed as bf
from bonafed.model_selection import WithinClients
from bonafed.papers import drfl
from bonafed.papers.drfl import experiments
from bonafed.reproduction.experiments import papers

PAPER = papers()["drfl"].experiments
TINY: dict[str, Any] = {"radii": [1e-2, 0.5], "label_costs": [0.5, 1.0], "thetas": [0.1]}
TINY |= {"folds": 2, "levels": [0.0, 1.0], "draws": 2}


def table(kind: str, n: int = 60) -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    score = X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=n)
    return SimpleNamespace(X=X, y=score + 3 if kind == "abalone" else (score > 0).astype(int))


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("heart", "breast_cancer_wisconsin", "abalone"):
        monkeypatch.setattr(f"bonafed.data.load.{kind}", lambda kind=kind: table(kind))


@pytest.mark.parametrize("key", ["figure-2", "figure-3", "figure-4", "figure-5"])
def test_an_image_has_every_method_and_claim(key: str):
    one = PAPER[key]
    rows = list(experiments.RUN[key](0, data=list(one.data), **TINY))
    found = {row[:3] for row in rows if row.x is None}
    for claim in one.claims:
        assert {(claim.case, claim.figure, m) for m in (claim.method, *claim.than)} <= found
    own = one.own[0]
    assert {(one.data[0], own.figure, own.own), (one.data[0], own.figure, own.method)} <= found
    assert all(np.isfinite(row.value) for row in rows)
    erm = [row for row in rows if row.case == one.data[0] and row.method == "ERM"]
    curve = {row.x: row.value for row in erm if row.figure == "accuracy by SD"}
    assert [*curve] == TINY["levels"]
    mean = next(row.value for row in erm if row.figure == "accuracy, SD")
    assert mean == pytest.approx(np.mean([*curve.values()]))


def test_clients_one_and_two_lack_half_of_their_rarer_class():
    whole = experiments._clients("heart", 0, (1.0, 1.0, 1.0))[0]
    fed = experiments._clients("heart", 0, (0.5, 0.5, 1.0))[0]
    for k, share in enumerate((0.5, 0.5, 1.0)):
        few, most = sorted((whole.y[k] == sign).sum() for sign in (-1, 1))
        assert sorted((fed.y[k] == sign).sum() for sign in (-1, 1)) == sorted(
            (round(share * few), most)
        )
    assert np.abs(whole.X[1]).max() <= 1 < np.abs(whole.X[0]).max()


@pytest.mark.parametrize(("kind", "method"), [*product(("heart", "abalone"), ("DRFL", "WAFL"))])
def test_models_that_points_share_are_those_of_each_point(kind: str, method: str):
    fed, _, _, loss = experiments._clients(kind, 1, (1.0, 1.0, 1.0))
    grid = {"radius": [1e-2, 0.1, 0.3], "label_cost": [0.4, 1.0, 8.0], "client_radius": [0.1]}
    seen = experiments._seen(method, fed)
    for point, w in experiments._path(method, fed, loss, grid):
        problem = experiments._problem(method, loss, point)
        alone = experiments._fit(problem, seen, 1e-6)
        value, best = problem.objective(w, seen), problem.objective(alone, seen)
        assert value <= best + 2e-3 * best


def test_radius_and_volume_of_example_4_1():
    rows = list(experiments.figure_1(0, rows=1000, repeats=100, volume=200))
    found = {row[:3]: row.value for row in rows if row.x is None}
    # far apart, the sampled share of client 1 decides WAFL's radius; alike, it plays no part
    assert found["apart", "radius at 90 %", "WAFL"] > found["apart", "radius at 90 %", "DRFL"]
    assert found["alike", "radius at 90 %", "WAFL"] < found["alike", "radius at 90 %", "DRFL"]
    radii = [r.value for r in rows if r[:3] == ("apart", "radius", "DRFL") and r.x is not None]
    assert len(radii) == 19
    assert radii == sorted(radii)


def test_distances_are_those_of_scipy():
    from scipy.stats import wasserstein_distance

    rng, atoms = np.random.default_rng(1), experiments.CASES["interleaved"]
    p = rng.random((5, 2, 3))
    p /= p.sum(-1, keepdims=True)
    q, truth = rng.random(5), (experiments.WEIGHT, experiments.SHARES)
    larger = experiments._distance("DRFL", atoms, (q, p), truth)
    mixed = experiments._distance("WAFL", atoms, (q, p), truth)
    for k in range(5):
        own = [
            wasserstein_distance(atoms[s], atoms[s], p[k, s], experiments.SHARES[s])
            for s in range(2)
        ]
        assert larger[k] == pytest.approx(max(own))
        weights = [(w * a, (1 - w) * b) for w, (a, b) in ((q[k], p[k]), truth)]
        one, two = (np.concatenate(pair) for pair in weights)
        both = np.ravel(atoms)
        assert mixed[k] == pytest.approx(wasserstein_distance(both, both, one, two))


def test_rounds_and_seconds_to_a_gap():
    settings = {"radius": 0.01, "label_cost": 0.5, "theta": 0.1, "gaps": [0.5, 1e-2]}
    rows = list(experiments.algorithm_1(0, data=["abalone"], seconds=1.0, **settings))
    found = {row[1:3]: row.value for row in rows}
    for method in ("AD-LPMM", "double loop", "EpigraphADMM", "Bundle"):
        assert found["CPU s to 0.5", method] >= 0
        assert found["rounds to 0.5", method] <= found["rounds to 0.01", method]
    none = experiments._met(
        drfl.standard(), experiments._clients("heart", 0, (1, 1, 1))[0], bf.Bundle(), 1e-9, [0.1], 9
    )
    assert np.isnan(none[0.1][0])


# ---- the grid


def test_the_grid_is_that_of_section_6_1_and_the_figures_take_a_part_of_it():
    grid = drfl.grid("robustclassifier__")
    assert [len(values) for values in grid.values()] == [15, 10, 6]
    assert all(len(set(values)) == len(values) for values in grid.values())
    for one in (PAPER[f"figure-{k}"] for k in range(2, 6)):
        for mine, whole in zip(("radii", "label_costs", "thetas"), grid.values(), strict=True):
            assert set(one.full[mine]) <= set(whole)


@pytest.mark.parametrize(("kind", "loss"), [("heart", drfl.HINGE), ("abalone", drfl.HUBER)])
def test_the_estimator_has_the_paper_s_model(kind: str, loss: Any):
    fed = experiments._clients(kind, 0, (1.0, 1.0, 1.0))[0]
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    point = {"radius": 0.02, "label_cost": 0.5, "client_radius": 0.1}
    assert {*drfl.grid()} == {*point}
    model = drfl.estimator(loss).set_params(**point)
    model.fit(X, y, groups=np.repeat(fed.clients, fed.sizes))
    problem = drfl.drfl(0.02, 0.1, 0.5, loss)
    best = bf.solve(problem, fed).value
    assert model.solution_.problem.regulariser == bf.Zero()
    assert problem.objective(np.ravel(model.coef_), fed) == pytest.approx(best, rel=1e-5)


def test_a_part_of_the_grid_through_a_search():
    fed = experiments._clients("heart", 0, (1.0, 1.0, 1.0))[0]
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    grid = {key: values[:: len(values) - 1] for key, values in drfl.grid().items()}
    grid["radius"] = [0.01]
    model = drfl.estimator().set_params(tol=1e-3)
    search = model_selection.GridSearchCV(model, grid, cv=WithinClients(2))
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, y, groups=np.repeat(fed.clients, fed.sizes))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert {*search.best_params_} == {*grid}
