"""What a model needs to predict: how a table becomes features, and scores become classes. No row of
a client is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from bonafed.arrays import Array
from bonafed.client_names import closest
from bonafed.data.federation import Federation
from bonafed.data.schema import Schema
from bonafed.data.tables import matrix, table_of
from bonafed.problem.losses import Loss
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.affine import Rows
from bonafed.problem.targets import classes_of
from bonafed.text import listed

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
        shape = rows.shape
        if shape is None or len(shape) != 2 or shape[1] != len(self.feature_names):
            d = len(self.feature_names)
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
            raise ValueError(
                f"the table has no column {missing[0]!r}, a feature of the model"
                f"{closest(missing[0], table)}"
            )
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
        return fed._with(
            X=tuple(x[:, order] for x in fed.X), feature_names=self.feature_names, server=None
        )

    def labels(self, scores: Array) -> NDArray[Any]:
        """(m,) the predicted classes of scores (m,) or (m, C); of a regression the scores."""
        if self.classes is None:
            return scores
        return np.array(self.classes)[self.positions(scores)]

    @staticmethod
    def positions(scores: Array) -> NDArray[np.intp]:
        """(m,) the positions of the predicted classes."""
        return (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(1)

    def codes(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """(m,) the positions of the true classes; raises for a label that is none of them."""
        known = {label: k for k, label in enumerate(self.classes or ())}
        codes = np.array([known.get(label, -1) for label in np.asarray(y).tolist()], np.intp)
        if (odd := np.flatnonzero(codes < 0)).size:
            label = np.asarray(y).tolist()[odd[0]]
            raise ValueError(
                f"y holds {label!r}, which is not a class of the model{closest(label, known)}"
            )
        return codes
