"""CPU seconds of this checkout beside a revision: parts of four benchmarks, in turn, in one run.

    python benchmarks/side_by_side.py            # beside the commit that golden.py compares with
    python benchmarks/side_by_side.py REV [PART ...] [--repeats N]

Each side is a process of its own that loads its own sources, has everything compiled by a call that
does not count, and then computes a case whenever it is asked. The sides alternate, so that a slow
minute of the machine meets both. A row gives the least CPU seconds of each side, their ratio, and
the median of the ratios of neighbouring calls. Target: that median is at most 1.05. ``golden.py``
shows that the numbers are equal; here only the time counts.

Parts: ``rivals`` (our side of ``rivals.py``), ``private`` (rounds of ``private.py speed``),
``rank`` (convex risks by rank); and, only where it is named, as the revision needs ``papers/``,
``race`` (methods on a virtual clock, one hospital slow).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np

HOME = Path(__file__).resolve().parent.parent
BEFORE = "e0938184"  # the last commit before what people met was mended
WITHIN, REPEATS = 1.05, 9
LEAST = 0.4  # CPU seconds to measure over: short cases are called so often
ALONE = "AsyncDRO, one hospital slow"  # no target: it lost its answers computed ahead on purpose
Case = Callable[[], object]


def rivals() -> dict[str, Case]:
    from cases import federation, groups, robust

    import bonafed as bf

    agnostic = bf.Problem(bf.Hinge(), bf.Linear(fit_intercept=True), over_clients=bf.Simplex())
    cases: dict[str, Case] = {}
    for count in (10, 100):
        fed = bf.Federation.from_arrays(*groups(count))
        cases[f"hinge, {count} groups"] = lambda fed=fed: bf.solve(agnostic, fed)
    for clients, rows in ((10, 200), (50, 100)):
        fed = federation(bf.Hinge(), clients, 20, rows)
        cases[f"DRFL, {clients} clients"] = lambda fed=fed: bf.solve(robust(bf.Hinge()), fed)
    return cases


def private() -> dict[str, Case]:
    import bonafed as bf

    def case(sizes: list[int], classes: int, rounds: int) -> Case:
        rng = np.random.default_rng(0)
        Xs = [rng.random((size, 784), dtype=np.float32) for size in sizes]
        ys = [rng.integers(0, classes, size) for size in sizes]
        names = [f"client {i}" for i in range(len(sizes))]
        fed = bf.Federation(names, Xs, ys, classes=np.arange(classes))
        budget = bf.Budget(1.0, 1e-6)
        problem = bf.Problem(
            bf.Multinomial(), bf.Softmax(), regulariser=bf.L2(1e-3), privacy=budget
        )
        method = bf.PrivateADMM(max_rounds=rounds, clip=5.0, noise="simulation")
        return lambda: bf.solve(problem, fed, algorithm=method)

    ragged = np.random.default_rng(1).integers(60, 300, 195).tolist()
    return {
        "MNIST's shape, 10 rounds": case([6000] * 10, 10, 10),
        "FEMNIST's shape, 5 rounds": case(ragged, 62, 5),
    }


def rank() -> dict[str, Case]:
    import rank_data as data

    import bonafed as bf

    fed = data.synthetic(1000, 500).federation()
    risks = {"mean": bf.Mean(), "CVaR": bf.Superquantile(tail=0.2), "extremile": bf.Extremile(2.0)}
    problems = {
        name: bf.Problem(
            data.LOGISTIC,
            bf.Linear(fit_intercept=False),
            over_samples=risk,
            regulariser=bf.L2(data.MU),
        )
        for name, risk in risks.items()
    }
    problems["CVaR, hinge"] = bf.Problem(
        data.HINGE,
        bf.Linear(fit_intercept=False),
        over_samples=risks["CVaR"],
        regulariser=bf.L2(data.MU),
    )
    return {
        f"{name}, 600 x 500": lambda problem=problem: bf.solve(problem, fed, tol=1e-9)
        for name, problem in problems.items()
    }


def race() -> dict[str, Case]:
    import bonafed as bf
    from bonafed.data import load

    fed = load.hospitals()
    problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(1e-2))

    def follow(*methods: Any) -> None:
        clock = bf.VirtualClock(stragglers={"Old Mill": 10.0}, max_time=600.0, keep_rows=10**6)
        for method in methods:
            bf.solve(problem, fed, algorithm=method, engine=clock)

    all_methods = bf.AsyncDRO(tol=0.0), bf.AsyncBundle(), bf.Bundle(tol=0.0), bf.AFL(tol=0.0)
    return {ALONE: lambda: follow(all_methods[0]), "four methods": lambda: follow(*all_methods)}


PARTS = {"rivals": rivals, "private": private, "rank": rank, "race": race}
ALL = ("rivals", "private", "rank")  # where none is named


def serve(part: str) -> None:
    """A side: it names its cases and computes one for each line that it reads."""
    # what the library prints must not stand between the answers
    out, sys.stdout = sys.stdout, sys.stderr
    cases = PARTS[part]()
    print("\t".join(cases), file=out, flush=True)
    calls = dict.fromkeys(cases, 1)
    for line in sys.stdin:
        case, began = line.strip(), time.process_time()
        for _ in range(calls[case]):
            cases[case]()
        seconds = (time.process_time() - began) / calls[case]
        print(seconds, file=out, flush=True)
        calls[case] = max(1, round(LEAST / seconds))


class Side:
    """A process with the sources of one side."""

    def __init__(self, source: Path, part: str) -> None:
        places = os.pathsep.join([str(source), str(HOME / "benchmarks")])
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--serve", part],
            env={**os.environ, "PYTHONPATH": places},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.cases = self.line().split("\t")

    def line(self) -> str:
        assert self.process.stdout is not None
        text = self.process.stdout.readline().strip()
        if not text:
            raise RuntimeError(f"a side ended with status {self.process.wait()}")
        return text

    def seconds(self, case: str) -> float:
        assert self.process.stdin is not None
        print(case, file=self.process.stdin, flush=True)
        return float(self.line())


def compare(before: Path, part: str, repeats: int, targets: measure.Targets) -> list[tuple]:
    sides = Side(before, part), Side(HOME / "src", part)
    rows = []
    for case in sides[0].cases:
        for side in (*sides, *sides):  # the first call compiles, the second is warm
            side.seconds(case)
        times = np.array([[side.seconds(case) for side in sides] for _ in range(repeats)])
        old, new = times.min(0)
        typical = float(np.median(times[:, 1] / times[:, 0]))
        rows.append((part, case, old, new, f"{new / old:.3f}", f"{typical:.3f}"))
        if case == ALONE:
            continue
        targets.need(
            typical <= WITHIN,
            f"{part}: {case}: {new / old:.3f} of the least times, {typical:.3f} pair by pair",
        )
    for side in sides:
        side.process.kill()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU seconds beside a revision.")
    parser.add_argument("revision", nargs="?", default=BEFORE)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--serve", choices=PARTS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve)
        return
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"parts are {', '.join(PARTS)}, got {', '.join(unknown)}")
    targets, rows = measure.Targets(), []
    print(measure.machine(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        measure.at_commit(asked.revision, Path(folder))
        for part in asked.parts or ALL:
            rows += compare(Path(folder) / "src", part, asked.repeats, targets)
    columns = ("part", "case", "CPU s before", "CPU s now", "ratio", "ratio, pair by pair")
    measure.show("side by side", columns, rows)
    targets.finish()


if __name__ == "__main__":
    main()
