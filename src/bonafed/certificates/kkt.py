"""Residuals of the optimality conditions of a rank-based problem, convex or not.

They are computed from (problem, rows, w, alpha, z) only:

    dist(alpha, dOmega(z)),      dist(-D'alpha, dg(w)),      ||z - (D w - b)||

These are the three conditions of Theorem 1 of Xiao, Ge, Jiang, Yan, *A unified framework for
rank-based loss minimization*, with alpha = -lambda. The set that stands for dOmega contains
Clarke's subdifferential (chain rule): entries with equal z share the weights sigma_B of their ranks
in any convex combination of orders, times a gradient of the loss. So alpha_B lies in l'(z) times
the permutahedron of sigma_B, and at a kink (gradients 0 to 1) below it in the sense of
submajorisation. Its nearest point is one isotonic regression. Where the weights of prospect theory
jump, at the reference, the side towards which the objective jumps up is free.

For predictions that are not affine in the model, where no lower bound can be proved, there is
``stationarity``:

    || sum_i q_i grad F_i(w) + h'(w) ||_2 :
            how far -sum_i q_i grad F_i(w) is from the subdifferential of h at w

The client weights q are those of the algorithm, moved into their set, or else the worst ones at
w. Where q is worst for w (its complementarity R(F(w)) - <q, F(w)> is 0) and this distance is 0, w
is stationary: every local optimum of smooth losses has such a q, but so do some models that are not
an optimum. Where clients tie for the worst, the worst weights at w need not be that q, so the
distance can be far from 0 at an optimum.

Each client keeps its rows; the server receives the two sums over all clients.
"""

import math
from typing import Annotated

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.codec import Form
from bonafed.problem import regularisers
from bonafed.problem.problem import Problem
from bonafed.problem.rank_coordinates import kernel_of, knot_of, rank_rows, rank_weights
from bonafed.rounds import Each, Sum, record
from bonafed.solvers.rank.proxes import PLUS, Kernel, gradients_of


def kkt_residuals(problem: Problem, w: Array, alpha: Array, z: Array, data: Block) -> Array:
    """The three Euclidean distances of the module's docstring, (3,), for a block of one client."""
    rows = rank_rows(problem, data)
    left = float(np.linalg.norm(z - rows.forward(w)))
    off = float(np.linalg.norm(off_regulariser(problem, w, -rows.backward(alpha))))
    return np.array([_to_risk(problem, alpha, z), off, left])


def _to_risk(problem: Problem, alpha: Array, z: Array) -> float:
    """dist(alpha, dOmega(z))."""
    kernel, risk = kernel_of(problem.loss), problem.over_samples
    size = np.abs(z) if kernel.even else z
    order = np.argsort(size, kind="stable")
    sorted_z = size[order]
    push = (np.where(z < 0, -alpha, alpha) if kernel.even else alpha)[order]
    if kernel.even:
        push = np.where(sorted_z == 0, np.abs(push), push)  # at 0 both signs are gradients
    free = np.zeros(len(z), bool)
    if hasattr(risk, "rank_weights_below"):
        below, above = risk.rank_weights_below(len(z)), risk.rank_weights_above(len(z))
        at = knot_of(kernel, risk.reference)
        sigma = np.where(sorted_z <= at, below, above)
        free = np.abs(sorted_z - at) <= 1e-12 * (1 + abs(at))
    else:
        sigma = rank_weights(problem, len(z))
    total = 0.0
    if (
        free.any()
    ):  # upwards where the weight jumps up beyond the reference, downwards where it falls
        slope, a = gradients_of(sorted_z[free], kernel), push[free]
        low, high = below[free] * slope - a, a - above[free] * slope
        off = np.where(above[free] >= below[free], np.maximum(low, 0.0), np.maximum(high, 0.0))
        total = float((off**2).sum())
    edges = np.flatnonzero(np.append(True, sorted_z[1:] > sorted_z[:-1]))
    alone = np.diff(np.append(edges, len(z))) == 1
    single = edges[alone]
    single = single[~free[single]]
    # every single entry: sigma dl(z), which at a kink is all from 0 to sigma
    here, a, weight = sorted_z[single], push[single], sigma[single]
    exact, kink = a - weight * gradients_of(here, kernel), _kinked(kernel, here)
    short = np.where(kink, np.maximum(np.maximum(a - weight, -a), 0.0), exact)
    total += float((short**2).sum())
    for start, stop in zip(edges, np.append(edges[1:], len(z)), strict=True):
        if stop - start > 1 and not free[start]:
            total += _group(kernel, float(sorted_z[start]), push[start:stop], sigma[start:stop])
    return float(np.sqrt(total))


def _kinked(kernel: Kernel, z: Array) -> Array:
    """Where the loss has a kink, so that every number from 0 to 1 is a subgradient."""
    return (z == kernel.knot) & (kernel.kind == PLUS)


def _group(kernel: Kernel, z: float, push: Array, sigma: Array) -> float:
    """The squared distance of equal entries' multipliers from their permutahedron.

    This is l'(z) times the permutahedron of their weights.
    """
    from scipy.optimize import isotonic_regression

    kink = bool(_kinked(kernel, np.array([z]))[0])
    gradient = 1.0 if kink else float(gradients_of(np.array([z]), kernel)[0])
    negative = np.minimum(push, 0.0) if kink else np.zeros_like(push)
    over = np.sort(push - negative)[::-1] - gradient * np.sort(sigma)[::-1]
    left = isotonic_regression(over, increasing=False).x
    if kink:
        left = np.maximum(left, 0.0)
    return float((left**2).sum() + (negative**2).sum())


def off_regulariser(problem: Problem, w: Array, push: Array) -> Array:
    """The remainder of ``push`` (D,) beside the nearest subgradient of g at w, by entry.

    A free intercept has gradient 0.
    """
    coefficients = problem.predictor.split(w)[0]
    penalised, rest = push[: len(coefficients)], push[len(coefficients) :]
    return np.concatenate([_off(problem.regulariser, coefficients, penalised), rest])


def _off(g: regularisers.Regulariser, w: Array, push: Array) -> Array:
    """The remainder of push beside the nearest subgradient of g at w, entry by entry."""
    size = np.abs(w)
    match g:
        case regularisers.Zero():
            return push
        case regularisers.L2(strength):
            return push - strength * w
        case regularisers.L1(strength):
            gradient, edge = np.full_like(w, strength), strength
        case regularisers.ElasticNet(l1, l2):
            push, gradient, edge = push - l2 * w, np.full_like(w, l1), l1
        case regularisers.MCP(strength, gamma):
            gradient, edge = np.maximum(strength - size / gamma, 0.0), strength
        case regularisers.SCAD(strength, a):
            falls, edge = np.maximum(a * strength - size, 0.0) / (a - 1), strength
            gradient = np.where(size <= strength, strength, falls)
        case regularisers.GroupL2():
            group, weight, length = g.sizes(w)
            total = np.sqrt(np.bincount(group, push * push))
            inside = push * np.maximum(1 - weight / np.maximum(total, 1e-300), 0.0)[group]
            gradient = w * (weight / np.maximum(length, 1e-300))[group]
            return np.where(length[group] > 0, push - gradient, inside)
        case regularisers.Bounds(lower, upper):
            low, high = w <= np.asarray(lower), w >= np.asarray(upper)
            out = np.where(low & ~high, np.maximum(push, 0.0), 0.0)
            out += np.where(high & ~low, np.minimum(push, 0.0), 0.0)
            return np.where((w > lower) & (w < upper), push, 0.0) + out
        case regularisers.Ball(radius, centre):
            outward = w - centre
            length = float(np.linalg.norm(outward))
            if length < radius * (1 - 1e-12):
                return push
            return push - outward * (max(float(push @ outward), 0.0) / length**2)
        case _:
            step = 1e-6 / max(1.0, g.weak_convexity)
            return (w - g.prox(w + step * push, step)) / step
    return np.where(w == 0, np.maximum(np.abs(push) - edge, 0.0), push - np.sign(w) * gradient)


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
