"""Sets of weights over clients as CVXPY constraints, written from their definitions."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import quorate as qr


def members(risk, q: cp.Variable) -> list:
    """The constraints of a concrete set (``risk.at(sizes)``) on q; roots of squares keep the digits
    of radii.
    """
    prior = getattr(risk, "prior", None)
    simplex = [q >= 0, cp.sum(q) == 1]
    match risk:
        case qr.KLBall():
            inside = np.flatnonzero(prior > 0)
            return [
                *simplex,
                cp.sum(cp.rel_entr(q[inside], prior[inside])) <= risk.radius,
                q[prior == 0] == 0,
            ]
        case qr.ChiSquareBall():
            inside = np.flatnonzero(prior > 0)
            scaled = cp.multiply(q[inside] - prior[inside], prior[inside] ** -0.5)
            return [*simplex, cp.norm(scaled) <= risk.radius**0.5, q[prior == 0] == 0]
        case qr.Ellipsoid():
            matrix = np.diag(risk.shape) if risk.shape.ndim == 1 else risk.shape
            inverse = np.linalg.inv(np.linalg.cholesky(matrix / matrix.max()))
            return [*simplex, cp.norm(inverse @ (q - prior)) <= (risk.radius * matrix.max()) ** 0.5]
        case qr.Box():
            return [*simplex, q >= risk.lower, q <= risk.upper]
        case qr.CDNorm():
            off, free = cp.abs(q - prior), np.flatnonzero(risk.bounds > 0)
            shares = cp.multiply(off[free], 1 / risk.bounds[free])
            return [*simplex, off <= risk.bounds, cp.sum(shares) <= risk.budget]
        case qr.TotalVariationBall():
            return [*simplex, cp.norm1(q - prior) / 2 <= risk.radius]
        case qr.WassersteinOverClients():
            n, cost = len(prior), risk.cost
            cost = np.abs(np.subtract.outer(cost, cost)) if cost.ndim == 1 else cost
            plan = cp.Variable((n, n), nonneg=True)
            rows = [cp.sum(plan, axis=1) == prior, cp.sum(plan, axis=0) == q]
            return [*simplex, *rows, cp.sum(cp.multiply(plan, cost)) <= risk.radius]
        case qr.Polyhedron():
            return [*simplex, risk.D @ q <= risk.c]
    raise TypeError(f"no oracle for {risk!r}")
