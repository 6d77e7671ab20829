"""The figures of `quorate.measures` for the predictions of a model, by the targets of its loss."""

from __future__ import annotations

from scipy.special import softmax

from quorate.arrays import Array
from quorate.measures import (
    Classification,
    Curves,
    Regression,
    SeveralClasses,
    classification,
    curves,
    regression,
    several_classes,
)
from quorate.problem.calibration import Sigmoid
from quorate.problem.losses import Logistic, Loss


def figures(
    loss: Loss, prediction: Array, y: Array, calibration: Sigmoid | None = None
) -> Classification | SeveralClasses | Regression:
    """The figures of predictions (n,), or (n, C) of C classes, of the targets y as the loss has
    them.
    """
    if loss.targets == "sign":
        return classification(y, prediction, probability(loss, prediction, calibration))
    if loss.targets == "class":
        return several_classes(y, softmax(prediction, axis=1))
    return regression(y, prediction)


def drawn(
    loss: Loss,
    prediction: Array,
    y: Array,
    calibration: Sigmoid | None = None,
    points: int = 101,
) -> Curves | None:
    """The curves of a model of two classes; None for others."""
    if loss.targets != "sign":
        return None
    return curves(y, prediction, probability(loss, prediction, calibration), points)


def probability(loss: Loss, score: Array, calibration: Sigmoid | None = None) -> Array | None:
    """(n,) the probability of the positive class; None where scores have no such meaning."""
    if calibration is None and isinstance(loss, Logistic):  # of a private run
        calibration = Sigmoid()
    return None if calibration is None else calibration.probability(score)
