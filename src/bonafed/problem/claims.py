"""What convex functions of unknown rows can be told to be, at one model after another.

Answers F(u), F'(u) and F(v), F'(v) of one convex function obey, whatever it is,

    F(u) + <F'(u), v - u> <= F(v),    F(v) + <F'(v), u - v> <= F(u),

and an affine minorant is below all values. A `Claim` is one thing that an answer says; what was
said before of the same rows is `Told`. The first claim that contradicts itself or what was told is
impossible, and says so in words that follow "it answered with".

Rounding. Sums over rows, and predictions, are rounded relative to the sums of the sizes of their
terms, by some 1e-16 times the additions that a term takes part in. ``RELATIVE`` of the numbers that
are compared leaves room for 10^7 of these; what is left where terms cancel is held to ``UNIT`` of
the largest numbers that were told of the function, and of slopes times models. A lie that is
smaller than that passes, and changes a gap by as little.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.lower_bounds import Surveyed
from bonafed.rounds import record

RELATIVE, UNIT = 1e-9, 1e-13
NUMBERS = 30_000  # of the slopes that are remembered of one function

Key = tuple[Any, ...]  # by which a function of a client's rows is known


@record
class Touched:
    """Where P convex functions were told, and their tangents there."""

    at: Array  # (T, E)
    value: Array  # (T, P)
    slope: Array  # (T, P, E), NaN where it was not told
    rounding: Array  # (T,)

    def and_at(self, other: "Touched") -> "Touched":
        """With further points; of many the oldest but the first is forgotten."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = [np.concatenate(pair) for pair in pairs]
        if len(both[0]) > max(4, NUMBERS // max(self.slope[0].size, 1)):
            both = [np.concatenate([part[:1], part[2:]]) for part in both]
        return Touched(*both)


@record
class Told:
    """What a client has said of its rows.

    Attributes
    ----------
    rows, features : how many there are; of its introduction where it made one
    alike : whether all rows have the same weight
    seen : their sizes, where the client's own weight is 1
    touched : of functions of its rows, the values and slopes
    ranked : tables of its rows' losses and cuts by rank (`bonafed.problem.plausible`)
    """

    rows: float | None = None
    features: int | None = None
    alike: bool = False
    seen: Surveyed | None = None
    touched: tuple[tuple[Key, Touched], ...] = ()
    ranked: tuple[Any, ...] = ()

    def known(self, key: Key) -> Touched | None:
        """What was told of a function; None for nothing."""
        return next((each for of, each in self.touched if of == key), None)

    def knowing(self, key: Key, touched: Touched) -> "Told":
        """With this in the place of what was told of a function."""
        others = [pair for pair in self.touched if pair[0] != key]
        return replace(self, touched=(*others, (key, touched)))


class Claim(Protocol):
    """Something that an upload says of the client's rows."""

    # What is known with it, and what of it is impossible, in words; "" for nothing.
    def held(self, told: Told) -> tuple[Told, str]: ...


class Number(NamedTuple):
    """Numbers between two others; NaN, which overflows lead to, says nothing."""

    what: str
    value: Array | float
    least: Array | float = 0.0
    most: Array | float = math.inf
    scale: Array | float = 0.0  # the sizes of the terms that were added up

    def held(self, told: Told) -> tuple[Told, str]:
        value, room = np.asarray(self.value), RELATIVE * np.asarray(self.scale)
        for bound, word, sign in ((self.least, "below", -1.0), (self.most, "above", 1.0)):
            over = sign * (value - bound) > room + RELATIVE * np.abs(bound)
            if over.any():
                off, limit = (np.broadcast_to(x, over.shape)[over][0] for x in (value, bound))
                return told, f"{self.what} of {off:.6g}, and no rows have one {word} {limit:.6g}"
        return told, ""


class Whole(NamedTuple):
    """Numbers of rows."""

    what: str
    value: Array | float

    def held(self, told: Told) -> tuple[Told, str]:
        value = np.asarray(self.value)
        fits = (value >= 0) & (value % 1 == 0)
        if fits.all():
            return told, ""
        return told, f"{self.what} of {float(value[~fits].flat[0]):.6g}, which counts no rows"


class AllRows(NamedTuple):
    """The number of all rows."""

    rows: float

    def held(self, told: Told) -> tuple[Told, str]:
        if self.rows < 1 or self.rows % 1:
            return told, f"{self.rows:.6g} rows"
        if told.rows not in (None, self.rows):
            return told, f"{self.rows:.6g} rows, and with {told.rows:.6g} before"
        return replace(told, rows=self.rows), ""


@dataclass(frozen=True)
class Features:
    """The number of features, in every entry."""

    count: Array

    def held(self, told: Told) -> tuple[Told, str]:
        count = np.unique(self.count)
        known = len(count) == 1 and count[0] == (told.features or count[0])
        if known and count[0] >= 0 and count[0] % 1 == 0:
            return replace(told, features=int(count[0])), ""
        return told, f"{count[-1]:.6g} features, where it has {told.features or 'a whole number'}"


class Either(NamedTuple):
    """A number that is one of two."""

    what: str
    value: float
    two: tuple[float, float]

    def held(self, told: Told) -> tuple[Told, str]:
        one, other = self.two
        if any(abs(self.value - x) <= RELATIVE * (1 + abs(x)) for x in self.two):
            return told, ""
        return told, f"{self.what} of {self.value:.6g}, which is {one:.6g} or {other:.6g}"


class Known(NamedTuple):
    """The value of a function at the model 0, which is the same for all rows."""

    of: Key
    size: int
    value: float

    def held(self, told: Told) -> tuple[Told, str]:
        if told.known(self.of) is not None:
            return told, ""
        return Tangent(self.of, "risk", np.zeros(self.size), np.array([self.value])).held(told)


class Tangent(NamedTuple):
    """The values of P convex functions of the rows at a point, and where they are told their
    slopes there.
    """

    of: Key
    what: str
    at: Array  # (E,)
    value: Array  # (P,)
    slope: Array | None = None  # (P, E)
    rounding: float = 0.0  # relative, beside that of sums
    convex: bool = True

    def held(self, told: Told) -> tuple[Told, str]:
        (P, E), at = (len(self.value), len(self.at)), self.at
        if self.slope is not None and self.slope.shape != (P, E):
            return told, f"slopes of the shape {self.slope.shape}, where {(P, E)} was asked for"
        slope = np.full((P, E), np.nan) if self.slope is None else self.slope
        new = Touched(at[None], self.value[None], slope[None], np.array([self.rounding]))
        known = told.known(self.of)
        if known is None:
            return told.knowing(self.of, new), ""
        if known.value.shape[1:] != (P,) or known.at.shape[1:] != (E,):
            return told, f"{P} numbers, where {known.value.shape[1]} were told before"
        words = self._same(known) or (self.convex and self._against(known, slope)) or ""
        return told.knowing(self.of, known.and_at(new)), words

    def _same(self, known: Touched) -> str:
        """Whether the same question was answered otherwise before."""
        again = (known.at == self.at).all(1)
        if not again.any():
            return ""
        before, room = known.value[again], (RELATIVE + known.rounding[again] + self.rounding)
        size, most = np.abs(before) + np.abs(self.value), np.abs(known.value).max()
        off = np.abs(before - self.value) > room[:, None] * size + UNIT * most
        if not off.any():
            return ""
        t, p = np.argwhere(off)[0]
        now, then = self.value[p], before[t, p]
        return f"a {self.what} of {now:.6g} at a model where it answered {then:.6g} before"

    def _against(self, known: Touched, slope: Array) -> str:
        """Whether a tangent told before lies above the new value, or the new one above an old."""
        step = self.at - known.at  # (T, E)
        room = RELATIVE + known.rounding + self.rounding
        # where the largest values, and the largest slopes that were told in every direction,
        # cancel, what is left has their rounding
        slopes = np.concatenate([known.slope.reshape(-1, len(self.at)), slope])
        steepest = np.fmax.reduce(np.abs(slopes))
        steepest = np.where(np.isnan(steepest), 0.0, steepest)
        highest = max(np.fmax.reduce(np.abs(known.value), None), np.abs(self.value).max())
        size = np.abs(known.value) + np.abs(self.value)
        least = room[:, None] * size + UNIT * (highest + np.abs(step) @ steepest)[:, None]
        reach = room[:, None] * np.abs(step) + UNIT * (np.abs(known.at) + np.abs(self.at))
        before = known.value + (known.slope @ step[:, :, None])[:, :, 0]
        above = before - self.value > least + (np.abs(known.slope) @ reach[:, :, None])[:, :, 0]
        if above.any():
            t, p = np.argwhere(above)[0]
            return (
                f"a {self.what} of {self.value[p]:.6g}, and its own earlier answers prove that it"
                f" is at least {before[t, p]:.6g} for these rows"
            )
        after = self.value - step @ slope.T
        above = after - known.value > least + reach @ np.abs(slope).T
        if above.any():
            t, p = np.argwhere(above)[0]
            return (
                f"a slope by which the {self.what} was at least {after[t, p]:.6g} at an earlier"
                f" model, where it answered {known.value[t, p]:.6g}"
            )
        return ""


class Height(NamedTuple):
    """A number that a convex function does not exceed at a point."""

    of: Key
    what: str
    at: Array  # (E,)
    value: float

    def held(self, told: Told) -> tuple[Told, str]:
        known = told.known(self.of)
        if known is None:
            return told, ""
        value, slope = known.value[:, 0], known.slope[:, 0]
        change = slope * (self.at - known.at)
        least, size = value + change.sum(1), np.abs(value) + np.abs(change).sum(1)
        size += (np.abs(slope) * (np.abs(known.at) + np.abs(self.at))).sum(1)
        off = least - self.value > 1e3 * RELATIVE * (1 + size)
        if not off.any():
            return told, ""
        return told, (
            f"a {self.what} of {self.value:.6g}, and its own earlier answers prove that its risk"
            f" there is at least {least[off][0]:.6g}"
        )


class Below(NamedTuple):
    """constant + <slope, x> <= sum of the weighted functions at x, for every x."""

    of: Mapping[Key, Array | float]  # weights (P,) of functions; the first may not be left out
    constant: float
    slope: Array  # (E,)
    size: float = 0.0  # of what was added up
    rounding: float = 0.0

    def held(self, told: Told) -> tuple[Told, str]:
        (first, weight), *others = self.of.items()
        known = told.known(first)
        if known is None or known.at.shape[1:] != self.slope.shape:
            return told, ""
        for t, at in enumerate(known.at):
            total = float(np.sum(np.asarray(weight) * known.value[t]))
            total += sum(self._beside(told, key, each, at) for key, each in others)
            terms = self.constant, *(self.slope * at).tolist()
            size, bound = self.size + abs(total) + float(np.sum(np.abs(terms))), sum(terms)
            if bound - total > (RELATIVE + self.rounding) * size:
                return told, f"a bound of {bound:.6g} on what it answered itself to be {total:.6g}"
        return told, ""

    @staticmethod
    def _beside(told: Told, key: Key, weight: Array | float, at: Array) -> float:
        """A weighted function at a point; NaN, of which nothing follows, where it is not known."""
        known = told.known(key)
        if not np.any(weight) or known is None:
            return math.nan if np.any(weight) else 0.0
        same = (known.at == at[: known.at.shape[1]]).all(1)
        return float(np.sum(weight * known.value[same][-1])) if same.any() else math.nan
