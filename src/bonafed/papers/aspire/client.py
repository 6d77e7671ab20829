"""The worker's half of ASPIRE-EASE: the messages, answers and memory of worker j.

    phi_j <- P(phi_j + rho_2 (z - w_j - c_2 phi_j))                                             (16)
    w_j   <- P(w_j - alpha_w (omega_j f_j'(w_j) - phi_j + kappa (w_j - z)))               (11), (12)

Jiao, Yang, Song, *Federated distributionally robust optimization with non-convex objectives:
algorithm and analysis*; equation numbers are theirs. All that a worker needs of the cutting planes
is omega_j = sum_l lambda_l p_lj, one number: neither lambda nor the planes are sent. The gradient
at the new w_j is kept for the next trip, so the loss there is free.

What leaves a worker: its w_j, its loss f_j(w_j), and the size of its part of the stationarity gap
(32).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array, Block, Each, Form, Streams, record

# power iterations, one gradient each, that measure the curvature of f_j at the first model
POWERS = 4


@record
class Gauge:
    """The first message: the model where the run starts; empty for the default start."""

    w: Annotated[Array, Form("D")]
    tells: ClassVar = ext.at_model()


@record
class Gauged:
    """The worker's sizes at the first model, from which the step sizes are chosen."""

    loss: Each  # (n,) f_j
    length: Each  # (n,) ||f_j'||
    steep: Each  # (n,) largest entry of |f_j'|
    curvature: Each  # (n,) largest eigenvalue of f_j'', by power iterations
    features: ext.Max  # (n,) how many


@record
class Approach:
    """The message to worker j after its last answer; ``z`` and omega_j are as old as that."""

    z: Annotated[ext.Version, Form("D")]
    omega: Annotated[Each, Form("N")]  # sum_l lambda_l p_lj
    # (N,) alpha_w of (11); None: 1 / (kappa + omega_j L_j), L_j the largest curvature seen
    step: Annotated[Each, Form("N")] | None
    fade: Annotated[Each, Form("N")] | None  # c_2 of (16); None: 0
    kappa: float
    rho: float  # rho_2
    reach: float  # alpha_1
    pull: float  # alpha_4
    # a step by the gradient at the last copy, and the loss at the new one
    tells: ClassVar = ext.at_models(lambda one: [one.before.u[0], one.memory.u[0]])


@record
class Approached:
    """A worker's answer."""

    w: Each  # (n, D)
    loss: Each  # (n,) f_j(w_j)
    gap: Each  # (n,) squared norm of its part of (32), at the model it set out from


@record
class ASPIREMemory:
    """The memory of a worker."""

    u: Annotated[Array, Form("n, D")]  # w_j
    dual: Annotated[Array, Form("n, D")]  # phi_j
    loss: Annotated[Array, Form("n")]  # f_j(w_j)
    gradient: Annotated[Array, Form("n, D")]  # f_j'(w_j)
    curvature: Annotated[Array, Form("n")]  # L_j


def gauge(
    problem: bf.Problem, memory: None, ask: Gauge, data: Block, rng: Streams
) -> tuple[ASPIREMemory, Gauged]:
    """Losses, gradients and curvatures at the first model, of every worker of the block."""
    n = len(data.index)
    w = ext.or_default(ask.w, problem, data.n_features)
    u = np.tile(w, (n, 1))
    cut = problem.cut(u, data)
    length = np.sqrt((cut.gradient**2).sum(1))
    curvature = _curvature(problem, u, cut.base, cut.gradient, length, data)
    steep, features = np.abs(cut.gradient).max(1, initial=0.0), np.full(n, float(data.n_features))
    started = ASPIREMemory(u, np.zeros_like(u), cut.base, cut.gradient, curvature)
    return started, Gauged(cut.base, length, steep, curvature, features)


def _curvature(
    problem: bf.Problem,
    u: Array,
    loss: Array,
    gradient: Array,
    length: Array,
    data: Block,
) -> Array:
    """The largest eigenvalue of f_j'' at u by power iterations on differences of gradients."""
    some = np.where(length > 0, length, 1.0)
    reach = 1e-4 * np.where((length > 0) & (np.abs(loss) > 0), np.abs(loss) / some, 1.0)[:, None]
    along = np.where(length[:, None] > 0, gradient, 1.0)
    bend = np.zeros(len(u))
    for _ in range(POWERS):
        along = along / np.maximum(np.sqrt((along**2).sum(1)), 1e-300)[:, None]
        along = (problem.cut(u + reach * along, data).gradient - gradient) / reach
        bend = np.sqrt((along**2).sum(1))
    return bend


def approach(
    problem: bf.Problem,
    steps: int,
    reuse: bool,
    memory: ASPIREMemory,
    ask: Approach,
    data: Block,
    rng: Streams,
) -> tuple[ASPIREMemory, Approached]:
    """One trip: (16) with the z of the message, then ``steps`` steps (11).

    With ``reuse`` the loss that is sent is the one where the last step began.
    """
    n, z, omega = len(data.index), ask.z, ask.omega[:, None]
    fade = 0.0 if ask.fade is None else ask.fade[:, None]
    dual = ascended(memory.dual, z, memory.u, ask.rho, fade, ask.pull)  # (16)
    gap, before = np.zeros(n), memory.loss
    for turn in range(steps):
        local = 1 / (ask.kappa + ask.omega * memory.curvature)
        step = (local if ask.step is None else ask.step)[:, None]
        # (12), but -phi_j: it is printed as -w_j
        gradient = omega * memory.gradient - dual + ask.kappa * (memory.u - z)
        u = np.clip(memory.u - step * gradient, -ask.reach, ask.reach)  # (11)
        if turn == 0:
            gap = (((memory.u - u) / step) ** 2).sum(1)  # (32), first line
        before, memory = memory.loss, _arrived(problem, memory, u, data)
    return replace(memory, dual=dual), Approached(memory.u, before if reuse else memory.loss, gap)


def ascended(
    dual: Array, z: Array, w: Array, rho: float, fade: Array | float, pull: float
) -> Array:
    """phi_j after (16); server and worker both compute it, so that it is never sent."""
    return np.clip(dual + rho * (z - w - fade * dual), -pull, pull)


def _arrived(problem: bf.Problem, memory: ASPIREMemory, u: Array, data: Block) -> ASPIREMemory:
    """The memory at a new model; L_j grows where the gradient changed faster than it predicts."""
    cut = problem.cut(u, data)
    moved = np.sqrt(((u - memory.u) ** 2).sum(1))
    turned = np.sqrt(((cut.gradient - memory.gradient) ** 2).sum(1))
    seen = np.divide(
        turned, moved, out=np.zeros_like(moved), where=moved > 1e-9 * np.sqrt((u**2).sum(1))
    )
    return replace(
        memory,
        u=u,
        loss=cut.base,
        gradient=cut.gradient,
        curvature=np.maximum(memory.curvature, seen),
    )
