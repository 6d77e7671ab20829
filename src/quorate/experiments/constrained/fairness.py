"""Table 2 and Figure 2: classifiers whose losses on two groups differ by at most 0.1.

    minimise  mean over clients of the mean loss  subject to
            |mean loss of one group - of the other| <= 0.1  (32)

holds for every client and for rows that the server holds. This is section 5.2 of He, Peng, Sun,
*Federated learning with convex global and local constraints*; the constraints are not convex. The
data are adult, the groups the sexes, with 22,654 rows at the clients and 5,659 at the server as in
the paper, and 20 features instead of its 39 (see ``data``).
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
)
from quorate.problem.constraints.group_means import LossGap
from quorate.problem.losses import Logistic
from quorate.problem.problem import Problem

LEVEL = 0.1
CLIENTS = (1, 5, 10, 20)
STARTS = 4  # starts of the reference, zeros among them


class Printed(NamedTuple):
    """A row of Table 2."""

    objective: float
    sd: float
    central: float
    difference: float
    mean: float
    most: float


PRINTED = {
    1: Printed(0.37, 9.83e-5, 0.37, 1.97e-3, 0.10, 0.10),
    5: Printed(0.37, 3.99e-3, 0.37, 1.86e-3, 0.09, 0.10),
    10: Printed(0.37, 6.39e-3, 0.37, 2.39e-3, 0.08, 0.10),
    20: Printed(0.38, 9.46e-3, 0.37, 4.61e-3, 0.08, 0.10),
}


def problem(level: float = LEVEL) -> Problem:
    """The problem (32)."""
    gap = LossGap("group", level)
    loss: Any = Logistic()
    return Problem(loss, constraint=gap, local_constraint=gap)


@dataclass(frozen=True)
class Trial:
    """One run on one draw of the rows."""

    fed: Federation
    reference: reference.Reference  # the best of several starts
    trace: Trace
    end: At

    @property
    def gap(self) -> float:
        """The relative gap of the objective to the least one known."""
        return self.end.objective / self.reference.value - 1

    @property
    def gaps(self) -> np.ndarray:
        """The |difference of the groups' losses|, (N,), or (N + 1,) with the server's rows."""
        return np.concatenate([self.end.measured.max(1), [self.end.server.max()]])


def trial(
    n_clients: int,
    seed: int = 0,
    algorithm: Method | None = None,
    *,
    level: float = LEVEL,
    part: float = 1.0,
    starts: int = STARTS,
) -> Trial:
    """One run with the rows and the start of a seed, on the share ``part`` of the rows."""
    rows = data.adult()
    fed, stated, d = (
        data.with_server(rows, n_clients, seed, part),
        problem(level),
        rows.X.shape[1],
    )
    trace = follow(
        algorithm or InteriorPoint(), stated, fed, on_sphere(d, stream(seed, "start", 0))
    )
    program = reference.loss_gaps(fed, level)
    others = [on_sphere(d, stream(seed, "reference", k)) for k in range(1, starts)]
    return Trial(
        fed, reference.best(program, [None, *others]), trace, evaluate(stated, fed, [trace.w])[0]
    )


def table_2(
    clients: Sequence[int] = CLIENTS,
    trials: int = 10,
    algorithm: Callable[[], Any] = InteriorPoint,
    part: float = 1.0,
) -> list[dict[str, Any]]:
    """One row for each number of clients; columns ``paper_*`` compare in trend only."""
    return [
        _row(n, [trial(n, seed, algorithm(), part=part) for seed in range(trials)]) for n in clients
    ]


def _row(n_clients: int, runs: Sequence[Trial]) -> dict[str, Any]:
    objective, sd = mean_and_sd(run.end.objective for run in runs)
    means, most = (
        mean_and_sd(run.gaps.mean() for run in runs),
        mean_and_sd(run.gaps.max() for run in runs),
    )
    printed = PRINTED[n_clients]
    return {
        "clients": n_clients,
        "trials": len(runs),
        "objective": objective,
        "objective_sd": sd,
        "reference": mean_and_sd(run.reference.value for run in runs)[0],
        "relative_difference": max(abs(run.gap) for run in runs),
        "mean": means[0],
        "mean_sd": means[1],
        "most": most[0],
        "most_sd": most[1],
    } | beside(runs, printed)


def figure_2(
    n_clients: int = 5, seed: int = 0, algorithm: Method | None = None, part: float = 1.0
) -> list[dict[str, float]]:
    """The clients' losses and gaps by round (mean, least and largest), and the server's gap."""
    run = trial(n_clients, seed, algorithm, part=part, starts=1)
    return bands(evaluate(problem(), run.fed, run.trace.models), equal_is_gap=True)
