"""Constrained problems over generated clients, and their optima and multipliers by CVXPY from the
raw rows.

Nothing of bonafed is used in the programs: losses, group means and weights are written out.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

import bonafed as bf

TOLERANCES = 1e-11, 1e-10, 1e-9, 1e-8  # of Clarabel: the first that it meets


def clients(
    seed=0, sizes=(30, 50, 25), d=4, scales=1.0, text=False, weights=False, real=False, X=None
):
    """Clients with noisy linear rules; labels are 0 and 1, text, or numbers."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X = rng.standard_normal((n, d)) if X is None else X
    score = X @ rng.standard_normal(X.shape[1]) + rng.standard_normal(n)
    X = X * scales
    ends = np.cumsum(sizes)[:-1]
    y = (
        score + 0.3
        if real
        else np.where(score > 0.2, "ill", "healthy")
        if text
        else (score > 0.2).astype(int)
    )
    weight = tuple(np.split(rng.uniform(0.2, 3.0, n), ends)) if weights else None
    names = [f"clinic {i}" for i in range(len(sizes))]
    return bf.Federation(
        names, tuple(np.split(X, ends)), tuple(np.split(y, ends)), sample_weight=weight
    )


def one_hot(seed=0, sizes=(40, 25, 30)):
    """Categories as indicators with a column of ones: rank deficient, and a feature that is never
    seen.
    """
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    X = np.hstack(
        [
            np.eye(3)[rng.integers(0, 3, n)],
            np.eye(4)[rng.integers(0, 4, n)],
            np.ones((n, 1)),
            np.zeros((n, 1)),
        ]
    )
    return clients(seed, sizes, X=X)


@dataclass(frozen=True)
class Known:
    """The optimum of a problem by another solver."""

    value: float
    w: Any  # (D,)
    prices: Any  # (N,) of every client's Neyman-Pearson constraint


def rows_of(fed):
    """(X, y, share) of every client; labels as -1 and +1, shares that sum to one."""
    classes = np.unique(np.concatenate(fed.y))
    for i, (X, y) in enumerate(zip(fed.X, fed.y, strict=True)):
        y = np.where(y == classes[1], 1.0, -1.0) if y.dtype.kind in "Ui" else y
        weight = np.ones(len(y)) if fed.sample_weight is None else fed.sample_weight[i]
        yield X, y, weight / weight.sum()


def losses(loss, prediction, y):
    """Elementwise, as CVXPY expressions."""
    match loss:
        case bf.Logistic():
            return cp.logistic(-cp.multiply(y, prediction))
        case bf.SmoothHinge():
            return cp.huber(cp.pos(1 - cp.multiply(y, prediction)), 1.0) / 2
        case bf.Exponential():
            return cp.exp(-cp.multiply(y, prediction))
        case bf.Squared():
            return cp.square(prediction - y) / 2
        case bf.Huber(threshold):
            return cp.huber(prediction - y, threshold) / 2
    raise AssertionError(loss)


def penalty(h, w):
    """h as (expression, constraints)."""
    match h:
        case bf.L1(strength):
            return strength * cp.norm1(w), []
        case bf.L2(strength):
            return strength / 2 * cp.sum_squares(w), []
        case bf.ElasticNet(l1, l2):
            return l1 * cp.norm1(w) + l2 / 2 * cp.sum_squares(w), []
        case bf.Bounds(lower, upper):
            return 0.0, [w >= lower, w <= upper]
    return 0.0, []


def mean_of(loss, X, y, share, w, b, label=None):
    """The weighted mean loss of a client's rows, of those of one class (-1 or +1) where
    ``label``.
    """
    inside = np.ones(len(y), bool) if label is None else y == label
    if not inside.any():
        return None
    return share[inside] / share[inside].sum() @ losses(loss, X[inside] @ w + b, y[inside])


def neyman_pearson(
    fed,
    loss,
    level,
    h=None,
    intercept=False,
    objective_of=-1.0,
    bound_on=1.0,
    prior=None,
    linear=None,
):
    """min sum_i prior_i mean_i(class -1) + h, mean_i(class +1) <= level_i; ``linear`` (C, d): C w +
    d <= 0 for all.
    """
    d, h = fed.X[0].shape[1], bf.Zero() if h is None else h
    w, b = cp.Variable(d), cp.Variable() if intercept else 0.0
    rows = list(rows_of(fed))
    n = len(rows)
    prior = np.full(n, 1 / n) if prior is None else prior
    level = np.broadcast_to(np.asarray(level, float), n)
    parts = [mean_of(loss, *row, w, b, objective_of) for row in rows]
    value, extra = penalty(h, w)
    value = value + sum(q * part for q, part in zip(prior, parts, strict=True) if part is not None)
    bounded = (
        [mean_of(loss, *row, w, b, bound_on) for row in rows]
        if bound_on is not None
        else [None] * n
    )
    held = [
        None if part is None else part <= limit for part, limit in zip(bounded, level, strict=True)
    ]
    own = [] if linear is None else [linear[0] @ w + linear[1] <= 0]
    program = cp.Problem(cp.Minimize(value), [one for one in held if one is not None] + extra + own)
    solve(program)
    model = np.append(w.value, b.value) if intercept else w.value
    prices = np.array([0.0 if one is None else float(one.dual_value) for one in held])
    return Known(float(program.value), model, prices)


def solve(program):
    """By Clarabel, as accurately as it can."""
    for tol in TOLERANCES:
        with warnings.catch_warnings():
            # of a tolerance that is not met: the next one is tried
            warnings.simplefilter("ignore", UserWarning)
            program.solve(cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol, max_iter=500)
        if program.status == "optimal":
            return
    raise AssertionError(program.status)


def stated(fed, loss=None, level=0.45, h=None, intercept=False, **more):
    """(30): the mean loss of the first class, with that of the second at most ``level`` at every
    client.
    """
    first, second = np.unique(np.concatenate(fed.y)).tolist()
    return bf.Problem(
        bf.Logistic() if loss is None else loss,
        bf.Linear(intercept),
        over_samples=bf.Mean(label=first),
        regulariser=bf.Zero() if h is None else h,
        local_constraint=bf.NeymanPearson(second, level),
        **more,
    )


def quadratic(seed=0, d=20, n=4, m=2, rank=None, redundant=False, apart=0.0, size=1.0):
    """Clients with (A_i, b_i, C_i, d_i) of known sum; equalities of the server and of every
    client.
    """
    rng = np.random.default_rng(seed)
    half = rng.standard_normal((n, d, rank or d))
    A = [size * h @ h.T for h in half]
    b = [a @ rng.standard_normal(d) for a in A]
    C = [rng.standard_normal((m, d)) for _ in range(n + 1)]
    offset = [rng.standard_normal(m) for _ in range(n + 1)]
    if redundant or apart:
        C[2], offset[2] = C[1], offset[1] + apart
    problem = bf.Problem(
        bf.Quadratic(),
        over_clients=bf.Sum(),
        constraint=bf.LinearEquality(),
        local_constraint=bf.LinearEquality(),
    )
    return (
        problem,
        bf.Federation.from_quadratics(A, b, C, offset),
        (sum(A), sum(b), np.vstack(C), np.concatenate(offset)),
    )
