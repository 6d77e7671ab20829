"""Constraints in a report: what is asked of whom, what is measured, what a limit costs, and what
holds on new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.arrays import Array
from bonafed.drawing import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    SAND,
    legend,
    named_rows,
    whole_numbers,
)
from bonafed.report import words
from bonafed.report.sections.section import MOST as DRAWN
from bonafed.report.sections.section import (
    Block,
    Chapter,
    Fact,
    Figure,
    Heading,
    Plot,
    ReportSection,
    Row,
    Text,
    chapter,
    texts,
)
from bonafed.report.tables import (
    Record,
    Result,
    Rows,
    Table,
    Way,
    number,
    of_rows,
    percent,
    table,
    without_rounding,
)
from bonafed.runs.constraint_metrics import TRAINING
from bonafed.runs.observers import VIOLATION
from bonafed.runs.run import Run
from bonafed.runs.splits import HELD_OUT

if TYPE_CHECKING:
    from bonafed.drawing import Canvas

MOST = 60  # rows of a table: those with the smallest slack
NEAR = 1e-3  # relative gap up to which a model counts as near the optimum
VIOLATED = (  # up to, in words, colour
    (1e-6, "met", GREEN),
    (1e-3, "by ≤ 0.001", SAND),
    (1e-1, "≤ 0.1", ORANGE),
    (np.inf, "more", RED),
)
GROUPS = {
    "model": "Model",
    "group": "Group",
    "rows": "Rows",
    "selected": "Predicted positive",
    "tpr": "True positives",
    "fpr": "False positives",
    "accuracy": "Accuracy",
}
MEASURED = (
    "Measured is what the limit bounds: a mean loss, a mean score, a difference of such means. The"
    " rate beside it is the same of the predictions: the share that is wrong, or that is predicted"
    " positive. A limit does not bound it."
)
IMPOSSIBLE = (
    "No model meets all of these; the one below violates them least, and is not recommended."
)
KEPT = (
    "Every owner's tightest constraint; right of the line it is violated. What is guaranteed for"
    " the training rows need not hold on others."
)


class Constraints(ReportSection):
    """Which constraints are met, on the training rows and on new ones, and their multipliers."""

    def applies(self, run: Run) -> bool:
        return words.constrained(run.result)

    def facts(self, run: Run) -> list[Fact]:
        rows = run.result["constraints"]
        met = sum(row["met"] for row in rows)
        mood = "good" if met == len(rows) else "warn"
        fact = Fact(f"{met} of {len(rows)}", "constraints met on the training rows", mood)
        return [fact] if rows else []

    def plots(self, run: Run) -> Mapping[str, Plot]:
        drawn = {}
        names, broken = violations(run.result, run.history)
        if len(names) and broken.shape[0] > 1:
            title = "By how much every client violates its constraints after each round"
            drawn["bands"] = Plot(title, _height(names), _violated, (names, broken))
        rows = tight(run.result["constraints"])
        owners = [*dict.fromkeys(row["owner"] for row in rows)][:DRAWN]
        if owners:
            title = "How far every owner's tightest constraint is from its limit, by model"
            drawn["kept"] = Plot(title, _height(owners), _kept, (run.result, owners))
        return drawn

    def chapters(self, run: Run) -> list[Chapter]:
        result = run.result
        rows = result["constraints"]
        if not rows:
            nothing = Text("None: only one class is in the objective.")
            return [chapter("constraints", "Constraints", nothing)]
        blocks: list[Block] = [
            Text(IMPOSSIBLE if words.infeasible(result) else MEASURED),
            training(result),
        ]
        if len(rows) > MOST:
            shown = f"The {MOST} of {len(rows)} with the smallest slack; result.json has all."
            blocks.append(Text(shown, soft=True))
        bands = "Every client's constraints after each round, by their largest violation."
        blocks += [
            Row((Figure("kept", KEPT), Figure("bands", bands))),
            Heading("Shadow prices"),
            *texts(shadow_prices(result)),
            *new_rows(result),
            *groups(result),
        ]
        return [chapter("constraints", "Constraints", *blocks)]


def shadow_prices(result: Result) -> list[str]:
    """What relaxing the limits would gain, as far as the certificate bears it out."""
    if result["prices"]:
        return list(result["prices"])
    if words.infeasible(result):
        return [
            "Where no model is feasible there are no shadow prices: the column says how the proof"
            " weighs each constraint."
        ]
    met = all(row["met"] for row in result["constraints"])
    if met and (result["certificate"]["relative_gap"] or 0.0) <= NEAR:
        return [
            "No limit has a shadow price: relaxing any of them a little does not lower the"
            " objective."
        ]
    return [
        "No shadow prices are stated: the model is not proven near the optimum, and the multipliers"
        " may be far off."
    ]


# ----------------------------------------------------------------------------------------- tables


def training(result: Result) -> Table:
    """Every constraint on the training rows with its multiplier, beside another model."""
    proof = words.infeasible(result)

    def multiplier(row: Record) -> tuple[str, str]:
        cell = percent(row["weight"]) if proof else without_rounding(row["price"])
        return without_rounding(row["slack"]), cell

    other = _other(result, TRAINING)
    heads = ("Slack", "Weight in the proof" if proof else "Multiplier")
    rows = tight(result["constraints"])
    return _table("Constraints on the training rows", rows, other, heads, multiplier)


def new_rows(result: Result) -> list[Table]:
    """The constraints on every other set of rows, beside another model."""
    parts = [part for part in result["kept"] if part["model"] == result["model"] and part["rows"]]
    return [
        _table(f"Constraints on {part['set']}", tight(part["rows"]), _other(result, part["set"]))
        for part in parts
        if part["set"] != TRAINING
    ]


def _table(
    title: str,
    rows: Rows,
    other: Record | None,
    heads: Sequence[str] = (),
    cells: Callable[[Record], Sequence[str]] = lambda row: (),
) -> Table:
    """One row a constraint: limit, measured value, the further ``cells``, whether it is met, its
    rate, and the same numbers of the other model.
    """
    beside = {(row["owner"], row["constraint"]): row for row in other["rows"]} if other else {}
    rated = any(row["rate"] is not None for row in rows)
    columns = ["Owner", "Constraint", "Limit", "Measured", *heads, "Met", *["Rate"] * rated]
    if other:
        name = other["model"]
        columns += [f"{name}: measured", *[f"{name}: rate"] * rated]
    lines = []
    for row in rows:
        line = [row["owner"], row["constraint"], number(row["limit"]), number(row["measured"])]
        line += [*cells(row), "yes" if row["met"] else "no", *[percent(row["rate"])] * rated]
        if other:
            there = beside.get((row["owner"], row["constraint"]), {})
            line += [number(there.get("measured")), *[percent(there.get("rate"))] * rated]
        lines.append(line)
    return table(title, columns, lines, (0, 1, 4 + len(heads)), long=(1,))


def tight(rows: Rows) -> Rows:
    """The rows with the smallest slack, in their order."""
    keep = sorted(range(len(rows)), key=lambda k: rows[k]["slack"])[:MOST]
    return [rows[k] for k in sorted(keep)]


def _other(result: Result, name: str) -> Record | None:
    """The constraints of the first other model on a set."""
    parts = (part for part in result["kept"] if part["set"] == name)
    return next((part for part in parts if part["model"] != result["model"]), None)


def groups(result: Result) -> list[Table]:
    """How often every group is predicted positive, rightly and wrongly, by set and model."""
    tables = {}
    for row in result["groups"]:
        tables.setdefault((row["set"], row["column"]), []).append(row)
    rates: dict[str, Way] = dict.fromkeys(("selected", "tpr", "fpr", "accuracy"), percent)
    return [
        of_rows(
            f"Groups of {column} on {name}", rows, GROUPS | {"group": column}, rates, ("group",)
        )
        for (name, column), rows in tables.items()
    ]


# ---------------------------------------------------------------------------------------- figures


def _height(names: Sequence[str]) -> float:
    return 1.5 + 0.26 * len(names)


def violations(result: Result, history: Rows) -> tuple[list[str], Array]:
    """Names (n,) and violations (rounds, n) of the clients that violate their constraints most over
    the run.
    """
    clients = [row["client"] for row in result["clients"]]
    owners = {row["owner"] for row in result["constraints"]}
    rows = [row.get(VIOLATION) or () for row in history]
    if not owners & {*clients} or any(len(row) != len(clients) for row in rows):
        return [], np.zeros((0, 0))
    broken = np.array([[np.nan if v is None else v for v in row] for row in rows], dtype=float)
    total = np.nansum(np.log10(np.maximum(np.nan_to_num(broken), 1e-9)), 0)
    most = sorted(np.argsort(-total, kind="stable")[:DRAWN].tolist())
    return [clients[k] for k in most], broken[:, most]


def _violated(canvas: Canvas, names: Sequence[str], broken: Array) -> None:
    """Draw one band a client; neighbouring rounds of one colour are joined."""
    axes = canvas.subplots()
    limits = np.array([most for most, *_ in VIOLATED])
    for y, values in zip(named_rows(axes, names), broken.T, strict=True):
        kind = np.where(np.isfinite(values), np.searchsorted(limits, np.nan_to_num(values)), -1)
        cuts = np.flatnonzero(np.diff(kind)) + 1
        for rounds in np.split(np.arange(len(kind)), cuts):
            k = kind[rounds[0]]
            if k >= 0:
                axes.broken_barh(
                    [(rounds[0] + 0.5, len(rounds))],
                    (y - 0.36, 0.72),
                    color=VIOLATED[k][2],
                    linewidth=0,
                )
    for _, name, colour in VIOLATED:
        axes.barh(0, 0, color=colour, label=name)
    axes.grid(visible=False)
    axes.set_xlim(0.5, len(broken) + 0.5)
    whole_numbers(axes.xaxis)
    axes.set_xlabel("round")
    legend(axes)


def _kept(canvas: Canvas, result: Result, owners: Sequence[str]) -> None:
    """Draw the measured value minus the limit of every owner's tightest constraint: dots right of
    the line are violations.
    """
    axes = canvas.subplots()
    places = named_rows(axes, owners)
    marks = {
        (result["model"], TRAINING): (TRAINING, BLUE, "o", 4),
        (result["model"], HELD_OUT): (HELD_OUT, ORANGE, "D", 3),
    }
    others = (part["model"] for part in result["kept"] if part["model"] != result["model"])
    if (first := next(others, None)) is not None:
        marks[first, TRAINING] = (first, GREY, "s", 2)
    for part in result["kept"]:
        over = {}
        for row in part["rows"]:
            over[row["owner"]] = max(-row["slack"], over.get(row["owner"], -np.inf))
        dots = [(over[o], y) for o, y in zip(owners, places, strict=True) if o in over]
        mark = marks.get((part["model"], part["set"]))
        if mark is not None and dots:
            name, colour, shape, above = mark
            axes.scatter(
                *np.array(dots).T, s=26, color=colour, marker=shape, label=name, zorder=above
            )
    axes.axvline(0.0, color=INK, linewidth=1)
    axes.set_xlabel("measured − limit (right of the line: violated)")
    legend(axes)
