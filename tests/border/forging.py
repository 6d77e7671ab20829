"""Every way to change one thing in the folder of a run, with all digests made anew.

A place is "FILE: KEY.KEY": a key of a JSON file, a column of a history, an array of a safetensors
file or a key of its metadata, a field of a log of events, a key of the configuration. Positions in
lists are left out: of all entries with one place, the last is changed.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.records import leaves, put
from safetensors import safe_open
from safetensors.numpy import load_file

from bonafed.config.config import read_config
from bonafed.engines.run_record import Log
from bonafed.runs.files import files_in, save_arrays, sealed
from bonafed.runs.folder import OWNER

DIGEST = re.compile("[0-9a-f]{32,64}")
Way = tuple[str | int, ...]
Change = Callable[[Path], None]


@dataclass(frozen=True)
class Forgery:
    """One change of a folder; ``name`` says what becomes of the place."""

    place: str
    name: str
    change: Change

    def of(self, run: Path, copy: Path) -> Path:
        """The forged copy of a run, which must not be there yet."""
        shutil.copytree(run, copy)
        self.change(copy)
        seal(copy)
        return copy


def seal(run: Path) -> None:
    """Make all digests and seals of a folder anew."""
    for folder, without in ((run / OWNER, ""), (run, OWNER)):
        file = folder / "result.json"
        if file.is_file():
            result = sealed(folder, json.loads(file.read_text("utf-8")), without)
            file.write_text(json.dumps(result), "utf-8")


def forgeries(run: Path) -> Iterator[Forgery]:
    """All forgeries of a finished run."""
    for name in files_in(run):
        end = name.rpartition(".")[2]
        if name.endswith("result.json"):
            yield from of_json(run, name, ("files", "seal"))
        elif end in OF_KIND:
            yield from OF_KIND[end](run, name)


# ------------------------------------------------------------------------------------------- JSON


def ways(value: Any, way: Way = ()) -> Iterator[tuple[Way, Any]]:
    """The way to every leaf of a JSON value; an empty list or object is a leaf."""
    parts: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        parts = [*value.items()]
    elif isinstance(value, list):
        parts = [*enumerate(value)]
    if not parts:
        yield way, value
    for key, part in parts:
        yield from ways(part, (*way, key))


def folded(way: Way) -> str:
    return ".".join(key for key in way if isinstance(key, str))


def lists(value: Any, way: Way = ()) -> Iterator[Way]:
    """The way to every list with entries."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    if isinstance(value, list) and value:
        yield way
    for key, part in parts:
        if isinstance(part, dict | list):
            yield from lists(part, (*way, key))


def at(value: Any, way: Way) -> Any:
    for key in way:
        value = value[key]
    return value


WORDS = {  # keys that take some words alone
    "active": ("none", "labels", "features", "both"),
    "stop": ("optimal", "max_rounds", "stalled", "unproven"),
    "direction": ("up", "down"),
    "how": ("sum", "max", "each", "parcel"),
    "mechanism": ("gaussian", "laplace"),
    "loss": ("hinge", "logistic"),
    "kind": ("numeric", "categorical"),
    "view": ("answers", "sum"),
}


def others(value: Any, key: str = "") -> Iterator[Any]:
    """What may stand in the place of a value, of the form that its key asks for where that is
    known.
    """
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield value + 1
    elif isinstance(value, float):
        yield value + max(1e-3 * abs(value), 1e-5)
    elif value in ("inf", "-inf"):
        yield 5.0
    elif isinstance(value, str):
        yield from [word for word in WORDS.get(key, ()) if word != value][:2]
        yield f"{int(value[0], 16) ^ 1:x}{value[1:]}" if DIGEST.fullmatch(value) else f"{value}1"
    elif value is None:
        yield from (0.25, "text")
    else:
        yield from (["text"], [0.25], {"text": 0.25})


def of_json(run: Path, name: str, without: tuple[str, ...] = ()) -> Iterator[Forgery]:
    content = json.loads((run / name).read_text("utf-8"))
    for place, what, change in in_json(content, without):
        yield Forgery(f"{name}: {place}", what, _rewritten(name, change))


def in_json(
    content: Any, without: tuple[str, ...] = ()
) -> Iterator[tuple[str, str, Callable[[Any], None]]]:
    """Every change of a JSON value, which is made in place."""
    last = {folded(way): (way, value) for way, value in ways(content) if way[0] not in without}
    for place, (way, value) in last.items():
        for other in others(value, str(way[-1])):
            yield place, f"{value!r:.40} -> {other!r:.40}", _putting(way, other)
    for place, way in {folded(way): way for way in lists(content)}.items():
        yield place, "an entry less", lambda value, way=way: at(value, way).pop()
    for key in content if isinstance(content, dict) else ():
        if key not in without:
            yield key, "no such key", lambda value, key=key: value.pop(key)


def _putting(way: Way, other: Any) -> Callable[[Any], None]:
    def put_there(value: Any) -> None:
        at(value, way[:-1])[way[-1]] = other

    return put_there


def _rewritten(name: str, change: Callable[[Any], None]) -> Change:
    def changed(folder: Path) -> None:
        content = json.loads((folder / name).read_text("utf-8"))
        change(content)
        (folder / name).write_text(json.dumps(content), "utf-8")

    return changed


# ---------------------------------------------------------------------------------------- history


def of_lines(run: Path, name: str) -> Iterator[Forgery]:
    """A column in its first and its last row, and a row less."""
    rows = [json.loads(line) for line in (run / name).read_text("utf-8").splitlines()]
    for k, row in {0: rows[0], len(rows) - 1: rows[-1]}.items() if rows else ():
        for way, value in {folded(way): (way, value) for way, value in ways(row)}.values():
            for other in others(value, str(way[-1])):
                what = f"line {k + 1}: {value!r:.30} -> {other!r:.30}"
                yield Forgery(f"{name}: {folded(way)}", what, _line(name, k, _putting(way, other)))
    if rows:
        yield Forgery(f"{name}: round", "a row less", _line(name, len(rows) - 1, None))


def _line(name: str, k: int, change: Callable[[Any], None] | None) -> Change:
    def changed(folder: Path) -> None:
        rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
        if change is None:
            del rows[k]
        else:
            change(rows[k])
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name).write_text(text, "utf-8")

    return changed


# ----------------------------------------------------------------------------------------- arrays

Tensors = dict[str, np.ndarray]


def of_arrays(run: Path, name: str) -> Iterator[Forgery]:
    arrays, metadata = _tensors(run / name)
    for key, array in arrays.items():
        if array.size:
            yield Forgery(f"{name}: {key}", "its largest number", _arrays(name, _largest(key)))
            yield Forgery(f"{name}: {key}", "all numbers", _arrays(name, _all(key)))
        yield Forgery(f"{name}: {key}", "is missing", _arrays(name, lambda a, m, k=key: a.pop(k)))
    more = _arrays(name, lambda a, m: a.update(more=np.ones(2)))
    yield Forgery(f"{name}: more", "an array more", more)
    more = _arrays(name, lambda a, m: m.update(more="text"))
    yield Forgery(f"{name}: more", "metadata more", more)
    for key, text in metadata.items():
        for place, what, change in in_json(json.loads(text)):
            yield Forgery(f"{name}: {key}.{place}", what, _arrays(name, _described(key, change)))


def _tensors(file: Path) -> tuple[Tensors, dict[str, str]]:
    with safe_open(file, "numpy") as opened:
        return load_file(file), opened.metadata() or {}


def _arrays(name: str, change: Callable[[Tensors, dict[str, str]], object]) -> Change:
    def changed(folder: Path) -> None:
        arrays, metadata = _tensors(folder / name)
        change(arrays, metadata)
        save_arrays(folder / name, arrays, metadata or None)

    return changed


def _largest(key: str) -> Callable[[Tensors, dict[str, str]], None]:
    def change(arrays: Tensors, metadata: dict[str, str]) -> None:
        flat = arrays[key].reshape(-1)
        k = int(np.abs(flat).argmax())
        flat[k] += max(1e-2 * abs(flat[k]), 1e-3)

    return change


def _all(key: str) -> Callable[[Tensors, dict[str, str]], None]:
    def change(arrays: Tensors, metadata: dict[str, str]) -> None:
        arrays[key] = arrays[key] * 1.01 + 1e-3

    return change


def _described(
    key: str, change: Callable[[Any], None]
) -> Callable[[Tensors, dict[str, str]], None]:
    def changed(arrays: Tensors, metadata: dict[str, str]) -> None:
        content = json.loads(metadata[key])
        change(content)
        metadata[key] = json.dumps(content)

    return changed


# ------------------------------------------------------------------------ events and configuration


def of_events(run: Path, name: str) -> Iterator[Forgery]:
    log = Log.load(run / name)
    for way, value in leaves(log):
        for k, other in enumerate(_other_entries(value)):
            changed = put(log, way, other)
            yield Forgery(f"{name}: {way[0]}", f"{k}", lambda f, c=changed: c.save(f / name))


def _other_entries(value: Any) -> Iterator[Any]:
    if isinstance(value, np.ndarray) and value.size:
        for k in (0, value.size // 2):
            other = value.copy()
            other[k] = other[k] * 1.001 if value.dtype.kind == "f" else other[k] + 1
            yield other
    elif not isinstance(value, np.ndarray):
        yield from (other for other in others(value) if value is not None)


def of_toml(run: Path, name: str) -> Iterator[Forgery]:
    """A number, a truth or a word of the configuration; those that no configuration has are left
    out.
    """
    text = (run / name).read_text("utf-8")
    table, at_line = "", 0
    for line in text.splitlines(keepends=True):
        if head := re.match(r"\[+([\w.]+)\]+", line):
            table = f"{head[1]}."
        key = re.match(r"(\w+) = ", line)
        for found in re.finditer(r'"[^"]*"|\b(true|false)\b|-?\d[\d.e+-]*', line) if key else ():
            if key is not None and found.start() >= key.end():
                start, end = at_line + found.start(), at_line + found.end()
                again = f"{text[:start]}{_other_literal(found[0])}{text[end:]}"
                change = _rephrased(name, again)
                yield Forgery(f"{name}: {table}{key[1]}", f"{found[0]} changed", change)
        at_line += len(line)


def _other_literal(text: str) -> str:
    if text in ("true", "false"):
        return "false" if text == "true" else "true"
    if text.startswith('"'):
        return f'{text[:-1]}x"'
    return str(int(text) + 1) if re.fullmatch(r"-?\d+", text) else repr(float(text) * 1.01 + 0.001)


def _rephrased(name: str, text: str) -> Change:
    def changed(folder: Path) -> None:
        (folder / name).write_text(text, "utf-8")
        again = read_config(folder / name).text()  # as a run writes it
        (folder / name).write_text(again, "utf-8")

    return changed


OF_KIND: dict[str, Callable[[Path, str], Iterator[Forgery]]] = {
    "json": of_json,
    "jsonl": of_lines,
    "safetensors": of_arrays,
    "bft": of_events,
    "toml": of_toml,
}
