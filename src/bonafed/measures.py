"""The figures that people judge a model by, as pure functions of arrays.

    recall = TP / (TP + FN)    specificity = TN / (TN + FP)    precision = TP / (TP + FP)
    balanced accuracy = (recall + specificity) / 2
    AUC = P(score of a positive row > score of a negative one) + P(the two are equal) / 2
    Brier score = mean (p - t)^2    log loss = -mean ln p(class of the row)    t in {0, 1}
    R2 = 1 - sum (y - prediction)^2 / sum (y - mean y)^2

They are those of scikit-learn, which tests hold them to; here a thousand clients take one second,
and nothing of scikit-learn is loaded. A figure that the rows do not define, such as the AUC of one
class, is None. Rates of counted rows have exact intervals (Clopper and Pearson, 1934): whatever the
true rate is, such an interval misses it in at most 5 % of all samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from bonafed.arrays import Array

# A client is small where it has fewer rows, or fewer of some class: its figures are mostly chance.
FEW_ROWS, FEW_OF_A_CLASS = 10, 5
TIES = 1e-9  # scores closer than this share of a typical one are equal: only rounding parts them
RATES = {  # counts of right rows and of all rows, as keys of the confusion
    "accuracy": (("tp", "tn"), ("tp", "fp", "fn", "tn")),
    "recall": (("tp",), ("tp", "fn")),
    "precision": (("tp",), ("tp", "fp")),
    "specificity": (("tn",), ("tn", "fp")),
}


class Classification(TypedDict):
    """The figures of two classes, see `classification`."""

    n: int
    positives: int
    accuracy: float
    balanced_accuracy: float | None
    recall: float | None
    precision: float | None
    specificity: float | None
    auc: float | None
    brier: float | None
    log_loss: float | None
    confusion: dict[str, int] | dict[str, float]
    interval: NotRequired[dict[str, tuple[float, float]]]


class SeveralClasses(TypedDict):
    """The figures of three classes or more, see `several_classes`."""

    n: int
    counts: list[int]
    accuracy: float
    balanced_accuracy: float | None
    recalls: list[float | None]
    precisions: list[float | None]
    auc: float | None
    brier: float
    log_loss: float
    confusion: list[list[int]] | list[list[float]]
    interval: NotRequired[dict[str, tuple[float, float]]]


class Regression(TypedDict):
    """The figures of numbers, see `regression`."""

    n: int
    mae: float
    rmse: float
    r2: float | None


class Curves(TypedDict):
    """What is drawn of a model of two classes, see `curves`."""

    roc: list[list[float]]
    reliability: list[list[float]]


def classification(
    truth: ArrayLike,
    score: ArrayLike,
    probability: ArrayLike | None = None,
    weight: ArrayLike | None = None,
) -> Classification:
    """The figures of a model of two classes on some rows.

    Parameters
    ----------
    truth : (n,) above 0 where a row is of the positive class
    score : (n,) above 0 where a row is predicted positive
    probability : (n,) of the positive class; None: no Brier score and no log loss
    weight : (n,) of the rows; None: all alike, and rates have intervals

    Returns
    -------
    The figures by name. ``n`` and ``positives`` count rows, ``confusion`` sums weights; with
    weights there are no intervals, since a weighted rate is no count.

    Examples
    --------
    >>> from bonafed.measures import classification
    >>> figures = classification([1, 1, 0, 0], [0.3, -0.1, -0.2, -0.4])
    >>> figures["recall"], figures["specificity"], figures["auc"]
    (0.5, 1.0, 1.0)
    """
    positive, scores = np.asarray(truth) > 0, np.asarray(score, float)
    chosen, rows = scores > 0, _weights(weight, len(scores))
    cells = {"tp": positive & chosen, "fp": ~positive & chosen}
    cells |= {"fn": positive & ~chosen, "tn": ~positive & ~chosen}
    counts = {name: rows[cell].sum().item() for name, cell in cells.items()}
    p = None if probability is None else np.asarray(probability, float)
    figures = two_classes(
        counts,
        auc(positive, scores, rows),
        None if p is None else _mean((p - positive) ** 2, rows),
        None if p is None else _log_loss(np.where(positive, p, 1 - p), rows),
        weighted=weight is not None,
    )
    return {**figures, "n": len(scores), "positives": int(positive.sum())}


def two_classes(
    confusion: dict[str, Any],
    auc: float | None,
    brier: float | None,
    log_loss: float | None,
    weighted: bool = False,
) -> Classification:
    """The figures of two classes that follow from a confusion, beside three that do not.

    Parameters
    ----------
    confusion : rows, or sums of weights, as "tp", "fp", "fn" and "tn"
    weighted : whether these are no counts of rows; then nothing has an interval
    """
    rates = {name: _rate(confusion, name) for name in RATES}
    accuracy, recall, specificity = rates["accuracy"], rates["recall"], rates["specificity"]
    figures: Classification = {
        "n": sum(confusion.values()),
        "positives": confusion["tp"] + confusion["fn"],
        "accuracy": np.nan if accuracy is None else accuracy,
        "balanced_accuracy": (
            None if recall is None or specificity is None else (recall + specificity) / 2
        ),
        "recall": recall,
        "precision": rates["precision"],
        "specificity": specificity,
        "auc": auc,
        "brier": brier,
        "log_loss": log_loss,
        "confusion": confusion,
    }
    if not weighted:
        sums = {name: _counted(confusion, name) for name in RATES}
        figures["interval"] = {name: clopper_pearson(*sums[name]) for name in RATES}
    return figures


def several_classes(
    codes: ArrayLike, probabilities: ArrayLike, weight: ArrayLike | None = None
) -> SeveralClasses:
    """The figures of a model of C classes on some rows.

    Balanced accuracy is the mean recall of the classes that have rows, and None below two of them;
    AUC is the mean over classes of each against all others; the Brier score sums over classes.

    Parameters
    ----------
    codes : (n,) the number of each row's class, from 0
    probabilities : (n, C) of the classes; the likeliest one is predicted
    weight : (n,) of the rows; None: all alike, and the accuracy has an interval

    Examples
    --------
    >>> from bonafed.measures import several_classes
    >>> figures = several_classes([0, 1, 2], [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.5, 0.2, 0.3]])
    >>> figures["recalls"], figures["confusion"][2]
    ([1.0, 1.0, 0.0], [1, 0, 0])
    """
    truth, p = np.asarray(codes).astype(int), np.asarray(probabilities, float)
    (n, C), rows = p.shape, _weights(weight, len(p))
    confusion = np.zeros((C, C), rows.dtype)
    np.add.at(confusion, (truth, p.argmax(1)), rows)
    each = [auc(truth == c, p[:, c], rows) for c in range(C)]
    areas = [area for area in each if area is not None]
    figures = classes(
        confusion,
        float(np.mean(areas)) if len(areas) == C else None,
        _mean(((p - np.eye(C)[truth]) ** 2).sum(1), rows),
        _log_loss(p[np.arange(n), truth], rows),
        weighted=weight is not None,
    )
    return {**figures, "n": n, "counts": np.bincount(truth, minlength=C).tolist()}


def classes(
    confusion: NDArray[Any],
    auc: float | None,
    brier: float,
    log_loss: float,
    weighted: bool = False,
) -> SeveralClasses:
    """The figures of several classes that follow from a confusion, beside three that do not.

    Parameters
    ----------
    confusion : (C, C) rows, or sums of weights, by truth and prediction
    weighted : whether these are no counts of rows; then nothing has an interval
    """
    right, of, given = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    recalls, precisions = _ratios(right, of), _ratios(right, given)
    known = [recall for recall in recalls if recall is not None]
    figures: SeveralClasses = {
        "n": of.sum().item(),
        "counts": of.tolist(),
        "accuracy": float(right.sum() / of.sum()),
        "balanced_accuracy": float(np.mean(known)) if len(known) > 1 else None,
        "recalls": recalls,
        "precisions": precisions,
        "auc": auc,
        "brier": brier,
        "log_loss": log_loss,
        "confusion": confusion.tolist(),
    }
    if not weighted:
        n = int(confusion.sum())
        figures["interval"] = {"accuracy": clopper_pearson(int(right.sum()), n)}
    return figures


def regression(y: ArrayLike, prediction: ArrayLike, weight: ArrayLike | None = None) -> Regression:
    """Mean absolute error, root mean squared error and R2, which is None where y is constant.

    Parameters
    ----------
    y, prediction : (n,) numbers
    weight : (n,) of the rows; None: all alike

    Examples
    --------
    >>> from bonafed.measures import regression
    >>> regression([1.0, 2.0, 3.0], [1.0, 2.0, 5.0])["r2"]
    -1.0
    """
    target = np.asarray(y, float)
    rows, off = _weights(weight, len(target)), np.asarray(prediction, float) - target
    squared = _mean(off * off, rows)
    around = _mean((target - _mean(target, rows)) ** 2, rows)
    constant = len(target) < 2 or float(np.ptp(target)) == 0.0
    return {
        "n": len(target),
        "mae": _mean(np.abs(off), rows),
        "rmse": float(np.sqrt(squared)),
        "r2": None if constant or around == 0.0 else 1 - squared / around,
    }


def small(figures: Mapping[str, Any]) -> bool:
    """Whether the figures come of fewer than ``FEW_ROWS`` rows, or ``FEW_OF_A_CLASS`` of a class.

    Examples
    --------
    >>> from bonafed.measures import regression, small
    >>> small(regression([1.0, 2.0, 3.0], [1.0, 2.0, 5.0]))
    True
    """
    n: int = figures["n"]
    counts: list[int] = figures.get("counts", [])
    if "positives" in figures:
        counts = [figures["positives"], n - figures["positives"]]
    return n < FEW_ROWS or min(counts, default=n) < FEW_OF_A_CLASS


def auc(truth: ArrayLike, score: ArrayLike, weight: ArrayLike | None = None) -> float | None:
    """The area under the ROC curve; None where the rows have one class.

    Scores that only rounding parts are equal, so that a constant model has 1/2.

    Parameters
    ----------
    truth : (n,) above 0 where a row is of the positive class
    score : (n,) a larger one says that the row is rather positive
    weight : (n,) of the rows; None: all alike

    Examples
    --------
    >>> from bonafed.measures import auc
    >>> auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    positives, negatives = _by_score(truth, score, weight)
    scale = positives.sum() * negatives.sum()
    below = np.cumsum(negatives) - negatives / 2
    return float(positives @ below / scale) if scale > 0 else None


def curves(
    truth: ArrayLike, score: ArrayLike, probability: ArrayLike | None = None, points: int = 101
) -> Curves:
    """The ROC curve, and how often the rows of some probability are positive.

    Parameters
    ----------
    truth, score, probability : (n,) as in `classification`
    points : of the ROC curve, at most

    Returns
    -------
    ``roc``: false and true positive rate at the corners of the curve, from (0, 0) to (1, 1);
    nothing where the rows have one class. ``reliability``: mean probability, share of positives and
    number of rows in up to ten groups of neighbouring probabilities, of ten rows or more where
    there are so many; nothing without probabilities.

    Examples
    --------
    >>> from bonafed.measures import curves
    >>> curves([0, 1], [-1.0, 1.0])["roc"]
    [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    positives, negatives = _by_score(truth, score, None)
    steps = np.column_stack([negatives[::-1], positives[::-1]])
    path = np.vstack([np.zeros((1, 2)), np.cumsum(steps, 0)])
    roc: list[list[float]] = []
    if path[-1].all():
        (x, y), (to_x, to_y) = np.diff(path[:-1], axis=0).T, np.diff(path[1:], axis=0).T
        corners = path[np.concatenate([[True], x * to_y != y * to_x, [True]])]
        shown = np.unique(np.linspace(0, len(corners) - 1, points).round().astype(int))
        roc = (corners[shown] / path[-1]).tolist()
    if probability is None:
        return {"roc": roc, "reliability": []}
    positive, p = np.asarray(truth) > 0, np.asarray(probability, float)
    edges = np.quantile(p, np.linspace(0, 1, min(max(len(p) // 10, 1), 10) + 1)[1:-1])
    groups = np.searchsorted(np.unique(edges), p, side="left")
    of = [groups == k for k in np.unique(groups)]
    cells = [[float(p[g].mean()), float(positive[g].mean()), int(g.sum())] for g in of]
    return {"roc": roc, "reliability": cells}


def clopper_pearson(k: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a rate of which k of n rows were seen.

    Examples
    --------
    >>> from bonafed.measures import clopper_pearson
    >>> low, high = clopper_pearson(0, 10)
    >>> low, round(high, 4)
    (0.0, 0.3085)
    """
    tail = (1 - level) / 2
    low = float(betaincinv(k, n - k + 1, tail)) if k > 0 else 0.0
    return low, float(betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0


# ------------------------------------------------------------------------------------------ parts


def _weights(weight: ArrayLike | None, n: int) -> NDArray[Any]:
    return np.ones(n, int) if weight is None else np.asarray(weight, float)


def _mean(values: Array, rows: NDArray[Any]) -> float:
    return float(values @ rows / rows.sum())


def _log_loss(of_truth: Array, rows: NDArray[Any]) -> float:
    """-mean ln p of the probabilities of the true classes; none is below the smallest step of 1."""
    return -_mean(np.log(np.clip(of_truth, np.finfo(float).eps, 1.0)), rows)


def _counted(counts: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    right, of = RATES[name]
    return sum(counts[key] for key in right), sum(counts[key] for key in of)


def _rate(counts: Mapping[str, Any], name: str) -> float | None:
    right, of = _counted(counts, name)
    return float(right / of) if of else None


def _ratios(part: NDArray[Any], whole: NDArray[Any]) -> list[float | None]:
    return [float(a / b) if b else None for a, b in zip(part, whole, strict=True)]


def _by_score(
    truth: ArrayLike, score: ArrayLike, weight: ArrayLike | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The weights of positive and of negative rows at every different score, the lowest first."""
    positive, scores = np.asarray(truth) > 0, np.asarray(score, float)
    rows = _weights(weight, len(scores))
    step = TIES * float(np.median(np.abs(scores))) if len(scores) else 0.0
    _, place = np.unique(np.round(scores / step) if step else scores, return_inverse=True)
    size = int(place.max(initial=-1)) + 1
    above, below = (np.bincount(place, rows * of, size) for of in (positive, ~positive))
    return above, below
