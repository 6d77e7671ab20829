"""The rows of a fit: checked as scikit-learn does, gathered by client, equal ones merged.

Every row belongs to a client, named by ``groups``. A row of weight 2 equals a row given twice, and
a row of weight 0 equals an absent row.
"""

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data

from bonafed.arrays import Array, Features, shape_of
from bonafed.client_names import ClientName, by_position, repeated
from bonafed.data.assembly import without_column
from bonafed.data.federation import Federation
from bonafed.data.row_errors import RowError, RowErrors, listed
from bonafed.data.tables import column_names, is_number, table_of
from bonafed.data.validation import grouped, missing
from bonafed.problem.constraints.constraint import Stated
from bonafed.problem.constraints.group_means import Coupled
from bonafed.problem.risks.risk import PerClient, Prior, resolve_prior
from bonafed.text import warn

R = TypeVar("R")

Matrix = Array | csr_array  # (n, d)
FORM: dict[str, Any] = {"accept_sparse": "csr", "dtype": np.float64}  # as scikit-learn checks rows
Groups = Iterable[object]  # the client of each row: text or whole numbers


class MissingGroupsWarning(UserWarning):
    """``fit`` got no ``groups``, so all rows were taken as one client and nothing is robust over
    clients.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> import warnings
    >>> X, y = fed.restrict(["Old Mill"]).rows(0)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     model = bf.RobustClassifier().fit(X, y)  # whose is each row?
    >>> any(issubclass(w.category, bf.MissingGroupsWarning) for w in caught)
    True
    """


@dataclass(frozen=True)
class Rows:
    """Checked input of ``fit``: the rows with a positive weight."""

    X: Matrix  # dense in C order or CSR
    y: NDArray[Any]  # (n,)
    groups: Groups
    sample_weight: Array | None  # (n,), > 0
    kept: Any = field(default_factory=lambda: slice(None))  # which of the rows of `fit` these are
    columns: Mapping[str, NDArray[Any]] | None = None  # further columns, (n,) each
    server: Federation | None = None  # rows that the server holds

    def federation(
        self, X: Matrix, targets: NDArray[Any], classes: NDArray[Any] | None, names: Sequence[str]
    ) -> Federation:
        """One client per group, with features, targets and classes as the problem needs them."""
        given: dict[str, Any] = {"sample_weight": self.sample_weight, "columns": self.columns}
        given |= {"classes": classes, "feature_names": names}
        return Federation.from_arrays(X, targets, self.groups, **given)._with(server=self.server)


def check_rows(
    estimator: Any, X: Features, y: ArrayLike, groups: Groups | None, weights: ArrayLike | None
) -> Rows:
    """Validate as scikit-learn does; rows of weight 0 are left out, so that they equal absent rows.

    ``estimator.alone`` says what a fit without groups is.
    """
    X, groups = named_groups(estimator, X, groups)
    rows, targets = arrays(estimator, X, y)
    n = len(targets)
    if groups is None:
        warn(
            f"fit got no groups, so all rows are one client: {estimator.alone}. Pass groups=<client"
            " of each row>. Inside a Pipeline, GridSearchCV or cross_validate groups arrive only"
            " after sklearn.set_config(enable_metadata_routing=True);"
            " bonafed.model_selection.cross_validate does it for you.",
            MissingGroupsWarning,
        )
        groups = ["all"] * n
    if getattr(groups, "ndim", 1) != 1:
        shape = np.shape(np.asarray(groups))
        raise ValueError(f"groups must have shape ({n},), one client per row, got {shape}.")
    names = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(names) != n:
        raise ValueError(
            f"groups must have one entry for each of the {n} rows of X, got {len(names)}."
        )
    if weights is None:
        return Rows(rows, targets, names, None)
    weight = _check_sample_weight(weights, rows, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weight > 0)
    if len(kept) == 0:
        raise ValueError(
            "sample_weight is zero for every row: give at least one row a positive weight."
        )
    return Rows(rows[kept], targets[kept], [names[i] for i in kept], weight[kept], kept)


def named_groups(estimator: BaseEstimator, X: Any, groups: Any) -> tuple[Any, Groups | None]:
    """The table without its column of groups, where that is named, and the groups."""
    vars(estimator).pop("groups_column_", None)
    if not isinstance(groups, str):
        return X, groups
    vars(estimator)["groups_column_"] = groups  # which is no feature
    return without_column(X, groups, "groups")


def arrays(
    estimator: Any, X: Features, y: ArrayLike, reset: bool = True
) -> tuple[Matrix, NDArray[Any]]:
    """X (n, d) float64, dense in C order or CSR, and y (n,), validated as scikit-learn does."""
    y_numeric = getattr(estimator, "targets", "sign") == "real"
    check_labels(y, y_numeric)
    with in_words(X):
        table: Any = X
        targets: Any = y
        given = {"order": "C", "y_numeric": y_numeric, "reset": reset}
        checked: Any = validate_data(estimator, table, targets, **FORM, **given)
    return checked


@contextmanager
def in_words(X: Features) -> Iterator[None]:
    """Where scikit-learn refuses a table for its cells, the error names columns and rows."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if (found := faulty_cells(X, error)) is None:
            raise
        raise found from error


def merged(fed: Federation) -> Federation:
    """Equal rows of a client as one row of their total weight, in an order that depends on the rows
    only.

    So a row of weight 2 and a row given twice lead to the same numbers bit for bit, and so do rows
    in another order. Equal are rows with the same features, target and further columns.
    """
    picks, further = [], fed.columns or {}
    for i in range(fed.n_clients):  # one row for all that equal it, and their total weight
        X, y = fed.rows(i)
        weight = np.ones(len(y)) if fed.sample_weight is None else fed.sample_weight[i]
        kind = np.zeros(len(y), np.intp)  # equal where rows agree in all parts but X
        for part in (y, *(each[i] for each in further.values())):
            values, number = np.unique(part, return_inverse=True)
            kind = np.unique(kind * len(values) + number, return_inverse=True)[1]
        order, key = by_value(X, kind)
        # neighbours that may be equal rows
        near = np.flatnonzero((np.diff(key[order]) == 0) & (np.diff(kind[order]) == 0))
        equal = near[np.asarray(abs(X[order[near]] - X[order[near + 1]]).sum(1)).ravel() == 0]
        first = np.setdiff1d(np.arange(len(y)), equal + 1)
        picks.append((order[first], np.add.reduceat(weight[order], first)))
    return Federation(
        fed.clients,
        tuple(x[rows] for x, (rows, _) in zip(fed.X, picks, strict=True)),
        tuple(y[rows] for y, (rows, _) in zip(fed.y, picks, strict=True)),
        sample_weight=tuple(weight for _, weight in picks),
        classes=fed.classes,
        feature_names=fed.feature_names,
        columns={
            name: tuple(part[rows] for part, (rows, _) in zip(parts, picks, strict=True))
            for name, parts in (fed.columns or {}).items()
        },
        server=fed.server,
    )


def by_value(X: Matrix, y: NDArray[Any]) -> tuple[NDArray[np.intp], Array]:
    """(order, key), both (n,): an order that depends on the rows only, and the number of each row
    that is sorted.

    It is a projection of the row that depends on its values only: not on its place, as a BLAS
    product may.
    """
    direction = np.random.default_rng(0).standard_normal(shape_of(X)[1])
    if isinstance(X, np.ndarray):
        parts = (X[i : i + 4096] for i in range(0, len(X), 4096))
        key = np.concatenate([(part * direction).sum(1) for part in parts])
    else:
        key = np.asarray(X @ direction)
    return np.lexsort((y, key)), key


def prior_of(prior: Prior, fed: Federation) -> Array:
    """Weights of the clients present. "size" counts sample weights, so that weighing a row equals
    repeating it.
    """
    if isinstance(prior, Mapping):
        resolve_prior([*prior.values()], np.ones(len(prior)))
        weights = [*by_position(prior, fed.clients, "prior", others=True).values()]
        if not sum(weights) > 0:
            raise ValueError(
                f"prior has no positive weight for the clients {list(fed.clients)}: add them."
            )
        return np.array([float(weight) / float(sum(weights)) for weight in weights])
    mass = fed.sizes.astype(float)
    if fed.sample_weight is not None:
        mass = np.array([weight.sum() for weight in fed.sample_weight])
    return resolve_prior(prior, mass, fed.clients)


def centred(risk: R, fed: Federation, prior: Prior | None = None) -> R:
    """The risk over clients with its prior, or another one, as weights of the clients present."""
    stated: Any = risk
    if getattr(risk, "prior", None) is None:
        return risk
    return replace(stated, prior=prior_of(stated.prior if prior is None else prior, fed))


def present(value: PerClient, fed: Federation, what: str) -> PerClient:
    """A mapping by client name as one array entry for each client; it may name absent ones, as in
    folds by client.
    """
    if not isinstance(value, Mapping):
        return value
    return list(by_position(value, fed.clients, what, others=True).values())


def names_of(clients: Sequence[ClientName]) -> NDArray[Any]:
    """(N,) client names as an array: of whole numbers, of text, or of both as objects."""
    one_type = len({isinstance(name, str) for name in clients}) == 1
    return np.array(clients, None if one_type else object)


def tables(rows: Rows) -> list[Matrix]:
    """The features of every client."""
    return [rows.X[at] for at in rows_of_groups(rows.groups, len(rows.y)).values()]


def rows_of_groups(groups: Groups, n: int) -> dict[str, Any]:
    """The rows of every group, by its name as text, in the order of first appearance."""
    names, picks = grouped(groups, n)
    if twice := repeated(names):
        raise ValueError(
            f"groups has {', '.join(twice)} both as text and as another type: give all entries one"
            " type."
        )
    return dict(zip(map(str, names), picks, strict=True))


# What is wrong with a table or its labels where scikit-learn refuses them: which cells, in which
# columns and rows, and what to do.

Cell = Callable[[Any], bool]
DATES = datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64


def faulty_cells(X: Any, error: Exception) -> RowError | None:
    """Text, dates and missing values where numbers are needed; None where there are none of them.
    ``error`` is what was raised.
    """
    if issparse(X):
        return None
    names = column_names(X)
    if hasattr(X, "to_numpy"):  # frames: numbers stay apart from dates
        columns = [X[name] for name in names or ()]
        lists = [each.to_list() if hasattr(each, "to_list") else [*each] for each in columns]
        cells = np.array([*zip(*lists, strict=True)], dtype=object).reshape(-1, len(lists))
    else:
        cells = np.asarray(X, dtype=object)
    if cells.ndim != 2:
        return None
    shown = f" ({str(error).splitlines()[0]})" if str(error) else ""
    kinds = (
        ("there is text where numbers are needed", shown, _is_text, ENCODE),
        (
            "there are dates where numbers are needed",
            "",
            lambda cell: isinstance(cell, DATES) and not missing(cell),
            DATE,
        ),
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
    return RowErrors(errors) if len(errors) > 1 else next(iter(errors), None)


ENCODE = "Correct these cells, or encode the column as numbers, such as by OneHotEncoder()."
DATE = "Make numbers of them, such as days since a date."
FILL = "Fill them in, such as by SimpleImputer() in a pipeline, or leave these rows out."


def _is_text(cell: object) -> bool:
    return isinstance(cell, str | bytes) and not is_number(cell)


def check_labels(y: Any, numbers: bool) -> None:
    """Raise ``RowError`` where entries of y are missing, of several types, or no numbers where
    these are needed.
    """
    array = np.zeros(0) if issparse(y) else np.asarray(y)
    if array.dtype.kind not in "fOUT" or array.ndim not in (1, 2):
        return
    array = array.ravel()
    cells = [] if array.dtype.kind == "f" else array.tolist()
    absent = [r for r, v in enumerate(cells) if missing(v)]
    absent = absent if array.dtype.kind != "f" else np.flatnonzero(np.isnan(array)).tolist()
    if absent:
        what = "entries are missing (NaN or None)"
        raise RowError("y", what, rows=absent, do="Leave these rows out.")
    odd = [r for r, cell in enumerate(cells) if _is_text(cell)]
    if numbers and odd:
        do = "Correct these entries; for classes use a classifier."
        raise RowError("y", "there is text where numbers are needed", rows=odd, do=do)
    texts = [r for r, cell in enumerate(cells) if isinstance(cell, str)]
    if not numbers and 0 < len(texts) < len(cells):
        what = "text stands among labels of other types"
        raise RowError("y", what, rows=texts, do="Give all of them one type, such as text.")


# Sensitive features as estimators take them: columns by the names that constraints have for
# them.

# a table, a mapping of columns by name, or one column
Columns = ArrayLike | Mapping[str, ArrayLike]


def named(stated: list[Stated]) -> list[str]:
    """The columns that constraints name."""
    inner = [part.constraint if isinstance(part, Coupled) else part for part in stated]
    columns = [getattr(part, "column", None) for part in inner]
    return list(dict.fromkeys(name for name in columns if isinstance(name, str)))


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
    whole = {}
    for name, column in columns.items():
        cells = column.tolist() if column.dtype.kind in "fO" else []
        absent = [row for row, value in enumerate(cells) if missing(value)]
        if absent and name in names:
            raise ValueError(
                f"sensitive_features[{name!r}] is missing in {listed(absent, 'row')} (from 0): give"
                " these rows a separate value."
            )
        if not absent:
            whole[name] = np.asarray(cells) if column.dtype.kind == "O" else column
    return whole


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
