"""The methods that race: all at their defaults, and AFL and ASPIRE tuned over small grids.

    AFL     eta in 1, 2, 4, 8, 16, gamma in 0.01, 0.02, 0.03, 0.05, 0.1; and its measured steps,
            extrapolated or not
    ASPIRE  its default kappa, and with it rho_2, 1 / eta_z and 1 / eta_w, times 0.5, 1, 2, 4; rho_1
            at its default, and fixed at 0.5, 1, 2 times S / (f N^2), its value for N planes without
            stragglers (f is the mean loss at first)

A tuned method is the entrant whose time to the level is least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import bonafed as bf
from bonafed.papers.aspire.aspire import ASPIRE
from bonafed.papers.aspire.drfa import DRFA
from bonafed.papers.aspire.race import Entrant, Run
from bonafed.papers.aspire.step_sizes import Steps

AFL_ETA, AFL_GAMMA = (1.0, 2.0, 4.0, 8.0, 16.0), (0.01, 0.02, 0.03, 0.05, 0.1)
KAPPA, RHO1 = (0.5, 1.0, 2.0, 4.0), (None, 0.5, 1.0, 2.0)
CAP = 10**7  # rounds; in a race the time limit ends a run
ENDLESS: dict[str, Any] = {"tol": 0.0, "max_rounds": CAP}


def as_they_come(first: int = 1) -> dict[str, Entrant]:
    """All methods at their defaults, none of which stops by itself.

    ``first`` is S of the asynchronous ones.
    """
    methods = [
        bf.AsyncDRO(**ENDLESS),
        ASPIRE(**ENDLESS),
        bf.AFL(**ENDLESS),
        DRFA(max_rounds=CAP),
        bf.FedAvg(**ENDLESS),
        bf.MultiplierMethod(**ENDLESS),
    ]
    return {type(method).__name__: Entrant(method, bf.First(first)) for method in methods}


def bundles(first: int = 1) -> dict[str, Entrant]:
    """The synchronous and the asynchronous bundle; this one stops by itself, since its tolerance
    says which steps are not worth a message.
    """
    synchronous, asynchronous = bf.Bundle(**ENDLESS), bf.AsyncBundle(tol=1e-4, max_rounds=CAP)
    return {"Bundle": Entrant(synchronous), "AsyncBundle": Entrant(asynchronous, bf.First(first))}


def afl_grid() -> dict[str, Entrant]:
    """AFL with every setting of its grid."""
    plain = bf.AFL(**ENDLESS)
    grid = {"measured": plain, "measured, optimistic": replace(plain, optimistic=True)}
    for eta, gamma in product(AFL_ETA, AFL_GAMMA):
        grid[f"eta {eta:g}, gamma {gamma:g}"] = replace(plain, step_size=eta, weight_step=gamma)
    return {name: Entrant(algorithm) for name, algorithm in grid.items()}


def aspire_grid(steps: Steps, first: int = 1) -> dict[str, Entrant]:
    """ASPIRE with every setting of its grid; ``steps`` are its default ones, ``first`` is S."""
    grid, n = {}, steps.workers
    for by, rho in product(KAPPA, RHO1):
        kappa, name = by * steps.kappa, f"kappa x {by:g}, rho_1 "
        algorithm = ASPIRE(**ENDLESS, kappa=kappa, rho2=kappa / 2, eta_z=1 / (n * kappa))
        if rho is not None:
            algorithm = replace(algorithm, rho1=rho * steps.rho1 * first / n**2)
        name += "its default" if rho is None else f"x {rho:g}"
        grid[name] = Entrant(algorithm, bf.First(first))
    return grid


def tuned(runs: Mapping[str, Run], level: float) -> str:
    """The name of the run that reaches the level first, or comes nearest if none reaches it."""
    return min(runs, key=lambda name: (runs[name].time(level), runs[name].best))
