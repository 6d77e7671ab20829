"""The client step of gradient methods, and the bound that the gradients of all clients prove.

``Linearise`` brings every client's risk F_i(w) and gradient F_i'(w) to the server, and no row.
Weighed by any q in Q, also where the server knows their sum only, they are an affine minorant of a
convex objective,

    sum_i q_i (F_i(w) + <F_i'(w), v - w>) + h(v),    q in Q

whose minimum is a lower bound on the optimum (``bonafed.problem.lower_bounds``).
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import numpy as np

from bonafed.arrays import DUAL, Array, Block, Streams, norm_gradient
from bonafed.codec import Form
from bonafed.problem import lower_bounds as bounds
from bonafed.problem.claims import Claim, Number
from bonafed.problem.conic_form import multiplier_floor, sample_radii
from bonafed.problem.lower_bounds import Survey, Surveyed
from bonafed.problem.plausible import Claims, of_curvature, of_risk, of_weighted
from bonafed.problem.predictors.affine import is_affine
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import separable
from bonafed.problem.risks.weight_sets import Mean
from bonafed.rounds import Each, Sum, record
from bonafed.solvers.smooth.stepwise import QuasiNewton, begin, restart

FLAT = 1e-12  # the least curvature of a metric, in that of the most curved coefficient


@record
class Linearise:
    """Ask every client for its risk and its gradient at ``w``."""

    w: Annotated[Array, Form("D")]
    # of the clients, where they do not depend on the risks: the sum of the gradients is enough
    weights: Annotated[Each, Form("N")] | None = None
    # of the clients' mean losses, where the sum of their second derivatives is wanted as well
    bend: Annotated[Each, Form("N")] | None = None


@record
class Linearised:
    """The answer F_i(w) and F_i'(w)."""

    risk: Each  # (n,)
    gradient: Each  # (n, D)
    curvature: Sum | None = None  # (1, D, D)


@record
class Weighted:
    """The answer where the clients' weights q are asked for: F_i(w), and sum_i q_i F_i'(w)."""

    risk: Each  # (n,)
    gradient: Sum  # (1, D)
    curvature: Sum | None = None  # (1, D, D)


def risk_gradients(problem: Problem, w: Array, data: Block) -> tuple[Array, Array, Array]:
    """The risk R_s(w) (n,), a subgradient (n, D) and the transport multiplier (n,) of every client.

    w is (D,) or (n, D).

    The subgradient is the cut's at a fixed transport multiplier, plus the rest of the radius times
    the gradient of that multiplier's floor Lip ||w||_*.
    """
    radius, ball = problem.radii(data), problem.over_samples
    cut = problem.cut(w, data, radius)
    gradient = cut.gradient
    if radius.any() and (lipschitz := multiplier_floor(problem)[0]):
        coefficients = np.asarray(problem.predictor.split(w)[0])
        floor = lipschitz * ball.dual_norm(coefficients)
        room = np.maximum(radius + cut.gradient_level, 0.0)
        left = np.where(cut.level <= floor * (1 + 1e-12), room, 0.0)
        gradient = gradient.copy()
        along = norm_gradient(np.atleast_2d(coefficients), DUAL[ball.norm])
        gradient[:, : data.n_features] += lipschitz * left[:, None] * along
    return radius * cut.level + cut.base, gradient, cut.level


def linearise(problem: Problem, ask: Linearise, data: Block) -> Linearised:
    """The answer of every client of the block."""
    return Linearised(*risk_gradients(problem, ask.w, data)[:2])


def linear(problem: Problem) -> Claims:
    """What a risk and its gradient claim."""
    return {Linearised: lambda who, ask, up: of_risk(problem, ask.w, up.risk, up.gradient)}


def asked(problem: Problem, what: str = "risk") -> Claims:
    """What answers to `Linearise` claim: ``what`` the numbers are."""

    def said(who: int, ask: Linearise, up: Linearised | Weighted) -> Iterator[Claim]:
        if isinstance(up, Weighted) != (ask.weights is not None):
            yield Number("gradients of another kind than were asked for, or a risk", -1.0)
            return
        prior = 1.0 if ask.weights is None else float(ask.weights[0])
        yield from of_weighted(problem, ask.w, up.risk, up.gradient, prior, what)
        weight = 0.0 if ask.bend is None else float(ask.bend[0])
        yield from of_curvature(problem, ask.w, up.curvature, weight)

    return {Linearised: said, Weighted: said}


def take_part(memory: None, ask: Survey, data: Block, rng: Streams) -> tuple[None, Surveyed]:
    """The client step of methods that begin with a survey of the clients' rows."""
    return memory, bounds.survey(data, ask.prior)


def units_of(problem: Problem, square: Array) -> Array:
    """The units (..., D) of the model's numbers: the root mean square of what each multiplies, from
    the (..., d) mean squares of the features; 1 for an intercept.

    A column of zeros has no size, and its coefficient still stands in constraints and regularisers:
    it counts as the smallest of the others, which lets it move freely. All are 1 for a predictor of
    the user's that says nothing of its units.
    """
    units = getattr(problem.predictor, "units", None)
    if units is None:
        return np.ones((*square.shape[:-1], problem.predictor.dimension(square.shape[-1])))
    sizes = np.sqrt(square)
    some, most = sizes > 0, sizes.max(-1, keepdims=True, initial=0.0)
    sizes = np.where(some, np.maximum(sizes, 1e-9 * most), np.inf)
    least = np.where(most > 0, sizes.min(-1, keepdims=True, initial=np.inf), 1.0)
    return np.array(units(np.where(some, sizes, least)), float)  # which may be its own array


def root_of(H: Array, ridge: float, size: int) -> Array | None:
    """L with L L' = H and ``ridge`` along the first numbers, so many; None where there is no such
    L.

    Steps from w in the metric H are those of L'w in the plain one.
    """
    from scipy.linalg import LinAlgError, cholesky

    H = H.copy()
    diagonal = H.ravel()[:: len(H) + 1]
    diagonal += FLAT * diagonal.max(initial=0.0)
    diagonal[:size] += ridge
    try:
        # in its place: columns of LAPACK are rows here
        return cholesky(H.T, overwrite_a=True).T
    except (LinAlgError, ValueError):  # no curvature, or numbers that are not finite
        return None


def over_root(root: Array, v: Array, turned: bool = False) -> Array:
    """The solution x of L x = v, or of L'x = v."""
    from scipy.linalg import solve_triangular

    return solve_triangular(root, v, trans=int(turned), lower=True, check_finite=False)


def in_metric(inner: QuasiNewton, root: Array, w: Array, gradient: Array) -> QuasiNewton:
    """The minimisation from w with this gradient, in the metric L L' and without its pairs: its
    first step is Newton's.
    """
    new = restart(begin(w @ root), inner.value, over_root(root, gradient))
    return replace(new, step=new.step if new.failed else 1.0, accepted=inner.accepted)


def step_units(problem: Problem, square: Array) -> Array:
    """The units (..., D) in which steps are measured: `units_of`, and 1 where the regulariser's
    prox takes no step for each coefficient.
    """
    units = units_of(problem, square)
    return units if separable(problem.regulariser) else np.ones_like(units)


def is_smooth(problem: Problem) -> bool:
    """Whether gradients of the clients' risks are continuous, so that their changes tell how long a
    step may be.
    """
    return bool(problem.loss.smooth) and isinstance(problem.over_samples, Mean)


def duals_at(problem: Problem, w: Array, weights: Array) -> bounds.Duals | None:
    """The proof of a bound by the weighted gradients at w; None before there is a model, and for
    risks that are not convex.

    For models that are not affine the certificate takes the weights only, to say how far w is from
    stationary.
    """
    if not len(w) or not (problem.convex or not is_affine(problem.predictor)):
        return None
    return bounds.Duals(weights, w[None], weights[None])


def bound_at(
    problem: Problem,
    w: Array,
    value: float,
    risk: float,
    gradient: Array,
    weights: Array,
    seen: Surveyed | None,
    mean: bool = False,
) -> float:
    """The lower bound that the gradients at w prove, -inf where they prove none: risk = sum_i q_i
    F_i(w), gradient = sum_i q_i F_i'(w), q in Q; ``mean``: of the mean losses, without a ball.

    ``value`` is the objective of any known model: no better one lies outside the region that it
    bounds.
    """
    if not problem.convex or bounds.without_dual(problem) or not math.isfinite(value):
        return -math.inf
    where = bounds.region(problem, value, np.size(problem.predictor.split(w)[0]), seen)
    # the gradients of risks hold at the floor of the transport multiplier: none of the radius is
    # left
    flat = (0.0 if mean else -1.0) * weights * sample_radii(problem, len(weights))
    minorant = bounds.Minorant(risk - float(gradient @ w), gradient, flat, weights)
    return bounds.lower_bound(problem, minorant, where)[0]
