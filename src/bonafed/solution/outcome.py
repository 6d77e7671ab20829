"""Why a run ended, in words: all of them are made here, by one function of the stop, the rounds and
the certificate, which is recomputed from the data.

A method only reports a `Stop`. What it believed of its model is not repeated: a claim of an optimum
that the certificate does not bear out is taken back. All of it follows from numbers, so that a
folder can keep it and `verify` can compose it again. Only what the engine reports, such as the
refusal of a site, stands in front as it was said.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bonafed.algorithms.alternatives import instead
from bonafed.algorithms.method import Method, settings_of
from bonafed.certificates.certificate import Certificate
from bonafed.client_names import ClientName
from bonafed.engines.endings import MAX_TIME, UNUSED, lies_in
from bonafed.problem.centring import as_they_are
from bonafed.problem.lower_bounds import NEARBY, Multipliers, without_dual
from bonafed.problem.own_functions import declared
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.rounds import Outcome, Stop
from bonafed.solution.tables import MET, broken, in_conflict, out_of_bounds, tiny
from bonafed.text import counted

UNPROVED = "That nothing is feasible could not be proved."  # in an outcome of a run that tried to
FAILED = "The proof failed ({}): the model is kept, with no bound from a proof."
# in an outcome of a run in which a site gave an impossible answer
CONDITION = "Its numbers hold if all other answers of {}, which rows could give, are true."
REACHED = "By the answers before, the run's own objective was {:.9g} and its bound {:.9g}."
# of a run that did not end by its method's test, whose gap is within tol all the same
DONE = "So the model is optimal within tol, though the method's own test was not met."
DONE_THERE = "So the model is optimal within tol among these."
TOL, PRECISE = 1e-6, 1e-10  # of methods that have none; a relative gap that rounding leaves
# why there is no bound; in an outcome of a run whose problem has none
UNBOUNDABLE = "so no bound says how far the optimum may be"
UNMET = " Not met: "  # before the limits that a model breaks
# before limits that hold the model, and are as small as what a limit may be exceeded by
FAINT = " Limits up to {:g}, by which a limit may be broken, hold the model: {}. Raise them."
STARTING = 2  # rounds before the first that a method counts to its cap, at most
STEPS = "step_size", "weight_step", "step", "kappa"  # settings that make steps longer
# what a stop becomes where a certificate does not bear it out
UNBORNE = {Stop.OPTIMAL: Stop.UNPROVEN, Stop.INFEASIBLE: Stop.STALLED}
SEPARATED = (
    "The classes are separated: a combination of the features tells {} from another class, and no"
    " row is on the wrong side. So the objective falls without end as coefficients grow, no model"
    " is the best one, and coefficients and odds ratios say nothing: add a regulariser such as"
    " L2(1e-3)."
)
NEAR_BY = (
    "Of the models{} up to {:,} times as large as this one (the length of coefficients and"
    " intercept) none has an objective that is lower by more than {:.2e} (relative {:.2e})."
)
REGULARISE = "add a regulariser such as L2(1e-3)"


class UnprovenWarning(UserWarning):
    """The model is not proven to be within the tolerance of the best one: the run stopped before it
    was done, a limit is not met, or nothing bounds the optimum.

    Where the problem is not convex, so that nothing can be proved, a run that came to rest warns of
    nothing. Estimators warn with a subclass, which is scikit-learn's ``ConvergenceWarning`` too.

    Examples
    --------
    >>> import warnings
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     solution = bf.solve(problem, load.hospitals(), max_rounds=2)
    >>> [warning.category.__name__ for warning in caught]
    ['UnprovenWarning']
    """


def unproven(stop: Stop, text: str) -> bool:
    """Whether an outcome is that of a model to be warned of, see `UnprovenWarning`."""
    if stop is Stop.OPTIMAL or DONE in text or DONE_THERE in text:
        return False
    rests = stop is Stop.UNPROVEN and UNBOUNDABLE in text
    return not rests or UNMET in text or FAILED.split("{}")[0] in text


@dataclass(frozen=True)
class Ended:
    """What an outcome is stated from.

    Attributes
    ----------
    stop : why the run ended
    rounds : of the engine
    method : configured with the concrete problem
    max_time : of the engine, in virtual seconds, or None
    no_model : whether the method ended because it holds that no model meets all constraints
    lies : the sentences that say what sites answered that no rows answer; "" for none
    reached : the objective and the bound of the last round, where the method states them
    said : what the engine reports of a run that it has ended; "" where the method ended it, and in
        folders, which keep only what follows from numbers
    """

    stop: Stop
    rounds: int
    method: Method
    max_time: float | None = None
    no_model: bool = False
    lies: str = ""
    reached: tuple[float, float] | None = None
    said: str = ""


def stated(
    ended: Ended,
    problem: Problem,
    certificate: Certificate,
    clients: tuple[ClientName, ...] = (),
    multipliers: Multipliers | None = None,
    table: Sequence[dict[str, Any]] = (),
) -> Outcome:
    """The outcome of a run; stated again from its own stop it is the same.

    ``problem`` is concrete; with constraints ``clients``, ``multipliers`` and their ``table`` say
    who is in conflict and what is not met.
    """
    if ended.stop is Stop.STALLED and not (ended.said or math.isfinite(certificate.value)):
        ended = replace(ended, said=diverged(ended.method, ended.rounds))
    if multipliers is None:
        outcome = _judged(ended, problem, certificate)
    else:
        outcome = _judged_with_limits(ended, problem, certificate, clients, multipliers, [*table])
    outcome = _beside(outcome, ended.method, problem, certificate)
    if certificate.failed:
        text = f"{outcome.text} {FAILED.format(certificate.failed)}"
        outcome = Outcome(UNBORNE.get(outcome.stop, outcome.stop), text)
    if outcome.stop is not Stop.IMPOSSIBLE:
        return outcome
    # a site answered what no rows answer, so that its other answers need not be true; where nothing
    # could be proved afterwards, the words say what the run had reached
    _, sites = lies_in(outcome.text)
    before = ended.reached
    rest = [REACHED.format(*before)] if certificate.failed and before is not None else []
    return replace(outcome, text=" ".join([outcome.text, *rest, CONDITION.format(sites)]))


def _beside(
    outcome: Outcome, method: Method, problem: Problem, certificate: Certificate
) -> Outcome:
    """With what else is proved: that nothing ends the fall of the objective, and what the models
    near by can gain where no bound on all of them is proved.
    """
    if problem.privacy is not None:  # whose outcome is public
        return outcome
    stop, said = outcome.stop, [outcome.text]
    if (share := certificate.separated) is not None and stop is not Stop.INFEASIBLE:
        stop = Stop.UNPROVEN if stop is Stop.OPTIMAL else stop
        said.append(SEPARATED.format("all rows" if share == 1 else f"{share:.1%} of the rows"))
    if certificate.nearby is not None:
        limited = " that meet all constraints and are" * problem.constrained
        size = max(abs(certificate.value), abs(certificate.nearby))
        gain = max(certificate.value - certificate.nearby, 0.0)
        said.append(NEAR_BY.format(limited, NEARBY, gain, gain / size))
        if _within(gain, method, size) and certificate.separated is None:
            said.append(DONE_THERE)
    return Outcome(stop, " ".join(said))


def _words(
    ended: Ended, problem: Problem, left: str, cure: str, spent: bool = False, far: str = ""
) -> str:
    """How the run ended; ``left`` is the gap that is left, ``cure`` ends the advice, and is all of
    it where only rounding is left; ``far`` is all of it where columns are far from 0.
    """
    if ended.said:
        return ended.said.removesuffix(".") + "."
    method, settings = ended.method.called, settings_of(ended.method)
    after = f"after {counted(ended.rounds, 'round')}"
    tol = _tol(ended.method)
    if ended.stop is Stop.MAX_ROUNDS and ended.method.requirements.private:
        if problem.privacy is not None:
            return budget_used(ended.rounds).text
        return f"done after {counted(ended.rounds, 'round')}; no test of optimality is made."
    if ended.stop is Stop.MAX_ROUNDS:
        cap, raised = settings.get("max_rounds"), ["max_rounds"]
        if ended.max_time is not None:
            raised = ["max_time"]
            how = f"stopped at {MAX_TIME.format(ended.max_time)}, {after}"
        elif cap is None:
            how, raised = f"stopped {after}", []
        elif "max_iterations" in settings and ended.rounds < cap:
            raised = ["max_iterations"]
            how = f"stopped at max_iterations = {settings['max_iterations']}"
        else:
            beside = f" ({counted(ended.rounds, 'round')} in all)" if ended.rounds != cap else ""
            how = f"stopped at max_rounds = {cap}{beside}"
        remedy = " or ".join([*raised, *["tol"] * bool(tol)]) if cure else ""
        remedy = far or (f"raise {remedy}" if remedy else "")
        return f"{method} {how}{left}{tol}{f': {remedy}' if remedy else ''}."
    if ended.stop is Stop.IMPOSSIBLE:
        return f"{ended.lies} {UNUSED} {method} ended {after}."
    how = "came to rest by its own test"
    if ended.stop is Stop.REFUSED:
        return f"{method} ended {after}, as a site answers no more by its rules."
    if ended.stop is Stop.INTERRUPTED:
        return f"{method} was interrupted {after}."
    if ended.stop is Stop.STALLED:
        how = "made no further progress"
        shorter = [f"lower {' or '.join(steps)}"] if (steps := _steps(ended.method)) else []
        shorter = ", ".join([*shorter, "bring the features to similar sizes"])
        cure = f": {cure if spent else f'{shorter}, or {cure}'}" if cure else ""
    elif ended.stop is Stop.UNBOUNDED:
        how = "found that the objective falls without end at models that meet all constraints"
        cure = f": {REGULARISE}, or a constraint"
    else:
        cure = f": {cure}" if cure and ended.stop is Stop.UNPROVEN else ""
    cure = f": {far}" if far and cure else cure
    return f"{method} {how} {after}{tol}{left}{cure}."


def _far(ended: Ended, problem: Problem, certificate: Certificate) -> str:
    """In words what to do about columns far from 0 that the run has taken as they are."""
    if certificate.offset is None or ended.method.requirements.private:
        return ""
    do, why = as_they_are(problem)
    if ended.method.advised and not do:
        do, why = "subtract the columns' means", f"{ended.method.called} takes it as it is"
    away = f"a column is {certificate.offset:.2g} standard deviations from 0, and {why}"
    return f"{do}, as {away}" if do else ""


def budget_used(rounds: int) -> Outcome:
    """The outcome of a private run. It is public, and takes nothing from the certificate, which is
    not.
    """
    return Outcome(
        Stop.MAX_ROUNDS,
        f"done after {counted(rounds, 'round')}, over which the budget is spread; to say how near"
        " the optimum is would cost more.",
    )


def public_outcome(outcome: Outcome, rounds: int) -> Outcome:
    """Why a private run ended, in words that take nothing from the certificate."""
    if outcome.stop is Stop.MAX_ROUNDS:
        return budget_used(rounds)
    if outcome.stop is Stop.IMPOSSIBLE:  # by an answer with noise, before any certificate
        return outcome
    return Outcome(outcome.stop, f"{outcome.stop.value} after {counted(rounds, 'round')}.")


def diverged(method: Method, rounds: int) -> str:
    """That a run ended at a model that is not finite, and which settings to lower."""
    steps = _steps(method)
    lower = f"Give a smaller {' or '.join(steps)}, or rescale" if steps else "Rescale"
    return f"the model is not finite after {counted(rounds, 'round')}. {lower} the features."


def _tol(method: Method) -> str:
    tol = settings_of(method).get("tol")
    return "" if tol is None else f" (tol {tol:g})"


def _steps(method: Method) -> list[str]:
    return [name for name in STEPS if name in settings_of(method)]


def refuted(ended: Ended, certificate: Certificate) -> str:
    """Why a run cannot have ended as it says, judged by its rounds and its certificate; empty where
    nothing speaks against it.
    """
    settings, constrained = settings_of(ended.method), certificate.constraint_values
    stop, rounds, cap = ended.stop, ended.rounds, settings.get("max_rounds", math.inf)
    if rounds > cap + STARTING:
        return f"{counted(rounds, 'round')} are more than max_rounds = {cap} allows"
    least = cap  # of rounds, or where nothing proves a bound one of iterations
    if "max_iterations" in settings and certificate.bound is None:
        least = min(cap, settings["max_iterations"] / settings["check"])
    if stop is Stop.MAX_ROUNDS and rounds < least and ended.max_time is None:
        return f"it ended after {counted(rounds, 'round')}, before max_rounds = {cap}"
    if stop is Stop.INTERRUPTED:
        return "a run that was interrupted has no folder"
    if stop in (Stop.INFEASIBLE, Stop.UNBOUNDED) and constrained is None:
        return "it has no constraints"
    if stop is Stop.UNBOUNDED and certificate.bound is not None:
        return "its multipliers prove a lower bound"
    if stop is Stop.UNBOUNDED and certificate.value >= 0:
        return "the objective of its model is not below 0"
    return ""


def judged_by_method(ended: Ended) -> bool:
    """Whether a run ended by a test of its method that no certificate repeats."""
    return ended.stop not in (Stop.OPTIMAL, Stop.MAX_ROUNDS, Stop.INFEASIBLE)


def reached(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """The objective and the bound in the last row of a history, where both are finite."""
    last = rows[-1] if rows else {}
    numbers = [last.get(name) for name in ("objective", "bound")]
    known = [float(x) for x in numbers if isinstance(x, int | float) and math.isfinite(x)]
    return (known[0], known[1]) if len(known) == 2 else None


def _judged(ended: Ended, problem: Problem, certificate: Certificate) -> Outcome:
    """The outcome of a run without constraints; where nothing is proved, with its residuals."""
    stop, gap, affine = ended.stop, certificate.gap, is_affine(problem.predictor)
    own, lacks = declared(problem), without_dual(problem) if affine and problem.convex else ""
    within = gap is not None and _within(gap, ended.method, max(abs(certificate.value), 1e-12))
    # what a method believes of its gap counts for nothing: the certificate says which it is
    if stop is Stop.INFEASIBLE:  # of limits, of which there are none
        stop = Stop.STALLED
    elif stop in (Stop.OPTIMAL, Stop.UNPROVEN):
        proven = within and not certificate.failed and certificate.separated is None
        stop = Stop.OPTIMAL if proven else Stop.UNPROVEN
    how = "(as declared) " if own else "proven "
    if stop is Stop.OPTIMAL:
        after = f"after {counted(ended.rounds, 'round')}{_tol(ended.method)}"
        return Outcome(stop, f"{gap_in_words(certificate)} {how}{after}.{_stands_on(own)}")
    left, cure, spent = "; no bound is proved", REGULARISE, False
    if gap is not None:
        left = f"; {how}{gap_in_words(certificate)}"
        better = "" if type(ended.method).__name__ == "Bundle" else "bundle"
        better = better and instead(problem, len(certificate.weights), better)
        # below `PRECISE` rounding is what is left, which no tolerance lowers
        spent = (certificate.relative_gap or 0.0) <= PRECISE
        accept = spent or stop is Stop.STALLED
        cure = "accept it with atol or tol" if accept else "lower tol"
        alone = better and ended.reached is None  # a method that proves no bound goes on in vain
        cure = f"use {better}" if alone else cure + f", or use {better}" * bool(better)
        cure = "" if within else cure
    elif lacks or not (affine and problem.convex):
        cure = "try another start"
    cure = "" if certificate.separated is not None else cure  # what to do is said below
    bare = gap is None and stop is Stop.UNPROVEN  # where a bound is what is missing
    far = "" if within or bare else _far(ended, problem, certificate)
    text = _words(replace(ended, stop=stop), problem, left, cure, spent, far)
    more = "" if certificate.failed else _more(ended, stop, problem, certificate, lacks)
    if within and certificate.separated is None and stop in (Stop.MAX_ROUNDS, Stop.STALLED):
        more += f" {DONE}"
    return Outcome(stop, text + more)


def gap_in_words(proof: Certificate) -> str:
    """The proven gap: relative, as tolerances are, and absolute."""
    relative, gap = max(proof.relative_gap or 0.0, 0.0), max(proof.gap or 0.0, 0.0)
    return f"relative gap {relative:.2e} (absolute {gap:.2e})"


def _more(ended: Ended, stop: Stop, problem: Problem, certificate: Certificate, lacks: str) -> str:
    """What else the certificate of a model without a proven optimum says, in sentences."""
    if not is_affine(problem.predictor):  # it is never proved optimal
        return (
            f" Recomputed: stationarity {certificate.stationarity:.1e} (lengths of the clients'"
            f" gradients: {certificate.gradient_scale:.1e}), complementarity"
            f" {certificate.complementarity:.1e}. {type(problem.predictor).__name__} is not convex"
            f" in its parameters, {UNBOUNDABLE}: another start or seed can lead elsewhere."
        )
    text = "" if certificate.bound is None else _stands_on(declared(problem))
    if lacks:
        text += f" No bound can be proved: {lacks}."
    if stop is Stop.UNPROVEN and certificate.residuals is not None:
        parts = "{:.1e} of the risk, {:.1e} of the regulariser, {:.1e} between them"
        text += f" KKT residuals: {parts.format(*certificate.residuals)}."
    if not problem.convex and certificate.bound is None:
        text += f" The problem is not convex, {UNBOUNDABLE}."
    if stop is Stop.UNPROVEN and settings_of(ended.method).get("known") is not None:
        text += (
            " Were known cuts made on other data, or with another loss, label cost, norm or"
            " support? Solve without them."
        )
    if stop in (Stop.UNPROVEN, Stop.MAX_ROUNDS) and ended.method.advised == 2:
        names = ("async_bundle", "bundle")
        others = [instead(problem, len(certificate.weights), name) for name in names]
        if other := next(filter(None, others), ""):
            text += f" {ended.method.called} is for comparison with its paper: use {other},"
            text += " which takes this problem, and whose rounds prove a bound."
    # of a run that did not end by itself, what is proved of its model
    cut_short = stop in (Stop.REFUSED, Stop.IMPOSSIBLE)
    if not cut_short and (not ended.said or stop is Stop.INTERRUPTED):
        return text
    if certificate.gap is None:
        return text + " No bound is proved of the model so far."
    return f"{text} The model so far has a proven {gap_in_words(certificate)}."


def failed_in(text: str) -> str:
    """The class of the error that a proof failed by, read off the text of an outcome; "" for none.

    A folder states no more of an error, since its message may hold anything.
    """
    head, end = map(re.escape, FAILED.split("{}"))
    found = re.search(rf"{head}(\w+)(: .*)?{end}", text)
    return "" if found is None else found[1]


def _stands_on(own: tuple[str, ...]) -> str:
    """Which functions of the user's own a bound stands on; "" for none."""
    return f" Samples show no fault in what you declare of {', '.join(own)}." if own else ""


def _within(gap: float, algorithm: Method, scale: float) -> bool:
    """Whether an algorithm calls a gap optimal; cuts hold to the tolerance of their solver."""
    settings = settings_of(algorithm)
    allowed = max(settings.get("atol", 0.0), settings.get("tol", TOL) * scale)
    return -1e-6 * scale <= gap <= allowed + min(1e-8 * scale, allowed)


def _judged_with_limits(
    ended: Ended,
    problem: Problem,
    certificate: Certificate,
    clients: tuple[ClientName, ...],
    multipliers: Multipliers,
    table: list[dict[str, Any]],
) -> Outcome:
    """The outcome of a run with constraints."""
    unmet, own = broken(table), declared(problem)
    if not unmet and out_of_bounds(table, certificate):
        unmet = "the bounds of the regulariser"
    gap, size = certificate.gap, max(abs(certificate.value), 1e-12)
    done = not unmet and gap is not None and _within(gap, ended.method, size)
    cure = "relax a limit, or give another start" if unmet else "" if done else "raise tol"
    other = instead(problem, len(clients), "proximal_al") if unmet else ""
    # limits that may be as far below the least value of any model as above it: nothing else helps
    faint = "" if done else tiny(table)
    cure = "" if faint else cure
    met = ended.stop in (Stop.OPTIMAL, Stop.UNPROVEN)  # the method's test
    end = replace(ended, stop=Stop.OPTIMAL) if met else ended
    far = _far(ended, problem, certificate) if cure else ""
    text = _words(end, problem, "", cure + (f", or use {other}" if other else ""), far=far)
    # how far the model and its multipliers are from the conditions of optimality
    found = [f"violation {certificate.feasibility:.1e}"]
    if certificate.stationarity is not None:
        scale = certificate.gradient_scale
        at_zero = "" if scale is None else f" (objective's gradient at 0: {scale:.1e})"
        found.append(f"stationarity {certificate.stationarity:.1e}{at_zero}")
    if certificate.complementarity is not None:
        found.append(f"complementarity {certificate.complementarity:.1e}")
    text = f"{text} Recomputed: {', '.join(found)}."
    if ended.no_model or ended.stop is Stop.INFEASIBLE:
        if certificate.infeasible is None:
            unmet = unmet and f"{UNMET}{unmet}."
            return Outcome(Stop.STALLED, f"{text} {UNPROVED}{unmet}")
        return Outcome(
            Stop.INFEASIBLE,
            "no model meets all constraints: every one, up to a million times as large as this,"
            f" breaks a limit by {certificate.infeasible:.3g} or more"
            f" ({'as declared' if own else 'proved'}), this one by {certificate.feasibility:.3g}."
            f" In conflict: {in_conflict(problem, multipliers, clients)}. Relax one of these"
            " limits.",
        )
    if unmet:
        text += f"{UNMET}{unmet}."
    text += FAINT.format(MET, faint) if faint else ""
    if unmet or (met and certificate.failed):
        return Outcome(Stop.UNPROVEN if met else ended.stop, text)
    stop, proved = _proved(problem, certificate, ended, met)
    return Outcome(stop, text + proved)


def _proved(problem: Problem, proof: Certificate, ended: Ended, met: bool) -> tuple[Stop, str]:
    """What the multipliers of a model that meets all constraints prove: that it is optimal, where
    the method's own test is ``met``, and else how near it is all the same.
    """
    gap, bound, own = proof.gap, proof.bound, declared(problem)
    if gap is None and not met:
        return ended.stop, ""
    if gap is None or bound is None:
        why = f"the constraints are not convex, {UNBOUNDABLE}."
        if problem.local_constraint.convex and problem.constraint.convex:
            why = (
                "no bound could be proved: its multipliers do not balance to rounding, or the"
                " optimum is not attained."
            )
        return Stop.UNPROVEN, f" By its own test the conditions of optimality are met; {why}"
    size = abs(proof.value)
    within = _within(gap, ended.method, max(size, 1e-12) if met else size)
    stop = (Stop.OPTIMAL if within else Stop.UNPROVEN) if met else ended.stop
    if gap < -1e-9 * max(size, abs(bound)):  # beyond rounding, which no feasible model's is
        why = f"it breaks constraints by up to {proof.feasibility:.1e}"
        if not proof.feasibility:
            why = "a function is not as declared" if own else "by rounding"
        return stop, f" Its value is {-gap:.1e} below the bound of its multipliers: {why}."
    left = f"a {gap_in_words(proof)}"
    how = "give, as declared," if own else "prove"
    if not met:
        done = f" {DONE}" * (within and stop is not Stop.IMPOSSIBLE and proof.separated is None)
        return stop, f" Its multipliers {how} {left}.{done}"
    if not within:
        return stop, f" The multipliers {how} {left} only."
    said = f" Within {left}, as declared.{_stands_on(own)}" if own else f" Proved to within {left}."
    return stop, said
