"""What an affine model looks at: its coefficients with the names and units of the columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bonafed.data.schema import Numeric
from bonafed.drawing import BLUE, GREY, ORANGE, named_rows
from bonafed.problem.predictors.affine import is_affine, predictor, scores, with_ones
from bonafed.report import words
from bonafed.report.figures import Plot
from bonafed.report.sections.section import (
    Block,
    Chapter,
    Figure,
    Fold,
    ReportSection,
    Row,
    Text,
    chapter,
)
from bonafed.report.tables import NOTHING, Table, number, of_rows
from bonafed.runs.model_file import targets_of
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.arrays import Array
    from bonafed.drawing import Canvas

SHOWN = 20  # the others are in a fold
YES = "yes/no"  # the unit of a category
UNIT = re.compile(r"[(\[]([^()\[\]]+)[)\]]\s*$")  # at the end of a name, as in "age (years)"
ROUNDING = 1e-8  # of the largest coefficient: smaller ones are 0 but for rounding


class Coefficient(NamedTuple):
    """The coefficient of one feature, for one class where there are several."""

    feature: str
    of: str  # class; empty where there is one number a row
    scaled: float  # for the feature as it is scaled
    plain: float  # for one unit of the column
    unit: str
    scale: float  # how many units of the column one of the scaled feature is


class Coefficients(ReportSection):
    """The coefficients of a model that is affine in its features, the largest first."""

    def applies(self, run: Run) -> bool:
        withheld = words.private(run.result) and not words.public_part(run.result)
        return is_affine(predictor(run.model)) and not withheld  # the public part has the model

    def plots(self, run: Run) -> Mapping[str, Plot]:
        rows = coefficients(run)[:SHOWN]
        title, height = (
            "Coefficients of the scaled features, the largest first",
            0.7 + 0.22 * len(rows),
        )
        return {"coefficients": Plot(title, height, _bars, (rows,))}

    def chapters(self, run: Run) -> list[Chapter]:
        rows = coefficients(run)
        first, rest = rows[:SHOWN], rows[SHOWN:]
        caption = "Coefficients of the scaled features."
        blocks: list[Block] = [
            Text(_about(run)),
            Row((Figure("coefficients", caption), _table("Coefficients", first))),
        ]
        if rest:
            title = f"The other {len(rest)} coefficients"
            blocks.append(Fold(title, (_table(title, rest),)))
        return [chapter("coefficients", "What the model looks at", *blocks)]


def coefficients(run: Run) -> list[Coefficient]:
    """All coefficients, the largest in scaled units first; intercepts are not among them."""
    matrix, _ = _linear(run)
    noise = np.abs(matrix) <= ROUNDING * np.abs(matrix).max(initial=0.0)
    classes = run.model["classes"] if len(matrix) > 1 else [""]
    rows = [
        Coefficient(feature, str(name), value, value / scale, unit, scale)
        for values, name in zip(np.where(noise, 0.0, matrix).tolist(), classes, strict=True)
        for value, (feature, scale, unit) in zip(values, _features(run), strict=True)
    ]
    return sorted(rows, key=lambda row: -abs(row.scaled))


def _linear(run: Run) -> tuple[Array, Array]:
    """(C, d) coefficients and (C,) intercepts of the scaled features; C is 1 for one number a
    row: what is predicted of no feature at all, and what one of each adds.
    """
    d, classes = len(run.schema.feature_names), run.model["classes"]
    several = targets_of(run.model) == "class"
    model = predictor(run.model).sized(d, len(classes) if several else None)
    rows = np.vstack([np.zeros(d), np.eye(d)])
    said = scores(model, run.w, with_ones(rows) if run.model.get("ones") else rows)
    said = said.reshape(d + 1, -1)
    return (said[1:] - said[0]).T, said[0]


def _features(run: Run) -> Iterator[tuple[str, float, str]]:
    """Every feature: what it is called, how many units of its column one of it is, and the unit."""
    for column in run.schema.columns:
        numeric = isinstance(column, Numeric)
        if numeric:
            yield column.name, column.scale, column.unit or _unit(column.name)
        else:
            yield from ((f"{column.name} = {c}", 1.0, YES) for c in column.categories)
        if column.indicator if numeric else column.missing:
            yield f"{column.name} is missing", 1.0, YES


def _unit(name: str) -> str:
    """The unit in the name of a column."""
    found = UNIT.search(name)
    return found[1].strip() if found else NOTHING


def _about(run: Run) -> str:
    """What a coefficient does to the prediction, and the intercept."""
    matrix, intercepts = _linear(run)
    classes, kind = run.model["classes"], targets_of(run.model)
    raises = "A positive coefficient raises the prediction"
    if kind == "sign":
        raises = f"A positive coefficient speaks for {classes[1]}, a negative one for {classes[0]}"
    elif kind == "class":
        raises = "A positive coefficient speaks for the class beside it"
    text = (
        f"{raises}: by the scaled number for one step of the scaled feature, and by the number per"
        " unit for one unit of the column as it is in the table."
    )
    if run.model["loss"] == "logistic":
        text += " Of a logistic model the exponential is a factor of the odds."
    if len(matrix) == 1 and run.model["intercept"]:
        columns = (c for c in run.schema.columns if isinstance(c, Numeric))
        centres = {c.name: c.centre for c in columns}
        plain = intercepts[0] - sum(
            row.plain * centres.get(row.feature, 0.0) for row in coefficients(run)
        )
        text += (
            f" The intercept is {number(float(intercepts[0]))} with scaled features, and"
            f" {number(float(plain))} with the columns as they are."
        )
    return text


def _table(title: str, rows: Sequence[Coefficient]) -> Table:
    heads = {"feature": "Feature", "of": "Class", "scaled": "Scaled", "plain": "Per unit"}
    heads |= {"unit": "Unit", "scale": "Units in one scaled"}
    if not any(row.of for row in rows):
        del heads["of"]
    if all(row.unit == NOTHING for row in rows):
        del heads["unit"]
    cells = [row._asdict() | {"scale": None if row.unit == YES else row.scale} for row in rows]
    return of_rows(title, cells, heads, {"of": str, "unit": str}, ("of", "unit"))


def _bars(canvas: Canvas, rows: Sequence[Coefficient]) -> None:
    axes = canvas.subplots()
    names = [row.feature + f" → {row.of}" * bool(row.of) for row in rows]
    places, values = named_rows(axes, names), [row.scaled for row in rows]
    axes.barh(places, values, 0.6, color=[BLUE if v > 0 else ORANGE for v in values])
    axes.axvline(0.0, color=GREY, linewidth=0.8)
    axes.set_xlabel("coefficient of the scaled feature")
