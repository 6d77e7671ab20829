"""scikit-learn estimators and scorers; importing this imports scikit-learn."""

from bonafed.estimators.agnostic import AgnosticClassifier
from bonafed.estimators.constrained import ConstrainedClassifier, InfeasibleProblemError
from bonafed.estimators.private import PrivateClassifier
from bonafed.estimators.ranked import RiskClassifier, RiskRegressor
from bonafed.estimators.robust import RobustClassifier, RobustRegressor
from bonafed.estimators.rows import MissingGroupsWarning
from bonafed.estimators.scorers import (
    MinusLoss,
    MinusRisk,
    WorstClassError,
    WorstClient,
    tail_loss,
    worst_client_accuracy,
    worst_client_loss,
)
from bonafed.solution.trivial import TrivialModelWarning

__all__ = ["AgnosticClassifier", "ConstrainedClassifier", "InfeasibleProblemError", "MinusLoss"]
__all__ += ["MinusRisk", "MissingGroupsWarning", "PrivateClassifier", "RiskClassifier"]
__all__ += ["RiskRegressor", "RobustClassifier", "RobustRegressor", "TrivialModelWarning"]
__all__ += ["WorstClassError", "WorstClient", "tail_loss", "worst_client_accuracy"]
__all__ += ["worst_client_loss"]
