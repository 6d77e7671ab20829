"""A finished run on a terminal: what a person reads first. Names are other people's input: neither
markup nor terminal codes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text as Plain

from bonafed.report.output import Output, Screen
from bonafed.report.sections import SECTIONS
from bonafed.report.sections.clients import exposed
from bonafed.report.sections.ranks import heaviest
from bonafed.report.sections.section import Block, Heading, Questions, Text
from bonafed.report.tables import Table, lines, printable, sentence
from bonafed.runs.run import Run

PUBLIC, OWNERS = "public part", "stays with the owner"
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
    shown = RichTable(
        title=Plain(sentence(table.title), "bold"), title_justify="left", box=None, pad_edge=False
    )
    for k, (name, right) in enumerate(zip(table.columns, table.numeric, strict=True)):
        # headings wrap, numbers do not
        widest = max((len(row[k]) for row in table.rows), default=0)
        shown.add_column(
            Plain(name), justify="right" if right else "left", min_width=widest if right else None
        )
    for row in table.rows:
        shown.add_row(*(Plain(printable(cell)) for cell in row))
    return shown


def show(run: Run, console: Console) -> None:
    """Show the run in short, its conclusions last: of a private run the public part and then the
    owner's. Last of all say where the reports are, after the seals, which are to be kept elsewhere.
    """
    parts = [(PUBLIC if run.private else "report", run)]
    parts += [] if run.owner is None else [(OWNERS, run.owner)]
    for _, part in parts:
        _show_part(part, console)
    for name, part in parts:
        whose = {OWNERS: "owner's part", PUBLIC: PUBLIC}.get(name, "run")
        seal = f"seal of the {whose}: {part.result['seal']}"
        console.print(seal, markup=False, highlight=False, soft_wrap=True)
    for name, part in parts:
        report = part.path / "report.html"
        place = report if report.is_file() else part.path
        line = printable(f"{name}: {place}")
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_part(run: Run, console: Console) -> None:
    sections = [section for section in SECTIONS if section.applies(run)]
    for lead in filter(None, (section.lead(run) for section in sections)):
        console.print()
        _print(Heading(lead), console)
    for section in reversed(sections):  # what a page opens with stands last
        before = None
        for block in section.brief(run, console.width):
            if not isinstance(block, Text) or not isinstance(before, Text | Heading):
                console.print()
            _print(block, console)
            before = block


def _print(block: Block, console: Console) -> None:
    match block:
        case Text():
            say(block.text, console)
        case Heading():
            console.print(sentence(block.text), markup=False, highlight=False, style="bold")
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
    from bonafed.solution.client_table import exposed_rows

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
