"""What linear estimators share once they are fitted, whatever was minimised: scores, labels, probabilities, tags.

score = X w + b        predict = classes_[1] where score > 0        P(classes_[1]) = 1 / (1 + exp(-score))
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data

from quorate.arrays import Array
from quorate.problem.losses import Logistic, Loss


class LinearModel(BaseEstimator):
    """A score of every row, from ``coef_`` and ``intercept_``."""

    loss: Loss | None
    coef_: Array
    intercept_: Any
    default_loss: ClassVar[Any]
    targets: ClassVar[str]  # "sign" or "real", as in the losses
    losses_to_use: ClassVar[str]
    __metadata_request__fit = {"groups": True}  # noqa: RUF012  # scikit-learn's protocol: groups are always requested

    def _loss(self) -> Loss:
        """The loss; raises ``ValueError`` unless it takes the estimator's kind of targets."""
        loss = self.default_loss if self.loss is None else self.loss
        if getattr(loss, "targets", None) != self.targets:
            kind = "margin" if self.targets == "sign" else "residual"
            raise ValueError(
                f"{type(self).__name__} needs a loss of the {kind}, got {loss!r}. Use {self.losses_to_use}."
            )
        return loss

    def _raw(self, X: Any) -> Array:
        """``X w + b``, (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return safe_sparse_dot(X, np.ravel(self.coef_)) + float(np.ravel(self.intercept_)[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class TwoClasses(ClassifierMixin, LinearModel):
    """Labels by the sign of the score."""

    classes_: NDArray[Any]
    targets: ClassVar[str] = "sign"

    def _code(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Store the classes; -1 for the first and 1 for the second, (n,)."""
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) > 2:
            kind = type_of_target(y, input_name="y")
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs labels of two classes, got one class: {self.classes_[0]!r}. "
                "One client or group may hold a single class, but all rows together must hold two."
            )
        return np.where(y == self.classes_[1], 1, -1)

    def _set(self, w: Array) -> None:
        self.coef_, self.intercept_ = w[None, :-1], w[-1:]

    def decision_function(self, X: Any) -> Array:
        """(n,) scores; above 0 means ``classes_[1]``."""
        return self._raw(X)

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels."""
        score = self._raw(X)
        return self.classes_[(score > 0).astype(int)]

    @available_if(lambda self: isinstance(self._loss(), Logistic))
    def predict_proba(self, X: Any) -> Array:
        """(n, 2) probabilities of ``classes_``, with ``Logistic()`` only.

        They are calibrated for the mean loss alone. A Wasserstein radius and a risk that weighs large losses more draw
        them towards 1/2; one that leaves large losses out draws them towards 0 and 1. Calibrate on other rows
        (scikit-learn's ``CalibratedClassifierCV``) where their size matters.
        """
        from scipy.special import expit

        score = self._raw(X)
        return np.column_stack([expit(-score), expit(score)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class RealTargets(RegressorMixin, LinearModel):
    """The score is the prediction."""

    targets: ClassVar[str] = "real"

    def _set(self, w: Array) -> None:
        self.coef_, self.intercept_ = w[:-1], float(w[-1])

    def predict(self, X: Any) -> Array:
        """(n,) predictions."""
        return self._raw(X)
