"""A problem in conic form: its public part as plain arrays, for solvers that know nothing of losses
or risks.
"""

import math
from typing import Any

import numpy as np

from bonafed.arrays import DUAL, Array
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import Zero, regulariser_cones, regulariser_parts
from bonafed.problem.requirements import check_convex
from bonafed.problem.risks import stated_sets
from bonafed.problem.risks.ranks import by_rank
from bonafed.problem.risks.risk import prior_for
from bonafed.problem.risks.weight_sets import (
    ChiSquareBall,
    KLBall,
    LpBall,
    Mean,
    Simplex,
    Superquantile,
    TotalVariationBall,
)
from bonafed.problem.wasserstein.ball import WassersteinBall
from bonafed.solvers.conic import weight_sets
from bonafed.solvers.conic.bundle_master import Shape


def client_ball(problem: Problem, n_clients: int) -> tuple[Array, float, float]:
    """(prior, radius, p) of {q in the simplex: ||q - prior||_p <= radius}; radius 0: the prior
    only, inf: all.
    """
    risk = problem.over_clients
    if isinstance(risk, Simplex):
        return np.full(n_clients, 1 / n_clients), math.inf, 2.0
    if isinstance(risk, TotalVariationBall) and isinstance(risk.prior, np.ndarray):
        return risk.prior, 2.0 * risk.radius, 1.0
    if isinstance(risk, Mean | LpBall) and isinstance(risk.prior, np.ndarray):
        return risk.prior, getattr(risk, "radius", 0.0), getattr(risk, "p", 2.0)
    raise ValueError(
        "the client weights must be those of Mean, Simplex, LpBall or TotalVariationBall (concrete,"
        f" see problem.at), got over_clients = {risk!r}."
    )


def weighting(problem: Problem, n_clients: int) -> weight_sets.Weighting:
    """The set of client weights in conic form."""
    risk = problem.over_clients
    if by_rank(risk) and not isinstance(risk, Superquantile):  # which may weigh clients by a prior
        return weight_sets.of_ranks(risk.rank_weights(n_clients))
    prior = getattr(risk, "prior", None)
    if isinstance(prior, np.ndarray) and getattr(risk, "radius", 1.0) == 0:
        return weight_sets.Ball(prior, 0.0, 2.0)
    match risk:
        case Superquantile():
            return weight_sets.Tails(np.ones(1), risk.caps(n_clients)[None])
        case Mean() | Simplex() | LpBall() | TotalVariationBall():
            return weight_sets.Ball(*client_ball(problem, n_clients))
        case stated_sets.Box():
            return weight_sets.Bounded(*stated_sets.limits(risk, n_clients))
        case stated_sets.CDNorm():
            centre = prior_for(risk.prior, n_clients)
            return weight_sets.Deviations(centre, np.asarray(risk.bounds), float(risk.budget))
        case stated_sets.WassersteinOverClients():
            centre = prior_for(risk.prior, n_clients)
            return weight_sets.Moved(centre, float(risk.radius), np.asarray(risk.cost))
        case stated_sets.Polyhedron():
            return weight_sets.Cut(*risk.scaled(n_clients)[:2])
        case KLBall() | ChiSquareBall():
            prior = prior_for(risk.prior, n_clients)
            inside = prior > 0
            least = float(prior[inside].min())
            most = -math.log(least) if isinstance(risk, KLBall) else 1 / least - 1
            if risk.radius >= most:  # all weights of the clients of positive prior
                return weight_sets.Bounded(np.zeros(len(inside)), inside.astype(float))
            if isinstance(risk, KLBall):
                return weight_sets.Entropy(prior, float(risk.radius))
            return weight_sets.Elliptic(prior, np.sqrt(prior), math.sqrt(risk.radius))
        case stated_sets.Ellipsoid():
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
    return (
        np.asarray(ball.radius, float) if isinstance(ball, WassersteinBall) else np.zeros(n_clients)
    )


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
    cones = regulariser_cones(problem.regulariser)
    parts: Any = regulariser_parts(Zero() if cones else problem.regulariser)
    flips = problem.loss.targets == "sign" and robust and math.isfinite(ball.label_cost)
    form = weighting(problem, n_clients)
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
