"""Cuts by one compiled pass are the cuts of the general way, and say no where they should."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from problems import PLAIN
from scipy.sparse import csr_array

import bonafed as bf
from bonafed.arrays import Block
from bonafed.problem.client_means import MOST, in_one_pass


@dataclass(frozen=True)
class OwnSoftmax(bf.Softmax):
    """Another type, of which nothing is known but its methods."""


@dataclass(frozen=True)
class OwnLinear(bf.Linear):
    """The same."""


MODELS = {
    "softmax": (
        bf.Multinomial(),
        bf.Softmax(4, fit_intercept=False),
        OwnSoftmax(4, fit_intercept=False),
    ),
    "linear": (bf.Logistic(), PLAIN, OwnLinear(fit_intercept=False)),
    "intercept": (bf.Logistic(), bf.Linear(fit_intercept=True), OwnLinear(fit_intercept=True)),
}


def block_of(rng, n=6, m=15, d=5, classes=4):
    X, sizes = rng.standard_normal((n, m, d)), rng.integers(1, m + 1, n)
    y = rng.integers(classes, size=(n, m)).astype(float)
    share = np.where(np.arange(m) < sizes[:, None], rng.random((n, m)), 0.0)
    X[share == 0] = 0.0
    return Block(X, y, share / share.sum(1, keepdims=True), np.arange(n), tuple("abcdefgh"[:n]))


def coded(loss, block):
    return (
        replace(block, y=np.where(block.y % 2 == 0, 1.0, -1.0)) if loss.targets == "sign" else block
    )


def same(cut, general):
    np.testing.assert_allclose(cut.base, general.base, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(cut.gradient, general.gradient, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(cut.level, general.level)
    np.testing.assert_array_equal(cut.gradient_level, general.gradient_level)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("label", [None, 1.0])
def test_the_general_way_says_the_same(model, label):
    rng = np.random.default_rng(0)
    loss, predictor, general = MODELS[model]
    data, mean = coded(loss, block_of(rng)), bf.Mean()
    if label is not None and loss.targets == "sign":
        mean = bf.Mean(label=label, code=label)
    quick, slow = (bf.Problem(loss, p, over_samples=mean) for p in (predictor, general))
    models = rng.standard_normal((6, predictor.dimension(5)))
    for w in (
        models,
        models[0],
        np.zeros_like(models),
        np.broadcast_to(models[1], models.shape),
        models[:, ::-1],
    ):
        assert in_one_pass(quick, w, data) is not None
        assert in_one_pass(slow, w, data) is None
        same(quick.cut(w, data), slow.cut(w, data))
    part = data.part(np.array([4, 1]))
    same(quick.cut(models[[4, 1]], part), slow.cut(models[[4, 1]], part))


@pytest.mark.parametrize("model", MODELS)
def test_a_clients_cut_is_its_own_bit_for_bit(model):
    rng = np.random.default_rng(1)
    loss, predictor, *_ = MODELS[model]
    data, problem = coded(loss, block_of(rng)), bf.Problem(loss, predictor)
    w = rng.standard_normal((6, predictor.dimension(5)))
    together = problem.cut(w, data)
    for i in range(6):
        rows = int((data.share[i] > 0).sum())
        X, y, share = (
            data.X[i : i + 1, :rows],
            data.y[i : i + 1, :rows],
            data.share[i : i + 1, :rows],
        )
        alone = problem.cut(w[i], Block(X, y, share, data.index[i : i + 1], data.names[i : i + 1]))
        np.testing.assert_array_equal(alone.base[0], together.base[i])
        np.testing.assert_array_equal(alone.gradient[0], together.gradient[i])


@pytest.mark.parametrize("model", MODELS)
def test_other_data_and_risks_go_the_general_way(model):
    rng = np.random.default_rng(2)
    loss, predictor, general = MODELS[model]
    data = coded(loss, block_of(rng))
    quick, slow = bf.Problem(loss, predictor), bf.Problem(loss, general)
    w = rng.standard_normal((6, predictor.dimension(5)))
    sparse = Block(csr_array(data.X[0]), data.y[:1], data.share[:1], data.index[:1], data.names[:1])
    single = replace(data, X=data.X.astype(np.float32))
    spread = replace(data, X=np.asfortranarray(data.X))
    for models, block in ((w[:1], sparse), (w[0], sparse), (w, single), (w, spread)):
        assert in_one_pass(quick, models, block) is None
        same(quick.cut(models, block), slow.cut(models, block))
    ranked = bf.Problem(loss, predictor, over_samples=bf.Superquantile(0.5))
    assert in_one_pass(ranked, w, data) is None


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("shape", [(1,), (2, 20), (2, 5), (2, 6), (6, 7), (6, 3), (6, 3, 20)])
def test_models_of_a_wrong_shape_are_refused(model, shape):
    loss, predictor, *_ = MODELS[model]
    data = coded(loss, block_of(np.random.default_rng(3)))
    with pytest.raises((ValueError, IndexError)):
        bf.Problem(loss, predictor).cut(np.zeros(shape), data)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_with_its_client(model, bad):
    rng = np.random.default_rng(4)
    loss, predictor, *_ = MODELS[model]
    data, problem = coded(loss, block_of(rng)), bf.Problem(loss, predictor)
    w = rng.standard_normal((6, predictor.dimension(5)))
    good = problem.cut(w, data)
    w[2, 1] = bad
    cut = problem.cut(w, data)
    others = np.arange(6) != 2
    assert not np.isfinite(cut.gradient[2]).all() or not np.isfinite(cut.base[2])
    np.testing.assert_array_equal(cut.base[others], good.base[others])
    np.testing.assert_array_equal(cut.gradient[others], good.gradient[others])


def test_libraries_serve_large_softmax_models_whatever_the_rows():
    rng, problem = (
        np.random.default_rng(5),
        bf.Problem(bf.Multinomial(), bf.Softmax(4, fit_intercept=False)),
    )
    for d, quick in ((MOST // 8, True), (MOST // 8 + 1, False)):
        for n, m in ((1, 1), (3, 5)):
            found = in_one_pass(problem, np.zeros(4 * d), block_of(rng, n, m, d))
            assert (found is not None) == quick


@pytest.mark.parametrize("model", MODELS)
def test_how_arrays_are_kept_changes_no_bit(model):
    """Not to be written, not aligned, not contiguous, whole numbers for classes."""
    rng = np.random.default_rng(6)
    loss, predictor, _ = MODELS[model]
    data, problem = coded(loss, block_of(rng)), bf.Problem(loss, predictor)
    w = rng.standard_normal((6, predictor.dimension(5)))
    usual = problem.cut(w, data)
    fixed = replace(
        data, X=data.X.copy(), y=data.y.astype(int), share=np.asfortranarray(data.share)
    )
    for array in (np.asarray(fixed.X), fixed.y, fixed.share):
        array.flags.writeable = False
    odd = np.frombuffer(b"." + w.tobytes(), np.uint8)[1:].view(np.float64).reshape(w.shape)
    assert not odd.flags.aligned
    for models in (odd, np.asfortranarray(w)):
        cut = problem.cut(models, fixed)
        np.testing.assert_array_equal(cut.base, usual.base)
        np.testing.assert_array_equal(cut.gradient, usual.gradient)


@pytest.mark.parametrize("bad", [4.0, 1e5, -1.0, np.nan])
@pytest.mark.parametrize("predictor", [MODELS["softmax"][1], MODELS["softmax"][2]])
def test_rows_of_classes_without_a_prediction_are_refused(predictor, bad):
    data, problem = block_of(np.random.default_rng(0)), bf.Problem(bf.Multinomial(), predictor)
    data.y[2, 0] = bad
    with pytest.raises(ValueError, match=r"numbers of classes 0..3, got \["):
        problem.cut(np.zeros(20), data)
