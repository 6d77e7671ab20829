"""A first configuration, commented: for a data set by name, or for tables after a look at their
columns.
"""

from __future__ import annotations

from pathlib import Path

from quorate.starters.agnostic import agnostic_starter
from quorate.starters.inspection import inspect_dataset, inspect_tables
from quorate.starters.private import private_starter
from quorate.starters.robust import robust_starter


def starter(
    *,
    out: Path,
    dataset: str | None = None,
    path: str | None = None,
    client: str | None = None,
    target: str | None = None,
    private: bool = False,
    agnostic: bool = False,
) -> tuple[str, list[str]]:
    """(the text of a configuration to be written to ``out``, what was guessed in words).

    Raises
    ------
    ConfigError : columns that do not exist or cannot be guessed
    ValueError, OSError : a file that cannot be read
    """
    several = agnostic  # classes
    if dataset is not None:
        data = inspect_dataset(dataset, several)
    else:
        assert path is not None
        data = inspect_tables(path, out, client, target, several)
    write = private_starter if private else agnostic_starter if agnostic else robust_starter
    # it stands in comments, which end with their line
    file = "".join(c if c.isprintable() else "?" for c in out.name)
    return write(file, data), [*data.guesses]
