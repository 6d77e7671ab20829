"""Cuts of the parts of a risk: they add up to the risk, and each is a minorant of its part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from problems import federation
from scipy.sparse import csr_array

import bonafed as bf
from bonafed.problem.parts import (
    WHOLE,
    Parts,
    has_smooth_part,
    parted_cut,
    parts_of,
    rounding_of_gradients,
    shifted_minorants,
    stored,
)

BALLS = {
    "mean": bf.Mean(),
    "flips": bf.WassersteinBall(0.05, 1.0),
    "many flips": bf.WassersteinBall(0.3, 0.7, "l2"),
    "no flips": bf.WassersteinBall(0.05, norm="linf"),
}
LOSSES = [bf.Hinge(), bf.Logistic(), bf.SmoothHinge(), bf.Huber(0.5), bf.Quantile(0.3)]
CASES = [(loss, name) for loss in LOSSES for name in BALLS]


@pytest.mark.parametrize("intercept", [False, True])
def test_what_rounding_adds_to_sums_of_sparse_rows_is_that_of_the_clients_or_more(intercept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5)) * (rng.random((60, 5)) < 0.4)
    y, groups, steep = rng.normal(size=60), np.arange(60) % 12, rng.random(12)
    problem = bf.Problem(bf.Squared(), bf.Linear(fit_intercept=intercept))
    dense, thin = (
        rounding_of_gradients(of.predictor, fed.blocks()[0], steep, 5)
        for of, fed in (
            problem.at(bf.Federation.from_arrays(made, y, groups)) for made in (X, csr_array(X))
        )
    )
    assert dense.shape == (12, 5 + intercept)
    assert thin.shape == (1, 5 + intercept)
    assert (thin[0] >= dense.sum(0) * (1 - 1e-12)).all()
    assert (thin[0] <= 12**0.5 * dense.sum(0)).all()


def concrete(loss: bf.Loss, ball: str, seed: int = 0):
    fed = federation(seed, 3, 4, 23, loss.targets)
    problem, fed = bf.Problem(loss, over_samples=BALLS[ball]).at(fed)
    return problem, fed, fed.blocks()[0]


def modes(problem: bf.Problem) -> list[Parts]:
    smooth = [Parts(4, 5, 1)] if has_smooth_part(problem) else []
    return [WHOLE, Parts(1, 5, 0), Parts(4, 5, 0), Parts(50, 2, 0), *smooth]


@pytest.mark.parametrize(("loss", "ball"), CASES)
def test_parts_add_up_to_the_risk(loss, ball):
    problem, _, block = concrete(loss, ball)
    w = np.random.default_rng(1).normal(size=5)
    whole = problem.cut(w, block)
    for parts in modes(problem):
        cut = parted_cut(problem, w, block, parts)
        assert cut.base.shape[1] == parts.count(problem)
        assert_allclose(cut.base.sum(1), whole.base, rtol=1e-12)
        assert_allclose(cut.level, whole.level, rtol=1e-12)
        assert_allclose(cut.gradient.sum(1), whole.gradient, rtol=1e-10, atol=1e-13)
        assert_allclose(cut.gradient_level.sum(1), whole.gradient_level, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("loss", "ball"), CASES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=4, deadline=None)
def test_a_cut_of_a_part_is_below_it_everywhere(loss, ball, seed):
    problem, _, block = concrete(loss, ball)
    rng = np.random.default_rng(seed)
    w, v = rng.normal(size=(2, 5)) * rng.choice([0.1, 1, 10], size=(2, 1))
    for parts in modes(problem):
        cut, there = (parted_cut(problem, u, block, parts) for u in (w, v))
        more = (there.level - cut.level)[:, None] * cut.gradient_level
        bound = cut.base + cut.gradient @ (v - w) + more
        assert (bound <= there.base + 1e-9 * (1 + np.abs(there.base))).all()


def test_sparse_rows_make_the_same_parts():
    problem, fed, _ = concrete(bf.Hinge(), "flips")
    w, parts = np.random.default_rng(1).normal(size=5), Parts(4, 5, 0)
    block = fed.block(0)
    sparse = replace(block, X=csr_array(block.X[0]))
    one, other = (parted_cut(problem, w, each, parts) for each in (block, sparse))
    assert_allclose(other.gradient, one.gradient, atol=1e-14)
    assert_allclose(other.base, one.base, atol=1e-14)


def test_no_group_has_fewer_rows_than_asked():
    problem, _, block = concrete(bf.Hinge(), "mean")
    rows = (block.share > 0).sum(1)
    cut = parted_cut(problem, np.zeros(5), block, Parts(50, 4, 0))
    used = (cut.base > 0).sum(1)  # at 0 the hinge loss of every row is 1
    assert (used == rows // 4).all()
    assert (cut.base.max(1) * rows >= 4).all()


def test_cuts_of_another_radius_are_those_of_its_ball():
    problem, _, block = concrete(bf.Hinge(), "flips")
    other = replace(problem, over_samples=replace(problem.over_samples, radius=np.full(3, 0.2)))
    w, parts = np.random.default_rng(1).normal(size=5), Parts(4, 5, 0)
    one = parted_cut(problem, w, block, parts, np.full(3, 0.2))
    two = parted_cut(other, w, block, parts)
    assert_allclose(one.base, two.base, rtol=1e-14)
    assert (one.level < parted_cut(problem, w, block, parts).level).any()


@pytest.mark.parametrize("loss", [bf.Logistic(), bf.SmoothHinge(), bf.Huber(0.5), bf.Squared()])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=12, deadline=None)
def test_shifted_slopes_are_minorants_of_the_mean_losses(loss, seed):
    problem, _, block = concrete(loss, "mean")
    rng = np.random.default_rng(seed)
    pair = rng.normal(size=(2, 5)) * rng.choice([0.1, 1, 10], size=(2, 1))
    v, q = rng.normal(size=5) * rng.choice([0.1, 1, 10]), rng.dirichlet(np.ones(3))
    of = shifted_minorants(problem, pair, q, block)
    value = q * block.mean(loss.value(problem.predictor.forward(v, block), block.y))
    assert (of.constant + of.gradient @ v <= value + 1e-10 * (1 + np.abs(value))).all()


def test_a_small_step_is_missed_by_its_fourth_order():
    problem, _, block = concrete(bf.Logistic(), "mean")
    rng = np.random.default_rng(2)
    w, d, q = rng.normal(size=5), rng.normal(size=5), np.ones(3)
    missed = []
    for size in (0.1, 0.05):
        v = w + size * d
        of = shifted_minorants(problem, np.stack([w, v]), q, block)
        value = block.mean(problem.loss.value(problem.predictor.forward(v, block), block.y))
        missed.append(float((value - of.constant - of.gradient @ v).sum()))
    assert 0 < missed[1] < missed[0] / 12  # 16 in the limit


def test_arrays_that_are_no_parts_are_refused():
    assert parts_of(stored(Parts(3, 5, 1))) == Parts(3, 5, 1)
    assert parts_of(None) == WHOLE
    for wrong in ([0, 5, 0], [1, 1, 2], [1.5, 1, 0], [1, 1], [1e9, 1, 0], [np.nan, 1, 0]):
        with pytest.raises(ValueError, match="three whole numbers"):
            parts_of(np.array(wrong, float))
