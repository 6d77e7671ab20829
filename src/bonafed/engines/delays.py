"""When clients answer: models of delays in virtual seconds, the queue of answers that are on their
way, and rules of waiting.

A client's k-th trip has its k-th delay, whatever else runs.

    delay_{i,k} = straggler_i · scale_i · (trip_{i,k} + per_gradient · gradients)

A delay depends on (seed, the client's name, k) only: other clients, other methods and other rules
of waiting do not change a client's delays. Trips are drawn ``CHUNK`` at a time from a counter-based
stream (Philox) of the client.
"""

import csv
import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.arrays import INNER, ONE_STREAM, Array, is_number, stream_key
from bonafed.parameters import Checked

CHUNK = 64  # trips drawn at once, for speed; another number would be another sequence of delays


class Delays(Protocol):
    """A model of the clients' delays."""

    @property
    def per_gradient(self) -> float:
        """The part of a trip that grows with the gradients a message asks for."""
        ...

    def scale(self, seed: int, client: str, n: int) -> float:
        """The factor of one client; ``n`` is its position in the federation."""
        ...

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """(CHUNK,) the trips ``chunk * CHUNK`` and on of one client, without its factor."""
        ...


@functools.lru_cache(maxsize=2**14)
def _key(seed: int, client: str) -> NDArray[np.uint64]:
    return stream_key(seed, client, b"bonafed delays")  # no algorithm uses these streams


def _stream(seed: int, client: str, counter: int) -> np.random.Generator:
    """The generator of one stream of a client, until the next call."""
    return ONE_STREAM.at(_key(seed, client), counter)


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not (is_number(value) and math.isfinite(value) and value >= 0):
            text = f"{name} must be a finite number >= 0, got {value!r}: it is part of a delay."
            raise ValueError(text)


@dataclass(frozen=True)
class LogNormal(Checked):
    """Lognormal delays: some clients are slower than others, and the trips of a client differ.

    ``unit · exp(client_sigma · z_i) · (exp(sigma · z_{i,k}) + per_gradient · gradients)`` with
    standard normal z.

    Parameters
    ----------
    sigma : spread of one client's trips
    client_sigma : spread between clients
    per_gradient : the part of a trip that grows with the gradients a message asks for
    unit : the unit of all delays, in virtual seconds

    Examples
    --------
    >>> import bonafed as bf
    >>> clock = bf.VirtualClock(delays=bf.LogNormal(sigma=0.5, unit=2.0))  # some two seconds
    >>> clock.delays.unit
    2.0
    """

    sigma: float = 0.3
    client_sigma: float = 0.3
    per_gradient: float = 0.1
    unit: float = 1.0

    def __post_init__(self) -> None:
        _not_negative(**vars(self))

    def scale(self, seed: int, client: str, n: int) -> float:
        """The factor of one client."""
        z = _stream(seed, client, 0).standard_normal()
        return self.unit * math.exp(self.client_sigma * z)

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """The trips of one client."""
        return np.exp(self.sigma * _stream(seed, client, chunk + 1).standard_normal(CHUNK))


@dataclass(frozen=True)
class Constant(Checked):
    """Constant delays: every trip takes ``seconds + per_gradient · gradients``; clients differ by
    their factor in ``stragglers`` only.

    Examples
    --------
    >>> import bonafed as bf
    >>> clock = bf.VirtualClock(delays=bf.Constant(seconds=1.0, per_gradient=0.1))
    >>> clock.delays.seconds
    1.0
    """

    seconds: float = 1.0
    per_gradient: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(**vars(self))

    def scale(self, seed: int, client: str, n: int) -> float:
        """One."""
        return 1.0

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """Equal trips."""
        return np.full(CHUNK, float(self.seconds))


@dataclass(frozen=True, eq=False)
class Trace(Checked):
    """Recorded delays; after a client's last delay its record starts again.

    Parameters
    ----------
    recorded : the delays of every client in seconds: a mapping by name, an array (N, trips) in the
        order of the federation, or a CSV file with the columns client and delay, one row a trip, in
        order

    Examples
    --------
    >>> import bonafed as bf
    >>> recorded = bf.Trace({"north": [1.0, 1.2], "east": [3.0]})
    >>> bf.VirtualClock(delays=recorded).delays is recorded
    True
    """

    # afterwards a mapping of arrays
    recorded: Annotated[
        Any,
        str
        | os.PathLike[str]
        | Mapping[Any, Sequence[float] | Array]
        | Sequence[list[float] | Array]
        | Array,
    ]
    per_gradient: float = 0.0

    def __post_init__(self) -> None:
        _not_negative(per_gradient=self.per_gradient)
        known = self.recorded
        known = _read(Path(known)) if isinstance(known, str | os.PathLike) else known
        named = known.items() if isinstance(known, Mapping) else enumerate(known)
        object.__setattr__(self, "recorded", {key: _delays(key, values) for key, values in named})

    def scale(self, seed: int, client: str, n: int) -> float:
        """One."""
        return 1.0

    def trips(self, seed: int, client: str, n: int, chunk: int) -> Array:
        """The recorded trips."""
        delays = self.recorded.get(client, self.recorded.get(n))
        if delays is None:
            do = "record some, or restrict the federation."
            raise ValueError(f"the trace has no delays of client {client}: {do}")
        return delays[(chunk * CHUNK + np.arange(CHUNK)) % len(delays)]


def _read(path: Path) -> dict[str, list[Any]]:
    """The delays in a file by client, as text."""
    delays: dict[str, list[Any]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            if not {"client", "delay"} <= set(names := table.fieldnames or ()):
                needs = f"{path.name} needs the columns client and delay"
                raise ValueError(f"{needs}, got {', '.join(names)}")
            for row in table:
                delays.setdefault(row["client"], []).append(row["delay"])
        return delays
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path} of recorded delays") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path.name} is not a CSV file of recorded delays: {error}") from error


def _delays(client: str | int, values: Sequence[Any]) -> Array:
    try:
        delays = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        delays = np.empty(0)
    if delays.ndim != 1 or not delays.size or not np.isfinite(delays).all() or delays.min() < 0:
        text = f"recorded: the trace of client {client} needs one or more finite delays >= 0, got"
        raise ValueError(f"{text} {values!r:.60}")
    return delays


class Trips:
    """The delays of all clients' trips in order; delays that are drawn are stored until they are
    used.
    """

    def __init__(
        self, model: Delays, seed: int, clients: Sequence[str], factors: Mapping[str, float]
    ) -> None:
        self.model, self.seed, self.clients = model, seed, tuple(clients)
        scale = [factors.get(one, 1.0) * model.scale(seed, one, n) for n, one in enumerate(clients)]
        self.scale = np.array(scale)
        self.drawn = np.empty((len(clients), CHUNK))
        self.chunk = np.full(len(clients), -1, np.int64)  # the number of the CHUNK trips in drawn
        self.used = np.zeros(len(clients), np.int64)  # trips so far

    def next(self, ids: NDArray[np.int64], gradients: float) -> Array:
        """The delays of these clients' next trips."""
        delays, more, done = np.empty(len(ids)), float(self.model.per_gradient * gradients), 0
        tables = self.scale, self.drawn, self.chunk, self.used
        while (done := draw(ids, done, more, *tables, delays)) < len(ids):
            i = int(ids[done])
            chunk = int(self.used[i]) // CHUNK
            self.drawn[i] = self.model.trips(self.seed, self.clients[i], i, chunk)
            self.chunk[i] = chunk
        return delays


# A compiled priority queue of the answers that are on their way, in the order of their arrival.
#
# There is one entry per client, as no client is asked twice. ``heap[:size]`` holds the clients as a
# binary heap, ordered by the time of arrival ``dues[:size]``, then by the number of the message.


@njit(cache=True)
def draw(ids, start, more, scale, drawn, chunk, used, delays):
    """Write the next delay of each client to ``delays`` and return the number of clients.

    Where a client's next delay is not drawn yet, nothing is written and the result is its position;
    the clients before ``start`` are not checked again.
    """
    length = drawn.shape[1]
    for p in range(start, len(ids)):
        if used[ids[p]] // length != chunk[ids[p]]:
            return p
    for p in range(len(ids)):
        i = ids[p]
        delays[p] = scale[i] * (drawn[i, used[i] % length] + more)
        used[i] += 1
    return len(ids)


@njit(cache=True)
def post(ids, arrival, now, first, heap, dues, size, due, number, begun):
    """Enter messages to these clients, numbered from ``first``, and return the queue's new size.

    A message with an infinite time of arrival is never answered.
    """
    for p in range(len(ids)):
        i = ids[p]
        due[i], number[i], begun[i] = arrival[p], first + p, now
        if arrival[p] < float("inf"):
            size = _up(heap, dues, size, i, arrival[p], number)
    return size


@njit(cache=True)
def put_back(ids, heap, dues, size, due, number):
    """Enter answers again that were taken, and return the queue's new size."""
    for p in range(len(ids)):
        size = _up(heap, dues, size, ids[p], due[ids[p]], number)
    return size


@njit(cache=True)
def take(count, must, left, heap, dues, size, number, begun, trip, taken, times, before):
    """Take at least ``count`` answers, the ``left`` marked in ``must`` among them, and return how
    many were taken.

    Their clients are written to ``taken``, the times of arrival to ``times``, the clients' trips so
    far to ``before``; ``trip`` becomes that of this answer.
    """
    total = 0
    while total < count or left > 0:
        i, due = heap[0], dues[0]
        size -= 1
        _down(heap, dues, size, number)
        taken[total], times[total], before[total] = i, due, trip[i]
        trip[i] = due - begun[i]
        total += 1
        if left > 0 and must[i]:
            left -= 1
    return total


@njit(cache=True, **INNER)
def _up(heap, dues, size, i, due, number):
    """Enter client i, whose answer arrives at ``due``."""
    place = size
    while place > 0:
        above = (place - 1) // 2
        if dues[above] < due or (dues[above] == due and number[heap[above]] < number[i]):
            break
        heap[place], dues[place] = heap[above], dues[above]
        place = above
    heap[place], dues[place] = i, due
    return size + 1


@njit(cache=True, **INNER)
def _down(heap, dues, size, number):
    """Remove the first entry: the last of ``heap[: size + 1]`` is entered in its place."""
    i, due, place = heap[size], dues[size], 0
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size:
            below += _sooner(below + 1, below, heap, dues, number)  # hard to foresee: no branch
        if due < dues[below] or (due == dues[below] and number[i] < number[heap[below]]):
            break
        heap[place], dues[place] = heap[below], dues[below]
        place = below
    if size > 0:
        heap[place], dues[place] = i, due


@njit(cache=True, **INNER)
def _sooner(a, b, heap, dues, number):
    if dues[a] == dues[b]:
        return number[heap[a]] < number[heap[b]]
    return dues[a] < dues[b]


# Rules of waiting: for whose answers an asynchronous server waits before it goes on.
#
# A rule is a function of what a server can know (`View`): how many answers are needed, and whose
# must be among them. It has no state and draws no random numbers, so that a run can be repeated. An
# algorithm that needs the answers of all clients gets them under every rule.

NOBODY = np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class View:
    """The facts that a server knows when its messages are on their way; its arrays must not be
    written to.

    Attributes
    ----------
    round : finished rounds t
    time : the time of the last answer, in virtual seconds
    sent : (N,) the finished rounds when each client in flight was asked; -1: not in flight
    trip : (N,) seconds from message to answer, of each one's last answer; nan before it
    """

    round: int
    time: float
    sent: NDArray[np.int32]
    trip: Array


class Waiting(Protocol):
    """A rule that says for whose answers the server waits."""

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """The least number of answers, and the clients whose answers must be among them."""
        ...


def _whole(name: str, value: float, least: int) -> None:
    if not is_number(value) or not least <= value < math.inf or value != int(value):
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}.")


@dataclass(frozen=True)
class First(Checked):
    """The server goes on with the first ``n`` answers, or where fewer clients in flight can still
    answer, with all of theirs.

    Examples
    --------
    >>> import bonafed as bf
    >>> bf.VirtualClock(wait=bf.First(10)).wait.n  # the server goes on with ten answers
    10
    """

    n: int = 1

    def __post_init__(self) -> None:
        _whole("n", self.n, 1)

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """n answers, of any clients."""
        return self.n, NOBODY


@dataclass(frozen=True)
class Stale(Checked):
    """The server waits for the first ``n`` answers, and for every client whose message would
    otherwise become older than ``tau`` rounds.

    In round t + 1 the server waits for all clients asked after round s with t + 1 - s > tau, so no
    answer is older than ``tau`` rounds. ``tau = 0`` is synchronous.

    Examples
    --------
    >>> import bonafed as bf
    >>> bf.VirtualClock(wait=bf.Stale(n=1, tau=10)).wait.tau  # and waits for older messages
    10
    """

    n: int = 1
    tau: int = 10

    def __post_init__(self) -> None:
        _whole("n", self.n, 1)
        _whole("tau", self.tau, 0)

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """n answers, those of the overdue clients among them."""
        return self.n, np.flatnonzero((view.sent >= 0) & (view.sent <= view.round - self.tau))


@dataclass(frozen=True)
class Adaptive(Checked):
    """The server waits for all clients while none is slow, else for the first ``n``: the rule of
    ASPIRE-ADP, (36)-(37).

    A client is slow when its last trip, from message to answer, exceeds a threshold: ``threshold``
    seconds where this is set, else ``factor`` times the ``centre`` of all clients' last trips. With
    the mean as centre, as in the paper, the rule never fires when half of the clients or more are
    slow. Until all clients have answered once, the server waits for all.

    Parameters
    ----------
    n : answers to wait for when a client is slow
    factor, centre : the threshold as a multiple of the "median" or the "mean" of all last trips
    threshold : in virtual seconds; None: by ``factor`` and ``centre``
    as_printed : (36) as the paper prints it, the other way round: wait for all when a client is
        slow. For study only

    Examples
    --------
    >>> import bonafed as bf
    >>> bf.VirtualClock(wait=bf.Adaptive(n=2)).wait.n  # two, as soon as somebody is slow
    2
    """

    n: int = 1
    factor: float = 2.0
    centre: Literal["median", "mean"] = "median"
    threshold: float | None = None
    as_printed: bool = False

    def __post_init__(self) -> None:
        _whole("n", self.n, 1)
        for name, value in (("factor", self.factor), ("threshold", self.threshold)):
            unset = value is None and name == "threshold"
            if not unset and not (is_number(value) and float(value or 0) > 0):
                raise ValueError(f"{name} must be > 0, got {value!r}.")

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """All answers, or n of any clients."""
        trip = view.trip
        if np.isnan(trip).any():
            return len(trip), NOBODY
        middle = float(np.median(trip) if self.centre == "median" else trip.mean())
        limit = self.factor * middle if self.threshold is None else self.threshold
        slow = bool(trip.max() > limit)
        return (len(trip) if slow is self.as_printed else self.n), NOBODY
