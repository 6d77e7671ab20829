"""What an experiment measures: models by round, local losses and constraints, rounds to a gap.

A run reaches a gap of g where |objective - f*| <= g f*, no constraint is violated by more than g
times its limit, and both stay so until the run ends: a run that only passes the optimum's value on
its way has not reached it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from quorate.algorithms.method import Method
from quorate.arrays import Array
from quorate.certificates.certificate import Certificate
from quorate.data.federation import Federation
from quorate.problem.client_means import client_values
from quorate.problem.constraints.constraint import Point
from quorate.problem.problem import Problem
from quorate.solution.configure import configure
from quorate.solution.solve import solve


@dataclass(frozen=True)
class At:
    """The objective, the clients' losses and their constraints at one model.

    Constraints are NaN where a client has none.
    """

    objective: float
    violation: float
    risks: Array  # (N,)
    measured: Array  # (N, p)
    server: Array  # (p_0,)


@dataclass(frozen=True)
class Trace:
    """A run's models, its costs, and the certificate of the last model."""

    models: Array  # (rounds, D)
    history: list[dict[str, Any]]
    stop: str  # why it ended, as the certificate confirms it
    text: str
    rounds: int
    outer: int | None  # outer iterations, where the method has them
    # numbers of 8 bytes that all clients sent and received, headers included, certificate excluded
    floats: int
    up: int  # of these, sent by clients
    seconds: float  # CPU, certificate included
    w: Array
    certificate: Certificate


class Trial(Protocol):
    """A run of a table, with the numbers at its end."""

    @property
    def trace(self) -> Trace: ...

    @property
    def end(self) -> At: ...


class Printed(Protocol):
    """The numbers that a table of the paper prints in a row."""

    @property
    def objective(self) -> float: ...

    @property
    def sd(self) -> float: ...

    @property
    def difference(self) -> float: ...

    @property
    def mean(self) -> float: ...

    @property
    def most(self) -> float: ...


def follow(
    algorithm: Method, problem: Problem, fed: Federation, start: Array | None = None
) -> Trace:
    """Solve a problem and keep the model after every round."""
    method = configure(algorithm, *problem.at(fed), None, None, None, start)
    models: list[Array] = []
    began = time.process_time()
    solution = solve(
        problem,
        fed,
        algorithm=algorithm,
        start=start,
        watch=[lambda row, state: models.append(method.answer(state)[0])],
    )
    seconds = time.process_time() - began
    sent = [m for m in solution.messages if not m["message"].startswith("Weigh")]
    words = {
        way: sum(m["bytes"] for m in sent if m["direction"] == way) // 8 for way in ("up", "down")
    }
    return Trace(
        models=np.array(models),
        history=solution.history,
        stop=solution.outcome.stop.value,
        text=solution.outcome.text,
        rounds=solution.rounds,
        outer=solution.history[-1].get("outer") if solution.history else None,
        floats=words["up"] + words["down"],
        up=words["up"],
        seconds=seconds,
        w=solution.w,
        certificate=solution.certificate,
    )


def evaluate(problem: Problem, fed: Federation, models: Iterable[Array]) -> list[At]:
    """The exact objective, losses and constraints at every model."""
    concrete, data = problem.at(fed)
    block, points = data.blocks(data.n_clients)[0], []
    order = np.argsort(block.index)
    limits, held = concrete.local_constraint.limits(block), concrete.constraint
    for w in models:
        at = Point(concrete, w, block)
        risks, values = client_values(at), concrete.local_constraint.values(at)
        here = held.held.values(held.at(concrete, w))[0]
        server = here + held.held.limits(held.block)[0] if held.held.size else here
        excess = [*np.where(concrete.local_constraint.equality, np.abs(values), values).ravel()]
        excess += [*np.where(held.held.equality, np.abs(here), here)]
        points.append(
            At(
                objective=concrete.over_clients.value(risks[order]) + concrete.penalty(w),
                violation=float(max([0.0, *excess])),
                risks=risks[order],
                measured=(values + limits)[order],
                server=server,
            )
        )
    return points


def rounds_to(
    points: Sequence[At], optimum: float, limit: float, gaps: Sequence[float]
) -> list[int | None]:
    """The first round from which on each gap holds; None where it does not at the end."""
    off = np.array([max(abs(p.objective / optimum - 1), p.violation / limit) for p in points])
    beyond = [np.flatnonzero(~(off <= gap)) for gap in gaps]
    return [
        None if len(b) and b[-1] == len(off) - 1 else (int(b[-1]) + 2 if len(b) else 1)
        for b in beyond
    ]


def bands(points: Sequence[At], equal_is_gap: bool = False) -> list[dict[str, float]]:
    """Mean, least and largest local loss and constraint over the clients, by round.

    These are the bands of Figures 1 and 2.

    ``equal_is_gap``: a client's constraint is its largest measured value, as of the two sides of a
    difference.
    """
    rows = []
    for k, p in enumerate(points):
        local = p.measured.max(1) if equal_is_gap else p.measured[:, 0]
        row = {
            "round": k + 1,
            "loss": p.risks.mean(),
            "loss_least": p.risks.min(),
            "loss_most": p.risks.max(),
        }
        row |= {
            "constraint": np.nanmean(local),
            "constraint_least": np.nanmin(local),
            "constraint_most": np.nanmax(local),
        }
        row |= {"server": float(p.server.max()) if len(p.server) else float("nan")}
        rows.append({key: float(value) for key, value in row.items()})
    return rows


def mean_and_sd(values: Iterable[float]) -> tuple[float, float]:
    """The mean and standard deviation over trials; one trial has deviation 0."""
    trials = np.array(list(values), float)
    return float(trials.mean()), float(trials.std(ddof=1)) if len(trials) > 1 else 0.0


def on_sphere(d: int, rng: np.random.Generator) -> Array:
    """A uniform point of the unit sphere, as the paper starts from."""
    v = rng.standard_normal(d)
    return v / np.linalg.norm(v)


def beside(runs: Sequence[Trial], printed: Printed) -> dict[str, Any]:
    """The columns that the paper's tables share: costs and ends of trials, and printed numbers."""
    outer = (
        None
        if runs[0].trace.outer is None
        else mean_and_sd(float(run.trace.outer or 0) for run in runs)[0]
    )
    return {
        "violation": max(run.end.violation for run in runs),
        "rounds": mean_and_sd(run.trace.rounds for run in runs)[0],
        "outer": outer,
        "floats": mean_and_sd(run.trace.floats for run in runs)[0],
        "stops": sorted({run.trace.stop for run in runs}),
        "paper_objective": printed.objective,
        "paper_sd": printed.sd,
        "paper_difference": printed.difference,
        "paper_mean": printed.mean,
        "paper_most": printed.most,
        "comparable": "trend only",
    }
