"""Numbers as multiples of a public step, so that sums modulo 2^64 are exact."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class FixedPoint:
    """How real numbers travel in a secure sum: each as the nearest multiple of a public step.

    Parameters
    ----------
    step : a power of two, so that scaling rounds nothing
    bound : the largest absolute value that any client may hand in
    clients : how many clients there may be

    A number is off by at most step / 2 and the sum of N clients by N step / 2. With
    K = rint(bound / step), sums of N clients stay within N K, which must be below 2^63: then none
    overflows, whatever the clients hold.

    Raises
    ------
    ValueError : a step that is not a power of two, or a bound that could overflow

    Examples
    --------
    >>> from bonafed.privacy.secure_sum.fixed_point import FixedPoint
    >>> form = FixedPoint(step=2.0**-20, bound=100.0, clients=10)
    >>> form.numbers(form.whole([0.5, -3.0]) + form.whole([0.25, 1.0]))
    array([ 0.75, -2.  ])
    """

    step: float
    bound: float
    clients: int

    def __post_init__(self) -> None:
        if not (0 < self.step < math.inf) or math.frexp(self.step)[0] != 0.5:
            raise ValueError(
                f"the step must be a power of two, got {self.step!r}: take such as 2.0**-20."
            )
        if not 0 <= self.bound < math.inf or self.clients < 1:
            raise ValueError(
                "a bound of absolute values that is finite and not negative, and at least one"
                f" client, are needed; got {self.bound!r} and {self.clients!r}: declare both."
            )
        scaled = self.bound / self.step
        if not math.isfinite(scaled) or self.clients * round(scaled) >= 2**63:
            raise ValueError(
                f"{self.clients} clients with numbers up to {self.bound!r} at a step of"
                f" {self.step!r} could exceed 2**63 - 1 steps: take a larger step or a smaller"
                " bound."
            )

    def whole(self, values: ArrayLike) -> NDArray[np.int64]:
        """The numbers as whole multiples of the step, to the nearest, ties to even.

        Raises
        ------
        ValueError : a number that is not finite or beyond the bound; nothing is clamped
        """
        given = np.asarray(values, float)
        if not (inside := np.abs(given) <= self.bound).all():  # not of NaN
            worst = given[~inside].ravel()[0]
            raise ValueError(
                f"{np.sum(~inside)} of {given.size} numbers are not within the bound: the first"
                f" is {worst!r}, and at most {self.bound!r} in absolute value is allowed. Clip the"
                " numbers or declare a larger bound."
            )
        return np.rint(given / self.step).astype(np.int64)

    def numbers(self, total: NDArray[np.int64]) -> NDArray[np.float64]:
        """The real numbers that a sum of such whole numbers stands for."""
        return total.astype(float) * self.step
