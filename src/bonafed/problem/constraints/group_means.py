"""Constraints on means over groups of an owner's rows: Neyman-Pearson, loss gaps, parity, bounded
group loss.

    c_k(w) = sum_g a_kg M_g(w) - level_k <= 0,  M_g(w) = mean over the rows j of group g of
            phi(x_j'w, y_j)

A group is all rows, those of one label, those with one value in a column, or both. phi, the
*measure*, is the problem's loss, the score x'w, or the probability 1 / (1 + exp(-x'w)). The level
bounds this mean, not an error rate: error rates are not convex, nor continuous. Sources: He, Peng,
Sun, *Federated learning with convex global and local constraints*, (1), (2), (30); Agarwal and
others, *A reductions approach to fair classification* (bounded group loss); Zafar and others,
*Fairness constraints* (parity of scores). `Coupled` bounds such means over all clients together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from bonafed.arrays import Array, Block, Label, by_row, has_truths
from bonafed.parameters import Checked
from bonafed.problem.constraints import constraint as constraints
from bonafed.problem.constraints.constraint import VOID, Objective, Point, magnitudes_of_rows, once
from bonafed.problem.losses import Exponential, Logistic, Loss
from bonafed.problem.metadata import Metadata
from bonafed.problem.risks.risk import Prior, per_client, resolve_prior

MOST_GROUPS = 20  # that a column may make
Given = Array | None

# a limit, or one for each client
Level = float | Sequence[float] | Array | Mapping[Any, float]

# ---------------------------------------------------------------------------------------- measures


class Measure:
    """phi, a function of predictions and targets, elementwise, with its ``value``, ``gradient`` and
    ``curvature``.
    """

    affine: ClassVar[bool] = False
    convex: ClassVar[bool] = False
    word: ClassVar[str]


@dataclass(frozen=True)
class Score(Measure):
    """phi = x'w: affine in the model, so that a bound on a difference of its means is convex.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     local_constraint=bf.DemographicParity("sex", 0.1, bf.Score()),
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    affine: ClassVar[bool] = True
    convex: ClassVar[bool] = True
    word: ClassVar[str] = "score"

    def value(self, prediction: Array, y: Array) -> Array:
        return prediction

    def gradient(self, prediction: Array, y: Array) -> Array:
        return np.ones_like(prediction)

    def curvature(self, prediction: Array, y: Array) -> Array:
        return np.zeros_like(prediction)


@dataclass(frozen=True)
class Probability(Measure):
    """phi = 1 / (1 + exp(-x'w)), the probability of the larger class under a logistic model; not
    convex.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     local_constraint=bf.DemographicParity("sex", 0.05, bf.Probability()),
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    word: ClassVar[str] = "probability"

    def value(self, prediction: Array, y: Array) -> Array:
        tail = np.exp(-np.abs(prediction))
        return np.where(prediction >= 0, 1.0, tail) / (1.0 + tail)

    def gradient(self, prediction: Array, y: Array) -> Array:
        p = self.value(prediction, y)
        return p * (1 - p)

    def curvature(self, prediction: Array, y: Array) -> Array:
        p = self.value(prediction, y)
        return p * (1 - p) * (1 - 2 * p)


@dataclass(frozen=True)
class OfLoss(Measure):
    """phi = the problem's loss."""

    loss: Loss
    convex: ClassVar[bool] = True
    word: ClassVar[str] = "loss"

    def __post_init__(self) -> None:
        if self.loss.targets == "quadratic":
            raise ValueError(
                "Quadratic clients have no losses of rows to average: bound the model by"
                " LinearInequality(C, d), or give Constraint(value_and_jacobian)."
            )

    def value(self, prediction: Array, y: Array) -> Array:
        return self.loss.value(prediction, y)

    def gradient(self, prediction: Array, y: Array) -> Array:
        return self.loss.gradient(prediction, y)

    def curvature(self, prediction: Array, y: Array) -> Array:
        return self.loss.curvature(prediction, y)


# ---------------------------------------------------------------------------------------- groups


@dataclass(frozen=True)
class Group:
    """The rows with a coded label and a value in a column; None: any."""

    label: float | None = None
    column: str | None = None
    value: Any = None

    def inside(self, block: Block) -> Array:
        """(n, m) of 0 and 1; 0 on padding."""
        rows = block.share > 0
        if self.label is not None:
            rows = rows & (block.y == self.label)
        if self.column is not None:
            rows = rows & (block.columns[self.column] == self.value)
        return rows.astype(float)


@dataclass(frozen=True, eq=False)
class OnRows:
    """The concrete form of every constraint of this module.

    Parameters
    ----------
    measure : phi
    groups : G groups of rows
    coefficients : (p, G)
    level : (N, p) for the N clients of the federation
    words : (p,)
    total : (G,) where the means are over all clients' rows: a client then adds its part of every
        mean, and its part 1/N of the level; None: every client by itself
    """

    measure: Any
    groups: tuple[Group, ...]
    coefficients: Array
    level: Array
    words: tuple[str, ...]
    total: Given = None
    sizes: Given = None  # (N,) rows of every client, or their weight, with ``total``

    @property
    def equality(self) -> NDArray[np.bool_]:
        return np.zeros(len(self.coefficients), bool)

    @property
    def affine(self) -> bool:
        return self.measure.affine

    @property
    def convex(self) -> bool:
        return self.affine or (self.measure.convex and bool((self.coefficients >= 0).all()))

    def masses(self, data: Metadata) -> Array:
        """(N, G) the weight of every client's rows in each group."""
        # of a label: -1 and +1, or the number of a class
        codes = [g.label for g in self.groups]
        labels = [None if c is None else data.labels[max(int(c), 0)] for c in codes]
        pairs = zip(labels, self.groups, strict=True)
        return np.stack([data.group_masses(of, g.column, g.value) for of, g in pairs], 1)

    def held_by(self, data: Metadata) -> NDArray[np.bool_]:
        """(N, p) whether a client has rows in every group of a constraint."""
        empty = (self.masses(data) <= 0).astype(float)
        return ~((self.coefficients != 0).astype(float) @ empty.T > 0).T

    def weights(self, block: Block) -> tuple[Array, NDArray[np.bool_]]:
        """(n, p, m) weights of the rows in each constraint, and (n, p) whether the client has
        it.
        """
        return once(block, self, lambda: self._weights(block))

    def _weights(self, block: Block) -> tuple[Array, NDArray[np.bool_]]:
        # (n, G, m)
        inside = np.stack([group.inside(block) * block.share for group in self.groups], 1)
        mass = inside.sum(2)
        if self.total is not None:
            assert self.sizes is not None
            means = inside * (self.sizes[block.index][:, None] / self.total)[:, :, None]
            has = np.ones((len(mass), len(self.coefficients)), bool)
            return np.einsum("pg,ngm->npm", self.coefficients, means), has
        each = mass[:, :, None]
        means = np.divide(inside, each, out=np.zeros_like(inside), where=each > 0)
        has = ~np.einsum("pg,ng->np", self.coefficients != 0, mass <= 0).astype(bool)
        return np.einsum("pg,ngm->npm", self.coefficients, means) * has[:, :, None], has

    def _levels(self, block: Block) -> Array:
        return self.level[block.index] / (1.0 if self.total is None else len(self.level))

    def values(self, point: Point) -> Array:
        weights, has = self.weights(point.block)
        value = self.measure.value(point.prediction, point.block.y)
        measured = np.matmul(weights, value[:, :, None])[:, :, 0]
        return np.where(has, measured - self._levels(point.block), VOID)

    def jacobian(self, point: Point) -> Array:
        weights = self.weights(point.block)[0]
        gradient = self.measure.gradient(point.prediction, point.block.y)
        back, each = point.problem.predictor.backward, weights.swapaxes(0, 1)
        return np.stack([back(point.w, by_row(rows, gradient), point.block) for rows in each], 1)

    def curvature(self, point: Point, multipliers: Array) -> tuple[Given, Given]:
        if self.affine:
            return None, None
        rows = np.matmul(multipliers[:, None, :], self.weights(point.block)[0])[:, 0]
        return rows * self.measure.curvature(point.prediction, point.block.y), None

    def split(self, point: Point, multipliers: Array) -> tuple[Given, Array, Array]:
        weights, has = self.weights(point.block)
        constants = (multipliers * np.where(has, -self._levels(point.block), VOID)).sum(1)
        rows = np.matmul(multipliers[:, None, :], weights)[:, 0]
        if isinstance(self.measure, OfLoss) and self.measure.loss == point.problem.loss:
            return rows, np.zeros(point.models.shape), constants
        slopes = rows * self.measure.gradient(point.prediction, point.block.y)
        gradients = point.problem.predictor.backward(point.w, slopes, point.block)
        if self.affine:  # exactly, however far the model is
            return None, gradients, constants
        value = (rows * self.measure.value(point.prediction, point.block.y)).sum(1)
        return None, gradients, constants + value - (gradients * point.models).sum(1)

    def magnitudes(self, point: Point, multipliers: Array) -> Array:
        weights = np.abs(self.weights(point.block)[0])
        rows = np.matmul(np.abs(multipliers)[:, None, :], weights)[:, 0]
        gradient = self.measure.gradient(point.prediction, point.block.y)
        return magnitudes_of_rows(point, rows, gradient)

    def limits(self, block: Block) -> Array:
        return np.where(self.weights(block)[1], self._levels(block), math.nan)


# ---------------------------------------------------------------------------------------- as stated


class Levelled(Checked):
    """The base of a constraint with a level, one for all clients or one for each."""

    level: Level

    def __post_init__(self) -> None:
        """Refuse a level that is not a number >= 0; client names are checked against the data."""
        each = [*self.level.values()] if isinstance(self.level, Mapping) else self.level
        numbers = np.asarray(each)
        name = type(self).__name__
        if has_truths(each) or numbers.dtype.kind not in "fiu" or not numbers.size:
            raise ValueError(
                f"the level of {name} must be a number, one per client, or a mapping by name, got"
                f" {self.level!r}."
            )
        if not np.isfinite(numbers).all() or (numbers < 0).any():
            raise ValueError(
                f"the level of {name} must be finite and >= 0, got {self.level!r}: it bounds a mean"
                " or a difference."
            )

    def _levels(self, data: Metadata) -> Array:
        """(N,) levels, one for each client."""
        name = f"the level of {type(self).__name__}"
        return per_client(self.level, data.n_clients, data.clients, name)

    def _reachable(self, problem: Objective, data: Metadata) -> Array:
        """The levels; ``ValueError`` where the mean of a loss above 0 everywhere reaches none."""
        level = self._levels(data)
        if isinstance(problem.loss, Logistic | Exponential) and (level <= 0).any():
            raise ValueError(
                f"{type(self).__name__}: a mean {type(problem.loss).__name__} loss is above 0 at"
                " every model: give a level > 0."
            )
        return level


@dataclass(frozen=True)
class NeymanPearson(Levelled):
    """The mean loss of an owner's rows of one class is at most a level: (1) and (30), with
    ``Mean(label=...)`` of the other class as the objective.

    Parameters
    ----------
    label : the class, as in the data
    level : in units of the loss, >= 0: a number, one per client, or a mapping by client name

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> limit = bf.NeymanPearson("malignant", level=0.2)
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     over_samples=bf.Mean(label="benign"),
    ...     local_constraint=limit,
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    phrase: ClassVar[str] = "mean loss of class {label} at most {level}"
    label: Label
    level: Level

    def at(self, problem: Objective, data: Metadata) -> OnRows:
        groups = [Group(label_code(self.label, data, problem.loss))]
        level, words = self._reachable(problem, data), [f"mean loss of class {self.label}"]
        return on_rows(OfLoss(problem.loss), groups, np.ones((1, 1)), level, words)


@dataclass(frozen=True)
class LossGap(Levelled):
    """|mean loss of one group - mean loss of the other| <= level: (2). Not convex.

    Parameters
    ----------
    column : a column of the federation, or a feature, with two values
    level : in units of the loss, >= 0: a number, one per client, or a mapping by client name

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     local_constraint=bf.LossGap("sex", level=0.1),
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    phrase: ClassVar[str] = "mean losses of the groups of {column} at most {level} apart"
    convex: ClassVar[bool] = False
    column: str
    level: Level

    def at(self, problem: Objective, data: Metadata) -> OnRows:
        groups = groups_of(self.column, data, "LossGap", most=2)
        return differences(OfLoss(problem.loss), groups, self._levels(data))


@dataclass(frozen=True)
class BoundedGroupLoss(Levelled):
    """The mean loss of every group of a column is at most a level; convex.

    Parameters
    ----------
    column : a column of the federation, or a feature, with at most 20 values
    level : in units of the loss, >= 0: a number, one per client, or a mapping by client name

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     local_constraint=bf.BoundedGroupLoss("sex", level=0.65),
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    phrase: ClassVar[str] = "mean loss of every group of {column} at most {level}"
    column: str
    level: Level

    def at(self, problem: Objective, data: Metadata) -> OnRows:
        groups = groups_of(self.column, data, "BoundedGroupLoss")
        words = [f"mean loss of {self.column} = {group.value}" for group in groups]
        level = self._reachable(problem, data)
        return on_rows(OfLoss(problem.loss), groups, np.eye(len(groups)), level, words)


@dataclass(frozen=True)
class Parity(Levelled):
    """The base of constraints on what is predicted for the groups of a column."""

    column: str
    level: Level
    measure: Measure | None = None

    @property
    def convex(self) -> bool:
        """Whether it bounds a convex set of models."""
        return _predicting(self.measure).convex

    def at(self, problem: Objective, data: Metadata) -> OnRows:
        groups = groups_of(self.column, data, type(self).__name__)
        return differences(_predicting(self.measure, problem), groups, self._levels(data))


@dataclass(frozen=True)
class DemographicParity(Parity):
    """The groups' mean scores (or probabilities) differ by at most a level, every two of them.

    Parameters
    ----------
    column : a column of the federation, or a feature, with at most 20 values
    level : >= 0, in units of the measure: a number, one per client, or a mapping by client name
    measure : ``Score()`` (None): convex. ``Probability()``: nearer to the rate of positive
        predictions, not convex; `ConstrainedClassifier` takes it for None

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     local_constraint=bf.DemographicParity("sex", level=0.1),
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    phrase = "mean predictions for the groups of {column} at most {level} apart ({measure:score}s)"


@dataclass(frozen=True)
class EqualisedOdds(Parity):
    """Within either class the groups' mean scores (or probabilities) differ by at most a level,
    every two of them.

    Parameters
    ----------
    column, level, measure : as of ``DemographicParity``

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     local_constraint=bf.EqualisedOdds("sex", level=0.1),
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    phrase = (
        "mean predictions within either class for the groups of {column} at most {level}"
        " apart ({measure:score}s)"
    )

    def at(self, problem: Objective, data: Metadata) -> OnRows:
        if problem.loss.targets != "sign":
            raise ValueError(
                f"EqualisedOdds needs two classes, and {type(problem.loss).__name__} has none."
            )
        every = super().at(problem, data)
        groups = [replace(group, label=y) for y in (-1.0, 1.0) for group in every.groups]
        classes = ("-1", "+1") if data.classes is None else data.classes.tolist()
        words = [f"{word} in class {one}" for one in classes for word in every.words]
        signs = np.asarray(block_diag(every.coefficients, every.coefficients))
        return on_rows(every.measure, groups, signs, self._levels(data), words)


def on_rows(
    measure: Measure, groups: Sequence[Group], signs: Array, level: Array, words: Sequence[str]
) -> OnRows:
    """The constraints of a table of signs (p, G), one level (N,) for all of them."""
    levels = np.repeat(level[:, None], len(signs), 1)
    return OnRows(measure, tuple(groups), signs, levels, tuple(words))


def differences(measure: Measure, groups: Sequence[Group], level: Array) -> OnRows:
    """Every two groups' means differ by at most the level, (N,): two constraints a pair."""
    pairs = list(itertools.permutations(range(len(groups)), 2))
    signs = np.zeros((len(pairs), len(groups)))
    for k, (a, b) in enumerate(pairs):
        signs[k, a], signs[k, b] = 1.0, -1.0
    word, values = f"{measure.word} of {groups[0].column}", [group.value for group in groups]
    words = [f"{word} = {values[a]} over {values[b]}" for a, b in pairs]
    return on_rows(measure, groups, signs, level, words)


def _predicting(measure: Measure | None, problem: Objective | None = None) -> Measure:
    if problem is not None and problem.loss.targets == "class":
        raise ValueError(
            "a mean score says nothing where a row has one for each class: a number may be added to"
            " all of them. Bound losses, as by BoundedGroupLoss(column, level)."
        )
    return Score() if measure is None else measure


def label_code(label: Label, data: Metadata, loss: Loss) -> float:
    """-1 or +1 of a label of the data, the larger class is +1; or its number among several."""
    if loss.targets not in ("sign", "class"):
        raise ValueError(
            f"label {label!r} needs a loss of classes, such as Logistic(), and"
            f" {type(loss).__name__} is none. For groups of rows give a column:"
            " BoundedGroupLoss(column, level)."
        )
    classes, two = data.labels, loss.targets == "sign"
    if (two and len(classes) != 2) or label not in classes:
        raise ValueError(
            f"label {label!r} is not one of the {'two ' * two}classes of the data: {classes[:6]}."
        )
    number = classes.index(label)
    return 2.0 * number - 1.0 if two else float(number)


def groups_of(column: str, data: Metadata, name: str, most: int = MOST_GROUPS) -> list[Group]:
    """The groups of a column's values over all clients, sorted; 2 to ``most`` of them."""
    if column not in data.columns:
        raise ValueError(
            f"{name}: the federation has no column {column!r}; it has {sorted(data.columns)}."
            " Give Federation(..., columns={...}), or name a feature."
        )
    seen = data.values(column)
    if len({isinstance(v, str) for v in seen}) > 1 or any(v is None or v != v for v in seen):
        raise ValueError(
            f"{name}: column {column!r} has missing values, or text beside numbers: every row needs"
            " a group. Give the rows without one a separate value."
        )
    values = sorted(seen)
    if not 2 <= len(values) <= most:
        shown = ", ".join(map(repr, values[:6]))
        raise ValueError(
            f"{name} needs a column with {'two' if most == 2 else f'2 to {most}'} values,"
            f" {column!r} has {len(values)}: {shown}. Give groups, such as intervals of a number."
        )
    return [Group(None, column, value) for value in values]


# Constraints that couple the clients:  sum_i c_i(w) <= 0,  (3) of He, Peng, Sun, *Federated
# learning with convex global and local constraints*; algorithms that work client by client split
# them by slack variables, (4).


@dataclass(frozen=True)
class Coupled(Checked):
    """One constraint over all clients together, for the slot ``constraint``.

    Parameters
    ----------
    constraint : on rows, such as ``NeymanPearson(1, 0.2)``
    prior : "rows": the constraint on all rows as if one client had them (every group's mean is over
        all its rows). "uniform", "size", weights (N,) or a mapping by client name: the weighted
        mean of the constraints of those clients that have rows for them

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.two_groups()
    >>> parity = bf.Coupled(
    ...     bf.DemographicParity("sex", level=0.05)
    ... )  # over both clients together
    >>> problem = bf.Problem(bf.Logistic(), constraint=parity, regulariser=bf.L2(0.01))
    >>> all(row["met"] for row in bf.solve(problem, fed).constraints)
    True
    """

    constraint: constraints.Stated
    prior: Prior | Literal["rows"] = "rows"

    @property
    def convex(self) -> bool:
        """Whether it bounds a convex set of models."""
        return constraints.is_convex(self.constraint)

    def at(self, problem: constraints.Objective, data: Metadata) -> Shared:
        inner = constraints.several(self.constraint, "Coupled")
        if len(inner) != 1 or isinstance(inner[0], Coupled):
            raise TypeError(
                "Coupled takes one constraint, such as NeymanPearson(1, 0.2), got"
                f" {self.constraint!r}."
            )
        one = inner[0].at(problem, data)
        if isinstance(self.prior, str) and self.prior == "rows":
            if not isinstance(one, OnRows):
                raise ValueError(
                    "Coupled(..., prior='rows') is for constraints on rows: for others give"
                    " prior='uniform'."
                )
            if np.ptp(one.level, 0).any():
                raise ValueError(
                    "Coupled(..., prior='rows') has one level for all clients: give one number."
                )
            total = one.masses(data).sum(0)
            if (total <= 0).any():
                raise ValueError(
                    "Coupled: a group has no rows at any client, so its mean is undefined. Check"
                    " label and column."
                )
            whole = replace(one, total=total, sizes=data.masses)
            return Shared(whole, np.ones((data.n_clients, len(one.equality))))
        prior = resolve_prior(self.prior, data.sizes.astype(float), data.clients)
        weight = one.held_by(data) * prior[:, None]
        if not weight.any(0).all():
            raise ValueError(
                "Coupled: no client with a weight has rows for it. Check label, column and prior."
            )
        return Shared(one, weight / weight.sum(0))  # the mean over the clients that have it


@dataclass(eq=False)
class Shared:
    """The concrete form: client i adds scale_i c_i(w) to each of the p sums."""

    one: constraints.Concrete
    scale: Array  # (N, p)

    def __post_init__(self) -> None:
        one = self.one
        self.equality, self.convex, self.affine = one.equality, one.convex, one.affine
        self.words = tuple(f"{word}, all clients together" for word in one.words)
        # None where the constraint has no second derivatives
        self.hessian: object = getattr(one, "hessian", one)

    def held_by(self, data: Metadata) -> NDArray[np.bool_]:
        """(N, p) whether a client adds to the sums."""
        return self.one.held_by(data) & (self.scale > 0)

    def _scale(self, block: Block) -> Array:
        """(n, p); 0 for what a client does not have."""
        return self.scale[block.index] * ~np.isnan(self.one.limits(block))

    def values(self, point: constraints.Point) -> Array:
        return self.one.values(point) * self._scale(point.block)

    def jacobian(self, point: constraints.Point) -> Array:
        return self.one.jacobian(point) * self._scale(point.block)[:, :, None]

    def curvature(self, point: constraints.Point, multipliers: Array) -> tuple[Given, Given]:
        return self.one.curvature(point, multipliers * self._scale(point.block))

    def split(self, point: constraints.Point, multipliers: Array) -> tuple[Given, Array, Array]:
        return self.one.split(point, multipliers * self._scale(point.block))

    def magnitudes(self, point: constraints.Point, multipliers: Array) -> Array:
        return self.one.magnitudes(point, multipliers * self._scale(point.block))

    def limits(self, block: Block) -> Array:
        return np.nan_to_num(self.one.limits(block)) * self._scale(block)


# What the slot ``constraint`` becomes: constraints on the server's own data, and sums over the
# clients.


@dataclass(frozen=True, eq=False)
class Global:
    """c_0(w) <= 0 on the server's data, and sum_i c_i(w) <= 0 over all clients.

    Attributes
    ----------
    held : p_0 constraints
    block : the server's rows; a row of zeros where it holds none and c_0 is about the model only
    coupled : p_c constraints, of which every client adds its part
    """

    held: constraints.Stack = field(default_factory=constraints.Stack)
    block: Block | None = None
    coupled: constraints.Stack = field(default_factory=constraints.Stack)

    def point(self, problem: constraints.Objective, w: Array) -> constraints.Point:
        """The model on the server's rows."""
        assert self.block is not None
        return constraints.Point(problem, w, self.block)

    @property
    def convex(self) -> bool:
        """Whether all are."""
        return self.held.convex and self.coupled.convex


def shared(
    stated: Global | constraints.Slot,
    problem: constraints.Objective,
    data: Metadata,
    server: tuple[Metadata, Block] | None,
) -> Global:
    """The concrete form of the slot ``constraint``; ``server`` is what the server itself holds."""
    if isinstance(stated, Global):
        return stated
    parts = constraints.several(stated, "constraint")
    together = tuple(one.at(problem, data) for one in parts if isinstance(one, Coupled))
    held = tuple(one for one in parts if not isinstance(one, Coupled))
    if server is None:
        if not all(getattr(one, "of_model", False) for one in held):
            raise ValueError(
                "constraint is for the server's own data, and the federation has none: give"
                " Federation(..., server=(X0, y0)), put the constraint into local_constraint (every"
                " client's own rows), or into Coupled (all clients' rows)."
            )
        if any(getattr(one, "C", 0) is None for one in held):
            raise ValueError(
                "constraint=LinearEquality() or LinearInequality() reads the server's own C and d,"
                " and there are none: give Federation.from_quadratics(A, b, C, d) or (C, d) here,"
                " or put it into local_constraint for the clients'."
            )
        concrete, one = constraints.stack(held, problem, data, "constraint"), np.zeros((1, 1))
        rows = np.zeros((1, 1, data.n_features)), one, one + 1.0
        block = Block(*rows, np.zeros(1, np.intp), ("server",))
    else:
        concrete, block = constraints.stack(held, problem, server[0], "constraint"), server[1]
    for word, limit in zip(concrete.words, concrete.limits(block)[0], strict=True):
        if np.isnan(limit):
            raise ValueError(
                f"constraint: the server has no rows for the {word}: leave it out, or give such"
                " rows."
            )
    return Global(concrete, block, constraints.Stack(together))
