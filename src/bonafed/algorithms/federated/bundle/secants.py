"""Second derivatives from how gradients change, by updates of BFGS.

    H' = H + y y' / (s'y) - H s (H s)' / (s'H s),       y the change of the gradient over the step s

keeps H positive definite where s'y > 0, and H' s = y (Nocedal, Wright, section 6.1).
"""

from __future__ import annotations

import math

import numpy as np

from bonafed.arrays import Array

NEAR = 10.0  # times as far as the nearest step: those that are taken over


def secants(H: Array, moved: Array, changed: Array) -> Array:
    """The curvature (D, D) updated, after BFGS, so that it changes gradients by ``changed`` (T, D)
    over the steps ``moved`` (T, D), the shortest ones last and exactly.
    """
    far = np.sqrt(np.maximum(np.einsum("td,de,te->t", moved, H, moved), 0.0))
    least = far.min(where=far > 0, initial=math.inf)
    for t in np.argsort(-far, kind="stable"):
        step, change = moved[t], changed[t]
        bent, gain = H @ step, float(step @ change)
        if 0 < far[t] <= NEAR * least and gain > 0.2 * float(step @ bent):
            H = H + np.outer(change, change) / gain - np.outer(bent, bent) / float(step @ bent)
    return H
