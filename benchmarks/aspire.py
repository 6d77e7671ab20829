"""Asynchronous min-max over clients: events a second, every set, ordinary tables.

    aspire.py tables  AsyncBundle, Bundle and AsyncDRO on eight ordinary tables, raw and
        standardised, one client 10 and 50 times slower, nobody slow, N = 100, hinge. Target: where
        one is slow, AsyncBundle proves a gap of 1e-3 no later than Bundle.
    aspire.py engine  AsyncDRO, N = 1,000 (100 where a projection is a program), 210 numbers, 20
        rows each: events a CPU second with every set of weights and S = 1, 10, 100. Target: 25,000
        with the simplex, S = 10.
    aspire.py sets  every set of weights, N = 10 and 100, one client 10 and 50 times slower.
        Targets: proven gap 1e-8 by MultiplierMethod, relative 1e-3 by AsyncDRO, both as they come.

The paper's experiments are run by ``bonafed reproduce aspire/...``. Virtual times are numbers of
the algorithms; they do not depend on the machine. ``--quick`` runs small parts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import async_tables
import measure
import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests"))

import client_sets

import bonafed as bf
from bonafed.solution.plan import configure

Targets = measure.Targets
EVENTS = 25_000
# of which the quickest counts: what other work on the machine adds differs from run to run
REPEATS, SHARE = 5, 0.5  # SHARE: CPU seconds of a run, about
MANY, FEW = 1000, 100  # clients of the runs that count events
# a projection of 1,000 weights onto one of these is a program of minutes: they get FEW clients
PROGRAMS = ("polyhedron", "Wasserstein, costs")


# -------------------------------------------------------------------- engine


def engine(targets: Targets, quick: bool) -> None:
    """Events, which are answers of clients, a CPU second: with the simplex, then with every set."""
    others = [
        name for name, _ in client_sets.every_set(MANY) if name != "simplex"
    ]  # it comes first
    rows = []
    for name in ("simplex", *others):
        n = FEW if name in PROGRAMS else MANY
        method, data = started(dict(client_sets.every_set(n))[name], small_clients(n))
        rates = [round(events_a_second(method, data, first, quick)) for first in (1, 10, 100)]
        rows.append((name, n, *rates))
        print(*rows[-1], sep=" | ", flush=True)
        if name == "simplex":
            targets.need(
                rates[1] >= EVENTS, f"{rates[1]} events a CPU second >= {EVENTS} at S = 10"
            )
    measure.show("engine", ("set", "clients", "S = 1", "S = 10", "S = 100"), rows)


def small_clients(n: int) -> bf.Federation:
    """Clients of 20 rows each for a model of 210 numbers."""
    rng = np.random.default_rng(0)
    rule, X = rng.standard_normal((21, 10)), rng.standard_normal((n * 20, 21))
    X[:, -1] = 1
    y = (X @ rule + rng.gumbel(size=(n * 20, 10))).argmax(1)
    return bf.Federation.from_arrays(X, y, np.repeat(np.arange(n), 20))


def started(over_clients: Any, fed: bf.Federation) -> tuple[Any, bf.Federation]:
    """AsyncDRO for a set of weights, as ``solve`` would run it, and the data."""
    model, ridge = bf.Softmax(fit_intercept=False), bf.L2(0.01)
    problem = bf.Problem(bf.Multinomial(), model, over_clients=over_clients, regulariser=ridge)
    stated, data = problem.at(fed)
    return configure(bf.AsyncDRO(tol=0.0), stated, data, None, None, None, None), data


def events_a_second(method: Any, data: bf.Federation, first: int, quick: bool) -> float:
    """Answers a CPU second where the server goes on with ``first``; the quickest run counts.

    Sets whose projection is slow get fewer rounds, so that no run takes much longer than SHARE.
    """
    clock, best = bf.VirtualClock(wait=bf.First(first), keep_rows=10**9), np.inf
    clock.run(method, data, max_rounds=3)
    began = time.process_time()
    clock.run(method, data, max_rounds=13)
    rounds = round(min(max(13 * SHARE / (time.process_time() - began), 13), 300 if quick else 3000))
    for _ in range(1 if quick else REPEATS):
        began = time.process_time()
        clock.run(method, data, max_rounds=rounds)
        best = min(best, time.process_time() - began)
    return (data.n_clients + (rounds - 1) * first) / best


# -------------------------------------------------------------------- sets


def every_set(targets: Targets, quick: bool) -> None:
    for n in (10,) if quick else (10, 100):
        fed, rows, worst, far = client_sets.federation(n), [], 0.0, 0.0
        for name, over_clients in client_sets.every_set(n):
            exact = client_sets.exact(over_clients, fed)
            late = [client_sets.late(over_clients, fed, factor) for factor in (10, 50)]
            gap = exact.certificate.gap if exact.certificate.gap is not None else np.inf
            worst, far = max(worst, gap), max(far, *map(client_sets.gap, late))
            told = [
                text
                for run in late
                for text in (
                    f"{client_sets.gap(run):.1e}",
                    run.rounds,
                    round(run.history[-1]["time"]),
                )
            ]
            rows.append((name, f"{exact.certificate.value:.8f}", f"{gap:.1e}", exact.rounds, *told))
        columns = (
            "set",
            "optimum",
            "gap",
            "rounds",
            *("gap 10x", "rounds", "time", "gap 50x", "rounds", "time"),
        )
        print(f"\nN = {n}; gaps of AsyncDRO relative")
        measure.show(f"sets, N = {n}", columns, rows)
        targets.need(
            worst <= 1e-8,
            f"N = {n}, {len(rows)} sets: largest gap of MultiplierMethod {worst:.1e} <= 1e-8",
        )
        targets.need(
            far <= 1e-3,
            f"N = {n}, {len(rows)} sets: largest relative gap of AsyncDRO {far:.1e} <= 1e-3",
        )


PARTS = {"tables": async_tables.races, "engine": engine, "sets": every_set}

if __name__ == "__main__":
    chosen, quick = [a for a in sys.argv[1:] if not a.startswith("-")], "--quick" in sys.argv
    print(measure.machine("scikit-learn"))
    targets = Targets()
    for part in chosen or PARTS:
        PARTS[part](targets, quick)
    targets.finish()
