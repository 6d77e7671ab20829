"""Sensitive features as estimators take them: columns by the names that constraints have for
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.data.tables import table_of
from quorate.data.validation import listed, missing
from quorate.problem.constraints.coupled import Coupled


def named(stated: list[Any]) -> list[str]:
    """The columns that constraints name."""
    inner = [part.constraint if isinstance(part, Coupled) else part for part in stated]
    return list(
        dict.fromkeys(
            name for part in inner if isinstance(name := getattr(part, "column", None), str)
        )
    )


def columns_of(
    given: Any, names: list[str], n: int, features: list[str]
) -> dict[str, NDArray[Any]]:
    """(n,) columns by name from what ``fit`` takes as sensitive features.

    ``names`` are those that constraints name, which must be there or among the ``features``. Of the
    others those with missing values are left out.
    """
    found = {} if given is None else _by_name(given, names)
    for name, column in found.items():
        if column.shape != (n,):
            raise ValueError(
                f"sensitive_features[{name!r}] must have one entry for each of {n} rows, got shape"
                f" {column.shape}. In cross-validation give a table: a mapping of arrays is not"
                " split."
            )
    if lacking := [name for name in names if name not in found and name not in features]:
        raise ValueError(
            f"the constraints name the column {lacking[0]!r}, which is neither a feature nor among"
            f" the sensitive features, {list(found) or 'of which there are none'}: give fit(...,"
            " sensitive_features=...)."
        )
    absent = {name: _missing(column) for name, column in found.items()}
    if bad := next((name for name in names if absent.get(name)), None):
        raise ValueError(
            f"sensitive_features[{bad!r}] is missing in {listed(absent[bad], 'row')} (from 0): give"
            " these rows a value of their own."
        )
    whole = {name: column for name, column in found.items() if not absent[name]}
    return {name: np.asarray(c.tolist()) if c.dtype.kind == "O" else c for name, c in whole.items()}


def _by_name(given: Any, names: list[str]) -> dict[str, NDArray[Any]]:
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        return dict(table_of(given))
    if np.ndim(given) != 1:
        raise ValueError(
            f"sensitive_features of shape {np.shape(given)} have no names: give a table, or a"
            " mapping of arrays by name."
        )
    own = getattr(given, "name", None) or None
    if own is None and len(names) > 1:
        raise ValueError(
            "sensitive_features is one column without a name, and the constraints name"
            f" {', '.join(names)}: give a table, or a mapping of arrays by name."
        )
    return dict(table_of({str(own or next(iter(names), "sensitive_features")): given}))


def _missing(column: NDArray[Any]) -> list[int]:
    return (
        [r for r, value in enumerate(column.tolist()) if missing(value)]
        if column.dtype.kind in "fO"
        else []
    )
