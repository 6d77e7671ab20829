"""Sensitive features as estimators take them: columns by the names that constraints have for
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.data.tables import table_of
from bonafed.data.validation import listed, missing
from bonafed.problem.constraints.constraint import Stated
from bonafed.problem.constraints.coupled import Coupled

# a table, a mapping of columns by name, or one column
Columns = ArrayLike | Mapping[str, ArrayLike]


def named(stated: list[Stated]) -> list[str]:
    """The columns that constraints name."""
    inner = [part.constraint if isinstance(part, Coupled) else part for part in stated]
    return list(
        dict.fromkeys(
            name for part in inner if isinstance(name := getattr(part, "column", None), str)
        )
    )


def columns_of(
    stated: Columns | None, names: list[str], n: int, features: list[str]
) -> dict[str, NDArray[Any]]:
    """(n,) columns by name from what ``fit`` takes as sensitive features.

    ``names`` are those that constraints name, which must be there or among the ``features``. Of the
    others those with missing values are left out.
    """
    columns = {} if stated is None else _by_name(stated, names)
    for name, column in columns.items():
        if column.shape != (n,):
            raise ValueError(
                f"sensitive_features[{name!r}] must have one entry for each of {n} rows, got shape"
                f" {column.shape}. In cross-validation give a table: a mapping of arrays is not"
                " split."
            )
    if lacking := [name for name in names if name not in columns and name not in features]:
        raise ValueError(
            f"the constraints name the column {lacking[0]!r}, which is neither a feature nor among"
            f" the sensitive features, {list(columns) or 'of which there are none'}: give fit(...,"
            " sensitive_features=...)."
        )
    return {
        name: np.asarray(column.tolist()) if column.dtype.kind == "O" else column
        for name, column in columns.items()
        if _is_whole(name, column, needed=name in names)
    }


def _is_whole(name: str, column: NDArray[Any], needed: bool) -> bool:
    """Whether no value is missing; raises ``ValueError`` where the column is needed."""
    if column.dtype.kind not in "fO":
        return True
    absent = [row for row, value in enumerate(column.tolist()) if missing(value)]
    if absent and needed:
        raise ValueError(
            f"sensitive_features[{name!r}] is missing in {listed(absent, 'row')} (from 0): give"
            " these rows a separate value."
        )
    return not absent


def _by_name(stated: Columns, names: list[str]) -> dict[str, NDArray[Any]]:
    if isinstance(stated, Mapping) or hasattr(stated, "columns"):
        return dict(table_of(stated))
    if np.ndim(stated) != 1:
        raise ValueError(
            f"sensitive_features of shape {np.shape(stated)} have no names: give a table, or a"
            " mapping of arrays by name."
        )
    name = getattr(stated, "name", None) or None
    if name is None and len(names) > 1:
        raise ValueError(
            "sensitive_features is one column without a name, and the constraints name"
            f" {', '.join(names)}: give a table, or a mapping of arrays by name."
        )
    return dict(table_of({str(name or next(iter(names), "sensitive_features")): stated}))
