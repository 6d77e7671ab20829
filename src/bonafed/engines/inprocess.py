"""The engines whose clients are in this process: all answer at once, at simulated times, or as in
the log of an earlier run.

All at once has three ways that give the same numbers:

- "blocks": clients in size-sorted padded blocks, one NumPy call for a block; the fastest. A
  private run is computed as "each": the last digits of a sum over a block would follow the order
  of the true sizes.
- "each": one client after the other, in order.
- "bytes": as "each", with every message and upload through the codec, as over a wire; bitwise equal
  to "each".
"""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, is_number
from bonafed.client_names import ByClient, ClientName, by_position, texts
from bonafed.codec import Form
from bonafed.engines.batching import Blocks, Known, Rows, rows_here
from bonafed.engines.checkpoint import other_clients
from bonafed.engines.clients import Ids, LocalClients, Marks
from bonafed.engines.delays import (
    NOBODY,
    Delays,
    First,
    LogNormal,
    Trips,
    View,
    Waiting,
    post,
    put_back,
    take,
)
from bonafed.engines.endings import ended
from bonafed.engines.loop import Batch, EventEngine, Loop, Source
from bonafed.engines.run_record import Log
from bonafed.privacy.secure_sum.messages import SecureSum
from bonafed.rounds import Algorithm, Outcome, Stop, record


@dataclass(frozen=True)
class InProcess(EventEngine):
    """All clients in this process.

    Parameters
    ----------
    mode : "blocks", "each" or "bytes", see the module
    block_size : clients in a block at most; those with many numbers are fewer
    checkpoint : file to keep the run in (overwritten by a run that does not resume), or None; of a
        private run the clients' memories and keys are in a second file, PATH.clients, and the keys
        are overwritten once it is finished
    every : rounds between two writes of the checkpoint; the end, an interruption and a failure
        write it too
    secure_sum : ``SecureSum()``, or True, to have the server learn the sums of the clients' numbers
        and no single client's; None, the default, adds them up as they are

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> as_bytes = bf.InProcess(mode="bytes")  # every message as on a wire
    >>> bf.solve(problem, fed, engine=as_bytes).outcome.stop.value
    'optimal'
    """

    at_once: ClassVar[bool] = True
    asynchronous: ClassVar[bool] = False
    keep_rows: ClassVar[int] = 1
    mode: Literal["blocks", "each", "bytes"] = "blocks"
    block_size: int = 1024
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1
    secure_sum: SecureSum | bool | None = None

    def __post_init__(self) -> None:
        self.check_settings(self.block_size)

    def loop(self, algorithm: Algorithm, federation: Known, seed: int) -> Loop:
        """The loop of one run."""
        together = self.mode == "blocks" and not algorithm.private
        blocks = Blocks(rows_here(federation), self.block_size if together else 1)
        clients = LocalClients(algorithm, blocks, federation.clients, seed, self.mode == "bytes")
        return Loop(self, clients, AtOnce(), None, federation, seed)

    def beside_run(self) -> "InProcess":
        """An engine without files, for runs beside the main one, such as a certificate's."""
        return replace(self, checkpoint=None)


class AtOnce(Source):
    """The source of a run in which all who are asked answer at once; ``time`` is the seconds that
    the last round took. A round leaves nothing behind.
    """

    def send(self, ids: Ids, gradients: float) -> None:
        """Note when the round begins."""
        self.latest = time.perf_counter()

    def take(self, t: int, wait_for: int | None, in_flight: int, since: Marks) -> Batch:
        """The answers of all who are asked."""
        return Batch(np.flatnonzero(since >= 0), NO_TIMES)

    def settle(self) -> None:
        """Note how long the round took."""
        self.time = time.perf_counter() - self.latest

    def restore(self, state: None, in_flight: Ids, turns: Ids) -> None:
        """Go on; nobody is still to answer."""
        if state is not None or in_flight.size:
            raise ValueError(f"its source is {state!r:.40}, and all who are asked answer at once")


NO_TIMES: Array = np.empty(0)


# The engine of simulated time: clients answer after delays, and the server goes on without those
# who are slow.
#
# It is a discrete-event simulation. A message to client i at time t is answered at t plus the
# client's next delay (``delays.py``); time in which the client is out of reach is added. Answers
# are taken in the order of their times, and of their messages where times are equal, until the rule
# of waiting (``delays.py``) is met. They are computed when they are taken, all in one step, from
# the messages that were sent: time passes only on the clock, never in the machine.

NO_MARKS, NO_TRIPS = np.empty(0, bool), np.empty(0)


@dataclass(frozen=True)
class VirtualClock(EventEngine):
    """The engine of simulated time, in this process; two runs with one seed are equal to the bit.

    Parameters
    ----------
    delays : ``LogNormal()``, ``Constant()`` or ``Trace(...)``; a client's k-th trip takes its k-th
        delay whatever the algorithm and the rule of waiting
    stragglers : factors of some clients' delays, by name
    outages : by name, the times ``[(from, to), ...]`` when a client is out of reach: its work goes
        on when it is back
    crashes : by name, the time from which a client never answers
    wait : ``First(n)``, ``Stale(n, tau)`` or ``Adaptive(n)``; of no effect on algorithms that
        need every client's answer
    block_size : clients that step together at most; 1: one by one, bit for bit as
        ``InProcess("each")``
    max_time : end before the first round that would finish later, in virtual seconds
    keep_rows : rounds for each row of the history; the last round of a finished run has a row in
        any case
    checkpoint : file to keep the run in (overwritten by a run that does not resume), or None
    every : rounds between two writes of the checkpoint; the end, an interruption and a failure
        write it too
    secure_sum : as of ``InProcess``; ``wait`` then counts the answers of each step of a secure sum,
        and algorithms that go on while others are in flight wait for all that they ask

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> clock = bf.VirtualClock(stragglers={"Old Mill": 10.0}, max_time=30.0)
    >>> solution = bf.solve(problem, fed, engine=clock)
    >>> solution.history[-1]["time"] <= 30
    True
    """

    delays: Delays = field(default_factory=LogNormal)
    stragglers: ByClient[float] = field(default_factory=dict)
    outages: ByClient[Sequence[tuple[float, float]]] = field(default_factory=dict)
    crashes: ByClient[float] = field(default_factory=dict)
    wait: Waiting = field(default_factory=First)
    block_size: int = 64
    max_time: float | None = None
    keep_rows: int = 1
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1000
    secure_sum: SecureSum | bool | None = None

    def __post_init__(self) -> None:
        self.check_settings(self.block_size)
        for name, by in self.stragglers.items():
            if not is_number(by) or not 0 < by < math.inf:
                raise ValueError(f"stragglers[{name!r}] must be a finite factor > 0, got {by!r}.")
        for name, at in self.crashes.items():
            if not is_number(at) or math.isnan(at):
                text = f"crashes[{name!r}] must be a time in virtual seconds, got {at!r}."
                raise ValueError(text)
        for name, spans in self.outages.items():
            _check_spans(name, spans)
        if self.max_time is not None and not (is_number(self.max_time) and self.max_time >= 0):
            raise ValueError(f"max_time must be >= 0 virtual seconds, got {self.max_time!r}.")
        for name, part, verb in (("delays", self.delays, "trips"), ("wait", self.wait, "need")):
            if isinstance(part, type) or not hasattr(part, verb):
                like = "LogNormal()" if name == "delays" else "First(10)"
                raise TypeError(f"{name} must be such as {like}, got {part!r}.")

    def loop(self, algorithm: Algorithm, federation: Known, seed: int) -> Loop:
        """The loop of one run."""
        clock = _Clock(self, federation.clients, seed)
        rule = (self.delays, self.stragglers, self.outages, self.crashes, self.wait)
        clients = LocalClients(algorithm, rows_of(self, federation), federation.clients, seed)
        return Loop(self, clients, clock, rule, federation, seed)

    def beside_run(self) -> InProcess:
        """A plain engine, for runs beside the main one, such as a certificate's."""
        return InProcess(secure_sum=self.secure_sum)


def rows_of(engine: EventEngine, federation: Known) -> Rows | Blocks:
    """The rows of clients who answer at different times."""
    return (Rows if engine.block_size > 1 else Blocks)(rows_here(federation), engine.block_size)


def _check_spans(name: ClientName, spans: object) -> None:
    """Raise unless the outages of a client are pairs of times in order."""
    listed: Sequence[Any] = spans if isinstance(spans, Sequence) else [spans]
    last = -math.inf
    for span in listed:
        pair = isinstance(span, Sequence) and len(span) == 2 and all(map(is_number, span))
        if not pair or not last <= span[0] < span[1] < math.inf:
            text = f"outages[{name!r}] must be pairs (from, to) of finite times with from < to, in"
            text += f" order and apart, got {span!r}. Who never comes back belongs in crashes."
            raise ValueError(text)
        last = span[1]


@record
class ClockState:
    """The state of the clock between two rounds."""

    time: float
    sent: int  # messages so far
    made: Annotated[NDArray[np.int64], Form("N")]  # trips begun
    # seconds of each one's last finished trip; nan before it
    trip: Annotated[Array, Form("N", nan=True)]
    due: Annotated[Array, Form("N", infinite=True)]  # when its answer arrives; inf: never
    begun: Annotated[Array, Form("N")]  # when it was asked
    number: Annotated[NDArray[np.int64], Form("N")]  # the number of its message
    # clients whose answers are on their way
    coming: Annotated[NDArray[np.int64], Form("coming", below="N")]


class _Clock(Source):
    """The source of simulated times of answers; everything since ``settle`` can be undone."""

    def __init__(self, engine: VirtualClock, clients: Sequence[ClientName], seed: int) -> None:
        n, self.engine, self.clients = len(clients), engine, texts(clients)
        slow, self.away, crash = (
            by_position(getattr(engine, what), clients, what, all_clients=False)
            for what in ("stragglers", "outages", "crashes")
        )
        self.crash = {client: float(time) for client, time in crash.items()}
        factors = {self.clients[i]: by for i, by in slow.items()}
        self.trips = Trips(engine.delays, seed, self.clients, factors)
        self.time, self.sent = 0.0, 0
        self.due, self.begun, self.trip = np.zeros(n), np.zeros(n), np.full(n, np.nan)
        self.number, self.heap = np.zeros((2, n), np.int64)
        self.dues, self.size = np.zeros(n), 0
        self.taken, self.asked, self.before = NOBODY, NOBODY, 0  # since the last settle
        self.latest, self.trips_before = 0.0, NO_TRIPS

    def send(self, ids: Ids, gradients: float) -> None:
        """Enter messages to these clients, who have answered all earlier ones."""
        arrival = self.time + self.trips.next(ids, gradients)
        self.asked = ids
        if self.away or self.crash:
            listed = zip(ids.tolist(), arrival.tolist(), strict=True)
            arrival = np.array([self._arrival(i, due) for i, due in listed])
        queue = self.heap, self.dues, self.size, self.due, self.number, self.begun
        self.size = post(ids, arrival, self.time, self.sent, *queue)
        self.sent += len(ids)

    def _arrival(self, i: int, due: float) -> float:
        """The time at which a client's work is done that would be done at ``due`` if the client
        were never out of reach and did not crash.
        """
        for start, end in self.away.get(i, ()):
            if end <= self.time:
                continue
            if due <= start:
                break
            due += end - max(start, self.time)
        return due if due <= self.crash.get(i, math.inf) else math.inf

    def take(self, t: int, wait_for: int | None, in_flight: int, since: Marks) -> Batch | Outcome:
        """The next answers, or the outcome of a run that gets none."""
        count = least = in_flight
        must, left = NO_MARKS, 0
        if wait_for is not None:
            wanted, overdue = self.engine.wait.need(View(t, self.time, since, self.trip))
            least, count = wait_for, max(wait_for, min(wanted, self.size))
            if overdue.size:
                must, left = np.zeros(len(self.due), bool), len(overdue)
                must[overdue] = True
        if count > self.size or (left and np.isinf(self.due[must]).any()):
            lost = np.flatnonzero((since >= 0) & np.isinf(self.due)).tolist()
            named = ", ".join(self.clients[i] for i in lost[:5])
            named += f" and {len(lost) - 5} more" if len(lost) > 5 else ""
            whose = self.engine.wait
            who = "the algorithm needs" if least > self.size else f"{whose!r} waits for"
            return ended(Stop.STALLED, "crashes", self.time, who, named)
        most = self.size if left else count
        taken, times, before = np.empty(most, np.int64), np.empty(most), np.empty(most)
        queue = self.heap, self.dues, self.size, self.number, self.begun, self.trip
        if (total := take(count, must, left, *queue, taken, times, before)) < most:
            # some are kept
            taken, times, before = taken[:total].copy(), times[:total].copy(), before[:total].copy()
        self.taken, self.trips_before, self.size = taken, before, self.size - total
        self.latest = float(times[-1])
        if self.engine.max_time is not None and self.latest > self.engine.max_time:
            return ended(Stop.MAX_ROUNDS, "max_time", self.engine.max_time)
        return Batch(taken, times)

    def settle(self) -> None:
        """Note that the round is finished."""
        self.time = self.latest
        self.taken, self.trips_before, self.asked, self.before = NOBODY, NO_TRIPS, NOBODY, self.sent

    def undo(self) -> None:
        """Go back to the last finished round."""
        self.trip[self.taken] = self.trips_before
        self.size = put_back(self.taken, self.heap, self.dues, self.size, self.due, self.number)
        kept = self.heap[: self.size].copy()
        kept = kept[self.number[kept] < self.before]
        self.size = put_back(kept, self.heap, self.dues, 0, self.due, self.number)
        self.trips.used[self.asked] -= 1
        self.sent, self.taken, self.asked, self.trips_before = self.before, NOBODY, NOBODY, NO_TRIPS

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """The clients that have crashed by now, and the times."""
        known = sorted(self.crash.items())
        return tuple((self.clients[i], when) for i, when in known if when <= self.time)

    def stored(self) -> ClockState:
        """The state of the clock for a checkpoint."""
        coming = np.sort(self.heap[: self.size])
        trips = self.trips.used, self.trip, self.due, self.begun, self.number
        return ClockState(self.time, self.sent, *trips, coming)

    def restore(self, state: ClockState, in_flight: Ids, turns: Ids) -> None:
        """Set the clock to the state in a checkpoint; raises where no clock has it."""
        if not isinstance(state, ClockState):
            raise ValueError(f"its source is {state!r:.40}, and must be the state of a clock")
        coming = state.coming
        if not np.array_equal(coming, in_flight[np.isfinite(state.due[in_flight])]):
            raise ValueError(f"clients {coming[:5]} have answers on their way, asked or not")
        begun = turns.copy()
        begun[in_flight] += 1
        first = np.array_equal(np.isnan(state.trip), turns == 0)
        if not first or not np.array_equal(state.made, begun):
            raise ValueError("its clock has counted trips that the clients have not made")
        numbers = np.unique(state.number[in_flight])
        few, most = numbers.size < in_flight.size, numbers.max(initial=-1)
        if begun.sum() != state.sent or few or most >= state.sent:
            raise ValueError(f"its clock has numbered {state.sent} messages otherwise")
        asked, due = state.begun[in_flight], state.due[in_flight]
        early = (asked < 0) | (asked > state.time) | (due < state.time)
        if early.any() or (state.trip < 0).any():
            raise ValueError(f"its clock stands at {state.time}, with times that contradict it")

        self.time, self.sent, self.before = state.time, state.sent, state.sent
        self.trips.used, self.trip, self.due = state.made, state.trip, state.due
        self.begun, self.number = state.begun, state.number
        self.size = put_back(state.coming, self.heap, self.dues, 0, self.due, self.number)


# The engine that repeats a recorded run: the same clients answer in the same rounds, at the
# recorded times.
#
# A run whose order of events came from outside, from a simulated clock or from a network, is
# repeated bit for bit, because it depends on nothing but that order, the seed, the data and the
# algorithm.


@dataclass(frozen=True)
class Replay(EventEngine):
    """Repeat the run of a log (``Run.log``, or ``Log.load(path)``) on the same data with the same
    algorithm.

    Parameters
    ----------
    log : the events to repeat
    keep_rows, checkpoint, every, secure_sum : as of ``VirtualClock``; a run with secure sums is
        repeated with secure sums

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Simplex(), regulariser=bf.L2(0.1))
    >>> first = bf.solve(problem, fed, engine=bf.VirtualClock(max_time=20.0))
    >>> again = bf.solve(problem, fed, engine=bf.Replay(first.log))
    >>> bool((again.w == first.w).all())
    True
    """

    log: Log
    keep_rows: int = 1
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 1000
    secure_sum: SecureSum | bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.log, Log):
            text = "Replay needs a Log, such as Run.log or Log.load(path), got a"
            raise TypeError(f"{text} {type(self.log).__name__}.")
        self.check_settings(self.block_size)

    @property
    def block_size(self) -> int:
        """The block size of the recorded run, on which the last bits depend."""
        return self.log.block_size

    def seed_of(self, seed: int | None) -> int:
        """The seed of the recorded run; raises for another one."""
        if seed is not None and seed != self.log.seed:
            raise ValueError(
                f"the log is of seed {self.log.seed}, got seed {seed}: leave the seed out, and"
                " the run is repeated with that of the log."
            )
        return self.log.seed

    def loop(self, algorithm: Algorithm, federation: Known, seed: int) -> Loop:
        """The loop of the run, to the end of the recorded one.

        Raises
        ------
        ValueError : a log of other clients
        """
        if (names := texts(federation.clients)) != self.log.clients:
            raise ValueError(f"the log is of {other_clients(names, self.log.clients)}.")
        clients = LocalClients(algorithm, rows_of(self, federation), federation.clients, seed)
        return Loop(self, clients, _Recorded(self.log), (self.log,), federation, seed)

    def beside_run(self) -> InProcess:
        """A plain engine, for runs beside the main one, such as a certificate's."""
        return InProcess(secure_sum=self.secure_sum)


class _Recorded(Source):
    """The answers of a log, round by round."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def take(self, t: int, wait_for: int | None, in_flight: int, since: Marks) -> Batch | Outcome:
        """The recorded answers of this round, or the outcome at the end of the log."""
        if t == len(self.log.ends):
            return self.log.outcome or ended(Stop.INTERRUPTED, "log")
        start, end = int(self.log.ends[t - 1]) if t else 0, int(self.log.ends[t])
        ids, times = self.log.answered[start:end].astype(np.int64), self.log.times[start:end]
        least = in_flight if wait_for is None else wait_for
        known = (ids >= 0) & (ids < len(since))
        enough = len(np.unique(ids)) >= max(least, len(ids), 1)
        if not enough or not known.all() or (since[ids] < 0).any():
            asked = np.flatnonzero(since >= 0).tolist()
            raise ValueError(
                f"the log does not fit: in round {t + 1} it has {len(ids)} answers, of"
                f" {ids[:5].tolist()}, and the algorithm waits for {least} of the {in_flight}"
                f" asked, {asked[:5]}. Replay needs the run's algorithm."
            )
        self.latest = float(times[-1])
        return Batch(ids, times)

    def crashed(self) -> tuple[tuple[str, float], ...]:
        """The recorded crashes."""
        return self.log.crashed

    def stored(self) -> float:
        """The time, for a checkpoint."""
        return self.time

    def restore(self, state: float, in_flight: Ids, turns: Ids) -> None:
        """Set the time to that in a checkpoint."""
        if type(state) is not float:
            raise ValueError(f"its source is {state!r:.40}, and must be the time of a replay")
        self.time = self.latest = state
