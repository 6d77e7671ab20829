"""The function that every client of the proximal augmented Lagrangian method minimises."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, Block
from quorate.problem.client_means import client_gradients, client_values, hessians
from quorate.problem.constraints.constraint import Point
from quorate.problem.problem import Problem


def raised(y: Array, equality: NDArray[np.bool_]) -> Array:
    """[y]_+, and y itself for the multipliers of equalities."""
    return np.where(equality, y, np.maximum(y, 0.0))


@dataclass(frozen=True, eq=False)
class Merit:
    """P_i of (14) for the clients of a block."""

    problem: Problem
    block: Block
    weight: Array  # (n,) q_i
    beta: float
    sigma: float  # 1 / ((n + 1) beta)
    unit: Array  # (p_c,)
    anchor: Array  # (n, D + p_c)
    multiplier: Array  # (n, p + p_c)

    @cached_property
    def equality(self) -> NDArray[np.bool_]:
        return np.concatenate(
            [self.problem.local_constraint.equality, self.problem.constraint.coupled.equality]
        )

    def point(self, z: Array) -> Point:
        return Point(self.problem, z[:, : z.shape[1] - len(self.unit)], self.block)

    def constraints(self, z: Array, at: Point | None = None) -> Array:
        """(n, p + p_c): c_i(u), and c~_i(u) - unit s."""
        at = at or self.point(z)
        split = z[:, z.shape[1] - len(self.unit) :] * self.unit
        coupled = self.problem.constraint.coupled.values(at) - split
        return np.concatenate([self.problem.local_constraint.values(at), coupled], 1)

    def jacobian(self, at: Point) -> Array:
        """(n, p + p_c, D + p_c)."""
        stacks = self.problem.local_constraint, self.problem.constraint.coupled
        J = np.concatenate([stack.jacobian(at) for stack in stacks], 1)
        if not len(self.unit):
            return J
        minus = np.zeros((*J.shape[:2], len(self.unit)))
        minus[:, -len(self.unit) :] = -np.diag(self.unit)
        return np.concatenate([J, minus], 2)

    def multipliers(self, c: Array) -> Array:
        """[mu + beta c]_+, and mu + beta c for equalities."""
        return raised(self.multiplier + self.beta * c, self.equality)

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """P_i and its gradient."""
        at = self.point(z)
        c = self.constraints(z, at)
        y, away = self.multipliers(c), z - self.anchor
        value = self.weight * client_values(at) + ((y**2 - self.multiplier**2).sum(1)) / (
            2 * self.beta
        )
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
        gradient[:, : at.w.shape[-1]] += self.weight[:, None] * client_gradients(at)
        return gradient

    def hessian(self, z: Array) -> Array:
        """(n, D + p_c, D + p_c); at a kink that of one side."""
        at, p = self.point(z), self.problem.local_constraint.size
        y, D = self.multipliers(self.constraints(z, at)), at.w.shape[-1]
        J = self.jacobian(at)
        active = J * np.where(self.equality | (y > 0), self.beta, 0.0)[:, :, None]
        H = np.matmul(J.transpose(0, 2, 1), active) + self.sigma * np.eye(z.shape[1])
        terms = [
            (self.problem.local_constraint, y[:, :p]),
            (self.problem.constraint.coupled, y[:, p:]),
        ]
        H[:, :D, :D] += hessians(at, self.weight, terms, together=False)
        return H
