"""What a section of a report offers, and the blocks that its text consists of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from xml.sax.saxutils import escape

from bonafed.drawing import INK, svg
from bonafed.report.tables import Record, Table, lines, printable
from bonafed.runs.run import Run

if TYPE_CHECKING:
    from bonafed.drawing import Canvas


@dataclass(frozen=True)
class Text:
    """A paragraph; ``strong`` for the answer to a question, ``soft`` for a remark."""

    text: str
    strong: bool = False
    soft: bool = False


@dataclass(frozen=True)
class Heading:
    """A heading inside a chapter."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class Questions:
    """Questions and their answers, each one sentence or a few."""

    answers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figure:
    """The place of a figure; where the run has no figure of this name, nothing is shown."""

    name: str
    caption: str


@dataclass(frozen=True)
class Code:
    """Text of a file."""

    text: str


@dataclass(frozen=True)
class Row:
    """Figures, with the other blocks beside them where the page is wide enough."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader opens by a click on the title."""

    title: str
    blocks: tuple[Block, ...]
    open: bool = False


Block: TypeAlias = Text | Heading | Items | Questions | Figure | Code | Row | Fold | Table


@dataclass(frozen=True)
class Chapter:
    """Blocks under a title; ``name`` is the chapter's anchor in a page."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    warning: bool = False


@dataclass(frozen=True)
class Fact:
    """A number at the top of a page; ``mood`` is "good", "warn" or nothing."""

    value: str
    label: str
    mood: str = ""


class ReportSection(Protocol):
    """One subject of a report. Page, terminal, Markdown and JSON ask the same sections in turn."""

    def applies(self, run: Run) -> bool:
        """Whether the run has anything of this subject."""
        return True

    def chapters(self, run: Run) -> list[Chapter]:
        """The text and tables of the full report, with the places of figures."""
        ...

    def lead(self, run: Run) -> str:
        """The sentence under the title of the report, where this section opens it."""
        return ""

    def facts(self, run: Run) -> list[Fact]:
        """The numbers at the top of a page."""
        return []

    def plots(self, run: Run) -> Mapping[str, Plot]:
        """The figures, by name."""
        return {}

    def brief(self, run: Run) -> list[Block]:
        """The few lines that a terminal shows."""
        return []

    def record(self, run: Run) -> Record:
        """What the report as JSON has beside result.json, whether the section applies or not."""
        return {}


def plain(blocks: Sequence[Block], title: str) -> Iterator[Block]:
    """The blocks under a title that are text, one after the other; a table that is called as the
    title needs none.
    """
    for block in blocks:
        match block:
            case Row():
                yield from plain(block.blocks, title)
            case Fold():
                if inside := [*plain(block.blocks, block.title)]:
                    yield from (Heading(block.title), *inside)
            case Table():
                yield replace(block, title="" if block.title == title else block.title)
            case Text() | Heading() | Items() | Questions():
                yield block


def texts(sentences: Iterable[str]) -> Iterator[Text]:
    """A paragraph for every sentence."""
    return map(Text, sentences)


def chapter(name: str, title: str, *blocks: Block, warning: bool = False) -> Chapter:
    """A chapter of the blocks."""
    return Chapter(name, title, blocks, warning)


# ---------------------------------------------------------------------------------------- figures
#
# Lines and letters take the colour of the page (``currentColor``), so that one file suits light and
# dark; letters stay text. Equal runs give equal bytes.

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
