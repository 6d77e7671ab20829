"""Sources of events, which say who answers when: a simulated clock, or the log of another run."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.rounds import Outcome


class Batch(NamedTuple):
    """The answers of one round in the order of arrival."""

    ids: NDArray[np.int64]
    times: Array


class Source(Protocol):
    """A source of events: it says which clients answer when.

    Everything since the last ``settle`` can be undone.
    """

    time: float

    def send(self, ids: NDArray[np.int64], gradients: float) -> None:
        """Note that messages go to these clients."""
        ...

    def take(
        self, round_: int, wait_for: int | None, in_flight: int, since: NDArray[np.int64]
    ) -> Batch | Outcome:
        """The answers of the next round, or the outcome of the run where there are none.

        ``in_flight`` is the number of clients in flight; ``since`` (N,) holds the finished rounds
        when they were asked, and -1 for other clients.
        """
        ...

    def settle(self) -> None:
        """Note that the round is finished."""
        ...

    def undo(self) -> None:
        """Go back to the last finished round."""
        ...

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """The clients that never answer again, and the times since when."""
        ...

    def stored(self) -> Any:
        """The state of the source for a checkpoint."""
        ...

    def restore(self, state: Any, in_flight: NDArray[np.int64], turns: NDArray[np.int64]) -> None:
        """Set the source to the state in a checkpoint; ``ValueError`` for one that no source has.

        ``in_flight`` are the clients still to answer, ``turns`` (N,) how often each has answered.
        """
        ...
