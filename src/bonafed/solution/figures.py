"""The figures of `bonafed.measures` for the predictions of a model, by the targets of its loss."""

from __future__ import annotations

from scipy.special import softmax

from bonafed.arrays import Array
from bonafed.measures import (
    NUMBERS,
    SEVERAL,
    TWO,
    Curves,
    Figures,
    Task,
    classification,
    curves,
    regression,
    several_classes,
)
from bonafed.problem.calibration import Sigmoid
from bonafed.problem.losses import Logistic, Loss, expected


def figures(
    loss: Loss,
    prediction: Array,
    y: Array,
    calibration: Sigmoid | None = None,
    weight: Array | None = None,
) -> Figures:
    """The figures of predictions (n,), or (n, C) of C classes.

    Of two classes y is above 0 where a row is of the positive one, of several it has their numbers.
    """
    task = task_of(loss, prediction)
    if task == NUMBERS:
        return regression(y, expected(loss, prediction), weight)
    if task == SEVERAL:
        return several_classes(y, softmax(prediction, axis=1), weight)
    score = decisions(prediction)
    return classification(y, score, positive(loss, prediction, calibration), weight)


def task_of(loss: Loss, prediction: Array) -> Task:
    """Which figures predictions (n,), or (n, C) of C classes, have."""
    if loss.targets == "real":
        return NUMBERS
    return SEVERAL if prediction.ndim == 2 and prediction.shape[1] > 2 else TWO


def drawn(
    loss: Loss,
    prediction: Array,
    y: Array,
    calibration: Sigmoid | None = None,
    points: int = 101,
) -> Curves | None:
    """The curves of a model of two classes; None for others."""
    if task_of(loss, prediction) != TWO:
        return None
    return curves(y, decisions(prediction), positive(loss, prediction, calibration), points)


def decisions(scores: Array) -> Array:
    """The scores of several classes, (m, C); of two one number, (m,), above 0 for the last one."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1:] == (2,) else scores


def positive(loss: Loss, score: Array, calibration: Sigmoid | None = None) -> Array | None:
    """(n,) the probability of the positive one of two classes; None where scores have no such
    meaning.
    """
    if score.ndim == 2:
        return softmax(score, axis=1)[:, 1]
    if calibration is None and isinstance(loss, Logistic):  # of a private run
        calibration = Sigmoid()
    return None if calibration is None else calibration.probability(score)
