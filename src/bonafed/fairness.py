"""Fairness of predictions between two groups of people.

    U = rows of every other group,  P = rows of the privileged group      y^ = prediction, y = truth
    SPD  = P(y^ = + | U) - P(y^ = + | P)                               statistical parity difference
    DI   = P(y^ = + | U) / P(y^ = + | P)                                      disparate impact
    EOD  = TPR(U) - TPR(P)                                              equal opportunity difference
    AOD  = ((FPR(U) - FPR(P)) + (TPR(U) - TPR(P))) / 2                       average odds difference
    FNRD = FNR(U) - FNR(P) = -EOD                                     false negative rate difference
    TI  = mean_i (b_i / mu) ln(b_i / mu),  b_i = y^_i - y_i + 1 in {0, 1, 2},  mu = mean_i b_i
            Theil index

The definitions of Bellamy et al., *AI Fairness 360* (2018), as in Xiao, Ge, Jiang, Yan, *A unified
framework for rank-based loss minimization*, B.6. Differences are unprivileged minus privileged:
where + is the favourable outcome, SPD, EOD < 0 and DI < 1 say that the unprivileged get it less
often. Fair is 0, for DI 1. In TI labels count 0 and 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.arrays import Label
from bonafed.data.validation import listed, missing
from bonafed.parameters import checking

NAN = math.nan


@dataclass(frozen=True)
class GroupRates:
    """Rates of one group of rows; a rate over no row is NaN.

    rows, positives : how many rows, and how many of them are positive in truth ·
    selected : P(y^ = +) · tpr, fnr : P(y^ = + | y = +), P(y^ = - | y = +); NaN without positives ·
    fpr : P(y^ = + | y = -); NaN without negatives · accuracy : P(y^ = y)
    """

    rows: int
    positives: int
    selected: float
    tpr: float
    fpr: float
    fnr: float
    accuracy: float


Pair = tuple[GroupRates, GroupRates]  # of the unprivileged and the privileged


@checking
def group_rates(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, positive: Label = 1
) -> dict[Any, GroupRates]:
    """The rates of every group, in the order of the sorted values of ``group``.

    Parameters
    ----------
    y_true, y_pred : (n,) labels: numbers, booleans or text; at most two different ones
    group : (n,) values, such as a sensitive attribute
    positive : the label that counts as positive

    Raises
    ------
    ValueError : lengths that differ, no rows, missing values, a third label, or no row with the
        label ``positive``

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> bf.group_rates(truth, predicted, group)["f"].tpr
    0.5
    """
    truth, chosen = _positive(y_true, y_pred, positive)
    names = _column(group, "group", len(truth))
    own = {name: names == name for name in np.unique(names).tolist()}
    return {name: _rates(truth[rows], chosen[rows]) for name, rows in own.items()}


@checking
def fairness_metrics(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, privileged: Label, positive: Label = 1
) -> dict[str, float]:
    """All six metrics, by their short names SPD, DI, EOD, AOD, TI, FNRD.

    A metric that these rows do not define is NaN here, so that it does not hide the others; its own
    function raises instead and says what is lacking. DI is inf where only the unprivileged are
    selected.

    Parameters
    ----------
    y_true, y_pred : (n,) labels: numbers, booleans or text; at most two different ones
    group : (n,) values; the rows of ``privileged`` are one group, all other rows the other
    privileged : the value of ``group`` that names the privileged group
    positive : the label that counts as positive

    Raises
    ------
    ValueError : as `group_rates`, and for a group without rows

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> sorted(bf.fairness_metrics(truth, predicted, group, privileged="m"))
    ['AOD', 'DI', 'EOD', 'FNRD', 'SPD', 'TI']
    """
    u, p = _pair(y_true, y_pred, group, privileged, positive)
    return {
        "SPD": u.selected - p.selected,
        "DI": _ratio(u.selected, p.selected),
        "EOD": u.tpr - p.tpr,
        "AOD": (u.fpr - p.fpr + u.tpr - p.tpr) / 2,
        "TI": _theil(*_positive(y_true, y_pred, positive)),
        "FNRD": u.fnr - p.fnr,
    }


@checking
def statistical_parity_difference(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, privileged: Label, positive: Label = 1
) -> float:
    """SPD = P(y^ = + | U) - P(y^ = + | P), in [-1, 1]; arguments and errors as `fairness_metrics`.

    The truth does not enter; ``y_true`` is there so that all metrics are called alike.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> bf.statistical_parity_difference(truth, predicted, group, privileged="m")
    -0.5
    """
    u, p = _pair(y_true, y_pred, group, privileged, positive)
    return u.selected - p.selected


@checking
def disparate_impact(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, privileged: Label, positive: Label = 1
) -> float:
    """DI = P(y^ = + | U) / P(y^ = + | P), in [0, inf]; inf where only the unprivileged are
    selected.

    The truth does not enter. Raises ValueError where nobody is selected, else as
    `fairness_metrics`.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> round(bf.disparate_impact(truth, predicted, group, privileged="m"), 4)
    0.3333
    """
    u, p = _pair(y_true, y_pred, group, privileged, positive)
    if math.isnan(ratio := _ratio(u.selected, p.selected)):
        text = f"disparate impact got no row that is predicted {positive!r} and needs one"
        do = "Compare scores, or use statistical_parity_difference, which is 0 here."
        raise ValueError(f"{text}: 0 / 0 says nothing. {do}")
    return ratio


@checking
def equal_opportunity_difference(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, privileged: Label, positive: Label = 1
) -> float:
    """EOD = TPR(U) - TPR(P), in [-1, 1].

    Raises ValueError for a group without positives, else as `fairness_metrics`.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> bf.equal_opportunity_difference(truth, predicted, group, privileged="m")
    -0.5
    """
    both, name = _pair(y_true, y_pred, group, privileged, positive), "equal opportunity difference"
    return _difference(name, "positives", lambda of: of.tpr, both, positive)


@checking
def average_odds_difference(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, privileged: Label, positive: Label = 1
) -> float:
    """AOD = ((FPR(U) - FPR(P)) + (TPR(U) - TPR(P))) / 2, in [-1, 1].

    Raises ValueError for a group without positives or without negatives, else as
    `fairness_metrics`.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> bf.average_odds_difference(truth, predicted, group, privileged="m")
    -0.5
    """
    both, needed = _pair(y_true, y_pred, group, privileged, positive), "positives and negatives"
    name, half = "average odds difference", lambda of: (of.fpr + of.tpr) / 2
    return _difference(name, needed, half, both, positive)


@checking
def false_negative_rate_difference(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, privileged: Label, positive: Label = 1
) -> float:
    """FNRD = FNR(U) - FNR(P), in [-1, 1].

    Raises ValueError for a group without positives, else as `fairness_metrics`.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> bf.false_negative_rate_difference(truth, predicted, group, privileged="m")
    0.5
    """
    both = _pair(y_true, y_pred, group, privileged, positive)
    name = "false negative rate difference"
    return _difference(name, "positives", lambda of: of.fnr, both, positive)


@checking
def theil_index(y_true: ArrayLike, y_pred: ArrayLike, positive: Label = 1) -> float:
    """TI = mean_i (b_i / mu) ln(b_i / mu) >= 0 over all rows, b_i = y^_i - y_i + 1; 0 ln 0 = 0.

    How unevenly the benefit b is spread: 0 for a missed positive, 1 where the prediction is right,
    2 for a false positive. Groups do not enter. Raises ValueError where every row is a missed
    positive, so that mu = 0; labels as in `group_rates`.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> truth = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    >>> predicted = np.array([1, 0, 0, 0, 1, 1, 1, 0])
    >>> group = np.array(["f", "f", "f", "f", "m", "m", "m", "m"])
    >>> round(bf.theil_index(truth, predicted), 4)
    0.1733
    """
    if math.isnan(index := _theil(*_positive(y_true, y_pred, positive))):
        text = "the Theil index got benefits that are all 0 and needs one above"
        do = "Check that predictions and truth are those of the same rows."
        raise ValueError(f"{text}: every row is {positive!r} and none is predicted so. {do}")
    return index


# -------------------------------------------------------------------- rates


def _rates(truth: NDArray[np.bool_], chosen: NDArray[np.bool_]) -> GroupRates:
    parts = chosen, chosen[truth], chosen[~truth], ~chosen[truth], chosen == truth
    return GroupRates(len(truth), int(truth.sum()), *[_share(part) for part in parts])


def _share(hits: NDArray[np.bool_]) -> float:
    return float(hits.mean()) if len(hits) else NAN


def _ratio(u: float, p: float) -> float:
    return u / p if p > 0 else math.inf if u > 0 else NAN


def _theil(truth: NDArray[np.bool_], chosen: NDArray[np.bool_]) -> float:
    benefit = chosen.astype(np.float64) - truth + 1.0
    if not benefit.any():
        return NAN
    share = benefit / benefit.mean()
    some = share[share > 0]
    return float((some * np.log(some)).sum() / len(share))


def _difference(
    name: str, needed: str, rate: Callable[[GroupRates], float], both: Pair, positive: Label
) -> float:
    """rate(U) - rate(P), both of which must exist."""
    for which, rates in zip(("unprivileged", "privileged"), both, strict=True):
        if math.isnan(rate(rates)):
            lacks = "no row" if rates.positives == 0 else "only rows"
            got = f"{lacks} with the label {positive!r} in the {which} group ({rates.rows} rows)"
            do = "Use more rows, or fairness_metrics, which gives NaN there."
            raise ValueError(f"{name} got {got} and needs {needed} in both. {do}")
    return rate(both[0]) - rate(both[1])


def _pair(
    y_true: ArrayLike, y_pred: ArrayLike, group: ArrayLike, privileged: Label, positive: Label
) -> Pair:
    """(unprivileged, privileged)."""
    truth, chosen = _positive(y_true, y_pred, positive)
    names = _column(group, "group", len(truth))
    inside = np.array([name == privileged for name in names.tolist()])
    if inside.all() or not inside.any():
        values = ", ".join(map(repr, np.unique(names).tolist()[:6]))
        text = f"{'all' if inside.all() else 'no'} rows have group == {privileged!r}"
        need = f"both groups need rows; the values of group are {values}"
        raise ValueError(f"{text}, and {need}. Name one of several values as privileged.")
    return _rates(truth[~inside], chosen[~inside]), _rates(truth[inside], chosen[inside])


# -------------------------------------------------------------------- arguments


def _positive(
    y_true: ArrayLike, y_pred: ArrayLike, positive: Label
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(n,) whether the truth, and whether the prediction, is the positive label."""
    truth = _column(y_true, "y_true", None)
    chosen = _column(y_pred, "y_pred", len(truth))
    kinds = [np.unique(each, return_inverse=True) for each in (truth, chosen)]
    labels = {label for each, _ in kinds for label in each.tolist()}
    shown = ", ".join(sorted(map(repr, labels))[:6])
    if positive not in labels:
        text = f"positive is {positive!r}, and y_true and y_pred have the labels {shown}"
        do = "Name one of the labels as positive=..."
        raise ValueError(f"{text}: no row is positive or predicted so. {do}")
    if len(labels) > 2:
        text = f"y_true and y_pred have {len(labels)} different labels ({shown}) and two are needed"
        do = "For one class against the rest pass y_true == label and y_pred == label."
        raise ValueError(f"{text}. {do}")
    first, second = (np.array([v == positive for v in each.tolist()])[at] for each, at in kinds)
    return first, second


def _column(values: ArrayLike, what: str, n: int | None) -> NDArray[Any]:
    """(n,) values, none missing; objects of one kind become an array of that kind."""
    try:
        column = np.asarray(values)
        shape = str(column.shape)
    except ValueError:
        column, shape = np.zeros((0, 0)), "lists of different lengths"
    if column.ndim != 1 or (n is not None and len(column) != n):
        needed = f"{what} must have shape {'(rows,)' if n is None else f'({n},) like y_true'}"
        raise ValueError(f"{needed}, got {shape}. Pass one entry per row.")
    if len(column) == 0:
        raise ValueError(f"{what} has no rows, and a rate needs one. Pass the rows to judge.")
    entries = column.tolist()
    if any(map(missing, set(entries))):
        gaps = [r for r, v in enumerate(entries) if missing(v)]
        raise ValueError(f"{what} is missing in {listed(gaps, 'row')} (from 0). Remove these rows.")
    return np.asarray(entries) if column.dtype.kind == "O" else column
