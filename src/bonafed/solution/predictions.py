"""Classes, probabilities and figures from the scores of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from bonafed import measures
from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.data.tables import has_column, table_of
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import Logistic, Loss
from bonafed.problem.predictors.affine import Rows
from bonafed.solution.constraint_table import TOGETHER
from bonafed.solution.figures import figures
from bonafed.solution.frames import Table
from bonafed.solution.inputs import Inputs, Rated

LISTS = ("confusion", "interval", "recalls", "precisions", "counts")  # become columns of numbers


def probabilities(scores: Array, loss: Loss, calibration: Sigmoid | None) -> Array:
    """(m, C) from scores (m,) or (m, C).

    Raises
    ------
    TypeError : scores of two classes that are neither calibrated nor log odds
    """
    if scores.ndim == 2:
        return softmax(scores, axis=1)
    if calibration is None and not isinstance(loss, Logistic):
        raise TypeError(
            f"the scores of {loss!r} are not log odds, and a private run has no calibration, which"
            " would ask the rows again: use Logistic(), or solution.decision_function(X)."
        )
    return (calibration or Sigmoid()).both(scores)


def targets(X: Rated, y: ArrayLike | str) -> NDArray[Any]:
    """(m,) the targets, which may be a column of X."""
    if isinstance(y, str):
        table = table_of(X)
        has_column(table, y, "the target")
        return table[y]
    values: Any = y
    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)


def score(scores: Array, y: NDArray[Any], inputs: Inputs) -> float:
    """The share of rows whose class is right; of a regression R2, nan where y is constant."""
    if y.shape != (len(scores),):
        raise ValueError(
            f"y must have shape ({len(scores)},), one target for each row, got {y.shape}."
        )
    if inputs.classes is not None:
        return float(np.mean(inputs.positions(scores) == inputs.codes(y)))
    r2 = measures.regression(np.asarray(y, float), scores)["r2"]
    return float("nan") if r2 is None else r2


def evaluated(
    fed: Federation,
    forward: Callable[[Rows], Array],
    inputs: Inputs,
    loss: Loss,
    calibration: Sigmoid | None,
) -> Table:
    """One row of figures for each client, and one for all rows together.

    Parameters
    ----------
    fed : with the features of the model
    forward : the scores of features
    loss, calibration : of the model
    """
    clients = [forward(fed.X[i]) for i in range(fed.n_clients)]
    truths = [inputs.codes(y) if inputs.classes else np.asarray(y, float) for y in fed.y]
    weights = [None] * fed.n_clients if fed.sample_weight is None else [*fed.sample_weight]
    whole = None if fed.sample_weight is None else np.concatenate(fed.sample_weight)
    parts = [
        *zip(fed.clients, truths, clients, weights, strict=True),
        (TOGETHER, np.concatenate(truths), np.concatenate(clients), whole),
    ]
    table = Table()
    for name, truth, scores, weight in parts:
        judged = figures(loss, scores, truth, calibration, weight)
        small = {"small": measures.small(judged)}
        table.append({"client": name, **small, **dict(_flat(judged, inputs))})
    return table


def _flat(figures: Mapping[str, Any], inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """The figures as columns of numbers: a list by class has a column for each class."""
    yield from ((key, value) for key, value in figures.items() if key not in LISTS)
    for key, head in (("recalls", "recall of"), ("precisions", "precision of")):
        named = zip(inputs.classes or (), figures.get(key, ()), strict=False)
        yield from ((f"{head} {label}", value) for label, value in named)
    if isinstance(confusion := figures.get("confusion"), dict):
        yield from confusion.items()
    for rate, (low, high) in figures.get("interval", {}).items():
        yield from ((f"{rate}_low", low), (f"{rate}_high", high))
