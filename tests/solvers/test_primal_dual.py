"""Interior point steps against the full, unreduced KKT system, differences, and another solver."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize

from bonafed.solvers.smooth.primal_dual import (
    BOUNDARY,
    LEAST_SLACK,
    Iterate,
    Program,
    _factored,
    _solved,
    direction,
    first,
    longest,
    merit,
    merit_gradient,
    moved,
    recedes,
    residuals,
    steps,
)

NONE = np.zeros(0)


def program(seed=0, nx=6, m=8, k=2, rank=None, redundant=False, bend=0.0):
    """Random derivatives; the Hessian has this rank, the last equality repeats the first if
    ``redundant``.
    """
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((nx, nx if rank is None else rank))
    E, e = rng.standard_normal((k, nx)), rng.standard_normal(k)
    if redundant:
        E, e = np.vstack([E, 2 * E[:1]]), np.append(e, 2 * e[0])
    return Program(
        float(rng.standard_normal()),
        rng.standard_normal(nx),
        half @ half.T - bend * np.eye(nx),
        rng.standard_normal(m),
        rng.standard_normal((m, nx)),
        e,
        E,
    )


def iterate(p, active=0, seed=1):
    """Positive slacks and multipliers, the first ``active`` slacks tiny with multipliers of size
    one.
    """
    rng = np.random.default_rng(seed)
    s, z = rng.uniform(0.1, 2, len(p.c)), rng.uniform(0.1, 2, len(p.c))
    s[:active] *= 1e-11
    z[active:] *= 1e-6 if active else 1.0
    return Iterate(rng.standard_normal(len(p.gradient)), s, z, rng.standard_normal(len(p.e)))


def left_over(p, at, step, delta, products):
    """Residuals of the four rows of the Newton system, each over the size of its terms."""
    # J dx cancels: ds is no better
    slip = at.z * (np.abs(p.J) @ np.abs(step.x)) * np.array([[1.0], [-1.0]])
    rows = [
        (
            p.hessian @ step.x + delta * step.x,
            p.J.T @ step.z,
            p.E.T @ step.lam,
            p.gradient,
            p.J.T @ at.z,
            p.E.T @ at.lam,
        ),
        (p.J @ step.x, step.s, p.c, at.s),
        (p.E @ step.x, p.e),
        (at.z * step.s, at.s * step.z, products, *slip),
    ]
    return [
        float(np.abs(sum(row)).max(initial=0) / max(np.abs(part).max(initial=0) for part in row))
        for row in rows[:4]
        if row[0].size
    ]


def near(p, active):
    """The program and an iterate at which ``active`` constraints hold with almost no slack."""
    at = iterate(p, active)
    return replace(p, c=np.append(-at.s[:active] * 1.5, p.c[active:])), at


CASES = {
    "plain": near(program(), 0),
    "active rows": near(program(), 3),
    "more active rows than freedom": near(program(m=12, k=0), 7),
    "redundant equalities": near(program(redundant=True), 2),
    "no curvature": near(program(rank=0), 4),
    "rank one": near(program(rank=1), 2),
    "no equalities": near(program(k=0), 1),
    "one inequality": near(program(m=1), 1),
    "no inequalities": near(program(m=0), 0),
    "no constraints": near(program(m=0, k=0), 0),
}
# their Jacobian has no right inverse: the rows are eliminated softly
NEARLY = {"more active rows than freedom": 1e-5}


@pytest.mark.parametrize("name", CASES)
def test_the_step_solves_the_unreduced_system(name):
    p, at = CASES[name]
    rng = np.random.default_rng(2)
    products = at.s * at.z * rng.uniform(0.2, 1.5, len(at.s))
    system = _factored(p, at, 0.0)
    step = _solved(p, at, system, products)
    assert (
        system.delta <= 1e-10 * max(np.abs(np.diag(p.hessian)).max(initial=0), 1e-8)
        or name == "no curvature"
    )
    assert max(left_over(p, at, step, system.delta, products)) <= NEARLY.get(name, 1e-8)


@pytest.mark.parametrize("name", CASES)
def test_the_direction_aims_at_a_smaller_barrier(name):
    p, at = CASES[name]
    way = direction(p, at, 0.0)
    assert max(
        left_over(p, at, way.step, way.delta, np.zeros(len(p.c)))[:-1] or [0.0]
    ) <= NEARLY.get(name, 1e-8)
    if not len(p.c):
        assert way.mu == 0.0
        return
    mu = at.s @ at.z / len(at.s)
    assert 1e-3 * mu <= way.mu <= mu
    # of second order, guarded
    correction = way.mu - at.s * at.z - (at.z * way.step.s + at.s * way.step.z)
    assert correction.min() >= -mu * (1 + 1e-6)
    assert correction.max() <= 10 * mu * (1 + 1e-6)


def test_without_positive_curvature_the_hessian_is_raised_until_the_step_descends():
    p = program(m=0, k=1, bend=30.0)
    way = direction(p, iterate(p), 0.0)
    assert way.delta > 0
    matrix = p.hessian + way.delta * np.eye(6)
    free = np.linalg.svd(p.E)[2][1:].T
    assert np.linalg.eigvalsh(free.T @ matrix @ free).min() > 0


def test_derivatives_that_are_not_finite_end_in_words():
    p = replace(program(), hessian=np.full((6, 6), 1e308))
    with np.errstate(all="ignore"), pytest.raises((ArithmeticError, ValueError)):
        direction(p, iterate(p), 0.0)


def test_step_lengths():
    value = np.array([1.0, 2.0, 3.0])
    assert longest(value, np.array([1.0, 0.0, 5.0])) == np.inf
    assert longest(value, np.array([-0.5, -4.0, 1.0])) == 0.5
    assert longest(NONE, NONE) == np.inf
    at = Iterate(NONE, value, value, NONE)
    for ratio, expected in (
        (0.25, 1.0),
        (0.9, 1.0),
        (0.999, BOUNDARY / 0.999),
        (1.0, BOUNDARY),
        (4.0, BOUNDARY / 4),
    ):
        step = Iterate(NONE, -ratio * value, np.zeros(3), NONE)
        primal, dual = steps(at, step)
        assert (primal, dual) == (pytest.approx(expected, rel=1e-12), 1.0)
        assert (moved(at, step, primal, dual).s > 0).all()


def curved(x, s):
    """A program with curved f, c, e at x, all smooth."""
    A = np.array([[1.0, 0.3], [0.3, 2.0]])
    value = float(x @ A @ x / 2 + np.sin(x[0]))
    gradient = A @ x + np.array([np.cos(x[0]), 0.0])
    c = np.array([x @ x - 1.0, np.exp(x[1]) - 2.0, x[0] - 3.0])
    J = np.array([2 * x, [0.0, np.exp(x[1])], [1.0, 0.0]])
    e, E = np.array([x[0] * x[1] - 0.2]), np.array([[x[1], x[0]]])
    return Program(value, gradient, A + 0.1 * np.eye(2), c, J, e, E)


@pytest.mark.parametrize("seed", range(5))
def test_gradient_of_the_merit_function_is_its_difference(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(2)
    p = curved(x, None)
    at = Iterate(x, rng.uniform(0.1, 1, 3), rng.uniform(0.1, 1, 3), rng.standard_normal(1))
    way = direction(p, at, 0.0)
    for mu, nu in ((0.1, 1.0), (1e-3, 30.0)):
        h = 1e-6
        ahead, behind = (moved(at, way.step, t, t) for t in (h, -h))
        difference = (
            (
                merit(curved(ahead.x, None), ahead.s, mu, nu)
                - merit(curved(behind.x, None), behind.s, mu, nu)
            )
            / 2
            / h
        )
        assert merit_gradient(p, at, way.step, mu, nu) == pytest.approx(
            difference, rel=1e-5, abs=1e-6
        )


def test_residuals_by_hand():
    p = Program(
        0.0,
        np.array([1.0, -2.0]),
        np.eye(2),
        np.array([-1.0]),
        np.array([[1.0, 1.0]]),
        np.array([0.5]),
        np.array([[0.0, 1.0]]),
    )
    left = residuals(p, Iterate(np.zeros(2), np.array([0.25]), np.array([3.0]), np.array([-1.5])))
    assert (left.dual, left.primal, left.mu, left.worst) == (4.0, 0.75, 0.75, 4.0)


def test_first_iterate():
    p = program()
    at = first(p, np.zeros(6))
    assert (at.s >= LEAST_SLACK).all()
    assert (at.z > 0).all()
    assert at.s @ at.z <= 0.1 + 1e-12
    assert_allclose(at.s * at.z, (at.s * at.z)[0])
    # least squares
    assert_allclose(p.E @ (p.gradient + p.J.T @ at.z + p.E.T @ at.lam), 0.0, atol=1e-12)


def solved(H, g, C, d, E, f, rounds=60):
    """min w'H w / 2 + g'w, C w + d <= 0, E w + f = 0 by the steps alone."""

    def at_point(x):
        return Program(float(x @ H @ x / 2 + g @ x), H @ x + g, H, C @ x + d, C, E @ x + f, E)

    p = at_point(np.zeros(len(g)))
    at = first(p, np.zeros(len(g)))
    for _ in range(rounds):
        if residuals(p, at).worst <= 1e-11:
            break
        way = direction(p, at, 0.0)
        at = moved(at, way.step, *steps(at, way.step))
        p = at_point(at.x)
    return at, residuals(p, at)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rank", [5, 2, 0])
def test_quadratic_programs_to_their_optimum(seed, rank):
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((5, rank))
    H, g = half @ half.T, rng.standard_normal(5)
    C = np.vstack([np.eye(5), -np.eye(5), rng.standard_normal((3, 5))])
    d = np.append(-np.ones(10), -rng.uniform(0.1, 1, 3))
    E = rng.standard_normal((1, 5))
    E, f = np.vstack([E, E]), np.zeros(2)  # once too many
    at, left = solved(H, g, C, d, E, f)
    assert left.worst <= 1e-9
    assert (at.s > 0).all()
    value = at.x @ H @ at.x / 2 + g @ at.x
    if rank:
        other = minimize(
            lambda x: x @ H @ x / 2 + g @ x,
            np.zeros(5),
            jac=lambda x: H @ x + g,
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
            constraints=[
                {"type": "ineq", "fun": lambda x: -C @ x - d, "jac": lambda x: -C},
                {"type": "eq", "fun": lambda x: E[:1] @ x, "jac": lambda x: E[:1]},
            ],
        ).fun
    else:
        other = linprog(g, C, -d, E[:1], f[:1], bounds=(None, None)).fun
    assert value == pytest.approx(other, rel=1e-7, abs=1e-8)


def test_what_recedes():
    flat = np.diag([1.0, 0.0])
    far = np.array([1.0, 1e12])
    free = Program(0.0, np.array([0.0, -1.0]), flat, NONE, np.zeros((0, 2)), NONE, np.zeros((0, 2)))
    assert recedes(free, far)
    assert not recedes(free, -far)
    # it bends within the reach
    assert not recedes(replace(free, hessian=np.diag([1.0, 1e-13])), far)
    for sign, held in ((1.0, True), (-1.0, False)):
        row = Program(
            0.0,
            free.gradient,
            flat,
            np.array([-1.0]),
            np.array([[0.3, sign]]),
            NONE,
            np.zeros((0, 2)),
        )
        assert recedes(row, far) is not held
    assert not recedes(replace(free, e=np.zeros(1), E=np.array([[1.0, 0.1]])), far)
