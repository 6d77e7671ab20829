"""Aggregation of the clients' models at a server: the mean, and rules robust to false uploads.

    average            sum_i q_i w_i / sum_i q_i
    coordinate median  in every coordinate the weighted median; equal weights: the median
    trimmed mean       in every coordinate the mean without the lowest and the highest ``share`` of
                       the weight
    Krum               the w_i with the least sum of squared distances to its N - f - 2 nearest
    Bulyan             N - 2f rounds of Krum choose models; in every coordinate the mean of the
                       N - 4f chosen entries nearest to their median

f = ``byzantine`` is the number of uploads that may be false. Yin, Chen, Ramchandran, Bartlett,
*Byzantine-robust distributed learning*; Blanchard, El Mhamdi, Guerraoui, Stainer, *Machine learning
with adversaries*; El Mhamdi, Guerraoui, Rouault, *The hidden vulnerability of distributed learning
in Byzantium*. Entries that are NaN count as infinitely large. Every rule is equivariant under
translations: applied to models or to their changes it gives the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.settings import check_count
from bonafed.arrays import Array, is_number

TIE = 1e-12  # of weights added up in another order


class Aggregation(Protocol):
    """A rule that makes one model of the clients' models."""

    single: ClassVar[bool]  # whether the server must see every client's model, not only their sum

    def of(self, models: Array, weights: Array) -> Array:
        """The model (D,) for models (n, D) and client weights (n,) >= 0."""
        ...

    def check(self, n: int) -> None:
        """Raise ``ValueError`` where n models are too few."""


def average(models: Array, weights: Array) -> Array:
    """sum_i weights_i models_i / sum_i weights_i.

    Raises
    ------
    ValueError
        for a model that is not finite, and here as below for shapes that do not fit and weights
        that are negative or all zero
    """
    models, weights = _checked(models, weights)
    if not np.isfinite(models).all():
        raise ValueError(
            "a model is not finite, and so is every average with it: lower the step size, or use"
            " CoordinateMedian(), TrimmedMean(share) or Krum(byzantine) where uploads may be false."
        )
    return weights @ models / weights.sum()


def coordinate_median(models: Array, weights: Array) -> Array:
    """The weighted median of every coordinate; the midpoint where the weight splits evenly."""
    models, weights = _checked(models, weights)
    entries, below = _sorted(models, weights)
    half = weights.sum() / 2
    lower = np.take_along_axis(entries, (below < half * (1 - TIE)).sum(0)[None], 0)[0]
    upper = np.take_along_axis(entries, (below <= half * (1 + TIE)).sum(0)[None], 0)[0]
    return _finite(lower / 2 + upper / 2, "half")


def trimmed_mean(models: Array, weights: Array, share: float) -> Array:
    """The mean of every coordinate without the lowest and highest ``share`` of the weight.

    share is in [0, 1/2).

    Where the share ends within an entry, that entry counts with what is left of it.
    """
    models, weights = _checked(models, weights)
    TrimmedMean(share)
    entries, below = _sorted(models, weights)
    total = weights.sum()
    above = np.concatenate([np.zeros((1, entries.shape[1])), below[:-1]])
    kept = np.minimum(below, (1 - share) * total) - np.maximum(above, share * total)
    kept[kept <= TIE * total] = 0.0
    entries = np.where(kept > 0, entries, 0.0)
    return _finite((kept * entries).sum(0) / kept.sum(0), f"share {share:g}")


def krum(models: Array, weights: Array, byzantine: int, multi: int = 1) -> Array:
    """The weighted average of the ``multi`` models of the least scores; the first of equal ones."""
    models, weights = _checked(models, weights)
    rule = Krum(byzantine, multi)
    rule.check(len(models))
    chosen = np.argsort(_scores(_distances(models), byzantine), kind="stable")[:multi]
    return _of_chosen(models[chosen], weights[chosen])


def bulyan(models: Array, weights: Array, byzantine: int) -> Array:
    """The mean, by coordinate, of the N - 4f entries nearest to the median among Krum's choice.

    Krum chooses N - 2f models.
    """
    models, weights = _checked(models, weights)
    Bulyan(byzantine).check(len(models))
    distances, left, chosen = _distances(models), np.arange(len(models)), []
    for _ in range(len(models) - 2 * byzantine):
        scores = _scores(distances[np.ix_(left, left)], byzantine)
        chosen.append(int(left[np.argmin(scores)]))
        left = left[left != chosen[-1]]
    chosen = np.sort(chosen)
    picked, weights = models[chosen], np.where(weights[chosen].any(), weights[chosen], 1.0)
    off = np.abs(picked - np.median(picked, 0))
    near = np.argsort(np.where(np.isfinite(off), off, np.inf), axis=0, kind="stable")[
        : len(models) - 4 * byzantine
    ]
    entries, share = np.take_along_axis(picked, near, 0), weights[near]
    share = np.where(share.any(0), share, 1.0)
    return _finite((share * entries).sum(0) / share.sum(0), "byzantine")


# ---- the rules as values


@dataclass(frozen=True)
class Average(Aggregation):
    """The weighted mean: one false upload can carry it anywhere.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [100.0]])  # the last is false
    >>> bf.Average().of(models, np.full(4, 0.25)).tolist()
    [26.5]
    """

    single: ClassVar[bool] = False

    def of(self, models: Array, weights: Array) -> Array:
        return average(models, weights)


@dataclass(frozen=True)
class CoordinateMedian(Aggregation):
    """The weighted median of every coordinate.

    It withstands false uploads of less than half of the weight.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [100.0]])  # the last is false
    >>> bf.CoordinateMedian().of(models, np.full(4, 0.25)).tolist()
    [2.5]
    """

    single: ClassVar[bool] = True

    def of(self, models: Array, weights: Array) -> Array:
        return coordinate_median(models, weights)


@dataclass(frozen=True)
class TrimmedMean(Aggregation):
    """The mean of every coordinate without the lowest and the highest ``share`` of the weight.

    ``share`` is in [0, 1/2).

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [100.0]])  # the last is false
    >>> bf.TrimmedMean(share=0.25).of(models, np.full(4, 0.25)).tolist()
    [2.5]
    """

    share: float = 0.1
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not is_number(self.share) or not 0 <= self.share < 0.5:
            raise ValueError(
                f"share must be in [0, 0.5), got {self.share!r}: it is cut off on either side. For"
                " the median use CoordinateMedian()."
            )

    def of(self, models: Array, weights: Array) -> Array:
        return trimmed_mean(models, weights, self.share)


@dataclass(frozen=True)
class Krum(Aggregation):
    """The mean of the ``multi`` models with the nearest neighbours.

    ``byzantine`` uploads may be false; N >= 2 byzantine + 3.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array([[1.0], [2.0], [3.0], [2.5], [100.0]])  # the last is false
    >>> bf.Krum(byzantine=1).of(models, np.full(5, 0.2)).tolist()
    [2.5]
    """

    byzantine: int
    multi: int = 1
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("byzantine", self.byzantine, 0)
        check_count("multi", self.multi, 1)

    def of(self, models: Array, weights: Array) -> Array:
        return krum(models, weights, self.byzantine, self.multi)

    def check(self, n: int) -> None:
        needed = max(2 * self.byzantine + 3, self.multi)
        if n < needed:
            raise ValueError(
                f"Krum(byzantine={self.byzantine}, multi={self.multi}) needs {needed} models or"
                f" more, got {n}: expect fewer false ones, or use CoordinateMedian()."
            )


@dataclass(frozen=True)
class Bulyan(Aggregation):
    """A trimmed mean of the models that Krum chooses.

    ``byzantine`` uploads may be false; N >= 4 byzantine + 3.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> models = np.array(
    ...     [[1.0], [2.0], [3.0], [2.5], [1.5], [2.2], [100.0]]
    ... )  # the last is false
    >>> bf.Bulyan(byzantine=1).of(models, np.full(7, 1 / 7)).round(2).tolist()
    [2.23]
    """

    byzantine: int
    single: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("byzantine", self.byzantine, 0)

    def of(self, models: Array, weights: Array) -> Array:
        return bulyan(models, weights, self.byzantine)

    def check(self, n: int) -> None:
        if n < 4 * self.byzantine + 3:
            raise ValueError(
                f"Bulyan(byzantine={self.byzantine}) needs {4 * self.byzantine + 3} models or more,"
                f" got {n}: expect fewer false ones, or use Krum or CoordinateMedian()."
            )


# ---- what they share


def _checked(models: Array, weights: Array) -> tuple[Array, Array]:
    models, weights = np.asarray(models, float), np.asarray(weights, float)
    if models.ndim != 2 or not len(models) or weights.shape != models.shape[:1]:
        raise ValueError(
            f"models must be (n, D) and weights (n,), got {models.shape} and {weights.shape}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError(f"weights must be finite, >= 0 and not all zero, got {weights[:6]}.")
    return models, weights


def _sorted(models: Array, weights: Array) -> tuple[Array, Array]:
    """Every coordinate in ascending order and the weight up to each entry; NaN is the largest."""
    models, weights = models[weights > 0], weights[weights > 0]
    order = np.argsort(np.where(np.isnan(models), np.inf, models), axis=0, kind="stable")
    return np.take_along_axis(models, order, 0), np.cumsum(weights[order], 0)


def _distances(models: Array) -> Array:
    """Squared distances (n, n), inf to models that are not finite."""
    fine = np.isfinite(models).all(1)
    squares = np.full((len(models), len(models)), np.inf)
    scale = max(float(np.abs(models[fine]).max(initial=0.0)), 1e-300)
    scaled = models[fine] / scale  # so that squares stay in range
    squares[np.ix_(fine, fine)] = (
        [((scaled - w) ** 2).sum(1) for w in scaled] if fine.any() else 0.0
    )
    return squares


def _scores(distances: Array, byzantine: int) -> Array:
    """The sum over the n - byzantine - 2 nearest others (one at least)."""
    others = distances + np.diag(np.full(len(distances), np.inf))
    nearest = min(max(len(distances) - byzantine - 2, 1), len(distances) - 1)
    return np.sort(others, 1)[:, :nearest].sum(1) if nearest else np.zeros(1)


def _of_chosen(models: Array, weights: Array) -> NDArray[np.float64]:
    _finite(models, "byzantine")
    return average(models, weights if weights.any() else np.ones_like(weights))


def _finite(result: Array, bound: str) -> Array:
    if not np.isfinite(result).all():
        raise ValueError(
            f"more uploads are not finite than {bound} allows for: lower the step size, or leave"
            " them out."
        )
    return result
