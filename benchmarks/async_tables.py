"""When an asynchronous and a synchronous method prove a gap of 1e-3 on ordinary tables.

Rows are parted among clients by their first feature with noise, so that clients are unlike; the
worst client's mean loss is minimised with L2(1e-2). A trip takes about one virtual second. Every
method runs as it comes, to a relative gap of 1e-3. The seconds are those of the proof; a method
that has none after ``LONGEST`` seconds is stopped. Tables of the data directory are added where it
is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import measure
import numpy as np
from sklearn import datasets

import bonafed as bf
from bonafed.data import load

LONGEST, TOL = 600.0, 1e-3
METHODS = {
    "AsyncBundle": bf.AsyncBundle(tol=TOL),
    "Bundle": bf.Bundle(tol=TOL),
    "AsyncDRO": bf.AsyncDRO(tol=TOL),
}
LOGISTIC = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(1e-2))
HINGE = bf.Problem(
    bf.Hinge(),
    over_samples=bf.WassersteinBall(1e-3, 1.0),
    over_clients=bf.Simplex(),
    regulariser=bf.L2(1e-2),
)
# name: problem, clients, factor of the straggler's delays, whether features are standardised
SETTINGS: dict[str, tuple[bf.Problem, int, float, bool]] = {
    "raw, 10x": (LOGISTIC, 10, 10.0, False),
    "raw, 50x": (LOGISTIC, 10, 50.0, False),
    "raw, nobody slow": (LOGISTIC, 10, 1.0, False),
    "standardised, 10x": (LOGISTIC, 10, 10.0, True),
    "standardised, nobody slow": (LOGISTIC, 10, 1.0, True),
    "raw, N = 100, 10x": (LOGISTIC, 100, 10.0, False),
    "raw, hinge, 1e-3 ball, 10x": (HINGE, 10, 10.0, False),
}


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, raw features, labels)."""
    here = {each.name for each in load.available() if each.present}
    for name in ("heart", "australian", "phoneme", "titanic", "breast_cancer_wisconsin"):
        if name in here:
            yield name, *getattr(load, name)()[:2]
    if "abalone" in here:
        X, y = load.abalone()[:2]
        yield "abalone", X, y > np.median(y)
    yield "wdbc", *datasets.load_breast_cancer(return_X_y=True)
    X, y = datasets.load_digits(return_X_y=True)
    yield "digits", X, y % 2


def parted(X: np.ndarray, y: np.ndarray, n: int, standardised: bool) -> bf.Federation:
    """The rows in the order of their first feature, with noise of its size, among n clients."""
    X = np.asarray(X, float)
    if standardised:
        X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    first = X[:, 0] + np.random.default_rng(0).normal(size=len(X)) * X[:, 0].std()
    place = np.argsort(np.argsort(first))
    names = np.array([f"c{k:03d}" for k in range(n)])
    return bf.Federation.from_arrays(X, y, names[place * n // len(X)])


def raced(problem: bf.Problem, fed: bf.Federation, slow: float) -> dict[str, Any]:
    """The solution of every method that takes the problem."""
    clock = bf.VirtualClock(stragglers={fed.clients[3]: slow}, max_time=LONGEST)
    field = METHODS if problem.loss.smooth else list(METHODS)[:2]
    return {name: bf.solve(problem, fed, algorithm=METHODS[name], engine=clock) for name in field}


def races(targets: measure.Targets, quick: bool) -> None:
    for setting, (problem, n, slow, standardised) in list(SETTINGS.items())[: 1 if quick else None]:
        rows, late = [], []
        for name, X, y in tables():
            if len(X) < 6 * n:
                continue
            runs = raced(problem, parted(X, y, n, standardised), slow)
            rows.append((name, *(shown(runs[method]) for method in runs)))
            ours, theirs = (proved(runs[method]) for method in list(runs)[:2])
            late += [] if ours <= theirs else [f"{name} {ours:.0f} to {theirs:.0f}"]
        columns = "table", *(f"{method}: s, messages" for method in runs)
        print(f"\n{setting}")
        measure.show(f"tables: {setting}", columns, rows)
        if slow > 1:
            text = f"{setting}: AsyncBundle proves 1e-3 no later than Bundle"
            targets.need(not late, f"{text} on {len(rows) - len(late)} of {len(rows)} tables")


def proved(run: Any) -> float:
    """The virtual time of the proof; infinite where there is none."""
    optimal = run.certificate.relative_gap <= TOL and run.outcome.stop is bf.Stop.OPTIMAL
    return run.history[-1]["time"] if optimal else np.inf


def shown(run: Any) -> str:
    answers = sum(row["answered"] for row in run.history)
    gap = "" if np.isfinite(proved(run)) else f", gap {run.certificate.relative_gap:.1e}"
    return f"{run.history[-1]['time']:.0f}, {2 * answers}{gap}"
