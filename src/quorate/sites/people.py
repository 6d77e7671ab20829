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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quorate.algorithms.federated.linearisation import units_of
from quorate.arrays import Array, Block
from quorate.codec import CodecError, decode, encode, record
from quorate.problem.losses import has_log_link
from quorate.problem.problem import Problem
from quorate.rounds import Algorithm
from quorate.sites.differences import NOTHING, Alike, Bounds, hangs, same
from quorate.sites.policy import FILE, Policy, Refusal
from quorate.sites.spans import Combinations, Index, Keys, Slopes, fewest, numbered
from quorate.sites.told import Answered, Told, told_by, unknown
from quorate.storage import OWN, append, cut, make_folder, write_whole

LENGTH = 8  # bytes before a record, of its length
# share of a person in a combination of answers: fits of rational functions to answers along a line
# read rows of .9999 and more, and honest runs at sites of 60 rows and more stay below .99
MOST = 0.999
SURE = 0.99  # where a bound of it is less, nothing else is asked
WHOLE = 16_384  # rows among which combinations are judged without a bound
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
    # how far they are from those of earlier answers that are alike (`Bounds`)
    sizes: tuple[Array, ...]
    largest: tuple[Array, ...]


@record
class KeptRows:
    """Whose rows answers were about, for the site's disk."""

    people: Keys


class New(NamedTuple):
    """A sum that is about to be told.

    Attributes
    ----------
    one, placed : over the rows of the answer, and among all rows
    bounds : on the differences to the earlier ones that are alike
    """

    one: Slopes
    placed: Slopes
    bounds: Bounds


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
        self.each = 1  # rows that a person has at most
        self.told: list[Slopes] = []
        self.alike: list[Alike] = []  # the same
        self.exactly: Combinations | None = None  # once they are needed
        self.at_most: Combinations | None = None
        self.models: dict[str, set[str]] = {}  # by experiment
        self.last: tuple[Keys, Index] | None = None  # people, and where their rows are
        self.units: tuple[Problem, Block, Array, float] | None = None  # of the last models
        self.written: tuple[Keys, str] | None = None  # people, and their digest
        people: dict[str, Keys] = {}
        for kept in self._read():
            if kept.rows not in people:
                people[kept.rows] = decode((folder / kept.rows).read_bytes()).people
            self._take(kept, people[kept.rows])

    def refusal(
        self, policy: Policy, experiment: str, people: Keys, answered: Answered
    ) -> Refusal | None:
        """Why an answer must not leave, or None; what leaves is kept first."""
        told = told_by(answered)
        models = [w for one in told for w in one.models]
        if refusal := self._models(policy, experiment, answered, models):
            return refusal
        new = self._new(self._at(people), told)
        what = self._hang_on_few(policy.minimum_people, new)
        for each in (self.exactly, self.at_most):
            if each is not None:
                each.end(kept=not what)
        self._keep(experiment, people, models, [] if what else new)  # it was asked
        if not what:
            return None
        text = f"{what} fewer than {policy.minimum_people:g} people"
        return _refusal(PEOPLE, text, "The run ends here, with what is proved so far")

    def _models(
        self, policy: Policy, experiment: str, answered: Answered, models: Sequence[Array]
    ) -> Refusal | None:
        """The rules about the models that are asked about."""
        longest = max((self._length(answered, w) for w in models), default=0.0)
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

    def _new(self, at: Index, told: Sequence[Told]) -> list[New]:
        """The sums that the site has not told before, each once."""
        new = list[New]()
        for one in _slopes(told):
            placed = one.placed(at, len(self.rows))
            known = any(each.has(placed) for each in self.alike)
            if not known and not any(same(placed, other) for _, other, _ in new):
                new.append(New(one, placed, NOTHING))
        return new

    def _length(self, answered: Answered, w: Array) -> float:
        """How long a model is in units of the columns, and of the target where that is a number."""
        problem, block = answered.problem, answered.block
        if self.units is None or self.units[0] is not problem or self.units[1] is not block:
            self.units = problem, block, *units(answered)
        each, unit = self.units[2:]
        return float(np.linalg.norm(w * each)) / unit

    def _hang_on_few(self, least: float, new: list[New]) -> str:
        """What hangs on fewer people than ``least`` once these sums are told; "" for nothing."""
        if least <= 1:
            return ""
        bound = least * self.each
        for k, (_, one, _) in enumerate(new):
            if hangs(bound, one) and not fewest(one, None, self.repeats) >= least:
                return "the answer hangs on"
            few, bounds = list[Slopes](), NOTHING
            for each in self.alike:
                if each.takes(one):
                    more, bounds = each.few(bound, one)
                    few += more
                elif each.related(one):
                    few += each.few_of_others(bound, one)
            if not all(fewest(one, other, self.repeats) >= least for other in few):
                return "the difference to an earlier answer hangs on"
            new[k] = new[k]._replace(bounds=bounds)
        placed = [one.placed for one in new]
        return "a combination of answers hangs on" if self._combine(placed) else ""

    def _combine(self, new: Sequence[Slopes]) -> bool:
        """Whether a person has nearly all of a combination once these sums are told."""
        size, told = len(self.rows), self.told
        kinds = [each.like for each in self.alike]
        kinds += [one for one in new if not any(each.takes(one) for each in self.alike)]
        groups = [one.group for one in kinds if one.group is not None]
        if groups or size > WHOLE:
            if self.at_most is None or self.at_most.groups != len(groups):
                self.at_most = Combinations(size, groups, WHOLE)
            if self.at_most.tried(told, new, self.repeats, SURE) <= SURE:
                return False
        self.exactly = self.exactly or Combinations(size)
        return not self.exactly.tried(told, new, self.repeats, MOST) <= MOST

    # ---- rows

    def _at(self, people: Keys) -> Index:
        """Where the rows of these people are among all; new ones are put behind them."""
        if self.last is None or self.last[0] is not people:
            rows = numbered(people)
            new = ~np.isin(rows, self.rows)
            if new.any():
                self.rows = np.concatenate([self.rows, rows[new]])
                self.people = np.concatenate([self.people, people[new]])
                self._grow(len(self.rows))
            order = np.argsort(self.rows)
            self.last = people, order[np.searchsorted(self.rows, rows, sorter=order)]
        return self.last[1]

    def _grow(self, size: int) -> None:
        """Have so many rows everywhere."""
        _, at, rows = np.unique(self.people, return_inverse=True, return_counts=True)
        self.each = int(rows.max(initial=1))
        self.repeats = None if self.each == 1 else at.ravel()
        alike, self.alike, self.told = self.alike, [], []
        self.exactly = self.at_most = None
        for each in alike:
            for k, one in enumerate(each.told):
                self._know(one.placed(np.arange(len(one.rows)), size), each.bounds(k))

    # ---- the disk

    def _keep(
        self, experiment: str, people: Keys, models: Sequence[Array], new: Sequence[New]
    ) -> None:
        """Write down what an answer tells, and what was asked."""
        more = {*map(_digest, models)} - self.models.get(experiment, set())
        if not new and not more:
            return
        rows = self._whose(people)
        none = np.zeros(0, np.int32)
        slopes = [each.one for each in new]
        kept = KeptAnswer(
            experiment,
            rows,
            tuple(sorted(more)),
            tuple(one.kind for one in slopes),
            tuple(one.rows for one in slopes),
            tuple(none if one.group is None else one.group.astype(np.int32) for one in slopes),
            tuple(each.bounds.sizes for each in new),
            tuple(each.bounds.largest for each in new),
        )
        if not self.file.exists():
            write_whole(self.file, b"", OWN)
        data = encode(kept)
        append(self.file, len(data).to_bytes(LENGTH, "little") + data, sync=False)
        self.models.setdefault(experiment, set()).update(more)
        for each in new:
            self._know(each.placed, each.bounds)

    def _whose(self, people: Keys) -> str:
        """The digest of people, who are written down."""
        if self.written is None or self.written[0] is not people:
            rows = _digest(people)
            if not (self.folder / rows).exists():
                make_folder(self.folder)
                write_whole(self.folder / rows, encode(KeptRows(people)), OWN)
            self.written = people, rows
        return self.written[1]

    def _know(self, one: Slopes, bounds: Bounds) -> None:
        """Take over what was told."""
        alike = next((each for each in self.alike if each.takes(one)), None)
        if alike is None:
            self.alike.append(alike := Alike(one))
        alike.add(one, bounds)
        self.told.append(one)

    def _take(self, kept: KeptAnswer, people: Keys) -> None:
        """Know what was kept."""
        self.models.setdefault(kept.experiment, set()).update(kept.models)
        at, sums = self._at(people), zip(kept.kinds, kept.slopes, kept.groups, strict=True)
        bounds = zip(kept.sizes, kept.largest, strict=True)
        for (kind, rows, group), each in zip(sums, bounds, strict=True):
            one = Slopes(kind, rows, group.astype(np.intp) if len(group) else None)
            self._know(one.placed(at, len(self.rows)), Bounds(*each))

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
    """The slopes that are not zero everywhere, with groups where there are several."""
    for one in told:
        for sums in one.sums:
            if sums.unit and sums.rows.any():
                group = sums.group
                if group is not None and not group.max() > 0 and not sums.rows[group < 0].any():
                    group = None
                yield Slopes(one.kind, sums.rows / sums.unit, group)


def units(answered: Answered) -> tuple[Array, float]:
    """The units of models (D,), and of the target where that is a number."""
    problem, block = answered.problem, answered.block
    unit = 1.0
    if problem.loss.targets == "real" and not has_log_link(problem.loss):
        unit = float(np.sqrt(block.mean(block.y**2)[0])) or 1.0
    return units_of(problem, block.squares()[0]), unit


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
