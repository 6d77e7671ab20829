"""Superquantiles of the rows of all clients: the optimum of pooled rows, without pooling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import bonafed as bf
from bonafed.algorithms.federated.rank_rows import BegunRanks, ExpandedRanks
from bonafed.problem.rank_levels import Rows, levels
from bonafed.rounds import visibility
from bonafed.solvers.rank.threshold_barrier import central


def classes(n: int, d: int, noise: float) -> bf.Federation:
    """Ten clients whose rows differ in the first feature."""
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d)
    y = np.where(X @ w / np.sqrt(d) + noise * rng.standard_normal(n) > 0, 1, -1)
    order = np.argsort(X[:, 0])
    return bf.Federation.from_arrays(X[order], y[order], np.arange(n) * 10 // n)


def numbers() -> bf.Federation:
    """Five clients with features in units from 0.01 to 100 and heavy tails."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 5)) * [1, 100, 0.01, 1, 1]
    y = X @ [1, 0.01, 50, 0, 2] + 10 * rng.standard_t(3, 400)
    return bf.Federation.from_arrays(X, y, np.repeat(list("abcde"), 80))


def ranked(loss: object, risk: object, strength: float = 1e-3) -> bf.Problem:
    return bf.Problem(loss, over_rows=risk, regulariser=bf.L2(strength))


def pooled(problem: bf.Problem, fed: bf.Federation) -> bf.Solution:
    """The solution where all rows are in one place."""
    inside = replace(problem, over_rows=None, over_samples=problem.over_rows)
    return bf.solve(inside, fed.pooled(), tol=1e-9)


@pytest.mark.parametrize("tail", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("shape", [(2000, 20, 0.02), (600, 100, 0.3)], ids=str)
def test_equals_the_optimum_of_pooled_rows(shape, tail):
    fed, problem = classes(*shape), ranked(bf.Logistic(), bf.Superquantile(tail))
    solution, other = bf.solve(problem, fed), pooled(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.rounds <= 30
    assert solution.certificate.relative_gap < 1e-9
    assert solution.certificate.value <= other.certificate.value * (1 + 1e-9)
    assert solution.certificate.bound >= other.certificate.bound * (1 - 1e-9)


@pytest.mark.parametrize(
    ("loss", "risk"),
    [
        (bf.Squared(), bf.Superquantile(0.01)),
        (bf.Squared(), bf.Superquantile(0.5)),
        (bf.Huber(), bf.Superquantile(0.1)),
        (bf.Huber(), bf.TopK(7)),
        (bf.Squared(), bf.Maximum()),
        (bf.Squared(), bf.Superquantile(1.0)),
    ],
    ids=str,
)
def test_features_in_any_units(loss, risk):
    fed, problem = numbers(), ranked(loss, risk)
    solution, other = bf.solve(problem, fed), pooled(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.certificate.relative_gap < 1e-9
    assert solution.certificate.value <= other.certificate.value * (1 + 1e-9)


@pytest.mark.parametrize("threshold", [0.1, 0.5, 1.35, 5.0])
@pytest.mark.parametrize("tail", [0.05, 0.3])
def test_huber_where_most_rows_of_the_tail_are_beyond_its_threshold(threshold, tail):
    """There it does not bend, and steps by its second derivative went on without end."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 10))
    y = X @ rng.standard_normal(10) + rng.standard_t(2, 2000)
    fed = bf.Federation.from_arrays(X, y, np.arange(2000) % 5)
    problem = ranked(bf.Huber(threshold), bf.Superquantile(tail))
    solution, other = bf.solve(problem, fed, tol=1e-8), pooled(problem, fed)
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.certificate.relative_gap <= 1e-8
    assert solution.certificate.value <= other.certificate.value * (1 + 1e-8)


def test_where_the_best_model_is_zero_all_rows_are_on_the_threshold():
    problem = replace(
        ranked(bf.Logistic(), bf.Superquantile(0.02), 0.1), predictor=bf.Linear(False)
    )
    solution = bf.solve(problem, classes(200, 5, 1.0))
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert_allclose(solution.w, 0.0, atol=1e-8)
    assert solution.certificate.relative_gap < 1e-9


def test_a_cap_is_not_called_optimal():
    problem = ranked(bf.Logistic(), bf.Superquantile(0.1))
    solution = bf.solve(problem, classes(600, 5, 0.3), max_rounds=9)
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert solution.rounds == 9
    assert solution.certificate.bound <= solution.certificate.value


def test_only_sums_travel_beside_the_size_of_the_start():
    seen = {**visibility(BegunRanks), **visibility(ExpandedRanks)}
    assert {name for name, how in seen.items() if how != "sum"} == {"longest", "largest"}
    assert seen["longest"] == seen["largest"] == "max"


@pytest.mark.parametrize("tail", [0.02, 0.5, 1.0])
def test_levels_are_those_of_the_rank_weights(tail):
    """The mixture's value, at its best threshold, is that of the risk."""
    losses = np.random.default_rng(2).exponential(size=53)
    risk = bf.Superquantile(tail)
    of = levels(risk, 53)
    over = [[np.maximum(losses - eta, 0.0).sum() for eta in losses] for _ in of.tails]
    best = [np.min(losses + np.array(o) / (53 * t)) for o, t in zip(over, of.tails, strict=True)]
    value = of.shares @ np.array(best) + of.mean * losses.mean()
    assert value == pytest.approx(risk.value(losses), rel=1e-12)


def test_the_barrier_is_smooth_and_central():
    x, cap, nu = np.array([-3.0, -1e-9, 0.0, 2e-3, 5.0])[:, None], np.array([0.2]), 1e-4
    at, step = central(x, cap, nu), 1e-6
    assert_allclose(at.weight * (at.slack - x), nu, rtol=1e-12)
    assert_allclose((cap - at.weight) * at.slack, nu, rtol=1e-9)
    ahead, behind = (central(x + h, cap, nu).weight for h in (step, -step))
    assert_allclose((ahead - behind) / (2 * step), at.rate, rtol=1e-3, atol=1e-9)


def test_rows_of_a_block_have_their_derivatives():
    problem, fed = ranked(bf.Logistic(), bf.Superquantile(0.1)).at(classes(40, 3, 0.3))
    block, w = fed.blocks()[0], np.array([0.3, -0.2, 0.5, 0.1])
    rows, weights = Rows(problem, w, block), np.random.default_rng(3).uniform(size=(40, 2))
    step = 1e-6 * np.eye(4)
    ahead, behind = ([Rows(problem, w + s * e, block).loss for e in step] for s in (1, -1))
    slopes = (np.array(ahead) - np.array(behind)) / 2e-6
    assert_allclose(rows.gradients(weights)[0], (slopes @ weights).T, atol=1e-8)
    assert_allclose(rows.along(w), w @ slopes, atol=1e-8)
    kept = rows.keep(weights, 9)
    assert_allclose(rows.kept(kept), weights)
