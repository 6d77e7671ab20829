"""Tables of dictionaries, as they print and as data frames."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.util import find_spec
from typing import Any, TypeAlias

from bonafed.text import install, printable, short

Record: TypeAlias = dict[str, Any]
LIBRARIES = ("pandas", "polars", "pyarrow")
ROWS, COLUMNS, CELL = 10, 11, 12  # that are printed, and characters of a cell
SHOWN = 50  # rows in a notebook


class Table(list[Record]):
    """Rows as dictionaries, which print as a table.

    Examples
    --------
    >>> from bonafed.solution.frames import Table
    >>> Table([{"client": "a", "loss": 0.25}, {"client": 3, "loss": None}])
    client  loss
         a  0.25
         3     –
    """

    def frame(self, backend: str | None = None) -> Any:
        """The rows as a data frame, see `frame`."""
        return frame(self, backend)

    def _cells(self, rows: int, columns: int, most: int) -> list[list[str]]:
        """Heads and rows as text."""
        heads = list(dict.fromkeys(key for row in self for key in row))[:columns]
        return [heads, *([_cell(row.get(key), most) for key in heads] for row in self[:rows])]

    def __repr__(self) -> str:
        lines = self._cells(ROWS, COLUMNS, CELL)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        more = [f"... {len(self):,} rows; .frame() has all"] if len(self) > ROWS else []
        return "\n".join([*text, *more])

    def _repr_html_(self) -> str:
        tags = ["th", *["td"] * SHOWN]
        rows = [
            "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line)
            for tag, line in zip(tags, self._cells(SHOWN, 10**6, 60), strict=False)
        ]
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _cell(value: object, most: int) -> str:
    if value is None:
        return "–"
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return short(printable(text), most)


def frame(rows: Sequence[Record], backend: str | None = None) -> Any:
    """The rows as a data frame, one column for each key.

    Parameters
    ----------
    backend : "pandas", "polars" or "pyarrow"; None: the first of them that is installed

    Raises
    ------
    ImportError
        where none is installed, or not the one asked for
    """
    import narwhals as nw

    if backend is not None and backend not in LIBRARIES:
        raise ValueError(f"backend must be one of {', '.join(LIBRARIES)}, got {backend!r}.")
    there = [name for name in ([backend] if backend else LIBRARIES) if find_spec(name)]
    if not there:
        raise ImportError(
            f"a data frame needs {backend or 'pandas, polars or pyarrow'}: {install('frames')}."
            " The same rows are a list of dictionaries in solution.clients and"
            " solution.history."
        )
    library: Any = there[0]
    return nw.from_dict(columns(rows, mixed=library == "pandas"), backend=library).to_native()


def columns(rows: Sequence[Record], mixed: bool) -> dict[str, list[Any]]:
    """The columns by name; None where a row has no value. ``mixed``: whether a column may hold both
    texts and numbers, as the names of clients and "all clients".
    """
    names = dict.fromkeys(key for row in rows for key in row)
    return {name: _column([row.get(name) for row in rows], mixed) for name in names}


def _column(values: list[Any], mixed: bool) -> list[Any]:
    """A column of one type, unless it may be mixed: of texts, where there are texts and others; an
    empty text is a missing value beside numbers.
    """
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) + values.count(None) == len(values):
        return values
    if any(texts):
        return values if mixed else [None if v is None else str(v) for v in values]
    return [None if isinstance(value, str) else value for value in values]
