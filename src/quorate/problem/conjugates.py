"""Conjugates of the losses in the prediction:  l*(s) = sup_p  s p - l(p, y),  for gradients s in
their domain.
"""

from __future__ import annotations

import numpy as np

from quorate.arrays import Array
from quorate.problem.losses import Loss
from quorate.problem.rank_coordinates import kernel_of
from quorate.solvers.rank.scalar_losses import conjugates_of


def clipped_gradients(loss: Loss, gradient: Array, y: Array) -> Array:
    """The nearest gradients at which the conjugate is finite."""
    top = loss.lipschitz
    if loss.targets == "sign":
        return -y * np.clip(-y * gradient, 0.0, top)
    return np.clip(gradient, -top, top)


def loss_conjugate(loss: Loss, gradient: Array, y: Array) -> Array:
    """l*(gradient), elementwise; inf outside the domain. Losses with a rank coordinate
    (``kernel_of``) only.
    """
    kernel = kernel_of(loss)
    if kernel.even:  # l(|p - y|)
        return conjugates_of(np.abs(gradient), kernel) + gradient * y
    return conjugates_of(-y * gradient, kernel)  # l(-y p), y = -1 or 1
