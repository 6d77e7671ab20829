"""Norms, proximal operators, projections and worst cases as pure functions of arrays, each with its
formula; nothing here keeps state or changes its input.

norms         lp_norm(v, p) = (sum |v_i|^p)^(1/p)                  dual_exponent(p):  1/p + 1/p* = 1
proxes  soft_threshold(v, t) = sign(v) max(|v| - t, 0)
        prox(h, v, t) = argmin t h(w) + ||w - v||^2/2
              pava(m, s, rho, l) = argmin_z  sum s_i l(z)_[i] + rho ||z - m||^2/2, losses sorted
projections  project_simplex(v, total): {q >= 0, sum q = total}
        project_lp_unit_ball(v, p): {||d||_p <= 1}
project_lp_ball(x, c, r, p): {q >= 0, sum q = 1, ||q - c||_p <= r}
project_under_caps(v, c): {0 <= q <= c, sum q = 1}
        project_permutahedron(v, s): conv {s in any order}, s rising
oracles  largest_over_lp_ball(z, c, r, p) -> (q, bound), q'z = max over that set <= bound;
largest_under_caps(z, c)
aggregation  average  coordinate_median  trimmed_mean  krum
        bulyan (models (n, D), weights (n,)) -> (D,)
roots  decreasing_root(f, lo, hi): an interval of rounding size round the root of f -> (value,
gradient)
"""

import numpy as np

from bonafed.algorithms.comparators.fed_avg import (
    average,
    bulyan,
    coordinate_median,
    krum,
    trimmed_mean,
)
from bonafed.arrays import Array
from bonafed.problem.losses import Loss
from bonafed.problem.rank_levels import kernel_of
from bonafed.problem.regularisers import Regulariser
from bonafed.problem.risks.ranks import project_permutahedron
from bonafed.problem.risks.risk import SupportsProx
from bonafed.solvers.rank.proxes import rank_prox
from bonafed.solvers.sets.projections import (
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

__all__ = ["average", "bulyan", "coordinate_median", "decreasing_root", "dual_exponent", "krum"]
__all__ += ["largest_over_lp_ball", "largest_under_caps", "lp_norm", "pava", "project_lp_ball"]
__all__ += ["project_lp_unit_ball", "project_permutahedron", "project_simplex"]
__all__ += ["project_under_caps", "prox", "soft_threshold", "trimmed_mean"]


def prox(function: Regulariser | SupportsProx, v: Array, step: float) -> Array:
    """argmin_w step f(w) + ||w - v||^2 / 2 for a regulariser or a risk f; step > 0."""
    return function.prox(v, step)


def pava(m: Array, weights: Array, rho: float, loss: Loss, *, decreasing: bool = False) -> Array:
    """argmin_z  sum_i weights_i l(z)_[i] + rho / 2 ||z - m||^2,
            l(z)_[1] <= ... <= l(z)_[n] the sorted losses.

    Exact and global for any weights, ascending or not, by pooling adjacent violators (Xiao, Ge,
    Jiang, Yan, *A unified framework for rank-based loss minimization*). Where weights fall, equal
    entries of m can part: by position.

    Parameters
    ----------
    m : (n,) in the units of z: for margin losses z = -y * prediction, for the others z = prediction
        - y
    weights : (n,) >= 0 in ascending order: weights_1 goes with the smallest loss
        (``risk.rank_weights(n)``)
    rho : > 0
    loss : Hinge, SmoothHinge, Logistic, Exponential; Squared, Absolute, Huber, EpsilonInsensitive
    decreasing : z is the margin y * prediction itself, in which margin losses fall

    Returns
    -------
    z : (n,) in the order of m

    Raises
    ------
    TypeError
        for losses that no rank coordinate orders (``Quantile``, ``Poisson``, ``Multinomial``)
    ValueError
        for entries that are not finite, shapes that differ, negative weights, rho <= 0
    """
    m, weights = np.asarray(m, dtype=float), np.asarray(weights, dtype=float)
    if m.ndim != 1 or weights.shape != m.shape:
        got = f"{m.shape} and {weights.shape}"
        raise ValueError(f"m and weights must be (n,) both, got {got}: one weight for each rank.")
    if not (np.isfinite(m).all() and np.isfinite(weights).all()):
        do = "drop or fill these entries first."
        raise ValueError(f"m and weights must be finite, got nan or inf: {do}")
    if (weights < 0).any():
        why = "a loss cannot count against the others."
        raise ValueError(f"weights must be >= 0, got {weights.min()}: {why}")
    if not (0 < rho < np.inf and np.isfinite(1 / rho)):
        why = "it weighs the distance from m."
        raise ValueError(f"rho must be a positive number, got {rho}: {why}")
    sign = -1.0 if decreasing else 1.0
    return sign * rank_prox(sign * m, weights, rho, kernel_of(loss)).z
