"""The figures of the public part of a private run: the budget of every client, and the noise and
distance of copies by round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from quorate.report.figures import (
    BLUE,
    GREY,
    INK,
    MOST,
    ORANGE,
    Plot,
    column,
    legend,
    named_rows,
    plain_decades,
    whole_numbers,
)
from quorate.report.tables import Result, Rows

if TYPE_CHECKING:
    from quorate.report.figures import Canvas


def plots(result: Result, history: Rows) -> dict[str, Plot]:
    """The figures by name."""
    privacy = result["privacy"]
    rows = sorted(privacy["ledger"], key=lambda row: -row["epsilon"])[:MOST]
    title = "What every client has spent of its budget, and what is left"
    height = 1.3 + 0.26 * len(rows)
    drawn = {"budget": Plot(title, height, lambda c: _budget(c, rows, privacy["allowed"]))}
    if len(history) > 1:
        title = (
            "Noise in every answer, and distance of the clients' copies from the model, by round"
        )
        drawn["rounds"] = Plot(title, 4.0, lambda c: _rounds(c, history))
    return drawn


def _budget(canvas: Canvas, rows: Rows, allowed: float) -> None:
    """Two bars a client: the total of earlier runs, and that with this run; totals do not add up,
    so the bars lie on each other.
    """
    axes = canvas.subplots()
    places = named_rows(axes, [row["client"] for row in rows])
    axes.barh(places, [row["epsilon"] for row in rows], 0.6, color=BLUE, label="with this run")
    if any(row["before"] for row in rows):
        axes.barh(places, [row["before"] for row in rows], 0.6, color=GREY, label="before it")
    axes.axvline(allowed, color=INK, linewidth=1.2, label="allowed")
    axes.set_xlabel("total epsilon")
    legend(axes, 3)


def _rounds(canvas: Canvas, history: Rows) -> None:
    panels = canvas.subplots(2, sharex=True)
    x = column(history, "round")
    lines = (("noise", ORANGE, "noise"), ("gap", BLUE, "distance"))
    for axes, (key, colour, name) in zip(panels, lines, strict=True):
        y = column(history, key)
        y = np.where(y > 0, y, np.nan)
        axes.plot(x, y, color=colour)
        axes.set_ylabel(name)
        if np.isfinite(y).any() and np.nanmax(y) > 5 * np.nanmin(y):
            axes.set_yscale("log")
            plain_decades(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
    panels[1].set_xlabel("round")
    whole_numbers(panels[1].xaxis)
