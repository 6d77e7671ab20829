"""How a run adds up its clients' numbers securely: the option of engines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.privacy.secure_sum.client import Terms, terms

KEYS = ("secure", "simulation")


@dataclass(frozen=True)
class SecureSum:
    """Have the server learn sums over the clients, and of single clients what the method announces:
    the option ``secure_sum`` of every engine.

    Every ``Sum`` field of every answer travels as whole multiples of a step, masked so that the
    masks cancel in the sum. Other fields are not masked: ``solve`` and sites refuse a method
    without a budget that has any beside those that it announces (``Algorithm.readable``).

    Parameters
    ----------
    step : None: numbers travel in 128 bits, as multiples of 2**-63 up to 2**62 / N, so that nothing
        is lost that a double of order one has; a power of two: in 64 bits, half the bytes and time,
        as multiples of this step, so that a sum over N clients is off by N step / 2 at most.
        Whole numbers, and private answers, which have a separate step, travel in 64 bits where
        an answer has no others, and lose nothing
    bound : with a step the largest absolute value that a client may hand in, larger ones being
        refused; None: the largest at which no sum can overflow, 2**62 step / N
    threshold : how many clients every round needs until its end, more than half; None: all but a
        third of them, rounded down
    fewest : the least number of clients over which a sum may be opened, for algorithms that ask
        some of the clients; None: ``threshold``
    keys : "secure" from the operating system; "simulation" from the seed, for tests: anyone who has
        the seed can then take the masks away

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), over_clients=bf.Mean("size"), regulariser=bf.L2(0.1))
    >>> engine = bf.InProcess(secure_sum=bf.SecureSum())
    >>> solution = bf.solve(problem, fed, engine=engine)
    >>> solution.outcome.stop.value
    'optimal'
    """

    step: float | None = None
    bound: float | None = None
    threshold: int | None = None
    fewest: int | None = None
    keys: str = "secure"

    def __post_init__(self) -> None:
        if self.keys not in KEYS:
            raise ValueError(f"keys must be one of {', '.join(KEYS)}, got {self.keys!r}")
        if self.step is not None:
            self.form(2, self.step)
        elif self.bound is not None:
            raise ValueError("a bound goes with a step: give SecureSum(step=..., bound=...).")

    def form(self, clients: int, step: float) -> FixedPoint:
        """How numbers travel as multiples of a step, of this option or of the algorithm's own."""
        own = self.bound is not None and step == self.step
        bound = self.bound if own else step * 2.0**62 / clients
        return FixedPoint(step, float(bound or 0.0), clients)

    def terms(self, clients: int) -> Terms:
        """What all clients agree on."""
        if clients < 2:
            raise ValueError(
                f"a secure sum hides each client among others, got {clients} client: leave"
                " secure_sum out."
            )
        usual = terms("bonafed", clients).threshold
        threshold = usual if self.threshold is None else self.threshold
        return Terms("bonafed", clients, threshold, self.fewest)


def option_of(given: SecureSum | bool | None) -> SecureSum | None:
    """The option as engines are given it: True stands for the defaults, False for none."""
    if isinstance(given, bool):
        return SecureSum() if given else None
    if given is not None and not isinstance(given, SecureSum):
        raise TypeError(f"secure_sum must be True or such as SecureSum(), got {given!r}")
    return given


# Numbers as multiples of a public step, so that sums modulo 2^64 are exact.


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
