"""The client's step (8) or (9) of the private ADMM and its multipliers (4c), compiled.

Equation numbers are those of Ryu and Kim.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from bonafed.algorithms.federated.private.kernels import FAST

PROX, LINF, BALL = 0, 1, 2  # what keeps z^{t+1} near z^t


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
# Of more than 15 branches, because splitting it could change the compiler's vector sums.
def towards(w, z, dual, gradient, rho, near, reach, lower, upper, new):
    """Write z^{t+1} of step (8) or (9) of one client to ``new``; ``gradient`` is f_p' + xi_p.

    It adds no noise to z^{t+1}.

    near : PROX, where reach is 1 / eta; LINF or BALL, where it is the radius delta of (6b)
    lower, upper : the set W, or without entries
    """
    number = z.dtype.type
    pull = number(reach if near == PROX else 0.0)
    penalty, radius = number(rho), number(reach)
    over = number(1.0) / (penalty + pull)
    for j in range(len(w)):
        new[j] = (penalty * w[j] + dual[j] - number(gradient[j])) * over
    if pull > 0:
        for j in range(len(w)):
            new[j] += over * pull * z[j]
    if near == LINF and reach < np.inf:
        for j in range(len(w)):
            a, b = z[j] - radius, z[j] + radius
            v = a if new[j] < a else new[j]
            new[j] = b if v > b else v
    if near == BALL and reach < np.inf:
        size = 0.0
        for j in range(len(w)):
            size += (new[j] - z[j]) ** 2
        shorter = number(reach / math.sqrt(size) if size > reach * reach else 1.0)
        for j in range(len(w)):
            new[j] = z[j] + shorter * (new[j] - z[j])
    for j in range(len(lower)):
        v = lower[j] if new[j] < lower[j] else new[j]
        new[j] = upper[j] if v > upper[j] else v


@njit(cache=True, nogil=True, fastmath=FAST, error_model="numpy")
def update_multipliers(w, z, dual, rho, next_rho, new_dual, to):
    """Write (4c) into ``new_dual`` and add z^{t+1} - lambda^{t+1} / rho^{t+1} to ``to``.

    Returns sum |w - z^{t+1}|.
    """
    penalty, over = w.dtype.type(rho), 1.0 / next_rho
    gap = 0.0
    for j in range(len(w)):
        away = w[j] - z[j]
        multiplier = dual[j] + penalty * away
        new_dual[j] = multiplier
        gap += abs(away)
        to[j] += z[j] - over * multiplier
    return gap
