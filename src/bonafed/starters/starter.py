"""A first configuration, commented: for a data set by name, or for tables after a look at their
columns. Its text is that of a template, filled with what is known of the data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bonafed.config.config import ConfigError, parse_config
from bonafed.config.toml_file import toml_key, toml_line, toml_value
from bonafed.runs.splits import dataset as load_dataset
from bonafed.runs.splits import prepare
from bonafed.solution.thresholds import residual_scale
from bonafed.starters import proposals
from bonafed.starters.look import Asked, look

SOFTMAX = "a softmax model, which has no Wasserstein balls"
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


def starter(
    *,
    out: Path,
    dataset: str | None = None,
    path: str | None = None,
    asked: Asked | None = None,
    private: bool = False,
    agnostic: bool = False,
) -> tuple[str, list[str]]:
    """(the text of a configuration to be written to ``out``, what was seen and proposed in lines).

    A private one names columns, and nothing that was read off their values. An agnostic one is of a
    model for the worst client weights, trained on a simulated clock; without being asked for, it is
    that of several classes, with weights near the sizes and no clock.

    Raises
    ------
    ConfigError : columns that do not exist, and all that cannot be guessed safely
    ValueError, OSError : a file that cannot be read
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    if dataset is not None:
        data = _of_dataset(dataset, agnostic)
    else:
        assert path is not None
        data = _of_tables(path, out, asked or Asked(), private)
    classes, kind = data.classes, "private" if private else "agnostic" if agnostic else "robust"
    if kind == "robust" and len(classes) > 2:
        kind = "agnostic"
        data = replace(data, shown=(*data.shown, f"{len(classes)} classes: {SOFTMAX}"))
    environment = Environment(
        loader=PackageLoader("bonafed.starters", "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    text = environment.get_template(f"{kind}.toml.jinja").render(
        # it stands in comments, which end with their line
        file="".join(c if c.isprintable() else "?" for c in out.name),
        title=toml_value(data.title),
        source="".join(f"# {line}\n" for line in data.shown) + data.source,
        classes=classes,
        label=toml_value(classes[-1] if classes else "a class"),
        columns=[f"{toml_key(name)} = {how}" for name, how in data.columns.items()],
        client=toml_key(data.client),
        asked=agnostic,
        from_tables=data.from_tables,
    )
    if kind == "robust" and not classes:  # the loss is in units of the target
        train = prepare(parse_config(text, folder=out.parent)).train
        threshold = f"threshold = {1.35 * residual_scale(train):.3g}"
        why = "1.35 times the spread of the residuals of a ridge regression"
        text = re.sub(r"(?m)^(loss = .*)$", rf"\1\n{threshold}  # {why}", text, count=1)
    return text, [*data.shown]


def _of_dataset(name: str, several: bool) -> Inspected:
    """A data set by name; without ``several`` only two classes count as classes."""
    data = load_dataset(name)
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


def _of_tables(path: str, out: Path, asked: Asked, private: bool) -> Inspected:
    """The user's tables; what is not asked for is guessed where that is safe.

    Raises
    ------
    ConfigError : what cannot be guessed safely, all at once, with the options to give
    """
    seen = look(path, asked)
    if problems := seen.problems(private):
        raise ConfigError("\n".join(problems))
    rows = proposals.lines_of(seen, private)
    if not proposals.used(seen):
        shown = "\n".join(proposals.drawn(rows))
        raise ConfigError(f"no column is left for the features:\n{shown}")
    there = path  # as seen from the configuration
    if not os.path.isabs(path):
        there = os.path.relpath(path, out.parent).replace(os.sep, "/")
    keys = proposals.private_keys(seen) if private else proposals.data_keys(seen)
    of_many = Path(path).absolute().parent.name or "run"
    return Inspected(
        title=Path(path).name.split(".")[0].strip("*") or of_many,
        source=f"{toml_line('path', there)}\n{keys}",
        classes=seen.values_of_classes,
        columns=proposals.declared(seen),
        from_tables=True,
        shown=(*proposals.summary(seen, private), *proposals.drawn(rows, 78)),
    )
