"""scikit-learn estimators and scorers; importing this imports scikit-learn."""

from quorate.estimators.agnostic import AgnosticClassifier
from quorate.estimators.constrained import ConstrainedClassifier, InfeasibleProblemError
from quorate.estimators.private import PrivateClassifier
from quorate.estimators.ranked import RiskClassifier, RiskRegressor
from quorate.estimators.robust import RobustClassifier, RobustRegressor
from quorate.estimators.rows import MissingGroupsWarning
from quorate.estimators.scorers import (
    MinusLoss,
    MinusRisk,
    WorstClassError,
    WorstClient,
    tail_loss,
    worst_client_accuracy,
    worst_client_loss,
)
from quorate.solution.trivial import TrivialModelWarning

__all__ = [
    "AgnosticClassifier",
    "ConstrainedClassifier",
    "InfeasibleProblemError",
    "MinusLoss",
    "MinusRisk",
    "MissingGroupsWarning",
    "PrivateClassifier",
    "RiskClassifier",
    "RiskRegressor",
    "RobustClassifier",
    "RobustRegressor",
    "TrivialModelWarning",
    "WorstClassError",
    "WorstClient",
    "tail_loss",
    "worst_client_accuracy",
    "worst_client_loss",
]
