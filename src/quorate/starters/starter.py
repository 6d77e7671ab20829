"""A first configuration, commented: for a data set by name, or for tables after a look at their
columns.
"""

from __future__ import annotations

from pathlib import Path

from quorate.starters.agnostic import agnostic_starter
from quorate.starters.inspection import inspect_dataset, inspect_tables
from quorate.starters.look import Asked
from quorate.starters.private import private_starter
from quorate.starters.robust import robust_starter

SOFTMAX = "a softmax model for the worst client weights"


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
    shown = [*data.shown]
    if len(data.classes) > 2 and not private and not agnostic:
        agnostic = True
        shown.append(f"{len(data.classes)} classes: {SOFTMAX} (--agnostic)")
    write = private_starter if private else agnostic_starter if agnostic else robust_starter
    # it stands in comments, which end with their line
    file = "".join(c if c.isprintable() else "?" for c in out.name)
    return write(file, data), shown
