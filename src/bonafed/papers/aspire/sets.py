"""Every set of client weights on one kind of problem: logistic regression with unlike clients.

Client j has 15 to 59 rows x of 6 normal features, shifted, and labels sign(x'(w + 0.2 u_j) + 0.5
noise); the regulariser is 0.005 ||w||^2. Two solutions of each problem are compared: that of the
synchronous reference, and that of ``AsyncDRO`` at its defaults with one client (position 3) slower
than the others. Both end with a proven gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.papers.aspire.setups import RIDGE, SetUp

FEATURES = 6


def federation(clients: int, seed: int = 0) -> bf.Federation:
    """A federation whose clients label by different linear rules."""
    rng, Xs, ys = np.random.default_rng(seed), [], []
    base = rng.standard_normal(FEATURES)
    for _ in range(clients):
        rows = int(rng.integers(15, 60))
        X = rng.standard_normal((rows, FEATURES)) + 0.5 * rng.standard_normal(FEATURES)
        rule = base + 0.2 * rng.standard_normal(FEATURES)
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
    yield "custom set", bf.OwnSet(_HalfWorst())


class _HalfWorst:
    """Half of the weight to the worst client, the rest to all alike: a custom set.

    It is known by its maximiser only.
    """

    def __call__(self, losses: np.ndarray) -> np.ndarray:
        weights = np.full(len(losses), 0.5 / len(losses))
        weights[np.argmax(losses)] += 0.5
        return weights


def setup(name: str, over_clients: ext.Risk, fed: bf.Federation, factor: float) -> SetUp:
    """One problem with a straggler."""
    risk: Any = over_clients
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(intercept=False), over_clients=risk, regulariser=bf.L2(RIDGE)
    )
    return SetUp(name, problem, fed, {fed.names[3]: factor})


@dataclass(frozen=True)
class Solved:
    """The numbers of a certified run."""

    value: float
    gap: float  # absolute; infinite where none is proved
    relative: float
    rounds: int
    time: float  # virtual seconds; nan: in process
    stop: str


def reference(case: SetUp) -> Solved:
    """The solution by ``MultiplierMethod`` at its defaults."""
    return _solved(ext.fit(case.problem, case.fed, algorithm=bf.MultiplierMethod()))


def asynchronous(case: SetUp, wait: ext.Waiting | None = None, seed: int = 0) -> Solved:
    """The solution by ``AsyncDRO`` at its defaults, on the virtual clock."""
    clock, algorithm = case.clock(wait, keep_rows=1000), bf.AsyncDRO(max_rounds=300_000)
    return _solved(ext.fit(case.problem, case.fed, algorithm=algorithm, engine=clock, seed=seed))


def _solved(solution: bf.Solution) -> Solved:
    proof, last = solution.certificate, solution.history[-1]
    return Solved(
        value=proof.value,
        gap=np.inf if proof.gap is None else proof.gap,
        relative=np.inf if proof.relative_gap is None else proof.relative_gap,
        rounds=solution.rounds,
        time=last.get("time", np.nan),
        stop=solution.outcome.stop.value,
    )
