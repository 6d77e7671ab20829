"""The rule of few people: nothing that leaves a site, and no difference of two answers, hangs on
fewer than a few people, and no combination of answers is made up of one person's row.

An answer leaves where n_eff (`quorate.sites.spans`) is large enough of its slopes, and of their
difference to those of every answer that the site gave before, in any run and for any server; and
where the largest share of a person in combinations of all of them stays below `MOST`. So the site
keeps the slopes of its answers, beside its log. Models are limited in length, since long ones make
slopes jump, and in number.

That nobody can tell more of a row is not proved: a privacy budget proves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.federated.linearisation import units_of
from quorate.arrays import Array
from quorate.codec import CodecError, decode, encode, record
from quorate.problem.losses import has_log_link
from quorate.problem.problem import Problem
from quorate.rounds import Algorithm
from quorate.sites.policy import FILE, Policy, Refusal
from quorate.sites.spans import (
    Index,
    Keys,
    Slopes,
    Span,
    fewest,
    fewest_of,
    largest,
    numbered,
    vectors,
)
from quorate.sites.told import SLOPES, SQUARES, Answered, Told, told_by, unknown
from quorate.storage import OWN, append, cut, make_folder, write_whole

LENGTH = 8  # bytes before a record, of its length
# share of a person in a combination of answers: fits of rational functions to answers along a line
# read rows of .9999 and more, and honest runs at sites of 60 rows and more stay below .99
MOST = 0.999
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


class Answers:
    """What a site has told, from its disk.

    Parameters
    ----------
    folder : where it is kept; nobody else may read it
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "answers"
        self.rows = np.zeros(0, np.uint64)  # `numbered` rows that answers were about
        self.people = np.zeros(0, np.uint64)  # whose each is
        self.repeats: Index | None = None  # the same as numbers, where anybody has several
        # of one sum, by kind, with the largest
        self.plain: dict[str, list[tuple[Array, float]]] = {SLOPES: [], SQUARES: []}
        self.others: list[Slopes] = []
        self.span = Span()
        self.models: dict[str, set[str]] = {}  # by experiment
        self.known: set[str] = set()  # digests of slopes
        self.last: tuple[Keys, Index] | None = None  # people, and where their rows are
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
        named = {_named(one, people): one for one in _slopes(told)}
        new = [one for name, one in named.items() if name not in self.known]
        at = self._at(people)
        placed = [one.placed(at, len(self.rows)) for one in new]
        if what := self._hang_on_few(policy.minimum_people, placed):
            self._keep(experiment, people, models, [])  # it was asked
            text = f"{what} fewer than {policy.minimum_people:g} people"
            return _refusal(PEOPLE, text, "The run ends here, with what is proved so far")
        self._keep(experiment, people, models, new)
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

    def _hang_on_few(self, least: float, slopes: Sequence[Slopes]) -> str:
        """What hangs on fewer people than ``least`` once these slopes are told; "" for nothing."""
        if least <= 1:
            return ""
        for one in slopes:
            if not fewest(one, None, self.repeats) >= least:
                return "the answer hangs on"
            if not self._nearest(least, one) >= least:
                return "the difference to an earlier answer hangs on"
        new = self.span.added(vectors(slopes))
        if not self.span.largest(new, self.repeats) <= MOST:
            return "a combination of answers hangs on"
        return ""

    def _nearest(self, least: float, one: Slopes) -> float:
        """The least n_eff of the differences to earlier answers; inf where all have enough."""
        plain, found = self.plain[one.kind], np.inf
        others = [other for other in self.others if other.kind == one.kind]
        if self.repeats is None and one.group is None and one.rows.ndim == 1:
            found = fewest_of(least, one.rows, plain)
        else:
            others += [Slopes(one.kind, rows, None) for rows, _ in plain]
        return min((found, *(fewest(one, other, self.repeats) for other in others)))

    # ---- rows

    def _at(self, people: Keys) -> Index:
        """Where the rows of these people are among all; new ones are put behind them."""
        if self.last is not None and self.last[0] is people:
            return self.last[1]
        rows = numbered(people)
        new = ~np.isin(rows, self.rows)
        if new.any():
            self.rows = np.concatenate([self.rows, rows[new]])
            self.people = np.concatenate([self.people, people[new]])
            self._grow(len(self.rows))
        order = np.argsort(self.rows)
        at = order[np.searchsorted(self.rows, rows, sorter=order)]
        self.last = people, at
        return at

    def _grow(self, size: int) -> None:
        """Have so many rows everywhere."""
        unique, at = np.unique(self.people, return_inverse=True)
        self.repeats = None if len(unique) == size else at.ravel()
        self.plain = {
            kind: [(np.pad(rows, (0, size - len(rows))), top) for rows, top in each]
            for kind, each in self.plain.items()
        }
        self.others = [one.placed(np.arange(len(one.rows)), size) for one in self.others]
        self.span.grown(size)

    # ---- the disk

    def _keep(
        self, experiment: str, people: Keys, models: Sequence[Array], slopes: Sequence[Slopes]
    ) -> None:
        """Write down what an answer tells, and what was asked."""
        more = {*map(_digest, models)} - self.models.get(experiment, set())
        if not slopes and not more:
            return
        rows = _digest(people)
        if not (self.folder / rows).exists():
            make_folder(self.folder)
            write_whole(self.folder / rows, encode(KeptRows(people)), OWN)
        none = np.zeros(0, np.int32)
        kept = KeptAnswer(
            experiment,
            rows,
            tuple(sorted(more)),
            tuple(one.kind for one in slopes),
            tuple(one.rows for one in slopes),
            tuple(none if one.group is None else one.group.astype(np.int32) for one in slopes),
        )
        if not self.file.exists():
            write_whole(self.file, b"", OWN)
        data = encode(kept)
        append(self.file, len(data).to_bytes(LENGTH, "little") + data, sync=False)
        self._take(kept, people)

    def _take(self, kept: KeptAnswer, people: Keys | None = None) -> None:
        """Know what was kept."""
        self.models.setdefault(kept.experiment, set()).update(kept.models)
        if people is None:
            people = decode((self.folder / kept.rows).read_bytes()).people
        assert people is not None
        at, placed = self._at(people), list[Slopes]()
        for kind, rows, group in zip(kept.kinds, kept.slopes, kept.groups, strict=True):
            one = Slopes(kind, rows, group.astype(np.intp) if len(group) else None)
            self.known.add(_named(one, people))
            placed.append(one.placed(at, len(self.rows)))
        for one in placed:
            if one.group is None and one.rows.ndim == 1:
                self.plain[one.kind].append((one.rows, largest(one.rows)))
            else:
                self.others.append(one)
        self.span.add(self.span.added(vectors(placed)))

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


def _slopes(told: Sequence[Told]) -> Iterator[Slopes]:
    """The slopes that are not zero everywhere."""
    for one in told:
        for sums in one.sums:
            if sums.unit and sums.rows.any():
                yield Slopes(one.kind, sums.rows / sums.unit, sums.group)


def _named(one: Slopes, people: Keys) -> str:
    """The same for the same sums over the same rows."""
    group = np.zeros(0, np.int32) if one.group is None else one.group.astype(np.int32)
    return " ".join([one.kind, *map(_digest, (people, one.rows, group))])


def length(answered: Answered, w: Array) -> float:
    """How long a model is in units of the columns, and of the target where that is a number."""
    problem, block = answered.problem, answered.block
    scaled = w * units_of(problem, block.squares()[0])
    unit = 1.0
    if problem.loss.targets == "real" and not has_log_link(problem.loss):
        unit = float(np.sqrt(block.mean(block.y**2)[0])) or 1.0
    return float(np.linalg.norm(scaled)) / unit


def unjudged(
    policy: Policy, algorithm: Algorithm, problem: Problem, message: Any = None
) -> Refusal | None:
    """Why the rule refuses a method, or a message of it, of whose answers nothing says on how many
    people they hang; None where it judges all of them.
    """
    if policy.minimum_people <= 1 or not (what := unknown(algorithm, problem, message)):
        return None
    text = f"nothing says on how many people it hangs: {what}"
    use = "Use Bundle(), or a privacy budget where maximum_epsilon and maximum_delta limit it"
    return _refusal(PEOPLE, text, use)


def _digest(array: NDArray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


def _refusal(rule: str, what: str, advice: str) -> Refusal:
    text = f"{rule}: {what}"
    return Refusal(rule, f"{text}. {advice}, or change {rule} in {FILE}.", f"{text}. {advice}.")
