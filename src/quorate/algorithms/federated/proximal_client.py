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

from quorate.algorithms.federated.proximal_quadratic import Factored
from quorate.algorithms.federated.proximal_round import Stepped, moved, residual_of, set_out
from quorate.arrays import Array, Block, writable
from quorate.problem.clients import client_slopes, client_values, hessians, row_shares
from quorate.problem.constraints.constraint import Point
from quorate.problem.losses import Quadratic
from quorate.problem.problem import Problem
from quorate.rounds import Each, Max, Sum, record
from quorate.solvers.local_newton import lbfgs, newton

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
    room: float  # what (23) leaves to the clients' residuals
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
    slope: Array  # (n, D) q_i f_i'(u_i); of quadratic functions alone
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
        return value + self.sigma / 2 * (away**2).sum(1), self._slope(z, at, y)

    def all(self, z: Array) -> tuple[Array, Array, Array, Array]:
        """q_i f_i (n,), P_i' (n, D + p_c), the constraints c (n, p + p_c) and [mu + beta c]_+."""
        at = self.point(z)
        c = self.constraints(z, at)
        y = self.raised(c)
        return self.weight * client_values(at), self._slope(z, at, y), c, y

    def _slope(self, z: Array, at: Point, y: Array) -> Array:
        slope = np.matmul(y[:, None, :], self.jacobian(at))[:, 0] + self.sigma * (z - self.anchor)
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
    exact = Factored.of(problem, memory, ask, data, _merit)
    new = (
        _round(_merit(problem, memory, ask.beta, ask, data), memory, ask) if exact is None else exact.round(memory, ask)
    )
    D, away = len(ask.w), new.drift[:, -1]
    upload = Refined(
        shifted=new.shifted[:, :D],
        slack=new.shifted[:, D:],
        residual=new.residual,
        value=new.value,
        violation=new.violation,
        shared=new.shared,
        primal=new.primal,
        moved=new.moved,
        pull=new.pull,
        drift=away[:, :D],
        slack_drift=away[:, D:],
        inner=new.inner,
        unsolved=new.unsolved,
    )
    kept = ProximalMemory(
        z=new.z,
        slope=new.slope,
        dual=new.dual,
        anchor=memory.anchor,
        multiplier=memory.multiplier,
        estimate=new.estimate,
        change=memory.change,
        weight=memory.weight,
        points=new.points,
        drift=new.drift,
    )
    return kept, upload


def _round(merit: Merit, memory: ProximalMemory, ask: Refine) -> Stepped:
    w, rho, most = _everywhere(ask), ask.rho, len(ask.mix) + 1
    old, prices, history, drift = map(writable, (memory.z, memory.dual, memory.points, memory.drift))
    value, slope, c, estimate = merit.all(w)
    local, p = merit.problem.local_constraint, merit.problem.local_constraint.size
    violation = np.where(local.equality, np.abs(c[:, :p]), c[:, :p]).max(1, initial=0.0)
    residual = np.array([residual_of(*own, rho) for own in zip(slope, w, old, prices, strict=True)])
    points, start = set_out(w, prices, history, writable(ask.mix), rho)
    new, unsolved = _minimised(merit, old, w, start, ask)  # (19)
    dual, shifted, squares = np.empty_like(w), np.empty_like(w), np.empty((3, len(w)))
    drift, inner = moved(w, old, new, start, rho, drift, most, len(ask.w), dual, shifted, squares)
    found = c[:, p:] + ask.slack * ask.unit, estimate, new, memory.slope, dual, shifted, points, drift, inner, unsolved
    return Stepped._make((value, violation, residual, *squares, *found))


def _everywhere(ask: Settle | Refine) -> Array:
    """w and s_i at every client."""
    w = np.empty((len(ask.slack), len(ask.w) + len(ask.unit)))
    w[:, : len(ask.w)], w[:, len(ask.w) :] = ask.w, ask.slack
    return w


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
    w = _everywhere(ask)
    if memory is None:
        memory = _start(problem, w, ask)
    old = _merit(problem, memory, ask.beta, ask, data)
    at = old.point(w)
    quadratic = isinstance(problem.loss, Quadratic)
    known = memory.weight[:, None] * client_slopes(at) if quadratic and (first or ask.restart) else memory.slope
    c = old.constraints(w, at)
    mu = memory.multiplier if first else old.raised(c)  # Algorithm 1, line 7
    change = mu - memory.multiplier
    y = np.where(old.equality, change, np.maximum(change, 0.0))
    memory = replace(memory, multiplier=mu, estimate=mu, change=change, anchor=w, slope=known)
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
    return ProximalMemory(w, w[:, :0], np.zeros_like(w), w, none, none, none, ask.prior, history, history)


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
