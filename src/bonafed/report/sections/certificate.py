"""What is guaranteed about the model, number by number, and how the method came there; on a
simulated clock how good every model was at what time, and who answered how often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bonafed.arrays import Array
from bonafed.config.sections import EngineSection
from bonafed.drawing import BLUE, GREEN, GREY, MODELS, ORANGE, PURPLE, column, objectives
from bonafed.report import tables, words
from bonafed.report.blocks import Chapter, Plot, Row, Section, Text, drawn, texts
from bonafed.report.canvas import DASHED, INK, LOG, Axes, Canvas
from bonafed.report.tables import Result, Rows, Table, number, precise, spaced, table
from bonafed.runs.baselines import called
from bonafed.runs.sections.clock import thinned
from bonafed.runs.sections.section import Run
from bonafed.text import all_true, first_true

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bonafed.engines.run_record import Log

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
BASELINES = {  # each of its own problem
    **{"model": "Model", "value": "Objective of its problem", "bound": "Bound", "gap": "Gap"},
    **{"rounds": "Rounds", "stop": "Ended"},
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
TRAFFIC = {"traffic": "What the gap cost in communication, both directions, all clients."}
PROVEN = {
    "convergence": "The objective of the best model so far, and the bound below which no model can"
    " be: the optimum lies between them.",
    "rounds": "On the way a model may violate constraints and lie below the bound; the last one"
    " counts.",
    **TRAFFIC,
}
UNPROVEN = {
    "convergence": "The objective of the best model so far. Below, what the method left unbalanced;"
    " it jumps where another start is tried. The certificate has the residuals of the model"
    " itself.",
    "rounds": "What the method reached by round.",
    **TRAFFIC,
}


def about_certificate(run: Run) -> Section | None:
    """The bound that is proven, or how far the model is from the conditions of optimality."""
    result = run.result
    if result["certificate"] is None:
        return None
    title = "Exact numbers" if words.private(result) else "Certificate"
    proof, numbers = _proof(result), certificate(result)
    if words.contradicted(result):
        proof += f" All of it holds only{words.CONDITION}."
    stated = ", ".join(f"{name} {value}" for name, value, _ in numbers.rows)
    blocks = [Text(proof), numbers, _figures(result, run.history)]
    if result["baselines"] and not words.private(result):
        rows = [{**row, "model": called(name)} for name, row in result["baselines"].items()]
        blocks.append(tables.of_rows("Baselines", rows, BASELINES, {"rounds": str}, ("stop",)))
    return Section([Chapter("certificate", title, blocks)], brief=[Text(f"Certificate: {stated}.")])


def _proof(result: Result) -> str:
    """What the certificate proves, and from what."""
    proven, limited = words.proven(result), words.constrained(result)
    residuals = "risk" in result and result["certificate"].get("residuals")
    ranked = words.together(result) and not words.pooled(result)
    texts = {
        "These are numbers of the private model on its training rows. No lower bound is proven: the"
        " method stops when its budget is spent, not at an optimum.": words.private(result),
        "The multipliers in duals.safetensors combine the constraints into one that no model meets:"
        " that is the proof.": limited and words.infeasible(result),
        "The bound is proven by weak duality from the multipliers in duals.safetensors: wrong ones"
        " can only weaken it.": limited and proven,
        "No lower bound is proven for this problem; value and violation are exact, and the other"
        " numbers say how far the model is from the conditions of optimality.": limited,
        "The bound is proven by weak duality from weights of the rows, which are counted again from"
        " the model, and from the cuts in duals.safetensors, where there are any: wrong ones can"
        " only weaken it.": proven and ranked,
        "The bound is proven by weak duality from the dual weights in duals.safetensors: a wrong"
        " dual can only weaken it.": proven,
        "The problem is not convex: no lower bound is proven, and a better model may exist. The"
        " value is exact. The KKT residuals say how far the model and the multipliers of the rows"
        " in duals.safetensors are from the three conditions of optimality.": residuals,
        "No lower bound is proven for this problem; the value is exact.": True,
    }
    return first_true(texts)


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
    known = {key: text for key, text in meaning.items() if numbers.get(key) is not None}
    rows = [(spaced(key), precise(numbers[key]), text) for key, text in known.items()]
    residuals = zip(numbers.get("residuals") or (), KKT, strict=False)
    rows += [(f"KKT residual {k}", precise(r), text) for k, (r, text) in enumerate(residuals, 1)]
    return table("Certificate", ("Number", "Value", "Meaning"), rows, (0, 2), long=(2,))


def _figures(result: Result, history: Rows) -> Row:
    """The objective, bound and gap by round, and the gap by the bytes that were sent; under
    constraints the objective and violations by round; nothing of a history of one round.
    """
    proven, risk = result["certificate"]["bound"], result.get("risk")
    # the rounds whose objective is known, where it is not known in all
    plots, rows = {}, thinned(history) or history
    if words.constrained(result):
        title = "Objective by round, and below it how far constraints are violated and what is left"
        if len(history) > 1:
            plots["rounds"] = Plot(f"{title} unbalanced", 4.4, _violations, (history, proven))
    elif len(rows) > 1 and not words.private(result):
        by = "round" if risk is None else "seconds"
        title = f"Objective by {by}, and what the method leaves of the conditions of optimality"
        if _bounded(rows, proven):
            title = f"Objective and proven bound by {by}, and their gap"
        if "clock" not in result:
            plots["convergence"] = Plot(title, 4.4, _convergence, (rows, proven, risk is not None))
        if risk is None or not risk["pooled"]:
            plots["traffic"] = Plot("Gap by bytes sent", 2.4, _traffic, (rows, proven))
    return drawn(PROVEN if words.proven(result) else UNPROVEN, plots)


def _bounded(history: Rows, proven: float | None) -> bool:
    """Whether there is a gap to draw, or else only how far the models are from the conditions of
    optimality.
    """
    return proven is not None or bool(np.isfinite(column(history, "gap")).any())


def _convergence(canvas: Canvas, history: Rows, proven: float | None, timed: bool) -> None:
    """Draw the objective and the bound, and below their gap, against rounds, or against the seconds
    that they took on a logarithmic axis.
    """
    top, below = canvas.two()
    x, value, bound = column(history, "round"), objectives(history), column(history, "bound")
    if timed:
        x = np.nancumsum(column(history, "seconds"))
    if proven is not None and not np.isfinite(bound).any():  # proven at the end only
        bound = np.full(len(x), proven)
    top.plot(x, value, color=BLUE, label="objective")
    if np.isfinite(bound).any():
        top.plot(x, bound, color=ORANGE, label="proven bound")
        top.fill_between(x, bound, value, color=GREY, alpha=0.18)
        known = value[np.isfinite(value)]
        low, high = (known.min(), known.max()) if len(known) else (0.0, 0.0)
        if np.nanmin(bound) < low - FAR * (high - low) < low:  # says nothing yet
            top.yaxis.low, top.yaxis.high = low - (high - low), high + 0.05 * (high - low)
    top.legend(corner="best")
    top.name(y="objective")
    if _bounded(history, proven):
        _gap(below, x, history, proven)
    else:
        below.line_above_zero(x, column(history, "residual"), "residual")
    below.name(x="seconds" if timed else "round")
    if timed:
        below.log_x(x[np.isfinite(value)])


def _gap(axes: Axes, x: Array, history: Rows, proven: float | None) -> None:
    """Draw the gap of each round; where an algorithm proves none on its way, the distance to the
    bound proven at the end.
    """
    gap, late = column(history, "gap"), objectives(history) - (np.nan if proven is None else proven)
    axes.line_above_zero(x, gap if np.isfinite(gap).any() else late, "gap")


def _traffic(canvas: Canvas, history: Rows, proven: float | None) -> None:
    axes = canvas.one()
    sent = np.nancumsum(column(history, "bytes_up") + column(history, "bytes_down"))
    unit, scale = ("MB", 1e6) if sent[-1] >= 1e6 else ("kB", 1e3)
    _gap(axes, sent / scale, history, proven)
    axes.name(x=f"{unit} sent by all")


def _violations(canvas: Canvas, history: Rows, bound: float | None) -> None:
    """Draw the objective, and below it the largest violation and what is left unbalanced."""
    top, below = canvas.two()
    x = column(history, "round")
    top.plot(x, objectives(history), color=BLUE, label="objective")
    if bound is not None:
        top.axhline(bound, color=ORANGE, linewidth=1.2, label="proven bound")
    top.legend(corner="best")
    top.name(y="objective")
    lines = (("violation", "largest violation", PURPLE), ("residual", "residual", GREEN))
    for key, name, colour in lines:
        y = column(history, key)
        if (y > 1e-16).any():
            y = np.where(y > 1e-16, y, np.nan)
            below.plot(x, y, color=colour, markersize=2.5, label=name)
            below.yaxis.kind = LOG
    below.legend(corner="best")
    below.name(y="violation, residual", x="round")


# -------------------------------------------------------------------------------- simulated time

WINDOWS = 60  # of time
SLOWEST = 3  # clients that are named
NEAR, LATE = 1.01, "Within 1 % of that from"  # times the last loss
TIMED = {
    "reached": "Every model judged by this run's problem, on all training rows, by an observer that"
    " takes no time.",
    "active": "Above, how many clients answered in a window of time, and how many answers one step"
    " of the server had; below, how many steps old the oldest message was that was answered.",
    "planes": "How many vertices of the set of client weights the method keeps.",
}


def about_clock(run: Run) -> Section | None:
    """The virtual time of a run, and how good every model was when."""
    result, history, events = run.result, run.history, run.events
    if "clock" not in result:
        return None
    plots = {}
    if any(len(curve["time"]) > 1 for curve in result.get("reached", {}).values()):
        title = "Objective and largest risk of a client of every model by virtual time"
        plots["reached"] = Plot(title, 4.6, _objectives, (result,))
    if events is not None and len(events.times) and events.times.max() > 0:
        title = "Clients that answered, and the age of their messages, by virtual time"
        plots["active"] = Plot(title, 4.0, _active, (events, history))
    if np.isfinite(column(history, "planes")).any():
        plots["planes"] = Plot("Cutting planes by virtual time", 2.2, _planes, (history,))
    sentences = texts(time_in_words(result, run.config.engine))
    chapter = Chapter("clock", "Virtual time", [*sentences, drawn(TIMED, plots), *pace(result)])
    return Section([chapter], brief=sentences[:1])


def time_in_words(result: Result, engine: EngineSection) -> list[str]:
    """How much time passed, who answered how often, and what that means."""
    clock = result["clock"]
    slow = sorted(clock["by_client"].items(), key=lambda item: item[1])
    often = max(clock["by_client"].values())
    named = [f"{name} {count:,}" for name, count in slow[:SLOWEST] if count < often]
    gone = ", ".join(f"{name} at {number(time)}" for name, time in clock["crashed"].items())
    sentences = {
        f"The run took {number(clock['time'])} virtual seconds: {result['rounds']:,} steps of the"
        f" server, from {clock['answers']:,} answers. Its methods for answers that come at"
        f" different times wait for {engine.wait.words()}; others wait for every client. Virtual"
        " time passes on a simulated clock only: it compares methods on the same delays, and says"
        " nothing about the seconds of a machine.": True,
        f"The clients that answered least often: {', '.join(named)} times, against {often:,} of the"
        " quickest client.": named,
        f"Some clients never answered again: {gone} virtual seconds. Their last answers still"
        " count.": gone,
    }
    return all_true(sentences)


def pace(result: Result) -> list[Table]:
    """A row for every model: when it was done, after how many bytes, and when its worst client's
    loss came near its last one.
    """
    rows = []
    for name, curve in result.get("reached", {}).items():
        losses = curve["largest_risk"]
        near = next(k for k in range(len(losses)) if max(losses[k:]) <= NEAR * losses[-1])
        done, rounds, sent = (curve[key][-1] for key in ("time", "round", "bytes"))
        cells = (number(done), f"{rounds:,}", tables.size(sent), number(losses[-1]))
        rows.append((spaced(name), *cells, number(curve["time"][near])))
    heads = ("Model", "Virtual time", "Steps", "Sent", "Worst client's loss", LATE)
    return [table("Virtual time", heads, rows)] if rows else []


def _objectives(canvas: Canvas, result: Result) -> None:
    """Draw the objective of the run's problem, and below it the largest risk of a client."""
    reached, panels = result["reached"], canvas.two()
    for axes, key in zip(panels, ("objective", "largest_risk"), strict=True):
        for (name, curve), colour in zip(reached.items(), MODELS, strict=False):
            axes.plot(curve["time"], curve[key], color=colour, label=tables.printable(spaced(name)))
        values = np.concatenate([curve[key] for curve in reached.values()])
        if values.min() > 0 and values.max() > 20 * values.min():
            axes.yaxis.kind = LOG
    top, below = panels
    if (bound := result["certificate"]["bound"]) is not None:
        top.axhline(bound, color=INK, linewidth=0.9, linestyle=DASHED, label="proven bound")
    top.name(y="objective")
    below.name(y="worst client's loss", x="virtual seconds")
    if min(curve["time"][0] for curve in reached.values()) > 0:
        below.log_x(np.concatenate([curve["time"] for curve in reached.values()]))
    top.legend(min(4, len(reached) + 1))


def windows(events: Log) -> tuple[Array, Array]:
    """The edges of equal windows of time, and how many clients answered in each."""
    edges = np.linspace(0.0, float(events.times.max()), WINDOWS + 1)
    answers = np.column_stack([_window(edges, events.times), events.answered])
    return edges, np.bincount(np.unique(answers, axis=0)[:, 0], minlength=WINDOWS).astype(float)


def _window(edges: Array, time: Array) -> NDArray[np.intp]:
    """The window that each time lies in."""
    return np.clip(np.searchsorted(edges, time, side="left") - 1, 0, WINDOWS - 1)


def _active(canvas: Canvas, events: Log, history: Rows) -> None:
    """Draw who answered in every window, how many answers one step of the server had, and how old
    their messages were.
    """
    top, below = canvas.two()
    edges, distinct = windows(events)
    top.stairs(distinct, edges, color=BLUE, fill=True, alpha=0.25)
    top.stairs(distinct, edges, color=BLUE, label="answered")
    top.axhline(len(events.clients), color=GREY, linewidth=1, label="all")
    sizes = np.diff(events.ends, prepend=0).astype(float)
    ended = events.times[np.maximum(events.ends - 1, 0)]
    top.plot(*_largest(edges, ended, sizes), color=ORANGE, label="answers in a step")
    top.name(y="clients")
    top.legend(3)
    ages = column(history, "time"), column(history, "staleness")
    below.plot(*_largest(edges, *ages), color=PURPLE)
    below.name(y="oldest message, steps", x="virtual seconds")
    top.yaxis.low = below.yaxis.low = 0.0


def _largest(edges: Array, time: Array, values: Array) -> tuple[Array, Array]:
    """(middle, largest value) of every window that has one."""
    kept = np.isfinite(time) & np.isfinite(values)
    most = np.full(WINDOWS, -np.inf)
    np.maximum.at(most, _window(edges, time[kept]), values[kept])
    there = np.isfinite(most)
    return (0.5 * (edges[1:] + edges[:-1]))[there], most[there]


def _planes(canvas: Canvas, history: Rows) -> None:
    axes, x = canvas.one(), column(history, "time")
    axes.plot(x, column(history, "planes"), color=PURPLE, steps=True)
    axes.yaxis.low = 0.0
    axes.name(y="planes", x="virtual seconds")
