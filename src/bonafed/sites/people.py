"""The rule of few people: nothing that leaves a site, and no difference of two answers, hangs on
fewer than a few people, and no combination of answers is made up of one person's row.

An answer leaves where n_eff (`bonafed.sites.spans`) is large enough of its slopes, and of their
difference to those of every answer that the site gave before, in any run and for any server; and
where the largest share of a person in combinations of all of them stays below `MOST`. So the site
keeps the slopes of its answers, beside its log. Models are limited in length, since long ones make
slopes jump, and in number.

That nobody can tell more of a row is not proved: a privacy budget proves it.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.comparators.afl import Mix
from bonafed.algorithms.federated.async_dro import Meet, Visit
from bonafed.algorithms.federated.bundle.async_bundle import EvaluateAt, EvaluateFirst
from bonafed.algorithms.federated.bundle.bundle import Evaluate
from bonafed.algorithms.federated.bundle.masked_bundle import Blend, Compare
from bonafed.algorithms.federated.interior_point import Expand
from bonafed.algorithms.federated.linearisation import Linearise, units_of
from bonafed.algorithms.federated.proximal_al.client import Settle
from bonafed.algorithms.method import SLOPES, SQUARES, Answered, Told, at, at_model, model_of
from bonafed.arrays import Array, Block
from bonafed.certificates.certificate import Differentiate
from bonafed.certificates.certify import Weigh, WeighAlong
from bonafed.certificates.duality import Certify, CertifySums
from bonafed.codec import CodecError, decode, encode, record
from bonafed.problem import parts as row_slopes
from bonafed.problem.losses import has_log_link
from bonafed.problem.lower_bounds import Survey
from bonafed.problem.parts import SurveySums, may_flip, parts_of, sends_curvature
from bonafed.problem.problem import Problem
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Algorithm, Conclude
from bonafed.sites import spans
from bonafed.sites.policy import Policy, Refusal, refused
from bonafed.sites.spans import Alike, Bounds, Combinations, Index, Keys, Slopes, same
from bonafed.storage import OWN, append, cut, make_folder, write_whole

NUMBER, NONE = np.dtype("<f8"), np.zeros(0)
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
    rows: str  # the name of the people whose rows these were
    models: tuple[str, ...]  # digests
    kinds: tuple[str, ...]
    # shapes (m,) or (m, C) of the slopes, relative to the largest weight, which are numbers in a
    # file for themselves: a new process reads no more of it than it looks at
    shapes: tuple[NDArray[np.int64], ...]
    groups: tuple[str, ...]  # names, "" of none
    # how far they are from those of earlier answers that are alike (`Bounds`)
    sizes: tuple[Array, ...]
    largest: tuple[Array, ...]


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


Why = Refusal | None


class Answers:
    """What a site has told, from its disk.

    Parameters
    ----------
    folder : where it is kept; nobody else may read it
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.slopes = folder, folder / "answers", folder / "slopes"
        self.rows = np.zeros(0, np.uint64)  # `numbered` rows that answers were about
        self.people = np.zeros(0, np.uint64)  # whose each is
        self.repeats: Index | None = None  # the same as numbers, where anybody has several
        self.each = 1  # rows that a person has at most
        self.told: list[Slopes] = []
        self.alike: list[Alike] = []  # the same
        self.exactly: Combinations | None = None  # once they are needed
        self.at_most: Combinations | None = None
        self.models: dict[str, set[str]] = {}  # by experiment
        self.last: tuple[Keys, Index | None] | None = None  # people, and where their rows are
        self.units: tuple[Problem, Block, Array, float] | None = None  # of the last models
        self.kept: dict[str, NDArray[Any]] = {}  # people and groups of rows, by their names
        self.end = 0  # of the slopes, in numbers
        self._read()

    def refusal(self, policy: Policy, name: str, people: Keys, answered: Answered) -> Why:
        """Why an answer in the experiment of this name must not leave, or None; what leaves is kept
        first.
        """
        told = told_by(answered)
        models = [w for one in told for w in one.models]
        if refusal := self._models(policy, name, answered, models):
            return refusal
        at, new = self._at(people), list[New]()
        for one in _slopes(told):  # what the site has not told before, each once
            placed = one.placed(at, len(self.rows))
            known = any(each.has(placed) for each in self.alike)
            if not known and not any(same(placed, other) for _, other, _ in new):
                new.append(New(one, placed, spans.NOTHING))
        what = self._hang_on_few(policy.minimum_people, new)
        for each in (self.exactly, self.at_most):
            if each is not None:
                each.end(kept=not what)
        self._keep(name, people, models, [] if what else new)  # it was asked
        if not what:
            return None
        text = f"{what} fewer than {policy.minimum_people:g} people"
        ends = "The run ends here, with what is proved so far"
        return refused(PEOPLE, text, ends, ask=ends)

    def _models(self, policy: Policy, name: str, answered: Answered, models: list[Array]) -> Why:
        """The rules about the models that are asked about."""
        longest = 0.0
        if models:  # in units of the columns, and of the target where that is a number
            problem, block = answered.problem, answered.block
            if self.units is None or self.units[0] is not problem or self.units[1] is not block:
                self.units = problem, block, *units(answered)
            each, unit = self.units[2:]
            longest = max(float(np.linalg.norm(w * each)) / unit for w in models)
        if not longest <= policy.maximum_model_length:
            text = f"a model is longer than {policy.maximum_model_length:g} in units of the columns"
            use = "Regularise more, or use fewer columns"
            return refused(LONG, text, use, ask=use)
        asked = self.models.get(name, set()) | {*map(_digest, models)}
        if len(asked) > policy.maximum_models:
            text = f"the site answers about {policy.maximum_models} models of an experiment"
            use = "Ask for a larger tol, or for a method of fewer rounds, such as Bundle()"
            return refused(MANY, text, use, ask=use)
        return None

    def _hang_on_few(self, least: float, new: list[New]) -> str:
        """What hangs on fewer people than ``least`` once these sums are told; "" for nothing."""
        if least <= 1:
            return ""
        bound = least * self.each
        for k, (_, one, _) in enumerate(new):
            if spans.hangs(bound, one) and not spans.fewest(one, None, self.repeats) >= least:
                return "the answer hangs on"
            few, bounds = list[Slopes](), spans.NOTHING
            for each in self.alike:
                if each.takes(one):
                    more, bounds = each.few(bound, one)
                    few += more
                elif each.related(one):
                    few += each.few_of_others(bound, one)
            if not all(spans.fewest(one, other, self.repeats) >= least for other in few):
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
            if self.at_most is None or not self.at_most.parted(groups):
                self.at_most = Combinations(size, groups, WHOLE)
            if self.at_most.tried(told, new, self.repeats, SURE) <= SURE:
                return False
        self.exactly = self.exactly or Combinations(size)
        return not self.exactly.tried(told, new, self.repeats, MOST) <= MOST

    # ---- rows

    def _at(self, people: Keys) -> Index | None:
        """Where the rows of these people are among all, None: as they are; new ones are put behind
        them.
        """
        if self.last is None or self.last[0] is not people:
            rows = spans.numbered(people)
            new = ~np.isin(rows, self.rows)
            if new.any():
                self.rows = np.concatenate([self.rows, rows[new]])
                self.people = np.concatenate([self.people, people[new]])
                self._grow(len(self.rows))
            order = np.argsort(self.rows)
            at = order[np.searchsorted(self.rows, rows, sorter=order)]
            self.last = people, None if np.array_equal(rows, self.rows) else at
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

    def _keep(self, experiment: str, people: Keys, models: Sequence[Array], new: list[New]) -> None:
        """Write down what an answer tells, and what was asked."""
        more = {*map(_digest, models)} - self.models.get(experiment, set())
        if not new and not more:
            return
        slopes = [each.one for each in new]
        kinds = tuple(one.kind for one in slopes), tuple(np.array(s.rows.shape) for s in slopes)
        groups = tuple("" if one.group is None else self._whole(one.group) for one in slopes)
        bounds = (tuple(parts) for parts in zip(*(each.bounds for each in new), strict=True))
        sizes, largest = bounds if new else ((), ())
        whole = self._whole(people), tuple(sorted(more))
        kept = KeptAnswer(experiment, *whole, *kinds, groups, sizes, largest)
        for file in (self.file, self.slopes):
            if not file.exists():
                write_whole(file, b"", OWN)
        numbers = b"".join(one.rows.astype(NUMBER).tobytes() for one in slopes)
        append(self.slopes, numbers, sync=False)
        self.end += len(numbers) // NUMBER.itemsize
        data = encode(kept)
        append(self.file, len(data).to_bytes(LENGTH, "little") + data, sync=False)
        self.models.setdefault(experiment, set()).update(more)
        for each in new:
            self._know(each.placed, each.bounds)

    def _whole(self, each: NDArray[Any]) -> str:
        """The name of people or groups, which are written down."""
        kind = each.dtype.kind  # the same bytes may be both
        same = (n for n, other in self.kept.items() if n[0] == kind and np.array_equal(each, other))
        if not (name := next(same, "")):
            name = kind + _digest(each)
            make_folder(self.folder)
            write_whole(self.folder / name, encode(each), OWN)
            self.kept[name] = each
        return name

    def _named(self, name: str) -> NDArray[Any]:
        if name not in self.kept:
            self.kept[name] = decode((self.folder / name).read_bytes())
        return self.kept[name]

    def _know(self, one: Slopes, bounds: Bounds) -> None:
        """Take over what was told."""
        alike = next((each for each in self.alike if each.takes(one)), None)
        if alike is None:
            self.alike.append(alike := Alike(one))
        alike.add(one, bounds)
        self.told.append(one)

    def _read(self) -> None:
        """Know what was kept; the end of what was cut off, and never left, is removed."""
        if not self.file.exists():
            return
        data, at = self.file.read_bytes(), 0
        numbers = self.slopes.stat().st_size // NUMBER.itemsize
        slopes = np.asarray(np.memmap(self.slopes, NUMBER, "r", shape=numbers)) if numbers else NONE
        while at < len(data):
            end = at + LENGTH + int.from_bytes(data[at : at + LENGTH], "little")
            if at + LENGTH > len(data) or end > len(data):
                cut(self.file, at)
                break
            kept = decode(data[at + LENGTH : end])
            if not isinstance(kept, KeptAnswer):
                raise CodecError(f"{self.file} holds a {type(kept).__name__}")
            self._take(kept, slopes)
            at = end
        if self.slopes.stat().st_size > self.end * NUMBER.itemsize:
            cut(self.slopes, self.end * NUMBER.itemsize)

    def _take(self, kept: KeptAnswer, slopes: Array) -> None:
        """Know an answer that was kept."""
        self.models.setdefault(kept.experiment, set()).update(kept.models)
        at, bounds = self._at(self._named(kept.rows)), zip(kept.sizes, kept.largest, strict=True)
        sums = zip(kept.kinds, kept.shapes, kept.groups, strict=True)
        for (kind, shape, name), each in zip(sums, bounds, strict=True):
            begin, self.end = self.end, self.end + int(shape.prod())
            if self.end > len(slopes):
                raise CodecError(f"{self.slopes} ends before {self.file}")
            rows = slopes[begin : self.end].reshape(shape)
            one = Slopes(kind, rows, self._named(name) if name else None)
            self._know(one.placed(at, len(self.rows)), Bounds(*each))


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


def unjudged(policy: Policy, algorithm: Algorithm, problem: Problem, message: Any = None) -> Why:
    """Why the rule refuses a method, or a message of it, of whose answers nothing says on how many
    people they hang; None where it judges all of them.
    """
    if policy.minimum_people <= 1 or not (what := unknown(algorithm, problem, message)):
        return None
    text = f"nothing says on how many people it hangs: {what}"
    use = "Use Bundle(), or a privacy budget where maximum_epsilon and maximum_delta limit it"
    return refused(PEOPLE, text, use, ask=use)


def _digest(array: NDArray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).hexdigest()


# What the answers of a run tell of a site's rows, message by message (`Told`).
#
# No rule can judge the answer to a message that is not listed here and that does not say in
# ``tells`` what its answers tell: such as a model where a client's own solver stops, as of
# `ProximalAL`.


def telling(kind: type) -> Callable[[Answered], Iterator[Told]] | None:
    """What the answers to messages of a class tell of the rows; None where nothing describes it."""
    return TOLD.get(kind, getattr(kind, "tells", None))


def told_by(answered: Answered) -> list[Told]:
    """What an answer tells of the rows, as far as that is known: see `unknown`."""
    how, ranked = telling(type(answered.ask)), answered.problem.over_rows is not None
    return [] if how is None or ranked else [*how(answered)]


def unknown(algorithm: Algorithm, problem: Problem, message: Any = None) -> str:
    """What a method, or a message of it, may tell of rows that nothing here describes, in words; ""
    where all is described.
    """
    name = type(algorithm).__name__
    if odd := [kind.__name__ for kind in algorithm.on_client if not telling(kind)]:
        return f"an answer to {odd[0]} of {name}"
    if problem.over_rows is not None:
        return "where the losses of rows stand among those of all"
    ball = problem.over_samples
    if may_flip(problem):
        return "the multiplier of a ball that flips labels, which is one person's margin"
    if isinstance(ball, WassersteinBall) and ball.support is not None and any(ball.radii()):
        return "where rows move in the worst distribution on a support"
    if getattr(algorithm, "sample", None) is not None:
        return f"the sample of rows that {name}(sample=...) draws"
    if getattr(algorithm, "local_steps", 1) > 1:
        return f"the models between the local steps of {name}"
    if isinstance(message, Certify) and not message.rows is message.split is None:
        return "a certificate by multipliers of rows"
    return ""


def _sizes(one: Answered) -> Iterator[Told]:
    yield Told(SQUARES, row_slopes.size_sums(one.block), _no_models(one))


def _no_models(one: Answered) -> Array:
    return np.zeros((0, one.problem.predictor.dimension(one.block.n_features)))


def _evaluate(one: Answered) -> Iterator[Told]:
    ask = one.ask
    yield from at(one, ask.w, parts_of(ask.parts))
    if ask.weights is not None and ask.bend:
        sums = row_slopes.metric_sums(one.problem, ask.w, one.block, ask.bend == "secant")
        yield Told(SQUARES, sums, ask.w[None])
    if ask.weights is not None and ask.pair is not None:
        yield _shifted(one, ask.pair[0], ask.pair[1] - ask.pair[0])


def _shifted(one: Answered, start: Array, change: Array, barrier: Array | None = None) -> Told:
    models = np.stack([start, start + change])
    sums = row_slopes.shifted_sums(one.problem, start, change, one.block, barrier)
    return Told(SLOPES, sums, models)


def _first(one: Answered) -> Iterator[Told]:
    start = one.ask.start
    yield from _sizes(one)
    yield from _async(one, np.zeros(0) if start is None else start)


def _async(one: Answered, w: Array | None = None) -> Iterator[Told]:
    parts = parts_of(one.ask.parts)
    second = _no_models(one).shape[1] <= one.ask.second_order
    model = one.ask.w[0] if w is None else w
    yield from at(one, model, parts._replace(smooth=parts.smooth * second), bool(parts.smooth))


def _meet(one: Answered) -> Iterator[Told]:
    yield from _sizes(one)
    yield from at(one, np.zeros(0) if one.ask.w is None else one.ask.w[0])


def _certify(one: Answered) -> Iterator[Told]:
    """The risk at the model, and one combination of the cuts at the points."""
    ask, problem, block, parts = one.ask, one.problem, one.block, parts_of(one.ask.parts)
    yield from at(one, ask.w)
    terms = list[tuple[Array, row_slopes.Sums]]()
    for k, point in enumerate(ask.points):
        mu = np.reshape(ask.multipliers[0, k], -1)
        if mu.any():
            sums = row_slopes.gradient_sums(problem, point, block, parts)
            terms += zip([mu[:1], mu[1:]] if len(sums) > 1 else [mu], sums, strict=True)
        if ask.local is not None and ask.shared is not None:
            each = row_slopes.limit_sums(problem, point, block, parts)
            for mine, stack in zip((ask.local[0, k], ask.shared[k]), each, strict=True):
                terms += zip(mine, stack, strict=True)
    if ask.pair is not None and ask.weights is not None:
        start, end = ask.pair
        change = end - start if ask.barrier is None else end
        moved = _shifted(one, start, change, ask.barrier)
        terms.append((np.atleast_1d(ask.weights[0]), moved.sums[0]))
        yield Told(SLOPES, [], moved.models)
    yield Told(SLOPES, row_slopes.combined(terms), ask.points)


def _certify_sums(one: Answered) -> Iterator[Told]:
    """The risk at the model, and this site's part of one combination of all sites' cuts."""
    ask, mine = one.ask, int(one.block.index[0])
    yield from at(one, ask.w)
    terms = list[tuple[Array, row_slopes.Sums]]()
    for point, multipliers in zip(ask.points, ask.multipliers, strict=True):
        [sums] = row_slopes.gradient_sums(one.problem, point, one.block)
        terms.append((multipliers[mine : mine + 1], sums))
    yield Told(SLOPES, row_slopes.combined(terms), ask.points)


def _expand(one: Answered) -> Iterator[Told]:
    """All at the model, and one combination of the curvatures of risk and constraints there."""
    ask, problem, block = one.ask, one.problem, one.block
    w = model_of(one, ask.w)
    yield from at(one, w)
    each = np.concatenate([ask.weight * ask.prior[:1], ask.local[0], ask.shared])
    sums = row_slopes.curvature_sums(problem, w, block)
    yield Told(SQUARES, row_slopes.combined([*zip(each[:, None], sums, strict=True)]), w[None])


def _blend(one: Answered) -> Iterator[Told]:
    yield from at(one, one.ask.w, curved=sends_curvature(one.problem, len(one.ask.w)))


def _weigh(one: Answered) -> Iterator[Told]:
    """At the model, a minorant of the Lagrangian by shifted slopes, and the curvature of the rows
    whose slopes the shift has led to the end of their domain, and of the others.
    """
    ask, curved = one.ask, one.problem.loss.smooth
    yield from at(one, ask.w, curved=curved)
    yield from at(one, np.zeros_like(ask.w), limits=False)  # the size of the objective's gradient
    shifted = _shifted(one, ask.w, ask.shift)
    yield shifted
    if not ask.shift.any():
        return
    yield from at(one, ask.w + ask.shift)  # of constraints
    ended = row_slopes.locked_sums(one.problem, ask.w, ask.shift, one.block)
    yield Told(SQUARES, ended, shifted.models)


TOLD: dict[type, Callable[[Answered], Iterator[Told]]] = {
    Survey: _sizes,
    Evaluate: _evaluate,
    EvaluateFirst: _first,
    EvaluateAt: _async,
    Certify: _certify,
    SurveySums: _sizes,
    Compare: at_model(),
    Blend: _blend,
    CertifySums: _certify_sums,
    Differentiate: at_model(),
    Weigh: _weigh,
    WeighAlong: _weigh,
    Expand: _expand,
    Linearise: lambda one: at(one, one.ask.w, curved=one.ask.bend is not None),
    Visit: at_model(each=True),
    Meet: _meet,
    Mix: at_model(),
    Settle: at_model(curved=True),
    Conclude: lambda one: iter(()),  # what a site keeps of answers that it gave
}
