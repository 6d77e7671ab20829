"""Sets of weights over clients as CVXPY constraints, written from their definitions."""

from __future__ import annotations

import cvxpy as cp
import numpy as np

import bonafed as bf


def members(risk, q: cp.Variable) -> list:
    """The constraints of a concrete set (``risk.at(sizes)``) on q; roots of squares keep the digits
    of radii.
    """
    prior = getattr(risk, "prior", None)
    simplex = [q >= 0, cp.sum(q) == 1]
    match risk:
        case bf.KLBall():
            inside = np.flatnonzero(prior > 0)
            return [
                *simplex,
                cp.sum(cp.rel_entr(q[inside], prior[inside])) <= risk.radius,
                q[prior == 0] == 0,
            ]
        case bf.ChiSquareBall():
            inside = np.flatnonzero(prior > 0)
            scaled = cp.multiply(q[inside] - prior[inside], prior[inside] ** -0.5)
            return [*simplex, cp.norm(scaled) <= risk.radius**0.5, q[prior == 0] == 0]
        case bf.Ellipsoid():
            matrix = np.diag(risk.shape) if risk.shape.ndim == 1 else risk.shape
            inverse = np.linalg.inv(np.linalg.cholesky(matrix / matrix.max()))
            return [*simplex, cp.norm(inverse @ (q - prior)) <= (risk.radius * matrix.max()) ** 0.5]
        case bf.Box():
            return [*simplex, q >= risk.lower, q <= risk.upper]
        case bf.CDNorm():
            off, free = cp.abs(q - prior), np.flatnonzero(risk.bounds > 0)
            shares = cp.multiply(off[free], 1 / risk.bounds[free])
            return [*simplex, off <= risk.bounds, cp.sum(shares) <= risk.budget]
        case bf.TotalVariationBall():
            return [*simplex, cp.norm1(q - prior) / 2 <= risk.radius]
        case bf.WassersteinOverClients():
            n, cost = len(prior), risk.cost
            cost = np.abs(np.subtract.outer(cost, cost)) if cost.ndim == 1 else cost
            plan = cp.Variable((n, n), nonneg=True)
            rows = [cp.sum(plan, axis=1) == prior, cp.sum(plan, axis=0) == q]
            return [*simplex, *rows, cp.sum(cp.multiply(plan, cost)) <= risk.radius]
        case bf.Polyhedron():
            return [*simplex, risk.D @ q <= risk.c]
    raise TypeError(f"no oracle for {risk!r}")
