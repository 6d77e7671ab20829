"""Why a run ended, as far as the certificate, recomputed from the data, bears it out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from quorate.algorithms.federated.bundle import Bundle
from quorate.algorithms.method import Method, settings_of
from quorate.certificates.certificate import Certificate
from quorate.certificates.stationary import unprovable
from quorate.client_names import ClientName
from quorate.problem.lower_bounds import without_dual
from quorate.problem.multipliers import Multipliers
from quorate.problem.predictors.affine import is_affine
from quorate.problem.problem import Problem
from quorate.rounds import Outcome, Stop
from quorate.solution.constraint_table import broken, in_conflict


def confirmed(
    outcome: Outcome, certificate: Certificate, algorithm: Method, problem: Problem
) -> Outcome:
    """The outcome of a run without constraints; where nothing is proved, with its residuals."""
    if not is_affine(problem.predictor):
        return unprovable(outcome, certificate, problem)
    if problem.convex and (lacks := without_dual(problem)):
        outcome = replace(outcome, text=f"{outcome.text} No bound can be proved: {lacks}.")
    if outcome.stop is Stop.UNPROVEN and certificate.residuals is not None:
        risk, model, split = certificate.residuals
        residuals = (
            f" KKT residuals: {risk:.1e} of the risk, {model:.1e} of the regulariser, {split:.1e}"
            " between them."
        )
        return Outcome(outcome.stop, outcome.text + residuals)
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
) -> Outcome:
    """The outcome of a run with constraints."""
    text = (
        f"{outcome.text} Recomputed: violation {certificate.feasibility:.1e}, stationarity"
        f" {certificate.stationarity:.1e} (objective's gradient at 0:"
        f" {certificate.gradient_scale:.1e}), complementarity {certificate.complementarity:.1e}."
    )
    if outcome.stop is Stop.INFEASIBLE:
        return _infeasible(problem, clients, certificate, multipliers, table, text)
    unmet = broken(table)
    if not unmet and certificate.feasibility is not None and certificate.feasibility > 1e-6:
        unmet = "the bounds of the regulariser"
    if unmet:
        text += f" Not met: {unmet}."
    if outcome.stop is not Stop.OPTIMAL:
        return Outcome(outcome.stop, text + ("" if unmet else _proved_gap(certificate, algorithm)))
    return Outcome(Stop.UNPROVEN, text) if unmet else _judged(problem, certificate, algorithm, text)


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
        return Outcome(
            Stop.STALLED,
            f"{text} That nothing is feasible could not be proved. Not met: {broken(table)}.",
        )
    return Outcome(
        Stop.INFEASIBLE,
        "no model meets all constraints: every one, up to a million times as large as this, breaks"
        f" a limit by {certificate.infeasible:.3g} or more (proved), this one by"
        f" {certificate.feasibility:.3g}. In conflict:"
        f" {in_conflict(problem, multipliers, clients)}. Relax one of these limits.",
    )


def _proved_gap(certificate: Certificate, algorithm: Method) -> str:
    """What the multipliers of a run that did not end as optimal prove all the same."""
    if certificate.gap is None:
        return ""
    text = f" Its multipliers prove a relative gap of {certificate.relative_gap:.1e}."
    if certificate.gap <= _allowed(algorithm, abs(certificate.value)):
        text += " So the model is optimal within tol, though the method's own test was not met."
    return text


def _judged(problem: Problem, certificate: Certificate, algorithm: Method, text: str) -> Outcome:
    """Whether a model that meets all constraints is proved to be optimal."""
    gap = certificate.gap
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
    if -1e-6 * scale <= gap <= _allowed(algorithm, scale) + 1e-8 * scale:
        proved = max(certificate.relative_gap or 0, 0)
        return Outcome(Stop.OPTIMAL, f"{text} Proved to within a relative gap of {proved:.1e}.")
    return Outcome(
        Stop.UNPROVEN,
        f"{text} The multipliers prove a relative gap of {certificate.relative_gap:.1e} only.",
    )
