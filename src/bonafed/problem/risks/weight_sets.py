"""Convex sets of weights: the simplex, balls round a prior, and sets that are stated by numbers for
each client or by functions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array, Label, compact
from bonafed.client_names import ClientName, by_position
from bonafed.parameters import Parameters
from bonafed.problem.risks import risk
from bonafed.solvers.sets import box_and_cd_norm as boxes
from bonafed.solvers.sets import divergence_balls as balls
from bonafed.solvers.sets import projections
from bonafed.solvers.sets.polyhedra import Met, excess, largest_in_polyhedron, project_polyhedron
from bonafed.solvers.sets.projections import EPS, clip_to_sum, largest_over_lp_ball, nearest_point

# Convex sets of weights: what follows from their worst case and their projection, and what balls
# round a prior share.
#
# value = q'z and weights = q at the worst q,    prox_{tR}(v) = v - t proj_Q(v / t)


class WeightSet(Parameters, ABC):
    """A closed convex set of weights. A subclass defines ``at`` and the three methods with an
    underscore, whose arguments are checked vectors.
    """

    # A maximiser q of losses'q over the set, and a number that no member exceeds.
    _largest: Callable[[Array], tuple[Array, float]]
    # The member nearest to v.
    _nearest: Callable[[Array], Array]
    # Whether weights keep what the set asks beside the simplex, within a tolerance.
    _holds: Callable[[Array, float], bool]

    @abstractmethod
    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Self: ...

    def worst(self, losses: Array) -> risk.Worst:
        losses = risk.vector(losses, "losses")
        q, bound = self._largest(losses)
        value = float(q @ losses)
        return risk.Worst(value, q, max(bound, value))  # rounding may put the bound below

    def project(self, v: Array) -> Array:
        return self._nearest(risk.vector(v, "v"))

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        """Whether weights within ``tol`` of these, client by client, are in the set."""
        weights = risk.vector(weights, "weights")
        return self._holds(weights, tol) and on_simplex(weights, tol)

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def prox(self, v: Array, step: float) -> Array:
        return risk.prox_by_moreau(self, v, step)


class Centred(WeightSet):
    """A set with a prior, which ``at`` makes an array."""

    prior: risk.Prior

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Self:
        stated: Any = self
        return replace(stated, prior=risk.resolve_prior(self.prior, sizes, names))

    def _centre(self, v: Array) -> Array:
        """The prior, for as many clients as v has entries."""
        return risk.prior_for(self.prior, len(v))


@dataclass(frozen=True)
class PriorBall(Centred):
    """Weights within a radius of a prior; a subclass says what is measured."""

    radius: float
    prior: risk.Prior = "uniform"

    RADIUS: ClassVar[str]  # what a radius is

    def __post_init__(self) -> None:
        remedy = f"It is {self.RADIUS}: for the mean use 0, for all client weights Simplex()."
        risk.number(self.radius, "radius", remedy)


def on_simplex(weights: Array, tol: float) -> bool:
    """Whether weights are >= 0 and sum to one, within ``tol``."""
    return bool(weights.min() >= -tol and abs(weights.sum() - 1) <= tol)


# The largest loss  R(z) = max_{q >= 0, sum q = 1} q'z = max_i z_i  (agnostic federated learning
# over clients).


@dataclass(frozen=True)
class Simplex(WeightSet):
    """The maximum of the losses; equal maxima share the weight equally.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Simplex()
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.0, 0.0, 1.0]
    """

    phrase: ClassVar[str] = "any weights"

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Simplex:
        return self

    def worst(self, losses: Array) -> risk.Worst:
        losses = risk.vector(losses, "losses")
        largest, value = losses == losses.max(), float(losses.max())
        return risk.Worst(value, largest / largest.sum(), value)

    def _nearest(self, v: Array) -> Array:
        from bonafed.solvers.sets.simplex_kernel import onto_simplex

        return onto_simplex(compact(v), 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        return True


# The weighted mean  R(z) = sum_i q_i z_i  (its set of weights is the single point q), and the
# plain sum.


@dataclass(frozen=True)
class Mean(Centred):
    """The mean of the losses.

    Parameters
    ----------
    prior : "uniform" (over clients: each counts alike, however many rows it has, so that a
        logistic model is not the one of maximum likelihood), "size" (in proportion to the clients'
        rows: each row counts alike, as in pooled data), weights (N,) that sum to one, or a mapping
        by name
    label : over samples, the class whose rows are the only ones averaged, as in Neyman-Pearson
        classification; a client without such rows has the mean 0. None: all rows

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Mean().value(losses)), 4)
    2.3333
    """

    prior: risk.Prior = "uniform"
    label: Label | None = None
    code: float | None = None  # of the label, once ``problem.at(fed)`` has seen the classes

    def worst(self, losses: Array) -> risk.Worst:
        losses = risk.vector(losses, "losses")
        q = self._nearest(losses)
        value = float(q @ losses)
        return risk.Worst(value, q, value + 32 * EPS * float(q @ np.abs(losses)))

    def _nearest(self, v: Array) -> Array:
        return self._centre(v).copy()

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        return bool(np.abs(weights - self.project(weights)).max() <= tol)


def among(risk: Any, names: Sequence[ClientName], declared: object) -> Any:
    """A mean with weights by name, of these clients only and scaled; of ``declared`` clients some
    may have no rows.
    """
    prior = risk.prior if isinstance(risk, Mean) else None
    if not (isinstance(prior, Mapping) and isinstance(declared, Mapping)):
        return risk
    if not ({*map(str, names)} < {*map(str, prior)} == {*map(str, declared)}):
        return risk
    weights = [float(q) for q in by_position(prior, names, "prior", others=True).values()]
    total = sum(weights)
    return replace(risk, prior=np.array(weights) / total) if total > 0 else risk


@dataclass(frozen=True)
class Sum(WeightSet):
    """The sum of the losses, for problems stated without 1/N; its only weights are ones.

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> round(float(bf.Sum().value(losses)), 4)
    7.0
    """

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Sum:
        return self

    def worst(self, losses: Array) -> risk.Worst:
        losses = risk.vector(losses, "losses")
        value, size = float(losses.sum()), float(np.abs(losses).sum())
        return risk.Worst(value, np.ones_like(losses), value + 32 * EPS * size)

    def _nearest(self, v: Array) -> Array:
        return np.ones_like(v)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        return bool(np.abs(risk.vector(weights, "weights") - 1.0).max() <= tol)


# The worst client weights within an lp-ball round a prior.
#
#     R(z) = max { q'z : q >= 0, sum q = 1, ||q - prior||_p <= radius }
#
# Bai, Wong, Qiao, Ho, *Distributionally robust federated learning*, (3) with the dual (4); p is
# theirs (the norm on the weights), ``radius`` their theta. radius = 0 is ``Mean(prior)``, a radius
# >= 2 (any p) is ``Simplex()``.


@dataclass(frozen=True)
class LpBall(Centred):
    """Client weights within ``radius`` of a prior, in the lp-norm.

    Parameters
    ----------
    radius : number >= 0, in units of the weights; 0 is the mean, large the maximum over clients
    p : in [1, inf]. 1: half the radius is the mass that may move; inf: the most any single weight
        may change
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite, p < 1; a prior that is not a probability vector (by ``at`` or at
        the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.LpBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.272, 0.318, 0.41]
    """

    phrase: ClassVar[str] = "weights within {radius} of the {prior:given} prior, l{p} norm"
    radius: float
    p: float = 2.0
    prior: risk.Prior = "uniform"

    def __post_init__(self) -> None:
        risk.number(self.radius, "radius", "For the mean use 0, for all client weights Simplex().")
        projections.dual_exponent(self.p)

    def _largest(self, losses: Array) -> tuple[Array, float]:
        return largest_over_lp_ball(losses, self._centre(losses), self.radius, self.p)

    def _nearest(self, v: Array) -> Array:
        return projections.project_lp_ball(v, self._centre(v), self.radius, self.p)

    def _holds(self, weights: Array, tol: float) -> bool:
        off = projections.lp_norm(weights - self._centre(weights), self.p)
        return bool(off <= self.radius + tol)


# The superquantile, or conditional value at risk: the mean of the worst share ``tail`` of the
# losses.
#
#   R(z) = max { q'z : q in the simplex, q <= prior / tail } = min_t  t + sum_i prior_i max(z_i - t,
#     0) / tail
#
# Rockafellar and Uryasev, *Optimization of conditional value-at-risk*. tail = 1 is ``Mean(prior)``,
# and tail -> 0 is the maximum of the losses of positive prior, reached at the smallest of these
# priors. With equal priors the spectrum is 1 / tail on (1 - tail, 1]: by ascending rank,
# sigma_{n-j} = min(max(n tail - j, 0), 1) / (n tail).


@dataclass(frozen=True)
class Superquantile(Centred):
    """The mean of the worst losses.

    Parameters
    ----------
    tail : share of the losses averaged, the largest ones, in (0, 1]; 1 is the mean, -> 0 the
        maximum. Where the share ends within a loss, that loss counts with its fraction
    prior : over clients: "uniform", "size" (in proportion to the clients' rows), weights (N,) that
        sum to one, or a mapping by name. Over samples: "uniform" only

    Raises
    ------
    ValueError
        tail outside (0, 1]; a prior that is not a probability vector (by ``at`` or at the first
        use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> (
    ...     float(bf.Superquantile(tail=1 / 3).value(losses)),
    ...     float(bf.Superquantile(tail=2 / 3).value(losses)),
    ... )
    (4.0, 3.0)
    """

    phrase: ClassVar[str] = "mean of the largest {tail:%}"
    tail: float
    prior: risk.Prior = "uniform"
    convex = True

    def __post_init__(self) -> None:
        if not 0 < self.tail <= 1:
            raise ValueError(
                f"tail must be in (0, 1], got {self.tail}: it is the share of the largest losses"
                " that is averaged. For the mean use 1, for the maximum Maximum()."
            )

    def caps(self, n: int) -> Array:
        """prior / tail, (n,): the most that each of n losses may weigh."""
        return risk.prior_for(self.prior, n) / self.tail

    def rank_weights(self, n: int) -> Array:
        """sigma (n,), ascending ranks; ``ValueError`` for a prior that weighs losses
        differently.
        """
        if np.ptp(risk.prior_for(self.prior, n)) > 8 * EPS:
            raise ValueError(
                f"rank weights need the prior 'uniform', got {self.prior!r}: a loss that counts"
                " more than another has no weight by rank only. Over samples repeat rows instead."
            )
        mass = n * self.tail
        mass = float(round(mass)) if abs(mass - round(mass)) <= 4 * EPS * mass else mass
        return np.clip(mass - np.arange(n, dtype=float)[::-1], 0.0, 1.0) / mass

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share in proportion to their priors."""
        return projections.largest_under_caps(losses, self.caps(len(losses)))

    def _nearest(self, v: Array) -> Array:
        return projections.project_under_caps(v, self.caps(len(v)))

    def _holds(self, weights: Array, tol: float) -> bool:
        return float((weights - self.caps(len(weights))).max()) <= tol


# The worst client weights within a divergence of a prior.
#
#     R(z) = max { q'z : D(q, prior) <= radius,  q >= 0,  sum q = 1 }
#
#     KL                 sum_j q_j log(q_j / prior_j)
#     chi-square         sum_j (q_j - prior_j)^2 / prior_j
#     total variation    sum_j |q_j - prior_j| / 2
#
# radius = 0 is ``Mean(prior)``. Under KL and chi-square clients of prior 0 keep weight 0, and a
# radius of -log(smallest prior), or 1 / (smallest prior) - 1, is the maximum over clients of
# positive prior.
#
# KL: R(z) = min over s > 0 (radius + log sum_j prior_j exp(s z_j)) / s, and the maximiser is the
# prior tilted by exp(s z). So a client of small prior never gets none, and a large loss raises a
# small prior by a large factor: this set is not protection against clients one does not trust
# (``CDNorm`` is). Hu and Hong, *Kullback-Leibler divergence constrained distributionally robust
# optimization*.
#
# Chi-square: where no weight meets 0 this is the mean and a share of the standard deviation of the
# losses under the prior, prior'z + sqrt(radius) std(z). Duchi and Namkoong, *Variance-based
# regularization with convex objectives*.
#
# Total variation: radius is the mass that may move, 1 is ``Simplex()``; the same set as ``LpBall(2
# radius, p=1)``.


@dataclass(frozen=True)
class KLBall(PriorBall):
    """Client weights of which the divergence from a prior is at most ``radius``.

    Parameters
    ----------
    radius : number >= 0, in nats; 0 is the mean, log N with a uniform prior the maximum over
        clients
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name; a client of prior 0 has weight 0

    Raises
    ------
    ValueError
        radius < 0 or not finite; a prior that is not a probability vector (by ``at`` or at the
        first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.KLBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.188, 0.268, 0.544]
    """

    phrase = "weights within a KL divergence of {radius} from the {prior:given} prior"
    RADIUS: ClassVar[str] = "a divergence"

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share in proportion to their priors."""
        return balls.largest_in_entropy_ball(losses, self._centre(losses), float(self.radius))

    def _nearest(self, v: Array) -> Array:
        return balls.project_entropy_ball(v, self._centre(v), float(self.radius))

    def _holds(self, weights: Array, tol: float) -> bool:
        prior = self._centre(weights)
        q = np.where(prior > 0, np.maximum(weights, 0.0), 0.0)
        # convex: the share radius / size of the way from the prior is in the set
        size, far = balls.divergence(q, prior), float(np.abs(q - prior).max())
        off = (1 - self.radius / size) * far if size > self.radius else 0.0
        return bool(np.abs(weights - q).max() <= tol and off <= tol)


@dataclass(frozen=True)
class ChiSquareBall(PriorBall):
    """Client weights of which the chi-square divergence from a prior is at most ``radius``.

    Parameters
    ----------
    radius : number >= 0, the mean square of weight / prior - 1 under the prior; 0 is the mean, N -
        1 with a uniform prior the maximum over clients
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name; a client of prior 0 has weight 0

    Raises
    ------
    ValueError
        radius < 0 or not finite; a prior that is not a probability vector (by ``at`` or at the
        first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.ChiSquareBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.221, 0.305, 0.474]
    """

    phrase = "weights within a chi-square distance of {radius} from the {prior:given} prior"
    RADIUS: ClassVar[str] = "a divergence"

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share in proportion to their priors."""
        prior, q = self._centre(losses), np.zeros(len(losses))
        inside, p = prior > 0, prior[prior > 0]
        q[inside], bound = balls.largest_in_ellipsoid(losses[inside], p, p, float(self.radius))
        return q, bound

    def _nearest(self, v: Array) -> Array:
        prior, q = self._centre(v), np.zeros(len(v))
        inside, p = prior > 0, prior[prior > 0]
        q[inside] = balls.project_ellipsoid(v[inside], p, p, float(self.radius))
        return q

    def _holds(self, weights: Array, tol: float) -> bool:
        prior = self._centre(weights)
        inside = prior > 0
        off = balls.off_ellipsoid((weights - prior)[inside], prior[inside], float(self.radius))
        return bool(max(off, float(np.abs(weights[~inside]).max(initial=0.0))) <= tol)


@dataclass(frozen=True)
class TotalVariationBall(PriorBall):
    """Client weights of which at most the mass ``radius`` is elsewhere than in the prior.

    Parameters
    ----------
    radius : number >= 0; 0 is the mean, 1 or more the maximum over clients
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite; a prior that is not a probability vector (by ``at`` or at the
        first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.TotalVariationBall(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.233, 0.333, 0.433]
    """

    phrase = "weights within a total variation of {radius} from the {prior:given} prior"
    RADIUS: ClassVar[str] = "a share of the weight"

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Mass moves from the smallest losses to the largest; equal losses give and take alike."""
        return largest_over_lp_ball(losses, self._centre(losses), 2.0 * self.radius, 1.0)

    def _nearest(self, v: Array) -> Array:
        return projections.project_lp_ball(v, self._centre(v), 2.0 * self.radius, 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        return float(np.abs(weights - self._centre(weights)).sum()) / 2 <= self.radius + tol


# Sets of client weights that are stated by numbers for each client, or by functions: limits,
# bounds round a prior, shapes of ellipsoids, inequalities, costs of transport.

# The worst client weights between lower and upper weights.
#
#     R(z) = max { q'z : lower <= q <= upper, q >= 0, sum q = 1 }
#
# Jiao, Yang and Song, *Federated distributionally robust optimization with non-convex objectives*
# (ASPIRE-EASE), their box set kept within the simplex. upper = prior / tail with lower = 0 is
# ``Superquantile(tail, prior)``.


SLACK = 1e-9  # how far sums of limits may be off one by rounding


@dataclass(frozen=True, eq=False)
class Box(WeightSet):
    """Client weights between two limits.

    Parameters
    ----------
    lower, upper : one number for all clients, one per client (N,), or a mapping by client name;
        below 0 counts as 0, above 1 as 1

    Raises
    ------
    ValueError
        where no weights keep the limits: a lower above its upper, lower ones that sum to more than
        one, upper ones that sum to less (by ``at`` or at the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Box(lower=0.1, upper=0.5)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.1, 0.4, 0.5]
    """

    phrase: ClassVar[str] = "weights between {lower} and {upper}"
    lower: risk.PerClient
    upper: risk.PerClient

    def __post_init__(self) -> None:
        lower, upper = (risk.numbers(risk.entries(v), name) for name, v in vars(self).items())
        if lower.ndim == upper.ndim == 0 and lower > upper:
            raise ValueError(f"lower must not be above upper, got {lower:g} and {upper:g}.")

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Box:
        lower, upper = limits(self, len(sizes), names)
        return replace(self, lower=lower, upper=upper)

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share what is between their limits in proportion to it."""
        return boxes.largest_in_box(losses, *limits(self, len(losses)))

    def _nearest(self, v: Array) -> Array:
        return clip_to_sum(v, *limits(self, len(v)), 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        lower, upper = limits(self, len(weights))
        return max(float((lower - weights).max()), float((weights - upper).max())) <= tol


def limits(box: Box, n: int, names: risk.Names = None) -> tuple[Array, Array]:
    """(lower, upper), each (n,), within [0, 1] and with sums on either side of one."""
    lower = np.maximum(risk.per_client(box.lower, n, names, "lower"), 0.0)
    upper = np.minimum(risk.per_client(box.upper, n, names, "upper"), 1.0)
    if (lower > upper).any():
        i = int(np.argmax(lower - upper))
        raise ValueError(
            f"lower must be at most upper, got {lower[i]:g} > {upper[i]:g} for client"
            f" {i if names is None else repr(names[i])}: exchange them, keep both within [0, 1]."
        )
    least, most = float(lower.sum()), float(upper.sum())
    if least > 1 + SLACK:
        raise ValueError(
            f"the set is empty: lower sums to {least:.12g} over {n} clients, and weights sum to"
            f" one. Divide it by {least:.6g} or more."
        )
    if most < 1 - SLACK:
        raise ValueError(
            f"the set is empty: upper sums to {most:.12g} over {n} clients, and weights sum to one."
            f" Raise the caps; one cap for all must be at least 1/N = {1 / n:.6g}."
        )
    lower = lower / max(least, 1.0)
    return lower, np.maximum(upper / min(most, 1.0), lower)


# The worst client weights near a prior, with a cap on each and a budget for all: the CD-norm.
#
#    R(z) = max { q'z : |q_j - prior_j| <= bounds_j,  sum_j |q_j - prior_j| / bounds_j <= budget,  q
#     >= 0,  sum q = 1 }
#
# Jiao, Yang and Song, *Federated distributionally robust optimization with non-convex objectives*
# (ASPIRE-EASE), (17), where bounds are their p tilde and budget is their Gamma, with q >= 0, which
# it leaves out; with unequal bounds one sort does not solve it
# (``solvers/sets/box_and_cd_norm.py``). budget = 0, or bounds = 0, is ``Mean(prior)``.


@dataclass(frozen=True, eq=False)
class CDNorm(WeightSet):
    """Client weights that leave a prior by at most their bounds, and by few of these bounds
    together.

    Parameters
    ----------
    budget : number >= 0, how many clients may be at their bounds at once (halves count half); 0 is
        the mean, the number of clients or more leaves only the bounds
    bounds : how far each weight may be from its prior, >= 0: one number, one per client (N,), or a
        mapping by client name; 0 fixes the weight at the prior, so that a client of small prior and
        bound cannot become the worst case
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        a negative budget or bound; a prior that is not a probability vector (by ``at`` or at the
        first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.CDNorm(budget=1.0, bounds=0.2)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.233, 0.333, 0.433]
    """

    phrase = "weights at most {bounds} from the {prior:given} prior, {budget:#client} at that end"
    budget: float
    bounds: risk.PerClient
    prior: risk.Prior = "uniform"

    def __post_init__(self) -> None:
        risk.number(self.budget, "budget", "It counts clients at their bounds; for the mean use 0.")
        _nonnegative(risk.numbers(risk.entries(self.bounds), "bounds"))

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> CDNorm:
        bounds = _nonnegative(risk.per_client(self.bounds, len(sizes), names, "bounds"))
        return replace(self, bounds=bounds, prior=risk.resolve_prior(self.prior, sizes, names))

    def _largest(self, losses: Array) -> tuple[Array, float]:
        return boxes.largest_in_cd_norm(losses, *self._centre(len(losses)), float(self.budget))

    def _nearest(self, v: Array) -> Array:
        return boxes.project_cd_norm(v, *self._centre(len(v)), float(self.budget))

    def _holds(self, weights: Array, tol: float) -> bool:
        prior, bounds = self._centre(len(weights))
        off = np.maximum(np.abs(weights - prior) - tol, 0.0)
        most = self.budget * (1 + 1e-12)
        return bool((off <= bounds).all()) and boxes.cd_norm_usage(off, bounds) <= most

    def _centre(self, n: int) -> tuple[Array, Array]:
        bounds = _nonnegative(risk.per_client(self.bounds, n, None, "bounds"))
        return risk.prior_for(self.prior, n), bounds


def _nonnegative(bounds: Array) -> Array:
    if (bounds < 0).any():
        raise ValueError(
            f"bounds must be >= 0, got {bounds.min():g}: 0 fixes a weight at its prior."
        )
    return bounds


# The worst client weights in an ellipsoid round a prior.
#
#     R(z) = max { q'z : (q - prior)' shape^-1 (q - prior) <= radius,  q >= 0,  sum q = 1 }
#
# Jiao, Yang and Song, *Federated distributionally robust optimization with non-convex objectives*
# (ASPIRE-EASE), their ellipsoid with q >= 0, which it does not imply. A vector for shape is its
# diagonal; shape = 1 is ``LpBall(sqrt(radius), 2, prior)``, shape = prior
# ``ChiSquareBall(radius, prior)``. radius = 0 is ``Mean(prior)``.


@dataclass(frozen=True, eq=False)
class Ellipsoid(WeightSet):
    """Client weights in an ellipsoid round a prior.

    Parameters
    ----------
    shape : (N,) > 0 or a mapping by client name, how freely each weight may leave its prior; or a
        symmetric positive definite matrix (N, N), such as a covariance of the clients' losses
    radius : number >= 0, a square; 0 is the mean
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite; a shape that is not positive (definite) or not symmetric, or of
        another number of clients; a prior that is not a probability vector (the last two by ``at``
        or at the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Ellipsoid(shape=[1.0, 1.0, 1.0], radius=0.01)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.272, 0.318, 0.41]
    """

    phrase = "weights in an ellipsoid of squared radius {radius} round the {prior:given} prior"
    shape: Sequence[float] | risk.Matrix | Mapping[Any, float]
    radius: float
    prior: risk.Prior = "uniform"

    def __post_init__(self) -> None:
        remedy = "It bounds a square: for the mean use 0, for all client weights Simplex()."
        risk.number(self.radius, "radius", remedy)
        shape = checked(risk.entries(self.shape))
        if not isinstance(self.shape, Mapping):
            object.__setattr__(self, "shape", shape)

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Ellipsoid:
        shape = checked(risk.by_name(self.shape, names, "shape"))
        concrete = replace(self, shape=shape, prior=risk.resolve_prior(self.prior, sizes, names))
        concrete.concrete(len(sizes))
        return concrete

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Of several maximisers the one nearest to the prior, in the ellipsoid's norm."""
        prior, shape, radius = self.concrete(len(losses))
        if shape.ndim == 1:
            return balls.largest_in_ellipsoid(losses, prior, shape, radius)
        return balls.largest_in_axes(losses, prior, self.axes, radius)

    def _nearest(self, v: Array) -> Array:
        prior, shape, radius = self.concrete(len(v))
        if shape.ndim == 1:
            return balls.project_ellipsoid(v, prior, shape, radius)
        return balls.project_axes(v, prior, self.axes, radius)

    def _holds(self, weights: Array, tol: float) -> bool:
        prior, shape, radius = self.concrete(len(weights))
        given = shape if shape.ndim == 1 else self.axes
        return bool(balls.off_ellipsoid(weights - prior, given, radius) <= tol)

    def concrete(self, n: int) -> tuple[Array, Array, float]:
        """(prior, shape, radius) for n clients; ``ValueError`` where shape is of another number."""
        if isinstance(self.shape, Mapping):
            raise ValueError(
                "shape by client name needs the clients' names: call ellipsoid.at(sizes, names)"
                " first."
            )
        shape = np.asarray(self.shape)
        if len(shape) != n:
            raise ValueError(
                f"shape must have {n} numbers or {n} x {n}, one row per client, got"
                f" {shape.shape}: give one for each client."
            )
        return risk.prior_for(self.prior, n), shape, float(self.radius)

    @cached_property
    def axes(self) -> balls.Axes:
        """The factors of a shape that is a matrix."""
        return balls.axes(np.asarray(self.shape))


def checked(shape: object) -> Array:
    """``shape`` as a positive vector or a symmetric positive definite matrix."""
    array = risk.numbers(shape, "shape")
    if array.ndim == 1 and array.size > 0:
        if (array <= 0).any():
            raise ValueError(
                f"shape must be positive, got {array.min():g} for client {int(array.argmin())}: to"
                " fix a weight at its prior use CDNorm with a bound of 0."
            )
        return array
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.size == 0:
        raise ValueError(
            "shape must be a vector or a square matrix, one row per client, got shape"
            f" {array.shape}."
        )
    if np.abs(array - array.T).max() > 1e-12 * np.abs(array).max():
        raise ValueError("shape must be a symmetric matrix: use (shape + shape.T) / 2.")
    try:
        balls.axes(array)
    except np.linalg.LinAlgError as error:
        least = float(np.linalg.eigvalsh(array)[0])
        raise ValueError(
            f"shape must be positive definite, got a least eigenvalue of {least:.3g}: add a"
            " multiple of the identity."
        ) from error
    return array


# The worst client weights that keep linear inequalities.
#
#     R(z) = max { q'z : D q <= c,  q >= 0,  sum q = 1 }
#
# Jiao, Yang and Song, *Federated distributionally robust optimization with non-convex objectives*
# (ASPIRE-EASE), their polyhedron kept within the simplex. Worst cases are linear programs (HiGHS),
# bounds are computed from their multipliers. A concrete set keeps the vertices it met last, so that
# losses that change slowly need no new program; no answer depends on them.


@dataclass(frozen=True, eq=False)
class Polyhedron(WeightSet):
    """Client weights q with D q <= c.

    Parameters
    ----------
    D : (m, N), one column per client, or a mapping from client name to a column (m,)
    c : (m,)

    Raises
    ------
    ValueError
        shapes that do not match, numbers that are not finite; by ``at`` or at the first use, where
        no weights keep all inequalities

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.Polyhedron(D=[[0.0, 0.0, 1.0]], c=[0.5])  # at most half on the third
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.0, 0.5, 0.5]
    """

    phrase: ClassVar[str] = "weights p with D p <= c, {c:#row}"
    D: risk.Matrix | Mapping[Any, Sequence[float] | Array]
    c: Sequence[float] | Array

    def __post_init__(self) -> None:
        c = risk.numbers(self.c, "c")
        if c.ndim != 1:
            raise ValueError(f"c must be a vector, one number per row of D, got shape {c.shape}.")
        _matrix(self._by_row(risk.entries(self.D)), c)

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Polyhedron:
        c = risk.numbers(self.c, "c")
        matrix = _matrix(self._by_row(risk.by_name(self.D, names, "D")), c)
        concrete = replace(self, D=matrix, c=c)
        for array in (matrix, c):  # what is kept of them must stay true
            array.setflags(write=False)
        vars(concrete)["_kept"] = (*concrete.scaled(len(sizes))[:2], Met())
        concrete.worst(np.zeros(len(sizes)))
        return concrete

    def _by_row(self, D: object) -> object:
        """D, whose columns came by client where it is stated so."""
        return np.transpose(risk.numbers(D, "D")) if isinstance(self.D, Mapping) else D

    def __getstate__(self) -> dict[str, Any]:
        """Its fields: copies and files have met nothing."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _largest(self, losses: Array) -> tuple[Array, float]:
        return self._solved(largest_in_polyhedron, losses)

    def _nearest(self, v: Array) -> Array:
        return self._solved(project_polyhedron, v)

    def _solved(self, program: Callable[..., Any], vector: Array) -> Any:
        """What a program over the set returns; raises ``ValueError`` where the set is empty."""
        D, c, met = self.scaled(len(vector))
        answer = program(vector, D, c, met)
        if answer is None:
            raise ValueError(
                f"the set is empty: all weights of the {D.shape[1]} clients exceed a row of D q <="
                f" c, the best by {excess(D, c):.6g} (rows over their largest entry). Raise c."
            )
        return answer

    def _holds(self, weights: Array, tol: float) -> bool:
        """Rows count in units of their largest entry."""
        D, c, _ = self.scaled(len(weights))
        return float((D @ weights - c).max(initial=-np.inf)) <= tol

    def scaled(self, n: int) -> tuple[Array, Array, Met | None]:
        """D and c of n clients with rows divided by the largest entry of D, and what was met;
        raises ``ValueError`` where they do not fit.
        """
        if isinstance(self.D, Mapping):
            raise ValueError(
                "D by client name needs the clients' names: call risk.at(sizes, names) first."
            )
        kept = vars(self).get("_kept")
        if kept is not None and kept[0].shape[1] == n:
            return kept
        c = risk.numbers(self.c, "c")
        D = _matrix(self.D, c)
        if D.shape[1] != n:
            raise ValueError(f"D needs one column per client, {n} of them, got shape {D.shape}.")
        scale = np.abs(D).max(1)
        scale = np.where(scale > 0, scale, 1.0)
        return D / scale[:, None], c / scale, None


def _matrix(D: object, c: Array) -> Array:
    matrix = risk.numbers(D, "D")
    if matrix.ndim != 2 or matrix.shape[0] != len(c) or matrix.shape[1] == 0:
        raise ValueError(
            f"D must be a matrix with {len(c)} rows, one for each entry of c, got shape"
            f" {matrix.shape}."
        )
    return matrix


# The worst client weights within a transport cost of a prior.
#
#     R(z) = max { q'z : T >= 0,  T1 = prior,  T'1 = q,  sum_ij T_ij cost_ij <= radius }
#
# The Wasserstein-1 ball over clients; Jiao, Yang and Song, *Federated distributionally robust
# optimization with non-convex objectives* (ASPIRE-EASE), use |i - j|. With the index of a client as
# its position the set has a meaning only where their order has one: give positions (an age, a
# latitude, a time) or the costs themselves.


@dataclass(frozen=True, eq=False)
class WassersteinOverClients(WeightSet):
    """Client weights within a transport cost of a prior.

    Parameters
    ----------
    radius : number >= 0, in units of the cost; 0 is the mean, the largest cost or more the maximum
        over clients
    cost : "index" (|i - j| in the clients' order), positions on a line (N,) or a mapping from
        client name to one, or a matrix (N, N) of the cost of moving all weight of client i to
        client j, >= 0 with zeros on its diagonal
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name

    Raises
    ------
    ValueError
        radius < 0 or not finite; costs that are negative, or not 0 from a client to itself; a prior
        that is not a probability vector (by ``at`` or at the first use)

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> risk = bf.WassersteinOverClients(radius=0.1)
    >>> risk.worst(losses).weights.round(3).tolist()
    [0.333, 0.233, 0.433]
    """

    phrase = "weights within a transport cost of {radius} from the {prior:given} prior"
    radius: float
    cost: Literal["index"] | risk.PerClient | risk.Matrix = "index"
    prior: risk.Prior = "uniform"

    def __post_init__(self) -> None:
        remedy = "It is a cost: for the mean use 0, for all client weights Simplex()."
        risk.number(self.radius, "radius", remedy)
        _costs(risk.entries(self.cost), None, None)

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> WassersteinOverClients:
        cost = _costs(self.cost, len(sizes), names)
        return replace(self, cost=cost, prior=risk.resolve_prior(self.prior, sizes, names))

    def _largest(self, losses: Array) -> tuple[Array, float]:
        from bonafed.solvers.sets.transport_ball import largest_by_transport

        return largest_by_transport(losses, *self._set(len(losses)))

    def _nearest(self, v: Array) -> Array:
        from bonafed.solvers.sets.transport_ball import project_by_transport, project_on_line

        prior, radius, cost = self._set(len(v))
        return (project_on_line if cost.ndim == 1 else project_by_transport)(v, prior, radius, cost)

    def _holds(self, weights: Array, tol: float) -> bool:
        """Costs count in units of the largest."""
        from bonafed.solvers.sets.transport_ball import line_cost, matrix_cost

        prior, radius, cost = self._set(len(weights))
        if not on_simplex(weights, tol):
            return False
        given = weights, prior, cost
        paid = line_cost(*given) if cost.ndim == 1 else matrix_cost(*given, tol)
        return bool(paid <= radius + tol * float(np.ptp(cost)))

    def _set(self, n: int) -> tuple[Array, float, Array]:
        return risk.prior_for(self.prior, n), float(self.radius), _costs(self.cost, n, None)


def _costs(stated: object, n: int | None, names: risk.Names) -> Array:
    """Positions (n,) or a matrix (n, n)."""
    if isinstance(stated, str):
        if stated != "index":
            raise ValueError(f"cost must be 'index', positions or a matrix, got {stated!r}.")
        return np.arange(n or 1, dtype=float)
    cost = risk.numbers(risk.by_name(stated, names, "cost"), "cost")
    wanted = (len(cost) if cost.ndim else 0) if n is None else n
    if cost.shape not in ((wanted,), (wanted, wanted)) or wanted == 0:
        raise ValueError(
            f"cost must be 'index', {n or 'N'} positions or a matrix ({n or 'N'}, {n or 'N'}), got"
            f" shape {cost.shape}."
        )
    if cost.ndim == 2:
        if (cost < 0).any() or np.diag(cost).any():
            raise ValueError(
                f"cost must be >= 0 with zeros on the diagonal, got a least entry of {cost.min():g}"
                f" and {np.abs(np.diag(cost)).max():g} on the diagonal: no move is paid for,"
                " staying costs nothing."
            )
    elif not math.isfinite(float(cost.max()) - float(cost.min())):
        raise ValueError(
            "positions must differ by less than the largest floating-point number. Rescale them."
        )
    return cost


# A custom set of client weights, stated by a function that returns its worst member.
#
#     R(z) = max { q'z : q in Q },   Q a closed convex set of weights q >= 0, sum q = 1
#
# A maximiser is enough: the nearest point of Q is computed as a convex combination of maximisers
# (``solvers/sets/projections.py``).

OFF = 1e-9  # how far returned weights may be off the simplex


@dataclass(frozen=True, eq=False)
class OwnSet(WeightSet):
    """A convex set of client weights by functions of your own.

    Parameters
    ----------
    maximiser : function losses (N,) -> weights (N,) of the set with the largest weights'losses, or
        (weights, bound) with a number that no weights of the set exceed. Without one the maximiser
        is taken at its word: a certificate is then as good as the maximiser is exact
    projection : function v (N,) -> the nearest weights of the set; None: by the maximiser, best
        where the set is a polytope of a few hundred clients or fewer
    membership : function (weights (N,), tol) -> bool; None: whether the nearest weights are within
        ``tol``

    Raises
    ------
    TypeError
        where one is not a function
    ValueError
        at the first use, for weights of another length, not finite, negative or not summing to one

    Examples
    --------
    >>> import numpy as np
    >>> import bonafed as bf
    >>> half = bf.OwnSet(lambda losses: np.where(losses >= np.sort(losses)[-2], 0.5, 0.0))
    >>> losses = np.array([1.0, 2.0, 4.0])
    >>> half.worst(losses).weights.tolist()
    [0.0, 0.5, 0.5]
    """

    maximiser: Callable[[Array], ArrayLike | tuple[ArrayLike, float]]
    projection: Callable[[Array], ArrayLike] | None = None
    membership: Callable[[Array, float], bool] | None = None

    def __post_init__(self) -> None:
        for name in ("maximiser", "projection", "membership"):
            function = getattr(self, name)
            if not callable(function) and (name == "maximiser" or function is not None):
                raise TypeError(f"{name} must be a function of a vector, got {function!r}.")

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> OwnSet:
        self.worst(np.zeros(len(sizes)))
        return self

    def worst(self, losses: Array) -> risk.Worst:
        losses = risk.vector(losses, "losses")
        answer = self.maximiser(losses.copy())
        weights, bound = answer if isinstance(answer, tuple) else (answer, None)
        q = _weights(weights, len(losses), "maximiser")
        value = float(q @ losses)
        if bound is None:
            return risk.Worst(value, q, value + 32 * EPS * float(q @ np.abs(losses)))
        bound = float(risk.numbers(bound, "the maximiser's bound"))
        if bound < value - 1e-9 * max(abs(value), float(np.abs(losses).max())):
            raise ValueError(
                f"the maximiser's bound {bound:.12g} is below the {value:.12g} of its own weights."
                " Return a number that no weights of the set exceed, or the weights only."
            )
        return risk.Worst(value, q, max(bound, value))

    def project(self, v: Array) -> Array:
        v = risk.vector(v, "v")
        if self.projection is None:
            return nearest_point(v, self.weights)
        return _weights(self.projection(v.copy()), len(v), "projection")

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        weights = risk.vector(weights, "weights")
        if self.membership is not None:
            return bool(self.membership(weights.copy(), tol))
        return bool(np.abs(self.project(weights) - weights).max() <= tol)


def _weights(returned: object, n: int, name: str) -> Array:
    """What a function returned, as weights of n clients."""
    q = risk.numbers(returned, f"the weights of {name}")
    if q.shape != (n,):
        raise ValueError(f"{name} must return {n} weights, one per client, got shape {q.shape}.")
    if q.min() < -OFF or abs(float(q.sum()) - 1) > OFF:
        raise ValueError(
            f"{name} must return weights >= 0 that sum to one, got a least weight of {q.min():.6g}"
            f" and a sum of {q.sum():.12g}. Keep the set within the simplex."
        )
    q = np.maximum(q, 0.0)
    return q / q.sum()
