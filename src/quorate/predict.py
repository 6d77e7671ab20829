"""Predictions of a saved model for the rows of a table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def predict_table(
    model: str | os.PathLike[str], table: str | os.PathLike[str], unknown: str = "error"
) -> dict[str, list[Any]]:
    """Columns by name: ``score`` and, for a classifier, ``prediction``, a class; for a regressor ``prediction``.

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
    score = X @ w[: X.shape[1]] + (w[-1] if said["intercept"] else 0.0)
    if said["classes"] is None or said["loss"] not in MARGIN:
        return {"prediction": score.tolist()}
    return {"prediction": [said["classes"][1 if s > 0 else 0] for s in score], "score": score.tolist()}


def caution(model: str | os.PathLike[str]) -> str:
    """What a person should know before predictions of a saved model are used; empty for nothing."""
    from quorate.runs import read_model

    _, said, _ = read_model(model)
    broken = said.get("infeasible", False)
    return "no model meets all constraints of this run; this one breaks them least and is not recommended" * broken


MARGIN = ("hinge", "smooth_hinge", "logistic", "exponential")  # losses whose targets are two classes
