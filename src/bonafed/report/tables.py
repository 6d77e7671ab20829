"""Tables of text, and numbers as text, the same for a terminal, a page and Markdown."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bonafed.text import printable, short

if TYPE_CHECKING:
    from bonafed.measures import Figure

Record: TypeAlias = Mapping[str, Any]  # an object in JSON, such as a row of a table
Rows: TypeAlias = Sequence[Record]
Result: TypeAlias = Record  # a result.json
Way: TypeAlias = Callable[[Any], str]  # how a value is written
NOTHING = "–"  # where a table has no number
OF_BALLS = ("radius", "flips", "shift", "active")  # what a client has no use for beside ranks
# characters that people are shown of a name or number in a table, of words in a table, of one word
# and of one line
NAME, CELL, WORD, LINE = 40, 80, 200, 2_000


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
        head, *body = (map(escaped, row) for row in (self.columns, *self.rows))
        rule = ("--:" if right else ":--" for right in self.numeric)
        return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    text: Sequence[int] = (0,),
    long: Sequence[int] = (),
) -> Table:
    """A table whose columns hold numbers, except for those at the positions in ``text``; cells are
    one short line, except for those of the columns in ``long``.
    """
    numeric = tuple(k not in text for k in range(len(columns)))
    most = [LINE if k in long else CELL if k in text and k else NAME for k in range(len(columns))]
    cells = tuple(tuple(map(short, map(printable, row), most)) for row in rows)
    heads = tuple(short(printable(name), CELL) for name in columns)
    return Table(title, heads, cells, numeric, tuple(long))


def of_rows(
    title: str,
    rows: Iterable[Record],
    heads: Mapping[str, str],
    ways: Mapping[str, Way] | None = None,
    text: Collection[str] | None = (),
    long: Collection[str] = (),
) -> Table:
    """A table with a line for every row and a column for every key of ``heads``.

    ``ways`` says how the values of a key are written (by default as `number` does). The first
    column and those in ``text`` are words; with None all columns are numbers. Words of those in
    ``long`` may be broken.
    """
    ways, keys = ways or {}, [*heads]
    cells = [[ways.get(key, number)(row.get(key)) for key in keys] for row in rows]
    words = [] if text is None else [0, *(keys.index(key) for key in text if key in keys)]
    broken = [keys.index(key) for key in long if key in keys]
    return table(title, [*heads.values()], cells, words, broken)


def filled(heads: Mapping[str, str], rows: Rows) -> dict[str, str]:
    """The columns for which some row has a value."""
    given = {key for row in rows for key, value in row.items() if value not in (None, "")}
    return {key: head for key, head in heads.items() if key in given}


# -------------------------------------------------------------------------------- numbers as text


def lines(text: str) -> str:
    """The text with its lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def sentence(text: str) -> str:
    """The text on one line that people can read: words of more than ``WORD`` characters are
    shortened, and so is a line of more than ``LINE``.
    """
    text = printable(text)
    if len(text) > WORD:
        text = short(" ".join(short(word, WORD) for word in text.split(" ")), LINE)
    return text


def escaped(text: str) -> str:
    """The text inside Markdown: one line, and nothing that opens a cell, a tag, a link, a formula,
    a list or a heading.
    """
    text = " ".join(sentence(text).split())
    text = re.sub(r"[\\|<>\[\]`*_~&$]|(?<=\w):(?=//)|(?<=www)\.", r"\\\g<0>", text, flags=re.I)
    return re.sub(r"^(\d*)([-+#=.)]+)(?=\s|$)", r"\1\\\2", text)


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
    """The rows of the table of clients; of rows that are ranked together those of their owners."""
    owners, by_client = result.get("owners", ()), {row["client"]: row for row in result["clients"]}
    rows = [by_client.get(row["client"], {}) | row for row in owners]
    owned = [{k: v for k, v in row.items() if k not in OF_BALLS} for row in rows]
    return owned or result["clients"]


def by_set(measures: Rows) -> dict[str, list[Record]]:
    """The rows of an evaluation by the set of rows that they are about."""
    sets = dict.fromkeys(row["set"] for row in measures)
    return {name: [row for row in measures if row["set"] == name] for name in sets}


def merit(row: Record) -> tuple[str, Way]:
    """What measures the predictions of a model, and how it is written: accuracy or error."""
    return ("accuracy", percent) if "accuracy" in row else ("error", number)


def in_tables() -> "dict[str, Figure]":
    """The figures that tables of a set of rows have, by their keys there, in their order."""
    from bonafed.measures import figures_of  # with NumPy, which a command's help does not need

    placed = sorted((f.place, k, f) for k, f in enumerate(figures_of()) if f.place is not None)
    return {"error" if f.key == "mae" else f.key: f for _, _, f in placed}


def _beside() -> dict[str, str]:
    """What is compared between runs, and how it is called."""
    known = {"risk": "risk"}
    for key, figure in in_tables().items():
        if figure.beside:
            known[key] = figure.spoken
        if key in ("accuracy", "error"):
            known[f"worst_{key}"] = f"worst client {key}"
    return known | {"loss": "loss", "worst_loss": "worst client loss"}


def compared(runs: Mapping[str, Result]) -> Table:
    """Several runs side by side, with one column for each."""
    columns, lines = [_column(result) for result in runs.values()], []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name) for column in columns]
        if name in ALWAYS or any(value is not None for value in values):
            lines.append((name, *map(number, values)))
    return table("Runs", ("", *runs), lines)


WORST = "worst client's worst-case loss"
PROVEN = ("value", "bound", "gap", "relative gap")
ALWAYS = (*PROVEN, WORST)  # lines that stand there even where no run has the number


def _column(result: Result) -> dict[str, Any]:
    """The numbers of a run that are compared with those of others, by what they are called."""
    parts = ("certificate", "privacy", "clock")
    certificate, privacy, clock = (result.get(part) or {} for part in parts)
    losses = [row.get("worst_loss") for row in people(result)]
    column = {name: certificate.get(name.replace(" ", "_")) for name in PROVEN}
    column |= {"total epsilon": privacy.get("epsilon"), "delta": privacy.get("delta")}
    column |= {"virtual seconds": clock.get("time"), "answers": clock.get("answers")}
    column |= {"rounds": result["rounds"], "ended": result["outcome"]["stop"]}
    column[WORST] = max(losses, key=lambda loss: -math.inf if loss is None else loss)
    for row in own_measures(result):
        column |= {f"{row['set']}: {called}": row.get(key) for key, called in _beside().items()}
    return column


def own_measures(result: Result) -> list[Record]:
    """The rows of the evaluation that are about the model of the run itself."""
    rows = result["evaluation"]["measures"]
    return [row for row in rows if row["model"] == result["model"]]
