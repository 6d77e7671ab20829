"""A federated interior point method: rounds of sums of gradients, Hessians and Jacobians.

    minimise  R(f_1(w), ..., f_N(w)) + h(w)  subject to  c_0(w) <= 0,  sum_i c~_i(w) <= 0,
            c_i(w) <= 0 for every i

(5) of He, Peng, Sun, *Federated learning with convex global and local constraints*, solved by
primal-dual Newton steps at the server (``solvers/smooth/primal_dual.py``) for models of up to some
hundred coefficients: tens of rounds where their ADMM needs thousands. A step that is refused costs
a round like any other. h is smooth (L2), or an L1 or a box, which become linear inequalities that
the server adds, as does R (``risk_rows``).

In a round the server learns the *sums* over all clients of values, gradients and Hessians, but
every single client's constraint values c_i(w) and their gradients; ``ProximalAL`` reveals a point
u~_i and a number of every client. Without local constraints only sums are revealed; where R is not
a mean, so are every client's f_i and gradient. The server keeps all multipliers.

Where Newton's method fails (many refused steps in a row, or diverging multipliers) the same rounds
minimise the largest violation t instead. An optimum t > 0, with multipliers y >= 0 of sum 1, proves
that no model is feasible.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.method import Ids, Next
from bonafed.algorithms.requirements import Need
from bonafed.arrays import Array, Block
from bonafed.codec import Counter, Extended, Form
from bonafed.problem.claims import Claim
from bonafed.problem.client_means import client_gradients, client_values, hessians
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.lower_bounds import Multipliers, no_multipliers, weighting
from bonafed.problem.plausible import Claims, of_lagrangian, of_limits, of_risk
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import regulariser_parts
from bonafed.problem.risks.risk import Risk
from bonafed.problem.risks.weight_sets import LpBall, Mean, Simplex, Superquantile
from bonafed.problem.risks.weight_sets import Sum as Added
from bonafed.rounds import Done, Each, Round, Stop, Sum, record
from bonafed.solvers.smooth import primal_dual as newton
from bonafed.solvers.smooth.primal_dual import Iterate, Program, residuals

# The server's program from the clients' answers: one vector of variables, scaled constraints.
#
#     x = (w, r where h has an l1 part: |w| <= r, t where the smallest violation is sought)
#
# The inequalities stand in this order: those of every client, the sums over clients, those of the
# server, and those of h; equalities likewise, without h. Every coefficient is counted in units of
# 1 / sqrt(its curvature at the first model), and every row and the objective are divided by the
# size of their gradients there, so that no tolerance has a unit.
#
# Risks over clients are further variables and rows at the server:
#
#     R(z) = max_{q in Q} <q, z>  =  min over (t, e, s) of  t + <cost, (e, s)>  subject to
#             z_i <= t + e_i  and
#
#     Simplex                    e = 0
#     Superquantile, caps u      cost u of e,                       e >= 0
#     LpBall, prior q0, radius   cost q0 of e and radius of s,      ||e||_{p*} <= s
#
# by duality; the multipliers of z_i <= t + e_i are the worst weights q*. ||e||_2 <= s is taken as
# e'e / s <= s, which is smooth and convex for s > 0.

MARGIN = 0.1  # first slack of all these rows, in units of the objective


class RiskRows(NamedTuple):
    """A risk as a program: minimise <cost, x> subject to z + link x <= 0, rows x <= 0.

    With ``cone`` also e'e / s <= s. The variables are x = (t, e, ..., s).
    """

    cost: Array  # (k,)
    link: Array  # (N, k)
    rows: Array  # (g, k)
    cone: bool
    bounded: bool = True  # |e| is, and e = 0 is inside; else e >= 0

    @property
    def size(self) -> int:
        """How many inequalities there are."""
        return len(self.link) + len(self.rows) + self.cone

    def start(self, z: Array) -> Array:
        """x (k,) with a margin in every row."""
        x = np.full(len(self.cost), MARGIN)
        x[0] = z.max() + MARGIN
        x[1 : 1 + len(z)] = 0.0 if self.bounded else MARGIN
        return x

    def evaluated(self, x: Array) -> tuple[Array, Array]:
        """Values and Jacobian of the rows and the cone at x."""
        value, jacobian = self.rows @ x, self.rows
        if self.cone:
            e, s = x[1:-1], x[-1]
            gradient = np.concatenate([[0.0], 2 * e / s, [-(e @ e) / s**2 - 1]])
            value = np.append(value, e @ e / s - s)
            jacobian = np.concatenate([jacobian, gradient[None]])
        return value, jacobian

    def curvature(self, x: Array, multiplier: float) -> Array:
        """multiplier times the cone's second derivative, (k, k)."""
        total = np.zeros((len(x), len(x)))
        if self.cone:
            e, s = x[1:-1], x[-1]
            total[1:-1, 1:-1] = np.eye(len(e))
            total[1:-1, -1] = total[-1, 1:-1] = -e / s
            total[-1, -1] = e @ e / s**2
            total *= 2 * multiplier / s
        return total


def averaged(risk: Risk) -> bool:
    """Whether the risk is a fixed weighting of the clients."""
    return isinstance(risk, Mean | Added) or (isinstance(risk, LpBall) and risk.radius == 0)


def risk_rows(risk: Risk, n: int) -> RiskRows | None:
    """The rows of a concrete risk over n clients; None for a mean or a sum, which need none.

    Raises
    ------
    ValueError
        for risks that have no such form here
    """
    if averaged(risk):
        return None
    t, eye = np.ones((n, 1)), np.eye(n)
    match risk:
        case Simplex():
            return RiskRows(np.ones(1), -t, np.zeros((0, 1)), False)
        case Superquantile():
            link, rows = (np.concatenate([above, -eye], 1) for above in (-t, 0 * t))
            return RiskRows(np.append(1.0, risk.caps(n)), link, rows, False, False)
        case LpBall(p=1.0 | 2.0 | np.inf):
            slack = eye if risk.p == np.inf else t
            ends = np.full(slack.shape[1], risk.radius)
            cost = np.concatenate([[1.0], np.asarray(risk.prior), ends])
            link = np.concatenate([-t, -eye, 0 * slack], 1)
            if risk.p == 2.0:
                rows = np.zeros((1, n + 2))
                rows[0, -1] = -1.0
                return RiskRows(cost, link, rows, True)
            sides = [np.concatenate([0 * t, sign * eye, -slack], 1) for sign in (1, -1)]
            return RiskRows(cost, link, np.concatenate(sides), False)
    raise ValueError(f"InteriorPoint {RISK_WITH_ROWS.words}, got {risk!r}.")


def has_rows(risk: Risk) -> bool:
    """Whether ``risk_rows`` knows the risk."""
    if isinstance(risk, LpBall):
        return risk.radius == 0 or risk.p in (1, 2, np.inf)
    return isinstance(risk, Mean | Added | Simplex | Superquantile)


RISK_WITH_ROWS = Need(
    "mean, sum, simplex, CVaR, Lp ball of p = 1, 2, inf",
    "needs over_clients = Mean, Sum, Simplex, Superquantile, or LpBall with p = 1, 2 or inf",
    lambda problem, setting: has_rows(problem.over_clients),
)


SMALL = 1e-4  # relative change of multipliers that still counts as polish


@record
class Expanded:
    """A client's values and derivatives at w."""

    value: Sum  # (n,) q_i f_i(w)
    gradient: Sum  # (n, D)
    hessian: Sum  # (1, D, D) of weight q_i f_i + <multipliers, c>, added up over the block
    risk: Each | None  # (n,) f_i(w), and
    risk_gradient: Each | None  # (n, D), where the risk over clients is no mean
    local: Each  # (n, p) c_i(w)
    local_jacobian: Each  # (n, p, D)
    shared: Sum  # (n, p_c) its part of the sums
    shared_jacobian: Sum  # (n, p_c, D)


# all constraints at w, unscaled, in the order of the comment above: values (M,), Jacobian (M, D)
Pieces = tuple[Array, Array]


@record
class Scale:
    """Divisors of the objective and of every row of ``Pieces``, and the coefficients' units."""

    objective: float
    rows: Annotated[Array, Form("N * p + p_c + p_0")]
    units: Annotated[Array, Form("D")]


def pieces_at(problem: Problem, w: Array, up: Expanded) -> Pieces:
    """The constraints of the clients, the sums over clients, and those of the server."""
    glob, D = problem.constraint, len(w)
    here = glob.point(problem, w)
    c = [up.local.ravel(), up.shared, glob.held.values(here)[0]]
    J = [up.local_jacobian.reshape(-1, D), up.shared_jacobian, glob.held.jacobian(here)[0]]
    return np.concatenate(c), np.concatenate(J)


def scale_of(up: Expanded, pieces: Pieces) -> Scale:
    """Units from the curvature, or from the constraints where there is none, and divisors.

    Divisors are the sizes of gradients, or of values where these vanish.
    """
    curvature, (c, J) = np.maximum(np.diag(up.hessian), 0.0), pieces
    units = np.where(curvature > 0, curvature, (J**2).sum(0))
    units = 1 / np.sqrt(np.where(units > 0, units, 1.0))
    rows = np.abs(J * units).max(1, initial=0.0)
    rows = np.where(rows > 1e-8 * np.abs(c), rows, np.abs(c))
    size = float(np.abs(up.gradient * units).max(initial=0.0))
    # at a stationary first model a gradient is rounding alone
    size = max(size, 1e-2 * math.sqrt(abs(float(up.value))))
    return Scale(size if size > 0 else 1.0, np.where(rows > 0, rows, 1.0), units)


@dataclass(frozen=True)
class Scaled:
    """The server's program in its units: of the problem (phase 2), or of the smallest violation."""

    problem: Problem
    scale: Scale
    phase: int
    n_clients: int

    @cached_property
    def equality(self) -> NDArray[np.bool_]:
        """(M,) which constraints are equalities."""
        own, glob = self.problem.local_constraint.equality, self.problem.constraint
        every = np.tile(own, self.n_clients), glob.coupled.equality, glob.held.equality
        return np.concatenate(every)

    @cached_property
    def risk(self) -> RiskRows | None:
        """The rows of the risk over clients; None for a mean, and where only violations count."""
        return risk_rows(self.problem.over_clients, self.n_clients) if self.phase == 2 else None

    @property
    def objective(self) -> float:
        """The divisor of the objective."""
        return self.scale.objective if self.phase == 2 else 1.0

    @cached_property
    def parts(self) -> tuple[Array, Array, Array, Array]:
        """l1, l2, lower, upper (d,) of h."""
        l1, l2, lower, upper = regulariser_parts(self.problem.regulariser)
        inverse = self.problem.predictor.split(self.scale.units)[0]
        return l1 * inverse, l2 * inverse**2, lower / inverse, upper / inverse

    def model(self, at: Iterate) -> Array:
        """w."""
        return at.x[: len(self.scale.units)] * self.scale.units

    def start(self, w: Array, pieces: Pieces, risks: Array | None) -> Array:
        """The first x at w: r above |w|, the risk's variables above it, t above every violation."""
        w, d = w / self.scale.units, len(self.parts[0])
        if self.phase == 1:
            return np.append(w, violation(pieces[0] / self.scale.rows, self.equality) + 0.1)
        parts = [w]
        if self.parts[0].any():
            parts.append(np.abs(w[:d]) + max(1e-2, float(np.abs(w).max(initial=0.0))))
        if self.risk is not None:
            parts.append(self.risk.start(base.known(risks) / self.objective))
        return np.concatenate(parts)

    def program(
        self, x: Array, up: Expanded, pieces: Pieces, mu: Multipliers, cone: float = 0.0
    ) -> Program:
        """The program at x.

        ``cone`` is the multiplier of the last row, if that is of an l2 ball of weights.
        """
        units, rows, objective = self.scale.units, self.scale.rows, self.objective
        D, nx, glob, equal = len(units), len(x), self.problem.constraint, self.equality
        c, J = pieces[0] / rows, np.zeros((len(rows), nx))
        J[:, :D] = pieces[1] * units / rows[:, None]
        gradient, hessian = np.zeros(nx), np.zeros((nx, nx))
        hessian[:D, :D] = up.hessian
        if not glob.held.affine:
            here, held = glob.point(self.problem, x[:D] * units), [(glob.held, mu.server[None])]
            hessian[:D, :D] += hessians(here, None, held, together=True)[0]
        hessian[:D, :D] *= np.outer(units, units) / objective
        own_c, own_J = self._regulariser_rows(x)
        if self.phase == 1:
            t, last = x[-1], nx - 1
            gradient[last] = 1.0
            J, c = np.concatenate([J, -J[equal]]), np.concatenate([c, -c[equal]]) - t
            J[:, last] = -1.0
            floor = np.zeros((1, nx))
            floor[0, last] = -1.0
            limits = np.concatenate([c, own_c, [-t - 1.0]]), np.concatenate([J, own_J, floor])
            return Program(float(t), gradient, hessian, *limits, np.zeros(0), np.zeros((0, nx)))
        l1, l2, _, _ = self.parts
        d, v, value = len(l1), x[: len(l1)], float(up.value)
        gradient[:D] = up.gradient * units
        below, slopes = [c[~equal], own_c], [J[~equal], own_J]
        if (risk := self.risk) is not None:
            k, risks, r = len(risk.cost), base.known(up.risk), x[-len(risk.cost) :]
            value = float(risk.cost @ r) * objective
            gradient[:D], gradient[-k:] = 0.0, risk.cost * objective
            hessian[-k:, -k:] += risk.curvature(r, cone)
            link = np.zeros((len(risks), nx))
            link[:, :D] = base.known(up.risk_gradient) * units / objective
            link[:, -k:] = risk.link
            values, more = risk.evaluated(r)
            below += [risks / objective + risk.link @ r, values]
            slopes += [link, np.pad(more, ((0, 0), (nx - k, 0)))]
        gradient[:d] += l2 * v
        hessian[range(d), range(d)] += l2 / objective
        value += float(l2 @ (v * v)) / 2
        if l1.any():
            gradient[D : D + d] = l1
            value += float(l1 @ x[D : D + d])
        scaled = value / objective, gradient / objective, hessian
        return Program(*scaled, np.concatenate(below), np.concatenate(slopes), c[equal], J[equal])

    def _regulariser_rows(self, x: Array) -> tuple[Array, Array]:
        """h as linear inequalities (k,), (k, nx): a box, or |w| <= r."""
        l1, _, lower, upper = self.parts
        eye = np.eye(len(l1), len(x))
        if l1.any():
            r = np.eye(*eye.shape, len(self.scale.units))
            J = np.concatenate([eye - r, -eye - r]) if self.phase == 2 else eye[:0]
            return J @ x, J
        low, high = np.isfinite(lower), np.isfinite(upper)
        J = np.concatenate([-eye[low], eye[high]])
        return J @ x - np.concatenate([-lower[low], upper[high]]), J

    def multipliers(self, at: Iterate) -> Multipliers:
        """The multipliers of the constraints as stated, from those of the program."""
        equal, n, own = self.equality, self.n_clients, self.problem.local_constraint.size
        M, k, weights = len(equal), int(equal.sum()), None
        scaled = np.zeros(M)
        if self.phase == 1:
            scaled += at.z[:M]
            scaled[equal] -= at.z[M : M + k]
        else:
            scaled[~equal], scaled[equal] = at.z[: M - k], at.lam
        if self.risk is not None:
            weights = at.z[len(at.z) - self.risk.size :][:n]
        mu, p = scaled * self.objective / self.scale.rows, n * own
        shared = p + self.problem.constraint.coupled.size
        return Multipliers(mu[shared:], mu[p:shared], mu[:p].reshape(n, own), weights)

    def rounded(self, at: Iterate) -> Array:
        """The model with coefficients that tend to 0, or to a bound of their box, put there.

        Which do is what the multipliers of the rows of h say: an active row's multiplier is larger
        than its slack.
        """
        l1, _, lower, upper = regulariser_parts(self.problem.regulariser)
        w, d = self.model(at), len(self.parts[0])
        settled = (at.z > at.s)[: len(at.s) - (0 if self.risk is None else self.risk.size)]
        if self.phase == 1 or not len(settled):
            return w
        if l1 > 0:
            active = settled[-2 * d :]
            w[:d][active[:d] & active[d:]] = 0.0
            return w
        lower, upper = np.broadcast_to(lower, d), np.broadcast_to(upper, d)
        low, high = np.flatnonzero(np.isfinite(lower)), np.flatnonzero(np.isfinite(upper))
        if len(at_bound := np.concatenate([low, high])):
            active = settled[-len(at_bound) :]
            w[at_bound[active]] = np.concatenate([lower[low], upper[high]])[active]
            w[:d] = np.clip(w[:d], lower, upper)
        return w


def settled_at(p: Program, at: Iterate, phase: int) -> Iterate:
    """The multipliers to report: those that vanish beside their slacks are 0, so that
    complementarity holds exactly, and all are exact if a small relative change does it.

    Exact means that gradients cancel to rounding.

    Up to a step of the model: a certificate balances what curvature can, and the rest by nothing
    else.
    """
    least = 1e-6 * np.maximum(at.s, 0.0) * max(float(at.z.max(initial=0.0)), 0.0)
    far, z, lam = residuals(p, at).worst > SMALL, np.where(at.z < least, 0.0, at.z), at.lam
    cleared = replace(at, z=z)
    if phase == 2 and (far or _definite(p.hessian)):
        return cleared
    size = max(float(np.abs(lam).max(initial=0.0)), float(z.max(initial=0.0)))
    columns, k = np.hstack([p.J.T * z, p.E.T * size, p.hessian]), len(z)
    for _ in range(2):
        left = p.gradient + p.J.T @ z + p.E.T @ lam
        change = np.linalg.lstsq(columns, -left, rcond=1e-10)[0][: k + len(lam)]
        if phase == 2 and np.abs(change).max(initial=0.0) > SMALL:
            return cleared
        z, lam = z * np.maximum(1 + change[:k], 0.0), lam + size * change[k:]
    return replace(at, z=z, lam=lam)


def _definite(hessian: Array) -> bool:
    """Whether curvature balances every gradient."""
    try:
        np.linalg.cholesky(hessian - 1e-8 * np.diag(np.diag(hessian)))
    except np.linalg.LinAlgError:
        return False
    return True


def violation(c: Array, equality: NDArray[np.bool_]) -> float:
    """The largest violation of constraints of these values."""
    return float(np.where(equality, np.abs(c), c).max(initial=0.0))


def finite(p: Program) -> bool:
    """Whether all numbers of a program are finite."""
    parts = (p.gradient, p.hessian, p.c, p.J, p.e)
    return math.isfinite(p.value) and all(np.isfinite(part).all() for part in parts)


HALVINGS = 3  # refused steps in a row before the Hessian is regularised further
MEMORY = 4  # accepted points whose largest residual a new one has to beat
# an objective this far below 0, in units of its gradient at the start, is called unbounded
FALLEN = 1e10
# curvature added where only violations are minimised: most directions do not matter to them
FLAT = 1e-6
MET = 1e-7  # largest violation, as stated, of a model that is called optimal whatever the tolerance
PATIENCE = 12  # rounds without a better residual before the method is called stuck


@record
class Expand:
    """Ask for values, gradients and curvature at ``w`` of weight * f + <multipliers, c>."""

    w: Annotated[Array, Form("D")]
    weight: float  # 1, or 0 where a feasible point is sought
    prior: Annotated[Each, Form("N")]  # q_i
    local: Annotated[Each, Form("N, p")]
    shared: Annotated[Array, Form("p_c")]


@record
class InteriorState:
    """The server's memory between rounds."""

    w: Annotated[Array, Form("D")]  # the last accepted model, or the first
    nearest: Annotated[Array, Form("D")]  # the accepted model with the smallest violation
    n_clients: Annotated[int, Form(most="N")]
    # the largest of every client's constraints
    client_violation: Annotated[Array, Form("N", infinite=True, nan=True)]
    least: Extended = math.inf  # the violation of ``nearest``
    program: Program | None = None  # at w
    at: Iterate | None = None
    trial: Iterate | None = None  # the point at which the clients are asked
    by: Iterate | None = None  # the step that leads to it
    length: tuple[float, float] = (1.0, 1.0)  # primal, dual part of it
    mu: float = 1.0  # the barrier parameter of the step
    nu: float = 1.0  # penalty of the merit function
    delta: float = 0.0  # regularisation of the Hessian
    refused: Counter = 0
    duals: Multipliers | None = None
    scale: Scale | None = None
    # residuals of the last accepted points: they need not fall at every step
    recent: tuple[Extended, ...] = ()
    best: Extended = math.inf  # smallest residual so far
    since: Counter = 0  # rounds since then
    phase: int = 2  # 2: the problem; 1: the smallest violation
    value: Annotated[float, Form(infinite=True, nan=True)] = math.nan  # objective at w
    violation: Extended = math.inf
    residual: Extended = math.inf
    rounds: Annotated[int, Form(rounds=0)] = 0
    steps: int = 0


@dataclass(frozen=True)
class InteriorPoint(base.Method):
    """A second-order method for smooth problems with constraints and small models: the reference.

    Parameters
    ----------
    tol : stop when all scaled residuals are below it, and the complementarity gap below it relative
        to the objective
    atol : or the gap below it absolutely
    max_rounds : a cap; a run that meets it is never called optimal
    start : first model, zeros by default; it need not be feasible

    Raises
    ------
    ValueError
        for losses that are not smooth, regularisers other than Zero, L2, L1, ElasticNet, Bounds,
        constraints without second derivatives

    Notes
    -----
    A round sends D numbers down and D (D + 1) up per client (the Hessian is not packed), p (D + 1)
    for p constraints.

    Examples
    --------
    >>> import bonafed as bf
    >>> from bonafed.data import load
    >>> fed = load.hospitals()
    >>> problem = bf.Problem(bf.Logistic(), regulariser=bf.L2(0.1))
    >>> solution = bf.solve(problem, fed, algorithm=bf.InteriorPoint())
    >>> bool(solution.certificate.relative_gap < 1e-6)
    True
    """

    tol: float = 1e-9
    atol: float = 0.0
    max_rounds: int = 100
    start: Array | None = None
    problem: Problem | None = None
    stateless: ClassVar[bool] = True
    requirements: ClassVar[needs.Requirements] = needs.Requirements(
        constraint=needs.TWICE_DIFFERENTIABLE,
        predictor=needs.AFFINE,
        over_samples=needs.MEAN_OF_ROWS,
        over_clients=RISK_WITH_ROWS,
        loss=needs.SMOOTH_SCALAR,
        regulariser=needs.CONIC,
    )

    def __post_init__(self) -> None:
        base.check_end(self, "tol", "atol")

    # -- clients -----------------------------------------------------------------------------------

    @property
    def on_client(self) -> dict:
        return {Expand: self._answering(expand)}

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Expanded: self.improve}

    @property
    def claims(self) -> Claims:
        return {Expanded: self._said}

    def _said(self, who: int, ask: Expand, up: Expanded) -> Iterator[Claim]:
        """What an answer claims."""
        problem, q, D = self.concrete, float(ask.prior[0]), up.gradient.shape[1]
        w, risk, slope = _or_first(problem, ask.w, D), up.risk, up.risk_gradient
        if q > 0 and risk is None:
            risk, slope = up.value / q, up.gradient / q
        if risk is not None:
            yield from of_risk(problem, w, risk, slope)
        yield from of_limits(problem, w, "local", None, up.local, up.local_jacobian)
        yield from of_limits(problem, w, "shared", None, up.shared, up.shared_jacobian)
        yield from of_lagrangian(problem, w, up.hessian)

    def server_start(self, n_clients: int) -> tuple[InteriorState, Round]:
        none = base.start_or_empty(self.start)
        state = InteriorState(none, none, n_clients, np.full(n_clients, math.nan))
        return state, self._ask(state, none, no_multipliers(self.concrete, n_clients))

    def _ask(self, state: InteriorState, w: Array, mu: Multipliers) -> Round:
        q = mu.weights if mu.weights is not None else weighting(self.concrete, mu, state.n_clients)
        return Round(Expand(w, float(state.phase == 2), q, mu.local, mu.shared))

    def _asking(self, state: InteriorState, w: Array, mu: Multipliers) -> Next[InteriorState]:
        return base.unless_capped(state, self._ask(state, w, mu), state.rounds, self.max_rounds)

    def improve(self, state: InteriorState, ids: Ids, up: Expanded) -> Next[InteriorState]:
        state, at = replace(state, rounds=state.rounds + 1), state.trial
        asked = state.w if at is None else self._scaled(state).model(at)
        w = _or_first(self.concrete, asked, len(up.gradient))
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = pieces_at(self.concrete, w, up)
            if at is None:
                return self._begin(state, w, up, pieces)
            scaled, cone = self._scaled(state), float(at.z[-1]) if len(at.z) else 0.0
            p = scaled.program(at.x, up, pieces, scaled.multipliers(at), cone)
        if self._refused(state, p):
            return self._shorter(state)
        return self._advance(state, p, at, up, pieces[0])

    def _scaled(self, state: InteriorState) -> Scaled:
        return Scaled(self.concrete, base.known(state.scale), state.phase, state.n_clients)

    def _begin(
        self, state: InteriorState, w: Array, up: Expanded, pieces: Pieces
    ) -> Next[InteriorState]:
        """Set slacks and multipliers at a first model of this phase."""
        box = base.within_bounds(self.concrete, w)
        if (box != w).any():
            state = replace(state, w=box)
            return self._asking(state, box, self._first(state))
        state = replace(state, scale=state.scale or scale_of(up, pieces), recent=(), best=math.inf)
        state = replace(state, since=0, delta=0.0, refused=0, nu=1.0)
        scaled = self._scaled(state)
        x = scaled.start(w, pieces, up.risk)
        p = scaled.program(x, up, pieces, self._first(state))
        if not finite(p):
            raise ArithmeticError(
                "values at the first model are not finite: rescale the features, or give start=."
            )
        at = newton.first(p, x)
        if state.phase == 1:
            at = replace(at, z=np.full(len(at.z), 1 / len(pieces[0])))
        return self._advance(state, p, at, up, pieces[0])

    def _first(self, state: InteriorState) -> Multipliers:
        """The multipliers of the first request of a phase: none, or equal ones of sum one."""
        if state.phase == 2 or state.scale is None:
            return no_multipliers(self.concrete, state.n_clients)
        scaled, none = self._scaled(state), np.zeros(0)
        M = len(scaled.equality)
        return scaled.multipliers(Iterate(none, none, np.full(2 * M, 1 / M), none))

    def _refused(self, state: InteriorState, p: Program) -> bool:
        """Whether the trial neither lowers the merit function nor the residuals."""
        old, at = base.known(state.program), base.known(state.at)
        by, trial = base.known(state.by), base.known(state.trial)
        if not finite(p):
            return True
        before = newton.merit(old, at.s, state.mu, state.nu)
        gradient = newton.merit_gradient(old, at, by, state.mu, state.nu)
        after = newton.merit(p, trial.s, state.mu, state.nu)
        least = before + 1e-4 * state.length[0] * gradient + 1e-13 * abs(before)
        if gradient < 0 and after <= least:
            return False
        return residuals(p, trial).worst > 0.95 * max(state.recent)

    def _shorter(self, state: InteriorState) -> Next[InteriorState]:
        """Try half the step; after many of these a step with a regularised Hessian."""
        at, by, p = base.known(state.at), base.known(state.by), base.known(state.program)
        state = replace(state, refused=state.refused + 1, since=state.since + 1)
        if state.refused % HALVINGS == 0:
            sizes = np.abs(np.diag(p.hessian)), np.abs(p.gradient)
            size = max(float(each.max(initial=0.0)) for each in sizes)
            return self._step(replace(state, delta=max(100 * state.delta, 1e-3 * size)))
        length = state.length[0] / 2, state.length[1] / 2
        return self._try(replace(state, length=length, trial=newton.moved(at, by, *length)))

    def _advance(
        self, state: InteriorState, p: Program, at: Iterate, up: Expanded, c: Array
    ) -> Next[InteriorState]:
        """Accept a point where constraints have the values c, and stop or step on.

        The least violation is sought until a model is strictly feasible, or a proof of none ends
        the run.
        """
        problem, scaled, worst = self.concrete, self._scaled(state), residuals(p, at).worst
        w, broken = scaled.model(at), violation(c, scaled.equality)
        nearest = state.nearest if broken > 0.99 * state.least else w
        risk = float(up.value) if up.risk is None else problem.over_clients.value(up.risk)
        delta = state.delta / 10 if state.delta > 1e-10 else 0.0
        recent = (*state.recent[1 - MEMORY :], worst)
        since = 0 if worst < 0.9 * state.best else state.since + 1
        each = np.where(problem.local_constraint.equality, np.abs(up.local), up.local)
        state = replace(state, since=since, steps=state.steps + 1)
        state = replace(state, nearest=nearest, least=min(broken, state.least))
        state = replace(state, w=w, program=p, at=at, refused=0, delta=delta, recent=recent)
        state = replace(state, best=min(state.best, worst), residual=worst)
        state = replace(state, value=risk + problem.penalty(w), violation=broken)
        state = replace(state, client_violation=each.max(1, initial=0.0))
        state = replace(state, duals=scaled.multipliers(settled_at(p, at, state.phase)))
        t = float(at.x[-1])
        if state.phase == 1 and t < -1e-6 and broken == 0.0:
            return self._again(replace(state, phase=2))
        if state.phase == 2 or worst > 1e-10:
            return self._step(state)
        return state, self._nothing_inside(t)

    def _nothing_inside(self, t: float) -> Done:
        """The end where the smallest violation t (scaled) is not below 0: at 0 the limits can be
        met, on their boundary only, where this method stops.
        """
        return Done(Stop.INFEASIBLE if t > 1e-8 else Stop.STALLED)

    def _again(self, state: InteriorState) -> Next[InteriorState]:
        """Begin a phase at the model that violates least."""
        state = replace(state, w=state.nearest, trial=None, at=None, program=None)
        return self._asking(state, state.w, self._first(state))

    def _step(self, state: InteriorState) -> Next[InteriorState]:
        """Take the next direction, unless the residuals are small or do not fall any more."""
        p, at = base.known(state.program), base.known(state.at)
        way = newton.direction(p, at, max(state.delta, FLAT if state.phase == 1 else 0.0))
        left, tol = residuals(p, at), 1e-6
        if state.phase == 2 and self._reached(state, way, left):
            return state, Done(Stop.OPTIMAL)
        fallen = state.phase == 2 and p.value < -FALLEN
        if fallen and left.primal <= tol and newton.recedes(p, at.x):
            return state, Done(Stop.UNBOUNDED)
        largest = float(np.abs(np.concatenate([at.z, at.lam])).max(initial=0.0))
        if state.since > PATIENCE or largest > 1e13:
            # whether it proves that, others check
            if state.phase == 1 and at.x[-1] > tol:
                return state, self._nothing_inside(float(at.x[-1]))
            if state.phase == 1 or left.primal <= tol or not self.concrete.constrained:
                return state, Done(Stop.STALLED)
            return self._again(replace(state, phase=1))
        ends = np.concatenate([at.z + way.step.z, at.lam + way.step.lam])
        nu = max(state.nu, 1.5 * float(np.abs(ends).max(initial=0)))
        length = newton.steps(at, way.step)
        state = replace(state, by=way.step, mu=way.mu, nu=nu, delta=max(state.delta, 0.0))
        return self._try(replace(state, length=length, trial=newton.moved(at, way.step, *length)))

    def _reached(self, state: InteriorState, way: newton.Direction, left: newton.Residuals) -> bool:
        """Whether the second-order duality gap is within the tolerance and the limits are met."""
        p, at, scale = base.known(state.program), base.known(state.at), base.known(state.scale)
        dual = p.gradient + p.J.T @ at.z + p.E.T @ at.lam
        gap = float(at.s @ at.z) + abs(float(dual @ way.step.x))
        near = base.Progress(p.value, -math.inf, self.tol, self.atol / scale.objective)
        most = max(MET, 1e-14 * float(scale.rows.max(initial=0.0)))
        met = left.primal <= self.tol and state.violation <= most
        return met and gap <= max(near.allowed(), 1e-14) and left.dual <= 10 * self.tol

    def _try(self, state: InteriorState) -> Next[InteriorState]:
        scaled, trial = self._scaled(state), base.known(state.trial)
        return self._asking(state, scaled.model(trial), scaled.multipliers(trial))

    def report(self, state: InteriorState) -> dict:
        """``objective`` and ``violation`` of the last accepted model; ``residual`` is scaled."""
        return {
            "objective": state.value,
            "violation": state.violation,
            "worst_violation": float(state.client_violation.max()),
            "mean_violation": float(state.client_violation.mean()),
            "residual": state.residual,
            "phase": state.phase,
            "steps": state.steps,
        }

    def answer(self, state: InteriorState, concluded: base.Concluded | None = None) -> base.Answer:
        """The model and the multipliers."""
        w = state.w if state.at is None else self._scaled(state).rounded(state.at)
        return base.Answer(w, multipliers=state.duals)


def expand(problem: Problem, ask: Expand, data: Block) -> Expanded:
    """The answer of every client of the block."""
    D = problem.predictor.dimension(data.n_features)
    at = Point(problem, _or_first(problem, ask.w, D), data)
    local, coupled = problem.local_constraint, problem.constraint.coupled
    n, q = len(data.names), ask.prior
    terms = [(local, ask.local), (coupled, np.tile(ask.shared, (n, 1)))]
    with np.errstate(over="ignore", invalid="ignore"):  # a step too long is refused for it
        value, slope = client_values(at), client_gradients(at)
        bend = hessians(at, ask.weight * q, terms, together=True)
        risks = (None, None) if averaged(problem.over_clients) else (value, slope)
        limits = local.values(at), local.jacobian(at), coupled.values(at), coupled.jacobian(at)
        return Expanded(q * value, q[:, None] * slope, bend, *risks, *limits)


def _or_first(problem: Problem, w: Array, D: int) -> Array:
    """A model, or the first one where it is empty."""
    return w if len(w) else base.within_bounds(problem, np.zeros(D))
