"""What an experiment measures: models by round, local losses and constraints, rounds to a gap.

A run reaches a gap of g where |objective - f*| <= g f*, no constraint is violated by more than g
times its limit, and both stay so until the run ends: a run that only passes the optimum's value on
its way has not reached it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array


@dataclass(frozen=True)
class Evaluation:
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
    """A run's models and its costs."""

    models: Array  # (rounds, D)
    stop: str  # why it ended, as the certificate confirms it
    rounds: int
    outer: int | None  # outer iterations, where the method has them
    # numbers of 8 bytes that all clients sent and received, headers included, certificate excluded
    floats: int
    up: int  # of these, sent by clients
    seconds: float  # CPU, certificate included
    w: Array


def follow(
    algorithm: ext.Method, problem: bf.Problem, fed: bf.Federation, start: Array | None = None
) -> Trace:
    """Solve a problem and keep the model after every round."""
    own: Any = algorithm
    method = replace(own, problem=problem.at(fed)[0])
    models: list[Array] = []
    began = time.process_time()
    solution = ext.fit(
        problem,
        fed,
        algorithm=algorithm,
        start=start,
        watch=[lambda row, state: models.append(method.answer(state)[0])],
    )
    seconds = time.process_time() - began
    sent = [m for m in solution.messages if not m["message"].startswith("Weigh")]
    up, down = (
        sum(m["bytes"] for m in sent if m["direction"] == way) // 8 for way in ("up", "down")
    )
    return Trace(
        models=np.array(models),
        stop=solution.outcome.stop.value,
        rounds=solution.rounds,
        outer=solution.history[-1].get("outer") if solution.history else None,
        floats=up + down,
        up=up,
        seconds=seconds,
        w=solution.w,
    )


def evaluate(problem: bf.Problem, fed: bf.Federation, models: Iterable[Array]) -> list[Evaluation]:
    """The exact objective, losses and constraints at every model."""
    concrete, data = problem.at(fed)
    block, evaluations = data.blocks(data.n_clients)[0], []
    order = np.argsort(block.index)
    local, server = concrete.local_constraint, concrete.constraint
    limits = local.limits(block)
    for w in models:
        point = ext.Point(concrete, w, block)
        risks, values = ext.client_values(point)[order], local.values(point)
        at_server = server.held.values(server.point(concrete, w))[0]
        excess = [*np.where(local.equality, np.abs(values), values).ravel()]
        excess += [*np.where(server.held.equality, np.abs(at_server), at_server)]
        if server.held.size:
            at_server = at_server + server.held.limits(server.block)[0]
        evaluations.append(
            Evaluation(
                objective=concrete.over_clients.value(risks) + concrete.penalty(w),
                violation=float(max([0.0, *excess])),
                risks=risks,
                measured=(values + limits)[order],
                server=at_server,
            )
        )
    return evaluations


def rounds_to(
    evaluations: Sequence[Evaluation], optimum: float, limit: float, gaps: Sequence[float]
) -> list[int | None]:
    """The first round from which on each gap holds; None where it does not at the end."""
    off = np.array([max(abs(e.objective / optimum - 1), e.violation / limit) for e in evaluations])
    first = [1 + int(np.flatnonzero(np.append(True, ~(off <= gap)))[-1]) for gap in gaps]
    return [None if k > len(off) else k for k in first]


def bands(evaluations: Sequence[Evaluation], equal_is_gap: bool = False) -> list[dict[str, float]]:
    """Mean, least and largest local loss and constraint over the clients, by round.

    These are the bands of Figures 1 and 2.

    ``equal_is_gap``: a client's constraint is its largest measured value, as of the two sides of a
    difference.
    """
    rows = []
    for k, e in enumerate(evaluations):
        local = e.measured.max(1) if equal_is_gap else e.measured[:, 0]
        row = {"round": k + 1.0}
        for name, values in (("loss", e.risks), ("constraint", local)):
            row[name] = float(np.nanmean(values))
            row[f"{name}_least"] = float(np.nanmin(values))
            row[f"{name}_most"] = float(np.nanmax(values))
        row["server"] = float(e.server.max()) if len(e.server) else np.nan
        rows.append(row)
    return rows


def on_sphere(d: int, rng: np.random.Generator) -> Array:
    """A uniform point of the unit sphere, as the paper starts from."""
    v = rng.standard_normal(d)
    return v / np.linalg.norm(v)
