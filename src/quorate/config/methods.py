"""Whether the algorithm that a configuration names takes the problem that its tables state.

It is asked as `quorate.solve` asks: by the requirements on the algorithm's class.
"""

from __future__ import annotations

from quorate.config.tables import Tables
from quorate.names import load, short_name

MOST = 4  # algorithms that an error names


def method_rule(config: Tables) -> str | None:
    """Why the named algorithm refuses, and what would be taken; None where it does not."""
    name = config.algorithm.name
    if name == "auto" or (problem := config.solvable()) is None:
        return None
    from quorate.algorithms.alternatives import advice
    from quorate.algorithms.requirements import Setting

    cls = load("algorithm", name)
    setting = Setting(1 if config.problem_.pooled else 2, True, config.engine.clocked)
    reason = cls.requirements.refusal(cls.__name__, problem, setting)
    if reason is None:
        return None
    instead = advice(cls.requirements, reason, problem, setting)
    names = [repr(short_name("algorithm", other)) for other in instead.methods[:MOST]]
    use = f"use {_listed(names)}" if names else ""
    keys = " and ".join(SET[change.slot] for change in instead.changes)
    change = f"set {keys}" if keys else ""
    parts = [change, use] if reason.slot == "clients" else [use, change]
    said = f"algorithm.name = {name!r} {reason.need.words}, got {_key(config, reason.slot)}"
    return f"{said}: {', or '.join(filter(None, parts))}"


SET = {  # a slot of a problem -> keys with which most algorithms take it
    "over_samples": "risk.name = 'mean' and robust.radius = 0",
    "over_clients": "clients.risk = 'mean'",
    "loss": "problem.loss = 'logistic' (of numbers 'squared')",
    "predictor": "problem.model = 'linear'",
    "regulariser": "problem.regulariser = 'l2'",
    "clients": "problem.pooled = true",
    "engine": "engine.kind = 'in_process'",
    "constraint": "no [[constraint]] and no problem.label",
    "privacy": "no [privacy]",
}


def _key(config: Tables, slot: str) -> str:
    """The key and value of a configuration that fill a slot of the problem."""
    ranked = config.risk.name != "mean"
    return {
        "over_samples": f"risk.name = {config.risk.name!r}" if ranked else "robust.radius > 0",
        "over_clients": f"clients.risk = {config.clients.risk!r}",
        "loss": f"problem.loss = {config.problem_.loss!r}",
        "predictor": f"problem.model = {config.problem_.model!r}",
        "regulariser": f"problem.regulariser = {config.problem_.regulariser!r}",
        "clients": "problem.pooled = false",
        "engine": "engine.kind = 'virtual_clock'",
        "constraint": "[[constraint]] or problem.label",
        "privacy": "[privacy]",
    }[slot]


def _listed(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
