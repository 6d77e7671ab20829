"""On how many people answers differ, mostly by bounds, since pairs of answers are many.

    n_eff(a - b) >= |a - b|_1 / (n |a - b|_max)             of people who have at most n rows each
    |a - b|_1 >= |c - b|_1 - |c - a|_1,    |a - b|_max <= |c - b|_max + |c - a|_max

so nobody looks at all rows of a pair that some rows decide, or a third answer c whose differences
to both are known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.sites.spans import Index, Slopes, roomier

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
            self.some, self.top, self.spare = (
                roomier(each, K) for each in (self.some, self.top, self.spare)
            )
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
