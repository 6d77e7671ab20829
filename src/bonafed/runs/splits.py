"""The rows of a run: those to train on and those to judge on, scaled.

Features are made by a schema fitted on the training rows only. Models are judged on held-out rows
of the training clients, and on clients that are never trained on, as they are and drifted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bonafed.config.config import Config, ConfigError, Drift
from bonafed.data import corrupt
from bonafed.data.federation import Federation, apart
from bonafed.data.readers import read
from bonafed.data.row_errors import Faults, RowError, without_values
from bonafed.data.schema import Schema, declared_schema
from bonafed.data.tables import (
    Table,
    check_numbers,
    has_column,
    is_number,
    missing_rows,
    odd_rows,
    present,
    same_columns,
    split,
)
from bonafed.data.validation import missing
from bonafed.problem.predictors.affine import federation_with_ones
from bonafed.runs.datasets import (
    Tables,
    Watch,
    codes,
    features_of,
    in_words_of_files,
    needed,
    read_tables,
    recipe_of,
    typed,
)

HELD_OUT, SHIFTED, DRIFTED = "held-out rows", "shifted clients", "shifted clients, drifted"


@dataclass(frozen=True)
class Parts:
    """The rows to train on, and the sets to judge on by name; all features made by the schema of
    the training rows.

    ``by_client`` are the rows to train on by client where ``train`` has them pooled, else None;
    ``rows`` counts those of each client before any was held out; ``left_out`` those that are not
    read, as of `Tables`. ``together``: the rows of all clients are ranked together.
    """

    train: Federation
    tests: Mapping[str, Federation] = field(default_factory=dict)
    by_client: Federation | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    together: bool = False

    @property
    def owners(self) -> Federation:
        """The rows to train on, by client."""
        return self.train if self.by_client is None else self.by_client

    @property
    def read(self) -> int:
        """The rows of the tables of clients, with those that are left out."""
        left = sum(sum(by_client.values()) for by_client in self.left_out.values())
        return sum(self.rows.values()) + left

    @property
    def ranked(self) -> int:
        """How many rows are ranked among each other: all that are trained on, or those of a client,
        of several their mean.
        """
        sizes = self.train.sizes
        return max(1, round(float(sizes.sum() if self.together else sizes.mean())))


def prepare(config: Config, watch: Watch | None = None) -> Parts:
    """Read the rows, hold some of them out, and scale them; ``watch`` sees how far reading is.

    Raises
    ------
    ConfigError : a data set or shifted client that does not exist, shifted clients that leave none
        to train on
    ValueError, OSError : files that cannot be read or hold no such table
    """
    if config.data.sites is not None:
        raise ConfigError(
            "data.sites keep the rows of this run, so that none can be read here: run it with"
            " --engine, such as bonafed run CONFIG --engine flare-sim"
        )
    with in_words_of_files(), without_values(config.privacy is not None):
        return _prepared(config, watch)


def _prepared(config: Config, watch: Watch | None) -> Parts:
    data, source = config.data, read_tables(config, watch)
    local = trained_clients(config, source)
    # in a private run one row must not move others: each is held out by itself, below
    by_row, target, classes = config.privacy is not None, source.target, source.classes
    columns = _columns(config, source)
    train, held = local, {}
    if data.test and not by_row:
        train, held = split(local, target, data.test, config.seed, classes is not None, data.person)
    _check_cells(train, source.tables)
    train, server = _server(config, train, source)
    schema = _schema(config, source, local, train)
    rows = {name: len(table[target]) for name, table in local.items()}
    # what is not needed any more is released: the rows are in memory twice at most
    source = replace(source, tables={name: source.tables[name] for name in data.shifted})
    del local

    def federation(tables: Mapping[str, Table], unknown: str = "ignore") -> Federation:
        fed = Federation.from_tables(
            tables,
            target,
            schema=schema,
            classes=classes,
            unknown=unknown,
            columns=columns,
            person=data.person,
            positive=data.positive,
        )
        return federation_with_ones(fed) if config.ones else fed

    fed = federation(train, unknown="error")
    del train
    # rows to judge on may hold a category never trained on
    tests = {HELD_OUT: federation(held)} if held else {}
    if data.test and by_row:
        fed, test = apart(fed, data.test, config.seed)
        tests = {} if test is None else {HELD_OUT: test}
    tests |= _shifted(config, source, federation)
    if server is not None:
        fed = replace(fed, server=federation({"server": server}, unknown="error"))
    if config.problem_.pooled:
        return Parts(fed.pooled(), tests, fed, rows, source.left_out)
    return Parts(fed, tests, None, rows, source.left_out, config.risk.together)


def _check_cells(train: Mapping[str, Table], tables: Mapping[str, Table]) -> None:
    """Refuse cells that are not numbers among rows that are not trained on, where they by
    themselves make a column of numbers text.
    """
    for name in next(iter(train.values())):
        columns = [table[name] for table in train.values()]
        if any(column.dtype.kind == "O" for column in columns):
            cells = (cell for column in columns for cell in column.tolist())
            if all(missing(cell) or is_number(cell) for cell in cells):
                check_numbers(tables, [name])


def trained_clients(config: Config, source: Tables) -> dict[str, Table]:
    """The tables of the clients that are trained on; in a private run see `_in_public_order`."""
    shifted, tables = config.data.shifted, source.tables
    if unknown := [name for name in shifted if name not in tables]:
        raise ConfigError(f"data.shifted: no client {unknown[0]!r}. Clients: {', '.join(tables)}")
    tables = {name: table for name, table in tables.items() if name not in shifted}
    if not tables:
        raise ConfigError("data.shifted names every client: leave some to train on")
    if config.privacy is None:
        return tables
    if not isinstance(config.privacy.sizes, Mapping):
        return dict(sorted(tables.items()))
    return _in_public_order(tables, source.target, config.privacy.sizes)


def _in_public_order(
    tables: Mapping[str, Table], target: str, sizes: Mapping[str, int]
) -> dict[str, Table]:
    """The tables of those clients that have rows, in the order of the declared sizes: so the order
    discloses nothing, and a declared client takes part without rows.
    """
    tables = {name: table for name, table in tables.items() if len(table[target])}
    if not tables:
        raise ConfigError(f"privacy.sizes: no client has any row. Declared: {', '.join(sizes)}")
    return {name: tables[name] for name in sizes if name in tables}


# --------------------------------------------------------------------------------------- features


def _schema(
    config: Config, source: Tables, local: Mapping[str, Table], train: Mapping[str, Table]
) -> Schema:
    """How features are made: as declared, else as fitted on the rows to train on."""
    data, target = config.data, source.target
    if config.privacy is not None or data.columns is not None:
        names = _declared(config, local, target)
        return declared_schema(names, data.columns or {}, target, source.classes, data.reading)
    recipe = recipe_of(config, source.recipe)
    features = features_of(config, local, target)
    return Schema.fit(train, recipe, features=features, target=target, classes=source.classes)


def _declared(config: Config, tables: Mapping[str, Table], target: str) -> list[str]:
    """The columns that features are made of where nothing is fitted; each has numbers, or is
    declared.
    """
    data, first = config.data, next(iter(tables.values()))
    declared = data.columns or {}
    names = [*(declared or features_of(config, tables, target))]
    with Faults() as faults:
        for name in names:
            with faults.of(name):
                has_column(first, name, "data.columns" if declared else "data.features")
                for client, table in tables.items():
                    if not declared.get(name):
                        _check_numbers(client, name, table)
    return names


def _check_numbers(client: str, name: str, table: Table) -> None:
    """Refuse text and missing values in a column for which nothing is declared."""
    text, absent = odd_rows(table[name]), missing_rows(table[name])
    if not text and not absent:
        return
    raise RowError(
        f"client {client!r}",
        f"column {name!r} has {'text' if text else 'no value'}",
        shown=f" such as {table[name][text[0]]!r}" if text else "",
        rows=text or absent,
        do="Nothing is read off the rows here: declare it under [data.columns], such as"
        f" {name} = {{ {'categories = [...]' if text else 'missing = 0.0'} }}, or leave it out of"
        " data.features.",
        place=table.place,
    )


def _columns(config: Config, source: Tables) -> tuple[str, ...]:
    """The columns that constraints are about, beside those that are groups and nothing else."""
    groups, features = config.data.groups, config.data.features or ()
    if both := [name for name in groups if name in (*features, source.target)]:
        raise ConfigError(
            f"data.groups: {both[0]!r} is the target or in data.features: leave it out of one of"
            " them"
        )
    constrained = [one.get("column") for one in config.constraint]
    columns = dict.fromkeys((*groups, *(name for name in constrained if name is not None)))
    for name in columns:
        for client, table in source.tables.items():
            has_column(table, name, "data.groups" if name in groups else "constraint.column")
            if absent := missing_rows(table[name]):
                raise RowError(
                    f"client {client!r}",
                    f"column {name!r} is missing",
                    rows=absent,
                    do="Every row needs a group: give these rows a separate value, such as"
                    " 'unknown'.",
                    place=table.place,
                )
    return tuple(columns)


# --------------------------------------------------------------------------------- sets of rows


def _server(
    config: Config, train: dict[str, Table], source: Tables
) -> tuple[dict[str, Table], Table | None]:
    """The clients' rows, and the server's: a table, or a share of the rows of every client."""
    server = config.data.server
    if server is None:
        return train, None
    if isinstance(server, str):
        stated = config.data
        table = read(config.folder / server, codes(config), stated.reading, needed(config))
        table = present(table, source.target) if stated.drop_missing_target else table
        table = typed({"": table}, source.target, config)[""]
        held = table.without(*filter(None, [config.data.client]))
        same_columns({"the clients' rows": next(iter(train.values())), "data.server": held})
        return train, held
    by_class = source.classes is not None
    train, parts = split(
        train, source.target, server, config.seed + 1, by_class, config.data.person
    )
    tables = [*parts.values()]
    joined = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    whole = Table(joined)
    whole.reading = tables[0].reading
    return train, whole


def _shifted(
    config: Config, source: Tables, federation: Callable[[Mapping[str, Table]], Federation]
) -> dict[str, Federation]:
    """The clients that are never trained on, as they are and drifted."""
    data = config.data
    if not data.shifted:
        return {}
    shifted = federation({name: source.tables[name] for name in data.shifted})
    if data.drift is None:
        return {SHIFTED: shifted}
    return {SHIFTED: shifted, DRIFTED: drifted(shifted, data.drift, config.seed)}


def drifted(fed: Federation, how: Drift, seed: int) -> Federation:
    """The same clients with instruments out of tune, noise, and labels flipped."""
    if how.flips and fed.classes is None:
        raise ConfigError(
            "data.drift.flips needs classes, and the targets are numbers: use noise, scale or"
            " offset"
        )
    fed = corrupt.drift(fed, scale=how.scale, offset=how.offset)
    fed = corrupt.add_noise(fed, how.noise, seed=seed)
    return corrupt.flip_labels(fed, how.flips, seed=seed) if how.flips else fed
