"""The clients one by one, what the ranks of their rows weigh, and what an affine model looks at:
its coefficients with the names and units of the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bonafed.arrays import Array
from bonafed.data.schema import Numeric
from bonafed.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE
from bonafed.problem.predictors.affine import is_affine, predictor, scores, with_ones
from bonafed.problem.risks.risk import resolve_prior
from bonafed.report import blocks, tables, words
from bonafed.report.blocks import MOST, Block, Plot, Text
from bonafed.report.canvas import DASHED, INK, SYMLOG, Canvas
from bonafed.report.tables import NOTHING, Record, Result, Rows, Table, of_rows, percent
from bonafed.runs.model_file import targets_of
from bonafed.runs.sections.section import Run

HEADS = {
    **{"client": "Client", "n": "Rows", "share": "Share of rows", "loss": "Mean loss"},
    **{"worst_loss": "Worst case", "weight": "Client weight q*", "radius": "Radius"},
    **{"limit": "Limit", "measured": "Measured", "slack": "Slack", "price": "Multiplier"},
    **{"flips": "Label flips", "shift": "Feature shift", "active": "Adversary"},
    **{"held_accuracy": "Held-out accuracy", "held_error": "Held-out error"},
    **{"bytes_up": "Sent", "bytes_down": "Received", "note": "Note"},
}
EXPOSED = {
    **{"row": "Row (from 0)", "loss": "Loss", "worst_loss": "Worst case"},
    **{"added": "Added to the risk", "flip": "Label flipped", "moved": "Features moved by"},
}
CELLS = {
    **dict.fromkeys(("share", "weight", "flips", "shift", "held_accuracy"), percent),
    **dict.fromkeys(("bytes_up", "bytes_down"), tables.size),
    **dict.fromkeys(("slack", "price"), tables.without_rounding),
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
OF_OWNERS = "How much of the weight of all rows a client's rows have; ticks: its share of the rows."
TITLE = "Clients in training"
CAPTIONS = {
    "clients": "Mean loss of a client's rows, and the largest mean loss near them.",
    "weights": "q*: the worst client weights for this model. They are largest where the model does"
    " worst.",
    "adversary": "Within a client: whether the worst distribution flips labels or moves features.",
}


def about_clients(run: Run) -> blocks.Section | None:
    """Each client's loss, weight and held-out numbers, and what an adversary does within it."""
    result = run.result
    if words.public_part(result):  # whose ledger lists the clients
        return None
    if words.private(result):
        return blocks.Section([blocks.Chapter("clients", TITLE, [clients(result, PRIVATE)])])
    body: list[Block] = [_figures(run)]
    if len(tables.people(result)) > MOST:
        shown = f"The figures show the {MOST} clients with the largest worst-case loss."
        body.append(Text(shown, soft=True))
    limited = words.constrained(result)
    body.append(clients(result, CONSTRAINED if limited else TRAINED))
    if not words.pooled(result):
        sent = replace(clients(result, ("client", *SENT)), title="Sent and received")
        body.append(blocks.Fold(sent.title, [sent]))
    brief = clients(result, BRIEF_CONSTRAINED if limited else BRIEF, WORST)
    return blocks.Section([blocks.Chapter("clients", TITLE, body)], brief=[brief])


def _figures(run: Run) -> blocks.Row:
    """Losses, weights, and what the adversary spends its budget on; under constraints no losses,
    and weights where not all are given.
    """
    result, captions, plots = run.result, dict(CAPTIONS), {}
    risk, limited = result.get("risk"), words.constrained(result)
    rows = sorted(tables.people(result), key=lambda row: -row["worst_loss"])[:MOST]
    height, name, worst = 1.1 + 0.34 * len(rows), "worst case", "worst-case loss"
    if risk is not None:
        name, worst = risk["name"], f"{risk['name']} of the losses"
        captions["clients"] = f"Mean and {name} of a client's training losses."
    if not limited:
        title = f"Mean loss and {worst} of each client"
        plots["clients"] = Plot(title, height, _losses, (rows, name))
    title, names = "Client weight q* of each client, and its prior", ("q*", "prior")
    if words.together(result):
        title = "Share of the weight of each client, and its share of rows"
        names = ("share of the weight", "share of rows")
        captions["weights"] = OF_OWNERS
    if not limited or run.config.clients.risk != "mean":
        plots["weights"] = Plot(title, height, _weights, (rows, prior_of(run), names))
    if not limited and any(row.get("flips") is not None for row in rows):
        title = "What the adversary spends its budget on"
        plots["adversary"] = Plot(title, height, _adversary, (rows,))
    return blocks.drawn(captions, plots)


def clients(result: Result, keys: Sequence[str], most: int | None = None) -> Table:
    """One row a client, with how the model does on its held-out rows, the first that judge it;
    ``most`` keeps those of largest worst case, and the worst one on held-out rows.
    """
    judged: Record = next(iter(tables.own_measures(result)), {"clients": ()})
    held = {row["client"]: row for row in judged["clients"]}
    rows: list[Record] = []
    for row in tables.people(result):
        there = held.get(row["client"], {})
        rows.append(row | {f"held_{key}": value for key, value in there.items()})
    title, heads, risk = "Clients", {key: HEADS[key] for key in keys}, result.get("risk")
    if most is not None and len(rows) > most:
        title = f"The {most} of {len(rows)} clients with the largest worst case in training"
        rows = sorted(rows, key=lambda row: -row["worst_loss"])
        worst = judged.get("worst_accuracy_client", judged.get("worst_error_client"))
        more = [row for row in rows[most:] if row["client"] == worst]
        rows = rows[:most] + more
        title += ", and the worst on held-out rows" * bool(more)
    if words.constrained(result):  # headings that say more
        heads["worst_loss"] = "Objective's loss"
    elif risk is not None:
        heads["worst_loss"] = tables.capital(risk["name"])
        heads["weight"] = "Share of the weight" if words.together(result) else HEADS["weight"]
    heads = {key: heads[key] for key in keys}
    return of_rows(title, rows, tables.filled(heads, rows), CELLS, TEXTS)


def exposed(client: str, rows: Rows, figures: Record) -> Table | Text:
    """The rows of one client that the adversary makes most of; for their owner. Where none adds to
    the worst case, mass goes far, and gains the same per unit of cost from all rows: the multiplier
    of the radius, by the client's ``figures``.
    """
    mean, worst, radius = (figures.get(key) for key in ("loss", "worst_loss", "radius"))
    if worst is not None and radius and not any(row["added"] for row in rows):
        text = f"No row of {client} adds more than others: its worst case {tables.number(worst)} is"
        text += f" its mean loss {tables.number(mean)} plus the radius {tables.number(radius)}"
        slope = tables.number((worst - mean) / radius)
        return Text(f"{text} times {slope}, the most that moving a row by one adds to its loss.")
    title = f"Rows of {client} that the adversary makes most of"
    return of_rows(title, rows, EXPOSED, {"row": str, "flip": percent}, None)


def prior_of(run: Run) -> dict[str, float]:
    """The centre of the set of client weights by client, where all rows are ranked together the
    owners' shares of them; empty where all client weights are allowed.
    """
    if words.together(run.result):
        return {row["client"]: row["share"] for row in run.result["owners"]}
    if not run.config.clients.centred:
        return {}
    sizes = {row["client"]: float(row["n"]) for row in run.result["clients"]}
    weights = resolve_prior(run.config.clients.get("prior"), np.array([*sizes.values()]), [*sizes])
    return dict(zip(sizes, weights.tolist(), strict=True))


def _losses(canvas: Canvas, rows: Rows, worst: str) -> None:
    axes = canvas.one()
    places = axes.named_rows([row["client"] for row in rows])
    lines = (("loss", "mean loss", BLUE, 0.18), ("worst_loss", worst, ORANGE, -0.18))
    for key, name, colour, above in lines:
        axes.barh(places + above, [row[key] for row in rows], 0.34, color=colour, label=name)
    axes.name(x="loss")
    axes.legend()


def _weights(canvas: Canvas, rows: Rows, prior: Mapping[str, float], names: Sequence[str]) -> None:
    axes = canvas.one()
    places = axes.named_rows([row["client"] for row in rows])
    axes.barh(places, [100 * row["weight"] for row in rows], 0.5, color=PURPLE, label=names[0])
    if prior:
        centre = [100 * prior[row["client"]] for row in rows]
        axes.scatter(centre, places, s=160, marker="|", color=INK, label=names[1], zorder=3)
    axes.name(x="share in %" if names[1] != "prior" else "weight in %")
    axes.legend(last=(names[1],))


def _adversary(canvas: Canvas, rows: Rows) -> None:
    axes = canvas.one()
    places = axes.named_rows([row["client"] for row in rows])
    flips, shift = ([100 * (row[key] or 0.0) for row in rows] for key in ("flips", "shift"))
    axes.barh(places, flips, 0.5, color=ORANGE, label="labels or targets")
    axes.barh(places, shift, 0.5, left=flips, color=GREEN, label="features")
    axes.xaxis.low, axes.xaxis.high = 0.0, 100.0
    axes.name(x="share of its budget in %")
    axes.legend()


# ------------------------------------------------------------------------------------------ ranks

RANKS = {"row": "Row (from 0)", "loss": "Loss", "weight": "Weight (mean: 1)"}
ABOUT_RANKS = (
    "The model pays for the losses of the shaded ranks, and the more the taller the shade. Where"
    " its line is above that of the other model, those rows pay for it. These are training rows;"
    " the evaluation above says what holds on new ones."
)


def about_ranks(run: Run) -> blocks.Section | None:
    """The sorted training losses under a spectral risk, and what each rank weighs in it."""
    if not (losses := run.result.get("losses")):
        return None
    inside = " of its client, times the weight of that client" * (not words.together(run.result))
    caption = (
        "Every row's training loss, sorted, in groups of five rows or more; below, what its"
        f" rank weighs in the {words.risk_words(run.result['risk'])}{inside}."
    )
    title = "Sorted losses of the training rows, and the weight that each rank has"
    figure = blocks.Figure("losses", caption, Plot(title, 4.4, _curves, (losses,)))
    body = [blocks.Row([figure, Text(ABOUT_RANKS)])]
    return blocks.Section([blocks.Chapter("losses", "Losses by rank", body)])


def heaviest(client: str, rows: Rows) -> Table:
    """The rows of one client that weigh most by their rank; for their owner."""
    return of_rows(f"Rows of {client} that weigh most", rows, RANKS, {"row": str}, None)


def _curves(canvas: Canvas, losses: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw the losses of every model by rank, and below what each rank weighs; the shade is that of
    the first model.
    """
    top, below = canvas.two(shares=(3, 2))
    styles = zip((BLUE, ORANGE), ("", DASHED), strict=True)
    for (model, curve), (colour, dash) in zip(losses.items(), styles, strict=False):
        share = 100 * np.concatenate([[0.0], curve["share"]])
        style = {"color": colour, "linestyle": dash, "ends": False}
        name = tables.printable(tables.spaced(model))
        top.stairs(curve["loss"], share, label=name, **style)
        below.stairs(curve["weight"], share, label=name, **style)
        if not dash:
            below.stairs(curve["weight"], share, color=colour, fill=True, alpha=0.15)
    most = max(max(curve["loss"]) for curve in losses.values())
    if most > 0:  # three decades, and the rest near zero
        top.yaxis.kind, top.yaxis.near = SYMLOG, 10.0 ** np.floor(np.log10(most) - 2)
    below.axhline(1.0, color=GREY, linewidth=0.8)
    below.yaxis.low, below.xaxis.low, below.xaxis.high = 0.0, 0.0, 100.0
    top.name(y="loss")
    below.name(y="weight (mean: 1)", x="share of the rows in %, smallest loss first")
    top.legend(corner="upper left")


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


def about_coefficients(run: Run) -> blocks.Section | None:
    """The coefficients of a model that is affine in its features, the largest first."""
    withheld = words.private(run.result) and not words.public_part(run.result)
    if withheld or not is_affine(predictor(run.model)):  # the public part has the model
        return None
    rows = coefficients(run)
    first, rest = rows[:SHOWN], rows[SHOWN:]
    title = "Coefficients of the scaled features, the largest first"
    plot = Plot(title, 0.7 + 0.22 * len(first), _bars, (first,))
    figure = blocks.Figure("coefficients", "Coefficients of the scaled features.", plot)
    body = [Text(_about(run, rows)), blocks.Row([figure, _table("Coefficients", first)])]
    if rest:
        title = f"The other {len(rest)} coefficients"
        body.append(blocks.Fold(title, [_table(title, rest)]))
    return blocks.Section([blocks.Chapter("coefficients", "What the model looks at", body)])


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
    """Every feature: what it is called, how many units of its column one of it is, and the unit,
    which may stand in the name of the column.
    """
    for column in run.schema.columns:
        numeric = isinstance(column, Numeric)
        if numeric:
            named = (found[1].strip() for found in UNIT.finditer(column.name))
            yield column.name, column.scale, column.unit or next(named, NOTHING)
        else:
            yield from ((f"{column.name} = {c}", 1.0, YES) for c in column.categories)
        if column.indicator if numeric else column.missing:
            yield f"{column.name} is missing", 1.0, YES


def _about(run: Run, rows: Sequence[Coefficient]) -> str:
    """What a coefficient does to the prediction, and the intercept."""
    matrix, intercepts = _linear(run)
    no, *_, yes = run.model["classes"] or ("", "")
    raises = {
        "sign": f"A positive coefficient speaks for {yes}, a negative one for {no}",
        "class": "A positive coefficient speaks for the class beside it",
        "real": "A positive coefficient raises the prediction",
    }
    text = (
        f"{raises[targets_of(run.model)]}: by the scaled number for one step of the scaled feature,"
        " and by the number per unit for one unit of the column as it is in the table."
    )
    if (run.result["certificate"] or {}).get("separated") is not None:
        text += " The classes are separated, so that no coefficient says anything of the odds."
    elif run.model["loss"] == "logistic":
        text += " Of a logistic model the exponential is a factor of the odds."
    if len(matrix) == 1 and run.model["intercept"]:
        centres = {c.name: c.centre for c in run.schema.columns if isinstance(c, Numeric)}
        plain = intercepts[0] - sum(row.plain * centres.get(row.feature, 0.0) for row in rows)
        text += (
            f" The intercept is {tables.number(float(intercepts[0]))} with scaled features, and"
            f" {tables.number(float(plain))} with the columns as they are."
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
    axes = canvas.one()
    names = [row.feature + f" → {row.of}" * bool(row.of) for row in rows]
    places, values = axes.named_rows(names), [row.scaled for row in rows]
    axes.barh(places, values, 0.6, color=[BLUE if v > 0 else ORANGE for v in values])
    axes.axvline(0.0, color=GREY, linewidth=0.8)
    axes.name(x="coefficient of the scaled feature")
