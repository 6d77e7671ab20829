"""Residuals of optimality against conic programs, enumeration, differences; wrong multipliers prove
nothing wrong.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from problems import PLAIN
from rank_programs import by_rank, central, data, objective, penalty, pooled, row_losses, sigma_of

import bonafed as bf
from bonafed.certificates.certificate import kkt_residuals
from bonafed.certificates.certify import certify
from bonafed.problem.lower_bounds import row_duals
from bonafed.problem.rank_levels import kernel_of, knot_of, rank_value
from bonafed.solvers.rank.proxes import gradients_of
from examples import REGULARISERS


def residuals(problem, X, y, w, alpha, z):
    concrete, fed = problem.at(pooled(X, y))
    return kkt_residuals(concrete, w, alpha, z, fed.block(0))


# ---- at optima


def together(z, knots, near=1e-5):
    """z with entries that are equal, or at a kink, up to a solver's accuracy made so exactly."""
    order = z.argsort()
    out = z[order]
    for i in range(1, len(z)):
        out[i] = out[i - 1] if out[i] - out[i - 1] <= near else out[i]
    for knot in knots:
        out = np.where(np.abs(out - knot) <= 3 * near, knot, out)
    back = np.empty_like(z)
    back[order] = out
    return back


@pytest.mark.parametrize(
    ("loss", "risk", "g", "intercept", "knots"),
    [
        (bf.Logistic(), bf.Mean(), bf.L2(0.05), True, ()),
        (bf.Logistic(), bf.Superquantile(0.43), bf.L1(0.02), False, ()),
        (bf.Exponential(), bf.Extremile(2.0), bf.ElasticNet(0.02, 0.02), False, ()),
        (bf.Hinge(), bf.Superquantile(0.43), bf.L2(0.05), True, (-1.0,)),
        (bf.Hinge(), bf.Extremile(2.0), bf.Bounds(-0.05, 0.3), False, (-1.0,)),
        (bf.Squared(), bf.TopK(5), bf.L2(0.05), False, ()),
        (bf.Absolute(), bf.Superquantile(0.43), bf.L1(0.02), True, (0.0,)),
        (bf.EpsilonInsensitive(0.3), bf.Mean(), bf.L2(0.05), False, (0.3, -0.3)),
    ],
    ids=str,
)
def test_nothing_is_left_at_an_optimum(loss, risk, g, intercept, knots):
    problem = bf.Problem(loss, bf.Linear(intercept), risk, regulariser=g)
    X, y = data(20, 3, 1, loss.targets, noise=0.4)
    sign = -y if loss.targets == "sign" else np.ones_like(y)
    D = sign[:, None] * (np.hstack([X, np.ones((20, 1))]) if intercept else X)
    b = 0 * y if loss.targets == "sign" else y
    w, z, top = cp.Variable(D.shape[1]), cp.Variable(20), cp.Variable(20)
    losses = (
        row_losses(loss, -z, np.ones(20))
        if loss.targets == "sign"
        else row_losses(loss, z, np.zeros(20))
    )
    omega = by_rank(sigma_of(risk, 20), top)
    omega, rows = omega if isinstance(omega, tuple) else (omega, [])
    h, box = penalty(g, w[:3])
    split = z == D @ w - b
    cp.Problem(cp.Minimize(omega + h), [split, top >= losses, *rows, *box]).solve(solver="CLARABEL")
    coefficients = np.where(np.abs(w.value) <= 1e-6, 0.0, w.value)
    if isinstance(g, bf.Bounds):
        coefficients[:3] = together(coefficients[:3], (-0.05, 0.3))
    alpha = -split.dual_value  # of the Lagrangian Omega(z) + dual'(z - Dw + b)
    sizes = (
        together(np.abs(z.value), np.abs(knots)) * np.sign(z.value)
        if loss.targets == "real"
        else None
    )
    at = together(z.value, knots) if sizes is None else sizes
    found = residuals(problem, X, y, coefficients, alpha, at)
    assert found.max() <= 2e-4
    # and not elsewhere
    moved = residuals(problem, X, y, coefficients + 0.1, alpha, at)
    assert moved[2] == pytest.approx(np.linalg.norm(at - D @ (coefficients + 0.1) + b))
    assert residuals(problem, X, y, coefficients, 1.5 * alpha, at)[:2].max() >= 0.01


def test_two_rows_by_hand():
    """Logistic, one feature: Omega = max, w = 0, so z = 0 twice: gradients 1/2 times any weights
    that sum to one.
    """
    X, y = np.array([[1.0], [3.0]]), np.array([1.0, -1.0])
    problem = bf.Problem(bf.Logistic(), PLAIN, over_samples=bf.Maximum(), regulariser=bf.L1(0.25))
    zero = np.zeros(1)
    # D = (-1, 3): -D'alpha = a_1 - 3 a_2
    assert_allclose(
        residuals(problem, X, y, zero, np.array([0.375, 0.125]), np.zeros(2)), 0, atol=1e-15
    )
    assert_allclose(
        residuals(problem, X, y, zero, np.array([0.5, 0.0]), np.zeros(2)), [0, 0.25, 0], atol=1e-15
    )
    assert_allclose(
        residuals(problem, X, y, zero, np.array([0.5, 0.5]), np.zeros(2)),
        [0.25 * np.sqrt(2), 0.75, 0],
        atol=1e-15,
    )
    assert_allclose(
        residuals(problem, X, y, zero, np.array([0.0, 0.0]), np.array([0.0, 1.0])),
        [1 / (1 + np.exp(-1)), 0, 1],
    )


# ---- the distance from the subdifferential of the risk


LOSSES = [
    bf.Logistic(),
    bf.Hinge(),
    bf.SmoothHinge(),
    bf.Exponential(),
    bf.Squared(),
    bf.Absolute(),
    bf.EpsilonInsensitive(0.5),
]
RISKS = [
    bf.Mean(),
    bf.Superquantile(0.6),
    bf.Extremile(2.0),
    bf.RankedRange(3, 1),
    bf.Median(),
    bf.HumanAligned(0.4, 0.3),
    bf.Spectral([0.4, 0.1, 0.3, 0.2]),
]


def brute(sigma, kernel, alpha, z):
    """||alpha - nearest||^2, nearest_i = s_i q_i: q a mean of all orders of sigma that sort the
    losses, s_i a gradient.
    """
    n, size = len(z), np.abs(z) if kernel.even else z
    orders = [p for p in itertools.permutations(range(n)) if (np.diff(size[list(p)]) >= 0).all()]
    vertices = np.zeros((len(orders), n))
    for row, order in zip(vertices, orders, strict=True):
        row[list(order)] = sigma
    share, near = cp.Variable(len(orders), nonneg=True), cp.Variable(n)
    q, gradients, rows = vertices.T @ share, gradients_of(z, kernel), [cp.sum(share) == 1]
    for i in range(n):
        if kernel.kind == 1 and size[i] == kernel.knot:  # PLUS: every gradient from 0 to 1
            sign = np.sign(z[i]) if kernel.even else 1.0
            rows += (
                [cp.abs(near[i]) <= q[i]]
                if sign == 0
                else [sign * near[i] >= 0, sign * near[i] <= q[i]]
            )
        else:
            rows.append(near[i] == gradients[i] * q[i])
    program = cp.Problem(cp.Minimize(cp.sum_squares(alpha - near)), rows)
    program.solve(solver="CLARABEL")
    return program.value


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("risk", RISKS, ids=lambda risk: type(risk).__name__)
def test_distance_from_the_risk_by_enumeration(loss, risk):
    """Ties, kinks and both at once; weights that rise, fall, or neither."""
    problem, kernel = bf.Problem(loss, PLAIN, over_samples=risk), kernel_of(loss)
    margin = loss.targets == "sign"
    X, y = np.zeros((4, 1)), np.array([1.0, -1.0, 1.0, -1.0]) if margin else np.zeros(4)
    rng = np.random.default_rng(RISKS.index(risk))
    values = [-1.0, -1.0, 0.0, 0.7, 0.5, -0.5, 0.0]
    for k in range(5):
        z = rng.choice(values, size=4) if k else np.array([0.1, -0.4, 2.0, -3.0])
        alpha = (
            rng.normal(scale=0.3, size=4)
            if k % 2
            else sigma_of(risk, 4)[rng.permutation(4)] * gradients_of(z, kernel)
        )
        found = residuals(problem, X, y, np.zeros(1), alpha, z)
        assert found[0] ** 2 == pytest.approx(
            brute(sigma_of(risk, 4), kernel, alpha, z), rel=1e-5, abs=1e-8
        )


@pytest.mark.parametrize("reference", [0.3, 1.5])
@pytest.mark.parametrize("loss", [bf.Logistic(), bf.Squared()], ids=repr)
def test_jumps_of_prospect_weights_by_differences(loss, reference):
    """At the reference one side jumps up: there every gradient beyond the other side's counts."""
    risk = bf.ProspectTheory(0.61, 0.69, reference)
    problem, kernel = bf.Problem(loss, PLAIN, over_samples=risk), kernel_of(loss)
    at, h = knot_of(kernel, reference), 1e-5
    y = np.ones(4) if loss.targets == "sign" else np.zeros(4)
    X = np.zeros((4, 1))
    fed = bf.Federation(["a"], [X], [y], classes=(-1.0, 1.0) if loss.targets == "sign" else None)
    concrete, fed = problem.at(fed)
    jumps = set()
    for position in range(4):
        z = at + np.array([-0.9, -0.3, 0.5, 1.1]) - (0.6 if position < 2 else -0.6)
        z[position] = at
        if kernel.even:
            z = np.abs(z) * np.array([1.0, -1.0, 1.0, -1.0])

        def omega(i, move, z=z):
            moved = z.copy()
            moved[i] += move
            return rank_value(concrete, moved)

        low, high = np.empty(4), np.empty(4)
        for i in range(4):
            sides = omega(i, -h), omega(i, h)
            middle = min(omega(i, -1e-11), omega(i, 1e-11))  # the lower of the limits
            low[i] = -np.inf if sides[0] - middle > 1e-3 else (middle - sides[0]) / h
            high[i] = np.inf if sides[1] - middle > 1e-3 else (sides[1] - middle) / h
            if i == position:
                jumps.add((np.isinf(low[i]), np.isinf(high[i])))
        low, high = np.minimum(low, high), np.maximum(low, high)
        for alpha in np.random.default_rng(position).normal(scale=0.7, size=(5, 4)):
            found = kkt_residuals(concrete, np.zeros(1), alpha, z, fed.block(0))
            expected = np.linalg.norm(alpha - np.clip(alpha, low, high))
            assert found[0] == pytest.approx(expected, abs=5e-5)
    assert len(jumps) >= 1
    assert (False, False) not in jumps


# ---- the distance from the subdifferential of the regulariser


@dataclass(frozen=True)
class Own:
    """An L1 of somebody else's."""

    strength: float = 0.7
    weak_convexity: float = 0.0
    strong_convexity: float = 0.0

    def value(self, w):
        return self.strength * float(np.abs(w).sum())

    def prox(self, v, step):
        return np.sign(v) * np.maximum(np.abs(v) - step * self.strength, 0.0)

    def domain_radius(self, level, size):
        return level / self.strength


def test_distance_from_the_group_lasso():
    """A group of zeros takes any push of length strength sqrt(size); another only along its own
    direction.
    """
    g, rng = bf.GroupL2(0.5, (0, 1, 0, 2)), np.random.default_rng(6)
    problem, w = bf.Problem(bf.Logistic(), PLAIN, regulariser=g), np.array([0.3, 0.0, -0.4, 0.0])
    X, y, alpha = rng.normal(size=(6, 4)), np.array([1.0, -1, 1, -1, 1, 1]), rng.random(6)
    push = X.T @ (y * alpha)
    active = np.hypot(*(push[[0, 2]] - 0.5 * np.sqrt(2) * np.array([0.6, -0.8])))
    rest = np.maximum(np.abs(push[[1, 3]]) - 0.5, 0.0)
    found = residuals(problem, X, y, w, alpha, np.zeros(6))[1]
    assert found == pytest.approx(np.sqrt(active**2 + (rest**2).sum()), rel=1e-12)
    nothing = residuals(problem, X, y, np.zeros(4), alpha, np.zeros(6))[1]
    short = max(np.hypot(*push[[0, 2]]) - 0.5 * np.sqrt(2), 0.0)
    assert nothing == pytest.approx(np.sqrt(short**2 + (rest**2).sum()), rel=1e-12)


@pytest.mark.parametrize("centre", [0.0, np.array([0.3, -0.2, 0.1, 0.0])], ids=["0", "moved"])
def test_distance_from_the_normal_cone_of_a_ball(centre):
    """Inside nothing is balanced; on the sphere what points outwards is, and nothing else."""
    g, rng = bf.Ball(2.0, centre), np.random.default_rng(6)
    problem = bf.Problem(bf.Logistic(), PLAIN, regulariser=g)
    X, y, alpha = rng.normal(size=(6, 4)), np.array([1.0, -1, 1, -1, 1, 1]), rng.random(6)
    push = X.T @ (y * alpha)
    outward = np.array([0.6, 0.0, -0.8, 0.0])
    for along in (outward, -outward):
        on = g.prox(centre + 3 * along, 1.0)
        found = residuals(problem, X, y, on, alpha, np.zeros(6))[1]
        expected = np.linalg.norm(push - max(push @ along, 0) * along)
        assert found == pytest.approx(expected, rel=1e-9)
    inside = residuals(problem, X, y, centre + outward, alpha, np.zeros(6))[1]
    assert inside == pytest.approx(np.linalg.norm(push), rel=1e-12)


@pytest.mark.parametrize(
    "g", [*(g for g in REGULARISERS if not isinstance(g, bf.Ball | bf.GroupL2)), Own()], ids=repr
)
@pytest.mark.parametrize("intercept", [False, True])
def test_distance_from_the_regulariser_by_differences(g, intercept):
    problem = bf.Problem(bf.Logistic(), bf.Linear(intercept), regulariser=g)
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(6, 4)), np.array([1.0, -1, 1, -1, 1, 1])
    h = 1e-6
    for w in (
        np.zeros(4),
        np.array([-1.0, 2.0, 0.0, 0.5]),
        np.array([0.4, -0.9, 1.7, 0.5]),
        np.array([1.0, 3, 5, 0.5]),
    ):
        w = np.clip(w, g.lower, g.upper) if isinstance(g, bf.Bounds) else w
        low, high = np.empty(4), np.empty(4)
        for j in range(4):
            left, middle, right = (
                g.value(np.where(np.arange(4) == j, w + move, w)) for move in (-h, 0.0, h)
            )
            low[j], high[j] = (middle - left) / h, (right - middle) / h
        # smooth but concave: equal but for h
        low, high = np.minimum(low, high), np.maximum(low, high)
        full = np.append(w, 0.3) if intercept else w
        alpha = rng.random(6)
        push = X.T @ (y * alpha)  # -D'alpha
        expected = ((push - np.clip(push, low, high)) ** 2).sum() + (
            (y @ alpha) ** 2 if intercept else 0.0
        )
        found = residuals(problem, X, y, full, alpha, np.zeros(6))
        assert found[1] == pytest.approx(np.sqrt(expected), abs=1e-4)


# ---- multipliers that are wrong


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "g", [bf.L2(0.05), bf.L1(0.05), bf.ElasticNet(0.02, 0.02), bf.Bounds(-0.3, 0.4)], ids=repr
)
@pytest.mark.parametrize(
    "loss", [bf.Logistic(), bf.Hinge(), bf.Exponential(), bf.Absolute(), bf.Squared()], ids=repr
)
def test_no_multipliers_prove_more_than_the_optimum(loss, g, intercept):
    problem = bf.Problem(loss, bf.Linear(intercept), bf.Superquantile(0.43), regulariser=g)
    X, y = data(12, 3, 2, loss.targets, noise=0.4)
    fed, w = pooled(X, y), central(problem, X, y)
    if isinstance(g, bf.Bounds):
        w[:3] = np.clip(w[:3], -0.3, 0.4)
    optimum = objective(problem, X, y, w)
    good = bf.solve(problem, fed, algorithm=bf.RankADMM(), tol=1e-9).duals.rows
    rng, D = np.random.default_rng(0), 3 + intercept
    tried = [
        np.zeros(12),
        np.full(12, -1.0),
        np.full(12, 1 / 12),
        np.full(12, 1e6),
        np.eye(12)[0],
        good,
        -good,
        2 * good,
    ]
    tried += [good * (1 + size * rng.normal(size=12)) for size in (1e-12, 1e-6, 1e-2, 1.0)]
    tried += [size * rng.normal(size=12) for size in (1e-300, 1e-17, 1e-3, 0.1, 1.0, 1e12)]
    tried += [rng.permutation(good), np.where(rng.random(12) < 0.5, good, 0.0)]
    best = -np.inf
    for model in (w, np.zeros(D)):
        for alpha in tried:
            proof = certify(problem, fed, model, row_duals(alpha, np.zeros(12), D))
            assert proof.value == pytest.approx(objective(problem, X, y, model), rel=1e-12)
            assert proof.bound is None or proof.bound <= optimum * (1 + 1e-10)
            best = max(best, -np.inf if proof.bound is None else proof.bound)
    assert best >= optimum * (1 - 1e-4)  # the right ones do prove it


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(wrong):
    X, y = data(12, 3, 2)
    problem = bf.Problem(
        bf.Hinge(), PLAIN, over_samples=bf.Superquantile(0.43), regulariser=bf.L2(0.1)
    )
    rows = np.full(12, 0.05)
    for bad, split in (
        (np.append(rows[:-1], wrong), rows),
        (rows, np.append(rows[:-1], wrong)),
        (rows[:-1], rows),
    ):
        with pytest.raises(ValueError, match=r"duals\.(rows|split) must be finite"):
            certify(problem, pooled(X, y), np.zeros(3), row_duals(bad, split, 3))
    two = bf.Federation(["a", "b"], [X[:6], X[6:]], [y[:6], y[6:]])
    with pytest.raises(ValueError, match="only client"):
        certify(
            problem,
            two,
            np.zeros(3),
            bf.Duals(np.ones(2) / 2, np.zeros((0, 3)), np.zeros((0, 2)), rows, rows),
        )


def test_where_the_risk_is_not_convex_multipliers_prove_nothing():
    X, y = data(12, 3, 2)
    problem = bf.Problem(
        bf.Logistic(), PLAIN, over_samples=bf.RankedRange(9, 2), regulariser=bf.L2(0.1)
    )
    z = -y * (X @ np.ones(3))
    proof = certify(problem, pooled(X, y), np.ones(3), row_duals(np.full(12, 0.05), z, 3))
    assert proof.bound is None
    assert proof.gap is None
    expected = residuals(problem, X, y, np.ones(3), np.full(12, 0.05), z)
    assert_allclose(proof.residuals, expected)
    assert proof.stationarity == expected[:2].max()
    assert expected[2] == 0
