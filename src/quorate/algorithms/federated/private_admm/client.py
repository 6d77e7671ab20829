"""The client half of the private ADMM: its messages, its memory, and one round.

    z_p^{t+1} = argmin_{z in W}  <f_p'(z_p^t) + xi_p - lambda_p, z> + rho ||w - z||^2 / 2 + near(z,
    z_p^t)  (8), (9)
    lambda_p^{t+1} = lambda_p^t + rho (w - z_p^{t+1})                                           (4c)

Ryu and Kim, *Differentially private federated learning via inexact ADMM with multiple local
updates*, first version; equation numbers are theirs. f_p(z) = a_p sum_i l(z; x_pi, y_pi) with
public a_p. A sum over all clients of functions of z_p^{t+1} is all that leaves a client, and
z_p^{t+1} depends on the data through one clipped gradient with noise.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Annotated, cast

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.federated.private_admm import kernels
from quorate.algorithms.federated.private_admm.float_gradient import Rows, precision
from quorate.algorithms.federated.private_admm.integer_gradient import IntegerRows
from quorate.algorithms.federated.private_admm.mechanism import MEAN_SIZE, Mechanism
from quorate.arrays import Array, Block, Streams, writable
from quorate.codec import Extended, Form
from quorate.privacy.budget import BudgetSpentError
from quorate.privacy.discrete_noise import Kind, add_noise
from quorate.problem.problem import Problem
from quorate.problem.regularisers import Bounds
from quorate.rounds import Sum, record
from quorate.solvers.smooth.newton import lbfgs

# clients are summed in so many groups; the number is fixed, so that threads do not change the sums
GROUPS = 8
ALONE = 10_000_000  # fewer multiplications are done before several threads have started


@record
class Perturb:
    """The server's w^{t+1}: answer with z_p^{t+1} and lambda_p^{t+1}."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=1)]  # t, from 1
    rho: float
    next_rho: float  # of the next round
    reach: Extended  # 1 / eta^t or delta^t
    scale: float  # of the noise, relative to the plan: 1 except as published


@record
class Perturbed:
    """The client's answer: functions of the noisy z_p^{t+1} alone."""

    shifted: Sum  # (1, D) sum of z_p - lambda_p / rho
    gap: Sum  # (n,) ||w - z_p||_1
    # (n,) E |xi|, which is public; the mean of |xi| itself would reveal xi beside z_p
    noise: Sum


@record
class PrivateMemory:
    """The memory of a client."""

    z: Annotated[Array, Form("n, D")]
    dual: Annotated[Array, Form("n, D")]  # lambda_p
    answered: Annotated[Array, Form("n")]  # rounds
    # the key of its noise, and a digest of all it was asked; (n, 0) in simulations
    secret: Annotated[NDArray[np.uint8], Form("n, 32|0")]
    asked: Annotated[NDArray[np.uint8], Form("n, 32|0")]


def start(problem: Problem, mechanism: Mechanism, w: Array, data: Block) -> PrivateMemory:
    """The first memory: z_p^1 = w^1, lambda_p^1 = 0, and a key of the noise from the system."""
    n = len(data.names)
    z = np.tile(w, (n, 1)).astype(precision(data))
    length = 32 if mechanism.source == "secure" and mechanism.kind else 0
    secret = np.frombuffer(os.urandom(length * n), np.uint8).reshape(n, length)
    return PrivateMemory(z, np.zeros_like(z), np.zeros(n), secret, np.zeros_like(secret))


def _check_ask(mechanism: Mechanism, memory: PrivateMemory, ask: Perturb) -> None:
    """Refuse a question that the budget does not pay for, before anything is released."""
    if (memory.answered >= mechanism.rounds).any():
        raise BudgetSpentError(
            f"the budget pays for {mechanism.rounds} answers, and all are released: another one"
            " would overspend. Nothing was released."
        )
    if not mechanism.caveat and ask.scale != 1:
        raise ValueError(
            f"the server asks for {ask.scale} times the noise that was planned: nothing was"
            " released."
        )
    if not (np.isfinite(ask.w).all() and 0 < ask.rho < np.inf and ask.reach > 0):
        raise ValueError(
            "the server's question is not of finite numbers > 0: nothing was released."
        )


def perturb(
    problem: Problem,
    mechanism: Mechanism,
    near: int,
    memory: PrivateMemory,
    ask: Perturb,
    data: Block,
    rng: Streams,
) -> tuple[PrivateMemory, Perturbed]:
    """Carry out a round at the clients of a block: step (8) or (9), and (4c)."""
    if mechanism.kind:
        _check_ask(mechanism, memory, ask)
    n, w = len(data.names), ask.w.astype(memory.z.dtype)
    asked = _asked(mechanism, memory, ask)
    noisy = _noisy_gradients(problem, mechanism, replace(memory, asked=asked), ask, data, rng)
    region = near, ask.reach, *_box(problem, w)
    z, old = writable(memory.z), writable(memory.dual)
    new, dual, gap = np.empty_like(z), np.empty_like(old), np.empty(n)
    shifted, scale = np.zeros((min(n, GROUPS), len(w))), np.empty(n)

    def serve(group: int) -> None:
        for i in range(group, n, GROUPS):
            new[i], scale[i] = noisy(i)
            kernels.towards(w, z[i], old[i], ask.rho, *region, new[i])
            gap[i] = kernels.update_multipliers(
                w, new[i], old[i], ask.rho, ask.next_rho, dual[i], shifted[group]
            )

    _each_of(serve, len(shifted), data.y.size * len(w))
    with np.errstate(all="ignore"):  # the server reports what is not finite
        total = shifted.sum(0, keepdims=True)
    upload = Perturbed(total, gap, mean_noise(mechanism, ask, scale))
    if not memory.secret.size:
        asked = memory.asked
    after = replace(memory, z=new, dual=dual, answered=memory.answered + 1, asked=asked)
    return after, upload


def _each_of(serve: Callable[[int], None], groups: int, work: int) -> None:
    """Serve every group, in threads where the work of so many multiplications is worth them."""
    from numba import config

    threads = min(groups, config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]
    if threads == 1 or work < ALONE:
        for group in range(groups):
            serve(group)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(serve, range(groups)))


def _noisy_gradients(
    problem: Problem,
    mechanism: Mechanism,
    memory: PrivateMemory,
    ask: Perturb,
    data: Block,
    rng: Streams,
) -> Callable[[int], tuple[Array, float]]:
    """f_p' + xi_p of a client of the block by its position, and the scale of xi_p."""
    weight = mechanism.weight[data.index]
    scale = ask.scale * mechanism.multiplier * mechanism.sensitivity[data.index]
    if mechanism.exact:
        unit, noise = mechanism.unit[data.index], mechanism.noise

        def on_grid(i: int) -> tuple[Array, float]:
            rows = IntegerRows.of(problem, mechanism, data, i)
            total = rows.gradient(problem, mechanism, memory.z[i])
            if noise:
                add_noise(cast(Kind, mechanism.kind), noise, _key(memory, rng, i), total)
            return unit[i] * total, scale[i]

        return on_grid
    rows = Rows.of(problem, mechanism, data)

    def in_floats(i: int) -> tuple[Array, float]:
        g, largest = rows.gradient(problem, mechanism, memory.z[i], data, i)
        size = mechanism.multiplier * weight[i] * largest if mechanism.unsafe else scale[i]  # (20)
        if not size > 0:
            return weight[i] * g, 0.0
        key = int.from_bytes(_key(memory, rng, i)[:16], "little")
        own = np.random.Generator(np.random.Philox(key=key))
        draw = own.laplace if mechanism.kind == "laplace" else own.normal
        return weight[i] * g + draw(scale=size, size=len(g)), size

    return in_floats


def mean_noise(mechanism: Mechanism, ask: Perturb, scale: Array) -> Array:
    """The mean size E |xi| of noise of this scale, of z_p or of the objective."""
    size = scale * MEAN_SIZE[mechanism.kind or "gaussian"]
    return size / (ask.rho + ask.reach if mechanism.output else 1.0)


def _summed(z: Array, dual: Array, rho: float) -> Array:
    """The sum of z_p - lambda_p / rho, (1, D), in double precision."""
    total = np.zeros((1, z.shape[1]))
    with np.errstate(all="ignore"):  # the server reports what is not finite
        for local, multiplier in zip(z, dual, strict=True):
            total += local - multiplier / rho
    return total


def _box(problem: Problem, w: Array) -> tuple[Array, Array]:
    """The set W as bounds (D,), none for an intercept; without entries where W is the space."""
    if not isinstance(problem.regulariser, Bounds):
        return w[:0], w[:0]
    lower, upper = np.full_like(w, -np.inf), np.full_like(w, np.inf)
    problem.predictor.split(lower)[0][:] = problem.regulariser.lower
    problem.predictor.split(upper)[0][:] = problem.regulariser.upper
    return lower, upper


def exact(
    problem: Problem,
    mechanism: Mechanism,
    memory: PrivateMemory,
    ask: Perturb,
    data: Block,
    tol: float,
) -> tuple[PrivateMemory, Perturbed]:
    """One round with (4b) to a tolerance instead of (8), which is possible only without privacy."""
    rows = Rows.of(problem, mechanism, data)
    weight = mechanism.weight[data.index]

    def phi(v: Array) -> tuple[Array, Array]:
        pairs = [rows.value_and_gradient(problem, v[i], data, i) for i in range(len(v))]
        away = v - ask.w
        value = weight * np.array([value for value, _ in pairs]) - (memory.dual * v).sum(1)
        gradient = (
            weight[:, None] * np.stack([gradient for _, gradient in pairs])
            - memory.dual
            + ask.rho * away
        )
        return value + ask.rho / 2 * (away**2).sum(1), gradient

    new = lbfgs(phi, memory.z, tol).v
    dual = memory.dual + ask.rho * (ask.w - new)  # (4c)
    gap = np.abs(ask.w - new).sum(1)
    upload = Perturbed(_summed(new, dual, ask.next_rho), gap, np.zeros(len(gap)))
    return replace(memory, z=new, dual=dual, answered=memory.answered + 1), upload


def _about(mechanism: Mechanism, ask: Perturb) -> bytes:
    """The settings that the noise depends on, so that other runs of a ledger have other noise.

    In a simulation, runs on other rows or with another loss under the same settings and seed have
    the same noise, which can be subtracted.
    """
    it = mechanism
    plan = it.multiplier, it.clip, it.bound, it.output, it.rounds, it.place
    settings = np.array([*plan, ask.round, ask.rho, ask.reach, ask.scale], float)
    return str(it.kind).encode() + settings.tobytes() + it.weight.tobytes()


def _asked(mechanism: Mechanism, memory: PrivateMemory, ask: Perturb) -> NDArray[np.uint8]:
    """A digest (n, 32) of all that each client was asked so far, this question the last; in a
    simulation, of this question's settings alone.
    """
    question = _about(mechanism, ask)
    if memory.secret.size:
        question += np.ascontiguousarray(ask.w).tobytes()
    latest = hashlib.blake2b(question, digest_size=32).digest()
    each = [hashlib.blake2b(before.tobytes() + latest, digest_size=32) for before in memory.asked]
    return np.array([np.frombuffer(digest.digest(), np.uint8) for digest in each])


def _key(memory: PrivateMemory, rng: Streams, i: int) -> bytes:
    """The key of client i's noise for what it was asked, and for nothing else.

    The same questions get the same answer, so that a round may be repeated; others never meet the
    same noise, which could be subtracted.
    """
    secret = memory.secret[i].tobytes() or rng(i).bytes(32)
    question = memory.asked[i].tobytes()
    return hashlib.blake2b(question, key=secret, digest_size=32, person=b"quorate noise").digest()
