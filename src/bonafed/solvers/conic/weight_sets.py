"""The worst weighting of N numbers over a set Q, as part of a conic program.

    phi(z) = max { <q, z> : q in Q }

    Ball  Q = {q in the simplex: ||q - prior||_p <= radius}; the dual form of Bai, Wong, Qiao and
    Ho, (4):
            min over eta >= 0, g   prior'(z + eta) + radius ||z + g e + eta||_{p*},   1/p + 1/p* = 1
    Tails  phi(z) = sum_k share_k max { <q, z> : q in the simplex, q <= caps_k }; Rockafellar and
    Uryasev's form:
            min over t_k           sum_k share_k (t_k + <caps_k, max(z - t_k, 0)>)

    Sorted  Q = conv {sigma in any order}, sigma ascending; z goes through a sorting network of
            relaxed comparators: min <sigma, z^T>,  (a, b) -> (lo, hi):  hi >= a,  hi >= b,  lo + hi
            = a + b (Goemans, *Smallest compact formulation for the permutahedron*: the dual of his
            description of Q)

Curved sets around a prior are in ``curved_weight_sets``, polytopes in ``polyhedral_weight_sets``;
``Members`` is for sets of which only a maximiser is known.

Ascending weights of a spectral risk are also tails: sigma = sum_i (sigma_i - sigma_{i-1}) (0, ...,
0, 1, ..., 1), so that sum_i sigma_i z_[i] = sum_i (sigma_i - sigma_{i-1}) m (mean of the m = n - i
+ 1 largest): one tail for each jump. Few jumps make the smaller program as tails, many as a
network.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import ConicSolution, Index, Model
from bonafed.solvers.sets.projections import dual_exponent

Reader = Callable[[ConicSolution], Array]  # reads the worst weighting q (N,) off the duals


class Weighting(Protocol):
    """A set Q of weightings in conic form."""

    # Add phi(z) to the objective of ``model``, in linear costs only.
    def add(self, model: Model, z: Index) -> Reader: ...


def _reader(handle: slice, base: Array, at: Index) -> Reader:
    """Reads the duals, which are added to the weights ``base`` at some places."""

    def read(solution: ConicSolution) -> Array:
        q = np.array(base)
        q[at] += solution.z[handle]
        return q

    return read


class Ball(NamedTuple):
    """The weightings within ``radius`` of ``prior`` in the p-norm.

    Radius 0 is the prior only, inf the whole simplex.
    """

    prior: Array  # (N,)
    radius: float
    p: float

    def add(self, model: Model, z: Index, larger: bool = False) -> Reader:
        """Add phi(z) to the objective; q is the dual of eta >= 0.

        Where nothing bounds z from above (``larger``), z + eta is such numbers z itself.
        """
        if self.radius == 0:
            model.linear(z, self.prior)
            return lambda solution: np.array(self.prior)
        if math.isinf(self.radius):
            top = model.variable()
            model.linear(top, 1.0)
            handle = model.nonneg([(top, 1.0), (z, -1.0)])
            return lambda solution: solution.z[handle]
        eta = z[:0] if larger else model.positive(self.prior)
        handle = slice(model.height - len(eta), model.height)
        gamma, size = model.variable(), model.variable()
        model.linear(z, self.prior)
        model.linear(size, self.radius)
        rows = [(z, 1.0), (gamma, np.ones(len(z))), *([] if larger else [(eta, 1.0)])]
        model.norm_at_most(rows, [(size, 1.0)], dual_exponent(self.p))
        return lambda solution: solution.z[handle]


class Tails(NamedTuple):
    """A mixture of means of the largest numbers, with weights ``share`` (K,) >= 0.

    The weights within tail k are at most ``caps`` k.
    """

    share: Array  # (K,)
    caps: Array  # (K, N), each row with a sum >= 1

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the sum of the duals of t_k + slack >= z."""
        fixed, handles = np.zeros(len(z)), []
        for share, caps in zip(self.share, self.caps, strict=True):
            if caps.sum() <= 1 + 1e-15 * len(z):  # the caps are the weights
                fixed += share * caps
                continue
            t = model.variable()
            model.linear(t, share)
            rows = [(t, 1.0), (z, -1.0)]
            if caps.min() < 1:  # otherwise the tail is the largest number, which t bounds
                rows.append((model.positive(share * caps), 1.0))
            handles.append(model.nonneg(rows))
        model.linear(z, fixed)
        return lambda solution: fixed + sum(solution.z[handle] for handle in handles)


class Sorted(NamedTuple):
    """The convex hull of all orders of ``sigma`` (N,), which is ascending: a permutahedron."""

    sigma: Array

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the dual of z^0 >= z."""
        start = model.variable(len(z))
        handle = model.nonneg([(start, 1.0), (z, -1.0)])
        wires = start.copy()  # where each number is now; a model keeps its own copy of indices
        for first, second in comparators(len(z)):
            a, b = wires[first], wires[second]
            lo, hi = model.variable(len(first)), model.variable(len(first))
            model.nonneg([(hi, 1.0), (a, -1.0)])
            model.nonneg([(hi, 1.0), (b, -1.0)])
            model.zero([(lo, 1.0), (hi, 1.0), (a, -1.0), (b, -1.0)])
            wires[first], wires[second] = lo, hi
        model.linear(wires, self.sigma)
        return lambda solution: solution.z[handle]


@dataclass(frozen=True, eq=False)
class Members:
    """The convex hull of some weightings of a set of which only a maximiser is known.

    Its phi is a lower bound, exact once the hull has grown enough: the program is solved over
    these, the maximiser at its z is added, and so on until that is no larger (Kelley's cutting
    planes for phi).
    """

    known: Array  # (K, N) weightings of Q
    maximiser: Callable[[Array], Array]  # z (N,) -> a weighting of Q with the largest <q, z>

    def add(self, model: Model, z: Index) -> Reader:
        """Add the largest of <q_k, z> to the objective; the duals are the weights of the q_k."""
        top = model.variable()
        model.linear(top, 1.0)
        handle = model.nonneg([(top, np.ones(len(self.known))), (z, -self.known)])
        return lambda solution: solution.z[handle] @ self.known

    def grown(self, z: Array, slack: float) -> "Members | None":
        """With the worst weighting at z added; None where that gains at most ``slack``."""
        q = self.maximiser(z)
        if float(q @ z) <= float((self.known @ z).max()) + slack:
            return None
        return Members(np.vstack([self.known, q]), self.maximiser)


def of_ranks(sigma: Array) -> Tails | Sorted:
    """Ascending weights by rank (N,) as tails or a sorting network, whichever is smaller.

    Jumps of rounding size do not count.
    """
    n = len(sigma)
    jump = np.diff(sigma, prepend=0.0)
    at = np.flatnonzero(jump > 1e-15 * sigma[-1])
    if len(at) * n > 2 * sum(len(first) for first, _ in comparators(n)) + n:
        return Sorted(sigma)
    largest = n - at  # how many numbers the tail averages
    return Tails(jump[at] * largest, np.repeat(1.0 / largest[:, None], n, 1))


def comparators(n: int) -> list[tuple[Index, Index]]:
    """Batcher's odd-even merge sort of n numbers, as layers of independent comparisons.

    Each layer holds pairs (lower wire, upper wire).
    """
    layers, p = [], 1
    while p < n:
        k = p
        while k >= 1:
            starts = range(k % p, n - k, 2 * k)
            wire = np.concatenate([np.arange(j, min(j + k, n - k)) for j in starts])
            wire = wire[wire // (2 * p) == (wire + k) // (2 * p)]
            layers.append((wire, wire + k))
            k //= 2
        p *= 2
    return layers


# The worst client weights over curved sets around a prior c, as part of a conic program.
#
# ``weight_sets`` explains the idea.
#
#     Entropy    Q = {q in the simplex: sum q log(q / c) <= r}
#                phi(z) = min over s >= 0, g  g + (r - 1) s + sum_i c_i s exp((z_i - g) / s),
#                        c_i = 0 left out
#   Elliptic   Q = {q in the simplex: (q - c)' (F F')^-1 (q - c) <= r^2},   F a diagonal or a matrix
#                phi(z) = min over eta >= 0, g   c'(z + eta) + r ||F'(z + eta - g)||_2
#
#     NearEntropy  ``Entropy`` to second order near weights p, where r has the multiplier k:
#                phi(z) = max over q in the simplex   <q, z> - k sum (q - p)^2 / 2 p
#                                                    with   <q, log(p / c)> <= r
#                       = min over t >= 0, g, u   g + r t + <sqrt(k p), u> + ||u||^2 / 2
#                                         with   z <= g + t log(p / c) + sqrt(k / p) u
#
# ``Elliptic`` is what ``Ball`` has for F = 1 and p = 2. Programs over ``NearEntropy``, each near
# the solution of the last one, are Newton's method for the program over ``Entropy``, also where r
# binds nothing and k is 0.

LEAST = 1e-15  # a weight near which there is a second order


class Entropy(NamedTuple):
    """The weights q whose Kullback-Leibler divergence from ``prior`` is at most ``radius`` > 0."""

    prior: Array  # (N,)
    radius: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is minus the duals of the exponents."""
        return self._add(model, z)[0]

    def add_nearing(self, model: Model, z: Index) -> "Nearing":
        """The same; a solution tells near which weights the program is to be solved again."""
        read, s = self._add(model, z)
        return lambda solution: NearEntropy(self, read(solution), float(solution.x[s[0]]))

    def _add(self, model: Model, z: Index) -> tuple[Reader, Index]:
        """Add phi(z); the reader, and the place of s, the multiplier of the radius."""
        inside = np.flatnonzero(self.prior > 0)
        g, s, part = model.variable(), model.variable(), model.variable(len(inside))
        model.linear(g, 1.0)
        model.linear(s, self.radius - 1)
        model.linear(part, self.prior[inside])
        over: list = [(z[inside], 1.0), (g, -np.ones(len(inside)))]
        handle = model.exponential(over, [(s, 1.0)], [(part, 1.0)])

        def read(solution: ConicSolution) -> Array:
            q = np.zeros(len(z))
            q[inside] = -solution.z[handle][::3]
            return q

        return read, s


class NearEntropy(NamedTuple):
    """The weights of ``Entropy`` to second order near some of them."""

    of: Entropy
    weights: Array  # (N,) p, of any sum
    multiplier: float  # k >= 0 of the radius

    def add_nearing(self, model: Model, z: Index) -> "Nearing":
        """Add phi(z) to the objective, for z that nothing bounds from above; a solution tells near
        which weights to solve again.
        """
        inside = np.flatnonzero(self.of.prior > 0)
        p, k = np.maximum(self.weights[inside], LEAST), max(self.multiplier, 0.0)
        p, most, size = p / p.sum(), max(k, 1.0), math.sqrt(self.of.radius)
        n, g, u, half = len(p), model.variable(), model.variable(len(p)), model.variable()
        t = model.positive(size)  # in the unit of k where the ball is small, as u and half are
        model.linear(g, 1.0)
        model.linear(u, np.sqrt(k / most * p))
        model.linear(half, 1 / most)
        tilt = np.log(p / self.of.prior[inside]) / size
        rows = [(g, np.ones(n)), (t, tilt), (u, np.sqrt(k / most / p))]
        handle = model.nonneg([*rows, (z[inside], -1.0)])
        # ||u||^2 / 2 <= half
        model.soc([(half, 1.0), 0.5], [(np.append(u, half), 1.0), np.append(np.zeros(n), -0.5)])

        read = _reader(handle, np.zeros(len(z)), inside)
        return lambda at: NearEntropy(self.of, read(at), float(at.x[t[0]]) / size)

    def apart(self, other: "NearEntropy") -> float:
        """The largest difference of weights or multipliers."""
        most = max(1.0, self.multiplier, other.multiplier)
        change = abs(self.multiplier - other.multiplier) / most
        return max(change, float(np.abs(self.weights - other.weights).max()))


Nearing = Callable[[ConicSolution], NearEntropy]


class Elliptic(NamedTuple):
    """The weights q with (q - prior)' (factor factor')^-1 (q - prior) <= size^2, size > 0."""

    prior: Array  # (N,)
    factor: Array  # (N,) the diagonal, 0 where q is the prior; or (N, N)
    size: float

    def add(self, model: Model, z: Index, larger: bool = False) -> Reader:
        """As of ``Ball``; q is the dual of eta >= 0."""
        diagonal = self.factor.ndim == 1
        free = np.flatnonzero(self.factor if diagonal else np.ones(len(z)))  # other q are the prior
        eta = z[:0] if larger else model.positive(self.prior[free])
        handle = slice(model.height - len(eta), model.height)
        unit = float(np.abs(self.factor).max())
        weight = (self.factor[free] if diagonal else self.factor.T) / unit
        g, norm = model.variable(), model.variable()
        model.linear(z, self.prior)
        model.linear(norm, self.size * unit)
        level = (g, -weight) if diagonal else (g, -weight.sum(1)[:, None])
        more = [] if larger else [(eta, weight)]
        model.soc([(norm, 1.0)], [(z[free], weight), *more, level])
        base = self.prior.copy()
        base[free] = 0.0
        return _reader(handle, base, free)


# The worst client weights over polytopes of the simplex, as part of a conic program.
#
# ``weight_sets`` explains the idea. Each form is the dual of a linear program; every set also has q
# >= 0 and sum q = 1.
#
#     Bounded      Q = {l <= q <= u}:  <l, z> + min over t   (1 - sum l) t + <u - l, max(z - t, 0)>
#     Deviations  Q = {|q_i - c_i| <= b_i, sum |q_i - c_i| / b_i <= m}:
#             in q = c + b (U - V), 0 <= U <= 1, V <= c / b
#                  <c, z> + min over g, k >= 0  m k + sum max(b (z - g) - k, 0) + <min(1, c / b),
#                  max(b (g - z) - k, 0)>
#     Moved        Q = {q: moving c to q costs at most r}, positions x ascending:
#                  min over k >= 0 and h >= z with |h_i - h_j| <= k |x_i - x_j| for neighbours
#                          r k + <c, h>
#                  and for costs C of any pair:  h_i >= z_j - k C_ij instead
#     Cut          Q = {D q <= d}:  min over g, y >= 0 with g + D'y >= z   g + <d, y>


class Bounded(NamedTuple):
    """The weights with lower <= q <= upper, where sum lower <= 1 <= sum upper."""

    lower: Array  # (N,) >= 0
    upper: Array  # (N,)

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q - lower is the dual of t + slack >= z."""
        model.linear(z, self.lower)
        room, left = self.upper - self.lower, 1 - float(self.lower.sum())
        free = np.flatnonzero(room > 0)
        if left <= 1e-15 * len(z) or len(free) == 0:  # the set is one point
            return lambda solution: np.array(self.lower)
        t = model.variable()
        model.linear(t, left)
        slack = model.positive(room[free])
        handle = model.nonneg([(t, np.ones(len(free))), (slack, 1.0), (z[free], -1.0)])
        return _reader(handle, self.lower, free)


class Deviations(NamedTuple):
    """The weights with |q - prior| <= bounds and relative deviations of sum at most ``budget``."""

    prior: Array  # (N,)
    bounds: Array  # (N,) >= 0
    budget: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; U and V are the duals of the two kinds of rows."""
        model.linear(z, self.prior)
        free = np.flatnonzero(self.bounds > 0)
        if len(free) == 0 or self.budget == 0:
            return lambda solution: np.array(self.prior)
        g, k = model.variable(), model.positive(self.budget)
        give = free[self.prior[free] > 0]
        up = self._side(model, z, free, (g, k), 1.0, np.ones(len(free)))
        room = np.minimum(1.0, self.prior[give] / self.bounds[give])
        down = self._side(model, z, give, (g, k), -1.0, room)

        def read(solution: ConicSolution) -> Array:
            q = np.array(self.prior)
            q[free] += self.bounds[free] * solution.z[up]
            q[give] -= self.bounds[give] * solution.z[down]
            return q

        return read

    def _side(self, model: Model, z: Index, who: Index, gk: Any, sign: float, room: Array) -> slice:
        """Add <room, max(sign b (z - g) - k, 0)> to the objective; returns the duals' rows."""
        (g, k), bound, over = gk, sign * self.bounds[who], model.positive(room)
        return model.nonneg([(over, 1.0), (z[who], -bound), (g, bound), (k, np.ones(len(who)))])


class Moved(NamedTuple):
    """The weights within a transport cost of at most ``radius`` > 0 from ``prior``."""

    prior: Array  # (N,)
    radius: float
    cost: Array  # (N,) positions, or (N, N) from row to column

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q_j is the sum of the duals of the rows with z_j."""
        most = float(np.ptp(self.cost))
        # costs in units of the largest
        k = model.positive(self.radius / most if most > 0 else 1.0)
        if self.cost.ndim == 1:
            return self._line(model, z, k, most)
        source = np.flatnonzero(self.prior > 0)
        h = model.variable(len(source))
        model.linear(h, self.prior[source])
        i, j = (part.ravel() for part in np.indices((len(source), len(z))))
        cost = self.cost[source[i], j] / (most or 1.0)
        handle = model.nonneg([(h[i], 1.0), (z[j], -1.0), (k, cost)])
        return lambda solution: np.bincount(j, solution.z[handle], len(z)).astype(float)

    def _line(self, model: Model, z: Index, k: Index, most: float) -> Reader:
        place, at = np.unique(self.cost, return_inverse=True)
        h = model.variable(len(place))
        model.linear(h[at], self.prior)
        handle = model.nonneg([(h[at], 1.0), (z, -1.0)])
        if len(place) > 1:
            gap = np.diff(place / most)
            for sign in (1.0, -1.0):
                model.nonneg([(k, gap), (h[1:], sign), (h[:-1], -sign)])
        return lambda solution: solution.z[handle]


class Cut(NamedTuple):
    """The weights with D q <= limit."""

    D: Array  # (m, N)
    limit: Array  # (m,)

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the dual of g + D'y >= z."""
        g = model.variable()
        model.linear(g, 1.0)
        rows: list = [(g, np.ones(len(z))), (z, -1.0)]
        if len(self.limit):
            rows.append((model.positive(self.limit), self.D.T))
        handle = model.nonneg(rows)
        return lambda solution: solution.z[handle]
