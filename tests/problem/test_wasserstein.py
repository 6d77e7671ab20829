"""Worst cases on all of R^n against linear programs, finite differences and explicit
distributions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omega import (
    LABEL_COSTS,
    MARGIN,
    NORMS,
    RESIDUAL,
    block_of,
    free_value,
    name,
    targets,
    transport_cost,
)
from problems import PLAIN
from scipy.sparse import csr_array

from bonafed.arrays import DUAL, norm_gradient
from bonafed.problem.losses import Hinge, Huber, Logistic
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.wasserstein.ball import Near, WassersteinBall, free_space, worst_case

ALL = [(loss, norm, cost) for loss in MARGIN + RESIDUAL for norm in NORMS for cost in LABEL_COSTS]
each = pytest.mark.parametrize(("loss", "norm", "label_cost"), ALL, ids=lambda v: name(v))


def instance(loss, seed=0, clients=3, rows=7, d=4):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(clients, rows, d)), targets(rng, loss, (clients, rows))
    return (
        rng,
        block_of(X, y, rng.dirichlet(np.ones(rows), clients)),
        rng.normal(size=d + 1) * rng.choice([0.2, 1.0]),
    )


def price_gradient(w, cut, block, loss, ball, radius):
    """The whole gradient of R_s where the price sits on its floor Lipschitz * ||w||_*: the server's
    part is added.
    """
    coefficients = w[:-1]
    floor = loss.lipschitz * ball.dual_norm(coefficients)
    label = 0.0 if loss.targets == "sign" else loss.lipschitz / ball.label_cost
    on_floor = (cut.level <= floor) & (floor > label)
    extra = loss.lipschitz * norm_gradient(coefficients, DUAL[ball.norm])
    return cut.gradient + (on_floor * (radius + cut.gradient_level))[:, None] * np.r_[extra, 0.0]


@each
def test_value_equals_the_linear_program(loss, norm, label_cost):
    for seed, scale in ((0, 0.05), (1, 0.6), (2, 4.0)):
        _, block, w = instance(loss, seed)
        radius = scale * np.array([1.0, 0.3, 2.0])
        cut = free_space(
            Near(
                w,
                block,
                loss,
                Linear(fit_intercept=True),
                WassersteinBall(radius, label_cost, norm),
                radius,
            )
        )
        value = radius * cut.level + cut.base
        expected = [
            free_value(
                w[:-1],
                block.X[i],
                block.y[i],
                block.share[i],
                loss,
                norm,
                label_cost,
                radius[i],
                w[-1],
            )
            for i in range(3)
        ]
        np.testing.assert_allclose(value, expected, rtol=1e-9)  # highs works to about 1e-10


@each
def test_gradient_is_the_difference_quotient(loss, norm, label_cost):
    rng, block, w = instance(loss, seed=3)
    radius, ball = np.array([0.11, 0.4, 0.02]), WassersteinBall(0.1, label_cost, norm)

    def value(v):
        cut = free_space(Near(v, block, loss, Linear(fit_intercept=True), ball, radius))
        return radius * cut.level + cut.base

    direction, h = rng.normal(size=len(w)), 1e-6
    cut = free_space(Near(w, block, loss, Linear(fit_intercept=True), ball, radius))
    exact = price_gradient(w, cut, block, loss, ball, radius) @ direction
    # random w: kinks have probability zero; the quotient is off by h^2 times a third derivative and
    # 1e-16 / h
    np.testing.assert_allclose(
        (value(w + h * direction) - value(w - h * direction)) / (2 * h), exact, atol=1e-8
    )


def alpha(v, level, block, loss, label_cost):
    """f(v, l) on R^n, for l at least Lipschitz * ||v||_*."""
    u = Linear(fit_intercept=True).forward(v, block)
    here = loss.value(u, block.y)
    if loss.targets == "sign" and math.isfinite(label_cost):
        here = np.maximum(here, loss.value(u, -block.y) - label_cost * level[:, None])
    return block.mean(here)


@settings(deadline=None, max_examples=150)
@given(
    case=st.sampled_from(ALL),
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    shape=st.sampled_from(["random", "equal rows", "integers", "zero model"]),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
    radius=st.sampled_from([0.0, 1e-3, 0.1, 0.25, 0.5, 3.0]),
)
def test_the_cut_holds_for_every_model_and_price(case, seed, rows, shape, scale, radius):
    loss, norm, label_cost = case
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(2, rows, 3)), targets(rng, loss, (2, rows))
    w = rng.normal(size=4)
    if shape == "equal rows":
        X[:], y[:] = X[:, :1], y[:, :1]
    elif shape == "integers":
        X, w = np.round(X), np.round(w)
    elif shape == "zero model":
        w[:] = 0.0
    stretch = np.r_[np.full(3, 1 / scale), 1.0]
    w, block = w * stretch, block_of(X * scale, y)
    ball, radii = (
        WassersteinBall(radius, label_cost * scale, norm),
        scale * radius * np.array([1.0, 0.5]),
    )
    cut = free_space(Near(w, block, loss, Linear(fit_intercept=True), ball, radii))
    assert (cut.gradient_level >= -radii * (1 + 1e-12)).all()
    for size in (1e-3, 1.0, 30.0):
        v = w + size * rng.normal(size=4) * stretch
        floor = loss.lipschitz * ball.dual_norm(v[:-1])
        for level in (floor, floor + size * rng.random() / scale, np.maximum(floor, cut.level)):
            level = np.broadcast_to(level, 2)
            below = cut.base + cut.gradient @ (v - w) + cut.gradient_level * (level - cut.level)
            above = alpha(v, level, block, loss, label_cost * scale)
            if radius == 0:
                above = alpha(v, level, block, loss, math.inf)
            room = 1e-12 * (
                1 + np.abs(above) + np.abs(below) + np.abs(cut.gradient) @ np.abs(v - w)
            )
            assert (below <= above + room).all()


@pytest.mark.parametrize("loss", MARGIN + RESIDUAL, ids=name)
def test_blocks_padding_and_sparse_rows_change_nothing(loss):
    rng, block, w = instance(loss, seed=5)
    ball, radius, linear = (
        WassersteinBall(0.1, 0.5, "l2"),
        np.array([0.1, 0.0, 0.7]),
        Linear(fit_intercept=True),
    )
    pad = ((0, 0), (0, 3))
    padded = replace(
        block,
        X=np.pad(block.X, (*pad, (0, 0))),
        y=np.pad(block.y, pad, constant_values=1.0),
        share=np.pad(block.share, pad),
    )
    together = free_space(Near(w, padded, loss, linear, ball, radius))
    for i in range(3):
        for X in (block.X[i][None], csr_array(block.X[i])):
            alone = replace(block_of(block.X[i], block.y[i], block.share[i]), X=X)
            cut = free_space(Near(w, alone, loss, linear, ball, radius[i : i + 1]))
            for field in ("base", "level", "gradient", "gradient_level"):
                np.testing.assert_allclose(
                    getattr(cut, field)[0], getattr(together, field)[i], rtol=1e-12, atol=1e-14
                )
    per_client = np.repeat(w[None], 3, 0) + rng.normal(size=(3, 1))
    own = free_space(Near(per_client, block, loss, linear, ball, radius))
    for i in range(3):
        shared = free_space(Near(per_client[i], block, loss, linear, ball, radius))
        np.testing.assert_allclose(own.gradient[i], shared.gradient[i], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", MARGIN + RESIDUAL, ids=name)
def test_weights_are_repeated_rows(loss):
    rng, _, w = instance(loss, seed=6)
    X, y, times = rng.normal(size=(5, 4)), targets(rng, loss, 5), np.array([1, 3, 2, 1, 4])
    radius, ball = np.array([0.13]), WassersteinBall(0.13, 0.4, "l1")
    weighted = free_space(
        Near(w, block_of(X, y, times / times.sum()), loss, Linear(fit_intercept=True), ball, radius)
    )
    rows = block_of(np.repeat(X, times, 0), np.repeat(y, times))
    repeated = free_space(Near(w, rows, loss, Linear(fit_intercept=True), ball, radius))
    for field in ("base", "level", "gradient", "gradient_level"):
        np.testing.assert_allclose(
            getattr(weighted, field), getattr(repeated, field), rtol=1e-11, atol=1e-14
        )


def test_ties_share_the_mass_so_that_the_gradient_spends_the_radius():
    X, y = np.ones((4, 1)), np.ones(4)
    radius = np.array([0.1])
    cut = free_space(
        Near(
            np.array([1.0]), block_of(X, y), Hinge(), PLAIN, WassersteinBall(0.1, 0.3, "l1"), radius
        )
    )
    # four equal rows, m = 1: A = 0, B = 2, D = 2/0.3 > ||w|| = 1; a third of the mass flips, R =
    # 0.1 / 0.3 * 2
    np.testing.assert_allclose(radius * cut.level + cut.base, 2 / 3, rtol=1e-14)
    np.testing.assert_allclose(cut.gradient_level, -radius, rtol=1e-14)
    np.testing.assert_allclose(cut.gradient, [[1 / 3]], rtol=1e-14)


def test_radius_zero_is_the_plain_mean():
    for loss in (Hinge(), Logistic(), Huber(1.0)):
        _, block, w = instance(loss)
        cut = free_space(
            Near(
                w,
                block,
                loss,
                Linear(fit_intercept=True),
                WassersteinBall(0.0, 0.5, "l1"),
                np.zeros(3),
            )
        )
        np.testing.assert_array_equal(cut.level, 0.0)
        np.testing.assert_array_equal(cut.gradient_level, 0.0)
        u = Linear(fit_intercept=True).forward(w, block)
        np.testing.assert_allclose(cut.base, block.mean(loss.value(u, block.y)), rtol=1e-15)


@each
def test_the_worst_distribution_is_in_the_ball_and_attains_the_value(loss, norm, label_cost):
    far = 1e-4
    for seed, radii in ((7, [0.02, 0.2, 0.0]), (8, [0.7, 3.0, 0.1])):
        _, block, w = instance(loss, seed)
        radius, linear = np.array(radii), Linear(fit_intercept=True)
        ball = WassersteinBall(radius, label_cost, norm)
        worst = worst_case(Near(w, block, loss, linear, ball, radius))
        cut = free_space(Near(w, block, loss, linear, ball, radius))
        np.testing.assert_allclose(worst.value, radius * cut.level + cut.base, rtol=1e-12)
        for i in range(3):
            x, y, p, row = worst.distribution(i, far)
            data, sign = (block.X[i], block.y[i], block.share[i]), loss.targets == "sign"
            spent = transport_cost(*data, x, y, p, row, norm, label_cost, classes=sign)
            # far atoms lie 1e4 radii away, with a share of 1e-4
            assert spent <= radius[i] * (1 + 1e-9)
            expected = p @ loss.value(x @ w[:-1] + w[-1], y)
            # a share ``far`` of the rows, a few losses each
            bound = far * (10 + np.abs(x[: len(block.y[i])]).sum())
            assert (
                worst.value[i] - bound <= expected <= worst.value[i] + 1e-9 * (1 + worst.value[i])
            )


def test_the_summary_says_what_the_radius_is_spent_on():
    _, block, w = instance(Hinge(), seed=9)
    radius = np.array([0.2, 0.2, 0.0])
    cheap = worst_case(
        Near(
            w,
            block,
            Hinge(),
            Linear(True),
            WassersteinBall(radius, 0.05, "l1"),
            np.array([0.01, 0.01, 0]),
        )
    )
    dear = worst_case(
        Near(w, block, Hinge(), Linear(True), WassersteinBall(radius, math.inf, "l1"), radius)
    )
    assert [row["active"] for row in cheap.summary()] == ["labels", "labels", "none"]
    assert [row["active"] for row in dear.summary()] == ["features", "features", "none"]
    for row, r in zip(dear.summary(), radius, strict=True):
        assert row["spent"] == pytest.approx(r, rel=1e-12)
        assert row["worst_loss"] >= row["mean_loss"]
    both = worst_case(
        Near(
            w,
            block,
            Hinge(),
            Linear(True),
            WassersteinBall(radius, 5.0, "l1"),
            np.array([1.0, 12.0, 0.0]),
        )
    )
    np.testing.assert_allclose(both.label_cost + both.feature_cost, [1.0, 12.0, 0.0], rtol=1e-12)


def test_exposed_rows_are_those_that_add_most_and_never_padding():
    X, y = np.array([[3.0], [0.1], [-2.0], [9.9]]), np.array([1.0, 1.0, -1.0, 1.0])
    block = block_of(X, y, np.array([1 / 3, 1 / 3, 1 / 3, 0.0]))
    ball = WassersteinBall(0.2, 0.2, "l1")
    worst = worst_case(Near(np.array([1.0]), block, Hinge(), PLAIN, ball, np.array([0.2])))
    # flipping gains 4 for margin 3, 3 for margin 2, 0.2 for margin .1; price 1 is below all three:
    # everything flips
    assert list(worst.exposed(0)) == [0, 2, 1]
    np.testing.assert_allclose(worst.flips, [[1.0, 1.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("change", "words"),
    [({"norm": "l3"}, "'l1', 'l2' or 'linf'"), ({"label_cost": 0.0}, "(0, inf]")],
)
def test_impossible_balls_are_refused(change, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace("]", r"\]")):
        WassersteinBall(**({"radius": 0.1} | change))
