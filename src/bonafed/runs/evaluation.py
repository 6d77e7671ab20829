"""A model judged on rows that it was not trained on: losses, figures that people use, and the
worst client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.measures import figures_of, small
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import Loss, expected
from bonafed.problem.predictors.affine import scores
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.runs.constraint_metrics import summary
from bonafed.runs.files import Record
from bonafed.runs.form import (
    FAR,
    Count,
    Extended,
    Form,
    NonNegative,
    Number,
    Share,
    Whole,
    at_least,
    optional,
    shown,
)
from bonafed.runs.rank_metrics import fairness, risk_of
from bonafed.solution.predictions import drawn, figures

Interval = Annotated[list[Share], at_least(2), Field(max_length=2)]
Corner = Annotated[list[Share], at_least(2), Field(max_length=2)]
Bin = Annotated[list[NonNegative], at_least(3), Field(max_length=3)]
POINTS, CLIENT_POINTS = 101, 21  # of the ROC curve of all rows, and of a client's


class ConfusionForm(Form):
    """Rows by truth and prediction."""

    tp: Whole
    fp: Whole
    fn: Whole
    tn: Whole


class CurvesForm(Form):
    """What is drawn of the main model, see `bonafed.measures.curves`."""

    roc: list[Corner]
    reliability: list[Bin]


class JudgedForm(Form):
    """The figures of `bonafed.measures` for a set of rows, or for a client's, or none of them."""

    model_config = ConfigDict(extra="allow")

    n: Count
    loss: Number
    accuracy: Share = optional()
    error: NonNegative = optional()
    risk: Number = optional()
    small: bool = optional()
    positives: Whole = optional()
    counts: list[Whole] = optional()
    recalls: list[Share | None] = optional()
    precisions: list[Share | None] = optional()
    confusion: ConfusionForm | list[list[Whole]] = optional()
    interval: dict[str, Interval] = optional()
    curves: CurvesForm = optional()

    @model_validator(mode="after")
    def _figures_are_known_and_in_their_ranges(self) -> JudgedForm:
        known = {figure.key: figure for figure in figures_of()}
        for key, value in (self.model_extra or {}).items():
            if key not in known:
                raise ValueError(f"no key {shown(key)}")
            low, high = max(known[key].least, -FAR), min(known[key].most, FAR)
            if value is not None and not (type(value) in (int, float) and low <= value <= high):
                raise ValueError(f"{key} from {low:g} to {high:g}, not {shown(value)}")
        return self


class ClientMeasureForm(JudgedForm):
    """How a model does at one client; ``figures_of`` another model where a site tells only those,
    ``merged`` where it counts a class of few predictions as another one.
    """

    client: str
    figures_of: str = optional()
    merged: bool = optional()


class RatesForm(Form):
    """How often a client's rows are predicted positive, in all, rightly and wrongly; null where
    there are none to count.
    """

    selected: Share | None
    tpr: Share | None
    fpr: Share | None


class FairnessForm(Form):
    """Fairness between the clients, or nothing where it has no meaning."""

    privileged: str = optional()
    SPD: Extended | None = optional()
    DI: Extended | None = optional()
    EOD: Extended | None = optional()
    AOD: Extended | None = optional()
    TI: Extended | None = optional()
    FNRD: Extended | None = optional()
    rates: dict[str, RatesForm] = optional()


class MeasureForm(JudgedForm):
    """How a model does on one set of rows, see `measure`."""

    set: str
    model: str
    worst_loss: Number
    worst_loss_client: str
    worst_accuracy: Share = optional()
    worst_accuracy_client: str = optional()
    worst_error: NonNegative = optional()
    worst_error_client: str = optional()
    clients: Annotated[list[ClientMeasureForm], at_least(1)]
    fairness: FairnessForm = optional()
    asked: Count = optional()
    met: Whole = optional()
    excess: Extended = optional()
    excess_owner: str = optional()


class Judged(NamedTuple):
    """The rows of a client under a model: the loss of each, its merit (1 or 0, right or wrong; or
    minus the absolute error), y as the loss has it, and the prediction.
    """

    loss: Array
    merit: Array
    y: Array
    prediction: Array


def rows_of(problem: Problem, w: Array, fed: Federation) -> list[Judged]:
    """How a model does on every client's rows."""
    rows = []
    for X, y in zip(fed.X, fed.y, strict=True):
        if problem.loss.targets == "class":
            coded = (y[:, None] == np.asarray(fed.classes)).argmax(1).astype(float)
        elif problem.loss.targets == "sign":
            coded = np.where(y == fed.classes[1], 1.0, -1.0)  # type: ignore[index]
        else:
            coded = y.astype(float)
        rows.append(judged(problem.loss, scores(problem.predictor, w, X), coded))
    return rows


def judged(loss: Loss, prediction: Array, coded: Array) -> Judged:
    """How predictions do on rows whose targets are coded as the loss has them."""
    if loss.targets == "class":
        merit = (prediction.argmax(1) == coded).astype(float)
    elif loss.targets == "sign":
        merit = (np.where(prediction > 0, 1.0, -1.0) == coded).astype(float)
    else:
        merit = -np.abs(expected(loss, prediction) - coded)
    return Judged(loss.value(prediction, coded), merit, coded, prediction)


def losses_of(problem: Problem, w: Array, fed: Federation) -> list[Array]:
    """The losses of every client's rows."""
    return [rows.loss for rows in rows_of(problem, w, fed)]


def together(rows: Sequence[Judged]) -> Judged:
    """The rows of all clients."""
    return Judged(*map(np.concatenate, zip(*rows, strict=True)))


def measure(problem: Problem, w: Array, fed: Federation, trained: int | None = None) -> Record:
    """Mean loss and accuracy (or mean absolute error) over all rows, and those of the worst client.

    With a risk by rank also that risk of the losses, and for two classes the fairness between
    clients; ``trained`` is the number of rows that a risk of counted ranks was stated for.
    """
    return _measure(problem, w, fed, rows_of(problem, w, fed), trained)


def judge(
    problem: Problem,
    w: Array,
    fed: Federation,
    trained: int | None = None,
    calibration: Sigmoid | None = None,
    curves: bool = False,
) -> Record:
    """What `measure` states, with the figures of `bonafed.measures` over all rows and for every
    client, which says whether it is small; ``curves`` adds what is drawn of two classes, for all
    rows and clients that are not small.
    """
    rows = rows_of(problem, w, fed)
    numbers = _measure(problem, w, fed, rows, trained)
    for record, part in zip((numbers, *numbers["clients"]), (together(rows), *rows), strict=True):
        judged = figures(problem.loss, part.prediction, part.y, calibration)
        record |= {**judged, "small": small(judged)}
        if curves and (record is numbers or not record["small"]):
            points = CLIENT_POINTS if record is not numbers else POINTS
            lines = drawn(problem.loss, part.prediction, part.y, calibration, points)
            record |= {} if lines is None else {"curves": lines}
    return numbers


def _measure(
    problem: Problem, w: Array, fed: Federation, rows: list[Judged], trained: int | None
) -> Record:
    name, sign = merit_of(problem.loss)
    clients = [
        {"client": c, "n": len(row.merit), "loss": float(row.loss.mean())}
        | {name: float(sign * row.merit.mean())}
        for c, row in zip(fed.clients, rows, strict=True)
    ]
    whole = together(rows)
    numbers = {
        "n": int(fed.sizes.sum()),
        "loss": float(whole.loss.mean()),
        name: float(sign * whole.merit.mean()),
        "clients": clients,
    }
    numbers |= worst_of(problem.loss, clients)
    return numbers | _by_rank(problem, rows, fed, clients, trained) | summary(problem, w, fed)


def merit_of(loss: Loss) -> tuple[str, float]:
    """What the merit of rows is called, and the sign that makes a larger one better."""
    return ("error", -1.0) if loss.targets == "real" else ("accuracy", 1.0)


def worst_of(loss: Loss, clients: Sequence[Record]) -> Record:
    """The clients at which a model does worst, by loss and by merit."""
    name, sign = merit_of(loss)
    worst = max(clients, key=lambda row: row["loss"])
    least = min(clients, key=lambda row: sign * row[name])
    return {
        "worst_loss": worst["loss"],
        "worst_loss_client": worst["client"],
        f"worst_{name}": least[name],
        f"worst_{name}_client": least["client"],
    }


def _by_rank(
    problem: Problem, rows: list[Judged], fed: Federation, clients: list[Record], n: int | None
) -> Record:
    """What `measure` adds for a risk by rank; the clients get their own risks."""
    risk = problem.over_losses
    if not by_rank(risk):
        return {}
    for client, row in zip(clients, rows, strict=True):
        client["risk"] = risk_of(risk, row.loss, n)
    numbers: Record = {"risk": risk_of(risk, together(rows).loss, n)}
    if problem.loss.targets == "sign":
        chosen = [np.where(row.merit > 0, row.y, -row.y) for row in rows]
        numbers["fairness"] = fairness([row.y for row in rows], chosen, fed.names)
    return numbers
