"""What the check for a trivial model costs beside the fit, on ordinary and on trivial problems.

The check says whether a model is better than a constant, and else what is to blame
(`bonafed.solution.trivial`, `blame`). Target: at most a tenth of the fit's CPU. A fit shorter than
`FLOOR` seconds is too short for that: there the check has a tenth of `FLOOR`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import measure
import numpy as np

import bonafed as bf
from bonafed.solution import solve as solving

SHARE, FLOOR = 0.1, 0.06
SIZES = ((300, 4), (2_000, 10), (20_000, 20))
LOSSES = (bf.Logistic(), bf.Hinge(), bf.Absolute())
ORDINARY: dict[str, dict[str, Any]] = {
    "no regulariser": {},
    "L2(1e-3)": {"regulariser": bf.L2(1e-3)},
    "L1(1e-3)": {"regulariser": bf.L1(1e-3)},
    "LpBall(.1)": {"over_clients": bf.LpBall(0.1), "regulariser": bf.L2(1e-3)},
}
TRIVIAL: dict[str, dict[str, Any]] = {
    "L2(1e9)": {"regulariser": bf.L2(1e9)},
    "L2(10)": {"regulariser": bf.L2(10.0)},
    "L1(5)": {"regulariser": bf.L1(5.0)},
    "L2(1e9), LpBall(0)": {"regulariser": bf.L2(1e9), "over_clients": bf.LpBall(0.0)},
    "radius 5": {"over_samples": bf.WassersteinBall(5.0), "regulariser": bf.L2(1e-3)},
    "no signal": {"regulariser": bf.L2(1e-3)},
}


def federation(rows: int, features: int, signal: float, real: bool) -> bf.Federation:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    score = signal * X[:, 0] + rng.normal(size=rows)
    y = score if real else np.where(score > 0, 1, -1)
    return bf.Federation.from_arrays(X, y, np.arange(rows) % 4)


def cases(quick: bool) -> Iterator[tuple[str, bool, bf.Problem, bf.Federation]]:
    for rows, features in SIZES[: 2 if quick else 3]:
        for loss in LOSSES:
            for trivial, table in ((False, ORDINARY), (True, TRIVIAL)):
                for name, slots in table.items():
                    fed = federation(rows, features, name != "no signal", loss.targets == "real")
                    problem = bf.Problem(loss, bf.Linear(True), **slots)
                    label = f"{rows} x {features}, {type(loss).__name__}, {name}"
                    yield label, trivial, problem, fed


def measured(problem: bf.Problem, fed: bf.Federation) -> tuple[float, float, bf.Solution]:
    """Least CPU seconds of the fit and of the check, and the solution."""
    solution, fits, checks = bf.solve(problem, fed), [], []  # imports and compiled loops
    for _ in range(9):
        spent: dict[str, float] = {}
        with measure.stopwatch(solving, "triviality", spent):
            began = time.process_time()
            bf.solve(problem, fed)
            fits.append(time.process_time() - began - spent["triviality"])
            checks.append(spent["triviality"])
    return min(fits), min(checks), solution


def main(quick: bool) -> None:
    print(f"CPU ms of a fit and of the check; {measure.machine()}")
    print(f"Target: {SHARE:.0%} of the fit, or of {1e3 * FLOOR:.0f} ms where it is shorter.")
    rows, targets = [], measure.Targets()
    for name, trivial, problem, fed in cases(quick):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds, check, solution = measured(problem, fed)
        found = solution.trivial
        blamed = "-" if found is None else found.parameter or "not found"
        ratio = check / max(seconds, FLOOR)
        rows.append((name, 1e3 * seconds, 1e3 * check, check / seconds, ratio, blamed))
        assert trivial or found is None, name
    columns = ("problem", "fit", "check", "ratio", "of the fit or floor", "to blame")
    measure.show("triviality", columns, rows)
    for kind in ("-", "found"):
        chosen = [row for row in rows if (row[-1] == "-") == (kind == "-")]
        worst = max(chosen, key=lambda row: row[4])
        words = "ordinary" if kind == "-" else "trivial"
        targets.need(worst[4] <= SHARE, f"{words} models: {worst[4]:.3f} at most, of {worst[0]}")
    targets.finish()


if __name__ == "__main__":
    main("--quick" in sys.argv)
