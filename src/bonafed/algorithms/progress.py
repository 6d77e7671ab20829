"""When a run ends:  value - bound <= max(atol, tol max(|value|, |bound|)),  at its cap, or where
nothing has got better for long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from bonafed.rounds import Done, Round, Stop

S = TypeVar("S")
TINY = 1e-12  # size of an objective that counts as 0, where none can be expected to be smaller


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    value, bound : of the best model, and the best that is proved; inf and -inf before there is any
    tol, atol : of the method
    rounds, cap : as the method counts them
    still, patience : steps in a row without progress, and how many of them are enough
    margin : of ``tol``, with which a run ends before that: certificates are charged for rounding
    met : whether the model meets all limits
    least : size of the objective, below which ``tol`` is relative to this
    unknown : the size of the objective before a value or a bound is known
    """

    value: float
    bound: float
    tol: float
    atol: float = 0.0
    rounds: int = 0
    cap: float = math.inf
    still: int = 0
    patience: float = math.inf
    margin: float = 1.0
    met: bool = True
    least: float = 0.0
    unknown: float = 0.0

    def allowed(self, margin: float = 1.0) -> float:
        """The gap that the tolerance allows."""
        sizes = [abs(x) for x in (self.value, self.bound) if math.isfinite(x)]
        return max(
            self.atol, margin * self.tol * max(*sizes, self.least, self.unknown * (not sizes))
        )

    def within(self, margin: float = 1.0) -> bool:
        """Whether the gap is proved to be as small as the tolerance asks."""
        gap = self.value - self.bound
        return self.met and math.isfinite(gap) and gap <= self.allowed(margin)

    @property
    def stop(self) -> Stop | None:
        """Why the run ends now; None where it goes on."""
        capped, rests = self.rounds >= self.cap, self.still >= self.patience
        if self.within(1.0 if capped or rests else self.margin):
            return Stop.OPTIMAL
        if capped:
            return Stop.MAX_ROUNDS
        return Stop.STALLED if rests else None


def unless_capped(state: S, ask: Round, rounds: int, cap: int) -> tuple[S, Round | Done]:
    """The next request, or the end of a run at its cap."""
    return state, ask if rounds < cap else Done(Stop.MAX_ROUNDS)
