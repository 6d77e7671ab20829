"""The client half of the proximal augmented Lagrangian method: how a client answers a message.

    P_i(z) = q_i f_i(u) + (||[mu_i + beta c_i(z)]_+||^2 - ||mu_i||^2) / (2 beta) + ||z - z^k||^2 /
    (2 (n + 1) beta) (14)

He, Peng, Sun, *Federated learning with convex global and local constraints*; equation numbers are
theirs. Where c_i(w) = 0 is asked the square is that of mu_i + beta c_i without [.]_+. z = (u, s): a
copy u of the model and, where constraints couple the clients, s for sum_i c~_i(w) <= 0 in the form
(4): c~_i(u) - s <= 0 at client i, sum_i s_i <= 0 at the server. All of it is counted in the
server's units, in which beta of a constraint is divided by its squared size.

What leaves a client: sums over all clients, from which no single copy can be read where n > 1, and
per client its violation, the largest change of its multipliers, and s.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bonafed.algorithms.federated.proximal_al.merit import (
    Merit,
    Stepped,
    moved,
    raised,
    residual_of,
    set_out,
    sizes,
)
from bonafed.algorithms.federated.proximal_al.messages import (
    ProximalMemory,
    Refine,
    Refined,
    Settle,
    Settled,
)
from bonafed.algorithms.federated.proximal_al.quadratic_client import Factored
from bonafed.algorithms.method import Concluded
from bonafed.arrays import Array, Block, Streams, writable
from bonafed.codec import changed
from bonafed.problem.client_means import client_gradients, client_values, hessian_diagonals
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.losses import Quadratic
from bonafed.problem.problem import Problem
from bonafed.rounds import Conclude
from bonafed.solvers.smooth.newton import lbfgs, newton

# coefficients up to which local problems are solved by Newton's method: L-BFGS suffers from a large
# beta
NEWTON = 200


def conclude(
    problem: Problem, memory: ProximalMemory, ask: Conclude, data: Block, rng: Streams
) -> tuple[ProximalMemory, Concluded]:
    """Send the client's copy of the model, and the multipliers of its constraints."""
    D, p = problem.predictor.dimension(data.n_features), problem.local_constraint.size
    copies, multipliers = (memory.z * memory.units)[:, :D], memory.estimate[:, :p]
    return memory, Concluded(copies, multipliers, changes=memory.change[:, :p])


def refine(
    problem: Problem, memory: ProximalMemory, ask: Refine, data: Block, rng: Streams
) -> tuple[ProximalMemory, Refined]:
    """Carry out an iteration of Algorithm 2 at the clients of a block."""
    if ask.units is not None:
        memory = _measured(problem, memory, ask.units, data)
    exact = Factored.of(problem, memory, ask, data, _merit)
    new = (
        _round(_merit(problem, memory, ask.beta, ask.sigma, data), memory, ask)
        if exact is None
        else exact.round(memory, ask)
    )
    D, away, rho = len(ask.w), new.drift[:, -1], ask.rho[:, None]
    upload = Refined(
        shifted=rho * new.shifted[:, :D],
        slack=new.shifted[:, D:],
        residual=new.residual,
        value=new.value,
        tangent=new.tangent,
        violation=new.violation,
        excess=new.excess,
        shared=new.shared,
        primal=new.primal,
        drift=rho * away[:, :D],
        slack_drift=away[:, D:],
        inner=new.inner,
        unsolved=new.unsolved,
    )
    names = ("z", "gradient", "dual", "estimate", "points", "drift")
    return changed(memory, **{name: getattr(new, name) for name in names}), upload


def _measured(
    problem: Problem, memory: ProximalMemory, units: Array, data: Block
) -> ProximalMemory:
    """The memory in new units, with the sizes of the constraints at w^k."""
    ratio, first = memory.units / units, bool((memory.units == 1).all())
    memory = changed(
        memory,
        z=memory.z * ratio,
        dual=memory.dual / ratio,
        gradient=memory.gradient / ratio[:, : memory.gradient.shape[1]],
        anchor=memory.anchor * ratio,
        units=np.tile(units, (len(ratio), 1)),
        points=memory.points[:, :0],
        drift=memory.drift[:, :0],
    )
    merit = _merit(problem, memory, 1.0, 0.0, data)
    at = merit.point(memory.anchor)
    size = sizes(merit.jacobian(at), merit.constraints(memory.anchor, at))
    return changed(memory, size=size, first_size=size if first else memory.first_size)


def _round(merit: Merit, memory: ProximalMemory, ask: Refine) -> Stepped:
    w, most = _everywhere(ask), len(ask.mix) + 1
    old, duals, history, drift, rho, anchor = map(
        writable, (memory.z, memory.dual, memory.points, memory.drift, ask.rho, memory.anchor)
    )
    value, gradient, c, _ = merit.all(w)
    local, p = merit.problem.local_constraint, merit.problem.local_constraint.size
    broken = np.where(local.equality, np.abs(c[:, :p]), c[:, :p])
    residual = np.array(
        [residual_of(*client) for client in zip(gradient, w, old, duals, rho, strict=True)]
    )
    points, start = set_out(w, duals, history, writable(ask.mix), rho)
    new, unsolved = _minimised(merit, old, w, start, ask)  # (19)
    at = merit.point(new)
    reached = merit.constraints(new, at)
    y, numbers = merit.multipliers(reached), np.empty((2, len(w)))
    lagrangian = merit.weight * client_values(at) + (y * reached).sum(1)
    dual, shifted, drift, inner = moved(
        w, new, start, rho, ask.sigma, anchor, drift, most, len(ask.w), lagrangian, numbers
    )
    return Stepped(
        value,
        broken.max(1, initial=0.0),
        (broken / memory.size[:, :p]).max(1, initial=0.0),
        residual,
        *numbers,
        shared=c[:, p:] + ask.slack * merit.units[len(ask.w) :],
        estimate=y,
        z=new,
        gradient=memory.gradient,
        dual=dual,
        shifted=shifted,
        points=points,
        drift=drift,
        inner=inner,
        unsolved=unsolved,
    )


def _everywhere(ask: Settle | Refine) -> Array:
    """The variables (w, s_i) of every client."""
    w = np.empty((len(ask.slack), len(ask.w) + ask.slack.shape[1]))
    w[:, : len(ask.w)], w[:, len(ask.w) :] = ask.w, ask.slack
    return w


def _minimised(
    merit: Merit, start: Array, w: Array, dual: Array, ask: Refine
) -> tuple[Array, Array]:
    """The minimisers of (19), and the size of their gradients over the tolerance."""
    rho = ask.rho[:, None]

    def phi(v: Array) -> tuple[Array, Array]:  # (19)
        value, gradient = merit(v)
        away = v - w
        return value + ((dual + rho / 2 * away) * away).sum(1), gradient + dual + rho * away

    problem = merit.problem
    if _second_order(problem) and (w.shape[1] <= NEWTON or isinstance(problem.loss, Quadratic)):
        extra = rho[:, :, None] * np.eye(w.shape[1])
        minima = newton(phi, lambda v: merit.hessian(v) + extra, start, ask.tol, convex_of(problem))
    else:
        minima = lbfgs(phi, start, ask.tol)
    return minima.v, minima.residual / ask.tol


def settle(
    problem: Problem,
    scaled: bool,
    memory: ProximalMemory | None,
    ask: Settle,
    data: Block,
    rng: Streams,
) -> tuple[ProximalMemory, Settled]:
    """Carry out Algorithm 1, lines 6-8, and Algorithm 2, line 1, at the clients of a block.

    ``scaled``: the multipliers are those at u_i, since a subproblem may end before it is solved,
    and what sets the units is sent.
    """
    first = memory is None
    w = _everywhere(ask)
    if memory is None:
        memory = _start(problem, w, ask)
    old = _merit(problem, memory, ask.beta, ask.sigma, data)
    at = old.point(w)
    gradient, D = memory.weight[:, None] * client_gradients(at), len(ask.w)
    renewed = isinstance(problem.loss, Quadratic) and (first or ask.restart)
    known = gradient * memory.units[:, :D] if renewed else memory.gradient
    c = old.constraints(w, at)
    mu = memory.estimate if first or scaled else old.multipliers(c)  # Algorithm 1, line 7
    change = mu - memory.multiplier
    y = raised(change, old.equality)
    memory = replace(memory, multiplier=mu, estimate=mu, change=change, anchor=w, gradient=known)
    shifted = None
    if ask.restart:  # Algorithm 2, line 1
        dual = -_merit(problem, memory, ask.next_beta, ask.sigma, data)(w)[1]
        memory = replace(memory, z=w, dual=dual)
        shifted = w + dual / ask.rho[:, None]
    coupled = problem.constraint.coupled
    upload = Settled(
        change=(np.abs(change) * memory.size).max(1, initial=0.0),
        product=np.abs(mu * c).sum(1),
        push=np.matmul(y[:, None, :], old.jacobian(at))[:, 0, :D],
        bite=(y * c).sum(1),
        shifted=None if shifted is None else ask.rho[:, None] * shifted[:, :D],
        slack=None if shifted is None else shifted[:, D:],
        gradient=gradient**2 if first else None,
        curvature=_diagonal(old, at, mu) if scaled or first else None,
        steep=coupled.jacobian(at) ** 2 if scaled else None,
    )
    return memory, upload


def _start(problem: Problem, w: Array, ask: Settle) -> ProximalMemory:
    none = np.zeros((len(w), problem.local_constraint.size + problem.constraint.coupled.size))
    history, ones = np.zeros((len(w), 0, w.shape[1])), np.ones_like(none)
    assert ask.prior is not None
    return ProximalMemory(
        w,
        w[:, :0],
        np.zeros_like(w),
        w,
        none,
        none,
        none,
        ask.prior,
        ones,
        ones,
        np.ones_like(w),
        history,
        history,
    )


def _diagonal(merit: Merit, at: Point, y: Array) -> Array:
    """The diagonal of the Hessian of q_i f_i + <y, c_i>, or where that may not do of q_i f_i."""
    whole = convex_of(merit.problem) and _second_order(merit.problem)
    return hessian_diagonals(at, merit.weight, merit.terms(y) if whole else [])


def _merit(
    problem: Problem, memory: ProximalMemory, beta: float, sigma: float, data: Block
) -> Merit:
    return Merit(
        problem,
        data,
        memory.weight,
        beta / memory.first_size**2,
        sigma,
        memory.units[0],
        memory.anchor,
        memory.multiplier,
    )


def convex_of(problem: Problem) -> bool:
    """Whether every P_i is convex."""
    return problem.local_constraint.convex and problem.constraint.convex


def _second_order(problem: Problem) -> bool:
    stacks = problem.local_constraint, problem.constraint.coupled
    return all(getattr(part, "hessian", 1) is not None for stack in stacks for part in stack.parts)
