"""What no rows can answer where the rows of all clients are ranked together: the claims of counts
and sums over a client's rows.

With n rows of losses l_i >= 0: n min l <= sum l <= n max l, the sum of losses is convex in the
model, and the number of rows above a threshold is whole, at most n and falls with the threshold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.problem.claims import AllRows, Claim, Known, Number, Tangent, Told, Whole
from quorate.problem.plausible import Claims, of_lagrangian, zero_loss
from quorate.problem.problem import Problem
from quorate.problem.rank_cuts import Ranged, Sliced, Tallied


@dataclass(frozen=True)
class Counts:
    """How many rows have a loss above each threshold."""

    edges: Array  # (..., M)
    counts: Array  # (..., M)

    def held(self, told: Told) -> tuple[Told, str]:
        if self.counts.shape != self.edges.shape:
            return (
                told,
                f"{self.counts.size} numbers of rows, where {self.edges.size} were asked for",
            )
        order = np.argsort(self.edges, axis=-1, kind="stable")
        falls = np.diff(np.take_along_axis(self.counts, order, -1), axis=-1) <= 0
        if not falls.all():
            return told, "more rows above a larger threshold"
        most = np.inf if told.rows is None else told.rows
        whole = Whole("a number of rows", self.counts), Number("a number", self.counts, 0.0, most)
        return told, next(filter(None, (claim.held(told)[1] for claim in whole)), "")


def of_losses(
    problem: Problem, w: Array, rows: float, total: Any, largest: Any, smallest: Any = None
) -> Iterator[Claim]:
    """Those of the losses of so many rows at a model, zeros where it is empty."""
    total, largest = float(np.sum(total)), float(np.sum(largest))
    least = 0.0 if smallest is None else -float(np.sum(smallest))
    zero = zero_loss(problem) if not np.any(w) else None
    yield Number("a smallest loss", least, zero or 0.0, largest if zero is None else zero)
    yield Number("a largest loss", largest, zero or 0.0, np.inf if zero is None else zero)
    yield Number("a sum of losses", total, rows * least, rows * largest)
    if len(w):
        yield from of_sum(problem, w, total, None, rows)


def of_sum(
    problem: Problem, w: Array, total: Any, slope: Array | None, rows: float | None = None
) -> Iterator[Claim]:
    """Those of the sum of the losses of all rows at a model, and of its slope."""
    key, total = ("sum", len(w)), np.reshape(np.asarray(total, float), 1)
    yield Number("a sum of losses", total)
    if rows is not None and (zero := zero_loss(problem)) is not None:
        yield Known(key, len(w), rows * zero)
    yield Tangent(key, "sum of losses", w, total, None if slope is None else slope.reshape(1, -1))


def of_range(problem: Problem, w: Array, up: Any) -> Iterator[Claim]:
    """Those of the range of losses."""
    zero = zero_loss(problem) if not np.any(w) else None
    low, high = -float(up.smallest[0]), float(up.largest[0])
    yield Number("a smallest loss", low, zero or 0.0, high if zero is None else zero)
    if zero is not None:
        yield Number("a largest loss", high, zero, zero)


def ranks(problem: Problem) -> Claims:
    """The claims of the uploads of cuts by rank."""

    def ranged(who: int, ask: Any, up: Ranged) -> Iterator[Claim]:
        yield AllRows(float(up.rows[0]))
        yield from of_range(problem, ask.w, up)
        yield Whole("a number of coefficients", up.width)

    def tallied(who: int, ask: Any, up: Tallied) -> Iterator[Claim]:
        yield from of_range(problem, ask.w, up)
        yield Counts(ask.edges, up.above[0])
        beyond = ask.edges >= float(up.largest[0])
        yield Number("a number of rows above the largest loss", up.above[0][beyond], 0.0, 0.0)

    def sliced(who: int, ask: Any, up: Sliced) -> Iterator[Claim]:
        yield Number("a weighted sum of losses", up.value)
        yield from of_lagrangian(problem, ask.w, up.hessian)
        yield from of_lagrangian(problem, ask.w, up.spread)

    return {Ranged: ranged, Tallied: tallied, Sliced: sliced}
