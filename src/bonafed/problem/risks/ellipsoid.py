"""The worst client weights in an ellipsoid round a prior.

    R(z) = max { q'z : (q - prior)' shape^-1 (q - prior) <= radius,  q >= 0,  sum q = 1 }

Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-EASE),
their ellipsoid with q >= 0, which it does not imply. A vector for shape is its diagonal; shape = 1
is ``LpBall(sqrt(radius), 2, prior)``, shape = prior ``ChiSquareBall(radius, prior)``. radius = 0 is
``Mean(prior)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from bonafed.arrays import Array
from bonafed.problem.risks.risk import (
    Matrix,
    Names,
    Prior,
    Sizes,
    by_name,
    entries,
    number,
    numbers,
    prior_for,
    resolve_prior,
)
from bonafed.problem.risks.weight_set import WeightSet
from bonafed.solvers.sets.ellipsoids import largest_in_ellipsoid, off_ellipsoid, project_ellipsoid
from bonafed.solvers.sets.rotated_ellipsoids import (
    Axes,
    axes,
    largest_in_axes,
    off_axes,
    project_axes,
)


@dataclass(frozen=True, eq=False)
class Ellipsoid(WeightSet):
    """Client weights in an ellipsoid round a prior.

    Parameters
    ----------
    shape : (N,) > 0 or a mapping by client name, how freely each weight may leave its prior; or a
        symmetric positive definite matrix (N, N), such as a covariance of the clients' losses
    radius : number >= 0, a square; 0 is the mean
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite; a shape that is not positive (definite) or not symmetric, or of
        another number of clients; a prior that is not a probability vector (the last two by ``at``
        or at the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Ellipsoid(shape=[1.0, 1.0, 1.0], radius=0.01)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.272, 0.318, 0.41]
    """

    phrase: ClassVar[str] = (
        "weights in an ellipsoid of squared radius {radius} round the {prior:given} prior"
    )
    shape: Sequence[float] | Matrix | Mapping[Any, float]
    radius: float
    prior: Prior = "uniform"

    def __post_init__(self) -> None:
        number(
            self.radius,
            "radius",
            "It bounds a square: for the mean use 0, for all client weights Simplex().",
        )
        shape = checked(entries(self.shape))
        if not isinstance(self.shape, Mapping):
            object.__setattr__(self, "shape", shape)

    def at(self, sizes: Sizes, names: Names = None) -> Ellipsoid:
        shape = checked(by_name(self.shape, names, "shape"))
        concrete = replace(self, shape=shape, prior=resolve_prior(self.prior, sizes, names))
        concrete.concrete(len(sizes))
        return concrete

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Of several maximisers the one nearest to the prior, in the ellipsoid's norm."""
        prior, shape, radius = self.concrete(len(losses))
        if shape.ndim == 1:
            return largest_in_ellipsoid(losses, prior, shape, radius)
        return largest_in_axes(losses, prior, self.axes, radius)

    def _nearest(self, v: Array) -> Array:
        prior, shape, radius = self.concrete(len(v))
        if shape.ndim == 1:
            return project_ellipsoid(v, prior, shape, radius)
        return project_axes(v, prior, self.axes, radius)

    def _holds(self, weights: Array, tol: float) -> bool:
        prior, shape, radius = self.concrete(len(weights))
        d = weights - prior
        off = off_ellipsoid(d, shape, radius) if shape.ndim == 1 else off_axes(d, self.axes, radius)
        return bool(off <= tol)

    def concrete(self, n: int) -> tuple[Array, Array, float]:
        """(prior, shape, radius) for n clients; ``ValueError`` where shape is of another number."""
        if isinstance(self.shape, Mapping):
            raise ValueError(
                "shape by client name needs the clients' names: call ellipsoid.at(sizes, names)"
                " first."
            )
        shape = np.asarray(self.shape)
        if len(shape) != n:
            raise ValueError(
                f"shape must have {n} numbers or {n} x {n}, one row per client, got"
                f" {shape.shape}: give one for each client."
            )
        return prior_for(self.prior, n), shape, float(self.radius)

    @cached_property
    def axes(self) -> Axes:
        """The factors of a shape that is a matrix."""
        return axes(np.asarray(self.shape))


def checked(shape: object) -> Array:
    """``shape`` as a positive vector or a symmetric positive definite matrix."""
    array = numbers(shape, "shape")
    if array.ndim == 1 and array.size > 0:
        if (array <= 0).any():
            raise ValueError(
                f"shape must be positive, got {array.min():g} for client {int(array.argmin())}: to"
                " fix a weight at its prior use CDNorm with a bound of 0."
            )
        return array
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise ValueError(
            "shape must be a vector or a square matrix, one row per client, got shape"
            f" {array.shape}."
        )
    if np.abs(array - array.T).max() > 1e-12 * np.abs(array).max():
        raise ValueError("shape must be a symmetric matrix: use (shape + shape.T) / 2.")
    try:
        axes(array)
    except np.linalg.LinAlgError as error:
        least = float(np.linalg.eigvalsh(array)[0])
        raise ValueError(
            f"shape must be positive definite, got a least eigenvalue of {least:.3g}: add a"
            " multiple of the identity."
        ) from error
    return array
