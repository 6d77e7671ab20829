"""One constraint at other levels: what a tighter or looser limit costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bonafed.drawing import BLUE, GREY, ORANGE, RED, column, legend
from bonafed.report.figures import Plot
from bonafed.report.sections.section import (
    Chapter,
    Figure,
    ReportSection,
    Row,
    chapter,
    texts,
)
from bonafed.report.tables import (
    Record,
    Table,
    Way,
    filled,
    magnitude,
    number,
    of_rows,
    percent,
    spaced,
)
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.arrays import Array
    from bonafed.drawing import Axes, Canvas

HEADS = {
    "level": "Level",
    "value": "Objective",
    "relative_gap": "Gap",
    "price": "Multiplier",
    "violation": "Violation",
    "rate": "Rate",
    "held_measured": "Held out: measured",
    "held_rate": "Held out: rate",
    "loss": "Held-out loss",
    "accuracy": "Held-out accuracy",
    "error": "Held-out error",
    "rounds": "Rounds",
    "outcome": "Ended",
}
CELLS: dict[str, Way] = {
    **dict.fromkeys(("rate", "held_rate", "accuracy"), percent),
    **dict.fromkeys(("relative_gap", "violation"), magnitude),
    "outcome": spaced,
}
CAPTION = (
    "Above, the objective that every level allows, and its slope by the multiplier; below, the"
    " largest rate of the constraint."
)


class TradeOff(ReportSection):
    """The objective, the multiplier and the rates at other levels of one constraint."""

    def applies(self, run: Run) -> bool:
        return run.traded is not None

    def plots(self, run: Run) -> Mapping[str, Plot]:
        traded = _levels(run)
        if sum(point["value"] is not None for point in traded["points"]) < 2:
            return {}
        rated = any(point.get("rate") is not None for point in traded["points"])
        title, height = "Objective and rates by the level of the constraint", 4.4 if rated else 2.8
        return {"trade_off": Plot(title, height, _trade_off, (traded, rated))}

    def chapters(self, run: Run) -> list[Chapter]:
        row = Row((Figure("trade_off", CAPTION), levels(_levels(run))))
        return [chapter("levels", "Other levels", *texts(sentences(_levels(run))), row)]

    def record(self, run: Run) -> Record:
        return {"trade_off": run.traded and run.traded.table}


def _levels(run: Run) -> Record:
    assert run.traded is not None
    return run.traded.table


def sentences(traded: Record) -> list[str]:
    """What the levels show."""
    points = sorted(traded["points"], key=lambda point: point["level"])
    lost = [f"{point['level']:g}" for point in points if point["value"] is None]
    text = [
        f"The problem was solved at {len(points)} levels of: {traded['constraint']}. All else"
        " stayed as it is. The multiplier is minus the slope of the curve: what the objective falls"
        " by, at most, for each unit that the level is raised."
    ]
    if lost:
        text.append(f"At {', '.join(lost)} no model meets all constraints: that is proven.")
    return text


def levels(traded: Record) -> Table:
    """The levels that were tried, one row a point."""
    rows = [
        {**point, "level": number(level) + " ← this run" * (level == traded["level"])}
        for point in traded["points"]
        for level in [point["level"]]
    ]
    return of_rows("Other levels", rows, filled(HEADS, rows), CELLS, ("outcome",))


# ----------------------------------------------------------------------------------------- figure


def _trade_off(canvas: Canvas, traded: Record, rated: bool) -> None:
    """Draw the optimal objective with its slopes, and below it the rates."""
    panels = canvas.subplots(2, sharex=True) if rated else [canvas.subplots()]
    points = sorted(traded["points"], key=lambda point: point["level"])
    x, value, price = (column(points, key) for key in ("level", "value", "price"))
    _objective(panels[0], x, value, price)
    if rated:
        for key, name, colour in (
            ("rate", "training rows", BLUE),
            ("held_rate", "held-out rows", ORANGE),
        ):
            rate = np.where(np.isfinite(value), 100 * column(points, key), np.nan)
            if np.isfinite(rate).any():
                panels[1].plot(x, rate, color=colour, marker="o", markersize=3.5, label=name)
        panels[1].set_ylabel("largest rate in %")
        legend(panels[1])
    for axes in panels:
        axes.axvline(traded["level"], color=GREY, linewidth=1)
    panels[-1].set_xlabel("level (grey line: this run)")
    legend(panels[0])


def _objective(axes: Axes, x: Array, value: Array, price: Array) -> None:
    """Draw the objective by level, with crosses where no model is feasible."""
    axes.plot(x, value, color=BLUE, marker="o", markersize=4, label="objective")
    near = 0.4 * np.diff(x, prepend=-np.inf, append=np.inf)  # as far as the neighbours allow
    feasible = np.flatnonzero(np.isfinite(value))
    for k in feasible:
        width = min(near[k], near[k + 1], 0.06 * float(np.ptp(x)))
        way = np.array([-width, width])
        name = "slope by the multiplier" if k == feasible[-1] else None
        axes.plot(
            x[k] + way, value[k] - price[k] * way, color=ORANGE, linewidth=1.4, label=name, zorder=3
        )
    lost = x[~np.isfinite(value)]
    if len(lost):
        low = np.full(len(lost), np.nanmin(value))
        axes.scatter(lost, low, marker="x", color=RED, s=36, label="nothing feasible")
    axes.set_ylabel("objective")
