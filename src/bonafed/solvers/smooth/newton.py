"""Newton's method and L-BFGS for n smooth functions at once.

    minimise  phi_i(v_i)  over v_i in R^D,   i = 1..n,   until  max_j |d phi_i / d v_ij| <= tol

Each function has a separate step length and stops by itself, as if the others were not there.
Functions may have kinks in the second derivative (squares of positive parts). Where phi is not
convex the Hessian's eigenvalues enter by their absolute values, and the end is a stationary point.
All derivatives are exact.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.arrays import Array

Flags = NDArray[np.bool_]
Smooth = Callable[[Array], tuple[Array, Array]]  # v (n, D) -> values (n,), gradients (n, D)
Curve = Callable[[Array], Array]  # v (n, D) -> Hessians (n, D, D)
Direction = Callable[[Array, Array, Flags], Array]  # of v, the gradients and who searches on
HALVINGS = 50
# a search ends after so many steps in a row that change the value by rounding only and do not halve
# the gradient
FLAT = 4
ROUNDING = 1e-13


class Minima(NamedTuple):
    """The points where the searches ended.

    Attributes
    ----------
    v : (n, D)
    residual : (n,) Chebyshev norms of the gradients there; above ``tol`` only where rounding or the
        cap stopped the search
    iterations : (n,) steps of each
    """

    v: Array
    residual: Array
    iterations: NDArray[np.intp]


def newton(
    function: Smooth, hessian: Curve, start: Array, tol: float, convex: bool = True, cap: int = 100
) -> Minima:
    """Newton's method with Armijo's rule.

    Parameters
    ----------
    function : v (n, D) -> (phi (n,), phi' (n, D))
    hessian : v (n, D) -> (n, D, D); positive definite where ``convex``
    start : (n, D)
    tol : of the Chebyshev norm of the gradient
    convex : False replaces negative curvature by positive curvature of the same size
    cap : steps of a search
    """

    def direction(v: Array, gradient: Array, on: Flags) -> Array:
        H, g = hessian(v), gradient[:, :, None]
        if convex:
            with contextlib.suppress(np.linalg.LinAlgError):  # singular to rounding
                return -np.asarray(np.linalg.solve(H, g)[:, :, 0], float)
        values, vectors = np.linalg.eigh(H)
        size = np.abs(values)
        size = np.maximum(size, 1e-12 * size.max(1, keepdims=True) + 1e-300)
        inside = np.matmul(vectors.transpose(0, 2, 1), g)[:, :, 0] / size
        return -np.matmul(vectors, inside[:, :, None])[:, :, 0]

    return _descend(function, direction, start, tol, cap)


def lbfgs(function: Smooth, start: Array, tol: float, memory: int = 20, cap: int = 1000) -> Minima:
    """Limited-memory BFGS with Armijo's rule, for models too long for Newton's method.

    Parameters
    ----------
    function, start, tol, cap : as of ``newton``
    memory : pairs of steps and changes of the gradient kept
    """
    # steps s and changes y of the gradient, the newest last, with 1 / s'y, which is 0 where a pair
    # has no positive curvature and is left out
    pairs: deque[tuple[Array, Array, Array]] = deque(maxlen=memory)
    scale, last = np.ones(len(start)), list[Array]()  # s'y / y'y of the newest

    def direction(v: Array, gradient: Array, on: Flags) -> Array:
        nonlocal scale
        if last:
            s, y = v - last[0], gradient - last[1]
            sy, yy = (s * y).sum(1), (y * y).sum(1)
            kept = on & (sy > 1e-14 * np.sqrt((s * s).sum(1) * yy))
            scale = np.where(kept, np.divide(sy, yy, out=np.ones_like(sy), where=yy > 0), scale)
            pairs.append((s, y, np.divide(1.0, sy, out=np.zeros_like(sy), where=kept)))
        last[:] = v, gradient
        if not pairs:  # the first step is at most 1 long
            return -(gradient / np.maximum(np.sqrt((gradient**2).sum(1, keepdims=True)), 1.0))
        q, part = gradient.copy(), []
        for s, y, inverse in reversed(pairs):
            part.append(inverse * (s * q).sum(1))
            q -= part[-1][:, None] * y
        q *= scale[:, None]
        for s, y, inverse in pairs:
            q += (part.pop() - inverse * (y * q).sum(1))[:, None] * s
        return -q

    return _descend(function, direction, start, tol, cap)


# ---- the search that Newton and L-BFGS share


def _descend(function: Smooth, direction: Direction, start: Array, tol: float, cap: int) -> Minima:
    v = np.array(start, float)
    value, gradient = function(v)
    residual = np.abs(gradient).max(1, initial=0.0)
    if not np.isfinite(residual).all():
        raise ArithmeticError(
            "a function is not finite where its search starts: rescale the features, or start"
            " elsewhere."
        )
    iterations, flat = np.zeros((2, len(v)), np.intp)
    stuck = np.zeros(len(v), bool)
    for _ in range(cap):
        on = (residual > tol) & ~stuck
        if not on.any():
            break
        step = np.where(on[:, None], direction(v, gradient, on), 0.0)
        downhill = (gradient * step).sum(1)
        wrong = on & ~(downhill < 0)  # rounding, or no descent direction
        step[wrong], downhill[wrong] = -gradient[wrong], -(gradient[wrong] ** 2).sum(1)
        # halve the steps until the functions, or within rounding their gradients, fall enough
        length, taken = np.ones(len(v)), np.zeros(len(v), bool)
        new, after, there = v, value.copy(), gradient.copy()
        size, rounding = (gradient**2).sum(1), ROUNDING * (1 + np.abs(value))
        for _ in range(HALVINGS):
            tried = v + length[:, None] * step
            f, g = function(tried)
            with np.errstate(invalid="ignore", over="ignore"):
                falls = f <= value + 1e-4 * length * downhill
                falls |= (f <= value + rounding) & ((g**2).sum(1) < size)
            good = on & ~taken & falls & np.isfinite(g).all(1)
            new, there = np.where(good[:, None], tried, new), np.where(good[:, None], g, there)
            after, taken = np.where(good, f, after), taken | good
            if not (on & ~taken).any():
                break
            length = np.where(taken, length, length / 2)
        level = value - after <= ROUNDING * (1 + np.abs(value))
        v, value = np.where(taken[:, None], new, v), np.where(taken, after, value)
        gradient, before = np.where(taken[:, None], there, gradient), residual
        residual = np.abs(gradient).max(1, initial=0.0)
        flat = np.where(level & (residual > before / 2), flat + 1, 0)
        stuck |= on & (~taken | (flat > FLAT))  # as far as rounding allows
        iterations = iterations + taken
    return Minima(v, residual, iterations)
