"""The rows of a fit: checked as scikit-learn does, gathered by client, equal ones merged.

Every row belongs to a client, named by ``groups``. A row of weight 2 equals a row given twice, and
a row of weight 0 equals an absent row.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data

from quorate.arrays import Array
from quorate.client_names import ClientName, by_position, repeated
from quorate.data.federation import Federation
from quorate.data.validation import grouped
from quorate.problem.risks.risk import resolve_prior

Matrix = Any  # (n, d) float64: an array, or a scipy.sparse matrix, which is not imported here


class MissingGroupsWarning(UserWarning):
    """``fit`` got no ``groups``, so all rows were taken as one client and nothing is robust over
    clients.
    """


@dataclass(frozen=True)
class Rows:
    """Checked input of ``fit``: the rows with a positive weight."""

    X: Matrix  # dense in C order or CSR
    y: NDArray[Any]  # (n,)
    groups: list[Any]
    sample_weight: Array | None  # (n,), > 0
    kept: Any = field(default_factory=lambda: slice(None))  # which of the rows of `fit` these are
    columns: Mapping[str, NDArray[Any]] | None = None  # further columns, (n,) each
    server: Federation | None = None  # rows that the server holds


def check_rows(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    groups: Any,
    sample_weight: Any,
    *,
    alone: str = "the model is robust within the pooled rows only",
    **options: Any,
) -> Rows:
    """Validate as scikit-learn does; rows of weight 0 are left out, so that they equal absent rows.

    ``alone`` says what a fit without groups is, ``options`` are of ``validate_data``.
    """
    X, y = arrays(estimator, X, y, **options)
    if groups is None:
        warnings.warn(
            f"fit got no groups, so all rows are one client: {alone}. Pass groups=<client of each"
            " row>. Inside a Pipeline, GridSearchCV or cross_validate groups arrive only after"
            " sklearn.set_config(enable_metadata_routing=True);"
            " quorate.model_selection.cross_validate does it for you.",
            MissingGroupsWarning,
            stacklevel=3,
        )
        groups = ["all"] * X.shape[0]
    if getattr(groups, "ndim", 1) != 1:
        raise ValueError(
            f"groups must have shape ({X.shape[0]},), one client per row, got {groups.shape}."
        )
    groups = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    if len(groups) != X.shape[0]:
        raise ValueError(
            f"groups must have one entry for each of the {X.shape[0]} rows of X, got {len(groups)}."
        )
    if sample_weight is None:
        return Rows(X, y, groups, None)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    kept = np.flatnonzero(weight > 0)
    if len(kept) == 0:
        raise ValueError(
            "sample_weight is zero for every row: give at least one row a positive weight."
        )
    return Rows(X[kept], y[kept], [groups[i] for i in kept], weight[kept], kept)


def arrays(estimator: BaseEstimator, X: Any, y: Any, **options: Any) -> tuple[Any, NDArray[Any]]:
    """X (n, d) float64, dense in C order or CSR, and y (n,), validated as scikit-learn does."""
    checked: Any = validate_data(
        estimator, X, y, accept_sparse="csr", dtype=np.float64, order="C", **options
    )
    return checked


def merged(fed: Federation) -> Federation:
    """Equal rows of a client as one row of their total weight, in an order that depends on the rows
    alone.

    So a row of weight 2 and a row given twice lead to the same numbers bit for bit, and so do rows
    in another order. Equal are rows with the same features, target and further columns.
    """
    picks = [_distinct(fed, i) for i in range(fed.n_clients)]
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


def _distinct(fed: Federation, i: int) -> tuple[NDArray[np.intp], Array]:
    """One row of client i for all that equal it, and their total weight."""
    X, y = fed.rows(i)
    weight = np.ones(len(y)) if fed.sample_weight is None else fed.sample_weight[i]
    kind = _kinds([y, *[parts[i] for parts in (fed.columns or {}).values()]])
    order, key = by_value(X, kind)
    # neighbours that may be equal rows
    near = np.flatnonzero((np.diff(key[order]) == 0) & (np.diff(kind[order]) == 0))
    gap = X[order[near]] - X[order[near + 1]]
    equal = near[np.asarray(abs(gap).sum(1)).ravel() == 0]
    first = np.setdiff1d(np.arange(len(y)), equal + 1)
    return order[first], np.add.reduceat(weight[order], first)


def _kinds(parts: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """(n,) numbers that are equal where rows agree in all parts, ascending with the values."""
    code = np.zeros(len(parts[0]), np.intp)
    for part in parts:
        values, own = np.unique(part, return_inverse=True)
        code = np.unique(code * len(values) + own, return_inverse=True)[1]
    return code


def by_value(X: Any, y: NDArray[Any]) -> tuple[NDArray[np.intp], Array]:
    """(order, key), both (n,): an order that depends on the rows alone, and the number of each row
    that is sorted.
    """
    key = _key(X)
    return np.lexsort((y, key)), key


def _key(X: Any, rows: int = 4096) -> Array:
    """A projection of every row that depends on its values alone: not on its place, as a BLAS
    product may.
    """
    direction = np.random.default_rng(0).standard_normal(X.shape[1])
    if not isinstance(X, np.ndarray):
        return np.asarray(X @ direction)
    return np.concatenate([(X[i : i + rows] * direction).sum(1) for i in range(0, len(X), rows)])


def prior_of(prior: Any, fed: Federation) -> Array:
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
    mass = (
        fed.sizes.astype(float)
        if fed.sample_weight is None
        else np.array([v.sum() for v in fed.sample_weight])
    )
    return resolve_prior(prior, mass, fed.clients)


def present(value: Any, fed: Federation, what: str) -> Any:
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


def rows_of_groups(groups: Sequence[Any], n: int) -> dict[str, Any]:
    """The rows of every group, by its name as text, in the order of first appearance."""
    names, picks = grouped(groups, n)
    if twice := repeated(names):
        raise ValueError(
            f"groups has {', '.join(twice)} both as text and as another type: give all entries one"
            " type."
        )
    return dict(zip(map(str, names), picks, strict=True))


def with_ones(X: Matrix) -> Matrix:
    """(n, d + 1): X with a last feature of ones, whose coefficients are intercepts."""
    ones = np.ones((X.shape[0], 1))
    return (
        np.hstack([X, ones]) if isinstance(X, np.ndarray) else hstack([csr_array(X), ones], "csr")
    )
