"""Laws of combinations: ``configure``, the default choice and every advice agree on what is taken.

Every pair of slots of a problem takes all pairs of its values, the other slots stay simple; every
problem meets every other algorithm in turn, so that every pair of values meets some and every value
meets all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from problems import PLAIN, SOFTMAX

import bonafed as bf
from bonafed.algorithms.alternatives import (
    RefusedError,
    check_requirements,
    known_methods,
    takes,
    taking,
)
from bonafed.algorithms.method import Method
from bonafed.algorithms.requirements import Setting
from bonafed.config.config import ConfigError, parse_config
from bonafed.config.rules import broken_rule
from bonafed.config.sections import Tables
from bonafed.engines.inprocess import InProcess
from bonafed.names import NAMED, load
from bonafed.problem.risks.risk import Worst
from bonafed.solution.plan import choose, configure, default_algorithm, setting_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
sys.path.append(str(DOCS.parent / "benchmarks"))

from combinations import REASONS, page  # noqa: E402

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


@dataclass(frozen=True)
class Length:
    """A multiple of the Euclidean length, as a custom regulariser without a conjugate."""

    strength: float
    weak_convexity: ClassVar[float] = 0.0
    strong_convexity: ClassVar[float] = 0.0

    def value(self, w: Any) -> float:
        return self.strength * float(np.linalg.norm(w))

    def prox(self, v: Any, step: Any) -> Any:
        return max(0.0, 1.0 - np.max(step) * self.strength / max(np.linalg.norm(v), 1e-300)) * v

    def domain_radius(self, level: float, size: int) -> float:
        return max(level, 0.0) / self.strength


GROUPS = bf.GroupL2(0.01, (0, 0, 1))
HALF = bf.NeymanPearson(1.0, 0.6)
SLOTS: dict[str, list[Any]] = {
    "loss": [
        *(bf.Logistic(), bf.Hinge(), bf.SmoothHinge(), bf.Exponential(), bf.Squared()),
        *(bf.Huber(), bf.Absolute(), bf.Quantile(0.4), bf.Poisson(), bf.Multinomial()),
    ],
    "predictor": [PLAIN, bf.Linear(True), bf.MLP((2,))],
    "over_samples": [
        *(bf.Mean(), bf.WassersteinBall(0.05, 0.5), bf.Superquantile(0.3), bf.Extremile(2.0)),
        *(bf.Median(), bf.HumanAligned(0.4, 0.3), bf.ProspectTheory(0.4, 1.0, -1.0)),
        bf.Mean(label=1.0),
    ],
    "over_clients": [
        *(bf.Mean(), bf.Sum(), bf.Simplex(), bf.LpBall(0.2, 2), bf.LpBall(0.2, 1.5)),
        *(bf.Superquantile(0.5), bf.KLBall(0.1), bf.TotalVariationBall(0.2), Largest()),
    ],
    "regulariser": [
        *(bf.L2(0.01), bf.L1(0.01), bf.Bounds(-1.0, 1.0), bf.Ball(1.0)),
        *(GROUPS, bf.MCP(0.01), Length(0.01)),
    ],
    "constraint": [None, bf.Coupled(HALF), bf.LinearInequality(np.ones((1, 3)), 0.2)],
    "local_constraint": [None, HALF],
    "privacy": [None, bf.Budget(3.0, 1e-3)],
    "over_rows": [None, bf.Superquantile(0.3), bf.Extremile(2.0)],
    "n_clients": [3, 1],
    "engine": [InProcess(), bf.VirtualClock(bf.Constant(1.0))],
}


def data(n_clients: int, targets: str) -> bf.Federation:
    """A few rows per client whose targets suit a loss."""
    rng = np.random.default_rng(3)
    X = [rng.standard_normal((12, 3)) for _ in range(n_clients)]
    kinds = {"sign": np.arange(12) % 2 * 2.0 - 1, "class": np.arange(12) % 3}
    y = [kinds.get(targets, np.abs(x.sum(1) + 0.1)) for x in X]
    return bf.Federation([f"site {i}" for i in range(n_clients)], X, y)


@dataclass(frozen=True)
class Case:
    """A concrete problem with its data and engine."""

    problem: bf.Problem
    fed: bf.Federation
    engine: Any
    setting: Setting = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "setting", setting_of(self.fed, self.engine))


def case(values: dict[str, Any]) -> Case | None:
    """The combination, or None where no such problem can be stated."""
    values = {slot: choices[0] for slot, choices in SLOTS.items()} | values
    n_clients, engine = values.pop("n_clients"), values.pop("engine")
    several = values["loss"].targets == "class" and isinstance(values["predictor"], bf.Linear)
    if several:
        values["predictor"] = SOFTMAX
    if several and isinstance(values["regulariser"], bf.GroupL2):
        values["regulariser"] = bf.GroupL2(0.01, (0,) * 9)
    plain = several or values["predictor"] == PLAIN
    if values["regulariser"] is GROUPS and not plain:
        return None  # its groups are of three coefficients
    constrained = values["constraint"] is not None or values["local_constraint"] is not None
    if constrained and values["loss"].targets != "sign":
        return None  # these constraints are about two classes
    try:
        problem = bf.Problem(**values)
        concrete, fed = problem.at(data(n_clients, problem.loss.targets))
    except (ValueError, TypeError):  # in words: anything else fails
        return None
    return Case(concrete, fed, engine)


@cache
def cases() -> list[Case]:
    """All pairs of values of all pairs of slots, each problem once."""
    found: dict[str, Case] = {}
    for first, second in combinations(SLOTS, 2):
        for a, b in product(SLOTS[first], SLOTS[second]):
            made = case({first: a, second: b})
            if made is not None:
                found.setdefault(repr((made.problem, made.setting)), made)
    return list(found.values())


METHODS = known_methods()


def refused(method: Method, it: Case) -> RefusedError | None:
    """Why ``configure`` refuses; anything but a ``RefusedError`` fails the test."""
    try:
        configure(method, it.problem, it.fed, max_rounds=2, engine=it.engine)
    except RefusedError as error:
        return error
    return None


def test_there_are_combinations_of_all_kinds():
    assert len(cases()) > 300
    taken = [{cls for cls in METHODS if takes(cls, it.problem, it.setting)} for it in cases()]
    assert set.union(*taken) == {*METHODS}
    assert sum(not each for each in taken) > 20


def test_every_algorithm_takes_or_refuses_in_words():
    for k, it in enumerate(cases()):
        for cls in METHODS[k % 2 :: 2]:
            error = refused(cls(), it)
            assert (error is None) == takes(cls, it.problem, it.setting), (cls, it)


def test_the_default_refuses_only_what_no_algorithm_takes():
    for it in cases():
        known = taking(it.problem, it.setting)
        if known:
            method = default_algorithm(it.problem, it.fed, it.engine)
            assert refused(method, it) is None, (method, it)
            assert ".papers." not in type(method).__module__, (method, it)
        else:
            with pytest.raises(RefusedError) as refusal:
                default_algorithm(it.problem, it.fed, it.engine)
            assert refusal.value.advice.changes, it


@pytest.mark.parametrize("start", range(4))
def test_what_an_advice_names_is_accepted(start):
    for k, it in enumerate(cases()[start::4]):
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


def test_bundle_takes_all_that_the_methods_take_that_name_it_at_their_cap():
    naming = (bf.DoubleLoop(), bf.EpigraphADMM(), bf.ADLPMM())
    taken = [it for it in cases() for method in naming if refused(method, it) is None]
    assert len(taken) > 30
    assert [it for it in taken if refused(bf.Bundle(), it) is not None] == []


def test_a_set_without_a_conic_form_is_sent_to_bundle_only_where_that_takes_it():
    fed = data(3, "sign")
    own = bf.OwnSet(lambda losses: np.full(len(losses), 1 / len(losses)))
    for h, taken in ((bf.L2(0.1), True), (GROUPS, True), (Length(0.1), False)):
        problem = bf.Problem(bf.Hinge(), PLAIN, over_clients=own, regulariser=h)
        with pytest.raises(TypeError, match="conic form") as refusal:
            bf.CentralConic().solve(problem, fed)
        assert ("use Bundle()" in str(refusal.value)) is taken


@cache
def accepted() -> list[tuple[type[Method], Case]]:
    """What is taken."""
    return [(cls, it) for it in cases() for cls in METHODS if takes(cls, it.problem, it.setting)]


def test_what_is_accepted_runs():
    pairs = accepted()
    for cls, it in pairs[:: len(pairs) // 60]:
        method = configure(
            cls(**FEW.get(cls.__name__, {})), it.problem, it.fed, max_rounds=2, engine=it.engine
        )
        if method.requirements.private:
            method = method.planned(it.problem, it.fed)
        run = it.engine.run(method, it.fed, seed=0)
        stalled = run.outcome.stop is bf.Stop.STALLED  # where gradients overflow
        finite = np.isfinite(method.answer(run.state, run.concluded).w).all()
        assert finite or stalled, (cls, it)


DIVERGED = "the model is not finite after"  # how fixed steps end where gradients overflow


def test_fixed_steps_that_overflow_end_in_words():
    """Local steps on a loss whose gradients overflow: no warning, and no error of a client."""
    pairs = [(cls, it) for cls, it in accepted() if cls is bf.FedAvg]
    cls, it = next((cls, it) for cls, it in pairs if isinstance(it.problem.loss, bf.Exponential))
    far = replace(it, fed=it.fed.with_features([1e3 * X for X in it.fed.X]))
    with pytest.raises(ArithmeticError, match=rf"{DIVERGED} .* rounds\. Give a smaller step_size"):
        bf.solve(far.problem, far.fed, algorithm=cls(5, step_size=9.0), max_rounds=4)


def few_rounds(cls: type[Method], it: Case) -> bf.Solution:
    """A short run with its certificate."""
    return bf.solve(
        *(it.problem, it.fed),
        algorithm=cls(**FEW.get(cls.__name__, {})),
        engine=it.engine,
        max_rounds=2,
    )


def test_what_is_accepted_is_certified():
    """With and without custom parts; a bound only where these have what its proof needs."""
    pairs = accepted()
    for cls, it in pairs[7 :: len(pairs) // 15]:
        assert np.isfinite(few_rounds(cls, it).certificate.value), (cls, it)


@pytest.mark.parametrize(
    ("custom", "lacks"),
    [
        ({"regulariser": Length(0.01)}, "Length has no method `conjugate`"),
        ({"over_clients": Largest()}, "Largest has no method `project`"),
    ],
)
def test_custom_parts_without_a_dual_are_solved_without_a_bound(custom, lacks):
    it = case(custom)
    for cls in [cls for cls in METHODS if takes(cls, it.problem, it.setting)]:
        solution = few_rounds(cls, it)
        assert solution.certificate.bound is None, cls
        assert np.isfinite(solution.certificate.value), cls
        if not cls.requirements.constrained:
            assert f"No bound can be proved: {lacks}." in solution.outcome.text, cls


def test_stated_problems_are_judged_as_concrete_ones():
    """A configuration asks before there are data."""
    for local in (None, HALF):
        stated = bf.Problem(bf.Logistic(), PLAIN, regulariser=bf.L2(0.01), local_constraint=local)
        concrete, fed = stated.at(data(3, "sign"))
        setting = setting_of(fed)
        assert taking(stated, setting) == taking(concrete, setting)
        assert type(choose(stated, setting)) is type(choose(concrete, setting))


# -- configuration files

Values = dict[str, Any]
# what a file states -> tables of the file, and slots of the problem that it stands for
FILES: dict[str, list[tuple[dict[str, Any], Values]]] = {
    "loss": [
        ({"problem": {"loss": "logistic"}}, {"loss": bf.Logistic()}),
        ({"problem": {"loss": "hinge"}}, {"loss": bf.Hinge()}),
        ({"problem": {"loss": "squared"}}, {"loss": bf.Squared()}),
        ({"problem": {"loss": "quantile", "level": 0.4}}, {"loss": bf.Quantile(0.4)}),
        ({"problem": {"loss": "poisson"}}, {"loss": bf.Poisson()}),
        ({"problem": {"loss": "multinomial"}}, {"loss": bf.Multinomial()}),
    ],
    "model": [
        ({"problem": {"model": "linear"}}, {"predictor": bf.Linear(True)}),
        ({"problem": {"model": "softmax"}}, {"predictor": SOFTMAX}),
        ({"problem": {"model": "mlp", "hidden": [2]}}, {"predictor": bf.MLP((2,))}),
    ],
    "regulariser": [
        ({"problem": {"regulariser": "l2"}}, {"regulariser": bf.L2(1e-3)}),
        ({"problem": {"regulariser": "mcp"}}, {"regulariser": bf.MCP(1e-3)}),
    ],
    "risk": [
        ({}, {}),
        ({"risk": {"name": "maximum"}}, {"over_samples": bf.Maximum()}),
        ({"risk": {"name": "median"}}, {"over_samples": bf.Median()}),
        (
            {"risk": {"name": "superquantile", "tail": 0.5, "on": "together"}},
            {"over_rows": bf.Superquantile(0.5)},
        ),
        (
            {"risk": {"name": "extremile", "r": 2.0, "on": "together"}},
            {"over_rows": bf.Extremile(2.0)},
        ),
    ],
    "ball": [({}, {}), ({"robust": {"radius": 0.1}}, {"over_samples": bf.WassersteinBall(0.1)})],
    "label": [({}, {}), ({"problem": {"label": 1.0}}, {"over_samples": bf.Mean(label=1.0)})],
    "clients": [
        ({"clients": {"risk": "mean"}}, {"over_clients": bf.Mean()}),
        ({"clients": {"risk": "simplex"}}, {"over_clients": bf.Simplex()}),
        ({"clients": {"risk": "kl_ball", "radius": 0.1}}, {"over_clients": bf.KLBall(0.1)}),
    ],
    "pooled": [({}, {}), ({"problem": {"pooled": True}}, {"n_clients": 1})],
    "engine": [({}, {}), ({"engine": {"kind": "virtual_clock"}}, {"engine": bf.VirtualClock()})],
    "constraint": [
        ({}, {}),
        (
            {"constraint": [{"kind": "neyman_pearson", "label": 1.0, "level": 0.6}]},
            {"local_constraint": bf.NeymanPearson(1.0, 0.6)},
        ),
        (
            {"constraint": [{"kind": "linear_inequality", "C": [[1.0] * 4], "d": 0.2}]},
            {"constraint": bf.LinearInequality(np.ones((1, 4)), 0.2)},
        ),
    ],
    "privacy": [
        ({}, {}),
        ({"privacy": {"epsilon": 3.0, "delta": 1e-3}}, {"privacy": bf.Budget(3.0, 1e-3)}),
    ],
}
DATA = {"name": "heart", "scale": "none"}
# What only a file can state, or what the pipeline of a run cannot do: the reason, and the words of
# the refusal. Everywhere else a file is taken exactly where `solve` takes the problem.
ONLY_IN_FILES: dict[str, tuple[Any, str]] = {
    "three keys fill the slot of the risk over samples": (
        lambda keys, name: len(keys & {"risk", "ball", "label"}) > 1,
        "each says how the rows of a client count",
    ),
    "[clients] is left out where all rows are in one place": (
        lambda keys, name: keys >= {"pooled", "clients"},
        "[clients] weighs several clients",
    ),
    "[risk] ranks rows where they are, or in one place": (
        lambda keys, name: keys >= {"together", "pooled"},
        "problem.pooled = true has them in one place",
    ),
    "clients declare how many rows they have, which pooled rows hide": (
        lambda keys, name: keys >= {"pooled", "privacy"},
        "declare how many they have",
    ),
    "who names a private method states what it may spend": (
        lambda keys, name: name in PRIVATE and "privacy" not in keys,
        "spends a privacy budget, which [privacy] states",
    ),
}
PRIVATE = [name for name in NAMED["algorithm"] if getattr(load("algorithm", name), "private", 0)]


@dataclass(frozen=True, eq=False)
class File:
    """A file, and the problem that it states; None where `solve` cannot be given such a problem."""

    keys: frozenset[str]  # that have another value than the first
    tables: Tables
    stated: Case | None

    def taken(self, name: str) -> bool:
        """Whether `solve` takes the problem with an algorithm."""
        if self.stated is None:
            return False
        problem, setting = self.stated.problem, self.stated.setting
        if name == "auto":
            return bool(taking(problem, setting))
        return takes(load("algorithm", name), problem, setting)


@cache
def refusal_of(file: File, name: str) -> str | None:
    """Why a file is refused with an algorithm, or None."""
    return broken_rule(edited(file.tables, name))


@cache
def files() -> list[File]:
    """A file for every pair of values of all pairs of keys."""
    known: dict[str, File] = {}
    for first, second in combinations(FILES, 2):
        for a, b in product(range(len(FILES[first])), range(len(FILES[second]))):
            chosen = {first: a, second: b}
            raw: dict[str, Any] = {"data": DATA}
            slots: Values = {"predictor": bf.Linear(True), "n_clients": 3, "engine": InProcess()}
            for key, choices in FILES.items():
                tables, values = choices[chosen.get(key, 0)]
                slots |= values
                for table, more in tables.items():
                    raw[table] = raw.get(table, {}) | more if isinstance(more, dict) else more
            together = ["together"] if "on" in raw.get("risk", {}) else []
            keys = frozenset([*(key for key, k in chosen.items() if k), *together])
            known.setdefault(repr(raw), File(keys, Tables.model_validate(raw), of_slots(slots)))
    return list(known.values())


def files_of(name: str) -> list[File]:
    """All of them for the default method and those which take few, and every other one for each of
    the others.
    """
    if name in ("auto", "kink_interior_point", *PRIVATE):
        return files()
    return files()[list(NAMED["algorithm"]).index(name) % 2 :: 2]


def of_slots(values: Values) -> Case | None:
    """The problem that a file stands for, or None where `solve` refuses to state it."""
    values = dict(values)
    n_clients, engine = values.pop("n_clients"), values.pop("engine")
    try:
        problem = bf.Problem(**values)
        concrete, fed = problem.at(data(n_clients, problem.loss.targets))
    except (ValueError, TypeError):
        return None
    return Case(concrete, fed, engine)


def edited(tables: Tables, name: str) -> Tables:
    """The same tables with another method."""
    method = tables.algorithm.model_copy(update={"name": name})
    return tables.model_copy(update={"algorithm": method})


@pytest.mark.parametrize("name", ["auto", *NAMED["algorithm"]])
def test_a_file_is_taken_exactly_where_solve_takes_its_problem(name):
    counts = {True: 0, False: 0}
    for file in files_of(name):
        refusal = refusal_of(file, name)
        only = [words for rule, words in ONLY_IN_FILES.values() if rule(file.keys, name)]
        if only:
            assert refusal is not None, file
            assert any(words in refusal for words in only), (file, refusal)
            continue
        assert file.taken(name) == (refusal is None), (file, refusal)
        counts[refusal is None] += 1
    assert min(counts.values()) > 1, counts


@pytest.mark.parametrize("start", range(4))
def test_methods_that_a_refusal_of_a_file_names_are_accepted(start):
    """Every refusal of the default method, and one in three of those above of the others."""
    asked = [(file, "auto") for file in files()]
    asked += [(file, name) for name in NAMED["algorithm"] for file in files_of(name)][::3]
    named = 0
    for file, name in asked[start::4]:
        refusal = refusal_of(file, name)
        for other in refusal.methods if refusal else ():
            assert repr(other) in refusal
            assert refusal_of(file, other) is None, (refusal, other)
            named += 1
    assert named > 20


LIMIT: Values = {
    "problem": {"loss": "logistic", "label": "benign"},
    "clients": {"risk": "mean"},
    "constraint": [{"kind": "neyman_pearson", "label": "malignant", "level": 0.1}],
}


@pytest.mark.parametrize(
    "tables",
    [
        LIMIT | {"algorithm": {"name": "ad_lpmm"}},
        LIMIT | {"algorithm": {"name": "private_admm"}},
        {"algorithm": {"name": "bundle"}, "risk": {"name": "median"}},
        *(
            {"problem": {"loss": "logistic"}, "engine": {"secure_sum": True}} | tables
            for tables in (
                {"problem": {"loss": "hinge"}},
                {"clients": {"risk": "simplex"}},
                {"robust": {"radius": 0.1, "label_cost": 1.0}},
                {"algorithm": {"name": "ad_lpmm"}},
                {"algorithm": {"name": "fed_avg"}},
                {"risk": {"name": "superquantile", "tail": 0.3}},
            )
        ),
    ],
)
def test_a_refusal_beside_other_tables_names_methods_that_are_accepted_or_what_to_change(tables):
    stated = Tables.model_validate({"data": DATA} | tables)
    refusal = broken_rule(stated)
    assert refusal is not None
    assert refusal.methods or ": " in refusal
    for name in refusal.methods:
        assert broken_rule(edited(stated, name)) is None, (refusal, name)


def test_a_refusal_stands_on_the_line_of_its_key():
    with pytest.raises(ConfigError, match=r"line 3, clients\.risk: 'private_sgd' needs"):
        parse_config(
            "privacy = { epsilon = 1.0, delta = 1e-5 }\n"
            "problem.loss = 'logistic'\nclients.risk = 'simplex'\n"
            "data = { name = 'heart', scale = 'none' }\n"
        )


def test_the_page_of_combinations_is_what_the_classes_say():
    written = (DOCS / "combinations.md").read_text(encoding="utf-8")
    assert written == page(), "run: python benchmarks/combinations.py > docs/combinations.md"


def _limited(loss: Any, *limits: Any, **slots: Any) -> None:
    problem = bf.Problem(loss, local_constraint=limits, **slots)
    fed = data(3, loss.targets)
    columns = {"sex": [np.arange(len(y)) % 2 for y in fed.y]}
    bf.solve(problem, bf.Federation(fed.clients, fed.X, fed.y, columns=columns))


BALL = {"over_samples": bf.WassersteinBall(0.1)}
# a way to state each, by words of the title
LIMITED_EXTREMILE = bf.Problem(
    bf.Logistic(), over_rows=bf.Extremile(2.0), local_constraint=bf.BoundedGroupLoss("sex", 0.5)
)
REFUSED: dict[str, list[Callable[[], Any]]] = {
    "`WassersteinBall` with `Squared`": [
        lambda loss=loss: bf.Problem(loss, **BALL)
        for loss in (bf.Squared(), bf.Exponential(), bf.Poisson())
    ],
    "support with `Logistic`": [
        lambda loss=loss: bf.Problem(
            loss, over_samples=bf.WassersteinBall(0.1, support=bf.BoxSupport(-9.0, 9.0))
        )
        for loss in (bf.Logistic(), bf.SmoothHinge(), bf.Huber(), bf.Multinomial())
    ],
    "`Sign`": [
        lambda limit=limit: _limited(bf.Multinomial(), limit)
        for limit in (bf.Sign({"x0": 1}), bf.Monotone(["x0", "x1"]), bf.CostLimit({"x0": 1.0}, 1.0))
    ],
    "`DemographicParity`": [lambda: _limited(bf.Multinomial(), bf.DemographicParity("sex", 0.1))],
    "`NeymanPearson`": [
        lambda: _limited(bf.Squared(), bf.NeymanPearson(1.0, 0.5)),
        lambda: _limited(bf.Squared(), bf.EqualisedOdds("sex", 0.5)),
        lambda: _limited(bf.Multinomial(), bf.EqualisedOdds("sex", 0.5)),
        lambda: _limited(bf.Squared(), over_samples=bf.Mean(label=1.0)),
    ],
    "losses of rows": [
        lambda: bf.Problem(bf.Quadratic(), over_samples=bf.Superquantile(0.5)),
        lambda: bf.Problem(bf.Quadratic(), **BALL),
        lambda: bf.Problem(bf.Quadratic(), over_rows=bf.Superquantile(0.5)),
    ],
    "`over_rows` of many steps": [
        lambda: check_requirements(
            bf.Bundle(), bf.Problem(bf.Hinge(), over_rows=bf.Extremile(2.0)), Setting(3)
        ),
        lambda: check_requirements(
            bf.RankBundle(), bf.Problem(bf.Hinge(), over_rows=bf.Extremile(2.0)), Setting(3)
        ),
        *(
            partial(check_requirements, method, LIMITED_EXTREMILE, Setting(3))
            for method in (bf.Bundle(), bf.RankBundle())
        ),
    ],
    "`over_rows` beside": [
        lambda: bf.Problem(bf.Logistic(), over_rows=bf.Superquantile(0.5), **BALL),
        lambda: bf.Problem(
            bf.Logistic(), over_rows=bf.Superquantile(0.5), over_clients=bf.Simplex()
        ),
    ],
    "custom set": [lambda: check_requirements(bf.Bundle(), *_of_largest())],
}


def _of_largest() -> tuple[bf.Problem, Setting]:
    return bf.Problem(bf.Hinge(), over_clients=Largest()), Setting(3)


@pytest.mark.parametrize("title", REASONS)
def test_what_the_page_calls_refused_is_refused(title):
    (states,) = [ways for words, ways in REFUSED.items() if words in title]
    for state in states:
        with pytest.raises(ValueError, match=r"[.:;,] \w"):  # and in words
            state()
