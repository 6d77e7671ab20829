"""The client step of the gradient methods: a client's risk F_i(w) and a subgradient of it.

``Linearise`` brings every client's slope to the server, ``Mix`` only the sum of all slopes, weighed by what the server
sent; both disclose every client's risk, and no row. What follows from either is one affine minorant of a convex
objective,

    sum_i q_i (F_i(w) + <F_i'(w), v - w>) + h(v),    q in Q

whose minimum is a lower bound on the optimum (``quorate.problem.bounds``).
"""

from __future__ import annotations

import math

import numpy as np

from quorate.algorithms.federated.epigraph_client import risk_slopes
from quorate.arrays import Array, Block
from quorate.problem.bounds import Duals, Minorant, Surveyed, lower_bound, region
from quorate.problem.problem import Problem
from quorate.problem.shape import sample_radii
from quorate.rounds import Each, Sum, record


@record
class Linearise:
    """Ask every client for its risk and its slope at ``w``."""

    w: Array  # (D,)


@record
class Linearised:
    """F_i(w) and F_i'(w)."""

    risk: Each  # (n,)
    slope: Each  # (n, D)


@record
class Mix:
    """Ask every client for its risk at ``w`` and for its weight times its slope."""

    w: Array  # (D,)
    weights: Each  # (N,)


@record
class Mixed:
    """F_i(w), and sum_i weights_i F_i'(w)."""

    risk: Each  # (n,)
    slope: Sum  # (1, D) per block


def linearise(problem: Problem, ask: Linearise, data: Block) -> Linearised:
    """The answer of every client of the block."""
    risk, slope, _ = risk_slopes(problem, ask.w, data)
    return Linearised(risk, slope)


def mix(problem: Problem, ask: Mix, data: Block) -> Mixed:
    """The answer of the block: its slopes are added up here."""
    risk, slope, _ = risk_slopes(problem, ask.w, data)
    return Mixed(risk, (ask.weights @ slope)[None])


def duals_at(problem: Problem, w: Array, weights: Array) -> Duals | None:
    """What proves a bound: the slopes at w, weighed; None where nothing is convex, or before there is a model."""
    if not len(w) or not problem.convex:
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
