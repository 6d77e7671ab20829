"""The model step of an ADMM: penalised least squares with one matrix and many right-hand sides.

    minimise over w:  rho / 2 ||D w - v||^2 + g(w) + r / 2 ||w - near||^2 - <tilt, w>

``Ridge``: g = mu / 2 ||w||^2, in closed form at any rho from one eigendecomposition (of D'D, or of
DD' where that is smaller). ``descend``: g = sum_j l1_j |w_j| + l2_j w_j^2 / 2, or its Moreau
envelope, by coordinate descent on the Gram matrix (Friedman, Hastie, Tibshirani 2010);
``descend_clipped``: MCP and SCAD likewise. ``fista``: any g with a prox, by accelerated proximal
gradient steps with restarts (Beck and Teboulle 2009; O'Donoghue and Candes 2015), plain ones where
g is not convex. An intercept is the last column of D, unpenalised.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from bonafed.arrays import Array

Some = Array | None


@dataclass(frozen=True, eq=False)
class Ridge:
    """D decomposed once; D = centred + column mean' where there is an intercept's column."""

    centred: Array  # (n, d)
    column: Array | None  # (n,) entries -1 and 1
    mean: Array  # (d,)
    values: Array  # eigenvalues of centred' centred (d) or centred centred' (n)
    vectors: Array

    @classmethod
    def of(cls, D: Array, intercept: bool) -> "Ridge":
        """Decompose D (n, D); with ``intercept`` the entries of its last column are -1 or 1."""
        column, mean = None, np.zeros(D.shape[1] - intercept)
        if intercept:
            column = D[:, -1].copy()
            mean = column @ D[:, :-1] / len(column)
            D = D[:, :-1] - np.outer(column, mean)
        values, vectors = np.linalg.eigh(D.T @ D if D.shape[1] <= D.shape[0] else D @ D.T)
        return cls(D, column, mean, np.maximum(values, 0.0), vectors)

    def solve(
        self, v: Array, rho: float, mu: float, r: float = 0.0, near: Some = None, tilt: Some = None
    ) -> Array:
        """The minimiser; the one of least norm where mu + r = 0.

        The proximal term leaves the intercept free.
        """
        d, c = len(self.mean), mu + r
        push = np.zeros(d) if tilt is None else tilt[:d].copy()
        if near is not None and r > 0:
            push += r * near[:d]
        bias = 0.0
        if self.column is not None:
            bias = 0.0 if tilt is None else float(tilt[-1])
            push -= bias * self.mean
        w = self._coefficients(v, push, rho, c)
        if self.column is None:
            return w
        n = len(self.column)
        return np.append(w, self.column @ v / n - self.mean @ w + bias / (rho * n))

    def _coefficients(self, v: Array, push: Array, rho: float, c: float) -> Array:
        """(rho D'D + c)^{-1} (rho D'v + push)."""
        scale = rho * self.values + c
        known = scale > 1e-13 * rho * self.values.max(initial=0.0)
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=known)
        if len(self.values) == len(push):
            return self.vectors @ (inverse * ((rho * (v @ self.centred) + push) @ self.vectors))
        w = (self.vectors @ (inverse * (rho * (v @ self.vectors)))) @ self.centred
        if not push.any():
            return w
        if c == 0:  # the minimum is finite for a push in the range of D' alone
            twice = rho * inverse**2 * ((self.centred @ push) @ self.vectors)
            return w + (self.vectors @ twice) @ self.centred
        turned = self.vectors @ (rho * inverse * ((self.centred @ push) @ self.vectors))
        return w + (push - turned @ self.centred) / c


@njit(cache=True)
def descend(G, c, rho, l1, l2, r, gamma, w, tol, sweeps):
    """Coordinate descent on rho / 2 w'Gw + r / 2 w'w - c'w + M(w), from w, which is not changed.

    M is the Moreau envelope of h(u) = sum_j l1_j |u_j| + l2_j u_j^2 / 2 with parameter gamma, h
    itself for gamma = 0. In one coordinate the best u solves the problem with h and a curvature
    divided by 1 + gamma times itself; w follows from u. Sweeps over all coordinates alternate with
    sweeps over those where u is not 0, until no coordinate's gradient moves by more than ``tol``.
    """
    w = w.copy()
    gradient = rho * (G @ w) - c  # without r w
    n, everything = len(w), True
    for _ in range(sweeps):
        largest = 0.0
        for j in range(n):
            bend = rho * G[j, j] + r
            if not everything and abs(w[j]) <= gamma * l1[j]:
                continue
            if bend + l2[j] <= 0.0:  # a feature of zeros
                w[j] = 0.0 if l1[j] > 0.0 else w[j]
                continue
            wide = 1.0 + gamma * bend
            target = rho * G[j, j] * w[j] - gradient[j]
            u = 0.0
            if target > wide * l1[j]:
                u = (target - wide * l1[j]) / (bend + wide * l2[j])
            elif target < -wide * l1[j]:
                u = (target + wide * l1[j]) / (bend + wide * l2[j])
            new = (u + gamma * target) / wide
            step = new - w[j]
            if step != 0.0:
                w[j] = new
                for k in range(n):
                    gradient[k] += rho * step * G[j, k]
                largest = max(largest, abs(step) * (bend + l2[j]))
        if largest <= tol:
            if everything:
                break
            everything = True
        else:
            everything = False
    return w


@njit(cache=True)
def _clipped(v, step, strength, shape, scad):
    """argmin_u step p(u) + (u - v)^2 / 2 for MCP and SCAD.

    Where this is not convex it is the better of two candidates.
    """
    size, end = abs(v), shape * strength
    bend = shape - 1.0 if scad else shape
    soft = max(size - step * strength, 0.0)
    if step < bend:
        if size > end:
            return v
        if scad:
            u = (bend * size - step * end) / (bend - step) if soft > strength else soft
        else:
            u = soft / (1.0 - step / shape)
        return math.copysign(u, v)
    near, far = (min(soft, strength) if scad else 0.0), max(size, end)
    costs = step * _penalty(near, strength, shape, scad) + (near - size) ** 2 / 2
    other = step * _penalty(far, strength, shape, scad) + (far - size) ** 2 / 2
    return math.copysign(near if costs <= other else far, v)


@njit(cache=True)
def _penalty(u, strength, shape, scad):
    size = min(u, shape * strength)
    if scad:
        over = max(size - strength, 0.0)
        return strength * size - over * over / (2.0 * (shape - 1.0))
    return strength * size - size * size / (2.0 * shape)


@njit(cache=True)
def descend_clipped(G, c, rho, strength, shape, scad, r, w, tol, sweeps):
    """Coordinate descent on rho / 2 w'Gw + r / 2 w'w - c'w + sum_j p_j(w_j), p_j MCP or SCAD.

    Every coordinate moves to its global minimiser (Breheny, Huang 2011); the end is a minimum in
    every coordinate.
    """
    w = w.copy()
    gradient = rho * (G @ w) - c
    for _ in range(sweeps):
        largest = 0.0
        for j in range(len(w)):
            bend = rho * G[j, j] + r
            if bend <= 0.0:  # a feature of zeros
                w[j] = 0.0
                continue
            v = (rho * G[j, j] * w[j] - gradient[j]) / bend
            new = _clipped(v, 1.0 / bend, strength[j], shape, scad) if strength[j] > 0.0 else v
            step = new - w[j]
            if step != 0.0:
                w[j] = new
                for k in range(len(w)):
                    gradient[k] += rho * step * G[j, k]
                largest = max(largest, abs(step) * bend)
        if largest <= tol:
            break
    return w


def fista(
    gradient: Callable[[Array], Array],
    prox: Callable[[Array, Any], Array],
    lipschitz: float | Array,
    w: Array,
    tol: float,
    steps: int,
    accelerate: bool = True,
) -> Array:
    """Proximal gradient steps of length 1 / lipschitz, until entries move by at most ``tol``."""
    # lipschitz = 0 means rows of zeros, where any length will do
    length, ahead, momentum = 1 / lipschitz if np.all(lipschitz > 0) else 1.0, w, 1.0
    for _ in range(steps):
        new = prox(ahead - length * gradient(ahead), length)
        step = new - w
        rounding = 4e-16 * float(np.abs(new).max(initial=0.0))
        if float(np.abs(new - ahead).max(initial=0.0)) <= max(tol, rounding):
            return new
        # the momentum points uphill: restart it
        if not accelerate or float(((ahead - new) / length) @ step) > 0:
            momentum, ahead = 1.0, new
        else:
            following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
            ahead = new + (momentum - 1) / following * step
            momentum = following
        w = new
    return w
