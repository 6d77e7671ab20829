"""Small runs whose checkpoints an earlier bonafed wrote; they stand in ``engines/checkpoints/``.

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

import bonafed as bf


@dataclass(frozen=True)
class KeptRun:
    """A run that is stopped after some rounds."""

    problem: bf.Problem
    algorithm: Any
    after: int  # finished rounds in the checkpoint
    max_rounds: int
    clock: bool = False
    pooled: bool = False

    def engine(self, path: os.PathLike[str] | None) -> Any:
        """The engine of the run, with its checkpoint at ``path``."""
        if self.clock:
            slow = {"east": 5.0}
            return bf.VirtualClock(stragglers=slow, wait=bf.First(2), checkpoint=path, every=10**6)
        return bf.InProcess(checkpoint=path, block_size=2, every=10**6)

    def solve(self, path: os.PathLike[str] | None, stop: bool = False, resume: bool = False) -> Any:
        """The solution; ``stop`` interrupts the run where the checkpoint was written."""

        def watch(row: dict[str, Any], state: Any) -> None:
            if stop and row["round"] == self.after:
                raise KeyboardInterrupt

        fed = federation().pooled() if self.pooled else federation()
        return bf.solve(
            self.problem,
            fed,
            algorithm=self.algorithm,
            engine=self.engine(path),
            max_rounds=self.max_rounds,
            seed=3,
            watch=[watch],
            resume=resume,
        )


def federation() -> bf.Federation:
    """Four small clients with two classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((32, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + 0.5 * rng.standard_normal(32) > 0, "ill", "well")
    return bf.Federation.from_arrays(X, y, np.repeat(["north", "east", "south", "west"], 8))


RIDGE = bf.L2(1e-2)
PLAIN = bf.Linear(intercept=False)  # the default of the bonafed that wrote the files
ROBUST = bf.Problem(
    bf.Hinge(),
    PLAIN,
    over_samples=bf.WassersteinBall(0.05, 0.5),
    over_clients=bf.LpBall(0.2),
    regulariser=RIDGE,
)
AGNOSTIC = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=RIDGE)
CONSTRAINED = bf.Problem(
    bf.Logistic(),
    PLAIN,
    over_samples=bf.Mean(label="well"),
    regulariser=RIDGE,
    local_constraint=bf.NeymanPearson("ill", 0.6),
)
PRIVATE = bf.Problem(bf.Logistic(), PLAIN, regulariser=RIDGE, privacy=bf.Budget(3.0, 1e-3))
RANKED = bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.3), regulariser=RIDGE)
RUNS = {
    "bundle": KeptRun(ROBUST, bf.Bundle(tol=1e-8), 3, 6),
    "bundle_clock": KeptRun(ROBUST, bf.Bundle(tol=1e-8), 3, 6, clock=True),
    "async_bundle": KeptRun(ROBUST, bf.AsyncBundle(tol=1e-8), 12, 25, clock=True),
    "proximal_al": KeptRun(CONSTRAINED, bf.ProximalAL(tol=1e-10), 4, 8),
    "async_dro": KeptRun(AGNOSTIC, bf.AsyncDRO(tol=1e-9), 12, 25, clock=True),
    "aspire": KeptRun(AGNOSTIC, bf.ASPIRE(tol=1e-9), 12, 25, clock=True),
    "private_admm": KeptRun(PRIVATE, bf.PrivateADMM(noise="simulation"), 3, 6),
    "rank_admm": KeptRun(RANKED, bf.RankADMM(tol=1e-12), 2, 5, pooled=True),
}


def write(folder: Path) -> None:
    """The checkpoints of all runs, with the bonafed that is imported here."""
    for name, run in RUNS.items():
        run.solve(folder / f"{name}.bft", stop=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
