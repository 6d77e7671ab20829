"""A custom set of client weights, stated by a function that returns its worst member.

    R(z) = max { q'z : q in Q },   Q a closed convex set of weights q >= 0, sum q = 1

A maximiser is enough: the nearest point of Q is computed as a convex combination of maximisers
(``solvers/sets/nearest_point.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array
from bonafed.problem.risks.risk import Names, Sizes, Worst, numbers, vector
from bonafed.problem.risks.weight_set import WeightSet, attained
from bonafed.solvers.sets.nearest_point import nearest_point
from bonafed.solvers.sets.projections import EPS

OFF = 1e-9  # how far returned weights may be off the simplex


@dataclass(frozen=True, eq=False)
class OwnSet(WeightSet):
    """A convex set of client weights by functions of your own.

    Parameters
    ----------
    maximiser : function losses (N,) -> weights (N,) of the set with the largest weights'losses, or
        (weights, bound) with a number that no weights of the set exceed. Without one the maximiser
        is taken at its word: a certificate is then as good as the maximiser is exact
    projection : function v (N,) -> the nearest weights of the set; None: by the maximiser, best
        where the set is a polytope of a few hundred clients or fewer
    membership : function (weights (N,), tol) -> bool; None: whether the nearest weights are within
        ``tol``

    Raises
    ------
    TypeError
        where one is not a function
    ValueError
        at the first use, for weights of another length, not finite, negative or not summing to one

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> half = bf.OwnSet(lambda losses: np.where(losses >= np.sort(losses)[-2], 0.5, 0.0))
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> half.worst(losses).weights.tolist()
    [0.0, 0.5, 0.5]
    """

    maximiser: Callable[[Array], ArrayLike | tuple[ArrayLike, float]]
    projection: Callable[[Array], ArrayLike] | None = None
    membership: Callable[[Array, float], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("maximiser", "projection", "membership"):
            function = getattr(self, name)
            if not callable(function) and (name == "maximiser" or function is not None):
                raise TypeError(f"{name} must be a function of a vector, got {function!r}.")

    def at(self, sizes: Sizes, names: Names = None) -> OwnSet:
        self.worst(np.zeros(len(sizes)))
        return self

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        answer = self.maximiser(losses.copy())
        weights, bound = answer if isinstance(answer, tuple) else (answer, None)
        q = _weights(weights, len(losses), "maximiser")
        value = float(q @ losses)
        if bound is None:
            return Worst(value, q, value + 32 * EPS * float(q @ np.abs(losses)))
        bound = float(numbers(bound, "the maximiser's bound"))
        if bound < value - 1e-9 * max(abs(value), float(np.abs(losses).max())):
            raise ValueError(
                f"the maximiser's bound {bound:.12g} is below the {value:.12g} of its own weights."
                " Return a number that no weights of the set exceed, or the weights only."
            )
        return attained(losses, q, bound)

    def project(self, v: Array) -> Array:
        v = vector(v, "v")
        if self.projection is None:
            return nearest_point(v, self.weights)
        return _weights(self.projection(v.copy()), len(v), "projection")

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        weights = vector(weights, "weights")
        if self.membership is not None:
            return bool(self.membership(weights.copy(), tol))
        return bool(np.abs(self.project(weights) - weights).max() <= tol)


def _weights(returned: object, n: int, name: str) -> Array:
    """What a function returned, as weights of n clients."""
    q = numbers(returned, f"the weights of {name}")
    if q.shape != (n,):
        raise ValueError(f"{name} must return {n} weights, one per client, got shape {q.shape}.")
    if q.min() < -OFF or abs(float(q.sum()) - 1) > OFF:
        raise ValueError(
            f"{name} must return weights >= 0 that sum to one, got a least weight of {q.min():.6g}"
            f" and a sum of {q.sum():.12g}. Keep the set within the simplex."
        )
    q = np.maximum(q, 0.0)
    return q / q.sum()
