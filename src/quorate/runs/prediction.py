"""Predictions of a saved model for the rows of a table."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from quorate.data.tables import read
from quorate.problem.prediction import predictor, scores, with_ones
from quorate.runs.model_file import read_model, targets_of

# what a spreadsheet runs or trims at the start of a cell, also after apostrophes of ours
RUN = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def predict_table(
    path: str | os.PathLike[str], table: str | os.PathLike[str], unknown: str = "error"
) -> dict[str, list[object]]:
    """Columns by name: ``prediction``, a class or for a regressor a number, and a classifier's
    ``score``.

    Of several classes there is one score each, ``score_`` and its name; the largest is predicted.

    Features are made from the table's columns by the schema that is saved with the model;
    ``unknown`` says what becomes of categories that it does not have: "error", or "ignore" for
    zeros.

    Raises
    ------
    RunError : no such model, or a damaged one
    ValueError, OSError : a table that cannot be read, without the model's columns, or with unknown
        categories
    """
    w, model, schema = read_model(path)
    codes = [column.name for column in schema.columns if hasattr(column, "categories")]
    X = schema.transform(read(Path(table), codes), unknown, where=str(table))
    score = scores(predictor(model), w, with_ones(X) if model.get("ones") else X)
    classes, targets = model["classes"], targets_of(model)
    if classes is None or targets not in ("sign", "class"):
        return {"prediction": score.tolist()}
    if targets == "sign":
        chosen = [classes[1 if s > 0 else 0] for s in score]
        return {"prediction": chosen, "score": score.tolist()}
    by_class = {f"score_{name}": score[:, k].tolist() for k, name in enumerate(classes)}
    return {"prediction": [classes[k] for k in score.argmax(1)], **by_class}


def as_csv(columns: Mapping[str, Sequence[object]]) -> str:
    """The columns as CSV. A text that a spreadsheet would run as a formula gets an apostrophe in
    front, unless it is a number.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(harmless, columns))
    writer.writerows(map(harmless, row) for row in zip(*columns.values(), strict=True))
    return file.getvalue()


def harmless(value: object) -> object:
    """A cell that no spreadsheet runs: ``=1+1`` becomes ``'=1+1``. To read it back, leave out the
    first of the apostrophes that stand before one of these signs.
    """
    if isinstance(value, str) and RUN.match(value) and not NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def caution(path: str | os.PathLike[str]) -> str:
    """What a person should know before predictions of a saved model are used; empty for nothing."""
    _, model, _ = read_model(path)
    if not model.get("infeasible", False):
        return ""
    return (
        "no model meets all constraints of this run; this one breaks them least and is not"
        " recommended"
    )
