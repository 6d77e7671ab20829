import doctest
import pickle

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bonafed.algorithms.federated.bundle.bundle import Bundle
from bonafed.algorithms.pooled.rank_admm import RankADMM, Start
from bonafed.algorithms.pooled.rank_subproblems import Growing
from bonafed.certificates.certify import certify
from bonafed.data.federation import Federation
from bonafed.estimators import ranked
from bonafed.estimators.ranked import RiskClassifier, RiskRegressor
from bonafed.estimators.scorers import tail_loss
from bonafed.fairness import fairness_metrics, group_rates
from bonafed.problem.losses import Absolute, Hinge, Logistic, Quantile
from bonafed.problem.regularisers import L1, L2
from bonafed.problem.risks.ranks import Extremile, Maximum, ProspectTheory, RankedRange, TopK
from bonafed.problem.risks.weight_sets import LpBall, Mean, Superquantile
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.rounds import Stop
from bonafed.solution.trivial import TrivialModelWarning

# enough to see what becomes of risks that are not convex
ONE_START = RankADMM(starts=(Start(Growing(1e-4, 1.05)),))


# labels at random, in some checks
@pytest.mark.filterwarnings("ignore::bonafed.TrivialModelWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [RiskClassifier(), RiskRegressor(Extremile(3)), RiskClassifier(Mean(), loss=Hinge())]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_examples():
    assert doctest.testmod(ranked).attempted > 10
    assert doctest.testmod(ranked).failed == 0


# ---- the model against independent solvers


def sign(y):
    return np.where(y == "ill", 1.0, -1.0)


@pytest.mark.parametrize("risk", [Mean(), Superquantile(1), Extremile(1), TopK(120)])
def test_the_mean_is_logistic_regression(clinics, risk):
    X, y, _ = clinics
    model = RiskClassifier(risk, regulariser=L2(0.05), tol=1e-11).fit(X, y)
    other = LogisticRegression(C=1 / (120 * 0.05), tol=1e-10, max_iter=1000).fit(X, y)
    assert model.coef_ == pytest.approx(other.coef_, abs=1e-5)
    assert model.intercept_ == pytest.approx(other.intercept_, abs=1e-5)
    if isinstance(risk, Mean):  # the probabilities of other risks are fitted to the rows
        assert model.predict_proba(X) == pytest.approx(other.predict_proba(X), abs=1e-5)
    assert model.risk_weights_ == pytest.approx(1 / 120)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_mean_is_ridge(clinics, fit_intercept):
    X = clinics[0]
    target = X @ [1.0, -2.0, 0.0, 0.5] + 3 + np.sin(7 * X[:, 2])
    model = RiskRegressor(Mean(), regulariser=L2(0.1), fit_intercept=fit_intercept, tol=1e-12).fit(
        X, target
    )
    other = Ridge(alpha=120 * 0.1, fit_intercept=fit_intercept).fit(X, target)
    assert model.coef_ == pytest.approx(other.coef_, abs=1e-5)
    assert model.intercept_ == pytest.approx(other.intercept_, abs=1e-5)
    assert model.predict(X) == pytest.approx(other.predict(X), abs=1e-5)


def tail_program(A, b, mass, n, l1):
    """min t + sum_i s_i / mass + l1 ||w||_1 over (u, v >= 0, c, t, s >= 0), w = u - v; rows A (w,
    c) - l_i <= b.
    """
    d = A.shape[1] - 1
    rows = np.hstack(
        [
            A[:, :-1],
            -A[:, :-1],
            A[:, -1:],
            -np.ones((len(A), 1)),
            -np.tile(np.eye(n), (len(A) // n, 1)),
        ]
    )
    cost = np.concatenate([np.full(2 * d, l1), [0.0, 1.0], np.full(n, 1 / mass)])
    bounds = [(0, None)] * (2 * d) + [(None, None)] * 2 + [(0, None)] * n
    return linprog(cost, rows, b, bounds=bounds).fun


@pytest.mark.parametrize("tail", [0.8, 0.99])
def test_a_tail_of_hinge_losses_is_a_linear_program(clinics, tail):
    """Rockafellar and Uryasev: l_i - t <= s_i, here 1 - y_i (x_i w + c) <= t + s_i and 0 <= t +
    s_i.
    """
    X, y = clinics[0][:60], clinics[1][:60]
    A = -sign(y)[:, None] * np.column_stack([X, np.ones(60)])
    A, b = np.vstack([A, 0 * A]), np.append(np.full(60, -1.0), np.zeros(60))
    optimum = tail_program(A, b, 60 * tail, 60, 0.01)
    model = RiskClassifier(Superquantile(tail), loss=Hinge(), regulariser=L1(0.01), tol=1e-7).fit(
        X, y
    )
    assert np.abs(model.coef_).max() > 0.1
    assert model.certificate_.value == pytest.approx(optimum, rel=1e-6)
    assert model.certificate_.bound <= optimum * (1 + 1e-9)


@pytest.mark.parametrize("risk", [Superquantile(1 / 120), Superquantile(1e-6), Maximum(), TopK(1)])
def test_a_tail_of_one_row_is_the_maximum(clinics, risk):
    X = clinics[0]
    target = X @ [1.0, -2.0, 0.0, 0.5] + 3 + np.sin(7 * X[:, 2])
    A, b = np.column_stack([X, np.ones(120)]), np.append(target, -target)
    optimum = tail_program(np.vstack([A, -A]), b, 1.0, 120, 0.01)
    model = RiskRegressor(risk, loss=Absolute(), regulariser=L1(0.01), tol=1e-7).fit(X, target)
    assert model.certificate_.value == pytest.approx(optimum, rel=1e-6)
    assert model.losses_.max() == pytest.approx(
        model.certificate_.value - 0.01 * np.abs(model.coef_).sum()
    )
    assert model.losses_ == pytest.approx(np.abs(model.predict(X) - target))


def test_both_algorithms_find_the_same_model(clinics):
    X, y, _ = clinics
    one, two = (
        RiskClassifier(Extremile(2), algorithm=how, tol=1e-9).fit(X, y) for how in (Bundle(), None)
    )
    assert one.coef_ == pytest.approx(two.coef_, abs=1e-3)
    assert one.certificate_.value == pytest.approx(two.certificate_.value, rel=2e-9)


def test_a_quantile_loss_goes_through_the_bundle(clinics):
    X = clinics[0]
    target = X[:, 0] + np.sin(7 * X[:, 2])
    model = RiskRegressor(Superquantile(0.5), loss=Quantile(0.8)).fit(X, target)
    assert model.certificate_.relative_gap <= 1e-6
    assert (
        model.risk_weights_ @ model.losses_
        <= RiskRegressor(Superquantile(0.5)).fit(X, target).losses_.max()
    )
    with pytest.warns(ConvergenceWarning, match="no bound"):  # not convex: the default is AFL
        ranged = RiskRegressor(RankedRange(100, 10), loss=Quantile(0.8)).fit(X, target)
    assert ranged.certificate_.bound is None


# ---- rows


def test_rows_in_any_order_give_the_same_model(clinics):
    X, y, _ = clinics
    order = np.random.default_rng(3).permutation(120)
    one, two = (
        RiskClassifier(Superquantile(0.9)).fit(X, y),
        RiskClassifier(Superquantile(0.9)).fit(X[order], y[order]),
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)
    assert one.risk_weights_[order] == pytest.approx(two.risk_weights_, abs=1e-12)
    assert one.losses_[order] == pytest.approx(two.losses_, abs=1e-12)


@pytest.mark.parametrize("risk", [Superquantile(0.85), Extremile(2), TopK(100)])
def test_every_row_twice(clinics, risk):
    """A spectrum sees shares of the rows; a number of rows is another share of twice as many."""
    X, y, _ = clinics
    stated = {"regulariser": L2(1e-4), "tol": 1e-10}
    one = RiskClassifier(risk, **stated).fit(X, y)
    two = RiskClassifier(risk, **stated).fit(np.vstack([X, X]), np.append(y, y))
    same = not isinstance(risk, TopK)
    assert len(two.risk_weights_) == 240  # equal rows stay rows of their own
    assert (one.certificate_.value == pytest.approx(two.certificate_.value, rel=2e-10)) == same
    assert (two.coef_ == pytest.approx(one.coef_, abs=1e-3)) == same


def test_weights_and_losses_add_up_to_the_risk(clinics):
    X, y, _ = clinics
    model = RiskClassifier(Superquantile(0.85)).fit(X, y)
    margin = sign(y) * model.decision_function(X)
    assert model.losses_ == pytest.approx(np.log1p(np.exp(-margin)))
    ascending = np.sort(model.losses_)[::-1]
    assert model.risk_weights_.sum() == pytest.approx(1)
    # 85 % of 120 rows
    assert model.risk_weights_ @ model.losses_ == pytest.approx(ascending[:102].mean())
    assert model.certificate_.value == pytest.approx(
        ascending[:102].mean() + 0.5 / 120 * (model.coef_**2).sum()  # as strong as 1 / n
    )


def test_the_solution_is_that_of_the_rows_as_given(clinics):
    X, y, _ = clinics
    found = RiskClassifier(Superquantile(0.85)).fit(X, y).solution_
    again = certify(found.problem, Federation(("pooled",), (X,), (y,)), found.w, found.duals)
    assert again.bound == pytest.approx(found.certificate.bound, rel=1e-12)


def test_more_features_than_rows_and_constant_features():
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((20, 30)), np.arange(20) % 2
    model = RiskClassifier(Superquantile(0.3)).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-6
    assert model.score(X, y) == 1
    X[:, :29] = 2.0
    model = RiskRegressor(Extremile(2), regulariser=L2(1e-4)).fit(X, X[:, 29])
    assert model.certificate_.relative_gap <= 1e-6
    assert model.coef_[:29] == pytest.approx(model.coef_[0], abs=1e-6)
    assert model.predict(X) == pytest.approx(X[:, 29], abs=0.01)


def test_sparse_rows(clinics):
    X, y, _ = clinics
    thin = np.where(np.abs(X) > 0.5, X, 0)
    dense, sparse = (
        RiskClassifier(Extremile(2), tol=1e-9).fit(make(thin), y) for make in (np.array, csr_array)
    )
    assert sparse.certificate_.value == pytest.approx(dense.certificate_.value, rel=2e-9)
    assert sparse.predict(csr_array(thin)).tolist() == dense.predict(thin).tolist()


# ---- groups


def test_the_report_by_group(clinics):
    X, y, groups = clinics
    model = RiskClassifier(Superquantile(0.85)).fit(X, y, groups=groups)
    predicted = model.predict(X)
    rates = group_rates(y, predicted, groups, positive="ill")
    assert [row["group"] for row in model.risk_report()] == list(dict.fromkeys(groups))
    for row in model.risk_report():
        own = groups == row["group"]
        assert row["n"] == own.sum()
        assert row["loss"] == pytest.approx(model.losses_[own].mean())
        assert row["weight"] == pytest.approx(model.risk_weights_[own].sum())
        for name in ("positives", "selected", "tpr", "fpr", "fnr", "accuracy"):
            assert row[name] == getattr(rates[row["group"]], name)
    for name in ("north", "south"):
        assert model.fairness_report(name) == pytest.approx(
            fairness_metrics(y, predicted, groups, name, "ill")
        )
    with pytest.raises(ValueError, match="west"):
        model.fairness_report("west")
    np.testing.assert_array_equal(model.coef_, RiskClassifier(Superquantile(0.85)).fit(X, y).coef_)


def test_groups_of_one_class_and_by_number(clinics):
    X, y, groups = clinics
    y, code = np.where(groups == "east", "ill", y), np.where(groups == "east", 1, 0)
    model = RiskClassifier(Superquantile(0.85)).fit(X, y, groups=code)
    east = next(row for row in model.risk_report() if row["group"] == "1")
    assert east["positives"] == east["n"] == 20
    assert np.isnan(east["fpr"])
    expected = fairness_metrics(y, model.predict(X), code, 0, "ill")
    assert model.fairness_report(0) == pytest.approx(expected, nan_ok=True)


def test_the_report_without_groups_and_of_residuals(clinics):
    X, y, groups = clinics
    model = RiskClassifier(Superquantile(0.85)).fit(X, y)
    (row,) = model.risk_report()
    assert (row["group"], row["n"], row["weight"]) == ("all", 120, pytest.approx(1))
    with pytest.raises(ValueError, match="pass groups"):
        model.fairness_report("north")
    model = RiskRegressor().fit(X, X[:, 0] + np.sin(7 * X[:, 2]), groups=groups)
    off = np.abs(model.predict(X) - X[:, 0] - np.sin(7 * X[:, 2]))
    for row in model.risk_report():
        assert row["mae"] == pytest.approx(off[groups == row["group"]].mean())
    assert not hasattr(model, "fairness_report")


# ---- what is said


def test_risks_that_are_not_convex_have_no_bound_and_no_warning(clinics):
    X, y, _ = clinics
    plain = RiskClassifier(Mean(), regulariser=L2(0.01)).fit(X, y)
    for risk in (RankedRange(110, 0), ProspectTheory()):
        model = RiskClassifier(risk, algorithm=ONE_START, regulariser=L2(0.01)).fit(X, y)
        assert model.solution_.outcome.stop is Stop.UNPROVEN
        assert model.certificate_.bound is None
        assert (
            model.certificate_.value <= risk.value(plain.losses_) + 0.005 * (plain.coef_**2).sum()
        )
        assert model.score(X, y) > 0.7


def test_a_cap_is_a_convergence_warning(clinics):
    X, y, _ = clinics
    with pytest.warns(ConvergenceWarning, match="max_rounds"):
        RiskClassifier(Superquantile(0.85), max_rounds=1, tol=1e-9).fit(X, y)


def test_a_tail_that_no_line_serves_is_said(clinics):
    X = clinics[0]
    y = np.random.default_rng(0).integers(0, 2, 120)
    with pytest.warns(TrivialModelWarning, match=r"constant: at tail .*tail_threshold"):
        model = RiskClassifier(Superquantile(0.2)).fit(X, y)
    assert model.certificate_.value == pytest.approx(np.log(2), rel=1e-5)


@pytest.mark.parametrize("loss", [Logistic(), Hinge()])
def test_probabilities_of_a_tail_are_calibrated_to_the_rows(clinics, loss):
    X, y, _ = clinics
    model = RiskClassifier(Superquantile(0.85), loss=loss).fit(X, y)
    p = model.predict_proba(X)
    assert p.sum(1) == pytest.approx(1)
    assert p[:, 1].mean() == pytest.approx((y == model.classes_[1]).mean(), abs=0.01)
    slope, odds = model.calibration_.slope, np.log(p[:, 1] / p[:, 0])
    scores = model.decision_function(X)
    assert odds == pytest.approx(slope * scores + model.calibration_.offset)


@pytest.mark.parametrize(
    ("parameters", "error", "said"),
    [
        ({"risk": WassersteinBall(0.1, 1.0)}, TypeError, "risk must be"),
        ({"risk": LpBall(0.1)}, TypeError, "risk must be"),
        ({"risk": "superquantile"}, TypeError, "risk must be"),
        ({"risk": Superquantile}, TypeError, "risk must be a value, got the class"),
        ({"risk": Superquantile(0.2, prior="size")}, ValueError, "prior"),
        ({"risk": TopK(121)}, ValueError, "121"),
        ({"loss": Absolute()}, ValueError, "RiskClassifier needs a loss of the margin"),
        ({"tol": -1.0}, ValueError, "tol"),
    ],
)
def test_errors(clinics, parameters, error, said):
    X, y, _ = clinics
    with pytest.raises(error, match=said):
        RiskClassifier(**parameters).fit(X, y)


def test_errors_of_input(clinics):
    X, y, groups = clinics
    with pytest.raises(ValueError, match="one class"):
        RiskClassifier().fit(X, np.full(120, "ill"))
    with pytest.raises(ValueError, match="Only binary"):
        RiskClassifier().fit(X, groups)
    with pytest.raises(ValueError, match="one entry for each of the 120 rows"):
        RiskClassifier().fit(X, y, groups=groups[:3])
    with pytest.raises(ValueError, match="missing"):
        RiskClassifier().fit(X, y, groups=[None, *groups[1:]])
    with pytest.raises(ValueError, match="one type"):
        RiskClassifier().fit(X, y, groups=[1, "1"] * 60)
    with pytest.raises(TypeError, match="sample_weight"):
        RiskClassifier().fit(X, y, sample_weight=np.ones(120))
    with pytest.raises(ValueError, match="residual"):
        RiskRegressor(loss=Hinge()).fit(X, X[:, 0])
    with pytest.raises(NotFittedError):
        RiskClassifier().risk_report()


# ---- as part of scikit-learn


def test_clone_parameters_and_pickle(clinics):
    X, y, groups = clinics
    model = RiskClassifier(Extremile(2), loss=Hinge(), regulariser=L1(0.01), tol=1e-4)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(risk=Superquantile(0.85), fit_intercept=False).risk == Superquantile(
        0.85
    )
    again = pickle.loads(pickle.dumps(model.fit(X, y, groups=groups)))
    assert again.intercept_.tolist() == [0.0]
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.risk_report() == model.risk_report()


def test_warm_start(clinics):
    X, y, _ = clinics
    model = RiskClassifier(Superquantile(0.85), warm_start=True, algorithm=Bundle()).fit(X, y)
    first, value = first_objective(model), model.certificate_.value
    again = first_objective(model.fit(X, y))
    assert again == pytest.approx(value)
    assert value < 0.9 * first
    assert model.fit(X[:, :3], y).coef_.shape == (1, 3)  # another number of features: from zero


def first_objective(model):
    return next(row["objective"] for row in model.history_ if np.isfinite(row["objective"]))


def test_a_search_over_risks(clinics):
    X, y, _ = clinics
    grid = {"risk": [Mean(), Superquantile(0.9), Extremile(1.5)], "regulariser": [L2(1e-2)]}
    search = GridSearchCV(RiskClassifier(), grid, scoring=tail_loss, cv=3).fit(X, y)
    assert search.best_params_["risk"] in grid["risk"]
    own = [
        clone(search.estimator).set_params(risk=risk, regulariser=L2(1e-2)) for risk in grid["risk"]
    ]
    expected = [cross_val_score(model, X, y, scoring=tail_loss, cv=3).mean() for model in own]
    assert search.cv_results_["mean_test_score"] == pytest.approx(expected)
    assert len(set(expected)) == 3


def test_groups_are_routed(clinics):
    X, y, groups = clinics
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), RiskClassifier(Superquantile(0.9)))
        search = GridSearchCV(pipe, {"riskclassifier__tol": [1e-4]}, cv=GroupKFold(3)).fit(
            X, y, groups=groups
        )
    assert {row["group"] for row in search.best_estimator_[-1].risk_report()} == {
        "north",
        "south",
        "east",
    }
