"""What a data set or tables look like: what a first configuration is written from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bonafed.config.config import ConfigError
from bonafed.config.toml import toml_line, toml_value
from bonafed.starters.look import Asked, look
from bonafed.starters.proposals import (
    data_keys,
    declared,
    drawn,
    lines_of,
    private_keys,
    summary,
    used,
)

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
    columns : of the features, how a private run is to declare them
    client : the name of a client for examples
    from_tables : read from the user's tables, and so not public
    shown : what was seen and is proposed, in lines
    """

    title: str
    source: str
    classes: Sequence[object]
    columns: Mapping[str, str]
    client: str = SOMEBODY
    from_tables: bool = False
    shown: tuple[str, ...] = ()
    about: tuple[str, ...] = field(default=())

    def filled(self, template: str, file: str, **more: object) -> str:
        """A template of a configuration, to be written to ``file``, with what is known put in."""
        title = toml_value(self.title)
        about = "".join(f"# {line}\n" for line in self.about)
        return template.format(file=file, title=title, source=about + self.source, **more)


def inspect_dataset(name: str, several: bool) -> Inspected:
    """A data set by name; without ``several`` only two classes count as classes."""
    from bonafed.runs.datasets import dataset

    data = dataset(name)
    first = next(iter(data.tables.values()))
    classes = [] if data.classes is None else data.classes.tolist()
    return Inspected(
        title=name,
        source=toml_line("name", name) + ("" if data.owned else f"\n{PARTITION}"),
        classes=classes if several or data.two_classes else [],
        columns={
            key: _of_public([table[key] for table in data.tables.values()])
            for key in first
            if key != data.target
        },
        client=next(iter(data.tables)) if data.owned else SOMEBODY,
    )


def _of_public(parts: Sequence[np.ndarray]) -> str:
    """What a private run declares of a column that everybody may see: what it holds."""
    if any(part.dtype.kind == "O" for part in parts):
        found = {str(cell) for part in parts for cell in part.tolist() if cell is not None}
        return f"{{ categories = {toml_value(sorted(found))} }}"
    numbers = np.concatenate(parts).astype(np.float64)
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    return f"{{ min = {low!r}, max = {max(high, np.nextafter(low, np.inf))!r} }}"


def inspect_tables(path: str, out: Path, asked: Asked, private: bool) -> Inspected:
    """The user's tables; what is not asked for is guessed where that is safe.

    Raises
    ------
    ConfigError : what cannot be guessed safely, all at once, with the options to give
    """
    seen = look(path, asked)
    if problems := seen.problems(private):
        raise ConfigError("\n".join(problems))
    if not used(seen):
        lines = drawn(lines_of(seen, private))
        raise ConfigError("no column is left for the features:\n" + "\n".join(lines))
    lines = drawn(lines_of(seen, private), 78)
    about = [*summary(seen, private), *lines]
    keys = private_keys(seen) if private else data_keys(seen)
    return Inspected(
        title=_title(path),
        source=f"{toml_line('path', _relative(path, out))}\n{keys}",
        classes=seen.values_of_classes,
        columns=declared(seen),
        from_tables=True,
        shown=tuple(about),
        about=tuple(about),
    )


def _relative(path: str, out: Path) -> str:
    """The path as seen from the configuration."""
    if os.path.isabs(path):
        return path
    return os.path.relpath(path, out.parent).replace(os.sep, "/")


def _title(path: str) -> str:
    """A title made of the name of a file, or of the folder of many."""
    return Path(path).name.split(".")[0].strip("*") or Path(path).absolute().parent.name or "run"
