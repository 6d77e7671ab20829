"""Reference optima from pooled rows: SciPy's SLSQP or trust-constr, then active-set Newton steps.

    minimise a'l(w)  subject to  B l(w) <= level,  l_j(w) = log(1 + exp(-y_j x_j'w)),
            y_j = -1 or +1

covers (30) and (32): a and B hold the rows' shares in the means. This file uses none of bonafed's
problems, algorithms or certificates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import BFGS, NonlinearConstraint, minimize, nnls

import bonafed as bf
from bonafed.extending import Array

ACTIVE = 1e-5  # slack below which a constraint may be active
STEPS = 30  # Newton steps at most


@dataclass(frozen=True, eq=False)
class WeightedLosses:
    """The program of the module's docstring."""

    X: Array  # (m, d)
    y: Array  # (m,) -1, +1
    a: Array  # (m,)
    B: Array  # (M, m)
    level: Array  # (M,)

    def _losses(self, w: Array) -> tuple[Array, Array]:
        return _losses(self, w.tobytes())

    def value(self, w: Array) -> float:
        return float(self.a @ self._losses(w)[0])

    def gradient(self, w: Array) -> Array:
        return self.X.T @ (-self.a * self.y * self._losses(w)[1])

    def slack(self, w: Array) -> Array:
        """(M,) level - B l(w)."""
        return self.level - self.B @ self._losses(w)[0]

    def slack_jacobian(self, w: Array) -> Array:
        return (self.B * (self.y * self._losses(w)[1])) @ self.X

    def hessian(self, w: Array, mu: Array) -> Array:
        """The Hessian of the Lagrangian."""
        p = self._losses(w)[1]
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
    seconds: float  # CPU time without the Newton steps


def neyman_pearson(fed: bf.Federation, level: float, priority: object = 1) -> WeightedLosses:
    """(30): class ``priority`` in the constraints, the other in the objective."""
    X, y = np.concatenate(fed.X), np.concatenate(fed.y)
    first = np.asarray(y == priority)
    shares = _shares(fed.sizes)
    objective = shares * ~first
    objective = objective / objective.sum(1, keepdims=True) / fed.n_clients
    bounded = shares * first
    bounded = bounded[bounded.any(1)]
    B = bounded / bounded.sum(1, keepdims=True)
    return WeightedLosses(
        X, np.where(first, 1.0, -1.0), objective.sum(0), B, np.full(len(B), level)
    )


def loss_gaps(fed: bf.Federation, level: float, positive: object = 1) -> WeightedLosses:
    """(32): the groups' mean losses differ by at most the level, at clients and at the server."""
    feds = [fed] if fed.server is None else [fed, fed.server]
    X = np.concatenate([rows for each in feds for rows in each.X])
    y = np.concatenate([targets for each in feds for targets in each.y])
    group = np.concatenate([values for each in feds for values in (each.columns or {})["group"]])
    shares = _shares(np.concatenate([each.sizes for each in feds]))
    a = (shares / shares.sum(1, keepdims=True))[: fed.n_clients].sum(0) / fed.n_clients
    means = [
        shares * (group == g) / (shares * (group == g)).sum(1, keepdims=True)
        for g in np.unique(group)
    ]
    gap = means[0] - means[1]
    B = np.concatenate([gap, -gap])
    return WeightedLosses(X, np.where(y == positive, 1.0, -1.0), a, B, np.full(len(B), level))


def solve(
    program: WeightedLosses,
    start: Array | None = None,
    method: str = "SLSQP",
    polish: bool = True,
) -> Reference:
    """The optimum from one start, zeros by default; ``method`` is "SLSQP" or "trust-constr"."""
    x0 = np.zeros(program.X.shape[1]) if start is None else np.asarray(start, float)
    began = time.process_time()
    if method == "SLSQP":
        bound: Any = {"type": "ineq", "fun": program.slack, "jac": program.slack_jacobian}
        options = {"maxiter": 2000, "ftol": 1e-15}
    else:
        jac: Any = program.slack_jacobian
        bound = NonlinearConstraint(program.slack, 0.0, np.inf, jac=jac, hess=BFGS())
        options = {"maxiter": 3000, "gtol": 1e-9, "xtol": 1e-12, "barrier_tol": 1e-10}
    end = minimize(
        program.value, x0, jac=program.gradient, constraints=[bound], method=method, options=options
    )
    seconds = time.process_time() - began
    w, mu = end.x, multipliers(program, end.x)
    if polish:
        w, mu = polished(program, w, mu)
    violation = -float(program.slack(w).min(initial=0.0))
    return Reference(w, mu, program.value(w), violation, program.residual(w, mu), seconds)


def best(program: WeightedLosses, starts: Sequence[Array | None]) -> Reference:
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
    best = w, mu
    least = program.residual(w, mu)
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
        residual = program.residual(w, mu)
        if residual < least:
            best, least = (w, mu), residual
    return best


def _shares(sizes: NDArray[np.intp]) -> Array:
    """(N, m) 1 where the row is the owner's, else 0."""
    return np.repeat(np.eye(len(sizes)), sizes, axis=1)
