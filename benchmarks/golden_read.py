"""What a case left, as values that have to be equal and words that may differ, by key path.

A key path is the file, a colon, and keys and places divided by slashes, such as
``result.json:clients/0/loss``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

DIGEST = re.compile(r"[0-9a-f]{32,}")
INFINITE = ("inf", "-inf")
TIMES = re.compile(
    r"\d+\.\d s$", re.MULTILINE
)  # seconds since the start, at the end of a line of progress
DATE = re.compile(r"20\d\d-\d\d-\d\d")
STATES = ("ok", "FAILED", "not checked")


@dataclass
class Found:
    """Numbers, tensors, digests and states by key path; words by key path; files of the folder."""

    values: dict[str, Any] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)

    def put(self, path: str, value: Any) -> None:
        """Keep a leaf: a text is words unless it is a digest or an infinity."""
        if not isinstance(value, str):
            self.values[path] = value
        elif value in INFINITE:
            self.values[path] = math.inf if value == "inf" else -math.inf
        elif DIGEST.fullmatch(value):
            self.values[path] = value
        else:
            self.words[path] = DATE.sub("DATE", value)

    def walk(self, path: str, value: Any) -> None:
        """Keep a nested value; how many entries a list has is a value of its own."""
        for where, leaf in leaves(path, value):
            self.put(where, leaf)


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Every leaf of a nested value with its key path."""
    join = "" if path.endswith(":") else "/"
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(f"{path}{join}{key}", inner)
    elif isinstance(value, list):
        yield f"{path}{join}length", len(value)
        for place, inner in enumerate(value):
            yield from leaves(f"{path}{join}{place}", inner)
    else:
        yield path, value


def read(case: Path) -> Found:
    """All that a case left: the run's folder or `init`'s configurations, and what was printed."""
    found = Found()
    runs = sorted(case.glob("runs/20*"))
    found.values["runs:count"] = len(runs)
    for run in runs:
        for file in sorted(f for f in run.rglob("*") if f.is_file()):
            _file(found, file.relative_to(run).as_posix(), file)
    if not runs:
        for file in sorted(case.glob("*.toml")):
            _file(found, file.name, file)
    for file in sorted((case / "said").iterdir()):
        _printed(found, f"said {file.name}", file)
    return found


def _file(found: Found, name: str, file: Path) -> None:
    found.files.add(name)
    if file.suffix == ".safetensors":
        _tensors(found, name, file)
    elif file.suffix == ".bft":  # the log of a simulated clock: virtual times alone
        found.values[f"{name}:digest"] = hashlib.sha256(file.read_bytes()).hexdigest()
    elif file.suffix == ".json":
        found.walk(f"{name}:", json.loads(file.read_text("utf-8")))
    elif file.suffix == ".jsonl":
        rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        found.walk(f"{name}:", rows)
    elif file.suffix == ".toml":
        found.walk(f"{name}:", tomllib.loads(file.read_text("utf-8")))
        found.words[f"{name}:text"] = file.read_text("utf-8")
    else:
        found.words[f"{name}:text"] = DATE.sub("DATE", file.read_text("utf-8"))


def _tensors(found: Found, name: str, file: Path) -> None:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as opened:
        for key in opened.keys():  # noqa: SIM118
            found.values[f"{name}:{key}"] = np.asarray(opened.get_tensor(key))
        for key, text in (opened.metadata() or {}).items():
            found.walk(f"{name}:metadata {key}/", json.loads(text))


def _printed(found: Found, name: str, file: Path) -> None:
    text = file.read_text("utf-8")
    if file.name == "done.json":
        found.walk("status:", json.loads(text)["status"])
    elif file.suffix == ".json" and text:
        found.walk(f"{name}:", json.loads(text))
    elif file.suffix == ".csv":
        _cells(found, name, text)
    else:
        found.words[f"{name}:text"] = TIMES.sub("# s", text)
    if file.name == "verify.txt":
        states = [
            state for line in text.splitlines() for state in STATES if line.startswith(f"{state} ")
        ]
        found.values |= {f"{name}:state {place}": state for place, state in enumerate(states)}


def _cells(found: Found, name: str, text: str) -> None:
    """Predictions: every cell is a value, classes too."""
    head, *rows = list(csv.reader(text.splitlines())) or [[]]
    found.values[f"{name}:rows"] = len(rows)
    for place, row in enumerate(rows):
        for column, cell in zip(head, row, strict=True):
            try:
                found.values[f"{name}:{column}/{place}"] = float(cell)
            except ValueError:
                found.values[f"{name}:{column}/{place}"] = cell
