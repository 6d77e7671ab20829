"""One constraint of a run at other levels: what a tighter or looser limit costs, and where no model
is feasible.

    for every level t of [trade_off]:  w(t) = argmin of the problem with level t,
            p(t) its multipliers, summed

Where everything is convex the optimal value v(t) is convex and falls in t, and -p(t) is its
gradient: raising the limit by s lowers v by at most p(t) s, and by that to first order. The
multipliers of every point are kept, so that its bound can be proved again. Test rows judge each
point; the model of the run is not changed by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.constrained import certify_constrained
from bonafed.config.config import Config
from bonafed.config.constraints import ConstraintSection, TradeOffSection
from bonafed.data.federation import Federation
from bonafed.problem.constraints.constraint import Concrete
from bonafed.problem.constraints.coupled import Shared
from bonafed.problem.constraints.group_means import OnRows
from bonafed.problem.lower_bounds import Duals
from bonafed.problem.multipliers import Multipliers, as_duals, with_cuts
from bonafed.problem.problem import Problem
from bonafed.rounds import Stop
from bonafed.runs.baselines import proof_arrays, restored, stored
from bonafed.runs.constraint_metrics import kept
from bonafed.runs.evaluation import measure
from bonafed.runs.files import Record, Row
from bonafed.runs.form import (
    Form,
    NonNegative,
    Number,
    Share,
    StopName,
    Whole,
    at_least,
    one_of,
    optional,
)
from bonafed.runs.outcomes import ended, method_of, stop_of
from bonafed.runs.run import Points
from bonafed.runs.sections.section import Inputs, Progress, Study, TableSection
from bonafed.runs.splits import HELD_OUT, Parts
from bonafed.solution.constraint_table import constraint_table, limits_of
from bonafed.solution.outcome import UNPROVED, failed_in
from bonafed.solution.solve import fit


class LevelForm(Form):
    """One level of the constraint; where it is infeasible it has no value and no multiplier."""

    level: Number
    outcome: StopName
    rounds: Whole
    tried: Annotated[str, one_of([UNPROVED])] = optional()
    failed: Annotated[str, Field(pattern=r"^\w{1,60}$")] = optional()  # the error of its proof
    value: Number | None
    bound: Number | None
    relative_gap: Number | None
    violation: Number
    infeasible: Number | None
    price: Number | None
    rate: Number | None
    loss: Number = optional()
    accuracy: Share = optional()
    error: NonNegative = optional()
    held_measured: Number | None = optional()
    held_rate: Number | None = optional()


class TradeOffForm(Form):
    """trade_off.json."""

    constraint: str
    level: Number
    points: Annotated[list[LevelForm], at_least(1)]


class TradeOff(TableSection):
    """Models at other levels of one constraint.

    The arrays of its P points are the models w (P, D) and the multipliers: server (P, p_0), shared
    (P, p_c), local (P, N, p). Multipliers of cuts are a proof of their own for each point.
    """

    name = "trade-off"
    files = ("trade_off.json", "trade_off.safetensors")
    table = TradeOffForm
    arrays = ("w", "server", "shared", "local")
    optional = ("weights",)  # of the clients, where the risk over them is no mean

    def applies(self, config: Config) -> bool:
        return config.trade_off is not None

    def fits(self, table: Row, arrays: Mapping[str, Array]) -> bool:
        return [arrays[name].ndim for name in self.arrays] == [2, 2, 2, 3]

    def train(self, study: Study, progress: Progress) -> Points:
        """Solve and judge the problem at every level of [trade_off]."""
        config, parts = study.config, study.parts
        points, arrays, proofs = [], {}, {}
        for k, level in enumerate(stated(config).levels):
            there = at(config, level)
            solution = fit(there.problem(), parts.train, **there.solve_arguments(clock=False))
            if solution.outcome.stop is Stop.INTERRUPTED:
                raise KeyboardInterrupt
            assert isinstance(solution.duals, Multipliers)
            how = {"outcome": solution.outcome.stop.value, "rounds": solution.rounds}
            if UNPROVED in solution.outcome.text:  # then multipliers are weights of a proof
                how["tried"] = UNPROVED
            if failed := failed_in(solution.outcome.text):
                how["failed"] = failed
            point = _point(there, parts, solution.w, solution.duals, solution.certificate)
            points.append({"level": level, **how, **point})
            mu, cuts = solution.duals, as_duals(solution.duals)
            proofs[str(k)] = proof_arrays(cuts)
            of_all = {"w": solution.w, "server": mu.server, "shared": mu.shared, "local": mu.local}
            of_all |= {"weights": mu.weights} if cuts is None else {}
            for name, array in of_all.items():
                arrays.setdefault(name, []).extend([array] * (array is not None))
            progress.done(self.name, line(points[-1]))
        stacked = {name: np.stack(each) for name, each in arrays.items() if each}
        return Points(_table(config, points), stored(stacked, proofs))

    def result(self, inputs: Inputs) -> Record:
        """The table, computed again from the models and multipliers; rounds are as stated."""
        config, parts, tried = inputs.config, inputs.parts, inputs.points[self.name]
        points, (of_all, proofs) = [], restored(tried.arrays)
        levels = zip(stated(config).levels, tried.table["points"], strict=True)
        for k, (level, row) in enumerate(levels):
            there, arrays = at(config, level), {name: a[k] for name, a in of_all.items()}
            w, mu = arrays.pop("w"), Multipliers(**arrays)
            if str(k) in proofs:
                mu = with_cuts(mu, Duals(**proofs[str(k)]))
            problem, fed, words = there.problem(), parts.train, row.get("tried", "")
            infeasible = row["outcome"] == "infeasible" or bool(words)
            failed = row.get("failed", "")
            proof, _ = certify_constrained(
                problem, fed, w, mu, infeasible=infeasible, bounded=not failed
            )
            proof = replace(proof, failed=failed)
            end = ended(there, method_of(there, problem, fed), row["outcome"], words, row["rounds"])
            concrete, data = problem.at(fed)
            rows = constraint_table(concrete, data.clients, limits_of(concrete, data), proof, mu)
            stop = stop_of(end, problem, fed, proof, mu, rows)
            again = {"level": level, "outcome": stop, "rounds": row["rounds"]}
            again |= {key: row[key] for key in ("tried", "failed") if key in row}
            points.append(again | _point(there, parts, w, mu, proof))
        return _table(config, points)


def stated(config: Config) -> TradeOffSection:
    """The [trade_off] of a run that has one."""
    assert config.trade_off is not None
    return config.trade_off


def _constraint(config: Config) -> ConstraintSection:
    """The constraint whose level is changed."""
    return config.constraint[stated(config).constraint - 1]


def at(config: Config, level: float) -> Config:
    """The run with another level of the constraint that [trade_off] names."""
    k, one = stated(config).constraint - 1, _constraint(config)
    key = one.adjustable
    assert key is not None
    changed = [*config.constraint]
    changed[k] = one.model_copy(update={key: level})
    return config._with(constraint=changed)


def _table(config: Config, points: list[Record]) -> Record:
    one = _constraint(config)
    return {
        "constraint": one.words(),
        "level": one.get(one.adjustable or "level"),
        "points": points,
    }


def _point(config: Config, parts: Parts, w: Array, mu: Multipliers, proof: Certificate) -> Record:
    """The numbers of one level; no multiplier is stated where it is infeasible."""
    problem, fed = config.problem(), parts.train
    impossible = proof.infeasible is not None
    rows = kept(_alone(config), w, fed, other=False)
    point = {
        "value": None if impossible else proof.value,
        "bound": proof.bound,
        "relative_gap": proof.relative_gap,
        "violation": proof.feasibility,
        "infeasible": proof.infeasible,
        "price": None if impossible else _multiplier(config, fed, mu),
        "rate": _worst(rows, "rate"),
    }
    if (held := parts.tests.get(HELD_OUT)) is not None:
        rows = kept(_alone(config), w, held)
        judged = measure(problem, w, held, parts.ranked)
        point |= {key: judged[key] for key in ("loss", "accuracy", "error") if key in judged}
        point |= {f"held_{key}": _worst(rows, key) for key in ("measured", "rate")}
    return point


def _worst(rows: list[Record], key: str) -> float | None:
    """The largest of a column."""
    return max((row[key] for row in rows if row[key] is not None), default=None)


def _alone(config: Config) -> Problem:
    """The problem with only the constraint whose level is changed."""
    return config._with(constraint=[_constraint(config)]).problem()


def _multiplier(config: Config, fed: Federation, mu: Multipliers) -> float:
    """Minus the gradient of the optimal value in the level: the sum of the multipliers of the
    constraint.

    In the multipliers of every client, of the sums, or of the server the rows of a constraint come
    after those of the constraints before it in the same place.
    """
    k = stated(config).constraint - 1
    concrete, _ = config.problem().at(fed)
    glob, local = concrete.constraint, concrete.local_constraint
    places = {"clients": (local, mu.local), "together": (glob.coupled, mu.shared)}
    server = glob.held, mu.server
    chosen = [places.get(one.place, server) for one in config.constraint[: k + 1]]
    stack, multipliers = chosen[-1]
    before = sum(other is stack for other, _ in chosen[:-1])
    sizes = [len(part.equality) for part in stack.parts]
    start = sum(sizes[:before])
    here = multipliers[..., start : start + sizes[before]]
    return float(_netted(stack.parts[before], here).sum())


def _netted(part: Concrete, multipliers: Array) -> Array:
    """The multipliers (..., p) without what those of two constraints that bound the same from
    either side have in common.

    At level 0 these are one equality, of which only the difference of the two multipliers is
    determined.
    """
    mu, rows = multipliers.copy(), part.one if isinstance(part, Shared) else part
    factors = rows.coefficients if isinstance(rows, OnRows) else np.zeros((0, 0))
    for a in range(len(factors)):
        for b in range(a):
            if (factors[a] == -factors[b]).all():
                mu[..., [a, b]] -= np.minimum(mu[..., [a]], mu[..., [b]])
    return mu


def line(point: Row) -> str:
    """A point in one line."""
    text = f"level {point['level']:g}: "
    if point["value"] is None:
        return text + "no model meets all constraints"
    return (
        f"{text}objective {point['value']:.6f}, multiplier {point['price']:.4g},"
        f" {point['outcome'].replace('_', ' ')}"
    )
