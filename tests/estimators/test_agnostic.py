import pickle

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import bonafed as bf
from bonafed.estimators.agnostic import AgnosticClassifier
from bonafed.estimators.rows import MissingGroupsWarning
from bonafed.model_selection import cross_validate
from bonafed.rounds import Stop

CLOCK = bf.VirtualClock(stragglers={"east": 10.0}, wait=bf.First(2))


# the checks give no groups
@pytest.mark.filterwarnings("ignore::bonafed.MissingGroupsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [
        AgnosticClassifier(),
        AgnosticClassifier(model="softmax", engine="virtual", regulariser=bf.L2(0.1), tol=0.02),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def wards(clinics):
    """The rows of `clinics` with labels of three kinds."""
    X, _, groups = clinics
    noisy = X[:, 0] - X[:, 1] + 0.5 * np.random.default_rng(1).standard_normal(len(X))
    return X, np.array(["mild", "none", "severe"])[np.digitize(noisy, [-0.6, 0.6])], groups


def test_two_classes_are_the_worst_client_of_the_logistic_loss(clinics):
    """Against SciPy on the epigraph: minimise t + h(w) subject to F_j(w) <= t."""
    X, y, groups = clinics
    model = AgnosticClassifier(bf.Simplex(), regulariser=bf.L2(0.05)).fit(X, y, groups=groups)
    sign, names = np.where(y == "ill", 1.0, -1.0), model.clients_.tolist()

    def risks(v):
        margin = sign * (X @ v[:4] + v[4])
        return np.array([np.logaddexp(0, -margin[groups == name]).mean() for name in names])

    best = minimize(
        lambda v: v[5] + 0.025 * v[:4] @ v[:4],
        np.append(np.zeros(5), 1.0),
        constraints={"type": "ineq", "fun": lambda v: v[5] - risks(v)},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    v = np.append(model.coef_, model.intercept_)
    assert model.solution_.outcome.stop is Stop.OPTIMAL
    assert model.certificate_.value == pytest.approx(best.fun, rel=2e-6)
    assert model.certificate_.value == pytest.approx(
        risks(v).max() + 0.025 * (model.coef_**2).sum(), rel=1e-9
    )
    assert 0 <= model.certificate_.gap <= 1e-6 * model.certificate_.value * 1.01
    assert model.client_weights_.sum() == pytest.approx(1)
    ties = model.client_weights_ > 1e-3  # only the worst weigh
    assert risks(v)[ties] == pytest.approx(risks(v).max(), rel=1e-3)


@pytest.mark.parametrize("engine", [None, CLOCK], ids=["in process", "clock"])
def test_several_classes_by_hand(wards, engine):
    """Scores, probabilities and the objective of a softmax model, computed from its
    coefficients.
    """
    X, y, groups = wards
    model = AgnosticClassifier(bf.KLBall(0.1), prior="size", regulariser=bf.L2(0.02), engine=engine)
    model.fit(X, y, groups=groups)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-12)
    p = model.predict_proba(X)
    np.testing.assert_allclose(
        np.log(p), scores - logsumexp(scores, axis=1, keepdims=True), atol=1e-9
    )
    assert (model.predict(X) == model.classes_[scores.argmax(1)]).all()
    losses = -np.log(p[np.arange(len(y)), np.searchsorted(model.classes_, y)])
    risks = np.array([losses[groups == name].mean() for name in model.clients_])
    size = np.array([(groups == name).mean() for name in model.clients_])
    # intercepts are coefficients of ones
    h = 0.01 * ((model.coef_**2).sum() + (model.intercept_**2).sum())
    assert model.certificate_.value == pytest.approx(
        bf.KLBall(0.1, size).value(risks) + h, rel=1e-9
    )
    assert bf.KLBall(0.1, size).contains(model.client_weights_, 1e-6)
    assert 0 <= model.certificate_.relative_gap <= (1e-3 if engine else 1e-6) * 1.01


def test_a_slow_client_changes_the_time_and_not_the_model(clinics):
    X, y, groups = clinics
    exact = AgnosticClassifier(bf.Simplex(), regulariser=bf.L2(0.05)).fit(X, y, groups=groups)
    late = AgnosticClassifier(bf.Simplex(), regulariser=bf.L2(0.05), engine=CLOCK, tol=1e-4).fit(
        X, y, groups=groups
    )
    # 0.05-strongly convex: gap 1e-4 is 0.07 at most
    assert np.abs(late.coef_ - exact.coef_).max() < 0.05
    assert late.history_[-1]["time"] > 0
    assert late.n_iter_ == len(late.history_)
    assert "time" not in exact.history_[-1]
    assert AgnosticClassifier(engine="virtual").fit(X, y, groups=groups).history_[-1]["time"] > 0


def test_a_network_is_used_as_it_is_given(wards):
    X, y, groups = wards
    model = AgnosticClassifier(model=bf.MLP((4,), seed=2), regulariser=bf.L2(1e-2), tol=0.05)
    model.fit(X, y, groups=groups)
    assert model.predictor_ == bf.MLP((4,), classes=3, seed=2)
    assert not hasattr(model, "coef_")
    assert model.certificate_.bound is None
    assert model.solution_.outcome.stop is Stop.UNPROVEN
    (W, b), (V, c) = model.predictor_.layers(model.w_, 4)
    scores = np.tanh(X @ W.T + b) @ V.T + c
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1)
    assert model.score(X, y) > 0.6
    two = AgnosticClassifier(model=bf.MLP((4,)), regulariser=bf.L2(1e-2), tol=0.05).fit(
        X, y == "none", groups=groups
    )
    assert two.predictor_.classes is None
    assert two.decision_function(X).shape == (120,)


def test_softmax_of_two_classes(clinics):
    X, y, groups = clinics
    plain = {"uncertainty": bf.Simplex(), "fit_intercept": False}
    one = AgnosticClassifier(regulariser=bf.L2(0.05), **plain).fit(X, y, groups=groups)
    two = AgnosticClassifier(model="softmax", regulariser=bf.L2(0.1), **plain)
    two.fit(X, y, groups=groups)
    np.testing.assert_allclose(two.predict_proba(X), one.predict_proba(X), atol=5e-3)
    assert two.intercept_.tolist() == [0.0, 0.0]


def test_priors_and_sets(clinics):
    X, y, groups = clinics
    prior = {"north": 0.5, "south": 0.2, "east": 0.1, "west": 0.2}  # west is absent
    model = AgnosticClassifier(bf.CDNorm(0.0, 0.1), prior=prior).fit(X, y, groups=groups)
    assert model.client_weights_ == pytest.approx([prior[name] / 0.8 for name in model.clients_])
    own = AgnosticClassifier(bf.KLBall(0.0, "size")).fit(X, y, groups=groups)  # the set's own prior
    assert own.client_weights_ == pytest.approx([(groups == name).mean() for name in own.clients_])
    with pytest.raises(ValueError, match="has no prior"):
        AgnosticClassifier(bf.Simplex(), prior="size").fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="south"):
        AgnosticClassifier(bf.KLBall(0.1), prior={"north": 0.5, "east": 0.5}).fit(
            X, y, groups=groups
        )


@pytest.mark.parametrize("make", [lambda x: x, csr_array], ids=["dense", "sparse"])
def test_weights_equal_repeats_bit_for_bit(wards, make):
    X, y, groups = wards
    first = np.sort(np.unique(groups, return_index=True)[1])  # fixes the order of the clients
    weight = np.random.default_rng(0).integers(0, 4, 120)
    weight[first] = 1
    rows = np.repeat(np.arange(120), weight)
    rows = np.concatenate([first, rows[~np.isin(rows, first)]])
    one = AgnosticClassifier().fit(make(X), y, groups=groups, sample_weight=weight)
    two = AgnosticClassifier().fit(make(X[rows]), y[rows], groups=groups[rows])
    np.testing.assert_array_equal(one.w_, two.w_)
    for name, scores in one.client_scores_.items():
        assert scores["accuracy"] == pytest.approx(two.client_scores_[name]["accuracy"])


def test_client_report(clinics):
    X, y, groups = clinics
    model = AgnosticClassifier().fit(X, y, groups=groups)
    right = model.predict(X) == y
    for row in model.client_report():
        own = groups == row["client"]
        assert row["n"] == own.sum()
        assert row["accuracy"] == pytest.approx(right[own].mean())
        told = -np.log(model.predict_proba(X)[own, np.searchsorted(model.classes_, y[own])]).mean()
        assert row["loss"] == pytest.approx(told)
    with pytest.raises(NotFittedError):
        AgnosticClassifier().client_report()


def test_warm_start_and_warnings(clinics):
    X, y, groups = clinics
    slow = bf.MultiplierMethod(tol=1e-6)
    model = AgnosticClassifier(bf.Simplex(), algorithm=slow, warm_start=True)
    first = model.fit(X, y, groups=groups).n_iter_
    assert model.fit(X, y, groups=groups).n_iter_ < first / 2
    # another number of features: from zero
    assert model.fit(X[:, :2], y, groups=groups).coef_.shape == (1, 2)
    with pytest.warns(MissingGroupsWarning, match="worse off"):
        assert AgnosticClassifier().fit(X, y).clients_.tolist() == ["all"]
    with pytest.warns(ConvergenceWarning, match="max_rounds"):
        AgnosticClassifier(engine="virtual", max_rounds=3).fit(X, y, groups=groups)


@pytest.mark.parametrize(
    ("parameters", "kind", "said"),
    [
        ({"model": "logistic"}, ValueError, "'linear', 'softmax' or a value such as MLP"),
        ({"model": bf.MLP}, TypeError, r"write MLP\(\)"),
        ({"model": 3}, TypeError, "model must be"),
        ({"model": bf.Linear()}, ValueError, "one number a row, and there are 3 classes"),
        ({"model": bf.Softmax(2)}, ValueError, "3 classes"),
        ({"engine": "real"}, ValueError, "'virtual', a value such as InProcess"),
        ({"uncertainty": bf.Simplex}, TypeError, r"write Simplex\(\)"),
        ({"uncertainty": 0.1}, TypeError, r"such as Simplex\(\)"),
        ({"uncertainty": bf.KLBall(0.1), "prior": [0.5, 0.2, 0.2]}, ValueError, "sum to one"),
        ({"uncertainty": bf.Box(0.5, 1.0)}, ValueError, "empty|one"),
        ({"tol": -1.0}, ValueError, "tol must be"),
    ],
)
def test_errors(wards, parameters, kind, said):
    X, y, groups = wards
    with pytest.raises(kind, match=said):
        AgnosticClassifier(**parameters).fit(X, y, groups=groups)


def test_one_class_is_refused(clinics):
    X, _, groups = clinics
    with pytest.raises(ValueError, match="one class: 'ill'"):
        AgnosticClassifier().fit(X, np.full(120, "ill"), groups=groups)


def test_clone_and_pickle(wards):
    X, y, groups = wards
    model = AgnosticClassifier(bf.CDNorm(1.0, 0.2), model="softmax", engine=CLOCK, tol=1e-2)
    assert repr(clone(model).get_params()) == repr(model.get_params())
    again = pickle.loads(pickle.dumps(model.fit(X, y, groups=groups)))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_groups_are_routed(clinics):
    X, y, groups = clinics
    found = cross_validate(AgnosticClassifier(), X, y, groups=groups, cv=2, return_estimator=True)
    assert all(set(model.clients_) == set(groups) for model in found["estimator"])
