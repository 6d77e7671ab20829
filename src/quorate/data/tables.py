"""Tables ``{column: (m,) array}`` from CSV, Parquet and data frames, and federations from tables.

A column is int64, float64 (NaN where missing), bool, or an object array of text (None where
missing). CSV is read strictly and the same way on every installation: a line with too few or too
many cells is an error, never a guess.
"""

from __future__ import annotations

import csv
import glob
import gzip
import importlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, SupportsFloat, TypeAlias

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.client_names import ClientName, closest
from quorate.data import validation as check

if TYPE_CHECKING:
    from narwhals import Series

Table = dict[str, NDArray[Any]]
Files: TypeAlias = str | Path | Iterable[str | Path]  # a path, a pattern, a folder, or several

MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"})
CHUNK = 65536  # lines that are held as text at a time


# -------------------------------------------------------------------- frames


def table_of(frame: object) -> Table:
    """The columns of a pandas, polars or Arrow table, or of a mapping from names to arrays."""
    if isinstance(frame, Mapping):
        return {str(name): _from_objects(np.asarray(column)) for name, column in frame.items()}
    import narwhals as nw

    try:
        table: Any = nw.from_native(frame, eager_only=True)  # type: ignore[call-overload]
    except TypeError as error:
        raise ValueError(
            "expected a pandas, polars or Arrow table or a mapping of columns, got"
            f" {type(frame).__name__}."
        ) from error
    return {str(name): _column(table[name]) for name in table.columns}


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
        odd = [(r, v) for r, v in enumerate(column) if v is not None]
        # the whole column is text where a single cell is no number: that cell is named
        odd = [(r, v) for r, v in odd if not is_number(v)] or odd
        if odd:
            raise ValueError(
                f"{where}: column {name!r} holds {type(odd[0][1]).__name__} {odd[0][1]!r} in row"
                f" {odd[0][0]} (from 0), not numbers. Correct the cell, leave the column out"
                " (features=...), or encode it with schema=Recipe()."
            )
        return np.full(len(column), np.nan)
    return column.astype(np.float64, copy=False)


def is_number(cell: object) -> bool:
    """Whether a cell reads as a number."""
    try:
        return isinstance(cell, str | SupportsFloat) and float(cell) is not None
    except (TypeError, ValueError):
        return False


def texts(table: Table, name: str, where: str = "the table") -> list[str | None]:
    """A column as text, None where missing; whole numbers are written without a decimal point."""
    column = table[name]
    if column.dtype.kind == "O":
        odd = [v for v in column if v is not None and not isinstance(v, str)]
        if odd:
            raise ValueError(
                f"{where}: column {name!r} holds {type(odd[0]).__name__} {odd[0]!r}, not numbers or"
                " text."
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
            raise ValueError(
                f"{label} {' and '.join(parts)}, unlike {first}: all clients need the same columns."
            )


def has_column(table: Mapping[str, Any], name: str, what: str) -> None:
    """Refuse a name that is no column, with what there is."""
    if name not in table:
        raise ValueError(f"there is no column {name!r} ({what}){closest(name, table)}")


# -------------------------------------------------------------------- files


def read(path: str | Path, text: Sequence[str] = ()) -> Table:
    """One file: .parquet, else text with a header line, separated by comma, semicolon or tab (.gz:
    compressed).

    A column is a column of numbers if every cell is one or is missing (empty, NA, NaN, null, ?),
    else of text; columns in ``text`` stay text ("007" is not 7).
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}.")
    if path.suffix == ".parquet":
        return _read_parquet(path)
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".gz" else _open(path)
        ) as file:
            return _read_csv(file, str(path), text)
    except _HoldsText as column:
        return read(path, (*text, column.args[0]))
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(
            f"{path} is no readable CSV file: {error}. Save it as CSV in UTF-8, or as Parquet."
        ) from error


class NoRowsError(ValueError):
    """A file with a header and no rows."""


class _HoldsText(Exception):  # noqa: N818
    """A column that held numbers so far has a cell of text; this is not an error."""


def _open(path: Path) -> IO[str]:
    return path.open(encoding="utf-8-sig", newline="")


def _read_parquet(path: Path) -> Table:
    for module, reader in (
        ("pyarrow.parquet", "read_table"),
        ("polars", "read_parquet"),
        ("pandas", "read_parquet"),
    ):
        try:
            library = importlib.import_module(module)
        except ImportError:
            continue
        try:
            frame = getattr(library, reader)(path)
        except Exception as error:  # every library has its own
            raise ValueError(f"{path} is no readable Parquet file: {error}") from error
        return table_of(frame)
    raise ImportError(
        f"reading {path} needs pyarrow, polars or pandas: pip install 'quorate[frames]', or save as"
        " CSV."
    )


def _read_csv(file: IO[str], path: str, text: Sequence[str]) -> Table:
    first = file.readline()
    if not first.strip():
        raise ValueError(f"{path} is empty: its first line must name the columns.")
    separator = max(",;\t", key=first.count)
    options: Any = {"delimiter": separator, "skipinitialspace": True, "strict": True}
    header = [name.strip() for name in next(csv.reader([first], **options))]
    twice = {name for name in header if header.count(name) > 1}
    if twice:
        raise ValueError(
            f"{path} names {check.listed(map(repr, sorted(twice)), 'column')} more than once."
        )
    chunks: list[list[NDArray[Any]]] = [[] for _ in header]
    for lines in _chunks(file, options, len(header), path):
        for name, parts, cells in zip(header, chunks, zip(*lines, strict=True), strict=True):
            parts.append(parsed(cells, name in text))
            if parts[0].dtype.kind != parts[-1].dtype.kind and "O" in (
                parts[0].dtype.kind,
                parts[-1].dtype.kind,
            ):
                raise _HoldsText(name)
    if not chunks[0]:
        raise NoRowsError(f"{path} has a header but no rows.")
    return {name: np.concatenate(parts) for name, parts in zip(header, chunks, strict=True)}


def _chunks(
    file: IO[str], options: Mapping[str, Any], width: int, path: str
) -> Iterator[list[list[str]]]:
    """The lines of a CSV file as lists of cells, a chunk of them at a time."""
    reader = csv.reader(file, **options)
    while lines := [line for line in itertools.islice(reader, CHUNK) if line]:
        if any(len(line) != width for line in lines):
            k, line = next((k, line) for k, line in enumerate(lines) if len(line) != width)
            at = reader.line_num - len(lines) + k + 2
            raise ValueError(
                f"{path}, near line {at}: {len(line)} cells where the header has {width}."
            )
        yield lines


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


def read_clients(files: Files, client: str | None = None, empty: bool = False) -> dict[str, Table]:
    """One table per client: from one file each (named by its stem), or by the values of the column
    ``client``.

    ``empty``: files with a header and no rows are left out, and not refused.
    """
    text = () if client is None else (client,)
    tables = {}
    for path in paths(files):
        try:
            tables[str(path)] = read(path, text)
        except NoRowsError:
            if not empty:
                raise
    if not tables:
        raise NoRowsError("no file has any row.")
    same_columns(tables)
    clients: dict[str, Table] = {}
    owner: dict[str, str] = {}
    for path, table in tables.items():
        parts = (
            {Path(path).name.split(".")[0]: table} if client is None else by_client(table, client)
        )
        for name, part in parts.items():
            if name in clients:
                raise ValueError(
                    f"client {name!r} is in {owner[name]} and in {path}: rename one, or join the"
                    " files."
                )
            clients[name], owner[name] = part, path
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
    names, picks = check.grouped(labels, len(labels))
    return {
        name: {key: column[pick] for key, column in table.items() if key != client}
        for name, pick in zip(names, picks, strict=True)
    }


# -------------------------------------------------------------------- federations


def split(
    tables: Mapping[str, Table],
    target: str,
    test: float = 0.4,
    seed: int = 0,
    by_class: bool = True,
) -> tuple[dict[str, Table], dict[str, Table]]:
    """(train, test) tables with the same rows as `Federation.split`, so that a schema can be fitted
    on train only.
    """
    train, held = {}, {}
    for name, table in tables.items():
        has_column(table, target, "the target")
        out = check.held_out(name, check.targets(table[target], name), test, seed, by_class)
        train[name] = {key: column[~out] for key, column in table.items()}
        if out.any():
            held[name] = {key: column[out] for key, column in table.items()}
    return train, held
