"""Sensitive features as estimators take them: columns by the names that constraints have for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.data.rows import listed, missing
from quorate.data.tables import table_of
from quorate.problem.constraints.coupled import Coupled


def named(stated: list[Any]) -> list[str]:
    """The columns that constraints name."""
    inner = [part.constraint if isinstance(part, Coupled) else part for part in stated]
    return list(dict.fromkeys(name for part in inner if isinstance(name := getattr(part, "column", None), str)))


def columns_of(given: Any, names: list[str], n: int) -> dict[str, NDArray[Any]]:
    """(n,) columns by name from what ``fit`` takes as sensitive features; ``names`` are those that constraints name."""
    if given is None:
        return {}
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        found = table_of(given)
    elif np.ndim(given) != 1:
        raise ValueError(
            f"sensitive_features of shape {np.shape(given)} have no names: give a table, or a mapping of arrays by "
            "name."
        )
    else:
        own = getattr(given, "name", None) or None
        if own is None and len(names) > 1:
            raise ValueError(
                f"sensitive_features is one column without a name, and the constraints name {', '.join(names)}: give a "
                "table, or a mapping of arrays by name."
            )
        found = table_of({str(own or next(iter(names), "sensitive_features")): given})
    return {name: _checked(name, column, n) for name, column in found.items()}


def _checked(name: str, column: NDArray[Any], n: int) -> NDArray[Any]:
    if column.shape != (n,):
        raise ValueError(
            f"sensitive_features[{name!r}] must have one entry for each of {n} rows, got shape {column.shape}. In "
            "cross-validation give a table: a mapping of arrays is not split."
        )
    if absent := [r for r, value in enumerate(column.tolist()) if missing(value)]:
        raise ValueError(
            f"sensitive_features[{name!r}] is missing in {listed(absent, 'row')} (from 0): give these rows a value of "
            "their own."
        )
    return np.asarray(column.tolist()) if column.dtype.kind == "O" else column
