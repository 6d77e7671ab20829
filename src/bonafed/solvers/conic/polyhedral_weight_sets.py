"""The worst client weights over polytopes of the simplex, as part of a conic program.

``weight_sets`` explains the idea. Each form is the dual of a linear program; every set also has q
>= 0 and sum q = 1.

    Bounded      Q = {l <= q <= u}:  <l, z> + min over t   (1 - sum l) t + <u - l, max(z - t, 0)>
    Deviations  Q = {|q_i - c_i| <= b_i, sum |q_i - c_i| / b_i <= m}:
            in q = c + b (U - V), 0 <= U <= 1, V <= c / b
                 <c, z> + min over g, k >= 0  m k + sum max(b (z - g) - k, 0) + <min(1, c / b),
                 max(b (g - z) - k, 0)>
    Moved        Q = {q: moving c to q costs at most r}, positions x ascending:
                 min over k >= 0 and h >= z with |h_i - h_j| <= k |x_i - x_j| for neighbours
                         r k + <c, h>
                 and for costs C of any pair:  h_i >= z_j - k C_ij instead
    Cut          Q = {D q <= d}:  min over g, y >= 0 with g + D'y >= z   g + <d, y>
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bonafed.arrays import Array
from bonafed.solvers.conic.builder import ConicSolution, Index, Model
from bonafed.solvers.conic.weight_sets import Reader


@dataclass(frozen=True)
class Bounded:
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

        def read(solution: ConicSolution) -> Array:
            q = np.array(self.lower)
            q[free] += solution.z[handle]
            return q

        return read


@dataclass(frozen=True)
class Deviations:
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
        down = self._side(
            model, z, give, (g, k), -1.0, np.minimum(1.0, self.prior[give] / self.bounds[give])
        )

        def read(solution: ConicSolution) -> Array:
            q = np.array(self.prior)
            q[free] += self.bounds[free] * solution.z[up]
            q[give] -= self.bounds[give] * solution.z[down]
            return q

        return read

    def _side(
        self,
        model: Model,
        z: Index,
        who: Index,
        shared: tuple[Index, Index],
        sign: float,
        room: Array,
    ) -> slice:
        """Add <room, max(sign b (z - g) - k, 0)> to the objective; returns the duals' rows."""
        (g, k), bound, over = shared, self.bounds[who], model.positive(room)
        return model.nonneg(
            [(over, 1.0), (z[who], -sign * bound), (g, sign * bound), (k, np.ones(len(who)))]
        )


@dataclass(frozen=True)
class Moved:
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


@dataclass(frozen=True)
class Cut:
    """The weights with D q <= limit."""

    D: Array  # (m, N)
    limit: Array  # (m,)

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the dual of g + D'y >= z."""
        g = model.variable()
        model.linear(g, 1.0)
        rows: list = [(g, np.ones(len(z))), (z, -1.0)]
        if len(self.limit):
            y = model.positive(self.limit)
            rows.append((y, self.D.T))
        handle = model.nonneg(rows)
        return lambda solution: solution.z[handle]
