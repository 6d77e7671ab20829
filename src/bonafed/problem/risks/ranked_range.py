"""Ranges of ranks: robust to outliers, and not convex.

    R(z) = (z_[m+1] + ... + z_[k]) / (k - m),    z_[1] <= ... <= z_[n],    0 <= m < k <= n

the average of a ranked range, (6) of Xiao and others, *A unified framework for rank-based loss
minimization*, who count from the smallest loss; Hu, Ying, Wang and Lyu, *Sum of ranked range loss
for supervised learning*, count from the largest. The two are different risks, so the order has a
name. The median and the value at risk are single ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.ranks import NonconvexByRank, enough
from bonafed.solvers.sets.projections import EPS


@dataclass(frozen=True)
class RankedRange(NonconvexByRank):
    """The mean of the (m+1)-th to k-th loss.

    Parameters
    ----------
    k, m : integers, 0 <= m < k: the last rank that counts, and how many are left out before the
        first
    order : "ascending" counts from the smallest loss (the n - k largest are left out as outliers),
        "descending" from the largest (the m largest are). m = 0 descending is ``TopK(k)``, which is
        convex and can be certified

    Raises
    ------
    ValueError
        for other k, m or order, and at the first use for k above the number of losses

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> float(bf.RankedRange(k=2, m=0).value(losses))  # without the largest
    1.5
    """

    phrase: ClassVar[str] = "mean of ranks above {m} up to {k}, in {order} order"
    k: int
    m: int
    order: Literal["ascending", "descending"] = "ascending"

    def __post_init__(self) -> None:
        if not 0 <= self.m < self.k or self.k != int(self.k) or self.m != int(self.m):
            raise ValueError(
                f"k and m must be integers with 0 <= m < k, got k = {self.k}, m = {self.m}: the"
                " losses of ranks m + 1 to k are averaged."
            )
        if self.order not in ("ascending", "descending"):
            raise ValueError(
                "order must be 'ascending' (ranks count from the smallest loss) or 'descending',"
                f" got {self.order!r}."
            )

    def rank_weights(self, n: int) -> Array:
        enough(n, self.k, f"{self}")
        sigma = np.zeros(n)
        sigma[self.m : self.k] = 1.0 / (self.k - self.m)
        return sigma if self.order == "ascending" else sigma[::-1].copy()


@dataclass(frozen=True)
class Median(NonconvexByRank):
    """The middle loss; of an even number the mean of the two in the middle.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Median().value(losses)), 4)
    2.0
    """

    def rank_weights(self, n: int) -> Array:
        sigma = np.zeros(n)
        sigma[[(n - 1) // 2, n // 2]] = 1.0 if n % 2 else 0.5
        return sigma


@dataclass(frozen=True)
class ValueAtRisk(NonconvexByRank):
    """The loss that a share ``level`` of all losses does not exceed: the smallest u with F(u) >=
    level.

    Parameters
    ----------
    level : in (0, 1]; 1 is the maximum (``Maximum()`` is convex and can be certified). The mean of
        the losses beyond it is ``Superquantile(tail=1 - level)``, its nearest convex relative

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.ValueAtRisk(level=0.5).value(losses)), 4)
    2.0
    """

    phrase: ClassVar[str] = "{level} quantile"
    level: float

    def __post_init__(self) -> None:
        if not 0 < self.level <= 1:
            raise ValueError(
                f"level must be in (0, 1], got {self.level}: it is the share of losses that are not"
                " exceeded, such as 0.95. For the smallest loss use RankedRange(1, 0)."
            )

    def rank_weights(self, n: int) -> Array:
        rank = math.ceil(n * self.level * (1 - 4 * EPS))  # a product such as 10 * 0.7 may round up
        sigma = np.zeros(n)
        sigma[max(rank, 1) - 1] = 1.0
        return sigma
