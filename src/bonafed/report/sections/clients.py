"""The clients one by one: their losses, their weights, what an adversary does within them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bonafed.drawing import BLUE, GREEN, INK, ORANGE, PURPLE, legend, named_rows
from bonafed.problem.risks.risk import resolve_prior
from bonafed.report import words
from bonafed.report.figures import MOST, Plot
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
from bonafed.report.tables import (
    Record,
    Result,
    Rows,
    Table,
    capital,
    filled,
    of_rows,
    own_measures,
    people,
    percent,
    size,
    without_rounding,
)
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.drawing import Canvas

HEADS = {
    "client": "Client",
    "n": "Rows",
    "share": "Share of rows",
    "loss": "Mean loss",
    "worst_loss": "Worst case",
    "weight": "Client weight q*",
    "radius": "Radius",
    "limit": "Limit",
    "measured": "Measured",
    "slack": "Slack",
    "price": "Multiplier",
    "flips": "Label flips",
    "shift": "Feature shift",
    "active": "Adversary",
    "held_accuracy": "Held-out accuracy",
    "held_error": "Held-out error",
    "bytes_up": "Sent",
    "bytes_down": "Received",
    "note": "Note",
}
EXPOSED = {
    "row": "Row (from 0)",
    "loss": "Loss",
    "worst_loss": "Worst case",
    "added": "Added to the risk",
    "flip": "Label flipped",
    "moved": "Features moved by",
}
CELLS = {
    **dict.fromkeys(("share", "weight", "flips", "shift", "held_accuracy"), percent),
    **dict.fromkeys(("bytes_up", "bytes_down"), size),
    **dict.fromkeys(("slack", "price"), without_rounding),
}
TEXTS = ("client", "active", "note")  # columns of words
SENT = ("bytes_up", "bytes_down")
TRAINED = (
    *("client", "n", "share", "loss", "worst_loss", "weight", "radius"),
    *("flips", "shift", "active", "note"),
)
CONSTRAINED = (
    *("client", "n", "loss", "worst_loss", "weight", "limit", "measured", "slack", "price"),
    "note",
)
PRIVATE = ("client", "n", "loss", "weight", "note")
BRIEF = ("client", "n", "loss", "worst_loss", "weight", "held_accuracy", "held_error")
BRIEF_CONSTRAINED = (
    *("client", "n", "loss", "limit", "measured", "slack", "price"),
    *("held_accuracy", "held_error"),
)
WORST = 3  # clients that a terminal shows


class Clients(ReportSection):
    """Each client's loss, weight and held-out numbers."""

    def applies(self, run: Run) -> bool:
        return not words.public_part(run.result)  # whose ledger lists the clients

    def plots(self, run: Run) -> Mapping[str, Plot]:
        result = run.result
        if words.private(result):
            return {}
        risk, everybody = result.get("risk"), people(result)
        rows = sorted(everybody, key=lambda row: -row["worst_loss"])[:MOST]
        height = 1.1 + 0.34 * len(rows)
        drawn = {}
        if not words.constrained(result):
            name, worst = "worst case", "worst-case loss"
            if risk is not None:
                name, worst = risk["name"], f"{risk['name']} of the losses"
            title = f"Mean loss and {worst} of each client"
            drawn["clients"] = Plot(title, height, _losses, (rows, name))
        if not words.constrained(result) or run.config.clients.risk != "mean":
            title, names = "Client weight q* of each client, and its prior", ("q*", "prior")
            if words.together(result):
                title = "Share of the weight of each client, and its share of rows"
                names = ("share of the weight", "share of rows")
            prior = prior_of(run)
            drawn["weights"] = Plot(title, height, _weights, (rows, prior, names))
        if not words.constrained(result) and any(row.get("flips") is not None for row in rows):
            title = "What the adversary spends its budget on"
            drawn["adversary"] = Plot(title, height, _adversary, (rows,))
        return drawn

    def chapters(self, run: Run) -> list[Chapter]:
        result = run.result
        blocks: list[Block] = [] if words.private(result) else [Row(_figures(result))]
        if len(people(result)) > MOST and blocks:
            shown = f"The figures show the {MOST} clients with the largest worst-case loss."
            blocks.append(Text(shown, soft=True))
        heads = CONSTRAINED if words.constrained(result) else TRAINED
        heads = PRIVATE if words.private(result) else heads
        blocks.append(clients(result, heads))
        if not words.private(result) and not words.pooled(result):
            sent = replace(clients(result, ("client", *SENT)), title="Sent and received")
            blocks.append(Fold(sent.title, (sent,)))
        return [chapter("clients", "Clients in training", *blocks)]

    def brief(self, run: Run) -> list[Block]:
        result = run.result
        heads = BRIEF_CONSTRAINED if words.constrained(result) else BRIEF
        return [] if words.private(result) else [clients(result, heads, WORST)]


def _figures(result: Result) -> tuple[Figure, ...]:
    """The places of the figures with their captions."""
    risk = result.get("risk")
    losses = "Mean loss of a client's rows, and the largest mean loss near them."
    if risk is not None:
        losses = f"Mean and {risk['name']} of a client's training losses."
    weights = (
        "q*: the worst client weights for this model. They are largest where the model does worst."
    )
    if words.together(result):
        weights = (
            "How much of the weight of all rows a client's rows have; ticks: its share of the rows."
        )
    adversary = "Within a client: whether the worst distribution flips labels or moves features."
    return Figure("clients", losses), Figure("weights", weights), Figure("adversary", adversary)


# ----------------------------------------------------------------------------------------- tables


def clients(result: Result, heads: Sequence[str], most: int | None = None) -> Table:
    """One row a client, with how the model does on its held-out rows; ``most`` keeps those of
    largest worst case.
    """
    rows, title = _with_held_out(result), "Clients"
    if most is not None and len(rows) > most:
        title = f"The {most} of {len(rows)} clients with the largest worst case"
        rows = sorted(rows, key=lambda row: -row["worst_loss"])[:most]
    names = HEADS | _heads(result)
    return of_rows(title, rows, filled({key: names[key] for key in heads}, rows), CELLS, TEXTS)


def _with_held_out(result: Result) -> Rows:
    """The rows of the clients, with the first evaluation of the model on held-out rows."""
    none: Record = {"clients": ()}
    judged = next(iter(own_measures(result)), none)
    held = {row["client"]: row for row in judged["clients"]}
    return [
        row | {f"held_{key}": value for key, value in held.get(row["client"], {}).items()}
        for row in people(result)
    ]


def _heads(result: Result) -> dict[str, str]:
    """Headings that say more, where there are constraints or a spectral risk."""
    risk = result.get("risk")
    if words.constrained(result):
        return {"worst_loss": "Objective's loss"}
    if risk is None:
        return {}
    weight = {"weight": "Share of the weight"} if words.together(result) else {}
    return {"worst_loss": capital(risk["name"])} | weight


def exposed(client: str, rows: Rows) -> Table:
    """The rows of one client that the adversary makes most of; for their owner."""
    title = f"Rows of {client} that the adversary makes most of"
    return of_rows(title, rows, EXPOSED, {"row": str, "flip": percent}, None)


# ---------------------------------------------------------------------------------------- figures


def prior_of(run: Run) -> dict[str, float]:
    """The centre of the set of client weights by client, where all rows are ranked together the
    owners' shares of them; empty where all client weights are allowed.
    """
    if words.together(run.result):
        return {row["client"]: row["share"] for row in run.result["owners"]}
    if not run.config.clients.centred:
        return {}
    sizes = {row["client"]: float(row["n"]) for row in run.result["clients"]}
    prior = run.config.clients.get("prior")
    weights = resolve_prior(prior, np.array([*sizes.values()]), [*sizes])
    return dict(zip(sizes, weights.tolist(), strict=True))


def _names(rows: Rows) -> list[str]:
    return [row["client"] for row in rows]


def _losses(canvas: Canvas, rows: Rows, worst: str) -> None:
    axes = canvas.subplots()
    places = named_rows(axes, _names(rows))
    for key, name, colour, above in (
        ("loss", "mean loss", BLUE, 0.18),
        ("worst_loss", worst, ORANGE, -0.18),
    ):
        axes.barh(places + above, [row[key] for row in rows], 0.34, color=colour, label=name)
    axes.set_xlabel("loss")
    legend(axes)


def _weights(
    canvas: Canvas, rows: Rows, prior: Mapping[str, float], names: tuple[str, str]
) -> None:
    axes = canvas.subplots()
    places = named_rows(axes, _names(rows))
    axes.barh(places, [100 * row["weight"] for row in rows], 0.5, color=PURPLE, label=names[0])
    if prior:
        centre = [100 * prior[row["client"]] for row in rows]
        axes.scatter(
            centre, places, marker="|", s=160, color=INK, linewidths=1.6, label=names[1], zorder=3
        )
    axes.set_xlabel("share in %" if names[1] != "prior" else "weight in %")
    legend(axes, last=(names[1],))


def _adversary(canvas: Canvas, rows: Rows) -> None:
    axes = canvas.subplots()
    places = named_rows(axes, _names(rows))
    flips, shift = (
        np.array([100 * (row[key] or 0.0) for row in rows]) for key in ("flips", "shift")
    )
    axes.barh(places, flips, 0.5, color=ORANGE, label="labels or targets")
    axes.barh(places, shift, 0.5, left=flips, color=GREEN, label="features")
    axes.set(xlim=(0, 100), xlabel="share of its budget in %")
    legend(axes)
