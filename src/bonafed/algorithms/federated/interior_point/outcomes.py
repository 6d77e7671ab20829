"""The outcomes of ``InteriorPoint``, in words with what to do about them."""

from __future__ import annotations

from bonafed.rounds import Outcome, Stop
from bonafed.solvers.smooth.primal_dual import Residuals


def optimal(tol: float, rounds: int) -> Outcome:
    """The outcome where all residuals are within the tolerance."""
    return Outcome(Stop.OPTIMAL, f"residuals <= {tol:.0e} after {rounds} rounds.")


def fallen(value: float) -> Outcome:
    """The outcome of an objective that falls without end."""
    return Outcome(
        Stop.UNBOUNDED,
        f"the objective falls below {value:.1e} at models that meet all constraints, and nothing"
        " ends it: add a regulariser such as L2(1e-3), or a constraint.",
    )


def stuck(left: Residuals, patience: int) -> Outcome:
    """The outcome where residuals do not fall any more."""
    return Outcome(
        Stop.STALLED,
        f"no progress in {patience} rounds: residuals {left.dual:.1e} (stationarity),"
        f" {left.primal:.1e} (constraints), {left.mu:.1e} (complementarity), scaled. Rescale the"
        " features, add L2(1e-6), or raise tol.",
    )


def nothing_inside(t: float, violation: float, other: str) -> Outcome:
    """The outcome where the smallest violation t (scaled) is positive, or zero; ``other``: a method
    for the problem that needs nothing inside, or "".
    """
    if t <= 1e-8:
        return Outcome(
            Stop.STALLED,
            "no model inside all limits is known: judging by the smallest violation they can be met"
            " on their boundary only, where this method stops. Relax a limit, or give another start"
            + (f", or use {other}." if other else "."),
        )
    return Outcome(Stop.INFEASIBLE, f"the smallest violation of any model is {violation:.3g}.")


def capped(max_rounds: int, residual: float, tol: float, violation: float) -> Outcome:
    """The outcome at ``max_rounds``."""
    return Outcome(
        Stop.MAX_ROUNDS,
        f"stopped at max_rounds = {max_rounds}; scaled residual {residual:.1e} > {tol:.0e},"
        f" violation {violation:.1e}: raise max_rounds or tol.",
    )
