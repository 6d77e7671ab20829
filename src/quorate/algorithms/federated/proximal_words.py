"""What the proximal augmented Lagrangian method says: errors in its settings, and why a run ended."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quorate.arrays import Array, is_number
from quorate.problem.problem import Problem
from quorate.rounds import Outcome, Stop


def check_settings(it: Any) -> None:
    """Errors that say what a setting must be."""
    for name, role in (("beta", "penalty of the constraints"), ("rho", "penalty of consensus"), ("s_bar", "first tau")):
        value = getattr(it, name)
        if value is not None and not (is_number(value) and 0 < value < math.inf):
            raise ValueError(
                f"{name} must be a number > 0, got {value!r}: it is the {role}. Leave it out for the default."
            )
    if it.q is not None and not (is_number(it.q) and 0 < it.q < 1):
        raise ValueError(
            f"q must be in (0, 1), got {it.q!r}: local problems are solved to q^t. Leave it out for the default."
        )
    if not is_number(it.memory) or int(it.memory) != it.memory or it.memory < 0:
        raise ValueError(
            f"memory must be a whole number >= 0, got {it.memory!r}: 0 is the iteration without acceleration."
        )
    numbers = it.tol, it.atol, it.max_rounds
    fine = all(map(is_number, numbers)) and 0 <= it.tol < math.inf and 0 <= it.atol < math.inf and it.max_rounds >= 1
    if not fine:
        raise ValueError(f"tol, atol must be >= 0 and max_rounds >= 1, got {', '.join(map(repr, numbers))}.")
    if it.start is not None and not np.isfinite(np.asarray(it.start, float)).all():
        raise ValueError("start must be finite numbers, one for each coefficient.")


def reached(problem: Problem, state: Any, goal: float, change: float) -> Outcome:
    """(11) holds."""
    text = (
        f"(11) after {state.rounds} rounds, {state.outer} subproblems: stationarity <= {goal:.1e}, violation and "
        f"complementarity <= {max(change, 0.0):.1e}."
    )
    if problem.local_constraint.convex and problem.constraint.convex:
        return Outcome(Stop.OPTIMAL, text)
    return Outcome(Stop.UNPROVEN, f"a KKT point; no bound exists because the constraints are not convex. {text}")


def infeasible(state: Any, change: Array) -> Outcome:
    """The changes of the multipliers are a combination of constraints that no model near w can meet."""
    return Outcome(
        Stop.INFEASIBLE,
        f"no model meets all constraints: a combination of those of {_named(change)} is positive and does not fall in "
        f"any direction; the model returned breaks them by {state.before:.3g}.",
    )


def capped(it: Any, state: Any, goal: float) -> Outcome:
    """The cap, which residual is above what, and what to do."""
    violation = max(state.global_violation, float(state.violation.max()))
    open_ = []
    if state.residual > state.tau:
        open_.append(f"residual (23) of subproblem {state.outer + 1} {state.residual:.1e} > tau {state.tau:.1e}")
    if state.tau > goal:
        open_.append(f"tau {state.tau:.1e} > {goal:.1e}")
    if not violation <= it.tol:
        worst = np.flatnonzero(state.violation >= 0.9 * state.violation.max())[:5]
        who = f"client {', '.join(map(str, worst + 1))} of {len(state.violation)}"
        of = who if state.violation.max() >= state.global_violation else "the server's or all clients'"
        open_.append(f"violation {violation:.1e} > {it.tol:.0e} ({of})")
    open_ = open_ or ["multipliers or complementarity still change"]
    remedy = "raise max_rounds or tol" + ("" if it.beta is None and it.rho is None else ", or leave beta and rho out")
    return Outcome(
        Stop.MAX_ROUNDS,
        f"ProximalAL stopped at max_rounds = {it.max_rounds}; {'; '.join(open_)}: {remedy}, or use InteriorPoint() for "
        "smooth problems of few coefficients.",
    )


def _named(change: Array) -> str:
    active = np.flatnonzero(change > 1e-3 * change.max(initial=0.0))[:8]
    if not len(active):
        return "the server"
    return f"client{'s' * (len(active) > 1)} {', '.join(map(str, active + 1))} (in the federation's order)"
