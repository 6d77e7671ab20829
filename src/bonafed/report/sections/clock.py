"""A run on a simulated clock: how good every model was at what time, and who answered how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.config.engine import EngineSection
from bonafed.drawing import BLUE, DASHED, GREY, INK, MODELS, ORANGE, PURPLE, column, decades, legend
from bonafed.report.figures import Plot
from bonafed.report.sections.section import (
    Block,
    Chapter,
    Figure,
    ReportSection,
    Row,
    chapter,
    texts,
)
from bonafed.report.tables import Result, Rows, Table, number, printable, size, spaced, table
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.drawing import Canvas
    from bonafed.engines.run_record import Log

WINDOWS = 60  # of time
SLOWEST = 3  # clients that are named
NEAR = 1.01  # times the last loss
FIGURES = (
    Figure(
        "reached",
        "Every model judged by this run's problem, on all training rows, by an observer that takes"
        " no time.",
    ),
    Figure(
        "active",
        "Above, how many clients answered in a window of time, and how many answers one step of the"
        " server had; below, how many steps old the oldest message was that was answered.",
    ),
    Figure("planes", "How many vertices of the set of client weights the method keeps."),
)


class Clock(ReportSection):
    """The virtual time of a run, and how good every model was when."""

    def applies(self, run: Run) -> bool:
        return "clock" in run.result

    def plots(self, run: Run) -> Mapping[str, Plot]:
        result, history, events = run.result, run.history, run.events
        drawn = {}
        if any(len(curve["time"]) > 1 for curve in result.get("reached", {}).values()):
            title = "Objective and largest risk of a client of every model by virtual time"
            drawn["reached"] = Plot(title, 4.6, _objectives, (result,))
        if events is not None and len(events.times) and events.times.max() > 0:
            title = "Clients that answered, and the age of their messages, by virtual time"
            drawn["active"] = Plot(title, 4.0, _active, (events, history))
        if np.isfinite(column(history, "planes")).any():
            title = "Cutting planes by virtual time"
            drawn["planes"] = Plot(title, 2.2, _planes, (history,))
        return drawn

    def chapters(self, run: Run) -> list[Chapter]:
        sentences = texts(words(run.result, run.config.engine))
        return [chapter("clock", "Virtual time", *sentences, Row(FIGURES), *pace(run.result))]

    def brief(self, run: Run) -> list[Block]:
        return [*texts(words(run.result, run.config.engine)[:1])]


def words(result: Result, engine: EngineSection) -> list[str]:
    """How much time passed, who answered how often, and what that means."""
    clock = result["clock"]
    slow = sorted(clock["by_client"].items(), key=lambda item: item[1])
    often = max(clock["by_client"].values())
    sentences = [
        f"The run took {number(clock['time'])} virtual seconds: {result['rounds']:,} steps of the"
        f" server, from {clock['answers']:,} answers. Its methods for answers that come at"
        f" different times wait for {engine.wait.words()}; others wait for every client. Virtual"
        " time passes on a simulated clock only: it compares methods on the same delays, and says"
        " nothing about the seconds of a machine."
    ]
    named = [f"{name} {count:,}" for name, count in slow[:SLOWEST] if count < often]
    if named:
        sentences.append(
            f"The clients that answered least often: {', '.join(named)} times, against {often:,} of"
            " the quickest client."
        )
    if clock["crashed"]:
        gone = ", ".join(f"{name} at {number(time)}" for name, time in clock["crashed"].items())
        sentences.append(
            f"Some clients never answered again: {gone} virtual seconds. Their last answers still"
            " count."
        )
    return sentences


def pace(result: Result) -> list[Table]:
    """A row for every model: when it was done, after how many bytes, and when its worst client's
    loss came near its last one.
    """
    rows = []
    for name, curve in result.get("reached", {}).items():
        losses = curve["largest_risk"]
        near = next(k for k in range(len(losses)) if max(losses[k:]) <= NEAR * losses[-1])
        done, rounds, sent = (curve[key][-1] for key in ("time", "round", "bytes"))
        cells = (number(done), f"{rounds:,}", size(sent), number(losses[-1]))
        rows.append((spaced(name), *cells, number(curve["time"][near])))
    heads = ("Model", "Virtual time", "Steps", "Sent", "Worst client's loss")
    heads += ("Within 1 % of that from",)
    return [table("Virtual time", heads, rows)] if rows else []


# ---------------------------------------------------------------------------------------- figures


def _objectives(canvas: Canvas, result: Result) -> None:
    """Draw the objective of the run's problem, and below it the largest risk of a client."""
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
    below.set(ylabel="worst client's loss", xlabel="virtual seconds")
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
    """Draw who answered in every window, how many answers one step of the server had, and how old
    their messages were.
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
    below.set(ylabel="oldest message, steps", xlabel="virtual seconds")
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
    axes.set(ylabel="planes", xlabel="virtual seconds")
