"""Parity between two groups on adult: what was asked, and what the model does, beside fairlearn.

Ours bounds the difference of the groups' mean probabilities, by ``DemographicParity(group, bound,
Probability())`` or ``EqualisedOdds``, over all rows of five clients. fairlearn's
ExponentiatedGradient mixes classifiers and bounds each group's rate of positive predictions against
that of *all* rows, so that two groups may differ by nearly twice the bound. Both are stated for the
training rows and measured there:

- asked quantity: what the method's own bound is on;
- two groups: the difference of the groups' mean probabilities (fairlearn: of being predicted
  positive by the mixture);
- decisions: the same of the predictions, ours at 1/2, fairlearn's one draw; error: their share that
  is wrong.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from typing import Any

import measure
import numpy as np

import bonafed as bf
from bonafed.papers.constrained import data

BOUNDS = (0.1, 0.05, 0.02)
KINDS = ("demographic parity", "equalised odds")


def gap(values: np.ndarray, group: np.ndarray, y: np.ndarray, kind: str) -> float:
    """The largest difference of the groups' means, within each class for equalised odds."""
    cells = [np.ones(len(y), bool)] if kind == KINDS[0] else [y == 0, y == 1]
    names = np.unique(group)
    return max(
        abs(float(np.subtract(*(values[cell & (group == g)].mean() for g in names))))
        for cell in cells
    )


def to_all(values: np.ndarray, group: np.ndarray, y: np.ndarray, kind: str) -> float:
    """The largest difference of a group's mean to that of all rows: what fairlearn bounds."""
    cells = [np.ones(len(y), bool)] if kind == KINDS[0] else [y == 0, y == 1]
    pairs = [(cell, cell & (group == g)) for cell in cells for g in np.unique(group)]
    return max(abs(float(values[part].mean() - values[cell].mean())) for cell, part in pairs)


def ours(found: data.Encoded, fed: bf.Federation, kind: str, bound: float) -> tuple:
    stated = bf.DemographicParity if kind == KINDS[0] else bf.EqualisedOdds
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(fit_intercept=False),
        constraint=bf.Coupled(stated("group", bound, bf.Probability())),
    )
    began = time.process_time()
    solution = bf.solve(problem, fed)
    seconds = time.process_time() - began
    score = found.X @ solution.w
    probability = 1 / (1 + np.exp(-score))
    asked = gap(probability, found.group, found.y, kind)
    decided = gap((score > 0).astype(float), found.group, found.y, kind)
    return asked, asked, decided, float(((score > 0) != found.y).mean()), seconds, solution.rounds


def theirs(found: data.Encoded, kind: str, bound: float) -> tuple:
    from fairlearn.reductions import DemographicParity, EqualizedOdds, ExponentiatedGradient
    from sklearn.linear_model import LogisticRegression

    moment: Any = DemographicParity if kind == KINDS[0] else EqualizedOdds
    model = ExponentiatedGradient(
        LogisticRegression(C=1e6, fit_intercept=False, max_iter=1000),
        moment(difference_bound=bound),
    )
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(found.X, found.y, sensitive_features=found.group)
    seconds = time.process_time() - began
    positive = model._pmf_predict(found.X)[:, 1]
    drawn = np.asarray(model.predict(found.X, random_state=0))
    asked = to_all(positive, found.group, found.y, kind)
    two = gap(positive, found.group, found.y, kind)
    decided = gap(drawn.astype(float), found.group, found.y, kind)
    return asked, two, decided, float((drawn != found.y).mean()), seconds, model.n_oracle_calls_


def beside(targets: measure.Targets, quick: bool) -> None:
    found = data.adult()
    if quick:
        rows = np.random.default_rng(0).permutation(len(found.y))[:3000]
        found = data.Encoded(found.X[rows], found.y[rows], found.names, found.group[rows])
    fed, table = data.federation(found, data.stratified(found.y, 5)), []
    rival = importlib.util.find_spec("fairlearn") is not None
    if not rival:
        targets.need(False, "fairlearn is not installed: pip install '.[benchmarks]")
    for kind in KINDS:
        for bound in (0.05,) if quick else BOUNDS:
            mine = ours(found, fed, kind, bound)
            table.append((kind, bound, "bonafed", *mine))
            targets.need(
                mine[1] <= bound + 1e-6, f"{kind}: asked {bound:g}, measured {mine[1]:.6f}"
            )
            if rival:
                table.append((kind, bound, "fairlearn", *theirs(found, kind, bound)))
    columns = (
        "parity",
        "asked",
        "method",
        "asked quantity",
        "two groups",
        "decisions",
        "error",
        "CPU s",
        "rounds or fits",
    )
    measure.show("parity", columns, table)
