"""Constraints in a report: what is asked of whom, what is measured, what a limit costs, and what
holds on new rows.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bonafed.arrays import Array
from bonafed.drawing import BLUE, GREEN, GREY, ORANGE, RED, SAND
from bonafed.report import blocks, tables, words
from bonafed.report.blocks import Block, Chapter, Fact, Plot, Row, Section, Text, drawn, texts
from bonafed.report.canvas import INK, Canvas
from bonafed.report.tables import Result, Rows, Table, Way, percent
from bonafed.runs.evaluation import TRAINING
from bonafed.runs.sections.section import Run
from bonafed.runs.splits import HELD_OUT
from bonafed.runs.training import VIOLATION
from bonafed.text import first_true

MOST = 60  # rows of a table: those with the smallest slack
NEAR = 1e-3  # relative gap up to which a model counts as near the optimum
VIOLATED = (  # up to, in words, colour
    (1e-6, "met", GREEN),
    (1e-3, "by ≤ 0.001", SAND),
    (1e-1, "≤ 0.1", ORANGE),
    (np.inf, "more", RED),
)
GROUPS = {
    **{"model": "Model", "group": "Group", "rows": "Rows", "selected": "Predicted positive"},
    **{"tpr": "True positives", "fpr": "False positives", "accuracy": "Accuracy"},
}
MEASURED = (
    "Measured is what the limit bounds: a mean loss, a mean score, a difference of such means. The"
    " rate beside it is the same of the predictions: the share that is wrong, or that is predicted"
    " positive. A limit does not bound it."
)
IMPOSSIBLE = (
    "No model meets all of these; the one below violates them least, and is not recommended."
)
WAYS: dict[str, Way] = {
    **dict.fromkeys(("selected", "tpr", "fpr", "accuracy", "rate", "other rate"), percent),
    **dict.fromkeys(("slack", "price"), tables.without_rounding),
    "weight": percent,
}
CAPTIONS = {
    "kept": "Every owner's tightest constraint; right of the line it is violated. What is"
    " guaranteed for the training rows need not hold on others.",
    "bands": "Every client's constraints after each round, by their largest violation.",
}


def about_constraints(run: Run) -> Section | None:
    """Which constraints are met, on the training rows and on new ones, and their multipliers."""
    result = run.result
    if not words.constrained(result):
        return None
    if not (rows := result["constraints"]):
        nothing = Text("None: only one class is in the objective.")
        return Section([Chapter("constraints", "Constraints", [nothing])])
    first, *others = kept(result)
    body: list[Block] = [Text(IMPOSSIBLE if words.infeasible(result) else MEASURED), first]
    if len(rows) > MOST:
        shown = f"The {MOST} of {len(rows)} with the smallest slack; result.json has all."
        body.append(Text(shown, soft=True))
    body += [_figures(run), blocks.Heading("Shadow prices"), *texts(shadow_prices(result))]
    body += [*others, *groups(result)]
    met = sum(row["met"] for row in rows)
    mood = "good" if met == len(rows) else "warn"
    fact = Fact(f"{met} of {len(rows)}", "constraints met on the training rows", mood)
    return Section([Chapter("constraints", "Constraints", body)], [fact])


def _figures(run: Run) -> Row:
    """How far every owner's tightest constraint is from its limit, and the violations by round."""
    (names, broken), plots = violations(run.result, run.history), {}
    if len(names) and broken.shape[0] > 1:
        title = "By how much every client violates its constraints after each round"
        plots["bands"] = Plot(title, 1.5 + 0.26 * len(names), _violated, (names, broken))
    rows = tight(run.result["constraints"])
    owners = [*dict.fromkeys(row["owner"] for row in rows)][: blocks.MOST]
    title = "How far every owner's tightest constraint is from its limit, by model"
    plots["kept"] = Plot(title, 1.5 + 0.26 * len(owners), _kept, (run.result, owners))
    return drawn(CAPTIONS, plots)


def shadow_prices(result: Result) -> list[str]:
    """What relaxing the limits would gain, as far as the certificate bears it out."""
    met = all(row["met"] for row in result["constraints"])
    texts = {
        "Where no model is feasible there are no shadow prices: the column says how the proof"
        " weighs each constraint.": words.infeasible(result),
        "No limit has a shadow price: relaxing any of them a little does not lower the"
        " objective.": met and (result["certificate"]["relative_gap"] or 0.0) <= NEAR,
        "No shadow prices are stated: the model is not proven near the optimum, and the"
        " multipliers may be far off.": True,
    }
    return list(result["prices"]) or [first_true(texts)]


# ----------------------------------------------------------------------------------------- tables


def kept(result: Result) -> list[Table]:
    """The constraints on each set of rows, those of the training rows with their multipliers."""
    proof = words.infeasible(result)
    weight = {"weight": "Weight in the proof"} if proof else {"price": "Multiplier"}
    found = [_table(result, TRAINING, result["constraints"], {"slack": "Slack"} | weight)]
    for part in result["kept"]:
        if part["model"] == result["model"] and part["rows"] and part["set"] != TRAINING:
            found.append(_table(result, part["set"], part["rows"], {}))
    return found


def _table(result: Result, name: str, rows: Rows, more: Mapping[str, str]) -> Table:
    """One row a constraint: limit, measured value, columns with the further heads, whether it is
    met, its rate, and the same numbers of the first other model on this set.
    """
    parts = (part for part in result["kept"] if part["set"] == name)
    other = next((part for part in parts if part["model"] != result["model"]), None)
    beside = {(row["owner"], row["constraint"]): row for row in other["rows"]} if other else {}
    heads = {"owner": "Owner", "constraint": "Constraint", "limit": "Limit", "measured": "Measured"}
    rows = tight(rows)
    rated = {"rate": "Rate"} if any(row["rate"] is not None for row in rows) else {}
    heads |= {**more, "met": "Met", **rated}
    if other:
        also = {"measured": "measured"} | dict.fromkeys(rated, "rate")
        heads |= {f"other {key}": f"{other['model']}: {text}" for key, text in also.items()}
    lines = []
    for row in rows:
        there = beside.get((row["owner"], row["constraint"]), {})
        line = {**row, "met": "yes" if row["met"] else "no"}
        lines.append(line | {f"other {key}": there.get(key) for key in ("measured", "rate")})
    title = f"Constraints on {'the ' * (name == TRAINING)}{name}"
    return tables.of_rows(title, lines, heads, WAYS, ("constraint", "met"), ("constraint",))


def tight(rows: Rows) -> Rows:
    """The rows with the smallest slack, in their order."""
    keep = sorted(range(len(rows)), key=lambda k: rows[k]["slack"])[:MOST]
    return [rows[k] for k in sorted(keep)]


def groups(result: Result) -> list[Table]:
    """How often every group is predicted positive, rightly and wrongly, by set and model."""
    made, by_group = [], {}
    for row in result["groups"]:
        by_group.setdefault((row["set"], row["column"]), []).append(row)
    for (name, group), rows in by_group.items():
        title, heads = f"Groups of {group} on {name}", GROUPS | {"group": group}
        made.append(tables.of_rows(title, rows, heads, WAYS, ("group",)))
    return made


# ---------------------------------------------------------------------------------------- figures


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
    most = sorted(np.argsort(-total, kind="stable")[: blocks.MOST].tolist())
    return [clients[k] for k in most], broken[:, most]


def _violated(canvas: Canvas, names: Sequence[str], broken: Array) -> None:
    """Draw one band a client; neighbouring rounds of one colour are joined."""
    axes, limits = canvas.one(), np.array([most for most, *_ in VIOLATED])
    places = axes.named_rows(names)
    rows = np.where(np.isfinite(broken), np.searchsorted(limits, np.nan_to_num(broken)), -1).T
    for k, (_, name, colour) in enumerate(VIOLATED):
        bands = [(y, *band) for y, row in zip(places, rows == k, strict=True) for band in runs(row)]
        y, start, length = np.array(bands).reshape(-1, 3).T
        axes.barh(y, length, 0.72, left=start + 0.5, color=colour, label=name)
    axes.xaxis.grid, axes.xaxis.whole = False, True
    axes.xaxis.low, axes.xaxis.high = 0.5, len(broken) + 0.5
    axes.name(x="round")
    axes.legend()


def runs(row: Array) -> list[tuple[int, int]]:
    """The start and length of every run of true entries."""
    ends = np.flatnonzero(np.diff(row, prepend=False, append=False)).reshape(-1, 2)
    return [(start, end - start) for start, end in ends.tolist()]


def _kept(canvas: Canvas, result: Result, owners: Sequence[str]) -> None:
    """Draw the measured value minus the limit of every owner's tightest constraint: dots right of
    the line are violations.
    """
    axes = canvas.one()
    places = axes.named_rows(owners)
    marks = {(result["model"], TRAINING): (TRAINING, BLUE, "o", 4)}
    marks |= {(result["model"], HELD_OUT): (HELD_OUT, ORANGE, "D", 3)}
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
            keys = dict(zip(("label", "color", "marker", "zorder"), mark, strict=True))
            axes.scatter(*np.array(dots).T, s=26, **keys)
    axes.axvline(0.0, color=INK, linewidth=1)
    axes.name(x="measured − limit (right of the line: violated)")
    axes.legend()
