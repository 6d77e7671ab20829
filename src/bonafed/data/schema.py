"""How the features of a model are made from the columns of a table, fitted from sums over the
clients.

    numeric:      x' = (x - centre) / scale,  a missing x becomes the mean
    categorical:  one column per category

    mean = sum_i S_i / sum_i n_i    S_i = sum of client i's values, n_i their number    (first pass)
    sd^2 = sum_i Q_i / sum_i n_i      Q_i = sum of (value - mean)^2 of client i        (second pass)

Sums, counts, and the largest and smallest value are all that leaves a client, and the categories it
has. Squares are centred at the mean of all clients, so that no digits cancel.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array
from bonafed.client_names import ByClient
from bonafed.data import tables as frames
from bonafed.data import validation as check
from bonafed.data.reading import KINDS, PLAIN, Reading
from bonafed.data.row_errors import Faults, RowError
from bonafed.data.tables import Table, has_column, numbers, odd_rows, refined, table_of, texts

Names = Sequence[str]  # of columns
SMALL = 2**16  # cells of a table whose columns are taken together
LARGEST = ("text", "number", "high", "low")  # of what clients send: the largest counts, no sum
PEOPLE = 10  # rows below which categories of many digits are persons
OTHER = "other"  # the category of rare ones
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
    min_count : categories of fewer rows, counted over all clients, are pooled as one, "other"
    """

    scaling: str = "standard"
    categorical: tuple[str, ...] = ()
    indicators: bool = False
    units: Mapping[str, str] = field(default_factory=dict)
    max_categories: int = 100
    min_count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "categorical", tuple(self.categorical))
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
    """One 0/1 feature per category, and one for missing values where there were any.

    ``pooled``: the category "other" stands for all that are not named, be they rare or new.
    """

    name: str
    categories: tuple[str, ...]
    missing: bool = False
    unit: str | None = None
    pooled: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        missing = (f"{self.name} is missing",) * self.missing
        return (*(f"{self.name}={c}" for c in self.categories), *missing)


# -------------------------------------------------------------------- what a client computes


def client_kinds(
    table: Table, features: Names, declared: Names, where: str, faults: Faults
) -> dict[str, Any]:
    """The first message of a client: which columns hold text, and which hold numbers. Both are
    allowed only where the column is declared categorical.
    """
    flags = np.zeros((2, len(features)))
    for k, name in enumerate(features):
        cells = table[name]
        if cells.dtype.kind != "O":
            flags[1, k] = (cells == cells).any()
            continue
        text, odd = sum(v is not None for v in cells), odd_rows(cells)
        if odd and len(odd) < text and name not in declared:
            with faults.of(name):
                raise RowError(
                    where,
                    f"column {name!r} holds numbers, but also text",
                    shown=f" such as {cells[odd[0]]!r}",
                    rows=odd,
                    do=_advice([str(cells[r]) for r in odd]),
                    place=table.place,
                )
        flags[:, k] = text > 0, text > len(odd)
    return {"text": flags[0], "number": flags[1]}


def client_totals(table: Table, numeric: Names, categorical: Names, where: str) -> dict[str, Any]:
    """The second message: counts, sums, extremes, and how often each category occurs."""
    rows, whole = len(next(iter(table.values()))), _side_by_side(table, numeric, where)
    if whole is not None:
        count, total = np.full(len(whole), float(rows)), whole.sum(axis=1)
        high, low = whole.max(axis=1), -whole.min(axis=1)
    else:
        columns = [_present(table, name, where) for name in numeric]
        count = np.array([len(v) for v in columns], dtype=np.float64)
        total = np.array([v.sum() for v in columns])
        high = np.array([v.max(initial=-np.inf) for v in columns])
        low = np.array([-v.min(initial=np.inf) for v in columns])
    counts = {name: Counter(texts(table, name, where)) for name in categorical}
    own = {"rows": np.array([rows]), "count": count, "total": total, "high": high, "low": low}
    return own | {"categories": counts}


def client_squares(table: Table, numeric: Sequence[str], mean: Array, where: str) -> dict[str, Any]:
    """The third message: sums of centred values and of their squares."""
    whole = _side_by_side(table, numeric, where)
    columns = whole if whole is not None else [_present(table, name, where) for name in numeric]
    away = [column - m for column, m in zip(columns, mean, strict=True)]
    return {"rest": np.array([c.sum() for c in away]), "squares": np.array([c @ c for c in away])}


def _side_by_side(table: Table, names: Sequence[str], where: str) -> Array | None:
    """(d, m) columns of a small table without missing values, which spare clients of few rows a
    call for each column; else None.
    """
    columns = [numbers(table, name, where) for name in names]
    if not columns or not 0 < len(columns) * len(columns[0]) <= SMALL:
        return None
    values = np.array(columns)
    return values if abs(values).max() <= check.EXTREME else None


def _present(table: Table, name: str, where: str) -> Array:
    """The values of a column that are not missing, which are finite and in range."""
    values = numbers(table, name, where)
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
    counts = [part.get("categories", {}) for part in parts]
    combined = {
        key: (np.max if key in LARGEST else np.sum)([part[key] for part in parts], axis=0)
        for key in parts[0]
        if key != "categories"
    }
    return combined | {"categories": {n: sum((c[n] for c in counts), Counter()) for n in counts[0]}}


# -------------------------------------------------------------------- the schema


@dataclass(frozen=True)
class Schema:
    """How every feature is made, in the order of the features; target and classes are those of the
    training data.

    ``fitted``: scale and categories were read off rows and disclose something about them, so that a
    private run refuses the schema. ``reading``: how tables were read, and are read by `transform`.
    ``unit``: in the end every row is divided by its Euclidean length.
    """

    columns: tuple[Numeric | Categorical, ...]
    target: str | None = None
    classes: tuple[Any, ...] | None = None
    fitted: bool = False
    reading: Reading = PLAIN
    unit: bool = False

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
    ) -> "Schema":
        """The schema of the clients' tables (a mapping by name or a sequence), from three rounds of
        sums.

        ``features`` defaults to all columns but the target. Raises ValueError for columns that
        differ between clients, that mix numbers and text without being declared categorical, or
        that have no value at any client.
        """
        recipe = recipe or Recipe()
        if not isinstance(tables, Mapping):
            tables = {str(k): table for k, table in enumerate(tables)}
        given = [table_of(table) for table in tables.values()]
        reading = next((table.reading for table in given if table.reading is not None), PLAIN)
        by_name = {
            name: refined(table, reading, recipe.categorical, f"client {name!r}")
            for name, table in zip(tables, given, strict=True)
        }
        clients = {f"client {name!r}": table for name, table in by_name.items()}
        frames.same_columns(clients)
        chosen = _chosen(next(iter(clients.values())), features, target, recipe)
        if classes is None and target is not None:
            classes = check.classes(frames.targets_of(by_name, target), None, [*by_name])
        with Faults() as faults:
            declared = recipe.categorical
            kinds = [client_kinds(t, chosen, declared, c, faults) for c, t in clients.items()]
            codes = _codes(combine(kinds), chosen, recipe, by_name, faults)
            plain = [name for name in chosen if name not in (*codes, *faults.errors)]
            totals = combine([client_totals(t, plain, codes, c) for c, t in clients.items()])
            for name, count in zip(plain, totals["count"], strict=True):
                with faults.of(name):
                    if count == 0:
                        what = f"column {name!r} has no value at any client"
                        raise RowError("", what, do="Leave it out by `exclude`.")
            mean = totals["total"] / np.maximum(totals["count"], 1.0)
            coded = _categorical(codes, totals, recipe, faults)
        totals |= combine([client_squares(t, plain, mean, c) for c, t in clients.items()])
        columns = _numeric(plain, totals | {"mean": mean}, recipe) | coded
        known = None if classes is None else tuple(np.asarray(classes).tolist())
        made = tuple(columns[name] for name in chosen)
        return cls(made, target, known, fitted=True, reading=reading)

    def public(self) -> "Schema":
        """The same schema, declared to come from rows that are public, so that private
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
        codes = [column.name for column in self.columns if isinstance(column, Categorical)]
        cells = refined(table_of(table), self.reading, codes, where)
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
            if isinstance(column, Categorical):
                _fill_codes(part, column, cells, where, unknown)
            elif scaled is not None and not column.indicator:
                part[:, 0] = next(scaled)
            else:
                _present(cells, column.name, where)
                values = numbers(cells, column.name, where)
                absent = np.isnan(values)
                part[:, 0] = (np.where(absent, column.mean, values) - column.centre) / column.scale
                if column.indicator:
                    part[:, 1] = absent
        return unit_rows(X) if self.unit else X

    def to_dict(self) -> dict[str, Any]:
        """A dictionary for JSON; floating-point numbers survive the way there and back exactly."""
        columns = [{"kind": type(c).__name__.lower(), **asdict(c)} for c in self.columns]
        for column in columns:
            if "categories" in column:
                column["categories"] = list(column["categories"])
                if not column["pooled"]:
                    del column["pooled"]
        made = {"version": 1, "columns": columns, "target": self.target}
        made["classes"] = None if self.classes is None else list(self.classes)
        rare = {"reading": self.reading.to_dict(), "unit": self.unit}
        return made | {"fitted": self.fitted} | {key: value for key, value in rare.items() if value}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Schema":
        """The inverse of `to_dict`."""
        if data.get("version") != 1:
            raise ValueError(
                f"this bonafed reads schemas of version 1, got {data.get('version')!r}. Update"
                " bonafed."
            )
        kinds = {"numeric": Numeric, "categorical": Categorical}
        try:
            columns = []
            for column in data["columns"]:
                fields = {k: tuple(v) if isinstance(v, list) else v for k, v in column.items()}
                del fields["kind"]
                columns.append(kinds[column["kind"]](**fields))
            classes = None if data["classes"] is None else tuple(data["classes"])
            reading = Reading.from_dict(data.get("reading", {}))
            fitted, unit = bool(data.get("fitted", True)), bool(data.get("unit", False))
            return cls(tuple(columns), data["target"], classes, fitted, reading, unit)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is not a schema written by bonafed: {error!r}.") from error


def _chosen(table: Table, features: Names | None, target: str | None, recipe: Recipe) -> list[str]:
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
    kinds: dict[str, Any], features: Names, recipe: Recipe, tables: ByClient[Table], faults: Faults
) -> list[str]:
    """The categorical columns: those declared, and those of text."""
    for name, text, number in zip(features, kinds["text"], kinds["number"], strict=True):
        if not (text and number) or name in (*recipe.categorical, *faults.errors):
            continue
        with faults.of(name):
            frames.check_numbers(tables, [name], some=True)
            for table in tables.values():  # numbers with too many digits are named as such
                if odd := [r for r, c in enumerate(table[name]) if frames.names_something(str(c))]:
                    raise frames.not_a_number(table, name, odd, "")
            of_text = [repr(client) for client, table in tables.items() if odd_rows(table[name])]
            what = f"numbers at some clients, text at others ({check.listed(of_text, 'client')})"
            raise RowError(
                "",
                f"column {name!r} holds {what if of_text else 'numbers that are kept as text'}",
                do="Correct the cells, or declare the column in `categorical` or `exclude`.",
            )
    texts = [name for name, text in zip(features, kinds["text"], strict=True) if text]
    codes = {*texts, *recipe.categorical} - {*faults.errors}
    return [name for name in features if name in codes]


def _numeric(names: Sequence[str], totals: Mapping[str, Array], recipe: Recipe) -> dict[str, Any]:
    """The numeric columns, scaled as the recipe says."""
    n, mean, low, high = (totals[key] for key in ("count", "mean", "low", "high"))  # low: negative
    # the rest is rounding of the mean
    variance = np.maximum(totals["squares"] - totals["rest"] ** 2 / n, 0.0) / n
    ways = {"standard": (mean, np.sqrt(variance)), "minmax": (-low, high + low)}
    centre, scale = ways.get(recipe.scaling, (np.zeros_like(mean), np.ones_like(mean)))
    # a constant column stays constant
    scale = np.where((scale > 0) & (high > -low), scale, 1.0)
    absent = recipe.indicators & (n < totals["rows"])
    rows = zip(names, mean.tolist(), centre.tolist(), scale.tolist(), absent.tolist(), strict=True)
    return {row[0]: Numeric(*row, unit=recipe.units.get(row[0])) for row in rows}


def _categorical(
    names: Sequence[str], totals: Mapping[str, Any], recipe: Recipe, faults: Faults
) -> dict[str, Categorical]:
    """The categorical columns, with the categories of all clients; rare ones are pooled."""
    columns = {}
    for name in names:
        counts = totals["categories"][name]
        found = {category: n for category, n in counts.items() if category is not None}
        known = {category for category, n in found.items() if n >= recipe.min_count}
        if pooled := len(known) < len(found):
            known |= {OTHER}
        with faults.of(name):
            if len(known) > (most := recipe.max_categories):
                what = f"column {name!r} has {len(known)} categories, more than {most}"
                raise RowError("", what, do=_advice([*found], sum(found.values())))
            if any(map(frames.names_something, found)) and sum(found.values()) < PEOPLE * len(
                found
            ):
                what = f"column {name!r} has {len(found)} categories with more digits than numbers"
                raise RowError("", what + " have, in few rows each", do=frames.IDENTITY)
        categories, unit = tuple(sorted(known)), recipe.units.get(name)
        columns[name] = Categorical(name, categories, None in counts, unit, pooled)
    return columns


def to_declare(column: frames.Cells) -> str:
    """What to declare of a column that holds text, by what its cells look like, or since it holds
    numbers as well; nothing of plain text.
    """
    odd = odd_rows(column)
    mixed = 0 < len(odd) < sum(cell is not None for cell in column)
    return _looks([str(column[r]) for r in odd]) or frames.OTHERWISE * mixed


def _looks(cells: Sequence[str]) -> str:
    """What to declare of cells that look like limits, dates or numbers; nothing of others."""
    if cells and all(frames.COMMA.fullmatch(cell) for cell in cells):
        return "They look like numbers with a decimal comma: set `decimal` to ','."
    fitting = (k for k in KINDS.values() if cells and frozenset.intersection(*map(k.fits, cells)))
    return next((kind.looks for kind in fitting), "")


def _advice(cells: Sequence[str], rows: int = 0) -> str:
    """What to do about a column of text, by what its cells look like; ``rows`` have one of them."""
    if known := _looks(cells):
        return known
    if rows:
        likely = "It looks like an identifier: leave" if 2 * len(cells) > rows else "Leave"
        return f"{likely} it out by `exclude`, or pool rare categories by `min_count`."
    return frames.OTHERWISE


def _fill_codes(part: Array, column: Categorical, table: Table, where: str, unknown: str) -> None:
    position: dict[str | None, int] = {c: k for k, c in enumerate(column.categories)}
    position |= {None: len(column.categories)} if column.missing else {}
    values = texts(table, column.name, where)
    if column.pooled:
        values = [v if v is None or v in position else OTHER for v in values]
    rows = [r for r, v in enumerate(values) if v not in position] if unknown == "error" else []
    if rows:
        odd = sorted({"a missing value" if values[r] is None else repr(values[r]) for r in rows})
        known = ", ".join(map(repr, column.categories[:20]))
        raise RowError(
            where,
            f"column {column.name!r} holds what is none of its categories ({known})",
            shown=f": {', '.join(odd[:10])}",
            rows=rows,
            do="Correct them; or in a run add them where the categories are declared, and in a"
            " prediction use unknown='ignore' (bonafed predict --unknown ignore) for zeros.",
            place=table.place,
        )
    at = np.array([position.get(v, -1) for v in values], dtype=np.intp)
    part[np.flatnonzero(at >= 0), at[at >= 0]] = 1.0


# Features made from declarations only, and rows held out one by one, so that nothing depends on
# other rows.
#
# A fitted scale, a shuffled split or a split by class moves many rows where one record changes. For
# private runs every row's features and its side are functions of that row and of public numbers, so
# that one record moves one row.


def declared_schema(
    features: Sequence[str],
    declared: Mapping[str, Mapping[str, Any]],
    target: str | None,
    classes: ArrayLike | None = None,
    reading: Reading = PLAIN,
    unit: bool = False,
) -> Schema:
    """The schema of ``features``, each made as ``declared`` says; one without a declaration is
    taken as it is.

    ``declared`` has for a column ``{"min", "max"}`` (made 0 to 1), ``{"mean", "scale"}``,
    ``{"categories"}`` or ``{}``; ``missing`` is the number that stands for none (by default that
    which becomes 0, of a range its middle), and ``indicator`` asks for a separate feature.
    ``unit``: ranges are made -1 to 1, and every row is then divided by its length, so that all rows
    count alike where gradients are clipped: `PrivateSGD(bound=1)` is made for such rows.
    """
    columns = tuple(_column(name, declared.get(name, {}), unit) for name in features)
    known = None if classes is None else tuple(np.asarray(classes).tolist())
    return Schema(columns, target, known, reading=reading, unit=unit)


def _column(name: str, how: Mapping[str, Any], centred: bool) -> Numeric | Categorical:
    if "categories" in how:
        return Categorical(name, tuple(how["categories"]))
    centre, scale = float(how.get("mean", 0.0)), float(how.get("scale", 1.0))
    middle = centre
    if "min" in how:
        centre, scale = float(how["min"]), float(how["max"]) - float(how["min"])
        middle = centre + scale / 2
        centre, scale = (middle, scale / 2) if centred else (centre, scale)
    missing, indicator = float(how.get("missing", middle)), bool(how.get("indicator", False))
    return Numeric(name, missing, centre, scale, indicator)


# Rows centred and scaled by public numbers, and each divided by its own length.
#
# A row's image depends on that row and on public numbers only, so that one record still moves one
# row. All rows then count alike where gradients are clipped.


def unit_rows(X: Any, centre: ArrayLike = 0.0, scale: ArrayLike = 1.0) -> Any:
    """The rows (x - centre) / scale, each divided by its Euclidean norm; a row of zeros stays.

    Parameters
    ----------
    X : (m, d) array or sparse matrix; sparse rows take the centre 0 only, else all cells are full
    centre, scale : a number or (d,) numbers, public; scale > 0

    Raises
    ------
    ValueError
        for a scale that is not positive, numbers that are not finite, and sparse rows with a centre
    """
    centre, scale = np.asarray(centre, float), np.asarray(scale, float)
    if not (np.isfinite(centre).all() and np.isfinite(scale).all() and (scale > 0).all()):
        raise ValueError("centre and scale must be finite numbers, and scale > 0.")
    if isinstance(X, np.ndarray):
        # in one order of memory, so that sums over a row do not depend on how many rows there are
        moved = np.ascontiguousarray((X - centre) / scale)
        top = np.abs(moved).max(axis=1, initial=0.0, keepdims=True)
        moved = moved / np.where(top > 0, top, 1.0)  # squares of long rows would overflow
        return moved / _or_one(np.sqrt((moved**2).sum(axis=1, keepdims=True)))
    if centre.any():
        raise ValueError(
            "sparse rows cannot be centred, which fills all their cells: declare ranges around 0,"
            " such as (-1, 1), or give a dense array."
        )
    from scipy.sparse import csr_array

    moved = csr_array(X.multiply(1 / np.broadcast_to(scale, (1, X.shape[1]))))
    top = _or_one(abs(moved).max(axis=1).toarray().reshape(-1, 1))
    moved = csr_array(moved.multiply(1 / top))
    norm = np.sqrt(np.asarray(moved.multiply(moved).sum(axis=1)).reshape(-1, 1))
    return csr_array(moved.multiply(1 / _or_one(norm)))


def _or_one(length: Array) -> Array:
    return np.where(length > 0, length, 1.0)


def middles(ranges: tuple[ArrayLike, ArrayLike], d: int) -> tuple[Array, Array]:
    """The middle and half the width, (d,) each, of declared ranges (low, high).

    Raises
    ------
    ValueError
        for ranges that are not a pair of numbers or of (d,) numbers, low < high
    """
    wrong = ValueError(
        "ranges must be a pair (low, high) with low < high, of two finite numbers or of two lists"
        f" of {d} numbers, one for each feature, got {ranges!r}."
    )
    try:
        low, high = (np.broadcast_to(np.asarray(end, float), (d,)) for end in ranges)
    except (TypeError, ValueError) as error:
        raise wrong from error
    with np.errstate(over="ignore", invalid="ignore"):
        half = (high - low) / 2
    if not (np.isfinite(low).all() and np.isfinite(half).all() and (half > 0).all()):
        raise wrong
    return low + half, half
