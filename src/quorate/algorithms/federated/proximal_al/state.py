"""The server's state in the proximal augmented Lagrangian method."""

from __future__ import annotations

import math

import numpy as np

from quorate.algorithms.federated.proximal_al.messages import Refined
from quorate.algorithms.federated.proximal_al.server import Past, no_past
from quorate.arrays import Array
from quorate.rounds import record


@record
class ProximalState:
    """The server's memory between rounds."""

    w: Array  # (D,)
    slack: Array  # (N, p_c)
    anchor: Array  # (D,) w^k
    slack_anchor: Array  # (N, p_c)
    multiplier: Array  # (p_0,) mu_0
    total: Array  # (p_c,) multiplier of sum_i s_i <= 0
    change: Array  # (p_0,) the last change of mu_0
    total_change: Array  # (p_c,)
    shifted: Array  # (D,) sum_i u~_i
    slack_shifted: Array  # (N, p_c) s~_i
    past: Past
    beta: float
    rho: float
    unit: Array  # (p_c,) of s
    violation: Array  # (N,)
    scale: float = 1.0  # sum_i max |q_i f_i'| at the first model
    tau: float = math.inf
    fresh: int = 1  # rounds until the past counts
    since: int = 0  # rounds since rho changed
    settled: int = 0  # rounds since beta changed
    outer: int = 0
    inner: int = 0  # of this subproblem
    exact: float = 0.0  # distance of 0 from the subdifferential of (18) at w
    residual: float = math.inf  # (23)
    # relative primal and dual residuals of consensus
    pair: tuple[float, float] = (math.inf, math.inf)
    value: float = math.nan
    global_violation: float = math.nan
    before: float = math.inf  # violation at the end of the last subproblem
    product: float = math.inf  # sum |mu c| there
    stuck: int = 0  # subproblems in a row at whose ends the violation did not fall
    infeasible: bool = False
    rounds: int = 0


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
