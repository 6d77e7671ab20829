"""Anderson's acceleration of a fixed point iteration, from inner products of its residuals only.

    next point = sum_j mix_j g_j,  mix = argmin { ||sum_j mix_j r_j||^2 : sum mix = 1 },
            r_j = g_j - v_j

g_j is the image of the point v_j. Fu, Zhang, Boyd, *Anderson accelerated Douglas-Rachford
splitting* (type II). The clients that hold parts of v need to reveal only their sums of <r_j, r_k>.
"""

from __future__ import annotations

import numpy as np

from bonafed.arrays import Array


def mixing(gram: Array, regularise: float = 1e-10, most: float = 30.0) -> Array:
    """The weights of the last h images.

    Parameters
    ----------
    gram : (h, h) inner products of the residuals, the newest last
    regularise : relative to the squared size of the residuals' changes
    most : the weights' sizes add up to at most this, else the system is regularised further: points
        that hardly differ say little about where to go, and far beyond them the map may behave
        differently

    Returns
    -------
    (h,) weights, sum 1; the newest only where the system is not finite
    """
    h = len(gram)
    plain = np.eye(h)[-1]
    if h < 2:
        return plain
    change = np.diff(np.eye(h), axis=0)  # r_{j+1} - r_j
    normal = change @ gram @ change.T
    size = float(np.trace(normal))
    if not (np.isfinite(normal).all() and size > 0):
        return plain
    while regularise < 1e6:
        gamma = np.linalg.solve(normal + regularise * size * np.eye(h - 1), change @ gram[:, -1])
        mix = plain - gamma @ change
        if np.isfinite(mix).all() and np.abs(mix).sum() <= most:
            return mix
        regularise = max(100 * regularise, 1e-14)
    return plain
