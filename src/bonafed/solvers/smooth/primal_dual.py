"""One iteration of a primal-dual interior point method for smooth programs.

It needs the value and derivatives at a point only:

    minimise f(x)    subject to    c(x) + s = 0, s >= 0   (z >= 0),      e(x) = 0   (lam)

Newton's method on the perturbed optimality conditions

    f'(x) + J'z + E'lam = 0,    c(x) + s = 0,    e(x) = 0,    s z = mu

with the barrier parameter and the second-order correction of Mehrotra, *On the implementation of a
primal-dual interior point method*, a common step to the boundary for the primal and one for the
dual variables, and acceptance by the l1 merit function of the barrier problem or by a fall of the
residuals. Where the reduced Hessian is not positive definite (rank deficient data, no convexity), a
multiple of the identity is added. Source: Nocedal and Wright, *Numerical optimization*, chapter 19.
"""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bonafed.arrays import Array
from bonafed.codec import Extended, Form, record

BOUNDARY = 0.995  # a step goes at most this far to the boundary
LEAST_SLACK = 1e-2  # the first slack of a violated or nearly violated constraint, in scaled units


@record
class Program:
    """The value and derivatives of a smooth program at a point x (nx,)."""

    value: Extended  # f
    gradient: Annotated[Array, Form("nx")]
    hessian: Annotated[Array, Form("nx, nx")]  # of the Lagrangian
    c: Annotated[Array, Form("m")]  # inequalities c <= 0
    J: Annotated[Array, Form("m, nx")]
    e: Annotated[Array, Form("k")]  # equalities
    E: Annotated[Array, Form("k, nx")]


@record
class Iterate:
    """The primal and dual variables of an interior point method."""

    x: Annotated[Array, Form("nx")]
    s: Annotated[Array, Form("m")]  # > 0
    z: Annotated[Array, Form("m")]  # > 0
    lam: Annotated[Array, Form("k")]


class Direction(NamedTuple):
    """A step of all variables, its regularisation, and its target barrier parameter."""

    step: Iterate
    delta: float
    mu: float


@dataclass(frozen=True)
class Residuals:
    """Chebyshev norms of the optimality conditions, and the mean complementarity product."""

    dual: float
    primal: float
    mu: float

    @property
    def worst(self) -> float:
        """The largest of the three."""
        return max(self.dual, self.primal, self.mu)


def first(p: Program, x: Array) -> Iterate:
    """The first iterate: slacks of at least ``LEAST_SLACK`` and multipliers of equal products.

    The multipliers of the equalities are a least-squares solution.

    The products add up to at most 1/10, in units of the objective's gradient, however many
    constraints there are.
    """
    s = np.maximum(-p.c, LEAST_SLACK)
    z = min(LEAST_SLACK, 0.1 / max(len(s), 1)) / s
    right = -(p.gradient + p.J.T @ z)
    lam = np.linalg.lstsq(p.E.T, right, rcond=None)[0] if len(p.e) else np.zeros(0)
    return Iterate(x, s, z, np.asarray(lam, float))


def residuals(p: Program, at: Iterate) -> Residuals:
    """How far the iterate is from the unperturbed conditions."""
    dual = np.abs(p.gradient + p.J.T @ at.z + p.E.T @ at.lam).max(initial=0.0)
    primal = max(np.abs(p.c + at.s).max(initial=0.0), np.abs(p.e).max(initial=0.0))
    return Residuals(float(dual), float(primal), float(at.s @ at.z) / max(len(at.s), 1))


def direction(p: Program, at: Iterate, delta: float) -> Direction:
    """The predictor-corrector step with at least ``delta`` I added to the Hessian."""
    system = _factored(p, at, delta)
    mu = float(at.s @ at.z) / max(len(at.s), 1)
    affine = _solved(p, at, system, at.z * at.s)
    if not len(at.s):
        return Direction(affine, system.delta, 0.0)
    primal, dual = (min(1.0, longest(v, d)) for v, d in ((at.s, affine.s), (at.z, affine.z)))
    reach = (at.s + primal * affine.s) @ (at.z + dual * affine.z) / len(at.s)
    target = mu * min(1.0, max(float(reach) / mu, 0.0)) ** 3
    left = residuals(p, at)
    # complementarity must not fall faster than the residuals
    target = max(target, 1e-3 * mu, min(mu, 1e-2 * max(left.dual, left.primal)))
    # clipped, because a long affine step says little about a curved c
    products = at.z * at.s + np.clip(affine.s * affine.z, -mu, 10 * mu) - target
    return Direction(_solved(p, at, system, products), system.delta, target)


class _System(NamedTuple):
    """The Newton system with strongly active rows A kept, all others eliminated.

    J' diag(z / s) J grows without bound at active constraints and would drown the Hessian. With v =
    dy - g (A dx - b), the system  [H A'; A -W] (dx, dy) = (r, b),  W = s / z (0 for equalities), is
    the same as

        (H + A' g A) dx + A'v = r + A' g b,        A dx - W / (1 - g W) v = b

    for any g < 1 / W; rows with 1 / W below ``gamma`` are eliminated altogether, g = 1 / W.
    """

    matrix: Array
    factor: tuple
    rows: Array  # A (k, nx)
    weak: Array  # W / (1 - g W) (k,)
    gamma: Array  # g (k,)
    solved: Array  # matrix^{-1} A'
    schur: tuple | None
    active: NDArray[np.bool_]  # (m,) inequalities among the rows
    delta: float


def _factored(p: Program, at: Iterate, delta: float) -> _System:
    """Cholesky of the matrix plus delta I, with delta raised until it exists."""
    size = max(float(np.abs(np.diag(p.hessian)).max(initial=0.0)), 1e-8)
    rows = np.concatenate([p.J, p.E])
    width = np.concatenate([at.s / at.z, np.zeros(len(p.e))])
    length = np.maximum((rows**2).sum(1), 1e-300)
    # a row of zeros that binds nothing is eliminated without an overflow
    kept = size * width < 0.5 * length
    eliminated = rows[~kept]
    A, W, gamma = rows[kept], width[kept], size / length[kept]
    base = p.hessian + eliminated.T @ (eliminated / width[~kept, None]) + A.T @ (gamma[:, None] * A)
    delta = max(delta, 1e-13 * size)
    while True:
        matrix = base + delta * np.eye(len(base))
        try:
            factor = cho_factor(matrix, lower=True)
            break
        except LinAlgError:
            delta = max(10 * delta, 1e-11 * size)
            if not delta < 1e20 * size:
                raise ArithmeticError(
                    "the Newton system is not finite: the constraints or the loss overflow. Rescale"
                    " the features or the targets."
                ) from None
    weak, solved = W / (1 - gamma * W), cho_solve(factor, A.T)
    schur = None
    if len(A):
        complement = A @ solved
        redundant = 1e-13 * float(np.abs(np.diag(complement)).max(initial=0.0)) + 1e-300
        schur = cho_factor(complement + np.diag(weak + redundant), lower=True)
    return _System(matrix, factor, A, weak, gamma, solved, schur, kept[: len(p.c)], delta)


def _solved(p: Program, at: Iterate, system: _System, products: Array) -> Iterate:
    """The Newton step whose complementarity products fall by ``products``."""
    dual, primal = p.gradient + p.J.T @ at.z + p.E.T @ at.lam, p.c + at.s
    b = products / at.z - primal  # J dx - (s / z) dz = b
    rest = ~system.active
    right = -dual + p.J[rest].T @ (at.z[rest] / at.s[rest] * b[rest])
    below = np.concatenate([b[system.active], -p.e])
    right = right + system.rows.T @ (system.gamma * below)
    # [matrix A'; A -weak] (dx, v) = (right, below), refined twice
    dx, v = np.zeros_like(right), np.zeros_like(below)
    for _ in range(3):
        top = right - system.matrix @ dx - system.rows.T @ v
        low = below - system.rows @ dx + system.weak * v
        step = cho_solve(system.factor, top)
        if system.schur is not None:
            more = cho_solve(system.schur, system.rows @ step - low)
            step, v = step - system.solved @ more, v + more
        dx = dx + step
    dy = v + system.gamma * (system.rows @ dx - below)
    dz = np.where(system.active, 0.0, at.z / at.s * (p.J @ dx - b))
    dz[system.active] = dy[: int(system.active.sum())]
    return Iterate(dx, -primal - p.J @ dx, dz, dy[int(system.active.sum()) :])


def longest(value: Array, step: Array) -> float:
    """The largest step that keeps value + step >= 0; inf where every one does."""
    falling = step < 0
    return float((-value[falling] / step[falling]).min(initial=np.inf))


def recedes(p: Program, x: Array) -> bool:
    """Whether f falls without end along x, within c <= 0 and e = 0.

    This is for a quadratic f and affine constraints, with x far out.
    """
    length = max(float(np.linalg.norm(x)), 1e-300)
    along = x / length
    fall, bend = -float(p.gradient @ along), float(along @ p.hessian @ along) * length
    up = (p.J @ along) / np.maximum(np.linalg.norm(p.J, axis=1), 1e-300)
    off = np.abs(p.E @ along) / np.maximum(np.linalg.norm(p.E, axis=1), 1e-300)
    inside = max(up.max(initial=0.0), off.max(initial=0.0)) <= 1e-6
    return bool(fall > 0 and bend <= 1e-3 * fall and inside)


def steps(at: Iterate, by: Iterate) -> tuple[float, float]:
    """The (primal, dual) step lengths: ``BOUNDARY`` of the way to the boundary, at most 1.

    Slacks and multipliers stay positive.
    """
    return min(1.0, BOUNDARY * longest(at.s, by.s)), min(1.0, BOUNDARY * longest(at.z, by.z))


def moved(at: Iterate, by: Iterate, primal: float, dual: float) -> Iterate:
    """The iterate after a step."""
    ahead = at.x + primal * by.x, at.s + primal * by.s
    return Iterate(*ahead, at.z + dual * by.z, at.lam + dual * by.lam)


def merit(p: Program, s: Array, mu: float, nu: float) -> float:
    """The barrier problem's l1 merit: f - mu sum log s + nu (||c + s||_1 + ||e||_1)."""
    return p.value - mu * float(np.log(s).sum()) + nu * _broken(p, s)


def merit_gradient(p: Program, at: Iterate, by: Iterate, mu: float, nu: float) -> float:
    """The derivative of the merit function along the step."""
    return float(p.gradient @ by.x) - mu * float((by.s / at.s).sum()) - nu * _broken(p, at.s)


def _broken(p: Program, s: Array) -> float:
    return float(np.abs(p.c + s).sum() + np.abs(p.e).sum())
