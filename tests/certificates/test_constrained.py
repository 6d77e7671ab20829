"""Certificates under constraints: numbers by hand from the raw rows, bounds and proofs of
infeasibility that are never wrong whatever multipliers are given, and sharp at the optimum of
another solver.
"""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from constrained_programs import clients, neyman_pearson, one_hot, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from problems import PLAIN
from scipy.optimize import minimize_scalar

import bonafed as bf
from bonafed.certificates import certify
from bonafed.certificates.certify import certify_constrained
from bonafed.problem.lower_bounds import Multipliers

NONE = np.zeros(0)
OF = bf.Mean(label=0)


def local(prices):
    """Multipliers of clients' constraints alone."""
    return Multipliers(NONE, NONE, np.asarray(prices, float).reshape(len(prices), -1))


def server(prices, n=1):
    """Multipliers of the server's constraints alone."""
    return Multipliers(np.asarray(prices, float), NONE, np.zeros((n, 0)))


def certified(problem, fed, w, mu, infeasible=False):
    """The certificate alone."""
    return certify_constrained(problem, fed, w, mu, infeasible=infeasible)[0]


# ---- numbers by hand


@pytest.mark.parametrize(
    "h", [bf.Zero(), bf.L2(0.3), bf.L1(0.2), bf.ElasticNet(0.2, 0.1), bf.Bounds(-0.7, 0.5)]
)
@pytest.mark.parametrize("intercept", [False, True])
def test_numbers_are_those_of_the_raw_rows(h, intercept):
    fed = clients(weights=True)
    rng = np.random.default_rng(3)
    w = rng.uniform(-1, 1, 4 + intercept)
    w[:2] = (0.0, 0.4)
    if isinstance(h, bf.Bounds):
        w[1:4] = (-0.7, 0.5, 0.1)
    C, d = rng.standard_normal((2, len(w))), rng.standard_normal(2)
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(intercept),
        over_samples=OF,
        over_clients=bf.Mean((0.5, 0.2, 0.3)),
        regulariser=h,
        constraint=(bf.LinearInequality(C[:1], d[:1]), bf.LinearEquality(C[1:], d[1:])),
        local_constraint=bf.NeymanPearson(1, 0.3),
    )
    mu = Multipliers(np.array([0.7, -1.3]), NONE, rng.uniform(0, 2, (3, 1)))
    proof = certified(problem, fed, w, mu)

    value, gradient, worst, products, values = 0.0, mu.server @ C, 0.0, [], []
    for q, price, (X, y, share) in zip((0.5, 0.2, 0.3), mu.local[:, 0], rows_of(fed), strict=True):
        X = np.hstack([X, np.ones((len(X), 1))]) if intercept else X
        margin = y * (X @ w)
        loss, pull = np.log1p(np.exp(-margin)), -y / (1 + np.exp(margin))
        for sign, weight in ((-1.0, q), (1.0, price)):
            inside = share * (y == sign) / share[y == sign].sum()
            gradient = gradient + weight * (X.T @ (inside * pull))
            mean = float(inside @ loss)
            if sign < 0:
                value += q * mean
            else:
                values.append(mean - 0.3)
                products.append(price * values[-1])
                worst = max(worst, values[-1])
    held = C @ w + d
    products += list(mu.server * held)
    own = gradient[:4].copy()
    match h:
        case bf.L2(strength):
            value, own = value + strength / 2 * w[:4] @ w[:4], own + strength * w[:4]
        case bf.L1() | bf.ElasticNet():
            l1, l2 = (h.strength, 0.0) if isinstance(h, bf.L1) else (h.l1, h.l2)
            value += l1 * np.abs(w[:4]).sum() + l2 / 2 * w[:4] @ w[:4]
            own = own + l2 * w[:4]
            own = np.where(w[:4] == 0, np.maximum(np.abs(own) - l1, 0), own + l1 * np.sign(w[:4]))
        case bf.Bounds():  # entries on a bound may be pushed against it
            own[1], own[2] = min(own[1], 0.0), max(own[2], 0.0)
    stationarity = np.abs(np.append(own, gradient[4:])).max()
    assert proof.value == pytest.approx(value, rel=1e-12)
    assert proof.stationarity == pytest.approx(stationarity, rel=1e-10)
    assert proof.complementarity == pytest.approx(np.abs(products).max(), rel=1e-12)
    assert proof.feasibility == pytest.approx(max(worst, held[0], abs(held[1])), rel=1e-12)
    assert_allclose(proof.constraint_values[:, 0], values, rtol=1e-12)
    assert_allclose(proof.server_values, held, rtol=1e-12)
    assert proof.bound <= proof.value


def test_coupled_constraints_by_hand():
    fed = clients(sizes=(8, 5, 12))
    w = np.array([0.3, -0.2, 0.5, 0.1])
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_clients=bf.Sum(), constraint=bf.Coupled(bf.NeymanPearson(1, 0.4))
    )
    proof = certified(problem, fed, w, Multipliers(NONE, np.array([1.7]), np.zeros((3, 0))))
    rows = list(rows_of(fed))
    X, y = np.vstack([r[0] for r in rows]), np.concatenate([r[1] for r in rows])
    c = np.log1p(np.exp(-X[y > 0] @ w)).mean() - 0.4
    assert proof.shared_values == pytest.approx([c], rel=1e-12)
    assert proof.complementarity == pytest.approx(1.7 * abs(c), rel=1e-12)
    assert proof.value == pytest.approx(
        sum(np.log1p(np.exp(-b * (a @ w))).mean() for a, b, _ in rows), rel=1e-12
    )


# ---- bounds


LOSSES = {
    "logistic": (bf.Logistic(), 0.45, False),
    "smooth hinge": (bf.SmoothHinge(), 0.3, False),
    "exponential": (bf.Exponential(), 0.65, False),
}
CLASSES = [clients(), clients(7, (25, 20)), one_hot()]
OPTIMA = [
    (fed, loss, level if k < 2 else 1.5 * level, h)
    for k, fed in enumerate(CLASSES)
    for loss, level, _ in LOSSES.values()
    for h in (bf.Zero(), bf.L1(0.01), bf.L2(0.02))
    # its optimum is not attained for a feature that nobody has
    if not (isinstance(h, bf.Zero) and k == 2)
]


def stated(loss, level, h):
    """The Neyman-Pearson problem of ``neyman_pearson``."""
    return bf.Problem(
        loss, PLAIN, over_samples=OF, regulariser=h, local_constraint=bf.NeymanPearson(1, level)
    )


@cache
def solved(k):
    """The optimum of one of them."""
    return neyman_pearson(*OPTIMA[k])


@pytest.mark.parametrize(
    "k",
    range(len(OPTIMA)),
    ids=lambda k: f"{type(OPTIMA[k][1]).__name__} {type(OPTIMA[k][3]).__name__}",
)
def test_the_bound_is_the_optimum_at_the_optimum(k):
    (fed, loss, level, h), known = OPTIMA[k], solved(k)
    proof = certified(stated(loss, level, h), fed, known.w, local(known.prices))
    assert proof.value == pytest.approx(known.value, rel=1e-7)
    assert proof.bound <= known.value * (1 + 1e-7)
    assert proof.bound == pytest.approx(known.value, rel=1e-5)
    assert proof.feasibility <= 1e-7


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, len(OPTIMA) - 1),
    st.integers(0, 10**6),
    st.floats(-3, 6),
    st.sampled_from([0.0, 0.01, 1.0, 30.0]),
)
def test_no_multipliers_prove_more_than_the_optimum(k, seed, size, away):
    (fed, loss, level, h), known = OPTIMA[k], solved(k)
    rng = np.random.default_rng(seed)
    w = known.w + away * rng.standard_normal(len(known.w))
    near = known.prices * (1 + 0.1 * rng.standard_normal(len(known.prices)))
    mu = near if seed % 2 else rng.uniform(0, 1, len(near)) * 10**size
    proof = certified(stated(loss, level, h), fed, w, local(np.maximum(mu, 0.0)))
    assert proof.bound <= known.value * (1 + 1e-7)
    assert proof.bound <= proof.value or proof.feasibility > 0


REAL = bf.Huber(0.7), bf.Squared()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_no_bound_is_above_a_feasible_model(seed):
    """Constraints that hold at a known model, some exactly; multipliers of any size, some that
    cancel each other.
    """
    rng = np.random.default_rng(seed)
    loss = (bf.Logistic(), bf.SmoothHinge(), bf.Exponential(), *REAL)[seed % 5]
    intercept, D = bool(seed % 2), 3 + seed % 2
    scales = 10.0 ** rng.integers(-3, 4, 3)
    fed = clients(seed, (7, 5), d=3, scales=scales, real=loss in REAL)
    columns = {"group": tuple(np.where(np.arange(len(y)) % 2, "a", "b") for y in fed.y)}
    fed = bf.Federation(
        fed.clients, fed.X, fed.y, columns=columns, classes=None if loss in REAL else [0, 1]
    )
    w0 = rng.standard_normal(D) / np.append(scales, 1.0)[:D]
    h = [bf.Zero(), bf.L1(0.1), bf.L2(0.01), bf.Bounds(-np.abs(w0[:3]) - 1, np.abs(w0[:3]) + 1)][
        int(rng.integers(4))
    ]
    slack = float(rng.choice([0.0, 1e-9, 1e-3, 1.0]))
    C, E = rng.standard_normal((2, D)), rng.standard_normal((1, D))
    rows = bf.LinearInequality(np.vstack([C, -C]), np.append(-C @ w0, C @ w0) - slack)
    twice = bf.LinearEquality(np.vstack([E, E]), np.tile(-E @ w0, 2))
    base = bf.Problem(loss, bf.Linear(intercept), regulariser=h, constraint=(rows, twice))
    loose = replace(base, local_constraint=bf.BoundedGroupLoss("group", 1e9))
    level = float(certified(loose, fed, w0, None).constraint_values.max() + 1e9 + 1e-6 + slack)
    problem = replace(base, local_constraint=bf.BoundedGroupLoss("group", level))
    value = problem.objective(w0, fed)
    prices = (
        rng.uniform(0, 1, 4) * 10.0 ** rng.integers(-3, 10),
        rng.standard_normal(2) * 10.0 ** rng.integers(-3, 9),
    )
    if seed % 3:
        prices[0][2:] = prices[0][:2] + rng.uniform(0, 1e-3, 2)  # nearly cancel
        prices[1][1] = -prices[1][0]
    mu = Multipliers(
        np.concatenate(prices), NONE, rng.uniform(0, 1, (2, 2)) * 10.0 ** rng.integers(-4, 3)
    )
    for w in (w0, w0 * (1 + 1e-3 * rng.standard_normal(D)), np.zeros(D)):
        with np.errstate(over="ignore"):
            proof = certified(problem, fed, w, mu)
            assert proof.bound is None or proof.bound <= value + 1e-9 * abs(value)
            assert certified(problem, fed, w, mu, infeasible=True).infeasible is None


@pytest.mark.parametrize("loss", [bf.Squared(), bf.Huber(1.0)])
@pytest.mark.parametrize("at", [0.0, 0.1, 1.0, 5.0, 10.0, 20.0])
def test_a_small_value_at_a_model_that_breaks_the_constraints_bounds_nothing(loss, at):
    """h bounds the length of models of smaller value: not of an optimum that, being feasible, has a
    larger one.
    """
    fed = bf.Federation(["a"], [np.ones((2, 1))], [np.zeros(2)])
    # w >= 10
    problem = bf.Problem(
        loss, PLAIN, regulariser=bf.L1(0.1), constraint=bf.LinearInequality([[-1.0]], [10.0])
    )
    optimum = {bf.Squared: 50.0, bf.Huber: 9.5}[type(loss)] + 1.0
    for price in np.append(np.linspace(0.0, 15.0, 21), 1.1):
        bound = certified(problem, fed, np.array([at]), server([price])).bound
        assert bound <= optimum * (1 + 1e-12)


def test_multipliers_that_cancel_hide_no_gradient():
    """w <= 3 and w >= 3 with equal multipliers of 1e13: a gradient of 3 left beside them is not
    rounding.
    """
    fed = bf.Federation(["a"], [np.ones((2, 1))], [np.full(2, 3.0)])
    problem = bf.Problem(
        bf.Squared(), PLAIN, constraint=bf.LinearInequality([[1.0], [-1.0]], [-3.0, 3.0])
    )
    for size in (1e3, 1e9, 1e12, 1e13, 1e15):
        for at in (0.0, 1.0, 3.0):
            assert certified(problem, fed, np.array([at]), server([size, size])).bound <= 1e-12


def test_own_convex_functions_bound_too():
    """A ball: the tangents move to where the Lagrangian is smallest, so that rough multipliers
    prove much as well.
    """
    fed = clients()

    def inside(w, X, y):
        return np.array([w @ w - 0.1]), 2 * w[None]

    ball = bf.Constraint(inside, convex=True, hessian=lambda w, X, y, m: 2 * m[0] * np.eye(len(w)))
    problem = bf.Problem(bf.Logistic(), PLAIN, constraint=bf.Coupled(ball, "uniform"))
    solution = bf.solve(problem, fed, algorithm=bf.InteriorPoint())
    optimum = solution.certificate.value
    assert solution.certificate.relative_gap <= 1e-9
    rng = np.random.default_rng(0)
    for _ in range(20):
        mu = replace(solution.duals, shared=solution.duals.shared * rng.uniform(0.9, 1.1))
        proof = certified(problem, fed, solution.w + 0.01 * rng.standard_normal(4), mu)
        assert 0.99 * optimum <= proof.bound <= optimum * (1 + 1e-12)
    assert (
        certified(
            replace(problem, constraint=bf.Coupled(replace(ball, convex=False), "uniform")),
            fed,
            solution.w,
            solution.duals,
        ).bound
        is None
    )


def test_quadratics_by_their_dual():
    """min w'A w / 2 + b'w, C w + d = 0: the dual function in closed form."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal((3, 5, 5))
    A, b = [m @ m.T for m in half], list(rng.standard_normal((3, 5)))
    C, d = rng.standard_normal((2, 5)), rng.standard_normal(2)
    fed = bf.Federation.from_quadratics(A, b)
    problem = bf.Problem(bf.Quadratic(), over_clients=bf.Sum(), constraint=bf.LinearEquality(C, d))
    for _ in range(5):
        lam, w = rng.standard_normal(2), rng.standard_normal(5)
        g = sum(b) + C.T @ lam
        dual = -g @ np.linalg.solve(sum(A), g) / 2 + lam @ d
        assert certified(problem, fed, w, server(lam, 3)).bound == pytest.approx(dual, rel=1e-9)


def test_losses_are_nonnegative_whatever_the_multipliers():
    fed = clients()
    problem = stated(bf.Logistic(), 0.45, bf.Zero())
    assert certified(problem, fed, np.ones(4), local([1e8, 0, 1e8])).bound == 0.0


def test_no_bound_without_convexity():
    fed = clients()
    columns = {"sex": tuple(np.where(np.arange(len(y)) % 3, "f", "m") for y in fed.y)}
    fed = bf.Federation(fed.clients, fed.X, fed.y, columns=columns)
    problem = bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.LossGap("sex", 0.1))
    proof = certified(problem, fed, np.ones(4), local(np.ones((3, 2))))
    assert (proof.bound, proof.gap, proof.relative_gap) == (None, None, None)
    assert (
        certified(problem, fed, np.ones(4), local(np.ones((3, 2))), infeasible=True).infeasible
        is None
    )
    mute = bf.Problem(bf.Logistic(), PLAIN, local_constraint=bf.LossGap("sex", 0.1))
    assert certified(mute, fed, np.zeros(4), None).feasibility == 0.0


# ---- infeasibility


def test_contradictory_equalities_by_how_much():
    """w1 = 1 and w1 = 2: every model breaks one of them by 1/2, and the multipliers (1, -1) / 2 say
    so.
    """
    fed = clients()
    e = np.eye(4)[:1]
    problem = bf.Problem(
        bf.Logistic(), PLAIN, constraint=(bf.LinearEquality(e, -1.0), bf.LinearEquality(e, -2.0))
    )
    for size in (1e-6, 1.0, 1e6):  # normalised
        proof = certified(problem, fed, np.zeros(4), server([-size, size], 3), infeasible=True)
        assert proof.infeasible is None  # the wrong way round
        proof = certified(problem, fed, np.zeros(4), server([size, -size], 3), infeasible=True)
        assert proof.infeasible == pytest.approx(0.5, rel=1e-8)
        assert proof.bound is None
    assert (
        certified(problem, fed, np.zeros(4), server([1.0, -0.9], 3), infeasible=True).infeasible
        is None
    )


def test_both_classes_too_tight():
    """Mean losses of both classes at most 0.1 where the classes overlap: by Fenchel's inequality at
    w = 0, log 2.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 2))
    fed = bf.Federation(["a"], [np.vstack([X, X])], [np.repeat([0, 1], 20)])
    both = bf.NeymanPearson(0, 0.1), bf.NeymanPearson(1, 0.1)
    problem = bf.Problem(bf.Logistic(), PLAIN, local_constraint=both)
    proof = certified(problem, fed, np.zeros(2), local([[1.0, 1.0]]), infeasible=True)
    # sums of 40 rows, whose rounding counts for models up to a million times as large
    assert proof.infeasible == pytest.approx(np.log(2) - 0.1, rel=2e-8)
    assert proof.infeasible <= np.log(2) - 0.1
    assert (
        certified(problem, fed, np.ones(2), local([[1.0, 1.0]]), infeasible=True).infeasible
        <= np.log(2) - 0.1
    )


def test_a_box_too_small():
    fed = clients()
    for limit, broken in ((0.5, 0.5), (1.0, None), (1.5, None)):
        problem = bf.Problem(
            bf.Logistic(),
            PLAIN,
            regulariser=bf.Bounds(-limit, limit),
            constraint=bf.LinearInequality(-np.eye(4)[:1], 1.0),
        )
        proof = certified(problem, fed, np.zeros(4), server([1.0], 3), infeasible=True)
        assert proof.infeasible == (None if broken is None else pytest.approx(broken, rel=1e-8))


@pytest.mark.parametrize("seed", range(3))
def test_constraints_that_meet_in_a_point_are_not_infeasible(seed):
    """Rounding leaves combinations of these rows positive by some 1e-16: no proof."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        C, w0 = rng.standard_normal((2, 3)), 3 * rng.standard_normal(3)
        rows = np.vstack([C, -C, C.sum(0), -C.sum(0)])
        fed = bf.Federation(["a"], [np.ones((1, 3))], [np.zeros(1)])
        problem = bf.Problem(bf.Squared(), PLAIN, constraint=bf.LinearInequality(rows, -rows @ w0))
        mu = rng.uniform(0, 1, 6)
        mu[:2], mu[5] = mu[2:4] + 0.3, mu[4] + 0.3  # the gradients cancel
        assert certified(problem, fed, w0, server(mu), infeasible=True).infeasible is None


# ---- what is given


def test_wrong_signs_are_clipped_and_equalities_keep_theirs():
    fed = clients()
    e = np.eye(4)[:1]
    problem = replace(
        stated(bf.Logistic(), 0.45, bf.L2(0.1)),
        constraint=(bf.LinearInequality(e, -1.0), bf.LinearEquality(e, 0.0)),
    )
    given_ = Multipliers(np.array([-3.0, -2.0]), NONE, np.array([[-1.0], [0.5], [-0.1]]))
    kept = Multipliers(np.array([0.0, -2.0]), NONE, np.array([[0.0], [0.5], [0.0]]))
    one, other = (certified(problem, fed, np.full(4, 0.1), mu) for mu in (given_, kept))
    assert (one.bound, one.stationarity, one.complementarity) == (
        other.bound,
        other.stationarity,
        other.complementarity,
    )


def test_unsuitable_arguments_are_refused():
    fed, problem = clients(), stated(bf.Logistic(), 0.45, bf.Zero())
    good = local([0.0, 0.0, 0.0])
    for w in (np.zeros(3), np.full(4, np.nan), np.zeros((1, 4))):
        with pytest.raises(ValueError, match="w must be 4 finite numbers"):
            certified(problem, fed, w, good)
    for mu in (local([0.0, 0.0]), local([0.0, np.inf, 0.0]), replace(good, local=np.zeros((3, 2)))):
        with pytest.raises(
            ValueError, match=r"multipliers.local must be finite with shape \(3, 1\)"
        ):
            certified(problem, fed, np.zeros(4), mu)
    with pytest.raises(ValueError, match=r"multipliers.server must be finite with shape \(0,\)"):
        certified(problem, fed, np.zeros(4), replace(good, server=np.zeros(1)))
    with pytest.raises(ValueError, match=r"multipliers.shared must be finite with shape \(0,\)"):
        certified(problem, fed, np.zeros(4), replace(good, shared=np.zeros(1)))


def test_arguments_are_not_changed_and_any_engine_tells_the_same():
    fed, problem = clients(), stated(bf.Logistic(), 0.45, bf.L1(0.01))
    w, mu = np.linspace(-1, 1, 4), local([0.1, 0.0, 2.0])
    before, digests = (w.copy(), mu.local.copy()), fed.digests()
    proofs = [
        certify_constrained(problem, fed, w, mu, engine)[0]
        for engine in (bf.InProcess(mode=m) for m in ("blocks", "each", "bytes"))
    ]
    assert_allclose(w, before[0], rtol=0)
    assert_allclose(mu.local, before[1], rtol=0)
    assert fed.digests() == digests
    for proof in proofs[1:]:
        assert proof.bound == pytest.approx(proofs[0].bound, rel=1e-12)
        assert proof.stationarity == pytest.approx(proofs[0].stationarity, rel=1e-10)


def test_a_constraint_that_a_client_does_not_have():
    fed = clients(sizes=(30, 20, 10))
    y = (fed.y[0], fed.y[1], np.zeros(10, int))
    fed = bf.Federation(fed.clients, fed.X, y)
    problem = stated(bf.Logistic(), 0.45, bf.L2(0.01))
    proof = certified(problem, fed, np.zeros(4), local([0.1, 0.1, 5.0]))
    assert np.isnan(proof.constraint_values[2, 0])
    assert np.isfinite(proof.constraint_values[:2]).all()
    assert proof.complementarity == pytest.approx(0.1 * (np.log(2) - 0.45), rel=1e-12)
    assert proof.bound <= certified(problem, fed, np.zeros(4), local([0.1, 0.1, 0.0])).bound


@pytest.mark.parametrize("size", [np.pi / 3 * 10.0**k for k in (-9, 0, 3, 9, 11, 13)])
@pytest.mark.parametrize("at", ["server", "clients"])
def test_planted_multipliers_that_cancel_prove_no_more_than_the_optimum(size, at):
    """<a, w> = b as thousands of inequalities: multipliers that cancel exactly, but whose sums are
    rounded by 1e-13 of their sizes.
    """
    n, k = (1000 if at == "clients" else 3), 1000
    a, start, y = np.array([0.3, 0.7]), np.array([0.3, -0.2]), np.tile([-1.0, 1.0], n)
    X = np.random.default_rng(0).standard_normal((2 * n, 2))
    fed = bf.Federation.from_arrays(X, y, np.repeat(np.arange(n), 2))

    def objective(t):
        w = start + t * np.array([-a[1], a[0]])
        return np.log1p(np.exp(-y * (X @ w))).mean() + 0.05 * w @ w

    optimum = minimize_scalar(objective, bounds=(-3, 3), method="bounded", options={"xatol": 1e-12})
    w = start + optimum.x * np.array([-a[1], a[0]])
    gradient = -(X.T @ (y / (1 + np.exp(y * (X @ w))))) / (2 * n) + 0.1 * w
    price = -(gradient @ a) / (a @ a)
    bounds = []
    for sign in (1.0, -1.0):
        once = max(sign * price, 0.0), max(-sign * price, 0.0)  # what proves the optimum
        if at == "server":
            C, d = sign * np.outer([1.0, -1.0], a), sign * np.array([-1.0, 1.0]) * (a @ start)
            C, d = np.repeat(C, [2 * k, k], axis=0), np.repeat(d, [2 * k, k])
            problem = stated_on(bf.LinearInequality(C, d), None)
            prices = np.repeat([size, 2 * size], [2 * k, k])
            prices[[0, -1]] += once
            mu = server(prices, n)
        else:
            C, d = sign * np.outer([1.0, -1.0], a), sign * np.array([-1.0, 1.0]) * (a @ start)
            problem = stated_on(None, bf.LinearInequality(C, d))
            prices = np.zeros((n, 2))
            prices[: 2 * (n // 3), 0], prices[2 * (n // 3) : 3 * (n // 3), 1] = size, 2 * size
            prices[-1] = once
            mu = local(prices)
        bounds.append(certified(problem, fed, w, mu).bound)
    assert max(bounds) <= optimum.fun
    if size < 1:  # nothing is planted
        assert max(bounds) >= optimum.fun - 1e-9


def stated_on(constraint, local_constraint):
    """A ridge regression of classes under linear constraints."""
    return bf.Problem(
        bf.Logistic(),
        PLAIN,
        regulariser=bf.L2(0.1),
        constraint=constraint,
        local_constraint=local_constraint,
    )


# ---- many coefficients

MANY = {
    "none": bf.Zero(),
    "l1": bf.L1(0.01),
    "elastic net": bf.ElasticNet(0.01, 0.02),
    "ridge": bf.L2(0.02),
    "bounds": bf.Bounds(-0.4, 0.4),
}


@pytest.mark.parametrize("h", MANY.values(), ids=MANY)
@pytest.mark.parametrize("intercept", [False, True])
def test_bounds_by_products_with_the_hessian_are_those_by_the_hessian(monkeypatch, h, intercept):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((150, 12)) * np.logspace(-2, 1, 12)
    y = np.where(X[:, -3:].sum(1) + 8 * rng.standard_normal(150) > 0, 1, 0)
    fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b", "c"], 50))
    C = rng.standard_normal((1, 12 + intercept))
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(intercept),
        over_samples=OF,
        regulariser=h,
        constraint=bf.LinearInequality(C, [-0.1]),
        local_constraint=bf.NeymanPearson(1, 0.69),
    )
    solution = bf.solve(problem, fed, algorithm=bf.InteriorPoint())
    for w, mu in ((solution.w, solution.duals), (solution.w * (1 + 1e-7), solution.duals)):
        proofs = []
        for dense in (500, 5):
            monkeypatch.setattr(certify, "DENSE", dense)
            proofs.append(certified(problem, fed, w, mu))
        whole, products = proofs
        assert products.bound == pytest.approx(whole.bound, rel=1e-8)
        assert whole.gap <= 1e-6 * whole.value
        assert products.stationarity == whole.stationarity


def test_an_infeasible_problem_of_many_coefficients_is_proved_to_be_one(monkeypatch):
    monkeypatch.setattr(certify, "DENSE", 1)
    test_both_classes_too_tight()
    test_contradictory_equalities_by_how_much()


@pytest.mark.parametrize("h", [bf.ElasticNet(0.02, 0.1), bf.L1(0.02)], ids=["elastic net", "l1"])
def test_a_certificate_of_many_coefficients_has_no_matrix_of_them(h):
    """Features of which none counts, beside a few: model and bound are those of the few."""
    few, D, rng = 8, 2000, np.random.default_rng(0)
    X = rng.standard_normal((120, D)) * np.where(np.arange(D) < few, 1.0, 1e-2)
    y = np.where(X[:, :3].sum(1) + rng.standard_normal(120) > 0, 1, 0)

    def problem_of(X):
        fed = bf.Federation.from_arrays(X, y, np.repeat(["a", "b"], 60))
        limit = bf.NeymanPearson(1, 0.5)
        line = bf.Linear(fit_intercept=True)
        return bf.Problem(
            bf.Logistic(), line, over_samples=OF, regulariser=h, local_constraint=limit
        ), fed

    small = bf.solve(*problem_of(X[:, :few]), algorithm=bf.InteriorPoint())
    assert small.certificate.relative_gap < 1e-8
    w = np.concatenate([small.w[:few], np.zeros(D - few), small.w[few:]])
    problem, fed = problem_of(X)
    tracemalloc.start()
    proof, (run,) = certify_constrained(problem, fed, w, small.duals)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < D * D * 8 / 4
    assert proof.bound == pytest.approx(small.certificate.bound, rel=1e-8)
    assert run.state.products > 0
