"""Accuracy of the worst group on five tables with a bad one, beside fairlearn if it is installed.

    python benchmarks/worst_group.py

Of 60 % of every group's rows models are made, with all defaults, and judged on the others; means
over five seeds. ``ExponentiatedGradient`` of fairlearn has parity of error rates, and predicts by a
draw. CPU seconds are those of one fit.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from defaults import Table
from sklearn.linear_model import LogisticRegression

import bonafed as bf
from bonafed.data import load

SEEDS = range(5)


def drawn(name: str, seed: int, second: tuple[float, float, float], cut: float = 0.0) -> Table:
    """1,200 rows, a sixth of them of a group whose classes follow other coefficients."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((1200, 3))
    groups = np.where(np.arange(1200) % 6 == 0, "few", "most")
    rule = np.where((groups == "few")[:, None], second, (1.5, 1.0, 0.0))
    z = (X * rule).sum(1) - np.where(groups == "few", cut, 0.0)
    return Table(name, X, (rng.random(1200) < 1 / (1 + np.exp(-2 * z))).astype(int), groups)


def hearts(name: str, seed: int) -> Table:
    """The four hospitals of the heart disease data."""
    fed = load.heart_disease()
    X, y = fed.pooled().rows(0)
    return Table(name, X, np.equal(y, "ill").astype(int), np.repeat(fed.clients, fed.sizes))


TABLES: dict[str, Callable[[str, int], Table]] = {
    "another rule": lambda name, seed: drawn(name, seed, (-0.5, 1.0, 1.5)),
    "the opposite rule": lambda name, seed: drawn(name, seed, (-1.5, 1.0, 0.0)),
    "another cut": lambda name, seed: drawn(name, seed, (1.5, 1.0, 0.0), 2.5),
    "a rule of a third column": lambda name, seed: drawn(name, seed, (0.0, 0.0, 2.0)),
    "heart disease, 4 hospitals": hearts,
}


def rival() -> Any:
    """fairlearn's model, whose groups are ``sensitive_features``."""
    from fairlearn.reductions import ErrorRateParity, ExponentiatedGradient

    return ExponentiatedGradient(LogisticRegression(), ErrorRateParity())


MODELS: dict[str, Callable[[], Any]] = {
    "LogisticRegression()": LogisticRegression,
    "RobustClassifier()": bf.RobustClassifier,
    "AgnosticClassifier()": bf.AgnosticClassifier,
    "AgnosticClassifier(Simplex())": lambda: bf.AgnosticClassifier(bf.Simplex()),
}
if importlib.util.find_spec("fairlearn") is not None:
    MODELS["fairlearn, error rates"] = rival


def judged(make: Callable[[], Any], table: Table, seed: int) -> tuple[float, float, float]:
    """Accuracy of the worst group and of all held-out rows, and CPU seconds of the fit."""
    train, test = table.split(seed)
    model, began = make(), time.process_time()
    if isinstance(model, LogisticRegression):
        model.fit(train.X, train.y)
    elif hasattr(model, "client_report"):
        model.fit(train.X, train.y, groups=train.groups)
    else:
        model.fit(train.X, train.y, sensitive_features=train.groups)
    seconds = time.process_time() - began
    right = np.equal(model.predict(test.X), test.y)
    worst = min(right[test.groups == name].mean() for name in np.unique(test.groups))
    return float(worst), float(right.mean()), seconds


def main() -> None:
    warnings.simplefilter("ignore")
    print("| table | model | worst group | all | CPU s |\n|---|---|---|---|---|")
    for name, make in TABLES.items():
        for called, model in MODELS.items():
            each = [judged(model, make(name, seed), seed) for seed in SEEDS]
            worst, overall, seconds = np.mean(each, axis=0)
            print(f"| {name} | {called} | {worst:.3f} | {overall:.3f} | {seconds:.2f} |")


if __name__ == "__main__":
    main()
