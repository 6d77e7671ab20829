"""Predictions of a saved model for the rows of a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorate.arrays import Array


def predict_table(
    model: str | os.PathLike[str], table: str | os.PathLike[str], unknown: str = "error"
) -> dict[str, list[Any]]:
    """Columns by name: ``prediction``, a class or for a regressor a number, and a classifier's ``score``.

    Of several classes there is one score each, ``score_`` and its name; the largest is predicted.

    Features are made from the table's columns by the schema that is saved with the model; ``unknown`` says what becomes
    of categories that it does not have: "error", or "ignore" for zeros.

    Raises
    ------
    RunError : no such model, or a damaged one
    ValueError, OSError : a table that cannot be read, without the model's columns, or with unknown categories
    """
    from quorate.data.tables import read
    from quorate.runs import read_model

    w, said, schema = read_model(model)
    codes = [column.name for column in schema.columns if hasattr(column, "categories")]
    X = schema.transform(read(Path(table), codes), unknown, where=str(table))
    score = scores(predictor(said), w, with_ones(X) if said.get("ones") else X)
    if said["classes"] is None or said["loss"] not in (*MARGIN, "multinomial"):
        return {"prediction": score.tolist()}
    if score.ndim == 1:
        return {"prediction": [said["classes"][1 if s > 0 else 0] for s in score], "score": score.tolist()}
    likely = {f"score_{name}": score[:, k].tolist() for k, name in enumerate(said["classes"])}
    return {"prediction": [said["classes"][k] for k in score.argmax(1)], **likely}


def predictor(said: Mapping[str, Any]) -> Any:
    """The model that a configuration, or the metadata of a saved model, describes."""
    kind = said.get("model", "linear")
    if kind == "linear":
        from quorate.problem.predictors import Linear

        return Linear(intercept=said["intercept"])
    if kind == "softmax":
        from quorate.problem.predictors import Softmax

        return Softmax()
    from quorate.problem.predictors_mlp import MLP

    own = {key: said[key] for key in ("hidden", "activation", "seed") if said.get(key) is not None}
    return MLP(**own)


def scores(model: Any, w: Array, X: Any) -> Array:
    """Predictions of the rows X: (m,), or one number a class (m, C)."""
    import numpy as np

    from quorate.arrays import Block

    m, rows = X.shape[0], X[None] if isinstance(X, np.ndarray) else X
    block = Block(rows, np.zeros((1, m)), np.full((1, m), 1 / m), np.array([0]), ("",))
    return model.forward(w, block)[0]


def with_ones(X: Any) -> Any:
    """X and a last column of ones."""
    import numpy as np
    from scipy.sparse import csr_array, hstack

    ones = np.ones((X.shape[0], 1))
    return np.hstack([X, ones]) if isinstance(X, np.ndarray) else hstack([csr_array(X), ones], format="csr")


def caution(model: str | os.PathLike[str]) -> str:
    """What a person should know before predictions of a saved model are used; empty for nothing."""
    from quorate.runs import read_model

    _, said, _ = read_model(model)
    broken = said.get("infeasible", False)
    return "no model meets all constraints of this run; this one breaks them least and is not recommended" * broken


MARGIN = ("hinge", "smooth_hinge", "logistic", "exponential")  # losses whose targets are two classes
