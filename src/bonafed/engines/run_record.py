"""The record of a run beside its last state: traffic, history, and the log of who answered when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bonafed.engines.event_log import Recorder


class Counts(NamedTuple):
    """The counts of one round, or of all rounds since the last row of the history."""

    bytes_up: int = 0
    bytes_down: int = 0
    answered: int = 0
    staleness: int = 0  # the most rounds by which a message was old

    def joined(self, more: Counts) -> Counts:
        """The counts of both together."""
        return Counts(
            self.bytes_up + more.bytes_up,
            self.bytes_down + more.bytes_down,
            self.answered + more.answered,
            max(self.staleness, more.staleness),
        )

    def row(self, round_: int, time: float, report: Mapping[str, Any]) -> dict[str, Any]:
        """A row of the history with these counts; ``report`` is what the algorithm reports."""
        return {
            "round": round_,
            "time": time,
            "answered": self.answered,
            "staleness": self.staleness,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            **report,
        }


class RunRecord:
    """The record of a run, which grows with every finished round.

    Attributes
    ----------
    traffic : (message, "down" or "up") -> messages and bytes so far
    history : the rows that are kept
    events : who answered when
    since_row : the counts since the last of these rows
    """

    def __init__(self) -> None:
        self.traffic: dict[tuple[str, str], list[int]] = {}
        self.history: list[dict[str, Any]] = []
        self.events = Recorder()
        self.since_row = Counts()

    def count(self, kind: type, way: str, messages: int, size: int) -> None:
        """Count messages or uploads of one class, with their bytes in all."""
        counted = self.traffic.setdefault((kind.__name__, way), [0, 0])
        counted[0] += messages
        counted[1] += size


def traffic_table(
    traffic: Mapping[tuple[str, str], Sequence[int]],
) -> list[dict[str, Any]]:
    """The traffic as ``Run.messages`` has it: a row for each message type and direction."""
    return [
        {"message": message, "direction": way, "count": count, "bytes": size}
        for (message, way), (count, size) in traffic.items()
    ]
