"""What is wrong with a table or its labels where scikit-learn refuses them: which cells, in which
columns and rows, and what to do.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from bonafed.data.arguments import column_names
from bonafed.data.row_errors import RowError, RowErrors, listed
from bonafed.data.tables import is_number
from bonafed.data.validation import missing

Cell = Callable[[Any], bool]
DATES = datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64


def faulty_cells(X: Any, error: Exception) -> RowError | None:
    """Text, dates and missing values where numbers are needed; None where there are none of them.
    ``error`` is what was raised.
    """
    if issparse(X):
        return None
    names, cells = column_names(X), _cells(X)
    if cells.ndim != 2:
        return None
    shown = f" ({str(error).splitlines()[0]})" if str(error) else ""
    kinds = (
        ("there is text where numbers are needed", shown, _is_text, ENCODE),
        ("there are dates where numbers are needed", "", _is_date, DATE),
        ("values are missing (NaN)", "", missing, FILL),
    )
    errors = []
    for what, more, test, do in kinds:
        odd = np.array([[test(cell) for cell in row] for row in cells], bool).reshape(cells.shape)
        if odd.any():
            columns = np.flatnonzero(odd.any(0)).tolist()
            named = [repr(str(names[j])) for j in columns] if names else columns
            what = f"{what} in {listed(named, 'column')}"
            rows = np.flatnonzero(odd.any(1)).tolist()
            errors.append(RowError("X", what, shown=more, rows=rows, do=do))
    if len(errors) < 2:
        return errors[0] if errors else None
    return RowErrors(errors)


ENCODE = "Correct these cells, or encode the column as numbers, such as by OneHotEncoder()."
DATE = "Make numbers of them, such as days since a date."
FILL = "Fill them in, such as by SimpleImputer() in a pipeline, or leave these rows out."


def _cells(X: Any) -> NDArray[Any]:
    """(n, d) of objects."""
    if hasattr(X, "to_numpy"):  # frames: numbers stay apart from dates
        columns = [X[name] for name in column_names(X) or ()]
        lists = [each.to_list() if hasattr(each, "to_list") else [*each] for each in columns]
        return np.array([*zip(*lists, strict=True)], dtype=object).reshape(-1, len(lists))
    return np.asarray(X, dtype=object)


def _is_text(cell: object) -> bool:
    return isinstance(cell, str | bytes) and not is_number(cell)


def _is_date(cell: object) -> bool:
    return isinstance(cell, DATES) and not missing(cell)


def check_labels(y: Any, numbers: bool) -> None:
    """Raise ``RowError`` where entries of y are missing, of several types, or no numbers where
    these are needed.
    """
    if issparse(y):
        return
    array = np.asarray(y)
    if array.dtype.kind in "fOUT" and array.ndim in (1, 2):
        for error in _faulty_labels(array.ravel(), numbers):
            raise error


def _faulty_labels(y: NDArray[Any], numbers: bool) -> Iterator[RowError]:
    number = y.dtype.kind == "f"
    absent: list[int] = (
        np.flatnonzero(np.isnan(y)).tolist()
        if number
        else [r for r, v in enumerate(y) if missing(v)]
    )
    cells = [] if number else y.tolist()
    if absent:
        what = "entries are missing (NaN or None)"
        yield RowError("y", what, rows=absent, do="Leave these rows out.")
    odd = [r for r, cell in enumerate(cells) if _is_text(cell)]
    if numbers and odd:
        do = "Correct these entries; for classes use a classifier."
        yield RowError("y", "there is text where numbers are needed", rows=odd, do=do)
    texts = [r for r, cell in enumerate(cells) if isinstance(cell, str)]
    if not numbers and 0 < len(texts) < len(cells):
        what = "text stands among labels of other types"
        yield RowError("y", what, rows=texts, do="Give all of them one type, such as text.")
