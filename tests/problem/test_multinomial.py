"""Several classes: the loss and its predictor, and solutions against scikit-learn, SciPy and
CVXPY.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
from problems import PLAIN, SOFTMAX
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

import bonafed as bf
from bonafed.arrays import Block
from bonafed.problem.losses import Loss
from bonafed.problem.rank_levels import kernel_of
from bonafed.runs.evaluation import measure
from bonafed.solution.plan import configure
from bonafed.solution.solve import judged

NAMES = np.array(["apple", "pear", "plum"])


def data(n=60, d=4, seed=0, clients=1, apart=1.2):
    """Three classes, labelled in an order that is not that of the classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = np.c_[rng.normal(size=(n, d - 1)) + apart * np.eye(3, d - 1)[y], np.ones(n)]
    return bf.Federation.from_arrays(X, NAMES[y], np.arange(n) % clients), X, y


def problem(risk=None, regulariser=None):
    return bf.Problem(
        bf.Multinomial(),
        SOFTMAX,
        over_samples=risk or bf.Mean(),
        regulariser=regulariser or bf.L2(0.05),
    )


def block_of(X, y):
    share = np.full(y.shape, 1 / y.shape[1])
    return Block(X, y, share, np.arange(len(y)), tuple(f"client {i}" for i in range(len(y))))


# ---- the loss


def test_it_is_a_loss_with_its_derivatives():
    rng = np.random.default_rng(0)
    loss, p, y = (
        bf.Multinomial(),
        3 * rng.normal(size=(2, 50, 4)),
        rng.integers(4, size=(2, 50)).astype(float),
    )
    assert isinstance(loss, Loss)
    value, gradient = loss.value(p, y), loss.gradient(p, y)
    own = np.take_along_axis(p, y.astype(int)[..., None], -1)[..., 0]
    np.testing.assert_allclose(value, np.log(np.exp(p).sum(-1)) - own, rtol=1e-12, atol=1e-13)
    for c in range(4):
        z = p.astype(complex)
        z[..., c] += 1e-30j
        moved = (
            np.log(np.exp(z).sum(-1)) - np.take_along_axis(z, y.astype(int)[..., None], -1)[..., 0]
        )
        np.testing.assert_allclose(gradient[..., c], moved.imag / 1e-30, rtol=1e-12, atol=1e-15)
        step = np.zeros(4)
        step[c] = 1e-5
        bend = (loss.gradient(p + step, y) - loss.gradient(p - step, y))[..., c] / 2e-5
        np.testing.assert_allclose(loss.curvature(p, y)[..., c], bend, atol=1e-9)
    np.testing.assert_allclose(gradient.sum(-1), 0, atol=1e-15)


def test_it_is_convex_and_lipschitz_and_never_overflows():
    rng = np.random.default_rng(1)
    loss, y = bf.Multinomial(), rng.integers(3, size=500).astype(float)
    a, b = (
        rng.normal(size=(500, 3)) * 10.0 ** rng.integers(-3, 3, size=(500, 1)) for _ in range(2)
    )
    here, there, gradient = loss.value(a, y), loss.value(b, y), loss.gradient(a, y)
    room = 1e-12 * (1 + np.abs(a).max(1) + np.abs(b).max(1))
    assert (here >= 0).all()
    assert (there >= here + (gradient * (b - a)).sum(1) - room).all()
    assert (np.linalg.norm(gradient, axis=1) <= loss.lipschitz).all()
    far = np.array([[900.0, -900.0, 0.0]])
    assert loss.value(far, np.ones(1)).tolist() == [1800.0]
    assert loss.value(far, np.zeros(1)).tolist() == [0.0]
    np.testing.assert_allclose(np.linalg.norm(loss.gradient(far, np.ones(1))), loss.lipschitz)


def test_two_classes_are_the_logistic_loss():
    t, y = np.linspace(-4, 4, 41), np.repeat(1.0, 41)
    pair = np.stack([-t / 2, t / 2], -1)
    np.testing.assert_allclose(
        bf.Multinomial().value(pair, y), bf.Logistic().value(t, y), rtol=1e-13
    )


# ---- the predictor


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("each", [False, True])
def test_forward_and_backward_are_adjoint(sparse, each):
    rng, n = np.random.default_rng(2), 1 if sparse else 3
    X, y = rng.normal(size=(n, 7, 5)), np.zeros((n, 7))
    block = block_of(csr_array(X[0]) if sparse else X, y)
    softmax = bf.Softmax(4, fit_intercept=False)
    w, s = rng.normal(size=(n, 20) if each else 20), rng.normal(size=(n, 7, 4))
    prediction = softmax.forward(w, block)
    for i in range(n):
        np.testing.assert_allclose(
            prediction[i], X[i] @ (w[i] if each else w).reshape(5, 4), rtol=1e-12
        )
        gradient = softmax.backward(w, s, block)
        np.testing.assert_allclose(
            gradient[i] @ (w[i] if each else w), (prediction[i] * s[i]).sum(), rtol=1e-10
        )


def test_a_cut_is_value_and_gradient_in_padded_blocks():
    fed, _, _ = data(50, clients=3)
    concrete, fed = problem(bf.Superquantile(0.4)).at(fed.restrict(["0", "1"]))
    (block,) = fed.blocks()
    assert len(set(fed.sizes)) == 1 or (block.share == 0).any()
    w = np.random.default_rng(0).normal(size=12)
    cut = concrete.cut(w, block)
    for i, at in enumerate(block.index.tolist()):
        alone = concrete.cut(w, fed.block(at))
        np.testing.assert_allclose(cut.base[i], alone.base[0], rtol=1e-12)
        np.testing.assert_allclose(cut.gradient[i], alone.gradient[0], rtol=1e-11, atol=1e-14)
        gradient = [
            (
                concrete.cut(w + h, fed.block(at)).base[0]
                - concrete.cut(w - h, fed.block(at)).base[0]
            )
            / 2e-6
            for h in 1e-6 * np.eye(12)
        ]
        np.testing.assert_allclose(alone.gradient[0], gradient, atol=1e-7)


def test_classes_are_numbered_in_sorted_order_everywhere():
    fed, _, y = data(clients=2)
    concrete, coded = problem().at(fed)
    assert concrete.predictor == bf.Softmax(3, fit_intercept=False)
    assert np.concatenate(coded.y).tolist() == np.concatenate([y[::2], y[1::2]]).tolist()
    lone = bf.Federation(["a"], [np.eye(2)], [np.array(["plum", "pear"])], classes=NAMES)
    concrete, coded = problem().at(lone)
    assert concrete.predictor == bf.Softmax(3, fit_intercept=False)
    assert coded.y[0].tolist() == [2.0, 1.0]
    # whole numbers that were read as floats
    numbers = bf.Federation(["a"], [np.eye(3)], [np.array([7.0, -1.0, 3.0])])
    assert problem().at(numbers)[1].y[0].tolist() == [2.0, 0.0, 1.0]


# ---- optima


def optimum(X, y, strength):
    """ERM by L-BFGS, from the formula."""
    n, d = X.shape

    def objective(w):
        p = X @ w.reshape(d, 3)
        top = p.max(1, keepdims=True)
        odds = np.exp(p - top)
        total = odds.sum(1)
        share = odds / total[:, None]
        share[np.arange(n), y] -= 1
        value = (np.log(total) + top[:, 0] - p[np.arange(n), y]).mean() + strength / 2 * w @ w
        return value, (X.T @ share / n).ravel() + strength * w

    return minimize(
        objective,
        np.zeros(3 * d),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10},
    )


def test_the_mean_against_scipy_and_scikit_learn():
    fed, X, y = data()
    solution = bf.solve(problem(), fed, tol=1e-9)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(optimum(X, y, 0.05).fun, rel=1e-8)
    model = LogisticRegression(
        C=1 / (0.05 * len(y)), fit_intercept=False, tol=1e-10, max_iter=1000
    ).fit(X, NAMES[y])
    assert model.classes_.tolist() == NAMES.tolist()
    np.testing.assert_allclose(solution.w.reshape(4, 3), model.coef_.T, atol=2e-4)
    assert problem().objective(model.coef_.T.ravel(), fed) == pytest.approx(
        solution.certificate.value, rel=1e-7
    )


@pytest.mark.parametrize(
    "regulariser", [bf.L2(0.05), bf.L1(0.02), bf.ElasticNet(0.01, 0.05)], ids=repr
)
def test_the_superquantile_against_cvxpy(regulariser):
    fed, X, y = data(40)
    W, cap = cp.Variable((4, 3)), cp.Variable()
    P = X @ W
    losses = cp.log_sum_exp(P, axis=1) - cp.sum(cp.multiply(P, np.eye(3)[y]), axis=1)
    l1, l2 = {bf.L2: (0.0, 0.05), bf.L1: (0.02, 0.0), bf.ElasticNet: (0.01, 0.05)}[
        type(regulariser)
    ]
    h = l1 * cp.sum(cp.abs(W)) + l2 / 2 * cp.sum_squares(W)
    central = cp.Problem(cp.Minimize(cap + cp.sum(cp.pos(losses - cap)) / (0.3 * 40) + h)).solve(
        cp.CLARABEL
    )
    solution = bf.solve(problem(bf.Superquantile(0.3), regulariser), fed, tol=1e-7)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(central, rel=1e-6)
    assert solution.certificate.bound <= central * (1 + 1e-7)


def test_several_clients_and_the_worst_weighting_of_them():
    fed, X, y = data(90, clients=3)
    robust = bf.Problem(
        bf.Multinomial(), SOFTMAX, over_clients=bf.LpBall(0.2), regulariser=bf.L2(0.05)
    )
    solution = bf.solve(robust, fed)
    assert solution.certificate.relative_gap <= 1e-6
    # the mean is one of the weightings
    assert solution.certificate.bound >= optimum(X, y, 0.05).fun * (1 - 1e-6)
    plain = bf.solve(problem(), fed)
    assert plain.certificate.value == pytest.approx(optimum(X, y, 0.05).fun, rel=1e-6)
    assert solution.certificate.client_risks.max() < plain.certificate.client_risks.max()


def test_bounds_on_coefficients_hold():
    fed, _, _ = data()
    solution = bf.solve(problem(regulariser=bf.Bounds(-0.2, 0.3)), fed)
    assert solution.certificate.relative_gap <= 1e-6
    assert solution.w.min() >= -0.2 - 1e-12
    assert solution.w.max() <= 0.3 + 1e-12


def test_two_classes_are_logistic_regression():
    """With w_1 = -w_0 the loss is that of 2 w_1, and half its squared length is counted twice."""
    _, X, y = data()
    pair = bf.Federation(["a"], [X], [y == 2])
    several = bf.solve(problem(regulariser=bf.L2(0.1)), pair, tol=1e-7)
    one = bf.solve(bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.05)), pair, tol=1e-7)
    assert several.certificate.value == pytest.approx(one.certificate.value, rel=1e-7)
    W = several.w.reshape(4, 2)
    np.testing.assert_allclose(W[:, 1] - W[:, 0], one.w, atol=1e-3)


RISKS = [
    bf.Mean(),
    bf.Superquantile(0.3),
    bf.Extremile(2),
    bf.ExponentialSpectral(1.0),
    bf.Maximum(),
    bf.TopK(9),
    bf.RankedRange(50, 5),
    bf.RankedRange(30, 5, "descending"),
    bf.Median(),
    bf.ValueAtRisk(0.7),
    bf.HumanAligned(0.4, 0.3),
    bf.ProspectTheory(),
]


@pytest.mark.parametrize("risk", RISKS, ids=repr)
@pytest.mark.parametrize(
    "algorithm", [bf.SGD(0.05), bf.LSVRG(0.01), bf.LSVRG(0.01, False)], ids=["SGD", "U", "NU"]
)
def test_stochastic_methods_take_every_rank_risk(risk, algorithm):
    fed, _, _ = data(apart=5.0)
    stated = problem(risk)
    concrete, coded = stated.at(fed)
    run = bf.InProcess().run(
        configure(algorithm, concrete, coded, None, None, 8, None), coded, seed=1
    )
    losses = np.sort(
        bf.Multinomial().value(
            bf.Softmax(3, fit_intercept=False).forward(run.state.w, coded.block(0)),
            coded.block(0).y,
        )[0]
    )
    expected = risk.value(losses) + 0.025 * run.state.w @ run.state.w
    assert run.state.value == pytest.approx(expected, rel=1e-12)
    assert run.state.value < stated.objective(np.zeros(12), fed)


def test_lsvrg_comes_near_the_optimum():
    fed, X, y = data()
    run_at, coded = problem().at(fed)
    algorithm = configure(bf.LSVRG(0.05), run_at, coded, 1e-5, None, 100, None)
    run = bf.InProcess().run(algorithm, coded, seed=1)
    assert run.outcome.stop is bf.Stop.OPTIMAL
    assert run.state.value == pytest.approx(optimum(X, y, 0.05).fun, rel=1e-5)
    assert run.state.bound <= optimum(X, y, 0.05).fun * (1 + 1e-9)


def test_held_out_accuracy_counts_the_class_of_the_largest_prediction():
    fed, X, y = data()
    solution = bf.solve(problem(), fed)
    share = ((X @ solution.w.reshape(4, 3)).argmax(1) == y).mean()
    assert judged(problem(), fed, solution.w)["accuracy"] == pytest.approx(share)
    assert share > 0.6


# ---- refusals


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (
            lambda: bf.Problem(bf.Multinomial(), bf.Linear()),
            r"Multinomial needs the predictor Softmax\(\), got Linear",
        ),
        (
            lambda: bf.Problem(bf.Hinge(), SOFTMAX),
            r"Hinge needs the predictor Linear\(\), got Softmax",
        ),
        (lambda: bf.Softmax(1, fit_intercept=False), "classes must be >= 2"),
        (lambda: SOFTMAX.dimension(4), "knows its classes from the data"),
        (
            lambda: kernel_of(bf.Multinomial()),
            "Multinomial is not an increasing function of one rank coordinate",
        ),
    ],
)
def test_what_does_not_fit_is_refused(build, words):
    with pytest.raises((TypeError, ValueError), match=words):
        build()


@pytest.mark.parametrize(
    ("predictor", "y", "words"),
    [
        (
            bf.Softmax(4, fit_intercept=False),
            NAMES[[0, 1, 2]],
            "the data have 3 classes and Softmax has 4",
        ),
        (SOFTMAX, NAMES[[1, 1, 1]], "two classes or more"),
        (SOFTMAX, np.array([0.5, 1.0, 2.0]), "needs class labels, got real targets"),
    ],
)
def test_targets_that_are_no_classes_are_refused(predictor, y, words):
    with pytest.raises(ValueError, match=words):
        bf.Problem(bf.Multinomial(), predictor).at(bf.Federation(["a"], [np.eye(3)], [y]))


def test_coded_targets_are_never_coded_again():
    fed, _, _ = data()
    with pytest.raises(ValueError, match="targets outside the classes"):
        problem().at(problem().at(fed)[1])


@pytest.mark.parametrize(
    "algorithm",
    [bf.ADLPMM(), bf.EpigraphADMM(), bf.DoubleLoop(), bf.Bundle(metric="hessian")],
    ids=repr,
)
def test_methods_for_one_prediction_a_row_refuse(algorithm):
    with pytest.raises(ValueError, match=r"Multinomial.*[Uu]se"):
        bf.solve(problem(), data()[0], algorithm=algorithm)


def test_the_central_program_refuses_and_models_of_several_classes_are_measured():
    fed, _, _ = data()
    with pytest.raises(ValueError, match=r"Multinomial\(\): use Bundle"):
        bf.CentralConic().solve(problem(), fed)
    assert measure(problem(), np.zeros(12), fed)
    with pytest.raises(ValueError, match="w must be 12 finite numbers"):
        problem().objective(np.zeros(4), fed)
    assert problem().objective(np.zeros(12), fed) == pytest.approx(math.log(3))
