"""A configured problem as one English sentence."""

from __future__ import annotations

from quorate.config.objects import in_words
from quorate.config.problem import ProblemSection
from quorate.config.tables import Tables


def sentence(config: Tables) -> str:
    """What is minimised: risk over clients, risk over rows, regulariser."""
    h = config.problem_
    more = (
        ""
        if h.regulariser == "none"
        else f", plus {h.regulariser} regularisation of strength {h.strength:g}"
    )
    losses = _over_rows(config)
    over = losses if h.pooled else f"{config.clients.words()} of {losses}"
    kept = (
        f", subject to: {'; '.join(c.words() for c in config.constraint)}"
        if config.constraint
        else ""
    )
    return f"Minimised over {_models(h)}: {over}{more}{kept}."


def _models(h: ProblemSection) -> str:
    if h.model == "mlp":
        network = h.build("model")
        layers = ", ".join(map(str, network.hidden))
        return f"neural networks (hidden layers of {layers} units, {network.activation})"
    words = {"linear": "linear models", "softmax": "softmax models, one linear score a class"}
    return words.get(h.model) or f"{h.model} models"


def _over_rows(config: Tables) -> str:
    r, risk, pooled = config.robust, config.risk, config.problem_.pooled
    loss = config.problem_.loss.replace("_", " ")
    if risk.by_rank and pooled:
        return f"the {risk.words()} of the {loss} losses of all rows, pooled"
    if risk.by_rank:
        return f"each client's {risk.words()} of its {loss} losses"
    whose = "the" if pooled else "each client's"
    if in_words(r.radius) == "0":
        of = (
            ""
            if config.problem_.label is None
            else f" of its rows of class {config.problem_.label}"
        )
        return f"{whose} mean {loss} loss{of}" + " of all rows, pooled" * pooled
    target = (
        "targets never move" if r.label_cost == float("inf") else f"a target costs {r.label_cost:g}"
    )
    near = f"within Wasserstein distance {in_words(r.radius)} of its rows"
    near = (
        'near its rows, the Wasserstein distance read off them ("auto")'
        if r.radius == "auto"
        else near
    )
    near += f", {r.norm} norm on the features, {target}"
    near += ", features stay in the support" if r.support not in (None, "none") else ""
    return f"{whose} worst mean {loss} loss" + " of all rows, pooled" * pooled + f" ({near})"
