"""Worst cases on boxes and polytopes against conic models, vertex linear programs and explicit
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
    NORMS,
    PIECEWISE,
    block_of,
    box_rows,
    free_value,
    name,
    polytope_value,
    targets,
    transport_cost,
    vertex_value,
)
from problems import PLAIN
from scipy.sparse import csr_array

import bonafed as bf
from bonafed.data.federation import Federation
from bonafed.problem.losses import Absolute, EpsilonInsensitive, Hinge, Huber, Logistic, Quantile
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.wasserstein.ball import Near, WassersteinBall, worst_case
from bonafed.problem.wasserstein.supports import BoxSupport, PolytopeSupport

BOXES = {
    "[-1,1]": (-1.0, 1.0),
    "[0,1]": (0.0, 1.0),
    "general": (np.array([-2.0, 0.5, 3.0]), np.array([0.0, 0.7, 9.0])),
}
ALL = [(loss, norm, cost) for loss in PIECEWISE for norm in NORMS for cost in LABEL_COSTS]
each = pytest.mark.parametrize(("loss", "norm", "label_cost"), ALL, ids=lambda v: name(v))
LINEAR = Linear(fit_intercept=True)


def instance(loss, box=(-1.0, 1.0), seed=0, clients=2, rows=5, d=3):
    rng = np.random.default_rng(seed)
    X, y = rng.uniform(*box, (clients, rows, d)), targets(rng, loss, (clients, rows))
    return (
        rng,
        block_of(X, y, rng.dirichlet(np.ones(rows), clients)),
        rng.normal(size=d + 1) * rng.choice([0.4, 1.5]),
    )


def polytope(rng, loss, kind, d=3):
    """C, d, c_label round the origin: bounded in x (in x and y for real targets), or open."""
    if kind == "open":
        return -np.eye(d), np.ones(d), None
    C = np.vstack([rng.normal(size=(7, d)), np.eye(d), -np.eye(d)])
    c = (
        np.r_[rng.normal(size=7), np.zeros(2 * d)]
        if kind == "joint" and loss.targets == "real"
        else None
    )
    return C, np.abs(C).sum(1), c


# every pair of a loss, a norm, a label cost and a box
SQUARE = [
    pytest.param(loss, norm, cost, box, id=f"{name(loss)}-{norm}-{cost}-{kind}")
    for i, loss in enumerate(PIECEWISE)
    for j, norm in enumerate(NORMS)
    for k, cost in enumerate(LABEL_COSTS)
    for b, (kind, box) in enumerate(BOXES.items())
    if (i + j + k + b) % len(BOXES) == 0
]


@pytest.mark.parametrize(("loss", "norm", "label_cost", "box"), SQUARE)
def test_box_value_equals_the_conic_model(loss, norm, label_cost, box):
    seed = int(10 * min(label_cost, 9)) + len(norm)
    rng, block, w = instance(loss, box, seed)
    radius = np.array([0.05, 0.8]) * rng.choice([1.0, 4.0])
    cut = BoxSupport(*box).cut(
        Near(w, block, loss, LINEAR, WassersteinBall(radius, label_cost, norm), radius)
    )
    rows, value = box_rows(*box, 3), radius * cut.level + cut.base
    for i in range(2):
        data = w[:-1], block.X[i], block.y[i], block.share[i]
        expected = polytope_value(*data, loss, norm, label_cost, radius[i], *rows, b=w[-1])
        # the conic solver's own accuracy
        assert value[i] == pytest.approx(expected, rel=1e-6, abs=1e-7)


@each
@pytest.mark.parametrize("kind", ["joint", "open"])
def test_polytope_value_equals_the_conic_model(loss, norm, label_cost, kind):
    rng, block, w = instance(loss, (-0.4, 0.4), seed=11, clients=1)
    C, d, c = polytope(rng, loss, kind)
    support, radius = PolytopeSupport(C, d, c), np.array([rng.choice([0.05, 0.5, 3.0])])
    X, y = support.project(block.X[0], block.y[0])
    block = block_of(X, y, block.share)
    cut = support.cut(
        Near(w, block, loss, LINEAR, WassersteinBall(radius, label_cost, norm), radius)
    )
    data = w[:-1], X, y, block.share[0]
    expected = polytope_value(*data, loss, norm, label_cost, radius[0], C, d, c, b=w[-1])
    assert (radius * cut.level + cut.base)[0] == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("seed", range(3))
def test_the_risk_on_a_polytope_is_no_less_than_that_on_the_box_of_its_faces(seed):
    """The plan that a solver finds is below it by up to its tolerance, and its dual bound above."""
    radius, below = np.array([0.15, 0.9]), []
    for loss, norm, label_cost in ALL:
        _, block, w = instance(loss, seed=seed)
        given = w, block, loss, LINEAR, WassersteinBall(0.0, label_cost, norm), radius
        exact = BoxSupport(-1, 1).cut(Near(*given)).risks(radius)
        cut = PolytopeSupport(*box_rows(-1, 1, 3)).cut(Near(*given))
        assert (cut.risks(radius) >= exact * (1 - 1e-12)).all()
        np.testing.assert_allclose(cut.risks(radius), exact, rtol=1e-7, atol=1e-10)
        below.append(((radius * cut.level + cut.base) / exact).min())
    assert min(below) < 1 - 1e-12


def test_the_objective_on_a_polytope_is_the_dual_bound_of_its_adversary():
    _, block, w = instance(Hinge(), seed=1)
    fed = Federation.from_arrays(block.X[0], block.y[0], np.repeat("a", 5))
    support = PolytopeSupport(*box_rows(-1, 1, 3))
    problem = bf.Problem(
        Hinge(), LINEAR, over_samples=WassersteinBall(0.2, 0.8, "l2", support=support)
    )
    cut = problem.at(fed)[0].cut(w, fed.block(0))
    assert problem.objective(w, fed) == cut.worst[0]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from([Hinge(), Absolute(), Quantile(0.3)]),
    label_cost=st.sampled_from(LABEL_COSTS),
    radius=st.sampled_from([1e-3, 0.05, 0.3, 1.0, 10.0]),
    on_the_edge=st.booleans(),
)
def test_l1_box_value_equals_the_vertex_program(seed, loss, label_cost, radius, on_the_edge):
    _, block, w = instance(loss, seed=seed, clients=1, rows=4, d=2)
    X = np.sign(block.X[0]) if on_the_edge else block.X[0]
    if loss.targets == "real":
        label_cost = math.inf  # a real target that moves has no finite set of vertices
    cut = BoxSupport(-1, 1).cut(
        Near(
            w[:-1],
            block_of(X, block.y[0], block.share),
            loss,
            PLAIN,
            WassersteinBall(radius, label_cost, "l1"),
            np.array([radius]),
        )
    )
    expected = vertex_value(
        w[:-1], X, block.y[0], block.share[0], loss, label_cost, radius, -1.0, 1.0
    )
    assert (radius * cut.level + cut.base)[0] == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", PIECEWISE, ids=name)
def test_a_box_is_the_polytope_of_its_faces_and_grows_to_free_space(loss, norm):
    _, block, w = instance(loss, seed=4)
    radius, label_cost = np.array([0.07, 0.4]), 0.8
    values = []
    for half in (1.0, 2.0, 1e5):
        ball = WassersteinBall(radius, label_cost, norm)
        cut = BoxSupport(-half, half).cut(Near(w, block, loss, LINEAR, ball, radius))
        faces = PolytopeSupport(*box_rows(-half, half, 3)).cut(
            Near(w, block, loss, LINEAR, ball, radius)
        )
        values.append(radius * cut.level + cut.base)
        np.testing.assert_allclose(
            radius * faces.level + faces.base, values[-1], rtol=1e-6, atol=1e-8
        )
    assert (np.diff(values, axis=0) >= -1e-12).all()
    free = [
        free_value(
            w[:-1], block.X[i], block.y[i], block.share[i], loss, norm, label_cost, radius[i], w[-1]
        )
        for i in range(2)
    ]
    # short of it by a few losses times radius / 1e5
    np.testing.assert_allclose(values[-1], free, rtol=1e-4)


@settings(deadline=None, max_examples=150)
@given(
    case=st.sampled_from(ALL),
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 6),
    shape=st.sampled_from(["random", "equal rows", "corners", "zero model", "equal weights in w"]),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
    radius=st.sampled_from([1e-3, 0.1, 0.25, 0.5, 20.0]),
)
def test_the_box_cut_holds_for_every_model_and_price(case, seed, rows, shape, scale, radius):
    loss, norm, label_cost = case
    rng = np.random.default_rng(seed)
    X, y, w = rng.uniform(-1, 1, (2, rows, 3)), targets(rng, loss, (2, rows)), rng.normal(size=4)
    if shape == "equal rows":
        X[:], y[:] = X[:, :1], y[:, :1]
    elif shape == "corners":
        X, w = np.sign(X), np.round(w)
    elif shape == "zero model":
        w[:] = 0.0
    elif shape == "equal weights in w":
        w[:3] = w[0]
    stretch = np.r_[np.full(3, 1 / scale), 1.0]
    w, block, box = w * stretch, block_of(X * scale, y), BoxSupport(-scale, scale)
    ball, radii = (
        WassersteinBall(radius, label_cost * scale, norm),
        scale * radius * np.array([1.0, 0.5]),
    )
    cut = box.cut(Near(w, block, loss, LINEAR, ball, radii))
    floor = 0.0 if loss.targets == "sign" else loss.lipschitz / ball.label_cost
    assert (cut.gradient_level >= -radii * (1 + 1e-12)).all()
    assert (cut.level >= floor).all()
    for size in (1e-7, 1e-3, 1.0, 30.0):
        v = w + size * rng.normal(size=4) * stretch
        at, _ = box.planner(v, block, loss, LINEAR, ball)
        for level in (
            np.full(2, floor),
            floor + size * rng.random(2) / scale,
            np.maximum(floor, cut.level),
        ):
            above = at(level).value  # attained by moves inside the box, so at most f(v, l)
            below = cut.base + cut.gradient @ (v - w) + cut.gradient_level * (level - cut.level)
            room = 1e-12 * (
                1 + np.abs(above) + np.abs(below) + np.abs(cut.gradient) @ np.abs(v - w)
            )
            assert (below <= above + room).all()


@settings(deadline=None, max_examples=200)
@given(
    case=st.sampled_from(ALL),
    seed=st.integers(0, 10**6),
    d=st.integers(1, 6),
    radius=st.sampled_from([0.02, 0.1, 0.5, 2.0]),
    digits=st.sampled_from([0, 1, 16]),
)
def test_the_moves_are_those_that_the_value_counts(case, seed, d, radius, digits):
    loss, norm, label_cost = case
    _, block, w = instance(loss, seed=seed, rows=8, d=d)
    # ties: where several moves are best
    block, w = replace(block, X=np.round(block.X, digits)), np.round(w, digits)
    box, ball = BoxSupport(-1, 1), WassersteinBall(radius, label_cost, norm)
    args = w, block, loss, LINEAR, ball
    low, high, _ = box.plans(Near(*args, np.array([radius, radius / 2])))
    for plan in (low, high):
        delta = box.moves(np.repeat(w[None, :d], 2, 0), plan, block, norm)
        moved, y = block.X + delta, np.where(plan.flip, -block.y, block.y)
        spent = np.linalg.norm(delta, {"l1": 1, "l2": 2, "linf": np.inf}[norm], axis=2)
        np.testing.assert_allclose(spent, plan.spent, atol=1e-13)
        fee = np.where(plan.flip, label_cost if math.isfinite(label_cost) else 0.0, 0.0)
        won = loss.value(LINEAR.forward(w, replace(block, X=moved)), y) - plan.lambda_[:, None] * (
            spent + fee
        )
        np.testing.assert_allclose(block.mean(won), plan.value, rtol=1e-12, atol=1e-13)
        mass = block.share * plan.pull
        gradient = np.einsum("nr,nrj->nj", mass, moved)
        pushed = box._push(np.repeat(w[None, :d], 2, 0), mass, plan, block, norm)
        np.testing.assert_allclose(block.backward(mass) + pushed, gradient, atol=1e-13)


@pytest.mark.parametrize("loss", PIECEWISE, ids=name)
@pytest.mark.parametrize("kind", ["joint", "open"])
def test_the_polytope_cut_holds_for_every_model(loss, kind):
    rng, block, w = instance(loss, (-0.4, 0.4), seed=12)
    C, d, c = polytope(rng, loss, kind)
    support, radius = PolytopeSupport(C, d, c), np.array([0.1, 0.6])
    block = replace(block, y=np.clip(block.y, -0.2, 0.2) if c is not None else block.y)
    assert not support.outside(block.X[0], block.y[0]).any()
    ball = WassersteinBall(radius, 0.8, "l2")
    cut = support.cut(Near(w, block, loss, LINEAR, ball, radius))
    for size in (1e-2, 1.0, 10.0):
        v = w + size * rng.normal(size=4)
        other = support.cut(Near(v, block, loss, LINEAR, ball, radius))
        # minimising over the price: R(v) >= base + <gradient, v - w> + radius * level when the cut
        # spends the radius
        below = cut.base + cut.gradient @ (v - w) + radius * cut.level
        assert (below <= radius * other.level + other.base + 1e-7 * (1 + size)).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", PIECEWISE, ids=name)
@pytest.mark.parametrize("label_cost", [0.3, math.inf])
def test_box_gradient_is_the_difference_quotient(loss, norm, label_cost):
    rng, block, w = instance(loss, seed=21)
    radius, ball, box = (
        np.array([0.11, 0.5]),
        WassersteinBall(0.1, label_cost, norm),
        BoxSupport(-1, 1),
    )

    def value(v):
        cut = box.cut(Near(v, block, loss, LINEAR, ball, radius))
        return radius * cut.level + cut.base

    direction, h = rng.normal(size=4), 1e-5
    gradient = box.cut(Near(w, block, loss, LINEAR, ball, radius)).gradient @ direction
    # the price is the minimiser, so the gradient in w alone is the gradient; l2 is curved: h^2 and
    # value error / h
    np.testing.assert_allclose(
        (value(w + h * direction) - value(w - h * direction)) / (2 * h), gradient, atol=2e-6
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("loss", PIECEWISE, ids=name)
def test_blocks_padding_sparse_rows_and_weights(loss, norm):
    _, block, w = instance(loss, seed=5, clients=3)
    ball, radius, box = (
        WassersteinBall(0.1, 0.5, norm),
        np.array([0.1, 0.0, 0.7]),
        BoxSupport(-1, 1),
    )
    pad = ((0, 0), (0, 3))
    padded = replace(
        block,
        # outside the box: padding is not looked at
        X=np.pad(block.X, (*pad, (0, 0)), constant_values=7.0),
        y=np.pad(block.y, pad, constant_values=1.0),
        share=np.pad(block.share, pad),
    )
    together = box.cut(Near(w, padded, loss, LINEAR, ball, radius))
    for i in range(3):
        for X in (block.X[i][None], csr_array(block.X[i])):
            alone = replace(block_of(block.X[i], block.y[i], block.share[i]), X=X)
            cut = box.cut(Near(w, alone, loss, LINEAR, ball, radius[i : i + 1]))
            for field in ("base", "level", "gradient", "gradient_level"):
                np.testing.assert_allclose(
                    getattr(cut, field)[0], getattr(together, field)[i], rtol=1e-11, atol=1e-12
                )
    assert together.level[1] == together.gradient_level[1] == 0.0
    plain = loss.value(LINEAR.forward(w, block), block.y)
    assert together.base[1] == pytest.approx(block.mean(plain)[1], rel=1e-14)

    times = np.array([1, 3, 2, 1, 4])
    weighted = block_of(block.X[0], block.y[0], times / times.sum())
    repeated = block_of(np.repeat(block.X[0], times, 0), np.repeat(block.y[0], times))
    a, b = (box.cut(Near(w, rows, loss, LINEAR, ball, radius[:1])) for rows in (weighted, repeated))
    np.testing.assert_allclose(
        radius[0] * a.level + a.base, radius[0] * b.level + b.base, rtol=1e-12
    )
    np.testing.assert_allclose(a.gradient, b.gradient, rtol=1e-9, atol=1e-9)


@each
@pytest.mark.parametrize("kind", ["box", "joint", "open"])
def test_the_worst_distribution_stays_inside_and_attains_the_value(loss, norm, label_cost, kind):
    rng, block, w = instance(loss, (-0.4, 0.4), seed=31)
    radius, inside = np.array([0.15, 0.9]), PolytopeSupport(*box_rows(-1, 1, 3))
    if kind == "box":
        support = BoxSupport(-1.0, 1.0)
    else:
        support = inside = PolytopeSupport(*polytope(rng, loss, kind))
        block = replace(
            block, y=np.clip(block.y, -0.2, 0.2) if support.c_label is not None else block.y
        )
    worst = worst_case(
        Near(w, block, loss, LINEAR, WassersteinBall(radius, label_cost, norm, support), radius)
    )
    cut = support.cut(
        Near(w, block, loss, LINEAR, WassersteinBall(radius, label_cost, norm), radius)
    )
    value = radius * cut.level + cut.base
    np.testing.assert_allclose(worst.value, value, rtol=1e-5)
    for i in range(2):
        x, y, p, row = worst.distribution(i, far=1e-5)
        # mass that goes far along a ray of an open polytope has parts of 1e-6
        near = p > 1e-4 * block.share[i, row]
        assert not inside.outside(x[near], y[near], 1e-6).any()
        data = block.X[i], block.y[i], block.share[i]
        spent = transport_cost(
            *data, x, y, p, row, norm, label_cost, classes=loss.targets == "sign"
        )
        assert spent <= radius[i] * (1 + 1e-9)
        expected = p @ loss.value(x @ w[:-1] + w[-1], y)
        # parts of 1e-5 and 1e-6 of losses of order 10
        assert expected == pytest.approx(value[i], rel=1e-4, abs=1e-4)


def test_data_outside_are_named_or_clipped():
    X, y = (
        [np.array([[0.5, 0.1], [1.5, 0.0], [0.0, -3.0]]), np.zeros((2, 2))],
        [np.array([0.1, 0.2, 3.0]), np.zeros(2)],
    )
    fed = Federation(("north", "south"), X, y)
    for support, nearest in (
        (BoxSupport(-1, 1), [[0.5, 0.1], [1.0, 0.0], [0.0, -1.0]]),
        (PolytopeSupport(*box_rows(-1, 1, 2)), [[0.5, 0.1], [1.0, 0.0], [0.0, -1.0]]),
        (
            PolytopeSupport([[1.0, 1.0], [0.0, -2.0]], [1.0, 2.0]),
            [[0.5, 0.1], [1.25, -0.25], [0.0, -1.0]],
        ),
    ):
        with pytest.raises(ValueError, match=r"'north'.* 2 of 3 rows .*\(rows 1, 2\)"):
            support.admit(fed, Absolute())
        clipped = support.admit(fed, Absolute(), clip=True)
        np.testing.assert_allclose(clipped.rows(0)[0], nearest, atol=1e-8)
        assert support.admit(clipped, Absolute()) is clipped or isinstance(support, BoxSupport)
        np.testing.assert_array_equal(fed.rows(0)[0], X[0])
    joint = PolytopeSupport([[0.0, 0.0]], [2.0], [1.0])
    clipped = joint.admit(Federation(("north",), [np.zeros((3, 2))], [y[0]]), Absolute(), clip=True)
    np.testing.assert_allclose(clipped.rows(0)[1], [0.1, 0.2, 2.0], atol=1e-8)


def test_rows_on_the_edge_up_to_rounding_are_inside():
    fed = Federation(("one",), [np.array([[1.0 + 1e-12], [-1.0]])], [np.array([1.0, -1.0])])
    assert BoxSupport(-1, 1).admit(fed, Hinge()).rows(0)[0].max() == 1.0


@pytest.mark.parametrize(
    "support", [BoxSupport(-1, 1), PolytopeSupport(*box_rows(-1, 1, 3))], ids=["box", "polytope"]
)
@pytest.mark.parametrize("loss", [Logistic(), Huber(1.0)], ids=name)
def test_curved_losses_are_refused(support, loss):
    _, block, w = instance(loss)
    with pytest.raises(ValueError, match="curved convex function"):
        support.cut(Near(w, block, loss, LINEAR, WassersteinBall(0.1), np.full(2, 0.1)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: BoxSupport(1, 1), "lower must be < upper"),
        (lambda: BoxSupport(-np.inf, 1), "finite"),
        (lambda: BoxSupport(np.zeros(2), np.ones(3)), "one per feature"),
        (lambda: BoxSupport(np.zeros(2), 1).bounds(3), "3 features"),
        (lambda: PolytopeSupport(np.eye(2), np.ones(3)), "shapes"),
        (lambda: PolytopeSupport(np.zeros((1, 2)), np.ones(1)), "all zero"),
        (lambda: PolytopeSupport([[np.nan]], [1.0]), "finite"),
        (lambda: PolytopeSupport(np.eye(2), np.ones(2)).rows(3), "3 features"),
        (lambda: PolytopeSupport([[1.0]], [1.0], [1.0]).check(Hinge()), "c_label"),
    ],
)
def test_impossible_supports_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_supports_are_values():
    assert BoxSupport([0, 0], [1, 2]) == BoxSupport(np.zeros(2), np.array([1.0, 2.0]))
    assert hash(PolytopeSupport(np.eye(2), np.ones(2))) == hash(PolytopeSupport(np.eye(2), [1, 1]))
    assert EpsilonInsensitive(0.1).pieces[0] == (0.0, 0.0)
