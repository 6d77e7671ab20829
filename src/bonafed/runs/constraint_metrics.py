"""Constraints at a model, on the rows trained on or on others, and their error rates.

A constraint bounds a mean loss or a mean score, because error rates are neither convex nor
continuous. Its *rate* is what a reader has in mind: the same mean over the same groups, of phi = 1
where a row is predicted wrongly instead of the loss, and of phi = 1 where the larger class is
predicted instead of the score or probability.

A proof is about the rows trained on; on others a constraint may be violated. There the level of a
client holds for that client only, and a constraint on groups is left out where a set has fewer
than two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from bonafed.arrays import Array
from bonafed.data.federation import Federation
from bonafed.problem.constraints.constraint import Concrete, Point, Stack, Stated, several
from bonafed.problem.constraints.coupled import Coupled, Shared
from bonafed.problem.constraints.group_means import OfLoss, OnRows
from bonafed.problem.problem import Problem
from bonafed.runs.files import Record
from bonafed.solution.tables import SERVER, TOGETHER, constraint_rows

TRAINING = "training rows"


def asked(problem: Problem) -> bool:
    """Whether the problem is one for the methods for constraints."""
    return problem.constrained or getattr(problem.over_samples, "label", None) is not None


@dataclass(frozen=True)
class Wrong:
    """The measure phi = 1 where a row is predicted wrongly."""

    def value(self, prediction: Array, y: Array) -> Array:
        return ((prediction > 0) != (y > 0)).astype(float)


@dataclass(frozen=True)
class Chosen:
    """The measure phi = 1 where the larger class is predicted."""

    def value(self, prediction: Array, y: Array) -> Array:
        return (prediction > 0).astype(float)


def as_rate(part: Concrete) -> Concrete | None:
    """The constraint with rates in place of losses and scores, and no level; None where it has no
    rate.
    """
    if isinstance(part, Shared):
        inner = as_rate(part.one)
        return None if inner is None else replace(part, one=inner)
    if not isinstance(part, OnRows):
        return None
    measure = Wrong() if isinstance(part.measure, OfLoss) else Chosen()
    return replace(part, measure=measure, level=np.zeros_like(part.level))


def _rates(stack: Stack, point: Point) -> Array:
    """(p,) the rates of the one owner of the block; NaN where there are none."""
    rates = [np.zeros(0)]
    for part in stack.parts:
        rate = as_rate(part) if point.problem.loss.targets == "sign" else None
        none = np.full(len(part.equality), np.nan)
        rates.append(none if rate is None else rate.values(point)[0])
    return np.concatenate(rates)


def kept(problem: Problem, w: Array, fed: Federation, other: bool = True) -> list[Record]:
    """One row for every constraint and owner: owner, constraint, limit, measured, slack, met, rate.

    ``problem``, ``fed`` as stated; ``other``: not the rows trained on, where only constraints on
    rows are evaluated, as far as they can be.
    """
    concrete, data = (_elsewhere(problem, fed) if other else problem).at(fed)
    points = [Point(concrete, w, data.block(i)) for i in range(data.n_clients)]
    glob, local, rows = concrete.constraint, concrete.local_constraint, []
    if glob.held.size:
        rows += _rows(SERVER, glob.held, *_measured(glob.held, glob.point(concrete, w)))
    if glob.coupled.size:
        parts = zip(*(_measured(glob.coupled, point) for point in points), strict=True)
        rows += _rows(TOGETHER, glob.coupled, *(np.sum(part, 0) for part in parts))
    for name, point in zip(data.names, points, strict=True):
        rows += _rows(name, local, *_measured(local, point))
    return rows


def _measured(stack: Stack, point: Point) -> tuple[Array, Array, Array]:
    """(limits, values, rates), each (p,), of the one owner of the block."""
    return stack.limits(point.block)[0], stack.values(point)[0], _rates(stack, point)


def _rows(owner: str, stack: Stack, limits: Array, values: Array, rates: Array) -> list[Record]:
    rows = constraint_rows(owner, stack, limits, values, rates)
    for row in rows:  # which has the rate in the place of a multiplier
        rate = row.pop("price")
        row["rate"] = None if np.isnan(rate) else rate
    return rows


def _elsewhere(problem: Problem, fed: Federation) -> Problem:
    """The problem with those constraints that can be evaluated on other rows."""
    none = replace(problem, local_constraint=None, constraint=None)
    local = [_restated(one, fed) for one in several(problem.local_constraint, "local_constraint")]
    shared = [one for one in several(problem.constraint, "constraint") if isinstance(one, Coupled)]
    return replace(
        none,
        local_constraint=tuple(
            one for one in local if _fits(replace(none, local_constraint=one), fed)
        ),
        constraint=tuple(one for one in shared if _fits(replace(none, constraint=one), fed)),
    )


def _restated(one: Stated, fed: Federation) -> Stated | None:
    """A constraint with the levels of these clients only; None where a client has none."""
    level = getattr(one, "level", None)
    if not isinstance(level, Mapping):
        return one
    if any(client not in level for client in fed.clients):
        return None
    levels = {client: level[client] for client in fed.clients}
    return replace(one, level=levels)  # type: ignore[type-var]


def _fits(problem: Problem, fed: Federation) -> bool:
    if not problem.constrained:
        return False
    try:
        return bool(problem.at(fed))
    except ValueError:  # fewer than two groups, or a group without rows
        return False


def summary(problem: Problem, w: Array, fed: Federation) -> Record:
    """How many constraints are met on rows that were not trained on, and the largest violation;
    `bonafed.runs.evaluation.measure` adds it.
    """
    rows = kept(problem, w, fed) if problem.constrained else []
    if not rows:
        return {}
    worst = min(rows, key=lambda row: row["slack"])
    return {
        "asked": len(rows),
        "met": sum(row["met"] for row in rows),
        "excess": max(0.0, -worst["slack"]),
        "excess_owner": worst["owner"],
    }
