"""How good the model is on rows that it was not trained on, for whom it is bad, and how the models
do that it is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev

from bonafed.drawing import GREY, MODELS, label
from bonafed.measures import FEW_OF_A_CLASS, FEW_ROWS, TWO, figures_of
from bonafed.measures import Figure as Measure
from bonafed.report import blocks, tables, words
from bonafed.report.blocks import Block, Chapter, Figure, Fold, Plot, Section, Text, drawn, texts
from bonafed.report.canvas import INK, Axes, Canvas, shades
from bonafed.report.tables import Record, Result, Rows, Table, Way, number, percent
from bonafed.runs.comparison import ERROR
from bonafed.runs.sections.section import Run
from bonafed.worst_client import in_words, worst_first
from bonafed.worst_client import shown as bound_of

GOOD, WHOM = "How good is the model?", "For whom is it bad?"
NAMED = 6  # classes or clients that a line names
FEW = 8  # clients whose curves are told apart
OPEN = 12  # clients of a table that is shown without a click
ABOUT_CLIENTS = "The worst come first."
ABOUT_BOUNDS = (
    " In brackets: what each figure is on new rows, with 95 % confidence for all lines of a column"
    " at once."
)
CELLS = {"tp": "{1}, found", "fn": "{1}, missed", "fp": "{0}, false alarm", "tn": "{0}, left alone"}
SHOWN: dict[str, Way] = {"percent": percent, "area": "{:.3f}".format, "number": number}
CURVES = {
    "roc": "ROC: recall against false alarms, as the cut of the score moves. The thick line is all"
    " rows, thin ones are clients; the diagonal is chance.",
    "calibration": "Calibration: where 30 % are predicted, 30 % should be. The thick line is all"
    " rows, thin ones are clients, with fewer rows each; dots are groups of rows, larger where"
    " there are more; the diagonal is perfect.",
}
FAIRNESS = ("SPD", "DI", "EOD", "AOD", "FNRD", "TI")
ABOUT_FAIRNESS = (
    "All other clients minus the largest one: in how often they are predicted positive (SPD; DI is"
    " their ratio), in true positives (EOD), in the mean of true and false positives (AOD), in"
    " missed positives (FNRD). 0 means alike, for DI 1. TI is the Theil index of who is served"
    " well."
)
ABOUT_INTERVALS = (
    "Intervals of rates are exact (Clopper and Pearson): they miss the true rate in at most 5 % of"
    " samples. Brier score and log loss judge probabilities; the mean loss is that of the problem."
)
ABOUT_SPREAD = (
    "Every client counts once, however many rows it has. A model for the worst client weights"
    " should have a better worst client and a smaller deviation; what that costs is in the means."
)
ABOUT_PUBLIC = "These rows are declared public: so that this page may judge the model by them."


# ------------------------------------------------------------------------- the model of the run


def about_quality(run: Run) -> Section | None:
    """The figures of the model on its first set of new rows, over all and by client."""
    if not (rows := tables.own_measures(run.result)):
        return None
    judged, classes = rows[0], run.model["classes"]
    curves, plots = judged.get("curves") or {}, {}
    if curves.get("roc"):
        plots["roc"] = Plot("ROC curve over all rows, and by client", 3.6, _roc, (judged,))
    if curves.get("reliability"):
        title = "Share of positive rows by predicted probability, and by client"
        plots["calibration"] = Plot(title, 3.6, _calibration, (judged,))
    good: list[Block] = [Text(goodness(run)), drawn(CURVES, plots), *_all_rows(judged, classes)]
    good += _confusion([judged], classes)
    bad: list[Block] = [Text(badness(run)), *_clients(run)]
    for each in _confusion(judged["clients"], classes) if len(judged["clients"]) > 1 else ():
        bad.append(each if len(each.rows) <= OPEN else Fold(each.title, [each]))
    return Section([Chapter("quality", GOOD, good), Chapter("whom", WHOM, bad)])


def goodness(run: Run) -> str:
    """How good the model is, in a sentence or two."""
    judged = tables.own_measures(run.result)[0]
    said = []
    for figure in first_figures(judged):
        value, within = SHOWN[figure.shown](judged[figure.key]), _range(judged, figure.key)
        said.append(f"{figure.spoken} {value}" + f" (95 % interval {within})" * bool(within))
    text = f"On {judged['n']:,} {judged['set']}: {', '.join(said)}."
    if judged.get("recall") is not None and (classes := run.model["classes"]):
        text += f" It finds {percent(judged['recall'])} of the rows of {classes[1]}"
        if (right := judged.get("precision")) is not None:
            text += f", and is right in {percent(right)} of those that it calls {classes[1]}"
        text += "."
    unknown = judged.get("unstated") == "persons"
    if judged.get("promise", {}).get("people", False):
        text += " Intervals are of one row of each person."
    return text + " Intervals count rows: they are too narrow where persons have several." * unknown


def first_figures(judged: Record) -> list[Measure]:
    """The figures of rows that a reader asks for first."""
    return [f for f in figures_of() if f.beside and judged.get(f.key) is not None]


def _range(judged: Record, key: str) -> str:
    """The interval of a figure in percent; nothing where it has none."""
    bounds = (judged.get("interval") or {}).get(key)
    return f"{100 * bounds[0]:.1f} to {100 * bounds[1]:.1f}" if bounds else ""


def badness(run: Run) -> str:
    """For which client the model is worst, whether that can be chance, and what holds at every
    client.
    """
    judged = tables.own_measures(run.result)[0]
    return f"{_worst_client(judged)} {in_words(judged)}"


def _worst_client(judged: Record) -> str:
    clients, (key, show) = judged["clients"], tables.merit(judged)
    if len(clients) < 2:
        return "There is one client, so that nobody can be served worse than another."
    worst, *_, best = worst_first(clients, key, key != "error")
    if worst[key] == best[key]:
        return f"It does equally well at {len(clients)} clients: {key} {show(worst[key])}."
    called = "mean absolute error" if key == "error" else key
    return (  # what holds on new rows follows, for the worst and all others at once
        f"It does worst at {worst['client']}, with {called} {show(worst[key])} on {worst['n']}"
        f" rows, and best at {best['client']}, with {show(best[key])} on {best['n']}."
        f" {_by_chance(clients, worst['client'])}"
    )


def _by_chance(clients: Rows, worst: str) -> str:
    """Where the errors are more than chance explains, however many clients there are."""
    if "chance" not in clients[0]:
        return "Whether chance explains the difference is not tested."
    named = [row["client"] for row in clients if row["chance"] < ERROR]
    tests = f"exact tests against all other rows, corrected for {len(clients)} clients"
    if not named:
        return f"Chance may explain the difference ({tests})."
    more = f" and {len(named) - NAMED} more" * (len(named) > NAMED)
    text = f"Chance does not explain the errors at {', '.join(named[:NAMED])}{more} ({tests})."
    return text + f" At {worst} it may." * (worst not in named)


def _all_rows(judged: Record, classes: Sequence[object] | None) -> list[Table]:
    """Every figure over all rows with its interval and its meaning."""
    two = classes if classes and len(classes) == 2 else ("another", "a class")
    named = dict(zip(("negative", "positive"), map(str, two), strict=True))
    rows, title = [], f"All {judged['n']:,} {judged['set']}"
    for figure in figures_of() if "small" in judged else ():
        if (value := judged.get(figure.key)) is not None:
            name, within = figure.short or figure.title, _range(judged, figure.key)
            meaning = figure.meaning.format(**named)
            rows.append((name, SHOWN[figure.shown](value), within, meaning))
    heads = ("Figure", "Value", "95 % interval", "Meaning")
    return [tables.table(title, heads, rows, (0, 3), (3,))] if rows else []


def _clients(run: Run) -> list[Block]:
    """The figures of every client on each set, the worst first; those of the first set open."""
    if not (made := by_client(run)):
        return []
    first, *others = made
    about = ABOUT_CLIENTS + ABOUT_BOUNDS * ("promise" in tables.own_measures(run.result)[0])
    body: list[Block] = [Text(about), replace(first, rows=first.rows[:OPEN])]
    if len(first.rows) > OPEN:
        title = f"The other {len(first.rows) - OPEN} clients"
        body.append(Fold(title, [replace(first, title=title, rows=first.rows[OPEN:])]))
    return body + ([Fold("Clients of other sets", others)] if others else [])


def by_client(run: Run) -> list[Table]:
    """The figures of the model at every client, on each set of several clients, the worst first:
    from the lowest accuracy or the largest error.
    """
    found = []
    for row in tables.own_measures(run.result):
        figures, (key, _) = _figures(run, row), tables.merit(row)
        if len(row["clients"]) < 2 or "small" not in row:
            continue
        clients = worst_first(row["clients"], key, key != "error")
        lines = [_line(client, figures) for client in clients]
        heads = {"client": "Client", "n": "Rows", "positives": "Positives"}
        heads |= {key: head for key, (head, _) in figures.items()}
        title = f"Every client of {row['set']}, under {tables.spaced(row['model'])}"
        found.append(tables.of_rows(title, lines, tables.filled(heads, lines)))
    return found


def _line(client: Record, figures: Mapping[str, tuple[str, Way]]) -> Record:
    shown = {key: show(client[key]) for key, (_, show) in figures.items()}
    for key in shown.keys() & client.get("bounds", {}).keys():
        if client[key] is not None:
            figure = tables.in_tables()[key]
            sign, bound = "≥" if figure.higher else "≤", bound_of(figure, client["bounds"][key])
            shown[key] = f"{shown[key]} ({sign} {bound})"
    counts = {key: client.get(key) for key in ("n", "positives")}
    return {"client": client["client"] + " (small)" * client["small"], **counts, **shown}


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
        return [tables.of_rows("Right and wrong predictions", lines, heads)]
    if len(rows) > 1:
        return []
    lines = [(f"is {name}", *map(number, row)) for name, row in zip(classes, cells, strict=True)]
    heads = ("", *(f"as {name}" for name in classes))
    return [tables.table("Right and wrong predictions", heads, lines)]


# ---------------------------------------------------------------------- beside the other models


def about_evaluation(run: Run) -> Section | None:
    """Whether the model does better on new rows than others, overall and for the worst client."""
    result = run.result
    judged, private = result["evaluation"]["measures"], words.private(result)
    owners_part = private and not words.public_part(result)
    if not judged and not owners_part:
        return None
    body: list[Block] = [Text(answer, strong=True) for answer in words.answer(result)[:1]]
    if private:
        body = texts(words.cost(result) if owners_part else [ABOUT_PUBLIC])
    if judged:
        body += [_drawn(result), *measures(run), Text(ABOUT_INTERVALS, soft=True)]
        body += [*small(result), *not_of_all(result)]
    if made := spread(result):
        body += [blocks.Heading("Spread over the clients"), Text(ABOUT_SPREAD), *made]
    if made := fairness(result):
        body += [blocks.Heading("Fairness between clients"), Text(ABOUT_FAIRNESS), *made]
    if not private and (comparisons := words.answer(result)[1:]):
        body += [Fold("Every comparison, row by row", [blocks.Items(comparisons)])]
    brief = texts(words.cost(result)[:2]) if owners_part else []
    return Section([Chapter("evaluation", words.question(result), body)], brief=brief)


def measures(run: Run) -> list[Table]:
    """Every model on each set of rows that none was trained on, one row a figure: the model of the
    run with its interval and its worst client, then the others.
    """
    found = []
    for name, (main, *others) in tables.by_set(run.result["evaluation"]["measures"]).items():
        several, lines = len(main["clients"]) > 1, []
        for key, (head, show) in _figures(run, main).items():
            low, high = main.get("interval", {}).get(key, (None, None))
            line = {"figure": head, "main": show(main[key])}
            line["interval"] = "" if low is None else f"{100 * low:.1f}–{100 * high:.1f} %"
            line["worst"] = _worst(main, key, show) if several else ""
            lines.append(line)
            line |= {str(k): show(row[key]) for k, row in enumerate(others)}
            if several and f"worst_{key}" in main:
                line["worst"] = ""
                worst = {"figure": f"{head}, worst client", "worst": main[f"worst_{key}_client"]}
                shown = {str(k): show(row[f"worst_{key}"]) for k, row in enumerate(others)}
                lines.append(worst | shown | {"main": show(main[f"worst_{key}"]), "interval": ""})
        heads = {"figure": "Figure", "main": tables.spaced(main["model"])}
        heads |= tables.filled({"interval": "95 % interval", "worst": "Worst client"}, lines)
        heads |= {str(k): tables.spaced(row["model"]) for k, row in enumerate(others)}
        title = f"{tables.capital(name)} ({_counts(run, main)})"
        found.append(tables.of_rows(title, lines, heads, text=["worst"]))
    return found


def _figures(run: Run, row: Record) -> dict[str, tuple[str, Way]]:
    """What a row of measures has of the figures, in the order in which people ask for them."""
    risk, positive = run.result.get("risk"), _classes(run)[-1:]
    of = f" of {positive[0]}" if positive and "recall" in row else ""
    called = "" if risk is None else tables.capital(words.risk_called(risk))
    figures: dict[str, tuple[str, Way]] = {"risk": (called, number)}
    for key, figure in tables.in_tables().items():
        title = figure.title + of * (figure.tasks == (TWO,) and "{positive}" in figure.meaning)
        figures[key] = title, percent if figure.shown == "percent" else number
    figures["loss"] = ("Mean loss", number)
    return {key: figure for key, figure in figures.items() if key in row}


def _classes(run: Run) -> list[str]:
    """The names of the classes, the positive one last; nothing for numbers."""
    return list(map(str, run.model["classes"] or []))


def _counts(run: Run, row: Record) -> str:
    """How many rows a set has, and how many of each class."""
    names, counts = _classes(run), row.get("counts") or []
    if "positives" in row:
        counts = [row["n"] - row["positives"], row["positives"]]
    said = [f"{n:,} {c}" for c, n in zip(names, counts, strict=False)]
    return f"{row['n']:,} rows" + f": {', '.join(said)}" * (0 < len(said) <= NAMED)


def _worst(row: Record, key: str, show: Way) -> str:
    """The worst client with its figure; small clients only where the figure has a bound."""
    bounded = {} if "promise" not in row else row["promise"]["figures"]
    able = [each for each in row["clients"] if not each.get("small") or key in bounded]
    figure = tables.in_tables().get(key)
    worst = worst_first(able, key, figure is not None and figure.higher)[:1]
    return "".join(f"{show(each[key])} {each['client']}" for each in worst)


def small(result: Result) -> list[Text]:
    """Which clients have too few rows for their own figures."""
    rows = tables.own_measures(result)
    names = {each["client"]: None for row in rows for each in row["clients"] if each.get("small")}
    if not names:
        return []
    more = f" and {len(names) - NAMED} more" * (len(names) > NAMED)
    text = (
        f"Small clients on some set (fewer than {FEW_ROWS} rows, or {FEW_OF_A_CLASS} of a class),"
        f" whose figures are mostly chance: {', '.join([*names][:NAMED])}{more}. They are named as"
        " the worst client only by mean loss, by error, and by figures with a bound."
    )
    return [Text(text, soft=True)]


def not_of_all(result: Result) -> list[Text]:
    """Which figures a run over sites does not have of all held-out rows, and why."""
    judged = tables.own_measures(result) if words.at_sites(result) else []
    lacking = [each.lacking for each in figures_of() if each.key in judged[0]] if judged else []
    said = "; ".join(filter(None, lacking))
    return [Text(f"Not stated of the rows of all sites: {said}.", soft=True)] if said else []


def fairness(result: Result) -> list[Table]:
    """The fairness metrics of every model, the largest client against all others, on each set of
    several clients.
    """
    judged = [row for row in result["evaluation"]["measures"] if row.get("fairness")]
    heads, found = {"model": "Model"} | {key: key for key in FAIRNESS}, []
    for name, rows in tables.by_set(judged).items():
        lines = [row["fairness"] | {"model": tables.spaced(row["model"])} for row in rows]
        title = f"Fairness on {name}: {rows[0]['fairness']['privileged']} against all others"
        found.append(tables.of_rows(title, lines, heads))
    return found


def spread(result: Result) -> list[Table]:
    """The worst, mean and standard deviation over clients of every model, on each set of several
    clients.
    """
    if "risk" in result or words.constrained(result) or words.private(result):
        return []
    judged = [row for row in result["evaluation"]["measures"] if len(row["clients"]) > 1]
    found = []
    for name, rows in tables.by_set(judged).items():
        (key, show), cells = tables.merit(rows[0]), []
        for row in rows:
            rates, losses = ([client[each] for client in row["clients"]] for each in (key, "loss"))
            # every client counts once, and they are all there are: no deviation of a sample
            of_rates = map(show, (row[f"worst_{key}"], fmean(rates), pstdev(rates)))
            of_losses = map(number, (row["worst_loss"], fmean(losses), pstdev(losses)))
            cells.append((tables.spaced(row["model"]), *of_rates, *of_losses))
        heads = ("Model", f"Worst {key}", f"Mean {key}", "Deviation")
        heads += ("Worst loss", "Mean loss", "Deviation")
        title = f"Over the {len(rows[0]['clients'])} clients of {name}"
        found.append(tables.table(title, heads, cells))
    return found


# ---------------------------------------------------------------------------------------- figures


def _drawn(result: Result) -> Figure:
    """Every model on each set of rows."""
    rows, risk = result["evaluation"]["measures"], result.get("risk")
    key, _ = tables.merit(rows[0])
    title = f"{tables.capital(key)} by model, on all rows and at the worst client"
    caption = "Dots: all rows of the set; ticks: its worst client."
    axis = "accuracy in %" if key == "accuracy" else "mean absolute error"
    keys, tick = (key, f"worst_{key}"), "worst client"
    if "risk" in rows[0] and risk is not None:
        title = f"{tables.capital(risk['name'])} and mean of the losses by model"
        caption = f"Dots: the {words.risk_words(risk)} of the losses of the set; ticks: their mean."
        axis, keys, tick = f"loss; dots: {risk['name']}", ("risk", "loss"), "mean loss"
    height = 1.2 + 0.2 * len(rows) + 0.25 * len(tables.by_set(rows))
    return Figure("evaluation", caption, Plot(title, height, _dots, (rows, keys, tick, axis)))


def _dots(canvas: Canvas, rows: Rows, keys: tuple[str, str], tick: str, axis: str) -> None:
    """Draw a dot for all rows and a line to the tick; the sets one below the other. There are no
    bars, since the axis may start above 0.
    """
    axes, (dot, other) = canvas.one(), keys
    scale = 100.0 if dot == "accuracy" else 1.0
    top, places, heads = 0.0, [], {}  # heights of every row, and of the middle of every set
    for name, models in tables.by_set(rows).items():
        heads[name] = top - (len(models) - 1) / 2
        places += [top - k for k in range(len(models))]
        top -= len(models) + 0.8
    models = list(dict.fromkeys(row["model"] for row in rows))
    for model, colour in zip(models, MODELS, strict=False):
        lines = [(y, row) for y, row in zip(places, rows, strict=True) if row["model"] == model]
        y = [place for place, _ in lines]
        dots, ends = ([scale * row[key] for _, row in lines] for key in (dot, other))
        axes.hlines(y, ends, dots, color=colour, linewidth=2)
        axes.scatter(dots, y, s=42, color=colour, label=tables.spaced(model), zorder=3)
    ticks = [scale * row[other] for row in rows]
    axes.scatter(ticks, places, marker="|", s=90, color=INK, label=tick, zorder=4)
    names = [name.replace(", ", ",\n").replace(" ", "\n", 1) for name in heads]
    axes.rows([*heads.values()], names)
    # no dot on the axis, where one set is
    axes.yaxis.low, axes.yaxis.high = min(places) - 0.6, max(places) + 0.6
    axes.name(x=axis)
    axes.legend(len(models) + 1, last=("worst client",))


def _roc(canvas: Canvas, judged: Record) -> None:
    axes = _square(canvas, "false alarms in %", "recall in %", judged, "roc")
    x, y = _percents(judged["curves"]["roc"])
    axes.plot(x, y, color=INK, linewidth=2.2, label="all rows")
    axes.legend(corner="lower right")


def _calibration(canvas: Canvas, judged: Record) -> None:
    heads = ("predicted probability in %", "positive rows in %")
    axes, groups = _square(canvas, *heads, judged, "reliability"), judged["curves"]["reliability"]
    x, y = _percents(groups)
    most = max(group[2] for group in groups)
    sizes = [10 + 70 * group[2] / most for group in groups]
    axes.plot(x, y, color=INK, linewidth=2.2, label="all rows")
    axes.scatter(x, y, s=sizes, color=INK, zorder=3)
    axes.legend(corner="upper left")


def _square(canvas: Canvas, across: str, up: str, judged: Record, part: str) -> Axes:
    """Axes in percent, with a thin line for every client that has this curve; a few clients are
    told apart by colour.
    """
    axes = canvas.one()
    axes.plot([0, 100], [0, 100], color=GREY, linewidth=0.8)
    axes.square = True
    for each in (axes.xaxis, axes.yaxis):
        each.low, each.high = -2.0, 102.0
    axes.name(x=across, y=up)
    lines = [(row["client"], (row.get("curves") or {}).get(part)) for row in judged["clients"]]
    lines = [(name, curve) for name, curve in lines if curve] if len(lines) > 1 else []
    named = len(lines) <= FEW
    colours = shades(len(lines)) if named else [GREY] * len(lines)
    for (name, curve), colour in zip(lines, colours, strict=True):
        text, faint = label(name) if named else None, 1.0 if named else 0.35
        axes.plot(*_percents(curve), color=colour, linewidth=1.0, alpha=faint, label=text)
    return axes


def _percents(curve: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """The first two numbers of every point, in percent."""
    return [100 * point[0] for point in curve], [100 * point[1] for point in curve]
