"""How the features of a model are made from the columns of a table, fitted from sums over the
clients.

    numeric:  x' = (x - centre) / scale,  a missing x becomes the mean;
            categorical: one column per category

    mean = sum_i S_i / sum_i n_i    S_i = sum of client i's values, n_i their number    (first pass)
    sd^2 = sum_i Q_i / sum_i n_i      Q_i = sum of (value - mean)^2 of client i        (second pass)

Sums, counts, and the largest and smallest value are all that leaves a client, and the categories it
has. Squares are centred at the mean of all clients, so that no digits cancel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.client_names import ByClient
from quorate.data import validation as check
from quorate.data.tables import Table, has_column, is_number, numbers, same_columns, table_of, texts

SCALINGS = ("standard", "minmax", "none")


@dataclass(frozen=True)
class Recipe:
    """What to fit.

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
    """First message: which columns hold text, and which hold numbers; both only where declared
    categorical.
    """
    kinds = []
    for name in features:
        cells = table[name]
        text = [v for v in cells if v is not None] if cells.dtype.kind == "O" else []
        odd = [v for v in text if not is_number(v)]
        if odd and len(odd) < len(text) and name not in declared:
            raise ValueError(
                f"{where}: column {name!r} holds {len(text) - len(odd)} numbers, but also text such"
                f" as {odd[0]!r}. Correct these cells, or declare the column:"
                f" Recipe(categorical=({name!r},))."
            )
        kinds.append(
            (
                bool(text),
                bool(len(text) > len(odd) or (cells.dtype.kind != "O" and (cells == cells).any())),
            )
        )
    flags = np.array(kinds, dtype=np.float64).reshape(-1, 2)
    return {"max": {"text": flags[:, 0], "number": flags[:, 1]}}


def client_totals(
    table: Table, numeric: Sequence[str], categorical: Sequence[str], where: str
) -> dict[str, Any]:
    """Second message: counts, sums, extremes, and how often each category occurs."""
    columns = [_finite(table, name, where) for name in numeric]
    sums = {
        "rows": np.array([len(next(iter(table.values())))]),
        "count": np.array([len(v) for v in columns], dtype=np.float64),
        "total": np.array([v.sum() for v in columns]),
    }
    extremes = {
        "high": np.array([v.max(initial=-np.inf) for v in columns]),
        "low": np.array([-v.min(initial=np.inf) for v in columns]),
    }
    return {
        "sum": sums,
        "max": extremes,
        "categories": {name: Counter(texts(table, name, where)) for name in categorical},
    }


def client_squares(table: Table, numeric: Sequence[str], mean: Array, where: str) -> dict[str, Any]:
    """Third message: sums of centred values and of their squares."""
    centred = [_finite(table, name, where) - m for name, m in zip(numeric, mean, strict=True)]
    return {
        "sum": {
            "rest": np.array([c.sum() for c in centred]),
            "squares": np.array([c @ c for c in centred]),
        }
    }


def _finite(table: Table, name: str, where: str) -> Array:
    """The values of a column that are not missing."""
    values = numbers(table, name, where)
    if np.isinf(values).any():
        at = check.listed(np.flatnonzero(np.isinf(values)), "row")
        raise ValueError(
            f"{where}: column {name!r} is infinite in {at} (from 0). Correct these cells."
        )
    check.in_range(values[~np.isnan(values)], f"{where}: column {name!r}")
    return values[~np.isnan(values)]


def combine(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the server receives: sums, largest values, and categories counted over all clients."""
    sums = {
        key: np.sum([part["sum"][key] for part in parts], axis=0) for key in parts[0].get("sum", {})
    }
    most = {
        key: np.max([part["max"][key] for part in parts], axis=0) for key in parts[0].get("max", {})
    }
    names = parts[0].get("categories", {})
    return {
        **sums,
        **most,
        "categories": {n: sum((part["categories"][n] for part in parts), Counter()) for n in names},
    }


# -------------------------------------------------------------------- the schema


@dataclass(frozen=True)
class Schema:
    """Columns in the order of the features; target and classes are those of the training data.

    ``fitted``: scale and categories were read off rows, whom they tell about; a private run refuses
    them.
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
        classes: Any = None,
    ) -> Schema:
        """Fit over the clients' tables (a mapping by name or a sequence) from three rounds of sums.

        ``features`` defaults to all columns but the target. Raises ValueError for columns that
        differ between clients, that mix numbers and text without being declared categorical, or
        that have no value at any client.
        """
        recipe = recipe or Recipe()
        named = (
            tables
            if isinstance(tables, Mapping)
            else {str(k): table for k, table in enumerate(tables)}
        )
        clients = {f"client {name!r}": table_of(table) for name, table in named.items()}
        same_columns(clients)
        first = next(iter(clients.values()))
        chosen = [name for name in first if name != target] if features is None else list(features)
        if target in chosen:
            raise ValueError(
                f"the column {target!r} is the target and cannot be a feature as well: take it off"
                " features."
            )
        if not chosen:
            raise ValueError("no column is left for the features: give at least one.")
        for name in (
            *chosen,
            *recipe.categorical,
            *recipe.units,
            *([] if target is None else [target]),
        ):
            has_column(first, name, "in the schema")
        if classes is None and target is not None:
            found = check.same_type(
                [check.targets(t[target], c) for c, t in clients.items()], tuple(clients)
            )
            classes = check.classes(found, None, tuple(clients))
        codes = _codes(
            combine([client_kinds(t, chosen, recipe.categorical, c) for c, t in clients.items()]),
            chosen,
            recipe,
        )
        plain = [name for name in chosen if name not in codes]
        totals = combine(
            [client_totals(table, plain, codes, where) for where, table in clients.items()]
        )
        empty = [name for name, count in zip(plain, totals["count"], strict=True) if count == 0]
        if empty:
            raise ValueError(
                f"{check.listed(map(repr, empty), 'column')}: no value at any client. Use"
                " features=... without."
            )
        mean = totals["total"] / totals["count"]
        squares = combine(
            [client_squares(table, plain, mean, where) for where, table in clients.items()]
        )
        fitted = _numeric(plain, totals, squares, mean, recipe) | _categorical(
            codes, totals, recipe
        )
        known = None if classes is None else tuple(np.asarray(classes).tolist())
        return cls(tuple(fitted[name] for name in chosen), target, known, fitted=True)

    def public(self) -> Schema:
        """The same, said to come from rows that are nobody's secret, so that private runs may use
        it.
        """
        return replace(self, fitted=False)

    def transform(self, table: Any, unknown: str = "error", where: str = "the table") -> Array:
        """(m, d) features of a table; columns that the schema does not name are ignored.

        ``unknown``: what to do with a category that was not in the data of the fit: "error" lists
        them, "ignore" gives zeros. Missing numbers become the mean over the clients.
        """
        if unknown not in ("error", "ignore"):
            raise ValueError(f"unknown must be 'error' or 'ignore', got {unknown!r}.")
        table = table_of(table)
        for column in self.columns:
            has_column(table, column.name, "a column of the model's schema")
        m = len(next(iter(table.values()), ()))
        X, at = np.zeros((m, len(self.feature_names))), 0
        for column in self.columns:
            part = X[:, at : at + len(column.feature_names)]
            at += part.shape[1]
            if isinstance(column, Numeric):
                _fill_numeric(part, column, table, where)
            else:
                _fill_categorical(part, column, table, where, unknown)
        return X

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for JSON; floating-point numbers survive the way there and back exactly."""
        columns = [
            {"kind": type(column).__name__.lower(), **asdict(column)} for column in self.columns
        ]
        return {
            "version": 1,
            "columns": [
                {k: list(v) if isinstance(v, tuple) else v for k, v in c.items()} for c in columns
            ],
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
            columns = tuple(
                kinds[c["kind"]](
                    **{
                        k: tuple(v) if isinstance(v, list) else v
                        for k, v in c.items()
                        if k != "kind"
                    }
                )
                for c in data["columns"]
            )
            classes = None if data["classes"] is None else tuple(data["classes"])
            return cls(columns, data["target"], classes, bool(data.get("fitted", True)))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no schema written by quorate: {error!r}.") from error


def _codes(kinds: Mapping[str, Any], features: Sequence[str], recipe: Recipe) -> list[str]:
    """The categorical columns: those declared, and those of text."""
    both = [
        name for name, t, n in zip(features, kinds["text"], kinds["number"], strict=True) if t and n
    ]
    odd = [repr(name) for name in both if name not in recipe.categorical]
    if odd:
        raise ValueError(
            f"{check.listed(odd, 'column')}: numbers at some clients, text at others. Correct the"
            " cells, or declare the column in Recipe(categorical=...)."
        )
    return [
        name
        for name, text in zip(features, kinds["text"], strict=True)
        if text or name in recipe.categorical
    ]


def _numeric(
    names: Sequence[str], totals: Any, squares: Any, mean: Array, recipe: Recipe
) -> dict[str, Any]:
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


def _categorical(names: Sequence[str], totals: Any, recipe: Recipe) -> dict[str, Any]:
    counts = {name: totals["categories"][name] for name in names}
    for name, found in counts.items():
        if len(found) > recipe.max_categories:
            raise ValueError(
                f"column {name!r} has {len(found)} categories, more than"
                f" max_categories={recipe.max_categories}. Leave it out (features=...), or raise"
                " max_categories in the Recipe."
            )
    return {
        name: Categorical(
            name,
            tuple(sorted(c for c in found if c is not None)),
            None in found,
            recipe.units.get(name),
        )
        for name, found in counts.items()
    }


def _fill_numeric(part: Array, column: Numeric, table: Table, where: str) -> None:
    _finite(table, column.name, where)
    values = numbers(table, column.name, where)
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
    odd = sorted({"a missing value" if v is None else repr(v) for v in values if v not in position})
    if odd and unknown == "error":
        raise ValueError(
            f"{where}: column {column.name!r} holds {', '.join(odd[:10])}, which the training data"
            f" did not; it had {', '.join(map(repr, column.categories[:20]))}. Correct them, or use"
            " unknown='ignore' (quorate predict --unknown ignore) for zeros."
        )
    at = np.array([position.get(v, -1) for v in values], dtype=np.intp)
    part[np.flatnonzero(at >= 0), at[at >= 0]] = 1.0
