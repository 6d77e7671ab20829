"""The client half of the proximal augmented Lagrangian method: how a client answers a message.

    P_i(z) = q_i f_i(u) + (||[mu_i + beta c_i(z)]_+||^2 - ||mu_i||^2) / (2 beta) + ||z - z^k||^2 /
    (2 (n + 1) beta) (14)

with u = columns x, z = (x, s), and c_i over its size, so that nothing has a unit.

He, Peng, Sun, *Federated learning with convex global and local constraints*; equation numbers are
theirs. Where c_i(w) = 0 is asked the square is that of mu_i + beta c_i without [.]_+. u is a copy
of the model, and s is there where constraints couple the clients, for sum_i c~_i(w) <= 0 in the
form (4): c~_i(u) / unit - s <= 0 at client i, sum_i s_i <= 0 at the server.

What leaves a client: sums over all clients, from which no single copy can be read where n > 1, and
per client its violation, the largest change of its multipliers, and s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from quorate.algorithms.federated.proximal_al.inner_iteration import (
    Stepped,
    moved,
    residual_of,
    set_out,
)
from quorate.algorithms.federated.proximal_al.merit import Merit, own_sizes, raised
from quorate.algorithms.federated.proximal_al.messages import (
    ProximalMemory,
    Refine,
    Refined,
    Scan,
    Scanned,
    Settle,
    Settled,
)
from quorate.algorithms.federated.proximal_al.quadratic_client import Factored
from quorate.algorithms.method import Concluded
from quorate.arrays import Array, Block, Streams, writable
from quorate.codec import changed
from quorate.problem.client_means import row_shares
from quorate.problem.constraints.constraint import Point
from quorate.problem.losses import Quadratic
from quorate.problem.problem import Problem
from quorate.rounds import Conclude
from quorate.solvers.smooth.newton import lbfgs, newton

# coefficients up to which local problems are solved by Newton's method: L-BFGS suffers from a large
# beta
NEWTON = 200


def conclude(
    problem: Problem, memory: ProximalMemory, ask: Conclude, data: Block, rng: Streams
) -> tuple[ProximalMemory, Concluded]:
    """Send the client's copy of the model, and the multipliers of its constraints."""
    D, p = memory.columns.shape[1], problem.local_constraint.size
    copies, multipliers = memory.columns * memory.z[:, :D], memory.estimate[:, :p] / memory.size
    return memory, Concluded(copies, multipliers, changes=memory.change[:, :p] / memory.size)


def scan(problem: Problem, memory: None, ask: Scan, data: Block, rng: Streams) -> tuple:
    """Send the number of rows and the sizes of the columns."""
    if isinstance(problem.loss, Quadratic):
        square = np.einsum("ndd->nd", np.asarray(data.X))
        rows = np.ones(len(square))
    else:
        ones = np.ones((len(data.names), int(problem.predictor.intercept)))
        square, rows = np.concatenate([data.squares(), ones], 1), (data.share > 0).sum(1)
    return None, Scanned(np.asarray(rows, float), ask.prior[:, None] * square)


def refine(
    problem: Problem, memory: ProximalMemory, ask: Refine, data: Block, rng: Streams
) -> tuple[ProximalMemory, Refined]:
    """Carry out an iteration of Algorithm 2 at the clients of a block."""
    exact = Factored.of(problem, memory, ask, data, _merit)
    new = (
        _round(_merit(problem, memory, ask.beta, ask, data), memory, ask)
        if exact is None
        else exact.round(memory, ask)
    )
    D, away, share = len(ask.w), new.drift[:, -1], memory.share
    upload = Refined(
        shifted=share[:, None] * new.shifted[:, :D],
        slack=new.shifted[:, D:],
        residual=new.residual,
        value=new.value,
        tangent=new.tangent,
        violation=new.violation,
        excess=new.excess,
        shared=new.shared,
        primal=share * new.primal,
        moved=share**2 * new.moved,
        pull=new.pull,
        drift=share[:, None] * away[:, :D],
        slack_drift=away[:, D:],
        inner=share[:, None] * new.inner,
        unsolved=new.unsolved,
    )
    names = ("z", "gradient", "dual", "estimate", "points", "drift")
    return changed(memory, **{name: getattr(new, name) for name in names}), upload


def _round(merit: Merit, memory: ProximalMemory, ask: Refine) -> Stepped:
    w, rho, most = _everywhere(ask), ask.rho * memory.share, len(ask.mix) + 1
    old, duals, history, drift = map(writable, (memory.z, memory.dual, memory.points, memory.drift))
    value, gradient, c, _ = merit.all(w)
    local, p = merit.problem.local_constraint, merit.problem.local_constraint.size
    excess = np.where(local.equality, np.abs(c[:, :p]), c[:, :p])
    violation = (excess * memory.size).max(1, initial=0.0)
    residual = np.array(
        [residual_of(*client) for client in zip(gradient, w, old, duals, rho, strict=True)]
    )
    points, start = set_out(w, duals, history, writable(ask.mix), rho)
    new, unsolved = _minimised(merit, old, w, start, rho[:, None], ask.tol)  # (19)
    dual, shifted, squares = np.empty_like(w), np.empty_like(w), np.empty((3, len(w)))
    drift, inner = moved(w, old, new, start, rho, drift, most, len(ask.w), dual, shifted, squares)
    rest = (
        (c[:, p:] + ask.slack) * ask.unit,
        excess.max(1, initial=0.0),
        *merit.tangents(new, w),
        new,
        memory.gradient,
        dual,
        shifted,
        points,
        drift,
        inner,
        unsolved,
    )
    return Stepped._make((value, violation, residual, *squares, *rest))


def _everywhere(ask: Settle | Refine) -> Array:
    """The variables (w, s_i) of every client."""
    w = np.empty((len(ask.slack), len(ask.w) + len(ask.unit)))
    w[:, : len(ask.w)], w[:, len(ask.w) :] = ask.w, ask.slack
    return w


def _minimised(
    merit: Merit, start: Array, w: Array, dual: Array, rho: Array, tol: float
) -> tuple[Array, Array]:
    """The minimisers of (19), and the size of their gradients over the tolerance."""

    def phi(v: Array) -> tuple[Array, Array]:  # (19)
        value, gradient = merit(v)
        away = v - w
        return value + ((dual + rho / 2 * away) * away).sum(1), gradient + dual + rho * away

    problem = merit.problem
    if _second_order(problem) and (w.shape[1] <= NEWTON or isinstance(problem.loss, Quadratic)):
        extra = rho[:, :, None] * np.eye(w.shape[1])
        minima = newton(phi, lambda v: merit.hessian(v) + extra, start, tol, convex_of(problem))
    else:
        minima = lbfgs(phi, start, tol)
    return minima.v, minima.residual / tol


def settle(
    problem: Problem, memory: ProximalMemory | None, ask: Settle, data: Block, rng: Streams
) -> tuple[ProximalMemory, Settled]:
    """Carry out Algorithm 1, lines 6-8, and Algorithm 2, line 1, at the clients of a block."""
    first = memory is None
    w = _everywhere(ask)
    if memory is None:
        memory = _start(problem, w, ask, data)
    old = _merit(problem, memory, ask.beta, ask, data)
    at = old.point(w)
    quadratic = isinstance(problem.loss, Quadratic)
    known = old.objective_gradient(at) if quadratic and (first or ask.restart) else memory.gradient
    c = old.constraints(w, at)
    mu = memory.estimate if ask.at_copies else old.multipliers(c)  # Algorithm 1, line 7
    if first:
        mu = memory.multiplier
    change = mu - memory.multiplier
    y = raised(change, old.equality)
    memory = replace(memory, multiplier=mu, estimate=mu, change=change, anchor=w, gradient=known)
    J, D = old.jacobian(at), len(ask.w)
    shifted = None
    if ask.restart:  # Algorithm 2, line 1
        dual = -_merit(problem, memory, ask.next_beta, ask, data)(w)[1]
        rho = (ask.rho * memory.share)[:, None]
        memory, shifted = replace(memory, z=w, dual=dual), w + dual / rho
    upload = Settled(
        change=np.abs(change).max(1, initial=0.0),
        product=np.abs(mu * c).sum(1),
        push=np.matmul(y[:, None, :], J)[:, 0, :D],
        bite=(y * c).sum(1),
        shifted=None if shifted is None else memory.share[:, None] * shifted[:, :D],
        slack=None if shifted is None else shifted[:, D:],
        **_scales(old, at) if first else {"gradient": None, "curvature": None, "steep": None},
    )
    return memory, upload


def _start(problem: Problem, w: Array, ask: Settle, data: Block) -> ProximalMemory:
    assert ask.prior is not None
    assert ask.share is not None
    assert ask.columns is not None
    local, columns = problem.local_constraint, ask.columns
    size = np.ones((len(w), local.size))
    if ask.scaled:
        at = Point(problem, w[:, : len(columns)] * columns, data)
        size = own_sizes(local.jacobian(at) * columns, local.values(at))
    none = np.zeros((len(w), problem.local_constraint.size + problem.constraint.coupled.size))
    history = np.zeros((len(w), 0, w.shape[1]))
    return ProximalMemory(
        w,
        w[:, :0],
        np.zeros_like(w),
        w,
        none,
        none,
        none,
        ask.prior,
        ask.share,
        np.tile(columns, (len(w), 1)),
        size,
        history,
        history,
    )


def _scales(merit: Merit, at: Point) -> dict[str, Any]:
    """Sizes of the client's functions at the first model."""
    coupled, columns = merit.problem.constraint.coupled, merit.columns
    steep = own_sizes(coupled.jacobian(at) * columns, coupled.values(at)) ** 2
    if isinstance(merit.problem.loss, Quadratic):
        trace = np.einsum("ndd,d->n", np.asarray(merit.block.X), columns**2)
    else:
        trace = _trace(at, columns)
    gradient = np.abs(merit.objective_gradient(at)).max(1)
    return {"gradient": gradient, "curvature": merit.weight * trace / len(columns), "steep": steep}


def _trace(at: Point, columns: Array) -> Array:
    """The trace of f_i'' in units of the columns, without f_i''."""
    rows = row_shares(at.problem, at.block) * at.problem.loss.curvature(at.prediction, at.block.y)
    X, d = at.block.X, at.block.n_features
    square = columns[:d] ** 2
    size = (
        X**2 @ square
        if isinstance(X, np.ndarray)
        else np.asarray(X.multiply(X) @ square).reshape(1, -1)
    )
    return (rows * (size + (columns[d:] ** 2).sum())).sum(1)


def _merit(
    problem: Problem, memory: ProximalMemory, beta: float, ask: Settle | Refine, data: Block
) -> Merit:
    return Merit(
        problem,
        data,
        memory.weight,
        beta,
        ask.sigma,
        memory.columns[0],
        memory.size,
        ask.unit,
        memory.anchor,
        memory.multiplier,
    )


def convex_of(problem: Problem) -> bool:
    """Whether every P_i is convex."""
    return problem.local_constraint.convex and problem.constraint.convex


def _second_order(problem: Problem) -> bool:
    stacks = problem.local_constraint, problem.constraint.coupled
    return all(getattr(part, "hessian", 1) is not None for stack in stacks for part in stack.parts)
