"""Rules of waiting: for whose answers an asynchronous server waits before it goes on.

A rule is a function of what a server can know (`View`): how many answers are needed, and whose must
be among them. It has no state and draws no random numbers, so that a run can be repeated. An
algorithm that needs the answers of all clients gets them under every rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, is_number

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
    sent: NDArray[np.int64]
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
class First:
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
class Stale:
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
class Adaptive:
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
    centre: str = "median"
    threshold: float | None = None
    as_printed: bool = False

    def __post_init__(self) -> None:
        _whole("n", self.n, 1)
        for name, value in (("factor", self.factor), ("threshold", self.threshold)):
            if not (is_number(value) and float(value or 0) > 0) and not (
                value is None and name == "threshold"
            ):
                raise ValueError(f"{name} must be > 0, got {value!r}.")
        if self.centre not in ("median", "mean"):
            raise ValueError(f'centre must be "median" or "mean", got {self.centre!r}.')

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """All answers, or n of any clients."""
        trip = view.trip
        if np.isnan(trip).any():
            return len(trip), NOBODY
        middle = float(np.median(trip) if self.centre == "median" else trip.mean())
        limit = self.factor * middle if self.threshold is None else self.threshold
        slow = bool(trip.max() > limit)
        return (len(trip) if slow is self.as_printed else self.n), NOBODY
