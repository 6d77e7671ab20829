"""The tables [privacy] and [evaluation] of a configuration, and what may stand beside them.

A private run promises one total (epsilon, delta) for every record. Whatever is read off the rows and leaves their
owners breaks it, so scaling, categories and classes are declared, and combinations without a guarantee are refused.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PlainValidator, model_validator

from quorate.config_sections import Positive, Section

if TYPE_CHECKING:
    from quorate.config import Config

PRIVATE = {"private_admm": "PrivateADMM", "output_perturbed_admm": "OutputPerturbedADMM"}
SMOOTH = ("logistic", "smooth_hinge", "exponential", "squared", "huber")
LIPSCHITZ = ("logistic", "smooth_hinge", "huber")
NO_OPTIONS = ("eta", "local_epsilon", "plan", "sensitivity")  # of the private methods: functions, or no guarantee
PENALTY = ("c1", "c2", "period", "epsilon", "scale")  # of rho = { c1, ... }, equation (21)


class Rule(str):
    """What is wrong with a configuration in words, and the key that it is about."""

    at: tuple[str | int, ...] = ()

    @classmethod
    def of(cls, at: tuple[str | int, ...], text: str) -> Rule:
        rule = cls(text)
        rule.at = at
        return rule


def _sizes(value: Any) -> Any:
    for one in value.values() if isinstance(value, Mapping) and value else [value]:
        if one is not None and (isinstance(one, bool) or not isinstance(one, int) or one < 1):
            raise ValueError("allowed: a whole number of rows >= 1, or a table with one for each client")
    return dict(value) if isinstance(value, Mapping) else value


class PrivacySection(Section):
    """One total (epsilon, delta) for every record of the training rows, whatever is run within it."""

    epsilon: Positive
    delta: Annotated[float, Field(gt=0, lt=1)]
    adjacency: Literal["add-remove", "replace"] = "add-remove"
    sizes: Annotated[Any, PlainValidator(_sizes)] = None  # rows of every client, declared; None: counted, and public
    counted: bool = False  # sizes are those of the rows; written by a run
    book: str | None = None  # file in which all runs on these rows write what they spend
    rehearsal: bool = False  # the rows are public: what is promised is only tried out
    curve: Annotated[list[Positive], Field(default_factory=list)]  # other totals to train with

    @model_validator(mode="after")
    def _each_once(self) -> PrivacySection:
        if len({*self.curve}) < len(self.curve):
            raise ValueError("has the same epsilon twice in `curve`: allowed is every one once")
        return self

    def budget(self, folder: Path, **changes: Any) -> Any:
        """As the library has it; ``folder`` is where a relative path of the book starts."""
        from quorate.privacy.budget import Budget

        book = None if self.book is None else folder / self.book
        stated = {"epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency, "sizes": self.sizes}
        return Budget(**{**stated, "book": book, **changes})

    def at(self, moved: Any) -> PrivacySection:
        """With the path of the book rewritten."""
        return self if self.book is None else self.model_copy(update={"book": moved(self.book)})


class EvaluationSection(Section):
    """Who may see how the model does on the rows that it is judged on."""

    public: bool = False  # the rows judged on are nobody's secret: the model's numbers on them may travel


def options(config: Config) -> dict[str, Any]:
    """The options of the private method, with penalties as objects and noise that nobody else can make again."""
    from quorate.algorithms.federated.private_admm import Penalty

    assert config.privacy is not None
    given = {"noise": "simulation" if config.privacy.rehearsal else "secure", **config.algorithm.options}
    if isinstance(given.get("rho"), Mapping):
        given["rho"] = Penalty(**{key: float(value) for key, value in given["rho"].items()})
    return given


# ---------------------------------------------------------------------------------------- rules


def private_rule(config: Config) -> Rule | None:
    """The first rule about privacy that a configuration breaks."""
    if config.privacy is None:
        return _without(config)
    rules = (_problem, _clients, _method, _rows, _beside, _curve)
    return next(filter(None, (rule(config) for rule in rules)), None)


def _without(config: Config) -> Rule | None:
    if config.algorithm.name in PRIVATE:
        said = f"algorithm.name = {config.algorithm.name!r} spends a budget of privacy, and there is none: add "
        return Rule.of(("algorithm", "name"), said + "[privacy] with epsilon and delta, or use 'auto'")
    if config.evaluation.public:
        said = "evaluation.public says what of a private run may travel, and there is no [privacy]: leave it out"
        return Rule.of(("evaluation", "public"), said)
    return None


def _problem(config: Config) -> Rule | None:
    h = config.problem_
    if config.constraint:
        said = "[privacy] and [[constraint]] exclude each other: multipliers and what is measured would tell about rows"
        return Rule.of(("constraint", 0), f"{said} without being charged. Leave one of them out")
    if h.label is not None:
        said = "[privacy] and problem.label exclude each other: one class alone has a number of rows that is private"
        return Rule.of(("problem", "label"), f"{said}. Leave `label` out")
    if h.pooled:
        said = "[privacy] is about clients that keep their rows, and problem.pooled = true has none: leave it out"
        return Rule.of(("problem", "pooled"), said)
    if h.loss not in SMOOTH:
        said = f"problem.loss = {h.loss!r} has no gradient that could be clipped: use one of {', '.join(SMOOTH)}"
        return Rule.of(("problem", "loss"), said)
    if h.regulariser in ("mcp", "scad"):
        said = f"problem.regulariser = {h.regulariser!r} is not convex, as the private methods need: use 'l2' or 'l1'"
        return Rule.of(("problem", "regulariser"), said)
    return None


def _clients(config: Config) -> Rule | None:
    radius = config.robust.radius
    if radius != 0 and not (isinstance(radius, dict) and not any(radius.values())):
        said = "[privacy] and robust.radius > 0 exclude each other: a worst case mixes rows, so that one row has no "
        return Rule.of(("robust", "radius"), said + "bounded share. Set robust.radius = 0")
    if config.risk.by_rank:
        said = f"[privacy] and risk.name = {config.risk.name!r} exclude each other: ranks mix rows, so that one row "
        return Rule.of(("risk", "name"), said + "has no bounded share. Use risk.name = 'mean'")
    if config.clients.risk != "mean":
        said = f"[privacy] and clients.risk = {config.clients.risk!r} exclude each other: weights that follow the "
        return Rule.of(("clients", "risk"), said + "clients' losses would tell about them. Use clients.risk = 'mean'")
    return None


def _method(config: Config) -> Rule | None:
    name, given = config.algorithm.name, config.algorithm.options
    if name not in ("auto", *PRIVATE):
        said = f"algorithm.name = {name!r} adds no noise and would break the promise of [privacy]: use "
        return Rule.of(("algorithm", "name"), said + " or ".join(map(repr, PRIVATE)))
    assert config.privacy is not None

    def wrong(key: str, said: str) -> Rule:
        return Rule.of(("algorithm", "options", key), f"algorithm.options.{key} {said}")

    for key in ("sensitivity", "local_epsilon"):
        if key in given:
            return wrong(key, "scales noise by the rows at hand, which is no guarantee: leave it out")
    if given.get("update") == "exact":
        return wrong("update", "= 'exact' has no bounded sensitivity: use 'trust' or 'prox'")
    if given.get("noise") == "simulation" and not config.privacy.rehearsal:
        said = "= 'simulation' is made from the seed, which travels with the run, so that anybody could subtract it: "
        return wrong("noise", said + "use 'secure', or privacy.rehearsal = true where the rows are public")
    if isinstance(given.get("rho"), Mapping):
        if odd := [key for key in given["rho"] if key not in PENALTY]:
            return wrong("rho", f"has {odd[0]!r}: as a table it takes {', '.join(PENALTY)}, see (21)")
        if any(not _number(value) or value <= 0 for value in given["rho"].values()):
            return wrong("rho", f"= {given['rho']!r} must hold numbers > 0")
    bounded, loss = "clip" in given or "bound" in given, config.problem_.loss
    if given.get("mechanism") == "laplace" and not bounded:
        return wrong("mechanism", "= 'laplace' needs a declared l1 bound: give clip (of gradients) or bound (of rows)")
    if "bound" in given and "clip" not in given and loss not in LIPSCHITZ:
        return wrong("bound", f"bounds no gradient of problem.loss = {loss!r}, which grows without end: give clip, too")
    return None


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _rows(config: Config) -> Rule | None:
    data = config.data
    if data.scale != "none":
        said = f"data.scale = {data.scale!r} is read off the rows, and would tell about them without being charged: "
        said += "set data.scale = 'none', and declare what is known of each column under [data.columns], such as "
        return Rule.of(("data", "scale"), said + "age = { min = 0, max = 100 }")
    if data.categorical or data.indicators:
        key = "categorical" if data.categorical else "indicators"
        said = f"data.{key} has categories or missing values found in the rows: declare them under [data.columns]"
        return Rule.of(("data", key), f"{said}, such as ward = {{ categories = ['a', 'b'] }}")
    if data.path is not None and data.classes is None and config.loss_of_classes:
        said = "[data] needs `classes` under [privacy], the two values that the target can have, such as "
        return Rule.of(("data", "target"), said + "classes = ['no', 'yes']: those in the rows would tell about them")
    if data.server is not None or data.groups:
        key = "server" if data.server is not None else "groups"
        return Rule.of(("data", key), f"data.{key} is for constraints, which [privacy] excludes: leave it out")
    if data.partition is not None and config.privacy is not None and not config.privacy.rehearsal:
        said = "data.partition deals out rows after a look at all of them, so that one record moves others: it is for "
        return Rule.of(("data", "partition"), said + "public data; say so by privacy.rehearsal = true")
    return None


def _beside(config: Config) -> Rule | None:
    if config.path is not None:
        said = "[privacy] and [path] exclude each other: there is no radius to try. Leave [path] out"
        return Rule.of(("path",), said)
    if config.trade_off is not None:
        said = "[privacy] and [trade_off] exclude each other: there is no constraint. For other budgets use "
        return Rule.of(("trade_off",), said + "privacy.curve")
    if other := [name for name in config.report.compare_with if name != "erm"]:
        said = f"report.compare_with has {other[0]!r}; beside a private model there is 'erm' alone, the same problem "
        return Rule.of(("report", "compare_with"), said + "without privacy, whose numbers stay with the owner")
    return None


def _curve(config: Config) -> Rule | None:
    assert config.privacy is not None
    curve = config.privacy.curve
    if not curve or config.privacy.rehearsal or max(curve) < config.privacy.epsilon:
        return None
    said = f"privacy.curve has {max(curve):g}: every run is charged, and all together with this one must stay within "
    said += f"epsilon = {config.privacy.epsilon:g}. Use smaller ones, or privacy.rehearsal = true where the rows are "
    return Rule.of(("privacy", "curve"), said + "public")


# ---------------------------------------------------------------------------------------- columns


def columns(value: Any) -> dict[str, dict[str, Any]] | None:
    """What a file declares of its columns, one table for each."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise ValueError("allowed: a table with one entry for each feature, such as age = { min = 0, max = 100 }")
    return {name: _column(name, given) for name, given in value.items()}


def _column(name: str, given: Any) -> dict[str, Any]:
    numbers = ("min", "max", "mean", "scale", "missing")
    kinds = ({"min", "max"}, {"mean", "scale"}, {"categories"}, set())
    keys = {*given} - {"missing", "indicator"} if isinstance(given, Mapping) else None
    if keys in kinds:
        finite = all(_number(given[key]) and math.isfinite(given[key]) for key in numbers if key in given)
        whole = finite and isinstance(given.get("indicator", False), bool)
        if "categories" in given:
            several, more = given["categories"], {*given} - {"categories"}
            if isinstance(several, list) and several and all(isinstance(c, str) for c in several) and not more:
                return dict(given)
        elif whole and given.get("min", 0) < given.get("max", 1) and given.get("scale", 1) > 0:
            return dict(given)
    raise ValueError(
        f"column {name!r} has {given!r}; allowed: {{ min, max }} (made 0 to 1), {{ mean, scale }}, {{}} (taken as it "
        "is), each with missing = the number that stands for none and indicator = true for a feature of its own, or "
        "{ categories = ['a', ...] }"
    )


def moved(path: str, old: Path, new: Path) -> str:
    """A path that started at ``old``, from ``new``."""
    if os.path.isabs(path):
        return path
    try:
        return os.path.relpath(old / path, new).replace(os.sep, "/")
    except ValueError:  # another drive
        return str((old / path).absolute())
