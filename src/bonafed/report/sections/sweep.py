"""Other values of one key: what each costs, and how its model does on rows that judge."""

from typing import TYPE_CHECKING

import numpy as np

from bonafed.arrays import Array
from bonafed.drawing import BLUE, GREY, MODELS, ORANGE, RED, column
from bonafed.privacy.accounting import total_epsilon
from bonafed.report import tables
from bonafed.report.blocks import Chapter, Fold, Plot, Row, Section, drawn, texts
from bonafed.report.canvas import DASHED, DOTTED, INK, Axes, Canvas
from bonafed.report.tables import Record, Rows, Table, Way, number, percent, spaced
from bonafed.runs.folder import result_in
from bonafed.runs.privacy_plan import privacy_of
from bonafed.runs.sections.privacy import read_releases
from bonafed.runs.sections.section import Run
from bonafed.runs.sections.sweep import equal
from bonafed.text import first_true

if TYPE_CHECKING:
    from bonafed.privacy.accounting import Release

OPEN = 12  # points of a table that is shown without a click
CAPTIONS = {
    "sweep_value": "The objective on the rows that the points were trained on.",
    "sweep_loss": "Solid: all rows of a set; dashed: its worst client. The grey line is the value"
    " of this run.",
    "sweep_judged": "The same rows; dotted: the same problem without privacy.",
    "sweep_rate": "The largest rate of the constraint whose limit is changed.",
}
HEADS = {
    **{"noise": "Noise", "value": "Objective", "relative_gap": "Gap", "price": "Multiplier"},
    **{"violation": "Violation", "rate": "Rate"},
}
WAYS: dict[str, Way] = {
    **dict.fromkeys(("relative_gap", "violation"), tables.magnitude),
    "rate": percent,
}
JUDGED = {
    **{"loss": ("Loss", number), "worst_loss": ("Worst loss", number)},
    **{"accuracy": ("Accuracy", percent), "worst_accuracy": ("Worst accuracy", percent)},
    **{"error": ("Error", number), "worst_error": ("Worst error", number)},
    **{"measured": ("Measured", number), "rate": ("Rate", percent)},
}
PRICES = (
    "The multiplier is minus the slope of the objective: what the objective falls by, at most, for"
    " each unit that the limit is raised."
)
JUDGED_BY_TESTS = (
    "The run's test rows judge the values: a value that is chosen by them needs new rows to be"
    " judged."
)
LOOKED = (
    "Anyone who chooses a budget, or any other setting, by these numbers has looked at the rows:"
    " that choice is not part of what was paid for. They are for the owner's judgement of what"
    " privacy costs here."
)


def about_sweep(run: Run) -> Section | None:
    """The objective and the judgement of the same problem at other values of one key."""
    if run.swept is None:
        return None
    said, shown = words(run), tried(run)
    fold = Fold("Every point", shown, len(shown[0].rows) <= OPEN)
    best = choice(_table(run))[:1] if "best" in _table(run) else []
    chapter = Chapter("sweep", "Other values", [*texts(said), _figures(run), fold])
    return Section([chapter], brief=texts([*said[:1], *best]))


def _figures(run: Run) -> Row:
    """The objective, and what judges the points; nothing where fewer than two were solved."""
    points, shown = with_own(run), {}
    if len({point["at"] for point in points if point["value"] is not None}) > 1:
        shown["sweep_value"] = ("Objective", _objective, ())
        if key := merit(points):
            shown["sweep_loss"] = ("Loss", _lines, ("loss",))
            shown["sweep_judged"] = (tables.capital(key), _lines, (key,))
        if any(point.get("rate") is not None for point in points):
            shown["sweep_rate"] = ("Rates", _lines, ("rate",))
    plots = {
        name: Plot(f"{title} by {_key(run)}", 2.8, draw, (run, points, *keys))
        for name, (title, draw, keys) in shown.items()
    }
    return drawn(CAPTIONS, plots)


def _table(run: Run) -> Record:
    assert run.swept is not None
    return run.swept.table


def _key(run: Run) -> str:
    return _table(run)["parameter"]


def words(run: Run) -> list[str]:
    """How the points were made, and what they show."""
    swept, private = _table(run), run.config.privacy is not None
    points = swept["points"]
    paid = private and not privacy_of(run.config).rehearsal
    charged = {
        f" Each is a run that was charged before this one. {LOOKED}": paid,
        f" The rows are declared public, so that the runs are not charged. {LOOKED}": private,
    }
    made = f"The problem was solved at {len(points)} values of {swept['parameter']}."
    text = [f"{made} All else stayed as it is.{first_true(charged)}"]
    if any(point.get("price") is not None for point in points):
        text.append(PRICES)
    if lost := [f"{point['at']:g}" for point in points if point["value"] is None]:
        text.append(f"At {', '.join(lost)} no model meets all constraints: that is proven.")
    if "best" in swept:
        return [*text, *choice(swept)]
    return text + [JUDGED_BY_TESTS] * bool(points[0]["sets"] and not private)


def choice(swept: Record) -> list[str]:
    """Which value did best, and what that is worth."""
    points, held = swept["points"], [*swept["held_out"].values()]
    best, (judged,) = points[swept["best"]], points[swept["best"]]["sets"].values()
    accuracy = f", accuracy {percent(judged['accuracy'])}" if "accuracy" in judged else ""
    alike, values = len(equal(points)) - 1, sorted(point["at"] for point in points)
    at_end = len(values) > 2 and (best["at"] == values[-1] or best["at"] == values[0] > 0)
    more = {
        f" {alike} other point{' does' if alike == 1 else 's do'} as well: the first is named.": (
            alike
        ),
        " It lies at the end of the values tried: a wider sweep may find better.": at_end,
    }
    return [
        f"At {number(best['at'])} the largest of the clients' held-out losses is the smallest:"
        f" {number(judged['worst_loss'])}, at {judged['worst_client']} (all rows:"
        f" {number(judged['loss'])}{accuracy}).{first_true(more)}",
        f"This choice was made on {sum(held)} rows held out of the training rows ({min(held)} at"
        " the smallest client): its numbers flatter it, and differences between neighbours may be"
        " chance. The model of this run was trained with the value of its configuration. To use"
        " another, set it there, and judge the new run by its test rows, which the sweep has not"
        " seen.",
    ]


def with_own(run: Run) -> list[Record]:
    """The points by their values, of a private run with the run itself among them."""
    rows = [*_table(run)["points"]]
    if run.config.privacy is not None:
        sets = {row["set"]: row for row in tables.own_measures(run.result)}
        this = {"at": alone(run), "noise": _releases(run)[0].noise, "sets": sets, "this": True}
        rows.append({**this, "value": run.result["certificate"]["value"]})
    return sorted(rows, key=lambda point: point["at"])


def alone(run: Run) -> float:
    """Epsilon of the model of the run by itself."""
    return total_epsilon(_releases(run), privacy_of(run.config).delta)


def _releases(run: Run) -> "tuple[Release, ...]":
    """The releases of one client in the run itself; ``run`` is the owner's part."""
    public = result_in(run.path.parent / "result.json", run.config, public=True)
    return read_releases(next(iter(public["privacy"]["releases"].values())))


def merit(points: Rows) -> str:
    """What judges a point beside its loss; empty where no rows were held out."""
    judged = [row for point in points for row in point["sets"].values()]
    return next((key for key in ("accuracy", "error") for row in judged if key in row), "")


def tried(run: Run) -> tuple[Table, ...]:
    """The values tried, one row a point, and how their models do on every set of rows."""
    swept, rows = _table(run), []
    best = swept["points"][swept["best"]]["at"] if "best" in swept else None
    for point in with_own(run):
        this = "this" in point or (run.config.privacy is None and point["at"] == swept["own"])
        mark = " ← this run" * this + " ← best" * (point["at"] == best)
        ended = spaced(point.get("outcome", "")) + ", trivial" * point.get("trivial", False)
        rows.append({**point, "at": number(point["at"]) + mark, "outcome": ended})
    heads = {"at": _key(run), **HEADS, "rounds": "Rounds", "outcome": "Ended"}
    found = [tables.of_rows("Other values", rows, tables.filled(heads, rows), WAYS, ("outcome",))]
    heads = {"at": _key(run)} | {key: head for key, (head, _) in JUDGED.items()}
    ways = {key: way for key, (_, way) in JUDGED.items()}
    for name in swept["points"][0]["sets"]:
        judged = [{**row["sets"].get(name, {}), "at": row["at"]} for row in rows]
        shown = tables.filled(heads, judged)
        found.append(tables.of_rows(f"Other values on {name}", judged, shown, ways))
    return tuple(found)


# ---------------------------------------------------------------------------------------- figures


def _lines(canvas: Canvas, run: Run, points: Rows, key: str) -> None:
    """Draw a line in one colour for every set, dashed its worst client, dotted the same problem
    without privacy; of rates that of the training rows, too.
    """
    axes, x = canvas.one(), column(points, "at")
    scale = 100.0 if key in ("accuracy", "rate") else 1.0
    measures = tables.by_set(run.result["evaluation"]["measures"])
    if key == "rate":
        rates = scale * column(points, key)
        axes.plot(x, rates, color=INK, markersize=3.5, label="training rows")
    for name, colour in zip(points[0]["sets"], MODELS, strict=False):
        rows = [point["sets"].get(name, {}) for point in points]
        axes.plot(x, scale * column(rows, key), color=colour, markersize=3.5, label=name)
        if f"worst_{key}" in rows[0]:
            worst = scale * column(rows, f"worst_{key}")
            axes.plot(x, worst, color=colour, linestyle=DASHED, linewidth=1.1)
        erm = {row["model"]: row for row in measures.get(name, ())}.get("ERM", {})
        if run.config.privacy is not None and erm.get(key) is not None:
            axes.axhline(scale * erm[key], color=colour, linestyle=DOTTED, linewidth=1.0)
    title = {"error": "mean absolute error", "rate": "largest rate"}.get(key, key)
    axes.name(y=f"{title} in %" if scale == 100 else title)
    _values(axes, run, x)


def _objective(canvas: Canvas, run: Run, points: Rows) -> None:
    """Draw the objective, its slope by the multiplier, and crosses where nothing is feasible."""
    axes = canvas.one()
    x, value, price = (column(points, key) for key in ("at", "value", "price"))
    axes.plot(x, value, color=BLUE, markersize=4, label="objective")
    near = 0.4 * np.diff(x, prepend=-np.inf, append=np.inf)  # as far as the neighbours allow
    priced = np.flatnonzero(np.isfinite(price))
    for k in priced:
        width = min(near[k], near[k + 1], 0.06 * float(np.ptp(x)))
        way = np.array([-width, width])
        name = "slope by the multiplier" if k == priced[-1] else None
        slope = value[k] - price[k] * way
        axes.plot(x[k] + way, slope, color=ORANGE, linewidth=1.4, label=name, zorder=3)
    if len(lost := x[~np.isfinite(value)]):
        low = np.full(len(lost), np.nanmin(value))
        axes.scatter(lost, low, marker="x", color=RED, s=36, label="nothing feasible")
    axes.name(y="objective")
    _values(axes, run, x)


def _values(axes: Axes, run: Run, x: Array) -> None:
    """Finish the axis of the values, logarithmic where they are far apart, with that of the run."""
    own = alone(run) if run.config.privacy is not None else _table(run)["own"]
    if own is not None:
        axes.axvline(own, color=GREY, linewidth=1, label="this run")
    every = np.array([*x, *([] if own is None else [own])], dtype=float)
    positive = every[every > 0]
    if len(positive) and positive.max() >= 8 * positive.min():
        axes.log_x(every)
    axes.name(x=_key(run))
    axes.legend()
