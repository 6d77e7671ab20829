"""The model and what it is compared with, on rows that none of them was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

from quorate.drawing import INK, MODELS, legend
from quorate.report import words
from quorate.report.figures import Plot
from quorate.report.sections.section import (
    Block,
    Chapter,
    Figure,
    Fold,
    Heading,
    Items,
    ReportSection,
    Row,
    Text,
    chapter,
    texts,
)
from quorate.report.tables import (
    Result,
    Rows,
    Table,
    by_set,
    capital,
    merit,
    number,
    of_rows,
    spaced,
    table,
)
from quorate.runs.run import Run

if TYPE_CHECKING:
    from quorate.drawing import Canvas

FAIRNESS = ("SPD", "DI", "EOD", "AOD", "FNRD", "TI")
ABOUT_FAIRNESS = (
    "All other clients minus the largest one: in how often they are predicted positive (SPD; DI is"
    " their ratio), in true positives (EOD), in the mean of true and false positives (AOD), in"
    " missed positives (FNRD). 0 means alike, for DI 1. TI is the Theil index of who is served"
    " well."
)
ABOUT_SPREAD = (
    "Every client counts once, however many rows it has. A model for the worst client weights"
    " should have a better worst client and a smaller deviation; what that costs is in the means."
)
ABOUT_PUBLIC = (
    "These rows are declared public: they are nobody's secret, so that this page may judge the"
    " model by them."
)


class Evaluation(ReportSection):
    """Whether the model does better on new rows, overall and for the worst client."""

    def applies(self, run: Run) -> bool:
        owners_part = words.private(run.result) and not words.public_part(run.result)
        return owners_part or bool(run.result["evaluation"]["measures"])

    def plots(self, run: Run) -> Mapping[str, Plot]:
        judged = run.result["evaluation"]["measures"]
        return {"evaluation": _plot(run.result)} if judged else {}

    def chapters(self, run: Run) -> list[Chapter]:
        result = run.result
        blocks: list[Block] = [*_answer(result)]
        if result["evaluation"]["measures"]:
            blocks += [Row((Figure("evaluation", _caption(result)), *measures(result)))]
        if tables := spread(result):
            blocks += [Heading("Spread over the clients"), Text(ABOUT_SPREAD), *tables]
        if tables := fairness(result):
            blocks += [Heading("Fairness between clients"), Text(ABOUT_FAIRNESS), *tables]
        comparisons = words.answer(result)[1:]
        if comparisons and not words.private(result):
            blocks += [Fold("Every comparison, row by row", (Items(tuple(comparisons)),))]
        return [chapter("evaluation", words.question(result), *blocks)]

    def brief(self, run: Run, columns: int) -> list[Block]:
        result, timed = run.result, "clock" in run.result
        tables = [*measures(result), *fairness(result), *spread(result)[: 1 if timed else 0]]
        if words.private(result):
            return [*tables, *_answer(result)]
        answer, pairs = words.answer(result), result["evaluation"]["pairs"]
        if not answer:
            return [*tables]
        # the answer, and for each set the comparison with the first other model
        first = [
            sentence
            for sentence, pair in zip(answer[1:], pairs, strict=True)
            if pair["other"] == pairs[0]["other"]
        ]
        return [*tables, Heading(words.question(result)), *texts([answer[0], *first])]


def _answer(result: Result) -> list[Text]:
    """The paragraphs that answer the chapter's question."""
    if words.public_part(result):
        return [Text(ABOUT_PUBLIC)]
    if words.private(result):
        return [*texts(words.cost(result))]
    return [Text(sentence, strong=True) for sentence in words.answer(result)[:1]]


def _caption(result: Result) -> str:
    """What the dots and ticks of the figure are."""
    if "risk" in result["evaluation"]["measures"][0]:
        risk = words.risk_words(result["risk"])
        return f"Dots: the {risk} of the losses of the set; ticks: their mean."
    return "Dots: all rows of the set; ticks: its worst client."


# ----------------------------------------------------------------------------------------- tables


def measures(result: Result) -> list[Table]:
    """Every model on each set of rows that none was trained on."""
    return [
        _measured(result, name, rows)
        for name, rows in by_set(result["evaluation"]["measures"]).items()
    ]


def _measured(result: Result, name: str, rows: Rows) -> Table:
    """One row a model, with its risk in place of the largest mean loss where there is a risk."""
    (key, show), ranked = merit(rows[0]), "risk" in rows[0]
    heads = {"model": "Model"}
    if ranked:
        heads["risk"] = capital(words.risk_called(result["risk"]))
    heads[key] = "Accuracy" if key == "accuracy" else "Mean absolute error"
    heads |= {f"worst_{key}": "Worst client", "loss": "Mean loss"}
    if not ranked:
        heads["worst_loss"] = "Worst client"
    lines = [
        {
            **row,
            f"worst_{key}": f"{show(row[f'worst_{key}'])} {row[f'worst_{key}_client']}",
            "worst_loss": f"{number(row['worst_loss'])} {row['worst_loss_client']}",
        }
        for row in rows
    ]
    title = f"{capital(name)} ({rows[0]['n']} rows)"
    return of_rows(title, lines, heads, {"model": spaced, key: show})


def fairness(result: Result) -> list[Table]:
    """The fairness metrics of every model, the largest client against all others, on each set of
    several clients.
    """
    judged = [row for row in result["evaluation"]["measures"] if row.get("fairness")]
    heads, tables = {"model": "Model"} | {key: key for key in FAIRNESS}, []
    for name, rows in by_set(judged).items():
        lines = [row["fairness"] | {"model": spaced(row["model"])} for row in rows]
        title = f"Fairness on {name}: {rows[0]['fairness']['privileged']} against all others"
        tables.append(of_rows(title, lines, heads))
    return tables


def spread(result: Result) -> list[Table]:
    """The worst, mean and standard deviation over clients of every model, on each set of several
    clients.
    """
    if "risk" in result or words.constrained(result) or words.private(result):
        return []
    rows = [row for row in result["evaluation"]["measures"] if len(row["clients"]) > 1]
    return [_spread(name, models) for name, models in by_set(rows).items()]


def _spread(name: str, rows: Rows) -> Table:
    key, show = merit(rows[0])
    worst = min if key == "accuracy" else max
    cells = []
    for row in rows:
        rates, losses = ([client[each] for client in row["clients"]] for each in (key, "loss"))
        # every client counts once, and they are all there are: no deviation of a sample
        judged = map(show, (worst(rates), fmean(rates), pstdev(rates)))
        lost = map(number, (max(losses), fmean(losses), pstdev(losses)))
        cells.append((spaced(row["model"]), *judged, *lost))
    columns = ("Model", f"Worst {key}", f"Mean {key}", "Deviation")
    columns += ("Worst loss", "Mean loss", "Deviation")
    return table(f"Over the {len(rows[0]['clients'])} clients of {name}", columns, cells)


# ----------------------------------------------------------------------------------------- figure


def _plot(result: Result) -> Plot:
    rows, risk = result["evaluation"]["measures"], result.get("risk")
    height = 1.2 + 0.2 * len(rows) + 0.25 * len(by_set(rows))
    if "risk" in rows[0] and risk is not None:
        title = f"{capital(risk['name'])} and mean of the losses by model"
        axis = f"loss; dots: {risk['name']}"
        return Plot(title, height, _dots, (rows, ("risk", "loss"), "mean loss", axis))
    key, _ = merit(rows[0])
    axis = "accuracy in %" if key == "accuracy" else "mean absolute error"
    title = f"{capital(key)} by model, on all rows and at the worst client"
    keys = (key, f"worst_{key}")
    return Plot(title, height, _dots, (rows, keys, "worst client", axis))


def _dots(canvas: Canvas, rows: Rows, keys: tuple[str, str], tick: str, axis: str) -> None:
    """Draw a dot for all rows and a line to the tick; the sets one below the other. There are no
    bars, since the axis may start above 0.
    """
    axes, (dot, other) = canvas.subplots(), keys
    scale = 100.0 if dot == "accuracy" else 1.0
    places, heads = _places(rows)
    models = list(dict.fromkeys(row["model"] for row in rows))
    for model, colour in zip(models, MODELS, strict=False):
        lines = [(y, row) for y, row in zip(places, rows, strict=True) if row["model"] == model]
        y = [place for place, _ in lines]
        dots, ends = ([scale * row[key] for _, row in lines] for key in (dot, other))
        axes.hlines(y, ends, dots, color=colour, linewidth=2)
        axes.scatter(dots, y, s=42, color=colour, label=spaced(model), zorder=3)
    ticks = [scale * row[other] for row in rows]
    axes.scatter(ticks, places, marker="|", s=90, color=INK, linewidths=1.6, label=tick, zorder=4)
    names = [name.replace(", ", ",\n").replace(" ", "\n", 1) for name in heads]
    axes.set_yticks([*heads.values()], names)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(axis)
    legend(axes, len(models) + 1, last=("worst client",))


def _places(rows: Rows) -> tuple[list[float], dict[str, float]]:
    """The height of every row, and of the middle of every set by its name."""
    top, places, middles = 0.0, [], {}
    for name, models in by_set(rows).items():
        middles[name] = top - (len(models) - 1) / 2
        places += [top - k for k in range(len(models))]
        top -= len(models) + 0.8
    return places, middles
