"""Federations the benchmarks share: heterogeneous clients, each with its own feature means and its
own linear rule.
"""

from __future__ import annotations

import measure  # noqa: F401  first: it fixes the number of threads
import numpy as np

import bonafed as bf


def federation(
    loss, n_clients: int, n_features: int, rows: int, seed: int = 7, same_size: bool = False
):
    """Clients of about ``rows`` rows (exactly, with ``same_size``); labels, or real targets with
    heavy-tailed noise.
    """
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n_features)
    Xs, ys = [], []
    for _ in range(n_clients):
        m = rows if same_size else int(rng.integers(rows // 2, 2 * rows))
        X = 0.5 * rng.normal(size=(m, n_features)) + 0.3 * rng.normal(size=n_features)
        z = X @ (common + 0.5 * rng.normal(size=n_features))
        labels = loss.targets == "sign"
        noise = 0.3 * (rng.normal(size=m) if labels else rng.standard_t(3, size=m))
        Xs.append(X)
        ys.append(np.where(z + noise > 0, 1.0, -1.0) if labels else z + noise)
    return bf.Federation([f"c{i}" for i in range(n_clients)], Xs, ys)


def robust(
    loss, radius: float = 0.05, label_cost: float = 1.0, norm: str = "l1", p: float = 2.0, **more
) -> bf.Problem:
    """DRFL: a Wasserstein ball at every client, an lp ball round the uniform client weights."""
    return bf.Problem(
        loss,
        bf.Linear(fit_intercept=False),
        over_samples=bf.WassersteinBall(radius, label_cost, norm),
        over_clients=bf.LpBall(0.1, p),
        **more,
    )


def groups(n_groups: int, rows: int = 20_000, features: int = 20, seed: int = 0):
    """X, y, group: ``features`` columns, the last one the group (as dro's GroupDRO wants it),
    scaled to [-1, 1].
    """
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rows // n_groups)
    means, rules = (
        0.3 * rng.normal(size=(n_groups, features - 1)),
        0.5 * rng.normal(size=(n_groups, features)),
    )
    X = np.column_stack(
        [rng.normal(size=(rows, features - 1)) + means[group], np.linspace(-1, 1, n_groups)[group]]
    )
    score = (X * (rng.normal(size=features) + rules)[group]).sum(1) + rng.normal(size=rows)
    return X, np.where(score > 0, 1.0, -1.0), group
