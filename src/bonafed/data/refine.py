"""The columns of a table as a `Reading` declares them: missing cells, merged spellings, decimal
commas, dates as numbers, censored values.

Every cell is read by itself, and all columns are looked at before any is refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.client_names import closest
from bonafed.data.column_kinds import KINDS, ColumnKind
from bonafed.data.reading import Reading
from bonafed.data.row_errors import Faults, RowError
from bonafed.data.tables import Table, is_number, parsed, texts

# an index that was saved with the rows has no name; pandas calls it "Unnamed: 0" when it reads it
NAMELESS = re.compile(r"(Unnamed: \d+(_level_\d+)?)?")
COMMA = re.compile(r"[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?")
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
    declared = {key: reading.of(key) for key in reading.kinds}
    for key, names in ({"exclude": reading.exclude} | declared | {"merge": reading.merge}).items():
        for name in names:
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
    kind = next((KINDS[key] for key in reading.kinds if name in reading.of(key)), None)
    whole = as_text or kind is not None
    table = table.with_columns({name: _cells(table, name, reading, whole, where)})
    if kind is not None:
        yield from _of_kind(table, name, kind, reading, where)
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


def _of_kind(
    table: Table, name: str, kind: ColumnKind, reading: Reading, where: str
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The columns that are made of a column of a kind."""
    column, how = table[name], reading.of(kind.key)[name]
    if column.dtype.kind in "iuf" and not kind.beside_numbers:
        cells: list[Any] = texts(table, name, where)
    else:
        cells = [None if cell != cell else cell for cell in column.tolist()]
    made, wrong = kind.read(cells, how, reading.decimal)
    if wrong:
        raise RowError(
            where,
            f"column {name!r} has cells that {kind.wrong.format(how=how, decimal=reading.decimal)}",
            shown=f", such as {cells[wrong[0]]!r}",
            rows=wrong,
            do=OTHERWISE if kind.beside_numbers else OTHERWISE.replace("`categorical` or ", ""),
            place=table.place,
        )
    yield from zip(kind.columns(name, how), made, strict=True)
