"""The engine of simulated time: clients answer after delays, and the server goes on without those who are slow.

Discrete events: a message to client i at time t is answered at t plus the client's next delay (``delays.py``), work
done while it is out of reach not counted. Answers are taken in the order of their times, and of their messages where
times are equal, until the rule of waiting (``activation.py``) is content. They are computed when they are taken, all in
one step, from the messages that were sent: time passes only on the clock, never in the machine.
"""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, is_number
from quorate.engines.activation import First, View, Waiting
from quorate.engines.delays import Delays, LogNormal, Trips
from quorate.engines.events import Loop
from quorate.engines.inprocess import InProcess, Run
from quorate.engines.source import Batch, checked
from quorate.rounds import Algorithm, Outcome, Stop, record


@dataclass(frozen=True)
class VirtualClock:
    """Simulated time, in this process; two runs with one seed are equal to the bit.

    Parameters
    ----------
    delays : ``LogNormal()``, ``Constant()`` or ``Trace(...)``; a client's k-th trip takes its k-th delay whatever the
        algorithm and the rule of waiting
    stragglers : factors of some clients' delays, by name
    outages : by name, the times ``[(from, to), ...]`` when a client is out of reach: its work goes on when it is back
    crashes : by name, the time from which a client never answers
    wait : ``First(n)``, ``Stale(n, tau)`` or ``Adaptive(n)``; of no effect on algorithms that need everybody's answer
    block_size : clients that step together at most; 1: one by one, bit for bit as ``InProcess("each")``
    max_time : end before the first round that would finish later, in virtual seconds
    keep_rows : rounds for each row of the history; the last round of a finished run has a row in any case
    checkpoint : file to keep the run in (overwritten by a run that does not resume), or None
    every : rounds between two writes of the checkpoint; the end, an interruption and a failure write it too
    """

    delays: Delays = field(default_factory=LogNormal)
    stragglers: Mapping[str, float] = field(default_factory=dict)
    outages: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    crashes: Mapping[str, float] = field(default_factory=dict)
    wait: Waiting = field(default_factory=First)
    block_size: int = 64
    max_time: float | None = None
    keep_rows: int = 1
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1000

    def __post_init__(self) -> None:
        checked(self.block_size, self.keep_rows, self.every)
        for name, factor in self.stragglers.items():
            if not is_number(factor) or not 0 < factor < math.inf:
                raise ValueError(f"stragglers[{name!r}] must be a finite factor > 0, got {factor!r}.")
        for name, time in self.crashes.items():
            if not is_number(time) or math.isnan(time):
                raise ValueError(f"crashes[{name!r}] must be a time in virtual seconds, got {time!r}.")
        for name, spans in self.outages.items():
            _check_spans(name, spans)
        if self.max_time is not None and not (is_number(self.max_time) and self.max_time >= 0):
            raise ValueError(f"max_time must be >= 0 virtual seconds, got {self.max_time!r}.")
        for name, part, verb in (("delays", self.delays, "trips"), ("wait", self.wait, "need")):
            if isinstance(part, type) or not hasattr(part, verb):
                raise TypeError(f"{name} must be such as LogNormal() or First(10), got {part!r}.")

    def run(
        self,
        algorithm: Algorithm,
        federation: Any,
        *,
        seed: int = 0,
        watch: Sequence[Callable[[dict[str, Any], Any], None]] = (),
        resume: bool = False,
        max_rounds: int | None = None,
    ) -> Run:
        """Run until the algorithm is done; parameters and errors as of ``InProcess.run``.

        A round is one call of ``on_server``. Its history row has the virtual time of its last answer, the number of
        answers, the most rounds by which one of their messages was old, the bytes sent and received since the round
        before (of all rounds since the row before, where only some rows are kept), and what the algorithm reports.
        Watchers see the server's state itself: whoever keeps it has to copy it. ``Stop.STALLED``: an answer that is
        waited for will never come. Ctrl-C ends the run after the answers that are being computed; a second one at
        once, without saving anything.
        """
        clock = _Clock(self, tuple(map(str, federation.clients)), seed)
        rule = (self.delays, self.stragglers, self.outages, self.crashes, self.wait)
        return Loop(self, clock, rule, algorithm, federation, seed).run(watch, resume, max_rounds)

    def aside(self) -> InProcess:
        """The engine of what takes no part in the simulation, such as a certificate."""
        return InProcess()


def _check_spans(name: str, spans: Any) -> None:
    last = -math.inf
    for span in spans:
        start, end = span
        if not (is_number(start) and is_number(end) and last <= start < end < math.inf):
            raise ValueError(
                f"outages[{name!r}] must be pairs (from, to) of finite times with from < to, in order and apart, "
                f"got {span!r}. Who never comes back belongs in crashes."
            )
        last = end


@record
class ClockState:
    """The clock between two rounds."""

    time: float
    number: int  # messages sent so far
    made: NDArray[np.int64]  # (N,) trips begun
    begun: Array  # (N,) when each was asked last
    due: Array  # (N,) when it answers; inf: never
    order: NDArray[np.int64]  # (N,) the number of its message, of those in flight
    trip: Array  # (N,) seconds of its last finished trip; nan before it


class _Clock:
    """The times at which clients answer; whatever is done since ``settle`` can be undone."""

    def __init__(self, engine: VirtualClock, clients: tuple[str, ...], seed: int) -> None:
        for what in ("stragglers", "outages", "crashes"):
            if unknown := sorted(set(getattr(engine, what)) - set(clients)):
                raise ValueError(f"{what} names {unknown[0]!r}, who is no client; clients are {', '.join(clients[:5])}")
        n, self.engine, self.clients = len(clients), engine, clients
        self.trips = Trips(engine.delays, seed, clients, engine.stragglers)
        self.away = {clients.index(name): spans for name, spans in engine.outages.items()}
        self.crash = np.array([engine.crashes.get(name, math.inf) for name in clients])
        self.begun, self.due = np.zeros(n), np.full(n, np.inf)
        self.trip = np.full(n, np.nan)
        self.time, self.number = 0.0, 0
        self.heap: list[tuple[float, int, int]] = []
        self.taken: list[tuple[float, int, int]] = []
        self.asked, self.before = np.empty(0, np.intp), 0

    def send(self, ids: NDArray[np.intp], gradients: float) -> None:
        """Messages to these clients, who have answered all before."""
        due = self.time + self.trips.next(ids, gradients)
        self.asked, self.before = ids, self.number
        listed = ids.tolist()
        if self.away:
            due = np.array([self._back(i, t) for i, t in zip(listed, due.tolist(), strict=True)])
        if self.engine.crashes:
            due[due > self.crash[ids]] = np.inf
        self.begun[ids], self.due[ids] = self.time, due
        for number, (time, i) in enumerate(zip(due.tolist(), listed, strict=True), self.number):
            if time < math.inf:
                heapq.heappush(self.heap, (time, number, i))
        self.number += len(listed)

    def _back(self, i: int, due: float) -> float:
        """When work that would be done at ``due`` is done by a client that is out of reach at times."""
        for start, end in self.away.get(i, ()):
            if end <= self.time:
                continue
            if due <= start:
                break
            due += end - max(start, self.time)
        return due

    def take(self, round_: int, wait_for: int | None, flying: NDArray[np.bool_], since: NDArray[np.int64]) -> Any:
        """The next answers, or the outcome of a run that has none."""
        heap, left = self.heap, set[int]()
        if wait_for is None:
            count = least = int(np.count_nonzero(flying))
        else:
            wanted, must = self.engine.wait.need(View(round_, self.time, flying, since, self.trip))
            least, left = wait_for, set(must.tolist())
            count = max(wait_for, min(wanted, len(heap)))
        if count > len(heap) or (left and (self.due[list(left)] == np.inf).any()):
            return self._stalled(flying, least)
        self.taken = [heapq.heappop(heap) for _ in range(count)]
        left.difference_update([event[2] for event in self.taken] if left else ())
        while left:
            self.taken.append(heapq.heappop(heap))
            left.discard(self.taken[-1][2])
        if self.engine.max_time is not None and self.taken[-1][0] > self.engine.max_time:
            text = f"stopped at the engine's max_time = {self.engine.max_time:g} virtual seconds"
            return Outcome(Stop.MAX_ROUNDS, text)
        return Batch([event[2] for event in self.taken], [event[0] for event in self.taken])

    def _stalled(self, flying: NDArray[np.bool_], least: int) -> Outcome:
        lost = np.flatnonzero(flying & (self.due == np.inf))
        named = ", ".join(self.clients[i] for i in lost[:5]) + f" and {len(lost) - 5} more" * (len(lost) > 5)
        who = "the algorithm needs" if least > len(self.heap) else f"{self.engine.wait!r} waits for"
        text = f"stalled at {self.time:g} virtual seconds: {who} answers of clients that crashed ({named}). "
        text += "Leave them out (federation.restrict), or use an algorithm and a rule that go on without, such as "
        return Outcome(Stop.STALLED, text + "AsyncDRO() with First(n)")

    def settle(self) -> None:
        """The round is finished."""
        if self.taken:
            ids = [event[2] for event in self.taken]
            self.trip[ids] = self.due[ids] - self.begun[ids]
            self.time = self.taken[-1][0]
        self.taken, self.asked, self.before = [], self.asked[:0], self.number

    def undo(self) -> None:
        """As after the round before."""
        self.heap = [event for event in (*self.heap, *self.taken) if event[1] < self.before]
        heapq.heapify(self.heap)
        self.trips.undo(self.asked)
        self.number, self.taken, self.asked = self.before, [], self.asked[:0]

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """Who has crashed by now, and when."""
        return tuple((name, float(t)) for name, t in zip(self.clients, self.crash, strict=True) if t <= self.time)

    def stored(self) -> ClockState:
        """For a checkpoint."""
        order = np.full(len(self.due), -1)
        order[[i for _, _, i in self.heap]] = [number for _, number, _ in self.heap]
        return ClockState(self.time, self.number, self.trips.made, self.begun, self.due, order, self.trip)

    def restore(self, state: ClockState, flying: NDArray[np.bool_]) -> None:
        """From a checkpoint."""
        self.time, self.number, self.before, self.trips.made = state.time, state.number, state.number, state.made
        self.begun, self.due, self.trip = state.begun, state.due, state.trip
        at = np.flatnonzero(state.order >= 0)
        self.heap = list(zip(state.due[at].tolist(), state.order[at].tolist(), at.tolist(), strict=True))
        heapq.heapify(self.heap)
