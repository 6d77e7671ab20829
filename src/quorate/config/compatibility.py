"""What the tables of a configuration ask of each other; each rule is a sentence that says what to
do, or None.
"""

from __future__ import annotations

from typing import Any

from quorate.config.methods import method_rule
from quorate.config.privacy_rules import private_rule
from quorate.config.problem import ClientsSection
from quorate.config.tables import Tables, names_with
from quorate.names import load


def smooth_losses() -> list[str]:
    """The names of smooth losses of one prediction a row."""
    several = names_with("loss", "targets", "class")
    return [name for name in names_with("loss", "smooth") if name not in several]


def broken_rule(config: Tables) -> str | None:
    """The first rule that the configuration breaks, in words."""
    return next(filter(None, (rule(config) for rule in RULES)), None)


def _path(config: Tables) -> str | None:
    path = config.path
    if path is None:
        return None
    if config.risk.by_rank or config.problem_.pooled:
        why = (
            f"risk.name = {config.risk.name!r}" if config.risk.by_rank else "problem.pooled = true"
        )
        return (
            f"[path] tries radii of Wasserstein balls round the clients' rows, and {why} has none:"
            " leave [path] out"
        )
    if path.client_radii is not None and config.clients.risk != "lp_ball":
        return (
            f"path.client_radii need clients.risk = 'lp_ball', got {config.clients.risk!r}: it has"
            " no radius"
        )
    return None


def _ranks(config: Tables) -> str | None:
    if not config.risk.by_rank or not robust(config.robust.radius):
        return None
    return (
        f"risk.name = {config.risk.name!r} ranks the rows as they are, and robust.radius > 0 asks"
        " for the worst rows near them: there is no method for both. Set robust.radius = 0, or"
        " risk.name = 'mean'"
    )


def _one_place(config: Tables) -> str | None:
    if not config.problem_.pooled:
        return None
    if config.clients not in (ClientsSection(), ClientsSection(risk="mean")):
        return (
            "[clients] weighs several clients, and problem.pooled = true makes them one: leave"
            " [clients] out"
        )
    if isinstance(config.robust.radius, dict):
        return (
            "robust.radius has one number per client, and problem.pooled = true makes them one:"
            " give a number"
        )
    if other := [name for name in config.report.compare_with if name != "erm"]:
        return (
            f"report.compare_with has {other[0]!r}, a mix of clients, and problem.pooled = true"
            " makes them one: compare with 'erm' alone"
        )
    return None


def _not_convex(config: Tables) -> str | None:
    h, algorithm = config.problem_, config.algorithm.name
    if (key := not_convex(config)) is None:
        return None
    if not h.pooled:
        return (
            f"{key} is not convex, and several clients solve convex problems only: set"
            " problem.pooled = true"
        )
    if robust(config.robust.radius):
        return (
            f"{key} is not convex, and robust.radius > 0 needs convex problems: set"
            " robust.radius = 0"
        )
    if h.loss == "quantile" and algorithm == "auto":
        return (
            f"{key} is not convex, and 'quantile' losses are not ordered by one number: use"
            " algorithm.name = 'sgd'"
        )
    return None


def _constrained(config: Tables) -> str | None:
    """What constraints, and an objective of one class, do not go together with."""
    if not config.constrained:
        return _unconstrained(config)
    what = "[[constraint]]" if config.constraint else "problem.label"
    label, loss = config.problem_.label, config.problem_.loss
    labelled = label is not None or any(c.get("label") is not None for c in config.constraint)
    if labelled and config.loss().targets != "sign":
        known = names_with("loss", "targets", "sign")
        return (
            f"`label` needs two classes, and problem.loss = {loss!r} has none: use one of"
            f" {', '.join(known)}"
        )
    if not config.loss().smooth or config.loss().targets == "class":
        return (
            f"problem.loss = {loss!r} is not smooth, as methods for constraints need: use one of"
            f" {', '.join(smooth_losses())}"
        )
    if robust(config.robust.radius):
        return (
            f"{what} and robust.radius > 0 exclude each other: no method keeps both promises. Set"
            " robust.radius = 0"
        )
    if config.risk.by_rank:
        return (
            f"{what} and risk.name = {config.risk.name!r} exclude each other: use risk.name ="
            " 'mean'"
        )
    if config.problem_.pooled:
        return (
            f"{what} is about clients, and problem.pooled = true makes them one: use on ="
            " 'together' instead"
        )
    if config.path is not None:
        return (
            f"{what} and [path] exclude each other: for other levels of a constraint use"
            " [trade_off]"
        )
    return _server(config) or _trade_off(config)


def _unconstrained(config: Tables) -> str | None:
    if config.trade_off is not None:
        return "[trade_off] tries levels of a constraint, and there is none: add [[constraint]]"
    if config.data.server is not None:
        return (
            "data.server are rows for a constraint of on = 'server', and there is none: add one, or"
            " leave it out"
        )
    name = config.algorithm.name
    if name != "auto" and load("algorithm", name).requirements.constrained:
        return (
            f"algorithm.name = {config.algorithm.name!r} is for problems with constraints: use"
            " 'bundle', or 'auto'"
        )
    if "unconstrained" in config.report.compare_with:
        return (
            "report.compare_with has 'unconstrained', and there are no constraints to leave out:"
            " use 'erm'"
        )
    return None


def _server(config: Tables) -> str | None:
    asked = any(c.place == "server" for c in config.constraint)
    if asked and config.data.server is None:
        return (
            "constraint.on = 'server' needs the server's own rows: give data.server, a table or a"
            " share"
        )
    if not asked and config.data.server is not None:
        return (
            "data.server are rows for a constraint of on = 'server', and there is none: add one, or"
            " leave it out"
        )
    return None


def _trade_off(config: Tables) -> str | None:
    if config.trade_off is None:
        return None
    k, n = config.trade_off.constraint, len(config.constraint)
    if k > n:
        return (
            f"trade_off.constraint = {k}, and there {'is' if n == 1 else 'are'} {n}: count from 1"
        )
    if config.constraint[k - 1].adjustable is None:
        return (
            f"trade_off.constraint = {k} has no one `level` or `limit` to change: name another, or"
            " give a number"
        )
    return None


def _model(config: Tables) -> str | None:
    """Several classes, and models that are not linear."""
    h = config.problem_
    several = config.loss().targets == "class"
    if several and h.model == "linear":
        return (
            f"problem.loss = {h.loss!r} needs one score a class: set problem.model = 'softmax',"
            " or 'mlp'"
        )
    if h.model == "softmax" and not several:
        return (
            f"problem.model = 'softmax' has one score a class, and loss = {h.loss!r} is of one: use"
            " 'multinomial'"
        )
    if h.model == "linear":
        return None
    if config.privacy is not None or config.constrained:
        what = "[privacy]" if config.privacy is not None else "[[constraint]] and problem.label"
        return (
            f"problem.model = {h.model!r} and {what} exclude each other: use problem.model ="
            " 'linear'"
        )
    if h.model == "softmax":
        return None
    if robust(config.robust.radius) or config.path is not None:
        return (
            "problem.model = 'mlp' has no Wasserstein balls: set robust.radius = 0 and leave"
            " [path] out"
        )
    if config.risk.by_rank or h.pooled:
        key = (
            f"risk.name = {config.risk.name!r}" if config.risk.by_rank else "problem.pooled = true"
        )
        return f"problem.model = 'mlp' is for means of clients' rows, got {key}: leave it out"
    if not config.loss().smooth:
        return (
            f"problem.model = 'mlp' needs a smooth loss, got {h.loss!r}: use 'logistic',"
            " 'multinomial' or 'huber'"
        )
    return None


def _clock(config: Tables) -> str | None:
    """What a simulated clock is not for."""
    if not config.engine.clocked:
        return None
    if config.problem_.pooled:
        return (
            "engine.kind = 'virtual_clock' is about clients, and problem.pooled = true makes them"
            " one: leave it out"
        )
    if config.privacy is not None:
        return (
            "engine.kind = 'virtual_clock' and [privacy] exclude each other: private rounds wait"
            " for all clients"
        )
    return None


def not_convex(config: Tables) -> str | None:
    """The key that makes the problem not convex."""
    if not config.risk.convex:
        return f"risk.name = {config.risk.name!r}"
    h = config.problem_
    return (
        f"problem.regulariser = {h.regulariser!r}"
        if config.regulariser().weak_convexity > 0
        else None
    )


def robust(radius: Any) -> bool:
    """Whether any client has a Wasserstein ball."""
    return any(map(robust, radius.values())) if isinstance(radius, dict) else radius != 0


RULES = (
    private_rule,
    _path,
    _ranks,
    _one_place,
    _model,
    _not_convex,
    _constrained,
    method_rule,
    _clock,
)
