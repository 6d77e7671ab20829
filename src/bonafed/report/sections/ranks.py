"""Losses by rank: the sorted losses, and what each rank weighs in the risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.drawing import BLUE, DASHED, GREY, ORANGE, plain_decades
from bonafed.report import words
from bonafed.report.figures import Plot
from bonafed.report.sections.section import Chapter, Figure, ReportSection, Row, Text, chapter
from bonafed.report.tables import Rows, Table, of_rows, printable, spaced
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.drawing import Canvas

HEAVIEST = {"row": "Row (from 0)", "loss": "Loss", "weight": "Weight (mean: 1)"}
ABOUT = (
    "The model pays for the losses of the shaded ranks, and the more the taller the shade. Where"
    " its line is above that of the other model, those rows pay for it. These are training rows;"
    " the evaluation above says what holds on new ones."
)


class Ranks(ReportSection):
    """The distribution of the training losses under a spectral risk."""

    def applies(self, run: Run) -> bool:
        return bool(run.result.get("losses"))

    def plots(self, run: Run) -> Mapping[str, Plot]:
        title = "Sorted losses of the training rows, and the weight that each rank has"
        return {"losses": Plot(title, 4.4, _curves, (run.result["losses"],))}

    def chapters(self, run: Run) -> list[Chapter]:
        risk = run.result["risk"]
        inside = " of its client, times the weight of that client."
        inside = "." if words.together(run.result) else inside
        caption = (
            "Every row's training loss, sorted, in groups of five rows or more; below, what its"
            f" rank weighs in the {words.risk_words(risk)}{inside}"
        )
        row = Row((Figure("losses", caption), Text(ABOUT)))
        return [chapter("losses", "Losses by rank", row)]


def heaviest(client: str, rows: Rows) -> Table:
    """The rows of one client that weigh most by their rank; for their owner."""
    title = f"Rows of {client} that weigh most"
    return of_rows(title, rows, HEAVIEST, {"row": str}, None)


def _curves(canvas: Canvas, losses: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw the losses of every model by rank, and below what each rank weighs; the shade is that of
    the first model.
    """
    top, below = canvas.subplots(2, sharex=True, height_ratios=(3, 2))
    styles = zip((BLUE, ORANGE), ("-", DASHED), strict=True)
    for (model, curve), (colour, dash) in zip(losses.items(), styles, strict=False):
        share = 100 * np.concatenate([[0.0], curve["share"]])
        for axes, key in ((top, "loss"), (below, "weight")):
            axes.stairs(
                curve[key],
                share,
                color=colour,
                linestyle=dash,
                baseline=None,
                linewidth=1.6,
                label=printable(spaced(model)),
            )
        if dash == "-":
            below.stairs(curve["weight"], share, color=colour, fill=True, alpha=0.15)
    most = max(max(curve["loss"]) for curve in losses.values())
    if most > 0:  # three decades, and the rest near zero
        top.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(most) - 2), linscale=0.5)
        plain_decades(top.yaxis)
    below.axhline(1.0, color=GREY, linewidth=0.8)
    below.set_ylim(bottom=0)
    top.set(xlim=(0, 100), ylabel="loss")
    below.set(ylabel="weight (mean: 1)", xlabel="share of the rows in %, smallest loss first")
    top.legend(loc="upper left")
