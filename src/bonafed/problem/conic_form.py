"""A problem in other forms: its public part as plain arrays, for conic solvers that know nothing of
losses or risks, and a Wasserstein ball as a regulariser.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from bonafed.arrays import DUAL, Array
from bonafed.problem import regularisers
from bonafed.problem.problem import Problem, check_convex
from bonafed.problem.risks import weight_sets as sets
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import prior_for
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solvers.conic import weight_sets
from bonafed.solvers.conic.bundle_master import Shape

# ranks times clients of a program with all weights by rank; larger ones meet the worst weights
# only, and so do those of a bundle, which are solved again and again, from fewer on
MOST, MOST_OFTEN = 100_000, 2_000


def client_ball(problem: Problem, n_clients: int) -> tuple[Array, float, float]:
    """(prior, radius, p) of {q in the simplex: ||q - prior||_p <= radius}; radius 0: the prior
    only, inf: all.
    """
    risk = problem.over_clients
    if isinstance(risk, sets.Simplex):
        return np.full(n_clients, 1 / n_clients), math.inf, 2.0
    if isinstance(risk, sets.TotalVariationBall) and isinstance(risk.prior, np.ndarray):
        return risk.prior, 2.0 * risk.radius, 1.0
    if isinstance(risk, sets.Mean | sets.LpBall) and isinstance(risk.prior, np.ndarray):
        return risk.prior, getattr(risk, "radius", 0.0), getattr(risk, "p", 2.0)
    raise ValueError(
        "the client weights must be those of Mean, Simplex, LpBall or TotalVariationBall (concrete,"
        f" see problem.at), got over_clients = {risk!r}."
    )


def weighting(problem: Problem, n_clients: int, numbers: int = MOST) -> weight_sets.Weighting:
    """The set of client weights in conic form; by its worst weights, where those by rank would be
    more than so many ``numbers``.
    """
    risk = problem.over_clients
    # a superquantile may weigh clients by a prior
    if by_rank(risk) and not isinstance(risk, sets.Superquantile):
        sigma = risk.rank_weights(n_clients)
        jumps = int((np.diff(sigma, prepend=0.0) > 0).sum())
        if jumps * n_clients > numbers:
            return _members(problem, n_clients)
        return weight_sets.of_ranks(sigma)
    prior = getattr(risk, "prior", None)
    if isinstance(prior, np.ndarray) and getattr(risk, "radius", 1.0) == 0:
        return weight_sets.Ball(prior, 0.0, 2.0)
    match risk:
        case sets.Superquantile():
            return weight_sets.Tails(np.ones(1), risk.caps(n_clients)[None])
        case sets.Mean() | sets.Simplex() | sets.LpBall() | sets.TotalVariationBall():
            return weight_sets.Ball(*client_ball(problem, n_clients))
        case sets.Box():
            return weight_sets.Bounded(*sets.limits(risk, n_clients))
        case sets.CDNorm():
            centre = prior_for(risk.prior, n_clients)
            return weight_sets.Deviations(centre, np.asarray(risk.bounds), float(risk.budget))
        case sets.WassersteinOverClients():
            centre = prior_for(risk.prior, n_clients)
            return weight_sets.Moved(centre, float(risk.radius), np.asarray(risk.cost))
        case sets.Polyhedron():
            return weight_sets.Cut(*risk.scaled(n_clients)[:2])
        case sets.KLBall() | sets.ChiSquareBall():
            prior = prior_for(risk.prior, n_clients)
            inside = prior > 0
            least = float(prior[inside].min())
            most = -math.log(least) if isinstance(risk, sets.KLBall) else 1 / least - 1
            if risk.radius >= most:  # all weights of the clients of positive prior
                return weight_sets.Bounded(np.zeros(len(inside)), inside.astype(float))
            if isinstance(risk, sets.KLBall):
                return weight_sets.Entropy(prior, float(risk.radius))
            return weight_sets.Elliptic(prior, np.sqrt(prior), math.sqrt(risk.radius))
        case sets.Ellipsoid():
            prior, shape, radius = risk.concrete(n_clients)
            factor = np.sqrt(shape) if shape.ndim == 1 else np.linalg.cholesky(shape)
            return weight_sets.Elliptic(prior, np.asarray(factor, float), math.sqrt(radius))
    if hasattr(risk, "project"):
        return _members(problem, n_clients)
    raise ValueError(
        "a conic program, and the bound it proves, need client weights with a projection, got"
        f" over_clients = {risk!r}: OwnSet(maximiser) computes one from the set's maximiser."
    )


def _members(problem: Problem, n_clients: int) -> weight_sets.Members:
    """The set by its maximiser."""
    weights = problem.over_clients.weights
    return weight_sets.Members(np.asarray(weights(np.zeros(n_clients)), float)[None], weights)


def member(problem: Problem, n_clients: int) -> Array:
    """Client weights of the set: the prior, or for other sets the worst at equal losses."""
    try:
        return client_ball(problem, n_clients)[0]
    except ValueError:
        return np.asarray(problem.over_clients.weights(np.zeros(n_clients)), float)


def sample_radii(problem: Problem, n_clients: int) -> Array:
    """(N,) Wasserstein radii, zeros without a ball."""
    ball = problem.over_samples
    known = isinstance(ball, WassersteinBall)
    return np.asarray(ball.radius, float) if known else np.zeros(n_clients)


def multiplier_floor(problem: Problem) -> tuple[float, float]:
    """(a, b): every transport multiplier of a cut is at least a ||w||_* and at least b."""
    ball, loss = problem.over_samples, problem.loss
    if not isinstance(ball, WassersteinBall) or not problem.joint_cuts:
        return 0.0, 0.0
    free_label = loss.targets == "real" and getattr(ball.support, "c_label", None) is None
    floor = loss.lipschitz / ball.label_cost if free_label else 0.0
    return (loss.lipschitz if ball.support is None else 0.0), floor


def public_shape(problem: Problem, n_clients: int) -> Shape:
    """What the server knows of the problem before the first answer of a client."""
    ball = problem.over_samples
    robust = isinstance(ball, WassersteinBall)
    check_convex(problem)
    lipschitz, floor = multiplier_floor(problem)
    cones = regularisers.regulariser_cones(problem.regulariser)
    plain = regularisers.Zero() if cones else problem.regulariser
    parts: Any = regularisers.regulariser_parts(plain)
    flips = problem.loss.targets == "sign" and robust and math.isfinite(ball.label_cost)
    form = weighting(problem, n_clients, MOST_OFTEN)
    members = _members(problem, n_clients) if isinstance(form, weight_sets.Entropy) else None
    # programs without a quadratic term often fail on power cones: members of the set instead
    if (
        isinstance(form, weight_sets.Ball)
        and 0 < form.radius < math.inf
        and form.p not in (1, 2, math.inf)
    ):
        form = weight_sets.Members(form.prior[None], problem.over_clients.weights)
    return Shape(
        n_clients=n_clients,
        radius=sample_radii(problem, n_clients),
        lipschitz=lipschitz,
        floor=floor,
        dual=DUAL[ball.norm] if robust else "l2",
        own_multipliers=robust and (flips or ball.support is not None),
        weighting=form,
        members=members,
        **dict(zip(("l1", "l2", "lower", "upper"), parts, strict=True)),
        intercept=problem.predictor.intercept,
        **cones,
    )


# A Wasserstein ball whose worst case is a norm of the model, as a regulariser.
#
# On all of R^n, where labels do not move, a convex Lipschitz loss has
#
#     R_s(w) = mean_i loss(<w, x_i>, y_i) + radius_s Lip ||w||_*
#
# (Shafieezadeh-Abadeh, Kuhn, Mohajerin Esfahani, *Regularization via mass transportation*, 2019).
# So the worst case is the mean over the rows plus a function of the model and of declared numbers
# only, and anyone who minimises a mean with a regulariser minimises it.
#
# *Proof.* A plan that moves row i by D_i with E ||D|| <= r gains at most L |<w, D>| <= L ||w||_*
# ||D|| a unit of mass, which shows <=. For >= let w != 0, ||v|| = 1 and <w, v> = ||w||_*. The
# slopes of a convex function whose Lipschitz constant is L come as near to L as one likes in one of
# its two tails: for every e > 0 there are a sign and a number c with loss(p + sign t, y) - loss(p,
# y) >= (L - e) t - c for all t >= 0, p = <w, x_i> + b. Move the share q of one row by sign (r / q)
# v: that costs r, and gains at least (L - e) r ||w||_* - q c. Let q go to 0, then e.


def is_norm_penalty(problem: Problem) -> bool:
    """Whether the problem's worst case is a norm, and its prox with h is known.

    Of several classes it is the largest norm of a difference, of classes that clients have.
    """
    ball, h = problem.over_samples, problem.regulariser
    if not isinstance(ball, WassersteinBall) or ball.is_auto:
        return False
    plain = ball.support is None and math.isinf(ball.label_cost) and problem.joint_cuts
    known = isinstance(h, regularisers.Zero | regularisers.L2) or (
        isinstance(h, regularisers.L1 | regularisers.ElasticNet) and DUAL[ball.norm] == "l1"
    )
    return plain and known and math.isfinite(problem.loss.lipschitz)


def is_equal_penalty(problem: Problem) -> bool:
    """Whether the worst case is the same norm for all weights of the clients."""
    one = isinstance(problem.over_clients, sets.Mean | sets.Sum)
    return is_norm_penalty(problem) and (one or len(set(problem.over_samples.radii())) == 1)


def without_ball(problem: Problem, weights: Array) -> Problem:
    """The same objective as a mean with a regulariser, for these weights (N,) of the clients."""
    ball, h = problem.over_samples, problem.regulariser
    if not isinstance(ball, WassersteinBall):
        return problem
    price = problem.loss.lipschitz * float(weights @ sample_radii(problem, len(weights)))
    penalty: Any = regularisers.NormPenalty(h, price, DUAL[ball.norm]) if price else h
    return replace(problem, over_samples=sets.Mean(), regulariser=penalty)
