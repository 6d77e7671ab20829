"""The bundle with every set over clients against one CVXPY program: value, model, weights of
clients, proven gap.
"""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from client_set_oracles import members
from numpy.testing import assert_allclose
from problems import PLAIN, federation

import bonafed as bf
from bonafed.problem import conic_form
from bonafed.solvers.conic.weight_sets import Members

TOL = 1e-8  # relative gap asked of the bundle
NEAR = 1e-7
N, D, STRENGTH = 6, 4, 1e-2
PRIOR = np.array([0.3, 0.05, 0.2, 0.0, 0.25, 0.2])
CAPS = np.array([0.1, 0.05, 1e-3, 0.2, 0.0, 0.6])
SHAPE = np.array([1.0, 0.1, 2.0, 0.5, 10.0, 0.3])
AXIS = np.array([1.0, 0.2, -1.0, 0.5, 2.0, 0.4])
FULL = np.diag(SHAPE) + 0.3 * np.outer(AXIS, AXIS)
PLACES = np.array([0.5, -1.0, 3.0, 0.5, 0.7, 1e-3])
COSTS = np.subtract.outer(PLACES, PLACES) ** 2 + np.triu(np.ones((N, N)), 1)
ROWS = np.array([[1.0, 2.0, 0.0, -1.0, 0.0, 3.0], [-1.0, 0.0, 0.0, -1.0, 0.0, 0.0]])
SETS = [
    bf.KLBall(0.01),
    bf.KLBall(0.3, PRIOR),
    bf.KLBall(2.5, PRIOR),
    bf.ChiSquareBall(0.01),
    bf.ChiSquareBall(0.8, PRIOR),
    bf.ChiSquareBall(5.0),
    bf.Ellipsoid(SHAPE, 0.01, PRIOR),
    bf.Ellipsoid(1e9 * SHAPE, 1e-10),
    bf.Ellipsoid(FULL, 0.01, PRIOR),
    bf.Ellipsoid(FULL, 0.3),
    bf.Box(0.0, 0.3),
    bf.Box(CAPS / 2, CAPS + 0.2),
    bf.CDNorm(0.7, CAPS, PRIOR),
    bf.CDNorm(2.5, CAPS, PRIOR),
    bf.CDNorm(1.3, 0.1),
    bf.TotalVariationBall(0.2, PRIOR),
    bf.WassersteinOverClients(0.3, "index", PRIOR),
    bf.WassersteinOverClients(0.3, PLACES),
    bf.WassersteinOverClients(0.3, COSTS, PRIOR),
    bf.Polyhedron(ROWS, [1.0, -0.2]),
]


def names(risks):
    return [f"{type(risk).__name__}{i}" for i, risk in enumerate(risks)]


def central(problem, fed):
    """Value, model and weights (the multipliers of z_s >= F_s) of the whole problem in one
    place.
    """
    concrete, fed = problem.at(fed)
    q, z, w = cp.Variable(N), cp.Variable(N), cp.Variable(D)
    epigraph = []
    for s in range(N):
        X, y = fed.rows(s)
        epigraph.append(z[s] >= cp.sum(cp.logistic(-cp.multiply(y, X @ w))) / len(y))
    worst = cp.suppfunc(q, members(concrete.over_clients, q))(z)  # max <q, z>, dualised by CVXPY
    program = cp.Problem(cp.Minimize(worst + STRENGTH / 2 * cp.sum_squares(w)), epigraph)
    program.solve(solver="CLARABEL")
    return program.value, w.value, np.array([float(row.dual_value) for row in epigraph])


@pytest.mark.parametrize("risk", SETS, ids=names(SETS))
def test_every_set_against_one_program(risk):
    fed = federation(2, N, D, 25)
    problem = bf.Problem(bf.Logistic(), PLAIN, over_clients=risk, regulariser=bf.L2(STRENGTH))
    solution = bf.solve(problem, fed, tol=TOL)
    value, w, weights = central(problem, fed)
    certificate = solution.certificate
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert certificate.relative_gap <= TOL + 1e-10
    assert certificate.value == pytest.approx(value, rel=NEAR)
    assert certificate.value == pytest.approx(problem.objective(solution.w, fed), rel=1e-12)
    assert certificate.bound <= value * (1 + NEAR)
    assert_allclose(solution.w, w, rtol=0, atol=1.2e-3)  # ||w - w*||^2 <= 2 gap / strength
    assert_allclose(certificate.weights, weights, rtol=0, atol=1e-4)
    assert problem.at(fed)[0].over_clients.contains(certificate.weights, 1e-9)


OWN = [
    (bf.OwnSet(bf.KLBall(0.3).weights, bf.KLBall(0.3).project), bf.KLBall(0.3)),
    (bf.OwnSet(bf.Superquantile(0.3).weights), bf.Superquantile(0.3)),
    (bf.OwnSet(bf.CDNorm(2.5, CAPS, PRIOR).weights), bf.CDNorm(2.5, CAPS, PRIOR)),
]


@pytest.mark.parametrize(("own", "known"), OWN, ids=names([known for _, known in OWN]))
@pytest.mark.parametrize("robust", [False, True], ids=["mean", "Wasserstein ball"])
def test_a_set_of_which_only_the_maximiser_is_known(own, known, robust):
    fed = federation(2, N, D, 25)
    over = bf.WassersteinBall(0.05, 0.5) if robust else bf.Mean()
    first, second = (
        bf.solve(
            bf.Problem(
                bf.Logistic(),
                PLAIN,
                over_samples=over,
                over_clients=risk,
                regulariser=bf.L2(STRENGTH),
            ),
            fed,
            tol=TOL,
        )
        for risk in (own, known)
    )
    assert first.outcome.stop is bf.Stop.OPTIMAL
    assert first.certificate.relative_gap <= TOL + 1e-10
    assert first.certificate.value == pytest.approx(second.certificate.value, rel=2 * TOL)
    assert_allclose(first.w, second.w, rtol=0, atol=3e-3)


def test_one_program_refuses_a_set_without_a_form():
    fed = federation(2, N, D, 25)
    with pytest.raises(TypeError, match="set of weights in conic form, got OwnSet"):
        bf.CentralConic().solve(
            bf.Problem(over_clients=OWN[1][0], loss=bf.Logistic(), predictor=PLAIN), fed
        )


@pytest.mark.parametrize("risk", SETS, ids=names(SETS))
def test_the_central_program_takes_every_set(risk):
    fed = federation(3, N, D, 20)
    problem = bf.Problem(bf.Hinge(), PLAIN, over_clients=risk, regulariser=bf.L2(0.1))
    central, solution = bf.CentralConic().solve(problem, fed), bf.solve(problem, fed, tol=TOL)
    assert central.value == pytest.approx(solution.certificate.value, rel=NEAR)
    assert problem.at(fed)[0].over_clients.contains(central.weights, 1e-5)


@pytest.mark.parametrize(
    "algorithm", [bf.ADLPMM(), bf.DoubleLoop()], ids=lambda a: type(a).__name__
)
def test_total_variation_where_balls_are_known(algorithm):
    fed = federation(2, N, D, 25)
    one, other = (
        bf.solve(
            bf.Problem(bf.Logistic(), PLAIN, over_clients=risk, regulariser=bf.L2(STRENGTH)),
            fed,
            algorithm=algorithm,
            max_rounds=5,
        )
        for risk in (bf.TotalVariationBall(0.2, PRIOR), bf.LpBall(0.4, 1, PRIOR))
    )
    assert_allclose(one.w, other.w, rtol=0, atol=0)
    with pytest.raises(ValueError, match="Mean, Simplex, LpBall or TotalVariationBall"):
        bf.solve(
            bf.Problem(bf.Logistic(), PLAIN, over_clients=bf.KLBall(0.1)), fed, algorithm=algorithm
        )


def test_weights_by_rank_of_many_clients_are_met_by_the_worst_of_them(monkeypatch):
    """The optimum of the program with all of them, which grows with their square."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60 * 5, 3))
    y = np.sign(X @ [1.0, -1.0, 0.5] + rng.normal(size=300))
    fed = bf.Federation.from_arrays(X, y, np.repeat(np.arange(60), 5))
    problem = bf.Problem(bf.Logistic(), over_clients=bf.ExponentialSpectral(2.0))
    for loss in (bf.Logistic(), bf.Hinge()):
        one = replace(problem, loss=loss, regulariser=bf.L2(0.1))
        met = bf.solve(one, fed, tol=1e-8)
        with monkeypatch.context() as patch:
            patch.setattr(conic_form, "MOST_OFTEN", conic_form.MOST)
            whole = bf.solve(one, fed, tol=1e-8)
        assert met.outcome.stop is whole.outcome.stop is bf.Stop.OPTIMAL
        assert met.certificate.value == pytest.approx(whole.certificate.value, rel=1e-7)
    n = 100_000  # whose form would have the square of that
    many, _ = problem.at(fed)
    assert isinstance(conic_form.weighting(many, n), Members)
