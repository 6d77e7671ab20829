"""An interior point for the least mean hinge loss of a linear model without a regulariser.

    h = min over w:  mean_i max(1 - <z_i, w>, 0)
      = max over 0 <= a <= 1, sum_i a_i z_i = 0:  mean_i a_i

With t, v >= 0 and t - v = 1 - Z w, a step of Mehrotra's method on t (1 - a) = v a = mu needs one
symmetric system of as many numbers as z_i has. Any w gives an upper bound. A lower bound is that of
a, moved to sum_i a_i z_i = 0 by the factor that the step has anyway, and scaled into [0, 1].
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, qr

from bonafed.arrays import Array

EPS = float(np.finfo(float).eps)
RANK = 1e-12  # relative: columns nearer than this to the others are combinations of these
RIDGE = 1e-15  # of the system, in units of its largest diagonal entry
STEPS = 60  # at most
BOUNDARY = 0.995  # of the way to it that a step goes at most
REACH = 100.0  # times as long as the last model: up to where rounding of a lower bound is charged
NEAR = 1e-9  # the width of the interval at the end


class _Point(NamedTuple):
    w: Array
    a: Array
    rest: Array  # 1 - a, which does not cancel
    t: Array
    v: Array


@dataclass(frozen=True)
class _System:
    """The rows, where the search is, and the factor of the system there."""

    Q: Array
    at: _Point
    rate: Array
    factor: Any

    def step(self, over: Array, under: Array) -> _Point:
        """What makes t (1 - a) and v a larger by so much."""
        Q, (w, a, rest, t, v), rate = self.Q, self.at, self.rate
        right = 1 - Q @ w - (t - v) - over / rest + under / a
        dw = cho_solve(self.factor, Q.T @ (rate * right + a))
        da = rate * (right - Q @ dw)
        return _Point(dw, da, -da, (over + t * da) / rest, (under - v * da) / a)

    def bound(self) -> float:
        """The lower bound of a; 0 where it cannot be moved so."""
        a, Q = self.at.a, self.Q
        for _ in range(2):  # the second time for rounding
            a = a - self.rate * (Q @ cho_solve(self.factor, Q.T @ a))
        if a.min() < -32 * EPS:
            return 0.0
        a = np.maximum(a, 0.0) / max(a.max(), 1.0)
        left = float(np.abs(Q.T @ a) @ (1 + np.abs(self.at.w))) / len(a)
        return float(a.mean()) * (1 - 8 * EPS) - REACH * left


def least_hinge(Z: Array, enough: float = 0.0) -> tuple[float, float]:
    """Upper and lower bound of h for rows Z (n, d), by ``NEAR`` apart but for ill-conditioned
    tables; ``enough``: an upper bound below it ends the search.
    """
    n, size = len(Z), np.abs(Z).max(0)
    factors: Any = qr(Z / np.where(size > 0, size, 1.0), mode="economic", pivoting=True)
    long = np.abs(np.diag(factors[1]))  # falling
    rank = int((long > RANK * long.max(initial=0.0)).sum())
    Q = np.ascontiguousarray(factors[0][:, :rank]) * np.sqrt(n)
    rounding = 8 * EPS * np.sqrt((Q * Q).sum(1))  # of a margin, for a model of length 1
    at = _Point(np.zeros(rank), *(np.full(n, x) for x in (0.5, 0.5, 1.5, 0.5)))
    upper, lower = 1.0, 0.0
    for _ in range(STEPS):
        rate = 1 / (at.t / at.rest + at.v / at.a)
        matrix = (Q.T * rate) @ Q
        matrix[np.diag_indices(rank)] += RIDGE * np.diag(matrix).max(initial=0.0)
        try:
            system = _System(Q, at, rate, cho_factor(matrix, lower=True))
        except LinAlgError:
            break
        lower = max(lower, system.bound())
        if upper - lower <= NEAR or upper < enough:
            break
        by = system.step(-at.t * at.rest, -at.v * at.a)
        mu = _product(at) / (2 * n)
        after = _product(_moved(at, by, *_lengths(at, by))) / (2 * n)
        aim = (after / mu) ** 3 * mu
        right = aim - at.t * at.rest - by.t * by.rest, aim - at.v * at.a - by.v * by.a
        by = system.step(*right)
        primal, dual = _lengths(at, by)
        at = _moved(at, by, BOUNDARY * primal, BOUNDARY * dual)
        short = np.maximum(1 - Q @ at.w + rounding * np.sqrt(at.w @ at.w), 0.0)
        upper = min(upper, float(short.mean()) * (1 + 8 * EPS))
    return upper, lower


def _product(at: _Point) -> float:
    return float(at.t @ at.rest + at.v @ at.a)


def _lengths(at: _Point, by: _Point) -> tuple[float, float]:
    """Of the longest steps of w, t and v, and of a: to where one is 0."""
    pairs = zip(at[1:], by[1:], strict=True)
    a, rest, t, v = (float((-d / x).max()) for x, d in pairs)
    return 1 / max(1.0, t, v), 1 / max(1.0, a, rest)


def _moved(at: _Point, by: _Point, primal: float, dual: float) -> _Point:
    lengths = primal, dual, dual, primal, primal
    return _Point(*(x + length * d for x, d, length in zip(at, by, lengths, strict=True)))
