"""The server's part of the proximal AL method: its function P_0, step (18), and acceleration.

    minimise  P_0(w) + h(w) + sum_i rho_i ||u~_i - w||^2 / 2                                    (18)

in units of the columns and of the constraints. P_0 holds the server's own constraints c_0 and,
where constraints couple the clients, sum_i s_i <= 0 of (4). Equation numbers are those of He, Peng,
Sun, *Federated learning with convex global and local constraints*.
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
from quorate.problem.constraints.constraint import Point, Stack
from quorate.problem.problem import Problem
from quorate.problem.regularisers import Ball, GroupL2, Regulariser, regulariser_parts
from quorate.rounds import record
from quorate.solvers.smooth.anderson import mixing
from quorate.solvers.smooth.newton import Smooth, newton, proximal_newton

GUARD = 1.3  # growth of the fixed point residual at which the acceleration forgets


@dataclass(frozen=True, eq=False)
class Server:
    """The server's subproblem: P_0 + h, and quadratic terms that tie w to the clients' copies."""

    problem: Problem
    columns: Array  # (D,)
    size: Array  # (p_0,) of the constraints
    share: Array  # (N,) rho_i / rho, of mean 1
    beta: float
    rho: float
    anchor: Array  # (D,) w^k
    multiplier: Array  # (p_0,) mu_0
    tol: float

    @property
    def sigma(self) -> float:
        return 1 / ((len(self.share) + 1) * self.beta)

    @property
    def weight(self) -> float:
        """The curvature of the quadratic terms."""
        return len(self.share) * self.rho + self.sigma

    def constraints(self, w: Array) -> Array:
        """c_0 (p_0,)."""
        return self._held(w)[0]

    def jacobian(self, w: Array) -> Array:
        """c_0' (p_0, D)."""
        return self._held(w)[1]

    def _held(self, w: Array) -> tuple[Array, Array]:
        held, at = self._point(w)
        J = held.jacobian(at)[0] * self.columns / self.size[:, None]
        return held.values(at)[0] / self.size, J

    def _point(self, w: Array) -> tuple[Stack, Point]:
        glob = self.problem.constraint
        return glob.held, glob.point(self.problem, self.columns * w)

    def _prox(self, v: Array, step: float) -> Array:
        """The proximal map of h(columns w)."""
        steps = step * self.columns[: self._penalised] ** 2
        # a number where h takes no other
        at_once = steps[0] if len(steps) and not np.ptp(steps) else steps
        return self.problem.prox(self.columns * v, at_once) / self.columns

    @property
    def _penalised(self) -> int:
        return len(self.problem.predictor.split(self.columns)[0])

    def _parts(self) -> tuple[Array, Array, Array, Array]:
        """The numbers l1, l2, lower and upper of h for every coefficient."""
        l1, l2, lower, upper = regulariser_parts(self.problem.regulariser)
        none, unit = np.zeros(len(self.columns)), self.columns[: self._penalised]
        parts = none.copy(), none.copy(), none - math.inf, none + math.inf
        values = l1 * unit, l2 * unit**2, lower / unit, upper / unit
        for part, value in zip(parts, values, strict=True):
            part[: len(unit)] = value
        return parts

    def step(self, shifted: Array, start: Array) -> tuple[Array, float]:
        """The minimiser of (18) and the distance of 0 from its subdifferential.

        ``shifted`` is sum_i share_i u~_i.
        """
        centre = (self.rho * shifted + self.sigma * self.anchor) / self.weight
        if not self.problem.constraint.held.size:
            return self._prox(centre, 1 / self.weight), 0.0
        l1, l2, lower, upper = self._parts()
        if not l1.any() and np.isneginf(lower).all() and np.isposinf(upper).all():
            return self._newton(centre, start, l2)

        return self._composite(centre, start)

    def multipliers(self, c: Array) -> Array:
        """The multipliers [mu_0 + beta c_0]_+, without [.]_+ for equalities."""
        return raised(self.multiplier + self.beta * c, self.problem.constraint.held.equality)

    def _pressed(self, w: Array) -> tuple[float, Array]:
        """The constraints' part of P_0, and its gradient."""
        c, J = self._held(w)
        y = self.multipliers(c)
        return float(y @ y) / (2 * self.beta), y @ J

    def _newton(self, centre: Array, start: Array, l2: Array) -> tuple[Array, float]:
        diagonal = l2 + self.weight

        def smooth(w: Array) -> tuple[Array, Array]:
            value, gradient = self._pressed(w[0])
            away = w[0] - centre
            total = value + float(l2 @ w[0] ** 2 + self.weight * away @ away) / 2
            return np.array([total]), (gradient + l2 * w[0] + self.weight * away)[None]

        affine = self.problem.constraint.held.affine
        exact = self._pieces(centre, diagonal, start) if affine else None
        return exact or self._dense(smooth, diagonal, start)

    def _pieces(self, centre: Array, diagonal: Array, start: Array) -> tuple[Array, float] | None:
        """The minimiser of (18) for affine constraints by an active set; None if it does not end.

        y = mu_0 + beta c_0(w) is solved for, so that a large beta costs no digits.
        """
        held = self.problem.constraint.held
        c, J = self._held(start)
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
        l1, l2, lower, upper = self._parts()

        def smooth(w: Array) -> tuple[float, Array]:
            value, gradient = self._pressed(w)
            away = w - centre
            return value + self.weight / 2 * float(away @ away), gradient + self.weight * away

        def gradients(w: Array) -> tuple[Array, Array]:
            sign = np.sign(w)
            low = l2 * w + l1 * np.where(sign == 0, -1.0, sign)
            high = l2 * w + l1 * np.where(sign == 0, 1.0, sign)
            return np.where(w <= lower, -np.inf, low), np.where(w >= upper, np.inf, high)

        def hessian(w: Array) -> Array:
            return self._hessian(w, np.full(len(w), self.weight))

        def penalty(w: Array) -> float:
            return self.problem.penalty(self.columns * w)

        return proximal_newton(smooth, hessian, penalty, self._prox, gradients, l2, start, self.tol)

    def _hessian(self, w: Array, diagonal: Array) -> Array:
        held, at = self._point(w)
        c, J = self._held(w)
        y = self.multipliers(c)
        active = J * np.where(held.equality | (y > 0), self.beta, 0.0)[:, None]
        terms = [(held, (y / self.size)[None])]
        curved = hessians(at, np.zeros(1), terms, together=False)[0]
        return self.columns[:, None] * curved * self.columns + J.T @ active + np.diag(diagonal)

    def _dense(self, smooth: Smooth, diagonal: Array, start: Array) -> tuple[Array, float]:
        convex = self.problem.constraint.held.convex
        minima = newton(
            smooth, lambda w: self._hessian(w[0], diagonal)[None], start[None], self.tol, convex
        )
        return minima.v[0], float(minima.residual[0])

    def slacks(self, shifted: Array, anchor: Array, multiplier: Array) -> Array:
        """The solution of (18) in s (N, p_c), sum_i s_i <= 0, in closed form."""
        rho, sigma = self.rho * self.share[:, None], self.sigma
        free = (rho * shifted + sigma * anchor) / (rho + sigma)
        per = 1 / (rho + sigma)  # how far one unit of the multiplier moves every s_i
        y = raised(multiplier + self.beta * free.sum(0), self.problem.constraint.coupled.equality)
        return free - per * y / (1 + self.beta * per.sum())


def units(h: Regulariser, square: Array, intercept: bool) -> Array:
    """The unit of every coefficient: one over the root mean square of its column.

    Coefficients that h has together, and that its proximal map so takes at one length, get that of
    their mean.
    """
    d = len(square) - intercept
    together = np.arange(d)
    if isinstance(h, GroupL2 | Ball):
        together = np.zeros(d, int)
    mean = np.bincount(together, square[:d]) / np.bincount(together)
    size = np.sqrt(np.concatenate([mean[together], square[d:]]))
    return 1 / np.where(size > 0, size, 1.0)


@record
class Past:
    """The last h residuals r_i = w^{t+1} - z_i^t of the iteration, the newest last.

    The server knows them by their products alone, each client's with its share_i.
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


def mixed(
    past: Past, step: Array, slack_step: Array, share: Array, memory: int
) -> tuple[Past, Array]:
    """The history with a new ``step``, and the weights of the points from which the clients start.

    ``step`` is new.
    """
    steps, slacks = (
        np.concatenate([past.step, step[None]]),
        np.concatenate([past.slack_step, slack_step[None]]),
    )
    past = replace(past, step=steps, slack_step=slacks)
    gram = _gram(past, share)
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


def _gram(past: Past, share: Array) -> Array:
    """The products sum_i share_i <r_i, r_i'>, without any single r_i but for the slacks."""
    cross = past.step @ past.drift.T
    slack = (past.slack_step - past.slack_drift) * np.sqrt(share)[:, None]
    slack = slack.reshape(len(cross), -1)
    return len(share) * past.step @ past.step.T - cross - cross.T + past.inner + slack @ slack.T
