"""Whether `quorate.solve` takes what a configuration states: it is asked as `solve` asks, of the
problem itself and of the requirements on the algorithms' classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, islice
from typing import NamedTuple

from quorate.algorithms.alternatives import Advice, Change, RefusedError, check_requirements, takes
from quorate.algorithms.federated.bundle import Bundle
from quorate.algorithms.method import Method
from quorate.algorithms.requirements import Reason, Setting
from quorate.config.errors import ConfigError, Refusal, one_of
from quorate.config.tables import Tables, names_with
from quorate.names import NAMED, load, short_name
from quorate.problem.problem import Problem
from quorate.solution.default import choose

MOST = 4  # algorithms that an error names
SLOTS = {  # a slot of a problem -> its key, and the kind of names that the key takes
    "loss": ("problem.loss", "loss"),
    "predictor": ("problem.model", "model"),
    "regulariser": ("problem.regulariser", "regulariser"),
    "over_samples": ("risk.name", "risk over samples"),
    "over_clients": ("clients.risk", "risk over clients"),
}
LEFT_OUT = {  # any other slot -> keys with which most algorithms take it
    "clients": "problem.pooled = true",
    "engine": "engine.kind = 'in_process'",
    "constraint": "no [[constraint]] and no problem.label",
    "privacy": "no [privacy]",
}


class Edit(NamedTuple):
    """Another value of one key."""

    key: str
    value: object


def method_rules(config: Tables) -> Iterator[Refusal]:
    """Why `solve` refuses the problem or the algorithm, and what it takes instead."""
    try:
        yield from method_refusals(config, config.stated())
    except ConfigError as error:
        yield _unstated(config, in_file_words(str(error)))
    except ValueError as error:
        yield error.args[0]


def _unstated(config: Tables, text: str) -> Refusal:
    """Why there is no such problem, with other values of keys that make one that is taken."""
    edits, auto = list(_edits(config)), Edit("algorithm.name", "auto")
    ways = [[edit] for edit in edits if _is_taken(config, [edit])]
    if not ways:
        pairs = list(combinations(edits, 2))
        more = [*pairs, *((edit, auto) for edit in edits), *((*pair, auto) for pair in pairs)]
        ways = [[*way] for way in islice((way for way in more if _is_taken(config, way)), 1)]
    if len(ways) > 1:  # the values of one key together
        keys = dict.fromkeys(edit.key for way in ways for edit in way)
        values = {k: [edit.value for way in ways for edit in way if edit.key == k] for k in keys}
        texts = [_setting(key, *several) for key, several in values.items()]
    else:
        texts = [" and ".join(_setting(edit.key, edit.value) for edit in way) for way in ways]
    return Refusal(f"{text.rstrip('.')}. Set {', or '.join(texts)}" if texts else text, "problem")


def _edits(config: Tables) -> Iterator[Edit]:
    """Other values of single keys with which a problem may be stated."""
    targets = "sign" if config.labels else config.loss().targets
    yield from (Edit("problem.model", name) for name in NAMED["model"])
    yield from (Edit("problem.loss", name) for name in names_with("loss", "targets", targets))
    yield Edit("robust.radius", 0)
    yield Edit("problem.label", None)
    yield Edit("constraint", [])


def _setting(key: str, *values: object) -> str:
    """What to set a key to, in words."""
    missing = {"constraint": "no [[constraint]]", "problem.label": "no problem.label"}
    return missing.get(key) or f"{key} = {one_of(values, ' or ')}"


def _is_taken(config: Tables, edits: Iterable[Edit]) -> bool:
    """Whether a configuration is taken with other values of some keys."""
    try:
        other = config.edited(dict(edits))
        return next(method_refusals(other, other.stated()), None) is None
    except ValueError:
        return False


def method_refusals(config: Tables, problem: Problem) -> Iterator[Refusal]:
    """Why the algorithm that a file names, or each of them, refuses a problem."""
    yield from _refusal(config, config.method(), problem, config.engine.clocked)
    if config.path is not None:
        yield from _refusal(config, config.method() or Bundle(), config.path_problem(), False)


def _refusal(
    config: Tables, method: Method | None, problem: Problem, clocked: bool
) -> Iterator[Refusal]:
    setting = Setting(1 if config.problem_.pooled else 2, True, clocked)
    try:
        chosen = method or choose(problem, setting)
        check_requirements(chosen, problem, setting)
        chosen.check_problem(problem, None)
    except RefusedError as error:
        yield _in_words(config, error.reason, error.advice)
    except ValueError as error:
        yield config.algorithm.refusal(in_file_words(str(error)))


def _in_words(config: Tables, reason: Reason, advice: Advice) -> Refusal:
    """Why an algorithm is refused, with keys and names of the file."""
    names = {load("algorithm", name).__name__: name for name in NAMED["algorithm"]}
    name, slot = names[reason.method], reason.slot
    methods = [repr(short_name("algorithm", other)) for other in advice.methods[:MOST]]
    keys = [_set(config, change) for change in advice.changes]
    if advice.changes and keys[-1].startswith("problem.loss"):
        keys[-1] = f"problem.loss = {_losses(advice, advice.changes[-1])}"
    if (
        advice.by is not None
        and advice.by.__name__ != reason.method
        and config.algorithm.name != "auto"
    ):
        keys.append(f"algorithm.name = {short_name('algorithm', advice.by)!r}")
    parts = [f"set {' and '.join(keys)}"] * bool(keys)
    use = [f"use {_listed(methods)}"] * bool(methods)
    instead = parts + use if slot == "clients" else use + parts
    key, value = _key(config, slot)
    named = config.algorithm.name == name
    return Refusal(
        f"{'algorithm.name = ' * named}{name!r} {in_file_words(reason.need.words)}, got"
        f" {value}: {', or '.join(instead)}",
        *(("algorithm", "name") if named or slot == "privacy" else key),
    )


def _losses(advice: Advice, last: Change) -> str:
    """The losses of the same targets that the algorithm takes with all changes."""
    targets = last.problem.loss.targets
    named = {name: load("loss", name) for name in NAMED["loss"]}
    taken = [
        repr(name)
        for name, cls in named.items()
        if cls.targets == targets
        and advice.by is not None
        and takes(advice.by, replace(last.problem, loss=cls()), last.setting)
    ]
    return _listed(taken or [repr(short_name("loss", last.problem.loss))])


def _set(config: Tables, change: Change) -> str:
    """The keys of a configuration that make a change."""
    if change.slot not in SLOTS:
        weighed = change.slot == "clients" and config.weighs_clients
        return LEFT_OUT[change.slot] + " and no [clients]" * weighed
    key, kind = SLOTS[change.slot]
    if change.slot == "over_samples" and config.robust.is_robust:
        return "robust.radius = 0"
    return f"{key} = {short_name(kind, getattr(change.problem, change.slot))!r}"


def _key(config: Tables, slot: str) -> tuple[tuple[str | int, ...], str]:
    """Where a configuration fills a slot of the problem, and with what."""
    if slot == "over_samples" and config.robust.is_robust:
        return ("robust", "radius"), "robust.radius > 0"
    if slot in SLOTS:
        table, key = SLOTS[slot][0].split(".")
        section = config.problem_ if table == "problem" else getattr(config, table)
        return (table, key), f"{table}.{key} = {section.get(key)!r}"
    return {
        "clients": (("problem", "pooled"), "problem.pooled = false"),
        "engine": (("engine", "kind"), "engine.kind = 'virtual_clock'"),
        "constraint": (
            ("constraint", 0) if config.constraint else ("problem", "label"),
            "[[constraint]]" if config.constraint else "problem.label",
        ),
        "privacy": (("privacy",), "[privacy]"),
    }[slot]


def in_file_words(text: str) -> str:
    """A text about the library with the keys and names of a configuration."""
    text = text.replace("Mean(label=...)", "problem.label").replace(
        "a WassersteinBall", "WassersteinBall"
    )
    return _python().sub(lambda match: _short_names()[match[1]], text)


@lru_cache
def _short_names() -> dict[str, str]:
    """Slots and classes as a configuration calls them."""
    keys = {slot: key for slot, (key, _) in SLOTS.items() if "_" in slot}
    places = (kind for _, kind in SLOTS.values())
    names = {load(kind, name).__name__: repr(name) for kind in places for name in NAMED[kind]}
    return keys | names | {"WassersteinBall": "robust.radius > 0"}


@lru_cache
def _python() -> re.Pattern[str]:
    arguments = r"(?:\((?:[^()]|\([^()]*\))*\))?"
    return re.compile(rf"\b({'|'.join(_short_names())})\b{arguments}")


def _listed(names: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
