"""The mathematics as pure functions of arrays, each with its formula; nothing here keeps state or mutates its input.

norms         lp_norm(v, p) = (sum |v_i|^p)^(1/p)                         dual_exponent(p):  1/p + 1/p* = 1
proxes        soft_threshold(v, t) = sign(v) max(|v| - t, 0)              prox(h, v, t) = argmin t h(w) + ||w - v||^2/2
projections   project_simplex(v, total): {q >= 0, sum q = total}          project_lp_unit_ball(v, p): {||d||_p <= 1}
project_lp_ball(x, c, r, p): {q >= 0, sum q = 1, ||q - c||_p <= r}       project_under_caps(v, c): {0 <= q <= c, sum q = 1}
project_permutahedron(v, s): conv {s in any order}, s ascending
oracles       largest_over_lp_ball(z, c, r, p) -> (q, bound), q'z = max over that set <= bound; largest_under_caps(z, c)
roots         decreasing_root(f, lo, hi): an interval of rounding size round the root of f -> (value, slope)
"""

from __future__ import annotations

from quorate.arrays import Array
from quorate.problem.regularisers import Regulariser
from quorate.problem.risks.ranks import project_permutahedron
from quorate.problem.risks.risk import SupportsProx
from quorate.solvers.projections import (
    decreasing_root,
    dual_exponent,
    largest_over_lp_ball,
    largest_under_caps,
    lp_norm,
    project_lp_ball,
    project_lp_unit_ball,
    project_simplex,
    project_under_caps,
    soft_threshold,
)

__all__ = [
    "decreasing_root",
    "dual_exponent",
    "largest_over_lp_ball",
    "largest_under_caps",
    "lp_norm",
    "project_lp_ball",
    "project_lp_unit_ball",
    "project_permutahedron",
    "project_simplex",
    "project_under_caps",
    "prox",
    "soft_threshold",
]


def prox(function: Regulariser | SupportsProx, v: Array, step: float) -> Array:
    """argmin_w step f(w) + ||w - v||^2 / 2 for a regulariser or a risk f; step > 0."""
    return function.prox(v, step)
