"""The distance of a model from stationarity, where no lower bound can be proved.

This is for predictions that are not affine in the model.

    || sum_i q_i grad F_i(w) + h'(w) ||_2 :
            how far -sum_i q_i grad F_i(w) is from the subdifferential of h at w

The client weights q are those of the algorithm, moved into their set, or else the worst ones at
w. Where q is worst for w (its complementarity R(F(w)) - <q, F(w)> is 0) and this distance is 0, w
is stationary: every local optimum of smooth losses has such a q, but so do some models that are not
an optimum. Where clients tie for the worst, worst weights at w by itself need not be that q, so the
distance can be far from 0 at an optimum.

Each client keeps its rows; the server receives the two sums over all clients.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.certificates.kkt import off_regulariser
from bonafed.codec import Form
from bonafed.problem.problem import Problem
from bonafed.rounds import Each, Sum, record


@record
class Differentiate:
    """Ask for the gradient of the client's risk at ``w``, times its weight."""

    w: Annotated[Array, Form("D")]
    weights: Annotated[Each, Form("N")]


@record
class Differentiated:
    """The client's part of the gradient of the weighted risks."""

    gradient: Sum  # (n, D)
    length: Sum  # (n,) its Euclidean length: what the parts would add up to if none cancelled


def differentiate(problem: Problem, ask: Differentiate, data: Block) -> Differentiated:
    """The answer of every client of the block."""
    gradient = ask.weights[:, None] * problem.cut(ask.w, data).gradient
    return Differentiated(gradient, np.sqrt((gradient * gradient).sum(1)))


def chosen(problem: Problem, weights: Array | None, risks: Array) -> Array:
    """The client weights q (N,): those of the algorithm, moved into their set, or a worst one."""
    if weights is None:
        return np.asarray(problem.over_clients.worst(risks).weights, float)
    inside = hasattr(problem.over_clients, "project")
    return np.asarray(problem.over_clients.project(weights) if inside else weights, float)


def stationarity(problem: Problem, w: Array, up: Differentiated) -> tuple[float, float]:
    """The distance of the module's docstring, and the length of the clients' parts as its scale.

    It is inf where it is not a number.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        distance = float(np.linalg.norm(off_regulariser(problem, w, -up.gradient)))
    return (distance if math.isfinite(distance) else math.inf), float(up.length)
