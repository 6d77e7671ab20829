"""The parts of a federation from one table per client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quorate.client_names import ByClient, client_name
from quorate.data import validation as check
from quorate.data.schema import Recipe, Schema
from quorate.data.tables import has_column, numbers, same_columns, table_of


def federation_parts(
    tables: ByClient[Mapping[str, Any]],
    target: str,
    features: Sequence[str] | None,
    sample_weight: str | None,
    columns: Sequence[str],
    classes: Any,
    schema: Any,
    unknown: str = "error",
) -> dict[str, Any]:
    """The arguments of `Federation` from one table per client."""
    if not tables:
        raise ValueError("a federation needs at least one client, got none.")
    whole = {client_name(name): table_of(table) for name, table in tables.items()}
    same_columns({f"client {name!r}": table for name, table in whole.items()})
    first = next(iter(whole.values()))
    roles = {
        target: "the target",
        **({} if sample_weight is None else {sample_weight: "the sample weight"}),
    }
    for name, role in {**dict.fromkeys(columns, "a further column"), **roles}.items():
        has_column(first, name, role)
    if features is None and not isinstance(schema, Schema):
        features = [name for name in first if name not in (target, sample_weight, *columns)]
    for name in features or ():
        has_column(first, name, "a feature")
        if name in roles:
            raise ValueError(
                f"the column {name!r} is {roles[name]} and cannot be a feature as well."
            )
    if not features and not isinstance(schema, Schema):
        raise ValueError(
            "no column is left for the features: the table has"
            f" {check.listed(map(repr, first), 'column')}."
        )
    if schema is None:
        names = tuple(features or ())
        X = [
            np.column_stack([numbers(t, f, f"client {c!r}") for f in names])
            for c, t in whole.items()
        ]
    else:
        if isinstance(schema, Recipe):
            schema = Schema.fit(whole, schema, features=features, target=target, classes=classes)
        X = [
            schema.transform(table, unknown, where=f"client {name!r}")
            for name, table in whole.items()
        ]
        names, classes = schema.feature_names, schema.classes if classes is None else classes
    return {
        "clients": tuple(whole),
        "X": X,
        "y": [table[target] for table in whole.values()],
        "classes": classes,
        "feature_names": names,
        "sample_weight": (
            sample_weight and [numbers(t, sample_weight, f"client {c!r}") for c, t in whole.items()]
        ),
        "columns": {key: [table[key] for table in whole.values()] for key in columns},
        "schema": schema,
    }
