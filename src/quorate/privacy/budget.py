"""What a user states: one total (epsilon, delta) for every record, whatever is run within it."""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ADJACENCY = {"add-remove": 1.0, "replace": 2.0}  # how far one record moves a sum of vectors of length 1

LARGEST = 1e4  # epsilon
MOST = 2**53  # rows: doubles count no further


class BudgetSpentError(ValueError):
    """A run or a round would spend more than the budget allows. Nothing was released."""


class NoPrivacyWarning(UserWarning):
    """A run adds noise that gives no guarantee of privacy."""


@dataclass(frozen=True)
class Budget:
    """A total (epsilon, delta): for two data sets that differ in one record and any set S of what may leave the owners

        P(S | one) <= exp(epsilon) P(S | other) + delta.

    Records of different clients are different records, so that every client has the whole budget (parallel
    composition); whoever has records at several clients adds up. Clients are known by their names.

    Proved for noise of real numbers; computers add doubles, see ``quorate.privacy.noise``. Choices made after a look at
    the data but outside the runs (of rows, of scaling, of epsilon) are not covered.

    Parameters
    ----------
    epsilon : > 0, at most 1e4; 1 is a strong promise, above 10 is hardly one
    delta : in (0, 1), well below one over the number of records
    adjacency : "add-remove": the data sets differ by one record more or less; "replace": one record is another one
    sizes : rows of every client as declared to everybody ({client: rows}, or one number for all): they weigh the
        clients and scale the noise, and need not be true; who is declared by name takes part without rows, too. None:
        the true sizes, which then are public; the promise of "add-remove" is then about a record that counts or counts
        for nothing while its place is known
    book : file in which all runs on these data write what they spend, before they touch the data; None: the promise is
        that of each run by itself, and those of several runs add up

    Raises
    ------
    ValueError
        for numbers out of range
    """

    epsilon: float
    delta: float
    adjacency: str = "add-remove"
    sizes: Mapping[str, int] | int | None = None
    book: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name, value in (("epsilon", self.epsilon), ("delta", self.delta)):
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not _finite(value):
                raise ValueError(f"{name} must be a finite number, got {value!r}.")
            object.__setattr__(self, name, float(value))
        if self.epsilon <= 0:
            raise ValueError(
                f"epsilon must be > 0, got {self.epsilon}: the noise grows as 1 / epsilon. For no privacy leave "
                "privacy out of the Problem."
            )
        if self.epsilon > LARGEST:
            raise ValueError(
                f"epsilon must be at most {LARGEST:g}, got {self.epsilon:g}: that is no promise, and its noise would "
                "be lost in rounding. For no privacy leave privacy out of the Problem."
            )
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta must be in (0, 1), got {self.delta}: it is the probability with which the promise of epsilon "
                "may fail, such as 1e-6."
            )
        if not isinstance(self.adjacency, str) or self.adjacency not in ADJACENCY:
            raise ValueError(f"adjacency must be one of {', '.join(ADJACENCY)}, got {self.adjacency!r}.")
        if self.book is not None and (not isinstance(self.book, str | os.PathLike) or not os.fspath(self.book)):
            raise ValueError(f"book must be the path of a file, got {self.book!r}.")
        declared = self.sizes.values() if isinstance(self.sizes, Mapping) else [1 if self.sizes is None else self.sizes]
        if not all(_whole(n) for n in declared):
            raise ValueError(f"sizes must be whole numbers >= 1 and at most {MOST:g}, got {self.sizes!r}.")

    @property
    def spread(self) -> float:
        """How far one record moves a sum of vectors of length 1."""
        return ADJACENCY[self.adjacency]

    def sizes_of(self, clients: tuple[str, ...], found: Any) -> tuple[int, ...]:
        """The public size of every client."""
        if self.sizes is None:
            return tuple(int(n) for n in found)
        if isinstance(self.sizes, Mapping):
            missing = [name for name in clients if name not in self.sizes]
            if missing:
                raise ValueError(f"sizes has no entry for {', '.join(missing[:5])}: declare every client's rows.")
            sizes = [self.sizes[name] for name in clients]
        else:
            sizes = [self.sizes] * len(clients)
        return tuple(int(n) for n in sizes)


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # of a whole number or a fraction that no double holds
        return False


def _whole(n: Any) -> bool:
    real = isinstance(n, numbers.Real) and not isinstance(n, bool) and _finite(n)
    return real and 1 <= float(n) <= MOST and float(n).is_integer()
