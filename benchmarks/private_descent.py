"""Private gradient descent on rows of length 1: test error on MNIST within (1, 1e-6), 10 clients.

Pixels are centred at 0.13, the mean that is published with the images. Means of three seeds of
simulated noise; targets: 10.4 % after 100 rounds, 10.3 % after 300. ``--quick`` runs few rounds
and has no target. Needs the data directory. One thread.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import measure
import numpy as np

import quorate as qr
from quorate.data.unit_rows import unit_rows
from quorate.experiments.private import curves, data
from quorate.solution.solve import fit

CENTRE, TARGETS = 0.13, {100: 0.104, 300: 0.103}


def errors(split: data.Split, rounds: int) -> list[float]:
    """The test errors of three runs."""
    method = qr.PrivateSGD(max_rounds=rounds, bound=1.0, noise="simulation")
    runs = [fit(curves.problem(1.0), split.fed, algorithm=method, seed=seed) for seed in range(3)]
    return [split.error(run.w) for run in runs]


def main() -> None:
    targets, quick = measure.Targets(), "--quick" in sys.argv
    split = data.mnist(600 if quick else data.ROWS)
    X = tuple(unit_rows(x, CENTRE).astype(np.float32) for x in split.fed.X)
    split = split._replace(fed=replace(split.fed, X=X), X=unit_rows(split.X, CENTRE))
    rows = []
    for rounds, target in {5: 1.0}.items() if quick else TARGETS.items():
        found = errors(split, rounds)
        mean = float(np.mean(found))
        rows.append((rounds, *(100 * each for each in (mean, min(found), max(found)))))
        targets.need(mean <= target, f"{rounds} rounds: {100 * mean:.2f} %, target {target:.1%}")
    print(measure.table(("rounds", "error %, mean of three seeds", "least", "largest"), rows))
    targets.finish()


if __name__ == "__main__":
    main()
