"""The server's state in the proximal augmented Lagrangian method."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import numpy as np

from bonafed.algorithms.federated.proximal_al.server import Past, no_past
from bonafed.arrays import Array
from bonafed.codec import Counter, Extended, Form
from bonafed.rounds import record


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
