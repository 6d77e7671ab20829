"""Checks of the settings, and the outcomes, of the proximal augmented Lagrangian method."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from quorate.algorithms.federated.proximal_al.state import ProximalState
from quorate.arrays import Array, is_number
from quorate.problem.problem import Problem
from quorate.rounds import Outcome, Stop


class Settings(Protocol):
    """The settings of ``ProximalAL``."""

    @property
    def beta(self) -> float | None: ...

    @property
    def rho(self) -> float | None: ...

    @property
    def q(self) -> float | None: ...

    @property
    def memory(self) -> int: ...

    @property
    def tol(self) -> float: ...

    @property
    def atol(self) -> float: ...

    @property
    def max_rounds(self) -> int: ...

    @property
    def start(self) -> Array | None: ...


def check_settings(it: Settings) -> None:
    """Raise ``ValueError``, which says what a setting must be, on settings out of range."""
    for name, role in (
        ("beta", "penalty of the constraints"),
        ("rho", "penalty of consensus"),
        ("s_bar", "first tau"),
    ):
        value = getattr(it, name)
        if value is not None and not (is_number(value) and 0 < value < math.inf):
            raise ValueError(
                f"{name} must be a number > 0, got {value!r}: it is the {role}. Leave it out for"
                " the default."
            )
    if it.q is not None and not (is_number(it.q) and 0 < it.q < 1):
        raise ValueError(
            f"q must be in (0, 1), got {it.q!r}: local problems are solved to q^t. Leave it out for"
            " the default."
        )
    if not is_number(it.memory) or int(it.memory) != it.memory or it.memory < 0:
        raise ValueError(
            f"memory must be a whole number >= 0, got {it.memory!r}: 0 is the iteration without"
            " acceleration."
        )
    if it.start is not None and not np.isfinite(np.asarray(it.start, float)).all():
        raise ValueError("start must be finite numbers, one for each coefficient.")
    _check_end(it)


def _check_end(it: Settings) -> None:
    """Raise on settings of the stopping rule out of range."""
    numbers = it.tol, it.atol, it.max_rounds
    fine = (
        all(map(is_number, numbers))
        and 0 <= it.tol < math.inf
        and 0 <= it.atol < math.inf
        and it.max_rounds >= 1
    )
    if not fine:
        raise ValueError(
            f"tol, atol must be >= 0 and max_rounds >= 1, got {', '.join(map(repr, numbers))}."
        )


def reached(problem: Problem, state: ProximalState, goal: float, change: float) -> Outcome:
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


def infeasible(state: ProximalState, change: Array) -> Outcome:
    """The outcome where no model near w meets the constraints.

    The changes of the multipliers are a combination of constraints that proves it.
    """
    return Outcome(
        Stop.INFEASIBLE,
        f"no model meets all constraints: a combination of those of {_named(change)} is positive"
        " and does not fall in any direction; the model returned violates them by"
        f" {state.before:.3g}.",
    )


def capped(it: Settings, state: ProximalState, goal: float) -> Outcome:
    """The outcome at ``max_rounds``: which residuals are too large, and what to do."""
    violation = max(state.global_violation, float(state.violation.max()))
    open_ = []
    if state.residual > state.tau:
        open_.append(
            f"residual (23) of subproblem {state.outer + 1} {state.residual:.1e} > tau"
            f" {state.tau:.1e}"
        )
    if state.tau > goal:
        open_.append(f"tau {state.tau:.1e} > {goal:.1e}")
    if not violation <= it.tol:
        worst = np.flatnonzero(state.violation >= 0.9 * state.violation.max())[:5]
        who = f"client {', '.join(map(str, worst + 1))} of {len(state.violation)}"
        of = (
            who
            if state.violation.max() >= state.global_violation
            else "the server's or all clients'"
        )
        open_.append(f"violation {violation:.1e} > {it.tol:.0e} ({of})")
    open_ = open_ or ["multipliers or complementarity still change"]
    remedy = "raise max_rounds or tol" + (
        "" if it.beta is None and it.rho is None else ", or leave beta and rho out"
    )
    return Outcome(
        Stop.MAX_ROUNDS,
        f"ProximalAL stopped at max_rounds = {it.max_rounds}; {'; '.join(open_)}: {remedy}, or use"
        " InteriorPoint() for smooth problems of few coefficients.",
    )


def _named(change: Array) -> str:
    active = np.flatnonzero(change > 1e-3 * change.max(initial=0.0))[:8]
    if not len(active):
        return "the server"
    return (
        f"client{'s' * (len(active) > 1)} {', '.join(map(str, active + 1))} (in the federation's"
        " order)"
    )
