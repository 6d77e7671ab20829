"""Proximal point steps for spectral (rank-based) risks, by semismooth Newton on their dual.

    minimise over w, z:  Omega(z) + h(w)  subject to  z = D w - b,
            Omega(z) = sum_i sigma_i l(z_[i]), convex

One outer step minimises the objective plus sum_j (w - w_k)_j^2 / (2 s_j) + ||z - z_k||^2 / (2 t),
with s_j in inverse proportion to the mean square of column j, so that units do not matter. Its dual
in the multiplier alpha of the constraint is smooth. With

    z(alpha) = prox_{t Omega}(z_k + t alpha),        w(alpha) = prox_{s h}(w_k - s D'alpha)

its gradient is z(alpha) - D w(alpha) + b and t J_z + s D J_w D' an element of its generalised
Hessian. J_z is block diagonal (the blocks that PAVA pools), J_w diagonal: only rows at a kink and
coefficients that are not zero cost anything. Outer steps converge superlinearly as s grows; on
piecewise linear problems they end. After Wu, Cui, Li, Sun, *Convex and nonconvex risk-based linear
regression at scale*, with a proximal term in w as well.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from bonafed.arrays import Array
from bonafed.solvers.rank.proxes import Kernel, RankProx, losses_of, prox_gradients, rank_prox

Rows = NDArray[np.intp]  # positions

SMALL = 1e-7  # share of t on the diagonal where J_z is singular
NEWTON_STEPS = 40  # of one outer step at most; it need not be exact


class Separable(NamedTuple):
    """A convex separable h: its value, its prox at (v, s), and the prox's derivative by entry."""

    value: Callable[[Array], float]
    prox: Callable[[Array, Array], Array]
    prox_gradient: Callable[[Array, Array], Array]  # of (w, s) at w = prox


@dataclass(frozen=True, eq=False)
class RankSystem:
    """The data of a rank-based problem: D (n, D), b (n,), sigma nondecreasing, the loss and h.

    ``gram`` is D'D where that is the smaller one.
    """

    D: Array
    shift: Array
    sigma: Array
    kernel: Kernel
    h: Separable
    gram: Array | None

    @cached_property
    def units(self) -> Array:
        """(D,) the mean square of all columns, over that of each; 1 for columns of zeros."""
        squares = np.einsum("ij,ij->j", self.D, self.D)
        return np.divide(squares.mean(), squares, out=np.ones_like(squares), where=squares > 0)


class Point(NamedTuple):
    """A model, its split rows and their multipliers."""

    w: Array
    z: Array
    alpha: Array


class _Inner(NamedTuple):
    """The dual value at alpha, with the minimisers that it is made of."""

    value: float
    w: Array
    z: Array
    rank: RankProx


def outer_step(system: RankSystem, at: Point, step: float, accuracy: float) -> tuple[Point, int]:
    """Take one proximal point step with s = ``step * system.units``; also returns the Newton steps.

    ``accuracy``: how large the constraint's residual may be beside the length of the move.
    """
    # any t will do where all rows are zero
    t = step * (float(np.einsum("ij,ij->", system.D, system.D)) / len(at.z) or 1.0)
    s = step * system.units
    alpha, now, newton = at.alpha, _inner(system, at, at.alpha, s, t), 0
    while newton < NEWTON_STEPS:
        gradient = now.z - (system.D @ now.w - system.shift)
        size = float(np.linalg.norm(gradient))
        moved = max(np.linalg.norm(now.z - at.z), np.linalg.norm(system.D @ (now.w - at.w)))
        if size <= max(accuracy * moved, 1e-14 * (1 + float(np.linalg.norm(now.z)))):
            break
        direction = _direction(system, at, alpha, now, gradient, s, t)
        descent, length = float(gradient @ direction), 1.0
        for _ in range(30):
            new = _inner(system, at, alpha + length * direction, s, t)
            if new.value <= now.value + 1e-4 * length * descent + 1e-15 * abs(now.value):
                break
            length *= 0.5
        alpha, now, newton = alpha + length * direction, new, newton + 1
    return Point(now.w, now.z, alpha - (now.z - at.z) / t), newton


def _inner(system: RankSystem, at: Point, alpha: Array, s: Array, t: float) -> _Inner:
    """Minus the dual value at alpha, with its minimisers."""
    rank = rank_prox(at.z + t * alpha, system.sigma, 1 / t, system.kernel)
    w = system.h.prox(at.w - s * (alpha @ system.D), s)
    omega = float(np.sort(losses_of(rank.z, system.kernel)) @ system.sigma)
    split = omega - float(alpha @ rank.z) + float(((rank.z - at.z) ** 2).sum()) / (2 * t)
    model = system.h.value(w) + float(alpha @ (system.D @ w - system.shift))
    model += float(((w - at.w) ** 2 / s).sum()) / 2
    return _Inner(-(split + model), w, rank.z, rank)


@dataclass(frozen=True, eq=False)
class _Curvature:
    """P = t J_z + eps: a diagonal, and eps + q 1 1' / k on groups of rows that move together."""

    diagonal: Array  # (n,)
    members: Rows  # rows in groups, group after group
    group: Rows  # their group
    offset: Rows  # where groups begin
    size: Array  # (B,) k
    rate: Array  # (B,) q = t p
    signs: Array  # members move as +z or -z, which they do for even losses only
    eps: float

    def means(self, v: Array) -> Array:
        """The mean of v over every group, at its members."""
        sums = np.bincount(self.group, v[self.members] * self.signs, len(self.size))
        return (sums / self.size)[self.group] * self.signs

    def times(self, v: Array) -> Array:
        """P v."""
        out = self.diagonal * v
        if len(self.size):
            out[self.members] = self.eps * v[self.members] + self.rate[self.group] * self.means(v)
        return out

    def solve(self, v: Array) -> Array:
        """P^{-1} v."""
        out = v / self.diagonal
        if len(self.size):
            share = self.rate / (self.eps + self.rate)
            out[self.members] = (v[self.members] - share[self.group] * self.means(v)) / self.eps
        return out


def _curvature(system: RankSystem, m: Array, now: _Inner, t: float) -> _Curvature:
    rank, eps = now.rank, SMALL * t
    p = prox_gradients(m, system.sigma, 1 / t, system.kernel, rank)
    diagonal = np.empty_like(m)
    diagonal[rank.order] = t * p + eps
    size = rank.stop - rank.start
    group, offset = np.repeat(np.arange(len(size)), size), np.cumsum(size) - size
    members = rank.order[np.arange(len(group)) - offset[group] + rank.start[group]]
    diagonal[members] = eps
    signs, rate = np.where(system.kernel.even & (m[members] < 0), -1.0, 1.0), t * p[rank.start]
    return _Curvature(diagonal, members, group, offset, size.astype(float), rate, signs, eps)


def _direction(
    system: RankSystem, at: Point, alpha: Array, now: _Inner, gradient: Array, s: Array, t: float
) -> Array:
    """Minus (P + s D J_w D')^{-1} gradient, refined once.

    It is minus the gradient where that is not a descent direction.
    """
    J = system.h.prox_gradient(now.w, s)
    used = np.flatnonzero(J)
    P = _curvature(system, at.z + t * alpha, now, t)
    D = system.D if len(used) == system.D.shape[1] else system.D[:, used]
    weight = s[used] * J[used]
    solve = _small(system, P, D, used, weight) if len(used) <= len(alpha) else _large(P, D, weight)
    if solve is None:
        return -gradient
    direction = -solve(gradient)
    left = gradient + P.times(direction) + D @ (weight * (direction @ D))
    direction = direction - solve(left)
    return direction if float(direction @ gradient) < 0 else -gradient


def _small(
    system: RankSystem, P: _Curvature, D: Array, used: Rows, weight: Array
) -> Callable[[Array], Array] | None:
    """The inverse by Woodbury's identity: a system in the coefficients that are not zero."""
    W = 1 / P.diagonal
    # the part of the rows of least weight comes from the Gram matrix
    common = float(W.min()) if system.gram is not None else 0.0
    rows = np.flatnonzero(common * (1 + 1e-12) < W)
    M = (D[rows].T * (W[rows] - common)) @ D[rows]
    if system.gram is not None:
        whole = len(used) == len(system.gram)
        M += common * (system.gram if whole else system.gram[np.ix_(used, used)])
    if len(P.size):
        sums = np.add.reduceat(D[P.members] * P.signs[:, None], P.offset, axis=0)
        M -= (sums.T * (P.rate / (P.eps + P.rate) / (P.eps * P.size))) @ sums
    M[np.diag_indices(len(used))] += 1 / weight
    factor = _cholesky(M)
    if factor is None:
        return None

    def solve(v: Array) -> Array:
        y = P.solve(v)
        return y - P.solve(D @ cho_solve(factor, y @ D, check_finite=False))

    return solve


def _large(P: _Curvature, D: Array, weight: Array) -> Callable[[Array], Array] | None:
    """The inverse by a system in the rows."""
    H = (D * weight) @ D.T
    H[np.diag_indices(len(H))] += P.diagonal
    for b in range(len(P.size)):
        part = slice(P.offset[b], P.offset[b] + int(P.size[b]))
        rows, signs = P.members[part], P.signs[part]
        H[np.ix_(rows, rows)] += P.rate[b] / P.size[b] * np.outer(signs, signs)
    factor = _cholesky(H)
    return None if factor is None else lambda v: cho_solve(factor, v, check_finite=False)


def _cholesky(M: Array) -> Any:
    for lift in (0.0, 1e-10):
        M[np.diag_indices(len(M))] *= 1 + lift
        with suppress(LinAlgError):
            return cho_factor(M, check_finite=False)
    return None
