"""Schedules of the penalty rho of an ADMM, as values.

A schedule answers ``first(n)`` and ``after(now) -> (rho, patience)``: the penalty of the next
iteration from the number of the iteration and the sizes of the residuals. ``patience`` is its own
memory, one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

FROZEN = 1e12  # a rho at which nothing moves any more; what grows beyond overflows in the end


@dataclass(frozen=True)
class Progress:
    """The numbers that a schedule may depend on."""

    k: int  # iterations done
    rho: float
    primal: float  # ||z - (D w - b)||, relative to the larger of its parts
    dual: float  # rho ||D (w - w_before)||, relative to the multiplier
    gap: float  # ||z - (D w - b)|| itself
    patience: float


class Penalty(Protocol):
    """A schedule of penalties."""

    def first(self, n: int) -> float:
        """rho_0 for n rows."""
        ...

    def after(self, now: Progress) -> tuple[float, float]:
        """(rho, patience) of the next iteration."""
        ...


def _checked(schedule: object, name: str, right: bool, needed: str) -> None:
    if not right:
        raise ValueError(
            f"{type(schedule).__name__}.{name} must be {needed}, got {getattr(schedule, name)!r}:"
            " penalties are positive and do not fall."
        )


@dataclass(frozen=True)
class Balanced:
    """A penalty that keeps both residuals of one size.

    Changes become rarer by a factor, without which they can cycle.

    Parameters
    ----------
    scale : rho_0 = scale / n; the multipliers of n rows are of size 1 / n
    every : iterations before the first change
    damping : factor by which the wait grows at every change

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(penalty=bf.Balanced(scale=0.3))
    >>> bf.solve(problem, fed.pooled(), algorithm=method).outcome.stop.value
    'optimal'
    """

    scale: float = 0.3
    every: int = 10
    damping: float = 1.3

    def first(self, n: int) -> float:
        return self.scale / n

    def after(self, now: Progress) -> tuple[float, float]:
        due = now.patience or float(self.every)
        if now.k < due or min(now.primal, now.dual) <= 0:
            return now.rho, due
        ratio = math.sqrt(now.primal / now.dual)
        wait = (due - now.k) + max(self.every, due * (self.damping - 1))
        if 0.7 <= ratio <= 1.5:
            return now.rho, now.k + max(wait, self.every)
        return now.rho * min(max(ratio, 0.2), 5.0), now.k + max(wait, self.every)


@dataclass(frozen=True)
class Growing:
    """rho_k = start * factor^floor(max(0, k - delay) / every), at most ``limit``.

    Table 6 of the paper: SRM ``Growing(1e-5, 1.2)``, AoRR ``Growing(2e-7, 5, every=3, delay=7)``.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(penalty=bf.Growing(start=1e-3))
    >>> bf.solve(problem, fed.pooled(), algorithm=method).outcome.stop.value
    'optimal'
    """

    start: float = 2e-7
    factor: float = 1.02
    every: int = 1
    delay: int = 0
    limit: float = FROZEN

    def __post_init__(self) -> None:
        _checked(self, "start", self.start > 0, "> 0")
        _checked(self, "factor", self.factor >= 1, ">= 1")
        _checked(self, "every", self.every >= 1, ">= 1")

    def first(self, n: int) -> float:
        return self.start

    def after(self, now: Progress) -> tuple[float, float]:
        power = max(0, now.k - self.delay) // self.every
        beyond = power * math.log(self.factor) > 600  # of any float
        return self.limit if beyond else min(self.start * self.factor**power, self.limit), 0.0


@dataclass(frozen=True)
class ByResidual:
    """A penalty that grows by ``slow`` while ||z - Dw|| > threshold, then by ``fast``.

    This is EHRM in Table 6 of the paper.

    At most ``limit``.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(penalty=bf.ByResidual(start=1e-3))
    >>> bf.solve(problem, fed.pooled(), algorithm=method).outcome.stop.value
    'optimal'
    """

    start: float = 1e-4
    slow: float = 1.02
    fast: float = 1.07
    threshold: float = 1e-2
    limit: float = FROZEN

    def first(self, n: int) -> float:
        return self.start

    def after(self, now: Progress) -> tuple[float, float]:
        return (
            min(now.rho * (self.slow if now.gap > self.threshold else self.fast), self.limit),
            0.0,
        )
