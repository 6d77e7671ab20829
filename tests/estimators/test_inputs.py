"""What no estimator can fit is refused with the cells that are wrong, and what to do."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest

import bonafed as bf
from bonafed.data.row_errors import RowError

CLASSIFIERS = (
    bf.RobustClassifier,
    bf.AgnosticClassifier,
    bf.ConstrainedClassifier,
    bf.RiskClassifier,
    bf.PrivateClassifier,
)
REGRESSORS = bf.RobustRegressor, bf.RiskRegressor
N = 60


def rows():
    """A frame, classes, numbers and clients."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 2)), columns=["age", "dose"])
    score = X["age"].to_numpy() + rng.normal(size=N)
    return X, np.where(score > 0, "ill", "well"), score, np.arange(N) % 3


def refused(make, X, y):
    with pytest.raises(RowError) as said:
        make().fit(X, y, groups=np.arange(N) % 3)
    return str(said.value)


def with_cells(column, at, value):
    """The frame with some cells of a column changed."""
    X = rows()[0].astype(object)
    X.loc[at, column] = value
    return X


TABLES = [
    (with_cells("dose", [3, 7], None), "NaN", "column 'dose'", "rows 3, 7", "SimpleImputer"),
    (with_cells("dose", [3], float("nan")), "NaN", "column 'dose'", "row 3", "SimpleImputer"),
    (rows()[0].assign(x=pd.array([None] + [1] * (N - 1), dtype="Int64")), "NaN", "'x'", "row 0"),
    (with_cells("age", [5], "forty"), "text", "column 'age'", "row 5", "OneHotEncoder"),
    (with_cells("age", [5], datetime.date(2020, 1, 1)), "dates", "column 'age'", "row 5", "days"),
    (rows()[0].assign(d=pd.date_range("2020-01-01", periods=N)), "dates", "column 'd'", "days"),
    (rows()[0].assign(sex=pd.Categorical(["f", "m"] * (N // 2))), "text", "column 'sex'"),
    (np.where(np.eye(N, 2) > 0, np.nan, 1.0), "NaN", "columns 0, 1", "rows 0, 1"),
]


@pytest.mark.parametrize("make", [*CLASSIFIERS, *REGRESSORS])
@pytest.mark.parametrize("case", range(len(TABLES)))
def test_a_table_that_is_refused_names_its_columns_and_rows(make, case):
    X, *words = TABLES[case]
    _, y, score, _ = rows()
    text = refused(make, X, score if make in REGRESSORS else y)
    assert all(word in text for word in words), text
    assert ("forty" in text) == (case == 3 and make is not bf.PrivateClassifier)


def test_a_table_with_several_faults_names_all_of_them():
    X = with_cells("dose", [3], None)
    X.loc[5, "age"] = "forty"
    text = refused(bf.RobustClassifier, X, rows()[1])
    assert "text" in text
    assert "SimpleImputer" in text


@pytest.mark.parametrize("make", CLASSIFIERS)
@pytest.mark.parametrize(
    ("label", "said"),
    [(None, "missing"), (float("nan"), "missing"), (pd.NA, "missing"), (1, "other types")],
)
def test_labels_that_are_refused_are_named_by_row(make, label, said):
    X, y, _, _ = rows()
    labels = y.astype(object)
    labels[4] = label
    text = refused(make, X, labels)
    assert said in text
    assert ("row 4" in text) == (said == "missing")


@pytest.mark.parametrize("make", REGRESSORS)
def test_targets_that_are_no_numbers_are_named_by_row(make):
    X, y, score, _ = rows()
    assert "classifier" in refused(make, X, y)
    assert "row 4" in refused(make, X, np.where(np.arange(N) == 4, np.nan, score))


@pytest.mark.parametrize("make", [bf.RobustClassifier, bf.RobustRegressor, bf.RiskClassifier])
def test_a_table_to_predict_is_refused_in_the_same_words(make):
    X, y, score, groups = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make().fit(X, score if make in REGRESSORS else y, groups=groups)
    with pytest.raises(ValueError, match=r"NaN\) in column 'dose' in row 3"):
        model.predict(with_cells("dose", [3], None))


@pytest.mark.parametrize("make", [*CLASSIFIERS, *REGRESSORS])
def test_groups_may_be_a_column_of_the_table(make):
    X, y, score, groups = rows()
    table, target = X.assign(site=[f"s{g}" for g in groups]), score if make in REGRESSORS else y
    fixed = {"random_state": 0} if make is bf.PrivateClassifier else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(**fixed).fit(table, target, groups="site")
        other = make(**fixed).fit(X, target, groups=table["site"])
    assert model.coef_ == pytest.approx(other.coef_, rel=1e-9, abs=1e-12)
    assert (model.predict(table) == other.predict(X)).all()
    with pytest.raises(ValueError, match="is not a column of X"):
        make().fit(table, target, groups="sites")


def test_the_default_tail_survives_a_table_whose_program_is_not_solved():
    """A feature that is the target itself."""
    X, y, _, groups = rows()
    model = bf.RiskClassifier().fit(X.assign(copy=y == "ill"), y, groups=groups)
    assert model.solution_.problem.over_samples == bf.Superquantile(0.5)
    assert model.score(X.assign(copy=y == "ill"), y) > 0.9


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"label_cost": "inf"}, ValueError, "label_cost must be a number, got 'inf'"),
        ({"support": (0, 1)}, TypeError, "BoxSupport"),
        ({"client_radius": -1}, ValueError, "client_radius must be a number"),
        ({"client_radius": "auto"}, ValueError, "client_radius must be a number"),
        ({"fit_intercept": "yes"}, ValueError, "fit_intercept must be True or False"),
    ],
)
def test_parameters_that_are_refused_are_named_as_the_user_named_them(options, error, said):
    X, y, _, groups = rows()
    with pytest.raises(error, match=said):
        bf.RobustClassifier(**options).fit(X, y, groups=groups)


@pytest.mark.parametrize(
    "name", [name for name in dir(bf) if name.endswith(("Classifier", "Regressor"))]
)
def test_the_signature_of_an_estimator_is_that_of_its_own_init(name):
    """Python 3.11.2 takes an inherited `__new__` for the signature where a class has no own one."""
    assert "__init__" in getattr(bf, name).__dict__
