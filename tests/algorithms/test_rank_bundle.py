"""The bundle with rank risks against epigraph programs in CVXPY: value, model, weights of the
clients, proven gap.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN, federation

import quorate as qr

TOL = 1e-8  # relative gap asked of the bundle; the reference is solved to 1e-8 (feasibility too)
NEAR = 1e-7
N, D = 5, 4
PRIOR = np.array([0.1, 0.3, 0.2, 0.15, 0.25])
OVER_CLIENTS = [
    qr.Superquantile(0.5),
    qr.Superquantile(0.45, PRIOR),
    qr.Extremile(2.5),
    qr.ExponentialSpectral(2.0),
    qr.TopK(2),
    qr.Maximum(),
    qr.Spectral([0.0, 0.1, 0.1, 0.3, 0.5]),
]
OVER_SAMPLES = [qr.Superquantile(0.23), qr.Extremile(2.0), qr.TopK(4), qr.Maximum()]


def phi(risk, z, n):
    """The convex risk of n CVXPY expressions."""
    if isinstance(risk, qr.Superquantile):
        prior, t = np.full(n, 1 / n) if isinstance(risk.prior, str) else risk.prior, cp.Variable()
        return t + prior @ cp.pos(z - t) / risk.tail
    jumps = np.diff(risk.rank_weights(n), prepend=0.0)
    return sum(jump * cp.sum_largest(z, n - k) for k, jump in enumerate(jumps) if jump > 1e-14)


def central(problem, fed):
    """Value, model and weights of the clients (the multipliers of z_s >= F_s) of the whole problem
    in one place.
    """
    concrete, fed = problem.at(fed)
    w, z, epigraph = cp.Variable(fed.n_features), cp.Variable(fed.n_clients), []
    for s in range(fed.n_clients):
        X, y = fed.rows(s)
        margin = cp.multiply(y, X @ w)
        losses = (
            cp.logistic(-margin) if isinstance(problem.loss, qr.Logistic) else cp.pos(1 - margin)
        )
        risk = problem.over_samples
        if isinstance(risk, qr.Mean | qr.WassersteinBall):
            radius = concrete.radii(fed.block(s))[0]
            # labels that never move, l1 cost
            inner = cp.sum(losses) / len(y) + radius * cp.norm(w, np.inf)
        else:
            inner = phi(risk, losses, len(y))
        epigraph.append(z[s] >= inner)
    outer = cp.sum(z) / fed.n_clients if isinstance(problem.over_clients, qr.Mean) else None
    objective = outer if outer is not None else phi(problem.over_clients, z, fed.n_clients)
    program = cp.Problem(
        cp.Minimize(objective + problem.regulariser.strength / 2 * cp.sum_squares(w)), epigraph
    )
    program.solve(solver="CLARABEL", equilibrate_enable=False)  # scaled, it stops at 1e-6 here
    return program.value, w.value, np.array([float(row.dual_value) for row in epigraph])


def check(problem, fed):
    solution = qr.solve(problem, fed, tol=TOL)
    value, w, weights = central(problem, fed)
    assert solution.outcome.stop is qr.Stop.OPTIMAL
    assert solution.certificate.relative_gap <= TOL + 1e-10
    assert solution.certificate.value == pytest.approx(value, rel=NEAR)
    assert solution.certificate.value == pytest.approx(
        problem.objective(solution.w, fed), rel=1e-12
    )
    assert solution.certificate.bound <= value * (1 + NEAR)
    # gap of 1e-8 of a value of order one, and curvature of at least the regulariser's 0.1: ||w -
    # w*||^2 <= 2 gap / 0.1
    assert_allclose(solution.w, w, rtol=0, atol=5e-4)
    concrete, _ = problem.at(fed)
    assert concrete.over_clients.contains(solution.certificate.weights, 1e-9)
    return solution, weights


@pytest.mark.parametrize("risk", OVER_CLIENTS, ids=repr)
def test_over_clients(risk):
    fed = federation(2, N, D, 25)
    problem = qr.Problem(qr.Logistic(), PLAIN, over_clients=risk, regulariser=qr.L2(0.1))
    solution, weights = check(problem, fed)
    assert_allclose(solution.certificate.weights, weights, rtol=0, atol=1e-4)
    assert solution.certificate.complementarity <= 1e-7


@pytest.mark.parametrize("risk", [qr.Superquantile(0.45, PRIOR), qr.Extremile(2.5)], ids=repr)
def test_over_clients_with_wasserstein_balls(risk):
    fed = federation(3, N, D, 25)
    ball = qr.WassersteinBall(np.array([0.0, 0.05, 0.1, 0.02, 0.2]))
    problem = qr.Problem(
        qr.Hinge(), PLAIN, over_samples=ball, over_clients=risk, regulariser=qr.L2(0.1)
    )
    solution, _ = check(problem, fed)
    reference = qr.CentralConic().solve(problem, fed)
    assert reference.value == pytest.approx(solution.certificate.value, rel=NEAR)
    assert problem.at(fed)[0].over_clients.contains(reference.weights, 1e-6)


@pytest.mark.parametrize("risk", OVER_SAMPLES, ids=repr)
@pytest.mark.parametrize("over_clients", [qr.Mean(), qr.Superquantile(0.6)], ids=repr)
def test_over_samples(risk, over_clients):
    fed = federation(4, 3, D, 20)
    loss = qr.Logistic() if isinstance(risk, qr.Extremile) else qr.Hinge()
    check(
        qr.Problem(
            loss, PLAIN, over_samples=risk, over_clients=over_clients, regulariser=qr.L2(0.1)
        ),
        fed,
    )


def test_variants_with_ranks_on_both_sides():
    fed = federation(6, 3, D, 20)
    problem = qr.Problem(
        qr.Logistic(),
        qr.Linear(intercept=True),
        over_samples=qr.Superquantile(0.3),
        over_clients=qr.Extremile(2.0),
        regulariser=qr.L2(0.1),
    )
    plain = qr.solve(problem, fed)
    other = qr.solve(problem, fed, algorithm=qr.Bundle(variant="level"))
    assert other.outcome.stop is qr.Stop.OPTIMAL
    assert other.certificate.relative_gap <= 1e-6
    assert other.certificate.value == pytest.approx(plain.certificate.value, rel=2e-6)
    with pytest.raises(ValueError, match="metric='hessian' needs a smooth loss"):
        qr.solve(problem, fed, algorithm=qr.Bundle(metric="hessian"))


def test_special_cases_are_the_same_problem():
    fed = federation(7, 4, D, 20)

    def value(over_clients, over_samples=qr.Mean()):  # noqa: B008
        problem = qr.Problem(qr.Logistic(), PLAIN, over_samples, over_clients, qr.L2(0.1))
        return qr.solve(problem, fed, tol=TOL).certificate.value

    mean, worst = value(qr.Mean("size")), value(qr.Simplex())
    assert value(qr.Superquantile(1.0, "size")) == pytest.approx(mean, rel=2 * TOL)
    assert value(qr.Maximum()) == pytest.approx(worst, rel=2 * TOL)
    assert value(qr.Superquantile(0.01)) == pytest.approx(worst, rel=2 * TOL)
    assert value(qr.Mean("size"), qr.Superquantile(1.0)) == pytest.approx(mean, rel=2 * TOL)
    # weights at most 1/2 of 4 clients: the ball of radius 1/4 in the largest norm round the uniform
    # prior
    assert value(qr.Superquantile(0.5)) == pytest.approx(
        value(qr.LpBall(0.25, np.inf)), rel=2 * TOL
    )
