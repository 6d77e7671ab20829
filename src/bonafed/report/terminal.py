"""A run on a terminal: its progress, and what a person reads first of it when it is finished. Names
are other people's input: neither markup nor terminal codes.
"""

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text as Plain

from bonafed.engines.engine import Watch
from bonafed.report import tables
from bonafed.report.blocks import Block, Heading, Items, Questions, Text, plain
from bonafed.report.output import Output, Screen, note
from bonafed.report.sections import told
from bonafed.report.sections.clients import exposed, heaviest
from bonafed.report.tables import Record, Table, lines, printable, sentence
from bonafed.runs.sections.section import Progress, Run

PUBLIC, OWNERS = "public part", "stays with the owner"
UNSEEN = "bonafed verify computes these numbers again; --verbose prints the report."
LINES = 30  # of a terminal that a run fills; so many of them before it is finished, and at its end
BEFORE, END = 9, 4
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
        widest = max((len(row[k]) for row in table.rows), default=0) if right else None
        shown.add_column(Plain(name), justify="right" if right else "left", min_width=widest)
    for row in table.rows:
        shown.add_row(*(Plain(printable(cell)) for cell in row))
    return shown


# --------------------------------------------------------------------------------------- progress

COMPILING = (
    "compiling numerical kernels for this machine, some seconds and only once; the next run"
    " finds them ready"
)
SOON = 4.0  # seconds until the first plain line; the next ones come at twice the time
TOL = 1e-6  # the relative gap of a model that ends, where the configuration has none
REFRESH = 1 / 8  # seconds between two drawings of the table at least
WIDTH = 10  # characters of the bar
COLUMNS = ("Model", "", "Round", "Objective", "Gap", "Worst client", "Sent", "Seconds")


class Display(Progress):
    """A table with one row and one bar a model, redrawn as rounds finish; where the console does
    not redraw, a line after some seconds and then at twice the time. With ``verbose`` there is a
    line for what is finished, with ``quiet`` nothing. ``stopping`` is the relative gap and the
    number of rounds with which a model ends.

    It never raises: where progress cannot be shown, it is switched off with one line, and the run
    goes on.
    """

    def __init__(
        self,
        console: Console,
        verbose: bool = False,
        quiet: bool = False,
        stopping: tuple[float | None, int | None] = (None, None),
    ) -> None:
        self.console, self.verbose, self.on, self.stopping = console, verbose, not quiet, stopping
        self.rows: dict[str, tuple[str, ...]] = {}
        self.bars: dict[str, ProgressBar] = {}
        self.live = None
        if getattr(console, "redraws", console.is_terminal):
            # drawn between rounds: a thread would meet a row that is being changed
            self.live = Live(console=console, auto_refresh=False, get_renderable=self._table)
        # seconds: of the start, until the next line, of the last drawing; and of files the same
        self.start, self.due, self.drawn = time.monotonic(), 0.0 if verbose else SOON, 0.0
        self.first_file, self.due_file = 0.0, 1.0
        self.listening = ExitStack()

    def __enter__(self) -> "Display":
        if self.live is not None:
            self._try(self.live.start)
        self.listening.enter_context(on_first_compilation(partial(self.say, COMPILING)))
        return self

    def __exit__(self, *error: object) -> None:
        self.listening.close()
        with suppress(Exception):  # also of a display that is off
            if self.live is not None:
                self.live.stop()

    def read(self, done: int, total: int) -> None:
        """A line a second after the first file, and then at twice the time."""
        now = time.monotonic()
        self.first_file = self.first_file or now
        if now - self.first_file >= self.due_file:
            self.due_file = 2 * (now - self.first_file)
            self.say(f"reading: {done:,} of {total:,} files")

    def watch(self, model: str) -> Watch:
        sent, seconds, first = 0, 0.0, 0.0
        bar = self.bars[model] = ProgressBar(1.0, 0.0, WIDTH)

        def see(row: Record) -> None:
            nonlocal sent, seconds, first
            sent += row.get("bytes_up", 0) + row.get("bytes_down", 0)
            seconds += row.get("seconds", 0.0)
            self.rows[model] = cells(model, row, sent, seconds)
            first = first or _relative(row)
            bar.update(max(bar.completed, self._reached(row, first)))
            if self.live is None:
                self._line(row, *self.rows[model])
            elif time.monotonic() - self.drawn >= REFRESH:
                self.live.refresh()
                self.drawn = time.monotonic()

        return lambda row, state: self._try(see, row)

    def done(self, model: str, text: str) -> None:
        if model in self.bars:
            self.bars[model].update(1.0)
        if self.live is not None:
            self._try(self.live.refresh)
        elif self.verbose:
            self.say(f"{model}: {text}")

    def say(self, line: str) -> None:
        wrap = self.live is None  # else it stands above the table
        show = partial(self.console.print, markup=False, highlight=False, soft_wrap=wrap)
        self._try(lambda: show(sentence(line)))

    def _reached(self, row: Record, first: float) -> float:
        """How far a model is: of its rounds or, on a logarithmic scale, of the gap that is left."""
        (tol, most), gap = self.stopping, _relative(row)
        tol, rounds = tol or TOL, row["round"] / most if most else 0.0
        far = math.log(first / gap) / math.log(first / tol) if first > tol and gap else 0.0
        return min(1.0, max(rounds, far))

    def _line(
        self, row: Record, model: str, number: str, objective: str, gap: str, worst: str, *more: str
    ) -> None:
        if (passed := time.monotonic() - self.start) < self.due:
            return
        self.due, (sent, seconds) = 2 * passed, more
        objective = "" if "copies" in gap else f"objective {objective}, "
        gap = gap if "residual" in gap or "copies" in gap else f"gap {gap}"
        # rows in one place have none
        worst = f"worst client {worst}, " if "worst_client" in row else ""
        seconds += " virtual s" if "time" in row else " s"
        self.say(f"{model} round {number}: {objective}{gap}, {worst}{sent}, {seconds}")

    def _table(self) -> RichTable:
        table = RichTable(box=None, pad_edge=False, header_style="bold")
        for k, name in enumerate(COLUMNS):
            table.add_column(name, justify="left" if k in (0, 5) else "right", no_wrap=k != 5)
        for model, row in self.rows.items():
            name, *more = map(Plain, row)  # a client's name is no markup
            table.add_row(name, self.bars[model], *more)
        return table

    def _try(self, act: Callable[..., Any], *arguments: object) -> None:
        if self.on:
            try:
                act(*arguments)
            except Exception as error:
                self.on = False
                kind = type(error).__name__
                note(f"progress cannot be shown ({kind}: {error}); the run goes on")


def _relative(row: Record) -> float:
    """The gap of a round relative to the objective, 0 where it is not known."""
    gap, value = row.get("gap"), row.get("objective", 0.0)
    if not (isinstance(gap, int | float) and isinstance(value, int | float)):
        return 0.0
    relative = gap / max(1.0, abs(value))
    return relative if 0 < relative < math.inf else 0.0


def cells(model: str, row: Record, sent: int, seconds: float) -> tuple[str, ...]:
    """The cells of a round, with the bytes ``sent`` and the seconds since the start; these are
    virtual where time is simulated.
    """

    def number(key: str, form: str) -> str:
        value = row.get(key)
        known = isinstance(value, int | float) and math.isfinite(value)
        return f"{value:{form}}" if known else tables.NOTHING

    gap, violation = number("gap", ".1e"), f", violation {number('violation', '.1e')}"
    if "rho" in row and "objective" not in row:  # private: the objective is not computed
        gap = f"copies {gap} apart"
    elif "step" in row and "noise" in row:  # private gradient descent, which has nothing else
        gap = f"noise {number('noise', '.1e')}"
    elif gap == tables.NOTHING and "dual" in row:  # methods that prove no bound on their way
        gap = f"residual {max(row['primal'], row['dual']):.1e}"
    elif gap == tables.NOTHING and row.get("residual", 0.0) > 0:
        gap = f"residual {number('residual', '.1e')}{violation * ('violation' in row)}"
    worst = tables.short(printable(str(row.get("worst_client", tables.NOTHING))), tables.NAME)
    known = [key for key in ("objective", "predicted", "value") if key in row]
    objective, passed = number((*known, "objective")[0], ".6f"), f"{row.get('time', seconds):.1f}"
    return model, str(row["round"]), objective, gap, worst, tables.size(sent), passed


@contextmanager
def on_first_compilation(act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` once if numba compiles a kernel meanwhile, which it need not for one that it
    has in its cache.
    """
    from numba.core import event

    class First(event.Listener):
        done = False

        def on_start(self, event: object) -> None:
            if not self.done:
                self.done = True
                act()

        def on_end(self, event: object) -> None: ...

    with event.install_listener("numba:compile", First()):
        yield


# ----------------------------------------------------------------------------------- finished runs


def show(run: Run, console: Console, verbose: bool = False, quiet: bool = False) -> None:
    """Show the run in short: of a private run the public part and then the owner's; ``verbose``:
    the whole report first; ``quiet``: warnings only. On a terminal it is what fits, of what a page
    opens with. Last of all say where the reports are, after the seals, which are to be kept
    elsewhere.
    """
    parts = [(PUBLIC if run.private else "report", run)]
    parts += [] if run.owner is None else [(OWNERS, run.owner)]
    sections = [told(part) for _, part in parts]
    whole = [chapter for each in sections for section in each for chapter in section.chapters]
    for chapter in whole if verbose else ():
        if blocks := [*plain(chapter.blocks, chapter.title)]:
            console.print()
            _print([Heading(chapter.title), *blocks], console)
    brief: list[tuple[int, Block]] = []  # each with its place in the page
    for each in sections:
        told_here = [[(k, block) for block in _parts(part.brief)] for k, part in enumerate(each, 1)]
        brief += [(0, Heading(section.lead)) for section in each if section.lead]
        brief += chain(*reversed(told_here))  # what a page opens with stands last
    fits = console.is_terminal and not verbose
    room = LINES - BEFORE - END * len(parts) if fits else None
    for block in [] if quiet else _fitting(brief, room, console):
        if isinstance(block, Heading):
            console.print()
        _print([block], console)
    if quiet:
        for warning in (note for _, part in parts for note in part.result["notes"]):
            say(f"warning: {warning}", console)
    else:
        say(UNSEEN, console)
    called = {OWNERS: "owner's part", PUBLIC: PUBLIC}
    end = [f"seal of the {called.get(name, 'run')}: {part.result['seal']}" for name, part in parts]
    for name, part in parts:
        report = part.path / "report.html"
        opened = "open next" if name == "report" and report.is_file() else name
        end.append(f"{opened}: {report if report.is_file() else part.path}")
    for line in end:
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def _parts(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, every question as a paragraph."""
    for block in blocks:
        if isinstance(block, Questions):
            yield from (Text(f"{question} {answer}") for question, answer in block.answers)
        else:
            yield block


def _fitting(
    blocks: Sequence[tuple[int, Block]], room: int | None, console: Console
) -> list[Block]:
    """The blocks that fit in so many lines of a terminal, the first ones of a page before others;
    all of them without a limit.
    """
    if room is None:
        return [block for _, block in blocks]
    kept = set[int]()
    for k in sorted(range(len(blocks)), key=lambda k: blocks[k][0]):
        with console.capture() as captured:
            _print([blocks[k][1]], console)
        height = captured.get().count("\n") + isinstance(blocks[k][1], Heading)
        if height <= room:
            kept, room = kept | {k}, room - height
    return [blocks[k][1] for k in sorted(kept)]


def _print(blocks: Sequence[Block], console: Console) -> None:
    for block in blocks:
        match block:
            case Text():
                say(block.text, console)
            case Heading():
                console.print(sentence(block.text), markup=False, highlight=False, style="bold")
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
    from bonafed.runs.sections.constraints import heaviest as heaviest_rows
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
        known = {str(row["client"]): row for row in tables.people(run.result)}
        table = exposed(name, rows, known.get(name, {}))
    _print([table], Terminal())
