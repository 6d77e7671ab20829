import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bonafed.estimators.robust import RobustClassifier, RobustRegressor
from bonafed.estimators.scorers import (
    MinusLoss,
    MinusRisk,
    WorstClassError,
    WorstClient,
    tail_loss,
    worst_client_accuracy,
    worst_client_loss,
)
from bonafed.problem.losses import Hinge
from bonafed.problem.risks.weight_sets import Superquantile


class Fixed:
    """Predictions by heart."""

    classes_ = np.array([0, 1])
    loss_ = Hinge()

    def predict(self, X):
        return (X[:, 0] > 0).astype(int)

    def decision_function(self, X):
        return X[:, 0]


X = np.array([[2.0], [-1.0], [0.5], [-0.5], [3.0]])
Y = np.array([1, 1, 1, 0, 0])
GROUPS = ["a", "a", "b", "b", "c"]


def test_by_hand():
    # right: yes no | yes yes | no; hinge: 0, 2 | .5, .5 | 4
    assert worst_client_accuracy(Fixed(), X, Y, groups=GROUPS) == 0.0
    assert worst_client_accuracy(Fixed(), X[:4], Y[:4], groups=GROUPS[:4]) == 0.5
    assert worst_client_loss(Fixed(), X, Y, groups=GROUPS) == -4.0
    assert worst_client_loss(Fixed(), X[:4], Y[:4], groups=GROUPS[:4]) == -1.0


def test_weights():
    weight = np.array([3.0, 1.0, 1.0, 1.0, 0.0])  # c counts for nothing: it is left out, not 0 / 0
    assert worst_client_accuracy(Fixed(), X, Y, groups=GROUPS, sample_weight=weight) == 0.75
    assert worst_client_loss(Fixed(), X, Y, groups=GROUPS, sample_weight=weight) == -0.5


def test_the_loss_is_that_of_the_trained_model(clinics):
    X, y, groups = clinics
    pipe = make_pipeline(StandardScaler(), RobustClassifier())
    pipe.fit(X, y, robustclassifier__groups=groups)
    losses = [row["loss"] for row in pipe[-1].client_report()]
    assert worst_client_loss(pipe, X, y, groups=groups) == pytest.approx(-max(losses))
    accuracies = [row["accuracy"] for row in pipe[-1].client_report()]
    assert worst_client_accuracy(pipe, X, y, groups=groups) == pytest.approx(min(accuracies))
    model = RobustRegressor().fit(X, X[:, 0], groups=groups)
    losses = [row["loss"] for row in model.client_report()]
    assert worst_client_loss(model, X, X[:, 0], groups=groups) == pytest.approx(-max(losses))


def test_a_foreign_model_needs_a_named_loss(clinics):
    X, y, groups = clinics
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"LogisticRegression has no attribute loss_"):
        worst_client_loss(model, X, y, groups=groups)
    scorer = WorstClient(MinusLoss(Hinge()), "worst_client_hinge")
    loss = np.maximum(0, 1 - np.where(y == "ill", 1, -1) * model.decision_function(X))
    assert scorer(model, X, y, groups=groups) == pytest.approx(
        -max(loss[groups == g].mean() for g in set(groups))
    )


def test_no_groups_is_an_error():
    with pytest.raises(ValueError, match=r"worst_client_accuracy got no groups.*cross_validate"):
        worst_client_accuracy(Fixed(), X, Y)


def test_the_tail_of_losses():
    # hinge: 0, 2, .5, .5, 4; the worst fifth is one row, the worst 30 % one row and half of the
    # next
    assert tail_loss(Fixed(), X, Y) == -4.0
    assert MinusRisk(Superquantile(0.3))(Fixed(), X, Y) == pytest.approx(-(4.0 + 0.5 * 2.0) / 1.5)
    assert MinusRisk(Superquantile(1.0), Hinge())(LogisticRegression().fit(X, Y), X, Y) <= 0


def test_the_error_rate_of_one_class():
    # predicted 1, 0 | 1, 0 | 1 of the classes 1, 1 | 1, 0 | 0
    assert WorstClassError(1)(Fixed(), X, Y, groups=GROUPS) == -0.5
    # a has no row of class 0, b none wrong, c all
    assert WorstClassError(0)(Fixed(), X, Y, groups=GROUPS) == -1.0
    assert WorstClassError(0)(Fixed(), X[:4], Y[:4], groups=GROUPS[:4]) == 0.0
    assert WorstClassError(1)(Fixed(), X, Y, groups=GROUPS, sample_weight=[3, 1, 1, 1, 1]) == -0.25
    with pytest.raises(ValueError, match="no row has the class 2"):
        WorstClassError(2)(Fixed(), X, Y, groups=GROUPS)
    with pytest.raises(ValueError, match="WorstClassError got no groups"):
        WorstClassError(1)(Fixed(), X, Y)
