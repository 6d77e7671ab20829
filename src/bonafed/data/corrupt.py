"""Corrupted copies of a federation, for experiments on robustness.

What happens to a client's rows depends on (seed, its name) only. Turn 0 of its stream belongs to
`Federation.split`.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import Array, stream
from bonafed.client_names import ClientName
from bonafed.data.federation import Federation

Chosen: TypeAlias = Iterable[ClientName] | None  # names of clients; None: all
FLIP, NOISE = 1, 2  # turns of a client's stream


def flip_labels(
    federation: Federation, rate: float, *, seed: int = 0, clients: Chosen = None
) -> Federation:
    """The federation with a share ``rate`` of each client's labels (to the nearest row) replaced by
    another class, drawn evenly.

    ``clients``: the names concerned, default all. Needs labels, not numbers coded for a loss.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie in [0, 1], got {rate}: the share of labels that change.")
    classes = None if federation.classes is None else np.sort(federation.classes)
    labels = classes is not None and all(np.isin(y, classes).all() for y in federation.y)
    if classes is None or len(classes) < 2 or not labels:
        raise ValueError(
            "flip_labels needs targets that are labels of two classes or more. Declare classes=..."
        )

    def flip(name: ClientName, y: NDArray[Any]) -> NDArray[Any]:
        rng = stream(seed, name, FLIP)
        at, code = rng.permutation(len(y))[: round(rate * len(y))], np.searchsorted(classes, y)
        code[at] = (code[at] + rng.integers(1, len(classes), len(at))) % len(classes)
        return classes[code].astype(y.dtype, copy=False)

    chosen, pairs = _chosen(federation, clients), zip(federation.clients, federation.y, strict=True)
    return federation.with_targets([flip(c, t) if c in chosen else t for c, t in pairs])


def add_noise(
    federation: Federation,
    sd: ArrayLike,
    *,
    mean: ArrayLike = 0.0,
    seed: int = 0,
    clients: Chosen = None,
) -> Federation:
    """The federation with independent Gaussian noise on the features; ``sd`` and ``mean`` are
    numbers or (d,) arrays, in units of X.
    """
    low = np.min(np.asarray(sd, dtype=np.float64))
    if not low >= 0:
        raise ValueError(f"sd must be >= 0, got {low}: it is the standard deviation of the noise.")

    def noise(name: ClientName, X: Array) -> Array:
        drawn = stream(seed, name, NOISE).normal(size=X.shape)
        return X + (np.asarray(mean) + np.asarray(sd) * drawn)

    return _on_features(federation, noise, clients)


def drift(
    federation: Federation,
    *,
    scale: float = 1.0,
    offset: float = 0.0,
    columns: Iterable[str] | None = None,
    clients: Chosen = None,
) -> Federation:
    """The federation with calibration drift, as of an instrument out of tune: x' = scale x + offset
    on the named columns (default all).
    """
    names = list(federation.feature_names if columns is None else columns)
    if unknown := [name for name in names if name not in federation.feature_names]:
        raise ValueError(
            f"there is no feature {unknown[0]!r}; there are"
            f" {', '.join(federation.feature_names[:12])}, ..."
        )
    on = np.isin(federation.feature_names, names)
    return _on_features(federation, lambda _, X: np.where(on, scale * X + offset, X), clients)


def _chosen(federation: Federation, clients: Chosen) -> set[ClientName]:
    return set(federation.clients if clients is None else federation.restrict(clients).clients)


def _on_features(
    federation: Federation, change: Callable[[ClientName, Array], Array], clients: Chosen
) -> Federation:
    chosen = _chosen(federation, clients)
    pairs = [*zip(federation.clients, federation.X, strict=True)]
    sparse = [c for c, x in pairs if not isinstance(x, np.ndarray)]
    if chosen & set(sparse):
        raise ValueError(
            f"client {sparse[0]!r} has sparse rows, which this would fill. Make them dense first."
        )
    return federation.with_features([change(c, x) if c in chosen else x for c, x in pairs])
