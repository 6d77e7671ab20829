"""Generated problems: heterogeneous clients, every valid loss x norm x support, the weight ball's p
cycled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import bonafed as bf

LOSSES = (
    bf.Hinge(),
    bf.SmoothHinge(),
    bf.Logistic(),
    bf.Huber(0.5),
    bf.EpsilonInsensitive(0.1),
    bf.Quantile(0.3),
    bf.Absolute(),
)
# models without intercepts, whose dimension is that of the rows
PLAIN, SOFTMAX = bf.Linear(fit_intercept=False), bf.Softmax(fit_intercept=False)
BOXES = {"[-1,1]": (-1.0, 1.0), "[0,1]": (0.0, 1.0), "box": (-0.7, 1.2)}


@dataclass(frozen=True)
class Case:
    """A problem, its data and a name for the test's id."""

    name: str
    problem: bf.Problem
    fed: bf.Federation
    bounded: bool  # a lower bound is provable: a regulariser, or a radius on all of R^n


def federation(
    seed: int,
    n_clients: int = 3,
    n_features: int = 8,
    rows: int = 30,
    targets: str = "sign",
    box=None,
):
    """Clients with their own means and their own linear rule; noise of Student's t for
    regression.
    """
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n_features)
    Xs, ys = [], []
    for _ in range(n_clients):
        m = int(rng.integers(rows // 2, 2 * rows))
        X = 0.5 * rng.normal(size=(m, n_features)) + 0.3 * rng.normal(size=n_features)
        if box is not None:
            X = np.clip(X, *box)
        z = X @ (common + 0.5 * rng.normal(size=n_features))
        noise = 0.3 * (rng.normal(size=m) if targets == "sign" else rng.standard_t(3, size=m))
        Xs.append(X)
        ys.append(np.where(z + noise > 0, 1.0, -1.0) if targets == "sign" else z + noise)
    return bf.Federation([f"c{i}" for i in range(n_clients)], Xs, ys)


def support_of(name: str, n_features: int):
    if name == "R^n":
        return None
    if name == "polytope":  # the cube [-1, 1]^n with one corner cut off
        C = np.vstack([np.eye(n_features), -np.eye(n_features), np.ones((1, n_features))])
        return bf.PolytopeSupport(C, np.concatenate([np.ones(2 * n_features), [0.9 * n_features]]))
    return bf.BoxSupport(*BOXES[name])


def cases() -> Iterator[Case]:
    """90 problems: loss x norm x support x (on R^n) two label costs; p, intercept and regulariser
    alternate.
    """
    exponents = itertools.cycle([1.0, 2.0, math.inf, 1.7])
    count = 0
    for loss, norm, support in itertools.product(
        LOSSES, ("l1", "l2", "linf"), ("R^n", *BOXES, "polytope")
    ):
        if support != "R^n" and loss.pieces is None:
            continue
        for label_cost in (0.5, 5.0) if support == "R^n" else (1.0,):
            count += 1
            p, n = next(exponents), 8 if support == "R^n" else 4
            box = BOXES.get(support, (-1.0, 1.0) if support == "polytope" else None)
            fed = federation(count, 3, n, 30 if support == "R^n" else 20, loss.targets, box)
            regulariser = bf.Zero() if count % 3 else bf.L2(1e-3)
            problem = bf.Problem(
                loss,
                bf.Linear(fit_intercept=bool(count % 2)),
                over_samples=bf.WassersteinBall(0.05, label_cost, norm, support_of(support, n)),
                over_clients=bf.LpBall(0.1, p),
                regulariser=regulariser,
            )
            kinds = type(loss).__name__, type(regulariser).__name__
            name = f"{kinds[0]}-{norm}-{support}-p{p:g}-kappa{label_cost:g}-{kinds[1]}"
            yield Case(name, problem, fed, support == "R^n" or isinstance(regulariser, bf.L2))


CASES = list(cases())
