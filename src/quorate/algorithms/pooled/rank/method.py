"""The base of the two ADMMs for risks by rank: their settings, first model and answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from quorate.algorithms.method import Answer, with_start
from quorate.algorithms.pooled.rank.penalties import Penalty
from quorate.algorithms.pooled.rank.subproblems import RANK_REQUIREMENTS, RankTask
from quorate.algorithms.pooled.single_client import (
    OwnerState,
    PooledMethod,
    opened,
)
from quorate.algorithms.requirements import Requirements
from quorate.algorithms.settings import check_least
from quorate.arrays import Array, Block


class RankMethod(PooledMethod):
    """The base of ``RankADMM`` and ``SmoothedRankADMM``."""

    requirements: ClassVar[Requirements] = RANK_REQUIREMENTS
    penalty: Penalty | None
    r: float
    relaxation: float
    check: int
    start: Array | None

    def check_settings(self) -> None:
        """Raise ``ValueError`` for settings out of range."""
        check_least(self, "r", least=0)
        if not 1 <= self.relaxation <= 1.9:
            raise ValueError(f"relaxation must be in [1, 1.9], got {self.relaxation!r}.")
        check_least(self, "check")
        if self.check != int(self.check):
            raise ValueError(f"check must be a whole number, got {self.check!r}.")
        if self.penalty is not None and not hasattr(self.penalty, "after"):
            raise ValueError(
                f"penalty must be a schedule such as Growing(1e-5, 1.2), got {self.penalty!r}."
            )

    def answer(self, state: OwnerState, memories: Sequence[Any] = ()) -> Answer:
        """The model; where the memory is known, the multipliers of the rows with z beside them, of
        which the certificate is made.
        """
        if not memories or memories[0] is None:
            return Answer(state.w)
        memory = opened(memories[0])
        return Answer(state.w, row_duals=(memory.rows, memory.split))

    def _first_model(self, task: RankTask, data: Block) -> Array:
        return task.design.inward(with_start(self._problem, self.start, data.n_features))
