"""The method of conjugate gradients for A x = b, one product with A at a time.

A is symmetric and positive semidefinite, and somebody else multiplies by it: clients, who add up
their parts of the product. Preconditioned by the diagonal of A.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bonafed.arrays import Array
from bonafed.codec import record

TOL = 1e-8  # of the residual, relative to its start, in the norm of the inverse diagonal
FLAT = 1e-14  # a direction has no curvature below this share of the diagonal's


@record
class ConjugateGradients:
    """The solution so far, and the direction whose product with A comes next."""

    x: Array
    residual: Array  # b - A x
    direction: Array
    diagonal: Array  # of A
    energy: float  # of the residual
    first: float  # of b
    ended: bool = False


def started(right: Array, diagonal: Array) -> ConjugateGradients:
    """x = 0; entries without curvature stay there."""
    direction = _preconditioned(right, diagonal)
    energy = float(right @ direction)
    ended = not (np.isfinite(energy) and energy > 0)
    return ConjugateGradients(
        np.zeros_like(right), right, direction, diagonal, energy, energy, ended
    )


def stepped(state: ConjugateGradients, product: Array) -> ConjugateGradients:
    """The next iterate, by the product of A with the direction."""
    p = state.direction
    curvature = float(p @ product)
    if not curvature > FLAT * float(p * p @ state.diagonal):
        return replace(state, ended=True)
    step = state.energy / curvature
    residual = state.residual - step * product
    scaled = _preconditioned(residual, state.diagonal)
    energy = float(residual @ scaled)
    return replace(
        state,
        x=state.x + step * p,
        residual=residual,
        direction=scaled + energy / state.energy * p,
        energy=energy,
        ended=not energy > TOL**2 * state.first,
    )


def _preconditioned(v: Array, diagonal: Array) -> Array:
    return np.divide(v, diagonal, out=np.zeros_like(v), where=diagonal > 0)
