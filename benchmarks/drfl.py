"""Rounds and CPU seconds to a relative gap of 1e-2 .. 1e-6 in F at the server's model: bundles
beside ADMMs.

A round is one exchange with every client. Counted: the first round whose model meets the tolerance
(an ADMM iterate can leave it again, a bundle's best model cannot). F* is the bundle's own at 1e-9,
with its proven gap. Target: the default needs at most 45 rounds to prove 1e-6, at most 15 at 200
clients.
"""

from __future__ import annotations

import argparse
from contextlib import suppress
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


def admms(limit: int) -> dict[str, Any]:
    """Those that this version has."""
    try:
        return {
            "ADLPMM paper": bf.ADLPMM(steps="paper", tol=0.0, max_rounds=limit),
            "ADLPMM tight": bf.ADLPMM(steps="tight", tol=0.0, max_rounds=limit),
            "EpigraphADMM": bf.EpigraphADMM(tol=0.0, max_rounds=limit),
        }
    except (AttributeError, ImportError):
        return {}


@dataclass(frozen=True)
class Counted:
    """First rounds that meet each level (None: not met), CPU seconds to the last level met, rounds
    to the end.
    """

    rounds: tuple[int | None, ...]
    seconds: float
    total: int
    outcome: str


class Enough(Exception):  # noqa: N818  not an error
    """The tightest level is met: nothing more to count."""


def count(
    problem: bf.Problem, fed: bf.Federation, algorithm: Any, best: float, stop_early: bool
) -> Counted:
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
        if stop_early and first[-1] is not None:
            raise Enough

    outcome = "counted"
    with suppress(Enough):
        outcome = bf.InProcess().run(algorithm, data, watch=[watch]).outcome.stop.name.lower()
    return Counted(tuple(first), spent, asked, outcome)


def case(
    loss, n_clients: int, n_features: int, rows: int, limit: int, targets: measure.Targets
) -> list[tuple]:
    fed, problem = federation(loss, n_clients, n_features, rows), robust(loss)
    reference = bf.solve(problem, fed, tol=1e-9)
    best = reference.certificate.value
    name = f"{type(loss).__name__} S={n_clients} n={n_features}"
    methods = {k: v for k, v in BUNDLES.items() if loss.smooth or v.metric == "identity"} | (
        admms(limit) if limit else {}
    )
    table = []
    for who, algorithm in methods.items():
        counted = count(problem, fed, algorithm, best, not isinstance(algorithm, bf.Bundle))
        ends = f"{counted.total} {counted.outcome}"
        table.append((name, who, *counted.rounds, ends, counted.seconds))
        if who == "bundle (default)":
            most = 15 if n_clients >= 200 else 45
            proven = counted.outcome == "optimal" and counted.total <= most
            targets.need(proven, f"{name}: gap 1e-6 proven in {counted.total} <= {most} rounds")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--limit",
        type=int,
        default=500,
        help="rounds of an ADMM, fewer for many clients; 0: bundles only",
    )
    parser.add_argument("--clients", type=int, nargs="*", default=(3, 10, 50, 200))
    given = parser.parse_args()
    print(f"{measure.machine()}\n")
    targets, rows = measure.Targets(), []
    bf.solve(robust(bf.Hinge()), federation(bf.Hinge(), 2, 3, 10))
    for n_clients in given.clients:
        for loss in LOSSES:
            rows += case(loss, n_clients, 13, 30, min(given.limit, 6000 // n_clients), targets)
    for loss in LOSSES:
        rows += case(loss, 10, 50, 150, 0, targets)
    names = ("case", "method", *(f"{level:g}" for level in LEVELS), "end", "CPU s")
    measure.show("rounds", names, rows)
    targets.finish()


if __name__ == "__main__":
    main()
