"""Clients of the proximal AL method whose step (19) is the same linear system in each round.

They have quadratic f_i and affine equalities.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from scipy.linalg import get_lapack_funcs

from bonafed.algorithms.federated.proximal_al.merit import (
    FAST,
    Stepped,
    moved,
    residual_of,
    set_out,
)
from bonafed.arrays import Array, Block, unwritable, writable
from bonafed.problem.constraints.constraint import once
from bonafed.problem.losses import Quadratic
from bonafed.solvers.kernels.packed_matrices import packed, times

if TYPE_CHECKING:
    from bonafed.algorithms.federated.proximal_al.merit import Merit
    from bonafed.algorithms.federated.proximal_al.messages import ProximalMemory, Refine
    from bonafed.problem.problem import Problem

potrf, potri = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


SINGLE, UNIT = np.float32, 2.0**-24
ROUGH = 0.01  # of a residual that single precision may leave in doubt


@dataclass(frozen=True, eq=False)
class Factored:
    """The function of (19) with the inverse of its matrix M = q_i A + (sigma + rho) I.

    It is q_i (u'A u / 2 + b'u) + ||mu + beta (C u + d)||^2 / (2 beta) + sigma ||u - z^k||^2 / 2,
    with A, b and C in the units of u, and rho that of the client.

    beta stays outside the inverse: y = mu + beta (C u + d) is solved for, so that a large beta
    costs no digits. A round costs what reading the matrices costs, so A is kept in single
    precision: it only meets w - u, and f_i'(u) is known to double precision from the system that u
    solves. What is sent as (22) is never below it.
    """

    beta: Array  # (n, p)
    quadratic: Array  # (n, D (D + 1) / 2) A / scale, packed, in single precision
    scale: Array  # (n,) the largest number of A
    longest: Array  # (n,) the longest row of A / scale
    exact: Array  # (n, D, D) A
    weight: Array  # (n,) q
    linear: Array  # (n, D) q b
    inverse: Array  # (n, D (D + 1) / 2) M^-1, packed
    C: Array  # (n, p, D)
    offset: Array  # (n, p) d
    reach: Array  # (n, p, D) C M^-1
    small: Array  # (n, p, p) the inverse of 1 / beta + C M^-1 C'

    @classmethod
    def of(
        cls,
        problem: Problem,
        memory: ProximalMemory,
        ask: Refine,
        data: Block,
        merit: Callable[..., Merit],
    ) -> Factored | None:
        """The systems of a block, kept until beta or rho change.

        Making one costs as much as hundreds of rounds.

        None where P_i, ``merit`` of the other arguments, is not a quadratic function.
        """
        if not isinstance(problem.loss, Quadratic):
            return None
        kept = once(data, "quadratic clients of ProximalAL", dict)
        arrays = memory.weight, memory.first_size, memory.units, ask.rho
        key = (id(problem), ask.beta, ask.sigma, *(part.tobytes() for part in arrays))
        if kept.get("key") != key:
            local = merit(problem, memory, ask.beta, ask.sigma, data)
            systems = cls(*_factors(local, ask.rho)) if _affine(problem) else None
            kept.clear()
            # the problem is kept alive, so no other has its id
            kept |= {"key": key, "problem": problem, "systems": systems}
        return kept["systems"]

    @cached_property
    def fixed(self) -> tuple[Array, ...]:
        """The arrays that every round takes."""
        return tuple(unwritable(getattr(self, each.name)) for each in fields(self))

    def round(self, memory: ProximalMemory, ask: Refine) -> Stepped:
        """Carry out a round, with f_i'(w) from f_i'(u) and A in single precision if that suffices.

        Otherwise it comes from A itself.
        """
        n, D = memory.z.shape
        numbers, estimate, vectors = (
            np.empty((6, n)),
            np.empty(self.offset.shape),
            np.empty((2, n, D)),
        )
        past = (
            memory.z,
            memory.gradient,
            memory.dual,
            memory.points,
            memory.drift,
            memory.anchor,
            memory.multiplier,
        )
        arrays = map(writable, (*past, memory.size, ask.w, ask.mix, ask.rho))
        arguments: Any = (*arrays, ask.room, ask.sigma, *self.fixed)
        more = _round(numbers, estimate, vectors, *arguments)
        return Stepped._make((*numbers, np.empty((n, 0)), estimate, *vectors, *more, np.zeros(n)))


@njit(cache=True, fastmath=FAST)
def _round(
    numbers,
    estimate,
    vectors,
    u,
    known,
    dual,
    points,
    drift,
    anchor,
    multiplier,
    size,
    w,
    mix,
    rho,
    room,
    sigma,
    beta,
    A,
    scale,
    longest,
    exact,
    q,
    qb,
    inverse,
    C,
    d,
    reach,
    small,
):
    n, D = u.shape
    models, lagrangian = np.empty_like(u), np.zeros(n)
    value, violation, excess, residual = numbers[0], numbers[1], numbers[2], numbers[3]
    for i in range(n):
        for j in range(D):  # an array's assignment takes seconds to compile: its error has a text
            models[i, j] = w[j]
        value[i], gradient, doubt = _at(w, u[i], known[i], A[i], scale[i] * q[i], longest[i], qb[i])
        violation[i], excess[i] = _add(
            gradient, w, C[i], d[i], size[i], multiplier[i], beta[i], anchor[i], sigma
        )
        residual[i] = residual_of(gradient, w, u[i], dual[i], rho[i]) + doubt  # at least (22)
        if residual[i] - 2 * doubt <= room and doubt > ROUGH * residual[i]:  # too rough for (23)
            gradient = q[i] * np.dot(exact[i], w) + qb[i]
            value[i] = np.dot(gradient + qb[i], w) / 2
            _add(gradient, w, C[i], d[i], size[i], multiplier[i], beta[i], anchor[i], sigma)
            residual[i] = residual_of(gradient, w, u[i], dual[i], rho[i])
    points, start = set_out(models, dual, points, mix, rho)
    new, gradients = vectors[0], vectors[1]
    for i in range(n):
        held, lifted = rho[i] * w - start[i] + sigma * anchor[i], d[i] + multiplier[i] / beta[i]
        _minimise(
            new[i],
            gradients[i],
            estimate[i],
            held,
            qb[i],
            sigma + rho[i],
            inverse[i],
            C[i],
            reach[i],
            small[i],
            lifted,
        )
        for j in range(D):
            lagrangian[i] += (gradients[i, j] + qb[i, j]) * new[i, j] / 2
        for k in range(len(d[i])):
            lagrangian[i] += estimate[i, k] * (d[i, k] + np.dot(C[i, k], new[i]))
    moves = moved(
        models,
        new,
        start,
        rho,
        sigma,
        anchor,
        drift,
        len(mix) + 1,
        D,
        lagrangian,
        numbers[4:],
    )
    return moves[0], moves[1], points, moves[2], moves[3]


@njit(cache=True, fastmath=FAST)
def _at(w, u, known, A, scale, longest, b):
    """The pair q f(w), q f'(w) of one client from ``known`` = q f'(u), and a bound on the error."""
    D, value, size, square = len(w), 0.0, 0.0, 0.0
    gradient, away, image = known.copy(), np.empty(D, SINGLE), np.empty(D, SINGLE)
    for j in range(D):
        step = w[j] - u[j]
        value += (known[j] + b[j]) * u[j] / 2 + known[j] * step
        size, square = max(size, abs(step)), square + step**2
    if size == 0:
        return value, gradient, 0.0
    for j in range(D):
        away[j] = (w[j] - u[j]) / size
    times(A, away, image)
    for j in range(D):
        added = (scale * size) * image[j]
        value += added * (w[j] - u[j]) / 2
        gradient[j] += added
    # a sum of D products whose factors and partial sums are rounded to 2^-24, and Cauchy-Schwarz
    return value, gradient, (D + 4) * UNIT * scale * longest * np.sqrt(square)


@njit(cache=True, fastmath=FAST)
def _add(gradient, w, C, d, size, multiplier, beta, anchor, sigma):
    """Make ``gradient`` P'(w); returns max |c(w)|, and the same over the constraints' sizes."""
    violation, excess = 0.0, 0.0
    for j in range(len(w)):
        gradient[j] += sigma * (w[j] - anchor[j])
    for k in range(len(d)):
        c = d[k]
        for j in range(len(w)):
            c += C[k, j] * w[j]
        violation, excess = max(violation, abs(c)), max(excess, abs(c) / size[k])
        y = multiplier[k] + beta[k] * c
        for j in range(len(w)):
            gradient[j] += y * C[k, j]
    return violation, excess


@njit(cache=True, fastmath=FAST)
def _minimise(u, gradient, y, held, b, shift, inverse, C, reach, small, lifted):
    """Write the result of step (19) of one client to ``u``, q f'(u) to ``gradient``, and the
    multipliers mu + beta c(u) to ``y``.

    It is argmin P(u) + rho ||u||^2 / 2 - v'u with held = v + sigma z^k.
    """
    p, D = C.shape
    times(inverse, held - b, u)
    values = lifted.copy()
    for k in range(p):
        for j in range(D):
            values[k] += C[k, j] * u[j]
    for k in range(p):
        y[k] = 0.0
        for m in range(p):
            y[k] += small[k, m] * values[m]
    for k in range(p):
        for j in range(D):
            u[j] -= y[k] * reach[k, j]
    for j in range(D):
        gradient[j] = held[j] - shift * u[j]
    for k in range(p):
        for j in range(D):
            gradient[j] -= y[k] * C[k, j]


def _affine(problem: Problem) -> bool:
    local = problem.local_constraint
    return not problem.constraint.coupled.size and local.affine and bool(local.equality.all())


def _factors(merit: Merit, rho: Array) -> tuple[Array, ...]:
    zero = np.zeros_like(merit.anchor)
    C, d = merit.jacobian(merit.point(zero)), merit.constraints(zero)
    q, units = merit.weight, merit.units
    A = np.ascontiguousarray(np.asarray(merit.block.X) * units * units[:, None])
    scale = np.maximum(np.abs(A).max((1, 2)), np.finfo(float).tiny)
    single = np.stack(
        [packed((one / size).astype(SINGLE)) for one, size in zip(A, scale, strict=True)]
    )
    longest = np.sqrt((A**2).sum(2)).max(1) / scale
    eye = np.eye(A.shape[1])
    inverse = np.stack(
        [
            packed(_inverse(each * one + (merit.sigma + own) * eye))
            for each, one, own in zip(q, A, rho, strict=True)
        ]
    )
    reach = np.empty_like(C)
    for i, k in np.ndindex(*C.shape[:2]):
        times(inverse[i], C[i, k], reach[i, k])
    small = np.matmul(reach, C.transpose(0, 2, 1)) + np.stack([np.diag(1 / b) for b in merit.beta])
    linear = q[:, None] * merit.block.y * units
    small = np.linalg.inv(small)
    return merit.beta, single, scale, longest, A, q, linear, inverse, C, d, reach, small


def _inverse(matrix: Array) -> Array:
    """The inverse of a positive definite matrix; only its lower triangle is meant."""
    factor, failed = potrf(np.asfortranarray(matrix))
    inverse, failed = potri(factor) if not failed else (factor, failed)
    if failed:
        raise np.linalg.LinAlgError(
            "a client's quadratic is not convex: A_i must be positive semidefinite."
        )
    return inverse.T
