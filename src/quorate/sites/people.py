"""The rule of few people: nothing that leaves a site, and no difference of two answers, hangs on
fewer than a few people.

    n_eff(s) = (sum_p |s_p|)^2 / sum_p s_p^2

of the slopes s_p of the people in a sum (`quorate.problem.slopes`): their number where all are
equal, 1 where one is all. An answer leaves where n_eff is large enough of its own slopes, and of
their difference to those of every answer that the site gave before about these people, in any run
and for any server. So the site keeps the slopes of its answers, beside its log. Models are limited
in length, since long ones make slopes jump, and in number.

That no combination of more answers tells a row is not proved: a privacy budget proves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.federated.linearisation import units_of
from quorate.arrays import Array
from quorate.codec import CodecError, decode, encode, record
from quorate.problem.losses import has_log_link
from quorate.problem.slopes import Sums
from quorate.rounds import Algorithm
from quorate.sites.policy import FILE, Policy, Refusal
from quorate.sites.told import TOLD, Answered, Told, told_by
from quorate.storage import OWN, append, cut, make_folder, write_whole

Index = NDArray[np.intp]
Keys = NDArray[np.uint64]
LENGTH = 8  # bytes before a record, of its length
AT_ONCE = 1_000_000  # differences of rows
NOTHING = 8 * float(np.finfo(float).eps)  # a difference that is rounding, relative to the slopes
PEOPLE, LONG, MANY = "minimum_people", "maximum_model_length", "maximum_models"


@record
class KeptAnswer:
    """What an answer told of the rows, for the site's disk."""

    experiment: str
    rows: str  # the digest of the people whose rows these were
    models: tuple[str, ...]  # digests
    kinds: tuple[str, ...]
    slopes: tuple[Array, ...]  # (m,) or (m, C), relative to the largest weight
    groups: tuple[NDArray[np.int32], ...]  # (m,) or empty


@record
class KeptRows:
    """Whose rows answers were about, for the site's disk."""

    people: Keys


class Slopes(NamedTuple):
    """The slopes of one sum, or of the sums over groups, relative to the largest weight."""

    kind: str
    rows: Array
    group: Index | None

    @classmethod
    def of(cls, kind: str, sums: Sums) -> Slopes:
        return cls(kind, sums.rows / sums.unit, sums.group)


@dataclass
class _About:
    """The answers about one set of rows."""

    people: Keys
    slopes: list[Slopes] = field(default_factory=list)


class Answers:
    """What a site has told, from its disk.

    Parameters
    ----------
    folder : where it is kept; nobody else may read it
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "answers"
        self.about: dict[str, _About] = {}  # by the digest of the people
        self.models: dict[str, set[str]] = {}  # by experiment
        for kept in self._read():
            self._take(kept)

    def refusal(
        self, policy: Policy, experiment: str, people: Keys, answered: Answered
    ) -> Refusal | None:
        """Why an answer must not leave, or None; what leaves is kept first."""
        told = told_by(answered)
        models = [w for one in told for w in one.models]
        if refusal := self._models(policy, experiment, answered, models):
            return refusal
        slopes = [*_slopes(told)]
        if fewest := self._hang_on_few(policy.minimum_people, people, slopes):
            return _refusal(
                PEOPLE,
                f"{fewest} hangs on fewer than {policy.minimum_people:g} people",
                "The run ends here, with what is proved so far",
            )
        self._keep(experiment, people, models, slopes)
        return None

    def _models(
        self, policy: Policy, experiment: str, answered: Answered, models: Sequence[Array]
    ) -> Refusal | None:
        """The rules about the models that are asked about."""
        longest = max((length(answered, w) for w in models), default=0.0)
        if not longest <= policy.maximum_model_length:
            return _refusal(
                LONG,
                f"a model is longer than {policy.maximum_model_length:g} in units of the columns",
                "Regularise more, or use fewer columns",
            )
        asked = self.models.get(experiment, set()) | {*map(_digest, models)}
        if len(asked) > policy.maximum_models:
            return _refusal(
                MANY,
                f"the site answers about {policy.maximum_models} models of an experiment",
                "Ask for a larger tol, or for a method of fewer rounds, such as Bundle()",
            )
        return None

    def _hang_on_few(self, least: float, people: Keys, slopes: Sequence[Slopes]) -> str:
        """What of these slopes hangs on fewer people than ``least``; "" for nothing."""
        same = _repeats(people)
        for one in slopes:
            if not fewest(one, None, same) >= least:
                return "the answer"
        for about in self.about.values():
            whose = _Joined.of(people, about.people)
            for one in slopes:
                others = [other for other in about.slopes if other.kind == one.kind]
                plain = [other for other in others if _alike(one, other, whose)]
                if plain and not fewest_of(one.rows, [other.rows for other in plain]) >= least:
                    return "the difference to an earlier answer"
                for other in others:
                    if _alike(one, other, whose):
                        continue
                    if not fewest(*whose.both(one, other), whose.repeats) >= least:
                        return "the difference to an earlier answer"
        return ""

    # ---- the disk

    def _keep(
        self, experiment: str, people: Keys, models: Sequence[Array], slopes: Sequence[Slopes]
    ) -> None:
        """Write down what an answer tells, unless all of it is known."""
        rows, names = _digest(people), {*map(_digest, models)}
        if rows not in self.about:
            make_folder(self.folder)
            write_whole(self.folder / rows, encode(KeptRows(people)), OWN)
            self.about[rows] = _About(people)
        known = self.about[rows].slopes
        new = [one for one in slopes if not any(_same(one, other) for other in known)]
        more = names - self.models.get(experiment, set())
        if not new and not more:
            return
        none = np.zeros(0, np.int32)
        kept = KeptAnswer(
            experiment,
            rows,
            tuple(sorted(more)),
            tuple(one.kind for one in new),
            tuple(one.rows for one in new),
            tuple(none if one.group is None else one.group.astype(np.int32) for one in new),
        )
        if not self.file.exists():
            write_whole(self.file, b"", OWN)
        data = encode(kept)
        append(self.file, len(data).to_bytes(LENGTH, "little") + data, sync=False)
        self._take(kept)

    def _take(self, kept: KeptAnswer) -> None:
        if kept.rows not in self.about:
            rows = decode((self.folder / kept.rows).read_bytes())
            self.about[kept.rows] = _About(rows.people)
        self.models.setdefault(kept.experiment, set()).update(kept.models)
        for kind, rows, group in zip(kept.kinds, kept.slopes, kept.groups, strict=True):
            here = group.astype(np.intp) if len(group) else None
            self.about[kept.rows].slopes.append(Slopes(kind, rows, here))

    def _read(self) -> Iterator[KeptAnswer]:
        """The kept answers; the end of one that was cut off, and never left, is removed."""
        if not self.file.exists():
            return
        data, at = self.file.read_bytes(), 0
        while at < len(data):
            end = at + LENGTH + int.from_bytes(data[at : at + LENGTH], "little")
            if at + LENGTH > len(data) or end > len(data):
                cut(self.file, at)
                return
            kept = decode(data[at + LENGTH : end])
            if not isinstance(kept, KeptAnswer):
                raise CodecError(f"{self.file} holds a {type(kept).__name__}")
            yield kept
            at = end


# ------------------------------------------------------------------------------------- the numbers


def fewest(one: Slopes, other: Slopes | None, people: Index | None) -> float:
    """The least n_eff of the sums, or of their differences to those of another answer; sums in
    which all is zero, or rounding, count as inf.

    ``people`` (m,) are the people whose rows these are, as numbers; None: each has one row.
    """
    if one.group is None and (other is None or other.group is None):
        return _effective(_difference(one, other), people)
    here, there = _group(one), np.zeros(len(one.rows), np.intp) if other is None else _group(other)
    least = np.inf
    for a in (None, *range(here.max(initial=-1) + 1)):
        for b in (None, *range(there.max(initial=-1) + 1)) if other is not None else (None,):
            mine, theirs = here == a if a is not None else here >= 0, there == b
            theirs = there >= 0 if b is None else theirs
            if other is not None and not (mine & theirs).any():
                continue
            part = one._replace(rows=_where(mine, one.rows), group=None)
            rest = other and other._replace(rows=_where(theirs, other.rows), group=None)
            least = min(least, _effective(_difference(part, rest), people))
    return least


def fewest_of(rows: Array, others: Sequence[Array]) -> float:
    """The least n_eff of the differences of slopes (m,) to others (m,), each row another person's:
    as of `fewest`, many at once.
    """
    least, at_once = np.inf, max(1, AT_ONCE // max(len(rows), 1))
    for first in range(0, len(others), at_once):
        away = np.abs(np.array(others[first : first + at_once]) - rows)
        size = max(np.abs(rows).max(initial=0.0), 1.0)
        away = away[away.max(1, initial=0.0) > NOTHING * size]
        squares = np.einsum("km,km->k", away, away)
        least = min(least, (away.sum(1) ** 2 / squares).min(initial=np.inf))
    return float(least)


def _alike(one: Slopes, other: Slopes, whose: _Joined) -> bool:
    """Whether both are sums over the same rows, one prediction and one row a person."""
    plain = one.group is other.group is whose.mine is whose.repeats is None
    return plain and one.rows.ndim == other.rows.ndim == 1


def _effective(slopes: Array, people: Index | None) -> float:
    """n_eff of slopes (m,) or (m, C); inf where all are zero."""
    sizes = np.abs(slopes) if slopes.ndim == 1 else np.sqrt((slopes**2).sum(1))
    if people is not None:
        sizes = np.bincount(people, sizes)
    largest = sizes.max(initial=0.0)
    if not largest > 0:
        return np.inf
    sizes = sizes / largest
    return float(sizes.sum() ** 2 / (sizes @ sizes))


def _difference(one: Slopes, other: Slopes | None) -> Array:
    """The difference of slopes, 0 where it is rounding."""
    if other is None:
        return one.rows
    if one.rows.shape != other.rows.shape:  # of other classes: two sums that nothing relates
        return np.concatenate([one.rows.ravel(), other.rows.ravel()])
    away = one.rows - other.rows
    size = max(np.abs(one.rows).max(initial=0.0), 1.0)
    return away if np.abs(away).max(initial=0.0) > NOTHING * size else np.zeros_like(away)


def _where(mask: NDArray[np.bool_], rows: Array) -> Array:
    return np.where(mask if rows.ndim == 1 else mask[:, None], rows, 0.0)


def _group(one: Slopes) -> Index:
    return np.zeros(len(one.rows), np.intp) if one.group is None else one.group


def _slopes(told: Sequence[Told]) -> Iterator[Slopes]:
    """The slopes that are not zero everywhere."""
    for one in told:
        for sums in one.sums:
            if sums.unit and sums.rows.any():
                yield Slopes.of(one.kind, sums)


def _same(one: Slopes, other: Slopes) -> bool:
    groups = np.array_equal(_group(one), _group(other))
    return one.kind == other.kind and groups and np.array_equal(one.rows, other.rows)


class _Joined(NamedTuple):
    """Two sets of rows as one: where the rows of each are in it; None where both are the same."""

    size: int
    mine: Index | None
    theirs: Index | None
    repeats: Index | None

    @classmethod
    def of(cls, people: Keys, others: Keys) -> _Joined:
        if np.array_equal(people, others):
            return cls(len(people), None, None, _repeats(people))
        every = _numbered(people, others)
        union, at = np.unique(np.concatenate(every), axis=0, return_inverse=True)
        at = at.ravel()
        return cls(len(union), at[: len(people)], at[len(people) :], _repeats(union[:, 0]))

    def both(self, one: Slopes, other: Slopes) -> tuple[Slopes, Slopes]:
        if self.mine is None or self.theirs is None:
            return one, other
        return self._placed(one, self.mine), self._placed(other, self.theirs)

    def _placed(self, one: Slopes, at: Index) -> Slopes:
        rows = np.zeros((self.size, *one.rows.shape[1:]))
        rows[at] = one.rows
        group = None
        if one.group is not None:
            group = np.full(self.size, -1)
            group[at] = one.group
        return Slopes(one.kind, rows, group)


def _numbered(*each: Keys) -> list[Keys]:
    """(m, 2) the keys with their number among equal ones."""
    numbered = []
    for keys in each:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        first = np.searchsorted(ordered, ordered)
        turn = np.empty(len(keys), np.uint64)
        turn[order] = (np.arange(len(keys)) - first).astype(np.uint64)
        numbered.append(np.column_stack([keys, turn]))
    return numbered


def _repeats(people: Keys) -> Index | None:
    """The people as numbers, or None where none has several rows."""
    unique, at = np.unique(people, return_inverse=True)
    return None if len(unique) == len(people) else at.ravel()


def length(answered: Answered, w: Array) -> float:
    """How long a model is in units of the columns, and of the target where that is a number."""
    problem, block = answered.problem, answered.block
    scaled = w * units_of(problem, block.squares()[0])
    unit = 1.0
    if problem.loss.targets == "real" and not has_log_link(problem.loss):
        unit = float(np.sqrt(block.mean(block.y**2)[0])) or 1.0
    return float(np.linalg.norm(scaled)) / unit


def unjudged(policy: Policy, algorithm: Algorithm) -> Refusal | None:
    """Why the rule refuses a method, of whose answers nothing says on how many people they hang;
    None where it judges all of them.
    """
    odd = [kind.__name__ for kind in algorithm.on_client if kind not in TOLD]
    if policy.minimum_people <= 1 or not odd:
        return None
    what = f"on how many people an answer to {odd[0]} of {type(algorithm).__name__} hangs"
    return _refusal(PEOPLE, f"nothing says {what}", "Use Bundle(), or set a privacy budget")


def _digest(array: NDArray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


def _refusal(rule: str, what: str, advice: str) -> Refusal:
    text = f"{rule}: {what}"
    return Refusal(rule, f"{text}. {advice}, or change {rule} in {FILE}.", f"{text}. {advice}.")
