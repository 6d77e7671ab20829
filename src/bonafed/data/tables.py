"""Tables ``{column: (m,) array}`` from data frames, and the tables of clients.

A column is int64, float64 (NaN where missing), bool, or an object array of text (None where
missing).
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.client_names import ByClient, ClientName, closest, repeated
from bonafed.data import validation as check
from bonafed.data.holdout import held_out
from bonafed.data.reading import KINDS, Reading
from bonafed.data.row_errors import Faults, RowError, in_table, located
from bonafed.text import plain

if TYPE_CHECKING:
    from narwhals import Series


Cells = NDArray[Any]  # of a column
Names = Sequence[str]
EXACT = 2**53  # from here on float64 has not every whole number
# whole numbers with so many digits that several are one number in float64
DIGITS = re.compile(r"[+-]?0*[1-9]\d{15,}(\.0*)?|[+-]?\d\.\d{17,}[eE]\+?\d+")
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"})


class Table(dict[str, Cells]):
    """Columns by name, and where their rows are from: lines of a file, if they were read there.

    ``header``: the columns of the file, also those that were left out; ``reading``: how it was
    read, None for a table as somebody gave it; ``others``: the lines of the file on which no row
    begins, by what they are; ``forms``: by column the rows of a text whose signs nobody sees, or
    which has another form of Unicode; ``files``: that of every row, where they are from several.
    """

    file: str = ""
    lines: NDArray[np.int64] | None = None
    header: tuple[str, ...] = ()
    reading: Reading | None = None
    others: Mapping[str, int] = MappingProxyType({})
    forms: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    files: Cells | None = None

    def with_columns(self, columns: Mapping[str, Cells]) -> "Table":
        """Other columns of the same rows."""
        table = Table(columns)
        vars(table).update(vars(self))
        return table

    def pick(self, rows: slice | Cells) -> "Table":
        """Some of the rows."""
        table = self.with_columns({name: column[rows] for name, column in self.items()})
        table.lines = None if self.lines is None else self.lines[rows]
        table.files = None if self.files is None else self.files[rows]
        return table

    def without(self, *names: str) -> "Table":
        """The columns that are not named."""
        return self.with_columns({key: c for key, c in self.items() if key not in names})

    def place(self, rows: Sequence[int]) -> str:
        """Where rows are, for a person who looks for them."""
        if self.files is not None:
            files = self.files[list(rows)].tolist()
            own = {f: [r for r, of in zip(rows, files, strict=True) if of == f] for f in files}
            return "; ".join(self._place(f, its) for f, its in own.items())
        return self._place(self.file, rows)

    def _place(self, file: str, rows: Sequence[int]) -> str:
        if self.lines is None:
            return in_table(rows) + (f" of {file}" if file else "")
        return f"{check.listed(self.lines[list(rows)].tolist(), 'line')} of {file}"


def joined(parts: Sequence[Table]) -> Table:
    """The rows of several tables with the same columns; a column that is text in one of them is
    text.
    """
    if len(parts) == 1:
        return parts[0]
    whole = parts[0].with_columns({name: stacked([p[name] for p in parts]) for name in parts[0]})
    rows = [len(next(iter(part.values()))) for part in parts]
    named = zip(parts, rows, strict=True)
    own = [np.full(n, p.file, object) if p.files is None else p.files for p, n in named]
    whole.files, lines = np.concatenate(own), [p.lines for p in parts if p.lines is not None]
    whole.lines = np.concatenate(lines) if len(lines) == len(parts) else None
    return whole


def stacked(parts: Sequence[Cells]) -> Cells:
    """Parts of a column as one: numbers, or cells of text where any part is text."""
    if any(part.dtype.kind == "O" for part in parts):
        parts = [
            part
            if part.dtype.kind == "O"
            else np.array([None if v != v else written(v) for v in part.tolist()], object)
            for part in parts
        ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def written(value: Any) -> str:
    """A number as text, a whole one without a point unless it is a large float."""
    exact = not isinstance(value, float) or abs(value) <= EXACT
    return str(int(value)) if exact and value == value // 1 else str(value)


# -------------------------------------------------------------------- frames


def column_names(X: Any) -> list[str] | None:
    """The names of the columns of a table, which differ to a reader; None where X has none."""
    names = X if isinstance(X, Mapping) else getattr(X, "column_names", getattr(X, "columns", None))
    if names is not None and (twice := repeated(plain(str(name)) for name in names)):
        raise ValueError(
            f"columns need names that differ, got {', '.join(map(repr, twice[:5]))} more than once:"
            " rename or drop one of each."
        )
    return None if names is None else [*names]


def table_of(frame: object) -> Table:
    """The columns of a pandas, polars or Arrow table, or of a mapping from names to arrays."""
    if isinstance(frame, Table):
        return frame
    column_names(frame)
    if isinstance(frame, Mapping):
        columns = frame.items()
        return Table({plain(str(name)): _from_objects(_array(column)) for name, column in columns})
    import narwhals as nw

    try:
        table: Any = nw.from_native(frame, eager_only=True)  # type: ignore[call-overload]
    except TypeError as error:
        raise ValueError(
            "expected a pandas, polars or Arrow table or a mapping of columns, got"
            f" {type(frame).__name__}."
        ) from error
    return Table({plain(str(name)): _column(table[name]) for name in table.columns})


def _array(column: Any) -> Cells:
    """A list as an array, in which NumPy must not round whole numbers."""
    made = np.asarray(column)
    rounded = made.dtype.kind == "f" and not hasattr(column, "dtype") and abs(made).max() > EXACT
    return _objects(column) if rounded else made


def _column(series: "Series[Any]") -> Cells:
    import narwhals as nw

    whole = not series.is_null().any()
    if series.dtype.is_integer() or series.dtype.is_decimal():
        low, high = series.min(), series.max()
        if low is not None and max(-int(low), int(high)) > EXACT:
            return _from_objects(_objects(series.to_list()))
    if series.dtype.is_numeric():
        if series.dtype.is_integer() and whole:
            return series.to_numpy().astype(np.int64)
        floats = series.cast(nw.Float64).fill_null(float("nan"))
        return np.array(floats.to_numpy(), dtype=np.float64)
    if series.dtype == nw.Boolean and whole:
        return series.to_numpy().astype(bool)
    values = series.to_list()
    if series.dtype in (nw.Categorical, nw.Enum):
        values = [v if check.missing(v) else str(v) for v in values]
    return _from_objects(_objects(values))


def _from_objects(column: Cells) -> Cells:
    """Text with None where missing; numbers and booleans among objects become float64, but whole
    numbers that float64 cannot tell apart become text.
    """
    if column.dtype.kind == "U":
        column = column.astype(object)
    integers = column.dtype.kind in "iu" and len(column) > 0
    if integers and max(-int(column.min()), int(column.max())) > EXACT:
        column = column.astype(object)
    if column.dtype.kind != "O":
        return column
    present = [v for v in column if not check.missing(v)]
    if present and all(isinstance(v, bool | int | float | np.number | Decimal) for v in present):
        if any(not isinstance(v, float) and abs(v) > EXACT for v in present):
            return _objects([None if check.missing(v) else written(v) for v in column])
        return np.array([np.nan if check.missing(v) else v for v in column], dtype=np.float64)
    return _objects([_seen(v) for v in column])


def _seen(cell: Any) -> Any:
    """A cell of any kind, text as people read it; None where it is missing."""
    return None if check.missing(cell) else plain(cell) if isinstance(cell, str) else cell


def matrix(table: Table, names: Sequence[str], where: str = "the table") -> Array:
    """(m, d) the named columns, side by side; missing values become NaN, which a federation refuses
    by name.
    """
    return np.column_stack([numbers(table, name, where) for name in names])


# -------------------------------------------------------------------- columns


def numbers(table: Table, name: str, where: str = "the table") -> Array:
    """A column as float64, NaN where missing; text is an error that names the cell."""
    column = table[name]
    if column.dtype.kind == "O":
        if odd := odd_rows(column) or [r for r, v in enumerate(column) if v is not None]:
            raise not_a_number(table, name, odd, where)
        return np.full(len(column), np.nan)
    return column.astype(np.float64, copy=False)


def parsed(cells: Sequence[str], as_text: bool = False, absent: Collection[str] = MISSING) -> Cells:
    """Cells of text as int64, float64 with NaN where missing, or text with None where missing."""
    whole = "".join(cells)
    seen = str.strip if whole.isascii() and whole.isprintable() else plain  # which is slower
    if not as_text and "_" not in whole:  # Python reads 1_000 as a number
        with suppress(ValueError, OverflowError):  # a missing cell, an integer beyond 64 bits, text
            values = np.array(list(map(float, cells)))
            if not _are_names(values, cells):
                integers = (values == np.rint(values)).all()  # and no "1.0"
                return np.array(list(map(int, cells)), dtype=np.int64) if integers else values
        with suppress(ValueError):
            values = np.array([np.nan if seen(c) in absent else float(c) for c in cells])
            if not _are_names(values, cells):
                return values
    same: dict[str, str] = {}  # one object for equal cells
    kept = [None if (cell := seen(c)) in absent else same.setdefault(cell, cell) for c in cells]
    return np.array(kept, dtype=object)


def _are_names(values: Array, cells: Sequence[str]) -> bool:
    """Whether cells are whole numbers of which float64 would make several one."""
    return bool(np.nanmax(abs(values), initial=0) > EXACT) and any(map(names_something, cells))


def names_something(cell: str) -> bool:
    """Whether a cell has more digits than a number needs, as identities have."""
    return DIGITS.fullmatch(cell.strip()) is not None and abs(float(cell)) > EXACT


def odd_rows(column: Cells) -> list[int]:
    """The rows of a column with a cell that is neither missing nor a number."""
    if column.dtype.kind != "O":
        return []
    return [r for r, v in enumerate(column) if v is not None and not is_number(v)]


def missing_rows(column: Cells) -> list[int]:
    """The rows of a column without a value."""
    return [r for r, value in enumerate(column.tolist()) if check.missing(value)]


FEATURE = (
    "Numbers are needed there: correct the cells, list such texts in `missing`, or leave the column"
    " out by `exclude`; a schema (schema=Recipe()) takes text."
)


IDENTITY = (
    "They name persons or rows, as it seems: give the column as `person`, or leave it out by"
    " `exclude`. An amount fits in a larger unit."
)


def not_a_number(
    table: Table, name: str, rows: Sequence[int], where: str, do: str = FEATURE
) -> RowError:
    """The error about cells that are not numbers."""
    cell = table[name][rows[0]]
    what = f"column {name!r} holds {'text' if isinstance(cell, str) else type(cell).__name__}"
    if isinstance(cell, str) and names_something(cell):
        what, do = f"column {name!r} holds numbers with more digits than float64 has", IDENTITY
    return RowError(where, what, shown=f" {cell!r}", rows=rows, do=do, place=table.place)


def check_numbers(
    tables: ByClient[Table], names: Iterable[str], do: str = FEATURE, some: bool = False
) -> None:
    """Refuse cells that are not numbers in any of these columns; with ``some`` only where others of
    the same client are numbers.

    Where one client has such a cell, a column that several share is text at all of them. So all
    clients are looked at before any is blamed.
    """
    for name in names:
        for client, table in tables.items():
            odd = odd_rows(table[name]) if name in table else []
            if odd and not (some and len(odd) == len(table[name])):
                raise not_a_number(table, name, odd, f"client {client!r}", do)


def targets_of(tables: ByClient[Table], target: str, numeric: bool = False) -> tuple[Cells, ...]:
    """The targets of every client, of one type; with ``numeric`` they have to be numbers."""
    if numeric or any(table[target].dtype.kind != "O" for table in tables.values()):
        do = "It is the target, and others are numbers: correct these cells."
        check_numbers(tables, [target], do, some=not numeric)
    with located(tables):
        what = f"column {target!r}"
        y = [check.targets(table[target], name, what) for name, table in tables.items()]
        return check.same_type(y, [*tables])


def is_number(cell: object) -> bool:
    """Whether a cell reads as a number."""
    with suppress(TypeError, ValueError):  # Python reads 1_000 as a number
        if isinstance(cell, str | SupportsFloat) and "_" not in str(cell):
            return float(cell) is not None
    return False


def texts(table: Table, name: str, where: str = "the table") -> list[str | None]:
    """A column as text, None where missing; whole numbers are written without a decimal point."""
    column = table[name]
    if column.dtype.kind == "O":
        if odd := [r for r, v in enumerate(column) if v is not None and not isinstance(v, str)]:
            raise not_a_number(table, name, odd, where, "Numbers or text are needed there.")
        return column.tolist()
    if column.dtype.kind == "f":
        if rows := np.flatnonzero((abs(column) > EXACT) & np.isfinite(column)).tolist():
            what = f"column {name!r} names rows by numbers whose last digits float64 has rounded"
            do = "Read the column as text, such as by dtype=str."
            raise RowError(where, what, rows=rows, do=do, place=table.place)
        whole = [None if v != v else int(v) if v.is_integer() else v for v in column.tolist()]
        return [None if v is None else str(v) for v in whole]
    return [str(v) for v in column.tolist()]


def same_columns(tables: Mapping[str, Table]) -> None:
    """Refuse tables with different columns (their order may differ); the keys name them in the
    error.
    """
    first, reference = next(iter(tables.items()))
    for label, table in tables.items():
        lacks = [name for name in reference if name not in table]
        extra = [name for name in table if name not in reference]
        if lacks or extra:
            parts = [f"lacks {check.listed(map(repr, lacks), 'column')}"] if lacks else []
            parts += [f"has {check.listed(map(repr, extra), 'further column')}"] if extra else []
            do = "All clients need the same columns: add them, or leave them out by `exclude`."
            one, other = ({" ".join(n.casefold().split()) for n in part} for part in (lacks, extra))
            if one & other:
                do = "Some differ by case or spaces only: write every name in one way."
            raise RowError(  # names, too, are cells of a row in a file without a header
                label,
                f"its columns are not those of {first}",
                shown=f": it {' and '.join(parts)}",
                do=do,
            )


def present(table: Table, name: str) -> Table:
    """The rows that have a value in a column."""
    absent = missing_rows(table[name]) if name in table else []
    return table.pick(np.delete(np.arange(len(table[name])), absent)) if absent else table


def once(names: Collection[str], name: str, what: str) -> None:
    """Refuse a name that two columns of a file have."""
    if f"{name} (2)" in names and name in names:
        raise ValueError(
            f"there are two columns {name!r} ({what}). Give every column a separate name, in the"
            f" first line of the file, or leave the second one out as {name + ' (2)'!r} by"
            " `exclude`."
        )


def has_column(table: Mapping[str, Any], name: str, what: str) -> None:
    """Refuse a name that is not a column, with what there is, and one of two columns."""
    once(table, name, what)
    if name not in table:
        raise _no_column(name, what, table)


def _no_column(name: str, what: str, header: Collection[str]) -> RowError:
    return RowError(
        "",
        f"there is no column {name!r} ({what})",
        shown=closest(name, header).removesuffix("."),
        do="The first line of a file has to name its columns.",
    )


# -------------------------------------------------------------------- clients


def by_client(table: Table, client: str) -> dict[str, Table]:
    """The rows of each client as of `by_client_name`, by names that are text, as in a file."""
    return {str(name): rows for name, rows in by_client_name(table, client).items()}


def by_client_name(table: Table, client: str) -> dict[ClientName, Table]:
    """The rows of each client, by the values of the column ``client``, which is left out; whole
    numbers stay such.
    """
    has_column(table, client, "the client of each row")
    labels = table[client].tolist() if table[client].dtype.kind in "iu" else texts(table, client)
    with located({client: table}, "column"):
        names, picks = check.grouped(labels, len(labels), f"column {client!r}")
    rest = table.without(client)
    return {name: rest.pick(rows) for name, rows in zip(names, picks, strict=True)}


# -------------------------------------------------------------------- federations


def split(
    tables: Mapping[str, Mapping[str, Cells]],
    target: str,
    test: float = 0.4,
    seed: int = 0,
    by_class: bool = True,
    person: str | None = None,
) -> tuple[dict[str, Table], dict[str, Table]]:
    """(train, test) tables with the same rows as `Federation.split`, so that a schema can be fitted
    on train only; clients all of whose rows are on the other side are left out.
    """
    whole = {name: table_of(table) for name, table in tables.items()}
    with located(whole):
        for table in whole.values():
            has_column(table, target, "the target")
        y = [check.targets(t[target], name, f"column {target!r}") for name, t in whole.items()]
        persons = None if person is None else persons_of(whole, person)
    parts = [*zip(whole.items(), held_out([*whole], y, test, seed, by_class, persons), strict=True)]
    train = {name: table.pick(~out) for (name, table), out in parts if not out.all()}
    return train, {name: table.pick(out) for (name, table), out in parts if out.any()}


def persons_of(tables: ByClient[Table], person: str) -> list[Cells]:
    """The person of every row, as text."""
    for name, table in tables.items():
        has_column(table, person, "the person of each row")
        if absent := missing_rows(table[person]):
            raise RowError(
                f"client {name!r}",
                f"column {person!r} is missing",
                rows=absent,
                do="Every row needs a person (`person`), if need be a separate one.",
                place=table.place,
            )
    return [np.array(texts(table, person, f"client {n!r}")) for n, table in tables.items()]


# The columns of a table as a `Reading` declares them: missing cells, merged spellings, decimal
# commas, dates as numbers, censored values.
#
# Every cell is read by itself, and all columns are looked at before any is refused.

# an index that was saved with the rows has no name; pandas calls it "Unnamed: 0" when it reads it
NAMELESS = re.compile(r"(Unnamed: \d+(_level_\d+)?)?")
COMMA = re.compile(r"[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?")
# with a sign after the thousands and another one in front of decimals, which tells them apart
GROUPED = re.compile(r"[+-]?\d{1,3}((\.\d{3})+,\d+|(,\d{3})+\.\d+)")
OTHERWISE = (
    "Correct these cells, list such texts in `missing`, or declare the column in `categorical` or"
    " `exclude`."
)


def refined(table: Table, reading: Reading, text: Names = (), where: str = "the table") -> Table:
    """The table as ``reading`` has it; columns in ``text`` stay text. A table that was read so is
    returned as it is.

    Raises
    ------
    RowError, RowErrors : cells that are not as declared, in all such columns
    """
    if table.reading is not None:
        return table
    columns: dict[str, Cells] = {}
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
                raise _no_column(name, f"`{key}`", header)


def _columns(
    table: Table, name: str, reading: Reading, as_text: bool, where: str
) -> Iterator[tuple[str, Cells]]:
    """The columns that one column becomes, by name."""
    kind = next((KINDS[key] for key in reading.kinds if name in reading.of(key)), None)
    column = _cells(table, name, reading, as_text or kind is not None, where)
    table = table.with_columns({name: column})
    if kind is None and column.dtype.kind == "O":
        by_sign = _of_commas if reading.decimal == "," else _of_points
        yield name, _codes(column) if as_text else by_sign(table, name, where)
    elif kind is None:
        yield name, column
    else:
        how = reading.of(kind.key)[name]
        cells: list[Any] = [None if cell != cell else cell for cell in column.tolist()]
        if column.dtype.kind in "iuf" and not kind.beside_numbers:
            cells = [*texts(table, name, where)]
        made, wrong = kind.read(cells, how, reading.decimal)
        if wrong:
            odd = kind.wrong.format(how=how, decimal=reading.decimal)
            raise RowError(
                where,
                f"column {name!r} has cells that {odd}",
                shown=f", such as {cells[wrong[0]]!r}",
                rows=wrong,
                do=OTHERWISE if kind.beside_numbers else OTHERWISE.replace("`categorical` or ", ""),
                place=table.place,
            )
        yield from zip(kind.columns(name, how), made, strict=True)


def _cells(table: Table, name: str, reading: Reading, as_text: bool, where: str) -> Cells:
    """The cells with spellings merged, and those missing that are declared so; numbers again where
    nothing else is left.
    """
    column, merge = table[name], reading.merge.get(name, {})
    if merge or (column.dtype.kind == "O" and reading.missing):
        cells = texts(table, name, where) if merge else column.tolist()
        cells = [merge.get(c, c) if isinstance(c, str) else c for c in cells]
        cells = [None if isinstance(c, str) and c in reading.missing else c for c in cells]
        cells = [merge.get("") if c is None else c for c in cells]
        column = _objects(cells)
        if not as_text and all(c is None or (isinstance(c, str) and is_number(c)) for c in cells):
            column = parsed(["" if c is None else c for c in cells])
    codes = [float(text) for text in reading.missing if is_number(text)]
    if column.dtype.kind in "if" and (absent_rows := np.isin(column, codes)).any():
        return np.where(absent_rows, np.nan, column)
    return column


def _objects(cells: Sequence[object]) -> Cells:
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def _codes(column: Cells) -> Cells:
    """Codes as they are written; whole numbers that another program wrote as 1.0, because a cell of
    the column is missing, as 1.
    """
    cells = column.tolist()
    present = [cell for cell in cells if cell is not None]
    if len(present) == len(cells) or not all(re.fullmatch(r"-?\d+\.0", str(c)) for c in present):
        return column
    return _objects([None if cell is None else str(cell)[:-2] for cell in cells])


def ungrouped(cell: str) -> str:
    """The cell without the sign after its thousands, where it has one in front of decimals, too."""
    if not GROUPED.fullmatch(cell):
        return cell
    return cell.replace("." if cell.rindex(".") < cell.rindex(",") else ",", "")


def _of_points(table: Table, name: str, where: str) -> Cells:
    """Numbers of which some have commas after the thousands, if all are numbers; else the text."""
    column = table[name]
    bare = {c: ungrouped(str(c)) for c in {*column.tolist()} - {None}}
    if not all(map(is_number, bare.values())) or all(c == of for c, of in bare.items()):
        return column
    return parsed([bare.get(cell, "") for cell in column.tolist()])


def _of_commas(table: Table, name: str, where: str) -> Cells:
    """Numbers with a decimal comma, where every cell is one, or a whole number; else the text."""
    column = table[name]
    present = {r: cell for r, cell in enumerate(column.tolist()) if cell is not None}
    if not present or not all(isinstance(cell, str) for cell in present.values()):
        return column
    present = {r: ungrouped(cell) for r, cell in present.items()}
    rows = [r for r, cell in present.items() if not COMMA.fullmatch(cell)]
    if not rows:
        values = np.full(len(column), np.nan)
        values[[*present]] = [float(cell.replace(",", ".")) for cell in present.values()]
        return values
    commas = any("," in cell and COMMA.fullmatch(cell) for cell in present.values())
    if not commas and not all(map(is_number, present.values())):
        return column
    what = "has numbers with a decimal comma, and other cells" if commas else "has a decimal point"
    raise RowError(
        where,
        f"column {name!r} {what}, where `decimal` is a comma",
        shown=f", such as {column[rows[0]]!r}",
        rows=rows,
        do=OTHERWISE,
        place=table.place,
    )
