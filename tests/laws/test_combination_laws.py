"""Laws of combinations: ``configure``, the default choice and every advice agree on what is taken.

Every pair of slots of a problem takes all pairs of its values, the other slots stay simple; every
problem meets every algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quorate as qr
from quorate.algorithms.alternatives import RefusedError, known_methods, takes, taking
from quorate.algorithms.method import Method
from quorate.algorithms.requirements import Setting
from quorate.config.config import ConfigError, parse_config
from quorate.engines.inprocess import InProcess
from quorate.names import NAMED, load
from quorate.problem.risks import Worst
from quorate.solution.combinations import page
from quorate.solution.configure import configure, setting_of
from quorate.solution.default import choose, default_algorithm

DOCS = Path(__file__).resolve().parents[2] / "docs"
FEW = {"SGD": {"trial_epochs": 1}, "LSVRG": {"trial_epochs": 1}}  # settings of short runs


@dataclass(frozen=True)
class Largest:
    """The largest loss, as a custom risk over clients without a projection."""

    def at(self, sizes: Any, names: Any = None) -> Largest:
        return self

    def value(self, losses: Any) -> float:
        return float(np.max(losses))

    def weights(self, losses: Any) -> Any:
        return np.eye(len(losses))[int(np.argmax(losses))]

    def worst(self, losses: Any) -> Worst:
        return Worst(self.value(losses), self.weights(losses), self.value(losses))

    def contains(self, weights: Any, tol: float = 1e-9) -> bool:
        return True


GROUPS = qr.GroupL2(0.01, (0, 0, 1))
HALF = qr.NeymanPearson(1.0, 0.6)
SLOTS: dict[str, list[Any]] = {
    "loss": [
        *(qr.Logistic(), qr.Hinge(), qr.SmoothHinge(), qr.Exponential(), qr.Squared()),
        *(qr.Huber(), qr.Absolute(), qr.Quantile(0.4), qr.Multinomial()),
    ],
    "predictor": [qr.Linear(), qr.Linear(True), qr.MLP((2,))],
    "over_samples": [
        *(qr.Mean(), qr.WassersteinBall(0.05, 0.5), qr.Superquantile(0.3), qr.Extremile(2.0)),
        *(qr.Median(), qr.HumanAligned(0.4, 0.3), qr.ProspectTheory(0.4, 1.0, -1.0)),
        qr.Mean(label=1.0),
    ],
    "over_clients": [
        *(qr.Mean(), qr.Sum(), qr.Simplex(), qr.LpBall(0.2, 2), qr.LpBall(0.2, 1.5)),
        *(qr.Superquantile(0.5), qr.KLBall(0.1), qr.TotalVariationBall(0.2), Largest()),
    ],
    "regulariser": [qr.L2(0.01), qr.L1(0.01), qr.Bounds(-1.0, 1.0), GROUPS, qr.MCP(0.01)],
    "constraint": [None, qr.Coupled(HALF), qr.LinearInequality(np.ones((1, 3)), 0.2)],
    "local_constraint": [None, HALF],
    "privacy": [None, qr.Budget(3.0, 1e-3)],
    "n_clients": [3, 1],
    "engine": [InProcess(), qr.VirtualClock(qr.Constant(1.0))],
}


def data(n_clients: int, targets: str) -> qr.Federation:
    """A few rows per client whose targets suit a loss."""
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((12, 3)) for _ in range(n_clients)]
    kinds = {"sign": np.arange(12) % 2 * 2.0 - 1, "class": np.arange(12) % 3}
    y = [kinds.get(targets, x.sum(1) + 0.1) for x in X]
    return qr.Federation([f"site {i}" for i in range(n_clients)], X, y)


@dataclass(frozen=True)
class Case:
    """A concrete problem with its data and engine."""

    problem: qr.Problem
    fed: qr.Federation
    engine: Any
    setting: Setting = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "setting", setting_of(self.fed, self.engine))


def case(values: dict[str, Any]) -> Case | None:
    """The combination, or None where no such problem can be stated."""
    values = {slot: choices[0] for slot, choices in SLOTS.items()} | values
    n_clients, engine = values.pop("n_clients"), values.pop("engine")
    several = values["loss"].targets == "class" and isinstance(values["predictor"], qr.Linear)
    if several:
        values["predictor"] = qr.Softmax()
    if several and isinstance(values["regulariser"], qr.GroupL2):
        values["regulariser"] = qr.GroupL2(0.01, (0,) * 9)
    plain = several or values["predictor"] == qr.Linear()
    if values["regulariser"] is GROUPS and not plain:
        return None  # its groups are of three coefficients
    constrained = values["constraint"] is not None or values["local_constraint"] is not None
    if constrained and values["loss"].targets != "sign":
        return None  # these constraints are about two classes
    try:
        problem = qr.Problem(**values)
        concrete, fed = problem.at(data(n_clients, problem.loss.targets))
    except (ValueError, TypeError):  # in words: anything else fails
        return None
    return Case(concrete, fed, engine)


def cases() -> list[Case]:
    """All pairs of values of all pairs of slots, each problem once."""
    found: dict[str, Case] = {}
    for first, second in combinations(SLOTS, 2):
        for a, b in product(SLOTS[first], SLOTS[second]):
            made = case({first: a, second: b})
            if made is not None:
                found.setdefault(repr((made.problem, made.setting)), made)
    return list(found.values())


CASES = cases()
METHODS = known_methods()


def refused(method: Method, it: Case) -> RefusedError | None:
    """Why ``configure`` refuses; anything but a ``RefusedError`` fails the test."""
    try:
        configure(method, it.problem, it.fed, max_rounds=2, engine=it.engine)
    except RefusedError as error:
        return error
    return None


def test_there_are_combinations_of_all_kinds():
    assert len(CASES) > 300
    taken = [{cls for cls in METHODS if takes(cls, it.problem, it.setting)} for it in CASES]
    assert set.union(*taken) == {*METHODS}
    assert sum(not each for each in taken) > 20


def test_every_algorithm_takes_or_refuses_in_words():
    for it in CASES:
        for cls in METHODS:
            error = refused(cls(), it)
            assert (error is None) == takes(cls, it.problem, it.setting), (cls, it)


def test_the_default_refuses_only_what_no_algorithm_takes():
    for it in CASES:
        known = taking(it.problem, it.setting)
        if known:
            method = default_algorithm(it.problem, it.fed, it.engine)
            assert refused(method, it) is None, (method, it)
        else:
            with pytest.raises(RefusedError) as refusal:
                default_algorithm(it.problem, it.fed, it.engine)
            assert refusal.value.advice.changes, it


@pytest.mark.parametrize("start", range(4))
def test_what_an_advice_names_is_accepted(start):
    for k, it in enumerate(CASES[start::4]):
        for cls in (METHODS[k % len(METHODS)], METHODS[(7 * k + 3) % len(METHODS)]):
            error = refused(cls(), it)
            if error is None:
                continue
            advice = error.advice
            assert advice.methods or advice.changes, (error, it)
            for other in advice.methods:
                assert refused(other(), it) is None, (error, it)
            if advice.changes:
                last, by = advice.changes[-1], advice.by or cls
                assert takes(by, last.problem, last.setting), (error, it)
            if advice.pooled is not None:
                assert takes(advice.pooled, it.problem, replace(it.setting, n_clients=1)), error
            words = str(error)
            assert error.reason.method in words
            assert ": use " in words


def test_what_is_accepted_runs():
    pairs = [(cls, it) for it in CASES for cls in METHODS if takes(cls, it.problem, it.setting)]
    for cls, it in pairs[:: len(pairs) // 60]:
        method = configure(
            cls(**FEW.get(cls.__name__, {})), it.problem, it.fed, max_rounds=2, engine=it.engine
        )
        if method.requirements.private:
            method = method.planned(it.problem, it.fed)
        run = it.engine.run(method, it.fed, seed=0)
        assert np.isfinite(method.answer(run.state, run.memories).w).all(), (cls, it)


def test_stated_problems_are_judged_as_concrete_ones():
    """A configuration asks before there are data."""
    for local in (None, HALF):
        stated = qr.Problem(qr.Logistic(), regulariser=qr.L2(0.01), local_constraint=local)
        concrete, fed = stated.at(data(3, "sign"))
        setting = setting_of(fed)
        assert taking(stated, setting) == taking(concrete, setting)
        assert type(choose(stated, setting)) is type(choose(concrete, setting))


# -- configuration files

TABLES: dict[str, list[str]] = {
    "problem.loss": ["'logistic'", "'hinge'", "'quantile'"],
    "problem.regulariser": ["'l2'", "'mcp'"],
    "problem.model": ["'linear'", "'mlp'"],
    "problem.pooled": ["false", "true"],
    "risk.name": ["'mean'", "'maximum'", "'median'"],
    "clients.risk": ["'mean'", "'simplex'", "'kl_ball'\nclients.radius = 0.1"],
    "robust.radius": ["0.0", "0.1"],
    "engine.kind": ["'in_process'", "'virtual_clock'"],
}


# methods made for constraints or privacy are for files with such tables, which have rules of theirs
PLAIN = [
    name
    for name in NAMED["algorithm"]
    if not load("algorithm", name).requirements.constrained
    and not load("algorithm", name).requirements.private
]


def files() -> list[tuple[str, dict[str, str]]]:
    """A file for every algorithm and every pair of values of all pairs of keys."""
    texts: dict[str, dict[str, str]] = {}
    for first, second in combinations(TABLES, 2):
        for a, b in product(TABLES[first], TABLES[second]):
            values = {key: choices[0] for key, choices in TABLES.items()} | {first: a, second: b}
            for name in PLAIN:
                lines = [f"{key} = {value}" for key, value in values.items()]
                text = "\n".join([*lines, f"algorithm.name = '{name}'", "data.name = 'heart'"])
                texts[text] = values
    return list(texts.items())


def test_a_configuration_names_an_algorithm_exactly_where_solve_takes_it():
    """Rules about tables alone refuse first; they are not about algorithms."""
    counts = {True: 0, False: 0}
    for text, values in files():
        message = refusal_of(text)
        if message is not None and "algorithm.name = " not in message:
            continue
        if message is not None:
            assert ": use '" in message or ": set " in message, message
        problem = parse_config(text.replace("algorithm.name", "# ") if message else text).solvable()
        assert problem is not None
        clocked = values["engine.kind"] == "'virtual_clock'"
        setting = Setting(1 if values["problem.pooled"] == "true" else 3, True, clocked)
        cls = load("algorithm", text.split("algorithm.name = '")[1].split("'")[0])
        assert takes(cls, problem, setting) == (message is None), text
        counts[message is None] += 1
    assert min(counts.values()) > 200, counts


def refusal_of(text: str) -> str | None:
    """Why a configuration is refused, or None."""
    try:
        parse_config(text)
    except ConfigError as error:
        return str(error)
    return None


def test_the_page_of_combinations_is_what_the_classes_say():
    written = (DOCS / "combinations.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m quorate.solution.combinations > docs/combinations.md"
