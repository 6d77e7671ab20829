"""Convex increasing losses of one number t, the rank coordinate of a row, with their proxes and conjugates.

    LINEAR       t                                             EXPONENTIAL  exp(t)
    PLUS         max(0, t - knot)                              LOGISTIC     log(1 + exp(t))
    RAMP         0, (t - knot)^2 / 2, then slope ``width`` from t = knot + width on

    prox_{c l}(m) = argmin_v  c l(v) + (v - m)^2 / 2              l*(s) = sup_t  s t - l(t)

Proxes are closed forms or monotone Newton iterations, which cannot cycle. ``even``: the loss is l(|t|), of residuals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from quorate.arrays import Array

LINEAR, PLUS, RAMP, LOGISTIC, EXPONENTIAL = range(5)


class Kernel(NamedTuple):
    """A loss of the rank coordinate t; ``even``: of |t|, knot >= 0."""

    kind: int
    knot: float = 0.0
    width: float = 1.0
    even: bool = False


@njit(cache=True)
def loss_at(kind, knot, width, t):
    """l(t)."""
    if kind == LINEAR:
        return t
    if kind == PLUS:
        return max(0.0, t - knot)
    if kind == RAMP:
        s = min(max(t - knot, 0.0), width)
        return s * (t - knot) - s * s / 2 if s > 0.0 else 0.0
    if kind == LOGISTIC:
        return max(t, 0.0) + math.log1p(math.exp(-abs(t)))
    return math.exp(t)


@njit(cache=True)
def slope_at(kind, knot, width, t):
    """The largest slope l'(t)."""
    if kind == LINEAR:
        return 1.0
    if kind == PLUS:
        return 1.0 if t >= knot else 0.0
    if kind == RAMP:
        return min(max(t - knot, 0.0), width)
    if kind == LOGISTIC:
        e = math.exp(-abs(t))
        return (1.0 if t >= 0 else e) / (1.0 + e)
    return math.exp(t)


@njit(cache=True)
def conjugate_at(kind, knot, width, s):
    """l*(s) for s >= 0; inf beyond the largest slope."""
    if s == 0.0:
        return 0.0
    if kind == LINEAR:
        return 0.0 if s == 1.0 else math.inf
    if kind == PLUS:
        return s * knot if s <= 1.0 else math.inf
    if kind == RAMP:
        return s * knot + s * s / 2 if s <= width else math.inf
    if kind == LOGISTIC:
        return s * math.log(s) + (1.0 - s) * math.log1p(-s) if s < 1.0 else 0.0 if s == 1.0 else math.inf
    return s * math.log(s) - s


@njit(cache=True)
def prox_at(kind, knot, width, c, m):
    """argmin_v  c l(v) + (v - m)^2 / 2."""
    if kind == LINEAR:
        return m - c
    if kind == PLUS:
        return max(m - c, min(m, knot))
    if kind == RAMP:
        if m <= knot:
            return m
        v = (m + c * knot) / (1.0 + c) if math.isfinite(c) else knot
        return v if v <= knot + width else m - c * width
    if kind == LOGISTIC:
        return _logistic_prox(c, m)
    return _exponential_prox(c, m)


@njit(cache=True)
def _logistic_prox(c, m):
    """The root of f(v) = c sigmoid(v) + v - m, by Newton steps on the side where f is concave: v >= 0.

    (v, m) -> (-v, c - m) maps one side to the other. From the left of the root Newton steps rise monotonically; from
    the right one step crosses to the left, where m - c is a lower bound. (A bracketed Newton iteration with bisection
    as its safeguard can cycle here for c >= 100.) Past a step below 1.5e-8 the next one is below rounding.
    """
    mirror = c / 2 > m
    if mirror:
        m = c - m
    floor = max(0.0, m - c)
    v = max(floor, min(m - 0.95 * c, 1.8), (m - c / 2) / (1.0 + c / 4))
    for _ in range(100):
        s = 1.0 / (1.0 + math.exp(-v))
        step = (c * s + v - m) / (1.0 + c * s * (1.0 - s))
        v = max(v - step, floor)
        if abs(step) <= 1.5e-8:
            break
    return -v if mirror else v


@njit(cache=True)
def _exponential_prox(c, m):
    """v = m - y with y + log y = m + log c =: L; y + log y is concave and Newton starts left of its root."""
    if c == 0.0:
        return m
    L = m + math.log(c)
    if L < -700.0:
        return m
    y = math.exp(L) / (1.0 + math.exp(L)) if L <= 1.0 else L - math.log(L)
    for _ in range(50):
        step = (L - y - math.log(y)) * y / (1.0 + y)
        y += step
        if step <= 4e-16 * y:
            break
    return m - y


@njit(cache=True)
def prox_slope_at(kind, knot, width, c, m, v):
    """d prox / d m at m, v = prox: 0 where z stays at the kink, 1 / (1 + c l''(v)) elsewhere."""
    if kind == PLUS:
        return 0.0 if m > knot and m - c < knot else 1.0
    if kind == RAMP:
        return 1.0 / (1.0 + c) if knot < v < knot + width else 1.0
    if kind == LOGISTIC:
        e = math.exp(-abs(v))
        return 1.0 / (1.0 + c * e / (1.0 + e) ** 2)
    if kind == EXPONENTIAL:
        return 1.0 / (1.0 + c * math.exp(v))
    return 1.0


@njit(cache=True)
def _losses(t, kind, knot, width):
    out = np.empty_like(t)
    for i in range(len(t)):
        out[i] = loss_at(kind, knot, width, t[i])
    return out


def losses_of(t: Array, kernel: Kernel) -> Array:
    """l of every entry, (n,)."""
    return _losses(np.abs(t) if kernel.even else t, kernel.kind, kernel.knot, kernel.width)
