"""Worst cases and projections of client weights within a transport budget of a prior.

    Q = { q : T >= 0,  T1 = c,  T'1 = q,  sum_ij T_ij cost_ij <= budget },
            c a point of the simplex, cost_ii = 0

The worst case, with the transport multiplier mu of the budget:

    max_{q in Q} z'q = min_{mu >= 0}  mu budget + sum_i c_i max_j (z_j - mu cost_ij)
            any mu is a bound

For a fixed mu each client's weight goes where z_j - mu cost_ij is largest, O(N^2) for any costs.
For clients at positions x on a line, cost_ij = |x_i - x_j|, these are two running maxima, O(N). The
multiplier is computed as for the CD-norm.

The nearest point, on a line: for a fixed mu the potentials u minimise

    sum_i c_i u_i + max(v_i - u_i, 0)^2 / 2    subject to    |u_{i+1} - u_i| <= mu (x_{i+1} - x_i)

and q = max(v - u, 0). Forward, the derivative of the best cost up to i as a function of u_i is
piecewise linear and rising: it is kept as its breaks on either side of its zero, in two heaps,
since the next gap moves all breaks on the left down and all on the right up by the same. Backward,
each u_i is the point of its zero nearest to u_{i+1}. This is O(N log N) or a little more, and the
transport q costs falls with mu. Clients whose potentials differ by as much as they may form blocks;
the sum of q over a block is that of c, so that q and its derivative in mu are computed block by
block, to rounding, and Newton's method finds mu.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bonafed.arrays import Array
from bonafed.solvers.sets import projections
from bonafed.solvers.sets.box_and_cd_norm import Point, at_budget
from bonafed.solvers.sets.projections import EPS, Worst, decreasing_root, fraction, project_simplex

NEVER = 1e300  # a multiplier at which only moves of cost 0 pay
FAR = 1e3  # beyond this spread of v its nearest point is computed as a mix of vertices

# -- worst case ------------------------------------------------------------------------------------


class _Costs(NamedTuple):
    """Costs in units of the largest: sorted positions from 0 to 1, or a matrix.

    ``order`` is the order of the clients in it.
    """

    order: NDArray[np.intp]
    scale: float
    x: Array

    def targets(self, z: Array, multiplier: float) -> tuple[NDArray[np.intp], int]:
        """The target of each weight, and over how many sums the largest value was carried."""
        if self.x.ndim == 1:
            return _along(z, np.diff(self.x), multiplier)
        return _anywhere(z, self.x, multiplier), 1

    def paid(self, to: NDArray[np.intp]) -> Array:
        """The cost of each weight's way to its target."""
        return np.abs(self.x - self.x[to]) if self.x.ndim == 1 else self.x[np.arange(len(to)), to]


def _costs(cost: Array) -> _Costs:
    order = np.argsort(cost, kind="stable") if cost.ndim == 1 else np.arange(len(cost))
    x = cost[order] - cost[order[0]] if cost.ndim == 1 else np.ascontiguousarray(cost)
    scale = float(x.max()) or 1.0
    return _Costs(order, scale, x / scale)


def largest_by_transport(losses: Array, prior: Array, budget: float, cost: Array) -> Worst:
    """A maximiser of losses'q over Q, and an upper bound.

    ``cost`` holds positions (N,) or a matrix (N, N).
    """
    scale, costs, carried = projections.scaled(losses), _costs(cost), 1
    z, c, budget = scale.z[costs.order], prior[costs.order], budget / costs.scale

    def point(multiplier: float) -> Point:
        nonlocal carried
        to, carried = costs.targets(z, multiplier)
        return Point(float(c @ (z[to] - z)), float(c @ costs.paid(to)), to)

    best = at_budget(point, point(NEVER), budget)
    to = costs.targets(z, best.multiplier)[0]
    u = z[to] - best.multiplier * costs.paid(to)
    base, paid = float(c @ u), best.multiplier * budget
    rich, lean = (np.bincount(to, c, len(c)) for to in (best.rich, best.lean))
    q = np.empty_like(c)
    q[costs.order] = (1 - best.share) * lean + best.share * rich
    return q / q.sum(), scale.bound(paid + base, paid + float(c @ np.abs(u)) + carried / 16)


@njit(cache=True)
def _along(z, gaps, multiplier):
    """For every i the position of the largest z_j - multiplier |x_i - x_j|, and the longest way.

    Of equal values the nearest one counts.
    """
    n = len(z)
    to, best, run, longest = np.arange(n), z.copy(), 0, 1
    for i in range(1, n):
        carried, run = best[i - 1] - multiplier * gaps[i - 1], run + 1
        if carried > best[i]:
            best[i], to[i] = carried, to[i - 1]
            longest = max(longest, run)
        else:
            run = 0
    value, at, run = z[n - 1], n - 1, 0
    for i in range(n - 2, -1, -1):
        value, run = value - multiplier * gaps[i], run + 1
        longest = max(longest, run)
        if value <= z[i]:
            value, at, run = z[i], i, 0
        elif value > best[i]:
            best[i], to[i] = value, at
    return to, longest


@njit(cache=True)
def _anywhere(z, cost, multiplier):
    """The same for any costs; of equal values the cheapest one counts."""
    n = len(z)
    to = np.arange(n)
    for i in range(n):
        best, paid = z[i], 0.0
        for j in range(n):
            value = z[j] - multiplier * cost[i, j]
            if value > best or (value == best and cost[i, j] < paid):
                best, paid, to[i] = value, cost[i, j], j
    return to


# -- membership and the nearest point --------------------------------------------------------------


def line_cost(q: Array, prior: Array, positions: Array) -> float:
    """The transport cost from the weights ``prior`` to ``q`` along a line; both sum to one."""
    order = np.argsort(positions, kind="stable")
    return _line_cost((q - prior)[order], np.diff(positions[order]))


def matrix_cost(q: Array, prior: Array, cost: Array, tol: float) -> float:
    """The least transport cost from ``prior`` to weights within ``tol`` of ``q``; inf if none are.

    It is computed by a linear program.
    """
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron

    n = len(q)
    ones, unit, scale = np.ones((1, n)), eye_array(n), float(cost.max()) or 1.0
    taken = {"A_ub": kron(ones, unit, "csr"), "b_ub": np.maximum(q, 0.0) + tol}
    given = {"A_eq": kron(unit, ones, "csr"), "b_eq": prior}
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    program: Any = linprog(cost.ravel() / scale, **taken, **given, options=options)
    return scale * float(program.fun) if program.status == 0 else np.inf


def project_on_line(v: Array, prior: Array, budget: float, positions: Array) -> Array:
    """The nearest point of Q for clients on a line."""
    costs = _costs(positions)
    x, c, budget = costs.x, prior[costs.order], budget / costs.scale
    y, gaps = (v - v.max())[costs.order], np.diff(x)
    # q = v - u would lose its digits here, and the nearest point mixes few vertices
    if y.min() < -FAR:
        return project_by_transport(v, prior, budget * costs.scale, positions)

    near = project_simplex(y)
    if _line_cost(near - c, gaps) > budget:
        near = _within(near, y, c, gaps, budget) if budget else _at_home(y, c, x)
    near = near / near.sum()
    paid = _line_cost(near - c, gaps)
    if paid > budget > 0:
        near = c + budget / paid * (near - c)
    q = np.empty_like(c)
    q[costs.order] = near
    return q


def _line_cost(d: Array, gaps: Array) -> float:
    return float(np.abs(np.cumsum(d)[:-1]) @ gaps)


def project_by_transport(v: Array, prior: Array, budget: float, cost: Array) -> Array:
    """The nearest point of Q for any costs, by its vertices."""
    return projections.nearest_point(v, lambda g: largest_by_transport(g, prior, budget, cost)[0])


def _at_home(y: Array, c: Array, x: Array) -> Array:
    """The nearest point without a budget: weights move among clients at one position only."""
    q = np.zeros_like(c)
    for place in np.unique(x[c > 0]):
        q[x == place] = project_simplex(y[x == place], float(c[x == place].sum()))
    return q


def _within(free: Array, y: Array, c: Array, gaps: Array, budget: float) -> Array:
    """A mix of the points on either side of the multiplier at which the cost equals the budget.

    ``free`` is the point at multiplier 0; the cost falls with the multiplier.
    """
    seen: dict[float, Array] = {}

    def over(multiplier: float) -> tuple[float, float]:
        seen[multiplier], change = _nearest(y, c, gaps, multiplier)
        return _excess(seen[multiplier] - c, change, gaps, budget)

    flow = np.sign(np.cumsum(free - c)[:-1])
    paid, gradient = _excess(free - c, _by_block(y, c, gaps, flow, 0.0)[1], gaps, budget)
    low, high = 0.0, -paid / gradient if gradient < 0 else 1.0
    while over(high)[0] > 0 and high < NEVER:
        low, high = high, 8 * high
    start = min(high, low + (high - low) / 2) if low else high
    ends = decreasing_root(over, low, high, start, 4 * EPS * budget)
    rich, lean = (seen[k] if k in seen else _nearest(y, c, gaps, k)[0] for k in ends)
    most, least = _line_cost(rich - c, gaps), _line_cost(lean - c, gaps)
    return lean + fraction(budget - least, most - least) * (rich - lean)


def _excess(d: Array, change: Array, gaps: Array, budget: float) -> tuple[float, float]:
    """The cost of the moves d beyond the budget, and its derivative along ``change``."""
    flow, more = np.cumsum(d)[:-1], np.cumsum(change)[:-1]
    return float(np.abs(flow) @ gaps) - budget, -max(-float((np.sign(flow) * more) @ gaps), 0.0)


def _nearest(v: Array, c: Array, gaps: Array, multiplier: float) -> tuple[Array, Array]:
    """q for a fixed multiplier, and its derivative in it."""
    return _by_block(v, c, gaps, _falls(v, c, gaps, multiplier), multiplier)


@njit(cache=True)
def _by_block(v, c, gaps, fall, multiplier):
    """q = max(v - base - multiplier * offset, 0), with its derivative in the multiplier.

    Every block has one base; within it u falls by fall * gap.
    """
    n = len(v)
    q, change, offset = np.zeros(n), np.zeros(n), np.zeros(n)
    stop = n
    while stop > 0:
        start, total = stop - 1, c[stop - 1]
        while start > 0 and fall[start - 1] != 0.0:
            start -= 1
            offset[start] = offset[start + 1] + fall[start] * gaps[start]
            total += c[start]
        base, count = -np.inf, 0
        while total > 0.0:  # keep the entries above the base until they stay the same
            more, sum_v, sum_offset = 0, 0.0, 0.0
            for i in range(start, stop):
                left = v[i] - multiplier * offset[i]
                if left > base:
                    more, sum_v, sum_offset = more + 1, sum_v + left, sum_offset + offset[i]
            if more == 0 or more >= count > 0:
                break
            count, base = more, (sum_v - total) / more
        for i in range(start, stop):
            left = v[i] - multiplier * offset[i]
            if count > 0 and left > base:
                q[i], change[i] = left - base, sum_offset / count - offset[i]
        stop = start
    return q, change


@njit(cache=True)
def _push(keys, weights, size, key, weight):
    """Add to a heap with the largest key first."""
    at = size
    while at > 0 and keys[(at - 1) // 2] < key:
        keys[at], weights[at] = keys[(at - 1) // 2], weights[(at - 1) // 2]
        at = (at - 1) // 2
    keys[at], weights[at] = key, weight
    return size + 1


@njit(cache=True)
def _pop(keys, weights, size):
    """Remove the first entry; returns how many are left."""
    size -= 1
    key, weight, at = keys[size], weights[size], 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[at], weights[at] = keys[child], weights[child]
        at = child
    keys[at], weights[at] = key, weight
    return size


@njit(cache=True)
def _falls(v, c, gaps, multiplier):
    """(n - 1,) of 1 and -1 where u falls and rises as steeply as it may, else 0, for a multiplier.

    A break (position, weight) on the left raises the gradient by its weight on the way down, one on
    the right on the way up. Positions are kept minus the shift of their side, on the right negated.
    """
    n = len(v)
    lk, lw, rk, rw = np.empty(3 * n), np.empty(3 * n), np.empty(3 * n), np.empty(3 * n)
    # both sides are shifted by the same amount, away from the zero
    ln, rn, shift, zero = 0, 0, 0.0, np.empty(n)
    for i in range(n):
        if i > 0:
            shift += multiplier * gaps[i - 1]
        low = lk[0] - shift if ln > 0 else -np.inf
        high = shift - rk[0] if rn > 0 else np.inf
        # the derivative at u and its gradient; between low and high the derivative was 0 before
        h, gradient = c[i], 1.0
        if v[i] <= low:
            u, gradient = low, 0.0
            ln = _push(lk, lw, ln, v[i] + shift, 1.0)
        else:
            u = min(v[i], high)
            h -= v[i] - u
            rn = _push(rk, rw, rn, shift - v[i], -1.0)
        if h == 0.0 and gradient == 0.0:
            zero[i] = u
            continue
        while h > 0.0 and ln > 0 and u - (lk[0] - shift) < _distance(h, gradient):
            at, weight = lk[0] - shift, lw[0]
            ln = _pop(lk, lw, ln)
            rn = _push(rk, rw, rn, shift - at, -weight)
            h, u, gradient = h - gradient * (u - at), at, gradient + weight
        while h < 0.0 and rn > 0 and shift - rk[0] - u < _distance(-h, gradient):
            at, weight = shift - rk[0], rw[0]
            rn = _pop(rk, rw, rn)
            ln = _push(lk, lw, ln, at + shift, -weight)
            h, u, gradient = h + gradient * (at - u), at, gradient + weight
        zero[i] = u - h / gradient if gradient > 0.0 else u
        ln = _push(lk, lw, ln, zero[i] + shift, gradient)
        rn = _push(rk, rw, rn, shift - zero[i], gradient)
    # backwards: every u_i is the point nearest to ``zero`` that u_{i+1} allows
    fall = np.zeros(n - 1)
    for i in range(n - 2, -1, -1):
        reach = multiplier * gaps[i]
        if zero[i] <= zero[i + 1] - reach:
            zero[i], fall[i] = zero[i + 1] - reach, -1.0
        elif zero[i] >= zero[i + 1] + reach:
            zero[i], fall[i] = zero[i + 1] + reach, 1.0
    return fall


@njit(cache=True)
def _distance(h, gradient):
    """How far a line of this gradient goes until it has changed by h."""
    return h / gradient if gradient > 0.0 else np.inf
