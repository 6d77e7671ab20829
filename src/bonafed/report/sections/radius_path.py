"""The radii that were tried: what each protects against, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.arrays import Array
from bonafed.drawing import DASHED, GREY, INK, column, decades, legend, shades
from bonafed.report import words
from bonafed.report.figures import Plot
from bonafed.report.sections.section import (
    Block,
    Chapter,
    Figure,
    Fold,
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
    filled,
    magnitude,
    number,
    of_rows,
    percent,
    spaced,
)
from bonafed.runs.run import Run
from bonafed.runs.sections.radius_path import equal

if TYPE_CHECKING:
    from bonafed.drawing import Axes, Canvas

OPEN = 12  # points of a table that is shown without a click
FIGURES = (
    Figure(
        "path_loss",
        "Solid: the worst client; dashed: all rows held out of the training rows. The ring is the"
        " best point, the grey line this run's radius.",
    ),
    Figure("path_judged", "The same rows."),
    Figure(
        "path_value",
        "The objective on the rows that the points were trained on: it grows with what it protects"
        " against.",
    ),
)


class RadiusPath(ReportSection):
    """Which radius did best on rows that were held out of the training rows."""

    def applies(self, run: Run) -> bool:
        return run.tried is not None

    def plots(self, run: Run) -> Mapping[str, Plot]:
        tried = _path(run)
        points = tried["points"]
        if len({point["radius"] for point in points}) < 2:
            return {}
        key = _judged(points)[0]
        proven = all(point["bound"] is not None for point in points)
        parts = {
            "path_loss": ("Held-out loss", "loss"),
            "path_judged": (
                "Held-out absolute error" if key == "mae" else "Held-out accuracy",
                key,
            ),
            "path_value": ("Certified objective" if proven else "Objective", "value"),
        }
        radii = [row["radius"] for row in run.result["clients"]]
        height = 2.6 + 0.1 * (3 + len({point["client_radius"] for point in points}))
        return {
            name: Plot(f"{title} by radius", height, _by_radius, (tried, radii, title, key))
            for name, (title, key) in parts.items()
        }

    def chapters(self, run: Run) -> list[Chapter]:
        points = path(_path(run))
        best, *rest = choice(_path(run), run.result)
        fold = Fold("Every point", (points,), len(points.rows) <= OPEN)
        blocks = (Text(best, strong=True), *texts(rest), Row(FIGURES), fold)
        return [chapter("path", "Radii tried", *blocks)]

    def brief(self, run: Run) -> list[Block]:
        return [*texts(choice(_path(run), run.result)[:1])]

    def record(self, run: Run) -> Record:
        return {"path": run.tried and run.tried.table}


def _path(run: Run) -> Record:
    assert run.tried is not None
    return run.tried.table


def choice(tried: Record, result: Result) -> list[str]:
    """Which point did best, and what that is worth."""
    points, held = tried["points"], tried["held_out"]
    best = points[tried["best"]]
    theta = best["client_radius"]
    at = f"radius {number(best['radius'])}"
    at += "" if theta is None else f" and client radius {number(theta)}"
    accuracy = f", accuracy {percent(best['accuracy'])}" if "accuracy" in best else ""
    return [
        f"Of {len(points)} points, {at} had the smallest held-out loss of a client:"
        f" {number(best['worst_loss'])} at {best['worst_client']} (all rows:"
        f" {number(best['loss'])}{accuracy}).{_ties(points)}{_at_end(points, best)}",
        (
            f"This choice was made on {sum(held.values())} rows held out of the training rows"
            f" ({min(held.values())} at the smallest client): its numbers flatter it, and"
            " differences between neighbours may be chance. The model of this run was trained with"
            f" the radius of its configuration, {words.radii(result)}. To use another, set it"
            " there, and judge the new run by its test rows, which the path has not seen."
        ),
    ]


def _ties(points: Rows) -> str:
    ties = len(equal(points)) - 1
    if not ties:
        return ""
    return f" {ties} other point{' does' if ties == 1 else 's do'} as well: the first is named."


def _at_end(points: Rows, best: Record) -> str:
    """A warning where a wider path may hold a better point."""
    radii = sorted({point["radius"] for point in points})
    end = best["radius"] == radii[-1] or best["radius"] == radii[0] > 0
    if not end or len(radii) <= 2 or len(equal(points)) > 1:
        return ""
    return " It lies at the end of the radii tried: a wider path may find better."


def path(tried: Record) -> Table:
    """The radii tried, one row a point; the best by the held-out loss of its worst client is
    marked.
    """
    points = tried["points"]
    key, show, worst, head = _judged(points)
    heads = {
        "radius": "Radius",
        "client_radius": "Client radius",
        "worst_loss": "Worst loss",
        "worst_client": "Worst client",
        "loss": "Mean loss",
        f"worst_{key}": worst,
        key: head,
        "value": "Objective",
        "relative_gap": "Gap",
        "rounds": "Rounds",
        "outcome": "Ended",
    }
    ways = {f"worst_{key}": show, key: show, "relative_gap": magnitude}
    rows = [
        {
            **point,
            "radius": number(point["radius"]) + " ← best" * (k == tried["best"]),
            "outcome": spaced(point["outcome"]) + ", trivial" * point["trivial"],
        }
        for k, point in enumerate(points)
    ]
    text = ("worst_client", "outcome")
    return of_rows("Radii tried", rows, filled(heads, points), ways, text)


def _judged(points: Rows) -> tuple[str, Way, str, str]:
    """What judges a point: its key, how it is written, and the heads of its columns."""
    if "accuracy" in points[0]:
        return "accuracy", percent, "Worst accuracy", "Accuracy"
    return "mae", number, "Worst absolute error", "Mean absolute error"


# ---------------------------------------------------------------------------------------- figures


def _by_radius(canvas: Canvas, tried: Record, radii: Sequence[float], title: str, key: str) -> None:
    """Draw a line in one colour for every client radius, solid the worst client, dashed all rows;
    the radii of the run itself in grey, and the best point in a ring.
    """
    axes, points = canvas.subplots(), tried["points"]
    scale = 100.0 if key == "accuracy" else 1.0
    _lines(axes, points, key, scale)
    if key == "loss":
        best = points[tried["best"]]
        ring = {"facecolors": "none", "edgecolors": INK, "label": "best", "zorder": 4}
        axes.scatter(best["radius"], best["worst_loss"], s=70, **ring)
    axes.axvspan(min(radii), max(radii), color=GREY, alpha=0.3, linewidth=0)
    axes.axvline(min(radii), color=GREY, linewidth=1, label="this run")
    axes.axvline(max(radii), color=GREY, linewidth=1)
    _radius_axis(axes, np.array([*radii, *(point["radius"] for point in points)], dtype=float))
    axes.set_ylabel(f"{title.lower()} in %" if scale == 100 else title.lower())
    legend(axes)


def _lines(axes: Axes, points: Rows, key: str, scale: float) -> None:
    """Draw the lines of every client radius; the objective has no worst client."""
    by_client = key != "value"
    thetas = list(dict.fromkeys(point["client_radius"] for point in points))
    for theta, colour in zip(thetas, shades(len(thetas)), strict=True):
        mine = sorted((p for p in points if p["client_radius"] == theta), key=lambda p: p["radius"])
        keys = ("radius", f"worst_{key}" if by_client else key, key)
        x, worst, mean = (column(mine, k) for k in keys)
        name = "worst client" if by_client else "objective"
        name = f"client radius {theta:g}" if len(thetas) > 1 else name
        axes.plot(x, scale * worst, color=colour, marker="o", markersize=3, label=name)
        if by_client:
            axes.plot(x, scale * mean, color=colour, linestyle=DASHED, linewidth=1.1)
    if by_client:
        axes.plot([], [], color=INK, linestyle=DASHED, linewidth=1.1, label="all rows")


def _radius_axis(axes: Axes, radii: Array) -> None:
    """Make the axis of the radii logarithmic, with a place for zero."""
    if radii.min() == 0:
        axes.set_xscale("symlog", linthresh=radii[radii > 0].min(), linscale=0.5)
    else:
        axes.set_xscale("log")
    decades(axes, radii)
    axes.set_xlabel("radius")
