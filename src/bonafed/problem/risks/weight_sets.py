"""Convex sets of weights, and the worst cases over balls round a prior: simplex, mean, lp-norms,
superquantile, divergences.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from bonafed.arrays import Array, Label, compact
from bonafed.client_names import ClientName, by_position
from bonafed.parameters import Parameters
from bonafed.problem.risks.risk import (
    Names,
    Prior,
    Sizes,
    Worst,
    number,
    prior_for,
    prox_by_moreau,
    resolve_prior,
    vector,
)
from bonafed.solvers.sets import projections
from bonafed.solvers.sets.divergence_balls import (
    divergence,
    largest_in_ellipsoid,
    largest_in_entropy_ball,
    off_ellipsoid,
    project_ellipsoid,
    project_entropy_ball,
)

# Convex sets of weights: what follows from their worst case and their projection, and what balls
# round a prior share.
#
# value = q'z and weights = q at the worst q,    prox_{tR}(v) = v - t proj_Q(v / t)


class WeightSet(Parameters, ABC):
    """A closed convex set of weights. A subclass defines ``at`` and the three methods with an
    underscore, whose arguments are checked vectors.
    """

    @abstractmethod
    def at(self, sizes: Sizes, names: Names = None) -> Self: ...

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """A maximiser q of losses'q over the set, and a number that no member exceeds."""
        raise NotImplementedError

    def _nearest(self, v: Array) -> Array:
        """The member nearest to v."""
        raise NotImplementedError

    def _holds(self, weights: Array, tol: float) -> bool:
        """Whether weights keep what the set asks beside the simplex, within ``tol``."""
        raise NotImplementedError

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        return attained(losses, *self._largest(losses))

    def project(self, v: Array) -> Array:
        return self._nearest(vector(v, "v"))

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        """Whether weights within ``tol`` of these, client by client, are in the set."""
        weights = vector(weights, "weights")
        return self._holds(weights, tol) and on_simplex(weights, tol)

    def value(self, losses: Array) -> float:
        return self.worst(losses).value

    def weights(self, losses: Array) -> Array:
        return self.worst(losses).weights

    def prox(self, v: Array, step: float) -> Array:
        return prox_by_moreau(self, v, step)


class Centred(WeightSet):
    """A set with a prior, which ``at`` makes an array."""

    prior: Prior

    def at(self, sizes: Sizes, names: Names = None) -> Self:
        stated: Any = self
        return replace(stated, prior=resolve_prior(self.prior, sizes, names))

    def _centre(self, v: Array) -> Array:
        """The prior, for as many clients as v has entries."""
        return prior_for(self.prior, len(v))


@dataclass(frozen=True)
class PriorBall(Centred):
    """Weights within a radius of a prior; a subclass says what is measured."""

    radius: float
    prior: Prior = "uniform"

    RADIUS: ClassVar[str]  # what a radius is

    def __post_init__(self) -> None:
        remedy = f"It is {self.RADIUS}: for the mean use 0, for all client weights Simplex()."
        number(self.radius, "radius", remedy)


def on_simplex(weights: Array, tol: float) -> bool:
    """Whether weights are >= 0 and sum to one, within ``tol``."""
    return bool(weights.min() >= -tol and abs(weights.sum() - 1) <= tol)


def attained(losses: Array, q: Array, bound: float) -> Worst:
    """The worst case that q attains; a bound that rounding put below it is raised to it."""
    value = float(q @ losses)
    return Worst(value, q, max(bound, value))


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

    def at(self, sizes: Sizes, names: Names = None) -> "Simplex":
        return self

    def _largest(self, losses: Array) -> tuple[Array, float]:
        value = losses.max()
        largest = losses == value
        return largest / largest.sum(), float(value)

    def worst(self, losses: Array) -> Worst:
        weights, value = self._largest(vector(losses, "losses"))
        return Worst(value, weights, value)

    def _nearest(self, v: Array) -> Array:
        from bonafed.solvers.sets.simplex_kernel import onto_simplex

        return onto_simplex(compact(v), 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        return True


# The weighted mean  R(z) = sum_i q_i z_i  (its set of weights is the single point q), and the
# plain sum.

R = TypeVar("R")


@dataclass(frozen=True)
class Mean(Centred):
    """The mean of the losses.

    Parameters
    ----------
    prior : "uniform", "size" (in proportion to the clients' rows), weights (N,) that sum to one, or
        a mapping by name
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

    prior: Prior = "uniform"
    label: Label | None = None
    code: float | None = None  # of the label, once ``problem.at(fed)`` has seen the classes

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        q = self._nearest(losses)
        value = float(q @ losses)
        return Worst(value, q, value + 32 * projections.EPS * float(q @ np.abs(losses)))

    def weights(self, losses: Array) -> Array:
        return self.project(losses)

    def _nearest(self, v: Array) -> Array:
        return self._centre(v).copy()

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        return bool(np.abs(weights - self.project(weights)).max() <= tol)


def among(risk: R, names: Sequence[ClientName], declared: object) -> R:
    """A mean with weights by name, of these clients only and scaled; of ``declared`` clients some
    may have no rows.
    """
    if not (isinstance(risk, Mean) and isinstance(declared, Mapping)):
        return risk
    prior, present = risk.prior, {*map(str, names)}
    if not isinstance(prior, Mapping):
        return risk
    if not (present < {*map(str, prior)} == {*map(str, declared)}):
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

    def at(self, sizes: Sizes, names: Names = None) -> "Sum":
        return self

    def worst(self, losses: Array) -> Worst:
        losses = vector(losses, "losses")
        value = float(losses.sum())
        return Worst(
            value, np.ones_like(losses), value + 32 * projections.EPS * float(np.abs(losses).sum())
        )

    def _nearest(self, v: Array) -> Array:
        return np.ones_like(v)

    def contains(self, weights: Array, tol: float = 1e-9) -> bool:
        return bool(np.abs(vector(weights, "weights") - 1.0).max() <= tol)


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
    prior: Prior = "uniform"

    def __post_init__(self) -> None:
        number(self.radius, "radius", "For the mean use 0, for all client weights Simplex().")
        projections.dual_exponent(self.p)

    def _largest(self, losses: Array) -> tuple[Array, float]:
        return projections.largest_over_lp_ball(losses, self._centre(losses), self.radius, self.p)

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
    prior: Prior = "uniform"
    convex = True

    def __post_init__(self) -> None:
        if not 0 < self.tail <= 1:
            raise ValueError(
                f"tail must be in (0, 1], got {self.tail}: it is the share of the largest losses"
                " that is averaged. For the mean use 1, for the maximum Maximum()."
            )

    def caps(self, n: int) -> Array:
        """prior / tail, (n,): the most that each of n losses may weigh."""
        return prior_for(self.prior, n) / self.tail

    def rank_weights(self, n: int) -> Array:
        """sigma (n,), ascending ranks; ``ValueError`` for a prior that weighs losses
        differently.
        """
        if not isinstance(self.prior, str) or self.prior != "uniform":
            prior = prior_for(self.prior, n)
            if np.ptp(prior) > 8 * projections.EPS:
                raise ValueError(
                    f"rank weights need the prior 'uniform', got {self.prior!r}: a loss that counts"
                    " more than another has no weight by rank only. Over samples repeat rows"
                    " instead."
                )
        mass = n * self.tail
        mass = float(round(mass)) if abs(mass - round(mass)) <= 4 * projections.EPS * mass else mass
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
        return largest_in_entropy_ball(losses, self._centre(losses), float(self.radius))

    def _nearest(self, v: Array) -> Array:
        return project_entropy_ball(v, self._centre(v), float(self.radius))

    def _holds(self, weights: Array, tol: float) -> bool:
        prior = self._centre(weights)
        q = np.where(prior > 0, np.maximum(weights, 0.0), 0.0)
        # convex: the share radius / size of the way from the prior is in the set
        size = divergence(q, prior)
        far = float(np.abs(q - prior).max())
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
        q[inside], bound = largest_in_ellipsoid(losses[inside], p, p, float(self.radius))
        return q, bound

    def _nearest(self, v: Array) -> Array:
        prior, q = self._centre(v), np.zeros(len(v))
        inside, p = prior > 0, prior[prior > 0]
        q[inside] = project_ellipsoid(v[inside], p, p, float(self.radius))
        return q

    def _holds(self, weights: Array, tol: float) -> bool:
        prior = self._centre(weights)
        inside = prior > 0
        off = off_ellipsoid((weights - prior)[inside], prior[inside], float(self.radius))
        outside = float(np.abs(weights[~inside]).max(initial=0.0))
        return bool(max(off, outside) <= tol)


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
        return projections.largest_over_lp_ball(
            losses, self._centre(losses), 2.0 * self.radius, 1.0
        )

    def _nearest(self, v: Array) -> Array:
        return projections.project_lp_ball(v, self._centre(v), 2.0 * self.radius, 1.0)

    def _holds(self, weights: Array, tol: float) -> bool:
        moved = float(np.abs(weights - self._centre(weights)).sum()) / 2
        return moved <= self.radius + tol
