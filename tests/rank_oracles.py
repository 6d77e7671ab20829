"""Slow, plain ways to the same rank-based proximal steps: bisection, formulas of minima and maxima,
enumeration.
"""

import itertools

import numpy as np

from bonafed.solvers.rank.proxes import EXPONENTIAL, LINEAR, LOGISTIC, PLUS, RAMP, Kernel

KERNELS = [
    Kernel(LINEAR),
    Kernel(PLUS, -1.0),
    Kernel(PLUS, 0.5),
    Kernel(RAMP, -1.0, 1.0),
    Kernel(RAMP, 0.2, 3.0),
    Kernel(LOGISTIC),
    Kernel(EXPONENTIAL),
]
EVEN = [
    Kernel(PLUS, 0.0, even=True),
    Kernel(PLUS, 0.3, even=True),
    Kernel(RAMP, 0.0, np.inf, even=True),
    Kernel(RAMP, 0.0, 1.35, even=True),
]


def name(kernel):
    kind = ("linear", "plus", "ramp", "logistic", "exponential")[kernel.kind]
    return f"{kind} {kernel.knot:g} {kernel.width:g}{' even' * kernel.even}"


def loss(kernel, t):
    t = np.abs(t) if kernel.even else t
    if kernel.kind == LINEAR:
        return t
    short = np.maximum(0.0, t - kernel.knot)
    if kernel.kind == PLUS:
        return short
    if kernel.kind == RAMP:
        return np.where(
            short <= kernel.width,
            short**2 / 2,
            np.minimum(kernel.width, 1e99) * (short - kernel.width / 2),
        )
    return np.logaddexp(0.0, t) if kernel.kind == LOGISTIC else np.exp(np.minimum(t, 600.0))


def gradient(kernel, t):
    """l' from the right, for t in the rank coordinate."""
    if kernel.kind == LINEAR:
        return np.ones_like(t)
    if kernel.kind == PLUS:
        return np.where(t >= kernel.knot, 1.0, 0.0)
    if kernel.kind == RAMP:
        return np.clip(t - kernel.knot, 0.0, kernel.width)
    return (
        np.exp(-np.logaddexp(0.0, -t)) if kernel.kind == LOGISTIC else np.exp(np.minimum(t, 600.0))
    )


def prox(kernel, c, m):
    """argmin c l(v) + (v - m)^2 / 2 by bisection, elementwise."""
    low = np.minimum(m, 0.0) - c if kernel.kind == EXPONENTIAL else m - c * gradient(kernel, m)
    high = m + 0.0
    for _ in range(110):
        middle = low + (high - low) / 2
        right = c * gradient(kernel, middle) + middle - m > 0
        low, high = np.where(right, low, middle), np.where(right, middle, high)
    return low + (high - low) / 2


def blocks(kernel, m, sigma, rho):
    """(…, n, n): the value of every block a..b of chains m (…, n), inf where b < a."""
    n = m.shape[-1]
    sums, weights = (
        np.concatenate([np.zeros((*v.shape[:-1], 1)), np.cumsum(v, -1)], -1) for v in (m, sigma)
    )
    a, b = np.triu_indices(n)
    count = b + 1 - a
    mean, c = (
        (sums[..., b + 1] - sums[..., a]) / count,
        (weights[..., b + 1] - weights[..., a]) / (rho * count),
    )
    values = np.full((*m.shape[:-1], n, n), np.inf)
    values[..., a, b] = prox(kernel, np.maximum(c, 0.0), mean)
    return values


def extremal(values):
    """z_i = max over a <= i of min over b >= i of the value of block a..b."""
    return np.stack([values[..., : i + 1, i:].min(-1).max(-1) for i in range(values.shape[-1])], -1)


def chain(kernel, m, sigma, rho):
    """z (…, n) of chains m (…, n), in any order."""
    return extremal(blocks(kernel, m, sigma, rho))


def objective(kernel, m, sigma, rho, z):
    """Omega(z) + rho / 2 ||z - m||^2."""
    return (np.sort(loss(kernel, z), -1) * sigma).sum(-1) + rho / 2 * ((z - m) ** 2).sum(-1)


def least_of_all_orders(kernel, m, sigma, rho):
    """The least objective over every order the entries could have: the global minimum, whatever
    sigma.
    """
    orders = np.array(list(itertools.permutations(range(len(m)))))
    size = np.abs(m) if kernel.even else m
    z = chain(kernel, size[orders], np.broadcast_to(sigma, orders.shape), rho)
    costs = (loss(kernel, z) * sigma).sum(1) + rho / 2 * ((z - size[orders]) ** 2).sum(1)
    return costs.min()


def prospect_value(kernel, z, below, above, at):
    """Omega with one weight sequence up to ``at`` and another beyond, lower semicontinuous: the
    best count of a tie.
    """
    size = np.sort(np.abs(z) if kernel.even else z)
    losses = loss(kernel, size)
    first, last = np.searchsorted(size, at, "left"), np.searchsorted(size, at, "right")
    return min(
        (below[:j] * losses[:j]).sum() + (above[j:] * losses[j:]).sum()
        for j in range(first, last + 1)
    )


def prospect_least(kernel, m, below, above, at, rho):
    """The least objective over all splits, each a chain clipped at the reference."""
    size, best = np.sort(np.abs(m) if kernel.even else m), np.inf
    left, right = blocks(kernel, size, below, rho), blocks(kernel, size, above, rho)
    for j in range(len(m) + 1):
        low = np.minimum(extremal(left[:j, :j]), at) if j else size[:0]
        high = np.maximum(extremal(right[j:, j:]), at) if j < len(m) else size[:0]
        cost = (below[:j] * loss(kernel, low)).sum() + (above[j:] * loss(kernel, high)).sum()
        best = min(best, cost + rho / 2 * ((np.concatenate([low, high]) - size) ** 2).sum())
    return best


def threshold_step(kernel, m, first, last, weight, rho):
    """The step for sigma = ``weight`` on ranks first <= r < last and 0 elsewhere, by partition
    alone.

    Below ``first`` and from ``last`` on nothing moves alone, the ranks between are proxes. Only
    where the lowest of these cross what stays below is there anything to pool, and that is one
    block: its value v solves

        sum over the entries in it of (v - m_i) + (how many of its ranks have weight) * weight / rho
        * l'(v) = 0

    with the entries m_i > v below, prox(m_i) < v between: a decreasing and an increasing set, so v
    by bisection.
    """
    n = len(m)
    order = np.argpartition(m, [r for r in (first, last) if r < n])
    below, between, c = order[:first], order[first:last], weight / rho
    z = m.copy()
    z[between] = prox(kernel, np.full(len(between), c), m[between])
    if first == 0 or z[between].min() >= m[below].max():
        return z
    low, high = z[between].min(), m[below].max()
    for _ in range(200):
        v = low + (high - low) / 2
        pull = np.maximum(m[below] - v, 0.0).sum()
        push = np.maximum(v + c * gradient(kernel, np.array(v)) - m[between], 0.0).sum()
        low, high = (low, v) if push > pull else (v, high)
    z[below] = np.minimum(m[below], high)
    z[between] = np.maximum(z[between], low)
    return z
