"""The certificate of a model, its guarantees as numbers, and residuals of optimality conditions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from bonafed.arrays import Array, Block
from bonafed.codec import Form
from bonafed.problem import regularisers
from bonafed.problem.problem import Problem
from bonafed.problem.rank_levels import kernel_of, knot_of, rank_rows, rank_weights
from bonafed.rounds import Each, Sum, record
from bonafed.solvers.rank.proxes import PLUS, Kernel, gradients_of
from bonafed.text import card

WORDS = ("declared", "failed")  # entries of a certificate that are no numbers


@dataclass(frozen=True, eq=False, repr=False)
class Certificate:
    """The guarantees of a model as numbers; None where a number does not apply.

    Attributes
    ----------
    value : the problem's objective at w, exactly
    bound : a proven lower bound on the optimal value
    gap, relative_gap : value - bound, and that over max(|value|, |bound|, 1e-12)
    weights : (N,) the worst client weights q*, in their set
    client_risks : (N,) F_i(w)
    client_losses : (N,) mean loss of the client's rows at w
    client_levels : (N,) the transport multiplier lambda of the client's Wasserstein ball
    client_labels, client_features : (N,) transport cost that the worst distribution spends on
        labels (targets) and on features
    feasibility : how far w and the weights are outside their sets
    stationarity : Euclidean length of the gradient that the duals leave unbalanced; for a model
        that is not affine, of the gradient of the weighted risks and the regulariser at w
        (`stationarity`)
    complementarity : R(F(w)) - <weights, F(w)>, 0 when the weights are worst for w
    consensus : largest distance of a client's copy from w, where the algorithm keeps copies
    residuals : (3,) for a spectral risk that is not convex: how far w, the multipliers of its rows
        and their rank coordinates z are from the three conditions of optimality
        (`kkt_residuals`); stationarity is the larger of the first two, feasibility the third
    constraint_values, server_values, shared_values : with constraints c_i(w) (N, p), NaN where a
        client has none, c_0(w) (p_0,) and the sums over the clients (p_c,). Then feasibility is the
        largest violation, stationarity the Chebyshev distance of 0 from the Lagrangian's
        subdifferential, complementarity the largest |multiplier * value|
    gradient_scale : Chebyshev norm of the objective's gradient at w = 0: stationarity over it has
        no unit; for a model that is not affine the sum of the lengths of the clients' weighted
        gradients at w
    infeasible : where the multipliers prove that no model meets all constraints: a positive lower
        bound on their combination of the constraints, over all models
    nearby : where no bound is proved: a proven lower bound on the objective of all models up to
        `NEARBY` times as long as this one, its coefficients and intercept taken together
    separated : where nothing ends the fall of the objective as coefficients grow: the share of the
        rows that a direction puts on the side of their class, and none on the other one
    offset : how many standard deviations the farthest column is from 0, from 1,000 on
    declared : the user's own functions that the bound stands on, in words
    failed : why the proof failed, in words; "" where it did not. Then there is no bound, and where
        not even the value could be computed it is NaN. Neither this nor ``declared`` is a number of
        the certificate

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> proof = bf.solve(problem, fed).certificate
    >>> proof.bound <= proof.value, bool(proof.relative_gap < 1e-5)
    (True, True)
    """

    value: float
    bound: float | None
    gap: float | None
    relative_gap: float | None
    weights: Array
    client_risks: Array
    client_losses: Array
    client_levels: Array
    client_labels: Array
    client_features: Array
    feasibility: float
    stationarity: float | None = None
    complementarity: float | None = None
    consensus: float | None = None
    residuals: Array | None = None
    constraint_values: Array | None = None
    server_values: Array | None = None
    shared_values: Array | None = None
    gradient_scale: float | None = None
    infeasible: float | None = None
    nearby: float | None = None
    separated: float | None = None
    offset: float | None = None
    declared: tuple[str, ...] = ()
    failed: str = ""

    def numbers(self) -> dict[str, Any]:
        """All entries as plain Python values, for storage and comparison."""
        numbers = {k: v for k, v in vars(self).items() if k not in WORDS}
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in numbers.items()}

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> "Certificate":
        """The certificate with these ``numbers``, as JSON has them: None for what is not a number
        in a list, and "inf".
        """
        entries: dict[str, Any] = dict(numbers)
        for name, value in numbers.items():
            if value is not None:
                entries[name] = np.array(value, float) if isinstance(value, list) else float(value)
        return cls(**entries)

    def in_words(self) -> str:
        """The value, and what is proved of the optimum."""
        declared = "as declared, " if self.declared else ""
        if self.infeasible is not None:
            return f"{self.value:.6g}; {declared}no model meets all constraints"
        if self.bound is None:
            apart = ", and the classes are separated" * (self.separated is not None)
            return f"{self.value:.6g}; no bound is proved{apart}"
        gap, relative = max(self.gap or 0.0, 0.0), max(self.relative_gap or 0.0, 0.0)
        return (
            f"{self.value:.6g}; {declared}no model is below {self.bound:.6g} (gap {gap:.1e},"
            f" relative {relative:.1e})"
        )

    def _facts(self) -> list[tuple[str, str]]:
        """The numbers that are there, and how many clients they are of."""
        numbers = [(name, value) for name, value in vars(self).items() if isinstance(value, float)]
        told = [(name, f"{value:.6g}") for name, value in numbers]
        return [*told, ("clients", f"{len(self.weights):,}")]

    def __repr__(self) -> str:
        return f"Certificate({', '.join(f'{name}={value}' for name, value in self._facts())})"

    def _repr_html_(self) -> str:
        return card("Certificate", [("value", self.in_words()), *self._facts()[1:]])


def certificate(
    value: float, bound: float | None, weights: Array, risks: Array, losses: Array, **more: Any
) -> Certificate:
    """The certificate of a value and a bound with their gaps, of client weights, risks and losses
    (N,); transport costs are 0 unless they are among ``more``.
    """
    gap = relative = None
    if bound is not None:
        gap, relative = value - bound, (value - bound) / max(abs(value), abs(bound), 1e-12)
    costs = ("client_levels", "client_labels", "client_features")
    more = dict.fromkeys(costs, np.zeros(len(weights))) | more
    return Certificate(value, bound, gap, relative, weights, risks, losses, **more)


def without_numbers(n_clients: int) -> Certificate:
    """The certificate of a model of which nothing could be computed."""
    unknown = np.full(n_clients, math.nan)
    return certificate(math.nan, None, unknown, unknown, unknown, feasibility=math.nan)


def outside(problem: Problem, coefficients: Array) -> float:
    """How far the coefficients are outside the regulariser's domain."""
    if not math.isinf(float(problem.regulariser.value(coefficients))):
        return 0.0
    inside = problem.regulariser.prox(coefficients, 1e-300)
    return float(np.abs(inside - coefficients).max(initial=0.0))


# Residuals of the optimality conditions of a rank-based problem, convex or not.
#
# They are computed from (problem, rows, w, alpha, z) only:
#
#     dist(alpha, dOmega(z)),      dist(-D'alpha, dg(w)),      ||z - (D w - b)||
#
# These are the three conditions of Theorem 1 of Xiao, Ge, Jiang, Yan, *A unified framework for
# rank-based loss minimization*, with alpha = -lambda. The set that stands for dOmega contains
# Clarke's subdifferential (chain rule): entries with equal z share the weights sigma_B of their
# ranks in any convex combination of orders, times a gradient of the loss. So alpha_B lies in l'(z)
# times the permutahedron of sigma_B, and at a kink (gradients 0 to 1) below it in the sense of
# submajorisation. Its nearest point is one isotonic regression. Where the weights of prospect
# theory jump, at the reference, the side towards which the objective jumps up is free.
#
# For predictions that are not affine in the model, where no lower bound can be proved, there is
# ``stationarity``:
#
#     || sum_i q_i grad F_i(w) + h'(w) ||_2 :
#             how far -sum_i q_i grad F_i(w) is from the subdifferential of h at w
#
# The client weights q are those of the algorithm, moved into their set, or else the worst ones at
# w. Where q is worst for w (its complementarity R(F(w)) - <q, F(w)> is 0) and this distance is 0, w
# is stationary: every local optimum of smooth losses has such a q, but so do some models that are
# not an optimum. Where clients tie for the worst, the worst weights at w need not be that q, so the
# distance can be far from 0 at an optimum.
#
# Each client keeps its rows; the server receives the two sums over all clients.


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
    # upwards where the weight jumps up beyond the reference, downwards where it falls
    if free.any():
        slope, a = gradients_of(sorted_z[free], kernel), push[free]
        low, high = below[free] * slope - a, a - above[free] * slope
        off = np.where(above[free] >= below[free], np.maximum(low, 0.0), np.maximum(high, 0.0))
        total = float((off**2).sum())
    edges = np.flatnonzero(np.append(True, sorted_z[1:] > sorted_z[:-1]))
    single = edges[np.diff(np.append(edges, len(z))) == 1]
    single = single[~free[single]]
    # every single entry: sigma dl(z), which at a kink is all from 0 to sigma
    here, a, weight = sorted_z[single], push[single], sigma[single]
    exact = a - weight * gradients_of(here, kernel)
    kink = (here == kernel.knot) & (kernel.kind == PLUS)
    short = np.where(kink, np.maximum(np.maximum(a - weight, -a), 0.0), exact)
    total += float((short**2).sum())
    for start, stop in zip(edges, np.append(edges[1:], len(z)), strict=True):
        if stop - start > 1 and not free[start]:
            total += _group(kernel, float(sorted_z[start]), push[start:stop], sigma[start:stop])
    return float(np.sqrt(total))


def _group(kernel: Kernel, z: float, push: Array, sigma: Array) -> float:
    """The squared distance of equal entries' multipliers from their permutahedron.

    This is l'(z) times the permutahedron of their weights.
    """
    from scipy.optimize import isotonic_regression

    kink = z == kernel.knot and kernel.kind == PLUS
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
