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

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import numpy as np

from bonafed.algorithms.federated.private.float_gradient import Rows, precision
from bonafed.algorithms.federated.private.mechanism import Mechanism
from bonafed.algorithms.federated.private.noisy_gradient import (
    GROUPS,
    NoiseKeys,
    Question,
    Told,
    answered,
    check_question,
    each_of,
    new_keys,
)
from bonafed.algorithms.federated.private_admm import steps
from bonafed.arrays import Array, Block, Streams, writable
from bonafed.codec import Extended, Form
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Ball, Bounds
from bonafed.rounds import Sum, record
from bonafed.solvers.smooth.newton import lbfgs


@record
class Perturb:
    """The server's w^{t+1}: answer with z_p^{t+1} and lambda_p^{t+1}."""

    w: Annotated[Array, Form("D")]
    round: Annotated[int, Form(rounds=1)]  # t, from 1
    rho: float
    next_rho: float  # of the next round
    reach: Extended  # 1 / eta^t or delta^t


@record
class Perturbed:
    """The client's answer: functions of the noisy z_p^{t+1} only."""

    shifted: Sum  # (1, D) sum of z_p - lambda_p / rho
    gap: Sum  # (n,) ||w - z_p||_1
    # (n,) E |xi|, which is public; the mean of |xi| itself would reveal xi beside z_p
    noise: Sum


@record
class PrivateMemory(NoiseKeys):
    """The memory of a client."""

    z: Annotated[Array, Form("n, D")]
    dual: Annotated[Array, Form("n, D")]  # lambda_p


def start(mechanism: Mechanism, w: Array, data: Block) -> PrivateMemory:
    """The first memory: z_p^1 = w^1 and lambda_p^1 = 0."""
    n = len(data.names)
    z = np.tile(w, (n, 1)).astype(precision(data))
    return PrivateMemory(*new_keys(mechanism, n), z, np.zeros_like(z))


def question(mechanism: Mechanism, memory: PrivateMemory, ask: Perturb, told: Told) -> Question:
    """What a request asks of the gradients and of their noise."""
    numbers = ask.round, ask.rho, ask.reach
    return Question.of(mechanism, memory, memory.z, told, numbers)


def perturb(
    problem: Problem,
    mechanism: Mechanism,
    near: int,
    gradients: Callable[..., Callable[[int], tuple[Array, float]]],
    memory: PrivateMemory,
    ask: Perturb,
    data: Block,
    rng: Streams,
) -> tuple[PrivateMemory, Perturbed]:
    """Carry out a round at the clients of a block: step (8) or (9), and (4c).

    ``gradients`` makes of (memory, message, question, data, rng) the function that gives the noisy
    gradient of a client, and the mean size of its noise.
    """
    told = Told.of(ask.w, memory.z.dtype)
    finite = told.finite and 0 < ask.rho < np.inf and ask.reach > 0
    check_question(mechanism, memory, finite)
    n, w = len(data.names), told.model
    asked = question(mechanism, memory, ask, told)
    noisy = gradients(memory, ask, asked, data, rng)
    region = near, ask.reach, *_box(problem, w)
    z, old = writable(memory.z), writable(memory.dual)
    new, dual, gap = np.empty_like(z), np.empty_like(old), np.empty(n)
    shifted, size = np.zeros((min(n, GROUPS), len(w))), np.empty(n)

    def serve(group: int) -> None:
        for i in range(group, n, GROUPS):
            gradient, size[i] = noisy(i)
            gradient = gradient.astype(float, copy=False)  # what the step is compiled for
            steps.towards(w, z[i], old[i], gradient, ask.rho, *region, new[i])
            _into_ball(problem, new[i])
            gap[i] = steps.update_multipliers(
                w, new[i], old[i], ask.rho, ask.next_rho, dual[i], shifted[group]
            )

    each_of(serve, len(shifted), data.y.size * len(w))
    if len(shifted) > 1:
        with np.errstate(all="ignore"):  # the server reports what is not finite
            shifted = shifted.sum(0, keepdims=True)
    upload = Perturbed(shifted, gap, reported(mechanism, ask, size))
    return answered(memory, asked, z=new, dual=dual), upload


def reported(mechanism: Mechanism, ask: Perturb, size: Array) -> Array:
    """Mean sizes of the noise of gradients, or of z_p where that is what the method speaks of."""
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


def _into_ball(problem: Problem, z: Array) -> None:
    """Project z (D,), in place, onto the set W where that is a ball; an intercept is free."""
    if isinstance(problem.regulariser, Ball):
        coefficients = problem.predictor.split(z)[0]
        coefficients[:] = problem.regulariser.prox(coefficients.astype(float), 1.0)


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
