"""The parameter that makes a model trivial, and up to which value of it a model is better.

Every parameter that can make a constant optimal has a harmless value: no constraint, labels that
cannot flip, radius 0, the mean over rows and over clients, a small regulariser, the logistic loss.
They are set to it in turn, the mildest change first, until a model is better than a constant; what
was needed of these is to blame. Where a formula of `bonafed.solution.thresholds` says whether a
constant is optimal, nothing is solved for it; the threshold is that formula, or else the end of an
interval that is halved until its ends are 3 % apart, one coarse solve a step. A solve ends as soon
as its objective or its bound says on which side of the constant's objective the optimum is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from bonafed.algorithms.federated.bundle.bundle import BundleState
from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.data.federation import Federation
from bonafed.problem.calibration import calibrated
from bonafed.problem.constraints.constraint import several
from bonafed.problem.constraints.coupled import Coupled
from bonafed.problem.losses import Logistic
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, Ball, Bounds, Zero
from bonafed.problem.risks.mean import Mean, Sum
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.superquantile import Superquantile
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution import thresholds
from bonafed.solution.default_radius import default_radius
from bonafed.solution.thresholds import Threshold
from bonafed.solution.trivial import (
    CLOSE,
    Finding,
    Triviality,
    balanced_accuracy,
    constant_objective,
    finding,
)

MOST_NUMBERS = 1_000_000  # features times rows up to which problems are solved for the answer
WIDEST = 1e3  # the threshold is looked for within this factor
APART = 1.03  # the ends of the last interval: 0.97 and 1.05 of the better one are on either side
FAINT = 1e-4  # strength of a regulariser that does no harm
COARSE: dict[str, Any] = {"tol": CLOSE / 5, "max_rounds": 100}
NEAR = 1.1  # factor round a guess that is tried first
RARE = 0.25  # the share of a class up to which hardly any row may have a probability above 1/2
ROBUST = 0.3  # of r*: a radius up to this leaves most of a model


class Fitted(Protocol):
    """What is asked of a solution."""

    @property
    def w(self) -> Array: ...
    @property
    def certificate(self) -> Certificate: ...


Fit = Callable[..., Fitted]  # (problem, federation, tol=, max_rounds=) -> solution


@dataclass(frozen=True)
class Cause:
    """A parameter that can make a constant optimal."""

    parameter: str
    value: float | str  # as stated
    harmless: Problem
    at: Callable[[float], Problem] | None = None  # the problem at a number of the parameter
    falls: bool = False  # whether small values are the ones that make a model trivial
    most: float = math.inf  # the largest number that it can be
    words: str = ""  # the parameter in a sentence
    do: str = ""
    below: Callable[[float], str] | None = None  # what to do where the threshold is known


def triviality(problem: Problem, fed: Federation, solution: Fitted, fit: Fit) -> Triviality | None:
    """Why the model of a solution is trivial, and None where it is not.

    Parameters
    ----------
    problem, fed : as stated
    solution : the model, with its value and gap
    fit : solves a problem, as `bonafed.solve` does without this check
    """
    proof = solution.certificate
    if proof.infeasible is not None:
        return None
    search = _Search(problem, fed, fit)
    found = search.judged(problem, solution)
    if found is None:
        return None
    if problem.over_rows is not None and not problem.constrained:  # it is the same in one place
        one = replace(problem, over_rows=None, over_samples=problem.over_rows)
        search = _Search(one, fed.pooled(), fit)
    try:
        return search.answer(found, _is_solved(proof), solution.w)
    except (ValueError, TypeError, ArithmeticError):  # a problem that cannot be changed so
        text = f"The model is trivial: {found.kind}. Which parameter is to blame was not found."
        return Triviality(found.kind, None, None, None, text)


def _is_solved(proof: Certificate) -> bool:
    """Whether the model is proved to be as good as that of a coarse solve."""
    return proof.gap is not None and proof.gap <= COARSE["tol"] * abs(proof.value)


class _DecidedError(Exception):
    """A coarse solve is far enough to say whether the optimum is no better than a constant."""

    def __init__(self, trivial: bool) -> None:
        super().__init__(trivial)
        self.trivial = trivial


class _Search:
    """The search for the parameter that is to blame; what was solved for it is kept."""

    def __init__(self, problem: Problem, fed: Federation, fit: Fit) -> None:
        self.private = problem.privacy is not None
        # nothing that is solved for the answer is charged to a budget
        self.problem, self.fed, self.fit = replace(problem, privacy=None), fed, fit
        self.found = Finding("coefficients are zero")  # until `answer` knows
        self.balanced: float | None = None

    def judged(self, problem: Problem, solution: Fitted) -> Finding | None:
        """What makes a solution of a problem trivial."""
        concrete, data = problem.at(self.fed)
        proof = solution.certificate
        return finding(concrete, data, solution.w, proof.value, proof.gap, self._of_plain)

    def _of_plain(self) -> float | None:
        """The balanced accuracy of the model with the least mean loss."""
        plain = _plain(self.problem)
        if self.balanced is None and self._small and is_affine(plain.predictor):
            model = self.fit(plain, self.fed, **COARSE)
            self.balanced = balanced_accuracy(*plain.at(self.fed), model.w)
        return self.balanced

    @property
    def _small(self) -> bool:
        return bool(self.fed.sizes.sum() * self.fed.n_features <= MOST_NUMBERS)

    def answer(self, found: Finding, solved: bool, w: Array) -> Triviality:
        """Why a model w with this finding is trivial; ``solved``: it is near the optimum."""
        self.found = found
        if (self.private or not solved) and self._is_trivial(self.problem) is False:
            return self._by_noise() if self.private else self._unfinished()
        needed = self._needed()
        if not needed:
            return self._without_signal(w)
        cause, *others = needed
        problem = self.problem
        for other in others:
            problem = _relaxed(problem, other)
        there = (one for one in _causes(problem, self.fed) if one.parameter == cause.parameter)
        limit = self._threshold(problem, next(there, cause))
        advice = [self._advice(problem, cause, limit), *(self._advice(problem, o) for o in others)]
        return _told(self.found, cause, limit, others, advice)

    # -- which parameters

    def _needed(self) -> list[Cause]:
        """The causes that have to be taken away together; none where that does not help."""
        causes = list(_causes(self.problem, self.fed))
        for cause in causes:
            if self._is_trivial(cause.harmless) is False:
                return [cause]
        taken, there = [], self.problem
        for cause in causes:
            taken, there = [*taken, cause], _relaxed(there, cause)
            if len(taken) > 1 and self._is_trivial(there) is False:
                break
        else:
            return []
        for cause in [*taken]:
            left = [other for other in taken if other is not cause]
            there = self.problem
            for other in left:
                there = _relaxed(there, other)
            if left and self._is_trivial(there) is False:
                taken = left
        return taken

    def _is_trivial(self, problem: Problem, formulas: bool = True) -> bool | None:
        """Whether the optimal model of a problem is trivial; None where nothing says so."""
        if self.found.of_coefficients and formulas:
            by_formula = _by_formula(problem, self.fed)
            if by_formula is not None:
                return by_formula
        if not self._small:
            return None
        try:
            solution = self.fit(problem, self.fed, watch=[*self._watched(problem)], **COARSE)
        except _DecidedError as decided:
            return decided.trivial
        except (ValueError, ArithmeticError, TypeError):  # no method takes it, or it has no optimum
            return None
        other = self.judged(problem, solution)
        return other is not None and (other.of_coefficients or not self.found.of_coefficients)

    def _watched(self, problem: Problem) -> Iterator[Callable[[dict[str, Any], object], None]]:
        """What ends a coarse solve once it is decided whether a constant is as good."""
        concrete, data = problem.at(self.fed)
        if not self.found.of_coefficients or concrete.constrained:
            return
        level = constant_objective(concrete, data)
        if level is None:
            return
        least = level - CLOSE * abs(level)

        def see(row: dict[str, Any], state: object) -> None:
            if isinstance(state, BundleState) and (state.value < least or state.bound >= least):
                raise _DecidedError(state.bound >= least)

        yield see

    # -- up to which value

    def _threshold(self, problem: Problem, cause: Cause) -> tuple[float, str] | None:
        """The threshold of a parameter and how it was computed."""
        if cause.at is None or isinstance(cause.value, str):
            return None
        limit = _formula(problem, self.fed, cause) if self.found.of_coefficients else None
        if limit is not None and limit.exact:
            return limit.value, limit.how
        return self._halved(cause, limit) if self._small else None

    def _halved(self, cause: Cause, guess: Threshold | None) -> tuple[float, str] | None:
        """The end of an interval, halved by its logarithm, at which the model is not trivial."""
        assert cause.at is not None
        bad, factor = float(cause.value), WIDEST if cause.falls else 1 / WIDEST
        good = min(bad * factor, cause.most)
        formulas = self.found.of_coefficients and _by_formula(cause.at(good), self.fed) is not None
        if self._is_trivial(cause.at(good), formulas) is not False:
            return None
        tried = [] if guess is None else [guess.value * NEAR, guess.value / NEAR]
        steps = 1
        while max(good / bad, bad / good) > APART:
            middle = tried.pop() if tried else math.sqrt(good * bad)
            if not min(good, bad) < middle < max(good, bad):
                continue
            answer = self._is_trivial(cause.at(middle), formulas)
            if answer is None:
                return None
            good, bad = (good, middle) if answer else (middle, bad)
            steps += 1
        return good, "by formulas" if formulas else f"by {steps} solves"

    def _advice(
        self, problem: Problem, cause: Cause, limit: tuple[float, str] | None = None
    ) -> str:
        """What to do about a parameter, with the number to give it."""
        if cause.parameter != "radius":
            return cause.do if limit is None or cause.below is None else cause.below(limit[0])
        below = math.inf if limit is None else ROBUST * limit[0]
        try:
            auto = default_radius(problem, self.fed)
        except (ValueError, TypeError, ArithmeticError):
            auto = math.inf
        if auto >= float(cause.value) or (limit is not None and auto >= limit[0]):
            return cause.do if limit is None else f"Use a radius below {below:.2g}."
        or_one = f", or one below {below:.2g}" if auto < below < math.inf else ""
        return f"Use radius='auto' ({auto:.2g}){or_one}."

    # -- no parameter

    def _unfinished(self) -> Triviality:
        text = (
            f"The model is trivial ({self.found.kind}), and the optimal one is not: the run stopped"
            " before it was done. Raise max_rounds, or lower tol."
        )
        return Triviality(self.found.kind, "max_rounds", None, None, text)

    def _by_noise(self) -> Triviality:
        text = (
            f"The model is trivial ({self.found.kind}); without privacy it would not be: the noise"
            " hides the rows. Raise epsilon, or take more rows or fewer features."
        )
        return Triviality(self.found.kind, "epsilon", None, None, text)

    def _without_signal(self, w: Array) -> Triviality:
        kind, rarer = self.found.kind, _rarer(self.found)
        if rarer is not None:
            most = self._most(w)
            highest = "" if most is None else f", the highest is {most:.3g}"
            text = (
                f"The model is trivial: {kind}. The rarer class has {rarer:.1%} of the rows, so"
                f" that hardly any row has a probability above 1/2{highest}; it is the same without"
                f" any robustness. {_cut(rarer)}"
            )
            return Triviality(kind, "cut", 0.5, most, text)
        text = (
            f"The model is trivial: {kind}. So is the plain mean of the losses without any"
            " robustness: the features say little or nothing about the target. Look for other"
            " features, or more rows."
        )
        return Triviality(kind, None, None, None, text)

    def _most(self, w: Array) -> float | None:
        """The highest probability of the rarer class; None where most of them are above 1/2."""
        sigmoid = calibrated(self.problem, self.fed, w)
        if sigmoid is None or self.found.positives is None:
            return None
        concrete, data = self.problem.at(self.fed)
        forward = concrete.predictor.forward
        scores = [forward(w, data.block(i))[0] for i in range(data.n_clients)]
        p = sigmoid.probability(np.concatenate(scores))
        most = float((p if self.found.positives <= 0.5 else 1 - p).max())
        return most if most <= 0.5 else None


def _by_formula(problem: Problem, fed: Federation) -> bool | None:
    """Whether a constant is optimal, where a formula says so."""
    try:
        if isinstance(problem.over_samples, Superquantile):
            limit = thresholds.tail_threshold(problem, fed)
            plain = isinstance(problem.regulariser, Zero | L2)
            return problem.over_samples.tail <= limit.value if limit.exact and plain else None
        limit = thresholds.radius_threshold(problem, fed)
    except (ValueError, ArithmeticError):
        return None
    ball = problem.over_samples
    radius = max(ball.radii()) if isinstance(ball, WassersteinBall) else 0.0
    if radius >= limit.value * (1 - 1e-6) or limit.value <= 1e-9:
        return True
    return False if limit.exact else None


def _formula(problem: Problem, fed: Federation, cause: Cause) -> Threshold | None:
    """The threshold of a parameter in closed form or by one program, where there is one."""
    try:
        match cause.parameter:
            case "radius":
                limit = thresholds.radius_threshold(problem, fed)
            case "tail":
                one = replace(problem, over_clients=Mean("size"))  # of several clients a guess
                limit = thresholds.tail_threshold(one, fed.pooled())
                limit = replace(limit, exact=limit.exact and fed.n_clients == 1)
            case "strength" if isinstance(problem.regulariser, L1):
                limit = thresholds.strength_threshold(problem, fed)
            case "label_cost":
                limit = _label_cost(problem, fed)
            case _:
                return None
    except (ValueError, ArithmeticError):
        return None
    return limit if limit is not None and 0 < limit.value < math.inf else None


def _label_cost(problem: Problem, fed: Federation) -> Threshold | None:
    """The label cost from which on a model is better, at the radius of the problem."""
    ball: WassersteinBall = problem.over_samples
    radius, bad = max(ball.radii()), ball.label_cost
    good, exact = bad * WIDEST, True
    if fed.sizes.sum() * fed.n_features > MOST_NUMBERS / 10:
        return None
    # the share of the labels that has to flip often is the same at every cost
    share = thresholds.flip_threshold(problem, fed).value
    tried = [radius / share * factor for factor in (1.002, 1 / 1.002)] if share > 0 else []
    while good / bad > 1.005:
        middle = tried.pop() if tried else math.sqrt(good * bad)
        if not bad < middle < good:
            continue
        there = replace(problem, over_samples=replace(ball, label_cost=middle))
        limit = thresholds.radius_threshold(there, fed)
        exact &= limit.exact
        good, bad = (good, middle) if radius >= limit.value else (middle, bad)
    return Threshold(good, exact, "by conic programs")


# ----------------------------------------------------------------------------- what may be to blame


def _plain(problem: Problem) -> Problem:
    """The mean loss of all rows, without robustness and constraints."""
    margin = problem.loss.targets == "sign"
    return replace(
        problem,
        loss=Logistic() if margin else problem.loss,
        over_samples=Mean(),
        over_clients=Mean("size"),
        over_rows=None,
        regulariser=L2(FAINT),
        constraint=None,
        local_constraint=None,
        privacy=None,
    )


def _relaxed(problem: Problem, cause: Cause) -> Problem:
    """The problem with the parameter of a cause harmless."""
    slot = SLOTS.get(cause.parameter, cause.parameter)
    if cause.parameter == "label_cost":
        return replace(problem, over_samples=replace(problem.over_samples, label_cost=math.inf))
    if slot == "constraint":
        return replace(problem, constraint=None, local_constraint=None)
    return replace(problem, **{slot: getattr(cause.harmless, slot)})


SLOTS = {
    **dict.fromkeys(("radius", "tail", "r", "rho"), "over_samples"),
    "strength": "regulariser",
}


def _causes(problem: Problem, fed: Federation) -> Iterator[Cause]:
    """The parameters that can make a constant optimal, the mildest change first."""
    if problem.constrained:
        yield _of_constraints(problem)
    ball = problem.over_samples
    if isinstance(ball, WassersteinBall) and any(ball.radii()):
        yield from _of_ball(problem, ball)
    elif by_rank(ball):
        yield _of_ranks(problem)
    yield from _of_clients(problem, fed)
    yield from _of_regulariser(problem)
    curved = getattr(ball, "support", None) is None  # a curved loss has no worst case on a support
    if problem.loss.targets == "sign" and not isinstance(problem.loss, Logistic) and curved:
        do = "Use loss=Logistic(), under which a rare class alone makes no constant optimal."
        name = type(problem.loss).__name__
        words = f"under the loss {name}"
        yield Cause("loss", name, replace(problem, loss=Logistic()), words=words, do=do)


def _of_ball(problem: Problem, ball: WassersteinBall) -> Iterator[Cause]:
    radii = np.asarray(ball.radii(), float)
    largest = float(radii.max())
    if problem.loss.targets == "sign" and math.isfinite(ball.label_cost):

        def at_cost(cost: float) -> Problem:
            return replace(problem, over_samples=replace(ball, label_cost=cost))

        share = largest / ball.label_cost
        yield Cause(
            "label_cost",
            float(ball.label_cost),
            at_cost(math.inf),
            at_cost,
            falls=True,
            words=f"at label_cost {ball.label_cost:g} and radius {largest:g}, by which"
            f" {min(share, 1):.1%} of the labels may flip,",
            do="Use label_cost=inf, or let fewer labels flip.",
            below=lambda cost: (
                f"Use label_cost=inf, or let at most {ROBUST * largest / cost:.1%} of the labels"
                " flip."
            ),
        )

    def at_radius(radius: float) -> Problem:
        stated: Any = ball.radius
        if isinstance(stated, dict):
            scaled = {name: r * radius / largest for name, r in stated.items()}
        else:
            scaled = np.asarray(stated, float) * (radius / largest)
            scaled = float(scaled) if scaled.ndim == 0 else scaled
        return replace(problem, over_samples=replace(ball, radius=scaled))

    yield Cause(
        "radius",
        largest,
        at_radius(0.0),
        at_radius,
        words=f"at radius {largest:g}",
        do="Use a smaller radius.",
    )


def _of_ranks(problem: Problem) -> Cause:
    risk = problem.over_samples
    harmless = replace(problem, over_samples=Mean())
    for name, falls, most in (
        ("tail", True, 1.0),
        ("r", False, math.inf),
        ("rho", False, math.inf),
    ):
        if isinstance(number := getattr(risk, name, None), int | float):
            least = 1.0 if name == "r" else 0.0

            def at(value: float, name: str = name, least: float = least) -> Problem:
                return replace(problem, over_samples=replace(risk, **{name: max(value, least)}))

            words = f"at {name} {number:g} of {type(risk).__name__} over the rows"
            do = "Let the risk count more rows: a larger tail, or Mean()."
            below = _larger_tail if falls else None
            return Cause(name, float(number), harmless, at, falls, most, words, do, below)
    words = f"under {risk!r} of the losses of rows"
    do = "Let the risk count more rows: Superquantile with a large tail, or Mean()."
    return Cause("over_samples", repr(risk), harmless, words=words, do=do)


def _of_clients(problem: Problem, fed: Federation) -> Iterator[Cause]:
    risk = problem.over_clients
    if isinstance(risk, Mean | Sum) or fed.n_clients == 1:
        return
    prior: Any = getattr(risk, "prior", "size")
    harmless = replace(problem, over_clients=Mean(prior))
    words = f"under the worst client weights of {type(risk).__name__}"
    do = "Use ChiSquareBall(0.05, prior='size'), or the mean."
    for name, falls, most in (("radius", False, math.inf), ("tail", True, 1.0)):
        number = getattr(risk, name, None)
        if isinstance(number, int | float) and number > 0:

            def at(value: float, name: str = name) -> Problem:
                return replace(problem, over_clients=replace(risk, **{name: value}))

            yield Cause(
                "over_clients",
                float(number),
                harmless,
                at,
                falls,
                most,
                f"{words} with {name} {number:g}",
                do,
            )
            return
    yield Cause("over_clients", repr(risk), harmless, words=words, do=do)


def _of_regulariser(problem: Problem) -> Iterator[Cause]:
    regulariser = problem.regulariser
    if isinstance(regulariser, Zero):
        return
    harmless = replace(problem, regulariser=L2(FAINT))
    strength = getattr(regulariser, "strength", None)
    name = type(regulariser).__name__
    if isinstance(strength, int | float) and strength > FAINT:

        def at(value: float) -> Problem:
            return replace(problem, regulariser=replace(regulariser, strength=value))

        words = f"at strength {strength:g} of {name}"
        do = "Regularise less."

        def below(most: float) -> str:
            return f"Use a strength below {ROBUST * most:.2g}."

        yield Cause("strength", float(strength), harmless, at, words=words, do=do, below=below)
    elif strength is None:
        sets = {Bounds: "bounds", Ball: "ball"}
        words = f"under the {sets.get(type(regulariser), 'regulariser')} {name}"
        yield Cause("regulariser", repr(regulariser), harmless, words=words, do="Regularise less.")


def _of_constraints(problem: Problem) -> Cause:
    harmless = replace(problem, constraint=None, local_constraint=None)
    for slot in ("local_constraint", "constraint"):
        parts = several(getattr(problem, slot), slot)
        for k, part in enumerate(parts):
            inner = part.constraint if isinstance(part, Coupled) else part
            level, name = getattr(inner, "level", None), type(inner).__name__
            if not isinstance(level, int | float) or level <= 0:
                continue

            def at(value: float, slot: str = slot, k: int = k, part: Any = part) -> Problem:
                inner: Any = part.constraint if isinstance(part, Coupled) else part
                new = replace(inner, level=value)
                new = replace(part, constraint=new) if isinstance(part, Coupled) else new
                stated = list(several(getattr(problem, slot), slot))
                stated[k] = new
                return replace(problem, **{slot: tuple(stated)})

            do = "Raise the level"
            if hasattr(inner, "measure"):
                do += ", state it for all clients together (Coupled), or use measure=Probability()"
            words = f"under {name} with level {level:g}"
            return Cause("constraint", float(level), harmless, at, True, words=words, do=f"{do}.")
    words = "under the constraints"
    return Cause("constraint", "as stated", harmless, words=words, do="Relax them.")


# ------------------------------------------------------------------------------------------- words


def _larger_tail(least: float) -> str:
    """The rule of `RiskClassifier`."""
    tail = max(0.5, 2 * least)
    return f"Use a tail of {tail:.2g} or more, or Mean()." if tail < 1 else "Use Mean()."


def _rarer(found: Finding) -> float | None:
    """The share of the rarer of two classes, where it alone can make a model predict one class."""
    share = None if found.of_coefficients else found.positives
    return None if share is None or min(share, 1 - share) >= RARE else min(share, 1 - share)


def _cut(rarer: float) -> str:
    return (
        "Its scores may still tell the classes apart (see the AUC): predict the rarer class above a"
        f" probability of {rarer:.2g}, or use class_weight='balanced'."
    )


def _told(
    found: Finding,
    cause: Cause,
    limit: tuple[float, str] | None,
    others: Sequence[Cause],
    advice: Sequence[str],
) -> Triviality:
    """The finding with its parameter, in words."""
    head = {
        "coefficients are zero": "The model is constant",
        "one value predicted": "The model is constant",
        "one class predicted": "The model predicts one class for all rows",
        "balanced accuracy at chance": "The model is no better than chance",
        "no better than a constant in its own objective": "The model is no better than a constant",
        "worse than the constant": "The model is worse than a constant",
    }[found.kind]
    robust = any(name in cause.parameter for name in ("radius", "label_cost"))
    what = "the worst-case loss" if robust else "the objective"
    lowers = (
        f"no coefficient lowers {what}" if found.of_coefficients else f"that is best for {what}"
    )
    also = "".join(f" and {other.words}" for other in others)
    text = f"{head}: {cause.words}{also} {lowers}."
    threshold = None
    if others:
        text += " All of these have to change." if len(others) > 1 else " Both have to change."
    if limit is not None:
        threshold, how = limit
        end = "smallest" if cause.falls else "largest"
        star = {"radius": "r*, ", "tail": "tail*, "}.get(cause.parameter, "")
        star = star if found.of_coefficients and "by" not in how else ""
        name = NAMES.get(cause.parameter, cause.parameter)
        model = "a model" if found.of_coefficients else "a model of both classes"
        first = "Then the" if others else "The"
        text += f" {first} {end} {name} with {model} is {threshold:.3g} ({star}{how})."
    rarer = _rarer(found)
    text += "".join(f" {each}" for each in (*advice, *([] if rarer is None else [_cut(rarer)])))
    threshold = None if threshold is None else float(threshold)
    return Triviality(found.kind, cause.parameter, cause.value, threshold, text)


NAMES = {"constraint": "level", "over_clients": "parameter of the risk over clients"}
