"""The figures of a run on a simulated clock: the objective trace, who answered when, and how many
cutting planes there were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.report.figures import (
    BLUE,
    DASHED,
    GREY,
    INK,
    MODELS,
    ORANGE,
    PURPLE,
    Plot,
    column,
    decades,
    legend,
)
from quorate.report.tables import Result, Rows, printable, spaced

if TYPE_CHECKING:
    from quorate.engines.event_log import Log
    from quorate.report.figures import Canvas

WINDOWS = 60  # of time


def plots(result: Result, history: Rows, events: Log | None) -> dict[str, Plot]:
    """The figures by name, none without data; ``events`` is the log of the run."""
    drawn: dict[str, Plot] = {}
    if any(len(curve["time"]) > 1 for curve in result.get("reached", {}).values()):
        title = "Objective and largest risk of a client of every model by virtual time"
        drawn["reached"] = Plot(title, 4.6, lambda c: _reached(c, result))
    if events is not None and len(events.times) and events.times.max() > 0:
        title = "Clients that answered, and the age of their messages, by virtual time"
        drawn["active"] = Plot(title, 4.0, lambda c: _active(c, events, history))
    if np.isfinite(column(history, "planes")).any():
        title = "Cutting planes by virtual time"
        drawn["planes"] = Plot(title, 2.2, lambda c: _planes(c, history))
    return drawn


def _reached(canvas: Canvas, result: Result) -> None:
    """Above the objective of the run's problem, below the largest risk of a client."""
    reached = result["reached"]
    panels = canvas.subplots(2, sharex=True)
    for axes, key in zip(panels, ("objective", "largest_risk"), strict=True):
        for (name, curve), colour in zip(reached.items(), MODELS, strict=False):
            axes.plot(curve["time"], curve[key], color=colour, label=printable(spaced(name)))
        values = np.concatenate([curve[key] for curve in reached.values()])
        if values.min() > 0 and values.max() > 20 * values.min():
            axes.set_yscale("log")
    top, below = panels
    if (bound := result["certificate"]["bound"]) is not None:
        top.axhline(bound, color=INK, linewidth=0.9, linestyle=DASHED, label="proven bound")
    top.set_ylabel("objective")
    below.set_ylabel("worst client's loss")
    below.set_xlabel("virtual seconds")
    if min(curve["time"][0] for curve in reached.values()) > 0:
        below.set_xscale("log")
        decades(below, np.concatenate([curve["time"] for curve in reached.values()]))
    legend(top, min(4, len(reached) + 1))


def windows(events: Log) -> tuple[Array, Array, Array]:
    """(edges, clients that answered, answers) of equal windows of time."""
    edges = np.linspace(0.0, float(events.times.max()), WINDOWS + 1)
    window = _window(edges, events.times)
    answers = np.bincount(window, minlength=WINDOWS)
    distinct = np.unique(np.column_stack([window, events.answered]), axis=0)[:, 0]
    return edges, np.bincount(distinct, minlength=WINDOWS).astype(float), answers.astype(float)


def _window(edges: Array, time: Array) -> NDArray[np.intp]:
    """The window that each time lies in."""
    return np.clip(np.searchsorted(edges, time, side="left") - 1, 0, WINDOWS - 1)


def _active(canvas: Canvas, events: Log, history: Rows) -> None:
    """Who answered in every window, how many answers one step of the server had, and how old their
    messages were.
    """
    top, below = canvas.subplots(2, sharex=True)
    edges, distinct, _ = windows(events)
    top.stairs(distinct, edges, color=BLUE, fill=True, alpha=0.25)
    top.stairs(distinct, edges, color=BLUE, label="answered")
    top.axhline(len(events.clients), color=GREY, linewidth=1, label="all")
    sizes = np.diff(events.ends, prepend=0).astype(float)
    ended = events.times[np.maximum(events.ends - 1, 0)]
    top.plot(*_largest(edges, ended, sizes), color=ORANGE, label="answers in a step")
    top.set_ylabel("clients")
    legend(top, 3)
    ages = column(history, "time"), column(history, "staleness")
    below.plot(*_largest(edges, *ages), color=PURPLE)
    below.set_ylabel("oldest message, steps")
    below.set_xlabel("virtual seconds")
    for axes in (top, below):
        axes.set_ylim(bottom=0)


def _largest(edges: Array, time: Array, values: Array) -> tuple[Array, Array]:
    """(middle, largest value) of every window that has one."""
    kept = np.isfinite(time) & np.isfinite(values)
    most = np.full(WINDOWS, -np.inf)
    np.maximum.at(most, _window(edges, time[kept]), values[kept])
    there = np.isfinite(most)
    return (0.5 * (edges[1:] + edges[:-1]))[there], most[there]


def _planes(canvas: Canvas, history: Rows) -> None:
    axes, x = canvas.subplots(), column(history, "time")
    axes.plot(x, column(history, "planes"), color=PURPLE, drawstyle="steps-post")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("planes")
    axes.set_xlabel("virtual seconds")
