"""Private Newton steps beside private gradient descent and AdaSSP, on tables of few features.

Three clients at random, 70 % of the rows to fit on, features mapped from their ranges to [-1, 1]
and rows to length 1; means of simulated noise over ``--seeds`` seeds (10). AdaSSP (Wang 2018,
Algorithm 1, restated here in NumPy) fits the labels -1 and 1 by least squares from one release of
X'X, of X'y and of the least eigenvalue; each client adds its noise, as in all other methods. Tables
of the data directory are added where it is set. One thread.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator

import measure
import numpy as np
from defaults import made
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

import bonafed as bf
from bonafed.data import load
from bonafed.data.schema import middles, unit_rows
from bonafed.privacy.accounting import noise_for
from bonafed.solution.solve import fit

CLIENTS, DELTA, SLACK = 3, 1e-6, 0.003
METHODS = {
    "PrivateNewton, 8 rounds": bf.PrivateNewton(bound=1.0, noise="simulation"),
    "PrivateNewton, 4 rounds": bf.PrivateNewton(max_rounds=4, bound=1.0, noise="simulation"),
    "PrivateSGD, 8 rounds": bf.PrivateSGD(max_rounds=8, bound=1.0, noise="simulation"),
    "PrivateSGD, 30 rounds": bf.PrivateSGD(max_rounds=30, bound=1.0, noise="simulation"),
    "PrivateSGD, 300 rounds": bf.PrivateSGD(max_rounds=300, bound=1.0, noise="simulation"),
}


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(name, features, labels -1 and 1)."""
    X, y = datasets.load_breast_cancer(return_X_y=True)
    yield "breast cancer, 569 x 30", X, 2 * y - 1
    for kind in ("normal", "correlated"):
        table = made(kind, 50, 2500, 8, X=kind)
        yield f"{kind}, 2500 x 8", table.X, 2 * table.y - 1
    here = {each.name for each in load.available() if each.present}
    if "phoneme" in here:
        X, y, _ = load.phoneme()
        yield "phoneme, 5404 x 5", X, 2 * (y == y[0]) - 1
    if "adult" in here:
        table, target, _ = load.adult()
        truth = np.asarray(table[target])
        rows = np.random.default_rng(0).permutation(len(truth))[:4000]
        columns = [np.asarray(table[name]) for name in table if name != target]
        numbers = [np.asarray(c, float) for c in columns if c.dtype.kind in "iuf"]
        groups = [c == value for c in columns if c.dtype.kind not in "iuf" for value in _few(c)]
        X = np.column_stack([*numbers, *groups]).astype(float)[rows]
        yield f"adult, 4000 x {X.shape[1]}", X, 2 * (truth[rows] == truth[0]) - 1


def _few(column: np.ndarray) -> list[object]:
    """The values that a fifth of the rows have, the commonest one left out."""
    values, count = np.unique(column.astype(str), return_counts=True)
    order = np.argsort(-count)
    return [values[k] for k in order[1:] if count[k] > 0.2 * len(column)]


def ada_ssp(
    X: list[np.ndarray], y: list[np.ndarray], epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """The coefficients by AdaSSP, each client noising its own sums: rows of length R, |y| <= 1."""
    D, R = X[0].shape[1], math.sqrt(2.0)
    # three releases of equal shares are one, with the noise of three rounds
    sd = noise_for(bf.Budget(epsilon, DELTA), 3) * math.sqrt(len(X))
    matrix = sum(x.T @ x for x in X)
    least = float(np.linalg.eigvalsh(matrix)[0]) + R**2 * sd * rng.normal() - 1.96 * sd * R**2
    noise = np.triu(rng.normal(size=(D, D)))
    matrix = matrix + R**2 * sd * (noise + np.triu(noise, 1).T)
    sums = sum(x.T @ t for x, t in zip(X, y, strict=True)) + R * sd * rng.normal(size=D)
    ridge = max(0.0, math.sqrt(D * math.log(2 * D**2 / 0.05)) * sd * R**2 - max(least, 0.0))
    return np.linalg.solve(matrix + ridge * np.eye(D), sums)


def compare(name: str, X: np.ndarray, y: np.ndarray, seeds: int, targets: measure.Targets) -> None:
    """Print the test errors of all methods on one table."""
    low, high = X.min(0), X.max(0)
    high = np.where(high > low, high, low + 1)
    X = unit_rows(X, *middles((low, high), X.shape[1]))
    rng = np.random.default_rng(7)
    order = rng.permutation(len(y))
    train, test = order[: int(0.7 * len(y))], order[int(0.7 * len(y)) :]
    groups = rng.integers(0, CLIENTS, len(train))
    fed = bf.Federation.from_arrays(X[train], y[train], groups)
    plain = LogisticRegression(C=1e4, max_iter=5000).fit(X[train], y[train])
    rows = [("no privacy", "", 100 * (1 - plain.score(X[test], y[test])), math.nan, math.nan)]
    for epsilon in (1.0, 2.0):
        budget = bf.Budget(epsilon, DELTA)
        problem = bf.Problem(
            bf.Logistic(),
            bf.Linear(fit_intercept=True),
            over_clients=bf.Mean("size"),
            regulariser=bf.L2(1e-4),
            privacy=budget,
        )
        mean = {}
        for label, method in METHODS.items():
            began = time.process_time()
            found = [
                np.mean(
                    np.where(
                        _scores(fit(problem, fed, algorithm=method, seed=seed).w, X[test]) > 0,
                        1,
                        -1,
                    )
                    != y[test]
                )
                for seed in range(seeds)
            ]
            cpu = (time.process_time() - began) / seeds
            mean[label] = float(np.mean(found))
            rows.append((label, epsilon, 100 * mean[label], 100 * float(np.std(found)), cpu))
        ones = [
            np.column_stack([X[train][groups == k], np.ones((groups == k).sum())])
            for k in range(CLIENTS)
        ]
        parts = [y[train][groups == k].astype(float) for k in range(CLIENTS)]
        found = [
            np.mean(
                np.where(
                    _scores(ada_ssp(ones, parts, epsilon, np.random.default_rng(seed)), X[test])
                    > 0,
                    1,
                    -1,
                )
                != y[test]
            )
            for seed in range(seeds)
        ]
        rows.append(
            (
                "AdaSSP, 1 round",
                epsilon,
                100 * float(np.mean(found)),
                100 * float(np.std(found)),
                math.nan,
            )
        )
        first, *_ = mean.values()
        best = min(float(np.mean(found)), mean["PrivateSGD, 8 rounds"])
        targets.need(
            first <= best + SLACK, f"{name}, epsilon {epsilon:g}: {first:.4f}, rivals {best:.4f}"
        )
    print(f"\n{name}\n")
    measure.show(name, ("method", "epsilon", "test error %", "sd over seeds", "CPU s a run"), rows)


def _scores(w: np.ndarray, X: np.ndarray) -> np.ndarray:
    return X @ w[:-1] + w[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="three seeds, no target")
    args = parser.parse_args()
    targets = measure.Targets()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of simulated noise
        for name, X, y in tables():
            compare(name, X, y, 3 if args.quick else args.seeds, targets)
    targets.finish()


if __name__ == "__main__":
    main()
