"""What may stand beside [privacy] in a configuration, and what its method takes.

Whatever is read off the rows and leaves their owners breaks the promise of a private run. So
scaling, categories and classes are declared, and combinations without a guarantee are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from quorate.config.objects import parameters
from quorate.config.tables import Tables, names_with


def private_methods() -> list[str]:
    """The short names of the algorithms that add noise."""
    return names_with("algorithm", "private")


class Rule(str):
    """What is wrong with a configuration in words, and the key that it is about."""

    at: tuple[str | int, ...] = ()

    @classmethod
    def of(cls, at: tuple[str | int, ...], text: str) -> Rule:
        rule = cls(text)
        rule.at = at
        return rule


def options(config: Tables) -> dict[str, Any]:
    """The options of the private method, with penalties as objects and noise that nobody else can
    make again.
    """
    from quorate.algorithms.federated.private_admm.penalty import Penalty

    assert config.privacy is not None
    given = {
        "noise": "simulation" if config.privacy.rehearsal else "secure",
        **config.algorithm.options,
    }
    if isinstance(given.get("rho"), Mapping):
        given["rho"] = Penalty(**{key: float(value) for key, value in given["rho"].items()})
    return given


def private_rule(config: Tables) -> Rule | None:
    """The first rule about privacy that a configuration breaks."""
    if config.privacy is None:
        return _without(config)
    rules = (_problem, _clients, _method, _rows, _beside, _curve)
    return next(filter(None, (rule(config) for rule in rules)), None)


def _without(config: Tables) -> Rule | None:
    if config.algorithm.is_private:
        said = (
            f"algorithm.name = {config.algorithm.name!r} spends a budget of privacy, and there is"
            " none: add "
        )
        return Rule.of(
            ("algorithm", "name"), said + "[privacy] with epsilon and delta, or use 'auto'"
        )
    if config.evaluation.public:
        said = (
            "evaluation.public says what of a private run may travel, and there is no [privacy]:"
            " leave it out"
        )
        return Rule.of(("evaluation", "public"), said)
    return None


def _problem(config: Tables) -> Rule | None:
    h = config.problem_
    if config.constraint:
        said = (
            "[privacy] and [[constraint]] exclude each other: multipliers and what is measured"
            " would tell about rows"
        )
        return Rule.of(("constraint", 0), f"{said} without being charged. Leave one of them out")
    if h.label is not None:
        said = (
            "[privacy] and problem.label exclude each other: one class alone has a number of rows"
            " that is private"
        )
        return Rule.of(("problem", "label"), f"{said}. Leave `label` out")
    if h.pooled:
        said = (
            "[privacy] is about clients that keep their rows, and problem.pooled = true has none:"
            " leave it out"
        )
        return Rule.of(("problem", "pooled"), said)
    loss = config.loss()
    if not loss.smooth or loss.targets == "class":
        several = names_with("loss", "targets", "class")
        known = [name for name in names_with("loss", "smooth") if name not in several]
        said = (
            f"problem.loss = {h.loss!r} has no gradient that could be clipped: use one of"
            f" {', '.join(known)}"
        )
        return Rule.of(("problem", "loss"), said)
    if config.regulariser().weak_convexity > 0:
        said = (
            f"problem.regulariser = {h.regulariser!r} is not convex, as the private methods need:"
            " use 'l2' or 'l1'"
        )
        return Rule.of(("problem", "regulariser"), said)
    return None


def _clients(config: Tables) -> Rule | None:
    radius = config.robust.radius
    if radius != 0 and not (isinstance(radius, dict) and not any(radius.values())):
        said = (
            "[privacy] and robust.radius > 0 exclude each other: a worst case mixes rows, so that"
            " one row has no "
        )
        return Rule.of(("robust", "radius"), said + "bounded share. Set robust.radius = 0")
    if config.risk.by_rank:
        said = (
            f"[privacy] and risk.name = {config.risk.name!r} exclude each other: ranks mix rows, so"
            " that one row "
        )
        return Rule.of(("risk", "name"), said + "has no bounded share. Use risk.name = 'mean'")
    if config.clients.risk != "mean":
        said = (
            f"[privacy] and clients.risk = {config.clients.risk!r} exclude each other: weights that"
            " follow the "
        )
        return Rule.of(
            ("clients", "risk"),
            said + "clients' losses would tell about them. Use clients.risk = 'mean'",
        )
    return None


def _method(config: Tables) -> Rule | None:
    name, given = config.algorithm.name, config.algorithm.options
    if name not in ("auto", *private_methods()):
        said = (
            f"algorithm.name = {name!r} adds no noise and would break the promise of [privacy]:"
            " use "
        )
        return Rule.of(("algorithm", "name"), said + " or ".join(map(repr, private_methods())))
    assert config.privacy is not None

    def wrong(key: str, said: str) -> Rule:
        return Rule.of(("algorithm", "options", key), f"algorithm.options.{key} {said}")

    for key in ("sensitivity", "local_epsilon"):
        if key in given:
            return wrong(
                key, "scales noise by the rows at hand, which is no guarantee: leave it out"
            )
    if given.get("update") == "exact":
        return wrong("update", "= 'exact' has no bounded sensitivity: use 'trust' or 'prox'")
    if given.get("noise") == "simulation" and not config.privacy.rehearsal:
        said = (
            "= 'simulation' is made from the seed, which travels with the run, so that anybody"
            " could subtract it: "
        )
        return wrong(
            "noise", said + "use 'secure', or privacy.rehearsal = true where the rows are public"
        )
    if isinstance(given.get("rho"), Mapping):
        from quorate.algorithms.federated.private_admm.penalty import Penalty

        penalty = parameters(Penalty)
        if odd := [key for key in given["rho"] if key not in penalty]:
            return wrong(
                "rho", f"has {odd[0]!r}: as a table it takes {', '.join(penalty)}, see (21)"
            )
        if any(not _number(value) or value <= 0 for value in given["rho"].values()):
            return wrong("rho", f"= {given['rho']!r} must hold numbers > 0")
    bounded, loss = "clip" in given or "bound" in given, config.loss()
    if given.get("mechanism") == "laplace" and not bounded:
        return wrong(
            "mechanism",
            "= 'laplace' needs a declared l1 bound: give clip (of gradients) or bound (of rows)",
        )
    if "bound" in given and "clip" not in given and not math.isfinite(loss.lipschitz):
        return wrong(
            "bound",
            f"bounds no gradient of problem.loss = {config.problem_.loss!r}, which grows without"
            " end: give clip, too",
        )
    return None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _rows(config: Tables) -> Rule | None:
    data = config.data
    if data.scale != "none":
        said = (
            f"data.scale = {data.scale!r} is read off the rows, and would tell about them without"
            " being charged: "
        )
        said += (
            "set data.scale = 'none', and declare what is known of each column under"
            " [data.columns], such as "
        )
        return Rule.of(("data", "scale"), said + "age = { min = 0, max = 100 }")
    if data.categorical or data.indicators:
        key = "categorical" if data.categorical else "indicators"
        said = (
            f"data.{key} has categories or missing values found in the rows: declare them under"
            " [data.columns]"
        )
        return Rule.of(("data", key), f"{said}, such as ward = {{ categories = ['a', 'b'] }}")
    if data.path is not None and data.classes is None and config.loss_of_classes:
        said = (
            "[data] needs `classes` under [privacy], the two values that the target can have,"
            " such as "
        )
        return Rule.of(
            ("data", "target"),
            said + "classes = ['no', 'yes']: those in the rows would tell about them",
        )
    if data.server is not None or data.groups:
        key = "server" if data.server is not None else "groups"
        return Rule.of(
            ("data", key), f"data.{key} is for constraints, which [privacy] excludes: leave it out"
        )
    if data.partition is not None and config.privacy is not None and not config.privacy.rehearsal:
        said = (
            "data.partition deals out rows after a look at all of them, so that one record moves"
            " others: it is for "
        )
        return Rule.of(
            ("data", "partition"), said + "public data; say so by privacy.rehearsal = true"
        )
    return None


def _beside(config: Tables) -> Rule | None:
    if config.path is not None:
        said = (
            "[privacy] and [path] exclude each other: there is no radius to try. Leave [path] out"
        )
        return Rule.of(("path",), said)
    if config.trade_off is not None:
        said = (
            "[privacy] and [trade_off] exclude each other: there is no constraint. For other"
            " budgets use "
        )
        return Rule.of(("trade_off",), said + "privacy.curve")
    if other := [name for name in config.report.compare_with if name != "erm"]:
        said = (
            f"report.compare_with has {other[0]!r}; beside a private model there is 'erm' alone,"
            " the same problem "
        )
        return Rule.of(
            ("report", "compare_with"), said + "without privacy, whose numbers stay with the owner"
        )
    return None


def _curve(config: Tables) -> Rule | None:
    assert config.privacy is not None
    curve = config.privacy.curve
    if not curve or config.privacy.rehearsal or max(curve) < config.privacy.epsilon:
        return None
    said = (
        f"privacy.curve has {max(curve):g}: every run is charged, and all together with this one"
        " must stay within "
    )
    said += (
        f"epsilon = {config.privacy.epsilon:g}. Use smaller ones, or privacy.rehearsal = true where"
        " the rows are "
    )
    return Rule.of(("privacy", "curve"), said + "public")
