"""What the estimators with all their defaults give on tables of many kinds, beside scikit-learn's
plain models.

    python benchmarks/defaults.py [auc] [price] [--only NAME]

auc     the held-out AUC (R2 of a regressor) of every estimator on every table, beside
        LogisticRegression() or Ridge(), and whether each constant model was warned about
price   what robustness costs on clean rows, and what it gains under five shifts: the log loss of
        the worst client beside that of scikit-learn's model

Tables are made by seed, or come from scikit-learn, and with QUORATE_DATA set from its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from quorate.data import load

Array = NDArray[np.float64]
CLOSE = 0.03  # a held-out AUC or R2 this far below the plain model's counts as near it


@dataclass(frozen=True)
class Table:
    """Rows of several clients; ``kind`` is "two classes", "three classes" or "numbers"."""

    name: str
    X: Array
    y: NDArray
    groups: NDArray
    kind: str = "two classes"

    def split(self, seed: int = 0, test: float = 0.4) -> tuple[Table, Table]:
        """60 % of every client's rows to train on, the others to judge on, standardised as the
        rows to train on are.
        """
        rng = np.random.default_rng(seed)
        held = np.zeros(len(self.y), bool)
        for name in np.unique(self.groups):
            rows = rng.permutation(np.flatnonzero(self.groups == name))
            held[rows[: int(test * len(rows))]] = True
        mean, scale = self.X[~held].mean(0), self.X[~held].std(0)
        X = (self.X - mean) / np.where(scale > 0, scale, 1.0)
        return self._of(X, ~held), self._of(X, held)

    def _of(self, X: Array, rows: NDArray[np.bool_]) -> Table:
        return Table(self.name, X[rows], self.y[rows], self.groups[rows], self.kind)


# ---------------------------------------------------------------------------------------- tables


def features(rng: np.random.Generator, n: int, d: int, kind: str) -> Array:
    """(n, d) rows of one kind."""
    X = rng.standard_normal((n, d))
    if kind == "correlated":
        root = np.linalg.cholesky(0.95 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d))))
        return X @ root.T
    if kind == "heavy":
        return rng.standard_t(2.5, (n, d))
    if kind == "indicators":
        return (rng.uniform(0, 1.5, d) < X).astype(float)
    if kind == "copies":
        half = X[:, : d // 2]
        return np.hstack([half, half + 0.01 * X[:, d // 2 : 2 * (d // 2)]])
    if kind == "skewed":
        return np.exp(X)
    return X


def clients(rng: np.random.Generator, n: int, kind: str) -> NDArray[np.intp]:
    """(n,) the client of each row, of unequal sizes."""
    if kind == "tiny":
        sizes = rng.integers(1, 16, n)
        return np.repeat(np.arange(n), sizes)[:n]
    if kind == "one large":
        return np.where(rng.random(n) < 0.85, 0, rng.integers(1, 10, n))
    share = rng.dirichlet(np.full(8, 2.0))
    return rng.choice(8, n, p=share)


def made(
    name: str,
    seed: int,
    n: int = 800,
    d: int = 10,
    rate: float = 0.5,
    signal: float = 2.0,
    flips: float = 0.0,
    X: str = "normal",
    of: str = "unequal",
    truth: str = "linear",
) -> Table:
    """A table of two classes: logistic in the features, ``rate`` of them positive."""
    rng = np.random.default_rng(seed)
    rows, groups = features(rng, n, d, X), clients(rng, n, of)
    w = rng.standard_normal(d) * (rng.random(d) < 0.5 if d < 50 else np.arange(d) < 5)
    w[0] = 1.0
    if truth == "shifted clients":
        rows = rows + rng.standard_normal((groups.max() + 1, d))[groups]
    score = rows @ w
    if truth == "other coefficients":
        own = w + 0.7 * rng.standard_normal((groups.max() + 1, d))
        score = (rows * own[groups]).sum(1)
    elif truth == "squares":
        score = score + 0.5 * (rows[:, 0] ** 2 - 1)
    score = signal * (score - score.mean()) / score.std()
    score = score if truth == "separable" else score + rng.logistic(size=n)
    score = rng.standard_normal(n) if truth == "noise" else score
    y = score > np.quantile(score, 1 - rate)
    y = np.where(rng.random(n) < flips, ~y, y)
    if truth == "one-class clients":
        y = np.where(groups < 2, False, np.where(groups == 2, True, y))
    return Table(name, rows, y.astype(int), groups)


MADE: list[Callable[[], Table]] = [
    partial(made, "balanced", 1),
    partial(made, "60/40", 2, 2000, 20, 0.4, 1.0),
    partial(made, "10 % positives", 3, 2000, 20, 0.1),
    partial(made, "5 % positives", 4, 2000, 10, 0.05),
    partial(made, "2 % positives", 5, 4000, 10, 0.02),
    partial(made, "5 % positives, weak", 6, 1500, 10, 0.05, 1.0),
    partial(made, "10 % of labels flipped", 7, flips=0.1),
    partial(made, "25 % of labels flipped", 8, 1500, flips=0.25),
    partial(made, "correlated", 9, 800, 15, X="correlated"),
    partial(made, "correlated, 10 % positives", 10, 1500, 15, 0.1, X="correlated"),
    partial(made, "heavy tails", 11, X="heavy"),
    partial(made, "skewed features", 12, X="skewed", rate=0.3),
    partial(made, "indicators", 13, 1000, 12, X="indicators"),
    partial(made, "near copies", 14, X="copies"),
    partial(made, "60 features, 500 rows", 15, 500, 60),
    partial(made, "100 features, 5 of use", 16, 800, 100, signal=3.0),
    partial(made, "tiny clients", 17, 600, 8, of="tiny"),
    partial(made, "tiny clients, 15 % positives", 18, 800, 8, 0.15, of="tiny"),
    partial(made, "one large client", 19, 1000, of="one large"),
    partial(made, "one large client, 10 % positives", 20, 1500, 10, 0.1, of="one large"),
    partial(made, "one-class clients", 21, 1000, truth="one-class clients"),
    partial(made, "shifted clients", 22, 1000, truth="shifted clients"),
    partial(made, "other coefficients", 23, 1000, truth="other coefficients"),
    partial(made, "separable", 24, 500, 6, truth="separable"),
    partial(made, "squares left out", 25, 1000, truth="squares"),
    partial(made, "pure noise", 26, 3000, 8, truth="noise"),
]


def along(X: Array, seed: int, n_clients: int = 6) -> NDArray[np.intp]:
    """Clients along the first principal axis of the features, blurred."""
    rng = np.random.default_rng(seed)
    scale = X.std(0)
    Z = (X - X.mean(0)) / np.where(scale > 0, scale, 1.0)
    axis = Z @ np.linalg.svd(Z, full_matrices=False)[2][0]
    blurred = axis + axis.std() * rng.standard_normal(len(X))
    return np.searchsorted(np.quantile(blurred, np.arange(1, n_clients) / n_clients), blurred)


def shipped() -> Iterator[Table]:
    """Tables of two classes that scikit-learn ships."""
    X, y = datasets.load_breast_cancer(return_X_y=True)
    yield Table("breast cancer", X, y, along(X, 0))
    rng = np.random.default_rng(1)
    yield Table("breast cancer, clients at random", X, y, rng.integers(0, 12, len(y)))
    X, y = datasets.load_digits(return_X_y=True)
    yield Table("digits, odd or even", X, y % 2, along(X, 2))
    yield Table("digits, 8 or not", X, (y == 8).astype(int), along(X, 3))
    X, y = datasets.load_wine(return_X_y=True)
    yield Table("wine, one class or not", X, (y == 1).astype(int), along(X, 4, 3))


def on_disk() -> Iterator[Table]:
    """Tables of two classes in the data directory, where it is set."""
    here = {each.name for each in load.available() if each.present}
    for k, name in enumerate(("breast_cancer_wisconsin", "phoneme", "titanic", "heart")):
        if name in here:
            X, y, _ = getattr(load, name)()
            rows = np.random.default_rng(k).permutation(len(y))[:3000]
            yield Table(f"{name} (data directory)", X[rows], y[rows], along(X[rows], k))


def two_classes() -> Iterator[Table]:
    """All tables of two classes."""
    for make in MADE:
        yield make()
    yield from shipped()
    yield from on_disk()
