import math
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import ndtri
from sklearn import model_selection
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bonafed.data.federation import Federation
from bonafed.estimators.private import PrivateClassifier
from bonafed.estimators.robust import RobustClassifier, RobustRegressor
from bonafed.estimators.rows import MissingGroupsWarning
from bonafed.estimators.scorers import worst_client_accuracy, worst_client_loss
from bonafed.model_selection import WithinClients, cross_validate, default_radius, radius_path
from bonafed.problem.losses import Exponential, Hinge, Huber, Logistic
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2
from bonafed.problem.risks.weight_sets import ChiSquareBall, LpBall, Mean
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solution.solve import fit, solve
from bonafed.solution.thresholds import radius_threshold, residual_scale


def clinics(seed=3):
    rng = np.random.default_rng(seed)
    groups = np.repeat(["north", "south", "east"], [60, 40, 20])
    X = rng.standard_normal((120, 4)) + np.repeat([0.0, 0.5, -0.5], [60, 40, 20])[:, None]
    order = rng.permutation(120)
    y = (X[:, 0] - X[:, 1] + 0.7 * rng.standard_normal(120) > 0).astype(int)
    return X[order], y[order], groups[order]


X, Y, GROUPS = clinics()
FED = Federation.from_arrays(X, Y, GROUPS)


def problem(radius=0.05, theta=0.1, loss=None, label_cost=1.0, norm="l1"):
    ball = WassersteinBall(radius, label_cost, norm)
    return Problem(loss or Hinge(), Linear(True), ball, LpBall(theta, 2, "size"), L2(1e-3))


# ---- splitting within clients


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    n_splits=st.integers(2, 5),
    shuffle=st.booleans(),
    seed=st.integers(0, 9),
    kinds=st.integers(1, 3),
)
def test_within_clients(sizes, n_splits, shuffle, seed, kinds):
    sizes = [*sizes, n_splits]  # one client fills every fold
    groups = np.repeat([f"c{i}" for i in range(len(sizes))], sizes)
    y = np.random.default_rng(seed).integers(0, kinds, len(groups))
    splitter = WithinClients(n_splits, shuffle=shuffle, random_state=seed)
    folds = list(splitter.split(np.zeros((len(groups), 1)), y, groups))
    tested = np.zeros(len(groups), int)
    for train, test in folds:
        np.testing.assert_array_equal(
            np.sort(np.concatenate([train, test])), np.arange(len(groups))
        )
        assert set(groups[train]) == set(groups)
        tested[test] += 1
    for i, m in enumerate(sizes):
        own = groups == f"c{i}"
        assert (tested[own] == (m > 1)).all()
        counts = [int(own[test].sum()) for _, test in folds]
        if m > 1:
            assert max(counts) - min(counts) <= 1
        for label in range(kinds):
            counts = [int((own & (y == label))[test].sum()) for _, test in folds]
            assert m == 1 or max(counts) - min(counts) <= 1  # a run of the deal


def test_within_clients_streams_belong_to_the_clients():
    more = np.concatenate([GROUPS, np.repeat("west", 9)])
    one = [test for _, test in WithinClients(4).split(np.zeros(120), None, GROUPS)]
    two = [test for _, test in WithinClients(4).split(np.zeros(129), None, more)]
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b[b < 120])
    other = [
        test for _, test in WithinClients(4, random_state=1).split(np.zeros(120), None, GROUPS)
    ]
    assert any(a.tolist() != b.tolist() for a, b in zip(one, other, strict=True))


def test_by_row_a_row_more_or_less_moves_no_other():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((300, 3)), rng.integers(0, 2, 300)
    groups = np.repeat(["a", "b", "c"], 100)
    splitter = WithinClients(4, by_row=True)

    def folds(X, y, groups, **more):
        splits = splitter.split(X, y, groups, **more)
        found = np.full(len(y), -1)
        for k, (train, test) in enumerate(splits):
            assert sorted([*train, *test]) == [*range(len(y))]
            assert (found[test] == -1).all()
            found[test] = k
        return found

    base = folds(X, y, groups)
    assert (np.abs(np.bincount(base) - 75) < 30).all()  # hashes: four deviations of 7.5
    for at in (0, 150, 299):
        rest = np.arange(300) != at
        np.testing.assert_array_equal(folds(X[rest], y[rest], groups[rest]), base[rest])
        more = folds(
            np.insert(X, at, [9.0, 0.0, 1.5], 0), np.insert(y, at, 1), np.insert(groups, at, "new")
        )
        np.testing.assert_array_equal(np.delete(more, at), base)
    # the same rows as texts, in a table of mixed columns, sparse, in doubles, in another order
    order = rng.permutation(300)
    for other in (csr_array(X), pd.DataFrame(X), X.tolist()):
        np.testing.assert_array_equal(folds(other, y, groups), base)
    np.testing.assert_array_equal(folds(X[order], y[order] * 1.0, groups[order]), base[order])
    table = pd.DataFrame({"age": [*range(300)], "town": [f"t{k % 7}" for k in range(300)]})
    one = folds(table, y, groups)
    larger = pd.concat([table, pd.DataFrame({"age": [0.5], "town": [None]})], ignore_index=True)
    two = folds(larger, np.append(y, 0), np.append(groups, "a"))
    np.testing.assert_array_equal(two[:300], one)
    # a target more makes others doubles or texts of another length
    np.testing.assert_array_equal(
        folds(np.vstack([X, X[:1]]), np.append(y, 0.5), np.append(groups, "a"))[:300], base
    )
    # equal rows are together, at all clients; another seed draws other folds
    twice = folds(np.vstack([X, X]), np.append(y, y), np.append(groups, groups[::-1]))
    np.testing.assert_array_equal(twice, np.append(base, base))
    splitter = WithinClients(4, by_row=True, random_state=1)
    assert (folds(X, y, groups) != base).mean() > 0.5
    who = np.arange(300) // 3
    by_person = folds(X, y, groups, persons=who)
    assert all(len({*by_person[who == one]}) == 1 for one in range(100))
    np.testing.assert_array_equal(folds(X[3:], y[3:], groups[3:], persons=who[3:]), by_person[3:])


def test_cross_validation_of_private_models_splits_by_row():
    model = PrivateClassifier(8.0, 1e-2, rounds=2, sizes=40, random_state=0)
    splits = [*WithinClients(2, by_row=True).split(X, Y, GROUPS)]
    for estimator in (model, make_pipeline(FunctionTransformer(), model)):
        found = cross_validate(
            estimator, X, Y, groups=GROUPS, cv=2, return_indices=True, scoring="accuracy"
        )
        for k, (train, test) in enumerate(splits):
            assert found["indices"]["train"][k].tolist() == train.tolist()
            assert found["indices"]["test"][k].tolist() == test.tolist()


def test_within_clients_errors():
    with pytest.raises(ValueError, match="n_splits must be >= 2"):
        WithinClients(1)
    with pytest.raises(ValueError, match="needs groups"):
        next(WithinClients(2).split(X, Y))
    with pytest.raises(ValueError, match=r"fold . of 3 would test no row"):
        list(WithinClients(3).split(np.zeros(3), None, ["a", "a", "b"]))


# ---- routing


def test_cross_validate_gives_fit_and_scorers_the_clients():
    found = cross_validate(RobustClassifier(), X, Y, groups=GROUPS, cv=3, return_estimator=True)
    splits = list(WithinClients(3).split(X, Y, GROUPS))
    for k, (train, test) in enumerate(splits):
        by_hand = RobustClassifier().fit(X[train], Y[train], groups=GROUPS[train])
        np.testing.assert_array_equal(found["estimator"][k].coef_, by_hand.coef_)
        right = by_hand.predict(X[test]) == Y[test]
        assert found["test_accuracy"][k] == pytest.approx(right.mean())
        assert found["test_worst_client_accuracy"][k] == min(
            right[GROUPS[test] == g].mean() for g in set(GROUPS)
        )
        assert found["test_worst_client_loss"][k] == worst_client_loss(
            by_hand, X[test], Y[test], groups=GROUPS[test]
        )
    assert not sklearn.get_config()["enable_metadata_routing"]  # as before


def test_cross_validate_by_client_holds_out_whole_clients():
    found = cross_validate(
        RobustClassifier(), X, Y, groups=GROUPS, cv=3, by="client", return_estimator=True
    )
    held = [set(GROUPS) - set(model.clients_) for model in found["estimator"]]
    assert sorted(h for one in held for h in one) == sorted(set(GROUPS))
    with pytest.raises(ValueError, match="by must be"):
        cross_validate(RobustClassifier(), X, Y, groups=GROUPS, by="row")


def test_cross_validate_a_pipeline_a_regressor_and_weights():
    pipe = make_pipeline(StandardScaler(), RobustClassifier())
    found = cross_validate(pipe, X, Y, groups=GROUPS, cv=2, return_estimator=True)
    assert all(set(model[-1].clients_) == set(GROUPS) for model in found["estimator"])
    found = cross_validate(RobustRegressor(), X, X[:, 0] + 0.1 * X[:, 2] ** 2, groups=GROUPS, cv=2)
    assert set(found) >= {"test_r2", "test_worst_client_loss"}
    assert found["test_r2"].min() > 0.9
    weight = np.where(np.arange(120) % 2, 1.0, 0.0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = RobustClassifier().set_fit_request(sample_weight=True)
        scoring = {"worst": worst_client_accuracy}
    found = cross_validate(
        model,
        X,
        Y,
        groups=GROUPS,
        cv=2,
        sample_weight=weight,
        scoring=scoring,
        return_estimator=True,
    )
    train = next(WithinClients(2).split(X, Y, GROUPS))[0]
    by_hand = RobustClassifier().fit(
        X[train], Y[train], groups=GROUPS[train], sample_weight=weight[train]
    )
    np.testing.assert_array_equal(found["estimator"][0].coef_, by_hand.coef_)


def test_the_silent_trap_is_warned_about():
    """Without routing scikit-learn gives groups to the splitter only: fit would see one client and
    not say so.
    """
    with pytest.warns(MissingGroupsWarning, match="enable_metadata_routing"):
        model_selection.cross_validate(
            RobustClassifier(), X, Y, groups=GROUPS, cv=model_selection.GroupKFold(3)
        )
    search = model_selection.GridSearchCV(
        RobustClassifier(), {"radius": [0.01, 0.1]}, cv=WithinClients(2)
    )
    with pytest.warns(MissingGroupsWarning):
        search.fit(X, Y, groups=GROUPS)
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        search.fit(X, Y, groups=GROUPS)
    assert search.best_estimator_.clients_.tolist() == list(dict.fromkeys(GROUPS))


@pytest.mark.parametrize("cv", [WithinClients(2), model_selection.LeaveOneGroupOut()])
def test_grid_search_over_a_pipeline(cv):
    pipe = make_pipeline(StandardScaler(), RobustClassifier())
    grid = {
        "robustclassifier__radius": [0.001, 0.2],
        "robustclassifier__loss": [Hinge(), Logistic()],
    }
    search = model_selection.GridSearchCV(pipe, grid, cv=cv, scoring=worst_client_accuracy)
    with sklearn.config_context(enable_metadata_routing=True):
        search.fit(X, Y, groups=GROUPS)
    assert search.best_estimator_[-1].clients_.tolist() == list(dict.fromkeys(GROUPS))
    assert search.best_score_ == search.cv_results_["mean_test_score"].max() > 0.5
    if isinstance(cv, WithinClients):
        nested = cross_validate(search, X, Y, groups=GROUPS, cv=2)
        assert nested["test_worst_client_accuracy"].min() > 0.5


# ---- the path


@pytest.mark.parametrize("loss", [Hinge(), Logistic()])
def test_the_path_equals_separate_solves_and_rises(loss):
    radii, thetas = np.array([0.0, 0.01, 0.2]), [0.0, 0.2]
    table = radius_path(problem(loss=loss), FED, radii=radii, client_radii=thetas, tol=1e-8)
    assert [(row["client_radius"], row["radius"]) for row in table] == [
        (t, r) for t in thetas for r in radii
    ]
    train, test = FED.split(0.3, 0)
    for row in table:
        alone = solve(
            problem(row["radius"], row["client_radius"], loss), train, tol=1e-8
        ).certificate
        # each within 1e-8 of the optimum
        assert row["value"] == pytest.approx(alone.value, rel=2e-8)
        assert row["outcome"] == "optimal"
        assert row["relative_gap"] <= 1e-8
        losses = [_loss(loss, row["w"], *test.rows(i)) for i in range(3)]
        assert row["worst_loss"] == pytest.approx(max(losses))
        assert row["worst_client"] == test.clients[int(np.argmax(losses))]
        right = [
            np.mean((x @ row["w"][:-1] + row["w"][-1] > 0) == y)
            for x, y in map(test.rows, range(3))
        ]
        assert row["worst_accuracy"] == pytest.approx(min(right))
        assert row["accuracy"] == pytest.approx(np.average(right, weights=test.sizes))
    value = np.array([row["value"] for row in table]).reshape(2, 3)
    assert (np.diff(value, axis=1) > 0).all()
    assert (np.diff(value, axis=0) > 0).all()


def _loss(loss, w, x, y):
    return loss.value(x @ w[:-1] + w[-1], np.where(y == 1, 1.0, -1.0)).mean()


def test_the_path_starts_warm(monkeypatch):
    starts = []

    def recorded(*args, start=None, **options):
        starts.append(start)
        return fit(*args, start=start, **options)

    monkeypatch.setattr("bonafed.solution.solve.fit", recorded)
    table = radius_path(problem(), FED, radii=np.array([0.02, 0.05, 0.1]), client_radii=[0.1, 0.2])
    assert starts[0] is None
    for k, neighbour in enumerate(
        [0, 1, 0, 3, 4], start=1
    ):  # along the radii; a new client radius from the last's first
        np.testing.assert_array_equal(starts[k], table[neighbour]["w"])


def test_the_path_of_a_regression_and_given_test_rows():
    fed = Federation.from_arrays(X, X @ [1.0, -1.0, 0.0, 0.0] + np.sin(9 * X[:, 2]), GROUPS)
    train, test = fed.split(0.5, 1)
    own = {"north": 0.1, "south": 0.2, "east": 0.3}
    stated = problem(loss=Huber(), label_cost=math.inf)
    table = radius_path(stated, train, radii=[0.0, own], test=test)
    assert [row["radius"] for row in table] == [0.0, own]
    assert [row["client_radius"] for row in table] == [0.1, 0.1]
    off = [
        np.abs(x @ table[0]["w"][:-1] + table[0]["w"][-1] - y).mean()
        for x, y in map(test.rows, range(3))
    ]
    assert table[0]["worst_mae"] == pytest.approx(max(off))
    assert not table[1]["trivial"]


def test_the_path_marks_the_trivial_region_and_refuses_what_has_no_radius():
    table = radius_path(problem(), FED, radii=[0.02, 0.5])
    assert [row["trivial"] for row in table] == [False, True]
    with pytest.raises(TypeError, match="WassersteinBall"):
        radius_path(Problem(Hinge()), FED, radii=[0.1])
    with pytest.raises(TypeError, match="LpBall"):
        radius_path(
            Problem(Hinge(), over_samples=WassersteinBall(0.1), over_clients=Mean()),
            FED,
            radii=[0.1],
            client_radii=[0.1],
        )
    with pytest.raises(ValueError, match="at least one"):
        radius_path(problem(), FED, radii=[])


# ---- the default radius


def auto(fed, norm="linf", loss=None, over=None, label_cost=math.inf):
    ball = WassersteinBall(0.0, label_cost, norm)
    stated = Problem(loss or Logistic(), Linear(True), ball, over or Mean("size"), L2(1e-4))
    return default_radius(stated, fed)


def a_table(n=1000, d=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    return x, np.where(x[:, 0] + rng.logistic(size=n) > 0, 1, 0)


def test_default_radius_of_one_client_by_hand():
    """The noise of the gradients at logistic regression, by scikit-learn and its definition."""
    x, y = a_table()
    pilot = LogisticRegression(C=1.0, tol=1e-8).fit(x, y)  # strength 1 / n, spread about 1
    z = (pilot.predict_proba(x)[:, 1] - y)[:, None] * (x - x.mean(0))
    largest = z.std(0).max() / math.sqrt(1000)
    one = Federation(("a",), (x,), (y,))
    assert auto(one) == pytest.approx(0.25 * ndtri(1 - 0.1 / 6) * largest, rel=1e-2)
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (2000, 1000))
    drawn = np.quantile(np.linalg.norm(signs @ (z - z.mean(0)) / 1000, axis=1), 0.9)
    assert auto(one, "l2") == pytest.approx(0.3 * drawn, rel=0.1)  # of 200 draws
    four = Federation.from_arrays(x, y, np.arange(1000) % 4)
    assert auto(four) == pytest.approx(auto(one), rel=1e-6)  # the mean over clients is over rows


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_default_radius_scales_with_the_data(norm):
    radius = auto(FED, norm)
    tripled = Federation.from_arrays(3 * X + 7, Y, GROUPS)
    # shift-free, in units of the features
    assert auto(tripled, norm) == pytest.approx(3 * radius, rel=1e-3)
    again = Federation(FED.clients[::-1], FED.X[::-1], FED.y[::-1])
    assert auto(again, norm) == pytest.approx(radius)


def test_default_radius_is_never_trivial_and_never_zero():
    x, _ = a_table(100)
    noise = Federation(("a",), (x,), (np.random.default_rng(5).integers(0, 2, 100),))
    parts = Federation(("a",), (x,), ((x[:, 0] > 0).astype(int),))  # separable
    for fed in (noise, parts):
        ball = WassersteinBall(0.0, norm="linf")
        largest = radius_threshold(Problem(Logistic(), Linear(True), ball), fed).value
        assert 0.01 * largest * (1 - 1e-9) <= auto(fed) <= 0.3 * largest * (1 + 1e-9)
    assert auto(FED, label_cost=1e-3) <= 0.005e-3


def test_a_row_of_weight_two_is_two_rows_to_the_default_radius():
    x, y = a_table(200)
    weight = np.random.default_rng(3).integers(1, 4, 200)
    rows = np.repeat(np.arange(200), weight)
    one = Federation(("a",), (x,), (y,), sample_weight=(weight.astype(float),))
    assert auto(one) == pytest.approx(auto(Federation(("a",), (x[rows],), (y[rows],))), rel=1e-6)


def test_the_default_radius_of_a_regression_follows_the_unit_of_the_target():
    fed = Federation.from_arrays(X, X[:, 0] + 0.1 * np.sin(np.arange(len(X))), GROUPS)
    large = fed.with_targets([1000 * y for y in fed.y])
    one, other = auto(fed, loss=Huber(0.1)), auto(large, loss=Huber(100.0))
    assert one == pytest.approx(other, rel=1e-4)
    assert residual_scale(large) == pytest.approx(1000 * residual_scale(fed), rel=1e-4)


def test_default_radius_needs_a_ball_and_a_loss_with_a_worst_case():
    with pytest.raises(ValueError, match="needs over_samples=WassersteinBall"):
        default_radius(Problem(Logistic(), Linear(True)), FED)
    with pytest.raises(ValueError, match="not Lipschitz"):
        auto(FED, loss=Exponential())


def test_auto_in_the_estimator():
    model = RobustClassifier(norm="l2").fit(X, Y, groups=GROUPS)
    over = ChiSquareBall(0.05, "size")
    assert model.radius_ == pytest.approx(auto(FED, "l2", over=over), rel=0.1)  # of 200 draws
    plain = RobustClassifier().fit(X, Y, groups=GROUPS)
    assert plain.radius_ == pytest.approx(auto(FED, over=over), rel=1e-9)


def test_no_person_is_in_two_folds() -> None:
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(120, 2)), rng.integers(0, 2, 120), np.repeat(["a", "b"], 60)
    persons = rng.integers(0, 50, 120)
    for shuffle in (True, False):
        folds = [*WithinClients(4, shuffle=shuffle).split(X, y, groups, persons)]
        assert sum(len(test) for _, test in folds) == 120
        for train, test in folds:
            assert not {*persons[train]} & {*persons[test]}
            assert len(test) > 10
    scores = cross_validate(
        LogisticRegression(), X, y, groups=groups, persons=persons, scoring="accuracy", cv=3
    )
    assert scores["test_score"].shape == (3,)
