"""Advice after a refusal: other algorithms, or small changes with which the problem is accepted.

Both are computed from the requirements of all algorithms in ``bonafed.names``, so that what is
advised is accepted when it is followed.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

from bonafed.algorithms.method import Method
from bonafed.algorithms.requirements import ONE_CLIENT, Reason, Requirements, Setting
from bonafed.names import NAMED, load, of_place
from bonafed.problem.losses import Logistic, Multinomial, Squared
from bonafed.problem.predictors.affine import Linear, Softmax
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import Mean, Superquantile
from bonafed.problem.wasserstein.ball import WassersteinBall

MOST = 4  # algorithms that an advice names

# What a change costs: a guarantee that is given up counts for more than another loss.
COST = {"privacy": 9.0, "constraint": 9.0, "over_rows": 9.0, "sums": 9.0}
COST |= {"clients": 3.0, "predictor": 2.0}


class Change(NamedTuple):
    """Another value in one slot, with which an algorithm may take the problem."""

    slot: str
    words: str  # as in Python: "loss=Logistic()"
    problem: Problem
    setting: Setting


@dataclass(frozen=True)
class Advice:
    """Advice after a refusal: the algorithms and changes that are accepted instead.

    Attributes
    ----------
    methods : classes of algorithms that take the problem as it is
    changes : to the problem, all together, with which the refusing algorithm takes it; where no
        algorithm takes the problem, with which ``by`` does
    by : the class of the algorithm that takes the changed problem, or None
    pooled : the class of an algorithm for one client that takes the problem on pooled rows, where
        ranks of rows are what is refused
    """

    methods: tuple[type[Method], ...] = ()
    changes: tuple[Change, ...] = ()
    by: type[Method] | None = None
    pooled: type[Method] | None = None

    @property
    def text(self) -> str:
        """The advice as the end of a sentence."""
        names = [f"{cls.__name__}()" for cls in self.methods[:MOST]]
        words = " and ".join(change.words for change in self.changes)
        if self.methods:
            first = bool(self.changes) and self.changes[0].slot == "clients"
            parts = [words, listed(names)] if first else [listed(names), words]
            parts += [f"{self.pooled.__name__}() on fed.pooled()"] if self.pooled else []
            return "use " + ", or ".join(filter(None, parts)) + "."
        if self.by is None:
            return "no algorithm of bonafed takes such a problem."
        return f"use {words}, which {self.by.__name__}() takes."


class RefusedError(ValueError):
    """The error where an algorithm does not take a problem, with what it needs and what to use.

    Attributes
    ----------
    reason : the need that is not met
    advice : what is accepted instead
    """

    def __init__(self, reason: Reason, advice: Advice) -> None:
        super().__init__(f"{reason.text}: {advice.text}")
        self.reason, self.advice = reason, advice


class Requiring(Protocol):
    """Anything with requirements: an algorithm, or a reference on pooled rows."""

    requirements: ClassVar[Requirements]


def check_requirements(algorithm: Requiring, problem: Problem, setting: Setting) -> None:
    """Raise ``RefusedError`` unless the problem meets the algorithm's requirements."""
    requirements = algorithm.requirements
    reason = requirements.refusal(type(algorithm).__name__, problem, setting)
    if reason is not None:
        raise RefusedError(reason, advice(requirements, reason, problem, setting))


def known_methods() -> list[type[Method]]:
    """The algorithms of ``bonafed.names``; comparators and then those of the papers come last."""
    classes = [of_place(place) for place in NAMED["algorithm"].values()]
    return sorted(classes, key=lambda cls: cls.advised)


def takes(cls: type[Method], problem: Problem, setting: Setting) -> bool:
    """Whether an algorithm with its default settings takes a problem."""
    if cls.requirements.refusal(cls.__name__, problem, setting) is not None:
        return False
    try:
        cls().check_problem(problem, None)
    except ValueError:
        return False
    return True


def instead(problem: Problem, n_clients: int, name: str) -> str:
    """The algorithm of this name as in Python, "Bundle()", where it takes the problem; else ""."""
    cls = load("algorithm", name)
    return f"{cls.__name__}()" if takes(cls, problem, Setting(n_clients)) else ""


def taking(problem: Problem, setting: Setting) -> list[type[Method]]:
    """The algorithms that take a problem; those made for more than it has come last."""

    def rest(cls: type[Method]) -> bool:
        asks = cls.requirements
        more = asks.constrained and not problem.constrained
        return more or (asks.private and not problem.privacy)

    return sorted((cls for cls in known_methods() if takes(cls, problem, setting)), key=rest)


def advice(
    requirements: Requirements, reason: Reason, problem: Problem, setting: Setting
) -> Advice:
    """The advice where an algorithm of these requirements refuses a problem for this reason."""
    methods = tuple(taking(problem, setting))
    mine = changes_for(requirements, reason.method, problem, setting)
    if methods:
        cheap = mine is not None and len(mine) == 1 and COST.get(mine[0].slot, 1.0) < 9.0
        pooled = _on_pooled_rows(problem, setting) if reason.slot == "over_samples" else None
        return Advice(methods, tuple(mine or ()) if cheap else (), pooled=pooled)
    if problem.over_rows is not None:
        same = next(candidates("over_rows", problem, setting))
        if ones := taking(same.problem, same.setting):
            return Advice((), (same,), ones[0])
    best: tuple[float, Sequence[Change], type[Method] | None] = (float("inf"), (), None)
    for cls in sorted(known_methods(), key=lambda cls: cls.__name__ != reason.method):
        steps = changes_for(cls.requirements, cls.__name__, problem, setting)
        cost = sum(COST.get(step.slot, 1.0) for step in steps or ())
        if steps and cost < best[0] and takes(cls, steps[-1].problem, steps[-1].setting):
            best = cost, steps, cls
    return Advice((), tuple(best[1]), best[2])


def _on_pooled_rows(problem: Problem, setting: Setting) -> type[Method] | None:
    """The first algorithm for the rows of one client that takes a risk by rank, if there are more
    clients.
    """
    ranks = setting.n_clients > 1 and by_rank(problem.over_samples)
    ones = taking(problem, replace(setting, n_clients=1)) if ranks else ()
    return next((cls for cls in ones if cls.requirements.clients is ONE_CLIENT), None)


def changes_for(
    requirements: Requirements, method: str, problem: Problem, setting: Setting
) -> list[Change] | None:
    """Changes, one after another, with which an algorithm takes the problem; None if none do."""
    steps: list[Change] = []
    while (reason := requirements.refusal(method, problem, setting)) is not None:
        moved = any(step.slot == "over_rows" and step.problem.over_rows is None for step in steps)
        if reason.slot in {step.slot for step in steps} or (
            moved and reason.slot == "over_samples"
        ):
            return None
        every = candidates(reason.slot, problem, setting)
        meets = (each for each in every if reason.need.holds(each.problem, each.setting))
        if (step := next(meets, None)) is None:
            return None
        steps.append(step)
        problem, setting = step.problem, step.setting
    return steps


def candidates(slot: str, problem: Problem, setting: Setting) -> Iterator[Change]:
    """Simple values of a slot with which the problem still can be stated."""
    elsewhere = {
        "clients": ("fed.pooled()", replace(setting, n_clients=1)),
        "rows": ("a federation without sample_weight", replace(setting, equal_rows=True)),
        "engine": ("engine=InProcess()", replace(setting, asynchronous=False)),
        "sums": ("an engine without secure_sum", replace(setting, secure_sum=False)),
    }
    if slot in elsewhere:
        words, there = elsewhere[slot]
        yield Change(slot, words, problem, there)
        return
    if slot == "over_rows" and (risk := problem.over_rows) is not None:
        pooled = " on fed.pooled()" * (setting.n_clients > 1)
        words = f"over_samples={risk!r} in place of over_rows{pooled}, the same risk there"
        same = replace(problem, over_rows=None, over_samples=risk)
        yield Change(slot, words, same, replace(setting, n_clients=1))
    for words, values in _values(slot, problem):
        try:
            yield Change(slot, words, replace(problem, **values), setting)
        except (ValueError, TypeError):
            continue


def _values(slot: str, problem: Problem) -> list[tuple[str, dict[str, Any]]]:
    """Plain values of a slot of the problem, with the words for them."""
    several, ball = problem.loss.targets == "class", problem.over_samples
    free: dict[str, Any] = {"constraint": None, "local_constraint": None}
    samples: list[tuple[str, dict[str, Any]]] = [("over_samples=Mean()", {"over_samples": Mean()})]
    if isinstance(ball, WassersteinBall):  # without flips of labels and without a support
        words = f"over_samples=WassersteinBall({ball.radius!r}, label_cost=math.inf)"
        still = replace(ball, label_cost=math.inf, support=None)
        samples.insert(0, (words, {"over_samples": still}))
    rows = {"over_rows": Superquantile(0.1), "over_samples": Mean(), "over_clients": Mean()}
    tail = "over_rows=Superquantile(0.1) (another risk)", rows
    losses = {"sign": Logistic(), "real": Squared(), "class": Multinomial()}
    plain = {"predictor": Softmax() if several else Linear(), "over_clients": Mean()}
    plain |= {"loss": losses[problem.loss.targets]} if problem.loss.targets in losses else {}
    if slot in plain:
        return [(f"{slot}={type(plain[slot]).__name__}()", {slot: plain[slot]})]
    return {
        "loss": [],
        "regulariser": [("regulariser=L2(1e-3)", {"regulariser": L2(1e-3)})],
        "privacy": [("no privacy", {"privacy": None})],
        "constraint": [
            ("no constraint", free),
            ("no constraint and over_samples=Mean()", free | {"over_samples": Mean()}),
        ],
        "over_rows": [tail],
        "over_samples": samples,
    }[slot]


def listed(names: Sequence[str]) -> str:
    """Names as "a, b or c"."""
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
