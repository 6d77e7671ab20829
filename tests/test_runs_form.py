"""The form of a run's folder: whatever stands in its files, reading it ends well or in one line."""

import contextlib
import io
import json
import shutil
import struct
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_run
import tomli_w
from test_runs_agnostic import NETWORK, three
from test_runs_constrained import IMPOSSIBLE, WARDS
from test_runs_private import CURVED

from bonafed import cli
from bonafed.config.toml_file import ConfigError
from bonafed.runs.files import RunError, seal

PATH = small_run.CONFIG + small_run.sweep("robust.radius", 0.0, 0.05)
CLOCK = small_run.CLOCK.replace("tol = 1e-2", "tol = 0.1\nmax_rounds = 30")
KINDS: dict[str, tuple[str, str | None]] = {
    "robust": (small_run.CONFIG, None),
    "path": (PATH, None),
    "rank": (small_run.TOGETHER, None),
    "constrained": (small_run.KEPT, WARDS),
    "infeasible": (IMPOSSIBLE, WARDS),
    "clock": (CLOCK, None),
    "network": (
        NETWORK.replace("max_rounds = 2000", "max_rounds = 20"),
        three(small_run.table(rows=30)),
    ),
    "private": (CURVED, None),
}
ODD = (None, "x", -1, 0.5, 1e300, [], {}, True, "\ud800", "inf", {"x": [{"y": 1}]}, 2**70, "../x")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished run of every kind; its data lie two folders above."""
    finished = {}
    for kind, (text, data) in KINDS.items():
        make = small_run.private_run if kind == "private" else small_run.small_run
        finished[kind] = make(tmp_path_factory.mktemp(kind), data=data, text=text).path
    return finished


# ------------------------------------------------------------------------------- changed in one key


Place = tuple[Any, ...]


def places(value: object, place: Place = ()) -> Iterator[Place]:
    """The paths to every key and entry."""
    keys = (
        [*value]
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    for key in keys:
        yield (*place, key)
        yield from places(value[key], (*place, key))  # type: ignore[index]


def changed(value: Any, place: Place, rng: np.random.Generator) -> None:
    """Take a key away, add one beside it, or replace its value."""
    for key in place[:-1]:
        value = value[key]
    how = rng.integers(len(ODD) + 3)
    if how < len(ODD):
        value[place[-1]] = ODD[how]
    elif isinstance(value, list) or how == len(ODD):
        del value[place[-1]]
    elif how == len(ODD) + 1:
        value["unknown"] = value[place[-1]]
    else:
        value[place[-1]] = [value[place[-1]]] * 2


def with_change(file: Path, rng: np.random.Generator) -> bytes:
    """The file with one change in the object that it holds, or in one of them."""
    if file.suffix == ".safetensors":
        data = file.read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        head = json.loads(data[8 : 8 + size])
        model = json.loads(head["__metadata__"]["bonafed"])
        changed(model, _drawn(model, rng), rng)
        head["__metadata__"]["bonafed"] = json.dumps(model)
        text = json.dumps(head).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + size :]
    if file.suffix == ".toml":
        config = tomllib.loads(file.read_text("utf-8"))
        changed(config, _drawn(config, rng), rng)
        try:
            return tomli_w.dumps(config).encode()
        except (TypeError, UnicodeEncodeError):  # what TOML cannot hold
            return b"title = "
    lines = [file.read_text("utf-8")]
    if file.suffix == ".jsonl":
        lines = lines[0].splitlines()
    k = int(rng.integers(len(lines)))
    record = json.loads(lines[k])
    changed(record, _drawn(record, rng), rng)
    if "seal" in record and rng.random() < 0.5:
        record["seal"] = seal(record)
    lines[k] = json.dumps(record)
    return "\n".join(lines).encode()


def _drawn(record: object, rng: np.random.Generator) -> Place:
    """A place, such that keys of the first levels are not rare beside the entries of long lists."""
    every = [*places(record)]
    depth = min(int(rng.integers(1, 8)), max(map(len, every)))
    some = [place for place in every if len(place) == depth]
    return some[int(rng.integers(len(some)))]


def commands(path: Path, out: Path, html: bool) -> list[Callable[[], object]]:
    """What reads a run, as the command line calls it."""
    table = path.parent.parent / "clinics.csv"
    page = [lambda: cli.report(path, "html", out / "page.html", force=True)] * html
    return [
        lambda: cli.report(path, "md", out / "page.md", force=True),
        lambda: cli.report(path, "json", out / "page.json", force=True),
        lambda: cli.compare([path, path]),
        lambda: cli.predict(path, table, out / "scores.csv", force=True),
        *page,
    ]


def ends_well(path: Path, out: Path, html: bool) -> int:
    """How many commands refuse the run; all others end well."""
    refused: list[ValueError] = []
    for command in commands(path, out, html):
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                command()
        except (RunError, ConfigError) as error:
            refused.append(error)
    lines = [line for error in refused for line in str(error).splitlines()]
    assert all(map(str.isprintable, lines)), refused
    assert len(lines) == len(refused) or type(refused[0]) is ConfigError  # a line for each problem
    return len(refused)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_key_holds_a_run_is_read_or_refused_in_one_line(
    runs: dict[str, Path], kind: str, tmp_path: Path
) -> None:
    shutil.copytree(runs[kind].parent.parent, tmp_path / "all")
    path, rng = (
        tmp_path / "all" / "runs" / runs[kind].name,
        np.random.default_rng([*map(ord, kind)]),
    )
    files = [f for f in sorted(path.rglob("*")) if f.suffix in (".json", ".jsonl")]
    files += [path / "config.toml", path / "model.safetensors"]
    refused = 0
    for k in range(ROUNDS):
        file = files[k % len(files)]
        before = file.read_bytes()
        file.write_bytes(with_change(file, rng))
        refused += ends_well(path, tmp_path, html=k == 0) > 0
        file.write_bytes(before)
    assert refused > ROUNDS / 2  # and most changes are found
    assert ends_well(path, tmp_path, html=False) == 0


ROUNDS = 14
