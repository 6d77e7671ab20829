"""Conic forms of the sets over clients against CVXPY over the set itself: value, dual value and the
worst weighting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from bonafed.solvers.conic.builder import Model
from bonafed.solvers.conic.weight_sets import (
    Bounded,
    Cut,
    Deviations,
    Elliptic,
    Entropy,
    Members,
    Moved,
    Weighting,
)
from bonafed.solvers.sets.projections import largest_under_caps

TOL = 1e-7  # both solvers stop at 1e-8 or less, on numbers of order one
N = 6
PRIOR = np.array([0.3, 0.05, 0.2, 0.0, 0.25, 0.2])
BOUNDS = np.array([0.1, 0.05, 1e-3, 0.2, 0.0, 0.6])
SHAPE = np.array([1.0, 0.1, 2.0, 0.5, 10.0, 0.3])
AXIS = np.array([1.0, 0.2, -1.0, 0.5, 2.0, 0.4])
FULL = np.diag(SHAPE) + 0.3 * np.outer(AXIS, AXIS)
PLACES = np.array([0.5, -1.0, 3.0, 0.5, 0.7, 1e-3])
COSTS = np.abs(np.subtract.outer(PLACES, PLACES)) ** 2 + np.triu(np.ones((N, N)), 1)
D = np.array([[1.0, 2.0, 0.0, -1.0, 0.0, 3.0], [-1.0, 0.0, 0.0, -1.0, 0.0, 0.0]])


def moved(q: cp.Variable, cost: np.ndarray, radius: float) -> list:
    plan = cp.Variable((N, N), nonneg=True)
    return [
        cp.sum(plan, axis=1) == PRIOR,
        cp.sum(plan, axis=0) == q,
        cp.sum(cp.multiply(plan, cost)) <= radius,
    ]


def entropy(q: cp.Variable, radius: float) -> list:
    inside = PRIOR > 0
    return [cp.sum(cp.rel_entr(q[inside], PRIOR[inside])) <= radius, q[~inside] == 0]


def chi_square(q: cp.Variable, radius: float) -> list:
    inside = PRIOR > 0
    scaled = cp.multiply(q[inside] - PRIOR[inside], PRIOR[inside] ** -0.5)
    return [cp.norm(scaled) <= radius**0.5, q[~inside] == 0]


def deviations(q: cp.Variable, budget: float) -> list:
    fixed = BOUNDS == 0
    off = cp.abs(q - PRIOR)
    shares = cp.multiply(off[~fixed], 1 / BOUNDS[~fixed])
    return [off <= BOUNDS, cp.sum(shares) <= budget]


LINE = np.abs(np.subtract.outer(PLACES, PLACES))
SETS: dict[str, tuple[Weighting, Callable[[cp.Variable], list]]] = {
    **{f"KL {r}": (Entropy(PRIOR, r), lambda q, r=r: entropy(q, r)) for r in (0.01, 0.3, 1.2)},
    **{
        f"chi-square {r}": (Elliptic(PRIOR, PRIOR**0.5, r**0.5), lambda q, r=r: chi_square(q, r))
        for r in (0.01, 0.8)
    },
    **{
        f"ellipsoid {r}": (
            Elliptic(PRIOR, SHAPE**0.5, r**0.5),
            lambda q, r=r: [cp.norm(cp.multiply(q - PRIOR, SHAPE**-0.5)) <= r**0.5],
        )
        for r in (0.01, 0.3)
    },
    **{
        f"full ellipsoid {r}": (
            Elliptic(PRIOR, np.linalg.cholesky(FULL), r**0.5),
            lambda q, r=r: [
                cp.norm(np.linalg.inv(np.linalg.cholesky(FULL)) @ (q - PRIOR)) <= r**0.5
            ],
        )
        for r in (0.01, 0.3)
    },
    "box": (Bounded(BOUNDS / 2, BOUNDS + 0.2), lambda q: [q >= BOUNDS / 2, q <= BOUNDS + 0.2]),
    "box, some fixed": (
        Bounded(np.array([0.1, 0, 0, 0, 0, 0.2]), np.array([0.1, 0, 1, 0, 1, 0.3])),
        lambda q: [q >= np.array([0.1, 0, 0, 0, 0, 0.2]), q <= np.array([0.1, 0, 1, 0, 1, 0.3])],
    ),
    "box, a point": (Bounded(PRIOR, np.ones(N)), lambda q: [q == PRIOR]),
    **{
        f"CD-norm {m}": (Deviations(PRIOR, BOUNDS, m), lambda q, m=m: deviations(q, m))
        for m in (0.0, 0.7, 2.5, 6.0)
    },
    **{
        f"line {r}": (Moved(PRIOR, r, PLACES), lambda q, r=r: moved(q, LINE, r))
        for r in (0.1, 0.5, 9.0)
    },
    **{
        f"costs {r}": (Moved(PRIOR, r, COSTS), lambda q, r=r: moved(q, COSTS, r))
        for r in (0.1, 0.5, 9.0)
    },
    "polyhedron": (Cut(D, np.array([1.0, -0.2])), lambda q: [np.array([1.0, -0.2]) >= D @ q]),
    "polyhedron without rows": (Cut(np.zeros((0, N)), np.zeros(0)), lambda q: []),
}


@pytest.mark.parametrize("digits", [0, 8], ids=["ties", "distinct"])
@pytest.mark.parametrize(("weighting", "constraints"), SETS.values(), ids=SETS)
def test_conic_form(weighting: Any, constraints: Any, digits: int):
    losses = np.round(np.random.default_rng(5).standard_normal(N), digits)
    model = Model()
    z = model.variable(N)
    model.zero([(z, 1.0), -losses])
    read = weighting.add(model, z)
    solution = model.solve().checked("test")
    q = cp.Variable(N, nonneg=True)
    expected = cp.Problem(cp.Maximize(losses @ q), [cp.sum(q) == 1, *constraints(q)]).solve(
        solver="CLARABEL"
    )
    weights = read(solution)
    assert_allclose([solution.value, solution.dual_value], expected, atol=TOL)
    assert_allclose([weights.sum(), weights @ losses], [1.0, expected], atol=1e-6)
    assert weights.min() >= -TOL
    member = cp.Variable(N, nonneg=True)
    off = cp.Problem(
        cp.Minimize(cp.norm(member - weights)), [cp.sum(member) == 1, *constraints(member)]
    )
    assert off.solve(solver="CLARABEL") <= 1e-5


def test_members_grow_to_the_whole_set():
    losses, caps = np.random.default_rng(5).standard_normal(N), np.full(N, 0.3)
    members = Members(np.full((1, N), 1 / N), lambda z: largest_under_caps(z, caps)[0])
    values = []
    while members is not None:
        model = Model()
        z = model.variable(N)
        model.zero([(z, 1.0), -losses])
        read = members.add(model, z)
        solution = model.solve().checked("test")
        values.append(solution.value)
        assert_allclose(read(solution) @ losses, solution.value, atol=1e-6)
        members = members.grown(losses, 1e-10)
    assert_allclose(
        [values[0], values[-1]],
        [losses.mean(), largest_under_caps(losses, caps)[0] @ losses],
        atol=TOL,
    )
    assert len(values) == 2
