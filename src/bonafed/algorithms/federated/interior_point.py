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
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms import method as base
from bonafed.algorithms import requirements as needs
from bonafed.algorithms.method import Ids, Next
from bonafed.algorithms.requirements import Need
from bonafed.arrays import Array, Block, Streams
from bonafed.codec import Counter, Extended, Form
from bonafed.problem.claims import Claim
from bonafed.problem.client_means import client_gradients, client_values, hessians
from bonafed.problem.constraints.constraint import Point
from bonafed.problem.multipliers import Multipliers, no_multipliers, weighting
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


@dataclass(frozen=True)
class RiskRows:
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
    t, eye, one = np.ones((n, 1)), np.eye(n), np.ones((n, 1))
    match risk:
        case Simplex():
            return RiskRows(np.ones(1), -t, np.zeros((0, 1)), False)
        case Superquantile():
            link = np.concatenate([-t, -eye], 1)
            return RiskRows(
                np.append(1.0, risk.caps(n)), link, np.concatenate([0 * t, -eye], 1), False, False
            )
        case LpBall(p=1.0 | 2.0 | np.inf):
            slack = eye if risk.p == np.inf else one
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


@dataclass(frozen=True)
class Pieces:
    """All constraints at w, unscaled, rows in the order of the module."""

    c: Array  # (M,)
    J: Array  # (M, D)
    equality: NDArray[np.bool_]  # (M,)


@record
class Scale:
    """Divisors of the objective and of every row of ``Pieces``, and the coefficients' units."""

    objective: float
    rows: Annotated[Array, Form("M")]
    units: Annotated[Array, Form("D")]


def pieces_at(problem: Problem, w: Array, up: Expanded) -> Pieces:
    """The constraints of the clients, the sums over clients, and those of the server."""
    glob, D = problem.constraint, len(w)
    here = glob.point(problem, w)
    local = problem.local_constraint.equality
    c = [up.local.ravel(), up.shared, glob.held.values(here)[0]]
    J = [up.local_jacobian.reshape(-1, D), up.shared_jacobian, glob.held.jacobian(here)[0]]
    equality = [np.tile(local, len(up.local)), glob.coupled.equality, glob.held.equality]
    return Pieces(np.concatenate(c), np.concatenate(J), np.concatenate(equality))


def scale_of(problem: Problem, up: Expanded, pieces: Pieces) -> Scale:
    """Units from the curvature, or from the constraints where there is none, and divisors.

    Divisors are the sizes of gradients, or of values where these vanish.
    """
    curvature = np.maximum(np.diag(up.hessian), 0.0)
    units = np.where(curvature > 0, curvature, (pieces.J**2).sum(0))
    units = 1 / np.sqrt(np.where(units > 0, units, 1.0))
    rows = np.abs(pieces.J * units).max(1, initial=0.0)
    rows = np.where(rows > 1e-8 * np.abs(pieces.c), rows, np.abs(pieces.c))
    size = float(np.abs(up.gradient * units).max(initial=0.0))
    # at a stationary first model a gradient is rounding alone
    size = max(size, 1e-2 * math.sqrt(abs(float(up.value))))
    return Scale(size if size > 0 else 1.0, np.where(rows > 0, rows, 1.0), units)


def program(
    problem: Problem,
    x: Array,
    up: Expanded,
    pieces: Pieces,
    scale: Scale,
    phase: int,
    mu: Multipliers,
    cone: float = 0.0,
) -> Program:
    """The scaled program at x.

    ``cone`` is the multiplier of the last row, if that is of an l2 ball of weights.
    """
    D, nx = pieces.J.shape[1], len(x)
    units = scale.units
    w = x[:D] * units
    objective = 1.0 if phase == 1 else scale.objective
    c, J = pieces.c / scale.rows, np.zeros((len(pieces.c), nx))
    J[:, :D] = pieces.J * units / scale.rows[:, None]
    gradient, hessian = np.zeros(nx), np.zeros((nx, nx))
    hessian[:D, :D] = up.hessian
    glob = problem.constraint
    if not glob.held.affine:
        here = glob.point(problem, w)
        hessian[:D, :D] += hessians(here, None, [(glob.held, mu.server[None])], together=True)[0]
    hessian[:D, :D] *= np.outer(units, units) / objective
    own_c, own_J = regulariser_rows(problem, x, units, phase)
    equality = pieces.equality
    if phase == 1:
        t, last = x[-1], nx - 1
        gradient[last] = 1.0
        J = np.concatenate([J, -J[equality]])
        c = np.concatenate([c, -c[equality]]) - t
        J[:, last] = -1.0
        floor = np.zeros((1, nx))
        floor[0, last] = -1.0
        inequalities = np.concatenate([c, own_c, [-t - 1.0]]), np.concatenate([J, own_J, floor])
        return Program(float(t), gradient, hessian, *inequalities, np.zeros(0), np.zeros((0, nx)))
    l1, l2, _, _ = parts_of(problem, units)
    d, v, value, more = len(l1), x[: len(l1)], float(up.value), (np.zeros(0), np.zeros((0, nx)))
    gradient[:D] = up.gradient * units
    if (
        up.risk is not None
        and up.risk_gradient is not None
        and (risk := risk_rows(problem.over_clients, len(up.risk))) is not None
    ):
        k, value = len(risk.cost), float(risk.cost @ x[-len(risk.cost) :]) * objective
        gradient[:D], gradient[-k:] = 0.0, risk.cost * objective
        hessian[-k:, -k:] += risk.curvature(x[-k:], cone)
        z, link = up.risk / objective + risk.link @ x[-k:], np.zeros((len(up.risk), nx))
        link[:, :D], link[:, -k:] = up.risk_gradient * units / objective, risk.link
        values, rows = risk.evaluated(x[-k:])
        wide = np.pad(rows, ((0, 0), (nx - k, 0)))
        more = np.concatenate([z, values]), np.concatenate([link, wide])
    gradient[:d] += l2 * v
    hessian[range(d), range(d)] += l2 / objective
    value += float(l2 @ (v * v)) / 2
    if l1.any():
        gradient[D : D + d] = l1
        value += float(l1 @ x[D : D + d])
    below = np.concatenate([c[~equality], own_c, more[0]])
    slopes = np.concatenate([J[~equality], own_J, more[1]])
    scaled = value / objective, gradient / objective, hessian
    return Program(*scaled, below, slopes, c[equality], J[equality])


def parts_of(problem: Problem, units: Array) -> tuple[Array, Array, Array, Array]:
    """l1, l2, lower, upper (d,) of h in these units."""
    l1, l2, lower, upper = regulariser_parts(problem.regulariser)
    inverse = problem.predictor.split(units)[0]
    return l1 * inverse, l2 * inverse**2, lower / inverse, upper / inverse


def regulariser_rows(problem: Problem, x: Array, units: Array, phase: int) -> tuple[Array, Array]:
    """h as linear inequalities (k,), (k, nx): a box, or |w| <= r."""
    l1, _, lower, upper = parts_of(problem, units)
    d, nx = len(l1), len(x)
    eye = np.eye(d, nx)
    if l1.any():
        r = np.eye(d, nx, len(units))
        J = np.concatenate([eye - r, -eye - r]) if phase == 2 else np.zeros((0, nx))
        return J @ x, J
    low, high = np.isfinite(lower), np.isfinite(upper)
    J = np.concatenate([-eye[low], eye[high]])
    return J @ x - np.concatenate([-lower[low], upper[high]]), J


def start_of(
    problem: Problem, w: Array, phase: int, pieces: Pieces, scale: Scale, risks: Array | None
) -> Array:
    """The first x at w: r above |w|, the risk's variables above it, t above every violation."""
    w = w / scale.units
    d = len(problem.predictor.split(w)[0])
    parts = [w]
    if phase == 1:
        c = pieces.c / scale.rows
        parts.append(
            np.array([float(np.where(pieces.equality, np.abs(c), c).max(initial=0.0)) + 0.1])
        )
    elif regulariser_parts(problem.regulariser)[0] > 0:
        parts.append(np.abs(w[:d]) + max(1e-2, float(np.abs(w).max(initial=0.0))))
    if (
        phase == 2
        and risks is not None
        and (risk := risk_rows(problem.over_clients, len(risks))) is not None
    ):
        parts.append(risk.start(risks / scale.objective))
    return np.concatenate(parts)


def multipliers(
    problem: Problem, at: Iterate, pieces: Pieces, scale: Scale, phase: int, n_clients: int
) -> Multipliers:
    """The multipliers of the constraints as stated, from those of the scaled program."""
    objective = 1.0 if phase == 1 else scale.objective
    M, equality = len(pieces.c), pieces.equality
    scaled = np.zeros(M)
    if phase == 1:
        scaled += at.z[:M]
        scaled[equality] -= at.z[M : M + int(equality.sum())]
    else:
        scaled[~equality] = at.z[: int((~equality).sum())]
        scaled[equality] = at.lam
    mu, weights = scaled * objective / scale.rows, None
    risk = risk_rows(problem.over_clients, n_clients)
    if risk is not None and phase == 2:
        weights = at.z[len(at.z) - risk.size :][:n_clients]
    p, shared = n_clients * problem.local_constraint.size, problem.constraint.coupled.size
    local = mu[:p].reshape(n_clients, problem.local_constraint.size)
    return Multipliers(mu[p + shared :], mu[p : p + shared], local, weights)


def cleared(at: Iterate) -> Iterate:
    """Multipliers that vanish beside their slacks set to 0: complementarity then holds exactly."""
    least = 1e-6 * np.maximum(at.s, 0.0) * max(float(at.z.max(initial=0.0)), 0.0)
    return replace(at, z=np.where(at.z < least, 0.0, at.z))


def settled_at(p: Program, at: Iterate, phase: int) -> Iterate:
    """The multipliers to report: ``cleared``, and exact if a small relative change does it.

    Exact means that gradients cancel to rounding.

    Up to a step of the model: a certificate balances what curvature can, and the rest by nothing
    else.
    """
    far = phase == 2 and residuals(p, at).worst > SMALL
    at = cleared(at)
    if far or (phase == 2 and _definite(p.hessian)):
        return at
    z, lam = at.z, at.lam
    size = max(float(np.abs(lam).max(initial=0.0)), float(z.max(initial=0.0)))
    columns, k = np.hstack([p.J.T * z, p.E.T * size, p.hessian]), len(z)
    for _ in range(2):
        left = p.gradient + p.J.T @ z + p.E.T @ lam
        change = np.linalg.lstsq(columns, -left, rcond=1e-10)[0][: k + len(lam)]
        if phase == 2 and np.abs(change).max(initial=0.0) > SMALL:
            return at
        z, lam = z * np.maximum(1 + change[:k], 0.0), lam + size * change[k:]
    return replace(at, z=z, lam=lam)


def _definite(hessian: Array) -> bool:
    """Whether curvature balances every gradient."""
    try:
        np.linalg.cholesky(hessian - 1e-8 * np.diag(np.diag(hessian)))
    except np.linalg.LinAlgError:
        return False
    return True


def rounded(problem: Problem, at: Iterate, units: Array, phase: int, n_clients: int) -> Array:
    """The model with coefficients that tend to 0, or to a bound of their box, put there.

    Which do is what the multipliers of the rows of h say: an active row's multiplier is larger than
    its slack.
    """
    l1, _, lower, upper = regulariser_parts(problem.regulariser)
    w = at.x[: len(units)] * units
    d = len(problem.predictor.split(w)[0])
    risk = risk_rows(problem.over_clients, n_clients)
    settled = (at.z > at.s)[: len(at.s) - (0 if risk is None else risk.size)]
    if phase == 1 or not len(settled):
        return w
    if l1 > 0:
        active = settled[-2 * d :]
        w[:d][active[:d] & active[d:]] = 0.0
        return w
    low, high = (np.flatnonzero(np.isfinite(np.broadcast_to(bound, d))) for bound in (lower, upper))
    if len(low) + len(high):
        active = settled[-(len(low) + len(high)) :]
        for index, on, bound in (
            (low, active[: len(low)], lower),
            (high, active[len(low) :], upper),
        ):
            w[index[on]] = np.broadcast_to(bound, d)[index[on]]
        w[:d] = np.clip(w[:d], lower, upper)
    return w


def by_client(problem: Problem, up: Expanded) -> Array:
    """(N,) the largest violation of every client's constraints, as stated."""
    equality = problem.local_constraint.equality
    return np.where(equality, np.abs(up.local), up.local).max(1, initial=0.0)


def violation(pieces: Pieces) -> float:
    """The largest violation of the constraints as stated."""
    return float(np.where(pieces.equality, np.abs(pieces.c), pieces.c).max(initial=0.0))


def finite(p: Program) -> bool:
    """Whether all numbers of a program are finite."""
    parts = (p.gradient, p.hessian, p.c, p.J, p.e)
    return math.isfinite(p.value) and all(np.isfinite(part).all() for part in parts)


def layout(problem: Problem, n_clients: int, D: int) -> Pieces:
    """Which rows are equalities, before the clients have answered."""
    glob = problem.constraint
    own = np.tile(problem.local_constraint.equality, n_clients)
    equality = np.concatenate([own, glob.coupled.equality, glob.held.equality])
    return Pieces(np.zeros(len(equality)), np.zeros((len(equality), D)), equality)


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
    program: newton.Program | None = None  # at w
    at: newton.Iterate | None = None
    trial: newton.Iterate | None = None  # the point at which the clients are asked
    by: newton.Iterate | None = None  # the step that leads to it
    length: tuple[float, float] = (1.0, 1.0)  # primal, dual part of it
    mu: float = 1.0  # the barrier parameter of the step
    nu: float = 1.0  # penalty of the merit function
    delta: float = 0.0  # regularisation of the Hessian
    refused: Counter = 0
    scale: Scale | None = None
    # residuals of the last accepted points: they need not fall at every step
    recent: tuple[Extended, ...] = ()
    best: Extended = math.inf  # smallest residual so far
    since: Counter = 0  # rounds since then
    phase: int = 2  # 2: the problem; 1: the smallest violation
    value: Annotated[float, Form(infinite=True, nan=True)] = math.nan  # objective at w
    violation: Extended = math.inf
    residual: Extended = math.inf
    duals: Multipliers | None = None
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
        return {Expand: self.expand}

    def expand(self, memory: None, ask: Expand, data: Block, rng: Streams) -> tuple[None, Expanded]:
        problem = self._problem
        if len(ask.w):
            w = ask.w
        else:
            w = base.within_bounds(problem, np.zeros(problem.predictor.dimension(data.n_features)))
        at = Point(problem, w, data)
        local, coupled = problem.local_constraint, problem.constraint.coupled
        n, weight = len(data.names), ask.weight * ask.prior
        terms = [(local, ask.local), (coupled, np.tile(ask.shared, (n, 1)))]
        mean = averaged(problem.over_clients)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too long is refused for it
            return memory, Expanded(
                value=ask.prior * client_values(at),
                gradient=ask.prior[:, None] * client_gradients(at),
                hessian=hessians(at, weight, terms, together=True),
                risk=None if mean else client_values(at),
                risk_gradient=None if mean else client_gradients(at),
                local=local.values(at),
                local_jacobian=local.jacobian(at),
                shared=coupled.values(at),
                shared_jacobian=coupled.jacobian(at),
            )

    # -- server ------------------------------------------------------------------------------------

    @property
    def on_server(self) -> dict:
        return {Expanded: self.improve}

    @property
    def claims(self) -> Claims:
        return {Expanded: self._said}

    def _said(self, who: int, ask: Expand, up: Expanded) -> Iterator[Claim]:
        """What an answer claims."""
        problem, q, D = self._problem, float(ask.prior[0]), up.gradient.shape[1]
        w = ask.w if len(ask.w) else base.within_bounds(problem, np.zeros(D))
        risk, slope = up.risk, up.risk_gradient
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
        return state, self._ask(state, none, no_multipliers(self._problem, n_clients))

    def _ask(self, state: InteriorState, w: Array, mu: Multipliers) -> Round:
        q = mu.weights if mu.weights is not None else weighting(self._problem, mu, state.n_clients)
        return Round(Expand(w, float(state.phase == 2), q, mu.local, mu.shared))

    def _asking(self, state: InteriorState, w: Array, mu: Multipliers) -> Next[InteriorState]:
        return base.unless_capped(state, self._ask(state, w, mu), state.rounds, self.max_rounds)

    def improve(self, state: InteriorState, ids: Ids, up: Expanded) -> Next[InteriorState]:
        state = replace(state, rounds=state.rounds + 1)
        asked = state.w if state.trial is None else _model(state, state.trial)
        w = asked if len(asked) else base.within_bounds(self._problem, np.zeros_like(up.gradient))
        with np.errstate(over="ignore", invalid="ignore"):
            pieces = pieces_at(self._problem, w, up)
            if state.trial is None:
                return self._begin(state, w, up, pieces)
            at = state.trial
            scale, phase = base.known(state.scale), state.phase
            cone = float(at.z[-1]) if len(at.z) else 0.0
            mu = multipliers(self._problem, at, pieces, scale, phase, state.n_clients)
            p = program(self._problem, at.x, up, pieces, scale, phase, mu, cone)
        if self._refused(state, p):
            return self._shorter(state)
        return self._advance(state, p, state.trial, up, pieces)

    def _begin(
        self, state: InteriorState, w: Array, up: Expanded, pieces: Pieces
    ) -> Next[InteriorState]:
        """Set slacks and multipliers at a first model of this phase."""
        box = base.within_bounds(self._problem, w)
        if (box != w).any():
            state = replace(state, w=box)
            return self._asking(state, box, self._first(state, len(box)))
        scale = state.scale or scale_of(self._problem, up, pieces)
        state = replace(
            state, scale=scale, recent=(), best=math.inf, since=0, delta=0.0, refused=0, nu=1.0
        )
        x = start_of(self._problem, w, state.phase, pieces, scale, up.risk)
        p = program(self._problem, x, up, pieces, scale, state.phase, self._first(state, len(w)))
        if not finite(p):
            raise ArithmeticError(
                "values at the first model are not finite: rescale the features, or give start=."
            )
        at = newton.first(p, x)
        if state.phase == 1:
            at = replace(at, z=np.full(len(at.z), 1 / len(pieces.c)))
        return self._advance(state, p, at, up, pieces)

    def _first(self, state: InteriorState, D: int) -> Multipliers:
        """The multipliers of the first request of a phase: none, or equal ones of sum one."""
        if state.phase == 2 or state.scale is None:
            return no_multipliers(self._problem, state.n_clients)
        shape, none = layout(self._problem, state.n_clients, D), np.zeros(0)
        equal = newton.Iterate(none, none, np.full(2 * len(shape.c), 1 / len(shape.c)), none)
        return multipliers(self._problem, equal, shape, state.scale, 1, state.n_clients)

    def _refused(self, state: InteriorState, p: newton.Program) -> bool:
        """Whether the trial neither lowers the merit function nor the residuals."""
        old, at = base.known(state.program), base.known(state.at)
        by, trial = base.known(state.by), base.known(state.trial)
        if not finite(p):
            return True
        before = newton.merit(old, at.s, state.mu, state.nu)
        gradient = newton.merit_gradient(old, at, by, state.mu, state.nu)
        after = newton.merit(p, trial.s, state.mu, state.nu)
        if gradient < 0 and after <= before + 1e-4 * state.length[0] * gradient + 1e-13 * abs(
            before
        ):
            return False
        return newton.residuals(p, trial).worst > 0.95 * max(state.recent)

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
        self,
        state: InteriorState,
        p: newton.Program,
        at: newton.Iterate,
        up: Expanded,
        pieces: Pieces,
    ) -> Next[InteriorState]:
        """Accept a point, and stop or step on."""
        problem, w = self._problem, _model(state, at)
        left = newton.residuals(p, at)
        better, broken = left.worst < 0.9 * state.best, violation(pieces)
        nearer = not broken > 0.99 * state.least
        risk = float(up.value) if up.risk is None else problem.over_clients.value(up.risk)
        delta = state.delta / 10 if state.delta > 1e-10 else 0.0
        recent = (*state.recent[1 - MEMORY :], left.worst)
        state = replace(state, since=0 if better else state.since + 1, steps=state.steps + 1)
        state = replace(
            state, nearest=w if nearer else state.nearest, least=min(broken, state.least)
        )
        state = replace(state, w=w, program=p, at=at, refused=0, delta=delta, recent=recent)
        state = replace(state, best=min(state.best, left.worst), residual=left.worst)
        state = replace(state, value=risk + problem.penalty(w), violation=broken)
        state = replace(state, client_violation=by_client(problem, up))
        settled, scale = settled_at(p, at, state.phase), base.known(state.scale)
        duals = multipliers(problem, settled, pieces, scale, state.phase, state.n_clients)
        state = replace(state, duals=duals)
        return self._phase_one(state, at, left) if state.phase == 1 else self._step(state)

    def _phase_one(
        self, state: InteriorState, at: newton.Iterate, left: newton.Residuals
    ) -> Next[InteriorState]:
        """Return to the problem at a strictly feasible model, or end with a proof of none."""
        t = float(at.x[-1])
        if t < -1e-6 and state.violation == 0.0:
            return self._again(replace(state, phase=2))
        if left.worst > 1e-10:
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
        return self._asking(state, state.w, self._first(state, len(state.w)))

    def _step(self, state: InteriorState) -> Next[InteriorState]:
        """Take the next direction, unless the residuals are small or do not fall any more."""
        p, at = base.known(state.program), base.known(state.at)
        way = newton.direction(p, at, max(state.delta, FLAT if state.phase == 1 else 0.0))
        left = newton.residuals(p, at)
        if state.phase == 2 and self._reached(state, way, left):
            return state, Done(Stop.OPTIMAL)
        if (
            state.phase == 2
            and p.value < -FALLEN
            and left.primal <= 1e-6
            and newton.recedes(p, at.x)
        ):
            return state, Done(Stop.UNBOUNDED)
        largest = float(np.abs(np.concatenate([at.z, at.lam])).max(initial=0.0))
        if state.since > PATIENCE or largest > 1e13:
            tol = 1e-6
            # whether it proves that, others check
            if state.phase == 1 and state.at is not None and state.at.x[-1] > tol:
                return state, self._nothing_inside(float(state.at.x[-1]))
            if state.phase == 1 or left.primal <= tol or not self._problem.constrained:
                return state, Done(Stop.STALLED)
            return self._again(replace(state, phase=1))

        ends = np.concatenate([at.z + way.step.z, at.lam + way.step.lam])
        nu = max(state.nu, 1.5 * float(np.abs(ends).max(initial=0)))
        length = newton.steps(at, way.step)
        state = replace(state, by=way.step, mu=way.mu, nu=nu, delta=max(state.delta, 0.0))
        trial = newton.moved(at, way.step, *length)
        return self._try(replace(state, length=length, trial=trial))

    def _reached(self, state: InteriorState, way: newton.Direction, left: newton.Residuals) -> bool:
        """Whether the second-order duality gap is within the tolerance and the limits are met."""
        p, at, scale = base.known(state.program), base.known(state.at), base.known(state.scale)
        dual = p.gradient + p.J.T @ at.z + p.E.T @ at.lam
        gap = float(at.s @ at.z) + abs(float(dual @ way.step.x))
        near = base.Progress(p.value, -math.inf, self.tol, self.atol / scale.objective)
        met = left.primal <= self.tol and state.violation <= max(
            MET, 1e-14 * float(scale.rows.max(initial=0.0))
        )
        return met and gap <= max(near.allowed(), 1e-14) and left.dual <= 10 * self.tol

    def _try(self, state: InteriorState) -> Next[InteriorState]:
        problem, trial, n = self._problem, base.known(state.trial), state.n_clients
        shape = layout(problem, n, len(state.w))
        mu = multipliers(problem, trial, shape, base.known(state.scale), state.phase, n)
        return self._asking(state, _model(state, trial), mu)

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
        w = state.w
        if state.at is not None and state.scale is not None:
            units, n_clients = state.scale.units, state.n_clients
            w = rounded(self._problem, state.at, units, state.phase, n_clients)
        return base.Answer(w, multipliers=state.duals)


def _model(state: InteriorState, at: newton.Iterate) -> Array:
    units = base.known(state.scale).units
    return at.x[: len(units)] * units
