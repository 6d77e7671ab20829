"""The mixture of cuts that minimises a quadratic: the dual of a bundle's master problem.

    minimise over x:  <q, x> + x'Q x / 2     subject to  x >= 0,  sum x = 1

by a primal-dual interior point; Q is positive semidefinite and has some ten rows.
"""

import numpy as np

from bonafed.arrays import Array

STEPS = 60  # at most
NEAR = 0.995  # of the longest step
EXACT = 1e-15  # complementarity in units of the start's


def cut_weights(Q: Array, q: Array) -> Array:
    """The minimiser x (J,)."""
    J = len(q)
    if J == 1:
        return np.ones(1)
    q = q - q.min()
    scale = max(float(np.median(np.abs(np.diag(Q)))), float(np.median(q)), 1e-300)
    Q, q = Q / scale, q / scale
    x, z, level = np.full(J, 1 / J), np.full(J, 1.0 / J), 0.0
    for _ in range(STEPS):
        if float(x @ z) <= EXACT:
            break
        dual = Q @ x + q - level - z
        inverse = np.asarray(np.linalg.inv(Q + np.diag(z / x)), float)
        dx, dz, _ = _step(np.zeros(J), x, z, dual, inverse)
        far = min(_longest(x, dx), _longest(z, dz))
        left = (1 - far) ** 2 * max(1 - far, 1e-3)
        dx, dz, change = _step(left * float(x @ z) / J - dx * dz, x, z, dual, inverse)
        far = NEAR * min(_longest(x, dx), _longest(z, dz), 1 / NEAR)
        if not np.isfinite(dx).all():
            break
        x, z, level = x + far * dx, z + far * dz, level + far * change
    return x / x.sum()


def _step(mu: Array, x: Array, z: Array, dual: Array, inverse: Array) -> tuple[Array, Array, float]:
    """Towards the products x z = mu, where the mixture sums to one."""
    right, pull = inverse @ (mu / x - z - dual), inverse.sum(1)
    change = (1 - x.sum() - right.sum()) / pull.sum()
    dx = right + change * pull
    return dx, (mu - z * dx) / x - z, change


def _longest(x: Array, dx: Array) -> float:
    """The longest step that keeps x >= 0, at most one."""
    falls = dx < 0
    return min(1.0, float((-x[falls] / dx[falls]).min(initial=np.inf)))
