"""What a data set or tables look like: what a first configuration is written from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from quorate.config.config import ConfigError

Column: TypeAlias = NDArray[np.generic]
CLIENTS = (
    *("client", "site", "hospital", "clinic", "center", "centre", "bank", "branch", "region"),
    *("group", "source"),
)
TARGETS = (
    *("target", "label", "outcome", "diagnosis", "class", "y", "sick", "disease", "default"),
    "response",
)
MOST = 50  # classes of a text column
SOMEBODY = "a_client"  # in examples, where no client is known by name
PARTITION = (
    'partition = { by = "dirichlet", clients = 10, alpha = 1.0 }  # whose each row is: "iid",'
    ' "dirichlet", "label"'
)


@dataclass(frozen=True)
class Inspected:
    """What is known of the data.

    Attributes
    ----------
    source : the keys of the configuration's [data]
    classes : the classes of the target, none of a number
    columns : the columns of one table that are neither its target nor its clients
    client : the name of a client for examples
    from_tables : read from the user's tables, and so not public
    guesses : what was guessed, in words
    """

    title: str
    source: str
    classes: Sequence[object]
    columns: Mapping[str, Column]
    client: str = SOMEBODY
    from_tables: bool = False
    guesses: tuple[str, ...] = ()

    def filled(self, template: str, file: str, **more: object) -> str:
        """A template of a configuration, to be written to ``file``, with what is known put in."""
        title = toml_value(self.title)
        return template.format(file=file, title=title, source=self.source, **more)


def inspect_dataset(name: str, several: bool) -> Inspected:
    """A data set by name; without ``several`` only two classes count as classes."""
    from quorate.runs.datasets import dataset

    data = dataset(name)
    first = next(iter(data.tables.values()))
    classes = [] if data.classes is None else data.classes.tolist()
    return Inspected(
        title=name,
        source=toml_line("name", name) + ("" if data.owned else f"\n{PARTITION}"),
        classes=classes if several or data.two_classes else [],
        columns={key: column for key, column in first.items() if key != data.target},
        client=next(iter(data.tables)) if data.owned else SOMEBODY,
    )


def inspect_tables(
    path: str, out: Path, client: str | None, target: str | None, several: bool
) -> Inspected:
    """The user's tables; a column that is not named is guessed. With ``several`` a text of up to 50
    classes is a target, without it one of two.
    """
    from quorate.data import readers, tables

    files, guesses = readers.paths(path), []
    first = readers.read(files[0])
    for name in filter(None, (client, target)):
        tables.has_column(first, name, "given")
    if target is None:
        target = _guess_target(first, client)
        guesses.append(f"target = {target!r} (guessed; give --target to choose)")
    if client is None and len(files) == 1:
        client = _guess_client(first, target)
        guesses.append(f"client = {client!r} (guessed; give --client to choose)")
    by_client = "# one file per client, named by the file"
    lines = [
        toml_line("path", _relative(path, out)),
        by_client if client is None else toml_line("client", client),
        toml_line("target", target),
    ]
    return Inspected(
        title=_title(path),
        source="\n".join(lines),
        classes=_classes([readers.read(file)[target] for file in files], target, several),
        columns={key: column for key, column in first.items() if key not in (target, client)},
        from_tables=True,
        guesses=tuple(guesses),
    )


def _classes(parts: list[Column], target: str, several: bool) -> list[object]:
    """The classes of a target; none where it is a number."""
    y = np.concatenate(parts)
    values = np.unique(y[[value is not None for value in y]])
    text = y.dtype.kind == "O"
    if len(values) == 2 or (several and text and 2 < len(values) <= MOST):
        return values.tolist()
    if text:
        more = "" if several else f", or --agnostic for several (up to {MOST})"
        raise ConfigError(
            f"column {target!r} holds text of {len(values)} kinds: give --target, a column of two"
            f" classes{more}"
        )
    return []


def _relative(path: str, out: Path) -> str:
    """The path as seen from the configuration."""
    if os.path.isabs(path):
        return path
    return os.path.relpath(path, out.parent).replace(os.sep, "/")


def _title(path: str) -> str:
    """A title made of the name of a file, or of the folder of many."""
    return Path(path).name.split(".")[0].strip("*") or Path(path).absolute().parent.name or "run"


def _guess_target(table: Mapping[str, Column], client: str | None) -> str:
    names = [name for name in table if name != client]
    return _named(names, TARGETS) or names[-1]


def _guess_client(table: Mapping[str, Column], target: str) -> str:
    names = [name for name in table if name != target]
    text = [name for name in names if _few_texts(table[name])]
    client = _named(names, CLIENTS) or next(iter(text), None)
    if client is None:
        raise ConfigError(
            "no column looks like the client of each row: give --client. Columns:"
            f" {', '.join(table)}"
        )
    return client


def _few_texts(column: Column) -> bool:
    """Whether a column holds text that repeats, as names of clients do."""
    return column.dtype.kind == "O" and 2 <= len({*column}) <= max(2, len(column) // 5)


def _named(names: Sequence[str], known: Sequence[str]) -> str | None:
    """The column with one of the known names, alone or as a part of its name."""
    parts = {name: name.lower().replace("-", "_").replace(" ", "_").split("_") for name in names}
    alone = [name for word in known for name in names if name.lower() == word]
    inside = [name for word in known for name in names if word in parts[name]]
    return next(iter([*alone, *inside]), None)


# ------------------------------------------------------------------------------------------- TOML


def toml_line(key: str, value: object) -> str:
    """A line of TOML."""
    return f"{key} = {toml_value(value)}"


def toml_value(value: object) -> str:
    """A value as TOML writes it."""
    import tomli_w

    return tomli_w.dumps({"v": value}).removeprefix("v = ").strip()


def toml_key(name: str) -> str:
    """A key as TOML writes it, in quotes where it needs them."""
    import tomli_w

    return tomli_w.dumps({name: 0}).removesuffix(" = 0\n")
