"""Baselines are special cases of the same problem, and all of them can stand beside a run."""

from pathlib import Path

import numpy as np
import pytest
import small_run

import bonafed as bf
from bonafed.runs.baselines import BASELINES
from bonafed.runs.verification import passed, verify_run


def problem(over_clients: object) -> bf.Problem:
    return bf.Problem(
        bf.Hinge(),
        bf.Linear(True),
        bf.WassersteinBall({"a": 0.1, "b": 0.5}, 2.0),
        over_clients,
        bf.L2(0.1),
    )


@pytest.fixture
def fed() -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    return bf.Federation.from_arrays(X, (X[:, 0] > 0).astype(int), ["a"] * 9 + ["b"] * 3)


@pytest.mark.parametrize(
    ("name", "over", "expected"),
    [
        ("erm", bf.LpBall(0.3, 1.0, "size"), bf.Mean("size")),
        ("erm", bf.Simplex(), bf.Mean("uniform")),
        ("afl", bf.LpBall(0.3, 1.0, "size"), bf.LpBall(0.3, 1.0, "size")),
        ("afl", bf.Mean("size"), bf.Simplex()),
        ("drfa", bf.LpBall(0.3, 1.0, "size"), bf.Simplex()),
    ],
)
def test_baselines_without_a_ball_round_the_samples(
    fed: bf.Federation, name: str, over: object, expected: object
) -> None:
    stated, data = BASELINES[name](problem(over), fed)
    assert stated == bf.Problem(bf.Hinge(), bf.Linear(True), bf.Mean(), expected, bf.L2(0.1))
    assert data is fed


def test_wafl_is_one_ball_round_the_mixture(fed: bf.Federation) -> None:
    stated, data = BASELINES["wafl"](problem(bf.LpBall(0.3, 1.0, "size")), fed)
    assert data.n_clients == 1
    # the mean by the prior
    assert stated.over_samples.radius == pytest.approx(0.75 * 0.1 + 0.25 * 0.5, rel=1e-15)
    w = np.array([0.4, -0.3, 0.1])
    losses = [
        np.maximum(0, 1 - np.where(y == 1, 1, -1) * (X @ w[:2] + w[2])).mean()
        for X, y in zip(fed.X, fed.y, strict=True)
    ]
    mean = bf.Problem(bf.Hinge(), bf.Linear(True), regulariser=bf.L2(0.1)).objective(w, data)
    assert mean == pytest.approx(
        0.75 * losses[0] + 0.25 * losses[1] + 0.05 * (w[:2] @ w[:2]), rel=1e-12
    )


def test_all_four_stand_beside_a_run_and_are_verified(tmp_path: Path) -> None:
    text = small_run.CONFIG.replace('"afl", "erm"', '"wafl", "drfa", "afl", "erm"')
    run = small_run.small_run(tmp_path, text=text)
    assert [m["model"] for m in run.result["evaluation"]["measures"]][:5] == [
        "DRFL",
        "WAFL",
        "DRFA",
        "AFL",
        "ERM",
    ]
    assert len(run.result["evaluation"]["verdict"]) == 1 + 3 * 4
    assert all(b["gap"] < 1e-5 for b in run.result["baselines"].values())
    assert passed(verify_run(run.path))
