"""The parameter that makes a model trivial, and up to which value of it a model is better.

Every parameter that can make a constant optimal has a harmless value: no constraint, labels that
cannot flip, radius 0, the mean over rows and over clients, a small regulariser, the logistic loss.
Those whose harmless values are needed for a better model are to blame, the mildest change first.

No problem is solved again. A witness shows that a problem has a better model: on the way from its
best constant c to the model u of the least mean loss of all rows, which a few steps of L-BFGS find,

    F(c + t (u - c)) < (1 - 1e-4) F(c)        for t = 1 or one of the smaller steps of `WAY`

Where only the predictions are trivial, the best of these models has to predict better. That no
model is better is proved by the cut at the best constant. A large table is asked by a sample of its
rows. Of a model that is not proved near the optimum, and of which no cut says so, no parameter is
blamed where the problem is not convex.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Any

import numpy as np

from bonafed.arrays import Array, dense, joined
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.duality import certify_concrete
from bonafed.data.federation import Federation
from bonafed.data.holdout import held_out
from bonafed.problem.calibration import calibrated
from bonafed.problem.constraints.constraint import several
from bonafed.problem.constraints.group_means import Coupled
from bonafed.problem.losses import Logistic, Squared
from bonafed.problem.lower_bounds import Duals, without_dual
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, Ball, Bounds, Zero
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.weight_sets import Mean, Sum
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution import thresholds, trivial
from bonafed.solution.thresholds import Threshold
from bonafed.solution.trivial import Finding, Triviality
from bonafed.solvers.smooth.newton import lbfgs

SMALL = 20_000  # features times rows of a sample
# rows of a client on average, below which a sample of every client's costs more than all rows do,
# up to so many features times rows
FEW, MOST = 20, 2**20
FAINT = 1e-4  # strength of a regulariser that does no harm
RARE = 0.25  # the share of a class up to which hardly any row may have a probability above 1/2
# what computes a threshold, which may take a program over the rows
PROGRAMS = {"radius": "radius_threshold", "tail": "tail_threshold"}
ROBUST = 0.3  # of r*: a radius up to this leaves most of a model
WAY = 1.0, 0.5, 0.25, 0.0625, 1 / 256  # from the best constant to the plain model
STEPS, DONE = 100, 1e-3  # of L-BFGS at most; of the first gradient: what is left of it at the end
UNKNOWN = (ValueError, TypeError, ArithmeticError)  # of problems that no formula or method takes


@dataclass(frozen=True)
class Cause:
    """A parameter that can make a constant optimal."""

    parameter: str
    value: float | str  # as stated
    harmless: dict[str, Any]  # the slots of the problem that change, as they do no harm
    words: str  # the parameter in a sentence
    do: str


def triviality(
    problem: Problem, fed: Federation, w: Array, proof: Certificate
) -> Triviality | None:
    """Why the model w of a solution is trivial, and None where it is not.

    Parameters
    ----------
    problem, fed : as stated
    w, proof : the model, its value and gap
    """
    if proof.infeasible is not None:
        return None
    share, all_rows = SMALL / (fed.n_features * float(fed.sizes.sum())), int(fed.sizes.sum())
    search = _Search(problem, fed, share)
    found = search.judged(problem, w, proof)
    if found is None:
        return None
    if len(same := np.unique(joined(fed.y))) == 1:
        column = f" {fed.schema.target!r}" if fed.schema and fed.schema.target else ""
        text = (
            f"The model is trivial: the target{column} is {same.tolist()[0]} in all"
            f" {fed.sizes.sum():,} rows trained on, so that there is nothing to learn. Name another"
            " target, or train on rows with other values."
        )
        return Triviality(found.kind, None, None, None, text)
    few = search.few
    if problem.over_rows is not None and not problem.constrained:  # it is the same in one place
        one = replace(problem, over_rows=None, over_samples=problem.over_rows)
        search, few = _Search(one, few.pooled()), few.pooled()
    try:
        why = search.answer(found, proof, w)
    except UNKNOWN:  # a problem that cannot be changed so
        why = search.not_found()
    if (asked := int(few.sizes.sum())) < all_rows:
        why = replace(why, text=f"{why.text} This was found on {asked:,} of the {all_rows:,} rows.")
    return why


class _Search:
    """The search for the parameter that is to blame, among a share of the rows."""

    def __init__(self, problem: Problem, fed: Federation, share: float = 1.0) -> None:
        self.private = problem.privacy is not None
        # nothing that is computed for the answer is charged to a budget
        self.problem = replace(problem, privacy=None) if self.private else problem
        self.fed, self.share = fed, share
        self.found = Finding("coefficients are zero")  # until `answer` knows
        self.done = True  # whether the model is proved to be near the optimum
        self.most = math.inf  # percent by which a coefficient may lower the objective

    @cached_property
    def few(self) -> Federation:
        """The rows that are asked what is to blame."""
        fed = self.fed
        few = fed.sizes.mean() < FEW and SMALL / self.share < MOST
        if self.share >= 1 or few:
            return fed
        held = held_out(fed.clients, fed.y, self.share, 0, fed.classes is not None)
        return fed._where(held) if any(part.any() for part in held) else fed

    def judged(self, problem: Problem, w: Array, proof: Certificate) -> Finding | None:
        """What makes the model of a problem trivial."""

        def plain_accuracy() -> float | None:
            plain = self.plain
            return None if plain is None else trivial.balanced_accuracy(concrete, data, plain)

        concrete, data = problem.at(self.fed)
        return trivial.finding(concrete, data, w, proof.value, proof.gap, plain_accuracy)

    @cached_property
    def plain(self) -> Array | None:
        """The model with the least mean loss of all rows; None where it was not found."""
        if not is_affine(self.problem.predictor):
            return None
        problem, data = _plain(self.problem).at(self.few.pooled())
        block, d = data.block(0), self.fed.n_features
        X = np.array(dense(block.rows(0)), float)  # which is changed in place: it may be large
        own, share = X[:, :d], block.share[0]  # but for a column of ones
        centre = share @ own * bool(getattr(self.problem.predictor, "fit_intercept", False))
        own -= centre
        size = np.sqrt(np.einsum("n,nd,nd->d", share, own, own))
        size = np.where(size > 1e-9 * np.hypot(size, centre), size, np.inf)
        own /= size
        block = replace(block, X=X[None])

        def value(v: Array) -> tuple[Array, Array]:
            cut = problem.cut(v[0], block)
            gradient = cut.gradient.copy()
            inner = problem.predictor.split(v)[0]
            gradient[:, : inner.shape[1]] += FAINT * inner
            return cut.base + problem.penalty(v[0]), gradient

        start = np.zeros((1, problem.predictor.dimension(data.n_features)))
        slope = float(np.abs(value(start)[1]).max())
        end = lbfgs(value, start, DONE * max(slope, 1e-300), cap=STEPS)
        if not end.residual[0] <= DONE * max(slope, 1e-6):
            return None
        w = end.v[0].reshape(-1, getattr(problem.predictor, "classes", None) or 1)
        w[: len(size)] /= size[:, None]
        if centre.any():
            w[-1] -= centre @ w[: len(size)]
        return w.ravel()

    def answer(self, found: Finding, proof: Certificate, w: Array) -> Triviality:
        """Why a model w with this finding is trivial."""
        self.fed, self.share = self.few, 1.0
        self.found, self.done, kind = found, _near(proof), found.kind
        gap = _gap(proof) if self.done else 0.0
        self.most = math.ceil(1e4 * (gap + max(min(gap, trivial.LOOSEST), trivial.CLOSE))) / 100
        better = self._has_better([]) if self.private or not self.done else False
        if self.private and better:
            text = (
                f"The model is trivial ({kind}); without privacy it would not be: the noise hides"
                " the rows. Raise epsilon, or take more rows or fewer features."
            )
            return Triviality(kind, "epsilon", None, None, text)
        if not (self.private or self.done):
            self.done = not better and self._proved(self.problem)
            if not self.done and (better or not self.problem.convex or proof.gap is not None):
                return self._unfinished(better)
        causes = [*_causes(self.problem, self.fed)]
        if needed := self._needed(causes):
            return self._blamed(needed)
        if self.plain is not None and not self._witness(*_plain(self.problem).at(self.fed)):
            return self._without_signal(w)
        return self.not_found(causes)

    # -- which parameters

    def _needed(self, causes: Sequence[Cause]) -> list[Cause]:
        """The fewest causes that have to be taken away together, the mildest first."""
        sets = chain.from_iterable(combinations(causes, k + 1) for k in range(len(causes)))
        return [*next(filter(self._has_better, sets), ())]

    def _has_better(self, causes: Sequence[Cause]) -> bool:
        """Whether a witness shows that without these causes there is a model that is not trivial
        as the stated one is.
        """
        slots = _harmless(causes)
        with suppress(*UNKNOWN):
            if all(name in ("loss", "regulariser") or slots[name] == Mean() for name in slots):
                concrete, data = self.problem.at(self.fed)  # where these are the same
                return self._witness(replace(concrete, **slots), data)
            return self._witness(*replace(self.problem, **slots).at(self.fed))
        return False

    def _witness(self, problem: Problem, data: Federation) -> bool:
        constant, u = trivial.has_constant(problem), self.plain
        if u is None or (self.found.of_coefficients and not constant):
            return False
        c, level = np.zeros(len(u)), math.inf
        if constant:
            c[data.n_features :] = trivial.best_constant(problem, data).intercept
            level = problem.objective_here(c, data) * (1 - trivial.CLOSE)
        best, model = math.inf, u
        for t in WAY:
            v = c + t * (u - c)
            value = problem.objective_here(v, data)
            if problem.constrained and problem.violation(v, data) > 1e-6:
                continue
            if value >= best:
                break
            best, model = value, v
            if self.found.of_coefficients and best < level:
                return True
        if self.found.of_coefficients or not best < level:
            return False
        return trivial.finding(problem, data, model, best) is None

    def _proved(self, problem: Problem) -> bool:
        """Whether the cut at the best constant proves that no model is better by more than a share
        of `trivial.CLOSE`.
        """
        with suppress(*UNKNOWN):
            concrete, data = problem.at(self.fed)
            known = self.found.of_coefficients and trivial.has_constant(concrete)
            open_ = concrete.constrained or without_dual(concrete) or concrete.over_rows is not None
            if open_ or not (known and concrete.convex):
                return False
            best = trivial.best_constant(concrete, data)
            w = np.zeros(concrete.predictor.dimension(data.n_features))
            w[data.n_features :] = best.intercept
            duals = Duals(best.weights, w[None], best.weights[None])
            proof, _ = certify_concrete(concrete, data, w, duals)
            return _near(proof, trivial.CLOSE)
        return False

    # -- what is said of them

    def _blamed(self, needed: Sequence[Cause]) -> Triviality:
        """The first of these parameters is to blame, and all of them have to change."""
        found, (cause, *others) = self.found, needed
        problem = replace(self.problem, **_harmless(others)) if others else self.problem
        limit = None if isinstance(cause.value, str) else _formula(problem, self.fed, cause)
        advice = [self._advice(cause, limit), *map(self._advice, others)]
        robust = any(name in cause.parameter for name in ("radius", "label_cost"))
        what = "the worst-case loss" if robust else "the objective"
        zero = found.of_coefficients
        lowers = f"no coefficient lowers {what} by more than {self.most:.2f} %"
        lowers = lowers if zero else f"that is best for {what}"
        also = "".join(f" and {other.words}" for other in others)
        if zero and not self.done:  # of a problem in which nothing bounds an optimum
            lowers = "no better model was found"
        text = f"The model {trivial.TRIVIAL[found.kind]}: {cause.words}{also} {lowers}."
        if others:
            text += " All of these have to change." if len(others) > 1 else " Both have to change."
        threshold = None
        if limit is not None and limit.exact and zero:
            threshold, first = float(limit.value), "Then the" if others else "The"
            star = "r*, " * (cause.parameter == "radius")
            text += f" {first} largest {cause.parameter} with a model is {limit.value:.3g}"
            text += f" ({star}{limit.how})."
        elif zero and cause.parameter in PROGRAMS:
            call = f"call bonafed.solution.thresholds.{PROGRAMS[cause.parameter]}"
            advice += [f"To see at which {cause.parameter} a model begins, {call}."]
        advice += [] if (rarer := _rarer(found)) is None else [_cut(rarer)]
        text += "".join(f" {each}" for each in advice)
        return Triviality(found.kind, cause.parameter, cause.value, threshold, text)

    def _unfinished(self, better: bool) -> Triviality:
        """That the model is not the best one, or not proved to be: then nothing is to blame yet."""
        known = "a better one is known" if better else "nothing proves that none is better"
        do = "The problem is not convex: try another start or method"
        causes = [*_causes(self.problem, self.fed)]
        do += f". It may be so {_listed(causes)}." if causes else "."
        if self.problem.convex:
            do = "The proven gap leaves room for it: a finer solve would tell."
        text = f"The model is trivial ({self.found.kind}), and {known}. {do}"
        return Triviality(self.found.kind, None, None, None, text)

    def _advice(self, cause: Cause, limit: Threshold | None = None) -> str:
        """What to do about a parameter, with the number to give it."""
        below = math.inf if limit is None else ROBUST * limit.value
        if cause.parameter == "radius" and below < float(cause.value):  # "auto" is never larger
            return f"Use radius='auto', or one below {below:.2g}."
        lines = self.problem.loss.targets != "class" and self.found.of_coefficients
        if cause.parameter == "radius" and lines and trivial.has_constant(self.problem):
            return f"Use radius='auto', or a smaller one than {float(cause.value):g}."
        if cause.parameter == "strength" and limit is not None:
            return f"Use a strength below {below:.2g}."
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
        p = sigmoid.probability(concrete.predictions(w, data))
        most = float((p if self.found.positives <= 0.5 else 1 - p).max())
        return most if most <= 0.5 else None


def _harmless(causes: Sequence[Cause]) -> dict[str, Any]:
    """The slots of the problem in which these causes do no harm."""
    return {slot: value for cause in causes for slot, value in cause.harmless.items()}


def _near(proof: Certificate, share: float = trivial.LOOSEST) -> bool:
    """Whether a model is proved to be near the optimum: an unfinished solve suggests nothing."""
    return _gap(proof) <= share


def _gap(proof: Certificate) -> float:
    """By which share of its value a model may be above the optimum, or the best one near by."""
    bound = proof.nearby if proof.bound is None else proof.bound
    gap = math.inf if bound is None else abs(proof.value - bound)
    return gap / abs(proof.value) if proof.value else math.inf if gap else 0.0


def _formula(problem: Problem, fed: Federation, cause: Cause) -> Threshold | None:
    """The threshold of a parameter in closed form, or by a program over the clients: those over
    rows (`bonafed.solution.thresholds`) can take longer than the fit.
    """
    threshold = {"radius": thresholds.radius_threshold, "strength": thresholds.strength_threshold}
    flips = problem.loss.targets == "sign" and cause.parameter == "radius"
    flips = flips and math.isfinite(problem.over_samples.label_cost)
    lasso = isinstance(problem.regulariser, L1) or cause.parameter != "strength"
    if cause.parameter not in threshold or flips or not (problem.loss.smooth and lasso):
        return None
    with suppress(*UNKNOWN):
        limit = threshold[cause.parameter](problem, fed)
        return limit if 0 < limit.value < math.inf else None
    return None


# ----------------------------------------------------------------------------- what may be to blame


def _plain(problem: Problem) -> Problem:
    """The mean loss of all rows, without robustness and constraints: of a loss that is smooth."""
    smooth = problem.loss if problem.loss.smooth else Squared()
    return replace(
        problem,
        loss=Logistic() if problem.loss.targets == "sign" else smooth,
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
            )
        yield Cause("radius", largest, harmless, f"at radius {largest:g}", "Use a smaller radius.")
    elif by_rank(ball) and (named := _number(ball, "tail", "r", "rho")) != ("tail", 1.0):
        name, value = named or ("over_samples", repr(ball))
        words = f"under {ball!r} of the losses of rows"
        if named is not None:
            words = f"at {name} {value:g} of {type(ball).__name__} over the rows"
        do = "Let the risk count more rows: Superquantile with a large tail, or Mean()."
        yield Cause(name, value, harmless, words, do)
    yield from _of_clients(problem, fed)
    yield from _of_regulariser(problem)
    curved = getattr(ball, "support", None) is None  # a curved loss has no worst case on a support
    if problem.loss.targets == "sign" and not isinstance(problem.loss, Logistic) and curved:
        do = "Use loss=Logistic(), under which a rare class by itself makes no constant optimal."
        name = type(problem.loss).__name__
        yield Cause("loss", name, {"loss": Logistic()}, f"under the loss {name}", do)


def _number(part: object, *names: str) -> tuple[str, float] | None:
    """The first of these parameters that is a number, with its name."""
    known = ((name, getattr(part, name, None)) for name in names)
    return next(((name, float(x)) for name, x in known if isinstance(x, int | float)), None)


def _of_clients(problem: Problem, fed: Federation) -> Iterator[Cause]:
    risk, named = problem.over_clients, _number(problem.over_clients, "radius", "tail")
    mean = isinstance(risk, Mean | Sum) or named in (("radius", 0.0), ("tail", 1.0))
    if mean or fed.n_clients == 1:
        return
    harmless = {"over_clients": Mean(getattr(risk, "prior", "size"))}
    words = f"under the worst client weights of {type(risk).__name__}"
    words += "" if named is None else f" with {named[0]} {named[1]:g}"
    do = "Use ChiSquareBall(0.05, prior='size'), or the mean."
    value = repr(risk) if named is None else named[1]
    yield Cause("over_clients", value, harmless, words, do)


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
                return Cause("constraint", float(level), harmless, words, do)
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
