"""The compiled round of private softmax models, at every size of tile and way of multiplying: one
row at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from quorate.algorithms.federated.private_admm import kernels
from quorate.arrays import unwritable

NEAR = {
    "prox": (kernels.PROX, 0.7),
    "none": (kernels.PROX, 0.0),
    "ball": (kernels.BALL, 0.3),
    "box": (kernels.LINF, 0.1),
}
SHAPES = {
    "few": (5, 3),
    "one feature": (1, 62),
    "no spare": (9, 64),
    "spare": (40, 62),
    "two blocks": (11, 120),
}
SHAPES |= {"library": (900, 30), "library, spare": (800, 47)}


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
@pytest.mark.parametrize("norm", [kernels.L1, kernels.L2])
def test_clipped_gradients_row_by_row(shape, kind, norm):
    d, K = SHAPES[shape]
    for m in (0, 1, 7, 95, 97, 193):
        X, y, Z, factor, length = rows(kind, d, K, m)
        if norm == kernels.L1:
            length = (factor * np.abs(X).sum(1)).astype(kind)
        for clip in (0.8 * np.sqrt(d), np.inf):
            expected, largest = by_hand(X, y, Z, factor, clip, norm)
            G = np.full((d, K), np.nan, kind)
            found = kernels.softmax_gradient(X, y, Z, factor, length, clip, norm, G)
            close = 2e-5 if kind == np.float32 else 1e-12
            np.testing.assert_allclose(G, expected, rtol=close, atol=close * np.sqrt(d * (m + 1)))
            assert found == pytest.approx(largest, rel=close)


@pytest.mark.parametrize("shape", ["spare", "library, spare"])
def test_rows_beyond_all_numbers_count_for_nothing(shape):
    d, K = SHAPES[shape]
    X, y, Z, factor, length = rows(np.float64, d, K, 20)
    for far in (np.nan, np.inf, 1e300):
        with np.errstate(all="ignore"):
            wild, norms = X.copy(), length.copy()
            wild[3], norms[3] = 0.0, far
        G, expected = np.empty((d, K)), np.empty((d, K))
        kernels.softmax_gradient(unwritable(wild), y, Z, factor, norms, 1.0, kernels.L2, G)
        norms[3] = 0.0
        kernels.softmax_gradient(unwritable(wild), y, Z, factor, norms, 1.0, kernels.L2, expected)
        assert np.isfinite(G).all()
        np.testing.assert_allclose(G, expected, atol=1e-12)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("near", NEAR)
@pytest.mark.parametrize("output", [False, True])
@pytest.mark.parametrize("shape", ["spare", "two blocks", "library, spare"])
def test_a_round_of_several_clients(shape, output, near, kind):
    (d, K), (which, reach) = SHAPES[shape], NEAR[near]
    sizes, D, rng = (30, 0, 101, 7), d * K, np.random.default_rng(3)
    X, y = np.full((4, 110, d), np.nan, kind), np.zeros((4, 110), np.int32)
    factor, length, z = np.ones((4, 110), kind), np.ones((4, 110), kind), np.empty((4, D), kind)
    for i, m in enumerate(sizes):
        X[i, :m], y[i, :m], Z, factor[i, :m], length[i, :m] = rows(kind, d, K, m)
        z[i] = Z.ravel()
    w, dual = rng.standard_normal(D).astype(kind), rng.standard_normal((4, D)).astype(kind)
    lower, upper = np.full(D, -1.5, kind), np.full(D, 2.0, kind)
    weight, scale, keys = (
        np.array([0.1, 0.2, 0.3, 0.4]),
        np.array([0.5, 0.1, 0.0, 1.0]),
        np.arange(4, dtype=np.uint64),
    )
    rho, after, clip, own = 1.3, 1.7, 2.0, kernels.noise.GAUSSIAN
    new, multipliers = np.full((2, 4, D), np.nan, kind)
    counts, wanted = np.array(sizes), (which, reach, lower, upper)
    data = (
        unwritable(X),
        y,
        counts,
        w,
        z,
        dual,
        factor,
        length,
        clip,
        kernels.L2,
        weight,
        keys,
        own,
        scale,
    )
    gap, shifted = kernels.softmax_round(*data, output, rho, after, *wanted, new, multipliers)

    pull = reach if which == kernels.PROX else 0.0
    expected, sums = np.empty((4, D)), np.zeros(D)
    for i, m in enumerate(sizes):
        noise = np.empty(D)
        kernels.noise.fill(keys[i], own, noise)
        g = by_hand(X[i, :m], y[i, :m], z[i].reshape(d, K), factor[i, :m], clip, 2)[0].ravel()
        xi, old = scale[i] * noise, z[i].astype(float)
        v = (rho * w + dual[i] - weight[i] * g - (0 if output else xi) + pull * old) / (rho + pull)
        if which == kernels.LINF:
            v = np.clip(v, old - reach, old + reach)
        if which == kernels.BALL:
            v = old + (v - old) * min(1.0, reach / np.linalg.norm(v - old))
        v = np.clip(v, lower, upper)
        expected[i] = v + (xi / (rho + pull) if output else 0)
        sums += expected[i] - (dual[i] + rho * (w - expected[i])) / after
    close: Any = (
        {"rtol": 1e-4, "atol": 1e-4} if kind == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    )
    np.testing.assert_allclose(new, expected, **close)
    np.testing.assert_allclose(multipliers, dual + rho * (w - expected), **close)
    np.testing.assert_allclose(gap, np.abs(w - expected).sum(1), **close)
    np.testing.assert_allclose(shifted[0], sums, **close)


def test_threads_change_no_bit(monkeypatch):
    d, K, n = 9, 5, 11
    X, y, Z, factor, length = rows(np.float64, d, K, 30)
    each = (np.repeat(part[None], n, 0) for part in (X, y, factor, length))
    data, classes, factors, lengths = (np.ascontiguousarray(part) for part in each)
    z, dual = np.random.default_rng(5).standard_normal((2, n, d * K))

    def answer() -> tuple[np.ndarray, ...]:
        new, multipliers, whole = np.empty((n, d * K)), np.empty((n, d * K)), np.zeros(0)
        noise = np.arange(n, dtype=np.uint64), kernels.noise.GAUSSIAN, np.ones(n), False
        settings = 1.3, 1.7, kernels.PROX, 0.7, whole, whole
        own = unwritable(data), classes, np.full(n, 30), Z.ravel(), z, dual, factors, lengths
        clipped = 2.0, kernels.L2, np.ones(n)
        found = kernels.softmax_round(*own, *clipped, *noise, *settings, new, multipliers)
        return *found, new, multipliers

    alone = answer()
    monkeypatch.setattr(kernels, "ALONE", 0)
    monkeypatch.setattr(kernels.config, "NUMBA_NUM_THREADS", 4)
    for first, other in zip(alone, answer(), strict=True):
        assert first.tobytes() == other.tobytes()
