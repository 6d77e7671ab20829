"""What `bonafed.solve` asks of what a configuration states: whether the problem can be stated, and
whether the method takes it, by the `Requirements` of the methods' classes.

A refusal names the methods that take the problem as it stands in the file. Where there are none, it
names the key that has to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from bonafed.algorithms.alternatives import RefusedError, check_requirements
from bonafed.algorithms.federated.bundle.masked_bundle import masked
from bonafed.algorithms.method import Method, settings_of
from bonafed.algorithms.requirements import Setting
from bonafed.config.compatibility import table_rules
from bonafed.config.errors import ConfigError, Refusal, one_of
from bonafed.config.tables import Tables
from bonafed.names import NAMED, load, short_name
from bonafed.problem.problem import Problem
from bonafed.solution.plan import choose

MOST = 4  # methods that an error names
KEYS = {  # of a slot of the problem or of its setting
    "loss": ("problem", "loss"),
    "predictor": ("problem", "model"),
    "regulariser": ("problem", "regulariser"),
    "over_samples": ("risk", "name"),
    "over_rows": ("risk", "name"),
    "over_clients": ("clients", "risk"),
    "clients": ("problem", "pooled"),
    "engine": ("engine", "kind"),
    "sums": ("engine", "secure_sum"),
    "constraint": ("problem", "label"),
}


def broken_rule(config: Tables) -> Refusal | None:
    """The first rule that the configuration breaks, in words."""
    rules = (table_rules, _conflicts, method_rules, _stopping_rules)
    return next(chain.from_iterable(of(config) for of in rules), None)


def _conflicts(config: Tables) -> Iterator[Refusal]:
    """Why keys exclude each other, and what to leave out."""
    stated = {
        f"risk.name = {config.risk.name!r}": config.risk.by_rank,
        "robust.radius > 0": config.robust.is_robust,
        "problem.label": config.problem_.label is not None,
    }
    ways = [way for way, is_stated in stated.items() if is_stated]
    if len(ways) > 1:
        yield Refusal(
            f"{' and '.join(ways)} exclude each other: each says how the rows of a client count, so"
            " keep one of them"
        )
    if config.problem_.pooled and config.privacy is not None:
        yield Refusal(
            "[privacy] is about clients that keep their rows and declare how many they have, and"
            " problem.pooled = true makes them one: set problem.pooled = false",
            *("problem", "pooled"),
        )
    if config.problem_.pooled and config.weighs_clients:
        yield Refusal(
            "[clients] weighs several clients, and problem.pooled = true makes them one: leave out"
            " [clients], or set problem.pooled = false",
            "clients",
        )
    if config.algorithm.is_private and config.privacy is None:
        yield Refusal(
            f"algorithm.name = {config.algorithm.name!r} spends a privacy budget, which [privacy]"
            " states by epsilon and delta, and there is none: add it, or set"
            " algorithm.name = 'auto'",
            *("algorithm", "name"),
        )
    if config.risk.together:
        yield from _of_ranks(config)


def _of_ranks(config: Tables) -> Iterator[Refusal]:
    """Why the rows of all clients cannot be ranked together."""
    on, key = "risk.on = 'together' ranks the rows of all clients", ("risk", "on")
    if not config.risk.by_rank:
        text = f"{on}, and risk.name = 'mean' ranks none: set risk.name to another risk"
        yield Refusal(text, *key)
    if config.problem_.pooled:
        text = f"{on} where they are, and problem.pooled = true has them in one place"
        yield Refusal(f"{text}: leave out risk.on", *key)
    elif config.weighs_clients:
        text = f"{on} in one ranking, and [clients] weighs the clients' own risks"
        yield Refusal(f"{text}: leave out risk.on, or leave out [clients]", "clients")
    if config.privacy is not None:
        yield Refusal(f"{on}, and no method with [privacy] does: leave out risk.on", *key)


def method_rules(config: Tables) -> Iterator[Refusal]:
    """Why `solve` refuses the problem or the method, and which methods take the problem."""
    tables = [config]
    if config.privacy is not None:  # the options of a method that is refused are no matter
        bare = config.algorithm.model_copy(update={"options": {}})
        tables = [config.model_copy(update={"algorithm": bare}), config]
    try:
        for problem, method, setting in map(_solved, tables):
            chosen = method or choose(problem, setting)
            check_requirements(chosen, problem, setting)
            (masked(chosen) if setting.secure_sum else chosen).check_problem(problem, None)
    except RefusedError as error:
        yield _refused(config, error)
    except ConfigError as error:
        yield Refusal(str(error), "problem")
    except ValueError as error:
        refusal = error.args[0]
        plain = not isinstance(refusal, Refusal)
        yield config.algorithm.refusal(str(error)) if plain else refusal


def settings_taken(config: Tables) -> dict[str, object]:
    """The settings of the method that runs."""
    problem, method, setting = _solved(config)
    return settings_of(method or choose(problem, setting))


def _stopping_rules(config: Tables) -> Iterator[Refusal]:
    for key in {"tol", "max_rounds"} - {*settings_taken(config)}:
        if getattr(config.algorithm, key) is not None:
            text = f"{config.algorithm.name!r} takes no {key}: leave it out"
            yield Refusal(text, "algorithm", key)


def _solved(config: Tables) -> tuple[Problem, Method | None, Setting]:
    """What a run solves, by which method (None: the default), and in which setting."""
    n_clients, secure = 1 if config.problem_.pooled else 2, bool(config.engine.get("secure_sum"))
    setting = Setting(n_clients, True, config.engine.clocked, secure)
    return config.stated(), config.method(), setting


def _refused(config: Tables, error: RefusedError) -> Refusal:
    """Why a method is refused, and which others take the problem."""
    reason = error.reason
    names = {load("algorithm", name).__name__: name for name in NAMED["algorithm"]}
    name, (place, value) = names[reason.method], _key(config, reason.slot)
    named = config.algorithm.name == name
    why = f"{'algorithm.name = ' * named}{name!r} {reason.need.words}, got {value}"
    others = [short_name("algorithm", cls) or "" for cls in error.advice.methods[:MOST]]
    change = f"no method does: change {value.split()[0]}"
    advice = f"use {one_of(others, ' or ')}" if others else change
    by_name = (named and config.privacy is None) or reason.slot == "privacy"
    refusal = Refusal(f"{why}: {advice}", *(("algorithm", "name") if by_name else place))
    refusal.methods = tuple(others)
    return refusal


def _key(config: Tables, slot: str) -> tuple[tuple[str | int, ...], str]:
    """Where a configuration fills a slot of the problem, and with what."""
    if slot == "over_samples" and config.robust.is_robust:
        return ("robust", "radius"), "robust.radius > 0"
    if slot == "constraint" and config.constraint:
        return ("constraint", 0), "[[constraint]]"
    if slot == "privacy":
        return ("privacy",), "[privacy]"
    table, field = KEYS[slot]
    value = getattr(config, "problem_" if table == "problem" else table).get(field)
    text = f"{table}.{field} = {'false' if value is False else repr(value)}"
    if slot == "over_rows":
        text += f" {'with' if config.risk.together else 'without'} risk.on = 'together'"
    return (table, field), text
