"""A site's rows as an experiment uses them, and what its policy has to know of them.

A server says which columns it means (`Roles`): target, features, classes. It never says where the
rows are, which is the site's own affair. Features are made as the server declares, so that nothing
depends on the rows of others.
"""

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.config.toml_file import near
from bonafed.data.federation import Federation, apart
from bonafed.data.readers import read
from bonafed.data.schema import Numeric, Schema, to_declare
from bonafed.data.tables import Table, has_column, is_number
from bonafed.data.validation import EXTREME, as_numbers, missing
from bonafed.sites.policy import LevelCount, Proposal, When, rows_in_words
from bonafed.sites.site_file import SiteFile, unready
from bonafed.text import shown


@dataclass(frozen=True)
class Roles:
    """What the columns of the sites' tables are for.

    Parameters
    ----------
    target : the column that is predicted
    schema : how features are made of the other columns, as ``Schema.to_dict`` writes it
    columns : further columns, whose values constraints are about
    classes : of the target, declared; None for numbers
    positive : of two classes the one that counts as +1
    person : the column that says whose each row is
    test : the share of rows that a site holds out to judge the model on, each by itself
    seed : of this choice, which depends on a secret of the site as well
    """

    target: str
    schema: Mapping[str, Any]
    columns: tuple[str, ...] = ()
    classes: tuple[Any, ...] | None = None
    positive: Any = None
    person: str | None = None
    test: float = 0.0
    seed: int = 0

    def split(self) -> str:
        """What decides which rows are held out, as JSON: the same for whatever is predicted."""
        return json.dumps([self.test, self.seed, self.person] if self.test else [])

    def text(self) -> str:
        """As JSON, for the wire."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def of(cls, text: str) -> "Roles":
        """The inverse of ``text``; ``ValueError`` for anything else."""
        try:
            fields = json.loads(text)
            lists = {name: tuple(fields[name]) for name in ("columns", "classes") if fields[name]}
            return cls(**fields | {"columns": ()} | lists)
        except (ValueError, TypeError, KeyError) as error:
            text = f"the server's description of columns cannot be read: {error}"
            raise ValueError(text) from None


@dataclass(frozen=True)
class OwnRows:
    """The rows of one site.

    Attributes
    ----------
    train : to train on, a federation of this one client
    test : to judge on, or None
    columns : of the table that are used
    levels : the smallest category level of each column that has levels, in ``train``
    test_levels : the same in ``test``; () without any
    people : (m,) whose each row of ``train`` is, as a number that stays the same while row or
        person does; None: each row is another person's
    whole : rows of the table, where a private problem has left some out of ``train``
    """

    train: Federation
    test: Federation | None
    columns: tuple[str, ...]
    levels: tuple[LevelCount, ...]
    test_levels: tuple[LevelCount, ...] = ()
    people: NDArray[np.uint64] | None = None
    whole: int | None = None

    @property
    def count(self) -> int:
        """How many rows take part, as far as anybody is told."""
        return int(self.train.sizes[0]) if self.whole is None else self.whole


def columns_of(text: str) -> tuple[str, ...] | None:
    """The columns of the site's table that a server means; None where it does not say."""
    if not text:
        return None
    roles = Roles.of(text)
    schema = Schema.from_dict(roles.schema)
    person = () if roles.person is None else (roles.person,)
    named = (roles.target, *(column.name for column in schema.columns), *roles.columns, *person)
    return tuple(dict.fromkeys(named))


Source = Callable[[str, bool], OwnRows]  # of the text of `Roles`, and whether for a private problem


def of_site(site: SiteFile, secret: bytes) -> Source:
    """The rows in the file that a site's ``site.toml`` names.

    Which of them are held out depends on the site's secret: a server that chose them by its seed
    could hold out a single row, and count those like it. So a person who has rows at several sites
    may be held out at one of them and not at another. It depends on whole rows of the table as
    well, and not on features and target: rows that are held out for one target and not for another
    could be told from what both runs train on.

    For a private problem every cell is read as the problem declares it (`as_declared`).
    """

    def rows(text: str, private: bool = False) -> OwnRows:
        if not text:
            raise ValueError("the server does not say which column is predicted.")
        roles, table = Roles.of(text), read_rows(site)
        schema, whole, none = Schema.from_dict(roles.schema), None, False
        if private:
            whole = len(next(iter(table.values()), ()))
            table, none = as_declared(table, schema, roles)
        how: Any = {"columns": roles.columns, "person": roles.person, "positive": roles.positive}
        how["classes"] = None if roles.classes is None else list(roles.classes)
        how["unknown"] = "ignore" if private else "error"
        fed = Federation.from_tables({site.site.name: table}, roles.target, schema=schema, **how)
        if none:
            fed = fed._with(X=(fed.X[0] * 0,), sample_weight=(np.zeros(1),))
        train, test = parted(fed, table, roles.test, seed_at_site(roles.seed, secret))
        assert train.persons is not None
        people = keyed(train.persons[0], secret)
        if fed.persons is None:
            train = train._with(persons=None)
            test = None if test is None else test._with(persons=None)
        used = columns_of(text) or ()
        of_test = () if test is None else _levels(test, schema, roles)
        return OwnRows(train, test, used, _levels(train, schema, roles), of_test, people, whole)

    return rows


def as_declared(table: Table, schema: Schema, roles: Roles) -> tuple[Table, bool]:
    """A table as a private problem declares it, row by row, so that no cell can make an error: a
    cell that is not a number where one is declared is missing, and a row whose target is none of
    the classes, or no number, is left out. Where no row is left there is one that must not count,
    and True.
    """
    has_column(table, roles.target, "the target")
    columns = [column.name for column in schema.columns if isinstance(column, Numeric)]
    cells = {name: _as_numbers(table[name]) for name in columns if name in table}
    target, known = table[roles.target], roles.classes
    if known is not None and isinstance(known[0], str) and target.dtype.kind in "if":
        known = tuple(as_numbers(np.array(known)).tolist())  # "0" and "1" of a column of numbers
    if known is None or not isinstance(known[0], str):
        cells[roles.target] = target = _as_numbers(target)
    kept = np.isfinite(target) if known is None else np.isin(target.tolist(), known)
    whole, rows = table.with_columns({**table, **cells}), np.flatnonzero(kept)
    if len(rows) or not len(target):
        return whole.pick(rows), False
    one = whole.pick(np.arange(1))
    one[roles.target] = np.array([0.0 if known is None else known[0]])
    return one, True


def _as_numbers(column: NDArray[Any]) -> NDArray[Any]:
    """Cells as numbers, NaN for what is none, or too large for its square."""
    if column.dtype.kind in "biu":
        return column
    numbers = np.array([float(c) if is_number(c) else np.nan for c in column.tolist()])
    return np.where(np.abs(numbers) <= EXTREME, numbers, np.nan)


def parted(
    fed: Federation, table: Table, share: float, seed: int
) -> tuple[Federation, Federation | None]:
    """The rows of a site to train on and those to judge on, decided by the name of a row's person,
    or else by the whole row of the site's table, which then is its person: equal rows are on the
    same side.
    """
    if fed.persons is None:
        columns = [table[name] for name in sorted(table)]
        # as numbers of one kind: where one cell gets a fraction, no other row changes its side
        cells = [c.astype(float) if c.dtype.kind in "biuf" else c for c in columns]
        rows = [repr(row) for row in zip(*(column.tolist() for column in cells), strict=True)]
        fed = fed._with(persons=(np.array(rows, object),))
    return apart(fed, share, seed) if share else (fed, None)


def keyed(persons: NDArray[Any], secret: bytes) -> NDArray[np.uint64]:
    """Persons as numbers that tell nobody who they are."""
    each = (_keyed(person, secret, 8) for person in persons.tolist())
    return np.frombuffer(b"".join(each), "<u8").astype(np.uint64)


def _keyed(value: object, secret: bytes, size: int) -> bytes:
    return hashlib.blake2b(str(value).encode(), digest_size=size, key=secret).digest()


def seed_at_site(seed: int, secret: bytes) -> int:
    """The seed of a site's held-out rows, which nobody knows who does not know its secret."""
    return int.from_bytes(_keyed(seed, secret, 16), "little")


def _levels(rows: Federation, schema: Schema, roles: Roles) -> tuple[LevelCount, ...]:
    """The smallest level of every column, as these rows have it: of every feature that is 0 or 1
    those that have it and those that have not, of target and further columns every value.
    """
    features = zip(schema.feature_names, np.asarray(rows.X[0]).T, strict=True)
    counts = {name: np.unique(column, return_counts=True)[1] for name, column in features}
    m = int(rows.sizes[0])
    least = {name: int(n.min(initial=m)) for name, n in counts.items() if len(n) <= 2}
    told = {} if rows.classes is None else {roles.target: rows.y[0]}
    told |= {name: parts[0] for name, parts in (rows.columns or {}).items()}
    least |= {name: min(Counter(cells.tolist()).values()) for name, cells in told.items()}
    return tuple(LevelCount(name, n) for name, n in least.items())


# What a site holds: rows, columns and category levels of its table, counted at the site.
#
# Nothing of this leaves the site by itself. The counts are what its policy is held against.

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
        n, least = len(self.levels), min(self.levels.values(), default=0)
        several = "s" * (n != 1)
        return f"{shown(self.name)}: {n} level{several}, the smallest of {rows_in_words(least)}"


@dataclass(frozen=True)
class Holdings:
    """What a site's table holds."""

    rows: int
    columns: tuple[Column, ...]


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
    counted = {name: _level_rows(cells, name in categorical) for name, cells in table.items()}
    return Holdings(rows, tuple(Column(name, levels) for name, levels in counted.items()))


def level_counts(
    table: Table, columns: Iterable[str], categorical: Collection[str] = (), show: bool = False
) -> tuple[LevelCount, ...]:
    """The smallest level of each of these columns that has levels, for a `Proposal`.

    ``show``: with the name of the level, which is a value that rows hold.
    """
    counted = []
    for name in columns:
        has_column(table, name, "a column of the run")
        if levels := _level_rows(table[name], name in categorical):
            level, rows = min(levels.items(), key=lambda item: (item[1], item[0]))
            do = "" if name in categorical else to_declare(table[name])
            do = re.sub(r"`(\w+)`", r"data.\1", do.replace("They look", "Its cells look"))
            counted.append(LevelCount(name, rows, level if show else None, do))
    return tuple(counted)


def _level_rows(cells: NDArray[Any], coded: bool) -> Counter[str] | None:
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
    not, and why it could not answer; a sentence for each.
    """
    policy, held = site.policy, holdings(table, site.data.categorical)
    faults, kept_back = [*_absent(site, table)], policy.disallowed_columns or ()
    usable = table if policy.allowed_columns is None else policy.allowed_columns
    used = [name for name in table if name in usable and name not in kept_back]
    if not used:
        faults.append("allowed_columns: no column of the table may be used: name some")
    levels = level_counts(table, used, site.data.categorical, policy.show_levels)
    facts = Proposal(columns=used, rows=held.rows, levels=levels, held_out=0)
    # all else is about a run, and none is asked for
    faults += [refusal.text for refusal in policy.refusals(facts, (When.ROWS,))]
    return [*faults, *unready(site), *site.exposed()]


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


def largest_model(site: SiteFile, rows: int) -> int:
    """The most parameters that a model of these rows may have, as far as numbers reach."""
    return int(min(site.policy.maximum_parameter_share * rows * (1 + 1e-9), sys.maxsize))
