"""The steps of an ADMM for a rank-based problem on one client's rows, for every rank method.

    minimise over w, z:  Omega(z) + g(w) - <tilt, w>   subject to   z = D w - b                  (9)

Xiao, Ge, Jiang, Yan, *A unified framework for rank-based loss minimization*; equation numbers are
theirs, b is 0 for margin losses and y for regression. ``tilt`` is the gradient that a
difference-of-convex step subtracts.
"""

import math
import weakref
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from bonafed.algorithms import requirements as needs
from bonafed.algorithms.method import free_prox
from bonafed.arrays import Array, Block
from bonafed.parameters import Checked
from bonafed.problem import rank_levels as coordinates
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import L1, L2, MCP, SCAD, Bounds, ElasticNet, Zero
from bonafed.solvers.rank.proxes import Kernel, gradients_of, losses_of, prospect_prox, rank_prox
from bonafed.solvers.rank.semismooth_newton import RankSystem, Separable
from bonafed.solvers.smooth.least_squares import Ridge, descend, descend_clipped, fista

MOST = 2**31  # bytes of the dense matrix D at most


@dataclass(frozen=True, eq=False)
class Design:
    """The matrix D, and what is computed from it once.

    With an intercept the features are centred: an equal problem, since the intercept is free, and a
    better conditioned one. ``inward`` and ``outward`` translate models.
    """

    rows: coordinates.RankRows

    @cached_property
    def D(self) -> Array:
        """(n, D), dense, features centred where there is an intercept."""
        n, width = len(self.rows.sign), self.rows.dimension
        if 8 * n * width > MOST:
            raise ValueError(
                f"rank methods work on a dense matrix, {n} x {width} would take"
                f" {8 * n * width / 2**30:.1f} GiB: use fewer features or rows, or Bundle()"
                " where the risk is convex."
            )
        D = self.rows.matrix()
        if self.rows.intercept:
            D[:, :-1] -= np.outer(self.rows.sign, self.mean)
        return D

    @cached_property
    def mean(self) -> Array:
        """The features' means, (d,)."""
        return np.asarray(self.rows.X.mean(0)).ravel()

    def inward(self, w: Array) -> Array:
        """The model for centred features."""
        return np.append(w[:-1], w[-1] + self.mean @ w[:-1]) if self.rows.intercept else w

    def outward(self, w: Array) -> Array:
        """The model for the features as they are."""
        return np.append(w[:-1], w[-1] - self.mean @ w[:-1]) if self.rows.intercept else w

    @cached_property
    def ridge(self) -> Ridge:
        return Ridge.of(self.D, self.rows.intercept)

    @cached_property
    def gram(self) -> Array:
        """The matrix D'D."""
        return self.D.T @ self.D

    @cached_property
    def length(self) -> float:
        """A bound on ||D||_2^2."""
        return float(np.linalg.eigvalsh(self.gram)[-1]) if self.D.size else 0.0


_DESIGNS: weakref.WeakKeyDictionary[Block, dict[Any, Design]] = weakref.WeakKeyDictionary()


RANK_REQUIREMENTS = needs.Requirements(
    clients=needs.ONE_CLIENT,
    predictor=needs.LINEAR,
    over_samples=needs.MEAN_OR_RANK,
    loss=needs.Need(
        "increases with the margin or the absolute residual",
        "needs a loss that increases with one rank coordinate of a row, its margin or |residual|",
        lambda problem, setting: coordinates.has_rank_coordinate(problem.loss),
    ),
    rows=needs.EQUAL_ROWS,
)


@dataclass(frozen=True, eq=False)
class RankTask:
    """The problem over the rows of one client.

    ``sigma`` is None for the weights of prospect theory, which change at a reference.
    """

    problem: Problem
    design: Design
    kernel: Kernel
    sigma: Array | None
    tilt: Array | None = None

    @classmethod
    def of(cls, problem: Problem, data: Block) -> "RankTask":
        # the design of these rows is kept as long as they are
        known = _DESIGNS.setdefault(data, {})
        key = problem.loss.targets, problem.predictor.intercept
        if key not in known:
            known[key] = Design(coordinates.rank_rows(problem, data))
        design, sigma = known[key], None
        if not hasattr(problem.over_samples, "rank_weights_below"):
            sigma = coordinates.rank_weights(problem, len(design.rows.sign))
        return cls(problem, design, coordinates.kernel_of(problem.loss), sigma)

    @property
    def convex(self) -> bool:
        return self.problem.convex

    # -- the objective -----------------------------------------------------------------------------

    def rank_coordinates(self, w: Array) -> Array:
        """The rank coordinates t = D w - b."""
        return self.design.D @ w - self.design.rows.shift

    def losses(self, t: Array) -> Array:
        """The losses of all rows, (n,)."""
        return losses_of(t, self.kernel)

    def subgradient(self, t: Array) -> Array:
        """Rank weights times gradients of the loss, (n,).

        They are a gradient of Omega at t where its entries differ.
        """
        return self.problem.over_samples.weights(self.losses(t)) * gradients_of(t, self.kernel)

    def omega(self, t: Array) -> float:
        return coordinates.rank_value(self.problem, t)

    def objective(self, w: Array, t: Array | None = None) -> float:
        """Omega(D w - b) + g(w), of the problem as stated: without the tilt."""
        return self.omega(self.rank_coordinates(w) if t is None else t) + self.problem.penalty(w)

    # -- the two steps of Algorithm 1 --------------------------------------------------------------

    def z_step(self, m: Array, rho: float) -> Array:
        """argmin_z Omega(z) + rho / 2 ||z - m||^2, line 2, by PAVA."""
        if self.sigma is not None:
            return rank_prox(m, self.sigma, rho, self.kernel).z
        return prospect_prox(m, *self._prospect, rho, self.kernel)

    @cached_property
    def _prospect(self) -> tuple[Array, Array, float]:
        """The weights below and above the reference of prospect theory, and the reference in t."""
        risk, n = self.problem.over_samples, len(self.design.rows.sign)
        knot = coordinates.knot_of(self.kernel, risk.reference)
        return risk.rank_weights_below(n), risk.rank_weights_above(n), knot

    def w_step(
        self, v: Array, rho: float, near: Array, r: float, tol: float, gamma: float = 0.0
    ) -> Array:
        """argmin_w rho / 2 ||D w - v||^2 + M(w) + r / 2 ||w - near||^2 - <tilt, w>, line 3.

        ``near`` is also its start.

        M is the Moreau envelope (7) of g with parameter gamma, g itself for gamma = 0.
        """
        g = self.problem.regulariser
        if isinstance(g, Zero | L2):
            mu = getattr(g, "strength", 0.0)
            return self.design.ridge.solve(v, rho, mu / (1 + gamma * mu), r, near, self.tilt)
        c = rho * (v @ self.design.D) + r * near
        if self.tilt is not None:
            c = c + self.tilt
        if isinstance(g, L1 | ElasticNet):
            l1, l2 = (g.strength, 0.0) if isinstance(g, L1) else (g.l1, g.l2)
            penalties = self._spared(l1), self._spared(l2)
            return descend(self.design.gram, c, rho, *penalties, r, gamma, near, tol, 200)
        if isinstance(g, MCP | SCAD) and gamma == 0:
            scad, strength = isinstance(g, SCAD), self._spared(g.strength)
            shape = g.a if isinstance(g, SCAD) else g.gamma
            law = strength, shape, scad, r, near
            return descend_clipped(self.design.gram, c, rho, *law, tol, 200)
        steep = rho * self.design.length + r

        def gradient(w: Array) -> Array:
            return rho * (self.design.gram @ w) + r * w - c

        def prox(v: Array, step: float) -> Array:
            return self.envelope_prox(v, step, gamma)

        finely, convex = tol / steep if steep > 0 else tol, g.weak_convexity == 0
        return fista(gradient, prox, steep, near, finely, 500, accelerate=convex)

    def prox(self, v: Array, step: float | Array) -> Array:
        """argmin_w g(w) + sum_j (w - v)_j^2 / (2 step_j), with a free intercept.

        step is a number or (D,).
        """
        return free_prox(self.problem, v, step)

    def envelope_prox(self, v: Array, step: float, gamma: float) -> Array:
        """The same with the Moreau envelope of g.

        It is the minimum over u and w of step g(u) + step ||u - w||^2 / (2 gamma) + ...
        """
        return v + step / (step + gamma) * (self.prox(v, step + gamma) - v)

    def _spared(self, strength: float) -> Array:
        """The strength for every coefficient, 0 for an intercept."""
        out = np.full(self.design.rows.dimension, float(strength))
        if self.problem.predictor.intercept:
            out[-1] = 0.0
        return out

    # -- for the Newton steps ----------------------------------------------------------------------

    @property
    def separable(self) -> Separable | None:
        """g - <tilt, .> with the gradient of its prox, if g is convex and separable; else None."""
        g, tilt = self.problem.regulariser, self.tilt
        free = self._spared(1.0) == 0.0

        def value(w: Array) -> float:
            return self.problem.penalty(w) - (0.0 if tilt is None else float(tilt @ w))

        def prox(v: Array, s: Array) -> Array:
            return self.prox(v if tilt is None else v + s * tilt, s)

        if isinstance(g, Zero | L2 | L1 | ElasticNet):
            l2 = g.strength if isinstance(g, L2) else getattr(g, "l2", 0.0)
            sparse = isinstance(g, L1 | ElasticNet)

            def gradient(w: Array, s: Array) -> Array:
                inside = (w != 0.0).astype(float) if sparse else np.ones_like(w)
                return np.where(free, 1.0, inside / (1 + s * l2))

            return Separable(value, prox, gradient)
        if isinstance(g, Bounds):
            some, none = (~free).sum(), np.full(free.sum(), np.inf)
            low = np.append(np.broadcast_to(g.lower, some), -none)
            high = np.append(np.broadcast_to(g.upper, some), none)
            return Separable(value, prox, lambda w, s: ((low < w) & (w < high)).astype(float))
        return None

    @property
    def system(self) -> RankSystem | None:
        """The problem for the Newton steps; None where they do not apply."""
        sigma, h = self.sigma, self.separable
        if sigma is None or h is None or (np.diff(sigma) < -1e-15 * sigma.max()).any():
            return None
        D = self.design.D
        gram = self.design.gram if D.shape[1] <= D.shape[0] else None
        return RankSystem(D, self.design.rows.shift, sigma, self.kernel, h, gram)


# Schedules of the penalty rho of an ADMM, as values.
#
# A schedule answers ``first(n)`` and ``after(now) -> (rho, patience)``: the penalty of the next
# iteration from the number of the iteration and the sizes of the residuals. ``patience`` is its own
# memory, one number.

FROZEN = 1e12  # a rho at which nothing moves any more; what grows beyond overflows in the end


@dataclass(frozen=True)
class Progress:
    """The numbers that a schedule may depend on."""

    k: int  # iterations done
    rho: float
    primal: float  # ||z - (D w - b)||, relative to the larger of its parts
    dual: float  # rho ||D (w - w_before)||, relative to the multiplier
    gap: float  # ||z - (D w - b)|| itself
    patience: float


class Penalty(Protocol):
    """A schedule of penalties."""

    def first(self, n: int) -> float:
        """rho_0 for n rows."""
        ...

    def after(self, now: Progress) -> tuple[float, float]:
        """(rho, patience) of the next iteration."""
        ...


@dataclass(frozen=True)
class Balanced(Checked):
    """A penalty that keeps both residuals of one size.

    Changes become rarer by a factor, without which they can cycle.

    Parameters
    ----------
    scale : rho_0 = scale / n; the multipliers of n rows are of size 1 / n
    every : iterations before the first change
    damping : factor by which the wait grows at every change

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(penalty=bf.Balanced(scale=0.3))
    >>> bf.solve(problem, fed.pooled(), algorithm=method).outcome.stop.value
    'optimal'
    """

    scale: float = 0.3
    every: int = 10
    damping: float = 1.3

    def first(self, n: int) -> float:
        return self.scale / n

    def after(self, now: Progress) -> tuple[float, float]:
        due = now.patience or float(self.every)
        if now.k < due or min(now.primal, now.dual) <= 0:
            return now.rho, due
        ratio = math.sqrt(now.primal / now.dual)
        wait = (due - now.k) + max(self.every, due * (self.damping - 1))
        factor = 1.0 if 0.7 <= ratio <= 1.5 else min(max(ratio, 0.2), 5.0)
        return now.rho * factor, now.k + max(wait, self.every)


@dataclass(frozen=True)
class Growing(Checked):
    """rho_k = start * factor^floor(max(0, k - delay) / every), at most ``limit``.

    Table 6 of the paper: SRM ``Growing(1e-5, 1.2)``, AoRR ``Growing(2e-7, 5, every=3, delay=7)``.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(penalty=bf.Growing(start=1e-3))
    >>> bf.solve(problem, fed.pooled(), algorithm=method).outcome.stop.value
    'optimal'
    """

    start: float = 2e-7
    factor: float = 1.02
    every: int = 1
    delay: int = 0
    limit: float = FROZEN

    def __post_init__(self) -> None:
        right = {"start": self.start > 0, "factor": self.factor >= 1, "every": self.every >= 1}
        if wrong := [name for name, fits in right.items() if not fits]:
            needed = "> 0" if wrong[0] == "start" else ">= 1"
            raise ValueError(
                f"Growing.{wrong[0]} must be {needed}, got {getattr(self, wrong[0])!r}: penalties"
                " are positive and do not fall."
            )

    def first(self, n: int) -> float:
        return self.start

    def after(self, now: Progress) -> tuple[float, float]:
        power = max(0, now.k - self.delay) // self.every
        beyond = power * math.log(self.factor) > 600  # of any float
        return self.limit if beyond else min(self.start * self.factor**power, self.limit), 0.0


@dataclass(frozen=True)
class ByResidual(Checked):
    """A penalty that grows by ``slow`` while ||z - Dw|| > threshold, then by ``fast``.

    This is EHRM in Table 6 of the paper.

    At most ``limit``.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(
    ...     bf.Logistic(), over_samples=bf.Superquantile(0.5), regulariser=bf.L2(0.1)
    ... )
    >>> method = bf.RankADMM(penalty=bf.ByResidual(start=1e-3))
    >>> bf.solve(problem, fed.pooled(), algorithm=method).outcome.stop.value
    'optimal'
    """

    start: float = 1e-4
    slow: float = 1.02
    fast: float = 1.07
    threshold: float = 1e-2
    limit: float = FROZEN

    def first(self, n: int) -> float:
        return self.start

    def after(self, now: Progress) -> tuple[float, float]:
        rate = self.slow if now.gap > self.threshold else self.fast
        return min(now.rho * rate, self.limit), 0.0
