"""The parameter that makes a model trivial, and up to which value of it a model is better.

Every parameter that can make a constant optimal has a harmless value: no constraint, labels that
cannot flip, radius 0, the mean over rows and over clients, a small regulariser, the logistic loss.
Those whose harmless values are needed for a better model are to blame, the mildest change first.
The formulas of `bonafed.solution.thresholds` say which these are, and up to which value, where all
coefficients are zero. Else at most two problems are solved: that in which all are harmless, whose
model has to be better, and that in which the first one is. A solve has a twentieth of the rounds of
the fit, `LEAST` at least; a large table is asked by a sample of its rows. Of a solve that is not
proved near its optimum nothing is said.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.duality import certify_concrete
from bonafed.data.federation import Federation
from bonafed.problem.calibration import calibrated
from bonafed.problem.constraints.constraint import several
from bonafed.problem.constraints.group_means import Coupled
from bonafed.problem.losses import Logistic
from bonafed.problem.lower_bounds import Duals, without_dual
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, Ball, Bounds, Zero
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import Mean, Sum, Superquantile
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution import thresholds, trivial
from bonafed.solution.solution import Solution
from bonafed.solution.thresholds import Threshold
from bonafed.solution.trivial import Finding, Triviality

SMALL, LEAST = 20_000, 60  # features times rows of a sample, rounds of a solve
FAINT = 1e-4  # strength of a regulariser that does no harm
RARE = 0.25  # the share of a class up to which hardly any row may have a probability above 1/2
ENOUGH = 0.01  # a relative gap up to which a solve says what an optimal model is like
ROBUST = 0.3  # of r*: a radius up to this leaves most of a model
UNKNOWN = (ValueError, TypeError, ArithmeticError)  # of problems that no formula or method takes


Fit = Callable[..., Solution]  # (problem, federation, tol=, max_rounds=) -> solution


@dataclass(frozen=True)
class Cause:
    """A parameter that can make a constant optimal."""

    parameter: str
    value: float | str  # as stated
    harmless: dict[str, Any]  # the slots of the problem that change, as they do no harm
    words: str  # the parameter in a sentence
    do: str
    falls: bool = False  # whether small values are the ones that make a model trivial


def triviality(
    problem: Problem, fed: Federation, w: Array, proof: Certificate, rounds: int, fit: Fit
) -> Triviality | None:
    """Why the model w of a solution is trivial, and None where it is not.

    Parameters
    ----------
    problem, fed : as stated
    w, proof, rounds : the model, its value and gap, and the rounds that it took
    fit : solves a problem, as `bonafed.solve` does without this check
    """
    if proof.infeasible is not None:
        return None
    search = _Search(problem, fed, fit, rounds)
    found = search.judged(problem, w, proof)
    if found is None:
        return None
    if len(same := np.unique(np.concatenate(fed.y))) == 1:
        column = f" {fed.schema.target!r}" if fed.schema and fed.schema.target else ""
        text = (
            f"The model is trivial: the target{column} is {same.tolist()[0]} in all"
            f" {fed.sizes.sum():,} rows trained on, so that there is nothing to learn. Name another"
            " target, or train on rows with other values."
        )
        return Triviality(found.kind, None, None, None, text)
    share, all_rows = SMALL / (fed.n_features * float(fed.sizes.sum())), int(fed.sizes.sum())
    if share < 1:  # what is to blame is asked of a sample, so that it costs little
        with suppress(ValueError):
            fed = fed.split(share, seed=0)[1]
        search = _Search(problem, fed, fit, rounds)
    if problem.over_rows is not None and not problem.constrained:  # it is the same in one place
        one = replace(problem, over_rows=None, over_samples=problem.over_rows)
        search = _Search(one, fed.pooled(), fit, rounds)
    try:
        why = search.answer(found, proof, w)
    except UNKNOWN:  # a problem that cannot be changed so
        why = search.not_found()
    if (asked := int(fed.sizes.sum())) < all_rows:
        why = replace(why, text=f"{why.text} This was found on {asked:,} of the {all_rows:,} rows.")
    return why


class _Search:
    """The search for the parameter that is to blame; what was solved for it is kept."""

    def __init__(self, problem: Problem, fed: Federation, fit: Fit, rounds: int) -> None:
        self.private = problem.privacy is not None
        # nothing that is solved for the answer is charged to a budget
        self.problem, self.fed, self.fit = replace(problem, privacy=None), fed, fit
        self.found = Finding("coefficients are zero")  # until `answer` knows
        self.rounds, self.left = max(rounds // 20, LEAST), 2

    def judged(self, problem: Problem, w: Array, proof: Certificate) -> Finding | None:
        """What makes a model of a problem trivial."""

        def plain_accuracy() -> float | None:
            plain = _plain(self.problem)
            if not is_affine(plain.predictor) or self.plain is None:
                return None
            return trivial.balanced_accuracy(*plain.at(self.fed), self.plain.w)

        concrete, data = problem.at(self.fed)
        return trivial.finding(concrete, data, w, proof.value, proof.gap, plain_accuracy)

    @cached_property
    def plain(self) -> Solution | None:
        """The model with the least mean loss."""
        return self._solved(_plain(self.problem))

    def _solved(self, problem: Problem) -> Solution | None:
        """The solution of a problem; None where the solve did not end, or was one too many."""
        if not (self.left and self.rounds):
            return None
        self.left -= 1
        try:
            solution = self.fit(problem, self.fed, tol=trivial.CLOSE, max_rounds=self.rounds)
        except UNKNOWN:  # no method takes it, or it has no optimum
            return None
        return solution if _near(solution.certificate, ENOUGH) else None

    def answer(self, found: Finding, proof: Certificate, w: Array) -> Triviality:
        """Why a model w with this finding is trivial."""
        self.found, kind = found, found.kind
        if self.private:
            if self._is_trivial(self.problem) is False:
                text = (
                    f"The model is trivial ({kind}); without privacy it would not be: the noise"
                    " hides the rows. Raise epsilon, or take more rows or fewer features."
                )
                return Triviality(kind, "epsilon", None, None, text)
        elif not (
            (by_formula := self._by_formula(self.problem))
            or _near(proof)
            or (by_formula is None and proof.gap is None)
        ):
            optimal = ", and the optimal one is not: the" if by_formula is False else ". The"
            text = (
                f"The model is trivial ({kind}){optimal} run stopped before it was done. Raise"
                " max_rounds, or lower tol."
            )
            return Triviality(kind, "max_rounds", None, None, text)
        causes = [*_causes(self.problem, self.fed)]
        if needed := self._by_formulas(causes):
            return self._blamed(needed)
        signal = self._is_trivial(_plain(self.problem), plain=True)
        if signal:
            return self._without_signal(w)
        if signal is None or not causes:
            return self.not_found(causes)
        # where nothing else is left to blame, the model is that of the plain mean
        enough = [cause for cause in causes if not [*_causes(self._without([cause]), self.fed)]]
        suspects = [cause for cause in causes if not self._by_formula(self._without([cause]))]
        first, *rest = suspects or causes
        without = False if first in enough[:1] else self._is_trivial(self._without([first]))
        if without is False:
            return self._blamed([first])
        if enough or (without and len(rest) == 1):
            return self._blamed(enough[:1] or rest)
        text = (
            f"The model is trivial: {kind}. The plain mean of the losses has a better one, so that"
            f" some of these are to blame: {_listed(causes)}. Change them one by one."
        )
        return Triviality(kind, None, None, None, text)

    # -- which parameters

    def _by_formulas(self, causes: Sequence[Cause]) -> list[Cause]:
        """The causes that have to be taken away together, where formulas say so."""
        each = list[bool | None]()
        for cause in causes:
            each.append(self._by_formula(self._without([cause])))
            if each[-1] is False:
                return [cause]
        for k in range(2, len(causes) + 1) if all(each) else ():
            if self._by_formula(self._without(causes[:k])) is False:
                needed = [*causes[:k]]
                for cause in causes[: k - 1]:
                    left = [other for other in needed if other is not cause]
                    needed = left if self._by_formula(self._without(left)) is False else needed
                return needed
        return []

    def _without(self, causes: Sequence[Cause]) -> Problem:
        """The problem in which these parameters are harmless."""
        slots = {slot: value for cause in causes for slot, value in cause.harmless.items()}
        return replace(self.problem, **slots)

    def _by_formula(self, problem: Problem) -> bool | None:
        """Whether a constant is optimal, where a formula or its own certificate says so of a model
        of all zeros.
        """
        if not self.found.of_coefficients:
            return None
        said = self._by_threshold(problem)
        with suppress(*UNKNOWN):
            return said or self._proved(problem) or said
        return said

    def _by_threshold(self, problem: Problem) -> bool | None:
        try:
            if isinstance(problem.over_samples, Superquantile):
                limit = thresholds.tail_threshold(problem, self.fed)
                plain = isinstance(problem.regulariser, Zero | L2)
                return problem.over_samples.tail <= limit.value if limit.exact and plain else None
            limit = thresholds.radius_threshold(problem, self.fed)
        except (ValueError, ArithmeticError):
            return None
        ball = problem.over_samples
        radius = max(ball.radii()) if isinstance(ball, WassersteinBall) else 0.0
        if radius >= limit.value * (1 - 1e-6) or limit.value <= 1e-9:
            return True
        return False if limit.exact else None

    def _proved(self, problem: Problem) -> bool:
        """Whether the cut at the best constant proves that no model is better by more than a share
        of `trivial.CLOSE`.
        """
        concrete, data = problem.at(self.fed)
        alone = not (concrete.constrained or without_dual(concrete)) and concrete.over_rows is None
        if not (alone and concrete.convex and trivial.has_constant(concrete)):
            return False
        best = trivial.best_constant(concrete, data)
        w = np.zeros(concrete.predictor.dimension(data.n_features))
        w[data.n_features :] = best.intercept
        duals = Duals(best.weights, w[None], best.weights[None])
        proof, _ = certify_concrete(concrete, data, w, duals)
        return _near(proof, trivial.CLOSE)

    def _is_trivial(self, problem: Problem, plain: bool = False) -> bool | None:
        """Whether the optimal model of a problem is trivial, as the stated one is; None where
        nothing says so.
        """
        if (by_formula := self._by_formula(problem)) is not None:
            return by_formula
        if (solution := self.plain if plain else self._solved(problem)) is None:
            return None
        other = self.judged(problem, solution.w, solution.certificate)
        return other is not None and (other.of_coefficients or not self.found.of_coefficients)

    # -- what is said of them

    def _blamed(self, needed: Sequence[Cause]) -> Triviality:
        """The first of these parameters is to blame, and all of them have to change."""
        found, (cause, *others) = self.found, needed
        problem = self._without(others)
        limit = None if isinstance(cause.value, str) else _formula(problem, self.fed, cause)
        advice = [self._advice(problem, cause, limit), *(self._advice(problem, o) for o in others)]
        robust = any(name in cause.parameter for name in ("radius", "label_cost"))
        what = "the worst-case loss" if robust else "the objective"
        zero = found.of_coefficients
        lowers = f"no coefficient lowers {what}" if zero else f"that is best for {what}"
        also = "".join(f" and {other.words}" for other in others)
        text = f"The model {trivial.TRIVIAL[found.kind]}: {cause.words}{also} {lowers}."
        if others:
            text += " All of these have to change." if len(others) > 1 else " Both have to change."
        threshold = None
        if limit is not None and limit.exact and zero:
            threshold, end = float(limit.value), "smallest" if cause.falls else "largest"
            star = {"radius": "r*, ", "tail": "tail*, "}.get(cause.parameter, "")
            first = "Then the" if others else "The"
            text += f" {first} {end} {cause.parameter} with a model is {limit.value:.3g}"
            text += f" ({star}{limit.how})."
        advice += [] if (rarer := _rarer(found)) is None else [_cut(rarer)]
        text += "".join(f" {each}" for each in advice)
        return Triviality(found.kind, cause.parameter, cause.value, threshold, text)

    def _advice(self, problem: Problem, cause: Cause, limit: Threshold | None = None) -> str:
        """What to do about a parameter, with the number to give it."""
        known = math.inf if limit is None else limit.value
        match cause.parameter:
            case "radius":
                below = ROBUST * known if ROBUST * known < float(cause.value) else math.inf
                try:
                    auto = thresholds.default_radius(problem, self.fed)
                except UNKNOWN:
                    auto = math.inf
                if auto >= min(float(cause.value), known):
                    return f"Use a radius below {below:.2g}." if below < math.inf else cause.do
                or_one = f", or one below {below:.2g}" if auto < below < math.inf else ""
                return f"Use radius='auto' ({auto:.2g}){or_one}."
            case "label_cost" if limit is not None:
                share = ROBUST * max(self.problem.over_samples.radii()) / known
                return f"Use label_cost=inf, or let at most {share:.1%} of the labels flip."
            case "tail" if limit is not None:  # the rule of `RiskClassifier`
                tail = max(0.5, 2 * known)
                larger = f"a tail of {tail:.2g} or more, or " * (tail < 1)
                return f"Use {larger}Mean()."
            case "strength" if limit is not None:
                return f"Use a strength below {ROBUST * known:.2g}."
        return cause.do

    def not_found(self, causes: Sequence[Cause] = ()) -> Triviality:
        """Nothing says which parameter is to blame."""
        text = f"The model is trivial: {self.found.kind}. Which parameter is to blame was not found"
        text += f": it may be so {_listed(causes)}." if causes else "."
        return Triviality(self.found.kind, None, None, None, text)

    def _without_signal(self, w: Array) -> Triviality:
        """That the plain mean of the losses has no better model."""
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
        p = sigmoid.probability(np.concatenate(trivial.scores_of(concrete, data, w)))
        most = float((p if self.found.positives <= 0.5 else 1 - p).max())
        return most if most <= 0.5 else None


def _near(proof: Certificate, share: float = trivial.LOOSEST) -> bool:
    """Whether a model is proved to be near the optimum: an unfinished solve suggests nothing."""
    bound = proof.nearby if proof.bound is None else proof.bound
    return bound is not None and proof.value - bound <= share * abs(proof.value)


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
                # from radius / F on, which is exact where the share F of labels is the same there
                ball: WassersteinBall = problem.over_samples
                radius, here = max(ball.radii()), thresholds.flip_threshold(problem, fed)
                if not 0 < here.value < 0.5:
                    return None
                moved = replace(ball, label_cost=radius / here.value)
                there = thresholds.flip_threshold(replace(problem, over_samples=moved), fed)
                if there.value <= 0:
                    return None
                same = abs(there.value - here.value) <= 0.01 * here.value
                limit = Threshold(radius / there.value, there.exact and same, there.how)
            case _:
                return None
    except (ValueError, ArithmeticError):
        return None
    return limit if limit is not None and 0 < limit.value < math.inf else None


# ----------------------------------------------------------------------------- what may be to blame


def _plain(problem: Problem) -> Problem:
    """The mean loss of all rows, without robustness and constraints."""
    return replace(
        problem,
        loss=Logistic() if problem.loss.targets == "sign" else problem.loss,
        over_samples=Mean(),
        over_clients=Mean("size"),
        over_rows=None,
        regulariser=L2(FAINT),
        constraint=None,
        local_constraint=None,
        privacy=None,
    )


def _causes(problem: Problem, fed: Federation) -> Iterator[Cause]:
    """The parameters that can make a constant optimal, the mildest change first."""
    if problem.constrained:
        yield _of_constraints(problem)
    harmless: dict[str, Any] = {"over_samples": Mean()}
    ball = problem.over_samples
    if isinstance(ball, WassersteinBall) and any(ball.radii()):
        largest = float(np.max(ball.radii()))
        if problem.loss.targets == "sign" and math.isfinite(ball.label_cost):
            yield Cause(
                "label_cost",
                float(ball.label_cost),
                {"over_samples": replace(ball, label_cost=math.inf)},
                f"at label_cost {ball.label_cost:g} and radius {largest:g}, by which"
                f" {min(largest / ball.label_cost, 1):.1%} of the labels may flip,",
                "Use label_cost=inf, or let fewer labels flip.",
                falls=True,
            )
        yield Cause("radius", largest, harmless, f"at radius {largest:g}", "Use a smaller radius.")
    elif by_rank(ball):
        numbers = ((name, getattr(ball, name, None)) for name in ("tail", "r", "rho"))
        for name, number in ((name, n) for name, n in numbers if isinstance(n, int | float)):
            if (name, number) == ("tail", 1.0):  # the mean
                break
            words = f"at {name} {number:g} of {type(ball).__name__} over the rows"
            do = "Let the risk count more rows: a larger tail, or Mean()."
            yield Cause(name, float(number), harmless, words, do, falls=name == "tail")
            break
        else:
            words = f"under {ball!r} of the losses of rows"
            do = "Let the risk count more rows: Superquantile with a large tail, or Mean()."
            yield Cause("over_samples", repr(ball), harmless, words, do)
    yield from _of_clients(problem, fed)
    yield from _of_regulariser(problem)
    curved = getattr(ball, "support", None) is None  # a curved loss has no worst case on a support
    if problem.loss.targets == "sign" and not isinstance(problem.loss, Logistic) and curved:
        do = "Use loss=Logistic(), under which a rare class by itself makes no constant optimal."
        name = type(problem.loss).__name__
        yield Cause("loss", name, {"loss": Logistic()}, f"under the loss {name}", do)


def _of_clients(problem: Problem, fed: Federation) -> Iterator[Cause]:
    risk = problem.over_clients
    if isinstance(risk, Mean | Sum) or fed.n_clients == 1:
        return
    harmless = {"over_clients": Mean(getattr(risk, "prior", "size"))}
    words = f"under the worst client weights of {type(risk).__name__}"
    do = "Use ChiSquareBall(0.05, prior='size'), or the mean."
    for name in ("radius", "tail"):
        number = getattr(risk, name, None)
        if isinstance(number, int | float):
            if number == (1.0 if name == "tail" else 0.0):  # the mean
                return
            words += f" with {name} {number:g}"
            yield Cause("over_clients", float(number), harmless, words, do, falls=name == "tail")
            return
    yield Cause("over_clients", repr(risk), harmless, words, do)


def _of_regulariser(problem: Problem) -> Iterator[Cause]:
    regulariser, harmless = problem.regulariser, {"regulariser": L2(FAINT)}
    strength, name = getattr(regulariser, "strength", None), type(regulariser).__name__
    if isinstance(strength, int | float) and strength > FAINT:
        words = f"at strength {strength:g} of {name}"
        yield Cause("strength", float(strength), harmless, words, "Regularise less.")
    elif strength is None and not isinstance(regulariser, Zero):
        sets = {Bounds: "bounds", Ball: "ball"}
        words = f"under the {sets.get(type(regulariser), 'regulariser')} {name}"
        yield Cause("regulariser", repr(regulariser), harmless, words, "Regularise less.")


def _of_constraints(problem: Problem) -> Cause:
    harmless = {"constraint": None, "local_constraint": None}
    for slot in ("local_constraint", "constraint"):
        for part in several(getattr(problem, slot), slot):
            inner = part.constraint if isinstance(part, Coupled) else part
            level, name = getattr(inner, "level", None), type(inner).__name__
            if isinstance(level, int | float) and level > 0:
                do = "Raise the level."
                if hasattr(inner, "measure"):
                    do = "Raise the level, state it for all clients together (Coupled), or use"
                    do += " measure=Probability()."
                words = f"under {name} with level {level:g}"
                return Cause("constraint", float(level), harmless, words, do, falls=True)
    return Cause("constraint", "as stated", harmless, "under the constraints", "Relax them.")


# ------------------------------------------------------------------------------------------- words


def _listed(causes: Sequence[Cause]) -> str:
    return "; ".join(cause.words.rstrip(",") for cause in causes)


def _rarer(found: Finding) -> float | None:
    """The share of the rarer of two classes, where it can make a model predict one class."""
    share = None if found.of_coefficients else found.positives
    return None if share is None or min(share, 1 - share) >= RARE else min(share, 1 - share)


def _cut(rarer: float) -> str:
    return (
        "Its scores may still tell the classes apart (see the AUC): predict the rarer class above a"
        f" probability of {rarer:.2g}, or use {trivial.BALANCED}."
    )
