"""The rows of a run: read, given to their clients, set aside to judge on, and scaled.

Features are made by a schema fitted on the training rows alone. Judged on are held-out rows of the
training clients, and clients that are never trained on, as they are and drifted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quorate.config.config import Config, ConfigError, Drift
from quorate.config.errors import near as near_miss
from quorate.data.declared_schema import apart, declared_schema
from quorate.data.federation import Federation
from quorate.data.schema import Recipe
from quorate.data.tables import Table

MOST = 1000  # classes
HELD_OUT, SHIFTED, DRIFTED = "held-out rows", "shifted clients", "shifted clients, drifted"


@dataclass(frozen=True)
class Parts:
    """The rows to train on, and the sets to judge on by name; all features made by the schema of
    the training rows.

    ``given`` are the rows to train on by client where ``train`` has them pooled, else None;
    ``rows`` counts those of each client before any was held out.
    """

    train: Federation
    tests: Mapping[str, Federation] = field(default_factory=dict)
    given: Federation | None = None
    rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def owners(self) -> Federation:
        """The rows to train on, by client."""
        return self.train if self.given is None else self.given

    @property
    def ranked(self) -> int:
        """How many rows a client has that is trained on; the mean of several: those that a risk of
        ranks counts.
        """
        return max(1, round(float(self.train.sizes.mean())))


def prepare(config: Config) -> Parts:
    """Read, set aside, scale.

    Raises
    ------
    ConfigError : a data set or shifted client that does not exist, shifted clients that leave none
        to train on
    ValueError, OSError : files that cannot be read or hold no such table
    """
    from quorate.data.schema import Schema
    from quorate.data.tables import split

    data = config.data
    found = read_tables(config)
    tables, target, classes = found.tables, found.target, found.classes
    if unknown := [name for name in data.shifted if name not in tables]:
        raise ConfigError(f"data.shifted: no client {unknown[0]!r}. Clients: {', '.join(tables)}")
    own = {name: table for name, table in tables.items() if name not in data.shifted}
    if not own:
        raise ConfigError("data.shifted names every client: leave some to train on")
    # one row must not move others
    own, by_row = named_clients(config, own), config.privacy is not None
    columns = _columns(config, tables, target)
    shuffled = data.test and not by_row
    train, held = (
        split(own, target, data.test, config.seed, classes is not None) if shuffled else (own, {})
    )
    train, server = _server(config, train, target, classes)
    if by_row or data.columns is not None:
        schema = declared_schema(
            features_of(config, own, target), data.columns or {}, target, classes
        )
    else:
        categorical = (*found.recipe.categorical, *data.categorical)
        recipe = Recipe(data.scale, categorical, data.indicators or found.recipe.indicators)
        features = [name for name in next(iter(own.values())) if name not in (target, *data.groups)]
        schema = Schema.fit(
            train, recipe, features=data.features or features, target=target, classes=classes
        )

    # rows to judge on may hold a category never trained on
    def made(part: Any, unknown: str = "ignore") -> Federation:
        own = {"schema": schema, "classes": classes, "unknown": unknown, "columns": columns}
        fed = Federation.from_tables(part, target, **own)
        return _extended(fed) if config.ones else fed

    tests = {HELD_OUT: made(held)} if held else {}
    if data.shifted:
        tests[SHIFTED] = made({name: tables[name] for name in data.shifted})
    if data.drift is not None:
        tests[DRIFTED] = drifted(tests[SHIFTED], data.drift, config.seed)
    fed, rows = (
        made(train, unknown="error"),
        {name: len(table[target]) for name, table in own.items()},
    )
    if data.test and by_row:
        fed, test = apart(fed, data.test, config.seed)
        tests = ({} if test is None else {HELD_OUT: test}) | tests
    fed = fed if server is None else replace(fed, server=made({"server": server}, unknown="error"))
    return (
        Parts(fed.pooled(), tests, fed, rows)
        if config.problem_.pooled
        else Parts(fed, tests, None, rows)
    )


def features_of(config: Config, tables: Mapping[str, Table], target: str) -> list[str]:
    """The columns that features are made of where nothing is fitted; each has numbers, or is
    declared.
    """
    from quorate.data.tables import has_column, is_number
    from quorate.data.validation import listed, missing

    data, first = config.data, next(iter(tables.values()))
    names = [
        *(data.columns or data.features or (n for n in first if n not in (target, *data.groups)))
    ]
    for name in names:
        has_column(first, name, "data.columns" if data.columns else "data.features")
        declared = (data.columns or {}).get(name, {})
        for client, table in tables.items() if not declared else ():
            cells = table[name].tolist()
            absent = [r for r, value in enumerate(cells) if missing(value)]
            text = [value for value in cells if not missing(value) and not is_number(value)]
            if text or absent:
                odd = (
                    f"text such as {text[0]!r}"
                    if text
                    else f"no value in {listed(absent, 'row')} (from 0)"
                )
                do = "categories = [...]" if text else "missing = 0.0"
                raise ConfigError(
                    f"client {client!r}: column {name!r} has {odd}, and nothing is read off the"
                    f" rows here: declare it under [data.columns], such as {name} = {{ {do} }}, or"
                    " leave it out of data.features"
                )
    return names


def named_clients(config: Config, tables: dict[str, Table]) -> dict[str, Table]:
    """Those who have rows, in the order of declared sizes, else of their names: in a private run
    the order of the rows is nobody's business, and who is declared takes part without rows as well.
    """
    if config.privacy is None:
        return tables
    sizes = config.privacy.sizes
    if not isinstance(sizes, Mapping):
        return dict(sorted(tables.items()))
    tables = {name: table for name, table in tables.items() if len(next(iter(table.values()), ()))}
    if odd := [name for name in tables if name not in sizes]:
        said = f"client {odd[0]!r} has rows and is not declared. Declared: {', '.join(sizes)}"
        raise ConfigError(f"privacy.sizes: {said}")
    if not tables:
        raise ConfigError(f"privacy.sizes: no client has any row. Declared: {', '.join(sizes)}")
    return {name: tables[name] for name in sizes if name in tables}


@dataclass(frozen=True)
class Owned:
    """Tables by client before anything is held out; without ``owned`` the one table of rows that
    have no owner.
    """

    tables: dict[str, Table]
    target: str
    classes: Any  # None for numbers
    owned: bool = True
    recipe: Recipe = field(default_factory=Recipe)

    @property
    def two_classes(self) -> bool:
        """Whether the target is one of two classes."""
        return self.classes is not None and len(self.classes) == 2

    def say(self) -> str:
        """What it holds, in words."""
        first = next(iter(self.tables.values()))
        kinds = (
            "numbers"
            if self.classes is None
            else f"classes {', '.join(map(str, self.classes[:12]))}"
        )
        lines = [
            f"target {self.target!r}: {kinds}",
            f"columns: {', '.join(n for n in first if n != self.target)}",
        ]
        if not self.owned:
            return "\n".join(
                [f"{len(first[self.target])} rows without owners (see data.partition)", *lines]
            )
        rows = [f"{name}: {len(table[self.target])} rows" for name, table in self.tables.items()]
        return "\n".join(
            [f"{len(rows)} clients: {', '.join(rows[:12])}{', ...' * (len(rows) > 12)}", *lines]
        )


def read_tables(config: Config) -> Owned:
    """The tables of a configuration."""
    from quorate.data import tables

    data = config.data
    if data.path is None:
        return _dealt(dataset(str(data.name)), config)
    assert data.target is not None
    # who need not have rows
    declared = config.privacy is not None and isinstance(config.privacy.sizes, Mapping)
    found = tables.read_clients(
        [str(config.folder / path) for path in data.path], data.client, declared
    )
    for table in found.values():
        tables.has_column(table, data.target, "data.target")
    kind = config.loss().targets
    if kind == "real":
        return Owned(found, data.target, None)
    known = _classes(found, data.target, kind) if data.classes is None else np.array(data.classes)
    return Owned(found, data.target, _two(known, data.target) if kind == "sign" else known)


def _dealt(found: Owned, config: Config) -> Owned:
    """Rows without owners given to the clients of a column, or of a partition."""
    from quorate.data import partition, tables

    data = config.data
    if found.owned:
        if data.partition or data.client:
            raise ConfigError(
                f"data.partition, data.client: the rows of {data.name!r} have owners. Leave it out"
            )
        return found
    table = found.tables[""]
    if data.client is not None:
        return replace(found, tables=tables.by_client(table, data.client), owned=True)
    if (how := data.partition) is None:
        if config.problem_.pooled:
            return replace(found, tables={"pooled": table}, owned=True)
        raise ConfigError(
            f"data.partition: the rows of {data.name!r} have no owners: give it, or data.client, a"
            " column, or set problem.pooled = true"
        )
    y = table[found.target]
    clients = {
        "iid": lambda: partition.iid(len(y), how.clients, config.seed),
        "dirichlet": lambda: partition.dirichlet(y, how.clients, how.alpha, config.seed),
        "label": lambda: partition.by_label(y, how.clients, how.labels, config.seed),
    }[how.by]()
    names = [f"client {c}" if not str(c).strip() or str(c).isdigit() else str(c) for c in clients]
    return replace(
        found, tables=tables.by_client({**table, "": np.array(names, dtype=object)}, ""), owned=True
    )


def _columns(config: Config, tables: Mapping[str, Table], target: str) -> tuple[str, ...]:
    """The columns that constraints are about, beside those that are groups and nothing else."""
    from quorate.data.tables import has_column
    from quorate.data.validation import listed, missing

    groups, features = config.data.groups, config.data.features or ()
    if both := [name for name in groups if name in (*features, target)]:
        raise ConfigError(
            f"data.groups: {both[0]!r} is the target or in data.features: leave it out of one of"
            " them"
        )
    named = dict.fromkeys(
        (*groups, *(c.get("column") for c in config.constraint if c.get("column") is not None))
    )
    for name in named:
        for client, table in tables.items():
            has_column(table, name, "data.groups" if name in groups else "constraint.column")
            if absent := [r for r, value in enumerate(table[name].tolist()) if missing(value)]:
                raise ConfigError(
                    f"client {client!r}: column {name!r} is missing in {listed(absent, 'row')}"
                    " (from 0), and every row needs a group: give these rows a value of their own,"
                    " such as 'unknown'"
                )
    return tuple(named)


def _server(
    config: Config, train: dict[str, Table], target: str, classes: Any
) -> tuple[dict[str, Table], Table | None]:
    """The clients' rows, and the server's own: a table, or a share of the rows of every client."""
    from quorate.data import tables

    given = config.data.server
    if given is None:
        return train, None
    if isinstance(given, str):
        held = {
            name: v
            for name, v in tables.read(config.folder / given).items()
            if name != config.data.client
        }
        tables.same_columns({"the clients' rows": next(iter(train.values())), "data.server": held})
        return train, held
    train, parts = tables.split(train, target, given, config.seed + 1, classes is not None)
    return train, {
        name: np.concatenate([part[name] for part in parts.values()])
        for name in next(iter(parts.values()))
    }


def _classes(tables: Mapping[str, Any], target: str, kind: str) -> Any:
    """The classes over all clients, so that a client may hold some of them alone."""
    from quorate.data import validation as rows

    y = rows.same_type(
        [rows.targets(table[target], name) for name, table in tables.items()], tuple(tables)
    )
    found = np.unique(np.concatenate(y))
    if kind == "class" and (len(found) < 2 or len(found) > MOST):
        raise ConfigError(
            f"data.target: column {target!r} has {len(found)} values: a loss of classes needs 2 to"
            f" {MOST}"
        )
    return found


def _two(found: Any, target: str) -> Any:
    if len(found) != 2:
        shown = ", ".join(map(repr, found[:6].tolist()))
        raise ConfigError(
            f"data.target: column {target!r} has {len(found)} values, not two: {shown}"
            + "; for several classes set problem.loss = 'multinomial'" * (len(found) > 2)
        )
    return found


def _extended(fed: Federation) -> Federation:
    """With a feature of ones, which stands for the intercepts of several classes."""
    from quorate.problem.prediction import with_ones

    names = None if fed.feature_names is None else (*fed.feature_names, "1")
    return replace(fed, X=tuple(map(with_ones, fed.X)), feature_names=names)


def named() -> list[str]:
    """The data sets that a configuration can name."""
    from quorate.data import load

    return ["hospitals", *(known.name for known in load.available())]


def dataset(name: str) -> Owned:
    """A data set by name.

    Raises
    ------
    ConfigError : no such data set
    FileNotFoundError : its files are not here; says where to put them
    """
    from quorate.data import load

    if name not in named():
        near = near_miss(name, named())
        raise ConfigError(f"data.name: no data set {name!r}{near}. Data sets: {', '.join(named())}")
    if name == "hospitals":  # as tables: the schema is fitted on the rows that are trained on
        found = load.hospital_tables()
        return Owned(
            found,
            "diagnosis",
            np.unique(np.concatenate([t["diagnosis"] for t in found.values()]).astype(str)),
        )
    made = getattr(load, name)()
    if isinstance(made, Federation):
        rows = zip(made.names, made.X, made.y, strict=True)
        owned = {
            c: {**dict(zip(made.feature_names, X.T, strict=True)), "target": y} for c, X, y in rows
        }
        return Owned(owned, "target", made.classes)
    if isinstance(made, load.Tabular):
        classes = np.unique(made.table[made.target].astype(str))
        return Owned({"": made.table}, made.target, classes, False, made.recipe)
    table = {**dict(zip(made.feature_names, made.X.T, strict=True)), "target": made.y}
    return Owned(
        {"": table}, "target", None if made.y.dtype.kind == "f" else np.unique(made.y), False
    )


def drifted(fed: Federation, how: Drift, seed: int) -> Federation:
    """The same clients with instruments out of tune, noise, and labels flipped."""
    from quorate.data import corrupt

    if how.flips and fed.classes is None:
        raise ConfigError(
            "data.drift.flips needs classes, and the targets are numbers: use noise, scale or"
            " offset"
        )
    fed = corrupt.add_noise(
        corrupt.drift(fed, scale=how.scale, offset=how.offset), how.noise, seed=seed
    )
    return corrupt.flip_labels(fed, how.flips, seed=seed) if how.flips else fed
