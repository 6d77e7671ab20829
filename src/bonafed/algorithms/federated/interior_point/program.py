"""The server's program from the clients' answers: one vector of variables, scaled constraints.

    x = (w, r where h has an l1 part: |w| <= r, t where the smallest violation is sought)

The inequalities stand in this order: those of every client, the sums over clients, those of the
server, and those of h; equalities likewise, without h. Every coefficient is counted in units of
1 / sqrt(its curvature at the first model), and every row and the objective are divided by the size
of their gradients there, so that no tolerance has a unit.

Risks over clients are further variables and rows at the server:

    R(z) = max_{q in Q} <q, z>  =  min over (t, e, s) of  t + <cost, (e, s)>  subject to
            z_i <= t + e_i  and

    Simplex                    e = 0
    Superquantile, caps u      cost u of e,                       e >= 0
    LpBall, prior q0, radius   cost q0 of e and radius of s,      ||e||_{p*} <= s

by duality; the multipliers of z_i <= t + e_i are the worst weights q*. ||e||_2 <= s is taken as e'e
/ s <= s, which is smooth and convex for s > 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from bonafed.algorithms.requirements import Need
from bonafed.arrays import Array
from bonafed.codec import Form
from bonafed.problem.client_means import hessians
from bonafed.problem.multipliers import Multipliers
from bonafed.problem.problem import Problem
from bonafed.problem.regularisers import regulariser_parts
from bonafed.problem.risks.risk import Risk
from bonafed.problem.risks.weight_sets import LpBall, Mean, Simplex, Superquantile
from bonafed.problem.risks.weight_sets import Sum as Added
from bonafed.rounds import Each, Sum, record
from bonafed.solvers.smooth.primal_dual import Iterate, Program, residuals

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
            value, jacobian = (
                np.append(value, e @ e / s - s),
                np.concatenate([jacobian, gradient[None]]),
            )
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


def pieces(problem: Problem, w: Array, up: Expanded) -> Pieces:
    """The constraints of the clients, the sums over clients, and those of the server."""
    glob, D = problem.constraint, len(w)
    here = glob.point(problem, w)
    local = problem.local_constraint.equality
    return Pieces(
        np.concatenate([up.local.ravel(), up.shared, glob.held.values(here)[0]]),
        np.concatenate(
            [up.local_jacobian.reshape(-1, D), up.shared_jacobian, glob.held.jacobian(here)[0]]
        ),
        np.concatenate([np.tile(local, len(up.local)), glob.coupled.equality, glob.held.equality]),
    )


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
    d, v, value, more = len(l1), x[: len(l1)], float(up.value), None
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
        more = (
            np.concatenate([z, values]),
            np.concatenate([link, np.pad(rows, ((0, 0), (nx - k, 0)))]),
        )
    gradient[:d] += l2 * v
    hessian[range(d), range(d)] += l2 / objective
    value += float(l2 @ (v * v)) / 2
    if l1.any():
        gradient[D : D + d] = l1
        value += float(l1 @ x[D : D + d])
    return Program(
        value / objective,
        gradient / objective,
        hessian,
        np.concatenate([c[~equality], own_c] + ([] if more is None else [more[0]])),
        np.concatenate([J[~equality], own_J] + ([] if more is None else [more[1]])),
        c[equality],
        J[equality],
    )


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
    mu, risk, weights = (
        scaled * objective / scale.rows,
        risk_rows(problem.over_clients, n_clients),
        None,
    )
    if risk is not None and phase == 2:
        weights = at.z[len(at.z) - risk.size :][:n_clients]
    p, shared = n_clients * problem.local_constraint.size, problem.constraint.coupled.size
    local = mu[:p].reshape(n_clients, problem.local_constraint.size)
    return Multipliers(mu[p + shared :], mu[p : p + shared], local, weights)


def cleared(at: Iterate) -> Iterate:
    """Multipliers that vanish beside their slacks set to 0: complementarity then holds exactly."""
    return replace(
        at,
        z=np.where(
            at.z < 1e-6 * np.maximum(at.s, 0.0) * max(float(at.z.max(initial=0.0)), 0.0), 0.0, at.z
        ),
    )


def settled(p: Program, at: Iterate, phase: int) -> Iterate:
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
    equality = np.concatenate(
        [
            np.tile(problem.local_constraint.equality, n_clients),
            glob.coupled.equality,
            glob.held.equality,
        ]
    )
    return Pieces(np.zeros(len(equality)), np.zeros((len(equality), D)), equality)
