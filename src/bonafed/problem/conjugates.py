"""Conjugates of the losses in the prediction:  l*(s) = sup_p  s p - l(p, y),  for gradients s in
their domain.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from bonafed.arrays import Array
from bonafed.problem.losses import Loss, has_log_link
from bonafed.problem.rank_coordinates import has_rank_coordinate, kernel_of
from bonafed.solvers.rank.scalar_losses import conjugates_of


def has_conjugate(loss: Loss) -> bool:
    """Whether ``loss_conjugate`` knows the loss."""
    return has_log_link(loss) or has_rank_coordinate(loss)


def clipped_gradients(loss: Loss, gradient: Array, y: Array) -> Array:
    """The nearest gradients at which the conjugate is finite."""
    top = loss.lipschitz
    if has_log_link(loss):
        return np.maximum(gradient, -y)
    if loss.targets == "sign":
        return -y * np.clip(-y * gradient, 0.0, top)
    return np.clip(gradient, -top, top)


def loss_conjugate(loss: Loss, gradient: Array, y: Array) -> Array:
    """l*(gradient), elementwise; inf outside the domain. Of losses that ``has_conjugate`` knows."""
    if has_log_link(loss):  # exp(p) - y p - (y - y log y)
        rate = gradient + y
        value = xlogy(rate, np.maximum(rate, 1e-300)) - rate + y - xlogy(y, y)
        return np.where(rate >= 0, value, np.inf)
    kernel = kernel_of(loss)
    if kernel.even:  # l(|p - y|)
        return conjugates_of(np.abs(gradient), kernel) + gradient * y
    return conjugates_of(-y * gradient, kernel)  # l(-y p), y = -1 or 1
