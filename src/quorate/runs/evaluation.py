"""A model judged on rows that it was not trained on: losses, accuracies, and the worst client."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import model_validator

from quorate.arrays import Array
from quorate.data.federation import Federation
from quorate.problem.prediction import scores
from quorate.problem.problem import Problem
from quorate.problem.risks.ranks import by_rank
from quorate.runs.constraint_metrics import summary
from quorate.runs.files import Record
from quorate.runs.form import (
    Count,
    Extended,
    Form,
    NonNegative,
    Number,
    Share,
    Whole,
    at_least,
    optional,
)
from quorate.runs.rank_metrics import fairness, risk_of


class ClientMeasureForm(Form):
    """How a model does at one client."""

    client: str
    n: Count
    loss: Number
    accuracy: Share = optional()
    error: NonNegative = optional()
    risk: Number = optional()


class RatesForm(Form):
    """How often a client's rows are predicted positive, in all, rightly and wrongly; null where
    there are none to count.
    """

    selected: Share | None
    tpr: Share | None
    fpr: Share | None


class FairnessForm(Form):
    """Fairness between the clients, or nothing where it has no meaning."""

    TOGETHER: ClassVar = (("privileged", "SPD", "DI", "EOD", "AOD", "TI", "FNRD", "rates"),)

    privileged: str = optional()
    SPD: Extended | None = optional()
    DI: Extended | None = optional()
    EOD: Extended | None = optional()
    AOD: Extended | None = optional()
    TI: Extended | None = optional()
    FNRD: Extended | None = optional()
    rates: dict[str, RatesForm] = optional()


class MeasureForm(Form):
    """How a model does on one set of rows, see `measure`."""

    TOGETHER: ClassVar = (
        ("accuracy", "worst_accuracy", "worst_accuracy_client"),
        ("error", "worst_error", "worst_error_client"),
        ("asked", "met", "excess", "excess_owner"),
    )

    set: str
    model: str
    n: Count
    loss: Number
    worst_loss: Number
    worst_loss_client: str
    accuracy: Share = optional()
    worst_accuracy: Share = optional()
    worst_accuracy_client: str = optional()
    error: NonNegative = optional()
    worst_error: NonNegative = optional()
    worst_error_client: str = optional()
    clients: Annotated[list[ClientMeasureForm], at_least(1)]
    risk: Number = optional()
    fairness: FairnessForm = optional()
    asked: Count = optional()
    met: Whole = optional()
    excess: Extended = optional()
    excess_owner: str = optional()

    @model_validator(mode="after")
    def _clients_are_judged_alike(self) -> MeasureForm:
        keys = {"accuracy", "error", "risk"}
        alike = {frozenset(each.model_fields_set & keys) for each in (self, *self.clients)}
        if len(alike) > 1 or len(keys & self.model_fields_set - {"risk"}) != 1:
            raise ValueError("accuracy or error, and risk, of the set and of every client alike")
        return self


def rows_of(problem: Problem, w: Array, fed: Federation) -> list[tuple[Array, Array, Array]]:
    """For every client the loss of each row, its merit (1 or 0, right or wrong; or minus the
    absolute error), and y.
    """
    rows = []
    for X, y in zip(fed.X, fed.y, strict=True):
        prediction = scores(problem.predictor, w, X)
        if problem.loss.targets == "class":
            coded = np.searchsorted(fed.classes, y).astype(float)  # type: ignore[arg-type]
            merit = (prediction.argmax(1) == coded).astype(float)
        elif problem.loss.targets == "sign":
            coded = np.where(y == fed.classes[1], 1.0, -1.0)  # type: ignore[index]
            merit = (np.where(prediction > 0, 1.0, -1.0) == coded).astype(float)
        else:
            coded = y.astype(float)
            merit = -np.abs(prediction - coded)
        rows.append((problem.loss.value(prediction, coded), merit, coded))
    return rows


def losses_of(problem: Problem, w: Array, fed: Federation) -> list[Array]:
    """The losses of every client's rows."""
    return [loss for loss, *_ in rows_of(problem, w, fed)]


def measure(problem: Problem, w: Array, fed: Federation, trained: int | None = None) -> Record:
    """Mean loss and accuracy (or mean absolute error) over all rows, and those of the worst client.

    With a risk by rank also that risk of the losses, and for two classes the fairness between
    clients; ``trained`` is the number of rows that a risk of counted ranks was stated for.
    """
    rows = rows_of(problem, w, fed)
    name, sign = ("error", -1.0) if problem.loss.targets == "real" else ("accuracy", 1.0)
    clients = [
        {"client": c, "n": len(merit), "loss": float(loss.mean()), name: float(sign * merit.mean())}
        for c, (loss, merit, _) in zip(fed.clients, rows, strict=True)
    ]
    worst = max(clients, key=lambda row: row["loss"])
    least = min(clients, key=lambda row: sign * row[name])
    numbers = {
        "n": int(fed.sizes.sum()),
        "loss": float(np.concatenate([loss for loss, *_ in rows]).mean()),
        "worst_loss": worst["loss"],
        "worst_loss_client": worst["client"],
        name: float(sign * np.concatenate([merit for _, merit, _ in rows]).mean()),
        f"worst_{name}": least[name],
        f"worst_{name}_client": least["client"],
        "clients": clients,
    }
    return numbers | _by_rank(problem, rows, fed, clients, trained) | summary(problem, w, fed)


def _by_rank(
    problem: Problem,
    rows: list[tuple[Array, Array, Array]],
    fed: Federation,
    clients: list[Record],
    n: int | None,
) -> Record:
    """What `measure` adds for a risk by rank; the clients get their own risks."""
    risk = problem.over_samples
    if not by_rank(risk):
        return {}
    for client, (loss, *_) in zip(clients, rows, strict=True):
        client["risk"] = risk_of(risk, loss, n)
    numbers: Record = {"risk": risk_of(risk, np.concatenate([loss for loss, *_ in rows]), n)}
    if problem.loss.targets == "sign":
        truth = [y for *_, y in rows]
        chosen = [np.where(merit > 0, y, -y) for _, merit, y in rows]
        numbers["fairness"] = fairness(truth, chosen, fed.names)
    return numbers
