"""Optima of (30) and (32) from pooled rows: SciPy's SLSQP, then active-set Newton steps.

    minimise  mean_i a_i'l(w)  subject to  B l(w) <= level,  l_j(w) = log(1 + exp(-y_j x_j'w)),
            y_j = -1 or +1

holds both: a_i and B have the rows' shares in the means. This file uses none of bonafed's problems,
algorithms or certificates, and the experiments measure every model with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

import bonafed as bf
from bonafed.extending import Array

ACTIVE = 1e-5  # slack below which a constraint may be active
STEPS = 30  # Newton steps at most


@dataclass(frozen=True, eq=False)
class WeightedLosses:
    """The program of the file's docstring."""

    X: Array  # (m, d)
    y: Array  # (m,) -1, +1
    own: Array  # (N, m), the clients' a_i
    B: Array  # (M, m)
    level: float

    @cached_property
    def a(self) -> Array:
        """The mean of the a_i, (m,)."""
        return self.own.mean(0)

    def risks(self, w: Array) -> Array:
        """The clients' objectives, (N,)."""
        return self.own @ _losses(self, w.tobytes())[0]

    def constrained(self, w: Array) -> Array:
        """What the level bounds, B l(w), (M,)."""
        return self.B @ _losses(self, w.tobytes())[0]

    def value(self, w: Array) -> float:
        return float(self.a @ _losses(self, w.tobytes())[0])

    def gradient(self, w: Array) -> Array:
        return self.X.T @ (-self.a * self.y * _losses(self, w.tobytes())[1])

    def slack(self, w: Array) -> Array:
        """(M,) level - B l(w)."""
        return self.level - self.constrained(w)

    def slack_jacobian(self, w: Array) -> Array:
        return (self.B * (self.y * _losses(self, w.tobytes())[1])) @ self.X

    def violation(self, w: Array) -> float:
        """By how much the worst constraint is broken; 0 where all are met."""
        return max(0.0, -float(self.slack(w).min()))

    def hessian(self, w: Array, mu: Array) -> Array:
        """The Hessian of the Lagrangian."""
        p = _losses(self, w.tobytes())[1]
        return (self.X.T * ((self.a + mu @ self.B) * p * (1 - p))) @ self.X

    def residual(self, w: Array, mu: Array) -> float:
        """The largest of stationarity, violation, complementarity and wrong signs."""
        slack = self.slack(w)
        stationarity = np.abs(self.gradient(w) - mu @ self.slack_jacobian(w)).max()
        return float(max(stationarity, -slack.min(), np.abs(mu * slack).max(), -mu.min()))


@lru_cache(maxsize=1)  # since SciPy asks for values and gradients at a point in turn
def _losses(program: WeightedLosses, point: bytes) -> tuple[Array, Array]:
    """The losses l(w), (m,), and the probabilities of the other class, (m,)."""
    t = program.y * (program.X @ np.frombuffer(point))
    return np.logaddexp(0.0, -t), 1 / (1 + np.exp(np.minimum(t, 700)))


@dataclass(frozen=True)
class Reference:
    """A point that meets the optimality conditions up to ``residual``: the optimum if convex."""

    w: Array
    mu: Array
    value: float
    violation: float
    residual: float


def neyman_pearson(fed: bf.Federation, level: float, priority: object = 1) -> WeightedLosses:
    """(30): class ``priority`` in the constraints, the other in the objective."""
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    first, shares = np.asarray(y == priority), _shares(fed.sizes)
    objective, bounded = shares * ~first, shares * first
    bounded = bounded[bounded.any(1)]
    B, y = bounded / bounded.sum(1, keepdims=True), np.where(first, 1.0, -1.0)
    return WeightedLosses(X, y, objective / objective.sum(1, keepdims=True), B, level)


def loss_gaps(fed: bf.Federation, level: float, positive: object = 1) -> WeightedLosses:
    """(32): the groups' mean losses differ by at most the level, at clients and at the server.

    The rows of B are the clients' differences, the server's, and all of them with the other sign.
    """
    feds = [fed] if fed.server is None else [fed, fed.server]
    X = np.concatenate([rows for each in feds for rows in each.X])
    y = np.concatenate([targets for each in feds for targets in each.y])
    group = np.concatenate([values for each in feds for values in (each.columns or {})["group"]])
    shares = _shares(np.concatenate([each.sizes for each in feds]))
    own = (shares / shares.sum(1, keepdims=True))[: fed.n_clients]
    first, second = (shares * (group == g) for g in np.unique(group))
    gap = first / first.sum(1, keepdims=True) - second / second.sum(1, keepdims=True)
    y = np.where(y == positive, 1.0, -1.0)
    return WeightedLosses(X, y, own, np.concatenate([gap, -gap]), level)


def solve(program: WeightedLosses, start: Array | None = None) -> Reference:
    """The optimum from one start, zeros by default."""
    x0 = np.zeros(program.X.shape[1]) if start is None else np.asarray(start, float)
    bound: Any = {"type": "ineq", "fun": program.slack, "jac": program.slack_jacobian}
    law: Any = {"jac": program.gradient, "constraints": [bound], "method": "SLSQP"}
    options = {"maxiter": 2000, "ftol": 1e-15}
    end = minimize(program.value, x0, options=options, **law)
    w, mu = polished(program, end.x, multipliers(program, end.x))
    return Reference(w, mu, program.value(w), program.violation(w), program.residual(w, mu))


def best(program: WeightedLosses, starts: Iterable[Array | None]) -> Reference:
    """The end of least objective among those of several starts that are feasible to 1e-9."""
    ends = [solve(program, start) for start in starts]
    feasible = [one for one in ends if one.violation <= 1e-9]
    return min(feasible or ends, key=lambda one: one.value)


def multipliers(program: WeightedLosses, w: Array) -> Array:
    """Multipliers by nonnegative least squares of stationarity over nearly active constraints."""
    slack = program.slack(w)
    active = np.flatnonzero(slack <= max(ACTIVE, 10 * -float(slack.min())))
    mu = np.zeros(len(slack))
    if len(active):
        mu[active] = nnls(program.slack_jacobian(w)[active].T, program.gradient(w))[0]
    return mu


def polished(program: WeightedLosses, w: Array, mu: Array) -> tuple[Array, Array]:
    """The best point of Newton's method on stationarity and the active constraints as equations."""
    best, least = (w, mu), program.residual(w, mu)
    active = mu > 1e-9 * mu.max(initial=0.0)
    for _ in range(STEPS):
        if least < 1e-14:
            break
        J, k = program.slack_jacobian(w)[active], int(active.sum())
        matrix = np.block([[program.hessian(w, mu), -J.T], [J, np.zeros((k, k))]])
        right = np.concatenate([-program.gradient(w), -program.slack(w)[active]])
        step = np.linalg.lstsq(matrix, right, rcond=1e-13)[0]
        w, mu = w + step[: len(w)], mu.copy()
        mu[active] = step[len(w) :]
        if (residual := program.residual(w, mu)) < least:
            best, least = (w, mu), residual
    return best


def _shares(sizes: NDArray[np.intp]) -> Array:
    """(N, m) 1 where the row is the owner's, else 0."""
    return np.repeat(np.eye(len(sizes)), sizes, axis=1)
