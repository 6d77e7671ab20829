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

from bonafed.algorithms.federated.proximal_al.merit import raised
from bonafed.arrays import Array
from bonafed.codec import Extended, Form
from bonafed.problem.client_means import hessians
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import regulariser_parts
from bonafed.rounds import record
from bonafed.solvers.smooth.newton import newton
from bonafed.solvers.smooth.proximal_newton import Smooth, minimise
from bonafed.solvers.smooth.stepwise import mixing

GUARD = 1.3  # growth of the fixed point residual at which the acceleration forgets


@dataclass(frozen=True, eq=False)
class Server:
    """The server's subproblem: P_0 + h, and quadratic terms that tie w to the clients' copies.

    Models and slack variables are in units.
    """

    problem: Problem
    units: Array  # (D + p_c,)
    beta: float
    first_sizes: Array  # (p_0 + p_c,) of c_0 and of sum_i s_i, in the first units
    rho: Array  # (N,)
    anchor: Array  # (D,) w^k
    multiplier: Array  # (p_0,) mu_0
    tol: float

    @property
    def sigma(self) -> float:
        return 1 / ((len(self.rho) + 1) * self.beta)

    @property
    def weight(self) -> float:
        """The curvature of the quadratic terms."""
        return float(self.rho.sum()) + self.sigma

    @property
    def betas(self) -> Array:
        """(p_0,) beta over the squared sizes of the constraints."""
        return self.beta / self.first_sizes[: len(self.multiplier)] ** 2

    @property
    def _own(self) -> Array:
        """The units of the model."""
        return self.units[: len(self.anchor)]

    def step(self, shifted: Array, start: Array) -> tuple[Array, float]:
        """The minimiser of (18) and the distance of 0 from its subdifferential.

        ``shifted`` is sum_i rho_i u~_i.
        """
        centre = (shifted + self.sigma * self.anchor) / self.weight
        if not self.problem.constraint.held.size:
            return self._prox(centre, 1 / self.weight), 0.0
        l1, _, lower, upper = regulariser_parts(self.problem.regulariser)
        if l1 == 0 and np.isneginf(lower).all() and np.isposinf(upper).all():
            return self._newton(centre, start)

        return self._composite(centre, start)

    def multipliers(self, c: Array) -> Array:
        """The multipliers [mu_0 + beta c_0]_+, without [.]_+ for equalities."""
        return raised(self.multiplier + self.betas * c, self.problem.constraint.held.equality)

    def held(self, w: Array) -> tuple[Array, Array]:
        """c_0 and its Jacobian, (p_0, D), in units."""
        return held_at(self.problem, w, self.units)

    def _prox(self, w: Array, step: float | Array) -> Array:
        """The prox of h as a function of w in units; ``step`` is one, or of each entry."""
        units, steps = self._own, step * self._own**2
        many = self.problem.predictor.split(steps)[0]
        alike = bool((many == many[0]).all()) if len(many) else True
        return self.problem.prox(w * units, float(many[0]) if alike and len(many) else many) / units

    def _smooth(self, w: Array, centre: Array) -> tuple[float, Array]:
        """(18) without h."""
        c, J = self.held(w)
        y, away = self.multipliers(c), w - centre
        value = float((y**2 / self.betas).sum() + self.weight * away @ away) / 2
        return value, y @ J + self.weight * away

    def _newton(self, centre: Array, start: Array) -> tuple[Array, float]:
        flat = np.zeros(len(start))  # an intercept is free
        many = self.problem.predictor.split(self._own)[0]
        flat[: len(many)] = regulariser_parts(self.problem.regulariser)[1] * many**2

        def smooth(w: Array) -> tuple[Array, Array]:
            value, gradient = self._smooth(w[0], centre)
            return np.array([value + float(flat @ w[0] ** 2) / 2]), (gradient + flat * w[0])[None]

        diagonal, stack = flat + self.weight, self.problem.constraint.held
        exact = self._pieces(centre, diagonal, start) if stack.affine else None
        if exact is not None:
            return exact
        minima = newton(
            smooth,
            lambda w: self._hessian(w[0], diagonal)[None],
            start[None],
            self.tol,
            stack.convex,
        )
        return minima.v[0], float(minima.residual[0])

    def _pieces(self, centre: Array, diagonal: Array, start: Array) -> tuple[Array, float] | None:
        """The minimiser of (18) for affine constraints by an active set; None if it does not end.

        y = mu_0 + beta c_0(w) is solved for, so that a large beta costs no digits.
        """
        equality = self.problem.constraint.held.equality
        c, J = self.held(start)
        free = self.weight * centre / diagonal
        lifted = J @ free + (c - J @ start) + self.multiplier / self.betas
        active = equality | (self.multiplier + self.betas * c > 0)
        for _ in range(30):
            rows = J[active]
            small = np.diag(1 / self.betas[active]) + (rows / diagonal) @ rows.T
            y = np.linalg.solve(small, lifted[active])
            w = free - rows.T @ y / diagonal
            reached = c + J @ (w - start)
            before, active = active, equality | (self.multiplier + self.betas * reached > 0)
            if (active == before).all():
                return w, float(
                    np.abs(diagonal * w - self.weight * centre + rows.T @ y).max(initial=0.0)
                )
        return None

    def _composite(self, centre: Array, start: Array) -> tuple[Array, float]:
        def smooth(w: Array) -> Smooth:
            bend = np.full(len(w), self.weight)
            return Smooth(*self._smooth(w, centre), lambda: self._hessian(w, bend))

        inside = self._prox(start, 0.0)  # in the domain of h
        found = minimise(
            smooth, lambda w: self.problem.penalty(w * self._own), self._prox, inside, self.tol
        )
        return found.w, found.distance

    def _hessian(self, w: Array, diagonal: Array) -> Array:
        held, units = self.problem.constraint.held, self._own
        at = self.problem.constraint.point(self.problem, w * units)
        c, J = self.held(w)
        y = self.multipliers(c)
        active = J * np.where(held.equality | (y > 0), self.betas, 0.0)[:, None]
        inside = hessians(at, np.zeros(1), [(held, y[None])], together=False)[0]
        return inside * units * units[:, None] + J.T @ active + np.diag(diagonal)

    def slacks(self, shifted: Array, anchor: Array, multiplier: Array) -> Array:
        """The solution of (18) in s (N, p_c), sum_i s_i <= 0, in closed form."""
        unit = self.units[len(self.anchor) :]
        weight = self.rho[:, None] + self.sigma
        free = (self.rho[:, None] * shifted + self.sigma * anchor) / weight
        per, total = unit / weight, (unit * free).sum(0)  # a multiplier of 1 moves s_i by -per
        beta = self.shared_betas
        equality = self.problem.constraint.coupled.equality
        y = raised(multiplier + beta * total, equality) / (1 + beta * (unit * per).sum(0))
        return free - per * y

    @property
    def shared_betas(self) -> Array:
        """(p_c,) the same for sum_i s_i <= 0."""
        return self.beta / self.first_sizes[len(self.multiplier) :] ** 2


def held_at(problem: Problem, w: Array, units: Array) -> tuple[Array, Array]:
    """c_0 and its Jacobian (p_0, D) as a function of w in units."""
    glob, own = problem.constraint, units[: len(w)]
    at = glob.point(problem, w * own)
    return glob.held.values(at)[0], glob.held.jacobian(at)[0] * own


@record
class Past:
    """The last h residuals r_i = w^{t+1} - z_i^t of the iteration, the newest last.

    The server knows them by their products only.
    """

    step: Annotated[Array, Form("h, D")]  # w^{t+1} - w^t
    slack_step: Annotated[Array, Form("h, N, p_c")]
    drift: Annotated[Array, Form("h, D")]  # sum_i rho_i (u_i^t - w^t)
    slack_drift: Annotated[Array, Form("h, N, p_c")]
    inner: Annotated[Array, Form("h, h")]  # sum_i rho_i <u_i - w, u_i - w> of rounds t and t'
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
    past: Past, step: Array, slack_step: Array, rho: Array, memory: int
) -> tuple[Past, Array]:
    """The history with a new ``step``, and the weights of the points from which the clients start.

    ``step`` is new.
    """
    steps, slacks = (
        np.concatenate([past.step, step[None]]),
        np.concatenate([past.slack_step, slack_step[None]]),
    )
    past = replace(past, step=steps, slack_step=slacks)
    gram = _gram(past, rho)
    size = math.sqrt(max(float(gram[-1, -1]), 0.0))
    keep = 1 if not size <= GUARD * past.size else min(len(gram), memory + 1)
    past = replace(newest(past, keep), size=size)
    return past, mixing(gram[-keep:, -keep:])


def newest(past: Past, keep: int) -> Past:
    """The history with its last entries only."""
    at = slice(len(past.drift) - keep, None)
    parts = (
        past.step[at],
        past.slack_step[at],
        past.drift[at],
        past.slack_drift[at],
        past.inner[at, at],
    )
    return Past(*parts, past.size)


def _gram(past: Past, rho: Array) -> Array:
    """The products sum_i rho_i <r_i, r_i'>, without any single r_i but for the slacks."""
    cross = past.step @ past.drift.T
    slack = ((past.slack_step - past.slack_drift) * np.sqrt(rho)[:, None]).reshape(len(cross), -1)
    models = float(rho.sum()) * past.step @ past.step.T
    return models - cross - cross.T + past.inner + slack @ slack.T
