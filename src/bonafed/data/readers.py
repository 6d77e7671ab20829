"""Tables from CSV and Parquet files, one or several per client.

CSV is read strictly and the same way on every installation: a line with too few or too many cells
is an error, never a guess. What a person may declare of an untidy file is a `Reading`. Read
without a word are byte-order marks, blank lines, line breaks in quotes, a separator at the end of
every line, and a first line such as ``sep=;``. Columns without a name, such as an index that
somebody saved with the rows, are never read; the second column of a name is called "name (2)".
Names and text are read as people see them (`plain`). Rows that an open quote made one cell are
told, and lines that name the columns again.
"""

import csv
import glob
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.data import tables
from bonafed.data.files import NOTHING, SEPARATED, name_of, opened, read_parquet, unchanged
from bonafed.data.reading import PLAIN, Reading
from bonafed.data.row_errors import Faults, RowError
from bonafed.text import plain

Files: TypeAlias = str | Path | Iterable[str | Path]  # a path, a pattern, a folder, or several
Chosen: TypeAlias = Collection[str] | None  # of the columns; None: all

CHUNK = 65536  # lines that are held as text at a time; fewer of wide tables
CELLS = 2**20  # cells that are held as text at a time
SEPARATORS = ",;\t|"
HEADER = 2**20  # letters of a first line with line breaks in quotes
TOLD = 20  # errors of files that are told at once
ENDINGS = (".csv", ".csv.gz", ".tsv", ".parquet")


def read(
    path: str | Path, text: Sequence[str] = (), reading: Reading = PLAIN, only: Chosen = None
) -> tables.Table:
    """One file: .parquet, else text with a header line (.gz: compressed).

    A column is a column of numbers if every cell is one or is missing (empty, NA, NaN, null, ?),
    else of text; columns in ``text`` stay text ("007" is not 7). Of the columns those in ``only``
    are read; None: all.
    """
    path = Path(path)
    wanted = None if only is None else reading.sources(tuple(only))
    with unchanged(path):
        if path.suffix == ".parquet":
            table = read_parquet(path, tables.table_of)
            for name, column in [*table.items()]:  # text of which all is numbers, as in CSV
                there = [cell for cell in column.tolist() if cell is not None]
                if name not in text and there and all(isinstance(cell, str) for cell in there):
                    cells = ["" if cell is None else cell for cell in column.tolist()]
                    table[name] = tables.parsed(cells)
            table.file, table.header = str(path), tuple(table)
            table = table if wanted is None else table.without(*{*table} - {*wanted})
        else:
            table = _read_csv(path, (*text, *reading.text), reading, wanted)
    return tables.refined(table, reading, text, str(path))


class NoRowsError(ValueError):
    """A file with a header and no rows."""


class _HoldsText(Exception):  # noqa: N818
    """A column that held numbers so far has a cell of text; this is not an error."""


def _read_csv(path: Path, text: Sequence[str], reading: Reading, wanted: Chosen) -> tables.Table:
    """The columns of numbers or text, read again where a column turns out to be text."""
    try:
        with opened(path, reading.encoding) as file:
            return _columns(file, str(path), text, reading, wanted)
    except _HoldsText as column:
        return _read_csv(path, (*text, column.args[0]), reading, wanted)


def _columns(
    file: IO[str], path: str, text: Sequence[str], reading: Reading, wanted: Chosen
) -> tables.Table:
    header, options, start = _header(file, path, reading)
    named = (n for n in header if not tables.NAMELESS.fullmatch(n))
    kept = {*(named if wanted is None else wanted)} - {*reading.exclude}
    for name in wanted or ():
        tables.once(header, name, "declared")
    absent, numbered, others = tables.MISSING.union(reading.missing), [], Counter[str]()
    chunks: list[list[NDArray[Any]]] = [[] for _ in header]
    forms: dict[str, Counter[str]] = {name: Counter() for name in text}
    for lines, records in _chunks(file, options, header, path, start, reading, others):
        numbered.append(lines)
        for name, parts, cells in zip(header, chunks, zip(*records, strict=True), strict=True):
            if name in kept:
                parts.append(_column(cells, name in text, absent, reading.decimal))
                if name in forms and not "".join(cells).isascii():
                    odd = {cell: plain(cell) for cell in {*cells} if plain(cell) != cell.strip()}
                    forms[name].update(odd[cell] for cell in cells if cell in odd)
                kinds = {parts[0].dtype.kind, parts[-1].dtype.kind}
                if "O" in kinds and len(kinds) > 1:
                    raise _HoldsText(name)
    if not numbered:
        raise NoRowsError(f"{path} has a header but no rows: fill it, or leave the file out.")
    whole = zip(header, chunks, strict=True)
    table = tables.Table({name: _joined(parts) for name, parts in whole if name in kept})
    table.file, table.lines, table.header = path, _joined(numbered), tuple(header)
    table.others, table.forms = {"with the names of columns": start - 1, **others}, forms
    return table


def _column(
    cells: Sequence[str], as_text: bool, absent: Collection[str], decimal: str
) -> NDArray[Any]:
    """The cells of a column as numbers or text; where the comma is the decimal sign, a point makes
    text, about which `refined` decides.
    """
    if decimal == "," and not as_text:
        as_text = any("." in cell and plain(cell) not in absent for cell in cells)
        pointed = () if as_text else [cell.replace(",", ".") for cell in cells]
        if pointed and (numbers := tables.parsed(pointed, False, absent)).dtype.kind != "O":
            return numbers
    return tables.parsed(cells, as_text, absent)


def _header(file: IO[str], path: str, reading: Reading) -> tuple[list[str], dict[str, Any], int]:
    """The names of the columns, how the lines are written, and on which line the rows begin."""
    start, first, delimiter, sign = 1, file.readline(), reading.delimiter, None
    while first and (not first.strip(NOTHING) or (sign := SEPARATED.fullmatch(first))):
        delimiter = delimiter or (sign and sign[1])
        start, first = start + 1, file.readline()
    if not first:
        raise ValueError(
            f"{path} is empty: its first line must name the columns. Fill it, or leave it out."
        )
    first = _whole(file, first)
    delimiter = delimiter or max(SEPARATORS, key=re.sub('"[^"]*"', "", first).count)
    options: Any = {"delimiter": delimiter, "skipinitialspace": True, "strict": True}
    lines = first.splitlines(keepends=True)
    if len(lines) > 1 and len({line.count(delimiter) for line in lines}) == 1:
        raise _open_quote(path, start, start + len(lines) - 1)
    cells = _records(csv.reader(lines, **options), path, start, 1)[0]
    names = _names(cells)
    for _ in range(1, reading.header_lines):
        start, lines = start + len(lines), _whole(file, file.readline()).splitlines(keepends=True)
        below = _records(csv.reader(lines, **options), path, start, 1)
        if any(tables.is_number(cell) for record in below for cell in record):
            what = f"line {start} has numbers, and is to be a line of the header"
            raise RowError(path, what, do="Correct `header_lines`: such a line has names or units.")
    return names, options, start + len(lines)


def _names(cells: Sequence[str]) -> list[str]:
    """The names of columns as cells have them, the second of one name as "name (2)"."""
    names, seen = [*map(name_of, cells)], Counter[str]()
    for k, name in enumerate(names):
        seen[name] += 1
        names[k] += f" ({seen[name]})" * bool(name and seen[name] > 1)
    return names


def _whole(file: IO[str], line: str) -> str:
    """A line, with those after it that belong to a cell in quotes."""
    while line.count('"') % 2 and len(line) < HEADER and (more := file.readline()):
        line += more
    return line


def _open_quote(path: str, first: int, last: int) -> RowError:
    what = f"a cell in quotes that begins on line {first} goes on to line {last}"
    shown = ", and the lines in it have as many cells as a row"
    do = "Is a quote left open on its first line? Close it, or write two where one is meant."
    return RowError(path, what + shown, do=do)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts as one array; they are released."""
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    return whole


def _chunks(
    file: IO[str],
    options: Mapping[str, Any],
    header: Sequence[str],
    path: str,
    start: int,
    reading: Reading,
    others: Counter[str],
) -> Iterator[tuple[NDArray[np.int64], list[list[str]]]]:
    """The records of a CSV file as lists of cells, and the lines on which they begin, a chunk of
    them at a time; ``start`` is the line of the first one. ``others`` counts all other lines.
    """
    reader, first, width = csv.reader(file, **options), start, len(header)
    names = [*map(str.casefold, header)]
    named = (k for k, name in enumerate(header, 1) if not tables.NAMELESS.fullmatch(name))
    least = max(named, default=width)
    while records := _records(reader, path, first, max(1, min(CHUNK, CELLS // width))):
        end = reader.line_num + start
        lines = np.arange(first, end)  # on which the records begin
        if len(records) < end - first:
            heights = [*map(_height, records)]
            lines = first + np.cumsum([0, *heights[:-1]])
            others["inside of quotes"] += end - first - len(records)
            _check_quotes(records, heights, lines, options["delimiter"], width, path)
        first = end
        filled = [any(map(str.strip, r)) if width > 1 else bool(r) for r in records]
        if not all(filled):  # blank lines, and lines of separators alone
            others["blank"] += len(filled) - sum(filled)
            lines, records = lines[filled], list(itertools.compress(records, filled))
        again = [k for k, r in enumerate(records) if name_of(r[0]).casefold() == names[0]]
        again = [k for k in again if [*map(str.casefold, _names(records[k][:width]))] == names]
        if again and not reading.drop_repeated_header:
            what = f"line {lines[again[0]]} names the columns again, and is not a row"
            raise RowError(path, what, do="Delete it, or set `drop_repeated_header` to true.")
        if again:
            others["with these names again"] += len(again)
            lines = np.delete(lines, again)
            records = [r for k, r in enumerate(records) if k not in again]
        for k, record in enumerate(records):
            while len(record) > width and not record[-1].strip():
                del record[-1]  # the empty cells after separators at the end
            if least <= len(record) < width:  # a spreadsheet leaves empty cells at the end out
                record += [""] * (width - len(record))
            if (n := len(record)) == width:
                continue
            several = " Is a quote left open in it?" * (_height(record) > 1)
            raise ValueError(
                f"{path}, line {lines[k]}: {n} cell{'s' * (n != 1)} where the header has {width}."
                f"{several} Write one cell for each column, in quotes where it holds the separator,"
                " and delete what is not a row, such as titles and totals."
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
            f"{path} is not a readable CSV file: line {at}: {error}. Is a quote left open there?"
            " Save it as CSV in UTF-8, or as Parquet."
        ) from error
    return records


def _height(record: Sequence[str]) -> int:
    """The lines that a record takes: more than one where a cell in quotes has line breaks."""
    return 1 + sum(c.count("\n") + c.count("\r") - c.count("\r\n") for c in record)


def _check_quotes(
    records: Sequence[list[str]],
    heights: Sequence[int],
    lines: NDArray[np.int64],
    sign: str,
    width: int,
    path: str,
) -> None:
    """Refuse a cell of several lines if each of them is a row: it has as many cells, and numbers
    where other rows have some.
    """
    plain_rows = [r for r, n in zip(records, heights, strict=True) if n == 1 and len(r) == width]
    columns = [*zip(*plain_rows[:1000], strict=True)]
    numeric = [all(_may_be_number(c) for c in of) and any(map(str.strip, of)) for of in columns]
    for record, height, line in zip(records, heights, lines.tolist(), strict=True):
        inside = [k for k, cell in enumerate(record) if height > 1 and _height([cell]) > 1]
        for k in inside[:1]:
            first, *others = (part.split(sign) for part in re.split(r"\r\n|\r|\n", record[k]))
            rows = [[*record[:k], *first], *others]
            rows[-1] = [*rows[-1], *record[k + 1 :]]
            kept = [row for row in rows if any(map(str.strip, row))]
            numbers = [c for row in kept for c, is_one in zip(row, numeric, strict=False) if is_one]
            alike = len(kept) > 1 and all(len(row) == width for row in kept)
            if alike and (all(map(_may_be_number, numbers)) if numbers else width > 3):
                raise _open_quote(path, line, line + height - 1)


def _may_be_number(cell: str) -> bool:
    return plain(cell) in tables.MISSING or tables.is_number(cell.replace(",", "."))


def read_clients(
    files: Files,
    client: str | None = None,
    empty: bool = False,
    watch: Callable[[int, int], object] = lambda done, total: None,
    text: Sequence[str] = (),
    reading: Reading = PLAIN,
    only: Chosen = None,
    dropped: Callable[[int], object] = lambda rows: None,
) -> dict[str, tables.Table]:
    """One table per client: from one file each (named by its stem), or by the values of the column
    ``client``.

    ``empty``: files with a header and no rows are left out, and not refused. ``watch`` is called
    with the files that are read, and with how many there are; ``dropped`` with the rows of a file
    that are left out for want of a client. ``text``, ``reading`` and ``only``
    as in `read`.
    """
    text = tuple(text) if client is None else (client, *text)
    clients: dict[str, list[tables.Table]] = {}
    reference: dict[str, tables.Table] = {}
    header: dict[str, None] = {}
    every = paths(files)
    with Faults() as faults:
        for done, path in enumerate(every):
            watch(done, len(every))
            if len(faults.errors) >= TOLD:
                break
            with faults.of(str(path)):
                try:
                    table = read(path, text, reading, only)
                except NoRowsError:
                    if not empty:
                        raise
                    continue
                header |= dict.fromkeys(table.header or table)
                reference = reference or {str(path): table}
                tables.same_columns({**reference, str(path): table})
                if reading.drop_missing_client and client is not None and client in table:
                    rows = len(table[client])
                    table = tables.present(table, client)
                    dropped(rows - len(table[client]))
                named = stem(path)
                parts = {named: table} if client is None else tables.by_client(table, client)
                if client is None and named in clients:
                    raise RowError(
                        str(path),
                        f"it has a client that is in {clients[named][0].file} as well",
                        shown=f", {named!r}",
                        do="Rename one, or join the files.",
                    )
                for name, part in parts.items():
                    clients.setdefault(name, []).append(part)
    if not clients:
        raise NoRowsError("no file has any row.")
    tables.check_named(reading, header)
    return {name: tables.joined(parts) for name, parts in clients.items()}


def stem(path: Path) -> str:
    """The name of the client whose rows are in a file."""
    return plain(path.name.split(".")[0])


def paths(files: Files) -> list[Path]:
    """The files that a path, a pattern or a folder stands for, sorted by name; or several such."""
    if not isinstance(files, str | Path):
        matches = [path for part in files for path in paths(part)]
        if twice := [path for path in matches if matches.count(path) > 1]:
            raise ValueError(f"{twice[0]} is given twice: name every file once.")
    elif Path(files).is_dir():
        matches = sorted(p for p in Path(files).iterdir() if p.name.endswith(ENDINGS))
    elif glob.has_magic(str(files)) and not Path(files).exists():
        matches = sorted(map(Path, glob.glob(str(files))))
    else:
        return [Path(files)]
    if not matches:
        raise FileNotFoundError(f"no file matches {str(files)!r} (seen from {Path.cwd()}).")
    return matches
