"""Wasserstein balls round rows of several classes, against conic programs, linear programs over
grids and explicit distributions.
"""

from __future__ import annotations

import math
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omega import DUAL_P, LABEL_COSTS, NORMS, block_of, transport_cost
from problems import SOFTMAX
from scipy.optimize import linprog
from scipy.sparse import csr_array

import bonafed as bf
from bonafed.problem.wasserstein.ball import (
    Near,
    WassersteinBall,
    class_cut,
    free_space,
    joint_cut,
    steepest,
    worst_case,
)

LOSS, C = bf.Multinomial(), 3
MODEL = bf.Softmax(C, fit_intercept=False)
each = pytest.mark.parametrize(
    ("norm", "label_cost"), [(norm, cost) for norm in NORMS for cost in LABEL_COSTS]
)


def instance(seed=0, clients=3, rows=7, d=4, classes=(0, 1, 2)):
    """Rows of unequal weights; only client 0 may lack a class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(clients, rows, d))
    y = rng.integers(3, size=(clients, rows)).astype(float)
    y[0] = rng.choice(classes, rows)
    w = rng.normal(size=3 * d) * rng.choice([0.2, 1.0])
    return rng, block_of(X, y, rng.dirichlet(np.ones(rows), clients)), w


def losses(W, X):
    """(m, C) loss of every row under every label, by the formula."""
    p = X @ W
    return np.log(np.exp(p).sum(1))[:, None] - p


def floor_of(W, norm, own):
    """The largest ||w_c - w_y||_*, one pair after the other, y in ``own``."""
    return max(np.linalg.norm(W[:, c] - W[:, y], DUAL_P[norm]) for y in own for c in range(C))


def dual_value(W, X, y, share, norm, label_cost, radius):
    """The dual as a linear program in (lambda, alpha) at a fixed model."""
    each_label, m = losses(W, X), len(y)
    at = np.arange(m), y.astype(int)
    if math.isinf(label_cost):
        return radius * floor_of(W, norm, {int(c) for c in y}) + share @ each_label[at]
    rows, right = [], []
    for i in range(m):
        for c in range(C):
            rows.append(np.r_[-label_cost * (c != y[i]), -np.eye(m)[i]])
            right.append(-each_label[i, c])
    bounds = [(floor_of(W, norm, range(C)), None), *[(None, None)] * m]
    solved = linprog(np.r_[radius, share], rows, right, bounds=bounds, method="highs")
    assert solved.status == 0
    return solved.fun


@each
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2), (1,)])
def test_value_equals_the_linear_program(norm, label_cost, classes):
    for seed, scale in ((0, 0.05), (1, 0.6), (2, 4.0)):
        _, block, w = instance(seed, classes=classes)
        radius = scale * np.array([1.0, 0.3, 2.0])
        here = class_cut(
            Near(w, block, LOSS, MODEL, WassersteinBall(radius, label_cost, norm), radius)
        )
        parts = zip(block.X, block.y, block.share, radius, strict=True)
        W = w.reshape(4, C)
        expected = [dual_value(W, X, y, s, norm, label_cost, r) for X, y, s, r in parts]
        np.testing.assert_allclose(here.base, expected, rtol=1e-9)
        assert not here.level.any()
        assert not here.gradient_level.any()


@each
def test_gradient_is_the_difference_quotient(norm, label_cost):
    for seed, radius in ((3, [0.11, 0.4, 0.02]), (4, [0.0, 2.0, 0.3])):
        rng, block, w = instance(seed, classes=(0, 2))
        radius, ball = np.array(radius), WassersteinBall(0.1, label_cost, norm)

        def value(v, block=block, ball=ball, radius=radius):
            return class_cut(Near(v, block, LOSS, MODEL, ball, radius)).base

        direction, h = rng.normal(size=len(w)), 1e-6
        exact = class_cut(Near(w, block, LOSS, MODEL, ball, radius)).gradient @ direction
        slope = (value(w + h * direction) - value(w - h * direction)) / (2 * h)
        np.testing.assert_allclose(slope, exact, atol=1e-8)


@settings(deadline=None, max_examples=150)
@given(
    norm=st.sampled_from(NORMS),
    label_cost=st.sampled_from(LABEL_COSTS),
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    shape=st.sampled_from(["random", "equal rows", "integers", "zero model", "equal classes"]),
    radius=st.sampled_from([0.0, 1e-3, 0.1, 0.25, 0.5, 3.0]),
)
def test_the_cuts_hold_for_every_model_and_multiplier(norm, label_cost, seed, rows, shape, radius):
    rng, block, w = instance(seed, 2, rows, 3, classes=(0, 2))
    if shape == "equal rows":
        block = replace(block, X=np.repeat(block.X[:, :1], rows, 1), y=0 * block.y)
    elif shape == "integers":
        block, w = replace(block, X=np.round(block.X)), np.round(w)
    elif shape == "zero model":
        w = 0 * w
    elif shape == "equal classes":
        w = np.repeat(w[:3], 3)
    ball, radii = WassersteinBall(radius, label_cost, norm), radius * np.array([1.0, 0.5])
    floor = steepest(w, block, MODEL, ball).floor
    joint = joint_cut(Near(w, block, LOSS, MODEL, ball, radii), floor)
    alone = class_cut(Near(w, block, LOSS, MODEL, ball, radii))
    assert (joint.gradient_level >= -radii * (1 + 1e-12)).all()
    np.testing.assert_allclose(radii * joint.level + joint.base, alone.base, rtol=1e-12)
    for size in (1e-3, 1.0, 30.0):
        v = w + size * rng.normal(size=len(w))
        room = 1e-11 * (1 + np.abs(v).sum() * np.abs(block.X).max())
        there = class_cut(Near(v, block, LOSS, MODEL, ball, radii)).base
        assert (alone.base + alone.gradient @ (v - w) <= there + room).all()
        floor = steepest(v, block, MODEL, ball).floor
        for level in (floor, floor + size * rng.random(), np.maximum(floor, joint.level)):
            below = joint.base + joint.gradient @ (v - w)
            below = below + joint.gradient_level * (level - joint.level)
            for i in range(2):
                price = label_cost * level[i] if radius and math.isfinite(label_cost) else math.inf
                fee = np.where(np.arange(C) == block.y[i][:, None], 0.0, price)
                above = (losses(v.reshape(3, C), block.X[i]) - fee).max(1)
                assert below[i] <= block.share[i] @ above + room


@pytest.mark.parametrize("label_cost", [0.4, 3.0, math.inf])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("d", [1, 2])
def test_no_distribution_on_a_grid_is_worse_and_one_comes_near(d, norm, label_cost):
    """A linear program over couplings of the rows with far and near points of every class."""
    _, block, w = instance(5 + d, 1, 4, d, classes=(0, 2))
    radius, W = np.array([0.3]), w.reshape(d, C)
    turns = np.linspace(0, 2 * np.pi, 64, endpoint=False)
    ways = np.array([[1.0], [-1.0]]) if d == 1 else np.c_[np.cos(turns), np.sin(turns)]
    steps = np.r_[0.0, np.geomspace(0.05, 2000.0, 15)]
    cost, gain, pick = [], [], []
    for i, (x, y) in enumerate(zip(block.X[0], block.y[0], strict=True)):
        points = x + (steps[:, None, None] * ways).reshape(-1, d)
        moved = np.linalg.norm(points - x, {"l1": 1, "l2": 2, "linf": math.inf}[norm], axis=1)
        p = points @ W
        top = p.max(1)
        spread = top + np.log(np.exp(p - top[:, None]).sum(1))
        for c in range(C):
            if c == y or math.isfinite(label_cost):
                cost += list(moved + (0.0 if c == y else label_cost))
                gain += list(spread - p[:, c])
                pick += [i] * len(points)
    rows = (np.array(pick) == np.arange(4)[:, None]).astype(float)
    solved = linprog(-np.array(gain), [cost], radius, rows, block.share[0], method="highs")
    assert solved.status == 0
    here = class_cut(Near(w, block, LOSS, MODEL, WassersteinBall(radius, label_cost, norm), radius))
    assert -solved.fun <= here.base[0] * (1 + 1e-9)
    assert -solved.fun >= here.base[0] - 3e-3 * radius[0] * np.linalg.norm(W) - 1e-3


@each
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2), (1,)])
def test_the_worst_distribution_is_in_the_ball_and_attains_the_value(norm, label_cost, classes):
    far = 1e-5
    for seed, radii in ((7, [0.02, 0.2, 0.0]), (8, [0.7, 3.0, 0.1])):
        _, block, w = instance(seed, classes=classes)
        radius = np.array(radii)
        ball = WassersteinBall(radius, label_cost, norm)
        worst = worst_case(Near(w, block, LOSS, MODEL, ball, radius))
        here = class_cut(Near(w, block, LOSS, MODEL, ball, radius))
        np.testing.assert_allclose(worst.value, here.base, rtol=1e-12)
        # the zero model aside, all of the radius is spent
        np.testing.assert_allclose(worst.label_cost + worst.feature_cost, radius, rtol=1e-12)
        for i in range(3):
            x, y, p, row = worst.distribution(i, far)
            data = block.X[i], block.y[i], block.share[i]
            spent = transport_cost(*data, x, y, p, row, norm, label_cost, classes=True)
            assert spent <= radius[i] * (1 + 1e-9)
            scores = x @ w.reshape(4, C)
            expected = p @ LOSS.value(scores, y)
            bound = far * 20 * (1 + np.abs(scores[: len(data[1])]).max())
            assert expected <= worst.value[i] * (1 + 1e-9)
            assert expected >= worst.value[i] - bound


def test_mass_goes_far_from_a_class_that_the_client_has_only_after_a_flip():
    """Classes 0 and 1 lie farthest apart, and the only row is of class 2: at a finite label cost it
    is flipped to one of them first.
    """
    finite, never = WassersteinBall(0.01, 50.0, "l2"), WassersteinBall(0.01, norm="l2")
    w = np.array([0.0, 3.0, 2.0, 0.0, 0.0, 2.0])
    two = block_of(np.array([[0.5, 1.0]]), np.array([2.0]))
    assert steepest(w, two, MODEL, never).floor == pytest.approx(math.sqrt(8))
    assert steepest(w, two, MODEL, finite).floor == pytest.approx(3.0)
    worst = worst_case(Near(w, two, LOSS, MODEL, finite, np.array([0.01])))
    assert worst.feature_cost == pytest.approx(0.01)
    labels = worst.distribution(0)[1]
    assert labels[0] == 2.0
    assert labels[1] in (0.0, 1.0)


@each
def test_two_classes_are_logistic_regression(norm, label_cost):
    rng, block, _ = instance(9)
    sign = np.where(block.y > 0, 1.0, -1.0)
    w, radius = rng.normal(size=4), np.array([0.1, 0.0, 0.7])
    ball = WassersteinBall(radius, label_cost, norm)
    pair = np.stack([-w / 2, w / 2], 1).ravel()
    block = replace(block, y=(sign > 0).astype(float))
    two = class_cut(Near(pair, block, LOSS, bf.Softmax(2, fit_intercept=False), ball, radius))
    plain = bf.Linear(fit_intercept=False)
    one = free_space(Near(w, replace(block, y=sign), bf.Logistic(), plain, ball, radius))
    np.testing.assert_allclose(two.base, radius * one.level + one.base, rtol=1e-12)


@pytest.mark.parametrize("label_cost", [0.5, math.inf])
def test_blocks_padding_sparse_rows_and_models_of_clients_change_nothing(label_cost):
    _, block, w = instance(10, classes=(0, 2))
    ball, radius = WassersteinBall(0.1, label_cost, "l2"), np.array([0.1, 0.0, 0.7])
    pad = ((0, 0), (0, 3))
    padded = replace(
        block,
        X=np.pad(block.X, (*pad, (0, 0))),
        y=np.pad(block.y, pad, constant_values=1.0),
        share=np.pad(block.share, pad),
    )
    own = np.repeat(w[None], 3, 0) * np.array([[1.0], [-1.0], [0.5]])
    together, apart = (class_cut(Near(v, padded, LOSS, MODEL, ball, radius)) for v in (w, own))
    for i in range(3):
        for X in (block.X[i][None], csr_array(block.X[i])):
            alone = replace(block_of(block.X[i], block.y[i], block.share[i]), X=X)
            for v, all_of in ((w, together), (own[i], apart)):
                one = class_cut(Near(v, alone, LOSS, MODEL, ball, radius[i : i + 1]))
                for field in ("base", "gradient"):
                    np.testing.assert_allclose(
                        getattr(one, field)[0], getattr(all_of, field)[i], rtol=1e-12, atol=1e-14
                    )
                    assert (
                        not worst_case(Near(v, alone, LOSS, MODEL, ball, radius[i : i + 1]))
                        .flips[:, len(block.y[i]) :]
                        .any()
                    )


# ---- problems


def federation(n=60, d=3, clients=3, seed=0):
    """Three classes, of which client 0 has two."""
    rng = np.random.default_rng(seed)
    y, client = rng.integers(3, size=n), np.arange(n) % clients
    y = np.where((client == 0) & (y == 1), 2, y)
    X = rng.normal(size=(n, d)) + 1.2 * np.eye(3, d)[y]
    return bf.Federation.from_arrays(X, np.array(["a", "b", "c"])[y], client)


def problem(label_cost=math.inf, norm="l2", radius=0.1, **more):
    ball = WassersteinBall(radius, label_cost, norm)
    settings = {"over_clients": bf.LpBall(0.2, 2), "regulariser": bf.L2(0.02)} | more
    return bf.Problem(LOSS, over_samples=ball, **settings)


def central(fed, label_cost, norm, radius, strength=0.02):
    """The dual as one program of exponential cones, with intercepts, over all clients."""
    d, labels = fed.n_features, ["a", "b", "c"]
    W, b, risks, rows = cp.Variable((d, C)), cp.Variable(C), [], []
    for i in range(fed.n_clients):
        X, y = fed.rows(i)
        y = np.array([labels.index(c) for c in y])
        P = X @ W + np.ones((len(y), 1)) @ cp.reshape(b, (1, C), order="C")
        spread, level, alpha = cp.log_sum_exp(P, axis=1), cp.Variable(), cp.Variable(len(y))
        reached = set(y.tolist()) if math.isinf(label_cost) else range(C)
        rows += [
            cp.norm(W[:, c] - W[:, y0], DUAL_P[norm]) <= level for y0 in reached for c in range(C)
        ]
        for c in range(C):
            same = y == c
            if same.any():
                rows.append(alpha[same] >= spread[same] - P[same, c])
            if (~same).any() and math.isfinite(label_cost):
                rows.append(alpha[~same] >= spread[~same] - P[~same, c] - label_cost * level)
        risks.append(radius * level + cp.sum(alpha) / len(y))
    z = cp.hstack(risks)
    gamma, eta, s = cp.Variable(), cp.Variable(fed.n_clients, nonneg=True), fed.n_clients
    over = cp.sum(z + eta) / s + 0.2 * cp.norm(z + gamma + eta, 2)
    h = strength / 2 * (cp.sum_squares(W) + cp.sum_squares(b))
    program = cp.Problem(cp.Minimize(over + h), rows)
    return float(program.solve(solver=cp.CLARABEL)), np.vstack([W.value, b.value]).ravel()


@pytest.mark.parametrize("label_cost", [0.7, 3.0, math.inf])
@pytest.mark.parametrize("norm", NORMS)
def test_the_optimum_against_a_program_of_exponential_cones(norm, label_cost):
    fed = federation()
    stated = problem(label_cost, norm)
    value, W = central(fed, label_cost, norm, 0.1)
    solution = bf.solve(stated, fed, tol=1e-7)
    assert solution.outcome.stop is bf.Stop.OPTIMAL
    assert solution.certificate.value == pytest.approx(value, rel=1e-6)
    assert solution.certificate.bound <= value * (1 + 1e-7)
    assert stated.objective(W, fed) == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(solution.w, W, atol=2e-3)


def test_intercepts_are_never_moved_however_they_are_stated():
    fed = federation()
    rng, ball = np.random.default_rng(1), WassersteinBall(0.2, 50.0, "l2")
    w = rng.normal(size=12)
    stated = bf.Problem(LOSS, over_samples=ball)
    X = [np.c_[fed.rows(i)[0], np.ones(fed.sizes[i])] for i in range(3)]
    ones = bf.Federation(fed.clients, X, [fed.rows(i)[1] for i in range(3)])
    model = bf.Softmax(fit_intercept=False, ones=True)
    own = bf.Problem(LOSS, model, over_samples=ball)
    assert own.objective(w, ones) == stated.objective(w, fed)
    moved = bf.Problem(LOSS, SOFTMAX, over_samples=ball)
    assert moved.objective(w, ones) > stated.objective(w, fed)
    concrete, data = stated.at(fed)
    block = data.block(1)
    raw = replace(block, X=block.X[..., :-1])
    beside = class_cut(Near(w, raw, LOSS, bf.Softmax(C), concrete.over_samples, np.array([0.2])))
    np.testing.assert_allclose(beside.gradient, concrete.cut(w, block).gradient, rtol=1e-12)
    with pytest.raises(ValueError, match="fit_intercept=False too"):
        bf.Softmax(ones=True)


@pytest.mark.parametrize("algorithm", [bf.AFL(), bf.DRFA(2), bf.Bundle(variant="level")], ids=repr)
def test_other_methods_come_to_the_same_optimum(algorithm):
    fed, stated = federation(), problem(3.0)
    best = bf.solve(stated, fed, tol=1e-6).certificate
    other = bf.solve(stated, fed, algorithm=algorithm, max_rounds=300).certificate
    assert best.bound <= other.value
    assert other.value <= best.value * 1.05
    assert other.bound <= best.value


def test_the_certificate_says_where_the_radius_goes():
    fed = federation()
    never, cheap, dear = (bf.solve(problem(cost), fed) for cost in (math.inf, 0.5, 50.0))
    W = never.w.reshape(4, C)[:3]
    levels = [floor_of(W, "l2", own) for own in ((0, 2), range(C), range(C))]
    np.testing.assert_allclose(never.certificate.client_levels, levels, rtol=1e-12)
    for solution, labels in ((never, 0.0), (cheap, 0.1), (dear, 0.0)):
        np.testing.assert_allclose(solution.certificate.client_labels, labels, atol=1e-12)
        np.testing.assert_allclose(solution.certificate.client_features, 0.1 - labels, atol=1e-12)
    assert {row["active"] for row in never.clients} == {"features"}
    assert {row["active"] for row in cheap.clients} == {"labels"}
    assert "inactive" in " ".join(cheap.notes)
    assert "inactive" not in " ".join([*never.notes, *dear.notes])
    rows = bf.exposed_rows(problem(0.5), fed, cheap.w, "1")
    assert rows[0]["flip"] > 0


def test_from_a_radius_on_constant_labels_are_useless():
    """Labels become uniform at a cost of label_cost (C - 1) / C a row, and no model then has a loss
    below log C.
    """
    solution = bf.solve(problem(0.3, radius=0.3 * 2 / 3), federation())
    assert solution.certificate.value == pytest.approx(math.log(3), rel=1e-6)


def test_a_path_of_radii_solves_each_by_itself():
    fed = federation(90)
    table = bf.radius_path(problem(), fed, radii=[0.3, 0.05, 0.0], test=fed)
    for row in table:
        alone = bf.solve(problem(radius=row["radius"]), fed).certificate
        assert row["relative_gap"] <= 1e-6
        assert row["value"] == pytest.approx(alone.value, rel=2e-6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"over_samples": WassersteinBall(0.1, support=bf.BoxSupport(-1, 1))}, "curved convex"),
        ({"predictor": bf.MLP(())}, "affine in the features"),
    ],
)
def test_what_has_no_worst_case_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        bf.Problem(**{"loss": LOSS, "over_samples": WassersteinBall(0.1)} | change)


def test_what_is_not_known_is_refused():
    fed = federation()
    with pytest.raises(ValueError, match="State a radius"):
        bf.solve(problem(radius="auto"), fed)
    with pytest.raises(ValueError, match="use"):
        bf.solve(problem(privacy=bf.Budget(3.0, 1e-3)), fed)
    with pytest.raises(ValueError, match="margin or the residual"):
        bf.solve(problem(), fed, algorithm=bf.ADLPMM())
