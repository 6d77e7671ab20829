"""A configured problem as one English sentence."""

from __future__ import annotations

from typing import Any

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


def _models(h: Any) -> str:
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
    if size(r.radius) == "0":
        of = (
            ""
            if config.problem_.label is None
            else f" of its rows of class {config.problem_.label}"
        )
        return f"{whose} mean {loss} loss{of}" + " of all rows, pooled" * pooled
    target = (
        "targets never move" if r.label_cost == float("inf") else f"a target costs {r.label_cost:g}"
    )
    near = f"within Wasserstein distance {size(r.radius)} of its rows"
    near = (
        'near its rows, the Wasserstein distance read off them ("auto")'
        if r.radius == "auto"
        else near
    )
    near += f", {r.norm} norm on the features, {target}"
    near += ", features stay in the support" if r.support else ""
    return f"{whose} worst mean {loss} loss" + " of all rows, pooled" * pooled + f" ({near})"


def size(radius: Any) -> str:
    """A radius, or one for each client, in words."""
    if radius == "auto":
        return radius
    radii = sorted({*radius.values()}) if isinstance(radius, dict) else [radius]
    return f"{radii[0]:g}" if len(radii) == 1 else f"{radii[0]:g} to {radii[-1]:g}, by client,"
