"""RankADMM on convex problems: conic programs, duals by hand, Algorithm 1 by hand."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN
from rank_oracles import chain, loss
from rank_programs import (
    TIGHT,
    by_rank,
    central,
    check,
    data,
    objective,
    pooled,
    row_losses,
    rows_of,
    sigma_of,
    solved,
)

import bonafed as bf
from bonafed.algorithms.pooled.rank_admm import first, iterate
from bonafed.algorithms.pooled.rank_subproblems import (
    Balanced,
    ByResidual,
    Growing,
    Progress,
    RankTask,
)

SIZES = {"tall": (30, 5), "wide": (12, 20)}


# ---- optima


L2_CASES = [
    (bf.Logistic(), bf.Mean(), "tall", True),
    (bf.Logistic(), bf.Superquantile(0.23), "tall", False),  # 6.9 of 30 losses
    (bf.Logistic(), bf.Superquantile(0.2), "wide", True),
    (bf.Logistic(), bf.Extremile(2.5), "tall", True),
    (bf.Logistic(), bf.ExponentialSpectral(2.0), "wide", False),
    (bf.Logistic(), bf.Spectral(np.arange(12.0) / 66), "wide", False),
    (bf.Hinge(), bf.Mean(), "tall", False),
    (bf.Hinge(), bf.Superquantile(0.43), "tall", True),
    (bf.Hinge(), bf.Extremile(1.5), "wide", True),
    (bf.Hinge(), bf.Maximum(), "wide", False),
    (bf.Exponential(), bf.TopK(11), "tall", False),
    (bf.Exponential(), bf.Superquantile(0.6), "wide", True),
    (bf.SmoothHinge(), bf.Superquantile(0.23), "wide", False),
    (bf.SmoothHinge(), bf.ExponentialSpectral(0.5), "tall", True),
    (bf.Squared(), bf.Superquantile(0.23), "tall", True),
    (bf.Squared(), bf.Maximum(), "wide", False),
    (bf.Absolute(), bf.Extremile(2.0), "tall", True),
    (bf.Huber(0.5), bf.TopK(5), "wide", True),
    (bf.EpsilonInsensitive(0.1), bf.Superquantile(0.37), "tall", False),
]


@pytest.mark.parametrize(("loss", "risk", "size", "intercept"), L2_CASES, ids=str)
def test_l2_optima_to_1e_8(loss, risk, size, intercept):
    problem = bf.Problem(loss, bf.Linear(intercept), risk, regulariser=bf.L2(0.05))
    check(problem, *rows_of(problem, *SIZES[size]), 1e-9, 1e-8)


L1_CASES = [
    (bf.Logistic(), bf.Mean(), bf.L1(0.02), "wide", False),
    (bf.Logistic(), bf.Superquantile(0.43), bf.L1(0.01), "tall", True),
    (bf.Logistic(), bf.Extremile(2.5), bf.ElasticNet(0.01, 0.02), "wide", True),
    (bf.Hinge(), bf.Mean(), bf.L1(0.01), "tall", True),
    (bf.Hinge(), bf.Superquantile(0.43), bf.L1(0.01), "wide", False),
    (bf.Hinge(), bf.Extremile(2.5), bf.L1(0.02), "wide", True),
    (bf.Exponential(), bf.ExponentialSpectral(1.0), bf.L1(0.01), "wide", False),
    (bf.SmoothHinge(), bf.TopK(12), bf.ElasticNet(0.01, 0.01), "tall", False),
    (bf.Squared(), bf.Extremile(1.5), bf.L1(0.05), "wide", True),
    (bf.Absolute(), bf.Superquantile(0.23), bf.L1(0.05), "tall", True),
    (bf.Huber(0.5), bf.Mean(), bf.ElasticNet(0.05, 0.01), "wide", False),
    (bf.EpsilonInsensitive(0.1), bf.Maximum(), bf.L1(0.05), "tall", False),
    (bf.Logistic(), bf.Superquantile(0.43), bf.Bounds(-0.2, 0.3), "tall", True),
    (bf.Hinge(), bf.Extremile(2.0), bf.Bounds(-0.05, 0.05), "wide", False),
    (bf.Squared(), bf.TopK(7), bf.Bounds(0.0, 0.4), "tall", False),
]


@pytest.mark.parametrize(("loss", "risk", "g", "size", "intercept"), L1_CASES, ids=str)
def test_l1_elastic_nets_and_bounds_to_1e_6(loss, risk, g, size, intercept):
    problem = bf.Problem(loss, bf.Linear(intercept), risk, regulariser=g)
    check(problem, *rows_of(problem, *SIZES[size]), 1e-7, 1e-6)


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Squared()], ids=repr)
@pytest.mark.parametrize("intercept", [False, True])
def test_without_a_regulariser_nothing_is_proven_and_it_says_so(loss, intercept):
    problem = bf.Problem(loss, bf.Linear(intercept), bf.Superquantile(0.43))
    X, y = data(30, 3, 0, loss.targets)  # not separable
    solution = solved(problem, X, y, 1e-6)
    expected = objective(problem, X, y, central(problem, X, y))
    assert solution.outcome.stop is bf.Stop.UNPROVEN
    assert "regulariser" in solution.outcome.text
    assert "such as L2(1e-3)" in solution.outcome.text
    assert solution.certificate.bound is None
    assert solution.certificate.value == pytest.approx(expected, rel=1e-6)


# ---- duals


def test_multipliers_of_the_hinge_by_hand():
    """min R(max(0, 1 - y f)) + mu/2 |w|^2 = max sum a - |X'(a y)|^2 / (2 mu), 0 <= a, a in q, q in
    the set of R.
    """
    X, y = data(30, 5, 3, noise=0.4)
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.23), regulariser=bf.L2(0.05)
    )
    solution = solved(problem, X, y, 1e-9)
    a = solution.duals.rows
    assert a.min() >= -1e-15
    assert a.max() <= 1 / 6.9 + 1e-12
    assert a.sum() <= 1 + 1e-12
    bound = a.sum() - ((X.T @ (a * y)) ** 2).sum() / (2 * 0.05)
    assert solution.certificate.bound == pytest.approx(bound, rel=1e-10)
    assert bound == pytest.approx(objective(problem, X, y, central(problem, X, y)), rel=1e-8)
    assert_allclose(X.T @ (a * y) / 0.05, solution.w, atol=1e-3)  # ||w - w*||^2 <= 2 gap / mu


@pytest.mark.parametrize("risk", [bf.Superquantile(0.43), bf.Extremile(2.5)], ids=repr)
@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Exponential(), bf.Huber(0.5)], ids=repr)
def test_the_bound_is_the_dual_value_of_the_multipliers(loss, risk):
    """bound = -Omega*(a) - a'b - |D'a|^2 / (2 mu), Omega*(a) = max_z a'z - Omega(z) by a conic
    program.
    """
    problem = bf.Problem(loss, PLAIN, over_samples=risk, regulariser=bf.L2(0.05))
    X, y = rows_of(problem, 12, 3)
    solution = solved(problem, X, y, 1e-9)
    a, z, top = solution.duals.rows, cp.Variable(12), cp.Variable(12)
    margin = loss.targets == "sign"
    # of z alone: prediction -z beside a label 1, or prediction z beside a target 0
    losses = row_losses(loss, -z, np.ones(12)) if margin else row_losses(loss, z, np.zeros(12))
    omega, rows = by_rank(sigma_of(risk, 12), top)
    conjugate = cp.Problem(cp.Maximize(a @ z - omega), [*rows, top >= losses])
    conjugate.solve(solver="CLARABEL")
    D, b = (-y[:, None] * X, 0 * y) if margin else (X, y)
    bound = -conjugate.value - a @ b - ((a @ D) ** 2).sum() / (2 * 0.05)
    assert solution.certificate.bound == pytest.approx(bound, rel=1e-6)


# ---- Algorithm 1


def plain_w_step(g, D, v, rho, r, near):
    """argmin rho/2 |Dw - v|^2 + g(w) + r/2 |w - near|^2 by many plain proximal gradient steps."""
    steep, w = rho * np.linalg.norm(D, 2) ** 2 + r, near
    for _ in range(3000):
        w = g.prox(w - (rho * D.T @ (D @ w - v) + r * (w - near)) / steep, 1 / steep)
    return w


@pytest.mark.parametrize(
    ("loss_", "risk", "g"),
    [
        (bf.Logistic(), bf.Superquantile(0.43), bf.L2(0.05)),
        (bf.Hinge(), bf.Extremile(2.0), bf.L1(0.05)),
        (bf.Exponential(), bf.Mean(), bf.ElasticNet(0.05, 0.02)),
        (bf.Absolute(), bf.TopK(4), bf.Bounds(-0.2, 0.2)),
        (bf.Hinge(), bf.RankedRange(9, 3), bf.L2(0.05)),
        (bf.Squared(), bf.HumanAligned(0.4, 0.3), bf.Zero()),
    ],
    ids=str,
)
@pytest.mark.parametrize("r", [0.0, 0.3])
def test_iterations_are_algorithm_1(loss_, risk, g, r):
    problem = bf.Problem(loss_, PLAIN, over_samples=risk, regulariser=g)
    X, y = rows_of(problem, 15, 4)
    concrete, fed = problem.at(pooled(X, y))
    task = RankTask.of(concrete, fed.block(0))
    schedule, sigma, w = Growing(0.02, 1.5), sigma_of(risk, 15), np.array([0.5, -0.3, 0.0, 0.2])
    D, b = (-y[:, None] * X, 0 * y) if loss_.targets == "sign" else (X, y)
    at, dual = first(task, schedule, w), np.zeros(15)
    # w-steps that iterate stop well below the residuals
    near = 1e-6 if isinstance(g, bf.L2 | bf.Zero) else 2e-4
    for k in range(4):
        rho = 0.02 * 1.5**k
        m = D @ w - b - dual / rho
        size = np.abs(m) if task.kernel.even else m
        order, z = size.argsort(), np.empty(15)
        z[order] = chain(task.kernel, size[order], sigma, rho)  # line 2
        z = np.copysign(z, m) if task.kernel.even else z
        w = plain_w_step(g, D, z + b + dual / rho, rho, r, w)  # line 3
        dual = dual + rho * (z - D @ w + b)  # line 4
        at, alpha = iterate(task, schedule, at, r, 1.0)
        assert at.k == k + 1
        assert at.rho == pytest.approx(rho * 1.5, rel=1e-14)
        for name, expected in (("w", w), ("z", z), ("dual", dual), ("t", D @ w - b)):
            assert_allclose(getattr(at, name), expected, atol=near, err_msg=f"{name} after {k + 1}")
        assert_allclose(alpha, rho * (m - z), atol=near)
        assert at.primal == pytest.approx(
            np.linalg.norm(z - D @ w + b) / max(np.linalg.norm(z), np.linalg.norm(D @ w - b)),
            rel=1e-4,
        )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("g", [bf.L2(0.05), bf.L1(0.02), bf.Bounds(-0.2, 0.2)], ids=repr)
def test_a_solve_of_one_iteration(intercept, g):
    """With check = 1 and relaxation = 1 a round is one iteration; an intercept changes nothing in
    it.
    """
    problem = bf.Problem(bf.Logistic(), bf.Linear(intercept), bf.Superquantile(0.43), regulariser=g)
    X, y = rows_of(problem, 15, 4)
    D = -y[:, None] * (np.hstack([X, np.ones((15, 1))]) if intercept else X)
    solution = bf.solve(
        problem,
        pooled(X, y),
        algorithm=bf.RankADMM(check=1, relaxation=1.0, penalty=Growing(0.02, 1.0), tol=0.0),
        max_rounds=1,
    )
    w, rho = cp.Variable(4 + intercept), 0.02
    z = np.empty(15)
    kernel = RankTask.of(*(lambda p, f: (p, f.block(0)))(*problem.at(pooled(X, y)))).kernel
    z[:] = chain(kernel, np.zeros(15), sigma_of(problem.over_samples, 15), rho)
    h = {
        bf.L2: lambda u: 0.025 * cp.sum_squares(u),
        bf.L1: lambda u: 0.02 * cp.norm1(u),
        bf.Bounds: lambda u: 0.0,
    }
    box = [cp.abs(w[:4]) <= 0.2] if isinstance(g, bf.Bounds) else []
    cp.Problem(cp.Minimize(rho / 2 * cp.sum_squares(D @ w - z) + h[type(g)](w[:4])), box).solve(
        solver="CLARABEL", **TIGHT
    )
    # better than the start, so it is the answer
    assert loss(kernel, D @ w.value).max() < np.log(2) * 1.5
    assert_allclose(solution.w, w.value, atol=2e-6)
    assert solution.history[-1]["iterations"] == 1


def test_schedules():
    def rhos(schedule, gaps):
        found, patience = [schedule.first(100)], 0.0
        for k, gap in enumerate(gaps):
            rho, patience = schedule.after(Progress(k + 1, found[-1], 1.0, 1.0, gap, patience))
            found.append(rho)
        return found

    assert_allclose(rhos(Growing(1e-5, 1.2), [0] * 5), 1e-5 * 1.2 ** np.arange(6))
    assert_allclose(
        rhos(Growing(2e-7, 5, every=3, delay=7), [0] * 13)[7:],
        2e-7 * np.repeat([1, 5, 25], [3, 3, 1]),
    )
    assert_allclose(rhos(Growing(1.0, 10, limit=50), [0] * 3), [1, 10, 50, 50])
    for schedule in (Growing(1e-5, 1.2), ByResidual()):
        # and no overflow
        assert schedule.after(Progress(10**7, 9.9e11, 1.0, 1.0, 0.0, 0.0))[0] == schedule.limit
    assert_allclose(
        rhos(ByResidual(1e-4, 1.02, 1.07), [1.0, 1e-2, 1e-3]), np.cumprod([1e-4, 1.02, 1.07, 1.07])
    )
    assert Balanced().first(200) == 0.3 / 200


@pytest.mark.parametrize(
    ("penalty", "rounds"),
    [(Growing(1e-5, 1.2), 7), (Growing(1e-5, 1.07), 20), (ByResidual(1e-4, 1.02, 1.07), 20)],
    ids=str,
)
@pytest.mark.parametrize("g", [bf.L2(0.05), bf.L1(0.02)], ids=repr)
def test_the_schedules_of_the_paper_feasible_but_not_optimal(penalty, rounds, g):
    """A rho that only grows freezes the iterates: small residuals, some per cent above the optimum,
    never "optimal".
    """
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Superquantile(0.43), regulariser=g)
    X, y = rows_of(problem, 30, 5)
    solution = solved(
        problem, X, y, 1e-12, penalty=penalty, relaxation=1.0, finish=False, max_rounds=rounds
    )
    optimum = objective(problem, X, y, central(problem, X, y))
    assert solution.outcome.stop is not bf.Stop.OPTIMAL
    assert solution.state.residual <= 1e-2
    assert optimum * (1 - 1e-8) <= solution.certificate.value <= optimum * 1.05
    assert solution.certificate.bound is None or solution.certificate.bound <= optimum * (1 + 1e-8)


def test_a_growing_rho_ends_somewhere():
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.43), regulariser=bf.L2(0.05)
    )
    X, y = rows_of(problem, 30, 5)
    solution = solved(
        problem, X, y, 1e-12, penalty=Growing(1e-5, 1.2), finish=False, max_rounds=400
    )
    assert np.isfinite(solution.w).all()


@pytest.mark.parametrize(
    "options", [{"r": 0.02}, {"relaxation": 1.0}, {"finish": False}, {"check": 3}], ids=str
)
@pytest.mark.parametrize("g", [bf.L2(0.05), bf.L1(0.02)], ids=repr)
def test_options_lead_to_the_same_optimum(options, g):
    problem = bf.Problem(bf.Logistic(), bf.Linear(True), bf.Superquantile(0.43), regulariser=g)
    X, y = rows_of(problem, 30, 5)
    check(problem, X, y, 1e-7, 1e-6, **options)
    start = np.array([3.0, -5.0, 1.0, 0.0, 2.0, -7.0])
    check(problem, X, y, 1e-7, 1e-6, start=start, **options)
