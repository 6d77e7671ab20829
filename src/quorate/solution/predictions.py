"""Classes, probabilities and figures from the scores of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from quorate import measures
from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.data.tables import has_column, table_of
from quorate.problem.calibration import Sigmoid
from quorate.problem.losses import Logistic, Loss
from quorate.problem.prediction import Rows
from quorate.solution.constraint_table import TOGETHER
from quorate.solution.frames import Record, Table
from quorate.solution.inputs import Inputs, Rated

LISTS = ("confusion", "interval", "recalls", "precisions", "counts")  # become columns of numbers


def decisions(scores: Array) -> Array:
    """The scores of several classes, (m, C); of two one number, (m,), above 0 for the last one."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1:] == (2,) else scores


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
            f"the scores of {loss!r} are no log odds, and a private run has no calibration, which"
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
    rated: Callable[[Array], Array | None],
) -> Table:
    """One row of figures for each client, and one for all rows together.

    Parameters
    ----------
    fed : with the features of the model
    forward : the scores of features
    rated : the probabilities of scores, or None
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
        figures = _figures(truth, scores, rated(scores), weight, inputs)
        small = {"small": measures.small(figures)}
        table.append({"client": name, **small, **dict(_flat(figures, inputs))})
    return table


def _figures(
    truth: NDArray[Any],
    scores: Array,
    probability: Array | None,
    weight: Array | None,
    inputs: Inputs,
) -> Any:
    if inputs.classes is None:
        return measures.regression(truth, scores, weight)
    if len(inputs.classes) > 2:
        assert probability is not None  # of several classes there always are some
        return measures.several_classes(truth, probability, weight)
    of_last = None if probability is None else probability[:, 1]
    return measures.classification(truth, decisions(scores), of_last, weight)


def _flat(figures: Record, inputs: Inputs) -> Iterator[tuple[str, Any]]:
    """The figures as columns of numbers: a list by class has a column for each class."""
    yield from ((key, value) for key, value in figures.items() if key not in LISTS)
    for key, head in (("recalls", "recall of"), ("precisions", "precision of")):
        named = zip(inputs.classes or (), figures.get(key, ()), strict=False)
        yield from ((f"{head} {label}", value) for label, value in named)
    if isinstance(confusion := figures.get("confusion"), dict):
        yield from confusion.items()
    for rate, (low, high) in figures.get("interval", {}).items():
        yield from ((f"{rate}_low", low), (f"{rate}_high", high))
