"""Risks of softmax models and their gradients in one pass: against extended precision, and whatever
the block.
"""

from __future__ import annotations

import numpy as np
import pytest

from bonafed.solvers.kernels.multinomial import TILE, risks_and_gradients

L = np.longdouble
SHAPES = [
    (300, 1, 4, 10),
    (40, 20, 21, 10),
    (9, TILE + 1, 5, 2),
    (4, 3 * TILE, 3, 17),
    (3, 7, 1, 8),
    (2, 9, 30, 3),
]


def data(shape, size, seed=0):
    """Rows and models of few digits, so that predictions are exact."""
    rng = np.random.default_rng(seed)
    n, m, d, C = shape
    X = rng.integers(-64, 65, (n, m, d)) / 64
    w = np.round(rng.standard_normal((n, d * C)) * size * 2**20) / 2**20
    weights = rng.random((n, m))
    return X, rng.integers(0, C, (n, m)).astype(float), weights / weights.sum(1, keepdims=True), w


def exact(X, y, weights, w, C):
    """Risks, gradients, and the sums of the gradients' absolute terms."""
    n, _, d = X.shape
    own = y.astype(int)[..., None]
    p = np.matmul(X.astype(L), w.reshape(n, d, C).astype(L))
    top = p.max(-1, keepdims=True)
    mass = np.exp(p - top)
    at_own = np.take_along_axis(mass, own, -1)[..., 0]
    np.put_along_axis(mass, own, 0, -1)
    others = mass.sum(-1)
    ahead = (top - np.take_along_axis(p, own, -1))[..., 0]
    losses = ahead + np.where(ahead == 0, np.log1p(others), np.log(others + at_own))
    gradients = mass / (others + at_own)[..., None]
    np.put_along_axis(gradients, own, -(others / (others + at_own))[..., None], -1)
    gradients *= weights[..., None]
    turned = X.transpose(0, 2, 1).astype(L)
    gradient, size = np.matmul(turned, gradients), np.matmul(abs(turned), abs(gradients))
    return (weights * losses).sum(1), gradient.reshape(n, -1), size.reshape(n, -1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.0, 1e-3, 0.3, 1.0, 5.0, 30.0, 300.0, 3000.0])
def test_risks_and_gradients_are_exact_to_rounding(shape, size):
    X, y, weights, w = data(shape, size)
    risks, gradients = risks_and_gradients(X, y, weights, w, shape[-1])
    risk, gradient, terms = exact(X, y, weights, w, shape[-1])
    tiny = np.finfo(float).tiny  # below it no number has all its digits
    assert (abs(risks - risk) <= 1e-15 * risk + tiny).all()
    assert (abs(gradients - gradient) <= 1e-14 * terms + tiny).all()
    if size >= 3000 and shape[1] > 1:
        assert risk.max() > 1e3


def test_margins_of_ten_thousand_either_way():
    X, y = np.ones((1, 2, 1)), np.array([[0.0, 1.0]])
    for weights in (np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]), np.array([[0.5, 0.5]])):
        risks, gradients = risks_and_gradients(X, y, weights, np.array([[1e4, 0.0]]), 2)
        assert risks[0] == 1e4 * weights[0, 1]
        np.testing.assert_array_equal(gradients, [[weights[0, 1], -weights[0, 1]]])


@pytest.mark.parametrize("gap", [690.0, 699.9, 700.0, 700.1, 708.0, 710.0, 745.0])
def test_nothing_jumps_where_exponentials_end(gap):
    """Beside a class 700 ahead the row's own counts for nothing, and the gradient is one."""
    X, w = np.ones((1, 1, 1)), np.array([[0.0, gap, gap - 1]])
    for own in (0.0, 1.0, 2.0):
        y, weights = np.full((1, 1), own), np.ones((1, 1))
        (risk,), gradient = risks_and_gradients(X, y, weights, w, 3)
        (expected,), expected_gradient, _ = exact(X, y, weights, w, 3)
        assert abs(risk - expected) <= 1e-15 * expected
        np.testing.assert_allclose(
            gradient, expected_gradient.astype(float), rtol=1e-14, atol=1e-300
        )


def alone(X, y, weights, w, C, i, rows):
    own = slice(i, i + 1)
    X, y, weights = (np.ascontiguousarray(v[own, :rows]) for v in (X, y, weights))
    return risks_and_gradients(X, y, weights, w[own], C)


@pytest.mark.parametrize("shape", [(12, 40, 21, 10), (6, 2 * TILE + 9, 6, 3), (5, 11, 40, 26)])
def test_a_client_does_not_feel_the_others_nor_padding(shape):
    X, y, weights, w = data(shape, 2.0, 1)
    rng = np.random.default_rng(2)
    # where sums in another order would differ
    X, w = rng.standard_normal(X.shape), rng.standard_normal(w.shape)
    sizes = rng.integers(1, shape[1] + 1, shape[0])
    sizes[:2] = shape[1], 0
    for i, size in enumerate(sizes):
        weights[i, size:] = 0.0
        X[i, size:] = 0.0 if i % 2 else X[i, size:]
    risks, gradients = risks_and_gradients(X, y, weights, w, shape[-1])
    order = rng.permutation(shape[0])
    again = risks_and_gradients(X[order], y[order], weights[order], w[order], shape[-1])
    np.testing.assert_array_equal(again[0], risks[order])
    np.testing.assert_array_equal(again[1], gradients[order])
    for i, size in enumerate(sizes):
        for rows in {max(size, 1), min(size + 1, shape[1]), shape[1]}:
            risk, gradient = alone(X, y, weights, w, shape[-1], i, rows)
            np.testing.assert_array_equal(risk[0], risks[i])
            np.testing.assert_array_equal(gradient[0], gradients[i])
    assert risks[1] == 0
    assert not gradients[1].any()


def test_rows_of_weight_zero_between_others_have_no_part():
    X, y, weights, w = data((3, 30, 5, 4), 1.0, 3)
    weights[:, ::3] = 0.0
    risks, gradients = risks_and_gradients(X, y, weights, w, 4)
    X[:, ::3], y[:, ::3] = 1e200, 3.0
    again = risks_and_gradients(X, y, weights, w, 4)
    np.testing.assert_array_equal(again[0], risks)
    np.testing.assert_array_equal(again[1], gradients)


def test_one_model_for_all_clients():
    X, y, weights, w = data((5, 12, 7, 6), 1.0, 4)
    shared = risks_and_gradients(X, y, weights, w[:1], 6)
    tiled = risks_and_gradients(X, y, weights, np.repeat(w[:1], 5, 0), 6)
    np.testing.assert_array_equal(shared[0], tiled[0])
    np.testing.assert_array_equal(shared[1], tiled[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so_and_with_its_client(bad):
    X, y, weights, w = data((3, 12, 4, 3), 1.0, 5)
    good = risks_and_gradients(X, y, weights, w, 3)
    w[1, 4] = bad
    risks, gradients = risks_and_gradients(X, y, weights, w, 3)
    assert not np.isfinite(risks[1])
    assert not np.isfinite(gradients[1]).all()
    np.testing.assert_array_equal(risks[[0, 2]], good[0][[0, 2]])
    np.testing.assert_array_equal(gradients[[0, 2]], good[1][[0, 2]])
    weights[1] = 0.0
    assert np.isnan(risks_and_gradients(X, y, weights, w, 3)[0][1])


def test_infinite_losses_are_infinite():
    """A class of the row's own that is ruled out: not NaN, whatever was added before."""
    X, y = np.array([[[1.0], [1.0], [-1.0]]]), np.array([[1.0, 0.0, 1.0]])
    risks, _ = risks_and_gradients(
        X[:, :2], y[:, :2], np.full((1, 2), 0.5), np.array([[-np.inf, 0.0]]), 2
    )
    assert risks[0] == np.inf
