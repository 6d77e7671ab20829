"""A first configuration, commented: for a data set by name, or for tables after a look at their
columns.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bonafed.config.config import parse_config
from bonafed.runs.splits import prepare
from bonafed.solution.thresholds import residual_scale
from bonafed.starters.agnostic import agnostic_starter
from bonafed.starters.inspection import inspect_dataset, inspect_tables
from bonafed.starters.look import Asked
from bonafed.starters.private import private_starter
from bonafed.starters.robust import robust_starter

ROBUST = '\nloss = "huber"'  # its threshold is in units of the target
SOFTMAX = "a softmax model, which has no Wasserstein balls"


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
    several = len(data.classes) > 2 and not private and not agnostic
    if several:
        why = f"{len(data.classes)} classes: {SOFTMAX}"
        data = replace(data, shown=(*data.shown, why), about=(*data.about, why))
    # it stands in comments, which end with their line
    file = "".join(c if c.isprintable() else "?" for c in out.name)
    if private:
        text = private_starter(file, data)
    elif agnostic or several:
        text = agnostic_starter(file, data, asked=agnostic)
    else:
        text = robust_starter(file, data)
    return _in_units(text, out.parent) if ROBUST in text and not private else text, [*data.shown]


def _in_units(text: str, folder: Path) -> str:
    """The configuration of a target of numbers, with the loss in units of the target."""
    train = prepare(parse_config(text, folder=folder)).train
    threshold = f"threshold = {1.35 * residual_scale(train):.3g}"
    why = "1.35 times the spread of the residuals of a ridge regression"
    return re.sub(r"(?m)^(loss = .*)$", rf"\1\n{threshold}  # {why}", text, count=1)
