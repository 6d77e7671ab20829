"""A configured problem as one English sentence."""

from __future__ import annotations

import math

from bonafed.config.objects import in_words
from bonafed.config.tables import Tables


def sentence(config: Tables) -> str:
    """What is minimised: risk over clients, risk over rows, regulariser."""
    h, losses = config.problem_, _over_rows(config)
    one = h.pooled or config.risk.together
    over = losses if one else f"{config.clients.words()} of {losses}"
    text = f"Minimised over {h.phrase('model')}: {over}"
    if h.class_weight is not None:
        text += ", every row counted by the weight of its class"
    if h.regulariser == "ball":
        text += f", over models at most {h.radius:g} long"
    elif h.regulariser != "none":
        text += f", plus {h.regulariser} regularisation of strength {h.strength:g}"
    if config.constraint:
        text += f", subject to: {'; '.join(one.words() for one in config.constraint)}"
    return f"{text}."


def _over_rows(config: Tables) -> str:
    """The risk over the losses of rows."""
    risk, h, ball = config.risk, config.problem_, config.robust
    loss, pooled = h.loss.replace("_", " "), " of all rows, pooled" * h.pooled
    if risk.together:
        return f"the {risk.words()} of the {loss} losses of all clients' rows, ranked together"
    whose, of = ("the", "the") if h.pooled else ("each client's", "its")
    if risk.by_rank:
        return f"{whose} {risk.words()} of {of} {loss} losses{pooled}"
    if not ball.is_robust:
        label = "" if h.label is None else f" of its rows of class {h.label}"
        return f"{whose} mean {loss} loss{label}{pooled}"
    return f"{whose} worst mean {loss} loss{pooled} ({_near(config)})"


def _near(config: Tables) -> str:
    """The Wasserstein ball."""
    ball = config.robust
    near = f"within Wasserstein distance {in_words(ball.radius)} of its rows"
    if ball.radius == "auto":
        near = 'near its rows, the Wasserstein distance read off them ("auto")'
    what, fixed = "flipping a label", "labels never flip"
    if not config.loss_of_classes:
        what, fixed = "moving a target by one", "targets never move"
    target = fixed if math.isinf(ball.label_cost) else f"{what} costs {ball.label_cost:g}"
    if ball.label_flips is not None:
        target = f"at most {ball.label_flips:.3g} of a client's labels flip"
    support = "" if ball.support in (None, "none") else ", features stay in the support"
    return f"{near}, {ball.norm} norm on the features, {target}{support}"
