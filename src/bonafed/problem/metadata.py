"""What the server knows of the clients' data: the facts that each of them tells before a run.

A problem as it is stated needs a few facts of the data to become concrete: how many rows and
features there are, which classes, which values in the columns that constraints name. Each client
reads them off its rows (``introduced``), the server puts them together (`Metadata`), and
``Problem.at`` needs no more. The rows stay with their owner, who codes and checks them there.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed import client_names
from bonafed.arrays import Array
from bonafed.client_names import ClientName
from bonafed.data import validation as check
from bonafed.data.federation import Federation
from bonafed.rounds import LARGEST, record

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
        labels = tuple(np.unique(y).tolist() if fed.classes is None else fed.classes.tolist())
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
        values={name: _values(columns[name]) for name in known},
        cells={
            name: _cells(y if asked.classes else None, columns.get(name), weights, len(y))
            for name in asked.counted
            if not name or name in columns
        },
        linear=None if linear is None else linear[0].any(1) | (linear[1] != 0),
        fitted=fed.fitted,
        digest=digest,
    )


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


def _values(column: NDArray[Any]) -> tuple[Any, ...]:
    """The values of a column, each once, in the order of their first appearance."""
    return tuple(dict.fromkeys(column.tolist()))


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
    introductions : what every client told, in the order of the clients
    server : the server's data, where it holds some
    classes : (C,) the classes, declared or those of all clients' rows, in their order; None where
        the loss has none
    feature_names : of all clients
    factors : (C,) weights of the classes, by which the rows are weighted
    """

    introductions: tuple[Introduced, ...]
    server: Federation | None = None
    classes: NDArray[Any] | None = None
    feature_names: tuple[str, ...] = ()
    factors: Array | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, introductions: Sequence[Introduced], server: Federation | None = None
    ) -> "Metadata":
        """The facts of all clients together.

        Raises
        ------
        ValueError : two clients of one name, or clients with other features, labels of another
            type or another positive class
        """
        clients = tuple(each.client for each in introductions)
        check.one_per_client(clients)
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
        return tuple(each.client for each in self.introductions)

    @property
    def n_clients(self) -> int:
        """N."""
        return len(self.introductions)

    @property
    def n_features(self) -> int:
        """The number d of features."""
        return len(self.feature_names)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """(N,) rows of each client."""
        return np.array([each.rows for each in self.introductions], np.intp)

    def digests(self) -> tuple[str, ...]:
        """One digest of the rows of each client, empty where it was not asked for."""
        return tuple(each.digest for each in self.introductions)

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

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names as text."""
        return tuple(map(str, self.clients))

    def position(self, client: ClientName) -> int:
        """The position of a client, by name."""
        return client_names.position(client, self.clients)

    def positions(self, clients: Iterable[ClientName]) -> list[int]:
        """The positions of several clients, by name."""
        return client_names.positions(clients, self.clients)

    # ---------------------------------------------------------------- groups of rows

    @cached_property
    def masses(self) -> Array:
        """(N,) the weight of every client's rows together."""
        if self.factors is None:
            return np.array([each.weight for each in self.introductions])
        return self.class_masses() @ self.factors

    def class_masses(self) -> Array:
        """(N, C) the weight of every client's rows of each class, before the classes' weights."""
        assert self.classes is not None
        place = {label: k for k, label in enumerate(self.classes.tolist())}
        masses = np.zeros((self.n_clients, len(place)))
        for i, each in enumerate(self.introductions):
            for label, _, weight in each.cells.get("", ()):
                if label in place:
                    masses[i, place[label]] += weight
        return masses

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
        return np.array(sums, float)

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
