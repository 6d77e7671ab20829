"""Risks over clients in the interior point program: further variables and rows at the server.

    R(z) = max_{q in Q} <q, z>  =  min over (t, e, s) of  t + <cost, (e, s)>  subject to
            z_i <= t + e_i  and

    Simplex                    e = 0
    Superquantile, caps u      cost u of e,                       e >= 0
    LpBall, prior q0, radius   cost q0 of e and radius of s,      ||e||_{p*} <= s

by duality; the multipliers of z_i <= t + e_i are the worst weights q*. ||e||_2 <= s is taken as e'e
/ s <= s, which is smooth and convex for s > 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bonafed.algorithms.requirements import Need
from bonafed.arrays import Array
from bonafed.problem.risks.lp_ball import LpBall
from bonafed.problem.risks.mean import Mean, Sum
from bonafed.problem.risks.risk import Risk
from bonafed.problem.risks.simplex import Simplex
from bonafed.problem.risks.superquantile import Superquantile

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
    return isinstance(risk, Mean | Sum) or (isinstance(risk, LpBall) and risk.radius == 0)


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
    return isinstance(risk, Mean | Sum | Simplex | Superquantile)


RISK_WITH_ROWS = Need(
    "mean, sum, simplex, CVaR, Lp ball of p = 1, 2, inf",
    "needs over_clients = Mean, Sum, Simplex, Superquantile, or LpBall with p = 1, 2 or inf",
    lambda problem, setting: has_rows(problem.over_clients),
)
