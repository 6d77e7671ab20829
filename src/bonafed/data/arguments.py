"""What may stand in the place of arrays: the name of a column of the table X, and one pair (X, y)
by client name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bonafed.client_names import by_position, client_name, closest
from bonafed.data import validation as check
from bonafed.data.tables import matrix, table_of


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


def column_names(X: Any) -> list[str] | None:
    """The names of the columns of a table; None where X has none."""
    if isinstance(X, Mapping):
        return [*X]
    names = getattr(X, "column_names", getattr(X, "columns", None))
    return None if names is None else [*names]


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
        return tuple(np.asarray(part) for part in by_position(value, clients, what).values())

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
