"""The proximal augmented Lagrangian method on pooled rows: a reference, not a federated method.

    l_k(w) = f(w) + h(w) + (||[mu^k + beta c(w)]_+||^2 - ||mu^k||^2) / (2 beta) + ||w - w^k||^2 / (2
    beta)

    for k = 0, 1, 2, ...
        find w^{k+1} with dist_inf(0, dl_k(w^{k+1})) <= tau_k
        mu^{k+1} = [mu^k + beta c(w^{k+1})]_+
        stop if ||w^{k+1} - w^k||_inf + beta tau_k <= beta eps_1 and ||mu^{k+1} - mu^k||_inf <= beta
        eps_2

Algorithm 3 of He, Peng, Sun, *Federated learning with convex global and local constraints*, for
(85), with the tolerances tau_k = s_bar / (k + 1)^2 of their Algorithm 1, but eps_1 / 2 at most once
the second test is met: otherwise the first could not be met before s_bar / (k + 1)^2 <= eps_1.
Equalities have no [.]_+. The test uses the distance at which the inner solver ended, a bound on the
true one, instead of the tau_k that it aimed at, so an inner solve that ended short of tau_k never
passes for one that met it.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import bonafed as bf
import bonafed.extending as ext
from bonafed.extending import Array


@dataclass(frozen=True)
class Residuals:
    """The residuals of (w, multipliers) in the optimality conditions (8), in the Chebyshev norm.

    They are not scaled.

    Attributes
    ----------
    stationarity : of f'(w) + dh(w) + c'(w) mu, for one subgradient of h
    feasibility : the largest of c(w), |c(w)| for equalities, and 0
    complementarity : the largest |mu c(w)| of an inequality
    """

    stationarity: float
    feasibility: float
    complementarity: float


@dataclass(frozen=True, eq=False)
class CentralisedResult:
    """The result of a run.

    Attributes
    ----------
    w : (D,)
    multipliers : in the scale of the objective as stated
    value : of the objective at w
    outer : outer iterations
    evaluations : of all values and gradients together
    stop : OPTIMAL: the test was met and the problem is convex, so (w, mu) is optimal to the
        tolerances, which says nothing about the gap; UNPROVEN: the same without convexity;
        MAX_ROUNDS: ``max_outer`` came first; STALLED: an inner solve did not reach its tolerance
    text : the same in words
    residuals : recomputed at (w, multipliers)
    """

    w: Array
    multipliers: bf.Multipliers
    value: float
    outer: int
    evaluations: int
    stop: bf.Stop
    text: str
    residuals: Residuals


@dataclass(frozen=True)
class CentralisedAL(ext.Checked):
    """Algorithm 3, cProx-AL, with proximal Newton steps inside.

    Parameters
    ----------
    beta : penalty and proximal weight, > 0; the paper has 300 (Neyman-Pearson) and 10
    s_bar : of the inner tolerances s_bar / (k + 1)^2, > 0
    tol : eps_1 = eps_2, absolute, or the pair
    max_outer, max_inner : caps of outer iterations, and of Newton steps in each
    start : w^0 (D,), moved into the domain of h; None: 0
    multipliers : mu^0; None: 0

    Notes
    -----
    For losses and constraints that are continuously differentiable, and a convex regulariser. A
    ``Constraint`` without ``hessian`` has its curvature from differences of its Jacobian: 2 D
    evaluations a step, which are not counted. Each step factors a (D, D) matrix.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> limit = bf.NeymanPearson("malignant", level=0.2)
    >>> problem = bf.Problem(
    ...     bf.Logistic(),
    ...     over_samples=bf.Mean(label="benign"),
    ...     local_constraint=limit,
    ...     regulariser=bf.L2(0.01),
    ... )
    >>> result = bf.CentralisedAL(tol=1e-3).solve(problem, fed)
    >>> result.w.shape
    (31,)
    """

    beta: float = 300.0
    s_bar: float = 0.1
    tol: float | tuple[float, float] = 1e-6
    requirements: ClassVar[ext.Requirements] = ext.Requirements(
        constraint=ext.ANY,
        predictor=ext.AFFINE,
        over_samples=ext.MEAN_OF_ROWS,
        over_clients=ext.AVERAGE,
        loss=ext.SMOOTH_SCALAR,
        regulariser=ext.SEPARABLE,
    )
    max_outer: int = 1000
    max_inner: int = 200
    start: ext.Array | None = None
    multipliers: bf.Multipliers | None = None

    def __post_init__(self) -> None:
        ext.check_positive(self, "beta", "s_bar", remedy="")
        if not 0 < min(self._tolerances()) < math.inf:
            raise ValueError(f"tol must be a number > 0, got {self.tol}.")
        ext.check_least(self, "max_outer", "max_inner")

    def _tolerances(self) -> tuple[float, float]:
        first, other = np.broadcast_to(np.asarray(self.tol, float), 2).tolist()
        return first, other

    def solve(self, problem: bf.Problem, fed: bf.Federation) -> CentralisedResult:
        """Solve the problem on pooled rows.

        It raises ``TypeError`` for losses without a gradient everywhere and for regularisers that
        are not convex.
        """
        ext.check_requirements(self, problem, ext.Setting(fed.n_clients))
        problem, fed = problem.at(fed)
        whole, prox = Whole(problem, fed), partial(ext.free_prox, problem)
        w = self._first(problem, fed)
        mu = whole.flat(self.multipliers or ext.no_multipliers(problem, fed.n_clients))
        stop, text, count, k = bf.Stop.MAX_ROUNDS, "", 0, 0
        (first, second), settled = self._tolerances(), False
        minimum: ext.Minimum | None = None
        for k in range(self.max_outer):
            tau = min(self.s_bar / (k + 1) ** 2, first / 2 if settled else math.inf)
            merit = partial(self._merit, whole, w, mu)
            minimum = ext.minimise(merit, problem.penalty, prox, w, tau, self.max_inner)
            count += minimum.evaluations
            new = updated(mu, minimum.smooth.rest.c, self.beta, whole.equality)
            settled = bool(np.abs(new - mu).max(initial=0.0) <= self.beta * second)
            far = np.abs(minimum.w - w).max() + self.beta * minimum.distance
            if settled and far <= self.beta * first:
                stop = bf.Stop.OPTIMAL if whole.convex else bf.Stop.UNPROVEN
            elif not minimum.reached:
                stop = bf.Stop.STALLED
                text = f"an inner solve ended at {minimum.distance:.1e}, not at {tau:.1e}"
            w, mu = minimum.w, new
            if stop != bf.Stop.MAX_ROUNDS:
                break
        assert minimum is not None
        at: Everything = minimum.smooth.rest
        gradient = at.gradient + mu @ at.jacobian + minimum.subgradient
        residuals = Residuals(
            float(np.abs(gradient).max()) if math.isfinite(minimum.distance) else math.inf,
            float(np.where(whole.equality, np.abs(at.c), at.c).max(initial=0.0)),
            float(np.abs(mu * at.c)[~whole.equality].max(initial=0.0)),
        )
        met = f"optimality conditions met to {self._tolerances()}"
        capped = f"stopped at max_outer = {self.max_outer}; {residuals}: raise max_outer or beta; a"
        capped += " violation that stays while the multipliers grow means that no model may meet"
        words = {
            bf.Stop.OPTIMAL: f"{met}; this bounds no gap",
            bf.Stop.UNPROVEN: f"{met}; the problem is not convex, so this may be no minimum",
            bf.Stop.MAX_ROUNDS: f"{capped} the constraints",
        }
        reached = at.w, whole.parts(mu), at.value + problem.penalty(at.w)
        return CentralisedResult(*reached, k + 1, count, stop, text or words[stop], residuals)

    def _first(self, problem: bf.Problem, fed: bf.Federation) -> Array:
        D = problem.predictor.dimension(fed.n_features)
        w = np.zeros(D) if self.start is None else np.array(self.start, float)
        if w.shape != (D,) or not np.isfinite(w).all():
            raise ValueError(f"start must be {D} finite numbers, got shape {w.shape}.")
        return w if math.isfinite(problem.penalty(w)) else ext.free_prox(problem, w, np.ones(D))

    def _merit(self, whole: "Whole", anchor: Array, mu: Array, w: Array) -> ext.Smooth:
        """The function l_k at w, without h."""
        at, beta = whole.at(w), self.beta
        new = updated(mu, at.c, beta, whole.equality)
        value = at.value + float((new @ new - mu @ mu) + (w - anchor) @ (w - anchor)) / (2 * beta)
        gradient = at.gradient + new @ at.jacobian + (w - anchor) / beta

        def hessian() -> Array:
            active = at.jacobian[whole.equality | (new > 0)]
            return whole.hessian(at, new) + beta * active.T @ active + np.eye(len(w)) / beta

        return ext.Smooth(value, gradient, hessian, at)


def updated(mu: Array, c: Array, beta: float, equality: NDArray[np.bool_]) -> Array:
    """[mu + beta c]_+, without [.]_+ for equalities."""
    new = mu + beta * c
    return np.where(equality, new, np.maximum(new, 0.0))


# ---------------------------------------------------------------------------- all rows in one place


@dataclass(frozen=True, eq=False)
class Everything:
    """The values and gradients of f and of all k constraints of the problem at w."""

    w: Array
    value: float
    gradient: Array  # (D,)
    c: Array  # (k,)
    jacobian: Array  # (k, D)


class Whole:
    """The problem with all rows: f = R(f_1, ..., f_N), and all constraints as one vector."""

    def __init__(self, problem: bf.Problem, fed: bf.Federation) -> None:
        n, self.problem, self.blocks = fed.n_clients, problem, fed.blocks()
        self.n_clients, self.weights = n, problem.over_clients.project(np.zeros(n))
        glob, local = problem.constraint, problem.local_constraint
        held, coupled, own = glob.held, glob.coupled, np.tile(local.equality, n)
        self.equality = np.concatenate([held.equality, coupled.equality, own])
        self.convex = bool(glob.convex and local.convex)
        self.held, self.coupled, self.local = (_curved(stack) for stack in (held, coupled, local))
        self.analytic = np.concatenate([self.held[1], self.coupled[1], np.tile(self.local[1], n)])

    def parts(self, flat: Array) -> bf.Multipliers:
        """A vector (k,) as multipliers of the server, the sums and every client."""
        first, second = self.problem.constraint.held.size, self.problem.constraint.coupled.size
        local = flat[first + second :].reshape(self.n_clients, -1)
        return bf.Multipliers(flat[:first], flat[first : first + second], local)

    def flat(self, mu: bf.Multipliers) -> Array:
        """The multipliers of the server, the sums and every client as one vector (k,)."""
        vector = np.concatenate([mu.server, mu.shared, np.ravel(mu.local)])
        fits = vector.shape == self.equality.shape and np.isfinite(vector).all()
        if not fits or (vector[~self.equality] < 0).any():
            must = f"{len(self.equality)} finite numbers, >= 0 for inequalities"
            raise ValueError(f"multipliers must be {must}.")
        return vector

    def at(self, w: Array) -> Everything:
        """The values and gradients of f and all constraints at w."""
        problem, glob = self.problem, self.problem.constraint
        D, p = len(w), problem.local_constraint.size
        value, gradient = 0.0, np.zeros(D)
        coupled, coupled_gradient = np.zeros(glob.coupled.size), np.zeros((glob.coupled.size, D))
        local, local_gradient = np.zeros((self.n_clients, p)), np.zeros((self.n_clients, p, D))
        for block in self.blocks:
            at, q = ext.Point(problem, w, block), self.weights[block.index]
            value += float(q @ ext.client_values(at))
            gradient += q @ ext.client_gradients(at)
            coupled += glob.coupled.values(at).sum(0)
            coupled_gradient += glob.coupled.jacobian(at).sum(0)
            local[block.index] = problem.local_constraint.values(at)
            local_gradient[block.index] = problem.local_constraint.jacobian(at)
        server = glob.point(problem, w)
        c = np.concatenate([glob.held.values(server)[0], coupled, local.ravel()])
        J = [glob.held.jacobian(server)[0], coupled_gradient, local_gradient.reshape(-1, D)]
        return Everything(w, value, gradient, c, np.concatenate(J))

    def hessian(self, at: Everything, mu: Array) -> Array:
        """f'' + sum_k mu_k c_k'', with differences of c_k' where c_k'' is unknown."""
        problem, parts = self.problem, self.parts(mu)
        server = problem.constraint.point(problem, at.w)
        held = self.held[0], parts.server[None, self.held[1]]
        total = ext.hessians(server, np.zeros(1), [held], together=True)[0]
        for block in self.blocks:
            every = np.broadcast_to(parts.shared, (len(block.names), len(parts.shared)))
            own = self.local[0], parts.local[block.index][:, self.local[1]]
            terms = [(self.coupled[0], every[:, self.coupled[1]]), own]
            here, q = ext.Point(problem, at.w, block), self.weights[block.index]
            total = total + ext.hessians(here, q, terms, together=True)[0]
        mu = np.where(self.analytic, 0.0, mu)
        if not mu.any():
            return total
        # the others by differences
        w, size = at.w, np.finfo(float).eps ** (1 / 3) * np.maximum(1.0, np.abs(at.w))
        columns = [mu @ (self.at(w + e).jacobian - self.at(w - e).jacobian) for e in np.diag(size)]
        bend = np.stack(columns) / (2 * size[:, None])
        return total + (bend + bend.T) / 2


def _curved(stack: ext.Stack) -> tuple[ext.Stack, NDArray[np.bool_]]:
    """The parts whose curvature is known, and which rows of the stack are theirs."""
    known = [getattr(getattr(part, "one", part), "hessian", ()) is not None for part in stack.parts]
    kept = tuple(part for part, has in zip(stack.parts, known, strict=True) if has)
    sizes = np.array([len(part.equality) for part in stack.parts], int)
    return ext.Stack(kept), np.repeat(np.array(known, bool), sizes)
