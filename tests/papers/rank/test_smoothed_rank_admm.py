"""The smoothed rank ADMM: the envelope, one step by hand, optima of the convex problems, residuals
of the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import PLAIN
from scipy.optimize import minimize

import bonafed as bf
from bonafed.algorithms.pooled.rank_subproblems import RankTask
from bonafed.algorithms.pooled.single_client import Advance
from bonafed.solution.plan import configure

TAIL = bf.Superquantile(0.3)
SHRINKING = bf.Smoothing()
CONVEX = [bf.Zero(), bf.L2(0.3), bf.L1(0.2), bf.ElasticNet(0.2, 0.3), bf.Bounds(-0.1, 0.2)]


def data(n=60, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(2 * X[:, 0] - X[:, 1] + 0.8 * rng.normal(size=n) > 0, 1.0, -1.0)
    return bf.Federation(["all"], [X], [y])


def task_of(problem, fed):
    concrete, fed = problem.at(fed)
    return RankTask.of(concrete, fed.block(0))


def envelope(g, w, gamma):
    """(7), from its definition at the prox."""
    u = g.prox(w, gamma)
    return g.value(u) + ((u - w) ** 2).sum() / (2 * gamma)


# ---- the envelope


@pytest.mark.parametrize(
    "g", [*CONVEX[1:], bf.MCP(0.2, 3.0), bf.SCAD(0.2, 3.7)], ids=lambda g: type(g).__name__
)
@pytest.mark.parametrize("gamma", [0.01, 0.3])
def test_gradient_of_the_envelope(g, gamma):
    """(8) by finite differences of (7), and a gradient of g at the prox."""
    w = np.random.default_rng(1).normal(size=40)
    gradient = (w - g.prox(w, gamma)) / gamma
    steps = 1e-6 * np.eye(40)
    differences = [(envelope(g, w + h, gamma) - envelope(g, w - h, gamma)) / 2e-6 for h in steps]
    np.testing.assert_allclose(gradient, differences, atol=1e-7)
    assert envelope(g, w, gamma) <= g.value(w)
    at = g.prox(w, gamma)
    for u in np.random.default_rng(2).normal(size=(50, 40)):
        below = g.value(at) + gradient @ (u - at) - g.weak_convexity / 2 * ((u - at) ** 2).sum()
        assert below <= g.value(u) + 1e-12


@pytest.mark.parametrize(
    "g", [*CONVEX, bf.MCP(0.2, 3.0), bf.SCAD(0.2, 3.7)], ids=lambda g: type(g).__name__
)
@pytest.mark.parametrize("gamma", [1e-9, 0.05, 0.3])
def test_prox_of_the_envelope(g, gamma):
    """Entry by entry the least of step M(w) + (w - v)^2 / 2, near and far."""
    task = task_of(bf.Problem(bf.Logistic(), PLAIN, regulariser=g), data())
    v, step = np.linspace(-1.0, 1.0, 5), 0.7
    w = task.envelope_prox(v, step, gamma)
    for at, near in zip(w, v, strict=True):

        def cost(x, near=near):
            return step * envelope(g, np.array([x]), gamma) + (x - near) ** 2 / 2

        around = [at + h for h in (-1e-2, -1e-4, -1e-6, 1e-6, 1e-4, 1e-2)]
        assert all(cost(at) <= cost(x) + 1e-13 for x in (*around, *np.linspace(-1.5, 1.5, 301)))


@pytest.mark.parametrize("g", [bf.Zero(), bf.L2(0.3), bf.L1(0.2), bf.ElasticNet(0.2, 0.3)], ids=str)
@pytest.mark.parametrize(("n", "d"), [(40, 5), (6, 9)])
@pytest.mark.parametrize("gamma", [0.3, 0.02])
def test_model_step(g, n, d, gamma):
    """Against L-BFGS on rho / 2 ||D w - v||^2 + M(w) + r / 2 ||w - near||^2."""
    task, rng = (
        task_of(bf.Problem(bf.Logistic(), PLAIN, regulariser=g), data(n, d)),
        np.random.default_rng(3),
    )
    D, v, near, rho, r = task.design.D, rng.normal(size=n), rng.normal(size=d), 0.7, 10.0

    def cost(w):
        off = D @ w - v
        value = rho / 2 * off @ off + envelope(g, w, gamma) + r / 2 * ((w - near) ** 2).sum()
        return value, rho * D.T @ off + (w - g.prox(w, gamma)) / gamma + r * (w - near)

    best = minimize(
        cost,
        near,
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-11, "maxiter": 5000},
    )
    w = task.w_step(v, rho, near, r, 1e-10, gamma)
    assert abs(cost(w)[1]).max() <= 1e-6
    np.testing.assert_allclose(w, best.x, atol=1e-6)


def test_no_smoothing_is_the_plain_step():
    task, rng = (
        task_of(bf.Problem(bf.Hinge(), PLAIN, regulariser=bf.L1(0.05)), data()),
        np.random.default_rng(4),
    )
    v, near = rng.normal(size=60), rng.normal(size=5)
    plain = task.w_step(v, 0.1, near, 0.0, 1e-12)
    for gamma in (1e-3, 1e-6):
        np.testing.assert_allclose(
            task.w_step(v, 0.1, near, 0.0, 1e-12, gamma), plain, atol=10 * gamma
        )


# ---- the schedule


def test_smoothing_of_the_paper():
    gammas = [SHRINKING.at(k) for k in (0, 1, 10, 87, 88, 1000)]
    np.testing.assert_allclose(gammas, [1e-5, 9e-6, 1e-5 * 0.9**10, 1e-5 * 0.9**87, 1e-9, 1e-9])
    assert bf.Smoothing(0.1, 1.0, 0.1).at(10**6) == 0.1


# ---- one iteration by hand


def test_one_iteration_by_hand():
    """Mean hinge and l1, two rows with orthogonal features: every step has a closed form in one
    number.
    """
    X, y = np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    rho, r, gamma, mu = 0.5, 0.25, 0.4, 0.1
    problem = bf.Problem(bf.Hinge(), PLAIN, regulariser=bf.L1(mu))
    algorithm = bf.SmoothedRankADMM(
        bf.Smoothing(gamma, 1.0, gamma),
        penalty=bf.Growing(rho, 1.0),
        r=r,
        relaxation=1.0,
        check=1,
        max_rounds=1,
    )
    concrete, fed = problem.at(bf.Federation(["all"], [X], [y]))
    run = bf.InProcess().run(configure(algorithm, concrete, fed, 0.0, None, None, None), fed)
    memory = run.memories[0]
    # D = -diag(y) X = diag(-2, 1), w = 0: m = 0; z-step of (1 + z)_+ / 2 + rho z^2 / 2: both end at
    # the kink
    z = np.maximum(-0.5 / rho, -1.0) * np.ones(2)
    np.testing.assert_allclose(memory.z[0], z)
    # w-step: entry by entry, rho / 2 (D_j w - z_j)^2 + M(w) + r / 2 w^2, M quadratic within gamma
    # mu, linear beyond
    D = np.array([-2.0, 1.0])
    inner = rho * D * z / (rho * D**2 + r + 1 / gamma)
    outer = (rho * D * z - mu * np.sign(D * z)) / (rho * D**2 + r)
    w = np.where(np.abs(inner) <= gamma * mu, inner, outer)
    np.testing.assert_allclose(memory.w[0], w, rtol=1e-10)
    np.testing.assert_allclose(memory.dual[0], rho * (z - D * w))
    np.testing.assert_allclose(run.state.w, np.sign(w) * np.maximum(np.abs(w) - gamma * mu, 0.0))


@pytest.mark.parametrize(
    "g", [bf.L1(0.01), bf.ElasticNet(0.01, 0.1), bf.MCP(0.05), bf.SCAD(0.05)], ids=lambda g: str(g)
)
def test_proposition_2(g):
    """After any iteration D'lambda + r (w_k - w_{k+1}) is a gradient of g at w~, and the envelope's
    gradient at w.
    """
    gamma, r = 0.05, 0.3
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=TAIL, regulariser=g)
    concrete, fed = problem.at(data())
    algorithm = bf.SmoothedRankADMM(
        bf.Smoothing(gamma, 1.0, gamma), r=r, check=1, penalty=bf.Growing(0.01, 1.0)
    )
    algorithm = configure(algorithm, concrete, fed, 0.0, None, 30, None)
    task, memory = RankTask.of(concrete, fed.block(0)), algorithm.client_start(fed.block(0))
    for k in range(30):
        before = memory.w[0]
        memory = algorithm.advance(memory, Advance(k), fed.block(0), None)[0]
    w = memory.w[0]
    push = task.design.D.T @ memory.dual[0] + r * (before - w)
    np.testing.assert_allclose(push, (w - g.prox(w, gamma)) / gamma, atol=1e-5)


# ---- whole runs


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize(
    "risk", [bf.Mean(), TAIL, bf.Extremile(2.0)], ids=lambda risk: type(risk).__name__
)
@pytest.mark.parametrize("intercept", [False, True])
def test_l1_reaches_the_optimum_of_the_plain_method(loss, risk, intercept):
    problem = bf.Problem(loss, bf.Linear(intercept), over_samples=risk, regulariser=bf.L1(0.02))
    exact = bf.solve(problem, data(), tol=1e-9).certificate
    # the iterations alone: no Newton steps finish them
    tol = 1e-5 if loss == bf.Logistic() else 1e-3
    found = bf.solve(problem, data(), algorithm=bf.SmoothedRankADMM(), tol=tol)
    assert found.outcome.stop is bf.Stop.OPTIMAL
    assert found.certificate.relative_gap <= tol
    assert exact.bound - 1e-12 <= found.certificate.value <= exact.value * (1 + tol) + 1e-9


def test_the_smoothing_error():
    """With a constant gamma the value ends within gamma / 2 times the squared gradient of the
    optimum, and not nearer.
    """
    problem, gamma = (
        bf.Problem(bf.Logistic(), PLAIN, over_samples=TAIL, regulariser=bf.L1(0.02)),
        2.0,
    )
    exact = bf.solve(problem, data(), tol=1e-9).certificate.value
    algorithm = bf.SmoothedRankADMM(bf.Smoothing(gamma, 1.0, gamma), max_rounds=60)
    last = bf.solve(problem, data(), algorithm=algorithm, tol=0.0)
    concrete, fed = problem.at(data())
    task = RankTask.of(concrete, fed.block(0))

    def smoothed(w):
        return task.omega(task.rank_coordinates(w)) + envelope(bf.L1(0.02), w, gamma)

    memory = (
        bf.InProcess()
        .run(configure(algorithm, concrete, fed, 0.0, None, None, None), fed)
        .memories[0]
    )
    error = gamma / 2 * 5 * 0.02**2
    assert exact - error - 1e-9 <= smoothed(memory.w[0]) <= exact + 1e-9
    assert last.certificate.value >= exact - 1e-9
    assert smoothed(memory.w[0]) < exact - 1e-5  # the smoothing is felt


@pytest.mark.parametrize(
    "g", [bf.MCP(0.05, 3.0), bf.SCAD(0.05, 3.7)], ids=lambda g: type(g).__name__
)
def test_weakly_convex_regularisers_end_at_small_residuals(g):
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=TAIL, regulariser=g)
    found = bf.solve(problem, data(), algorithm=bf.SmoothedRankADMM(tol_residual=2e-5))
    certificate = found.certificate
    assert found.outcome.stop is bf.Stop.UNPROVEN
    assert certificate.bound is None
    assert certificate.residuals.max() <= 1e-3
    rng = np.random.default_rng(5)
    for _ in range(200):  # no better model close by
        w = found.w + 10.0 ** rng.uniform(-4, -1) * rng.normal(size=5)
        assert problem.objective(w, data()) >= certificate.value - 1e-5


@pytest.mark.parametrize(
    "risk", [bf.RankedRange(50, 5), bf.RankedRange(50, 5, "descending"), bf.ProspectTheory()]
)
def test_risks_that_are_not_convex_end_at_small_residuals(risk):
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=risk, regulariser=bf.L2(0.01))
    found = bf.solve(problem, data(), algorithm=bf.SmoothedRankADMM())
    assert found.certificate.bound is None
    assert found.certificate.residuals.max() <= 1e-3
    assert found.certificate.value < problem.objective(np.zeros(5), data())


def test_more_features_than_rows():
    fed = data(12, 30)
    problem = bf.Problem(bf.Hinge(), PLAIN, over_samples=TAIL, regulariser=bf.L1(0.02))
    exact = bf.solve(problem, fed, tol=1e-9).certificate
    found = bf.solve(problem, fed, algorithm=bf.SmoothedRankADMM(), tol=1e-4).certificate
    assert found.relative_gap <= 1e-4
    assert found.value <= exact.value * (1 + 1e-4)


def test_schedule_of_the_paper_is_no_proof():
    """rho growing by 20 % freezes the model before it is optimal; the certificate says by how much
    at most.
    """
    problem = bf.Problem(bf.Hinge(), PLAIN, over_samples=TAIL, regulariser=bf.L1(0.02))
    exact = bf.solve(problem, data(), tol=1e-9).certificate.value
    paper = bf.SmoothedRankADMM(penalty=bf.Growing(1e-5, 1.2), relaxation=1.0, max_rounds=30)
    found = bf.solve(problem, data(), algorithm=paper)
    assert found.outcome.stop is bf.Stop.MAX_ROUNDS
    assert found.certificate.value > exact * (1 + 1e-4)
    assert found.certificate.gap >= found.certificate.value - exact - 1e-12


# ---- refusals


def test_refusals():
    with pytest.raises(ValueError, match="start > 0"):
        bf.Smoothing(0.0)
    with pytest.raises(ValueError, match=r"relaxation must be in \[1, 1.9\], got 2"):
        bf.SmoothedRankADMM(relaxation=2.0)
    steep = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.MCP(0.1, 0.5))
    with pytest.raises(
        ValueError, match=r"gamma <= 1 / \(3 c\) = 0.166667, got smoothing.start = 1"
    ):
        bf.solve(steep, data(), algorithm=bf.SmoothedRankADMM(bf.Smoothing(1.0, 1.0, 1.0)))
    X, y = data().rows(0)
    halves = bf.Federation(["a", "b"], [X[:30], X[30:]], [y[:30], y[30:]])
    with pytest.raises(ValueError, match="pooled"):
        bf.solve(bf.Problem(bf.Logistic(), PLAIN), halves, algorithm=bf.SmoothedRankADMM())
    with pytest.raises(ValueError, match="no problem yet"):
        bf.SmoothedRankADMM().client_start(data().block(0))
    assert replace(bf.SmoothedRankADMM(), r=1.0).r == 1.0
