"""Targets as losses need them: two classes as -1 and +1, several as their numbers, quadratic
clients' b.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array
from bonafed.client_names import ClientName
from bonafed.data.federation import Federation
from bonafed.data.row_errors import RowError
from bonafed.problem.metadata import Metadata

if TYPE_CHECKING:
    from bonafed.data.federation import Federation
    from bonafed.problem.predictors.affine import Predictor


def coded(ys: list[Any], classes: list[Any]) -> bool:
    """Whether targets are -1 and +1 already rather than two labels, which may be others."""
    outside = [y for y in ys if not np.isin(y, np.asarray(classes)).all()]
    if any(y.dtype.kind != "f" or not np.isin(y, (-1.0, 1.0)).all() for y in outside):
        raise RowError(
            "y",
            "there are targets outside the classes",
            shown=f" {classes[:6]}",
            do="Give the federation with its labels.",
        )
    return bool(outside)


def check_quadratic(fed: Federation, predictor: "Predictor") -> None:
    """Raise unless every client holds a symmetric matrix, or the table is the server's."""
    of_server = fed.clients == ("server",)
    intercept = getattr(predictor, "intercept", False)
    square = all(isinstance(x, np.ndarray) and x.shape[0] == x.shape[1] for x in fed.X)
    alike = square and all(np.abs(A - A.T).max() <= 1e-12 * np.abs(A).max() for A in fed.X)
    if intercept or not (of_server or alike):
        raise ValueError(
            "Quadratic() needs the predictor Linear(intercept=False) and clients with symmetric A:"
            " make them by Federation.from_quadratics(A, b, C, d)."
        )


def check_counts(ys: list[Array], clients: Sequence[ClientName], loss: str) -> None:
    """Raise unless all targets are finite and >= 0."""
    for client, y in zip(clients, ys, strict=True):
        odd = np.flatnonzero(~((y >= 0) & (y < np.inf)))
        if odd.size:
            raise RowError(
                f"client {client!r}",
                f"{loss} needs counts, numbers >= 0, and got others",
                shown=f" such as {y[odd[:4]].tolist()}",
                rows=odd[:4].tolist(),
                do="Correct these targets, or use Squared() or Huber() for numbers of either sign.",
            )


def check_labels(classes: list[Any], named: bool) -> None:
    """Raise unless these are the labels of two classes or more."""
    if len(classes) < 2:
        raise RowError(
            "Multinomial",
            f"it needs labels of two classes or more, got {len(classes)}",
            shown=f": {classes}",
            do="Check the target column.",
        )
    if not named and any((np.asarray(c) != np.floor(c)).any() for c in classes):
        raise RowError(
            "Multinomial",
            "it needs class labels, got real targets",
            shown=f" such as {classes[:4]}",
            do="For numbers use Squared() or Huber(); labels are whole numbers, text or booleans.",
        )


def class_numbers(ys: list[Any], classes: list[Any]) -> list[Array]:
    """The classes' numbers, in the order of the classes."""
    labels = np.asarray(classes)
    alike = all((y.dtype.kind == "U") == (labels.dtype.kind == "U") for y in ys)
    if not alike or not all(np.isin(y, labels).all() for y in ys):
        raise RowError(
            "y",
            "there are targets outside the classes",
            shown=f" {classes[:6]}",
            do="Give the federation with its labels.",
        )
    order = np.argsort(labels)  # a positive class is the last one, wherever it sorts
    return [order[np.searchsorted(labels, y, sorter=order)].astype(float) for y in ys]


def classes_of(fed: Federation) -> list[Any]:
    """The declared classes, or the distinct targets."""
    if fed.classes is not None:
        return fed.classes.tolist()
    return np.unique(np.concatenate([fed.rows(i)[1] for i in range(fed.n_clients)])).tolist()


# Weights of classes: every row counts by the weight of its class, beside its own.
#
#     balanced: v_c = n / (C n_c), n_c the rows of class c over all clients (a sum of their counts)
#
# So do clients: the prior "size" is their rows' weights.

Balance = Literal["balanced"] | Mapping[Any, float]


def checked(stated: object) -> None:
    """Raise ``ValueError`` for what is neither None, "balanced" nor a mapping by class."""
    if stated is None or isinstance(stated, Mapping) or stated == "balanced":
        return
    raise ValueError(
        f"class_weight must be None, 'balanced' or a mapping by class, got {stated!r}."
    )


def weighted(fed: Federation, values: ArrayLike, factors: Array) -> Federation:
    """The federation with weights of rows, times those of their classes.

    ``values`` (C,) are the targets that stand for the classes, ascending, ``factors`` (C,) the
    weights of the classes.
    """
    codes = [np.searchsorted(values, y) for y in fed.y]
    weights = fed.sample_weight or tuple(np.ones(len(y)) for y in fed.y)
    each = zip(codes, weights, strict=True)
    return fed._with(sample_weight=tuple(factors[code] * v for code, v in each))


def class_counts(fed: Federation, values: ArrayLike) -> Array:
    """(C,) the weight of the rows of every class over all clients; ``values`` as of `weighted`."""
    weights = fed.sample_weight or tuple(np.ones(len(y)) for y in fed.y)
    pairs = zip(fed.y, weights, strict=True)
    counts = [np.bincount(np.searchsorted(values, y), v, np.size(values)) for y, v in pairs]
    return np.sum(counts, 0, float)


def masses(fed: Federation | Metadata) -> Array:
    """(N,) the weight of every client's rows together."""
    if isinstance(fed, Metadata):
        return fed.masses
    if fed.sample_weight is None:
        return fed.sizes.astype(float)
    return np.array([float(v.sum()) for v in fed.sample_weight])


def class_factors(stated: Balance, classes: list[Any], counts: Array) -> Array:
    """(C,) the weight of every class; a mapping has 1 for those that it does not name."""
    checked(stated)
    if not isinstance(stated, Mapping):
        return counts.sum() / (len(counts) * np.maximum(counts, 1e-300))
    names = [str(label) for label in classes]  # a configuration has keys of text
    if odd := [label for label in stated if str(label) not in names]:
        raise ValueError(f"class_weight has {odd[0]!r}, which is not a class: {classes[:10]}.")
    named = {str(label): value for label, value in stated.items()}
    factors = np.array([named.get(name, 1.0) for name in names], float)
    if not (np.isfinite(factors).all() and (factors > 0).all()):
        raise ValueError(
            f"class_weight must be finite and > 0, got {dict(stated)}: leave out rows of a class"
            " that is not to count."
        )
    return factors
