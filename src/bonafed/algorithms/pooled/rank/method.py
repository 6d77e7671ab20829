"""The base of the two ADMMs for risks by rank: their settings, first model and answer."""

from __future__ import annotations

from typing import Any, ClassVar

from bonafed.algorithms.method import Answer, Concluded, with_start
from bonafed.algorithms.pooled.rank.penalties import Penalty
from bonafed.algorithms.pooled.rank.subproblems import RANK_REQUIREMENTS, RankTask
from bonafed.algorithms.pooled.single_client import (
    OwnerState,
    PooledMethod,
)
from bonafed.algorithms.requirements import Requirements
from bonafed.algorithms.settings import check_least
from bonafed.arrays import Array, Block, Streams
from bonafed.rounds import Conclude


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

    @property
    def on_client(self) -> dict:
        return super().on_client | {Conclude: self.conclude}

    def conclude(
        self, memory: Any, ask: Conclude, data: Block, rng: Streams
    ) -> tuple[Any, Concluded]:
        """Send the multipliers of the rows and z, of which the certificate is made, and of a
        nonconvex problem the starts.
        """
        starts = getattr(memory, "table", None)
        return memory, Concluded(rows=memory.rows, split=memory.split, starts=starts)

    def answer(self, state: OwnerState, concluded: Concluded | None = None) -> Answer:
        """The model, and once the client has concluded the multipliers of its rows with z beside
        them.
        """
        if concluded is None or concluded.rows is None or concluded.split is None:
            return Answer(state.w)
        return Answer(state.w, row_duals=(concluded.rows[0], concluded.split[0]))

    def _first_model(self, task: RankTask, data: Block) -> Array:
        return task.design.inward(with_start(self._problem, self.start, data.n_features))
