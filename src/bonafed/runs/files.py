"""The files of a run, written in one step, so that a file is whole or is not there, and read again;
`bonafed.runs.forms` says what they hold.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bonafed.arrays import Array
from bonafed.storage import make_folder, sync_folder, write_whole

Row: TypeAlias = Mapping[str, Any]  # an object of JSON that is read, such as a row of a table
Record: TypeAlias = dict[str, Any]  # an object of JSON that is made, such as result.json
MOST_TEXT = 2**29  # bytes of a file of text
DIGITS = 18  # of a whole number: more are no int64
# what the reader of arrays raises for a damaged file
UNREADABLE_ARRAYS = (OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError)
UNREADABLE_ARRAYS += (MemoryError,)


# of a working folder: the run's folder while it is written, and the file with its seal
FINISHED, CLAIMED = "finished", "claimed"


class RunError(ValueError):
    """A folder is not a run, is incomplete or cannot be read."""


# what is raised where the parts of a damaged run are used together
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, StopIteration)


class FormError(RunError):
    """A file of a run can be read, and holds what no run writes."""


def damaged(file: Path, what: str) -> FormError:
    """The error of a file that is not as a run writes it."""
    return FormError(f"{file} is damaged: {what}")


@contextmanager
def used(path: Path) -> Iterator[None]:
    """While the parts of a run are used together: ``RunError`` where they do not fit each other."""
    try:
        yield
    except (RunError, OSError):
        raise
    except UNREADABLE as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise RunError(f"{path} is damaged: its parts do not fit each other ({reason})") from error


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
    """The names of all files below a folder, sorted; ``without`` is a folder that is left out.

    Raises
    ------
    RunError : a symbolic link, which may lead out of the folder, or what is neither file nor folder
    """
    names = []
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(root, name)
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                kind = "a symbolic link" if path.is_symlink() else "no file"
                raise RunError(
                    f"{ascii(str(path))[1:-1]} is {kind}: a run has files only. Remove it"
                )
        names += [Path(root, name).relative_to(folder).as_posix() for name in files]
    return [name for name in sorted(names) if not (without and name.startswith(without))]


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


def text_in(file: Path) -> str:
    """The text of a file of a run.

    Raises
    ------
    RunError : a file that is too large, cannot be read or is not text
    """
    try:
        if (size := file.stat().st_size) > MOST_TEXT:
            most = f"at most {MOST_TEXT / 2**20:,.0f} MiB"
            raise RunError(f"{file} is damaged: it has {size / 2**20:,.0f} MiB; needed: {most}")
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise RunError(f"{file} is damaged: it is not UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise RunError(f"{file} cannot be read: {error.strerror}") from error


def parsed(path: Path, text: str) -> Record:
    """An object in the text of the file at ``path``; every key of it stands there once."""
    try:
        hooks = {"parse_constant": _no_number, "parse_int": _whole}
        value = json.loads(text, object_pairs_hook=_once, **hooks)
        if "\\ud" in text.lower():  # half of a letter in two parts is no text
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise RunError(f"{path} is damaged: its lists lie too deep in each other") from error
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(f"{path} is damaged: {reason}") from error
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged: expected an object, found {type(value).__name__}")
    return value


def _once(pairs: list[tuple[str, Any]]) -> Record:
    """The object of these keys and values."""
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!a} stands twice in one object")
    return record


def _whole(digits: str) -> int:
    if len(digits) > DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def load_tensors(path: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays and metadata of a safetensors file; no code in it is run.

    Raises
    ------
    RunError : no such file, or a damaged one
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise RunError(
            f"there is no file {str(path)!r}: give the folder that `bonafed run` printed, or a"
            " model.safetensors"
        )
    try:
        with safe_open(path, framework="numpy") as file:
            names = file.keys()
            arrays, metadata = {n: file.get_tensor(n) for n in names}, file.metadata() or {}
    except (SafetensorError, *UNREADABLE_ARRAYS) as error:
        reason = " ".join(str(error).split())[:200]
        raise RunError(f"{path} is damaged or no safetensors file: {reason}") from error
    odd = [f"{name[:60]!a} is {a.dtype}" for name, a in arrays.items() if a.dtype != np.float64]
    if odd:
        raise RunError(f"{path} is damaged: {odd[0]}; needed: float64")
    return arrays, metadata


def load_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, Array]:
    """The arrays of a safetensors file without metadata; ``names`` are those that it has.

    Raises
    ------
    RunError : no such file, a damaged one, or one with other arrays
    """
    arrays, metadata = load_tensors(path)
    needed = [*arrays] if names is None else [*names]
    if metadata or {*arrays} != {*needed}:
        has = f"the arrays {', '.join(f'{name[:60]!a}' for name in sorted(arrays))}"
        has += " and metadata" * bool(metadata)
        raise RunError(f"{path} is damaged: it has {has}; needed: {', '.join(needed)} only")
    return arrays


def lines(rows: Iterable[Row]) -> bytes:
    """A file with one object a line."""
    return "".join(to_json(row) + "\n" for row in rows).encode()


def complete(path: Path, needed: Sequence[str]) -> None:
    """Raise ``RunError`` where a file is missing."""
    if missing := [name for name in needed if not (path / name).is_file()]:
        if inside := sorted(path.glob("*/config.toml")):
            raise RunError(f"{path} is a folder of runs: give one, such as {inside[-1].parent}")
        raise RunError(f"{path} is not a complete run: {', '.join(missing)} missing")
