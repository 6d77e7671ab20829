"""A risk by rank in a run: whom it serves, and which losses weigh how much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np

from bonafed.arrays import Array
from bonafed.config.config import Config
from bonafed.data.federation import Federation
from bonafed.problem.problem import Problem
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import Risk
from bonafed.runs.evaluation import curve, losses_of, risk_of, row_weights
from bonafed.runs.files import (
    Count,
    NonNegative,
    Number,
    Record,
    Share,
    at_least,
    form,
    needs,
    perhaps,
)
from bonafed.runs.sections.section import Inputs, Section

# a risk in words; where the rows of all clients are ranked ``together``, what it is of their losses
RiskForm = form(
    "RiskForm",
    needs(str, "name", "words") | needs(bool, "convex", "pooled") | perhaps(Number, "together"),
)
# an owner of rows that are ranked together, see `owners`
OwnerForm = form(
    "OwnerForm",
    needs(str, "client") | needs(Count, "n") | needs(Share, "share"),
    needs(Number, "loss", "worst_loss", "weight"),
)
# sorted losses in groups, see `bonafed.runs.evaluation.curve`
CurveForm = form(
    "CurveForm",
    needs(Annotated[list[Share], at_least(1)], "share"),
    needs(list[NonNegative], "loss") | needs(list[Number], "weight"),
)


class Ranks(Section):
    """A risk by rank over samples or all rows, and pooled rows: the risk, the owners, the
    losses.
    """

    name = "ranks"
    keys = needs(RiskForm, "risk") | needs(dict[str, CurveForm], "losses")
    keys |= perhaps(Annotated[list[OwnerForm], at_least(1)], "owners")

    def applies(self, config: Config) -> bool:
        ranked = config.risk.by_rank or config.problem_.pooled
        return ranked and not config.robust.is_robust

    def result(self, inputs: Inputs) -> Record:
        """The risk in words, every owner's share of it, and the curve of the losses."""
        config, models, parts = inputs.config, inputs.models, inputs.parts
        if not self.applies(config):
            return {}
        risk, pooled, problem = config.risk, config.problem_.pooled, config.problem()
        words = {"name": risk.title, "words": risk.words(), "convex": risk.convex}
        result: Record = {"risk": {**words, "pooled": pooled}}
        main = next(iter(models))
        if pooled or risk.together:
            losses = losses_of(problem, models[main], parts.owners)
            by_owner = dict(zip(parts.owners.names, losses, strict=True))
            result["owners"] = owners(problem, by_owner)
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
