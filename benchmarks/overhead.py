"""Where the CPU of a run goes at 1,000 small clients: engine, client work, server's mathematics,
per client and round.

The engine's own cost (messages, blocks, folding, traffic, history) is what is left of the run after
the clients' cuts and the server's step. Target: at most 0.2 ms per client and round, in every mode.
"""

from __future__ import annotations

import measure
from cases import federation, robust

import bonafed as bf
from bonafed.algorithms.federated.bundle import bundle
from bonafed.problem.problem import Problem
from bonafed.solution.plan import configure

CLIENTS, ROWS, FEATURES, TARGET = 1000, 30, 10, 0.2


def parts(mode: str) -> dict[str, float]:
    """CPU ms per client and round of one run."""
    problem, fed = robust(bf.Hinge()).at(federation(bf.Hinge(), CLIENTS, FEATURES, ROWS))
    algorithm = configure(bf.Bundle(), problem, fed, None, None, None, None)
    spent: dict[str, float] = {}
    with (
        measure.stopwatch(bundle, "minimise", spent),
        measure.stopwatch(bundle.Bundle, "improve", spent),
        measure.stopwatch(Problem, "cut", spent),
    ):
        run = measure.alternate({"run": lambda: bf.InProcess(mode).run(algorithm, fed)}, 1)["run"]
    per = 1e3 / (CLIENTS * run.result.rounds)
    return {
        "rounds": run.result.rounds,
        "total": run.seconds * per,
        "master": spent["minimise"] * per,
        "server": (spent["improve"] - spent["minimise"]) * per,
        "cuts": spent["cut"] * per,
        "engine": (run.seconds - spent["improve"] - spent["cut"]) * per,
    }


def main() -> None:
    print(f"{CLIENTS} clients of about {ROWS} rows, {FEATURES} features; {measure.machine()}")
    print("CPU ms per client and round\n")
    columns, rows, targets = ("total", "engine", "cuts", "master", "server"), [], measure.Targets()
    for mode in ("blocks", "each", "bytes"):
        runs = [parts(mode) for _ in range(3)]
        least = {name: min(run[name] for run in runs) for name in runs[0]}
        rows.append((mode, *(least[name] for name in ("rounds", *columns))))
    names = (
        "mode",
        "rounds",
        "total",
        "engine",
        "clients' cuts",
        "master programs",
        "rest of the server",
    )
    measure.show("overhead", names, rows)
    for mode, _, total, engine, *_ in rows:
        targets.need(
            engine <= TARGET,
            f"{mode}: engine {engine:.4f} <= {TARGET} ms per client and round (all {total:.4f})",
        )
    targets.finish()


if __name__ == "__main__":
    main()
