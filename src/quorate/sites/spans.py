"""On how many people sums hang, and what combinations of sums tell of single people.

    n_eff(s) = (sum_p |s_p|)^2 / sum_p s_p^2          of the slopes s_p of people in one sum

is their number where all are equal, and 1 where one is all. Of several sums, with Q an orthonormal
basis of their slopes,

    share_p = ||Q_p||^2 = max { (S c)_p^2 / ||S c||^2 : c }

(the spectral norm, where a person has several rows) is the largest part that a person has in any
combination S c of the sums, whatever their number and scale: where it is 1, a combination of
answers is this person's row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.arrays import Array

Index = NDArray[np.intp]
Keys = NDArray[np.uint64]
ROUNDING = 8 * float(np.finfo(float).eps)  # relative to slopes that count 1
NEW = 1e-8  # of a vector: what is left of it is less where others make it up
SOME = 256  # rows that are looked at first
TURN = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no two turns of a key are the same number


class Slopes(NamedTuple):
    """The slopes of one sum, or of the sums over groups, relative to the largest weight of a row.

    Attributes
    ----------
    kind : of x_j, or of x_j x_j'
    rows : (m,), or (m, C) of C predictions a row
    group : (m,) whose sum a row is in, -1 of none; None: all are in one
    """

    kind: str
    rows: Array
    group: Index | None

    def sums(self) -> Iterator[Array]:
        """(m,) or (m, C) the slopes of every sum, and of all groups together."""
        yield self.rows
        if self.group is not None:
            for g in range(self.group.max(initial=-1) + 1):
                yield _where(self.group == g, self.rows)

    def placed(self, at: Index, size: int) -> Slopes:
        """The same among more rows."""
        rows, group = np.zeros((size, *self.rows.shape[1:])), self.group
        rows[at] = self.rows
        if self.group is not None:
            group = np.full(size, -1)
            group[at] = self.group
        return Slopes(self.kind, rows, group)


def fewest(one: Slopes, other: Slopes | None, people: Index | None) -> float:
    """The least n_eff of the sums, or of their differences to those of another answer; sums in
    which all is zero, or rounding, count as inf.

    ``people`` (m,) are the people whose rows these are, as numbers; None: each has one row.
    """
    if other is None:
        return min(_effective(each, people) for each in one.sums())
    if _differs(one.rows, other.rows):
        return np.inf
    pairs = ((a, b) for a in one.sums() for b in other.sums() if _overlap(a, b))
    return min((_effective(_away(a, b), people) for a, b in pairs), default=np.inf)


def fewest_of(least: float, rows: Array, others: Sequence[tuple[Array, float]]) -> float:
    """As of `fewest` of one sum (m,) to several others (m,), each with its `largest` slope and each
    row another person's; inf where all are ``least`` or more.
    """
    every = max(1, len(rows) // SOME)
    some, top, found = rows[::every], largest(rows), np.inf
    for other, size in others:
        # n_eff >= sum |s_p| / max |s_p|, of which a part of the rows often shows enough
        if not np.abs(some - other[::every]).sum() >= least * (top + size):
            found = min(found, _effective(_away(rows, other), None))
    return found if found < least else np.inf


def largest(rows: Array) -> float:
    """The largest size of a slope."""
    return float(np.abs(rows).max(initial=0.0))


class Span:
    """An orthonormal basis of slopes, by rows that may become more.

    Attributes
    ----------
    basis : (m, K)
    share : (m,) the squares of its rows added up
    """

    def __init__(self) -> None:
        self.basis, self.share = np.zeros((0, 0), order="F"), np.zeros(0)

    def grown(self, size: int) -> None:
        """More rows, of which nothing is told."""
        more = size - len(self.share)
        self.basis = np.pad(self.basis, ((0, more), (0, 0)))
        self.share = np.pad(self.share, (0, more))

    def added(self, vectors: Sequence[Array]) -> list[Array]:
        """What (m,) vectors add to the basis."""
        new: list[Array] = []
        for vector in vectors:
            length = float(np.linalg.norm(vector))
            left = vector / length if length else vector
            for _ in range(2):  # twice is enough
                left = left - self.basis @ (self.basis.T @ left)
                for each in new:
                    left = left - each * (each @ left)
            if (length := float(np.linalg.norm(left))) > NEW:
                new.append(left / length)
        return new

    def largest(self, new: Sequence[Array], people: Index | None) -> float:
        """The largest share of a person with what is added."""
        share = self.share + sum((each**2 for each in new), np.zeros(len(self.share)))
        if people is None:
            return float(share.max(initial=0.0))
        most, basis = 0.0, np.column_stack([self.basis, *new])
        total = np.bincount(people, share)  # at least the spectral norm, squared
        for person in np.argsort(-total):
            if total[person] <= most:
                break
            most = max(most, float(np.linalg.norm(basis[people == person], 2)) ** 2)
        return most

    def add(self, new: Sequence[Array]) -> None:
        """Take what is added over."""
        if new:
            self.basis = np.asfortranarray(np.column_stack([self.basis, *new]))
            self.share = self.share + sum(each**2 for each in new)


def vectors(slopes: Sequence[Slopes]) -> list[Array]:
    """(m,) the slopes of every sum by every prediction."""
    return [
        column
        for one in slopes
        for each in one.sums()
        for column in (each.T if each.ndim == 2 else each[None])
    ]


def numbered(people: Keys) -> Keys:
    """A number for each row of each person, the same wherever the row is."""
    order = np.argsort(people, kind="stable")
    ordered, turn = people[order], np.empty(len(people), np.uint64)
    turn[order] = (np.arange(len(people)) - np.searchsorted(ordered, ordered)).astype(np.uint64)
    return people + TURN * turn


def _effective(slopes: Array, people: Index | None) -> float:
    """n_eff of slopes (m,) or (m, C); inf where all are zero."""
    sizes = np.abs(slopes) if slopes.ndim == 1 else np.sqrt((slopes**2).sum(1))
    if people is not None:
        sizes = np.bincount(people, sizes)
    largest = sizes.max(initial=0.0)
    if not largest > 0:
        return np.nan if np.isnan(largest) else np.inf
    sizes = sizes / largest
    return float(sizes.sum() ** 2 / (sizes @ sizes))


def _away(rows: Array, others: Array) -> Array:
    """The difference of slopes, 0 where it is rounding."""
    away = rows - others
    size = max(np.abs(rows).max(initial=0.0), 1.0)
    return away if np.abs(away).max(initial=0.0) > ROUNDING * size else np.zeros_like(away)


def _differs(rows: Array, others: Array) -> bool:
    """Whether two have other numbers of predictions: nothing relates their sums."""
    return rows.shape[1:] != others.shape[1:]


def _overlap(a: Array, b: Array) -> bool:
    """Whether a row has a slope in both."""
    return bool(((a != 0) & (b != 0)).any())


def _where(mask: NDArray[np.bool_], rows: Array) -> Array:
    return np.where(mask if rows.ndim == 1 else mask[:, None], rows, 0.0)
