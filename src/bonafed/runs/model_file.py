"""A model as a safetensors file, with all that predictions need in its metadata, and its
predictions for the rows of a table.

The metadata follow from configuration, data and outcome only, so that verification makes them
again and compares.
"""

import csv
import io
import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.special import softmax

from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.data.profile import names_a_person, names_an_identifier
from bonafed.data.readers import read
from bonafed.data.reading import Reading, orders_of
from bonafed.data.schema import Schema
from bonafed.data.tables import Table
from bonafed.names import load
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import expected
from bonafed.problem.predictors.affine import predictor, scores, with_ones
from bonafed.rounds import Stop
from bonafed.runs import files, forms
from bonafed.solution.solution import Solution

FORMAT = 1


class Described(Protocol):
    """What is known of the rows to train on: names, classes and schema."""

    @property
    def feature_names(self) -> Sequence[str]: ...

    @property
    def classes(self) -> Any: ...

    @property
    def schema(self) -> Schema | None: ...


def model_of(
    config: Config, fed: Described, infeasible: bool, calibration: Sigmoid | None
) -> files.Record:
    """What a model's file says beside its numbers: how features are made and predictions computed;
    ``fed`` are the rows to train on.
    """
    schema = None if fed.schema is None else fed.schema.to_dict()
    model = described(config, fed.classes, fed.feature_names, schema, infeasible)
    return model if calibration is None else model | {"calibration": asdict(calibration)}


def described(
    config: Config, classes: object, names: object, schema: files.Row | None, infeasible: bool
) -> files.Record:
    """The same, from names, classes and schema only."""
    problem = config.problem_
    network = {key: problem.get(key) for key in problem.keys_of("model")}
    model = {
        "format": FORMAT,
        "loss": problem.loss,
        "intercept": problem.fit_intercept,
        "model": problem.model,
        **{key: value for key, value in network.items() if value is not None},
        **({"ones": True} if config.ones else {}),
        **({} if config.data.client is None else {"client": config.data.client}),
        "classes": classes,
        "feature_names": names,
        "schema": schema,
        **({"infeasible": True} if infeasible else {}),
    }
    return files.plain(model)


def save_model(file: Path, config: Config, solution: Solution, fed: Described) -> None:
    """Write w, and in the metadata how features are made and predictions computed."""
    model = model_of(config, fed, solution.outcome.stop is Stop.INFEASIBLE, solution.calibration)
    files.save_arrays(file, {"w": solution.w}, {"bonafed": json.dumps(model)})


def read_model(path: str | os.PathLike[str]) -> tuple[Array, files.Record, Schema]:
    """(w, model, schema) of a run's folder or of a model.safetensors file, to predict with."""
    w, model, schema = stored_model(path)
    if not np.isfinite(w).all():
        raise files.RunError(f"{path} is damaged: its model is not finite")
    return w, model, schema


def stored_model(path: str | os.PathLike[str]) -> tuple[Array, files.Record, Schema]:
    """The same as `read_model`, whether the numbers are finite or not."""
    file = Path(path)
    if file.is_dir():
        file /= "model.safetensors"
        if file.is_symlink():
            raise files.RunError(f"{file} is a symbolic link: a run has files only")
    tensors, metadata = files.load_tensors(file)
    if {*tensors} != {"w"} or {*metadata} != {"bonafed"}:
        raise files.damaged(
            file, 'needed: the array "w" and the metadata "bonafed", and nothing else'
        )
    model = files.parsed(file, metadata["bonafed"])
    if model.get("format") != FORMAT:
        text = f"{file}: the model is of format {str(model.get('format'))[:20]!r}"
        raise files.RunError(f"{text}, this bonafed reads {FORMAT}")
    forms.check_form(file, model, forms.MODEL, "model")
    schema, w = Schema.from_dict(model["schema"]), tensors["w"]
    names = [*schema.feature_names, *["1"] * model.get("ones", False)]
    if model["feature_names"] != names:
        raise files.damaged(file, "its feature_names are not those of its schema")
    if model["classes"] != model["schema"]["classes"]:
        raise files.damaged(file, "its classes are not those of its schema")
    several = len(model["classes"]) if targets_of(model) == "class" else None
    try:
        size = predictor(model).sized(len(names), several).dimension(len(names))
    except (ValueError, TypeError, ArithmeticError) as error:
        text = f"{model['model']} cannot be made of its keys: {error}"
        raise files.damaged(file, text) from error
    if w.shape != (size,):
        raise files.damaged(file, "its model does not fit its schema")
    return w, model, schema


def targets_of(model: files.Row) -> str:
    """The kind of targets that the loss of a saved model takes, as its class has it."""
    return load("loss", model["loss"]).targets


# -------------------------------------------------------------------------------------- predictions

# columns of predictions
WRITTEN = ("row", "client", "prediction", "probability", "positive", "cut", "score")
# what a spreadsheet runs or trims at the start of a cell, also after apostrophes of ours
RUN = re.compile("'*[=+\\-@\t\r\n＝＋－＠]")
KEY = re.compile(r"[\w-]{1,40}")  # an identifier of letters and figures
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def predict_table(
    path: str | os.PathLike[str], table: str | os.PathLike[str], unknown: str = "error"
) -> dict[str, list[object]]:
    """Columns by name: which row it is, its ``client`` where the table names it, ``prediction`` (a
    class, or for a regressor a number), and of two classes the ``probability`` of the ``positive``
    one, its name, the ``cut`` above which it is predicted, and the ``score``.

    The first column says which row it is: a column of the table that is not a feature, is named as
    an identifier, and has another value in every row; else one of keys, or of whole numbers that
    rise; else ``row``, counted from 1. Of several classes
    there is a probability and a score each, ``probability_`` and ``score_`` with its name. A model
    whose scores are not log odds and were not calibrated has no probabilities.

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
    client, reading, file = model.get("client"), schema.reading, Path(table)
    cells = read(file, [*codes, *filter(None, [client])], reading)
    X = schema.transform(cells, unknown, where=str(table))
    score = scores(predictor(model), w, with_ones(X) if model.get("ones") else X)
    columns: dict[str, list[object]] = {}
    features = [column.name for column in schema.columns]
    taken = {client, schema.target, *features, *reading.sources(tuple(features))}
    # columns that were excluded are looked at as well: an identifier is likely one of them
    lines = ("encoding", "delimiter", "drop_repeated_header", "header_lines")
    as_written = Reading(**{key: getattr(reading, key) for key in lines})
    if (key := _identifier(read(file, (), as_written), taken)) is None:
        columns["row"] = list(range(1, len(score) + 1))
    else:  # as it stands in the file: "007" is not 7
        columns[key] = read(file, [key], as_written, [key])[key].tolist()
    if client is not None and client in cells:
        columns["client"] = cells[client].tolist()
    return columns | _predicted(model, score)


def _identifier(table: Table, taken: Collection[str | None]) -> str | None:
    """The column that tells all rows apart, beside those that are ``taken`` and those that are
    called as columns of predictions: the first that is named as an identifier, else the first of
    keys or of whole numbers that rise.
    """
    left = [n for n in table if n not in taken and n and n.partition("_")[0] not in WRITTEN]
    for name in sorted(left, key=lambda n: not _is_named(n)):
        values = table[name].tolist()
        if len({*values}) == len(values) > 0 and _are_keys(values, _is_named(name)):
            return name
    return None


def _is_named(name: str) -> bool:
    return names_an_identifier(name) or names_a_person(name)


def _are_keys(values: Sequence[Any], named: bool) -> bool:
    """Whether cells can be identifiers; where their column is not ``named`` so, whole numbers that
    do not rise may be amounts, and texts with other signs are dates, amounts or remarks.
    """
    text = any(isinstance(v, str) for v in values)
    if any(v is None or v != v or (not text and v != v // 1) for v in values):
        return False
    if named:
        return True
    if text:
        return all(KEY.fullmatch(str(v)) and not orders_of(str(v)) for v in values)
    return all(a < b for a, b in pairwise(values))


def _predicted(model: files.Row, score: Array) -> dict[str, list[object]]:
    """The columns of predictions from the scores of all rows."""
    classes, targets = model["classes"], targets_of(model)
    if classes is None or targets not in ("sign", "class"):
        return {"prediction": expected(load("loss", model["loss"]), score).tolist()}
    if targets == "sign":
        named = [classes[1 if s > 0 else 0] for s in score]
        columns: dict[str, list[object]] = {"prediction": named}
        # scores of this loss are log odds
        sigmoid = Sigmoid() if model["loss"] == "logistic" else None
        if (fitted := model.get("calibration")) is not None:
            sigmoid = Sigmoid(**fitted)
        if sigmoid is not None:
            columns["probability"] = sigmoid.probability(score).tolist()
            columns["positive"] = [classes[1]] * len(score)
            # where the score is 0: above it the positive class is predicted
            columns["cut"] = sigmoid.probability(np.zeros(1)).tolist() * len(score)
        return columns | {"score": score.tolist()}
    columns = {"prediction": [classes[k] for k in score.argmax(1)]}
    for kind, numbers in (("probability", softmax(score, axis=1)), ("score", score)):
        columns |= {f"{kind}_{c}": numbers[:, k].tolist() for k, c in enumerate(classes)}
    return columns


def as_csv(columns: Mapping[str, Sequence[object]]) -> str:
    """The columns as CSV. A text that a spreadsheet would run as a formula gets an apostrophe in
    front, unless it is a number.
    """
    rows = [columns.keys(), *zip(*columns.values(), strict=True)]
    return "".join(_line(map(harmless, row)) for row in rows)


def _line(cells: Iterable[object]) -> str:
    """One line; a cell with a line break of any kind is in quotes."""
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator="\r\n").writerow(cells)
    return file.getvalue()[:-2] + "\n"


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
