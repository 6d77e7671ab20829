"""The worst client weights over curved sets around a prior c, as part of a conic program.

``weight_sets`` explains the idea.

    Entropy    Q = {q in the simplex: sum q log(q / c) <= r}
               phi(z) = min over s >= 0, g  g + (r - 1) s + sum_i c_i s exp((z_i - g) / s),
                       c_i = 0 left out
    Elliptic   Q = {q in the simplex: (q - c)' (F F')^-1 (q - c) <= r^2},   F a diagonal or a matrix
               phi(z) = min over eta >= 0, g   c'(z + eta) + r ||F'(z + eta - g)||_2

The second is what ``Ball`` has for F = 1 and p = 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quorate.arrays import Array
from quorate.solvers.conic.builder import ConicSolution, Index, Model
from quorate.solvers.conic.weight_sets import Reader


@dataclass(frozen=True)
class Entropy:
    """The weights q whose Kullback-Leibler divergence from ``prior`` is at most ``radius`` > 0."""

    prior: Array  # (N,)
    radius: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is minus the duals of the exponents."""
        inside = np.flatnonzero(self.prior > 0)
        g, s, part = model.variable(), model.variable(), model.variable(len(inside))
        model.linear(g, 1.0)
        model.linear(s, self.radius - 1)
        model.linear(part, self.prior[inside])
        handle = model.exponential(
            [(z[inside], 1.0), (g, -np.ones(len(inside)))], [(s, 1.0)], [(part, 1.0)]
        )

        def read(solution: ConicSolution) -> Array:
            q = np.zeros(len(z))
            q[inside] = -solution.z[handle][::3]
            return q

        return read


@dataclass(frozen=True)
class Elliptic:
    """The weights q with (q - prior)' (factor factor')^-1 (q - prior) <= size^2, size > 0."""

    prior: Array  # (N,)
    factor: Array  # (N,) the diagonal, 0 where q is the prior; or (N, N)
    size: float

    def add(self, model: Model, z: Index) -> Reader:
        """Add phi(z) to the objective; q is the dual of eta >= 0."""
        free = self._free
        eta = model.variable(len(free))
        model.linear(eta, self.prior[free])
        handle = model.nonneg([(eta, 1.0)])
        self._add(model, z, eta)

        def read(solution: ConicSolution) -> Array:
            q = self.prior.copy()
            q[free] = solution.z[handle]
            return q

        return read

    def add_larger(self, model: Model, z: Index) -> None:
        """As of ``Ball``: where nothing bounds z from above, z + eta is such numbers z itself."""
        self._add(model, z, None)

    @property
    def _free(self) -> Index:
        """Whose weights are not the prior's."""
        return np.flatnonzero(self.factor if self.factor.ndim == 1 else np.ones(len(self.prior)))

    def _add(self, model: Model, z: Index, eta: Index | None) -> None:
        diagonal, free = self.factor.ndim == 1, self._free
        unit = float(np.abs(self.factor).max())
        weight = (self.factor[free] if diagonal else self.factor.T) / unit
        g, norm = model.variable(), model.variable()
        model.linear(z, self.prior)
        model.linear(norm, self.size * unit)
        ones = weight if diagonal else weight.sum(1)
        level = (g, -ones) if diagonal else (g, -ones[:, None])
        more = [] if eta is None else [(eta, weight)]
        model.soc([(norm, 1.0)], [(z[free], weight), *more, level])
