"""Convex problems with a risk by rank as conic programs in CVXPY, independent of everything in
``bonafed.solvers``.

A sum with nondecreasing weights is a mixture of superquantiles: with jumps a_k = sigma_k -
sigma_{k-1} >= 0,

    sum_i sigma_i z_[i] = sum_k a_k (sum of the n - k + 1 largest) = sum_k a_k min_t (n - k + 1) t +
    sum_i (z_i - t)_+
"""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest

import bonafed as bf

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def data(n, d, seed=0, targets="sign", noise=0.7):
    """X (n, d) and y: labels of a noisy linear rule, or its values."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.3
    z = X @ rng.normal(size=d) + noise * np.sqrt(d) * rng.normal(size=n)
    return X, z if targets == "real" else np.where(z > 0, 1.0, -1.0)


def pooled(X, y, classes=None):
    return bf.Federation(["all"], [X], [y], classes=classes)


def sigma_of(risk, n):
    return np.full(n, 1 / n) if isinstance(risk, bf.Mean) else risk.rank_weights(n)


def by_rank(sigma, z):
    """sum_i sigma_i z_[i] of n expressions, sigma nondecreasing."""
    n = len(sigma)
    if np.ptp(sigma) == 0:
        return sigma[0] * cp.sum(z)
    jumps = np.diff(sigma, prepend=0.0)
    ranks = np.flatnonzero(jumps > 1e-15)
    t, over = cp.Variable(len(ranks)), cp.Variable((n, len(ranks)), nonneg=True)
    columns = cp.reshape(z, (n, 1), order="C") @ np.ones((1, len(ranks))) - np.ones(
        (n, 1)
    ) @ cp.reshape(t, (1, len(ranks)), order="C")
    upper = cp.Variable()
    return upper, [
        over >= columns,
        upper == jumps[ranks] @ (cp.multiply(n - ranks, t) + cp.sum(over, axis=0)),
    ]


def row_losses(loss, prediction, y):
    """(n,) expressions."""
    match loss:
        case bf.Logistic():
            return cp.logistic(-cp.multiply(y, prediction))
        case bf.Hinge():
            return cp.pos(1 - cp.multiply(y, prediction))
        case bf.SmoothHinge():
            return cp.huber(cp.pos(1 - cp.multiply(y, prediction)), 1) / 2
        case bf.Exponential():
            return cp.exp(-cp.multiply(y, prediction))
        case bf.Squared():
            return cp.square(prediction - y) / 2
        case bf.Absolute():
            return cp.abs(prediction - y)
        case bf.Quantile(level):
            return cp.pos(y - prediction) * level + cp.pos(prediction - y) * (1 - level)
        case bf.Huber(threshold):
            return cp.huber(prediction - y, threshold) / 2
        case bf.EpsilonInsensitive(tolerance):
            return cp.pos(cp.abs(prediction - y) - tolerance)
    raise TypeError(loss)


def penalty(g, w):
    """(expression, constraints) of a convex regulariser."""
    match g:
        case bf.Zero():
            return 0.0, []
        case bf.L2(strength):
            return strength / 2 * cp.sum_squares(w), []
        case bf.L1(strength):
            return strength * cp.norm1(w), []
        case bf.ElasticNet(l1, l2):
            return l1 * cp.norm1(w) + l2 / 2 * cp.sum_squares(w), []
        case bf.Bounds(lower, upper):
            sides = (
                (np.broadcast_to(side, w.shape), sign) for side, sign in ((lower, 1), (upper, -1))
            )
            return 0.0, [
                sign * w[f] >= sign * s[f]
                for s, sign in sides
                if (f := np.flatnonzero(np.isfinite(s))).size
            ]
    raise TypeError(g)


def central(problem, X, y, also=lambda w, t: 0.0):
    """The model (D,) that is best by Clarabel; ``also`` is added, of the coefficients (D,) and the
    rows' t (n,).
    """
    n, d = X.shape
    w = cp.Variable(d + problem.predictor.intercept)
    prediction = X @ w[:d] + (w[d] if problem.predictor.intercept else 0.0)
    z, under = cp.Variable(n), []
    under.append(z >= row_losses(problem.loss, prediction, y))
    sigma = sigma_of(problem.over_samples, n)
    risk = by_rank(sigma, z)
    risk, rows = risk if isinstance(risk, tuple) else (risk, [])
    h, bounds = penalty(problem.regulariser, w[:d])
    t = -cp.multiply(y, prediction) if problem.loss.targets == "sign" else prediction - y
    program = cp.Problem(cp.Minimize(risk + h + also(w, t)), under + rows + bounds)
    # asked for more than it can know of: callers compare objectives, which tell
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        program.solve(solver="CLARABEL", **TIGHT)
    return w.value


def objective(problem, X, y, w):
    """The stated objective at w, in plain NumPy; the model's domain is not checked."""
    d = X.shape[1]
    prediction = X @ w[:d] + (w[d] if problem.predictor.intercept else 0.0)
    losses = problem.loss.value(prediction, y)
    g = problem.regulariser
    inside = g.prox(w[:d], 1e-300) if isinstance(g, bf.Bounds) else w[:d]
    risk = problem.over_samples
    value = (
        risk.value(losses)
        if hasattr(risk, "rank_weights_below")
        else np.sort(losses) @ sigma_of(risk, len(y))
    )
    return float(value + g.value(inside))


def rows_of(problem, n, d, seed=3):
    return data(n, d, seed, problem.loss.targets, noise=0.4)


def solved(problem, X, y, tol, classes=None, **options):
    """The solution, whose claims must hold whatever its outcome."""
    solution = bf.solve(problem, pooled(X, y, classes), algorithm=bf.RankADMM(**options), tol=tol)
    proof, scale = solution.certificate, max(abs(solution.certificate.value), 1e-12)
    if solution.outcome.stop is bf.Stop.OPTIMAL:
        assert proof.gap is not None
        assert proof.gap <= max(options.get("atol", 0.0), tol * scale * (1 + 1e-9))
    else:
        assert solution.outcome.stop in (bf.Stop.UNPROVEN, bf.Stop.STALLED, bf.Stop.MAX_ROUNDS)
    return solution


def check(problem, X, y, tol, near, **options):
    """Proven optimal, the value of a conic program, and a bound below it."""
    solution = solved(problem, X, y, tol, **options)
    proof, expected = solution.certificate, objective(problem, X, y, central(problem, X, y))
    assert solution.outcome.stop is bf.Stop.OPTIMAL, solution.outcome.text
    assert proof.value == pytest.approx(expected, rel=near)
    assert proof.value == pytest.approx(objective(problem, X, y, solution.w), rel=1e-12)
    assert proof.bound <= expected * (1 + 1e-12)
    assert not np.allclose(solution.w[: X.shape[1]], 0)  # or the problem would be no test
    return solution, expected
