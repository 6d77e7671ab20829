"""ConstrainedClassifier: columns, what is said about ends and errors, and its place in
scikit-learn.
"""

import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bonafed as bf
from bonafed import ConstrainedClassifier, InfeasibleProblemError
from bonafed.estimators.rows import MissingGroupsWarning
from bonafed.estimators.scorers import WorstClassError
from bonafed.model_selection import cross_validate
from bonafed.solution.outcome import DONE, UNBOUNDABLE, UNMET, unproven

ILL, FINE = bf.NeymanPearson("ill", 0.2), bf.NeymanPearson("fine", 0.2)
NORTH_FIRST = ["north", "south", "east"]


# ---- columns


def test_sensitive_features_in_any_form(clinics, sex):
    X, y, groups = clinics
    stated = bf.LossGap("sex", 0.05)
    forms = [
        list(sex),
        {"sex": sex, "other": np.arange(120)},
        pd.Series(sex, name="sex"),
        pd.Series(sex),
        pd.Series(sex).astype("category"),
        pd.DataFrame({"sex": sex, "age": 1.0, "note": [None, "late"] * 60}),
        pl.Series(sex),
        pl.DataFrame({"sex": sex}),
        (sex == "m").astype(int),
        sex == "m",
    ]
    first = ConstrainedClassifier(local_constraint=stated).fit(
        X, y, groups=groups, sensitive_features=sex
    )
    for form in forms:
        model = ConstrainedClassifier(local_constraint=stated).fit(
            X, y, groups=groups, sensitive_features=form
        )
        np.testing.assert_array_equal(model.coef_, first.coef_)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            None,
            (
                "column 'sex', which is neither a feature nor among the sensitive features, of"
                " which there are none"
            ),
        ),
        (
            pd.Series(["f", "m"] * 60, name="gender"),
            "column 'sex', which is neither.*, .'gender'.: give fit",
        ),
        (["f", "m"], r"'sex'. must have one entry for each of 120 rows, got shape \(2,\)"),
        (["f", None] * 60, "missing in rows 1, 3, 5, 7, 9, ... .60 in all"),
        (np.array([0.0, np.nan] * 60), "missing in rows 1, 3"),
        (np.zeros((120, 2)), r"shape \(120, 2\) have no names"),
        (["f"] * 120, "two values, 'sex' has 1"),
    ],
)
def test_columns_that_do_not_fit(clinics, given, said):
    X, y, groups = clinics
    with pytest.raises(ValueError, match=said):
        ConstrainedClassifier(local_constraint=bf.LossGap("sex", 0.05)).fit(
            X, y, groups=groups, sensitive_features=given
        )


def test_one_column_for_two_names_is_refused(clinics, sex):
    X, y, groups = clinics
    two = (bf.LossGap("sex", 0.05), bf.LossGap("age", 0.05))
    with pytest.raises(ValueError, match="without a name, and the constraints name sex, age"):
        ConstrainedClassifier(local_constraint=two).fit(X, y, groups=groups, sensitive_features=sex)


def test_features_by_name(clinics, sex):
    X, y, groups = clinics
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(sex=(sex == "m").astype(float))
    stated = bf.LossGap("sex", 0.05)
    named = ConstrainedClassifier(local_constraint=stated).fit(table, y, groups=groups)
    given = ConstrainedClassifier(local_constraint=stated)
    given.fit(table.rename(columns={"sex": "e"}), y, groups=groups, sensitive_features=sex)
    np.testing.assert_array_equal(named.coef_, given.coef_)
    both = ConstrainedClassifier(constraint=bf.Coupled(stated))
    np.testing.assert_array_equal(
        clone(both).fit(table, y, groups=groups).coef_,
        both.fit(
            table.rename(columns={"sex": "e"}), y, groups=groups, sensitive_features=sex
        ).coef_,
    )
    assert named.feature_names_in_.tolist() == ["a", "b", "c", "d", "sex"]
    free = ConstrainedClassifier().fit(table, y, groups=groups)
    signed = ConstrainedClassifier(constraint=bf.Sign({"a": -1})).fit(table, y, groups=groups)
    assert free.coef_[0, 0] > 0.5
    assert signed.coef_[0, 0] <= 1e-9
    plain = ConstrainedClassifier(constraint=bf.Sign({"x0": -1})).fit(X, y, groups=groups)
    assert plain.coef_[0, 0] <= 1e-9


# ---- what is said


def test_an_infeasible_problem_raises_and_names_who_is_in_conflict(clinics):
    X, y, groups = clinics
    limits = {"north": 5.0, "south": 0.05, "east": 5.0}
    both = (bf.NeymanPearson("ill", limits), bf.NeymanPearson("fine", limits))
    model = ConstrainedClassifier(local_constraint=both)
    with pytest.raises(
        InfeasibleProblemError, match=r"breaks a limit by .*In conflict: south\. Relax"
    ) as caught:
        model.fit(X, y, groups=groups)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.owners == ("south",)
    with pytest.raises(NotFittedError):
        model.predict(X)
    south = groups == "south"
    w, b, t = cp.Variable(4), cp.Variable(), cp.Variable()
    rows = {label: south & (y == label) for label in ("ill", "fine")}
    losses = [
        cp.sum(cp.logistic((-1 if label == "ill" else 1) * (X[own] @ w + b))) / own.sum()
        for label, own in rows.items()
    ]
    least = cp.Problem(cp.Minimize(t), [loss <= 0.05 + t for loss in losses]).solve(
        solver="CLARABEL"
    )
    nearest = error.model
    assert nearest.certificate_.feasibility == pytest.approx(least, abs=1e-4)
    assert nearest.certificate_.infeasible <= least + 1e-6
    assert {row["owner"] for row in nearest.constraints_ if not row["met"]} == {"south"}
    assert nearest.prices_ == []
    assert nearest.predict(X).shape == (120,)


def test_an_infeasible_fit_leaves_nothing_of_the_last_one(clinics):
    X, y, groups = clinics
    model = ConstrainedClassifier().fit(X, y, groups=groups)
    model.set_params(local_constraint=(ILL, FINE))
    with pytest.raises(InfeasibleProblemError):
        model.fit(X, y, groups=groups)
    assert not [name for name in vars(model) if name.endswith("_")]
    model.set_params(local_constraint=ILL).fit(X, y, groups=groups)
    assert model.outcome_.stop is bf.Stop.OPTIMAL


def test_the_server_and_all_clients_are_named_in_conflicts(clinics):
    X, y, groups = clinics
    both = (bf.Coupled(bf.NeymanPearson("ill", 0.05)), bf.Coupled(bf.NeymanPearson("fine", 0.05)))
    with pytest.raises(InfeasibleProblemError) as caught:
        ConstrainedClassifier(constraint=both).fit(X, y, groups=groups)
    assert caught.value.owners == ("all clients together",)
    with pytest.raises(InfeasibleProblemError) as caught:
        ConstrainedClassifier(constraint=(ILL, FINE)).fit(
            X, y, groups=groups, server=(X[:60], y[:60])
        )
    assert caught.value.owners == ("the server",)


def test_a_cap_is_a_convergence_warning(clinics):
    X, y, groups = clinics
    with pytest.warns(ConvergenceWarning, match="Not met") as caught:
        model = ConstrainedClassifier(
            local_constraint=bf.NeymanPearson("ill", 0.05), max_rounds=2
        ).fit(X, y, groups=groups)
    assert caught[0].filename == __file__
    assert model.outcome_.stop is bf.Stop.MAX_ROUNDS


def test_contradictions_that_are_not_convex_warn_and_say_what_is_not_met(clinics, sex):
    X, y, groups = clinics
    model = ConstrainedClassifier(local_constraint=(ILL, FINE, bf.LossGap("sex", 0.05)))
    with pytest.warns(ConvergenceWarning, match=r"Not met: .*mean loss of class"):
        model.fit(X, y, groups=groups, sensitive_features=sex)
    assert model.outcome_.stop is not bf.Stop.OPTIMAL
    assert not all(row["met"] for row in model.constraints_)


@pytest.mark.parametrize(
    ("stop", "text", "warned"),
    [
        (bf.Stop.OPTIMAL, "relative gap 1e-12.", False),
        (bf.Stop.UNPROVEN, f"The constraints are not convex, {UNBOUNDABLE}.", False),
        (bf.Stop.UNPROVEN, f"The constraints are not convex, {UNBOUNDABLE}.{UNMET}a.", True),
        (bf.Stop.UNPROVEN, "The multipliers prove a relative gap 1e-1 only.", True),
        (bf.Stop.MAX_ROUNDS, f"Its multipliers prove a relative gap 1e-9. {DONE}", False),
        (bf.Stop.INTERRUPTED, "", True),
    ],
)
def test_which_ends_warn(stop, text, warned):
    assert unproven(stop, text) == warned


def test_what_is_not_convex_meets_its_constraints_without_a_bound_or_a_warning(clinics, sex):
    X, y, groups = clinics
    model = ConstrainedClassifier(local_constraint=bf.LossGap("sex", 0.05))
    model.fit(X, y, groups=groups, sensitive_features=sex)
    assert model.outcome_.stop is bf.Stop.UNPROVEN
    assert model.certificate_.bound is None
    assert model.certificate_.feasibility <= 1e-6
    assert model.certificate_.stationarity <= 1e-6
    assert "by about" in model.prices_[0]


def test_no_groups_is_one_client_and_warns(clinics):
    X, y, _ = clinics
    with pytest.warns(MissingGroupsWarning, match="hold for the pooled rows only"):
        model = ConstrainedClassifier(local_constraint=ILL).fit(X, y)
    together = ConstrainedClassifier(constraint=bf.Coupled(ILL)).fit(X, y, groups=["all"] * 120)
    assert model.coef_ == pytest.approx(together.coef_, abs=1e-6)
    assert model.clients_.tolist() == ["all"]


@pytest.mark.parametrize(
    ("parameters", "error", "said"),
    [
        ({"loss": bf.Squared()}, ValueError, "ConstrainedClassifier needs a loss of the margin"),
        ({"local_constraint": "np"}, TypeError, "local_constraint must be a value"),
        ({"local_constraint": bf.NeymanPearson}, TypeError, "local_constraint must be a value"),
        (
            {"local_constraint": bf.NeymanPearson(1, 0.2)},
            ValueError,
            "label 1 is not one of the two classes",
        ),
        (
            {"local_constraint": bf.NeymanPearson("ill", {"north": 0.1})},
            ValueError,
            "level by client name has no entry for .*south",
        ),
        ({"local_constraint": bf.Coupled(ILL)}, ValueError, "give it as constraint=Coupled"),
        ({"objective_label": "sick"}, ValueError, "label 'sick' is not one of"),
        ({"prior": [0.5, 0.2, 0.2]}, ValueError, "sum to one"),
        ({"prior": {"north": 1.0}}, ValueError, "south"),
        ({"tol": -1.0}, ValueError, "tol"),
        (
            {"local_constraint": ILL, "algorithm": bf.ADLPMM()},
            ValueError,
            "ADLPMM takes no constraints",
        ),
    ],
)
def test_errors(clinics, parameters, error, said):
    X, y, groups = clinics
    with pytest.raises(error, match=said):
        ConstrainedClassifier(**parameters).fit(X, y, groups=groups)


def test_a_negative_level_fails_when_made():
    with pytest.raises(ValueError, match="finite and >= 0"):
        bf.NeymanPearson("ill", -1)


def test_errors_of_input(clinics):
    X, y, groups = clinics
    with pytest.raises(ValueError, match="Only binary"):
        ConstrainedClassifier().fit(X, groups, groups=groups)
    with pytest.raises(ValueError, match="one class"):
        ConstrainedClassifier().fit(X, np.full(120, "ill"), groups=groups)
    with pytest.raises(ValueError, match="120 rows of X, got 3"):
        ConstrainedClassifier().fit(X, y, groups=groups[:3])
    with pytest.raises(NotFittedError):
        ConstrainedClassifier().client_report()
    assert not ConstrainedClassifier().__sklearn_tags__().classifier_tags.multi_class


# ---- as part of scikit-learn


def test_clone_parameters_and_pickle(clinics):
    X, y, groups = clinics
    model = ConstrainedClassifier(
        local_constraint=(ILL, bf.NeymanPearson("fine", 5.0)),
        over_clients=bf.Sum(),
        regulariser=bf.L2(1e-4),
    )
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model.fit(X, y, groups=groups)))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.constraints_ == model.constraints_
    mean = clone(model).set_params(over_clients=None, prior="uniform", regulariser=bf.L2(1e-4 / 3))
    # a third of the sum
    assert mean.fit(X, y, groups=groups).coef_ == pytest.approx(model.coef_, abs=1e-6)
    assert 3 * mean.multipliers_.local == pytest.approx(model.multipliers_.local, abs=1e-5)


def test_warm_start(clinics):
    X, y, groups = clinics
    model = ConstrainedClassifier(local_constraint=ILL, warm_start=True).fit(X, y, groups=groups)
    value = model.certificate_.value
    model.fit(X, y, groups=groups)
    assert model.history_[0]["objective"] == pytest.approx(value, rel=1e-6)
    assert model.certificate_.value == pytest.approx(value, rel=1e-8)
    # another number of features: from zero
    assert model.fit(X[:, :3], y, groups=groups).coef_.shape == (1, 3)


def test_what_fit_requests():
    assert ConstrainedClassifier().get_metadata_routing().fit.requests == {
        "groups": True,
        "sensitive_features": True,
        "sample_weight": None,
        "server": None,  # a Pipeline would pass it on without its steps
    }


def test_a_search_over_levels_in_a_pipeline(clinics, sex):
    """Groups and columns reach every fit; a level that no model meets is a failed fit, not a
    score.
    """
    X, y, groups = clinics
    levels = [None, bf.BoundedGroupLoss("sex", 0.45), bf.BoundedGroupLoss("sex", 0.01)]
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), ConstrainedClassifier())
        grid = {"constrainedclassifier__constraint": [c and bf.Coupled(c) for c in levels]}
        search = GridSearchCV(pipe, grid, scoring=WorstClassError("ill"), cv=3)
        failed = pytest.warns(FitFailedWarning, match="InfeasibleProblemError")
        with failed, pytest.warns(UserWarning, match="non-finite"):
            search.fit(X, y, groups=groups, sensitive_features=sex)
    scores = search.cv_results_["mean_test_score"]
    assert np.isnan(scores).tolist() == [False, False, True]
    best = search.best_estimator_[-1]
    assert set(best.clients_) == set(NORTH_FIRST)
    alone = clone(best).fit(
        StandardScaler().fit_transform(X), y, groups=groups, sensitive_features=sex
    )
    assert alone.coef_ == pytest.approx(best.coef_, abs=1e-9)


def test_levels_by_name_where_whole_clients_are_held_out(clinics):
    X, y, groups = clinics
    level = {"north": 0.2, "south": 0.25, "east": 0.3}
    stated = bf.NeymanPearson("ill", level)
    model = ConstrainedClassifier(
        local_constraint=stated, constraint=bf.Coupled(stated, dict.fromkeys(NORTH_FIRST, 1 / 3))
    )
    found = cross_validate(
        model, X, y, groups=groups, cv=GroupKFold(3), return_estimator=True, scoring="accuracy"
    )
    assert sorted(len(one.clients_) for one in found["estimator"]) == [2, 2, 2]
    for one in found["estimator"]:
        own = [row for row in one.constraints_ if row["owner"] != "all clients"]
        assert {row["owner"]: row["limit"] for row in own} == {
            name: level[name] for name in one.clients_
        }
        shared = next(row for row in one.constraints_ if row["owner"] == "all clients")
        assert shared["limit"] == pytest.approx(np.mean([level[name] for name in one.clients_]))
