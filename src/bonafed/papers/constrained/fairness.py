"""Table 2 and Figure 2: classifiers whose losses on two groups differ by at most 0.1.

    minimise  mean over clients of the mean loss  subject to
            |mean loss of one group - of the other| <= 0.1  (32)

holds for every client and for rows that the server holds. This is section 5.2 of He, Peng, Sun,
*Federated learning with convex global and local constraints*; the constraints are not convex. The
data are adult, the groups the sexes, with 22,654 rows at the clients and 5,659 at the server as in
the paper, and 20 features instead of its 39 (see ``data``).
"""

from collections.abc import Callable, Sequence

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array
from bonafed.papers.constrained import data, tables

LEVEL = 0.1
CLIENTS = (1, 5, 10, 20)
STARTS = 4  # starts of the reference, zeros among them

PRINTED = {
    1: tables.Printed(0.37, 9.83e-5, 0.37, 1.97e-3, 0.10, 0.10),
    5: tables.Printed(0.37, 3.99e-3, 0.37, 1.86e-3, 0.09, 0.10),
    10: tables.Printed(0.37, 6.39e-3, 0.37, 2.39e-3, 0.08, 0.10),
    20: tables.Printed(0.38, 9.46e-3, 0.37, 4.61e-3, 0.08, 0.10),
}


def problem(level: float = LEVEL) -> bf.Problem:
    """The problem (32)."""
    gap, model = bf.LossGap("group", level), bf.Linear(fit_intercept=False)
    return bf.Problem(bf.Logistic(), model, constraint=gap, local_constraint=gap)


def gaps(trial: tables.Trial) -> Array:
    """The |difference of the groups' losses|, (N + 1,), of every client and the server."""
    return np.concatenate([trial.end.measured.max(1), [trial.end.server.max()]])


def trial(
    n_clients: int,
    seed: int = 0,
    algorithm: ext.Method | None = None,
    *,
    level: float = LEVEL,
    part: float = 1.0,
    starts: int = STARTS,
) -> tables.Trial:
    """One run with the rows and the start of a seed, on the share ``part`` of the rows.

    Its reference is the best of several starts.
    """
    rows, stated = data.adult(), problem(level)
    fed, d = data.with_server(rows, n_clients, seed, part), rows.X.shape[1]
    streams = (ext.stream(seed, "reference" if k else "start", k) for k in range(starts))
    start, *others = (tables.on_sphere(d, rng) for rng in streams)
    trace = tables.follow(algorithm or bf.InteriorPoint(), stated, fed, start)
    best = tables.best(tables.loss_gaps(fed, level), [None, *others])
    return tables.Trial(fed, best, trace, tables.evaluate(stated, fed, [trace.w])[0])


def table_2(
    clients: Sequence[int] = CLIENTS,
    trials: int = 10,
    algorithm: Callable[[], ext.Method] = bf.InteriorPoint,
    part: float = 1.0,
) -> list[tables.Row]:
    """One row for each number of clients; columns ``paper_*`` compare in trend only."""
    runs = {n: [trial(n, k, algorithm(), part=part) for k in range(trials)] for n in clients}
    return [{"clients": n} | tables.row(runs[n], gaps, PRINTED[n]) for n in clients]


def figure_2(
    n_clients: int = 5, seed: int = 0, algorithm: ext.Method | None = None, part: float = 1.0
) -> list[dict[str, float]]:
    """The clients' losses and gaps by round (mean, least and largest), and the server's gap."""
    run = trial(n_clients, seed, algorithm, part=part, starts=1)
    return tables.bands(tables.evaluate(problem(), run.fed, run.trace.models), equal_is_gap=True)
