"""The projection onto a convex set of which only a linear maximiser is known.

    argmin_{q in Q} ||q - v||,     maximise(g) -> a point of Q of largest g'q

Wolfe, *Finding the nearest point in a polytope*: the point is kept as a mix of a few points of Q,
its corral. A point that is larger in the direction v - q joins; the nearest point of their affine
hull is next, and where it is outside their convex hull the corral loses members until it is not.
For a polytope this ends after finitely many steps, and for any set q stays in Q whatever the
rounding, and the last maximiser bounds how much nearer any point of Q can be:

    ||m - v||^2 >= ||q - v||^2 - 2 (v - q)'(m - q)    for all m in Q
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bonafed.arrays import Array

TOL = 1e-14  # of max (v - q)'(m - q), relative to the largest entry of v - q
STEPS = 10_000  # at most
ENOUGH = 1e-9  # what is still an answer where no step helps any more


def nearest_point(v: Array, maximise: Callable[[Array], Array]) -> Array:
    """The point of Q nearest to v.

    Raises
    ------
    ArithmeticError
        where (v - q)'(m - q), for the best m in Q, is not below 1e-9 of the largest |v - q| when no
        step helps
    """
    v = v - v.max()  # weights sum to one
    corral = maximise(v)[None]
    mix, q = np.ones(1), corral[0]
    gap, size = np.inf, 1.0
    for _ in range(STEPS):
        g = (v - q) - (v - q).max()
        new, size = maximise(g), max(1.0, float(np.abs(g).max()))
        gap = float(g @ (new - q))
        if gap <= TOL * size or (corral == new).all(1).any():
            break
        corral, mix = _shrunk(v, np.concatenate([corral, new[None]]), np.append(mix, 0.0))
        step = mix @ corral - q
        if not 2 * float(g @ step) > float(step @ step):  # no nearer
            break
        q = q + step
    if not abs(gap) <= ENOUGH * size:  # a negative gap: q exceeds the maximiser
        raise ArithmeticError(
            f"the nearest point is known to {abs(gap) / size:.1e} only, needed {ENOUGH:g}: the"
            " maximiser is not exact, or the set is too curved for a mix of points. Give the set a"
            " method `project`."
        )
    return q


def _shrunk(v: Array, corral: Array, mix: Array) -> tuple[Array, Array]:
    """The nearest point of the affine hull of those members whose convex hull contains it."""
    from scipy.linalg import lstsq

    while len(mix) > 1:
        edges = (corral[1:] - corral[0]).T
        solved: Any = lstsq(edges, v - corral[0], lapack_driver="gelsy", check_finite=False)
        rest = solved[0]
        best = np.append(1.0 - rest.sum(), rest)
        if (best > 0).all():
            return corral, best
        falling = best <= 0
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(falling & (mix > best), mix / (mix - best), np.inf)
        steps[falling & (mix <= 0)] = 0.0
        step = min(float(steps.min()), 1.0)
        mix = mix + step * (best - mix)
        kept = (steps > step) & (mix > 0)
        corral, mix = corral[kept], mix[kept] / mix[kept].sum()
    return corral, mix
