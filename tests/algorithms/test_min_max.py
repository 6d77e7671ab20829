"""AFL and MultiplierMethod: steps by hand, optima of CVXPY, proofs for every set and regulariser,
what is refused.
"""

import tracemalloc
from dataclasses import dataclass
from typing import ClassVar

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN, SOFTMAX, federation
from scipy import sparse

import bonafed as bf
from bonafed.problem.risks.risk import Worst
from bonafed.solution.plan import configure, default_algorithm
from bonafed.solution.solve import fit

SETS = [
    bf.Mean("size"),
    bf.Simplex(),
    bf.Superquantile(0.4),
    bf.LpBall(0.2, 2),
    bf.LpBall(0.3, 1),
    bf.LpBall(0.1, 1.7),
    bf.Extremile(2.5),
    bf.TopK(2),
    bf.KLBall(0.2),
    bf.ChiSquareBall(0.5),
    bf.TotalVariationBall(0.3),
]


def logistic(fed, w):
    risks, gradients = [], []
    for X, y in zip(fed.X, fed.y, strict=True):
        margin = y * (X @ w)
        risks.append(np.log1p(np.exp(-margin)).mean())
        gradients.append(-(X * (y / (1 + np.exp(margin)))[:, None]).mean(0))
    return np.array(risks), np.array(gradients)


def run(algorithm, problem, fed, rounds, tol=None):
    concrete, data = problem.at(fed)
    algorithm = configure(algorithm, concrete, data, tol, None, rounds, None)
    return algorithm, bf.InProcess().run(algorithm, data)


def reference(problem, fed):
    """Value, model and weights of the clients by CVXPY."""
    w, t = cp.Variable(fed.n_features), cp.Variable(fed.n_clients)
    rows = zip(fed.X, fed.y, strict=True)
    below = [
        cp.sum(cp.logistic(cp.multiply(-y, X @ w))) / len(y) <= t[i]
        for i, (X, y) in enumerate(rows)
    ]
    match problem.over_clients:
        case bf.Simplex():
            risk = cp.max(t)
        case bf.Superquantile(tail):
            s = cp.Variable()
            risk = s + cp.sum(cp.pos(t - s)) / (tail * fed.n_clients)
        case bf.LpBall(radius, p):
            level, slack = cp.Variable(), cp.Variable(fed.n_clients, nonneg=True)
            dual = {1: "inf", 2: 2}[p]
            risk = cp.sum(t + slack) / fed.n_clients + radius * cp.norm(t + slack - level, dual)
        case _:
            risk = fed.sizes / fed.sizes.sum() @ t
    strength = problem.regulariser.strength
    h = (
        strength / 2 * cp.sum_squares(w)
        if isinstance(problem.regulariser, bf.L2)
        else strength * cp.norm1(w)
    )
    program = cp.Problem(cp.Minimize(risk + h), below)
    tol = 1e-10 if isinstance(problem.regulariser, bf.L2) else 1e-8
    program.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
    return program.value, w.value, np.array([float(each.dual_value) for each in below])


# ---- AFL


@pytest.mark.parametrize("regulariser", [bf.L2(0.3), bf.L1(0.05)], ids=str)
def test_two_steps_of_afl_by_hand(regulariser):
    fed, eta, gamma = federation(0, 4), 0.4, 0.6
    over = bf.LpBall(0.3, 2, "size")
    problem, Q = (
        bf.Problem(bf.Logistic(), PLAIN, over_clients=over, regulariser=regulariser),
        over.at(fed.sizes),
    )
    p0, w0 = fed.sizes / fed.sizes.sum(), np.zeros(8)
    f0, g0 = logistic(fed, w0)
    w1, p1 = regulariser.prox(w0 - eta * p0 @ g0, eta), Q.project(p0 + gamma * f0)
    f1, g1 = logistic(fed, w1)
    plain = regulariser.prox(w1 - eta * p1 @ g1, eta), Q.project(p1 + gamma * f1)
    ahead = (
        regulariser.prox(w1 - eta * (2 * p1 @ g1 - p0 @ g0), eta),
        Q.project(p1 + gamma * (2 * f1 - f0)),
    )
    for optimistic, (w2, p2) in ((False, plain), (True, ahead)):
        algorithm, found = run(bf.AFL(eta, gamma, optimistic=optimistic), problem, fed, 2)
        assert_allclose(found.state.trial, w2, rtol=1e-12, atol=1e-15)
        assert_allclose(found.state.weights, p2, rtol=1e-12, atol=1e-15)
        assert_allclose(found.state.w, w1, rtol=1e-12)
        value = Q.value(f1) + regulariser.value(w1)
        assert_allclose(found.history[-1]["objective"], value, rtol=1e-12)
        assert_allclose(algorithm.answer(found.state)[0], w1, rtol=1e-12)
    algorithm, found = run(bf.AFL(eta, gamma, average=True), problem, fed, 2)
    assert_allclose(algorithm.answer(found.state)[0], (w0 + w1) / 2, rtol=1e-12)


@pytest.mark.parametrize("over", SETS[:5], ids=str)
def test_both_methods_reach_the_optimum_of_cvxpy_in_value_model_and_weights(over):
    fed = federation(1, 4, 3, 20)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=over, regulariser=bf.L2(0.05))
    value, w, weights = reference(problem, fed)
    for algorithm, tol in (
        (bf.AFL(), 1e-5),
        (bf.AFL(optimistic=True), 1e-6),
        (bf.MultiplierMethod(), 1e-10),
    ):
        solution = bf.solve(problem, fed, algorithm=algorithm, tol=tol, max_rounds=3000)
        assert solution.outcome.stop is bf.Stop.OPTIMAL
        assert_allclose(solution.certificate.value, value, rtol=2 * tol + 1e-8)
        assert solution.certificate.relative_gap <= tol * (1 + 1e-6)
        # strong convexity: 0.05/2 ||w - w*||^2 <= gap
        near = 3 * np.sqrt(tol * value / 0.05) + 1e-5
        assert_allclose(solution.w, w, atol=near)
        assert_allclose(
            solution.duals.weights, weights, atol={1e-5: 0.05, 1e-6: 0.02, 1e-10: 1e-4}[tol]
        )
        assert problem.over_clients.at(fed.sizes).contains(solution.duals.weights)


def test_the_average_of_afl_comes_near_the_optimum():
    fed = federation(2, 4)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(0.05))
    best = bf.solve(problem, fed, algorithm=bf.MultiplierMethod()).certificate.value
    solution = bf.solve(problem, fed, algorithm=bf.AFL(average=True), max_rounds=800)
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert best <= solution.certificate.value + 1e-9 < best * 1.01


@pytest.mark.parametrize(
    ("loss", "samples", "regulariser"),
    [
        (bf.Hinge(), bf.Mean(), bf.L2(0.05)),
        (bf.Hinge(), bf.WassersteinBall(0.05, 0.5, "l2"), bf.L1(0.01)),
        (bf.Logistic(), bf.WassersteinBall(0.05, 0.5, "linf"), bf.L2(0.05)),
        (bf.Logistic(), bf.Superquantile(0.5), bf.L2(0.05)),
    ],
    ids=str,
)
def test_afl_takes_subgradients_where_gradients_jump(loss, samples, regulariser):
    fed = federation(3, 4)
    problem = bf.Problem(
        loss, PLAIN, over_samples=samples, over_clients=bf.Simplex(), regulariser=regulariser
    )
    best = bf.solve(problem, fed, tol=1e-7).certificate.value
    solution = bf.solve(problem, fed, algorithm=bf.AFL(), max_rounds=600)
    assert -1e-7 <= solution.certificate.value - best < 0.05 * best
    assert solution.certificate.bound <= best * (1 + 1e-7)


# ---- MultiplierMethod


def unlike(N, seed=0, n_features=6):
    """Clients with two of four classes each, in unequal shares: their worst cases differ."""
    rng = np.random.default_rng(seed)
    centres, sizes = rng.normal(size=(4, n_features)), rng.integers(8, 25, N)
    ys = [rng.choice(4, size=m, p=np.roll([0.6, 0.3, 0.1, 0.0], j)) for j, m in enumerate(sizes)]
    X = [
        centres[y] + rng.normal(size=(len(y), n_features)) + 0.2 * rng.normal(size=n_features)
        for y in ys
    ]
    return bf.Federation([f"c{j}" for j in range(N)], X, ys, classes=np.arange(4))


SOME = [
    *SETS,
    bf.Box(0.0, 0.35),
    bf.CDNorm(2.0, 0.08),
    bf.Ellipsoid(np.full(10, 0.02), 0.3),
    bf.WassersteinOverClients(0.6, "index"),
]


@pytest.mark.parametrize("over", SOME, ids=lambda over: type(over).__name__)
def test_the_reference_proves_1e_8_for_every_set(over):
    problem = bf.Problem(bf.Multinomial(), SOFTMAX, over_clients=over, regulariser=bf.L2(1e-2))
    solution = bf.solve(
        problem, unlike(10), algorithm=bf.MultiplierMethod(), tol=1e-8, max_rounds=1000
    )
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert -1e-14 <= solution.certificate.relative_gap <= 1.01e-8
    assert solution.certificate.feasibility < 1e-9


@pytest.mark.parametrize(
    "over",
    [bf.Simplex(), bf.Superquantile(0.1), bf.KLBall(0.5), bf.TotalVariationBall(0.4)],
    ids=str,
)
def test_the_reference_with_a_hundred_clients(over):
    problem = bf.Problem(bf.Multinomial(), SOFTMAX, over_clients=over, regulariser=bf.L2(1e-2))
    solution = bf.solve(
        problem, unlike(100), algorithm=bf.MultiplierMethod(), tol=1e-8, max_rounds=1000
    )
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.relative_gap <= 1.01e-8


@pytest.mark.parametrize("over", [bf.Mean("size"), bf.Sum()], ids=repr)
@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Multinomial()], ids=repr)
def test_fixed_weights_ask_for_the_sum_of_gradients_of_sparse_rows_too(loss, over):
    """It comes to the model and the proof of dense rows, whose gradients are each client's."""
    dense = unlike(5)
    if isinstance(loss, bf.Logistic):
        dense = bf.Federation(dense.clients, dense.X, [np.where(y > 1, 1, -1) for y in dense.y])
    thin = dense.with_features([sparse.csr_array(X) for X in dense.X])
    problem = bf.Problem(loss, over_clients=over, regulariser=bf.L2(1e-2))
    method = bf.MultiplierMethod(tol=1e-10)
    one, other = (bf.solve(problem, fed, algorithm=method) for fed in (dense, thin))
    assert one.outcome.stop is other.outcome.stop is bf.Stop.OPTIMAL
    assert_allclose(one.w, other.w, atol=1e-6)


@pytest.mark.parametrize(("norm", "rounds"), [("l1", 700), ("l2", 150), ("linf", 20)])
def test_a_ball_over_wide_sparse_rows_comes_to_an_end(norm, rounds):
    """Its penalty, a norm, leaves most coefficients at a kink: smoothed, that of the norm "l1" did
    not end in 3,000 rounds.
    """
    rng = np.random.default_rng(0)
    X = sparse.random(300, 600, 0.02, "csr", random_state=0)
    score = X @ (rng.normal(size=600) * 3 / np.sqrt(600))
    y = np.where(score + rng.normal(size=300) > 0, 1.0, -1.0)
    fed = bf.Federation.from_arrays(X, y, np.arange(300) // 50)
    ball = bf.WassersteinBall(0.01, norm=norm)
    problem = bf.Problem(bf.Logistic(), over_clients=bf.LpBall(0.1), over_samples=ball)
    solution = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(tol=1e-6))
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.rounds < rounds


@pytest.mark.parametrize(
    "regulariser", [bf.Ball(0.3), bf.GroupL2(0.05, (0, 0, 0, 1, 1, 1, 2, 2))], ids=repr
)
def test_lengths_end_whatever_the_units(regulariser):
    fed = federation(4, 5, targets="sign")
    units = 10.0 ** np.random.default_rng(2).uniform(-3, 3, 8)
    fed = fed.with_features([X * units for X in fed.X])
    problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=regulariser)
    solution = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(), tol=1e-8)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.rounds < 500


@pytest.mark.parametrize("start", [None, np.linspace(-2, 3, 9)])
def test_a_start_outside_of_the_bounds(start):
    fed = federation(4, 5, targets="sign")
    problem = bf.Problem(bf.Logistic(), regulariser=bf.Bounds(0.1, 0.4))
    solution = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(start=start), tol=1e-8)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    best = bf.solve(problem, fed, algorithm=bf.Bundle(), tol=1e-8).certificate.value
    assert_allclose(solution.certificate.value, best, rtol=3e-8)


REGULARISERS = [
    bf.L1(0.03),
    bf.ElasticNet(0.02, 0.05),
    bf.Bounds(-0.3, 0.4),
    bf.GroupL2(0.04, (0, 0, 1, 1, 2, 2, 3, 3)),
]


@pytest.mark.parametrize("regulariser", REGULARISERS, ids=lambda h: type(h).__name__)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "loss", [bf.Logistic(), bf.Huber(0.5)], ids=lambda loss: type(loss).__name__
)
def test_any_regulariser_with_a_prox(regulariser, intercept, loss):
    fed = federation(4, 5, targets=loss.targets)
    problem = bf.Problem(
        loss, bf.Linear(intercept), over_clients=bf.Superquantile(0.5), regulariser=regulariser
    )
    solution = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(), tol=1e-8, max_rounds=2000)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.relative_gap <= 1.01e-8
    if not isinstance(regulariser, bf.GroupL2):
        assert_allclose(
            solution.certificate.value,
            bf.solve(problem, fed, tol=1e-8).certificate.value,
            rtol=3e-8,
        )
    coefficients = solution.w[:8]
    if isinstance(regulariser, bf.Bounds):
        assert coefficients.min() >= -0.3
        assert coefficients.max() <= 0.4
        assert np.isin(coefficients, (-0.3, 0.4)).any()


def test_zeros_are_zeros():
    fed = federation(5, 4, 3, 20)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L1(0.1))
    value, w, _ = reference(problem, fed)
    solution = bf.solve(problem, fed, algorithm=bf.MultiplierMethod())
    assert_allclose(solution.certificate.value, value, rtol=1e-7)
    assert_allclose(solution.w, w, atol=1e-3)
    assert ((solution.w == 0) == (np.abs(w) < 1e-4)).all()
    assert (solution.w == 0).any()


def test_without_a_regulariser_nothing_is_proven_and_that_is_said():
    fed = federation(6, 4, targets="real")
    problem = bf.Problem(bf.Squared(), PLAIN, over_clients=bf.Simplex())
    solution = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(), tol=1e-8)
    assert solution.outcome.stop is bf.Stop.UNPROVEN
    assert "L2(1e-3)" in solution.outcome.text
    w, t = cp.Variable(8), cp.Variable()
    rows = zip(fed.X, fed.y, strict=True)
    below = [cp.sum_squares(X @ w - y) / (2 * len(y)) <= t for X, y in rows]
    best = cp.Problem(cp.Minimize(t), below).solve(solver=cp.CLARABEL)
    assert_allclose(solution.certificate.value, best * problem_scale(problem, fed), rtol=1e-7)


def problem_scale(problem, fed):
    """Squared() over the half of it."""
    own = problem.loss.value(np.array([2.0]), np.array([0.0]))[0]
    return own / 2.0


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_the_units_of_features_and_losses_change_little(scale):
    fed = federation(7, 5)
    other = bf.Federation(fed.clients, [scale * x for x in fed.X], fed.y)

    def make(strength):
        return bf.Problem(
            bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(strength)
        )

    one = bf.solve(make(0.01), fed, algorithm=bf.MultiplierMethod())
    two = bf.solve(make(0.01 * scale**2), other, algorithm=bf.MultiplierMethod())
    assert two.outcome.stop is bf.Stop.OPTIMAL
    assert_allclose(two.certificate.value, one.certificate.value, rtol=3e-9)
    assert two.rounds < 2 * one.rounds + 20


def test_the_answer_when_stopped_early_is_proven_as_far_as_it_goes():
    fed = federation(8, 5)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.L2(0.01))
    best = bf.solve(problem, fed, algorithm=bf.MultiplierMethod()).certificate.value
    for algorithm in (bf.MultiplierMethod(), bf.AFL()):
        for rounds in (1, 2, 5, 15):
            solution = bf.solve(problem, fed, algorithm=algorithm, max_rounds=rounds, tol=1e-12)
            assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
            assert solution.rounds == rounds + 1  # and one that asks for sizes
            assert (
                solution.certificate.bound
                <= best * (1 + 1e-9)
                <= solution.certificate.value * (1 + 2e-9)
            )


def test_a_network_gets_better_and_nothing_is_claimed():
    fed = unlike(6)
    problem = bf.Problem(
        bf.Multinomial(), bf.MLP((5,)), over_clients=bf.Simplex(), regulariser=bf.L2(1e-3)
    )
    first = problem.at(fed)[0].model_start(6)
    start = problem.objective(first, fed)
    for algorithm in (bf.AFL(), bf.MultiplierMethod()):
        solution = bf.solve(problem, fed, algorithm=algorithm, max_rounds=150)
        assert solution.certificate.value < 0.8 * start
        assert solution.certificate.bound is None
        assert solution.outcome.stop is not bf.Stop.OPTIMAL


# ---- what is refused


@dataclass(frozen=True)
class Own:
    """A set with a maximiser alone."""

    def at(self, sizes, names=None):
        return self

    def value(self, losses):
        return float(np.max(losses))

    def weights(self, losses):
        return np.eye(len(losses))[int(np.argmax(losses))]

    def worst(self, losses):
        return Worst(self.value(losses), self.weights(losses), self.value(losses))


@pytest.mark.parametrize(
    ("algorithm", "problem", "match"),
    [
        (bf.MultiplierMethod(), bf.Problem(bf.Hinge(), PLAIN), r"Bundle.*Logistic\(\)"),
        (
            bf.MultiplierMethod(),
            bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.3)),
            "Bundle",
        ),
        (
            bf.MultiplierMethod(),
            bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.WassersteinBall(0.1, 0.5)),
            "Bundle",
        ),
        (bf.MultiplierMethod(), bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.MCP(0.1)), "AFL"),
        (bf.MultiplierMethod(), bf.Problem(bf.Logistic(), PLAIN, over_clients=Own()), "project"),
        (bf.AFL(), bf.Problem(bf.Logistic(), PLAIN, over_clients=Own()), "project"),
    ],
)
def test_what_cannot_be_done_names_what_can(algorithm, problem, match):
    with pytest.raises(ValueError, match=match):
        bf.solve(problem, federation(0), algorithm=algorithm)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "1", True])
@pytest.mark.parametrize("name", ["step_size", "weight_step", "mu"])
def test_settings_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        (bf.MultiplierMethod if name == "mu" else bf.AFL)(**{name: value})


def test_a_step_that_diverges_is_said():
    problem = bf.Problem(bf.Squared(), PLAIN, over_clients=bf.Simplex())
    with np.errstate(all="ignore"):
        algorithm = bf.AFL(1e9, 1e-3)
        found = fit(problem, federation(0, targets="real"), algorithm=algorithm, max_rounds=300)
    assert found.outcome.stop is bf.Stop.STALLED
    assert "step_size" in found.outcome.text


def test_nonconvex_regularisers_by_gradient_steps():
    fed = federation(9, 4)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.Simplex(), regulariser=bf.SCAD(0.02))
    _, found = run(bf.AFL(), problem, fed, 200)
    assert found.state.value < 0.9 * np.log(2)
    assert found.state.bound == -np.inf


def in_units(scale):
    """One table, with its columns in other units."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((300, 6))
    y = np.where(X.sum(1) + rng.standard_normal(300) > 0, 1, -1)
    return bf.Federation.from_arrays(X * scale, y, np.arange(300) % 3)


def test_the_multiplier_method_takes_the_same_steps_in_all_units_of_columns():
    units, problem = np.geomspace(1e-3, 1e3, 6), bf.Problem(bf.Logistic(), bf.Linear(True))
    with pytest.warns(bf.UnprovenWarning):
        runs = [
            bf.solve(problem, in_units(scale), algorithm=bf.MultiplierMethod())
            for scale in (np.ones(6), units)
        ]
    assert abs(runs[0].rounds - runs[1].rounds) <= 2
    assert_allclose(runs[1].w[:-1] * units, runs[0].w[:-1], rtol=1e-4)


@pytest.mark.parametrize("regulariser", [bf.L1(1e-3), bf.ElasticNet(1e-3, 1e-3), bf.L2(1e-3)])
def test_the_multiplier_method_proves_its_gap_where_columns_have_unlike_units(regulariser):
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), regulariser=regulariser)
    fed = in_units(np.geomspace(1e-2, 1e4, 6))
    run = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(tol=1e-6, max_rounds=100))
    assert run.certificate.relative_gap <= 1e-6


@dataclass(frozen=True)
class Bare:
    """x'w, with no more than the protocol of predictors names."""

    convex: ClassVar[bool] = True
    outputs: ClassVar[tuple[int, int]] = (1, 1)

    def sized(self, n_features, classes):
        return self

    def dimension(self, n_features):
        return n_features

    def forward(self, w, block):
        return block.forward(w)

    def backward(self, w, s, block):
        return block.backward(s)

    def split(self, w):
        return w, 0.0


@pytest.mark.parametrize("algorithm", [bf.MultiplierMethod(), bf.AsyncDRO(), bf.AFL()])
def test_a_predictor_that_says_nothing_of_its_units(algorithm):
    fed, h = in_units(np.ones(6)), bf.L2(0.1)
    own = bf.Problem(bf.Logistic(), Bare(), regulariser=h)
    with pytest.warns(bf.UnprovenWarning):
        run = bf.solve(own, fed, algorithm=algorithm)
    known = bf.solve(bf.Problem(bf.Logistic(), PLAIN, regulariser=h), fed)
    assert_allclose(run.w, known.w, atol=2e-2)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("risk", [bf.Mean(), bf.LpBall(0.1), bf.Simplex()])
@pytest.mark.parametrize("h", [bf.Zero(), bf.L2(0.01)])
def test_a_ball_of_one_radius_is_a_norm_of_the_model(norm, risk, h):
    ball, fed = bf.WassersteinBall(0.02, norm=norm), in_units(np.geomspace(1e-2, 10, 6))
    parts = {"over_clients": risk, "over_samples": ball, "regulariser": h}
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), **parts)
    run = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(tol=1e-7, max_rounds=500))
    other = bf.solve(problem, fed, algorithm=bf.Bundle(tol=1e-8))
    assert run.certificate.relative_gap <= 1e-7
    assert_allclose(run.certificate.value, other.certificate.value, rtol=2e-7)
    worst = max(row["worst_loss"] for row in run.clients)
    assert_allclose(run.history[-1]["worst_risk"], worst, rtol=1e-6)


def alike(n, d, much, targets="sign"):
    """Rows of columns that share five factors, which stand out by so much."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d)) + much * rng.normal(size=(n, 5)) @ rng.normal(size=(5, d))
    score = X @ rng.normal(size=d) / np.sqrt(d) + rng.normal(size=n)
    y = score if targets == "real" else np.where(score > 0, 1.0, -1.0)
    return bf.Federation.from_arrays(X, y, np.arange(n) % 5)


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Squared(), bf.Huber(1.0)], ids=repr)
@pytest.mark.parametrize("over", [bf.Mean("size"), bf.LpBall(0.1)], ids=repr)
def test_columns_that_are_alike_slow_no_default_down(loss, over):
    """In the units of the columns they took ten times the rounds."""
    fed = alike(6000, 20, 10.0, loss.targets)
    problem = bf.Problem(loss, over_clients=over, regulariser=bf.L2(1e-3))
    chosen = default_algorithm(*problem.at(fed))
    assert chosen == bf.MultiplierMethod(tol=bf.Bundle.tol, metric="hessian")
    solution = bf.solve(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.rounds < 50
    plain = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(tol=1e-6))
    assert plain.rounds > 2 * solution.rounds
    assert_allclose(plain.certificate.value, solution.certificate.value, rtol=2e-6)


@pytest.mark.parametrize(
    "added",
    [
        {"regulariser": bf.L1(1e-3)},
        {"regulariser": bf.ElasticNet(1e-3, 1e-3), "over_clients": bf.KLBall(0.1)},
        {"over_samples": bf.WassersteinBall(0.01), "over_clients": bf.LpBall(0.1)},
        {"over_samples": bf.WassersteinBall(0.01, norm="l2")},
    ],
    ids=repr,
)
def test_columns_that_are_alike_slow_no_default_down_beside_a_kink(added):
    """After rounds of gradients, which end where columns differ, second derivatives are asked for:
    gradients only took hundreds of rounds.
    """
    problem = bf.Problem(bf.Logistic(), **added)
    for much in (0.0, 10.0):
        fed = alike(6000, 20, much)
        chosen = default_algorithm(*problem.at(fed))
        assert chosen == bf.Bundle(gradient_rounds=20, max_rounds=320)
        solution = bf.solve(problem, fed)
        assert solution.outcome.stop is bf.Stop.OPTIMAL
        asked = {row["message"] for row in solution.messages}
        assert ("Evaluate" in asked) == (much > 0)
        assert solution.rounds < 35
    plain = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(tol=1e-6))
    assert plain.rounds > 2 * solution.rounds
    cut = bf.solve(problem, fed, algorithm=bf.Bundle())
    assert_allclose(plain.certificate.value, solution.certificate.value, rtol=2e-6)
    assert_allclose(cut.certificate.value, solution.certificate.value, rtol=2e-6)


def test_rounds_of_gradients_need_a_problem_of_the_method_of_multipliers():
    fed = alike(100, 3, 0.0)
    for problem in (
        bf.Problem(bf.Hinge(), regulariser=bf.L2(0.1)),
        bf.Problem(bf.Logistic(), over_samples=bf.WassersteinBall(0.1, label_cost=1.0)),
    ):
        with pytest.raises(ValueError, match=r"gradient_rounds=5: .*MultiplierMethod needs"):
            bf.solve(problem, fed, algorithm=bf.Bundle(gradient_rounds=5))
    with pytest.raises(ValueError, match="whole number >= 0"):
        bf.Bundle(gradient_rounds=-1)
    with pytest.raises(ValueError, match="gradient_tol"):
        bf.Bundle(gradient_tol=-1.0)


def test_a_cap_within_the_rounds_of_gradients_keeps_their_model_and_bound():
    fed = alike(400, 5, 10.0)
    problem = bf.Problem(bf.Logistic(), over_clients=bf.LpBall(0.1), regulariser=bf.L1(1e-3))
    short = bf.solve(problem, fed, algorithm=bf.Bundle(gradient_rounds=30), max_rounds=12)
    plain = bf.solve(problem, fed, algorithm=bf.MultiplierMethod(tol=1e-6), max_rounds=12)
    assert short.outcome.stop is bf.Stop.MAX_ROUNDS
    assert (short.w == plain.w).all()
    assert short.certificate.bound == plain.certificate.bound
    assert np.isfinite([row["objective"] for row in short.history[2:]]).all()


def test_second_derivatives_of_a_table_need_no_copy_of_it():
    X = np.random.default_rng(0).normal(size=(1, 200_000, 20))
    block = bf.Federation(["all"], [X[0]], [np.ones(200_000)]).blocks()[0]
    share = np.linspace(0.0, 1.0, 200_000)[None]
    tracemalloc.start()
    square = block.gram(share)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 2
    assert_allclose(square, X[0].T @ (share.T * X[0]), rtol=1e-10, atol=1e-8)


@pytest.mark.filterwarnings("ignore")  # exponentials that overflow
@pytest.mark.parametrize("loss", [bf.Poisson(), bf.Exponential()], ids=repr)
def test_second_derivatives_and_penalties_of_a_far_start_are_left(loss):
    """They are 1e20 times too large at the end, and the penalty of the weights is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5)) + 5.0 * rng.normal(size=(400, 1))
    score = X @ rng.normal(size=5) + rng.normal(size=400)
    counts = rng.poisson(np.exp(np.clip(score, -2, 2))).astype(float)
    y = np.where(score > 0, 1.0, -1.0) if loss.targets == "sign" else counts
    fed = bf.Federation.from_arrays(X, y, np.arange(400) % 3)
    problem = bf.Problem(loss, over_clients=bf.Simplex(), regulariser=bf.L2(1e-6))
    start = 10 * np.random.default_rng(3).normal(size=6)
    for metric in ("units", "hessian"):
        algorithm = bf.MultiplierMethod(metric=metric, start=start, tol=1e-6)
        solution = bf.solve(problem, fed, algorithm=algorithm)
        assert solution.outcome.stop is bf.Stop.OPTIMAL
        assert solution.rounds < 700
