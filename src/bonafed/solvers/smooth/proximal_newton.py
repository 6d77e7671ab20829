"""Proximal Newton: minimise g(w) + h(w), g smooth, h convex and separable with a prox.

    v = argmin_x  g'(w)'(x - w) + (x - w)'H(x - w) / 2 + h(x),        w <- w + step (v - w)

The model is minimised by semismooth Newton on x = prox_{t h}(x - t m'(x)), t = 1 / diag(H); its
last prox gives a subgradient of h at v, so that the distance of 0 from the subdifferential of g + h
at v is bounded by a number, with no further evaluation. Lee, Sun, Saunders, *Proximal Newton-type
methods for minimizing composite functions*.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.arrays import Array

Value = Callable[[Array], float]
Prox = Callable[[Array, Array], Array]  # (v, t) -> argmin_x t h(x) + |x - v|^2 / 2
ROUNDING = 1e-14  # relative to |g + h|: smaller differences are rounding


@dataclass(frozen=True, eq=False)
class Smooth:
    """The value and gradient of g at a point.

    ``hessian()`` is called only where a step starts; ``rest`` belongs to the caller.
    """

    value: float
    gradient: Array
    hessian: Callable[[], Array]
    rest: Any = None


@dataclass(frozen=True, eq=False)
class Minimum:
    """The point of least distance, or the last one where no whole step was possible.

    Attributes
    ----------
    w : (D,)
    smooth : g there
    subgradient : (D,) of h there
    distance : max_j |g'_j + subgradient_j|; inf before the first whole step
    evaluations : of g and its gradient
    reached : whether distance <= tol
    """

    w: Array
    smooth: Smooth
    subgradient: Array
    distance: float
    evaluations: int
    reached: bool


def minimise(
    g: Callable[[Array], Smooth], h: Value, prox: Prox, w: Array, tol: float, most: int = 100
) -> Minimum:
    """Minimise g + h from w, in the domain of h, to a distance ``tol``, in at most ``most`` steps.

    Parameters
    ----------
    prox : (v, t) -> argmin_x t h(x) + |x - v|^2 / 2, entry by entry, t (D,)
    """
    here, count = g(w), 1
    best = at_last = Minimum(w, here, np.zeros_like(w), math.inf, count, False)
    for _ in range(most):
        H = here.hessian()
        try:
            np.linalg.cholesky(H)
        except np.linalg.LinAlgError:  # H with positive eigenvalues of the same size
            values, vectors = np.linalg.eigh(H)
            floor = 1e-8 * max(float(np.abs(values).max()), 1e-300)
            H = (vectors * np.maximum(np.abs(values), floor)) @ vectors.T
        v, sub = model_minimum(here.gradient, H, prox, w)
        height, step = here.value + h(w), 1.0
        drop = float(here.gradient @ (v - w)) + h(v) - h(w)
        while True:
            x = v if step == 1.0 else w + step * (v - w)
            there = g(x)
            count += 1
            off = float(np.abs(there.gradient + sub).max()) if step == 1.0 else math.inf
            seen = ROUNDING * max(abs(height), abs(here.value), 1e-300)
            fall = there.value + h(x) - height
            level = off < 0.9 * best.distance and fall <= 10 * seen
            if fall <= 1e-4 * step * min(drop, 0.0) or level:
                break
            step /= 2
            if step < 1e-10:
                return replace(best, evaluations=count) if best.distance < math.inf else at_last
        w, here = x, there
        at_last = Minimum(w, here, sub, off, count, off <= tol)
        if off <= tol:
            return at_last
        best = at_last if off <= best.distance else best
    return replace(best, evaluations=count) if best.distance < math.inf else at_last


def model_minimum(gradient: Array, H: Array, prox: Prox, w: Array) -> tuple[Array, Array]:
    """The minimum v of gradient'(x - w) + (x - w)'H(x - w) / 2 + h(x), and s in dh(v).

    H must be positive definite.
    """
    t, x = 1 / np.diag(H), w
    for _ in range(50):
        z = x - t * (gradient + H @ (x - w))
        p = prox(z, t)
        miss = x - p
        if np.abs(miss).max() <= 1e-15 * (1 + np.abs(x).max()):
            return p, (z - p) / t
        nudge = 1e-7 * (t + np.abs(z))
        bend = np.clip((prox(z + nudge, t) - prox(z - nudge, t)) / (2 * nudge), 0.0, 1.0)
        bend = np.where(np.abs(bend - 1) < 1e-6, 1.0, np.where(bend < 1e-6, 0.0, bend))
        x = x - np.linalg.solve(np.diag(1 - bend) + (bend * t)[:, None] * H, miss)
    return _accelerated(gradient, H, prox, w)


def _accelerated(gradient: Array, H: Array, prox: Prox, w: Array) -> tuple[Array, Array]:
    """The same by accelerated proximal gradients, for where semismooth Newton cycles."""
    from bonafed.solvers.smooth.least_squares import fista  # which loads compiled code

    root = np.sqrt(np.diag(H))
    t = 1 / (root**2 * np.linalg.eigvalsh(H / np.outer(root, root))[-1])
    x = fista(lambda y: gradient + H @ (y - w), prox, 1 / t, w, 0.0, 5000)
    z = x - t * (gradient + H @ (x - w))
    x = prox(z, t)
    return x, (z - x) / t
