"""The model steps against dense solves, optimality conditions and plain searches over a grid."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar

from bonafed.problem.regularisers import L1, L2, MCP, SCAD, Bounds, ElasticNet, Zero
from bonafed.solvers.smooth.least_squares import Ridge, descend, descend_clipped, fista


def design(n, d, seed, intercept=False, rank=None):
    """(n, D): rows signed by a label, so that the intercept's column has entries -1 and 1."""
    rng = np.random.default_rng(seed)
    sign = np.where(rng.random(n) < 0.4, -1.0, 1.0)
    X = (
        rng.normal(size=(n, d))
        if rank is None
        else rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    )
    X = sign[:, None] * (X + 0.7)
    return np.hstack([X, sign[:, None]]) if intercept else X


# ---- l2 and none


SHAPES = [
    (30, 5, None),
    (5, 30, None),
    (7, 7, None),
    (30, 6, 3),
    (8, 20, 4),
    (1, 4, None),
    (6, 1, None),
]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "d", "rank"), SHAPES)
@pytest.mark.parametrize(("mu", "r"), [(0.3, 0.0), (0.0, 0.2), (0.05, 0.4), (1e-7, 0.0)])
@pytest.mark.parametrize("rho", [1e-4, 1.0, 50.0])
def test_ridge_is_a_dense_solve(n, d, rank, intercept, mu, r, rho):
    D, rng = design(n, d, n + d, intercept, rank), np.random.default_rng(3)
    v, near, tilt = (
        rng.normal(size=n),
        rng.normal(size=D.shape[1]),
        0.1 * rng.normal(size=D.shape[1]),
    )
    keep = np.full(D.shape[1], 1.0)
    if intercept:
        keep[-1] = 0.0  # free: no regulariser, no proximal term
    found = Ridge.of(D, intercept).solve(v, rho, mu, r, near, tilt)
    H, b = rho * D.T @ D + np.diag(keep * (mu + r)), rho * D.T @ v + r * keep * near + tilt
    exact = np.linalg.solve(H, b)
    slack = 1e-14 * np.linalg.cond(H)
    assert_allclose(found, exact, rtol=0, atol=(1e-12 + slack) * np.abs(exact).max())
    assert_allclose(
        H @ found, b, rtol=0, atol=1e-10 * (np.abs(H).max() * np.abs(found).max() + np.abs(b).max())
    )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "d", "rank"), SHAPES)
def test_without_penalty_it_is_least_squares_of_least_norm(n, d, rank, intercept):
    D, v = design(n, d, n * d, intercept, rank), np.random.default_rng(4).normal(size=n)
    found = Ridge.of(D, intercept).solve(v, 0.7, 0.0)
    if not intercept:
        assert_allclose(found, np.linalg.lstsq(D, v, rcond=1e-10)[0], atol=1e-10)
        return
    assert_allclose(D.T @ (D @ found - v), 0, atol=1e-10)
    column = D[:, -1]  # the least norm of the coefficients alone

    def spared(M):
        return (
            M - np.outer(column, column @ M) / n if M.ndim == 2 else M - column * (column @ M) / n
        )

    assert_allclose(
        found[:-1], np.linalg.lstsq(spared(D[:, :-1]), spared(v), rcond=1e-10)[0], atol=1e-10
    )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "d", "rank"), [(30, 5, None), (5, 30, None), (8, 20, 4), (30, 6, 3)])
def test_without_penalty_a_tilt_counts_where_the_rows_reach(n, d, rank, intercept):
    """A tilt in the range of D' is more of v: D'(rho v) + D'a."""
    D, rng = design(n, d, 5, intercept, rank), np.random.default_rng(6)
    v, a, rho = rng.normal(size=n), rng.normal(size=n), 0.3
    ridge = Ridge.of(D, intercept)
    assert_allclose(
        ridge.solve(v, rho, 0.0, tilt=a @ D), ridge.solve(v + a / rho, rho, 0.0), atol=1e-9
    )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "d"), [(30, 5), (5, 30)])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_ridge_of_huge_and_tiny_rows(n, d, scale, intercept):
    """Rows s D, targets v, penalty s^2 mu: the coefficients are 1 / s of those of D."""
    D, v = design(n, d, 1), np.random.default_rng(2).normal(size=n)
    S = D * scale
    if intercept:
        column = np.where(np.arange(n) % 3, 1.0, -1.0)[:, None]
        D, S = np.hstack([D, column]), np.hstack([S, column])
    plain, scaled = (
        Ridge.of(M, intercept).solve(v, 0.4, mu) for M, mu in ((D, 0.1), (S, 0.1 * scale**2))
    )
    assert_allclose(scaled[:d] * scale, plain[:d], rtol=1e-9, atol=1e-12)
    assert_allclose(scaled[d:], plain[d:], rtol=1e-9)


def test_rows_of_zeros():
    ridge = Ridge.of(np.zeros((4, 3)), False)
    assert_allclose(ridge.solve(np.ones(4), 1.0, 0.0), 0)
    assert_allclose(
        ridge.solve(np.ones(4), 1.0, 0.5, 0.5, np.array([2.0, 0.0, -4.0])), [1.0, 0.0, -2.0]
    )
    column = np.array([[1.0], [1.0], [-1.0], [1.0]])
    found = Ridge.of(np.hstack([np.zeros((4, 3)), column]), True).solve(
        np.array([1.0, 2.0, -3.0, 6.0]), 2.0, 0.1
    )
    assert_allclose(found, [0, 0, 0, 3.0], atol=1e-14)


def test_arguments_stay_as_they_are():
    D, rng = design(20, 4, 0, True), np.random.default_rng(0)
    given = [rng.normal(size=20), rng.normal(size=5), rng.normal(size=5)]
    for array in (D, *given):
        array.flags.writeable = False
    Ridge.of(D, True).solve(given[0], 1.0, 0.1, 0.2, given[1], given[2])
    # writable: one compilation serves all tests
    gram, w, c = D.T @ D, given[1].copy(), given[2].copy()
    descend(gram, c, 1.0, np.full(5, 0.1), np.zeros(5), 0.0, 0.0, w, 1e-8, 10)
    fista(lambda w: gram @ w - c, L1(0.1).prox, 100.0, w, 1e-8, 10)
    for array, before in ((gram, D.T @ D), (w, given[1]), (c, given[2])):
        np.testing.assert_array_equal(array, before)


# ---- l1 and elastic nets


def coordinates(G, c, rho, l1, l2, w, r=0.0, gamma=0.0, tol=1e-12, sweeps=100_000):
    return descend(G, c, rho, l1, l2, r, gamma, w, tol, sweeps)


def short_of(G, c, rho, l1, l2, w):
    """Distance of 0 from the subdifferential of rho / 2 w'Gw - c'w + l1'|w| + l2'w^2 / 2,
    entrywise.
    """
    gradient = rho * (G @ w) - c + l2 * w
    return np.where(
        w == 0, np.maximum(np.abs(gradient) - l1, 0.0), np.abs(gradient + l1 * np.sign(w))
    )


@pytest.mark.parametrize(("n", "d", "rank"), [(30, 5, None), (12, 20, None), (30, 8, 3)])
@pytest.mark.parametrize(("l1", "l2"), [(0.3, 0.0), (0.3, 0.2), (0.0, 0.1), (1e3, 0.0)])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rho", [0.01, 3.0])
def test_coordinate_descent_is_optimal(n, d, rank, l1, l2, intercept, rho):
    D, rng = design(n, d, 2 * n + d, intercept, rank), np.random.default_rng(8)
    c, start = rho * (rng.normal(size=n) @ D), rng.normal(size=D.shape[1])
    free = np.append(np.ones(d), np.zeros(int(intercept)))
    # in units of rho, so that either rho leaves some entries
    G, l1, l2 = D.T @ D, rho * l1 * free, rho * l2 * free
    w = coordinates(G, c, rho, l1, l2, start)
    assert short_of(G, c, rho, l1, l2, w).max() <= 1e-9 * max(1.0, rho * G.max())
    if l1[0] >= 1e3 * rho:
        assert not w[:d].any()
        if intercept:  # the mean of what is left
            assert w[-1] == pytest.approx(c[-1] / (rho * n), rel=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.05, 2.0])
@pytest.mark.parametrize(("n", "d"), [(30, 5), (12, 20)])
def test_proximal_terms_and_moreau_envelopes(n, d, gamma):
    """M(w) = min_u h(u) + ||u - w||^2 / (2 gamma) has the gradient (w - prox_{gamma h}(w)) / gamma,
    (8).
    """
    D, rng = design(n, d, n, True), np.random.default_rng(7)
    c, r = rng.normal(size=n) @ D, 0.3
    l1, l2 = (np.append(np.full(d, strength), 0.0) for strength in (1.5, 0.2))
    G = D.T @ D
    w = coordinates(G, c, 1.0, l1, l2, rng.normal(size=d + 1), r, gamma)
    if gamma == 0:
        assert short_of(G + r * np.eye(d + 1), c, 1.0, l1, l2, w).max() <= 1e-9
        return
    u = np.sign(w) * np.maximum(np.abs(w) - gamma * l1, 0.0) / (1 + gamma * l2)
    assert_allclose(G @ w + r * w - c + (w - u) / gamma, 0, atol=1e-9)
    assert (u[:-1] == 0).any()


def test_features_of_zeros_lose_their_coefficients():
    """A column of zeros is nothing to the rows; its penalty alone counts."""
    D = design(20, 4, 3)
    D[:, 1] = 0.0
    c, start = np.ones(20) @ D, np.array([1.0, 5.0, 0.0, -1.0])
    for l2 in (0.0, 0.1):
        w = coordinates(D.T @ D, c, 1.0, np.full(4, 0.5), np.full(4, l2), start)
        assert w[1] == 0.0
    free = coordinates(D.T @ D, c, 1.0, np.zeros(4), np.zeros(4), start)
    assert free[1] == 5.0  # nothing says otherwise


# ---- any prox


BOX = Bounds(
    np.array([-0.1, -np.inf, 0.0, 0.05, -1.0, -0.2]),
    np.array([0.1, np.inf, np.inf, 0.05, 1.0, 0.0]),
)


@pytest.mark.parametrize("n", [30, 4])
@pytest.mark.parametrize("g", [Zero(), L1(0.4), L2(0.3), ElasticNet(0.2, 0.3), BOX], ids=repr)
def test_fista_is_optimal(n, g):
    D, v = design(n, 6, n), np.random.default_rng(n).normal(size=n)
    G, c = D.T @ D, v @ D
    lipschitz = float(np.linalg.eigvalsh(G)[-1])
    w = fista(lambda w: G @ w - c, g.prox, lipschitz, np.ones(6), 1e-13, 20_000)
    # so it is the minimiser
    assert_allclose(w, g.prox(w - (G @ w - c) / lipschitz, 1 / lipschitz), atol=1e-11)

    def objective(w):
        return float(((D @ w - v) ** 2).sum() / 2 + g.value(w))

    for step in np.random.default_rng(0).normal(size=(50, 6)) * np.logspace(-3, 0, 50)[:, None]:
        assert objective(w) <= objective(g.prox(w + step, 1e-12)) + 1e-12


def test_fista_and_coordinate_descent_agree():
    D, v = design(25, 8, 5), np.random.default_rng(5).normal(size=25)
    G, c = D.T @ D, v @ D
    one = coordinates(G, c, 1.0, np.full(8, 2.0), np.full(8, 0.5), np.zeros(8))
    other = fista(
        lambda w: G @ w - c,
        ElasticNet(2.0, 0.5).prox,
        np.linalg.eigvalsh(G)[-1],
        np.zeros(8),
        1e-14,
        50_000,
    )
    assert (one == 0).any()
    assert_allclose(one, other, atol=1e-11)


@pytest.mark.parametrize(
    "g", [MCP(0.8, 1.5), MCP(2.0, 3.0), SCAD(0.8, 3.7), SCAD(2.0, 2.5)], ids=repr
)
def test_plain_steps_find_stationary_points_where_g_is_not_convex(g):
    D, v = design(30, 6, 9), 2 * np.random.default_rng(9).normal(size=30)
    G, c = D.T @ D, v @ D
    lipschitz = float(np.linalg.eigvalsh(G)[-1])
    start = np.random.default_rng(1).normal(size=6)

    def objective(w):
        return float(((D @ w - v) ** 2).sum() / 2 + g.value(w))

    values, w = [objective(start)], start
    for _ in range(5):
        w = fista(lambda w: G @ w - c, g.prox, lipschitz, w, 0.0, 1, accelerate=False)
        values.append(objective(w))
    assert (np.diff(values) <= 1e-12).all()  # every step descends
    w = fista(lambda w: G @ w - c, g.prox, lipschitz, start, 1e-14, 50_000, accelerate=False)
    assert_allclose(w, g.prox(w - (G @ w - c) / lipschitz, 1 / lipschitz), atol=1e-12)
    for j in range(6):  # best along every coordinate nearby: one-sided gradients are not negative

        def along(s, j=j):
            return objective(w + s * np.eye(6)[j])

        best = minimize_scalar(
            along, bounds=(-1e-2, 1e-2), method="bounded", options={"xatol": 1e-10}
        )
        assert along(0.0) <= best.fun + 1e-12


@pytest.mark.parametrize(
    ("g", "expected"), [(BOX, BOX.prox(np.ones(6), 1.0)), (MCP(0.8), np.zeros(6))], ids=repr
)
def test_no_gradient_at_all(g, expected):
    """Rows of zeros: g alone."""
    w = fista(np.zeros_like, g.prox, 0.0, np.ones(6), 0.0, 100, accelerate=g.weak_convexity == 0)
    assert_allclose(w, expected)


def test_one_entry_in_closed_form():
    """3/2 (w - 1)^2 + 2 |w|: w = 1 - 2 / 3."""
    w = fista(lambda w: 3 * (w - 1.0), L1(2.0).prox, 3.0, np.zeros(1), 1e-15, 1000)
    assert_allclose(w, [1 / 3], rtol=1e-14)
    assert_allclose(
        coordinates(np.eye(1), np.full(1, 3.0), 3.0, np.full(1, 2.0), np.zeros(1), np.ones(1)),
        1 / 3,
    )


@pytest.mark.parametrize("g", [MCP(0.3, 3.0), MCP(0.3, 0.4), SCAD(0.3, 3.7), SCAD(0.2, 2.1)])
@pytest.mark.parametrize("bend", [0.2, 1.0, 5.0])
def test_clipped_coordinates_move_by_the_regularisers_own_prox(g, bend):
    """With D'D = bend I every coordinate is the prox of step 1 / bend; an unpenalised one is least
    squares.
    """
    v = np.random.default_rng(1).normal(size=60) * np.repeat([0.1, 1.0, 3.0], 20)
    shape, scad = (g.a, True) if isinstance(g, SCAD) else (g.gamma, False)
    strength = np.full(60, g.strength)
    found = descend_clipped(
        bend * np.eye(60), bend * v, 1.0, strength, shape, scad, 0.0, np.zeros(60), 1e-15, 50
    )
    assert_allclose(found, g.prox(v, 1 / bend), atol=1e-14)
    strength[:] = 0.0
    assert_allclose(
        descend_clipped(
            bend * np.eye(60), bend * v, 1.0, strength, shape, scad, 0.0, np.zeros(60), 1e-15, 50
        ),
        v,
    )
