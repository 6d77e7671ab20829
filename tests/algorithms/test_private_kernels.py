"""The compiled clipped gradients of softmax models at every size of tile, and the local step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from bonafed.algorithms.federated import private_admm
from bonafed.algorithms.federated.private import mechanism
from bonafed.arrays import unwritable

NEAR = {
    "prox": (private_admm.PROX, 0.7),
    "none": (private_admm.PROX, 0.0),
    "ball": (private_admm.BALL, 0.3),
    "box": (private_admm.LINF, 0.1),
}
SHAPES = {
    "few": (5, 3),
    "one feature": (1, 62),
    "small tiles": (900, 30),
    "spare columns": (800, 47),
}


def rows(kind: type, d: int, K: int, m: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng([d, K, m])
    X, y = rng.standard_normal((m, d)).astype(kind), rng.integers(0, K, m).astype(np.int32)
    factor = rng.choice([0.5, 1.0], m).astype(kind)
    length = (factor * np.linalg.norm(X, axis=1)).astype(kind)
    Z = (rng.standard_normal((d, K)) * 3 / np.sqrt(d)).astype(kind)
    return unwritable(X), y, Z, factor, length


def by_hand(
    X: np.ndarray, y: np.ndarray, Z: np.ndarray, factor: np.ndarray, clip: float, order: int
) -> tuple:
    total, largest = np.zeros(Z.shape), 0.0
    for x, target, shorter in zip(X.astype(float), y, factor, strict=True):
        x = x * float(shorter)
        g = np.outer(x, softmax(x @ Z.astype(float)) - np.eye(Z.shape[1])[target])
        size = np.linalg.norm(g.ravel(), order)
        largest = max(largest, size)
        total += g * min(1.0, clip / size)
    return total, largest


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("norm", [mechanism.L1, mechanism.L2])
def test_clipped_gradients_row_by_row(shape, kind, norm):
    d, K = SHAPES[shape]
    for m in (0, 1, 7, 95, 97, 193):
        X, y, Z, factor, length = rows(kind, d, K, m)
        if norm == mechanism.L1:
            length = (factor * np.abs(X).sum(1)).astype(kind)
        for clip in (0.8 * np.sqrt(d), np.inf):
            expected, largest = by_hand(X, y, Z, factor, clip, norm)
            G = np.full((d, K), np.nan, kind)
            found = mechanism.softmax_gradient(X, y, Z, factor, length, clip, norm, G)
            close = 2e-5 if kind == np.float32 else 1e-12
            np.testing.assert_allclose(G, expected, rtol=close, atol=close * np.sqrt(d * (m + 1)))
            assert found == pytest.approx(largest, rel=close)


@pytest.mark.parametrize("shape", ["few", "spare columns"])
def test_rows_beyond_all_numbers_count_for_nothing(shape):
    d, K = SHAPES[shape]
    X, y, Z, factor, length = rows(np.float64, d, K, 20)
    for far in (np.nan, np.inf, 1e300):
        with np.errstate(all="ignore"):
            wild, norms = X.copy(), length.copy()
            wild[3], norms[3] = 0.0, far
        G, expected = np.empty((d, K)), np.empty((d, K))
        mechanism.softmax_gradient(unwritable(wild), y, Z, factor, norms, 1.0, mechanism.L2, G)
        norms[3] = 0.0
        mechanism.softmax_gradient(
            unwritable(wild), y, Z, factor, norms, 1.0, mechanism.L2, expected
        )
        assert np.isfinite(G).all()
        np.testing.assert_allclose(G, expected, atol=1e-12)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("near", NEAR)
def test_a_step_and_its_multipliers(near, kind):
    (which, reach), D, rng = NEAR[near], 45, np.random.default_rng(3)
    w, z, dual, g = rng.standard_normal((4, D)).astype(kind)
    lower, upper = np.full(D, -1.5, kind), np.full(D, 2.0, kind)
    rho, after = 1.3, 1.7
    new, multipliers, shifted = np.full(D, np.nan, kind), np.full(D, np.nan, kind), np.ones(D)
    private_admm.towards(w, z, dual, g.astype(float), rho, which, reach, lower, upper, new)
    gap = private_admm.update_multipliers(w, new, dual, rho, after, multipliers, shifted)
    pull = reach if which == private_admm.PROX else 0.0
    v = (rho * w + dual - g + pull * z) / (rho + pull)
    if which == private_admm.LINF:
        v = np.clip(v, z - reach, z + reach)
    if which == private_admm.BALL:
        v = z + (v - z) * min(1.0, reach / np.linalg.norm(v - z))
    v = np.clip(v, lower, upper)
    close: Any = (
        {"rtol": 1e-5, "atol": 1e-5} if kind == np.float32 else {"rtol": 1e-12, "atol": 1e-12}
    )
    np.testing.assert_allclose(new, v, **close)
    np.testing.assert_allclose(multipliers, dual + rho * (w - v), **close)
    np.testing.assert_allclose(gap, np.abs(w - v).sum(), **close)
    np.testing.assert_allclose(shifted, 1 + v - (dual + rho * (w - v)) / after, **close)
