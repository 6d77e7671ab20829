"""Conjugates of the losses in the prediction:  l*(s) = sup_p  s p - l(p, y),  for slopes s in their domain."""

from __future__ import annotations

from typing import Any

import numpy as np

from quorate.arrays import Array
from quorate.problem.ranked import kernel_of
from quorate.solvers.monotone import conjugates_of


def clipped_slopes(loss: Any, slope: Array, y: Array) -> Array:
    """The nearest slopes at which the conjugate is finite."""
    top = loss.lipschitz
    if loss.targets == "sign":
        return -y * np.clip(-y * slope, 0.0, top)
    return np.clip(slope, -top, top)


def loss_conjugate(loss: Any, slope: Array, y: Array) -> Array:
    """l*(slope), elementwise; inf outside the domain. Losses with a rank coordinate (``kernel_of``) only."""
    kernel = kernel_of(loss)
    if kernel.even:  # l(|p - y|)
        return conjugates_of(np.abs(slope), kernel) + slope * y
    return conjugates_of(-y * slope, kernel)  # l(-y p), y = -1 or 1
