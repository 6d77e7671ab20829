"""Constraints with what they measure, computed from the raw rows in plain NumPy, for the laws of
constraints.

Nothing of bonafed is used in the measures: group means are taken row by row from the clients' own
arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from problems import PLAIN

from bonafed.data.federation import Federation
from bonafed.problem.losses import Logistic
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem

SIZES = (7, 4, 9, 6, 5)
NAMES = tuple(f"clinic {k}" for k in "dbeca")  # not sorted: clients keep their order
FEATURES = ("dose", "bmi", "smoker", "stay")
LONE, ONE_CLASS = "clinic c", "clinic b"  # has one sex only; has no row of class "yes"


@dataclass(frozen=True)
class Rows:
    """One owner's rows as given; ``index`` is its position in the federation."""

    X: Any
    y: Any  # -1 and +1, or numbers
    columns: dict[str, Any]
    weight: Any
    index: int

    def mean(self, phi: Callable[..., Any], w: Any, inside: Any) -> float:
        """The weighted mean of phi(prediction, y) over the rows inside; NaN without any."""
        mass = float(np.sum(self.weight[inside]))
        p = self.X @ w[: self.X.shape[1]] + (w[-1] if len(w) > self.X.shape[1] else 0.0)
        return (
            float(np.sum(self.weight[inside] * phi(p[inside], self.y[inside]))) / mass
            if mass > 0
            else np.nan
        )

    def column(self, name: str) -> Any:
        """A column, or the feature of that name."""
        return self.columns[name] if name in self.columns else self.X[:, FEATURES.index(name)]


Measure = Callable[[Any, Rows], Sequence[float]]


def federation(
    real: bool = False, text: bool = True, weights: bool = False, sparse: bool = False
) -> Federation:
    """Five clients of different sizes with columns "sex" and "age", one binary feature, and own
    linear rows.
    """
    rng = np.random.default_rng(4)
    X = [0.7 * rng.standard_normal((m, len(FEATURES))) for m in SIZES]
    for x in X:
        x[:, 2] = np.arange(len(x)) % 2
    y: list[Any] = [
        rng.standard_normal(m) if real else np.where(rng.random(m) < 0.5, "no", "yes")
        for m in SIZES
    ]
    sex = [np.array(["f", "m", "f", "m", "m", "f", "m", "f", "f"])[:m] for m in SIZES]
    age = [np.array([30, 50, 70, 30, 50, 70, 30, 50, 50])[:m] for m in SIZES]
    if not real:
        for labels in y:
            labels[:2] = "yes", "no"
        y[NAMES.index(ONE_CLASS)][:] = "no"
        if not text:
            y = [np.where(labels == "yes", 1, 0) for labels in y]
    sex[NAMES.index(LONE)][:] = "f"
    linear = tuple(
        (rng.standard_normal((k, len(FEATURES))), rng.standard_normal(k)) for k in (2, 0, 1, 2, 1)
    )
    if sparse:
        from scipy.sparse import csr_array

        X = [csr_array(x) for x in X]
    return Federation(
        NAMES,
        tuple(X),
        tuple(y),
        feature_names=FEATURES,
        sample_weight=tuple(rng.uniform(0.5, 2.0, m) for m in SIZES) if weights else None,
        columns={"sex": tuple(sex), "age": tuple(age)},
        linear=linear,
    )


def raw_rows(fed: Federation) -> list[Rows]:
    """The clients' rows; text and whole-number labels as -1 and +1, the larger class +1."""
    found = []
    for i, (x, y) in enumerate(zip(fed.X, fed.y, strict=True)):
        sign = y.dtype.kind in "Ui"
        classes = np.unique(np.concatenate(fed.y)) if sign else None
        found.append(
            Rows(
                x if isinstance(x, np.ndarray) else x.toarray(),
                np.where(y == classes[1], 1.0, -1.0) if classes is not None else y,
                {key: parts[i] for key, parts in (fed.columns or {}).items()},
                np.ones(len(y)) if fed.sample_weight is None else fed.sample_weight[i],
                i,
            )
        )
    return found


def together(rows: Sequence[Rows]) -> Rows:
    """All owners' rows as if one had them."""
    columns = {key: np.concatenate([one.columns[key] for one in rows]) for key in rows[0].columns}
    X, y, weight = (
        np.concatenate([getattr(one, part) for one in rows]) for part in ("X", "y", "weight")
    )
    return Rows(X, y, columns, weight, 0)


@dataclass(frozen=True)
class Constrained:
    """A constraint, data that have it, and its measure: the law is measured <= limit, row by row of
    the p constraints.

    ``limit`` (N, p) is what every client is asked, or (p,) for sums over the clients (``prior``
    (N,) their weights).
    """

    stated: Any
    measure: Measure
    limit: Any
    problem: Problem = field(default_factory=lambda: Problem(Logistic(), PLAIN))
    fed: Federation = field(default_factory=federation)
    # of a sum over the clients: weights, or "rows" where all rows are one owner's
    prior: Any = None
    hessian: bool = True

    @property
    def coupled(self) -> bool:
        """Whether it is a sum over the clients."""
        return self.prior is not None

    def at(
        self, fed: Federation | None = None, intercept: bool = False
    ) -> tuple[Problem, Federation]:
        """The concrete problem with the constraint in its slot."""
        slot = "constraint" if self.coupled else "local_constraint"
        changes = {"predictor": Linear(True)} if intercept else {}
        return replace(self.problem, **{slot: self.stated}, **changes).at(
            self.fed if fed is None else fed
        )

    def stack(self, problem: Problem) -> Any:
        """Its concrete stack."""
        return problem.constraint.coupled if self.coupled else problem.local_constraint


# ----------------------------------------------------------------------------------------- measures


def logistic(p: Any, y: Any) -> Any:
    return np.logaddexp(0.0, -y * p)


def exponential(p: Any, y: Any) -> Any:
    return np.exp(-y * p)


def squared(p: Any, y: Any) -> Any:
    return (p - y) ** 2 / 2


def score(p: Any, y: Any) -> Any:
    return p


def probability(p: Any, y: Any) -> Any:
    return 1 / (1 + np.exp(-p))


def of_class(phi: Callable[..., Any], label: float) -> Measure:
    """The mean of the rows of one class."""
    return lambda w, rows: [rows.mean(phi, w, rows.y == label)]


def of_groups(phi: Callable[..., Any], column: str, values: Sequence[Any]) -> Measure:
    """The mean of every group."""
    return lambda w, rows: [rows.mean(phi, w, rows.column(column) == v) for v in values]


def gaps(
    phi: Callable[..., Any], column: str, values: Sequence[Any], labels: Sequence[Any] = (None,)
) -> Measure:
    """Every two groups' difference, either way round, within each label."""

    def measure(w: Any, rows: Rows) -> list[float]:
        found = []
        for label in labels:
            own = np.ones(len(rows.y), bool) if label is None else rows.y == label
            means = [rows.mean(phi, w, own & (rows.column(column) == v)) for v in values]
            found += [a - b for a, b in itertools.permutations(means, 2)]
        return found

    return measure


def affine(C: Any) -> Measure:
    """C w; an intercept counts for nothing."""
    return lambda w, rows: list(np.asarray(C, float) @ w[: np.shape(C)[1]])


def own_rows_of(fed: Federation, k: int) -> tuple[Measure, Any]:
    """C_i w and -d_i of every client's own rows, filled up with NaN to k."""
    assert fed.linear is not None
    parts = fed.linear
    limit = np.full((len(parts), k), np.nan)
    for row, (_, d) in zip(limit, parts, strict=True):
        row[: len(d)] = -d

    def measure(w: Any, rows: Rows) -> list[float]:
        C, d = parts[rows.index]
        return [*(C @ w[: C.shape[1]]), *[np.nan] * (k - len(d))]

    return measure, limit


# -------------------------------------------------------------------------- a function of one's own


def ball(w: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """||w||^2 - 1 <= 0, and mean exp(x'w / 2) - 2 <= 0."""
    growth = np.exp(X @ w / 2) / len(y)
    return np.array([w @ w - 1, growth.sum() - 2]), np.stack([2 * w, X.T @ growth / 2])


def ball_hessian(w: Any, X: Any, y: Any, mu: Any) -> Any:
    growth = np.exp(X @ w / 2) / len(y)
    return 2 * mu[0] * np.eye(len(w)) + mu[1] * (X.T * growth) @ X / 4


def ball_measure(w: Any, rows: Rows) -> list[float]:
    return [float(w @ w) - 1, float(np.mean(np.exp(rows.X @ w / 2))) - 2]
