"""Tables ``{column: (m,) array}`` from CSV, Parquet and data frames, and federations from tables.

A column is int64, float64 (NaN where missing), bool, or an object array of text (None where
missing). CSV is read strictly and the same way on every installation: a line with too few or too
many cells is an error, never a guess.
"""

from __future__ import annotations

import csv
import glob
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.client_names import ByClient, ClientName, closest
from quorate.data import validation as check
from quorate.data.files import opened, read_parquet, unchanged
from quorate.data.row_errors import RowError, in_table, located

if TYPE_CHECKING:
    from narwhals import Series

Files: TypeAlias = str | Path | Iterable[str | Path]  # a path, a pattern, a folder, or several

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"})
CHUNK = 65536  # lines that are held as text at a time; fewer of wide tables
CELLS = 2**20  # cells that are held as text at a time


class Table(dict[str, NDArray[Any]]):
    """Columns by name, and where their rows are from: lines of a file, if they were read there."""

    file: str = ""
    lines: NDArray[np.int64] | None = None

    def with_columns(self, columns: Mapping[str, NDArray[Any]]) -> Table:
        """Other columns of the same rows."""
        table = Table(columns)
        table.file, table.lines = self.file, self.lines
        return table

    def pick(self, rows: slice | NDArray[Any]) -> Table:
        """Some of the rows."""
        table = Table({name: column[rows] for name, column in self.items()})
        table.file, table.lines = self.file, None if self.lines is None else self.lines[rows]
        return table

    def without(self, *names: str) -> Table:
        """The columns that are not named."""
        return self.with_columns({key: c for key, c in self.items() if key not in names})

    def place(self, rows: Sequence[int]) -> str:
        """Where rows are, for a person who looks for them."""
        if self.lines is None:
            return in_table(rows) + (f" of {self.file}" if self.file else "")
        return f"{check.listed(self.lines[list(rows)].tolist(), 'line')} of {self.file}"


# -------------------------------------------------------------------- frames


def table_of(frame: object) -> Table:
    """The columns of a pandas, polars or Arrow table, or of a mapping from names to arrays."""
    if isinstance(frame, Table):
        return frame
    if isinstance(frame, Mapping):
        columns = frame.items()
        return Table({str(name): _from_objects(np.asarray(column)) for name, column in columns})
    import narwhals as nw

    try:
        table: Any = nw.from_native(frame, eager_only=True)  # type: ignore[call-overload]
    except TypeError as error:
        raise ValueError(
            "expected a pandas, polars or Arrow table or a mapping of columns, got"
            f" {type(frame).__name__}."
        ) from error
    return Table({str(name): _column(table[name]) for name in table.columns})


def _column(series: Series[Any]) -> NDArray[Any]:
    import narwhals as nw

    if series.dtype.is_numeric():
        if series.dtype.is_integer() and not series.is_null().any():
            return series.to_numpy().astype(np.int64)
        return np.array(
            series.cast(nw.Float64).fill_null(float("nan")).to_numpy(), dtype=np.float64
        )
    if series.dtype == nw.Boolean and not series.is_null().any():
        return series.to_numpy().astype(bool)
    values = series.to_list()
    if series.dtype in (nw.Categorical, nw.Enum):
        values = [v if check.missing(v) else str(v) for v in values]
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return _from_objects(objects)


def _from_objects(column: NDArray[Any]) -> NDArray[Any]:
    """Text with None where missing; numbers and booleans among objects become float64."""
    if column.dtype.kind == "U":
        return column.astype(object)
    if column.dtype.kind != "O":
        return column
    present = [v for v in column if not check.missing(v)]
    if present and all(isinstance(v, bool | int | float | np.number) for v in present):
        return np.array([np.nan if check.missing(v) else v for v in column], dtype=np.float64)
    return np.array([None if check.missing(v) else v for v in column], dtype=object)


def matrix_of(frame: object, names: Sequence[str] | None = None) -> tuple[Array, Sequence[str]]:
    """(X, names) of a table of numbers; missing values become NaN, which a federation refuses by
    name.
    """
    table = table_of(frame)
    return matrix(table, tuple(table)), names or tuple(table)


def matrix(table: Table, names: Sequence[str], where: str = "the table") -> Array:
    """(m, d) the named columns, side by side."""
    return np.column_stack([numbers(table, name, where) for name in names])


# -------------------------------------------------------------------- columns


def numbers(table: Table, name: str, where: str = "the table") -> Array:
    """A column as float64, NaN where missing; text is an error that names the cell."""
    column = table[name]
    if column.dtype.kind == "O":
        odd = odd_rows(column) or [r for r, v in enumerate(column) if v is not None]
        if odd:
            raise not_a_number(table, name, odd, where)
        return np.full(len(column), np.nan)
    return column.astype(np.float64, copy=False)


def odd_rows(column: NDArray[Any]) -> list[int]:
    """The rows of a column with a cell that is neither missing nor a number."""
    if column.dtype.kind != "O":
        return []
    return [r for r, v in enumerate(column) if v is not None and not is_number(v)]


def missing_rows(column: NDArray[Any]) -> list[int]:
    """The rows of a column without a value."""
    return [r for r, value in enumerate(column.tolist()) if check.missing(value)]


FEATURE = (
    "Numbers are needed there: correct the cells, leave the column out (features=...), or encode it"
    " with schema=Recipe()."
)


def not_a_number(
    table: Table, name: str, rows: Sequence[int], where: str, do: str = FEATURE
) -> RowError:
    """The error about cells that are no numbers."""
    cell = table[name][rows[0]]
    what = f"column {name!r} holds {'text' if isinstance(cell, str) else type(cell).__name__}"
    return RowError(where, what, shown=f" {cell!r}", rows=rows, do=do, place=table.place)


def check_numbers(
    tables: ByClient[Table], names: Iterable[str], do: str = FEATURE, some: bool = False
) -> None:
    """Refuse cells that are no numbers in any of these columns; with ``some`` only where others of
    the same client are numbers.

    Where one client has such a cell, a column that several share is text at all of them. So all
    clients are looked at before any is blamed.
    """
    for name in names:
        for client, table in tables.items():
            odd = odd_rows(table[name]) if name in table else []
            if odd and not (some and len(odd) == len(table[name])):
                raise not_a_number(table, name, odd, f"client {client!r}", do)


def targets_of(
    tables: ByClient[Table], target: str, numeric: bool = False
) -> tuple[NDArray[Any], ...]:
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
    try:  # Python reads 1_000 as a number
        return (
            isinstance(cell, str | SupportsFloat)
            and "_" not in str(cell)
            and (float(cell) is not None)
        )
    except (TypeError, ValueError):
        return False


def texts(table: Table, name: str, where: str = "the table") -> list[str | None]:
    """A column as text, None where missing; whole numbers are written without a decimal point."""
    column = table[name]
    if column.dtype.kind == "O":
        odd = [r for r, v in enumerate(column) if v is not None and not isinstance(v, str)]
        if odd:
            cell = column[odd[0]]
            raise RowError(
                where,
                f"column {name!r} holds {type(cell).__name__}",
                shown=f" {cell!r}",
                rows=odd,
                do="Numbers or text are needed there.",
                place=table.place,
            )
        return column.tolist()
    if column.dtype.kind == "f":
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
            raise RowError(  # names, too, are cells of a row in a file without a header
                label,
                f"its columns are not those of {first}",
                shown=f": it {' and '.join(parts)}",
                do="All clients need the same columns.",
            )


def has_column(table: Mapping[str, Any], name: str, what: str) -> None:
    """Refuse a name that is no column, with what there is."""
    if name not in table:
        raise RowError(
            "",
            f"there is no column {name!r} ({what})",
            shown=closest(name, table).removesuffix("."),
            do="The first line of a file has to name its columns.",
        )


# -------------------------------------------------------------------- files


def read(path: str | Path, text: Sequence[str] = ()) -> Table:
    """One file: .parquet, else text with a header line, separated by comma, semicolon or tab (.gz:
    compressed).

    A column is a column of numbers if every cell is one or is missing (empty, NA, NaN, null, ?),
    else of text; columns in ``text`` stay text ("007" is not 7).
    """
    path = Path(path)
    with unchanged(path):
        if path.suffix == ".parquet":
            table = read_parquet(path, table_of)
            table.file = str(path)
            return table
        try:
            with opened(path) as file:
                return _read_csv(file, str(path), text)
        except _HoldsText as column:
            return read(path, (*text, column.args[0]))


class NoRowsError(ValueError):
    """A file with a header and no rows."""


class _HoldsText(Exception):  # noqa: N818
    """A column that held numbers so far has a cell of text; this is not an error."""


def _read_csv(file: IO[str], path: str, text: Sequence[str]) -> Table:
    first = file.readline()
    if not first.strip():
        raise ValueError(f"{path} is empty: its first line must name the columns.")
    separator = max(",;\t", key=first.count)
    options: Any = {"delimiter": separator, "skipinitialspace": True, "strict": True}
    header = [name.strip() for name in _records(csv.reader([first], **options), path, 1, 1)[0]]
    twice = [repr(name) for name, count in Counter(header).items() if count > 1]
    if twice:
        raise RowError(
            path,
            "it names a column more than once",
            shown=f": {check.listed(sorted(twice), 'column')}",
            do="Give every column a name of its own, in the first line of the file.",
        )
    chunks: list[list[NDArray[Any]]] = [[] for _ in header]
    numbered = []
    for lines, records in _chunks(file, options, len(header), path):
        numbered.append(lines)
        for name, parts, cells in zip(header, chunks, zip(*records, strict=True), strict=True):
            parts.append(parsed(cells, name in text))
            if parts[0].dtype.kind != parts[-1].dtype.kind and "O" in (
                parts[0].dtype.kind,
                parts[-1].dtype.kind,
            ):
                raise _HoldsText(name)
    if not numbered:
        raise NoRowsError(f"{path} has a header but no rows.")
    columns = {name: _joined(parts) for name, parts in zip(header, chunks, strict=True)}
    table = Table(columns)
    table.file, table.lines = path, _joined(numbered)
    return table


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts as one array; they are released."""
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    return whole


def _chunks(
    file: IO[str], options: Mapping[str, Any], width: int, path: str
) -> Iterator[tuple[NDArray[np.int64], list[list[str]]]]:
    """The records of a CSV file as lists of cells, and the lines on which they begin, a chunk of
    them at a time.
    """
    reader, first = csv.reader(file, **options), 2
    while records := _records(reader, path, first, max(1, min(CHUNK, CELLS // width))):
        lines = _lines(records, first, reader.line_num + 2)
        first = reader.line_num + 2
        if not all(records):  # blank lines
            lines, records = lines[[bool(r) for r in records]], [r for r in records if r]
        if any(len(record) != width for record in records):
            k, n = next((k, len(r)) for k, r in enumerate(records) if len(r) != width)
            raise ValueError(
                f"{path}, line {lines[k]}: {n} cells where the header has {width}. Write one cell"
                " for each column, in quotes where it holds the separator."
            )
        if records:
            yield lines, records


def _records(reader: Any, path: str, first: int, most: int) -> list[list[str]]:
    """The next records of a CSV file, whose first is on line ``first``."""
    records: list[list[str]] = []
    try:
        records.extend(itertools.islice(reader, most))
    except csv.Error as error:
        at = first + sum(map(_height, records))
        raise ValueError(
            f"{path} is no readable CSV file: line {at}: {error}. Is a quote left open there? Save"
            " it as CSV in UTF-8, or as Parquet."
        ) from error
    return records


def _lines(records: Sequence[Sequence[str]], first: int, end: int) -> NDArray[np.int64]:
    """The lines on which records begin that take those from ``first`` up to ``end``."""
    if len(records) == end - first:
        return np.arange(first, end)
    return first + np.cumsum([0, *map(_height, records[:-1])])


def _height(record: Sequence[str]) -> int:
    """The lines that a record takes: more than one where a cell in quotes has line breaks."""
    breaks = (c.count("\n") + c.count("\r") - c.count("\r\n") for c in record)
    return 1 + sum(breaks)


def parsed(cells: Sequence[str], as_text: bool = False) -> NDArray[Any]:
    """Cells of text as int64, float64 with NaN where missing, or text with None where missing."""
    if not as_text and "_" not in "".join(cells):  # Python reads 1_000 as a number
        try:
            values = np.array(list(map(float, cells)))
            return (
                np.array(list(map(int, cells)), dtype=np.int64)
                if (values == np.rint(values)).all()
                else values
            )
        except (ValueError, OverflowError):
            pass  # a missing cell, "1.0" or an integer beyond 64 bits, or text
        try:
            return np.array(
                [np.nan if (cell := c.strip()) in MISSING else float(cell) for c in cells]
            )
        except ValueError:
            pass
    return np.array(
        [None if (cell := c.strip()) in MISSING else sys.intern(cell) for c in cells], dtype=object
    )


def read_clients(
    files: Files,
    client: str | None = None,
    empty: bool = False,
    watch: Callable[[int, int], object] = lambda done, total: None,
) -> dict[str, Table]:
    """One table per client: from one file each (named by its stem), or by the values of the column
    ``client``.

    ``empty``: files with a header and no rows are left out, and not refused. ``watch`` is called
    with the files that are read, and with how many there are.
    """
    text = () if client is None else (client,)
    clients: dict[str, Table] = {}
    reference: dict[str, Table] = {}
    every = paths(files)
    for done, path in enumerate(every):
        watch(done, len(every))
        try:
            table = read(path, text)
        except NoRowsError:
            if not empty:
                raise
            continue
        reference = reference or {str(path): table}
        same_columns({**reference, str(path): table})
        parts = {path.name.split(".")[0]: table} if client is None else by_client(table, client)
        for name, part in parts.items():
            if name in clients:
                raise RowError(
                    str(path),
                    f"it has a client that is in {clients[name].file} as well",
                    shown=f", {name!r}",
                    do="Rename one, or join the files.",
                )
            clients[name] = part
    if not clients:
        raise NoRowsError("no file has any row.")
    return clients


def paths(files: Files) -> list[Path]:
    """The files that a path, a pattern or a folder stands for, sorted by name; or several such."""
    if not isinstance(files, str | Path):
        matches = [path for part in files for path in paths(part)]
    elif Path(files).is_dir():
        endings = (".csv", ".csv.gz", ".tsv", ".parquet")
        matches = sorted(p for p in Path(files).iterdir() if p.name.endswith(endings))
    elif glob.has_magic(str(files)) and not Path(files).exists():
        matches = sorted(map(Path, glob.glob(str(files))))
    else:
        return [Path(files)]
    if not matches:
        raise FileNotFoundError(f"no file matches {str(files)!r} (seen from {Path.cwd()}).")
    return matches


def by_client(table: Table, client: str) -> dict[str, Table]:
    """The rows of each client, by the values of the column ``client``, which is left out.

    The names are text, as in a file, also where the column holds whole numbers.
    """
    has_column(table, client, "the client of each row")
    groups = _parted(table, client, texts(table, client))
    return {str(name): rows for name, rows in groups.items()}


def by_client_name(table: Table, client: str) -> dict[ClientName, Table]:
    """The rows of each client as `by_client` has them, by names that stay whole numbers if they
    are.
    """
    has_column(table, client, "the client of each row")
    whole = table[client].dtype.kind in "iu"
    return _parted(table, client, table[client].tolist() if whole else texts(table, client))


def _parted(table: Table, client: str, labels: list[Any]) -> dict[ClientName, Table]:
    with located({client: table}, "column"):
        names, picks = check.grouped(labels, len(labels), f"column {client!r}")
    rest = table.without(client)
    return {name: rest.pick(rows) for name, rows in zip(names, picks, strict=True)}


# -------------------------------------------------------------------- federations


def split(
    tables: Mapping[str, Mapping[str, NDArray[Any]]],
    target: str,
    test: float = 0.4,
    seed: int = 0,
    by_class: bool = True,
) -> tuple[dict[str, Table], dict[str, Table]]:
    """(train, test) tables with the same rows as `Federation.split`, so that a schema can be fitted
    on train only.
    """
    train, held = {}, {}
    whole = {name: table_of(table) for name, table in tables.items()}
    with located(whole):
        for name, table in whole.items():
            has_column(table, target, "the target")
            y = check.targets(table[target], name, f"column {target!r}")
            out = check.held_out(name, y, test, seed, by_class)
            train[name] = table.pick(~out)
            if out.any():
                held[name] = table.pick(out)
    return train, held
