"""What carries bytes between the server and the sites.

A transport is an existing engine's, such as NVIDIA FLARE's or Flower's. It knows no algorithm and
keeps nothing. That a message is answered exactly once is seen to by the two ends, `Link` at the
server and the site that it talks to.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol


class Transport(Protocol):
    """Carries bytes between the server and the sites."""

    def ids(self) -> tuple[str, ...]:
        """The stable names of the sites, in a fixed order."""
        ...

    def push(self, client: str, seq: int, message: bytes) -> None:
        """Send a message on its way, and return at once."""
        ...

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        """Wait until an answer or a failure is there, and return all that are; an empty list once
        ``timeout`` seconds are over.

        Every push yields one entry, in any order. What comes after a failure was reported is
        dropped.
        """
        ...

    def close(self) -> None:
        """Release what the transport holds."""
        ...


class LocalTransport:
    """Sites in this process, each a function from bytes to bytes, for tests and trials.

    Every site answers in a separate thread, one message after the other.
    """

    def __init__(self, sites: Mapping[str, Callable[[bytes], bytes]]) -> None:
        self.sites = dict(sites)
        self.workers = {name: ThreadPoolExecutor(1) for name in self.sites}
        self.arrived: queue.SimpleQueue[tuple[str, int, bytes | Exception]] = queue.SimpleQueue()

    def ids(self) -> tuple[str, ...]:
        """The names of the sites."""
        return tuple(self.sites)

    def push(self, client: str, seq: int, message: bytes) -> None:
        """Hand a message to a site's thread."""
        self.workers[client].submit(self._carry, client, seq, message)

    def _carry(self, client: str, seq: int, message: bytes) -> None:
        try:
            answer: bytes | Exception = self.sites[client](message)
        except Exception as error:
            answer = error
        self.arrived.put((client, seq, answer))

    def poll(self, timeout: float | None = None) -> list[tuple[str, int, bytes | Exception]]:
        """The answers that are there, after the first has come."""
        entries = []
        try:
            entries.append(self.arrived.get(timeout=timeout))
            while True:
                entries.append(self.arrived.get_nowait())
        except queue.Empty:
            return entries

    def close(self) -> None:
        """Let the threads end."""
        for worker in self.workers.values():
            worker.shutdown(wait=False, cancel_futures=True)
