"""The figures of a private run: the budget of every client, noise and gap by round, the privacy-utility curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorate.report.figures import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MOST,
    ORANGE,
    PURPLE,
    _judged,
    _measures,
    column,
    draw,
    label,
    legend,
    plain_decades,
)

COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
Plots = dict[str, tuple[str, float, Callable[[Any], None]]]


def travelling_figures(result: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """SVG by name, of the part that travels."""
    rows = shown(result["privacy"]["ledger"])
    said = "What every client has spent of its budget, and what is left"
    found: Plots = {"budget": (said, 1.3 + 0.26 * len(rows), lambda f: _budget(f, rows, result["privacy"]))}
    if len(history) > 1:
        said = "Noise in every answer, and distance of the clients' copies from the model, by round"
        found["rounds"] = (said, 4.0, lambda f: _rounds(f, history))
    return _drawn(found | _evaluation(result))


def owner_figures(result: Mapping[str, Any], main: float) -> dict[str, str]:
    """SVG by name, of the part that stays; ``main`` is the epsilon of the run's own model alone."""
    found: Plots = {}
    if result.get("curve"):
        found["curve"] = ("How the model does, by epsilon", 2.8, lambda f: _curve(f, result, main))
    return _drawn(found | _evaluation(result))


def _drawn(found: Plots) -> dict[str, str]:
    return {name: draw(name, said, height, plot) for name, (said, height, plot) in found.items()}


def _evaluation(result: Mapping[str, Any]) -> Plots:
    measures = result["evaluation"]["measures"]
    if not measures:
        return {}
    said, judged = _judged(measures, None)
    height = 1.2 + 0.2 * len(measures) + 0.25 * len({row["set"] for row in measures})
    return {"evaluation": (said, height, lambda f: _measures(f, measures, *judged))}


def shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that have spent most."""
    return sorted(rows, key=lambda row: -row["epsilon"])[:MOST]


def _budget(figure: Any, rows: Sequence[Mapping[str, Any]], stated: Mapping[str, Any]) -> None:
    """A bar a client: what earlier runs had, and all with this run; totals do not add up, so they lie on each other."""
    axes = figure.subplots()
    at = np.arange(len(rows))[::-1].astype(float)
    axes.barh(at, [row["epsilon"] for row in rows], 0.6, color=BLUE, label="with this run")
    if any(row["before"] for row in rows):
        axes.barh(at, [row["before"] for row in rows], 0.6, color=GREY, label="before it")
    axes.axvline(stated["allowed"], color=INK, linewidth=1.2, label="allowed")
    axes.set_yticks(at, [label(row["client"]) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("total epsilon")
    legend(axes, 3)


def _rounds(figure: Any, history: Sequence[Mapping[str, Any]]) -> None:
    top, below = figure.subplots(2, sharex=True)
    x = column(history, "round")
    for axes, key, colour, said in ((top, "noise", ORANGE, "noise"), (below, "gap", BLUE, "distance")):
        y = column(history, key)
        y = np.where(y > 0, y, np.nan)
        axes.plot(x, y, color=colour)
        axes.set_ylabel(said)
        if np.isfinite(y).any() and np.nanmax(y) > 5 * np.nanmin(y):
            axes.set_yscale("log")
            plain_decades(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
    below.set_xlabel("round")
    below.xaxis.get_major_locator().set_params(integer=True)


def _curve(figure: Any, result: Mapping[str, Any], main: float) -> None:
    """One colour a set; the ring is the run's own model, the dashed line the model without privacy."""
    axes, measures = figure.subplots(), result["evaluation"]["measures"]
    sets = list(dict.fromkeys(name for point in result["curve"] for name in point["sets"]))
    named = {key for point in result["curve"] for row in point["sets"].values() for key in row}
    what = next((key for key in ("accuracy", "error") if key in named), None)
    if what is None:  # nothing was held out
        axes.plot([p["epsilon"] for p in result["curve"]], [p["value"] for p in result["curve"]], "o-", color=BLUE)
    scale = 100.0 if what == "accuracy" else 1.0
    for name, colour in zip(sets, COLOURS, strict=False):
        own = {row["model"]: row[what] for row in measures if row["set"] == name}
        points = sorted([(p["epsilon"], p["sets"][name][what]) for p in result["curve"]] + [(main, own["private"])])
        axes.plot(
            [x for x, _ in points], [scale * y for _, y in points], "o-", color=colour, markersize=3.5, label=name
        )
        axes.plot([main], [scale * own["private"]], "o", color=colour, markersize=9, fillstyle="none")
        if "ERM" in own:
            axes.axhline(scale * own["ERM"], color=colour, linestyle="--", linewidth=1.0)
    ticks = sorted({p["epsilon"] for p in result["curve"]})
    if min(abs(np.log(main / t)) for t in ticks) > 0.25:  # letters would meet
        ticks = sorted([*ticks, main])
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(ticks, [f"{t:.3g}" for t in ticks])
    axes.set_xlabel("epsilon")
    axes.set_ylabel({"accuracy": "accuracy in %", "error": "mean absolute error"}.get(what or "", "objective"))
    if sets:
        legend(axes, 1)
