"""Ragged clients, and the gradients of their rows by hand, for the tests of private methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax

from bonafed.data.federation import Federation

SIZES = (9, 25, 4, 16)


def federation(
    kind: str = "class", seed: int = 0, sizes: tuple[int, ...] = SIZES, d: int = 5
) -> Federation:
    """Ragged clients with targets of that kind: "class" (three), "sign" or "real"."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((d, 3))
    X = [rng.standard_normal((m, d)) for m in sizes]
    score = [x @ truth + rng.standard_normal((len(x), 3)) for x in X]
    y = {
        "class": [s.argmax(1) for s in score],
        "sign": [np.where(s[:, 0] > 0.5, 1, -1) for s in score],
        "real": [s[:, 0] + 1 for s in score],
    }[kind]
    classes = {"class": [0, 1, 2], "sign": [-1, 1], "real": None}[kind]
    return Federation(
        tuple(f"site {i}" for i in range(len(sizes))), tuple(X), tuple(y), classes=classes
    )


def gradient_by_hand(
    kind: str, X: np.ndarray, y: np.ndarray, z: np.ndarray, plan: Any
) -> np.ndarray:
    """The sum of the rows' gradients, each clipped, one row at a time."""
    total = np.zeros_like(z)
    for x, target in zip(X, y, strict=True):
        order = 1 if plan.kind == "laplace" else 2
        x = x * min(1.0, plan.bound / np.linalg.norm(x, order))
        if kind == "class":
            g = np.outer(x, softmax(x @ z.reshape(len(x), 3)) - np.eye(3)[int(target)]).ravel()
        else:
            g = -target * expit(-target * (x @ z[:-1] + z[-1])) * np.append(x, 1.0)
        total += g * min(1.0, plan.clip / np.linalg.norm(g, order))
    return total
