"""The built-in perceptron: by its formula in complex numbers, its symmetry, its start; what a
problem makes of it.
"""

import itertools
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from predictor_laws import block, federation, models, pushes
from problems import PLAIN

import bonafed as bf
from bonafed.engines.checkpoint import describe
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.predictors.mlp import MLP
from bonafed.runs.evaluation import measure
from bonafed.solution.solve import judged

PHI = {
    "tanh": np.tanh,
    "softplus": lambda z: np.log(1 + np.exp(z)),
    "relu": lambda z: np.where(z.real > 0, z, 0),
}


def by_formula(w, X, hidden, outputs, activation):
    """The predictions (m, outputs) of one model, real or complex, layer by layer."""
    sizes = [X.shape[1], *hidden, outputs]
    matrices, at = [], 0
    for into, out in itertools.pairwise(sizes):
        matrices.append(w[at : at + into * out].reshape(out, into))
        at += into * out
    for k, out in enumerate(sizes[1:]):
        X = X @ matrices[k].T + w[at : at + out]
        at += out
        X = PHI[activation](X) if k < len(hidden) else X
    assert at == len(w)
    return X


@pytest.mark.parametrize("activation", PHI)
@pytest.mark.parametrize(
    ("hidden", "classes"), [((5,), None), ((4, 3), 3), ((), None), ((2, 6, 3), 2)]
)
def test_predictions_and_gradients_are_those_of_the_formula(activation, hidden, classes):
    """Gradients by a complex step: exact to rounding."""
    predictor, data = MLP(hidden, activation, classes), block()
    w, outputs = models(predictor), classes or 1
    s = pushes(predictor, data)
    found, gradient = predictor.forward(w, data), predictor.backward(w, s, data)
    for i in range(4):
        expected = by_formula(w[i], data.X[i], hidden, outputs, activation)
        assert_allclose(found[i].reshape(-1, outputs), expected, rtol=1e-12, atol=1e-13)
        for j in range(predictor.dimension(4)):
            bent = w[i] + 1e-30j * (np.arange(w.shape[1]) == j)
            along = by_formula(bent, data.X[i], hidden, outputs, activation).imag / 1e-30
            assert gradient[i, j] == pytest.approx(
                (s[i].reshape(-1, outputs) * along).sum(), rel=1e-10, abs=1e-12
            )


def test_softplus_and_tanh_hold_far_out():
    """z = +-800: no overflow, softplus(z) = z or 0, gradients 1 or 0."""
    predictor, data = MLP((1,), "softplus"), replace(block(), X=np.full((4, 11, 4), 200.0))
    up = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    down = np.array([-1.0, -1.0, -1.0, -1.0, 1.0, 0.0, 0.0])
    assert_array_equal(predictor.forward(up, data), 800.0)
    assert_array_equal(predictor.forward(down, data), 0.0)
    assert_array_equal(predictor.backward(up, data.share, data)[:, 5], data.share.sum(1))
    assert_array_equal(predictor.backward(down, data.share, data)[:, :4], 0.0)
    assert_array_equal(MLP((1,)).backward(up, data.share, data)[:, :4], 0.0)


def test_hidden_units_can_change_places():
    """The same function, so the same predictions, and gradients that change places alike."""
    predictor, data = MLP((5,), "tanh", 3), block()
    w, s = models(predictor)[0], pushes(predictor, data)
    place = np.array([3, 0, 4, 1, 2])
    entries = np.arange(len(w))
    first, second = entries[:20].reshape(5, 4), entries[20:35].reshape(3, 5)
    order = np.concatenate(
        [first[place].ravel(), second[:, place].ravel(), entries[35:40][place], entries[40:]]
    )
    assert_allclose(predictor.forward(w[order], data), predictor.forward(w, data), rtol=1e-12)
    gradient = predictor.backward(w, s, data)
    assert_allclose(
        predictor.backward(w[order], s, data), gradient[:, order], rtol=1e-11, atol=1e-13
    )
    assert np.abs(gradient[:, order] - gradient).max() > 1e-3


def test_without_hidden_layers_it_is_the_linear_model():
    data, w = block(), models(Linear(True))[0]
    s = pushes(Linear(True), data)
    assert_allclose(MLP(()).forward(w, data), Linear(True).forward(w, data), rtol=1e-13)
    assert_allclose(
        MLP(()).backward(w, s, data), Linear(True).backward(w, s, data), rtol=1e-12, atol=1e-14
    )
    matrix, softmax = np.random.default_rng(0).normal(size=(4, 3)), Softmax(3, fit_intercept=False)
    w = np.concatenate([matrix.T.ravel(), np.zeros(3)])  # (outputs, inputs), as torch has them
    assert_allclose(
        MLP((), classes=3).forward(w, data), softmax.forward(matrix.ravel(), data), rtol=1e-13
    )


# ---- the first model


def test_the_start_has_the_variance_it_says():
    glorot, he = MLP((300,), seed=1).start(200), MLP((300, 100), "relu", seed=1).start(200)
    first = glorot[: 200 * 300]
    assert first.std() == pytest.approx(np.sqrt(2 / 500), rel=0.01)
    assert np.abs(first).max() <= np.sqrt(6 / 500)
    assert he[: 200 * 300].std() == pytest.approx(np.sqrt(2 / 200), rel=0.01)
    assert he[60000:90000].std() == pytest.approx(np.sqrt(2 / 300), rel=0.02)
    last = he[90000:90100]  # no kink behind it
    assert np.abs(last).max() <= np.sqrt(6 / 101)
    assert_array_equal(glorot[-301:], 0.0)
    assert_array_equal(he[-401:], 0.0)


def test_the_start_is_that_of_its_seed():
    assert_array_equal(MLP(seed=3).start(4), MLP(seed=3).start(4))
    assert np.abs(MLP(seed=3).start(4) - MLP(seed=4).start(4)).max() > 0.1
    problem = bf.Problem(bf.Logistic(), MLP())
    assert_array_equal(problem.model_start(4), MLP().start(4))
    assert_array_equal(bf.Problem(bf.Logistic(), Linear(True)).model_start(4), np.zeros(5))


def test_it_is_described_alike_in_every_process():
    model = MLP([8, np.int64(4)], "relu", 3, seed=2)
    assert model == MLP((8, 4), "relu", 3, 2)
    code = (
        "import bonafed as bf; from bonafed.engines.checkpoint import describe; p = bf.MLP((8, 4),"
        " 'relu', 3, 2); print(describe(p)); print(p.start(5).tobytes().hex())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**_environment(), **seed},
        ).stdout
        for seed in ({"PYTHONHASHSEED": "0"}, {"PYTHONHASHSEED": "1"})
    }
    assert runs == {f"{describe(model)}\n{model.start(5).tobytes().hex()}\n"}
    assert describe(model) != describe(replace(model, seed=3))
    assert hash(model) == hash(MLP((8, 4), "relu", 3, 2))


def _environment():
    import os

    return dict(os.environ)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": 16}, "hidden must be a list, each a whole number, got 16"),
        ({"hidden": "16"}, "hidden must be a list"),
        ({"hidden": (16, 0)}, "whole numbers >= 1"),
        ({"hidden": (True,)}, "hidden must be a list, each a whole"),
        ({"hidden": (2.5,)}, "hidden must be a list, each a whole"),
        ({"hidden": (float("nan"),)}, "whole numbers >= 1"),
        ({"hidden": None}, "hidden must be a list"),
        ({"activation": "swish"}, "'tanh', 'relu' or 'softplus'"),
        ({"activation": None}, "activation must be 'tanh'"),
        ({"classes": 1}, "classes must be >= 2"),
        ({"classes": True}, "classes must be >= 2"),
        ({"classes": 3.0}, "classes must be >= 2"),
        ({"seed": -1}, "seed must be"),
        ({"seed": "a"}, "seed must be"),
        ({"seed": True}, "seed must be"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        MLP(**settings)


def test_models_of_another_length_are_refused():
    for predictor, size in (
        (MLP((5,)), 30),
        (MLP((5,)), 32),
        (MLP((5,), classes=3), 31),
        (MLP((5,)), 44),
    ):
        with pytest.raises(ValueError, match="w must have"):
            predictor.forward(np.zeros(size), block())


# ---- problems


def classed(fed=None):
    fed = fed or federation()
    rng = np.random.default_rng(2)
    return bf.Federation(
        fed.clients, fed.X, [rng.integers(0, 3, len(y)) for y in fed.y], classes=np.array([0, 1, 2])
    )


@pytest.mark.parametrize(
    ("loss", "fed", "outputs"),
    [(bf.Logistic(), federation(), None), (bf.Multinomial(), classed(), 3)],
)
def test_a_problem_fits_it_to_its_data(loss, fed, outputs):
    problem = bf.Problem(loss, MLP((5,)), regulariser=bf.L2(0.1))
    concrete, data = problem.at(fed)
    assert concrete.predictor == MLP((5,), classes=outputs)
    w = concrete.model_start(4) + 0.1
    risks = []
    for X, y in zip(fed.X, data.y, strict=True):
        prediction = by_formula(w, X, (5,), outputs or 1, "tanh")
        risks.append(loss.value(prediction if outputs else prediction[:, 0], y).mean())
    weights = w[: 5 * 4 + 5 * (outputs or 1)]  # the intercepts are free
    assert problem.objective(w, fed) == pytest.approx(
        np.mean(risks) + 0.05 * weights @ weights, rel=1e-12
    )
    with pytest.raises(ValueError, match="finite numbers"):
        problem.objective(w[:-1], fed)


def test_cuts_are_values_and_gradients():
    problem, fed = bf.Problem(bf.Multinomial(), MLP((5,)), over_samples=bf.Superquantile(0.4)).at(
        classed()
    )
    (data,) = fed.blocks()
    w, v = (
        models(problem.predictor)[0],
        np.random.default_rng(1).normal(size=problem.predictor.dimension(4)),
    )
    along = (
        problem.client_risks(w + 1e-6 * v, data) - problem.client_risks(w - 1e-6 * v, data)
    ) / 2e-6
    assert_allclose(problem.cut(w, data).gradient @ v, along, rtol=1e-7, atol=1e-8)
    assert not problem.convex
    assert not bf.Problem(bf.Logistic(), MLP()).convex
    assert bf.Problem(bf.Logistic(), PLAIN).convex
    assert not bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.MCP(0.1, 3.0)).convex
    assert not bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.RankedRange(2, 1)).convex


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"over_samples": bf.WassersteinBall(0.1)}, r"affine in the features.*MLP.*use Linear\(\)"),
        ({"over_samples": bf.WassersteinBall(0.0)}, "affine in the features"),
        (
            {"local_constraint": bf.NeymanPearson(1.0, 0.3)},
            "constraints are for predictions that are affine",
        ),
        (
            {"constraint": bf.LinearInequality(np.ones((1, 31)), 0.0)},
            "constraints are for predictions that are affine",
        ),
        (
            {"over_samples": bf.Mean(label=1.0)},
            r"Mean\(label=...\) are for methods with constraints",
        ),
        ({"loss": bf.Quadratic()}, "for methods with constraints"),
        ({"predictor": MLP(classes=3)}, r"Logistic needs the predictor Linear\(\), got MLP"),
    ],
)
def test_what_it_cannot_be_part_of_is_refused(stated, words):
    with pytest.raises((TypeError, ValueError), match=words):
        bf.Problem(**{"loss": bf.Logistic(), "predictor": MLP((5,))} | stated)


def test_another_number_of_classes_is_refused():
    with pytest.raises(ValueError, match="the data have 3 classes and MLP has 4"):
        bf.Problem(bf.Multinomial(), MLP((5,), classes=4)).at(classed())


# ---- predictions on other rows


def test_held_out_rows_of_several_classes():
    fed = classed()
    problem = bf.Problem(bf.Multinomial(), MLP((5,)))
    w = models(problem.at(fed)[0].predictor)[0]
    found = judged(problem, fed, w)
    right = [
        by_formula(w, X, (5,), 3, "tanh").argmax(1) == y for X, y in zip(fed.X, fed.y, strict=True)
    ]
    assert found["accuracy"] == pytest.approx(np.concatenate(right).mean())
    assert found["worst_accuracy"] == pytest.approx(min(r.mean() for r in right))


@pytest.mark.parametrize("sparse", [False, True])
def test_held_out_rows_of_two_classes(sparse):
    from scipy.sparse import csr_array

    fed = federation()
    fed = bf.Federation(fed.clients, [csr_array(X) if sparse else X for X in fed.X], fed.y)
    problem = bf.Problem(bf.Logistic(), MLP((5,)))
    w = models(MLP((5,)))[0]
    found = measure(problem.at(fed)[0], w, fed._with(classes=np.array([-1.0, 1.0])))
    scores = [by_formula(w, X, (5,), 1, "tanh")[:, 0] for X in federation().X]
    right = np.concatenate([(s > 0) == (y > 0) for s, y in zip(scores, fed.y, strict=True)])
    loss = np.concatenate([np.log1p(np.exp(-s * y)) for s, y in zip(scores, fed.y, strict=True)])
    assert found["accuracy"] == pytest.approx(right.mean())
    assert found["loss"] == pytest.approx(loss.mean())
