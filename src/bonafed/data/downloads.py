"""Where the papers' data sets come from: files in a data directory with pinned checksums, else
OpenML by pinned id.

The data directory is the argument ``data_dir`` or the environment variable BONAFED_DATA. What is
downloaded stays in scikit-learn's data folder, so that later runs need no network. Whatever the
source, shape and class counts are checked.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.data.files import expanded
from bonafed.data.tables import Table, parsed

SETTING = "BONAFED_DATA"


@dataclass(frozen=True)
class Source:
    """One data set: its files ``{path in the data directory: sha256}``, its OpenML id, and what it
    must look like. They are in ``sources.toml``.
    """

    name: str
    rows: int
    columns: int
    text: str  # one line for `bonafed data`
    files: Mapping[str, str] = field(default_factory=dict)
    openml: int | None = None
    # rows of each class, classes sorted; None for real targets
    counts: Sequence[int] | None = None
    names: Sequence[str] = ()  # of the columns, where the files have none


SOURCES = {
    name: Source(name, **fields)
    for name, fields in tomllib.loads(
        Path(__file__).with_name("sources.toml").read_text("utf-8")
    ).items()
}


@dataclass(frozen=True)
class Available:
    """One line of `bonafed data`."""

    name: str
    rows: int
    columns: int
    source: str
    present: bool  # usable without network: bundled, or its files lie in the data directory


def directory(data_dir: str | Path | None = None) -> Path | None:
    """The data directory: the argument, else the environment variable BONAFED_DATA, else None."""
    chosen = data_dir or os.environ.get(SETTING)
    if not chosen:
        return None
    if not Path(chosen).is_dir():
        origin = "data_dir" if data_dir else f"the environment variable {SETTING}"
        raise FileNotFoundError(f"{origin} names {str(chosen)!r}, which is not a folder.")
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
    for file in source.files:
        with (folder / file).open("rb") as stream:  # not read whole before it is known
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != source.files[file]:
            raise ValueError(
                f"{folder / file} is not the file that {source.name} was checked with: sha256"
                f" {digest}, needed {source.files[file]}. Fetch it again, or remove it to use"
                " another source."
            )
    return {file: (folder / file).read_bytes() for file in source.files}


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
    # URLError and HTTPError are among them, and what a damaged copy in scikit-learn's folder gives
    except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        why = f"its file is in no data directory, and OpenML (data set {source.openml}) answers"
        raise absent(source, f"{why} {error!r}") from error
    columns = bunch.data.toarray().T if hasattr(bunch.data, "toarray") else bunch.data.T
    named = zip(bunch.feature_names, columns, strict=True)
    table = Table({name: _decoded(c, bunch.categories.get(name)) for name, c in named})
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
    text = io.StringIO(expanded(content, "the file of the data set").decode())
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
    wanted = source.counts if counts is None else counts
    expected = wanted and tuple(wanted)
    counted = wanted and tuple(np.unique(y, return_counts=True)[1].tolist())
    if X.shape != shape or y.shape != shape[:1] or counted != expected:
        raise ValueError(
            f"{source.name} should have shape {shape} and class counts {expected}, got {X.shape}"
            f" and {counted}: this is another version of the data."
        )
