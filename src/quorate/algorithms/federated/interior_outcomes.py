"""Why a run of ``InteriorPoint`` ends, in words with what to do about it."""

from __future__ import annotations

from quorate.rounds import Outcome, Stop
from quorate.solvers.primal_dual import Residuals


def reached(tol: float, rounds: int) -> Outcome:
    """All residuals within the tolerance."""
    return Outcome(Stop.OPTIMAL, f"residuals <= {tol:.0e} after {rounds} rounds.")


def fallen(value: float) -> Outcome:
    """An objective that falls for ever."""
    return Outcome(
        Stop.UNBOUNDED,
        f"the objective falls below {value:.1e} at models that meet all constraints, and nothing ends it: add a "
        "regulariser such as L2(1e-3), or a constraint.",
    )


def stuck(left: Residuals, patience: int) -> Outcome:
    """Residuals that do not fall any more."""
    return Outcome(
        Stop.STALLED,
        f"no progress in {patience} rounds: residuals {left.dual:.1e} (stationarity), {left.primal:.1e} (constraints), "
        f"{left.mu:.1e} (complementarity), scaled. Rescale the features, add L2(1e-6), or raise tol.",
    )


def nothing_inside(t: float, violation: float) -> Outcome:
    """The smallest violation t (scaled) is positive, or zero."""
    if t <= 1e-8:
        return Outcome(
            Stop.STALLED,
            "no model was found inside all limits: as far as the smallest violation tells they can be met on their "
            "boundary only, where this method stops. Relax a limit, give another start, or use ProximalAL().",
        )
    return Outcome(Stop.INFEASIBLE, f"the smallest violation that was found is {violation:.3g}.")


def capped(max_rounds: int, residual: float, tol: float, violation: float) -> Outcome:
    """The cap was met first."""
    return Outcome(
        Stop.MAX_ROUNDS,
        f"stopped at max_rounds = {max_rounds}; scaled residual {residual:.1e} > {tol:.0e}, violation {violation:.1e}: "
        "raise max_rounds or tol.",
    )
