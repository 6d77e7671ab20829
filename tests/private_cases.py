"""Rows of two clients, with and without one row, for the tests of private mechanisms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from problems import PLAIN, SOFTMAX
from scipy import sparse

from bonafed.algorithms.federated.private import noisy_gradient
from bonafed.data.federation import Federation
from bonafed.privacy.budget import Budget
from bonafed.problem.losses import Exponential, Huber, Logistic, Multinomial, SmoothHinge, Squared
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.solution.plan import configure

SIZES = (7, 4)
BUDGET = Budget(2.0, 1e-4, sizes=6)


@dataclass(frozen=True)
class Case:
    """Rows of two clients, a row more, and a row in its place."""

    problem: Problem
    fed: Federation
    more: Federation
    other: Federation


LOSSES = {
    "logistic": (Logistic(), PLAIN),
    "logistic, intercept": (Logistic(), Linear(True)),
    "smooth hinge, intercept": (SmoothHinge(), Linear(True)),
    "exponential": (Exponential(), Linear(True)),
    "squared": (Squared(), Linear(True)),
    "huber": (Huber(0.5), PLAIN),
    "multinomial": (Multinomial(), SOFTMAX),
}
ROWS = {
    "ordinary": 1.0,
    "long": 1e10,
    "longer than doubles square": 1e99,
    "tiny": 1e-90,
    "zero": 0.0,
}


def case(
    loss: str, row: str, seed: int, budget: Budget | None = BUDGET, thin: bool = False
) -> Case:
    """Random rows; the row that comes and goes, and the one that takes its place, are as long as
    ``row`` says.
    """
    rng = np.random.default_rng(seed)
    function, predictor = LOSSES[loss]
    d, classes = 3, [0, 1, 2] if loss == "multinomial" else [0, 1]
    X = [rng.standard_normal((m, d)) * rng.choice([0.1, 1.0, 30.0]) for m in SIZES]
    kind = rng.standard_normal if function.targets == "real" else lambda m: rng.choice(classes, m)
    y = [np.asarray(kind(m)) for m in SIZES]
    at = int(rng.integers(SIZES[0] + 1))
    new = rng.standard_normal((2, d)) * ROWS[row]
    labels = np.asarray(kind(2)) * (1e6 if function.targets == "real" and rng.random() < 0.3 else 1)
    wrap = sparse.csr_array if thin else np.asarray

    def made(rows: Any, target: Any) -> Federation:
        tables = tuple(wrap(x) for x in (rows, X[1]))
        declared = None if function.targets == "real" else classes
        return Federation(("a", "b"), tables, (target, y[1]), classes=declared)

    with_row = made(np.insert(X[0], at, new[0], 0), np.insert(y[0], at, labels[0]))
    instead = made(np.insert(X[0], at, new[1], 0), np.insert(y[0], at, labels[1]))
    return Case(Problem(function, predictor, privacy=budget), made(X[0], y[0]), with_row, instead)


def planned(algorithm: Any, problem: Problem, fed: Federation) -> tuple[Any, Federation]:
    concrete, data = problem.at(fed)
    return (
        configure(algorithm, concrete, data, None, None, None, None).planned(concrete, data),
        data,
    )


def answer_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows' clipped gradients, all that may be noised, are the same whatever the rows are."""

    def counted(self, problem, mechanism, v):
        return np.rint(1e6 * np.cos(np.arange(len(v)))).astype(int), 0

    monkeypatch.setattr(noisy_gradient.IntegerRows, "counted", counted)
    monkeypatch.setattr(noisy_gradient.os, "urandom", lambda size: b"7" * size)
