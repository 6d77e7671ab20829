"""Where the papers' data sets come from: files in a data directory with pinned checksums, else
OpenML by pinned id.

The data directory is the argument ``data_dir`` or the environment variable QUORATE_DATA. What is
downloaded stays in scikit-learn's data folder, so that later runs need no network. Whatever the
source, shape and class counts are checked.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quorate.data.tables import Table, parsed

SETTING = "QUORATE_DATA"


@dataclass(frozen=True)
class Source:
    """One data set: its files ``{path in the data directory: sha256}``, its OpenML id, and what it
    must look like.
    """

    name: str
    rows: int
    columns: int
    text: str  # one line for `quorate data`
    files: Mapping[str, str] = field(default_factory=dict)
    openml: int | None = None
    # rows of each class, classes sorted; None for real targets
    counts: tuple[int, ...] | None = None


_DIGESTS = """\
uci/statlog-heart.dat 83eed429fe88d87296d3f86d5df0c2ac475a90a0dbd73529cff6b28eb047751a
uci/breast-cancer-wisconsin.data 7f7afffb64d37d73563c0bbbd4293aa178dd2e0491ee84b876709903d994be57
uci/abalone.data 2ddd631b921ab2de3b1d64d33b4311d60c6a1064c060c7a4c87b3073cb4a0e1a
uci/monks-1.train 7255e8ab2a6cc9e28d31866f3d83918c42cff832ebcec709df08ec2fdc84afab
uci/monks-1.test e501ada3b21d876ab86f3e1614747bd2edc443a685f229a25e480aa1dea629f6
keel/monks-3.test 1d816ae7347afaf895050667adc3f382904c6ed2332d0a2d09353f5e6cb54612
uci/adult.data.gz 099e294045d7397c0e70a768ca126e60d0c18df9ed5e8ea5d6e26152fdd70a13
uci/adult.test.gz fede70c4f07e47e675cd20610c08bf27aedbb5dcd58570b90a347eadd5c08c14
keel/australian.csv 725574525d29193aa1c59dd6ba4cababbd201617139cb456cd3ac185319c2c17
keel/phoneme.csv 4dfd85e5e52de1f4f57c4029245f43663501c8ad9a57af5f15edb2b465356124
keel/titanic.csv e32c53642295ee0a5ea88af5ceaafe23770a6749e19020ef8fffdd4cfbcfb2d2
keel/splice.data ebbae10c85d3c285e2a2489a37e42bc2ee8d91d15005e391a9962fa3389a114f
mnist.npz 6ff3272174ad1dcb2ce270847ad63698633925ed0249e1e856d6fd92a3fbd58e
femnist_5pct_partial.npz 0a0a26dec2f83b18554dab838afbe624c963749c527f63237d8d44a14ba9a14c
"""
_SHA256: dict[str, str] = dict(re.findall(r"(\S+) (\S+)", _DIGESTS))


def _files(*names: str) -> dict[str, str]:
    """These files of the data directory, each with its SHA-256 digest."""
    return {name: _SHA256[name] for name in names}


SOURCES = {
    source.name: source
    for source in (
        Source(
            "breast_cancer",
            569,
            30,
            "Wisconsin diagnostic breast cancer, part of scikit-learn",
            counts=(357, 212),
        ),
        Source(
            "heart",
            270,
            13,
            "Statlog heart disease (UCI)",
            _files("uci/statlog-heart.dat"),
            53,
            (150, 120),
        ),
        Source(
            "breast_cancer_wisconsin",
            699,
            9,
            "Wisconsin original breast cancer (UCI), 16 rows with a missing value",
            _files("uci/breast-cancer-wisconsin.data"),
            15,
            (458, 241),
        ),
        Source(
            "abalone",
            4177,
            8,
            "Abalone (UCI), target: rings",
            _files("uci/abalone.data"),
            183,
        ),
        Source(
            "monks_1",
            556,
            6,
            "MONK's problem 1 (UCI), 124 training and 432 test rows",
            _files("uci/monks-1.train", "uci/monks-1.test"),
            333,
            (278, 278),
        ),
        Source(
            "monks_3",
            432,
            6,
            "MONK's problem 3 (UCI), the test rows",
            _files("keel/monks-3.test"),
            None,
            (204, 228),
        ),
        Source(
            "adult",
            48842,
            14,
            "Adult census income (UCI), 32,561 training and 16,281 test rows",
            _files("uci/adult.data.gz", "uci/adult.test.gz"),
            1590,
            (37155, 11687),
        ),
        Source(
            "australian",
            690,
            14,
            "Australian credit (KEEL, without decimal points; OpenML with them)",
            _files("keel/australian.csv"),
            40981,
            (383, 307),
        ),
        Source(
            "phoneme",
            5404,
            5,
            "Phoneme (KEEL; the version at OpenML is scaled)",
            _files("keel/phoneme.csv"),
            1489,
            (3818, 1586),
        ),
        Source(
            "titanic",
            2201,
            3,
            "Titanic (KEEL): class, age, sex",
            _files("keel/titanic.csv"),
            40704,
            (1490, 711),
        ),
        Source(
            "splice",
            3190,
            60,
            "Splice junctions (UCI): letters a=1 ... z=26; N against EI and IE",
            _files("keel/splice.data"),
            46,
            (1655, 1535),
        ),
        Source(
            "mnist",
            70000,
            784,
            "MNIST digits, 60,000 training and 10,000 test images",
            _files("mnist.npz"),
            554,
            (6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958),
        ),
        Source(
            "femnist",
            19607,
            784,
            "FEMNIST by writer (LEAF, 5 %): 114 of 195 training writers, 195 for testing",
            _files("femnist_5pct_partial.npz"),
        ),
    )
}


@dataclass(frozen=True)
class Available:
    """One line of `quorate data`."""

    name: str
    rows: int
    columns: int
    source: str
    present: bool  # usable without network: bundled, or its files lie in the data directory


def directory(data_dir: str | Path | None = None) -> Path | None:
    """The data directory: the argument, else the environment variable QUORATE_DATA, else None."""
    chosen = data_dir or os.environ.get(SETTING)
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        origin = "data_dir" if data_dir else f"the environment variable {SETTING}"
        raise FileNotFoundError(f"{origin} names {str(chosen)!r}, which is no folder.")
    return Path(chosen)


def available(data_dir: str | Path | None = None) -> tuple[Available, ...]:
    """All data sets, and which of them are here."""
    folder = directory(data_dir)

    def present(source: Source) -> bool:
        return all(folder is not None and (folder / file).is_file() for file in source.files)

    return tuple(Available(s.name, s.rows, s.columns, s.text, present(s)) for s in SOURCES.values())


def contents(source: Source, data_dir: str | Path | None = None) -> dict[str, bytes] | None:
    """The files of a data set, checked; None when the data directory does not have them all."""
    folder = directory(data_dir)
    if folder is None or not all((folder / file).is_file() for file in source.files):
        return None
    files = {file: (folder / file).read_bytes() for file in source.files}
    for file, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        if digest != source.files[file]:
            raise ValueError(
                f"{folder / file} is not the file that {source.name} was checked with: sha256"
                f" {digest}, needed {source.files[file]}. Fetch it again, or remove it to use"
                " another source."
            )
    return files


def absent(source: Source, why: str) -> FileNotFoundError:
    """The error that says how to get the files by hand."""
    files = " and ".join(source.files)
    return FileNotFoundError(
        f"{source.name} ({source.text}) is not here: {why}. Put {files} into a folder and name that"
        f" folder by data_dir=... or the environment variable {SETTING}."
    )


def openml(source: Source) -> tuple[Table, NDArray[Any]]:
    """(features, target) of a data set at OpenML, categories as they are written there. It is read
    from scikit-learn's cache, or once from the network.
    """
    from sklearn.datasets import fetch_openml

    if source.openml is None:
        raise absent(source, "it has no copy at OpenML")
    try:
        bunch: Any = fetch_openml(data_id=source.openml, as_frame=False, parser="liac-arff")
    except OSError as error:  # URLError and HTTPError among them
        why = f"its file is in no data directory, and OpenML (data set {source.openml}) answers"
        raise absent(source, f"{why} {error!r}") from error
    columns = bunch.data.toarray().T if hasattr(bunch.data, "toarray") else bunch.data.T
    table = {
        name: _decoded(c, bunch.categories.get(name))
        for name, c in zip(bunch.feature_names, columns, strict=True)
    }
    return table, np.asarray(bunch.target)


def _decoded(column: ArrayLike, categories: Sequence[str] | None) -> NDArray[Any]:
    """A column whose positions in the list of categories are replaced by the categories, which may
    be numbers.
    """
    codes = np.asarray(column, dtype=np.float64)
    if categories is None:
        return codes
    return parsed(["" if np.isnan(k) else str(categories[int(k)]) for k in codes])


def cells(content: bytes, separator: str | None = ",") -> list[tuple[str, ...]]:
    """The columns of a file without header, as text; blank lines and those that begin with "|" are
    left out.
    """
    raw = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    text = io.StringIO(raw.decode())
    lines = map(str.split, text) if separator is None else csv.reader(text, skipinitialspace=True)
    return list(zip(*(line for line in lines if line and not line[0].startswith("|")), strict=True))


def validate(
    source: Source,
    X: NDArray[Any],
    y: NDArray[Any],
    rows: int | None = None,
    counts: Sequence[int] | None = None,
) -> None:
    """Refuse data whose shape or class counts are not those of the data set."""
    shape = (source.rows if rows is None else rows, source.columns)
    expected = source.counts if counts is None else tuple(counts)
    counted = None if expected is None else tuple(np.unique(y, return_counts=True)[1].tolist())
    if X.shape != shape or y.shape != shape[:1] or counted != expected:
        raise ValueError(
            f"{source.name} should have shape {shape} and class counts {expected}, got {X.shape}"
            f" and {counted}: this is another version of the data."
        )
