"""The constraints of a run: their multipliers, and where the models meet them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.certificates.certificate import Certificate
from quorate.config.config import Config
from quorate.data.federation import Federation
from quorate.fairness import group_rates
from quorate.problem.constraints.constraint import several
from quorate.problem.multipliers import Multipliers
from quorate.problem.prediction import scores
from quorate.problem.problem import Problem
from quorate.rounds import Outcome, Stop
from quorate.runs.checks import Check
from quorate.runs.constraint_metrics import TRAINING, asked, kept
from quorate.runs.run import Run
from quorate.runs.sections.section import Inputs, Section
from quorate.solution.configure import configure
from quorate.solution.constraint_table import constraint_table, prices
from quorate.solution.default import default_algorithm
from quorate.solution.outcome import confirmed_constrained

ROUNDING = 1e-8  # a multiplier below it is none
NEAR = 1e-3  # of an optimum, relative: what multipliers are stated for


class Constraints(Section):
    """Constraints of the server and of the clients, beside every model of the run."""

    name = "constraints"
    keys = ("constraints", "prices", "kept", "groups")

    def applies(self, config: Config) -> bool:
        return config.constrained

    def result(self, inputs: Inputs) -> dict[str, Any]:
        """The table with rates, multipliers in words, what is met where, and rates by group."""
        if not asked(inputs.problem):
            return {}
        problem, models = inputs.problem, inputs.models
        sets = {TRAINING: inputs.parts.train, **inputs.parts.tests}
        met = [
            {"set": name, "model": model, "rows": kept(problem, w, fed, name != TRAINING)}
            for name, fed in sets.items()
            for model, w in models.items()
        ]
        by_group = [
            {"set": name, "model": model, **row}
            for name, fed in sets.items()
            for model, w in models.items()
            for row in groups(problem, w, fed)
        ]
        return {
            "constraints": _with_rates(inputs, met[0]["rows"]),
            "prices": stated(inputs.certificate, inputs.constraints),
            "kept": met,
            "groups": by_group,
        }

    def check(self, run: Run, inputs: Inputs) -> Iterator[Check]:
        yield from super().check(run, inputs)
        if self.applies(run.config):
            yield Check("outcome", *_outcome(run, inputs))


def _with_rates(inputs: Inputs, met: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The table of constraints with the rates of the rows trained on. Where nothing is feasible
    it has the weights of the constraints in the proof, too.
    """
    proof, table = inputs.certificate, inputs.constraints
    rate = {(row["owner"], row["constraint"]): row["rate"] for row in met}
    table = [{**row, "rate": rate.get((row["owner"], row["constraint"]))} for row in table]
    if proof.infeasible is None:
        return table
    assert isinstance(inputs.multipliers, Multipliers)
    concrete, data = inputs.problem.at(inputs.parts.train)
    rows = constraint_table(concrete, data, proof, inputs.multipliers)
    weights = [abs(row["price"]) for row in rows]
    total = sum(weights) or 1.0
    return [{**row, "weight": w / total} for row, w in zip(table, weights, strict=True)]


def groups(problem: Problem, w: Array, fed: Federation) -> Iterator[dict[str, Any]]:
    """The rates of every group of the columns that constraints name, rows of all clients
    together.
    """
    if problem.loss.targets != "sign" or fed.classes is None:
        return
    stated = (*several(problem.local_constraint, ""), *several(problem.constraint, ""))
    named = (getattr(getattr(one, "constraint", one), "column", None) for one in stated)
    positive = fed.classes.tolist()[1]
    truth = np.concatenate([np.where(y == positive, 1, -1) for y in fed.y])
    chosen = np.concatenate([np.where(scores(problem.predictor, w, X) > 0, 1, -1) for X in fed.X])
    for column in dict.fromkeys(name for name in named if name in (fed.columns or {})):
        values = np.concatenate([np.asarray(part) for part in fed.columns[column]])  # type: ignore[index]
        if not ((truth > 0).any() or (chosen > 0).any()):
            continue
        for group, found in group_rates(truth, chosen, values).items():
            rates = {
                key: getattr(found, key) for key in ("rows", "selected", "tpr", "fpr", "accuracy")
            }
            yield {"column": column, "group": str(group), **rates}


def stated(proof: Certificate, table: list[dict[str, Any]]) -> list[str]:
    """The multipliers in words, as far as the certificate bears them out: none of a model that is
    not near an optimum.
    """
    if (
        proof.infeasible is not None
        or proof.stationarity is None
        or not all(row["met"] for row in table)
    ):
        return []
    table = [row for row in table if abs(row["price"]) > ROUNDING]
    if proof.bound is not None:
        return prices(table) if (proof.relative_gap or 0.0) <= NEAR else []
    still = proof.stationarity <= NEAR * max(proof.gradient_scale or 0.0, 1e-12)
    return (
        [said.replace("by at most", "to first order by") for said in prices(table)] if still else []
    )


def _outcome(run: Run, inputs: Inputs) -> tuple[bool, str]:
    """Whether the certificate bears out how the run ended, as `quorate.solve` would word it."""
    arguments, outcome = run.config.solve_arguments(), run.result["outcome"]
    problem, fed = inputs.problem.at(inputs.parts.train)
    algorithm = configure(
        arguments["algorithm"] or default_algorithm(problem, inputs.parts.train),
        problem,
        inputs.parts.train,
        arguments["tol"],
        None,
        arguments["max_rounds"],
        None,
    )
    claim = Outcome(Stop(outcome["stop"]), "")
    proved = confirmed_constrained(
        problem,
        fed.clients,
        claim,
        inputs.certificate,
        Multipliers(**run.duals),
        inputs.constraints,
        algorithm,
    )
    same = proved.stop is claim.stop
    if claim.stop is Stop.INFEASIBLE:
        same = same and _conflict(proved.text) in outcome["text"]
    if same:
        return True, f"{outcome['stop']}, as the certificate bears out"
    return False, f"is not {outcome['stop']}: {proved.text}"


def _conflict(text: str) -> str:
    """Who is in conflict, of the words of an outcome."""
    return text[text.index("In conflict") :]
