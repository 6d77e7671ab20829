"""A run on a simulated clock: how good every model was at what time, and who answered how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from quorate.report.figures import Plot
from quorate.report.sections import clock_figures
from quorate.report.sections.section import (
    Block,
    Chapter,
    Figure,
    ReportSection,
    Row,
    chapter,
    texts,
)
from quorate.report.tables import Result, Table, number, size, spaced, table
from quorate.runs.run import Run

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


class Rule(Protocol):
    """A rule of waiting, which says in words whom a server waits for."""

    def words(self) -> str: ...


class Engine(Protocol):
    """The engine of a configuration."""

    @property
    def wait(self) -> Rule: ...


class Clock(ReportSection):
    """Virtual time, and how good every model was by then."""

    def applies(self, run: Run) -> bool:
        return "clock" in run.result

    def plots(self, run: Run) -> Mapping[str, Plot]:
        return clock_figures.plots(run.result, run.history, run.events)

    def chapters(self, run: Run) -> list[Chapter]:
        sentences = texts(words(run.result, run.config.engine))
        return [chapter("clock", "Virtual time", *sentences, Row(FIGURES), *pace(run.result))]

    def brief(self, run: Run, columns: int) -> list[Block]:
        return [*pace(run.result), *texts(words(run.result, run.config.engine))]


def words(result: Result, engine: Engine) -> list[str]:
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
