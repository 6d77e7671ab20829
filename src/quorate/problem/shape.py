"""The public part of a problem as plain arrays, for solvers that know nothing of losses or risks."""

from __future__ import annotations

import math

import numpy as np

from quorate.arrays import DUAL, Array
from quorate.problem.losses import Quadratic
from quorate.problem.predictors import is_affine
from quorate.problem.problem import Problem
from quorate.problem.regularisers import L1, L2, Bounds, ElasticNet, Zero
from quorate.problem.risks.box import Box, limits
from quorate.problem.risks.cd_norm import CDNorm
from quorate.problem.risks.chi_square import ChiSquareBall
from quorate.problem.risks.ellipsoid import Ellipsoid
from quorate.problem.risks.kl_ball import KLBall
from quorate.problem.risks.lp_ball import LpBall
from quorate.problem.risks.mean import Mean, Sum
from quorate.problem.risks.polyhedron import Polyhedron
from quorate.problem.risks.ranks import by_rank
from quorate.problem.risks.simplex import Simplex
from quorate.problem.risks.superquantile import Superquantile
from quorate.problem.risks.total_variation import TotalVariationBall
from quorate.problem.risks.wasserstein import WassersteinOverClients
from quorate.problem.wasserstein import WassersteinBall
from quorate.solvers.curved_weightings import Elliptic, Entropy
from quorate.solvers.cutting_planes import Shape
from quorate.solvers.polyhedral_weightings import Bounded, Cut, Deviations, Moved
from quorate.solvers.weightings import Ball, Members, Tails, Weighting, of_ranks


def client_ball(problem: Problem, n_clients: int) -> tuple[Array, float, float]:
    """(prior, radius, p) of {q in the simplex: ||q - prior||_p <= radius}; radius 0: the prior alone, inf: all."""
    risk = problem.over_clients
    if isinstance(risk, Simplex):
        return np.full(n_clients, 1 / n_clients), math.inf, 2.0
    if isinstance(risk, TotalVariationBall) and isinstance(risk.prior, np.ndarray):
        return risk.prior, 2.0 * risk.radius, 1.0
    if isinstance(risk, Mean | LpBall) and isinstance(risk.prior, np.ndarray):
        return risk.prior, getattr(risk, "radius", 0.0), getattr(risk, "p", 2.0)
    raise ValueError(
        f"this method needs over_clients = Mean, Simplex, LpBall or TotalVariationBall (concrete, see problem.at), got "
        f"{risk!r}: use one of these, or Bundle(), which takes every set of weights that quorate has."
    )


def weighting(problem: Problem, n_clients: int) -> Weighting:
    """The set of weightings of the clients in conic form."""
    risk = problem.over_clients
    if by_rank(risk) and not isinstance(risk, Superquantile):  # which may weigh clients by a prior
        return of_ranks(risk.rank_weights(n_clients))
    if isinstance(getattr(risk, "prior", None), np.ndarray) and getattr(risk, "radius", 1.0) == 0:
        return Ball(risk.prior, 0.0, 2.0)
    match risk:
        case Superquantile():
            return Tails(np.ones(1), risk.caps(n_clients)[None])
        case Mean() | Simplex() | LpBall() | TotalVariationBall():
            return Ball(*client_ball(problem, n_clients))
        case Box():
            return Bounded(*limits(risk, n_clients))
        case CDNorm():
            return Deviations(risk.prior, risk.bounds, float(risk.budget))
        case WassersteinOverClients():
            return Moved(risk.prior, float(risk.radius), risk.cost)
        case Polyhedron(D, c):
            scale = np.abs(D).max(1, initial=0.0)
            scale = np.where(scale > 0, scale, 1.0)
            return Cut(D / scale[:, None], c / scale)
        case KLBall() | ChiSquareBall():
            return _divergence_ball(risk)
        case Ellipsoid():
            factor = np.sqrt(risk.shape) if risk.shape.ndim == 1 else np.linalg.cholesky(risk.shape)
            return Elliptic(risk.prior, factor, math.sqrt(risk.radius))
    if hasattr(risk, "project"):
        return Members(np.asarray(risk.weights(np.zeros(n_clients)), float)[None], risk.weights)
    raise ValueError(
        f"this method and its bound need a set of weights with a projection, got {risk!r}: the server's program has no "
        "form for it. Give its maximiser to OwnSet(maximiser), or use Mean, Simplex, LpBall, TotalVariationBall, "
        "Superquantile, a convex risk by rank such as Extremile(2), Box, CDNorm, Ellipsoid, Polyhedron, KLBall, "
        "ChiSquareBall or WassersteinOverClients."
    )


def _divergence_ball(risk: KLBall | ChiSquareBall) -> Weighting:
    inside = risk.prior > 0
    least = float(risk.prior[inside].min())
    most = -math.log(least) if isinstance(risk, KLBall) else 1 / least - 1
    if risk.radius >= most:  # every weighting of the clients of positive prior
        return Bounded(np.zeros(len(inside)), inside.astype(float))
    if isinstance(risk, KLBall):
        return Entropy(risk.prior, float(risk.radius))
    return Elliptic(risk.prior, np.sqrt(risk.prior), math.sqrt(risk.radius))


def member(problem: Problem, n_clients: int) -> Array:
    """One weighting of the clients that lies in the set: the prior, or for other sets the worst at equal losses."""
    try:
        return client_ball(problem, n_clients)[0]
    except ValueError:
        return np.asarray(problem.over_clients.weights(np.zeros(n_clients)), float)


ANY_MODEL = "AsyncDRO(), ASPIRE(), AFL() or FedAvg()"  # the methods that need values and slopes alone


def check_affine(problem: Problem, method: str) -> None:
    """Raise ``ValueError`` unless predictions are affine in the model."""
    if not is_affine(problem.predictor):
        raise ValueError(
            f"{method} needs predictions that are affine in the model, of Linear() or Softmax(), got "
            f"{problem.predictor!r}: use {ANY_MODEL}, or on one client SGD() or LSVRG(), which take any model."
        )


def check_projects(problem: Problem, method: str) -> None:
    """Raise ``ValueError`` unless the clients' weights are from a set with a projection."""
    if not hasattr(problem.over_clients, "project"):
        raise ValueError(
            f"{method} needs over_clients with `project`, got {problem.over_clients!r}: use Simplex, LpBall, "
            "Superquantile or another set of the package, or give your set a projection."
        )


def check_convex(problem: Problem) -> None:
    """Raise ``ValueError`` unless a cut of every client's risk bounds it from below."""
    check_affine(problem, "a method of cuts, or a lower bound,")
    if not getattr(problem.over_samples, "convex", True):
        raise ValueError(
            f"{problem.over_samples!r} over samples is not convex, so that a cut of it bounds nothing and no lower "
            "bound can be proved. Use RankADMM on one client, fed.pooled() (for Quantile and Multinomial SGD() or "
            "LSVRG()), or a convex risk over samples: Mean, WassersteinBall, Superquantile, Extremile, "
            "ExponentialSpectral, Maximum, TopK, or Spectral with weights "
            "that ascend."
        )


def check_smooth(problem: Problem, method: str, mean: bool = True, parts: bool = True) -> None:
    """Raise ``ValueError`` unless losses are smooth and samples averaged, with a convex regulariser.

    ``mean``: clients must be averaged (or added up) too. ``parts``: the regulariser must have ``regulariser_parts``,
    else any convex one with a prox will do.
    """
    check_affine(problem, method)
    if (mean and not isinstance(problem.over_clients, Mean | Sum)) or not isinstance(problem.over_samples, Mean):
        raise ValueError(
            f"{method} needs over_clients = Mean(...) or Sum() and over_samples = Mean(...), got "
            f"{problem.over_clients!r} and {problem.over_samples!r}. InteriorPoint() also takes Simplex, Superquantile "
            "and LpBall with p = 1, 2 or inf over clients; without constraints use Bundle()."
        )
    if not problem.loss.smooth or problem.loss.targets == "class":
        raise ValueError(
            f"{method} needs a smooth loss of one prediction a row: Logistic, SmoothHinge, Exponential, Squared, Huber "
            f"or Quadratic, got {problem.loss!r}."
        )
    if parts or problem.regulariser.weak_convexity > 0:
        regulariser_parts(problem)


def only_constrained(problem: Problem) -> bool:
    """Whether only methods for constraints take the problem."""
    one_class = getattr(problem.over_samples, "label", None) is not None
    return problem.constrained or one_class or isinstance(problem.loss, Quadratic)


def check_unranked(problem: Problem, method: str) -> None:
    """Raise ``ValueError`` unless the samples' risk is the mean or a Wasserstein ball, of one prediction a row."""
    check_affine(problem, method)
    if problem.loss.targets == "class":
        raise ValueError(f"{method} takes losses of one prediction a row, got Multinomial(): use Bundle().")
    if only_constrained(problem):
        raise ValueError(
            f"{method} takes no constraints, no Mean(label=...) and no Quadratic(): use InteriorPoint() (small smooth "
            "problems) or ProximalAL()."
        )
    if not isinstance(problem.over_samples, Mean | WassersteinBall):
        raise ValueError(
            f"{method} needs over_samples = Mean() or a WassersteinBall, got {problem.over_samples!r}. For weights by "
            "rank use Bundle(), or on one client, fed.pooled(), RankADMM."
        )


def sample_radii(problem: Problem, n_clients: int) -> Array:
    """(N,) Wasserstein radii, zeros without a ball."""
    ball = problem.over_samples
    return np.asarray(ball.radius, float) if isinstance(ball, WassersteinBall) else np.zeros(n_clients)


def price_floor(problem: Problem) -> tuple[float, float]:
    """(a, b): every price is at least a ||w||_* and at least b."""
    ball, loss = problem.over_samples, problem.loss
    if not isinstance(ball, WassersteinBall):
        return 0.0, 0.0
    free_label = loss.targets == "real" and getattr(ball.support, "c_label", None) is None
    return (loss.lipschitz if ball.support is None else 0.0), (loss.lipschitz / ball.label_cost if free_label else 0.0)


def regulariser_parts(problem: Problem) -> tuple[float, float, Array | float, Array | float]:
    """(l1, l2, lower, upper) of a convex regulariser l1 ||w||_1 + l2 ||w||_2^2 / 2 on lower <= w <= upper."""
    match problem.regulariser:
        case Zero():
            return 0.0, 0.0, -math.inf, math.inf
        case L1(strength):
            return strength, 0.0, -math.inf, math.inf
        case L2(strength):
            return 0.0, strength, -math.inf, math.inf
        case ElasticNet(l1, l2):
            return l1, l2, -math.inf, math.inf
        case Bounds(lower, upper):
            return 0.0, 0.0, lower, upper
    raise ValueError(
        f"{type(problem.regulariser).__name__} is not one of Zero, L1, L2, ElasticNet, Bounds: this method and its "
        "bound need a convex regulariser. Use one of these."
    )


def public_shape(problem: Problem, n_clients: int) -> Shape:
    """Everything the server knows before any client speaks."""
    ball = problem.over_samples
    robust = isinstance(ball, WassersteinBall)
    check_convex(problem)
    lipschitz, floor = price_floor(problem)
    l1, l2, lower, upper = regulariser_parts(problem)
    flips = problem.loss.targets == "sign" and robust and math.isfinite(ball.label_cost)
    return Shape(
        n_clients=n_clients,
        radius=sample_radii(problem, n_clients),
        lipschitz=lipschitz,
        floor=floor,
        dual=DUAL[ball.norm] if robust else "l2",
        own_price=robust and (flips or ball.support is not None),
        weighting=weighting(problem, n_clients),
        l1=l1,
        l2=l2,
        lower=lower,
        upper=upper,
        intercept=problem.predictor.intercept,
    )
