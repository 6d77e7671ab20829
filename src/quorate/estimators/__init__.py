"""scikit-learn estimators and scorers; importing this imports scikit-learn."""

from quorate.estimators.fitting import MissingGroupsWarning, TrivialModelWarning
from quorate.estimators.ranked import RiskClassifier, RiskRegressor
from quorate.estimators.robust import RobustClassifier, RobustRegressor
from quorate.estimators.scorers import (
    MinusLoss,
    MinusRisk,
    WorstClient,
    tail_loss,
    worst_client_accuracy,
    worst_client_loss,
)

__all__ = [
    "MinusLoss",
    "MinusRisk",
    "MissingGroupsWarning",
    "RiskClassifier",
    "RiskRegressor",
    "RobustClassifier",
    "RobustRegressor",
    "TrivialModelWarning",
    "WorstClient",
    "tail_loss",
    "worst_client_accuracy",
    "worst_client_loss",
]
