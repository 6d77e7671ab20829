"""The data sets of the paper's section 4, and generated ones of the same shapes.

MNIST: 10 clients with 6,000 images each, in the order of the file. FEMNIST: the public part of the
sample, 114 of its 195 training writers. Pixels in [0, 1]. ``shaped`` makes rows of any sizes, a
fifth of the entries not zero; ``ragged`` are sizes like those of all 195 writers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
from bonafed.data import load
from bonafed.extending import Array

CLIENTS, ROWS = 10, 6000
# clients, rows in all, their mean, standard deviation and largest number
FEMNIST = (195, 36_708, 188.0, 89.0, 550)


class Split(NamedTuple):
    """The clients' training rows, and test rows that no client holds."""

    fed: bf.Federation
    X: Array  # (n, d)
    y: NDArray[np.intp]  # (n,)

    def error(self, w: Array) -> float:
        """The share of the test rows that the model w (D,) gets wrong."""
        return float(((self.X @ w.reshape(self.X.shape[1], -1)).argmax(1) != self.y).mean())


def mnist(rows: int = ROWS, single: bool = True) -> Split:
    """The first ``rows`` of every client's images, and all 10,000 test images."""
    train, test = load.mnist("train"), load.mnist("test")
    parts = [slice(ROWS * i, ROWS * i + rows) for i in range(CLIENTS)]
    names = tuple(f"client {i}" for i in range(CLIENTS))
    Xs, ys = tuple(train.X[a] for a in parts), tuple(train.y[a] for a in parts)
    fed = bf.Federation(names, Xs, ys, classes=np.arange(10))
    return Split(fed.single() if single else fed, test.X, np.asarray(test.y, np.intp))


def femnist() -> Split:
    """114 writers, single precision, and the test images of all 195."""
    test = load.femnist("test")
    return Split(
        load.femnist("train").single(),
        np.concatenate(test.X),
        np.concatenate(test.y).astype(np.intp),
    )


def shaped(
    sizes: NDArray[np.int64], features: int = 784, classes: int = 10, seed: int = 0
) -> bf.Federation:
    """Generated images: labels of a linear rule, single precision where ``.single()`` is called."""
    rng = np.random.default_rng(seed)
    rule, Xs, ys = rng.normal(size=(features, classes)), [], []
    for m in sizes:
        X = rng.random((m, features)) * (rng.random((m, features)) < 0.2)
        Xs.append(X)
        ys.append((X @ rule + rng.gumbel(size=(m, classes))).argmax(1))
    names = tuple(f"client {i}" for i in range(len(sizes)))
    return bf.Federation(names, tuple(Xs), tuple(ys), classes=np.arange(classes))


def ragged(seed: int = 0) -> NDArray[np.int64]:
    """Sizes like those of FEMNIST's clients: the same number, sum, mean and largest size.

    Their deviation is about the same.
    """
    clients, rows, mean, sd, most = FEMNIST
    spread = np.log1p((sd / mean) ** 2)
    drawn = np.random.default_rng(seed).lognormal(
        np.log(mean) - spread / 2, np.sqrt(spread), clients
    )
    sizes = np.clip(drawn, 18, most).astype(np.int64)
    sizes[sizes.argmax()] = most
    others = np.flatnonzero(sizes < most)
    while (off := rows - int(sizes.sum())) != 0:
        at = others[: abs(off)]
        sizes[at] = np.clip(sizes[at] + np.sign(off), 18, most - 1)
    return sizes
