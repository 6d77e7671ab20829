"""Set-ups in which asynchronous methods race: noisy digits, unlike clients, slow clients.

    A   10 clients, one class each, all weightings; one client 10 times slower
    B   the same, one client 50 times slower
    C  100 clients, classes shared by Dirichlet(0.2), no weight above 0.05; 5 % of the clients 10
    times slower

Rows are the pixels over 16 plus normal noise of deviation 0.6, their 20 leading principal
components, and a constant. The model is softmax regression (210 numbers) with 0.005 ||w||^2.
``digits_of(seed)`` and the slow clients are the same in every run with one seed; the seed of the
delays is the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.data import load
from bonafed.extending import Array

NOISE, COMPONENTS, RIDGE = 0.6, 20, 0.01
LEAST = 3  # rows of a client
SLOW_OF_TEN = 3  # the position of the straggler in A and B


@dataclass(frozen=True)
class SetUp:
    """A problem, its clients, and how much slower some of them are."""

    name: str
    problem: bf.Problem
    fed: bf.Federation
    slow: Mapping[str, float] = field(default_factory=dict)

    def clock(
        self, wait: ext.Waiting | None = None, max_time: float | None = None, keep_rows: int = 10**9
    ) -> bf.VirtualClock:
        """A virtual clock with the slow clients; parameters as in ``VirtualClock``."""
        wait = wait or bf.First(1)
        return bf.VirtualClock(
            stragglers=self.slow, wait=wait, max_time=max_time, keep_rows=keep_rows
        )


def digits_of(seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Noisy digits (1797, ``COMPONENTS`` + 1) and their classes."""
    X, y = digits()
    X += NOISE * np.random.default_rng(seed).standard_normal(X.shape)
    X -= X.mean(0)
    axes = np.linalg.svd(X, full_matrices=False)[2][:COMPONENTS]
    return np.column_stack([X @ axes.T, np.ones(len(X))]), y


def digits() -> tuple[Array, NDArray[np.int64]]:
    """Scikit-learn's digits: the pixels over 16, (1797, 64), and the classes."""
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    return np.asarray(pixels, float) / 16, np.asarray(y, np.int64)


def stated(over_clients: ext.Risk, predictor: Any | None = None) -> bf.Problem:
    """The problem of all set-ups, with any set of client weights and any model."""
    model = predictor or bf.Softmax(intercepts=False)
    risk: Any = over_clients
    return bf.Problem(bf.Multinomial(), model, over_clients=risk, regulariser=bf.L2(RIDGE))


def a(seed: int = 0, factor: float = 10.0, name: str = "A") -> SetUp:
    """Set-up A: client "digit c" holds the rows of class c; "digit 3" is slow."""
    X, y = digits_of(seed)
    fed = bf.Federation.from_arrays(X, y, [f"digit {c}" for c in y])
    return SetUp(name, stated(bf.Simplex()), fed, {f"digit {SLOW_OF_TEN}": factor})


def b(seed: int = 0) -> SetUp:
    """Set-up B: as A, but "digit 3" is 50 times slower."""
    return a(seed, 50.0, "B")


def c(
    seed: int = 0, clients: int = 100, most: float = 0.05, slow: float = 0.05, factor: float = 10.0
) -> SetUp:
    """Set-up C: ``most`` is the largest weight, ``slow`` the share of stragglers.

    The stragglers are drawn with the same seed.
    """
    X, y = digits_of(seed)
    fed = bf.Federation.from_arrays(X, y, shared(y, clients, 0.2, seed), classes=np.arange(10))
    rng = np.random.default_rng([seed, clients])
    late = sorted(rng.choice(clients, max(1, round(slow * clients)), replace=False).tolist())
    risk = bf.Superquantile(1 / fed.n_clients / most)
    return SetUp("C", stated(risk), fed, {fed.names[i]: factor for i in late})


def shared(y: NDArray[np.int64], clients: int, alpha: float, seed: int) -> NDArray[Any]:
    """Each class dealt to clients by a Dirichlet draw; returns the clients' names of the rows (n,).

    A client with fewer than three rows takes the missing ones from the largest client.
    """
    rng, owner = np.random.default_rng([seed, clients, 7]), np.empty(len(y), np.int64)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        owner[rows] = rng.choice(clients, len(rows), p=rng.dirichlet(np.full(clients, alpha)))
    while (sizes := np.bincount(owner, minlength=clients)).min() < LEAST:
        owner[np.flatnonzero(owner == sizes.argmax())[-1]] = sizes.argmin()
    return np.array([f"client {i}" for i in range(clients)])[owner]


def workers(clients: int = 1000, slow: int = 5, factor: float = 10.0, seed: int = 0) -> SetUp:
    """MNIST's 60,000 training images dealt to workers, some of them slow, for softmax regression.

    The images are sorted by class and cut into two runs for every worker: 1,000 workers hold 60
    images each, of one or two classes. The client weights are all of the simplex.
    """
    images = load.mnist("train")
    order = np.argsort(images.y, kind="stable")
    rng, half = np.random.default_rng(seed), len(order) // (2 * clients)
    runs = rng.permutation(2 * clients)
    owner = np.empty(len(order), np.int64)
    owner[order] = (runs % clients)[np.minimum(np.arange(len(order)) // half, 2 * clients - 1)]
    names = np.array([f"worker {i}" for i in range(clients)])
    fed = bf.Federation.from_arrays(images.X, images.y, names[owner])
    late = sorted(rng.choice(clients, slow, replace=False).tolist())
    return SetUp("MNIST", stated(bf.Simplex()), fed, {f"worker {i}": factor for i in late})


def halves(setup: SetUp, share: float = 0.3, seed: int = 0) -> tuple[SetUp, bf.Federation]:
    """The set-up with a ``share`` of every client's rows held out, and the federation of these.

    At least one row of every client is held out.
    """
    train, test = [], []
    for i, (name, rows) in enumerate(zip(setup.fed.clients, setup.fed.sizes.tolist(), strict=True)):
        order = ext.stream(seed, name, 0).permutation(rows)
        cut = min(max(1, round(share * rows)), rows - 1)
        test.append((i, order[:cut]))
        train.append((i, order[cut:]))
    return replace(setup, fed=setup.fed._pick(train)), setup.fed._pick(test)
