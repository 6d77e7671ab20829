"""Classes, probabilities and figures from the scores of a model.

`Inputs` is what a model needs to predict: how a table becomes features, and scores become classes.
It keeps no row of a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import softmax

from bonafed import measures
from bonafed.arrays import Array
from bonafed.client_names import closest
from bonafed.data.federation import Federation
from bonafed.data.schema import Schema
from bonafed.data.tables import has_column, matrix, table_of
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import Logistic, Loss, expected
from bonafed.problem.metadata import Metadata, classes_of
from bonafed.problem.predictors.affine import Rows
from bonafed.solution.tables import TOGETHER, Table
from bonafed.text import listed
from bonafed.worst_client import CONFIDENCE, Counted, in_words, once, promise

HELD_OUT = "those judged here, which had no part in training or in a choice"
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
    confidence: float = CONFIDENCE,
) -> Table:
    """One row of figures for each client, and one for all rows together; what holds of new rows.

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
    whose, everyone = fed.whose
    parts = [
        *zip(fed.clients, truths, clients, weights, whose, strict=True),
        (TOGETHER, np.concatenate(truths), np.concatenate(clients), whole, everyone),
    ]
    table = Table()
    for name, truth, scores, weight, who in parts:
        judged = figures(loss, scores, truth, calibration, weight, who)
        row = {"client": name, "small": measures.small(judged)}
        table.append(row | dict(_flat(judged, inputs)))
    pairs = zip(fed.names, fed.sizes.tolist(), strict=True)
    rows: list[measures.Figures] = [{"client": name, "n": n} for name, n in pairs]
    said: measures.Figures = {"unstated": "weights"}
    if whole is None:
        said = promised(loss, rows, clients, truths, calibration, fed.persons, confidence)
    for row, stated in zip(table, rows, strict=False):
        for key, bound in stated.get("bounds", {}).items():
            row[f"{key}_at_{'most' if key == 'brier' else 'least'}"] = bound
    table.text = in_words({**said, "clients": rows}, HELD_OUT)
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


def figures(
    loss: Loss,
    prediction: Array,
    y: Array,
    calibration: Sigmoid | None = None,
    weight: Array | None = None,
    persons: NDArray[Any] | None = None,
) -> measures.Figures:
    """The figures of predictions (n,), or (n, C) of C classes.

    Of two classes y is above 0 where a row is of the positive one, of several it has their numbers.
    Where ``persons`` says whose each row is, intervals are of one row of each person.
    """
    task = task_of(loss, prediction)
    if task == measures.NUMBERS:
        return measures.regression(y, expected(loss, prediction), weight)
    if task == measures.SEVERAL:
        found = measures.several_classes(y, softmax(prediction, axis=1), weight)
    else:
        p = positive(loss, prediction, calibration)
        found = measures.classification(y, decisions(prediction), p, weight)
    if persons is not None and "interval" in found:  # rows of one person are not independent
        kept = once(len(y), persons)
        found["interval"] = figures(loss, prediction[kept], y[kept], calibration)["interval"]
    return found


def promised(
    loss: Loss,
    clients: Sequence[measures.Figures],
    predictions: Sequence[Array],
    truths: Sequence[NDArray[Any]],
    calibration: Sigmoid | None = None,
    persons: Sequence[NDArray[Any]] | None = None,
    confidence: float = CONFIDENCE,
) -> measures.Figures:
    """What the rows of clients promise of new ones, `bonafed.worst_client.promise`, or why they
    promise nothing; ``predictions`` and ``truths`` of each as `figures` takes them.
    """
    if loss.targets == "real":
        return {"unstated": "numbers"}
    rows, task = [], task_of(loss, predictions[0])
    several, whose = task == measures.SEVERAL, persons or [None] * len(predictions)
    for prediction, y, who in zip(predictions, truths, whose, strict=True):
        order = once(len(y), who)
        prediction, truth = prediction[order], (y if several else y > 0)[order].astype(int)
        score = decisions(prediction)
        p = softmax(score, axis=1) if several else positive(loss, prediction, calibration)
        cells = np.zeros((score.shape[1] if several else 2,) * 2, int)
        np.add.at(cells, (truth, score.argmax(1) if several else (score > 0).astype(int)), 1)
        rows.append(Counted(cells, None if p is None else measures.brier(truth, p)))
    return promise(task, clients, rows, persons is not None, confidence)


def task_of(loss: Loss, prediction: Array) -> measures.Task:
    """Which figures predictions (n,), or (n, C) of C classes, have."""
    if loss.targets == "real":
        return measures.NUMBERS
    return measures.SEVERAL if prediction.ndim == 2 and prediction.shape[1] > 2 else measures.TWO


def drawn(
    loss: Loss, prediction: Array, y: Array, calibration: Sigmoid | None = None, points: int = 101
) -> measures.Curves | None:
    """The curves of a model of two classes; None for others."""
    if task_of(loss, prediction) != measures.TWO:
        return None
    p = positive(loss, prediction, calibration)
    return measures.curves(y, decisions(prediction), p, points)


def decisions(scores: Array) -> Array:
    """The scores of several classes, (m, C); of two one number, (m,), above 0 for the last one."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1:] == (2,) else scores


def positive(loss: Loss, score: Array, calibration: Sigmoid | None = None) -> Array | None:
    """(n,) the probability of the positive one of two classes; None where scores have no such
    meaning.
    """
    if score.ndim == 2:
        return softmax(score, axis=1)[:, 1]
    if calibration is None and isinstance(loss, Logistic):  # of a private run
        calibration = Sigmoid()
    return None if calibration is None else calibration.probability(score)


Label: TypeAlias = str | int | float | bool
Rated: TypeAlias = Any  # rows: an array, a sparse matrix, a frame or a mapping of columns


@dataclass(frozen=True)
class Inputs:
    """The names of features and classes that a model was trained with.

    Attributes
    ----------
    feature_names : (d,) of the features, in the order of the model
    classes : sorted as the loss counts them, the last of two is predicted where the score is above
        0; None of a regression
    schema : how features are made from a table; None: a table's columns are the features
    """

    feature_names: tuple[str, ...]
    classes: tuple[Label, ...] | None = None
    schema: Schema | None = None

    @classmethod
    def of(cls, loss: Loss, fed: Federation | Metadata) -> Inputs:
        """Those of a federation, as it is given to ``solve``."""
        named = loss.targets in ("sign", "class")
        if isinstance(fed, Metadata):
            return cls(fed.feature_names, tuple(fed.labels) if named else None)
        return cls(fed.feature_names, tuple(classes_of(fed)) if named else None, fed.schema)

    def features(self, X: Rated, unknown: str = "error") -> Rows:
        """(m, d) the features of rows.

        Raises
        ------
        ValueError
            for a table without a column of the model, another number of features, or cells that
            are not finite numbers
        """
        if isinstance(X, Federation):
            raise TypeError("rows are needed, got a Federation: use solution.evaluate(federation).")
        if not (hasattr(X, "tocsr") or isinstance(X, np.ndarray | list | tuple)):
            return self._finite(self._of_table(X, unknown))
        given: Any = X
        sparse = hasattr(given, "tocsr")
        try:
            rows = csr_array(given.tocsr(), dtype=float) if sparse else np.asarray(given, float)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"X must hold numbers only: {error}. Give a table with named columns"
                " (pandas, polars, Arrow) where columns are text."
            ) from error
        d, shape = len(self.feature_names), rows.shape
        if shape is None or len(shape) != 2 or shape[1] != d:
            raise ValueError(
                f"X must have shape (rows, {d}), got {shape}: the model's features are"
                f" {listed(self.feature_names, d)}. For one row use X.reshape(1, -1)."
            )
        return self._finite(rows)

    def _of_table(self, X: Rated, unknown: str) -> Array:
        """The features of a table, whose columns are found by name."""
        table = table_of(X)
        if self.schema is not None:
            return self.schema.transform(table, unknown)
        if missing := [name for name in self.feature_names if name not in table]:
            text = f"the table has no column {missing[0]!r}, a feature of the model"
            raise ValueError(text + closest(missing[0], table))
        return matrix(table, self.feature_names)

    def _finite(self, rows: Rows) -> Rows:
        values = rows if isinstance(rows, np.ndarray) else rows.data
        if not np.isfinite(values).all():
            where = np.argwhere(~np.isfinite(np.asarray(values)))[0]
            at = f": row {where[0]}, {self.feature_names[where[1]]!r}" if len(where) > 1 else ""
            raise ValueError(
                f"X must hold finite numbers, got a missing or infinite one{at}. Fill it in, or"
                " train with a schema (Recipe), which puts the mean there."
            )
        return rows

    def aligned(self, fed: Federation) -> Federation:
        """The federation with its features in the order of the model.

        Raises
        ------
        ValueError : other features
        """
        if fed.feature_names == self.feature_names:
            return fed
        if {*fed.feature_names} != {*self.feature_names}:
            odd = sorted({*fed.feature_names} ^ {*self.feature_names})
            raise ValueError(
                "the federation has other features than the model; not in both:"
                f" {listed(odd, len(odd))}. Make it with the schema of the training:"
                " schema=solution.inputs.schema."
            )
        order = [fed.feature_names.index(name) for name in self.feature_names]
        X = tuple(x[:, order] for x in fed.X)
        return fed._with(X=X, feature_names=self.feature_names, server=None)

    def labels(self, scores: Array) -> NDArray[Any]:
        """(m,) the predicted classes of scores (m,) or (m, C); of a regression the scores."""
        return scores if self.classes is None else np.array(self.classes)[self.positions(scores)]

    @staticmethod
    def positions(scores: Array) -> NDArray[np.intp]:
        """(m,) the positions of the predicted classes."""
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(1)

    def codes(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """(m,) the positions of the true classes; raises for a label that is none of them."""
        known = {label: k for k, label in enumerate(self.classes or ())}
        labels = np.asarray(y).tolist()
        for label in (label for label in labels if label not in known):
            raise ValueError(
                f"y holds {label!r}, which is not a class of the model{closest(label, known)}"
            )
        return np.array([known[label] for label in labels], np.intp)
