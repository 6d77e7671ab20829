"""A first configuration, commented: for a data set by name, or for tables after a look at their
columns.

That of a private run names columns, and nothing that was read off their values; of a data set by
name, which is public, also what the columns hold.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np

from bonafed.config.config import ConfigError, parse_config
from bonafed.config.toml_file import toml_key, toml_line, toml_value
from bonafed.runs.splits import prepare
from bonafed.solution.thresholds import residual_scale
from bonafed.starters import proposals
from bonafed.starters.look import Asked, look

SOFTMAX = "a softmax model, which has no Wasserstein balls"
SOMEBODY = "a_client"  # in examples, where no client is known by name
TEXTS = tomllib.loads(Path(__file__).with_name("templates.toml").read_text("utf-8"))


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

    Raises
    ------
    ConfigError : columns that do not exist, and all that cannot be guessed safely
    ValueError, OSError : a file that cannot be read
    """
    if dataset is not None:
        data = inspect_dataset(dataset, agnostic)
    else:
        assert path is not None
        data = inspect_tables(path, out, asked or Asked(), private)
    classes, about = data.classes, [*data.about]
    several, kind = len(classes) > 2, min(len(classes), 3) - 1 if classes else 0
    if several and not private and not agnostic:
        about.append(f"{len(classes)} classes: {SOFTMAX}")
    known = {
        # it stands in comments, which end with their line
        "file": "".join(c if c.isprintable() else "?" for c in out.name),
        "title": toml_value(data.title),
        "source": "".join(f"# {line}\n" for line in about) + data.source,
    }
    if private:
        columns = (f"{toml_key(name)} = {how}" for name, how in data.columns.items())
        known |= {"columns": "\n".join(columns), "model": '\nmodel = "softmax"' * several}
        known |= {"rehearsal": "# " * (dataset is None) + TEXTS["public"]}
        return _filled("private", known, loss=TEXTS["private_losses"][kind]), about
    if agnostic or several:
        # if nobody asked for the worst client weights, they are near the sizes, without a clock
        clients, option, tol = f"{TEXTS['clients']}\n{TEXTS['in_process']}", "", "1e-6"
        if agnostic:
            clients = _filled("worst", {}, client=toml_key(data.client))
            option, tol = " --agnostic", "1e-3"
        known |= {"loss": TEXTS["agnostic_losses"][kind], "model": TEXTS["models"][several]}
        return _filled("agnostic", known, clients=clients, option=option, tol=tol), about
    known |= {"clients": TEXTS["clients"], "loss": TEXTS["robust_losses"][not classes]}
    known |= {"label": toml_value(classes[-1] if classes else "a class")}
    cost = "of flipping a label" if classes else "of moving the target by one unit"
    text = _filled("robust", known, label_cost_means=cost)
    if not classes:  # the loss is in units of the target
        train = prepare(parse_config(text, folder=out.parent)).train
        threshold = f"threshold = {1.35 * residual_scale(train):.3g}"
        why = "1.35 times the spread of the residuals of a ridge regression"
        text = re.sub(r"(?m)^(loss = .*)$", rf"\1\n{threshold}  # {why}", text, count=1)
    return text, about


def _filled(name: str, known: Mapping[str, str], **more: str) -> str:
    """A text of ``templates.toml`` with its values."""
    return Template(TEXTS[name]).substitute(known, **more)


@dataclass(frozen=True)
class Inspected:
    """What is known of the data.

    Attributes
    ----------
    source : the keys of the configuration's [data]
    classes : the classes of the target, none of a number
    columns : of the features, how a private run is to declare them
    client : the name of a client for examples
    about : what was seen and is proposed, in lines
    """

    title: str
    source: str
    classes: Sequence[object]
    columns: Mapping[str, str]
    client: str = SOMEBODY
    about: Sequence[str] = ()


def inspect_dataset(name: str, several: bool) -> Inspected:
    """A data set by name; without ``several`` only two classes count as classes."""
    from bonafed.runs.splits import dataset

    data = dataset(name)
    first = next(iter(data.tables.values()))
    classes = [] if data.classes is None else data.classes.tolist()
    return Inspected(
        title=name,
        source=toml_line("name", name) + f"\n{TEXTS['partition']}" * (not data.owned),
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
    lines = proposals.lines_of(seen, private)
    if not proposals.used(seen):
        text = "\n".join(proposals.drawn(lines))
        raise ConfigError(f"no column is left for the features:\n{text}")
    where = path  # as seen from the configuration
    if not os.path.isabs(path):
        where = os.path.relpath(path, out.parent).replace(os.sep, "/")
    keys = proposals.private_keys(seen) if private else proposals.data_keys(seen)
    # the name of a file, or of the folder of many
    title = Path(path).name.split(".")[0].strip("*") or Path(path).absolute().parent.name or "run"
    return Inspected(
        title=title,
        source=f"{toml_line('path', where)}\n{keys}",
        classes=seen.values_of_classes,
        columns=proposals.declared(seen),
        about=[*proposals.summary(seen, private), *proposals.drawn(lines, 78)],
    )
