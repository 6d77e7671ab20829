"""Accuracy of the worst group on five tables with a bad one, beside fairlearn.

    python benchmarks/worst_group.py [--quick] [--save]

Of 60 % of every group's rows models are made, with all defaults, and judged on the others; means
over 40 seeds, of which every one draws table and split anew (the four hospitals: the split).
fairlearn's ``ExponentiatedGradient`` with parity of error rates predicts by a draw among several
models: its accuracy here is the one expected of these draws. CPU seconds are those of one fit,
after one that is not counted. The second table has paired differences and two standard errors,
also of the first five seeds, which are too few to tell such models apart.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import measure
import numpy as np
from defaults import Table
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import bonafed as bf
from bonafed.data import load

FEW, SEEDS = 5, 40
FASTER = 10.0
OURS, RIVAL = "AgnosticClassifier(Simplex())", "fairlearn, error rates"


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
    OURS: lambda: bf.AgnosticClassifier(bf.Simplex()),
}
if importlib.util.find_spec("fairlearn") is not None:
    MODELS[RIVAL] = rival


def judged(make: Callable[[], Any], train: Table, test: Table) -> tuple[float, float, float]:
    """Accuracy of the worst group and of all held-out rows, and CPU seconds of the fit."""
    model, began = make(), time.process_time()
    if isinstance(model, LogisticRegression):
        model.fit(train.X, train.y)
    elif hasattr(model, "client_report"):
        model.fit(train.X, train.y, groups=train.groups)
    else:
        model.fit(train.X, train.y, sensitive_features=train.groups)
    seconds = time.process_time() - began
    chances = getattr(model, "_pmf_predict", None)  # that the model drawn says each class
    if chances is not None:
        right = chances(test.X)[np.arange(len(test.y)), test.y]
    else:
        right = np.equal(model.predict(test.X), test.y)
    worst = min(right[test.groups == name].mean() for name in np.unique(test.groups))
    return float(worst), float(right.mean()), seconds


def measured(seeds: int) -> dict[str, dict[str, NDArray[np.float64]]]:
    """By table and model: a row of figures for each seed."""
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for name, make in TABLES.items():
        splits = [make(name, seed).split(seed) for seed in range(seeds)]
        for model in MODELS.values():
            judged(model, *splits[0])  # what is imported or compiled at first is not counted
        found[name] = {
            called: np.array([judged(model, *split) for split in splits])
            for called, model in MODELS.items()
        }
    return found


def beside(
    found: Mapping[str, Mapping[str, NDArray[np.float64]]], targets: measure.Targets
) -> list[tuple]:
    """Ours minus fairlearn's on every table, and what is asked of it."""
    rows = []
    for name, models in found.items():
        for n in sorted({FEW, len(models[OURS])}):
            ours, theirs = (models[called][:n] for called in (OURS, RIVAL))
            less, error = (ours - theirs)[:, :2], 2 * np.std(ours - theirs, 0, ddof=1) / n**0.5
            ratio = float(theirs[:, 2].sum() / ours[:, 2].sum())
            gains = [float(v) for pair in zip(less.mean(0), error, strict=False) for v in pair]
            rows.append((name, n, *gains, ratio))
        *_, (_, _, gain, wide, _, _, ratio) = rows
        targets.need(gain >= 0, f"{name}: worst group {gain:+.3f} ± {wide:.3f} >= 0")
        targets.need(ratio >= FASTER, f"{name}: {ratio:.1f} >= {FASTER:g} times less CPU")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help=f"{FEW} seeds")
    seeds = FEW if parser.parse_args().quick else SEEDS
    warnings.simplefilter("ignore")
    found, targets = measured(seeds), measure.Targets()
    means = {
        (table, called): list(map(float, each.mean(0)))
        for table, models in found.items()
        for called, each in models.items()
    }
    for called in MODELS:
        each = [means[table, called] for table in TABLES]
        means["mean of the five", called] = list(map(float, np.mean(each, axis=0)))
    columns = ("table", "model", "worst group", "all rows", "CPU s")
    measure.show("models", columns, [(*names, *each) for names, each in means.items()])
    if RIVAL not in MODELS:
        targets.need(False, "fairlearn is not installed: pip install '.[benchmarks]'")
        targets.finish()
    rows = beside(found, targets)
    pairs = ("worst group", "± worst", "all rows", "± all")
    measure.show("minus fairlearn", ("table", "seeds", *pairs, "times less CPU"), rows)
    targets.finish()


if __name__ == "__main__":
    main()
