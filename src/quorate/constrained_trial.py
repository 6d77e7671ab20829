"""The constraints of a run, judged: on the rows trained on, on rows held out, and beside other models.

A constraint bounds a mean loss or a mean score, because error rates are neither convex nor continuous. Its *rate* is
what a reader has in mind: the same mean over the same groups, of phi = 1 where a row is predicted wrongly instead of
the loss, and of phi = 1 where the larger class is predicted instead of the score or probability.

A proof is about the rows trained on. On others a constraint may fail. There a level of a client is asked of that
client, and a constraint on groups is left out where a set has not two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quorate.arrays import Array
from quorate.prices import SERVER, TOGETHER, constraint_table, prices
from quorate.problem.constraints.constraint import Point, Stack, several
from quorate.problem.constraints.coupled import Coupled, Shared
from quorate.problem.constraints.rows import OfLoss, OnRows
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean

if TYPE_CHECKING:
    from quorate.certificates.duality import Certificate
    from quorate.data.federation import Federation
    from quorate.parts import Parts

TOLD = ("constraints", "prices", "kept", "groups")  # the keys of result.json that `of_constraints` fills
TRAINING = "training rows"
ROUNDING = 1e-8  # a price below it is none
NEAR = 1e-3  # of an optimum, relative: what prices are stated for
MET = 1e-6  # what a constraint may be exceeded by


def asked(problem: Problem) -> bool:
    """Whether the problem is one for the methods for constraints."""
    return problem.constrained or getattr(problem.over_samples, "label", None) is not None


def free(problem: Problem) -> Problem:
    """The problem without its constraints and its privacy, all rows in the objective."""
    rows = Mean() if isinstance(problem.over_samples, Mean) else problem.over_samples
    return replace(problem, constraint=None, local_constraint=None, over_samples=rows, privacy=None)


# ---------------------------------------------------------------------------------------- rates


@dataclass(frozen=True)
class Wrong:
    """phi = 1 where a row is predicted wrongly."""

    def value(self, prediction: Array, y: Array) -> Array:
        return ((prediction > 0) != (y > 0)).astype(float)


@dataclass(frozen=True)
class Chosen:
    """phi = 1 where the larger class is predicted."""

    def value(self, prediction: Array, y: Array) -> Array:
        return (prediction > 0).astype(float)


def as_rate(part: Any) -> Any:
    """The constraint with rates for losses and scores, and no level; None where it has no such thing."""
    if isinstance(part, Shared):
        inner = as_rate(part.one)
        return None if inner is None else replace(part, one=inner)
    if not isinstance(part, OnRows):
        return None
    measure: Any = Wrong() if isinstance(part.measure, OfLoss) else Chosen()
    return replace(part, measure=measure, level=np.zeros_like(part.level))


def _rates(stack: Stack, at: Point) -> Array:
    """(p,) for the one owner of the block; NaN where there are none."""
    if at.problem.loss.targets != "sign":
        return np.full(stack.size, np.nan)
    parts = [(as_rate(part), len(part.equality)) for part in stack.parts]
    found = [np.full(p, np.nan) if part is None else part.values(at)[0] for part, p in parts]
    return np.concatenate([np.zeros(0), *found])


# ---------------------------------------------------------------------------------------- what is kept


def kept(problem: Problem, w: Array, fed: Federation, other: bool = True) -> list[dict[str, Any]]:
    """One row for every constraint and owner: owner, constraint, limit, measured, slack, met, rate.

    ``problem``, ``fed`` as stated; ``other``: not the rows trained on: only constraints on rows are asked there, as far
    as they can be.
    """
    concrete, data = (_elsewhere(problem, fed) if other else problem).at(fed)
    points = [Point(concrete, w, data.block(i)) for i in range(data.n_clients)]
    glob, local, found = concrete.constraint, concrete.local_constraint, []
    if glob.held.size:
        found += _rows(SERVER, glob.held, *_measured(glob.held, glob.at(concrete, w)))
    if glob.coupled.size:
        parts = [_measured(glob.coupled, at) for at in points]
        found += _rows(TOGETHER, glob.coupled, *(np.sum(each, 0) for each in zip(*parts, strict=True)))
    for name, at in zip(data.clients, points, strict=True):
        found += _rows(name, local, *_measured(local, at))
    return found


def _measured(stack: Stack, at: Point) -> tuple[Array, Array, Array]:
    """(limits, values, rates), each (p,), of the one owner of the block."""
    return stack.limits(at.block)[0], stack.values(at)[0], _rates(stack, at)


def _rows(owner: str, stack: Stack, limits: Array, values: Array, rates: Array) -> list[dict[str, Any]]:
    return [
        {
            "owner": owner,
            "constraint": word,
            "limit": float(limit),
            "measured": float(limit + value),
            "slack": -abs(float(value)) if equal else -float(value),
            "met": bool((abs(value) if equal else value) <= MET),
            "rate": None if np.isnan(rate) else float(rate),
        }
        for word, equal, limit, value, rate in zip(stack.words, stack.equality, limits, values, rates, strict=True)
        if np.isfinite(limit) and np.isfinite(value)
    ]


def _elsewhere(problem: Problem, fed: Federation) -> Problem:
    """The problem with those constraints that can be asked of other rows."""
    local = tuple(_restated(one, fed) for one in several(problem.local_constraint, "local_constraint"))
    shared = tuple(one for one in several(problem.constraint, "constraint") if isinstance(one, Coupled))
    none = replace(problem, local_constraint=None, constraint=None)
    return replace(
        none,
        local_constraint=tuple(one for one in local if _fits(replace(none, local_constraint=one), fed)),
        constraint=tuple(one for one in shared if _fits(replace(none, constraint=one), fed)),
    )


def _restated(one: Any, fed: Federation) -> Any:
    """A constraint with the levels of these clients alone; None where a client has none."""
    level = getattr(one, "level", None)
    if not isinstance(level, Mapping):
        return one
    return replace(one, level={c: level[c] for c in fed.clients}) if all(c in level for c in fed.clients) else None


def _fits(problem: Problem, fed: Federation) -> bool:
    if not problem.constrained:
        return False
    try:
        return bool(problem.at(fed))
    except ValueError:  # fewer than two groups, or a group without rows
        return False


def summary(problem: Problem, w: Array, fed: Federation) -> dict[str, Any]:
    """What `quorate.trial.measure` adds: how many constraints rows meet that were not trained on, and the worst."""
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


# ---------------------------------------------------------------------------------------- groups


def groups(problem: Problem, w: Array, fed: Federation) -> Iterator[dict[str, Any]]:
    """The rates of every group of the columns that constraints name, rows of all clients together."""
    from quorate.fairness import group_rates
    from quorate.predict import scores

    if problem.loss.targets != "sign" or fed.classes is None:
        return
    stated = (*several(problem.local_constraint, ""), *several(problem.constraint, ""))
    named = (getattr(getattr(one, "constraint", one), "column", None) for one in stated)
    positive = fed.classes.tolist()[1]
    truth = np.concatenate([np.where(y == positive, 1, -1) for y in fed.y])
    chosen = np.concatenate([np.where(scores(problem.predictor, w, X) > 0, 1, -1) for X in fed.X])
    for column in dict.fromkeys(name for name in named if name in (fed.columns or {})):
        values = np.concatenate([np.asarray(part) for part in fed.columns[column]])  # type: ignore[index]
        if not ((truth > 0).any() or (chosen > 0).any()):
            continue
        for group, found in group_rates(truth, chosen, values).items():
            rates = {key: getattr(found, key) for key in ("rows", "selected", "tpr", "fpr", "accuracy")}
            yield {"column": column, "group": str(group), **rates}


def stated(proof: Certificate, table: list[dict[str, Any]]) -> list[str]:
    """Prices in words, as far as the certificate bears them out: none of a model that is not near an optimum."""
    if proof.infeasible is not None or proof.stationarity is None or not all(row["met"] for row in table):
        return []
    table = [row for row in table if abs(row["price"]) > ROUNDING]
    if proof.bound is not None:
        return prices(table) if (proof.relative_gap or 0.0) <= NEAR else []
    still = proof.stationarity <= NEAR * max(proof.gradient_scale or 0.0, 1e-12)
    return [said.replace("by at most", "to first order by") for said in prices(table)] if still else []


def of_constraints(
    problem: Problem,
    models: Mapping[str, Array],
    parts: Parts,
    table: list[dict[str, Any]],
    proof: Certificate,
    mu: Any,
) -> dict[str, Any]:
    """What result.json says of constraints: their table with rates, prices, what is kept where, rates by group.

    ``table`` is that of `quorate.prices.constraint_table` for the first model, ``proof`` its certificate, ``mu`` its
    multipliers; where nothing is feasible these are the weights of the constraints in the proof.
    """
    if not asked(problem):
        return {}
    sets = {TRAINING: parts.train, **parts.tests}
    judged = [
        {"set": name, "model": model, "rows": kept(problem, w, fed, name != TRAINING)}
        for name, fed in sets.items()
        for model, w in models.items()
    ]
    rate = {(row["owner"], row["constraint"]): row["rate"] for row in judged[0]["rows"]}
    by_group = [
        {"set": name, "model": model, **row}
        for name, fed in sets.items()
        for model, w in models.items()
        for row in groups(problem, w, fed)
    ]
    told = [{**row, "rate": rate.get((row["owner"], row["constraint"]))} for row in table]
    if proof.infeasible is not None:
        concrete, data = problem.at(parts.train)
        weights = [abs(row["price"]) for row in constraint_table(concrete, data, proof, mu)]
        told = [{**row, "weight": w / (sum(weights) or 1.0)} for row, w in zip(told, weights, strict=True)]
    return {"constraints": told, "prices": stated(proof, table), "kept": judged, "groups": by_group}
