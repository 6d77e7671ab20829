"""Clients of the proximal augmented Lagrangian method whose (19) is one linear system, the same in every round:
quadratic f_i and affine equalities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from scipy.linalg import get_lapack_funcs

from quorate.arrays import Array
from quorate.problem.constraints.constraint import once
from quorate.problem.losses import Quadratic
from quorate.solvers.packed import packed, times

if TYPE_CHECKING:
    from quorate.algorithms.federated.proximal_client import Merit
    from quorate.problem.problem import Problem

potrf, potri = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


SINGLE = np.float32


@dataclass(frozen=True, eq=False)
class Factored:
    """q_i (u'A u / 2 + b'u) + ||mu + beta (C u + d)||^2 / (2 beta) + sigma ||u - z^k||^2 / 2, with the inverse of
    M = q_i A + (sigma + rho) I.

    beta stays outside the inverse: y = mu + beta (C u + d) is solved for, so that a large beta costs no digits.
    A round costs what reading the matrices costs, so A is kept in single precision: it only meets w - u, and f_i'(u)
    is known to double precision from the system that u solves.
    """

    merit: Merit
    rho: float
    quadratic: Array  # (n, D (D + 1) / 2) A / scale, packed, in single precision
    scale: Array  # (n,) the largest number of A
    inverse: Array  # (n, D (D + 1) / 2) M^-1, packed
    C: Array  # (n, p, D)
    offset: Array  # (n, p) d
    reach: Array  # (n, p, D) C M^-1
    small: Array  # (n, p, p) the inverse of I / beta + C M^-1 C'

    @classmethod
    def of(cls, merit: Merit, rho: float) -> Factored | None:
        """Kept for the block until beta or rho change: making it costs as much as hundreds of rounds.

        None where P_i is not a quadratic function.
        """
        if not isinstance(merit.problem.loss, Quadratic):
            return None
        kept = once(merit.block, "quadratic clients of ProximalAL", dict)
        key = (id(merit.problem), merit.beta, merit.sigma, rho, merit.weight.tobytes())
        if kept.get("key") != key:
            parts = _factors(merit, rho) if _affine(merit.problem) else ()
            kept.clear()
            kept |= {"key": key, "problem": merit.problem, "parts": parts}  # the problem lives on, so its id is its own
        return cls(merit, rho, *kept["parts"]) if kept["parts"] else None

    def at(self, w: Array, u: Array, slope: Array) -> tuple[Array, Array, Array, Array]:
        """As ``Merit.all``, from ``slope`` = q_i f_i'(u) (n, D); the error is 1e-5 of the way from u to w."""
        merit = self.merit
        own = self.quadratic, self.scale * merit.weight, merit.block.y * merit.weight[:, None], self.C, self.offset
        return _at(w, u, slope, *own, merit.multiplier, merit.beta, merit.anchor, merit.sigma)

    def minimiser(self, v: Array) -> tuple[Array, Array]:
        """u = argmin P_i(u) + rho ||u||^2 / 2 - v'u, and q_i f_i'(u)."""
        merit = self.merit
        held, lifted = v + merit.sigma * merit.anchor, self.offset + merit.multiplier / merit.beta
        b = merit.block.y * merit.weight[:, None]
        return _minimiser(held, b, merit.sigma + self.rho, self.inverse, self.C, self.reach, self.small, lifted)


@njit(cache=True)
def _at(w, u, known, A, scale, b, C, d, multiplier, beta, anchor, sigma):
    n, D = w.shape
    value, slope, c = np.empty(n), known.copy(), d.copy()
    image = np.empty(D, SINGLE)
    for i in range(n):
        away = w[i] - u[i]
        value[i] = np.dot(known[i] + b[i], u[i]) / 2 + np.dot(known[i], away)
        size = np.abs(away).max()
        if size > 0:
            times(A[i], (away / size).astype(SINGLE), image)
            added = (scale[i] * size) * image.astype(np.float64)
            value[i] += np.dot(added, away) / 2
            slope[i] += added
        slope[i] += sigma * (w[i] - anchor[i])
        for k in range(d.shape[1]):
            c[i, k] += np.dot(C[i, k], w[i])
            slope[i] += (multiplier[i, k] + beta * c[i, k]) * C[i, k]
    return value, slope, c, multiplier + beta * c


@njit(cache=True)
def _minimiser(held, b, shift, inverse, C, reach, small, lifted):
    u, slope = np.empty_like(held), np.empty_like(held)
    for i in range(len(held)):
        times(inverse[i], held[i] - b[i], u[i])
        y = small[i] @ (lifted[i] + C[i] @ u[i])
        u[i] -= y @ reach[i]
        slope[i] = held[i] - shift * u[i] - y @ C[i]
    return u, slope


def _affine(problem: Problem) -> bool:
    local = problem.local_constraint
    return not problem.constraint.coupled.size and local.affine and bool(local.equality.all())


def _factors(merit: Merit, rho: float) -> tuple[Array, ...]:
    zero = np.zeros_like(merit.anchor)
    C, d = merit.jacobian(merit.point(zero)), merit.constraints(zero)
    A = np.asarray(merit.block.X)
    scale = np.maximum(np.abs(A).max((1, 2)), np.finfo(float).tiny)
    single = np.stack([packed((one / size).astype(SINGLE)) for one, size in zip(A, scale, strict=True)])
    shift = (merit.sigma + rho) * np.eye(A.shape[1])
    inverse = np.stack([packed(_inverse(q * one + shift)) for q, one in zip(merit.weight, A, strict=True)])
    reach = np.empty_like(C)
    for i, k in np.ndindex(*C.shape[:2]):
        times(inverse[i], C[i, k], reach[i, k])
    small = np.matmul(reach, C.transpose(0, 2, 1)) + np.eye(C.shape[1]) / merit.beta
    return single, scale, inverse, C, d, reach, np.linalg.inv(small)


def _inverse(matrix: Array) -> Array:
    """The inverse of a positive definite matrix; only its lower triangle is meant."""
    factor, failed = potrf(np.asfortranarray(matrix))
    inverse, failed = potri(factor) if not failed else (factor, failed)
    if failed:
        raise np.linalg.LinAlgError("a client's quadratic is not convex: A_i must be positive semidefinite.")
    return inverse.T
