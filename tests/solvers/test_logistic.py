"""Risks of logistic regression and their gradients in one pass: against extended precision, and
whatever the block.
"""

from __future__ import annotations

import numpy as np
import pytest

from bonafed.solvers.kernels.logistic import TILE, risks_and_gradients

L = np.longdouble
SHAPES = [(300, 1, 4), (40, 20, 21), (9, TILE + 1, 5), (4, 3 * TILE, 3), (3, 7, 1), (2, 9, 130)]


def data(shape, size, intercept, seed=0):
    """Rows and models of few digits, so that predictions are exact."""
    rng = np.random.default_rng(seed)
    n, m, d = shape
    X = rng.integers(-64, 65, (n, m, d)) / 64
    w = np.round(rng.standard_normal((n, d + intercept)) * size * 2**20) / 2**20
    weights = rng.random((n, m))
    return (
        X,
        np.where(rng.random((n, m)) < 0.5, 1.0, -1.0),
        weights / weights.sum(1, keepdims=True),
        w,
    )


def exact(X, y, weights, w):
    """Risks, gradients, and the sums of the gradients' absolute terms."""
    rows = X.astype(L)
    if w.shape[1] > X.shape[2]:
        rows = np.concatenate([rows, np.ones((*y.shape, 1), L)], 2)
    margin = y * np.matmul(rows, w.astype(L)[:, :, None])[:, :, 0]
    tail = np.exp(-abs(margin))
    losses = np.maximum(-margin, 0) + np.log1p(tail)
    gradients = -y * weights * np.where(margin > 0, tail, 1) / (1 + tail)
    gradient, size = (
        np.einsum("nm,nmd->nd", s, r) for s, r in ((gradients, rows), (abs(gradients), abs(rows)))
    )
    return (weights * losses).sum(1), gradient, size


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.0, 1e-3, 0.3, 1.0, 5.0, 30.0, 300.0, 3000.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_risks_and_gradients_are_exact_to_rounding(shape, size, intercept):
    X, y, weights, w = data(shape, size, intercept)
    risks, gradients = risks_and_gradients(X, y, weights, w)
    risk, gradient, terms = exact(X, y, weights, w)
    tiny = np.finfo(float).tiny  # below it no number has all its digits
    assert (abs(risks - risk) <= 1e-15 * risk + tiny).all()
    assert (abs(gradients - gradient) <= 1e-14 * terms + tiny).all()
    if size >= 3000 and shape[1] > 1:
        assert risk.max() > 400


@pytest.mark.parametrize("margin", [0.0, 690.0, 707.9, 708.0, 708.1, 745.0, 1e4])
def test_far_margins(margin):
    X, weights, w = np.ones((1, 1, 1)), np.ones((1, 1)), np.array([[margin]])
    for label in (-1.0, 1.0):
        y = np.full((1, 1), label)
        risks, gradients = risks_and_gradients(X, y, weights, w)
        risk, gradient, _ = exact(X, y, weights, w)
        np.testing.assert_allclose(risks, risk.astype(float), rtol=1e-15, atol=1e-307)
        np.testing.assert_allclose(gradients, gradient.astype(float), rtol=1e-15, atol=1e-307)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shape", [(12, 40, 21), (6, 2 * TILE + 9, 6), (5, 11, 130)])
def test_a_client_does_not_feel_the_others_nor_padding(shape, intercept):
    X, y, weights, w = data(shape, 2.0, intercept, 1)
    rng = np.random.default_rng(2)
    # where sums in another order would differ
    X, w = rng.standard_normal(X.shape), rng.standard_normal(w.shape)
    sizes = rng.integers(1, shape[1] + 1, shape[0])
    sizes[:2] = shape[1], 0
    for i, size in enumerate(sizes):
        weights[i, size:] = 0.0
        X[i, size:] = 0.0 if i % 2 else X[i, size:]
    risks, gradients = risks_and_gradients(X, y, weights, w)
    order = rng.permutation(shape[0])
    again = risks_and_gradients(X[order], y[order], weights[order], w[order])
    np.testing.assert_array_equal(again[0], risks[order])
    np.testing.assert_array_equal(again[1], gradients[order])
    for i, size in enumerate(sizes):
        for rows in {max(size, 1), min(size + 1, shape[1]), shape[1]}:
            own = slice(i, i + 1)
            parts = [np.ascontiguousarray(v[own, :rows]) for v in (X, y, weights)]
            risk, gradient = risks_and_gradients(parts[0], parts[1], parts[2], w[own])
            np.testing.assert_array_equal(risk[0], risks[i])
            np.testing.assert_array_equal(gradient[0], gradients[i])
    assert risks[1] == 0
    assert not gradients[1].any()


@pytest.mark.parametrize("intercept", [False, True])
def test_rows_of_weight_zero_between_others_have_no_part(intercept):
    X, y, weights, w = data((3, 30, 5), 1.0, intercept, 3)
    weights[:, ::3] = 0.0
    risks, gradients = risks_and_gradients(X, y, weights, w)
    X[:, ::3] = 1e200
    again = risks_and_gradients(X, y, weights, w)
    np.testing.assert_array_equal(again[0], risks)
    np.testing.assert_array_equal(again[1], gradients)


def test_one_model_for_all_clients():
    X, y, weights, w = data((5, 12, 7), 1.0, True, 4)
    shared, tiled = (risks_and_gradients(X, y, weights, v) for v in (w[:1], np.repeat(w[:1], 5, 0)))
    np.testing.assert_array_equal(shared[0], tiled[0])
    np.testing.assert_array_equal(shared[1], tiled[1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [1, 4])
def test_what_is_not_finite_stays_so_and_with_its_client(bad, at):
    X, y, weights, w = data((3, 12, 4), 1.0, True, 5)
    good = risks_and_gradients(X, y, weights, w)
    w[1, at] = bad
    risks, gradients = risks_and_gradients(X, y, weights, w)
    assert not np.isfinite(risks[1])
    assert not np.isnan(bad) or np.isnan(gradients[1]).all()
    np.testing.assert_array_equal(risks[[0, 2]], good[0][[0, 2]])
    np.testing.assert_array_equal(gradients[[0, 2]], good[1][[0, 2]])
    weights[1] = 0.0
    assert np.isnan(risks_and_gradients(X, y, weights, w)[0][1])


def test_infinite_losses_are_infinite():
    X, y, weights = np.ones((1, 2, 1)), np.array([[1.0, -1.0]]), np.full((1, 2), 0.5)
    risks, gradients = risks_and_gradients(X, y, weights, np.array([[np.inf]]))
    assert risks[0] == np.inf
    assert gradients[0, 0] == 0.5
