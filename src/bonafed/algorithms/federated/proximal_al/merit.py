"""The function that every client of the proximal augmented Lagrangian method minimises.

Lines 7 and 8 of Algorithm 2 around (19), compiled, for arrays of n clients.

He, Peng, Sun, *Federated learning with convex global and local constraints*; equation numbers are
theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.arrays import Array, Block
from bonafed.problem.client_means import client_gradients, client_values, hessians
from bonafed.problem.constraints.constraint import Point, Stack
from bonafed.problem.problem import Problem


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
        at = self.point(z)
        y, away = self.multipliers(self.constraints(z, at)), z - self.anchor
        penalty = ((y**2 - self.multiplier**2) / (2 * self.beta)).sum(1)
        value = self.weight * client_values(at) + penalty
        return value + self.sigma / 2 * (away**2).sum(1), self._gradient(z, at, y)

    def all(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """q_i f_i (n,), P_i' (n, D + p_c), the constraints c (n, p + p_c) and [mu + beta c]_+."""
        at = self.point(z)
        c = self.constraints(z, at)
        y = self.multipliers(c)
        return self.weight * client_values(at), self._gradient(z, at, y), c, y

    def _gradient(self, z: Array, at: Point, y: Array) -> Array:
        gradient = np.matmul(y[:, None, :], self.jacobian(at))[:, 0] + self.sigma * (
            z - self.anchor
        )
        gradient[:, : self.length] += (
            self.weight[:, None] * client_gradients(at) * self.units[: self.length]
        )
        return gradient

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


class Stepped(NamedTuple):
    """The result of a round at n clients, with D' = D + p_c numbers in a copy."""

    value: Array  # (n,) q_i f_i(w)
    violation: Array  # (n,) of c_i(w)
    excess: Array  # (n,) the same over the constraints' sizes
    residual: Array  # (n,) (22)
    tangent: Array  # (n,) that of the Lagrangian at z_i, at w
    primal: Array  # (n,) ||z_i - w||^2
    shared: Array  # (n, p_c) c~_i(w)
    estimate: Array  # (n, p + p_c) [mu_i + beta c_i(z_i)]_+
    z: Array  # (n, D')
    gradient: Array  # (n, D) q_i f_i'(u_i); of quadratic functions alone
    dual: Array  # (n, D') lambda_i
    shifted: Array  # (n, D') (21)
    points: Array  # (n, h, D')
    drift: Array  # (n, h + 1, D')
    inner: Array  # (n, h + 1)
    unsolved: Array  # (n,) gradient of (19), over its tolerance


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
