"""Files that cannot be read end in one line: no hang, no memory filled up, and the line named."""

from __future__ import annotations

import gzip
import os
import random
import stat
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bonafed.data import files, readers
from bonafed.data.row_errors import RowError

ROWS = b"age,name\n" + b"".join(b"%d,person %d\n" % (k % 90, k) for k in range(400))


def refused(path: Path, words: str) -> str:
    """The error of reading a file, which is one line and names the file."""
    with pytest.raises((ValueError, OSError), match=words) as caught:
        readers.read(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(
            b"age,name\n1," + b"a" * (files.LINE + 9), "a line has more than 16,", id="long"
        ),
        (b"PK\x03\x04" + ROWS, "it is a ZIP archive or a spreadsheet"),
        (gzip.compress(ROWS), "compressed by gzip. Give it the ending .gz"),
        (b"BZh9" + ROWS, "compressed by bzip2"),
        (b"\xfd7zXZ" + ROWS, "compressed by xz"),
        (b"PAR1" + ROWS, "a Parquet file. Give it the ending"),
        (b"age,name\n1,a\n2,b\0\n", r"NUL bytes, which no text has \(first in line 3\)"),
        (ROWS + "3,é\n".encode("latin-1") + ROWS, "line 402 is not text in UTF-8"),
        (b'age,name\n1,a\n\n2,"b\n3,c\n' + ROWS, "line 4: .* Is a quote left open there"),
        (b'age,name\n1,"a\nb"\n2,"b"c\n', "line 4: "),
        (b'age,name\n1,"a\r\nb\nc"\n\n2\n', "line 6: 1 cell where the header has 2"),
        (b"age,name\n1,a\n2,b,c\n", "line 3: 3 cells where the header has 2"),
        (b"\xef\xbb\xbf", "is empty"),
    ],
)
def test_text_that_is_no_table_is_refused_with_its_line(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    refused(path, words)


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")  # opening it would wait for somebody who writes
    refused(tmp_path / "pipe.csv", "is a pipe or a device")
    refused(Path("/dev/zero"), "is a pipe or a device")
    (tmp_path / "folder.csv").mkdir()
    refused(tmp_path / "folder.csv", "is a folder")
    refused(tmp_path / "no.csv", "there is no file")
    if os.geteuid():
        (tmp_path / "shut.csv").write_bytes(ROWS)
        (tmp_path / "shut.csv").chmod(stat.S_IWUSR)
        refused(tmp_path / "shut.csv", "Permission denied")


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(ROWS)
    parsed = readers.tables.parsed

    def slowly(*given: object) -> object:
        with path.open("ab") as file:
            file.write(b"1,late\n")
        return parsed(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(readers.tables, "parsed", slowly)
    refused(path, "was changed while it was read")


@pytest.mark.parametrize("kind", ["gzip", "Parquet"])
def test_an_archive_that_expands_beyond_its_limit_is_never_whole_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files, "FREE", 2**20)
    if kind == "gzip":
        path, given = tmp_path / "bomb.csv.gz", "expands to more than"
        row = b"1" + b" " * 99_998 + b"\n"
        path.write_bytes(gzip.compress(b"a\n" + row * 500, 6))
        limit = files.RATIO * path.stat().st_size
        assert 50e6 > limit > 2**20
    else:
        path, given = tmp_path / "bomb.parquet", "300,000 rows of 2 columns"
        same = pa.array(np.zeros(300_000))
        pq.write_table(pa.table({"a": same, "b": same}), path, compression="zstd")
    tracemalloc.start()
    text = refused(path, given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6
    assert "200 times its size" in text


def test_an_archive_that_says_that_it_expands_too_far_is_refused_before_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FREE", 2**20)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a\n" + b"1\n" * 2**20))
    with pytest.raises(ValueError, match="expands to more than"), files.opened(path):
        pytest.fail("rows could be read")


def test_lines_are_counted_as_an_editor_does(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(readers, "CHUNK", 3)
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n\n1,"x\ny"\n2,z\n\n\n\n\n\n3,"u\r\n\r\nv"\r\n4,w\n')
    table = readers.read(path)
    assert table.lines is not None
    assert table.lines.tolist() == [3, 5, 11, 14]
    assert table.pick(np.array([3, 1])).place([0]) == f"line 14 of {path}"


@pytest.mark.usefixtures("not_private")
def test_one_bad_cell_is_named_and_no_good_one(tmp_path: Path) -> None:
    """One bad age at one hospital made a text column of all, and the first client was blamed."""
    from bonafed.data.federation import Federation

    path = tmp_path / "all.csv"
    path.write_text("site,age,sick\nnorth,61,1\nnorth,58,0\neast,4o,1\neast,44,0\n", "utf-8")
    with pytest.raises(RowError, match="client 'east': column 'age' holds text '4o' in line 4 of"):
        Federation.from_files(path, "sick", client="site")
    path.write_text("site,age,sick\nnorth,61,1\nnorth,58,0\neast,40,1\neast,44,O\n", "utf-8")
    with pytest.raises(RowError, match="client 'east': column 'sick' holds text 'O' in line 5 of"):
        Federation.from_files(path, "sick", client="site", classes=[0, 1])


def test_damaged_files_of_every_kind_end_in_words(tmp_path: Path) -> None:
    draw, kinds = random.Random(0), {}
    kinds["t.csv"], kinds["t.csv.gz"] = ROWS, gzip.compress(ROWS)
    frame = pa.table({"age": np.arange(50.0), "name": [f"person {k}" for k in range(50)]})
    for packing in ("snappy", "zstd", "none"):
        pq.write_table(frame, tmp_path / "seed", compression=packing)
        kinds[f"{packing}.parquet"] = (tmp_path / "seed").read_bytes()
    ends: list[Exception] = []
    for name, content in kinds.items():
        for _ in range(80):
            damaged = bytearray(content)
            for at in draw.sample(range(len(damaged)), draw.choice((1, 2, 8))):
                damaged[at] = draw.randrange(256)
            (tmp_path / name).write_bytes(
                damaged[: draw.choice((len(damaged), draw.randrange(9999)))]
            )
            try:
                readers.read(tmp_path / name)
            except (ValueError, OSError) as error:
                ends.append(error)
    assert len(ends) > 200
    assert not [error for error in ends if isinstance(error, UnicodeError | zlib.error)]
    assert not [error for error in ends if "\n" in str(error)]
