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

from bonafed.arrays import Array

Index = NDArray[np.intp]
Keys = NDArray[np.uint64]
ROUNDING = 8 * float(np.finfo(float).eps)  # relative to slopes that count 1
NEW = 1e-8  # of a vector: what is left of it is less where others make it up
FINE, GONE = 1e-11, 1e-12  # the same where a bound is enough, and of its part on some rows
MUCH = 0.1  # of a vector; where so much is left, rounding in it is small
ROOM = 16  # vectors
State = tuple[Array, int, bool]
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
    """Vectors in a basis T (K, m) that is orthonormal on every so-many-th row, on all by default.

    With a and b the squares of T in the rows of a person that are among these, and in the others,

        share_p <= (a + b) / (1 + b)

    as a combination is at least as long as its part in these rows and in the person's.

    Parameters
    ----------
    size, every : m, and the distance of the rows on which T is orthonormal
    new : of a vector; what is left of it is less where others make it up
    """

    def __init__(self, size: int, every: int = 1, new: float = NEW) -> None:
        self.every, self.new = every, new
        self.basis = np.empty((0, size))
        self.inner = self.basis[:, ::every]
        self.share = np.zeros(size)  # the squares of T added up, row by row
        self.count, self.lost = 0, False  # K, and whether a vector has no place in the basis

    def state(self) -> State:
        """What `back` goes back to."""
        return self.share, self.count, self.lost

    def back(self, state: State) -> None:
        """Forget what was added since."""
        self.share, self.count, self.lost = state

    def add(self, vectors: Sequence[Array]) -> None:
        """Take vectors (m,) over."""
        for vector in vectors:
            if length := _norm(vector[:: self.every]) or _norm(vector):
                self._add(vector / length)

    def _add(self, vector: Array) -> None:
        inner, left, size = self.inner[: self.count], vector[:: self.every], 1.0
        parts = np.zeros(self.count)
        for _ in range(2):  # twice is enough, and once where much is left
            part = inner @ left
            left, parts = left - part @ inner, parts + part
            before, size = size, _norm(left)
            if size > MUCH * before:
                break
        if self.every == 1:
            rest, new = left, size > self.new
        else:
            rest = vector - parts @ self.basis[: self.count]
            new = not _norm(rest) <= self.new * _norm(vector)
            self.lost |= new and not size > GONE
        if new and not self.lost:
            self._take(rest / size, left / size)

    def _take(self, rest: Array, left: Array) -> None:
        if self.count == len(self.basis):
            whole = self.every == 1
            self.basis = roomier(self.basis, self.count)
            self.inner = self.basis if whole else roomier(self.inner, self.count)
        self.basis[self.count], self.inner[self.count] = rest, left
        self.share, self.count = self.share + rest**2, self.count + 1

    def largest(self, people: Index | None, above: float = 0.0) -> float:
        """The largest share of a person, or what it is at most; ``above`` where that is more."""
        if self.lost:
            return np.inf
        if self.every > 1:
            inside, outside = np.zeros_like(self.share), self.share.copy()
            inside[:: self.every], outside[:: self.every] = self.share[:: self.every], 0.0
            if people is not None:
                inside, outside = np.bincount(people, inside), np.bincount(people, outside)
            return max(float(((inside + outside) / (1 + outside)).max(initial=0.0)), above)
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
    whole : rows of a cell in which its basis is orthonormal, at least
    """

    def __init__(self, size: int, groups: Sequence[Index] | None = None, whole: int = 1) -> None:
        self.exact, self.taken = groups is None, 0  # so many sums
        self.groups = groups or ()
        self.before: tuple[int, list[State]] | None = None
        cell = np.zeros(size, np.intp)
        for group in groups or ():
            code = cell * (group.max(initial=-1) + 2) + group
            cell = np.unique(code, return_inverse=True)[1].ravel()
        order, sizes = np.argsort(cell, kind="stable"), np.bincount(cell)
        self.rows = np.split(order, np.cumsum(sizes)[:-1])
        new = NEW if self.exact else FINE
        self.spans = [Span(n, 1 if self.exact else max(1, n // whole), new) for n in sizes.tolist()]

    def parted(self, groups: Sequence[Index]) -> bool:
        """Whether the cells are those of these groups."""
        mine = self.groups
        return len(mine) == len(groups) and all(map(np.array_equal, mine, groups))

    def tried(
        self, told: Sequence[Slopes], new: Sequence[Slopes], people: Index | None, above: float
    ) -> float:
        """`largest` with sums that are new to those that were told; `end` says if they are kept."""
        self.add(told[self.taken :])
        self.before = self.taken, [span.state() for span in self.spans]
        self.add(new)
        return self.largest(people, above)

    def end(self, kept: bool) -> None:
        """Keep what was tried, or forget it."""
        if self.before is not None and not kept:
            self.taken, states = self.before
            for span, each in zip(self.spans, states, strict=True):
                span.back(each)
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


def _where(mask: NDArray[np.bool_], rows: Array) -> Array:
    return np.where(mask if rows.ndim == 1 else mask[:, None], rows, 0.0)


# On how many people answers differ, mostly by bounds, since pairs of answers are many.
#
#     n_eff(a - b) >= |a - b|_1 / (n |a - b|_max)             of people who have at most n rows each
#     |a - b|_1 >= |c - b|_1 - |c - a|_1,    |a - b|_max <= |c - b|_max + |c - a|_max
#
# so nobody looks at all rows of a pair that some rows decide, or a third answer c whose differences
# to both are known.

SOME = 128  # rows that are looked at first


class Bounds(NamedTuple):
    """What is known of the differences of an answer to K others.

    Attributes
    ----------
    sizes : (K, 1 + G) at most |a - b|_1 of all rows, and of each group
    largest : (K,) at least |a - b|_max of all rows
    """

    sizes: Array
    largest: Array


NOTHING = Bounds(np.zeros((0, 1)), np.zeros(0))


class Alike:
    """Answers of one kind that are sums over the same groups.

    Parameters
    ----------
    first : one of these, which is not added
    """

    def __init__(self, first: Slopes) -> None:
        self.like, self.every = first, max(1, len(first.rows) // SOME)
        self.told: list[Slopes] = []
        self.sums = 1 if first.group is None else 2 + int(first.group.max(initial=-1))
        some = first.rows[:: self.every]
        self.members = np.ones((len(some), self.sums))  # of the sums, some rows
        if first.group is not None:
            self.members[:, 1:] = first.group[:: self.every, None] == np.arange(self.sums - 1)
        self.some = np.empty((0, *some.shape))
        self.top, self.spare = np.empty(0), np.empty(0)
        self.sizes, self.largest = np.empty((0, 0, self.sums)), np.empty((0, 0))

    def related(self, one: Slopes) -> bool:
        """Whether sums of these and of an answer are of one kind."""
        return one.kind == self.like.kind and one.rows.shape == self.like.rows.shape

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

    def few(self, least: float, one: Slopes) -> tuple[list[Slopes], Bounds]:
        """The answers whose difference to ``one`` may be less than ``least`` of the largest slope,
        and what is found of all.
        """
        K, (top, spare) = len(self.told), self._sums(one)
        found = self._by_some(one, top)
        others = np.minimum(self.spare[:K], spare) >= least * (self.top[:K] + top)
        few = [] if self.sums == 1 else np.flatnonzero(~others).tolist()
        left = ~_enough(least, *found)
        while left.any():
            k = int(np.flatnonzero(left)[-1])  # the latest is the nearest of an honest run
            away = _lengths(one.rows - self.told[k].rows)
            sizes, largest = _added_up(self.like.group, away), away.max(initial=0.0)
            near = Bounds(self.sizes[k, :K] - sizes, self.largest[k, :K] + largest)
            found = Bounds(np.maximum(found[0], near[0]), np.minimum(found[1], near[1]))
            found.sizes[k], found.largest[k] = sizes, largest
            left &= ~_enough(least, *found)
            left[k] = False
            if not ((sizes == 0) | (sizes >= least * largest)).all():
                few.append(k)
        return [self.told[k] for k in {*few}], found

    def add(self, one: Slopes, known: Bounds) -> None:
        """Take an answer with what is known of its differences to the first of these."""
        K, many = len(self.told), len(known.largest)
        if len(self.top) == K:
            room = (roomier(each, K) for each in (self.some, self.top, self.spare))
            self.some, self.top, self.spare = room
            self.sizes = roomier(roomier(self.sizes, K).swapaxes(0, 1), K).swapaxes(0, 1)
            self.largest = roomier(roomier(self.largest, K).T, K).T
        self.top[K], self.spare[K] = self._sums(one)
        if many < K:
            found = self._by_some(one, self.top[K])
            found.sizes[:many], found.largest[:many] = known
            known = found
        self.sizes[K, :K] = self.sizes[:K, K] = known.sizes
        self.largest[K, :K] = self.largest[:K, K] = known.largest
        self.sizes[K, K], self.largest[K, K] = 0.0, 0.0
        self.some[K] = one.rows[:: self.every]
        self.told.append(one)

    def few_of_others(self, least: float, one: Slopes) -> list[Slopes]:
        """As `few`, of an answer that is a sum over other groups."""
        mine, yours = _members(one), _members(self.like)
        code = _codes(one) * yours.shape[1] + _codes(self.like)
        lengths = _lengths(one.rows)

        def by_cell(lengths: Array) -> Array:
            """Sums (groups of one, groups of the others)."""
            flat = np.bincount(code, lengths, mine.shape[1] * yours.shape[1])
            return flat.reshape(mine.shape[1], yours.shape[1]).astype(float)

        few = list[Slopes]()
        first = by_cell(lengths)
        for other, top in zip(self.told, self.top[: len(self.told)], strict=True):
            away = _lengths(one.rows - other.rows)
            both, second = by_cell(away), by_cell(_lengths(other.rows))
            sizes = (  # |a - b|_1 of every sum a of one, and b of the other
                mine @ (both - first - second) @ yours.T
                + (mine @ first).sum(1)[:, None]
                + (second @ yours.T).sum(0)
            )
            largest = away.max(initial=0.0)
            enough = sizes >= least * max(largest, lengths.max(initial=0.0), top)
            enough[0, 0] = both.sum() >= least * largest  # of all rows
            if not enough.all():
                few.append(other)
        return few

    def bounds(self, k: int) -> Bounds:
        """Of the k-th answer, to those before it."""
        return Bounds(self.sizes[k, :k], self.largest[k, :k])

    def _sums(self, one: Slopes) -> tuple[float, float]:
        """The largest slope, and what is left of all where a group is taken away."""
        lengths = _lengths(one.rows)
        sizes = _added_up(one.group, lengths)
        return lengths.max(initial=0.0), sizes[0] - sizes[1:].max(initial=0.0)

    def _by_some(self, one: Slopes, top: float) -> Bounds:
        K = len(self.told)
        away = _lengths(self.some[:K] - one.rows[:: self.every], 2)
        return Bounds(away @ self.members, self.top[:K] + top)


def hangs(least: float, one: Slopes) -> bool:
    """Whether one of its sums may be less than ``least`` of the largest slope."""
    lengths = _lengths(one.rows)
    sizes = _added_up(one.group, lengths)
    return not ((sizes == 0) | (sizes >= least * lengths.max(initial=0.0))).all()


def same(one: Slopes, other: Slopes) -> bool:
    """Whether two are the same sums."""
    return _alike(one, other) and np.array_equal(one.rows, other.rows)


def _alike(one: Slopes, other: Slopes) -> bool:
    if one.kind != other.kind or one.rows.shape != other.rows.shape:
        return False
    if one.group is None or other.group is None:
        return one.group is other.group
    return bool(np.array_equal(one.group, other.group))


def _added_up(group: Index | None, lengths: Array) -> Array:
    """(1 + G,) lengths (m,) of slopes added up over all rows, and over each group."""
    if group is None:
        return lengths.sum()[None]
    return np.append(lengths.sum(), np.bincount(group + 1, lengths)[1:])


def _enough(least: float, sizes: Array, largest: Array) -> NDArray[np.bool_]:
    """(K,) whether every sum is so much more than the largest slope."""
    return np.all(sizes >= least * largest[:, None], 1)


def _codes(one: Slopes) -> Index:
    """(m,) 0 of rows in no group, 1 + g of the others."""
    return np.ones(len(one.rows), np.intp) if one.group is None else one.group + 1


def _members(one: Slopes) -> Array:
    """(sums, codes) whether the rows with a code are in a sum."""
    codes = 2 if one.group is None else 2 + int(one.group.max(initial=-1))
    return np.vstack([np.ones(codes), np.eye(codes)[1 if one.group is not None else codes :]])


def _lengths(slopes: Array, axes: int = 1) -> Array:
    """Of the slopes of rows, which are the first axes."""
    return np.abs(slopes) if slopes.ndim == axes else np.sqrt((slopes**2).sum(-1))
