"""What an engine needs to know of a federation, which no engine imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from bonafed.arrays import Block


class Known(Protocol):
    """What an engine needs to know of any federation: its clients' names, and marks of their
    rows.
    """

    @property
    def clients(self) -> Sequence[Any]:
        """Names, whose order numbers the clients."""
        ...

    @property
    def n_clients(self) -> int:
        """How many clients there are."""
        ...

    @property
    def n_features(self) -> int:
        """The number of features of a row."""
        ...

    def digests(self) -> tuple[str, ...]:
        """One text for each client, which is another one if its data change."""
        ...


@runtime_checkable
class FederatedData(Known, Protocol):
    """What an engine needs of a federation whose rows are in this process."""

    def block(self, i: int) -> Block:
        """The rows of one client."""
        ...

    def blocks(self, size: int = 64) -> list[Block]:
        """The rows of all clients, so many clients together at most."""
        ...


def rows_here(federation: Known) -> FederatedData:
    """The federation, where its rows are in this process; raises ``TypeError`` elsewhere."""
    if not isinstance(federation, FederatedData):
        raise TypeError(
            "this engine computes with the clients' rows itself, and they are at their owners: give"
            " the rows, or the engine that reaches the sites."
        )
    return federation
