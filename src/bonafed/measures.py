"""The figures that people judge a model by, as pure functions of arrays.

    recall = TP / (TP + FN)    specificity = TN / (TN + FP)    precision = TP / (TP + FP)
    balanced accuracy = (recall + specificity) / 2
    AUC = P(score of a positive row > score of a negative one) + P(the two are equal) / 2
    average precision = sum over scores s, downwards, of (growth of recall at s) (precision at s)
    Brier score = mean (p - t)^2    log loss = -mean ln p(class of the row)    t in {0, 1}
    R2 = 1 - sum (y - prediction)^2 / sum (y - mean y)^2

They are those of scikit-learn, which tests hold them to; here a thousand clients take one second,
and nothing of scikit-learn is loaded. Each is a row of ``FIGURES``, which runs, judging over sites,
verification, reports and docs go through. A figure that the rows do not define, such as the AUC of
one class, is None. Rates of counted rows have exact intervals (Clopper and Pearson, 1934): whatever
the true rate is, such an interval misses it in at most 5 % of all samples.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from bonafed.arrays import Array

# A client is small where it has fewer rows, or fewer of some class: its figures are mostly chance.
FEW_ROWS, FEW_OF_A_CLASS = 10, 5
TIES = 1e-9  # scores closer than this share of a typical one are equal: only rounding parts them
CELLS = ("tp", "fp", "fn", "tn")  # of the confusion of two classes

Task: TypeAlias = Literal["two classes", "several classes", "numbers"]
Figures: TypeAlias = dict[str, Any]
Rows: TypeAlias = NDArray[Any]  # a number of each row
Weights: TypeAlias = ArrayLike | None  # of the rows; None: all alike
TWO: Final = "two classes"
SEVERAL: Final = "several classes"
NUMBERS: Final = "numbers"
OF_TWO: tuple[Task, ...] = (TWO,)
OF_CLASSES: tuple[Task, ...] = (TWO, SEVERAL)
OF_NUMBERS: tuple[Task, ...] = (NUMBERS,)


@dataclass(frozen=True)
class Figure:
    """A figure: how it follows from rows, and how people read it.

    Attributes
    ----------
    key, title : its name in results and in tables
    of, value : what it is a function of, and the function. "rate": of the confusion (C, C) by truth
        and prediction, the counted rows and all of them, which have an exact interval; "confusion":
        of the same, a number; "losses": of the truth (n,) and the probabilities (numbers: the
        predictions), a number of each row, whose mean is the figure; "scores": of the truth, the
        scores and the weights of rows, a number, of several classes the mean of each against all
        others
    meaning : in words, with {positive} and {negative} for the classes
    shown : how it is written
    place : in tables of a set of rows, from the left or top; None: it is not in them
    beside : whether it is compared between runs
    tasks : in which it is stated
    higher : whether a larger one is better
    least, most : the numbers that it can be
    root : whether it is the square root of the mean
    short : its title in the list of all figures, where that is another one
    kept : why a site does not tell it; nothing: it does
    apart : why rows of several sites have none together; of losses they have
    """

    key: str
    title: str
    of: Literal["rate", "confusion", "losses", "scores"]
    value: Callable[..., Any]
    meaning: str
    shown: Literal["percent", "area", "number"] = "number"
    place: int | None = None
    beside: bool = False
    tasks: tuple[Task, ...] = OF_CLASSES
    higher: bool = True
    least: float = 0.0
    most: float = 1.0
    root: bool = False
    short: str = ""
    kept: str = ""
    apart: str = ""

    @property
    def spoken(self) -> str:
        """What it is called in a sentence."""
        named = self.title.isupper() or self.key == "brier"
        return self.title if named else self.title.lower()

    @property
    def counted(self) -> bool:
        """Whether it follows from a confusion."""
        return self.of in ("rate", "confusion")

    @property
    def lacking(self) -> str:
        """Why a run over sites does not have it of all held-out rows; nothing where it has."""
        if self.kept:
            return f"{self.title}, which no site tells: {self.kept}"
        return f"{self.title}, which each site tells of its rows: {self.apart}" * bool(self.apart)

    def always(self, task: Task) -> bool:
        """Whether all rows of a task define it, as they do a mean loss but for probabilities that a
        model of two classes need not have.
        """
        return self.of == "losses" and task != TWO

    def of_cells(self, confusion: NDArray[Any]) -> float | None:
        """The figure of counts."""
        if self.of == "confusion":
            return self.value(confusion)
        right, of = self.value(confusion)
        return float(right / of) if of else None

    def of_rows(self, truth: Rows, score: Array, given: Array | None, rows: Rows) -> float | None:
        """The figure of rows; ``given`` are probabilities, or predictions of numbers."""
        if self.of == "losses":
            mean = None if given is None else _mean(self.value(truth, given), rows)
            return float(np.sqrt(mean)) if self.root and mean is not None else mean
        if score.ndim == 1:
            return self.value(truth, score, rows)
        each = [self.value(truth == c, score[:, c], rows) for c in range(score.shape[1])]
        return None if None in each else float(np.mean(each))


def in_cells(confusion: NDArray[Any]) -> dict[str, Any]:
    """The confusion (2, 2) of two classes, by truth and prediction, as named cells."""
    return dict(zip(CELLS, confusion[::-1, ::-1].T.ravel().tolist(), strict=True))


def of_cells(cells: Mapping[str, float]) -> Array:
    """(2, 2) the confusion of named cells: the inverse of ``in_cells``."""
    return np.array([cells[cell] for cell in CELLS], float).reshape(2, 2).T[::-1, ::-1]


def figures_of(task: Task | None = None) -> list[Figure]:
    """The figures of a task, or all."""
    return [figure for figure in FIGURES if task is None or task in figure.tasks]


def told(task: Task) -> list[Figure]:
    """The figures of a task that a site tells beside its confusion, in the order of an answer."""
    return [figure for figure in figures_of(task) if not figure.counted and not figure.kept]


def losses(task: Task, truth: Rows, given: Array | None) -> list[Array]:
    """(n,) each: the numbers of rows whose means are figures."""
    some = [figure for figure in figures_of(task) if figure.of == "losses"]
    return [] if given is None else [figure.value(truth, given) for figure in some]


def about(classes: Any, positive: object = None) -> list[str]:
    """A line that says which of two classes figures are about: the last one, or the one that is
    named; no line of other targets.
    """
    last = classes[1:] if classes is not None and len(classes) == 2 else ()
    return [
        f"figures and probabilities are about the class {c if positive is None else positive}"
        for c in last
    ]


def documented() -> str:
    """All figures as a table of the docs."""
    lines = ["| figure | of | better | over sites | what it says |", "|---|---|---|---|---|"]
    for each in FIGURES:
        sites = f"of each site; {each.apart}" if each.apart else "of all rows"
        sites = f"not told: {each.kept}" if each.kept else sites
        better = "larger" if each.higher else "smaller"
        said = each.meaning.format(positive="the positive class", negative="the other class")
        cells = (each.title, ", ".join(each.tasks), better, sites, said)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


class Curves(TypedDict):
    """What is drawn of a model of two classes, see `curves`."""

    roc: list[list[float]]
    reliability: list[list[float]]


def classification(
    truth: ArrayLike, score: ArrayLike, probability: ArrayLike | None = None, weight: Weights = None
) -> Figures:
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
    weights there are no intervals, since a weighted rate is not a count.

    Examples
    --------
    >>> from bonafed.measures import classification
    >>> figures = classification([1, 1, 0, 0], [0.3, -0.1, -0.2, -0.4])
    >>> figures["recall"], figures["specificity"], figures["auc"]
    (0.5, 1.0, 1.0)
    """
    true, scores = np.asarray(truth) > 0, np.asarray(score, float)
    said, rows = scores > 0, _weights(weight, len(scores))
    cells = np.array([[rows[t & s].sum() for s in (~said, said)] for t in (~true, true)])
    p = None if probability is None else np.asarray(probability, float)
    figures = stated(TWO, cells, _told(TWO, true, scores, p, rows), weight is not None)
    return {**figures, "n": len(scores), "positives": int(true.sum())}


def several_classes(codes: ArrayLike, probabilities: ArrayLike, weight: Weights = None) -> Figures:
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
    cells = np.zeros((C, C), rows.dtype)
    np.add.at(cells, (truth, p.argmax(1)), rows)
    figures = stated(SEVERAL, cells, _told(SEVERAL, truth, p, p, rows), weight is not None)
    return {**figures, "n": n, "counts": np.bincount(truth, minlength=C).tolist()}


def stated(task: Task, confusion: NDArray[Any], told: Figures, weighted: bool = False) -> Figures:
    """The figures of classes that follow from a confusion, beside those that do not.

    Parameters
    ----------
    confusion : (C, C) rows, or sums of weights, by truth and prediction
    told : the figures that do not follow from it; None for those that are lacking
    weighted : whether the cells are not counts of rows; then nothing has an interval
    """
    of, known = confusion.sum(1), figures_of(task)
    figures: Figures = {"n": of.sum().item()}
    figures |= {"positives": of[1].item()} if task == TWO else {"counts": of.tolist()}
    figures |= {each.key: each.of_cells(confusion) for each in known if each.counted}
    if task == SEVERAL:
        right, given = np.diag(confusion), confusion.sum(0)
        figures |= {"recalls": _ratios(right, of), "precisions": _ratios(right, given)}
    figures |= {each.key: told.get(each.key) for each in known if not each.counted}
    figures["confusion"] = in_cells(confusion) if task == TWO else confusion.tolist()
    if not weighted:
        rates = {each.key: each.value(confusion) for each in known if each.of == "rate"}
        figures["interval"] = {key: clopper_pearson(*map(int, rate)) for key, rate in rates.items()}
    return figures


def regression(y: ArrayLike, prediction: ArrayLike, weight: Weights = None) -> Figures:
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
    target, predicted = np.asarray(y, float), np.asarray(prediction, float)
    rows = _weights(weight, len(target))
    return {"n": len(target), **_told(NUMBERS, target, predicted, predicted, rows)}


def small(figures: Mapping[str, Any]) -> bool:
    """Whether the figures come of fewer than ``FEW_ROWS`` rows, or ``FEW_OF_A_CLASS`` of a class.

    Examples
    --------
    >>> from bonafed.measures import regression, small
    >>> small(regression([1.0, 2.0, 3.0], [1.0, 2.0, 5.0]))
    True
    """
    n, positives = figures["n"], figures.get("positives")
    counts = figures.get("counts", []) if positives is None else [positives, n - positives]
    return n < FEW_ROWS or min(counts, default=n) < FEW_OF_A_CLASS


def auc(truth: ArrayLike, score: ArrayLike, weight: Weights = None) -> float | None:
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


def beyond_chance(area: float, n: int, positives: int) -> float:
    """By how many standard errors of scores that say nothing an AUC is above 1/2, of so many rows
    of both classes.
    """
    return (area - 0.5) / float(np.sqrt((n + 1) / (12 * positives * (n - positives))))


def average_precision(truth: ArrayLike, score: ArrayLike, weight: Weights = None) -> float | None:
    """The area under the steps of the precision-recall curve; None without positive rows.

    Parameters
    ----------
    truth, score, weight : (n,) as of `auc`; rows of equal scores are one step

    Examples
    --------
    >>> from bonafed.measures import average_precision
    >>> round(average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 4)
    0.8333
    """
    positives, negatives = (each[::-1] for each in _by_score(truth, score, weight))
    found, called = np.cumsum(positives), np.cumsum(positives + negatives)
    precision = found / np.where(called > 0, called, 1)
    return float(positives @ precision / positives.sum()) if positives.sum() > 0 else None


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


def _weights(weight: Weights, n: int) -> NDArray[Any]:
    return np.ones(n, int) if weight is None else np.asarray(weight, float)


def _mean(values: Array, rows: Rows) -> float:
    return float(values @ rows / rows.sum())


def _told(task: Task, truth: Rows, score: Array, given: Array | None, rows: Rows) -> Figures:
    """The figures that do not follow from a confusion."""
    known = [figure for figure in figures_of(task) if not figure.counted]
    return {figure.key: figure.of_rows(truth, score, given, rows) for figure in known}


def _ratios(part: NDArray[Any], whole: NDArray[Any]) -> list[float | None]:
    return [float(a / b) if b else None for a, b in zip(part, whole, strict=True)]


def _by_score(truth: ArrayLike, score: ArrayLike, weight: Weights) -> tuple[Rows, Rows]:
    """The weights of positive and of negative rows at every different score, the lowest first."""
    positive, scores = np.asarray(truth) > 0, np.asarray(score, float)
    rows = _weights(weight, len(scores))
    step = TIES * float(np.median(np.abs(scores))) if len(scores) else 0.0
    _, place = np.unique(np.round(scores / step) if step else scores, return_inverse=True)
    size = int(place.max(initial=-1)) + 1
    above, below = (np.bincount(place, rows * of, size) for of in (positive, ~positive))
    return above, below


def _balanced(confusion: NDArray[Any]) -> float | None:
    """The mean recall of the classes that have rows, where two have."""
    recalls = [r for r in _ratios(np.diag(confusion), confusion.sum(1)) if r is not None]
    return float(np.mean(recalls)) if len(recalls) > 1 else None


def brier(truth: Rows, p: Array) -> Array:
    """(n,) the Brier score of each row; ``truth`` has the numbers of the classes."""
    return (p - truth) ** 2 if p.ndim == 1 else ((p - np.eye(p.shape[1])[truth]) ** 2).sum(1)


def _log_loss(truth: Rows, p: Array) -> Array:
    """-ln p of the true classes; no p is below the smallest step of 1."""
    of_truth = np.where(truth, p, 1 - p) if p.ndim == 1 else p[np.arange(len(p)), truth]
    return -np.log(np.clip(of_truth, np.finfo(float).eps, 1.0))


def _r2(target: Array, prediction: Array, rows: Rows) -> float | None:
    around = _mean((target - _mean(target, rows)) ** 2, rows)
    constant = len(target) < 2 or float(np.ptp(target)) == 0.0
    squared = _mean((prediction - target) ** 2, rows)
    return None if constant or around == 0.0 else 1 - squared / around


# -------------------------------------------------------------------------------------- the table

SMALLER = (False, 0.0, np.inf)  # is better; the least and the most
# key, title, what it is a function of, the function; meaning, how shown, place, whether beside
FIGURES: tuple[Figure, ...] = (  # in the order of results and of the list of all
    Figure(
        *("accuracy", "Accuracy", "rate", lambda c: (np.trace(c), c.sum())),
        *("rows that are predicted rightly", "percent", 5, True),
    ),
    Figure(
        *("balanced_accuracy", "Balanced accuracy", "confusion", _balanced),
        "mean of the classes' shares that are predicted rightly; 50 % is chance",
        *("percent", 2, True),
    ),
    Figure(
        *("recall", "Recall", "rate", lambda c: (c[1, 1], c[1].sum())),
        *("rows of {positive} that are found", "percent", 3, False, OF_TWO),
    ),
    Figure(
        *("precision", "Precision", "rate", lambda c: (c[1, 1], c[:, 1].sum())),
        *("rows predicted {positive} where that is right", "percent", 4, False, OF_TWO),
    ),
    Figure(
        *("specificity", "Specificity", "rate", lambda c: (c[0, 0], c[0].sum())),
        *("rows of {negative} that are left alone", "percent", None, False, OF_TWO),
    ),
    Figure(
        *("auc", "AUC", "scores", auc),
        "chance that a row of {positive} gets a higher score than one of {negative}; 0.5 is chance",
        *("area", 1, True),
        apart="most pairs of rows have their rows at two sites",
    ),
    Figure(
        *("average_precision", "Average precision", "scores", average_precision),
        "mean precision where each row of {positive} is found; their share of the rows is chance",
        *("area", None, False),
        kept="an exact one shows the classes of the rows that score highest",
    ),
    Figure(
        *("brier", "Brier score", "losses", brier),
        *("mean squared error of the probability", "number", 9, False, OF_CLASSES, *SMALLER),
    ),
    Figure(
        *("log_loss", "Log loss", "losses", _log_loss),
        "mean minus logarithm of the probability of what is true",
        *("number", 10, False, OF_CLASSES, *SMALLER),
    ),
    Figure(
        *("mae", "Mean absolute error", "losses", lambda y, said: np.abs(said - y)),
        *("mean absolute error", "number", 6, True, OF_NUMBERS, *SMALLER),
        short="MAE",
    ),
    Figure(
        *("rmse", "Root mean squared error", "losses", lambda y, said: (said - y) ** 2),
        *("root of the mean squared error", "number", 7, False, OF_NUMBERS, *SMALLER),
        root=True,
        short="RMSE",
    ),
    Figure(
        *("r2", "R²", "scores", _r2),
        "share of the variance that is explained; 0 is the mean of all, 1 is perfect",
        *("number", 8, True, OF_NUMBERS, True, -np.inf),
        short="R2",
        apart="the spread of all targets does not follow from that of each site",
    ),
)
