"""What training did: to the clients one by one (losses, weights, what an adversary does within
them), to the features (the coefficients with the names and units of the columns), and to the sorted
losses (what each rank weighs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bonafed.data.schema import Numeric
from bonafed.drawing import (
    BLUE,
    DASHED,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    legend,
    named_rows,
    plain_decades,
)
from bonafed.problem.predictors.affine import is_affine, predictor, scores, with_ones
from bonafed.problem.risks.risk import resolve_prior
from bonafed.report import words
from bonafed.report.sections.section import (
    MOST,
    Block,
    Chapter,
    Figure,
    Fold,
    Plot,
    ReportSection,
    Row,
    Text,
    chapter,
)
from bonafed.report.tables import (
    NOTHING,
    Record,
    Result,
    Rows,
    Table,
    capital,
    filled,
    number,
    of_rows,
    own_measures,
    people,
    percent,
    printable,
    size,
    spaced,
    without_rounding,
)
from bonafed.runs.model_file import targets_of
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.arrays import Array
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


# ----------------------------------------------------------------------------------- coefficients

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


# ---------------------------------------------------------------------------------- losses by rank

HEAVIEST = {"row": "Row (from 0)", "loss": "Loss", "weight": "Weight (mean: 1)"}
ABOUT = (
    "The model pays for the losses of the shaded ranks, and the more the taller the shade. Where"
    " its line is above that of the other model, those rows pay for it. These are training rows;"
    " the evaluation above says what holds on new ones."
)


class Ranks(ReportSection):
    """The distribution of the training losses under a spectral risk."""

    def applies(self, run: Run) -> bool:
        return bool(run.result.get("losses"))

    def plots(self, run: Run) -> Mapping[str, Plot]:
        title = "Sorted losses of the training rows, and the weight that each rank has"
        return {"losses": Plot(title, 4.4, _curves, (run.result["losses"],))}

    def chapters(self, run: Run) -> list[Chapter]:
        risk = run.result["risk"]
        inside = " of its client, times the weight of that client."
        inside = "." if words.together(run.result) else inside
        caption = (
            "Every row's training loss, sorted, in groups of five rows or more; below, what its"
            f" rank weighs in the {words.risk_words(risk)}{inside}"
        )
        row = Row((Figure("losses", caption), Text(ABOUT)))
        return [chapter("losses", "Losses by rank", row)]


def heaviest(client: str, rows: Rows) -> Table:
    """The rows of one client that weigh most by their rank; for their owner."""
    title = f"Rows of {client} that weigh most"
    return of_rows(title, rows, HEAVIEST, {"row": str}, None)


def _curves(canvas: Canvas, losses: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw the losses of every model by rank, and below what each rank weighs; the shade is that of
    the first model.
    """
    top, below = canvas.subplots(2, sharex=True, height_ratios=(3, 2))
    styles = zip((BLUE, ORANGE), ("-", DASHED), strict=True)
    for (model, curve), (colour, dash) in zip(losses.items(), styles, strict=False):
        share = 100 * np.concatenate([[0.0], curve["share"]])
        for axes, key in ((top, "loss"), (below, "weight")):
            axes.stairs(
                curve[key],
                share,
                color=colour,
                linestyle=dash,
                baseline=None,
                linewidth=1.6,
                label=printable(spaced(model)),
            )
        if dash == "-":
            below.stairs(curve["weight"], share, color=colour, fill=True, alpha=0.15)
    most = max(max(curve["loss"]) for curve in losses.values())
    if most > 0:  # three decades, and the rest near zero
        top.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(most) - 2), linscale=0.5)
        plain_decades(top.yaxis)
    below.axhline(1.0, color=GREY, linewidth=0.8)
    below.set_ylim(bottom=0)
    top.set(xlim=(0, 100), ylabel="loss")
    below.set(ylabel="weight (mean: 1)", xlabel="share of the rows in %, smallest loss first")
    top.legend(loc="upper left")
