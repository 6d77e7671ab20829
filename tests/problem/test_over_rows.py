"""A risk by rank over the rows of all clients: its value, and what it does not go with."""

from __future__ import annotations

import numpy as np
import pytest
from problems import PLAIN
from toy import federation

import bonafed as bf
from bonafed.solution.trivial import constant_objective

FED = federation((20, 35, 12, 28, 9), 4)
RISKS = [bf.Superquantile(0.3), bf.TopK(5), bf.Extremile(2.0), bf.RankedRange(80, 10)]


@pytest.mark.parametrize("risk", RISKS, ids=str)
def test_the_objective_is_that_of_the_risk_within_pooled_rows(risk):
    everywhere = bf.Problem(bf.Logistic(), PLAIN, over_rows=risk, regulariser=bf.L2(0.1))
    within = bf.Problem(bf.Logistic(), PLAIN, over_samples=risk, regulariser=bf.L2(0.1))
    for w in np.random.default_rng(0).standard_normal((3, 4)):
        one, other = everywhere.objective(w, FED), within.objective(w, FED.pooled())
        assert one == pytest.approx(other, rel=1e-14)
    assert everywhere.convex == within.convex
    concrete, _ = everywhere.at(FED)
    assert concrete.at(FED)[0].over_rows == concrete.over_rows


@pytest.mark.parametrize("risk", RISKS[:3], ids=str)
def test_no_intercept_is_better_than_the_best_constant(risk):
    problem, data = bf.Problem(bf.Logistic(), over_rows=risk, regulariser=bf.L2(0.1)).at(FED)
    constants = np.zeros((201, 5))
    constants[:, -1] = np.linspace(-2, 2, 201)
    least = min(problem.objective(w, data) for w in constants)
    assert least - 1e-3 <= constant_objective(problem, data) <= least * (1 + 1e-12)


@pytest.mark.parametrize(
    "beside",
    [
        {"over_samples": bf.Superquantile(0.3)},
        {"over_samples": bf.Mean(label=1.0)},
        {"over_clients": bf.Simplex()},
        {"over_clients": bf.Mean("size")},
        {"privacy": bf.Budget(3.0, 1e-3)},
    ],
    ids=lambda beside: str(next(iter(beside.values()))),
)
def test_it_is_the_only_risk_of_a_problem(beside):
    with pytest.raises(ValueError, match=r"over_rows ranks the rows of all clients together.*out"):
        bf.Problem(bf.Logistic(), PLAIN, over_rows=bf.Superquantile(0.3), **beside)


@pytest.mark.parametrize("risk", [bf.Mean(), bf.WassersteinBall(0.1), "superquantile"])
def test_only_risks_by_rank_rank_rows(risk):
    with pytest.raises(TypeError, match="over_rows must be a risk by rank such as Superquantile"):
        bf.Problem(bf.Logistic(), PLAIN, over_rows=risk)


def test_rows_count_alike_and_are_enough_together():
    problem = bf.Problem(bf.Logistic(), PLAIN, over_rows=bf.TopK(100))
    assert np.isfinite(problem.objective(np.zeros(4), FED))  # no client has 100 rows
    with pytest.raises(ValueError, match=r"all clients together: .* 105"):
        bf.Problem(bf.Logistic(), PLAIN, over_rows=bf.TopK(105)).at(FED)
    with pytest.raises(ValueError, match="class_weight is not for this problem"):
        bf.Problem(bf.Logistic(), PLAIN, over_rows=bf.TopK(3), class_weight="balanced")
    weighed = bf.Federation.from_arrays(
        np.concatenate(FED.X),
        np.concatenate(FED.y),
        np.repeat(FED.clients, FED.sizes),
        sample_weight=np.linspace(1, 2, 104),
    )
    with pytest.raises(ValueError, match="has rows of different weights"):
        problem.at(weighed)


def test_who_takes_no_ranks_over_all_rows_says_so():
    ranked = bf.Problem(bf.Logistic(), PLAIN, over_rows=bf.Superquantile(0.3))
    with pytest.raises(ValueError, match=r"use .*RankInteriorPoint\(\)"):
        bf.solve(ranked, FED, algorithm=bf.ADLPMM())
    hinge = bf.Problem(bf.Hinge(), PLAIN, over_rows=bf.Extremile(2.0))
    with pytest.raises(ValueError, match=r"over_rows.*Extremile.*use"):
        bf.solve(hinge, FED)
    extremile = bf.Problem(bf.Logistic(), PLAIN, over_rows=bf.Extremile(2.0))
    with pytest.raises(ValueError, match=r"a Spectral of few steps, or none.*RankBundle"):
        bf.solve(extremile, FED, algorithm=bf.Bundle())
    with pytest.raises(ValueError, match=r"a Spectral of few steps.*RankBundle"):
        bf.solve(extremile, FED, algorithm=bf.RankInteriorPoint())
