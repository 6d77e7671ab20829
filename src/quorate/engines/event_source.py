"""What tells an engine who answers when: a simulated clock, or the log of an earlier run."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array
from quorate.rounds import Outcome


class Batch(NamedTuple):
    """The answers of one round in the order of arrival."""

    ids: NDArray[np.int64]
    times: Array


class Source(Protocol):
    """What tells the loop who answers when. What happens since ``settle`` can be undone."""

    time: float

    def send(self, ids: NDArray[np.int64], gradients: float) -> None:
        """Messages go to these clients."""
        ...

    def take(
        self, round_: int, wait_for: int | None, flying: int, since: NDArray[np.int64]
    ) -> Batch | Outcome:
        """The answers of the next round, or why there are none.

        ``flying`` clients are in flight; ``since`` (N,): the finished rounds when they were asked,
        -1 for others.
        """
        ...

    def settle(self) -> None:
        """The round is finished: its events have happened."""
        ...

    def undo(self) -> None:
        """Back to the last finished round."""
        ...

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """Who never answers again, and since when."""
        ...

    def stored(self) -> Any:
        """For a checkpoint."""
        ...

    def restore(self, state: Any) -> None:
        """From a checkpoint."""
        ...


def checked(block_size: Any, keep_rows: Any, every: Any) -> None:
    """Refuse settings that are no numbers of clients and rounds."""
    for name, value in (("block_size", block_size), ("keep_rows", keep_rows), ("every", every)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}.")
