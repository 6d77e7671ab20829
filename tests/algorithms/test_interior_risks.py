"""Constraints together with a risk over clients: the rows say what the risk is, the optimum is a
conic solver's.
"""

import math

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN

import bonafed as bf
from bonafed.algorithms.federated.interior_point import risk_rows

N = 5
PRIOR = np.array([0.3, 0.1, 0.25, 0.2, 0.15])
RISKS = [
    bf.Simplex(),
    bf.Superquantile(0.3, PRIOR),
    bf.Superquantile(1.0, PRIOR),
    *(bf.LpBall(radius, p, PRIOR) for p in (1.0, 2.0, math.inf) for radius in (0.1, 0.5)),
]
each = pytest.mark.parametrize("risk", RISKS, ids=str)


@each
def test_the_rows_are_the_risk(risk):
    rng = np.random.default_rng(3)
    rows = risk_rows(risk, N)
    for z in (rng.normal(size=N), np.ones(N), np.arange(N) * 10.0):
        x = cp.Variable(len(rows.cost))
        limits = [z + rows.link @ x <= 0]
        if len(rows.rows):
            limits.append(rows.rows @ x <= 0)
        if rows.cone:
            limits.append(cp.norm(x[1:-1]) <= x[-1])
        program = cp.Problem(cp.Minimize(rows.cost @ x), limits)
        program.solve(solver="CLARABEL")
        assert_allclose(program.value, risk.value(z), rtol=1e-6, atol=1e-7)
        assert (z + rows.link @ rows.start(z) < 0).all()
        assert (rows.evaluated(rows.start(z))[0] < 0).all()


def test_the_cone_has_the_derivatives_it_says():
    rows, rng = risk_rows(bf.LpBall(0.2, 2.0, PRIOR), N), np.random.default_rng(4)
    x = rng.normal(size=N + 2)
    x[-1] = 1.7
    step = 1e-6 * np.eye(N + 2)
    central = [(rows.evaluated(x + h)[0][-1] - rows.evaluated(x - h)[0][-1]) / 2e-6 for h in step]
    assert_allclose(rows.evaluated(x)[1][-1], central, atol=1e-8)
    bend = [(rows.evaluated(x + h)[1][-1] - rows.evaluated(x - h)[1][-1]) / 2e-6 for h in step]
    assert_allclose(rows.curvature(x, 0.7), 0.7 * np.array(bend), atol=1e-8)


def federation():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 4)) + np.repeat(rng.normal(size=(N, 4)) / 3, 60, 0)
    y = np.where(X @ np.array([1.0, -1.0, 0.5, 0.0]) + rng.normal(size=300) > 0, "ill", "well")
    return bf.Federation.from_arrays(X, y, np.repeat(list("abcde"), 60))


def reference(fed, risk, strength, level):
    """The same problem as one conic program, with the risk as its worst case over the set of
    weights in dual form.
    """
    w, z, t, e = cp.Variable(4), cp.Variable(N), cp.Variable(), cp.Variable(N)
    limits = []
    for i in range(N):
        X, y = fed.rows(i)
        ill, well = X[y == "ill"], X[y == "well"]
        limits += [z[i] >= cp.sum(cp.logistic(ill @ w)) / len(ill)]
        limits += [cp.sum(cp.logistic(-(well @ w))) / len(well) <= level]
    if isinstance(risk, bf.Simplex):
        R = cp.max(z)
    elif isinstance(risk, bf.Superquantile):
        R = t + PRIOR @ cp.pos(z - t) / risk.tail
    else:
        R = t + PRIOR @ e + risk.radius * cp.norm(e, {1.0: "inf", 2.0: 2, math.inf: 1}[risk.p])
        limits.append(e >= z - t)
    program = cp.Problem(cp.Minimize(R + strength / 2 * cp.sum_squares(w)), limits)
    program.solve(solver="CLARABEL")
    return program.value, w.value


@each
def test_against_a_conic_solver(risk):
    fed = federation()
    problem = bf.Problem(
        bf.Logistic(),
        PLAIN,
        over_samples=bf.Mean(label="ill"),
        over_clients=risk,
        regulariser=bf.L2(1e-2),
        local_constraint=bf.NeymanPearson("well", 0.68),
    )
    value, w = reference(fed, risk, 1e-2, 0.68)
    solution = bf.solve(problem, fed)
    proof = solution.certificate
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert_allclose(proof.value, value, rtol=1e-6)
    assert_allclose(solution.w, w, rtol=1e-3, atol=1e-3)
    assert -1e-9 <= proof.relative_gap <= 1e-8
    assert proof.feasibility <= 1e-8
    assert problem.at(fed)[0].over_clients.contains(proof.weights, 1e-9)
    assert_allclose(
        proof.weights @ proof.client_risks + problem.penalty(solution.w), proof.value, rtol=1e-7
    )
    assert solution.rounds <= 40


def test_radius_zero_is_the_mean_and_wide_balls_the_maximum():
    fed = federation()

    def best(risk):
        problem = bf.Problem(
            bf.Logistic(),
            PLAIN,
            over_clients=risk,
            regulariser=bf.L2(1e-2),
            local_constraint=bf.NeymanPearson("ill", 0.5),
        )
        return bf.solve(problem, fed).certificate.value

    assert_allclose(best(bf.LpBall(0.0, 2.0, PRIOR)), best(bf.Mean(PRIOR)), rtol=1e-8)
    assert_allclose(best(bf.LpBall(2.0, 2.0, PRIOR)), best(bf.Simplex()), rtol=1e-7)
    assert_allclose(best(bf.Superquantile(1.0, PRIOR)), best(bf.Mean(PRIOR)), rtol=1e-8)


def test_without_constraints_it_is_the_bundle_s_optimum():
    fed, problem = (
        federation(),
        bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.LpBall(0.3), regulariser=bf.L2(1e-2)),
    )
    second, first = (
        bf.solve(problem, fed, algorithm=bf.InteriorPoint()),
        bf.solve(problem, fed, tol=1e-9),
    )
    assert_allclose(second.certificate.value, first.certificate.value, rtol=1e-8)


def test_risks_without_such_rows_are_refused_in_words():
    for risk in (bf.LpBall(0.2, 3.0), bf.Extremile(2.0)):
        problem = bf.Problem(
            bf.Logistic(),
            PLAIN,
            over_clients=risk,
            regulariser=bf.L2(1e-2),
            local_constraint=bf.NeymanPearson("ill", 0.5),
        )
        with pytest.raises(
            ValueError, match="Simplex, Superquantile, or LpBall with p = 1, 2 or inf"
        ):
            bf.solve(problem, federation(), algorithm=bf.InteriorPoint())
