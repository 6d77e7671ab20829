"""The server's part of the proximal AL method: its function P_0, step (18), and acceleration.

    minimise  P_0(w) + h(w) + sum_i rho ||u~_i - w||^2 / 2                                      (18)

P_0 holds the server's own constraints c_0 and, where constraints couple the clients, sum_i s_i <= 0
of (4). Equation numbers are those of He, Peng, Sun, *Federated learning with convex global and
local constraints*.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.arrays import Array, Block
from bonafed.codec import Extended, Form
from bonafed.problem.client_means import client_gradients, client_values, hessians
from bonafed.problem.constraints.constraint import Point, Stack
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

        def smooth(w: Array) -> Smooth:
            bend = np.full(len(w), self.weight)
            return Smooth(*self._smooth(w, centre), lambda: self._hessian(w, bend))

        inside = self._prox(start, 0.0)  # in the domain of h
        penalty = lambda w: self.problem.penalty(w * self._own)  # noqa: E731
        found = minimise(smooth, penalty, self._prox, inside, self.tol)
        return found.w, found.distance

    def multipliers(self, c: Array) -> Array:
        """The multipliers [mu_0 + beta c_0]_+, without [.]_+ for equalities."""
        return raised(self.multiplier + self.betas * c, self.problem.constraint.held.equality)

    def held(self, w: Array) -> tuple[Array, Array]:
        """c_0 and its Jacobian, (p_0, D), in units."""
        glob, own = self.problem.constraint, self._own
        at = glob.point(self.problem, w * own)
        return glob.held.values(at)[0], glob.held.jacobian(at)[0] * own

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
        bend = lambda w: self._hessian(w[0], diagonal)[None]  # noqa: E731
        minima = newton(smooth, bend, start[None], self.tol, stack.convex)
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
                left = diagonal * w - self.weight * centre + rows.T @ y
                return w, float(np.abs(left).max(initial=0.0))
        return None

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
        beta, equality = self.shared_betas, self.problem.constraint.coupled.equality
        y = raised(multiplier + beta * total, equality) / (1 + beta * (unit * per).sum(0))
        return free - per * y

    @property
    def shared_betas(self) -> Array:
        """(p_c,) the same for sum_i s_i <= 0."""
        return self.beta / self.first_sizes[len(self.multiplier) :] ** 2


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
    drifts = np.concatenate([past.drift, drift[None]])
    slacks = np.concatenate([past.slack_drift, slack_drift[None]])
    return Past(past.step, past.slack_step, drifts, slacks, matrix, past.size)


def mixed(past: Past, step: Array, slack_step: Array, rho: Array, most: int) -> tuple[Past, Array]:
    """The history with a new ``step``, and the weights of the points from which the clients start,
    at ``most`` so many and one.
    """
    steps = np.concatenate([past.step, step[None]])
    slacks = np.concatenate([past.slack_step, slack_step[None]])
    past = replace(past, step=steps, slack_step=slacks)
    # The products sum_i rho_i <r_i, r_i'>, without any single r_i but for the slacks
    cross = past.step @ past.drift.T
    slack = ((past.slack_step - past.slack_drift) * np.sqrt(rho)[:, None]).reshape(len(cross), -1)
    models = float(rho.sum()) * past.step @ past.step.T
    gram = models - cross - cross.T + past.inner + slack @ slack.T
    size = math.sqrt(max(float(gram[-1, -1]), 0.0))
    keep = 1 if not size <= GUARD * past.size else min(len(gram), most + 1)
    at = slice(len(past.drift) - keep, None)
    vectors = past.step[at], past.slack_step[at], past.drift[at], past.slack_drift[at]
    return Past(*vectors, past.inner[at, at], size), mixing(gram[-keep:, -keep:])


# The function that every client of the proximal augmented Lagrangian method minimises.
#
# Lines 7 and 8 of Algorithm 2 around (19), compiled, for arrays of n clients.
#
# He, Peng, Sun, *Federated learning with convex global and local constraints*; equation numbers are
# theirs.


def raised(y: Array, equality: NDArray[np.bool_]) -> Array:
    """[y]_+, and y itself for the multipliers of equalities."""
    return np.where(equality, y, np.maximum(y, 0.0))


def sizes(J: Array, c: Array) -> Array:
    """The sizes (n, m) of constraints: of their gradients, or of their values where these vanish.

    ``J`` (n, m, D) is in the units of the variables.
    """
    size = np.sqrt((J**2).sum(-1))
    size = np.where(size > 1e-8 * np.abs(c), size, np.abs(c))
    return np.where(size > 0, size, 1.0)


@dataclass(frozen=True, eq=False)
class Merit:
    """P_i of (14) for the clients of a block, as a function of z / units."""

    problem: Problem
    block: Block
    weight: Array  # (n,) q_i
    beta: Array  # (n, p + p_c)
    sigma: float  # 1 / ((n + 1) beta)
    units: Array  # (D + p_c,)
    anchor: Array  # (n, D + p_c)
    multiplier: Array  # (n, p + p_c)

    @property
    def stacks(self) -> tuple[Stack, Stack]:
        """The client's own constraints, and its part of the sums."""
        return self.problem.local_constraint, self.problem.constraint.coupled

    @cached_property
    def equality(self) -> NDArray[np.bool_]:
        return np.concatenate([stack.equality for stack in self.stacks])

    @property
    def length(self) -> int:
        """D."""
        return len(self.units) - self.problem.constraint.coupled.size

    def point(self, z: Array) -> Point:
        return Point(self.problem, (z * self.units)[:, : self.length], self.block)

    def constraints(self, z: Array, at: Point | None = None) -> Array:
        """(n, p + p_c): c_i(u), and c~_i(u) - s."""
        own, shared = (stack.values(at or self.point(z)) for stack in self.stacks)
        return np.concatenate([own, shared - (z * self.units)[:, self.length :]], 1)

    def jacobian(self, at: Point) -> Array:
        """(n, p + p_c, D + p_c)."""
        D, p = self.length, self.problem.local_constraint.size
        J = np.concatenate([stack.jacobian(at) for stack in self.stacks], 1) * self.units[:D]
        if len(self.units) == D:
            return J
        minus = np.zeros((*J.shape[:2], len(self.units) - D))
        minus[:, p:] = -np.diag(self.units[D:])
        return np.concatenate([J, minus], 2)

    def multipliers(self, c: Array) -> Array:
        """[mu + beta c]_+, and mu + beta c for equalities."""
        return raised(self.multiplier + self.beta * c, self.equality)

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """P_i and its gradient."""
        value, gradient, _, y = self.all(z)
        penalty = ((y**2 - self.multiplier**2) / (2 * self.beta)).sum(1)
        return value + penalty + self.sigma / 2 * ((z - self.anchor) ** 2).sum(1), gradient

    def all(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """q_i f_i (n,), P_i' (n, D + p_c), the constraints c (n, p + p_c) and [mu + beta c]_+."""
        at, D = self.point(z), self.length
        c = self.constraints(z, at)
        y = self.multipliers(c)
        gradient = np.matmul(y[:, None, :], self.jacobian(at))[:, 0]
        gradient += self.sigma * (z - self.anchor)
        gradient[:, :D] += self.weight[:, None] * client_gradients(at) * self.units[:D]
        return self.weight * client_values(at), gradient, c, y

    def terms(self, y: Array) -> list[tuple[Stack, Array]]:
        """The stacks with their multipliers among ``y`` (n, p + p_c)."""
        p = self.problem.local_constraint.size
        return list(zip(self.stacks, (y[:, :p], y[:, p:]), strict=True))

    def hessian(self, z: Array) -> Array:
        """(n, D + p_c, D + p_c); at a kink that of one side."""
        at, D = self.point(z), self.length
        y, J = self.multipliers(self.constraints(z, at)), self.jacobian(at)
        active = J * np.where(self.equality | (y > 0), self.beta, 0.0)[:, :, None]
        H = np.matmul(J.transpose(0, 2, 1), active) + self.sigma * np.eye(z.shape[1])
        inside = hessians(at, self.weight, self.terms(y), together=False)
        H[:, :D, :D] += inside * self.units[:D] * self.units[:D, None]
        return H


FAST = {"reassoc", "contract", "nsz"}  # sums in any order


@njit(cache=True, fastmath=FAST)
def residual_of(gradient, w, old, dual, rho):
    """(22) of one client, with OLD u and OLD lambda."""
    largest = 0.0
    for j in range(len(w)):
        largest = max(largest, abs(gradient[j] + dual[j] - rho * (w[j] - old[j])))
    return largest


@njit(cache=True, fastmath=FAST)
def set_out(w, dual, history, mix, rho):
    """The last points w - lambda_i / rho, and lambda_i of their mixture.

    With mix = [1.] that is lambda_i^t.
    """
    n, D = w.shape
    h = min(history.shape[1], len(mix) - 1)
    old, points, start = history.shape[1] - h, np.empty((n, h + 1, D)), np.empty((n, D))
    for i in range(n):
        for j in range(D):
            points[i, h, j] = w[i, j] - dual[i, j] / rho[i]
            start[i, j] = rho[i] * (w[i, j] - mix[h] * points[i, h, j])
        for k in range(h):
            for j in range(D):
                points[i, k, j] = history[i, old + k, j]
                start[i, j] -= rho[i] * mix[k] * points[i, k, j]
    return points, start


@njit(cache=True, fastmath=FAST)
def moved(w, new, start, rho, sigma, anchor, history, most, D, lagrangian, numbers):
    """Steps (20) and (21), and the products and tangents that the server receives.

    D numbers of each belong to the model. ``lagrangian`` is its value at the new points, and the
    gradient of q_i f_i + <y_i, c_i> there is what (19) leaves, -lambda_i - sigma (z_i - z_i^k).
    """
    n, size = w.shape
    h = min(history.shape[1], most - 1)
    first, drift, inner = history.shape[1] - h, np.empty((n, h + 1, size)), np.zeros((n, h + 1))
    dual, shifted = np.empty((n, size)), np.empty((n, size))
    for i in range(n):
        away, primal, tangent = drift[i, h], 0.0, lagrangian[i]
        for j in range(size):
            away[j] = new[i, j] - w[i, j]
            dual[i, j] = start[i, j] + rho[i] * away[j]  # (20)
            shifted[i, j] = new[i, j] + dual[i, j] / rho[i]  # (21)
            primal += away[j] ** 2
            tangent += (dual[i, j] + sigma * (new[i, j] - anchor[i, j])) * away[j]
        numbers[0, i], numbers[1, i] = tangent, primal
        for k in range(h):
            for j in range(size):  # not as an array, which takes seconds to compile
                drift[i, k, j] = history[i, first + k, j]
        for k in range(h + 1):
            product = 0.0
            for j in range(D):
                product += drift[i, k, j] * away[j]
            inner[i, k] = rho[i] * product
    return dual, shifted, drift, inner
