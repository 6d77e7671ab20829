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

import math
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numba import njit
from scipy.linalg import get_lapack_funcs

from bonafed.algorithms.federated.proximal_al import server
from bonafed.algorithms.method import Concluded, known
from bonafed.arrays import Array, Block, Streams, unwritable, writable
from bonafed.codec import Counter, Extended, Form, changed
from bonafed.problem.client_means import client_gradients, client_values, hessian_diagonals
from bonafed.problem.constraints.constraint import once
from bonafed.problem.losses import Quadratic
from bonafed.problem.problem import Problem
from bonafed.rounds import Conclude, Each, Max, Sum, record
from bonafed.solvers.kernels.packed_matrices import packed, times
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
) -> Left:
    """Carry out an iteration of Algorithm 2 at the clients of a block."""
    if ask.units is not None:
        memory = _measured(problem, memory, ask.units, data)
    systems = _systems(problem, memory, ask, data)
    if systems is not None:
        return _solved(systems, memory, ask)
    return _round(_merit(problem, memory, ask.beta, ask.sigma, data), memory, ask)


def _answered(
    memory: ProximalMemory, ask: Refine, numbers: Any, shared: Array, found: Any, moves: Any
) -> Left:
    """What a round leaves and sends.

    Parameters
    ----------
    numbers : (n,) each: value, violation, excess, residual, tangent, primal, unsolved
    shared : (n, p_c) c~_i(w)
    found : z_i, q_i f_i'(u_i) and [mu_i + beta c_i(z_i)]_+
    moves : the points of ``set_out`` and the results of ``moved``
    """
    value, violation, excess, residual, tangent, primal, unsolved = numbers
    new, gradient, estimate = found
    points, dual, shifted, drift, inner = moves
    D, rho, away = len(ask.w), ask.rho[:, None], drift[:, -1]
    sums = residual, value, tangent, violation, excess, shared, primal
    drifts = rho * away[:, :D], away[:, D:], inner, unsolved
    memory = changed(memory, z=new, gradient=gradient, dual=dual, estimate=estimate)
    memory = changed(memory, points=points, drift=drift)
    return memory, Refined(rho * shifted[:, :D], shifted[:, D:], *sums, *drifts)


def _measured(
    problem: Problem, memory: ProximalMemory, units: Array, data: Block
) -> ProximalMemory:
    """The memory in new units, with the sizes of the constraints at w^k."""
    ratio, first = memory.units / units, bool((memory.units == 1).all())
    gradient = memory.gradient / ratio[:, : memory.gradient.shape[1]]
    memory = changed(memory, points=memory.points[:, :0], drift=memory.drift[:, :0])
    memory = changed(memory, z=memory.z * ratio, dual=memory.dual / ratio, gradient=gradient)
    memory = changed(memory, anchor=memory.anchor * ratio, units=np.tile(units, (len(ratio), 1)))
    merit = _merit(problem, memory, 1.0, 0.0, data)
    at = merit.point(memory.anchor)
    size = server.sizes(merit.jacobian(at), merit.constraints(memory.anchor, at))
    return changed(memory, size=size, first_size=size if first else memory.first_size)


def _round(merit: server.Merit, memory: ProximalMemory, ask: Refine) -> Left:
    w, most = _everywhere(ask), len(ask.mix) + 1
    before = memory.z, memory.dual, memory.points, memory.drift, ask.rho, memory.anchor
    old, duals, history, drift, rho, anchor = map(writable, before)
    value, gradient, c, _ = merit.all(w)
    local, p = merit.problem.local_constraint, merit.problem.local_constraint.size
    broken = np.where(local.equality, np.abs(c[:, :p]), c[:, :p])
    each = zip(gradient, w, old, duals, rho, strict=True)
    residual = np.array([server.residual_of(*client) for client in each])
    points, start = server.set_out(w, duals, history, writable(ask.mix), rho)
    new, unsolved = _minimised(merit, old, w, start, ask)  # (19)
    at = merit.point(new)
    reached = merit.constraints(new, at)
    y, numbers = merit.multipliers(reached), np.empty((2, len(w)))
    lagrangian = merit.weight * client_values(at) + (y * reached).sum(1)
    given = w, new, start, rho, ask.sigma, anchor, drift, most, len(ask.w)
    moves = points, *server.moved(*given, lagrangian, numbers)
    excess = (broken / memory.size[:, :p]).max(1, initial=0.0)
    shared = c[:, p:] + ask.slack * merit.units[len(ask.w) :]
    sums = value, broken.max(1, initial=0.0), excess, residual, *numbers, unsolved
    return _answered(memory, ask, sums, shared, (new, memory.gradient, y), moves)


def _everywhere(ask: Settle | Refine) -> Array:
    """The variables (w, s_i) of every client."""
    n = len(ask.slack)
    return np.concatenate([np.broadcast_to(ask.w, (n, len(ask.w))), ask.slack], 1)


def _minimised(
    merit: server.Merit, start: Array, w: Array, dual: Array, ask: Refine
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
    y = server.raised(change, old.equality)
    memory = replace(memory, multiplier=mu, estimate=mu, change=change, anchor=w, gradient=known)
    shifted = None
    if ask.restart:  # Algorithm 2, line 1
        dual = -_merit(problem, memory, ask.next_beta, ask.sigma, data)(w)[1]
        memory = replace(memory, z=w, dual=dual)
        shifted = w + dual / ask.rho[:, None]
    coupled = problem.constraint.coupled
    # of q_i f_i + <y, c_i>, or where that may not do of q_i f_i
    terms = old.terms(mu) if convex_of(problem) and _second_order(problem) else []
    upload = Settled(
        change=(np.abs(change) * memory.size).max(1, initial=0.0),
        product=np.abs(mu * c).sum(1),
        push=np.matmul(y[:, None, :], old.jacobian(at))[:, 0, :D],
        bite=(y * c).sum(1),
        shifted=None if shifted is None else ask.rho[:, None] * shifted[:, :D],
        slack=None if shifted is None else shifted[:, D:],
        gradient=gradient**2 if first else None,
        curvature=hessian_diagonals(at, old.weight, terms) if scaled or first else None,
        steep=coupled.jacobian(at) ** 2 if scaled else None,
    )
    return memory, upload


def _start(problem: Problem, w: Array, ask: Settle) -> ProximalMemory:
    none = np.zeros((len(w), problem.local_constraint.size + problem.constraint.coupled.size))
    history, ones = np.zeros((len(w), 0, w.shape[1])), np.ones_like(none)
    still = w, w[:, :0], np.zeros_like(w), w, none, none, none
    sizes = known(ask.prior), ones, ones, np.ones_like(w)
    return ProximalMemory(*still, *sizes, history, history)


def _merit(
    problem: Problem, memory: ProximalMemory, beta: float, sigma: float, data: Block
) -> server.Merit:
    own = memory.weight, beta / memory.first_size**2, sigma
    return server.Merit(problem, data, *own, memory.units[0], memory.anchor, memory.multiplier)


def convex_of(problem: Problem) -> bool:
    """Whether every P_i is convex."""
    return problem.local_constraint.convex and problem.constraint.convex


def _second_order(problem: Problem) -> bool:
    stacks = problem.local_constraint, problem.constraint.coupled
    return all(getattr(part, "hessian", 1) is not None for stack in stacks for part in stack.parts)


# Messages of the proximal augmented Lagrangian method, what its clients keep, and the server's
# state.
#
# Models, slack variables and what belongs to them are in units: ``units`` times them is the model.


@record
class Settle:
    """The server's w^{k+1}: update the multipliers and begin the next subproblem.

    These are lines 6-8 of Algorithm 1.
    """

    w: Annotated[Array, Form("D")]
    slack: Annotated[Each, Form("N, p_c")]
    prior: Annotated[Each, Form("N")] | None  # q_i; with the first message
    beta: float  # of the subproblem that ends
    next_beta: float  # of the one that begins
    sigma: float  # 1 / ((n + 1) beta) of that one
    rho: Annotated[Each, Form("N")]
    restart: bool  # Algorithm 2, line 1: the copies start at w again


@record
class Settled:
    """The answer to ``Settle``, which Algorithm 1 needs after a subproblem."""

    change: Each  # (n,) max |mu_i^{k+1} - mu_i^k| times the constraints' sizes, line 8
    product: Sum  # (n,) sum |mu_i c_i|
    # (n, D) sum y_i c_i', y the change of the multipliers: near 0 with <y, c> > 0, no model is
    # feasible
    push: Sum
    bite: Sum  # (n,) sum y_i c_i
    shifted: Sum | None  # (n, D) rho_i u~_i of Algorithm 2, line 1, at a restart
    slack: Each | None  # (n, p_c) u~_i's part for s
    # these three are not in units, and set them:
    gradient: Sum | None  # (n, D) squares of q_i f_i'; with the first answer
    curvature: Sum | None  # (n, D) the diagonal of the Lagrangian's Hessian
    steep: Sum | None  # (n, p_c, D) squares of c~_i'


@record
class Refine:
    """Ask for one iteration of Algorithm 2."""

    w: Annotated[Array, Form("D")]
    slack: Annotated[Each, Form("N, p_c")]
    units: Annotated[Array, Form("D + p_c")] | None  # where they are new
    beta: float
    sigma: float  # 1 / ((n + 1) beta)
    rho: Annotated[Each, Form("N")]
    tol: float  # eps_{t+1}
    room: float  # what (23) leaves to the clients' residuals
    # (h,) weights, sum 1, of the last h points from which (19) sets out; [1.] is Algorithm 2
    mix: Annotated[Array, Form("mix")]


@record
class Refined:
    """The answer to ``Refine``, which Algorithm 2 needs, with numbers to plot."""

    shifted: Sum  # (n, D) rho_i u~_i, (21)
    slack: Each  # (n, p_c) u~_i's part for s
    residual: Sum  # (n,) eps~_i, (22)
    value: Sum  # (n,) q_i f_i(w)
    tangent: Sum  # (n,) the tangent of the Lagrangian at u_i, at w
    violation: Each  # (n,) of c_i(w)
    excess: Max  # (n,) the same over the constraints' sizes
    shared: Sum  # (n, p_c) c~_i(w)
    primal: Sum  # (n,) ||z_i - w||^2
    drift: Sum  # (n, D) rho_i (u_i - w)
    slack_drift: Each  # (n, p_c) s_i's part of u_i - w
    inner: Sum  # (n, h + 1) rho_i <u_i - w, its h + 1 last ones>, the newest last
    unsolved: Max  # (n,) gradient of (19) where the local solver ended, over tol


@record
class ProximalMemory:
    """The memory of the clients."""

    z: Annotated[Array, Form("n, D + p_c")]  # u_i, s_i
    gradient: Annotated[Array, Form("n, D|0")]  # q_i f_i'(u_i); of quadratic functions alone
    dual: Annotated[Array, Form("n, D + p_c")]  # lambda_i
    anchor: Annotated[Array, Form("n, D + p_c")]  # w^k, s_i^k
    multiplier: Annotated[Array, Form("n, m")]  # mu_i
    estimate: Annotated[Array, Form("n, m")]  # [mu_i + beta c_i(u_i)]_+
    change: Annotated[Array, Form("n, m")]  # the last change of mu_i
    weight: Annotated[Array, Form("n")]  # q_i
    size: Annotated[Array, Form("n, m")]  # of c_i
    first_size: Annotated[Array, Form("n, m")]  # the same in the first units, which beta goes by
    units: Annotated[Array, Form("n, D + p_c")]  # the same for all
    points: Annotated[Array, Form("n, P, D + p_c")]  # the last w - lambda_i / rho
    drift: Annotated[Array, Form("n, H, D + p_c")]  # the last z_i - w


Left = tuple[ProximalMemory, Refined]  # what a round leaves and sends


@record
class ProximalState:
    """The server's memory between rounds; models and slack variables are in units."""

    w: Annotated[Array, Form("D")]
    slack: Annotated[Array, Form("N, p_c")]
    anchor: Annotated[Array, Form("D")]  # w^k
    slack_anchor: Annotated[Array, Form("N, p_c")]
    multiplier: Annotated[Array, Form("p_0")]  # mu_0
    total: Annotated[Array, Form("p_c")]  # multiplier of sum_i s_i <= 0
    change: Annotated[Array, Form("p_0")]  # the last change of mu_0
    total_change: Annotated[Array, Form("p_c")]
    shifted: Annotated[Array, Form("D")]  # sum_i rho_i u~_i
    slack_shifted: Annotated[Array, Form("N, p_c")]  # s~_i
    copies: Annotated[Array, Form("D")]  # sum_i rho_i u_i
    slack_copies: Annotated[Array, Form("N, p_c")]  # s_i
    past: server.Past
    beta: float
    rho: Annotated[Array, Form("N")]
    units: Annotated[Array, Form("D + p_c")]
    first_sizes: Annotated[Array, Form("p_0 + p_c")]  # of constraints in the first units
    violation: Annotated[Array, Form("N", infinite=True, nan=True)]
    scale: float = 1.0  # the size of the objective's gradients at the first model
    tau: Extended = math.inf
    fresh: int = 1  # rounds until the past counts
    renewed: bool = False  # the units are new to the clients
    outer: Counter = 0
    inner: Counter = 0  # of this subproblem
    exact: Extended = 0.0  # distance of 0 from the subdifferential of (18) at w
    residual: Extended = math.inf  # (23)
    primal: Extended = math.inf  # of u_i = w, relative
    gap: Extended = math.inf  # in-run, to the optimum
    excess: Extended = math.inf  # largest violation over the constraint's size and the model's
    value: Annotated[float, Form(infinite=True, nan=True)] = math.nan
    global_violation: Annotated[float, Form(infinite=True, nan=True)] = math.nan
    before: Extended = math.inf  # ``excess`` at the end of the last subproblem that was solved
    product: Extended = math.inf  # sum |mu c| at the end of the last one
    solved: bool = False  # whether that was solved to tau
    conflict: bool = False  # at the end of the last subproblem no model near is feasible
    stuck: Counter = 0  # such subproblems in a row that were solved
    infeasible: bool = False
    rounds: Annotated[int, Form(rounds=0)] = 0


def started(w: Array, held: int, coupled: int, beta: float, rho: Array) -> ProximalState:
    """The state before the first round, for so many constraints at the server, and of sums."""
    whole, slack = rho.sum() * w, np.zeros((len(rho), coupled))
    models, none = (w, slack, w, slack), (np.zeros(held), np.zeros(coupled))
    sums, past = (whole, slack, whole, slack), server.no_past(len(w), slack.shape)
    units, violation = np.ones(len(w) + coupled), np.full(len(slack), math.nan)
    rest = past, beta, rho, units, np.ones(held + coupled), violation
    return ProximalState(*models, *none, *none, *sums, *rest)


def in_units(state: ProximalState, units: Array) -> ProximalState:
    """The same state in other units."""
    ratio, D = state.units / units, len(state.w)
    own, slack = ratio[:D], ratio[D:]
    copies, slacks = state.copies * own, state.slack_copies * slack
    shifted = copies + (state.shifted - state.copies) / own  # rho u + lambda, (21)
    slack_shifted = slacks + (state.slack_shifted - state.slack_copies) / slack
    state = replace(state, w=state.w * own, slack=state.slack * slack, units=units, renewed=True)
    state = replace(state, copies=copies, slack_copies=slacks)
    return replace(state, shifted=shifted, slack_shifted=slack_shifted)


# Clients of the proximal AL method whose step (19) is the same linear system in each round.
#
# They have quadratic f_i and affine equalities: (19) minimises
#
#     q_i (u'A u / 2 + b'u) + ||mu + beta (C u + d)||^2 / (2 beta) + sigma ||u - z^k||^2 / 2
#
# and a term of rho, with A, b and C in the units of u. Its matrix without the constraints is
# M = q_i A + (sigma + rho) I.
#
# beta stays outside the inverse of M: y = mu + beta (C u + d) is solved for, so that a large beta
# costs no digits. A round costs what reading the matrices costs, so A is kept in single precision:
# it only meets w - u, and f_i'(u) is known to double precision from the system that u solves. What
# is sent as (22) is never below it.

potrf, potri = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)


SINGLE, UNIT = np.float32, 2.0**-24
ROUGH = 0.01  # of a residual that single precision may leave in doubt


def _systems(
    problem: Problem, memory: ProximalMemory, ask: Refine, data: Block
) -> tuple[Array, ...] | None:
    """The systems of a block, `_factors`, kept until beta or rho change: making one costs as much
    as hundreds of rounds. None where P_i is not a quadratic function.
    """
    if not isinstance(problem.loss, Quadratic):
        return None
    kept = once(data, "quadratic clients of ProximalAL", dict)
    arrays = memory.weight, memory.first_size, memory.units, ask.rho
    key = (id(problem), ask.beta, ask.sigma, *(part.tobytes() for part in arrays))
    if kept.get("key") != key:
        merit, local = _merit(problem, memory, ask.beta, ask.sigma, data), problem.local_constraint
        alike = not problem.constraint.coupled.size and local.affine and bool(local.equality.all())
        systems = tuple(map(unwritable, _factors(merit, ask.rho))) if alike else None
        kept.clear()
        # the problem is kept alive, so no other has its id
        kept |= {"key": key, "problem": problem, "systems": systems}
    return kept["systems"]


def _solved(systems: tuple[Array, ...], memory: ProximalMemory, ask: Refine) -> Left:
    """Carry out a round, with f_i'(w) from f_i'(u) and A in single precision if that suffices.

    Otherwise it comes from A itself.
    """
    n, D = memory.z.shape
    numbers, vectors = np.empty((7, n)), np.empty((2, n, D))
    estimate, numbers[6] = np.empty(memory.multiplier.shape), 0.0
    past = memory.z, memory.gradient, memory.dual, memory.points, memory.drift
    held = memory.anchor, memory.multiplier, memory.size
    arrays = map(writable, (*past, *held, ask.w, ask.mix, ask.rho))
    arguments: Any = (*arrays, ask.room, ask.sigma, *systems)
    moves = _quadratic_round(numbers, estimate, vectors, *arguments)
    return _answered(memory, ask, numbers, np.empty((n, 0)), (*vectors, estimate), moves)


@njit(cache=True, fastmath=server.FAST)
def _quadratic_round(numbers, estimate, vectors, *arguments):
    u, known, dual, points, drift, anchor, multiplier, size = arguments[:8]
    w, mix, rho, room, sigma = arguments[8:13]
    beta, A, scale, longest, exact, q, qb, inverse, C, d, reach, small = arguments[13:]
    n, D = u.shape
    models, lagrangian = np.empty_like(u), np.zeros(n)
    value, violation, excess, residual = numbers[0], numbers[1], numbers[2], numbers[3]
    for i in range(n):
        for j in range(D):  # an array's assignment takes seconds to compile: its error has a text
            models[i, j] = w[j]
        value[i], gradient, doubt = _at(w, u[i], known[i], A[i], scale[i] * q[i], longest[i], qb[i])
        limits = C[i], d[i], size[i], multiplier[i], beta[i], anchor[i], sigma
        violation[i], excess[i] = _add(gradient, w, *limits)
        # at least (22)
        residual[i] = server.residual_of(gradient, w, u[i], dual[i], rho[i]) + doubt
        if residual[i] - 2 * doubt <= room and doubt > ROUGH * residual[i]:  # too rough for (23)
            gradient = q[i] * np.dot(exact[i], w) + qb[i]
            value[i] = np.dot(gradient + qb[i], w) / 2
            _add(gradient, w, *limits)
            residual[i] = server.residual_of(gradient, w, u[i], dual[i], rho[i])
    points, start = server.set_out(models, dual, points, mix, rho)
    new, gradients = vectors[0], vectors[1]
    for i in range(n):
        held, lifted = rho[i] * w - start[i] + sigma * anchor[i], d[i] + multiplier[i] / beta[i]
        given = held, qb[i], sigma + rho[i], inverse[i], C[i], reach[i], small[i], lifted
        _minimise(new[i], gradients[i], estimate[i], *given)
        for j in range(D):
            lagrangian[i] += (gradients[i, j] + qb[i, j]) * new[i, j] / 2
        for k in range(len(d[i])):
            lagrangian[i] += estimate[i, k] * (d[i, k] + np.dot(C[i, k], new[i]))
    rest = rho, sigma, anchor, drift, len(mix) + 1, D, lagrangian, numbers[4:]
    return (points,) + server.moved(models, new, start, *rest)  # noqa: RUF005


@njit(cache=True, fastmath=server.FAST)
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


@njit(cache=True, fastmath=server.FAST)
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


@njit(cache=True, fastmath=server.FAST)
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


def _factors(merit: server.Merit, rho: Array) -> tuple[Array, ...]:
    """The arrays that every round takes.

    Returns
    -------
    beta : (n, p)
    single : (n, D (D + 1) / 2) A / scale, packed, in single precision
    scale : (n,) the largest number of A
    longest : (n,) the longest row of A / scale
    A : (n, D, D)
    q : (n,)
    linear : (n, D) q b
    inverse : (n, D (D + 1) / 2) M^-1, packed
    C, d : (n, p, D) and (n, p)
    reach : (n, p, D) C M^-1
    small : (n, p, p) the inverse of 1 / beta + C M^-1 C'
    """
    zero = np.zeros_like(merit.anchor)
    C, d = merit.jacobian(merit.point(zero)), merit.constraints(zero)
    q, units = merit.weight, merit.units
    A = np.ascontiguousarray(np.asarray(merit.block.X) * units * units[:, None])
    scale = np.maximum(np.abs(A).max((1, 2)), np.finfo(float).tiny)
    single = np.stack([packed(one.astype(SINGLE)) for one in A / scale[:, None, None]])
    longest = np.sqrt((A**2).sum(2)).max(1) / scale
    M = q[:, None, None] * A + (merit.sigma + rho)[:, None, None] * np.eye(A.shape[1])
    inverse = np.stack([packed(_inverse(one)) for one in M])
    reach = np.empty_like(C)
    for i, k in np.ndindex(*C.shape[:2]):
        times(inverse[i], C[i, k], reach[i, k])
    small = np.matmul(reach, C.transpose(0, 2, 1)) + np.stack([np.diag(1 / b) for b in merit.beta])
    linear, small = q[:, None] * merit.block.y * units, np.linalg.inv(small)
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
