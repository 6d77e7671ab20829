"""The files of a run: JSON, arrays and digests, written in one step, so that a file is whole or is
not there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from quorate.arrays import Array
from quorate.storage import make_folder, sync_folder, write_whole

Row: TypeAlias = Mapping[str, Any]  # an object of JSON that is read, such as a row of a table
Record: TypeAlias = dict[str, Any]  # an object of JSON that is made, such as result.json


# of a working folder: the run's folder while it is written, and the file with its seal
FINISHED, CLAIMED = "finished", "claimed"


class RunError(ValueError):
    """A folder is no run, is incomplete or cannot be read."""


def digest(data: bytes) -> str:
    """The SHA-256 digest, hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def plain(value: object) -> Any:
    """The value as JSON has it: arrays as lists, infinities as "inf" and "-inf", not-a-number as
    None.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def to_json(value: object, indent: int | None = None) -> str:
    """The value as text, which is the same for the same values."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def write(path: Path, data: bytes) -> None:
    """Write a file in one step, and the folders above it, each as open as the one it is in."""
    make_folder(path.parent)
    write_whole(path, data)


def save_arrays(
    path: Path, arrays: Mapping[str, Array], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file of float64 arrays."""
    from safetensors.numpy import save

    tensors = {k: np.ascontiguousarray(v, dtype=np.float64) for k, v in arrays.items()}
    write(path, save(tensors, metadata))


def seal(result: Row) -> str:
    """The digest of everything in result.json but itself."""
    rest = {key: value for key, value in result.items() if key != "seal"}
    return digest(json.dumps(rest, sort_keys=True).encode())


def files_in(folder: Path, without: str = "") -> list[str]:
    """The names of all files below a folder, sorted; ``without`` is a folder that is left out."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    names = (file.relative_to(folder).as_posix() for file in files)
    return [name for name in names if not (without and name.startswith(without))]


def sealed(work: Path, result: Row, without: str = "") -> Record:
    """The result with digests of all other files in a folder and of itself; ``without`` is a
    folder that is left out.
    """
    names = [name for name in files_in(work, without) if name != "result.json"]
    whole = {**result, "files": {name: digest((work / name).read_bytes()) for name in names}}
    return {**whole, "seal": seal(whole)}


def claim(work: Path, out: Path, name: str) -> Path:
    """Rename the finished folder to the first free name; renaming never replaces a folder with
    files in it.
    """
    for path in numbered(out, name):
        if path.exists():
            continue
        try:
            os.rename(work, path)
        except OSError:
            if not path.exists():
                raise
            continue
        sync_folder(out)
        return path
    raise RunError(f"{out} has ten thousand runs called {name}: give another --out")


def numbered(out: Path, name: str, ending: str = "") -> Iterator[Path]:
    """The paths that a folder called ``name`` may have: itself, then with -2, -3, ..."""
    yield out / f"{name}{ending}"
    yield from (out / f"{name}-{k}{ending}" for k in range(2, 10_000))


def slug(title: str) -> str:
    """A title as part of a file name."""
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in title.lower())
    return "-".join(filter(None, kept.split("-")))[:40] or "run"


def parsed(path: Path, text: str) -> Record:
    """An object in the text of the file at ``path``."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged: expected an object, found {type(value).__name__}")
    return value


def load_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and metadata of a safetensors file; no code in it is run.

    Raises
    ------
    RunError : no such file, or a damaged one
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise RunError(f"there is no file {str(path)!r}")
    try:
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged or no safetensors file: {error}") from error


def lines(rows: Iterable[Row]) -> bytes:
    """A file with one object a line."""
    return "".join(to_json(row) + "\n" for row in rows).encode()


def rows_in(file: Path) -> list[Record]:
    """The objects of a file that has one a line."""
    return [parsed(file, row) for row in file.read_text("utf-8").splitlines()]


def complete(path: Path, needed: Sequence[str]) -> None:
    """Raise ``RunError`` where a file is missing."""
    if missing := [name for name in needed if not (path / name).is_file()]:
        raise RunError(f"{path} is no complete run: {', '.join(missing)} missing")


def load_if_any(file: Path) -> dict[str, Array]:
    """The arrays of a file, none where there is no such file."""
    return load_tensors(file)[0] if file.is_file() else {}
