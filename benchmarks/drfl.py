"""Rounds and CPU seconds of bundles to a relative gap of 1e-2 .. 1e-6 in F at the server's model.

A round is one exchange with every client. F* is the bundle's own at 1e-9, with its proven gap.
Target: the default needs at most 45 rounds to prove 1e-6, at most 15 at 200 clients. The ADMMs of
the paper are beside it in `bonafed reproduce drfl/algorithm-1`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import measure
import numpy as np
from cases import federation, robust

import bonafed as bf
from bonafed.solution.plan import configure

LEVELS = (1e-2, 1e-3, 1e-4, 1e-6)
LOSSES = (bf.Hinge(), bf.Huber(0.5), bf.Logistic())
BUNDLES = {
    "bundle (default)": bf.Bundle(),
    "bundle, level": bf.Bundle(variant="level"),
    "bundle, hessian": bf.Bundle(metric="hessian"),
}


@dataclass(frozen=True)
class Counted:
    """First rounds that meet each level (None: not met), CPU seconds to the last level met, rounds
    to the end.
    """

    rounds: tuple[int | None, ...]
    seconds: float
    total: int
    outcome: str


def count(problem: bf.Problem, fed: bf.Federation, algorithm: Any, best: float) -> Counted:
    """Run, and evaluate F exactly at the server's model after every round (not in the time)."""
    concrete, data = problem.at(fed)
    algorithm = configure(algorithm, concrete, data, None, None, None, None)
    first: list[int | None] = [None] * len(LEVELS)
    clock = measure.time.process_time
    spent, resumed, last, value, asked = 0.0, clock(), np.zeros(0), np.inf, 0

    def watch(row: dict, state: Any) -> None:
        nonlocal spent, resumed, last, value, asked
        spent += clock() - resumed
        w = algorithm.answer(state)[0]
        asked = row["round"]
        if len(w) and not np.array_equal(w, last):
            last, value = w, problem.objective(w, fed)
        for k, level in enumerate(LEVELS):
            if first[k] is None and value - best <= level * best:
                first[k] = row["round"]
        resumed = clock()

    outcome = bf.InProcess().run(algorithm, data, watch=[watch]).outcome.stop.name.lower()
    return Counted(tuple(first), spent, asked, outcome)


def case(loss, n_clients: int, n_features: int, rows: int, targets: measure.Targets) -> list[tuple]:
    fed, problem = federation(loss, n_clients, n_features, rows), robust(loss)
    reference = bf.solve(problem, fed, tol=1e-9)
    best = reference.certificate.value
    name = f"{type(loss).__name__} S={n_clients} n={n_features}"
    table = []
    for who, algorithm in BUNDLES.items():
        if algorithm.metric == "hessian" and not loss.smooth:
            continue
        counted = count(problem, fed, algorithm, best)
        ends = f"{counted.total} {counted.outcome}"
        table.append((name, who, *counted.rounds, ends, counted.seconds))
        if who == "bundle (default)":
            most = 15 if n_clients >= 200 else 45
            proven = counted.outcome == "optimal" and counted.total <= most
            targets.need(proven, f"{name}: gap 1e-6 proven in {counted.total} <= {most} rounds")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="*", default=(3, 10, 50, 200))
    given = parser.parse_args()
    print(f"{measure.machine()}\n")
    targets, rows = measure.Targets(), []
    bf.solve(robust(bf.Hinge()), federation(bf.Hinge(), 2, 3, 10))
    for n_clients in given.clients:
        for loss in LOSSES:
            rows += case(loss, n_clients, 13, 30, targets)
    for loss in LOSSES:
        rows += case(loss, 10, 50, 150, targets)
    names = ("case", "method", *(f"{level:g}" for level in LEVELS), "end", "CPU s")
    measure.show("rounds", names, rows)
    targets.finish()


if __name__ == "__main__":
    main()
