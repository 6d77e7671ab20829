"""The server's part of the proximal AL method: its function P_0, step (18), and acceleration.

    minimise  P_0(w) + h(w) + sum_i rho ||u~_i - w||^2 / 2                                      (18)

P_0 holds the server's own constraints c_0 and, where constraints couple the clients, sum_i s_i <= 0
of (4). Equation numbers are those of He, Peng, Sun, *Federated learning with convex global and
local constraints*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from quorate.algorithms.federated.proximal_al.merit import raised
from quorate.arrays import Array
from quorate.codec import Extended, Form
from quorate.problem.client_means import hessians
from quorate.problem.problem import Problem
from quorate.problem.regularisers import regulariser_parts
from quorate.rounds import record
from quorate.solvers.smooth.anderson import mixing
from quorate.solvers.smooth.newton import Smooth, newton, proximal_newton

GUARD = 1.3  # growth of the fixed point residual at which the acceleration forgets


@dataclass(frozen=True, eq=False)
class Server:
    """The server's subproblem: P_0 + h, and quadratic terms that tie w to the clients' copies."""

    problem: Problem
    n: int
    beta: float
    rho: float
    anchor: Array  # (D,) w^k
    multiplier: Array  # (p_0,) mu_0
    tol: float

    @property
    def sigma(self) -> float:
        return 1 / ((self.n + 1) * self.beta)

    @property
    def weight(self) -> float:
        """The curvature of the quadratic terms."""
        return self.n * self.rho + self.sigma

    def step(self, shifted: Array, start: Array) -> tuple[Array, float]:
        """The minimiser of (18) and the distance of 0 from its subdifferential.

        ``shifted`` is sum_i u~_i.
        """
        centre = (self.rho * shifted + self.sigma * self.anchor) / self.weight
        if not self.problem.constraint.held.size:
            return self.problem.prox(centre, 1 / self.weight), 0.0
        l1, l2, lower, upper = regulariser_parts(self.problem.regulariser)
        if l1 == 0 and np.isneginf(lower).all() and np.isposinf(upper).all():
            return self._newton(centre, start, l2)

        return self._composite(centre, start)

    def multipliers(self, c: Array) -> Array:
        """The multipliers [mu_0 + beta c_0]_+, without [.]_+ for equalities."""
        return raised(self.multiplier + self.beta * c, self.problem.constraint.held.equality)

    def _held(self, w: Array) -> tuple[float, Array]:
        held, at = self.problem.constraint.held, self.problem.constraint.point(self.problem, w)
        y = self.multipliers(held.values(at)[0])
        return float(y @ y) / (2 * self.beta), y @ held.jacobian(at)[0]

    def _newton(self, centre: Array, start: Array, l2: float) -> tuple[Array, float]:
        D = len(centre)
        penalised = np.arange(D) < len(self.problem.predictor.split(centre)[0])
        diagonal: Array = l2 * penalised.astype(float) + self.weight

        def smooth(w: Array) -> tuple[Array, Array]:
            value, gradient = self._held(w[0])
            flat = diagonal - self.weight
            away = w[0] - centre
            total = value + float(flat @ w[0] ** 2 + self.weight * away @ away) / 2
            return np.array([total]), (gradient + flat * w[0] + self.weight * away)[None]

        affine = self.problem.constraint.held.affine
        exact = self._pieces(centre, diagonal, start) if affine else None
        return exact or self._dense(smooth, diagonal, start)

    def _pieces(self, centre: Array, diagonal: Array, start: Array) -> tuple[Array, float] | None:
        """The minimiser of (18) for affine constraints by an active set; None if it does not end.

        y = mu_0 + beta c_0(w) is solved for, so that a large beta costs no digits.
        """
        held, at = self.problem.constraint.held, self.problem.constraint.point(self.problem, start)
        J, c = held.jacobian(at)[0], held.values(at)[0]
        free = self.weight * centre / diagonal
        lifted = J @ free + (c - J @ start) + self.multiplier / self.beta
        active = held.equality | (self.multiplier + self.beta * c > 0)
        for _ in range(30):
            rows = J[active]
            small = np.eye(len(rows)) / self.beta + (rows / diagonal) @ rows.T
            y = np.linalg.solve(small, lifted[active])
            w = free - rows.T @ y / diagonal
            before, active = (
                active,
                held.equality | (self.multiplier + self.beta * (c + J @ (w - start)) > 0),
            )
            if (active == before).all():
                return w, float(
                    np.abs(diagonal * w - self.weight * centre + rows.T @ y).max(initial=0.0)
                )
        return None

    def _composite(self, centre: Array, start: Array) -> tuple[Array, float]:
        l1, l2, lower, upper = regulariser_parts(self.problem.regulariser)
        penalised = np.arange(len(centre)) < len(self.problem.predictor.split(centre)[0])
        curve: Array = l2 * penalised.astype(float)

        def smooth(w: Array) -> tuple[float, Array]:
            value, gradient = self._held(w)
            away = w - centre
            return value + self.weight / 2 * float(away @ away), gradient + self.weight * away

        def gradients(w: Array) -> tuple[Array, Array]:
            v, none = w[penalised], np.zeros(int((~penalised).sum()))
            sign = np.sign(v)
            low = l2 * v + l1 * np.where(sign == 0, -1.0, sign)
            high = l2 * v + l1 * np.where(sign == 0, 1.0, sign)
            low, high = np.where(v <= lower, -np.inf, low), np.where(v >= upper, np.inf, high)
            return np.concatenate([low, none]), np.concatenate([high, none])

        def hessian(w: Array) -> Array:
            return self._hessian(w, np.full(len(w), self.weight))

        h = self.problem.penalty
        return proximal_newton(
            smooth, hessian, h, self.problem.prox, gradients, curve, start, self.tol
        )

    def _hessian(self, w: Array, diagonal: Array) -> Array:
        held, at = self.problem.constraint.held, self.problem.constraint.point(self.problem, w)
        y, J = self.multipliers(held.values(at)[0]), held.jacobian(at)[0]
        active = J * np.where(held.equality | (y > 0), self.beta, 0.0)[:, None]
        return (
            hessians(at, np.zeros(1), [(held, y[None])], together=False)[0]
            + J.T @ active
            + np.diag(diagonal)
        )

    def _dense(self, smooth: Smooth, diagonal: Array, start: Array) -> tuple[Array, float]:
        convex = self.problem.constraint.held.convex
        minima = newton(
            smooth, lambda w: self._hessian(w[0], diagonal)[None], start[None], self.tol, convex
        )
        return minima.v[0], float(minima.residual[0])

    def slacks(self, shifted: Array, anchor: Array, unit: Array, multiplier: Array) -> Array:
        """The solution of (18) in s (N, p_c), sum_i unit s_i <= 0, in closed form."""
        rho, sigma, equality = self.rho, self.sigma, self.problem.constraint.coupled.equality
        free = (rho * shifted + sigma * anchor) / (rho + sigma)
        per = unit / (rho + sigma)  # how far one unit of the multiplier moves every s_i
        total = (unit * free).sum(0)
        y = raised(multiplier + self.beta * total, equality) / (1 + self.beta * self.n * unit * per)
        return free - per * y


@record
class Past:
    """The last h residuals r_i = w^{t+1} - z_i^t of the iteration, the newest last.

    The server knows them by their products alone.
    """

    step: Annotated[Array, Form("h, D")]  # w^{t+1} - w^t
    slack_step: Annotated[Array, Form("h, N, p_c")]
    drift: Annotated[Array, Form("h, D")]  # sum_i (u_i^t - w^t)
    slack_drift: Annotated[Array, Form("h, N, p_c")]
    inner: Annotated[Array, Form("h, h")]  # sum_i <u_i - w, u_i - w> of rounds t and t'
    size: Extended  # ||r|| of the newest


def no_past(D: int, slack: Sequence[int]) -> Past:
    """An empty history."""
    none, nobody = np.zeros((0, D)), np.zeros((0, *slack))
    return Past(none, nobody, none, nobody, np.zeros((0, 0)), math.inf)


def remembered(past: Past, drift: Array, slack_drift: Array, inner: Array) -> Past:
    """The history with one more drift.

    ``inner`` ends with its products with those before, and with itself.
    """
    h = len(past.drift)
    border = inner[len(inner) - h - 1 :]
    matrix = np.zeros((h + 1, h + 1))
    matrix[:h, :h], matrix[h], matrix[:, h] = past.inner, border, border
    return Past(
        past.step,
        past.slack_step,
        np.concatenate([past.drift, drift[None]]),
        np.concatenate([past.slack_drift, slack_drift[None]]),
        matrix,
        past.size,
    )


def mixed(past: Past, step: Array, slack_step: Array, n: int, memory: int) -> tuple[Past, Array]:
    """The history with a new ``step``, and the weights of the points from which the clients start.

    ``step`` is new.
    """
    steps, slacks = (
        np.concatenate([past.step, step[None]]),
        np.concatenate([past.slack_step, slack_step[None]]),
    )
    past = replace(past, step=steps, slack_step=slacks)
    gram = _gram(past, n)
    size = math.sqrt(max(float(gram[-1, -1]), 0.0))
    keep = 1 if not size <= GUARD * past.size else min(len(gram), memory + 1)
    past = replace(newest(past, keep), size=size)
    return past, mixing(gram[-keep:, -keep:])


def newest(past: Past, keep: int) -> Past:
    """The history with its last entries alone."""
    at = slice(len(past.drift) - keep, None)
    parts = (
        past.step[at],
        past.slack_step[at],
        past.drift[at],
        past.slack_drift[at],
        past.inner[at, at],
    )
    return Past(*parts, past.size)


def _gram(past: Past, n: int) -> Array:
    """The products sum_i <r_i, r_i'>, without any single r_i but for the slacks."""
    cross = past.step @ past.drift.T
    slack = (past.slack_step - past.slack_drift).reshape(len(cross), -1)
    return n * past.step @ past.step.T - cross - cross.T + past.inner + slack @ slack.T
