"""What every predictor must satisfy, as plain functions: each takes a predictor of 4 features and
raises if it breaks.

`laws/test_predictor_laws.py` runs them over PREDICTORS of `examples.py`,
`problem/test_torch_module.py` over torch modules.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from bonafed.arrays import Block
from bonafed.data.federation import Federation
from bonafed.problem.predictors.affine import is_affine, pullback

SIZES = (7, 3, 11, 1)
# of a derivative, exact up to step^4
DIFFERENCES = {-2: 1 / 12, -1: -8 / 12, 1: 8 / 12, 2: -1 / 12}


def federation(scale=1.0) -> Federation:
    rng = np.random.default_rng(5)
    return Federation(
        [f"c{i}" for i in range(len(SIZES))],
        [scale * rng.normal(size=(m, 4)) for m in SIZES],
        [rng.choice([-1.0, 1.0], m) for m in SIZES],
    )


def block(scale=1.0) -> Block:
    """All four clients, padded to the longest."""
    (found,) = federation(scale).blocks()
    assert found.y.shape == (4, 11)
    return found


def models(predictor, n=4):
    """One model for each client, not near one another."""
    first = predictor.start(4) if hasattr(predictor, "start") else np.zeros(predictor.dimension(4))
    return first + np.random.default_rng(6).normal(size=(n, len(first)))


def pushes(predictor, data):
    """Numbers of the predictions' shape, 0 on padding."""
    shape = predictor.forward(models(predictor)[0], data).shape
    s = np.random.default_rng(7).normal(size=shape)
    return s * (data.share > 0).reshape(data.share.shape + (1,) * (s.ndim - 2))


def shapes(predictor):
    data, w = block(), models(predictor)
    D, s = predictor.dimension(4), pushes(predictor, data)
    classes = s.shape[2] if s.ndim == 3 else None
    assert w.shape == (4, D)
    assert s.shape[:2] == data.y.shape
    assert predictor.sized(4, classes).dimension(4) == D
    for model in (w, w[0]):
        assert predictor.forward(model, data).shape == s.shape
        assert predictor.backward(model, s, data).shape == (4, D)
        own, free = predictor.split(model)
        assert_array_equal(own, model[..., : own.shape[-1]])
        rest = model[..., own.shape[-1] :]
        assert_array_equal(np.asarray(free).ravel(), rest.ravel() if rest.size else [0.0])
    assert predictor.units(np.ones(4)).shape == (D,)
    assert (predictor.units(np.array([1.0, 2.0, 3.0, 4.0])) > 0).all()
    if hasattr(predictor, "start"):
        assert_array_equal(predictor.start(4), predictor.start(4))
        assert np.isfinite(predictor.start(4)).all()
        assert predictor.start(4).std() > 0


def backward_is_the_transpose_of_the_derivative(predictor, step=1e-4):
    """<s, forward'(w) v> = <backward(w, s), v> for every client, v in random directions, by finite
    differences.
    """
    data, w = block(), models(predictor)
    s, rng = pushes(predictor, data), np.random.default_rng(8)
    for model in (w, w[0]):
        gradient = predictor.backward(model, s, data)
        for _ in range(4):
            v = rng.normal(size=w.shape[1])
            along = (
                sum(
                    part * predictor.forward(model + k * step * v, data)
                    for k, part in DIFFERENCES.items()
                )
                / step
            )
            expected = (s * along).reshape(4, -1).sum(1)
            assert_allclose(gradient @ v, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


def backward_is_linear(predictor):
    data, w = block(), models(predictor)
    s = pushes(predictor, data)
    t = s**2 - 0.5 * s
    both = predictor.backward(w, 2.0 * s - 3.0 * t, data)
    each = 2.0 * predictor.backward(w, s, data) - 3.0 * predictor.backward(w, t, data)
    assert_allclose(both, each, rtol=1e-11, atol=1e-11 * np.abs(each).max())


def one_model_per_client_is_one_at_a_time(predictor):
    data, w = block(), models(predictor)
    s = pushes(predictor, data)
    together = predictor.forward(w, data), predictor.backward(w, s, data)
    for i in range(4):
        one = data.part(np.array([i]))
        assert_allclose(together[0][i], predictor.forward(w[i], one)[0], rtol=1e-12, atol=1e-13)
        assert_allclose(
            together[1][i], predictor.backward(w[i], s[i : i + 1], one)[0], rtol=1e-11, atol=1e-12
        )
        assert_allclose(
            together[1][i],
            predictor.backward(w[i : i + 1], s[i : i + 1], one)[0],
            rtol=1e-11,
            atol=1e-12,
        )
    shared = np.tile(w[0], (4, 1))
    assert_allclose(
        predictor.forward(shared, data), predictor.forward(w[0], data), rtol=1e-12, atol=1e-13
    )
    assert_allclose(
        predictor.backward(shared, s, data),
        predictor.backward(w[0], s, data),
        rtol=1e-11,
        atol=1e-12,
    )


def padding_does_not_matter(predictor):
    """Whatever stands there; and clients alone, unpadded, give the same."""
    data, w, fed = block(), models(predictor), federation()
    s, real = pushes(predictor, data), data.share > 0
    noise = np.random.default_rng(9).normal(size=data.X.shape)
    other = replace(data, X=np.where(real[:, :, None], data.X, 10 * noise))
    for model in (w, w[0]):
        assert_allclose(
            predictor.forward(model, data)[real], predictor.forward(model, other)[real], rtol=1e-12
        )
        found = predictor.backward(model, s, data)
        assert_allclose(found, predictor.backward(model, s, other), rtol=1e-12, atol=1e-13)
        for i, at in enumerate(data.index):
            alone = fed.block(int(at))
            rows, own = alone.y.shape[1], model if model.ndim == 1 else model[i]
            assert_allclose(
                predictor.forward(own, alone)[0],
                predictor.forward(model, data)[i, :rows],
                rtol=1e-11,
            )
            assert_allclose(
                predictor.backward(own, s[i : i + 1, :rows], alone)[0],
                found[i],
                rtol=1e-11,
                atol=1e-12,
            )


def sparse_rows_are_the_same(predictor):
    alone, w = federation().block(0), models(predictor)
    X = np.where(np.random.default_rng(3).random(alone.X.shape) < 0.5, 0.0, alone.X)
    dense, sparse = replace(alone, X=X), replace(alone, X=csr_array(X[0]))
    s = np.random.default_rng(4).normal(size=predictor.forward(w[0], dense).shape)
    for model in (w[0], w[:1]):
        assert_allclose(
            predictor.forward(model, sparse),
            predictor.forward(model, dense),
            rtol=1e-12,
            atol=1e-14,
        )
        expected = predictor.backward(model, s, dense)
        assert_allclose(predictor.backward(model, s, sparse), expected, rtol=1e-11, atol=1e-13)


def sparse_clients_share_a_block(predictor):
    fed, w = federation(), models(predictor)
    thin = Federation(fed.clients, [csr_array(x) for x in fed.X], fed.y)
    dense, sparse = fed.blocks()[0], thin.blocks()[0]
    assert sparse.index.tolist() == dense.index.tolist()
    s = np.random.default_rng(4).normal(size=predictor.forward(w[0], dense).shape)
    for model in (w[0], w[: len(dense.names)]):
        found = predictor.forward(model, sparse)
        assert_allclose(found, predictor.forward(model, dense), rtol=1e-11, atol=1e-12)
        found = predictor.backward(model, s, sparse)
        assert_allclose(found, predictor.backward(model, s, dense), rtol=1e-11, atol=1e-12)


def pullbacks_are_forward_and_backward(predictor):
    data, w = block(), models(predictor)
    s = pushes(predictor, data)
    for model in (w, w[0]):
        prediction, back = pullback(predictor, model, data)
        assert_allclose(prediction, predictor.forward(model, data), rtol=1e-13, atol=1e-14)
        for push in (s, 2 * s, s):  # as often as asked for
            assert_allclose(
                back(push), predictor.backward(model, push, data), rtol=1e-12, atol=1e-13
            )


def nothing_is_written_to(predictor):
    data, w = block(), models(predictor)
    s = pushes(predictor, data)
    before = [a.copy() for a in (data.X, w, s)]
    for a in (data.X, w, s):
        a.flags.writeable = False
    for model in (w, w[0]):
        prediction, back = pullback(predictor, model, data)
        kept = prediction.copy()
        back(s)
        assert_array_equal(prediction, kept)
        predictor.backward(model, s, data)
    for a, old in zip((data.X, w, s), before, strict=True):
        assert_array_equal(a, old)


def finite_at_any_scale(predictor):
    for scale in (1e-9, 1e9):
        data, w = block(scale), models(predictor)
        s = pushes(predictor, data)
        assert np.isfinite(predictor.forward(w, data)).all()
        assert np.isfinite(predictor.backward(w, s, data)).all()


def affine_where_it_says_so(predictor):
    if is_affine(predictor):
        data, (a, b, *_) = block(), models(predictor)
        mixed = 0.3 * predictor.forward(a, data) + 0.7 * predictor.forward(b, data)
        assert_allclose(predictor.forward(0.3 * a + 0.7 * b, data), mixed, rtol=1e-11, atol=1e-12)


LAWS = [
    shapes,
    backward_is_the_transpose_of_the_derivative,
    backward_is_linear,
    one_model_per_client_is_one_at_a_time,
    padding_does_not_matter,
    sparse_rows_are_the_same,
    sparse_clients_share_a_block,
    pullbacks_are_forward_and_backward,
    nothing_is_written_to,
    finite_at_any_scale,
    affine_where_it_says_so,
]
