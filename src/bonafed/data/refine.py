"""The columns of a table as a `Reading` declares them: missing cells, merged spellings, decimal
commas, dates as numbers, censored values.

Every cell is read by itself, and all columns are looked at before any is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.client_names import closest
from bonafed.data.reading import Dates, Reading, is_censored
from bonafed.data.row_errors import Faults, RowError
from bonafed.data.tables import Table, is_number, parsed, texts

# an index that was saved with the rows has no name; pandas calls it "Unnamed: 0" when it reads it
NAMELESS = re.compile(r"(Unnamed: \d+(_level_\d+)?)?")
NUMBER = r"[+-]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][+-]?\d+)?"
COMMA = re.compile(r"[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?")
CENSORED = re.compile(rf"(<=?|>=?|≤|≥)?\s*({NUMBER})")
YMD = r"(?P<y>\d{4})(?P<s>[-./ ]?)(?P<m>\d\d?)(?P=s)(?P<d>\d\d?)"
DMY = r"(?P<d>\d\d?)(?P<s>[-./ ])(?P<m>\d\d?)(?P=s)(?P<y>\d{4})"
MDY = r"(?P<m>\d\d?)(?P<s>[-./ ])(?P<d>\d\d?)(?P=s)(?P<y>\d{4})"
TIME = r"(?:[T ]\d\d?:\d\d.*)?"  # the time of day, which is not read
DATES = {
    order: re.compile(pattern + TIME)
    for order, pattern in {"ymd": YMD, "dmy": DMY, "mdy": MDY}.items()
}
ORIGIN = date(2000, 1, 1).toordinal()
OTHERWISE = (
    "Correct these cells, list such texts in `missing`, or declare the column in `categorical` or"
    " `exclude`."
)


def refined(
    table: Table, reading: Reading, text: Sequence[str] = (), where: str = "the table"
) -> Table:
    """The table as ``reading`` has it; columns in ``text`` stay text. A table that was read so is
    returned as it is.

    Raises
    ------
    RowError, RowErrors : cells that are not as declared, in all such columns
    """
    if table.reading is not None:
        return table
    columns: dict[str, NDArray[Any]] = {}
    with Faults() as faults:
        for name in table:
            if NAMELESS.fullmatch(name) or name in reading.exclude:
                continue
            with faults.of(name):
                for key, column in _columns(table, name, reading, name in text, where):
                    if key != name and key in table:
                        raise RowError(
                            where,
                            f"column {key!r} is there, and is made of {name!r} as well",
                            do="Rename it, or leave it out by `exclude`.",
                        )
                    columns[key] = column
    result = table.with_columns(columns)
    result.reading = reading
    return result


def check_named(reading: Reading, header: Collection[str]) -> None:
    """Refuse to declare something of a column that is not there: it may be a slip."""
    for key in ("exclude", "dates", "censored", "merge"):
        for name in getattr(reading, key):
            if header and name not in header:
                raise RowError(
                    "",
                    f"there is no column {name!r} (`{key}`)",
                    shown=closest(name, header).removesuffix("."),
                    do="The first line of a file has to name its columns.",
                )


def _columns(
    table: Table, name: str, reading: Reading, as_text: bool, where: str
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The columns that one column becomes, by name."""
    whole = as_text or name in reading.dates or name in reading.censored
    table = table.with_columns({name: _cells(table, name, reading, whole, where)})
    if name in reading.dates:
        yield from _of_dates(table, name, reading.dates[name], where)
    elif name in reading.censored:
        yield from _of_limits(table, name, reading.decimal, where)
    elif table[name].dtype.kind == "O" and as_text:
        yield name, _codes(table[name])
    elif table[name].dtype.kind == "O" and reading.decimal == ",":
        yield name, _of_commas(table, name, where)
    else:
        yield name, table[name]


def _cells(table: Table, name: str, reading: Reading, as_text: bool, where: str) -> NDArray[Any]:
    """The cells with spellings merged, and those missing that are declared so; numbers again where
    nothing else is left.
    """
    column, merge = table[name], reading.merge.get(name, {})
    if merge or (column.dtype.kind == "O" and reading.missing):
        spellings = {as_it_stands.strip(): text for as_it_stands, text in merge.items()}
        cells = texts(table, name, where) if merge else column.tolist()
        cells = [spellings.get(c.strip(), c) if isinstance(c, str) else c for c in cells]
        absent = {*reading.missing}
        cells = [None if isinstance(c, str) and c.strip() in absent else c for c in cells]
        column = _objects(cells)
        if not as_text and all(c is None or (isinstance(c, str) and is_number(c)) for c in cells):
            column = parsed(["" if c is None else c for c in cells])
    codes = [float(text) for text in reading.missing if is_number(text)]
    if column.dtype.kind in "if" and (absent_rows := np.isin(column, codes)).any():
        return np.where(absent_rows, np.nan, column)
    return column


def _objects(cells: Sequence[object]) -> NDArray[Any]:
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def _codes(column: NDArray[Any]) -> NDArray[Any]:
    """Codes as they are written; whole numbers that another program wrote as 1.0, because a cell of
    the column is missing, as 1.
    """
    cells = column.tolist()
    present = [cell for cell in cells if cell is not None]
    if len(present) == len(cells) or not all(re.fullmatch(r"-?\d+\.0", str(c)) for c in present):
        return column
    return _objects([None if cell is None else str(cell)[:-2] for cell in cells])


def _of_commas(table: Table, name: str, where: str) -> NDArray[Any]:
    """Numbers with a decimal comma, where every cell is one, or a whole number; else the text."""
    column = table[name]
    present = [cell for cell in column.tolist() if cell is not None]
    if not present or not all(isinstance(cell, str) for cell in present):
        return column
    good = [COMMA.fullmatch(cell) is not None for cell in present]
    if all(good):
        return _floats(column)
    commas = any("," in cell for cell, fits in zip(present, good, strict=True) if fits)
    if not commas and not all(map(is_number, present)):
        return column
    rows = [r for r, c in enumerate(column.tolist()) if c is not None and not COMMA.fullmatch(c)]
    what = "has numbers with a decimal comma, and other cells" if commas else "has a decimal point"
    raise RowError(
        where,
        f"column {name!r} {what}, where `decimal` is a comma",
        shown=f", such as {column[rows[0]]!r}",
        rows=rows,
        do=OTHERWISE,
        place=table.place,
    )


def _floats(column: NDArray[Any]) -> Array:
    return np.array([np.nan if c is None else float(c.replace(",", ".")) for c in column.tolist()])


def _of_limits(
    table: Table, name: str, decimal: str, where: str
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Half of the limit where a cell is below one, the limit where it is above, and where."""
    if table[name].dtype.kind != "O":
        yield name, table[name]
        yield is_censored(name), np.zeros(len(table[name]))
        return
    matches = [None if c is None else CENSORED.fullmatch(c) for c in texts(table, name, where)]
    other = "," if decimal == "." else "."
    rows = [
        r
        for r, (cell, match) in enumerate(zip(table[name].tolist(), matches, strict=True))
        if cell is not None and (match is None or other in cell)
    ]
    if rows:
        raise RowError(
            where,
            f"column {name!r} has cells that are not a number (`decimal` = {decimal!r}) and no"
            " limit such as <5 or >100",
            shown=f", such as {table[name][rows[0]]!r}",
            rows=rows,
            do=OTHERWISE,
            place=table.place,
        )
    values = _floats(_objects([match and match[2] for match in matches]))
    signs = [match[1][0] if match and match[1] else "" for match in matches]
    yield name, values * np.where([sign in ("<", "≤") for sign in signs], 0.5, 1.0)
    yield is_censored(name), np.array([float(bool(sign)) for sign in signs])


def _of_dates(
    table: Table, name: str, how: Dates, where: str
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The numbers that are made of dates, a column each."""
    column = table[name]
    cells = texts(table, name, where) if column.dtype.kind in "iuf" else column.tolist()
    known: dict[Any, date | None] = {None: None}  # few dates are of one day alone
    wrong = {cell for cell in {*cells} if not _read_date(cell, DATES[how.order], known)}
    if wrong:
        rows = [r for r, cell in enumerate(cells) if cell in wrong]
        raise RowError(
            where,
            f"column {name!r} has cells that are not a date in the order {how.order!r} with a year"
            " of four digits",
            shown=f", such as {cells[rows[0]]!r}",
            rows=rows,
            do=OTHERWISE.replace("`categorical` or ", ""),
            place=table.place,
        )
    numbers = {
        "year": lambda day: day.year,
        "month": lambda day: day.month,
        "weekday": lambda day: day.isoweekday(),
        "days": lambda day: day.toordinal() - ORIGIN,
    }
    for part, key in how.columns(name).items():
        of = {cell: np.nan if day is None else numbers[part](day) for cell, day in known.items()}
        yield key, np.array([of[cell] for cell in cells], dtype=np.float64)


def _read_date(cell: object, pattern: re.Pattern[str], known: dict[Any, date | None]) -> bool:
    """Keep the day of a cell among those that are known; whether it has one, or is missing."""
    if isinstance(cell, date):  # also with a time of day
        known[cell] = date(cell.year, cell.month, cell.day)
    elif isinstance(cell, str) and (match := pattern.fullmatch(cell.strip())):
        try:
            known[cell] = date(int(match["y"]), int(match["m"]), int(match["d"]))
        except ValueError:
            return False
    return cell in known
