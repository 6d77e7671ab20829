"""Table 1 and Figure 1: Neyman-Pearson classification, (30), beside an independent optimum.

    minimise  mean over clients of the mean loss of class 0  subject to
            every client's mean loss of class 1 <= 0.2

This is section 5.1 of He, Peng, Sun, *Federated learning with convex global and local constraints*:
n = 1, 5, 10, 20 clients with equal shares of both classes, and trials from starts on the unit
sphere. Their files are not public (see ``data``), and their "relative difference" is between two
runs of tolerance 1e-3; ours is to the optimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from quorate.algorithms.federated.interior_point.interior_point import InteriorPoint
from quorate.algorithms.method import Method
from quorate.arrays import stream
from quorate.data.federation import Federation
from quorate.experiments.constrained import data, reference
from quorate.experiments.constrained.trace import (
    At,
    Trace,
    bands,
    beside,
    evaluate,
    follow,
    mean_and_sd,
    on_sphere,
    rounds_to,
)
from quorate.problem.constraints.group_means import NeymanPearson
from quorate.problem.losses import Logistic
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean

LEVEL = 0.2
CLIENTS = (1, 5, 10, 20)
GAPS = (1e-1, 1e-2, 1e-3)


class Printed(NamedTuple):
    """A row of Table 1: means (and a standard deviation) over the paper's 10 trials."""

    objective: float
    sd: float
    central: float  # objective of cProx-AL
    difference: float  # relative, between the two
    mean: float  # loss of class 1 over the clients
    most: float


PRINTED = {
    ("breast-cancer-wisc", 1): Printed(0.27, 1.52e-4, 0.27, 7.09e-4, 0.20, 0.20),
    ("breast-cancer-wisc", 5): Printed(0.34, 4.50e-2, 0.33, 1.15e-2, 0.19, 0.20),
    ("breast-cancer-wisc", 10): Printed(0.37, 1.08e-1, 0.37, 3.92e-4, 0.17, 0.20),
    ("breast-cancer-wisc", 20): Printed(0.46, 2.12e-1, 0.45, 3.43e-2, 0.16, 0.20),
    ("adult-a", 1): Printed(0.73, 2.19e-4, 0.73, 2.24e-4, 0.20, 0.20),
    ("adult-a", 5): Printed(0.74, 1.03e-2, 0.74, 4.25e-3, 0.19, 0.20),
    ("adult-a", 10): Printed(0.77, 1.98e-2, 0.77, 2.69e-3, 0.19, 0.20),
    ("adult-a", 20): Printed(0.78, 2.86e-2, 0.79, 1.13e-2, 0.18, 0.20),
    ("monks-1", 1): Printed(1.58, 7.61e-5, 1.58, 1.39e-5, 0.20, 0.20),
    ("monks-1", 5): Printed(1.65, 8.39e-2, 1.65, 2.08e-4, 0.19, 0.20),
    ("monks-1", 10): Printed(1.71, 1.18e-1, 1.71, 4.59e-4, 0.18, 0.20),
    ("monks-1", 20): Printed(1.81, 1.49e-1, 1.79, 1.78e-2, 0.17, 0.20),
}


def problem(level: float = LEVEL) -> Problem:
    """The problem (30), with the loss of class 1 bounded."""
    loss: Any = Logistic()
    return Problem(loss, over_samples=Mean(label=0), local_constraint=NeymanPearson(1, level))


@dataclass(frozen=True)
class Trial:
    """One run on one partition."""

    fed: Federation
    reference: reference.Reference
    trace: Trace
    end: At

    @property
    def gap(self) -> float:
        """The relative gap of the objective; it is negative where the model is infeasible."""
        return self.end.objective / self.reference.value - 1


def trial(
    name: str,
    n_clients: int,
    seed: int = 0,
    algorithm: Method | None = None,
    *,
    alike: bool = True,
    level: float = LEVEL,
) -> Trial:
    """One run with the partition and the start of a seed; it starts on the unit sphere."""
    rows = data.DATA[name]()
    owner = (
        data.stratified(rows.y, n_clients, seed)
        if alike
        else data.unlike(rows.X, rows.y, n_clients, seed)
    )
    fed, stated = data.federation(rows, owner), problem(level)
    start = on_sphere(rows.X.shape[1], stream(seed, "start", 0))
    trace = follow(algorithm or InteriorPoint(), stated, fed, start)
    best = reference.solve(reference.neyman_pearson(fed, level))
    return Trial(fed, best, trace, evaluate(stated, fed, [trace.w])[0])


def table_1(
    names: Sequence[str] = tuple(data.DATA),
    clients: Sequence[int] = CLIENTS,
    trials: int = 10,
    algorithm: Callable[[], Any] = InteriorPoint,
) -> list[dict[str, Any]]:
    """One row for each data set and number of clients: means and deviations over trials.

    Columns ``paper_*`` are the paper's numbers. They compare in trend only, since files, partitions
    and tolerances differ.
    """
    return [
        _row(n, k, [trial(n, k, seed, algorithm()) for seed in range(trials)])
        for n in names
        for k in clients
    ]


def _row(name: str, n_clients: int, runs: Sequence[Trial]) -> dict[str, Any]:
    objective, sd = mean_and_sd(run.end.objective for run in runs)
    known, printed = mean_and_sd(run.reference.value for run in runs), PRINTED[name, n_clients]
    means = mean_and_sd(float(np.nanmean(run.end.measured)) for run in runs)
    most = mean_and_sd(float(np.nanmax(run.end.measured)) for run in runs)
    return {
        "data": name,
        "clients": n_clients,
        "trials": len(runs),
        "objective": objective,
        "objective_sd": sd,
        "reference": known[0],
        "reference_residual": max(run.reference.residual for run in runs),
        "relative_difference": max(abs(run.gap) for run in runs),
        "mean": means[0],
        "mean_sd": means[1],
        "most": most[0],
        "most_sd": most[1],
    } | beside(runs, printed)


def figure_1(
    name: str, n_clients: int = 5, seed: int = 0, algorithm: Method | None = None
) -> list[dict[str, float]]:
    """The clients' losses of class 0 and of class 1, by round: mean, least and largest."""
    run = trial(name, n_clients, seed, algorithm)
    return bands(evaluate(problem(), run.fed, run.trace.models))


def rounds_of(run: Trial, gaps: Sequence[float] = GAPS, level: float = LEVEL) -> list[int | None]:
    """The rounds that a trial took to each relative gap."""
    points = evaluate(problem(level), run.fed, run.trace.models)
    return rounds_to(points, run.reference.value, level, gaps)
