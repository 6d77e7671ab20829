"""The server's state in the proximal augmented Lagrangian method."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from quorate.algorithms.federated.proximal_al.messages import Refined
from quorate.algorithms.federated.proximal_al.server import Past, no_past
from quorate.arrays import Array
from quorate.codec import Counter, Extended, Form
from quorate.rounds import record


@record
class ProximalState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]
    slack: Annotated[Array, Form("N, p_c")]
    anchor: Annotated[Array, Form("D")]  # w^k
    slack_anchor: Annotated[Array, Form("N, p_c")]
    multiplier: Annotated[Array, Form("p_0")]  # mu_0
    total: Annotated[Array, Form("p_c")]  # multiplier of sum_i s_i <= 0
    change: Annotated[Array, Form("p_0")]  # the last change of mu_0
    total_change: Annotated[Array, Form("p_c")]
    shifted: Annotated[Array, Form("D")]  # sum_i u~_i
    slack_shifted: Annotated[Array, Form("N, p_c")]  # s~_i
    past: Past
    beta: float
    rho: float
    unit: Annotated[Array, Form("p_c")]  # of s
    violation: Annotated[Array, Form("N", infinite=True, nan=True)]
    scale: float = 1.0  # sum_i max |q_i f_i'| at the first model
    tau: Extended = math.inf
    fresh: int = 1  # rounds until the past counts
    since: Counter = 0  # rounds since rho changed
    settled: Counter = 0  # rounds since beta changed
    outer: Counter = 0
    inner: Counter = 0  # of this subproblem
    exact: Extended = 0.0  # distance of 0 from the subdifferential of (18) at w
    residual: Extended = math.inf  # (23)
    # relative primal and dual residuals of consensus
    pair: tuple[Extended, Extended] = (math.inf, math.inf)
    value: Annotated[float, Form(infinite=True, nan=True)] = math.nan
    global_violation: Annotated[float, Form(infinite=True, nan=True)] = math.nan
    before: Extended = math.inf  # violation at the end of the last subproblem
    product: Extended = math.inf  # sum |mu c| there
    stuck: Counter = 0  # subproblems in a row at whose ends the violation did not fall
    infeasible: bool = False
    rounds: Annotated[int, Form(rounds=0)] = 0


def started(
    w: Array, slack: Array, held: Array, coupled: Array, beta: float, rho: float
) -> ProximalState:
    """The state before the first round; ``held`` and ``coupled`` are zeros for its multipliers."""
    n = len(slack)
    return ProximalState(
        w=w,
        slack=slack,
        anchor=w,
        slack_anchor=slack,
        multiplier=held,
        total=coupled,
        change=held,
        total_change=coupled,
        shifted=n * w,
        slack_shifted=slack,
        past=no_past(len(w), slack.shape),
        beta=beta,
        rho=rho,
        unit=np.ones(len(coupled)),
        violation=np.full(n, math.nan),
    )


def relative_pair(up: Refined, state: ProximalState, n: int) -> tuple[float, float]:
    """Primal and dual residuals of u_i = w, relative to the sizes of w and of lambda."""
    size = math.sqrt(n * float(state.w @ state.w) + float((state.slack**2).sum()))
    pull = math.sqrt(float(up.pull))
    primal, dual = math.sqrt(float(up.primal)), state.rho * math.sqrt(float(up.moved))
    return primal / size if size else primal, dual / pull if pull else dual
