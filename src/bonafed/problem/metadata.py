"""What the server knows of the clients' data: the facts that each of them tells before a run.

A problem as it is stated needs a few facts of the data to become concrete: how many rows and
features there are, which classes, which values in the columns that constraints name. Each client
reads them off its rows (``introduced``), the server puts them together (`Metadata`), and
``Problem.at`` needs no more. The rows stay with their owner, who codes and checks their targets
there as losses need them: two classes as -1 and +1, several as their numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import Array, Slices, each_changed, joined
from bonafed.client_names import ClientName
from bonafed.data import validation as check
from bonafed.data.federation import Federation
from bonafed.data.row_errors import RowError
from bonafed.problem.predictors.affine import Predictor
from bonafed.rounds import LARGEST, record

MOST = 30  # classes of which very many clients tell the same few sets
Cells = tuple[tuple[Any, Any, float], ...]  # (label, value of a column, weight of such rows)


@dataclass(frozen=True)
class Asked:
    """What a problem needs to know beside sizes and features.

    Attributes
    ----------
    classes : whether the loss has classes
    columns : the columns that constraints name, whose values make groups of rows
    counted : of these the ones whose groups are counted, and "" where the classes are
    """

    classes: bool = False
    columns: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()


@record
class Introduced:
    """The facts that a client tells of its rows, and nothing else of them before a run.

    Attributes
    ----------
    client : its name
    rows, features : how many rows, and the names of the features
    labels : the declared classes, or the classes of its rows; empty where the loss has none
    positive : of two classes the one that counts as +1, where it is stated
    named : whether the labels are names of classes, which real numbers are not
    weight : of all rows together
    alike : whether all rows have the same weight
    columns : the names of the columns beside the features
    values : by column the values that its rows have, for the columns that a constraint names
    cells : by column (or "": by class only) the weight of the rows of every label and value, for
        constraints over all clients together and for weights of classes
    linear : which rows of its C and d it has, where it holds some
    fitted : whether the features were made by a schema that was fitted on rows
    digest : of its rows, where it was asked for; equal rows have equal digests
    """

    client: Any
    rows: int
    features: tuple[str, ...]
    labels: tuple[Any, ...]
    positive: Any
    named: bool
    weight: float
    alike: bool
    columns: tuple[str, ...]
    values: dict[str, tuple[Any, ...]]
    cells: dict[str, Cells]
    linear: NDArray[np.bool_] | None = None
    fitted: bool = False
    digest: str = ""


def introduced(asked: Asked, fed: Federation, i: int = 0, digest: str = "") -> Introduced:
    """What client i of a federation tells about its rows."""
    y, weights = fed.y[i], None if fed.sample_weight is None else fed.sample_weight[i]
    columns = {name: parts[i] for name, parts in (fed.columns or {}).items()}
    labels: tuple[Any, ...] = ()
    if asked.classes:
        labels = check.distinct(y) if fed.classes is None else tuple(fed.classes.tolist())
    codes, counted = y if asked.classes else None, [n for n in asked.counted if n in ("", *columns)]
    known = [name for name in asked.columns if name in columns]
    linear = None if fed.linear is None else fed.linear[i]
    return Introduced(
        client=fed.clients[i],
        rows=len(y),
        features=fed.feature_names,
        labels=labels,
        positive=fed.positive,
        named=fed.classes is not None,
        weight=float(len(y) if weights is None else weights.sum()),
        alike=fed.rows_alike(i),
        columns=tuple(columns),
        # each once, in the order of their first appearance
        values={name: tuple(dict.fromkeys(columns[name].tolist())) for name in known},
        cells={name: _cells(codes, columns.get(name), weights, len(y)) for name in counted},
        linear=None if linear is None else linear[0].any(1) | (linear[1] != 0),
        fitted=fed.fitted,
        digest=digest,
    )


def distinct_facts(
    asked: Asked, fed: Federation
) -> tuple[list[Introduced], NDArray[np.intp] | None]:
    """What the clients tell, once for those who tell the same but for their names, and which of it
    is each client's; None where each one's is listed.
    """
    N, weighted = fed.n_clients, fed.sample_weight is not None
    alone = fed.linear is None and not (weighted and asked.counted)
    if not (alone and isinstance(fed.y, Slices)) or asked.columns or {*asked.counted} - {""}:
        return [introduced(asked, fed, i) for i in range(N)], None
    facts = 2 * fed.sizes + fed.all_alike
    if asked.classes and (asked.counted or fed.classes is None):
        values, codes = np.unique(fed.y.whole, return_inverse=True)
        if len(values) > MOST:
            return [introduced(asked, fed, i) for i in range(N)], None
        owner = np.repeat(np.arange(N), fed.sizes)
        of_labels = np.bincount(owner * len(values) + codes, minlength=N * len(values))
        of_labels = of_labels.reshape(N, -1).T
        for count in of_labels if asked.counted else of_labels > 0:
            facts = np.unique(facts * (count.max() + 1) + count, return_inverse=True)[1]
    _, first, which = np.unique(facts, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return [introduced(asked, fed, i) for i in first[order].tolist()], rank[which]


def impossible(told: Introduced) -> str:
    """What of an introduction no rows have, in words that follow "answered with"; or ""."""
    if not isinstance(told.rows, int) or told.rows < 1:
        return f"{told.rows:.6g} rows"
    if not 0 < told.weight < math.inf:
        return f"rows that weigh {told.weight:.6g} together"
    if told.alike and told.weight > LARGEST * told.rows:
        return f"{told.rows} rows of equal weights that weigh {told.weight:.6g} together"
    if any(isinstance(label, float) and not math.isfinite(label) for label in told.labels):
        return "a class that is not finite"
    for column, cells in told.cells.items():
        masses = [mass for _, _, mass in cells]
        if not all(0 <= mass < math.inf for mass in masses):
            return f"a group of {column!r} that weighs {min(masses):.6g}"
        if sum(masses) > told.weight * (1 + 1e-9):
            return f"groups of {column!r} that weigh {sum(masses):.6g} of {told.weight:.6g}"
    return ""


def _cells(
    y: NDArray[Any] | None, column: NDArray[Any] | None, weights: Array | None, m: int
) -> Cells:
    """The weight of the rows of every pair of label and value."""
    labels, of = _numbered(y, m)
    values, at = _numbered(column, m)
    total = np.bincount(of * len(values) + at, weights, len(labels) * len(values)).astype(float)
    pairs = [(label, value) for label in labels for value in values]
    return tuple((*pair, mass) for pair, mass in zip(pairs, total.tolist(), strict=True) if mass)


def _numbered(column: NDArray[Any] | None, m: int) -> tuple[list[Any], NDArray[np.intp]]:
    """The values of a column (None: one value for all m rows), and the number of each row's."""
    if column is None:
        return [None], np.zeros(m, np.intp)
    if column.dtype.kind != "O":
        values, numbers = np.unique(column, return_inverse=True)
        return values.tolist(), numbers
    known = {value: k for k, value in enumerate(dict.fromkeys(column.tolist()))}
    return [*known], np.array([known[value] for value in column.tolist()], np.intp)


@dataclass(frozen=True, eq=False)
class Metadata:
    """What is known of a federation without its rows.

    Parameters
    ----------
    introductions : what every client told, in the order of the clients; with ``which`` once for
        those who tell the same but for their names
    server : the server's data, where it holds some
    classes : (C,) the classes, declared or those of all clients' rows, in their order; None where
        the loss has none
    feature_names : of all clients
    factors : (C,) weights of the classes, by which the rows are weighted
    which : (N,) the number of each client's introduction
    called : the names of all clients then
    weighs : (N,) the weight of every client's rows together, then
    """

    introductions: tuple[Introduced, ...]
    server: Federation | None = None
    classes: NDArray[Any] | None = None
    feature_names: tuple[str, ...] = ()
    factors: Array | None = field(default=None, repr=False)
    which: NDArray[np.intp] | None = field(default=None, repr=False)
    called: tuple[ClientName, ...] = field(default=(), repr=False)
    weighs: Array | None = field(default=None, repr=False)

    @classmethod
    def of(cls, introductions: Sequence[Introduced], server: Federation | None = None) -> Self:
        """The facts of all clients together.

        Raises
        ------
        ValueError : two clients of one name, or clients with other features, labels of another
            type or another positive class
        """
        check.one_per_client(tuple(each.client for each in introductions))
        first, *others = introductions
        for other in others:
            if other.features != first.features:
                odd = sorted({*other.features} ^ {*first.features})[:6] or "(in another order)"
                raise ValueError(
                    f"client {other.client!r} has other features than client {first.client!r}; not"
                    f" in both: {odd}. Give the same columns in the same order everywhere."
                )
            if other.positive != first.positive:
                raise ValueError(
                    f"the positive class is {other.positive!r} at client {other.client!r} and"
                    f" {first.positive!r} at client {first.client!r}: state the same everywhere."
                )
        labels = [np.array(each.labels) for each in introductions if each.labels]
        classes = None
        if labels:
            named = [each.client for each in introductions if each.labels]
            together = np.unique(np.concatenate(check.same_type(labels, named)))
            classes = check.ordered(together, first.positive)
        return cls(tuple(introductions), server, classes, first.features)

    # ---------------------------------------------------------------- as of a federation

    @property
    def clients(self) -> tuple[ClientName, ...]:
        """The clients' names."""
        return self.called or tuple(each.client for each in self.introductions)

    def _of_each(self, facts: list[Any], kind: Any = float) -> NDArray[Any]:
        """(N, ...) what the introductions say, by client."""
        told = np.array(facts, kind)
        return told if self.which is None else told[self.which]

    n_clients, names = Federation.n_clients, Federation.names
    position, positions = Federation.position, Federation.positions

    @property
    def n_features(self) -> int:
        """The number d of features."""
        return len(self.feature_names)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(N,) rows of each client."""
        return self._of_each([each.rows for each in self.introductions], np.intp)

    def digests(self) -> tuple[str, ...]:
        """One digest of the rows of each client, empty where it was not asked for."""
        return tuple(self._of_each([each.digest for each in self.introductions], object).tolist())

    @property
    def alike(self) -> bool:
        """Whether all rows of a client count alike, at every client."""
        return self.factors is None and all(each.alike for each in self.introductions)

    @property
    def labels(self) -> list[Any]:
        """The classes as a list; empty where the loss has none."""
        return [] if self.classes is None else self.classes.tolist()

    @property
    def named(self) -> bool:
        """Whether the classes are names, and not real numbers."""
        return all(each.named for each in self.introductions)

    @property
    def fitted(self) -> bool:
        """Whether the features were made by a schema that was fitted on rows."""
        return any(each.fitted for each in self.introductions)

    # ---------------------------------------------------------------- groups of rows

    @cached_property
    def masses(self) -> Array:
        """(N,) the weight of every client's rows together."""
        if self.weighs is not None and self.factors is None:
            return self.weighs
        if self.factors is None:
            return self._of_each([each.weight for each in self.introductions])
        return self.class_masses() @ self.factors

    def class_masses(self) -> Array:
        """(N, C) the weight of every client's rows of each class, before the classes' weights."""
        assert self.classes is not None
        place = {label: k for k, label in enumerate(self.classes.tolist())}
        masses = np.zeros((len(self.introductions), len(place)))
        for i, each in enumerate(self.introductions):
            for label, _, weight in each.cells.get("", ()):
                if label in place:
                    masses[i, place[label]] += weight
        return masses if self.which is None else masses[self.which]

    def group_masses(self, label: Any, column: str | None, value: Any) -> Array:
        """(N,) the weight of every client's rows of a label (None: any) with a value in a column
        (None: all rows).
        """
        if label is None and column is None:
            return self.masses
        factors = dict.fromkeys(self.labels, 1.0)
        if self.factors is not None:
            factors = dict(zip(self.labels, self.factors.tolist(), strict=True))

        def factor(of: Any, at: Any) -> float:
            fits = (label is None or of == label) and (column is None or at == value)
            return factors.get(of, 1.0) if fits else 0.0

        tables = [each.cells.get(column or "", ()) for each in self.introductions]
        sums = [sum(factor(label, at) * weight for label, at, weight in cells) for cells in tables]
        return self._of_each(sums)

    def values(self, column: str) -> set[Any]:
        """The values of a column over all clients."""
        return {value for each in self.introductions for value in each.values.get(column, ())}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that every client has beside the features."""
        first, *others = [each.columns for each in self.introductions]
        return tuple(name for name in first if all(name in other for other in others))

    @property
    def linear(self) -> tuple[NDArray[np.bool_], ...] | None:
        """Which rows of its C and d every client has; None where not all have some."""
        parts = [each.linear for each in self.introductions]
        known = tuple(part for part in parts if part is not None)
        return known if len(known) == len(parts) else None


# Targets as losses need them: two classes as -1 and +1, several as their numbers, quadratic
# clients' b.


def coded(ys: Sequence[Any], classes: list[Any]) -> bool:
    """Whether targets are -1 and +1 already rather than two labels, which may be others."""
    if np.isin(joined(ys), np.asarray(classes)).all():
        return False
    outside = [y for y in ys if not np.isin(y, np.asarray(classes)).all()]
    if any(y.dtype.kind != "f" or not np.isin(y, (-1.0, 1.0)).all() for y in outside):
        raise _outside(classes)
    return True


def _outside(classes: list[Any]) -> RowError:
    what, do = "there are targets outside the classes", "Give the federation with its labels."
    return RowError("y", what, shown=f" {classes[:6]}", do=do)


def check_quadratic(fed: Federation, predictor: "Predictor") -> None:
    """Raise unless every client holds a symmetric matrix, or the table is the server's."""
    of_server = fed.clients == ("server",)
    intercept = getattr(predictor, "intercept", False)
    square = all(isinstance(x, np.ndarray) and x.shape[0] == x.shape[1] for x in fed.X)
    alike = square and all(np.abs(A - A.T).max() <= 1e-12 * np.abs(A).max() for A in fed.X)
    if intercept or not (of_server or alike):
        raise ValueError(
            "Quadratic() needs the predictor Linear(fit_intercept=False) and clients with symmetric"
            " A: make them by Federation.from_quadratics(A, b, C, d)."
        )


def check_counts(ys: Sequence[Array], clients: Sequence[ClientName], loss: str) -> None:
    """Raise unless all targets are finite and >= 0."""
    every = joined(ys)
    if ((every >= 0) & (every < np.inf)).all():
        return
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


def class_numbers(ys: Sequence[Any], classes: list[Any]) -> Sequence[Array]:
    """The classes' numbers, in the order of the classes."""
    labels = np.asarray(classes)
    alike = (ys[0].dtype.kind == "U") == (labels.dtype.kind == "U")
    if not alike or not np.isin(joined(ys), labels).all():
        raise _outside(classes)
    order = np.argsort(labels)  # a positive class is the last one, wherever it sorts
    number = lambda y: order[np.searchsorted(labels, y, sorter=order)].astype(float)  # noqa: E731
    return each_changed(number, ys)


def classes_of(fed: Federation) -> list[Any]:
    """The declared classes, or the distinct targets."""
    if fed.classes is not None:
        return fed.classes.tolist()
    return np.unique(joined(fed.y)).tolist()


# Weights of classes: every row counts by the weight of its class, beside its own.
#
#     balanced: v_c = n / (C n_c), n_c the rows of class c over all clients (a sum of their counts)
#
# So do clients: the prior "size" is their rows' weights.

Balance = Literal["balanced"] | Mapping[Any, float]


def weighted(fed: Federation, values: ArrayLike, factors: Array) -> Federation:
    """The federation with weights of rows, times those of their classes.

    ``values`` (C,) are the targets that stand for the classes, ascending, ``factors`` (C,) the
    weights of the classes.
    """
    each = each_changed(lambda y: factors[np.searchsorted(values, y)], fed.y)
    if (given := fed.sample_weight) is not None:
        each = tuple(mine * v for mine, v in zip(each, given, strict=True))
    return fed._with(sample_weight=each)


def class_counts(fed: Federation, values: ArrayLike) -> Array:
    """(C,) the weight of the rows of every class over all clients; ``values`` as of `weighted`."""
    pairs = zip(fed.y, fed.sample_weight or tuple(np.ones(len(y)) for y in fed.y), strict=True)
    counts = [np.bincount(np.searchsorted(values, y), v, np.size(values)) for y, v in pairs]
    return np.sum(counts, 0, float)


Data = Federation | Metadata  # rows, or what is known of them


def masses(fed: Data) -> Array:
    """(N,) the weight of every client's rows together."""
    if isinstance(fed, Metadata):
        return fed.masses
    if fed.sample_weight is None:
        return fed.sizes.astype(float)
    return np.array([float(v.sum()) for v in fed.sample_weight])


def class_factors(stated: Balance, classes: list[Any], counts: Array) -> Array:
    """(C,) the weight of every class; a mapping has 1 for those that it does not name."""
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
