"""The figures of a run on a simulated clock: what was reached when, who answered when, how many planes there were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.report.figures import BLUE, GREY, INK, MODELS, ORANGE, PURPLE, _decades, column, draw, legend
from quorate.report.tables import printable

INSTEAD = ("convergence",)  # of other runs, and not drawn of these
WINDOWS = 60  # of time


def clock_figures(result: Mapping[str, Any], history: Sequence[Mapping[str, Any]], events: Any) -> dict[str, str]:
    """SVG by name; a figure without data is left out. ``events`` is the log of the run."""
    found: dict[str, tuple[str, float, Callable[[Any], None]]] = {}
    if any(len(curve["time"]) > 1 for curve in result.get("reached", {}).values()):
        said = "Objective and largest risk of a client of every model by virtual time"
        found["reached"] = (said, 4.6, lambda f: _reached(f, result))
    if events is not None and len(events.times) and events.times.max() > 0:
        said = "Clients that answered, and the age of their messages, by virtual time"
        found["active"] = (said, 4.0, lambda f: _active(f, events, history))
    if np.isfinite(column(history, "planes")).any():
        found["planes"] = ("Cutting planes by virtual time", 2.2, lambda f: _planes(f, history))
    return {name: draw(name, said, height, plot) for name, (said, height, plot) in found.items()}


def _reached(figure: Any, result: Mapping[str, Any]) -> None:
    """Above the objective of the run's own problem, below the largest risk of a client."""
    top, below = figure.subplots(2, sharex=True)
    least = min(curve["time"][0] for curve in result["reached"].values())
    for (name, curve), colour in zip(result["reached"].items(), MODELS, strict=False):
        for axes, key in ((top, "objective"), (below, "largest_risk")):
            axes.plot(curve["time"], curve[key], color=colour, label=printable(name.replace("_", " ")))
    if (bound := result["certificate"]["bound"]) is not None:
        top.axhline(bound, color=INK, linewidth=0.9, linestyle=(0, (3, 2)), label="proven bound")
    for axes, key in ((top, "objective"), (below, "largest_risk")):
        values = np.concatenate([curve[key] for curve in result["reached"].values()])
        if values.min() > 0 and values.max() > 20 * values.min():
            axes.set_yscale("log")
    top.set_ylabel("objective")
    below.set_ylabel("worst client's loss")
    below.set_xlabel("virtual seconds")
    if least > 0:
        below.set_xscale("log")
        _decades(below, np.concatenate([curve["time"] for curve in result["reached"].values()]))
    legend(top, min(4, len(result["reached"]) + 1))


def windows(events: Any) -> tuple[Array, Array, Array]:
    """(edges, clients that answered, answers) of equal windows of time."""
    edges = np.linspace(0.0, float(events.times.max()), WINDOWS + 1)
    at = np.clip(np.searchsorted(edges, events.times, side="left") - 1, 0, WINDOWS - 1)
    answers = np.bincount(at, minlength=WINDOWS)
    distinct = np.unique(np.column_stack([at, events.answered]), axis=0)[:, 0]
    return edges, np.bincount(distinct, minlength=WINDOWS).astype(float), answers.astype(float)


def _active(figure: Any, events: Any, history: Sequence[Mapping[str, Any]]) -> None:
    """Who answered in every window, answers that one step of the server had, and how old their messages were."""
    top, below = figure.subplots(2, sharex=True)
    edges, distinct, _ = windows(events)
    top.stairs(distinct, edges, color=BLUE, fill=True, alpha=0.25)
    top.stairs(distinct, edges, color=BLUE, label="answered")
    top.axhline(len(events.clients), color=GREY, linewidth=1, label="all")
    sizes = np.diff(events.ends, prepend=0).astype(float)
    ended = events.times[np.maximum(events.ends - 1, 0)]
    top.plot(*_largest(edges, ended, sizes), color=ORANGE, label="answers in a step")
    top.set_ylim(bottom=0)
    top.set_ylabel("clients")
    legend(top, 3)
    below.plot(*_largest(edges, column(history, "time"), column(history, "staleness")), color=PURPLE)
    below.set_ylim(bottom=0)
    below.set_ylabel("oldest message, steps")
    below.set_xlabel("virtual seconds")


def _largest(edges: Array, time: Array, values: Array) -> tuple[Array, Array]:
    """(middle, largest value) of every window that has one."""
    kept = np.isfinite(time) & np.isfinite(values)
    at = np.clip(np.searchsorted(edges, time[kept], side="left") - 1, 0, WINDOWS - 1)
    most = np.full(WINDOWS, -np.inf)
    np.maximum.at(most, at, values[kept])
    there = np.isfinite(most)
    return (0.5 * (edges[1:] + edges[:-1]))[there], most[there]


def _planes(figure: Any, history: Sequence[Mapping[str, Any]]) -> None:
    axes, x = figure.subplots(), column(history, "time")
    axes.plot(x, column(history, "planes"), color=PURPLE, drawstyle="steps-post")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("planes")
    axes.set_xlabel("virtual seconds")
