"""Spectral risks of the rows of all clients: the optimum of pooled rows, without pooling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from toy import federation

import bonafed as bf
from bonafed.engines.inprocess import InProcess
from bonafed.problem import rank_levels
from bonafed.rounds import visibility
from bonafed.solvers.rank.cut_weights import cut_weights

FED = federation((20, 35, 12, 28, 9), 4)
STEPS = np.repeat([0.3, 1.0, 3.0], [40, 40, 24])  # the mean and two superquantiles
RISKS = [bf.Extremile(2.0), bf.ExponentialSpectral(2.0), bf.Spectral(STEPS / STEPS.sum())]


def ranked(risk: object) -> bf.Problem:
    return bf.Problem(bf.Logistic(), over_rows=risk, regulariser=bf.L2(1e-2))


@pytest.mark.parametrize("risk", RISKS, ids=lambda risk: type(risk).__name__)
def test_equals_the_optimum_of_pooled_rows(risk):
    problem = ranked(risk)
    solution = bf.solve(problem, FED)
    inside = replace(problem, over_rows=None, over_samples=risk)
    other = bf.solve(inside, FED.pooled(), tol=1e-9).certificate
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert solution.rounds <= 60
    assert solution.certificate.relative_gap < 1e-9
    assert solution.certificate.value == pytest.approx(other.value, rel=1e-8)
    last = solution.history[-1]  # the model of RankBundle is no bound on the way
    assert ("bound" in last) != ("residual" in last)
    assert last.get("residual", 0.0) <= 1e-9 * other.value


def test_real_targets():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    y = X @ rng.standard_normal(5) + rng.standard_t(3, 300)
    fed = bf.Federation.from_arrays(X, y, np.repeat(list("abc"), 100))
    for loss in (bf.Squared(), bf.Huber()):
        problem = bf.Problem(loss, over_rows=bf.Extremile(3.0), regulariser=bf.L2(1e-3))
        solution = bf.solve(problem, fed)
        assert solution.certificate.relative_gap < 1e-8


@pytest.mark.parametrize("risk", RISKS, ids=lambda risk: type(risk).__name__)
@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0])
def test_the_value_is_exact_and_the_bound_below_every_model(risk, scale):
    problem, rng = ranked(risk), np.random.default_rng(4)
    best = bf.solve(problem, FED).w
    w = scale * rng.standard_normal(5)
    proof = bf.certify(problem, FED, w)
    assert proof.value == pytest.approx(problem.objective(w, FED), rel=1e-11)
    for v in (*rng.standard_normal((20, 5)), best, w):
        assert proof.bound <= problem.objective(v, FED) * (1 + 1e-12)
    assert proof.weights.sum() == pytest.approx(1.0, rel=1e-9)
    assert (proof.weights >= 0).all()


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1e3, np.nan])
def test_wrong_steps_and_mixtures_weaken_the_bound(monkeypatch, wrong):
    """Whoever computes them wrongly proves less, never more."""
    problem = ranked(RISKS[0])
    best = bf.solve(problem, FED)
    honest = rank_levels.mixed

    def mixed(*given):
        out = honest(*given)
        mixture = np.roll(out.mixture, 1)
        return out._replace(step=out.step * 0.3 + wrong, mixture=mixture, bound=-1.0)

    monkeypatch.setattr(rank_levels, "mixed", mixed)
    proof = bf.certify(problem, FED, best.w)
    assert proof.bound is None or proof.bound <= best.certificate.value
    assert proof.value == pytest.approx(best.certificate.value, rel=1e-12)


def test_it_is_the_same_through_bytes_and_for_pooled_rows():
    problem = ranked(RISKS[1])
    w = bf.solve(problem, FED).w
    here = bf.certify(problem, FED, w)
    there = bf.certify(problem, FED, w, engine=InProcess("bytes"))
    alone = bf.certify(problem, FED.pooled(), w)
    for other in (there, alone):
        assert other.value == pytest.approx(here.value, rel=1e-12)
        assert other.bound == pytest.approx(here.bound, rel=1e-9)


def test_a_cap_is_not_called_optimal():
    solution = bf.solve(ranked(RISKS[0]), FED, max_rounds=6)
    assert solution.outcome.stop is bf.Stop.MAX_ROUNDS
    assert solution.certificate.bound <= solution.certificate.value


@pytest.mark.parametrize("edges", [1, 5, 300])
def test_weights_of_a_table_are_in_the_permutahedron_and_its_excess_is_a_bound(edges):
    rng = np.random.default_rng(5)
    losses, risk = np.round(rng.exponential(size=97), 2), bf.Extremile(3.0)
    at = np.sort(rng.exponential(size=edges))
    above = (losses[:, None] > at).sum(0).astype(float)
    counts = rank_levels.Tallied(above, np.array(losses.max()), np.array(-losses.min()))
    table = rank_levels.table(risk.rank_weights(97), at, counts)
    weights = table.weights[np.searchsorted(at, losses)]
    assert risk.contains(weights, 1e-12)
    assert 0 <= risk.value(losses) - weights @ losses + 1e-15 <= table.excess.sum() + 2e-15


def test_the_mixture_of_cuts_is_the_best_one():
    rng = np.random.default_rng(6)
    G, q = rng.standard_normal((12, 5)), rng.standard_normal(12)
    x = cut_weights(G @ G.T, q)
    gradient = G @ (G.T @ x) + q
    assert_allclose(x.sum(), 1.0, rtol=1e-12)
    assert (x >= 0).all()
    assert x @ gradient - gradient.min() < 1e-9


def test_only_sums_travel_beside_the_range_of_the_losses():
    kinds = (rank_levels.Ranged, rank_levels.Tallied, rank_levels.Sliced)
    seen = {name: how for kind in kinds for name, how in visibility(kind).items()}
    assert {name for name, how in seen.items() if how != "sum"} == {"largest", "smallest", "width"}
    assert "each" not in seen.values()
