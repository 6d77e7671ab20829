"""The best accuracy that private answers allow, from public numbers: a bound for every method.

Let rows point in all of k directions alike, and let the class be the side of a plane through the
middle, whose normal theta is drawn at random. Client p's answer is a sum of n_p vectors of norm at
most C, each along its row, with noise of scale m s C. It tells of theta no more than

    I(theta; answers) <= sum_p T (n_p h_p)^2 / (2 m^2 s^2),
    h_p = min(1, (1 + sqrt(k / n_p)) / sqrt(k)),

because a sum of multiples a_i x_i, |a_i| <= C, of n unit rows x_i is no longer than n C times the
root of the largest eigenvalue of their second moments, and h_p is the size of that root. Questions
may follow from answers: each is one more such term. A plane at the angle phi to the true one is
wrong for the share phi / pi of the rows. The least mean of phi / pi that so much information allows
is the rate-distortion function of the sphere, which is attained by densities proportional to

    sin(phi)^(k - 2) exp(-s phi / pi).

Real rows do not point in all directions alike: those that lie near fewer directions k are learnt as
easily as the bound for that k says, or less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import cast

import numpy as np

from bonafed.arrays import Array

GRID = 20_001  # angles


def information(
    sizes: Iterable[int], noise: float, spread: float, rounds: int, directions: int
) -> float:
    """The most that all answers tell about the plane, in nats.

    Parameters
    ----------
    sizes : rows of every client
    noise, spread : m and s: the noise's scale is m times what one record moves, which is s times
        the clip
    rounds : T
    directions : k
    """
    rows = np.array([n for n in sizes if n > 0], float)
    if noise <= 0:
        return math.inf
    share = np.minimum(1.0, (1 + np.sqrt(directions / rows)) / math.sqrt(directions))
    return rounds * float(((rows * share) ** 2).sum()) / (2 * (noise * spread) ** 2)


def best_accuracy(nats: float, directions: int) -> float:
    """The largest mean share of rows on the right side of a plane about which so much is known."""
    if not nats > 0:
        return 0.5
    if directions == 1:  # theta is 1 or -1
        if nats >= math.log(2):
            return 1.0
        left = math.log(2) - nats  # the entropy of an error e
        return 1 - _root(lambda e: left + e * math.log(e) + (1 - e) * math.log1p(-e), 1e-12, 0.5)
    angles = np.linspace(0, math.pi, GRID + 2)[1:-1]
    prior = (directions - 2) * np.log(np.sin(angles))
    prior -= _log_sum(prior)

    def at(s: float) -> tuple[float, float]:
        """The mean share of errors, and the information it takes."""
        tilted = prior - s * angles / math.pi
        total = _log_sum(tilted)
        error = float(np.exp(tilted - total) @ angles) / math.pi
        return error, -s * error - total

    low, high = 0.0, 1.0
    while at(high)[1] < nats:
        low, high = high, 2 * high
        if at(high)[0] < 1 / GRID:  # below what the angles tell apart
            return 1.0
    return 1 - at(_root(lambda s: at(s)[1] - nats, low, high))[0]


def _log_sum(values: Array) -> float:
    top = float(values.max())
    return top + math.log(float(np.exp(values - top).sum()))


def _root(over: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq

    return float(cast(float, brentq(over, low, high)))
