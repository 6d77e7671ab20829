"""How the features of a model are made from the columns of a table, fitted from sums over the
clients.

    numeric:      x' = (x - centre) / scale,  a missing x becomes the mean
    categorical:  one column per category

    mean = sum_i S_i / sum_i n_i    S_i = sum of client i's values, n_i their number    (first pass)
    sd^2 = sum_i Q_i / sum_i n_i      Q_i = sum of (value - mean)^2 of client i        (second pass)

Sums, counts, and the largest and smallest value are all that leaves a client, and the categories it
has. Squares are centred at the mean of all clients, so that no digits cancel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from quorate.arrays import Array
from quorate.client_names import ByClient, ClientName
from quorate.data import validation as check
from quorate.data.row_errors import RowError
from quorate.data.tables import (
    Table,
    check_numbers,
    has_column,
    numbers,
    odd_rows,
    same_columns,
    table_of,
    targets_of,
    texts,
)

SMALL = 2**16  # cells of a table whose columns are taken together
SCALINGS = ("standard", "minmax", "none")


@dataclass(frozen=True)
class Recipe:
    """How a schema is fitted.

    Parameters
    ----------
    scaling : "standard" (mean 0, standard deviation 1), "minmax" (to [0, 1]) or "none", for the
        numeric columns
    categorical : columns of numbers that are codes; columns of text are categorical anyway
    indicators : add a 0/1 feature "<column> is missing" for each numeric column with missing values
    units : ``{column: unit}``, kept for reports
    max_categories : more in one column are refused: it is likely a name, a date or an identifier
    """

    scaling: str = "standard"
    categorical: tuple[str, ...] = ()
    indicators: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    max_categories: int = 100

    def __post_init__(self) -> None:
        if self.scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {SCALINGS}, got {self.scaling!r}.")


@dataclass(frozen=True)
class Numeric:
    """x' = (x - centre) / scale; a missing x becomes ``mean``."""

    name: str
    mean: float
    centre: float
    scale: float
    indicator: bool = False
    unit: str | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)


@dataclass(frozen=True)
class Categorical:
    """One 0/1 feature per category, and one for missing values where there were any."""

    name: str
    categories: tuple[str, ...]
    missing: bool = False
    unit: str | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        return (
            tuple(f"{self.name}={c}" for c in self.categories)
            + (f"{self.name} is missing",) * self.missing
        )


# -------------------------------------------------------------------- what a client computes


def client_kinds(
    table: Table, features: Sequence[str], declared: Sequence[str], where: str
) -> dict[str, Any]:
    """The first message of a client: which columns hold text, and which hold numbers. Both are
    allowed only where the column is declared categorical.
    """
    kinds = []
    for name in features:
        cells = table[name]
        if cells.dtype.kind != "O":
            kinds.append((False, bool((cells == cells).any())))
            continue
        text, odd = sum(v is not None for v in cells), odd_rows(cells)
        if odd and len(odd) < text and name not in declared:
            raise RowError(
                where,
                f"column {name!r} holds numbers, but also text",
                shown=f" such as {cells[odd[0]]!r}",
                rows=odd,
                do=f"Correct these cells, or declare the column: Recipe(categorical=({name!r},)).",
                place=table.place,
            )
        kinds.append((text > 0, text > len(odd)))
    flags = np.array(kinds, dtype=np.float64).reshape(-1, 2)
    return {"max": {"text": flags[:, 0], "number": flags[:, 1]}}


def client_totals(
    table: Table, numeric: Sequence[str], categorical: Sequence[str], where: str
) -> dict[str, Any]:
    """The second message: counts, sums, extremes, and how often each category occurs."""
    rows, whole = len(next(iter(table.values()))), _side_by_side(table, numeric, where)
    if whole is not None:
        count, total = np.full(len(whole), float(rows)), whole.sum(axis=1)
        high, low = whole.max(axis=1), -whole.min(axis=1)
    else:
        columns = [_finite(table, name, where) for name in numeric]
        count = np.array([len(v) for v in columns], dtype=np.float64)
        total = np.array([v.sum() for v in columns])
        high = np.array([v.max(initial=-np.inf) for v in columns])
        low = np.array([-v.min(initial=np.inf) for v in columns])
    sums = {"rows": np.array([rows]), "count": count, "total": total}
    extremes = {"high": high, "low": low}
    return {
        "sum": sums,
        "max": extremes,
        "categories": {name: Counter(texts(table, name, where)) for name in categorical},
    }


def client_squares(table: Table, numeric: Sequence[str], mean: Array, where: str) -> dict[str, Any]:
    """The third message: sums of centred values and of their squares."""
    whole = _side_by_side(table, numeric, where)
    columns = whole if whole is not None else [_finite(table, name, where) for name in numeric]
    centred = [column - m for column, m in zip(columns, mean, strict=True)]
    return {
        "sum": {
            "rest": np.array([c.sum() for c in centred]),
            "squares": np.array([c @ c for c in centred]),
        }
    }


def _side_by_side(table: Table, names: Sequence[str], where: str) -> Array | None:
    """(d, m) columns of a small table without missing values, which spare clients of few rows a
    call for each column; else None.
    """
    columns = [numbers(table, name, where) for name in names]
    if not columns or not 0 < len(columns) * len(columns[0]) <= SMALL:
        return None
    values = np.array(columns)
    return values if abs(values).max() <= check.EXTREME else None


def _finite(table: Table, name: str, where: str) -> Array:
    """The values of a column that are not missing."""
    return _present(table, name, where, numbers(table, name, where))


def _present(table: Table, name: str, where: str, values: Array) -> Array:
    """The values that are not missing, which are finite and in range."""
    absent = np.isnan(values)
    present = values[~absent] if absent.any() else values
    if present.size and not abs(present).max() <= check.EXTREME:
        if rows := np.flatnonzero(np.isinf(values)).tolist():
            what, do = f"column {name!r} is infinite", "Correct these cells."
            raise RowError(where, what, rows=rows, do=do, place=table.place)
        rows = np.flatnonzero(~absent)
        check.in_range(present, where, f"column {name!r}", rows=rows, place=table.place)
    return present


def combine(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the server receives: sums, largest values, and categories counted over all clients."""
    combined = {}
    for kind, reduce in (("sum", np.sum), ("max", np.max)):
        for key in parts[0].get(kind, {}):
            combined[key] = reduce([part[kind][key] for part in parts], axis=0)
    names = parts[0].get("categories", {})
    counts = {n: sum((part["categories"][n] for part in parts), Counter()) for n in names}
    return {**combined, "categories": counts}


# -------------------------------------------------------------------- the schema


@dataclass(frozen=True)
class Schema:
    """How every feature is made, in the order of the features; target and classes are those of the
    training data.

    ``fitted``: scale and categories were read off rows and disclose something about them, so that a
    private run refuses the schema.
    """

    columns: tuple[Numeric | Categorical, ...]
    target: str | None = None
    classes: tuple[Any, ...] | None = None
    fitted: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name per feature: "age", "sex=f", "age is missing"."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @classmethod
    def fit(
        cls,
        tables: ByClient[Any] | Sequence[Any],
        recipe: Recipe | None = None,
        *,
        features: Sequence[str] | None = None,
        target: str | None = None,
        classes: ArrayLike | None = None,
    ) -> Schema:
        """The schema of the clients' tables (a mapping by name or a sequence), from three rounds of
        sums.

        ``features`` defaults to all columns but the target. Raises ValueError for columns that
        differ between clients, that mix numbers and text without being declared categorical, or
        that have no value at any client.
        """
        recipe = recipe or Recipe()
        if not isinstance(tables, Mapping):
            tables = {str(k): table for k, table in enumerate(tables)}
        by_name = {name: table_of(table) for name, table in tables.items()}
        clients = {f"client {name!r}": table for name, table in by_name.items()}
        same_columns(clients)
        chosen = _chosen(next(iter(clients.values())), features, target, recipe)
        if classes is None and target is not None:
            y = targets_of(by_name, target)
            classes = check.classes(y, None, [*by_name])
        kinds = [client_kinds(t, chosen, recipe.categorical, c) for c, t in clients.items()]
        codes = _codes(combine(kinds), chosen, recipe, by_name)
        plain = [name for name in chosen if name not in codes]
        totals = combine([client_totals(t, plain, codes, c) for c, t in clients.items()])
        mean = _means(plain, totals)
        squares = combine([client_squares(t, plain, mean, c) for c, t in clients.items()])
        columns: dict[str, Numeric | Categorical] = {
            **_numeric(plain, totals, squares, mean, recipe),
            **_categorical(codes, totals, recipe),
        }
        known = None if classes is None else tuple(np.asarray(classes).tolist())
        return cls(tuple(columns[name] for name in chosen), target, known, fitted=True)

    def public(self) -> Schema:
        """The same schema, declared to come from rows that are nobody's secret, so that private
        runs may use it.
        """
        return replace(self, fitted=False)

    def transform(self, table: object, unknown: str = "error", where: str = "the table") -> Array:
        """(m, d) features of a table; columns that the schema does not name are ignored.

        ``unknown``: what to do with a category that was not in the data of the fit: "error" lists
        them, "ignore" gives zeros. Missing numbers become the mean over the clients.
        """
        if unknown not in ("error", "ignore"):
            raise ValueError(f"unknown must be 'error' or 'ignore', got {unknown!r}.")
        cells = table_of(table)
        for column in self.columns:
            has_column(cells, column.name, "a column of the model's schema")
        m = len(next(iter(cells.values()), ()))
        X, at = np.zeros((m, len(self.feature_names))), 0
        plain = [c for c in self.columns if isinstance(c, Numeric) and not c.indicator]
        whole = _side_by_side(cells, [c.name for c in plain], where)
        scaled: Iterator[Array] | None = None
        if whole is not None:
            centre, scale = (np.array([getattr(c, k) for c in plain]) for k in ("centre", "scale"))
            scaled = iter((whole - centre[:, None]) / scale[:, None])
        for column in self.columns:
            part = X[:, at : at + len(column.feature_names)]
            at += part.shape[1]
            if isinstance(column, Numeric):
                if scaled is not None and not column.indicator:
                    part[:, 0] = next(scaled)
                else:
                    _fill_numeric(part, column, cells, where)
            else:
                _fill_categorical(part, column, cells, where, unknown)
        return X

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for JSON; floating-point numbers survive the way there and back exactly."""
        columns = [
            {"kind": type(column).__name__.lower(), **asdict(column)} for column in self.columns
        ]
        for column in columns:
            if "categories" in column:
                column["categories"] = list(column["categories"])
        return {
            "version": 1,
            "columns": columns,
            "target": self.target,
            "classes": None if self.classes is None else list(self.classes),
            "fitted": self.fitted,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """The inverse of `to_dict`."""
        if data.get("version") != 1:
            raise ValueError(
                f"this quorate reads schemas of version 1, got {data.get('version')!r}. Update"
                " quorate."
            )
        kinds = {"numeric": Numeric, "categorical": Categorical}
        try:
            columns = []
            for column in data["columns"]:
                fields = {k: tuple(v) if isinstance(v, list) else v for k, v in column.items()}
                del fields["kind"]
                columns.append(kinds[column["kind"]](**fields))
            classes = None if data["classes"] is None else tuple(data["classes"])
            return cls(tuple(columns), data["target"], classes, bool(data.get("fitted", True)))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no schema written by quorate: {error!r}.") from error


def _chosen(
    table: Table, features: Sequence[str] | None, target: str | None, recipe: Recipe
) -> list[str]:
    """The columns that features are made of: those asked for, else all but the target."""
    chosen = [name for name in table if name != target] if features is None else list(features)
    if target in chosen:
        raise ValueError(
            f"the column {target!r} is the target and cannot be a feature as well: take it off"
            " features."
        )
    if not chosen:
        raise ValueError("no column is left for the features: give at least one.")
    named = (*chosen, *recipe.categorical, *recipe.units, *([] if target is None else [target]))
    for name in named:
        has_column(table, name, "in the schema")
    return chosen


def _codes(
    kinds: Mapping[str, Any],
    features: Sequence[str],
    recipe: Recipe,
    tables: Mapping[ClientName, Table],
) -> list[str]:
    """The categorical columns: those declared, and those of text."""
    flags = zip(features, kinds["text"], kinds["number"], strict=True)
    odd = [name for name, text, number in flags if text and number]
    if odd := [name for name in odd if name not in recipe.categorical]:
        check_numbers(tables, odd, some=True)
        text = [repr(client) for client, table in tables.items() if odd_rows(table[odd[0]])]
        raise ValueError(
            f"{check.listed(map(repr, odd), 'column')}: numbers at some clients, text at others"
            f" ({check.listed(text, 'client')}). Correct the cells, or declare the column in"
            " Recipe(categorical=...)."
        )
    return [
        name
        for name, text in zip(features, kinds["text"], strict=True)
        if text or name in recipe.categorical
    ]


def _means(names: Sequence[str], totals: Mapping[str, Array]) -> Array:
    """The mean of every numeric column over all clients; a column without any value is refused."""
    empty = [name for name, count in zip(names, totals["count"], strict=True) if count == 0]
    if empty:
        raise ValueError(
            f"{check.listed(map(repr, empty), 'column')}: no value at any client. Use"
            " features=... without."
        )
    return totals["total"] / totals["count"]


def _numeric(
    names: Sequence[str],
    totals: Mapping[str, Array],
    squares: Mapping[str, Array],
    mean: Array,
    recipe: Recipe,
) -> dict[str, Numeric]:
    """The numeric columns, scaled as the recipe says."""
    n = totals["count"]
    # the rest is rounding of the mean
    variance = np.maximum(squares["squares"] - squares["rest"] ** 2 / n, 0.0) / n
    ones = np.ones_like(mean)
    centre, scale = {
        "standard": (mean, np.sqrt(variance)),
        "minmax": (-totals["low"], totals["high"] + totals["low"]),
        "none": (0 * ones, ones),
    }[recipe.scaling]
    # a constant column stays constant
    scale = np.where((scale > 0) & (totals["high"] > -totals["low"]), scale, 1.0)
    absent = recipe.indicators & (n < totals["rows"])
    rows = zip(names, mean.tolist(), centre.tolist(), scale.tolist(), absent.tolist(), strict=True)
    return {row[0]: Numeric(*row, unit=recipe.units.get(row[0])) for row in rows}


def _categorical(
    names: Sequence[str], totals: Mapping[str, Any], recipe: Recipe
) -> dict[str, Categorical]:
    """The categorical columns, with the categories of all clients."""
    columns = {}
    for name in names:
        counts = totals["categories"][name]
        if len(counts) > recipe.max_categories:
            raise ValueError(
                f"column {name!r} has {len(counts)} categories, more than"
                f" max_categories={recipe.max_categories}. Leave it out (features=...), or raise"
                " max_categories in the Recipe."
            )
        known = tuple(sorted(category for category in counts if category is not None))
        columns[name] = Categorical(name, known, None in counts, recipe.units.get(name))
    return columns


def _fill_numeric(part: Array, column: Numeric, table: Table, where: str) -> None:
    values = numbers(table, column.name, where)
    _present(table, column.name, where, values)
    absent = np.isnan(values)
    part[:, 0] = (np.where(absent, column.mean, values) - column.centre) / column.scale
    if column.indicator:
        part[:, 1] = absent


def _fill_categorical(
    part: Array, column: Categorical, table: Table, where: str, unknown: str
) -> None:
    position: dict[str | None, int] = {c: k for k, c in enumerate(column.categories)}
    position |= {None: len(column.categories)} if column.missing else {}
    values = texts(table, column.name, where)
    rows = [r for r, v in enumerate(values) if v not in position] if unknown == "error" else []
    if rows:
        odd = sorted({"a missing value" if values[r] is None else repr(values[r]) for r in rows})
        known = ", ".join(map(repr, column.categories[:20]))
        raise RowError(
            where,
            f"column {column.name!r} holds what the training data did not ({known})",
            shown=f": {', '.join(odd[:10])}",
            rows=rows,
            do="Correct them, or use unknown='ignore' (quorate predict --unknown ignore) for"
            " zeros.",
            place=table.place,
        )
    at = np.array([position.get(v, -1) for v in values], dtype=np.intp)
    part[np.flatnonzero(at >= 0), at[at >= 0]] = 1.0
