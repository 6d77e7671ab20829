"""How good the model is on rows that it was not trained on, and for whom it is bad."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bonafed.drawing import GREY, INK, label, shades
from bonafed.measures import Figure, figures_of
from bonafed.report.figures import Plot
from bonafed.report.sections.evaluation import by_client
from bonafed.report.sections.section import Block, Chapter, Fold, ReportSection, Row, Text, chapter
from bonafed.report.sections.section import Figure as Place
from bonafed.report.tables import Record, Table, Way, number, of_rows, own_measures, percent, table
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.drawing import Axes, Canvas

FEW = 8  # clients whose curves are told apart
OPEN = 12  # clients of a table that is shown without a click
ABOUT_CLIENTS = "The worst come first. In brackets: the exact 95 % interval of a rate, in percent."
CELLS = {"tp": "{1}, found", "fn": "{1}, missed", "fp": "{0}, false alarm", "tn": "{0}, left alone"}
SHOWN: dict[str, Way] = {"percent": percent, "area": "{:.3f}".format, "number": number}
ROC = Place(
    "roc",
    "ROC: recall against false alarms, as the cut of the score moves. The thick line is all rows,"
    " thin ones are clients; the diagonal is chance.",
)
CALIBRATION = Place(
    "calibration",
    "Calibration: where 30 % are predicted, 30 % should be. The thick line is all rows, thin ones"
    " are clients, with fewer rows each; dots are groups of rows, larger where there are more; the"
    " diagonal is perfect.",
)


class Quality(ReportSection):
    """The figures of the model on its first set of new rows, over all and by client."""

    def applies(self, run: Run) -> bool:
        return bool(own_measures(run.result))

    def plots(self, run: Run) -> Mapping[str, Plot]:
        curves = (judged := own_measures(run.result)[0]).get("curves") or {}
        drawn = {}
        if curves.get("roc"):
            drawn["roc"] = Plot("ROC curve over all rows, and by client", 3.6, _roc, (judged,))
        if curves.get("reliability"):
            title = "Share of positive rows by predicted probability, and by client"
            drawn["calibration"] = Plot(title, 3.6, _calibration, (judged,))
        return drawn

    def chapters(self, run: Run) -> list[Chapter]:
        result = run.result
        judged, classes = own_measures(result)[0], run.model["classes"]
        good: list[Block] = [Text(goodness(run)), Row((ROC, CALIBRATION))]
        good += [*_figures(judged, classes), *_confusion([judged], classes)]
        bad: list[Block] = [Text(badness(run)), *_by_client(run)]
        if len(judged["clients"]) > 1:
            bad += [_folded(each) for each in _confusion(judged["clients"], classes)]
        return [
            chapter("quality", "How good is the model?", *good),
            chapter("whom", "For whom is it bad?", *bad),
        ]


def _folded(each: Table) -> Block:
    return each if len(each.rows) <= OPEN else Fold(each.title, (each,))


# ------------------------------------------------------------------------------------------- words


def goodness(run: Run) -> str:
    """How good the model is, in one sentence."""
    judged = own_measures(run.result)[0]
    said = [
        f"{spoken(figure)} {SHOWN[figure.shown](judged[figure.key])}{_within(judged, figure.key)}"
        for figure in first_figures(judged)
    ]
    text = f"On {_rows(judged)}: {', '.join(said)}."
    if judged.get("recall") is not None and (classes := run.model["classes"]):
        text += f" It finds {percent(judged['recall'])} of the rows of {classes[1]}"
        precise = judged.get("precision")
        text += (
            "."
            if precise is None
            else f", and is right in {percent(precise)} of those that it calls {classes[1]}."
        )
    return text


def first_figures(judged: Record) -> list[Figure]:
    """The figures of rows that a reader asks for first."""
    return [f for f in figures_of() if f.beside and judged.get(f.key) is not None]


def spoken(figure: Figure) -> str:
    """What a figure is called in a sentence."""
    return figure.title if figure.title.isupper() else figure.title.lower()


def _rows(judged: Record) -> str:
    return f"{judged['n']:,} {judged['set']}"


def _within(judged: Record, key: str) -> str:
    bounds = (judged.get("interval") or {}).get(key)
    return f" (95 % interval {_range(bounds)})" if bounds else ""


def _range(bounds: Sequence[float]) -> str:
    low, high = bounds
    return f"{100 * low:.1f} to {100 * high:.1f}"


def badness(run: Run) -> str:
    """For which client the model is worst, and whether that can be chance."""
    judged = own_measures(run.result)[0]
    clients = judged["clients"]
    if len(clients) < 2:
        return "There is one client, so that nobody can be served worse than another."
    key = "error" if "error" in judged else "accuracy"
    show = number if key == "error" else percent
    able = [row for row in clients if not row.get("small")] or clients  # others are mostly chance
    worst = (max if key == "error" else min)(able, key=lambda row: row[key])
    best = (min if key == "error" else max)(able, key=lambda row: row[key])
    if worst[key] == best[key]:
        return f"It does equally well at {len(able)} clients: {key} {show(worst[key])}."
    called = "mean absolute error" if key == "error" else key
    text = (
        f"It does worst at {worst['client']}, with {called} {show(worst[key])} on {worst['n']}"
        f" rows, and best at {best['client']}, with {show(best[key])} on {best['n']}."
    )
    bounds = (worst.get("interval") or {}).get(key)
    if bounds:
        inside = bounds[0] <= judged[key] <= bounds[1]
        text += (
            f" The 95 % interval at {worst['client']} is {_range(bounds)} %, which "
            + ("includes" if inside else "excludes")
            + f" the {show(judged[key])} of all rows"
            + (": chance may explain the difference." if inside else ".")
        )
    return text


# ------------------------------------------------------------------------------------------ tables


def _figures(judged: Record, classes: Sequence[object] | None) -> list[Table]:
    """Every figure over all rows with its interval and its meaning."""
    named = {"positive": "a class", "negative": "another"}
    if classes and len(classes) == 2:
        named = {"negative": str(classes[0]), "positive": str(classes[1])}
    rows = []
    for figure in figures_of() if "small" in judged else ():
        if (value := judged.get(figure.key)) is None:
            continue
        bounds = (judged.get("interval") or {}).get(figure.key)
        within = _range(bounds) if bounds else ""
        name, meaning = figure.short or figure.title, figure.meaning.format(**named)
        rows.append((name, SHOWN[figure.shown](value), within, meaning))
    if not rows:
        return []
    title = f"All {_rows(judged)}"
    return [table(title, ("Figure", "Value", "95 % interval", "Meaning"), rows, (0, 3), (3,))]


def _by_client(run: Run) -> list[Block]:
    """The figures of every client on each set, the worst first; those of the first set open."""
    if not (tables := by_client(run)):
        return []
    first, *others = tables
    blocks: list[Block] = [Text(ABOUT_CLIENTS), first.first(OPEN)]
    if len(first.rows) > OPEN:
        rest = replace(
            first, title=f"The other {len(first.rows) - OPEN} clients", rows=first.rows[OPEN:]
        )
        blocks.append(Fold(rest.title, (rest,)))
    return blocks + ([Fold("Clients of other sets", tuple(others))] if others else [])


def _confusion(rows: Sequence[Record], classes: Sequence[object] | None) -> list[Table]:
    """Who was predicted what: of two classes a row of four counts a client, of several a matrix of
    all rows.
    """
    cells = rows[0].get("confusion")
    if not cells or not classes:
        return []
    if isinstance(cells, Mapping):
        heads = {"client": "Client"} | {key: head.format(*classes) for key, head in CELLS.items()}
        lines = [{"client": "All", **row, **row["confusion"]} for row in rows]
        return [of_rows("Right and wrong predictions", lines, heads)]
    if len(rows) > 1:
        return []
    lines = [
        (f"is {name}", *map(number, counts)) for name, counts in zip(classes, cells, strict=True)
    ]
    heads = ("", *(f"as {name}" for name in classes))
    return [table("Right and wrong predictions", heads, lines)]


# ----------------------------------------------------------------------------------------- figures


def _square(axes: Axes, across: str, up: str) -> None:
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=0.8)
    axes.set(xlim=(-2, 102), ylim=(-2, 102), aspect="equal", xlabel=across, ylabel=up)


def _roc(canvas: Canvas, judged: Record) -> None:
    axes = canvas.subplots()
    _square(axes, "false alarms in %", "recall in %")
    _clients(axes, judged, "roc")
    x, y = _percents(judged["curves"]["roc"])
    axes.plot(x, y, color=INK, linewidth=2.2, clip_on=False, label="all rows")
    axes.legend(loc="lower right", fontsize="small")


def _calibration(canvas: Canvas, judged: Record) -> None:
    axes = canvas.subplots()
    _square(axes, "predicted probability in %", "positive rows in %")
    _clients(axes, judged, "reliability")
    groups = judged["curves"]["reliability"]
    x, y = _percents(groups)
    most = max(group[2] for group in groups)
    sizes = [10 + 70 * group[2] / most for group in groups]
    axes.plot(x, y, color=INK, linewidth=2.2, label="all rows")
    axes.scatter(x, y, s=sizes, color=INK, zorder=3, clip_on=False)
    axes.legend(loc="upper left", fontsize="small")


def _clients(axes: Axes, judged: Record, part: str) -> None:
    """A thin line for every client that has this curve; a few clients are told apart by colour."""
    lines = [(row["client"], (row.get("curves") or {}).get(part)) for row in judged["clients"]]
    lines = [(name, curve) for name, curve in lines if curve] if len(lines) > 1 else []
    named = len(lines) <= FEW
    colours = shades(len(lines)) if named else [GREY] * len(lines)
    for (name, curve), colour in zip(lines, colours, strict=True):
        text, faint = label(name) if named else None, 1.0 if named else 0.35
        axes.plot(*_percents(curve), color=colour, linewidth=1.0, alpha=faint, label=text)


def _percents(curve: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """The first two numbers of every point, in percent."""
    return [100 * point[0] for point in curve], [100 * point[1] for point in curve]
