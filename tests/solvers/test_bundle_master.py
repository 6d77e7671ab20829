"""The master problem of bundle methods, alone and beside one with all its variables."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from bonafed.arrays import Array
from bonafed.problem.risks.weight_sets import KLBall
from bonafed.solvers.conic import builder, bundle_master
from bonafed.solvers.conic.bundle_master import Pieces, Shape, minimise
from bonafed.solvers.conic.weight_sets import (
    Ball,
    Bounded,
    Deviations,
    Elliptic,
    Entropy,
    Members,
    Tails,
)


@pytest.mark.parametrize("below", [None, 0.01])
def test_what_nothing_bounds_does_not_drift_from_program_to_program(below: float | None) -> None:
    """A transport multiplier that costs what its cuts gain by it is free upwards, in the minimiser
    and in a projection on a level alike.
    """
    rng, radius = np.random.default_rng(0), np.full(2, 0.1)
    pieces = Pieces(
        owner=np.repeat([0, 1], 3),
        part=np.zeros(6, np.intp),
        offset=np.ones(6),
        gradient=rng.normal(size=(6, 3)),
        gradient_level=np.full(6, -0.1),
        parts=1,
    )
    shape = Shape(
        n_clients=2,
        radius=radius,
        lipschitz=1.0,
        floor=0.0,
        dual="linf",
        own_multipliers=True,
        weighting=Elliptic(np.full(2, 0.5), np.ones(2), 0.1),
        l1=0.0,
        l2=0.1,
        lower=-math.inf,
        upper=math.inf,
        intercept=0,
    )
    near = {"centre": np.zeros(3), "metric": 1.0, "accuracy": 1e-9}
    first = minimise(shape, pieces, **near)
    if below is not None:
        near["level"] = first.value - below * abs(first.value) / 10
        first = minimise(shape, pieces, **near)
    last = first
    for _ in range(60):
        last = minimise(shape, pieces, near=last.point, **near)
    assert last.value == pytest.approx(first.value, rel=1e-8)
    assert np.abs(last.point).max() <= 1e3


PRIOR = np.array([0.5, 0.3, 0.2])
FACTOR = np.array([1.0, 0.0, 0.7])  # the second weight is the prior's
ROOT = np.array([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.2, 0.6]])


def within(p: float) -> Any:
    return lambda q: [cp.norm(q - PRIOR, p) <= 0.2]


def elliptic(q: cp.Variable) -> list:
    return [q[1] == PRIOR[1], cp.norm(cp.multiply(1 / FACTOR[[0, 2]], (q - PRIOR)[[0, 2]])) <= 0.1]


SETS: dict[str, tuple[Any, Any]] = {
    "simplex": (Ball(PRIOR, math.inf, 2.0), lambda q: []),
    "prior": (Ball(PRIOR, 0.0, 2.0), lambda q: [q == PRIOR]),
    **{f"ball {p:g}": (Ball(PRIOR, 0.2, p), within(p)) for p in (1.0, 1.5, 2.0, math.inf)},
    "ellipsoid": (Elliptic(PRIOR, FACTOR, 0.1), elliptic),
    "turned ellipsoid": (
        Elliptic(PRIOR, ROOT, 0.1),
        lambda q: [cp.norm(np.linalg.inv(ROOT) @ (q - PRIOR)) <= 0.1],
    ),
    "entropy": (Entropy(PRIOR, 0.05), lambda q: [cp.sum(cp.kl_div(q, PRIOR)) <= 0.05]),
    "wide entropy": (Entropy(PRIOR, 1.2), lambda q: [cp.sum(cp.kl_div(q, PRIOR)) <= 1.2]),
    "tail": (Tails(np.ones(1), np.full((1, 3), 0.5)), lambda q: [q <= 0.5]),
}


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("name", SETS)
def test_multipliers_are_those_of_a_program_with_all_variables(name: str, parts: int) -> None:
    """The model of three clients by cuts of their parts, beside a limit with a penalty: value,
    minimiser, and the multipliers of cuts in their order, whose sums over a part are the weights.
    """
    weighting, inside = SETS[name]
    rng, owners = np.random.default_rng(parts), 4
    owner, part = (each.ravel() for each in np.indices((owners, parts))[:, :, :, None].repeat(4, 3))
    order = rng.permutation(len(owner))
    owner, part = owner[order], part[order]
    offset, gradient = rng.normal(size=len(owner)), rng.normal(size=(len(owner), 2))
    offset[owner == 3] -= 1.0  # a limit
    pieces = Pieces(owner, part, offset, gradient, np.zeros(len(owner)), parts)
    bounds = {"lower": -math.inf, "upper": math.inf, "intercept": 0, "own_multipliers": True}
    free = {"lipschitz": 0.0, "floor": 0.0, "dual": "linf", "l1": 0.0, "l2": 0.5}
    shape = Shape(3, np.zeros(3), weighting=weighting, penalties=np.array([3.0]), **bounds, **free)
    master = minimise(shape, pieces)
    mu = master.multipliers
    assert master.solved
    # a point of another program, as in a checkpoint of another version, is no more than a model
    for size in (2, len(master.point) - 1, len(master.point) + 3):
        other = minimise(shape, pieces, near=np.full(size, 1e3))
        assert other.value == pytest.approx(master.value, abs=1e-5)

    # the dual: what the multipliers prove, and the largest that any can
    nu, q = cp.Variable(len(owner), nonneg=True), cp.Variable(3, nonneg=True)
    slope = gradient.T @ nu
    sums = [
        cp.sum(nu[np.flatnonzero((owner == o) & (part == p))])
        == (q[o] if o < 3 else cp.sum(nu[np.flatnonzero((owner == 3) & (part == 0))]))
        for o in range(owners)
        for p in range(parts)
    ]
    limit = cp.sum(nu[np.flatnonzero((owner == 3) & (part == 0))]) <= 3.0
    dual = cp.Problem(
        cp.Maximize(offset @ nu - cp.sum_squares(slope) / (2 * 0.5)),
        [*sums, limit, cp.sum(q) == 1, *inside(q)],
    )
    best = dual.solve(solver="CLARABEL")
    assert master.value == pytest.approx(best, abs=1e-7)
    assert offset @ mu - ((gradient.T @ mu) ** 2).sum() == pytest.approx(best, abs=1e-7)
    assert_allclose(master.w, -(gradient.T @ mu) / 0.5, atol=1e-5)
    total = np.zeros((owners, parts))
    np.add.at(total, (owner, part), mu)
    assert_allclose(total, total[:, :1].repeat(parts, 1), atol=1e-7)
    assert total[:3, 0].sum() == pytest.approx(1.0, abs=1e-7)
    assert total[3, 0] <= 3 + 1e-7


@pytest.mark.parametrize("prior", [[0.5, 0.3, 0.2], [0.6, 0.4, 0.0]])
@pytest.mark.parametrize("radius", [1e-6, 1e-3, 0.05, 0.3])
@pytest.mark.parametrize("alike", [False, True])
def test_one_ulp_does_not_move_the_minimiser_over_an_entropy_ball(
    prior: list[float], radius: float, alike: bool
) -> None:
    """Where all clients are alike, their risks tie and nothing binds the radius."""
    rng, owner = np.random.default_rng(1), np.arange(12) // 4
    offset, gradient = rng.normal(size=12), rng.normal(size=(12, 2))
    if alike:
        offset, gradient = np.tile(offset[:4], 3), np.tile(gradient[:4], (3, 1))
    Q = Entropy(np.array(prior), radius)
    bounds = {"lower": -math.inf, "upper": math.inf, "intercept": 0, "own_multipliers": True}
    free = {"lipschitz": 0.0, "floor": 0.0, "dual": "linf", "l1": 0.0, "l2": 0.5}
    shape = Shape(3, np.zeros(3), weighting=Q, **bounds, **free)

    def solved(offset: Array, gradient: Array) -> Array:
        pieces = Pieces(owner, np.zeros(12, np.intp), offset, gradient, np.zeros(12), 1)
        return minimise(shape, pieces, accuracy=1e-9).w

    towards = rng.choice([-np.inf, np.inf], 12)
    other = solved(np.nextafter(offset, towards), np.nextafter(gradient, towards[:, None]))
    assert_allclose(solved(offset, gradient), other, rtol=0, atol=1e-9)


MANY = 230  # clients
EVEN = np.full(MANY, 1 / MANY)


def largest(z: Array) -> Array:
    return np.eye(MANY)[z.argmax()]


MANY_SETS: dict[str, Any] = {
    "mean": Ball(EVEN, 0.0, 2.0),
    "simplex": Ball(EVEN, math.inf, 2.0),
    **{f"ball {p:g}": Ball(EVEN, 0.1, p) for p in (1.0, 2.0)},
    "ball inf": Ball(EVEN, 0.5 / MANY, math.inf),
    "tail": Tails(np.ones(1), np.full((1, MANY), 10 / MANY)),
    "tails": Tails(np.array([0.4, 0.6]), np.full((2, MANY), 1 / MANY) * [[2.0], [20.0]]),
    "chi-square": Elliptic(EVEN, np.sqrt(EVEN), 0.5),
    "bounded": Bounded(0.5 * EVEN, 3 * EVEN),
    "deviations": Deviations(EVEN, EVEN, 20.0),
    "members": Members(np.stack([EVEN, largest(EVEN)]), largest),
}


def program_of_many(seed: int, units: float, weighting: Any) -> tuple[Shape, Pieces, dict]:
    """A master problem of many clients, some of them with equal cuts, or with many."""
    rng = np.random.default_rng(seed)
    D, parts = int(rng.integers(2, 7)), int(rng.integers(1, 3))
    clients = np.r_[np.arange(MANY), rng.integers(0, MANY, rng.integers(0, MANY))]
    owner, part = np.repeat(clients, parts), np.tile(np.arange(parts), len(clients))
    gradient = rng.normal(size=(len(owner), D))
    gradient[:, 0] *= float(rng.integers(0, 2)) * 1e3  # a column of large numbers, or of zeros
    gradient[-2 * parts :] = gradient[: 2 * parts]
    own = bool(rng.integers(0, 2))
    pieces = Pieces(
        owner=owner,
        part=part,
        offset=units * (1 + rng.random(len(owner))),
        gradient=units * gradient,
        gradient_level=np.full(len(owner), -0.02 * units * own / parts),
        parts=parts,
    )
    shape = Shape(
        n_clients=MANY,
        radius=np.full(MANY, units * float(rng.choice([0.0, 0.03]) if not own else 0.03)),
        lipschitz=1.0,
        floor=0.0,
        dual=str(rng.choice(["l1", "l2", "linf"])),
        own_multipliers=own,
        weighting=weighting,
        l1=0.0,
        l2=0.0,
        lower=-math.inf,
        upper=math.inf,
        intercept=int(rng.integers(0, 2)),
    )
    columns = np.r_[1e3, np.ones(D - 1)]
    B, centre = rng.normal(size=(D, D)) * columns, 0.1 * rng.normal(size=D) / columns
    near = {"centre": centre, "unit": units, "accuracy": 1e-9}
    return shape, pieces, near | {"metric": units * (B.T @ B + np.eye(D))}


@pytest.mark.parametrize("units", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", [*MANY_SETS])
def test_programs_of_many_clients_are_those_of_a_sparse_solver(
    name: str, units: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By blocks of clients: value, minimiser and multipliers are those that Clarabel finds."""
    failed, solve = [], builder.Model.solve
    for seed in range(4):
        shape, pieces, given = program_of_many(seed, units, MANY_SETS[name])
        with monkeypatch.context() as patch:
            patch.setattr(builder.Model, "solve", lambda *a: failed.append(a) or solve(*a))
            blocked = minimise(shape, pieces, **given)
        with monkeypatch.context() as patch:
            patch.setattr(builder.Model, "solve_fast", lambda self, tol: solve(self, 1e-11))
            sparse = minimise(shape, pieces, **given)
        assert blocked.solved
        moved = blocked.w - given["centre"], sparse.w - given["centre"]
        whole = [
            one.value + step @ given["metric"] @ step / 2
            for one, step in zip((blocked, sparse), moved, strict=True)
        ]
        assert whole[0] == pytest.approx(whole[1], rel=1e-8)
        step = blocked.w - sparse.w
        assert step @ given["metric"] @ step <= 1e-8 * abs(sparse.value)
        # multipliers may differ where cuts are equal, but not what they add up to
        sums = [part.multipliers @ pieces.gradient for part in (blocked, sparse)]
        size = np.abs(pieces.gradient).max(0)
        assert (np.abs(sums[0] - sums[1]) <= 1e-4 * np.maximum(size, units)).all()
    assert not failed


def test_an_entropy_ball_of_many_clients_is_met_by_its_worst_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same minimiser as of the program with a cone for each client."""
    N = 600
    rng, prior = np.random.default_rng(5), np.full(N, 1 / N)
    pieces = Pieces(
        owner=np.arange(N),
        part=np.zeros(N, np.intp),
        offset=rng.random(N),
        gradient=rng.normal(size=(N, 3)),
        gradient_level=np.zeros(N),
        parts=1,
    )
    ball = KLBall(0.1, prior=prior)
    shape = Shape(
        n_clients=N,
        radius=np.zeros(N),
        lipschitz=0.0,
        floor=0.0,
        dual="l2",
        own_multipliers=False,
        weighting=Entropy(prior, 0.1),
        l1=0.0,
        l2=0.0,
        lower=-math.inf,
        upper=math.inf,
        intercept=0,
        members=Members(prior[None], ball.weights),
    )
    given = {"centre": np.zeros(3), "metric": 1.0, "accuracy": 1e-9}
    by_weights = minimise(shape, pieces, **given)
    monkeypatch.setattr(bundle_master, "EXPONENTIAL", N)
    by_cones = minimise(shape, pieces, **given)
    assert by_weights.solved
    assert by_weights.value == pytest.approx(by_cones.value, rel=1e-7)
    assert_allclose(by_weights.w, by_cones.w, atol=1e-5)


@pytest.mark.parametrize("units", [1e-6, 1.0, 1e6])
def test_a_piece_of_every_client_with_fixed_weights_makes_a_system_of_equations(
    units: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its solution is that of the program, except where the offset meets its bound."""
    asked, solve = [], builder.Model.solve_fast
    monkeypatch.setattr(
        builder.Model, "solve_fast", lambda *a, **k: asked.append(a) or solve(*a, **k)
    )
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, D, intercept = int(rng.integers(1, 6)), int(rng.integers(2, 6)), int(rng.integers(0, 2))
        columns = np.append(10.0 ** rng.uniform(-3, 3, D - 1), 1.0)
        columns[0] *= float(rng.integers(0, 2))  # a column of zeros, whose metric is tiny
        prior, nowhere = rng.dirichlet(np.ones(n)), np.full(D - intercept, -1e9)
        pieces = Pieces(
            owner=np.arange(n),
            part=np.zeros(n, int),
            offset=units * rng.random(n),
            gradient=units * rng.normal(size=(n, D)) * columns,
            gradient_level=np.zeros(n),
            parts=1,
        )
        shape = Shape(
            n,
            np.zeros(n),
            0.0,
            0.0,
            "l2",
            False,
            Ball(prior, 0.0, 2.0),
            0.0,
            units * float(rng.choice([0.0, 0.1])),
            -math.inf,
            math.inf,
            intercept,
        )
        B = rng.normal(size=(D, D)) * columns
        H = units * (B.T @ B + 1e-3 * np.diag(np.maximum(columns, 1e-3) ** 2))
        given: dict[str, Any] = {"centre": rng.normal(size=D), "metric": H, "unit": units}
        found = minimise(shape, pieces, **given)
        assert not asked
        program = minimise(replace(shape, lower=nowhere), pieces, **given)
        assert len(asked) == 1
        for name in ("value", "multipliers"):
            np.testing.assert_allclose(getattr(found, name), getattr(program, name), rtol=1e-7)
        step = found.w - program.w
        assert step @ H @ step <= 1e-12 * units
        if intercept:
            near = minimise(shape, pieces, offset=abs(found.w[-1]) / 2, **given)
            assert len(asked) == 2
            assert abs(near.w[-1]) <= abs(found.w[-1]) / 2 * (1 + 1e-8)
        asked.clear()
