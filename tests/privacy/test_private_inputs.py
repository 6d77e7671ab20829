"""Settings, problems and data that a private run refuses, and odd ones that it takes."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from private_cases import BUDGET, case, planned
from problems import PLAIN, SOFTMAX

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.federated.private_admm import Penalty, PrivateADMM
from bonafed.data.federation import Federation
from bonafed.data.schema import Recipe, Schema, declared_schema
from bonafed.estimators.private import PrivateClassifier
from bonafed.privacy.accounting import noise_for
from bonafed.privacy.budget import Budget, BudgetSpentError
from bonafed.problem.constraints.group_means import NeymanPearson
from bonafed.problem.losses import Hinge, Logistic, Multinomial, Squared
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2, MCP, Bounds
from bonafed.problem.risks.weight_sets import Mean, Simplex, Superquantile
from bonafed.solution.solve import solve


def refused(
    text: str, fed: Any = None, kind: type = ValueError, problem: Any = None, **options: Any
) -> None:
    it = case("logistic", "ordinary", 1)
    with pytest.raises(kind, match=text):
        solve(
            problem or it.problem,
            fed or it.fed,
            algorithm=PrivateADMM(**{"max_rounds": 3, **options}),
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clip": True}, "clip must be a number > 0, got True"),
        ({"clip": "1"}, "clip must be a number > 0, got '1'"),
        ({"clip": math.nan}, "clip must be a number > 0, got nan"),
        ({"clip": 0.0}, "clip must be a number > 0"),
        ({"clip": math.inf}, "clip must be a number > 0"),
        ({"bound": -1.0}, "bound must be a number > 0"),
        ({"rho": True}, "rho must be a number > 0"),
        ({"rho": math.nan}, "rho must be a number > 0"),
        ({"rho": 10**400}, "rho must be a number > 0, got 1000"),
        ({"clip": Fraction(10**400)}, "clip must be a number > 0"),
        ({"rho": lambda t: 10**400}, "rho must be a number > 0, got 1000.* in round 1"),
        (
            {"rho": lambda t: 10.0 ** (400 * t)},
            "rho must be a number > 0, and its function fails in round 1",
        ),
        (
            {"update": "prox", "eta": lambda t: 1 / (t - 2)},
            "eta must be a number > 0, got -1.0 in round 1",
        ),
        (
            {"update": "prox", "eta": lambda t: 1 / (2 - t)},
            "eta must be a number > 0, and its function fails in round 2",
        ),
        ({"rho": lambda t: 2.0 - t}, "rho must be a number > 0, got 0.0 in round 2"),
        ({"rho": lambda t: math.nan}, "rho must be a number > 0, got nan in round 1"),
        (
            {"update": "prox", "eta": lambda t: -1.0},
            "eta must be a number > 0, got -1.0 in round 1",
        ),
        ({"update": "prox", "eta": 3.0}, "eta must be a function of t"),
        ({"scaling": 0}, "scaling must be a number > 0"),
        ({"tol": math.nan}, "tol must be a number >= 0"),
        (
            {"max_rounds": 2.5},
            "max_rounds must be a whole number >= 1 and at most 1,000,000, got 2.5",
        ),
        (
            {"max_rounds": True},
            "max_rounds must be a whole number >= 1 and at most 1,000,000, got True",
        ),
        (
            {"max_rounds": "3"},
            "max_rounds must be a whole number >= 1 and at most 1,000,000, got '3'",
        ),
        (
            {"max_rounds": math.nan},
            "max_rounds must be a whole number >= 1 and at most 1,000,000, got nan",
        ),
        (
            {"max_rounds": math.inf},
            "max_rounds must be a whole number >= 1 and at most 1,000,000, got inf",
        ),
        (
            {"max_rounds": None},
            "max_rounds must be a whole number >= 1 and at most 1,000,000, got None",
        ),
        (
            {"max_rounds": 10**6 + 1},
            "max_rounds must be a whole number >= 1 and at most 1,000,000, got 1000001",
        ),
        ({"max_rounds": 0}, "max_rounds must be a whole number >= 1 and at most 1,000,000, got 0"),
        ({"mechanism": ["gaussian"]}, "mechanism must be 'gaussian' or 'laplace'"),
        ({"mechanism": "uniform"}, "mechanism must be 'gaussian' or 'laplace'"),
        ({"update": "newton"}, "update must be 'trust', 'prox' or 'exact'"),
        ({"radius": "1/t^3"}, "radius must be 'constant', '1/t', '1/t.2' or None"),
        ({"radius": 0.5}, "radius must be 'constant', '1/t', '1/t.2' or None"),
        ({"region": "l1"}, "region must be 'linf' or 'l2'"),
        ({"noise": "none"}, "noise must be 'secure', 'simulation' or None, got 'none'. It"),
        ({"average": "no"}, "average must be True or False, got 'no'"),
        ({"update": "exact"}, "has no bounded sensitivity"),
        (
            {"mechanism": "laplace"},
            "Laplace noise needs a declared l1 bound, and the features have none",
        ),
        ({"start": np.zeros(2)}, "start must be 3 finite numbers"),
        ({"start": np.array([0.0, math.nan, 0.0])}, "start must be 3 finite numbers"),
        ({"start": ["a"]}, "start must be numbers"),
        ({"start": ["a", "b", "c"]}, "start must be numbers"),
        ({"start": [True, True, False]}, "start must be numbers"),
        ({"start": 5}, "start must be numbers"),
    ],
)
def test_settings_that_are_refused(options, text):
    refused(text, **options)


@pytest.mark.parametrize("name", ["c1", "c2", "period", "epsilon", "scale"])
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", True])
def test_penalties_that_are_refused(name, value):
    if (name, value) in (("c2", 0), ("epsilon", math.inf)):
        assert Penalty(**{name: value})(1) == 2.0  # noise adds nothing
        return
    with pytest.raises(ValueError, match=f"{name} of a Penalty must be a number >"):
        Penalty(**{name: value})


def test_a_penalty_grows_as_stated_and_ends_at_its_largest():
    penalty = Penalty(c1=3.0, c2=4.0, period=7, epsilon=0.5)
    for t in (1, 6, 7, 13, 14, 70):
        assert penalty(t) == pytest.approx(3 * 1.2 ** (t // 7) + 8, rel=1e-12)
    assert Penalty(period=1e-9)(1) == Penalty(period=5e-324)(9) == Penalty(period=1)(10**6) == 1e9


@pytest.mark.parametrize("kind", [np.float32, np.float64, Fraction, int])
def test_a_budget_takes_numbers_of_any_type_and_keeps_them_as_one(kind):
    budget = Budget(kind(2), kind(1) / kind(2), book=None)
    assert (type(budget.epsilon), type(budget.delta)) == (float, float)
    assert budget == Budget(2.0, 0.5)


def test_budgets_that_are_no_promise_are_refused_in_words():
    for epsilon in (10001, 1e300):
        with pytest.raises(
            ValueError, match=r"epsilon must be at most 10000, got .*: that is not a guarantee"
        ):
            Budget(epsilon, 1e-6)
    assert Budget(1e4, 1e-6).epsilon == 1e4
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        Budget(10**400, 1e-6)


@pytest.mark.parametrize("book", [5, "", True, ["a"], b""])
def test_a_book_is_a_path(book):
    with pytest.raises(ValueError, match="book must be "):
        Budget(1.0, 1e-6, book=book)


def test_a_delta_above_one_in_the_rows_is_said():
    it = case("logistic", "ordinary", 1)
    said = "delta is above one in the number of rows"
    for delta, found in ((0.01, True), (1e-3, False)):
        budget = Budget(1.0, delta, sizes={"a": 500, "b": 5})
        assert (
            said in solve(replace(it.problem, privacy=budget), it.fed, max_rounds=1).ledger.text
        ) is found


def test_problems_that_are_refused():
    it = case("logistic", "ordinary", 1)
    for changes, text in (
        ({"loss": Hinge()}, "needs a smooth loss, got Hinge"),
        ({"over_samples": Superquantile(0.3)}, "other risks mix rows"),
        ({"over_samples": Mean(label=1)}, "takes no constraints, no Mean"),
        ({"over_clients": Simplex()}, "weights that follow the clients' losses"),
        ({"regulariser": MCP(0.1)}, "needs a convex regulariser"),
        ({"local_constraint": NeymanPearson(1, 0.5)}, "takes no constraints"),
    ):
        refused(text, problem=replace(it.problem, **changes))
    weighed = Federation(
        it.fed.clients,
        it.fed.X,
        it.fed.y,
        classes=[0, 1],
        sample_weight=[np.arange(1, 8), np.ones(4)],
    )
    refused("a weight is private, too", weighed)
    refused(
        "Squared is not Lipschitz, so a bound on the rows does not bound gradients",
        problem=replace(it.problem, loss=Squared()),
        bound=1.0,
    )
    with pytest.raises(ValueError, match="adds no noise and would break the guarantee"):
        solve(it.problem, it.fed, algorithm=Bundle())
    refused(
        "sizes has no entry for b",
        problem=replace(it.problem, privacy=Budget(1.0, 1e-6, sizes={"a": 5})),
    )


@pytest.mark.parametrize(
    "sizes", [0, 2.5, True, math.nan, "7", math.inf, {"a": 5, "b": -1}, 10**400, 2**60]
)
def test_sizes_that_are_refused(sizes):
    it = case("logistic", "ordinary", 1)
    with pytest.raises(ValueError, match="sizes must be whole numbers >= 1"):
        solve(replace(it.problem, privacy=Budget(1.0, 1e-6, sizes=sizes)), it.fed, max_rounds=1)


def test_a_budget_that_is_spent_is_refused_before_the_data_are_touched(tmp_path):
    it = case("logistic", "ordinary", 1, Budget(1.0, 1e-4, sizes=6, book=tmp_path / "book"))
    solve(it.problem, it.fed, max_rounds=3)
    less = replace(it.problem, privacy=replace(it.problem.privacy, epsilon=0.9))
    with pytest.raises(
        BudgetSpentError, match=r"budget of epsilon = 0.9 at delta = 0.0001 is spent"
    ):
        solve(less, it.fed, max_rounds=1)


def test_a_class_that_a_client_lacks_changes_neither_its_noise_nor_its_right_to_take_part():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3))
    problem = Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    found = []
    for last in (1, 2):
        y = np.array([0, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0, last])
        fed = Federation(("a", "b"), (X[:6], X[6:]), (y[:6], y[6:]), classes=[0, 1, 2])
        found.append(solve(problem, fed, max_rounds=3))
    assert found[0].ledger.table() == found[1].ledger.table()
    assert [row["noise"] for row in found[0].history] == [row["noise"] for row in found[1].history]
    assert np.isfinite(found[0].w).all()
    alone = Federation(("a", "b"), (X[:6], X[6:]), (np.zeros(6), np.ones(6)), classes=[0, 1])
    assert np.isfinite(
        solve(replace(problem, loss=Logistic(), predictor=PLAIN), alone, max_rounds=3).w
    ).all()


@pytest.mark.parametrize(
    "kind", ["uint8", "int8", "int16", "uint32", "int64", "float32", "bool", "U5"]
)
def test_labels_of_any_type_are_the_same_classes(kind):
    rng = np.random.default_rng(1)
    X, code = rng.standard_normal((10, 2)), rng.integers(0, 2, 10)
    code[:2] = 0, 1
    values = {"uint8": [7, 255], "int8": [-128, 127], "int16": [-3, 300], "uint32": [0, 2**32 - 1]}
    values |= {"int64": [-(2**60), 2**60], "float32": [1, 2], "bool": [0, 1], "U5": ["no", "yes"]}
    labels = np.asarray(np.asarray(values[kind])[code]).astype(kind)
    problem = Problem(Multinomial(), SOFTMAX, privacy=BUDGET)
    declared = Federation(("a",), (X,), (labels,), classes=np.unique(labels))
    plain = Federation(("a",), (X,), (code,), classes=[0, 1])
    run = PrivateADMM(max_rounds=3, noise="simulation")
    one, other = (solve(problem, fed, algorithm=run) for fed in (declared, plain))
    np.testing.assert_array_equal(one.w, other.w)


def test_labels_too_large_for_their_integers_are_refused():
    X = np.eye(3)
    for labels in (np.array([0, 1, 2**63 + 5], np.uint64), [0, 1, 2**70]):
        with pytest.raises(ValueError, match="client 'a': y"):
            Federation(("a",), (X,), (labels,))


def test_rows_that_single_precision_cannot_hold_are_refused():
    X = np.eye(3)
    X[1, 1] = 1e60
    with pytest.raises(ValueError, match="single precision"):
        Federation(("a",), (X,), (np.array([0, 1, 1]),)).single()
    X[1, 1] = math.nan
    with pytest.raises(ValueError, match="row 1"):
        Federation(("a",), (X,), (np.array([0, 1, 1]),))


def test_bounds_by_coefficient_leave_the_intercept_free():
    """W holds for coefficients alone, each with its own bounds, at the clients as at the server."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.where(X[:, 0] + 3 + rng.standard_normal(60) > 0, 1, 0)
    fed = Federation(("a", "b"), (X[:30], X[30:]), (y[:30], y[30:]), classes=[0, 1])
    box = Bounds(np.array([-0.1, 0.0]), np.array([0.2, math.inf]))
    problem = Problem(Logistic(), Linear(True), regulariser=box)
    s = solve(problem, fed, algorithm=PrivateADMM(max_rounds=3000, rho=0.2))
    at_optimum = solve(problem, fed)
    np.testing.assert_allclose(s.w, at_optimum.w, atol=1e-4)
    assert at_optimum.w[2] > 1
    assert (s.copies[:, 0] <= 0.2).all()
    method = PrivateADMM(max_rounds=5)
    private = solve(replace(problem, privacy=BUDGET), fed, algorithm=method)
    assert np.isfinite(private.w).all()
    assert ((private.copies[:, :2] >= [-0.1, 0.0]) & (private.copies[:, :1] <= 0.2)).all()


def test_strong_regularisers_change_nothing_at_the_clients():
    """h is the server's affair: it moves no sensitivity."""
    it = case("logistic", "ordinary", 2)
    plain, _ = planned(PrivateADMM(max_rounds=3), it.problem, it.fed)
    strong, _ = planned(PrivateADMM(max_rounds=3), replace(it.problem, regulariser=L2(1e6)), it.fed)
    np.testing.assert_array_equal(plain.plan.sensitivity, strong.plan.sensitivity)


def test_a_client_of_weight_zero_gets_no_noise_and_does_no_harm():
    it = case("logistic", "ordinary", 1)
    problem = replace(it.problem, over_clients=Mean([1.0, 0.0]))
    assert planned(PrivateADMM(), problem, it.fed)[0].plan.sensitivity[1] == 0
    assert np.isfinite(solve(problem, it.fed, max_rounds=5).w).all()


def test_a_target_beyond_single_precision_counts_as_one_row():
    """A gradient that overflows beside a row of zeros is no number, and would end the run."""
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.zeros(40)
    X[0], y[0] = 0.0, 1e45
    problem = Problem(Squared(), PLAIN, privacy=Budget(1, 1e-6, sizes=40))
    solution = solve(
        problem, Federation(("a",), (X,), (y,)).single(), algorithm=PrivateADMM(max_rounds=3)
    )
    assert np.isfinite(solution.w).all()


@pytest.mark.parametrize("start", [["a"], ["a", "b", "c"], [[0.0] * 3], [None] * 3, [True] * 3])
def test_a_start_that_is_no_model_is_refused_whoever_is_given_it(start):
    it = case("logistic", "ordinary", 1)
    with pytest.raises(ValueError, match=r"start must be (3 finite )?numbers"):
        solve(it.problem, it.fed, start=start)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("rounds", [10**6 + 1, 10**12, 0, -3])
def test_more_rounds_than_anybody_waits_for_are_refused_at_once(mechanism, rounds):
    with pytest.raises(
        ValueError, match=r"rounds must be >= 1 and at most 1,000,000|count must be"
    ):
        noise_for(BUDGET, rounds, mechanism)
    assert noise_for(BUDGET, 10**6, mechanism) > noise_for(BUDGET, 10**5, mechanism)


def test_an_estimator_takes_true_and_false_for_what_they_are():
    X, y = np.eye(4), ["a", "b", "a", "b"]
    for name in ("average", "fit_intercept"):
        for value in ("no", 1, None, 0.0):
            with pytest.raises(ValueError, match=f"{name} must be True or False, got {value!r}"):
                PrivateClassifier(rounds=2, **{name: value}).fit(X, y, groups=["g"] * 4)
        PrivateClassifier(rounds=2, **{name: np.bool_(True)}).fit(X, y, groups=["g"] * 4)
    with pytest.raises(ValueError, match="at most 1,000,000"):
        PrivateClassifier(rounds=10**9).fit(X, y, groups=["g"] * 4)


# -- features that were made by a look at the rows
# --------------------------------------------------------------------


def tables(seed: int = 0) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {
        n: {"age": rng.normal(50, 9, 8), "ward": rng.choice(["x", "y"], 8), "ill": np.arange(8) % 2}
        for n in "ab"
    }


def test_a_schema_fitted_on_rows_is_refused_unless_they_are_public():
    """Its scale and categories are exact functions of the rows, uncharged."""
    declared = declared_schema(
        ["age", "ward"], {"age": {"min": 0, "max": 99}, "ward": {"categories": ["x", "y"]}}, "ill"
    )
    fitted = Schema.fit(tables(), target="ill")
    made = {
        name: Federation.from_tables(tables(), "ill", schema=schema)
        for name, schema in (("no", declared),)
    }
    made["recipe"] = Federation.from_tables(tables(), "ill", schema=Recipe())
    made["fitted"] = Federation.from_tables(tables(), "ill", schema=fitted)
    made["read"] = Federation.from_tables(
        tables(), "ill", schema=Schema.from_dict(fitted.to_dict())
    )
    problem = Problem(Logistic(), PLAIN, privacy=BUDGET)
    assert solve(problem, made["no"], max_rounds=2).ledger.epsilon <= 2.0
    for name in ("recipe", "fitted", "read"):
        fed = made[name]
        for each in (fed, fed.restrict("a"), fed.split(0.5)[0]):
            with pytest.raises(
                ValueError, match=r"made by a schema fitted on rows: .*fed\.schema\.public\(\)"
            ):
                solve(problem, each, max_rounds=2)
        assert fed.schema is not None
        public = replace(fed, schema=fed.schema.public())
        assert solve(problem, public, max_rounds=2).rounds == 2
        assert (
            solve(replace(problem, privacy=None), fed, max_rounds=2, algorithm=PrivateADMM()).rounds
            == 2
        )
    elsewhere = Schema.fit(tables(9), target="ill").public()
    assert (
        solve(
            problem, Federation.from_tables(tables(), "ill", schema=elsewhere), max_rounds=2
        ).rounds
        == 2
    )
    kept = {key: value for key, value in fitted.to_dict().items() if key != "fitted"}
    assert Schema.from_dict(kept).fitted  # of an older file nothing is known
    assert not Schema.from_dict(declared.to_dict()).fitted


# -- whose noise it is
# ------------------------------------------------------------------------------------------------


def test_a_budget_has_the_clients_own_noise_and_no_seed_makes_it():
    """Two runs with one seed on neighbouring data would share simulated noise: their difference
    would show the row.
    """
    it = case("logistic", "ordinary", 1)
    secure = [solve(it.problem, it.fed, max_rounds=2, seed=0) for _ in range(2)]
    assert np.abs(secure[0].w - secure[1].w).max() > 0
    assert "made from keys that the clients drew" in secure[0].ledger.text
    run = PrivateADMM(max_rounds=2, noise="simulation")
    simulated = [solve(it.problem, it.fed, algorithm=run, seed=0) for _ in range(2)]
    np.testing.assert_array_equal(simulated[0].w, simulated[1].w)
    ledger = simulated[0].ledger
    assert "made from the seed: a simulation, as anyone who has the seed" in ledger.text
    assert ledger.text.startswith("No guarantee, but with secure noise the same run would be (")
    assert not ledger.guarantee
    assert secure[0].ledger.guarantee
    assert ledger.epsilon == secure[0].ledger.epsilon
    free = [
        solve(replace(it.problem, privacy=None), it.fed, algorithm=PrivateADMM(max_rounds=2))
        for _ in range(2)
    ]
    np.testing.assert_array_equal(free[0].w, free[1].w)
    assert planned(PrivateADMM(), it.problem, it.fed)[0].plan.source == "secure"
    assert (
        planned(PrivateADMM(), replace(it.problem, privacy=None), it.fed)[0].plan.source
        == "simulation"
    )


def test_an_affine_model_of_somebody_else_is_refused():
    """What a row counts for in its gradient is unknown."""

    class Doubled(Linear):
        def forward(self, w: Any, block: Any) -> Any:
            return 2 * super().forward(w, block)

    it = case("logistic", "ordinary", 1)
    with pytest.raises(
        ValueError, match=r"a model of PrivateSGD is Linear\(\) or Softmax\(\), got"
    ):
        solve(replace(it.problem, predictor=Doubled()), it.fed, max_rounds=2)
