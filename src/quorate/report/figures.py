"""The figures of a report as SVG text. Matplotlib is used in this file only, without its global state.

Lines and letters take the colour of the page (``currentColor``), so that one file suits light and dark; letters stay
text. Equal runs give equal bytes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from quorate.arrays import Array
from quorate.report.tables import people, printable

INK = "#010203"  # becomes currentColor
BLUE, ORANGE, GREEN, PURPLE, GREY = "#3b82c4", "#d97a1e", "#3f9a62", "#9a66c7", "#8a8f98"
MODELS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
MOST = 40  # clients that are drawn; the table has all
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a client may be called $x$
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}


def figures(
    result: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    prior: Array | None,
    tried: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """SVG by name; a figure without data is left out.

    ``prior`` (N,) are the clients' weights at the centre, ``tried`` the radii tried.
    """
    rows = sorted(people(result), key=lambda row: -row["worst_loss"])[:MOST]
    own = people(result)
    centre = None if prior is None else dict(zip([r["client"] for r in own], prior, strict=True))
    proven, risk = result["certificate"]["bound"], result.get("risk")
    tall = 1.1 + 0.34 * len(rows)
    found: dict[str, tuple[str, float, Callable[[Any], None]]] = {}
    if len(history) > 1:
        by = "round" if risk is None else "seconds"
        found["convergence"] = (
            f"Objective and proven bound by {by}, and their gap"
            if _bounded(history, proven)
            else f"Objective by {by}, and what the method leaves of the conditions of optimality",
            4.4,
            lambda f: _rounds(f, history, proven, risk is not None),
        )
        if risk is None or not risk["pooled"]:
            found["traffic"] = ("Gap by bytes sent", 2.4, lambda f: _traffic(f, history, proven))
    if result.get("losses"):
        said = "Sorted losses of the training rows, and the weight that each rank has"
        found["losses"] = (said, 4.4, lambda f: _curves(f, result["losses"]))
    worst = "Mean loss and worst-case loss" if risk is None else f"Mean loss and {risk['name']} of the losses"
    found["clients"] = (f"{worst} of each client", tall, lambda f: _losses(f, rows, risk))
    pooled = risk is not None and risk["pooled"]
    said = (
        "Share of the weight of each client, and its share of rows"
        if pooled
        else "Weight q* of each client, and its prior"
    )
    names = ("share of the weight", "share of rows") if pooled else ("q*", "prior")
    found["weights"] = (said, tall, lambda f: _weights(f, rows, centre, names))
    if any(row.get("flips") is not None for row in rows):
        found["adversary"] = ("What the adversary spends its budget on", tall, lambda f: _adversary(f, rows))
    if measures := result["evaluation"]["measures"]:
        height = 1.2 + 0.2 * len(measures) + 0.25 * len({row["set"] for row in measures})
        said, judged = _judged(measures, risk)
        found["evaluation"] = (said, height, lambda f: _measures(f, measures, *judged))
    if tried is not None and len({point["radius"] for point in tried["points"]}) > 1:
        own = [row["radius"] for row in result["clients"]]
        tall = 2.6 + 0.1 * (3 + len({point["client_radius"] for point in tried["points"]}))
        for name, said, key in _path_parts(tried["points"]):
            found[name] = (f"{said} by radius", tall, lambda f, said=said, key=key: _path(f, tried, own, said, key))
    return {name: draw(name, said, height, plot) for name, (said, height, plot) in found.items()}


def draw(name: str, title: str, height: float, plot: Callable[[Any], None], width: float = 4.6) -> str:
    """One figure; inches."""
    import io

    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({**STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a letter that the measuring font lacks; the reader's font draws it
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        plot(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _tidy(out.getvalue(), name, title)


def _tidy(svg: str, name: str, title: str) -> str:
    """No header, own ids, page colours, a title for readers that cannot see, and a size that follows the page."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(INK, "currentColor").replace("font: 9.5px 'sans-serif'", "font: 9.5px sans-serif")
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    head = f'<svg role="img" aria-labelledby="{name}-title"'
    return re.sub(r"<svg([^>]*)>", rf'{head}\1><title id="{name}-title">{escape(title)}</title>', svg, count=1)


# ---------------------------------------------------------------------------------------- parts


def column(history: Sequence[Mapping[str, Any]], key: str) -> Array:
    """A column of the history, nan where a row has no number."""
    values = [row.get(key) for row in history]
    numbers = np.array([v if isinstance(v, int | float) else np.nan for v in values], dtype=float)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def label(text: str) -> str:
    """A client's name for an axis: printable, and not too long."""
    kept = printable(text)
    return kept if len(kept) <= 18 else kept[:17] + "…"


def _bounded(history: Sequence[Mapping[str, Any]], proven: float | None) -> bool:
    """Whether there is a gap to draw, or else only how far the models are from the conditions of optimality."""
    return proven is not None or bool(np.isfinite(column(history, "gap")).any())


def _rounds(figure: Any, history: Sequence[Mapping[str, Any]], proven: float | None, timed: bool) -> None:
    """Against rounds, or against the seconds that they took, on a logarithmic axis."""
    top, below = figure.subplots(2, sharex=True)
    rounds, value, bound = (column(history, key) for key in ("round", "objective", "bound"))
    if timed:
        rounds = np.nancumsum(column(history, "seconds"))
    if proven is not None and not np.isfinite(bound).any():  # proven at the end only
        bound = np.full(len(rounds), proven)
    top.plot(rounds, value, color=BLUE, label="objective")
    if np.isfinite(bound).any():
        top.plot(rounds, bound, color=ORANGE, label="proven bound")
        top.fill_between(rounds, bound, value, color=GREY, alpha=0.18, linewidth=0)
    top.legend(loc="best")
    top.set_ylabel("objective")
    if _bounded(history, proven):
        _gap(below, rounds, history, proven)
    else:
        _logarithmic(below, rounds, column(history, "residual"), "residual")
    below.set_xlabel("seconds" if timed else "round")
    if timed:
        below.set_xscale("log")
        _decades(below, rounds[np.isfinite(value)])


def _gap(axes: Any, x: Array, history: Sequence[Mapping[str, Any]], proven: float | None) -> None:
    """The gap of each round; where an algorithm proves none on its way, the distance to the bound proven at the end."""
    gap = column(history, "gap")
    if proven is not None and not np.isfinite(gap).any():
        gap = column(history, "objective") - proven
    _logarithmic(axes, x, gap, "gap")


def _logarithmic(axes: Any, x: Array, y: Array, name: str) -> None:
    """y > 0 against x."""
    shown = np.where(y > 0, y, np.nan)
    axes.plot(x, shown, color=GREEN, marker="o", markersize=2.5)
    if np.isfinite(shown).any():
        axes.set_yscale("log")
        plain_decades(axes.yaxis)
    axes.set_ylabel(name)


def plain_decades(axis: Any) -> None:
    """Ticks such as 1e-3: letters that are no formulas."""
    from matplotlib.ticker import NullLocator

    axis.set_major_formatter(lambda y, _: f"{y:g}" if y in (0, 1, 10) else f"1e{np.log10(y):.0f}")
    axis.set_minor_locator(NullLocator())


def _traffic(figure: Any, history: Sequence[Mapping[str, Any]], proven: float | None) -> None:
    axes = figure.subplots()
    sent = np.nancumsum(column(history, "bytes_up") + column(history, "bytes_down"))
    unit, scale = ("MB", 1e6) if sent[-1] >= 1e6 else ("kB", 1e3)
    _gap(axes, sent / scale, history, proven)
    axes.set_xlabel(f"{unit} sent by all")


def _curves(figure: Any, losses: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Above the losses of every model by rank, below what each rank weighs; the bands where the first model's weigh."""
    top, below = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    for (model, curve), colour, dash in zip(losses.items(), (BLUE, ORANGE), ("-", (0, (3, 2))), strict=False):
        share = 100 * np.concatenate([[0.0], curve["share"]])
        for axes, key in ((top, "loss"), (below, "weight")):
            axes.stairs(
                curve[key],
                share,
                color=colour,
                linestyle=dash,
                baseline=None,
                linewidth=1.6,
                label=printable(model.replace("_", " ")),
            )
        if dash == "-":
            below.stairs(curve["weight"], share, color=colour, fill=True, alpha=0.15)
    most = max(max(curve["loss"]) for curve in losses.values())
    if most > 0:  # three decades, and the rest near zero
        top.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(most) - 2), linscale=0.5)
        plain_decades(top.yaxis)
    below.axhline(1.0, color=GREY, linewidth=0.8)
    below.set_ylim(bottom=0)
    top.set_xlim(0, 100)
    top.set_ylabel("loss")
    below.set_ylabel("weight (mean: 1)")
    below.set_xlabel("share of the rows in %, smallest loss first")
    top.legend(loc="upper left")


def _bars(figure: Any, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, Array]:
    axes = figure.subplots()
    at = np.arange(len(rows))[::-1].astype(float)
    axes.set_yticks(at, [label(row["client"]) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    return axes, at


def legend(axes: Any, columns: int = 2) -> None:
    """Above the axes, bars first."""
    handles, names = axes.get_legend_handles_labels()
    last = ("prior", "share of rows", "worst client")
    order = sorted(range(len(names)), key=lambda k: names[k] in last)
    handles, names = [handles[k] for k in order], [names[k] for k in order]
    axes.legend(
        handles, names, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, handlelength=1.2
    )


def _losses(figure: Any, rows: Sequence[Mapping[str, Any]], risk: Mapping[str, Any] | None) -> None:
    axes, at = _bars(figure, rows)
    axes.barh(at + 0.18, [row["loss"] for row in rows], 0.34, color=BLUE, label="mean loss")
    axes.barh(
        at - 0.18,
        [row["worst_loss"] for row in rows],
        0.34,
        color=ORANGE,
        label="worst case" if risk is None else risk["name"],
    )
    axes.set_xlabel("loss")
    legend(axes)


def _weights(
    figure: Any, rows: Sequence[Mapping[str, Any]], prior: Mapping[str, float] | None, names: tuple[str, str]
) -> None:
    axes, at = _bars(figure, rows)
    axes.barh(at, [100 * row["weight"] for row in rows], 0.5, color=PURPLE, label=names[0])
    if prior is not None:
        centre = [100 * prior[row["client"]] for row in rows]
        axes.scatter(centre, at, marker="|", s=160, color=INK, linewidths=1.6, label=names[1], zorder=3)
    axes.set_xlabel("share in %" if names[1] != "prior" else "weight in %")
    legend(axes)


def _adversary(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    axes, at = _bars(figure, rows)
    flips = np.array([100 * (row["flips"] or 0.0) for row in rows])
    shift = np.array([100 * (row["shift"] or 0.0) for row in rows])
    axes.barh(at, flips, 0.5, color=ORANGE, label="labels or targets")
    axes.barh(at, shift, 0.5, left=flips, color=GREEN, label="features")
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of its budget in %")
    legend(axes)


def _judged(rows: Sequence[Mapping[str, Any]], risk: Mapping[str, Any] | None) -> tuple[str, tuple[str, str, str, str]]:
    """(title, (key of the dots, key of the ticks, what the ticks are, what the axis is)) of the evaluation."""
    if "risk" in rows[0] and risk is not None:
        said = f"{risk['name'].capitalize()} and mean of the losses by model"
        return said, ("risk", "loss", "mean loss", f"loss; dots: {risk['name']}")
    what = "accuracy" if "accuracy" in rows[0] else "error"
    axis = "accuracy in %" if what == "accuracy" else "mean absolute error"
    said = f"{what.capitalize()} by model, on all rows and at the worst client"
    return said, (what, f"worst_{what}", "worst client", axis)


def _measures(figure: Any, rows: Sequence[Mapping[str, Any]], what: str, other: str, ticked: str, axis: str) -> None:
    """A dot for all rows, a line to the tick; sets one below the other. No bars: the axis may start above 0."""
    axes = figure.subplots()
    scale = 100.0 if what == "accuracy" else 1.0
    models = list(dict.fromkeys(row["model"] for row in rows))
    place, at, ticks = 0.0, [], []
    for name in dict.fromkeys(row["set"] for row in rows):
        mine = [row for row in rows if row["set"] == name]
        ticks.append((place - (len(mine) - 1) / 2, name))
        at += [place - k for k in range(len(mine))]
        place -= len(mine) + 0.8
    for model, colour in zip(models, MODELS, strict=False):
        own = [(y, row) for y, row in zip(at, rows, strict=True) if row["model"] == model]
        mean, worst = ([scale * row[key] for _, row in own] for key in (what, other))
        axes.hlines([y for y, _ in own], worst, mean, color=colour, linewidth=2)
        axes.scatter(mean, [y for y, _ in own], s=42, color=colour, label=model.replace("_", " "), zorder=3)
    least = [scale * row[other] for row in rows]
    axes.scatter(least, at, marker="|", s=90, color=INK, linewidths=1.6, label=ticked, zorder=4)
    axes.set_yticks([y for y, _ in ticks], [name.replace(", ", ",\n").replace(" ", "\n", 1) for _, name in ticks])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(axis)
    legend(axes, len(models) + 1)


# ---------------------------------------------------------------------------------------- radii tried


def _path_parts(points: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Name, title and column of every figure of a path."""
    judged = ("accuracy", "accuracy") if "accuracy" in points[0] else ("absolute error", "mae")
    parts = [("path_loss", "Held-out loss", "loss"), ("path_judged", f"Held-out {judged[0]}", judged[1])]
    proven = all(point["bound"] is not None for point in points)
    return [*parts, ("path_value", "Certified objective" if proven else "Objective", "value")]


def _path(figure: Any, tried: Mapping[str, Any], own: Sequence[float], said: str, key: str) -> None:
    """One colour a client radius; solid the worst client, dashed all rows; the run's own radius and the best point."""
    axes, points = figure.subplots(), tried["points"]
    scale = 100.0 if key == "accuracy" else 1.0
    thetas = list(dict.fromkeys(point["client_radius"] for point in points))
    for theta, colour in zip(thetas, _shades(len(thetas)), strict=True):
        mine = sorted((p for p in points if p["client_radius"] == theta), key=lambda p: p["radius"])
        x, mean, worst = (
            np.array([p[k] for p in mine]) for k in ("radius", key, key if key == "value" else f"worst_{key}")
        )
        name = f"client radius {theta:g}" if len(thetas) > 1 else "worst client" if key != "value" else "objective"
        axes.plot(x, scale * worst, color=colour, marker="o", markersize=3, label=name)
        if key != "value":
            axes.plot(x, scale * mean, color=colour, linestyle=(0, (3, 2)), linewidth=1.1)
    if key != "value":
        axes.plot([], [], color=INK, linestyle=(0, (3, 2)), linewidth=1.1, label="all rows")
    if key == "loss":
        best = points[tried["best"]]
        axes.scatter(
            best["radius"], best["worst_loss"], s=70, facecolors="none", edgecolors=INK, label="best", zorder=4
        )
    axes.axvspan(min(own), max(own), color=GREY, alpha=0.3, linewidth=0)
    axes.axvline(min(own), color=GREY, linewidth=1, label="this run")
    axes.axvline(max(own), color=GREY, linewidth=1)
    _radius_axis(axes, [*own, *(point["radius"] for point in points)])
    axes.set_ylabel(f"{said.lower()} in %" if scale == 100 else said.lower())
    legend(axes)


def _shades(n: int) -> list[Any]:
    """As many colours, ordered where there are many."""
    from matplotlib import colormaps

    return list(MODELS[:n]) if n <= 4 else [colormaps["viridis"](x) for x in np.linspace(0.25, 0.85, n)]


def _radius_axis(axes: Any, radii: Sequence[float]) -> None:
    """Logarithmic, with a place for zero."""
    low = min(r for r in radii if r > 0)
    axes.set_xscale("symlog", linthresh=low, linscale=0.5) if min(radii) == 0 else axes.set_xscale("log")
    _decades(axes, np.asarray(radii, dtype=float))
    axes.set_xlabel("radius")


def _decades(axes: Any, values: Array) -> None:
    """Ticks of a logarithmic x axis at 0 and 1, or at 1, 2 and 5 where few decades are shown."""
    from matplotlib.ticker import NullLocator

    shown = np.unique(values[values > 0])
    low, high = shown[0], shown[-1]
    steps = (1, 2, 5) if high <= 100 * low else (1,)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [s * 10.0**k for k in decades for s in steps if low * 0.999 <= s * 10.0**k <= high * 1.001]
    ticks = [*([0.0] * bool((values == 0).any())), *(ticks if len(ticks) > 1 else shown[[0, -1]])]
    axes.set_xticks(ticks, [f"{t:.3g}" for t in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
