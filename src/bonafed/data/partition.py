"""Which client each row belongs to: arrays of labels, to be used as ``groups`` of
`Federation.from_arrays`.

Every function returns (n,) labels; a partition that leaves a client without rows is an error, not a
smaller federation.
"""

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import stream
from bonafed.data import validation as check

Labels = NDArray[Any]
Sizes: TypeAlias = Sequence[int] | None  # of the clients; None: drawn


def by_column(values: Collection[object]) -> Labels:
    """One client per distinct value of a column, as text."""
    names, picks = check.grouped(values, len(values))
    labels = np.empty(len(values), dtype=object)
    for name, pick in zip(names, picks, strict=True):
        labels[pick] = str(name)
    return labels.astype(str)


def iid(n: int, n_clients: int, seed: int = 0) -> Labels:
    """Rows dealt at random to clients of equal size (up to one row)."""
    return _nobody_empty(_random(seed).permutation(_rows(n)) % _clients(n_clients, n), n_clients)


def by_size(
    n: int, sizes: Sizes = None, *, n_clients: int = 10, sigma: float = 1.0, seed: int = 0
) -> Labels:
    """Rows dealt at random to clients of these sizes, which sum to n.

    Without ``sizes``: shares are lognormal with parameter ``sigma`` (0: equal), and every client
    has at least one row.
    """
    rng = _random(seed)
    if sizes is None:
        if not 0 <= sigma < np.inf:
            raise ValueError(
                f"sigma must be a number >= 0, got {sigma}: 0 gives equal sizes, 1 very unequal"
                " ones."
            )
        shares = np.exp(sigma * rng.normal(size=_clients(n_clients, n)))
        counts = 1 + _whole((n - n_clients) * shares / shares.sum(), n - n_clients)
    else:
        counts = np.asarray(sizes)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or (counts < 1).any() or counts.sum() != n:
        raise ValueError(
            f"sizes must be whole numbers >= 1 that sum to the {n} rows, got {list(counts)[:10]}."
        )
    return rng.permutation(np.repeat(np.arange(len(counts)), counts))


def _whole(parts: NDArray[Any], total: int) -> NDArray[np.intp]:
    """Whole numbers nearest to ``parts`` that sum to ``total``: the largest remainders are rounded
    up.
    """
    floors = np.floor(parts).astype(np.intp)
    floors[np.argsort(floors - parts, kind="stable")[: total - floors.sum()]] += 1
    return floors


def by_label(y: ArrayLike, n_clients: int, classes_per_client: int = 1, seed: int = 0) -> Labels:
    """Clients that hold ``classes_per_client`` classes each; the rows of a class are shared by the
    clients holding it.

    Classes are dealt in a random order, round robin, so each is held by nearly as many clients.
    """
    y = np.asarray(y)
    classes, code = np.unique(y, return_inverse=True)
    _clients(n_clients, len(y))
    if not 1 <= classes_per_client <= len(classes) <= n_clients * classes_per_client:
        raise ValueError(
            f"classes_per_client must lie in [1, {len(classes)}] and n_clients * classes_per_client"
            f" must reach the {len(classes)} classes, got {classes_per_client} for {n_clients}"
            " clients: some rows would have no owner."
        )
    rng = _random(seed)
    held = rng.permutation(len(classes))[np.arange(n_clients * classes_per_client) % len(classes)]
    labels = np.empty(len(y), dtype=np.intp)
    for c in range(len(classes)):
        owners = np.flatnonzero(held == c) // classes_per_client
        rows = rng.permutation(np.flatnonzero(code == c))
        labels[rows] = owners[np.arange(len(rows)) * len(owners) // len(rows)]
    return _nobody_empty(labels, n_clients)


def dirichlet(y: ArrayLike, n_clients: int, alpha: float, seed: int = 0) -> Labels:
    """Rows dealt class by class, in shares drawn from a symmetric Dirichlet(alpha).

    alpha -> inf: alike clients; alpha -> 0: each class at one client (Hsu, Qi, Brown 2019, with the
    roles of classes and clients as in Yurochkin et al. 2019).
    """
    if not 0 < alpha < np.inf:
        raise ValueError(
            f"alpha must be a positive number, got {alpha}: small for unlike clients, large for"
            " alike ones."
        )
    y = np.asarray(y)
    _clients(n_clients, len(y))
    rng = _random(seed)
    labels = np.empty(len(y), dtype=np.intp)
    for c in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == c))
        shares = rng.dirichlet(np.full(n_clients, float(alpha)))
        counts = _whole(shares / shares.sum() * len(rows), len(rows))
        labels[rows] = np.repeat(np.arange(n_clients), counts)
    return _nobody_empty(labels, n_clients)


def by_feature(score: ArrayLike, shares: ArrayLike, mix: float = 0.5, seed: int = 0) -> Labels:
    """Bands of a score, so that the distribution of the features differs between clients.

    Rows are sorted by ``score + mix * sd(score) * noise`` and cut into bands that hold these shares
    of the rows (they sum to 1). mix = 0: sharp bands; large: nearly iid.
    """
    score, q = np.asarray(score, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    if score.ndim != 1 or not np.isfinite(score).all():
        raise ValueError(f"score must be one finite number for each row, got shape {score.shape}.")
    if q.ndim != 1 or not (q > 0).all() or not abs(q.sum() - 1) <= 1e-9:
        raise ValueError(f"shares must be positive and sum to 1, got {q.tolist()}.")
    if not 0 <= mix < np.inf:
        raise ValueError(f"mix must be a number >= 0, got {mix}.")
    noisy = score + mix * score.std() * _random(seed).normal(size=len(score))
    labels = np.empty(len(score), dtype=np.intp)
    sizes = _whole(q * len(score), len(score))
    labels[np.argsort(noisy, kind="stable")] = np.repeat(np.arange(len(q)), sizes)
    return _nobody_empty(labels, len(q))


def hospitals(X: ArrayLike, names: Sequence[str], mix: float = 1.5, seed: int = 0) -> Labels:
    """Named hospitals of unequal size with different patients: bands of the first principal
    component of X.

    The features are standardised first; each hospital has 4/5 of the rows of the one named before
    it.
    """
    X = np.asarray(X, dtype=np.float64)
    spread = X.std(0)
    Z = (X - X.mean(0)) / np.where(spread > 0, spread, 1.0)
    _, _, axes = np.linalg.svd(Z, full_matrices=False)
    # the sign of a singular vector is arbitrary
    axis = axes[0] * np.sign(axes[0][np.abs(axes[0]).argmax()])
    shares = 0.8 ** np.arange(len(names))
    return np.asarray(names)[by_feature(Z @ axis, shares / shares.sum(), mix, seed)]


def _random(seed: int) -> np.random.Generator:
    # not default_rng(seed), with which the data may have been drawn
    return stream(seed, "partition", 0)


def _rows(n: int) -> int:
    if n < 1:
        raise ValueError(f"there are {n} rows to divide: at least one is needed.")
    return n


def _clients(n_clients: int, n: int) -> int:
    if not 1 <= n_clients <= _rows(n):
        raise ValueError(
            f"n_clients must lie in [1, {n}] for {n} rows, got {n_clients}: every client needs a"
            " row."
        )
    return n_clients


def _nobody_empty(labels: Labels, n_clients: int) -> Labels:
    if len(empty := np.setdiff1d(np.arange(n_clients), labels)):
        raise ValueError(
            f"this partition leaves {check.listed(empty, 'client')} without rows. Use fewer"
            " clients, another seed, or a less extreme parameter (dirichlet: a larger alpha)."
        )
    return labels
