"""Table 4: quadratic programs with equality constraints, (86), beside their exact solutions.

This is section E.2 of He, Peng, Sun, *Federated learning with convex global and local constraints*.
The instances follow the same recipe with other random numbers, so objectives compare in trend only;
the exact solution is that of ``lcqp.aggregate``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.papers.constrained.lcqp import LCQP, aggregate, lcqp
from bonafed.papers.constrained.tables import Row, shared_columns
from bonafed.papers.constrained.trace import evaluate, follow, on_sphere

SHAPES = ((100, 1), (300, 3), (500, 5))  # (d, m)
CLIENTS = (1, 5, 10)


class Printed(NamedTuple):
    """A row of Table 4."""

    objective: float
    sd: float
    central: float
    difference: float
    violation: float
    central_violation: float


PRINTED = {
    (1, 100): Printed(-0.23, 4.65e-6, -0.23, 1.63e-3, 3.33e-4, 5.68e-4),
    (1, 300): Printed(-0.37, 2.74e-6, -0.37, 1.01e-3, 3.52e-4, 4.45e-4),
    (1, 500): Printed(-0.30, 1.36e-5, -0.30, 1.34e-3, 4.38e-4, 3.85e-4),
    (5, 100): Printed(9.81, 7.18e-5, 9.80, 1.09e-3, 1.34e-4, 8.03e-4),
    (5, 300): Printed(8.47, 8.12e-5, 8.45, 1.36e-3, 1.09e-4, 8.28e-4),
    (5, 500): Printed(9.92, 4.43e-5, 9.91, 8.26e-4, 1.33e-4, 3.73e-4),
    (10, 100): Printed(49.40, 9.02e-5, 49.37, 5.59e-4, 7.31e-5, 5.88e-4),
    (10, 300): Printed(41.49, 7.04e-5, 41.44, 1.14e-3, 8.56e-5, 8.73e-4),
    (10, 500): Printed(41.45, 2.25e-5, 41.41, 9.39e-4, 9.29e-4, 7.66e-4),
}


def table_4(
    shapes: Sequence[tuple[int, int]] = SHAPES,
    clients: Sequence[int] = CLIENTS,
    trials: int = 10,
    algorithm: Callable[[], ext.Method] = bf.InteriorPoint,
) -> list[Row]:
    """One row for each size: one instance, as in the paper, and trials from random starts."""
    return [_row(d, n, m, trials, algorithm) for n in clients for d, m in shapes]


def _row(d: int, n: int, m: int, trials: int, algorithm: Callable[[], ext.Method]) -> Row:
    fed = lcqp(d, n, m, seed=0)
    began = time.process_time()
    w, _, value = aggregate(fed)
    seconds = time.process_time() - began
    starts = [on_sphere(d, ext.stream(seed, "start", 0)) for seed in range(trials)]
    runs = [follow(algorithm(), LCQP, fed, start) for start in starts]
    ends = [evaluate(LCQP, fed, [run.w])[0] for run in runs]
    printed = PRINTED.get((n, d))  # None for sizes that are not in the paper
    return {
        "clients": n,
        "d": d,
        "m": m,
        "exact": value,
        "relative_difference": max(abs(end.objective / value - 1) for end in ends),
        "model_error": float(max(np.linalg.norm(run.w - w) / np.linalg.norm(w) for run in runs)),
        "seconds": float(np.mean([run.seconds for run in runs])),
        "exact_seconds": seconds,
        **shared_columns(runs, ends),
        "paper_objective": printed and printed.objective,
        "paper_difference": printed and printed.difference,
        "paper_violation": printed and printed.violation,
    }
