"""Figures with matplotlib, which is imported in this file only: those of a solution in a notebook,
and those of the papers. Reports have figures of their kind without it (`bonafed.report.canvas`), in
the same colours.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed.arrays import Array
from bonafed.text import printable, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Canvas

INK = "#010203"
BLUE, ORANGE, GREEN, PURPLE, GREY = "#3b82c4", "#d97a1e", "#3f9a62", "#9a66c7", "#8a8f98"
RED, SAND = "#b0413e", "#e0b252"
MODELS = (BLUE, ORANGE, GREEN, PURPLE, GREY)
COLOURS = (*MODELS[:4], RED, SAND, GREY)
LETTERS = 54  # that a figure is wide
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.6),
    # a client may be called $x$
    **dict.fromkeys(("text.parse_math", "legend.frameon"), False),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "lines.linewidth": 1.6,
}


def svg(name: str, width: float, height: float, fill: Callable[[Canvas], None]) -> str:
    """What ``fill`` draws on a canvas of so many inches, as SVG whose ids follow from ``name``,
    without matplotlib's global state.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # a layout of the user's own would begin where ours is executed
    own: dict[Any, Any] = {"figure.autolayout": False, "figure.constrained_layout.use": False}
    with mpl.rc_context({**STYLE, **own, "svg.hashsalt": name}), warnings.catch_warnings():
        # a letter that the measuring font lacks; the reader's font draws it
        warnings.simplefilter("ignore")
        canvas = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(canvas)
        fill(canvas)
        layout = canvas.get_layout_engine()
        assert layout is not None
        layout.execute(canvas)  # else saving draws everything twice, to lay it out first
        canvas.set_layout_engine(None)
        out, undated = io.StringIO(), {"Date": None, "Creator": None}
        canvas.savefig(out, format="svg", transparent=True, metadata=undated)
    return out.getvalue()


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """The style of all figures, with letters and lines in the colours of the user's own style."""
    import matplotlib as mpl

    with mpl.rc_context({key: value for key, value in STYLE.items() if value != INK}):
        yield


def new_axes(count: int, width: float, height: float) -> list[Axes]:
    """So many axes side by side on a new figure of pyplot, which a notebook shows."""
    from matplotlib import pyplot as plt

    size = (width * count, height)
    _, axes = plt.subplots(1, count, figsize=size, squeeze=False, layout="constrained")
    return list(axes[0])


# --------------------------------------------------------------------------- numbers and names


def column(history: Sequence[Mapping[str, Any]], key: str) -> Array:
    """A column of a table such as the history, nan where a row has no finite number."""
    values = [row.get(key) for row in history]
    numbers = np.array([v if isinstance(v, int | float) else np.nan for v in values], dtype=float)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def objectives(history: Sequence[Mapping[str, Any]]) -> Array:
    """The objective by round, or what it is at most where a method knows no more."""
    known = any("objective" in row for row in history)
    return column(history, "objective" if known else "value")


def label(text: str) -> str:
    """A client's name for an axis: printable, and not too long."""
    return short(printable(text), 18)


# ------------------------------------------------------------------------------- parts of figures


def named_rows(axes: Axes, names: Sequence[str]) -> Array:
    """Give the vertical axis one row a name, the first at the top; returns their places."""
    places = np.arange(len(names))[::-1].astype(float)
    axes.set_yticks(places, [label(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(-0.6, len(names) - 0.4)
    return places


def legend(axes: Axes, columns: int = 2, last: Sequence[str] = ()) -> int:
    """Put the legend above the axes, in as many columns as there is room for; the names in ``last``
    come last. Returns the number of its lines.
    """
    handles, names = axes.get_legend_handles_labels()
    beside = (line for tick in axes.get_yticklabels() for line in tick.get_text().split("\n"))
    room = LETTERS - max(map(len, beside), default=0)
    widest = max(map(len, names), default=0) + 5  # and its mark
    columns = max(1, min(columns, room // widest))
    order = sorted(range(len(names)), key=lambda k: names[k] in last)
    shown = [handles[k] for k in order], [names[k] for k in order]
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    axes.legend(*shown, ncols=columns, handlelength=1.2, **place)
    return -(-len(names) // columns)


def line_above_zero(axes: Axes, x: Array, y: Array, name: str) -> None:
    """Draw y against x on a logarithmic axis, where y > 0."""
    positive = np.where(y > 0, y, np.nan)
    axes.plot(x, positive, color=GREEN, marker="o", markersize=2.5)
    if np.isfinite(positive).any():
        axes.set_yscale("log")
        many = np.nanmax(positive) > 100 * np.nanmin(positive)
        (plain_decades if many else ones_twos_and_fives)(axes.yaxis)
    axes.set_ylabel(name)


def plain_decades(axis: Axis) -> None:
    """Set ticks such as 1e-3: letters that are not formulas."""
    from matplotlib.ticker import NullLocator

    axis.set_major_formatter(lambda y, _: f"{y:g}" if y in (0, 1, 10) else f"1e{np.log10(y):.0f}")
    axis.set_minor_locator(NullLocator())


def ones_twos_and_fives(axis: Axis) -> None:
    """Set the ticks of a logarithmic axis of few decades, which may show no power of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(lambda y, _: f"{y:g}")
    axis.set_minor_formatter(NullFormatter())


def whole_numbers(axis: Axis) -> None:
    """Set ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
