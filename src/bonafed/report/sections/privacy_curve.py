"""The privacy-utility curve: how good the model is at other privacy budgets. For the owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bonafed.drawing import MODELS, legend
from bonafed.privacy.accounting import total_epsilon
from bonafed.report.figures import Plot
from bonafed.report.sections.section import Chapter, Figure, ReportSection, chapter, texts
from bonafed.report.tables import Table, by_set, capital, number, of_rows, own_measures, percent
from bonafed.runs.privacy_plan import privacy_of
from bonafed.runs.result_form import result_in
from bonafed.runs.run import Run
from bonafed.runs.sections.privacy import read_releases

if TYPE_CHECKING:
    from bonafed.arrays import Array
    from bonafed.drawing import Axes, Canvas
    from bonafed.privacy.accounting import Release

FIGURE = Figure(
    "curve",
    "One line a set of rows. The ring is the model of this run; dashed: the same problem without"
    " privacy, where it was trained. Each point is one run, and has its own noise.",
)
LOOKED = (
    "Whoever chooses a budget, or any other setting, by these numbers has looked at the rows: that"
    " choice is not part of what was paid for. They are for the owner's judgement of what privacy"
    " costs here."
)
NEAR = 0.25  # ratio (log) below which the letters of two ticks would meet


class PrivacyCurve(ReportSection):
    """The objective and the evaluation of the same problem at other privacy budgets."""

    def applies(self, run: Run) -> bool:
        return bool(run.result.get("curve"))

    def plots(self, run: Run) -> Mapping[str, Plot]:
        title = "How the model does, by epsilon"
        return {"curve": Plot(title, 2.8, _curve, (run,))}

    def chapters(self, run: Run) -> list[Chapter]:
        return [chapter("curve", "Privacy and utility", *texts(words(run)), FIGURE, curve(run))]


def words(run: Run) -> list[str]:
    """How the points of the curve were made."""
    charged = "Each is a run of its own, charged before this one."
    if privacy_of(run.config).rehearsal:
        charged = "The rows are declared public, so that the runs are not charged."
    return [f"The same problem at other budgets. {charged} {LOOKED}"]


def alone(run: Run) -> float:
    """Epsilon of the model of the run by itself."""
    return total_epsilon(_releases(run), privacy_of(run.config).delta)


def _releases(run: Run) -> tuple[Release, ...]:
    """The releases of one client in the run itself; ``run`` is the owner's part."""
    public = result_in(run.path.parent / "result.json", run.config, public=True)
    return read_releases(next(iter(public["privacy"]["releases"].values())))


def _judged(run: Run) -> str | None:
    """What judges a point: accuracy or error; None where nothing was held out."""
    named = {key for point in run.result["curve"] for row in point["sets"].values() for key in row}
    return next((key for key in ("accuracy", "error") if key in named), None)


def curve(run: Run) -> Table:
    """One row for every budget, that of the run among them."""
    key, sets = _judged(run) or "loss", {row["set"]: row for row in own_measures(run.result)}
    noise, value = _releases(run)[0].noise, run.result["certificate"]["value"]
    this = {"epsilon": alone(run), "noise": noise, "value": value, "sets": sets}
    show = percent if key == "accuracy" else number
    rows = [
        {
            **point,
            "epsilon": number(point["epsilon"]) + " ← this run" * (point is this),
            **{name: show(point["sets"][name][key]) for name in sets},
        }
        for point in sorted([*run.result["curve"], this], key=lambda point: point["epsilon"])
    ]
    heads = {"epsilon": "Epsilon alone", "noise": "Noise", "value": "Objective"}
    return of_rows("Other budgets", rows, heads | {s: f"{capital(key)}, {s}" for s in sets})


# ----------------------------------------------------------------------------------------- figure


def _curve(canvas: Canvas, run: Run) -> None:
    """Draw a line in one colour for every set; the objective where nothing was held out."""
    axes, main, points = canvas.subplots(), alone(run), run.result["curve"]
    key = _judged(run)
    if key is None:
        x, y = ([point[each] for point in points] for each in ("epsilon", "value"))
        axes.plot(x, y, "o-", color=MODELS[0])
    else:
        _sets(axes, run, key, main)
    _ticks(axes, np.unique([point["epsilon"] for point in points]), main)
    heads = {"accuracy": "accuracy in %", "error": "mean absolute error", None: "objective"}
    axes.set(xlabel="epsilon", ylabel=heads[key])
    if key is not None:
        legend(axes, 1)


def _sets(axes: Axes, run: Run, key: str, main: float) -> None:
    """Draw a line for every set, a ring at the run itself, and dashed the model without privacy."""
    points, scale = run.result["curve"], 100.0 if key == "accuracy" else 1.0
    names = dict.fromkeys(name for point in points for name in point["sets"])
    measures = by_set(run.result["evaluation"]["measures"])
    for name, colour in zip(names, MODELS, strict=False):
        here = {row["model"]: scale * row[key] for row in measures[name]}
        line = [(point["epsilon"], scale * point["sets"][name][key]) for point in points]
        x, y = zip(*sorted([*line, (main, here["private"])]), strict=True)
        axes.plot(x, y, "o-", color=colour, markersize=3.5, label=name)
        axes.plot([main], [here["private"]], "o", color=colour, markersize=9, fillstyle="none")
        if "ERM" in here:
            axes.axhline(here["ERM"], color=colour, linestyle="--", linewidth=1.0)


def _ticks(axes: Axes, epsilons: Array, main: float) -> None:
    """Set a tick at every budget, and at that of the run where its letters fit."""
    ticks = epsilons.tolist()
    if np.abs(np.log(main / epsilons)).min() > NEAR:
        ticks = sorted([*ticks, main])
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
