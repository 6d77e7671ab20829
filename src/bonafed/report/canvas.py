"""Figures of a report as SVG text: lines, areas, bars and dots on axes, in points of 1/72 inch.

A figure depends on its numbers only: on no font, no other package and no settings of a user.
Letters stay text; they and all that is drawn in `INK` take the colour of the page. Where letters
must have room, their width is estimated, since the reader's font draws them.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array
from bonafed.drawing import GREEN, GREY, MODELS, label
from bonafed.text import printable

INK = "currentColor"
LETTER = 9.5  # the size of letters
LINE = 1.45 * LETTER  # the height of a line of them
TICK, PAD, GAP = 3.5, 3.0, 10.0  # marks at the axes; beside letters; between two panels
SAMPLE = 1.2 * LETTER  # the width of a mark in a legend
DASHED, DOTTED = "4.5 3", "1.5 2"
LOG, SYMLOG = "log", "symlog"  # the latter is linear around zero,
FLAT = 1.0  # for the length of so many decades
# colours in an order that the eye follows, in equal steps
RANGE = np.array([(59, 82, 139), (33, 144, 140), (53, 183, 121), (155, 217, 60)], float)
WIDE, NARROW = {*"mwMW%@…—"}, {*"iljtfrI.,:;'|!()[]{}/- "}  # letters
Kind: TypeAlias = Literal["line", "area", "bars", "dots"]
Ticks: TypeAlias = list[tuple[float, str]]
Place: TypeAlias = Callable[[Array], Array]  # of values on the page
CORNERS = ("upper right", "upper left", "lower left", "lower right")
# corners of marks, and ends of their strokes, in halves of their size
FILLED = {
    "s": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "D": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
}
STROKES = {"|": ((0, -1), (0, 1)), "x": ((-1, -1), (1, 1), (-1, 1), (1, -1))}


@dataclass(frozen=True, eq=False)
class Mark:
    """What stands at values x and y: points, of bars their two ends each way. In a line nan is a
    break, and infinity the end of the axes.
    """

    kind: Kind
    x: Array
    y: Array
    colours: Sequence[str]
    label: str | None = None
    width: float = 0.0
    dash: str = ""
    alpha: float = 1.0
    marker: str = ""
    sizes: Array = field(default_factory=lambda: np.zeros(0))
    level: float = 0.0  # higher ones are drawn later


# ------------------------------------------------------------------------------------------- axes


@dataclass(eq=False)
class Axis:
    """One direction of axes: its scale, and what stands beside it."""

    across: bool
    kind: str = "linear"
    near: float = 1.0  # up to this a symlog scale is linear
    low: float | None = None
    high: float | None = None
    label: str = ""
    places: Ticks | None = None  # given ticks, which have no marks
    whole: bool = False  # ticks at whole numbers only
    grid: bool = True

    def scaled(self, values: Array) -> Array:
        """Values as the scale has them; nan where it has none."""
        if self.kind == "linear":
            return values
        size = np.abs(values)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.kind == LOG:
                return np.where(values > 0, np.log10(values), np.nan)
            bent = np.sign(values) * (FLAT + np.log10(size / self.near))
            return np.where(size <= self.near, FLAT * values / self.near, bent)

    def limits(self, values: Array, ends: Array) -> tuple[float, float]:
        """The scaled limits around values, with margins except at bars' ``ends`` of zero."""
        known = self.scaled(values[np.isfinite(values)])
        known = known[np.isfinite(known)]
        least, most = (known.min(), known.max()) if len(known) else (0.0, 1.0)
        spread = most - least or abs(most) or 1.0
        flush = self.kind == "linear" and len(ends) > 0
        low = least - 0.05 * spread * (not (flush and least == 0 and (ends == 0).any()))
        high = most + 0.05 * spread * (not (flush and most == 0 and (ends == 0).any()))
        if self.low is not None:
            low = float(self.scaled(np.array(self.low)))
        if self.high is not None:
            high = float(self.scaled(np.array(self.high)))
        return low, high

    def ticks(self, low: float, high: float, length: float) -> Ticks:
        """Ticks between scaled limits, as many as have room on so many points."""
        found, room = self.places or [], length / LETTER / (3 if self.across else 2)
        for count in range(max(1, min(9, int(room))), 0, -1):
            if self.places is None:
                found = self._chosen(low, high, count)
            at = self.scaled(np.array([value for value, _ in found]))
            inside = (at >= low - 1e-9 * (high - low)) & (at <= high + 1e-9 * (high - low))
            found = [tick for tick, kept in zip(found, inside, strict=True) if kept]
            apart = np.diff(at[inside]).min(initial=np.inf) * length / (high - low)
            needed = [width_of(text) + 0.9 * LETTER if self.across else LINE for _, text in found]
            if self.places is not None or max(needed, default=0.0) <= apart:
                break
        return found

    def _chosen(self, low: float, high: float, count: int) -> Ticks:
        """Ticks between scaled limits, about so many at most."""
        if self.kind == "linear":
            return rounded(low, high, count, self.whole)
        bottom, top, zero = 10.0**low, 10.0**high, list[tuple[float, str]]()
        if self.kind == SYMLOG:
            bottom, top, zero = self.near, self.near * 10.0 ** (high - FLAT), [(0.0, "0")]
        exponents = range(math.floor(math.log10(bottom) + 1e-9), math.ceil(math.log10(top)) + 1)
        few, many = top <= 150 * bottom, -(-len(exponents) // count)
        starts, step = ([1, 2, 5], 1) if few and count >= 5 else ([1], many)
        values = [s * 10.0**k for k in exponents if k % step == 0 for s in starts]
        values = [value for value in values if 0.999 * bottom <= value <= 1.001 * top]
        if len(values) < 2 and not zero:
            return [tick for tick in rounded(bottom, top, count, False) if tick[0] > 0]
        plain = few or self.across
        texts = [f"{v:.3g}" if plain or v in (1, 10) else f"1e{math.log10(v):.0f}" for v in values]
        return [*zero, *zip(values, texts, strict=True)]


def rounded(low: float, high: float, count: int, whole: bool) -> Ticks:
    """Round numbers in equal steps between two numbers, at most ``count`` steps."""
    if not high > low:
        return [(low, f"{low:g}")]
    power = 10.0 ** math.floor(math.log10((high - low) / count))
    steps = [s * power * ten for ten in (1.0, 10.0) for s in (1.0, 2.0, 2.5, 5.0)]
    steps = [step for step in steps if not whole or (step >= 1 and step == round(step))] or [1.0]
    step = next((step for step in steps if (high - low) / step <= count), steps[-1])
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    values = [k * step for k in range(first, last + 1)]
    digits = max(0, -math.floor(math.log10(step)))
    digits += abs(round(step, digits) - step) > 1e-6 * step
    large = max(map(abs, values), default=0.0)
    if large >= 1e6 or 0 < large < 1e-3:
        return [(value, f"{value:.6g}") for value in values]
    return [(value, f"{value:.{digits}f}".replace("-", "−")) for value in values]


class Axes:
    """Marks on two scales, with ticks and names beside them and a legend."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.xaxis, self.yaxis = Axis(True), Axis(False)
        self.square = False
        self.entries: list[Mark] = []  # of the legend, in rows of so many columns above the axes,
        self.columns = 2
        self.corner = ""  # or below each other in this corner

    # marks

    def plot(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        color: str,
        label: str | None = None,
        linewidth: float = 1.6,
        linestyle: str = "",
        markersize: float = 0.0,
        alpha: float = 1.0,
        steps: bool = False,
        zorder: float = 2.0,
    ) -> None:
        """Draw a line through points, with dots at them, or in steps that keep a value up to the
        next x.
        """
        x, y = np.atleast_1d(np.asarray(x, float)), np.atleast_1d(np.asarray(y, float))
        if steps and len(x):
            x, y = np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]
        sizes = np.full(len(x), markersize**2)
        style: dict[str, Any] = {"width": linewidth, "dash": linestyle, "alpha": alpha}
        marker = "o" * (markersize > 0)
        self.marks.append(
            Mark("line", x, y, [color], label, **style, marker=marker, sizes=sizes, level=zorder)
        )

    def axhline(self, y: float, **style: Any) -> None:
        """Draw a level line from end to end."""
        self.plot([-np.inf, np.inf], [y, y], **style)

    def axvline(self, x: float, **style: Any) -> None:
        """Draw an upright line from end to end."""
        self.plot([x, x], [-np.inf, np.inf], **style)

    def hlines(self, y: ArrayLike, start: ArrayLike, end: ArrayLike, **style: Any) -> None:
        """Draw a level line from start to end at every y."""
        start, end = np.asarray(start, float), np.asarray(end, float)
        breaks = np.full(len(start), np.nan)
        self.plot(np.column_stack([start, end, breaks]).ravel(), np.repeat(y, 3), **style)

    def stairs(
        self, values: ArrayLike, edges: ArrayLike, *, fill: bool = False, ends: bool = True, **style
    ) -> None:
        """Draw one value between each two edges, filled down to zero, or with lines to zero at both
        ends.
        """
        x, y = np.repeat(np.asarray(edges, float), 2), np.repeat(np.asarray(values, float), 2)
        if fill:
            self.fill_between(x[1:-1], np.zeros(len(y)), y, **style)
        elif ends:
            self.plot(x, np.concatenate([[0.0], y, [0.0]]), **style)
        else:
            self.plot(x[1:-1], y, **style)

    def fill_between(
        self, x: ArrayLike, low: ArrayLike, high: ArrayLike, *, color: str, alpha: float
    ) -> None:
        """Fill what lies between two lines, where both are known."""
        points = np.array([x, low, high], float)
        places, *ends = points[:, np.isfinite(points).all(0)]
        around = np.concatenate([places, places[::-1]]), np.concatenate([ends[0], ends[1][::-1]])
        self.marks.append(Mark("area", *around, [color], alpha=alpha))

    def barh(
        self,
        places: ArrayLike,
        values: ArrayLike,
        height: float,
        *,
        left: ArrayLike = 0.0,
        color: str | Sequence[str],
        label: str | None = None,
    ) -> None:
        """Draw a bar at every place, from ``left`` and as long as its value."""
        places, values = np.asarray(places, float), np.asarray(values, float)
        start = np.broadcast_to(np.asarray(left, float), values.shape)
        x, y = (start, start + values), (places - height / 2, places + height / 2)
        colours = [color] if isinstance(color, str) else color
        self.marks.append(Mark("bars", np.array(x), np.array(y), colours, label, level=1.0))

    def scatter(
        self,
        x: ArrayLike,
        y: ArrayLike,
        *,
        s: ArrayLike,
        color: str,
        marker: str = "o",
        label: str | None = None,
        linewidths: float = 1.6,
        zorder: float = 1.0,
    ) -> None:
        """Draw marks of the areas ``s``: "o", "D" and "s" are filled, "|" and "x" lines."""
        x, y = np.asarray(x, float), np.asarray(y, float)
        sizes = np.broadcast_to(np.asarray(s, float), x.shape)
        style: dict[str, Any] = {"width": linewidths, "marker": marker, "level": zorder}
        self.marks.append(Mark("dots", x, y, [color], label, **style, sizes=sizes))

    def line_above_zero(self, x: Array, y: Array, name: str) -> None:
        """Draw y against x on a logarithmic axis, where y > 0."""
        positive = np.where(y > 0, y, np.nan)
        self.plot(x, positive, color=GREEN, markersize=2.5)
        if np.isfinite(positive).any():
            self.yaxis.kind = LOG
        self.yaxis.label = name

    # beside the axes

    def named_rows(self, names: Sequence[str]) -> Array:
        """Give the vertical axis one row a name, the first at the top; returns their places."""
        places = np.arange(len(names))[::-1].astype(float)
        self.rows(places.tolist(), [label(name) for name in names])
        self.yaxis.low, self.yaxis.high = -0.6, len(names) - 0.4
        return places

    def rows(self, places: Sequence[float], names: Sequence[str]) -> None:
        """Give the vertical axis names at places, without marks and lines there."""
        self.yaxis.places, self.yaxis.grid = [*zip(places, names, strict=True)], False

    def name(self, x: str = "", y: str = "") -> None:
        """Name the axes."""
        self.xaxis.label, self.yaxis.label = x or self.xaxis.label, y or self.yaxis.label

    def log_x(self, values: Array) -> None:
        """Make the horizontal axis logarithmic, linear around zero where a value is zero."""
        positive = values[values > 0]
        zero = bool((values == 0).any())
        self.xaxis.kind = SYMLOG if zero else LOG
        self.xaxis.near = float(positive.min()) if zero else 1.0

    def legend(self, columns: int = 2, last: Sequence[str] = (), corner: str = "") -> None:
        """Name the marks above the axes, in as many columns as have room, or in a corner of them;
        "best" is the one that hides least. The names in ``last`` come last.
        """
        entries = [mark for mark in self.marks if mark.label is not None]
        self.entries = sorted(entries, key=lambda mark: mark.label in last)
        self.columns, self.corner = columns, corner


# ----------------------------------------------------------------------------------------- canvas


class Canvas:
    """Axes below each other on so many points."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.axes: list[Axes] = []
        self.shares: Sequence[float] = (1.0,)

    def one(self) -> Axes:
        """The axes of a figure of one panel."""
        self.axes = [Axes()]
        return self.axes[0]

    def two(self, shares: Sequence[float] = (1.0, 1.0)) -> tuple[Axes, Axes]:
        """Two panels, one below the other, with one horizontal axis; ``shares`` of the height."""
        top, below = self.axes = [Axes(), Axes()]
        top.xaxis, self.shares = below.xaxis, shares
        return top, below

    def svg(self, name: str, title: str) -> str:
        """The figure as SVG whose ids begin with a name, with a title for readers that cannot see;
        its size follows the page.
        """
        box = (
            f'role="img" aria-labelledby="{name}-title" viewBox="0 0 {at(self.width, self.height)}"'
        )
        style = f'font-family="sans-serif" font-size="{LETTER}" fill="{INK}"'
        head = f'<svg {box} {style} xmlns="http://www.w3.org/2000/svg">'
        parts = [head, f'<title id="{name}-title">{escape(printable(title))}</title>']
        return "\n".join(filter(None, [*parts, *self._panels(name), "</svg>"]))

    def _panels(self, name: str) -> Iterator[str]:
        """All panels, whose places follow from the letters beside them."""
        first, across = self.axes[0], self.axes[-1].xaxis
        above = [0.7 * LETTER + self._legend_above(axes) for axes in self.axes]
        below = TICK + PAD + LINE * (2 if across.label else 1)
        free = self.height - below - sum(above) - GAP * (len(above) - 1)
        heights = [free * share / sum(self.shares) for share in self.shares]
        ups = [limits(axes.yaxis, [axes]) for axes in self.axes]
        sides = zip(self.axes, ups, heights, strict=True)
        upright = [axes.yaxis.ticks(*ends, height) for axes, ends, height in sides]
        left = self._beside([text for ticks in upright for _, text in ticks])
        right, along = self.width - 0.6 * LETTER, limits(across, self.axes)
        if first.square:
            left += max(0.0, (right - left - heights[0]) / 2)
            right = min(right, left + heights[0])
        ticks = across.ticks(*along, right - left)
        if ticks and not first.square:  # half of the last number may stand out
            end = Box(left, 0.0, right, 0.0, along, (0.0, 1.0)).places(first)[0]
            out = float(end(np.array(ticks[-1][0]))) + width_of(ticks[-1][1]) / 2 + 1 - self.width
            right -= max(0.0, out)
        top = 0.0
        for k, axes in enumerate(self.axes):
            top += above[k]
            box = Box(left, top, right, top + heights[k], along, ups[k])
            shown = ticks, upright[k], k == len(self.axes) - 1
            yield from panel(axes, box, f"{name}-{k}", *shown)
            top += heights[k] + GAP

    def _beside(self, texts: Sequence[str]) -> float:
        """The room left of the axes, with these texts there."""
        widest = max((width_of(line) for text in texts for line in text.split("\n")), default=0.0)
        return PAD + TICK + PAD + widest + LINE * any(axes.yaxis.label for axes in self.axes)

    def _legend_above(self, axes: Axes) -> float:
        """The height of a legend above the axes, which has as many columns as have room."""
        if axes.corner or not axes.entries:
            return 0.0
        names = [text for _, text in axes.yaxis.places or [(0.0, "0.000")]]
        room = self.width - self._beside(names) - 0.6 * LETTER
        widest = max(map(entry_width, axes.entries))
        axes.columns = max(1, min(axes.columns, int(room / widest)))
        return LINE * -(-len(axes.entries) // axes.columns)


def limits(axis: Axis, several: Sequence[Axes]) -> tuple[float, float]:
    """The scaled limits of an axis that several axes have."""
    marks = [mark for axes in several for mark in axes.marks]
    known = [np.where(np.isnan(mark.x + mark.y), np.nan, (mark.x, mark.y)) for mark in marks]
    values = [np.ravel(each[0 if axis.across else 1]) for each in known]
    ends = [each for each, mark in zip(values, marks, strict=True) if mark.kind == "bars"]
    none = [np.zeros(0)]
    return axis.limits(np.concatenate(values or none), np.concatenate(ends or none))


@dataclass(frozen=True)
class Box:
    """Where axes stand on the page, and their scaled limits."""

    left: float
    top: float
    right: float
    bottom: float
    across: tuple[float, float]
    up: tuple[float, float]

    def places(self, axes: Axes) -> tuple[Place, Place]:
        """Functions from values to places on the page; infinity is an end of the axes."""

        def place(axis: Axis, low: float, high: float, start: float, end: float) -> Place:
            def placed(values: Array) -> Array:
                at = axis.scaled(np.where(np.isinf(values), 1.0, values))
                at = start + (at - low) / (high - low) * (end - start)
                return np.where(np.isinf(values), np.where(values > 0, end, start), at)

            return placed

        x = place(axes.xaxis, *self.across, self.left, self.right)
        return x, place(axes.yaxis, *self.up, self.bottom, self.top)


# -------------------------------------------------------------------------------------------- SVG


def panel(
    axes: Axes, box: Box, name: str, across: Ticks, upright: Ticks, last: bool
) -> Iterator[str]:
    """One panel as SVG: grid, marks, the axes with their ticks, letters, legend."""
    x, y = box.places(axes)
    xs = x(np.array([value for value, _ in across], float)).tolist()
    ys = y(np.array([value for value, _ in upright], float)).tolist()
    grid = [f"M{at(place, box.top)}V{at(box.bottom)}" for place in xs if axes.xaxis.grid]
    grid += [f"M{at(box.left, place)}H{at(box.right)}" for place in ys if axes.yaxis.grid]
    yield path("".join(grid), GREY, 0.6, alpha=0.25)
    corners = f"M{at(box.left, box.top)}H{at(box.right)}V{at(box.bottom)}H{at(box.left)}Z"
    yield f'<clipPath id="{name}-clip"><path d="{corners}"/></clipPath>'
    for mark in sorted(axes.marks, key=lambda mark: mark.level):
        clip = "" if mark.kind == "dots" else f' clip-path="url(#{name}-clip)"'
        yield f"<g{clip}>{''.join(shape(mark, x(mark.x), y(mark.y)))}</g>"
    frame = [f"M{at(box.left, box.top)}V{at(box.bottom)}H{at(box.right)}"]
    frame += [f"M{at(place, box.bottom)}v{TICK}" for place in xs]
    frame += [f"M{at(box.left, place)}h-{TICK}" for place in ys if axes.yaxis.places is None]
    yield path("".join(frame), INK, 0.7)
    for place, (_, text) in zip(ys, upright, strict=True):
        parts = text.split("\n")
        for k, part in enumerate(parts):
            line = place + LETTER * (0.35 + 1.2 * (k - (len(parts) - 1) / 2))
            yield letters(box.left - TICK - PAD, line, part, "end")
    below = box.bottom + TICK + PAD + 0.75 * LETTER
    for place, (_, text) in zip(xs, across, strict=True):
        yield letters(place, below, text * last, "middle")
    words = axes.xaxis.label * last  # which may be longer than the axis
    middle = min((box.left + box.right) / 2, box.right + 0.6 * LETTER - width_of(words) / 2)
    yield letters(middle, below + LINE, words, "middle")
    yield letters(LETTER, (box.top + box.bottom) / 2, axes.yaxis.label, "middle", turned=True)
    yield from legend(axes, box, x, y)


def legend(axes: Axes, box: Box, x: Place, y: Place) -> Iterator[str]:
    """Samples of the marks with their names."""
    rows, widest = len(axes.entries), max(map(entry_width, axes.entries), default=0.0)
    columns = 1 if axes.corner else axes.columns
    left, top = box.left, box.top - LINE * -(-rows // columns) - 0.2 * LETTER
    if axes.corner:
        found = {one: at_corner(box, one, widest, LINE * rows) for one in CORNERS}
        best = min(CORNERS, key=lambda one: hidden(axes, found[one], x, y))
        left, top, *_ = found.get(axes.corner, found[best])
    for k, mark in enumerate(axes.entries):
        start, middle = left + k % columns * widest, top + LINE * (k // columns + 0.5)
        yield from sample(mark, start, middle)
        name = printable(mark.label or "")
        yield letters(start + SAMPLE + 0.5 * LETTER, middle + 0.35 * LETTER, name, "start")


def sample(mark: Mark, left: float, middle: float) -> Iterator[str]:
    """What a mark looks like, in a legend."""
    ends, level, half = np.array([left, left + SAMPLE]), np.full(2, middle), 0.35 * LETTER
    match mark.kind:
        case "line":
            yield path(outline(ends, level), mark.colours[0], mark.width, mark.dash)
        case "dots":
            sizes = np.append(np.minimum(mark.sizes, 60.0), 36.0)[:1]
            yield from dots(mark, ends.mean(keepdims=True), level[:1], sizes)
        case _:
            yield from bars(mark, ends[:, None], middle + np.array([[-half], [half]]))


def at_corner(
    box: Box, corner: str, width: float, height: float
) -> tuple[float, float, float, float]:
    """The ends of a legend of this size in a corner of the axes: left, top, right, bottom."""
    space = 0.5 * LETTER
    left = box.left + space if corner.endswith("left") else box.right - space - width
    top = box.top + space if corner.startswith("upper") else box.bottom - space - height
    return left, top, left + width, top + height


def hidden(axes: Axes, place: tuple[float, float, float, float], x: Place, y: Place) -> int:
    """How much of the lines a legend hides that has these ends."""
    (left, top, right, bottom), count = place, 0
    for mark in (mark for mark in axes.marks if mark.kind == "line" and len(mark.x)):
        points, between = np.arange(len(mark.x)), np.linspace(0, len(mark.x) - 1, 12 * len(mark.x))
        xs, ys = (np.interp(between, points, each) for each in (x(mark.x), y(mark.y)))
        count += int(((xs > left) & (xs < right) & (ys > top) & (ys < bottom)).sum())
    return count


def shape(mark: Mark, x: Array, y: Array) -> Iterator[str]:
    """A mark at places on the page."""
    match mark.kind:
        case "line":
            yield path(outline(x, y), mark.colours[0], mark.width, mark.dash, mark.alpha)
            yield from dots(mark, x, y, mark.sizes) if mark.marker else ()
        case "area":
            style = f'fill="{mark.colours[0]}" fill-opacity="{mark.alpha}"'
            yield f'<path d="{outline(x, y)}" {style}/>'
        case "bars":
            yield from bars(mark, x, y)
        case "dots":
            yield from dots(mark, x, y, mark.sizes)


def outline(x: Array, y: Array) -> str:
    """A path through points; nan is a break."""
    parts, known = [], np.isfinite(x) & np.isfinite(y)
    for k in np.flatnonzero(known).tolist():
        parts.append(f"{'L' if k and known[k - 1] else 'M'}{at(x[k], y[k])}")
    return "".join(parts)


def bars(mark: Mark, x: Array, y: Array) -> Iterator[str]:
    """Bars between their two ends each way."""
    for k, (left, right, low, high) in enumerate(zip(*x, *y, strict=True)):
        corners = f"M{at(left, low)}H{at(right)}V{at(high)}H{at(left)}Z"
        if math.isfinite(left + right) and left != right:
            yield f'<path d="{corners}" fill="{mark.colours[k % len(mark.colours)]}"/>'


def dots(mark: Mark, x: Array, y: Array, sizes: Array) -> Iterator[str]:
    """Marks of these areas at points."""
    colour = mark.colours[0]
    for left, top, size in zip(x, y, np.sqrt(sizes) / 2 + 0.5, strict=True):
        if not math.isfinite(left + top):
            continue
        if mark.marker == "o":
            yield f'<circle cx="{at(left)}" cy="{at(top)}" r="{at(size)}" fill="{colour}"/>'
        elif mark.marker in FILLED:
            corners = "L".join(at(left + a * size, top + b * size) for a, b in FILLED[mark.marker])
            yield f'<path d="M{corners}Z" fill="{colour}"/>'
        else:
            ends = [at(left + a * size, top + b * size) for a, b in STROKES[mark.marker]]
            lines = "".join(f"{'ML'[k % 2]}{end}" for k, end in enumerate(ends))
            yield path(lines, colour, mark.width)


def path(places: str, colour: str, width: float, dash: str = "", alpha: float = 1.0) -> str:
    """A line along a path; nothing without one."""
    dashed = f' stroke-dasharray="{dash}"' * bool(dash)
    faint = f' stroke-opacity="{alpha}"' * (alpha < 1)
    style = f'fill="none" stroke="{colour}" stroke-width="{at(width)}"{dashed}{faint}'
    return f'<path d="{places}" {style}/>' * bool(places)


def letters(x: float, y: float, text: str, anchor: str, turned: bool = False) -> str:
    """A text at a place; nothing without one."""
    way = f' transform="rotate(-90 {at(x, y)})"' * turned
    place = f'x="{at(x)}" y="{at(y)}" text-anchor="{anchor}"{way}'
    return f"<text {place}>{escape(printable(text))}</text>" * bool(text)


def at(*places: float) -> str:
    """Places on the page, to a hundredth of a point."""
    return " ".join(f"{round(place, 2) + 0.0:g}" for place in places)


def width_of(text: str) -> float:
    """About how wide a line of letters is."""
    square = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    wide, narrow = (sum(letter in kind for letter in text) for kind in (WIDE, NARROW))
    high = sum(map(str.isupper, text))
    return LETTER * (0.61 * len(text) + 0.4 * square + 0.34 * wide - 0.25 * narrow + 0.1 * high)


def entry_width(mark: Mark) -> float:
    """How wide a mark of a legend is with its name, and the space after it."""
    return SAMPLE + 0.5 * LETTER + width_of(mark.label or "") + 1.2 * LETTER


def shades(n: int) -> list[str]:
    """n colours, in an order that the eye follows where there are many."""
    if n <= 4:
        return list(MODELS[:n])
    steps = np.linspace(0, len(RANGE) - 1, n)
    rgb = [np.interp(steps, np.arange(len(RANGE)), part) for part in RANGE.T]
    return [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.rint(rgb).astype(int).T.tolist()]
