"""The arrays of a federation, made from one table per client."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from bonafed.client_names import ByClient, ClientName, by_position, client_name, closest
from bonafed.data import tables as frames
from bonafed.data import validation as check
from bonafed.data.reading import Reading
from bonafed.data.schema import Categorical, Numeric, Recipe, Schema
from bonafed.data.tables import (
    Table,
    column_names,
    has_column,
    matrix,
    numbers,
    present,
    refined,
    table_of,
)

Name = TypeVar("Name", str, ClientName)
Names = Sequence[str]


class TableOptions(TypedDict, total=False):
    """What `Federation.from_tables` takes beside the tables and their target."""

    features: Sequence[str] | None
    sample_weight: str | None
    columns: Sequence[str]
    classes: ArrayLike | None
    schema: Schema | Recipe | None
    unknown: str
    reading: Reading
    person: str | None
    positive: str | float | None


def codes_of(options: TableOptions) -> list[str]:
    """The columns whose cells are codes, to be read as they are written."""
    schema, person = options.get("schema"), options.get("person")
    codes = [*schema.categorical] if isinstance(schema, Recipe) else []
    if isinstance(schema, Schema):
        codes = [column.name for column in schema.columns if isinstance(column, Categorical)]
    return codes if person is None else [*codes, person]


def tables_of(
    tables: ByClient[Mapping[str, Any]], target: str, reading: Reading, codes: Sequence[str]
) -> dict[ClientName, Table]:
    """The clients' tables by their names as they are kept, read as declared."""
    if not tables:
        raise ValueError("a federation needs at least one client, got none.")
    whole = {
        client_name(name): refined(table_of(table), reading, codes, f"client {name!r}")
        for name, table in tables.items()
    }
    return with_targets(whole, target) if reading.drop_missing_target else whole


def with_targets(tables: Mapping[Name, Table], target: str) -> dict[Name, Table]:
    """The rows with a target, of the clients that have some."""
    kept = {name: present(table, target) for name, table in tables.items()}
    kept = {name: table for name, table in kept.items() if len(next(iter(table.values()), ()))}
    if not kept:
        raise ValueError(f"no row has a target: column {target!r} is empty everywhere.")
    return kept


def federation_parts(
    whole: Mapping[ClientName, Table],
    target: str,
    *,
    features: Sequence[str] | None = None,
    sample_weight: str | None = None,
    columns: Sequence[str] = (),
    classes: ArrayLike | None = None,
    schema: Schema | Recipe | None = None,
    unknown: str = "error",
    person: str | None = None,
    positive: str | float | None = None,
) -> dict[str, Any]:
    """The arguments of `Federation` from one table per client."""
    tables = {f"client {name!r}": table for name, table in whole.items()}
    frames.same_columns(tables)
    first, fitted = next(iter(whole.values())), isinstance(schema, Schema)
    roles = {target: "the target", sample_weight: "the sample weight"}
    roles |= {person: "the person of each row"}
    roles = {name: role for name, role in roles.items() if name is not None}
    if features is not None and first.reading is not None:
        features = first.reading.made(features)
    features = _feature_names(first, roles, features, columns, fitted)
    if isinstance(schema, Recipe):
        schema = Schema.fit(whole, schema, features=features, target=target, classes=classes)
    if schema is not None and classes is None:
        classes = schema.classes
    if schema is not None and positive is not None and classes is not None:
        classes = check.ordered(np.asarray(classes), positive)
        schema = replace(schema, classes=tuple(np.asarray(classes).tolist()))
    declared = classes is not None and np.asarray(classes).dtype.kind != "U"
    plain, weights = features, None
    if schema is not None:
        plain = [column.name for column in schema.columns if isinstance(column, Numeric)]
    frames.check_numbers(whole, plain)
    if sample_weight is not None:
        frames.check_numbers(whole, [sample_weight])
        weights = [numbers(table, sample_weight, where) for where, table in tables.items()]
    make = schema.transform if schema is not None else None
    return {
        "clients": tuple(whole),
        "X": [
            matrix(table, features, where) if make is None else make(table, unknown, where)
            for where, table in tables.items()
        ],
        "y": frames.targets_of(whole, target, declared),
        "classes": classes,
        "feature_names": features if schema is None else schema.feature_names,
        "sample_weight": weights,
        "columns": {key: [table[key] for table in whole.values()] for key in columns},
        "schema": schema,
        "persons": None if person is None else frames.persons_of(whole, person),
        "positive": positive,
    }


def _feature_names(
    table: Table, roles: Mapping[str, str], features: Names | None, columns: Names, fitted: bool
) -> list[str]:
    """The columns that features are made of; a fitted schema names them itself."""
    for name, role in {**dict.fromkeys(columns, "a further column"), **roles}.items():
        has_column(table, name, role)
    if features is None:
        others = [name for name in table if name not in roles and name not in columns]
        features = [] if fitted else others
    for name in features:
        has_column(table, name, "a feature")
        if role := roles.get(name):
            raise ValueError(f"the column {name!r} is {role} and cannot be a feature as well.")
    if not features and not fitted:
        raise ValueError(
            "no column is left for the features: the table has"
            f" {check.listed(map(repr, table), 'column')}."
        )
    return [*features]


# What may stand in the place of arrays: the name of a column of the table X, and one pair (X, y)
# by client name.


def without_column(X: Any, name: str, what: str) -> tuple[Any, Any]:
    """The table X without a column, and the column.

    Raises
    ------
    ValueError
        where X has no named columns, or not this one
    """
    names = column_names(X)
    if names is None:
        raise ValueError(
            f"{what}={name!r} names a column, and X is a {type(X).__name__} without names: give a"
            f" table (pandas, polars, Arrow, a mapping), or {what} with one entry for each row."
        )
    if name not in names:
        raise ValueError(f"{what}={name!r} is not a column of X{closest(name, names)}")
    if isinstance(X, Mapping):
        return {key: column for key, column in X.items() if key != name}, X[name]
    import narwhals as nw

    table: Any = nw.from_native(X, eager_only=True)
    return table.drop(name).to_native(), table.get_column(name).to_native()


def by_client(
    pairs: Mapping[Any, Any],
    feature_names: Any,
    sample_weight: Any,
    columns: Mapping[str, Any] | None,
    persons: Any,
) -> dict[str, Any]:
    """The arguments of `Federation` from ``{client: (X_i, y_i)}``; what else belongs to rows is a
    mapping by client name too.
    """
    clients = tuple(map(client_name, pairs))
    for name, pair in pairs.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(
                f"client {name!r} must be a pair (X, y), got {type(pair).__name__}: for one table"
                " of all clients give y and groups, for tables by client"
                " Federation.from_tables(tables, target)."
            )

    def listed(value: Any, what: str) -> tuple[Any, ...] | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError(f"{what} must be a mapping by client name, as X is.")
        return tuple(map(np.asarray, by_position(value, clients, what).values()))

    X, names = [], feature_names
    for name, (rows, _) in pairs.items():
        if hasattr(rows, "tocsr") or isinstance(rows, np.ndarray | list | tuple):
            X.append(rows)
            continue
        table = table_of(rows)
        names = tuple(names or table)
        if odd := sorted({*table} ^ {*names}):
            raise ValueError(
                f"client {name!r} has other columns than the first one; not in both:"
                f" {check.listed(odd, 'column')}."
            )
        X.append(matrix(table, names, f"client {name!r}"))
    return {
        "clients": clients,
        "X": tuple(X),
        "y": tuple(np.asarray(y) for _, y in pairs.values()),
        "feature_names": None if names is None else tuple(names),
        "sample_weight": listed(sample_weight, "sample_weight"),
        "columns": {k: listed(v, f"columns[{k!r}]") for k, v in (columns or {}).items()},
        "persons": listed(persons, "persons"),
    }
