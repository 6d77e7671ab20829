"""Live progress of a run: a table on a terminal, elsewhere a plain line at twice the time. Progress
that cannot be shown is switched off, and the run goes on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bonafed.engines.engine import Watch
from bonafed.report.output import note
from bonafed.report.tables import NAME, NOTHING, Record, printable, sentence, short, size
from bonafed.runs.sections.section import Progress

COMPILING = (
    "compiling numerical kernels for this machine, some seconds and only once; the next run"
    " finds them ready"
)
SOON = 4.0  # seconds until the first plain line; the next ones come at twice the time
REFRESH = 1 / 8  # seconds between two drawings of the table at least

COLUMNS = ("Model", "Round", "Objective", "Gap", "Worst client", "Sent", "Seconds")


class Shown(Progress, Protocol):
    """Progress that is shown inside a ``with`` statement."""

    def __enter__(self) -> Progress: ...

    def __exit__(self, *error: object) -> None: ...


def progress(console: Console, verbose: bool = False) -> Shown:
    """The kind that suits the console; ``verbose``: with a line for what is finished."""
    redraws = getattr(console, "redraws", console.is_terminal)
    return Guarded(LiveTable(console) if redraws else Lines(console, verbose))


def cells(model: str, row: Record, sent: int, seconds: float) -> tuple[str, ...]:
    """The cells of a round, with the bytes ``sent`` and the seconds since the start; these are
    virtual where time is simulated.
    """

    def number(key: str, form: str) -> str:
        value = row.get(key)
        known = isinstance(value, int | float) and math.isfinite(value)
        return f"{value:{form}}" if known else NOTHING

    gap = number("gap", ".1e")
    if "rho" in row and "objective" not in row:  # private: the objective is not computed
        gap = f"copies {gap} apart"
    elif "step" in row and "noise" in row:  # private gradient descent, which has nothing else
        gap = f"noise {number('noise', '.1e')}"
    elif gap == NOTHING and "dual" in row:  # methods that prove no bound on their way
        gap = f"residual {max(row['primal'], row['dual']):.1e}"
    elif gap == NOTHING and row.get("residual", 0.0) > 0:
        gap = f"residual {number('residual', '.1e')}"
        gap += f", violation {number('violation', '.1e')}" if "violation" in row else ""
    worst = short(printable(str(row.get("worst_client", NOTHING))), NAME)
    objective = next(
        (key for key in ("objective", "predicted", "value") if key in row), "objective"
    )
    return (
        model,
        str(row["round"]),
        number(objective, ".6f"),
        gap,
        worst,
        size(sent),
        f"{row.get('time', seconds):.1f}",
    )


class Guarded:
    """Progress that never raises: where showing it fails, it is switched off with one line."""

    def __init__(self, shown: Shown) -> None:
        self.shown, self.on = shown, True
        self.start, self.due = 0.0, 1.0  # seconds: of the first file, and until the next line
        self.listening = ExitStack()

    def __enter__(self) -> Guarded:
        self._try(self.shown.__enter__)
        self.listening.enter_context(on_first_compilation(partial(self.say, COMPILING)))
        return self

    def __exit__(self, *error: object) -> None:
        self.listening.close()
        with suppress(Exception):  # also of a display that is off
            self.shown.__exit__(*error)

    def read(self, done: int, total: int) -> None:
        """A line a second after the first file, and then at twice the time."""
        now = time.monotonic()
        self.start = self.start or now
        if now - self.start >= self.due:
            self.due = 2 * (now - self.start)
            self.say(f"reading: {done:,} of {total:,} files")

    def watch(self, model: str) -> Watch:
        see = self._try(self.shown.watch, model)
        return lambda row, state: self._try(see, row, state)

    def done(self, model: str, text: str) -> None:
        self._try(self.shown.done, model, text)

    def say(self, line: str) -> None:
        self._try(self.shown.say, line)

    def _try(self, act: Callable[..., Any] | None, *arguments: object) -> Any:
        if not self.on or act is None:
            return None
        try:
            return act(*arguments)
        except Exception as error:
            self.on = False
            note(f"progress cannot be shown ({type(error).__name__}: {error}); the run goes on")


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


class _Count:
    """Totals of one model's rounds."""

    def __init__(self) -> None:
        self.sent, self.seconds = 0, 0.0

    def add(self, row: Record) -> tuple[int, float]:
        self.sent += row.get("bytes_up", 0) + row.get("bytes_down", 0)
        self.seconds += row.get("seconds", 0.0)
        return self.sent, self.seconds


class Lines(Progress):
    """One line after some seconds, and then at twice the time, for logs."""

    def __init__(self, console: Console, verbose: bool = False) -> None:
        self.console, self.verbose = console, verbose
        self.start, self.due = time.monotonic(), 0.0 if verbose else SOON

    def watch(self, model: str) -> Watch:
        count = _Count()

        def see(row: Record, state: object) -> None:
            _, number, objective, gap, worst, sent, seconds = cells(model, row, *count.add(row))
            objective = "" if "copies" in gap else f"objective {objective}, "
            gap = gap if "residual" in gap or "copies" in gap else f"gap {gap}"
            # rows in one place have none
            worst = f"worst client {worst}, " if "worst_client" in row else ""
            unit = "virtual s" if "time" in row else "s"
            if (passed := time.monotonic() - self.start) >= self.due:
                self.due = 2 * passed
                self.say(
                    f"{model} round {number}: {objective}{gap}, {worst}{sent}, {seconds} {unit}"
                )

        return see

    def done(self, model: str, text: str) -> None:
        if self.verbose:
            self.say(f"{model}: {text}")

    def say(self, line: str) -> None:
        self.console.print(sentence(line), markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class LiveTable(Progress):
    """A table with one row a model, redrawn as rounds finish."""

    def __init__(self, console: Console) -> None:
        self.rows: dict[str, tuple[str, ...]] = {}
        # drawn between rounds: a thread would meet a row that is being changed
        self.live = Live(console=console, auto_refresh=False, get_renderable=self._table)
        self.drawn = 0.0

    def watch(self, model: str) -> Watch:
        count = _Count()

        def see(row: Record, state: object) -> None:
            self.rows[model] = cells(model, row, *count.add(row))
            if time.monotonic() - self.drawn >= REFRESH:
                self.live.refresh()
                self.drawn = time.monotonic()

        return see

    def done(self, model: str, text: str) -> None:
        self.live.refresh()

    def say(self, line: str) -> None:
        self.live.console.print(sentence(line), markup=False, highlight=False)  # above the table

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for k, name in enumerate(COLUMNS):
            table.add_column(name, justify="left" if k in (0, 4) else "right", no_wrap=k != 4)
        for row in self.rows.values():
            table.add_row(*map(Text, row))  # Text: a client's name is no markup
        return table

    def __enter__(self) -> LiveTable:
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()
