import math
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from bonafed.data.federation import Federation
from bonafed.estimators.robust import RobustClassifier, RobustRegressor
from bonafed.estimators.rows import MissingGroupsWarning
from bonafed.problem.losses import Absolute, Hinge, Logistic
from bonafed.problem.predictors.affine import Linear
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L2
from bonafed.problem.risks.weight_sets import LpBall, Simplex
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.problem.wasserstein.supports import BoxSupport
from bonafed.solution.solve import solve
from bonafed.solution.trivial import TrivialModelWarning


# the checks give no groups
@pytest.mark.filterwarnings("ignore::bonafed.MissingGroupsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([RobustClassifier(tol=1e-4), RobustRegressor(tol=1e-4)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_model_is_the_solution_of_the_stated_problem(clinics):
    X, y, groups = clinics
    ball = {"radius": 0.03, "label_cost": 0.8, "norm": "l2"}
    model = RobustClassifier(Hinge(), **ball, client_radius=0.2, client_p=2.0, tol=1e-9)
    model.fit(X, y, groups=groups)
    sizes = [60, 40, 20]
    names = list(dict.fromkeys(groups))
    prior = np.array([sizes[["north", "south", "east"].index(name)] for name in names]) / 120
    problem = Problem(
        Hinge(), Linear(True), WassersteinBall(0.03, 0.8, "l2"), LpBall(0.2, 2, prior), L2(1e-4)
    )
    fed = Federation.from_arrays(X, y, groups)
    w = np.append(model.coef_, model.intercept_)
    optimum = solve(problem, fed, tol=1e-9).certificate
    assert model.clients_.tolist() == names
    # both within 1e-9 of the optimum
    assert problem.objective(w, fed) == pytest.approx(optimum.value, rel=1e-8)
    assert model.certificate_.value == pytest.approx(problem.objective(w, fed), rel=1e-12)
    assert 0 <= model.certificate_.relative_gap <= 1e-9
    assert model.client_weights_.sum() == pytest.approx(1)
    assert np.linalg.norm(model.client_weights_ - prior) <= 0.2 + 1e-9


def test_client_report(clinics):
    X, y, groups = clinics
    # merging hides no row
    X, y, groups = np.vstack([X, X]), np.concatenate([y, y]), np.concatenate([groups, groups])
    model = RobustClassifier(Hinge()).fit(X, y, groups=groups)
    table = model.client_report()
    right = model.predict(X) == y
    assert [row["client"] for row in table] == model.clients_.tolist()
    (worst,) = [row for row in table if row["worst"]]
    assert worst["accuracy"] == min(row["accuracy"] for row in table)
    for row in table:
        own = groups == row["client"]
        assert row["n"] == own.sum()
        assert row["accuracy"] == pytest.approx(right[own].mean())
        loss = np.maximum(0, 1 - np.where(y[own] == "ill", 1, -1) * model.decision_function(X[own]))
        assert row["loss"] == pytest.approx(loss.mean())
        assert row["worst_loss"] >= row["loss"]
    regression = RobustRegressor().fit(X, X[:, 0], groups=groups)
    off = np.abs(regression.predict(X) - X[:, 0])
    for row in regression.client_report():
        assert row["mae"] == pytest.approx(off[groups == row["client"]].mean())


@pytest.mark.parametrize("prior", ["size", "uniform"])
@pytest.mark.parametrize("make", [lambda x: x, csr_array], ids=["dense", "sparse"])
def test_weights_equal_repeats_bit_for_bit(clinics, prior, make):
    X, y, groups = clinics
    rng = np.random.default_rng(0)
    first = np.sort(np.unique(groups, return_index=True)[1])  # fixes the order of the clients
    weight = rng.integers(0, 4, 120)
    weight[first] = 1
    rows = np.repeat(np.arange(120), weight)
    rows = np.concatenate([first, rng.permutation(rows[~np.isin(rows, first)])])
    one = RobustClassifier(prior=prior).fit(make(X), y, groups=groups, sample_weight=weight)
    two = RobustClassifier(prior=prior).fit(make(X[rows]), y[rows], groups=groups[rows])
    assert one.clients_.tolist() == two.clients_.tolist()
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)
    other = RobustClassifier(prior=prior).fit(make(X), y, groups=groups)
    assert np.abs(other.coef_ - one.coef_).max() > 1e-3  # the weights matter


def test_weights_change_the_size_prior(clinics):
    """Doubling every row of one client equals weighing them by 2, also in the clients' prior."""
    X, _, groups = clinics
    weight = np.where(groups == "east", 2.0, 1.0)
    rows = np.concatenate([np.arange(120), np.flatnonzero(groups == "east")])
    one = RobustRegressor(client_radius=0).fit(
        X, X @ [1, 2, 0, 0], groups=groups, sample_weight=weight
    )
    two = RobustRegressor(client_radius=0).fit(X[rows], X[rows] @ [1, 2, 0, 0], groups=groups[rows])
    assert one.client_weights_ == pytest.approx(two.client_weights_)
    assert one.client_weights_[one.clients_ == "east"] == pytest.approx(40 / 140)


def test_no_groups_is_one_client_and_warns(clinics):
    X, y, _ = clinics
    with pytest.warns(MissingGroupsWarning, match="groups"):
        model = RobustClassifier().fit(X, y)
    assert model.clients_.tolist() == ["all"]


def test_a_client_with_one_class_is_allowed_and_all_with_one_are_not(clinics):
    X, y, groups = clinics
    y = np.where(groups == "east", "ill", y)
    model = RobustClassifier().fit(X, y, groups=groups)
    assert any("east" in note for note in model.solution_.notes)
    with pytest.raises(ValueError, match="one class"):
        RobustClassifier().fit(X, np.full(120, "ill"), groups=groups)
    with pytest.raises(ValueError, match="Only binary"):
        RobustClassifier().fit(X, groups, groups=groups)


@pytest.mark.parametrize("label_cost", [np.inf, 1.0])
def test_probabilities_of_the_logistic_loss_are_the_models_own_unless_labels_flip(
    clinics, label_cost
):
    X, y, groups = clinics
    model = RobustClassifier(Logistic(), label_cost=label_cost).fit(X, y, groups=groups)
    p = model.predict_proba(X)
    assert p.sum(1) == pytest.approx(1)
    same = np.log(p[:, 1] / p[:, 0]) == pytest.approx(model.decision_function(X))
    assert same is (label_cost == np.inf)


def test_hinge_losses_have_calibrated_probabilities(clinics):
    X, y, groups = clinics
    model = RobustClassifier(Hinge(), radius=0.1).fit(X, y, groups=groups)
    ill = model.predict_proba(X)[:, 1]
    raw = expit(model.decision_function(X))
    assert log_loss(y == "ill", ill) < 0.95 * log_loss(y == "ill", raw)


def test_radii_and_priors_by_name_may_name_absent_clients(clinics):
    X, y, groups = clinics
    radius = {"north": 0.01, "south": 0.02, "east": 0.03, "west": 0.04}
    prior = {"north": 0.5, "south": 0.2, "east": 0.1, "west": 0.2}
    model = RobustClassifier(radius=radius, prior=prior, client_radius=0).fit(X, y, groups=groups)
    assert model.radius_.tolist() == [radius[c] for c in model.clients_]
    assert model.client_weights_ == pytest.approx([prior[c] / 0.8 for c in model.clients_])
    with pytest.raises(ValueError, match="south"):
        RobustClassifier(radius={"north": 0.1, "east": 0.1}).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="south"):
        RobustClassifier(prior={"north": 0.5, "east": 0.5}).fit(X, y, groups=groups)


def test_a_risk_over_clients_replaces_the_ball(clinics):
    X, y, groups = clinics
    model = RobustClassifier(over_clients=Simplex(), tol=1e-8).fit(X, y, groups=groups)
    worst = max(row["worst_loss"] for row in model.client_report())
    assert model.certificate_.value == pytest.approx(worst + 0.5e-4 * (model.coef_**2).sum())


def test_a_support_and_clip(clinics):
    X, y, groups = clinics
    box = BoxSupport(-2.0, 2.0)
    with pytest.raises(ValueError, match=r"support|outside"):
        RobustClassifier(support=box).fit(X, y, groups=groups)
    model = RobustClassifier(support=box, clip=True).fit(X, y, groups=groups)
    assert model.certificate_.relative_gap <= 1e-6


def test_the_intercept(clinics):
    X, y, groups = clinics
    assert RobustClassifier(fit_intercept=False).fit(X, y, groups=groups).intercept_.tolist() == [
        0.0
    ]
    target = X[:, 0] + 50
    model = RobustRegressor(Absolute(), radius=0.01).fit(X, target, groups=groups)
    # it is free: neither radius nor L2 pulls it to 0
    assert model.intercept_ == pytest.approx(50, abs=0.1)


def test_warm_start(clinics):
    X, y, groups = clinics
    model = RobustClassifier(warm_start=True, tol=1e-8).fit(X, y, groups=groups)
    value, first = model.certificate_.value, _first_objective(model)
    model.fit(X, y, groups=groups)
    assert _first_objective(model) == pytest.approx(value)
    assert value < 0.9 * first
    # each within 1e-8 of the optimum
    assert model.certificate_.value == pytest.approx(value, rel=2e-8)
    model.fit(X[:, :3], y, groups=groups)  # another number of features: from zero
    assert model.coef_.shape == (1, 3)


def _first_objective(model):
    return next(row["objective"] for row in model.history_ if math.isfinite(row["objective"]))


def test_warnings_about_results(clinics):
    X, y, groups = clinics
    with pytest.warns(TrivialModelWarning, match="constant: at radius 0.5"):
        model = RobustClassifier(radius=0.5, label_cost=1.0).fit(X, y, groups=groups)
    assert np.abs(model.coef_).max() < 1e-3
    with pytest.warns(ConvergenceWarning, match="max_rounds"):
        RobustClassifier(max_rounds=2).fit(X, y, groups=groups)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"loss": Absolute()}, "margin"),
        ({"radius": -1.0}, "radius must be >= 0"),
        ({"radius": "large"}, "'auto'"),
        ({"label_cost": 0.0}, "label_cost"),
        ({"norm": "l3"}, "norm must be"),
        ({"client_radius": -0.1}, "radius must be"),
        ({"prior": [0.5, 0.2, 0.2]}, "sum to one"),
        ({"prior": "sizes"}, "prior must be"),
    ],
)
def test_errors(clinics, parameters, said):
    X, y, groups = clinics
    with pytest.raises(ValueError, match=said):
        RobustClassifier(**parameters).fit(X, y, groups=groups)


def test_errors_of_input(clinics):
    X, y, groups = clinics
    with pytest.raises(ValueError, match="120 rows of X, got 3"):
        RobustClassifier().fit(X, y, groups=groups[:3])
    with pytest.raises(ValueError, match=r"groups must have shape \(120,\)"):
        RobustClassifier().fit(X, y, groups=np.column_stack([groups, groups]))
    with pytest.raises(ValueError, match="missing"):
        RobustClassifier().fit(X, y, groups=[None, *groups[1:]])
    with pytest.raises(ValueError, match="zero"):
        RobustClassifier().fit(X, y, groups=groups, sample_weight=np.zeros(120))
    with pytest.raises(ValueError, match="residual"):
        RobustRegressor(Hinge()).fit(X, X[:, 0], groups=groups)
    with pytest.raises(NotFittedError):
        RobustClassifier().client_report()


def test_clone_and_parameters():
    model = RobustClassifier(Logistic(), radius={"a": 0.1}, client_p=math.inf)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(radius=0.2, label_cost=0.5, client_radius=0.3).radius == 0.2


def test_a_fitted_model_is_pickled(clinics):
    X, y, groups = clinics
    model = RobustClassifier().fit(X, y, groups=groups)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
