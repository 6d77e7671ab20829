"""Files of tables, opened so that a bad one ends in an error: no hang, no memory filled up.

A compressed file may expand to `FREE` bytes, or to `RATIO` times its size up to `MOST` bytes; it is
expanded as it is read, and reading ends where it goes beyond. A line has at most `LINE` bytes. What
is not a regular file (a folder, a pipe, a device) is not opened, and a file that changes while it
is read is refused.
"""

import codecs
import csv
import gzip
import importlib
import io
import re
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from bonafed.data.row_errors import RowError
from bonafed.text import install, plain

Content = TypeVar("Content")

FREE = 2**28  # bytes to which every file may expand
RATIO = 200  # times the size of the file to which larger ones may expand
MOST = 2**34  # bytes to which no file may expand
LINE = 2**24  # bytes of a line

# how files begin that are taken for CSV by mistake, and what to do with them
OTHERS = {
    b"PK\x03\x04": ("a ZIP archive or a spreadsheet", "Unpack it, or save it as CSV in UTF-8."),
    b"PAR1": ("a Parquet file", "Give it the ending .parquet."),
    b"\x1f\x8b": ("compressed by gzip", "Give it the ending .gz."),
    b"BZh": ("compressed by bzip2", "Unpack it, or compress it by gzip."),
    b"\xfd7zXZ": ("compressed by xz", "Unpack it, or compress it by gzip."),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "Unpack it, or compress it by gzip."),
}


# the byte-order marks that texts begin with, and what is read after them
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

CHANGED = "{path} was changed while it was read: wait until nobody writes it, and read it again."


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Refuse what is not a regular file, and one that is another after it was read."""
    before = _regular(path)
    yield
    after = path.stat()
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise ValueError(CHANGED.format(path=path))


def _regular(path: Path) -> Any:
    """What the system knows of a regular file."""
    try:
        known = path.stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError(
            f"there is no file {str(path)!r}: correct its path. A path in data.path starts at the"
            " configuration's folder, others at the working directory."
        ) from error
    except ValueError as error:  # a name with a NUL byte
        raise FileNotFoundError(f"there is no file {str(path)!r}: {error}.") from error
    if stat.S_ISDIR(known.st_mode):
        raise IsADirectoryError(f"{path} is a folder, not a table: name the files in it.")
    if not stat.S_ISREG(known.st_mode):
        raise OSError(
            f"{path} is a pipe or a device, not a file: write the table to a file, and name that."
        )
    return known


@contextmanager
def opened(path: Path, encoding: str = "utf-8") -> Iterator[IO[str]]:
    """The text of a file, expanded on the way where its name ends in .gz; a byte-order mark at its
    start counts for more than ``encoding``.

    Raises
    ------
    ValueError : the file is damaged, is not text, or goes beyond a limit, while it is read
    """
    with bytes_of(path, encoding) as raw:
        marked = (of for mark, of in MARKS.items() if raw.peek(4).startswith(mark))
        encoding = next(marked, encoding)
        with io.TextIOWrapper(raw, encoding, newline="") as text:
            try:
                yield text
            except UnicodeError as error:
                name = encoding.upper().removesuffix("-SIG")
                raise ValueError(
                    f"{path} is not a readable CSV file: {_not_in(encoding, path)} is not text in"
                    f" {name}. Declare another `encoding`, such as 'cp1252' or 'latin-1' (many"
                    " spreadsheets write it), or save it as CSV in UTF-8, or as Parquet."
                ) from error


@contextmanager
def bytes_of(path: Path, encoding: str = "utf-16") -> Iterator[io.BufferedReader]:
    """The bytes of a file, expanded on the way where its name ends in .gz; bytes of zeros are
    refused unless ``encoding`` or a byte-order mark allows for them. Raises as `opened`.
    """
    with path.open("rb") as file:
        packed, size = path.suffix == ".gz", _regular(path).st_size
        allowed = most(size) if packed else size

        def guarded() -> _Guarded:
            source = gzip.GzipFile(fileobj=file) if packed else file
            return _Guarded(source, str(path), allowed, packed, encoding)

        file.seek(max(file.seek(0, io.SEEK_END) - 4, 0))
        # the bytes, modulo 2^32, to which the last part of a gzip archive says that it expands
        stated, source = int.from_bytes(file.read(4), "little"), guarded()
        file.seek(0)
        while packed and stated > allowed and source.read(2**20):  # expanding alone takes seconds
            pass
        file.seek(0)
        yield io.BufferedReader(guarded(), 2**17)


def most(size: int) -> int:
    """The bytes to which a file of ``size`` bytes may expand."""
    return min(max(FREE, RATIO * size), MOST)


class _Guarded(io.RawIOBase):
    """The bytes of a file as they are read, within the limits, and damage in words."""

    def __init__(
        self, source: Any, path: str, allowed: int, packed: bool, encoding: str = "utf-8"
    ) -> None:
        self.source, self.path, self.allowed, self.packed = source, path, allowed, packed
        self.wide = encoding == "utf-16"  # whose letters have bytes of zeros
        self.total, self.line = 0, 0  # bytes so far: of the file, and since the last line began

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self.source.read1(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{self.path} is a damaged archive: {error}. Copy or compress it again."
            ) from error
        self._check(data)
        self.total += len(data)
        buffer[: len(data)] = data
        return len(data)

    def _check(self, data: bytes) -> None:
        if self.total == 0:
            self.wide |= MARKS.get(data[:2]) == "utf-16"
            for start, (kind, do) in OTHERS.items():
                if data.startswith(start):
                    raise ValueError(f"{self.path} is not a readable CSV file: it is {kind}. {do}")
        if b"\0" in data and not self.wide:
            at = data.count(b"\n", 0, data.index(b"\0"))
            raise ValueError(
                f"{self.path} is not a readable CSV file: it has NUL bytes, which no text has"
                f"{'' if self.total else f' (first in line {at + 1})'}. Save it as CSV in UTF-8."
            )
        if self.total + len(data) > self.allowed and not self.packed:
            raise ValueError(CHANGED.format(path=self.path))  # it may grow for ever
        if self.total + len(data) > self.allowed:
            raise ValueError(
                f"{self.path} expands to more than {self.allowed:,} bytes, which is the limit for"
                f" its size ({FREE:,} bytes, or {RATIO} times its size up to {MOST:,}): if you"
                " trust it, unpack it and name the unpacked file."
            )
        ends = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self.line = len(data) - ends - 1 + (self.line if ends < 0 else 0)
        if self.line > LINE:
            raise ValueError(
                f"{self.path} is not a readable CSV file: a line has more than {LINE:,} bytes. Give"
                " every row a separate line."
            )


def _not_in(encoding: str, path: Path) -> str:
    """The first line that is not in an encoding, in words."""
    if encoding == "utf-16":
        return "it"  # lines cannot be told apart before it is decoded
    number = 0
    with path.open("rb") as file, suppress(EOFError, zlib.error, gzip.BadGzipFile):
        raw = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
        for number, line in enumerate(raw, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return f"line {number}"
    return f"line {number + 1}"  # an archive that is damaged there, too


# ------------------------------------------------------------------------------------------ Parquet


def read_parquet(path: Path, converted: Callable[[object], Content]) -> Content:
    """A file as ``converted`` makes it of a frame of whichever library is here.

    Raises
    ------
    ValueError : the file is damaged, or goes beyond a limit
    ImportError : no library is here
    """
    for module in ("pyarrow.parquet", "polars", "pandas"):
        try:
            library: Any = importlib.import_module(module)
        except ImportError:
            continue
        rows = columns = 0
        with _readable(path):
            if module == "pyarrow.parquet":
                known = library.read_metadata(path)
                rows, columns = known.num_rows, known.num_columns
            elif module == "polars":
                lazy = library.scan_parquet(path)
                rows = lazy.select(library.len()).collect().item()
                columns = len(lazy.collect_schema())
        if 8 * rows * columns > (allowed := most(path.stat().st_size)):
            raise ValueError(
                f"{path} has {rows:,} rows of {columns:,} columns, which expand to more than"
                f" {allowed:,} bytes, the limit for its size ({FREE:,} bytes, or {RATIO} times its"
                f" size up to {MOST:,}): write it as several files, or as CSV, if you trust it."
            )
        with _readable(path):
            read = library.read_table if module == "pyarrow.parquet" else library.read_parquet
            return converted(read(path))
    raise ImportError(
        f"reading {path} needs pyarrow, polars or pandas: {install('frames')}, or save as CSV."
    )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Whatever a library raises of a Parquet file is said in words."""
    try:
        yield
    except BaseException as error:  # every library has its own; a panic of polars is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            raise
        kept = RowError(
            str(path),
            "this is not a readable Parquet file",
            shown=f" ({' '.join(str(error).split())[:200]})",
            do="Write it again, or save the table as CSV in UTF-8.",
        )
    else:
        return
    raise kept


# In which encoding the text of a file is, and what stands between its cells.

DELIMITERS = (",", ";", "\t", "|")
MARKED = "it begins with a byte-order mark"
PIECE = 2**20  # bytes that are looked at together
LINES = 200  # that are looked at for the delimiter
NOTHING = " \t\r\n,;|"  # a line of these signs only is blank
SEPARATED = re.compile(r'"?sep=(.)"?[\s,;|]*')  # a first line that says what parts the cells


def encoding_of(path: Path) -> tuple[str, str]:
    """(the encoding, why): "ascii" where every encoding will do.

    Text that is not UTF-8 is taken for Windows-1252 if it has signs that Latin-1 lacks.
    """
    with bytes_of(path) as file:
        piece = file.read(PIECE)
        for mark, encoding in MARKS.items():
            if piece.startswith(mark):
                return encoding.removesuffix("-sig"), MARKED
        decoder, windows, ended = codecs.getincrementaldecoder("utf-8")(), False, False
        plain = unicode = True
        while not ended:
            ended, plain = not piece, plain and piece.isascii()
            windows = windows or (not piece.isascii() and any(0x80 <= b < 0xA0 for b in piece))
            try:
                decoder.decode(piece, final=ended)
            except UnicodeDecodeError:
                unicode = False
            piece = file.read(PIECE)
    if plain:
        return "ascii", "plain letters only"
    if unicode:
        return "utf-8", "its letters are those of UTF-8"
    if windows:
        return "cp1252", "it is not UTF-8, and has signs of Windows-1252"
    return "latin-1", "it is not UTF-8"


def delimiter_and_header(lines: Sequence[str]) -> tuple[str, list[str]]:
    """What stands between the cells of these lines, and the names in the first: that which splits
    most of them into as many cells as the first, and into the most.
    """
    kept = [line for line in lines if line.strip(NOTHING)]
    if kept and (stated := SEPARATED.fullmatch(kept[0])):
        return stated[1], _header(kept[1:], stated[1])
    best, most = ",", (0.0, 0)
    for sign in DELIMITERS:
        with suppress(csv.Error):
            widths = [len(r) for r in csv.reader(kept, delimiter=sign, skipinitialspace=True)]
            alike = Counter(widths)[widths[0]] / len(widths) if widths else 0.0
            if widths and widths[0] > 1 and (alike, widths[0]) > most:
                best, most = sign, (alike, widths[0])
    return best, _header(kept, best)


def _header(lines: Sequence[str], sign: str) -> list[str]:
    with suppress(csv.Error):
        for cells in csv.reader(lines, delimiter=sign, skipinitialspace=True):
            return [*map(name_of, cells)]
    return []


def name_of(cell: str) -> str:
    """The name of a column as its cell has it."""
    return " ".join(plain(cell).split())
