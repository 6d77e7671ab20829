"""A finished run on a terminal: what a person reads first. Names are other people's input: neither
markup nor terminal codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text as Plain

from bonafed.report.output import Output, Screen
from bonafed.report.sections import SECTIONS
from bonafed.report.sections.model import exposed, heaviest
from bonafed.report.sections.section import Block, Heading, Items, Questions, Text, plain
from bonafed.report.tables import Table, lines, printable, sentence
from bonafed.runs.run import Run

PUBLIC, OWNERS = "public part", "stays with the owner"
UNSEEN = (
    "bonafed verify computes these numbers again, and lists what it cannot check, such as what"
    " happened in the rounds and how long they took. The report has more; --verbose prints it."
)
NARROWEST = 40  # columns; a narrower terminal breaks lines itself


class Terminal(Console):
    """Standard output for tables and paragraphs, however narrow or absent the terminal is; names
    hold no markup, no emoji codes and no terminal codes.

    ``patient`` where the command goes on for long when nobody reads any more, ``quiet`` where it
    fails then.
    """

    def __init__(self, *, patient: bool = False, quiet: bool = False) -> None:
        out = sys.stdout
        file: Any = out
        if isinstance(out, Output):
            out.patient, out.quiet, file = patient, quiet, Screen(out)
        codes: Any = "auto" if os.name == "nt" or os.environ.get("TERM") else None
        super().__init__(file=file, markup=False, emoji=False, highlight=False, color_system=codes)
        self.redraws = self.is_terminal and not self.is_dumb_terminal and codes is not None
        if self.width < NARROWEST:
            self.width, self.redraws = NARROWEST, False

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What is printed, in pieces of text, which are made printable."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(lines(part.text), part.style)


def say(text: str, console: Console) -> None:
    """Print a paragraph; unwrapped where nobody reads along."""
    text = sentence(text)
    console.print(text, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def drawn(table: Table) -> RichTable:
    """A table for the console."""
    title = Plain(sentence(table.title), "bold") if table.title else None
    shown = RichTable(title=title, title_justify="left", box=None, pad_edge=False)
    for k, (name, right) in enumerate(zip(table.columns, table.numeric, strict=True)):
        # headings wrap, numbers do not
        widest = max((len(row[k]) for row in table.rows), default=0)
        shown.add_column(
            Plain(name), justify="right" if right else "left", min_width=widest if right else None
        )
    for row in table.rows:
        shown.add_row(*(Plain(printable(cell)) for cell in row))
    return shown


def show(run: Run, console: Console, verbose: bool = False) -> None:
    """Show the run in short: of a private run the public part and then the owner's; ``verbose``:
    the whole report first. Last of all say where the reports are, after the seals, which are to be
    kept elsewhere.
    """
    parts = [(PUBLIC if run.private else "report", run)]
    parts += [] if run.owner is None else [(OWNERS, run.owner)]
    for _, part in parts if verbose else ():
        _show_whole(part, console)
    for _, part in parts:
        sections = [section for section in SECTIONS if section.applies(part)]
        console.print()
        for section in sections:
            _print([Heading(section.lead(part))] * bool(section.lead(part)), console)
        for section in reversed(sections):  # what a page opens with stands last
            _print(section.brief(part), console)
    say(UNSEEN, console)
    called = {OWNERS: "owner's part", PUBLIC: PUBLIC}
    end = [f"seal of the {called.get(name, 'run')}: {part.result['seal']}" for name, part in parts]
    for name, part in parts:
        report = part.path / "report.html"
        end.append(f"{name}: {report if report.is_file() else part.path}")
    for line in end:
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def _show_whole(run: Run, console: Console) -> None:
    sections = (section for section in SECTIONS if section.applies(run))
    for chapter in (chapter for section in sections for chapter in section.chapters(run)):
        if blocks := [*plain(chapter.blocks, chapter.title)]:
            console.print()
            _print([Heading(chapter.title), *blocks], console)


def _print(blocks: Sequence[Block], console: Console) -> None:
    for block in blocks:
        match block:
            case Text():
                say(block.text, console)
            case Heading():
                text = sentence(block.text)
                console.print(text, markup=False, highlight=False, style="bold")
            case Items():
                for item in block.items:
                    say(f"- {item}", console)
            case Questions():
                for question, answer in block.answers:
                    say(f"{question} {answer}", console)
            case Table():
                console.print(drawn(block))


def show_exposed(run: Run, client: str) -> None:
    """Show the rows of one client that are most exposed, or weigh most; they are read here, at
    their owner.
    """
    from bonafed.runs.evaluation import losses_of
    from bonafed.runs.sections.ranks import heaviest as heaviest_rows
    from bonafed.runs.splits import prepare
    from bonafed.solution.tables import exposed_rows

    config, parts = run.config, prepare(run.config)
    parts.owners.position(client)  # raises where there is none
    if config.risk.by_rank:
        problem, owners = config.problem(), parts.owners
        losses = dict(zip(owners.names, losses_of(problem, run.w, owners), strict=True))
        one = config.problem_.pooled or config.risk.together
        table = heaviest(client, heaviest_rows(problem.over_losses, losses, client, one))
    else:
        name = "pooled" if config.problem_.pooled else client
        rows = exposed_rows(config.settled(parts.train).problem(), parts.train, run.w, name)
        table = exposed(name, rows)
    Terminal().print(drawn(table))
