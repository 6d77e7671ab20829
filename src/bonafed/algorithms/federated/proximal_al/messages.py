"""Messages of the proximal augmented Lagrangian method, what its clients keep, and the server's
state.

Models, slack variables and what belongs to them are in units: ``units`` times them is the model.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import numpy as np

from bonafed.algorithms.federated.proximal_al.server import Past, no_past
from bonafed.arrays import Array
from bonafed.codec import Counter, Extended, Form
from bonafed.rounds import Each, Max, Sum, record


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
    past: Past
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


def started(
    w: Array, slack: Array, held: Array, coupled: Array, beta: float, rho: Array
) -> ProximalState:
    """The state before the first round; ``held`` and ``coupled`` are zeros for its multipliers."""
    return ProximalState(
        w=w,
        slack=slack,
        anchor=w,
        slack_anchor=slack,
        multiplier=held,
        total=coupled,
        change=held,
        total_change=coupled,
        shifted=rho.sum() * w,
        slack_shifted=slack,
        copies=rho.sum() * w,
        slack_copies=slack,
        past=no_past(len(w), slack.shape),
        beta=beta,
        rho=rho,
        units=np.ones(len(w) + len(coupled)),
        first_sizes=np.ones(len(held) + len(coupled)),
        violation=np.full(len(slack), math.nan),
    )


def in_units(state: ProximalState, units: Array) -> ProximalState:
    """The same state in other units."""
    ratio, D = state.units / units, len(state.w)
    own, slack = ratio[:D], ratio[D:]
    copies, slacks = state.copies * own, state.slack_copies * slack
    return replace(
        state,
        w=state.w * own,
        slack=state.slack * slack,
        copies=copies,
        slack_copies=slacks,
        shifted=copies + (state.shifted - state.copies) / own,  # rho u + lambda, (21)
        slack_shifted=slacks + (state.slack_shifted - state.slack_copies) / slack,
        units=units,
        renewed=True,
    )
