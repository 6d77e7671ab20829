"""The client half of the proximal augmented Lagrangian method: what a client is asked, answers, and keeps.

    P_i(z) = q_i f_i(u) + (||[mu_i + beta c_i(z)]_+||^2 - ||mu_i||^2) / (2 beta) + ||z - z^k||^2 / (2 (n + 1) beta) (14)

He, Peng, Sun, *Federated learning with convex global and local constraints*; equation numbers are theirs. Where
c_i(w) = 0 is asked the square is that of mu_i + beta c_i without [.]_+. z = (u, s): a copy u of the model and, where
constraints couple the clients, s for sum_i c~_i(w) <= 0 in the form (4): c~_i(u) - unit s <= 0 at client i,
sum_i s_i <= 0 at the server.

What leaves a client: sums over all clients, from which no single copy can be read where n > 1, and per client its
violation, the largest change of its multipliers, and s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from quorate.arrays import Array, Block
from quorate.problem.clients import client_slopes, client_values, hessians, row_shares
from quorate.problem.constraints.constraint import Point, once
from quorate.problem.losses import Quadratic
from quorate.problem.problem import Problem
from quorate.rounds import Each, Max, Sum, record
from quorate.solvers.local_newton import lbfgs, newton

symv: Any = get_blas_funcs("symv", dtype=np.float64)
potrf, potri = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)
NEWTON = 200  # coefficients up to which local problems are solved by Newton's method: L-BFGS suffers from a large beta


@record
class Settle:
    """The server's w^{k+1}: update the multipliers (Algorithm 1, lines 6-8) and begin the next subproblem."""

    w: Array  # (D,)
    slack: Each  # (N, p_c)
    unit: Array  # (p_c,)
    prior: Each | None  # (N,) q_i; with the first message
    beta: float  # of the subproblem that ends
    next_beta: float  # of the one that begins
    sigma: float  # 1 / ((n + 1) beta) of that one
    rho: float
    restart: bool  # Algorithm 2, line 1: the copies start at w again


@record
class Settled:
    """What Algorithm 1 needs of the clients after a subproblem."""

    change: Each  # (n,) max |mu_i^{k+1} - mu_i^k|, line 8
    product: Sum  # (n,) sum |mu_i c_i|
    push: Sum  # (n, D) sum y_i c_i', y the change of the multipliers: near 0 with <y, c> > 0, no model is feasible
    bite: Sum  # (n,) sum y_i c_i
    shifted: Sum | None  # (n, D) u~_i of Algorithm 2, line 1, at a restart
    slack: Each | None  # (n, p_c) the same of s
    slope: Sum | None  # (n,) max |q_i f_i'|; these three with the first answer, for scales
    curvature: Sum | None  # (n,) mean diagonal of q_i f_i''
    steep: Sum | None  # (n, 2 + p_c) squared norms of c_i', their number, those of each c~_i'


@record
class Refine:
    """One round of Algorithm 2."""

    w: Array  # (D,)
    slack: Each  # (N, p_c)
    unit: Array  # (p_c,)
    beta: float
    sigma: float  # 1 / ((n + 1) beta)
    rho: float
    tol: float  # eps_{t+1}
    mix: Array  # (h,) weights, sum 1, of the last h points from which (19) sets out; [1.] is Algorithm 2


@record
class Refined:
    """What Algorithm 2 needs of the clients, and what a person would plot."""

    shifted: Sum  # (n, D) u~_i, (21)
    slack: Each  # (n, p_c) the same of s
    residual: Sum  # (n,) eps~_i, (22)
    value: Sum  # (n,) q_i f_i(w)
    violation: Each  # (n,) of c_i(w)
    shared: Sum  # (n, p_c) c~_i(w)
    primal: Sum  # (n,) ||z_i - w||^2
    moved: Sum  # (n,) ||z_i - z_i^t||^2
    pull: Sum  # (n,) ||lambda_i||^2
    drift: Sum  # (n, D) u_i - w
    slack_drift: Each  # (n, p_c) the same of s
    inner: Sum  # (n, h + 1) <u_i - w, its h + 1 last ones>, the newest last
    unsolved: Max  # (n,) gradient of (19) where the local solver ended, over tol


@record
class ProximalMemory:
    """What the clients keep."""

    z: Array  # (n, D + p_c) u_i, s_i
    dual: Array  # (n, D + p_c) lambda_i
    anchor: Array  # (n, D + p_c) w^k, s_i^k
    multiplier: Array  # (n, p + p_c) mu_i
    estimate: Array  # (n, p + p_c) [mu_i + beta c_i(w)]_+ at the last w
    change: Array  # (n, p + p_c) the last change of mu_i
    weight: Array  # (n,) q_i
    points: Array  # (n, h, D + p_c) the last w - lambda_i / rho
    drift: Array  # (n, h, D + p_c) the last z_i - w


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
        return np.concatenate([self.problem.local_constraint.equality, self.problem.constraint.coupled.equality])

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

    def raised(self, c: Array) -> Array:
        """[mu + beta c]_+, and mu + beta c for equalities."""
        y = self.multiplier + self.beta * c
        return np.where(self.equality, y, np.maximum(y, 0.0))

    def __call__(self, z: Array) -> tuple[Array, Array]:
        """P_i and its gradient."""
        at = self.point(z)
        c = self.constraints(z, at)
        y, away = self.raised(c), z - self.anchor
        value = self.weight * client_values(at) + ((y**2 - self.multiplier**2).sum(1)) / (2 * self.beta)
        return value + self.sigma / 2 * (away**2).sum(1), self._slope(z, at, c)

    def all(self, z: Array) -> tuple[Array, Array, Array]:
        """q_i f_i (n,), P_i' (n, D + p_c) and the constraints (n, p + p_c)."""
        at = self.point(z)
        c = self.constraints(z, at)
        return self.weight * client_values(at), self._slope(z, at, c), c

    def _slope(self, z: Array, at: Point, c: Array) -> Array:
        slope = np.matmul(self.raised(c)[:, None, :], self.jacobian(at))[:, 0] + self.sigma * (z - self.anchor)
        slope[:, : at.w.shape[-1]] += self.weight[:, None] * client_slopes(at)
        return slope

    def hessian(self, z: Array) -> Array:
        """(n, D + p_c, D + p_c); at a kink that of one side."""
        at, p = self.point(z), self.problem.local_constraint.size
        y, D = self.raised(self.constraints(z, at)), at.w.shape[-1]
        J = self.jacobian(at)
        active = J * np.where(self.equality | (y > 0), self.beta, 0.0)[:, :, None]
        H = np.matmul(J.transpose(0, 2, 1), active) + self.sigma * np.eye(z.shape[1])
        terms = [(self.problem.local_constraint, y[:, :p]), (self.problem.constraint.coupled, y[:, p:])]
        H[:, :D, :D] += hessians(at, self.weight, terms, together=False)
        return H


def refine(problem: Problem, memory: ProximalMemory, ask: Refine, data: Block) -> Any:
    """One round of Algorithm 2 at the clients of a block."""
    merit = _merit(problem, memory, ask.beta, ask, data)
    w = np.concatenate([np.tile(ask.w, (len(data.names), 1)), ask.slack], 1)
    exact = Factored.of(merit, ask.rho) if _affine(problem) else None
    value, slope, both = merit.all(w) if exact is None else exact.at(w)
    residual = np.abs(slope + memory.dual - ask.rho * (w - memory.z)).max(1)  # (22): OLD u, OLD lambda
    kept = len(ask.mix)
    points = np.concatenate([memory.points, (w - memory.dual / ask.rho)[:, None]], 1)[:, -kept:]
    dual = ask.rho * (w - np.einsum("h,nhd->nd", ask.mix, points))  # lambda_i^t where mix = [1.]
    if exact is None:
        new, unsolved = _minimised(merit, memory.z, w, dual, ask)  # (19)
    else:
        new, unsolved = exact.minimiser(ask.rho * w - dual), np.zeros(len(w))
    dual = dual + ask.rho * (new - w)  # (20)
    shifted = new + dual / ask.rho  # (21)
    away, D = new - w, len(ask.w)
    drift = np.concatenate([memory.drift, away[:, None]], 1)[:, -kept - 1 :]
    local = problem.local_constraint
    c = both[:, : local.size]
    upload = Refined(
        shifted=shifted[:, :D],
        slack=shifted[:, D:],
        residual=residual,
        value=value,
        violation=np.where(local.equality, np.abs(c), c).max(1, initial=0.0),
        shared=both[:, local.size :] + ask.slack * ask.unit,
        primal=(away**2).sum(1),
        moved=((new - memory.z) ** 2).sum(1),
        pull=(dual**2).sum(1),
        drift=away[:, :D],
        slack_drift=away[:, D:],
        inner=np.einsum("nhd,nd->nh", drift[:, :, :D], away[:, :D]),
        unsolved=unsolved,
    )
    estimate = merit.raised(both)
    return replace(memory, z=new, dual=dual, estimate=estimate, points=points, drift=drift), upload


def _minimised(merit: Merit, start: Array, w: Array, dual: Array, ask: Refine) -> tuple[Array, Array]:
    """Minimisers of (19), and their gradients' size over the tolerance."""

    def phi(v: Array) -> tuple[Array, Array]:  # (19)
        value, slope = merit(v)
        away = v - w
        return value + ((dual + ask.rho / 2 * away) * away).sum(1), slope + dual + ask.rho * away

    problem = merit.problem
    if _second_order(problem) and (w.shape[1] <= NEWTON or isinstance(problem.loss, Quadratic)):
        extra = ask.rho * np.eye(w.shape[1])
        found = newton(phi, lambda v: merit.hessian(v) + extra, start, ask.tol, convex_of(problem))
    else:
        found = lbfgs(phi, start, ask.tol)
    return found.v, found.residual / ask.tol


def settle(problem: Problem, memory: ProximalMemory | None, ask: Settle, data: Block) -> tuple[ProximalMemory, Settled]:
    """Algorithm 1, lines 6-8, and Algorithm 2, line 1, at the clients of a block."""
    first = memory is None
    w = np.concatenate([np.tile(ask.w, (len(data.names), 1)), ask.slack], 1)
    if memory is None:
        memory = _start(problem, w, ask)
    old = _merit(problem, memory, ask.beta, ask, data)
    at = old.point(w)
    c = old.constraints(w, at)
    mu = memory.multiplier if first else old.raised(c)  # Algorithm 1, line 7
    change = mu - memory.multiplier
    y = np.where(old.equality, change, np.maximum(change, 0.0))
    memory = replace(memory, multiplier=mu, estimate=mu, change=change, anchor=w)
    J, D = old.jacobian(at), len(ask.w)
    shifted = None
    if ask.restart:  # Algorithm 2, line 1
        dual = -_merit(problem, memory, ask.next_beta, ask, data)(w)[1]
        memory, shifted = replace(memory, z=w, dual=dual), w + dual / ask.rho
    upload = Settled(
        change=np.abs(change).max(1, initial=0.0),
        product=np.abs(mu * c).sum(1),
        push=np.matmul(y[:, None, :], J)[:, 0, :D],
        bite=(y * c).sum(1),
        shifted=None if shifted is None else shifted[:, :D],
        slack=None if shifted is None else shifted[:, D:],
        **_scales(old, at, J) if first else {"slope": None, "curvature": None, "steep": None},
    )
    return memory, upload


def _start(problem: Problem, w: Array, ask: Settle) -> ProximalMemory:
    none = np.zeros((len(w), problem.local_constraint.size + problem.constraint.coupled.size))
    history = np.zeros((len(w), 0, w.shape[1]))
    assert ask.prior is not None
    return ProximalMemory(w, np.zeros_like(w), w, none, none, none, ask.prior, history, history)


def _scales(merit: Merit, at: Point, J: Array) -> dict[str, Any]:
    """Sizes of the client's functions at the first model."""
    D, pc = at.w.shape[-1], len(merit.unit)
    squares = (J[:, :, :D] ** 2).sum(2)
    p = squares.shape[1] - pc
    steep = np.column_stack([squares[:, :p].sum(1), (squares[:, :p] > 0).sum(1), squares[:, p:]])
    if isinstance(merit.problem.loss, Quadratic):
        trace = np.einsum("ndd->n", np.asarray(merit.block.X))
    else:
        trace = _trace(at)
    slope = np.abs(merit.weight[:, None] * client_slopes(at)).max(1)
    return {"slope": slope, "curvature": merit.weight * trace / D, "steep": steep}


def _trace(at: Point) -> Array:
    """The trace of f_i'' without f_i''."""
    rows = row_shares(at.problem, at.block) * at.problem.loss.curvature(at.prediction, at.block.y)
    X = at.block.X
    size = (X**2).sum(2) if isinstance(X, np.ndarray) else np.asarray(X.multiply(X).sum(1)).reshape(1, -1)
    return (rows * (size + at.problem.predictor.intercept)).sum(1)


def _merit(problem: Problem, memory: ProximalMemory, beta: float, ask: Settle | Refine, data: Block) -> Merit:
    return Merit(problem, data, memory.weight, beta, ask.sigma, ask.unit, memory.anchor, memory.multiplier)


def convex_of(problem: Problem) -> bool:
    """Whether every P_i is convex."""
    return problem.local_constraint.convex and problem.constraint.convex


def _second_order(problem: Problem) -> bool:
    stacks = problem.local_constraint, problem.constraint.coupled
    return all(getattr(part, "hessian", 1) is not None for stack in stacks for part in stack.parts)


def _affine(problem: Problem) -> bool:
    """Whether P_i is a quadratic function."""
    local = problem.local_constraint
    alone = not problem.constraint.coupled.size and local.affine and bool(local.equality.all())
    return alone and isinstance(problem.loss, Quadratic)


# ---- quadratic clients with affine equalities: (19) is one linear system, the same in every round


@dataclass(frozen=True, eq=False)
class Factored:
    """q_i (u'A u / 2 + b'u) + ||mu + beta (C u + d)||^2 / (2 beta) + sigma ||u - z^k||^2 / 2, with the inverse of
    M = q_i A + (sigma + rho) I.

    beta stays outside the inverse: y = mu + beta (C u + d) is solved for, so that a large beta costs no digits.
    """

    merit: Merit
    rho: float
    quadratic: list[Array]  # n of (D, D), A
    inverse: list[Array]  # n of (D, D), one triangle
    C: Array  # (n, p, D)
    offset: Array  # (n, p) d
    reach: Array  # (n, p, D) C M^-1
    small: Array  # (n, p, p) the inverse of I / beta + C M^-1 C'

    @classmethod
    def of(cls, merit: Merit, rho: float) -> Factored:
        """Kept for the block until beta or rho change: making it costs as much as hundreds of rounds."""
        kept = once(merit.block, "quadratic clients of ProximalAL", dict)
        key = (id(merit.problem), merit.beta, merit.sigma, rho, merit.weight.tobytes())
        if kept.get("key") != key:
            parts = _factors(merit, rho)
            kept.clear()
            kept |= {"key": key, "problem": merit.problem, "parts": parts}  # the problem lives on, so its id is its own
        return cls(merit, rho, *kept["parts"])

    def at(self, w: Array) -> tuple[Array, Array, Array]:
        """q_i f_i (n,), P_i' (n, D) and C w + d at w."""
        merit, q = self.merit, self.merit.weight[:, None]
        image, c = _times(self.quadratic, w), np.matmul(self.C, w[:, :, None])[:, :, 0] + self.offset
        y = merit.multiplier + merit.beta * c
        slope = q * (image + merit.block.y) + np.matmul(y[:, None], self.C)[:, 0] + merit.sigma * (w - merit.anchor)
        return merit.weight * (w * (image / 2 + merit.block.y)).sum(1), slope, c

    def minimiser(self, v: Array) -> Array:
        """argmin P_i(u) + rho ||u||^2 / 2 - v'u."""
        merit = self.merit
        free = _times(self.inverse, v - merit.weight[:, None] * merit.block.y + merit.sigma * merit.anchor)
        there = np.matmul(self.C, free[:, :, None])[:, :, 0] + self.offset + merit.multiplier / merit.beta
        y = np.matmul(self.small, there[:, :, None])
        return free - np.matmul(y.transpose(0, 2, 1), self.reach)[:, 0]


def _factors(merit: Merit, rho: float) -> tuple[Any, ...]:
    zero = np.zeros_like(merit.anchor)
    C, d = merit.jacobian(merit.point(zero)), merit.constraints(zero)
    A = [one.T for one in np.asarray(merit.block.X)]  # symmetric; in the order that BLAS reads without a copy
    shift = (merit.sigma + rho) * np.eye(len(A[0]))
    inverse = [_inverse(q * one + shift) for q, one in zip(merit.weight, A, strict=True)]
    reach = np.stack([_times([one] * len(rows), rows) for one, rows in zip(inverse, C, strict=True)])
    small = np.matmul(reach, C.transpose(0, 2, 1)) + np.eye(C.shape[1]) / merit.beta
    return A, inverse, C, d, reach, np.linalg.inv(small)


def _inverse(matrix: Array) -> Array:
    """The upper triangle of the inverse of a positive definite matrix."""
    factor, failed = potrf(np.asfortranarray(matrix))
    inverse, failed = potri(factor) if not failed else (factor, failed)
    if failed:
        raise np.linalg.LinAlgError("a client's quadratic is not convex: A_i must be positive semidefinite.")
    return inverse


def _times(matrices: list[Array], v: Array) -> Array:
    """Symmetric matrices, of which half is read, times a vector each."""
    out = [symv(1.0, matrix, one) for matrix, one in zip(matrices, v, strict=True)]
    return np.array(out).reshape(len(out), v.shape[1])
