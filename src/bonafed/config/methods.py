"""What the tables of a configuration ask of each other, and whether `bonafed.solve` takes what they
state: it is asked as `solve` asks, of the problem itself and of the requirements on the algorithms'
classes.

A refusal names what is taken instead: other algorithms, and other values of keys. Both are tried
before they are named, so that anyone who follows them is not refused again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, combinations, groupby, islice, starmap
from typing import NamedTuple

from bonafed.algorithms.alternatives import (
    COST,
    RefusedError,
    check_requirements,
    known_methods,
    takes,
)
from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.bundle.masked_bundle import masked
from bonafed.algorithms.method import Method, settings_of
from bonafed.algorithms.requirements import SLOTS, Setting
from bonafed.config.compatibility import table_rules
from bonafed.config.errors import ConfigError, Refusal, one_of
from bonafed.config.problem import ClientsSection
from bonafed.config.tables import Tables, names_with
from bonafed.names import NAMED, load, short_name
from bonafed.problem.problem import Problem
from bonafed.solution.default import choose

MOST = 4  # algorithms that an error names


class Edit(NamedTuple):
    """Another value of one key; None and [] leave it out."""

    key: str
    value: object


Way = Sequence[Edit]  # edits that are made together


def broken_rule(config: Tables) -> Refusal | None:
    """The first rule that the configuration breaks, in words."""
    rules = (table_rules, _conflict_rules, method_rules, _stopping_rules)
    return next(chain.from_iterable(of(config) for of in rules), None)


def _conflict_rules(config: Tables) -> Iterator[Refusal]:
    for why, slot in _conflicts(config):
        yield Refusal(_advised(why, _in_words(_ways(config, slot))), *why.place)


def _conflicts(config: Tables) -> Iterator[tuple[Refusal, str]]:
    """Why keys exclude each other, and the slot of `_edits` where one of them has to change."""
    stated = {
        f"risk.name = {config.risk.name!r}": config.risk.by_rank,
        "robust.radius > 0": config.robust.is_robust,
        "problem.label": config.problem_.label is not None,
    }
    ways = [way for way, is_stated in stated.items() if is_stated]
    if len(ways) > 1:
        text = "exclude each other: each says how the rows of a client count"
        yield Refusal(f"{' and '.join(ways)} {text}"), "over_samples"
    if config.problem_.pooled and config.privacy is not None:
        text = (
            "[privacy] is about clients that keep their rows and declare how many they have, and"
            " problem.pooled = true makes them one"
        )
        yield Refusal(text, "problem", "pooled"), "one_place"
    if config.problem_.pooled and config.weighs_clients:
        text = "[clients] weighs several clients, and problem.pooled = true makes them one"
        yield Refusal(text, "clients"), "one_place"
    if config.algorithm.is_private and config.privacy is None:
        text = (
            f"algorithm.name = {config.algorithm.name!r} spends a privacy budget, which [privacy]"
            " states by epsilon and delta, and there is none"
        )
        yield Refusal(text, "algorithm", "name"), "algorithm"
    yield from _of_ranks(config)


def _of_ranks(config: Tables) -> Iterator[tuple[Refusal, str]]:
    """Why the rows of all clients cannot be ranked together."""
    if not config.risk.together:
        return
    on = "risk.on = 'together' ranks the rows of all clients"
    if not config.risk.by_rank:
        text = f"{on}, and risk.name = 'mean' ranks none, so that every row counts alike"
        yield Refusal(text, "risk", "on"), "over_rows"
    if config.problem_.pooled:
        text = f"{on} where they are, and problem.pooled = true has them in one place"
        yield Refusal(text, "risk", "on"), "over_rows"
    elif config.weighs_clients:
        text = f"{on} in one ranking, and [clients] weighs the clients' own risks"
        yield Refusal(text, "clients"), "over_rows"
    if config.privacy is not None:
        text = f"{on}, and no method with [privacy] does"
        yield Refusal(text, "risk", "on"), "over_rows"


def method_rules(config: Tables) -> Iterator[Refusal]:
    """Why `solve` refuses the problem or the algorithm, and what it takes instead."""
    # the options of a method that is refused are no matter
    bare = [config.edited({"algorithm.options": {}})] if config.privacy is not None else []
    try:
        for problem, method, setting in chain.from_iterable(map(_solved, [*bare, config])):
            chosen = method or choose(problem, setting)
            check_requirements(chosen, problem, setting)
            (masked(chosen) if setting.secure_sum else chosen).check_problem(problem, None)
    except RefusedError as error:
        yield _refused(config, error)
    except ConfigError as error:
        text = re.split(r"[:.] [Uu]se |\.$", in_file_words(str(error)))[0]
        yield Refusal(_advised(text, _in_words(_ways(config, *SLOTS, "path"))), "problem")
    except ValueError as error:
        refusal = error.args[0]
        plain = not isinstance(refusal, Refusal)
        yield config.algorithm.refusal(in_file_words(str(error))) if plain else refusal


def settings_taken(config: Tables) -> dict[str, object]:
    """The settings of the algorithm that runs."""
    problem, method, setting = next(_solved(config))
    return settings_of(method or choose(problem, setting))


def _stopping_rules(config: Tables) -> Iterator[Refusal]:
    for key in {"tol", "max_rounds"} - {*settings_taken(config)}:
        if getattr(config.algorithm, key) is not None:
            text = f"{config.algorithm.name!r} takes no {key}: leave it out"
            yield Refusal(text, "algorithm", key)


def _solved(config: Tables) -> Iterator[tuple[Problem, Method | None, Setting]]:
    """What a run solves, by which method (None: the default), and in which setting."""
    n_clients, method = 1 if config.problem_.pooled else 2, config.method()
    secure = bool(config.engine.get("secure_sum"))
    yield config.stated(), method, Setting(n_clients, True, config.engine.clocked, secure)
    if config.path is not None:
        yield config.path_problem(), method or Bundle(), Setting(n_clients)


def _refused(config: Tables, error: RefusedError) -> Refusal:
    """Why an algorithm is refused, with keys and names of the file."""
    reason, slot = error.reason, error.reason.slot
    names = {load("algorithm", name).__name__: name for name in NAMED["algorithm"]}
    name = names[reason.method]
    methods = [short_name("algorithm", cls) for cls in error.advice.methods[:MOST]]
    use = f"use {one_of(methods, ' or ')}" if methods else ""
    ways = _ways(config, slot) if not methods or COST.get(slot, 1.0) < 9.0 else []
    instead = [_in_words(ways), use] if slot == "clients" else [use, _in_words(ways)]
    place, value = _key(config, slot)
    named = config.algorithm.name == name
    why = f"{'algorithm.name = ' * named}{name!r} {in_file_words(reason.need.words)}, got {value}"
    return Refusal(
        _advised(why, *instead),
        *(("algorithm", "name") if (named and not config.privacy) or slot == "privacy" else place),
    )


def _advised(why: str, *instead: str) -> str:
    """A reason, and what is taken instead, where anything is."""
    advice = ", or ".join(filter(None, instead))
    return f"{why}: {advice}" if advice else why


def _ways(config: Tables, *slots: str) -> list[Way]:
    """The changes of these slots with which a configuration is taken, or else one of several
    changes together.
    """
    known = _edits(config)
    if single := [way for slot in slots for way in known[slot] if _is_taken(config, way)]:
        return single
    pairs = [(*first, *second) for first, second in combinations(chain(*known.values()), 2)]
    several = chain(pairs, ((*pair, Edit("algorithm.name", "auto")) for pair in pairs))
    return [*islice(filter(partial(_is_taken, config), several), 1)]


def _edits(config: Tables) -> dict[str, list[Way]]:
    """Other values of the keys of each slot."""
    targets = "sign" if config.labels else config.loss().targets
    pooled = [Edit("problem.pooled", True)]
    one_place: list[Way] = [[Edit("clients", ClientsSection())], [Edit("problem.pooled", False)]]
    ranks: list[Way] = [
        [Edit("risk.on", None)],
        [Edit("risk.name", "superquantile"), Edit("risk.tail", 0.1)],
        [Edit("clients", ClientsSection())],
        [Edit("privacy", None)],
    ]
    if config.weighs_clients:
        pooled.append(Edit("clients", ClientsSection()))
    if config.risk.together:
        pooled.append(Edit("risk.on", None))
    return {
        "predictor": [[Edit("problem.model", name)] for name in NAMED["model"]],
        "loss": [[Edit("problem.loss", n)] for n in names_with("loss", "targets", targets)],
        "over_samples": [
            [Edit("robust.label_cost", math.inf)],
            [Edit("robust.radius", 0)],
            [Edit("risk.name", "mean")],
            [Edit("problem.label", None)],
        ],
        "over_rows": ranks if config.risk.together else [],
        "over_clients": [[Edit("clients.risk", "mean")]],
        "regulariser": [[Edit("problem.regulariser", name)] for name in NAMED["regulariser"]],
        "constraint": [[Edit("constraint", [])], [Edit("problem.label", None)]],
        "clients": [] if config.problem_.pooled else [pooled],
        "rows": [],
        "engine": [[Edit("engine.kind", "in_process")]],
        "sums": [[Edit("engine.secure_sum", None)]],
        "privacy": [[Edit("privacy", None)]],
        "path": [[Edit("path", None)]] if config.path else [],
        "algorithm": [[Edit("algorithm.name", "auto")]],
        "one_place": one_place if config.problem_.pooled else [],
    }


def _is_taken(config: Tables, way: Way) -> bool:
    """Whether a configuration is taken with other values of some keys."""
    other = config.edited(dict(way))
    if any(chain(table_rules(other), _conflicts(other))):
        return False
    try:
        return all(starmap(_some_method_takes, _solved(other)))
    except ValueError:
        return False


def _some_method_takes(problem: Problem, method: Method | None, setting: Setting) -> bool:
    """Whether the method takes the problem; without one, whether any method does."""
    classes = [type(method)] if method else known_methods()
    return any(takes(cls, problem, setting) for cls in classes)


def _in_words(ways: list[Way]) -> str:
    """Changes in words: each on its own, values of one key beside each other, or those of one way
    together.
    """
    texts = []
    for keys, same in groupby(ways, key=lambda way: [edit.key for edit in way]):
        every = [*same]
        apart = [every] if len(keys) == 1 else [[way] for way in every]
        texts += [" and ".join(_together(alike)) for alike in apart]
    return ", or ".join(dict.fromkeys(texts))


def _together(ways: list[Way]) -> Iterator[str]:
    """What to set the keys to, which all ways have."""
    for edits in zip(*ways, strict=True):
        yield _setting(edits[0].key, [edit.value for edit in edits])


def _setting(key: str, values: list[object]) -> str:
    """What to set a key to, in words."""
    if "." not in key:
        return "leave out [[constraint]]" if key == "constraint" else f"leave out [{key}]"
    if values[0] is None:
        return f"leave out {key}"
    truth = isinstance(values[0], bool)
    return f"set {key} = {str(values[0]).lower() if truth else one_of(values, ' or ')}"


def _key(config: Tables, slot: str) -> tuple[tuple[str | int, ...], str]:
    """Where a configuration fills a slot of the problem, and with what."""
    if slot == "over_samples" and config.robust.is_robust:
        return ("robust", "radius"), "robust.radius > 0"
    if slot == "constraint" and config.constraint:
        return ("constraint", 0), "[[constraint]]"
    if slot == "privacy":
        return ("privacy",), "[privacy]"
    if slot == "over_rows":
        with_ = "with" if config.risk.together else "without"
        return ("risk", "name"), f"risk.name = {config.risk.name!r} {with_} risk.on = 'together'"
    key = KEYS[slot]
    table, field = key.split(".")
    value = getattr(config, "problem_" if table == "problem" else table).get(field)
    return (table, field), f"{key} = {'false' if value is False else repr(value)}"


KEYS = {  # of a slot
    "loss": "problem.loss",
    "predictor": "problem.model",
    "regulariser": "problem.regulariser",
    "over_samples": "risk.name",
    "over_clients": "clients.risk",
    "clients": "problem.pooled",
    "engine": "engine.kind",
    "sums": "engine.secure_sum",
    "constraint": "problem.label",
}
KINDS = ("loss", "model", "regulariser", "risk over samples", "risk over clients")


def in_file_words(text: str) -> str:
    """A text about the library with the keys and names of a configuration."""
    text = text.replace("Mean(label=...)", "problem.label").replace("risk over_", "over_")
    text = text.replace("over_rows = ", "risk.on = 'together' with risk.name = ")
    text = text.replace(", Maximum or a Spectral of few steps", " or Maximum")  # weights are no key
    return _python().sub(lambda match: _short_names()[match[1]], text)


@lru_cache
def _short_names() -> dict[str, str]:
    """Slots and classes as a configuration calls them."""
    names = {load(kind, name).__name__: repr(name) for kind in KINDS for name in NAMED[kind]}
    keys = {slot: KEYS[slot] for slot in ("over_samples", "over_clients")}
    return (
        keys
        | names
        | {"a WassersteinBall": "robust.radius > 0", "WassersteinBall": "robust.radius > 0"}
    )


@lru_cache
def _python() -> re.Pattern[str]:
    names = sorted(_short_names(), key=len, reverse=True)
    arguments = r"(?:\((?:[^()]|\([^()]*\))*\))?"
    return re.compile(rf"\b({'|'.join(names)})\b{arguments}")
