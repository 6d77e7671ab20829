"""ConstrainedClassifier: its optimum against other solvers, levels measured on raw rows, columns,
scikit-learn.
"""

import doctest
import itertools

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import bonafed as bf
from bonafed import ConstrainedClassifier
from bonafed.algorithms.federated.proximal_al.proximal_al import ProximalAL
from bonafed.estimators import constrained
from bonafed.estimators.scorers import WorstClassError

ILL, FINE = bf.NeymanPearson("ill", 0.2), bf.NeymanPearson("fine", 0.2)
NORTH_FIRST = ["north", "south", "east"]


def logistic(model, X, y):
    """The losses, from the coefficients."""
    margin = np.where(y == "ill", 1, -1) * (X @ model.coef_[0] + model.intercept_[0])
    return np.logaddexp(0, -margin)


# the checks give no groups
@pytest.mark.filterwarnings("ignore::bonafed.MissingGroupsWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([ConstrainedClassifier(), ConstrainedClassifier(bf.SmoothHinge())])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_examples():
    assert doctest.testmod(constrained).attempted > 8
    assert doctest.testmod(constrained).failed == 0


# ---- the model against independent solvers


def test_without_constraints_it_is_logistic_regression(clinics):
    X, y, groups = clinics
    model = ConstrainedClassifier(regulariser=bf.L2(0.05)).fit(X, y, groups=groups)
    other = LogisticRegression(C=1 / (120 * 0.05), tol=1e-10, max_iter=1000).fit(X, y)
    assert model.coef_ == pytest.approx(other.coef_, abs=1e-5)
    assert model.intercept_ == pytest.approx(other.intercept_, abs=1e-5)
    assert model.predict_proba(X) == pytest.approx(other.predict_proba(X), abs=1e-5)
    assert model.outcome_.stop is bf.Stop.OPTIMAL
    assert (model.constraints_, model.prices_) == ([], [])
    assert model.client_weights_ == pytest.approx([(groups == c).mean() for c in model.clients_])


def test_the_model_is_the_solution_of_the_stated_problem(clinics):
    X, y, groups = clinics
    level = {"north": 0.2, "south": 0.1, "east": 0.3, "west": 0.4}  # west has no rows here
    model = ConstrainedClassifier(
        local_constraint=bf.NeymanPearson("ill", level), objective_label="fine", prior="uniform"
    )
    model.fit(X, y, groups=groups)
    own = bf.NeymanPearson("ill", {name: level[name] for name in NORTH_FIRST})
    problem = bf.Problem(
        bf.Logistic(),
        bf.Linear(True),
        bf.Mean(label="fine"),
        bf.Mean("uniform"),
        bf.L2(1 / 120),
        local_constraint=own,
    )
    fed = bf.Federation.from_arrays(X, y, groups)
    found = bf.solve(problem, fed)
    w = np.append(model.coef_, model.intercept_)
    assert w == pytest.approx(found.w, abs=1e-6)
    assert model.multipliers_.local == pytest.approx(found.duals.local, abs=1e-6)
    assert model.certificate_.value == pytest.approx(problem.objective(w, fed), rel=1e-12)
    assert problem.violation(w, fed) <= 1e-8
    assert (
        [row["owner"] for row in model.constraints_]
        == model.clients_.tolist()
        == list(dict.fromkeys(groups))
    )
    assert [row["limit"] for row in model.constraints_] == [level[c] for c in model.clients_]
    assert model.client_weights_ == pytest.approx(1 / 3)


def test_neyman_pearson_against_a_conic_solver(clinics):
    """(30) with an intercept, as a program in exponential cones, with its multipliers."""
    X, y, groups = clinics
    sizes = {name: (groups == name).sum() for name in NORTH_FIRST}
    w, b, level = cp.Variable(4), cp.Variable(), 0.2

    def mean(name, label):
        rows = (groups == name) & (y == label)
        return cp.sum(cp.logistic((-1 if label == "ill" else 1) * (X[rows] @ w + b))) / rows.sum()

    bounds = {name: mean(name, "ill") <= level for name in NORTH_FIRST}
    objective = sum(
        sizes[name] / 120 * mean(name, "fine") for name in NORTH_FIRST
    ) + 0.005 * cp.sum_squares(w)
    program = cp.Problem(cp.Minimize(objective), list(bounds.values()))
    optimum = program.solve(solver="CLARABEL")
    model = ConstrainedClassifier(
        objective_label="fine", local_constraint=ILL, regulariser=bf.L2(0.01)
    )
    model.fit(X, y, groups=groups)
    assert model.certificate_.value == pytest.approx(optimum, rel=1e-6)
    assert model.certificate_.bound <= optimum * (1 + 1e-6)
    assert model.coef_[0] == pytest.approx(w.value, abs=1e-4)
    assert model.intercept_[0] == pytest.approx(float(b.value), abs=1e-4)
    prices = [float(bounds[name].dual_value) for name in model.clients_]
    assert model.multipliers_.local[:, 0] == pytest.approx(prices, abs=1e-4)
    assert max(prices) > 0.1


def test_the_worst_client_under_constraints_against_a_conic_solver(clinics):
    X, y, groups = clinics
    sign = np.where(y == "ill", 1.0, -1.0)
    w, b, t = cp.Variable(4), cp.Variable(), cp.Variable()
    losses = cp.logistic(-cp.multiply(sign, X @ w + b))
    masks = [groups == name for name in NORTH_FIRST]
    bounds = [cp.sum(losses[own]) / own.sum() <= t for own in masks]
    asked = [
        cp.sum(losses[own & (y == "ill")]) / (own & (y == "ill")).sum() <= 0.2 for own in masks
    ]
    program = cp.Problem(cp.Minimize(t + 0.005 * cp.sum_squares(w)), bounds + asked)
    optimum = program.solve(solver="CLARABEL")
    model = ConstrainedClassifier(
        local_constraint=ILL, over_clients=bf.Simplex(), regulariser=bf.L2(0.01)
    )
    model.fit(X, y, groups=groups)
    assert model.outcome_.stop is bf.Stop.OPTIMAL
    assert model.certificate_.value == pytest.approx(optimum, rel=1e-6)
    assert model.coef_[0] == pytest.approx(w.value, abs=1e-3)
    assert max(row["loss"] for row in model.client_report()) == pytest.approx(t.value, abs=1e-5)
    ball = clone(model).set_params(over_clients=bf.LpBall(0.1)).fit(X, y, groups=groups)
    assert np.linalg.norm(ball.client_weights_ - 1 / 3) <= 0.1 + 1e-6
    assert ball.certificate_.value < optimum


def test_a_price_is_what_relaxing_gains(clinics):
    X, y, groups = clinics

    def fit(level):
        model = ConstrainedClassifier(
            objective_label="fine", local_constraint=bf.NeymanPearson("ill", level)
        )
        return model.fit(X, y, groups=groups)

    level = dict.fromkeys(NORTH_FIRST, 0.2)
    tight = fit(level)
    dear = max(tight.constraints_, key=lambda row: row["price"])
    for change in (0.01, 0.001):
        gain = (
            tight.certificate_.value - fit(level | {dear["owner"]: 0.2 + change}).certificate_.value
        )
        assert 0.9 * dear["price"] * change < gain <= dear["price"] * change + 1e-8
    promised = f"{dear['price'] * 0.01:.3g}"
    assert tight.prices_[0].startswith(
        f"Relaxing the limit of {dear['owner']} on mean loss of class ill by 0.01"
    )
    assert tight.prices_[0].endswith(f"at most {promised}.")


# ---- the bound asked is what is measured, on raw rows


def means(value, *masks):
    return [value[mask].mean() for mask in masks]


def of_class(loss, score, y, sex):
    return means(loss, y == "ill")


def of_sexes(loss, score, y, sex):
    return means(loss, sex == "f", sex == "m")


def gap(loss, score, y, sex):
    return [abs(np.subtract(*means(loss, sex == "f", sex == "m")))]


def score_gap(loss, score, y, sex):
    return [abs(np.subtract(*means(score, sex == "f", sex == "m")))]


def odds_gap(loss, score, y, sex):
    return [
        abs(np.subtract(*means(score, (sex == "f") & (y == c), (sex == "m") & (y == c))))
        for c in ("ill", "fine")
    ]


@pytest.mark.parametrize(
    ("state", "measure", "level", "level_together"),
    [
        (lambda level: bf.NeymanPearson("ill", level), of_class, 0.2, 0.2),
        (lambda level: bf.BoundedGroupLoss("sex", level), of_sexes, 0.49, 0.417),
        (lambda level: bf.LossGap("sex", level), gap, 0.05, 0.05),
        (lambda level: bf.DemographicParity("sex", level, bf.Score()), score_gap, 0.1, 0.1),
        (lambda level: bf.EqualisedOdds("sex", level, bf.Score()), odds_gap, 0.3, 0.3),
    ],
    ids=["class", "groups", "gap", "parity", "odds"],
)
@pytest.mark.parametrize("together", [False, True])
def test_the_bound_asked_is_the_quantity_measured(
    clinics, sex, state, measure, level, level_together, together
):
    X, y, groups = clinics
    level = level_together if together else level
    slot = (
        {"constraint": bf.Coupled(state(level))} if together else {"local_constraint": state(level)}
    )
    parts = [np.ones(120, bool)] if together else [groups == name for name in NORTH_FIRST]

    def measured(model):
        loss, score = logistic(model, X, y), X @ model.coef_[0] + model.intercept_[0]
        return max(max(measure(loss[own], score[own], y[own], sex[own])) for own in parts)

    # it asks something
    free = ConstrainedClassifier(regulariser=bf.L2(1e-4)).fit(X, y, groups=groups)
    assert measured(free) > level + 0.003
    model = ConstrainedClassifier(**slot, regulariser=bf.L2(1e-4)).fit(
        X, y, groups=groups, sensitive_features=sex
    )
    assert measured(model) <= level + 1e-6
    assert all(row["met"] and row["limit"] == pytest.approx(level) for row in model.constraints_)
    assert max(row["measured"] for row in model.constraints_) == pytest.approx(
        measured(model), abs=1e-9
    )


def test_parity_is_of_probabilities_over_all_clients_together(clinics):
    X, y, groups = clinics
    sex, level = np.where(X[:, 0] + X[:, 2] > 0, "f", "m"), 0.1
    model = ConstrainedClassifier(constraint=bf.DemographicParity("sex", level))
    model.fit(X, y, groups=groups, sensitive_features=sex)
    p = 1 / (1 + np.exp(-model.decision_function(X)))
    free = ConstrainedClassifier().fit(X, y, groups=groups).predict_proba(X)[:, 1]
    assert abs(free[sex == "f"].mean() - free[sex == "m"].mean()) > level + 0.003
    assert abs(p[sex == "f"].mean() - p[sex == "m"].mean()) <= level + 1e-6
    assert {row["owner"] for row in model.constraints_} == {"all clients"}
    assert 0.2 < (model.predict(X) == "ill").mean() < 0.8  # not by selecting everybody


def test_rows_of_the_server(clinics, sex):
    X, y, groups = clinics
    own = groups == "east"
    X0, y0, sex0 = X[own], y[own], sex[own]
    bound = (bf.NeymanPearson("ill", 0.05), bf.LossGap("sex", 0.05))
    model = ConstrainedClassifier(constraint=bound)
    model.fit(X[~own], y[~own], groups=groups[~own], server=(X0, y0, {"sex": sex0}))
    loss = logistic(model, X0, y0)
    assert loss[y0 == "ill"].mean() <= 0.05 + 1e-6
    assert gap(loss, None, y0, sex0)[0] <= 0.05 + 1e-6
    assert [row["owner"] for row in model.constraints_] == ["server"] * 3
    assert sorted(model.clients_) == ["north", "south"]
    free = ConstrainedClassifier().fit(X[~own], y[~own], groups=groups[~own])
    assert logistic(free, X0, y0)[y0 == "ill"].mean() > 0.06
    one_column = ConstrainedClassifier(constraint=bound)
    one_column.fit(X[~own], y[~own], groups=groups[~own], server=(X0, y0, sex0))
    np.testing.assert_array_equal(one_column.coef_, model.coef_)
    by_name = ConstrainedClassifier(
        constraint=(bf.NeymanPearson("ill", {"server": 0.05}), bound[1])
    )
    by_name.fit(X[~own], y[~own], groups=groups[~own], server=(X0, y0, {"sex": sex0}))
    np.testing.assert_array_equal(by_name.coef_, model.coef_)
    with pytest.raises(ValueError, match="the federation has none"):
        ConstrainedClassifier(constraint=ILL).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="server must be"):
        ConstrainedClassifier(constraint=ILL).fit(X, y, groups=groups, server=X0)
    with pytest.raises(ValueError, match="3 features"):
        ConstrainedClassifier(constraint=ILL).fit(X, y, groups=groups, server=(X0[:, :3], y0))
    with pytest.raises(ValueError, match="outside the clients' classes"):
        ConstrainedClassifier(constraint=ILL).fit(
            X, y, groups=groups, server=(X0, np.full(20, "?"))
        )


# ---- clients, labels, rows


def test_clients_in_another_order(clinics):
    X, y, groups = clinics
    model = ConstrainedClassifier(local_constraint=ILL).fit(X, y, groups=groups)
    for names in itertools.permutations(NORTH_FIRST):
        order = np.concatenate([np.flatnonzero(groups == name) for name in names])
        other = ConstrainedClassifier(local_constraint=ILL).fit(
            X[order], y[order], groups=groups[order]
        )
        assert other.coef_ == pytest.approx(model.coef_, abs=1e-7)
        assert other.clients_.tolist() == list(names)
        at = [other.clients_.tolist().index(name) for name in model.clients_]
        assert other.multipliers_.local[at] == pytest.approx(model.multipliers_.local, abs=1e-7)
        assert [other.client_report()[i]["fnr"] for i in at] == [
            row["fnr"] for row in model.client_report()
        ]


@pytest.mark.parametrize(
    ("code", "label"),
    [
        (lambda ill: np.where(ill, 1, 0), 1),
        (lambda ill: np.where(ill, 2.0, -3.0), 2.0),
        (lambda ill: ill, True),
        (lambda ill: np.where(ill, "yes", "no").astype(object), "yes"),
        (lambda ill: pd.Series(np.where(ill, "yes", "no")), "yes"),
    ],
)
def test_labels_of_any_kind(clinics, code, label):
    X, y, groups = clinics
    model = ConstrainedClassifier(local_constraint=ILL).fit(X, y, groups=groups)
    stated = bf.NeymanPearson(label, 0.2)
    other = ConstrainedClassifier(local_constraint=stated).fit(X, code(y == "ill"), groups=groups)
    larger = other.classes_[1] == label  # "ill" is the larger of its two
    assert larger
    np.testing.assert_array_equal(other.coef_, model.coef_)
    assert (other.predict(X) == label).tolist() == (model.predict(X) == "ill").tolist()


@pytest.mark.parametrize("make", [lambda x: x, csr_array], ids=["dense", "sparse"])
def test_weights_equal_repeats_bit_for_bit(clinics, sex, make):
    X, y, groups = clinics
    rng = np.random.default_rng(0)
    first = np.sort(np.unique(groups, return_index=True)[1])  # fixes the order of the clients
    weight = rng.integers(0, 4, 120)
    weight[first] = 1
    rows = np.repeat(np.arange(120), weight)
    rows = np.concatenate([first, rng.permutation(rows[~np.isin(rows, first)])])
    model = ConstrainedClassifier(
        constraint=(
            bf.Coupled(ILL),
            bf.Coupled(bf.DemographicParity("sex", 0.2, bf.Score()), "size"),
        ),
        local_constraint=bf.EqualisedOdds("sex", 0.8, bf.Score()),
    )
    one = clone(model).fit(make(X), y, groups=groups, sample_weight=weight, sensitive_features=sex)
    two = clone(model).fit(
        make(X[rows]), y[rows], groups=groups[rows], sensitive_features=sex[rows]
    )
    np.testing.assert_array_equal(one.coef_, two.coef_)
    np.testing.assert_array_equal(one.intercept_, two.intercept_)
    for a, b in zip(one.client_report(), two.client_report(), strict=True):
        assert a | {"n": 0} == pytest.approx(b | {"n": 0}, abs=1e-12)
    other = clone(model).fit(make(X), y, groups=groups, sensitive_features=sex)
    assert np.abs(other.coef_ - one.coef_).max() > 1e-3  # the weights matter


def test_a_function_of_ones_own_sees_every_row_as_given(clinics):
    """Rows given twice are two rows to it; weights it cannot see."""
    X, y, groups = clinics
    rows = np.concatenate([np.arange(120), np.flatnonzero(y == "ill")])

    def mean(w, X, y):
        score = X @ w[:-1] + w[-1]
        return score.mean() - 0.1, np.append(X.mean(0), 1.0)

    own = bf.Constraint(mean, convex=True, hessian=lambda w, X, y, mu: np.zeros((len(w), len(w))))
    model = ConstrainedClassifier(local_constraint=own).fit(X[rows], y[rows], groups=groups[rows])
    score = model.decision_function(X[rows])
    assert max(score[groups[rows] == c].mean() for c in NORTH_FIRST) == pytest.approx(0.1, abs=1e-6)
    with pytest.raises(ValueError, match="sees rows without weights"):
        ConstrainedClassifier(local_constraint=own).fit(
            X, y, groups=groups, sample_weight=np.arange(1.0, 121.0)
        )


def test_a_client_without_the_class_is_asked_nothing_and_it_is_said(clinics):
    X, y, groups = clinics
    y = np.where(groups == "east", "fine", y)
    model = ConstrainedClassifier(local_constraint=ILL).fit(X, y, groups=groups)
    assert sorted(row["owner"] for row in model.constraints_) == ["north", "south"]
    assert any("mean loss of class ill at east" in note for note in model.solution_.notes)
    east = next(row for row in model.client_report() if row["client"] == "east")
    assert np.isnan(east["fnr"])


def test_the_report_has_levels_and_error_rates(clinics):
    X, y, groups = clinics
    model = ConstrainedClassifier(local_constraint=ILL).fit(X, y, groups=groups)
    rates = bf.group_rates(y, model.predict(X), groups, positive="ill")
    loss = logistic(model, X, y)
    for row in model.client_report():
        own = groups == row["client"]
        assert row["n"] == own.sum()
        assert row["loss"] == pytest.approx(loss[own].mean())
        assert row["measured"] == pytest.approx(loss[own & (y == "ill")].mean())
        assert row["slack"] == pytest.approx(0.2 - row["measured"])
        for name in ("accuracy", "selected", "fnr", "fpr"):
            assert row[name] == pytest.approx(getattr(rates[row["client"]], name))
    worst = max(row["fnr"] for row in model.client_report())
    assert WorstClassError("ill")(model, X, y, groups=groups) == pytest.approx(-worst)


def test_equal_rows_in_different_groups_stay_apart(clinics, sex):
    """Equal rows are one row of twice the weight only where their columns agree too."""
    X, y, groups = clinics
    twice = np.concatenate([np.arange(120), np.arange(120)])
    other = np.concatenate([sex, np.where(np.arange(120) < 60, sex, "m")])
    model = ConstrainedClassifier(
        constraint=bf.Coupled(bf.DemographicParity("sex", 0.05, bf.Score()))
    )
    model.fit(X[twice], y[twice], groups=groups[twice], sensitive_features=other)
    score = model.decision_function(X[twice])
    assert abs(score[other == "f"].mean() - score[other == "m"].mean()) == pytest.approx(
        0.05, abs=1e-6
    )


@pytest.mark.parametrize(
    "slots",
    [
        {"local_constraint": ILL},
        {"constraint": bf.Coupled(ILL)},
        {"local_constraint": ILL, "objective_label": "fine", "regulariser": bf.L1(0.01)},
        {
            "local_constraint": (bf.NeymanPearson("ill", 0.4), bf.BoundedGroupLoss("sex", 0.8)),
            "fit_intercept": False,
        },
    ],
)
def test_both_algorithms_find_the_same_model(clinics, sex, slots):
    X, y, groups = clinics
    given = {"groups": groups, "sensitive_features": sex}
    one, two = (
        ConstrainedClassifier(algorithm=how, **slots).fit(X, y, **given)
        for how in (None, ProximalAL(tol=1e-6))
    )
    assert two.certificate_.value == pytest.approx(one.certificate_.value, rel=1e-5)
    assert two.coef_ == pytest.approx(one.coef_, abs=1e-3)
    assert two.multipliers_.local == pytest.approx(one.multipliers_.local, abs=1e-3)
    assert two.certificate_.feasibility <= 1e-6
