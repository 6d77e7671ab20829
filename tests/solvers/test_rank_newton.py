"""Proximal point steps by Newton's method against conic programs, differences, and each other."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from rank_programs import central, data, objective, sigma_of

import bonafed as bf
from bonafed.problem.rank_levels import kernel_of
from bonafed.solvers.rank import semismooth_newton as rank_newton
from bonafed.solvers.rank.proxes import rank_prox
from bonafed.solvers.rank.semismooth_newton import (
    Point,
    RankSystem,
    Separable,
    _curvature,
    _direction,
    _inner,
    outer_step,
)


def separable(g, d, intercept=False):
    """h and its prox, written out here: soft thresholds, shrinkage, clipping; an intercept is
    free.
    """
    keep = np.append(np.ones(d), np.zeros(int(intercept)))
    l1 = keep * (g.strength if isinstance(g, bf.L1) else getattr(g, "l1", 0.0))
    l2 = keep * (g.strength if isinstance(g, bf.L2) else getattr(g, "l2", 0.0))
    edges = (
        np.broadcast_to(getattr(g, side, none), d)
        for side, none in (("lower", -np.inf), ("upper", np.inf))
    )
    low, high = (
        np.append(edge, [none] * intercept)
        for edge, none in zip(edges, (-np.inf, np.inf), strict=True)
    )

    def prox(v, s):
        return np.clip(np.sign(v) * np.maximum(np.abs(v) - s * l1, 0.0) / (1 + s * l2), low, high)

    def value(w):
        return float(l1 @ np.abs(w) + l2 @ w**2 / 2)

    return Separable(
        value, prox, lambda w, s: ((low < w) & (w < high) & ((w != 0) | (l1 == 0))) / (1 + s * l2)
    )


def system_of(problem, X, y):
    intercept, margin = problem.predictor.intercept, problem.loss.targets == "sign"
    sign = -y if margin else np.ones_like(y)
    D = sign[:, None] * (np.hstack([X, np.ones((len(y), 1))]) if intercept else X)
    h = separable(problem.regulariser, X.shape[1], intercept)
    gram = D.T @ D if D.shape[1] <= len(y) else None
    sigma = sigma_of(problem.over_samples, len(y))
    return RankSystem(D, np.zeros_like(y) if margin else y, sigma, kernel_of(problem.loss), h, gram)


def case(loss, risk, g, n=25, d=4, intercept=False, seed=0):
    X, y = data(n, d, seed, loss.targets, noise=0.3)
    problem = bf.Problem(loss, bf.Linear(intercept), risk, regulariser=g)
    return problem, X, y, system_of(problem, X, y)


def some_point(system, seed=1):
    rng = np.random.default_rng(seed)
    n, D = system.D.shape
    return Point(rng.normal(size=D), rng.normal(size=n), rng.random(n) / n)


def frobenius(system, s):
    return s * (system.D**2).sum() / len(system.shift)


BOX = bf.Bounds(np.array([-0.1, -np.inf, 0.0, 0.05]), np.array([0.1, 0.3, np.inf, 0.05]))
CASES = [
    (bf.Hinge(), bf.Superquantile(0.23), bf.L1(0.02)),
    (bf.Hinge(), bf.Extremile(2.5), bf.L2(0.1)),
    (bf.Hinge(), bf.Mean(), BOX),
    (bf.Logistic(), bf.Superquantile(0.23), bf.L2(0.1)),
    (bf.Logistic(), bf.Extremile(2.5), bf.ElasticNet(0.02, 0.05)),
    (bf.Logistic(), bf.Mean(), bf.L1(0.02)),
    (bf.Exponential(), bf.TopK(4), bf.L2(0.1)),
    (bf.SmoothHinge(), bf.Maximum(), bf.Zero()),
    (bf.Absolute(), bf.Superquantile(0.37), bf.L1(0.05)),
    (bf.Squared(), bf.Extremile(2.0), BOX),
    (bf.Huber(0.5), bf.Mean(), bf.ElasticNet(0.05, 0.1)),
    (bf.EpsilonInsensitive(0.1), bf.ExponentialSpectral(2.0), bf.L2(0.1)),
]
CASE = pytest.mark.parametrize(("loss", "risk", "g"), CASES, ids=lambda v: type(v).__name__)


# ---- one outer step


@CASE
@pytest.mark.parametrize(
    ("n", "d", "intercept", "step"), [(25, 4, False, 3.0), (25, 4, True, 0.05), (3, 4, False, 0.5)]
)
def test_one_outer_step_is_the_minimiser_of_its_subproblem(
    monkeypatch, loss, risk, g, n, d, intercept, step
):
    # spectra that rise at every rank need many from afar
    monkeypatch.setattr(rank_newton, "NEWTON_STEPS", 1000)
    if isinstance(risk, bf.TopK):
        risk = bf.TopK(min(risk.k, n))
    problem, X, y, system = case(loss, risk, g, n, d, intercept)
    at, t = some_point(system), frobenius(system, step)
    squares = (system.D**2).mean(0)
    s = step * squares.mean() / squares  # lengths in the units of every column

    def near(w, rows):
        return cp.sum_squares((w - at.w) / np.sqrt(2 * s)) + cp.sum_squares(rows - at.z) / (2 * t)

    def cost(w):
        rows = system.D @ w - system.shift
        return (
            objective(problem, X, y, w)
            + ((w - at.w) ** 2 / (2 * s)).sum()
            + ((rows - at.z) ** 2).sum() / (2 * t)
        )

    found, _ = outer_step(system, at, step, 1e-12)
    expected = central(problem, X, y, near)
    scale = 1 + np.abs(expected).max()
    assert cost(found.w) <= cost(expected) * (1 + 1e-8)
    # strongly convex: the square root of 1e-8
    assert_allclose(found.w, expected, atol=2e-4 * scale)
    assert_allclose(found.z, system.D @ found.w - system.shift, atol=1e-9 * scale)
    # multipliers: of Omega at z, and of h at w with both proximal terms
    pull = found.alpha + (found.z - at.z) / t
    assert_allclose(found.w, system.h.prox(at.w - s * (pull @ system.D), s), atol=1e-9 * scale)
    m = found.z + t * found.alpha
    assert_allclose(rank_prox(m, system.sigma, 1 / t, system.kernel).z, found.z, atol=1e-9 * scale)


def test_a_step_by_hand():
    """One row, the hinge max(0, 1 + t), one coefficient: t = s D^2, w = w_k - s D a with a in [0,
    1].
    """
    D, none = np.array([[-2.0]]), np.zeros(1)
    problem = bf.Problem(bf.Hinge())
    system = RankSystem(
        D, none, np.ones(1), kernel_of(problem.loss), separable(bf.Zero(), 1), D.T @ D
    )
    # gradient 1 all the way: minimise 1 - 2w + w^2/(2s) + (-2w)^2/(8s) = 1 - 2w + w^2/s, w = s
    found, _ = outer_step(system, Point(none, none, none), 0.1, 1e-12)
    assert_allclose([found.w[0], found.z[0], found.alpha[0]], [0.1, -0.2, 1.0], rtol=1e-10)
    # a long step ends at the kink, w = 1/2: then 0 = -2a + 2w/s, a = 1/(2s)
    found, _ = outer_step(system, Point(none, none, none), 2.0, 1e-12)
    assert_allclose([found.w[0], found.z[0], found.alpha[0]], [0.5, -1.0, 0.25], rtol=1e-6)


# ---- derivatives


@CASE
def test_the_gradient_of_the_dual(loss, risk, g):
    _, _, _, system = case(loss, risk, g)
    at, step = some_point(system), 0.7
    t, s = frobenius(system, step), step * system.units
    now = _inner(system, at, at.alpha, s, t)
    gradient = now.z - (system.D @ now.w - system.shift)
    rng, size = np.random.default_rng(2), 1e-5
    for _ in range(3):
        v = rng.normal(size=len(at.z))
        up, down = (_inner(system, at, at.alpha + sign * size * v, s, t).value for sign in (1, -1))
        assert (up - down) / (2 * size) == pytest.approx(
            gradient @ v, rel=1e-4, abs=1e-7 * np.abs(gradient).max()
        )


@CASE
@pytest.mark.parametrize("step", [0.05, 3.0])
def test_the_curvature_of_the_rows(loss, risk, g, step):
    """P v is the change of t prox along v; P^{-1} undoes it."""
    _, _, _, system = case(loss, risk, g)
    at, t = some_point(system, 4), frobenius(system, step)
    m = at.z + t * at.alpha
    P = _curvature(system, m, _inner(system, at, at.alpha, step * system.units, t), t)
    for v in np.random.default_rng(0).normal(size=(3, len(m))):
        size = 1e-7
        up, down = (
            rank_prox(m + sign * size * v, system.sigma, 1 / t, system.kernel).z for sign in (1, -1)
        )
        assert_allclose(
            P.times(v) - P.eps * v, t * (up - down) / (2 * size), atol=2e-6 * t * np.abs(v).max()
        )
        assert_allclose(P.solve(P.times(v)), v, atol=1e-7)


@CASE
@pytest.mark.parametrize(("n", "d"), [(25, 4), (3, 4)])
def test_newton_directions_solve_their_system(loss, risk, g, n, d):
    if isinstance(risk, bf.TopK):
        risk = bf.TopK(min(risk.k, n))
    _, _, _, system = case(loss, risk, g, n, d)
    at, step = some_point(system, 5), 0.5
    t, s = frobenius(system, step), step * system.units
    now = _inner(system, at, at.alpha, s, t)
    P = _curvature(system, at.z + t * at.alpha, now, t)
    H = np.column_stack([P.times(e) for e in np.eye(n)])
    H += (system.D * (s * system.h.prox_gradient(now.w, s))) @ system.D.T
    gradient = now.z - (system.D @ now.w - system.shift)
    direction = _direction(system, at, at.alpha, now, gradient, s, t)
    assert_allclose(H, H.T, atol=1e-12 * np.abs(H).max())
    assert np.linalg.eigvalsh(H)[0] > 0
    assert_allclose(H @ direction, -gradient, atol=1e-9 * np.abs(gradient).max())


# ---- repeated steps


@CASE
@pytest.mark.parametrize(("n", "d", "intercept"), [(25, 4, True), (8, 4, False)])
def test_repeated_steps_converge_to_the_optimum(loss, risk, g, n, d, intercept):
    if isinstance(g, bf.Zero):
        g = bf.L2(0.01)  # or the optimum may be far away
    problem, X, y, system = case(loss, risk, g, n, d, intercept, seed=3)
    at = Point(np.zeros(system.D.shape[1]), -system.shift, np.zeros(n))
    step = 1.0
    for k in range(14):
        at, _ = outer_step(system, at, step, 0.1 / (1 + k))
        step *= 4
    expected = objective(problem, X, y, central(problem, X, y))
    assert objective(problem, X, y, at.w) == pytest.approx(expected, rel=1e-8)
    assert np.linalg.norm(at.z - system.D @ at.w + system.shift) <= 1e-8 * (
        1 + np.linalg.norm(at.z)
    )


def test_signs_do_not_matter_to_even_losses():
    """Flipping the sign of rows and targets leaves t and -t, so the same steps."""
    _, _, _, system = case(bf.Absolute(), bf.Superquantile(0.37), bf.L1(0.05))
    flip = np.where(np.arange(25) % 2, 1.0, -1.0)
    turned = RankSystem(
        flip[:, None] * system.D,
        flip * system.shift,
        system.sigma,
        system.kernel,
        system.h,
        system.gram,
    )
    at, other = some_point(system), some_point(system)
    other = Point(other.w, flip * other.z, flip * other.alpha)
    for _ in range(3):
        (at, _), (other, _) = (
            outer_step(system, at, 1.0, 1e-10),
            outer_step(turned, other, 1.0, 1e-10),
        )
        assert_allclose(other.w, at.w, atol=1e-9)
        assert_allclose(flip * other.z, at.z, atol=1e-9)


@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Logistic(), bf.Squared()], ids=repr)
def test_units_of_the_features_do_not_matter(loss):
    """Features in other units, their bounds in the inverse ones: the same steps in those units."""
    problem, X, y, system = case(loss, bf.Superquantile(0.37), bf.Bounds(-0.3, 0.3), intercept=True)
    size = np.array([1e6, 1e-6, 1.0, 30.0])
    box = bf.Bounds(-0.3 / size, 0.3 / size)
    other = system_of(
        bf.Problem(loss, problem.predictor, problem.over_samples, regulariser=box), X * size, y
    )
    at = far = Point(np.zeros(5), -system.shift, np.zeros(25))
    for step in (0.1, 1.0, 10.0):
        at, _ = outer_step(system, at, step, 1e-10)
        # a step is for a column of mean square: the proximal term in the rows is the same then
        far, _ = outer_step(other, far, step * (system.D**2).mean() / (other.D**2).mean(), 1e-10)
        assert_allclose(far.w * np.append(size, 1.0), at.w, atol=1e-6)
        assert_allclose(far.z, at.z, atol=1e-6)


@pytest.mark.parametrize("loss", [bf.Hinge(), bf.Absolute()], ids=repr)
def test_equal_rows_and_no_rows_to_speak_of(loss):
    """Duplicated rows have one multiplier between them; rows of zeros say nothing."""
    problem, X, y, _ = case(loss, bf.Superquantile(0.37), bf.L2(0.1), n=10)
    X, y = np.vstack([X, X, np.zeros((2, 4))]), np.concatenate([y, y, np.ones(2)])
    system = system_of(problem, X, y)
    at = Point(np.zeros(4), -system.shift, np.zeros(22))
    for k in range(14):
        at, _ = outer_step(system, at, 4.0**k, 0.1 / (1 + k))
    expected = objective(problem, X, y, central(problem, X, y))
    assert objective(problem, X, y, at.w) == pytest.approx(expected, rel=1e-9)


def test_rows_of_zeros():
    """Nothing pulls at w but h."""
    problem, X, y, _ = case(bf.Hinge(), bf.Superquantile(0.37), bf.L2(0.5), n=10)
    system = system_of(problem, 0 * X, y)
    found, _ = outer_step(system, Point(np.ones(4), np.zeros(10), np.zeros(10)), 2.0, 1e-10)
    assert_allclose(found.w, np.full(4, 1 / (1 + 2.0 * 0.5)), rtol=1e-12)
    assert_allclose(found.z, 0, atol=1e-9)


def test_arguments_stay_as_they_are():
    _, _, _, system = case(bf.Hinge(), bf.Superquantile(0.23), bf.L1(0.02))
    at = some_point(system)
    before = [v.copy() for v in (*at, system.D, system.shift, system.sigma, system.gram)]
    outer_step(system, at, 1.0, 1e-8)
    for array, copy in zip(
        (*at, system.D, system.shift, system.sigma, system.gram), before, strict=True
    ):
        np.testing.assert_array_equal(array, copy)
