"""Why a run ended, as far as the certificate, recomputed from the data, bears it out.

``confirmed`` and ``confirmed_constrained`` add to the words of a method what the certificate shows,
and take back a claim that it does not bear out. ``restated`` says the same without the words of the
method: all of it follows from numbers that can be computed again, so that it can be kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.method import Method, at_cap, settings_of
from bonafed.certificates.certificate import Certificate
from bonafed.certificates.stationary import unprovable
from bonafed.client_names import ClientName
from bonafed.engines.impossible import UNUSED, lies_in
from bonafed.problem.lower_bounds import without_dual
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.own_functions import declared
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.requirements import only_constrained
from bonafed.rounds import Outcome, Stop
from bonafed.solution.constraint_table import broken, in_conflict, out_of_bounds

UNPROVED = "That nothing is feasible could not be proved."  # in an outcome of a run that tried to
FAILED = "The proof failed ({}): the model is kept, with no bound from a proof."
PROVED = "proven gap of"  # in an outcome of a run that a site has ended
# in an outcome of a run in which a site gave an impossible answer
CONDITION = "Its numbers hold if all other answers of {}, which rows could give, are true."
REACHED = "By the answers before, the run's own objective was {:.9g} and its bound {:.9g}."
STARTING = 2  # rounds before the first that a method counts to its cap, at most


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
    """

    stop: Stop
    rounds: int
    method: Method
    max_time: float | None = None
    no_model: bool = False
    lies: str = ""
    reached: tuple[float, float] | None = None


def restated(
    ended: Ended,
    problem: Problem,
    certificate: Certificate,
    clients: tuple[ClientName, ...] = (),
    multipliers: Multipliers | None = None,
    table: Sequence[dict[str, Any]] = (),
) -> Outcome:
    """The outcome in words that follow from numbers alone.

    ``problem`` is concrete; with constraints ``clients``, ``multipliers`` and their ``table`` say
    who is in conflict and what is not met.
    """
    claim = Outcome(ended.stop, _words(ended, problem, certificate))
    if multipliers is None:
        return confirmed(claim, certificate, ended.method, problem, ended.reached)
    if ended.no_model:
        claim = replace(claim, stop=Stop.INFEASIBLE)
    elif ended.stop is Stop.UNPROVEN:  # the method's test was met: is it the optimum?
        claim = replace(claim, stop=Stop.OPTIMAL)
    rows, method, reached = list(table), ended.method, ended.reached
    return confirmed_constrained(
        problem, clients, claim, certificate, multipliers, rows, method, reached
    )


def _words(ended: Ended, problem: Problem, certificate: Certificate) -> str:
    """A sentence for each way to end; with constraints the gap has a sentence of its own."""
    method, settings = type(ended.method).__name__, settings_of(ended.method)
    after = f"after {ended.rounds} rounds"
    tol = f" (tol {settings['tol']:g})" if "tol" in settings else ""
    gap, relative = certificate.gap, max(certificate.relative_gap or 0.0, 0.0)
    proved = "no bound is proved"
    if gap is not None:
        proved = f"proven gap {max(gap, 0.0):.2e}, relative {relative:.2e}"
    left = "" if only_constrained(problem) else f"; {proved}"
    if ended.stop is Stop.MAX_ROUNDS:
        cap, more = at_cap(settings.get("max_rounds"), ended.rounds), "max_rounds"
        if "max_iterations" in settings and ended.rounds < settings["max_rounds"]:
            more = "max_iterations"
            cap = f"stopped at {more} = {settings[more]}"
        if ended.max_time is not None:
            cap = f"stopped at max_time = {ended.max_time:g} virtual seconds, {after}"
            more = "max_time"
        return f"{method} {cap}{left}{tol}: raise {more} or tol."
    if left and gap is not None and ended.stop is Stop.OPTIMAL and claims_gap(ended.method):
        return f"relative gap {relative:.2e} proven {after}{tol}."
    if ended.stop is Stop.REFUSED:
        return f"{method} ended {after}, as a site answers no more by its rules{left}."
    if ended.stop is Stop.IMPOSSIBLE:
        return f"{ended.lies} {UNUSED} {method} ended {after}."
    how = "came to rest"
    if ended.stop is Stop.STALLED:
        how = "made no further progress"
    elif ended.stop is Stop.UNBOUNDED:
        how = (
            "holds that the objective falls without end at models that meet all constraints: add a"
            " regulariser such as L2(1e-3), or a constraint. It ended"
        )
    return f"{method} {how} by its own test {after}{tol}{left}."


def budget_used(rounds: int) -> Outcome:
    """The outcome of a private run. It is public, and takes nothing from the certificate, which is
    not.
    """
    text = (
        f"all {rounds} rounds are done, over which the budget is spread; to say how near the"
        " optimum is would cost more."
    )
    return Outcome(Stop.MAX_ROUNDS, text)


def refuted(ended: Ended, certificate: Certificate) -> str:
    """Why a run cannot have ended as it says, judged by its rounds and its certificate; empty where
    nothing speaks against it.
    """
    cap, constrained = _cap(ended.method), certificate.constraint_values
    stop, rounds = ended.stop, ended.rounds
    if rounds > cap + STARTING:
        return f"{rounds} rounds are more than max_rounds = {cap} allows"
    least = _least(ended.method, certificate)
    if stop is Stop.MAX_ROUNDS and rounds < least and ended.max_time is None:
        return f"it ended after {rounds} rounds, before max_rounds = {cap}"
    if stop is Stop.INTERRUPTED:
        return "a run that was interrupted has no folder"
    if stop in (Stop.INFEASIBLE, Stop.UNBOUNDED) and constrained is None:
        return "it has no constraints"
    if stop is Stop.UNBOUNDED and certificate.bound is not None:
        return "its multipliers prove a lower bound"
    if stop is Stop.UNBOUNDED and certificate.value >= 0:
        return "the objective of its model is not below 0"
    return ""


def _cap(method: Method) -> float:
    return settings_of(method).get("max_rounds", math.inf)


def _least(method: Method, certificate: Certificate) -> float:
    """The rounds after which a method can meet a cap: that of rounds, or where nothing proves a
    bound one of iterations.
    """
    settings = settings_of(method)
    if "max_iterations" not in settings or certificate.bound is not None:
        return _cap(method)
    return min(_cap(method), settings["max_iterations"] / settings["check"])


def judged_by_method(ended: Ended) -> bool:
    """Whether a run ended by a test of its method that no certificate repeats."""
    proven = ended.stop is Stop.OPTIMAL and claims_gap(ended.method)
    return not proven and ended.stop not in (Stop.MAX_ROUNDS, Stop.INFEASIBLE)


def reached(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """The objective and the bound in the last row of a history, where both are finite."""
    last = rows[-1] if rows else {}
    numbers = [last.get(name) for name in ("objective", "bound")]
    known = [float(x) for x in numbers if isinstance(x, int | float) and math.isfinite(x)]
    return (known[0], known[1]) if len(known) == 2 else None


def _on_condition(
    outcome: Outcome, certificate: Certificate, before: tuple[float, float] | None
) -> Outcome:
    """The outcome of a run in which a site answered what no rows answer: its other answers need not
    be true. Where nothing could be proved afterwards, what the run had reached.
    """
    if outcome.stop is not Stop.IMPOSSIBLE:
        return outcome
    _, sites = lies_in(outcome.text)
    rest = [REACHED.format(*before)] if certificate.failed and before is not None else []
    return replace(outcome, text=" ".join([outcome.text, *rest, CONDITION.format(sites)]))


def confirmed(
    outcome: Outcome,
    certificate: Certificate,
    algorithm: Method,
    problem: Problem,
    before: tuple[float, float] | None = None,
) -> Outcome:
    """The outcome of a run without constraints; where nothing is proved, with its residuals.

    ``before``: of a run with an impossible answer, the objective and the bound of its last round.
    """
    again = _confirmed(outcome, certificate, algorithm, problem)
    return _on_condition(again, certificate, before)


def _confirmed(
    outcome: Outcome, certificate: Certificate, algorithm: Method, problem: Problem
) -> Outcome:
    if certificate.failed:
        return _without_proof(outcome, certificate)
    if not is_affine(problem.predictor):
        return unprovable(outcome, certificate, problem)
    if (own := declared(problem)) and certificate.bound is not None:
        outcome = replace(outcome, text=_as_declared(outcome.text, own))
    if problem.convex and (lacks := without_dual(problem)):
        outcome = replace(outcome, text=f"{outcome.text} No bound can be proved: {lacks}.")
    if outcome.stop is Stop.UNPROVEN and certificate.residuals is not None:
        risk, model, split = certificate.residuals
        residuals = (
            f" KKT residuals: {risk:.1e} of the risk, {model:.1e} of the regulariser, {split:.1e}"
            " between them."
        )
        return Outcome(outcome.stop, outcome.text + residuals)
    cut_short = outcome.stop in (Stop.REFUSED, Stop.IMPOSSIBLE)
    if cut_short and PROVED not in outcome.text:
        return replace(outcome, text=f"{outcome.text} {_proved_so_far(certificate)}")
    if outcome.stop is not Stop.OPTIMAL or not claims_gap(algorithm):
        return outcome
    scale = max(abs(certificate.value), 1e-12)
    gap = certificate.gap
    # cuts hold to the tolerance of their solver
    if gap is not None and -1e-6 * scale <= gap <= _allowed(algorithm, scale) + 1e-8 * scale:
        return outcome
    proved = "no bound" if gap is None else f"a gap of {gap:.2e} only"
    text = (
        f"{outcome.text} Recomputed from the data this proves {proved}: lower tol, or regularise"
        " by L2."
    )
    if isinstance(algorithm, Bundle):
        text = (
            "the Bundle run claimed an optimum, but recomputed from the data it proves"
            f" {proved}: were known cuts made on other data, or with another loss, label cost,"
            " norm or support? Solve without them."
        )
    return Outcome(Stop.UNPROVEN, text)


def _proved_so_far(certificate: Certificate) -> str:
    """What is proved of the model of a run that a site has cut short."""
    if certificate.gap is None:
        return "No bound is proved of the model so far."
    relative = max(certificate.relative_gap or 0.0, 0.0)
    gap = max(certificate.gap, 0.0)
    return f"The model so far has a {PROVED} {gap:.2e}, relative {relative:.2e}."


def _without_proof(outcome: Outcome, certificate: Certificate) -> Outcome:
    """The outcome of a run whose proof failed: nothing bears out what it claims of an optimum."""
    stops = {Stop.OPTIMAL: Stop.UNPROVEN, Stop.INFEASIBLE: Stop.STALLED}
    text = f"{outcome.text} {FAILED.format(certificate.failed)}"
    return Outcome(stops.get(outcome.stop, outcome.stop), text)


def failed_in(text: str) -> str:
    """The class of the error that a proof failed by, read off the text of an outcome; "" for none.

    A folder states no more of an error, since its message may hold anything.
    """
    head, end = map(re.escape, FAILED.split("{}"))
    found = re.search(rf"{head}(\w+)(: .*)?{end}", text)
    return "" if found is None else found[1]


def _as_declared(text: str, own: tuple[str, ...]) -> str:
    """A method's words where a bound stands on functions of the user's own."""
    text = text.replace("proven gap", "gap (as declared)").replace(" proven ", " (as declared) ")
    return f"{text} {_stands_on(own)}"


def _stands_on(own: tuple[str, ...]) -> str:
    """Whose word a bound is."""
    return f"Samples show no fault in what you declare of {', '.join(own)}."


def claims_gap(algorithm: Method) -> bool:
    """Whether a run that ends as optimal claims a small gap: others claim small residuals."""
    return "atol" in settings_of(algorithm)


def _allowed(algorithm: Method, scale: float) -> float:
    """The gap that an algorithm calls optimal."""
    settings = settings_of(algorithm)
    return max(settings["atol"], settings["tol"] * scale)


def confirmed_constrained(
    problem: Problem,
    clients: tuple[ClientName, ...],
    outcome: Outcome,
    certificate: Certificate,
    multipliers: Multipliers,
    table: list[dict[str, Any]],
    algorithm: Method,
    before: tuple[float, float] | None = None,
) -> Outcome:
    """The outcome of a run with constraints; ``before`` as of ``confirmed``."""
    arguments = problem, clients, outcome, certificate, multipliers, table, algorithm
    again = _confirmed_constrained(*arguments)
    again = _without_proof(again, certificate) if certificate.failed else again
    return _on_condition(again, certificate, before)


def _confirmed_constrained(
    problem: Problem,
    clients: tuple[ClientName, ...],
    outcome: Outcome,
    certificate: Certificate,
    multipliers: Multipliers,
    table: list[dict[str, Any]],
    algorithm: Method,
) -> Outcome:
    text = f"{outcome.text} Recomputed: {_residuals(certificate)}."
    if outcome.stop is Stop.INFEASIBLE:
        return _infeasible(problem, clients, certificate, multipliers, table, text)
    unmet = broken(table)
    if not unmet and out_of_bounds(table, certificate):
        unmet = "the bounds of the regulariser"
    if unmet:
        text += f" Not met: {unmet}."
    if outcome.stop is not Stop.OPTIMAL:
        gap = "" if unmet else _proved_gap(problem, certificate, algorithm, outcome)
        return Outcome(outcome.stop, text + gap)
    return Outcome(Stop.UNPROVEN, text) if unmet else _judged(problem, certificate, algorithm, text)


def _residuals(certificate: Certificate) -> str:
    """How far a model and its multipliers are from the conditions of optimality, in words."""
    found = [f"violation {certificate.feasibility:.1e}"]
    if certificate.stationarity is not None:
        at_zero = ""
        if certificate.gradient_scale is not None:
            at_zero = f" (objective's gradient at 0: {certificate.gradient_scale:.1e})"
        found.append(f"stationarity {certificate.stationarity:.1e}{at_zero}")
    if certificate.complementarity is not None:
        found.append(f"complementarity {certificate.complementarity:.1e}")
    return ", ".join(found)


def _infeasible(
    problem: Problem,
    clients: tuple[ClientName, ...],
    certificate: Certificate,
    multipliers: Multipliers,
    table: list[dict[str, Any]],
    text: str,
) -> Outcome:
    """Whether it is proved that no model meets all constraints, and whose limits conflict."""
    if certificate.infeasible is None:
        return Outcome(Stop.STALLED, f"{text} {UNPROVED} Not met: {broken(table)}.")
    how = "as declared" if declared(problem) else "proved"
    return Outcome(
        Stop.INFEASIBLE,
        "no model meets all constraints: every one, up to a million times as large as this, breaks"
        f" a limit by {certificate.infeasible:.3g} or more ({how}), this one by"
        f" {certificate.feasibility:.3g}. In conflict:"
        f" {in_conflict(problem, multipliers, clients)}. Relax one of these limits.",
    )


def _proved_gap(
    problem: Problem, certificate: Certificate, algorithm: Method, outcome: Outcome
) -> str:
    """What the multipliers of a run that did not end as optimal prove all the same."""
    if certificate.gap is None:
        return ""
    if below := _below(problem, certificate):
        return below
    how = "give, as declared," if declared(problem) else "prove"
    text = f" Its multipliers {how} {_gap_of(certificate)}."
    optimal = certificate.gap <= _allowed(algorithm, abs(certificate.value))
    if optimal and outcome.stop is not Stop.IMPOSSIBLE:
        text += " So the model is optimal within tol, though the method's own test was not met."
    return text


def _gap_of(certificate: Certificate) -> str:
    return f"a relative gap of {max(certificate.relative_gap or 0.0, 0.0):.1e}"


def _below(problem: Problem, certificate: Certificate) -> str:
    """That the value is below the bound, beyond rounding, which no feasible model's is."""
    gap, bound = certificate.gap, certificate.bound
    if gap is None or bound is None or gap >= -1e-9 * max(abs(certificate.value), abs(bound)):
        return ""
    why = f"it breaks constraints by up to {certificate.feasibility:.1e}"
    if not certificate.feasibility:
        why = "a function is not as declared" if declared(problem) else "by rounding"
    return f" Its value is {-gap:.1e} below the bound of its multipliers: {why}."


def _judged(problem: Problem, certificate: Certificate, algorithm: Method, text: str) -> Outcome:
    """Whether a model that meets all constraints is proved to be optimal."""
    gap = certificate.gap
    if certificate.failed:
        return Outcome(Stop.UNPROVEN, text)
    if gap is None:
        convex = problem.local_constraint.convex and problem.constraint.convex
        why = (
            "no bound could be proved: its multipliers do not balance to rounding, or the optimum"
            " is not attained."
            if convex
            else "with constraints that are not convex no bound exists."
        )
        return Outcome(
            Stop.UNPROVEN, f"{text} A point that meets the conditions of optimality; {why}"
        )
    scale = max(abs(certificate.value), 1e-12)
    below = _below(problem, certificate)
    if -1e-6 * scale <= gap <= _allowed(algorithm, scale) + 1e-8 * scale:
        how = f"Proved to within {_gap_of(certificate)}."
        if own := declared(problem):
            how = f"Within {_gap_of(certificate)}, as declared. {_stands_on(own)}"
        return Outcome(Stop.OPTIMAL, f"{text}{below or ' ' + how}")
    how = "give, as declared," if declared(problem) else "prove"
    return Outcome(
        Stop.UNPROVEN, f"{text}{below or f' The multipliers {how} {_gap_of(certificate)} only.'}"
    )
