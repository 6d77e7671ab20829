"""Convex increasing losses of one number t, a row's rank coordinate, with proxes and conjugates.

    LINEAR       t                                             EXPONENTIAL  exp(t)
    PLUS         max(0, t - knot)                              LOGISTIC     log(1 + exp(t))
    RAMP         0, (t - knot)^2 / 2, then gradient ``width`` from t = knot + width on

    prox_{c l}(m) = argmin_v  c l(v) + (v - m)^2 / 2              l*(s) = sup_t  s t - l(t)

Proxes are closed forms, or Halley and Newton iterations that cannot cycle. With ``even`` the loss
is l(|t|), of residuals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.special import xlog1py, xlogy

from bonafed.arrays import Array
from bonafed.solvers.kernels.exponential import exp64

# NumPy's integers: numba would compile a callee again for every Python integer that is constant
LINEAR, PLUS, RAMP, LOGISTIC, EXPONENTIAL = np.arange(5)


class Kernel(NamedTuple):
    """A loss of the rank coordinate t, or with ``even`` of |t| and knot >= 0."""

    kind: int | np.integer
    knot: float = 0.0
    width: float = 1.0
    even: bool = False

    @property
    def curve(self) -> tuple[int, float, float]:
        """(kind, knot, width), the arguments of compiled functions."""
        return int(self.kind), float(self.knot), float(self.width)


def plain(v: Array) -> Array:
    """v as contiguous, writable float64; a copy only where it is not.

    So one compilation serves every caller.
    """
    return np.require(v, np.float64, ["C", "W"])


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
def gradient_at(kind, knot, width, t):
    """The largest gradient l'(t)."""
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


@njit(cache=True, error_model="numpy")
def prox_at(kind, knot, width, c, m):
    """argmin_v  c l(v) + (v - m)^2 / 2, for c >= 0; -inf where c = inf leaves no minimiser."""
    if kind == LINEAR:
        return m - c
    if kind == PLUS:
        return max(m - c, min(m, knot))
    if kind == RAMP:
        if m <= knot:
            return m
        v = (m + c * knot) / (1.0 + c) if math.isfinite(c) else knot
        return v if v <= knot + width else m - c * width
    if c == 0.0 or math.isinf(c):
        return m if c == 0.0 else -math.inf
    shift, u = _start(kind, c, m)
    for k in range(100):
        step = _step(kind, c, shift, u, 1.0 if k < ROUNDS else 0.0)
        u = _inside(kind, c, shift, u - step)
        if abs(step) <= SMALL:
            break
    return _finish(kind, c, m, u)


# The prox of LOGISTIC and EXPONENTIAL is found from one number u, a root of an increasing function
# without inflection:  LOGISTIC     u + p = c exp(-u) / (1 + exp(-u)), u >= 0 (concave): v = -u with
# p = m where c / 2 > m, otherwise v = u with p = c - m, so that nothing large cancels in either
# EXPONENTIAL  exp(u) + u = L := m + log c (convex): v = u - log c  Halley steps, cubic: past a step
# of 5e-6 the error is below 1e-16. Should 20 of them not do, Newton steps follow, which are
# monotone once they have crossed to the side where the tangent does not overshoot. (A bracketed
# Newton iteration with bisection as its safeguard can cycle here for c >= 100.) Division without
# Python's check for zero (error_model) is what lets the compiler take several entries at a time.
ROUNDS, SMALL, SPAN = 20, 5e-6, 256


@njit(inline="always")
def _rough_log(x):
    """log x within 0.06 for x > 0, from the bits of x."""
    return (np.float64(x).view(np.int64) * 2.0**-52 - 1022.9570) * 0.6931471805599453


@njit(cache=True, error_model="numpy")
def _start(kind, c, m):
    """(shift, u): p or L, and a start near the root."""
    if kind == LOGISTIC:
        p = m if c / 2 > m else c - m
        size = _rough_log(c)
        return p, _inside(kind, c, p, size - _rough_log(max(size + p, 1.0)))
    L = m + math.log(c)
    return L, _rough_log(L) if L > 1.0 else min(L, 0.6 * (L - 1.0))


@njit(cache=True, error_model="numpy")
def _step(kind, c, shift, u, bend):
    """Halley's step where bend = 1, Newton's where it is 0."""
    if kind == LOGISTIC:
        e = exp64(-min(u, 708.0))
        w = 1.0 / (1.0 + e)
        h = e * w
        f, q = (u + shift) - c * h, c * h * w
        d, curvature = 1.0 + q, -q * (1.0 - e) * w
    else:
        e = exp64(min(max(u, -708.0), 700.0))
        f, d, curvature = e + (u - shift), 1.0 + e, e
    return 2 * f * d / max(2 * d * d - bend * f * curvature, d * d)


@njit(inline="always")
def _inside(kind, c, shift, u):
    return min(max(u, 0.0, -shift), c / 2 - shift) if kind == LOGISTIC else u


@njit(cache=True, error_model="numpy")
def _finish(kind, c, m, u):
    if kind == LOGISTIC:
        return -u if c / 2 > m else u
    return u - math.log(c) if m + math.log(c) > 1.0 else m - exp64(max(u, -708.0))


@njit(cache=True, error_model="numpy")
def _logistic_round(c, shift, u, last, k):
    """Take one Halley step of those of the first k entries that still move; returns how many do."""
    moving = 0
    for i in range(k):
        step = _step(LOGISTIC, c[i], shift[i], u[i], 1.0) if last[i] > SMALL else 0.0
        u[i] = _inside(LOGISTIC, c[i], shift[i], u[i] - step)
        last[i] = abs(step)
        moving += last[i] > SMALL
    return moving


@njit(cache=True, error_model="numpy")
def _exponential_round(c, shift, u, last, k):
    """The same; written out for each kind, or the compiler handles one entry at a time."""
    moving = 0
    for i in range(k):
        step = _step(EXPONENTIAL, c[i], shift[i], u[i], 1.0) if last[i] > SMALL else 0.0
        u[i] -= step
        last[i] = abs(step)
        moving += last[i] > SMALL
    return moving


@njit(cache=True, error_model="numpy")
def _side_by_side(kind, m, sigma, inverse, z):
    """z_i = prox_at(c_i, m_i) with the same bits, for a few hundred entries at a time.

    All their steps run side by side.
    """
    c, shift, u, last = np.empty(SPAN), np.empty(SPAN), np.empty(SPAN), np.empty(SPAN)
    for low in range(0, len(m), SPAN):
        k, some = min(SPAN, len(m) - low), False
        for i in range(k):
            c[i], last[i] = sigma[low + i] * inverse, 1.0
            some |= c[i] > 0.0
        if not some:
            for i in range(low, low + k):
                z[i] = m[i]
            continue
        for i in range(k):
            shift[i], u[i] = _start(kind, c[i], m[low + i])
        for _ in range(ROUNDS):
            if kind == LOGISTIC:
                moving = _logistic_round(c, shift, u, last, k)
            else:
                moving = _exponential_round(c, shift, u, last, k)
            if moving == 0:
                break
        for i in range(k):
            done = last[i] <= SMALL and 0.0 < c[i] < math.inf
            z[low + i] = (
                _finish(kind, c[i], m[low + i], u[i])
                if done
                else prox_at(kind, 0.0, 1.0, c[i], m[low + i])
            )


@njit(cache=True, error_model="numpy")
def prox_each(kind, knot, width, m, sigma, inverse, z):
    """Write prox_at of every m_i with c_i = sigma_i * inverse into z (n,).

    A compiled function that returns an array is called from Python or from compiled code, never
    from both: numba's cache can load it twice and then return it through the copy that Python does
    not know ("descr is NULL").
    """
    if kind >= LOGISTIC:
        _side_by_side(kind, m, sigma, inverse, z)
    elif kind == PLUS:  # written out, so that the commonest loop uses vector instructions
        for i in range(len(m)):
            z[i] = max(m[i] - sigma[i] * inverse, min(m[i], knot))
    else:
        for i in range(len(m)):
            z[i] = prox_at(kind, knot, width, sigma[i] * inverse, m[i])


def prox_gradients_at(kernel: Kernel, c: Array, m: Array, v: Array) -> Array:
    """d prox / d m at m, v = prox: 0 where z stays at the kink, 1 / (1 + c l''(v)) elsewhere."""
    kind, knot, width = kernel.curve
    if kind == PLUS:
        return np.where((m > knot) & (m - c < knot), 0.0, 1.0)
    if kind == RAMP:
        return np.where((knot < v) & (v < knot + width), 1.0 / (1.0 + c), 1.0)
    if kind == LOGISTIC:
        e = np.exp(-np.abs(v))
        return 1.0 / (1.0 + c * e / (1.0 + e) ** 2)
    return 1.0 / (1.0 + c * np.exp(v)) if kind == EXPONENTIAL else np.ones(len(m))


def losses_of(t: Array, kernel: Kernel) -> Array:
    """l of every entry, (n,)."""
    t, (kind, knot, width) = np.abs(t) if kernel.even else t, kernel.curve
    if kind == LINEAR:
        return t.astype(float)
    if kind == PLUS:
        return np.maximum(0.0, t - knot)
    if kind == RAMP:
        s = np.clip(t - knot, 0.0, width)
        return s * (t - knot) - s * s / 2
    if kind == LOGISTIC:
        return np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t)))
    with np.errstate(over="ignore"):
        return np.exp(t)


@njit(cache=True)
def _gradients(t, kind, knot, width, even):
    out = np.empty_like(t)
    for i in range(len(t)):
        if even:
            out[i] = (
                math.copysign(gradient_at(kind, knot, width, abs(t[i])), t[i])
                if t[i] != 0.0
                else 0.0
            )
        else:
            out[i] = gradient_at(kind, knot, width, t[i])
    return out


def gradients_of(t: Array, kernel: Kernel) -> Array:
    """A gradient of l (of l(|t|) for even losses) at every entry, (n,)."""
    return _gradients(t, *kernel)


def conjugates_of(s: Array, kernel: Kernel) -> Array:
    """l*(s) of every entry of s >= 0, any shape; inf beyond the largest gradient."""
    kind, knot, width = kernel.curve
    if kind == LINEAR:
        return np.where(s == 1.0, 0.0, np.inf)
    if kind == PLUS:
        return np.where(s <= 1.0, s * knot, np.inf)
    if kind == RAMP:
        return np.where(s <= width, s * knot + s * s / 2, np.inf)
    if kind == LOGISTIC:
        inside = np.minimum(s, 1.0)
        return np.where(s <= 1.0, xlogy(inside, inside) + xlog1py(1.0 - inside, -inside), np.inf)
    return xlogy(s, s) - s
