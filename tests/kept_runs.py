"""Small runs whose checkpoints an earlier quorate wrote; they stand in ``engines/checkpoints/``.

    PYTHONPATH=OLD/src python tests/kept_runs.py tests/engines/checkpoints

writes them with the code in OLD; those that are stored come from commit 1e90e0f, but for
``private_admm``, which is of the first version whose private answers are integers, and
``proximal_al``, of the first that counts columns in units, ``async_bundle``, of the first that cuts
constraints, and the bundles, of the first that says which second derivative it asks for. This file
uses public names only, so
that old and new code can run it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import quorate as qr


@dataclass(frozen=True)
class KeptRun:
    """A run that is stopped after some rounds."""

    problem: qr.Problem
    algorithm: Any
    after: int  # finished rounds in the checkpoint
    max_rounds: int
    clock: bool = False
    pooled: bool = False

    def engine(self, path: os.PathLike[str] | None) -> Any:
        """The engine of the run, with its checkpoint at ``path``."""
        if self.clock:
            slow = {"east": 5.0}
            return qr.VirtualClock(stragglers=slow, wait=qr.First(2), checkpoint=path, every=10**6)
        return qr.InProcess(checkpoint=path, block_size=2, every=10**6)

    def solve(self, path: os.PathLike[str] | None, stop: bool = False, resume: bool = False) -> Any:
        """The solution; ``stop`` interrupts the run where the checkpoint was written."""

        def watch(row: dict[str, Any], state: Any) -> None:
            if stop and row["round"] == self.after:
                raise KeyboardInterrupt

        fed = federation().pooled() if self.pooled else federation()
        return qr.solve(
            self.problem,
            fed,
            algorithm=self.algorithm,
            engine=self.engine(path),
            max_rounds=self.max_rounds,
            seed=3,
            watch=[watch],
            resume=resume,
        )


def federation() -> qr.Federation:
    """Four small clients with two classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((32, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(32) > 0, "ill", "well")
    return qr.Federation.from_arrays(X, y, np.repeat(["north", "east", "south", "west"], 8))


RIDGE = qr.L2(1e-2)
PLAIN = qr.Linear(intercept=False)  # the default of the quorate that wrote the files
ROBUST = qr.Problem(
    qr.Hinge(),
    PLAIN,
    over_samples=qr.WassersteinBall(0.05, 0.5),
    over_clients=qr.LpBall(0.2),
    regulariser=RIDGE,
)
AGNOSTIC = qr.Problem(qr.Logistic(), PLAIN, over_clients=qr.Simplex(), regulariser=RIDGE)
CONSTRAINED = qr.Problem(
    qr.Logistic(),
    PLAIN,
    over_samples=qr.Mean(label="well"),
    regulariser=RIDGE,
    local_constraint=qr.NeymanPearson("ill", 0.6),
)
PRIVATE = qr.Problem(qr.Logistic(), PLAIN, regulariser=RIDGE, privacy=qr.Budget(3.0, 1e-3))
RANKED = qr.Problem(qr.Logistic(), PLAIN, over_samples=qr.Superquantile(0.3), regulariser=RIDGE)
RUNS = {
    "bundle": KeptRun(ROBUST, qr.Bundle(tol=1e-8), 3, 6),
    "bundle_clock": KeptRun(ROBUST, qr.Bundle(tol=1e-8), 3, 6, clock=True),
    "async_bundle": KeptRun(ROBUST, qr.AsyncBundle(tol=1e-8), 12, 25, clock=True),
    "proximal_al": KeptRun(CONSTRAINED, qr.ProximalAL(tol=1e-10), 4, 8),
    "async_dro": KeptRun(AGNOSTIC, qr.AsyncDRO(tol=1e-9), 12, 25, clock=True),
    "aspire": KeptRun(AGNOSTIC, qr.ASPIRE(tol=1e-9), 12, 25, clock=True),
    "private_admm": KeptRun(PRIVATE, qr.PrivateADMM(noise="simulation"), 3, 6),
    "rank_admm": KeptRun(RANKED, qr.RankADMM(tol=1e-12), 2, 5, pooled=True),
}


def write(folder: Path) -> None:
    """The checkpoints of all runs, with the quorate that is imported here."""
    for name, run in RUNS.items():
        run.solve(folder / f"{name}.qrt", stop=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
