"""All estimators are fitted in one way: names, feature names and predictions have one treatment."""

import numpy as np
import pandas as pd
import pytest

import bonafed as bf
from bonafed.estimators.base import FederatedModel

BY_CLIENT = (
    bf.RobustClassifier(),
    bf.RobustRegressor(),
    bf.AgnosticClassifier(),
    bf.ConstrainedClassifier(local_constraint=bf.NeymanPearson(1, 0.6)),
    bf.PrivateClassifier(rounds=3, random_state=0),
)
ALL = (*BY_CLIENT, bf.RiskClassifier(bf.Mean()), bf.RiskRegressor(bf.Mean()))
GROUPS = np.repeat([30, 4], 20)


def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((40, 2)), columns=["age", "dose"])
    return X, np.where(X["age"] + 0.5 * rng.standard_normal(40) > 0, 1, 0)


def named(model):
    return type(model).__name__


@pytest.mark.parametrize("model", ALL, ids=named)
def test_every_estimator_is_fitted_by_the_base(model):
    # a classifier and the regressor of its kind share theirs
    family = {"Robust": "_RobustModel", "Risk": "_RankModel"}.get(
        named(model).removesuffix("Classifier").removesuffix("Regressor"), named(model)
    )
    assert type(model).fit.__qualname__ == f"{family}.fit"
    assert type(model)._fit is FederatedModel._fit
    assert type(model)._solution is FederatedModel._solution
    X, y = rows()
    fitted = model.fit(X, y, groups=GROUPS)
    assert fitted.feature_names_in_.tolist() == ["age", "dose"]
    assert np.ravel(fitted.coef_).shape == (2,)
    assert fitted.predict(X).shape == (40,)


@pytest.mark.parametrize("model", BY_CLIENT, ids=named)
def test_client_names_stay_whole_numbers_and_the_model_is_that_of_text(model):
    X, y = rows()
    clients = model.fit(X, y, groups=GROUPS).clients_.tolist()
    coef = model.coef_
    assert sorted(clients) == [4, 30]
    if named(model) != "PrivateClassifier":
        assert [row["client"] for row in model.client_report()] == [30, 4]
        assert list(model.client_scores_) == [30, 4]
    text = model.fit(X, y, groups=GROUPS.astype(str))
    assert text.clients_.tolist() == [str(name) for name in clients]
    assert text.coef_.tolist() == coef.tolist()
