"""Independent models of a client's worst case at a fixed model: the sets Omega_s, and transport as
linear programs.
"""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
from scipy.optimize import linprog

from bonafed.arrays import Block
from bonafed.problem.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    SmoothHinge,
)

MARGIN = [Hinge(), SmoothHinge(), Logistic()]
RESIDUAL = [Huber(0.7), EpsilonInsensitive(0.2), Quantile(0.3), Absolute()]
PIECEWISE = [Hinge(), EpsilonInsensitive(0.2), Quantile(0.3), Absolute()]
NORMS = ["l1", "l2", "linf"]
LABEL_COSTS = [0.3, 1.0, 5.0, math.inf]
DUAL_P = {"l1": math.inf, "l2": 2, "linf": 1}


def name(value):
    return type(value).__name__ if not isinstance(value, str | float) else str(value)


def block_of(X, y, share=None):
    """One client as a block; several when X has three axes."""
    X, y = np.atleast_3d(X) if X.ndim == 3 else X[None], y if y.ndim == 2 else y[None]
    share = np.full(y.shape, 1 / y.shape[1]) if share is None else np.reshape(share, y.shape)
    return Block(X, y, share, np.arange(len(y)), tuple(f"client {i}" for i in range(len(y))))


def targets(rng, loss, shape):
    return (
        np.where(rng.random(shape) < 0.5, -1.0, 1.0)
        if loss.targets == "sign"
        else rng.normal(size=shape)
    )


def free_value(w, X, y, share, loss, norm, label_cost, radius, b=0.0):
    """(B.1), (B.5), (B.6) and their like on all of R^n: a linear program in (lambda, alpha) at
    fixed w.
    """
    u, m = X @ w + b, len(y)
    size = np.linalg.norm(w, DUAL_P[norm])
    here = loss.value(u, y)
    if loss.targets == "real":
        return radius * loss.lipschitz * max(size, 1 / label_cost) + share @ here
    if math.isinf(label_cost):
        return radius * loss.lipschitz * size + share @ here
    rows = np.column_stack([np.full(m, -label_cost), -np.eye(m)])
    bounds = [(loss.lipschitz * size, None), *((a, None) for a in here)]
    solved = linprog(np.r_[radius, share], rows, -loss.value(u, -y), bounds=bounds, method="highs")
    assert solved.status == 0
    return solved.fun


def polytope_risk(w, X, y, share, loss, norm, label_cost, radius, C, d, c=None, b=0.0):
    """(B.2) to (B.4) with the support {C x + c y <= d}, as printed (with the constants of
    docs/deviations), at coefficients w that may be variables: the value and its constraints.
    """
    lam, alpha, u = cp.Variable(nonneg=True), cp.Variable(len(y)), X @ w + b
    c = np.zeros(len(d)) if c is None else c
    slack = d - X @ C.T - np.outer(y, c) if loss.targets == "real" else d - X @ C.T
    wanted = []

    def piece(const, pull, fee=0.0, moves_y=False):
        phi = cp.Variable((len(y), len(d)), nonneg=True)
        wanted.append(const + cp.sum(cp.multiply(phi, slack), axis=1) - fee * lam <= alpha)
        gap = phi @ C - pull[:, None] @ cp.reshape(w, (1, X.shape[1]), order="C")
        size = {
            "l1": lambda: cp.max(cp.abs(gap), axis=1),
            "l2": lambda: cp.norm(gap, 2, axis=1),
            "linf": lambda: cp.sum(cp.abs(gap), axis=1),
        }[norm]()
        wanted.append(size <= lam)
        if moves_y:
            wanted.append(cp.abs(phi @ c + pull) <= label_cost * lam)

    finite = math.isfinite(label_cost)
    for a, shift in loss.pieces:
        if loss.targets == "real":
            piece(a * (u - y) + shift, np.full(len(y), a), moves_y=finite)
        else:
            piece(a * cp.multiply(y, u) + shift, a * y)
            if finite:
                piece(-a * cp.multiply(y, u) + shift, -a * y, fee=label_cost)
    return radius * lam + share @ alpha, wanted


def polytope_value(w, *of, **more):
    """``polytope_risk`` at coefficients that are numbers."""
    value, wanted = polytope_risk(cp.Constant(w), *of, **more)
    problem = cp.Problem(cp.Minimize(value), wanted)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    assert problem.status == cp.OPTIMAL
    return float(problem.value)


def box_rows(lower, upper, d):
    """The box as C x <= d."""
    lower, upper = np.broadcast_to(lower, d), np.broadcast_to(upper, d)
    return np.vstack([np.eye(d), -np.eye(d)]), np.concatenate([upper, -lower])


def vertex_value(w, X, y, share, loss, label_cost, radius, lower, upper):
    """l1 transport on a box: coordinates stay or go to a bound, labels stay or flip; then a linear
    program is exact.
    """
    m, d = X.shape
    cost, gain, pick = [], [], []
    for i in range(m):
        corners = np.array(np.meshgrid(*([x, lower, upper] for x in X[i]))).reshape(d, -1).T
        for label in (y[i], -y[i]):
            fee = 0.0 if label == y[i] else label_cost
            if math.isfinite(fee):
                cost += list(np.abs(corners - X[i]).sum(1) + fee)
                gain += list(loss.value(corners @ w, np.full(len(corners), label)))
                pick += [i] * len(corners)
    rows = (np.array(pick) == np.arange(m)[:, None]).astype(float)
    solved = linprog(-np.array(gain), [cost], [radius], rows, share, method="highs")
    assert solved.status == 0
    return -solved.fun


def transport_cost(X, y, share, atoms, labels, p, row, norm, label_cost, classes):
    """Cost of the coupling (row, atom), an upper bound on the Wasserstein distance; checks that it
    is a coupling.
    """
    np.testing.assert_allclose(np.bincount(row, p, len(y)), share, rtol=1e-9, atol=1e-15)
    moved = np.linalg.norm(atoms - X[row], {"l1": 1, "l2": 2, "linf": math.inf}[norm], axis=1)
    gap = (labels != y[row]).astype(float) if classes else np.abs(labels - y[row])
    assert math.isfinite(label_cost) or not gap.any()
    return p @ (
        moved + np.where(gap > 0, label_cost, 0.0) * np.where(gap > 0, gap, 0.0)
        if gap.any()
        else moved
    )
