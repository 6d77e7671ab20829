"""What a section of a report tells, and the blocks that its text consists of."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from bonafed.report.tables import Table
from bonafed.runs.sections.section import Run

MOST = 40  # clients that are drawn; the table has all


class Plot(NamedTuple):
    """A figure to be drawn: its title for readers that cannot see, its height in inches, and what
    draws it on a canvas with further arguments.
    """

    title: str
    height: float
    draw: Callable[..., None]
    arguments: tuple[object, ...] = ()


class Text(NamedTuple):
    """A paragraph; ``strong`` for the answer to a question, ``soft`` for a remark."""

    text: str
    strong: bool = False
    soft: bool = False


class Heading(NamedTuple):
    """A heading inside a chapter."""

    text: str


class Items(NamedTuple):
    """A list of sentences."""

    items: Sequence[str]


class Questions(NamedTuple):
    """Questions and their answers, each one sentence or a few."""

    answers: Iterable[tuple[str, str]]


class Figure(NamedTuple):
    """The place of a figure; without a plot nothing is shown."""

    name: str
    caption: str
    plot: Plot | None = None


class Code(NamedTuple):
    """Text of a file."""

    text: str


class Row(NamedTuple):
    """Figures, with the other blocks beside them where the page is wide enough."""

    blocks: "Sequence[Block]"


class Fold(NamedTuple):
    """Blocks that a reader opens by a click on the title."""

    title: str
    blocks: "Sequence[Block]"
    open: bool = False


Block: TypeAlias = Text | Heading | Items | Questions | Figure | Code | Row | Fold | Table


class Chapter(NamedTuple):
    """Blocks under a title; ``name`` is the chapter's anchor in a page."""

    name: str
    title: str
    blocks: Sequence[Block]
    warning: bool = False


class Fact(NamedTuple):
    """A number at the top of a page; ``mood`` is "good", "warn" or nothing."""

    value: str
    label: str
    mood: str = ""


class Section(NamedTuple):
    """One subject of a report. Page, terminal and Markdown show the same sections in turn.

    Attributes
    ----------
    chapters : the text, tables and figures of the full report
    facts : the numbers at the top of a page
    lead : the sentence under the title of the report, where this section opens it
    brief : the few blocks that a terminal shows
    """

    chapters: Sequence[Chapter]
    facts: Sequence[Fact] = ()
    lead: str = ""
    brief: Sequence[Block] = ()


About: TypeAlias = Callable[[Run], Section | None]  # None: the run has nothing of the subject


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


def texts(sentences: Iterable[str]) -> list[Block]:
    """A paragraph for every sentence."""
    return [*map(Text, sentences)]


def drawn(captions: Mapping[str, str], plots: Mapping[str, Plot]) -> Row:
    """Figures with their captions; the place of one without a plot stays empty."""
    return Row([Figure(name, caption, plots.get(name)) for name, caption in captions.items()])


def placed(blocks: Iterable[Block]) -> Iterator[Figure]:
    """The figures among the blocks, those inside others too."""
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Row | Fold):
            yield from placed(block.blocks)
