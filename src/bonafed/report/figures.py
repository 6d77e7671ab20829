"""Figures drawn as SVG text; what the figures of a section show stands with the section.

Lines and letters take the colour of the page (``currentColor``), so that one file suits light and
dark; letters stay text. Equal runs give equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape

from bonafed.drawing import INK, svg
from bonafed.report.tables import lines, printable

if TYPE_CHECKING:
    from bonafed.drawing import Canvas

MOST = 40  # clients that are drawn; the table has all
WIDTH = 4.6  # inches


class Plot(NamedTuple):
    """A figure to be drawn: its title for readers that cannot see, its height in inches, and what
    draws it on a canvas with further arguments.
    """

    title: str
    height: float
    draw: Callable[..., None]
    arguments: tuple[object, ...] = ()


def draw(name: str, plot: Plot) -> str:
    """A figure as SVG."""

    def fill(canvas: Canvas) -> None:
        plot.draw(canvas, *plot.arguments)

    drawn = svg(name, WIDTH, plot.height, fill)
    return _tidy(lines(drawn), name, printable(plot.title))


def _tidy(svg: str, name: str, title: str) -> str:
    """The SVG without its header, with its own ids, the colours of the page, a title for readers
    that cannot see, and a size that follows the page.
    """
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = svg.replace(INK, "currentColor")
    svg = svg.replace("font: 9.5px 'sans-serif'", "font: 9.5px sans-serif")
    for size in ("height", "width"):
        svg = re.sub(rf'(<svg[^>]*?) {size}="[^"]*"', r"\1", svg, count=1)
    head = f'<svg role="img" aria-labelledby="{name}-title"'
    return re.sub(
        r"<svg([^>]*)>", rf'{head}\1><title id="{name}-title">{escape(title)}</title>', svg, count=1
    )
