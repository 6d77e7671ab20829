"""The rows of a run: the tables that a configuration names (data sets or files), their target and
its classes; which rows are trained on and which judge, scaled.

Features are made by a schema fitted on the training rows only. Models are judged on held-out rows
of the training clients, and on clients that are never trained on, as they are and drifted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.config.config import Config, ConfigError, Drift
from bonafed.config.schema import DataSection
from bonafed.config.toml_file import near as near_miss
from bonafed.data import corrupt, load, partition
from bonafed.data import tables as tabular
from bonafed.data.assembly import with_targets
from bonafed.data.federation import Federation, apart
from bonafed.data.readers import read, read_clients
from bonafed.data.row_errors import Faults, RowError, without_values
from bonafed.data.schema import Recipe, Schema, declared_schema
from bonafed.data.tables import Table
from bonafed.data.validation import as_numbers, missing, ordered
from bonafed.problem.predictors.affine import federation_with_ones

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
        by = config.seed, classes is not None, data.person
        train, held = tabular.split(local, target, data.test, *by)
    _check_cells(train, source.tables, codes(config))
    train, server = _server(config, train, source)
    schema = _schema(config, source, local, train)
    rows = {name: len(table[target]) for name, table in local.items()}
    # what is not needed any more is released: the rows are in memory twice at most
    source = replace(source, tables={name: source.tables[name] for name in data.shifted})
    del local

    known: Any = {"schema": schema, "classes": classes, "columns": columns}
    known |= {"person": data.person, "positive": data.positive}

    def federation(tables: Mapping[str, Table], unknown: str = "ignore") -> Federation:
        fed = Federation.from_tables(tables, target, unknown=unknown, **known)
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


def _check_cells(
    train: Mapping[str, Table], tables: Mapping[str, Table], text: Collection[str]
) -> None:
    """Refuse cells that are not numbers among rows that are not trained on, where they by
    themselves make a column of numbers text; columns in ``text`` are text anyway.
    """
    for name in (name for name in next(iter(train.values())) if name not in text):
        columns = [table[name] for table in train.values()]
        if any(column.dtype.kind == "O" for column in columns):
            cells = (cell for column in columns for cell in column.tolist())
            if all(missing(cell) or tabular.is_number(cell) for cell in cells):
                tabular.check_numbers(tables, [name])


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
                tabular.has_column(first, name, "data.columns" if declared else "data.features")
                for client, table in tables.items():
                    if not declared.get(name):
                        _check_numbers(client, name, table)
    return names


def _check_numbers(client: str, name: str, table: Table) -> None:
    """Refuse text and missing values in a column for which nothing is declared."""
    text, absent = tabular.odd_rows(table[name]), tabular.missing_rows(table[name])
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
        text = f"data.groups: {both[0]!r} is the target or in data.features"
        raise ConfigError(f"{text}: leave it out of one of them")
    constrained = [one.get("column") for one in config.constraint]
    columns = dict.fromkeys((*groups, *(name for name in constrained if name is not None)))
    for name in columns:
        key = "data.groups" if name in groups else "constraint.column"
        for client, table in source.tables.items():
            tabular.has_column(table, name, key)
            if absent := tabular.missing_rows(table[name]):
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
        table = tabular.present(table, source.target) if stated.drop_missing_target else table
        table = typed({"": table}, source.target, config)[""]
        held = table.without(*filter(None, [config.data.client]))
        tabular.same_columns({"the clients' rows": next(iter(train.values())), "data.server": held})
        return train, held
    by = config.seed + 1, source.classes is not None, config.data.person
    train, parts = tabular.split(train, source.target, server, *by)
    tables = [*parts.values()]
    whole = Table({name: np.concatenate([part[name] for part in tables]) for name in tables[0]})
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
    there = {} if data.drift is None else {DRIFTED: drifted(shifted, data.drift, config.seed)}
    return {SHIFTED: shifted, **there}


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


# ------------------------------------------------------------------------------------------- tables

MOST = 1000  # classes
Watch: TypeAlias = Callable[[int, int], object]  # of the files that are read, and of all


@dataclass(frozen=True)
class Tables:
    """Tables by client before anything is held out; without ``owned`` the one table of rows that
    have no owner.

    ``classes`` are those of the target, None where it is a number. ``left_out`` are the rows that
    are not read, by client, for want of a "target" or a "client".
    """

    tables: dict[str, Table]
    target: str
    classes: NDArray[Any] | None
    owned: bool = True
    recipe: Recipe = field(default_factory=Recipe)
    left_out: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def two_classes(self) -> bool:
        """Whether the target is one of two classes."""
        return self.classes is not None and len(self.classes) == 2

    def text(self) -> str:
        """What the tables hold, in words."""
        first = next(iter(self.tables.values()))
        rows = [f"{name}: {len(table[self.target])} rows" for name, table in self.tables.items()]
        owners = f"{len(rows)} clients: {', '.join(rows[:12])}{', ...' * (len(rows) > 12)}"
        if not self.owned:
            owners = f"{len(first[self.target])} rows without owners (see data.partition)"
        kinds = "numbers"
        if self.classes is not None:
            kinds = f"classes {', '.join(map(str, self.classes[:12]))}"
        columns = ", ".join(name for name in first if name != self.target)
        return f"{owners}\ntarget {self.target!r}: {kinds}\ncolumns: {columns}"


def read_tables(config: Config, watch: Watch | None = None) -> Tables:
    """The tables of a configuration; ``watch`` is called with the files read so far and all."""
    if text := config.unfilled():
        raise ConfigError(text)
    with in_words_of_files(), without_values(config.privacy is not None):
        tables = _read(config, watch or (lambda done, total: None))
    if config.data.positive is None:
        return tables
    return replace(tables, classes=ordered(tables.classes, config.data.positive))


@contextmanager
def in_words_of_files() -> Iterator[None]:
    """Errors about rows name the keys of [data] as a configuration has them."""
    keys = "|".join(DataSection.keys())
    try:
        yield
    except RowError as error:  # without values, where the run is private
        raise error.reworded(partial(re.sub, rf"`({keys})`", r"data.\1")) from None


def needed(config: Config) -> list[str] | None:
    """The columns of a private run that are declared, so that no other is read; else None: all."""
    data = config.data
    if config.privacy is None or data.path is None:
        return None
    declared = data.columns or data.reading.made(data.features or ())
    if not declared:
        return None
    roles = (data.target, data.client, data.person)
    return [*dict.fromkeys((*declared, *(name for name in roles if name is not None)))]


def codes(config: Config) -> list[str]:
    """The columns whose cells are read as they are written, as codes."""
    data = config.data
    declared = [name for name, how in (data.columns or {}).items() if "categories" in how]
    return [*data.categorical, *declared, *([] if data.person is None else [data.person])]


def _read(config: Config, watch: Watch) -> Tables:
    data = config.data
    if data.path is None:
        named = dataset(str(data.name))
        how, found = (data.reading, codes(config)), named.tables.items()
        tables = {name: tabular.refined(table, *how) for name, table in found}
        tables = typed(tables, named.target, config)
        return _dealt(replace(named, tables=tables), config)
    assert data.target is not None
    # clients whose rows are declared need not have any
    sizes = None if config.privacy is None else config.privacy.sizes
    declared = isinstance(sizes, Mapping)
    files = [str(config.folder / path) for path in data.path]
    nobody: list[int] = []  # the rows of each file without a client
    how = codes(config), data.reading, needed(config), nobody.append
    tables = read_clients(files, data.client, declared, watch, *how)
    if declared:
        _check_declared(tables, {*sizes, *data.shifted})
    for table in tables.values():
        tabular.has_column(table, data.target, "data.target")
    left_out: dict[str, dict[str, int]] = {}
    if data.drop_missing_client:
        left_out["client"] = {"": sum(nobody)} if any(nobody) else {}
    if data.drop_missing_target:
        whole, tables = tables, with_targets(tables, data.target)
        kept = {name: len(table[data.target]) for name, table in tables.items()}
        lost = {name: len(t[data.target]) - kept.get(name, 0) for name, t in whole.items()}
        left_out["target"] = {name: n for name, n in lost.items() if n}
    tables = typed(tables, data.target, config)
    try:
        return Tables(tables, data.target, _known(config, tables, data.target), left_out=left_out)
    except RowError as error:
        with Faults() as faults:  # the other columns are looked at as well
            with faults.of(data.target):
                raise error
            if config.privacy is None and data.columns is None:
                with faults.of("features"):
                    features = features_of(config, tables, data.target)
                    Schema.fit(tables, recipe_of(config, Recipe()), features=features)
        raise


def typed(tables: Mapping[str, Table], target: str, config: Config) -> dict[str, Table]:
    """The tables with targets as the loss has them: an amount is a float, also where all amounts
    are whole; a class that is a whole number is an integer, also where a cell is missing.
    """
    found = {name: table[target] for name, table in tables.items() if target in table}
    if len(found) < len(tables) or any(y.dtype.kind not in "if" for y in found.values()):
        return {**tables}
    kind = "f" if config.loss().targets == "real" else "i"
    if kind == "i" and not all((y == np.rint(y)).all() for y in found.values()):
        return {**tables}
    return {
        name: table.with_columns({**table, target: table[target].astype(kind + "8")})
        for name, table in tables.items()
    }


def _known(config: Config, tables: Mapping[str, Table], target: str) -> NDArray[Any] | None:
    """The classes of the target, checked for the loss; None where it is a number."""
    kind, stated = config.loss().targets, config.data.classes
    if kind == "real":
        tabular.targets_of(tables, target, numeric=True)
        return None
    known = np.array(stated) if stated else _classes(tables, target, kind)
    if known.dtype.kind == "U" and all(t[target].dtype.kind in "if" for t in tables.values()):
        known = np.unique(as_numbers(known))  # "0" and "1" of a column of numbers
    if len(known) == 1:
        raise ConfigError(
            f"data.target: column {target!r} has one value in all rows, {known.tolist()[0]!r}, so"
            " that there is nothing to predict. Name another column, or add rows with other values."
        )
    if kind == "sign" and len(known) != 2:
        shown = ", ".join(map(repr, known[:6].tolist()))
        several = " For several classes set problem.loss = 'multinomial'." * (len(known) > 2)
        raise ConfigError(
            f"data.target: column {target!r} has {len(known)} values, not two: {shown}.{several}"
            f"{_rarest(known, tables, target) if several else ''}"
        )
    return known


def features_of(config: Config, tables: Mapping[str, Table], target: str) -> list[str]:
    """The columns that are named as features, else all but the target, groups and persons."""
    if config.data.features:
        return config.data.reading.made(config.data.features)
    others = (target, *config.data.groups, config.data.person)
    return [name for name in next(iter(tables.values())) if name not in others]


def recipe_of(config: Config, known: Recipe) -> Recipe:
    """How features are fitted; ``known`` of a data set by name."""
    data, codes = config.data, (*known.categorical, *config.data.categorical)
    indicators = data.indicators or known.indicators
    return Recipe(data.scale, codes, indicators, min_count=data.min_count or 1)


def _dealt(data: Tables, config: Config) -> Tables:
    """The rows of a data set without owners, dealt to the clients of a column or of a partition."""
    stated = config.data
    if data.owned:
        if stated.partition or stated.client:
            raise ConfigError(
                f"data.partition, data.client: the rows of {stated.name!r} have owners. Leave it"
                " out"
            )
        return data
    table = data.tables[""]
    if stated.client is not None:
        return replace(data, tables=tabular.by_client(table, stated.client), owned=True)
    if (how := stated.partition) is None:
        if config.problem_.pooled:
            return replace(data, tables={"pooled": table}, owned=True)
        raise ConfigError(
            f"data.partition: the rows of {stated.name!r} have no owners: give it, or data.client,"
            " a column, or set problem.pooled = true"
        )
    y, seed = table[data.target], config.seed
    if how.by == "iid":
        labels = partition.iid(len(y), how.clients, seed)
    elif how.by == "dirichlet":
        labels = partition.dirichlet(y, how.clients, how.alpha, seed)
    else:
        labels = partition.by_label(y, how.clients, how.labels, seed)
    names = [f"client {c}" if not str(c).strip() or str(c).isdigit() else str(c) for c in labels]
    tables = tabular.by_client(table.with_columns({**table, "": np.array(names, dtype=object)}), "")
    return replace(data, tables=tables, owned=True)


def _check_declared(tables: Mapping[str, Table], declared: Set[str]) -> None:
    """Refuse rows of clients whose size is not declared, before any other error names them."""
    for name, table in tables.items():
        if name not in declared:
            n = len(next(iter(table.values()), ()))
            raise RowError(
                "privacy.sizes",
                "there are rows of a client that is not declared",
                shown=f", {name!r},",
                rows=range(n),
                do=f"Declare it, or correct its name. Declared: {', '.join(sorted(declared))}.",
                place=table.place,
            )


def _classes(tables: Mapping[str, Table], target: str, kind: str) -> NDArray[Any]:
    """The classes over all clients, so that a client may hold some of them only."""
    classes = np.unique(np.concatenate(tabular.targets_of(tables, target)))
    if kind == "class" and len(classes) > MOST:
        raise ConfigError(
            f"data.target: column {target!r} has {len(classes)} values: a loss of classes takes at"
            f" most {MOST}"
        )
    return classes


def _rarest(classes: NDArray[Any], tables: Mapping[str, Table], target: str) -> str:
    """Where the class of the fewest rows is, which may be a slip."""
    rows = {c: [np.flatnonzero(t[target] == c) for t in tables.values()] for c in classes.tolist()}
    counts = {c: sum(map(len, parts)) for c, parts in rows.items()}
    rare = min(counts, key=counts.__getitem__)
    if not counts[rare] or sorted(counts.values())[:2].count(counts[rare]) > 1:
        return ""  # it is not one that stands out
    name, at = next((n, at) for n, at in zip(tables, rows[rare], strict=True) if len(at))
    place = tables[name].place(at.tolist())
    return f" The rarest, {rare!r}, is that of client {name!r} in {place}."


def named() -> list[str]:
    """The data sets that a configuration can name."""
    return ["hospitals", *(known.name for known in load.available())]


def dataset(name: str) -> Tables:
    """A data set by name.

    Raises
    ------
    ConfigError : no such data set
    FileNotFoundError : its files are not here; says where to put them
    """
    if name not in named():
        near = near_miss(name, named())
        raise ConfigError(f"data.name: no data set {name!r}{near}. Data sets: {', '.join(named())}")
    if name in load.BY_HOSPITAL:  # as tables: the schema is fitted on the rows trained on
        hospitals = load.BY_HOSPITAL[name]()
        y = np.concatenate([table["diagnosis"] for table in hospitals.values()])
        return Tables(hospitals, "diagnosis", np.unique(y.astype(str)))
    data = getattr(load, name)()
    if isinstance(data, load.Tabular):
        classes = np.unique(data.table[data.target].astype(str))
        return Tables({"": data.table}, data.target, classes, False, data.recipe)

    def columns(X: NDArray[Any], y: NDArray[Any]) -> Table:
        return tabular.table_of({**dict(zip(data.feature_names, X.T, strict=True)), "target": y})

    if isinstance(data, Federation):
        rows = zip(data.names, data.X, data.y, strict=True)
        return Tables({name: columns(X, y) for name, X, y in rows}, "target", data.classes)
    classes = None if data.y.dtype.kind == "f" else np.unique(data.y)
    return Tables({"": columns(data.X, data.y)}, "target", classes, False)
