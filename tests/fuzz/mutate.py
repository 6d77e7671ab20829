"""Mutations of bytes and text: damage as disks and editors do it, and values that nobody wrote."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.numpy

Random = np.random.Generator
ODD_TEXT = (
    "",
    " ",
    "\n",
    "nan",
    "inf",
    "-1",
    "1e999",
    "0x10",
    "=1+1",
    "\x00",
    "\x1b[31m",
    "é\u202e",
    "😀" * 3,
    "../../etc/passwd",
    "a" * 5000,
    '"',
    "'",
    ",",
    "[",
    "True",
    "null",
)
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    10**30,
    -(10**30),
    0.5,
    -0.0,
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
    "inf",
    "text",
    "",
    [],
    {},
    [[]],
    {"a": {"b": 1}},
    [1, "a", None],
)


def pick(rng: Random, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


# ---- bytes


def damaged(data: bytes, rng: Random) -> bytes:
    """The bytes after one to three faults of a disk or a transfer."""
    for _ in range(int(rng.integers(1, 4))):
        data = pick(rng, BYTES)(data, rng)
    return data


def _span(data: bytes, rng: Random, longest: int = 64) -> tuple[int, int]:
    start = int(rng.integers(len(data) + 1))
    return start, min(len(data), start + int(rng.integers(1, longest)))


def _flip(data: bytes, rng: Random) -> bytes:
    if not data:
        return b"\xff"
    k = int(rng.integers(len(data)))
    return data[:k] + bytes([data[k] ^ (1 << int(rng.integers(8)))]) + data[k + 1 :]


def _cut(data: bytes, rng: Random) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def _drop(data: bytes, rng: Random) -> bytes:
    start, end = _span(data, rng)
    return data[:start] + data[end:]


def _insert(data: bytes, rng: Random) -> bytes:
    start, _ = _span(data, rng)
    return data[:start] + rng.bytes(int(rng.integers(1, 20))) + data[start:]


def _repeat(data: bytes, rng: Random) -> bytes:
    start, end = _span(data, rng, 400)
    return data[:end] + data[start:end] + data[end:]


def _zero(data: bytes, rng: Random) -> bytes:
    start, end = _span(data, rng)
    return data[:start] + bytes(end - start) + data[end:]


def _swap(data: bytes, rng: Random) -> bytes:
    (a, b), (c, d) = sorted((_span(data, rng), _span(data, rng)))
    if b > c:
        return data
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


BYTES: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flip,
    _flip,
    _cut,
    _drop,
    _insert,
    _repeat,
    _zero,
    _swap,
)


# ---- values of JSON and TOML


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to all parts of a value, itself included."""
    parts: Any = value.items() if isinstance(value, dict) else ()
    parts = enumerate(value) if isinstance(value, list) else parts
    return [path, *(way for key, part in parts for way in places(part, (*path, key)))]


def altered(value: Any, rng: Random) -> Any:
    """The value with a part that is gone, doubled or another one."""
    value = json.loads(json.dumps(value))  # a copy
    way = pick(rng, places(value))
    if not way:
        return pick(rng, ODD)
    owner = value
    for key in way[:-1]:
        owner = owner[key]
    key, kind = way[-1], int(rng.integers(6))
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, list):
        owner.insert(key, owner[key])
    elif kind == 1:
        owner[pick(rng, ODD_TEXT)] = owner.pop(key)
    elif kind == 2 and isinstance(owner[key], int | float) and not isinstance(owner[key], bool):
        owner[key] = owner[key] * float(pick(rng, (1.5, -1, 1e-3, 1e3))) + float(pick(rng, (0, 1)))
    elif kind == 3:
        deep: Any = 1
        for _ in range(int(pick(rng, (3, 60)))):
            deep = [deep]
        owner[key] = deep
    elif kind == 4 and isinstance(owner[key], str):
        owner[key] = pick(rng, ODD_TEXT)
    else:
        owner[key] = pick(rng, ODD)
    return value


def json_text(text: str, rng: Random) -> str:
    """The text of a JSON file, altered as a value or as text."""
    kind = int(rng.integers(12))
    if kind == 0:
        return "[" * 100_000 + text
    if kind == 1:
        return text.replace(":", f": {10**400},", 1)
    if kind == 2:
        return text.replace("{", '{"format": 1, "format": 2,', 1)
    if kind == 3:
        return pick(rng, ODD_TEXT)
    return json.dumps(altered(json.loads(text), rng), indent=1)


def jsonl_text(text: str, rng: Random) -> str:
    """The same of a file with one value a line."""
    rows = text.splitlines()
    if not rows:
        return pick(rng, ODD_TEXT)
    k, kind = int(rng.integers(len(rows))), int(rng.integers(6))
    if kind == 0:
        del rows[k]
    elif kind == 1:
        rows.insert(k, rows[k])
    elif kind == 2:
        rows.reverse()
    else:
        rows[k] = json_text(rows[k], rng).replace("\n", " ")
    return "\n".join(rows) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return "'none'" if value is None else json.dumps(value)


def toml_text(text: str, rng: Random) -> str:
    """The text of a TOML file, altered as a value, by its lines, or as text."""
    kind, rows = int(rng.integers(8)), text.splitlines()
    k = int(rng.integers(max(len(rows), 1)))
    if kind == 0:
        return "\n".join(rows[:k] + rows[k + 1 :])
    if kind == 1:
        return "\n".join([*rows[: k + 1], *rows[k:]])
    if kind == 2 and "=" in rows[k]:
        rows[k] = rows[k].partition("=")[0] + f"= {_toml(pick(rng, ODD))}"
        return "\n".join(rows)
    if kind == 3 and "=" in rows[k]:
        rows[k] = rows[k].partition("=")[0] + f"= {json.dumps(pick(rng, ODD_TEXT))}"
        return "\n".join(rows)
    value = altered(tomllib.loads(text), rng)
    if not isinstance(value, dict):
        return _toml(value)
    return "\n".join(f"{json.dumps(key)} = {_toml(part)}" for key, part in value.items())


# ---- tables


def csv_bytes(data: bytes, rng: Random) -> bytes:
    """A CSV file with odd cells, lines, separators or encodings."""
    text = data.decode()
    rows = [line.split(",") for line in text.splitlines()]
    k, kind = int(rng.integers(len(rows))), int(rng.integers(12))
    j = int(rng.integers(len(rows[k])))
    if kind == 0:
        return damaged(data, rng)
    if kind == 1:
        return text.encode(pick(rng, ("utf-16", "utf-8-sig", "utf-32", "cp037")))
    if kind == 2:
        return text.replace(",", pick(rng, (";", "\t", "|"))).encode()
    if kind == 3:
        return text.replace("\n", pick(rng, ("\r", "\r\n", "\n\n"))).encode()
    if kind == 4:
        del rows[k][j]
    elif kind == 5:
        rows[k].insert(j, pick(rng, ODD_TEXT))
    elif kind == 6:
        rows = rows[:1] if k == 0 else [*rows[:k], rows[0], *rows[k:]]
    elif kind == 7:
        rows = [[*row, row[j]] if j < len(row) else row for row in rows]
    elif kind == 8:
        rows = [[cell for place, cell in enumerate(row) if place != j] for row in rows]
    else:
        rows[k][j] = pick(rng, ODD_TEXT)
    return ("\n".join(map(",".join, rows)) + "\n").encode()


# ---- arrays


def tensors(data: bytes, rng: Random) -> bytes:
    """A safetensors file with another header, other arrays or other metadata."""
    kind = int(rng.integers(8))
    size = int.from_bytes(data[:8], "little")
    if kind == 0:
        return damaged(data, rng)
    if kind == 1:
        return int(pick(rng, (0, 7, size + 1, 2**40, 2**63))).to_bytes(8, "little") + data[8:]
    header = json.loads(data[8 : 8 + size])
    arrays, metadata = dict(safetensors.numpy.load(data)), header.get("__metadata__")
    if kind in (2, 3):
        new = json.dumps(altered(header, rng)).encode()
        return len(new).to_bytes(8, "little") + new + data[8 + size :]
    if kind == 4 and metadata:
        key = pick(rng, sorted(metadata))
        with_json = metadata[key][:1] in ("{", "[")
        metadata[key] = json_text(metadata[key], rng) if with_json else pick(rng, ODD_TEXT)
    elif arrays:
        name = pick(rng, sorted(arrays))
        array = arrays.pop(name)
        if kind == 5:
            arrays[pick(rng, ("w", "x", "weights", name + "2"))] = array
        elif kind == 6:
            shapes = (array.ravel()[:-1], array.ravel()[None], np.append(array.ravel(), 0.0))
            arrays[name] = np.ascontiguousarray(pick(rng, shapes))
        else:
            array = array.astype(pick(rng, (np.float64, np.float32, np.int64)), copy=True)
            if array.size:
                odd = pick(rng, (np.nan, np.inf, 1e30, -1.0, 0.25))
                with np.errstate(invalid="ignore"):
                    array.flat[int(rng.integers(array.size))] = np.asarray(odd).astype(array.dtype)
            arrays[name] = array
    return safetensors.numpy.save(arrays, metadata)


def of_file(name: str, data: bytes, rng: Random) -> bytes:
    """The bytes of a file after a mutation of its kind, or as bytes."""
    if rng.random() < 0.3:
        return damaged(data, rng)
    try:
        if name.endswith(".json") or name.endswith("book"):
            return json_text(data.decode(), rng).encode("utf-8", "surrogatepass")
        if name.endswith(".jsonl") or name.endswith((".bands", ".reached")):
            return jsonl_text(data.decode(), rng).encode()
        if name.endswith(".toml"):
            return toml_text(data.decode(), rng).encode()
        if name.endswith(".safetensors"):
            return tensors(data, rng)
        if name.endswith(".csv"):
            return csv_bytes(data, rng)
    except (ValueError, TypeError, IndexError, AttributeError, RecursionError):
        pass  # what this mutation cannot take apart
    return damaged(data, rng)
