"""A risk by rank over the rows of all clients: its value, and what it does not go with."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PLAIN
from toy import federation

import quorate as qr
from quorate.solution.trivial import constant_objective

FED = federation((20, 35, 12, 28, 9), 4)
RISKS = [qr.Superquantile(0.3), qr.TopK(5), qr.Extremile(2.0), qr.RankedRange(80, 10)]


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_the_objective_is_that_of_the_risk_within_pooled_rows(risk):
    everywhere = qr.Problem(qr.Logistic(), PLAIN, over_rows=risk, regulariser=qr.L2(0.1))
    within = qr.Problem(qr.Logistic(), PLAIN, over_samples=risk, regulariser=qr.L2(0.1))
    for w in np.random.default_rng(0).standard_normal((3, 4)):
        one, other = everywhere.objective(w, FED), within.objective(w, FED.pooled())
        assert one == pytest.approx(other, rel=1e-14)
    assert everywhere.convex == within.convex
    concrete, _ = everywhere.at(FED)
    assert concrete.at(FED)[0].over_rows == concrete.over_rows


@pytest.mark.parametrize("risk", RISKS[:3], ids=str)
def test_no_intercept_is_better_than_the_best_constant(risk):
    problem, data = qr.Problem(qr.Logistic(), over_rows=risk, regulariser=qr.L2(0.1)).at(FED)
    constants = np.zeros((201, 5))
    constants[:, -1] = np.linspace(-2, 2, 201)
    least = min(problem.objective(w, data) for w in constants)
    assert least - 1e-3 <= constant_objective(problem, data) <= least * (1 + 1e-12)


@pytest.mark.parametrize(
    "beside",
    [
        {"over_samples": qr.Superquantile(0.3)},
        {"over_samples": qr.Mean(label=1.0)},
        {"over_clients": qr.Simplex()},
        {"over_clients": qr.Mean("size")},
        {"privacy": qr.Budget(3.0, 1e-3)},
    ],
    ids=lambda beside: str(next(iter(beside.values()))),
)
def test_it_is_the_only_risk_of_a_problem(beside):
    with pytest.raises(ValueError, match=r"over_rows ranks the rows of all clients together.*out"):
        qr.Problem(qr.Logistic(), PLAIN, over_rows=qr.Superquantile(0.3), **beside)


@pytest.mark.parametrize("risk", [qr.Mean(), qr.WassersteinBall(0.1), "superquantile"])
def test_only_risks_by_rank_rank_rows(risk):
    with pytest.raises(TypeError, match="over_rows must be a risk by rank such as Superquantile"):
        qr.Problem(qr.Logistic(), PLAIN, over_rows=risk)


def test_rows_count_alike_and_are_enough_together():
    problem = qr.Problem(qr.Logistic(), PLAIN, over_rows=qr.TopK(100))
    assert np.isfinite(problem.objective(np.zeros(4), FED))  # no client has 100 rows
    with pytest.raises(ValueError, match=r"all clients together: .* 105"):
        qr.Problem(qr.Logistic(), PLAIN, over_rows=qr.TopK(105)).at(FED)
    with pytest.raises(ValueError, match="class_weight is not for this problem"):
        qr.Problem(qr.Logistic(), PLAIN, over_rows=qr.TopK(3), class_weight="balanced")
    weighed = qr.Federation.from_arrays(
        np.concatenate(FED.X),
        np.concatenate(FED.y),
        np.repeat(FED.clients, FED.sizes),
        sample_weight=np.linspace(1, 2, 104),
    )
    with pytest.raises(ValueError, match="has rows of different weights"):
        problem.at(weighed)


def test_who_takes_no_ranks_over_all_rows_says_so():
    ranked = qr.Problem(qr.Logistic(), PLAIN, over_rows=qr.Superquantile(0.3))
    with pytest.raises(ValueError, match=r"use .*RankInteriorPoint\(\)"):
        qr.solve(ranked, FED, algorithm=qr.ADLPMM())
    hinge = qr.Problem(qr.Hinge(), PLAIN, over_rows=qr.Extremile(2.0))
    with pytest.raises(ValueError, match=r"over_rows.*Extremile.*use"):
        qr.solve(hinge, FED)
    extremile = qr.Problem(qr.Logistic(), PLAIN, over_rows=qr.Extremile(2.0))
    with pytest.raises(ValueError, match=r"a Spectral of few steps, or none.*RankBundle"):
        qr.solve(extremile, FED, algorithm=qr.Bundle())
    with pytest.raises(ValueError, match=r"a Spectral of few steps.*RankBundle"):
        qr.solve(extremile, FED, algorithm=qr.RankInteriorPoint())
