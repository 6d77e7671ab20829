"""The arrays of a federation, made from one table per client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from quorate.arrays import Array
from quorate.client_names import ByClient, ClientName, client_name
from quorate.data import validation as check
from quorate.data.schema import Numeric, Recipe, Schema
from quorate.data.tables import (
    Table,
    check_numbers,
    has_column,
    matrix,
    numbers,
    same_columns,
    table_of,
    targets_of,
)


class TableOptions(TypedDict, total=False):
    """What `Federation.from_tables` takes beside the tables and their target."""

    features: Sequence[str] | None
    sample_weight: str | None
    columns: Sequence[str]
    classes: ArrayLike | None
    schema: Schema | Recipe | None
    unknown: str


def tables_of(tables: ByClient[Mapping[str, Any]]) -> dict[ClientName, Table]:
    """The clients' tables by their names as they are kept."""
    if not tables:
        raise ValueError("a federation needs at least one client, got none.")
    return {client_name(name): table_of(table) for name, table in tables.items()}


def federation_parts(
    whole: Mapping[ClientName, Table],
    target: str,
    features: Sequence[str] | None,
    sample_weight: str | None,
    columns: Sequence[str],
    classes: ArrayLike | None,
    schema: Schema | Recipe | None,
    unknown: str = "error",
) -> dict[str, Any]:
    """The arguments of `Federation` from one table per client."""
    same_columns({f"client {name!r}": table for name, table in whole.items()})
    first, fitted = next(iter(whole.values())), isinstance(schema, Schema)
    names = _feature_names(first, target, features, sample_weight, columns, fitted)
    if isinstance(schema, Recipe):
        schema = Schema.fit(whole, schema, features=names, target=target, classes=classes)
    if schema is not None and classes is None:
        classes = schema.classes
    declared = classes is not None and np.asarray(classes).dtype.kind != "U"
    if schema is None:
        check_numbers(whole, names)
    else:
        check_numbers(whole, [c.name for c in schema.columns if isinstance(c, Numeric)])
    weights = None
    if sample_weight is not None:
        check_numbers(whole, [sample_weight])
        weights = [numbers(t, sample_weight, f"client {name!r}") for name, t in whole.items()]
    return {
        "clients": tuple(whole),
        "X": _rows(whole, names, schema, unknown),
        "y": targets_of(whole, target, declared),
        "classes": classes,
        "feature_names": names if schema is None else schema.feature_names,
        "sample_weight": weights,
        "columns": {key: [table[key] for table in whole.values()] for key in columns},
        "schema": schema,
    }


def _feature_names(
    table: Table,
    target: str,
    features: Sequence[str] | None,
    sample_weight: str | None,
    columns: Sequence[str],
    fitted: bool,
) -> list[str]:
    """The columns that features are made of; a fitted schema names them itself."""
    roles = {target: "the target"}
    if sample_weight is not None:
        roles[sample_weight] = "the sample weight"
    for name, role in {**dict.fromkeys(columns, "a further column"), **roles}.items():
        has_column(table, name, role)
    if features is None:
        others = [name for name in table if name not in roles and name not in columns]
        features = [] if fitted else others
    for name in features:
        has_column(table, name, "a feature")
        if name in roles:
            raise ValueError(
                f"the column {name!r} is {roles[name]} and cannot be a feature as well."
            )
    if not features and not fitted:
        raise ValueError(
            "no column is left for the features: the table has"
            f" {check.listed(map(repr, table), 'column')}."
        )
    return [*features]


def _rows(
    tables: Mapping[ClientName, Table],
    features: Sequence[str],
    schema: Schema | None,
    unknown: str,
) -> list[Array]:
    """The features of every client: columns of numbers, or what a schema makes of the table."""
    named = {f"client {name!r}": table for name, table in tables.items()}
    if schema is None:
        return [matrix(table, features, where) for where, table in named.items()]
    return [schema.transform(table, unknown, where=where) for where, table in named.items()]
