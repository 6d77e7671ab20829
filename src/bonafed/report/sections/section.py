"""What a section of a report offers, and the blocks that its text consists of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

from bonafed.report.figures import Plot
from bonafed.report.tables import Record, Table
from bonafed.runs.run import Run


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
