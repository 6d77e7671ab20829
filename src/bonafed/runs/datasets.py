"""The tables that a configuration names (data sets or files), their target and its classes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bonafed.config.config import Config, ConfigError
from bonafed.config.errors import near as near_miss
from bonafed.config.schema import DataSection
from bonafed.data import load, partition
from bonafed.data.assembly import with_targets
from bonafed.data.federation import Federation
from bonafed.data.readers import read_clients
from bonafed.data.row_errors import Faults, RowError, without_values
from bonafed.data.schema import Recipe, Schema
from bonafed.data.tables import Table, by_client, has_column, refined, table_of, targets_of
from bonafed.data.validation import ordered

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

    def words(text: str) -> str:
        return re.sub(rf"`({keys})`", r"data.\1", text)

    try:
        yield
    except RowError as error:
        kept = error.reworded(words)
    else:
        return
    try:
        raise kept
    finally:
        kept.__context__ = None  # as in `without_values`


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
        tables = {
            name: refined(table, data.reading, codes(config))
            for name, table in named.tables.items()
        }
        tables = typed(tables, named.target, config)
        return _dealt(replace(named, tables=tables), config)
    assert data.target is not None
    # clients whose rows are declared need not have any
    sizes = None if config.privacy is None else config.privacy.sizes
    declared = isinstance(sizes, Mapping)
    files = [str(config.folder / path) for path in data.path]
    nobody: list[int] = []  # the rows of each file without a client
    tables = read_clients(
        files,
        data.client,
        declared,
        watch,
        codes(config),
        data.reading,
        needed(config),
        nobody.append,
    )
    if declared:
        _check_declared(tables, {*sizes, *data.shifted})
    for table in tables.values():
        has_column(table, data.target, "data.target")
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
        known = _known(config, tables, data.target)
        return Tables(tables, data.target, known, left_out=left_out)
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
        targets_of(tables, target, numeric=True)
        return None
    known = np.array(stated) if stated else _classes(tables, target, kind)
    if kind == "sign":
        _check_two(known, tables, target)
    return known


def features_of(config: Config, tables: Mapping[str, Table], target: str) -> list[str]:
    """The columns that are named as features, else all but the target, groups and persons."""
    if config.data.features:
        return config.data.reading.made(config.data.features)
    others = (target, *config.data.groups, config.data.person)
    return [name for name in next(iter(tables.values())) if name not in others]


def recipe_of(config: Config, known: Recipe) -> Recipe:
    """How features are fitted; ``known`` of a data set by name."""
    data = config.data
    return Recipe(
        data.scale,
        (*known.categorical, *data.categorical),
        data.indicators or known.indicators,
        min_count=data.min_count or 1,
    )


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
        return replace(data, tables=by_client(table, stated.client), owned=True)
    if (how := stated.partition) is None:
        if config.problem_.pooled:
            return replace(data, tables={"pooled": table}, owned=True)
        raise ConfigError(
            f"data.partition: the rows of {stated.name!r} have no owners: give it, or data.client,"
            " a column, or set problem.pooled = true"
        )
    y = table[data.target]
    if how.by == "iid":
        labels = partition.iid(len(y), how.clients, config.seed)
    elif how.by == "dirichlet":
        labels = partition.dirichlet(y, how.clients, how.alpha, config.seed)
    else:
        labels = partition.by_label(y, how.clients, how.labels, config.seed)
    names = [f"client {c}" if not str(c).strip() or str(c).isdigit() else str(c) for c in labels]
    tables = by_client(table.with_columns({**table, "": np.array(names, dtype=object)}), "")
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
    classes = np.unique(np.concatenate(targets_of(tables, target)))
    if kind == "class" and (len(classes) < 2 or len(classes) > MOST):
        raise ConfigError(
            f"data.target: column {target!r} has {len(classes)} values: a loss of classes needs 2"
            f" to {MOST}"
        )
    return classes


def _check_two(classes: NDArray[Any], tables: Mapping[str, Table], target: str) -> None:
    """Refuse a target of more or fewer than two classes."""
    if len(classes) != 2:
        shown = ", ".join(map(repr, classes[:6].tolist()))
        several = " For several classes set problem.loss = 'multinomial'." * (len(classes) > 2)
        raise ConfigError(
            f"data.target: column {target!r} has {len(classes)} values, not two: {shown}.{several}"
            f"{_rarest(classes, tables, target) if several else ''}"
        )


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
    if name == "hospitals":  # as tables: the schema is fitted on the rows that are trained on
        hospitals = load.hospital_tables()
        y = np.concatenate([table["diagnosis"] for table in hospitals.values()])
        return Tables(hospitals, "diagnosis", np.unique(y.astype(str)))
    data = getattr(load, name)()
    if isinstance(data, load.Tabular):
        classes = np.unique(data.table[data.target].astype(str))
        return Tables({"": data.table}, data.target, classes, False, data.recipe)

    def columns(X: NDArray[Any], y: NDArray[Any]) -> Table:
        return table_of({**dict(zip(data.feature_names, X.T, strict=True)), "target": y})

    if isinstance(data, Federation):
        rows = zip(data.names, data.X, data.y, strict=True)
        return Tables({name: columns(X, y) for name, X, y in rows}, "target", data.classes)
    classes = None if data.y.dtype.kind == "f" else np.unique(data.y)
    return Tables({"": columns(data.X, data.y)}, "target", classes, False)
