"""Defaults and parameters that all estimators share: weights of classes, the positive class,
parameters inside of risks.
"""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import bonafed as bf

CLASSIFIERS = [bf.RobustClassifier, bf.AgnosticClassifier, bf.ConstrainedClassifier]


@pytest.fixture(scope="module")
def rare():
    """600 rows of three clients, 12 % of them ill."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4))
    score = X @ [1.5, -1.0, 0.5, 0.0] + rng.logistic(size=600)
    y = np.where(score > np.quantile(score, 0.88), "ill", "well")
    return X, y, rng.choice(["a", "b", "c"], 600, p=[0.5, 0.3, 0.2])


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_balanced_classes_weigh_as_in_scikit_learn(rare, make):
    """With the mean risk and the same penalty the model is scikit-learn's."""
    X, y, groups = rare
    mean = {
        bf.RobustClassifier: {"radius": 0.0, "client_radius": 0.0},
        bf.AgnosticClassifier: {"uncertainty": bf.Mean("size")},
        bf.ConstrainedClassifier: {},
    }[make]
    model = make(class_weight="balanced", regulariser=bf.L2(0.02), tol=1e-9, **mean)
    model.fit(X, y, groups=groups)
    other = LogisticRegression(C=1 / (600 * 0.02), class_weight="balanced", tol=1e-9).fit(X, y)
    assert model.coef_ == pytest.approx(other.coef_, abs=1e-4)
    assert model.intercept_ == pytest.approx(other.intercept_, abs=1e-4)
    counts = {"ill": 600 / (2 * (y == "ill").sum()), "well": 600 / (2 * (y == "well").sum())}
    same = clone(model).set_params(class_weight=counts).fit(X, y, groups=groups)
    assert same.coef_ == pytest.approx(model.coef_, abs=1e-6)


@pytest.mark.parametrize("make", CLASSIFIERS)
def test_probabilities_under_class_weights_are_those_of_the_rows(rare, make):
    X, y, groups = rare
    model = make(class_weight="balanced").fit(X, y, groups=groups)
    assert (model.predict(X) == "ill").mean() > 0.2
    assert model.predict_proba(X)[:, 0].mean() == pytest.approx((y == "ill").mean(), abs=0.01)


@pytest.mark.parametrize(
    ("weight", "said"),
    [("equal", "'balanced'"), ({"sick": 2.0}, "is not a class"), ({"ill": 0.0}, "> 0")],
)
def test_weights_of_no_class_are_refused(rare, weight, said):
    X, y, groups = rare
    with pytest.raises(ValueError, match=said):
        bf.RobustClassifier(class_weight=weight).fit(X, y, groups=groups)


@pytest.mark.filterwarnings("ignore::bonafed.RareClassWarning")
@pytest.mark.parametrize("make", [*CLASSIFIERS, bf.RiskClassifier])
def test_the_positive_class_is_the_one_that_figures_are_about(rare, make):
    X, y, groups = rare
    model = make(positive="ill").fit(X, y, groups=groups)
    assert model.classes_.tolist() == ["ill", "well"]  # as scikit-learn has them
    assert model.positive_ == "ill"
    found = (model.predict(X) == "ill")[(y == "ill") & (groups == "a")].mean()
    if make is bf.RiskClassifier:
        assert model.group_scores_["a"]["tpr"] == pytest.approx(found)
    elif make is bf.ConstrainedClassifier:
        assert model.client_scores_["a"]["fnr"] == pytest.approx(1 - found)
    else:
        assert model.client_scores_["a"]["recall"] == pytest.approx(found)
        assert model.client_scores_["a"]["auc"] > 0.8
        other = make().fit(X, y, groups=groups).client_scores_["a"]
        assert other["auc"] == pytest.approx(model.client_scores_["a"]["auc"])
        assert other["recall"] > 0.9  # of the class "well"
    with pytest.raises(ValueError, match="'sick' is not one of the classes"):
        make(positive="sick").fit(X, y, groups=groups)


def test_a_grid_reaches_the_tail_of_a_risk(rare):
    X, y, _ = rare
    risk = bf.Superquantile(0.9)
    search = GridSearchCV(bf.RiskClassifier(risk), {"risk__tail": [0.6, 0.8]}, cv=2)
    search.fit(X[:200], y[:200])
    assert search.best_estimator_.risk.tail == search.best_params_["risk__tail"]
    assert risk == bf.Superquantile(0.9)  # values stay as they are
    model = bf.RobustRegressor(bf.Huber(2.0), regulariser=bf.L2(0.1))
    assert model.get_params()["regulariser__strength"] == 0.1
    model.set_params(loss__threshold=3.0, regulariser=bf.L1(0.2), regulariser__strength=0.3)
    assert (model.loss, model.regulariser) == (bf.Huber(3.0), bf.L1(0.3))
    with pytest.raises(ValueError, match="no parameter 'tails', it has tail, prior"):
        bf.RiskClassifier(risk).set_params(risk__tails=0.5)


@pytest.mark.parametrize("make", [bf.RobustClassifier, bf.RiskClassifier, bf.ConstrainedClassifier])
def test_several_classes_are_refused_with_what_takes_them(rare, make):
    X, _, groups = rare
    with pytest.raises(ValueError, match=r"Only binary .* multiclass.* use AgnosticClassifier"):
        make().fit(X, np.arange(600) % 3, groups=groups)


def test_the_default_tail_is_never_one_at_which_a_constant_is_optimal():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 3))
    y = (0.5 * X[:, 0] + rng.logistic(size=300) > 0).astype(int)
    model = bf.RiskClassifier().fit(X, y)
    risk, problem = model.solution_.problem.over_samples, model.solution_.problem
    largest = bf.solution.thresholds.tail_threshold(
        problem, bf.Federation(("a",), (X,), (y,))
    ).value
    assert risk.tail == pytest.approx(min(1.0, max(0.5, 2 * largest)))
    assert largest > 0.3
    assert np.abs(model.coef_).max() > 0.1


@pytest.mark.filterwarnings("ignore::bonafed.RareClassWarning")
@pytest.mark.parametrize("share", [0.005, 0.02])
def test_no_more_than_the_stated_share_of_labels_flips(rare, share):
    X, y, groups = rare
    model = bf.RobustClassifier(label_flips=share).fit(X, y, groups=groups)
    ball = model.solution_.problem.over_samples
    assert ball.radius / ball.label_cost == pytest.approx(share)
    with pytest.raises(ValueError, match="label_cost then stays inf"):
        bf.RobustClassifier(label_flips=0.01, label_cost=1.0).fit(X, y, groups=groups)


@pytest.mark.parametrize("unit", [1e-3, 1e4])
def test_the_robust_regressor_does_not_depend_on_the_unit_of_the_target(unit):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 4))
    y = X @ [1.0, 2.0, 0.0, 0.0] + rng.standard_t(2, 300)
    groups = np.arange(300) % 3
    one = bf.RobustRegressor().fit(X, y, groups=groups)
    other = bf.RobustRegressor().fit(X, unit * y, groups=groups)
    assert other.coef_ / unit == pytest.approx(one.coef_, abs=1e-3)
    assert other.intercept_ / unit == pytest.approx(one.intercept_, abs=1e-3)
    assert other.loss_.threshold / unit == pytest.approx(one.loss_.threshold, rel=1e-4)


def test_a_rare_class_is_told_with_both_cuts(rare):
    X, y, groups = rare
    with pytest.warns(bf.RareClassWarning, match="The rarer class has 12.0% of the rows"):
        model = bf.RobustClassifier(positive="ill").fit(X, y, groups=groups)
    (said,) = [note for note in model.solution_.notes if "rarer class" in note]
    p = model.predict_proba(X)[:, 0]
    ill, share = y == "ill", (y == "ill").mean()
    for found in (p > 0.5, p >= share):
        recall, others = found[ill].mean(), found[~ill].mean()
        assert (
            f"{recall:.0%} of its rows (balanced accuracy {(recall + 1 - others) / 2:.2f})" in said
        )
    assert f"has {share:.1%} of the rows" in said
    even = bf.RobustClassifier().fit(X, X[:, 0] > 0, groups=groups).solution_.notes
    assert not any("rarer class" in note for note in even)


def test_one_row_with_much_weight_is_told():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 3))
    y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    groups = np.r_[9, np.arange(199) % 3]
    notes = bf.AgnosticClassifier(bf.Mean("uniform")).fit(X, y, groups=groups).solution_.notes
    assert any("Client 9: 1 row with 25% of the weight, 50 times its share" in n for n in notes)
    notes = bf.AgnosticClassifier().fit(X, y, groups=groups).solution_.notes
    assert not any("Client 9: 1 row" in note for note in notes)


def test_one_row_of_seven_hundred_gets_at_most_one_percent_of_the_weight():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((700, 3))
    y = (X[:, 0] + rng.logistic(size=700) > 0).astype(int)
    y[0] = 1 - (X[0, 0] > 0)
    groups = np.r_[9, np.arange(699) % 3]
    for make in (bf.RobustClassifier, bf.AgnosticClassifier):
        model = make().fit(X, y, groups=groups)
        assert model.client_weights_[0] < (0.01 if make is bf.RobustClassifier else 0.02)


def test_class_weights_of_a_problem_are_those_of_the_estimator(rare):
    X, y, groups = rare
    fed = bf.Federation.from_arrays(X, y, groups)
    ball = bf.WassersteinBall("auto", norm="linf")
    over, h = bf.ChiSquareBall(0.05, "size"), bf.L2(1e-4)
    problem = bf.Problem(
        bf.Logistic(), bf.Linear(True), ball, over, h, class_weight={"ill": 4.0, "well": 0.5}
    )
    solution = bf.solve(problem, fed)
    model = bf.RobustClassifier(class_weight=problem.class_weight).fit(X, y, groups=groups)
    assert solution.problem.over_samples.radius == pytest.approx(model.radius_[0], rel=1e-6)
    assert solution.w == pytest.approx(np.append(model.coef_, model.intercept_), abs=1e-4)
    assert solution.certificate.relative_gap <= 1e-6
    found, own = solution.calibration, model.calibration_
    assert (found.slope, found.offset) == pytest.approx((own.slope, own.offset), rel=1e-3)
    same = bf.solve(bf.Problem(bf.Logistic(), class_weight="balanced"), fed).certificate
    assert same.weights == pytest.approx(1 / 3)  # of the default prior, "uniform"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"loss": bf.Huber()}, "has no classes"),
        ({"privacy": bf.Budget(1.0, 1e-6)}, "not paid for"),
        ({"over_samples": bf.Superquantile(0.5)}, "one weight only"),
    ],
)
def test_class_weights_are_refused_where_rows_cannot_have_them(options, why):
    with pytest.raises(ValueError, match=why):
        bf.Problem(**{"loss": bf.Logistic(), **options}, class_weight="balanced")
