"""How far a model is from stationary, where predictions are not affine in it and no bound can be proved.

    || sum_i q_i grad F_i(w) + h'(w) ||_2 :  how far -sum_i q_i grad F_i(w) is from the subdifferential of h at w

q is the weighting that the algorithm names, moved into its set, or else a worst one at w. Where q is worst for w (its
complementarity R(F(w)) - <q, F(w)> is 0) and this distance is 0, w is stationary: every local optimum of smooth losses
has such a q, and models that are no optimum have one too. Where clients tie for the worst, a worst weighting found at w
alone need not be that q, so that its distance can be far from 0 at an optimum.

Each client keeps its rows; the server receives the two sums over all clients.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quorate.arrays import Array, Block
from quorate.certificates.kkt import off_regulariser
from quorate.problem.problem import Problem
from quorate.rounds import Each, Outcome, Stop, Sum, record


@record
class Differentiate:
    """Ask for the slope of the client's risk at ``w``, times its weight."""

    w: Array  # (D,)
    weights: Each  # (N,)


@record
class Differentiated:
    """The client's part of the slope of the weighted risks."""

    slope: Sum  # (n, D)
    length: Sum  # (n,) its Euclidean length: what the parts would add up to if none cancelled


def differentiate(problem: Problem, ask: Differentiate, data: Block) -> Differentiated:
    """The answer of every client of the block."""
    slope = ask.weights[:, None] * problem.cut(ask.w, data).slope
    return Differentiated(slope, np.sqrt((slope * slope).sum(1)))


def chosen(problem: Problem, weights: Array | None, risks: Array) -> Array:
    """q (N,): the weighting given, moved into its set, or a worst one."""
    if weights is None:
        return np.asarray(problem.over_clients.worst(risks).weights, float)
    inside = hasattr(problem.over_clients, "project")
    return np.asarray(problem.over_clients.project(weights) if inside else weights, float)


def stationarity(problem: Problem, w: Array, up: Differentiated) -> tuple[float, float]:
    """The distance above, and the length of the clients' parts, which is its scale; inf where it is no number."""
    with np.errstate(invalid="ignore", over="ignore"):
        found = float(np.linalg.norm(off_regulariser(problem, w, -up.slope)))
    return (found if math.isfinite(found) else math.inf), float(up.length)


def unprovable(outcome: Outcome, proof: Any, problem: Problem) -> Outcome:
    """The outcome with what its certificate ``proof`` recomputed; never optimal."""
    rested = "came to rest by the method's own test." if outcome.stop is Stop.OPTIMAL else outcome.text
    stop = Stop.UNPROVEN if outcome.stop is Stop.OPTIMAL else outcome.stop
    measured = (
        f" Recomputed: stationarity {proof.stationarity:.1e} (lengths of the clients' slopes: "
        f"{proof.gradient_scale:.1e}), complementarity {proof.complementarity:.1e}."
    )
    return Outcome(
        stop,
        f"{rested}{measured} {problem.predictor!r} is not convex in its parameters, "
        "so no bound says how far the optimum may be: another start or seed can lead elsewhere.",
    )
