"""What a site holds: rows, columns and category levels of its table, counted at the site.

Nothing of this leaves the site by itself. The counts are what its policy is held against.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from bonafed.config.toml_file import near
from bonafed.data.readers import read
from bonafed.data.tables import Table, has_column
from bonafed.data.validation import missing
from bonafed.sites.policy import LevelCount, Policy, Proposal, When, rows_in_words
from bonafed.sites.site_file import SiteFile
from bonafed.text import shown

MISSING = "missing cells"  # a level like others: a model may have a feature for them


@dataclass(frozen=True)
class Column:
    """A column of a site's table; ``levels`` counts the rows of every level, None of numbers."""

    name: str
    levels: Counter[str] | None

    def words(self) -> str:
        """Such as "sex: 2 levels, the smallest of 97 rows"."""
        if self.levels is None:
            return f"{shown(self.name)}: numbers"
        n = len(self.levels)
        least = min(self.levels.values(), default=0)
        several = "s" * (n != 1)
        return f"{shown(self.name)}: {n} level{several}, the smallest of {rows_in_words(least)}"


@dataclass(frozen=True)
class Holdings:
    """What a site's table holds."""

    rows: int
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


def read_rows(site: SiteFile) -> Table:
    """The table of a site, as its file says how to read it.

    Raises
    ------
    ValueError, OSError : the file is not there, or is not a readable table
    """
    return read(site.rows, site.data.categorical, site.data.reading)


def holdings(table: Table, categorical: Collection[str] = ()) -> Holdings:
    """Rows, columns and levels of a table; columns in ``categorical`` hold codes."""
    rows = len(next(iter(table.values()), ()))
    columns = (Column(name, _levels(cells, name in categorical)) for name, cells in table.items())
    return Holdings(rows, tuple(columns))


def level_counts(
    table: Table, columns: Iterable[str], categorical: Collection[str] = (), show: bool = False
) -> tuple[LevelCount, ...]:
    """The smallest level of each of these columns that has levels, for a `Proposal`.

    ``show``: with the name of the level, which is a value that rows hold.
    """
    counted = []
    for name in columns:
        has_column(table, name, "a column of the run")
        if levels := _levels(table[name], name in categorical):
            level, rows = min(levels.items(), key=lambda item: (item[1], item[0]))
            counted.append(LevelCount(name, rows, level if show else None))
    return tuple(counted)


def _levels(cells: NDArray[Any], coded: bool) -> Counter[str] | None:
    """The rows of every level of a column of text, of truths, of codes, or of two numbers; None of
    other numbers.
    """
    values = cells.tolist()
    absent = [missing(value) for value in values]
    present = [value for value, none in zip(values, absent, strict=True) if not none]
    numbers = cells.dtype.kind in "iuf"
    if numbers and not coded and len({*present}) != 2:  # 0 and 1 are as "no" and "yes"
        return None
    levels = Counter(map(str, present))
    if any(absent):
        levels[MISSING] += sum(absent)
    return levels


def broken(site: SiteFile, table: Table) -> list[str]:
    """Where the rows of a site break its own policy, or its file is about columns that they have
    not; a sentence for each.
    """
    policy, held = site.policy, holdings(table, site.data.categorical)
    faults = [*_absent(site, held.names)]
    used = [name for name in held.names if _is_usable(name, policy)]
    if not used:
        faults.append("allowed_columns: no column of the table may be used: name some")
    levels = level_counts(table, used, site.data.categorical, policy.show_levels)
    facts = Proposal(columns=used, rows=held.rows, levels=levels, held_out=0)
    # all else is about a run, and none is asked for
    faults += [refusal.text for refusal in policy.refusals(facts, (When.ROWS,))]
    return [*faults, *site.exposed()]


def _absent(site: SiteFile, names: Collection[str]) -> Iterator[str]:
    """Columns that a site.toml names and the table has not."""
    policy = site.policy
    stated = {
        "data.categorical": site.data.categorical,
        "allowed_columns": policy.allowed_columns or [],
        "disallowed_columns": policy.disallowed_columns or [],
        "constraint": [one.get("column") for one in policy.constraint if one.get("column")],
    }
    for key, columns in stated.items():
        for name in columns:
            if name not in names:
                hint = near(name, [*names], " Did you mean {!r}?")
                yield f"{key}: the table has no column {shown(name)}.{hint}"


def _is_usable(name: str, policy: Policy) -> bool:
    """Whether a run may use a column."""
    allowed = policy.allowed_columns is None or name in policy.allowed_columns
    return allowed and name not in (policy.disallowed_columns or ())


def largest_model(site: SiteFile, rows: int) -> int:
    """The most parameters that a model of these rows may have, as far as numbers reach."""
    return int(min(site.policy.maximum_parameter_share * rows * (1 + 1e-9), sys.maxsize))
