"""The part of a loss above a threshold, and the logarithmic barrier that smooths it.

    cap max(x, 0) = min { cap u : u >= x, u >= 0 }
    phi(x) = min over u of  cap u - nu log(u - x) - nu log u

x is a loss minus the threshold. ``phi`` is convex and smooth; its derivative q in (0, cap) is the
weight of the row, q (u - x) = (cap - q) u = nu, and as nu falls to 0 it becomes 0 below the
threshold and cap above it.
"""

from typing import NamedTuple

import numpy as np

from bonafed.arrays import Array


class Central(NamedTuple):
    """The minimiser u of ``phi`` at every x, and the derivatives of ``phi``."""

    slack: Array  # u > max(x, 0)
    weight: Array  # q, the first derivative
    rate: Array  # the second derivative


def central(x: Array, cap: Array, nu: Array | float) -> Central:
    """The slack and the derivatives at x (..., K) for caps (K,) and barrier parameters > 0."""
    # cap x + root and root - cap x, root = ((cap x)^2 + (2 nu)^2)^(1/2), neither of which cancels
    most = np.abs(cap * x) + np.hypot(cap * x, 2 * nu)
    least = (2 * nu) ** 2 / most
    plus, minus = np.where(x > 0, most, least), np.where(x > 0, least, most)
    u, over = (plus + 2 * nu) / (2 * cap), (minus + 2 * nu) / (2 * cap)
    q, rest = nu / over, nu / u
    return Central(u, q, rate(q, rest, over, u))


def rate(weight: Array, rest: Array, over: Array, slack: Array) -> Array:
    """The change of the weight with x in a Newton step on q (u - x) = nu and (cap - q) u = nu.

    ``rest`` is cap - q and ``over`` u - x.
    """
    return 1 / (over / weight + slack / rest)
