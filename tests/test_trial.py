"""Baselines are special cases of the same problem, and all of them can stand beside a run."""

from pathlib import Path

import numpy as np
import pytest
import small_run

import quorate as qr
from quorate.runs.baselines import BASELINES
from quorate.runs.verification import passed, verify_run


def problem(over_clients: object) -> qr.Problem:
    return qr.Problem(
        qr.Hinge(),
        qr.Linear(True),
        qr.WassersteinBall({"a": 0.1, "b": 0.5}, 2.0),
        over_clients,
        qr.L2(0.1),
    )


@pytest.fixture
def fed() -> qr.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))
    return qr.Federation.from_arrays(X, (X[:, 0] > 0).astype(int), ["a"] * 9 + ["b"] * 3)


@pytest.mark.parametrize(
    ("name", "over", "expected"),
    [
        ("erm", qr.LpBall(0.3, 1.0, "size"), qr.Mean("size")),
        ("erm", qr.Simplex(), qr.Mean("uniform")),
        ("afl", qr.LpBall(0.3, 1.0, "size"), qr.LpBall(0.3, 1.0, "size")),
        ("afl", qr.Mean("size"), qr.Simplex()),
        ("drfa", qr.LpBall(0.3, 1.0, "size"), qr.Simplex()),
    ],
)
def test_baselines_without_a_ball_round_the_samples(
    fed: qr.Federation, name: str, over: object, expected: object
) -> None:
    stated, data = BASELINES[name](problem(over), fed)
    assert stated == qr.Problem(qr.Hinge(), qr.Linear(True), qr.Mean(), expected, qr.L2(0.1))
    assert data is fed


def test_wafl_is_one_ball_round_the_mixture(fed: qr.Federation) -> None:
    stated, data = BASELINES["wafl"](problem(qr.LpBall(0.3, 1.0, "size")), fed)
    assert data.n_clients == 1
    # the mean by the prior
    assert stated.over_samples.radius == pytest.approx(0.75 * 0.1 + 0.25 * 0.5, rel=1e-15)
    w = np.array([0.4, -0.3, 0.1])
    losses = [
        np.maximum(0, 1 - np.where(y == 1, 1, -1) * (X @ w[:2] + w[2])).mean()
        for X, y in zip(fed.X, fed.y, strict=True)
    ]
    mean = qr.Problem(qr.Hinge(), qr.Linear(True), regulariser=qr.L2(0.1)).objective(w, data)
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
