"""Whom an asynchronous server waits for before it goes on.

A rule looks at what a server can know (`View`) and says how many answers it needs and whose must be
among them. It has no state and draws nothing, so a run can be repeated. An algorithm that needs the
answers of all has them all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array, is_number

NOBODY = np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class View:
    """What the server knows when its messages are on their way; its arrays are not to be written
    to.

    Attributes
    ----------
    round : finished rounds t
    time : of the last answer, in virtual seconds
    sent : (N,) the finished rounds when each client in flight was asked; -1: not in flight
    trip : (N,) seconds from message to answer, of each one's last answer; nan before it
    """

    round: int
    time: float
    sent: NDArray[np.int64]
    trip: Array


class Waiting(Protocol):
    """A rule of waiting."""

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """The least number of answers, and the clients whose answers must be among them."""
        ...


def _whole(name: str, value: Any, least: int) -> None:
    if not is_number(value) or not least <= value < math.inf or value != int(value):
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}.")


@dataclass(frozen=True)
class First:
    """Go on with the first ``n`` answers (with all of those in flight that can still answer where
    they are fewer).
    """

    n: int = 1

    def __post_init__(self) -> None:
        _whole("n", self.n, 1)

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """n answers, of anybody."""
        return self.n, NOBODY


@dataclass(frozen=True)
class Stale:
    """The first ``n`` answers, and the answer of everybody whose message would else be older than
    ``tau`` rounds.

    In round t + 1 everybody asked after round s with t + 1 - s > tau is waited for, so no answer is
    older than ``tau`` rounds. ``tau = 0`` is synchronous.
    """

    n: int = 1
    tau: int = 10

    def __post_init__(self) -> None:
        _whole("n", self.n, 1)
        _whole("tau", self.tau, 0)

    def need(self, view: View) -> tuple[int, NDArray[np.intp]]:
        """n answers, those of the overdue among them."""
        return self.n, np.flatnonzero((view.sent >= 0) & (view.sent <= view.round - self.tau))


@dataclass(frozen=True)
class Adaptive:
    """Everybody while nobody is slow, else the first ``n``: the rule of ASPIRE-ADP, (36)-(37).

    Someone is slow when the longest of the clients' last trips, from message to answer, exceeds a
    threshold: ``threshold`` seconds where given, else ``factor`` times the ``centre`` of the trips.
    With the mean as centre, as in the paper, the rule never fires when half of the clients or more
    are slow. Until everybody has answered once, everybody is waited for.

    Parameters
    ----------
    n : answers to wait for when someone is slow
    factor, centre : the threshold as a multiple of the "median" or the "mean" of all last trips
    threshold : in virtual seconds; None: by ``factor`` and ``centre``
    as_printed : (36) as the paper prints it, the other way round: everybody when someone is slow.
        For study only
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
        """Everybody or n, of anybody."""
        trip = view.trip
        if np.isnan(trip).any():
            return len(trip), NOBODY
        middle = float(np.median(trip) if self.centre == "median" else trip.mean())
        limit = self.factor * middle if self.threshold is None else self.threshold
        slow = bool(trip.max() > limit)
        return (len(trip) if slow is self.as_printed else self.n), NOBODY
