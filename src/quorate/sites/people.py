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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.federated.linearisation import units_of
from quorate.arrays import Array
from quorate.codec import CodecError, decode, encode, record
from quorate.problem.losses import has_log_link
from quorate.problem.slopes import Sums
from quorate.rounds import Algorithm
from quorate.sites.policy import FILE, Policy, Refusal
from quorate.sites.told import SLOPES, SQUARES, Answered, Told, told_by, unknown
from quorate.storage import OWN, append, cut, make_folder, write_whole

Index = NDArray[np.intp]
Keys = NDArray[np.uint64]
SOME = 256  # rows that are looked at first
LENGTH = 8  # bytes before a record, of its length
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

    @property
    def is_plain(self) -> bool:
        """Whether it is one sum, by one number a row."""
        return self.group is None and self.rows.ndim == 1

    def digest(self) -> str:
        """The same for the same sums."""
        group = np.zeros(0, np.int32) if self.group is None else self.group.astype(np.int32)
        return f"{self.kind} {_digest(self.rows)} {_digest(group)}"


class _About:
    """The answers about one set of rows: of `plain` ones, each a sum over all rows by one number a
    row, the slopes by kind with the largest; the `others`; and digests of all.
    """

    def __init__(self, people: Keys) -> None:
        self.people, self.repeats = people, _repeats(people)
        self.plain: dict[str, list[tuple[Array, float]]] = {SLOPES: [], SQUARES: []}
        self.others: list[Slopes] = []
        self.known: set[str] = set()

    def add(self, one: Slopes) -> None:
        self.known.add(one.digest())
        if one.is_plain:
            self.plain[one.kind].append((one.rows, float(np.abs(one.rows).max(initial=0.0))))
        else:
            self.others.append(one)

    def all(self) -> Iterator[Slopes]:
        """All slopes, one by one."""
        yield from self.others
        for kind, rows in self.plain.items():
            yield from (Slopes(kind, each, None) for each, _ in rows)

    def fewest(self, least: float, people: Keys, one: Slopes) -> float:
        """The least n_eff of the differences to these answers; inf where it is ``least`` or
        more.
        """
        if people is self.people and one.is_plain and self.repeats is None:
            found, rest = fewest_of(least, one.rows, self.plain[one.kind]), iter(self.others)
        else:
            found, rest = np.inf, self.all()
        whose = _Joined.of(people, self.people, self.repeats)
        pairs = (whose.both(one, other) for other in rest if other.kind == one.kind)
        return min((found, *(fewest(*pair, whose.repeats) for pair in pairs)))


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
        self.last: tuple[Keys, str] | None = None  # people, and their digest
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
        about = self._about(people)
        for one in slopes:
            if not fewest(one, None, about.repeats) >= least:
                return "the answer"
            for before in self.about.values():
                if not before.fewest(least, about.people, one) >= least:
                    return "the difference to an earlier answer"
        return ""

    def _about(self, people: Keys) -> _About:
        """What is known of these people, which is kept once something is."""
        if self.last is None or self.last[0] is not people:
            self.last = people, _digest(people)
        return self.about.get(self.last[1]) or _About(people)

    # ---- the disk

    def _keep(
        self, experiment: str, people: Keys, models: Sequence[Array], slopes: Sequence[Slopes]
    ) -> None:
        """Write down what an answer tells, unless all of it is known."""
        about, rows = self._about(people), _digest(people)
        new = [one for one in slopes if one.digest() not in about.known]
        more = {*map(_digest, models)} - self.models.get(experiment, set())
        if not new and not more:
            return
        if rows not in self.about:
            make_folder(self.folder)
            write_whole(self.folder / rows, encode(KeptRows(people)), OWN)
            self.about[rows] = about
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
            self.about[kept.rows].add(Slopes(kind, rows, here))

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


def fewest_of(least: float, rows: Array, others: Sequence[tuple[Array, float]]) -> float:
    """The least n_eff of the differences of slopes (m,) to others (m,), each row another person's:
    as of `fewest`; inf where all are at least ``least``. With others are their largest sizes.
    """
    top, every = np.abs(rows).max(initial=0.0), max(1, len(rows) // SOME)
    some, found = rows[::every], np.inf
    for other, size in others:
        # n_eff >= sum |s_p| / max |s_p|, of which a part of the rows often shows enough
        if not np.abs(some - other[::every]).sum() >= least * (top + size):
            found = min(found, _effective(_away(rows, other), None))
    return found if found < least else np.inf


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
    return _away(one.rows, other.rows)


def _away(rows: Array, others: Array) -> Array:
    away = rows - others
    size = max(np.abs(rows).max(initial=0.0), 1.0)
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


class _Joined(NamedTuple):
    """Two sets of rows as one: where the rows of each are in it; None where both are the same."""

    size: int
    mine: Index | None
    theirs: Index | None
    repeats: Index | None

    @classmethod
    def of(cls, people: Keys, others: Keys, repeats: Index | None) -> _Joined:
        """``repeats`` are those of the others."""
        if people is others or np.array_equal(people, others):
            return cls(len(people), None, None, repeats)
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


def unjudged(policy: Policy, algorithm: Algorithm, message: Any = None) -> Refusal | None:
    """Why the rule refuses a method, or a message of it, of whose answers nothing says on how many
    people they hang; None where it judges all of them.
    """
    if policy.minimum_people <= 1 or not (what := unknown(algorithm, message)):
        return None
    text = f"nothing says on how many people it hangs: {what}"
    return _refusal(PEOPLE, text, "Use Bundle(), or set a privacy budget")


def _digest(array: NDArray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


def _refusal(rule: str, what: str, advice: str) -> Refusal:
    text = f"{rule}: {what}"
    return Refusal(rule, f"{text}. {advice}, or change {rule} in {FILE}.", f"{text}. {advice}.")
