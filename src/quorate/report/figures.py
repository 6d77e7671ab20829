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
from quorate.report.tables import printable

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


def figures(result: Mapping[str, Any], history: Sequence[Mapping[str, Any]], prior: Array | None) -> dict[str, str]:
    """SVG by name; a figure without data is left out. ``prior`` (N,) are the clients' weights at the centre."""
    rows = sorted(result["clients"], key=lambda row: -row["worst_loss"])[:MOST]
    priors = None if prior is None else dict(zip([r["client"] for r in result["clients"]], prior, strict=True))
    proven = result["certificate"]["bound"]
    tall = 1.1 + 0.34 * len(rows)
    found: dict[str, tuple[str, float, Callable[[Any], None]]] = {}
    if len(history) > 1:
        found["convergence"] = (
            "Objective and proven bound by round, and their gap",
            4.4,
            lambda f: _rounds(f, history, proven),
        )
        found["traffic"] = ("Gap by bytes sent", 2.4, lambda f: _traffic(f, history, proven))
    found["clients"] = ("Mean loss and worst-case loss of each client", tall, lambda f: _losses(f, rows))
    found["weights"] = ("Weight q* of each client, and its prior", tall, lambda f: _weights(f, rows, priors))
    if any(row["flips"] is not None for row in rows):
        found["adversary"] = ("What the adversary spends its budget on", tall, lambda f: _adversary(f, rows))
    for what in ("accuracy", "error"):
        if measures := [row for row in result["evaluation"]["measures"] if what in row]:
            height = 1.2 + 0.2 * len(measures) + 0.25 * len({row["set"] for row in measures})
            said = f"{what.capitalize()} by model, on all rows and at the worst client"
            found["evaluation"] = (said, height, lambda f, m=measures, w=what: _measures(f, m, w))
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


def _rounds(figure: Any, history: Sequence[Mapping[str, Any]], proven: float | None) -> None:
    top, below = figure.subplots(2, sharex=True)
    rounds, value, bound = (column(history, key) for key in ("round", "objective", "bound"))
    if proven is not None and not np.isfinite(bound).any():  # proven at the end only
        bound = np.full(len(rounds), proven)
    top.plot(rounds, value, color=BLUE, label="objective")
    if np.isfinite(bound).any():
        top.plot(rounds, bound, color=ORANGE, label="proven bound")
        top.fill_between(rounds, bound, value, color=GREY, alpha=0.18, linewidth=0)
    top.legend(loc="best")
    top.set_ylabel("objective")
    _gap(below, rounds, history, proven)
    below.set_xlabel("round")


def _gap(axes: Any, x: Array, history: Sequence[Mapping[str, Any]], proven: float | None) -> None:
    """The gap of each round; where an algorithm proves none on its way, the distance to the bound proven at the end."""
    from matplotlib.ticker import NullLocator

    gap = column(history, "gap")
    if proven is not None and not np.isfinite(gap).any():
        gap = column(history, "objective") - proven
    shown = np.where(gap > 0, gap, np.nan)
    axes.plot(x, shown, color=GREEN, marker="o", markersize=2.5)
    if np.isfinite(shown).any():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda y, _: "1" if y == 1 else f"1e{np.log10(y):.0f}")
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("gap")


def _traffic(figure: Any, history: Sequence[Mapping[str, Any]], proven: float | None) -> None:
    axes = figure.subplots()
    sent = np.nancumsum(column(history, "bytes_up") + column(history, "bytes_down"))
    unit, scale = ("MB", 1e6) if sent[-1] >= 1e6 else ("kB", 1e3)
    _gap(axes, sent / scale, history, proven)
    axes.set_xlabel(f"{unit} sent by all")


def _bars(figure: Any, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, Array]:
    axes = figure.subplots()
    at = np.arange(len(rows))[::-1].astype(float)
    axes.set_yticks(at, [label(row["client"]) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    return axes, at


def _legend(axes: Any, columns: int = 2) -> None:
    handles, names = axes.get_legend_handles_labels()
    order = sorted(range(len(names)), key=lambda k: names[k] in ("prior", "worst client"))  # bars first
    handles, names = [handles[k] for k in order], [names[k] for k in order]
    axes.legend(
        handles, names, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, handlelength=1.2
    )


def _losses(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    axes, at = _bars(figure, rows)
    axes.barh(at + 0.18, [row["loss"] for row in rows], 0.34, color=BLUE, label="mean loss")
    axes.barh(at - 0.18, [row["worst_loss"] for row in rows], 0.34, color=ORANGE, label="worst case")
    axes.set_xlabel("loss")
    _legend(axes)


def _weights(figure: Any, rows: Sequence[Mapping[str, Any]], prior: Mapping[str, float] | None) -> None:
    axes, at = _bars(figure, rows)
    axes.barh(at, [100 * row["weight"] for row in rows], 0.5, color=PURPLE, label="q*")
    if prior is not None:
        centre = [100 * prior[row["client"]] for row in rows]
        axes.scatter(centre, at, marker="|", s=160, color=INK, linewidths=1.6, label="prior", zorder=3)
    axes.set_xlabel("weight in %")
    _legend(axes)


def _adversary(figure: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    axes, at = _bars(figure, rows)
    flips = np.array([100 * (row["flips"] or 0.0) for row in rows])
    shift = np.array([100 * (row["shift"] or 0.0) for row in rows])
    axes.barh(at, flips, 0.5, color=ORANGE, label="labels or targets")
    axes.barh(at, shift, 0.5, left=flips, color=GREEN, label="features")
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of its budget in %")
    _legend(axes)


def _measures(figure: Any, rows: Sequence[Mapping[str, Any]], what: str) -> None:
    """A dot for all rows, a line to the worst client; sets one below the other. No bars: the axis may start above 0."""
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
        mean, worst = ([scale * row[key] for _, row in own] for key in (what, f"worst_{what}"))
        axes.hlines([y for y, _ in own], worst, mean, color=colour, linewidth=2)
        axes.scatter(mean, [y for y, _ in own], s=42, color=colour, label=model, zorder=3)
    least = [scale * row[f"worst_{what}"] for row in rows]
    axes.scatter(least, at, marker="|", s=90, color=INK, linewidths=1.6, label="worst client", zorder=4)
    axes.set_yticks([y for y, _ in ticks], [name.replace(", ", ",\n").replace(" ", "\n", 1) for _, name in ticks])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("accuracy in %" if what == "accuracy" else "mean absolute error")
    _legend(axes, len(models) + 1)
