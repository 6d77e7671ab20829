"""scikit-learn estimators and scorers; importing this imports scikit-learn."""

from quorate.estimators.fitting import MissingGroupsWarning, TrivialModelWarning
from quorate.estimators.ranked import RiskClassifier, RiskRegressor
from quorate.estimators.robust import RobustClassifier, RobustRegressor
from quorate.estimators.scorers import MinusLoss, WorstClient, worst_client_accuracy, worst_client_loss

__all__ = [
    "MinusLoss",
    "MissingGroupsWarning",
    "RiskClassifier",
    "RiskRegressor",
    "RobustClassifier",
    "RobustRegressor",
    "TrivialModelWarning",
    "WorstClient",
    "worst_client_accuracy",
    "worst_client_loss",
]
