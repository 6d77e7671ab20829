"""The client step of gradient methods, and what the slopes of all clients at one model prove.

``Linearise`` brings every client's risk F_i(w) and slope F_i'(w) to the server, and no row. Weighed by any q in Q, also
where the server knows their sum alone, they are an affine minorant of a convex objective,

    sum_i q_i (F_i(w) + <F_i'(w), v - w>) + h(v),    q in Q

whose minimum is a lower bound on the optimum (``quorate.problem.bounds``).
"""

from __future__ import annotations

import math

import numpy as np

from quorate.algorithms.federated.epigraph_client import risk_slopes
from quorate.arrays import Array, Block
from quorate.problem.bounds import Duals, Minorant, Surveyed, lower_bound, region
from quorate.problem.predictors import is_affine
from quorate.problem.problem import Problem
from quorate.problem.risks.mean import Mean
from quorate.problem.shape import sample_radii
from quorate.rounds import Each, record


@record
class Linearise:
    """Ask every client for its risk and its slope at ``w``."""

    w: Array  # (D,)


@record
class Linearised:
    """F_i(w) and F_i'(w)."""

    risk: Each  # (n,)
    slope: Each  # (n, D)


def linearise(problem: Problem, ask: Linearise, data: Block) -> Linearised:
    """The answer of every client of the block."""
    risk, slope, _ = risk_slopes(problem, ask.w, data)
    return Linearised(risk, slope)


def is_smooth(problem: Problem) -> bool:
    """Whether slopes of the clients' risks are continuous, so that their changes tell how long a step may be."""
    return bool(problem.loss.smooth) and isinstance(problem.over_samples, Mean)


def duals_at(problem: Problem, w: Array, weights: Array) -> Duals | None:
    """What proves a bound: the slopes at w, weighed; None before there is a model, and for risks that are not convex.

    For models that are not affine the certificate takes the weights alone, to say how far w is from stationary.
    """
    if not len(w) or not (problem.convex or not is_affine(problem.predictor)):
        return None
    return Duals(weights, w[None], weights[None])


def bound_at(
    problem: Problem, w: Array, value: float, risk: float, slope: Array, weights: Array, seen: Surveyed | None
) -> float:
    """What the slopes at w prove: risk = sum_i q_i F_i(w), slope = sum_i q_i F_i'(w), q in Q; -inf for nothing.

    ``value`` is the objective of any known model: no better one lies outside the region that it bounds.
    """
    if not problem.convex or not hasattr(problem.regulariser, "conjugate") or not math.isfinite(value):
        return -math.inf
    where = region(problem, value, np.size(problem.predictor.split(w)[0]), seen)
    flat = -weights * sample_radii(problem, len(weights))  # the slopes hold for the price's floor: none is left
    bound, _ = lower_bound(problem, Minorant(risk - float(slope @ w), slope, flat, weights), where)
    return bound
