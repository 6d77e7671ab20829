"""Who races: every method as it comes, and AFL and ASPIRE tuned over small grids that are stated here.

    AFL      eta in 1, 2, 4, 8, 16, gamma in 0.01, 0.02, 0.03, 0.05, 0.1; its measured steps, extrapolated or not
    ASPIRE   its own kappa, and with it rho_2, 1 / eta_z and 1 / eta_w, times 0.5, 1, 2, 4; rho_1 its own, and fixed
             at 0.5, 1, 2 times S / (f N^2), its own for N planes without stragglers (f: the mean loss at first)

A tuned method is the entrant whose time to the level is least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from quorate.algorithms.federated.afl import AFL
from quorate.algorithms.federated.aspire import ASPIRE
from quorate.algorithms.federated.aspire_steps import Steps
from quorate.algorithms.federated.async_dro import AsyncDRO
from quorate.algorithms.federated.drfa import DRFA
from quorate.algorithms.federated.fed_avg import FedAvg
from quorate.algorithms.federated.multiplier_method import MultiplierMethod
from quorate.engines.activation import First
from quorate.experiments.aspire.race import Entrant, Run

AFL_ETA, AFL_GAMMA = (1.0, 2.0, 4.0, 8.0, 16.0), (0.01, 0.02, 0.03, 0.05, 0.1)
KAPPA, RHO1 = (0.5, 1.0, 2.0, 4.0), (None, 0.5, 1.0, 2.0)
CAP = 10**7  # rounds: time ends a race


def as_they_come(first: int = 1) -> dict[str, Entrant]:
    """All methods at their defaults; no method stops of itself. ``first``: S of the asynchronous ones."""
    found: dict[str, Any] = {
        "AsyncDRO": AsyncDRO(tol=0.0, max_rounds=CAP),
        "ASPIRE": aspire(),
        "AFL": AFL(tol=0.0, max_rounds=CAP),
        "DRFA": DRFA(max_rounds=CAP),
        "FedAvg": FedAvg(tol=0.0, max_rounds=CAP),
        "MultiplierMethod": MultiplierMethod(tol=0.0, max_rounds=CAP),
    }
    return {name: Entrant(algorithm, First(first)) for name, algorithm in found.items()}


def aspire(**given: Any) -> ASPIRE:
    """ASPIRE-EASE that runs until its time is over."""
    return ASPIRE(**{"tol": 0.0, "max_rounds": CAP} | given)


def afl_grid() -> dict[str, Entrant]:
    """AFL over its grid."""
    plain = AFL(tol=0.0, max_rounds=CAP)
    found = {"measured": plain, "measured, optimistic": replace(plain, optimistic=True)}
    for eta, gamma in product(AFL_ETA, AFL_GAMMA):
        found[f"eta {eta:g}, gamma {gamma:g}"] = replace(plain, step_size=eta, weight_step=gamma)
    return {name: Entrant(algorithm) for name, algorithm in found.items()}


def aspire_grid(steps: Steps, first: int = 1) -> dict[str, Entrant]:
    """ASPIRE over its grid; ``steps`` are those it chose itself, ``first`` is S."""
    found = {}
    for by, rho in product(KAPPA, RHO1):
        kappa, n = by * steps.kappa, steps.workers
        given: dict[str, Any] = {"kappa": kappa, "rho2": kappa / 2, "eta_z": 1 / (n * kappa)}
        if rho is not None:
            given["rho1"] = rho * steps.rho1 * first / n**2
        name = f"kappa x {by:g}, " + ("rho_1 its own" if rho is None else f"rho_1 x {rho:g}")
        found[name] = Entrant(aspire(**given), First(first))
    return found


def tuned(runs: Mapping[str, Run], level: float) -> str:
    """The name of the run that reaches the level first; of none that does, of the one that comes nearest."""
    return min(runs, key=lambda name: (runs[name].time(level), runs[name].best))
