"""Sets of client weights that are stated by numbers for each client, or by functions: limits,
bounds round a prior, shapes of ellipsoids, inequalities, costs of transport.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed.arrays import Array
from bonafed.problem.risks import risk
from bonafed.problem.risks.weight_sets import WeightSet, attained, on_simplex
from bonafed.solvers.sets import box_and_cd_norm, divergence_balls
from bonafed.solvers.sets.polyhedra import Met, excess, largest_in_polyhedron
from bonafed.solvers.sets.projections import EPS, clip_to_sum, nearest_point

# The worst client weights between lower and upper weights.
#
#     R(z) = max { q'z : lower <= q <= upper, q >= 0, sum q = 1 }
#
# Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-
# EASE), their box set kept within the simplex. upper = prior / tail with lower = 0 is
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
        for name in ("lower", "upper"):
            risk.numbers(risk.entries(getattr(self, name)), name)
        lower, upper = (np.asarray(risk.entries(limit)) for limit in (self.lower, self.upper))
        if lower.ndim == upper.ndim == 0 and lower > upper:
            raise ValueError(f"lower must not be above upper, got {lower:g} and {upper:g}.")

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Box:
        lower, upper = limits(self, len(sizes), names)
        return replace(self, lower=lower, upper=upper)

    def _largest(self, losses: Array) -> tuple[Array, float]:
        """Equal losses share what is between their limits in proportion to it."""
        return box_and_cd_norm.largest_in_box(losses, *limits(self, len(losses)))

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
            f"lower must be at most upper, got {lower[i]:g} > {upper[i]:g} for {_client(i, names)}:"
            " exchange them, and keep both within [0, 1]."
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


def _client(i: int, names: risk.Names) -> str:
    return f"client {i if names is None else repr(names[i])}"


# The worst client weights near a prior, with a cap on each and a budget for all: the CD-norm.
#
#    R(z) = max { q'z : |q_j - prior_j| <= bounds_j,  sum_j |q_j - prior_j| / bounds_j <= budget,  q
#     >= 0,  sum q = 1 }
#
# Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-
# EASE), (18), where bounds are their p tilde and budget is their Gamma, with q >= 0 that (17)
# leaves out; with unequal bounds one sort does not solve it (``solvers/sets/box_and_cd_norm.py``).
# budget = 0, or bounds = 0, is ``Mean(prior)``.


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
        return box_and_cd_norm.largest_in_cd_norm(
            losses, *self._centre(len(losses)), float(self.budget)
        )

    def _nearest(self, v: Array) -> Array:
        return box_and_cd_norm.project_cd_norm(v, *self._centre(len(v)), float(self.budget))

    def _holds(self, weights: Array, tol: float) -> bool:
        prior, bounds = self._centre(len(weights))
        off = np.maximum(np.abs(weights - prior) - tol, 0.0)
        most = self.budget * (1 + 1e-12)
        return bool((off <= bounds).all()) and box_and_cd_norm.cd_norm_usage(off, bounds) <= most

    def _centre(self, n: int) -> tuple[Array, Array]:
        return risk.prior_for(self.prior, n), _nonnegative(
            risk.per_client(self.bounds, n, None, "bounds")
        )


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
# Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-
# EASE), their ellipsoid with q >= 0, which it does not imply. A vector for shape is its diagonal;
# shape = 1 is ``LpBall(sqrt(radius), 2, prior)``, shape = prior ``ChiSquareBall(radius, prior)``.
# radius = 0 is ``Mean(prior)``.


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
            return divergence_balls.largest_in_ellipsoid(losses, prior, shape, radius)
        return divergence_balls.largest_in_axes(losses, prior, self.axes, radius)

    def _nearest(self, v: Array) -> Array:
        prior, shape, radius = self.concrete(len(v))
        if shape.ndim == 1:
            return divergence_balls.project_ellipsoid(v, prior, shape, radius)
        return divergence_balls.project_axes(v, prior, self.axes, radius)

    def _holds(self, weights: Array, tol: float) -> bool:
        prior, shape, radius = self.concrete(len(weights))
        d = weights - prior
        off = divergence_balls.off_ellipsoid(d, shape if shape.ndim == 1 else self.axes, radius)
        return bool(off <= tol)

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
    def axes(self) -> divergence_balls.Axes:
        """The factors of a shape that is a matrix."""
        return divergence_balls.axes(np.asarray(self.shape))


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
        divergence_balls.axes(array)
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
# Jiao, Yang and Song, *Asynchronous distributed distributionally robust optimization* (ASPIRE-
# EASE), their polyhedron kept within the simplex. Worst cases are linear programs (HiGHS), bounds
# are computed from their multipliers. A concrete set keeps the vertices it met last, so that losses
# that change slowly need no new program; no answer depends on them.


class _Scaled(NamedTuple):
    """D and c with rows divided by the largest entry of D, and what was met."""

    D: Array
    c: Array
    met: Met | None


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
            raise ValueError(
                f"c must be a vector, one number for each row of D, got shape {c.shape}."
            )
        by_column = isinstance(self.D, Mapping)
        _matrix(np.transpose(risk.numbers(risk.entries(self.D), "D")) if by_column else self.D, c)

    def at(self, sizes: risk.Sizes, names: risk.Names = None) -> Polyhedron:
        by_column = isinstance(self.D, Mapping)
        D = (
            np.transpose(risk.numbers(risk.by_name(self.D, names, "D"), "D"))
            if by_column
            else self.D
        )
        c = risk.numbers(self.c, "c")
        matrix = _matrix(D, c)
        concrete = replace(self, D=matrix, c=c)
        for array in (matrix, c):  # what is kept of them must stay true
            array.setflags(write=False)
        vars(concrete)["_kept"] = concrete.scaled(len(sizes))._replace(met=Met())
        concrete.worst(np.zeros(len(sizes)))
        return concrete

    def __getstate__(self) -> dict[str, Any]:
        """Its fields: copies and files have met nothing."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _largest(self, losses: Array) -> tuple[Array, float]:
        D, c, met = self.scaled(len(losses))
        answer = largest_in_polyhedron(losses, D, c, met)
        if answer is None:
            raise ValueError(_empty(D, c))
        return answer

    def _nearest(self, v: Array) -> Array:
        from bonafed.solvers.sets.polyhedra import project_polyhedron

        D, c, met = self.scaled(len(v))
        q = project_polyhedron(v, D, c, met)
        if q is None:
            raise ValueError(_empty(D, c))
        return q

    def _holds(self, weights: Array, tol: float) -> bool:
        """Rows count in units of their largest entry."""
        D, c, _ = self.scaled(len(weights))
        return float((D @ weights - c).max(initial=-np.inf)) <= tol

    def scaled(self, n: int) -> _Scaled:
        """D and c of n clients in their scale; raises ``ValueError`` where they do not fit."""
        if isinstance(self.D, Mapping):
            raise ValueError(
                "D by client name needs the clients' names: call risk.at(sizes, names) first."
            )
        kept = vars(self).get("_kept")
        if kept is not None and kept.D.shape[1] == n:
            return kept
        c = risk.numbers(self.c, "c")
        D = _matrix(self.D, c)
        if D.shape[1] != n:
            raise ValueError(
                f"D must have one column per client, {n} of them, got shape {D.shape}."
            )
        scale = np.abs(D).max(1)
        scale = np.where(scale > 0, scale, 1.0)
        return _Scaled(D / scale[:, None], c / scale, None)


def _empty(D: Array, c: Array) -> str:
    return (
        f"the set is empty: all weights of the {D.shape[1]} clients exceed a row of D q <= c,"
        f" the best by {excess(D, c):.6g} (rows divided by their largest entry). Raise c."
    )


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
# The Wasserstein-1 ball over clients; Jiao, Yang and Song, *Asynchronous distributed
# distributionally robust optimization* (ASPIRE-EASE), use |i - j|. With the index of a client as
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
        if cost.ndim == 1:
            paid = line_cost(weights, prior, cost)
        else:
            paid = matrix_cost(weights, prior, cost, tol)
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
        return attained(losses, q, bound)

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
