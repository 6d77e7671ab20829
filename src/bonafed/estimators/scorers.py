"""Scorers of the worst-served client and of the worst rows, for ``scoring=`` of cross_validate and
GridSearchCV.

    worst_client_accuracy = min_s accuracy on the rows of client s
            worst_client_loss = - max_s mean loss of client s
    tail_loss = - mean of the fifth of all rows with the largest losses

All are "larger is better". Those of clients request ``groups``, which reach them with metadata
routing only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from bonafed.arrays import Array, Features, Label
from bonafed.data.validation import grouped
from bonafed.estimators.rows import Groups
from bonafed.parameters import Checked
from bonafed.problem.losses import Loss
from bonafed.problem.risks.risk import Risk
from bonafed.problem.risks.weight_sets import Superquantile


@dataclass(frozen=True)
class WorstClient:
    """The smallest of the clients' mean scores; ``by_row(estimator, X, y)`` is the score of every
    row.

    Calling it with (estimator, X, y, groups=...) is scikit-learn's scorer protocol.
    """

    by_row: Callable[..., Array]
    name: str

    def __call__(
        self,
        estimator: BaseEstimator,
        X: Features,
        y: ArrayLike,
        *,
        groups: Groups | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """min over clients of the (weighted) mean score of its rows; clients whose weights are all
        0 are left out.
        """
        if groups is None:
            raise ValueError(
                f"{self.name} got no groups, so it cannot tell the clients apart. Use"
                " bonafed.model_selection.cross_validate, or"
                " sklearn.set_config(enable_metadata_routing=True)."
            )
        score = self.by_row(estimator, X, y)
        weight = np.ones_like(score) if sample_weight is None else np.asarray(sample_weight, float)
        picks = grouped(groups, len(score))[1]
        return min(float(np.average(score[p], weights=weight[p])) for p in picks if weight[p].any())

    def get_metadata_routing(self) -> MetadataRequest:
        """Request ``groups``; scikit-learn asks for it."""
        request = MetadataRequest(owner=self)
        request.score.add_request(param="groups", alias=True)
        return request


@dataclass(frozen=True)
class WorstClassError(Checked):
    """Minus the largest, over the clients, of the share of rows of one class that are predicted to
    be of another.

    With the positive class as ``label`` it is minus the largest false negative rate of a client:
    the error rate that stands behind the level of ``NeymanPearson(label, level)``. Clients without
    rows of the class are left out.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = fed.pooled().rows(0)
    >>> hospital = np.repeat(fed.clients, fed.sizes)
    >>> model = LogisticRegression().fit(X, y)  # any classifier
    >>> scorer = bf.WorstClassError("malignant")
    >>> -1 <= scorer(model, X, y, groups=hospital) <= 0
    True
    """

    label: Label

    def __call__(
        self,
        estimator: BaseEstimator,
        X: Features,
        y: ArrayLike,
        *,
        groups: Groups | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """As `WorstClient`; raises ``ValueError`` where no row has the class."""
        inside = (np.asarray(y) == self.label).astype(float)
        weight = inside if sample_weight is None else inside * np.asarray(sample_weight, float)
        if not weight.any():
            raise ValueError(
                f"WorstClassError: no row has the class {self.label!r}, so it has no error rate"
                " here."
            )
        worst = WorstClient(_right, "WorstClassError")
        return worst(estimator, X, y, groups=groups, sample_weight=weight) - 1.0

    def get_metadata_routing(self) -> MetadataRequest:
        """Request ``groups``; scikit-learn asks for it."""
        return WorstClient(_right, "WorstClassError").get_metadata_routing()


def _right(estimator: BaseEstimator, X: Features, y: ArrayLike) -> Array:
    model: Any = estimator
    return (np.asarray(model.predict(X)) == np.asarray(y)).astype(float)


@dataclass(frozen=True)
class MinusLoss:
    """Minus the loss of every row; ``loss`` None is the loss the estimator was trained with."""

    loss: Loss | None = None

    def __call__(self, estimator: BaseEstimator, X: Features, y: ArrayLike) -> Array:
        model: Any = estimator
        loss = self.loss or getattr(_last(estimator), "loss_", None)
        if loss is None:
            raise ValueError(
                f"{type(_last(estimator)).__name__} has no attribute loss_: name one, as in "
                "WorstClient(MinusLoss(Hinge()), 'worst_client_hinge')."
            )
        if loss.targets == "real":
            return -loss.value(np.asarray(model.predict(X), float), np.asarray(y, float))
        truth = np.where(np.asarray(y) == model.classes_[1], 1.0, -1.0)
        if loss.targets == "class":
            truth = np.searchsorted(model.classes_, y).astype(float)
        return -loss.value(np.asarray(model.decision_function(X)), truth)


@dataclass(frozen=True)
class MinusRisk:
    """Minus a risk of the losses of the rows scored; ``loss`` None is the loss the estimator was
    trained with.

    ``MinusRisk(Extremile(3))``, say, is a scorer that ranks models by their extremile on held-out
    rows.
    """

    risk: Risk
    loss: Loss | None = None

    def __call__(self, estimator: BaseEstimator, X: Features, y: ArrayLike) -> float:
        return -self.risk.value(-MinusLoss(self.loss)(estimator, X, y))


def _last(estimator: object) -> object:
    """The model inside a search and a pipeline."""
    if isinstance(estimator, Pipeline):
        return _last(estimator[-1])
    best = getattr(estimator, "best_estimator_", None)
    return estimator if best is None else _last(best)


worst_client_accuracy = WorstClient(_right, "worst_client_accuracy")
"""A scorer: the smallest of the clients' accuracies.

Examples
--------
>>> import numpy as np
>>> import bonafed as bf
>>> from bonafed.data import load
>>> fed = load.hospitals()
>>> from sklearn.linear_model import LogisticRegression
>>> X, y = fed.pooled().rows(0)
>>> hospital = np.repeat(fed.clients, fed.sizes)
>>> model = LogisticRegression().fit(X, y)  # any classifier
>>> bool(bf.worst_client_accuracy(model, X, y, groups=hospital) <= model.score(X, y))
True
"""
worst_client_loss = WorstClient(MinusLoss(), "worst_client_loss")
"""A scorer: minus the largest of the clients' mean losses.

Examples
--------
>>> import numpy as np
>>> import bonafed as bf
>>> from bonafed.data import load
>>> fed = load.hospitals()
>>> X, y = fed.pooled().rows(0)
>>> hospital = np.repeat(fed.clients, fed.sizes)
>>> model = bf.RobustClassifier().fit(X, y, groups=hospital)
>>> bf.worst_client_loss(model, X, y, groups=hospital) < 0
True
"""
tail_loss = MinusRisk(Superquantile(0.2))
"""A scorer: minus the mean of the fifth of all rows with the largest losses.

Examples
--------
>>> import numpy as np
>>> import bonafed as bf
>>> from bonafed.data import load
>>> fed = load.hospitals()
>>> X, y = fed.pooled().rows(0)
>>> hospital = np.repeat(fed.clients, fed.sizes)
>>> model = bf.RiskClassifier(bf.Superquantile(0.3)).fit(X, y, groups=hospital)
>>> bf.tail_loss(model, X, y) < 0
True
"""
