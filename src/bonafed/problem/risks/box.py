"""The worst client weights between lower and upper weights.

    R(z) = max { q'z : lower <= q <= upper, q >= 0, sum q = 1 }

Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-EASE),
their box set kept within the simplex. upper = prior / tail with lower = 0 is ``Superquantile(tail,
prior)``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.risk import Names, PerClient, Sizes, entries, numbers, per_client
from bonafed.problem.risks.weight_set import WeightSet
from bonafed.solvers.sets.box_and_cd_norm import largest_in_box
from bonafed.solvers.sets.projections import clip_to_sum

SLACK = 1e-9  # how far sums of limits may be off one by rounding


@dataclass(frozen=True, eq=False)
class Box(WeightSet):
    """Client weights between two limits.

    Parameters
    ----------
    lower, upper : one number for all clients, one per client (N,), or a mapping by client name;
        below 0 counts as 0, above 1 as 1

    Raises
    ------
    ValueError
        where no weights keep the limits: a lower above its upper, lower ones that sum to more than
        one, upper ones that sum to less (by ``at`` or at the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Box(lower=0.1, upper=0.5)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.1, 0.4, 0.5]
    """

    phrase: ClassVar[str] = "weights between {lower} and {upper}"
    lower: PerClient
    upper: PerClient

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            numbers(entries(getattr(self, name)), name)
        lower, upper = (np.asarray(entries(limit)) for limit in (self.lower, self.upper))
        if lower.ndim == upper.ndim == 0 and lower > upper:
            raise ValueError(f"lower must not be above upper, got {lower:g} and {upper:g}.")

    def at(self, sizes: Sizes, names: Names = None) -> Box:
        lower, upper = limits(self, len(sizes), names)
        return replace(self, lower=lower, upper=upper)

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share what is between their limits in proportion to it."""
        return largest_in_box(losses, *limits(self, len(losses)))

    def _nearest(self, v: Array) -> Array:
        return clip_to_sum(v, *limits(self, len(v)), 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        lower, upper = limits(self, len(weights))
        return max(float((lower - weights).max()), float((weights - upper).max())) <= tol


def limits(box: Box, n: int, names: Names = None) -> tuple[Array, Array]:
    """(lower, upper), each (n,), within [0, 1] and with sums on either side of one."""
    lower = np.maximum(per_client(box.lower, n, names, "lower"), 0.0)
    upper = np.minimum(per_client(box.upper, n, names, "upper"), 1.0)
    if (lower > upper).any():
        i = int(np.argmax(lower - upper))
        raise ValueError(
            f"lower must be at most upper, got {lower[i]:g} > {upper[i]:g} for {_client(i, names)}:"
            " exchange them, and keep both within [0, 1]."
        )
    least, most = float(lower.sum()), float(upper.sum())
    if least > 1 + SLACK:
        raise ValueError(
            f"the set is empty: lower sums to {least:.12g} over {n} clients, and weights sum to"
            f" one. Divide it by {least:.6g} or more."
        )
    if most < 1 - SLACK:
        raise ValueError(
            f"the set is empty: upper sums to {most:.12g} over {n} clients, and weights sum to one."
            f" Raise the caps; one cap for all must be at least 1/N = {1 / n:.6g}."
        )
    lower = lower / max(least, 1.0)
    return lower, np.maximum(upper / min(most, 1.0), lower)


def _client(i: int, names: Names) -> str:
    return f"client {i if names is None else repr(names[i])}"
