"""Whether the figures of two models on the same rows differ by what few people contribute.

    k      the people whose rows the two models decide otherwise
    n(s)   (sum |s|)^2 / sum s^2, by how many people a difference s of their numbers is carried

Two answers about the same rows tell the difference of their figures as well. Where it hangs on few
people it tells of these: a second model that differs in one decision tells that row's class. So
both answers are given only where k is 0 or the least number of rows of the site's policy, or more,
and where n(s) is 0 or 3 or more for every number whose mean is a figure. A change of order, which
moves an AUC, is carried by pairs of rows: there n is 0 or that least number, or more.

Counts of several models are combined as well. Rows that all models decide alike cannot be told
apart; where a combination of the decisions is such rows only, they are of that many people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from bonafed.arrays import Array
from bonafed.measures import NUMBERS, SEVERAL, losses
from bonafed.problem.losses import Loss, expected
from bonafed.solution.predictions import decisions, positive, task_of

FEWEST = 3.0  # people by whom a difference of mean losses is carried
ROUNDING = 1e-12  # of predictions, relative to the largest


@dataclass(frozen=True)
class View:
    """What the figures of a model on m rows are made of.

    Attributes
    ----------
    decided : (m,) the class of every row, as it is counted; of numbers the predictions themselves
    orders : (q, m) ranks of the rows by score
    numbers : (p, m) whose means are figures
    classes : how many there are; 0 of numbers
    """

    decided: NDArray[Any]
    orders: Array
    numbers: Array
    classes: int


def view(loss: Loss, prediction: Array, y: Array, least: int = 0) -> View:
    """How a model does on rows; ``prediction`` and y as of `bonafed.runs.evaluation.Judged`."""
    value, task = loss.value(prediction, y), task_of(loss, prediction)
    if task == NUMBERS:
        told = expected(loss, prediction)
        numbers = np.stack([value, *losses(task, y, told)])
        return View(told, np.zeros((0, len(y))), numbers, 0)
    decided, _ = counted(prediction, least)
    if task == SEVERAL:
        p = softmax(prediction, axis=1)
        numbers = np.stack([value, *losses(task, y.astype(int), p)])
        return View(decided, _ranks(p.T), numbers, p.shape[1])
    numbers = np.stack([value, *losses(task, y > 0, positive(loss, prediction))])
    return View(decided, _ranks(decisions(prediction)[None]), numbers, 2)


def counted(prediction: Array, least: int = 0) -> tuple[NDArray[np.intp], bool]:
    """(m,) the classes that a model gives to rows, and whether some are counted as another one: a
    class that it gives to fewer than ``least`` rows counts as the one that it gives to most, since
    the counts of so few rows would tell the classes of these.
    """
    one = decisions(prediction)
    decided = one.argmax(1) if one.ndim == 2 else (one > 0).astype(np.intp)
    counts = np.bincount(decided, minlength=one.shape[1] if one.ndim == 2 else 2)
    few = ((counts > 0) & (counts < least))[decided]
    return np.where(few, counts.argmax(), decided), bool(few.any())


def too_close(mine: View, other: View, who: NDArray[np.intp], least: int) -> bool:
    """Whether the difference of two models' figures hangs on few people; ``who`` (m,) says whose
    each row is, from 0.
    """
    differ = mine.decided != other.decided
    if not mine.classes:
        size = np.abs(mine.decided).max(initial=0.0)
        differ = np.abs(mine.decided - other.decided) > ROUNDING * size
    few = [_people(differ, who)]
    if mine.classes == 2:  # of two classes, the other decision everywhere tells nothing new
        few.append(_people(~differ, who))
    if any(0 < k < least for k in few):
        return True
    if len(mine.numbers) == len(other.numbers):
        saved = mine.numbers - other.numbers
        if any(0 < carried(s, who) < FEWEST for s in saved):
            return True
    turned = len(who) + 1 - mine.orders
    for orders in (mine.orders, turned):
        moved = orders - other.orders
        if any(0 < carried(one, who) < least for one in moved):
            return True
    return False


def tell_of_few(decided: Sequence[NDArray[Any]], who: NDArray[np.intp], least: int) -> bool:
    """Whether a combination of the counts of several models is about fewer than ``least`` people:
    rows that all of them decide alike, whose indicator lies in the span of their decisions.
    """
    alike, at = np.unique(np.stack(decided), axis=1, return_inverse=True)
    pairs = np.unique(np.stack([at.ravel(), who]), axis=1)[0]
    few = np.bincount(pairs, minlength=alike.shape[1]) < least
    if not few.any():
        return False
    given = np.concatenate([alike == c for c in np.unique(alike)]).astype(float)
    _, size, basis = np.linalg.svd(given, full_matrices=False)
    inside = (basis[size > 1e-9 * size[0]] ** 2).sum(0)  # 1 where the indicator is in the span
    return bool((inside[few] > 1 - 1e-9).any())


def differing(mine: View, other: View, who: NDArray[np.intp]) -> int:
    """For how many people two models decide otherwise."""
    return _people(mine.decided != other.decided, who)


def few_signs(mine: NDArray[Any], other: NDArray[Any], who: NDArray[np.intp], least: int) -> bool:
    """Whether two rows of signs differ for few people."""
    return 0 < _people(mine != other, who) < least


def carried(s: Array, who: NDArray[np.intp]) -> float:
    """By how many people a difference is carried, (sum |s|)^2 / sum s^2 over the sums of each."""
    each = np.abs(np.bincount(who, s))
    largest = each.max(initial=0.0)
    if not 0 < largest < np.inf:
        return 0.0
    each = each / largest
    return float(each.sum() ** 2 / (each**2).sum())


def _people(rows: NDArray[np.bool_], who: NDArray[np.intp]) -> int:
    return len(np.unique(who[rows]))


def _ranks(scores: Array) -> Array:
    """(q, m) ranks from 1, of equal scores their mean: an AUC is a sum of these."""
    ranks = []
    for one in scores:
        _, at, rows = np.unique(one, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(rows) - (rows - 1) / 2)[at])
    return np.array(ranks)
