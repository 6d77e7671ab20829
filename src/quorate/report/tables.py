"""Tables of text, and numbers as text, the same for a terminal, a page and Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Result = Mapping[str, Any]  # a result.json
NOTHING = "–"  # where a table has no number


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes
    ----------
    numeric : by column, whether it holds numbers and is aligned right
    long : the positions of the columns whose text may be broken into several lines
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    long: tuple[int, ...] = ()

    def markdown(self) -> str:
        """The table in Markdown."""
        lines = [
            self.columns,
            tuple("--:" if right else ":--" for right in self.numeric),
            *self.rows,
        ]
        return "\n".join("| " + " | ".join(map(escaped, line)) + " |" for line in lines)

    def first(self, most: int) -> Table:
        """The table with its first rows alone."""
        return Table(self.title, self.columns, self.rows[:most], self.numeric, self.long)


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    text: Sequence[int] = (0,),
    long: Sequence[int] = (),
) -> Table:
    """A table whose columns hold numbers, except for those at the positions in ``text``."""
    numeric = tuple(k not in text for k in range(len(columns)))
    cells = tuple(tuple(map(printable, row)) for row in rows)
    return Table(title, tuple(columns), cells, numeric, tuple(long))


# -------------------------------------------------------------------------------- numbers as text


def printable(text: str) -> str:
    """The text without terminal codes and without signs that turn the reading direction: the name
    of a client may hold anything.
    """
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)


def escaped(cell: str) -> str:
    """The text inside Markdown: one line, and nothing that opens a cell, a tag or a link."""
    cell = printable(cell)
    for sign in "\\|<>[]`*_":
        cell = cell.replace(sign, "\\" + sign)
    return " ".join(cell.split())


def spaced(name: str) -> str:
    """A name from result.json without its underscores."""
    return name.replace("_", " ")


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def number(value: float | str | None) -> str:
    """A number to four digits."""
    if value is None:
        return NOTHING
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share in percent."""
    return NOTHING if value is None else f"{100 * value:.1f} %"


def size(value: float | None) -> str:
    """A number of bytes."""
    if value is None:
        return NOTHING
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"


def magnitude(value: float | None) -> str:
    """The order of magnitude of a small number, such as a gap."""
    return NOTHING if value is None else f"{value:.0e}"


def precise(value: float) -> str:
    """Nine digits where they mean something: a value near zero needs three."""
    return f"{value:.9g}" if abs(value) > 1e-3 else f"{value:.3g}"


def without_rounding(value: float | None) -> str:
    """A number, 0 where only rounding keeps it from 0."""
    return number(0.0 if value is not None and abs(value) < 1e-9 else value)


# --------------------------------------------------------------------------------- from a result


def people(result: Result) -> list[dict[str, Any]]:
    """The row of every client; of pooled rows that of each of their owners."""
    return result.get("owners") or result["clients"]


def by_set(measures: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """The rows of an evaluation by the set of rows that they are about."""
    sets: dict[str, list[Mapping[str, Any]]] = {}
    for row in measures:
        sets.setdefault(row["set"], []).append(row)
    return sets


def merit(row: Mapping[str, Any]) -> tuple[str, Callable[[float | None], str]]:
    """What measures the predictions of a model, and how it is written: accuracy or error."""
    return ("accuracy", percent) if "accuracy" in row else ("error", number)


JUDGED = ("risk", "accuracy", "worst_accuracy", "error", "worst_error", "loss", "worst_loss")


def compared(runs: Mapping[str, Result]) -> Table:
    """Several runs side by side, with one column for each."""
    lines = [(name, [number(of(result)) for result in runs.values()]) for name, of in _lines(runs)]
    for name in dict.fromkeys(row["set"] for r in runs.values() for row in _measures(r)):
        for key in JUDGED:
            values = [_measure(result, name, key) for result in runs.values()]
            if any(value is not None for value in values):
                head = f"{name}: {spaced(key).replace('worst', 'worst client')}"
                lines.append((head, [*map(number, values)]))
    return table("Runs", ("", *runs), [(name, *cells) for name, cells in lines])


def _lines(runs: Mapping[str, Result]) -> list[tuple[str, Callable[[Result], Any]]]:
    """The numbers that are compared: what each is called, and where it is in a result."""

    def inside(part: str, key: str) -> Callable[[Result], Any]:
        return lambda result: (result.get(part) or {}).get(key)

    keys = ("value", "bound", "gap", "relative_gap")
    lines = [(spaced(key), inside("certificate", key)) for key in keys]
    if any("privacy" in result for result in runs.values()):
        lines.append(("total epsilon", inside("privacy", "epsilon")))
        lines.append(("delta", inside("privacy", "delta")))
    if any("clock" in result for result in runs.values()):
        lines.append(("virtual seconds", inside("clock", "time")))
        lines.append(("answers", inside("clock", "answers")))
    lines.append(("rounds", lambda result: result["rounds"]))
    lines.append(("ended", lambda result: result["outcome"]["stop"]))
    lines.append(("worst client's worst-case loss", _worst_case))
    return lines


def _worst_case(result: Result) -> float | None:
    losses = [row.get("worst_loss") for row in people(result)]
    return max(losses, key=lambda loss: -math.inf if loss is None else loss)


def _measures(result: Result) -> list[dict[str, Any]]:
    """The rows of the evaluation that are about the model of the run itself."""
    rows = result["evaluation"]["measures"]
    return [row for row in rows if row["model"] == result["model"]]


def _measure(result: Result, name: str, key: str) -> float | None:
    return next((row.get(key) for row in _measures(result) if row["set"] == name), None)
