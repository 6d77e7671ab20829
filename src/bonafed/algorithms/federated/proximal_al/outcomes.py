"""The outcomes of the proximal augmented Lagrangian method, in words with what to do about them."""

from __future__ import annotations

import numpy as np

from bonafed.algorithms.federated.proximal_al.state import ProximalState
from bonafed.arrays import Array
from bonafed.problem.problem import Problem
from bonafed.rounds import Outcome, Stop


def optimal(problem: Problem, state: ProximalState, goal: float, change: float) -> Outcome:
    """The outcome where the conditions (11) hold."""
    text = (
        f"(11) after {state.rounds} rounds, {state.outer} subproblems: stationarity <= {goal:.1e},"
        f" violation and complementarity <= {max(change, 0.0):.1e}."
    )
    if problem.local_constraint.convex and problem.constraint.convex:
        return Outcome(Stop.OPTIMAL, text)
    return Outcome(
        Stop.UNPROVEN,
        f"a KKT point; no bound exists because the constraints are not convex. {text}",
    )


def near(state: ProximalState) -> Outcome:
    """The outcome where the bound of the tangents is within the tolerance."""
    return Outcome(
        Stop.OPTIMAL,
        f"after {state.rounds} rounds, {state.outer} subproblems: tangents at the clients' copies"
        f" bound the gap by {state.gap:.1e}; violation, relative, {state.excess:.1e}.",
    )


def infeasible(state: ProximalState, change: Array) -> Outcome:
    """The outcome where no model near w meets the constraints.

    The changes of the multipliers are a combination of constraints that proves it.
    """
    return Outcome(
        Stop.INFEASIBLE,
        f"no model meets all constraints: a combination of those of {_named(change)} is positive"
        " and does not fall in any direction; the model returned violates them by"
        f" {_violation(state):.3g}.",
    )


def capped(
    state: ProximalState, goal: float, gap: float | None, cap: int, tol: float, measured: bool
) -> Outcome:
    """The outcome at the cap on rounds: which residuals are too large, and what to do.

    ``gap`` is the one allowed, where tangents bound it. ``measured`` says that beta and rho are not
    the user's.
    """
    violation, open_ = _violation(state), []
    if gap is not None and state.gap > gap:
        open_.append(f"gap to the bound of tangents {state.gap:.1e} > {gap:.1e}")
    if gap is None and state.residual > state.tau:
        open_.append(
            f"residual (23) of subproblem {state.outer + 1} {state.residual:.1e} > tau"
            f" {state.tau:.1e}"
        )
    if gap is None and state.tau > goal:
        open_.append(f"tau {state.tau:.1e} > {goal:.1e}")
    if not violation <= tol:
        worst = np.flatnonzero(state.violation >= 0.9 * state.violation.max())[:5]
        who = f"client {', '.join(map(str, worst + 1))} of {len(state.violation)}"
        of = (
            who
            if state.violation.max() >= state.global_violation
            else "the server's or all clients'"
        )
        open_.append(f"violation {violation:.1e} > {tol:.0e} ({of})")
    if not open_:
        open_.append("multipliers, violation or complementarity still change")
    remedy = f"raise max_rounds or tol{'' if measured else ', or leave beta and rho out'}"
    return Outcome(
        Stop.MAX_ROUNDS,
        f"ProximalAL stopped at max_rounds = {cap}; {'; '.join(open_)}: {remedy}, or use"
        " InteriorPoint() for smooth problems of few coefficients.",
    )


def _violation(state: ProximalState) -> float:
    return max(state.global_violation, float(state.violation.max()))


def _named(change: Array) -> str:
    active = np.flatnonzero(change > 1e-3 * change.max(initial=0.0))[:8]
    if not len(active):
        return "the server"
    return (
        f"client{'s' * (len(active) > 1)} {', '.join(map(str, active + 1))} (in the federation's"
        " order)"
    )
