"""Every set of client weights on one kind of problem, for tests and benchmarks.

Logistic regression with unlike clients and the regulariser 0.005 ||w||^2, solved by the synchronous
reference, and by ``AsyncDRO`` at its defaults with one client (position 3) slower than the others.
Both end with a proven gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext


def federation(clients: int, seed: int = 0) -> bf.Federation:
    """Clients of 15 to 59 rows of six normal features who label by different linear rules."""
    rng, Xs, ys = np.random.default_rng(seed), [], []
    base = rng.standard_normal(6)
    for _ in range(clients):
        rows = int(rng.integers(15, 60))
        X = rng.standard_normal((rows, 6)) + 0.5 * rng.standard_normal(6)
        rule = base + 0.2 * rng.standard_normal(6)
        Xs.append(X)
        ys.append(np.where(X @ rule + 0.5 * rng.standard_normal(rows) > 0, 1, -1))
    names = tuple(f"client {i}" for i in range(clients))
    return bf.Federation(names, tuple(Xs), tuple(ys), classes=np.array([-1, 1]))


def every_set(n: int) -> Iterator[tuple[str, Any]]:
    """A set of each kind for n clients, with uneven priors and bounds where it takes them."""
    rng = np.random.default_rng(n)
    prior = rng.dirichlet(np.full(n, 5.0))
    spread = rng.standard_normal((n, n)) / np.sqrt(n)
    yield "mean", bf.Mean(prior)
    yield "simplex", bf.Simplex()
    yield "lp ball, p = 1", bf.LpBall(0.5, 1, prior)
    yield "lp ball, p = 2", bf.LpBall(0.3, 2, prior)
    yield "superquantile", bf.Superquantile(0.3, prior)
    yield "top k", bf.TopK(max(n // 5, 1))
    yield "extremile", bf.Extremile(2.0)
    yield "exponential spectral", bf.ExponentialSpectral(2.0)
    yield "box", bf.Box(prior / 3, 3 * prior)
    yield "CD-norm", bf.CDNorm(2.0, prior * rng.uniform(0.2, 1.5, n), prior)
    yield "ellipsoid, diagonal", bf.Ellipsoid(prior, 0.3, prior)
    yield "ellipsoid, full", bf.Ellipsoid((spread @ spread.T + np.eye(n)) / n, 0.3, prior)
    rows = np.vstack([rng.uniform(0, 1, (3, n)), np.eye(n)])
    yield "polyhedron", bf.Polyhedron(rows, rows @ prior + np.repeat([0.02, 3 / n], [3, n]))
    yield "KL ball", bf.KLBall(0.3, prior)
    yield "chi-square ball", bf.ChiSquareBall(0.5, prior)
    yield "total variation ball", bf.TotalVariationBall(0.3, prior)
    yield "Wasserstein, positions", bf.WassersteinOverClients(0.1 * n, "index", prior)
    costs = np.abs(np.subtract.outer(prior, prior)) * n
    yield "Wasserstein, costs", bf.WassersteinOverClients(0.1, costs, prior)
    yield "custom set", bf.OwnSet(_half_worst)


def _half_worst(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half of the weight to the worst client, the rest to all alike: a custom set.

    It is known by its maximiser only.
    """
    n = len(losses)
    return np.full(n, 0.5 / n) + 0.5 * (np.arange(n) == np.argmax(losses))


def stated(over_clients: Any) -> bf.Problem:
    """The problem with a set of client weights."""
    model, ridge = bf.Linear(fit_intercept=False), bf.L2(0.01)
    return bf.Problem(bf.Logistic(), model, over_clients=over_clients, regulariser=ridge)


def exact(over_clients: Any, fed: bf.Federation) -> bf.Solution:
    """The solution by ``MultiplierMethod`` at its defaults."""
    return ext.fit(stated(over_clients), fed, algorithm=bf.MultiplierMethod())


def late(over_clients: Any, fed: bf.Federation, factor: float, seed: int = 0) -> bf.Solution:
    """The solution by ``AsyncDRO`` at its defaults, on the virtual clock."""
    clock = bf.VirtualClock(stragglers={fed.names[3]: factor}, wait=bf.First(1), keep_rows=1000)
    algorithm = bf.AsyncDRO(max_rounds=300_000)
    return ext.fit(stated(over_clients), fed, algorithm=algorithm, engine=clock, seed=seed)


def gap(solution: bf.Solution) -> float:
    """The proven relative gap; infinite where none is proved."""
    found = solution.certificate.relative_gap
    return np.inf if found is None else found
