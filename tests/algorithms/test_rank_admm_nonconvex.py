"""RankADMM where nothing is convex: all choices of outliers on tiny problems, independent searches,
honest outcomes.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from problems import PLAIN
from rank_programs import central, data, objective, pooled
from scipy.optimize import minimize

import bonafed as bf
from bonafed.algorithms.pooled.rank_admm import Start, polish
from bonafed.algorithms.pooled.rank_subproblems import Balanced, ByResidual, Growing, RankTask

# so much objective, relative, the end may give for multipliers that are the model's own
SLACK = 3e-6
FEW = (Start(Growing(2e-5, 1.05)), Start(Growing(1e-3, 1.05), 0.3), Start(Growing(1e-2, 1.05), 1.0))


def solved(problem, X, y, **options):
    """The solution; whatever was found, it must say the truth about it."""
    solution = bf.solve(problem, pooled(X, y), algorithm=bf.RankADMM(**options))
    proof = solution.certificate
    assert solution.outcome.stop in (bf.Stop.UNPROVEN, bf.Stop.MAX_ROUNDS, bf.Stop.STALLED)
    assert (proof.bound, proof.gap) == (None, None)
    assert "not convex" in solution.outcome.text or solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert proof.value == pytest.approx(objective(problem, X, y, solution.w), rel=1e-12)
    values = [row["objective"] for row in solution.history]
    assert (np.diff(values) <= SLACK * np.abs(values[1:])).all()
    assert solution.history[-1]["objective"] == pytest.approx(proof.value, rel=1e-9)
    return solution


def least_of_all_choices(problem, X, y):
    """The global optimum of a ranked range: sum_i sigma_i z_[i] is least over which rows, above the
    last, are left out.

    What is left has weights that rise, a convex problem.
    """
    n = len(y)
    sigma = problem.over_samples.rank_weights(n)
    top = int(np.flatnonzero(sigma)[-1]) + 1
    rest = bf.Problem(
        problem.loss, problem.predictor, bf.Spectral(sigma[:top]), regulariser=problem.regulariser
    )
    assert rest.over_samples.convex
    kept = (list(rows) for rows in itertools.combinations(range(n), top))
    return min(objective(problem, X, y, central(rest, X[rows], y[rows])) for rows in kept)


def searched(problem, X, y, starts=15):
    """The best of simplex searches from models of several sizes."""
    rng, best = np.random.default_rng(0), np.inf
    for size in [0.0, *rng.choice([0.3, 1.0, 3.0], starts)]:
        w = size * rng.normal(size=X.shape[1])
        for _ in range(2):
            found = minimize(
                lambda w: objective(problem, X, y, w),
                w,
                method="Nelder-Mead",
                options={"xatol": 1e-9, "fatol": 1e-12},
            )
            w = found.x
        best = min(best, found.fun)
    return best


@pytest.mark.parametrize(
    ("loss", "risk", "g", "seed"),
    [
        (bf.Logistic(), bf.RankedRange(6, 0), bf.L2(0.05), 0),
        (bf.Logistic(), bf.RankedRange(6, 3), bf.L1(0.05), 0),
        (bf.Hinge(), bf.RankedRange(6, 0), bf.L1(0.05), 0),
        (bf.Hinge(), bf.RankedRange(5, 2, "descending"), bf.L2(0.05), 1),
        (bf.Squared(), bf.RankedRange(6, 0), bf.L2(0.05), 2),
        (bf.Squared(), bf.Median(), bf.L1(0.05), 3),
        (bf.Absolute(), bf.RankedRange(5, 2, "descending"), bf.L2(0.05), 2),
    ],
    ids=str,
)
def test_the_best_choice_of_outliers(loss, risk, g, seed):
    problem = bf.Problem(loss, PLAIN, over_samples=risk, regulariser=g)
    X, y = data(8, 2, seed, loss.targets, noise=1.0)
    solution, least = solved(problem, X, y, starts=FEW), least_of_all_choices(problem, X, y)
    assert solution.certificate.value == pytest.approx(least, rel=1e-6)
    assert solution.certificate.residuals.max() <= 1e-5
    assert solution.certificate.stationarity == solution.certificate.residuals[:2].max()


@pytest.mark.parametrize(
    ("loss", "risk", "g", "seed"),
    [
        (bf.Logistic(), bf.HumanAligned(0.4, 0.3), bf.L2(0.05), 0),
        (bf.Absolute(), bf.Spectral([0.3, 0.1, 0, 0.2, 0.1, 0.1, 0.1, 0.1]), bf.L2(0.05), 0),
        (bf.Exponential(), bf.Spectral([0, 0.4, 0, 0, 0.2, 0, 0.4, 0]), bf.L1(0.05), 2),
    ],
    ids=str,
)
def test_weights_that_rise_and_fall_against_a_search(loss, risk, g, seed):
    problem = bf.Problem(loss, PLAIN, over_samples=risk, regulariser=g)
    X, y = data(8, 2, seed, loss.targets, noise=1.0)
    solution = solved(problem, X, y, starts=FEW)
    assert solution.certificate.value <= searched(problem, X, y) * (1 + 1e-6)
    assert solution.certificate.residuals.max() <= 1e-4


@pytest.mark.parametrize(
    ("loss", "g", "seed"),
    [
        (bf.Logistic(), bf.L2(0.05), 0),
        (bf.Squared(), bf.L2(0.05), 3),
        (bf.Absolute(), bf.L1(0.05), 0),
    ],
    ids=str,
)
def test_prospect_weights_against_a_search(loss, g, seed):
    """No polish here: iterations alone."""
    problem = bf.Problem(loss, PLAIN, over_samples=bf.ProspectTheory(reference=0.5), regulariser=g)
    X, y = data(8, 2, seed, loss.targets, noise=1.0)
    solution = solved(problem, X, y)
    assert solution.certificate.value <= searched(problem, X, y) * (1 + 1e-6)
    assert solution.certificate.residuals.max() <= 1e-4
    assert len(solution.tries) >= 2


@pytest.mark.parametrize("g", [bf.MCP(0.1, 3.0), bf.SCAD(0.1, 3.7)], ids=repr)
@pytest.mark.parametrize(
    ("loss", "risk"), [(bf.Logistic(), bf.Superquantile(0.43)), (bf.Squared(), bf.Mean())], ids=str
)
def test_regularisers_that_are_not_convex(loss, risk, g):
    problem = bf.Problem(loss, PLAIN, over_samples=risk, regulariser=g)
    X, y = data(20, 2, 1, loss.targets, noise=0.5)
    solution = solved(problem, X, y, starts=(Start(Balanced()),), max_iterations=500)
    assert solution.certificate.value <= searched(problem, X, y) * (1 + 1e-5)
    assert solution.certificate.residuals.max() <= 1e-4


# ---- special cases that are convex after all


@pytest.mark.parametrize(
    ("risk", "convex"),
    [
        (bf.RankedRange(15, 0), bf.Mean()),
        (bf.RankedRange(6, 0, "descending"), bf.TopK(6)),
        (bf.RankedRange(15, 14), bf.Maximum()),
        (bf.HumanAligned(0.4, 1.0), bf.Mean()),
        (bf.ProspectTheory(1.0, 1.0, 0.3), bf.Mean()),
    ],
    ids=str,
)
def test_limits_are_the_convex_optima(risk, convex):
    X, y = data(15, 3, 2, noise=0.5)
    one, other = (
        bf.Problem(bf.Logistic(), PLAIN, over_samples=r, regulariser=bf.L2(0.05))
        for r in (risk, convex)
    )
    proven = bf.solve(other, pooled(X, y), tol=1e-9).certificate
    found = bf.solve(one, pooled(X, y), algorithm=bf.RankADMM(starts=FEW)).certificate
    assert proven.bound * (1 - 1e-9) <= found.value <= proven.value * (1 + 1e-6)


# ---- what is promised on the way


@pytest.mark.parametrize(
    "risk", [bf.RankedRange(14, 2), bf.HumanAligned(0.4, 0.3), bf.ProspectTheory()], ids=repr
)
@pytest.mark.parametrize(
    "options", [{"polish": False, "max_iterations": 3}, {"max_rounds": 1}], ids=str
)
def test_never_worse_than_the_start(risk, options):
    """However early it ends: and the start may be good."""
    problem = bf.Problem(bf.Hinge(), PLAIN, over_samples=risk, regulariser=bf.L2(0.05))
    X, y = data(20, 3, 0, noise=0.5)
    good = solved(problem, X, y, starts=FEW[:2])
    for start in (good.w, np.array([5.0, -3.0, 2.0])):
        again = solved(problem, X, y, starts=FEW[:1], start=start, check=1, **options)
        assert again.certificate.value <= objective(problem, X, y, start) * (1 + SLACK)


def test_every_start_has_a_row():
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(True), bf.RankedRange(17, 2), regulariser=bf.L2(0.05)
    )
    X, y = data(20, 3, 0, noise=1.0)
    solution = solved(problem, X, y, starts=FEW)
    assert [row["start"] for row in solution.tries] == [0, 1, 2]
    assert min(row["objective"] for row in solution.tries) == pytest.approx(
        solution.certificate.value, rel=1e-6
    )
    assert all(row["iterations"] > 0 and row["polish"] >= 1 for row in solution.tries)
    plain = solved(problem, X, y, starts=FEW, polish=False)
    assert all(row["polish"] == 0 for row in plain.tries)
    assert solution.certificate.value <= plain.certificate.value * (1 + 1e-9)
    other = bf.solve(problem, pooled(X, y), algorithm=bf.RankADMM(starts=FEW), seed=1)
    assert other.tries[0] == solution.tries[0]  # without spread the seed does not matter
    assert other.tries[2]["objective"] > 0


@pytest.mark.parametrize(
    "penalty", [Growing(2e-7, 5, every=3, delay=7), Balanced(), ByResidual()], ids=str
)
def test_one_schedule_for_all_starts(penalty):
    """The paper's own, and others: each ends, each with one row for every start."""
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=bf.RankedRange(14, 2), regulariser=bf.L2(0.05)
    )
    X, y = data(20, 3, 0, noise=0.5)
    solution = solved(problem, X, y, penalty=penalty, starts=FEW[:2], max_iterations=400)
    assert len(solution.tries) == 2


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Hinge(), bf.Squared()], ids=repr)
@pytest.mark.parametrize("g", [bf.L2(0.05), bf.L1(0.05), bf.Bounds(-0.5, 0.5)], ids=repr)
def test_polishing_never_rises(loss, g):
    problem = bf.Problem(loss, bf.Linear(True), bf.RankedRange(14, 2), regulariser=g)
    X, y = data(20, 3, 1, loss.targets, noise=0.5)
    concrete, fed = problem.at(pooled(X, y))
    task = RankTask.of(concrete, fed.block(0))
    for w in np.random.default_rng(0).normal(size=(4, 4)):
        w = np.clip(w, -0.5, 0.5) if isinstance(g, bf.Bounds) else w
        value = task.objective(w)
        for _ in range(4):
            found = polish(task, w)
            assert found.value == pytest.approx(task.objective(found.w), rel=1e-12)
            assert found.value <= value * (1 + 1e-9) + 1e-14
            w, value = found.w, found.value
