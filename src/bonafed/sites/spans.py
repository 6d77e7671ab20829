"""On how many people sums hang, and what combinations of sums tell of single people.

    n_eff(s) = (sum_p |s_p|)^2 / sum_p s_p^2          of the slopes s_p of people in one sum

is their number where all are equal, and 1 where one is all. Of several sums, with Q an orthonormal
basis of their slopes,

    share_p = ||Q_p||^2 = max { (S c)_p^2 / ||S c||^2 : c }

(the spectral norm, where a person has several rows) is the largest part that a person has in any
combination S c of the sums, whatever their number and scale: where it is 1, a combination of
answers is this person's row.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array, Index

Keys = NDArray[np.uint64]
ROUNDING = 8 * float(np.finfo(float).eps)  # relative to slopes that count 1
NEW = 1e-8  # of a vector: what is left of it is less where others make it up
FINE = 1e-11  # the same where a bound is enough
MUCH = 0.1  # of a vector; where so much is left, rounding in it is small
ROOM = 16  # vectors
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

    def placed(self, at: Index | None, size: int) -> "Slopes":
        """The same among more rows, where ``at`` says, or where there are no others."""
        if at is None:
            return self
        rows, group = np.zeros((size, *self.rows.shape[1:])), self.group
        rows[at] = self.rows
        if self.group is not None:
            group = np.full(size, -1)
            group[at] = self.group
        return Slopes(self.kind, rows, group)


Sums = Sequence[Slopes]


def fewest(one: Slopes, other: Slopes | None, people: Index | None) -> float:
    """The least n_eff of the sums, or of their differences to those of another answer; sums in
    which all is zero, or rounding, count as inf.

    ``people`` (m,) are the people whose rows these are, as numbers; None: each has one row.
    """
    if other is None:
        return min(_effective(each, people) for each in one.sums())
    # Whether two have other numbers of predictions: nothing relates their sums
    if one.rows.shape[1:] != other.rows.shape[1:]:
        return np.inf
    # Whether a row has a slope in both
    pairs = ((a, b) for a in one.sums() for b in other.sums() if bool(((a != 0) & (b != 0)).any()))
    return min((_effective(_away(a, b), people) for a, b in pairs), default=np.inf)


class Span:
    """The span of vectors by an orthonormal basis T (K, m).

    Parameters
    ----------
    size : m
    new : of a vector; what is left of it is less where others make it up
    """

    def __init__(self, size: int, new: float = NEW) -> None:
        self.new = new
        self.basis, self.count = np.empty((0, size)), 0  # with room, and K
        self.share = np.zeros(size)  # the squares of T added up, row by row

    def add(self, vectors: Sequence[Array]) -> None:
        """Take vectors (m,) over."""
        for vector in vectors:
            basis, length = self.basis[: self.count], _norm(vector)
            left, size = vector / (length or 1.0), float(length > 0)
            for _ in range(2):  # twice is enough, and once where much is left
                left = left - (basis @ left) @ basis
                before, size = size, _norm(left)
                if size > MUCH * before:
                    break
            if size > self.new:
                if self.count == len(self.basis):
                    self.basis = roomier(self.basis, self.count)
                self.basis[self.count] = left / size
                self.share, self.count = self.share + (left / size) ** 2, self.count + 1

    def largest(self, people: Index | None, above: float = 0.0) -> float:
        """The largest share of a person; ``above`` where that is more."""
        if people is None:
            return max(float(self.share.max(initial=0.0)), above)
        total, basis = np.bincount(people, self.share), self.basis[: self.count]
        for person in np.argsort(-total):
            if total[person] <= above:  # which is at least the spectral norm, squared
                break
            above = max(above, float(np.linalg.norm(basis[:, people == person], 2)) ** 2)
        return above


class Combinations:
    """The shares of people in combinations of all sums, exactly or at most.

    At most: by a span for each cell of rows that are in the same groups. Of every sum a cell has
    all slopes or none, so that these spans are together at least that of the sums.

    Parameters
    ----------
    size : m
    groups : (m,) the groups of all sums over groups; None: exactly
    """

    def __init__(self, size: int, groups: Sequence[Index] | None = None) -> None:
        self.exact, self.taken = groups is None, 0  # so many sums
        self.groups = groups or ()
        self.before: tuple[int, list[tuple[Array, int]]] | None = None
        cell = np.zeros(size, np.intp)
        for group in groups or ():
            code = cell * (group.max(initial=-1) + 2) + group
            cell = np.unique(code, return_inverse=True)[1].ravel()
        order, sizes = np.argsort(cell, kind="stable"), np.bincount(cell)
        self.rows = np.split(order, np.cumsum(sizes)[:-1])
        self.spans = [Span(n, NEW if self.exact else FINE) for n in sizes.tolist()]

    def parted(self, groups: Sequence[Index]) -> bool:
        """Whether the cells are those of these groups."""
        mine = self.groups
        return len(mine) == len(groups) and all(map(np.array_equal, mine, groups))

    def tried(self, told: Sums, new: Sums, people: Index | None, above: float) -> float:
        """`largest` with sums that are new to those that were told; `end` says if they are kept."""
        self.add(told[self.taken :])
        self.before = self.taken, [(span.share, span.count) for span in self.spans]
        self.add(new)
        return self.largest(people, above)

    def end(self, kept: bool) -> None:
        """Keep what was tried, or forget it."""
        if self.before is not None and not kept:
            self.taken, states = self.before
            for span, each in zip(self.spans, states, strict=True):
                span.share, span.count = each
        self.before = None

    def add(self, slopes: Sequence[Slopes]) -> None:
        """Take sums over."""
        told = vectors(slopes if self.exact else [one._replace(group=None) for one in slopes])
        for rows, span in zip(self.rows, self.spans, strict=True):
            span.add(told if len(self.rows) == 1 else [each[rows] for each in told])
        self.taken += len(slopes)

    def largest(self, people: Index | None, above: float = 0.0) -> float:
        """The largest share of a person, or what it is at most; ``above`` where that is more."""
        for rows, span in zip(self.rows, self.spans, strict=True):
            some = people if people is None or len(self.rows) == 1 else people[rows]
            above = max(above, span.largest(some, above))
        return above


def roomier(old: Array, count: int) -> Array:
    """Room for twice as many rows (count, ...) as there are."""
    new = np.empty((max(2 * count, ROOM), *old.shape[1:]))
    new[:count] = old[:count]
    return new


def _norm(vector: Array) -> float:
    return math.sqrt(vector @ vector)


def vectors(slopes: Sequence[Slopes]) -> list[Array]:
    """(m,) the slopes of every sum by every prediction."""
    told = (each for one in slopes for each in one.sums())
    return [column for each in told for column in (each.T if each.ndim == 2 else each[None])]


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


def _where(mask: NDArray[np.bool_], rows: Array) -> Array:
    return np.where(mask if rows.ndim == 1 else mask[:, None], rows, 0.0)


# On how many people answers differ, mostly by a bound, since pairs of answers are many.
#
#     n_eff(a - b) >= |a - b|_1 / (n |a - b|_max)             of people who have at most n rows each
#
# with the part of |a - b|_1 in some rows, and |a|_max + |b|_max, nobody looks at all rows of a pair
# that some rows decide. The others are those of nearly equal models.

SOME = 128  # rows that are looked at first


class Alike:
    """Answers of one kind that are sums over the same groups.

    Parameters
    ----------
    first : one of these, which is not added
    """

    def __init__(self, first: Slopes) -> None:
        self.like, self.every = first, max(1, len(first.rows) // SOME)
        self.told: list[Slopes] = []
        some = first.rows[:: self.every]
        sums = 1 if first.group is None else 2 + int(first.group.max(initial=-1))
        self.members = np.ones((len(some), sums))  # of the sums, some rows
        if first.group is not None:
            self.members[:, 1:] = first.group[:: self.every, None] == np.arange(sums - 1)
        self.some = np.empty((0, *some.shape))
        self.top, self.spare = np.empty(0), np.empty(0)

    def takes(self, one: Slopes) -> bool:
        """Whether an answer is like these."""
        return _alike(one, self.like)

    def has(self, one: Slopes) -> bool:
        """Whether an answer is among these."""
        if not self.takes(one):
            return False
        K = len(self.told)
        may = (self.some[:K] == one.rows[:: self.every]).reshape(K, -1).all(1)
        return any(same(one, self.told[k]) for k in np.flatnonzero(may))

    def few(self, least: float, one: Slopes) -> list[Slopes]:
        """The answers whose difference to ``one`` may be less than ``least`` of the largest slope;
        of an answer that is a sum over other groups all of these.
        """
        if one.kind != self.like.kind or one.rows.shape != self.like.rows.shape:
            return []
        if not self.takes(one):
            return self.told
        K, (top, spare) = len(self.told), self._sums(one)
        away = _lengths(self.some[:K] - one.rows[:: self.every], 2) @ self.members
        enough = least * (self.top[:K] + top)
        sure = (away >= enough[:, None]).all(1)
        if one.group is not None:  # of the sum over one group and that over another
            sure &= np.minimum(self.spare[:K], spare) >= enough
        return [self.told[k] for k in np.flatnonzero(~sure)]

    def add(self, one: Slopes) -> None:
        """Take an answer."""
        if (K := len(self.told)) == len(self.top):
            room = (roomier(each, K) for each in (self.some, self.top, self.spare))
            self.some, self.top, self.spare = room
        self.top[K], self.spare[K] = self._sums(one)
        self.some[K] = one.rows[:: self.every]
        self.told.append(one)

    def _sums(self, one: Slopes) -> tuple[float, float]:
        """The largest slope, and what is left of all where a group is taken away."""
        lengths = _lengths(one.rows)
        of_groups = 0.0 if one.group is None else np.bincount(one.group + 1, lengths)[1:]
        return lengths.max(initial=0.0), lengths.sum() - np.max(of_groups, initial=0.0)


def same(one: Slopes, other: Slopes) -> bool:
    """Whether two are the same sums."""
    return _alike(one, other) and np.array_equal(one.rows, other.rows)


def _alike(one: Slopes, other: Slopes) -> bool:
    if one.kind != other.kind or one.rows.shape != other.rows.shape:
        return False
    if one.group is None or other.group is None:
        return one.group is other.group
    return bool(np.array_equal(one.group, other.group))


def _lengths(slopes: Array, axes: int = 1) -> Array:
    """Of the slopes of rows, which are the first axes."""
    return np.abs(slopes) if slopes.ndim == axes else np.sqrt((slopes**2).sum(-1))
