"""The constraints of a run: their multipliers, and where the models meet them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.fairness import group_rates
from bonafed.problem.constraints.constraint import several
from bonafed.problem.metadata import Metadata
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.predictors.affine import scores
from bonafed.problem.problem import Problem
from bonafed.runs.constraint_metrics import TRAINING, asked, kept
from bonafed.runs.files import Record
from bonafed.runs.form import Form, Number, Share, Whole, optional
from bonafed.runs.sections.section import Inputs, Section
from bonafed.solution.tables import Limits, constraint_table, gains

ROUNDING = 1e-8  # a multiplier below it is none
NEAR = 1e-3  # of an optimum, relative: what multipliers are stated for


class RowForm(Form):
    """One constraint of one owner at a model."""

    owner: str
    constraint: str
    limit: Number
    measured: Number
    slack: Number
    met: bool
    rate: Number | None


class PricedForm(RowForm):
    """The same on the training rows, with its multiplier; ``weight`` is that in a proof that
    nothing is feasible.
    """

    price: Number
    weight: Share = optional()


class KeptForm(Form):
    """The constraints at a model on one set of rows."""

    set: str
    model: str
    rows: list[RowForm]


class GroupForm(Form):
    """The rates of one group, see `groups`."""

    set: str
    model: str
    column: str
    group: str
    rows: Whole
    selected: Share | None
    tpr: Share | None
    fpr: Share | None
    accuracy: Share | None


class ConstraintsForm(Form):
    """What a run states of its constraints."""

    constraints: list[PricedForm]
    prices: list[str]
    kept: list[KeptForm]
    groups: list[GroupForm]


class Constraints(Section):
    """Constraints of the server and of the clients, beside every model of the run."""

    name = "constraints"
    keys = ("constraints", "prices", "kept", "groups")
    form = ConstraintsForm
    at_sites = True

    def applies(self, config: Config) -> bool:
        return config.constrained

    def is_stated(self, config: Config, public: bool) -> bool:
        """Whether there is something to state: a method for constraints may have none."""
        return bool(config.constraint) or config.problem_.label is not None

    def result(self, inputs: Inputs) -> Record:
        """The table with rates, multipliers in words, what is met where, and rates by group."""
        if not asked(inputs.problem):
            return {}
        problem, met, by_group = inputs.problem, [], []
        for name, fed in {TRAINING: inputs.parts.train, **inputs.parts.tests}.items():
            for model, w in inputs.models.items():
                where = {"set": name, "model": model}
                met.append({**where, "rows": kept(problem, w, fed, name != TRAINING)})
                by_group += [{**where, **row} for row in groups(problem, w, fed)]
        proof, table, of = inputs.certificate, inputs.constraints, inputs.multipliers
        priced = with_rates(problem, inputs.parts.train, proof, of, table, met[0]["rows"])
        return {
            "constraints": priced,
            "prices": stated(proof, table),
            "kept": met,
            "groups": by_group,
        }


def without_rows(
    problem: Problem, data: Metadata, proof: Certificate, multipliers: object, table: list[Record]
) -> Record:
    """What a run over sites states of its constraints, which follows from its certificate only."""
    if not asked(problem):
        return {}
    priced = with_rates(problem, data, proof, multipliers, table)
    return {"constraints": priced, "prices": stated(proof, table), "kept": [], "groups": []}


def with_rates(
    problem: Problem,
    fed: Federation | Metadata,
    proof: Certificate,
    multipliers: object,
    table: list[Record],
    met: Sequence[Record] = (),
) -> list[Record]:
    """The table of constraints with the rates of the rows trained on, where they are here. Where
    nothing is feasible it has the weights of the constraints in the proof, too.
    """
    rate = {(row["owner"], row["constraint"]): row["rate"] for row in met}
    table = [{**row, "rate": rate.get((row["owner"], row["constraint"]))} for row in table]
    if proof.infeasible is None:
        return table
    assert isinstance(multipliers, Multipliers)
    concrete, data = problem.at(fed)
    # a constraint that an owner does not have has no value, whatever its limit is
    values = np.asarray(proof.constraint_values), np.asarray(proof.shared_values)
    limits = Limits(*(np.zeros(each.shape) for each in values))
    rows = constraint_table(concrete, data.clients, limits, proof, multipliers)
    weights = [abs(row["price"]) for row in rows]
    total = sum(weights) or 1.0
    return [{**row, "weight": w / total} for row, w in zip(table, weights, strict=True)]


def groups(problem: Problem, w: Array, fed: Federation) -> Iterator[Record]:
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
    if not ((truth > 0).any() or (chosen > 0).any()):
        return
    columns, keys = fed.columns or {}, ("rows", "selected", "tpr", "fpr", "accuracy")
    for column in dict.fromkeys(name for name in named if name is not None and name in columns):
        for group, rates in group_rates(truth, chosen, np.concatenate(columns[column])).items():
            numbers = {key: getattr(rates, key) for key in keys}
            yield {"column": column, "group": str(group), **numbers}


def stated(proof: Certificate, table: list[Record]) -> list[str]:
    """The multipliers in words, as far as the certificate bears them out: none of a model that is
    not near an optimum.
    """
    met = all(row["met"] for row in table)
    if proof.infeasible is not None or proof.stationarity is None or not met:
        return []
    words = gains([row for row in table if abs(row["price"]) > ROUNDING])
    if proof.bound is not None:
        return words if (proof.relative_gap or 0.0) <= NEAR else []
    still = proof.stationarity <= NEAR * max(proof.gradient_scale or 0.0, 1e-12)
    return [text.replace("by at most", "to first order by") for text in words] if still else []
