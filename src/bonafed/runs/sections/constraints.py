"""The constraints of a run (their multipliers, and where the models meet them), and a risk by rank:
whom it serves, and which losses weigh how much.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import numpy as np

from bonafed.arrays import Array
from bonafed.certificates.certificate import Certificate
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.fairness import group_rates
from bonafed.problem.constraints.constraint import several
from bonafed.problem.lower_bounds import Multipliers
from bonafed.problem.metadata import Metadata
from bonafed.problem.predictors.affine import scores
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import Risk
from bonafed.runs import forms
from bonafed.runs.evaluation import TRAINING, asked, curve, kept, losses_of, risk_of, row_weights
from bonafed.runs.files import Record
from bonafed.runs.sections.section import Inputs, Section
from bonafed.solution.tables import Limits, constraint_table, gains

ROUNDING = 1e-8  # a multiplier below it is none
NEAR = 1e-3  # of an optimum, relative: what multipliers are stated for


class Constraints(Section):
    """Constraints of the server and of the clients, beside every model of the run."""

    name = "constraints"
    keys = forms.needs(list[forms.PRICED], "constraints") | forms.needs(list[str], "prices")
    keys |= forms.needs(list[forms.KEPT], "kept") | forms.needs(list[forms.GROUP], "groups")
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
        of = inputs.certificate, inputs.multipliers, inputs.constraints
        return of_constraints(problem, inputs.parts.train, *of, met, by_group)


def of_constraints(
    problem: Problem,
    fed: Federation | Metadata,
    proof: Certificate,
    multipliers: object,
    table: list[Record],
    met: Sequence[Record] = (),
    by_group: Sequence[Record] = (),
) -> Record:
    """What is stated of the table of constraints, with the rates of the rows trained on, which stay
    at the sites of a run over these: then only what follows from its certificate. Where nothing is
    feasible it has the weights of the constraints in the proof, too.
    """
    if not asked(problem):
        return {}
    rows = met[0]["rows"] if met else ()
    rate = {(row["owner"], row["constraint"]): row["rate"] for row in rows}
    priced = [{**row, "rate": rate.get((row["owner"], row["constraint"]))} for row in table]
    if proof.infeasible is not None:
        assert isinstance(multipliers, Multipliers)
        concrete, data = problem.at(fed)
        # a constraint that an owner does not have has no value, whatever its limit is
        values = np.asarray(proof.constraint_values), np.asarray(proof.shared_values)
        limits = Limits(*(np.zeros(each.shape) for each in values))
        rows = constraint_table(concrete, data.clients, limits, proof, multipliers)
        weights = [abs(row["price"]) for row in rows]
        total = sum(weights) or 1.0
        priced = [{**row, "weight": w / total} for row, w in zip(priced, weights, strict=True)]
    prices = stated(proof, table)
    return {"constraints": priced, "prices": prices, "kept": [*met], "groups": [*by_group]}


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


# ---------------------------------------------------------------------------------- risks by rank


class Ranks(Section):
    """A risk by rank over samples or all rows, and pooled rows: the risk, the owners, the
    losses.
    """

    name = "ranks"
    keys = forms.needs(forms.RISK, "risk") | forms.needs(dict[str, forms.LOSSES], "losses")
    keys |= forms.perhaps(Annotated[list[forms.OWNER], forms.at_least(1)], "owners")

    def applies(self, config: Config) -> bool:
        return (config.risk.by_rank or config.problem_.pooled) and not config.robust.is_robust

    def result(self, inputs: Inputs) -> Record:
        """The risk in words, every owner's share of it, and the curve of the losses."""
        config, models, parts = inputs.config, inputs.models, inputs.parts
        if not self.applies(config):
            return {}
        risk, pooled, problem = config.risk, config.problem_.pooled, config.problem()
        convex = getattr(risk.named_class("name"), "convex", True)  # larger losses never weigh less
        words = {"name": risk.title, "words": risk.words(), "convex": convex}
        result: Record = {"risk": {**words, "pooled": pooled}}
        main = next(iter(models))
        if pooled or risk.together:
            losses = losses_of(problem, models[main], parts.owners)
            result["owners"] = owners(problem, dict(zip(parts.owners.names, losses, strict=True)))
            if risk.together:
                result["risk"]["together"] = risk_of(problem.over_rows, np.concatenate(losses))
        drawn = {name: w for name, w in models.items() if name in (main, "ERM")}
        result["losses"] = curves(problem, drawn, parts.train) if risk.by_rank else {}
        return result


def owners(problem: Problem, losses: Mapping[str, Array]) -> list[Record]:
    """One row for each owner of rows that are ranked together: rows, mean loss, its own risk, its
    share of the rows and of the weight.
    """
    risk, n = problem.over_losses, sum(map(len, losses.values()))
    weights = row_weights(risk, np.concatenate([*losses.values()]))
    ends = np.cumsum([len(z) for z in losses.values()])
    return [
        {
            "client": name,
            "n": len(z),
            "loss": float(z.mean()),
            "worst_loss": risk_of(risk, z, n) if by_rank(risk) else float(z.mean()),
            "share": len(z) / n,
            "weight": float(part.sum()),
        }
        for (name, z), part in zip(losses.items(), np.split(weights, ends[:-1]), strict=True)
    ]


def heaviest(
    risk: Risk, losses: Mapping[str, Array], client: str, together: bool, top: int = 10
) -> list[Record]:
    """The rows of one client that weigh most: row (from 0), loss and weight (1 is that of the
    mean). For their owner.

    ``together``: ranked among all rows, else among those of the client.
    """
    local, names = losses[client], [*losses]
    ranked, first = local, 0
    if together:
        ranked = np.concatenate([*losses.values()])
        first = sum(len(losses[name]) for name in names[: names.index(client)])
    weights = len(ranked) * row_weights(risk, ranked)[first : first + len(local)]
    order = np.lexsort((-local, -weights))[:top]
    return [{"row": int(r), "loss": float(local[r]), "weight": float(weights[r])} for r in order]


def curves(problem: Problem, models: Mapping[str, Array], train: Federation) -> Record:
    """The curve of every model's losses on the training rows, each weighed as the problem does at
    that model.
    """
    concrete, data = problem.at(train)
    return {name: curve(*_weighed(concrete, data, w)) for name, w in models.items()}


def _weighed(problem: Problem, data: Federation, w: Array) -> tuple[Array, Array]:
    """The losses of all rows at w, and what each weighs in a concrete problem."""
    if problem.over_rows is not None:
        every = problem.row_losses(w, data)
        return every, row_weights(problem.over_rows, every)
    losses, weights, risks = [], [], []
    for i in range(data.n_clients):
        block = data.block(i)
        losses.append(problem.loss.value(problem.predictor.forward(w, block), block.y)[0])
        weights.append(problem.row_weights(losses[-1][None], block)[0])
        risks.append(float(weights[-1] @ losses[-1]))
    over = problem.over_clients.weights(np.array(risks))
    weights = [q * each for q, each in zip(over, weights, strict=True)]
    return np.concatenate(losses), np.concatenate(weights)
