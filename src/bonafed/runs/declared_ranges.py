"""How many rows of a private run lie outside of what is declared, told to their owner only.

A row outside is trained on as it is. Many of them say that a declared range is a slip, which would
waste the budget: so the owner hears of them before anything is spent, in the terminal and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.runs.splits import HELD_OUT, Parts, prepare

OWNER = "to you only, the owner of the rows:"


def told_before(config: Config) -> list[str]:
    """What a dry run tells the owner, where the rows are here and can be read."""
    if config.privacy is None or config.data.path is None:
        return []
    try:
        return told(config, prepare(config))
    except OSError:
        return [f"{OWNER} the rows are not here, so nothing is known of the declared ranges"]
    except ValueError as error:
        return [f"{OWNER} the rows cannot be read yet: {line}" for line in str(error).split("\n")]


def told(config: Config, parts: Parts) -> list[str]:
    """How many rows to train and to judge on lie outside of each declared range."""
    if config.privacy is None or config.data.path is None:
        return []
    ranges = {name: c for name, c in (config.data.columns or {}).items() if "min" in c}
    held = [parts.tests[HELD_OUT]] if HELD_OUT in parts.tests else []
    feds = [parts.owners, *held]
    n = int(sum(fed.sizes.sum() for fed in feds))
    lines = []
    for name, how in ranges.items():
        # the first feature of a column is x' = (x - min) / (max - min)
        if count := _outside(feds, parts.owners.feature_names.index(name)):
            lines.append(
                f"{OWNER} {count} of {n} rows have {name!r} outside of {how['min']:g} to"
                f" {how['max']:g}; if that is a slip, correct the range before you spend"
            )
    if ranges and not lines:
        lines.append(f"{OWNER} all {n} rows lie within the declared ranges")
    return lines


def _outside(feds: Iterable[Federation], feature: int) -> int:
    """The rows with a feature outside of 0 to 1; what rounding adds is not."""
    columns = (x[:, feature] for fed in feds for x in fed.X)
    return sum(int(np.count_nonzero((c < -1e-9) | (c > 1 + 1e-9))) for c in columns)
