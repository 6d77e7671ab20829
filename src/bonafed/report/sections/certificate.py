"""What is guaranteed about the model, number by number, and how the method came there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bonafed.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    column,
    decades,
    line_above_zero,
    objectives,
    plain_decades,
)
from bonafed.report import words
from bonafed.report.figures import Plot
from bonafed.report.sections.section import (
    Block,
    Chapter,
    Figure,
    ReportSection,
    Row,
    Text,
    chapter,
)
from bonafed.report.tables import Result, Rows, Table, precise, spaced, table
from bonafed.runs.run import Run
from bonafed.runs.sections.clock import thinned

if TYPE_CHECKING:
    from bonafed.arrays import Array
    from bonafed.drawing import Axes, Canvas

MEANING = {
    "value": "objective of the model",
    "bound": "proven lower bound on the best objective",
    "gap": "objective − bound",
    "relative_gap": "gap relative to the objective",
    "feasibility": "distance of the model and of the client weights q* from their sets",
    "complementarity": "how far q* is from the worst client weights for this model",
    "stationarity": "gradient that the proof leaves unbalanced",
    "consensus": "largest distance of a client's copy from the model",
}
FAR = 4.0  # below all objectives, in units of their range: bounds that are not drawn to scale
POOLED = {"feasibility": "distance of the model from its set"}  # one client, whose weight is 1
UNDER_CONSTRAINTS = {
    "feasibility": "largest violation of a constraint",
    "stationarity": "largest entry of the Lagrangian's gradient",
    "gradient_scale": "largest entry of the objective's gradient at 0, to compare it with",
    "complementarity": "largest product of a multiplier and its slack",
    "infeasible": "proven: every model violates some constraint by at least this much",
}
KKT = (  # the conditions of optimality of a problem that is not convex
    "distance of the multipliers of the rows from the gradients of the risk",
    "distance of the balancing gradient from those of the regulariser",
    "distance of the rank coordinates from those of the model",
)
TRAFFIC = Figure("traffic", "What the gap cost in communication, both directions, all clients.")


class Certificate(ReportSection):
    """The bound that is proven, or how far the model is from the conditions of optimality."""

    def applies(self, run: Run) -> bool:
        return run.result["certificate"] is not None

    def plots(self, run: Run) -> Mapping[str, Plot]:
        return {} if words.private(run.result) else plots(run.result, run.history)

    def chapters(self, run: Run) -> list[Chapter]:
        result = run.result
        title = "Exact numbers" if words.private(result) else "Certificate"
        figures, proof = Row(_figures(result)), _proof(result)
        if words.contradicted(result):
            proof += f" All of it holds only{words.CONDITION}."
        return [chapter("certificate", title, Text(proof), certificate(result), figures)]

    def brief(self, run: Run) -> list[Block]:
        rows = certificate(run.result).rows
        return [Text(f"Certificate: {', '.join(f'{name} {value}' for name, value, _ in rows)}.")]


def _proof(result: Result) -> str:
    """What the certificate proves, and from what."""
    proven = words.proven(result)
    if words.private(result):
        return (
            "These are numbers of the private model on its training rows. No lower bound is proven:"
            " the method stops when its budget is spent, not at an optimum."
        )
    if words.constrained(result):
        if words.infeasible(result):
            return (
                "The multipliers in duals.safetensors combine the constraints into one that no"
                " model meets: that is the proof."
            )
        if proven:
            return (
                "The bound is proven by weak duality from the multipliers in duals.safetensors:"
                " wrong ones can only weaken it."
            )
        return (
            "No lower bound is proven for this problem; value and violation are exact, and the"
            " other numbers say how far the model is from the conditions of optimality."
        )
    if proven and words.together(result) and not words.pooled(result):
        return (
            "The bound is proven by weak duality from weights of the rows, which are counted again"
            " from the model, and from the cuts in duals.safetensors, where there are any: wrong"
            " ones can only weaken it."
        )
    if proven:
        return (
            "The bound is proven by weak duality from the dual weights in duals.safetensors: a"
            " wrong dual can only weaken it."
        )
    if "risk" in result and result["certificate"].get("residuals"):
        return (
            "The problem is not convex: no lower bound is proven, and a better model may exist. The"
            " value is exact. The KKT residuals say how far the model and the multipliers of the"
            " rows in duals.safetensors are from the three conditions of optimality."
        )
    return "No lower bound is proven for this problem; the value is exact."


def _figures(result: Result) -> tuple[Figure, ...]:
    if words.proven(result):
        convergence = (
            "The objective of the best model so far, and the bound below which no model can be: the"
            " optimum lies between them."
        )
        rounds = (
            "On the way a model may violate constraints and lie below the bound; the last one"
            " counts."
        )
    else:
        convergence = (
            "The objective of the best model so far. Below, what the method left unbalanced; it"
            " jumps where another start is tried. The certificate has the residuals of the model"
            " itself."
        )
        rounds = "What the method reached by round."
    return Figure("convergence", convergence), Figure("rounds", rounds), TRAFFIC


def certificate(result: Result) -> Table:
    """Every number of the certificate with its meaning."""
    numbers, meaning = result["certificate"], dict(MEANING)
    if words.together(result):
        del meaning["complementarity"]
        meaning |= POOLED
    if not words.proven(result):
        meaning["stationarity"] = "gradient left unbalanced"
    if words.constrained(result):
        meaning |= UNDER_CONSTRAINTS
    rows = [
        (spaced(key), precise(numbers[key]), text)
        for key, text in meaning.items()
        if numbers.get(key) is not None
    ]
    residuals = zip(numbers.get("residuals") or (), KKT, strict=False)
    rows += [(f"KKT residual {k}", precise(r), text) for k, (r, text) in enumerate(residuals, 1)]
    return table("Certificate", ("Number", "Value", "Meaning"), rows, (0, 2), long=(2,))


# ---------------------------------------------------------------------------------------- figures


def plots(result: Result, history: Rows) -> dict[str, Plot]:
    """The objective, bound and gap by round, and the gap by the bytes that were sent; under
    constraints the objective and violations by round; none of a history of one round.
    """
    if words.constrained(result):
        title = (
            "Objective by round, and below it how far constraints are violated and what is left"
            " unbalanced"
        )
        draw = Plot(title, 4.4, _violations, (history, result["certificate"]["bound"]))
        return {"rounds": draw} if len(history) > 1 else {}
    # the rounds whose objective is known, where it is not known in all
    rows = thinned(history) or history
    if len(rows) < 2:
        return {}
    proven, risk = result["certificate"]["bound"], result.get("risk")
    drawn = {}
    if "clock" not in result:
        by = "round" if risk is None else "seconds"
        title = f"Objective by {by}, and what the method leaves of the conditions of optimality"
        if _bounded(rows, proven):
            title = f"Objective and proven bound by {by}, and their gap"
        timed = risk is not None
        drawn["convergence"] = Plot(title, 4.4, _convergence, (rows, proven, timed))
    if risk is None or not risk["pooled"]:
        drawn["traffic"] = Plot("Gap by bytes sent", 2.4, _traffic, (rows, proven))
    return drawn


def _bounded(history: Rows, proven: float | None) -> bool:
    """Whether there is a gap to draw, or else only how far the models are from the conditions of
    optimality.
    """
    return proven is not None or bool(np.isfinite(column(history, "gap")).any())


def _convergence(canvas: Canvas, history: Rows, proven: float | None, timed: bool) -> None:
    """Draw the objective and the bound, and below their gap, against rounds, or against the seconds
    that they took on a logarithmic axis.
    """
    top, below = canvas.subplots(2, sharex=True)
    x, value, bound = column(history, "round"), objectives(history), column(history, "bound")
    if timed:
        x = np.nancumsum(column(history, "seconds"))
    if proven is not None and not np.isfinite(bound).any():  # proven at the end only
        bound = np.full(len(x), proven)
    top.plot(x, value, color=BLUE, label="objective")
    if np.isfinite(bound).any():
        top.plot(x, bound, color=ORANGE, label="proven bound")
        top.fill_between(x, bound, value, color=GREY, alpha=0.18, linewidth=0)
        known = value[np.isfinite(value)]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
        if np.nanmin(bound) < low - FAR * (high - low) < low:  # says nothing yet
            top.set_ylim(low - (high - low), high + 0.05 * (high - low))
    top.legend(loc="best")
    top.set_ylabel("objective")
    if _bounded(history, proven):
        _gap(below, x, history, proven)
    else:
        line_above_zero(below, x, column(history, "residual"), "residual")
    below.set_xlabel("seconds" if timed else "round")
    if timed:
        below.set_xscale("log")
        decades(below, x[np.isfinite(value)])


def _gap(axes: Axes, x: Array, history: Rows, proven: float | None) -> None:
    """Draw the gap of each round; where an algorithm proves none on its way, the distance to the
    bound proven at the end.
    """
    gap = column(history, "gap")
    if proven is not None and not np.isfinite(gap).any():
        gap = objectives(history) - proven
    line_above_zero(axes, x, gap, "gap")


def _traffic(canvas: Canvas, history: Rows, proven: float | None) -> None:
    axes = canvas.subplots()
    sent = np.nancumsum(column(history, "bytes_up") + column(history, "bytes_down"))
    unit, scale = ("MB", 1e6) if sent[-1] >= 1e6 else ("kB", 1e3)
    _gap(axes, sent / scale, history, proven)
    axes.set_xlabel(f"{unit} sent by all")


def _violations(canvas: Canvas, history: Rows, bound: float | None) -> None:
    """Draw the objective, and below it the largest violation and what is left unbalanced."""
    top, below = canvas.subplots(2, sharex=True)
    x = column(history, "round")
    top.plot(x, objectives(history), color=BLUE, label="objective")
    if bound is not None:
        top.axhline(bound, color=ORANGE, linewidth=1.2, label="proven bound")
    top.legend(loc="best")
    top.set_ylabel("objective")
    lines = (("violation", "largest violation", PURPLE), ("residual", "residual", GREEN))
    for key, name, colour in lines:
        y = column(history, key)
        y = np.where(y > 1e-16, y, np.nan)
        if np.isfinite(y).any():
            below.plot(x, y, color=colour, marker="o", markersize=2.5, label=name)
            below.set_yscale("log")
    if below.get_yscale() == "log":
        plain_decades(below.yaxis)
        below.legend(loc="best")
    below.set(ylabel="violation, residual", xlabel="round")
